//! Creates, fills and reads tables on an engine.

use std::collections::{BTreeMap, HashMap};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::operation::describe_table::DescribeTableError;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, PutRequest, ScalarAttributeType,
    WriteRequest,
};
use shared::bucket;

use crate::fixture::{Fate, Specimen};

#[cfg(feature = "testing")]
pub use random::{new_table, provision, random_table, specimens};

/// A client that needs no configuration: the engine accepts any credentials.
#[allow(clippy::unused_async, reason = "its callers await it, as they would await a connection")]
pub async fn client(endpoint: &str) -> Client {
    let client = dynamo::connect_locally(endpoint, None);
    #[cfg(feature = "testing")]
    let client = crate::clock::holding(&client);
    client
}

/// The same client for requests of the testbed itself: on a busy machine it waits, and tries again.
fn patient(client: &Client) -> Client {
    let config = client.config().to_builder().timeout_config(TimeoutConfig::disabled());
    Client::from_conf(config.retry_config(RetryConfig::standard().with_max_attempts(5)).build())
}

/// Creates an attributes table as ActingWeb does: on demand, without indexes.
///
/// # Errors
/// When the engine refuses.
pub async fn create_table(client: &Client, name: &str) -> Result<(), String> {
    let key = |name: &str, kind| KeySchemaElement::builder().attribute_name(name).key_type(kind).build();
    let text =
        |name: &str| AttributeDefinition::builder().attribute_name(name).attribute_type(ScalarAttributeType::S).build();
    let built = |error: aws_sdk_dynamodb::error::BuildError| error.to_string();
    patient(client)
        .create_table()
        .table_name(name)
        .billing_mode(BillingMode::PayPerRequest)
        .key_schema(key("id", KeyType::Hash).map_err(built)?)
        .key_schema(key("bucket_name", KeyType::Range).map_err(built)?)
        .attribute_definitions(text("id").map_err(built)?)
        .attribute_definitions(text("bucket_name").map_err(built)?)
        .send()
        .await
        .map_err(|error| format!("create table: {}", aws_sdk_dynamodb::error::DisplayErrorContext(error)))?;
    Ok(())
}

pub async fn exists(client: &Client, table: &str) -> Result<bool, String> {
    match client.describe_table().table_name(table).send().await {
        Ok(_) => Ok(true),
        Err(error) if error.as_service_error().is_some_and(DescribeTableError::is_resource_not_found_exception) => {
            Ok(false)
        }
        Err(error) => Err(format!("describe: {}", aws_sdk_dynamodb::error::DisplayErrorContext(error))),
    }
}

/// Writes rows as they are, malformed ones included.
///
/// # Errors
/// When the engine refuses a batch.
pub async fn write_rows(client: &Client, table: &str, rows: &[Specimen]) -> Result<(), String> {
    let client = patient(client);
    for batch in rows.chunks(25) {
        let puts: Result<Vec<_>, _> = batch
            .iter()
            .map(|row| {
                PutRequest::builder()
                    .set_item(Some(item(row)))
                    .build()
                    .map(|put| WriteRequest::builder().put_request(put).build())
            })
            .collect();
        let mut unprocessed = HashMap::from([(table.to_owned(), puts.map_err(|error| error.to_string())?)]);
        while !unprocessed.is_empty() {
            let answer = client
                .batch_write_item()
                .set_request_items(Some(unprocessed))
                .send()
                .await
                .map_err(|error| format!("write: {}", aws_sdk_dynamodb::error::DisplayErrorContext(error)))?;
            unprocessed = answer.unprocessed_items.unwrap_or_default();
        }
    }
    Ok(())
}

fn item(row: &Specimen) -> HashMap<String, AttributeValue> {
    let text = |value: &str| AttributeValue::S(value.to_owned());
    let mut item = HashMap::from([
        ("id".to_owned(), text(&row.owner)),
        ("bucket_name".to_owned(), text(&format!("{}:{}", row.bucket, row.name))),
        ("bucket".to_owned(), text(&row.bucket)),
        ("name".to_owned(), text(&row.name)),
    ]);
    item.extend(row.data.clone().map(|data| ("data".to_owned(), data)));
    item.extend(row.ttl.clone().map(|ttl| ("ttl_timestamp".to_owned(), ttl)));
    item
}

