//! The state row of a job: where its next run continues, and the figures of its last run for the metrics.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::run::report::{BucketCounts, Outcome, RunReport, Totals};
use crate::store::{OwnState, Result};
use shared::bucket::BUCKETS;
use shared::expiry::KeepReason;

/// A job's state row.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct JobState {
    /// Where the next run continues, in the job's own format; null is the beginning.
    pub cursor: Value,
    /// When the run started that wrote the cursor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor_at: Option<i64>,
    /// When the first run that stored a state started: a run could have completed since.
    pub first_run_at: Option<i64>,
    /// When the last complete run started.
    pub last_complete_at: Option<i64>,
    /// Consecutive runs that hit their deadline or `MAX_DELETES`.
    pub consecutive_incomplete_runs: u64,
    pub last_run: Option<LastRun>,
    /// Rows that the last run read and did not delete, by bucket, if it walked over all of them.
    pub left: Option<BTreeMap<String, u64>>,
    /// Name and start of the last recorded execution, because its last step may be retried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_execution: Option<(String, i64)>,
    /// Deleted rows of the system actors, by the hour since 1970 in which the run started.
    pub deleted_in_hour: BTreeMap<i64, u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LastRun {
    pub at: i64,
    /// When the run before it started.
    pub previous_at: Option<i64>,
    pub outcome: String,
    pub read: u64,
    pub deleted: u64,
    pub lost_race: u64,
    pub skipped: u64,
    pub retired: u64,
    /// Rows that were left to the table's TTL.
    #[serde(alias = "deferred")]
    pub left_to_ttl: u64,
    /// Deleted rows by bucket, without zeros.
    pub deleted_in: BTreeMap<String, u64>,
}

impl LastRun {
    /// Without the fields that only the state can fill in.
    pub(crate) fn new(at: i64, totals: Totals) -> Self {
        let Totals { read, deleted, lost_race, skipped, retired, left_to_ttl, deleted_in, .. } = totals;
        let (previous_at, outcome) = (None, String::new());
        Self { at, previous_at, outcome, read, deleted, lost_race, skipped, retired, left_to_ttl, deleted_in }
    }
}

/// Longer than the time between two weekly runs.
const REMEMBERED_HOURS: i64 = 15 * 24;

impl JobState {
    pub(crate) async fn read<S: OwnState>(store: &S, job: &str) -> Result<Self> {
        Ok(store.read_state(job).await?.map_or_else(Self::default, |stored| Self::from_json(&stored.value)))
    }

    /// Reads each field on its own, so that a malformed one does not affect the others. Without a cursor the walk
    /// starts at the beginning, which is always safe.
    pub fn from_json(value: &Value) -> Self {
        fn read<T: DeserializeOwned>(value: &Value) -> Option<T> {
            serde_json::from_value(value.clone()).ok()
        }
        Self {
            cursor: value["cursor"].clone(),
            cursor_at: read(&value["cursor_at"]),
            first_run_at: read(&value["first_run_at"]),
            last_complete_at: read(&value["last_complete_at"]),
            consecutive_incomplete_runs: read(&value["consecutive_incomplete_runs"]).unwrap_or(0),
            last_run: read(&value["last_run"]).flatten(),
            left: read(&value["left"]).flatten(),
            last_execution: read(&value["last_execution"]).flatten(),
            deleted_in_hour: read(&value["deleted_in_hour"]).unwrap_or_default(),
        }
    }

    pub fn is_resumed(&self) -> bool {
        !self.cursor.is_null()
    }

    /// The state without a cursor that is older than two periods of the job.
    pub fn without_stale_cursor(self, now: i64, period: i64) -> Self {
        let written = self.cursor_at.or(self.last_run.as_ref().map(|run| run.at));
        let stale = written.is_some_and(|written| now.saturating_sub(written) > 2 * period);
        if stale { Self { cursor: Value::Null, cursor_at: None, ..self } } else { self }
    }

    /// Rows of the system actors that were deleted in the `seconds` up to the last run.
    pub fn deleted_within(&self, seconds: i64) -> u64 {
        let last = self.last_run.as_ref().map_or(0, |run| hour(run.at));
        let from = last.saturating_sub(hour(seconds));
        let hours = self.deleted_in_hour.iter().filter(|(at, _)| **at > from && **at <= last);
        hours.fold(0, |sum: u64, (_, n)| sum.saturating_add(*n))
    }

    /// The state during a run, in case the run is killed; its counts are then lost.
    pub fn at(&self, cursor: Value, now: i64) -> Self {
        Self { cursor, cursor_at: Some(now), left: None, ..self.clone() }
    }

