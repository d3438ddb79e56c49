//! Where it is going: what has come and died since the last daily cleanup, what the cleanup deletes, and whether that is
//! enough. Pure, from a census and from what the runs left in their state row.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use serde_json::json;

use super::census::{Census, OwnerKind};
use crate::cleanup::Cleanup;
use crate::run::Job;
use crate::run::report::Outcome;
use crate::run::state::{JobState, LastRun};
use shared::bucket::{BUCKETS, Owner};
use shared::time::EpochSeconds;

const DAY: i64 = 86_400;
/// Sooner after a run there is no rate to speak of.
const LEAST_SECONDS: i64 = 3 * 3_600;
/// Runs closer to each other than this are somebody's at a terminal, not a schedule's.
const LEAST_INTERVAL: i64 = 1_200;
/// How far ahead of ours another machine's clock may be.
const CLOCKS_APART: i64 = 300;

/// The names are those in the answer, fixed by its users.
#[derive(Clone, Copy, Debug, PartialEq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case", const_into_str)]
pub enum Trend {
    /// The last run reached the end: the next one takes all that has died since, in about so many days.
    ClearsWithNextRun { days: f64 },
    /// The last run left dead rows to the table's TTL, as it was asked to.
    LeftToTtl,
    /// Runs are cut off, but delete more than dies.
    Shrinks { days: f64 },
    /// More dies than is deleted, or nothing is deleted any more.
    Grows,
    /// Too few runs, or too little of them, to tell.
    Unknown,
}

impl Trend {
    pub const fn name(self) -> &'static str {
        self.into_str()
    }

    pub const fn days_until_clear(self) -> Option<f64> {
        match self {
            Trend::ClearsWithNextRun { days } | Trend::Shrinks { days } => Some(days),
            Trend::LeftToTtl | Trend::Grows | Trend::Unknown => None,
        }
    }
}

/// All of the system actors' rows: those that the daily cleanup reads every day.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Forecast {
    /// Dead rows and due index rows that wait for a run. What a complete run has looked at and left is not among them.
    pub backlog: u64,
    #[serde(flatten, serialize_with = "name_and_days")]
    pub trend: Trend,
    #[serde(rename = "seconds_since_last_run")]
    pub seconds_since_run: Option<i64>,
    /// Rows that have come since the last run over all of them, less what has gone otherwise.
    #[serde(rename = "arrived_since_last_run")]
    pub arrived: Option<i64>,
    #[serde(rename = "died_since_last_run")]
    pub died: Option<u64>,
    /// By the runs of the last day, or of the last interval if that is longer.
    #[serde(rename = "deleted_lately")]
    pub deleted: u64,
    pub died_per_day: Option<f64>,
    pub deleted_per_day: Option<f64>,
}

fn name_and_days<T: Serializer>(trend: &Trend, to: T) -> Result<T::Ok, T::Error> {
    json!({"trend": trend.name(), "days_until_clear": trend.days_until_clear()}).serialize(to)
}

/// How long ago something was, by another machine's clock; `None` when that clock was ahead.
pub fn age(at: i64, now: EpochSeconds) -> Option<i64> {
    let age = now.get().saturating_sub(at);
    (age >= -CLOCKS_APART).then_some(age.max(0))
}

/// How often runs come, as far as two of them tell.
pub(crate) fn interval(run: &LastRun) -> Option<i64> {
    let seconds = run.at.saturating_sub(run.previous_at?);
    (seconds >= LEAST_INTERVAL).then_some(seconds)
}

/// How long after a complete run the next one is overdue: a day after its time, or as rare as the runs have been. The one rule
/// of the finding, the metric and its alarm.
pub(super) fn overdue_after(state: &JobState, period: i64) -> i64 {
    let interval = state.last_run.as_ref().and_then(interval).unwrap_or(0);
    interval.saturating_add(interval / 2).max(period.saturating_add(DAY))
}

/// What becomes of the backlog, if things go on as they did.
pub fn forecast(census: &Census, daily: &JobState, now: EpochSeconds) -> Forecast {
    let system = census.of(OwnerKind::System);
    let all = system.dead + system.due;
    let nothing_known = Forecast {
        backlog: all,
        arrived: None,
        died: None,
        deleted: 0,
        seconds_since_run: None,
        died_per_day: None,
        deleted_per_day: None,
        trend: Trend::Unknown,
    };
    let Some((run, since)) = daily.last_run.as_ref().and_then(|run| Some((run, age(run.at, now)?))) else {
        return nothing_known;
    };
    let span = interval(run).unwrap_or(0).max(DAY);
    let deleted = daily.deleted_within(span);
    let died_per_day = (since >= LEAST_SECONDS).then(|| per_day(system.since_last_run, since));
    let deleted_per_day = run.previous_at.map(|_| per_day(deleted, span));
    let arrived = daily.left.as_ref().and_then(|left| {
        let left = i64::try_from(of_the_system_actors(left)).ok()?;
        i64::try_from(system.rows).ok()?.checked_sub(left)
    });
    let complete = Outcome::named(&run.outcome).is_some_and(Outcome::is_complete);
    let backlog = if complete { system.since_last_run } else { all };
    let trend = match (complete, daily.consecutive_incomplete_runs, died_per_day, deleted_per_day) {
        _ if since > overdue_after(daily, Cleanup::PERIOD) && backlog > 0 => Trend::Grows,
        (true, ..) if run.left_to_ttl + run.retired > 0 => Trend::LeftToTtl,
        (true, ..) if backlog == 0 => Trend::ClearsWithNextRun { days: 0.0 },
        (true, ..) => {
            let left = interval(run).unwrap_or(DAY).saturating_sub(since).max(0);
            Trend::ClearsWithNextRun { days: seconds(left) / seconds(DAY) }
        }
        (false, 1.., Some(died), Some(deleted)) if deleted > died => {
            Trend::Shrinks { days: rows(backlog) / (deleted - died) }
        }
        (false, 1.., Some(_), Some(_)) if backlog > 0 => Trend::Grows,
        (false, ..) => Trend::Unknown,
    };
    Forecast {
        backlog,
        arrived,
        died: Some(system.since_last_run),
        deleted,
        seconds_since_run: Some(since),
        died_per_day,
        deleted_per_day,
        trend,
    }
}

impl Forecast {
    /// What is told when not all rows were counted: a forecast from a part would mislead.
    pub fn none() -> Self {
        forecast(&Census::default(), &JobState::default(), EpochSeconds::new(0))
    }
}

fn of_the_system_actors(counts: &BTreeMap<String, u64>) -> u64 {
    let system = BUCKETS.iter().filter(|bucket| matches!(bucket.owner, Owner::System(_)));
    system.filter_map(|bucket| counts.get(bucket.name)).fold(0, |sum, n| sum.saturating_add(*n))
}

fn per_day(n: u64, in_seconds: i64) -> f64 {
    rows(n) * seconds(DAY) / seconds(in_seconds)
}

#[expect(clippy::cast_precision_loss, reason = "rows are far below 2^52")]
fn rows(n: u64) -> f64 {
    n as f64
}

#[expect(clippy::cast_precision_loss, reason = "seconds are far below 2^52")]
fn seconds(n: i64) -> f64 {
    n as f64
}
