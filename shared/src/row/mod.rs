//! Rows as they were read: the raw values are kept, because a delete is conditional on them.

mod python;

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::bucket::{self, Bucket};
use crate::mask::Masked;
use crate::time::EpochSeconds;

/// An attribute exactly as stored. A row can hold any type, and every type can be compared in the condition of a delete.
#[derive(Clone, PartialEq, Eq)]
pub enum Raw {
    Absent,
    Text(String),
    Number(String),
    Bool(bool),
    Null,
    Bytes(Vec<u8>),
    List(Vec<Raw>),
    Map(BTreeMap<String, Raw>),
    TextSet(Vec<String>),
    NumberSet(Vec<String>),
    BytesSet(Vec<Vec<u8>>),
}

/// Only the type: the value may be a secret.
impl std::fmt::Debug for Raw {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Raw::Absent => "absent",
            Raw::Text(_) => "text",
            Raw::Number(_) => "a number",
            Raw::Bool(_) => "a boolean",
            Raw::Null => "null",
            Raw::Bytes(_) => "bytes",
            Raw::List(_) => "a list",
            Raw::Map(_) => "a map",
            Raw::TextSet(_) | Raw::NumberSet(_) | Raw::BytesSet(_) => "a set",
        })
    }
}

impl Raw {
    pub fn text(&self) -> Option<&str> {
        match self {
            Raw::Text(text) => Some(text),
            _ => None,
        }
    }
}

/// The table's primary key. `Debug` and `Display` mask the range key: for most buckets it is a token.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RowKey {
    pub owner: String,
    pub sort: String,
}

impl RowKey {
    pub fn new(owner: impl Into<String>, sort: impl Into<String>) -> Self {
        Self { owner: owner.into(), sort: sort.into() }
    }

    /// Whether DynamoDB can store this key. Names are read from rows, which can contain anything.
    pub fn is_storable(&self) -> bool {
        (1..=2_048).contains(&self.owner.len()) && (1..=1_024).contains(&self.sort.len())
    }

    /// The key of the row `name` in `bucket` under `owner`.
    pub fn in_bucket(owner: impl Into<String>, bucket: &Bucket, name: &str) -> Self {
        Self::new(owner, bucket.sort_key(name))
    }

    /// The row's name in `bucket`; `None` for a key of another bucket.
    pub fn name_in(&self, bucket: &Bucket) -> Option<&str> {
        self.sort.strip_prefix(bucket.name)?.strip_prefix(':')
    }
}

impl std::fmt::Debug for RowKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", Masked(&self.owner), Masked(&self.sort))
    }
}

/// A stored item of the attributes table.
#[derive(Clone, PartialEq, Eq)]
pub struct Row {
    pub key: RowKey,
    pub bucket: Raw,
    pub data: Raw,
    /// `ttl_timestamp` as stored. DynamoDB acts on it; decisions read [`Row::ttl`].
    pub ttl: Raw,
    /// `retired_from` as stored: `[until]` for a row that had no TTL, else `[until, had]`. See [`Row::retirement`].
    pub retired_from: Raw,
    /// Size as DynamoDB counts it, to estimate capacity that the server does not report.
    pub bytes: usize,
}

