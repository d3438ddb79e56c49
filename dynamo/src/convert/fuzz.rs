//! Fuzzes the conversion with mutations of a corpus (`items.txt`, one item per line, in DynamoDB's JSON) and with random items.

use std::collections::HashMap;

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use fastrand::Rng;
use model::mutate::{Corpus, Fuzz};
use serde_json::Value;

use super::{BUCKET, DATA, ID, Item, RETIRED, SORT, TTL, to_key, to_raw, to_row, to_value};
use shared::disposal::{Disposal, condemn};
use shared::expiry::{Policy, dead_from};
use shared::row::{Raw, Row};
use shared::time::EpochSeconds;
use shared::{backfill, cascade, integrity};

/// Part of every random name and text. It must not be shown.
const SECRET: &str = "Zk3vT9q0pXy7LrWm2Nb8Hs4Jd6Fg1Ac5Eu0Io9Ty3B";
/// DynamoDB's limit on nesting.
const DEEPEST: u8 = 32;

#[test]
fn any_item_is_a_row_that_loses_nothing_and_shows_nothing() {
    let (fuzz, items) = (Fuzz::start("items", 40_000), include_str!("items.txt"));
    let (mut corpus, mut random) = (Corpus::of(items, fuzz.seed), Rng::with_seed(fuzz.seed));
    let (mut rows, mut known, mut before) = (0, 0, Item::new());
    let mut check = |item: Item| {
        if let Some(row) = hold(&item) {
            rows += 1;
            known += u32::from(row.known_bucket().is_some());
        }
        told_apart(&before, &item);
        before = item;
    };
    items.lines().for_each(|text| check(read(text).expect("the corpus is of items")));
    for round in 0..fuzz.rounds {
        if round % 2 == 0 {
            check(random_item(&mut random));
            continue;
        }
        let text = corpus.next_text();
        if let Some(item) = read(&text) {
            check(item);
            if random.u8(..) == 0 {
                corpus.keep(text);
            }
        }
    }
    assert!(
        rows > fuzz.rounds / 8 && known > fuzz.rounds / 200,
        "{rows}, {known} known: too far from the table's items"
    );
    fuzz.end();
}

/// Converts an item to a row: its keys and every value in a condition must convert back unchanged.
fn hold(item: &Item) -> Option<Row> {
    let Some(row) = to_row(item.clone()) else {
        let is_text = |name| matches!(item.get(name), Some(AttributeValue::S(_)));
        assert!(!(is_text(ID) && is_text(SORT)), "a row is lost: {item:?}");
        return None;
    };
    for (name, value) in to_key(&row.key) {
        assert_eq!(item.get(&name), Some(&value), "{name}");
    }
    for (name, raw) in [(BUCKET, &row.bucket), (DATA, &row.data), (TTL, &row.ttl), (RETIRED, &row.retired_from)] {
        assert_eq!(to_value(raw).as_ref(), item.get(name), "{name}");
        assert_eq!(*raw == Raw::Absent, !item.contains_key(name), "{name}");
        assert!(!shows(&format!("{raw:?}")), "{name}");
    }
    assert!(row.bytes >= row.key.owner.len() + row.key.sort.len() + ID.len() + SORT.len() && row.write_units() > 0);
    for shown in [format!("{row:?}"), format!("{:?}", row.key)] {
        assert!(!shows(&shown) && shown.len() < 300, "{shown}");
    }
    judged(&row);
    Some(row)
}

/// Whether more of the secret is shown than a mask shows.
fn shows(text: &str) -> bool {
    SECRET.as_bytes().windows(7).any(|part| text.as_bytes().windows(7).any(|shown| shown == part))
}

/// No decision panics, whatever the row contains and whatever the time.
fn judged(row: &Row) {
    let policies = [Policy::default(), Policy { retire: Some(7 * 86_400), remove_legacy: true, ..Policy::default() }];
    for now in [i64::MIN, 0, 2_400_000_000, i64::MAX].map(EpochSeconds::new) {
        backfill::plan(row, now);
        row.ttl_fault(now);
        let Some(bucket) = row.known_bucket() else { continue };
        for policy in &policies {
            dead_from(row, bucket, policy);
            integrity::ask(row, bucket, now, policy);
            integrity::needs(row, now, policy).includes("g");
            cascade::index_row(row, bucket, &row.key, &integrity::Lookup::Absent);
            let Ok(condemned) = condemn(row.clone(), bucket, now, policy) else { continue };
            if let Disposal::Delete(condemned) = condemned.dispose(now, policy) {
                assert!(!shows(&format!("{condemned:?}")));
            }
        }
    }
}

/// Two values are equal after the conversion only if they were equal before.
fn told_apart(one: &Item, other: &Item) {
    for name in [BUCKET, DATA, TTL, RETIRED] {
        let raw = |item: &Item| item.get(name).cloned().map_or(Raw::Absent, to_raw);
        assert_eq!(raw(one) == raw(other), one.get(name) == other.get(name), "{name}");
    }
}

