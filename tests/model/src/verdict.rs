//! Every decision of `shared` a second time, with its reason: from the parsed values of a case, in exact arithmetic.
//!
//! The rules are those of docs/rows.md. Nothing here calls a decision of `shared`.

/// A time in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    Missing,
    Malformed,
    At(i128),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Used {
    Missing,
    Malformed,
    No,
    Yes,
}

/// The fields of an object in `data`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowFields {
    pub created_at: Time,
    pub expires_at: Time,
    pub exp: Time,
    pub used: Used,
    pub used_at: Time,
    pub seen_at: Time,
    pub retrieved_at: Time,
}

/// The operator's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    pub window: i128,
    pub grace: i128,
    pub legacy: bool,
    /// For how many seconds a dead row is retired; `None` deletes it.
    pub retire: Option<i128>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Keep(&'static str),
    Delete(&'static str),
}

use Outcome::{Delete, Keep};
use Time::At;

const SLACK: i128 = 300;
const FIVE_YEARS: i128 = 5 * 365 * 86_400;
const HOUR: i128 = 3_600;

/// When DynamoDB acts on the TTL, if ever.
#[must_use]
pub fn usable(ttl: Time, now: i128) -> Option<i128> {
    match ttl {
        At(at) if at > 0 && at < 100_000_000_000 && now - at <= FIVE_YEARS => Some(at),
        _ => None,
    }
}

/// Which rule a bucket's rows follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Session,
    Token,
    Refresh,
    Marker,
    Ticket,
    TtlOnly,
    Index,
    Provider,
    Client,
    Unread,
}

/// The tables of docs/rows.md.
#[must_use]
pub fn kind(owner: &str, bucket: &str) -> Kind {
    match (owner, bucket) {
        ("_mcp_system" | "_mcp_global", _) => Kind::Unread,
        (_, "oauth_sessions" | "_oauth_sessions") => Kind::Session,
        (_, "spa_access_tokens" | "mcp_tokens" | "mcp_auth_codes") => Kind::Token,
        (_, "spa_refresh_tokens" | "mcp_refresh_tokens") => Kind::Refresh,
        (_, "_id_token_replay") => Kind::Marker,
        (_, "_apple_exchange_tickets") => Kind::Ticket,
        (_, "_oauth_state_nonces" | "_email_verify_tokens" | "_deleted_actors") => Kind::TtlOnly,
        (_, "mcp_google_tokens") => Kind::Provider,
        (_, "mcp_clients") => Kind::Client,
        _ => Kind::Index,
    }
}

/// The last second in which any release of ActingWeb finds the row alive by its own rule; `None` if the row does not say. A
/// consumed row is alive as a tripwire until its window ends and until it expires: releases before 3.8.2 take a reuse for theft
/// until then.
#[must_use]
pub fn alive_until(kind: Kind, fields: Option<&RowFields>) -> Option<i128> {
    let fields = fields?;
    match (kind, fields.used, fields.created_at, fields.expires_at, fields.exp, fields.used_at) {
        (Kind::Session, _, At(created), ..) => Some(created + 600),
        (Kind::Token | Kind::Ticket, _, _, At(expires), ..) => Some(expires),
        (Kind::Refresh, Used::No | Used::Missing, _, At(expires), ..) => Some(expires),
        (Kind::Refresh, Used::Yes, _, At(expires), _, At(used)) => Some(expires.max(used + 172_800)),
        // Forgotten once `exp + 60 <= now`.
        (Kind::Marker, _, _, _, At(exp), _) if exp != 0 => Some(exp + 59),
        _ => None,
    }
}

/// Whether a run that retires leaves a row to its TTL: DynamoDB removes it before a retirement would end.
#[must_use]
pub fn left_to_ttl(ttl: Time, now: i128, settings: &Settings) -> bool {
    settings.retire.is_some_and(|seconds| usable(ttl, now).is_some_and(|at| at <= now + seconds))
}

