//! Attack: faults between a run and its table. One fault at each kind of request, random faults, storms, and permanent faults.
//! After each, the table is compared with the model, and clean runs finish it. Each attack is made on runs that delete and on runs
//! that retire.

use bed::Invocations as _;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bed::attack::{Figures, amount, seed};
use bed::engine::{EngineKind, kinds, shared as engine};
use bed::fault::{Fault, When, faulty};
use bed::load::{Load, Which, random_rows, run_concurrently};
use bed::proxy::{self, Proxy};
use bed::stream::event;
use jobs::run::report::Outcome;
use model::rows::NOW;
use serde_json::{Value, json};
use shared::time::EpochSeconds;

/// A lease expires after a minute; the clean run starts after that.
const LATER: i64 = NOW + 120;
/// Random tables of the model in one table: a few hundred rows.
const TABLES: u64 = 8;
/// The adapter's limit of attempts per request.
const MAX_ATTEMPTS: u64 = 8;

#[derive(Clone, Debug)]
struct Scene {
    kind: EngineKind,
    which: Which,
    retires: bool,
    faults: Vec<Fault>,
    when: When,
    seed: u64,
    /// The time of the run; `None` is no limit.
    budget: Option<Duration>,
}

impl Scene {
    fn new(kind: EngineKind, which: Which, faults: Vec<Fault>, when: When, seed: u64) -> Self {
        Self { kind, which, retires: false, faults, when, seed, budget: None }
    }
}

/// What a scene expects, in addition to what always holds.
type Check = fn(&Scene, &Ending);

struct Ending {
    faults: u64,
    requests: u64,
    /// How often the most frequent request of the attacked operation was sent.
    repeats: u64,
    took: Duration,
    outcome: Option<Outcome>,
    retried: u64,
    skipped: u64,
    /// Whether the report has notes.
    has_notes: bool,
}

async fn play(scene: &Scene, check: Check) -> Figures {
    let load = Load::of(scene.kind, random_rows(scene.seed, TABLES, NOW), NOW, scene.retires).await;
    let (proxy, faults) = faulty(engine(scene.kind).endpoint(), scene.faults.clone(), scene.when);
    let function = load.bed.through(&proxy).await;
    let started = Instant::now();
    let ran = scene.which.run_within(&function, json!({}), NOW, scene.budget).await;
    let mut figures = Figures { attempts: 1, faults: faults.load(Ordering::Relaxed), ..Figures::default() };
    let mut ending = Ending {
        faults: figures.faults,
        requests: proxy.seen().len() as u64,
        repeats: most_repeats(&proxy, scene.when),
        took: started.elapsed(),
        outcome: None,
        retried: 0,
        skipped: 0,
        has_notes: false,
    };
    match &ran {
        Ok(report) => {
            load.add_run(report, &mut figures);
            load.check_counts(report, load.rows.len()).await;
            ending.outcome = Some(report.outcome);
            ending.retried = report.usage.retries + report.usage.throttles;
            ending.skipped = report.counts.rows_skipped();
            ending.has_notes = !report.notes.is_empty();
        }
        Err(error) => figures.secrets += load.secrets_in(&format!("{error} {error:?}")),
    }
    figures.live_lost += load.live_lost(NOW).await;
    check(scene, &ending);
    // The lease expires a minute after its last renewal, and a run may take minutes on a busy machine.
    load.settle(LATER + i64::try_from(ending.took.as_secs()).unwrap(), &mut figures).await;
    load.drop_table().await;
    figures
}

fn most_repeats(proxy: &Proxy, when: When) -> u64 {
    let (When::Nth(attacked, _) | When::From(attacked, _)) = when else { return 0 };
    proxy.most_attempts(attacked)
}

/// The operations in which retiring differs from deleting: the only ones that `make test` attacks in retiring runs.
const RETIRE_OPERATIONS: [&str; 2] = ["BatchExecuteStatement", "DescribeTimeToLive"];

fn is_attacked(operation: &str, retires: bool) -> bool {
    !retires || amount(false, true) || RETIRE_OPERATIONS.contains(&operation)
}

/// Attacks runs that delete and runs that retire, and reports the figures of each.
fn delete_and_retire(name: &str, attack: impl Fn(bool) -> Figures) {
    attack(false).report(name);
    attack(true).report(&format!("{name}, retire"));
}

