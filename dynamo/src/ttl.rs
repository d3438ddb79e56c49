//! UpdateTimeToLive.

use aws_sdk_dynamodb::error::ProvideErrorMetadata;
use aws_sdk_dynamodb::types::TimeToLiveSpecification;

use super::Dynamo;
use super::call::Phase;
use super::convert::TTL;
use jobs::store::{EnableAnswer, Result, StoreError, SwitchTtl};

const OPERATION: &str = "UpdateTimeToLive";

impl SwitchTtl for Dynamo {
    async fn enable_ttl(&self) -> Result<EnableAnswer> {
        let wanted = TimeToLiveSpecification::builder().attribute_name(TTL).enabled(true).build().map_err(|_| {
            let code = "a request that could not be built".to_owned();
            StoreError::Rejected { operation: OPERATION, table: self.table.clone(), code }
        })?;
        self.call(OPERATION, Phase::Work, || {
            let request = self.client.update_time_to_live().table_name(&self.table);
            let request = request.time_to_live_specification(wanted.clone());
            async {
                match request.send().await {
                    Ok(_) => Ok(EnableAnswer::Accepted),
                    Err(error) => match error.as_service_error().and_then(|e| refusal(e.code(), e.message())) {
                        Some(answer) => Ok(answer),
                        None => Err(error),
                    },
                }
            }
        })
        .await
    }
}

/// The refusals that are no faults. DynamoDB has one code for all that it finds wrong with a request: only its words
/// tell these two apart. They are compared, and not passed on.
fn refusal(code: Option<&str>, words: Option<&str>) -> Option<EnableAnswer> {
    let words = words.unwrap_or_default().to_lowercase();
    match code? {
        "ResourceInUseException" => Some(EnableAnswer::TableBusy),
        "ValidationException" if words.contains("already enabled") || words.contains("different attribute") => {
            Some(EnableAnswer::AlreadyOn)
        }
        "ValidationException" if words.contains("within a fixed interval") => Some(EnableAnswer::TooSoon),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::refusal;
    use jobs::store::EnableAnswer::{AlreadyOn, TableBusy, TooSoon};

    #[test]
    fn dynamodbs_own_words_tell_its_refusals_apart() {
        for (code, words, answer) in [
            ("ValidationException", "TimeToLive is already enabled", Some(AlreadyOn)),
            (
                "ValidationException",
                "TimeToLive is active on a different AttributeName: current AttributeName is ttl",
                Some(AlreadyOn),
            ),
            (
                "ValidationException",
                "Time to live has been modified multiple times within a fixed interval",
                Some(TooSoon),
            ),
            (
                "ValidationException",
                "TimeToLive has been modified multiple times within a fixed interval",
                Some(TooSoon),
            ),
            ("ResourceInUseException", "", Some(TableBusy)),
            ("ValidationException", "something else", None),
            ("ResourceNotFoundException", "TimeToLive is already enabled", None),
        ] {
            assert_eq!(refusal(Some(code), Some(words)), answer, "{code}: {words}");
        }
        assert_eq!(refusal(None, Some("TimeToLive is already enabled")), None);
    }
}
