//! The limit: a loop that only sends the requests that any cleanup of these rows needs, as fast as the engine accepts them.
//!
//! It knows beforehand which rows are dead, and every request is built before the measurement starts. It pages the system actors' rows
//! like the cleanup, looks up each key of the cleanup once, and deletes the same rows with the same conditional statements; it ignores
//! the answers, judges nothing, and no request waits for another. It runs in a separate process:
//! `bench limit ENDPOINT TABLE SEED COPIES LATER CONCURRENCY`.

use std::time::Instant;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::types::{AttributeValue, BatchStatementRequest, KeysAndAttributes};
use serde_json::json;
use shared::bucket::{BUCKETS, Owner};
use tokio::task::JoinSet;

use crate::stock::{Stock, StockRow};

/// Maximum lookups and deletes per request, and rows per page, as in the cleanup.
const LOOKUPS: usize = 100;
const DELETES: usize = 25;
const PAGE: i32 = 1_000;

#[derive(Clone)]
struct Target {
    client: Client,
    table: String,
}

/// # Panics
/// When an argument is missing, or the condition of a delete fails.
pub(crate) async fn run(arguments: &[String]) {
    let [endpoint, table, seed, copies, later, concurrency] = arguments else { panic!("six arguments") };
    let number = |text: &String| text.parse::<i64>().expect("a number");
    let stock = Stock::read(usize::try_from(number(seed)).expect("a size")).expect("the stock exists");
    let (copies, later) = (u64::try_from(number(copies)).expect("a count"), number(later));
    let target = Target { client: without_timeouts(&bed::tables::client(endpoint).await), table: table.clone() };
    let mut queue =
        Queue { max: usize::try_from(number(concurrency)).expect("a count"), in_flight: JoinSet::new(), requests: 0 };
    let lookups = in_batches((0..copies).flat_map(|copy| stock.lookups(copy)), LOOKUPS, lookup_of);
    let dead = (0..copies).flat_map(|copy| stock.copy(copy, later)).filter(|row| row.dead);
    let deletes = in_batches(dead, DELETES, |rows| rows.into_iter().map(|row| statement(table, row)).collect());

    let started = Instant::now();
    for bucket in BUCKETS.iter().filter(|bucket| matches!(bucket.owner, Owner::System(_))) {
        let Owner::System(owner) = bucket.owner else { continue };
        queue.send(page_through(target.clone(), owner, bucket.sort_prefix())).await;
    }
    for keys in lookups {
        queue.send(look_up(target.clone(), keys)).await;
    }
    for statements in deletes {
        queue.send(delete(target.clone(), statements)).await;
    }
    let requests = queue.finish().await;
    println!("{}", json!({"seconds": started.elapsed().as_secs_f64(), "requests": requests}));
}

/// A client without timeouts: a page of a million rows can take an engine longer than the cleanup would wait, and a retry would be
/// an extra request.
fn without_timeouts(client: &Client) -> Client {
    Client::from_conf(client.config().to_builder().timeout_config(TimeoutConfig::disabled()).build())
}

/// The content of all requests: for a million rows about a gigabyte.
fn in_batches<T, R>(things: impl Iterator<Item = T>, size: usize, make: impl Fn(Vec<T>) -> R) -> Vec<R> {
    let mut things = things.peekable();
    let mut batches = Vec::new();
    while things.peek().is_some() {
        batches.push(make(things.by_ref().take(size).collect()));
    }
    batches
}

/// Sends at most `max` requests concurrently.
struct Queue {
    max: usize,
    in_flight: JoinSet<u64>,
    requests: u64,
}

impl Queue {
    async fn send(&mut self, request: impl Future<Output = u64> + Send + 'static) {
        while self.in_flight.len() >= self.max {
            self.wait_for_one().await;
        }
        self.in_flight.spawn(request);
    }

    async fn wait_for_one(&mut self) {
        self.requests += self.in_flight.join_next().await.expect("one is in flight").expect("a request does not fail");
    }

    async fn finish(mut self) -> u64 {
        while !self.in_flight.is_empty() {
            self.wait_for_one().await;
        }
        self.requests
    }
}

fn text(value: impl Into<String>) -> AttributeValue {
    AttributeValue::S(value.into())
}

async fn page_through(target: Target, owner: &'static str, prefix: String) -> u64 {
    let (mut requests, mut start) = (0, None);
    loop {
        let query = target.client.query().table_name(&target.table).limit(PAGE).set_exclusive_start_key(start);
        let query = query
            .key_condition_expression("id = :owner AND begins_with(bucket_name, :prefix)")
            .expression_attribute_values(":owner", text(owner))
            .expression_attribute_values(":prefix", text(&prefix));
        let page = query.send().await.expect("a page can be read");
        requests += 1;
        start = page.last_evaluated_key;
        if start.is_none() {
            return requests;
        }
    }
}

fn lookup_of(keys: Vec<(String, String)>) -> KeysAndAttributes {
    let keys = keys.into_iter().map(|(owner, sort)| [("id", owner), ("bucket_name", sort)]);
    let keys = keys.map(|key| key.into_iter().map(|(name, value)| (name.to_owned(), text(value))).collect());
    KeysAndAttributes::builder().set_keys(Some(keys.collect())).build().expect("keys make a request")
}

async fn look_up(target: Target, keys: KeysAndAttributes) -> u64 {
    let answer = target.client.batch_get_item().request_items(&target.table, keys).send().await;
    assert!(answer.expect("rows can be looked up").unprocessed_keys.is_none_or(|keys| keys.is_empty()));
    1
}

fn statement(table: &str, row: StockRow) -> BatchStatementRequest {
    let (ttl, parameter) = match row.ttl {
        Some(ttl) => ("= ?", Some(AttributeValue::N(ttl.to_string()))),
        None => ("IS MISSING", None),
    };
    let statement = format!(
        r#"DELETE FROM "{table}" WHERE "id" = ? AND "bucket_name" = ? AND "bucket" = ? AND "data" = ? AND "ttl_timestamp" {ttl}"#
    );
    let sort = row.sort();
    let parameters = [row.owner, sort, row.bucket, row.text].map(text).into_iter().chain(parameter).collect();
    BatchStatementRequest::builder().statement(statement).set_parameters(Some(parameters)).build().expect("a statement")
}

async fn delete(target: Target, statements: Vec<BatchStatementRequest>) -> u64 {
    let answer = target.client.batch_execute_statement().set_statements(Some(statements)).send().await;
    let answer = answer.expect("a batch is answered");
    assert!(answer.responses().iter().all(|response| response.error().is_none()), "the condition of a delete failed");
    1
}
