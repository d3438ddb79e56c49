//! Rows that the janitor writes itself: its state, and a restored client's index row. Formatted as ActingWeb formats them.

use aws_sdk_dynamodb::types::ReturnConsumedCapacity;
use serde_json::Value;

use super::Dynamo;
use super::call::Phase;
use super::convert::{BUCKET, DATA, ID, NAME, text, to_key};
use jobs::store::{Result, StoreError};
use shared::pyjson::dumps;
use shared::row::RowKey;

/// The condition of a write.
#[derive(Clone, Copy, Debug)]
pub(super) enum Write<'a> {
    Always,
    IfAbsent,
    /// The row is absent, of another bucket, or without text in `data`.
    IfUnreadable,
    IfText(&'a str),
}

/// DynamoDB's error code for a condition that does not hold.
pub(super) const CONDITION_FAILED: &str = "ConditionalCheckFailedException";

impl Dynamo {
    /// Puts a row if `condition` holds, and returns whether it did.
    pub(super) async fn put_row(
        &self,
        phase: Phase,
        [owner, bucket, name]: [&str; 3],
        data: &Value,
        condition: Write<'_>,
    ) -> Result<bool> {
        let mut item = to_key(&RowKey::new(owner, format!("{bucket}:{name}")));
        item.extend(
            [(BUCKET, text(bucket)), (NAME, text(name)), (DATA, text(dumps(data)))].map(|(k, v)| (k.to_owned(), v)),
        );
        let put = self
            .call("PutItem", phase, || {
                let put = self
                    .client
                    .put_item()
                    .table_name(&self.table)
                    .set_item(Some(item.clone()))
                    .return_consumed_capacity(ReturnConsumedCapacity::Total);
                match condition {
                    Write::Always => put,
                    Write::IfAbsent => {
                        put.condition_expression("attribute_not_exists(#id)").expression_attribute_names("#id", ID)
                    }
                    Write::IfUnreadable => put
                        .condition_expression(
                            "attribute_not_exists(#data) OR NOT attribute_type(#data, :text) OR #bucket <> :bucket",
                        )
                        .expression_attribute_names("#data", DATA)
                        .expression_attribute_names("#bucket", BUCKET)
                        .expression_attribute_values(":text", text("S"))
                        .expression_attribute_values(":bucket", text(bucket)),
                    Write::IfText(expected) => put
                        .condition_expression("#data = :expected")
                        .expression_attribute_names("#data", DATA)
                        .expression_attribute_values(":expected", text(expected)),
                }
                .send()
            })
            .await;
        self.written(put.map(|answer| answer.consumed_capacity.and_then(|capacity| capacity.capacity_units)))
    }

    /// Counts a write, and returns whether its condition held: if not, that is not an error.
    pub(super) fn written(&self, result: Result<Option<f64>>) -> Result<bool> {
        let (used, held) = match result {
            Ok(used) => (used, true),
            Err(StoreError::Rejected { code, .. }) if code == CONDITION_FAILED => (None, false),
            Err(error) => return Err(error),
        };
        self.used_writing(used, 1.0);
        Ok(held)
    }

    /// Counts the cost of a write, estimated if the server does not report it.
    pub(super) fn used_writing(&self, reported: Option<f64>, estimated: f64) {
        self.count(|usage| {
            usage.write_units += reported.unwrap_or(estimated);
            usage.write_units_estimated |= reported.is_none();
        });
    }
}
