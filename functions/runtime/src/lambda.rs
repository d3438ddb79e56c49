//! One invocation of a function, from event to report, without the Lambda runtime around it.

use std::time::Duration;

use serde_json::Value;

use crate::event;
use dynamo::{Client, Dynamo, ReadOnly};
use jobs::backlog::Overrides;
use jobs::backlog::segment_run::SegmentRun;
use jobs::cleanup::{self, DailyCleanup};
use jobs::metric::{self, Sample};
use jobs::metrics::{self, Measurement};
use jobs::repair::{self, IndexRepair};
use jobs::run::clock::{RunClock, Watch};
use jobs::run::report::RunReport;
use jobs::run::{self, Job, RunError};
use shared::segment::Segment;
use shared::settings::{self, ConfigError, Environment, Mode, Purpose, Settings};
use shared::time::EpochSeconds;

/// A job as a function has it.
pub(crate) struct Kind<J> {
    pub(crate) purpose: Purpose,
    pub(crate) job: fn(&Settings) -> J,
    pub(crate) answer: fn(&RunReport) -> Value,
}

pub(crate) const DAILY: Kind<DailyCleanup> =
    Kind { purpose: Purpose::Cleanup, job: |_| DailyCleanup, answer: RunReport::to_answer };
pub(crate) const REPAIR: Kind<IndexRepair> =
    Kind { purpose: Purpose::Repair, job: IndexRepair::new, answer: RunReport::to_repair_answer };

/// What stays the same between invocations of one container.
pub struct Function {
    pub client: Client,
    pub environment: Environment,
    tell: fn(&str),
    watch: Option<&'static Watch>,
}

impl Function {
    /// A function whose metrics nobody hears.
    pub fn new(client: Client, environment: Environment) -> Self {
        Self { client, environment, tell: |_| {}, watch: None }
    }

    /// The same, with somewhere for its metrics to go: one line each.
    pub fn telling(self, tell: fn(&str)) -> Self {
        Self { tell, ..self }
    }

    /// The same, with somebody who sees how far a run is and may stop it.
    pub fn watched_by(self, watch: &'static Watch) -> Self {
        Self { watch: Some(watch), ..self }
    }

    /// # Errors
    /// When the run failed; then so must the invocation, so that Lambda's own error metric and retries see it.
    pub async fn daily_cleanup(
        &self,
        event: Value,
        now: EpochSeconds,
        budget: Option<Duration>,
    ) -> Result<RunReport, RunError> {
        let clock = RunClock::start(now, budget).watched_by(self.watch);
        let overrides = understood(cleanup::NAME, event::overrides(event))?;
        self.invoke(&overrides, &DAILY, clock, None).await
    }

    /// # Errors
    /// When the run failed; then so must the invocation.
    pub async fn index_repair(
        &self,
        event: Value,
        now: EpochSeconds,
        budget: Option<Duration>,
    ) -> Result<RunReport, RunError> {
        let clock = RunClock::start(now, budget).watched_by(self.watch);
        let overrides = understood(repair::NAME, event::overrides(event))?;
        self.invoke(&overrides, &REPAIR, clock, None).await
    }

    /// # Errors
    /// When the table could not be read; then so must the invocation.
    pub async fn answer_metrics(
        &self,
        event: Value,
        now: EpochSeconds,
        budget: Option<Duration>,
    ) -> Result<Value, RunError> {
        self.metrics_emitter(event, now, budget).await.map(|measured| metrics::answer(&measured))
    }

    /// # Errors
    /// When the table could not be read; then so must the invocation.
    pub async fn metrics_emitter(
        &self,
        event: Value,
        now: EpochSeconds,
        budget: Option<Duration>,
    ) -> Result<Measurement, RunError> {
        let clock = RunClock::start(now, budget).watched_by(self.watch);
        let overrides = understood(metrics::NAME, event::overrides(event))?;
        let settings = self.settings(metrics::NAME, &overrides, Purpose::Metrics)?;
        tracing::info!(
            run = metrics::NAME,
            table = settings.table,
            scope = settings.scope.name(),
            now = clock.now().get(),
            "run begins"
        );
        let result = Box::pin(self.measure(&settings, clock)).await;
        match &result {
            Ok(measured) => {
                let total = measured.census.total();
                tracing::info!(
                    run = metrics::NAME,
                    table = measured.table,
                    outcome = measured.ended.name(),
                    rows.counted = total.rows,
                    rows.dead = total.dead,
                    rows.due = total.due,
                    ttl = measured.ttl.name(),
                    trend = measured.forecast.trend.name(),
                    units.read = measured.usage.read_units,
                    requests = measured.usage.requests,
                    throttles = measured.usage.throttles,
                    elapsed_ms = measured.elapsed_ms,
                    "run ended"
                );
                for finding in &measured.findings {
                    tracing::warn!(
                        run = metrics::NAME,
                        finding.kind = finding.kind,
                        finding.text = finding.text,
                        "finding"
                    );
                }
                self.tell(&measured.samples(), now);
            }
            Err(error) => self.failed(metrics::NAME, &settings, error, now),
        }
        result
    }

