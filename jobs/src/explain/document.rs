//! An explanation as one stable document. The text for people is made from it, so that the two cannot differ.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

use super::{Action, Explanation, Relation, words};
use crate::{cleanup, repair};
use shared::bucket::{BUCKETS, Owner};
use shared::expiry::{self, Verdict};
use shared::integrity::Lookup;
use shared::mask::{Masked, plain};
use shared::row::{Field, Fields, RowKey, Ttl, TtlState};
use shared::time::{EpochSeconds, Utc};

/// Whether secrets are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    Masked,
    Revealed,
}

impl Shown {
    /// A name, which is mostly a token.
    pub fn name(self, name: &str) -> String {
        match self {
            Shown::Masked => Masked(name).to_string(),
            Shown::Revealed => name.to_owned(),
        }
    }

    /// An owner: the system actors are not secret.
    pub fn owner(self, owner: &str) -> String {
        let is_system = BUCKETS.iter().any(|bucket| bucket.owner != Owner::Actor && bucket.owner.holds(owner));
        if is_system || owner.starts_with("_actingweb_") { plain(owner) } else { self.name(owner) }
    }

    /// A bucket: a word of the application, perhaps followed by a colon and an id.
    pub fn bucket(self, bucket: &str) -> String {
        match bucket.split_once(':') {
            Some((word, id)) => format!("{}:{}", plain(word), self.name(id)),
            None => plain(bucket),
        }
    }
}

