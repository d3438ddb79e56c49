//! Sets the missing `ttl_timestamp` of rows that were written before ActingWeb 3.7.4, or consumed by a release that dropped
//! it. Nothing else of a row is changed, no row is created, and a row that changes in the meantime is left alone.
//!
//! The table is read by Scan, in segments; rows are streamed, so memory use is constant.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::pin::pin;

use futures_util::{StreamExt, TryStreamExt};

use crate::store::{
    Budget, Consistency, PageOf, ReadRows, Result, ScanTable, StoreError, WriteTtl, get_one, pages, scan_pages,
};
use shared::backfill::{LeaveReason, Plan, plan, plan_by_referrers, plan_by_target, referrer_written_at};
use shared::bucket::{self, Bucket, REFERRERS_PREFIX};
use shared::expiry::{self, Policy};
use shared::integrity;
use shared::row::{Fields, Raw, Row, RowKey};
use shared::time::EpochSeconds;

/// Segments of the Scan, and how many are read concurrently.
const SEGMENTS: i32 = 8;
const CONCURRENT_SEGMENTS: usize = 2;
/// Concurrent writes of one page.
const CONCURRENT_WRITES: usize = 8;
/// After this many consecutive rows that the store could not write, the run gives up.
const MAX_CONSECUTIVE_FAULTS: u32 = 25;

/// The name under which rows of unknown buckets are counted.
const UNKNOWN: &str = "(unknown)";

/// Counts of the rows of one bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counts {
    pub read: u64,
    /// Given a TTL; in a dry run, would be.
    pub set: u64,
    pub left: BTreeMap<&'static str, u64>,
    /// Changed or gone since they were read, and left alone.
    pub lost_race: u64,
    /// Could not be read or written.
    pub skipped: u64,
}

/// How a backfill ended. The report uses these names.
#[derive(Clone, Debug, Default, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum Ended {
    #[default]
    #[strum(serialize = "complete")]
    Through,
    /// It was interrupted, or hit its deadline.
    Stopped,
    #[strum(serialize = "failed")]
    Fault(StoreError),
}

/// The result of a backfill.
#[derive(Clone, Debug, Default)]
pub struct Backfilled {
    pub buckets: BTreeMap<&'static str, Counts>,
    /// Write units needed to set the TTLs, by the sizes of the rows.
    pub write_units: u64,
    pub ended: Ended,
}

impl Backfilled {
    pub fn sum(&self, of: impl Fn(&Counts) -> u64) -> u64 {
        self.buckets.values().map(of).sum()
    }
}

/// A row, and the TTL that it should have.
struct Dated {
    row: Row,
    bucket: &'static Bucket,
    at: EpochSeconds,
}

struct Backfill<'a, S> {
    store: &'a S,
    now: EpochSeconds,
    dry: bool,
    done: RefCell<Backfilled>,
    consecutive_faults: Cell<u32>,
}

/// Reads the whole table. A dry run sends no writes, and counts what a real run would set.
pub async fn backfill<S>(store: &S, now: EpochSeconds, dry: bool) -> Backfilled
where
    S: ScanTable + ReadRows + WriteTtl + Budget,
{
    let work = Backfill { store, now, dry, done: RefCell::default(), consecutive_faults: Cell::new(0) };
    futures_util::stream::iter(0..SEGMENTS)
        .map(|segment| Box::pin(work.segment(segment)))
        .buffer_unordered(CONCURRENT_SEGMENTS)
        .for_each(async |worked: Result<()>| worked.unwrap_or_else(|error| work.end(error)))
        .await;
    work.done.into_inner()
}

