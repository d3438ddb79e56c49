//! The daily cleanup as a job.

use serde_json::Value;

use crate::run::{Checkpoint, Job, Pass};
use crate::segment::Segment;
use crate::store::{Budget, DeleteRows, ReadRows};
use crate::sweep::{self, Cursor};
use crate::walk::Hands;

pub const NAME: &str = "daily-cleanup";

/// Sessions, SPA tokens, MCP tokens and what hangs on them, by the rows of the system actors.
pub struct DailyCleanup;

impl<S: ReadRows + DeleteRows + Budget> Job<S> for DailyCleanup {
    const NAME: &'static str = NAME;

    async fn walk(&self, hands: &Hands<'_, S>, segment: Option<Segment>, from: &Value, _: &Checkpoint<'_, S>) -> Pass {
        let swept = sweep::sweep(hands, segment, Cursor::from_json(from)).await;
        let end = swept.end.map(|at| at.to_json());
        Pass { counts: swept.counts, end, findings: Value::Null, notes: Vec::new() }
    }
}
