//! Removes unused clients, but none that somebody has started to use meanwhile.
//!
//! A row that names a client is written by an authorisation, a token request or a refresh; each of them first finds the
//! client through its index row. (The one exception: a user who is at the provider's sign-in page gets a code afterwards.) So:
//!
//! 1. The index rows of some thousand clients are deleted. From then on nobody can start to use these clients, and none
//!    of their codes can become a token.
//! 2. The whole table is read consistently. A row that names one of them and was written before step 1 is found: it cannot
//!    have turned into another row since.
//! 3. A client that is named now gets its index row back. The records of the others are deleted.
//!
//! When the work ends early, the index rows of undecided clients are written back, also those whose delete was not answered. A
//! killed run leaves records without an index row; the next run decides about those that are still unused. If the killed run
//! was only frozen, it writes them back during the next run, which keeps the clients whose index row it finds in its last
//! lookup.

use serde::Serialize;

use super::survey;
use crate::run::clock::RunClock;
use crate::run::lease::{Lease, Lost};
use crate::run::pause::{self, Pause};
use crate::run::{RunError, acquire};
use crate::store::{
    Budget, Consistency, DeleteOutcome, Deletes, InspectTable, OwnState, PruneClients, ReadRows, Result, ScanTable,
    StopWork, StoreError,
};
use shared::bucket::Bucket;
use shared::clients::{ClientId, Clients, Pruned, Unused};
use shared::integrity::Lookup;
use shared::row::RowKey;

/// The holder in the lease.
const NAME: &str = "clients";

/// Bounds of the number of clients between two reads of the table, so that a read costs no more than the deletes.
const FEWEST: u64 = 1_000;
const MOST: u64 = 50_000;
/// Write units per client: an index row or two, and the record.
const UNITS: u64 = 3;

/// Clients per lookup, with three keys each.
const BATCH: usize = 33;

/// How a removal ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Ended {
    #[default]
    Complete,
    MaxDeletes,
    Stopped,
    Paused(Pause),
    LeaseLost,
    Fault(StoreError),
}

/// The result of a removal.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Prune {
    #[serde(rename = "clients_removed")]
    pub removed: u64,
    /// Of the removed clients.
    pub rows_deleted: u64,
    /// Named by a row that did not exist when the table was first read.
    pub used_since: u64,
    /// Changed or deleted by somebody else since they were read.
    pub changed: u64,
    /// Could not be read or deleted.
    pub skipped: u64,
    /// Left without an index row, because it could not be written back.
    pub without_index: u64,
    #[serde(skip)]
    pub ended: Ended,
}

/// Everything that a removal needs.
pub trait PruneStore: ReadRows + ScanTable + PruneClients + OwnState + InspectTable + Budget + StopWork {}

impl<S: ReadRows + ScanTable + PruneClients + OwnState + InspectTable + Budget + StopWork> PruneStore for S {}

/// Removes the unused clients of `clients`, under the lease.
pub async fn prune<S: PruneStore>(
    store: &S,
    clock: &RunClock,
    clients: &mut Clients,
    max_deletes: Option<u64>,
) -> std::result::Result<Prune, RunError> {
    let lease = acquire(store, clock, Lease::own(store, clock, NAME)).await?;
    let allowance = max_deletes.unwrap_or(u64::MAX);
    let mut work = Work { store, allowance, open: Vec::new(), left: Vec::new(), done: Prune::default() };
    let held = lease.hold(pause::stopping(store, clock, Box::pin(work.run(clients)))).await;
    work.left.append(&mut work.open);
    if held.is_ok() {
        // Lost meanwhile: as below.
        let _ = lease.hold(work.put_back()).await;
    }
    // Also without the lease: only absent rows are written back.
    work.put_back().await;
    lease.release().await;
    work.done.ended = match held {
        Err(Lost) => Ended::LeaseLost,
        Ok((_, Some(pause))) => Ended::Paused(pause),
        Ok((Err(StoreError::OutOfTime), None)) => Ended::Stopped,
        Ok((Err(fault), None)) => Ended::Fault(fault),
        Ok((Ok(ended), None)) => ended,
    };
    Ok(work.done)
}

