//! Backlog executions: the segments together do what one run does, under one lease, wherever each of them is interrupted.

use bed::Invocations as _;
use std::collections::BTreeMap;
use std::time::Duration;

use bed::Testbed;
use bed::engine::EngineKind;
use bed::fixture::{Fate, all_kinds};
use bed::tables::scan;
use futures_util::StreamExt as _;
use jobs::run::RunError;
use jobs::run::report::Outcome;
use model::rows::NOW;
use serde_json::{Value, json};
use shared::bucket::JANITOR_OWNER;
use shared::time::EpochSeconds;

bed::on_both_engines!(
    segments_of_the_cleanup_do_together_what_one_run_does,
    segments_of_the_repair_do_together_what_one_run_does,
    a_segment_that_is_interrupted_repeatedly_misses_nothing,
    a_dry_execution_reports_what_the_real_one_deletes_and_writes_nothing,
    an_execution_has_one_lease_and_leaves_a_complete_run,
    a_failed_execution_recalls_its_lease_and_is_not_complete,
    an_execution_that_skipped_rows_releases_its_lease_and_is_not_complete,
    limits_apply_to_an_execution,
    limits_apply_to_a_segment_without_a_started_execution,
);

const COPIES: usize = 12;

#[derive(Clone, Copy, PartialEq)]
enum Job {
    Cleanup,
    Repair,
}

async fn invoke(bed: &Testbed, job: Job, event: Value, budget: Option<Duration>) -> Result<Value, RunError> {
    let now = EpochSeconds::new(NOW);
    match job {
        Job::Cleanup => bed.function.answer_daily_cleanup(event, now, budget).await,
        Job::Repair => bed.function.answer_index_repair(event, now, budget).await,
    }
}

fn start(name: &str, segments: u16, settings: &Value) -> Value {
    json!({"start": {"lease": name, "input": {"segments": segments, "concurrency": 2, "settings": settings}}})
}

/// Invokes the function until the segment is done, as the state machine does, and returns its result.
async fn run_segment(bed: &Testbed, job: Job, mut event: Value, budget: Option<Duration>) -> Value {
    loop {
        let answer = invoke(bed, job, event, budget).await.unwrap();
        assert_eq!(answer["next"].is_null(), answer["segment"]["done"] == true, "{answer}");
        if answer["next"].is_null() {
            return answer["segment"].clone();
        }
        event = answer["next"].clone();
    }
}

/// Starts an execution, runs its segments, `concurrency` at a time, finishes it, and returns the last answer.
///
/// Two segments at the same time may both delete a provider row that a token in each names, and count it: counts are exact only one at a time.
async fn execute(bed: &Testbed, job: Job, segments: u16, settings: &Value, concurrency: usize) -> Value {
    let started = invoke(bed, job, start("execution-1", segments, settings), None).await.unwrap();
    let parts = started["segments"].as_array().unwrap();
    let parts = parts.iter().map(|item| run_segment(bed, job, item["next"].clone(), None));
    let done: Vec<Value> = futures_util::stream::iter(parts).buffered(concurrency).collect().await;
    invoke(bed, job, json!({"finish": {"started": started["started"], "segments": done}}), None).await.unwrap()
}

/// The application's rows, without the janitor's.
async fn rows(bed: &Testbed) -> BTreeMap<(String, String), bool> {
    let all = scan(&bed.function.client, &bed.table).await.unwrap();
    all.into_iter().filter(|row| row.0 != JANITOR_OWNER).map(|(owner, sort, _)| ((owner, sort), true)).collect()
}

async fn check_segments(kind: EngineKind, job: Job) {
    let specimens = all_kinds(NOW, COPIES, 1);
    let whole = Testbed::with(kind, &specimens).await;
    let one_run = invoke(&whole, job, json!({}), None).await.unwrap();
    let expected = rows(&whole).await;
    assert!(expected.len() < specimens.len());
    for segments in [1, 2, 5, 64] {
        let bed = Testbed::with(kind, &specimens).await;
        let ended = execute(&bed, job, segments, &json!({}), 1).await;
        assert_eq!(rows(&bed).await, expected, "{segments} segments");
        assert_eq!(ended["complete"], true, "{ended}");
        let totals = &ended["totals"];
        assert_eq!(totals["deleted"], one_run["report"]["rows"]["deleted"], "{segments} segments: {ended}");
        assert_eq!(totals["read"], one_run["report"]["rows"]["read"], "{segments} segments: {ended}");
        assert_eq!((&totals["skipped"], &totals["lost_race"]), (&json!(0), &json!(0)));
        let found = one_run["report"]["findings"].as_object().into_iter().flatten().filter(|(_, n)| n.is_u64());
        assert_eq!(totals["found"], json!(found.collect::<BTreeMap<_, _>>()), "{segments} segments: {ended}");
    }
    let bed = Testbed::with(kind, &specimens).await;
    execute(&bed, job, 64, &json!({}), 64).await;
    assert_eq!(rows(&bed).await, expected, "64 concurrent segments");
}

