//! `janitor`, the operator's tool: the same use cases as the Lambdas, from a terminal.

pub mod demo;
pub mod engine;
pub mod fixture;
