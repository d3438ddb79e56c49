//! `ttl-cascade` as it is deployed: its binary under the Runtime Interface Emulator, with real records of DynamoDB Local's
//! stream; its event filter; a store that fails for a part of a batch; ten thousand removals of rows of the real library.

use bed::Invocations as _;
use std::collections::{BTreeSet, HashMap};
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{AttributeValue, DeleteRequest, StreamViewType, WriteRequest};
use bed::Testbed;
use bed::aftermath::secrets_in;
use bed::engine::{EngineKind, shared as engine};
use bed::fixture::{Fate, Specimen};
use bed::lambda::{Rie, function};
use bed::process::{keep_bytecode, repository_root, tool};
use bed::proxy::{Fate as RequestFate, Proxy, Request};
use bed::python::Application;
use bed::response_bucket::ResponseBucket;
use bed::stream::{Stream, call, event, left_behind, removal, reported};
use runtime::lambda::Function;
use serde_json::{Value, json};
use shared::bucket::{BUCKETS, OAUTH_OWNER, Owner};
use shared::cascade::{Record, read};
use shared::index::leaves_rows_behind;
use shared::pyjson::dumps;
use shared::time::EpochSeconds;

const LOCAL: EngineKind = EngineKind::DynamoDbLocal;

/// The binary uses the machine's clock, and so do these rows.
fn now() -> i64 {
    EpochSeconds::from(SystemTime::now()).get()
}

fn row(owner: &str, bucket: &str, name: &str, data: &str, ttl: i64, fate: Fate) -> Specimen {
    Specimen {
        owner: owner.to_owned(),
        bucket: bucket.to_owned(),
        name: name.to_owned(),
        data: Some(AttributeValue::S(data.to_owned())),
        ttl: Some(AttributeValue::N(ttl.to_string())),
        fate,
    }
}

/// A binary that uses an endpoint, with the most verbose log level.
fn start(binary: &str, endpoint: &str, table: &str) -> Rie {
    let environment = [
        ("AWS_ENDPOINT_URL_DYNAMODB", endpoint),
        ("ATTRIBUTES_TABLE", table),
        ("AWS_LAMBDA_LOG_LEVEL", "TRACE"),
        // No rate limit: nothing else uses the local engine's capacity.
        ("MAX_READ_UNITS_PER_SECOND", "1000000"),
        ("MAX_WRITE_UNITS_PER_SECOND", "1000000"),
    ];
    let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
    Rie::start(&function(binary), &environment, 120)
}

/// Fails if a secret is in the output of a binary, at its most verbose level, or in its answer.
fn assert_no_leak<'a>(printed: &str, secrets: impl IntoIterator<Item = &'a str>) {
    assert!(printed.contains("\"level\":\"DEBUG\""), "the most verbose level is not on");
    assert_eq!(secrets_in(printed, secrets), 0, "secrets, or parts of them, were printed or answered");
}

/// Creates the custom resource for the table's stream and TTL, and returns the answer.
fn set_up(rie: &Rie, table: &str, properties: Value) -> Value {
    let bucket = ResponseBucket::start(&[]);
    let mut requested = json!({"TableName": table});
    requested.as_object_mut().unwrap().extend(properties.as_object().unwrap().clone());
    let request = json!({"RequestType": "Create", "ResponseURL": bucket.url(), "StackId": "s", "RequestId": "r",
        "LogicalResourceId": "TableTtl", "ResourceProperties": requested});
    let answer = rie.invoke(&request);
    assert!(!answer.is_error, "{}", answer.payload);
    assert_eq!(bucket.answers().len(), 1);
    answer.payload
}

