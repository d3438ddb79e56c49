//! What a run leaves in its state row: for the next run where to go on, for the metrics what it did.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::backlog::segment_run::Totals;
use crate::run::report::{BucketCounts, Outcome, RunReport};
use shared::bucket::{BUCKETS, Bucket, Owner};
use shared::expiry::KeepReason;

/// A job's state row.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct JobState {
    /// Where the next run goes on; null is the beginning. What is in it is the job's own business.
    pub cursor: Value,
    /// When the run began that wrote the cursor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor_at: Option<i64>,
    /// When the last run began that reached the end, with nothing skipped.
    pub last_complete_at: Option<i64>,
    /// Runs that were stopped by their deadline or by `MAX_DELETES`, one after another.
    pub consecutive_incomplete_runs: u64,
    pub last_run: Option<LastRun>,
    /// Rows that the last run left, by bucket, if it went over all of them in one go: what was read and not deleted.
    pub left: Option<BTreeMap<String, u64>>,
    /// The last execution that was written down, by its name and its beginning: its last step may be asked twice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_execution: Option<(String, i64)>,
    /// The system actors' rows deleted, by the hour since 1970 in which the run began, for some days.
    pub deleted_in_hour: BTreeMap<i64, u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LastRun {
    pub at: i64,
    /// When the run before it began: how often runs come.
    pub previous_at: Option<i64>,
    pub outcome: String,
    pub read: u64,
    pub deleted: u64,
    pub lost_race: u64,
    pub skipped: u64,
    /// Dead rows that were left to the table's TTL.
    pub deferred: u64,
    /// Rows deleted by bucket, where there were any.
    pub deleted_in: BTreeMap<String, u64>,
}

/// How long hours are remembered: longer than a weekly run is apart from the next.
const REMEMBERED_HOURS: i64 = 15 * 24;

