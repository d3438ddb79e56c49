//! What a run says about itself: counts per bucket and reason, cost, outcome. No row, no name, no secret.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use crate::metric::{self, Sample};
use crate::store::{DeleteOutcome, Usage};
use shared::bucket::{self, BUCKETS, Bucket, Family};
use shared::expiry::{DeleteReason, KeepReason};
use shared::settings::Mode;

/// What happened to the rows of one bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BucketCounts {
    /// Rows seen.
    pub read: u64,
    /// Rows deleted, or in a dry run to be deleted, by reason.
    pub deleted: BTreeMap<&'static str, u64>,
    /// Rows kept, by reason.
    pub kept: BTreeMap<&'static str, u64>,
    /// Rows that changed between judgement and delete, and were left alone.
    pub lost_race: u64,
    /// Rows that could not be read or deleted; the next run tries again.
    pub skipped: u64,
}

impl BucketCounts {
    pub fn deleted_total(&self) -> u64 {
        self.deleted.values().sum()
    }

    pub fn kept_total(&self) -> u64 {
        self.kept.values().sum()
    }
}

/// Counts, as they are added up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Tally {
    buckets: BTreeMap<&'static str, BucketCounts>,
    #[serde(skip)]
    uncertain: u64,
    /// Of the skipped rows, how many the store refuses to delete.
    #[serde(skip)]
    refused: u64,
    #[serde(skip)]
    unknown: u64,
}

impl std::fmt::Display for Tally {
    /// As in the report.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", json!(self))
    }
}

impl Tally {
    fn at(&mut self, bucket: &Bucket) -> &mut BucketCounts {
        self.buckets.entry(bucket.name).or_default()
    }

    pub fn read(&mut self, bucket: &Bucket) {
        self.at(bucket).read += 1;
    }

    /// A row of no bucket of ours: never touched.
    pub fn unknown(&mut self) {
        self.unknown += 1;
    }

    pub fn kept(&mut self, bucket: &Bucket, reason: KeepReason) {
        *self.at(bucket).kept.entry(reason.name()).or_default() += 1;
    }

    pub fn skipped(&mut self, bucket: &Bucket) {
        self.at(bucket).skipped += 1;
    }

    /// A row that no run can delete, or that hangs on one: no sign that the store is failing.
    pub fn refused(&mut self, bucket: &Bucket) {
        self.skipped(bucket);
        self.refused += 1;
    }

    pub fn outcome(&mut self, bucket: &Bucket, reason: DeleteReason, outcome: DeleteOutcome) {
        let counts = self.at(bucket);
        match outcome {
            DeleteOutcome::Deleted => *counts.deleted.entry(reason.name()).or_default() += 1,
            DeleteOutcome::LostRace => counts.lost_race += 1,
            DeleteOutcome::Failed => counts.skipped += 1,
            DeleteOutcome::Refused => self.refused(bucket),
            DeleteOutcome::Unknown => {
                counts.skipped += 1;
                self.uncertain += 1;
            }
            DeleteOutcome::NotTried => {}
        }
    }

    pub fn add(&mut self, other: &Tally) {
        for (&name, counts) in &other.buckets {
            let mine = self.buckets.entry(name).or_default();
            mine.read += counts.read;
            mine.lost_race += counts.lost_race;
            mine.skipped += counts.skipped;
            for (&reason, n) in &counts.deleted {
                *mine.deleted.entry(reason).or_default() += n;
            }
            for (&reason, n) in &counts.kept {
                *mine.kept.entry(reason).or_default() += n;
            }
        }
        self.uncertain += other.uncertain;
        self.refused += other.refused;
        self.unknown += other.unknown;
    }

