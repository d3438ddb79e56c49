//! One batch of the table's stream, from event to answer, without the Lambda runtime around it.

use std::time::Duration;

use serde_json::{Map, Value};

use crate::lambda::{Function, log_failure};
use jobs::cascade::{self, Batch, Broken, CascadeReport};
use jobs::run::RunError;
use jobs::run::clock::RunClock;
use shared::settings::{Purpose, Settings};
use shared::time::EpochSeconds;

impl Function {
    /// # Errors
    /// When no record of the batch could be tried; then so must the invocation, and the whole batch comes again. Records
    /// that failed by themselves are in the report.
    pub async fn ttl_cascade(
        &self,
        event: Value,
        now: EpochSeconds,
        budget: Option<Duration>,
    ) -> Result<CascadeReport, RunError> {
        let clock = RunClock::start(now, budget);
        // The event is the stream's: settings come from the environment alone.
        let settings = Settings::parse(&self.environment, &Map::new(), Purpose::Cascade);
        let read = settings.and_then(|settings| Ok((Batch::read(&event, &settings.table)?, settings)));
        let (batch, settings) = match read {
            Ok(read) => read,
            Err(error) => {
                let error = RunError::from(error);
                log_failure(cascade::NAME, &error);
                return Err(error);
            }
        };
        let result = if batch.is_empty() {
            Ok(CascadeReport::idle(&settings, &clock, &batch))
        } else {
            Box::pin(self.cascade(&batch, &settings, clock)).await
        };
        match result {
            Ok(report) => {
                log(&report);
                self.tell(&report.samples(), now);
                Ok(report)
            }
            Err((report, error)) => {
                log_failure(cascade::NAME, &error);
                self.tell(&report.samples(), now);
                Err(error)
            }
        }
    }

    /// What failed as a whole has a report, too: its records come again, and the metrics have to say so.
    async fn cascade(
        &self,
        batch: &Batch,
        settings: &Settings,
        clock: RunClock,
    ) -> Result<CascadeReport, (Box<CascadeReport>, RunError)> {
        let table = match self.open(settings, clock).await {
            Ok(table) => table,
            Err(error) => return Err((Box::new(CascadeReport::failed(settings, &clock, batch)), error)),
        };
        cascade::cascade(&table, batch, settings, table.clock()).await.map_err(|Broken { report, cause }| {
            let error = RunError::Interrupted { report: Box::new(report.run.clone()), cause };
            (report, error)
        })
    }
}

fn log(report: &CascadeReport) {
    let CascadeReport { run, records, .. } = report;
    tracing::info!(
        run = cascade::NAME,
        table = run.table,
        outcome = run.outcome.name(),
        mode = run.mode.name(),
        records.received = records.received,
        records.ignored = records.ignored,
        records.malformed = records.malformed,
        records.written_again = records.written_again,
        records.failed = records.failed,
        rows.read = run.counts.rows_read(),
        rows.deleted = run.counts.rows_deleted(),
        rows.lost_race = run.counts.lost_races(),
        rows.skipped = run.counts.rows_skipped(),
        units.read = run.usage.read_units,
        units.write = run.usage.write_units,
        requests = run.usage.requests,
        throttles = run.usage.throttles,
        elapsed_ms = run.elapsed_ms,
        buckets = run.counts.to_string(),
        "run ended"
    );
    if records.of_other_tables > 0 {
        tracing::warn!(
            run = cascade::NAME,
            records.of_other_tables = records.of_other_tables,
            "records of another table's stream: look at what is mapped to this function"
        );
    }
    if records.malformed > 0 {
        tracing::warn!(run = cascade::NAME, records.malformed = records.malformed, "records that no stream sends");
    }
}
