//! How a run goes over rows, whichever they are: pieces of work of about a hundred rows, a few side by side, until the
//! end, the deadline, the ceiling or a fault. Rows stream through, so memory stays flat.
//!
//! A [`Source`] yields pieces of work; [`Context`] is what they are worked on with: the store, the rules, and the one delete
//! that knows of dry runs and ceilings. [`chain`] is the order in which a token and what hangs on it go.

mod chain;

use std::cell::{Cell, RefCell};

use futures_util::StreamExt;
use tokio::sync::{RwLock, RwLockReadGuard};

pub(crate) use chain::{Chain, Providers, needs_provider};

use crate::run::report::Tally;
use crate::store::{Budget, DeleteOutcome, DeleteRows, ReadRows, Result, StoreError};
use shared::expiry::{Condemned, Policy};
use shared::integrity::Lookup;
use shared::row::RowKey;
use shared::time::EpochSeconds;

/// Pieces of work under way at a time. DynamoDB answers in milliseconds; eight hide that without much memory.
const SIDE_BY_SIDE: usize = 8;

/// After this many pieces in a row that the store could not serve, the run gives up instead of knocking on.
const FAULTS_IN_A_ROW: u32 = 3;

/// What every piece of a run is worked on with.
pub struct Context<'a, S> {
    pub store: &'a S,
    pub now: EpochSeconds,
    pub policy: Policy,
    /// A dry run plans every delete and sends none.
    dry: bool,
    /// Deletes that may still be planned.
    allowance: Cell<u64>,
    concurrency: usize,
    /// Rows that were glanced at, and how many of them were not there.
    glances: Cell<(usize, usize)>,
}

impl<'a, S> Context<'a, S> {
    pub fn new(store: &'a S, now: EpochSeconds, policy: Policy, dry: bool, max_deletes: Option<u64>) -> Self {
        // A ceiling is exact, and the same in a dry run, only if the pieces come one after another.
        let concurrency = if max_deletes.is_some() { 1 } else { SIDE_BY_SIDE };
        let allowance = Cell::new(max_deletes.unwrap_or(u64::MAX));
        Self { store, now, policy, dry, allowance, concurrency, glances: Cell::default() }
    }

    pub fn is_dry(&self) -> bool {
        self.dry
    }

    /// Whether pieces, and segments, come one after another.
    pub(crate) fn one_by_one(&self) -> bool {
        self.concurrency == 1
    }
}

impl<S: ReadRows> Context<'_, S> {
    /// Looks at rows as cheaply as can be: at half price, and once more, consistently, for those that were not there. What
    /// was found is judged as it was read, and its delete is conditional on just that; absence alone decides by itself.
    ///
    /// Where most rows are absent, as when TTL was there first, the second look costs more than the first one saves.
    pub(crate) async fn look_cheaply(&self, keys: &[RowKey]) -> Result<Vec<Lookup>> {
        let (glanced, absent) = self.glances.get();
        if 2 * absent > glanced {
            return self.store.get_consistent(keys).await;
        }
        let mut found = self.store.get_eventual(keys).await?;
        let again: Vec<usize> = (0..keys.len()).filter(|i| found[*i] == Lookup::Absent).collect();
        self.glances.set((glanced + keys.len(), absent + again.len()));
        if !again.is_empty() {
            let keys: Vec<RowKey> = again.iter().map(|i| keys[*i].clone()).collect();
            for (i, lookup) in again.into_iter().zip(self.store.get_consistent(&keys).await?) {
                found[i] = lookup;
            }
        }
        Ok(found)
    }
}

impl<S: DeleteRows> Context<'_, S> {
    /// Deletes, or in a dry run pretends to, as far as the ceiling allows. Every row has an outcome if there is no `Stop`.
    pub(crate) async fn delete(&self, rows: Vec<Condemned>, counts: &mut Tally) -> Result<Vec<DeleteOutcome>, Stop> {
        match self.try_delete(rows, counts).await {
            (_, Some(stop)) => Err(stop),
            (outcomes, None) => Ok(outcomes),
        }
    }

    /// The same for who has to know of each row, also of those that a stop left untried.
    pub(crate) async fn try_delete(
        &self,
        mut rows: Vec<Condemned>,
        counts: &mut Tally,
    ) -> (Vec<DeleteOutcome>, Option<Stop>) {
        let wanted = rows.len();
        let allowed = usize::try_from(self.allowance.get()).unwrap_or(usize::MAX).min(wanted);
        rows.truncate(allowed);
        self.allowance.set(self.allowance.get() - allowed as u64);
        let (mut outcomes, stopped) = if self.dry {
            (vec![DeleteOutcome::Deleted; rows.len()], None)
        } else if rows.is_empty() {
            (Vec::new(), None)
        } else {
            let deletes = self.store.delete(&rows).await;
            (deletes.outcomes, deletes.stopped)
        };
        // What did not happen does not use up the ceiling; what may have happened does.
        let not_done = |outcome: &&DeleteOutcome| !matches!(outcome, DeleteOutcome::Deleted | DeleteOutcome::Unknown);
        self.allowance.set(self.allowance.get() + outcomes.iter().filter(not_done).count() as u64);
        for (row, outcome) in rows.iter().zip(&outcomes) {
            tracing::trace!(row = ?row.row().key, reason = row.reason().name(), outcome = ?outcome, "delete");
            counts.outcome(row.bucket(), row.reason(), *outcome);
        }
        outcomes.resize(wanted, DeleteOutcome::NotTried);
        let over_the_ceiling = (allowed < wanted).then_some(Stop::MaxDeletes);
        (outcomes, stopped.map(Stop::from).or(over_the_ceiling))
    }
}

