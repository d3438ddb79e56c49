//! `ttl-cascade`: the table's stream wakes it when DynamoDB's TTL has removed tokens; what hung on them goes at once.
//! Wiring only: the work is in `jobs`.

use std::time::SystemTime;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda_runtime::Error> {
    runtime::serve::serve(
        env!("CARGO_CRATE_NAME"),
        std::env::vars_os(),
        SystemTime::now,
        async |function, event, now, budget| {
            function.ttl_cascade(event, now, budget).await.map(|report| report.to_answer())
        },
    )
    .await
}
