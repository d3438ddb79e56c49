//! Attack: `janitor` killed (SIGKILL) in the middle of a cleanup and of a repair: before a request reaches the engine, after the
//! engine has acted, and while it works on the answer. The table is inspected after each, and the next runs finish it.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bed::attack::{Figures, amount, seed};
use bed::engine::{EngineKind, kinds, shared as engine};
use bed::load::{Load, Which, random_rows, real_now, run_concurrently};
use bed::proxy::{Fate, Proxy, Request};

/// Of the model's random tables in one: some hundred rows, and as many requests as there are buckets and batches.
const TABLES: u64 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    Before,
    After,
    /// So many microseconds after the answer was sent.
    Later(u64),
}

/// One death: of which run, over which table, at which request.
#[derive(Clone, Copy, Debug)]
struct Death {
    kind: EngineKind,
    which: Which,
    retires: bool,
    seed: u64,
    request: usize,
    moment: Moment,
}

fn kill(id: u32) {
    assert!(Command::new("kill").args(["-KILL", &id.to_string()]).status().unwrap().success());
}

fn program(which: Which, retires: bool, endpoint: &str, prefix: &str) -> Command {
    let mut command = which.janitor(endpoint, prefix);
    command.env("EXPIRED_ROWS", if retires { "retire" } else { "delete" });
    command
}

/// The numbers of the requests from the lease to the end: what comes before is the dry run that `--apply` shows first.
async fn requests(kind: EngineKind, which: Which, retires: bool, seed: u64) -> std::ops::RangeInclusive<usize> {
    let load = Load::of(kind, random_rows(seed, TABLES, real_now()), real_now(), retires).await;
    let proxy = Proxy::start(engine(kind).endpoint(), |_| Fate::Forward);
    let ended = program(which, retires, proxy.endpoint(), &load.bed.prefix).output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
    load.drop_table().await;
    let operations = proxy.seen();
    let lease = operations.iter().position(|operation| operation == "PutItem").expect("a run takes the lease");
    lease + 1..=operations.len()
}

async fn die(death: &Death) -> Figures {
    let load = Load::of(death.kind, random_rows(death.seed, TABLES, real_now()), real_now(), death.retires).await;
    let victim: Arc<AtomicU32> = Arc::default();
    let (mut seen, id, at) = (0, Arc::clone(&victim), *death);
    let proxy = Proxy::start(engine(death.kind).endpoint(), move |_: &Request| {
        seen += 1;
        if seen != at.request {
            return Fate::Forward;
        }
        let id = id.load(Ordering::SeqCst);
        match at.moment {
            Moment::Before => {
                kill(id);
                Fate::ResetBefore
            }
            Moment::After => {
                kill(id);
                Fate::ResetAfter
            }
            Moment::Later(pause) => {
                std::thread::spawn(move || {
                    std::thread::sleep(Duration::from_micros(pause));
                    // It may have ended by itself.
                    let _ = Command::new("kill").args(["-KILL", &id.to_string()]).output();
                });
                Fate::Forward
            }
        }
    });
    let child = program(death.which, death.retires, proxy.endpoint(), &load.bed.prefix).spawn().unwrap();
    victim.store(child.id(), Ordering::SeqCst);
    let ended = child.wait_with_output().unwrap();
    let died = ended.status.code().is_none();
    // It may have ended by itself a moment before; and pieces run side by side, not every time in as many requests.
    let too_late = matches!(death.moment, Moment::Later(_)) || proxy.seen().len() < death.request;
    assert!(died || too_late, "{death:?} was survived: {ended:?}");
    // What the engine was told, it does; only then is the table what the death has left.
    while !proxy.is_idle() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let printed = String::from_utf8_lossy(&ended.stdout) + String::from_utf8_lossy(&ended.stderr);
    let mut figures = Figures {
        attempts: 1,
        faults: u64::from(died),
        live_lost: load.live_lost(real_now()).await,
        secrets: load.secrets_in(&printed),
        ..Figures::default()
    };
    // The lease of the dead lapses after a minute.
    load.settle(real_now() + 120, &mut figures).await;
    load.drop_table().await;
    figures
}

fn deaths(which: Which, retires: bool, points: usize) -> Vec<Death> {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut random = fastrand::Rng::with_seed(seed() + which as u64);
    let mut deaths = Vec::new();
    while deaths.len() < points {
        let seed = random.u64(..);
        let kind = if random.u8(..4) == 0 { kinds()[kinds().len() - 1] } else { EngineKind::Embedded };
        for request in runtime.block_on(requests(kind, which, retires, seed)) {
            for moment in [Moment::Before, Moment::After, Moment::Later(random.u64(..20_000))] {
                deaths.push(Death { kind, which, retires, seed, request, moment });
            }
        }
    }
    random.shuffle(&mut deaths);
    deaths.truncate(points);
    deaths
}

#[test]
fn a_cleanup_that_is_killed_anywhere_is_finished_by_the_next() {
    run_concurrently(4, &deaths(Which::Cleanup, false, amount(20, 320)), die).report("killed cleanups");
}

#[test]
fn a_repair_that_is_killed_anywhere_is_finished_by_the_next() {
    run_concurrently(4, &deaths(Which::Repair, false, amount(20, 320)), die).report("killed repairs");
}

#[test]
fn a_retiring_run_that_is_killed_anywhere_is_finished_by_the_next() {
    let mut all = deaths(Which::Cleanup, true, amount(6, 160));
    all.extend(deaths(Which::Repair, true, amount(6, 160)));
    run_concurrently(4, &all, die).report("killed runs that retire");
}
