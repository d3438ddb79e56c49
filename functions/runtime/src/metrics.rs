//! One invocation of the metrics job.

use serde_json::Value;

use crate::event;
use crate::lambda::{Function, log_failure, parsed};
use dynamo::ReadOnly;
use jobs::metrics::{self, Ended, Measurement, Sampling};
use jobs::run::RunError;
use jobs::run::clock::RunClock;
use shared::settings::Purpose;

pub async fn answer(function: &Function, event: Value, clock: RunClock) -> Result<Value, RunError> {
    measure(function, event, clock).await.map(|measured| metrics::answer(&measured))
}

pub async fn measure(function: &Function, event: Value, clock: RunClock) -> Result<Measurement, RunError> {
    let overrides = parsed(Purpose::Metrics, event::overrides(event))?;
    let settings = function.settings(&overrides, Purpose::Metrics)?;
    tracing::info!(table = settings.table, scope = settings.scope.name(), now = clock.now().get(), "metrics started");
    let work = async {
        let table = ReadOnly::open(function.client.clone(), &settings, function.endpoint(), clock).await?;
        metrics::measure(&table, &settings, table.clock(), &Sampling::at(table.clock().now())).await
    };
    let result = Box::pin(work).await.map_err(RunError::from);
    match &result {
        Ok(measured) => {
            log(measured);
            function.emit(Some(&measured.document()), clock.now());
        }
        Err(error) => log_failure(Purpose::Metrics, error),
    }
    result
}

fn log(measured: &Measurement) {
    let total = measured.census.total();
    // An incomplete count is not logged.
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
