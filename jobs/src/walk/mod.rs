//! How a run walks over rows: pieces of work of about a hundred rows, a few of them concurrently, until the end, the
//! deadline, `MAX_DELETES` or a fault. Rows are streamed, so memory use does not grow with the table.
//!
//! A [`Source`] yields pieces of work; [`Context`] is all that they need. [`chain`] deletes a token and the rows that
//! depend on it in order; [`referrers`] finds the rows that name a provider row.

mod chain;
mod referrers;
pub mod tally;

use std::cell::{Cell, RefCell};

use futures_util::StreamExt;
use serde_json::Value;
use tokio::sync::{RwLock, RwLockReadGuard};

pub(crate) use chain::{Chain, Providers};

use self::referrers::Remembered;
use self::tally::Tally;
use crate::store::{Budget, DeleteOutcome, DeleteRows, Deletes, ReadRows, Result, RetireRows, StoreError};
use shared::disposal::{Condemned, Disposal, Retirement};
use shared::expiry::Policy;
use shared::integrity::Lookup;
use shared::mask::Masked;
use shared::row::RowKey;
use shared::time::EpochSeconds;

/// Concurrent pieces of work. Eight hide the latency of DynamoDB, a few milliseconds, without using much memory.
const CONCURRENCY: usize = 8;

/// A run gives up after this many consecutive pieces that the store could not serve.
const FAULTS_IN_A_ROW: u32 = 3;

/// Everything a piece of work needs: the store, the rules, and the only path to a delete.
///
/// `delete` is the single place that knows about dry runs, `MAX_DELETES` and `EXPIRED_ROWS`.
pub struct Context<'a, S> {
    pub store: &'a S,
    pub now: EpochSeconds,
    pub policy: Policy,
    /// A dry run plans every delete and sends none.
    pub(crate) dry: bool,
    /// Deletes that `MAX_DELETES` still allows.
    allowance: Cell<u64>,
    concurrency: usize,
    /// Rows read with eventual consistency, and how many of them were absent.
    eventual_reads: Cell<(usize, usize)>,
    remembered: Remembered,
    /// Receives every row that a dry run would delete.
    planned: &'a dyn Fn(&Condemned),
}

impl<'a, S> Context<'a, S> {
    pub fn new(store: &'a S, now: EpochSeconds, policy: Policy, dry: bool, max_deletes: Option<u64>) -> Self {
        // MAX_DELETES is exact, and the same in a dry run, only if the pieces are done one after another.
        let concurrency = if max_deletes.is_some() { 1 } else { CONCURRENCY };
        let allowance = Cell::new(max_deletes.unwrap_or(u64::MAX));
        let (eventual_reads, remembered) = (Cell::default(), Remembered::default());
        Self { store, now, policy, dry, allowance, concurrency, eventual_reads, remembered, planned: &|_| () }
    }

    pub(crate) fn on_planned(self, planned: &'a dyn Fn(&Condemned)) -> Self {
        Self { planned, ..self }
    }

    /// Whether pieces, and segments, are done one after another.
    pub(crate) fn is_sequential(&self) -> bool {
        self.concurrency == 1
    }
}

impl<S: ReadRows> Context<'_, S> {
    /// Reads rows with eventual consistency, which costs half, and repeats the read consistently for those that were absent.
    ///
    /// A found row is safe to judge from a stale read because its delete is conditional. Absence is not, so it is always
    /// confirmed. Where most rows are absent, as after TTL, the second read costs more than the first one saves.
    pub(crate) async fn get_confirming_absence(&self, keys: &[RowKey]) -> Result<Vec<Lookup>> {
        let (read, absent) = self.eventual_reads.get();
        if 2 * absent > read {
            return self.store.get_consistent(keys).await;
        }
        let mut found = self.store.get_eventual(keys).await?;
        let again: Vec<usize> = (0..keys.len()).filter(|i| found[*i] == Lookup::Absent).collect();
        self.eventual_reads.set((read + keys.len(), absent + again.len()));
        if !again.is_empty() {
            let keys: Vec<RowKey> = again.iter().map(|i| keys[*i].clone()).collect();
            for (i, lookup) in again.into_iter().zip(self.store.get_consistent(&keys).await?) {
                found[i] = lookup;
            }
        }
        Ok(found)
    }
}

