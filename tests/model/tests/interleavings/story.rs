//! A path through the states, as sentences.

use stateright::Path;

use crate::Action;
use crate::runs::{At, Kind};
use crate::world::{App, Marker, NewIndex, OldIndex, Provider, Setup, Step, Token, Which, World};

pub(crate) fn describe(setup: &Setup, path: Path<World, Action>) -> Vec<String> {
    let mut lines = Vec::new();
    let steps = path.into_vec();
    for (n, (world, action)) in steps.iter().enumerate() {
        let Some(action) = action else { continue };
        let after = steps.get(n + 1).map(|(world, _)| world);
        lines.push(sentence(setup, world, *action, after));
    }
    lines
}

fn row(which: Which) -> &'static str {
    match which {
        Provider => "the provider row",
        Token => "the token row",
        NewIndex => "the index row",
        OldIndex => "the old-name index row",
        Marker => "the marker",
    }
}

pub(crate) fn run_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Cleanup => "cleanup",
        Kind::RepairIndex | Kind::RepairActor => "repair",
        Kind::Cascade => "cascade",
        Kind::Restore => "restore",
    }
}

fn sentence(setup: &Setup, world: &World, action: Action, after: Option<&World>) -> String {
    let harm = match after.and_then(|after| after.harm) {
        Some(_) if world.harm.is_none() => "  <- alive, or needed by a live row",
        _ => "",
    };
    let text = match action {
        Action::Tick => format!("{} s after the start", after.map_or(0, |after| after.now(setup))),
        Action::App(step) => format!("the application {}", app(setup, world, step)),
        Action::Ttl(which) => format!("TTL removes {}", row(which)),
        Action::Start(slot, kind, stale) => {
            let run = crate::runs::Run::start(kind, world, setup);
            let verb = if setup.lease.is_taken_by(kind) { "acquires the lease, starts" } else { "starts" };
            format!("run {slot}: a {} {verb} and {}", run_name(kind), step(setup, world, &run, stale, after))
        }
        Action::ReadLease(slot) => format!("run {slot} reads the lease: nobody holds it"),
        Action::Lapse => "the lease lapses".to_owned(),
        Action::Renew(slot) if world.lease.is_of(slot) => format!("run {slot} renews the lease"),
        Action::Renew(slot) => format!("run {slot} finds that the lease is another's, and ends"),
        Action::Kill(slot) => format!("run {slot} is killed"),
        Action::RestoreBackup => "a backup puts the token row and its index row back".to_owned(),
        Action::Run(slot, stale) => {
            let before = world.runs[usize::from(slot)].as_ref();
            before.map_or(String::new(), |run| {
                format!("run {slot}: the {} {}", run_name(run.kind), step(setup, world, run, stale, after))
            })
        }
    };
    text + harm
}

fn app(setup: &Setup, world: &World, step: Step) -> String {
    match (step, world.app) {
        (Step::Go, App::Creating(done)) => {
            format!("writes {}", row([Provider, Token, setup.index()][usize::from(done)]))
        }
        (Step::Go, App::Rotating) => "writes the index row of the consumed token again".to_owned(),
        (Step::Go, App::Revoking(done)) => {
            format!("revokes: deletes {}", row([setup.index(), Token, Provider][usize::from(done)]))
        }
        (Step::Go, App::Deleting(done)) => format!("deletes the actor: {}", row([Provider, Token][usize::from(done)])),
        (Step::Go, App::Live | App::Stopped) | (Step::Die, _) => "stops".to_owned(),
        (Step::Revoke, _) => "begins to revoke the token".to_owned(),
        (Step::DeleteActor, _) => "begins to delete the actor".to_owned(),
        (Step::Rotate, _) => "consumes the refresh token".to_owned(),
        (Step::Register, _) => "writes the marker".to_owned(),
    }
}

fn step(setup: &Setup, world: &World, run: &crate::runs::Run, stale: u8, after: Option<&World>) -> String {
    if let Some(which) = run.deletes(setup) {
        let (before, after) = (world.get(which), after.and_then(|after| after.get(which)));
        return match (before, after) {
            (None, _) => format!("deletes {}: it is gone already", row(which)),
            (Some(_), None) => format!("deletes {}", row(which)),
            (Some(before), Some(after)) if before == after => format!("leaves {} as it is", row(which)),
            (Some(_), Some(after)) if after.is_retired() => format!("retires {}", row(which)),
            (Some(_), Some(_)) => format!("restores {}", row(which)),
        };
    }
    let read: &[Which] = match (run.kind, run.at) {
        (Kind::Cleanup, At::Page) if setup.marker => &[Marker],
        (Kind::Cleanup | Kind::RepairIndex, At::Page) => &[NewIndex, OldIndex],
        (Kind::Cascade, At::Page) => &[NewIndex, OldIndex, Provider],
        (Kind::Restore, _) => &[Provider, Token, NewIndex, OldIndex],
        (Kind::RepairActor, At::Page) => &[Provider, Token],
        (_, At::Target | At::Confirm | At::Referrers) => &[Token],
        (_, At::LookNew) => &[NewIndex],
        (_, At::LookOld) => &[OldIndex],
        (_, At::Provider) => &[Provider],
        (_, At::Delete(_)) => &[],
    };
    let seen = |which: &Which| {
        let old = stale >> (*which as u8) & 1 == 1;
        let from = if old { &world.replica } else { &world.table };
        let found = if from[*which as usize].is_some() { "found" } else { "absent" };
        format!("{} ({found}{})", row(*which), if old { ", a stale read" } else { "" })
    };
    format!("reads {}", read.iter().map(seen).collect::<Vec<_>>().join(", "))
}
