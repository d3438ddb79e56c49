//! The programs that clean the table, and their cost.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use bed::lambda::{Rie, function};
use bed::process::repository_root;
use bed::proxy::{Fate, Proxy};
use bed::python::Application;
use serde_json::{Value, json};

use crate::bed::{Filled, Testbed};
use crate::meter;

/// Far above what any run needs, so that none hits its deadline.
const TIMEOUT_SECONDS: u32 = 7_200;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contestant {
    /// The release binary of `daily-cleanup` under the Runtime Interface Emulator.
    Ours,
    /// The same with `EXPIRED_ROWS=retire`.
    Retiring,
    /// ActingWeb's documented handler.
    Library,
    /// A script with boto3, as an experienced developer would write it.
    Script,
    /// The loop that only sends requests, this many concurrently.
    Limit(usize),
}

impl Contestant {
    pub(crate) fn name(self) -> String {
        match self {
            Contestant::Ours => "daily-cleanup".to_owned(),
            Contestant::Retiring => "daily-cleanup, retire".to_owned(),
            Contestant::Library => "library".to_owned(),
            Contestant::Script => "script".to_owned(),
            Contestant::Limit(concurrency) => format!("limit, {concurrency} side by side"),
        }
    }

    /// Cleans the table, and returns the cost.
    pub(crate) fn clean(self, bed: &Testbed, table: &Filled) -> Value {
        match self {
            Contestant::Ours => ours(bed.endpoint(), table, &[]),
            Contestant::Retiring => ours(bed.endpoint(), table, &[("EXPIRED_ROWS", "retire")]),
            Contestant::Library => python(bed, table, "library_cleanup.py"),
            Contestant::Script => python(bed, table, "boto3_cleanup.py"),
            Contestant::Limit(concurrency) => limit(bed, table, concurrency),
        }
    }
}

/// Settings without an effective rate limit.
pub(crate) fn unpaced(prefix: &str) -> Vec<(String, String)> {
    let settings = [
        ("AWS_DB_PREFIX", prefix),
        ("MODE", "delete"),
        ("MAX_READ_UNITS_PER_SECOND", "1000000"),
        ("MAX_WRITE_UNITS_PER_SECOND", "1000000"),
    ];
    settings.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
}

/// The function's requests for a table by operation, counted by a proxy; and the number that it reports.
pub(crate) fn requests_seen(bed: &Testbed, table: &Filled) -> (BTreeMap<String, u64>, Value) {
    let proxy = Proxy::start(bed.endpoint(), |_| Fate::Forward);
    let report = ours(proxy.endpoint(), table, &[]);
    let mut seen = BTreeMap::new();
    for operation in proxy.seen() {
        *seen.entry(operation).or_default() += 1;
    }
    (seen, report["requests"].clone())
}

fn ours(endpoint: &str, table: &Filled, settings: &[(&str, &str)]) -> Value {
    let mut environment = unpaced(&table.prefix);
    environment.push(("AWS_ENDPOINT_URL_DYNAMODB".to_owned(), endpoint.to_owned()));
    environment.extend(settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    let binary = function("daily-cleanup");
    let emulator = Rie::start(&binary, &environment, TIMEOUT_SECONDS);
    let (answer, took) = emulator.invoke_timed(&json!({}));
    assert!(!answer.is_error, "{}", answer.payload);
    let report = &answer.payload["report"];
    assert_eq!(report["complete"], true, "{report}");
    let used = meter::used_by(&binary);
    json!({
        "seconds": took.as_secs_f64(),
        "init_seconds": emulator.init_milliseconds().unwrap_or(0.0) / 1_000.0,
        "retired": report["rows"]["retired"],
        "requests": report["requests"],
        "read_units": report["capacity"]["read_units"],
        "write_units": report["capacity"]["write_units"],
        "cpu_seconds": used.cpu.as_secs_f64(),
        "peak_bytes": used.peak_bytes,
    })
}

fn python(bed: &Testbed, table: &Filled, script: &str) -> Value {
    let answer = Application::new(bed.endpoint(), &table.prefix).run(script, &[], "");
    let answer: Value = serde_json::from_str(&answer).expect("the script answers JSON");
    json!({
        "seconds": answer["seconds"],
        "requests": answer["requests"],
        "read_units": answer["capacity"]["read_units"],
        "write_units": answer["capacity"]["write_units"],
        "cpu_seconds": answer["cpu_seconds"],
        "peak_bytes": answer["peak_bytes"],
    })
}

fn limit(bed: &Testbed, table: &Filled, concurrency: usize) -> Value {
    let program = std::env::current_exe().expect("this program has a path");
    let numbers =
        [table.plan.seed.to_string(), table.plan.copies.to_string(), table.later.to_string(), concurrency.to_string()];
    let output = Command::new(program)
        .args(["limit", bed.endpoint(), &table.table()])
        .args(numbers)
        .current_dir(repository_root())
        .output()
        .expect("this program can be started");
    assert!(output.status.success(), "the limit: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("the limit answers JSON")
}

/// A pause in which an engine finishes background work: garbage collection, and the removed table.
pub(crate) fn settle() {
    std::thread::sleep(Duration::from_millis(500));
}