impl JobState {
    /// Each field by itself: one that cannot be read says nothing, and takes no other with it. Without a cursor the walk
    /// begins at the beginning, which is always right.
    pub fn from_json(value: &Value) -> Self {
        fn read<T: DeserializeOwned>(value: &Value) -> Option<T> {
            serde_json::from_value(value.clone()).ok()
        }
        Self {
            cursor: value["cursor"].clone(),
            cursor_at: read(&value["cursor_at"]),
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

    /// Rows of the system actors that the runs deleted in the `seconds` up to the last one.
    pub fn deleted_within(&self, seconds: i64) -> u64 {
        let last = self.last_run.as_ref().map_or(0, |run| hour(run.at));
        let from = last.saturating_sub(hour(seconds));
        let hours = self.deleted_in_hour.iter().filter(|(at, _)| **at > from && **at <= last);
        hours.fold(0, |sum: u64, (_, n)| sum.saturating_add(*n))
    }

    /// The state in the middle of a run, for the one after it if this one is killed: then its counts are lost.
    pub fn at(&self, cursor: Value, now: i64) -> Self {
        Self { cursor, cursor_at: Some(now), left: None, ..self.clone() }
    }

    /// Runs that were cut off one after another, with one more that ended so.
    pub fn cut_offs_after(&self, outcome: Outcome) -> u64 {
        match outcome {
            Outcome::OutOfTime | Outcome::MaxDeletes => self.consecutive_incomplete_runs.saturating_add(1),
            // Neither the work nor the limits ended these.
            Outcome::Failed | Outcome::Stopped | Outcome::LeaseHeld => self.consecutive_incomplete_runs,
            Outcome::Complete | Outcome::EmptyTable | Outcome::Skipped | Outcome::Unrecorded => 0,
        }
    }

    /// The state after an execution that began at `now` and went through all of its segments with nothing skipped; `None` if
    /// it is written down already.
    pub fn after_execution(&self, name: &str, now: i64, totals: &Totals) -> Option<Self> {
        if self.last_execution.as_ref().is_some_and(|(last, began)| last == name && *began == now) {
            return None;
        }
        let system = totals.deleted_in.iter().filter(|(name, _)| system_buckets().any(|bucket| bucket.name == **name));
        Some(Self {
            cursor: Value::Null,
            cursor_at: None,
            last_complete_at: Some(now),
            consecutive_incomplete_runs: 0,
            last_run: Some(LastRun {
                at: now,
                previous_at: self.last_run.as_ref().map(|run| run.at),
                outcome: Outcome::Complete.name().to_owned(),
                read: totals.read,
                deleted: totals.deleted,
                lost_race: totals.lost_race,
                skipped: totals.skipped,
                deferred: 0,
                deleted_in: totals.deleted_in.clone(),
            }),
            left: None,
            last_execution: Some((name.to_owned(), now)),
            deleted_in_hour: self.deleted_with(now, system.fold(0, |sum, (_, n)| sum.saturating_add(*n))),
        })
    }

    /// The hours, with so many more rows in this one.
    fn deleted_with(&self, now: i64, more: u64) -> BTreeMap<i64, u64> {
        let mut deleted_in_hour = self.deleted_in_hour.clone();
        let cell = deleted_in_hour.entry(hour(now)).or_default();
        *cell = cell.saturating_add(more);
        deleted_in_hour.retain(|at, n| *n > 0 && at.abs_diff(hour(now)) <= REMEMBERED_HOURS.unsigned_abs());
        deleted_in_hour
    }

    /// The state after a run.
    pub fn after(&self, report: &RunReport) -> Self {
        let counts = &report.counts;
        let sum_kept = |reason: KeepReason| counts.buckets().values().map(|counts| kept(counts, reason)).sum();
        // A walk that is cut off counts some rows that the next run counts again.
        let in_one_go = report.next.is_none() && !self.is_resumed();
        let left = |(bucket, counts): (&&str, &BucketCounts)| {
            // A row of another bucket that begins alike is met on the way, and is not one of this bucket's.
            let gone = counts.deleted_total() + kept(counts, KeepReason::Foreign);
            ((*bucket).to_owned(), counts.read.saturating_sub(gone))
        };
        let of_system = system_buckets().filter_map(|bucket| counts.buckets().get(bucket.name));
        Self {
            last_complete_at: if report.outcome.is_complete() { Some(report.now) } else { self.last_complete_at },
            consecutive_incomplete_runs: self.cut_offs_after(report.outcome),
            cursor: report.next.clone().unwrap_or_default(),
            cursor_at: report.next.is_some().then_some(report.now),
            last_run: Some(LastRun {
                at: report.now,
                previous_at: self.last_run.as_ref().map(|run| run.at),
                outcome: report.outcome.name().to_owned(),
                read: counts.rows_read(),
                deleted: counts.rows_deleted(),
                lost_race: counts.lost_races(),
                skipped: counts.rows_skipped(),
                deferred: sum_kept(KeepReason::Deferred),
                deleted_in: counts
                    .buckets()
                    .iter()
                    .map(|(bucket, counts)| ((*bucket).to_owned(), counts.deleted_total()))
                    .filter(|(_, deleted)| *deleted > 0)
                    .collect(),
            }),
            left: in_one_go.then(|| counts.buckets().iter().map(left).collect()),
            last_execution: self.last_execution.clone(),
            deleted_in_hour: self.deleted_with(report.now, of_system.map(BucketCounts::deleted_total).sum()),
        }
    }
}

fn hour(seconds: i64) -> i64 {
    seconds.div_euclid(3_600)
}

fn kept(counts: &BucketCounts, reason: KeepReason) -> u64 {
    counts.kept.get(reason.name()).copied().unwrap_or(0)
}

fn system_buckets() -> impl Iterator<Item = &'static Bucket> {
    BUCKETS.iter().filter(|bucket| matches!(bucket.owner, Owner::System(_)))
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
        // Of a release that did not say when: by its last run.
        let state = json!({"cursor": {"step": "x"}, "last_run": {"at": 97 * day}});
        assert!(!JobState::from_json(&state).without_stale_cursor(100 * day, day).is_resumed());
        assert!(JobState::from_json(&state).without_stale_cursor(98 * day, day).is_resumed());
        // A walk that is resumed every day is under way for as long as it takes.
        let state = JobState::from_json(&state).at(json!({"step": "y"}), 100 * day);
        assert!(state.without_stale_cursor(101 * day, day).is_resumed());
    }
}
