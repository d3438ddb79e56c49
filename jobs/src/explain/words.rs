//! The sentences: the purpose of a bucket, its rule, and the reason of a verdict.

use super::{Action, NotReached};
use shared::bucket::{
    self, BUCKETS, Bucket, CLOCK_SLACK_SECONDS, Generation, JANITOR_OWNER, OAUTH_OWNER, Owner, REUSE_WINDOW_SECONDS,
    Rule,
};
use shared::expiry::{DeleteReason, KeepReason, Policy, Verdict};
use shared::row::Row;

/// What rows of a bucket are for.
pub(super) fn purpose(bucket: &Bucket) -> &'static str {
    match (bucket.owner, bucket.name) {
        (Owner::Legacy, _) => "an index row of ActingWeb 3.2.1, which no release since 3.3 reads",
        (_, "oauth_sessions" | "_oauth_sessions") => {
            "a sign-in in progress: it holds the provider's tokens for ten minutes, until the application has its actor"
        }
        (_, "spa_access_tokens") => "the access token of a single-page application, valid for an hour",
        (_, "spa_refresh_tokens") => {
            "the refresh token of a single-page application; once consumed, the tripwire that detects theft"
        }
        (_, "auth_code_index" | "_auth_code_index") => "maps an authorization code to the actor who holds it",
        (_, "access_token_index" | "_access_token_index") => "maps an MCP access token to the actor who holds it",
        (_, "refresh_token_index" | "_refresh_token_index") => "maps an MCP refresh token to the actor who holds it",
        (_, "client_index" | "_client_index") => "maps a registered client to the actor who holds it",
        (_, "_id_token_replay") => "remembers an ID token that was presented, so that it is not accepted twice",
        (_, "_oauth_state_nonces") => "the state of a sign-in that returns by form post, valid for ten minutes",
        (_, "_apple_exchange_tickets") => "a mobile application's ticket for its tokens, valid for five minutes",
        (_, "_email_verify_tokens") => "the token of an e-mail verification link, valid for a day",
        (_, "_deleted_actors") => "the tombstone of a deleted actor, which suppresses late writes for thirty days",
        (_, "mcp_auth_codes") => "an MCP client's authorization code, valid for ten minutes",
        (_, "mcp_tokens") => "an MCP client's access token, valid for an hour",
        (_, "mcp_refresh_tokens") => "an MCP client's refresh token; once consumed, the tripwire that detects theft",
        (_, "mcp_google_tokens") => "the provider's own tokens, kept for the MCP code or token that names them",
        (_, "mcp_clients") => "the record of a registered MCP client",
        _ => "",
    }
}

/// Which releases read the bucket under its name.
pub(super) fn generation(bucket: &Bucket) -> &'static str {
    match bucket.generation {
        Generation::Old => "ActingWeb 3.9.2 and earlier",
        Generation::New => "ActingWeb 3.10 and later",
        Generation::Both => "every release",
    }
}

/// What kind of owner a row has.
pub(super) fn owner_kind(owner: &str) -> &'static str {
    match owner {
        OAUTH_OWNER => "the OAuth system actor",
        bucket::SYSTEM_OWNER => "the system actor",
        bucket::DELETED_OWNER => "the system actor of deleted actors",
        JANITOR_OWNER => "this project",
        _ if Owner::Legacy.holds(owner) => "a system actor of ActingWeb 3.2.1",
        _ if Owner::Actor.holds(owner) => "an actor",
        _ => "another system actor",
    }
}

/// When a row of the bucket is dead.
pub(super) fn rule(bucket: &Bucket, policy: &Policy) -> String {
    match bucket.rule {
        Rule::SinceCreated { seconds } => format!("dead when now - {CLOCK_SLACK_SECONDS} - created_at > {seconds}"),
        Rule::ExpiresAt => format!("dead when now - {CLOCK_SLACK_SECONDS} > expires_at"),
        Rule::ExpiresAtIfPresent => {
            format!("dead when now - {CLOCK_SLACK_SECONDS} > expires_at; without that field, when its TTL has passed")
        }
        Rule::Refresh => {
            let past_window = if policy.reuse_window > REUSE_WINDOW_SECONDS { ", past that window," } else { "" };
            format!(
                "unused: dead when now - {CLOCK_SLACK_SECONDS} > expires_at; consumed: dead when now - {CLOCK_SLACK_SECONDS} > used_at + {} and > expires_at, or{past_window} when its TTL has passed",
                policy.reuse_window
            )
        }
        Rule::ReplayMarker { seconds } => {
            format!("dead when exp + {seconds} <= now - {CLOCK_SLACK_SECONDS}; with exp 0, when its TTL has passed")
        }
        Rule::TtlOnly => "has no time of its own: dead when its TTL has passed".to_owned(),
        Rule::Pointer { target } => {
            format!("dead when the row of {target} that it points at is dead or does not exist; never by itself")
        }
        Rule::Provider => {
            "dead when its TTL has passed, or when no live code or token of the actor names it".to_owned()
        }
        Rule::Never => "a permanent record: never dead".to_owned(),
        Rule::Unread => "read by no release since 3.3: dead only on request (remove-legacy)".to_owned(),
    }
}

