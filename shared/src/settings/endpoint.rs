//! Classifies an endpoint by its host, without a DNS lookup.

use std::net::IpAddr;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    Loopback,
    /// A container's name, or `host.docker.internal`.
    Docker,
    PrivateAddress,
    Aws,
    Elsewhere,
}

/// The suffixes of AWS's partitions, as in the SDK's table of endpoints.
const AWS_DOMAINS: [&str; 14] = [
    "amazonaws.com",
    "amazonaws.com.cn",
    "amazonaws.eu",
    "amazonwebservices.com.cn",
    "amazonwebservices.eu",
    "api.aws",
    "aws.hci.ic.gov",
    "aws.ic.gov",
    "aws.scloud",
    "c2s.ic.gov",
    "cloud-aws.adc-e.uk",
    "cloud.adc-e.uk",
    "csp.hci.ic.gov",
    "sc2s.sgov.gov",
];

pub fn destination(endpoint: &str) -> Destination {
    let host = host(endpoint);
    let in_domain = |domain: &&str| host.strip_suffix(*domain).is_some_and(|rest| rest.ends_with('.'));
    // A number without a dot is an address in another notation, not a name.
    let is_container = !host.contains(['.', ':']) && host.starts_with(|c: char| c.is_ascii_alphabetic());
    match host.parse().map(|address: IpAddr| address.to_canonical()) {
        Ok(address) if address.is_loopback() => Destination::Loopback,
        Ok(IpAddr::V4(address)) if address.is_private() => Destination::PrivateAddress,
        Ok(IpAddr::V6(address)) if address.is_unique_local() => Destination::PrivateAddress,
        Ok(_) => Destination::Elsewhere,
        Err(_) if host == "localhost" => Destination::Loopback,
        Err(_) if is_container || host == "host.docker.internal" => Destination::Docker,
        Err(_) if AWS_DOMAINS.iter().any(in_domain) => Destination::Aws,
        Err(_) => Destination::Elsewhere,
    }
}

/// The host in lower case, without user, port and brackets.
fn host(endpoint: &str) -> String {
    let rest = endpoint.split_once("://").map_or(endpoint, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#', '\\']).next().unwrap_or_default();
    let authority = authority.rsplit('@').next().unwrap_or_default();
    let host = match authority.strip_prefix('[') {
        Some(v6) => v6.split(']').next(),
        None => authority.split(':').next(),
    };
    host.unwrap_or_default().trim_end_matches('.').to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::{Destination, destination};

    #[test]
    fn an_endpoint_s_host_says_where_it_is() {
        for (expected, endpoints) in [
            (
                Destination::Loopback,
                &[
                    "http://127.0.0.1:8000",
                    "127.0.0.1:8000",
                    "http://127.1.2.3/",
                    "http://localhost:8000/path",
                    "http://LOCALHOST",
                    "http://[::1]:8000",
                    "http://[::ffff:127.0.0.1]:8000",
                    "http://user:password@localhost:8000",
                ][..],
            ),
            (Destination::Docker, &["http://dynamodb:8000", "http://host.docker.internal:8000", "dynamodb-local"]),
            (
                Destination::PrivateAddress,
                &["http://10.0.0.5:8000", "http://172.17.0.1", "http://192.168.1.2:8000", "http://[fd00::1]:8000"],
            ),
            (
                Destination::Aws,
                &[
                    "https://dynamodb.us-east-1.amazonaws.com",
                    "https://DynamoDB.eu-west-1.AmazonAWS.com.:443/",
                    "https://dynamodb.cn-north-1.amazonaws.com.cn",
                    "https://123456789012.ddb.us-east-1.api.aws",
                    "https://vpce-1.dynamodb.us-east-1.vpce.amazonaws.com",
                    "https://127.0.0.1@dynamodb.us-east-1.amazonaws.com",
                    "https://dynamodb.eusc-de-east-1.amazonaws.eu",
                    "https://dynamodb.eusc-de-east-1.api.amazonwebservices.eu",
                    "https://dynamodb.us-iso-east-1.c2s.ic.gov",
                    "https://dynamodb.us-isob-east-1.sc2s.sgov.gov",
                ],
            ),
            (
                Destination::Elsewhere,
                &[
                    "http://172.32.0.1",
                    "http://8.8.8.8:8000",
                    "http://169.254.169.254",
                    "http://[2001:db8::1]:8000",
                    "http://127.0.0.1.example.com",
                    "http://localhost@example.com",
                    "http://example.com/localhost",
                    "http://localhost.example.com",
                    "http://notamazonaws.com",
                    "http://2130706433",
                    "http://0x08080808",
                    "http://",
                    "",
                ],
            ),
        ] {
            for endpoint in endpoints {
                assert_eq!(destination(endpoint), expected, "{endpoint}");
            }
        }
    }
}
