//! The daily cleanup as a job.

mod cursor;
mod source;
mod steps;
mod walk;

use serde_json::Value;

use crate::run::{Checkpoint, Job, Pass};
use crate::store::{Budget, DeleteRows, ReadRows};
use crate::walk::Context;
pub use cursor::Cursor;
use shared::segment::Segment;
pub use walk::sweep;

pub const NAME: &str = "daily-cleanup";

/// Sessions, SPA tokens, MCP tokens and what hangs on them, by the rows of the system actors.
pub struct DailyCleanup;

impl<S: ReadRows + DeleteRows + Budget> Job<S> for DailyCleanup {
    const NAME: &'static str = NAME;
    const PERIOD: i64 = 86_400;

    async fn walk(
        &self,
        context: &Context<'_, S>,
        segment: Option<Segment>,
        from: &Value,
        _: &Checkpoint<'_, S>,
    ) -> Pass {
        let swept = sweep(context, segment, Cursor::from_json(from)).await;
        let end = swept.end.map(|at| at.to_json());
        Pass { counts: swept.counts, end, findings: Value::Null, notes: Vec::new() }
    }
}
