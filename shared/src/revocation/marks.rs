//! What a row says of whom it belongs to, and of the rows that it is linked with.

use serde_json::{Map, Value};

use crate::bucket::{Bucket, Family, Rule};
use crate::row::Row;

/// What a row is to a revocation, in the order in which they go.
///
/// Index rows first: without them no token of an MCP client can be found, so all of them stop working. Then what works
/// without an index row: sessions, which are found by the tokens that they name, then those tokens. What is left works
/// no more; provider rows go before the tokens that name them, so that every half-done state is found again from what is
/// left of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    Index,
    Session,
    Spa,
    Provider,
    /// A code, an access token or a refresh token of an MCP client.
    Token,
    /// A client's record.
    Client,
}

/// `None` for buckets that a revocation never touches.
pub fn kind(bucket: &Bucket) -> Option<Kind> {
    match bucket.family {
        Family::IndexEntries => Some(Kind::Index),
        Family::OauthSessions => Some(Kind::Session),
        Family::SpaTokens => Some(Kind::Spa),
        Family::ProviderTokens => Some(Kind::Provider),
        Family::AccessTokens | Family::RefreshTokens | Family::AuthCodes => Some(Kind::Token),
        Family::Other => (bucket.rule == Rule::Never).then_some(Kind::Client),
    }
}

#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Marks {
    pub(super) actor: Option<String>,
    pub(super) client: Option<String>,
    pub(super) chain: Option<String>,
    /// The access token that a refresh token was issued with, or that a session hands out.
    pub(super) access_token: Option<String>,
    /// The refresh token that a session hands out.
    pub(super) refresh_token: Option<String>,
    /// An access token's own id, or that of the one which a refresh token was issued with: all that links the two before
    /// ActingWeb 3.15.
    pub(super) token_id: Option<String>,
    /// The name of the provider row.
    pub(super) provider: Option<String>,
}

impl Marks {
    /// `None` when `data` is not a JSON object: what it belongs to cannot be told.
    ///
    /// A key that is there twice is read as Python reads it: the last one counts.
    pub(super) fn read(row: &Row, kind: Kind) -> Option<Self> {
        let Ok(Value::Object(fields)) = serde_json::from_str(row.data.text()?) else { return None };
        Some(match kind {
            // A session that waits for the SPA says whose it is in its `token_data`; one in the middle of a sign-in has the
            // provider's answer there, and belongs to nobody yet.
            Kind::Session => match fields.get("token_data") {
                Some(Value::Object(inner)) => Self {
                    actor: text(inner, "actor_id"),
                    access_token: text(inner, "access_token"),
                    refresh_token: text(inner, "refresh_token"),
                    ..Self::default()
                },
                _ => Self::default(),
            },
            Kind::Spa | Kind::Token => Self {
                actor: text(&fields, "actor_id"),
                client: text(&fields, "client_id"),
                chain: text(&fields, "chain_id"),
                access_token: text(&fields, "access_token"),
                refresh_token: None,
                token_id: text(&fields, "token_id").or_else(|| text(&fields, "access_token_id")),
                provider: text(&fields, "google_token_key"),
            },
            Kind::Index | Kind::Provider | Kind::Client => Self::default(),
        })
    }
}

fn text(fields: &Map<String, Value>, name: &str) -> Option<String> {
    fields.get(name)?.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}
