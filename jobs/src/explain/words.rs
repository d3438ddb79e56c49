//! The sentences: what a bucket is for, what its rule says, why a verdict is what it is.

use super::{Course, NotMet, NotOurs, Tie};
use shared::bucket::{Bucket, CLOCK_SLACK_SECONDS, Generation, OAUTH_OWNER, Owner, Rule};
use shared::expiry::{DeleteReason, KeepReason, Policy, Verdict};
use shared::row::TtlFault;

/// What rows of a bucket are for.
pub fn purpose(bucket: &Bucket) -> &'static str {
    match (bucket.owner, bucket.name) {
        (Owner::Legacy, _) => "an index row of ActingWeb 3.2.1, which no release since 3.3 reads",
        (_, "oauth_sessions" | "_oauth_sessions") => {
            "a sign-in under way: the provider's tokens wait here, for ten minutes, until the application has its actor"
        }
        (_, "spa_access_tokens") => "the access token of a single-page application, good for an hour",
        (_, "spa_refresh_tokens") => {
            "the refresh token of a single-page application; once consumed, the tripwire that reveals a thief"
        }
        (_, "auth_code_index" | "_auth_code_index") => "leads from an authorization code to the actor who holds it",
        (_, "access_token_index" | "_access_token_index") => "leads from an MCP access token to the actor who holds it",
        (_, "refresh_token_index" | "_refresh_token_index") => {
            "leads from an MCP refresh token to the actor who holds it"
        }
        (_, "client_index" | "_client_index") => "leads from a registered client to the actor who holds it",
        (_, "_id_token_replay") => "remembers an ID token that was presented, so that it is not taken twice",
        (_, "_oauth_state_nonces") => "the state of a sign-in that comes back by form post, for ten minutes",
        (_, "_apple_exchange_tickets") => "a mobile application's ticket for its tokens, good for five minutes",
        (_, "_email_verify_tokens") => "the token of an e-mail verification link, good for a day",
        (_, "_deleted_actors") => "the tombstone of a deleted actor, which suppresses late writes for thirty days",
        (_, "mcp_auth_codes") => "an MCP client's authorization code, good for ten minutes",
        (_, "mcp_tokens") => "an MCP client's access token, good for an hour",
        (_, "mcp_refresh_tokens") => "an MCP client's refresh token; once consumed, the tripwire that reveals a thief",
        (_, "mcp_google_tokens") => "the provider's own tokens, kept for the MCP code or token that names them",
        (_, "mcp_clients") => "the record of a registered MCP client",
        _ => "",
    }
}

/// Which releases read the bucket under its name.
pub fn generation(bucket: &Bucket) -> &'static str {
    match bucket.generation {
        Generation::Old => "up to ActingWeb 3.9.2",
        Generation::New => "ActingWeb 3.10 and later",
        Generation::Both => "every release",
    }
}

/// What kind of owner a row has.
pub fn owner_kind(owner: &str) -> &'static str {
    match owner {
        OAUTH_OWNER => "the OAuth system actor",
        shared::bucket::SYSTEM_OWNER => "the system actor",
        shared::bucket::DELETED_OWNER => "the system actor of deleted actors",
        shared::bucket::JANITOR_OWNER => "this project",
        _ if Owner::Legacy.holds(owner) => "a system actor of ActingWeb 3.2.1",
        _ if Owner::Actor.holds(owner) => "an actor",
        _ => "another system actor",
    }
}

/// When a row of the bucket is dead.
pub fn rule(bucket: &Bucket, policy: &Policy) -> String {
    match bucket.rule {
        Rule::SinceCreated { seconds } => format!("dead when now - {CLOCK_SLACK_SECONDS} - created_at > {seconds}"),
        Rule::ExpiresAt => format!("dead when now - {CLOCK_SLACK_SECONDS} > expires_at"),
        Rule::ExpiresAtIfPresent => {
            format!("dead when now - {CLOCK_SLACK_SECONDS} > expires_at; without that field, when its TTL has passed")
        }
        Rule::Refresh => format!(
            "unused: dead when now - {CLOCK_SLACK_SECONDS} > expires_at; consumed: dead when now - {CLOCK_SLACK_SECONDS} > used_at + {} and > expires_at, or when its TTL has passed",
            policy.reuse_window
        ),
        Rule::ReplayMarker { seconds } => {
            format!("dead when exp + {seconds} <= now - {CLOCK_SLACK_SECONDS}; with exp 0, when its TTL has passed")
        }
        Rule::TtlOnly => "has no time of its own: dead when its TTL has passed".to_owned(),
        Rule::Pointer { target } => {
            format!("dead when the row of {target} that it points at is dead, or not there; never by itself")
        }
        Rule::Provider => {
            "dead when its TTL has passed, or when no live code or token of the actor names it".to_owned()
        }
        Rule::Never => "a permanent record: never dead".to_owned(),
        Rule::Unread => "unread by every release since 3.3: dead when an operator says so (remove-legacy)".to_owned(),
    }
}