async fn segments_of_the_cleanup_do_together_what_one_run_does(kind: EngineKind) {
    check_segments(kind, Job::Cleanup).await;
}

async fn segments_of_the_repair_do_together_what_one_run_does(kind: EngineKind) {
    check_segments(kind, Job::Repair).await;
}

async fn a_segment_that_is_interrupted_repeatedly_misses_nothing(kind: EngineKind) {
    let specimens = all_kinds(NOW, COPIES, 2);
    for job in [Job::Cleanup, Job::Repair] {
        let whole = Testbed::with(kind, &specimens).await;
        invoke(&whole, job, json!({}), None).await.unwrap();
        let bed = Testbed::with(kind, &specimens).await;
        let mut runs = 0;
        for segment in 0..3 {
            let event = json!({"segment": {"index": segment, "count": 3}, "max_deletes": 20});
            let part = run_segment(&bed, job, event, None).await;
            runs += part["totals"]["runs"].as_u64().unwrap();
        }
        assert!(runs > 6, "{runs} runs: too few interruptions");
        assert_eq!(rows(&bed).await, rows(&whole).await);
    }
}

async fn a_dry_execution_reports_what_the_real_one_deletes_and_writes_nothing(kind: EngineKind) {
    let specimens = all_kinds(NOW, COPIES, 3);
    for job in [Job::Cleanup, Job::Repair] {
        let bed = Testbed::with(kind, &specimens).await;
        let before = bed.keys().await;
        let dry = execute(&bed, job, 4, &json!({"mode": "dry-run"}), 1).await;
        assert_eq!(bed.keys().await, before);
        let real = execute(&bed, job, 4, &json!({}), 1).await;
        assert_eq!((&dry["totals"]["deleted"], &dry["mode"]), (&real["totals"]["deleted"], &json!("dry-run")));
        assert_eq!(dry["totals"]["deleted_in"], real["totals"]["deleted_in"]);
    }
}

