//! The state machine of `template.yaml`, run by an interpreter of the States Language with the real functions as its tasks:
//! one task's process is killed, others are cut off by their time, and in the end everything is done and nothing else.
//!
//! Of 20,000 rows or so; `make backlog` runs the same on a million.

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

const ROWS_A_COPY: usize = 242;

/// How many rows: `BACKLOG_ROWS`, or few enough for a test.
fn copies() -> usize {
    let rows = std::env::var("BACKLOG_ROWS").map_or(20_000, |rows| rows.parse().expect("BACKLOG_ROWS is a number"));
    (rows / ROWS_A_COPY).max(1)
}

/// A table, and a function under as many emulators as parts may run side by side.
struct Stage {
    prefix: String,
    functions: Vec<Rie>,
}

const SIDE_BY_SIDE: usize = 2;

impl Stage {
    async fn set(name: &str, rows: &[Specimen], timeout_seconds: u32, write_units: &str) -> Self {
        Self::set_behind(engine(EngineKind::Embedded).endpoint(), name, rows, timeout_seconds, write_units).await
    }

    /// The same, with functions that reach the table by another way than the test does.
    async fn set_behind(
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
        let functions = (0..SIDE_BY_SIDE).map(|_| Rie::start(&function(name), &environment, timeout_seconds)).collect();
        Self { prefix, functions }
    }

    fn table(&self) -> String {
        format!("{}_attributes", self.prefix)
    }

    /// A new one each time: the engine closes a connection that was idle for as long as an execution takes.
    async fn client() -> aws_sdk_dynamodb::Client {
        bed::tables::client(engine(EngineKind::Embedded).endpoint()).await
    }

    /// Runs the state machine; what the interpreter tells of it. `meanwhile` happens beside.
    fn execute(&self, how: &str, input: &Value, meanwhile: impl FnOnce() + Send) -> Value {
        self.execute_throttled(how, input, 0, meanwhile)
    }

