//! Attack: several janitors at once. The daily run, the repair and two `janitor --apply` start together; and a run whose
//! lease lapsed while it was frozen wakes up beside the one that took over; and the cascade, which takes no lease, beside all.

use bed::Invocations as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bed::attack::{Figures, amount, seed};
use bed::engine::{EngineKind, kinds, shared as engine};
use bed::load::{Load, Which, all_at_once, crowd, real_now};
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
    one_that_wakes_up_late_deletes_nothing_that_was_written_since,
    the_cascade_beside_the_other_runs_loses_nothing,
);

async fn fight(&(kind, seed, retires): &(EngineKind, u64, bool)) -> Figures {
    let load = Load::of(kind, crowd(seed, 8, real_now()), real_now(), retires).await;
    // Slow enough to be beside each other.
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
    let (mut ended, mut unsure) = (0, 0);
    for report in [daily, repair] {
        // Two that ask in the same moment: one gets the lease, and the other is told.
        let report = report.unwrap();
        figures.faults += u64::from(report.outcome == Outcome::LeaseHeld);
        load.ran(&report, &mut figures);
        ended += report.counts.rows_ended();
        unsure += report.counts.uncertain();
    }
    for program in programs {
        let output = program.wait_with_output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        figures.secrets += load.secrets_in(&printed);
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {printed}"));
        let report = &answer["report"];
        assert!(report["outcome"].is_string(), "{printed}");
        figures.faults += u64::from(report["outcome"] == "lease-held");
        figures.answered(report);
        ended += ["deleted", "retired"].map(|done| report["rows"][done].as_u64().unwrap()).iter().sum::<u64>();
        unsure += report["rows"]["uncertain"].as_u64().unwrap();
    }
    let gone = (load.rows.len() - load.rest().await.len()) as u64;
    assert!((ended..=ended + unsure).contains(&gone), "{gone} rows are gone, and {ended} were claimed");
    figures.live_lost += load.live_lost(real_now()).await;
    load.settle(real_now() + 120, &mut figures).await;
    load.drop_table().await;
    figures
}

#[test]
fn several_at_once_do_the_work_of_one() {
    let mut random = fastrand::Rng::with_seed(seed() + 10);
    let rounds: Vec<_> =
        (0..amount(4, 60_usize)).map(|round| (kinds()[round % kinds().len()], random.u64(..), round % 4 > 1)).collect();
    let figures = all_at_once(2, &rounds, fight);
    assert!(figures.faults > 0, "nobody ever met a lease");
    figures.tell("several janitors at once");
}

/// Replay markers and tombstones: rows that are written again under the same name.
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

async fn one_that_wakes_up_late_deletes_nothing_that_was_written_since(kind: EngineKind) {
    wakes_up_late(kind, false).await.tell("a lease holder that wakes up late");
    wakes_up_late(kind, true).await.tell("a lease holder that wakes up late, retire");
}

async fn wakes_up_late(kind: EngineKind, retires: bool) -> Figures {
    let mut figures = Figures::default();
    for round in 0..amount(1, 20) {
        let names: Vec<String> = (0..40).map(|i| format!("reused-{round}-{i:04}")).collect();
        let long_ago = NOW - 90 * 86_400;
        let mut rows = crowd(seed() + 20 + round, 6, NOW);
        rows.extend(names.iter().flat_map(|name| reused(name, long_ago)));
        let mut load = Load::of(kind, rows, NOW, retires).await;

        // Frozen with a write of theirs in hand, until the other is done.
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
        let sleeper = load.bed.through(&proxy).await;
        let first = async { Which::Cleanup.run(&sleeper, json!({}), NOW).await };
        let second = async {
            while !at_gate.load(Ordering::SeqCst) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            // By its clock the lease has lapsed.
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
        load.ran(&second, &mut figures);
        match first {
            Ok(report) => load.ran(&report, &mut figures),
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
    assert!(figures.lost_races > 0, "the sleeper met nothing that was written since");
    figures
}

/// Both ask for the one lease: who comes second asks until it is free.
async fn when_its_turn_comes(which: Which, function: &Function) -> RunReport {
    loop {
        let report = which.run(function, json!({}), NOW).await.unwrap();
        if report.outcome != Outcome::LeaseHeld {
            return report;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn the_cascade_beside_the_other_runs_loses_nothing(kind: EngineKind) {
    cascade_beside(kind, amount(2, 40), false).await.tell("the cascade beside the other runs");
    cascade_beside(kind, amount(1, 40), true).await.tell("the cascade beside the other runs, retire");
}

async fn cascade_beside(kind: EngineKind, rounds: u64, retires: bool) -> Figures {
    let mut figures = Figures::default();
    for round in 0..rounds {
        let load = Load::of_after_ttl(kind, crowd(seed() + 200 + round, 12, NOW), NOW, retires).await;
        // Late, in no order, and each twice.
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
            when_its_turn_comes(Which::Cleanup, &function),
            when_its_turn_comes(Which::Repair, &function),
            cascade
        );
        assert!(daily.outcome.is_complete() && repair.outcome.is_complete());
        figures.attempts += 2 + batches.len() as u64;
        figures.faults += load.removed.len() as u64;
        let runs: Vec<&RunReport> = batches.iter().map(|batch| &batch.run).chain([&daily, &repair]).collect();
        for report in &runs {
            load.ran(report, &mut figures);
        }
        // What two of them wanted gone at once, both may call theirs; what nobody did is not gone.
        let gone = (load.rows.len() - load.rest().await.len()) as u64;
        let sum = |of: fn(&RunReport) -> u64| runs.iter().map(|report| of(report)).sum::<u64>();
        assert_eq!(sum(|report| report.counts.uncertain()), 0);
        assert!(gone > 0 && gone <= sum(|report| report.counts.rows_ended()), "{gone} rows are gone");
        let by_cascade: u64 = batches.iter().map(|batch| batch.run.counts.rows_deleted()).sum();
        assert!(by_cascade > 0, "the others were always first");
        // At once, without another run.
        load.check_nothing_leads_to_removed().await;
        figures.live_lost += load.live_lost(NOW).await;
        load.settle(NOW + 240, &mut figures).await;
        load.drop_table().await;
    }
    figures
}
