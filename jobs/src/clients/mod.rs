//! Finds unused clients by reading the whole table once; for an operator only, removes them.

#[cfg(feature = "revoke")]
mod prune;

use std::pin::pin;

use futures_util::TryStreamExt;

use crate::store::{Budget, Consistency, Result, ScanTable, StoreError, scan_segment};
#[cfg(feature = "revoke")]
pub use prune::{Ended, Prune, prune};
use shared::clients::Clients;

/// The lifetime of a refresh token: a client that was used since then is named by one.
pub const UNUSED_FOR: i64 = 30 * 86_400;

/// Reads the whole table once.
pub async fn survey<S: ScanTable + Budget>(store: &S, clients: &mut Clients, reading: Consistency) -> Result<()> {
    let mut pages = pin!(scan_segment(store, 0, 1, None, reading));
    while let Some(rows) = pages.try_next().await? {
        rows.iter().for_each(|row| clients.add(row));
        store.progressed(None, rows.len() as u64, 0);
        if store.time_is_up() {
            return Err(StoreError::OutOfTime);
        }
    }
    Ok(())
}
