//! Settings from an event and from an environment.

use model::mutate::{Corpus, Fuzz};
use serde_json::{Map, Value};
use shared::settings::{Environment, Purpose, SETTINGS, Settings};

/// Whatever an event or an environment contains, no accepted setting is out of range or unknown.
#[test]
fn accepts_no_setting_out_of_range() {
    let fuzz = Fuzz::start("events and environments", 20_000);
    let mut corpus = Corpus::of(include_str!("corpus/events.txt"), fuzz.seed);
    let environment: Environment =
        [("AWS_DB_PREFIX", "x"), ("MODE", "delete")].map(|(n, v)| (n.into(), v.into())).into();
    let mut accepted = 0;
    for _ in 0..fuzz.rounds {
        let (text, before) = (corpus.next_text(), accepted);
        let Ok(Value::Object(event)) = serde_json::from_str::<Value>(&text) else { continue };
        for purpose in [Purpose::Cleanup, Purpose::Repair, Purpose::Metrics, Purpose::Cascade, Purpose::Explain] {
            if let Ok(settings) = Settings::parse(&environment, &event, purpose) {
                within_ranges(&settings, &text);
                let known = |key: &String| SETTINGS.iter().any(|setting| setting.key() == *key);
                assert!(event.keys().all(known), "{text}");
                accepted += 1;
            }
            // The same texts as an environment. A name that only looks like a setting is an error.
            let names = event.iter().filter_map(|(key, value)| Some((key.to_uppercase(), value.as_str()?.to_owned())));
            let mut given = environment.clone();
            given.extend(names);
            if let Ok(settings) = Settings::parse(&given, &Map::new(), purpose) {
                within_ranges(&settings, &text);
            }
        }
        if accepted > before {
            corpus.keep(text);
        }
    }
    assert!(accepted > 100, "{accepted}: the corpus is too far from an event");
    fuzz.end();
}

fn within_ranges(settings: &Settings, text: &str) {
    assert!(settings.grace_seconds >= 300, "{text}");
    assert!(settings.reuse_window_seconds >= 172_800, "{text}");
    assert!((1..=90).contains(&settings.retire_days), "{text}");
    assert!(settings.max_deletes.is_none_or(|deletes| deletes > 0), "{text}");
    assert!(settings.backlog_after_incomplete_runs.is_none_or(|runs| runs > 0), "{text}");
    assert!(settings.max_delete_share.is_none_or(|share| share > 0.0 && share <= 1.0), "{text}");
    let Settings { max_write_units_per_second, max_read_units_per_second, max_audit_units, .. } = *settings;
    for units in [max_write_units_per_second, max_read_units_per_second, max_audit_units].into_iter().flatten() {
        assert!(units >= 0.1 && units.is_finite(), "{text}");
    }
    assert!(settings.table.len() >= 3, "{text}");
}
