//! The repair: reads the whole table once, in concurrent segments, and makes index rows and their targets agree.
//!
//! *Relations* in docs/rows.md is the specification. **No index row is ever written for a token**: a token without one may have
//! been revoked. Rows are deleted by the same context and in the same order as in the cleanup.

mod seen;
mod source;
mod work;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Range;

use futures_util::StreamExt;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use seen::Seen;
use source::{SegmentRows, TablePlace};

use crate::run::report::{Answer, RunReport, Tally};
use crate::run::{Checkpoint, Job, WalkRows, holds_rows};
use crate::store::{
    Budget, DeleteRows, OwnState, ReadActors, ReadRows, RestoreClient, RetireRows, ScanTable, StoreError, state_key,
    state_value,
};
use crate::walk::{Context, Stop, Walked, walk};
use shared::bucket::{BUCKETS, Generation, OAUTH_OWNER};
use shared::expiry::DeleteReason;
use shared::integrity::Sighting;
use shared::row::{Row, RowKey};
use shared::segment::Segment;
use shared::settings::{Purpose, Settings};
use shared::time::EpochSeconds;

/// Segments of the table, each with a cursor of its own.
const SEGMENTS: i32 = 8;
const CONCURRENT_SEGMENTS: usize = 2;

pub const NAME: &str = "index-repair";

/// Deletes dangling index rows, and rows that no index row leads to.
pub struct Repair {
    restore_clients: bool,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Findings {
    stranded_clients: u64,
    restored_clients: u64,
    legacy_rows: u64,
    /// `None` if the actors' table cannot be read or is empty.
    absent_actors: Option<u64>,
    rows_of_absent_actors: Option<u64>,
}

/// Rows deleted by kind, and the findings.
#[derive(Serialize)]
struct Body<'a> {
    dangling_index_rows: u64,
    unindexed_tokens: u64,
    unreferenced_provider_rows: u64,
    dead_rows: u64,
    legacy_rows: u64,
    found: &'a Value,
    skipped: u64,
}

impl Job for Repair {
    const NAME: &'static str = NAME;
    const PURPOSE: Purpose = Purpose::Repair;
    const PERIOD: i64 = 7 * 86_400;
    type Findings = Findings;

    fn new(settings: &Settings) -> Self {
        Self { restore_clients: settings.restore_clients }
    }

    fn answer(report: &RunReport) -> impl Serialize {
        use DeleteReason::{Consumed, Dangling, Expired, Legacy, TtlPast, Unindexed, Unreferenced};
        let deleted = |reason| report.counts.sum(|counts| counts.deleted_for(reason));
        let body = Body {
            dangling_index_rows: deleted(Dangling),
            unindexed_tokens: deleted(Unindexed),
            unreferenced_provider_rows: deleted(Unreferenced),
            dead_rows: deleted(Expired) + deleted(TtlPast) + deleted(Consumed),
            legacy_rows: deleted(Legacy),
            found: &report.findings,
            skipped: report.counts.rows_skipped(),
        };
        Answer::new(body, report)
    }
}

/// The capabilities that a repair needs.
pub trait RepairStore:
    ReadRows + ScanTable + DeleteRows + RetireRows + RestoreClient + ReadActors + OwnState + Budget
{
}

impl<S> RepairStore for S where
    S: ReadRows + ScanTable + DeleteRows + RetireRows + RestoreClient + ReadActors + OwnState + Budget
{
}

/// The shared state of the segments of one walk.
struct RepairWalk<'a, S> {
    context: &'a Context<'a, S>,
    checkpoint: &'a Checkpoint<'a, S>,
    progress: RefCell<RepairCursor>,
    /// Why a segment was not finished: no other segment is started.
    stopped: RefCell<Option<Stop>>,
    restore_clients: bool,
    /// ActingWeb 3.10 or later writes to the table: only then may a restore delete old-name index rows.
    writes_new_names: bool,
    notes: RefCell<Vec<String>>,
    seen: Seen,
    findings: RefCell<Findings>,
}

