//! Whether a row is dead. Pure decisions: no I/O, no clock.

use crate::bucket::{Bucket, CLOCK_SLACK_SECONDS, GRACE_SECONDS, REUSE_WINDOW_SECONDS, Rule};
use crate::row::{Field, Fields, Row, TtlState};
use crate::time::EpochSeconds;

/// The operator's choices. None of them makes a row dead earlier than docs/rows.md says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// How long a consumed refresh row is kept as a tripwire. Never less than the library's own window.
    pub reuse_window: i64,
    /// Minimum age of an unreachable row before it is deleted: until then it may be half-written.
    pub grace: i64,
    /// Delete rows that only ActingWeb 3.2.1 read.
    pub remove_legacy: bool,
    /// Retire dead rows for this number of seconds instead of deleting them. Only where the table's TTL is on.
    pub retire: Option<i64>,
}

impl Default for Policy {
    fn default() -> Self {
        Self { reuse_window: REUSE_WINDOW_SECONDS, grace: GRACE_SECONDS, remove_legacy: false, retire: None }
    }
}

impl Policy {
    /// The same rules, with dead rows deleted instead of retired: the verdicts are the same.
    #[must_use]
    pub fn deleting(&self) -> Self {
        Self { retire: None, ..*self }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Keep(KeepReason),
    Delete(DeleteReason),
}

/// Why a row is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, strum::Display, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum KeepReason {
    /// Its own fields, with the slack for clocks, or its TTL say that it is alive.
    Alive,
    /// A consumed refresh row inside its reuse window.
    Tripwire,
    /// TTL past, but the row's own fields say that it is alive: a deployment with longer lifetimes.
    Contradiction,
    /// Its fields or its TTL cannot be read, and nothing else proves that it is dead.
    Malformed,
    /// Judged by TTL alone, and it has none.
    WithoutTtl,
    /// A permanent record.
    Permanent,
    /// A row of another bucket with the same key prefix, according to its stored `bucket`.
    Foreign,
    /// An index row whose own TTL says that its target is alive.
    NotDue,
    /// An index row whose target exists and is not dead.
    TargetKept,
    /// An index row that points at a row of another bucket: its target is neither present nor absent.
    TargetForeign,
    /// An index row with the name of a removed token that points at another actor.
    Elsewhere,
    /// A provider row that is named by a row that is not dead.
    Referenced,
    /// DynamoDB's TTL removes it within `RETIRE_DAYS`, so nothing else has to be read or written.
    LeftToTtl,
    /// Unreachable, but young enough to be half-written.
    Young,
    /// Unreachable and of unknown age: deleted if it is still unreachable after the grace period.
    SeenOnce,
    /// Left to the daily cleanup.
    LeftToDaily,
    /// Only read by ActingWeb 3.2.1, and kept unless the operator requests its removal.
    Legacy,
}

/// Why a row is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, strum::Display, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum DeleteReason {
    /// Dead by its own fields.
    Expired,
    /// Its `ttl_timestamp` is past, and its own fields do not say that it is alive.
    TtlPast,
    /// A consumed refresh row past its reuse window and its expiry.
    Consumed,
    /// An index row whose target is absent on a consistent read.
    Dangling,
    /// An index row whose target is dead and is deleted with it.
    TargetDead,
    /// A provider row that no live row of its actor names any more.
    Unreferenced,
    /// A token that no index row leads to: unusable, and possibly revoked.
    Unindexed,
    /// A client's old-name index row that a new-name one replaces, on request.
    Replaced,
    /// Only read by ActingWeb 3.2.1, and the operator requested its removal.
    Legacy,
}

impl KeepReason {
    /// The name in reports.
    pub const fn name(self) -> &'static str {
        self.into_str()
    }
}

impl DeleteReason {
    /// The name in reports.
    pub const fn name(self) -> &'static str {
        self.into_str()
    }
}

/// What the row's own fields say, regardless of its TTL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Own {
    Alive,
    /// Not expired, but used: a past TTL makes it dead.
    Spent,
    /// A consumed refresh row, kept to detect its reuse.
    Tripwire,
    /// The same, in a window that is longer than the library's. Its TTL is ignored: it covers only the library's window.
    LongTripwire,
    Dead(DeleteReason),
    /// Rows of the bucket have no time of their own.
    Silent,
    /// The row should have a time, which cannot be read.
    Unreadable,
}

