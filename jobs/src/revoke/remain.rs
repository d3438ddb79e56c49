//! What still works after a revocation. Whoever runs it on a bad day must not believe that more was done than was.

use shared::bucket::Family;
use shared::revocation::{Kind, Revoked, Selector, State};
use shared::time::EpochSeconds;

/// How long each process of the application may serve an MCP access token from memory: ActingWeb's own constant, in
/// `handlers/mcp.py`.
const CACHED_SECONDS: u32 = 300;

/// One thing that is still accepted, or may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remaining {
    /// By the MCP endpoint, for minutes.
    Cached,
    /// Provider tokens, at the provider and by the library.
    AtTheProvider,
    /// The client, with its secret or a new consent.
    Client,
    /// The actor, by everything that is no token of these kinds.
    Actor,
    /// Sign-ins that are not finished.
    Unassigned(u64),
    /// Rows that do not say whose they are.
    Unreadable(u64),
    /// Rows that could not be deleted.
    Left(u64),
}

impl Remaining {
    /// The name in the answer, fixed by its users.
    pub const fn name(self) -> &'static str {
        match self {
            Remaining::Cached => "mcp-token-cache",
            Remaining::AtTheProvider => "provider-tokens",
            Remaining::Client => "client-registration",
            Remaining::Actor => "actor-credentials",
            Remaining::Unassigned(_) => "unfinished-sign-ins",
            Remaining::Unreadable(_) => "unreadable-rows",
            Remaining::Left(_) => "rows-left",
        }
    }

    pub fn text(self) -> String {
        match self {
            Remaining::Cached => format!(
                "each process of the application keeps MCP access tokens in memory for up to {CACHED_SECONDS} s: until then \
                 it may accept one that is gone; a restart ends that at once. SPA tokens and sessions are read from the \
                 table each time"
            ),
            Remaining::AtTheProvider => {
                "what the sign-in provider issued is deleted here and not revoked there: it is valid \
                 until it expires or the user, or you, revoke it at the provider; the library accepts a provider's own \
                 access token as well, by asking the provider"
                    .to_owned()
            }
            Remaining::Client => {
                "the client is still registered: with its secret, or after a new consent, it gets new tokens; \
                 --and-client removes its registration (its trust relationships are the application's to remove)"
                    .to_owned()
            }
            Remaining::Actor => {
                "the actor itself was not touched: its passphrase, its trust relationships and their secrets, \
                 and the provider's tokens among its properties work as before, and it can sign in again"
                    .to_owned()
            }
            Remaining::Unassigned(sessions) => format!(
                "{sessions} sessions belong to sign-ins that are not finished and name no actor yet: each works for ten \
                 minutes"
            ),
            Remaining::Unreadable(rows) => format!(
                "{rows} rows do not say whose they are, because their data cannot be read: they were kept; the library \
                 accepts one only if it can read it"
            ),
            Remaining::Left(rows) => {
                format!("{rows} rows could not be deleted, or nobody knows: run the same command again")
            }
        }
    }
}

/// What is still accepted once these rows are gone. `left` of them are not.
pub fn remaining<'r>(
    selector: &Selector,
    rows: impl Iterator<Item = &'r Revoked> + Clone,
    now: EpochSeconds,
    (unreadable, unassigned, left): (u64, u64, u64),
) -> Vec<Remaining> {
    let is_access = |row: &Revoked| row.bucket().family == Family::AccessTokens && row.state(now) != State::Expired;
    let is_provider = |row: &Revoked| row.kind() == Kind::Provider;
    let of_selector = match selector {
        Selector::Actor(_) => Some(Remaining::Actor),
        Selector::Client { and_record: false, .. } => Some(Remaining::Client),
        Selector::Client { and_record: true, .. } | Selector::Chain(_) | Selector::Token(_) => None,
    };
    let counted = [Remaining::Unassigned(unassigned), Remaining::Unreadable(unreadable), Remaining::Left(left)];
    let is_some = |remaining: &Remaining| match remaining {
        Remaining::Unassigned(n) | Remaining::Unreadable(n) | Remaining::Left(n) => *n > 0,
        Remaining::Cached | Remaining::AtTheProvider | Remaining::Client | Remaining::Actor => true,
    };
    let cached = rows.clone().any(is_access).then_some(Remaining::Cached);
    let provider = rows.clone().any(is_provider).then_some(Remaining::AtTheProvider);
    [cached, provider, of_selector].into_iter().flatten().chain(counted.into_iter().filter(is_some)).collect()
}