impl<S: RepairStore> WalkRows<S> for Repair {
    async fn walk(
        &self,
        context: &Context<'_, S>,
        segment: Option<Segment>,
        from: &Value,
        checkpoint: &Checkpoint<'_, S>,
    ) -> Walked<Findings> {
        let (mut notes, mut findings) = (Vec::new(), Findings::default());
        let read = async {
            let seen = Seen::read(context.store, context.now, context.policy.grace).await?;
            Ok((seen, self.restore_clients && writes_new_names(context.store).await?))
        };
        let (seen, writes_new_names) = match read.await {
            Ok(read) => read,
            Err(error) => {
                let stopped = Some((from.clone(), Stop::Fault(error)));
                return Walked { counts: Tally::default(), stopped, findings, notes };
            }
        };
        match context.store.holds_actors().await {
            Ok(true) => (findings.absent_actors, findings.rows_of_absent_actors) = (Some(0), Some(0)),
            Ok(false) => notes.push("rows of absent actors are not reported: the actors' table is empty".to_owned()),
            Err(error) => notes.push(format!("rows of absent actors are not reported: {error}")),
        }
        let (wanted, of) = match segment.map(Segment::of_scan) {
            None => (0..SEGMENTS, SEGMENTS),
            Some((number, of)) => (number..number + 1, of),
        };
        let walk = RepairWalk {
            context,
            checkpoint,
            progress: RefCell::new(RepairCursor::from_json(from, of)),
            stopped: RefCell::new(None),
            restore_clients: self.restore_clients,
            writes_new_names,
            notes: RefCell::new(notes),
            seen,
            findings: RefCell::new(findings),
        };
        let counts = walk.walk_segments(wanted).await;
        let stopped = walk.stopped.take().map(|why| (json!(walk.progress), why));
        // Only a complete walk from the beginning has seen every row.
        let whole = stopped.is_none() && from.is_null() && segment.is_none();
        let mut notes = walk.notes.take();
        if !context.dry
            && let Err(error) = walk.seen.write(context.store, whole).await
        {
            notes.push(format!("the rows of unknown age could not be recorded ({error}): they are kept longer"));
        }
        Walked { counts, stopped, findings: walk.findings.take(), notes }
    }
}

impl<S: RepairStore> RepairWalk<'_, S> {
    async fn walk_segments(&self, wanted: Range<i32>) -> Tally {
        let open: Vec<i32> = wanted.filter(|segment| !self.progress.borrow().done.contains(segment)).collect();
        // MAX_DELETES is exact only if the segments are done one after another.
        let concurrency = if self.context.is_sequential() { 1 } else { CONCURRENT_SEGMENTS };
        futures_util::stream::iter(open)
            .map(|segment| self.walk_segment(segment))
            .buffer_unordered(concurrency)
            .fold(Tally::default(), async |mut sum, counts| {
                sum.add(&counts);
                sum
            })
            .await
    }

    async fn walk_segment(&self, segment: i32) -> Tally {
        let Self { progress, stopped, .. } = self;
        if stopped.borrow().is_some() {
            return Tally::default();
        }
        let (from, of) = (progress.borrow().place_in(segment), progress.borrow().segments);
        let source = SegmentRows::new(self.context, segment, of, from);
        let (counts, end) =
            walk(self.context, source, async |units, counts: &mut Tally| self.work(units, counts).await).await;
        let why = match end {
            None => {
                progress.borrow_mut().finish(segment);
                match self.checkpoint.save(json!(progress)).await {
                    Ok(()) => return counts,
                    Err(error) => Stop::Fault(error),
                }
            }
            Some((at, why)) => {
                progress.borrow_mut().stop(segment, at);
                why
            }
        };
        // A fault takes precedence over the deadline.
        if !matches!(*stopped.borrow(), Some(Stop::Fault(_))) {
            *stopped.borrow_mut() = Some(why);
        }
        counts
    }
}

/// Whether the table holds a session, or the index row of a token, under the names of ActingWeb 3.10 and later. A server of an
/// older release finds clients by their old-name index rows alone.
async fn writes_new_names<S: ReadRows>(store: &S) -> Result<bool, StoreError> {
    let new = BUCKETS
        .iter()
        .filter(|bucket| bucket.generation == Generation::New && bucket.system_owner() == Some(OAUTH_OWNER));
    holds_rows(store, new.filter(|bucket| Some(*bucket) != work::client_index(Generation::New)), 1).await
}

