//! A function that runs locally does not reach AWS by accident. AWS_ENDPOINT_URL points at a recording proxy, which sees every
//! request; none leaves the machine.

use std::collections::BTreeSet;

use bed::engine::{EngineKind, shared as engine};
use bed::lambda::{InvokeAnswer, Rie, Watch, function};
use bed::process::repository_root;
use bed::proxy::{Fate, Proxy};
use bed::response_bucket::ResponseBucket;
use bed::tables::new_table;
use runtime::guard::{NOT_LOCAL, Refused, USES_AWS};
use serde_json::{Value, json};

const FUNCTIONS: [(&str, &str); 5] = [
    ("daily-cleanup", "scheduled.json"),
    ("index-repair", "dry-run.json"),
    ("metrics-emitter", "audit.json"),
    ("enable-ttl", "cloudformation-create.json"),
    ("ttl-cascade", "ttl-cascade.json"),
];

fn event(name: &str, table: &str, bucket: &ResponseBucket) -> Value {
    let text = std::fs::read_to_string(repository_root().join("events").join(name)).unwrap();
    let mut event: Value = serde_json::from_str(&text.replace("myapp_attributes", table)).unwrap();
    if event.get("ResponseURL").is_some() {
        event["ResponseURL"] = json!(bucket.url());
    }
    event
}

fn start(name: &str, table: &str, proxy: &Proxy, more: &[(&str, &str)]) -> Rie {
    let common = [
        ("AWS_SAM_LOCAL", "true"),
        ("ATTRIBUTES_TABLE", table),
        ("AWS_ENDPOINT_URL", proxy.endpoint()),
        ("AWS_ENDPOINT_URL_DYNAMODB", ""),
    ];
    let environment: Vec<_> =
        common.iter().chain(more).map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Rie::start(&function(name), &environment, 60)
}

