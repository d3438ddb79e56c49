//! A minimal Rust Lambda: the runtime and an empty answer. `make bench` compares the start of every function with this one's.

use lambda_runtime::{Error, LambdaEvent, service_fn};
use serde_json::{Value, json};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    lambda_runtime::run(service_fn(async |_: LambdaEvent<Value>| Ok::<_, Error>(json!({})))).await
}
