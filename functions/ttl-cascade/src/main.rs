//! `ttl-cascade`: the table's stream invokes it when DynamoDB's TTL has removed tokens; it deletes the rows that depended on them.

use std::time::SystemTime;

use runtime::cascade;
use runtime::serve::serve;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda_runtime::Error> {
    serve(env!("CARGO_CRATE_NAME"), std::env::vars_os(), SystemTime::now, cascade::answer).await
}