/// Why a row is never touched.
pub(super) fn not_ours(why: NotOurs) -> &'static str {
    match why {
        NotOurs::OwnState => "it is this project's own state",
        NotOurs::NoBucket => "it has no bucket attribute that says whose it is",
        NotOurs::KeyOfAnother => "its key does not begin with the bucket that it claims",
        NotOurs::OtherOwner => "this owner has no such bucket: only the name is known",
        NotOurs::UnknownBucket => "its bucket is none of those that hold tokens, whatever its key begins with",
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
        KeepReason::Alive => "its own times, or its TTL where it has none, say that it is alive",
        KeepReason::Tripwire => "it was consumed, and whoever presents it again gives a thief away: it has to stay",
        KeepReason::Contradiction => {
            "its TTL has passed, but its own fields say that it is alive: a deployment with longer lifetimes"
        }
        KeepReason::Malformed => "what it says, or its TTL, cannot be read, and nothing else proves that it is dead",
        KeepReason::WithoutTtl => "only a TTL could end it, and it has none",
        KeepReason::Permanent => "it is a permanent record",
        KeepReason::Foreign => "another bucket's row is under the key that it points at: that is not absence",
        KeepReason::NotDue => "its own TTL says that what it points at cannot have expired yet",
        KeepReason::TargetKept => "what it points at is there, and not dead",
        KeepReason::Elsewhere => "it leads to another actor",
        KeepReason::Referenced => "a row that is not dead, or that stays for now, names it",
        KeepReason::Deferred => "it is dead, and left to the table's TTL as was asked",
        KeepReason::Young => {
            "it is so young that it may be half-written: whether anything leads to it is not asked yet"
        }
        KeepReason::SeenOnce => "nothing leads to it, its age is unknown, and it was not seen so before",
        KeepReason::LeftToDaily => "it is the daily cleanup's to judge",
        KeepReason::Legacy => "only ActingWeb 3.2.1 read it, and nobody asked to remove it",
    }
}

fn delete(reason: DeleteReason) -> &'static str {
    match reason {
        DeleteReason::Expired => "it is past its time by its own fields",
        DeleteReason::TtlPast => {
            "its TTL, which carries an hour of grace, has passed, and nothing in it says otherwise"
        }
        DeleteReason::Consumed => "it was consumed, and both its reuse window and its own time are over",
        DeleteReason::Dangling => "what it points at is not there, on a consistent read",
        DeleteReason::TargetDead => "what it points at is dead, and goes with it",
        DeleteReason::Unreferenced => "no live row of its actor names it",
        DeleteReason::Unindexed => "no index row of either generation leads to it: no release can use it",
        DeleteReason::Replaced => "an index row under the new name leads to the client",
        DeleteReason::Legacy => "only ActingWeb 3.2.1 read it, and removing such rows was asked for",
    }
}

pub(super) fn course(course: Course) -> &'static str {
    match course {
        Course::Delete(reason) => delete(reason),
        Course::Keep(reason) => keep(reason),
        Course::NeverTouched => "it is none of this project's rows",
        Course::CouldNotTell => "a row that decides over it could not be read: such a row is skipped",
        Course::NotMet(NotMet::NoIndexRow) => {
            "it comes to an actor's rows through the index, and nothing there leads here"
        }
        Course::NotMet(NotMet::IndexNotDue) => {
            "it comes to an actor's rows through the index, and this index row is not due"
        }
        Course::NotMet(NotMet::IndexLeftToTtl) => {
            "it comes to an actor's rows through the index, and this index row is left to the table's TTL"
        }
        Course::NotMet(NotMet::NoDeadToken) => {
            "it comes to a provider row through a dead code or token that names it, and there is none that it can reach"
        }
        Course::NotMet(NotMet::LeftToRepair) => "rows of ActingWeb 3.2.1 are the index repair's",
    }
}

pub(super) fn ttl_fault(fault: TtlFault) -> &'static str {
    match fault {
        TtlFault::NotANumber => "not a Number",
        TtlFault::NotWholeSeconds => "not a whole number of seconds",
        TtlFault::Milliseconds => "milliseconds",
        TtlFault::TooOld => "more than five years past",
    }
}

pub(super) fn tie(tie: Tie) -> &'static str {
    match tie {
        Tie::IndexRow => "index row",
        Tie::Target => "target",
        Tie::Provider => "provider row",
        Tie::AccessToken => "access token",
        Tie::Referrer => "named by",
    }
}

#[cfg(test)]
mod tests {
    use shared::bucket::BUCKETS;

    #[test]
    fn every_bucket_is_for_something() {
        for bucket in &BUCKETS {
            assert!(!super::purpose(bucket).is_empty(), "{}", bucket.name);
        }
    }
}