/// A row that a scan found: `(id, bucket_name, bucket)`.
pub type Seen = (String, String, String);

/// All rows of the table except the janitor's own.
///
/// # Errors
/// When the engine refuses.
pub async fn scan(client: &Client, table: &str) -> Result<Vec<Seen>, String> {
    let client = patient(client);
    let mut rows = Vec::new();
    let mut start = None;
    loop {
        let page = client
            .scan()
            .table_name(table)
            .consistent_read(true)
            .set_exclusive_start_key(start)
            .send()
            .await
            .map_err(|error| format!("scan: {}", aws_sdk_dynamodb::error::DisplayErrorContext(error)))?;
        let text = |item: &HashMap<String, AttributeValue>, name: &str| {
            item.get(name).and_then(|value| value.as_s().ok()).cloned().unwrap_or_default()
        };
        rows.extend(
            page.items().iter().map(|item| (text(item, "id"), text(item, "bucket_name"), text(item, "bucket"))),
        );
        start = page.last_evaluated_key;
        if start.is_none() {
            rows.retain(|(owner, _, _)| owner != bucket::JANITOR_OWNER);
            return Ok(rows);
        }
    }
}

/// Describes rows that are left but should be deleted, and rows that are deleted but should be left.
pub fn misjudged(rows: &[Specimen], left: &[Seen]) -> Vec<String> {
    let left: std::collections::HashSet<(&str, &str)> =
        left.iter().map(|(owner, sort, _)| (owner.as_str(), sort.as_str())).collect();
    let mut wrong: BTreeMap<String, usize> = BTreeMap::new();
    for row in rows {
        let exists = left.contains(&(row.owner.as_str(), format!("{}:{}", row.bucket, row.name).as_str()));
        match (row.fate, exists) {
            (Fate::Kept, true) | (Fate::Deleted, false) => {}
            (Fate::Kept, false) => *wrong.entry(format!("a live row of {} is gone", row.bucket)).or_default() += 1,
            (Fate::Deleted, true) => *wrong.entry(format!("a dead row of {} is left", row.bucket)).or_default() += 1,
        }
    }
    wrong.into_iter().map(|(what, times)| format!("{what} ({times} times)")).collect()
}

#[cfg(feature = "testing")]
mod random {
    use std::collections::HashMap;

    use aws_sdk_dynamodb::Client;
    use aws_sdk_dynamodb::types::{AttributeValue, BillingMode, ProvisionedThroughput};
    pub use model::random::random_table;
    use model::{ModelRow, ModelTtl};

    use super::{client, create_table, patient};
    use crate::fixture::{Fate, Specimen};

    /// The rows in the form that `write_rows` takes.
    #[must_use]
    pub fn specimens(rows: &[ModelRow]) -> Vec<Specimen> {
        // Each key once: the last row with it wins.
        let by_key: HashMap<_, &ModelRow> = rows.iter().map(|row| (row.key(), row)).collect();
        by_key
            .into_values()
            .map(|row| Specimen {
                owner: row.owner.clone(),
                bucket: row.bucket.clone(),
                name: row.name.clone(),
                data: row.data.clone().map(AttributeValue::S),
                ttl: match &row.ttl {
                    ModelTtl::Absent => None,
                    ModelTtl::Number(at) => Some(AttributeValue::N(at.to_string())),
                    ModelTtl::Text(text) => Some(AttributeValue::S(text.clone())),
                },
                fate: Fate::Kept,
            })
            .collect()
    }

    /// Creates an empty attributes table with a unique name; returns a client and the prefix.
    ///
    /// # Panics
    /// When the engine refuses.
    pub async fn new_table(endpoint: &str) -> (Client, String) {
        let client = client(endpoint).await;
        let prefix = format!("t{:016x}", fastrand::u64(..));
        create_table(&client, &format!("{prefix}_attributes")).await.unwrap();
        (client, prefix)
    }

    /// Makes a table provisioned, with the units that ActingWeb used before 3.13.
    ///
    /// # Panics
    /// When the engine refuses.
    pub async fn provision(client: &Client, table: &str) {
        let units = ProvisionedThroughput::builder().read_capacity_units(26).write_capacity_units(2).build().unwrap();
        let update = patient(client).update_table().table_name(table).provisioned_throughput(units);
        update.billing_mode(BillingMode::Provisioned).send().await.unwrap();
    }
}
