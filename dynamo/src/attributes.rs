//! The attribute store as ActingWeb itself has it, byte-compatible in both directions: what this writes the library reads,
//! swaps and consumes, and the other way round. Fixtures, the demo and our own state rows are written with it.

use aws_sdk_dynamodb::types::{AttributeValue, ConsumedCapacity, ReturnConsumedCapacity};
use serde_json::Value;

use super::Dynamo;
use super::call::Phase;
use super::convert::{BUCKET, DATA, ID, Item, NAME, TTL, text, to_key, to_row};
use jobs::store::{Consistency, PageOf, PageSize, ReadRows, Result, StoreError};
use shared::bucket::TTL_SKEW_SECONDS;
use shared::pyjson::{dumps, is_falsy};
use shared::row::RowKey;
use shared::time::EpochSeconds;

/// A stored attribute: its value, and the exact text that a swap is conditional on.
#[derive(Clone, PartialEq)]
pub struct Attribute {
    pub name: String,
    pub data: Value,
    pub text: String,
}

/// What a write is conditional on.
#[derive(Clone, Copy, Debug)]
pub(super) enum Write<'a> {
    Always,
    IfAbsent,
    /// Absent, or in the way without being a row of this bucket that could be read.
    IfUnreadable,
    IfText(&'a str),
}

pub struct AttributeStore<'a> {
    table: &'a Dynamo,
    phase: Phase,
}

/// The error code with which DynamoDB answers a condition that does not hold.
pub(super) const CONDITION_FAILED: &str = "ConditionalCheckFailedException";

impl<'a> AttributeStore<'a> {
    pub(super) fn new(table: &'a Dynamo, phase: Phase) -> Self {
        Self { table, phase }
    }

    /// One attribute, with a consistent read. A colliding row of another bucket is not it.
    ///
    /// # Errors
    /// When the table could not be read.
    pub async fn get_attr(&self, owner: &str, bucket: &str, name: &str) -> Result<Option<Attribute>> {
        let text = self.get_text(owner, bucket, name).await?;
        Ok(text.and_then(|text| parsed(name.to_owned(), &text)))
    }

    /// The text of one attribute, whatever it says.
    pub(super) async fn get_text(&self, owner: &str, bucket: &str, name: &str) -> Result<Option<String>> {
        let key = RowKey::new(owner, format!("{bucket}:{name}"));
        let dynamo = self.table;
        let answer = dynamo
            .call("GetItem", self.phase, || {
                dynamo
                    .client
                    .get_item()
                    .table_name(&dynamo.table)
                    .consistent_read(true)
                    .set_key(Some(to_key(&key)))
                    .return_consumed_capacity(ReturnConsumedCapacity::Total)
                    .send()
            })
            .await?;
        let used = answer.consumed_capacity().and_then(ConsumedCapacity::capacity_units).unwrap_or(1.0);
        dynamo.count(|usage| usage.read_units += used);
        let row = answer.item.and_then(to_row).filter(|row| row.bucket.text() == Some(bucket));
        Ok(row.and_then(|row| row.data.text().map(str::to_owned)))
    }

    /// All attributes of a bucket, in the order of their names.
    ///
    /// # Errors
    /// When the table could not be read.
    pub async fn get_bucket(&self, owner: &str, bucket: &str) -> Result<Vec<Attribute>> {
        let prefix = format!("{bucket}:");
        let mut attributes = Vec::new();
        let mut after: Option<String> = None;
        loop {
            let of = PageOf {
                owner,
                prefix: &prefix,
                after: after.as_deref(),
                until: None,
                reading: Consistency::Strong,
                size: PageSize::Paced,
            };
            let page = self.table.page(of).await?;
            for row in page.rows {
                let name = row.key.sort.strip_prefix(&prefix).unwrap_or_default().to_owned();
                if row.bucket.text() == Some(bucket) {
                    attributes.extend(row.data.text().and_then(|text| parsed(name, text)));
                }
            }
            after = page.next;
            if after.is_none() {
                return Ok(attributes);
            }
        }
    }

    /// Sets an attribute, with a TTL of `ttl_seconds` from `now` plus the skew hour. Falsy data deletes, as in ActingWeb.
    ///
    /// # Errors
    /// When the table could not be written.
    pub async fn set_attr(
        &self,
        owner: &str,
        bucket: &str,
        name: &str,
        data: &Value,
        ttl: Option<(EpochSeconds, i64)>,
    ) -> Result<()> {
        if is_falsy(data) {
            return self.delete_attr(owner, bucket, name).await;
        }
        self.write(owner, bucket, name, Some(data), ttl.map(deadline), Write::Always).await.map(|_| ())
    }

    /// Deletes an attribute if the row under its key is of that bucket.
    ///
    /// # Errors
    /// When the table could not be written.
    pub async fn delete_attr(&self, owner: &str, bucket: &str, name: &str) -> Result<()> {
        self.write(owner, bucket, name, None, None, Write::Always).await.map(|_| ())
    }

    /// Deletes every attribute of a bucket, and of no bucket that shares its prefix.
    ///
    /// # Errors
    /// When the table could not be read or written.
    pub async fn delete_bucket(&self, owner: &str, bucket: &str) -> Result<()> {
        for attribute in self.get_bucket(owner, bucket).await? {
            self.delete_attr(owner, bucket, &attribute.name).await?;
        }
        Ok(())
    }

