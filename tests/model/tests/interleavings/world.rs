//! The rows of one token, the application that writes them, TTL, and time. A cell is the variable part of a row; the row itself, with
//! its key and its JSON, is made from it for a decision.

use model::rows::NOW;
use shared::bucket::{self, Bucket, OAUTH_OWNER};
use shared::expiry::Policy;
use shared::row::{Raw, Row, RowKey};
use shared::time::EpochSeconds;

use crate::lease::{Lease, Leases};

pub(crate) const ACTOR: &str = "actor";
pub(crate) const GRACE: i32 = 3_600;
pub(crate) const SLACK: i32 = 300;
const WINDOW: i32 = 172_800;
/// Maximum staleness of an eventually consistent read.
const STALE: i32 = 300;

/// Seconds since the token's first write, each on one side of a boundary: the start; the end of the grace period, and a second later;
/// after expiry and slack; after the TTL of provider row and token; after the index row's TTL; after another grace period.
pub(crate) const ACCESS: &[i32] = &[0, 3_600, 3_601, 3_902, 7_201, 14_401, 18_002];
/// The same for a refresh token: the grace period; after the provider row's TTL; after the reuse window of an immediate use, and its
/// TTL; after the expiry after thirty days; after the last TTL, and another grace period.
pub(crate) const REFRESH: &[i32] = &[0, 3_600, 3_601, 7_201, 173_101, 176_401, 2_592_301, 2_602_801, 2_606_402];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Which {
    Provider,
    Token,
    NewIndex,
    OldIndex,
    Marker,
}

pub(crate) use Which::{Marker, NewIndex, OldIndex, Provider, Token};

pub(crate) const ALL: [Which; 5] = [Provider, Token, NewIndex, OldIndex, Marker];

/// For rows that are retired: after the expiry; after a retirement that starts then.
pub(crate) const RETIRED_ACCESS: &[i32] = &[0, 3_902, 608_703];
/// The same for a refresh token: after the grace period; after a retirement that starts then; after the expiry.
pub(crate) const RETIRED_REFRESH: &[i32] = &[0, 3_601, 608_402, 2_592_301];
pub(crate) const RETIREMENT: i32 = 7 * 86_400;

/// The variable part of a row: when it was written, whether and when it was used, its TTL, and `retired_from`: the end of the
/// retirement and the TTL before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Cell {
    pub(crate) written: i32,
    pub(crate) used: Option<i32>,
    pub(crate) ttl: Option<i32>,
    pub(crate) retired_from: Option<(i32, Option<i32>)>,
}

impl Cell {
    /// Whether its TTL is still the end of its retirement. An update in place keeps `retired_from`.
    pub(crate) fn is_retired(self) -> bool {
        self.retired_from.is_some_and(|(until, _)| self.ttl == Some(until))
    }

    /// The TTL that the application set, by which the row is judged.
    pub(crate) fn own_ttl(self) -> Option<i32> {
        self.retired_from.filter(|_| self.is_retired()).map_or(self.ttl, |(_, had)| had)
    }
}

/// What the application is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum App {
    /// Writes provider row, token row, index row: how many are written.
    Creating(u8),
    Live,
    /// The refresh token is consumed; its index row is not rewritten yet.
    Rotating,
    /// Deletes index row, token row, provider row: how many are deleted.
    Revoking(u8),
    /// Deletes the actor's rows: how many are deleted. The index row, in another partition, is kept.
    Deleting(u8),
    Stopped,
}

