//! One HTTP PUT to a pre-signed address, with the SDK's own HTTP client. The address appears in no log line and no error.

use std::time::Duration;

use aws_smithy_http_client::{Connector, tls};
use aws_smithy_runtime_api::client::http::HttpConnector;
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;

const MAX_ATTEMPTS: u32 = 4;
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(4);
const BACKOFF_FIRST: Duration = Duration::from_millis(200);

/// Why an attempt failed, in our own words: the client's error can quote the address.
enum PutFault {
    Transient(String),
    Permanent(String),
}

/// Sends `body`, within `left`.
///
/// # Errors
/// A short description of the failure.
pub async fn put(url: &str, body: &str, left: Duration) -> Result<(), String> {
    let connector =
        Connector::builder().tls_provider(tls::Provider::Rustls(tls::rustls_provider::CryptoMode::Ring)).build();
    let attempts = async {
        let mut attempt = 1;
        loop {
            let answer = tokio::time::timeout(ATTEMPT_TIMEOUT, put_once(&connector, url, body)).await;
            match answer.unwrap_or_else(|_| Err(PutFault::Transient("timed out".to_owned()))) {
                Ok(()) => return Ok(()),
                Err(PutFault::Transient(_)) if attempt < MAX_ATTEMPTS => {
                    tokio::time::sleep(BACKOFF_FIRST.saturating_mul(1 << attempt)).await;
                    attempt += 1;
                }
                Err(PutFault::Transient(cause)) => return Err(format!("{cause} ({attempt} attempts)")),
                Err(PutFault::Permanent(cause)) => return Err(cause),
            }
        }
    };
    tokio::time::timeout(left, attempts).await.unwrap_or_else(|_| Err("timed out".to_owned()))
}

async fn put_once(connector: &Connector, url: &str, body: &str) -> Result<(), PutFault> {
    let answer = connector.call(request(url, body)?).await.map_err(|error| {
        if error.is_user() {
            PutFault::Permanent(NO_ADDRESS.to_owned())
        } else {
            PutFault::Transient("could not connect".to_owned())
        }
    })?;
    match answer.status().as_u16() {
        200..300 => Ok(()),
        status @ 500.. => Err(PutFault::Transient(format!("HTTP {status}"))),
        status => Err(PutFault::Permanent(format!("HTTP {status}"))),
    }
}

const NO_ADDRESS: &str = "the ResponseURL is not a valid address";

fn request(url: &str, body: &str) -> Result<HttpRequest, PutFault> {
    let mut request = HttpRequest::empty();
    // Unchanged, byte for byte: it is signed.
    let is_set = request.set_uri(url).is_ok() && request.set_method("PUT").is_ok();
    let is_http = ["https://", "http://"].iter().any(|scheme| url.starts_with(scheme));
    if !(is_set && is_http) {
        return Err(PutFault::Permanent(NO_ADDRESS.to_owned()));
    }
    // The address is signed for an empty content type.
    request.headers_mut().insert("content-type", "");
    *request.body_mut() = body.into();
    Ok(request)
}