/// An undecided client whose index rows are deleted.
#[derive(Clone)]
struct Open {
    id: ClientId,
    index: Vec<&'static Bucket>,
    /// The outcome of the delete of its record is unknown.
    record_may_be_gone: bool,
}

impl Open {
    fn new<'r>(id: ClientId, index: impl Iterator<Item = &'r Pruned>) -> Self {
        Self { id, index: index.map(Pruned::bucket).collect(), record_may_be_gone: false }
    }
}

struct Work<'a, S> {
    store: &'a S,
    /// Rows that may still be deleted.
    allowance: u64,
    open: Vec<Open>,
    /// Their index rows have to be written back, or are being deleted: the work may be cancelled before the answer.
    left: Vec<Open>,
    done: Prune,
}

impl<S: PruneStore> Work<'_, S> {
    async fn run(&mut self, clients: &mut Clients) -> Result<Ended> {
        let units = Consistency::Strong.units(self.store.figures().bytes);
        let at_a_time = usize::try_from((units / UNITS).clamp(FEWEST, MOST)).unwrap_or(usize::MAX);
        let mut waiting = clients.all_unused().into_iter();
        loop {
            let ended = self.close(&mut waiting, clients, at_a_time).await?;
            if !self.open.is_empty() {
                // Step 2. Earlier results remain valid, so they are extended.
                survey(self.store, clients, Consistency::Strong).await?;
                self.decide(clients).await?;
            }
            if let Some(ended) = ended {
                return Ok(ended);
            }
        }
    }

    /// Step 1. `None` when there are more clients.
    async fn close(
        &mut self,
        waiting: &mut impl Iterator<Item = ClientId>,
        clients: &Clients,
        at_a_time: usize,
    ) -> Result<Option<Ended>> {
        while self.open.len() < at_a_time {
            if self.store.time_is_up() {
                return Err(StoreError::OutOfTime);
            }
            let batch: Vec<ClientId> = waiting.by_ref().take(BATCH).collect();
            if batch.is_empty() {
                return Ok(Some(Ended::Complete));
            }
            // A later read may have found that a client is used.
            let batch: Vec<Unused<'_>> = batch.into_iter().filter_map(|id| clients.unused(id)).collect();
            if !self.close_batch(&batch).await? {
                return Ok(Some(Ended::MaxDeletes));
            }
        }
        Ok(None)
    }

    /// `false` when `MAX_DELETES` is reached.
    async fn close_batch(&mut self, batch: &[Unused<'_>]) -> Result<bool> {
        let (mut rows, mut of, mut is_within) = (Vec::new(), Vec::new(), true);
        for (client, (record, index)) in batch.iter().zip(self.look_up(batch).await?) {
            if record == Lookup::Unread || index.contains(&Lookup::Unread) {
                self.done.skipped += 1;
                continue;
            }
            let Some(index) = claimed(client, record, index) else {
                self.done.changed += 1;
                continue;
            };
            let needed = index.len() as u64 + 1;
            is_within = needed <= self.allowance;
            if !is_within {
                break;
            }
            self.allowance -= needed;
            self.left.push(Open::new(client.id, index.iter()));
            of.push((client.id, rows.len()..rows.len() + index.len()));
            rows.extend(index);
        }
        let Deletes { outcomes, stopped } = self.store.prune(&rows).await;
        self.left.clear();
        for (id, range) in of {
            let outcomes = &outcomes[range.clone()];
            let may_be_gone =
                |outcome: &DeleteOutcome| matches!(outcome, DeleteOutcome::Deleted | DeleteOutcome::Unknown);
            let gone = rows[range].iter().zip(outcomes).filter(|(_, outcome)| may_be_gone(outcome));
            let open = Open::new(id, gone.map(|(row, _)| row));
            if outcomes.iter().all(|outcome| *outcome == DeleteOutcome::Deleted) {
                self.open.push(open);
            } else {
                self.leave(open, outcomes.contains(&DeleteOutcome::LostRace));
            }
        }
        self.put_back().await;
        stopped.map_or(Ok(is_within), Err)
    }

    /// The record and the index rows of each client, by a consistent read.
    async fn look_up(&self, clients: &[Unused<'_>]) -> Result<Vec<(Lookup, Vec<Lookup>)>> {
        let keys: Vec<(RowKey, Vec<RowKey>)> = clients.iter().map(Unused::keys).collect();
        let all: Vec<RowKey> =
            keys.iter().flat_map(|(record, index)| [record].into_iter().chain(index).cloned()).collect();
        let mut found = self.store.get_consistent(&all).await?.into_iter();
        let of_client = |(_, index): &(RowKey, Vec<RowKey>)| {
            (found.next().unwrap_or(Lookup::Unread), found.by_ref().take(index.len()).collect())
        };
        Ok(keys.iter().map(of_client).collect())
    }

    /// Leaves the client undecided.
    fn leave(&mut self, open: Open, has_changed: bool) {
        *(if has_changed { &mut self.done.changed } else { &mut self.done.skipped }) += 1;
        self.left.push(open);
    }

    /// Step 3.
    async fn decide(&mut self, clients: &Clients) -> Result<()> {
        while !self.open.is_empty() {
            if self.store.time_is_up() {
                return Err(StoreError::OutOfTime);
            }
            let from = self.open.len().saturating_sub(BATCH);
            self.left.extend(self.open.extract_if(from.., |open| clients.unused(open.id).is_none()));
            self.done.used_since += self.left.len() as u64;
            self.put_back().await;
            if self.open.len() == from {
                continue;
            }
            let unused: Vec<Unused<'_>> = self.open[from..].iter().filter_map(|open| clients.unused(open.id)).collect();
            let found = self.look_up(&unused).await?;
            let batch = self.open.split_off(from);
            let mut rows = Vec::new();
            let mut of = Vec::new();
            for ((client, (record, index)), open) in unused.iter().zip(found).zip(batch) {
                let is_absent = |look: &Lookup| *look == Lookup::Absent;
                let has_changed = record != Lookup::Unread && !index.contains(&Lookup::Unread);
                match record {
                    // Somebody else has deleted it.
                    Lookup::Absent => self.done.changed += 1,
                    // With an index row again, it may have been used since.
                    Lookup::Found(row)
                        if index.iter().all(is_absent)
                            && let Some(record) = client.record(row.clone()) =>
                    {
                        rows.push(record);
                        of.push(open);
                    }
                    Lookup::Found(_) | Lookup::Unread => self.leave(open, has_changed),
                }
            }
            // Until the answer, as in step 1.
            let left = self.left.len();
            self.left.extend(of.iter().cloned());
            let Deletes { outcomes, stopped } = self.store.prune(&rows).await;
            self.left.truncate(left);
            for (open, outcome) in of.into_iter().zip(outcomes) {
                if outcome == DeleteOutcome::Deleted {
                    self.done.removed += 1;
                    self.done.rows_deleted += open.index.len() as u64 + 1;
                } else {
                    let record_may_be_gone = outcome == DeleteOutcome::Unknown;
                    self.leave(Open { record_may_be_gone, ..open }, outcome == DeleteOutcome::LostRace);
                }
            }
            self.put_back().await;
            if let Some(stopped) = stopped {
                return Err(stopped);
            }
        }
        Ok(())
    }

    /// Writes the deleted index rows of the clients in `left` back. A client leaves the list only afterwards. Rows that were
    /// not deleted in the end do not count towards `MAX_DELETES`.
    async fn put_back(&mut self) {
        while let Some(Open { id, index, record_may_be_gone }) = self.left.last().cloned() {
            let mut kept = u64::from(!record_may_be_gone);
            for bucket in index {
                if self.store.put_back(bucket, id).await.is_err() {
                    self.done.without_index += 1;
                    break;
                }
                kept += 1;
            }
            self.allowance = self.allowance.saturating_add(kept);
            self.left.pop();
        }
    }
}

/// The client's index rows; `None` if a row is no longer what was judged.
fn claimed(client: &Unused<'_>, record: Lookup, index: Vec<Lookup>) -> Option<Vec<Pruned>> {
    let Lookup::Found(record) = record else { return None };
    client.record(record)?;
    let found = index.into_iter().filter_map(|look| match look {
        Lookup::Found(row) => Some(client.index_row(row)),
        Lookup::Absent | Lookup::Unread => None,
    });
    found.collect()
}
