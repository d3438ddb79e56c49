//! The closed list of known buckets: the table of docs/rows.md.
//!
//! A row whose `(owner, bucket)` is not in [`BUCKETS`] is unknown, and an unknown row is never touched.

use crate::time::EpochSeconds;

/// Added by ActingWeb to every storage TTL, for clock skew between its servers.
pub const TTL_SKEW_SECONDS: i64 = 3_600;

/// How far an application server's clock may be behind the table's: AWS rejects requests that are signed further off. A row's
/// own fields are judged as of this many seconds ago.
pub const CLOCK_SLACK_SECONDS: i64 = 300;

/// How long ActingWeb treats the reuse of a consumed refresh token as theft.
pub const REUSE_WINDOW_SECONDS: i64 = 172_800;

/// Default minimum age of an unreachable row before it is deleted.
pub const GRACE_SECONDS: i64 = 3_600;

/// Default number of days for which a retired row can be restored.
pub const RETIRE_DAYS: i64 = 7;

/// The attribute that the table's TTL must use.
pub const TTL_ATTRIBUTE: &str = "ttl_timestamp";

/// The attribute of a retired row that holds the end of the retirement, and the row's TTL before it.
pub const RETIRED_ATTRIBUTE: &str = "retired_from";

/// The owner of this project's own state rows.
pub const JANITOR_OWNER: &str = "_actingweb_janitor";

/// The bucket of the state rows.
pub const STATE_BUCKET: &str = "state";

/// Owners with this prefix are ActingWeb's own; of these, only [`OAUTH_OWNER`] has buckets of an actor.
const SYSTEM_PREFIX: &str = "_actingweb_";

/// The owners of the indexes of ActingWeb 3.2.1.
pub const LEGACY_OWNERS: [&str; 2] = ["_mcp_system", "_mcp_global"];

/// Whose partition holds a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// One of the system actors, by its id.
    System(&'static str),
    /// Any actor that is not one of ActingWeb's own, and the OAuth system actor, which holds the records and the
    /// `client_credentials` tokens of clients that registered themselves.
    Actor,
    /// [`LEGACY_OWNERS`]; nothing has read their rows since ActingWeb 3.3.
    Legacy,
}

impl Owner {
    pub fn holds(self, id: &str) -> bool {
        match self {
            Owner::System(system) => system == id,
            Owner::Legacy => LEGACY_OWNERS.contains(&id),
            Owner::Actor => id == OAUTH_OWNER || !id.starts_with(SYSTEM_PREFIX) && !LEGACY_OWNERS.contains(&id),
        }
    }
}

/// When a row of the bucket is dead by its own fields, where `now` is [`CLOCK_SLACK_SECONDS`] ago. `expiry` combines this with
/// the storage TTL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// `now - created_at > seconds`
    SinceCreated { seconds: i64 },
    /// `now > expires_at`; without the field the row is malformed and only its TTL counts.
    ExpiresAt,
    /// `now > expires_at`; rows without the field are normal, and only their TTL counts.
    ExpiresAtIfPresent,
    /// `now > expires_at`; once consumed, the row is a tripwire and the reuse window counts as well.
    Refresh,
    /// `exp != 0 and exp + seconds <= now`; if `exp` is 0, only the TTL counts.
    ReplayMarker { seconds: i64 },
    /// No time of its own: only the TTL counts.
    TtlOnly,
    /// Points at a row of an actor, which decides.
    Pointer { target: &'static str },
    /// A provider's answer: dead when its TTL is past, or when no row of its actor names it.
    Provider,
    /// A permanent record: never dead.
    Never,
    /// Not read since ActingWeb 3.3: dead only at the operator's request.
    Unread,
}

/// The line of the answer's `body` under which a deleted row is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    OauthSessions,
    SpaTokens,
    AccessTokens,
    RefreshTokens,
    AuthCodes,
    IndexEntries,
    ProviderTokens,
    /// Not in the documented Python handler's answer; in the report only.
    Other,
}

/// The releases that read the bucket under this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Generation {
    /// Up to ActingWeb 3.9.2.
    Old,
    /// From ActingWeb 3.10.
    New,
    /// The name never changed.
    Both,
}

/// How the library names the rows of a bucket: a prefix, and evenly distributed random characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Names {
    pub prefix: &'static str,
    /// In DynamoDB's sort order.
    pub alphabet: &'static str,
}