/// Parses an item in DynamoDB's JSON; `None` if it is not one.
fn read(text: &str) -> Option<Item> {
    let Value::Object(attributes) = serde_json::from_str(text).ok()? else { return None };
    attributes.iter().map(|(name, value)| Some((name.clone(), read_value(value)?))).collect()
}

fn read_value(value: &Value) -> Option<AttributeValue> {
    let (kind, value) = value.as_object().filter(|value| value.len() == 1)?.iter().next()?;
    let texts = || value.as_array()?.iter().map(|one| Some(one.as_str()?.to_owned())).collect::<Option<Vec<_>>>();
    let blob = |text: String| Blob::new(text.into_bytes());
    Some(match kind.as_str() {
        "S" => AttributeValue::S(value.as_str()?.to_owned()),
        "N" => AttributeValue::N(value.as_str()?.to_owned()),
        "B" => AttributeValue::B(blob(value.as_str()?.to_owned())),
        "BOOL" => AttributeValue::Bool(value.as_bool()?),
        "NULL" => AttributeValue::Null(true),
        "L" => AttributeValue::L(value.as_array()?.iter().map(read_value).collect::<Option<_>>()?),
        "M" => {
            let fields = value.as_object()?.iter().map(|(name, value)| Some((name.clone(), read_value(value)?)));
            AttributeValue::M(fields.collect::<Option<_>>()?)
        }
        "SS" => AttributeValue::Ss(texts()?),
        "NS" => AttributeValue::Ns(texts()?),
        "BS" => AttributeValue::Bs(texts()?.into_iter().map(blob).collect()),
        _ => return None,
    })
}

/// Any of the attributes, each of any type; about half of the items could be in the table.
fn random_item(random: &mut Rng) -> Item {
    let mut item = HashMap::new();
    let bucket = &shared::bucket::BUCKETS[random.usize(..shared::bucket::BUCKETS.len())];
    for name in [ID, SORT, BUCKET, DATA, TTL, RETIRED, "name", "timestamp", "x"] {
        let value = match (name, random.u8(..8)) {
            (_, 0) => continue,
            (_, 1) => random_value(random, DEEPEST),
            (ID, _) => AttributeValue::S(bucket.system_owner().unwrap_or("actor").to_owned()),
            (SORT, _) => AttributeValue::S(bucket.sort_key(&random_text(random))),
            (BUCKET, _) => AttributeValue::S(bucket.name.to_owned()),
            (TTL, _) => AttributeValue::N(random_digits(random)),
            (DATA, _) => {
                let (at, used) = (random_digits(random), random.bool());
                AttributeValue::S(format!("{{\"expires_at\": {at}, \"used\": {used}, \"secret\": \"{SECRET}\"}}"))
            }
            _ => random_value(random, 3),
        };
        item.insert(name.to_owned(), value);
    }
    item
}

fn random_text(random: &mut Rng) -> String {
    // Occasionally longer than a key or an item may be.
    let length = if random.u16(..) == 0 { 410_000 } else { usize::from(random.u16(..)) >> random.u8(4..16) };
    let head: String = (0..random.usize(..4)).map(|_| random.char(..)).collect();
    format!("{head}{}{SECRET}", "y".repeat(length))
}

fn random_digits(random: &mut Rng) -> String {
    match random.u8(..4) {
        0 => (random.i64(..) >> random.u8(..63)).to_string(),
        1 => ["", "-0", "1e40", "1.5", "NaN", "00", "9223372036854775808"][random.usize(..7)].to_owned(),
        _ => (2_400_000_000 + random.i64(-1_000_000_000..1_000_000_000)).to_string(),
    }
}

fn random_value(random: &mut Rng, depth: u8) -> AttributeValue {
    let some = random.usize(..4);
    let bytes = |random: &mut Rng| Blob::new((0..random.usize(..9)).map(|_| random.u8(..)).collect::<Vec<_>>());
    match random.u8(..if depth == 0 { 8 } else { 12 }) {
        0 => AttributeValue::S(random_text(random)),
        1 => AttributeValue::N(random_digits(random)),
        2 => AttributeValue::B(bytes(random)),
        3 => AttributeValue::Bool(random.bool()),
        4 => AttributeValue::Null(true),
        5 => AttributeValue::Ss((0..some).map(|_| random_text(random)).collect()),
        6 => AttributeValue::Ns((0..some).map(|_| random_digits(random)).collect()),
        7 => AttributeValue::Bs((0..some).map(|_| bytes(random)).collect()),
        // Only the first branch is deep.
        8 | 9 => {
            AttributeValue::L((0..some).map(|nth| random_value(random, if nth == 0 { depth - 1 } else { 0 })).collect())
        }
        _ => AttributeValue::M(
            (0..some)
                .map(|nth| (random_text(random), random_value(random, if nth == 0 { depth - 1 } else { 0 })))
                .collect(),
        ),
    }
}
