//! The report of a run: outcome, counts, cost. No row, no name, no secret.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Value, json};

use crate::metric::{self, Document};
use crate::run::clock::RunClock;
use crate::store::Usage;
pub use crate::walk::tally::{BucketCounts, Tally};
use shared::settings::{Mode, Settings};

/// How a run ended. The names are part of the report and of the state row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, strum::EnumString, strum::IntoStaticStr)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Outcome {
    /// Every row that this run is responsible for was judged, and every dead one was deleted.
    Complete,
    /// The table holds no row at all: a success.
    EmptyTable,
    /// Stopped before its deadline; the next run continues from there.
    OutOfTime,
    /// Stopped at `MAX_DELETES`; the next run continues from there.
    MaxDeletes,
    /// Stopped on request; the next run continues from there.
    Stopped,
    /// Reached the end, but some rows could not be read or deleted; the next run tries them again.
    Skipped,
    /// The work is done, but the state row that says so could not be written.
    Unrecorded,
    /// Another run holds the lease: nothing was done.
    LeaseHeld,
    /// The janitor is paused: nothing was done, or nothing more after the pause started.
    Paused,
    /// Ended by a fault; the next run continues from there.
    Failed,
}

impl Outcome {
    pub fn is_complete(self) -> bool {
        matches!(self, Outcome::Complete | Outcome::EmptyTable)
    }

    pub fn name(self) -> &'static str {
        self.into()
    }

    pub fn named(name: &str) -> Option<Self> {
        name.parse().ok()
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct RunReport {
    pub outcome: Outcome,
    pub mode: Mode,
    pub table: String,
    pub now: i64,
    /// The run continued from where an earlier one had stopped.
    pub resumed: bool,
    pub counts: Tally,
    pub usage: Usage,
    pub elapsed_ms: u64,
    /// The job's findings; null when it has none.
    pub findings: Value,
    /// Sentences for the operator.
    pub notes: Vec<String>,
    /// Where the next run continues; `None` when this one reached the end.
    pub next: Option<Value>,
    /// This run included.
    pub consecutive_incomplete_runs: u64,
    /// There were enough incomplete runs to start a backlog execution.
    pub start_backlog: bool,
}

/// The report as a document.
#[derive(Serialize)]
struct ReportDocument<'a> {
    complete: bool,
    outcome: Outcome,
    mode: &'static str,
    table: &'a str,
    now: i64,
    resumed: bool,
    consecutive_incomplete_runs: u64,
    rows: Rows,
    buckets: &'a Tally,
    capacity: Capacity,
    requests: u64,
    retries: u64,
    throttles: u64,
    paced_ms: u64,
    elapsed_ms: u64,
    notes: &'a [String],
    #[serde(skip_serializing_if = "Value::is_null")]
    findings: &'a Value,
    /// The rule in template.yaml matches this key.
    #[serde(skip_serializing_if = "Option::is_none")]
    start_backlog: Option<bool>,
}

#[derive(Serialize)]
struct Rows {
    read: u64,
    deleted: u64,
    retired: u64,
    lost_race: u64,
    skipped: u64,
    uncertain: u64,
    unknown: u64,
}

#[derive(Serialize)]
struct Capacity {
    read_units: f64,
    write_units: f64,
    write_units_estimated: bool,
}

impl Serialize for RunReport {
    fn serialize<T: Serializer>(&self, to: T) -> Result<T::Ok, T::Error> {
        let Self { counts, usage, .. } = self;
        let document = ReportDocument {
            complete: self.outcome.is_complete(),
            outcome: self.outcome,
            mode: self.mode.name(),
            table: &self.table,
            now: self.now,
            resumed: self.resumed,
            consecutive_incomplete_runs: self.consecutive_incomplete_runs,
            rows: Rows {
                read: counts.rows_read(),
                deleted: counts.rows_deleted(),
                retired: counts.rows_retired(),
                lost_race: counts.lost_races(),
                skipped: counts.rows_skipped(),
                uncertain: counts.uncertain(),
                unknown: counts.rows_unknown(),
            },
            buckets: counts,
            capacity: Capacity {
                read_units: usage.read_units,
                write_units: usage.write_units,
                write_units_estimated: usage.write_units_estimated,
            },
            requests: usage.requests,
            retries: usage.retries,
            throttles: usage.throttles,
            paced_ms: u64::try_from(usage.paced.as_millis()).unwrap_or(u64::MAX),
            elapsed_ms: self.elapsed_ms,
            notes: &self.notes,
            findings: &self.findings,
            start_backlog: self.start_backlog.then_some(true),
        };
        document.serialize(to)
    }
}

