//! Gives rows the `ttl_timestamp` that they should have and have not: written before ActingWeb 3.7.4, or consumed by a
//! release that dropped it. Nothing else of a row is touched, no row is created, and a row that changes in between is
//! left alone.
//!
//! The table is read by Scan, in segments; rows stream through, so memory stays flat.

mod end;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};

use futures_util::StreamExt;

pub use end::own_end;
pub use shared::backfill::{LeaveReason, Plan, plan, plan_by_referrers, plan_by_target, written_with};

use crate::store::{Budget, Consistency, PageOf, PageSize, ReadRows, Result, ScanTable, StoreError, WriteTtl};
use shared::bucket::{self, Bucket, REFERRERS_PREFIX};
use shared::row::{Row, RowKey};
use shared::time::EpochSeconds;

/// Parts of the table that are read on their own, and how many of them at a time.
const SEGMENTS: i32 = 8;
const SEGMENTS_SIDE_BY_SIDE: usize = 2;
/// Writes under way at a time, of one page.
const WRITES_SIDE_BY_SIDE: usize = 8;
/// After this many rows in a row that the store could not serve, the run gives up instead of knocking on.
const FAULTS_IN_A_ROW: u32 = 25;

/// What is counted under a row that is of no known bucket.
pub const UNKNOWN: &str = "(unknown)";

/// What became of the rows of one bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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

/// How a backfill ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    Through,
    /// Somebody asked it to stop, or its time was up.
    Stopped,
    Fault(StoreError),
}

/// What a backfill came to.
#[derive(Clone, Debug)]
pub struct Backfilled {
    pub buckets: BTreeMap<&'static str, Counts>,
    /// Write units that the rows with a TTL to set cost, by their sizes.
    pub write_units: u64,
    pub ended: Ended,
}

impl Backfilled {
    fn sum(&self, of: impl Fn(&Counts) -> u64) -> u64 {
        self.buckets.values().map(of).sum()
    }

    pub fn read(&self) -> u64 {
        self.sum(|counts| counts.read)
    }

    pub fn set(&self) -> u64 {
        self.sum(|counts| counts.set)
    }

    pub fn lost_races(&self) -> u64 {
        self.sum(|counts| counts.lost_race)
    }

    pub fn skipped(&self) -> u64 {
        self.sum(|counts| counts.skipped)
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
    buckets: RefCell<BTreeMap<&'static str, Counts>>,
    write_units: RefCell<u64>,
    faults_in_a_row: RefCell<u32>,
    ended: RefCell<Option<Ended>>,
}

/// Goes over the whole table. A dry run sends no write, and counts what a real one would set.
pub async fn backfill<S>(store: &S, now: EpochSeconds, dry: bool) -> Backfilled
where
    S: ScanTable + ReadRows + WriteTtl + Budget,
{
    let work = Backfill {
        store,
        now,
        dry,
        buckets: RefCell::default(),
        write_units: RefCell::default(),
        faults_in_a_row: RefCell::default(),
        ended: RefCell::default(),
    };
    futures_util::stream::iter(0..SEGMENTS)
        .map(|segment| Box::pin(work.segment(segment)))
        .buffer_unordered(SEGMENTS_SIDE_BY_SIDE)
        .for_each(async |()| {})
        .await;
    Backfilled {
        buckets: work.buckets.into_inner(),
        write_units: work.write_units.into_inner(),
        ended: work.ended.into_inner().unwrap_or(Ended::Through),
    }
}

impl<S: ScanTable + ReadRows + WriteTtl + Budget> Backfill<'_, S> {
    async fn segment(&self, segment: i32) {
        let mut after: Option<RowKey> = None;
        while !self.is_over() {
            let next = match self.store.scan(segment, SEGMENTS, after.as_ref()).await {
                Ok(page) => {
                    let rows = page.rows.len() as u64;
                    if let Err(error) = self.page(page.rows).await {
                        self.end(error);
                    }
                    self.store.progressed(rows, 0);
                    page.next
                }
                Err(error) => {
                    self.end(error);
                    None
                }
            };
            after = next;
            if after.is_none() {
                return;
            }
        }
    }

    /// No new work is begun once somebody asked for a stop, the time is up or the store gave out.
    fn is_over(&self) -> bool {
        if self.ended.borrow().is_none() && self.store.time_is_up() {
            *self.ended.borrow_mut() = Some(Ended::Stopped);
        }
        self.ended.borrow().is_some()
    }

