//! Enables TTL (UpdateTimeToLive) and the stream (UpdateTable), and never disables them.

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::types::{StreamSpecification, StreamViewType, TableStatus, TimeToLiveSpecification};

use super::Dynamo;
use super::call::Phase;
use super::convert::TTL;
use jobs::store::{EnableAnswer, Result, StoreError, StreamSetting, SwitchStream, SwitchTtl, TableStream};

const NOT_BUILT: &str = "the request could not be built";

impl SwitchTtl for Dynamo {
    async fn enable_ttl(&self) -> Result<EnableAnswer> {
        let operation = "UpdateTimeToLive";
        let wanted = TimeToLiveSpecification::builder().attribute_name(TTL).enabled(true).build();
        let wanted = wanted.map_err(|_| self.rejected(operation, NOT_BUILT))?;
        self.call(operation, Phase::Work, || {
            let request = self.client.update_time_to_live().table_name(&self.table);
            let request = request.time_to_live_specification(wanted.clone());
            async { answer(request.send().await) }
        })
        .await
    }
}

impl SwitchStream for Dynamo {
    async fn table_stream(&self) -> Result<TableStream> {
        let answer = self
            .call("DescribeTable", Phase::Work, || self.client.describe_table().table_name(&self.table).send())
            .await?;
        let table = answer.table.ok_or_else(|| StoreError::TableMissing { table: self.table.clone() })?;
        // The description keeps the ARN of a disabled stream; the specification says whether it is enabled.
        let on = table.stream_specification.as_ref().filter(|stream| stream.stream_enabled);
        let setting = match (on, &table.latest_stream_arn) {
            (None, _) | (Some(_), None) => StreamSetting::Off,
            (Some(stream), Some(arn)) => {
                let view = stream.stream_view_type.as_ref().map(StreamViewType::as_str).unwrap_or_default();
                StreamSetting::On { arn: arn.clone(), view: view.to_owned() }
            }
        };
        Ok(TableStream { setting, busy: table.table_status != Some(TableStatus::Active) })
    }

    async fn enable_stream(&self) -> Result<EnableAnswer> {
        let operation = "UpdateTable";
        // Old images only: new ones are not needed.
        let wanted = StreamSpecification::builder().stream_enabled(true).stream_view_type(StreamViewType::OldImage);
        let wanted = wanted.build().map_err(|_| self.rejected(operation, NOT_BUILT))?;
        self.call(operation, Phase::Work, || {
            let request = self.client.update_table().table_name(&self.table).stream_specification(wanted.clone());
            async { answer(request.send().await) }
        })
        .await
    }
}

#[expect(clippy::result_large_err, reason = "the SDK's own error, on its way to `call`")]
fn answer<T, E: ProvideErrorMetadata>(sent: Result<T, SdkError<E>>) -> Result<EnableAnswer, SdkError<E>> {
    let Err(error) = sent else { return Ok(EnableAnswer::Accepted) };
    error.as_service_error().and_then(|e| refusal(e.code(), e.message())).ok_or(error)
}

/// Rejections that are not failures. DynamoDB has one code for every invalid request, so its message is compared, but never
/// shown.
fn refusal(code: Option<&str>, words: Option<&str>) -> Option<EnableAnswer> {
    const ON: [&str; 3] = ["already enabled", "different attribute", "already has an enabled stream"];
    let words = words.unwrap_or_default().to_lowercase();
    match code? {
        "ResourceInUseException" => Some(EnableAnswer::TableBusy),
        "ValidationException" if ON.iter().any(|said| words.contains(said)) => Some(EnableAnswer::AlreadyOn),
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
