//! UpdateItem of `ttl_timestamp` and `retired_from`, on the condition that the row has not changed since it was read.

use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::{ConsumedCapacity, ReturnConsumedCapacity, ReturnValuesOnConditionCheckFailure};

use super::Dynamo;
use super::call::Phase;
use super::convert::{BUCKET, DATA, ID, Item, RETIRED, TTL, guards, to_key, to_row, to_value};
use super::pace::Direction;
use jobs::store::{Result, WriteTtl};
use shared::row::{Raw, Row};

const OPERATION: &str = "UpdateItem";

/// DynamoDB's answer.
enum Answer {
    Written(Option<f64>),
    /// The condition did not hold; the row as it is, if the server returns it.
    Refused(Option<Item>),
}

impl WriteTtl for Dynamo {
    async fn write_ttl(&self, row: &Row, ttl: &Raw) -> Result<bool> {
        let units = f64::from(row.write_units());
        self.wait_to(Direction::Write, units).await?;
        // Without the first condition, updating a deleted row would create one.
        let mut conditions = vec![format!("attribute_exists(#{ID})")];
        for (attribute, raw) in guards(row) {
            conditions.push(match raw {
                Raw::Absent => format!("attribute_not_exists(#{attribute})"),
                _ => format!("#{attribute} = :{attribute}"),
            });
        }
        let condition = conditions.join(" AND ");
        let new = to_value(ttl);
        let update = match new {
            Some(_) => format!("SET #{TTL} = :new REMOVE #{RETIRED}"),
            None => format!("REMOVE #{TTL}, #{RETIRED}"),
        };
        let answer = self
            .call(OPERATION, Phase::Work, || {
                let mut request = self
                    .client
                    .update_item()
                    .table_name(&self.table)
                    .set_key(Some(to_key(&row.key)))
                    .update_expression(&update)
                    .condition_expression(&condition)
                    .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
                    .return_consumed_capacity(ReturnConsumedCapacity::Total);
                for attribute in [ID, BUCKET, DATA, TTL, RETIRED] {
                    request = request.expression_attribute_names(format!("#{attribute}"), attribute);
                }
                for (attribute, raw) in guards(row) {
                    if let Some(value) = to_value(raw) {
                        request = request.expression_attribute_values(format!(":{attribute}"), value);
                    }
                }
                if let Some(new) = &new {
                    request = request.expression_attribute_values(":new", new.clone());
                }
                async {
                    match request.send().await {
                        Ok(done) => {
                            let units = done.consumed_capacity().and_then(ConsumedCapacity::capacity_units);
                            Ok(Answer::Written(units))
                        }
                        Err(error) => match error.as_service_error() {
                            Some(UpdateItemError::ConditionalCheckFailedException(refused)) => {
                                Ok(Answer::Refused(refused.item().cloned()))
                            }
                            _ => Err(error),
                        },
                    }
                }
            })
            .await?;
        let (reported, written) = match answer {
            Answer::Written(reported) => (reported, true),
            // After a lost answer, the retry fails because of our own write.
            Answer::Refused(item) => (None, item.and_then(to_row).is_some_and(|found| is_ours(&found, row, ttl))),
        };
        self.pace.settle(Direction::Write, units, reported.unwrap_or(units));
        self.used_writing(reported, units);
        Ok(written)
    }
}

/// Whether the found row is the one that was read, with the new TTL.
fn is_ours(found: &Row, read: &Row, ttl: &Raw) -> bool {
    found.bucket == read.bucket && found.data == read.data && found.ttl == *ttl && found.retired_from == Raw::Absent
}
