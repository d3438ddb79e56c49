//! When a row ends by its own fields: a TTL that an operator sets is compared with it.

use crate::store::{ReadRows, Result, StoreError};
use shared::bucket::Bucket;
use shared::expiry::{self, Policy};
use shared::integrity::{self, Lookup};
use shared::row::{Fields, Raw, Row};
use shared::time::EpochSeconds;

/// When the row ends by its own fields, an index row by those of the row that it leads to; `None` for one that has no end
/// of its own.
/// An error is not the same as no end.
pub async fn own_end<S: ReadRows>(store: &S, row: &Row, bucket: &Bucket) -> Result<Option<EpochSeconds>> {
    let Some(target) = integrity::target_key(row, bucket) else { return Ok(end_by_fields(row, bucket)) };
    match store.get_consistent(&[target]).await?.pop() {
        Some(Lookup::Found(target)) => Ok(target.known_bucket().and_then(|of| end_by_fields(&target, of))),
        Some(Lookup::Absent) => Ok(None),
        None | Some(Lookup::Unread) => Err(StoreError::KeepsFailing { pieces: 1 }),
    }
}

/// A TTL before this takes a live row, or a consumed one that still watches for theft.
fn end_by_fields(row: &Row, bucket: &Bucket) -> Option<EpochSeconds> {
    Fields::read(&row.data)?;
    expiry::dead_from(&Row { ttl: Raw::Absent, retired_from: Raw::Absent, ..row.clone() }, bucket, &Policy::default())
}