fn check_refused(answer: &InvokeAnswer) {
    assert!(answer.is_error, "{}", answer.payload);
    assert_eq!(answer.payload["errorType"], "Configuration");
    assert_eq!(answer.payload["errorMessage"], Refused.to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn every_function_refuses_to_run_locally_without_a_local_endpoint() {
    let proxy = Proxy::start(engine(EngineKind::Embedded).endpoint(), |_| Fate::Forward);
    let bucket = ResponseBucket::start(&[]);
    for (name, file) in FUNCTIONS {
        let rie = start(name, "myapp_attributes", &proxy, &[("ALLOW_AWS", "")]);
        for _ in 0..2 {
            check_refused(&rie.invoke(&event(file, "myapp_attributes", &bucket)));
        }
        assert_eq!(rie.output().matches("\"local run refused\"").count(), 1, "{name}: {}", rie.output());
    }
    assert!(proxy.seen().is_empty() && bucket.answers().is_empty(), "{:?}", proxy.seen());
}

#[tokio::test(flavor = "multi_thread")]
async fn every_function_runs_locally_with_an_endpoint_or_with_permission() {
    let endpoint = engine(EngineKind::Embedded).endpoint();
    let (_, prefix) = new_table(endpoint).await;
    let table = format!("{prefix}_attributes");
    for (name, file) in FUNCTIONS {
        let bucket = ResponseBucket::start(&[]);
        let elsewhere = Proxy::start(endpoint, |_| Fate::Forward);
        let local = Proxy::start(endpoint, |_| Fate::Forward);
        let with_endpoint = start(name, &table, &elsewhere, &[("AWS_ENDPOINT_URL_DYNAMODB", local.endpoint())]);
        let answer = with_endpoint.invoke(&event(file, &table, &bucket));
        assert!(!answer.is_error, "{name}: {}", answer.payload);
        assert!(elsewhere.seen().is_empty() && !local.seen().is_empty(), "{name}");

        let permitted = start(name, &table, &elsewhere, &[("ALLOW_AWS", "true")]);
        let answer = permitted.invoke(&event(file, &table, &bucket));
        assert!(!answer.is_error, "{name}: {}", answer.payload);
        assert!(!elsewhere.seen().is_empty(), "{name}: without the guard, requests must reach the proxy");
        assert!(permitted.output().contains(USES_AWS), "{name}: {}", permitted.output());
        for notice in [USES_AWS, NOT_LOCAL] {
            assert!(!with_endpoint.output().contains(notice), "{name}: {}", with_endpoint.output());
        }
    }
}

/// Every file of `events/`, with a function that accepts it.
const EVENTS: [(&str, &str); 13] = [
    ("daily-cleanup", "capped.json"),
    ("daily-cleanup", "dry-run.json"),
    ("daily-cleanup", "empty.json"),
    ("daily-cleanup", "scheduled.json"),
    ("daily-cleanup", "scheduler.json"),
    ("daily-cleanup", "segment.json"),
    ("index-repair", "dry-run.json"),
    ("index-repair", "restore-clients.json"),
    ("index-repair", "segment.json"),
    ("metrics-emitter", "audit.json"),
    ("metrics-emitter", "empty.json"),
    ("enable-ttl", "cloudformation-create.json"),
    ("ttl-cascade", "ttl-cascade.json"),
];

fn watch(table: &str, proxy: &Proxy, more: &[(&str, &str)]) -> Watch {
    let common = [("ATTRIBUTES_TABLE", table), ("AWS_ENDPOINT_URL", proxy.endpoint())];
    let environment: Vec<_> =
        common.iter().chain(more).map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Watch::start(&repository_root(), &environment)
}

#[tokio::test(flavor = "multi_thread")]
async fn cargo_lambda_watch_runs_every_function_with_every_event() {
    let files = std::fs::read_dir(repository_root().join("events")).unwrap();
    let mut files: BTreeSet<String> = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    files.remove("local-env.json");
    assert_eq!(files, EVENTS.iter().map(|(_, file)| (*file).to_owned()).collect());

    let endpoint = engine(EngineKind::Embedded).endpoint();
    let (_, prefix) = new_table(endpoint).await;
    let table = format!("{prefix}_attributes");
    let elsewhere = Proxy::start(endpoint, |_| Fate::Forward);
    let bucket = ResponseBucket::start(&[]);
    let watch = watch(&table, &elsewhere, &[("AWS_ENDPOINT_URL_DYNAMODB", endpoint)]);
    let copy = std::env::temp_dir().join(format!("{table}.json"));
    for (name, file) in EVENTS {
        std::fs::write(&copy, event(file, &table, &bucket).to_string()).unwrap();
        let answer = watch.invoke_file(name, &copy);
        assert!(!answer.is_error, "{name} {file}: {}\n{}", answer.payload, watch.output());
        let is_done = answer.payload["report"]["complete"] == true
            || answer.payload["Status"] == "SUCCESS"
            || answer.payload == json!({"batchItemFailures": []});
        assert!(is_done, "{name} {file}: {}", answer.payload);
    }
    std::fs::remove_file(copy).unwrap();
    assert!(elsewhere.seen().is_empty(), "{:?}", elsewhere.seen());
}

#[tokio::test(flavor = "multi_thread")]
async fn cargo_lambda_watch_without_a_local_endpoint_is_refused() {
    let proxy = Proxy::start(engine(EngineKind::Embedded).endpoint(), |_| Fate::Forward);
    let watch = watch("myapp_attributes", &proxy, &[]);
    let answer = watch.invoke_file("daily-cleanup", &repository_root().join("events/scheduled.json"));
    assert!(answer.is_error, "{}", answer.payload);
    assert_eq!(answer.payload["errorType"], "Configuration");
    let message = answer.payload["errorMessage"].as_str().unwrap_or_default();
    assert!(message.contains("a local run needs a local endpoint"), "{message}\n{}", watch.output());
    assert!(proxy.seen().is_empty(), "{:?}", proxy.seen());
}
