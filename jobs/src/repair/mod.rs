//! The index repair as a job: reads the whole table once, in segments side by side, and makes the indexes and the rows
//! behind them agree.
//!
//! *Relations* in ROWS.md is the specification. **No index row is ever written for a token**: a token without one may have
//! been revoked. What is deleted, and in which order, goes through the same context as the daily cleanup.

mod seen;
mod source;
mod work;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ops::Range;

use futures_util::StreamExt;
use serde_json::{Value, json};

use seen::Seen;
use source::{SegmentRows, TablePlace};

use crate::backlog::segment_run::KINDS;
use crate::run::report::Tally;
use crate::run::{Checkpoint, Job, Pass};
use crate::store::{Budget, DeleteRows, OwnState, ReadActors, ReadRows, RestoreClient, ScanTable};
use crate::walk::{Context, WalkEnd, Walked, walk};
use shared::bucket::{JANITOR_OWNER, STATE_BUCKET};
use shared::integrity::Sighting;
use shared::row::{Row, RowKey};
use shared::segment::Segment;
use shared::settings::Settings;
use shared::time::EpochSeconds;

/// Parts of the table that are read on their own, each with a cursor of its own.
const SEGMENTS: i32 = 8;
/// Segments under way at a time.
const CONCURRENT_SEGMENTS: usize = 2;

pub const NAME: &str = "index-repair";

pub struct IndexRepair {
    restore_clients: bool,
}

/// What the repair finds beside what it deletes.
#[derive(Clone, Debug, Default)]
struct Findings {
    stranded_clients: u64,
    restored_clients: u64,
    legacy_rows: u64,
    absent_actors: u64,
    rows_of_absent_actors: u64,
}

/// What the segments of one pass share.
struct RepairPass<'a, S> {
    context: &'a Context<'a, S>,
    restore_clients: bool,
    /// Whether the actors' table can be read and believed.
    actors_readable: Cell<bool>,
    notes: RefCell<Vec<String>>,
    seen: Seen,
    findings: RefCell<Findings>,
}

impl IndexRepair {
    pub fn new(settings: &Settings) -> Self {
        Self { restore_clients: settings.restore_clients }
    }
}

impl<S> Job<S> for IndexRepair
where
    S: ReadRows + ScanTable + DeleteRows + RestoreClient + ReadActors + OwnState + Budget,
{
    const NAME: &'static str = NAME;
    const PERIOD: i64 = 7 * 86_400;

    async fn walk(
        &self,
        context: &Context<'_, S>,
        segment: Option<Segment>,
        from: &Value,
        checkpoint: &Checkpoint<'_, S>,
    ) -> Pass {
        let mut notes = Vec::new();
        let seen = match Seen::read(context.store, context.now, context.policy.grace).await {
            Ok(seen) => seen,
            Err(error) => {
                let end = WalkEnd::Fault(from.clone(), error);
                return Pass { counts: Tally::default(), end, findings: Value::Null, notes };
            }
        };
        let actors_readable = match context.store.holds_actors().await {
            Ok(true) => true,
            Ok(false) => {
                notes.push(
                    "the actors' table is empty, which is not to be believed: no row is reported as an absent actor's"
                        .to_owned(),
                );
                false
            }
            Err(error) => {
                notes.push(format!("rows of absent actors are not reported: {error}"));
                false
            }
        };
        let pass = RepairPass {
            context,
            restore_clients: self.restore_clients,
            actors_readable: Cell::new(actors_readable),
            notes: RefCell::new(notes),
            seen,
            findings: RefCell::default(),
        };
        let (wanted, of) = match segment.map(Segment::of_scan) {
            None => (0..SEGMENTS, SEGMENTS),
            Some((number, of)) => (number..number + 1, of),
        };
        let progress = RefCell::new(Progress::from_json(from, of));
        let (counts, end) = pass.walk_segments(wanted, &progress, checkpoint).await;
        // Only a walk over all of it that began at the beginning has seen all that there is to see.
        let whole = end == WalkEnd::Through && from.is_null() && segment.is_none();
        let mut notes = pass.notes.take();
        if !context.is_dry()
            && let Err(error) = pass.seen.write(context.store, whole).await
        {
            notes.push(format!("what was seen could not be written down ({error}): rows of unknown age wait longer"));
        }
        Pass { counts, end, findings: pass.findings(), notes }
    }
}

