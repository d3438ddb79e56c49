//! `index-repair`: EventBridge invokes it once a week; it deletes dangling index rows and unreachable rows.

use std::time::SystemTime;

use runtime::job;
use runtime::serve::serve;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda_runtime::Error> {
    serve(env!("CARGO_CRATE_NAME"), std::env::vars_os(), SystemTime::now, job::answer::<jobs::repair::Repair>).await
}
