//! What each job does with a row, by the jobs' own decisions on the related rows.

use super::around::{Around, IndexRow, Referrer};
use crate::repair;
use shared::bucket::{Bucket, OAUTH_OWNER, Owner, Rule};
use shared::disposal;
use shared::expiry::{self, DeleteReason, KeepReason, Policy, Verdict};
use shared::integrity::{self, Indexed, Lookup, Question, Referrers, RepairPart, Sighting};
use shared::row::{Row, RowKey};
use shared::time::EpochSeconds;

/// What a job does with a row when it runs now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Delete(DeleteReason),
    Retire(DeleteReason),
    Keep(KeepReason),
    /// The row is kept, because the job does not reach it.
    NotReached(NotReached),
    /// Not a row of a known bucket.
    NeverTouched,
    /// A row that decides about it could not be read: the job skips it.
    Skip,
}

/// Why a job does not reach a row. Ordered: of two index rows the greater reason counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NotReached {
    /// No index row leads to the token.
    NoIndexRow,
    /// Its index row is left to the table's TTL.
    IndexLeftToTtl,
    /// Its index row is not due.
    IndexNotDue,
    /// No dead token that the cleanup reaches names the provider row.
    NoDeadToken,
    /// Rows that only ActingWeb 3.2.1 read are left to the repair.
    LeftToRepair,
}

/// Decides about one row, as a job that runs now would.
#[derive(Clone, Copy)]
pub(super) struct Decider<'a> {
    pub around: &'a Around,
    pub now: EpochSeconds,
    pub policy: &'a Policy,
}

