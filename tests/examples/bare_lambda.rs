//! The least that a Rust Lambda can be: the runtime, and an answer. Every start-up is measured against this one's (`make bench`).

use lambda_runtime::{Error, LambdaEvent, service_fn};
use serde_json::{Value, json};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    lambda_runtime::run(service_fn(async |_: LambdaEvent<Value>| Ok::<_, Error>(json!({})))).await
}
