//! The revocation: for the day something leaks. Finds every row of an actor, a client, a chain or a token, and deletes it
//! though it is alive. It is the only use case that may.
//!
//! [`find`] cannot write: none of the traits that it asks for has a verb for it. [`remove`] deletes only what a
//! [`shared::revocation::Selection`] has claimed.

mod find;
mod remain;
mod remove;

pub use find::{Found, MOST_HELD, Reach, Searchable, find};
pub use remain::{Remaining, remaining};
pub use remove::{Fate, RevokeResult, remove};