/// The number of requests of a run without faults, by operation.
async fn requests(kind: EngineKind, which: Which, retires: bool, seed: u64) -> BTreeMap<String, u64> {
    let load = Load::of(kind, random_rows(seed, TABLES, NOW), NOW, retires).await;
    let proxy = Proxy::start(engine(kind).endpoint(), |_| proxy::Fate::Forward);
    which.run(&load.bed.through(&proxy).await, json!({}), NOW).await.unwrap();
    load.drop_table().await;
    let mut kinds = BTreeMap::new();
    for operation in proxy.seen() {
        *kinds.entry(operation).or_default() += 1;
    }
    kinds
}

#[test]
fn one_fault_at_each_kind_of_request_loses_nothing() {
    delete_and_retire("one fault per run", one_fault_at_each_kind_of_request);
}

fn one_fault_at_each_kind_of_request(retires: bool) -> Figures {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut random = fastrand::Rng::with_seed(seed());
    let (mut scenes, mut engines) = (Vec::new(), kinds().into_iter().cycle());
    for which in Which::BOTH {
        let seed = random.u64(..);
        let counts: Vec<_> =
            kinds().into_iter().map(|kind| (kind, runtime.block_on(requests(kind, which, retires, seed)))).collect();
        let operations: BTreeSet<&String> = counts.iter().flat_map(|(_, count)| count.keys()).collect();
        for operation in operations.into_iter().filter(|operation| is_attacked(operation, retires)) {
            for fault in Fault::ALL.into_iter().filter(|fault| fault.fits(operation)) {
                // Every combination; `make test` uses one engine in turn, and one position.
                let only = amount(engines.next(), None);
                for (kind, count) in counts.iter().filter(|(kind, _)| only.is_none_or(|only| only == *kind)) {
                    let count = count.get(operation).copied().unwrap_or(1);
                    let mut positions = vec![1, count.div_ceil(2), count];
                    positions.dedup();
                    // A hanging request times out, up to eight times: one position is enough.
                    if only.is_some() || matches!(fault, Fault::SilenceBefore | Fault::SilenceAfter) {
                        positions = vec![positions[random.usize(..positions.len())]];
                    }
                    let at = |nth| When::Nth(operation.clone().leak(), nth);
                    let scene = |nth| Scene { retires, ..Scene::new(*kind, which, vec![fault], at(nth), seed) };
                    scenes.extend(positions.into_iter().map(scene));
                }
            }
        }
    }
    random.shuffle(&mut scenes);
    let figures = run_concurrently(16, &scenes, async |scene| {
        play(scene, |scene, ending| {
            let fault = scene.faults[0];
            let complete = ending.outcome.is_some_and(Outcome::is_complete);
            if ending.faults == 0 {
                // Batches run concurrently, so the number of requests varies.
                assert!(complete, "{scene:?} ended as {:?}", ending.outcome);
            } else if fault.is_transient() {
                assert!(complete, "{scene:?} ended as {:?}", ending.outcome);
                assert!(fault == Fault::Slow || ending.retried > 0, "{scene:?}: the report has no retries");
            } else {
                // Skipped work is reported; a lease that cannot be released expires.
                let release = matches!(scene.when, When::Nth("GetItem", 3..) | When::Nth("DeleteItem", _));
                assert!(!complete || ending.has_notes || release, "{scene:?} ended as {:?}", ending.outcome);
            }
        })
        .await
    });
    assert!(figures.faults * 10 >= figures.attempts * 8, "{figures:?}: most faults did not happen");
    figures
}

/// Faults that pass without a long wait.
fn quick_faults() -> Vec<Fault> {
    let quick = |fault: &Fault| {
        fault.is_transient() && !matches!(fault, Fault::Slow | Fault::SilenceBefore | Fault::SilenceAfter)
    };
    Fault::ALL.into_iter().filter(quick).collect()
}

/// Rounds of random faults, for 2 to 30 percent of the requests.
fn at_random(rounds: usize, seed: u64, retires: bool) -> Figures {
    let mut random = fastrand::Rng::with_seed(seed);
    let faults = quick_faults();
    let mut scenes = Vec::new();
    for round in 0..rounds {
        for kind in kinds() {
            for which in Which::BOTH {
                let seed = random.u64(..);
                let share = [20, 100, 300][round % 3];
                let scene = Scene::new(kind, which, faults.clone(), When::Random { share, seed }, seed);
                scenes.push(Scene { retires, ..scene });
            }
        }
    }
    run_concurrently(12, &scenes, async |scene| {
        play(scene, |scene, ending| {
            assert!(ending.outcome.is_none() || ending.faults == 0 || ending.retried + ending.skipped > 0, "{scene:?}");
        })
        .await
    })
}

