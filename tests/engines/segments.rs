//! Work in parts: the segments together do what one run does, wherever each of them is cut off, under one lease.

use bed::Invocations as _;
use std::collections::BTreeMap;
use std::time::Duration;

use bed::Testbed;
use bed::engine::EngineKind;
use bed::fixture::{Fate, all_kinds};
use bed::tables::scan;
use jobs::run::RunError;
use jobs::run::report::Outcome;
use model::rows::NOW;
use serde_json::{Value, json};
use shared::bucket::JANITOR_OWNER;
use shared::time::EpochSeconds;

bed::on_both_engines!(
    segments_of_the_cleanup_do_together_what_one_run_does,
    segments_of_the_repair_do_together_what_one_run_does,
    a_part_that_is_cut_off_again_and_again_misses_nothing,
    a_dry_execution_finds_what_the_real_one_deletes_and_writes_nothing,
    an_execution_has_one_lease_and_leaves_a_complete_run,
    an_execution_that_failed_recalls_its_lease_and_completes_nothing,
    an_execution_that_skipped_rows_gives_its_lease_back_and_completes_nothing,
    ceilings_hold_for_an_execution,
    ceilings_hold_for_a_part_that_nobody_began,
);

const COPIES: usize = 12;

#[derive(Clone, Copy, PartialEq)]
enum Job {
    Cleanup,
    Repair,
}

async fn ask(bed: &Testbed, job: Job, event: Value, budget: Option<Duration>) -> Result<Value, RunError> {
    let now = EpochSeconds::new(NOW);
    match job {
        Job::Cleanup => bed.function.answer_daily_cleanup(event, now, budget).await,
        Job::Repair => bed.function.answer_index_repair(event, now, budget).await,
    }
}

fn begin(name: &str, segments: u16, settings: &Value) -> Value {
    json!({"start": {"lease": name, "input": {"segments": segments, "concurrency": 2, "settings": settings}}})
}

/// Asks on until the part is done, as the state machine does; what it came to.
async fn through(bed: &Testbed, job: Job, mut event: Value, budget: Option<Duration>) -> Value {
    loop {
        let answer = ask(bed, job, event, budget).await.unwrap();
        assert_eq!(answer["next"].is_null(), answer["segment"]["done"] == true, "{answer}");
        if answer["next"].is_null() {
            return answer["segment"].clone();
        }
        event = answer["next"].clone();
    }
}

/// Begins, does all parts at once, ends; the last answer.
async fn execute(bed: &Testbed, job: Job, segments: u16, settings: &Value) -> Value {
    let begun = ask(bed, job, begin("execution-1", segments, settings), None).await.unwrap();
    let parts = begun["segments"].as_array().unwrap();
    let done =
        futures_util::future::join_all(parts.iter().map(|item| through(bed, job, item["next"].clone(), None))).await;
    ask(bed, job, json!({"finish": {"started": begun["started"], "segments": done}}), None).await.unwrap()
}

/// The application's rows: ours are not among them.
async fn rows(bed: &Testbed) -> BTreeMap<(String, String), bool> {
    let all = scan(&bed.function.client, &bed.table).await.unwrap();
    all.into_iter().filter(|row| row.0 != JANITOR_OWNER).map(|(owner, sort, _)| ((owner, sort), true)).collect()
}

async fn together_as_one(kind: EngineKind, job: Job) {
    let specimens = all_kinds(NOW, COPIES, 1);
    let whole = Testbed::with(kind, &specimens).await;
    let one_run = ask(&whole, job, json!({}), None).await.unwrap();
    let expected = rows(&whole).await;
    assert!(expected.len() < specimens.len());
    for segments in [1, 2, 5, 64] {
        let bed = Testbed::with(kind, &specimens).await;
        let ended = execute(&bed, job, segments, &json!({})).await;
        assert_eq!(rows(&bed).await, expected, "{segments} segments");
        assert_eq!(ended["complete"], true, "{ended}");
        let totals = &ended["totals"];
        assert_eq!(totals["deleted"], one_run["report"]["rows"]["deleted"], "{segments} segments: {ended}");
        assert_eq!(totals["read"], one_run["report"]["rows"]["read"], "{segments} segments: {ended}");
        assert_eq!((&totals["skipped"], &totals["lost_race"]), (&json!(0), &json!(0)));
        let found = one_run["report"]["findings"].as_object().into_iter().flatten().filter(|(_, n)| n.is_u64());
        assert_eq!(totals["found"], json!(found.collect::<BTreeMap<_, _>>()), "{segments} segments: {ended}");
    }
}

