//! `metrics-emitter`: EventBridge wakes it every hour to count the system actors' rows, and once a week to count them all.
//! It reads, and cannot delete. Wiring only: the work is in `jobs`.

use std::time::SystemTime;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda_runtime::Error> {
    runtime::serve::serve(
        env!("CARGO_CRATE_NAME"),
        std::env::vars_os(),
        SystemTime::now,
        async |function, event, now, budget| function.answer_metrics(event, now, budget).await,
    )
    .await
}
