//! `enable-ttl`: a CloudFormation custom resource that switches on a table's TTL and, on request, its stream.

use std::time::SystemTime;

use runtime::custom_resource;
use runtime::serve::serve;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda_runtime::Error> {
    serve(env!("CARGO_CRATE_NAME"), std::env::vars_os(), SystemTime::now, custom_resource::enable_ttl).await
}
