//! Converts items to rows and back, without losing anything that a condition needs.

use std::collections::HashMap;

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;

use shared::row::{Raw, Row, RowKey};

pub(super) const ID: &str = "id";
pub(super) const SORT: &str = "bucket_name";
pub(super) const BUCKET: &str = "bucket";
pub(super) const NAME: &str = "name";
pub(super) const DATA: &str = "data";
pub(super) use shared::bucket::{RETIRED_ATTRIBUTE as RETIRED, TTL_ATTRIBUTE as TTL};

pub(super) type Item = HashMap<String, AttributeValue>;

/// `None` for an item without ActingWeb's keys, which a table with ActingWeb's key schema cannot hold.
pub(super) fn to_row(mut item: Item) -> Option<Row> {
    let bytes = item.iter().map(|(name, value)| name.len() + size(value)).sum();
    let mut take = |name: &str| item.remove(name).map_or(Raw::Absent, to_raw);
    let (Raw::Text(owner), Raw::Text(sort)) = (take(ID), take(SORT)) else { return None };
    let (bucket, data, ttl, retired_from) = (take(BUCKET), take(DATA), take(TTL), take(RETIRED));
    Some(Row { key: RowKey { owner, sort }, bucket, data, ttl, retired_from, bytes })
}

/// The attributes that must be unchanged when the row is written: all that it was judged by.
pub(super) fn guards(row: &Row) -> [(&'static str, &Raw); 4] {
    [(BUCKET, &row.bucket), (DATA, &row.data), (TTL, &row.ttl), (RETIRED, &row.retired_from)]
}

pub(super) fn text(value: impl Into<String>) -> AttributeValue {
    AttributeValue::S(value.into())
}

pub(super) fn to_key(key: &RowKey) -> Item {
    HashMap::from([(ID.to_owned(), text(&key.owner)), (SORT.to_owned(), text(&key.sort))])
}

fn to_raw(value: AttributeValue) -> Raw {
    match value {
        AttributeValue::S(text) => Raw::Text(text),
        AttributeValue::N(digits) => Raw::Number(digits),
        AttributeValue::Bool(truth) => Raw::Bool(truth),
        AttributeValue::B(bytes) => Raw::Bytes(bytes.into_inner()),
        AttributeValue::L(items) => Raw::List(items.into_iter().map(to_raw).collect()),
        AttributeValue::M(fields) => Raw::Map(fields.into_iter().map(|(name, value)| (name, to_raw(value))).collect()),
        AttributeValue::Ss(texts) => Raw::TextSet(texts),
        AttributeValue::Ns(numbers) => Raw::NumberSet(numbers),
        AttributeValue::Bs(blobs) => Raw::BytesSet(blobs.into_iter().map(Blob::into_inner).collect()),
        // Null, or a type that this SDK does not know: as null, the latter never equals the stored value.
        _ => Raw::Null,
    }
}

/// The value to compare with; `None` is an absent attribute.
pub(super) fn to_value(raw: &Raw) -> Option<AttributeValue> {
    let all = |items: &[Raw]| items.iter().filter_map(to_value).collect();
    Some(match raw {
        Raw::Absent => return None,
        Raw::Text(text) => AttributeValue::S(text.clone()),
        Raw::Number(digits) => AttributeValue::N(digits.clone()),
        Raw::Bool(truth) => AttributeValue::Bool(*truth),
        Raw::Null => AttributeValue::Null(true),
        Raw::Bytes(bytes) => AttributeValue::B(Blob::new(bytes.clone())),
        Raw::List(items) => AttributeValue::L(all(items)),
        Raw::Map(fields) => AttributeValue::M(
            fields.iter().filter_map(|(name, value)| Some((name.clone(), to_value(value)?))).collect(),
        ),
        Raw::TextSet(texts) => AttributeValue::Ss(texts.clone()),
        Raw::NumberSet(numbers) => AttributeValue::Ns(numbers.clone()),
        Raw::BytesSet(blobs) => AttributeValue::Bs(blobs.iter().map(|bytes| Blob::new(bytes.clone())).collect()),
    })
}

/// Size as DynamoDB bills it, accurate enough for units of a kilobyte.
fn size(value: &AttributeValue) -> usize {
    match value {
        AttributeValue::S(text) => text.len(),
        AttributeValue::N(digits) => digits.len() / 2 + 1,
        AttributeValue::B(bytes) => bytes.as_ref().len(),
        AttributeValue::L(items) => 3 + items.iter().map(|item| 1 + size(item)).sum::<usize>(),
        AttributeValue::M(fields) => 3 + fields.iter().map(|(name, value)| 1 + name.len() + size(value)).sum::<usize>(),
        AttributeValue::Ss(texts) => texts.iter().map(String::len).sum(),
        AttributeValue::Ns(numbers) => numbers.iter().map(|digits| digits.len() / 2 + 1).sum(),
        AttributeValue::Bs(blobs) => blobs.iter().map(|blob| blob.as_ref().len()).sum(),
        _ => 1,
    }
}

#[cfg(test)]
mod fuzz;
