//! The classes of values, and the rows and instants made of them.

use model::rows::{self, NOW};
use model::verdict::{Kind, Outcome, RowFields, Settings, Time, Used, kind};
use serde_json::json;
use shared::bucket::{Bucket, Owner};
use shared::disposal::Retirement;
use shared::expiry::{Policy, Verdict};
use shared::row::{Raw, Row};
use shared::time::EpochSeconds;

pub(crate) const DAY: i64 = 86_400;
pub(crate) const FIVE_YEARS: i64 = 5 * 365 * DAY;
/// Clocks between 1970 and the year 9999.
pub(crate) const CLOCK: std::ops::RangeInclusive<i64> = 0..=253_402_300_799;
const SLACK: i64 = 300;

/// Where the instants of the fields lie: far enough apart that no constant bridges two of them.
const PLACES: [i64; 3] = [NOW - 100 * DAY, NOW, NOW + 100 * DAY];

/// Reuse windows: the library's, one second longer, a long one.
pub(crate) const WINDOWS: [i128; 3] = [172_800, 172_801, 864_000];
/// Grace periods: the minimum, the default, a long one.
pub(crate) const GRACES: [i128; 3] = [300, 3_600, 86_400];
/// Deleting, and retiring for the minimum, default and maximum number of days.
pub(crate) const RETIREMENTS: [Option<i128>; 4] = [None, Some(86_400), Some(7 * 86_400), Some(90 * 86_400)];

pub(crate) fn settings() -> Settings {
    Settings { window: 172_800, grace: 3_600, legacy: false, retire: None }
}

/// Every combination of these values.
pub(crate) fn policies(windows: &[i128], graces: &[i128], retirements: &[Option<i128>]) -> Vec<Settings> {
    let mut all = Vec::new();
    for window in windows.iter().copied() {
        for grace in graces.iter().copied() {
            for retire in retirements.iter().copied() {
                all.extend([false, true].map(|legacy| Settings { window, grace, legacy, retire }));
            }
        }
    }
    all
}

/// Values that a decision does not read: they take turns from case to case, so that each is combined with every kind of row.
/// [`crate::outside`] tests with random values that the decision does not read them.
pub(crate) struct Turns<T> {
    all: Vec<T>,
    turn: usize,
    long: bool,
}

impl<T> Turns<T> {
    pub(crate) fn of(all: Vec<T>) -> Self {
        Self { all, turn: 0, long: model::is_long() }
    }

    pub(crate) fn next(&mut self) -> &T {
        self.turn = (self.turn + 1) % self.all.len();
        &self.all[self.turn]
    }

    /// The next one; in the long form all of them.
    pub(crate) fn next_or_all(&mut self) -> &[T] {
        if self.long { &self.all } else { std::slice::from_ref(self.next()) }
    }
}

/// The policy of `shared`. It names all fields: a decision gets only these, and whether the run is dry is not among them.
pub(crate) fn policy(settings: &Settings) -> Policy {
    let Settings { window, grace, legacy, retire } = *settings;
    Policy {
        reuse_window: i64::try_from(window).unwrap(),
        grace: i64::try_from(grace).unwrap(),
        remove_legacy: legacy,
        retire: retire.map(|seconds| i64::try_from(seconds).unwrap()),
    }
}

pub(crate) fn kind_of(bucket: &Bucket) -> Kind {
    let owner = match bucket.owner {
        Owner::System(owner) => owner,
        Owner::Actor => rows::ACTOR,
        Owner::Legacy => "_mcp_system",
    };
    kind(owner, bucket.name)
}

/// One row of a product, and the values it was made of.
pub(crate) struct Case {
    pub(crate) row: Row,
    pub(crate) fields: Option<RowFields>,
    pub(crate) ttl: Time,
}

impl Case {
    pub(crate) fn show(&self) -> String {
        format!("data {:?}, {:?}, TTL {:?}", self.row.data.text(), self.fields, self.ttl)
    }
}

