//! Log lines: one JSON object each, from this project's own crates only, with Lambda's field names.
//!
//! The SDK and its HTTP client are never logged, at any level: below WARN they print requests, which contain tokens.
//!
//! A field `rows.read` becomes the member `read` of the object `rows`; a field `json.buckets` (JSON) the object `buckets`.

use std::fmt::{Debug, Write as _};
use std::sync::Mutex;

use serde_json::{Map, Value, json};
use shared::settings::{ConfigError, Environment, shown};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::layer::Context;
use tracing_subscriber::prelude::*;

/// The library crates whose lines are logged.
const OWN_CRATES: [&str; 4] = ["shared", "jobs", "dynamo", env!("CARGO_CRATE_NAME")];

/// Fields with this prefix hold JSON.
const JSON: &str = "json.";

/// The request id of the current invocation. A container serves one at a time.
static REQUEST: Mutex<Option<String>> = Mutex::new(None);

/// Sends this project's log lines to standard output.
pub fn start(crate_name: &str, level: LevelFilter) {
    let own = crate_name.replace('-', "_");
    let own = Targets::new().with_targets(OWN_CRATES.into_iter().chain([own.as_str()]).map(|name| (name, level)));
    // A second call, as in tests, keeps the first subscriber.
    let _ = tracing_subscriber::registry().with(Lines.with_filter(own)).try_init();
}

pub fn set_request(id: &str) {
    *REQUEST.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(id.to_owned());
}

pub fn request_id() -> Option<String> {
    REQUEST.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
}

struct Lines;

impl<S: Subscriber> tracing_subscriber::Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut timestamp = String::new();
        // If the time cannot be formatted, the line is logged without it.
        let _ = SystemTime.format_time(&mut Writer::new(&mut timestamp));
        crate::serve::print(&line(event, &timestamp, request_id().as_deref()).to_string());
    }
}

fn line(event: &Event<'_>, timestamp: &str, request_id: Option<&str>) -> Value {
    let mut fields = Fields(Map::new());
    event.record(&mut fields);
    let mut line = Map::from_iter([
        ("timestamp".to_owned(), json!(timestamp)),
        ("level".to_owned(), json!(event.metadata().level().as_str())),
        ("message".to_owned(), fields.0.remove("message").unwrap_or_default()),
    ]);
    if let Some(id) = request_id {
        line.insert("requestId".to_owned(), json!(id));
    }
    line.extend(fields.0);
    Value::Object(line)
}

/// The fields of a line, nested by the dots in their names.
struct Fields(Map<String, Value>);

impl Fields {
    fn put(&mut self, name: &str, value: Value) {
        let mut path: Vec<&str> = name.split('.').collect();
        let last = path.pop().unwrap_or(name);
        let mut object = &mut self.0;
        for part in path {
            let member = object.entry(part).or_insert_with(|| json!({}));
            if !member.is_object() {
                *member = json!({});
            }
            let Value::Object(inner) = member else { return };
            object = inner;
        }
        object.insert(last.to_owned(), value);
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name().strip_prefix(JSON) {
            // Invalid JSON is logged as a string.
            Some(name) => self.put(name, serde_json::from_str(value).unwrap_or_else(|_| json!(value))),
            None => self.put(field.name(), json!(value)),
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field.name(), json!(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field.name(), json!(value));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field.name(), json!(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field.name(), json!(value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let mut text = String::new();
        let _ = write!(text, "{value:?}");
        self.record_str(field, &text);
    }
}

/// The level that `AWS_LAMBDA_LOG_LEVEL` or `RUST_LOG` sets; INFO otherwise.
///
/// In a list of directives the most verbose level wins: only this project's lines are logged in any case.
pub fn level(environment: &Environment) -> Result<LevelFilter, ConfigError> {
    let mut set = ["AWS_LAMBDA_LOG_LEVEL", "RUST_LOG"].iter().filter_map(|name| Some((name, environment.get(*name)?)));
    let Some((name, value)) = set.find(|(_, value)| !value.trim().is_empty()) else { return Ok(LevelFilter::INFO) };
    let level = |directive: &str| {
        let level = directive.rsplit('=').next().unwrap_or_default().trim();
        // Lambda's name for its highest level.
        let level = if level.eq_ignore_ascii_case("fatal") { "error" } else { level };
        // An empty directive would parse as ERROR.
        level.parse::<LevelFilter>().ok().filter(|_| !level.is_empty()).ok_or_else(|| ConfigError::Value {
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
    use std::sync::{Arc, Mutex};
    use tracing_subscriber::filter::LevelFilter;

    use serde_json::{Value, json};
    use tracing::{Event, Subscriber};
    use tracing_subscriber::layer::Context;
    use tracing_subscriber::prelude::*;

    use super::{level, line};

    #[test]
    fn the_most_verbose_level_counts_and_a_bad_one_is_an_error() {
        let rust_log = |value: &str| level(&[("RUST_LOG".to_owned(), value.to_owned())].into());
        assert_eq!(rust_log("warn,aws_smithy=trace"), Ok(LevelFilter::TRACE));
        assert_eq!(rust_log("debug"), Ok(LevelFilter::DEBUG));
        assert_eq!(level(&[("AWS_LAMBDA_LOG_LEVEL".to_owned(), "FATAL".to_owned())].into()), Ok(LevelFilter::ERROR));
        let empty_first = [("AWS_LAMBDA_LOG_LEVEL", ""), ("RUST_LOG", "warn")];
        let empty_first = empty_first.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(level(&empty_first.into()), Ok(LevelFilter::WARN));
        for unset in [level(&[].into()), rust_log("")] {
            assert_eq!(unset, Ok(LevelFilter::INFO));
        }
        for wrong in ["nonsense", "warn,nonsense", "aws=loud", "warn,"] {
            assert!(rust_log(wrong).is_err(), "{wrong}");
        }
        let text = rust_log("nonsense").unwrap_err().to_string();
        assert_eq!(text, "RUST_LOG=nonsense: must be error, warn, info, debug or trace");
    }

    struct Kept(Arc<Mutex<Vec<Value>>>);

    impl<S: Subscriber> tracing_subscriber::Layer<S> for Kept {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            self.0.lock().unwrap().push(line(event, "now", Some("request-1")));
        }
    }

    #[test]
    fn a_line_has_its_request_and_objects_as_objects() {
        let lines = Arc::default();
        tracing::subscriber::with_default(tracing_subscriber::registry().with(Kept(Arc::clone(&lines))), || {
            let (job, absent) = ("cleanup", None::<u64>);
            tracing::info!(
                rows.read = 3,
                rows.deleted = 1.5,
                json.buckets = r#"{"a": {"read": 3}}"#,
                absent,
                "{job} finished"
            );
            tracing::error!(error.kind = "Store", error.text = %"two words", json.odd = "no JSON", "cleanup failed");
        });
        let lines = lines.lock().unwrap();
        let finished = json!({"timestamp": "now", "level": "INFO", "message": "cleanup finished", "requestId": "request-1",
            "rows": {"read": 3, "deleted": 1.5}, "buckets": {"a": {"read": 3}}});
        let failed = json!({"timestamp": "now", "level": "ERROR", "message": "cleanup failed", "requestId": "request-1",
            "error": {"kind": "Store", "text": "two words"}, "odd": "no JSON"});
        assert_eq!(*lines, [finished, failed]);
    }
}