    pub fn buckets(&self) -> &BTreeMap<&'static str, BucketCounts> {
        &self.buckets
    }

    fn sum(&self, of: impl Fn(&BucketCounts) -> u64) -> u64 {
        self.buckets.values().map(of).sum()
    }

    pub fn rows_read(&self) -> u64 {
        self.sum(|counts| counts.read) + self.unknown
    }

    pub fn rows_deleted(&self) -> u64 {
        self.sum(BucketCounts::deleted_total)
    }

    pub fn rows_skipped(&self) -> u64 {
        self.sum(|counts| counts.skipped)
    }

    /// Rows that were skipped over a fault of the moment.
    pub fn rows_failed(&self) -> u64 {
        self.rows_skipped() - self.refused
    }

    pub fn lost_races(&self) -> u64 {
        self.sum(|counts| counts.lost_race)
    }

    /// Deletes whose answer never came.
    pub fn uncertain(&self) -> u64 {
        self.uncertain
    }

    fn deleted_for(&self, reason: DeleteReason) -> u64 {
        self.sum(|counts| counts.deleted.get(reason.name()).copied().unwrap_or(0))
    }

    fn deleted_in(&self, family: Family, only: Option<DeleteReason>) -> u64 {
        BUCKETS
            .iter()
            .filter(|bucket| bucket.family == family)
            .filter_map(|bucket| self.buckets.get(bucket.name))
            .map(|counts| match only {
                None => counts.deleted_total(),
                Some(reason) => counts.deleted.get(reason.name()).copied().unwrap_or(0),
            })
            .sum()
    }

    fn skipped_of_mcp(&self) -> u64 {
        let mcp = |name: &&'static str| {
            BUCKETS.iter().any(|bucket| {
                bucket.name == *name && (bucket.owner == bucket::Owner::Actor || bucket.family == Family::IndexEntries)
            })
        };
        self.buckets.iter().filter(|(name, _)| mcp(name)).map(|(_, counts)| counts.skipped).sum()
    }
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every row that this run is responsible for was judged, and every dead one is gone.
    Complete,
    /// The table holds no row at all: a success.
    EmptyTable,
    /// Stopped before its deadline; the next run goes on from here.
    OutOfTime,
    /// Stopped at `MAX_DELETES`; the next run goes on from here.
    MaxDeletes,
    /// Stopped because somebody asked; the next run goes on from here.
    Stopped,
    /// Went through, but some rows could not be read or deleted; the next run tries them again.
    Skipped,
    /// The work is done, but the state row that says so could not be written.
    Unrecorded,
    /// Another run holds the lease: nothing was done.
    LeaseHeld,
    /// Ended by a fault; the next run goes on from here.
    Failed,
}

impl Outcome {
    pub fn is_complete(self) -> bool {
        matches!(self, Outcome::Complete | Outcome::EmptyTable)
    }

    /// The name in the report and in the state row, fixed by its users.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Complete => "complete",
            Outcome::EmptyTable => "empty-table",
            Outcome::OutOfTime => "out-of-time",
            Outcome::MaxDeletes => "max-deletes",
            Outcome::Stopped => "stopped",
            Outcome::Skipped => "skipped",
            Outcome::Unrecorded => "unrecorded",
            Outcome::LeaseHeld => "lease-held",
            Outcome::Failed => "failed",
        }
    }

    /// The outcome of that name.
    pub fn named(name: &str) -> Option<Self> {
        use Outcome::{Complete, EmptyTable, Failed, LeaseHeld, MaxDeletes, OutOfTime, Skipped, Stopped, Unrecorded};
        [Complete, EmptyTable, OutOfTime, MaxDeletes, Stopped, Skipped, Unrecorded, LeaseHeld, Failed]
            .into_iter()
            .find(|outcome| outcome.name() == name)
    }
}

/// The whole report of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunReport {
    pub outcome: Outcome,
    pub mode: Mode,
    pub table: String,
    pub now: i64,
    /// The run went on where an earlier one had stopped.
    pub resumed: bool,
    pub counts: Tally,
    pub usage: Usage,
    pub elapsed_ms: u64,
    /// What the run found beside the counts; null when it looks for nothing else.
    pub findings: Value,
    /// What an operator should know, in sentences.
    pub notes: Vec<String>,
    /// Where the next run goes on; `None` when this one came to the end.
    pub next: Option<Value>,
    /// Of one segment only: it completes nothing by itself.
    pub of_segment: bool,
    /// Runs that were cut off one after another, this one included.
    pub consecutive_incomplete_runs: u64,
    /// So many that it is time for an execution.
    pub start_backlog: bool,
}

impl Usage {
    /// The metrics of what a run cost, whichever run.
    pub fn sample(&self, sample: Sample, elapsed_ms: u64) -> Sample {
        sample
            .number(metric::READ_UNITS, self.read_units)
            .number(metric::WRITE_UNITS, self.write_units)
            .count(metric::REQUESTS, self.requests)
            .count(metric::THROTTLES, self.throttles)
            .count(metric::ELAPSED, elapsed_ms)
    }
}

