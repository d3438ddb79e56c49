//! Items with their stored types, and the oracle that judges them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{AttributeValue, PutRequest, WriteRequest};
use serde_json::{Map, Value, json};
use shared::bucket::JANITOR_OWNER;

use crate::python::Application;
use model::Key;

pub type Item = HashMap<String, AttributeValue>;

/// `(id, bucket_name)` of an item.
#[must_use]
pub fn key(item: &Item) -> Key {
    let text = |name: &str| item[name].as_s().cloned().unwrap_or_default();
    (text("id"), text("bucket_name"))
}

/// A value as DynamoDB JSON; bytes as hex, which is enough to compare them.
fn value(of: &AttributeValue) -> Value {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat();
    // A set has no order: an engine may return it in any.
    let set = |mut texts: Vec<String>| {
        texts.sort_unstable();
        json!(texts)
    };
    match of {
        AttributeValue::S(text) => json!({ "S": text }),
        AttributeValue::N(digits) => json!({ "N": digits }),
        AttributeValue::B(bytes) => json!({ "B": hex(bytes.as_ref()) }),
        AttributeValue::Bool(truth) => json!({ "BOOL": truth }),
        AttributeValue::L(items) => json!({ "L": items.iter().map(value).collect::<Vec<_>>() }),
        AttributeValue::M(fields) => {
            let sorted: BTreeMap<&String, Value> = fields.iter().map(|(name, of)| (name, value(of))).collect();
            json!({ "M": sorted })
        }
        AttributeValue::Ss(texts) => json!({ "SS": set(texts.clone()) }),
        AttributeValue::Ns(numbers) => json!({ "NS": set(numbers.clone()) }),
        AttributeValue::Bs(blobs) => json!({ "BS": set(blobs.iter().map(|blob| hex(blob.as_ref())).collect()) }),
        _ => json!({ "NULL": true }),
    }
}

/// An item as one line of JSON, its attributes sorted: two items are equal if and only if their lines are.
#[must_use]
pub fn line(item: &Item) -> String {
    let sorted: BTreeMap<&String, Value> = item.iter().map(|(name, of)| (name, value(of))).collect();
    Value::Object(sorted.into_iter().map(|(name, of)| (name.clone(), of)).collect::<Map<_, _>>()).to_string()
}

/// Maximum bytes per batch: DynamoDB accepts 16 MB, in any encoding.
const MAX_BYTES: usize = 4_000_000;

/// Writes items in batches.
///
/// # Panics
/// When the engine refuses.
pub async fn write(client: &Client, table: &str, items: &[Item]) {
    let (mut batch, mut bytes): (Vec<WriteRequest>, usize) = (Vec::new(), 0);
    for (i, item) in items.iter().enumerate() {
        let put = PutRequest::builder().set_item(Some(item.clone())).build().unwrap();
        batch.push(WriteRequest::builder().put_request(put).build());
        bytes += line(item).len();
        if batch.len() < 25 && bytes < MAX_BYTES && i + 1 < items.len() {
            continue;
        }
        bytes = 0;
        while !batch.is_empty() {
            let written = client.batch_write_item().request_items(table, std::mem::take(&mut batch)).send().await;
            let answer = written.unwrap_or_else(|error| {
                panic!("{}", aws_sdk_dynamodb::error::DisplayErrorContext(error));
            });
            batch = answer.unprocessed_items.unwrap_or_default().remove(table).unwrap_or_default();
        }
    }
}

/// Every item of the table except the janitor's own state, which runs may change.
///
/// # Panics
/// When the engine refuses.
pub async fn all(client: &Client, table: &str) -> BTreeMap<Key, Item> {
    let (mut items, mut start) = (BTreeMap::new(), None);
    loop {
        let page = client.scan().table_name(table).consistent_read(true).set_exclusive_start_key(start).send().await;
        let page = page.unwrap();
        for item in page.items.unwrap_or_default() {
            let (owner, sort) = key(&item);
            if !(owner == JANITOR_OWNER && is_state(&sort)) {
                items.insert((owner, sort), item);
            }
        }
        start = page.last_evaluated_key;
        if start.is_none() {
            return items;
        }
    }
}

/// The same, each item as a line.
///
/// # Panics
/// When the engine refuses.
pub async fn scan(client: &Client, table: &str) -> BTreeMap<Key, String> {
    all(client, table).await.into_iter().map(|(key, item)| (key, line(&item))).collect()
}

/// State rows that runs write.
const STATE: [&str; 3] = ["state:lease", "state:daily-cleanup", "state:index-repair"];

fn is_state(sort: &str) -> bool {
    let shard = sort.strip_prefix("state:index-repair-seen-");
    STATE.contains(&sort)
        || shard.is_some_and(|shard| shard.len() == 2 && shard.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The oracle's verdict on a table: the rows that each run must delete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OracleVerdict {
    pub daily: BTreeSet<Key>,
    pub repair: BTreeSet<Key>,
    /// Rows that either run may leave to the other.
    pub may: BTreeSet<Key>,
}

/// Lets the Python oracle judge tables, each given as its items' lines. An empty table has no verdict.
///
/// # Panics
/// When the oracle fails.
#[must_use]
pub fn judge(tables: &[&BTreeMap<Key, String>], now: i64) -> Vec<OracleVerdict> {
    let mut input = String::new();
    for table in tables {
        for line in table.values() {
            input.push_str(line);
            input.push('\n');
        }
        input.push('\n');
    }
    let answer = Application::new("", "").run("oracle.py", &["--now", &now.to_string()], &input);
    answer.lines().map(verdict).collect()
}

fn verdict(line: &str) -> OracleVerdict {
    let answer: Value = serde_json::from_str(line).expect("the oracle's verdicts");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let keys =
        |of: &str| answer[of].as_array().expect("a list").iter().map(|key| (text(&key[0]), text(&key[1]))).collect();
    OracleVerdict { daily: keys("daily"), repair: keys("repair"), may: keys("may") }
}
