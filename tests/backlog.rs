//! The state machine of `template.yaml`, run by an interpreter of the States Language with the real functions as its tasks:
//! one task's process is killed, others are cut off by their time, and in the end everything is done and nothing else.
//!
//! Of 20,000 rows or so; `make backlog` runs the same on a million.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use janitor::demo::{misjudged, scan, write_rows};
use janitor::fixture::{Fate, Specimen, all_kinds};
use serde_json::{Value, json};
use shared::bucket::JANITOR_OWNER;
use shared::time::EpochSeconds;
use tests::bed::Bed;
use tests::engine::{EngineKind, shared as engine};
use tests::lambda::{Rie, function};
use tests::process::{processes_of, repository_root, tool};
use tests::tables::new_table;

const ROWS_A_COPY: usize = 242;

/// How many rows: `BACKLOG_ROWS`, or few enough for a test.
fn copies() -> usize {
    let rows = std::env::var("BACKLOG_ROWS").map_or(20_000, |rows| rows.parse().expect("BACKLOG_ROWS is a number"));
    (rows / ROWS_A_COPY).max(1)
}

/// A table, and a function under as many emulators as parts may run side by side.
struct Stage {
    client: aws_sdk_dynamodb::Client,
    prefix: String,
    functions: Vec<Rie>,
}

const SIDE_BY_SIDE: usize = 2;

impl Stage {
    async fn set(name: &str, rows: &[Specimen], timeout_seconds: u32, write_units: &str) -> Self {
        let endpoint = engine(EngineKind::Embedded).endpoint();
        let (client, prefix) = new_table(endpoint).await;
        write_rows(&client, &format!("{prefix}_attributes"), rows).await.unwrap();
        let environment = [
            ("AWS_DB_PREFIX", prefix.as_str()),
            ("AWS_DB_HOST", endpoint),
            ("MAX_WRITE_UNITS_PER_SECOND", write_units),
            ("MAX_READ_UNITS_PER_SECOND", "1000000"),
        ];
        let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let functions = (0..SIDE_BY_SIDE).map(|_| Rie::start(&function(name), &environment, timeout_seconds)).collect();
        Self { client, prefix, functions }
    }

