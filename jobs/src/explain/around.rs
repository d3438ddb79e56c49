//! The rows around a row: what is read to explain it.

use super::{Relation, Tie};
use crate::repair;
use crate::store::{Consistency, PageOf, PageSize, ReadRows, Result, StoreError};
use crate::walk::needs_provider;
use shared::bucket::{self, Bucket, OAUTH_OWNER, REFERRERS_PREFIX, Rule};
use shared::expiry::{self, KeepReason, Policy, Verdict};
use shared::index::IndexKind;
use shared::integrity::{self, Lookup, Question};
use shared::row::{Row, RowKey};
use shared::time::EpochSeconds;

/// The place of an index row, and what is there.
#[derive(Clone, Debug)]
pub struct Indexed {
    pub bucket: &'static Bucket,
    pub key: RowKey,
    pub found: Lookup,
}

/// A token that names a provider row.
#[derive(Clone, Debug)]
pub struct Referrer {
    pub row: Row,
    pub bucket: &'static Bucket,
    /// Is alive, so that the provider row is needed. It may name it in a text that cannot be read.
    pub needs_it: bool,
    /// Names it in a field that can be read.
    pub names_it: bool,
    pub index_rows: Vec<Indexed>,
    /// Of a refresh token: the access token that it was issued with, if it is there, and its index rows.
    pub access_token: Option<(Row, Vec<Indexed>)>,
}

/// The rows around a row.
#[derive(Clone, Debug, Default)]
pub struct Around {
    /// The places of both generations' index rows for a token, a code or a client.
    pub index_rows: Vec<Indexed>,
    /// What an index row points at.
    pub target: Option<(RowKey, Lookup)>,
    /// The provider row that a token names.
    pub provider: Option<(RowKey, Lookup)>,
    /// The access token that a refresh token was issued with.
    pub access_token: Option<(RowKey, Lookup)>,
    /// The tokens that name a provider row.
    pub referrers: Vec<Referrer>,
    /// The repair's memory of unreachable rows of unknown age.
    pub seen: Option<Row>,
}

impl Around {
    pub(super) async fn read<S: ReadRows>(
        store: &S,
        row: &Row,
        bucket: &'static Bucket,
        now: EpochSeconds,
        policy: &Policy,
    ) -> Result<Self> {
        let mut around = Self::default();
        if let Some(target) = integrity::target_key(row, bucket) {
            around.target = Some((target.clone(), look_at(store, target).await?));
        }
        if bucket.owner == bucket::Owner::Actor {
            around.index_rows = index_rows(store, row, bucket).await?;
            around.seen = look_surely(store, repair::seen_key(&row.key)).await?;
        }
        if bucket::can_refer(bucket) {
            if let Some(key) = provider_of(row) {
                around.provider = Some((key.clone(), look_at(store, key).await?));
            }
            if let Some(key) = integrity::access_token_of(row) {
                around.access_token = Some((key.clone(), look_at(store, key).await?));
            }
        }
        if bucket.rule == Rule::Provider {
            around.referrers = referrers(store, row, now, policy).await?;
        }
        Ok(around)
    }

    pub(super) fn points_at(&self, now: EpochSeconds, policy: &Policy) -> Vec<Relation> {
        let ties =
            [(Tie::Target, &self.target), (Tie::Provider, &self.provider), (Tie::AccessToken, &self.access_token)];
        ties.into_iter()
            .filter_map(|(tie, pointed)| {
                let (key, found) = pointed.as_ref()?;
                Some(relation(tie, key.clone(), found.clone(), now, policy))
            })
            .collect()
    }

    pub(super) fn pointed_at_by(&self, now: EpochSeconds, policy: &Policy) -> Vec<Relation> {
        let index_rows = self
            .index_rows
            .iter()
            .map(|indexed| relation(Tie::IndexRow, indexed.key.clone(), indexed.found.clone(), now, policy));
        let referrers = self.referrers.iter().map(|referrer| {
            relation(Tie::Referrer, referrer.row.key.clone(), Lookup::Found(referrer.row.clone()), now, policy)
        });
        index_rows.chain(referrers).collect()
    }
}

fn relation(tie: Tie, key: RowKey, found: Lookup, now: EpochSeconds, policy: &Policy) -> Relation {
    let verdict = match (&found, tie) {
        // Other rows decide over these two: nothing is said of them here.
        (_, Tie::IndexRow | Tie::Provider) => None,
        (Lookup::Found(row), Tie::Target | Tie::AccessToken | Tie::Referrer) => {
            row.known_bucket().map(|bucket| expiry::judge(row, bucket, now, policy))
        }
        (Lookup::Absent | Lookup::Unread, _) => None,
    };
    Relation { tie, key, found, verdict }
}

/// Whether the daily cleanup comes to a token, by its index rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reached {
    Yes,
    /// There is an index row, and it is not due yet.
    NotDue,
    /// There is an index row, and it is left to the table's TTL.
    LeftToTtl,
    /// What is in the index does not lead here.
    No,
    Unread,
}

