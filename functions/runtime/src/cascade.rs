//! One invocation of the cascade: a batch of the table's stream.

use std::time::Duration;

use serde_json::{Map, Value};

use crate::lambda::{Function, parsed};
use jobs::cascade::{self, Batch, Broken, CascadeReport};
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
    run(function, event, now, budget).await.map(|report| report.to_answer())
}

/// An error when no record of the batch could be tried: then the invocation fails, and the whole batch is delivered again.
/// Records that failed by themselves are in the report.
pub async fn run(
    function: &Function,
    event: Value,
    now: EpochSeconds,
    budget: Option<Duration>,
) -> Result<CascadeReport, RunError> {
    let clock = function.clock(now, budget);
    // The event is the stream's: settings come from the environment alone.
    let settings = function.settings(cascade::NAME, &Map::new(), Purpose::Cascade)?;
    let batch = parsed(cascade::NAME, Batch::read(&event, &settings.table))?;
    let result = if batch.is_empty() {
        Ok(CascadeReport::idle(&settings, &clock, &batch))
    } else {
        Box::pin(run_batch(function, &batch, &settings, clock)).await
    };
    match result {
        // No metric: it would cost as much as all others, and the log line has the figures.
        Ok(report) => {
            log(&report);
            Ok(report)
        }
        Err((report, error)) => {
            let records = &report.records;
            tracing::error!(
                records.received = records.received,
                records.failed = records.failed,
                error.kind = error.kind(),
                error.text = %error,
                "cascade failed"
            );
            Err(error)
        }
    }
}

/// A failed batch has a report, too: its records are delivered again, and the metrics count them.
async fn run_batch(
    function: &Function,
    batch: &Batch,
    settings: &Settings,
    clock: RunClock,
) -> Result<CascadeReport, (Box<CascadeReport>, RunError)> {
    let table = match function.open(settings, clock).await {
        Ok(table) => table,
        Err(error) => return Err((Box::new(CascadeReport::failed(settings, &clock, batch)), error)),
    };
    cascade::cascade(&table, batch, settings, table.clock()).await.map_err(|Broken { report, cause }| {
        let error = RunError::Interrupted { report: Box::new(report.run.clone()), cause };
        (report, error)
    })
}

fn log(report: &CascadeReport) {
    let CascadeReport { run, records, .. } = report;
    let (deleted, would_delete) = run.done_or_planned(run.counts.rows_deleted());
    tracing::info!(
        table = run.table,
        outcome = run.outcome.name(),
        mode = run.mode.name(),
        records.received = records.received,
        records.ignored = records.ignored,
        records.malformed = records.malformed,
        records.written_again = records.written_again,
        records.failed = records.failed,
        rows.read = run.counts.rows_read(),
        rows.deleted = deleted,
        rows.would_delete = would_delete,
        rows.lost_race = run.counts.lost_races(),
        rows.skipped = run.counts.rows_skipped(),
        units.read = run.usage.read_units,
        units.write = run.usage.write_units,
        requests = run.usage.requests,
        throttles = run.usage.throttles,
        elapsed_ms = run.elapsed_ms,
        notes = run.notes.join("; "),
        json.buckets = run.counts.to_string(),
        "cascade finished"
    );
    if records.of_other_tables > 0 {
        tracing::warn!(
            records.of_other_tables = records.of_other_tables,
            "records of another table's stream: check the event source mappings of this function"
        );
    }
    if records.malformed > 0 {
        tracing::warn!(records.malformed = records.malformed, "malformed stream records");
    }
}
