//! Why a run failed.

use super::pause::Pause;
use super::report::RunReport;
use crate::store::StoreError;
use shared::lease::Holder;
use shared::settings::ConfigError;

/// Each message is one line that names the cause and the setting.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RunError {
    #[error("configuration: {0}")]
    Config(#[from] ConfigError),
    #[error("{0}")]
    Store(#[from] StoreError),
    #[error(
        "refused: table {table} has rows, but none in a bucket that ActingWeb's token store uses: check AWS_DB_PREFIX or ATTRIBUTES_TABLE"
    )]
    WrongTable { table: String },
    #[error(
        "refused: {dead} of {read} rows would be deleted or retired, a share of {share:.3}, above MAX_DELETE_SHARE={limit}; nothing was deleted"
    )]
    AboveShare { dead: u64, read: u64, share: f64, limit: f64 },
    #[error(
        "refused: EXPIRED_ROWS=retire needs the table's TTL on ttl_timestamp, but it is {state}: run `janitor ttl enable --apply`, or deploy with TimeToLive=enable; nothing was written"
    )]
    TtlNotOn { state: String },
    #[error("refused: MAX_DELETE_SHARE could not be checked: {problem}; nothing was deleted")]
    ShareUnknown { problem: String },
    #[error("another run took over the lease; this run stopped")]
    LeaseLost,
    #[error("{0}")]
    LeaseHeld(#[from] Holder),
    #[error("{0}; nothing was done")]
    Paused(Pause),
    #[error(
        "MAX_DELETES limits a single run and cannot be used with a backlog execution. Unset it for this execution."
    )]
    MaxDeletesInBacklog,
    #[error("failed after deleting {} rows{}: {cause}", .report.counts.rows_deleted(), and_retiring(.report))]
    Interrupted { report: Box<RunReport>, cause: StoreError },
}

/// Empty unless the run retired rows.
fn and_retiring(report: &RunReport) -> String {
    match report.counts.rows_retired() {
        0 => String::new(),
        retired => format!(" and retiring {retired}"),
    }
}

impl RunError {
    /// A stable word for alarms and dashboards.
    pub fn kind(&self) -> &'static str {
        match self {
            RunError::Config(_) => "Configuration",
            RunError::Store(_) | RunError::Interrupted { .. } => "Store",
            RunError::LeaseLost => "LeaseLost",
            RunError::LeaseHeld(_) => "LeaseHeld",
            RunError::Paused(_) => "Paused",
            RunError::WrongTable { .. }
            | RunError::TtlNotOn { .. }
            | RunError::AboveShare { .. }
            | RunError::ShareUnknown { .. }
            | RunError::MaxDeletesInBacklog => "Refused",
        }
    }
}
