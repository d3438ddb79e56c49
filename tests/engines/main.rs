//! The jobs and `janitor` on real engines.
//!
//! `make quick` skips the tests that need Java or Python by name: see `NEEDS_TOOLS` in the Makefile.

mod access;
mod cascade_rules;
mod cleanup;
mod cli;
mod clients;
mod clocks;
mod concurrent_runs;
mod driven;
mod explain;
mod faults;
mod flags;
mod guards;
mod killed_runs;
mod metrics;
mod pause;
mod random_tables;
mod repair;
mod restore;
mod retire;
mod segments;
mod status;
mod terminal;
mod ttl;
