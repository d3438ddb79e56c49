//! What to do with a dead row: delete it, leave it to its TTL, or retire it. The verdict is the same for all three.
//!
//! A retired row has a TTL some days ahead; `retired_from` holds that TTL and the one before. DynamoDB removes the row for
//! free; until then it can be restored. It is judged by the TTL before, so it is still dead, and is left to its new TTL.

use crate::bucket::Bucket;
use crate::expiry::{self, DeleteReason, KeepReason, Policy, Verdict};
use crate::row::{Raw, Row, Ttl, TtlState};
use crate::time::EpochSeconds;

/// A row that a decision of this crate found dead, as it was read. Only decisions create these, and only these can be deleted
/// or retired, on the condition that the row has not changed.
///
/// ```compile_fail,E0624
/// # use shared::{bucket::Bucket, disposal::Condemned, expiry::DeleteReason, row::Row};
/// fn forge(row: Row, bucket: &'static Bucket) -> Condemned {
///     Condemned::new(row, bucket, DeleteReason::Expired)
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Condemned {
    row: Row,
    bucket: &'static Bucket,
    reason: DeleteReason,
}

impl Condemned {
    pub(crate) fn new(row: Row, bucket: &'static Bucket, reason: DeleteReason) -> Self {
        Self { row, bucket, reason }
    }

    pub fn row(&self) -> &Row {
        &self.row
    }

    /// The row, to judge it again.
    pub fn into_row(self) -> Row {
        self.row
    }

    pub fn bucket(&self) -> &'static Bucket {
        self.bucket
    }

    pub fn reason(&self) -> DeleteReason {
        self.reason
    }
}

/// A verdict, with the row.
#[derive(Debug)]
pub enum Judged {
    Dead(Condemned),
    Kept(Row, KeepReason),
    /// A row that the verdict depends on could not be read.
    Unknown(Row),
}

impl Judged {
    pub(crate) fn new(row: Row, bucket: &'static Bucket, verdict: Option<Verdict>) -> Self {
        match verdict {
            None => Judged::Unknown(row),
            Some(Verdict::Keep(reason)) => Judged::Kept(row, reason),
            Some(Verdict::Delete(reason)) => Judged::Dead(Condemned::new(row, bucket, reason)),
        }
    }
}

/// [`expiry::judge`], returning the row if it is dead.
///
/// # Errors
/// The reason for keeping the row.
pub fn condemn(row: Row, bucket: &'static Bucket, now: EpochSeconds, policy: &Policy) -> Result<Condemned, KeepReason> {
    match expiry::judge(&row, bucket, now, policy) {
        Verdict::Delete(reason) => Ok(Condemned::new(row, bucket, reason)),
        Verdict::Keep(reason) => Err(reason),
    }
}

/// What to do with a dead row.
#[derive(Debug)]
pub enum Disposal {
    Delete(Condemned),
    /// DynamoDB removes it soon: nothing has to be written.
    LeaveToTtl(Condemned),
    Retire(Retirement),
}

/// A dead row, and its new TTL.
#[derive(Clone, Debug)]
pub struct Retirement {
    condemned: Condemned,
    until: EpochSeconds,
}

impl Retirement {
    pub fn condemned(&self) -> &Condemned {
        &self.condemned
    }

    pub fn row(&self) -> &Row {
        &self.condemned.row
    }

    /// The row's new `ttl_timestamp`.
    pub fn ttl(&self) -> Raw {
        Raw::Number(self.until.to_string())
    }

    /// The row's new `retired_from`.
    pub fn retired_from(&self) -> Raw {
        let had = Some(self.row().ttl_before()).filter(|had| **had != Raw::Absent);
        Raw::List([self.ttl()].into_iter().chain(had.cloned()).collect())
    }

    /// Whether the row is the result of this retirement.
    pub fn made(&self, row: &Row) -> bool {
        let judged = self.row();
        row.bucket == judged.bucket
            && row.data == judged.data
            && row.ttl == self.ttl()
            && row.retired_from == self.retired_from()
    }
}

impl Condemned {
    pub fn dispose(self, now: EpochSeconds, policy: &Policy) -> Disposal {
        match policy.retire {
            None => Disposal::Delete(self),
            Some(_) if is_left_to_ttl(&self.row, now, policy) => Disposal::LeaveToTtl(self),
            Some(seconds) => Disposal::Retire(Retirement { condemned: self, until: now.plus(seconds) }),
        }
    }
}

/// Whether DynamoDB removes the row, dead or alive, before a retirement started now would end: nothing has to be written or
/// found out. Always false where dead rows are deleted.
pub fn is_left_to_ttl(row: &Row, now: EpochSeconds, policy: &Policy) -> bool {
    let Some(seconds) = policy.retire else { return false };
    match (row.stored_ttl(), row.stored_ttl().state(now)) {
        (_, TtlState::Past) => true,
        // A retirement keeps its end, even if `RETIRE_DAYS` is lowered.
        (Ttl::At(at), TtlState::Future) => at <= now.plus(seconds) || row.is_retired(),
        (_, TtlState::Future | TtlState::Absent | TtlState::Malformed) => false,
    }
}
