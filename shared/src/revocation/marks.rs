//! The fields of a row that say whose it is and which rows it is linked to.

use crate::bucket::{Bucket, Family, Rule};
use crate::row::{Members, Row};

/// The kinds of rows that a revocation deletes, in the order of the deletes.
///
/// Index rows come first: without them no MCP token can be looked up, so all of them stop working. Then rows that work without
/// an index row: sessions, which are found by the tokens that they name, then those tokens. The remaining rows no longer work.
/// Provider rows come before the tokens that name them, so that after an interruption the remaining rows can still be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RowKind {
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
pub fn kind(bucket: &Bucket) -> Option<RowKind> {
    match bucket.family {
        Family::IndexEntries => Some(RowKind::Index),
        Family::OauthSessions => Some(RowKind::Session),
        Family::SpaTokens => Some(RowKind::Spa),
        Family::ProviderTokens => Some(RowKind::Provider),
        Family::AccessTokens | Family::RefreshTokens | Family::AuthCodes => Some(RowKind::Token),
        Family::Other => (bucket.rule == Rule::Never).then_some(RowKind::Client),
    }
}

#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Marks {
    pub(super) actor: Option<String>,
    pub(super) client: Option<String>,
    pub(super) chain: Option<String>,
    /// The access token that a refresh token was issued with, or that a session passes to the SPA.
    pub(super) access_token: Option<String>,
    /// The refresh token that a session passes to the SPA.
    pub(super) refresh_token: Option<String>,
    /// The id of an access token, or of the one that a refresh token was issued with: their only link before ActingWeb 3.15.
    pub(super) token_id: Option<String>,
    /// The name of the provider row.
    pub(super) provider: Option<String>,
}

impl Marks {
    /// `None` when Python would not read `data` as an object: then it is unknown whose row it is.
    pub(super) fn read(row: &Row, kind: RowKind) -> Option<Self> {
        let fields = Members::read(row.data.text()?)?;
        Some(match kind {
            // A session that waits for the SPA names its actor in `token_data`. During a sign-in, `token_data` is the
            // provider's answer, and the session has no actor yet.
            RowKind::Session => match fields.raw("token_data").and_then(Members::read) {
                Some(inner) => Self {
                    actor: inner.text("actor_id"),
                    access_token: inner.text("access_token"),
                    refresh_token: inner.text("refresh_token"),
                    ..Self::default()
                },
                None => Self::default(),
            },
            RowKind::Spa | RowKind::Token => Self {
                actor: fields.text("actor_id"),
                client: fields.text("client_id"),
                chain: fields.text("chain_id"),
                access_token: fields.text("access_token"),
                refresh_token: None,
                token_id: fields.text("token_id").or_else(|| fields.text("access_token_id")),
                provider: fields.text("google_token_key"),
            },
            RowKind::Index | RowKind::Provider | RowKind::Client => Self::default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Marks, RowKind};
    use crate::row::{Raw, Row, RowKey};

    fn marks(kind: RowKind, data: &str) -> Option<Marks> {
        let key = RowKey::new("ada", "mcp_tokens:aw_1");
        let (bucket, data) = (Raw::Absent, Raw::Text(data.to_owned()));
        let row = Row { key, bucket, data, ttl: Raw::Absent, retired_from: Raw::Absent, bytes: 1 };
        Marks::read(&row, kind)
    }

    /// The application accepts a token in such a row, so a revocation that cannot read the row would miss a live token.
    #[test]
    fn reads_every_data_that_python_reads() {
        let deep = format!("{}1{}", "[".repeat(500), "]".repeat(500));
        for extra in ["NaN", "-Infinity", "1e400", "\"\\ud800\"", deep.as_str()] {
            let token = format!("{{\"client_id\": \"mcp_1\", \"x\": {extra}, \"chain_id\": \"c\"}}");
            let read = marks(RowKind::Token, &token).unwrap_or_else(|| panic!("{extra:.20} is unreadable"));
            assert_eq!((read.client.as_deref(), read.chain.as_deref()), (Some("mcp_1"), Some("c")));
            let session =
                format!("{{\"user_info\": {extra}, \"token_data\": {{\"x\": {extra}, \"actor_id\": \"ada\"}}}}");
            assert_eq!(marks(RowKind::Session, &session).and_then(|read| read.actor).as_deref(), Some("ada"));
        }
    }

    #[test]
    fn the_last_of_two_equal_keys_counts_and_an_escaped_key_is_the_same_key() {
        let twice = marks(RowKind::Token, "{\"actor_id\": \"ada\", \"actor\\u005fid\": \"bea\", \"client_id\": \"\"}");
        let twice = twice.expect("an object");
        assert_eq!((twice.actor.as_deref(), twice.client), (Some("bea"), None));
    }

    #[test]
    fn what_python_does_not_read_as_an_object_belongs_to_nobody_known() {
        for data in ["", "[]", "\"x\"", "nan", "{\"a\": 1,}", "{'actor_id': 1}"] {
            assert!(marks(RowKind::Token, data).is_none(), "{data}");
        }
        assert!(marks(RowKind::Session, "{\"token_data\": [1]}").is_some_and(|read| read == Marks::default()));
    }
}
