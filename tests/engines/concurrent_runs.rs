//! Attack: concurrent runs. The cleanup, the repair and two `janitor --apply` start together; a frozen run whose lease expired
//! resumes after another run took over; and the cascade, which takes no lease, runs concurrently with all.

use bed::Invocations as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bed::attack::{Figures, amount, seed};
use bed::engine::{EngineKind, kinds, shared as engine};
use bed::load::{Load, Which, random_rows, real_now, run_concurrently};
use bed::proxy::{Fate, Proxy};
use bed::stream::event;
use jobs::run::RunError;
use jobs::run::report::{Outcome, RunReport};
use model::rows::NOW;
use model::{ModelRow, ModelTtl};
use runtime::lambda::Function;
use serde_json::{Value, json};
use shared::time::EpochSeconds;

bed::on_both_engines!(
    a_frozen_run_that_resumes_deletes_nothing_that_was_written_since,
    the_cascade_concurrent_with_other_runs_loses_nothing,
);

async fn compete(&(kind, seed, retires): &(EngineKind, u64, bool)) -> Figures {
    let load = Load::of(kind, random_rows(seed, 8, real_now()), real_now(), retires).await;
    // Slow enough to overlap.
    let proxy = Proxy::start(engine(kind).endpoint(), |_| Fate::Slow(Duration::from_millis(20)));
    let action = if retires { "retire" } else { "delete" };
    let program = |which: &Which| which.janitor(proxy.endpoint(), &load.bed.prefix).env("EXPIRED_ROWS", action).spawn();
    let programs: Vec<_> = Which::BOTH.iter().map(|which| program(which).unwrap()).collect();
    let function = load.bed.through(&proxy).await;
    let (daily, repair) = tokio::join!(
        Which::Cleanup.run(&function, json!({}), real_now()),
        Which::Repair.run(&function, json!({}), real_now())
    );
    let mut figures = Figures { attempts: 4, ..Figures::default() };
    let (mut ended, mut uncertain) = (0, 0);
    for report in [daily, repair] {
        // One run acquires the lease, the other reports that it is held.
        let report = report.unwrap();
        figures.faults += u64::from(report.outcome == Outcome::LeaseHeld);
        load.add_run(&report, &mut figures);
        ended += report.counts.rows_disposed();
        uncertain += report.counts.uncertain();
    }
    for program in programs {
        let output = program.wait_with_output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        figures.secrets += load.secrets_in(&printed);
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {printed}"));
        let report = &answer["report"];
        assert!(report["outcome"].is_string(), "{printed}");
        figures.faults += u64::from(report["outcome"] == "lease-held");
        figures.add_answer(report);
        ended += ["deleted", "retired"].map(|done| report["rows"][done].as_u64().unwrap()).iter().sum::<u64>();
        uncertain += report["rows"]["uncertain"].as_u64().unwrap();
    }
    let gone = (load.rows.len() - load.rest().await.len()) as u64;
    assert!((ended..=ended + uncertain).contains(&gone), "{gone} rows are gone, and {ended} were reported");
    figures.live_lost += load.live_lost(real_now()).await;
    load.settle(real_now() + 120, &mut figures).await;
    load.drop_table().await;
    figures
}

#[test]
fn concurrent_runs_do_the_work_of_one() {
    let mut random = fastrand::Rng::with_seed(seed() + 10);
    let rounds: Vec<_> =
        (0..amount(4, 60_usize)).map(|round| (kinds()[round % kinds().len()], random.u64(..), round % 4 > 1)).collect();
    let figures = run_concurrently(2, &rounds, compete);
    assert!(figures.faults > 0, "no run found the lease held");
    figures.report("several janitors at once");
}

/// Replay markers and tombstones, which the application writes again under the same name.
fn reused(name: &str, at: i64) -> Vec<ModelRow> {
    let row = |owner: &str, bucket: &str, data: Value, ttl: i64| ModelRow {
        owner: owner.to_owned(),
        bucket: bucket.to_owned(),
        name: name.to_owned(),
        data: Some(shared::pyjson::dumps(&data)),
        ttl: ModelTtl::Number(ttl),
    };
    vec![
        row("_actingweb_oauth2", "_id_token_replay", json!({"seen_at": at, "exp": at + 300}), at + 4_500),
        row("_actingweb_deleted", "_deleted_actors", json!({"deleted_at": at}), at + 2_595_600),
    ]
}

async fn a_frozen_run_that_resumes_deletes_nothing_that_was_written_since(kind: EngineKind) {
    resume_late(kind, false).await.report("a lease holder that wakes up late");
    resume_late(kind, true).await.report("a lease holder that wakes up late, retire");
}