impl std::fmt::Debug for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Row").field("key", &self.key).field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Row {
    /// Whether the row belongs to `bucket`, by its stored `bucket`: two buckets can have the same `bucket_name`. A row whose
    /// key does not begin with its stored bucket belongs to none.
    pub fn is_of(&self, bucket: &Bucket) -> bool {
        bucket.owner.holds(&self.key.owner) && self.bucket.text() == Some(bucket.name) && self.name_in(bucket).is_some()
    }

    /// The row's bucket; `None` if it is unknown.
    pub fn known_bucket(&self) -> Option<&'static Bucket> {
        bucket::find(&self.key.owner, self.bucket.text()?).filter(|bucket| self.is_of(bucket))
    }

    /// The row's name in `bucket`; `None` for a key of another bucket.
    pub fn name_in(&self, bucket: &Bucket) -> Option<&str> {
        self.key.name_in(bucket)
    }

    /// When the row was written, by its own field or by its TTL.
    pub fn created_at(&self, bucket: &Bucket) -> Option<EpochSeconds> {
        let own = Fields::read(&self.data).and_then(|fields| fields.created_at.value());
        own.or_else(|| bucket.created_at(self.ttl().at()?))
    }

    /// The TTL that the application wrote: retiring a row does not change how it is judged.
    pub fn ttl(&self) -> Ttl {
        Ttl::read(self.ttl_before())
    }

    /// The TTL that DynamoDB acts on.
    pub fn stored_ttl(&self) -> Ttl {
        Ttl::read(&self.ttl)
    }

    pub fn is_retired(&self) -> bool {
        self.retirement().is_some()
    }

    /// The end of the row's retirement, and its raw TTL before. `None` for a row that was not retired, and for a row whose TTL
    /// has changed since: the application has written it, and it is no longer retired.
    pub fn retirement(&self) -> Option<(EpochSeconds, &Raw)> {
        let Raw::List(parts) = &self.retired_from else { return None };
        let (until, had) = match parts.as_slice() {
            [until] => (until, &Raw::Absent),
            [until, had] => (until, had),
            _ => return None,
        };
        match Ttl::read(until) {
            Ttl::At(end) if *until == self.ttl => Some((end, had)),
            _ => None,
        }
    }

    /// The raw TTL that the application wrote.
    pub fn ttl_before(&self) -> &Raw {
        self.retirement().map_or(&self.ttl, |(_, had)| had)
    }

    /// The cost of writing or deleting the row: one unit per kilobyte, rounded up.
    pub fn write_units(&self) -> u32 {
        u32::try_from(self.bytes.div_ceil(1_024).max(1)).unwrap_or(u32::MAX)
    }

    /// Why DynamoDB never acts on the row's TTL; `None` for a valid or an absent TTL.
    pub fn ttl_fault(&self, now: EpochSeconds) -> Option<TtlFault> {
        let digits = match &self.ttl {
            Raw::Absent => return None,
            Raw::Number(digits) => digits,
            _ => return Some(TtlFault::NotANumber),
        };
        match (digits.parse::<i64>(), digits.parse::<f64>()) {
            (Ok(MILLISECONDS_FROM..), _) => Some(TtlFault::Milliseconds),
            (Ok(seconds), _) if now.get().saturating_sub(seconds) > TTL_TOO_OLD_SECONDS => Some(TtlFault::TooOld),
            // Zero and below, for a clock before 1975.
            (Ok(..=0), _) => Some(TtlFault::TooOld),
            (Ok(_), _) => None,
            (Err(_), Ok(number)) if number >= 1e11 => Some(TtlFault::Milliseconds),
            (Err(_), _) => Some(TtlFault::NotWholeSeconds),
        }
    }
}

/// Why DynamoDB never acts on a TTL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::EnumString, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum TtlFault {
    NotANumber,
    /// A Number that is not a whole number of seconds.
    NotWholeSeconds,
    /// Milliseconds or a smaller unit: as seconds, thousands of years ahead.
    Milliseconds,
    /// More than five years past.
    TooOld,
}

impl TtlFault {
    /// Completes the sentence "the TTL is ...".
    pub const fn description(self) -> &'static str {
        match self {
            TtlFault::NotANumber => "not a Number",
            TtlFault::NotWholeSeconds => "not a whole number of seconds",
            TtlFault::Milliseconds => "in milliseconds instead of seconds",
            TtlFault::TooOld => "more than five years ago",
        }
    }
}

/// The parsed `ttl_timestamp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ttl {
    Absent,
    At(EpochSeconds),
    /// A value that DynamoDB itself never acts on.
    Malformed,
}

/// A TTL relative to `now`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TtlState {
    Absent,
    Future,
    Past,
    Malformed,
}

/// From this number on, a time can only be in milliseconds: in seconds it is the year 5138.
const MILLISECONDS_FROM: i64 = 100_000_000_000;

/// DynamoDB keeps rows whose TTL is more than five years ago. Leap days are ignored: the shorter span keeps more rows.
pub const TTL_TOO_OLD_SECONDS: i64 = 5 * 365 * 86_400;

impl Ttl {
    pub fn read(raw: &Raw) -> Self {
        match raw {
            Raw::Absent => Ttl::Absent,
            Raw::Number(digits) => match digits.parse::<i64>() {
                Ok(seconds @ 1..MILLISECONDS_FROM) => Ttl::At(EpochSeconds::new(seconds)),
                _ => Ttl::Malformed,
            },
            _ => Ttl::Malformed,
        }
    }