    /// Runs the state machine; what the interpreter tells of it. `meanwhile` happens beside.
    fn execute(&self, how: &str, input: &Value, meanwhile: impl FnOnce() + Send) -> Value {
        std::thread::scope(|scope| {
            let beside = scope.spawn(meanwhile);
            let mut python = Command::new(tool("venv-sam/bin/python"))
                .arg(repository_root().join("tests/python/state_machine.py"))
                .arg(how)
                .args(self.functions.iter().map(|rie| rie.port().to_string()))
                .env("PYTHONDONTWRITEBYTECODE", "1")
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

    /// Waits until the function works on a part, and kills its process.
    fn kill_one(&self, name: &str) {
        let works = || self.functions.iter().any(|rie| rie.output().contains(r#""segment":"#));
        let began = Instant::now();
        while !works() {
            assert!(began.elapsed() < Duration::from_mins(2), "no part was begun: {}", self.functions[0].output());
            std::thread::sleep(Duration::from_millis(20));
        }
        std::thread::sleep(Duration::from_millis(300));
        let process = processes_of(name, &self.prefix).pop().expect("a part is being worked on");
        let id = process.file_name().unwrap().to_str().unwrap();
        assert!(Command::new("kill").args(["-KILL", id]).status().unwrap().success());
    }

    async fn check(&self, rows: &[Specimen]) {
        let left = scan(&self.client, &format!("{}_attributes", self.prefix)).await.unwrap();
        let wrong = misjudged(rows, &left);
        assert!(wrong.is_empty(), "{wrong:#?}");
        let holds_lease = left.iter().any(|(owner, sort, _)| owner == JANITOR_OWNER && sort.ends_with(":lease"));
        assert!(!holds_lease, "the lease was not given back");
    }
}

fn now() -> i64 {
    EpochSeconds::from(SystemTime::now()).get()
}

/// Rows whose fate does not hang on the second in which they are judged: those that are dead by now, and those that will
/// still be alive tomorrow.
fn settled(copies: usize) -> Vec<Specimen> {
    let dead = all_kinds(now(), copies, 1).into_iter().filter(|row| row.fate == Fate::Goes);
    let alive = all_kinds(now() + 86_400, copies, 2).into_iter().filter(|row| row.fate == Fate::Stays);
    dead.chain(alive).collect()
}

fn input(job: &str, segments: u16) -> Value {
    json!({"job": job, "segments": segments, "side_by_side": SIDE_BY_SIDE})
}

fn tasks(told: &Value) -> &Vec<Value> {
    told["tasks"].as_array().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_state_machine_finishes_what_one_run_cannot() {
    let rows = settled(copies());
    let dead = rows.iter().filter(|row| row.fate == Fate::Goes).count() as u64;
    // A pace at which no segment can be finished in the time that a task has.
    let (timeout, units) = if rows.len() > 100_000 { (20, "8000") } else { (3, "1000") };
    let stage = Stage::set("daily-cleanup", &rows, timeout, units).await;
    let began = Instant::now();
    let told = stage.execute("run", &input("daily-cleanup", 4), || stage.kill_one("daily-cleanup"));
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
    // What a task had deleted when it was killed, nobody could tell any more.
    let deleted = output["totals"]["deleted"].as_u64().unwrap();
    assert!(deleted <= dead && deleted > dead / 2, "{deleted} of {dead}");
    let text = told.to_string();
    let leaked = rows.iter().filter(|row| row.name.len() > 30 && text.contains(&row.name)).count();
    assert_eq!(leaked, 0, "tokens in what the state machine has seen");
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
    let whole = Bed::with(EngineKind::Embedded, &rows).await;
    whole.function.index_repair(json!({}), EpochSeconds::new(now()), None).await.unwrap();
    let stage = Stage::set("index-repair", &rows, 60, "100000").await;
    let told = stage.execute("run", &input("index-repair", 3), || ());
    assert_eq!((&told["status"], &told["output"]["complete"]), (&json!("SUCCEEDED"), &json!(true)), "{told}");
    let left = scan(&stage.client, &format!("{}_attributes", stage.prefix)).await.unwrap();
    let ours = |owner: &str| owner == JANITOR_OWNER;
    let left: BTreeSet<_> =
        left.into_iter().map(|(owner, sort, _)| (owner, sort)).filter(|row| !ours(&row.0)).collect();
    let expected: BTreeSet<_> = whole.keys().await.into_iter().filter(|row| !ours(&row.0)).collect();
    assert!(expected.len() < rows.len());
    assert_eq!(left, expected);
}

/// A part that cannot go on fails the execution, which gives the lease back; what it was not allowed to begin changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn an_execution_that_fails_says_why_and_holds_nothing() {
    let rows = settled(2);
    let stage = Stage::set("daily-cleanup", &rows, 60, "100000").await;
    let mut refused = input("daily-cleanup", 2);
    refused["settings"] = json!({"max_deletes": 5});
    let told = stage.execute("run-inline", &refused, || ());
    assert_eq!((&told["status"], &told["error"]), (&json!("FAILED"), &json!("Refused")), "{told}");
    assert_eq!(tasks(&told).len(), 1, "what is refused is not tried again: {told}");
    let told = stage.execute("run-inline", &json!({"job": "audit"}), || ());
    assert_eq!((&told["status"], &told["error"]), (&json!("FAILED"), &json!("Configuration")), "{told}");

    // The table goes away in the middle: the parts fail as often as they may, and so does the last step.
    let table = format!("{}_attributes", stage.prefix);
    let told = stage.execute("run-inline", &input("daily-cleanup", 2), || {
        while !stage.functions[0].output().contains("execution begins")
            && !stage.functions[1].output().contains("execution begins")
        {
            std::thread::sleep(Duration::from_millis(1));
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { stage.client.delete_table().table_name(&table).send().await.unwrap() });
    });
    assert_eq!((&told["status"], &told["error"]), (&json!("FAILED"), &json!("SegmentFailed")), "{told}");
    assert!(told["cause"].as_str().unwrap().contains("does not exist"), "{}", told["cause"]);
}
