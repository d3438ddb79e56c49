//! What each function does with a row: the decisions that the functions make, on what was read around the row.

use super::around::{Around, Indexed, Reached, Referrer, is_dead, reached};
use crate::repair;
use shared::bucket::{self, Bucket, OAUTH_OWNER, Owner, Rule};
use shared::expiry::{self, DeleteReason, KeepReason, Policy, Verdict};
use shared::integrity::{self, Lookup, Question, Referrers, Sighting};
use shared::row::Row;
use shared::time::EpochSeconds;

/// What a function does with a row when it runs now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Course {
    Delete(DeleteReason),
    Keep(KeepReason),
    /// The row stays, because the function does not come by it.
    NotMet(NotMet),
    /// Not one of our rows.
    NeverTouched,
    /// A row that decides over it could not be read: the function skips such a row.
    CouldNotTell,
}

/// Why a function does not come by a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotMet {
    /// No index row leads to the token.
    NoIndexRow,
    /// Its index row is not due.
    IndexNotDue,
    /// Its index row is left to the table's TTL.
    IndexLeftToTtl,
    /// No dead token that the daily cleanup comes by names the provider row.
    NoDeadToken,
    /// What only ActingWeb 3.2.1 wrote is the repair's.
    LeftToRepair,
}

impl From<Verdict> for Course {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Delete(reason) => Course::Delete(reason),
            Verdict::Keep(reason) => Course::Keep(reason),
        }
    }
}

fn or_skip(verdict: Option<Verdict>) -> Course {
    verdict.map_or(Course::CouldNotTell, Course::from)
}

/// The daily cleanup pages the system actors' rows, and comes to an actor's rows through the index alone.
pub(super) fn daily(row: &Row, bucket: &'static Bucket, around: &Around, now: EpochSeconds, policy: &Policy) -> Course {
    match (bucket.owner, bucket.rule) {
        (Owner::Legacy, _) => Course::NotMet(NotMet::LeftToRepair),
        (_, Rule::Pointer { .. }) => match integrity::ask(row, bucket, now, policy) {
            Question::Settled(reason) => Course::Keep(reason),
            Question::LookAt(_) => by_target(row, bucket, around, now, policy),
        },
        (_, Rule::Provider) => daily_provider(row, around, now, policy),
        (Owner::Actor, _) => match reached(&row.key, &around.index_rows, now, policy) {
            Reached::Yes => expiry::judge(row, bucket, now, policy).into(),
            Reached::NotDue => Course::NotMet(NotMet::IndexNotDue),
            Reached::LeftToTtl => Course::NotMet(NotMet::IndexLeftToTtl),
            Reached::No => Course::NotMet(NotMet::NoIndexRow),
            Reached::Unread => Course::CouldNotTell,
        },
        (Owner::System(_), _) => expiry::judge(row, bucket, now, policy).into(),
    }
}

fn by_target(row: &Row, bucket: &Bucket, around: &Around, now: EpochSeconds, policy: &Policy) -> Course {
    let target = around.target.as_ref().map_or(&Lookup::Unread, |(_, found)| found);
    or_skip(integrity::compare(row, bucket, target, now, policy))
}

/// A provider row goes with a dead token that names it, unless a live one names it too.
fn daily_provider(row: &Row, around: &Around, now: EpochSeconds, policy: &Policy) -> Course {
    let met = around.referrers.iter().filter(|referrer| referrer.names_it).any(|referrer| {
        is_dead(&referrer.row, referrer.bucket, now, policy)
            && reached(&referrer.row.key, &referrer.index_rows, now, policy) == Reached::Yes
            && !leaves_it_to_the_access_token(referrer, now, policy)
    });
    if !met {
        return Course::NotMet(NotMet::NoDeadToken);
    }
    let needed = around.referrers.iter().any(|referrer| referrer.needs_it);
    let referrers = if needed { Referrers::Some } else { Referrers::None };
    or_skip(integrity::judge_provider(row, referrers, now, policy))
}

/// A refresh token leaves the provider row to the access token that it was issued with, when that one goes as well.
fn leaves_it_to_the_access_token(referrer: &Referrer, now: EpochSeconds, policy: &Policy) -> bool {
    referrer.access_token.as_ref().is_some_and(|(token, index_rows)| {
        token.known_bucket().is_some_and(|bucket| is_dead(token, bucket, now, policy))
            && reached(&token.key, index_rows, now, policy) == Reached::Yes
    })
}

