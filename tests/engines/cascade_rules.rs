//! The rows that the cascade deletes and keeps, for every combination of rows related to a removed token: on a real engine,
//! at a fixed time, from records in the stream's format.

use bed::Invocations as _;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use bed::Testbed;
use bed::engine::{EngineKind, shared as engine};
use bed::fixture::{Fate, Specimen};
use bed::on_both_engines;
use bed::proxy::{Fate as RequestFate, Proxy};
use bed::stream::{call, event, removal};
use jobs::cascade::{Batch, CascadeReport};
use jobs::run::report::{Outcome, Tally};
use model::rows::NOW;
use runtime::lambda::Function;
use serde_json::{Value, json};
use shared::bucket::OAUTH_OWNER;
use shared::pyjson::dumps;
use shared::settings::{Purpose, Settings};
use shared::time::EpochSeconds;
use tokio::time::Instant;

const DAY: i64 = 86_400;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Index {
    None,
    Old,
    New,
    Both,
    /// Points at another actor, who has no such token either.
    Elsewhere,
    Malformed,
    /// A row of another bucket with the same key.
    Foreign,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Gone,
    WrittenAgain,
    /// A row of another bucket with the same key: older releases would read it.
    Foreign,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Provider {
    NotNamed,
    Absent,
    Unreferenced,
    TtlPast,
    WithoutTtl,
    /// Just written: the token that names it may follow.
    Young,
    NamedByLive,
    NamedByLiveTtlPast,
    /// A consumed refresh token inside its window.
    NamedByTripwire,
    NamedByDead,
    NamedByUnreadable,
    Foreign,
}

/// A token bucket, the old name of its index, and the prefix of its names.
const KINDS: [(&str, &str, &str); 3] = [
    ("mcp_tokens", "access_token_index", "aw_"),
    ("mcp_refresh_tokens", "refresh_token_index", "rt_"),
    ("mcp_auth_codes", "auth_code_index", "ac_"),
];

fn row(owner: &str, bucket: &str, name: &str, data: &str, ttl: Option<i64>, deleted: bool) -> Specimen {
    Specimen {
        owner: owner.to_owned(),
        bucket: bucket.to_owned(),
        name: name.to_owned(),
        data: Some(AttributeValue::S(data.to_owned())),
        ttl: ttl.map(|at| AttributeValue::N(at.to_string())),
        fate: if deleted { Fate::Deleted } else { Fate::Kept },
    }
}

/// The rows of one combination, and the record of the removed token.
fn combination(
    n: usize,
    table: &str,
    kind: usize,
    index: Index,
    token: Token,
    provider: Provider,
) -> (Vec<Specimen>, Value) {
    let (bucket, index_bucket, prefix) = KINDS[kind];
    // With a colon, so that a row of another bucket can have the same key.
    let (actor, part) = (format!("actor{n}"), format!("{prefix}{n}"));
    let (name, key) = (format!("{part}:t"), format!("google_token_access_{n}"));
    let mut rows = Vec::new();
    let gone = token == Token::Gone;
    let later = Some(NOW + 7_000);
    let new_index = format!("_{index_bucket}");
    let pointer = dumps(&json!(actor));
    let mut put_index =
        |bucket: &str, name: &str, data: &str, deleted| rows.push(row(OAUTH_OWNER, bucket, name, data, later, deleted));
    match index {
        Index::None => {}
        Index::Old => put_index(index_bucket, &name, &pointer, gone),
        Index::New => put_index(&new_index, &name, &pointer, gone),
        Index::Both => {
            put_index(index_bucket, &name, &pointer, gone);
            put_index(&new_index, &name, &pointer, gone);
        }
        Index::Elsewhere => put_index(&new_index, &name, "\"somebody-else\"", false),
        Index::Malformed => put_index(&new_index, &name, "{}", false),
        Index::Foreign => put_index(&format!("{new_index}:{part}"), "t", &pointer, false),
    }
    let live = json!({"created_at": NOW - 10, "expires_at": NOW + DAY, "used": false});
    match token {
        Token::Gone => {}
        Token::WrittenAgain => rows.push(row(&actor, bucket, &name, &dumps(&live), later, false)),
        Token::Foreign => rows.push(row(&actor, &format!("{bucket}:{part}"), "t", "{}", None, false)),
    }
    let refresh = |fields: Value| {
        let mut data = fields;
        data["google_token_key"] = json!(key);
        dumps(&data)
    };
    let dead = json!({"created_at": NOW - 40 * DAY, "expires_at": NOW - 301, "used": false});
    let tripwire = json!({"created_at": NOW - 3 * DAY, "expires_at": NOW + DAY, "used": true, "used_at": NOW - DAY});
    // The library sets the TTL to two hours after the write.
    let (old, young) = (Some(NOW + 1_000), Some(NOW + 7_000));
    let (ttl, deleted, referrer) = match provider {
        Provider::NotNamed | Provider::Absent => (None, false, None),
        Provider::Unreferenced => (old, true, None),
        Provider::TtlPast => (Some(NOW - 60), true, None),
        Provider::WithoutTtl => (None, true, None),
        Provider::Young => (young, false, None),
        Provider::NamedByLive => (old, false, Some(refresh(live))),
        Provider::NamedByLiveTtlPast => (Some(NOW - 60), false, Some(refresh(live))),
        Provider::NamedByTripwire => (old, false, Some(refresh(tripwire))),
        Provider::NamedByDead => (old, true, Some(refresh(dead))),
        Provider::NamedByUnreadable => (old, false, Some(format!("{{\"google_token_key\": \"{key}\", "))),
        Provider::Foreign => (old, false, None),
    };
    match provider {
        Provider::NotNamed | Provider::Absent => {}
        Provider::Foreign => {
            let (bucket, rest) = ("mcp_google_tokens:google", format!("token_access_{n}"));
            rows.push(row(&actor, bucket, &rest, "{}", ttl, false));
        }
        _ => rows.push(row(
            &actor,
            "mcp_google_tokens",
            &key,
            "{\"refresh_token\": \"1//secret\"}",
            ttl,
            deleted && gone,
        )),
    }
    if let Some(data) = referrer {
        rows.push(row(&actor, "mcp_refresh_tokens", &format!("rt_other{n}"), &data, later, false));
    }
    let named = match provider {
        Provider::NotNamed => Value::Null,
        // A key with a colon, which collides with another bucket's.
        Provider::Foreign => json!(format!("google:token_access_{n}")),
        _ => json!(key),
    };
    let data = dumps(&json!({"created_at": NOW - 4 * DAY, "expires_at": NOW - 3 * DAY, "google_token_key": named}));
    (rows, removal(table, n, &actor, bucket, &name, Some(&data)))
}

fn all(table: &str) -> (Vec<Specimen>, Vec<Value>) {
    use {Index as I, Provider as P, Token as T};
    let (mut rows, mut records) = (Vec::new(), Vec::new());
    for kind in 0..KINDS.len() {
        for index in [I::None, I::Old, I::New, I::Both, I::Elsewhere, I::Malformed, I::Foreign] {
            for token in [T::Gone, T::WrittenAgain, T::Foreign] {
                for provider in [
                    P::NotNamed,
                    P::Absent,
                    P::Unreferenced,
                    P::TtlPast,
                    P::WithoutTtl,
                    P::Young,
                    P::NamedByLive,
                    P::NamedByLiveTtlPast,
                    P::NamedByTripwire,
                    P::NamedByDead,
                    P::NamedByUnreadable,
                    P::Foreign,
                ] {
                    let (more, record) = combination(records.len(), table, kind, index, token, provider);
                    rows.extend(more);
                    records.push(record);
                }
            }
        }
    }
    (rows, records)
}

async fn deliver(function: &Function, records: &[Value]) -> CascadeReport {
    function.ttl_cascade(event(records), EpochSeconds::new(NOW), None).await.unwrap()
}

/// Delivers in batches, as the event source mapping does, and expects every record to succeed.
async fn deliver_all(function: &Function, records: &[Value], size: usize) -> Tally {
    let mut counts = Tally::default();
    for batch in records.chunks(size) {
        let report = deliver(function, batch).await;
        assert_eq!((report.run.outcome, report.failed.len()), (Outcome::Complete, 0));
        counts.add(&report.run.counts);
    }
    counts
}

async fn bed_with_all(kind: EngineKind) -> (Testbed, Vec<Specimen>, Vec<Value>) {
    let bed = Testbed::new(kind).await;
    let (rows, records) = all(&bed.table);
    bed.write(&rows).await;
    (bed, rows, records)
}

fn with(function: &Function, settings: &[(&str, &str)]) -> Function {
    let mut environment = function.environment.clone();
    environment.extend(settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    Function::new(function.client.clone(), environment)
}

/// A dry run reports the same and sends no writes; a second, shuffled delivery deletes nothing.
async fn handles_every_combination_of_index_row_token_and_provider_row(kind: EngineKind) {
    let (bed, rows, mut records) = bed_with_all(kind).await;
    let before = bed.keys().await;
    let proxy = Proxy::start(engine(kind).endpoint(), |_| RequestFate::Forward);
    let dry = with(&bed.through(&proxy).await, &[("MODE", "dry-run")]);
    let would = deliver_all(&dry, &records, 100).await;
    assert_eq!(bed.keys().await, before);
    let seen = proxy.seen();
    assert!(seen.iter().all(|operation| ["DescribeTable", "BatchGetItem", "Query"].contains(&operation.as_str())));

    let did = deliver_all(&bed.function, &records, 100).await;
    assert_eq!(did, would, "the dry run reported something else");
    bed.check(&rows).await;
    let deleted = rows.iter().filter(|row| row.fate == Fate::Deleted).count();
    assert_eq!(did.rows_deleted(), deleted as u64);
    println!(
        "{} combinations, {} rows, {deleted} deleted, {} requests in the dry run",
        records.len(),
        rows.len(),
        seen.len()
    );

    fastrand::Rng::with_seed(1).shuffle(&mut records);
    let again = deliver_all(&bed.function, &records, 100).await;
    assert_eq!((again.rows_deleted(), again.lost_races()), (0, 0));
    bed.check(&rows).await;
}

/// Small batches in reverse order, each record twice.
async fn the_order_and_the_size_of_batches_do_not_matter(kind: EngineKind) {
    let (bed, rows, mut records) = bed_with_all(kind).await;
    records.reverse();
    for batch in records.chunks(7) {
        let twice: Vec<Value> = batch.iter().chain(batch.iter().rev()).cloned().collect();
        deliver_all(&bed.function, &twice, 14).await;
    }
    bed.check(&rows).await;
}

/// The system actor's own tokens are handled like any other actor's.
async fn a_token_of_a_client_that_registered_itself_leaves_nothing_behind(kind: EngineKind) {
    let bed = Testbed::new(kind).await;
    let pointer = dumps(&json!(OAUTH_OWNER));
    let rows = [
        row(OAUTH_OWNER, "_access_token_index", "aw_1", &pointer, Some(NOW + 60), true),
        row(OAUTH_OWNER, "_access_token_index", "aw_2", &pointer, Some(NOW + 60), false),
        row(OAUTH_OWNER, "mcp_tokens", "aw_2", &dumps(&json!({"expires_at": NOW + 60})), Some(NOW + 60), false),
        row(OAUTH_OWNER, "mcp_clients", "mcp_1", "{\"client_id\": \"mcp_1\"}", None, false),
    ];
    bed.write(&rows).await;
    deliver_all(&bed.function, &[removal(&bed.table, 1, OAUTH_OWNER, "mcp_tokens", "aw_1", Some("{}"))], 1).await;
    bed.check(&rows).await;
}

/// Two removed tokens of one batch named the provider row, and one of them was written again: the row is kept.
async fn a_token_that_was_written_again_keeps_its_provider_row(kind: EngineKind) {
    let bed = Testbed::new(kind).await;
    let data = dumps(&json!({"google_token_key": "google_token_access_1", "expires_at": NOW - 301}));
    let rows = [
        row("ada", "mcp_google_tokens", "google_token_access_1", "{}", Some(NOW + 1_000), false),
        // Dead, so that no live row names the provider row.
        row("ada", "mcp_refresh_tokens", "rt_1", &data, Some(NOW + 1_000), false),
        row(OAUTH_OWNER, "_access_token_index", "aw_1", "\"ada\"", Some(NOW + 60), true),
    ];
    bed.write(&rows).await;
    let records = [
        removal(&bed.table, 1, "ada", "mcp_tokens", "aw_1", Some(&data)),
        removal(&bed.table, 2, "ada", "mcp_refresh_tokens", "rt_1", Some(&data)),
    ];
    deliver_all(&bed.function, &records, 2).await;
    bed.check(&rows).await;
}

/// A refresh token that expires in a minute names the provider row; this machine's clock is five minutes ahead of the table's.
async fn a_clock_that_is_ahead_deletes_no_provider_row_early(kind: EngineKind) {
    let bed = Testbed::new(kind).await;
    let data = dumps(&json!({"google_token_key": "google_token_access_1", "expires_at": NOW + 60, "used": false}));
    let rows = [
        row("ada", "mcp_google_tokens", "google_token_access_1", "{}", Some(NOW + 1_000), false),
        row("ada", "mcp_refresh_tokens", "rt_1", &data, Some(NOW + 1_000), false),
        row(OAUTH_OWNER, "_access_token_index", "aw_1", "\"ada\"", Some(NOW + 60), true),
    ];
    bed.write(&rows).await;
    let proxy = Proxy::start(engine(kind).endpoint(), |_| RequestFate::DateOffset(-300));
    let records = [removal(&bed.table, 1, "ada", "mcp_tokens", "aw_1", Some(&data))];
    let ahead = EpochSeconds::new(NOW + 300);
    let report = bed.through(&proxy).await.ttl_cascade(event(&records), ahead, None).await.unwrap();
    assert!(report.run.now <= NOW, "judged at {}", report.run.now);
    bed.check(&rows).await;
}

/// Two actors have a token of the same name; the order in which they are judged does not matter.
async fn an_index_row_is_deleted_with_the_token_that_it_points_at(kind: EngineKind) {
    for (first, second) in [("ada", "bea"), ("bea", "ada")] {
        let bed = Testbed::new(kind).await;
        let rows = [row(OAUTH_OWNER, "_access_token_index", "aw_1", "\"ada\"", Some(NOW + 60), true)];
        bed.write(&rows).await;
        let records = [first, second].map(|actor| removal(&bed.table, 1, actor, "mcp_tokens", "aw_1", Some("{}")));
        deliver_all(&bed.function, &records, 2).await;
        bed.check(&rows).await;
    }
}

async fn a_row_that_changes_while_it_is_judged_is_kept_and_counted(kind: EngineKind) {
    let bed = Testbed::new(kind).await;
    bed.write(&[row(OAUTH_OWNER, "_access_token_index", "aw_1", "\"ada\"", Some(NOW + 60), false)]).await;
    let (endpoint, table) = (engine(kind).endpoint().to_owned(), bed.table.clone());
    let proxy = Proxy::start(engine(kind).endpoint(), move |request| {
        if request.operation == "BatchExecuteStatement" {
            let key = json!({"id": {"S": OAUTH_OWNER}, "bucket_name": {"S": "_access_token_index:aw_1"}});
            let change = json!({"TableName": table, "Key": key, "UpdateExpression": "SET ttl_timestamp = :at",
                "ExpressionAttributeValues": {":at": {"N": (NOW + 61).to_string()}}});
            let _ = call(&endpoint, "DynamoDB_20120810", "UpdateItem", &change);
        }
        RequestFate::Forward
    });
    let report =
        deliver(&bed.through(&proxy).await, &[removal(&bed.table, 1, "ada", "mcp_tokens", "aw_1", Some("{}"))]).await;
    assert_eq!((report.run.counts.lost_races(), report.run.counts.rows_deleted(), report.failed.len()), (1, 0, 0));
    assert_eq!(bed.keys().await.len(), 1);
}

async fn max_deletes_stops_a_batch_and_the_rest_is_redelivered(kind: EngineKind) {
    let bed = Testbed::new(kind).await;
    let rows: Vec<Specimen> = (0..5)
        .map(|n| row(OAUTH_OWNER, "_access_token_index", &format!("aw_{n}"), "\"ada\"", Some(NOW + 60), true))
        .collect();
    bed.write(&rows).await;
    let mut records: Vec<Value> =
        (0..5).map(|n| removal(&bed.table, n, "ada", "mcp_tokens", &format!("aw_{n}"), Some("{}"))).collect();
    let function = with(&bed.function, &[("MAX_DELETES", "2")]);
    let mut deliveries = 0;
    while !records.is_empty() {
        let report = deliver(&function, &records).await;
        records.retain(|record| report.failed.iter().any(|failed| record["dynamodb"]["SequenceNumber"] == **failed));
        assert_eq!(report.records.failed, records.len() as u64);
        let outcome = if records.is_empty() { Outcome::Complete } else { Outcome::MaxDeletes };
        assert_eq!(report.run.outcome, outcome);
        deliveries += 1;
    }
    assert_eq!(deliveries, 3);
    bed.check(&rows).await;
}

/// At this write rate the batch does not fit its time: exactly the remaining records are reported as failed, and later
/// deliveries with the same time finish them.
async fn a_delivery_that_hits_its_deadline_reports_exactly_the_rest(kind: EngineKind) {
    bed::clock::pause();
    let bed = Testbed::new(kind).await;
    let name = |n: usize| format!("aw_{n:03}");
    let rows: Vec<Specimen> =
        (0..350).map(|n| row(OAUTH_OWNER, "_access_token_index", &name(n), "\"ada\"", Some(NOW + 60), true)).collect();
    bed.write(&rows).await;
    let mut records: Vec<Value> =
        (0..350).map(|n| removal(&bed.table, n, "ada", "mcp_tokens", &name(n), Some("{}"))).collect();
    let function = with(&bed.function, &[("MAX_WRITE_UNITS_PER_SECOND", "50")]);
    let budget = Duration::from_secs(4);
    let mut incomplete = 0;
    while !records.is_empty() {
        let started = Instant::now();
        let report = function.ttl_cascade(event(&records), EpochSeconds::new(NOW), Some(budget)).await.unwrap();
        assert!(started.elapsed() < budget, "{:?}", started.elapsed());
        let failed: BTreeSet<&str> = report.failed.iter().map(String::as_str).collect();
        let keys = bed.keys().await;
        let remains = |record: &Value| {
            let sort = record["dynamodb"]["Keys"]["bucket_name"]["S"].as_str().unwrap();
            let index = sort.replace("mcp_tokens", "_access_token_index");
            keys.contains(&(OAUTH_OWNER.to_owned(), index))
        };
        let sequence = |record: &'_ Value| record["dynamodb"]["SequenceNumber"].as_str().unwrap().to_owned();
        let rest: BTreeSet<String> = records.iter().filter(|record| remains(record)).map(sequence).collect();
        // Only a delete in flight at the deadline may be both reported and done.
        assert!(rest.iter().all(|record| failed.contains(record.as_str())), "{rest:?} is not in {failed:?}");
        assert!((failed.len() - rest.len()) as u64 <= report.run.counts.uncertain(), "{failed:?} for {rest:?}");
        assert_eq!(report.records.failed, failed.len() as u64);
        if failed.is_empty() {
            assert_eq!(report.run.outcome, Outcome::Complete);
        } else {
            assert_eq!(report.run.outcome, Outcome::OutOfTime);
            assert!(failed.len() < records.len(), "nothing was done before the deadline");
            incomplete += 1;
        }
        records.retain(|record| failed.contains(sequence(record).as_str()));
    }
    assert!(incomplete > 0, "350 rows fit into four seconds at 50 a second: use more rows");
    bed.check(&rows).await;
}

on_both_engines!(
    handles_every_combination_of_index_row_token_and_provider_row,
    the_order_and_the_size_of_batches_do_not_matter,
    a_token_of_a_client_that_registered_itself_leaves_nothing_behind,
    a_token_that_was_written_again_keeps_its_provider_row,
    an_index_row_is_deleted_with_the_token_that_it_points_at,
    a_clock_that_is_ahead_deletes_no_provider_row_early,
    a_row_that_changes_while_it_is_judged_is_kept_and_counted,
    max_deletes_stops_a_batch_and_the_rest_is_redelivered,
    a_delivery_that_hits_its_deadline_reports_exactly_the_rest,
);

/// Records that do not concern the cascade are ignored even if the filter lets them through; malformed records, too.
#[tokio::test]
async fn unrelated_records_are_counted_and_cost_nothing() {
    let bed = Testbed::new(EngineKind::Embedded).await;
    let proxy = Proxy::start(engine(EngineKind::Embedded).endpoint(), |_| RequestFate::Forward);
    let function = bed.through(&proxy).await;
    let removed = |bucket: &str| removal(&bed.table, 1, "ada", bucket, "x", Some("{}"));
    let mut by_user = removed("mcp_tokens");
    by_user["userIdentity"] = Value::Null;
    let mut inserted = removed("mcp_tokens");
    inserted["eventName"] = json!("INSERT");
    let mut without_image = removed("mcp_tokens");
    without_image["dynamodb"]["OldImage"].take();
    let elsewhere = removal("other_attributes", 1, "ada", "mcp_tokens", "x", Some("{}"));
    let records =
        [by_user, inserted, elsewhere, removed("mcp_google_tokens"), removed("notes"), without_image, json!(7)];
    let report = deliver(&function, &records).await;
    let seen = &report.records;
    assert_eq!((seen.received, seen.ignored, seen.of_other_tables, seen.malformed, seen.failed), (7, 5, 1, 2, 0));
    assert_eq!(report.to_answer(), json!({"batchItemFailures": []}));
    assert!(proxy.seen().is_empty(), "{:?}", proxy.seen());
    // An event that is not from a stream is the caller's mistake.
    for event in [json!({}), json!({"mode": "dry-run"}), json!({"Records": {}}), json!(null)] {
        let error = function.ttl_cascade(event, EpochSeconds::new(NOW), None).await.unwrap_err();
        assert_eq!(error.kind(), "Configuration", "{error}");
    }
}

/// The metrics that the functions of one test emitted.
static EMITTED: Mutex<Vec<Value>> = Mutex::new(Vec::new());

/// A batch that fails is still reported with its counts; its records are delivered again.
#[tokio::test]
async fn a_batch_that_fails_as_a_whole_fails_the_invocation_without_a_metric() {
    let bed = Testbed::new(EngineKind::Embedded).await;
    let removed = |n: usize| removal(&bed.table, n, "ada", "mcp_tokens", &format!("aw_{n}"), Some("{}"));
    let ignored = removal(&bed.table, 3, "ada", "notes", "x", Some("{}"));
    // Before the first record is handled, and during the work.
    for operation in ["DescribeTable", "BatchGetItem"] {
        let proxy = Proxy::start(engine(EngineKind::Embedded).endpoint(), move |request| {
            if request.is_work(operation) {
                let denied = json!({"__type": "AccessDeniedException", "message": ""});
                return RequestFate::Answer(400, denied.to_string());
            }
            RequestFate::Forward
        });
        let function = bed.through(&proxy).await;
        let function =
            function.with_metrics_output(|line| EMITTED.lock().unwrap().push(serde_json::from_str(line).unwrap()));
        EMITTED.lock().unwrap().clear();
        let records = [removed(1), ignored.clone(), removed(2)];
        let settings = Settings::parse(&bed.function.environment, &serde_json::Map::new(), Purpose::Cascade).unwrap();
        let batch = Batch::read(&event(&records), &settings.table).unwrap();
        let error = function.ttl_cascade(event(&records), EpochSeconds::new(NOW), None).await.unwrap_err();
        assert_eq!(error.kind(), "Store", "{error}");
        // The cascade has no metric: the log line of the failure has the counts.
        assert!(EMITTED.lock().unwrap().is_empty());
        // The counts of that line.
        let records = batch.failed();
        assert_eq!((records.received, records.failed, records.ignored), (3, 2, 1), "{operation}");
    }
}