    /// The time, where absent and malformed make no difference.
    pub fn at(self) -> Option<EpochSeconds> {
        match self {
            Ttl::At(at) => Some(at),
            Ttl::Absent | Ttl::Malformed => None,
        }
    }

    pub fn state(self, now: EpochSeconds) -> TtlState {
        match self {
            Ttl::Absent => TtlState::Absent,
            Ttl::Malformed => TtlState::Malformed,
            Ttl::At(at) if now <= at => TtlState::Future,
            Ttl::At(at) if now.since(at) > TTL_TOO_OLD_SECONDS => TtlState::Malformed,
            Ttl::At(_) => TtlState::Past,
        }
    }
}

/// A field of a row's JSON. Missing and malformed are distinct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field<T> {
    Missing,
    Malformed,
    Is(T),
}

impl<T> Field<T> {
    /// The value, where missing and malformed make no difference.
    pub fn value(self) -> Option<T> {
        match self {
            Field::Is(value) => Some(value),
            Field::Missing | Field::Malformed => None,
        }
    }
}

/// The members of a JSON object, as Python reads them: of two equal keys the last counts, and null counts as missing.
pub(crate) struct Members<'a>(Vec<(Cow<'a, str>, &'a str)>);

impl<'a> Members<'a> {
    /// `None` when Python would not read the text as an object.
    pub(crate) fn read(text: &'a str) -> Option<Self> {
        let mut members = Vec::new();
        // A key with an unpaired surrogate is none of the fields read here.
        python::object(text, |key, value| members.extend(unescaped(key).map(|key| (key, value))))?;
        Some(Self(members))
    }

    /// The JSON text of a member.
    pub(crate) fn raw(&self, name: &str) -> Option<&'a str> {
        let (_, value) = self.0.iter().rfind(|(key, _)| key == name)?;
        (*value != "null").then_some(value)
    }

    /// A member that is a non-empty string.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        let text: String = serde_json::from_str(self.raw(name)?).ok()?;
        (!text.is_empty()).then_some(text)
    }

    /// All times are integer seconds; anything else is malformed, not rounded. To Python, an integer beyond 64 bits is far in
    /// the future; a negative one that large is not a real time, and proves nothing.
    fn seconds(&self, name: &str) -> Field<EpochSeconds> {
        let Some(raw) = self.raw(name) else { return Field::Missing };
        match raw.parse() {
            Ok(seconds) => Field::Is(EpochSeconds::new(seconds)),
            Err(_) if raw.bytes().all(|byte| byte.is_ascii_digit()) => Field::Is(EpochSeconds::new(i64::MAX)),
            Err(_) => Field::Malformed,
        }
    }
}

/// The fields of `data` that a decision can depend on.
#[derive(Clone, PartialEq, Eq)]
pub struct Fields {
    pub created_at: Field<EpochSeconds>,
    pub expires_at: Field<EpochSeconds>,
    pub exp: Field<EpochSeconds>,
    pub used: Field<bool>,
    pub used_at: Field<EpochSeconds>,
    /// When a replay marker was written.
    pub seen_at: Field<EpochSeconds>,
    /// When a session was fetched and rewritten.
    pub retrieved_at: Field<EpochSeconds>,
    /// Name of the provider row that this row refers to.
    pub google_token_key: Option<String>,
    /// Name of the access token that a refresh token was issued with.
    pub access_token: Option<String>,
}

impl Fields {
    /// `None` when `data` is absent, not text, not JSON, or not an object: malformed, which proves nothing.
    pub fn read(data: &Raw) -> Option<Self> {
        let members = Members::read(data.text()?)?;
        Some(Self {
            created_at: members.seconds("created_at"),
            expires_at: members.seconds("expires_at"),
            exp: members.seconds("exp"),
            used: match members.raw("used") {
                None => Field::Missing,
                Some("true") => Field::Is(true),
                Some("false") => Field::Is(false),
                Some(_) => Field::Malformed,
            },
            used_at: members.seconds("used_at"),
            seen_at: members.seconds("seen_at"),
            retrieved_at: members.seconds("retrieved_at"),
            google_token_key: members.text("google_token_key"),
            access_token: members.text("access_token"),
        })
    }
}

/// Resolves the escapes in a key.
fn unescaped(key: &str) -> Option<Cow<'_, str>> {
    if key.contains('\\') {
        serde_json::from_str(&format!("\"{key}\"")).ok().map(Cow::Owned)
    } else {
        Some(Cow::Borrowed(key))
    }
}
