//! The Lambda edge: an invocation from event to answer, log lines, metrics on standard output, replies to CloudFormation.
//!
//! ```text
//! event            the settings that an invocation's event brings
//! lambda           one invocation of a function, from event to report;  serve: the Lambda runtime around it
//! steps            one invocation that may be a step of a backlog execution;  stream: one batch of the table's stream
//! cloudformation   a custom resource's request and response; custom_resource: one event of it
//! logging          log lines without secrets
//! ```

#![warn(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods)]

pub mod cloudformation;
pub mod custom_resource;
pub mod event;
pub mod lambda;
pub mod logging;
pub mod serve;
mod steps;
pub mod stream;