/// Judges a row by its own fields and its TTL. Rows that depend on other rows are kept here: `integrity` judges them.
pub fn judge(row: &Row, bucket: &Bucket, now: EpochSeconds, policy: &Policy) -> Verdict {
    if !row.is_of(bucket) {
        return Verdict::Keep(KeepReason::Foreign);
    }
    let ttl = row.ttl().state(now);
    match bucket.rule {
        Rule::Never => Verdict::Keep(KeepReason::Permanent),
        Rule::Unread if policy.remove_legacy => Verdict::Delete(DeleteReason::Legacy),
        Rule::Unread => Verdict::Keep(KeepReason::Legacy),
        Rule::Pointer { .. } => Verdict::Keep(KeepReason::TargetKept),
        Rule::Provider => match ttl {
            TtlState::Past => Verdict::Delete(DeleteReason::TtlPast),
            TtlState::Future | TtlState::Absent | TtlState::Malformed => Verdict::Keep(KeepReason::Referenced),
        },
        Rule::SinceCreated { .. }
        | Rule::ExpiresAt
        | Rule::ExpiresAtIfPresent
        | Rule::Refresh
        | Rule::ReplayMarker { .. }
        | Rule::TtlOnly => weigh(own(row, bucket.rule, now, policy), ttl),
    }
}

/// Combines the row's own fields and its TTL.
fn weigh(own: Own, ttl: TtlState) -> Verdict {
    use {DeleteReason as D, KeepReason as K, Verdict::Delete, Verdict::Keep};
    match (own, ttl) {
        (Own::Dead(reason), _) => Delete(reason),
        (Own::Alive, TtlState::Past) => Keep(K::Contradiction),
        (Own::Alive, TtlState::Future | TtlState::Absent | TtlState::Malformed) => Keep(K::Alive),
        (Own::Spent | Own::Tripwire | Own::Silent | Own::Unreadable, TtlState::Past) => Delete(D::TtlPast),
        (Own::Spent, TtlState::Future | TtlState::Absent | TtlState::Malformed) => Keep(K::Alive),
        (Own::Tripwire, TtlState::Future | TtlState::Absent | TtlState::Malformed) => Keep(K::Tripwire),
        (Own::LongTripwire, _) => Keep(K::Tripwire),
        (Own::Silent, TtlState::Future) => Keep(K::Alive),
        (Own::Silent, TtlState::Absent) => Keep(K::WithoutTtl),
        (Own::Silent, TtlState::Malformed) => Keep(K::Malformed),
        (Own::Unreadable, TtlState::Future | TtlState::Absent | TtlState::Malformed) => Keep(K::Malformed),
    }
}

fn own(row: &Row, rule: Rule, now: EpochSeconds, policy: &Policy) -> Own {
    if rule == Rule::TtlOnly {
        return Own::Silent;
    }
    let Some(fields) = Fields::read(&row.data) else { return Own::Unreadable };
    // The application uses its own clock, which may be behind: every comparison below is made as of that time.
    let now = now.plus(-CLOCK_SLACK_SECONDS);
    match rule {
        Rule::SinceCreated { seconds } => match fields.created_at {
            Field::Is(created) if now.since(created) > seconds => Own::Dead(DeleteReason::Expired),
            Field::Is(_) => Own::Alive,
            Field::Missing | Field::Malformed => Own::Unreadable,
        },
        Rule::ExpiresAt => expires_at(&fields, now),
        Rule::ExpiresAtIfPresent if fields.expires_at == Field::Missing => Own::Silent,
        Rule::ExpiresAtIfPresent => expires_at(&fields, now),
        Rule::Refresh => refresh(&fields, now, policy),
        Rule::ReplayMarker { seconds } => match fields.exp {
            Field::Is(exp) if exp.get() == 0 => Own::Silent,
            Field::Is(exp) if exp.plus(seconds) <= now => Own::Dead(DeleteReason::Expired),
            Field::Is(_) => Own::Alive,
            Field::Missing | Field::Malformed => Own::Unreadable,
        },
        Rule::TtlOnly | Rule::Pointer { .. } | Rule::Provider | Rule::Never | Rule::Unread => Own::Silent,
    }
}