/// The index repair reads the whole table.
pub(super) fn repair(
    row: &Row,
    bucket: &'static Bucket,
    around: &Around,
    now: EpochSeconds,
    policy: &Policy,
) -> Course {
    match bucket.rule {
        Rule::Pointer { .. } => match integrity::ask_anyway(row, bucket, now, policy) {
            Question::Settled(reason) => Course::Keep(reason),
            Question::LookAt(_) => match by_target(row, bucket, around, now, policy) {
                Course::Delete(reason) if reason != DeleteReason::Dangling => Course::Keep(KeepReason::LeftToDaily),
                course => course,
            },
        },
        Rule::Unread | Rule::Never => expiry::judge(row, bucket, now, policy).into(),
        Rule::Provider => repair_provider(row, around, now, policy),
        Rule::ExpiresAt | Rule::Refresh if bucket::can_refer(bucket) => {
            repair_token(row, bucket, &around.index_rows, around.seen.as_ref(), now, policy)
        }
        Rule::SinceCreated { .. }
        | Rule::ExpiresAt
        | Rule::ExpiresAtIfPresent
        | Rule::Refresh
        | Rule::ReplayMarker { .. }
        | Rule::TtlOnly => Course::Keep(KeepReason::LeftToDaily),
    }
}

/// A token that nothing in the index has the name of goes once it is old enough.
fn repair_token(
    row: &Row,
    bucket: &Bucket,
    index_rows: &[Indexed],
    seen: Option<&Row>,
    now: EpochSeconds,
    policy: &Policy,
) -> Course {
    if !integrity::could_go_unindexed(row, bucket, now, policy) {
        return integrity::judge_unindexed(row, bucket, Sighting::First, now, policy).into();
    }
    let is_there = |indexed: &Indexed| matches!(&indexed.found, Lookup::Found(index_row) if !integrity::leads_elsewhere(index_row, &row.key));
    let is_hidden = |indexed: &Indexed| indexed.found == Lookup::Unread;
    match (index_rows.iter().any(is_there), index_rows.iter().any(is_hidden)) {
        (true, _) => match expiry::judge(row, bucket, now, policy) {
            Verdict::Delete(_) => Course::Keep(KeepReason::LeftToDaily),
            Verdict::Keep(reason) => Course::Keep(reason),
        },
        (false, true) => Course::CouldNotTell,
        (false, false) => {
            let sighting = repair::sighting(seen, &row.key, now, policy.grace);
            integrity::judge_unindexed(row, bucket, sighting, now, policy).into()
        }
    }
}

/// A provider row that no token which stays names goes; with the token that names it, or by itself once it is old enough.
fn repair_provider(row: &Row, around: &Around, now: EpochSeconds, policy: &Policy) -> Course {
    // The OAuth system actor has no end of rows: there, each stands alone, and only live tokens count.
    let alone = row.key.owner == OAUTH_OWNER;
    let goes = |referrer: &&Referrer| {
        let seen = around.seen.as_ref();
        let course = repair_token(&referrer.row, referrer.bucket, &referrer.index_rows, seen, now, policy);
        !alone && matches!(course, Course::Delete(_))
    };
    let named = || around.referrers.iter().filter(|referrer| referrer.names_it);
    let needed = !alone && named().any(|referrer| !goes(&referrer));
    let taken_along = named().any(|referrer| goes(&referrer));
    let referrers = if needed { Referrers::Some } else { Referrers::None };
    let verdict = if taken_along {
        integrity::judge_provider(row, referrers, now, policy)
    } else {
        let sighting = repair::sighting(around.seen.as_ref(), &row.key, now, policy.grace);
        integrity::judge_lone_provider(row, referrers, sighting, now, policy)
    };
    // Read again before it goes: a live token may name it in a text that cannot be read.
    let needed_after_all =
        around.referrers.iter().filter(|referrer| referrer.needs_it).any(|referrer| !goes(&referrer));
    match verdict {
        Some(Verdict::Delete(DeleteReason::Unreferenced)) if needed_after_all => Course::Keep(KeepReason::Referenced),
        verdict => or_skip(verdict),
    }
}