/// The verdict on a row by its own fields and its TTL.
#[must_use]
pub fn judged(kind: Kind, fields: Option<&RowFields>, ttl: Time, now: i128, settings: &Settings) -> Outcome {
    let past = usable(ttl, now).is_some_and(|at| at < now);
    let ttl_alone = |otherwise| if past { Delete("ttl_past") } else { Keep(otherwise) };
    match kind {
        Kind::Unread => return if settings.legacy { Delete("legacy") } else { Keep("legacy") },
        Kind::Index => return Keep("target_kept"),
        Kind::Client => return Keep("permanent"),
        Kind::Provider => return ttl_alone("referenced"),
        Kind::TtlOnly => return no_time(ttl, now),
        Kind::Session | Kind::Token | Kind::Refresh | Kind::Marker | Kind::Ticket => {}
    }
    let Some(fields) = fields else { return ttl_alone("malformed") };
    if kind == Kind::Marker && fields.exp == At(0) || kind == Kind::Ticket && fields.expires_at == Time::Missing {
        return no_time(ttl, now);
    }
    let Some(until) = alive_until(kind, Some(fields)) else { return ttl_alone("malformed") };
    let consumed = kind == Kind::Refresh && fields.used == Used::Yes;
    if consumed {
        let At(used_at) = fields.used_at else { return ttl_alone("malformed") };
        let in_window = now - SLACK <= used_at + settings.window;
        return if now - SLACK > until && !in_window {
            Delete("consumed")
        } else if settings.window > 172_800 && in_window {
            // A longer window than the library's outlasts the TTL, which is based on the library's.
            Keep("tripwire")
        } else {
            ttl_alone("tripwire")
        };
    }
    if now - SLACK > until {
        return Delete("expired");
    }
    let spent = matches!(kind, Kind::Token | Kind::Ticket) && matches!(fields.used, Used::Yes | Used::Malformed);
    match past {
        true if spent => Delete("ttl_past"),
        true => Keep("contradiction"),
        false => Keep("alive"),
    }
}

/// The verdict on a row without times of its own.
fn no_time(ttl: Time, now: i128) -> Outcome {
    match (usable(ttl, now), ttl) {
        (Some(at), _) if at < now => Delete("ttl_past"),
        (Some(_), _) => Keep("alive"),
        (None, Time::Missing) => Keep("without_ttl"),
        (None, _) => Keep("malformed"),
    }
}

/// The row under the key of an index row's target.
#[derive(Clone, Copy, Debug)]
pub enum Target<'a> {
    Absent,
    Foreign,
    Row(Kind, Option<&'a RowFields>, Time),
}

/// The verdict on an index row whose target was looked up.
#[must_use]
pub fn compared(target: Target<'_>, now: i128, settings: &Settings) -> Outcome {
    match target {
        Target::Absent => Delete("dangling"),
        Target::Foreign => Keep("target_foreign"),
        Target::Row(kind, fields, of_target) => match judged(kind, fields, of_target, now, settings) {
            Delete(_) => Delete("target_dead"),
            Keep(_) => Keep("target_kept"),
        },
    }
}

/// Whether the target of an index row can be dead by now: from two hours plus the hour for skew before its TTL; for a client, whose
/// rows have no storage TTL, from that hour.
#[must_use]
pub fn due(of_clients: bool, ttl: Time, now: i128) -> bool {
    match usable(ttl, now) {
        Some(at) if at >= now => now > at - if of_clients { HOUR } else { 3 * HOUR } + SLACK,
        _ => true,
    }
}

/// The verdict on a token without an index row.
#[must_use]
pub fn unindexed(
    kind: Kind,
    fields: Option<&RowFields>,
    ttl: Time,
    again: bool,
    now: i128,
    settings: &Settings,
) -> Outcome {
    let own = judged(kind, fields, ttl, now, settings);
    if matches!(own, Delete(_) | Keep("permanent")) {
        return own;
    }
    // A tripwire, or a row that may be one, is never deleted as unindexed.
    if kind == Kind::Refresh && fields.is_some_and(|fields| matches!(fields.used, Used::Yes | Used::Malformed)) {
        return own;
    }
    match fields.map_or(Time::Missing, |fields| fields.created_at) {
        At(created) if now - SLACK - created > settings.grace => Delete("unindexed"),
        At(_) => Keep("young"),
        Time::Missing | Time::Malformed if again => Delete("unindexed"),
        Time::Missing | Time::Malformed => Keep("seen_once"),
    }
}

