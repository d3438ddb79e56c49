//! The revocation, for a leaked secret: finds every row of an actor, a client, a chain or a token, and deletes it, live
//! or not. No other job may delete live rows.
//!
//! [`find`] cannot write: none of its traits can. [`remove`] deletes only rows that a [`shared::revocation::Selection`] has
//! claimed, by a trait of its own:
//! ```
//! # use jobs::store::RevokeRows;
//! # use shared::revocation::Revoked;
//! async fn revoke(store: &impl RevokeRows, rows: &[Revoked]) { store.revoke(rows).await; }
//! ```
//! A claimed row cannot be made by hand:
//! ```compile_fail,E0451
//! # use shared::{revocation::Revoked, row::Row};
//! fn forge(row: Row, other: Revoked) -> Revoked { Revoked { row, ..other } }
//! ```
//! nor be passed to an ordinary delete, which has no way to revoke either:
//! ```compile_fail,E0308
//! # use jobs::store::DeleteRows;
//! # use shared::revocation::Revoked;
//! async fn delete(store: &impl DeleteRows, rows: &[Revoked]) { store.delete(rows).await; }
//! ```
//! ```compile_fail,E0599
//! # use jobs::store::DeleteRows;
//! # use shared::revocation::Revoked;
//! async fn delete(store: &impl DeleteRows, rows: &[Revoked]) { store.revoke(rows).await; }
//! ```

mod find;
mod remain;
mod remove;

pub use find::{Found, MAX_HELD, Reach, Searchable, find};
pub use remain::{Remaining, remaining};
pub use remove::{Fate, RevokeResult, remove};