impl<S: DeleteRows + RetireRows> Context<'_, S> {
    /// Deletes or retires, or in a dry run counts, as many rows as `MAX_DELETES` allows. Every row has an outcome if there is no
    /// `Stop`.
    pub(crate) async fn delete(&self, rows: Vec<Condemned>, counts: &mut Tally) -> Result<Vec<DeleteOutcome>, Stop> {
        match self.try_delete(rows, counts).await {
            (_, Some(stop)) => Err(stop),
            (outcomes, None) => Ok(outcomes),
        }
    }

    /// Like `delete`, for callers that need the outcome of every row, including those not tried after a stop.
    pub(crate) async fn try_delete(
        &self,
        rows: Vec<Condemned>,
        counts: &mut Tally,
    ) -> (Vec<DeleteOutcome>, Option<Stop>) {
        let mut outcomes = vec![DeleteOutcome::NotTried; rows.len()];
        // A run either deletes all rows or retires all rows.
        let (mut places, mut deletes, mut retirements) = (Vec::new(), Vec::new(), Vec::new());
        let mut above_limit = None;
        for (i, row) in rows.into_iter().enumerate() {
            match row.dispose(self.now, &self.policy) {
                Disposal::LeaveToTtl(row) => {
                    outcomes[i] = DeleteOutcome::LeftToTtl;
                    self.count(&row, outcomes[i], counts);
                }
                Disposal::Delete(_) | Disposal::Retire(_) if self.allowance.get() == 0 => {
                    above_limit = Some(Stop::MaxDeletes);
                }
                disposal => {
                    self.allowance.set(self.allowance.get() - 1);
                    places.push(i);
                    match disposal {
                        Disposal::Retire(row) => retirements.push(row),
                        Disposal::Delete(row) | Disposal::LeaveToTtl(row) => deletes.push(row),
                    }
                }
            }
        }
        let written = if retirements.is_empty() {
            self.write(&deletes, DeleteOutcome::Deleted, async |rows| self.store.delete(rows).await).await
        } else {
            self.write(&retirements, DeleteOutcome::Retired, async |rows| self.store.retire(rows).await).await
        };
        let rows = deletes.iter().chain(retirements.iter().map(Retirement::condemned));
        for ((i, row), outcome) in places.into_iter().zip(rows).zip(written.outcomes) {
            // A failed write does not count towards MAX_DELETES; a write whose outcome is unknown does.
            if !outcome.is_done() && outcome != DeleteOutcome::Unknown {
                self.allowance.set(self.allowance.get() + 1);
            }
            self.count(row, outcome, counts);
            outcomes[i] = outcome;
        }
        (outcomes, written.stopped.map(Stop::from).or(above_limit))
    }

    /// Sends nothing in a dry run, or if there are no rows.
    async fn write<R>(&self, rows: &[R], done: DeleteOutcome, send: impl AsyncFn(&[R]) -> Deletes) -> Deletes {
        if self.dry || rows.is_empty() {
            return Deletes { outcomes: vec![done; rows.len()], stopped: None };
        }
        send(rows).await
    }

    /// Counts and logs the outcome, masked. The query in docs/monitoring.md reads these log lines.
    fn count(&self, row: &Condemned, outcome: DeleteOutcome, counts: &mut Tally) {
        counts.outcome(row.bucket(), row.reason(), outcome);
        let (key, bucket, reason) = (&row.row().key, row.bucket().name, row.reason().name());
        let name = row.row().name_in(row.bucket()).unwrap_or_default();
        if self.dry && outcome.is_done() {
            (self.planned)(row);
        }
        let message = match (outcome, self.dry) {
            (DeleteOutcome::Deleted, true) => "row would be deleted",
            (DeleteOutcome::Deleted, false) => "row deleted",
            (DeleteOutcome::Retired, true) => "row would be retired",
            (DeleteOutcome::Retired, false) => "row retired",
            (other, _) => return tracing::trace!(row = ?key, reason, outcome = ?other, "row not deleted"),
        };
        tracing::debug!(bucket, name = %Masked(name), owner = %Masked(&key.owner), reason, "{message}");
    }
}

/// Why a piece of work, and with it the walk, was not finished.
#[derive(Clone, Debug, PartialEq)]
pub enum Stop {
    OutOfTime,
    MaxDeletes,
    Fault(StoreError),
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::OutOfTime => Stop::OutOfTime,
            error => Stop::Fault(error),
        }
    }
}

/// The result of a job's walk.
#[derive(Debug)]
pub struct Walked<F> {
    pub counts: Tally,
    /// Where the next walk continues, and why this one stopped there; `None` when it reached the end.
    pub stopped: Option<(Value, Stop)>,
    pub findings: F,
    /// Sentences for the report.
    pub notes: Vec<String>,
}

/// Rows in order, as pieces of work.
pub(crate) trait Source {
    /// A piece is a list of these.
    type Unit;
    /// A place to continue from. Places are ordered like the rows.
    type Position: Clone + Ord;

    fn place(&self) -> Self::Position;

    /// Whether the next piece is cheaper to judge once all pieces before it are done.
    fn waits_for_earlier_pieces(&self) -> bool {
        false
    }

