//! Every interleaving of the writers of one token's rows: the application, TTL, and the runs.
//!
//! The model calls the decisions of `shared` and adds who reads and writes what, and when. Each read and each write is a separate
//! step, and a run can be killed before any of them. Most setups have no lease: a lease that may lapse while its holder sleeps rules
//! out no interleaving of two runs. [`every_interleaving_with_a_lease_keeps_the_promises`] tests both a lease that lapses and one that
//! does not. Assumptions: the application finishes its writes within the grace period or never, its clock is at
//! most five minutes behind, and so is an eventually consistent read, and a token's name is never reused.

mod lease;
mod runs;
mod setups;
mod story;
mod world;

use std::collections::HashSet;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::time::Instant;

use serde_json::json;
use stateright::{Checker, HasDiscoveries, Model, Property};

use lease::{Lease, Leases};
use runs::{Kind, Run, RunStep, alone};
use setups::{CASCADE, CLEANUP, PLAIN, REPAIR, access, leased, refresh, retiring};
use world::{ALL, App, GRACE, Mutant, RETIREMENT, Setup, Step, Token, Which, World};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Tick,
    App(Step),
    Ttl(Which),
    /// A run starts and reads its first rows.
    Start(u8, Kind, u8),
    /// A run's next step, with the rows that it reads from the stale replica, as bits.
    Run(u8, u8),
    Kill(u8),
    /// A run reads the lease, and may acquire it.
    ReadLease(u8),
    Renew(u8),
    Lapse,
    RestoreBackup,
}

const SAFE: &str = "no live row is deleted or made unreachable";
const REVOKED: &str = "a revoked token never works again";
const CLEAN: &str = "when the writers have stopped, the runs leave nothing";
const FINISHED: &str = "the next cleanup finishes what a cleanup started";
const ALONE: &str = "only one run works at a time";
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
        actions.extend(world.ttl_may_remove(self).into_iter().map(Action::Ttl));
        actions.extend((world.backup.is_some() && world.get(Token).is_none()).then_some(Action::RestoreBackup));
        actions.extend(world.lease.may_lapse(self.lease).then_some(Action::Lapse));
        for slot in 0..2u8 {
            let (takes, has_read) = (self.takes_lease(slot), world.lease.has_read[usize::from(slot)]);
            if let Some(run) = &world.runs[usize::from(slot)] {
                actions.extend(self.stale_reads(world, run).map(|bits| Action::Run(slot, bits)));
                // Reads change nothing: a run that is killed before its first delete is like one that did not start.
                actions.extend(run.deletes(self).map(|_| Action::Kill(slot)));
                let late =
                    takes && world.lease.may_renew(slot) && (world.lease.is_of(slot) || run.deletes(self).is_some());
                actions.extend(late.then_some(Action::Renew(slot)));
                continue;
            }
            if takes && !has_read {
                actions.extend(world.lease.is_free_for(slot).then_some(Action::ReadLease(slot)));
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
            Action::Ttl(which) => world.ttl_remove(self, which),
            // `now` is the time of the first read. An earlier one would only find fewer rows dead: see `every_case`.
            Action::Start(slot, kind, bits) => {
                if self.takes_lease(slot) {
                    world.lease.acquire(slot, self.mutant);
                }
                let run = Run::start(kind, &world, self);
                self.step(&mut world, slot, run, bits);
            }
            Action::Kill(slot) => {
                world.runs[usize::from(slot)] = None;
                world.lease.abandon(slot);
            }
            Action::ReadLease(slot) => world.lease.has_read[usize::from(slot)] = true,
            Action::Lapse => world.lease.lapse(),
            Action::Renew(slot) => {
                if !world.lease.renew(slot, self.mutant) {
                    world.runs[usize::from(slot)] = None;
                }
            }
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
        self.normalize(&mut world);
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
            Property::always(ALONE, |setup: &Setup, world: &World| {
                setup.lease == Lease::None || world.runs.iter().any(Option::is_none)
            }),
            Property::sometimes(REACHED, |_, world: &World| {
                world.time > 0 && world.app == App::Live && world.table == [None; 5]
            }),
        ]
    }
}