    async fn measure(&self, settings: &Settings, clock: RunClock) -> Result<Measurement, RunError> {
        let table = ReadOnly::open(self.client.clone(), settings, settings::endpoint(&self.environment), clock).await?;
        Ok(metrics::measure(&table, settings, table.clock()).await?)
    }

    pub(crate) async fn invoke<J: Job<Dynamo>>(
        &self,
        overrides: &Overrides,
        kind: &Kind<J>,
        clock: RunClock,
        part: Option<(&SegmentRun, Segment)>,
    ) -> Result<RunReport, RunError> {
        let mut settings = self.settings(J::NAME, overrides, kind.purpose)?;
        settings.pace_shared_by = part.and_then(|(part, _)| part.concurrency).unwrap_or(1);
        tracing::info!(
            run = J::NAME,
            table = settings.table,
            mode = settings.mode.name(),
            now = clock.now().get(),
            segment = part.map(|(part, _)| part.index),
            "run begins"
        );
        let result = Box::pin(self.run(&settings, clock, (kind.job)(&settings), part)).await;
        match &result {
            Ok(report) => {
                tracing::info!(
                    run = J::NAME,
                    table = report.table,
                    outcome = report.outcome.name(),
                    complete = report.outcome.is_complete(),
                    mode = report.mode.name(),
                    rows.read = report.counts.rows_read(),
                    rows.deleted = report.counts.rows_deleted(),
                    rows.lost_race = report.counts.lost_races(),
                    rows.skipped = report.counts.rows_skipped(),
                    units.read = report.usage.read_units,
                    units.write = report.usage.write_units,
                    requests = report.usage.requests,
                    throttles = report.usage.throttles,
                    elapsed_ms = report.elapsed_ms,
                    notes = report.notes.join("; "),
                    // The answer of a scheduled run goes nowhere: what it did, bucket by bucket and why, is told here.
                    buckets = report.counts.to_string(),
                    "run ended"
                );
                self.tell(&report.samples(J::NAME), clock.now());
            }
            Err(error) => self.failed(J::NAME, &settings, error, clock.now()),
        }
        result
    }

    async fn run<J: Job<Dynamo>>(
        &self,
        settings: &Settings,
        clock: RunClock,
        job: J,
        part: Option<(&SegmentRun, Segment)>,
    ) -> Result<RunReport, RunError> {
        let table = self.open(settings, clock).await?;
        match part {
            None => run::run(&table, &job, settings, table.clock()).await,
            Some(part) => run::run_segment(&table, &job, part, settings, table.clock()).await,
        }
    }

    pub(crate) async fn open(&self, settings: &Settings, clock: RunClock) -> Result<Dynamo, RunError> {
        Ok(Dynamo::open(self.client.clone(), settings, settings::endpoint(&self.environment), clock).await?)
    }

    pub(crate) fn settings(&self, run: &str, overrides: &Overrides, purpose: Purpose) -> Result<Settings, RunError> {
        understood(run, Settings::parse(&self.environment, overrides, purpose))
    }

    pub(crate) fn failed(&self, run: &str, settings: &Settings, error: &RunError, now: EpochSeconds) {
        log_failure(run, error);
        if let RunError::Interrupted { report, .. } = error {
            return self.tell(&report.samples(run), now);
        }
        let mut sample = Sample::of(&[(metric::TABLE, &settings.table), (metric::FUNCTION, run)])
            .count(metric::FAILED, 1)
            .flag(metric::REFUSED, error.is_refusal());
        // A dry run completes nothing, however it ends; the metrics job has no mode.
        if settings.mode == Mode::Delete || run == metrics::NAME {
            sample = sample.count(metric::COMPLETE, 0);
        }
        self.tell(&[sample], now);
    }

    pub(crate) fn tell(&self, samples: &[Sample], now: EpochSeconds) {
        for document in samples.iter().flat_map(|sample| sample.documents(now)) {
            (self.tell)(&document.to_string());
        }
    }
}

/// What an event was understood as; what was not is logged.
pub(crate) fn understood<T>(run: &str, event: Result<T, ConfigError>) -> Result<T, RunError> {
    event.map_err(RunError::from).inspect_err(|error| log_failure(run, error))
}

pub(crate) fn log_failure(run: &str, error: &RunError) {
    tracing::error!(run, error.kind = error.kind(), error.text = %error, "run failed");
}
