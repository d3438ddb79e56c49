//! Rows for tests of the decisions.

use serde_json::Value;
use shared::bucket::{BUCKETS, Bucket, Owner};
use shared::pyjson::dumps;
use shared::row::{Raw, Row, RowKey};

/// A fixed `now`, so that boundaries are readable numbers. Far ahead of any machine's clock: the engines delete rows whose TTL is
/// past, and must not remove rows that are long dead at this `now` during a test.
pub const NOW: i64 = 2_400_000_000;

pub const ACTOR: &str = "0123456789abcdef0123456789abcdef";

/// The bucket of that name; if two owners have it, the actors' bucket.
#[must_use]
pub fn bucket(name: &str) -> &'static Bucket {
    BUCKETS.iter().rev().find(|bucket| bucket.name == name).unwrap_or_else(|| panic!("no bucket {name}"))
}

/// A row `name` in `bucket`, under the bucket's owner.
#[must_use]
pub fn row(bucket: &Bucket, name: &str, data: Raw, ttl: Raw) -> Row {
    let owner = match bucket.owner {
        Owner::System(owner) => owner,
        Owner::Actor => ACTOR,
        Owner::Legacy => "_mcp_system",
    };
    Row {
        key: RowKey::in_bucket(owner, bucket, name),
        bucket: Raw::Text(bucket.name.to_owned()),
        data,
        ttl,
        retired_from: Raw::Absent,
        bytes: 200,
    }
}

#[must_use]
pub fn json(value: &Value) -> Raw {
    Raw::Text(dumps(value))
}

#[must_use]
pub fn number(value: impl ToString) -> Raw {
    Raw::Number(value.to_string())
}

#[must_use]
pub fn text(value: &str) -> Raw {
    Raw::Text(value.to_owned())
}