impl Setup {
    /// Every subset of the rows that the run's next step reads and that differ in the replica, as bits.
    fn stale_reads(&self, world: &World, run: &Run) -> impl Iterator<Item = u8> + use<> {
        let differs = |which: &&Which| world.replica[**which as usize] != world.table[**which as usize];
        let bits: Vec<u8> = run.eventual(self).iter().filter(differs).map(|which| 1 << (*which as u8)).collect();
        (0..1u8 << bits.len())
            .map(move |subset| bits.iter().enumerate().filter(|(i, _)| subset >> i & 1 == 1).map(|(_, bit)| bit).sum())
    }

    fn step(&self, world: &mut World, slot: u8, run: Run, bits: u8) {
        let stale: Vec<Which> = ALL.into_iter().filter(|which| bits >> (*which as u8) & 1 == 1).collect();
        let run = RunStep { setup: self, world, run, stale: &stale }.take();
        if run.is_none() {
            world.lease.release(slot, self.mutant);
        }
        world.runs[usize::from(slot)] = run;
    }

    /// Two runs of one kind are interchangeable: both orders are one state.
    fn normalize(&self, world: &mut World) {
        let place = |slot: u8| (&world.runs[usize::from(slot)], world.lease.of_run(slot));
        if self.runs[0] == self.runs[1] && place(0) > place(1) {
            world.runs.swap(0, 1);
            world.lease.swap();
        }
    }

    fn takes_lease(&self, slot: u8) -> bool {
        self.runs[usize::from(slot)].iter().any(|kind| self.lease.is_taken_by(*kind))
    }
}

/// The writers have stopped, no run is active, and the last relevant time has passed.
fn at_rest(setup: &Setup, world: &World) -> bool {
    let idle = world.runs == [None, None] && world.harm.is_none();
    idle && usize::from(world.time) + 1 == setup.times().len()
}

/// Whether the runs of two days, a month after the last time, delete every row.
fn ends_clean(setup: &Setup, world: &World) -> bool {
    ends_clean_by(setup, world, &[Kind::Cleanup, Kind::RepairIndex, Kind::RepairActor])
}

fn ends_clean_by_cleanups(setup: &Setup, world: &World) -> bool {
    ends_clean_by(setup, world, &[Kind::Cleanup])
}

/// If rows are retired, TTL removes the rows that are left to it, a week later.
fn ends_clean_by(setup: &Setup, world: &World, kinds: &[Kind]) -> bool {
    let (mut world, mut now) = (world.clone(), world.now(setup) + 40 * 86_400);
    for _ in 0..if setup.retire { 3 } else { 1 } {
        for now in [now, now + GRACE + 1] {
            kinds.iter().for_each(|kind| alone(&mut world, setup, *kind, now));
        }
        now += RETIREMENT + 2 * GRACE;
        if setup.retire {
            world.table = world.table.map(|cell| cell.filter(|cell| cell.ttl.is_none_or(|ttl| ttl >= now)));
        }
    }
    world.table == [None; 5]
}

#[test]
fn every_interleaving_at_an_access_token_keeps_the_promises() {
    check(access());
}

#[test]
fn every_interleaving_at_a_refresh_token_keeps_the_promises() {
    check(refresh());
}

#[test]
fn every_interleaving_of_retire_and_restore_keeps_the_promises() {
    check(retiring());
}

#[test]
fn every_interleaving_with_a_lease_keeps_the_promises() {
    check(leased());
}

fn check(setups: Vec<Setup>) {
    for setup in setups {
        let started = Instant::now();
        // One thread makes the depth deterministic.
        let checker = setup.checker().threads(1).spawn_bfs().join();
        let runs = setup.runs.map(|kinds| story::run_name(kinds[0])).join(" and ");
        model::figure(&json!({
            "part": "interleavings",
            "rows": setup.name,
            "runs": runs,
            "lease": setup.lease.name(),
            "states": checker.unique_state_count(),
            "depth": checker.max_depth(),
            "seconds": model::seconds(started),
        }));
        // A model in which nothing happens would keep every promise.
        let deletes = setup.runs.concat().contains(&Kind::Cleanup);
        assert!(!deletes || checker.discovery(REACHED).is_some(), "never reached: {REACHED}");
        for name in [SAFE, REVOKED, CLEAN, FINISHED, ALONE] {
            if name == ALONE && setup.lease == Lease::Lapses {
                assert!(checker.discovery(name).is_some(), "no holder resumes late");
            } else if let Some(path) = checker.discovery(name) {
                panic!("broken: {name}: {}, {runs}:\n{}", setup.name, story::describe(&setup, path).join("\n"));
            }
        }
    }
}

