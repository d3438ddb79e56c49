//! `metrics-emitter`: EventBridge invokes it every six hours to count the system actors' rows, and once a week to count all
//! rows. It only reads.

use std::time::SystemTime;

use runtime::metrics;
use runtime::serve::serve;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda_runtime::Error> {
    serve(env!("CARGO_CRATE_NAME"), std::env::vars_os(), SystemTime::now, metrics::answer).await
}