impl RunReport {
    /// The metrics of the run: of all of it, and of each bucket that it met. A dry run deletes and completes nothing.
    pub fn samples(&self, function: &str) -> Vec<Sample> {
        let counts = &self.counts;
        let deleted = match self.mode {
            Mode::Delete => metric::ROWS_DELETED,
            Mode::DryRun => metric::ROWS_TO_DELETE,
        };
        let mut all = Sample::of(&[(metric::TABLE, &self.table), (metric::FUNCTION, function)])
            .flag(metric::FAILED, self.outcome == Outcome::Failed)
            .count(metric::REFUSED, 0);
        // It did nothing, beside one that does: there is nothing to tell.
        if self.outcome == Outcome::LeaseHeld {
            return vec![all];
        }
        all = all
            .count(metric::ROWS_READ, counts.rows_read())
            .count(deleted, counts.rows_deleted())
            .count(metric::ROWS_KEPT, counts.sum(BucketCounts::kept_total))
            .count(metric::LOST_RACES, counts.lost_races())
            .count(metric::ROWS_SKIPPED, counts.rows_skipped());
        all = self.usage.sample(all, self.elapsed_ms);
        if self.mode == Mode::Delete && !self.of_segment {
            all = all.flag(metric::COMPLETE, self.outcome.is_complete());
        }
        let bucket = |(name, counts): (&&'static str, &BucketCounts)| {
            Sample::of(&[(metric::TABLE, &self.table), (metric::FUNCTION, function), (metric::BUCKET, name)])
                .count(metric::ROWS_READ, counts.read)
                .count(deleted, counts.deleted_total())
                .count(metric::ROWS_KEPT, counts.kept_total())
                .count(metric::LOST_RACES, counts.lost_race)
                .count(metric::ROWS_SKIPPED, counts.skipped)
        };
        std::iter::once(all).chain(counts.buckets.iter().map(bucket)).collect()
    }

    pub fn to_json(&self) -> Value {
        let mut report = json!({
            "complete": self.outcome.is_complete(),
            "outcome": self.outcome.name(),
            "mode": self.mode.name(),
            "table": self.table,
            "now": self.now,
            "resumed": self.resumed,
            "consecutive_incomplete_runs": self.consecutive_incomplete_runs,
            "rows": {
                "read": self.counts.rows_read(),
                "deleted": self.counts.rows_deleted(),
                "lost_race": self.counts.lost_races(),
                "skipped": self.counts.rows_skipped(),
                "uncertain": self.counts.uncertain(),
                "unknown": self.counts.unknown,
            },
            "buckets": self.counts,
            "capacity": {
                "read_units": self.usage.read_units,
                "write_units": self.usage.write_units,
                "write_units_estimated": self.usage.write_units_estimated,
            },
            "requests": self.usage.requests,
            "retries": self.usage.retries,
            "throttles": self.usage.throttles,
            "paced_ms": u64::try_from(self.usage.paced.as_millis()).unwrap_or(u64::MAX),
            "elapsed_ms": self.elapsed_ms,
            "notes": self.notes,
        });
        if !self.findings.is_null() {
            report["findings"] = self.findings.clone();
        }
        if self.start_backlog {
            // What the rule in template.yaml looks for.
            report["start_backlog"] = json!(true);
        }
        report
    }

    /// The answer of `index-repair`: what it removed and found, by kind, and the report beside it.
    pub fn to_repair_answer(&self) -> Value {
        let deleted = |reason: DeleteReason| self.counts.deleted_for(reason);
        json!({
            "statusCode": 200,
            "body": {
                "dangling_index_rows": deleted(DeleteReason::Dangling),
                "unindexed_tokens": deleted(DeleteReason::Unindexed),
                "unreferenced_provider_rows": deleted(DeleteReason::Unreferenced),
                "dead_rows": deleted(DeleteReason::Expired) + deleted(DeleteReason::TtlPast) + deleted(DeleteReason::Consumed),
                "legacy_rows": deleted(DeleteReason::Legacy),
                "found": self.findings,
                "skipped": self.counts.rows_skipped(),
            },
            "report": self.to_json(),
        })
    }

    /// The answer of `daily-cleanup`: the documented Python handler's keys, and the report beside them.
    ///
    /// `index_entries` counts what Python counts there, orphaned index rows; an index row that went with its token is in
    /// the report.
    pub fn to_answer(&self) -> Value {
        let deleted = |family| self.counts.deleted_in(family, None);
        json!({
            "statusCode": 200,
            "body": {
                "oauth_sessions": deleted(Family::OauthSessions),
                "spa_tokens": deleted(Family::SpaTokens),
                "mcp_tokens": {
                    "access_tokens": deleted(Family::AccessTokens),
                    "refresh_tokens": deleted(Family::RefreshTokens),
                    "auth_codes": deleted(Family::AuthCodes),
                    "index_entries": self.counts.deleted_in(Family::IndexEntries, Some(DeleteReason::Dangling)),
                    "provider_tokens": deleted(Family::ProviderTokens),
                    "skipped": self.counts.skipped_of_mcp(),
                },
            },
            "report": self.to_json(),
        })
    }
}
