//! `enable-ttl`: a CloudFormation custom resource that makes sure that an existing table's TTL is on.
//! Wiring only: the work is in `jobs`.

use std::time::SystemTime;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda_runtime::Error> {
    runtime::serve::serve(
        env!("CARGO_CRATE_NAME"),
        std::env::vars_os(),
        SystemTime::now,
        async |function, event, now, budget| function.enable_ttl(event, now, budget).await,
    )
    .await
}
