//! Log lines: one JSON object each, from this project's own crates only.
//!
//! The SDK and its HTTP client are never logged, at any level: below WARN they quote requests, and a request holds tokens.

use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

const OWN_CRATES: [&str; 4] = ["shared", "jobs", "dynamo", env!("CARGO_CRATE_NAME")];

/// Sends this project's log lines to standard output.
pub fn start(crate_name: &str, level: Level) {
    let own = crate_name.replace('-', "_");
    let own = Targets::new().with_targets(OWN_CRATES.into_iter().chain([own.as_str()]).map(|name| (name, level)));
    let lines =
        tracing_subscriber::fmt::layer().json().flatten_event(true).with_current_span(false).with_span_list(false);
    // A second start, as in tests, keeps the first one's subscriber.
    let _ = tracing_subscriber::registry().with(lines.with_filter(own)).try_init();
}

/// The level in `AWS_LAMBDA_LOG_LEVEL` or `RUST_LOG`, INFO by default. Of several directives the most verbose level counts.
pub fn level(environment: &shared::settings::Environment) -> Level {
    let wanted = ["AWS_LAMBDA_LOG_LEVEL", "RUST_LOG"].iter().find_map(|name| environment.get(*name));
    let words = wanted.map_or("", String::as_str).split([',', '=']);
    words.filter_map(|word| word.trim().parse().ok()).max().unwrap_or(Level::INFO)
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::level;

    #[test]
    fn the_most_verbose_level_counts() {
        let wanted = |value: &str| level(&[("RUST_LOG".to_owned(), value.to_owned())].into());
        assert_eq!(wanted("warn,aws_smithy=trace"), Level::TRACE);
        assert_eq!(wanted("debug"), Level::DEBUG);
        assert_eq!(wanted("nonsense"), Level::INFO);
        assert_eq!(level(&[].into()), Level::INFO);
    }
}