/// Why a row of no known bucket is never touched.
pub(super) fn not_ours(row: &Row) -> &'static str {
    let owner = &row.key.owner;
    match row.bucket.text() {
        _ if owner == JANITOR_OWNER => "it is this project's own state",
        None => "it has no bucket attribute",
        Some(name) if bucket::find(owner, name).is_some() => "its key does not begin with the bucket that it claims",
        Some(name) if BUCKETS.iter().any(|known| known.name == name) => {
            "the name of its bucket is known, but this owner has no such bucket"
        }
        Some(_) => "its bucket is not in the list of known buckets, whatever its key begins with",
    }
}

pub(super) fn because(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Keep(reason) => keep(reason),
        Verdict::Delete(reason) => delete(reason),
    }
}

fn keep(reason: KeepReason) -> &'static str {
    match reason {
        KeepReason::Alive => "its own times, or its TTL if it has none, have not passed",
        KeepReason::Tripwire => "it was consumed, and presenting it again would reveal a theft, so it has to be kept",
        KeepReason::Contradiction => {
            "its TTL has passed, but by its own fields it is alive: this deployment has longer lifetimes"
        }
        KeepReason::Malformed => "its fields or its TTL cannot be read, and nothing else proves that it is dead",
        KeepReason::WithoutTtl => "it can only expire by its TTL, and it has none",
        KeepReason::Permanent => "it is a permanent record",
        KeepReason::Foreign => "it is a row of another bucket, whose key has the same prefix",
        KeepReason::TargetForeign => "the key that it points at holds a row of another bucket, which is not absence",
        KeepReason::NotDue => "by its own TTL, its target cannot have expired yet",
        KeepReason::TargetKept => "its target exists and is not dead",
        KeepReason::Elsewhere => "it points at another actor",
        KeepReason::Referenced => "a row that is not dead, or that is kept for now, names it",
        KeepReason::LeftToTtl => "the table's TTL removes it within RETIRE_DAYS, as configured",
        KeepReason::Young => "it is so young that its index row may not be written yet",
        KeepReason::SeenOnce => {
            "nothing points at it, its age is unknown, and this is the first time that it was found in this state"
        }
        KeepReason::LeftToDaily => "the daily cleanup judges it",
        KeepReason::Legacy => "only ActingWeb 3.2.1 read it, and removing such rows was not requested",
    }
}

fn delete(reason: DeleteReason) -> &'static str {
    match reason {
        DeleteReason::Expired => "it has expired by its own fields",
        DeleteReason::TtlPast => {
            "its TTL, including an hour for clock skew, has passed, and nothing in the row contradicts it"
        }
        DeleteReason::Consumed => "it was consumed, and both its reuse window and its lifetime are over",
        DeleteReason::Dangling => "its target does not exist, by a consistent read",
        DeleteReason::TargetDead => "its target is dead and is deleted with it",
        DeleteReason::Unreferenced => "no live row of its actor names it",
        DeleteReason::Unindexed => "no index row of either generation points at it, so no release can use it",
        DeleteReason::Replaced => "an index row under the new name points at the client",
        DeleteReason::Legacy => "only ActingWeb 3.2.1 read it, and removing such rows was requested",
    }
}

pub(super) fn course(course: Action) -> &'static str {
    match course {
        Action::Delete(reason) | Action::Retire(reason) => delete(reason),
        Action::Keep(reason) => keep(reason),
        Action::NeverTouched => "its bucket is not one that this project cleans",
        Action::Skip => "a row that it depends on could not be read, so it is skipped",
        Action::NotReached(NotReached::NoIndexRow) => {
            "it reaches an actor's rows through the index, and no index row points at this one"
        }
        Action::NotReached(NotReached::IndexNotDue) => {
            "it reaches an actor's rows through the index, and the index row is not due"
        }
        Action::NotReached(NotReached::IndexLeftToTtl) => {
            "it reaches an actor's rows through the index, and the index row is left to the table's TTL"
        }
        Action::NotReached(NotReached::NoDeadToken) => {
            "it reaches a provider row through a dead code or token that names it, and it can reach none"
        }
        Action::NotReached(NotReached::LeftToRepair) => "the index repair handles rows of ActingWeb 3.2.1",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bucket_is_for_something() {
        for bucket in &BUCKETS {
            assert!(!super::purpose(bucket).is_empty(), "{}", bucket.name);
        }
    }

    #[test]
    fn the_rule_says_that_an_extended_reuse_window_outlasts_the_ttl() {
        let bucket = BUCKETS.iter().find(|bucket| bucket.rule == Rule::Refresh).unwrap();
        let of = |reuse_window| rule(bucket, &Policy { reuse_window, ..Policy::default() });
        assert!(of(REUSE_WINDOW_SECONDS).ends_with("> expires_at, or when its TTL has passed"));
        assert!(of(REUSE_WINDOW_SECONDS + 1).ends_with("> expires_at, or, past that window, when its TTL has passed"));
    }
}