/// What is checked: which token, which release wrote it, and which mutation is applied.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is one thing that a setup has or has not")]
pub(crate) struct Setup {
    pub(crate) name: &'static str,
    pub(crate) refresh: bool,
    /// Releases from 3.7.4 give rows a TTL.
    pub(crate) ttl: bool,
    /// Releases up to 3.9.2 write the old index.
    pub(crate) old_index: bool,
    /// Seconds by which the clock of the server that writes is behind.
    pub(crate) behind: i32,
    /// Only a replay marker, which is rewritten under its name.
    pub(crate) marker: bool,
    pub(crate) runs: [&'static [crate::runs::Kind]; 2],
    /// Dead rows are retired, not deleted: a dead row whose TTL is near is left to it; any other gets one a week ahead.
    pub(crate) retire: bool,
    /// A backup can restore a removed token and its index row, byte for byte.
    pub(crate) backup: bool,
    pub(crate) lease: Lease,
    pub(crate) mutant: Option<Mutant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// A delete without its condition.
    NoCondition,
    /// Absence in an eventually consistent read is trusted.
    StaleAbsence,
    /// Deletes index row, token row, provider row, in this order.
    OrderReversed,
    NoGrace,
    /// An index row is written for a token that has none.
    WritesIndex,
    /// The lease is written without a condition.
    LeaseWithoutCondition,
}

impl Setup {
    pub(crate) fn times(&self) -> &'static [i32] {
        match (self.refresh, self.retire) {
            (false, false) => ACCESS,
            (false, true) => RETIRED_ACCESS,
            (true, false) => REFRESH,
            (true, true) => RETIRED_REFRESH,
        }
    }

    pub(crate) fn policy(&self) -> Policy {
        let grace = if self.mutant == Some(Mutant::NoGrace) { 0 } else { GRACE };
        Policy { grace: grace.into(), ..Policy::default() }
    }

    fn life(&self) -> i32 {
        if self.refresh { 2_592_000 } else { 3_600 }
    }

    pub(crate) fn index(&self) -> Which {
        if self.old_index { OldIndex } else { NewIndex }
    }

    pub(crate) fn bucket(&self, which: Which) -> &'static Bucket {
        let (owner, name) = match (which, self.refresh) {
            (Provider, _) => (ACTOR, "mcp_google_tokens"),
            (Token, false) => (ACTOR, "mcp_tokens"),
            (Token, true) => (ACTOR, "mcp_refresh_tokens"),
            (NewIndex, false) => (OAUTH_OWNER, "_access_token_index"),
            (NewIndex, true) => (OAUTH_OWNER, "_refresh_token_index"),
            (OldIndex, false) => (OAUTH_OWNER, "access_token_index"),
            (OldIndex, true) => (OAUTH_OWNER, "refresh_token_index"),
            (Marker, _) => (OAUTH_OWNER, "_id_token_replay"),
        };
        bucket::find(owner, name).unwrap()
    }

    /// The row as it is stored.
    pub(crate) fn row(&self, which: Which, cell: Cell) -> Row {
        let bucket = self.bucket(which);
        let seconds = |at: i32| NOW + i64::from(at);
        let (owner, name, data) = match which {
            Provider => (ACTOR, "google_token_1", "{\"refresh_token\": \"1//secret\"}".to_owned()),
            Marker => {
                let (seen, exp) = (seconds(cell.written), seconds(cell.written + 3_600));
                (OAUTH_OWNER, "m", format!("{{\"seen_at\": {seen}, \"exp\": {exp}}}"))
            }
            NewIndex | OldIndex => (OAUTH_OWNER, "t_1", format!("\"{ACTOR}\"")),
            Token => {
                let (created, expires) = (seconds(cell.written), seconds(cell.written + self.life()));
                let used = cell.used.map_or("false".to_owned(), |at| format!("true, \"used_at\": {}", seconds(at)));
                let times = format!("\"created_at\": {created}, \"expires_at\": {expires}, \"used\": {used}");
                (ACTOR, "t_1", format!("{{\"google_token_key\": \"google_token_1\", {times}}}"))
            }
        };
        let number = |at: i32| Raw::Number(seconds(at).to_string());
        let retired_from =
            |(until, had): (i32, Option<i32>)| [Some(until), had].into_iter().flatten().map(number).collect();
        Row {
            key: RowKey::in_bucket(owner, bucket, name),
            bucket: Raw::Text(bucket.name.to_owned()),
            data: Raw::Text(data),
            ttl: cell.ttl.map_or(Raw::Absent, number),
            retired_from: cell.retired_from.map_or(Raw::Absent, |retired| Raw::List(retired_from(retired))),
            bytes: 100,
        }
    }

    /// The row as the library writes it now.
    pub(crate) fn written(&self, which: Which, now: i32) -> Cell {
        let storage = match which {
            Provider => 3_600,
            Token => self.life(),
            NewIndex | OldIndex => self.life() + 7_200,
            Marker => 3_660,
        };
        // The other rows do not contain the time of their write.
        let written = if matches!(which, Token | Marker) { now } else { 0 };
        Cell { written, used: None, ttl: self.ttl.then_some(now + storage + 3_600), retired_from: None }
    }
}