    /// Sets `new` if the stored value equals `old`, whatever the order of its keys; the swap itself is conditional on the
    /// stored text, so that of two swaps exactly one wins.
    ///
    /// # Errors
    /// When the table could not be read or written.
    pub async fn compare_and_swap(
        &self,
        owner: &str,
        bucket: &str,
        name: &str,
        old: &Value,
        new: &Value,
        ttl: Option<(EpochSeconds, i64)>,
    ) -> Result<bool> {
        let Some(current) = self.get_attr(owner, bucket, name).await? else { return Ok(false) };
        if current.data != *old {
            return Ok(false);
        }
        self.update(owner, bucket, name, &current.text, new, ttl.map(deadline)).await
    }

    /// Updates in place, as the library does: `timestamp`, and without `ttl` the TTL, stay as they are.
    async fn update(
        &self,
        owner: &str,
        bucket: &str,
        name: &str,
        expected: &str,
        new: &Value,
        ttl: Option<EpochSeconds>,
    ) -> Result<bool> {
        let key = RowKey::new(owner, format!("{bucket}:{name}"));
        let dynamo = self.table;
        let set = if ttl.is_some() { "SET #data = :new, #ttl = :ttl" } else { "SET #data = :new" };
        let swapped = dynamo
            .call("UpdateItem", self.phase, || {
                let update = dynamo
                    .client
                    .update_item()
                    .table_name(&dynamo.table)
                    .set_key(Some(to_key(&key)))
                    .update_expression(set)
                    .condition_expression("#data = :expected AND #bucket = :bucket")
                    .expression_attribute_names("#data", DATA)
                    .expression_attribute_names("#bucket", BUCKET)
                    .expression_attribute_values(":new", text(dumps(new)))
                    .expression_attribute_values(":expected", text(expected))
                    .expression_attribute_values(":bucket", text(bucket));
                match ttl {
                    None => update,
                    Some(at) => update
                        .expression_attribute_names("#ttl", TTL)
                        .expression_attribute_values(":ttl", AttributeValue::N(at.to_string())),
                }
                .return_consumed_capacity(ReturnConsumedCapacity::Total)
                .send()
            })
            .await;
        self.written(swapped.map(|answer| answer.consumed_capacity.and_then(|capacity| capacity.capacity_units)))
    }

    /// Puts or (with no data) deletes a whole row, if `condition` holds. Whether it did is the answer.
    pub(super) async fn write(
        &self,
        owner: &str,
        bucket: &str,
        name: &str,
        data: Option<&Value>,
        ttl: Option<EpochSeconds>,
        condition: Write<'_>,
    ) -> Result<bool> {
        let key = RowKey::new(owner, format!("{bucket}:{name}"));
        let dynamo = self.table;
        let Some(data) = data else {
            let expected = match condition {
                Write::IfText(expected) => Some(expected),
                Write::Always | Write::IfAbsent | Write::IfUnreadable => None,
            };
            let deleted = dynamo
                .call("DeleteItem", self.phase, || {
                    let delete = dynamo
                        .client
                        .delete_item()
                        .table_name(&dynamo.table)
                        .set_key(Some(to_key(&key)))
                        .return_consumed_capacity(ReturnConsumedCapacity::Total)
                        .expression_attribute_names("#bucket", BUCKET)
                        .expression_attribute_values(":bucket", text(bucket));
                    match expected {
                        None => delete.condition_expression("#bucket = :bucket"),
                        Some(expected) => delete
                            .condition_expression("#bucket = :bucket AND #data = :expected")
                            .expression_attribute_names("#data", DATA)
                            .expression_attribute_values(":expected", text(expected)),
                    }
                    .send()
                })
                .await;
            return self.written(deleted.map(|answer| answer.consumed_capacity.and_then(|c| c.capacity_units)));
        };
        let item = to_item(&key, bucket, name, data, ttl);
        let put = dynamo
            .call("PutItem", self.phase, || {
                let put = dynamo
                    .client
                    .put_item()
                    .table_name(&dynamo.table)
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

    /// A condition that did not hold is an answer, not an error.
    fn written(&self, result: Result<Option<f64>>) -> Result<bool> {
        let (used, held) = match result {
            Ok(used) => (used, true),
            Err(StoreError::Rejected { code, .. }) if code == CONDITION_FAILED => (None, false),
            Err(error) => return Err(error),
        };
        self.table.count(|usage| {
            usage.write_units += used.unwrap_or(1.0);
            usage.write_units_estimated |= used.is_none();
        });
        Ok(held)
    }
}

fn deadline((now, seconds): (EpochSeconds, i64)) -> EpochSeconds {
    now.plus(seconds + TTL_SKEW_SECONDS)
}

fn to_item(key: &RowKey, bucket: &str, name: &str, data: &Value, ttl: Option<EpochSeconds>) -> Item {
    let mut item = to_key(key);
    item.insert(BUCKET.to_owned(), text(bucket));
    item.insert(NAME.to_owned(), text(name));
    item.insert(DATA.to_owned(), text(dumps(data)));
    if let Some(at) = ttl {
        item.insert(TTL.to_owned(), AttributeValue::N(at.to_string()));
    }
    item
}

fn parsed(name: String, text: &str) -> Option<Attribute> {
    Some(Attribute { name, data: serde_json::from_str(text).ok()?, text: text.to_owned() })
}
