//! Every interleaving of those who write the rows of one token: the application, TTL, and the runs.
//!
//! The model calls the decisions of `shared`; what it adds is who reads and writes what, and when. Each read and each write is a step
//! of its own, and a run can be killed before any of them. There is no lease: one that may lapse while its holder sleeps, who wakes
//! up late, rules out no interleaving of two runs, so the runs here start and go on whenever they like. What is assumed: the application
//! finishes what it writes within the grace period or never, an eventually consistent read is at most five minutes behind, and a
//! token's name is never used again.

mod runs;
mod story;
mod world;

use std::io::Write as _;
use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model, Property};

use runs::{Kind, Run, Taking, alone};
use world::{ALL, App, GRACE, Mutant, Setup, Step, Token, Which, World};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Tick,
    App(Step),
    Ttl(Which),
    /// A run starts and reads its first rows.
    Start(u8, Kind, u8),
    /// A run's next step, with the rows that it reads from the replica, as bits.
    Run(u8, u8),
    Kill(u8),
    RestoreBackup,
}

const SAFE: &str = "no live row is deleted or made unreachable";
const REVOKED: &str = "a revoked token never works again";
const CLEAN: &str = "when the writers have stopped, the runs leave nothing";
const FINISHED: &str = "what a cleanup has begun, the next cleanup finishes";
const REACHED: &str = "a run deletes all rows of a dead token";

impl Model for Setup {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::begin(self)]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.harm.is_some() {
            return;
        }
        actions.extend(world.may_tick(self).then_some(Action::Tick));
        actions.extend(world.app_steps(self).into_iter().map(Action::App));
        actions.extend(world.ttl_takes(self).into_iter().map(Action::Ttl));
        actions.extend((world.backup.is_some() && world.get(Token).is_none()).then_some(Action::RestoreBackup));
        for slot in 0..2u8 {
            if let Some(run) = &world.runs[usize::from(slot)] {
                actions.extend(self.stale_reads(world, run).map(|bits| Action::Run(slot, bits)));
                // Reads change nothing: a run that is killed before its first delete is one that did not start.
                actions.extend(run.deletes(self).map(|_| Action::Kill(slot)));
                continue;
            }
            for kind in self.runs[usize::from(slot)].iter().filter(|kind| **kind != Kind::Cascade || world.record) {
                let run = Run::start(*kind, world, self);
                actions.extend(self.stale_reads(world, &run).map(|bits| Action::Start(slot, *kind, bits)));
            }
        }
    }

    fn next_state(&self, before: &World, action: Action) -> Option<World> {
        let mut world = before.clone();
        match action {
            Action::Tick => world.tick(self),
            Action::App(step) => {
                world.app_step(self, step);
                if self.backup && world.app == App::Live && before.app != App::Live {
                    world.backup = Some([world.get(Token)?, world.get(self.index())?]);
                }
            }
            Action::Ttl(which) => world.ttl_remove(which),
            // `now` is the second of the first read. An older one would only find fewer rows dead: see `every_case`.
            Action::Start(slot, kind, bits) => {
                let run = Run::start(kind, &world, self);
                self.step(&mut world, slot, run, bits);
            }
            Action::Kill(slot) => world.runs[usize::from(slot)] = None,
            Action::Run(slot, bits) => {
                let run = world.runs[usize::from(slot)].take()?;
                self.step(&mut world, slot, run, bits);
            }
            Action::RestoreBackup => {
                let [token, index] = world.backup.take()?;
                world.put(Token, Some(token));
                world.put(self.index(), Some(index));
                (world.wanted, world.orderly) = (true, false);
            }
        }
        // Two runs of one kind are the same two runs the other way round.
        if self.runs[0] == self.runs[1] {
            world.runs.sort_unstable();
        }
        (world != *before).then_some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(SAFE, |_, world: &World| world.harm.is_none()),
            Property::always(REVOKED, |setup: &Setup, world: &World| !(world.revoked && world.works(setup))),
            Property::always(CLEAN, |setup: &Setup, world: &World| !at_rest(setup, world) || ends_clean(setup, world)),
            Property::always(FINISHED, |setup: &Setup, world: &World| {
                !(at_rest(setup, world) && world.orderly) || ends_clean_by_cleanups(setup, world)
            }),
            Property::sometimes(REACHED, |_, world: &World| {
                world.time > 0 && world.app == App::Live && world.table == [None; 5]
            }),
        ]
    }
}

