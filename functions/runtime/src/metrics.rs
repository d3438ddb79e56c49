//! One invocation of the metrics job.

use std::time::Duration;

use serde_json::Value;

use crate::event;
use crate::lambda::{Function, parsed};
use dynamo::ReadOnly;
use jobs::metrics::{self, Ended, Measurement, Sampling};
use jobs::run::RunError;
use jobs::run::clock::RunClock;
use shared::settings::{Purpose, Settings};
use shared::time::EpochSeconds;

pub async fn answer(
    function: &Function,
    event: Value,
    now: EpochSeconds,
    budget: Option<Duration>,
) -> Result<Value, RunError> {
    measure(function, event, now, budget).await.map(|measured| metrics::answer(&measured))
}

pub async fn measure(
    function: &Function,
    event: Value,
    now: EpochSeconds,
    budget: Option<Duration>,
) -> Result<Measurement, RunError> {
    let clock = RunClock::start(now, budget);
    let overrides = parsed(metrics::NAME, event::overrides(event))?;
    let settings = function.settings(metrics::NAME, &overrides, Purpose::Metrics)?;
    tracing::info!(table = settings.table, scope = settings.scope.name(), now = clock.now().get(), "metrics started");
    let result = Box::pin(measure_table(function, &settings, clock)).await;
    match &result {
        Ok(measured) => {
            log(measured);
            function.emit(Some(&measured.document()), now);
        }
        Err(error) => function.failed(metrics::NAME, error, now),
    }
    result
}

async fn measure_table(function: &Function, settings: &Settings, clock: RunClock) -> Result<Measurement, RunError> {
    let table = ReadOnly::open(function.client.clone(), settings, function.endpoint(), clock).await?;
    let sampling = Sampling::at(table.clock().now());
    Ok(metrics::measure(&table, settings, table.clock(), &sampling).await?)
}

fn log(measured: &Measurement) {
    let total = measured.census.total();
    // A part of a count is no count.
    let counted = |n: u64| (measured.ended == Ended::Complete).then_some(n);
    tracing::info!(
        table = measured.table,
        scope = measured.scope.name(),
        outcome = measured.ended.into_str(),
        rows.counted = counted(total.rows),
        rows.dead = counted(total.dead),
        rows.due = counted(total.due),
        ttl = measured.ttl.into_str(),
        paused = measured.pause.is_some(),
        trend = measured.forecast.trend.into_str(),
        units.read = measured.usage.read_units,
        requests = measured.usage.requests,
        throttles = measured.usage.throttles,
        elapsed_ms = measured.elapsed_ms,
        "metrics finished"
    );
    for finding in &measured.findings {
        tracing::warn!(finding.kind = finding.kind, finding.text = finding.text, "finding");
    }
}
