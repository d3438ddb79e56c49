//! What is done with the decisions of `shared`, over small store traits. No AWS SDK.
//!
//! Each module uses only those above it; the jobs do not use each other, except where stated.
//!
//! ```text
//! store        ports: one trait per capability, each mirrored by an IAM action
//! metric       names and units of the metrics
//! walk         how rows stream through a job, their counts, and the order in which they are deleted
//! run          one run of a job: refusals, lease, deadline, cursor, state, report
//! backlog      many runs of a job, in segments, under one lease
//! ----------   jobs
//! cleanup      expired rows of the system actors, and what depends on them
//! repair       index rows and the rows behind them, over the whole table
//! metrics      what is in the table, and whether TTL and the cleanup do their job; cannot delete
//! cascade      what depended on a token that TTL removed, from the table's stream
//! revoke       every row of an actor, a client, a chain or a token; the only job that deletes live rows
//! clients      which clients nobody uses; for an operator, their removal
//! backfill     gives rows the TTL that they should have
//! explain      why a row is judged as it is, and what each job would do with it; cannot delete
//! restore      puts the TTL of retired rows back
//! status       the table, its runs and its permissions in one screen, and whether a run could work here; cannot write
//! table_setup  makes sure that the table's TTL, and if wanted its stream, is on
//! ```

#![warn(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods)]

pub mod backfill;
pub mod backlog;
pub mod cascade;
pub mod cleanup;
pub mod clients;
pub mod explain;
pub mod metric;
pub mod metrics;
pub mod repair;
pub mod restore;
#[cfg(feature = "revoke")]
pub mod revoke;
pub mod run;
pub mod status;
pub mod store;
pub mod table_setup;
pub mod walk;