impl Setup {
    /// Every subset of the rows that the run's next step reads and the replica has otherwise, as bits.
    fn stale_reads(&self, world: &World, run: &Run) -> impl Iterator<Item = u8> + use<> {
        let differs = |which: &&Which| world.replica[**which as usize] != world.table[**which as usize];
        let bits: Vec<u8> = run.eventual(self).iter().filter(differs).map(|which| 1 << (*which as u8)).collect();
        (0..1u8 << bits.len())
            .map(move |subset| bits.iter().enumerate().filter(|(i, _)| subset >> i & 1 == 1).map(|(_, bit)| bit).sum())
    }

    fn step(&self, world: &mut World, slot: u8, run: Run, bits: u8) {
        let stale: Vec<Which> = ALL.into_iter().filter(|which| bits >> (*which as u8) & 1 == 1).collect();
        let run = Taking { setup: self, world, run, stale: &stale }.step();
        world.runs[usize::from(slot)] = run;
    }
}

/// The writers have stopped, no run is at work, and all of the time that matters has passed.
fn at_rest(setup: &Setup, world: &World) -> bool {
    let idle = world.runs == [None, None] && world.harm.is_none();
    idle && usize::from(world.time) + 1 == setup.times().len()
}

/// A month after the last time, with the runs of two days.
fn ends_clean(setup: &Setup, world: &World) -> bool {
    let (mut world, now) = (world.clone(), world.now(setup) + 40 * 86_400);
    for now in [now, now + GRACE + 1] {
        for kind in [Kind::Cleanup, Kind::RepairIndex, Kind::RepairActor] {
            alone(&mut world, setup, kind, now);
        }
    }
    world.table == [None; 5]
}

fn ends_clean_by_cleanups(setup: &Setup, world: &World) -> bool {
    let (mut world, now) = (world.clone(), world.now(setup) + 40 * 86_400);
    alone(&mut world, setup, Kind::Cleanup, now);
    world.table == [None; 5]
}

const CLEANUP: &[Kind] = &[Kind::Cleanup];
const REPAIR: &[Kind] = &[Kind::RepairIndex, Kind::RepairActor];
const CASCADE: &[Kind] = &[Kind::Cascade];

const PLAIN: Setup = Setup {
    name: "access token",
    refresh: false,
    ttl: true,
    old_index: false,
    marker: false,
    runs: [CLEANUP, REPAIR],
    backup: false,
    mutant: None,
};

fn setups() -> Vec<Setup> {
    let refresh = Setup { name: "refresh token", refresh: true, ..PLAIN };
    let without_ttl = Setup { name: "access token of a release before 3.7.4", ttl: false, old_index: true, ..PLAIN };
    vec![
        PLAIN,
        Setup { runs: [CLEANUP, CLEANUP], ..PLAIN },
        Setup { runs: [REPAIR, REPAIR], ..PLAIN },
        Setup { runs: [CLEANUP, CASCADE], ..PLAIN },
        Setup { runs: [REPAIR, CASCADE], ..PLAIN },
        Setup { runs: [CASCADE, CASCADE], ..PLAIN },
        without_ttl,
        Setup { runs: [REPAIR, REPAIR], ..without_ttl },
        refresh,
        Setup { runs: [CLEANUP, CASCADE], ..refresh },
        Setup { runs: [REPAIR, CASCADE], ..refresh },
        Setup { name: "refresh token of a release before 3.7.4", ttl: false, old_index: true, ..refresh },
        Setup { name: "replay marker", marker: true, runs: [CLEANUP, CLEANUP], ..PLAIN },
    ]
}

