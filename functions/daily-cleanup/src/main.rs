//! `daily-cleanup`: EventBridge wakes it once a day; it cleans sessions, SPA tokens, MCP tokens and their index rows.
//! Wiring only: the work is in `jobs`.

use std::time::SystemTime;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda_runtime::Error> {
    runtime::serve::serve(
        env!("CARGO_CRATE_NAME"),
        std::env::vars_os(),
        SystemTime::now,
        async |function, event, now, budget| function.answer_daily_cleanup(event, now, budget).await,
    )
    .await
}
