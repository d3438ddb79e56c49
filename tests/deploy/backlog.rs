//! The state machine of `template.yaml`, run by an interpreter of the States Language with the real functions as its tasks:
//! one task's process is killed, others hit their deadline, and in the end exactly the dead rows are deleted.
//!
//! On about 20,000 rows; `make backlog` runs the same on a million.

use bed::Invocations as _;
use std::collections::{BTreeSet, HashSet};
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use aws_sdk_dynamodb::types::AttributeValue;
use bed::Testbed;
use bed::engine::{EngineKind, shared as engine};
use bed::fixture::{Fate, Specimen, all_kinds, settled};
use bed::lambda::{Rie, function};
use bed::process::{keep_bytecode, processes_of, repository_root, tool};
use bed::proxy::{self, Proxy};
use bed::tables::new_table;
use bed::tables::{misjudged, scan, write_rows};
use dynamo::Dynamo;
use jobs::run::clock::RunClock;
use jobs::run::pause;
use serde_json::{Value, json};
use shared::bucket::JANITOR_OWNER;
use shared::time::EpochSeconds;

const ROWS_PER_COPY: usize = 242;

/// Copies of the fixture, for `BACKLOG_ROWS` rows.
fn copies() -> usize {
    let rows = std::env::var("BACKLOG_ROWS").map_or(20_000, |rows| rows.parse().expect("BACKLOG_ROWS is a number"));
    (rows / ROWS_PER_COPY).max(1)
}

/// A table, and one emulator of the function per concurrent segment.
struct Stage {
    prefix: String,
    functions: Vec<Rie>,
}

const CONCURRENCY: usize = 2;

impl Stage {
    async fn new(name: &str, rows: &[Specimen], timeout_seconds: u32, write_units: &str) -> Self {
        Self::at_endpoint(engine(EngineKind::Embedded).endpoint(), name, rows, timeout_seconds, write_units).await
    }

    /// The same, with functions that use another endpoint than the test.
    async fn at_endpoint(
        endpoint: &str,
        name: &str,
        rows: &[Specimen],
        timeout_seconds: u32,
        write_units: &str,
    ) -> Self {
        let (client, prefix) = new_table(engine(EngineKind::Embedded).endpoint()).await;
        write_rows(&client, &format!("{prefix}_attributes"), rows).await.unwrap();
        let environment = [
            ("AWS_DB_PREFIX", prefix.as_str()),
            ("AWS_DB_HOST", endpoint),
            ("MAX_WRITE_UNITS_PER_SECOND", write_units),
            ("MAX_READ_UNITS_PER_SECOND", "1000000"),
        ];
        let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let functions = (0..CONCURRENCY).map(|_| Rie::start(&function(name), &environment, timeout_seconds)).collect();
        Self { prefix, functions }
    }

    fn table(&self) -> String {
        format!("{}_attributes", self.prefix)
    }

    /// A new client each time: the engine closes connections that are idle during an execution.
    async fn client() -> aws_sdk_dynamodb::Client {
        bed::tables::client(engine(EngineKind::Embedded).endpoint()).await
    }

    /// Runs the state machine and `meanwhile` concurrently, and returns the interpreter's result.
    fn execute(&self, command: &str, input: &Value, meanwhile: impl FnOnce() + Send) -> Value {
        self.execute_throttled(command, input, 0, meanwhile)
    }

