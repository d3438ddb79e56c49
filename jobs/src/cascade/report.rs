//! What a batch came to: the counts, the metrics, and the answer that the stream's mapping reads.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::Batch;
use crate::run::RunError;
use crate::run::clock::RunClock;
use crate::run::report::{Outcome, RunReport};
use crate::store::StoreError;
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

/// The report of one batch.
#[derive(Clone, Debug, PartialEq)]
pub struct CascadeReport {
    pub run: RunReport,
    pub records: Records,
    /// Sequence numbers of the records that have to come again.
    pub failed: BTreeSet<String>,
}

impl CascadeReport {
    /// Of a batch of which nothing was done.
    pub fn new(settings: &Settings, clock: &RunClock, batch: &Batch) -> Self {
        let run = RunReport::new(Outcome::Complete, settings, clock);
        Self { run, records: batch.records, failed: BTreeSet::new() }
    }

    /// The error that fails the whole invocation.
    pub(super) fn interrupted(self, cause: StoreError) -> RunError {
        let report = RunReport { outcome: Outcome::Failed, ..self.run };
        RunError::Interrupted { report: Box::new(report), cause }
    }

    /// Nothing but this: a mapping takes an answer that it does not understand for the failure of the whole batch.
    pub fn to_answer(&self) -> Value {
        let failures: Vec<Value> = self.failed.iter().map(|sequence| json!({"itemIdentifier": sequence})).collect();
        json!({"batchItemFailures": failures})
    }
}
