//! What is still accepted after a revocation, so that an operator does not overestimate its effect.

use shared::bucket::Family;
use shared::revocation::{Revoked, RowKind, Selector, State};
use shared::time::EpochSeconds;

/// How long each process of the application may serve an MCP access token from memory: ActingWeb's own constant, in
/// `handlers/mcp.py`.
const CACHED_SECONDS: u32 = 300;

/// A credential that is still accepted, or may be. The answer uses these names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case", const_into_str)]
pub enum Remaining {
    /// MCP access tokens, for minutes, because the MCP endpoint caches them.
    McpTokenCache,
    /// Provider tokens, at the provider and by the library.
    ProviderTokens,
    /// The client, with its secret or a new consent.
    ClientRegistration,
    /// The actor's other credentials.
    ActorCredentials,
    /// Sign-ins that are not finished.
    UnfinishedSignIns(u64),
    /// Rows that do not name their owner.
    UnreadableRows(u64),
    /// Rows that could not be deleted.
    RowsLeft(u64),
}

impl Remaining {
    pub fn text(self) -> String {
        match self {
            Remaining::McpTokenCache => format!(
                "each process of the application caches MCP access tokens for up to {CACHED_SECONDS} s and may accept a deleted \
                 one until then; a restart clears the cache. SPA tokens and sessions are read from the table each time"
            ),
            Remaining::ProviderTokens => {
                "the sign-in provider's tokens are deleted here but not revoked there: they are valid until they expire, or \
                 until the user or you revoke them at the provider; the library also accepts a provider's own access token, \
                 after asking the provider"
                    .to_owned()
            }
            Remaining::ClientRegistration => {
                "the client is still registered: with its secret, or after a new consent, it gets new tokens; \
                 --and-client removes its registration (its trust relationships are the application's to remove)"
                    .to_owned()
            }
            Remaining::ActorCredentials => {
                "the actor itself was not changed: its passphrase, its trust relationships and their secrets, and the \
                 provider's tokens in its properties work as before, and it can sign in again"
                    .to_owned()
            }
            Remaining::UnfinishedSignIns(sessions) => format!(
                "{sessions} sessions of unfinished sign-ins, which name no actor yet; each is valid for ten minutes"
            ),
            Remaining::UnreadableRows(rows) => format!(
                "{rows} rows were kept because their data cannot be read, so their owner is unknown; the library accepts a row \
                 only if it can read it"
            ),
            Remaining::RowsLeft(rows) => {
                format!("{rows} rows could not be deleted, or the outcome is unknown: run the same command again")
            }
        }
    }
}

/// What is still accepted after these rows, except `left` of them, were deleted.
pub fn remaining<'r>(
    selector: &Selector,
    rows: impl Iterator<Item = &'r Revoked> + Clone,
    now: EpochSeconds,
    (unreadable, unassigned, left): (u64, u64, u64),
) -> Vec<Remaining> {
    let is_access = |row: &Revoked| row.bucket().family == Family::AccessTokens && row.state(now) != State::Expired;
    let is_provider = |row: &Revoked| row.kind() == RowKind::Provider;
    let of_selector = match selector {
        Selector::Actor(_) => Some(Remaining::ActorCredentials),
        Selector::Client { and_record: false, .. } => Some(Remaining::ClientRegistration),
        Selector::Client { and_record: true, .. } | Selector::Chain(_) | Selector::Token(_) => None,
    };
    let all = [
        rows.clone().any(is_access).then_some(Remaining::McpTokenCache),
        rows.clone().any(is_provider).then_some(Remaining::ProviderTokens),
        of_selector,
        (unassigned > 0).then_some(Remaining::UnfinishedSignIns(unassigned)),
        (unreadable > 0).then_some(Remaining::UnreadableRows(unreadable)),
        (left > 0).then_some(Remaining::RowsLeft(left)),
    ];
    all.into_iter().flatten().collect()
}
