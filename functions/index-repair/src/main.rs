//! `index-repair`: EventBridge wakes it once a week; it makes the indexes and the rows behind them agree.
//! Wiring only: the work is in `jobs`.

use std::time::SystemTime;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda_runtime::Error> {
    runtime::serve::serve(
        env!("CARGO_CRATE_NAME"),
        std::env::vars_os(),
        SystemTime::now,
        async |function, event, now, budget| function.answer_index_repair(event, now, budget).await,
    )
    .await
}
