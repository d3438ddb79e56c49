//! Which clients nobody uses, from one reading of the whole table; and, for an operator only, their removal.

#[cfg(feature = "revoke")]
mod prune;

use std::pin::pin;

use futures_util::StreamExt;

use crate::store::{Budget, Result, ScanTable, StoreError, scan_pages};
#[cfg(feature = "revoke")]
pub use prune::{Ended, Prune, prune};
use shared::clients::Clients;
use shared::row::Row;

/// As long as a refresh token lives: a client that was used since then is named by one.
pub const UNUSED_FOR: i64 = 30 * 86_400;

/// Reads the whole table once.
pub async fn survey<S: ScanTable + Budget>(store: &S, clients: &mut Clients) -> Result<()> {
    let mut pages = pin!(scan_pages(store, 0, 1));
    while let Some(rows) = pages.next().await {
        add(store, clients, &rows?)?;
    }
    Ok(())
}

fn add<S: Budget>(store: &S, clients: &mut Clients, rows: &[Row]) -> Result<()> {
    rows.iter().for_each(|row| clients.add(row));
    store.progressed(None, rows.len() as u64, 0);
    if store.time_is_up() { Err(StoreError::OutOfTime) } else { Ok(()) }
}
