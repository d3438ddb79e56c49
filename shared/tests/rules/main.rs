//! Tests of the decisions: no engine, no clock, no environment. They run in seconds; `cargo mutants -p shared` uses them.

mod boundaries;
mod cascade_rules;
mod clients_rules;
mod disposal;
mod judge;
mod revoke_rules;
mod rules;
mod settings;
