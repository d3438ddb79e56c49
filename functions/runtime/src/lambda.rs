//! What the invocations of one container have in common: connection, environment, metrics output.

use std::time::Duration;

use crate::event::Overrides;
use crate::logging;
use dynamo::{Client, Dynamo};
use jobs::metric::Document;
use jobs::run::RunError;
use jobs::run::clock::{RunClock, Watch};
use jobs::{cascade, cleanup, metrics, repair};
use shared::settings::{self, ConfigError, Environment, Purpose, Settings};
use shared::time::EpochSeconds;

pub struct Function {
    pub client: Client,
    pub environment: Environment,
    emit: fn(&str),
    watch: Option<&'static Watch>,
}

impl Function {
    /// Without an output for metrics.
    pub fn new(client: Client, environment: Environment) -> Self {
        Self { client, environment, emit: |_| {}, watch: None }
    }

    /// The same, with an output for metrics: one line each.
    pub fn telling(self, emit: fn(&str)) -> Self {
        Self { emit, ..self }
    }

    /// The same, with an observer that sees the progress of a run and can stop it.
    pub fn watched_by(self, watch: &'static Watch) -> Self {
        Self { watch: Some(watch), ..self }
    }

    pub fn clock(&self, now: EpochSeconds, budget: Option<Duration>) -> RunClock {
        RunClock::start(now, budget).watched_by(self.watch)
    }

    pub(crate) fn endpoint(&self) -> Option<&str> {
        settings::endpoint(&self.environment)
    }

    pub(crate) fn settings(&self, run: &str, overrides: &Overrides, purpose: Purpose) -> Result<Settings, RunError> {
        parsed(run, Settings::parse(&self.environment, overrides, purpose))
    }

    pub(crate) async fn open(&self, settings: &Settings, clock: RunClock) -> Result<Dynamo, RunError> {
        Ok(Dynamo::open(self.client.clone(), settings, self.endpoint(), clock).await?)
    }

    pub(crate) fn emit(&self, document: Option<&Document>, now: EpochSeconds) {
        if let Some(document) = document {
            (self.emit)(&document.to_json(now, logging::request_id().as_deref()).to_string());
        }
    }

    /// Logs a failed run, and emits the metrics of what it did before.
    pub(crate) fn failed(&self, job: &str, error: &RunError, now: EpochSeconds) {
        log_failure(job, error);
        if let RunError::Interrupted { report, .. } = error {
            self.emit(report.document(job).as_ref(), now);
        }
    }
}

/// The parsed event or settings; an error is logged.
pub(crate) fn parsed<T>(run: &str, result: Result<T, ConfigError>) -> Result<T, RunError> {
    result.map_err(RunError::from).inspect_err(|error| log_failure(run, error))
}

pub(crate) fn log_failure(job: &str, error: &RunError) {
    let job = word(job);
    tracing::error!(error.kind = error.kind(), error.text = %error, "{job} failed");
}

/// The job's name in log messages.
pub(crate) fn word(job: &str) -> &str {
    match job {
        cleanup::NAME => "cleanup",
        repair::NAME => "repair",
        metrics::NAME => "metrics",
        cascade::NAME => "cascade",
        other => other,
    }
}
