//! Finds every row that a selection claims.
//!
//! The search does not depend on index rows, because an incomplete run has deleted those first. An actor's rows are in
//! its own partition and among the system actor's sessions and SPA tokens. Rows of a client or a chain can belong to
//! any actor: the whole table is read. A token is looked up; the whole table is read only if that finds nothing.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::pin::pin;

use futures_util::{Stream, StreamExt, TryStreamExt};

use crate::store::{Budget, Consistency, PageOf, ReadRows, Result, ScanTable, StoreError, pages, scan_segment};
use shared::bucket::{self, BUCKETS, Bucket, OAUTH_OWNER, REFERRERS_PREFIX};
use shared::index;
use shared::integrity::Lookup;
use shared::revocation::{Belongs, Revoked, RowKind, Selection, Selector, kind};
use shared::row::{Row, RowKey};

/// Segments of the Scan, read concurrently.
const SEGMENTS: i32 = 4;

/// Maximum number of rows in memory, about a kilobyte each. The next round finds the rest.
pub const MAX_HELD: usize = 100_000;

/// Links lead from a token to its chain, and from there to a session: a few passes follow all of them.
const MAX_PASSES: usize = 8;

/// The traits that a search needs. None of them writes.
pub trait Searchable: ReadRows + ScanTable + Budget {}
impl<S: ReadRows + ScanTable + Budget> Searchable for S {}

/// The result of a search.
#[derive(Debug, Default)]
pub struct Found {
    /// Each row once.
    pub rows: Vec<Revoked>,
    /// Rows whose owner is unknown because their data cannot be read: kept.
    pub unreadable: u64,
    /// Sessions in the middle of a sign-in, which name no actor yet. Counted when an actor is revoked.
    pub unassigned_sessions: u64,
    /// The search stopped at [`MAX_HELD`] rows: there may be more.
    pub more: bool,
}

/// How much of the table has to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reach {
    /// The actor's own partition, and the sessions and SPA tokens.
    Partition,
    /// The whole table.
    Table,
    /// A few rows; the whole table if no row leads to the token.
    Lookup,
}

impl Reach {
    pub fn of(selector: &Selector) -> Self {
        match selector {
            Selector::Actor(_) => Reach::Partition,
            Selector::Client { .. } | Selector::Chain(_) => Reach::Table,
            Selector::Token(_) => Reach::Lookup,
        }
    }
}

/// Finds every row that the selection claims, and follows their links. An error means that the table was not read to the end.
pub async fn find<S: Searchable>(store: &S, selection: &mut Selection, reading: Consistency) -> Result<Found> {
    let selector = selection.selector().clone();
    let known_before = selection.size();
    let held =
        Held { selection, rows: BTreeMap::new(), unreadable: HashSet::new(), unassigned: HashSet::new(), more: false };
    let search = Search { store, reading, held: RefCell::new(held) };
    match &selector {
        Selector::Actor(actor) => {
            search.query(actor, REFERRERS_PREFIX).await?;
            search.sessions_and_spa_tokens().await?;
        }
        Selector::Client { .. } => search.table().await?,
        Selector::Chain(_) => {
            search.table().await?;
            search.follow_links().await?;
        }
        Selector::Token(token) => {
            search.get_consistent(places_of(token)).await?;
            search.follow_links().await?;
            let leads_nowhere = search.held.borrow().rows.values().all(|row| row.kind() == RowKind::Index);
            // The links of an earlier round are enough to continue from.
            if leads_nowhere && known_before == 0 {
                search.table().await?;
                search.follow_links().await?;
            }
        }
    }
    search.providers_and_index_rows().await?;
    Ok(search.held.into_inner().into_found())
}

/// The keys that a token can have if its actor is unknown.
fn places_of(token: &str) -> Vec<RowKey> {
    let can_hold = |bucket: &&Bucket| {
        let is_wanted = matches!(kind(bucket), Some(RowKind::Session | RowKind::Spa | RowKind::Index | RowKind::Token));
        is_wanted && bucket.owner.holds(OAUTH_OWNER)
    };
    BUCKETS.iter().filter(can_hold).map(|bucket| RowKey::in_bucket(OAUTH_OWNER, bucket, token)).collect()
}

struct Held<'a> {
    selection: &'a mut Selection,
    rows: BTreeMap<RowKey, Revoked>,
    /// Each is counted once; a later pass may still find its owner.
    unreadable: HashSet<RowKey>,
    unassigned: HashSet<RowKey>,
    more: bool,
}

