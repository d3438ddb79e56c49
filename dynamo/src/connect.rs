//! Makes a DynamoDB client from the environment, where Lambda passes a function its keys and its region; no other source is
//! used. `sign_in` makes the operator's client.

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::config::{BehaviorVersion, Builder, Credentials, Region, SharedHttpClient};
use aws_smithy_http_client::tls;

use super::call;
use shared::settings::{self, Environment};

/// A local engine serves every region, but requests have to be signed for one.
pub(crate) const ANY_REGION: &str = "us-east-1";

/// The client of a function.
pub fn connect(environment: &Environment) -> Client {
    let endpoint = settings::endpoint(environment).or_else(|| value(environment, "AWS_ENDPOINT_URL"));
    let keys = value(environment, "AWS_ACCESS_KEY_ID").zip(value(environment, "AWS_SECRET_ACCESS_KEY"));
    let session = value(environment, "AWS_SESSION_TOKEN").map(str::to_owned);
    let is_on = |name| value(environment, name).is_some_and(|value| value.eq_ignore_ascii_case("true"));
    let mut config = limited(endpoint, region(environment).or(endpoint.map(|_| ANY_REGION)))
        .use_fips(is_on("AWS_USE_FIPS_ENDPOINT"))
        .use_dual_stack(is_on("AWS_USE_DUALSTACK_ENDPOINT"));
    if let Some((id, secret)) = keys {
        config = config.credentials_provider(Credentials::new(id, secret, session, None, "environment"));
    }
    Client::from_conf(config.build())
}

/// The client for a local engine, which accepts any credentials.
pub fn connect_locally(endpoint: &str, region: Option<&str>) -> Client {
    let credentials = Credentials::new("local", "local", None, None, "a local engine");
    let config = limited(Some(endpoint), region.or(Some(ANY_REGION))).credentials_provider(credentials);
    Client::from_conf(config.build())
}

/// The SDK's own retries are off: [`super::Table::call`] retries, because throttles must be counted and slow the run down.
fn limited(endpoint: Option<&str>, region: Option<&str>) -> Builder {
    let mut config = Builder::new()
        .behavior_version(BehaviorVersion::latest())
        .http_client(http())
        .timeout_config(timeouts())
        .retry_config(RetryConfig::disabled())
        .region(region.map(|region| Region::new(region.to_owned())));
    config.set_endpoint_url(endpoint.map(str::to_owned));
    config
}

pub(crate) fn http() -> SharedHttpClient {
    aws_smithy_http_client::Builder::new()
        .tls_provider(tls::Provider::Rustls(tls::rustls_provider::CryptoMode::Ring))
        .build_https()
}

pub(crate) fn timeouts() -> TimeoutConfig {
    TimeoutConfig::builder()
        .connect_timeout(call::CONNECT_TIMEOUT)
        .operation_attempt_timeout(call::ATTEMPT_TIMEOUT)
        .build()
}

pub(crate) fn region(environment: &Environment) -> Option<&str> {
    ["AWS_REGION", "AWS_DEFAULT_REGION"].iter().find_map(|name| value(environment, name))
}

pub(crate) fn value<'e>(environment: &'e Environment, name: &str) -> Option<&'e str> {
    environment.get(name).map(|value| value.trim()).filter(|value| !value.is_empty())
}
