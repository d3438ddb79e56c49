//! Restores the earlier TTL of retired rows, or none. A row that was deleted, or removed by TTL, cannot be restored.
//!
//! Rows of a Scan are streamed, so memory use is constant. A row that the application has written since is no longer
//! retired. Each write is conditional on the row as read, including `retired_from`: the application's writes are safe.

use std::collections::BTreeMap;
use std::pin::pin;

use futures_util::{StreamExt, TryStreamExt};

use crate::explain::{Action, explain};
use crate::store::{Budget, ReadRows, Result, ScanTable, StoreError, WriteTtl, scan_pages};
use shared::expiry::{self, Policy, Verdict};
use shared::row::{Raw, Row};
use shared::time::EpochSeconds;

/// The name in the lease.
pub const NAME: &str = "restore";

/// Concurrent lookups and writes of one page.
const CONCURRENCY: usize = 8;

/// Which retired rows to restore, and the rules that say why they were retired.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub bucket: Option<String>,
    pub owner: Option<String>,
    /// Retired at this time or later.
    pub since: Option<EpochSeconds>,
    /// Seconds from a retirement to the TTL: the row itself does not record when it was retired.
    pub retired_for: i64,
    pub policy: Policy,
}

impl Wanted {
    fn names(&self, row: &Row) -> bool {
        self.bucket.as_deref().is_none_or(|bucket| row.bucket.text() == Some(bucket))
            && self.owner.as_deref().is_none_or(|owner| row.key.owner == owner)
    }

    fn is_since(&self, until: EpochSeconds) -> bool {
        self.since.is_none_or(|since| until.plus(-self.retired_for) >= since)
    }
}

/// Counts of the retired rows of one bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counts {
    pub retired: u64,
    /// Why a run would retire them, by the rows as they are now; `kept` where it would not.
    pub reasons: BTreeMap<&'static str, u64>,
    pub restored: u64,
    /// Retired once, and written by the application since: not retired any more, and left alone.
    pub rewritten: u64,
    /// Changed or gone since they were read, and left alone.
    pub lost_race: u64,
    pub skipped: u64,
    /// The earliest TTL of the retired rows.
    pub until: Option<i64>,
}

/// The result of a restore.
#[derive(Clone, Debug, Default)]
pub struct Restored {
    pub read: u64,
    pub buckets: BTreeMap<String, Counts>,
    /// It was interrupted, or hit its deadline.
    pub stopped: bool,
    pub fault: Option<StoreError>,
}

/// Reads the whole table. A dry run sends no writes, and counts what a real run would restore.
pub async fn restore<S>(store: &S, wanted: &Wanted, now: EpochSeconds, dry: bool) -> Restored
where
    S: ScanTable + ReadRows + WriteTtl + Budget,
{
    let mut restored = Restored::default();
    let mut pages = pin!(scan_pages(store, 0, 1));
    while restored.fault.is_none() {
        if store.time_is_up() {
            restored.stopped = true;
            break;
        }
        let page = match pages.try_next().await {
            Ok(None) => break,
            Ok(Some(rows)) => rows,
            Err(error) => {
                restored.end(error);
                break;
            }
        };
        let read = page.len() as u64;
        let mut retired: Vec<(Row, EpochSeconds)> = Vec::new();
        for row in page.into_iter().filter(|row| row.retired_from != Raw::Absent && wanted.names(row)) {
            match row.retirement().map(|(until, _)| until) {
                None => restored.of(&row).rewritten += 1,
                Some(until) if wanted.is_since(until) => retired.push((row, until)),
                Some(_) => {}
            }
        }
        let done: Vec<(Row, EpochSeconds, Result<Done>)> = futures_util::stream::iter(retired)
            .map(|(row, until)| async move {
                let done = put_back(store, &row, wanted, now, dry).await;
                (row, until, done)
            })
            .buffer_unordered(CONCURRENCY)
            .collect()
            .await;
        let before = restored.sum(|counts| counts.restored);
        for (row, until, done) in done {
            restored.count(&row, until, done);
        }
        restored.read += read;
        let written = if dry { 0 } else { restored.sum(|counts| counts.restored) - before };
        store.progressed(None, read, written);
    }
    restored
}

impl Restored {
    pub fn sum(&self, of: impl Fn(&Counts) -> u64) -> u64 {
        self.buckets.values().map(of).sum()
    }

    fn of(&mut self, row: &Row) -> &mut Counts {
        let bucket = row.known_bucket().map_or("(unknown)", |bucket| bucket.name);
        self.buckets.entry(bucket.to_owned()).or_default()
    }

    fn count(&mut self, row: &Row, until: EpochSeconds, done: Result<Done>) {
        let counts = self.of(row);
        counts.retired += 1;
        counts.until = counts.until.into_iter().chain([until.get()]).min();
        match done {
            Ok(Done { reason, written }) => {
                *counts.reasons.entry(reason).or_default() += 1;
                *(if written { &mut counts.restored } else { &mut counts.lost_race }) += 1;
            }
            Err(StoreError::OutOfTime) => self.stopped = true,
            Err(error) => {
                counts.skipped += 1;
                if !error.is_transient() {
                    self.end(error);
                }
            }
        }
    }

    fn end(&mut self, error: StoreError) {
        match error {
            StoreError::OutOfTime => self.stopped = true,
            error => self.fault = Some(error),
        }
    }
}

/// The result for one row.
struct Done {
    reason: &'static str,
    /// Or would be, in a dry run.
    written: bool,
}

/// Gives a retired row the TTL that it had.
async fn put_back<S: ReadRows + WriteTtl + Budget>(
    store: &S,
    row: &Row,
    wanted: &Wanted,
    now: EpochSeconds,
    dry: bool,
) -> Result<Done> {
    // A page of a small provisioned table takes minutes.
    if store.time_is_up() {
        return Err(StoreError::OutOfTime);
    }
    let reason = reason(store, row, now, &wanted.policy.deleting()).await?;
    let written = dry || store.write_ttl(row, row.ttl_before()).await?;
    tracing::trace!(row = ?row.key, reason, dry, written, "restore");
    Ok(Done { reason, written })
}

/// Why the row is dead, by the current rows. If the row itself does not suffice, the related rows are read.
async fn reason<S: ReadRows>(store: &S, row: &Row, now: EpochSeconds, policy: &Policy) -> Result<&'static str> {
    const KEPT: &str = "kept";
    let Some(bucket) = row.known_bucket() else { return Ok(KEPT) };
    if let Verdict::Delete(reason) = expiry::judge(row, bucket, now, policy) {
        return Ok(reason.name());
    }
    let told = explain(store, row.clone(), now, policy).await?;
    Ok(match (told.verdict, told.daily, told.repair) {
        (Some(Verdict::Delete(reason)), ..) | (_, Action::Delete(reason), _) | (.., Action::Delete(reason)) => {
            reason.name()
        }
        _ => KEPT,
    })
}
