//! The functions run as Lambda functions in two ways: their binaries under AWS's Runtime Interface Emulator, and their source
//! under `cargo lambda watch`.

use bed::Invocations as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use bed::engine::{EngineKind, shared as engine};
use bed::fixture::{self, Fate, Specimen, settled};
use bed::lambda::{Rie, Watch, function};
use bed::process::processes_of;
use bed::process::repository_root;
use bed::proxy::{self, Proxy};
use bed::python::Application;
use bed::stream::removal;
use bed::tables::{misjudged, scan, write_rows};
use bed::tables::{new_table, provision};
use serde_json::{Value, json};
use shared::time::EpochSeconds;

fn now() -> i64 {
    EpochSeconds::from(std::time::SystemTime::now()).get()
}

fn environment(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn daily_cleanup() -> PathBuf {
    function("daily-cleanup")
}

fn event(name: &str) -> Value {
    let path = repository_root().join("events").join(name);
    serde_json::from_str(&std::fs::read_to_string(path).expect("an event file")).expect("JSON")
}

fn dead(rows: &[Specimen]) -> usize {
    rows.iter().filter(|row| row.fate == Fate::Deleted).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_binary_cleans_a_table_under_the_runtime_interface_emulator() {
    for kind in [EngineKind::DynamoDbLocal, EngineKind::Embedded] {
        let endpoint = engine(kind).endpoint();
        let (client, prefix) = new_table(endpoint).await;
        let table = format!("{prefix}_attributes");
        let rows = settled(now(), 4, 8);
        write_rows(&client, &table, &rows).await.unwrap();
        let rie =
            Rie::start(&daily_cleanup(), &environment(&[("AWS_DB_PREFIX", &prefix), ("AWS_DB_HOST", endpoint)]), 60);

        let dry = rie.invoke(&event("dry-run.json"));
        assert!(!dry.is_error, "{}", dry.payload);
        assert_eq!(scan(&client, &table).await.unwrap().len(), rows.len());
        let answer = rie.invoke(&event("scheduled.json"));
        assert!(!answer.is_error, "{}", answer.payload);
        let (payload, body) = (&answer.payload, &answer.payload["body"]);
        assert_eq!(payload["statusCode"], 200);
        assert_eq!(*body, dry.payload["body"], "the dry run reported something else");
        assert_eq!(payload["report"]["buckets"], dry.payload["report"]["buckets"]);
        assert_eq!(payload["report"]["complete"], true);
        assert_eq!(payload["report"]["rows"]["deleted"], dead(&rows));
        // The documented keys, each above zero for this table.
        for key in ["oauth_sessions", "spa_tokens"] {
            assert!(body[key].as_u64().unwrap() > 0, "{key}: {body}");
        }
        for key in ["access_tokens", "refresh_tokens", "auth_codes", "index_entries", "provider_tokens"] {
            assert!(body["mcp_tokens"][key].as_u64().unwrap() > 0, "{key}: {body}");
        }
        assert_eq!(body["mcp_tokens"]["skipped"], 0);
        for key in ["read_units", "write_units"] {
            assert!(payload["report"]["capacity"][key].as_f64().unwrap() > 0.0);
        }
        assert_eq!(misjudged(&rows, &scan(&client, &table).await.unwrap()), Vec::<String>::new());

        for name in ["scheduler.json", "empty.json", "capped.json"] {
            let again = rie.invoke(&event(name));
            assert!(!again.is_error, "{name}: {}", again.payload);
            assert_eq!(again.payload["report"]["rows"]["deleted"], 0);
        }
        let wrong = rie.invoke(&json!({"max_delete_share": 1.5}));
        assert!(wrong.is_error);
        assert_eq!(wrong.payload["errorType"], "Configuration");
        assert_eq!(
            wrong.payload["errorMessage"],
            "configuration: MAX_DELETE_SHARE=1.5: must be greater than 0 and at most 1"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_binary_stops_before_its_timeout_and_the_next_invocation_continues() {
    let endpoint = engine(EngineKind::Embedded).endpoint();
    let (client, prefix) = new_table(endpoint).await;
    let rows = settled(now(), 30, 9);
    write_rows(&client, &format!("{prefix}_attributes"), &rows).await.unwrap();
    // The table is slow during the first invocation, so that it cannot finish on any machine.
    let is_slow = Arc::new(AtomicBool::new(true));
    let slow = Arc::clone(&is_slow);
    let proxy = Proxy::start(endpoint, move |request| {
        let is_delayed = request.operation == "BatchExecuteStatement" && slow.load(Ordering::SeqCst);
        if is_delayed { proxy::Fate::Slow(Duration::from_secs(2)) } else { proxy::Fate::Forward }
    });
    let settings = environment(&[("AWS_DB_PREFIX", &prefix), ("AWS_DB_HOST", proxy.endpoint())]);
    // Long enough that the time reserved for the answer suffices on a busy machine.
    let rie = Rie::start(&daily_cleanup(), &settings, 20);
    let deletes = || proxy.seen().iter().filter(|operation| *operation == "DeleteItem").count();
    let (mut incomplete, mut released) = (0, 0);
    loop {
        let before = deletes();
        let answer = rie.invoke(&json!({}));
        is_slow.store(false, Ordering::SeqCst);
        assert!(incomplete < 20, "not finished after 20 invocations");
        if answer.is_error {
            // On a busy machine the deadline can pass before the run starts: the invocation fails, and is retried.
            assert_eq!(answer.payload["errorMessage"], "the run reached its deadline");
            incomplete += 1;
            continue;
        }
        if answer.payload["report"]["complete"] == true {
            break;
        }
        if answer.payload["report"]["outcome"] == "lease-held" {
            // Only a run without time to release its lease lets it expire. Here it expires at once.
            assert_eq!(released, 0, "the lease was released, and is held");
            let lease = [("id", "_actingweb_janitor"), ("bucket_name", "state:lease")];
            let lease = lease.map(|(name, value)| (name.to_owned(), AttributeValue::S(value.to_owned())));
            let delete = client.delete_item().table_name(format!("{prefix}_attributes"));
            delete.set_key(Some(lease.into())).send().await.unwrap();
            released = 1;
        } else {
            assert_eq!(answer.payload["report"]["outcome"], "out-of-time");
            released = deletes() - before;
            incomplete += 1;
        }
    }
    assert!(incomplete > 0, "{} rows fit into twenty seconds: use more rows", rows.len());
    assert_eq!(misjudged(&rows, &scan(&client, &format!("{prefix}_attributes")).await.unwrap()), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_binary_fails_the_invocation_when_the_run_fails() {
    let endpoint = engine(EngineKind::Embedded).endpoint();
    let dead = format!("http://127.0.0.1:{}", bed::process::free_port());
    for (pairs, kind, text) in [
        (
            vec![("AWS_DB_PREFIX", "nosuch"), ("AWS_DB_HOST", endpoint)],
            "Store",
            "table nosuch_attributes does not exist",
        ),
        (vec![("AWS_DB_HOST", endpoint)], "Configuration", "configuration: no table: set AWS_DB_PREFIX"),
        (vec![("AWS_DB_PREFIX", "x"), ("AWS_DB_HOST", dead.as_str())], "Store", "could not reach DynamoDB at"),
        (
            vec![("AWS_DB_PREFIX", "x"), ("AWS_DB_HOST", endpoint), ("MAX_DELETED", "1")],
            "Configuration",
            "configuration: MAX_DELETED is not a setting: use MAX_DELETES",
        ),
        (
            vec![("AWS_DB_PREFIX", "x"), ("AWS_DB_HOST", endpoint), ("MODE", "")],
            "Configuration",
            "configuration: set MODE=delete or MODE=dry-run",
        ),
        (
            vec![("AWS_DB_PREFIX", "x"), ("AWS_DB_HOST", endpoint), ("DRY_RUN", "true")],
            "Configuration",
            "configuration: DRY_RUN is not a setting: use MODE=dry-run",
        ),
        (
            vec![("AWS_DB_PREFIX", "x"), ("AWS_DB_HOST", endpoint), ("mode", "dry-run")],
            "Configuration",
            "configuration: mode is not a setting: use MODE",
        ),
        (
            vec![("AWS_DB_PREFIX", "x"), ("AWS_DB_HOST", endpoint), ("MAXDELETES", "1")],
            "Configuration",
            "configuration: MAXDELETES is not a setting: use MAX_DELETES",
        ),
    ] {
        let rie = Rie::start(&daily_cleanup(), &environment(&pairs), 60);
        let answer = rie.invoke(&json!({}));
        assert!(answer.is_error, "{}", answer.payload);
        assert_eq!(answer.payload["errorType"], kind);
        let message = answer.payload["errorMessage"].as_str().unwrap_or_default();
        assert!(message.starts_with(text) && message.lines().count() == 1, "{message}");
    }
}

/// The error and the log repeat the wrong field of an event, but not what may be a token.
#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_event_is_named_in_its_error() {
    let endpoint = engine(EngineKind::Embedded).endpoint();
    let settings = environment(&[("AWS_DB_PREFIX", "x"), ("AWS_DB_HOST", endpoint)]);
    let rie = Rie::start(&daily_cleanup(), &settings, 60);
    let refused = |event: Value| {
        let answer = rie.invoke(&event);
        assert!(answer.is_error && answer.payload["errorType"] == "Configuration", "{}", answer.payload);
        answer.payload["errorMessage"].as_str().unwrap_or_default().to_owned()
    };
    for (event, text) in [
        (json!({"key1": "value1", "key2": "value2"}), "key1 is not a setting"),
        (json!({"Records": [{"eventSource": "aws:s3"}]}), "Records is not a setting"),
        (json!({"requestContext": {"stage": "prod"}, "httpMethod": "GET"}), "requestContext is not a setting"),
        (json!({"maxDeletes": 5}), "maxDeletes is not a setting: use max_deletes"),
        (json!({"mode": "dryRun"}), "MODE=dryRun: must be delete or dry-run"),
    ] {
        let message = refused(event);
        assert!(message.starts_with(&format!("configuration: {text}")), "{message}");
    }
    let token = "aw_Zk3vT9q0pXy7LrWm2Nb8Hs4Jd6Fg1";
    for event in [json!({token: 1}), json!({"mode": token})] {
        let message = refused(event);
        assert!(!message.contains(token) && message.contains('#'), "{message}");
    }
    let printed = rie.output();
    assert!(printed.contains("requestContext is not a setting") && !printed.contains(token), "{printed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_log_level_stops_a_function_before_it_serves() {
    let settings = environment(&[("AWS_DB_PREFIX", "x"), ("RUST_LOG", "loud")]);
    let rie = Rie::start(&daily_cleanup(), &settings, 10);
    assert!(rie.invoke(&json!({})).is_error);
    let output = rie.output();
    assert!(output.contains("RUST_LOG=loud: must be error, warn, info, debug or trace"), "{output}");
}

/// Misspelled settings, an invalid log level, and no mode, for each function that deletes.
#[tokio::test(flavor = "multi_thread")]
async fn no_function_deletes_with_an_unknown_setting() {
    let endpoint = engine(EngineKind::Embedded).endpoint();
    let (client, prefix) = new_table(endpoint).await;
    let table = format!("{prefix}_attributes");
    let rows = settled(now(), 1, 21);
    write_rows(&client, &table, &rows).await.unwrap();
    for binary in ["daily-cleanup", "index-repair", "ttl-cascade"] {
        for wrong in [("mode", "dry-run"), ("DRY_RUN", "true"), ("MAXDELETES", "1"), ("MODE", ""), ("RUST_LOG", "loud")]
        {
            let given = environment(&[("AWS_DB_PREFIX", &prefix), ("AWS_DB_HOST", endpoint), wrong]);
            let event = if binary == "ttl-cascade" { json!({"Records": []}) } else { json!({}) };
            let answer = Rie::start(&function(binary), &given, 20).invoke(&event);
            assert!(answer.is_error, "{binary} {wrong:?}: {}", answer.payload);
        }
    }
    assert_eq!(scan(&client, &table).await.unwrap().len(), rows.len());
}

/// Deletes some tokens, as TTL would, and returns records for them and for some that remain.
async fn remove_as_ttl(client: &aws_sdk_dynamodb::Client, table: &str) -> Value {
    let mut records = Vec::new();
    let page = client.scan().table_name(table).send().await.unwrap();
    for item in page.items() {
        let text = |name: &str| item.get(name).and_then(|value| value.as_s().ok()).map_or("", String::as_str);
        let bucket = text("bucket");
        if !["mcp_tokens", "mcp_refresh_tokens", "mcp_auth_codes"].contains(&bucket) {
            continue;
        }
        if records.len() % 4 > 0 {
            let delete = client.delete_item().table_name(table).key("id", item["id"].clone());
            delete.key("bucket_name", item["bucket_name"].clone()).send().await.unwrap();
        }
        records.push(removal(table, records.len(), text("id"), bucket, text("name"), Some(text("data"))));
    }
    assert!(records.len() > 20, "{} tokens", records.len());
    bed::stream::event(&records)
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_is_in_the_output_or_the_answer_of_a_run() {
    let endpoint = engine(EngineKind::DynamoDbLocal).endpoint();
    let prefix = format!("leak{:08x}", fastrand::u32(..));
    let manifest = Application::new(endpoint, &prefix).seed(1_200, 5).await;
    let secrets = manifest.secrets();
    assert!(secrets.len() > 1_000);
    let verbose = |endpoint: &str| {
        environment(&[
            ("AWS_DB_PREFIX", &prefix),
            ("AWS_ENDPOINT_URL_DYNAMODB", endpoint),
            ("RUST_LOG", "trace"),
            ("AWS_LAMBDA_LOG_LEVEL", "TRACE"),
        ])
    };
    let client = bed::tables::client(endpoint).await;
    // By this clock all rows are fifteen minutes older: past the shortest grace period and the slack, young ones included.
    let later = Proxy::start(endpoint, |_| proxy::Fate::DateOffset(900));
    let mut printed = String::new();
    for (name, event) in [
        ("ttl-cascade", remove_as_ttl(&client, &format!("{prefix}_attributes")).await),
        (
            "ttl-cascade",
            json!({"Records": [{"eventName": secrets[3], "dynamodb": {"Keys": {"id": {"S": secrets[4]}}}}]}),
        ),
        ("ttl-cascade", json!({&secrets[5]: secrets[6]})),
        ("daily-cleanup", json!({"mode": "dry-run"})),
        ("index-repair", json!({"mode": "dry-run", "grace_seconds": 300})),
        ("index-repair", json!({"max_deletes": 20, "grace_seconds": 300})),
        ("daily-cleanup", json!({"max_deletes": 100})),
        ("daily-cleanup", json!({})),
        ("daily-cleanup", json!({"mode": "delete", "attributes_table": "nosuch"})),
        // Misplaced secrets.
        ("daily-cleanup", json!({"mode": secrets[0]})),
        ("daily-cleanup", json!({&secrets[1]: 1})),
        ("index-repair", json!({})),
        ("metrics-emitter", json!({})),
        ("metrics-emitter", json!({"scope": "all"})),
        ("metrics-emitter", json!({"scope": secrets[2]})),
    ] {
        let is_young = event.get("grace_seconds").is_some();
        let rie = Rie::start(&function(name), &verbose(if is_young { later.endpoint() } else { endpoint }), 60);
        let answer = rie.invoke(&event).payload;
        let unreachable = ["unindexed_tokens", "unreferenced_provider_rows"].map(|of| answer["body"][of].as_u64());
        assert!(!is_young || unreachable.iter().flatten().sum::<u64>() > 0, "{answer}");
        printed.push_str(&answer.to_string());
        printed.push_str(&rie.output());
    }
    assert!(printed.contains("\"level\":\"DEBUG\""), "the log has no lines of deleted rows");
    let cascaded =
        printed.lines().find(|line| line.contains("\"records\":{\"received\"")).expect("the cascade finished a run");
    let cascaded: Value = serde_json::from_str(&cascaded[cascaded.find("{\"timestamp\"").unwrap()..]).unwrap();
    assert!(cascaded["rows"]["deleted"].as_u64() > Some(0), "{cascaded}");
    let state = client.scan().table_name(format!("{prefix}_attributes")).send().await.unwrap();
    for item in state.items().iter().filter(|item| item["id"].as_s().is_ok_and(|id| id == "_actingweb_janitor")) {
        printed.push_str(&format!("{item:?}"));
    }
    let leaked: Vec<&str> =
        secrets.iter().filter(|secret| printed.contains(*secret)).map(|secret| &secret[..4]).collect();
    assert!(leaked.is_empty(), "{} secrets leaked, beginning with {:?}", leaked.len(), leaked);
}

/// The peak memory of a function's process, in KiB.
fn peak_memory(name: &str, prefix: &str) -> u64 {
    let peak = |process: &PathBuf| {
        let status = std::fs::read_to_string(process.join("status")).ok()?;
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix("kB")?.trim().parse().ok())
    };
    processes_of(name, prefix).iter().filter_map(peak).max().unwrap_or_else(|| panic!("{name} is not running"))
}

/// Both tables are larger than what a run holds in memory; the second is three times the first.
#[tokio::test(flavor = "multi_thread")]
async fn memory_does_not_grow_with_the_table() {
    let endpoint = engine(EngineKind::Embedded).endpoint();
    let mut tables = Vec::new();
    for copies in [80, 240] {
        let (client, prefix) = new_table(endpoint).await;
        let rows = fixture::all_kinds(now(), copies, 11);
        write_rows(&client, &format!("{prefix}_attributes"), &rows).await.unwrap();
        tables.push(prefix);
    }
    for name in ["daily-cleanup", "index-repair", "metrics-emitter"] {
        let event = match name {
            "metrics-emitter" => json!({"scope": "all", "max_read_units_per_second": 100_000}),
            _ => json!({"mode": "dry-run", "max_read_units_per_second": 100_000}),
        };
        let peaks: Vec<u64> = tables
            .iter()
            .map(|prefix| {
                let settings = environment(&[("AWS_DB_PREFIX", prefix), ("AWS_DB_HOST", endpoint)]);
                let rie = Rie::start(&function(name), &settings, 600);
                let answer = rie.invoke(&event);
                assert_eq!(answer.payload["report"]["complete"], true, "{}", answer.payload);
                peak_memory(name, prefix)
            })
            .collect();
        println!("{name}: peak KiB {peaks:?}");
        assert!(peaks[1] < peaks[0] * 13 / 10 && peaks[1] < 64 * 1_024, "{name}: peak KiB {peaks:?}");
    }
}

/// A live token with its index row and its provider row.
fn live_token() -> [Specimen; 3] {
    let row = |owner: &str, bucket: &str, name: &str, data: Value| Specimen {
        owner: owner.to_owned(),
        bucket: bucket.to_owned(),
        name: name.to_owned(),
        data: Some(aws_sdk_dynamodb::types::AttributeValue::S(data.to_string())),
        ttl: Some(aws_sdk_dynamodb::types::AttributeValue::N((now() + 7_200).to_string())),
        fate: Fate::Kept,
    };
    let token =
        json!({"token": "aw_live", "created_at": now(), "expires_at": now() + 3_600, "google_token_key": "key"});
    [
        row("ada", "mcp_tokens", "aw_live", token),
        row("ada", "mcp_google_tokens", "key", json!({"refresh_token": "1//live"})),
        row("_actingweb_oauth2", "_access_token_index", "aw_live", json!("ada")),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn the_repair_runs_as_a_lambda() {
    for kind in [EngineKind::DynamoDbLocal, EngineKind::Embedded] {
        let endpoint = engine(kind).endpoint();
        let (client, prefix) = new_table(endpoint).await;
        let table = format!("{prefix}_attributes");
        // The daily cleanup keeps an index row before its TTL; this one dangles because its actor was deleted.
        let dangling = Specimen {
            owner: "_actingweb_oauth2".to_owned(),
            bucket: "_refresh_token_index".to_owned(),
            name: "rt_dangling".to_owned(),
            data: Some(aws_sdk_dynamodb::types::AttributeValue::S("\"deleted\"".to_owned())),
            ttl: Some(aws_sdk_dynamodb::types::AttributeValue::N((now() + 900_000).to_string())),
            fate: Fate::Deleted,
        };
        let rows: Vec<Specimen> = live_token().into_iter().chain([dangling]).collect();
        write_rows(&client, &table, &rows).await.unwrap();
        let settings = environment(&[("AWS_DB_PREFIX", &prefix), ("AWS_DB_HOST", endpoint)]);
        let daily = Rie::start(&daily_cleanup(), &settings, 60).invoke(&event("scheduled.json"));
        assert_eq!(daily.payload["report"]["rows"]["deleted"], 0, "{}", daily.payload);
        let rie = Rie::start(&function("index-repair"), &settings, 60);
        let dry = rie.invoke(&event("restore-clients.json"));
        assert_eq!(dry.payload["body"]["dangling_index_rows"], 1, "{}", dry.payload);
        assert_eq!(scan(&client, &table).await.unwrap().len(), rows.len());
        let answer = rie.invoke(&event("scheduler.json"));
        assert!(!answer.is_error, "{}", answer.payload);
        assert_eq!(answer.payload["body"]["dangling_index_rows"], 1);
        assert_eq!(answer.payload["body"]["found"]["stranded_clients"], 0);
        assert_eq!(answer.payload["report"]["complete"], true);
        assert_eq!(misjudged(&rows, &scan(&client, &table).await.unwrap()), Vec::<String>::new());
        let wrong = rie.invoke(&json!({"restore_clients": "perhaps"}));
        assert_eq!(wrong.payload["errorType"], "Configuration");
    }
}

/// The lines of the output that CloudWatch turns into metrics.
fn metric_lines(output: &str) -> Vec<&str> {
    output.lines().filter(|line| line.starts_with("{\"_aws\":")).collect()
}

/// The example event for another table.
fn of_table(event: &Value, table: &str) -> Value {
    serde_json::from_str(&event.to_string().replace("myapp_attributes", table)).unwrap()
}

/// The index row and the provider row of the token in the example event.
fn rows_of_example_token() -> [Specimen; 2] {
    let actor = "0123456789abcdef0123456789abcdef";
    let row = |owner: &str, bucket: &str, name: &str, data: &str| Specimen {
        owner: owner.to_owned(),
        bucket: bucket.to_owned(),
        name: name.to_owned(),
        data: Some(aws_sdk_dynamodb::types::AttributeValue::S(data.to_owned())),
        ttl: Some(aws_sdk_dynamodb::types::AttributeValue::N((now() + 1_000).to_string())),
        fate: Fate::Deleted,
    };
    [
        row("_actingweb_oauth2", "_access_token_index", "aw_example", &format!("\"{actor}\"")),
        row(actor, "mcp_google_tokens", "google_token_access_example", "{\"refresh_token\": \"1//example\"}"),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn cloudwatch_accepts_every_metric_that_is_emitted() {
    let endpoint = engine(EngineKind::DynamoDbLocal).endpoint();
    let (client, prefix) = new_table(endpoint).await;
    let table = format!("{prefix}_attributes");
    write_rows(&client, &table, &fixture::all_kinds(now(), 4, 12)).await.unwrap();
    let settings = environment(&[("AWS_DB_PREFIX", &prefix), ("AWS_DB_HOST", endpoint)]);
    // Two runs in the past, so that there are rates.
    let past = runtime::lambda::Function::new(client.clone(), bed::deleting("AWS_DB_PREFIX", &prefix));
    for hours in [28, 4] {
        let at = EpochSeconds::new(now() - hours * 3_600);
        past.daily_cleanup(json!({"max_deletes": 2}), at, None).await.unwrap();
    }
    let mut lines = Vec::new();
    let mut invoke_with = |settings: &[(String, String)], name: &str, event: &Value| {
        let rie = Rie::start(&function(name), settings, 60);
        let answer = rie.invoke(event);
        let output = rie.output();
        let metrics: Vec<String> = metric_lines(&output).into_iter().map(str::to_owned).collect();
        assert!(output.contains("{\"timestamp\""), "{name} {event} logged nothing:\n{output}");
        lines.extend(metrics.iter().cloned());
        (answer, metrics)
    };
    for event in ["scheduler.json", "audit.json"] {
        let answer = invoke_with(&settings, "metrics-emitter", &self::event(event)).0;
        assert!(!answer.is_error, "{}", answer.payload);
        assert_eq!(answer.payload["report"]["complete"], true);
    }
    for name in ["daily-cleanup", "index-repair"] {
        assert_eq!(invoke_with(&settings, name, &event("dry-run.json")).1, [""; 0], "a dry run emitted a metric");
        // Refused, and failed.
        assert!(invoke_with(&settings, name, &json!({"max_delete_share": 0.000_1})).0.is_error);
        assert!(invoke_with(&settings, name, &json!({"attributes_table": "nosuch"})).0.is_error);
        invoke_with(&settings, name, &json!({"max_deletes": 3}));
        // A segment, which is no complete run.
        invoke_with(&settings, name, &event("segment.json"));
        let one = invoke_with(&settings, name, &json!({"segment": {"index": 0, "count": 2}})).0;
        assert!(!one.is_error && one.payload["segment"].is_object(), "{}", one.payload);
        invoke_with(&settings, name, &event("scheduled.json"));
    }
    // The example's token with its related rows, in this table's stream.
    write_rows(&client, &table, &rows_of_example_token()).await.unwrap();
    let (answer, metrics) = invoke_with(&settings, "ttl-cascade", &of_table(&event("ttl-cascade.json"), &table));
    assert_eq!(answer.payload, json!({"batchItemFailures": []}));
    assert!(metrics.is_empty(), "the cascade emitted a metric: {metrics:?}");
    // A missing table: the whole batch fails.
    let missing = environment(&[("AWS_DB_PREFIX", "nosuch"), ("AWS_DB_HOST", endpoint)]);
    let batch = of_table(&event("ttl-cascade.json"), "nosuch_attributes");
    let (answer, metrics) = invoke_with(&missing, "ttl-cascade", &batch);
    assert!(answer.is_error && metrics.is_empty(), "{metrics:?}");
    // The last run was complete, and a provisioned table has units: both are emitted now.
    invoke_with(&settings, "metrics-emitter", &event("empty.json"));
    provision(&client, &table).await;
    invoke_with(&settings, "metrics-emitter", &event("empty.json"));
    let read: Value =
        serde_json::from_str(&Application::new(endpoint, &prefix).run("emf_check.py", &[], &lines.join("\n"))).unwrap();
    println!("{} documents, {} metrics in CloudWatch", read["documents"], read["in_cloudwatch"]);
    assert_eq!(read["documents"], lines.len());
    assert_eq!(read["namespaces"], json!(["ActingWeb/Janitor"]));
    // Every metric is emitted, with its unit.
    for metric in jobs::metric::ALL {
        assert_eq!(read["metrics"][metric.name]["unit"], metric.unit, "{}: {read}", metric.name);
    }
    assert_eq!(read["metrics"].as_object().unwrap().len(), jobs::metric::ALL.len(), "{read}");
    for (name, metric) in read["metrics"].as_object().unwrap() {
        assert_eq!(metric["dimensions"], json!(["Table"]), "{name}");
    }
}

/// The template declares the variable for local runs; an empty value means that it is unset.
#[tokio::test(flavor = "multi_thread")]
async fn an_empty_endpoint_is_ignored() {
    let endpoint = engine(EngineKind::Embedded).endpoint();
    let (client, prefix) = new_table(endpoint).await;
    write_rows(&client, &format!("{prefix}_attributes"), &fixture::settled(now(), 1, 12)).await.unwrap();
    // AWS_ENDPOINT_URL points the SDK at the engine; the empty variable for DynamoDB must not override it.
    let settings = environment(&[
        ("AWS_DB_PREFIX", &prefix),
        ("AWS_ENDPOINT_URL", endpoint),
        ("AWS_ENDPOINT_URL_DYNAMODB", ""),
        ("ALLOW_AWS", ""),
    ]);
    let rie = Rie::start(&function("daily-cleanup"), &settings, 60);
    let answer = rie.invoke(&event("dry-run.json"));
    assert_eq!(answer.payload["report"]["complete"], true, "{}\n{}", answer.payload, rie.output());
}

#[tokio::test(flavor = "multi_thread")]
async fn at_debug_every_deleted_row_has_a_masked_line() {
    let endpoint = engine(EngineKind::Embedded).endpoint();
    let (client, prefix) = new_table(endpoint).await;
    let table = format!("{prefix}_attributes");
    let rows = fixture::settled(now(), 2, 12);
    write_rows(&client, &table, &rows).await.unwrap();
    let settings =
        environment(&[("AWS_DB_PREFIX", &prefix), ("AWS_DB_HOST", endpoint), ("AWS_LAMBDA_LOG_LEVEL", "DEBUG")]);
    for (event, message) in [("dry-run.json", "row would be deleted"), ("scheduled.json", "row deleted")] {
        let rie = Rie::start(&function("daily-cleanup"), &settings, 60);
        let deleted = rie.invoke(&self::event(event)).payload["report"]["rows"]["deleted"].as_u64().unwrap();
        let output = rie.output();
        let lines: Vec<Value> = output
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .filter(|line: &Value| line["message"] == message)
            .collect();
        assert!(deleted > 20);
        assert_eq!(lines.len() as u64, deleted);
        for line in &lines {
            assert!(
                line["bucket"].is_string() && line["reason"].is_string() && line["requestId"].is_string(),
                "{line}"
            );
            assert!(
                line["name"].as_str().unwrap().contains("…#") && line["owner"].as_str().unwrap().contains("…#"),
                "{line}"
            );
        }
        assert!(rows.iter().all(|row| row.name.len() < 12 || !output.contains(&row.name)), "a name is not masked");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn log_lines_match_their_golden_file() {
    let endpoint = engine(EngineKind::Embedded).endpoint();
    let (client, prefix) = new_table(endpoint).await;
    let table = format!("{prefix}_attributes");
    write_rows(&client, &table, &settled(now(), 1, 12)).await.unwrap();
    let settings = environment(&[("AWS_DB_PREFIX", &prefix), ("AWS_DB_HOST", endpoint)]);
    let mut log = String::new();
    for (name, event) in [
        ("daily-cleanup", event("scheduled.json")),
        ("index-repair", json!({"max_delete_share": 2})),
        ("metrics-emitter", event("audit.json")),
        // For this table, with the token's related rows, and for another table.
        ("ttl-cascade", of_table(&event("ttl-cascade.json"), &table)),
        ("ttl-cascade", event("ttl-cascade.json")),
    ] {
        if name == "ttl-cascade" {
            write_rows(&client, &table, &rows_of_example_token()).await.unwrap();
        }
        let rie = Rie::start(&function(name), &settings, 60);
        let _ = rie.invoke(&event);
        for line in rie.output().lines().filter(|line| line.starts_with("{\"timestamp\"")) {
            let mut line: Value = serde_json::from_str(line).expect("a log line is JSON");
            for (field, fixed) in [
                ("timestamp", json!("2026-11-16T03:00:00.000000Z")),
                ("elapsed_ms", json!(0)),
                ("now", json!(0)),
                // Batches run concurrently, so the requests differ from run to run.
                ("requests", json!(0)),
                ("bytes", json!(0)),
                ("table", json!("golden_attributes")),
            ] {
                if line.get(field).is_some() {
                    line[field] = fixed;
                }
            }
            if let Some(units) = line.pointer_mut("/units/read") {
                *units = json!(0);
            }
            assert!(line["requestId"].as_str().is_some_and(|id| !id.is_empty()), "{line}");
            line["requestId"] = json!("request-1");
            log.push_str(&format!("{line}\n"));
        }
    }
    bed::golden::matches_golden("log.jsonl", &log);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_source_cleans_a_table_under_cargo_lambda_watch() {
    let endpoint = engine(EngineKind::DynamoDbLocal).endpoint();
    let (client, prefix) = new_table(endpoint).await;
    let table = format!("{prefix}_attributes");
    let rows = settled(now(), 2, 10);
    write_rows(&client, &table, &rows).await.unwrap();
    let watch =
        Watch::start(&repository_root(), &environment(&[("AWS_DB_PREFIX", &prefix), ("AWS_DB_HOST", endpoint)]));
    let events = repository_root().join("events");
    let dry = watch.invoke_file("daily-cleanup", &events.join("dry-run.json"));
    assert!(!dry.is_error, "{}\n{}", dry.payload, watch.output());
    assert_eq!(scan(&client, &table).await.unwrap().len(), rows.len());
    let answer = watch.invoke_file("daily-cleanup", &events.join("scheduled.json"));
    assert_eq!(answer.payload["report"]["complete"], true, "{}", answer.payload);
    assert_eq!(answer.payload["body"], dry.payload["body"]);
    assert_eq!(misjudged(&rows, &scan(&client, &table).await.unwrap()), Vec::<String>::new());
}
