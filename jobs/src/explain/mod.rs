//! Explains a row: its bucket, its rule and its times, the related rows, and what each job would do with it. It cannot
//! delete.
//!
//! ```text
//! around    the rows related to the row;  find: the rows that a bare token can name
//! course    what the cleanup and the repair do with the row, by their own decisions
//! words     the sentences;  document: the explanation as a document
//! ```

mod around;
mod course;
mod document;
mod find;
mod words;

pub use course::{Action, NotReached};
pub use document::{Document, FieldShown, Moment, RelationShown, Shown, VerdictShown};
pub use find::{Candidates, Shape, find};

use around::Around;
use course::Decider;

use crate::store::{ReadRows, Result};
use shared::bucket::{Bucket, Rule};
use shared::expiry::{self, Policy, Verdict};
use shared::integrity::Lookup;
use shared::row::Row;
use shared::time::EpochSeconds;

/// How two rows are related.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, strum::Display, strum::IntoStaticStr)]
#[serde(into = "&'static str")]
pub enum Relation {
    /// An index row that leads, or would lead, to the row.
    #[strum(serialize = "index row")]
    IndexRow,
    /// The target of an index row.
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
    /// The row's bucket, or why the row is never touched.
    pub bucket: Result<&'static Bucket, &'static str>,
    pub now: EpochSeconds,
    pub policy: Policy,
    /// By its own fields, its TTL, and the rows that decide about it; `None` if one of those could not be read, or if
    /// its bucket is unknown.
    pub verdict: Option<Verdict>,
    /// When the row dies, unless it changes; for an index row, when its target dies.
    pub dead_from: Option<EpochSeconds>,
    pub daily: Action,
    pub repair: Action,
    around: Around,
}

/// Explains a row. The related rows are read consistently.
pub async fn explain<S: ReadRows>(store: &S, row: Row, now: EpochSeconds, policy: &Policy) -> Result<Explanation> {
    let bucket = row.known_bucket().ok_or_else(|| words::not_ours(&row));
    let around = match bucket {
        Ok(bucket) => Around::read(store, &row, bucket, now, policy).await?,
        Err(_) => Around::default(),
    };
    let decider = Decider { around: &around, now, policy };
    let (verdict, dead_from, daily, repair) = match bucket {
        Err(_) => (None, None, Action::NeverTouched, Action::NeverTouched),
        Ok(bucket) => (
            decider.verdict(&row, bucket),
            dead_from(&row, bucket, &around, policy),
            decider.cleanup(&row, bucket),
            decider.repair(&row, bucket),
        ),
    };
    Ok(Explanation { row, bucket, now, policy: *policy, verdict, dead_from, daily, repair, around })
}

fn dead_from(row: &Row, bucket: &Bucket, around: &Around, policy: &Policy) -> Option<EpochSeconds> {
    match (bucket.rule, around.target()) {
        (Rule::Pointer { .. }, Lookup::Found(target)) if let Some(bucket) = target.known_bucket() => {
            expiry::dead_from(target, bucket, policy)
        }
        _ => expiry::dead_from(row, bucket, policy),
    }
}
