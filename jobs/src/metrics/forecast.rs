//! Forecasts the backlog: compares the rows that have died since the last cleanup with the rows that the cleanup
//! deletes. Pure functions of a census and of the cleanup's state row.

use std::collections::BTreeMap;

use serde::Serialize;

use super::census::{Census, OwnerKind};
use super::sample::as_f64;
use crate::cleanup::Cleanup;
use crate::run::Job;
use crate::run::report::Outcome;
use crate::run::state::{JobState, LastRun};
use shared::bucket::{BUCKETS, Owner};
use shared::time::EpochSeconds;

const DAY: i64 = 86_400;
/// Sooner after a run, no rate is computed.
const LEAST_SECONDS: i64 = 3 * 3_600;
/// Runs closer together than this were started by a person, not by a schedule.
const LEAST_INTERVAL: i64 = 1_200;
/// How far ahead of ours another machine's clock may be.
const CLOCKS_APART: i64 = 300;

/// The names are part of the answer, so they are stable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, strum::IntoStaticStr)]
#[serde(into = "&'static str")]
#[strum(serialize_all = "kebab-case", const_into_str)]
pub enum Trend {
    /// The last run reached the end: the next one deletes all rows that have died since.
    ClearsWithNextRun,
    /// The last run left dead rows to the table's TTL, as configured.
    LeftToTtl,
    /// Runs are incomplete, but delete more rows than die.
    Shrinks,
    /// More rows die than are deleted, or none are deleted any more.
    Grows,
    /// Too few runs, or too little data about them, for a forecast.
    #[default]
    Unknown,
}

/// Covers all rows of the system actors, which the cleanup reads every day. The default is used for an incomplete
/// count, because a forecast from a part of the rows would mislead.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Forecast {
    /// Dead rows and due index rows that wait for a run, without those that a complete run has judged and kept.
    pub backlog: u64,
    pub trend: Trend,
    /// Days until the backlog is cleared, if the trend clears it.
    pub days_until_clear: Option<f64>,
    #[serde(rename = "seconds_since_last_run")]
    pub seconds_since_run: Option<i64>,
    /// Rows written since the last run over all of them, minus rows that were removed otherwise.
    #[serde(rename = "arrived_since_last_run")]
    pub arrived: Option<i64>,
    #[serde(rename = "died_since_last_run")]
    pub died: Option<u64>,
    /// Rows deleted by the runs of the last day, or of the last interval if that is longer.
    #[serde(rename = "deleted_lately")]
    pub deleted: u64,
    pub died_per_day: Option<f64>,
    pub deleted_per_day: Option<f64>,
}

/// How long ago something was, by another machine's clock; `None` when that clock was ahead.
pub fn age(at: i64, now: EpochSeconds) -> Option<i64> {
    let age = now.get().saturating_sub(at);
    (age >= -CLOCKS_APART).then_some(age.max(0))
}

/// The time between the last two runs; `None` if it is too short for a schedule.
pub(crate) fn interval(run: &LastRun) -> Option<i64> {
    let seconds = run.at.saturating_sub(run.previous_at?);
    (seconds >= LEAST_INTERVAL).then_some(seconds)
}

/// How long after a complete run the next one is overdue: the period and a day, or one and a half intervals if that is
/// longer. The finding, the metric and its alarm use this rule.
pub(super) fn overdue_after(state: &JobState, period: i64) -> i64 {
    let interval = state.last_run.as_ref().and_then(interval).unwrap_or(0);
    interval.saturating_add(interval / 2).max(period.saturating_add(DAY))
}

/// Forecasts the backlog from the rates so far.
pub fn forecast(census: &Census, daily: &JobState, now: EpochSeconds) -> Forecast {
    let system = census.of(OwnerKind::System);
    let all = system.dead + system.due;
    let Some((run, since)) = daily.last_run.as_ref().and_then(|run| Some((run, age(run.at, now)?))) else {
        return Forecast { backlog: all, ..Forecast::default() };
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
    let (trend, days_until_clear) = match (complete, daily.consecutive_incomplete_runs, died_per_day, deleted_per_day) {
        _ if since > overdue_after(daily, Cleanup::PERIOD) && backlog > 0 => (Trend::Grows, None),
        (true, ..) if run.left_to_ttl + run.retired > 0 => (Trend::LeftToTtl, None),
        (true, ..) if backlog == 0 => (Trend::ClearsWithNextRun, Some(0.0)),
        (true, ..) => {
            let left = interval(run).unwrap_or(DAY).saturating_sub(since).max(0);
            (Trend::ClearsWithNextRun, Some(seconds(left) / seconds(DAY)))
        }
        (false, 1.., Some(died), Some(deleted)) if deleted > died => {
            (Trend::Shrinks, Some(as_f64(backlog) / (deleted - died)))
        }
        (false, 1.., Some(_), Some(_)) if backlog > 0 => (Trend::Grows, None),
        (false, ..) => (Trend::Unknown, None),
    };
    Forecast {
        backlog,
        trend,
        days_until_clear,
        seconds_since_run: Some(since),
        arrived,
        died: Some(system.since_last_run),
        deleted,
        died_per_day,
        deleted_per_day,
    }
}

fn of_the_system_actors(counts: &BTreeMap<String, u64>) -> u64 {
    let system = BUCKETS.iter().filter(|bucket| matches!(bucket.owner, Owner::System(_)));
    system.filter_map(|bucket| counts.get(bucket.name)).fold(0, |sum, n| sum.saturating_add(*n))
}

fn per_day(n: u64, in_seconds: i64) -> f64 {
    as_f64(n) * seconds(DAY) / seconds(in_seconds)
}

#[expect(clippy::cast_precision_loss, reason = "seconds are far below 2^52")]
fn seconds(n: i64) -> f64 {
    n as f64
}
