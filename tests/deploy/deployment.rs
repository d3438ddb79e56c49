//! The template compared with the functions: each role allows exactly the requests of its function, and every metric of the
//! alarms and the dashboard is emitted.

use bed::Invocations as _;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::{Arc, Mutex};

use aws_sdk_dynamodb::types::AttributeValue;
use bed::Testbed;
use bed::engine::{EngineKind, shared as engine};
use bed::fixture;
use bed::process::{keep_bytecode, repository_root, tool};
use bed::proxy::{Fate, Proxy, Request};
use bed::stream;
use jobs::run::RunError;
use model::rows::NOW;
use runtime::lambda::Function;
use serde_json::{Value, json};
use shared::time::EpochSeconds;

/// IAM actions, by resource: the table, the janitor's own rows in it, the actors' table.
type Actions = BTreeMap<String, BTreeSet<String>>;

/// The resource and the IAM action of a request.
fn action(request: &Request, table: &str) -> (String, String) {
    let body: Value = serde_json::from_str(&request.body).expect("a request is JSON");
    let named: BTreeSet<&str> = match &body["RequestItems"] {
        Value::Object(tables) => tables.keys().map(String::as_str).collect(),
        _ => body["TableName"].as_str().into_iter().collect(),
    };
    let actors = table.replace("_attributes", "_actors");
    let resource = match request.operation.as_str() {
        _ if named.contains(actors.as_str()) => "actors",
        // The read of the pause row.
        "BatchGetItem" if !request.is_work("BatchGetItem") => "own_state",
        "GetItem" | "PutItem" | "DeleteItem" | "UpdateItem" => {
            let key = body.get("Key").unwrap_or(&body["Item"]);
            if key["id"]["S"] == "_actingweb_janitor" { "own_state" } else { "table" }
        }
        "BatchExecuteStatement" => {
            let statements = body["Statements"].as_array().expect("statements");
            let (verb, action) = match statements[0]["Statement"].as_str() {
                Some(text) if text.starts_with("UPDATE") => ("UPDATE", "dynamodb:PartiQLUpdate"),
                _ => ("DELETE FROM", "dynamodb:PartiQLDelete"),
            };
            for statement in statements {
                let text = statement["Statement"].as_str().unwrap_or_default();
                assert!(text.starts_with(&format!("{verb} \"{table}\"")), "{text}");
            }
            return ("table".to_owned(), action.to_owned());
        }
        _ => "table",
    };
    assert!(named.iter().all(|named| *named == table || *named == actors), "another table: {named:?}");
    (resource.to_owned(), format!("dynamodb:{}", request.operation))
}

/// A proxy that records the actions.
fn recorder(kind: EngineKind, table: &str) -> (Proxy, Arc<Mutex<Actions>>) {
    let seen: Arc<Mutex<Actions>> = Arc::default();
    let (log, table) = (Arc::clone(&seen), table.to_owned());
    let proxy = Proxy::start(engine(kind).endpoint(), move |request| {
        let (resource, action) = action(request, &table);
        log.lock().unwrap().entry(resource).or_default().insert(action);
        Fate::Forward
    });
    (proxy, seen)
}

/// The actions of a function, on a full table and on an empty one.
async fn requested_actions(name: &str, retires: bool) -> Actions {
    let mut all = Actions::new();
    for rows in [fixture::all_kinds(NOW, 3, 5), Vec::new()] {
        for event in [json!({"mode": "dry-run"}), json!({})] {
            let bed = Testbed::with(EngineKind::DynamoDbLocal, &rows).await;
            let bed = if retires { bed.retiring().await } else { bed };
            if name == "Cascade" {
                bed.write(&rows_left_by_ttl()).await;
            }
            let actors = format!("{}_actors", bed.prefix);
            create_actors(&bed, &actors).await;
            let (proxy, seen) = recorder(EngineKind::DynamoDbLocal, &bed.table);
            run(name, &bed.through(&proxy).await, &bed.table, event).await;
            for (resource, actions) in seen.lock().unwrap().iter() {
                all.entry(resource.clone()).or_default().extend(actions.iter().cloned());
            }
        }
    }
    all
}

