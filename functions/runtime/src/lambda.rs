//! What the invocations of one container have in common: connection, environment, metrics output.

use std::time::Duration;

use crate::event::Overrides;
use dynamo::{Client, Dynamo};
use jobs::metric::{self, Sample};
use jobs::run::RunError;
use jobs::run::clock::{RunClock, Watch};
use shared::settings::{self, ConfigError, Environment, Mode, Purpose, Settings};
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

    pub(crate) fn clock(&self, now: EpochSeconds, budget: Option<Duration>) -> RunClock {
        RunClock::start(now, budget).watched_by(self.watch)
    }

    pub(crate) fn endpoint(&self) -> Option<&str> {
        settings::endpoint(&self.environment)
    }

    pub(crate) fn settings(&self, run: &str, overrides: &Overrides, purpose: Purpose) -> Result<Settings, RunError> {
        parsed(run, Settings::parse(&self.environment, overrides, Mode::Delete, purpose))
    }

    pub(crate) async fn open(&self, settings: &Settings, clock: RunClock) -> Result<Dynamo, RunError> {
        Ok(Dynamo::open(self.client.clone(), settings, self.endpoint(), clock).await?)
    }

    pub(crate) fn emit(&self, samples: &[Sample], now: EpochSeconds) {
        for document in samples.iter().flat_map(|sample| sample.documents(now)) {
            (self.emit)(&document.to_string());
        }
    }

    /// Logs a failed run, and emits its metrics.
    pub(crate) fn failed(&self, run: &str, settings: &Settings, error: &RunError, now: EpochSeconds) {
        log_failure(run, error);
        if let RunError::Interrupted { report, .. } = error {
            return self.emit(&report.samples(run), now);
        }
        let mut sample = Sample::of(&[(metric::TABLE, &settings.table), (metric::FUNCTION, run)])
            .count(metric::FAILED, 1)
            .flag(metric::REFUSED, error.is_refusal());
        // A dry run completes nothing, however it ends.
        if settings.mode == Mode::Delete {
            sample = sample.count(metric::COMPLETE, 0);
        }
        self.emit(&[sample], now);
    }
}

/// The parsed event or settings; an error is logged.
pub(crate) fn parsed<T>(run: &str, result: Result<T, ConfigError>) -> Result<T, RunError> {
    result.map_err(RunError::from).inspect_err(|error| log_failure(run, error))
}

pub(crate) fn log_failure(run: &str, error: &RunError) {
    tracing::error!(run, error.kind = error.kind(), error.text = %error, "run failed");
}
