//! The decisions by themselves: no engine, no clock, no environment. They run in seconds, and `cargo mutants -p shared` runs them.

mod boundaries;
mod cascade_rules;
mod clients_rules;
mod disposal;
mod judge;
mod revoke_rules;
mod rules;
mod settings;
