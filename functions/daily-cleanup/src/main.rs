//! `daily-cleanup`: EventBridge wakes it once a day; it cleans sessions, SPA tokens, MCP tokens and their index rows.
//! Wiring only: the work is in `shared`.

use std::time::SystemTime;

use lambda_runtime::{Diagnostic, Error, LambdaEvent, service_fn};
use serde_json::Value;
use shared::config::{self, Environment};
use shared::lambda::Function;
use shared::time::EpochSeconds;
use shared::{dynamo, logging};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let environment: Environment = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    logging::start(env!("CARGO_CRATE_NAME"), logging::level(&environment));
    let client = dynamo::connect(config::endpoint(&environment)).await;
    let function = Function { client, environment };
    lambda_runtime::run(service_fn(|event| handle(&function, event))).await
}

async fn handle(function: &Function, event: LambdaEvent<Value>) -> Result<Value, Diagnostic> {
    let now = SystemTime::now();
    // A deadline that is already over is one that `cargo lambda watch` makes up (1970): no limit then, instead of no time.
    let budget = event.context.deadline().duration_since(now).ok();
    match function.daily_cleanup(event.payload, EpochSeconds::from(now), budget).await {
        Ok(report) => Ok(report.to_answer()),
        Err(error) => Err(Diagnostic { error_type: error.kind().to_owned(), error_message: error.to_string() }),
    }
}