#[test]
fn random_faults_lose_nothing() {
    delete_and_retire("faults at random", |retires| at_random(amount(3, 60), seed() + 1, retires));
}

/// Redelivers failed records, as the event source mapping does, until none fails.
async fn cascade_under_faults(&(kind, seed): &(EngineKind, u64)) -> Figures {
    let load = Load::of_after_ttl(kind, random_rows(seed, TABLES, NOW), NOW, false).await;
    let when = When::Random { share: 300, seed };
    let (proxy, faults) = faulty(engine(kind).endpoint(), quick_faults(), when);
    let function = load.bed.through(&proxy).await;
    let mut batches: VecDeque<Vec<Value>> = load.records().chunks(3).map(<[Value]>::to_vec).collect();
    let mut figures = Figures::default();
    while let Some(mut records) = batches.pop_front() {
        figures.attempts += 1;
        assert!(figures.attempts < 300, "{} records keep failing", records.len());
        match function.ttl_cascade(event(&records), EpochSeconds::new(NOW), None).await {
            Ok(report) => {
                load.add_run(&report.run, &mut figures);
                records.retain(|record| {
                    report.failed.iter().any(|failed| record["dynamodb"]["SequenceNumber"] == **failed)
                });
            }
            Err(error) => figures.secrets += load.secrets_in(&format!("{error} {error:?}")),
        }
        batches.extend((!records.is_empty()).then_some(records));
    }
    figures.faults += faults.load(Ordering::Relaxed);
    load.check_nothing_leads_to_removed().await;
    figures.live_lost += load.live_lost(NOW).await;
    load.settle(LATER, &mut figures).await;
    load.drop_table().await;
    figures
}

#[test]
fn random_faults_under_the_cascade_lose_nothing() {
    let mut random = fastrand::Rng::with_seed(seed() + 5);
    let scenes: Vec<(EngineKind, u64)> =
        (0..amount(6, 80)).map(|round| (kinds()[round % kinds().len()], random.u64(..))).collect();
    run_concurrently(6, &scenes, cascade_under_faults).report("faults under the cascade");
}

#[test]
fn a_storm_that_passes_loses_nothing() {
    delete_and_retire("fault bursts", storms);
}

fn storms(retires: bool) -> Figures {
    let mut random = fastrand::Rng::with_seed(seed() + 2);
    let storms =
        [Fault::ProvisionedThroughput, Fault::Throttling, Fault::InternalError, Fault::ResetAfter, Fault::NotJson];
    let mut scenes = Vec::new();
    for round in 0..amount(1, 12) {
        for kind in kinds() {
            for which in Which::BOTH {
                let seed = random.u64(..);
                let fault = storms[random.usize(..storms.len())];
                let when = When::Storm { after: random.u64(2..12), requests: 4 + 8 * (round % 4) };
                scenes.push(Scene { retires, ..Scene::new(kind, which, vec![fault], when, seed) });
            }
        }
    }
    run_concurrently(12, &scenes, async |scene| {
        play(scene, |scene, ending| {
            assert!(ending.took < Duration::from_mins(2), "{scene:?} took {:?}", ending.took);
        })
        .await
    })
}

#[test]
fn a_permanent_fault_ends_the_run_within_bounds_and_is_no_success() {
    delete_and_retire("permanent faults", without_end);
}

fn without_end(retires: bool) -> Figures {
    let mut random = fastrand::Rng::with_seed(seed() + 3);
    let hanging = [Fault::Slow, Fault::SilenceBefore, Fault::SilenceAfter];
    let mut turns = kinds().into_iter().flat_map(|kind| Which::BOTH.map(|which| (kind, which))).cycle();
    let mut scenes = Vec::new();
    for fault in Fault::ALL.into_iter().filter(|fault| !hanging.contains(fault)) {
        for operation in ["Query", "BatchGetItem", "BatchExecuteStatement"] {
            if !fault.fits(operation) || !is_attacked(operation, retires) {
                continue;
            }
            // Every combination; `make test` uses one run on one engine in turn.
            for _ in 0..amount(1, 4) {
                let (kind, which) = turns.next().expect("an endless cycle");
                let scene = Scene::new(kind, which, vec![fault], When::From(operation, 2), random.u64(..));
                scenes.push(Scene { retires, ..scene });
            }
        }
    }
    run_concurrently(16, &scenes, async |scene| {
        play(scene, |scene, ending| {
            let parts = [Fault::ThrottledStatements, Fault::FailedStatements, Fault::UnprocessedKeys];
            let complete = ending.outcome.is_some_and(Outcome::is_complete);
            if ending.faults > 1 && !parts.contains(&scene.faults[0]) {
                assert!(!complete, "{scene:?} ended as {:?}", ending.outcome);
            }
            println!("{scene:?}: {} requests, {:?}, {:?}", ending.requests, ending.took, ending.outcome);
            assert!(ending.faults <= 40 * MAX_ATTEMPTS, "{scene:?}: {} faults were injected", ending.faults);
            assert!(ending.repeats <= MAX_ATTEMPTS, "{scene:?}: one request was sent {} times", ending.repeats);
            assert!(ending.took < Duration::from_mins(3), "{scene:?} took {:?}", ending.took);
        })
        .await
    })
}