const LEFT: (&str, &str, &str) = ("left-actor", "aw_left", "google_token_access_left");

/// The index and provider rows of a token that TTL removed.
fn rows_left_by_ttl() -> Vec<fixture::Specimen> {
    let row = |owner: &str, bucket: &str, name: &str, data: &str| fixture::Specimen {
        owner: owner.to_owned(),
        bucket: bucket.to_owned(),
        name: name.to_owned(),
        data: Some(AttributeValue::S(data.to_owned())),
        ttl: None,
        fate: fixture::Fate::Deleted,
    };
    let (actor, token, provider) = LEFT;
    vec![
        row("_actingweb_oauth2", "_access_token_index", token, &format!("\"{actor}\"")),
        row(actor, "mcp_google_tokens", provider, "{}"),
    ]
}

/// The stream's record of that token.
fn removal(table: &str) -> Value {
    let (actor, token, provider) = LEFT;
    let data = json!({"google_token_key": provider}).to_string();
    stream::event(&[stream::removal(table, 1, actor, "mcp_tokens", token, Some(&data))])
}

async fn create_actors(bed: &Testbed, actors: &str) {
    bed::tables::create_table(&bed.function.client, actors).await.unwrap();
    let text = |text: &str| AttributeValue::S(text.to_owned());
    let put = bed.function.client.put_item().table_name(actors).item("id", text("somebody"));
    put.item("bucket_name", text("x")).send().await.unwrap();
}

async fn run(name: &str, function: &Function, table: &str, event: Value) {
    let now = EpochSeconds::new(NOW);
    match name {
        "DailyCleanup" => drop(function.daily_cleanup(event, now, None).await.unwrap()),
        "IndexRepair" => drop(function.index_repair(event, now, None).await.unwrap()),
        "BacklogCleanup" => execute(event, async |step| function.answer_daily_cleanup(step, now, None).await).await,
        "BacklogRepair" => execute(event, async |step| function.answer_index_repair(step, now, None).await).await,
        "MetricsEmitter" => {
            for scope in ["system", "all"] {
                function.metrics_emitter(json!({"scope": scope}), now, None).await.unwrap();
            }
        }
        "EnableTtl" => {
            let bucket = bed::response_bucket::ResponseBucket::start(&[]);
            let event = json!({"RequestType": "Create", "ResponseURL": bucket.url(), "StackId": "s", "RequestId": "r",
                "LogicalResourceId": "l", "ResourceProperties": {"TableName": table, "Stream": "true"}});
            function.enable_ttl(event, now, None).await.unwrap();
        }
        "Cascade" => {
            let report = function.ttl_cascade(removal(table), now, None).await.unwrap();
            assert_eq!((report.run.counts.rows_deleted(), report.failed.len()), (2, 0));
        }
        name => panic!("no function {name}"),
    }
}

/// All steps of an execution, as the state machine invokes them.
async fn execute(settings: Value, invoke: impl AsyncFn(Value) -> Result<Value, RunError>) {
    let input = json!({"segments": 2, "concurrency": 1, "settings": settings});
    let started = invoke(json!({"start": {"lease": "execution-1", "input": input}})).await.unwrap();
    let mut segments = Vec::new();
    for item in started["segments"].as_array().unwrap() {
        let answer = invoke(item["next"].clone()).await.unwrap();
        assert_eq!(answer["next"], Value::Null);
        segments.push(answer["segment"].clone());
    }
    let ended = invoke(json!({"finish": {"started": started["started"], "segments": segments}})).await.unwrap();
    assert_eq!(ended["complete"], true, "{ended}");
}