/// A provider row is written with a storage TTL of an hour, and the hour for skew.
fn provider_age(ttl: Time, now: i128) -> Option<i128> {
    usable(ttl, now).filter(|at| *at >= now).map(|at| now - (at - 2 * HOUR))
}

/// The verdict on a provider row without its token; `None` if it depends on which rows name it.
#[must_use]
pub fn lone_provider(ttl: Time, named: Option<bool>, again: bool, now: i128, settings: &Settings) -> Option<Outcome> {
    let own = judged(Kind::Provider, None, ttl, now, settings);
    if own != Keep("referenced") {
        return Some(own);
    }
    match named {
        None => return None,
        Some(true) => return Some(own),
        Some(false) => {}
    }
    Some(match provider_age(ttl, now) {
        Some(age) if age - SLACK > settings.grace => Delete("unreferenced"),
        Some(_) => Keep("young"),
        None if again => Delete("unreferenced"),
        None => Keep("seen_once"),
    })
}

/// The cascade's verdict on a provider row whose token is absent: TTL does not count, and age only if it is known.
#[must_use]
pub fn cascaded_provider(ttl: Time, named: Option<bool>, now: i128, settings: &Settings) -> Option<Outcome> {
    let young = provider_age(ttl, now).is_some_and(|age| age - SLACK <= settings.grace);
    match named {
        Some(true) => Some(Keep("referenced")),
        _ if young => Some(Keep("young")),
        Some(false) => Some(Delete("unreferenced")),
        None => None,
    }
}

/// The TTL that the backfill gives to a row: the library's, at least an hour after the row dies.
///
/// # Errors
/// The reason why it gets none.
pub fn filled(
    kind: Kind,
    of_actor: bool,
    fields: Option<&RowFields>,
    storage: i128,
    now: i128,
) -> Result<i128, &'static str> {
    let end = match kind {
        Kind::Unread | Kind::Client => Err("permanent"),
        Kind::TtlOnly => Err("no_time"),
        _ => fields.ok_or("malformed").and_then(|fields| end_of(kind, of_actor, fields, storage)),
    }?;
    match end + HOUR {
        at if now - at > FIVE_YEARS && at > 0 => Err("too_old"),
        at => usable(At(at), at).ok_or("malformed"),
    }
}

/// When the storage TTL of a row ends, by its own times.
///
/// # Errors
/// The reason why that is unknown.
pub fn end_of(kind: Kind, of_actor: bool, fields: &RowFields, storage: i128) -> Result<i128, &'static str> {
    let unused = match (fields.expires_at, fields.created_at) {
        (At(expires), _) if !of_actor => Ok(expires),
        (At(expires), At(created)) => Ok(expires.max(created + storage)),
        (At(_), _) => Err("no_time"),
        (Time::Missing, _) if kind == Kind::Ticket => Err("no_time"),
        _ => Err("malformed"),
    };
    match kind {
        Kind::Session => match (fields.created_at, fields.retrieved_at) {
            (At(created), At(retrieved)) => Ok(created.max(retrieved) + storage),
            (At(created), Time::Missing) => Ok(created + storage),
            _ => Err("malformed"),
        },
        Kind::Refresh => match (fields.used, fields.used_at, fields.expires_at) {
            (Used::No | Used::Missing, ..) => unused,
            (Used::Yes, At(used), At(expires)) => Ok(expires.max(used + 172_800)),
            (Used::Yes, Time::Missing | Time::Malformed, _) => Err("used_unknown_when"),
            _ => Err("malformed"),
        },
        Kind::Marker => match (fields.seen_at, fields.exp) {
            (At(seen), At(0)) => Ok(seen + storage),
            (At(seen), At(exp)) => Ok((seen + storage).max(exp + 60)),
            _ => Err("malformed"),
        },
        _ => unused,
    }
}