async fn resume_late(kind: EngineKind, retires: bool) -> Figures {
    let mut figures = Figures::default();
    for round in 0..amount(1, 20) {
        let names: Vec<String> = (0..40).map(|i| format!("reused-{round}-{i:04}")).collect();
        let long_ago = NOW - 90 * 86_400;
        let mut rows = random_rows(seed() + 20 + round, 6, NOW);
        rows.extend(names.iter().flat_map(|name| reused(name, long_ago)));
        let mut load = Load::of(kind, rows, NOW, retires).await;

        // The first run is frozen in a write until the second is done.
        let released = Arc::new(AtomicBool::new(false));
        let (gate, at_gate) = (Arc::clone(&released), Arc::new(AtomicBool::new(false)));
        let arrived = Arc::clone(&at_gate);
        let proxy = Proxy::start(engine(kind).endpoint(), move |request| {
            if request.operation == "BatchExecuteStatement" && request.body.contains("reused-") {
                arrived.store(true, Ordering::SeqCst);
                while !gate.load(Ordering::SeqCst) {
                    std::thread::sleep(Duration::from_millis(2));
                }
            }
            Fate::Forward
        });
        let frozen = load.bed.through(&proxy).await;
        let first = async { Which::Cleanup.run(&frozen, json!({}), NOW).await };
        let second = async {
            while !at_gate.load(Ordering::SeqCst) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            // By its clock the lease has expired.
            let done = Which::Cleanup.run(&load.bed.function, json!({}), NOW + 120).await.unwrap();
            assert!(done.outcome.is_complete(), "{}", done.to_json());
            let fresh: Vec<ModelRow> = names.iter().flat_map(|name| reused(name, NOW + 100)).collect();
            load.bed.write(&bed::tables::specimens(&fresh)).await;
            released.store(true, Ordering::SeqCst);
            (done, fresh)
        };
        let (first, (second, fresh)) = tokio::join!(first, second);
        figures.attempts += 2;
        figures.faults += 1;
        load.add_run(&second, &mut figures);
        match first {
            Ok(report) => load.add_run(&report, &mut figures),
            Err(RunError::LeaseLost) => {}
            Err(error) => panic!("{error}"),
        }
        let keys: Vec<_> = fresh.iter().map(ModelRow::key).collect();
        load.rows.retain(|row| !keys.contains(&row.key()));
        load.rows.extend(fresh);
        figures.live_lost += load.live_lost(NOW + 120).await;
        load.settle(NOW + 240, &mut figures).await;
        load.drop_table().await;
    }
    assert!(figures.lost_races > 0, "the frozen run met no row that was written since");
    figures
}

/// Retries until the lease is free.
async fn run_when_lease_is_free(which: Which, function: &Function) -> RunReport {
    loop {
        let report = which.run(function, json!({}), NOW).await.unwrap();
        if report.outcome != Outcome::LeaseHeld {
            return report;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn the_cascade_concurrent_with_other_runs_loses_nothing(kind: EngineKind) {
    run_cascade_concurrently(kind, amount(2, 40), false).await.report("the cascade concurrent with other runs");
    run_cascade_concurrently(kind, amount(1, 40), true).await.report("the cascade concurrent with other runs, retire");
}

async fn run_cascade_concurrently(kind: EngineKind, rounds: u64, retires: bool) -> Figures {
    let mut figures = Figures::default();
    for round in 0..rounds {
        let load = Load::of_after_ttl(kind, random_rows(seed() + 200 + round, 12, NOW), NOW, retires).await;
        // Late, shuffled, and each twice.
        let mut records = [load.records(), load.records()].concat();
        fastrand::Rng::with_seed(round).shuffle(&mut records);
        let proxy = Proxy::start(engine(kind).endpoint(), |_| Fate::Slow(Duration::from_millis(3)));
        let function = load.bed.through(&proxy).await;
        let cascade = async {
            let mut reports = Vec::new();
            for batch in records.chunks(3) {
                let report = function.ttl_cascade(event(batch), EpochSeconds::new(NOW), None).await.unwrap();
                assert!(report.failed.is_empty());
                reports.push(report);
            }
            reports
        };
        let (daily, repair, batches) = tokio::join!(
            run_when_lease_is_free(Which::Cleanup, &function),
            run_when_lease_is_free(Which::Repair, &function),
            cascade
        );
        for report in [&daily, &repair] {
            // A provider row that the cascade deletes first cannot be retired any more: its token is left to the next run.
            let lost_provider = report.counts.buckets().get("mcp_google_tokens").is_some_and(|of| of.lost_race > 0);
            // A busy engine may answer too late. If the cascade deletes the row before the retry, the outcome is uncertain.
            let unanswered = report.usage.retries > 0 && report.counts.uncertain() > 0;
            let is_left_to_next_run = retires && (lost_provider || unanswered) && report.outcome == Outcome::Skipped;
            assert!(report.outcome.is_complete() || is_left_to_next_run, "{}", report.to_json());
        }
        figures.attempts += 2 + batches.len() as u64;
        figures.faults += load.removed.len() as u64;
        let runs: Vec<&RunReport> = batches.iter().map(|batch| &batch.run).chain([&daily, &repair]).collect();
        for report in &runs {
            load.add_run(report, &mut figures);
        }
        // Two runs may both count a row that they delete at the same time, but every deleted row is counted.
        let gone = (load.rows.len() - load.rest().await.len()) as u64;
        let sum = |of: fn(&RunReport) -> u64| runs.iter().map(|report| of(report)).sum::<u64>();
        let uncertain = sum(|report| report.counts.uncertain());
        assert!(uncertain == 0 || retires && sum(|report| report.usage.retries) > 0, "{uncertain} rows are uncertain");
        let disposed = sum(|report| report.counts.rows_disposed());
        assert!(gone > 0 && gone <= disposed + uncertain, "{gone} rows are gone, {disposed} were counted");
        let by_cascade: u64 = batches.iter().map(|batch| batch.run.counts.rows_deleted()).sum();
        assert!(by_cascade > 0, "the cascade deleted nothing");
        // Without another run.
        load.check_nothing_leads_to_removed().await;
        figures.live_lost += load.live_lost(NOW).await;
        load.settle(NOW + 240, &mut figures).await;
        load.drop_table().await;
    }
    figures
}
