//! The table's stream: DescribeTable, and UpdateTable to switch it on.

use aws_sdk_dynamodb::error::ProvideErrorMetadata;
use aws_sdk_dynamodb::types::{StreamSpecification, StreamViewType, TableStatus};

use super::Dynamo;
use super::call::Phase;
use jobs::store::{EnableAnswer, Result, StoreError, StreamSetting, SwitchStream, TableStream};

const OPERATION: &str = "UpdateTable";

impl SwitchStream for Dynamo {
    async fn table_stream(&self) -> Result<TableStream> {
        let answer = self
            .call("DescribeTable", Phase::Work, || self.client.describe_table().table_name(&self.table).send())
            .await?;
        let table = answer.table.ok_or_else(|| StoreError::TableMissing { table: self.table.clone() })?;
        // The ARN of a stream that was switched off stays in the description; the specification says whether it is on.
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
        // Old images, and no more: what is new in a row is nobody's business here.
        let wanted = StreamSpecification::builder().stream_enabled(true).stream_view_type(StreamViewType::OldImage);
        let wanted = wanted.build().map_err(|_| {
            let code = "a request that could not be built".to_owned();
            StoreError::Rejected { operation: OPERATION, table: self.table.clone(), code }
        })?;
        self.call(OPERATION, Phase::Work, || {
            let request = self.client.update_table().table_name(&self.table).stream_specification(wanted.clone());
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

/// The refusals that are no faults; as with TTL only DynamoDB's words tell one of them.
fn refusal(code: Option<&str>, words: Option<&str>) -> Option<EnableAnswer> {
    let words = words.unwrap_or_default().to_lowercase();
    match code? {
        "ResourceInUseException" => Some(EnableAnswer::TableBusy),
        "ValidationException" if words.contains("already has an enabled stream") => Some(EnableAnswer::AlreadyOn),
        _ => None,
    }
}