async fn segments_of_the_cleanup_do_together_what_one_run_does(kind: EngineKind) {
    together_as_one(kind, Job::Cleanup).await;
}

async fn segments_of_the_repair_do_together_what_one_run_does(kind: EngineKind) {
    together_as_one(kind, Job::Repair).await;
}

async fn a_part_that_is_cut_off_again_and_again_misses_nothing(kind: EngineKind) {
    let specimens = all_kinds(NOW, COPIES, 2);
    for job in [Job::Cleanup, Job::Repair] {
        let whole = Testbed::with(kind, &specimens).await;
        ask(&whole, job, json!({}), None).await.unwrap();
        let bed = Testbed::with(kind, &specimens).await;
        let mut runs = 0;
        for segment in 0..3 {
            let event = json!({"segment": {"index": segment, "count": 3}, "max_deletes": 20});
            let part = through(&bed, job, event, None).await;
            runs += part["totals"]["runs"].as_u64().unwrap();
        }
        assert!(runs > 6, "{runs} runs: it was hardly ever cut off");
        assert_eq!(rows(&bed).await, rows(&whole).await);
    }
}

async fn a_dry_execution_finds_what_the_real_one_deletes_and_writes_nothing(kind: EngineKind) {
    let specimens = all_kinds(NOW, COPIES, 3);
    for job in [Job::Cleanup, Job::Repair] {
        let bed = Testbed::with(kind, &specimens).await;
        let before = bed.keys().await;
        let dry = execute(&bed, job, 4, &json!({"mode": "dry-run"})).await;
        assert_eq!(bed.keys().await, before);
        let real = execute(&bed, job, 4, &json!({})).await;
        assert_eq!((&dry["totals"]["deleted"], &dry["mode"]), (&real["totals"]["deleted"], &json!("dry-run")));
        assert_eq!(dry["totals"]["deleted_in"], real["totals"]["deleted_in"]);
    }
}

