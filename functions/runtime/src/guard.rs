//! A function that runs locally reaches AWS only with `ALLOW_AWS=true`.

use shared::settings::{self, Destination, Environment, destination};

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "configuration: a local run needs a local endpoint: set AWS_ENDPOINT_URL_DYNAMODB, such as http://127.0.0.1:8000 \
     (for sam local in events/local-env.json), or ALLOW_AWS=true to use AWS"
)]
pub struct Refused;

pub const USES_AWS: &str = "local run uses AWS, as ALLOW_AWS=true permits";
pub const NOT_LOCAL: &str =
    "local run uses an endpoint that is neither on this machine nor on a private or Docker network";

/// Whether the function may send requests, with a notice to log first, if any.
pub fn check(environment: &Environment) -> Result<Option<&'static str>, Refused> {
    if !is_local(environment) {
        return Ok(None);
    }
    let is_allowed = environment.get("ALLOW_AWS").is_some_and(|value| value.trim() == "true");
    match settings::endpoint(environment).map_or(Destination::Aws, destination) {
        Destination::Loopback | Destination::Docker | Destination::PrivateAddress => Ok(None),
        Destination::Elsewhere => Ok(Some(NOT_LOCAL)),
        Destination::Aws if is_allowed => Ok(Some(USES_AWS)),
        Destination::Aws => Err(Refused),
    }
}

/// Whether `sam local` or `cargo lambda watch` runs the function. cargo-lambda serves the runtime API below `/.rt`; Lambda and
/// its emulator give a host and a port.
fn is_local(environment: &Environment) -> bool {
    environment.contains_key("AWS_SAM_LOCAL")
        || environment.get("AWS_LAMBDA_RUNTIME_API").is_some_and(|address| address.contains("/.rt"))
}

#[cfg(test)]
mod tests {
    use super::{NOT_LOCAL, Refused, USES_AWS, check};

    const SAM: &[(&str, &str)] = &[("AWS_SAM_LOCAL", "true"), ("AWS_LAMBDA_RUNTIME_API", "127.0.0.1:9001")];
    const WATCH: &[(&str, &str)] = &[("AWS_LAMBDA_RUNTIME_API", "http://127.0.0.1:9000/.rt/daily-cleanup")];
    /// Also the emulator without `sam local`.
    const LAMBDA: &[(&str, &str)] = &[("AWS_LAMBDA_RUNTIME_API", "169.254.100.1:9001"), ("AWS_REGION", "us-east-1")];
    const AWS: &str = "https://dynamodb.us-east-1.amazonaws.com";

    #[test]
    fn a_local_run_needs_a_local_endpoint_or_permission() {
        let endpoint = "AWS_ENDPOINT_URL_DYNAMODB";
        for (given, locally) in [
            (&[][..], Err(Refused)),
            (&[(endpoint, "")], Err(Refused)),
            (&[(endpoint, " "), ("AWS_DB_HOST", "")], Err(Refused)),
            (&[(endpoint, AWS)], Err(Refused)),
            // Not one of the settings: only the SDK reads it.
            (&[("AWS_ENDPOINT_URL", "http://127.0.0.1:8000")], Err(Refused)),
            (&[("ALLOW_AWS", "")], Err(Refused)),
            (&[("ALLOW_AWS", "false")], Err(Refused)),
            (&[("ALLOW_AWS", "yes")], Err(Refused)),
            (&[("ALLOW_AWS", "true")], Ok(Some(USES_AWS))),
            (&[(endpoint, AWS), ("ALLOW_AWS", "true")], Ok(Some(USES_AWS))),
            (&[(endpoint, "http://127.0.0.1:8000")], Ok(None)),
            (&[(endpoint, "http://127.0.0.1:8000"), ("ALLOW_AWS", "true")], Ok(None)),
            (&[(endpoint, ""), ("AWS_DB_HOST", "http://localhost:8000")], Ok(None)),
            (&[(endpoint, "http://dynamodb:8000")], Ok(None)),
            (&[(endpoint, "http://host.docker.internal:8000")], Ok(None)),
            (&[(endpoint, "http://172.17.0.1:8000")], Ok(None)),
            (&[(endpoint, "http://dynamodb.example.com:8000")], Ok(Some(NOT_LOCAL))),
            (&[(endpoint, "http://203.0.113.7:8000")], Ok(Some(NOT_LOCAL))),
        ] {
            for (runner, expected) in [(SAM, locally), (WATCH, locally), (LAMBDA, Ok(None)), (&[], Ok(None))] {
                let pairs = runner.iter().chain(given).map(|(name, value)| ((*name).into(), (*value).into()));
                assert_eq!(check(&pairs.collect()), expected, "{runner:?} {given:?}");
            }
        }
        assert_eq!(Refused.to_string().lines().count(), 1);
    }
}
