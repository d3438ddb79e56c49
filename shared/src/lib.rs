//! Rows of an ActingWeb attributes table, and the decisions about them. Pure: no I/O, no async, no clock, no environment.
//!
//! Each module uses only modules above it:
//!
//! ```text
//! time        whole seconds; `now` is taken once per run and passed in
//! bucket      the table of known buckets, both generations, with owner, TTL and expiry rule
//! mask        how a secret is masked
//! pyjson      JSON as Python writes it
//! row         rows as they were read, with the raw values that a delete is conditional on
//! index       which index bucket points at which bucket, and when an index row is due
//! lease       who holds the lease, by its state row
//! segment     ranges of rows that can be cleaned concurrently
//! ----------  decisions
//! expiry      whether a row is dead by its own fields and its TTL
//! disposal    what to do with a dead row: delete it, leave it to its TTL, or retire it
//! integrity   rows that point at each other: index row, target, provider row
//! revocation  which rows belong to an actor, a client, a chain or a token, alive or not
//! clients     which clients are unused
//! cascade     rows that depended on a token that TTL removed
//! backfill    the TTL that a row without one should have
//! ----------
//! settings    the table of settings, and how environment, event and flags become `Settings`
//! ```

#![warn(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods)]

pub mod backfill;
pub mod bucket;
pub mod cascade;
pub mod clients;
pub mod disposal;
pub mod expiry;
pub mod index;
pub mod integrity;
pub mod lease;
pub mod mask;
pub mod pyjson;
pub mod revocation;
pub mod row;
pub mod segment;
pub mod settings;
pub mod time;