/// The figures of one run, or the sums over several.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Totals {
    pub runs: u64,
    pub read: u64,
    pub deleted: u64,
    pub retired: u64,
    pub left_to_ttl: u64,
    pub lost_race: u64,
    pub skipped: u64,
    pub uncertain: u64,
    pub read_units: f64,
    pub write_units: f64,
    pub requests: u64,
    pub throttles: u64,
    /// The sum over all runs, concurrent ones included.
    pub elapsed_ms: u64,
    /// Deleted rows by bucket, without zeros.
    pub deleted_in: BTreeMap<String, u64>,
    /// Those findings of the job that are counts.
    pub found: BTreeMap<String, u64>,
}

impl Totals {
    pub(crate) fn of(report: &RunReport) -> Self {
        let counts = &report.counts;
        let found = report.findings.as_object().into_iter().flatten();
        Self {
            runs: 1,
            read: counts.rows_read(),
            deleted: counts.rows_deleted(),
            retired: counts.rows_retired(),
            left_to_ttl: counts.rows_left_to_ttl(),
            lost_race: counts.lost_races(),
            skipped: counts.rows_skipped(),
            uncertain: counts.uncertain(),
            read_units: report.usage.read_units,
            write_units: report.usage.write_units,
            requests: report.usage.requests,
            throttles: report.usage.throttles,
            elapsed_ms: report.elapsed_ms,
            deleted_in: counts.deleted_by_bucket(),
            found: found.filter_map(|(kind, n)| Some((kind.clone(), n.as_u64()?))).collect(),
        }
    }

    pub fn add(&mut self, other: &Totals) {
        self.runs = self.runs.saturating_add(other.runs);
        self.read = self.read.saturating_add(other.read);
        self.deleted = self.deleted.saturating_add(other.deleted);
        self.retired = self.retired.saturating_add(other.retired);
        self.left_to_ttl = self.left_to_ttl.saturating_add(other.left_to_ttl);
        self.lost_race = self.lost_race.saturating_add(other.lost_race);
        self.skipped = self.skipped.saturating_add(other.skipped);
        self.uncertain = self.uncertain.saturating_add(other.uncertain);
        self.read_units += other.read_units;
        self.write_units += other.write_units;
        self.requests = self.requests.saturating_add(other.requests);
        self.throttles = self.throttles.saturating_add(other.throttles);
        self.elapsed_ms = self.elapsed_ms.saturating_add(other.elapsed_ms);
        for (sum, more) in [(&mut self.deleted_in, &other.deleted_in), (&mut self.found, &other.found)] {
            for (name, n) in more {
                let sum = sum.entry(name.clone()).or_default();
                *sum = sum.saturating_add(*n);
            }
        }
    }
}

/// The answer of a job: the figures that its callers read, and the report.
#[derive(Serialize)]
pub(crate) struct Answer<'a, B> {
    #[serde(rename = "statusCode")]
    status_code: u16,
    body: B,
    report: &'a RunReport,
}

impl<'a, B> Answer<'a, B> {
    pub(crate) fn new(body: B, report: &'a RunReport) -> Self {
        Self { status_code: 200, body, report }
    }
}

impl RunReport {
    /// The report of a run that has done nothing.
    pub(crate) fn new(outcome: Outcome, settings: &Settings, clock: &RunClock) -> Self {
        Self {
            outcome,
            mode: settings.mode,
            table: settings.table.clone(),
            now: clock.now().get(),
            resumed: false,
            counts: Tally::default(),
            usage: Usage::default(),
            elapsed_ms: u64::try_from(clock.elapsed().as_millis()).unwrap_or(u64::MAX),
            findings: Value::Null,
            notes: Vec::new(),
            next: None,
            consecutive_incomplete_runs: 0,
            start_backlog: false,
        }
    }

    pub fn to_json(&self) -> Value {
        json!(self)
    }

    /// Rows deleted or retired, and in a dry run rows that would be: each has a log field of its own.
    pub fn done_or_planned(&self, rows: u64) -> (Option<u64>, Option<u64>) {
        if self.mode == Mode::DryRun { (None, Some(rows)) } else { (Some(rows), None) }
    }

    /// The metric of the run; none after a dry run, or a run that did not start. The log line has the rest.
    pub fn document(&self, job: &str) -> Option<Document> {
        let is_idle = self.outcome == Outcome::Paused && self.counts.rows_read() == 0;
        if self.mode == Mode::DryRun || self.outcome == Outcome::LeaseHeld || is_idle {
            return None;
        }
        let document = Document::new(&self.table, "rows deleted")
            .count(metric::ROWS_DELETED, self.counts.rows_deleted())
            .field("RowsRetired", self.counts.rows_retired())
            .field("job", job)
            .field("outcome", self.outcome.name());
        Some(document)
    }
}