    /// The same, with the first `throttles` tasks throttled.
    fn execute_throttled(
        &self,
        command: &str,
        input: &Value,
        throttles: u32,
        meanwhile: impl FnOnce() + Send,
    ) -> Value {
        std::thread::scope(|scope| {
            let concurrent = scope.spawn(meanwhile);
            let mut python = keep_bytecode(&mut Command::new(tool("venv-sam/bin/python")))
                .arg(repository_root().join("tests/python/state_machine.py"))
                .arg(command)
                .args(self.functions.iter().map(|rie| rie.port().to_string()))
                .env("THROTTLES", throttles.to_string())
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("python can be started");
            python.stdin.take().unwrap().write_all(input.to_string().as_bytes()).unwrap();
            let output = python.wait_with_output().unwrap();
            concurrent.join().unwrap();
            serde_json::from_slice(&output.stdout)
                .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)))
        })
    }

    /// Waits until the function has worked on a segment for this long, and kills its process.
    fn kill_one(&self, name: &str, after: Duration) {
        let is_working = || self.functions.iter().any(|rie| rie.output().contains(r#""segment":"#));
        let started = Instant::now();
        while !is_working() {
            assert!(
                started.elapsed() < Duration::from_mins(2),
                "no segment was started: {}",
                self.functions[0].output()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        std::thread::sleep(after);
        let process = processes_of(name, &self.prefix).pop().expect("a function is running");
        let id = process.file_name().unwrap().to_str().unwrap();
        assert!(Command::new("kill").args(["-KILL", id]).status().unwrap().success());
    }

    async fn check(&self, rows: &[Specimen]) {
        let left = scan(&Self::client().await, &self.table()).await.unwrap();
        let wrong = misjudged(rows, &left);
        assert!(wrong.is_empty(), "{wrong:#?}");
        assert_eq!(self.lease().await, None, "the lease was not released");
    }

    /// The holder of the lease.
    async fn lease(&self) -> Option<Value> {
        let ours = Self::client().await.query().table_name(self.table()).key_condition_expression("id = :owner");
        let ours = ours.expression_attribute_values(":owner", AttributeValue::S(JANITOR_OWNER.to_owned()));
        let ours = ours.send().await.unwrap().items.unwrap_or_default();
        let lease = ours.iter().find(|row| row["bucket_name"].as_s().unwrap().ends_with(":lease"))?;
        let lease: Value = serde_json::from_str(lease["data"].as_s().unwrap()).unwrap();
        Some(lease["holder"].clone())
    }

    async fn keys(&self) -> BTreeSet<(String, String)> {
        let rows = scan(&Self::client().await, &self.table()).await.unwrap();
        rows.into_iter().map(|(owner, sort, _)| (owner, sort)).collect()
    }
}

fn now() -> i64 {
    EpochSeconds::from(SystemTime::now()).get()
}

fn input(job: &str, segments: u16) -> Value {
    json!({"job": job, "segments": segments, "concurrency": CONCURRENCY})
}

fn tasks(execution: &Value) -> &Vec<Value> {
    execution["tasks"].as_array().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_state_machine_finishes_what_one_run_cannot() {
    let rows = settled(now(), copies(), 1);
    let dead = rows.iter().filter(|row| row.fate == Fate::Deleted).count() as u64;
    // A write rate too low to finish a segment within one task.
    let (timeout, units) = if rows.len() > 100_000 { (20, "8000") } else { (3, "1000") };
    let stage = Stage::new("daily-cleanup", &rows, timeout, units).await;
    let started = Instant::now();
    // In the middle of its time, while it deletes.
    let half = Duration::from_secs(u64::from(timeout)) / 2;
    let execution = stage.execute("run", &input("daily-cleanup", 4), || stage.kill_one("daily-cleanup", half));
    let seconds = started.elapsed().as_secs_f64();
    let failures: Vec<&Value> =
        tasks(&execution).iter().filter(|task| task["failed"] == true).map(|task| &task["answered"]).collect();
    assert_eq!(execution["status"], "SUCCEEDED", "{} {} after {failures:?}", execution["error"], execution["cause"]);
    let output = &execution["output"];
    assert_eq!((&output["complete"], &output["segments"]), (&json!(true), &json!(4)), "{output}");
    stage.check(&rows).await;

    let is_incomplete = |task: &&Value| task["answered"]["report"]["outcome"] == "out-of-time";
    let incomplete = tasks(&execution).iter().filter(is_incomplete).count();
    assert!(!failures.is_empty(), "the task whose process was killed did not fail");
    assert!(incomplete > 0, "no task hit its deadline");
    assert_eq!(execution["most_at_once"], CONCURRENCY, "the number of concurrent segments is wrong");
    // The deletes of the killed task are not counted.
    let deleted = output["totals"]["deleted"].as_u64().unwrap();
    assert!(deleted <= dead && deleted > dead / 2, "{deleted} of {dead}");
    let text = execution.to_string();
    let windows: HashSet<&[u8]> = text.as_bytes().windows(31).collect();
    let leaked = |row: &&Specimen| row.name.as_bytes().get(..31).is_some_and(|prefix| windows.contains(prefix));
    assert_eq!(rows.iter().filter(leaked).count(), 0, "tokens in the data of the state machine");
    println!(
        "{} rows, {dead} dead: {} tasks, {} failed, {incomplete} incomplete, {deleted} deletes reported, {seconds:.0} s; totals {}",
        rows.len(),
        tasks(&execution).len(),
        failures.len(),
        output["totals"]
    );

    // The next daily run finds nothing left to do.
    let after = stage.functions[0].invoke(&json!({}));
    assert_eq!(after.payload["report"]["rows"]["deleted"], 0, "{}", after.payload);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_state_machine_repairs_the_indexes() {
    // Half a day away from any second that changes a verdict.
    let rows = all_kinds(now() + 43_977, 8, 3);
    let whole = Testbed::with(EngineKind::Embedded, &rows).await;
    whole.function.index_repair(json!({}), EpochSeconds::new(now()), None).await.unwrap();
    let stage = Stage::new("index-repair", &rows, 60, "100000").await;
    let execution = stage.execute("run", &input("index-repair", 3), || ());
    assert_eq!(
        (&execution["status"], &execution["output"]["complete"]),
        (&json!("SUCCEEDED"), &json!(true)),
        "{execution}"
    );
    let ours = |owner: &str| owner == JANITOR_OWNER;
    let left: BTreeSet<_> = stage.keys().await.into_iter().filter(|row| !ours(&row.0)).collect();
    let expected: BTreeSet<_> = whole.keys().await.into_iter().filter(|row| !ours(&row.0)).collect();
    assert!(expected.len() < rows.len());
    assert_eq!(left, expected);
}

/// Invalid input changes nothing, above all if it was meant as a dry run.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_execution_reports_why_and_changes_nothing() {
    let rows = settled(now(), 2, 1);
    let stage = Stage::new("daily-cleanup", &rows, 60, "100000").await;
    let before = stage.keys().await;
    for (input, error, cause, invocations) in [
        (json!({"settings": {"max_deletes": 5}}), "Refused", "MAX_DELETES", 1),
        (json!({"mode": "dry-run"}), "Configuration", "mode is not a field of its input", 1),
        (json!({"setings": {"mode": "dry-run"}}), "Configuration", "setings is not a field of its input", 1),
        (json!({"function": "another"}), "Configuration", "function is not a field of its input", 1),
        (json!({"settings": {"mod": "dry-run"}}), "Configuration", "mod is not a setting", 1),
        (json!({"concurrency": 65}), "Configuration", "concurrency must be from 1 to 64", 1),
        (json!({"job": "audit"}), "Configuration", "job must be", 0),
    ] {
        let execution = stage.execute("run-inline", &input, || ());
        assert_eq!(
            (&execution["status"], &execution["error"]),
            (&json!("FAILED"), &json!(error)),
            "{input}: {execution}"
        );
        assert!(execution["cause"].as_str().unwrap().contains(cause), "{input}: {execution}");
        assert_eq!(tasks(&execution).len(), invocations, "a refused task was retried: {execution}");
        assert_eq!(stage.keys().await, before, "{input}");
    }
}

/// A failed segment fails the execution. Another segment may still be running, so the lease is not free at once.
#[tokio::test(flavor = "multi_thread")]
async fn an_execution_whose_segment_keeps_failing_recalls_the_lease() {
    let rows = settled(now(), 2, 1);
    let denied = r#"{"__type": "com.amazon.coral.service#AccessDeniedException", "Message": "no"}"#;
    let proxy = Proxy::start(engine(EngineKind::Embedded).endpoint(), move |request| {
        if request.operation == "BatchExecuteStatement" {
            proxy::Fate::Answer(400, denied.to_owned())
        } else {
            proxy::Fate::Forward
        }
    });
    let stage = Stage::at_endpoint(proxy.endpoint(), "daily-cleanup", &rows, 60, "100000").await;
    let execution = stage.execute("run-inline", &input("daily-cleanup", 2), || ());
    assert_eq!((&execution["status"], &execution["error"]), (&json!("FAILED"), &json!("SegmentFailed")), "{execution}");
    let arn = "arn:aws:states:eu-west-1:123456789012:execution:backlog:execution-1";
    assert_eq!(stage.lease().await, Some(json!(format!("{arn} (ended)"))));
    let daily = stage.functions[0].invoke(&json!({}));
    assert_eq!(daily.payload["report"]["outcome"], "lease-held", "{}", daily.payload);
}

/// Another execution may use all of the function's concurrency, for as long as a segment runs.
#[tokio::test(flavor = "multi_thread")]
async fn an_execution_waits_longer_for_concurrency_than_for_a_fault() {
    let rows = settled(now(), 2, 1);
    let stage = Stage::new("daily-cleanup", &rows, 60, "100000").await;
    let execution = stage.execute_throttled("run", &input("daily-cleanup", 2), 15, || ());
    assert_eq!(execution["status"], "SUCCEEDED", "{execution}");
    stage.check(&rows).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_execution_succeeds_and_writes_nothing() {
    let proxy = Proxy::start(engine(EngineKind::Embedded).endpoint(), |_| proxy::Fate::Forward);
    let stage = Stage::at_endpoint(proxy.endpoint(), "daily-cleanup", &settled(now(), 2, 1), 60, "100000").await;
    let clock = RunClock::start(EpochSeconds::new(now()), None);
    let table = Dynamo::new(Stage::client().await, stage.table(), None, clock);
    pause::pause(&table, &clock, 3_600, Some("restoring a backup")).await.unwrap();
    let before = bed::items::scan(&Stage::client().await, &stage.table()).await;
    let execution = stage.execute("run", &input("daily-cleanup", 4), || ());
    assert_eq!(execution["status"], "SUCCEEDED", "{execution}");
    let output = &execution["output"];
    assert_eq!((&output["complete"], &output["paused"]), (&json!(false), &json!(true)), "{output}");
    assert_eq!(tasks(&execution).len(), 2, "start and finish: {execution}");
    assert_eq!(bed::items::scan(&Stage::client().await, &stage.table()).await, before);
    let reads = ["DescribeTable", "BatchGetItem", "GetItem", "Query"];
    assert!(proxy.seen().iter().all(|operation| reads.contains(&operation.as_str())), "{:?}", proxy.seen());
}

/// A failed execution raises an alarm; the output of one that succeeded is not read.
#[tokio::test(flavor = "multi_thread")]
async fn an_execution_that_skipped_rows_fails() {
    let rows = settled(now(), 2, 1);
    let mut rejections = 1;
    let proxy = Proxy::start(engine(EngineKind::Embedded).endpoint(), move |request| {
        if request.operation == "BatchExecuteStatement" && rejections > 0 {
            rejections -= 1;
            proxy::Fate::PartialBatch("ValidationError")
        } else {
            proxy::Fate::Forward
        }
    });
    let stage = Stage::at_endpoint(proxy.endpoint(), "daily-cleanup", &rows, 60, "100000").await;
    let execution = stage.execute("run", &input("daily-cleanup", 2), || ());
    assert_eq!((&execution["status"], &execution["error"]), (&json!("FAILED"), &json!("Incomplete")), "{execution}");
    let last = &tasks(&execution).last().unwrap()["answered"];
    assert!(last["totals"]["skipped"].as_u64().unwrap() > 0, "{last}");
    assert_eq!(stage.lease().await, None, "every segment was done, and the lease is held");
    let daily = stage.functions[0].invoke(&json!({}));
    assert_eq!(daily.payload["report"]["complete"], true, "{}", daily.payload);
    stage.check(&rows).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_execution_whose_table_is_deleted_reports_why_it_failed() {
    let stage = Stage::new("daily-cleanup", &settled(now(), 2, 1), 60, "100000").await;
    // The table is deleted during the execution: the segments fail in every attempt, and so does the last step.
    let execution = stage.execute("run-inline", &input("daily-cleanup", 2), || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let client = runtime.block_on(Stage::client());
        while !stage.functions[0].output().contains("backlog started")
            && !stage.functions[1].output().contains("backlog started")
        {
            std::thread::sleep(Duration::from_millis(1));
        }
        runtime.block_on(async { client.delete_table().table_name(stage.table()).send().await.unwrap() });
    });
    assert_eq!((&execution["status"], &execution["error"]), (&json!("FAILED"), &json!("SegmentFailed")), "{execution}");
    assert!(execution["cause"].as_str().unwrap().contains("does not exist"), "{}", execution["cause"]);
}
