//! Which registered clients are unused (docs/clients.md).
//!
//! A client is unused if it registered itself, long enough ago, and no token, refresh token (consumed ones too) or code of any
//! owner names it. [`Clients`] takes every row of a table, in any order, and holds a few bytes per client.

use std::collections::HashMap;

use crate::bucket::{self, Bucket, OAUTH_OWNER, Rule};
use crate::expiry::{self, Policy, Verdict};
use crate::index;
use crate::integrity::pointed_actor;
use crate::mask::plain;
use crate::row::{Field, Fields, Members, Row, RowKey};
use crate::time::EpochSeconds;

/// A client id is this prefix and 32 hexadecimal digits.
const PREFIX: &str = "mcp_";
const DIGITS: usize = 32;

/// A client id as the library generates it. A client with any other id did not register itself, and is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId([u8; DIGITS / 2]);

impl ClientId {
    pub fn parse(text: &str) -> Option<Self> {
        let is_hex = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let digits = text.strip_prefix(PREFIX).filter(|digits| digits.len() == DIGITS && digits.bytes().all(is_hex))?;
        u128::from_str_radix(digits, 16).ok().map(|id| Self(id.to_be_bytes()))
    }

    /// Every id in a text, whatever surrounds it: a row that cannot be read as JSON may still name a client.
    fn all_in(text: &str) -> impl Iterator<Item = Self> {
        text.match_indices(PREFIX).filter_map(|(at, _)| Self::parse(text.get(at..at + PREFIX.len() + DIGITS)?))
    }
}

impl std::fmt::Display for ClientId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{PREFIX}{:032x}", u128::from_be_bytes(self.0))
    }
}

/// What is known about a client so far. Small, because every client of the table has one in memory.
#[derive(Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own about the client, in one byte")]
struct Known {
    /// Seconds since 1970, before the year 2106, or [`NO_AGE`]: then the client is kept.
    registered: u32,
    /// Index into the list of names.
    name: u16,
    /// It has a record under owner `_actingweb_oauth2`.
    registered_itself: bool,
    /// It has a record under another owner.
    is_actors_own: bool,
    named_by_live: bool,
    named_by_dead: bool,
}

const NO_AGE: u32 = u32::MAX;

impl Known {
    const NOTHING: Self = Self {
        registered: NO_AGE,
        name: 0,
        registered_itself: false,
        is_actors_own: false,
        named_by_live: false,
        named_by_dead: false,
    };

    fn registered(&self) -> Option<EpochSeconds> {
        (self.registered != NO_AGE).then(|| EpochSeconds::new(self.registered.into()))
    }
}

/// Numbers of clients, by the tokens that name them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Use {
    pub with_live_tokens: u64,
    pub with_dead_tokens_only: u64,
    pub without_tokens: u64,
}

impl Use {
    pub fn clients(&self) -> u64 {
        self.with_live_tokens + self.with_dead_tokens_only + self.without_tokens
    }
}

/// Numbers of clients of one age range that registered themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Age {
    /// `None`: older clients, and clients of unknown age.
    pub up_to_days: Option<i64>,
    pub clients: u64,
    pub unused: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counts {
    pub clients: u64,
    pub registered_themselves: Use,
    pub of_actors: Use,
    /// Clients whose id the library did not generate: kept.
    pub other_ids: u64,
    pub unused: u64,
    pub ages: Vec<Age>,
}

/// An unused client. Only [`Clients`] creates these, and only they create a [`Pruned`], which can be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unused<'a> {
    pub id: ClientId,
    pub registered: EpochSeconds,
    /// The client's own name, escaped for display; empty if there were too many names to store.
    pub name: &'a str,
}

/// A row of an unused client as it was read.
#[derive(Clone, Debug)]
pub struct Pruned {
    row: Row,
    bucket: &'static Bucket,
}

impl Pruned {
    pub fn row(&self) -> &Row {
        &self.row
    }

    pub fn bucket(&self) -> &'static Bucket {
        self.bucket
    }
}

