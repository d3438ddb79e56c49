//! The event of an invocation: a scheduled event, `{}`, or settings for this run.

use aws_lambda_events::eventbridge::EventBridgeEvent;
use serde_json::{Map, Value};

use shared::settings::ConfigError;

pub(crate) use jobs::backlog::Overrides;

/// The settings that an event overrides: none for a scheduled event.
pub fn overrides(event: Value) -> Result<Overrides, ConfigError> {
    let wrong = |problem: &str| ConfigError::Event { problem: problem.to_owned() };
    let Value::Object(fields) = event else { return Err(wrong("it must be a JSON object of settings")) };
    if !fields.contains_key("detail-type") {
        return Ok(fields);
    }
    // With a `detail-type`, a malformed EventBridge event is an error, not a set of settings.
    let scheduled: EventBridgeEvent<Value> = serde_json::from_value(Value::Object(fields))
        .map_err(|_| wrong("it has a detail-type, but is not an EventBridge event"))?;
    // An EventBridge rule sends `{}` as detail; EventBridge Scheduler sends it as a string.
    let detail = match &scheduled.detail {
        Value::String(text) => serde_json::from_str(text).unwrap_or(Value::Null),
        detail => detail.clone(),
    };
    match detail {
        Value::Object(detail) if detail.is_empty() => Ok(Map::new()),
        _ => Err(wrong("it is a scheduled event with a detail; put settings into the target's input instead")),
    }
}

#[cfg(test)]
mod tests {
    use model::mutate::{Corpus, Fuzz};
    use serde_json::{Value, json};

    use super::overrides;

    fn scheduled(detail: Value) -> Value {
        json!({"version": "0", "id": "1", "detail-type": "Scheduled Event", "source": "aws.events", "account": "123456789012",
            "time": "2026-11-16T03:00:00Z", "region": "eu-west-1", "resources": ["arn:aws:events:eu-west-1:123456789012:rule/r"],
            "detail": detail})
    }

    #[test]
    fn a_scheduled_event_overrides_nothing() {
        assert!(overrides(scheduled(json!({}))).is_ok_and(|fields| fields.is_empty()));
        assert!(overrides(scheduled(json!("{}"))).is_ok_and(|fields| fields.is_empty()));
        assert!(overrides(json!({})).is_ok_and(|fields| fields.is_empty()));
    }

    #[test]
    fn settings_are_returned_unchanged() {
        assert_eq!(overrides(json!({"mode": "dry-run"})).unwrap()["mode"], "dry-run");
    }

    /// Of the accepted events, a scheduled one overrides nothing, and any other is returned unchanged.
    #[test]
    fn any_event_is_a_schedules_or_settings_as_they_came() {
        let fuzz = Fuzz::start("scheduled events", 10_000);
        let seeds =
            [scheduled(json!({})), scheduled(json!("{}")), scheduled(json!({"mode": "delete"})), json!({"mode": 1})];
        let mut corpus = Corpus::of(&seeds.map(|seed| seed.to_string()).join("\n"), fuzz.seed);
        let mut schedules = 0;
        for _ in 0..fuzz.rounds {
            let Ok(event) = serde_json::from_str::<Value>(&corpus.next_text()) else { continue };
            let Ok(fields) = overrides(event.clone()) else { continue };
            let is_schedule = event.get("detail-type").is_some();
            schedules += u32::from(is_schedule);
            let came = if is_schedule { json!({}) } else { event };
            assert_eq!(Value::Object(fields), came);
        }
        assert!(schedules > 100, "{schedules}");
        fuzz.end();
    }

    #[test]
    fn anything_else_is_refused() {
        for event in
            [json!(null), json!([]), json!("x"), json!(1), scheduled(json!({"x": 1})), json!({"detail-type": 1})]
        {
            assert!(overrides(event.clone()).is_err(), "{event}");
        }
    }
}
