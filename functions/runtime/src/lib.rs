//! The Lambda edge: an invocation from event to answer, log lines, metrics on standard output, replies to CloudFormation.
//!
//! ```text
//! serve            the Lambda runtime around a function
//! guard            a local run does not reach AWS by accident
//! event            the settings in an invocation's event
//! lambda           state that the invocations of one container share
//! job  metrics  cascade  custom_resource      one invocation of each kind of function, from event to answer
//! cloudformation   a custom resource's request and response
//! logging          log lines without secrets
//! ```

#![warn(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods)]

pub mod cascade;
pub mod cloudformation;
pub mod custom_resource;
pub mod event;
pub mod guard;
pub mod job;
pub mod lambda;
pub mod logging;
pub mod metrics;
pub mod serve;
