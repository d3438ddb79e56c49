//! Log lines: one JSON object each, from this project's own crates only.
//!
//! However talkative the level, the SDK and its HTTP client stay silent: what they print below WARN quotes requests, and
//! a request holds tokens.

use shared::settings::{ConfigError, Environment, shown};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::prelude::*;

/// The crates whose lines appear.
const OWN_CRATES: [&str; 4] = ["shared", "jobs", "dynamo", env!("CARGO_CRATE_NAME")];

/// Sends this project's log lines to standard output.
pub fn start(crate_name: &str, level: LevelFilter) {
    let own = crate_name.replace('-', "_");
    let own = Targets::new().with_targets(OWN_CRATES.into_iter().chain([own.as_str()]).map(|name| (name, level)));
    let lines =
        tracing_subscriber::fmt::layer().json().flatten_event(true).with_current_span(false).with_span_list(false);
    // A second start, as tests do it, keeps the first one's lines.
    let _ = tracing_subscriber::registry().with(lines.with_filter(own)).try_init();
}

/// The level that `AWS_LAMBDA_LOG_LEVEL` or `RUST_LOG` sets; INFO otherwise.
///
/// Of a list of directives the most verbose level counts: whatever it was meant for, only our own lines can appear.
pub fn level(environment: &Environment) -> Result<LevelFilter, ConfigError> {
    let set = ["AWS_LAMBDA_LOG_LEVEL", "RUST_LOG"].iter().find_map(|name| Some((name, environment.get(*name)?)));
    let Some((name, value)) = set.filter(|(_, value)| !value.trim().is_empty()) else { return Ok(LevelFilter::INFO) };
    let level = |directive: &str| {
        let level = directive.rsplit('=').next().unwrap_or_default().trim();
        // Lambda's own name for the highest level.
        let level = if level.eq_ignore_ascii_case("fatal") { "error" } else { level };
        level.parse::<LevelFilter>().map_err(|_| ConfigError::Value {
            setting: (*name).to_owned(),
            value: shown(value),
            problem: "must be error, warn, info, debug or trace".to_owned(),
        })
    };
    let levels: Vec<LevelFilter> = value.split(',').map(level).collect::<Result<_, _>>()?;
    Ok(levels.into_iter().max().unwrap_or(LevelFilter::INFO))
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::filter::LevelFilter;

    use super::level;

    #[test]
    fn the_most_verbose_level_counts_and_a_bad_one_is_an_error() {
        let rust_log = |value: &str| level(&[("RUST_LOG".to_owned(), value.to_owned())].into());
        assert_eq!(rust_log("warn,aws_smithy=trace"), Ok(LevelFilter::TRACE));
        assert_eq!(rust_log("debug"), Ok(LevelFilter::DEBUG));
        assert_eq!(level(&[("AWS_LAMBDA_LOG_LEVEL".to_owned(), "FATAL".to_owned())].into()), Ok(LevelFilter::ERROR));
        for unset in [level(&[].into()), rust_log("")] {
            assert_eq!(unset, Ok(LevelFilter::INFO));
        }
        for wrong in ["nonsense", "warn,nonsense", "aws=loud", "warn,"] {
            assert!(rust_log(wrong).is_err(), "{wrong}");
        }
        let text = rust_log("nonsense").unwrap_err().to_string();
        assert_eq!(text, "RUST_LOG=nonsense: must be error, warn, info, debug or trace");
    }
}
