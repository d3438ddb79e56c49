//! A paused clock that stands still while a request is in flight, and otherwise jumps to the next timer.
//!
//! Backoff, pacing, leases and deadlines then cost no real time, and no machine is too slow for a budget. A request that is never
//! answered stops the clock forever: tests of unanswered requests use real time, or drive the clock (`tests/engines/driven.rs`).

use std::cell::Cell;
use std::sync::mpsc::channel;

use aws_sdk_dynamodb::Client;
use aws_smithy_runtime_api::client::http::{HttpConnector, HttpConnectorFuture, SharedHttpConnector, http_client_fn};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::byte_stream::ByteStream;

thread_local! {
    static IS_PAUSED: Cell<bool> = const { Cell::new(false) };
}

/// Pauses the clock of this test's single-threaded runtime until the test ends.
///
/// # Panics
/// In a runtime of several threads.
pub fn pause() {
    tokio::time::pause();
    IS_PAUSED.set(true);
}

/// The client with a connector that stops a paused clock during requests.
pub(crate) fn holding(client: &Client) -> Client {
    let http = client.config().http_client().expect("the client has an HTTP client");
    let held = http_client_fn(move |settings, components| {
        use aws_smithy_runtime_api::client::http::HttpClient;
        SharedHttpConnector::new(Holding(http.http_connector(settings, components)))
    });
    Client::from_conf(client.config().to_builder().http_client(held).build())
}

#[derive(Debug)]
struct Holding(SharedHttpConnector);

impl HttpConnector for Holding {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let answer = self.0.call(request);
        if !IS_PAUSED.get() {
            return answer;
        }
        // tokio's clock does not jump while a blocking task runs; this one ends when its sender is dropped.
        let (in_flight, done) = channel::<()>();
        tokio::task::spawn_blocking(move || done.recv());
        HttpConnectorFuture::new(async move {
            let mut answer = answer.await?;
            let body = ByteStream::new(answer.take_body()).collect().await;
            *answer.body_mut() = SdkBody::from(body.map_err(|error| ConnectorError::io(error.into()))?.into_bytes());
            drop(in_flight);
            Ok(answer)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::engine::{EngineKind, shared};
    use crate::proxy::{Fate, Proxy};
    use crate::tables;

    #[tokio::test]
    async fn an_hour_passes_at_once_and_a_slow_answer_takes_no_time() {
        let started = Instant::now();
        let slow = Duration::from_millis(300);
        let proxy = Proxy::start(shared(EngineKind::Embedded).endpoint(), move |_| Fate::Slow(slow));
        pause();
        let client = tables::client(proxy.endpoint()).await;
        let before = tokio::time::Instant::now();
        client.list_tables().send().await.unwrap();
        assert_eq!(before.elapsed(), Duration::ZERO, "the clock moved during a request");
        assert!(started.elapsed() >= slow);
        tokio::time::sleep(Duration::from_hours(1)).await;
        assert!(started.elapsed() < Duration::from_hours(1));
        assert!(before.elapsed() >= Duration::from_hours(1));
    }
}
