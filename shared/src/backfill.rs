//! Which TTL a row should have. Pure decisions, by the row's own fields and those of related rows.
//!
//! It is the TTL that ActingWeb 3.15.1 writes: the time of writing, plus the storage TTL, plus an hour for clock skew. It is
//! never earlier than `expires_at` plus that hour: TTL must not remove a live row.

use crate::bucket::{self, Bucket, Rule, TTL_SKEW_SECONDS};
use crate::index;
use crate::integrity::{self, Lookup};
use crate::row::{Field, Fields, Raw, Row, RowKey, TTL_TOO_OLD_SECONDS, Ttl};
use crate::time::EpochSeconds;

/// Why a row is not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum LeaveReason {
    /// Not a row of a known bucket.
    Unknown,
    /// The row has a TTL, which is never changed.
    HasTtl,
    /// The row has a TTL that DynamoDB never acts on; the operator decides.
    MalformedTtl,
    /// Rows of this bucket have no TTL.
    Permanent,
    /// Its fields cannot be read.
    Malformed,
    /// The row does not say when it was written.
    NoTime,
    /// Consumed at an unknown time.
    UsedUnknownWhen,
    /// A dangling index row; the index repair deletes it.
    TargetAbsent,
    /// An index row whose target does not say when it was written.
    TargetUnreadable,
    /// A provider row that no token names; the index repair deletes it.
    Unreferenced,
    /// So old that DynamoDB would never act on the TTL; the cleanup deletes it.
    TooOld,
}

/// What to do about a row's TTL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    Leave(LeaveReason),
    Set(EpochSeconds),
    /// Depends on the target of the index row.
    FromTarget(RowKey),
    /// Depends on the actor's tokens that name this provider row.
    FromReferrers,
}

/// The plan by the row alone.
pub fn plan(row: &Row, now: EpochSeconds) -> (Option<&'static Bucket>, Plan) {
    let Some(bucket) = row.known_bucket() else { return (None, Plan::Leave(LeaveReason::Unknown)) };
    let leave = |reason| Plan::Leave(reason);
    let plan = match (bucket.ttl, row.stored_ttl()) {
        (None, _) => leave(LeaveReason::Permanent),
        (Some(_), Ttl::At(_)) => leave(LeaveReason::HasTtl),
        (Some(_), Ttl::Malformed) => leave(LeaveReason::MalformedTtl),
        (Some(ttl), Ttl::Absent) => match bucket.rule {
            Rule::Never | Rule::Unread => leave(LeaveReason::Permanent),
            Rule::TtlOnly => leave(LeaveReason::NoTime),
            Rule::Provider => Plan::FromReferrers,
            Rule::Pointer { .. } => {
                integrity::target_key(row, bucket).map_or(leave(LeaveReason::Malformed), Plan::FromTarget)
            }
            Rule::SinceCreated { .. }
            | Rule::ExpiresAt
            | Rule::ExpiresAtIfPresent
            | Rule::Refresh
            | Rule::ReplayMarker { .. } => match Fields::read(&row.data) {
                None => leave(LeaveReason::Malformed),
                Some(fields) => by_fields(&fields, bucket, ttl).map_or_else(Plan::Leave, |end| settle(end, now)),
            },
        },
    };
    (Some(bucket), plan)
}

/// The TTL of a row with times of its own, without the skew hour.
fn by_fields(fields: &Fields, bucket: &Bucket, ttl: i64) -> Result<EpochSeconds, LeaveReason> {
    match bucket.rule {
        // Fetching a session rewrites it, with a TTL from that time.
        Rule::SinceCreated { .. } => match (fields.created_at, fields.retrieved_at) {
            (Field::Is(created), Field::Is(retrieved)) => Ok(created.max(retrieved).plus(ttl)),
            (Field::Is(created), Field::Missing) => Ok(created.plus(ttl)),
            (Field::Is(_), Field::Malformed) | (Field::Missing | Field::Malformed, _) => Err(LeaveReason::Malformed),
        },
        Rule::ExpiresAt | Rule::ExpiresAtIfPresent => end_of(fields, bucket, ttl),
        Rule::Refresh => match (fields.used, fields.used_at, fields.expires_at) {
            (Field::Missing | Field::Is(false), ..) => end_of(fields, bucket, ttl),
            // A tripwire until both have passed: releases before 3.8.2 treat reuse as theft until the row expires.
            (Field::Is(true), Field::Is(used_at), Field::Is(expires)) => {
                Ok(used_at.plus(bucket.consumed_ttl.unwrap_or(ttl)).max(expires))
            }
            (Field::Is(true), Field::Missing | Field::Malformed, _) => Err(LeaveReason::UsedUnknownWhen),
            (Field::Malformed, ..) | (_, _, Field::Missing | Field::Malformed) => Err(LeaveReason::Malformed),
        },
        Rule::ReplayMarker { seconds } => match (fields.seen_at, fields.exp) {
            (Field::Is(seen), Field::Is(exp)) if exp.get() == 0 => Ok(seen.plus(ttl)),
            (Field::Is(seen), Field::Is(exp)) => Ok(seen.plus(ttl).max(exp.plus(seconds))),
            (Field::Missing | Field::Malformed, _) | (_, Field::Missing | Field::Malformed) => {
                Err(LeaveReason::Malformed)
            }
        },
        Rule::TtlOnly | Rule::Pointer { .. } | Rule::Provider | Rule::Never | Rule::Unread => Err(LeaveReason::NoTime),
    }
}