/// One line of the table in docs/rows.md.
#[derive(Debug, PartialEq, Eq)]
pub struct Bucket {
    pub name: &'static str,
    pub owner: Owner,
    pub generation: Generation,
    pub family: Family,
    pub rule: Rule,
    pub names: Names,
    /// Storage TTL that the library gives a new row, without the skew hour.
    pub ttl: Option<i64>,
    /// Storage TTL of a consumed row, where consuming shortens it.
    pub consumed_ttl: Option<i64>,
}

impl Bucket {
    /// The system actor that owns every row of this bucket, if one does.
    pub fn system_owner(&self) -> Option<&'static str> {
        match self.owner {
            Owner::System(owner) => Some(owner),
            Owner::Actor | Owner::Legacy => None,
        }
    }

    /// The range key of the row `name` in this bucket.
    pub fn sort_key(&self, name: &str) -> String {
        format!("{}:{name}", self.name)
    }

    /// The prefix of every `bucket_name` in this bucket. Rows of other buckets may have it too.
    pub fn sort_prefix(&self) -> String {
        self.sort_key("")
    }

    /// When a row with this `ttl_timestamp` was written.
    pub fn created_at(&self, ttl: EpochSeconds) -> Option<EpochSeconds> {
        self.ttl.map(|seconds| ttl.plus(-seconds - TTL_SKEW_SECONDS))
    }
}

pub const OAUTH_OWNER: &str = "_actingweb_oauth2";
pub const SYSTEM_OWNER: &str = "_actingweb_system";
pub const DELETED_OWNER: &str = "_actingweb_deleted";

const OAUTH: Owner = Owner::System(OAUTH_OWNER);
const SYSTEM: Owner = Owner::System(SYSTEM_OWNER);
const DELETED: Owner = Owner::System(DELETED_OWNER);

/// Seconds by which an index row's TTL exceeds its target's.
const INDEX_BUFFER: i64 = 7_200;

const fn row(
    name: &'static str,
    owner: Owner,
    generation: Generation,
    family: Family,
    rule: Rule,
    names: Names,
) -> Bucket {
    Bucket { name, owner, generation, family, rule, names, ttl: None, consumed_ttl: None }
}

impl Bucket {
    const fn ttl(self, seconds: i64) -> Self {
        Self { ttl: Some(seconds), ..self }
    }

    const fn consumed(self, seconds: i64) -> Self {
        Self { consumed_ttl: Some(seconds), ..self }
    }
}

use Family as F;
use Generation::{Both, New, Old};
use Rule as R;

const SESSION: Rule = R::SinceCreated { seconds: 600 };
const CODES: Rule = R::Pointer { target: "mcp_auth_codes" };
const ACCESS: Rule = R::Pointer { target: "mcp_tokens" };
const REFRESH: Rule = R::Pointer { target: "mcp_refresh_tokens" };
const CLIENTS: Rule = R::Pointer { target: "mcp_clients" };
const REPLAY: Rule = R::ReplayMarker { seconds: 60 };

const fn url_safe(prefix: &'static str) -> Names {
    Names { prefix, alphabet: "-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz" }
}

const fn hex(prefix: &'static str) -> Names {
    Names { prefix, alphabet: "0123456789abcdef" }
}

const RANDOM: Names = url_safe("");
const HEX: Names = hex("");
const CODE: Names = url_safe("ac_");
const TOKEN: Names = url_safe("aw_");
const RENEWAL: Names = url_safe("rt_");
const CLIENT: Names = hex("mcp_");
/// Followed by a code, or by `access_`: not evenly distributed, but an actor's rows are never divided.
const PROVIDER: Names = url_safe("google_token_");