fn python(script: &str, arguments: &[&str]) -> String {
    let output = keep_bytecode(&mut Command::new(tool("venv-sam/bin/python")))
        .arg(repository_root().join("tests/python").join(script))
        .args(arguments)
        .current_dir(repository_root())
        .output()
        .expect("python can be started");
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{script}: {stdout}\n{}", String::from_utf8_lossy(&output.stderr));
    stdout
}

fn allowed(mode: &str, expired_rows: &str) -> BTreeMap<String, Actions> {
    let (mode, expired_rows) = (format!("Mode={mode}"), format!("ExpiredRows={expired_rows}"));
    let sets = ["--set", "TimeToLive=enable-with-cascade", "--set", &mode, "--set", &expired_rows];
    let actions = python("template_checks.py", &[&["--actions"], sets.as_slice()].concat());
    let mut allowed: BTreeMap<String, Actions> = serde_json::from_str(&actions).expect("JSON");
    // An empty list means no entry.
    allowed.values_mut().for_each(|lists| lists.retain(|_, actions| !actions.is_empty()));
    allowed
}

#[tokio::test]
async fn each_role_allows_exactly_the_requests_of_its_function() {
    let deleting = allowed("delete", "delete");
    assert_eq!(
        deleting.keys().map(String::as_str).collect::<Vec<_>>(),
        ["BacklogCleanup", "BacklogRepair", "Cascade", "DailyCleanup", "EnableTtl", "IndexRepair", "MetricsEmitter"]
    );
    let mut retiring = allowed("delete", "retire");
    // The other functions do the same as in a stack that deletes.
    retiring.retain(|name, _| name.contains("Cleanup") || name.contains("Repair"));
    for (retires, allowed) in [(false, deleting), (true, retiring)] {
        for (name, allowed) in allowed {
            let mut requested = requested_actions(&name, retires).await;
            // The permission to read the actors' table is optional: without it the repair's report has a note.
            requested.remove("actors");
            // A role that may read any row of the table may read the pause row.
            if allowed["table"].contains("dynamodb:BatchGetItem") {
                requested.entry("own_state".to_owned()).or_default().remove("dynamodb:BatchGetItem");
                requested.retain(|_, actions| !actions.is_empty());
            }
            assert_eq!(requested, allowed, "{name}, retiring {retires}: requested, and allowed");
        }
    }
}

#[test]
fn a_stack_in_dry_run_mode_cannot_write() {
    for (name, lists) in [allowed("dry-run", "delete"), allowed("dry-run", "retire")].into_iter().flatten() {
        for action in lists.into_values().flatten() {
            let writes = ["Put", "Delete", "Update", "Write", "PartiQL"].iter().any(|verb| action.contains(verb));
            assert!(!writes, "{name}: {action}");
        }
    }
}

static EMITTED: Mutex<Vec<String>> = Mutex::new(Vec::new());

#[tokio::test]
async fn every_metric_of_the_template_is_emitted() {
    let bed = Testbed::with(EngineKind::Embedded, &fixture::all_kinds(NOW, 3, 5)).await;
    let function = Function::new(bed.function.client.clone(), bed.function.environment.clone())
        .with_metrics_output(|line| EMITTED.lock().unwrap().push(line.to_owned()));
    let at = |hours: i64| EpochSeconds::new(NOW + hours * 3_600);
    for hours in [0, 24] {
        function.daily_cleanup(json!({"max_deletes": 20}), at(hours), None).await.unwrap();
    }
    function.metrics_emitter(json!({}), at(30), None).await.unwrap();
    function.daily_cleanup(json!({"mode": "dry-run"}), at(30), None).await.unwrap();
    function.daily_cleanup(json!({"max_delete_share": 0.001}), at(30), None).await.unwrap_err();
    function.daily_cleanup(json!({}), at(48), None).await.unwrap();
    function.index_repair(json!({"mode": "dry-run"}), at(48), None).await.unwrap();
    function.index_repair(json!({}), at(48), None).await.unwrap();
    bed.write(&rows_left_by_ttl()).await;
    function.ttl_cascade(removal(&bed.table), at(48), None).await.unwrap();
    bed::tables::provision(&bed.function.client, &bed.table).await;
    for scope in ["system", "all"] {
        let event = json!({"scope": scope, "max_read_units_per_second": 10_000});
        function.metrics_emitter(event, at(54), None).await.unwrap();
    }
    let lines = EMITTED.lock().unwrap().join("\n");
    let file = std::env::temp_dir().join(format!("emitted-{}.jsonl", std::process::id()));
    std::fs::write(&file, lines).unwrap();
    let stdout = python("template_checks.py", &["--emitted", file.to_str().unwrap()]);
    std::fs::remove_file(&file).unwrap();
    println!("{stdout}");
}

