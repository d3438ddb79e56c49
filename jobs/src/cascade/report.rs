//! The report of a batch: the counts, and the answer that the event source mapping reads.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::Batch;
use crate::run::RunError;
use crate::run::clock::RunClock;
use crate::run::report::{Outcome, RunReport};
use crate::store::StoreError;
use shared::settings::Settings;

/// The records of a batch, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Records {
    pub received: u64,
    pub ignored: u64,
    /// Ignored records of another table's stream: somebody has set up a wrong mapping.
    pub of_other_tables: u64,
    pub malformed: u64,
    /// Removed tokens that exist again, among those that other rows depend on.
    pub written_again: u64,
    /// Records to be delivered again.
    pub failed: u64,
}

/// The report of one batch.
#[derive(Clone, Debug, PartialEq)]
pub struct CascadeReport {
    pub run: RunReport,
    pub records: Records,
    /// Sequence numbers of the records to be delivered again.
    pub failed: BTreeSet<String>,
}

impl CascadeReport {
    /// The report of a batch before any work.
    pub fn new(settings: &Settings, clock: &RunClock, batch: &Batch) -> Self {
        let run = RunReport::new(Outcome::Complete, settings, clock);
        Self { run, records: batch.records, failed: BTreeSet::new() }
    }

    /// The error that fails the whole invocation.
    pub(super) fn interrupted(self, cause: StoreError) -> RunError {
        let report = RunReport { outcome: Outcome::Failed, ..self.run };
        RunError::Interrupted { report: Box::new(report), cause }
    }

    /// Contains nothing else: the mapping treats an answer that it does not understand as a failure of the whole batch.
    pub fn to_answer(&self) -> Value {
        let failures: Vec<Value> = self.failed.iter().map(|sequence| json!({"itemIdentifier": sequence})).collect();
        json!({"batchItemFailures": failures})
    }
}