/// Every bucket of docs/rows.md, both generations. There is no second list.
#[rustfmt::skip]
pub static BUCKETS: [Bucket; 25] = [
    row("auth_code_index",         Owner::Legacy, Old, F::Other,          R::Unread,             CODE),
    row("access_token_index",      Owner::Legacy, Old, F::Other,          R::Unread,             TOKEN),
    row("client_index",            Owner::Legacy, Old, F::Other,          R::Unread,             CLIENT),
    row("oauth_sessions",          OAUTH,        Old,  F::OauthSessions,  SESSION,               RANDOM).ttl(600),
    row("_oauth_sessions",         OAUTH,        New,  F::OauthSessions,  SESSION,               RANDOM).ttl(600),
    row("spa_access_tokens",       OAUTH,        Both, F::SpaTokens,      R::ExpiresAt,          HEX).ttl(3_600),
    row("spa_refresh_tokens",      OAUTH,        Both, F::SpaTokens,      R::Refresh,            RANDOM).ttl(1_209_600).consumed(REUSE_WINDOW_SECONDS),
    row("auth_code_index",         OAUTH,        Old,  F::IndexEntries,   CODES,                 CODE).ttl(600 + INDEX_BUFFER),
    row("_auth_code_index",        OAUTH,        New,  F::IndexEntries,   CODES,                 CODE).ttl(600 + INDEX_BUFFER),
    row("access_token_index",      OAUTH,        Old,  F::IndexEntries,   ACCESS,                TOKEN).ttl(3_600 + INDEX_BUFFER),
    row("_access_token_index",     OAUTH,        New,  F::IndexEntries,   ACCESS,                TOKEN).ttl(3_600 + INDEX_BUFFER),
    row("refresh_token_index",     OAUTH,        Old,  F::IndexEntries,   REFRESH,               RENEWAL).ttl(2_592_000 + INDEX_BUFFER).consumed(REUSE_WINDOW_SECONDS + INDEX_BUFFER),
    row("_refresh_token_index",    OAUTH,        New,  F::IndexEntries,   REFRESH,               RENEWAL).ttl(2_592_000 + INDEX_BUFFER).consumed(REUSE_WINDOW_SECONDS + INDEX_BUFFER),
    row("client_index",            OAUTH,        Old,  F::IndexEntries,   CLIENTS,               CLIENT),
    row("_client_index",           OAUTH,        New,  F::IndexEntries,   CLIENTS,               CLIENT),
    row("_id_token_replay",        OAUTH,        New,  F::Other,          REPLAY,                HEX).ttl(900),
    row("_oauth_state_nonces",     OAUTH,        New,  F::Other,          R::TtlOnly,            RANDOM).ttl(600),
    row("_apple_exchange_tickets", OAUTH,        New,  F::Other,          R::ExpiresAtIfPresent, RANDOM).ttl(300),
    row("_email_verify_tokens",    SYSTEM,       New,  F::Other,          R::TtlOnly,            RANDOM).ttl(86_400),
    row("_deleted_actors",         DELETED,      New,  F::Other,          R::TtlOnly,            HEX).ttl(2_592_000),
    row("mcp_auth_codes",          Owner::Actor, Both, F::AuthCodes,      R::ExpiresAt,          CODE).ttl(600),
    row("mcp_tokens",              Owner::Actor, Both, F::AccessTokens,   R::ExpiresAt,          TOKEN).ttl(3_600),
    row("mcp_refresh_tokens",      Owner::Actor, Both, F::RefreshTokens,  R::Refresh,            RENEWAL).ttl(2_592_000).consumed(REUSE_WINDOW_SECONDS),
    row("mcp_google_tokens",       Owner::Actor, Both, F::ProviderTokens, R::Provider,           PROVIDER).ttl(3_600),
    row("mcp_clients",             Owner::Actor, Both, F::Other,          R::Never,              CLIENT),
];

/// The bucket that a row of `owner` with this stored `bucket` belongs to; `None` is an unknown row.
pub fn find(owner: &str, bucket: &str) -> Option<&'static Bucket> {
    BUCKETS.iter().find(|known| known.name == bucket && known.owner.holds(owner))
}

/// A bucket of an actor, by name. The names come from this table, so a miss is a mistake in it.
pub fn of_actor(name: &str) -> Option<&'static Bucket> {
    BUCKETS.iter().find(|known| known.owner == Owner::Actor && known.name == name)
}

/// The prefix of every bucket whose rows can name a provider row: one Query per actor finds them all.
pub const REFERRERS_PREFIX: &str = "mcp_";

/// Whether rows of the bucket can name a provider row.
pub fn can_refer(bucket: &Bucket) -> bool {
    bucket.owner == Owner::Actor && matches!(bucket.rule, Rule::ExpiresAt | Rule::Refresh)
}

/// The provider rows' bucket.
pub fn provider() -> &'static Bucket {
    BUCKETS.iter().find(|known| known.rule == Rule::Provider).expect("the table has a provider bucket")
}