    /// Counts of the rows that need no work, and the units that do. `None` at the end.
    async fn next_piece(&mut self) -> Result<Option<(Tally, Vec<Self::Unit>)>>;
}

/// Walks over `source` and does `work` on each piece. Returns the counts however the walk ends, and where and why it stopped.
pub(crate) async fn walk<S, R>(
    context: &Context<'_, S>,
    source: R,
    work: impl AsyncFn(Vec<R::Unit>, &mut Tally) -> Result<(), Stop>,
) -> (Tally, Option<(R::Position, Stop)>)
where
    S: ReadRows + DeleteRows + RetireRows + Budget,
    R: Source,
{
    let walk = Walk {
        store: context.store,
        faults_in_a_row: Cell::new(0),
        stopped: RefCell::new(None),
        in_progress: RwLock::new(()),
    };
    let counts = futures_util::stream::unfold(source, |source| walk.next_piece(source))
        .map(|piece| Box::pin(walk.finish(piece, &work)))
        .buffer_unordered(context.concurrency)
        .fold(Tally::default(), async |mut sum, counts| {
            sum.add(&counts);
            sum
        })
        .await;
    (counts, walk.stopped.into_inner())
}

/// The shared state of the pieces of one walk.
struct Walk<'a, S, P> {
    store: &'a S,
    faults_in_a_row: Cell<u32>,
    /// Where the first unfinished piece starts, and why it is unfinished: no new piece is started.
    stopped: RefCell<Option<(P, Stop)>>,
    /// Read-locked by every piece in progress; the write lock waits for all of them.
    in_progress: RwLock<()>,
}

/// A piece of work, and where it starts: if it is not finished, the next run continues there.
struct Piece<'w, U, P> {
    from: P,
    counts: Tally,
    units: Vec<U>,
    in_progress: RwLockReadGuard<'w, ()>,
}

impl<S: Budget, P: Clone + Ord> Walk<'_, S, P> {
    async fn next_piece<R: Source<Position = P>>(&self, mut source: R) -> Option<(Piece<'_, R::Unit, P>, R)> {
        if source.waits_for_earlier_pieces() {
            drop(self.in_progress.write().await);
        }
        if self.stopped.borrow().is_some() {
            return None;
        }
        let from = source.place();
        if self.store.time_is_up() {
            self.stop(from, Stop::OutOfTime);
            return None;
        }
        match source.next_piece().await {
            Ok(None) => None,
            Ok(Some((counts, units))) => {
                let in_progress = self.in_progress.read().await;
                Some((Piece { from, counts, units, in_progress }, source))
            }
            Err(error) => {
                self.stop(from, error.into());
                None
            }
        }
    }

    async fn finish<U>(
        &self,
        piece: Piece<'_, U, P>,
        work: &impl AsyncFn(Vec<U>, &mut Tally) -> Result<(), Stop>,
    ) -> Tally {
        let Piece { from, mut counts, units, in_progress } = piece;
        let before_work = counts.clone();
        self.report(&before_work, &Tally::default());
        if let Err(stop) = work(units, &mut counts).await {
            self.stop(from, stop);
        } else if counts.rows_failed() > 0 && counts.rows_disposed() == 0 {
            self.fault(from);
        } else {
            self.faults_in_a_row.set(0);
        }
        self.report(&counts, &before_work);
        drop(in_progress);
        counts
    }

    /// Reports the rows that were read since `reported`.
    fn report(&self, counts: &Tally, reported: &Tally) {
        for (bucket, of) in counts.buckets() {
            let reported = reported.buckets().get(bucket).map_or(0, |of| of.read);
            self.store.progressed(Some(bucket), of.read - reported, 0);
        }
        self.store.progressed(None, counts.rows_unknown() - reported.rows_unknown(), 0);
    }

    /// Rows were skipped because of a transient fault. After several such pieces in a row, the fault is not transient.
    fn fault(&self, at: P) {
        self.faults_in_a_row.set(self.faults_in_a_row.get() + 1);
        if self.faults_in_a_row.get() >= FAULTS_IN_A_ROW {
            self.stop(at, Stop::Fault(StoreError::KeepsFailing { pieces: FAULTS_IN_A_ROW }));
        }
    }

    /// Keeps the earliest place, because pieces are concurrent. A fault takes precedence over the deadline.
    fn stop(&self, at: P, why: Stop) {
        let mut stopped = self.stopped.borrow_mut();
        *stopped = Some(match stopped.take() {
            None => (at, why),
            Some((earlier, known)) => {
                let why = if matches!(known, Stop::Fault(_)) { known } else { why };
                (earlier.min(at), why)
            }
        });
    }
}