const DAY: i64 = 86_400;
const AGES: [i64; 5] = [1, 7, 30, 90, 365];
/// Maximum number of stored names. Tools register repeatedly under the same few.
const MOST_NAMES: usize = 10_000;
const LONGEST_NAME: usize = 60;

/// The clients of a table, collected row by row.
pub struct Clients {
    now: EpochSeconds,
    /// Minimum age of an unused client, in seconds.
    unused_for: i64,
    known: HashMap<ClientId, Known>,
    other_ids: u64,
    names: Vec<Box<str>>,
    places: HashMap<Box<str>, u16>,
}

impl Clients {
    pub fn new(now: EpochSeconds, unused_for: i64) -> Self {
        Self {
            now,
            unused_for,
            known: HashMap::new(),
            other_ids: 0,
            names: vec![Box::default()],
            places: HashMap::new(),
        }
    }

    /// Number of client ids in memory.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    pub fn add(&mut self, row: &Row) {
        match row.known_bucket() {
            Some(bucket) if bucket.rule == Rule::Never => self.add_record(row, bucket),
            Some(bucket) if is_client_index(bucket) => {}
            Some(_) => self.add_names(row),
            None if claims_to_be_a_token(row) => self.add_names(row),
            None => {}
        }
    }

    fn add_record(&mut self, row: &Row, bucket: &'static Bucket) {
        let Some(id) = row.name_in(bucket).and_then(ClientId::parse) else {
            self.other_ids += 1;
            return;
        };
        let name = row.data.text().and_then(Members::read).and_then(|record| record.text("client_name"));
        let name = name.map_or(0, |name| self.place(&name));
        let known = self.known.entry(id).or_insert(Known::NOTHING);
        if row.key.owner == OAUTH_OWNER {
            known.registered_itself = true;
            known.registered = registered(row).and_then(|at| u32::try_from(at.get()).ok()).unwrap_or(NO_AGE);
            known.name = name;
        } else {
            known.is_actors_own = true;
        }
    }

    fn place(&mut self, name: &str) -> u16 {
        let name: String = plain(name).chars().take(LONGEST_NAME).collect();
        if let Some(place) = self.places.get(name.as_str()) {
            return *place;
        }
        let Some(place) = u16::try_from(self.names.len()).ok().filter(|_| self.names.len() <= MOST_NAMES) else {
            return 0;
        };
        self.names.push(name.clone().into());
        self.places.insert(name.into(), place);
        place
    }

    /// A client is named by a row's `client_id`, and by its id anywhere in the row's text.
    fn add_names(&mut self, row: &Row) {
        let Some(text) = row.data.text() else { return };
        let escaped = text.contains('\\').then(|| Members::read(text)?.text("client_id")).flatten();
        let escaped = escaped.as_deref().and_then(ClientId::parse);
        let mut is_live = None;
        for id in ClientId::all_in(text).chain(escaped) {
            let is_live = *is_live.get_or_insert_with(|| is_live_row(row, self.now));
            let known = self.known.entry(id).or_insert(Known::NOTHING);
            known.named_by_live |= is_live;
            known.named_by_dead |= !is_live;
        }
    }

    fn judge(&self, known: &Known) -> bool {
        let is_old = known.registered().is_some_and(|at| self.now.since(at) > self.unused_for);
        let is_named = known.named_by_live || known.named_by_dead;
        known.registered_itself && !known.is_actors_own && is_old && !is_named
    }

    /// The client, if it is unused according to the rows so far.
    pub fn unused(&self, id: ClientId) -> Option<Unused<'_>> {
        let known = self.known.get(&id).filter(|known| self.judge(known))?;
        let name = self.names.get(usize::from(known.name));
        Some(Unused { id, registered: known.registered()?, name: name.map_or("", |name| name) })
    }

    /// The unused clients, oldest first.
    pub fn all_unused(&self) -> Vec<ClientId> {
        let unused = self.known.iter().filter(|(_, known)| self.judge(known));
        let mut unused: Vec<(EpochSeconds, ClientId)> =
            unused.filter_map(|(id, known)| Some((known.registered()?, *id))).collect();
        unused.sort_unstable();
        unused.into_iter().map(|(_, id)| id).collect()
    }

    pub fn counts(&self) -> Counts {
        let mut counts = Counts { other_ids: self.other_ids, clients: self.other_ids, ..Counts::default() };
        let ages = AGES.into_iter().map(Some).chain([None]);
        let mut ages: Vec<Age> = ages.map(|up_to_days| Age { up_to_days, clients: 0, unused: 0 }).collect();
        for known in self.known.values().filter(|known| known.registered_itself || known.is_actors_own) {
            counts.clients += 1;
            let by = if known.is_actors_own { &mut counts.of_actors } else { &mut counts.registered_themselves };
            match (known.named_by_live, known.named_by_dead) {
                (true, _) => by.with_live_tokens += 1,
                (false, true) => by.with_dead_tokens_only += 1,
                (false, false) => by.without_tokens += 1,
            }
            if known.is_actors_own {
                continue;
            }
            let days = known.registered().map_or(i64::MAX, |at| self.now.since(at) / DAY);
            let cell = AGES.iter().position(|up_to| days < *up_to).unwrap_or(AGES.len());
            let is_unused = u64::from(self.judge(known));
            ages[cell].clients += 1;
            ages[cell].unused += is_unused;
            counts.unused += is_unused;
        }
        counts.ages = ages;
        counts
    }
}

