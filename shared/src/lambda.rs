//! One invocation of a function, from event to report, without the Lambda runtime around it.

use std::time::Duration;

use aws_sdk_dynamodb::Client;
use serde_json::Value;

use crate::clock::RunClock;
use crate::config::{self, Environment, Mode, Purpose, Settings};
use crate::daily::DailyCleanup;
use crate::dynamo::Dynamo;
use crate::event;
use crate::repair::IndexRepair;
use crate::report::RunReport;
use crate::run::{self, Job, RunError};
use crate::time::EpochSeconds;

/// What stays the same between invocations of one container.
pub struct Function {
    pub client: Client,
    pub environment: Environment,
}

impl Function {
    /// # Errors
    /// When the run failed; then so must the invocation, so that Lambda's own error metric and retries see it.
    pub async fn daily_cleanup(
        &self,
        event: Value,
        now: EpochSeconds,
        budget: Option<Duration>,
    ) -> Result<RunReport, RunError> {
        let clock = RunClock::start(now, budget);
        self.invoke(event, Purpose::DailyCleanup, clock, |_| DailyCleanup).await
    }

    /// # Errors
    /// When the run failed; then so must the invocation.
    pub async fn index_repair(
        &self,
        event: Value,
        now: EpochSeconds,
        budget: Option<Duration>,
    ) -> Result<RunReport, RunError> {
        let clock = RunClock::start(now, budget);
        self.invoke(event, Purpose::IndexRepair, clock, IndexRepair::new).await
    }

    async fn invoke<J: Job<Dynamo>>(
        &self,
        event: Value,
        purpose: Purpose,
        clock: RunClock,
        job: impl FnOnce(&Settings) -> J,
    ) -> Result<RunReport, RunError> {
        let result = Box::pin(self.run(event, purpose, clock, job)).await;
        match &result {
            Ok(report) => tracing::info!(
                run = J::NAME,
                table = report.table,
                outcome = ?report.outcome,
                complete = report.outcome.is_complete(),
                mode = ?report.mode,
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
                "run ended"
            ),
            Err(error) => {
                tracing::error!(run = J::NAME, error.kind = error.kind(), error.text = %error, "run failed");
            }
        }
        result
    }

    async fn run<J: Job<Dynamo>>(
        &self,
        event: Value,
        purpose: Purpose,
        clock: RunClock,
        job: impl FnOnce(&Settings) -> J,
    ) -> Result<RunReport, RunError> {
        let settings = Settings::parse(&self.environment, &event::overrides(event)?, Mode::Delete, purpose)?;
        tracing::info!(
            run = J::NAME,
            table = settings.table,
            mode = ?settings.mode,
            now = clock.now().get(),
            "run begins"
        );
        let endpoint = config::endpoint(&self.environment);
        let table = Dynamo::open(self.client.clone(), &settings, endpoint, clock).await?;
        run::run(&table, &job(&settings), &settings, &clock).await
    }
}