/// A lease that may lapse while its holder sleeps rules nothing out: rows and runs reach the same states as without a lease. So what
/// holds without a lease holds with any.
#[test]
fn a_lease_that_lapses_rules_out_no_interleaving() {
    for setup in
        [Setup { runs: [CLEANUP, CLEANUP], ..PLAIN }, Setup { marker: true, runs: [CLEANUP, CLEANUP], ..PLAIN }]
    {
        let without = states(&setup);
        assert!(states(&Setup { lease: Lease::Lapses, ..setup }) == without, "differs from {}", without.len());
        assert!(states(&Setup { lease: Lease::Kept, ..setup }).len() < without.len(), "a kept lease rules out nothing");
    }
}

/// Hashes of all reachable states, without the lease.
fn states(setup: &Setup) -> HashSet<u64> {
    let hash = |world: &World| BuildHasherDefault::<DefaultHasher>::default().hash_one(world);
    let (mut visited, mut rows_and_runs) = (HashSet::new(), HashSet::new());
    let mut open = setup.init_states();
    while let Some(world) = open.pop() {
        if !visited.insert(hash(&world)) {
            continue;
        }
        let mut actions = Vec::new();
        setup.actions(&world, &mut actions);
        open.extend(actions.into_iter().filter_map(|action| setup.next_state(&world, action)));
        let mut bare = World { lease: Leases::default(), ..world };
        setup.normalize(&mut bare);
        rows_and_runs.insert(hash(&bare));
    }
    rows_and_runs
}

/// The shortest way to break a promise, as sentences.
fn counterexample(setup: Setup, what: &str, promise: &'static str) -> Vec<String> {
    let broken_within = |depth: usize| {
        let finish = HasDiscoveries::AnyOf([promise].into());
        setup.checker().threads(1).target_max_depth(depth).finish_when(finish).spawn_bfs().join().discovery(promise)
    };
    let Some(path) = (1..40).find_map(broken_within) else { panic!("{what}: does not break: {promise}") };
    let steps = story::describe(&setup, path);
    println!("{what}. Broken: {promise}.\n  {}", steps.join("\n  "));
    model::figure(&json!({"part": "stories", "what": what, "promise": promise, "steps": steps}));
    steps
}

#[test]
fn each_mutant_breaks_a_promise() {
    let alone = |runs: [&'static [Kind]; 2]| Setup { runs, ..PLAIN };
    let marker = Setup { marker: true, runs: [CLEANUP, &[]], ..PLAIN };
    for (mutant, setup, what, promise) in [
        (Mutant::NoCondition, marker, "A delete without its condition", SAFE),
        (Mutant::StaleAbsence, alone([REPAIR, &[]]), "Absence inferred from a stale read", SAFE),
        (Mutant::OrderReversed, alone([CLEANUP, &[]]), "The index row deleted first", FINISHED),
        (Mutant::NoGrace, alone([REPAIR, &[]]), "No grace period", SAFE),
        (
            Mutant::WritesIndex,
            Setup { refresh: true, ..alone([REPAIR, &[]]) },
            "An index row written for a token that has none",
            REVOKED,
        ),
        (
            Mutant::LeaseWithoutCondition,
            Setup { lease: Lease::Kept, ..PLAIN },
            "A lease written without its condition",
            ALONE,
        ),
    ] {
        counterexample(Setup { mutant: Some(mutant), ..setup }, what, promise);
    }
}

/// A late holder breaks the promise that only one run works at a time; in `leased` it breaks nothing else.
#[test]
fn a_holder_that_resumes_late_works_concurrently_with_another_run() {
    counterexample(Setup { lease: Lease::Lapses, ..PLAIN }, "A lease that lapses while its holder sleeps", ALONE);
}

/// The race that docs/cascade.md describes: a token that TTL removed comes back between the read that finds it absent and the delete.
/// Only a restored backup causes it; without one the same rows and runs keep every promise, in `refresh`.
#[test]
fn only_a_restored_backup_makes_the_cascade_delete_the_index_row_of_a_live_token() {
    let setup = Setup { refresh: true, runs: [CASCADE, &[]], backup: true, ..PLAIN };
    let steps = counterexample(setup, "A backup restored while the cascade runs", SAFE);
    assert!(steps.iter().any(|step| step.contains("backup")), "{steps:#?}");
    let without = Setup { backup: false, ..setup };
    without.checker().threads(2).spawn_bfs().join().assert_no_discovery(SAFE);
}