/// Each file of `events/`, and the functions that accept it.
const EVENTS: [(&str, &[&str]); 10] = [
    ("audit.json", &["metrics-emitter"]),
    ("capped.json", &["daily-cleanup", "index-repair"]),
    ("cloudformation-create.json", &["enable-ttl"]),
    ("dry-run.json", &["daily-cleanup", "index-repair"]),
    ("empty.json", &["daily-cleanup", "index-repair", "metrics-emitter"]),
    ("restore-clients.json", &["index-repair"]),
    ("scheduled.json", &["daily-cleanup", "index-repair", "metrics-emitter"]),
    ("scheduler.json", &["daily-cleanup", "index-repair", "metrics-emitter"]),
    ("segment.json", &["daily-cleanup", "index-repair"]),
    ("ttl-cascade.json", &["ttl-cascade"]),
];

#[tokio::test]
async fn every_event_file_is_accepted_by_its_functions() {
    let folder = repository_root().join("events");
    let files = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    // Not an event, but the environment of local runs.
    let files = files.filter(|name| name != "local-env.json");
    assert_eq!(files.collect::<BTreeSet<_>>(), EVENTS.iter().map(|(name, _)| (*name).to_owned()).collect());
    for (file, functions) in EVENTS {
        let event: Value = serde_json::from_str(&std::fs::read_to_string(folder.join(file)).unwrap()).unwrap();
        for function in functions {
            let bed = Testbed::with(EngineKind::Embedded, &fixture::all_kinds(NOW, 1, 5)).await;
            let before = bed.keys().await;
            let answer = invoke(&bed, function, event.clone()).await;
            if event["mode"] == "dry-run" {
                assert_eq!(answer["report"]["mode"], "dry-run", "{file}, {function}");
                assert_eq!(bed.keys().await, before, "{file}, {function}");
            }
            if file == "segment.json" {
                let segment = &answer["segment"];
                assert_eq!(
                    (&segment["count"], &segment["done"], &answer["next"]),
                    (&json!(4), &json!(true), &Value::Null)
                );
                assert!(segment["totals"]["read"].as_u64().unwrap() > 0, "{function}: {segment}");
            }
        }
    }
}

async fn invoke(bed: &Testbed, function: &str, event: Value) -> Value {
    let now = EpochSeconds::new(NOW);
    match function {
        "daily-cleanup" => bed.function.answer_daily_cleanup(event, now, None).await.unwrap(),
        "index-repair" => bed.function.answer_index_repair(event, now, None).await.unwrap(),
        "metrics-emitter" => jobs::metrics::answer(&bed.function.metrics_emitter(event, now, None).await.unwrap()),
        // Parsed only: the event's address and table do not exist (`enable_ttl.rs` has the rest).
        "enable-ttl" => {
            let (_, request) = runtime::cloudformation::Request::parse(&event).expect("a response URL");
            assert!(request.action.is_ok());
            Value::Null
        }
        _ => {
            let batch = jobs::cascade::Batch::read(&event, "myapp_attributes").expect("records of a stream");
            assert!(!batch.is_empty(), "no record for the cascade");
            Value::Null
        }
    }
}
