//! What the rows that point at each other say: index row, target, provider row. Pure decisions, as in `expiry`.

use crate::bucket::{self, Bucket};
use crate::expiry::{self, DeleteReason, KeepReason, Policy, Verdict};
use crate::index;
use crate::row::{Raw, Row, RowKey, TtlState};
use crate::time::EpochSeconds;

/// What a look at one key found. Only `Absent`, from a consistent read that succeeded, may delete anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    Found(Row),
    Absent,
    /// The store could not answer. Never absence.
    CouldNotLook,
}

/// What an index row asks for before it can be judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// Nothing: it stays, whatever it points at.
    Settled(KeepReason),
    /// The row at this key decides.
    LookAt(RowKey),
}

/// Whether an index row's target has to be read, and where it is.
#[must_use]
pub fn ask(row: &Row, index_bucket: &Bucket, now: EpochSeconds, policy: &Policy) -> Question {
    let Some(target) = index::target_of(index_bucket) else { return Question::Settled(KeepReason::Foreign) };
    if !row.is_of(index_bucket) {
        return Question::Settled(KeepReason::Foreign);
    }
    if !index::is_due(row, index_bucket, now) {
        return Question::Settled(KeepReason::NotDue);
    }
    // DynamoDB will remove it for free whatever its target says: reading the target would only cost.
    if policy.defer_to_ttl && matches!(row.ttl().state(now), TtlState::Past | TtlState::Future) {
        return Question::Settled(KeepReason::Deferred);
    }
    match (pointed_actor(&row.data), row.name_in(index_bucket)) {
        (Some(actor), Some(name)) => Question::LookAt(RowKey::in_bucket(actor, target, name)),
        _ => Question::Settled(KeepReason::Malformed),
    }
}

/// The actor id in an index row's `data`, a JSON string.
fn pointed_actor(data: &Raw) -> Option<String> {
    let actor: String = serde_json::from_str(data.text()?).ok()?;
    (!actor.is_empty()).then_some(actor)
}

/// Judges an index row by what its target's key holds. `None` is a row that could not be judged: skipped, not kept.
#[must_use]
pub fn compare(
    row: &Row,
    index_bucket: &Bucket,
    target: &Lookup,
    now: EpochSeconds,
    policy: &Policy,
) -> Option<Verdict> {
    let target_bucket = index::target_of(index_bucket)?;
    let verdict = match target {
        Lookup::CouldNotLook => return None,
        Lookup::Absent => Verdict::Delete(DeleteReason::Dangling),
        // Another bucket's row under the target's key: older releases would read it, so it is not absence.
        Lookup::Found(target) if !target.is_of(target_bucket) => Verdict::Keep(KeepReason::Foreign),
        Lookup::Found(target) => match expiry::judge(target, target_bucket, now, policy) {
            Verdict::Delete(_) => Verdict::Delete(DeleteReason::TargetDead),
            Verdict::Keep(KeepReason::Deferred) => Verdict::Keep(KeepReason::Deferred),
            Verdict::Keep(_) => Verdict::Keep(KeepReason::TargetKept),
        },
    };
    Some(expiry::defer(verdict, row.ttl().state(now), policy))
}

/// Which rows that are not dead themselves name a provider row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Referrers {
    None,
    Some,
    /// Not looked for, or could not be looked for.
    Unknown,
}

/// Judges the provider row of a dead token. `None`: it cannot be judged without knowing its referrers.
#[must_use]
pub fn judge_provider(row: &Row, referrers: Referrers, now: EpochSeconds, policy: &Policy) -> Option<Verdict> {
    let ttl = row.ttl().state(now);
    let verdict = match (expiry::judge(row, bucket::provider(), now, policy), referrers) {
        (Verdict::Keep(KeepReason::Referenced), Referrers::Unknown) => return None,
        (Verdict::Keep(KeepReason::Referenced), Referrers::None) => Verdict::Delete(DeleteReason::Unreferenced),
        (verdict, _) => verdict,
    };
    Some(expiry::defer(verdict, ttl, policy))
}
