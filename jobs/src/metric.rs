//! The CloudWatch metrics: six, each defined once, in the embedded metric format.
//!
//! A document is one line of JSON on standard output. CloudWatch turns the listed values into metrics; Logs Insights
//! can query the other fields. A metric costs as much as 480,000 deletes a month and a field nothing, so all other
//! figures are fields. The alarms and the dashboard in `stack/` use these names, and a test compares the two.

use serde_json::{Map, Value, json};

use shared::time::EpochSeconds;

pub const NAMESPACE: &str = "ActingWeb/Janitor";

/// The only dimension.
pub const TABLE: &str = "Table";

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
    /// Dead rows and due index rows of the system actors that are waiting for a run.
    BACKLOG = "Backlog", "Count";
    /// How long the oldest dead row of the system actors has been dead; 0 if there is none.
    OLDEST_DEAD_AGE = "OldestDeadAge", "Seconds";
    /// 1 when TTL is on, or being turned on, for the right attribute.
    TTL_ON = "TtlOn", "Count";
    /// 1 when the cleanup or the repair has not completed for too long, or the cascade reads a stream that is no longer the table's.
    OVERDUE = "Overdue", "Count";
    /// DynamoDB's own count, up to six hours old. AWS publishes no such metric itself.
    TABLE_ROWS = "TableRows", "Count";
    /// By one run of the cleanup or the repair. Not emitted by dry runs, nor by the cascade, which would do it hourly.
    ROWS_DELETED = "RowsDeleted", "Count";
}

/// One log line: its metrics, and its other fields.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    table: String,
    values: Vec<(Metric, u64)>,
    fields: Map<String, Value>,
}

impl Document {
    /// Queries select documents by their `message`.
    pub fn new(table: &str, message: &str) -> Self {
        let fields = Map::from_iter([("message".to_owned(), json!(message))]);
        Self { table: table.to_owned(), values: Vec::new(), fields }
    }

    /// A metric without a value is left out.
    pub fn count(mut self, metric: Metric, value: impl Into<Option<u64>>) -> Self {
        self.values.extend(value.into().map(|value| (metric, value)));
        self
    }

    pub fn field(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.fields.insert(name.to_owned(), value.into());
        self
    }

    /// The line for CloudWatch. `request_id` identifies the invocation, as on every log line.
    pub fn to_json(&self, now: EpochSeconds, request_id: Option<&str>) -> Value {
        let metrics: Vec<Value> =
            self.values.iter().map(|(metric, _)| json!({"Name": metric.name, "Unit": metric.unit})).collect();
        let directive = json!([{"Namespace": NAMESPACE, "Dimensions": [[TABLE]], "Metrics": metrics}]);
        let mut document = Map::from_iter([
            ("_aws".to_owned(), json!({"Timestamp": now.get().saturating_mul(1_000), "CloudWatchMetrics": directive})),
            (TABLE.to_owned(), json!(self.table)),
        ]);
        if let Some(id) = request_id {
            document.insert("requestId".to_owned(), json!(id));
        }
        document.extend(self.values.iter().map(|(metric, value)| (metric.name.to_owned(), json!(value))));
        document.extend(self.fields.clone());
        Value::Object(document)
    }
}
