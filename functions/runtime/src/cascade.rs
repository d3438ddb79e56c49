//! One invocation of the cascade: a batch of the table's stream.

use serde_json::{Map, Value};

use crate::lambda::{Function, log_finished, parsed};
use jobs::cascade::{self, Batch, CascadeReport};
use jobs::run::RunError;
use jobs::run::clock::RunClock;
use shared::settings::Purpose;

pub async fn answer(function: &Function, event: Value, clock: RunClock) -> Result<Value, RunError> {
    run(function, event, clock).await.map(|report| report.to_answer())
}

/// An error if no record of the batch could be handled: Lambda then delivers the whole batch again. Records that failed
/// individually are in the report.
pub async fn run(function: &Function, event: Value, clock: RunClock) -> Result<CascadeReport, RunError> {
    // The event holds stream records, not settings: those come from the environment.
    let settings = function.settings(&Map::new(), Purpose::Cascade)?;
    let batch = parsed(Purpose::Cascade, Batch::read(&event, &settings.table))?;
    let result = if batch.is_empty() {
        Ok(CascadeReport::new(&settings, &clock, &batch))
    } else {
        let work = async {
            let table = function.open(&settings, clock).await?;
            cascade::cascade(&table, &batch, &settings, table.clock()).await
        };
        Box::pin(work).await
    };
    match &result {
        // No metric: it would cost as much as all the others together, and the log line has the figures.
        Ok(report) => log(report),
        Err(error) => {
            let records = batch.failed();
            tracing::error!(
                records.received = records.received,
                records.failed = records.failed,
                error.kind = error.kind(),
                error.text = %error,
                "cascade failed"
            );
        }
    }
    result
}

fn log(report: &CascadeReport) {
    let records = &report.records;
    log_finished(Purpose::Cascade, &report.run, Some(records));
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
