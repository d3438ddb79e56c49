//! Finds the rows that a bare token can name.

use std::collections::BTreeSet;

use crate::store::{ReadRows, Result};
use shared::bucket::{self, BUCKETS, OAUTH_OWNER, Owner};
use shared::index;
use shared::integrity::{self, Lookup};
use shared::row::{Row, RowKey};

/// The shape of a name. It only decides the text for a name that is not found: every key is read in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    AccessToken,
    RefreshToken,
    AuthCode,
    Client,
    Provider,
    SpaAccessToken,
    SpaRefreshToken,
    ReplayMarker,
    /// A session id, a state nonce, a ticket or an e-mail verification token.
    Session,
    Actor,
    Other,
}

impl Shape {
    pub fn of(name: &str) -> Self {
        let url_safe = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
        let hex = name.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
        match (name.len(), hex, url_safe) {
            _ if name.starts_with("aw_") => Shape::AccessToken,
            _ if name.starts_with("rt_") => Shape::RefreshToken,
            _ if name.starts_with("ac_") => Shape::AuthCode,
            _ if name.starts_with("mcp_") => Shape::Client,
            _ if name.starts_with(PROVIDER) => Shape::Provider,
            (32, true, _) => Shape::Actor,
            (40, true, _) => Shape::SpaAccessToken,
            (64, true, _) => Shape::ReplayMarker,
            (64, false, true) => Shape::SpaRefreshToken,
            (43, _, true) => Shape::Session,
            _ => Shape::Other,
        }
    }

    pub const fn description(self) -> &'static str {
        match self {
            Shape::AccessToken => "an MCP access token",
            Shape::RefreshToken => "an MCP refresh token",
            Shape::AuthCode => "an MCP authorization code",
            Shape::Client => "a client id",
            Shape::Provider => "the name of a provider row",
            Shape::SpaAccessToken => "an access token of a single-page application",
            Shape::SpaRefreshToken => "a refresh token of a single-page application",
            Shape::ReplayMarker => "a replay marker (a SHA-256), or a refresh token of a single-page application",
            Shape::Session => "a session id, a state nonce, an exchange ticket or an e-mail verification token",
            Shape::Actor => "an actor id",
            Shape::Other => "nothing that ActingWeb issues",
        }
    }
}

/// The prefix of every provider row's name; for a code, the code follows.
const PROVIDER: &str = "google_token_";

/// The rows that were found under a bare name.
#[derive(Clone, Debug)]
pub struct Candidates {
    pub shape: Shape,
    /// Index rows before their targets.
    pub rows: Vec<Row>,
    /// Keys that were read.
    pub looked_at: usize,
    /// Some of them could not be read.
    pub incomplete: bool,
}

/// Reads every key that a bare name can have: in every bucket of the system actors, of both generations, and through the
/// index the row of the actor.
pub async fn find<S: ReadRows>(store: &S, name: &str) -> Result<Candidates> {
    let mut keys = system_keys(name);
    // The provider row of a code is named after the code, and the code's index row knows the actor.
    let code = name.strip_prefix(PROVIDER).filter(|code| Shape::of(code) == Shape::AuthCode);
    if let Some(code) = code {
        keys.extend(system_keys(code));
    }
    let mut found = Candidates { shape: Shape::of(name), rows: Vec::new(), looked_at: 0, incomplete: false };
    found.read(store, &keys).await?;
    let further = found.rows.iter().filter_map(|row| target(row, code.is_some().then_some(name)));
    let further: BTreeSet<RowKey> = further.filter(|key| !keys.contains(key)).collect();
    found.read(store, &further.into_iter().collect::<Vec<_>>()).await?;
    if code.is_some() {
        // The code's own rows only lead to the provider row.
        found.rows.retain(|row| row.is_of(bucket::provider()));
    }
    Ok(found)
}

impl Candidates {
    async fn read<S: ReadRows>(&mut self, store: &S, keys: &[RowKey]) -> Result<()> {
        self.looked_at += keys.len();
        let found = if keys.is_empty() { Vec::new() } else { store.get_consistent(keys).await? };
        for found in found {
            match found {
                Lookup::Found(row) => self.rows.push(row),
                Lookup::Absent => {}
                Lookup::Unread => self.incomplete = true,
            }
        }
        Ok(())
    }
}

/// Every key of `name` that needs no actor id. Clients that registered themselves, and their tokens, belong to the OAuth
/// system actor.
fn system_keys(name: &str) -> Vec<RowKey> {
    let keys: BTreeSet<RowKey> = BUCKETS
        .iter()
        .flat_map(|bucket| owners(&bucket.owner).iter().map(move |owner| RowKey::in_bucket(*owner, bucket, name)))
        .filter(RowKey::is_storable)
        .collect();
    keys.into_iter().collect()
}

fn owners(owner: &'static Owner) -> &'static [&'static str] {
    match owner {
        Owner::System(id) => std::slice::from_ref(id),
        Owner::Actor => &[OAUTH_OWNER],
        Owner::Legacy => &bucket::LEGACY_OWNERS,
    }
}

/// The target of an index row; with `provider`, the provider row of that name under the same actor.
fn target(row: &Row, provider: Option<&str>) -> Option<RowKey> {
    let bucket = row.known_bucket()?;
    let Some(name) = provider else { return integrity::target_key(row, bucket) };
    index::target_of(bucket)?;
    let key = RowKey::in_bucket(integrity::pointed_actor(&row.data)?, bucket::provider(), name);
    key.is_storable().then_some(key)
}

#[cfg(test)]
mod tests {
    use super::Shape;

    #[test]
    fn a_name_is_told_by_its_shape() {
        for (name, shape) in [
            ("aw_x".to_owned(), Shape::AccessToken),
            ("rt_x".to_owned(), Shape::RefreshToken),
            ("ac_x".to_owned(), Shape::AuthCode),
            ("mcp_x".to_owned(), Shape::Client),
            ("google_token_ac_x".to_owned(), Shape::Provider),
            ("0".repeat(32), Shape::Actor),
            ("a".repeat(40), Shape::SpaAccessToken),
            ("f".repeat(64), Shape::ReplayMarker),
            ("Z-_".repeat(21) + "z", Shape::SpaRefreshToken),
            ("-".repeat(43), Shape::Session),
            ("a b".to_owned(), Shape::Other),
            (String::new(), Shape::Other),
        ] {
            assert_eq!(Shape::of(&name), shape, "{name}");
        }
    }
}