/// Whether the mapping's filter passes each record.
fn filtered(records: &[Value]) -> Vec<bool> {
    let mut child = keep_bytecode(&mut Command::new(tool("venv-sam/bin/python")))
        .arg(repository_root().join("tests/python/stream_filter.py"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(json!(records).to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    serde_json::from_slice(&output.stdout).unwrap()
}

const SECRET: &str = "1//the-providers-refresh-token";
const EMAIL: &str = "visitor@mail.example.org";

/// Tokens past their TTL, their related rows, live tokens, and unrelated rows.
fn mixed_table(now: i64) -> Vec<Specimen> {
    use Fate::{Deleted, Kept};
    let (past, later) = (now - 5, now + 1_000);
    let mut rows = Vec::new();
    for (n, (bucket, index)) in [
        ("mcp_tokens", "access_token_index"),
        ("mcp_refresh_tokens", "refresh_token_index"),
        ("mcp_auth_codes", "auth_code_index"),
    ]
    .into_iter()
    .cycle()
    .take(30)
    .enumerate()
    {
        let (actor, name, key) =
            (format!("actor{}", n % 7), format!("token-secret-{n}"), format!("google_token_access_{n}"));
        let data = dumps(
            &json!({"token": name, "expires_at": now - 4_000, "created_at": now - 8_000, "google_token_key": key}),
        );
        rows.push(row(&actor, bucket, &name, &data, past, Deleted));
        let index = if n % 2 == 0 { index.to_owned() } else { format!("_{index}") };
        rows.push(row(OAUTH_OWNER, &index, &name, &dumps(&json!(actor)), later, Deleted));
        let named = n % 5 == 0;
        let provider = if named { Kept } else { Deleted };
        rows.push(row(&actor, "mcp_google_tokens", &key, &dumps(&json!({"refresh_token": SECRET})), later, provider));
        if named {
            let live = dumps(&json!({"expires_at": now + 9_000, "created_at": now - 8_000, "google_token_key": key}));
            rows.push(row(&actor, "mcp_refresh_tokens", &format!("token-secret-live{n}"), &live, later, Kept));
        }
    }
    let chain = |expires: i64| dumps(&json!({"chain_id": "c", "expires_at": expires, "created_at": now - 9_000}));
    rows.push(row(OAUTH_OWNER, "spa_refresh_tokens", "spa-secret-1", &chain(now - 310), past, Deleted));
    rows.push(row(OAUTH_OWNER, "spa_access_tokens", "spa-secret-2", &chain(now + 900), later, Kept));
    rows.push(row(OAUTH_OWNER, "spa_refresh_tokens", "spa-secret-3", &chain(now + 900), later, Kept));
    // Deleted manually without its index row, which is left to the index repair.
    let data = dumps(&json!({"expires_at": now + 900, "created_at": now - 9_000}));
    rows.push(row("by-hand", "mcp_tokens", "token-secret-by-hand", &data, later, Deleted));
    rows.push(row(OAUTH_OWNER, "_access_token_index", "token-secret-by-hand", "\"by-hand\"", later, Kept));
    rows
}

/// End to end: `enable-ttl` turns on stream and TTL, the engine's TTL removes rows, and the function handles the stream's
/// records.
#[tokio::test(flavor = "multi_thread")]
async fn deletes_the_index_and_provider_rows_of_tokens_that_ttl_removed() {
    let bed = Testbed::new(LOCAL).await;
    let endpoint = engine(LOCAL).endpoint();
    let created = set_up(&start("enable-ttl", endpoint, &bed.table), &bed.table, json!({"Stream": "true"}));
    assert_eq!(
        (&created["Status"], &created["Data"]["TtlStatus"]),
        (&json!("SUCCESS"), &json!("ENABLED")),
        "{created}"
    );
    assert_eq!(created["Data"]["StreamViewType"], "OLD_IMAGE");
    let stream = Stream::of(endpoint, created["Data"]["StreamArn"].as_str().unwrap());

    let rows = mixed_table(now());
    bed.write(&rows).await;
    let key = |name: &str, value: &str| (name.to_owned(), AttributeValue::S(value.to_owned()));
    let manual = HashMap::from([key("id", "by-hand"), key("bucket_name", "mcp_tokens:token-secret-by-hand")]);
    let client = &bed.function.client;
    client.delete_item().table_name(&bed.table).set_key(Some(manual)).send().await.unwrap();
    // The engine checks for rows past their TTL every few seconds.
    let end = Instant::now() + Duration::from_mins(5);
    let expired = |records: &[Value]| records.iter().filter(|record| is_ttl_removal(record)).count();
    let mut records = stream.records();
    while expired(&records) < 31 && Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(300)).await;
        records = stream.records();
    }
    assert_eq!(expired(&records), 31, "expected thirty tokens and an SPA refresh token");

    let records: Vec<Value> = records
        .iter()
        .map(|record| if is_ttl_removal(record) { stream.by_ttl(record) } else { stream.handed_over(record) })
        .collect();
    let passed = filtered(&records);
    assert_eq!(passed.iter().filter(|passed| **passed).count(), 30);
    // Without the filter: the function ignores other records itself.
    let rie = start("ttl-cascade", endpoint, &bed.table);
    for batch in records.chunks(50) {
        let answer = rie.invoke(&event(batch));
        assert!(!answer.is_error, "{}", answer.payload);
        assert_eq!(reported(&answer.payload), [""; 0]);
    }
    bed.check(&rows).await;

    let printed = rie.output();
    for secret in ["token-secret", "spa-secret", SECRET, "google_token_access"] {
        assert!(!printed.contains(secret), "{secret} is in {printed}");
    }
    assert!(printed.contains("\"level\":\"DEBUG\""));
    let finished = printed.lines().filter(|line| line.contains("\"message\":\"cascade finished\"")).count();
    assert_eq!(finished, records.chunks(50).count(), "each batch logs one line");
    assert!(!printed.contains("\"_aws\""), "a metric was emitted");
}

/// DynamoDB Local gives removals by TTL an event name that no SDK knows.
fn is_ttl_removal(record: &Value) -> bool {
    record["eventName"] != "REMOVE" && record["dynamodb"]["OldImage"].is_object() && record["eventName"] != "MODIFY"
}

/// Real records of every kind, and a TTL removal in every bucket.
#[tokio::test(flavor = "multi_thread")]
async fn the_filter_passes_exactly_the_records_that_the_function_acts_on() {
    let bed = Testbed::new(LOCAL).await;
    let client = &bed.function.client;
    let view = StreamViewType::NewAndOldImages;
    let stream = Stream::switch_on(client, engine(LOCAL).endpoint(), &bed.table, view).await;
    let rows = ["mcp_tokens", "mcp_google_tokens", "notes"]
        .map(|bucket| row("ada", bucket, "x", "{}", now() + 900, Fate::Deleted));
    bed.write(&rows).await;
    let changed = rows.clone().map(|row| Specimen { data: Some(AttributeValue::S("{\"a\": 1}".to_owned())), ..row });
    bed.write(&changed).await;
    delete(client, &bed.table, rows.iter().map(|row| (row.owner.clone(), format!("{}:{}", row.bucket, row.name))))
        .await;
    let streamed = stream.records();
    let of = |kind: &str| streamed.iter().filter(|record| record["eventName"] == kind).count();
    assert_eq!((of("INSERT"), of("MODIFY"), of("REMOVE")), (3, 3, 3));

    let mut records: Vec<Value> = streamed.iter().map(|record| stream.handed_over(record)).collect();
    records
        .extend(streamed.iter().filter(|record| record["eventName"] == "REMOVE").map(|record| stream.by_ttl(record)));
    for bucket in &BUCKETS {
        let owner = match bucket.owner {
            Owner::System(owner) => owner,
            Owner::Actor => "ada",
            Owner::Legacy => "_mcp_system",
        };
        records.push(removal(&bed.table, 1, owner, bucket.name, "x", Some("{}")));
    }
    // Almost removals by TTL.
    for (pointer, value) in [
        ("/userIdentity/principalId", json!("dynamodb.amazonaws.com.example")),
        ("/userIdentity/type", json!("AssumedRole")),
        ("/userIdentity", Value::Null),
        ("/eventName", json!("MODIFY")),
        ("/dynamodb/OldImage/bucket/S", json!("mcp_tokens:x")),
    ] {
        let mut record = removal(&bed.table, 1, "ada", "mcp_tokens", "x", Some("{}"));
        *record.pointer_mut(pointer).unwrap() = value;
        records.push(record);
    }
    let acted_on: Vec<bool> =
        records.iter().map(|record| matches!(read(record, &bed.table), Record::RemovedToken(_))).collect();
    assert_eq!(filtered(&records), acted_on);
    let of_buckets = BUCKETS.iter().filter(|bucket| leaves_rows_behind(bucket)).count();
    assert_eq!(acted_on.iter().filter(|acted_on| **acted_on).count(), of_buckets + 1);
}

/// Requests fail by a word in the token's name: the index row is unprocessed, the delete is throttled, or the actor's rows
/// cannot be read.
fn failing(endpoint: &'static str, fails: Arc<AtomicBool>) -> impl FnMut(&Request) -> RequestFate + Send + 'static {
    let forward = move |operation: &str, body: &Value| call(endpoint, "DynamoDB_20120810", operation, body);
    move |request| {
        if !fails.load(Ordering::Relaxed) {
            return RequestFate::Forward;
        }
        let mut body: Value = serde_json::from_str(&request.body).unwrap();
        match request.operation.as_str() {
            "BatchGetItem" => {
                let table = body["RequestItems"].as_object().unwrap().keys().next().unwrap().clone();
                let keys = body["RequestItems"][&table]["Keys"].as_array().unwrap().clone();
                let (bad, good): (Vec<Value>, Vec<Value>) =
                    keys.into_iter().partition(|key| key["bucket_name"]["S"].as_str().unwrap().contains("unseen"));
                let mut answer = json!({"Responses": {}, "UnprocessedKeys": {}});
                if !good.is_empty() {
                    body["RequestItems"][&table]["Keys"] = json!(good);
                    answer = forward("BatchGetItem", &body);
                }
                if !bad.is_empty() {
                    answer["UnprocessedKeys"] = json!({table: {"Keys": bad, "ConsistentRead": true}});
                }
                RequestFate::Answer(200, answer.to_string())
            }
            "BatchExecuteStatement" => {
                let statements = body["Statements"].as_array().unwrap().clone();
                let throttled = json!({"Error": {"Code": "ThrottlingError", "Message": "slow down"}});
                let responses: Vec<Value> = statements
                    .into_iter()
                    .map(|statement| {
                        if statement.to_string().contains("undeletable") {
                            return throttled.clone();
                        }
                        let one = json!({"Statements": [statement]});
                        forward("BatchExecuteStatement", &one)["Responses"][0].clone()
                    })
                    .collect();
                RequestFate::Answer(200, json!({"Responses": responses}).to_string())
            }
            "Query" if request.body.contains("unreadable") => {
                RequestFate::Answer(500, json!({"__type": "InternalServerError", "message": ""}).to_string())
            }
            _ => RequestFate::Forward,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn exactly_the_failed_records_are_reported_and_the_next_delivery_finishes_them() {
    let bed = Testbed::new(LOCAL).await;
    let endpoint = engine(LOCAL).endpoint();
    let fails = Arc::new(AtomicBool::new(true));
    let proxy = Proxy::start(endpoint, failing(endpoint, Arc::clone(&fails)));
    let (mut rows, mut records, mut bad) = (Vec::new(), Vec::new(), BTreeSet::new());
    let mut secrets = vec![SECRET.to_owned(), EMAIL.to_owned()];
    for n in 0..40 {
        let failure = match n % 8 {
            1 => "unseen",
            3 | 7 => "undeletable",
            5 => "unreadable",
            _ => "good",
        };
        let (actor, name, key) = (
            format!("{failure}-actor{n}"),
            format!("aw_{failure}{n}-that-is-a-secret"),
            format!("google_token_access_{n}-that-is-a-secret"),
        );
        let data = dumps(&json!({"google_token_key": key, "email": format!("{n}{EMAIL}")}));
        rows.push(row(OAUTH_OWNER, "_access_token_index", &name, &dumps(&json!(actor)), now() + 900, Fate::Deleted));
        let provider = dumps(&json!({"refresh_token": SECRET, "email": format!("{n}{EMAIL}")}));
        rows.push(row(&actor, "mcp_google_tokens", &key, &provider, now() + 900, Fate::Deleted));
        secrets.extend([name.clone(), key]);
        let record = removal(&bed.table, n, &actor, "mcp_tokens", &name, Some(&data));
        if failure != "good" {
            bad.insert(record["dynamodb"]["SequenceNumber"].as_str().unwrap().to_owned());
        }
        records.push(record);
    }
    bed.write(&rows).await;
    let rie = start("ttl-cascade", proxy.endpoint(), &bed.table);
    let answer = rie.invoke(&event(&records));
    assert!(!answer.is_error, "{}", answer.payload);
    let failed: BTreeSet<String> = reported(&answer.payload).into_iter().collect();
    assert_eq!(failed, bad, "not exactly the failed half of the batch");
    assert_eq!(bad.len(), 20);

    fails.store(false, Ordering::Relaxed);
    records.retain(|record| failed.contains(record["dynamodb"]["SequenceNumber"].as_str().unwrap()));
    let again = rie.invoke(&event(&records));
    assert_eq!(reported(&again.payload), [""; 0]);
    bed.check(&rows).await;
    let printed = format!("{}\n{}\n{}", rie.output(), answer.payload, again.payload);
    assert_no_leak(&printed, secrets.iter().map(String::as_str));
}

/// The invocation fails, so that Lambda counts the error and delivers the batch again. The only log line of the error has the
/// counts: the cascade has no metric.
#[tokio::test(flavor = "multi_thread")]
async fn a_denied_read_fails_the_invocation() {
    let bed = Testbed::new(LOCAL).await;
    for denied in ["DescribeTable", "BatchGetItem"] {
        let proxy = Proxy::start(engine(LOCAL).endpoint(), move |request| {
            let answer = json!({"__type": "AccessDeniedException", "message": ""});
            if request.is_work(denied) { RequestFate::Answer(400, answer.to_string()) } else { RequestFate::Forward }
        });
        let rie = start("ttl-cascade", proxy.endpoint(), &bed.table);
        let removed = |n, bucket| removal(&bed.table, n, "ada", bucket, &format!("aw_{n}"), Some("{}"));
        let answer = rie.invoke(&event(&[removed(1, "mcp_tokens"), removed(2, "mcp_tokens"), removed(3, "notes")]));
        assert!(answer.is_error && answer.payload["errorType"] == "Store", "{}", answer.payload);
        let printed = rie.output();
        let lines: Vec<Value> = printed
            .lines()
            .filter(|line| line.contains("\"level\":\"ERROR\""))
            .map(|line| serde_json::from_str(&line[line.find("{\"timestamp\"").unwrap()..]).unwrap())
            .collect();
        let [line] = lines.as_slice() else { panic!("{denied}: not one line: {printed}") };
        assert_eq!(
            (&line["message"], &line["records"]),
            (&json!("cascade failed"), &json!({"received": 3, "failed": 2}))
        );
        let text = line["error"]["text"].as_str().unwrap_or_default();
        assert!(line["error"]["kind"] == "Store" && text.contains(denied), "{line}");
        assert!(!printed.contains("aw_1") && !answer.payload.to_string().contains("aw_1"), "{printed}");
    }
}

async fn delete(client: &Client, table: &str, keys: impl Iterator<Item = (String, String)>) {
    let keys: Vec<(String, String)> = keys.collect();
    for batch in keys.chunks(25) {
        let deletes = batch
            .iter()
            .map(|(owner, sort)| {
                let delete = DeleteRequest::builder()
                    .key("id", AttributeValue::S(owner.clone()))
                    .key("bucket_name", AttributeValue::S(sort.clone()));
                WriteRequest::builder().delete_request(delete.build().unwrap()).build()
            })
            .collect();
        let answer = client.batch_write_item().request_items(table, deletes).send().await.unwrap();
        assert!(answer.unprocessed_items.unwrap_or_default().is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_removals_of_real_library_rows_leave_no_related_rows() {
    let endpoint = engine(LOCAL).endpoint();
    let prefix = format!("many{:08x}", fastrand::u32(..));
    let table = format!("{prefix}_attributes");
    let started = Instant::now();
    let seeded = Application::new(endpoint, &prefix).run("actingweb_tokens.py", &["--removals", "10000"], "");
    let seeded: Value = serde_json::from_str(&seeded).unwrap();
    let keys = |of: &str| -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        seeded[of].as_array().unwrap().iter().map(|key| (text(&key[0]), text(&key[1]))).collect()
    };
    let (removed, related, kept) = (keys("removed"), keys("goes"), keys("stays"));
    let client = bed::tables::client(endpoint).await;
    assert_eq!(left_behind(&client, &table).await, (0, 0));
    println!("{} rows seeded in {:?}", removed.len() + related.len() + kept.len(), started.elapsed());

    let stream = Stream::switch_on(&client, endpoint, &table, StreamViewType::OldImage).await;
    delete(&client, &table, removed.iter().cloned()).await;
    let mut records: Vec<Value> = stream.records().iter().map(|record| stream.by_ttl(record)).collect();
    assert_eq!(records.len(), 10_000);
    let (dangling, unreferenced) = left_behind(&client, &table).await;
    assert!(dangling == 10_000 && unreferenced > 3_000, "{dangling} dangling, {unreferenced} unreferenced");

    // Late, and shuffled.
    fastrand::Rng::with_seed(9).shuffle(&mut records);
    let rie = start("ttl-cascade", endpoint, &table);
    let started = Instant::now();
    let mut answers = String::new();
    for batch in records.chunks(100) {
        let answer = rie.invoke(&event(batch));
        assert_eq!(reported(&answer.payload), [""; 0]);
        answers.push_str(&answer.payload.to_string());
    }
    let printed = rie.output() + &answers;
    let ended: Vec<Value> = printed
        .lines()
        .filter(|line| line.contains("\"message\":\"cascade finished\""))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(ended.len(), 100);
    let sum = |of: &str| ended.iter().map(|run| run.pointer(of).unwrap().as_u64().unwrap()).sum::<u64>();
    let units = |of: &str| ended.iter().map(|run| run.pointer(of).unwrap().as_f64().unwrap()).sum::<f64>();
    let (requests, deleted) = (sum("/requests"), sum("/rows/deleted"));
    println!(
        "10000 records in batches of 100: {requests} requests, {:.3} a record; {deleted} rows deleted; {:.0} read units, \
         {:.0} write units; {:?}",
        f64::from(u32::try_from(requests).unwrap()) / 10_000.0,
        units("/units/read"),
        units("/units/write"),
        started.elapsed()
    );
    // Most are Queries, one per actor of a batch that still has provider rows.
    assert!(requests < 8_000, "0.8 requests a record: {requests}");
    assert_eq!((deleted, sum("/rows/lost_race"), sum("/records/failed")), (related.len() as u64, 0, 0));
    let secrets: Vec<&str> =
        seeded["secrets"].as_array().unwrap().iter().map(|secret| secret.as_str().unwrap()).collect();
    assert!(secrets.len() > 20_000, "{} secrets", secrets.len());
    assert_no_leak(&printed, secrets.into_iter().chain([EMAIL]));

    assert_eq!(left_behind(&client, &table).await, (0, 0));
    let left: BTreeSet<(String, String)> =
        bed::tables::scan(&client, &table).await.unwrap().into_iter().map(|(owner, sort, _)| (owner, sort)).collect();
    let remaining = related.iter().filter(|key| left.contains(*key)).count();
    let lost = kept.iter().filter(|key| !left.contains(*key)).count();
    assert_eq!((remaining, lost), (0, 0), "rows that should be deleted, rows that should be kept");
    // The repair, which reads the whole table, finds nothing left.
    let function = Function::new(client.clone(), bed::deleting("ATTRIBUTES_TABLE", &table));
    let repair = function.index_repair(json!({"mode": "dry-run"}), EpochSeconds::new(now()), None).await.unwrap();
    let answer = bed::repair_answer(&repair);
    assert_eq!(
        (&answer["body"]["dangling_index_rows"], &answer["body"]["unreferenced_provider_rows"]),
        (&json!(0), &json!(0))
    );
}

/// The custom resource turns on a stream, accepts or refuses an existing one, and never turns one off.
#[tokio::test(flavor = "multi_thread")]
async fn an_existing_stream_is_used_or_refused_and_never_changed() {
    let endpoint = engine(LOCAL).endpoint();
    let described = async |client: &Client, table: &str| {
        let table = client.describe_table().table_name(table).send().await.unwrap().table.unwrap();
        let view = table.stream_specification.and_then(|stream| stream.stream_view_type);
        (view.map(|view| view.as_str().to_owned()), table.latest_stream_arn)
    };
    for (view, accepted) in [
        (StreamViewType::OldImage, true),
        (StreamViewType::NewAndOldImages, true),
        (StreamViewType::NewImage, false),
        (StreamViewType::KeysOnly, false),
    ] {
        let bed = Testbed::new(LOCAL).await;
        let client = &bed.function.client;
        let stream = Stream::switch_on(client, endpoint, &bed.table, view.clone()).await;
        let before = described(client, &bed.table).await;
        let proxy = Proxy::start(endpoint, |_| RequestFate::Forward);
        let rie = start("enable-ttl", proxy.endpoint(), &bed.table);
        let created = set_up(&rie, &bed.table, json!({"Stream": "true", "TimeToLive": "leave"}));
        if accepted {
            assert_eq!(
                (&created["Status"], &created["Data"]["StreamArn"]),
                (&json!("SUCCESS"), &json!(stream.arn)),
                "{created}"
            );
            assert!(created["Reason"].as_str().unwrap().ends_with("was already on"), "{created}");
        } else {
            let reason = created["Reason"].as_str().unwrap();
            assert_eq!(created["Status"], "FAILED");
            assert!(reason.starts_with("refused: the stream of table") && reason.contains(view.as_str()), "{reason}");
        }
        assert_eq!(described(client, &bed.table).await, before);
        let operations: BTreeSet<String> = proxy.seen().into_iter().collect();
        assert_eq!(operations, BTreeSet::from(["DescribeTable".to_owned()]), "an update, or a read of the TTL setting");
    }
    // Turned on once, and left on by a delete.
    let bed = Testbed::new(LOCAL).await;
    let rie = start("enable-ttl", endpoint, &bed.table);
    let created = set_up(&rie, &bed.table, json!({"Stream": "true", "TimeToLive": "leave"}));
    assert!(created["Reason"].as_str().unwrap().ends_with("(OLD_IMAGE) was enabled"), "{created}");
    let again = set_up(&rie, &bed.table, json!({"Stream": "true", "TimeToLive": "leave"}));
    assert_eq!(again["Data"], created["Data"]);
    let bucket = ResponseBucket::start(&[]);
    let delete = json!({"RequestType": "Delete", "ResponseURL": bucket.url(), "PhysicalResourceId": "x",
        "ResourceProperties": {"TableName": bed.table, "Stream": "true"}});
    assert_eq!(rie.invoke(&delete).payload["Status"], "SUCCESS");
    assert_eq!(described(&bed.function.client, &bed.table).await.0.as_deref(), Some("OLD_IMAGE"));
}