/// When the storage TTL of an unused token ends. SPA tokens and tickets are stored until they expire; MCP tokens for the
/// bucket's TTL after their creation, and here at least until they expire.
fn end_of(fields: &Fields, bucket: &Bucket, ttl: i64) -> Result<EpochSeconds, LeaveReason> {
    match (fields.expires_at, fields.created_at, bucket.owner) {
        (Field::Is(expires), _, bucket::Owner::System(_)) => Ok(expires),
        (Field::Is(expires), Field::Is(created), _) => Ok(created.plus(ttl).max(expires)),
        (Field::Is(_), Field::Missing | Field::Malformed, _) => Err(LeaveReason::NoTime),
        (Field::Missing, ..) if bucket.rule == Rule::ExpiresAtIfPresent => Err(LeaveReason::NoTime),
        (Field::Missing | Field::Malformed, ..) => Err(LeaveReason::Malformed),
    }
}

/// Adds the skew hour, and rejects a TTL that DynamoDB would not act on.
fn settle(end: EpochSeconds, now: EpochSeconds) -> Plan {
    let at = end.plus(TTL_SKEW_SECONDS);
    match Ttl::read(&Raw::Number(at.to_string())) {
        Ttl::At(_) if now.since(at) > TTL_TOO_OLD_SECONDS => Plan::Leave(LeaveReason::TooOld),
        Ttl::At(at) => Plan::Set(at),
        // A time in another unit, or not a time.
        Ttl::Absent | Ttl::Malformed => Plan::Leave(LeaveReason::Malformed),
    }
}

/// The TTL of an index row, by its target: both are written together, the index row's TTL two hours later. `None` if the target
/// could not be read.
pub fn plan_by_target(index_bucket: &Bucket, target: &Lookup, now: EpochSeconds) -> Option<Plan> {
    let row = match target {
        Lookup::Unread => return None,
        Lookup::Absent => return Some(Plan::Leave(LeaveReason::TargetAbsent)),
        Lookup::Found(row) => row,
    };
    let end = || {
        let target_bucket = index::target_of(index_bucket).filter(|bucket| row.is_of(bucket))?;
        let (index_ttl, target_ttl) = (index_bucket.ttl?, target_bucket.ttl?);
        let end = by_fields(&Fields::read(&row.data)?, target_bucket, target_ttl).ok()?;
        Some(end.plus(index_ttl - target_ttl))
    };
    Some(end().map_or(Plan::Leave(LeaveReason::TargetUnreadable), |end| settle(end, now)))
}

/// The TTL of a provider row, by the earliest token that names it: the provider row is written just before that token.
pub fn plan_by_referrers(written: Option<EpochSeconds>, now: EpochSeconds) -> Plan {
    match (written, bucket::provider().ttl) {
        (Some(written), Some(ttl)) => settle(written.plus(ttl), now),
        (None, _) | (_, None) => Plan::Leave(LeaveReason::Unreferenced),
    }
}

/// When a token row was written, if it names the provider row `name`.
pub fn referrer_written_at(row: &Row, name: &str) -> Option<EpochSeconds> {
    row.known_bucket().filter(|bucket| bucket::can_refer(bucket))?;
    let fields = Fields::read(&row.data).filter(|fields| fields.google_token_key.as_deref() == Some(name))?;
    fields.created_at.value()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Plan, plan, plan_by_target};
    use crate::bucket;
    use crate::expiry::{Policy, Verdict, judge};
    use crate::integrity::Lookup;
    use crate::pyjson::dumps;
    use crate::row::{Raw, Row, RowKey};
    use crate::time::EpochSeconds;

    const NOW: i64 = 1_800_000_000;
    const DAY: i64 = 86_400;

    fn consumed(owner: &str, bucket: &str, used_at: i64, expires_at: i64) -> Row {
        let data = json!({"created_at": used_at - DAY, "expires_at": expires_at, "used": true, "used_at": used_at});
        Row {
            key: RowKey::new(owner, format!("{bucket}:t")),
            bucket: Raw::Text(bucket.to_owned()),
            data: Raw::Text(dumps(&data)),
            ttl: Raw::Absent,
            retired_from: Raw::Absent,
            bytes: 1,
        }
    }

    /// 3.7.4 to 3.8.1 treat reuse as theft as long as the row exists.
    #[test]
    fn a_tripwire_is_never_ended_by_the_ttl_that_it_gets() {
        for (what, used_at, expires_at, end) in [
            ("consumed long ago, not expired", NOW - 9 * DAY, NOW + 5 * DAY, NOW + 5 * DAY),
            ("consumed just now, expiring soon", NOW - 9, NOW + DAY, NOW - 9 + 2 * DAY),
            ("both past", NOW - 9 * DAY, NOW - 8 * DAY, NOW - 7 * DAY),
        ] {
            for (owner, name, index) in [
                ("_actingweb_oauth2", "spa_refresh_tokens", None),
                ("actor", "mcp_refresh_tokens", Some("_refresh_token_index")),
            ] {
                let row = consumed(owner, name, used_at, expires_at);
                let (bucket, planned) = plan(&row, EpochSeconds::new(NOW));
                let at = EpochSeconds::new(end + 3_600);
                assert_eq!(planned, Plan::Set(at), "{what} {name}");
                // The row with that TTL has the verdict of the row without one.
                let given = Row { ttl: Raw::Number(at.to_string()), ..row.clone() };
                let dead = |row: &Row| {
                    let verdict = judge(row, bucket.unwrap(), EpochSeconds::new(NOW), &Policy::default());
                    matches!(verdict, Verdict::Delete(_))
                };
                assert_eq!(dead(&given), dead(&row), "{what} {name}");
                let Some(index) = index.and_then(|index| bucket::find("_actingweb_oauth2", index)) else { continue };
                let planned = plan_by_target(index, &Lookup::Found(row), EpochSeconds::new(NOW));
                assert_eq!(planned, Some(Plan::Set(at.plus(7_200))), "{what} {name}");
            }
        }
    }
}