/// The table, its replica, and all writers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "each is one thing that has happened or not")]
pub(crate) struct World {
    /// Index into the list of times.
    pub(crate) time: u8,
    pub(crate) table: [Option<Cell>; 5],
    /// What an eventually consistent read may still return.
    pub(crate) replica: [Option<Cell>; 5],
    pub(crate) app: App,
    pub(crate) runs: [Option<crate::runs::Run>; 2],
    pub(crate) lease: Leases,
    /// When the repair first saw the provider row and the token row unreachable and of unknown age.
    pub(crate) seen: [Option<i32>; 2],
    /// The stream has a record of a token that TTL removed.
    pub(crate) record: bool,
    /// The grant is wanted: not revoked, its actor not deleted, its writes not interrupted.
    pub(crate) wanted: bool,
    pub(crate) revoked: bool,
    /// Token and index row were complete, and only runs have deleted either of them since.
    pub(crate) orderly: bool,
    /// A token and its index row in a backup.
    pub(crate) backup: Option<[Cell; 2]>,
    /// A deleted row that was alive, or that a live row needed.
    pub(crate) harm: Option<Which>,
}

impl World {
    pub(crate) fn begin(setup: &Setup) -> Self {
        Self {
            time: 0,
            table: [None; 5],
            replica: [None; 5],
            app: if setup.marker { App::Live } else { App::Creating(0) },
            runs: [None, None],
            lease: Leases::default(),
            seen: [None; 2],
            record: false,
            wanted: true,
            revoked: false,
            orderly: false,
            backup: None,
            harm: None,
        }
    }

    pub(crate) fn now(&self, setup: &Setup) -> i32 {
        setup.times()[usize::from(self.time)]
    }

    pub(crate) fn get(&self, which: Which) -> Option<Cell> {
        self.table[which as usize]
    }

    /// A write. The replica keeps what it has until it catches up.
    pub(crate) fn put(&mut self, which: Which, cell: Option<Cell>) {
        self.table[which as usize] = cell;
    }

    /// Whether the application still needs the row, by its own clock, which may be five minutes behind.
    pub(crate) fn is_live(&self, setup: &Setup, which: Which) -> bool {
        let now = self.now(setup) - SLACK;
        let token_lives = |token: Cell| match token.used {
            None => now <= token.written + setup.life(),
            Some(used) => now <= used + WINDOW,
        };
        let token = self.get(Token).filter(|token| token_lives(*token));
        match which {
            Marker => self.get(Marker).is_some_and(|marker| now < marker.written + 3_600 + 60),
            Token => self.wanted && token.is_some(),
            NewIndex | OldIndex => self.wanted && which == setup.index() && token.is_some(),
            // Its own TTL ends it, even if a row names it.
            Provider => {
                let named = matches!(self.app, App::Creating(1)) || token.is_some_and(|token| token.used.is_none());
                let in_time =
                    self.get(Provider).is_some_and(|row| row.own_ttl().is_none_or(|ttl| self.now(setup) <= ttl));
                self.wanted && named && in_time
            }
        }
    }

    /// A delete by another writer than the application.
    pub(crate) fn remove(&mut self, setup: &Setup, which: Which) {
        if self.is_live(setup, which) {
            self.harm = self.harm.or(Some(which));
        }
        self.put(which, None);
    }

    /// Whether the token can be used.
    pub(crate) fn works(&self, setup: &Setup) -> bool {
        let token = self
            .get(Token)
            .is_some_and(|token| token.used.is_none() && self.now(setup) <= token.written + setup.life());
        token && self.get(setup.index()).is_some()
    }

    /// The possible next steps of the application.
    pub(crate) fn app_steps(&self, setup: &Setup) -> Vec<Step> {
        match self.app {
            _ if setup.marker => vec![Step::Register],
            App::Creating(0) => vec![Step::Go],
            // While it only deletes, dying is the same as taking no further step.
            App::Revoking(_) | App::Deleting(_) => vec![Step::Go],
            App::Creating(_) | App::Rotating => vec![Step::Go, Step::Die],
            App::Live => {
                let usable = self.works(setup) && setup.refresh;
                let mut steps = vec![Step::Revoke, Step::DeleteActor];
                steps.extend(usable.then_some(Step::Rotate));
                steps
            }
            App::Stopped => Vec::new(),
        }
    }