async fn an_execution_has_one_lease_and_leaves_a_complete_run(kind: EngineKind) {
    let specimens = all_kinds(NOW, COPIES, 4);
    let bed = Testbed::with(kind, &specimens).await;
    let begun = ask(&bed, Job::Cleanup, begin("execution-1", 2, &json!({})), None).await.unwrap();
    // Nobody else may, and the same execution may ask again: its first answer may have been lost.
    let other = ask(&bed, Job::Cleanup, begin("execution-2", 2, &json!({})), None).await.unwrap_err();
    assert_eq!(other.kind(), "LeaseHeld", "{other}");
    let other = ask(&bed, Job::Repair, json!({"segment": {"index": 0, "count": 1}}), None).await.unwrap_err();
    assert_eq!(other.kind(), "LeaseHeld", "{other}");
    let daily = bed.function.daily_cleanup(json!({}), EpochSeconds::new(NOW), None).await.unwrap();
    assert_eq!(daily.outcome, Outcome::LeaseHeld);
    ask(&bed, Job::Cleanup, begin("execution-1", 2, &json!({})), None).await.unwrap();
    let mut done = Vec::new();
    for item in begun["segments"].as_array().unwrap() {
        done.push(through(&bed, Job::Cleanup, item["next"].clone(), None).await);
        let daily = bed.function.daily_cleanup(json!({}), EpochSeconds::new(NOW), None).await.unwrap();
        assert_eq!(daily.outcome, Outcome::LeaseHeld, "between two parts the lease is still the execution's");
    }
    let ended = ask(&bed, Job::Cleanup, json!({"finish": {"started": begun["started"], "segments": done}}), None)
        .await
        .unwrap();
    assert_eq!(ended["complete"], true);
    let dead = specimens.iter().filter(|row| row.fate == Fate::Deleted).count();
    assert_eq!(ended["totals"]["deleted"], dead);
    bed.check(&specimens).await;
    // What the metrics and the next run know of it is what a complete run leaves.
    let measured = bed.function.metrics_emitter(json!({}), EpochSeconds::new(NOW + 60), None).await.unwrap();
    let measured = jobs::metrics::answer(&measured);
    assert!(measured.to_string().contains(r#""last_complete_age_seconds":60"#), "{measured}");
    let daily = bed.function.daily_cleanup(json!({}), EpochSeconds::new(NOW), None).await.unwrap();
    assert_eq!((daily.outcome, daily.counts.rows_deleted()), (Outcome::Complete, 0));
}

async fn an_execution_that_failed_recalls_its_lease_and_completes_nothing(kind: EngineKind) {
    let bed = Testbed::with(kind, &all_kinds(NOW, COPIES, 5)).await;
    let begun = ask(&bed, Job::Cleanup, begin("execution-1", 2, &json!({})), None).await.unwrap();
    let first = through(&bed, Job::Cleanup, begun["segments"][0]["next"].clone(), None).await;
    for parts in [json!([]), json!([first]), json!([first, first])] {
        let ended = json!({"finish": {"started": begun["started"], "segments": parts}});
        let ended = ask(&bed, Job::Cleanup, ended, None).await.unwrap();
        assert_eq!(ended["complete"], false, "{ended}");
    }
    // Another part may still be at work: nobody gets the lease until that one must have seen that it is over.
    let late = ask(&bed, Job::Cleanup, begun["segments"][1]["next"].clone(), None).await.unwrap_err();
    assert_eq!(late.kind(), "LeaseHeld", "{late}");
    let daily = async |at| bed.function.daily_cleanup(json!({}), EpochSeconds::new(at), None).await.unwrap();
    assert_eq!(daily(NOW + 590).await.outcome, Outcome::LeaseHeld);
    let after = daily(NOW + 660).await;
    assert_eq!((after.outcome, after.resumed), (Outcome::Complete, false));
}

/// What was skipped is the next run's, which need not wait: every part has said that it is through.
async fn an_execution_that_skipped_rows_gives_its_lease_back_and_completes_nothing(kind: EngineKind) {
    let bed = Testbed::with(kind, &all_kinds(NOW, COPIES, 8)).await;
    let begun = ask(&bed, Job::Cleanup, begin("execution-1", 1, &json!({})), None).await.unwrap();
    let mut done = through(&bed, Job::Cleanup, begun["segments"][0]["next"].clone(), None).await;
    done["totals"]["skipped"] = json!(1);
    let ended = ask(&bed, Job::Cleanup, json!({"finish": {"started": begun["started"], "segments": [done]}}), None)
        .await
        .unwrap();
    assert_eq!(ended["complete"], false, "{ended}");
    let measured = bed.function.metrics_emitter(json!({}), EpochSeconds::new(NOW + 60), None).await.unwrap();
    let measured = jobs::metrics::answer(&measured);
    assert_eq!(measured["report"]["runs"]["daily-cleanup"], Value::Null);
    let daily = bed.function.daily_cleanup(json!({}), EpochSeconds::new(NOW), None).await.unwrap();
    assert_eq!((daily.outcome, daily.counts.rows_deleted()), (Outcome::Complete, 0));
}

async fn ceilings_hold_for_an_execution(kind: EngineKind) {
    let bed = Testbed::with(kind, &all_kinds(NOW, COPIES, 6)).await;
    let before = bed.keys().await;
    for settings in [json!({"max_deletes": 10}), json!({"max_delete_share": 0.01})] {
        let error = ask(&bed, Job::Cleanup, begin("execution-1", 2, &settings), None).await.unwrap_err();
        assert_eq!(error.kind(), "Refused", "{error}");
        // A refusal holds no lease.
        assert_eq!(bed.keys().await, before);
    }
    let part = json!({"segment": {"index": 0, "count": 2}, "max_delete_share": 0.01});
    assert_eq!(ask(&bed, Job::Cleanup, part, None).await.unwrap_err().kind(), "Refused");
    assert_eq!(bed.keys().await, before);
    let ended = execute(&bed, Job::Cleanup, 2, &json!({"max_delete_share": 0.99})).await;
    assert_eq!(ended["complete"], true);
}

/// The name of an execution is no proof that it was allowed to begin: anybody can write one into an event.
async fn ceilings_hold_for_a_part_that_nobody_began(kind: EngineKind) {
    let bed = Testbed::with(kind, &all_kinds(NOW, COPIES, 9)).await;
    let before = bed.keys().await;
    let part = |settings: Value| {
        let mut event = settings;
        event["segment"] = json!({"index": 0, "count": 1, "lease": "execution-1"});
        event
    };
    for mode in ["delete", "dry-run"] {
        let capped = part(json!({"max_deletes": 10, "mode": mode}));
        let error = ask(&bed, Job::Cleanup, capped, None).await.unwrap_err();
        assert_eq!(error, RunError::MaxDeletesInBacklog);
    }
    let shared = part(json!({"max_delete_share": 0.01}));
    for _ in 0..2 {
        let error = ask(&bed, Job::Cleanup, shared.clone(), None).await.unwrap_err();
        assert!(matches!(error, RunError::AboveShare { .. }), "{error}");
        assert_eq!(bed.keys().await, before, "a refusal deletes nothing and holds no lease");
    }
    // Of one that was begun the share is known: its parts do not read everything once more.
    let begun = ask(&bed, Job::Cleanup, begin("execution-1", 1, &json!({"max_delete_share": 0.99})), None).await;
    let begun = begun.unwrap();
    ask(&bed, Job::Cleanup, shared, None).await.unwrap();
    assert_ne!(bed.keys().await, before);
    let parts = [through(&bed, Job::Cleanup, begun["segments"][0]["next"].clone(), None).await];
    let ended = json!({"finish": {"started": begun["started"], "segments": parts}});
    assert_eq!(ask(&bed, Job::Cleanup, ended, None).await.unwrap()["complete"], true);
}

/// What the rule in the template looks for: said after so many runs that their time cut off, and not of any other.
#[tokio::test]
async fn a_cleanup_that_is_cut_off_again_and_again_hands_over() {
    bed::clock::pause();
    let mut bed = Testbed::with(EngineKind::Embedded, &all_kinds(NOW, COPIES, 7)).await;
    // A pace at which it cannot be done in the time.
    for (setting, value) in [("BACKLOG_AFTER_INCOMPLETE_RUNS", "2"), ("MAX_WRITE_UNITS_PER_SECOND", "20")] {
        bed.function.environment.insert(setting.to_owned(), value.to_owned());
    }
    let short = Some(Duration::from_secs(3));
    let run = async |bed: &Testbed, event: Value, budget: Option<Duration>| {
        ask(bed, Job::Cleanup, event, budget).await.unwrap()["report"].clone()
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
    assert_eq!(capped.get("start_backlog"), None, "a ceiling is meant to hold");
    let third = run(&bed, json!({}), short).await;
    assert_eq!((&third["consecutive_incomplete_runs"], &third["start_backlog"]), (&json!(3), &json!(true)), "{third}");
    // The execution would have the stack's settings: not those that an event brought, and no ceiling.
    let own = run(&bed, json!({"reuse_window_seconds": 400_000}), short).await;
    assert_eq!((&own["outcome"], own.get("start_backlog")), (&json!("out-of-time"), None), "{own}");
    bed.function.environment.insert("MAX_DELETES".to_owned(), "1000000".to_owned());
    let capped = run(&bed, json!({}), short).await;
    assert_eq!((&capped["outcome"], capped.get("start_backlog")), (&json!("out-of-time"), None), "{capped}");
    let done = run(&bed, json!({"max_write_units_per_second": 100_000}), None).await;
    assert_eq!((&done["outcome"], done.get("start_backlog")), (&json!("complete"), None));
}
