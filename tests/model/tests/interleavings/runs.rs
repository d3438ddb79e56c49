//! The runs, step by step: every read and every delete is a step, and other writers act in between. All decisions are `shared`'s.

use shared::cascade;
use shared::disposal;
use shared::expiry::{self, DeleteReason, KeepReason, Policy, Verdict};
use shared::integrity::{self, Indexed, Lookup, Question, Referrers, Sighting};
use shared::row::Row;

use crate::world::{
    ALL, Cell, Marker, Mutant, NewIndex, OldIndex, Provider, RETIREMENT, Setup, Token, Which, World, seconds,
};

/// Within one repair, index rows and the actor's rows are judged independently: here they are two kinds of run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    Cleanup,
    RepairIndex,
    RepairActor,
    Cascade,
    /// `janitor restore`.
    Restore,
}

/// The next step of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum At {
    Page,
    Target,
    Confirm,
    LookNew,
    LookOld,
    Provider,
    Referrers,
    /// The nth in the order of deletes.
    Delete(u8),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Run {
    pub(crate) kind: Kind,
    /// A run reads the clock once.
    pub(crate) now: i32,
    pub(crate) at: At,
    read: [Option<Cell>; 5],
    doomed: [bool; 5],
    /// No live row named the provider row when the cleanup started. It may have read the actor then because of another token, and it
    /// does not read an actor twice.
    unnamed: bool,
    /// When the repair first saw rows of unknown age: as stored before, and as it will store it.
    seen: [Option<i32>; 2],
    remember: [Option<i32>; 2],
}

impl Run {
    pub(crate) fn start(kind: Kind, world: &World, setup: &Setup) -> Self {
        let seen = if kind == Kind::RepairActor { world.seen } else { [None; 2] };
        let now = world.now(setup);
        let unnamed = kind == Kind::Cleanup && referrers(world, setup, now) == Referrers::None;
        Self { kind, now, at: At::Page, read: [None; 5], doomed: [false; 5], unnamed, seen, remember: [None; 2] }
    }

    /// Rows that the next step reads with eventual consistency.
    pub(crate) fn eventual(&self, setup: &Setup) -> &'static [Which] {
        match (self.kind, self.at) {
            (Kind::Cleanup, At::Page) if setup.marker => &[Marker],
            (Kind::Cleanup | Kind::RepairIndex, At::Page) => &[NewIndex, OldIndex],
            (Kind::RepairActor, At::Page) => &[Provider, Token],
            (Kind::Cleanup, At::Target) => &[Token],
            (Kind::Cleanup, At::Provider) => &[Provider],
            (Kind::RepairIndex, At::Target) if setup.mutant == Some(Mutant::StaleAbsence) => &[Token],
            _ => &[],
        }
    }

    /// The order of deletes.
    fn order(setup: &Setup) -> [Which; 5] {
        if setup.mutant == Some(Mutant::OrderReversed) {
            [Marker, OldIndex, NewIndex, Token, Provider]
        } else {
            [Marker, Provider, Token, NewIndex, OldIndex]
        }
    }

    /// The row that the next step deletes, if it is a delete.
    pub(crate) fn deletes(&self, setup: &Setup) -> Option<Which> {
        match self.at {
            At::Delete(n) => Some(Self::order(setup)[usize::from(n)]),
            _ => None,
        }
    }
}

/// One step of a run; `stale` are the rows that it reads from the replica.
pub(crate) struct RunStep<'a> {
    pub(crate) setup: &'a Setup,
    pub(crate) world: &'a mut World,
    pub(crate) run: Run,
    pub(crate) stale: &'a [Which],
}

