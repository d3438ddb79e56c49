//! Deletes the rows, index rows first. Each delete is conditional on the row as it was read, and then confirmed.

use std::collections::BTreeMap;

use super::find::{Found, Searchable, find};
use crate::store::{Consistency, DeleteOutcome, RevokeRows, StoreError};
use shared::integrity::Lookup;
use shared::revocation::{Belongs, Revoked, RowKind, Selection};
use shared::row::{Row, RowKey};

/// Attempts for a row that keeps changing, or whose outcome is unknown.
const TRIES: usize = 5;

/// Searches after the first; each finds rows that were issued since the previous one.
const MAX_ROUNDS: usize = 6;

/// What happened to a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum Fate {
    /// Deleted, and confirmed by a consistent read.
    Gone,
    /// Deleted, and not confirmed.
    Unconfirmed,
    /// Not deleted, or unknown.
    Left,
}

/// The result of a revocation.
#[derive(Debug, Default)]
pub struct RevokeResult {
    /// Every row that was found, in any round, in the order of the deletes.
    pub rows: Vec<(Revoked, Fate)>,
    /// Rows that did not exist at the time of the first search.
    pub issued_since: u64,
    /// Why the revocation ended early. The same command continues from there.
    pub stopped: Option<StoreError>,
    /// The last search found nothing more.
    pub is_complete: bool,
    pub unreadable: u64,
    pub unassigned_sessions: u64,
}

impl RevokeResult {
    pub fn count(&self, fate: Fate) -> u64 {
        self.rows.iter().filter(|(_, became)| *became == fate).count() as u64
    }
}

/// Deletes the rows that were found and searches again, until a search finds nothing.
pub async fn remove<S>(store: &S, selection: &mut Selection, mut found: Found) -> RevokeResult
where
    S: Searchable + RevokeRows,
{
    let mut work = Work { store, selection, fates: BTreeMap::new() };
    let mut removal = RevokeResult::default();
    let mut rounds = 0;
    while !found.rows.is_empty() {
        // After a search that reached MAX_HELD, the limit on rounds does not apply as long as rows are deleted.
        let (gone_before, is_part) = (work.gone(), found.more);
        removal.stopped = work.delete_all(found.rows).await.err();
        let is_going_on = is_part && work.gone() > gone_before;
        if removal.stopped.is_some() || (rounds >= MAX_ROUNDS && !is_going_on) {
            break;
        }
        found = match find(store, work.selection, Consistency::Strong).await {
            Ok(found) => found,
            Err(error) => {
                removal.stopped = Some(error);
                break;
            }
        };
        rounds += 1;
        removal.is_complete = found.rows.is_empty();
        if !is_part {
            removal.issued_since += found.rows.iter().filter(|row| !work.fates.contains_key(row.key())).count() as u64;
        }
    }
    RevokeResult {
        rows: work.into_rows(),
        unreadable: found.unreadable,
        unassigned_sessions: found.unassigned_sessions,
        ..removal
    }
}

struct Work<'a, S> {
    store: &'a S,
    selection: &'a mut Selection,
    fates: BTreeMap<RowKey, (Revoked, Fate)>,
}

impl<S: Searchable + RevokeRows> Work<'_, S> {
    fn gone(&self) -> usize {
        self.fates.values().filter(|(_, fate)| *fate == Fate::Gone).count()
    }

    /// A stop before the first delete takes effect at once. On a later stop, the store first finishes the index rows,
    /// so that no listed token can still be used through its index.
    async fn delete_all(&mut self, rows: Vec<Revoked>) -> Result<(), StoreError> {
        let mut turns: BTreeMap<(bool, RowKind), Vec<Revoked>> = BTreeMap::new();
        for row in rows {
            self.fates.insert(row.key().clone(), (row.clone(), Fate::Left));
            turns.entry(row.delete_order()).or_default().push(row);
        }
        if self.store.time_is_up() {
            return Err(StoreError::OutOfTime);
        }
        for (_, rows) in turns {
            self.delete_turn(rows).await?;
        }
        Ok(())
    }

    /// Deletes rows of one turn until a consistent read finds them absent. A row that has changed is deleted in its new
    /// state if the selection still claims it: a token that was just used, an index row with a new TTL.
    async fn delete_turn(&mut self, mut open: Vec<Revoked>) -> Result<(), StoreError> {
        for _ in 0..TRIES {
            if open.is_empty() {
                break;
            }
            let deletes = self.store.revoke(&open).await;
            for (row, outcome) in open.iter().zip(&deletes.outcomes) {
                if *outcome == DeleteOutcome::Deleted {
                    self.set(row, Fate::Unconfirmed);
                }
            }
            if let Some(stopped) = deletes.stopped {
                return Err(stopped);
            }
            let keys: Vec<RowKey> = open.iter().map(|row| row.key().clone()).collect();
            let looks = self.store.get_consistent(&keys).await?;
            let mut again = Vec::new();
            for (row, look) in open.into_iter().zip(looks) {
                match look {
                    Lookup::Absent => self.set(&row, Fate::Gone),
                    Lookup::Found(now) => again.extend(self.as_it_is_now(&row, now)),
                    // Deleting an absent row is harmless, and the row is read again afterwards.
                    Lookup::Unread => again.push(row),
                }
            }
            open = again;
        }
        Ok(())
    }

    fn as_it_is_now(&mut self, before: &Revoked, now: Row) -> Option<Revoked> {
        match self.selection.take(now, before.bucket()) {
            Ok(row) => {
                self.set(&row, Fate::Left);
                Some(row)
            }
            // Another row has its key: the claimed one is gone.
            Err(Belongs::No | Belongs::Yes) => {
                self.set(before, Fate::Gone);
                None
            }
            // It no longer names its owner.
            Err(Belongs::Unreadable) => None,
        }
    }

    fn set(&mut self, row: &Revoked, fate: Fate) {
        self.fates.insert(row.key().clone(), (row.clone(), fate));
    }

    fn into_rows(self) -> Vec<(Revoked, Fate)> {
        let mut rows: Vec<_> = self.fates.into_values().collect();
        rows.sort_by_key(|(row, _)| (row.delete_order(), row.bucket().name));
        rows
    }
}