pub(super) fn reached(token: &RowKey, index_rows: &[Indexed], now: EpochSeconds, policy: &Policy) -> Reached {
    let mut reached = Reached::No;
    for Indexed { bucket, found, .. } in index_rows {
        let by_this = match found {
            Lookup::Absent => Reached::No,
            Lookup::Unread => Reached::Unread,
            Lookup::Found(row) => match integrity::ask(row, bucket, now, policy) {
                Question::LookAt(key) if key == *token => return Reached::Yes,
                Question::LookAt(_) => Reached::No,
                Question::Settled(KeepReason::NotDue) if points_at(row, token) => Reached::NotDue,
                Question::Settled(KeepReason::Deferred) if points_at(row, token) => Reached::LeftToTtl,
                Question::Settled(_) => Reached::No,
            },
        };
        reached = match (reached, by_this) {
            (Reached::Unread, _) | (_, Reached::Unread) => Reached::Unread,
            (Reached::NotDue, _) | (_, Reached::NotDue) => Reached::NotDue,
            (Reached::LeftToTtl, _) | (_, Reached::LeftToTtl) => Reached::LeftToTtl,
            (Reached::No | Reached::Yes, _) => Reached::No,
        };
    }
    reached
}

fn points_at(index_row: &Row, token: &RowKey) -> bool {
    integrity::pointed_actor(&index_row.data).as_ref() == Some(&token.owner)
}

async fn look_at<S: ReadRows>(store: &S, key: RowKey) -> Result<Lookup> {
    Ok(store.get_consistent(&[key]).await?.pop().unwrap_or(Lookup::Unread))
}

/// For what nothing can be said without: a fault is never taken for absence.
async fn look_surely<S: ReadRows>(store: &S, key: RowKey) -> Result<Option<Row>> {
    match look_at(store, key).await? {
        Lookup::Found(row) => Ok(Some(row)),
        Lookup::Absent => Ok(None),
        Lookup::Unread => Err(StoreError::KeepsFailing { pieces: 1 }),
    }
}

async fn index_rows<S: ReadRows>(store: &S, row: &Row, bucket: &'static Bucket) -> Result<Vec<Indexed>> {
    let Some(name) = row.name_in(bucket) else { return Ok(Vec::new()) };
    let places: Vec<(&'static Bucket, RowKey)> = IndexKind { target: bucket }
        .buckets()
        .map(|index| (index, RowKey::in_bucket(OAUTH_OWNER, index, name)))
        .collect();
    if places.is_empty() {
        return Ok(Vec::new());
    }
    let keys: Vec<RowKey> = places.iter().map(|(_, key)| key.clone()).collect();
    let found = store.get_consistent(&keys).await?;
    Ok(places.into_iter().zip(found).map(|((bucket, key), found)| Indexed { bucket, key, found }).collect())
}

fn provider_of(row: &Row) -> Option<RowKey> {
    let name = integrity::provider_named_by(row)?;
    Some(RowKey::in_bucket(&row.key.owner, bucket::provider(), &name))
}

/// The tokens of the actor that name a provider row, dead or alive.
async fn referrers<S: ReadRows>(
    store: &S,
    provider: &Row,
    now: EpochSeconds,
    policy: &Policy,
) -> Result<Vec<Referrer>> {
    let name = provider.name_in(bucket::provider()).unwrap_or_default();
    let mut found = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let of = PageOf {
            owner: &provider.key.owner,
            prefix: REFERRERS_PREFIX,
            after: after.as_deref(),
            until: None,
            reading: Consistency::Strong,
            size: PageSize::Paced,
        };
        let page = store.page(of).await?;
        for row in page.rows {
            let Some(bucket) = row.known_bucket().filter(|bucket| bucket::can_refer(bucket)) else { continue };
            let names_it = integrity::provider_named_by(&row).as_deref() == Some(name);
            let needs_it = needs_provider(&row, name, now, policy);
            if !names_it && !needs_it {
                continue;
            }
            let index_rows = index_rows(store, &row, bucket).await?;
            let access_token = access_token_with_index(store, &row).await?;
            found.push(Referrer { row, bucket, needs_it, names_it, index_rows, access_token });
        }
        after = page.next;
        if after.is_none() {
            return Ok(found);
        }
    }
}

async fn access_token_with_index<S: ReadRows>(store: &S, row: &Row) -> Result<Option<(Row, Vec<Indexed>)>> {
    let Some(key) = integrity::access_token_of(row) else { return Ok(None) };
    let Some(token) = look_surely(store, key).await? else { return Ok(None) };
    let Some(token_bucket) = token.known_bucket() else { return Ok(None) };
    let index_rows = index_rows(store, &token, token_bucket).await?;
    Ok(Some((token, index_rows)))
}

/// Whether a verdict is to delete.
pub(super) fn is_dead(row: &Row, bucket: &Bucket, now: EpochSeconds, policy: &Policy) -> bool {
    matches!(expiry::judge(row, bucket, now, policy), Verdict::Delete(_))
}