    pub(crate) fn app_step(&mut self, setup: &Setup, step: Step) {
        let now = self.now(setup) - setup.behind;
        self.app = match (step, self.app) {
            (Step::Register, app) => {
                self.put(Marker, Some(setup.written(Marker, now)));
                app
            }
            (Step::Go, App::Creating(done)) => {
                let which = [Provider, Token, setup.index()][usize::from(done)];
                self.put(which, Some(setup.written(which, now)));
                self.orderly = done == 2;
                if done == 2 { App::Live } else { App::Creating(done + 1) }
            }
            // `set_attr` of the index row: an unconditional put.
            (Step::Go, App::Rotating) => {
                let ttl = setup.ttl.then_some(now + WINDOW + 7_200 + 3_600);
                self.put(setup.index(), Some(Cell { ttl, ..setup.written(setup.index(), now) }));
                App::Stopped
            }
            (Step::Go, App::Revoking(done)) => {
                self.put([setup.index(), Token, Provider][usize::from(done)], None);
                self.revoked = true;
                if done == 2 { App::Stopped } else { App::Revoking(done + 1) }
            }
            (Step::Go, App::Deleting(done)) => {
                self.put([Provider, Token][usize::from(done)], None);
                if done == 1 { App::Stopped } else { App::Deleting(done + 1) }
            }
            (Step::Revoke, _) => App::Revoking(0),
            (Step::DeleteActor, _) => App::Deleting(0),
            // Compare-and-swap on the token's data, in place.
            (Step::Rotate, _) => {
                let consumed = |token: Cell| {
                    let ttl = setup.ttl.then_some(now + WINDOW + 3_600).or(token.ttl);
                    Cell { used: Some(now), ttl, ..token }
                };
                self.put(Token, self.get(Token).map(consumed));
                App::Rotating
            }
            (Step::Die | Step::Go, app) => {
                self.wanted &= !matches!(app, App::Creating(_));
                App::Stopped
            }
        };
        if matches!(self.app, App::Revoking(_) | App::Deleting(_)) {
            (self.wanted, self.orderly) = (false, false);
        }
    }

    /// Whether time may pass: the application finishes writes that it started within the grace period, or never.
    pub(crate) fn may_tick(&self, setup: &Setup) -> bool {
        let Some(next) = setup.times().get(usize::from(self.time) + 1) else { return false };
        let writing = match self.app {
            // Time starts with the first write.
            App::Creating(0) => return false,
            App::Creating(_) => Some(0),
            App::Rotating => self.get(Token).and_then(|token| token.used).map(|used| used + setup.behind),
            _ => None,
        };
        writing.is_none_or(|since| next - since <= GRACE)
    }

    pub(crate) fn tick(&mut self, setup: &Setup) {
        let before = self.now(setup);
        self.time += 1;
        if self.now(setup) - before > STALE {
            self.replica = self.table;
        }
    }

    /// Rows that TTL may remove now.
    pub(crate) fn ttl_may_remove(&self, setup: &Setup) -> Vec<Which> {
        let past = |which: &Which| self.get(*which).and_then(|cell| cell.ttl).is_some_and(|ttl| ttl < self.now(setup));
        ALL.into_iter().filter(past).collect()
    }

    /// A removal by the library's own TTL is not caused by a run; a removal at the end of a retirement is.
    pub(crate) fn ttl_remove(&mut self, setup: &Setup, which: Which) {
        self.record |= which == Token;
        self.orderly &= which == Provider;
        if self.get(which).is_some_and(Cell::is_retired) {
            self.remove(setup, which);
        }
        self.put(which, None);
    }
}

/// A step of the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Go,
    Die,
    Revoke,
    DeleteActor,
    Rotate,
    Register,
}

pub(crate) fn seconds(now: i32) -> EpochSeconds {
    EpochSeconds::new(NOW + i64::from(now))
}
