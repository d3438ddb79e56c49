//! Counts rows while they are read: number, size, dead rows and their age, and what TTL does with them.

use std::collections::BTreeMap;

use serde::Serialize;

use super::lag::{Ages, Lags};
use shared::bucket::{JANITOR_OWNER, Owner};
use shared::disposal;
use shared::expiry::{self, Policy, Verdict};
use shared::index;
use shared::row::{Row, Ttl, TtlFault, TtlState};
use shared::time::EpochSeconds;

/// Kinds of owners by which rows are counted. The names are part of the answer and the metrics, so they are stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case", const_into_str)]
pub enum OwnerKind {
    System,
    Actor,
    /// Rows that only ActingWeb 3.2.1 read.
    Legacy,
    /// The janitor's state rows.
    Janitor,
    /// Rows of unknown buckets, whoever owns them.
    Unknown,
}

impl OwnerKind {
    pub const ALL: [OwnerKind; 5] =
        [OwnerKind::System, OwnerKind::Actor, OwnerKind::Legacy, OwnerKind::Janitor, OwnerKind::Unknown];
}

/// Why DynamoDB's TTL will never remove a row. The names are part of the answer, so they are stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, strum::IntoStaticStr)]
#[serde(into = "&'static str")]
#[strum(serialize_all = "snake_case")]
pub enum Never {
    /// The row has no TTL, but the library sets one in its bucket: written before 3.7.4, or consumed before 3.8.2.
    Absent,
    #[strum(transparent)]
    Fault(TtlFault),
}

/// 2010: ActingWeb stored no tokens before.
const EARLIEST: i64 = 1_262_304_000;

/// The figures of some rows. The skipped fields are in the answer only once, for all rows.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Counts {
    pub rows: u64,
    pub bytes: u64,
    pub dead: u64,
    /// Retired rows: dead, and removed by TTL soon. They are not included in `dead`.
    pub retired: u64,
    /// The latest TTL of the retired rows.
    #[serde(skip)]
    pub retired_until: Option<EpochSeconds>,
    /// Index rows whose TTL is past or unusable. Their targets decide whether they are dead.
    pub due: u64,
    /// Dead and due rows that became so after the last run.
    #[serde(skip)]
    pub since_last_run: u64,
    /// Written in the hour before the count, by their own field or their TTL.
    pub created_last_hour: u64,
    /// How long the oldest dead row has been dead.
    #[serde(rename = "oldest_dead_age_seconds")]
    pub oldest_dead: Option<u64>,
    /// How long the dead rows have been dead.
    #[serde(skip)]
    pub dead_ages: Ages,
    #[serde(rename = "ttl_lag")]
    pub lags: Lags,
    #[serde(rename = "never_removed_by_ttl")]
    pub never: BTreeMap<Never, u64>,
}

impl Counts {
    /// Adds other counts, multiplied by `factor`. Of the oldest ages the larger one is kept, because nothing is known
    /// about unread rows.
    pub fn merge(&mut self, other: &Self, factor: f64) {
        let times = |n: u64| times(n, factor);
        self.rows += times(other.rows);
        self.bytes += times(other.bytes);
        self.dead += times(other.dead);
        self.retired += times(other.retired);
        self.retired_until = self.retired_until.max(other.retired_until);
        self.due += times(other.due);
        self.since_last_run += times(other.since_last_run);
        self.created_last_hour += times(other.created_last_hour);
        self.oldest_dead = self.oldest_dead.max(other.oldest_dead);
        self.dead_ages.merge(&other.dead_ages, factor);
        self.lags.merge(&other.lags, factor);
        for (why, n) in &other.never {
            *self.never.entry(*why).or_default() += times(*n);
        }
    }
}

/// The parameters by which rows are judged and counted.
#[derive(Clone, Copy, Debug)]
pub struct Measure {
    pub now: EpochSeconds,
    pub policy: Policy,
    /// When the last daily cleanup started.
    pub last_run_at: Option<EpochSeconds>,
}

/// Counts by kind of owner and bucket.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Census {
    buckets: BTreeMap<(OwnerKind, &'static str), Counts>,
}

