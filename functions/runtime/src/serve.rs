//! The Lambda runtime around a function. The binary passes in the clock and the environment.

use std::ffi::OsString;
use std::fmt::Display;
use std::io::Write;
use std::time::SystemTime;

use lambda_runtime::{Diagnostic, Error, LambdaEvent, service_fn};
use serde_json::Value;
use tracing_subscriber::filter::LevelFilter;

use crate::guard::{self, Refused};
use crate::lambda::Function;
use crate::logging;
use jobs::run::RunError;
use jobs::run::clock::RunClock;
use shared::settings::Environment;

/// Serves invocations until the container ends.
pub async fn serve<E: InvocationError>(
    crate_name: &str,
    environment: impl Iterator<Item = (OsString, OsString)>,
    clock: fn() -> SystemTime,
    answer: impl AsyncFn(&Function, Value, RunClock) -> Result<Value, E>,
) -> Result<(), Error> {
    let environment: Environment =
        environment.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))).collect();
    let level = logging::level(&environment);
    logging::start(crate_name, level.clone().unwrap_or(LevelFilter::INFO));
    // An invalid log level prevents the start: missing log lines would be noticed too late.
    level.inspect_err(|error| tracing::error!(error.text = %error, "configuration refused"))?;
    let checked = guard::check(&environment);
    let function =
        checked.map(|_| Function::new(dynamo::connect(&environment), environment).with_metrics_output(print));
    match checked {
        Ok(None) => {}
        Ok(Some(notice)) => tracing::warn!("{notice}"),
        Err(refused) => tracing::error!(error.text = %refused, "local run refused"),
    }
    lambda_runtime::run(service_fn(async |event: LambdaEvent<Value>| {
        // Every invocation returns the refusal, so that the caller sees it.
        let function = function.as_ref().map_err(|refused| diagnostic(*refused))?;
        logging::set_request(&event.context.request_id);
        let now = clock();
        // `cargo lambda watch` sends a deadline in 1970: then there is no limit.
        let budget = event.context.deadline().duration_since(now).ok();
        answer(function, event.payload, RunClock::start(now.into(), budget)).await.map_err(diagnostic)
    }))
    .await
}

/// Prints one whole line among the log lines: CloudWatch reads metrics from standard output.
pub(crate) fn print(line: &str) {
    let mut out = std::io::stdout().lock();
    // A closed standard output cannot be reported.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// An error that fails the invocation: its kind is a stable word for alarms, its text is one line without secrets.
pub trait InvocationError: Display {
    fn kind(&self) -> &'static str;
}

impl InvocationError for RunError {
    fn kind(&self) -> &'static str {
        RunError::kind(self)
    }
}

impl InvocationError for Refused {
    fn kind(&self) -> &'static str {
        "Configuration"
    }
}

fn diagnostic(error: impl InvocationError) -> Diagnostic {
    Diagnostic { error_type: error.kind().to_owned(), error_message: error.to_string() }
}