/// The document of one row.
#[derive(Serialize)]
pub struct Document {
    #[serde(flatten)]
    pub place: ShownKey,
    pub owner_kind: &'static str,
    pub known: bool,
    pub never_touched_because: Option<&'static str>,
    pub purpose: Option<&'static str>,
    pub read_by: Option<&'static str>,
    pub bytes: usize,
    /// The fields that a decision can depend on, in chronological order. Absent ones are left out.
    #[serde(serialize_with = "as_map")]
    pub fields: Option<Vec<(&'static str, FieldShown)>>,
    pub ttl: TtlShown,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retired: Option<RetiredShown>,
    pub rule: Option<String>,
    pub verdict: Option<VerdictShown>,
    pub dead_from: Option<Moment>,
    pub points_at: Vec<RelationShown>,
    pub pointed_at_by: Vec<RelationShown>,
    /// What each function does with the row, by its name.
    pub functions: BTreeMap<&'static str, ActionShown>,
}

/// Owner, bucket and name. If the bucket is absent or does not match the key, the name is the whole range key.
#[derive(Serialize)]
pub struct ShownKey {
    pub owner: String,
    pub bucket: Option<String>,
    pub name: String,
}

#[derive(Serialize)]
pub struct Moment {
    pub epoch: i64,
    pub utc: String,
    pub seconds_from_now: i64,
}

#[derive(Serialize)]
#[serde(untagged)]
pub enum FieldShown {
    At(Moment),
    Is(bool),
    Malformed(&'static str),
}

#[derive(Serialize)]
pub struct TtlShown {
    pub state: TtlState,
    pub at: Option<Moment>,
    pub fault: Option<&'static str>,
}

/// A retired row: it can be restored until TTL removes it.
#[derive(Serialize)]
pub struct RetiredShown {
    /// The TTL that it had; `None` if it had none, or one that DynamoDB never acts on.
    pub from: Option<Moment>,
    pub until: Moment,
}

#[derive(Serialize)]
pub struct VerdictShown {
    pub is: &'static str,
    pub reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub because: Option<&'static str>,
}

#[derive(Serialize)]
pub struct RelationShown {
    #[serde(flatten)]
    pub place: ShownKey,
    pub tie: Relation,
    pub found: &'static str,
    pub verdict: Option<VerdictShown>,
}

#[derive(Serialize)]
pub struct ActionShown {
    pub does: &'static str,
    pub reason: Option<&'static str>,
    pub because: &'static str,
}

#[expect(clippy::ref_option, reason = "the signature that serde calls")]
fn as_map<S: Serializer>(fields: &Option<Vec<(&'static str, FieldShown)>>, to: S) -> Result<S::Ok, S::Error> {
    match fields {
        None => to.serialize_none(),
        Some(fields) => to.collect_map(fields.iter().map(|(name, value)| (name, value))),
    }
}

impl Document {
    pub fn new(explained: &Explanation, shown: Shown) -> Self {
        let (row, now) = (&explained.row, explained.now);
        let bucket = explained.bucket.ok();
        let moment = |ttl| match ttl {
            Ttl::At(at) => Some(Moment::new(at, now)),
            Ttl::Absent | Ttl::Malformed => None,
        };
        let around = &explained.around;
        let relation = |tie, key: &RowKey, found: &Lookup| RelationShown::new(tie, key, found, explained, shown);
        let index_rows = around.index_rows.iter().map(|index| relation(Relation::IndexRow, &index.key, &index.found));
        let referrers = around.referrers.iter().map(|token| &token.row);
        let referrers = referrers.map(|row| relation(Relation::Referrer, &row.key, &Lookup::Found(row.clone())));
        Self {
            place: ShownKey::new(&row.key, row.bucket.text(), shown),
            owner_kind: words::owner_kind(&row.key.owner),
            known: bucket.is_some(),
            never_touched_because: explained.bucket.err(),
            purpose: bucket.map(words::purpose),
            read_by: bucket.map(words::generation),
            bytes: row.bytes,
            fields: bucket.and_then(|_| Fields::read(&row.data)).map(|fields| shown_fields(&fields, now)),
            ttl: TtlShown {
                state: row.stored_ttl().state(now),
                at: moment(row.stored_ttl()),
                fault: row.ttl_fault(now).map(shared::row::TtlFault::description),
            },
            retired: row
                .retirement()
                .map(|(until, had)| RetiredShown { from: moment(Ttl::read(had)), until: Moment::new(until, now) }),
            rule: bucket.map(|bucket| words::rule(bucket, &explained.policy)),
            verdict: explained
                .verdict
                .map(|verdict| VerdictShown { because: Some(words::because(verdict)), ..VerdictShown::new(verdict) }),
            dead_from: explained.dead_from.map(|at| Moment::new(at, now)),
            points_at: around.targets.iter().map(|(tie, key, found)| relation(*tie, key, found)).collect(),
            pointed_at_by: index_rows.chain(referrers).collect(),
            functions: [(cleanup::NAME, explained.daily), (repair::NAME, explained.repair)]
                .map(|(name, course)| (name, ActionShown::new(course)))
                .into(),
        }
    }
}

impl ShownKey {
    fn new(key: &RowKey, bucket: Option<&str>, shown: Shown) -> Self {
        let name = bucket.and_then(|bucket| key.sort.strip_prefix(bucket)?.strip_prefix(':'));
        Self {
            owner: shown.owner(&key.owner),
            bucket: bucket.map(|bucket| shown.bucket(bucket)),
            name: shown.name(name.unwrap_or(&key.sort)),
        }
    }
}

impl Moment {
    fn new(at: EpochSeconds, now: EpochSeconds) -> Self {
        Self { epoch: at.get(), utc: Utc(at).to_string(), seconds_from_now: at.since(now) }
    }
}

fn shown_fields(fields: &Fields, now: EpochSeconds) -> Vec<(&'static str, FieldShown)> {
    fn shown<T>(field: Field<T>, show: impl FnOnce(T) -> FieldShown) -> Option<FieldShown> {
        match field {
            Field::Missing => None,
            Field::Malformed => Some(FieldShown::Malformed("malformed")),
            Field::Is(value) => Some(show(value)),
        }
    }
    let time = |field| shown(field, |at| FieldShown::At(Moment::new(at, now)));
    [
        ("created_at", time(fields.created_at)),
        ("seen_at", time(fields.seen_at)),
        ("retrieved_at", time(fields.retrieved_at)),
        ("expires_at", time(fields.expires_at)),
        ("exp", time(fields.exp)),
        ("used_at", time(fields.used_at)),
        ("used", shown(fields.used, FieldShown::Is)),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name, value?)))
    .collect()
}

impl VerdictShown {
    fn new(verdict: Verdict) -> Self {
        let (is, reason) = match verdict {
            Verdict::Delete(reason) => ("dead", reason.name()),
            Verdict::Keep(reason) => ("kept", reason.name()),
        };
        Self { is, reason, because: None }
    }
}

impl ActionShown {
    fn new(course: Action) -> Self {
        let (does, reason) = match course {
            Action::Delete(reason) => ("deletes", Some(reason.name())),
            Action::Retire(reason) => ("retires", Some(reason.name())),
            Action::Keep(reason) => ("keeps", Some(reason.name())),
            Action::NotReached(_) => ("does-not-reach", None),
            Action::NeverTouched => ("never-touches", None),
            Action::Skip => ("skips", None),
        };
        Self { does, reason, because: words::course(course) }
    }
}

impl RelationShown {
    fn new(tie: Relation, key: &RowKey, found: &Lookup, explained: &Explanation, shown: Shown) -> Self {
        let (bucket, found, known) = match found {
            Lookup::Found(row) => match row.known_bucket() {
                None => (row.bucket.text(), "another bucket's row", None),
                Some(bucket) => (row.bucket.text(), "exists", Some((row, bucket))),
            },
            Lookup::Absent => (bucket_of(key), "does not exist", None),
            Lookup::Unread => (bucket_of(key), "could not be read", None),
        };
        // Other rows decide about an index row and a provider row.
        let judged = known.filter(|_| !matches!(tie, Relation::IndexRow | Relation::Provider));
        let judge = |(row, bucket)| expiry::judge(row, bucket, explained.now, &explained.policy);
        let verdict = judged.map(judge).map(VerdictShown::new);
        Self { place: ShownKey::new(key, bucket, shown), tie, found, verdict }
    }
}

/// The bucket of a key that was made from a known bucket.
fn bucket_of(key: &RowKey) -> Option<&'static str> {
    BUCKETS
        .iter()
        .find(|bucket| bucket.owner.holds(&key.owner) && key.name_in(bucket).is_some())
        .map(|known| known.name)
}
