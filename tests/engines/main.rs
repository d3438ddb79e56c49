//! The jobs and `janitor` on real engines.
//!
//! A test whose name holds neither `dynamodb_local` nor `library` nor `emulator` needs no tool beside Rust: `make quick` runs it.

mod cascade_rules;
mod cleanup;
mod cli;
mod clocks;
mod concurrent_runs;
mod explain;
mod faults;
mod guards;
mod killed_runs;
mod metrics;
mod random_tables;
mod repair;
mod retire;
mod segments;
mod ttl;
