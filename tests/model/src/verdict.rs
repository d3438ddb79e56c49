//! Every decision once more, with its reason: from what a case was made of, not from its text, and in exact arithmetic.
//!
//! The sentences are those of docs/rows.md. Nothing here calls a decision of the crate.

/// A time in a row, as the case was made.
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
pub struct Told {
    pub created_at: Time,
    pub expires_at: Time,
    pub exp: Time,
    pub used: Used,
    pub used_at: Time,
    pub seen_at: Time,
    pub retrieved_at: Time,
}

/// What an operator has set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wishes {
    pub window: i128,
    pub grace: i128,
    pub legacy: bool,
    /// For how many seconds a dead row is retired; `None` deletes it.
    pub retire: Option<i128>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Says {
    Keep(&'static str),
    Delete(&'static str),
}

use Says::{Delete, Keep};
use Time::At;

const SLACK: i128 = 300;
const FIVE_YEARS: i128 = 5 * 365 * 86_400;
const HOUR: i128 = 3_600;

/// A TTL that DynamoDB acts on, and when.
#[must_use]
pub fn usable(ttl: Time, now: i128) -> Option<i128> {
    match ttl {
        At(at) if at > 0 && at < 100_000_000_000 && now - at <= FIVE_YEARS => Some(at),
        _ => None,
    }
}

/// What a bucket's rows are judged by.
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

/// Until which second a release of ActingWeb finds the row alive by its own rule, the longest of all releases. `None` when the
/// row does not tell. A consumed row is alive as a tripwire for as long as its window lasts and until it expires: releases before
/// 3.8.2 take a reuse for theft until then.
#[must_use]
pub fn alive_until(kind: Kind, told: Option<&Told>) -> Option<i128> {
    let told = told?;
    match (kind, told.used, told.created_at, told.expires_at, told.exp, told.used_at) {
        (Kind::Session, _, At(created), ..) => Some(created + 600),
        (Kind::Token | Kind::Ticket, _, _, At(expires), ..) => Some(expires),
        (Kind::Refresh, Used::No | Used::Missing, _, At(expires), ..) => Some(expires),
        (Kind::Refresh, Used::Yes, _, At(expires), _, At(used)) => Some(expires.max(used + 172_800)),
        // Forgotten once `exp + 60 <= now`.
        (Kind::Marker, _, _, _, At(exp), _) if exp != 0 => Some(exp + 59),
        _ => None,
    }
}

/// Whether a row is left to its TTL where dead rows are retired: DynamoDB removes it before a retirement would end.
#[must_use]
pub fn left_to_ttl(ttl: Time, now: i128, wishes: &Wishes) -> bool {
    wishes.retire.is_some_and(|seconds| usable(ttl, now).is_some_and(|at| at <= now + seconds))
}

/// A row by its own fields and its TTL.
#[must_use]
pub fn judged(kind: Kind, told: Option<&Told>, ttl: Time, now: i128, wishes: &Wishes) -> Says {
    let past = usable(ttl, now).is_some_and(|at| at < now);
    let ttl_alone = |otherwise| if past { Delete("ttl_past") } else { Keep(otherwise) };
    match kind {
        Kind::Unread => return if wishes.legacy { Delete("legacy") } else { Keep("legacy") },
        Kind::Index => return Keep("target_kept"),
        Kind::Client => return Keep("permanent"),
        Kind::Provider => return ttl_alone("referenced"),
        Kind::TtlOnly => return no_time(ttl, now),
        Kind::Session | Kind::Token | Kind::Refresh | Kind::Marker | Kind::Ticket => {}
    }
    let Some(told) = told else { return ttl_alone("malformed") };
    if kind == Kind::Marker && told.exp == At(0) || kind == Kind::Ticket && told.expires_at == Time::Missing {
        return no_time(ttl, now);
    }
    let Some(until) = alive_until(kind, Some(told)) else { return ttl_alone("malformed") };
    let consumed = kind == Kind::Refresh && told.used == Used::Yes;
    if consumed {
        let At(used_at) = told.used_at else { return ttl_alone("malformed") };
        let in_window = now - SLACK <= used_at + wishes.window;
        return if now - SLACK > until && !in_window {
            Delete("consumed")
        } else if wishes.window > 172_800 && in_window {
            // A longer window than the library's outlasts the TTL, which knows the library's only.
            Keep("tripwire")
        } else {
            ttl_alone("tripwire")
        };
    }
    if now - SLACK > until {
        return Delete("expired");
    }
    let spent = matches!(kind, Kind::Token | Kind::Ticket) && matches!(told.used, Used::Yes | Used::Malformed);
    match past {
        true if spent => Delete("ttl_past"),
        true => Keep("contradiction"),
        false => Keep("alive"),
    }
}

/// A row that carries no time of its own.
fn no_time(ttl: Time, now: i128) -> Says {
    match (usable(ttl, now), ttl) {
        (Some(at), _) if at < now => Delete("ttl_past"),
        (Some(_), _) => Keep("alive"),
        (None, Time::Missing) => Keep("without_ttl"),
        (None, _) => Keep("malformed"),
    }
}

/// What the key of an index row's target holds.
#[derive(Clone, Copy, Debug)]
pub enum Target<'a> {
    Absent,
    Foreign,
    Row(Kind, Option<&'a Told>, Time),
}

/// An index row that was looked up.
#[must_use]
pub fn compared(target: Target<'_>, now: i128, wishes: &Wishes) -> Says {
    match target {
        Target::Absent => Delete("dangling"),
        Target::Foreign => Keep("target_foreign"),
        Target::Row(kind, told, of_target) => match judged(kind, told, of_target, now, wishes) {
            Delete(_) => Delete("target_dead"),
            Keep(_) => Keep("target_kept"),
        },
    }
}

/// Whether the target of an index row can be dead by now: two hours and the hour for skew before its TTL; for a client, whose
/// rows have no storage TTL, the hour.
#[must_use]
pub fn due(of_clients: bool, ttl: Time, now: i128) -> bool {
    match usable(ttl, now) {
        Some(at) if at >= now => now > at - if of_clients { HOUR } else { 3 * HOUR } + SLACK,
        _ => true,
    }
}

/// A token that no index row leads to.
#[must_use]
pub fn unindexed(kind: Kind, told: Option<&Told>, ttl: Time, again: bool, now: i128, wishes: &Wishes) -> Says {
    let own = judged(kind, told, ttl, now, wishes);
    if matches!(own, Delete(_) | Keep("permanent")) {
        return own;
    }
    // The tripwire, and what may be one, is never ended for being unindexed.
    if kind == Kind::Refresh && told.is_some_and(|told| matches!(told.used, Used::Yes | Used::Malformed)) {
        return own;
    }
    match told.map_or(Time::Missing, |told| told.created_at) {
        At(created) if now - created > wishes.grace => Delete("unindexed"),
        At(_) => Keep("young"),
        Time::Missing | Time::Malformed if again => Delete("unindexed"),
        Time::Missing | Time::Malformed => Keep("seen_once"),
    }
}

/// A provider row is written with a storage TTL of an hour, and the hour for skew.
fn provider_age(ttl: Time, now: i128) -> Option<i128> {
    usable(ttl, now).filter(|at| *at >= now).map(|at| now - (at - 2 * HOUR))
}

/// A provider row that was met by itself. `None`: it has to be known who names it.
#[must_use]
pub fn lone_provider(ttl: Time, named: Option<bool>, again: bool, now: i128, wishes: &Wishes) -> Option<Says> {
    let own = judged(Kind::Provider, None, ttl, now, wishes);
    if own != Keep("referenced") {
        return Some(own);
    }
    match named {
        None => return None,
        Some(true) => return Some(own),
        Some(false) => {}
    }
    Some(match provider_age(ttl, now) {
        Some(age) if age > wishes.grace => Delete("unreferenced"),
        Some(_) => Keep("young"),
        None if again => Delete("unreferenced"),
        None => Keep("seen_once"),
    })
}

/// The cascade's provider row, its token being absent: TTL is not asked, and age only where it is known.
#[must_use]
pub fn cascaded_provider(ttl: Time, named: Option<bool>, now: i128, wishes: &Wishes) -> Option<Says> {
    let young = provider_age(ttl, now).is_some_and(|age| age <= wishes.grace);
    match named {
        Some(true) => Some(Keep("referenced")),
        _ if young => Some(Keep("young")),
        Some(false) => Some(Delete("unreferenced")),
        None => None,
    }
}

/// The TTL that a row without one gets: when the library would have put it, and never before an hour after it dies.
///
/// # Errors
/// Why it gets none.
pub fn filled(kind: Kind, of_actor: bool, told: Option<&Told>, storage: i128, now: i128) -> Result<i128, &'static str> {
    let end = match kind {
        Kind::Unread | Kind::Client => Err("permanent"),
        Kind::TtlOnly => Err("no_time"),
        _ => told.ok_or("malformed").and_then(|told| end_of(kind, of_actor, told, storage)),
    }?;
    match end + HOUR {
        at if now - at > FIVE_YEARS && at > 0 => Err("too_old"),
        at => usable(At(at), at).ok_or("malformed"),
    }
}

/// When the storage TTL of a row ends that tells its times.
///
/// # Errors
/// Why that is not known.
pub fn end_of(kind: Kind, of_actor: bool, told: &Told, storage: i128) -> Result<i128, &'static str> {
    let unused = match (told.expires_at, told.created_at) {
        (At(expires), _) if !of_actor => Ok(expires),
        (At(expires), At(created)) => Ok(expires.max(created + storage)),
        (At(_), _) => Err("no_time"),
        (Time::Missing, _) if kind == Kind::Ticket => Err("no_time"),
        _ => Err("malformed"),
    };
    match kind {
        Kind::Session => match (told.created_at, told.retrieved_at) {
            (At(created), At(retrieved)) => Ok(created.max(retrieved) + storage),
            (At(created), Time::Missing) => Ok(created + storage),
            _ => Err("malformed"),
        },
        Kind::Refresh => match (told.used, told.used_at, told.expires_at) {
            (Used::No | Used::Missing, ..) => unused,
            (Used::Yes, At(used), At(expires)) => Ok(expires.max(used + 172_800)),
            (Used::Yes, Time::Missing | Time::Malformed, _) => Err("used_unknown_when"),
            _ => Err("malformed"),
        },
        Kind::Marker => match (told.seen_at, told.exp) {
            (At(seen), At(0)) => Ok(seen + storage),
            (At(seen), At(exp)) => Ok((seen + storage).max(exp + 60)),
            _ => Err("malformed"),
        },
        _ => unused,
    }
}
