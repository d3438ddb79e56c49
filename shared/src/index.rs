//! Which index buckets point at which bucket of the actors, and when an index row is due.

use crate::bucket::{self, BUCKETS, Bucket, CLOCK_SLACK_SECONDS, OAUTH_OWNER, Owner, Rule, TTL_SKEW_SECONDS};
use crate::row::{Row, RowKey, Ttl, TtlState};
use crate::time::EpochSeconds;

/// The four buckets that index rows point at, in the order of [`BUCKETS`], derived from the pointer rules.
pub fn targets() -> impl Iterator<Item = &'static Bucket> {
    BUCKETS.iter().filter(|bucket| bucket.owner == Owner::Actor && pointing_at(bucket).next().is_some())
}

/// The index buckets of a target bucket, one per generation of names, the older one first.
pub fn pointing_at(target: &Bucket) -> impl Iterator<Item = &'static Bucket> + use<> {
    let name = target.name;
    BUCKETS.iter().filter(move |index| matches!(index.rule, Rule::Pointer { target } if target == name))
}

/// The keys that an index row for a token, a code or a client can have, in both generations, the older one first.
pub fn keys_of(token: &RowKey, bucket: &Bucket) -> impl Iterator<Item = (&'static Bucket, RowKey)> + use<> {
    let name = token.name_in(bucket).map(str::to_owned);
    pointing_at(bucket).filter_map(move |index| Some((index, RowKey::in_bucket(OAUTH_OWNER, index, name.as_deref()?))))
}

/// Whether a row of the bucket, removed by TTL, leaves rows behind: an index row that points at it, or a provider row that only
/// it named.
pub fn leaves_rows_behind(bucket: &Bucket) -> bool {
    let has_dependents = bucket::can_refer(bucket) || pointing_at(bucket).next().is_some();
    has_dependents && bucket.owner == Owner::Actor && bucket.ttl.is_some()
}

/// The bucket that rows of an index bucket point at.
pub fn target_of(index: &Bucket) -> Option<&'static Bucket> {
    match index.rule {
        Rule::Pointer { target } => bucket::of_actor(target),
        _ => None,
    }
}

/// Whether the target of an index row can be dead yet, by the index row's own TTL.
///
/// The library sets both TTLs at the same time, the index row's two hours later, so the target expires at `ttl - lead`. Until
/// then, and during the slack, the target is alive and need not be read; after that, the target decides. An absent or malformed
/// TTL makes the row due.
pub fn is_due(row: &Row, index: &Bucket, now: EpochSeconds) -> bool {
    match (row.ttl(), row.ttl().state(now)) {
        (Ttl::At(at), TtlState::Future) => now > at.plus(CLOCK_SLACK_SECONDS - lead(index)),
        (Ttl::At(_) | Ttl::Absent | Ttl::Malformed, _) => true,
    }
}

/// Whether an index row's TTL is past, or one that DynamoDB never acts on: the row is part of the backlog. Every overdue row is
/// due; rows of buckets without a TTL are due on every run, and never overdue.
pub fn is_overdue(row: &Row, index: &Bucket, now: EpochSeconds) -> bool {
    target_of(index).is_some() && index.ttl.is_some() && row.ttl().state(now) != TtlState::Future
}

/// Seconds from a target's own expiry to the TTL of its index row.
fn lead(index: &Bucket) -> i64 {
    let target_ttl = target_of(index).and_then(|target| target.ttl).unwrap_or(0);
    index.ttl.unwrap_or(0) - target_ttl + TTL_SKEW_SECONDS
}