/// Why a piece of work was not finished.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Stop {
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

/// How a walk ended, and where the next one goes on.
#[derive(Clone, Debug, PartialEq)]
pub enum WalkEnd<P> {
    /// Went through to the last row.
    Through,
    /// Stopped before its time was up.
    OutOfTime(P),
    /// Stopped at the ceiling.
    MaxDeletes(P),
    /// Could not go on.
    Fault(P, StoreError),
}

impl<P> WalkEnd<P> {
    /// The same end, its place told in another way.
    pub(crate) fn map<Q>(self, tell: impl FnOnce(P) -> Q) -> WalkEnd<Q> {
        match self {
            WalkEnd::Through => WalkEnd::Through,
            WalkEnd::OutOfTime(at) => WalkEnd::OutOfTime(tell(at)),
            WalkEnd::MaxDeletes(at) => WalkEnd::MaxDeletes(tell(at)),
            WalkEnd::Fault(at, error) => WalkEnd::Fault(tell(at), error),
        }
    }
}

/// What a walk came to.
#[derive(Debug)]
pub struct Walked<P> {
    pub counts: Tally,
    pub end: WalkEnd<P>,
}

/// Rows in order, as pieces of work.
pub(crate) trait Source {
    /// What a piece is made of.
    type Unit;
    /// A place to go on from. Places are ordered as the rows are.
    type Place: Clone + Ord;

    fn place(&self) -> Self::Place;

    /// Whether what comes next is cheaper to judge once all that is under way is done.
    fn is_better_waited_for(&self) -> bool {
        false
    }

    /// Counts of rows that needed no work, and units that do. `None` at the end.
    async fn next_piece(&mut self) -> Result<Option<(Tally, Vec<Self::Unit>)>>;
}

/// Walks over `source` with `work` on each piece. What was counted is returned in every case.
pub(crate) async fn walk<S, R>(
    context: &Context<'_, S>,
    source: R,
    work: impl AsyncFn(Vec<R::Unit>, &mut Tally) -> Result<(), Stop>,
) -> Walked<R::Place>
where
    S: ReadRows + DeleteRows + Budget,
    R: Source,
{
    let walk = Walk {
        store: context.store,
        faults_in_a_row: Cell::new(0),
        stopped: RefCell::new(None),
        under_way: RwLock::new(()),
    };
    let counts = futures_util::stream::unfold(source, |source| walk.next_piece(source))
        .map(|piece| Box::pin(walk.finish(piece, &work)))
        .buffer_unordered(context.concurrency)
        .fold(Tally::default(), async |mut sum, counts| {
            sum.add(&counts);
            sum
        })
        .await;
    let end = match walk.stopped.into_inner() {
        None => WalkEnd::Through,
        Some((at, Stop::OutOfTime)) => WalkEnd::OutOfTime(at),
        Some((at, Stop::MaxDeletes)) => WalkEnd::MaxDeletes(at),
        Some((at, Stop::Fault(error))) => WalkEnd::Fault(at, error),
    };
    Walked { counts, end }
}

/// What the pieces of one walk share.
struct Walk<'a, S, P> {
    store: &'a S,
    faults_in_a_row: Cell<u32>,
    /// The first piece that was not finished, and why: no new piece is begun after it.
    stopped: RefCell<Option<(P, Stop)>>,
    /// Shared by every piece from when it is handed out; who has it alone knows that none is under way.
    under_way: RwLock<()>,
}

/// A piece of work, and where it begins: if it is not finished, the next run goes on there.
struct Piece<'w, U, P> {
    from: P,
    counts: Tally,
    units: Vec<U>,
    under_way: RwLockReadGuard<'w, ()>,
}

impl<S: Budget, P: Clone + Ord> Walk<'_, S, P> {
    async fn next_piece<R: Source<Place = P>>(&self, mut source: R) -> Option<(Piece<'_, R::Unit, P>, R)> {
        if source.is_better_waited_for() {
            drop(self.under_way.write().await);
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
                let under_way = self.under_way.read().await;
                Some((Piece { from, counts, units, under_way }, source))
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
        let Piece { from, mut counts, units, under_way } = piece;
        if let Err(stop) = work(units, &mut counts).await {
            self.stop(from, stop);
        } else if counts.rows_failed() > 0 && counts.rows_deleted() == 0 {
            self.fault(from);
        } else {
            self.faults_in_a_row.set(0);
        }
        self.store.progressed(counts.rows_read(), counts.rows_deleted());
        drop(under_way);
        counts
    }

    /// Rows were skipped over a fault of the moment. A few pieces like that in a row are no longer one.
    fn fault(&self, at: P) {
        self.faults_in_a_row.set(self.faults_in_a_row.get() + 1);
        if self.faults_in_a_row.get() >= FAULTS_IN_A_ROW {
            self.stop(at, Stop::Fault(StoreError::KeepsFailing { pieces: FAULTS_IN_A_ROW }));
        }
    }

    /// The earliest place counts: pieces are worked on side by side. A fault outweighs the clock.
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
