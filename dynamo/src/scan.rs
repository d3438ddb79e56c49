//! Scan, and operations of the index repair only: reading actors, and writing a client's index row.

use std::collections::HashSet;

use aws_sdk_dynamodb::types::{ConsumedCapacity, ReturnConsumedCapacity};
use serde_json::json;

use super::attributes::Write;
use super::call::{Attempts, Phase};
use super::convert::{ID, Item, text, to_key};
use super::pace::Direction;
use super::{Dynamo, Table};
use jobs::store::{ActorLookup, Consistency, Page, ReadActors, RestoreClient, Result, ScanTable, StoreError};
use shared::bucket::OAUTH_OWNER;
use shared::row::RowKey;

/// The names of a deployment's tables differ only in their suffix.
const ATTRIBUTES_SUFFIX: &str = "_attributes";
const ACTORS_SUFFIX: &str = "_actors";

/// The bucket in which ActingWeb 3.10 and later looks up clients.
const CLIENT_INDEX: &str = "_client_index";

impl<A> ScanTable for Table<A> {
    async fn scan(
        &self,
        segment: i32,
        segments: i32,
        after: Option<&RowKey>,
        reading: Consistency,
    ) -> Result<Page<RowKey>> {
        let limit = self.pace.page_rows(reading);
        let reserved = self.pace.page_units(Some(limit), reading);
        self.wait_to(Direction::Read, reserved).await?;
        let start = after.map(to_key);
        let answer = self
            .call("Scan", Phase::Work, || {
                self.client
                    .scan()
                    .table_name(&self.table)
                    .consistent_read(reading == Consistency::Strong)
                    .segment(segment)
                    .total_segments(segments)
                    .set_exclusive_start_key(start.clone())
                    .limit(limit)
                    .return_consumed_capacity(ReturnConsumedCapacity::Total)
                    .send()
            })
            .await?;
        self.used_reading(reserved, answer.consumed_capacity().and_then(ConsumedCapacity::capacity_units));
        Ok(self.to_page(answer.items, answer.last_evaluated_key))
    }
}

impl RestoreClient for Dynamo {
    async fn restore_client(&self, client: &str, actor: &str) -> Result<bool> {
        self.wait_to(Direction::Write, 1.0).await?;
        self.put_row(Phase::Work, [OAUTH_OWNER, CLIENT_INDEX, client], &json!(actor), Write::IfAbsent).await
    }
}

impl ReadActors for Dynamo {
    async fn holds_actors(&self) -> Result<bool> {
        let table = self.actors_table()?;
        let answer = self
            .call("Scan", Phase::Work, || self.client.scan().table_name(&table).limit(1).send())
            .await
            .map_err(|error| about(error, &table))?;
        Ok(answer.items.is_some_and(|items| !items.is_empty()))
    }

    async fn get_actors(&self, ids: &[String]) -> Result<Vec<ActorLookup>> {
        let table = self.actors_table()?;
        let mut wanted: Vec<&String> = ids.iter().collect();
        wanted.sort_unstable();
        wanted.dedup();
        let (mut there, mut unknown) = (HashSet::new(), HashSet::new());
        for chunk in wanted.chunks(self.pace.lookup_batch()) {
            let keys: Vec<Item> = chunk.iter().map(|id| Item::from([(ID.to_owned(), text(*id))])).collect();
            let (items, unprocessed) = self
                .batch_get_items(&table, keys, Consistency::Strong, Some(ID), &mut Attempts::default())
                .await
                .map_err(|error| about(error, &table))?;
            let id = |mut item: Item| item.remove(ID).and_then(|id| id.as_s().ok().cloned());
            there.extend(items.into_iter().filter_map(id));
            unknown.extend(unprocessed.into_iter().filter_map(id));
        }
        Ok(ids
            .iter()
            .map(|id| match (there.contains(id), unknown.contains(id)) {
                (true, _) => ActorLookup::There,
                (false, true) => ActorLookup::Unread,
                (false, false) => ActorLookup::Absent,
            })
            .collect())
    }
}

const NO_ACTORS_TABLE: &str =
    "the name of the actors table cannot be derived: this table's name does not end in _attributes";

impl Dynamo {
    fn actors_table(&self) -> Result<String> {
        let prefix =
            self.table.strip_suffix(ATTRIBUTES_SUFFIX).ok_or_else(|| self.rejected("BatchGetItem", NO_ACTORS_TABLE))?;
        Ok(format!("{prefix}{ACTORS_SUFFIX}"))
    }
}

/// The same error, with the actors table's name.
fn about(error: StoreError, actors: &str) -> StoreError {
    let actors = actors.to_owned();
    match error {
        StoreError::TableMissing { .. } => StoreError::TableMissing { table: actors },
        StoreError::AccessDenied { operation, code, .. } => StoreError::AccessDenied { operation, table: actors, code },
        StoreError::Unavailable { operation, code, attempts, .. } => {
            StoreError::Unavailable { operation, table: actors, code, attempts }
        }
        error => error,
    }
}
