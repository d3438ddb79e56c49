//! An explanation as JSON: one stable document. What is printed for people is made from it, so that they cannot differ.

use serde_json::{Map, Value, json};

use super::{Course, Explanation, Relation, Standing, words};
use shared::bucket::{BUCKETS, Owner};
use shared::expiry::Verdict;
use shared::integrity::Lookup;
use shared::mask::{Masked, plain};
use shared::row::{Field, RowKey, Ttl, TtlState};
use shared::time::{EpochSeconds, Utc};

/// Whether secrets are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    Masked,
    Revealed,
}

impl Shown {
    /// A name, which is a token more often than not.
    pub fn name(self, name: &str) -> String {
        match self {
            Shown::Masked => Masked(name).to_string(),
            Shown::Revealed => name.to_owned(),
        }
    }

    /// An owner: the system actors are no secret.
    pub fn owner(self, owner: &str) -> String {
        let is_system = BUCKETS.iter().any(|bucket| bucket.owner != Owner::Actor && bucket.owner.holds(owner));
        if is_system || owner.starts_with("_actingweb_") { plain(owner) } else { self.name(owner) }
    }

    /// A bucket: before the first colon it is a word of the application, behind it the id of somebody.
    pub fn bucket(self, bucket: &str) -> String {
        match bucket.split_once(':') {
            Some((word, id)) => format!("{}:{}", plain(word), self.name(id)),
            None => plain(bucket),
        }
    }
}

/// The document of one row.
pub fn document(told: &Explanation, shown: Shown) -> Value {
    let row = &told.row;
    let name = place(&row.key, row.bucket.text(), shown);
    let (bucket, why_not) = match told.standing {
        Standing::Ours(bucket) => (Some(bucket), None),
        Standing::NotOurs(why) => (None, Some(words::not_ours(why))),
    };
    json!({
        "owner": name["owner"],
        "bucket": name["bucket"],
        "name": name["name"],
        "owner_kind": words::owner_kind(&row.key.owner),
        "known": bucket.is_some(),
        "never_touched_because": why_not,
        "purpose": bucket.map(words::purpose),
        "read_by": bucket.map(words::generation),
        "bytes": row.bytes,
        "fields": fields(told),
        "ttl": ttl(told),
        "rule": bucket.map(|bucket| words::rule(bucket, &told.policy)),
        "verdict": verdict(told),
        "dead_from": told.dead_from.map(|at| moment(at, told.now)),
        "points_at": relations(&told.points_at, shown),
        "pointed_at_by": relations(&told.pointed_at_by, shown),
        "functions": {
            "daily-cleanup": course(told.daily),
            "index-repair": course(told.repair),
        },
    })
}

/// Owner, bucket and name. A row that says no bucket, or another than its key begins with, has a key and no name.
fn place(key: &RowKey, bucket: Option<&str>, shown: Shown) -> Value {
    let named = bucket.and_then(|bucket| Some((bucket, key.sort.strip_prefix(bucket)?.strip_prefix(':')?)));
    match named {
        Some((bucket, name)) => {
            json!({"owner": shown.owner(&key.owner), "bucket": shown.bucket(bucket), "name": shown.name(name)})
        }
        None => json!({
            "owner": shown.owner(&key.owner),
            "bucket": bucket.map(|bucket| shown.bucket(bucket)),
            "name": shown.name(&key.sort),
        }),
    }
}

fn moment(at: EpochSeconds, now: EpochSeconds) -> Value {
    json!({"epoch": at.get(), "utc": Utc(at).to_string(), "seconds_from_now": at.since(now)})
}

/// The fields that a decision can hang on, in the order of a row's life. Absent ones are left out.
fn fields(told: &Explanation) -> Value {
    let (Some(fields), Standing::Ours(_)) = (&told.fields, told.standing) else { return Value::Null };
    let mut known = Map::new();
    let times = [
        ("created_at", fields.created_at),
        ("seen_at", fields.seen_at),
        ("retrieved_at", fields.retrieved_at),
        ("expires_at", fields.expires_at),
        ("exp", fields.exp),
        ("used_at", fields.used_at),
    ];
    for (name, field) in times {
        match field {
            Field::Missing => {}
            Field::Malformed => drop(known.insert(name.to_owned(), json!("malformed"))),
            Field::Is(at) => drop(known.insert(name.to_owned(), moment(at, told.now))),
        }
    }
    match fields.used {
        Field::Missing => {}
        Field::Malformed => drop(known.insert("used".to_owned(), json!("malformed"))),
        Field::Is(used) => drop(known.insert("used".to_owned(), json!(used))),
    }
    Value::Object(known)
}

fn ttl(told: &Explanation) -> Value {
    let state = match told.row.ttl().state(told.now) {
        TtlState::Absent => "absent",
        TtlState::Future => "future",
        TtlState::Past => "past",
        TtlState::Malformed => "malformed",
    };
    let at = match told.row.ttl() {
        Ttl::At(at) => moment(at, told.now),
        Ttl::Absent | Ttl::Malformed => Value::Null,
    };
    json!({"state": state, "at": at, "fault": told.row.ttl_fault(told.now).map(words::ttl_fault)})
}

fn verdict(told: &Explanation) -> Value {
    match told.verdict {
        None => Value::Null,
        Some(verdict) => {
            let (is, reason) = parts(verdict);
            json!({"is": is, "reason": reason, "because": words::because(verdict)})
        }
    }
}

fn parts(verdict: Verdict) -> (&'static str, &'static str) {
    match verdict {
        Verdict::Delete(reason) => ("dead", reason.name()),
        Verdict::Keep(reason) => ("stays", reason.name()),
    }
}

fn course(course: Course) -> Value {
    let (does, reason) = match course {
        Course::Delete(reason) => ("deletes", Some(reason.name())),
        Course::Keep(reason) => ("keeps", Some(reason.name())),
        Course::NotMet(_) => ("does-not-come-by", None),
        Course::NeverTouched => ("never-touches", None),
        Course::CouldNotTell => ("skips", None),
    };
    json!({"does": does, "reason": reason, "because": words::course(course)})
}

fn relations(relations: &[Relation], shown: Shown) -> Vec<Value> {
    relations
        .iter()
        .map(|relation| {
            let bucket = match &relation.found {
                Lookup::Found(row) => row.bucket.text(),
                Lookup::Absent | Lookup::Unread => bucket_of(&relation.key),
            };
            let mut told = place(&relation.key, bucket, shown);
            let found = match &relation.found {
                Lookup::Found(row) if row.known_bucket().is_none() => "another bucket's row",
                Lookup::Found(_) => "there",
                Lookup::Absent => "not there",
                Lookup::Unread => "could not be read",
            };
            told["tie"] = json!(words::tie(relation.tie));
            told["found"] = json!(found);
            told["verdict"] = relation.verdict.map_or(Value::Null, |verdict| {
                let (is, reason) = parts(verdict);
                json!({"is": is, "reason": reason})
            });
            told
        })
        .collect()
}

/// The bucket of a key that was made from a known one.
fn bucket_of(key: &RowKey) -> Option<&'static str> {
    BUCKETS
        .iter()
        .filter(|bucket| bucket.owner.holds(&key.owner) && key.sort.starts_with(&bucket.sort_prefix()))
        .map(|bucket| bucket.name)
        .next()
}
