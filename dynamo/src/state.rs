//! The janitor's state rows. Their requests may use all of the time that is left, also during the shutdown.

use aws_sdk_dynamodb::types::{ConsumedCapacity, ReturnConsumedCapacity};
use serde_json::Value;

use super::Dynamo;
use super::attributes::Write;
use super::call::Phase;
use super::convert::{BUCKET, DATA, text, to_key, to_row};
use jobs::store::{Consistency, OwnState, PageOf, PageSize, ReadRows, Result, Stored, collect, state_key};
use shared::bucket::{JANITOR_OWNER, STATE_BUCKET};
use shared::row::Row;

impl OwnState for Dynamo {
    async fn read_state(&self, name: &str) -> Result<Option<Stored>> {
        let key = to_key(&state_key(name));
        let answer = self
            .call("GetItem", Phase::Close, || {
                self.client
                    .get_item()
                    .table_name(&self.table)
                    .consistent_read(true)
                    .set_key(Some(key.clone()))
                    .return_consumed_capacity(ReturnConsumedCapacity::Total)
                    .send()
            })
            .await?;
        let used = answer.consumed_capacity().and_then(ConsumedCapacity::capacity_units).unwrap_or(1.0);
        self.count(|usage| usage.read_units += used);
        // A row of another bucket under this key does not count. An unparsable row does: it can be replaced, by its text.
        let row = answer.item.and_then(to_row).filter(is_state);
        let text = row.and_then(|row| row.data.text().map(str::to_owned));
        Ok(text.map(|text| Stored { value: serde_json::from_str(&text).unwrap_or_default(), text }))
    }

    async fn read_states(&self, prefix: &str) -> Result<Vec<Value>> {
        let prefix = format!("{STATE_BUCKET}:{prefix}");
        let of = PageOf { size: PageSize::Whole, ..PageOf::all(JANITOR_OWNER, prefix, Consistency::Strong) };
        collect(self, of, |row| serde_json::from_str(row.data.text().filter(|_| is_state(&row))?).ok()).await
    }

    async fn swap_state(&self, name: &str, expected: Option<&str>, value: Option<&Value>) -> Result<bool> {
        let row = [JANITOR_OWNER, STATE_BUCKET, name];
        match (expected, value) {
            (Some(expected), Some(value)) => self.put_row(Phase::Close, row, value, Write::IfText(expected)).await,
            // A row that `read_state` treats as absent must be replaceable, or a damaged lease would block every run forever.
            (None, Some(value)) => self.put_row(Phase::Close, row, value, Write::IfUnreadable).await,
            (Some(expected), None) => self.delete_state(name, expected).await,
            (None, None) => Ok(true),
        }
    }

    async fn holds_state(&self) -> Result<bool> {
        let prefix = format!("{STATE_BUCKET}:");
        let of = PageOf { size: PageSize::Rows(1), ..PageOf::all(JANITOR_OWNER, prefix, Consistency::Strong) };
        Ok(!self.page(&of).await?.rows.is_empty())
    }

    async fn write_state(&self, name: &str, value: &Value) -> Result<()> {
        let row = [JANITOR_OWNER, STATE_BUCKET, name];
        self.put_row(Phase::Close, row, value, Write::Always).await.map(|_| ())
    }
}

impl Dynamo {
    /// Deletes a state row if it has this text, and returns whether it did.
    async fn delete_state(&self, name: &str, expected: &str) -> Result<bool> {
        let key = to_key(&state_key(name));
        let deleted = self
            .call("DeleteItem", Phase::Close, || {
                self.client
                    .delete_item()
                    .table_name(&self.table)
                    .set_key(Some(key.clone()))
                    .condition_expression("#bucket = :bucket AND #data = :expected")
                    .expression_attribute_names("#bucket", BUCKET)
                    .expression_attribute_names("#data", DATA)
                    .expression_attribute_values(":bucket", text(STATE_BUCKET))
                    .expression_attribute_values(":expected", text(expected))
                    .return_consumed_capacity(ReturnConsumedCapacity::Total)
                    .send()
            })
            .await;
        self.written(deleted.map(|answer| answer.consumed_capacity.and_then(|capacity| capacity.capacity_units)))
    }
}

fn is_state(row: &Row) -> bool {
    row.bucket.text() == Some(STATE_BUCKET)
}