/// Requests hang, or are slow, for good: only its deadline ends the run, and the run keeps it.
#[test]
fn requests_that_hang_for_good_end_the_run_at_its_deadline() {
    delete_and_retire("no response", silence);
}

fn silence(retires: bool) -> Figures {
    let budget = Duration::from_secs(13);
    let mut random = fastrand::Rng::with_seed(seed() + 4);
    let mut scenes = Vec::new();
    for fault in [Fault::Slow, Fault::SilenceBefore, Fault::SilenceAfter] {
        let operations = ["Query", "BatchGetItem", "BatchExecuteStatement"];
        for operation in operations.into_iter().filter(|operation| is_attacked(operation, retires)) {
            for which in Which::BOTH {
                let (seed, kind) = (random.u64(..), kinds()[random.usize(..2) % kinds().len()]);
                let scene = Scene::new(kind, which, vec![fault], When::From(operation, 2), seed);
                scenes.push(Scene { retires, budget: Some(budget), ..scene });
            }
        }
    }
    let figures = run_concurrently(18, &scenes, async |scene| {
        play(scene, |scene, ending| {
            assert!(scene.budget.is_some_and(|budget| ending.took < budget), "{scene:?} took {:?}", ending.took);
            assert!(ending.repeats <= MAX_ATTEMPTS, "{scene:?}: one request was sent {} times", ending.repeats);
            let complete = ending.outcome.is_some_and(Outcome::is_complete);
            assert!(
                !complete || scene.faults == [Fault::Slow] || ending.faults == 0,
                "{scene:?} was reported as complete"
            );
            println!("{scene:?}: {} faults, {:?}, {:?}", ending.faults, ending.took, ending.outcome);
        })
        .await
    });
    assert!(figures.faults > 0, "no request ever hung");
    figures
}

/// DynamoDB may answer a repeated delete, and does answer a repeated update, with a failed condition. After a lost response that can be
/// the run's own write, which must not be counted as a lost race.
#[tokio::test]
async fn a_delete_whose_response_was_lost_is_counted_or_uncertain() {
    for (kind, retires) in kinds().into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
        let load = Load::of(kind, random_rows(seed(), 6, NOW), NOW, retires).await;
        let mut hidden = None;
        let proxy = Proxy::start(engine(kind).endpoint(), move |request| {
            match (request.operation.as_str(), &hidden) {
                ("BatchExecuteStatement", None) => {
                    hidden = Some(request.body.clone());
                    proxy::Fate::ResetAfter
                }
                // The retry of the same request.
                (_, Some(first)) if *first == request.body => {
                    let body: serde_json::Value = serde_json::from_str(&request.body).unwrap();
                    let one = json!({"Error": {"Code": "ConditionalCheckFailed", "Message": "The conditional request failed"}});
                    let all = vec![one; body["Statements"].as_array().unwrap().len()];
                    proxy::Fate::Answer(200, json!({"Responses": all}).to_string())
                }
                _ => proxy::Fate::Forward,
            }
        });
        let report = Which::Cleanup.run(&load.bed.through(&proxy).await, json!({}), NOW).await.unwrap();
        assert!(report.counts.uncertain() > 0, "{}", report.to_json());
        assert_eq!(report.counts.lost_races(), 0);
        assert!(!report.outcome.is_complete());
        assert!(report.notes.iter().any(|note| note.contains("not confirmed")), "{:?}", report.notes);
        load.check_counts(&report, load.rows.len()).await;
        let mut figures = Figures { attempts: 1, faults: 2, ..Figures::default() };
        load.add_run(&report, &mut figures);
        load.settle(LATER, &mut figures).await;
        figures.report(if retires { "a reset that hid a retirement" } else { "a reset that hid a delete" });
    }
}