/// Missing, malformed, the extremes, zero, and three places for the instant `value + constant`.
pub(crate) fn times(constant: i64) -> Vec<Time> {
    let mut all = vec![Time::Missing, Time::Malformed];
    all.extend([i64::MIN, 0, i64::MAX].map(|at| Time::At(at.into())));
    all.extend(PLACES.map(|place| Time::At((place - constant).into())));
    all
}

/// TTLs: absent, not a number, numbers that DynamoDB never acts on, the first and the last that it acts on, and places.
pub(crate) fn ttls() -> Vec<Time> {
    let mut all = vec![Time::Missing, Time::Malformed];
    all.extend([i64::MIN, -1, 0, 1, 99_999_999_999, 100_000_000_000, i64::MAX].map(|at| Time::At(at.into())));
    all.extend(PLACES.map(|place| Time::At(place.into())));
    all.push(Time::At((NOW - FIVE_YEARS).into()));
    all
}

pub(crate) fn ttl_raw(ttl: Time) -> Raw {
    match ttl {
        Time::Missing => Raw::Absent,
        Time::Malformed => rows::text("2400000000"),
        Time::At(at) => rows::number(at),
    }
}

/// Which fields a decision reads, each with the constant that it adds: the axes of the product.
#[derive(Clone, Copy, Default)]
pub(crate) struct Axes {
    pub(crate) created_at: Option<i64>,
    pub(crate) expires_at: Option<i64>,
    pub(crate) exp: Option<i64>,
    pub(crate) used: bool,
    pub(crate) used_at: Option<i64>,
    pub(crate) seen_at: Option<i64>,
    pub(crate) retrieved_at: Option<i64>,
    /// Fields that are not an axis are missing in every row.
    pub(crate) alone: bool,
}

impl Axes {
    /// The fields that `judge` reads in rows of a kind.
    pub(crate) fn own(kind: Kind, settings: &Settings) -> Self {
        let axes = Self::default();
        let expiry = Self { expires_at: Some(SLACK), used: true, ..axes };
        match kind {
            Kind::Session => Self { created_at: Some(600 + SLACK), ..axes },
            Kind::Token | Kind::Ticket => expiry,
            Kind::Refresh => Self { used_at: Some(i64::try_from(settings.window).unwrap() + SLACK), ..expiry },
            Kind::Marker => Self { exp: Some(60 + SLACK), ..axes },
            Kind::TtlOnly | Kind::Index | Kind::Provider | Kind::Client | Kind::Unread => axes,
        }
    }
}

