//! What an invocation brings: a schedule's event, `{}`, or settings for this one run.

use aws_lambda_events::eventbridge::EventBridgeEvent;
use serde_json::{Map, Value};

use shared::settings::ConfigError;

/// The settings that an event overrides: none for a scheduled event.
///
/// # Errors
/// When the event is something else than a scheduled event or an object of settings.
pub fn overrides(event: Value) -> Result<Map<String, Value>, ConfigError> {
    let Value::Object(fields) = event else {
        return Err(ConfigError::Event { problem: "it is not an object".to_owned() });
    };
    if !fields.contains_key("detail-type") {
        return Ok(fields);
    }
    // From here on it claims to be an event bus's: a half-formed one is a mistake, not a set of settings.
    let scheduled: EventBridgeEvent<Value> = serde_json::from_value(Value::Object(fields)).map_err(|_| {
        ConfigError::Event { problem: "it has a detail-type, but is not an EventBridge event".to_owned() }
    })?;
    // EventBridge sends `{}`; the Scheduler sends the same as text.
    let detail = match &scheduled.detail {
        Value::String(text) => serde_json::from_str(text).unwrap_or(Value::Null),
        detail => detail.clone(),
    };
    match detail {
        Value::Object(detail) if detail.is_empty() => Ok(Map::new()),
        _ => Err(ConfigError::Event {
            problem: "a scheduled event with a detail is not ours; put settings into the target's input instead"
                .to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
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
    fn settings_are_handed_on_as_they_are() {
        assert_eq!(overrides(json!({"mode": "dry-run"})).unwrap()["mode"], "dry-run");
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
