//! What is told to CloudWatch: every metric's name and unit, once, and the embedded metric format around them.
//!
//! A document is one line of JSON on standard output; CloudWatch makes metrics of it. The dashboard and the alarms of
//! `template.yaml` use these names, and a test compares the two.

use serde_json::{Map, Value, json};

use shared::time::EpochSeconds;

pub const NAMESPACE: &str = "ActingWeb/Janitor";

/// Dimensions. What is counted from rows has `Table` and `Bucket`, and is rolled up by `Table` and `Owner` (the kind of
/// owner), and by an audit, which sees all, by `Table`; what a run did has `Table` and `Function`, and by bucket all three.
pub const TABLE: &str = "Table";
pub const BUCKET: &str = "Bucket";
pub const OWNER: &str = "Owner";
pub const FUNCTION: &str = "Function";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    pub name: &'static str,
    pub unit: &'static str,
}

macro_rules! metrics {
    ($($(#[$doc:meta])* $constant:ident = $name:literal, $unit:literal;)+) => {
        $($(#[$doc])* pub const $constant: Metric = Metric { name: $name, unit: $unit };)+

        /// All of them.
        pub const ALL: &[Metric] = &[$($constant),+];
    };
}

metrics! {
    // Of rows, by bucket and by kind of owner.
    ROWS = "Rows", "Count";
    ROW_BYTES = "RowBytes", "Bytes";
    /// Rows that are dead by their own fields or their TTL.
    DEAD_ROWS = "DeadRows", "Count";
    /// Index rows whose TTL is past: their targets decide.
    DUE_INDEX_ROWS = "DueIndexRows", "Count";
    /// For how long the row that died first has been dead; 0 when none is.
    OLDEST_DEAD_AGE = "OldestDeadAge", "Seconds";
    // Of TTL, by kind of owner: how far rows that are still there are past theirs.
    TTL_LAG_MEDIAN = "TtlLagMedian", "Seconds";
    TTL_LAG_P95 = "TtlLagP95", "Seconds";
    TTL_LAG_OLDEST = "TtlLagOldest", "Seconds";
    /// Rows that DynamoDB's TTL will never remove.
    TTL_NEVER = "RowsTtlNeverRemoves", "Count";
    // Of the table.
    /// DynamoDB's own count, up to six hours old. AWS publishes no such metric itself.
    TABLE_ROWS = "TableRows", "Count";
    TABLE_BYTES = "TableBytes", "Bytes";
    PROVISIONED_READ_UNITS = "ProvisionedReadUnits", "Count";
    PROVISIONED_WRITE_UNITS = "ProvisionedWriteUnits", "Count";
    /// 1 when TTL is on, on the right attribute.
    TTL_ON = "TtlOn", "Count";
    FINDINGS = "Findings", "Count";
    /// Dead rows and due index rows of the system actors.
    BACKLOG = "Backlog", "Count";
    /// 1 when rows die faster than the cleanup deletes them.
    BACKLOG_GROWS = "BacklogGrows", "Count";
    DAYS_UNTIL_CLEAR = "DaysUntilClear", "None";
    DIED_PER_DAY = "RowsDiedPerDay", "Count";
    DELETED_PER_DAY = "RowsDeletedPerDay", "Count";
    // Of the cleanup's health, by function, as the emitter reads it from the state rows.
    LAST_COMPLETE_AGE = "LastCompleteAge", "Seconds";
    CUT_OFF_IN_A_ROW = "CutOffInARow", "Count";
    // Of one run, by function; the first five by bucket as well.
    ROWS_READ = "RowsRead", "Count";
    ROWS_DELETED = "RowsDeleted", "Count";
    ROWS_KEPT = "RowsKept", "Count";
    LOST_RACES = "LostRaces", "Count";
    ROWS_SKIPPED = "RowsSkipped", "Count";
    /// In place of `RowsDeleted` in a dry run.
    ROWS_TO_DELETE = "RowsToDelete", "Count";
    READ_UNITS = "ReadUnits", "Count";
    WRITE_UNITS = "WriteUnits", "Count";
    REQUESTS = "Requests", "Count";
    THROTTLES = "Throttles", "Count";
    ELAPSED = "Elapsed", "Milliseconds";
    /// 1 or 0. A dry run has none: it cleans nothing.
    COMPLETE = "Complete", "Count";
    FAILED = "Failed", "Count";
    /// A run that would not begin: above the share limit, or on the wrong table.
    REFUSED = "Refused", "Count";
    // Of one batch of the table's stream.
    RECORDS = "Records", "Count";
    /// No removal by TTL, or nothing can hang on what was removed.
    RECORDS_IGNORED = "RecordsIgnored", "Count";
    /// Not what a stream sends: skipped, because it would be no better the next time.
    RECORDS_MALFORMED = "RecordsMalformed", "Count";
    /// Could not be finished, and come again.
    RECORDS_FAILED = "RecordsFailed", "Count";
}

/// What CloudWatch takes in one document.
const MOST_METRICS: usize = 100;

/// Values of one set of dimensions, as they are gathered.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    dimensions: Vec<(&'static str, String)>,
    values: Vec<(Metric, Value)>,
}

impl Sample {
    pub fn of(dimensions: &[(&'static str, &str)]) -> Self {
        let dimensions = dimensions.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        Self { dimensions, values: Vec::new() }
    }

    pub fn count(mut self, metric: Metric, value: u64) -> Self {
        self.values.push((metric, json!(value)));
        self
    }

    pub fn flag(self, metric: Metric, value: bool) -> Self {
        self.count(metric, value.into())
    }

    /// A number that is not finite is no number to CloudWatch, and is left out.
    pub fn number(mut self, metric: Metric, value: f64) -> Self {
        if value.is_finite() {
            self.values.push((metric, json!(value)));
        }
        self
    }

    /// What is not known is left out, not told as zero.
    pub fn count_if_known(self, metric: Metric, value: Option<u64>) -> Self {
        match value {
            Some(value) => self.count(metric, value),
            None => self,
        }
    }

    /// The lines for CloudWatch: one, or more where there are too many values for one.
    pub fn documents(&self, now: EpochSeconds) -> Vec<Value> {
        let names: Vec<&str> = self.dimensions.iter().map(|(name, _)| *name).collect();
        let document = |values: &[(Metric, Value)]| {
            let metrics: Vec<Value> =
                values.iter().map(|(metric, _)| json!({"Name": metric.name, "Unit": metric.unit})).collect();
            let mut document = json!({
                "_aws": {
                    "Timestamp": now.get().saturating_mul(1_000),
                    "CloudWatchMetrics": [{"Namespace": NAMESPACE, "Dimensions": [names], "Metrics": metrics}],
                },
            });
            if let Some(members) = document.as_object_mut() {
                members.extend(self.dimensions.iter().map(|(name, value)| ((*name).to_owned(), json!(value))));
                members.extend(values.iter().map(|(metric, value)| (metric.name.to_owned(), value.clone())));
            }
            document
        };
        self.values.chunks(MOST_METRICS).map(document).collect()
    }

    /// The values by name, as the answer shows them.
    pub fn to_json(&self) -> Value {
        let dimensions = self.dimensions.iter().map(|(name, value)| ((*name).to_owned(), json!(value)));
        let values = self.values.iter().map(|(metric, value)| (metric.name.to_owned(), value.clone()));
        Value::Object(dimensions.chain(values).collect::<Map<_, _>>())
    }
}
