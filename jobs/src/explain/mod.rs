//! Why a row is judged as it is: what it is, the rule and the numbers, what points at it and what it points at, and what
//! each function would do with it. It reads, and cannot delete.
//!
//! ```text
//! around    what is read beside the row;  find: the rows that a bare token can be
//! course    what the daily cleanup and the index repair do with the row: the same decisions, on what was read
//! words     the sentences;  document: all of it as JSON
//! ```

mod around;
mod course;
mod document;
mod find;
mod words;

pub use around::{Around, Indexed, Referrer};
pub use course::{Course, NotMet};
pub use document::{Shown, document};
pub use find::{Candidates, Shape, find};
pub use words::{generation, owner_kind, purpose, rule};

use crate::store::{ReadRows, Result};
use shared::bucket::{self, BUCKETS, Bucket, JANITOR_OWNER, Rule};
use shared::expiry::{self, Policy, Verdict};
use shared::integrity::{self, Lookup, Question, Referrers};
use shared::row::{Fields, Row, RowKey};
use shared::time::EpochSeconds;

/// Whose a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    Ours(&'static Bucket),
    NotOurs(NotOurs),
}

/// Why a row is never touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotOurs {
    /// The janitor's own state.
    OwnState,
    /// It has no `bucket` attribute, or one that is no text.
    NoBucket,
    /// Its key does not begin with the bucket that it claims.
    KeyOfAnother,
    /// A bucket of a known name, under an owner who has none such.
    OtherOwner,
    UnknownBucket,
}

/// Another row that the row is tied to.
#[derive(Clone, Debug)]
pub struct Relation {
    pub tie: Tie,
    pub key: RowKey,
    pub found: Lookup,
    /// What is to be said of the other row; `None` when it is not there, or not ours.
    pub verdict: Option<Verdict>,
}

/// How two rows are tied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tie {
    /// An index row that leads, or would lead, to the row.
    IndexRow,
    /// What an index row points at.
    Target,
    /// The provider row that a token names.
    Provider,
    /// The access token that a refresh token was issued with.
    AccessToken,
    /// A token that names a provider row.
    Referrer,
}

/// Everything that is to be said of a row.
#[derive(Clone)]
pub struct Explanation {
    pub row: Row,
    pub standing: Standing,
    pub fields: Option<Fields>,
    pub now: EpochSeconds,
    pub policy: Policy,
    /// By its own fields, its TTL, and the rows that decide over it; `None` when one of those could not be read, or when
    /// the row is not ours.
    pub verdict: Option<Verdict>,
    /// From when on it is dead as it is written now; of an index row its target.
    pub dead_from: Option<EpochSeconds>,
    pub daily: Course,
    pub repair: Course,
    pub points_at: Vec<Relation>,
    pub pointed_at_by: Vec<Relation>,
}

/// Explains a row that was read. Looks at the rows around it, with consistent reads.
///
/// # Errors
/// When the table could not be read.
pub async fn explain<S: ReadRows>(store: &S, row: Row, now: EpochSeconds, policy: &Policy) -> Result<Explanation> {
    let standing = standing(&row);
    let around = match standing {
        Standing::Ours(bucket) => Around::read(store, &row, bucket, now, policy).await?,
        Standing::NotOurs(_) => Around::default(),
    };
    Ok(tell(row, standing, &around, now, policy))
}

/// The pure part of [`explain`].
pub fn tell(row: Row, standing: Standing, around: &Around, now: EpochSeconds, policy: &Policy) -> Explanation {
    let (verdict, dead_from, daily, repair) = match standing {
        Standing::NotOurs(_) => (None, None, Course::NeverTouched, Course::NeverTouched),
        Standing::Ours(bucket) => (
            verdict(&row, bucket, around, now, policy),
            dead_from(&row, bucket, around, policy),
            course::daily(&row, bucket, around, now, policy),
            course::repair(&row, bucket, around, now, policy),
        ),
    };
    Explanation {
        fields: Fields::read(&row.data),
        points_at: around.points_at(now, policy),
        pointed_at_by: around.pointed_at_by(now, policy),
        row,
        standing,
        now,
        policy: *policy,
        verdict,
        dead_from,
        daily,
        repair,
    }
}

/// Whose a row is.
pub fn standing(row: &Row) -> Standing {
    if row.key.owner == JANITOR_OWNER {
        return Standing::NotOurs(NotOurs::OwnState);
    }
    let Some(name) = row.bucket.text() else { return Standing::NotOurs(NotOurs::NoBucket) };
    match (row.known_bucket(), bucket::find(&row.key.owner, name)) {
        (Some(bucket), _) => Standing::Ours(bucket),
        (None, Some(_)) => Standing::NotOurs(NotOurs::KeyOfAnother),
        (None, None) if BUCKETS.iter().any(|known| known.name == name) => Standing::NotOurs(NotOurs::OtherOwner),
        (None, None) => Standing::NotOurs(NotOurs::UnknownBucket),
    }
}

/// Whether the row is dead, whoever it is that deletes it.
fn verdict(row: &Row, bucket: &Bucket, around: &Around, now: EpochSeconds, policy: &Policy) -> Option<Verdict> {
    match bucket.rule {
        Rule::Pointer { .. } => match integrity::ask_anyway(row, bucket, now, policy) {
            Question::Settled(reason) => Some(Verdict::Keep(reason)),
            Question::LookAt(_) => {
                let (_, target) = around.target.as_ref()?;
                integrity::compare(row, bucket, target, now, policy)
            }
        },
        Rule::Provider => {
            let named = around.referrers.iter().any(|referrer| referrer.needs_it);
            let referrers = if named { Referrers::Some } else { Referrers::None };
            integrity::judge_provider(row, referrers, now, policy)
        }
        Rule::SinceCreated { .. }
        | Rule::ExpiresAt
        | Rule::ExpiresAtIfPresent
        | Rule::Refresh
        | Rule::ReplayMarker { .. }
        | Rule::TtlOnly
        | Rule::Never
        | Rule::Unread => Some(expiry::judge(row, bucket, now, policy)),
    }
}

fn dead_from(row: &Row, bucket: &Bucket, around: &Around, policy: &Policy) -> Option<EpochSeconds> {
    let target = around.target.as_ref().and_then(|(_, found)| match found {
        Lookup::Found(target) => Some((target, target.known_bucket()?)),
        Lookup::Absent | Lookup::Unread => None,
    });
    match (bucket.rule, target) {
        (Rule::Pointer { .. }, Some((target, target_bucket))) => expiry::dead_from(target, target_bucket, policy),
        (_, _) => expiry::dead_from(row, bucket, policy),
    }
}