    /// Consecutive incomplete runs after a run with this outcome.
    pub fn incomplete_runs_after(&self, outcome: Outcome) -> u64 {
        match outcome {
            Outcome::OutOfTime | Outcome::MaxDeletes => self.consecutive_incomplete_runs.saturating_add(1),
            // These ended neither by themselves nor at a limit.
            Outcome::Failed | Outcome::Stopped | Outcome::LeaseHeld | Outcome::Paused => {
                self.consecutive_incomplete_runs
            }
            Outcome::Complete | Outcome::EmptyTable | Outcome::Skipped | Outcome::Unrecorded => 0,
        }
    }

    /// The state after a run with these figures and this outcome.
    pub(crate) fn after_run(&self, run: LastRun, outcome: Outcome) -> Self {
        let is_system =
            |name: &str| BUCKETS.iter().any(|bucket| bucket.name == name && bucket.system_owner().is_some());
        let deleted = run.deleted_in.iter().filter(|(name, _)| is_system(name));
        let deleted = deleted.fold(0, |sum: u64, (_, n)| sum.saturating_add(*n));
        Self {
            cursor: Value::Null,
            cursor_at: None,
            first_run_at: self.first_run_before(run.at),
            last_complete_at: if outcome.is_complete() { Some(run.at) } else { self.last_complete_at },
            consecutive_incomplete_runs: self.incomplete_runs_after(outcome),
            left: None,
            last_execution: self.last_execution.clone(),
            deleted_in_hour: self.deleted_with(run.at, deleted),
            last_run: Some(LastRun {
                previous_at: self.last_run.as_ref().map(|last| last.at),
                outcome: outcome.name().to_owned(),
                ..run
            }),
        }
    }

    /// The state of an older release does not include the first run; then the oldest known run counts.
    fn first_run_before(&self, now: i64) -> Option<i64> {
        let known = self.last_run.as_ref().map(|run| run.previous_at.unwrap_or(run.at));
        self.first_run_at.or(known).or(Some(now))
    }

    fn deleted_with(&self, now: i64, more: u64) -> BTreeMap<i64, u64> {
        let mut deleted_in_hour = self.deleted_in_hour.clone();
        let cell = deleted_in_hour.entry(hour(now)).or_default();
        *cell = cell.saturating_add(more);
        deleted_in_hour.retain(|at, n| *n > 0 && at.abs_diff(hour(now)) <= REMEMBERED_HOURS.unsigned_abs());
        deleted_in_hour
    }

    pub fn after(&self, report: &RunReport) -> Self {
        let counts = &report.counts;
        // A walk that stopped early counts some rows that the next run counts again.
        let in_one_run = report.next.is_none() && !self.is_resumed();
        let left = |(bucket, counts): (&&str, &BucketCounts)| {
            // Foreign rows have the bucket's prefix, so they are read too, but they are not the bucket's.
            let others = counts.deleted_total() + counts.kept_for(KeepReason::Foreign);
            ((*bucket).to_owned(), counts.read.saturating_sub(others))
        };
        Self {
            cursor: report.next.clone().unwrap_or_default(),
            cursor_at: report.next.is_some().then_some(report.now),
            left: in_one_run.then(|| counts.buckets().iter().map(left).collect()),
            ..self.after_run(LastRun::new(report.now, Totals::of(report)), report.outcome)
        }
    }
}

fn hour(seconds: i64) -> i64 {
    seconds.div_euclid(3_600)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::JobState;

    #[test]
    fn a_cursor_older_than_two_periods_is_dropped() {
        let day = 86_400;
        for (written, resumed) in [(0, true), (2 * day, true), (2 * day + 1, false), (90 * day, false), (-day, true)] {
            let state = json!({"cursor": {"step": "x"}, "cursor_at": 100 * day - written, "last_run": {"at": 5}});
            let state = JobState::from_json(&state).without_stale_cursor(100 * day, day);
            assert_eq!(state.is_resumed(), resumed, "{written}");
            assert_eq!(state.last_run.map(|run| run.at), Some(5));
        }
        // Without `cursor_at`, as in an older release, the last run's time counts.
        let state = json!({"cursor": {"step": "x"}, "last_run": {"at": 97 * day}});
        assert!(!JobState::from_json(&state).without_stale_cursor(100 * day, day).is_resumed());
        assert!(JobState::from_json(&state).without_stale_cursor(98 * day, day).is_resumed());
        // A walk that is resumed every day may take any number of days.
        let state = JobState::from_json(&state).at(json!({"step": "y"}), 100 * day);
        assert!(state.without_stale_cursor(101 * day, day).is_resumed());
    }
}
