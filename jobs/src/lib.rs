//! The jobs: they apply the decisions of `shared` through small store traits. No AWS SDK.
//!
//! Modules above the line use only those above them. Of the jobs, only metrics, explain, restore and status use others.
//!
//! ```text
//! store        ports: one trait per capability, each mirrored by an IAM action
//! metric       names and units of the metrics
//! walk         how rows stream through a job, their counts, and the order in which they are deleted
//! run          one run of a job: refusals, lease, deadline, cursor, state, report
//! backlog      many runs of a job, in segments, under one lease
//! ----------   jobs
//! cleanup      expired rows of the system actors, and the rows that depend on them
//! repair       index rows and the rows behind them, over the whole table
//! metrics      counts the rows of the table, and checks that TTL and the cleanup work; cannot delete
//! cascade      rows that depended on a token that TTL removed, from the table's stream
//! revoke       every row of an actor, a client, a chain or a token, also live ones
//! clients      finds unused clients; for an operator, removes them
//! backfill     gives rows the TTL that they should have
//! explain      why a row is judged as it is, and what each job would do with it; cannot delete
//! restore      gives retired rows the TTL that they had
//! status       the table, its runs and its permissions on one screen; checks that a run would work; cannot write
//! table_setup  enables the table's TTL and, on request, its stream
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