    /// The same, with no room for the first so many tasks.
    fn execute_throttled(&self, how: &str, input: &Value, throttles: u32, meanwhile: impl FnOnce() + Send) -> Value {
        std::thread::scope(|scope| {
            let beside = scope.spawn(meanwhile);
            let mut python = keep_bytecode(&mut Command::new(tool("venv-sam/bin/python")))
                .arg(repository_root().join("tests/python/state_machine.py"))
                .arg(how)
                .args(self.functions.iter().map(|rie| rie.port().to_string()))
                .env("THROTTLES", throttles.to_string())
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("python can be started");
            python.stdin.take().unwrap().write_all(input.to_string().as_bytes()).unwrap();
            let output = python.wait_with_output().unwrap();
            beside.join().unwrap();
            serde_json::from_slice(&output.stdout)
                .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)))
        })
    }

    /// Waits until the function has worked on a part for so long, and kills its process.
    fn kill_one(&self, name: &str, after: Duration) {
        let works = || self.functions.iter().any(|rie| rie.output().contains(r#""segment":"#));
        let began = Instant::now();
        while !works() {
            assert!(began.elapsed() < Duration::from_mins(2), "no part was begun: {}", self.functions[0].output());
            std::thread::sleep(Duration::from_millis(20));
        }
        std::thread::sleep(after);
        let process = processes_of(name, &self.prefix).pop().expect("a part is being worked on");
        let id = process.file_name().unwrap().to_str().unwrap();
        assert!(Command::new("kill").args(["-KILL", id]).status().unwrap().success());
    }

    async fn check(&self, rows: &[Specimen]) {
        let left = scan(&Self::client().await, &self.table()).await.unwrap();
        let wrong = misjudged(rows, &left);
        assert!(wrong.is_empty(), "{wrong:#?}");
        assert_eq!(self.lease().await, None, "the lease was not given back");
    }

    /// Who holds the lease.
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
    json!({"job": job, "segments": segments, "concurrency": SIDE_BY_SIDE})
}

fn tasks(told: &Value) -> &Vec<Value> {
    told["tasks"].as_array().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_state_machine_finishes_what_one_run_cannot() {
    let rows = settled(now(), copies(), 1);
    let dead = rows.iter().filter(|row| row.fate == Fate::Deleted).count() as u64;
    // A pace at which no segment can be finished in the time that a task has.
    let (timeout, units) = if rows.len() > 100_000 { (20, "8000") } else { (3, "1000") };
    let stage = Stage::set("daily-cleanup", &rows, timeout, units).await;
    let began = Instant::now();
    // In the middle of its time, and so of its deletes.
    let half = Duration::from_secs(u64::from(timeout)) / 2;
    let told = stage.execute("run", &input("daily-cleanup", 4), || stage.kill_one("daily-cleanup", half));
    let seconds = began.elapsed().as_secs_f64();
    let failures: Vec<&Value> =
        tasks(&told).iter().filter(|task| task["failed"] == true).map(|task| &task["answered"]).collect();
    assert_eq!(told["status"], "SUCCEEDED", "{} {} after {failures:?}", told["error"], told["cause"]);
    let output = &told["output"];
    assert_eq!((&output["complete"], &output["segments"]), (&json!(true), &json!(4)), "{output}");
    stage.check(&rows).await;

    let cut_off = |task: &&Value| task["answered"]["report"]["outcome"] == "out-of-time";
    let cut_off = tasks(&told).iter().filter(cut_off).count();
    assert!(!failures.is_empty(), "the task whose process was killed did not fail");
    assert!(cut_off > 0, "no task was cut off");
    assert_eq!(told["most_at_once"], SIDE_BY_SIDE, "so many parts side by side, and no more");
    // What a task had deleted when it was killed, nobody could tell any more.
    let deleted = output["totals"]["deleted"].as_u64().unwrap();
    assert!(deleted <= dead && deleted > dead / 2, "{deleted} of {dead}");
    let text = told.to_string();
    let passages: HashSet<&[u8]> = text.as_bytes().windows(31).collect();
    let leaked = |row: &&Specimen| row.name.as_bytes().get(..31).is_some_and(|head| passages.contains(head));
    assert_eq!(rows.iter().filter(leaked).count(), 0, "tokens in what the state machine has seen");
    println!(
        "{} rows, {dead} dead: {} tasks, {} failed, {cut_off} cut off, {deleted} deletes told, {seconds:.0} s; totals {}",
        rows.len(),
        tasks(&told).len(),
        failures.len(),
        output["totals"]
    );

    // The next daily run finds nothing left to do.
    let after = stage.functions[0].invoke(&json!({}));
    assert_eq!(after.payload["report"]["rows"]["deleted"], 0, "{}", after.payload);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_state_machine_repairs_the_indexes() {
    // Half a day from any second that decides.
    let rows = all_kinds(now() + 43_977, 8, 3);
    let whole = Testbed::with(EngineKind::Embedded, &rows).await;
    whole.function.index_repair(json!({}), EpochSeconds::new(now()), None).await.unwrap();
    let stage = Stage::set("index-repair", &rows, 60, "100000").await;
    let told = stage.execute("run", &input("index-repair", 3), || ());
    assert_eq!((&told["status"], &told["output"]["complete"]), (&json!("SUCCEEDED"), &json!(true)), "{told}");
    let ours = |owner: &str| owner == JANITOR_OWNER;
    let left: BTreeSet<_> = stage.keys().await.into_iter().filter(|row| !ours(&row.0)).collect();
    let expected: BTreeSet<_> = whole.keys().await.into_iter().filter(|row| !ours(&row.0)).collect();
    assert!(expected.len() < rows.len());
    assert_eq!(left, expected);
}

/// What must not begin changes nothing: least of all by an input that was meant as a dry run.
#[tokio::test(flavor = "multi_thread")]
async fn an_execution_that_must_not_begin_says_why_and_touches_nothing() {
    let rows = settled(now(), 2, 1);
    let stage = Stage::set("daily-cleanup", &rows, 60, "100000").await;
    let before = stage.keys().await;
    for (input, error, cause, asked) in [
        (json!({"settings": {"max_deletes": 5}}), "Refused", "MAX_DELETES", 1),
        (json!({"mode": "dry-run"}), "Configuration", "mode is not a field of its input", 1),
        (json!({"setings": {"mode": "dry-run"}}), "Configuration", "setings is not a field of its input", 1),
        (json!({"function": "another"}), "Configuration", "function is not a field of its input", 1),
        (json!({"settings": {"mod": "dry-run"}}), "Configuration", "mod is not a setting", 1),
        (json!({"concurrency": 65}), "Configuration", "concurrency must be from 1 to 64", 1),
        (json!({"job": "audit"}), "Configuration", "job must be", 0),
    ] {
        let told = stage.execute("run-inline", &input, || ());
        assert_eq!((&told["status"], &told["error"]), (&json!("FAILED"), &json!(error)), "{input}: {told}");
        assert!(told["cause"].as_str().unwrap().contains(cause), "{input}: {told}");
        assert_eq!(tasks(&told).len(), asked, "what is refused is not tried again: {told}");
        assert_eq!(stage.keys().await, before, "{input}");
    }
}

/// A part that cannot go on fails the execution. Another part may be at work then, so the lease is not free at once.
#[tokio::test(flavor = "multi_thread")]
async fn an_execution_whose_part_fails_for_good_recalls_the_lease() {
    let rows = settled(now(), 2, 1);
    let denied = r#"{"__type": "com.amazon.coral.service#AccessDeniedException", "Message": "no"}"#;
    let proxy = Proxy::start(engine(EngineKind::Embedded).endpoint(), move |request| {
        if request.operation == "BatchExecuteStatement" {
            proxy::Fate::Answer(400, denied.to_owned())
        } else {
            proxy::Fate::Forward
        }
    });
    let stage = Stage::set_behind(proxy.endpoint(), "daily-cleanup", &rows, 60, "100000").await;
    let told = stage.execute("run-inline", &input("daily-cleanup", 2), || ());
    assert_eq!((&told["status"], &told["error"]), (&json!("FAILED"), &json!("SegmentFailed")), "{told}");
    let execution = "arn:aws:states:eu-west-1:123456789012:execution:backlog:execution-1";
    assert_eq!(stage.lease().await, Some(json!(format!("{execution} (ended)"))));
    let daily = stage.functions[0].invoke(&json!({}));
    assert_eq!(daily.payload["report"]["outcome"], "lease-held", "{}", daily.payload);
}

/// Another execution may have all of the function's concurrency, for as long as a part runs.
#[tokio::test(flavor = "multi_thread")]
async fn an_execution_waits_for_room_longer_than_for_a_fault() {
    let rows = settled(now(), 2, 1);
    let stage = Stage::set("daily-cleanup", &rows, 60, "100000").await;
    let told = stage.execute_throttled("run", &input("daily-cleanup", 2), 15, || ());
    assert_eq!(told["status"], "SUCCEEDED", "{told}");
    stage.check(&rows).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_execution_ends_well_and_writes_nothing() {
    let proxy = Proxy::start(engine(EngineKind::Embedded).endpoint(), |_| proxy::Fate::Forward);
    let stage = Stage::set_behind(proxy.endpoint(), "daily-cleanup", &settled(now(), 2, 1), 60, "100000").await;
    let clock = RunClock::start(EpochSeconds::new(now()), None);
    let table = Dynamo::new(Stage::client().await, stage.table(), None, clock);
    pause::pause(&table, &clock, 3_600, Some("restoring a backup")).await.unwrap();
    let before = bed::items::scan(&Stage::client().await, &stage.table()).await;
    let told = stage.execute("run", &input("daily-cleanup", 4), || ());
    assert_eq!(told["status"], "SUCCEEDED", "{told}");
    let output = &told["output"];
    assert_eq!((&output["complete"], &output["paused"]), (&json!(false), &json!(true)), "{output}");
    assert_eq!(tasks(&told).len(), 2, "start and finish: {told}");
    assert_eq!(bed::items::scan(&Stage::client().await, &stage.table()).await, before);
    let reads = ["DescribeTable", "BatchGetItem", "GetItem", "Query"];
    assert!(proxy.seen().iter().all(|operation| reads.contains(&operation.as_str())), "{:?}", proxy.seen());
}

/// Nobody looks at the output of an execution that succeeded; of one that failed there is an alarm.
#[tokio::test(flavor = "multi_thread")]
async fn an_execution_that_skipped_rows_is_not_one_that_succeeded() {
    let rows = settled(now(), 2, 1);
    let mut refusals = 1;
    let proxy = Proxy::start(engine(EngineKind::Embedded).endpoint(), move |request| {
        if request.operation == "BatchExecuteStatement" && refusals > 0 {
            refusals -= 1;
            proxy::Fate::PartialBatch("ValidationError")
        } else {
            proxy::Fate::Forward
        }
    });
    let stage = Stage::set_behind(proxy.endpoint(), "daily-cleanup", &rows, 60, "100000").await;
    let told = stage.execute("run", &input("daily-cleanup", 2), || ());
    assert_eq!((&told["status"], &told["error"]), (&json!("FAILED"), &json!("Incomplete")), "{told}");
    let last = &tasks(&told).last().unwrap()["answered"];
    assert!(last["totals"]["skipped"].as_u64().unwrap() > 0, "{last}");
    assert_eq!(stage.lease().await, None, "every part was through");
    let daily = stage.functions[0].invoke(&json!({}));
    assert_eq!(daily.payload["report"]["complete"], true, "{}", daily.payload);
    stage.check(&rows).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_execution_whose_table_goes_away_says_why_it_failed() {
    let stage = Stage::set("daily-cleanup", &settled(now(), 2, 1), 60, "100000").await;
    // The table goes away in the middle: the parts fail as often as they may, and so does the last step.
    let told = stage.execute("run-inline", &input("daily-cleanup", 2), || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let client = runtime.block_on(Stage::client());
        while !stage.functions[0].output().contains("backlog started")
            && !stage.functions[1].output().contains("backlog started")
        {
            std::thread::sleep(Duration::from_millis(1));
        }
        runtime.block_on(async { client.delete_table().table_name(stage.table()).send().await.unwrap() });
    });
    assert_eq!((&told["status"], &told["error"]), (&json!("FAILED"), &json!("SegmentFailed")), "{told}");
    assert!(told["cause"].as_str().unwrap().contains("does not exist"), "{}", told["cause"]);
}