    /// The first fault is the one to tell; it outweighs the clock.
    fn end(&self, error: StoreError) {
        let mut ended = self.ended.borrow_mut();
        match (&*ended, error) {
            (Some(Ended::Fault(_)), _) => {}
            (_, StoreError::OutOfTime) => *ended = Some(Ended::Stopped),
            (_, error) => *ended = Some(Ended::Fault(error)),
        }
    }

    fn count(&self, bucket: &'static str, add: impl FnOnce(&mut Counts)) {
        add(self.buckets.borrow_mut().entry(bucket).or_default());
    }

    fn leave(&self, bucket: &'static str, reason: LeaveReason) {
        self.count(bucket, |counts| *counts.left.entry(reason.name()).or_default() += 1);
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
                (Some(bucket), Plan::AskTarget(target)) => pointers.push((row, bucket, target)),
                (Some(_), Plan::AskReferrers) => providers.push(row),
                (_, Plan::Leave(reason)) => self.leave(name, reason),
                (None, Plan::Set(_) | Plan::AskTarget(_) | Plan::AskReferrers) => {}
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
            None | Some(Plan::AskTarget(_) | Plan::AskReferrers) => self.skip(bucket),
        }
    }

    /// Index rows, by what they point at: looked up a batch at a time.
    async fn ask_targets(&self, pointers: Vec<(Row, &'static Bucket, RowKey)>, dated: &mut Vec<Dated>) -> Result<()> {
        let keys: Vec<RowKey> = pointers.iter().map(|(_, _, target)| target.clone()).collect();
        let targets = if keys.is_empty() { Vec::new() } else { self.store.get_consistent(&keys).await? };
        for ((row, bucket, _), target) in pointers.into_iter().zip(targets) {
            self.settle(row, bucket, plan_by_target(bucket, &target, self.now), dated);
        }
        Ok(())
    }

    /// Provider rows, by the tokens of their actor: one reading of an actor for all of its provider rows of the page.
    async fn ask_referrers(&self, providers: Vec<Row>, dated: &mut Vec<Dated>) -> Result<()> {
        let mut by_actor: HashMap<String, Vec<Row>> = HashMap::new();
        for row in providers {
            by_actor.entry(row.key.owner.clone()).or_default().push(row);
        }
        let bucket = bucket::provider();
        for (actor, rows) in by_actor {
            let written = match self.written(&actor, &rows).await {
                Ok(written) => written,
                Err(error) if error.is_passing() => {
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
        let mut after: Option<String> = None;
        loop {
            let of = PageOf {
                owner: actor,
                prefix: REFERRERS_PREFIX,
                after: after.as_deref(),
                until: None,
                reading: Consistency::Strong,
                size: PageSize::Paced,
            };
            let page = self.store.page(of).await?;
            for row in &page.rows {
                for (written, name) in written.iter_mut().zip(&names) {
                    let at = written_with(row, name);
                    *written = match (*written, at) {
                        (Some(one), Some(other)) => Some(one.min(other)),
                        (one, other) => one.or(other),
                    };
                }
            }
            after = page.next;
            if after.is_none() {
                return Ok(written);
            }
        }
    }

    /// A few writes at a time. What is in flight when it is stopped is finished.
    async fn write(&self, dated: Vec<Dated>) -> Result<()> {
        for row in &dated {
            *self.write_units.borrow_mut() += u64::from(row.row.write_units());
        }
        if self.dry {
            dated.iter().for_each(|row| self.count(row.bucket.name, |counts| counts.set += 1));
            return Ok(());
        }
        let results = futures_util::stream::iter(dated)
            .map(|row| Box::pin(self.write_one(row)))
            .buffer_unordered(WRITES_SIDE_BY_SIDE)
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
        let written = self.store.write_ttl(&row, Some(at)).await;
        tracing::trace!(row = ?row.key, at = at.get(), outcome = ?written, "ttl");
        match written {
            Ok(true) => self.count(bucket.name, |counts| counts.set += 1),
            Ok(false) => self.count(bucket.name, |counts| counts.lost_race += 1),
            Err(error) => {
                self.skip(bucket);
                let mut faults = self.faults_in_a_row.borrow_mut();
                *faults += 1;
                return match error {
                    error if !error.is_passing() => Err(error),
                    _ if *faults >= FAULTS_IN_A_ROW => Err(StoreError::KeepsFailing { pieces: *faults }),
                    _ => Ok(()),
                };
            }
        }
        *self.faults_in_a_row.borrow_mut() = 0;
        Ok(())
    }
}