impl Held<'_> {
    /// Claims the row, counts it, or ignores it.
    fn examine(&mut self, row: Row) {
        let Some(bucket) = row.known_bucket() else { return };
        if kind(bucket).is_none() || self.rows.contains_key(&row.key) {
            return;
        }
        let key = row.key.clone();
        if self.selection.is_unassigned(&row, bucket) {
            self.unassigned.insert(key.clone());
        }
        match self.selection.take(row, bucket) {
            Ok(revoked) => {
                self.unreadable.remove(&key);
                self.rows.insert(key, revoked);
            }
            Err(Belongs::Unreadable) => {
                self.unreadable.insert(key);
            }
            Err(Belongs::Yes | Belongs::No) => {}
        }
    }

    fn into_found(self) -> Found {
        let mut rows: Vec<Revoked> = self.rows.into_values().collect();
        rows.sort_by_cached_key(|row| (row.delete_order(), row.bucket().name, row.key().clone()));
        Found {
            rows,
            unreadable: self.unreadable.len() as u64,
            unassigned_sessions: self.unassigned.len() as u64,
            more: self.more,
        }
    }
}

struct Search<'a, S> {
    store: &'a S,
    reading: Consistency,
    held: RefCell<Held<'a>>,
}

impl<S: Searchable> Search<'_, S> {
    /// Returns whether there is room for more rows.
    fn examine(&self, rows: Vec<Row>) -> Result<bool> {
        self.store.progressed(None, rows.len() as u64, 0);
        let mut held = self.held.borrow_mut();
        rows.into_iter().for_each(|row| held.examine(row));
        held.more |= held.rows.len() >= MAX_HELD;
        if self.store.time_is_up() { Err(StoreError::OutOfTime) } else { Ok(!held.more) }
    }

    async fn examine_pages(&self, pages: impl Stream<Item = Result<Vec<Row>>>) -> Result<()> {
        let mut pages = pin!(pages);
        while let Some(rows) = pages.try_next().await? {
            if !self.examine(rows)? {
                break;
            }
        }
        Ok(())
    }

    /// All rows of `owner` whose range key begins with `prefix`.
    async fn query(&self, owner: &str, prefix: &str) -> Result<()> {
        self.examine_pages(pages(self.store, PageOf::all(owner, prefix, self.reading))).await
    }

    async fn sessions_and_spa_tokens(&self) -> Result<()> {
        for bucket in BUCKETS.iter().filter(|bucket| matches!(kind(bucket), Some(RowKind::Session | RowKind::Spa))) {
            self.query(OAUTH_OWNER, &bucket.sort_prefix()).await?;
        }
        Ok(())
    }

    /// Every row of the table.
    async fn table(&self) -> Result<()> {
        let segment = |segment| self.examine_pages(scan_segment(self.store, segment, SEGMENTS, None, self.reading));
        let all = futures_util::stream::iter(0..SEGMENTS).map(segment);
        all.buffer_unordered(usize::try_from(SEGMENTS).unwrap_or(1)).try_collect().await
    }

    /// Follows the links of the rows found so far, until there are no new ones.
    async fn follow_links(&self) -> Result<()> {
        for _ in 0..MAX_PASSES {
            let (before, owners, in_spa) = {
                let held = self.held.borrow();
                (held.selection.size(), held.selection.owners().clone(), held.selection.is_in_spa())
            };
            for owner in &owners {
                self.query(owner, REFERRERS_PREFIX).await?;
            }
            if in_spa {
                self.sessions_and_spa_tokens().await?;
            }
            let held = self.held.borrow();
            if held.selection.size() == before && held.selection.is_in_spa() == in_spa {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Reads the provider rows and the index rows, of both generations, of the tokens that were found. [`MAX_HELD`]
    /// does not limit them, because every listed token must stop working.
    async fn providers_and_index_rows(&self) -> Result<()> {
        let keys: Vec<RowKey> = {
            let held = self.held.borrow();
            let providers = held.selection.providers();
            let providers = providers.map(|(owner, name)| RowKey::in_bucket(owner, bucket::provider(), name));
            let index_rows =
                held.rows.values().flat_map(|row| index::keys_of(row.key(), row.bucket()).map(|(_, key)| key));
            providers.chain(index_rows).filter(|key| !held.rows.contains_key(key)).collect()
        };
        self.get_consistent(keys).await
    }

    /// A row that could not be read is not absent: the search has failed.
    async fn get_consistent(&self, keys: Vec<RowKey>) -> Result<()> {
        let mut rows = Vec::new();
        for lookup in self.store.get_consistent(&keys).await? {
            match lookup {
                Lookup::Found(row) => rows.push(row),
                Lookup::Absent => {}
                Lookup::Unread => return Err(StoreError::KeepsFailing { pieces: 1 }),
            }
        }
        self.examine(rows).map(|_| ())
    }
}
