//! Query and BatchGetItem.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::{ConsumedCapacity, KeysAndAttributes, ReturnConsumedCapacity};

use super::Table;
use super::call::{Attempts, MAX_ATTEMPTS, Phase};
use super::convert::{ID, Item, SORT, text, to_key, to_row};
use super::error::refuses_content;
use super::pace::Direction;
use jobs::store::{Consistency, Page, PageOf, PageSize, ReadRows, Result, StoreError};
use shared::integrity::Lookup;
use shared::row::{Row, RowKey};

impl<A> ReadRows for Table<A> {
    async fn page(&self, of: &PageOf) -> Result<Page<String>> {
        let start = of.after.as_deref().map(|sort| to_key(&RowKey::new(&of.owner, sort)));
        let limit = match of.size {
            PageSize::Whole => self.pace.whole_page_rows(of.reading),
            PageSize::Paced => Some(self.pace.page_rows(of.reading)),
            PageSize::Rows(rows) => Some(rows),
        };
        // The actual cost is settled afterwards; the next request waits for the difference.
        let reserved = self.pace.page_units(limit, of.reading);
        self.wait_to(Direction::Read, reserved).await?;
        let answer = self
            .call("Query", Phase::Work, || {
                let query = self
                    .client
                    .query()
                    .table_name(&self.table)
                    .consistent_read(of.reading == Consistency::Strong)
                    .expression_attribute_names("#id", ID)
                    .expression_attribute_values(":owner", text(&of.owner));
                // DynamoDB rejects an empty prefix.
                let query = match (of.prefix.as_str(), of.until.as_deref()) {
                    ("", _) => query.key_condition_expression("#id = :owner"),
                    (prefix, None) => query
                        .key_condition_expression("#id = :owner AND begins_with(#sort, :prefix)")
                        .expression_attribute_names("#sort", SORT)
                        .expression_attribute_values(":prefix", text(prefix)),
                    // Every key between the prefix and a key that begins with it begins with it, too.
                    (prefix, Some(until)) => query
                        .key_condition_expression("#id = :owner AND #sort BETWEEN :prefix AND :until")
                        .expression_attribute_names("#sort", SORT)
                        .expression_attribute_values(":prefix", text(prefix))
                        .expression_attribute_values(":until", text(until)),
                };
                query
                    .set_exclusive_start_key(start.clone())
                    .set_limit(limit)
                    .return_consumed_capacity(ReturnConsumedCapacity::Total)
                    .send()
            })
            .await?;
        self.used_reading(reserved, answer.consumed_capacity().and_then(ConsumedCapacity::capacity_units));
        let page = self.to_page(answer.items, answer.last_evaluated_key);
        Ok(Page { rows: page.rows, next: page.next.map(|key| key.sort) })
    }

    async fn get_consistent(&self, keys: &[RowKey]) -> Result<Vec<Lookup>> {
        self.look_up(keys, Consistency::Strong).await
    }

    async fn get_eventual(&self, keys: &[RowKey]) -> Result<Vec<Lookup>> {
        self.look_up(keys, Consistency::Eventual).await
    }
}

impl<A> Table<A> {
    /// Converts a page to rows, passes their sizes to the pace, and returns them with the key to continue after.
    pub(super) fn to_page(&self, items: Option<Vec<Item>>, last: Option<Item>) -> Page<RowKey> {
        let rows: Vec<Row> = items.unwrap_or_default().into_iter().filter_map(to_row).collect();
        self.pace.learn(&rows);
        Page { rows, next: last.and_then(to_row).map(|row| row.key) }
    }

    async fn look_up(&self, keys: &[RowKey], reading: Consistency) -> Result<Vec<Lookup>> {
        let mut found: HashMap<&RowKey, Lookup> = HashMap::with_capacity(keys.len());
        // A batch must not contain a key twice, but two rows can point at the same one.
        let mut wanted: Vec<&RowKey> = keys.iter().filter(|key| key.is_storable()).collect();
        wanted.sort_unstable();
        wanted.dedup();
        // A key that DynamoDB cannot store would fail the whole batch, and is certainly absent.
        found.extend(keys.iter().filter(|key| !key.is_storable()).map(|key| (key, Lookup::Absent)));
        let mut batches: Vec<&[&RowKey]> = wanted.chunks(self.pace.lookup_batch()).collect();
        while let Some(batch) = batches.pop() {
            match (self.get_batch(batch, reading).await, batch) {
                (Ok(lookups), _) => found.extend(lookups),
                (Err(error), [_]) if refuses_content(&error) => {}
                // A single key can cause this: it is found by bisection, and remains unread.
                (Err(error), many) if refuses_content(&error) => {
                    let (first, second) = many.split_at(many.len() / 2);
                    batches.extend([first, second]);
                }
                (Err(error), _) => return Err(error),
            }
        }
        Ok(keys.iter().map(|key| found.get(key).cloned().unwrap_or(Lookup::Unread)).collect())
    }