/// The state row that records a row as unreachable and of unknown age.
pub(crate) fn seen_key(key: &RowKey) -> RowKey {
    state_key(&seen::state_name(key))
}

/// When the repair first saw a row of unknown age, by that state row.
pub(crate) fn sighting(state: Option<&Row>, key: &RowKey, now: EpochSeconds, grace: i64) -> Sighting {
    let stored = state.map_or(Value::Null, state_value);
    Seen::of([&stored], now, grace).sighting(key)
}

/// The progress of the segments; as JSON, this is the cursor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct RepairCursor {
    /// How many segments there are.
    segments: i32,
    done: BTreeSet<i32>,
    stopped: Vec<Stopped>,
}

/// An actor's id is not secret. A row's name may be, so `after` holds only its first characters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Stopped {
    segment: i32,
    owner: String,
    after: String,
}

impl RepairCursor {
    fn finish(&mut self, segment: i32) {
        self.stopped.retain(|stopped| stopped.segment != segment);
        self.done.insert(segment);
    }

    fn stop(&mut self, segment: i32, at: TablePlace) {
        self.stopped.retain(|stopped| stopped.segment != segment);
        self.stopped.extend(at.key.map(|key| Stopped { segment, owner: key.owner, after: key.sort }));
    }

    fn place_in(&self, segment: i32) -> Option<RowKey> {
        let stopped = self.stopped.iter().find(|stopped| stopped.segment == segment)?;
        Some(RowKey::new(&stopped.owner, &stopped.after))
    }

    /// If it is not a cursor of this release, the walk starts at the beginning, which is always safe.
    fn from_json(cursor: &Value, segments: i32) -> Self {
        let stored = Self::deserialize(cursor).ok().filter(|stored| stored.segments == segments);
        stored.unwrap_or(Self { segments, done: BTreeSet::new(), stopped: Vec::new() })
    }
}

#[cfg(test)]
mod tests {
    use model::mutate::{Corpus, Fuzz};
    use serde_json::json;

    use super::{RepairCursor, RowKey};

    #[test]
    fn a_cursor_that_is_not_of_this_release_starts_at_the_beginning() {
        let cursor = json!({"segments": 8, "done": [1], "stopped": [{"segment": 2, "owner": "a", "after": "b"}]});
        let stored = RepairCursor::from_json(&cursor, 8);
        assert_eq!((json!(stored), stored.place_in(2)), (cursor.clone(), Some(RowKey::new("a", "b"))));
        for other in [json!(null), json!({"segments": 8, "done": ["x"], "stopped": []}), json!({"segments": 8})] {
            assert_eq!(RepairCursor::from_json(&other, 8), RepairCursor::from_json(&json!(null), 8), "{other}");
        }
        assert!(RepairCursor::from_json(&cursor, 4).done.is_empty());
    }

    #[test]
    fn any_json_is_a_cursor_of_segments_that_can_be_stored() {
        let cursor = json!({"segments": 8, "done": [1], "stopped": [{"segment": 2, "owner": "a", "after": "b"}]});
        let fuzz = Fuzz::start("cursors of the repair", 20_000);
        let mut corpus = Corpus::of(&cursor.to_string(), fuzz.seed);
        let mut cursors = 0;
        for _ in 0..fuzz.rounds {
            let Ok(value) = serde_json::from_str(&corpus.next_text()) else { continue };
            let mut progress = RepairCursor::from_json(&value, 8);
            cursors += u32::from(progress.place_in(2).is_some());
            (0..8).for_each(|segment| drop(progress.place_in(segment)));
            assert_eq!(RepairCursor::from_json(&json!(progress), 8), progress, "{value}");
            progress.finish(2);
            assert_eq!(progress.place_in(2), None, "{value}");
        }
        assert!(cursors > 100, "{cursors}");
        fuzz.end();
    }
}
