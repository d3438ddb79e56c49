//! What a batch came to: the counts, the metrics, and the answer that the stream's mapping reads.

use serde_json::{Value, json};

use super::Batch;
use crate::run::clock::RunClock;
use crate::run::report::{Outcome, RunReport};
use crate::store::StoreError;
use shared::cascade::Ignored;
use shared::settings::Settings;

/// What the records of a batch were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Records {
    pub received: u64,
    pub ignored: u64,
    /// Of the ignored, those of another table's stream: a mapping that somebody has set up by mistake.
    pub of_other_tables: u64,
    pub malformed: u64,
    /// Removals whose row is there again, as far as anything hangs on it.
    pub written_again: u64,
    /// To come again.
    pub failed: u64,
}

impl Records {
    pub(super) fn ignored(&mut self, why: Ignored) {
        self.ignored += 1;
        self.of_other_tables += u64::from(why == Ignored::OtherTable);
    }
}

/// The report of one batch.
#[derive(Clone, Debug, PartialEq)]
pub struct CascadeReport {
    pub run: RunReport,
    pub records: Records,
    /// Sequence numbers of the records that have to come again.
    pub failed: Vec<String>,
}

/// Why the whole invocation has to fail, and what was done before.
#[derive(Clone, Debug, PartialEq)]
pub struct Broken {
    pub report: Box<CascadeReport>,
    pub cause: StoreError,
}

impl CascadeReport {
    pub(crate) fn new(settings: &Settings, clock: &RunClock, records: Records) -> Self {
        let run = RunReport::new(Outcome::Complete, settings, clock);
        Self { run, records, failed: Vec::new() }
    }

    /// The batch that asked for nothing.
    pub fn idle(settings: &Settings, clock: &RunClock, batch: &Batch) -> Self {
        Self::new(settings, clock, batch.records)
    }

    /// The batch that could not be begun.
    pub fn failed(settings: &Settings, clock: &RunClock, batch: &Batch) -> Self {
        let mut report = Self::new(settings, clock, batch.records);
        report.fail(batch);
        report
    }

    /// The invocation fails, and all of the batch comes again: also what was finished.
    pub(super) fn fail(&mut self, batch: &Batch) {
        self.run.outcome = Outcome::Failed;
        self.failed = batch.removals.iter().map(|removal| removal.sequence.clone()).collect();
        self.count_failed();
    }

    pub(super) fn count_failed(&mut self) {
        self.failed.sort_unstable();
        self.failed.dedup();
        self.records.failed = self.failed.len() as u64;
    }

    /// Nothing but this: a mapping takes an answer that it does not understand for the failure of the whole batch.
    pub fn to_answer(&self) -> Value {
        let failures: Vec<Value> = self.failed.iter().map(|sequence| json!({"itemIdentifier": sequence})).collect();
        json!({"batchItemFailures": failures})
    }
}
