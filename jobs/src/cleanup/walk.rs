//! The daily cleanup's walk: pages every bucket of the system actors, looks at what the due index rows point at, and
//! deletes what is dead.

use super::cursor::Cursor;
use super::source::{Pointed, SystemRows, Unit};

use crate::run::report::Tally;
use crate::store::{Budget, DeleteRows, ReadRows};
use crate::walk::{Chain, Context, Stop, Walked, walk};
use shared::expiry::{self, Condemned, Verdict};
use shared::integrity::{self, Lookup};
use shared::row::RowKey;
use shared::segment::Segment;

/// Walks over all rows, or those of a segment, from `from` until the end, the deadline, the ceiling or a fault.
pub async fn sweep<S>(context: &Context<'_, S>, segment: Option<Segment>, from: Option<Cursor>) -> Walked<Cursor>
where
    S: ReadRows + DeleteRows + Budget,
{
    let source = SystemRows::new(context, segment, from.clone());
    let walked = walk(context, source, async |units, counts: &mut Tally| work(context, units, counts).await).await;
    Walked { end: walked.end.map(|at| at.blurred(from.as_ref())), counts: walked.counts }
}

async fn work<S>(context: &Context<'_, S>, units: Vec<Unit>, counts: &mut Tally) -> Result<(), Stop>
where
    S: ReadRows + DeleteRows,
{
    let (mut dead, mut pointed) = (Vec::new(), Vec::new());
    for unit in units {
        match unit {
            Unit::Dead(condemned) => dead.push(condemned),
            Unit::Pointed(token) => pointed.push(token),
        }
    }
    context.delete(dead, counts).await?;
    if pointed.is_empty() {
        return Ok(());
    }
    let keys: Vec<RowKey> = pointed.iter().map(|token| token.target.clone()).collect();
    let targets = context.look_cheaply(&keys).await?;
    let chains =
        pointed.into_iter().zip(targets).map(|(token, target)| judge(context, token, target, counts)).collect();
    context.delete_chains(chains, counts).await
}

/// Keeps of a token what is dead.
fn judge<S>(context: &Context<'_, S>, token: Pointed, target: Lookup, counts: &mut Tally) -> Chain {
    let (now, policy) = (context.now, &context.policy);
    let mut chain = Chain::default();
    for (row, index_bucket) in token.index_rows {
        match integrity::compare(&row, index_bucket, &target, now, policy) {
            None => counts.skipped(index_bucket),
            Some(Verdict::Keep(reason)) => counts.kept(index_bucket, reason),
            Some(Verdict::Delete(reason)) => chain.index_rows.push(Condemned::new(row, index_bucket, reason)),
        }
    }
    let Lookup::Found(target) = target else { return chain };
    let Some(target_bucket) = target.known_bucket() else { return chain };
    counts.read(target_bucket);
    match expiry::condemn(target, target_bucket, now, policy) {
        Err(reason) => counts.kept(target_bucket, reason),
        Ok(condemned) => chain.set_target(condemned),
    }
    chain
}