    /// One BatchGetItem. Its unprocessed keys are retried within the same limit as any request.
    async fn get_batch<'k>(&self, keys: &[&'k RowKey], reading: Consistency) -> Result<Vec<(&'k RowKey, Lookup)>> {
        let mut open: Vec<&RowKey> = keys.to_vec();
        let mut rows: Vec<Row> = Vec::with_capacity(keys.len());
        let mut attempts = Attempts::default();
        loop {
            let keys = open.iter().map(|key| to_key(key)).collect();
            let got = self.batch_get_items(&self.table, keys, reading, None, &mut attempts).await;
            let (items, unprocessed) = match got {
                Ok(answer) => answer,
                Err(error) if error.is_transient() => break,
                Err(error) => return Err(error),
            };
            rows.extend(items.into_iter().filter_map(to_row));
            let unprocessed: Vec<RowKey> = unprocessed.into_iter().filter_map(to_row).map(|row| row.key).collect();
            open.retain(|key| unprocessed.contains(key));
            if open.is_empty() || attempts.made >= MAX_ATTEMPTS {
                break;
            }
            // Keys are left unprocessed when the table is out of capacity.
            self.throttled(Direction::Read);
            self.back_off(Phase::Work, attempts.made).await?;
        }
        let mut by_key: HashMap<RowKey, Row> = rows.into_iter().map(|row| (row.key.clone(), row)).collect();
        Ok(keys
            .iter()
            .map(|key| {
                let lookup = match by_key.remove(*key) {
                    Some(row) => Lookup::Found(row),
                    // DynamoDB never answered for this key, which is not absence.
                    None if open.contains(key) => Lookup::Unread,
                    None => Lookup::Absent,
                };
                (*key, lookup)
            })
            .collect())
    }

    /// Reads items, or one attribute of each; returns them and the unprocessed keys.
    pub(super) async fn batch_get_items(
        &self,
        table: &str,
        keys: Vec<Item>,
        reading: Consistency,
        attribute: Option<&str>,
        attempts: &mut Attempts,
    ) -> Result<(Vec<Item>, Vec<Item>)> {
        #[expect(clippy::cast_precision_loss, reason = "at most a hundred keys")]
        let reserved = keys.len() as f64 * reading.price();
        self.wait_to(Direction::Read, reserved).await?;
        let names = attribute.map(|name| HashMap::from([("#only".to_owned(), name.to_owned())]));
        let request = KeysAndAttributes::builder()
            .consistent_read(reading == Consistency::Strong)
            .set_projection_expression(attribute.map(|_| "#only".to_owned()))
            .set_expression_attribute_names(names)
            .set_keys(Some(keys))
            .build()
            .map_err(|_| StoreError::Rejected {
                operation: "BatchGetItem",
                table: table.to_owned(),
                code: "a request without keys".to_owned(),
            })?;
        let answer = self
            .call_again("BatchGetItem", Phase::Work, attempts, || {
                self.client
                    .batch_get_item()
                    .request_items(table, request.clone())
                    .return_consumed_capacity(ReturnConsumedCapacity::Total)
                    .send()
            })
            .await?;
        self.used_reading(reserved, sum(answer.consumed_capacity()));
        let unprocessed = answer.unprocessed_keys.unwrap_or_default().into_values().flat_map(|open| open.keys);
        let items = answer.responses.unwrap_or_default().into_values().flatten();
        Ok((items.collect(), unprocessed.collect()))
    }

    /// Counts the cost of a read, and settles its reservation.
    pub(super) fn used_reading(&self, reserved: f64, reported: Option<f64>) {
        let used = reported.unwrap_or(reserved);
        self.pace.settle(Direction::Read, reserved, used);
        self.count(|usage| usage.read_units += used);
    }
}

pub(super) fn sum(capacities: &[ConsumedCapacity]) -> Option<f64> {
    capacities.iter().map(ConsumedCapacity::capacity_units).sum::<Option<f64>>().filter(|_| !capacities.is_empty())
}