/// Every object of `data` along the axes. Other fields are all missing, all malformed, or all long past: a decision that reads
/// one of them would then have a different verdict.
pub(crate) fn objects(axes: Axes, mut each: impl FnMut(RowFields)) {
    let others = [Time::Missing, Time::Malformed, Time::At(1)];
    for other in others.into_iter().take(if axes.alone { 1 } else { 3 }) {
        let along = |axis: Option<i64>| axis.map_or(vec![other], times);
        let uses = match (axes.used, other) {
            (true, _) => vec![Used::Missing, Used::Malformed, Used::No, Used::Yes],
            (false, Time::Missing) => vec![Used::Missing],
            (false, Time::Malformed) => vec![Used::Malformed],
            (false, Time::At(_)) => vec![Used::Yes],
        };
        let (seen, retrieved) = (along(axes.seen_at), along(axes.retrieved_at));
        for created_at in along(axes.created_at) {
            for expires_at in along(axes.expires_at) {
                for exp in along(axes.exp) {
                    for used_at in along(axes.used_at) {
                        for used in uses.iter().copied() {
                            for seen_at in seen.iter().copied() {
                                for retrieved_at in retrieved.iter().copied() {
                                    each(RowFields {
                                        created_at,
                                        expires_at,
                                        exp,
                                        used,
                                        used_at,
                                        seen_at,
                                        retrieved_at,
                                    });
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The object as JSON. A malformed time is a string.
pub(crate) fn spell(fields: &RowFields) -> String {
    let mut text = String::from("{\"chain_id\": \"c\"");
    let times = [
        ("created_at", fields.created_at),
        ("expires_at", fields.expires_at),
        ("exp", fields.exp),
        ("used_at", fields.used_at),
        ("seen_at", fields.seen_at),
        ("retrieved_at", fields.retrieved_at),
    ];
    for (name, time) in times {
        match time {
            Time::Missing => {}
            Time::Malformed => text += &format!(", \"{name}\": \"1\""),
            Time::At(at) => text += &format!(", \"{name}\": {at}"),
        }
    }
    text += match fields.used {
        Used::Missing => "}",
        Used::Malformed => ", \"used\": 1}",
        Used::No => ", \"used\": false}",
        Used::Yes => ", \"used\": true}",
    };
    text
}

/// Unreadable `data`.
pub(crate) fn unreadable() -> Vec<Raw> {
    let texts = ["", "not json", "[1]", "\"x\"", "7", "null", "{\"expires_at\": 1", "{\"expires_at\": 1} x"];
    [Raw::Absent, Raw::Null, rows::number(1), Raw::Bytes(b"{}".to_vec())]
        .into_iter()
        .chain(texts.map(rows::text))
        .collect()
}

/// Every row of a bucket along the axes, with every TTL of `ttls`.
pub(crate) fn rows_of(bucket: &Bucket, axes: Axes, ttls: &[Time], mut each: impl FnMut(&Case)) {
    let mut with_ttls = |data: Raw, fields: Option<RowFields>| {
        let mut case = Case { row: rows::row(bucket, "n", data, Raw::Absent), fields, ttl: Time::Missing };
        for ttl in ttls {
            (case.ttl, case.row.ttl) = (*ttl, ttl_raw(*ttl));
            each(&case);
        }
    };
    unreadable().into_iter().for_each(|data| with_ttls(data, None));
    objects(axes, |fields| with_ttls(Raw::Text(spell(&fields)), Some(fields)));
}

/// Each second at which a comparison of the row can change, with its neighbours; the first second, `NOW` and the year 9999.
pub(crate) fn instants(case: &Case, axes: Axes, of_ttl: &[i64]) -> Vec<i64> {
    let mut all = vec![*CLOCK.start(), NOW, *CLOCK.end()];
    let mut around = |time: Time, constant: Option<i64>| {
        if let (Time::At(at), Some(constant)) = (time, constant) {
            let at = at + i128::from(constant);
            all.extend((at - 1..=at + 1).filter_map(|now| i64::try_from(now).ok()));
        }
    };
    of_ttl.iter().for_each(|constant| around(case.ttl, Some(*constant)));
    if let Some(fields) = &case.fields {
        around(fields.created_at, axes.created_at);
        around(fields.expires_at, axes.expires_at);
        around(fields.exp, axes.exp);
        around(fields.used_at, axes.used_at);
    }
    all.retain(|now| CLOCK.contains(now));
    all.sort_unstable();
    all.dedup();
    all
}

/// The row as it is stored after retirement.
pub(crate) fn retired(retirement: &Retirement) -> Row {
    let row = retirement.row().clone();
    Row { ttl: retirement.ttl(), retired_from: retirement.retired_from(), ..row }
}

pub(crate) fn at(now: i64) -> EpochSeconds {
    EpochSeconds::new(now)
}

/// A verdict of `shared` as the model's type.
pub(crate) fn outcome(verdict: Verdict) -> Outcome {
    match verdict {
        Verdict::Keep(reason) => Outcome::Keep(reason.name()),
        Verdict::Delete(reason) => Outcome::Delete(reason.name()),
    }
}

/// Prints the number of cases.
pub(crate) fn count(what: &str, cases: u64, started: std::time::Instant) {
    let seconds = model::seconds(started);
    model::figure(&json!({"part": "cases", "what": what, "cases": cases, "seconds": seconds}));
}