impl<S> RepairPass<'_, S>
where
    S: ReadRows + ScanTable + DeleteRows + RestoreClient + ReadActors + OwnState + Budget,
{
    async fn walk_segments(
        &self,
        wanted: Range<i32>,
        progress: &RefCell<Progress>,
        checkpoint: &Checkpoint<'_, S>,
    ) -> (Tally, WalkEnd<Value>) {
        let open: Vec<i32> = wanted.filter(|segment| !progress.borrow().done.contains(segment)).collect();
        // A ceiling is exact only if the segments come one after another.
        let concurrency = if self.context.one_by_one() { 1 } else { CONCURRENT_SEGMENTS };
        let ended: RefCell<Option<WalkEnd<()>>> = RefCell::new(None);
        let counts = futures_util::stream::iter(open)
            .map(|segment| self.walk_segment(segment, progress, &ended, checkpoint))
            .buffer_unordered(concurrency)
            .fold(Tally::default(), async |mut sum, counts| {
                sum.add(&counts);
                sum
            })
            .await;
        let end = ended.into_inner().unwrap_or(WalkEnd::Through).map(|()| progress.borrow().to_json());
        (counts, end)
    }

    async fn walk_segment(
        &self,
        segment: i32,
        progress: &RefCell<Progress>,
        ended: &RefCell<Option<WalkEnd<()>>>,
        checkpoint: &Checkpoint<'_, S>,
    ) -> Tally {
        if ended.borrow().is_some() {
            return Tally::default();
        }
        let (from, of) = (progress.borrow().place_in(segment), progress.borrow().of);
        let source = SegmentRows::new(self.context, segment, of, from);
        let Walked { counts, end } =
            walk(self.context, source, async |units, counts: &mut Tally| self.work(units, counts).await).await;
        let end = match end {
            WalkEnd::Through => {
                progress.borrow_mut().finish(segment);
                let so_far = progress.borrow().to_json();
                match checkpoint.save(so_far).await {
                    Ok(()) => return counts,
                    Err(error) => WalkEnd::Fault((), error),
                }
            }
            end => end.map(|at| progress.borrow_mut().stop(segment, at)),
        };
        // A fault outweighs the clock.
        if !matches!(*ended.borrow(), Some(WalkEnd::Fault(..))) {
            *ended.borrow_mut() = Some(end);
        }
        counts
    }

    fn findings(&self) -> Value {
        let findings = self.findings.borrow();
        let of_actors = |n: u64| if self.actors_readable.get() { json!(n) } else { Value::Null };
        let found = [
            json!(findings.stranded_clients),
            json!(findings.restored_clients),
            json!(findings.legacy_rows),
            of_actors(findings.absent_actors),
            of_actors(findings.rows_of_absent_actors),
        ];
        KINDS.iter().map(|kind| (*kind).to_owned()).zip(found).collect()
    }
}

/// Where the repair remembers a row as unreachable and of unknown age.
pub(crate) fn seen_key(key: &RowKey) -> RowKey {
    RowKey::new(JANITOR_OWNER, format!("{STATE_BUCKET}:{}", seen::state_name(key)))
}

/// What the repair remembers of a row, by its state row.
pub(crate) fn sighting(state: Option<&Row>, key: &RowKey, now: EpochSeconds, grace: i64) -> Sighting {
    let stored = state.and_then(|row| serde_json::from_str(row.data.text()?).ok()).unwrap_or(Value::Null);
    Seen::of([&stored], now, grace).sighting(key)
}

/// How far the segments have come.
#[derive(Clone, Debug, PartialEq)]
struct Progress {
    /// How many segments the table is cut into.
    of: i32,
    done: BTreeSet<i32>,
    stopped: Vec<(i32, TablePlace)>,
}

impl Progress {
    fn finish(&mut self, segment: i32) {
        self.stopped.retain(|(stopped, _)| *stopped != segment);
        self.done.insert(segment);
    }

    fn stop(&mut self, segment: i32, at: TablePlace) {
        self.stopped.retain(|(stopped, _)| *stopped != segment);
        self.stopped.push((segment, at));
    }

    fn place_in(&self, segment: i32) -> Option<RowKey> {
        self.stopped.iter().find(|(stopped, _)| *stopped == segment).and_then(|(_, at)| at.key.clone())
    }

    /// A place is an actor's id and the bucket reached in it: an id is no secret, a row's name may be one.
    fn to_json(&self) -> Value {
        let stopped: Vec<Value> = self
            .stopped
            .iter()
            .filter_map(|(segment, at)| {
                let key = at.key.as_ref()?;
                Some(json!({"segment": segment, "owner": key.owner, "after": key.sort}))
            })
            .collect();
        json!({"segments": self.of, "done": self.done, "stopped": stopped})
    }

    /// Nothing done when it is not a cursor of this release: the walk then begins at the beginning, which is always right.
    fn from_json(value: &Value, of: i32) -> Self {
        if value["segments"] != of {
            return Self { of, done: BTreeSet::new(), stopped: Vec::new() };
        }
        let segment = |value: &Value| {
            value.as_i64().and_then(|segment| i32::try_from(segment).ok()).filter(|segment| (0..of).contains(segment))
        };
        let list = |name: &str| value[name].as_array().cloned().unwrap_or_default();
        let place = |value: &Value| {
            let key = RowKey::new(value["owner"].as_str()?, value["after"].as_str()?);
            Some((segment(&value["segment"])?, TablePlace { passed: 0, key: Some(key) }))
        };
        Self {
            of,
            done: list("done").iter().filter_map(segment).collect(),
            stopped: list("stopped").iter().filter_map(place).collect(),
        }
    }
}