/// The first second in which [`judge`] finds the row dead if it is not written again; `None` if it never does.
///
/// A TTL more than five years ago counts as malformed: then the row is kept, although it was dead from that second.
pub fn dead_from(row: &Row, bucket: &Bucket, policy: &Policy) -> Option<EpochSeconds> {
    if !row.is_of(bucket) || matches!(bucket.rule, Rule::Never | Rule::Unread | Rule::Pointer { .. }) {
        return None;
    }
    let by_ttl = row.ttl().at().map(|at| at.plus(1));
    let Some(fields) = Fields::read(&row.data) else { return by_ttl };
    // A row is alive in its last second, and deletable after the slack.
    let after = |last: EpochSeconds| last.plus(1 + CLOCK_SLACK_SECONDS);
    let sooner = |own: EpochSeconds, ttl: Option<EpochSeconds>| Some(ttl.map_or(own, |ttl| ttl.min(own)));
    let by_expiry = match (fields.expires_at, fields.used) {
        (Field::Is(at), Field::Is(false) | Field::Missing) => Some(after(at)),
        (Field::Is(at), Field::Is(true) | Field::Malformed) => sooner(after(at), by_ttl),
        (Field::Missing | Field::Malformed, _) => by_ttl,
    };
    match bucket.rule {
        Rule::SinceCreated { seconds } => {
            fields.created_at.value().map(|created| after(created.plus(seconds))).or(by_ttl)
        }
        Rule::ExpiresAt | Rule::ExpiresAtIfPresent => by_expiry,
        Rule::Refresh => match (fields.used, fields.used_at, fields.expires_at) {
            (Field::Missing | Field::Is(false), _, _) => by_expiry,
            (Field::Is(true), Field::Is(used_at), Field::Is(expires_at)) => {
                let window = used_at.plus(policy.reuse_window);
                // A longer window takes precedence over the TTL.
                let is_longer = policy.reuse_window > REUSE_WINDOW_SECONDS;
                let by_ttl = by_ttl.map(|at| if is_longer { at.max(after(window)) } else { at });
                sooner(after(window.max(expires_at)), by_ttl)
            }
            (Field::Is(true) | Field::Malformed, _, _) => by_ttl,
        },
        Rule::ReplayMarker { seconds } => match fields.exp {
            Field::Is(exp) if exp.get() != 0 => Some(exp.plus(seconds + CLOCK_SLACK_SECONDS)),
            Field::Is(_) | Field::Missing | Field::Malformed => by_ttl,
        },
        Rule::Provider | Rule::TtlOnly | Rule::Never | Rule::Unread | Rule::Pointer { .. } => by_ttl,
    }
}

fn expires_at(fields: &Fields, now: EpochSeconds) -> Own {
    match (fields.expires_at, fields.used) {
        (Field::Is(at), _) if now > at => Own::Dead(DeleteReason::Expired),
        (Field::Is(_), Field::Is(false) | Field::Missing) => Own::Alive,
        (Field::Is(_), Field::Is(true) | Field::Malformed) => Own::Spent,
        (Field::Missing | Field::Malformed, _) => Own::Unreadable,
    }
}

/// A consumed row is a tripwire: if it is presented again within the window, its whole chain is revoked.
fn refresh(fields: &Fields, now: EpochSeconds, policy: &Policy) -> Own {
    match (fields.used, fields.used_at, fields.expires_at) {
        (Field::Missing | Field::Is(false), _, _) => expires_at(fields, now),
        (Field::Is(true), Field::Is(used_at), Field::Is(expires_at)) => {
            if now > used_at.plus(policy.reuse_window) && now > expires_at {
                Own::Dead(DeleteReason::Consumed)
            } else if policy.reuse_window > REUSE_WINDOW_SECONDS && now <= used_at.plus(policy.reuse_window) {
                Own::LongTripwire
            } else {
                Own::Tripwire
            }
        }
        (Field::Is(true) | Field::Malformed, _, _) => Own::Unreadable,
    }
}