async fn an_execution_has_one_lease_and_leaves_a_complete_run(kind: EngineKind) {
    let specimens = all_kinds(NOW, COPIES, 4);
    let bed = Testbed::with(kind, &specimens).await;
    let started = invoke(&bed, Job::Cleanup, start("execution-1", 2, &json!({})), None).await.unwrap();
    // No other run can start, but the same execution can repeat its start: the first answer may have been lost.
    let other = invoke(&bed, Job::Cleanup, start("execution-2", 2, &json!({})), None).await.unwrap_err();
    assert_eq!(other.kind(), "LeaseHeld", "{other}");
    let other = invoke(&bed, Job::Repair, json!({"segment": {"index": 0, "count": 1}}), None).await.unwrap_err();
    assert_eq!(other.kind(), "LeaseHeld", "{other}");
    let daily = bed.function.daily_cleanup(json!({}), EpochSeconds::new(NOW), None).await.unwrap();
    assert_eq!(daily.outcome, Outcome::LeaseHeld);
    invoke(&bed, Job::Cleanup, start("execution-1", 2, &json!({})), None).await.unwrap();
    let mut done = Vec::new();
    for item in started["segments"].as_array().unwrap() {
        done.push(run_segment(&bed, Job::Cleanup, item["next"].clone(), None).await);
        let daily = bed.function.daily_cleanup(json!({}), EpochSeconds::new(NOW), None).await.unwrap();
        assert_eq!(daily.outcome, Outcome::LeaseHeld, "the execution lost its lease between two segments");
    }
    let ended = invoke(&bed, Job::Cleanup, json!({"finish": {"started": started["started"], "segments": done}}), None)
        .await
        .unwrap();
    assert_eq!(ended["complete"], true);
    let dead = specimens.iter().filter(|row| row.fate == Fate::Deleted).count();
    assert_eq!(ended["totals"]["deleted"], dead);
    bed.check(&specimens).await;
    // It leaves the same state as a complete run.
    let measured = bed.function.metrics_emitter(json!({}), EpochSeconds::new(NOW + 60), None).await.unwrap();
    let measured = jobs::metrics::answer(&measured);
    assert!(measured.to_string().contains(r#""last_complete_age_seconds":60"#), "{measured}");
    let daily = bed.function.daily_cleanup(json!({}), EpochSeconds::new(NOW), None).await.unwrap();
    assert_eq!((daily.outcome, daily.counts.rows_deleted()), (Outcome::Complete, 0));
}

async fn a_failed_execution_recalls_its_lease_and_is_not_complete(kind: EngineKind) {
    let bed = Testbed::with(kind, &all_kinds(NOW, COPIES, 5)).await;
    let started = invoke(&bed, Job::Cleanup, start("execution-1", 2, &json!({})), None).await.unwrap();
    let first = run_segment(&bed, Job::Cleanup, started["segments"][0]["next"].clone(), None).await;
    for parts in [json!([]), json!([first]), json!([first, first])] {
        let ended = json!({"finish": {"started": started["started"], "segments": parts}});
        let ended = invoke(&bed, Job::Cleanup, ended, None).await.unwrap();
        assert_eq!(ended["complete"], false, "{ended}");
    }
    // Another segment may still be running: the lease is held until that one must have noticed.
    let late = invoke(&bed, Job::Cleanup, started["segments"][1]["next"].clone(), None).await.unwrap_err();
    assert_eq!(late.kind(), "LeaseHeld", "{late}");
    let daily = async |at| bed.function.daily_cleanup(json!({}), EpochSeconds::new(at), None).await.unwrap();
    assert_eq!(daily(NOW + 590).await.outcome, Outcome::LeaseHeld);
    let after = daily(NOW + 660).await;
    assert_eq!((after.outcome, after.resumed), (Outcome::Complete, false));
}

/// Skipped rows are left to the next run, which can start at once because every segment has finished.
async fn an_execution_that_skipped_rows_releases_its_lease_and_is_not_complete(kind: EngineKind) {
    let bed = Testbed::with(kind, &all_kinds(NOW, COPIES, 8)).await;
    let started = invoke(&bed, Job::Cleanup, start("execution-1", 1, &json!({})), None).await.unwrap();
    let mut done = run_segment(&bed, Job::Cleanup, started["segments"][0]["next"].clone(), None).await;
    done["totals"]["skipped"] = json!(1);
    let ended =
        invoke(&bed, Job::Cleanup, json!({"finish": {"started": started["started"], "segments": [done]}}), None)
            .await
            .unwrap();
    assert_eq!(ended["complete"], false, "{ended}");
    let measured = bed.function.metrics_emitter(json!({}), EpochSeconds::new(NOW + 60), None).await.unwrap();
    let measured = jobs::metrics::answer(&measured);
    assert_eq!(measured["report"]["runs"]["daily-cleanup"], Value::Null);
    let daily = bed.function.daily_cleanup(json!({}), EpochSeconds::new(NOW), None).await.unwrap();
    assert_eq!((daily.outcome, daily.counts.rows_deleted()), (Outcome::Complete, 0));
}

async fn limits_apply_to_an_execution(kind: EngineKind) {
    let bed = Testbed::with(kind, &all_kinds(NOW, COPIES, 6)).await;
    let before = bed.keys().await;
    for settings in [json!({"max_deletes": 10}), json!({"max_delete_share": 0.01})] {
        let error = invoke(&bed, Job::Cleanup, start("execution-1", 2, &settings), None).await.unwrap_err();
        assert_eq!(error.kind(), "Refused", "{error}");
        // A refused execution holds no lease.
        assert_eq!(bed.keys().await, before);
    }
    let part = json!({"segment": {"index": 0, "count": 2}, "max_delete_share": 0.01});
    assert_eq!(invoke(&bed, Job::Cleanup, part, None).await.unwrap_err().kind(), "Refused");
    assert_eq!(bed.keys().await, before);
    let ended = execute(&bed, Job::Cleanup, 2, &json!({"max_delete_share": 0.99}), 2).await;
    assert_eq!(ended["complete"], true);
}

/// The lease name in an event does not prove that the execution was started.
async fn limits_apply_to_a_segment_without_a_started_execution(kind: EngineKind) {
    let bed = Testbed::with(kind, &all_kinds(NOW, COPIES, 9)).await;
    let before = bed.keys().await;
    let part = |settings: Value| {
        let mut event = settings;
        event["segment"] = json!({"index": 0, "count": 1, "lease": "execution-1"});
        event
    };
    for mode in ["delete", "dry-run"] {
        let capped = part(json!({"max_deletes": 10, "mode": mode}));
        let error = invoke(&bed, Job::Cleanup, capped, None).await.unwrap_err();
        assert_eq!(error, RunError::MaxDeletesInBacklog);
    }
    let shared = part(json!({"max_delete_share": 0.01}));
    for _ in 0..2 {
        let error = invoke(&bed, Job::Cleanup, shared.clone(), None).await.unwrap_err();
        assert!(matches!(error, RunError::AboveShare { .. }), "{error}");
        assert_eq!(bed.keys().await, before, "a refused segment deleted rows or holds a lease");
    }
    // The share of a started execution is known: its segments do not determine it again.
    let started = invoke(&bed, Job::Cleanup, start("execution-1", 1, &json!({"max_delete_share": 0.99})), None).await;
    let started = started.unwrap();
    invoke(&bed, Job::Cleanup, shared, None).await.unwrap();
    assert_ne!(bed.keys().await, before);
    let parts = [run_segment(&bed, Job::Cleanup, started["segments"][0]["next"].clone(), None).await];
    let ended = json!({"finish": {"started": started["started"], "segments": parts}});
    assert_eq!(invoke(&bed, Job::Cleanup, ended, None).await.unwrap()["complete"], true);
}

/// The template's rule matches `start_backlog`, which is set by a run that hits its deadline after N consecutive incomplete runs.
#[tokio::test]
async fn consecutive_incomplete_cleanups_request_a_backlog_execution() {
    bed::clock::pause();
    let mut bed = Testbed::with(EngineKind::Embedded, &all_kinds(NOW, COPIES, 7)).await;
    // A write rate too low to finish in time.
    for (setting, value) in [("BACKLOG_AFTER_INCOMPLETE_RUNS", "2"), ("MAX_WRITE_UNITS_PER_SECOND", "20")] {
        bed.function.environment.insert(setting.to_owned(), value.to_owned());
    }
    let short = Some(Duration::from_secs(3));
    let run = async |bed: &Testbed, event: Value, budget: Option<Duration>| {
        invoke(bed, Job::Cleanup, event, budget).await.unwrap()["report"].clone()
    };
    let first = run(&bed, json!({}), short).await;
    assert_eq!(
        (&first["outcome"], &first["consecutive_incomplete_runs"]),
        (&json!("out-of-time"), &json!(1)),
        "{first}"
    );
    assert_eq!(first.get("start_backlog"), None);
    let capped = run(&bed, json!({"max_deletes": 1}), None).await;
    assert_eq!((&capped["outcome"], &capped["consecutive_incomplete_runs"]), (&json!("max-deletes"), &json!(2)));
    assert_eq!(capped.get("start_backlog"), None, "a limit is intended, and starts no backlog execution");
    let third = run(&bed, json!({}), short).await;
    assert_eq!((&third["consecutive_incomplete_runs"], &third["start_backlog"]), (&json!(3), &json!(true)), "{third}");
    // The execution would use the stack's settings: not the event's, and no limit.
    let own = run(&bed, json!({"reuse_window_seconds": 400_000}), short).await;
    assert_eq!((&own["outcome"], own.get("start_backlog")), (&json!("out-of-time"), None), "{own}");
    bed.function.environment.insert("MAX_DELETES".to_owned(), "1000000".to_owned());
    let capped = run(&bed, json!({}), short).await;
    assert_eq!((&capped["outcome"], capped.get("start_backlog")), (&json!("out-of-time"), None), "{capped}");
    let done = run(&bed, json!({"max_write_units_per_second": 100_000}), None).await;
    assert_eq!((&done["outcome"], done.get("start_backlog")), (&json!("complete"), None));
}
