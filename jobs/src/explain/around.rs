//! The related rows that are read to explain a row.

use std::pin::pin;

use futures_util::TryStreamExt;

use super::Relation;
use crate::repair;
use crate::store::{Consistency, PageOf, ReadRows, Result, get_one, pages};
use shared::bucket::{self, Bucket, REFERRERS_PREFIX, Rule};
use shared::expiry::Policy;
use shared::index;
use shared::integrity::{self, Lookup};
use shared::row::{Row, RowKey};
use shared::time::EpochSeconds;

/// A key that an index row for the row can have, and what is stored there.
#[derive(Clone, Debug)]
pub(super) struct IndexRow {
    pub bucket: &'static Bucket,
    pub key: RowKey,
    pub found: Lookup,
}

/// A token that names a provider row.
#[derive(Clone, Debug)]
pub(super) struct Referrer {
    pub row: Row,
    pub bucket: &'static Bucket,
    /// The token is alive and needs the provider row. It may name it in data that cannot be read.
    pub needs_it: bool,
    /// The token names the provider row in a field that can be read.
    pub names_it: bool,
    pub index_rows: Vec<IndexRow>,
}

/// The rows that are related to a row.
#[derive(Clone, Debug, Default)]
pub(super) struct Around {
    /// The index rows of both generations for a token, a code or a client.
    pub index_rows: Vec<IndexRow>,
    /// Target of an index row; provider row that a token names; access token that a refresh token was issued with.
    pub targets: Vec<(Relation, RowKey, Lookup)>,
    /// The tokens that name a provider row.
    pub referrers: Vec<Referrer>,
    /// The repair's record of unreachable rows of unknown age.
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
        let can_refer = bucket::can_refer(bucket);
        for (tie, key) in [
            (Relation::Target, integrity::target_key(row, bucket)),
            (Relation::Provider, integrity::provider_key(row).filter(|_| can_refer)),
            (Relation::AccessToken, integrity::access_token_of(row).filter(|_| can_refer)),
        ] {
            if let Some(key) = key {
                let found = get(store, key.clone()).await?;
                around.targets.push((tie, key, found));
            }
        }
        if bucket.owner == bucket::Owner::Actor {
            around.index_rows = index_rows(store, &row.key, bucket).await?;
            around.seen = get_one(store, repair::seen_key(&row.key)).await?;
        }
        if bucket.rule == Rule::Provider {
            around.referrers = referrers(store, row, now, policy).await?;
        }
        Ok(around)
    }

    /// The target of an index row.
    pub(super) fn target(&self) -> &Lookup {
        let target = self.targets.iter().find(|(tie, ..)| *tie == Relation::Target);
        target.map_or(&Lookup::Unread, |(_, _, found)| found)
    }
}

async fn get<S: ReadRows>(store: &S, key: RowKey) -> Result<Lookup> {
    Ok(store.get_consistent(&[key]).await?.pop().unwrap_or(Lookup::Unread))
}

async fn index_rows<S: ReadRows>(store: &S, token: &RowKey, bucket: &Bucket) -> Result<Vec<IndexRow>> {
    let (buckets, keys): (Vec<_>, Vec<_>) = index::keys_of(token, bucket).unzip();
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let found = store.get_consistent(&keys).await?;
    Ok(buckets.into_iter().zip(keys).zip(found).map(|((bucket, key), found)| IndexRow { bucket, key, found }).collect())
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
    let of = PageOf::all(&provider.key.owner, REFERRERS_PREFIX, Consistency::Strong);
    let mut pages = pin!(pages(store, of));
    while let Some(rows) = pages.try_next().await? {
        for row in rows {
            let Some(bucket) = row.known_bucket().filter(|bucket| bucket::can_refer(bucket)) else { continue };
            let names_it = integrity::provider_named_by(&row).as_deref() == Some(name);
            let needs_it = integrity::needs(&row, now, policy).includes(name);
            if names_it || needs_it {
                let index_rows = index_rows(store, &row.key, bucket).await?;
                found.push(Referrer { row, bucket, needs_it, names_it, index_rows });
            }
        }
    }
    Ok(found)
}