impl Unused<'_> {
    /// The keys of the client's record and of its index rows of both generations.
    pub fn keys(&self) -> (RowKey, Vec<RowKey>) {
        let bucket = bucket::BUCKETS.iter().find(|bucket| bucket.rule == Rule::Never);
        let bucket = bucket.expect("the table has a client bucket");
        let record = RowKey::in_bucket(OAUTH_OWNER, bucket, &self.id.to_string());
        let index = index::keys_of(&record, bucket).map(|(_, key)| key).collect();
        (record, index)
    }

    /// The row, if it is the client's index row and leads to its record.
    pub fn index_row(&self, row: Row) -> Option<Pruned> {
        let bucket = row.known_bucket().filter(|bucket| is_client_index(bucket))?;
        let is_its = row.name_in(bucket).and_then(ClientId::parse) == Some(self.id);
        let leads_to_it = pointed_actor(&row.data).as_deref() == Some(OAUTH_OWNER);
        (is_its && leads_to_it).then_some(Pruned { row, bucket })
    }

    /// The row, if it is the client's record, still with the same registration time.
    pub fn record(&self, row: Row) -> Option<Pruned> {
        let bucket = row.known_bucket().filter(|bucket| bucket.rule == Rule::Never)?;
        let is_its = row.key.owner == OAUTH_OWNER && row.name_in(bucket).and_then(ClientId::parse) == Some(self.id);
        (is_its && registered(&row) == Some(self.registered)).then_some(Pruned { row, bucket })
    }
}

fn is_client_index(bucket: &Bucket) -> bool {
    bucket.name.trim_start_matches('_') == "client_index"
}

/// When a client was registered; its age is unknown without it.
fn registered(row: &Row) -> Option<EpochSeconds> {
    Fields::read(&row.data)?.created_at.value()
}

/// Whether the row looks like a token under an owner that has none. Nothing reads such a row, but it keeps its client.
fn claims_to_be_a_token(row: &Row) -> bool {
    let tokens = || bucket::BUCKETS.iter().filter(|bucket| bucket::can_refer(bucket));
    tokens().any(|bucket| row.bucket.text() == Some(bucket.name) || row.name_in(bucket).is_some())
}

/// Consumed refresh tokens count as dead here: they show that a client was used, not that it is in use.
fn is_live_row(row: &Row, now: EpochSeconds) -> bool {
    let used = Fields::read(&row.data).is_some_and(|fields| fields.used == Field::Is(true));
    let is_dead = row
        .known_bucket()
        .is_some_and(|bucket| matches!(expiry::judge(row, bucket, now, &Policy::default()), Verdict::Delete(_)));
    !used && !is_dead
}