impl RunStep<'_> {
    /// The run after the step; `None` if it has finished.
    pub(crate) fn take(mut self) -> Option<Run> {
        let next = match (self.run.kind, self.run.at) {
            (_, At::Delete(n)) => self.delete(n),
            (Kind::Cleanup, At::Page) => self.cleanup_page(),
            (Kind::Cleanup, At::Target) => self.cleanup_target(),
            (Kind::Cleanup, At::Confirm) => self.cleanup_judge(),
            (Kind::Cleanup, At::Provider) => self.cleanup_provider(Referrers::Unknown),
            (Kind::Cleanup, _) => {
                let referrers = if self.run.unnamed { Referrers::None } else { self.referrers(false) };
                self.cleanup_provider(referrers)
            }
            (Kind::RepairIndex, At::Page) => self.repair_page(),
            (Kind::RepairIndex, _) => self.repair_target(),
            (Kind::RepairActor, At::Page) => self.repair_actor(),
            (Kind::RepairActor, At::LookNew) => self.repair_token(NewIndex),
            (Kind::RepairActor, At::LookOld) => self.repair_token(OldIndex),
            (Kind::RepairActor, _) => {
                self.run.doomed[Provider as usize] = self.referrers(true) == Referrers::None;
                self.first_delete()
            }
            (Kind::Restore, _) => self.restore_page(),
            (Kind::Cascade, At::Page) => self.cascade_page(),
            (Kind::Cascade, At::Target) => self.cascade_target(),
            (Kind::Cascade, _) => {
                let referrers = self.referrers(false);
                self.cascade_provider(referrers)
            }
        };
        let Some(at) = next else {
            if self.run.kind == Kind::RepairActor {
                self.world.seen = self.run.remember;
            }
            self.world.record &= self.run.kind != Kind::Cascade;
            return None;
        };
        self.run.at = at;
        self.forget();
        Some(self.run)
    }

    /// A run that deletes needs only the rows that it deletes: runs that differ in other fields are one state.
    fn forget(&mut self) {
        if let At::Delete(_) = self.run.at {
            (self.run.seen, self.run.unnamed) = ([None; 2], false);
            // A retirement ends relative to `now`.
            if !self.setup.retire {
                self.run.now = 0;
            }
            for (read, doomed) in self.run.read.iter_mut().zip(self.run.doomed) {
                *read = read.filter(|_| doomed);
            }
        }
    }

    fn now(&self) -> shared::time::EpochSeconds {
        seconds(self.run.now)
    }

    fn read(&mut self, which: Which) -> Option<Row> {
        let from = if self.stale.contains(&which) { &self.world.replica } else { &self.world.table };
        self.run.read[which as usize] = from[which as usize];
        self.was(which)
    }

    /// The row as it was read.
    fn was(&self, which: Which) -> Option<Row> {
        self.run.read[which as usize].map(|cell| self.setup.row(which, cell))
    }

    fn lookup(&mut self, which: Which) -> Lookup {
        self.read(which).map_or(Lookup::Absent, Lookup::Found)
    }

    fn doom(&mut self, which: Which, verdict: Option<Verdict>) {
        self.run.doomed[which as usize] = matches!(verdict, Some(Verdict::Delete(_)));
    }

    /// A consistent Query of the actor's tokens. The repair ignores rows that it is about to delete.
    fn referrers(&mut self, without_doomed: bool) -> Referrers {
        if without_doomed && self.run.doomed[Token as usize] {
            return Referrers::None;
        }
        referrers(self.world, self.setup, self.run.now)
    }

    // The cleanup.

    fn cleanup_page(&mut self) -> Option<At> {
        let (now, policy) = (self.now(), self.setup.policy());
        if let Some(row) = self.read(Marker) {
            let verdict = expiry::judge(&row, self.setup.bucket(Marker), now, &policy);
            self.doom(Marker, Some(verdict));
        }
        let mut any_due = false;
        for which in [NewIndex, OldIndex] {
            let bucket = self.setup.bucket(which);
            let due = self
                .read(which)
                .is_some_and(|row| matches!(integrity::ask(&row, bucket, now, &policy), Question::LookAt(_)));
            self.run.doomed[which as usize] = due;
            any_due |= due;
        }
        if any_due { Some(At::Target) } else { self.first_delete() }
    }

    fn cleanup_target(&mut self) -> Option<At> {
        let trusts_absence = self.setup.mutant == Some(Mutant::StaleAbsence);
        if self.read(Token).is_none() && !trusts_absence { Some(At::Confirm) } else { self.cleanup_judged() }
    }

    fn cleanup_judge(&mut self) -> Option<At> {
        self.read(Token);
        self.cleanup_judged()
    }

    fn cleanup_judged(&mut self) -> Option<At> {
        let (now, policy) = (self.now(), self.setup.policy());
        let target = self.was(Token);
        let lookup = target.clone().map_or(Lookup::Absent, Lookup::Found);
        for which in [NewIndex, OldIndex] {
            let Some(row) = self.was(which).filter(|_| self.run.doomed[which as usize]) else { continue };
            let verdict = integrity::compare(&row, self.setup.bucket(which), &lookup, now, &policy);
            self.doom(which, verdict);
        }
        let verdict = target.map(|row| expiry::judge(&row, self.setup.bucket(Token), now, &policy));
        self.doom(Token, verdict);
        if self.run.doomed[Token as usize] { Some(At::Provider) } else { self.first_delete() }
    }

    fn cleanup_provider(&mut self, referrers: Referrers) -> Option<At> {
        let row = if referrers == Referrers::Unknown { self.read(Provider) } else { self.was(Provider) };
        let Some(row) = row else { return self.first_delete() };
        let verdict = integrity::judge_provider(&row, referrers, self.now(), &self.setup.policy());
        if verdict.is_none() {
            return Some(At::Referrers);
        }
        self.doom(Provider, verdict);
        self.first_delete()
    }

    // The repair.

    fn repair_page(&mut self) -> Option<At> {
        let (now, policy) = (self.now(), self.setup.policy());
        let mut any_due = false;
        for which in [NewIndex, OldIndex] {
            let bucket = self.setup.bucket(which);
            any_due |= self
                .read(which)
                .is_some_and(|row| matches!(integrity::ask_anyway(&row, bucket, now, &policy), Question::LookAt(_)));
        }
        any_due.then_some(At::Target)
    }

    fn repair_target(&mut self) -> Option<At> {
        let (now, policy) = (self.now(), self.setup.policy());
        let target = self.lookup(Token);
        for which in [NewIndex, OldIndex] {
            let Some(row) = self.was(which) else { continue };
            let verdict = integrity::repair_index(&row, self.setup.bucket(which), &target, now, &policy);
            self.doom(which, verdict);
        }
        self.first_delete()
    }

    fn repair_actor(&mut self) -> Option<At> {
        self.read(Provider);
        let (now, policy, bucket) = (self.now(), self.setup.policy(), self.setup.bucket(Token));
        match self.read(Token) {
            Some(row) if integrity::could_go_unindexed(&row, bucket, now, &policy).is_ok() => Some(At::LookNew),
            Some(_) => self.repair_provider(Referrers::Some),
            None => self.repair_provider(Referrers::None),
        }
    }

    fn sighting(&self, nth: usize) -> Sighting {
        let policy = self.setup.policy();
        Sighting::since(self.run.seen[nth].map(seconds), self.now(), policy.grace)
    }

    fn remember(&mut self, nth: usize, verdict: Option<Verdict>) {
        if verdict == Some(Verdict::Keep(KeepReason::SeenOnce)) {
            self.run.remember[nth] = self.run.seen[nth].or(Some(self.run.now));
        }
    }

    fn repair_token(&mut self, which: Which) -> Option<At> {
        let (now, policy) = (self.now(), self.setup.policy());
        let Some(token) = self.was(Token) else { return self.first_delete() };
        let indexed = Indexed::by(&self.lookup(which), &token.key);
        if indexed == Indexed::No && which == NewIndex {
            return Some(At::LookOld);
        }
        if indexed == Indexed::No && self.setup.mutant == Some(Mutant::WritesIndex) {
            let row = self.setup.written(self.setup.index(), self.run.now);
            self.world.put(self.setup.index(), Some(row));
            return None;
        }
        let bucket = self.setup.bucket(Token);
        let verdict = integrity::repair_token(&token, bucket, indexed, || self.sighting(1), now, &policy);
        self.remember(1, verdict);
        self.doom(Token, verdict);
        self.repair_provider(if self.run.doomed[Token as usize] { Referrers::None } else { Referrers::Some })
    }

    fn repair_provider(&mut self, referrers: Referrers) -> Option<At> {
        let Some(row) = self.was(Provider) else { return self.first_delete() };
        let (now, policy) = (self.now(), self.setup.policy());
        let with_token = self.run.doomed[Token as usize];
        let verdict = integrity::repair_provider(&row, referrers, with_token, || self.sighting(0), now, &policy);
        self.remember(0, verdict);
        if verdict == Some(Verdict::Delete(DeleteReason::Unreferenced))
            && !integrity::scan_saw_referrers(&row, now, &policy)
        {
            return Some(At::Referrers);
        }
        self.doom(Provider, verdict);
        self.first_delete()
    }

    // The cascade.

    fn cascade_page(&mut self) -> Option<At> {
        let found = [NewIndex, OldIndex, Provider].map(|which| self.read(which).is_some());
        found.contains(&true).then_some(At::Target)
    }

    fn cascade_target(&mut self) -> Option<At> {
        let target = self.lookup(Token);
        let token = self.setup.row(Token, self.setup.written(Token, 0)).key;
        for which in [NewIndex, OldIndex] {
            let Some(row) = self.was(which) else { continue };
            let verdict = cascade::index_row(&row, self.setup.bucket(which), &token, &target);
            self.doom(which, verdict);
        }
        if target != Lookup::Absent {
            return self.first_delete();
        }
        self.cascade_provider(Referrers::Unknown)
    }

    fn cascade_provider(&mut self, referrers: Referrers) -> Option<At> {
        let Some(row) = self.was(Provider) else { return self.first_delete() };
        let verdict = cascade::provider_row(&row, &Lookup::Absent, referrers, self.now(), &self.setup.policy());
        if verdict.is_none() {
            return Some(At::Referrers);
        }
        self.doom(Provider, verdict);
        self.first_delete()
    }

    // Deletes.

    fn first_delete(&self) -> Option<At> {
        self.next_delete(0)
    }

    fn next_delete(&self, from: u8) -> Option<At> {
        let order = Run::order(self.setup);
        (from..5).find(|n| self.run.doomed[order[usize::from(*n)] as usize]).map(At::Delete)
    }

    /// Deletes, retires or restores a row if it is unchanged since it was judged; an absent row counts as deleted.
    fn delete(&mut self, n: u8) -> Option<At> {
        let which = Run::order(self.setup)[usize::from(n)];
        let (judged, current) = (self.run.read[which as usize], self.world.get(which));
        let holds = current == judged || self.setup.mutant == Some(Mutant::NoCondition);
        let lost = current.is_some() && !holds;
        if let Some(cell) = current.filter(|_| holds) {
            self.dispose(which, cell);
        }
        // A chain of deletes continues only if the one before succeeded. Cascade and restore have no chain.
        let chain = !matches!(self.run.kind, Kind::Cascade | Kind::Restore);
        if lost && chain && self.setup.mutant != Some(Mutant::OrderReversed) {
            match which {
                Provider => self.run.doomed = [false; 5],
                Token => (self.run.doomed[NewIndex as usize], self.run.doomed[OldIndex as usize]) = (false, false),
                NewIndex | OldIndex | Marker => {}
            }
        }
        self.next_delete(n + 1)
    }

    fn dispose(&mut self, which: Which, cell: Cell) {
        let row = self.setup.row(which, cell);
        let policy = Policy { retire: Some(RETIREMENT.into()), ..self.setup.policy() };
        match self.run.kind {
            Kind::Restore => {
                if let Some((_, had)) = row.retirement() {
                    let ttl = cell.own_ttl();
                    assert_eq!(*had, self.setup.row(which, Cell { ttl, retired_from: None, ..cell }).ttl);
                    self.world.put(which, Some(Cell { ttl, retired_from: None, ..cell }));
                }
            }
            Kind::Cascade => self.world.remove(self.setup, which),
            _ if !self.setup.retire => self.world.remove(self.setup, which),
            _ if disposal::is_left_to_ttl(&row, self.now(), &policy) => {}
            _ => {
                let until = self.run.now + RETIREMENT;
                let retired_from = Some((until, cell.own_ttl()));
                self.world.put(which, Some(Cell { ttl: Some(until), retired_from, ..cell }));
            }
        }
    }

    fn restore_page(&mut self) -> Option<At> {
        for which in ALL {
            self.run.read[which as usize] = self.world.get(which);
            self.run.doomed[which as usize] = self.world.get(which).is_some_and(Cell::is_retired);
        }
        self.first_delete()
    }
}

fn referrers(world: &World, setup: &Setup, now: i32) -> Referrers {
    let token = world.get(Token).map(|cell| setup.row(Token, cell));
    let names = |row: Row| integrity::needs(&row, seconds(now), &setup.policy()).includes("google_token_1");
    if token.is_some_and(names) { Referrers::Some } else { Referrers::None }
}

/// A whole run without other writers.
pub(crate) fn alone(world: &mut World, setup: &Setup, kind: Kind, now: i32) {
    let mut run = Some(Run { now, ..Run::start(kind, world, setup) });
    while let Some(next) = run {
        run = RunStep { setup, world, run: next, stale: &[] }.take();
    }
}
