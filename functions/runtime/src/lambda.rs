//! State that the invocations of one container share: client, environment, metrics output.

use crate::event::Overrides;
use crate::logging;
use dynamo::{Client, Dynamo};
use jobs::cascade::Records;
use jobs::metric::Document;
use jobs::run::clock::RunClock;
use jobs::run::report::RunReport;
use jobs::run::{Job, RunError};
use serde_json::json;
use shared::settings::{self, ConfigError, Environment, Purpose, Settings};
use shared::time::EpochSeconds;

pub struct Function {
    pub client: Client,
    pub environment: Environment,
    emit: fn(&str),
}

impl Function {
    /// Emits no metrics.
    pub fn new(client: Client, environment: Environment) -> Self {
        Self { client, environment, emit: |_| {} }
    }

    /// Passes each metrics document to `emit`, as one line.
    pub fn with_metrics_output(self, emit: fn(&str)) -> Self {
        Self { emit, ..self }
    }

    pub(crate) fn endpoint(&self) -> Option<&str> {
        settings::endpoint(&self.environment)
    }

    pub(crate) fn settings(&self, overrides: &Overrides, purpose: Purpose) -> Result<Settings, RunError> {
        parsed(purpose, Settings::parse(&self.environment, overrides, purpose))
    }

    pub(crate) async fn open(&self, settings: &Settings, clock: RunClock) -> Result<Dynamo, RunError> {
        Ok(Dynamo::open(self.client.clone(), settings, self.endpoint(), clock).await?)
    }

    pub(crate) fn emit(&self, document: Option<&Document>, now: EpochSeconds) {
        if let Some(document) = document {
            (self.emit)(&document.to_json(now, logging::request_id().as_deref()).to_string());
        }
    }

    /// Logs a failed run, and emits the metrics of its work before the failure.
    pub(crate) fn failed<J: Job>(&self, error: &RunError, now: EpochSeconds) {
        log_failure(J::PURPOSE, error);
        if let RunError::Interrupted { report, .. } = error {
            self.emit(report.document(J::NAME).as_ref(), now);
        }
    }
}

/// The parsed event or settings; an error is logged.
pub(crate) fn parsed<T>(purpose: Purpose, result: Result<T, ConfigError>) -> Result<T, RunError> {
    result.map_err(RunError::from).inspect_err(|error| log_failure(purpose, error))
}

pub(crate) fn log_failure(purpose: Purpose, error: &RunError) {
    let job = purpose.name();
    tracing::error!(error.kind = error.kind(), error.text = %error, "{job} failed");
}

/// Logs the end of a run, or of a cascade batch with its records.
pub(crate) fn log_finished(purpose: Purpose, report: &RunReport, records: Option<&Records>) {
    let (deleted, would_delete) = report.done_or_planned(report.counts.rows_deleted());
    let (retired, would_retire) = report.done_or_planned(report.counts.rows_retired());
    let job = purpose.name();
    tracing::info!(
        table = report.table,
        outcome = report.outcome.name(),
        complete = report.outcome.is_complete(),
        mode = report.mode.name(),
        records.received = records.map(|records| records.received),
        records.ignored = records.map(|records| records.ignored),
        records.malformed = records.map(|records| records.malformed),
        records.written_again = records.map(|records| records.written_again),
        records.failed = records.map(|records| records.failed),
        rows.read = report.counts.rows_read(),
        rows.deleted = deleted,
        rows.would_delete = would_delete,
        rows.retired = retired,
        rows.would_retire = would_retire,
        rows.lost_race = report.counts.lost_races(),
        rows.skipped = report.counts.rows_skipped(),
        units.read = report.usage.read_units,
        units.write = report.usage.write_units,
        requests = report.usage.requests,
        throttles = report.usage.throttles,
        elapsed_ms = report.elapsed_ms,
        notes = report.notes.join("; "),
        // The answer of a scheduled run is discarded, so the counts by bucket and reason are logged.
        json.buckets = json!(report.counts).to_string(),
        "{job} finished"
    );
}