fn figure(line: &str) {
    println!("{line}");
    if let Ok(path) = std::env::var("PROOF_FIGURES") {
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
        writeln!(file, "{line}").unwrap();
    }
}

#[test]
fn every_interleaving_keeps_the_promises() {
    for setup in setups() {
        let began = Instant::now();
        let checker = setup.checker().threads(2).spawn_bfs().join();
        let runs = setup.runs.map(|kinds| story::run_name(kinds[0])).join(" and ");
        let line = format!(
            "{{\"part\": \"interleavings\", \"rows\": \"{}\", \"runs\": \"{runs}\", \"states\": {}, \"depth\": {}, \"seconds\": {:.1}}}",
            setup.name,
            checker.unique_state_count(),
            checker.max_depth(),
            began.elapsed().as_secs_f64()
        );
        figure(&line);
        // A model in which nothing happens keeps every promise.
        let deletes = setup.runs.concat().contains(&Kind::Cleanup);
        assert!(!deletes || checker.discovery(REACHED).is_some(), "{REACHED}: never");
        for name in [SAFE, REVOKED, CLEAN, FINISHED] {
            if let Some(path) = checker.discovery(name) {
                panic!("{name}: not with {} and {runs}:\n{}", setup.name, story::tell(&setup, path).join("\n"));
            }
        }
    }
}

/// The shortest way to break a promise, as a story.
fn counterexample(setup: Setup, what: &str, promise: &'static str) -> Vec<String> {
    let broken_within = |depth: usize| {
        let finish = HasDiscoveries::AnyOf([promise].into());
        setup.checker().threads(1).target_max_depth(depth).finish_when(finish).spawn_bfs().join().discovery(promise)
    };
    let Some(path) = (1..40).find_map(broken_within) else { panic!("{what}: {promise}, all the same") };
    let steps = story::tell(&setup, path);
    let quoted: Vec<String> = steps.iter().map(|step| format!("{step:?}")).collect();
    println!("{what}. Not so: {promise}.\n  {}", steps.join("\n  "));
    figure(&format!(
        "{{\"part\": \"stories\", \"what\": {what:?}, \"promise\": {promise:?}, \"steps\": [{}]}}",
        quoted.join(", ")
    ));
    steps
}

#[test]
fn each_mutant_breaks_a_promise() {
    let alone = |runs: [&'static [Kind]; 2]| Setup { runs, ..PLAIN };
    let marker = Setup { marker: true, runs: [CLEANUP, &[]], ..PLAIN };
    for (mutant, setup, what, promise) in [
        (Mutant::NoCondition, marker, "A delete without its condition", SAFE),
        (Mutant::StaleAbsence, alone([REPAIR, &[]]), "Absence believed on a stale read", SAFE),
        (Mutant::OrderReversed, alone([CLEANUP, &[]]), "The index row deleted first", FINISHED),
        (Mutant::NoGrace, alone([REPAIR, &[]]), "No grace period", SAFE),
        (
            Mutant::WritesIndex,
            Setup { refresh: true, ..alone([REPAIR, &[]]) },
            "An index row written for a token that has none",
            REVOKED,
        ),
    ] {
        counterexample(Setup { mutant: Some(mutant), ..setup }, what, promise);
    }
}

/// The window that docs/cascade.md names: a token that TTL removed comes back between the read that finds it absent and the delete.
/// Only a backup does that; without one the same rows and the same runs keep every promise, in `setups`.
#[test]
fn only_a_restored_backup_makes_the_cascade_delete_the_index_row_of_a_live_token() {
    let setup = Setup { refresh: true, runs: [CASCADE, &[]], backup: true, ..PLAIN };
    let steps = counterexample(setup, "A backup restored while the cascade runs", SAFE);
    assert!(steps.iter().any(|step| step.contains("backup")), "{steps:#?}");
    let without = Setup { backup: false, ..setup };
    without.checker().threads(2).spawn_bfs().join().assert_no_discovery(SAFE);
}
