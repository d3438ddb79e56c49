//! `daily-cleanup`: EventBridge invokes it once a day; it deletes expired sessions, SPA tokens, MCP tokens and their index rows.

use std::time::SystemTime;

use runtime::job;
use runtime::serve::serve;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda_runtime::Error> {
    serve(env!("CARGO_CRATE_NAME"), std::env::vars_os(), SystemTime::now, job::answer::<jobs::cleanup::Cleanup>).await
}
