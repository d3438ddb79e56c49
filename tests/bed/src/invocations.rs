//! Invocations as methods of `Function`, for tests.

use std::time::Duration;

use dynamo::Dynamo;
use jobs::cascade::CascadeReport;
use jobs::cleanup::Cleanup;
use jobs::metrics::Measurement;
use jobs::repair::Repair;
use jobs::run::clock::RunClock;
use jobs::run::report::RunReport;
use jobs::run::{Job, RunError, WalkRows};
use runtime::custom_resource::{self, Unanswered};
use runtime::lambda::Function;
use runtime::{cascade, event, job, metrics};
use serde_json::{Value, json};
use shared::time::EpochSeconds;

type Budget = Option<Duration>;

/// The answer of `daily-cleanup` for a run.
pub fn cleanup_answer(report: &RunReport) -> Value {
    json!(Cleanup::answer(report))
}

/// The answer of `index-repair` for a run.
pub fn repair_answer(report: &RunReport) -> Value {
    json!(Repair::answer(report))
}

#[expect(async_fn_in_trait, reason = "used with static dispatch only")]
pub trait Invocations {
    async fn daily_cleanup(&self, event: Value, now: EpochSeconds, budget: Budget) -> Result<RunReport, RunError>;
    async fn index_repair(&self, event: Value, now: EpochSeconds, budget: Budget) -> Result<RunReport, RunError>;
    async fn answer_daily_cleanup(&self, event: Value, now: EpochSeconds, budget: Budget) -> Result<Value, RunError>;
    async fn answer_index_repair(&self, event: Value, now: EpochSeconds, budget: Budget) -> Result<Value, RunError>;
    async fn metrics_emitter(&self, event: Value, now: EpochSeconds, budget: Budget) -> Result<Measurement, RunError>;
    async fn ttl_cascade(&self, event: Value, now: EpochSeconds, budget: Budget) -> Result<CascadeReport, RunError>;
    async fn enable_ttl(&self, event: Value, now: EpochSeconds, budget: Budget) -> Result<Value, Unanswered>;
}

async fn run<J: WalkRows<Dynamo>>(function: &Function, event: Value, clock: RunClock) -> Result<RunReport, RunError> {
    job::run::<J>(function, &event::overrides(event)?, clock, None).await
}

impl Invocations for Function {
    async fn daily_cleanup(&self, event: Value, now: EpochSeconds, budget: Budget) -> Result<RunReport, RunError> {
        run::<Cleanup>(self, event, RunClock::start(now, budget)).await
    }

    async fn index_repair(&self, event: Value, now: EpochSeconds, budget: Budget) -> Result<RunReport, RunError> {
        run::<Repair>(self, event, RunClock::start(now, budget)).await
    }

    async fn answer_daily_cleanup(&self, event: Value, now: EpochSeconds, budget: Budget) -> Result<Value, RunError> {
        job::answer::<Cleanup>(self, event, RunClock::start(now, budget)).await
    }

    async fn answer_index_repair(&self, event: Value, now: EpochSeconds, budget: Budget) -> Result<Value, RunError> {
        job::answer::<Repair>(self, event, RunClock::start(now, budget)).await
    }

    async fn metrics_emitter(&self, event: Value, now: EpochSeconds, budget: Budget) -> Result<Measurement, RunError> {
        metrics::measure(self, event, RunClock::start(now, budget)).await
    }

    async fn ttl_cascade(&self, event: Value, now: EpochSeconds, budget: Budget) -> Result<CascadeReport, RunError> {
        cascade::run(self, event, RunClock::start(now, budget)).await
    }

    async fn enable_ttl(&self, event: Value, now: EpochSeconds, budget: Budget) -> Result<Value, Unanswered> {
        custom_resource::enable_ttl(self, event, RunClock::start(now, budget)).await
    }
}
