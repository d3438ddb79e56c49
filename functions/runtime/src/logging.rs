//! Log lines: one JSON object each, from this project's own crates only.
//!
//! However talkative the level, the SDK and its HTTP client stay silent: what they print below WARN quotes requests, and
//! a request holds tokens.

use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

/// The crates whose lines appear.
const OWN_CRATES: [&str; 4] = ["shared", "jobs", "dynamo", env!("CARGO_CRATE_NAME")];

/// Sends this project's log lines to standard output. `level` is what the edge found in the environment.
pub fn start(crate_name: &str, level: Level) {
    let own = crate_name.replace('-', "_");
    let own = Targets::new().with_targets(OWN_CRATES.into_iter().chain([own.as_str()]).map(|name| (name, level)));
    let lines =
        tracing_subscriber::fmt::layer().json().flatten_event(true).with_current_span(false).with_span_list(false);
    // A second start, as tests do it, keeps the first one's lines.
    let _ = tracing_subscriber::registry().with(lines.with_filter(own)).try_init();
}

/// The level that `AWS_LAMBDA_LOG_LEVEL` or `RUST_LOG` asks for; INFO otherwise.
///
/// Of a list of directives the most talkative level counts: whatever it was meant for, only our own lines can appear.
pub fn level(environment: &shared::settings::Environment) -> Level {
    let asked = ["AWS_LAMBDA_LOG_LEVEL", "RUST_LOG"].iter().find_map(|name| environment.get(*name));
    let words = asked.map_or("", String::as_str).split([',', '=']);
    words.filter_map(|word| word.trim().parse().ok()).max().unwrap_or(Level::INFO)
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::level;

    #[test]
    fn the_most_talkative_level_asked_for_counts() {
        let asked = |value: &str| level(&[("RUST_LOG".to_owned(), value.to_owned())].into());
        assert_eq!(asked("warn,aws_smithy=trace"), Level::TRACE);
        assert_eq!(asked("debug"), Level::DEBUG);
        assert_eq!(asked("nonsense"), Level::INFO);
        assert_eq!(level(&[].into()), Level::INFO);
    }
}
