//! Attack: `janitor` is killed (SIGKILL) during a cleanup or a repair: before a request reaches the engine, after the engine has
//! acted, and while it handles the response. The table is inspected after each kill, and the next runs finish it.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bed::attack::{Figures, amount, seed};
use bed::engine::{EngineKind, kinds, shared as engine};
use bed::load::{Load, Which, random_rows, real_now, run_concurrently};
use bed::proxy::{Fate, Proxy, Request};

/// Random tables of the model in one table: a few hundred rows.
const TABLES: u64 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    Before,
    After,
    /// Microseconds after the response was sent.
    Later(u64),
}

/// When a run is killed: which run, on which table, at which request.
#[derive(Clone, Copy, Debug)]
struct Kill {
    kind: EngineKind,
    which: Which,
    retires: bool,
    seed: u64,
    request: usize,
    moment: Moment,
}

fn send_sigkill(id: u32) {
    assert!(Command::new("kill").args(["-KILL", &id.to_string()]).status().unwrap().success());
}

fn program(which: Which, retires: bool, endpoint: &str, prefix: &str) -> Command {
    let mut command = which.janitor(endpoint, prefix);
    command.env("EXPIRED_ROWS", if retires { "retire" } else { "delete" });
    command
}

/// The request numbers from the lease to the end; the dry run that `--apply` shows first comes before them.
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

async fn run_killed(kill: &Kill) -> Figures {
    let load = Load::of(kill.kind, random_rows(kill.seed, TABLES, real_now()), real_now(), kill.retires).await;
    let process: Arc<AtomicU32> = Arc::default();
    let (mut seen, id, at) = (0, Arc::clone(&process), *kill);
    let proxy = Proxy::start(engine(kill.kind).endpoint(), move |_: &Request| {
        seen += 1;
        if seen != at.request {
            return Fate::Forward;
        }
        let id = id.load(Ordering::SeqCst);
        match at.moment {
            Moment::Before => {
                send_sigkill(id);
                Fate::ResetBefore
            }
            Moment::After => {
                send_sigkill(id);
                Fate::ResetAfter
            }
            Moment::Later(pause) => {
                std::thread::spawn(move || {
                    std::thread::sleep(Duration::from_micros(pause));
                    // The process may have ended already.
                    let _ = Command::new("kill").args(["-KILL", &id.to_string()]).output();
                });
                Fate::Forward
            }
        }
    });
    let child = program(kill.which, kill.retires, proxy.endpoint(), &load.bed.prefix).spawn().unwrap();
    process.store(child.id(), Ordering::SeqCst);
    let ended = child.wait_with_output().unwrap();
    let killed = ended.status.code().is_none();
    // The process may have ended before; and batches run concurrently, so the number of requests varies.
    let too_late = matches!(kill.moment, Moment::Later(_)) || proxy.seen().len() < kill.request;
    assert!(killed || too_late, "{kill:?} did not end the process: {ended:?}");
    // The engine finishes the requests that it received; only then is the table final.
    while !proxy.is_idle() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let printed = String::from_utf8_lossy(&ended.stdout) + String::from_utf8_lossy(&ended.stderr);
    let mut figures = Figures {
        attempts: 1,
        faults: u64::from(killed),
        live_lost: load.live_lost(real_now()).await,
        secrets: load.secrets_in(&printed),
        ..Figures::default()
    };
    // The lease of the killed run expires after a minute.
    load.settle(real_now() + 120, &mut figures).await;
    load.drop_table().await;
    figures
}

fn kills(which: Which, retires: bool, points: usize) -> Vec<Kill> {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut random = fastrand::Rng::with_seed(seed() + which as u64);
    let mut kills = Vec::new();
    while kills.len() < points {
        let seed = random.u64(..);
        let kind = if random.u8(..4) == 0 { kinds()[kinds().len() - 1] } else { EngineKind::Embedded };
        for request in runtime.block_on(requests(kind, which, retires, seed)) {
            for moment in [Moment::Before, Moment::After, Moment::Later(random.u64(..20_000))] {
                kills.push(Kill { kind, which, retires, seed, request, moment });
            }
        }
    }
    random.shuffle(&mut kills);
    kills.truncate(points);
    kills
}

#[test]
fn a_cleanup_that_is_killed_anywhere_is_finished_by_the_next() {
    run_concurrently(4, &kills(Which::Cleanup, false, amount(20, 320)), run_killed).report("killed cleanups");
}

#[test]
fn a_repair_that_is_killed_anywhere_is_finished_by_the_next() {
    run_concurrently(4, &kills(Which::Repair, false, amount(20, 320)), run_killed).report("killed repairs");
}

#[test]
fn a_retiring_run_that_is_killed_anywhere_is_finished_by_the_next() {
    let mut all = kills(Which::Cleanup, true, amount(6, 160));
    all.extend(kills(Which::Repair, true, amount(6, 160)));
    run_concurrently(4, &all, run_killed).report("killed runs that retire");
}
