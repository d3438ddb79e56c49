//! The daily cleanup's walk: pages every bucket of the system actors, judges, and deletes what is dead.
//!
//! Rows stream through in pages ([`source`]) as pieces of work of about a hundred rows; a few pieces are worked on side by
//! side ([`work`]), so memory stays flat. A dry run does all of it but the deletes.

mod cursor;
mod source;
mod work;

use std::cell::{Cell, RefCell};

use futures_util::StreamExt;

pub use cursor::Cursor;
pub use source::holds_known_rows;
use source::{Reader, Unit};

use crate::expiry::Policy;
use crate::report::Tally;
use crate::store::{Budget, DeleteRows, ReadRows, StoreError};
use crate::time::EpochSeconds;

/// Pieces of work under way at a time. DynamoDB answers in milliseconds; eight hide that without much memory.
const SIDE_BY_SIDE: usize = 8;

/// After this many pieces in a row that the store could not serve, the run gives up instead of knocking on.
const FAULTS_IN_A_ROW: u32 = 3;

/// One walk over the table.
pub struct Sweep<'a, S> {
    pub store: &'a S,
    pub now: EpochSeconds,
    pub policy: Policy,
    /// A dry run plans every delete and sends none.
    pub dry: bool,
    pub max_deletes: Option<u64>,
    /// Where an earlier run stopped.
    pub from: Option<Cursor>,
}

/// What a walk came to.
#[derive(Debug)]
pub struct Swept {
    pub counts: Tally,
    pub end: End,
}

#[derive(Clone, Debug, PartialEq)]
pub enum End {
    /// Went through to the last row.
    Through,
    /// Stopped before its time was up; the next one goes on here.
    OutOfTime(Cursor),
    /// Stopped at the ceiling; the next one goes on here.
    MaxDeletes(Cursor),
    /// Could not go on.
    Fault(StoreError),
}

/// Why one piece of work was not finished.
#[derive(Clone, Debug, PartialEq)]
enum Stop {
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

/// What the pieces of one walk share.
struct Walk<'a, S> {
    sweep: &'a Sweep<'a, S>,
    /// Deletes that may still be planned.
    allowance: Cell<u64>,
    faults_in_a_row: Cell<u32>,
    /// The first piece that was not finished, and why: no new piece is begun after it.
    stopped: RefCell<Option<(Cursor, Stop)>>,
}

impl<S: ReadRows + DeleteRows + Budget> Sweep<'_, S> {
    /// Walks until the end, the deadline, the ceiling or a fault. What was counted is returned in every case.
    pub async fn run(&self) -> Swept {
        let walk = Walk {
            sweep: self,
            allowance: Cell::new(self.max_deletes.unwrap_or(u64::MAX)),
            faults_in_a_row: Cell::new(0),
            stopped: RefCell::new(None),
        };
        // A ceiling is exact, and the same in a dry run, only if the pieces come one after another.
        let side_by_side = if self.max_deletes.is_some() { 1 } else { SIDE_BY_SIDE };
        let counts = futures_util::stream::unfold(Reader::new(self), |reader| walk.next_piece(reader))
            .map(|piece| Box::pin(walk.finish(piece)))
            .buffer_unordered(side_by_side)
            .fold(Tally::default(), async |mut sum, counts| {
                sum.add(&counts);
                sum
            })
            .await;
        let end = match walk.stopped.into_inner() {
            None => End::Through,
            Some((at, Stop::OutOfTime)) => End::OutOfTime(at.blurred(self.from.as_ref())),
            Some((at, Stop::MaxDeletes)) => End::MaxDeletes(at.blurred(self.from.as_ref())),
            Some((_, Stop::Fault(error))) => End::Fault(error),
        };
        Swept { counts, end }
    }
}

/// A piece of work: rows that were judged on the way, and units that need more reading or a delete.
struct Piece {
    /// Where the piece begins: if it is not finished, the next run goes on here.
    from: Cursor,
    counts: Tally,
    units: Vec<Unit>,
}

impl<S: ReadRows + DeleteRows + Budget> Walk<'_, S> {
    async fn next_piece<'r>(&self, mut reader: Reader<'r, S>) -> Option<(Piece, Reader<'r, S>)> {
        if self.stopped.borrow().is_some() {
            return None;
        }
        if self.sweep.store.time_is_up() {
            self.stop(reader.position(), Stop::OutOfTime);
            return None;
        }
        let from = reader.position();
        match reader.next_piece().await {
            Ok(None) => None,
            Ok(Some((counts, units))) => Some((Piece { from, counts, units }, reader)),
            Err(error) => {
                self.stop(from, error.into());
                None
            }
        }
    }

    async fn finish(&self, piece: Piece) -> Tally {
        let Piece { from, mut counts, units } = piece;
        if let Err(stop) = self.work(units, &mut counts).await {
            self.stop(from, stop);
        } else if counts.rows_skipped() > 0 && counts.rows_deleted() == 0 {
            self.fault(from);
        } else {
            self.faults_in_a_row.set(0);
        }
        counts
    }

    /// Rows were skipped over a fault of the moment. A few pieces like that in a row are no longer one.
    fn fault(&self, at: Cursor) {
        self.faults_in_a_row.set(self.faults_in_a_row.get() + 1);
        if self.faults_in_a_row.get() >= FAULTS_IN_A_ROW {
            self.stop(at, Stop::Fault(StoreError::KeepsFailing { pieces: FAULTS_IN_A_ROW }));
        }
    }

    /// The earliest place counts: pieces are worked on side by side. A fault outweighs the clock.
    fn stop(&self, at: Cursor, why: Stop) {
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
