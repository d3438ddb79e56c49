//! Why a row is judged as it is: what it is, its rule and its times, the rows that it points at and that point at it, and what
//! each job would do with it. It reads, and cannot delete.
//!
//! ```text
//! around    the rows that are read beside the row;  find: the rows that a bare token can be
//! course    what the cleanup and the repair do with the row, by their own decisions
//! words     the sentences;  document: the explanation as a document
//! ```

mod around;
mod course;
mod document;
mod find;
mod words;

pub use around::{Around, IndexRow, Referrer};
pub use course::{Course, NotMet};
pub use document::{
    CourseShown, Document, FieldShown, Moment, RelationShown, RetiredShown, Shown, TtlShown, VerdictShown,
};
pub use find::{Candidates, Shape, find};

use course::Decider;

use crate::store::{ReadRows, Result};
use shared::bucket::{self, BUCKETS, Bucket, JANITOR_OWNER, Rule};
use shared::expiry::{self, Policy, Verdict};
use shared::integrity::Lookup;
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
    /// It has no `bucket` attribute, or one that is not text.
    NoBucket,
    /// Its key does not begin with the bucket that it claims.
    KeyOfAnother,
    /// A bucket with a known name, under an owner that has no such bucket.
    OtherOwner,
    UnknownBucket,
}

/// Another row that the row is tied to.
#[derive(Clone, Debug)]
pub struct Relation {
    pub tie: Tie,
    pub key: RowKey,
    pub found: Lookup,
    /// The verdict on the other row; `None` when it is not there, or not ours.
    pub verdict: Option<Verdict>,
}

/// How two rows are tied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, strum::Display, strum::IntoStaticStr)]
#[serde(into = "&'static str")]
pub enum Tie {
    /// An index row that leads, or would lead, to the row.
    #[strum(serialize = "index row")]
    IndexRow,
    /// What an index row points at.
    #[strum(serialize = "target")]
    Target,
    /// The provider row that a token names.
    #[strum(serialize = "provider row")]
    Provider,
    /// The access token that a refresh token was issued with.
    #[strum(serialize = "access token")]
    AccessToken,
    /// A token that names a provider row.
    #[strum(serialize = "named by")]
    Referrer,
}

/// Everything that is known about a row.
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
    /// When it dies as it is written now; for an index row, when its target does.
    pub dead_from: Option<EpochSeconds>,
    pub daily: Course,
    pub repair: Course,
    pub points_at: Vec<Relation>,
    pub pointed_at_by: Vec<Relation>,
}

/// Explains a row that was read. Reads the rows around it, consistently.
pub async fn explain<S: ReadRows>(store: &S, row: Row, now: EpochSeconds, policy: &Policy) -> Result<Explanation> {
    let standing = standing(&row);
    let around = match standing {
        Standing::Ours(bucket) => Around::read(store, &row, bucket, now, policy).await?,
        Standing::NotOurs(_) => Around::default(),
    };
    let decider = Decider { around: &around, now, policy };
    let (verdict, dead_from, daily, repair) = match standing {
        Standing::NotOurs(_) => (None, None, Course::NeverTouched, Course::NeverTouched),
        Standing::Ours(bucket) => (
            decider.verdict(&row, bucket),
            dead_from(&row, bucket, &around, policy),
            decider.cleanup(&row, bucket),
            decider.repair(&row, bucket),
        ),
    };
    Ok(Explanation {
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
    })
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

fn dead_from(row: &Row, bucket: &Bucket, around: &Around, policy: &Policy) -> Option<EpochSeconds> {
    match (bucket.rule, around.target()) {
        (Rule::Pointer { .. }, Lookup::Found(target)) => match target.known_bucket() {
            Some(target_bucket) => expiry::dead_from(target, target_bucket, policy),
            None => expiry::dead_from(row, bucket, policy),
        },
        _ => expiry::dead_from(row, bucket, policy),
    }
}