impl Census {
    pub fn count(&mut self, row: &Row, against: &Measure) {
        let known = row.known_bucket();
        let (kind, name) = match known.map(|bucket| (bucket.owner, bucket.name)) {
            _ if row.key.owner == JANITOR_OWNER => (OwnerKind::Janitor, OwnerKind::Janitor.into_str()),
            None => (OwnerKind::Unknown, OwnerKind::Unknown.into_str()),
            Some((Owner::System(_), name)) => (OwnerKind::System, name),
            Some((Owner::Actor, name)) => (OwnerKind::Actor, name),
            Some((Owner::Legacy, name)) => (OwnerKind::Legacy, name),
        };
        let counts = self.buckets.entry((kind, name)).or_default();
        counts.rows += 1;
        counts.bytes += row.bytes as u64;
        let Some(bucket) = known else { return };
        let Measure { now, policy, last_run_at } = against;
        let ttl = row.stored_ttl();
        let passed = match (ttl, ttl.state(*now)) {
            (Ttl::At(at), TtlState::Past) => {
                counts.lags.add(seconds_since(at, *now));
                Some(at.plus(1))
            }
            _ => None,
        };
        let is_new = row.created_at(bucket).is_some_and(|at| (0..3_600).contains(&now.since(at)));
        counts.created_last_hour += u64::from(is_new);
        if let Some((until, _)) = row.retirement() {
            counts.retired += 1;
            counts.retired_until = counts.retired_until.max(Some(until));
        }
        // A row that is left to TTL does not wait for a run. It counts as dead once its TTL has passed.
        let waits_for_ttl = row.is_retired() || disposal::is_left_to_ttl(row, *now, policy);
        let died = match expiry::judge(row, bucket, *now, policy) {
            Verdict::Delete(_) if waits_for_ttl => passed,
            Verdict::Delete(_) => expiry::dead_from(row, bucket, policy),
            Verdict::Keep(_) => None,
        };
        counts.dead += u64::from(died.is_some());
        // A time before such rows existed is nonsense: the age is unknown.
        if let Some(died) = died.filter(|died| died.get() >= EARLIEST) {
            let age = seconds_since(died, *now);
            counts.oldest_dead = counts.oldest_dead.max(Some(age));
            counts.dead_ages.add(age);
        }
        let due = index::is_overdue(row, bucket, *now) && (!waits_for_ttl || passed.is_some());
        counts.due += u64::from(due);
        let since = died.or(passed.filter(|_| due));
        let after_last_run = since.is_some_and(|from| last_run_at.is_some_and(|at| from > at));
        counts.since_last_run += u64::from(after_last_run);
        let never = match ttl {
            Ttl::Absent => bucket.ttl.map(|_| Never::Absent),
            Ttl::At(_) | Ttl::Malformed => row.ttl_fault(*now).map(Never::Fault),
        };
        if let Some(never) = never {
            *counts.never.entry(never).or_default() += 1;
        }
    }

    /// See [`Counts::merge`].
    pub fn merge(&mut self, other: &Self, factor: f64) {
        for (key, counts) in &other.buckets {
            self.buckets.entry(*key).or_default().merge(counts, factor);
        }
    }

    /// The buckets of one kind of owner that hold rows.
    pub fn buckets(&self, kind: OwnerKind) -> impl Iterator<Item = (&'static str, &Counts)> {
        self.buckets.iter().filter(move |((of, _), _)| *of == kind).map(|((_, name), counts)| (*name, counts))
    }

    /// All rows of one kind of owner.
    pub fn of(&self, kind: OwnerKind) -> Counts {
        sum(self.buckets(kind).map(|(_, counts)| counts))
    }

    pub fn total(&self) -> Counts {
        sum(self.buckets.values())
    }
}

fn sum<'c>(counts: impl Iterator<Item = &'c Counts>) -> Counts {
    counts.fold(Counts::default(), |mut sum, counts| {
        sum.merge(counts, 1.0);
        sum
    })
}

fn seconds_since(then: EpochSeconds, now: EpochSeconds) -> u64 {
    u64::try_from(now.since(then)).unwrap_or(0)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rows times a factor from 1 up")]
pub(super) fn times(n: u64, factor: f64) -> u64 {
    (super::sample::as_f64(n) * factor).round() as u64
}
