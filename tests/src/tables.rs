//! Tables on an engine, and random rows as they are written there.

use std::collections::HashMap;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{AttributeValue, BillingMode, ProvisionedThroughput};
use janitor::fixture::{Fate, Specimen};

use crate::model::{ModelRow, ModelTtl};
pub use crate::random::random_table;

/// The rows as the fixture writer takes them.
#[must_use]
pub fn specimens(rows: &[ModelRow]) -> Vec<Specimen> {
    // A key is written once: the last row that claims it is the one that is there.
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
            fate: Fate::Stays,
        })
        .collect()
}

/// An empty attributes table with a name of its own on the engine at `endpoint`, and a client for it.
///
/// # Panics
/// When the engine refuses.
pub async fn new_table(endpoint: &str) -> (Client, String) {
    let client = janitor::demo::client(endpoint).await;
    let prefix = format!("t{:016x}", fastrand::u64(..));
    janitor::demo::create_table(&client, &format!("{prefix}_attributes")).await.unwrap();
    (client, prefix)
}

/// Makes a table provisioned, with the units that ActingWeb before 3.13 gave it.
///
/// # Panics
/// When the engine refuses.
pub async fn provision(client: &Client, table: &str) {
    let units = ProvisionedThroughput::builder().read_capacity_units(26).write_capacity_units(2).build().unwrap();
    let update = client.update_table().table_name(table).provisioned_throughput(units);
    update.billing_mode(BillingMode::Provisioned).send().await.unwrap();
}
