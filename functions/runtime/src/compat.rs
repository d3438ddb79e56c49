//! The invocations as methods, under their former names, for the command line and the tests until they call the functions.

use std::time::Duration;

use serde_json::Value;

use crate::custom_resource::Unanswered;
use crate::lambda::{Function, parsed};
use crate::{cascade, custom_resource, event, job, metrics};
use dynamo::Dynamo;
use jobs::cascade::CascadeReport;
use jobs::cleanup::Cleanup;
use jobs::metrics::Measurement;
use jobs::repair::Repair;
use jobs::run::report::RunReport;
use jobs::run::{RunError, WalkRows};
use shared::time::EpochSeconds;

type Budget = Option<Duration>;

impl Function {
    pub async fn daily_cleanup(&self, event: Value, now: EpochSeconds, budget: Budget) -> Result<RunReport, RunError> {
        self.run::<Cleanup>(event, now, budget).await
    }

    pub async fn index_repair(&self, event: Value, now: EpochSeconds, budget: Budget) -> Result<RunReport, RunError> {
        self.run::<Repair>(event, now, budget).await
    }

    async fn run<J: WalkRows<Dynamo>>(
        &self,
        event: Value,
        now: EpochSeconds,
        budget: Budget,
    ) -> Result<RunReport, RunError> {
        let overrides = parsed(J::NAME, event::overrides(event))?;
        job::run::<J>(self, &overrides, self.clock(now, budget), None).await
    }

    pub async fn answer_daily_cleanup(
        &self,
        event: Value,
        now: EpochSeconds,
        budget: Budget,
    ) -> Result<Value, RunError> {
        job::answer::<Cleanup>(self, event, now, budget).await
    }

    pub async fn answer_index_repair(
        &self,
        event: Value,
        now: EpochSeconds,
        budget: Budget,
    ) -> Result<Value, RunError> {
        job::answer::<Repair>(self, event, now, budget).await
    }

    pub async fn metrics_emitter(
        &self,
        event: Value,
        now: EpochSeconds,
        budget: Budget,
    ) -> Result<Measurement, RunError> {
        metrics::measure(self, event, now, budget).await
    }

    pub async fn ttl_cascade(
        &self,
        event: Value,
        now: EpochSeconds,
        budget: Budget,
    ) -> Result<CascadeReport, RunError> {
        cascade::run(self, event, now, budget).await
    }

    pub async fn enable_ttl(&self, event: Value, now: EpochSeconds, budget: Budget) -> Result<Value, Unanswered> {
        custom_resource::enable_ttl(self, event, now, budget).await
    }
}
