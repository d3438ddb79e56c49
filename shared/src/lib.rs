//! Keeps an ActingWeb deployment's attributes table clean: the rows, the rules, the use cases, the DynamoDB adapter.
//!
//! Each module may use only those above it:
//!
//! ```text
//! time       whole seconds; now is taken once per run and passed in
//! bucket     the closed list of known buckets, both generations, with owner, TTL and expiry rule
//! mask       how a secret is shown
//! pyread     the members of a JSON object, as Python reads them
//! row        rows as they were read, with the raw values that a delete is conditional on
//! index      which index bucket points at which bucket, and when an index row is due
//! segment    parts of the rows that can be worked on side by side
//! ---------- decisions: pure, no I/O, no async, no clock
//! expiry     judge: is a row dead by its own fields and its TTL
//! integrity  compare: what rows that point at each other say
//! revocation which rows are an actor's, a client's, a chain's or a token's, alive or not (feature `revoke`)
//! pyjson     JSON spelled as Python spells it
//! config     strict parse of settings;  event: what an invocation overrides
//! cloudformation  what a custom resource is asked, and its answer
//! metric     names and units of what is told to CloudWatch
//! ---------- ports and use cases
//! store      small traits per capability
//! report     counts, cost, outcome, the answer;  part: one segment's work, from event to event
//! state      what a run leaves for the next one, and for the metrics
//! clock      how long a run has taken and when it has to stop
//! walk       how a run goes over rows, and the order in which they are deleted;  lease: one run at a time
//! run        one run of a job: refusals, lease, state, report;  execution: many of them, one a segment
//! sweep      the walk over the system actors' rows;  daily: the daily cleanup as a job
//! repair     the walk over the whole table: the index repair as a job
//! measure    what is in the table, whether TTL and the cleanup do their job, and where it is going; it cannot delete
//! revoke     finds and deletes what a revocation claims; the only use case that deletes live rows (feature `revoke`)
//! cascade    what hung on a token that TTL removed goes with it, as the table's stream tells
//! explain    why a row is judged as it is, and what each function would do with it; it cannot delete
//! ttl_switch makes sure that the table's TTL is on;  stream_switch: its stream;  backfill: gives rows the TTL that they should have
//! ---------- edge
//! dynamo     the only importer of the AWS SDK
//! lambda     one invocation, from event to report;  serve: the Lambda runtime around it;  logging: lines without secrets
//! steps      one invocation that may be a step of an execution;  stream: one batch of the table's stream
//! respond    an answer's way to CloudFormation;  custom_resource: one event of it, always answered
//! ```

#![warn(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr)]

pub mod backfill;
pub mod bucket;
pub mod cascade;
pub mod clock;
pub mod cloudformation;
pub mod config;
pub mod custom_resource;
pub mod daily;
pub mod dynamo;
pub mod event;
pub mod execution;
pub mod expiry;
pub mod explain;
pub mod index;
pub mod integrity;
pub mod lambda;
pub mod lease;
pub mod logging;
pub mod mask;
pub mod measure;
pub mod metric;
pub mod part;
pub mod pyjson;
mod pyread;
pub mod repair;
pub mod report;
pub mod respond;
#[cfg(feature = "revoke")]
pub mod revocation;
#[cfg(feature = "revoke")]
pub mod revoke;
pub mod row;
pub mod run;
pub mod segment;
#[cfg(feature = "serve")]
pub mod serve;
pub mod state;
mod steps;
pub mod store;
pub mod stream;
pub mod stream_switch;
pub mod sweep;
pub mod time;
pub mod ttl_switch;
pub mod walk;