impl<S: ScanTable + ReadRows + WriteTtl + Budget> Backfill<'_, S> {
    async fn segment(&self, segment: i32) -> Result<()> {
        let mut pages = pin!(scan_pages(self.store, segment, SEGMENTS));
        while !self.is_over()
            && let Some(rows) = pages.try_next().await?
        {
            let read = rows.len() as u64;
            let worked = self.page(rows).await;
            self.store.progressed(None, read, 0);
            worked?;
        }
        Ok(())
    }

    /// No new work is started after an interrupt, the deadline or a fault.
    fn is_over(&self) -> bool {
        let ended = &mut self.done.borrow_mut().ended;
        if *ended == Ended::Through && self.store.time_is_up() {
            *ended = Ended::Stopped;
        }
        *ended != Ended::Through
    }

    /// The first fault is reported; it takes precedence over the deadline.
    fn end(&self, error: StoreError) {
        let ended = &mut self.done.borrow_mut().ended;
        match (&*ended, error) {
            (Ended::Fault(_), _) => {}
            (_, StoreError::OutOfTime) => *ended = Ended::Stopped,
            (_, error) => *ended = Ended::Fault(error),
        }
    }

    fn count(&self, bucket: &'static str, add: impl FnOnce(&mut Counts)) {
        add(self.done.borrow_mut().buckets.entry(bucket).or_default());
    }

    fn leave(&self, bucket: &'static str, reason: LeaveReason) {
        self.count(bucket, |counts| *counts.left.entry(reason.into_str()).or_default() += 1);
    }

    fn skip(&self, bucket: &'static Bucket) {
        self.count(bucket.name, |counts| counts.skipped += 1);
    }

    async fn page(&self, rows: Vec<Row>) -> Result<()> {
        let (mut dated, mut pointers, mut providers) = (Vec::new(), Vec::new(), Vec::new());
        for row in rows {
            let (bucket, plan) = plan(&row, self.now);
            let name = bucket.map_or(UNKNOWN, |bucket| bucket.name);
            self.count(name, |counts| counts.read += 1);
            match (bucket, plan) {
                (Some(bucket), Plan::Set(at)) => dated.push(Dated { row, bucket, at }),
                (Some(bucket), Plan::FromTarget(target)) => pointers.push((row, bucket, target)),
                (Some(_), Plan::FromReferrers) => providers.push(row),
                (_, Plan::Leave(reason)) => self.leave(name, reason),
                (None, Plan::Set(_) | Plan::FromTarget(_) | Plan::FromReferrers) => {}
            }
        }
        self.ask_targets(pointers, &mut dated).await?;
        self.ask_referrers(providers, &mut dated).await?;
        self.write(dated).await
    }

    fn settle(&self, row: Row, bucket: &'static Bucket, plan: Option<Plan>, dated: &mut Vec<Dated>) {
        match plan {
            Some(Plan::Set(at)) => dated.push(Dated { row, bucket, at }),
            Some(Plan::Leave(reason)) => self.leave(bucket.name, reason),
            None | Some(Plan::FromTarget(_) | Plan::FromReferrers) => self.skip(bucket),
        }
    }

    /// Plans index rows by their targets, which are read in batches.
    async fn ask_targets(&self, pointers: Vec<(Row, &'static Bucket, RowKey)>, dated: &mut Vec<Dated>) -> Result<()> {
        let keys: Vec<RowKey> = pointers.iter().map(|(_, _, target)| target.clone()).collect();
        let targets = if keys.is_empty() { Vec::new() } else { self.store.get_consistent(&keys).await? };
        for ((row, bucket, _), target) in pointers.into_iter().zip(targets) {
            self.settle(row, bucket, plan_by_target(bucket, &target, self.now), dated);
        }
        Ok(())
    }

    /// Plans provider rows by the tokens of their actor, which is read once for all of its provider rows on the page.
    async fn ask_referrers(&self, providers: Vec<Row>, dated: &mut Vec<Dated>) -> Result<()> {
        let mut by_actor: HashMap<String, Vec<Row>> = HashMap::new();
        for row in providers {
            by_actor.entry(row.key.owner.clone()).or_default().push(row);
        }
        let bucket = bucket::provider();
        for (actor, rows) in by_actor {
            let written = match self.written(&actor, &rows).await {
                Ok(written) => written,
                Err(error) if error.is_transient() => {
                    rows.iter().for_each(|_| self.skip(bucket));
                    continue;
                }
                Err(error) => return Err(error),
            };
            for (row, written) in rows.into_iter().zip(written) {
                self.settle(row, bucket, Some(plan_by_referrers(written, self.now)), dated);
            }
        }
        Ok(())
    }

    /// When each of these provider rows was written, by the tokens that name them.
    async fn written(&self, actor: &str, rows: &[Row]) -> Result<Vec<Option<EpochSeconds>>> {
        let names: Vec<&str> = rows.iter().map(|row| row.name_in(bucket::provider()).unwrap_or_default()).collect();
        let mut written: Vec<Option<EpochSeconds>> = vec![None; rows.len()];
        let mut pages = pin!(pages(self.store, PageOf::all(actor, REFERRERS_PREFIX, Consistency::Strong)));
        while let Some(rows) = pages.try_next().await? {
            for row in &rows {
                for (written, name) in written.iter_mut().zip(&names) {
                    *written = written.iter().copied().chain(referrer_written_at(row, name)).min();
                }
            }
        }
        Ok(written)
    }

    /// A few writes at a time. Writes in flight are finished after a stop.
    async fn write(&self, dated: Vec<Dated>) -> Result<()> {
        self.done.borrow_mut().write_units += dated.iter().map(|one| u64::from(one.row.write_units())).sum::<u64>();
        if self.dry {
            dated.iter().for_each(|row| self.count(row.bucket.name, |counts| counts.set += 1));
            return Ok(());
        }
        let results = futures_util::stream::iter(dated)
            .map(|row| Box::pin(self.write_one(row)))
            .buffer_unordered(CONCURRENT_WRITES)
            .collect::<Vec<Result<()>>>()
            .await;
        results.into_iter().collect()
    }

    async fn write_one(&self, dated: Dated) -> Result<()> {
        let Dated { row, bucket, at } = dated;
        if self.is_over() {
            self.skip(bucket);
            return Ok(());
        }
        let written = self.store.write_ttl(&row, &Raw::Number(at.to_string())).await;
        tracing::trace!(row = ?row.key, at = at.get(), outcome = ?written, "ttl");
        match written {
            Ok(true) => self.count(bucket.name, |counts| counts.set += 1),
            Ok(false) => self.count(bucket.name, |counts| counts.lost_race += 1),
            Err(error) => {
                self.skip(bucket);
                let faults = self.consecutive_faults.get() + 1;
                self.consecutive_faults.set(faults);
                return match error {
                    error if !error.is_transient() => Err(error),
                    _ if faults >= MAX_CONSECUTIVE_FAULTS => Err(StoreError::KeepsFailing { pieces: faults }),
                    _ => Ok(()),
                };
            }
        }
        self.consecutive_faults.set(0);
        Ok(())
    }
}

/// When the row expires by its own fields, or an index row by those of its target; `None` if it never does. An
/// operator's TTL is compared with it.
pub async fn own_end<S: ReadRows>(store: &S, row: &Row, bucket: &Bucket) -> Result<Option<EpochSeconds>> {
    let Some(target) = integrity::target_key(row, bucket) else { return Ok(end_by_fields(row, bucket)) };
    let target = get_one(store, target).await?;
    Ok(target.and_then(|target| end_by_fields(&target, target.known_bucket()?)))
}

/// An earlier TTL would remove a live row, or a consumed refresh token that is still a tripwire.
fn end_by_fields(row: &Row, bucket: &Bucket) -> Option<EpochSeconds> {
    Fields::read(&row.data)?;
    expiry::dead_from(&Row { ttl: Raw::Absent, retired_from: Raw::Absent, ..row.clone() }, bucket, &Policy::default())
}