impl Decider<'_> {
    /// Whether the row is dead, whichever job deletes it.
    pub(super) fn verdict(&self, row: &Row, bucket: &Bucket) -> Option<Verdict> {
        match bucket.rule {
            // Whether it is dead, independent of EXPIRED_ROWS.
            Rule::Pointer { .. } => match integrity::ask_anyway(row, bucket, self.now, &self.policy.deleting()) {
                Question::Settled(reason) => Some(Verdict::Keep(reason)),
                Question::LookAt(_) => integrity::compare(row, bucket, self.around.target(), self.now, self.policy),
            },
            Rule::Provider => self.judge_provider(row),
            _ => Some(expiry::judge(row, bucket, self.now, self.policy)),
        }
    }

    /// What a job that reaches the row does with it.
    fn course(&self, row: &Row, verdict: Option<Verdict>) -> Action {
        match verdict {
            None => Action::Skip,
            Some(Verdict::Keep(reason)) => Action::Keep(reason),
            Some(Verdict::Delete(_)) if disposal::is_left_to_ttl(row, self.now, self.policy) => {
                Action::Keep(KeepReason::LeftToTtl)
            }
            Some(Verdict::Delete(reason)) if self.policy.retire.is_some() => Action::Retire(reason),
            Some(Verdict::Delete(reason)) => Action::Delete(reason),
        }
    }

    /// The cleanup pages the system actors' rows, and reaches an actor's rows only through the index.
    pub(super) fn cleanup(&self, row: &Row, bucket: &Bucket) -> Action {
        match (bucket.owner, bucket.rule) {
            (Owner::Legacy, _) => Action::NotReached(NotReached::LeftToRepair),
            (_, Rule::Pointer { .. }) => match integrity::ask(row, bucket, self.now, self.policy) {
                Question::Settled(reason) => Action::Keep(reason),
                Question::LookAt(_) => self.course(row, self.verdict(row, bucket)),
            },
            // A provider row is deleted with a dead token that names it, unless a live one names it too.
            (_, Rule::Provider) => {
                let reached = self.around.referrers.iter().any(|referrer| {
                    referrer.names_it
                        && matches!(self.verdict(&referrer.row, referrer.bucket), Some(Verdict::Delete(_)))
                        && self.not_reached(&referrer.row.key, &referrer.index_rows).is_none()
                });
                if reached {
                    self.course(row, self.judge_provider(row))
                } else {
                    Action::NotReached(NotReached::NoDeadToken)
                }
            }
            (Owner::Actor, _) => match self.not_reached(&row.key, &self.around.index_rows) {
                None => self.course(row, self.verdict(row, bucket)),
                Some(course) => course,
            },
            (Owner::System(_), _) => self.course(row, self.verdict(row, bucket)),
        }
    }

    fn judge_provider(&self, row: &Row) -> Option<Verdict> {
        let needed = self.around.referrers.iter().any(|referrer| referrer.needs_it);
        let referrers = if needed { Referrers::Some } else { Referrers::None };
        integrity::judge_provider(row, referrers, self.now, self.policy)
    }

    /// `None` when an index row leads the cleanup to the token.
    fn not_reached(&self, token: &RowKey, index_rows: &[IndexRow]) -> Option<Action> {
        let mut why = NotReached::NoIndexRow;
        for IndexRow { bucket, found, .. } in index_rows {
            let Lookup::Found(row) = found else { continue };
            if integrity::reaches(row, bucket, token, self.now, self.policy) {
                return None;
            }
            let leads_here = integrity::target_key(row, bucket).as_ref() == Some(token);
            match integrity::ask(row, bucket, self.now, self.policy) {
                Question::Settled(KeepReason::NotDue) if leads_here => why = why.max(NotReached::IndexNotDue),
                Question::Settled(KeepReason::LeftToTtl) if leads_here => why = why.max(NotReached::IndexLeftToTtl),
                Question::LookAt(_) | Question::Settled(_) => {}
            }
        }
        let is_unread = index_rows.iter().any(|index| index.found == Lookup::Unread);
        Some(if is_unread { Action::Skip } else { Action::NotReached(why) })
    }

    /// The repair reads the whole table.
    pub(super) fn repair(&self, row: &Row, bucket: &Bucket) -> Action {
        match integrity::repair_part(bucket) {
            RepairPart::Index => match integrity::ask_anyway(row, bucket, self.now, self.policy) {
                Question::Settled(reason) => Action::Keep(reason),
                Question::LookAt(_) => {
                    self.course(row, integrity::repair_index(row, bucket, self.around.target(), self.now, self.policy))
                }
            },
            RepairPart::Alone => self.course(row, self.verdict(row, bucket)),
            RepairPart::Token => self.course(row, self.repair_token(row, bucket, &self.around.index_rows)),
            RepairPart::Provider => self.course(row, self.repair_provider(row)),
            RepairPart::LeftToCleanup => Action::Keep(KeepReason::LeftToDaily),
        }
    }

    fn sighting(&self, key: &RowKey) -> Sighting {
        repair::sighting(self.around.seen.as_ref(), key, self.now, self.policy.grace)
    }

    fn repair_token(&self, row: &Row, bucket: &Bucket, index_rows: &[IndexRow]) -> Option<Verdict> {
        if let Err(reason) = integrity::could_go_unindexed(row, bucket, self.now, self.policy) {
            return Some(Verdict::Keep(reason));
        }
        let indexed = index_rows.iter().map(|index| Indexed::by(&index.found, &row.key)).max().unwrap_or(Indexed::No);
        let sighting = || self.sighting(&row.key);
        integrity::repair_token(row, bucket, indexed, sighting, self.now, self.policy)
    }

    fn repair_provider(&self, row: &Row) -> Option<Verdict> {
        // The OAuth system actor has too many rows to judge together: each is judged alone, and only live tokens count.
        let alone = row.key.owner == OAUTH_OWNER;
        let is_deleted = |referrer: &&Referrer| {
            let verdict = self.repair_token(&referrer.row, referrer.bucket, &referrer.index_rows);
            !alone && matches!(verdict, Some(Verdict::Delete(_)))
        };
        let (deleted, kept): (Vec<&Referrer>, Vec<&Referrer>) = self.around.referrers.iter().partition(is_deleted);
        let needed = !alone && kept.iter().any(|referrer| referrer.names_it);
        let referrers = if needed { Referrers::Some } else { Referrers::None };
        let named_by_deleted = deleted.iter().any(|referrer| referrer.names_it);
        let sighting = || self.sighting(&row.key);
        match integrity::repair_provider(row, referrers, named_by_deleted, sighting, self.now, self.policy) {
            // The actor's rows are read again before the delete: a live token may name it in data that cannot be read.
            Some(Verdict::Delete(DeleteReason::Unreferenced)) if kept.iter().any(|referrer| referrer.needs_it) => {
                Some(Verdict::Keep(KeepReason::Referenced))
            }
            verdict => verdict,
        }
    }
}
