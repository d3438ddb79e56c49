//! Counts per bucket and reason. No row, no name, no secret.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::store::DeleteOutcome;
use shared::bucket::Bucket;
use shared::expiry::{DeleteReason, KeepReason};

/// The counts of one bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BucketCounts {
    pub read: u64,
    /// Rows deleted, or in a dry run to be deleted, by reason.
    pub deleted: BTreeMap<&'static str, u64>,
    /// Rows retired, or in a dry run to be retired, by reason.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub retired: BTreeMap<&'static str, u64>,
    pub kept: BTreeMap<&'static str, u64>,
    /// Rows that changed between judgement and delete, and were kept.
    pub lost_race: u64,
    /// Rows that could not be read or deleted; the next run tries again.
    pub skipped: u64,
}

impl BucketCounts {
    pub fn deleted_total(&self) -> u64 {
        self.deleted.values().sum()
    }

    pub fn retired_total(&self) -> u64 {
        self.retired.values().sum()
    }

    pub fn deleted_for(&self, reason: DeleteReason) -> u64 {
        self.deleted.get(reason.name()).copied().unwrap_or(0)
    }

    pub fn kept_for(&self, reason: KeepReason) -> u64 {
        self.kept.get(reason.name()).copied().unwrap_or(0)
    }
}

/// The counts of a run, or of a piece of its work.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Tally {
    buckets: BTreeMap<&'static str, BucketCounts>,
    #[serde(skip)]
    uncertain: u64,
    /// Skipped rows that the store refuses to delete.
    #[serde(skip)]
    refused: u64,
    #[serde(skip)]
    unknown: u64,
}

impl Tally {
    fn at(&mut self, bucket: &Bucket) -> &mut BucketCounts {
        self.buckets.entry(bucket.name).or_default()
    }

    pub fn read(&mut self, bucket: &Bucket) {
        self.at(bucket).read += 1;
    }

    /// A row of a bucket that the table of buckets does not list: never touched.
    pub fn unknown(&mut self) {
        self.unknown += 1;
    }

    pub fn kept(&mut self, bucket: &Bucket, reason: KeepReason) {
        *self.at(bucket).kept.entry(reason.name()).or_default() += 1;
    }

    pub fn skipped(&mut self, bucket: &Bucket) {
        self.at(bucket).skipped += 1;
    }

    /// A row that no run can delete, or a row that depends on one. It is no sign of a failing store.
    pub fn refused(&mut self, bucket: &Bucket) {
        self.skipped(bucket);
        self.refused += 1;
    }

    pub fn outcome(&mut self, bucket: &Bucket, reason: DeleteReason, outcome: DeleteOutcome) {
        let counts = self.at(bucket);
        match outcome {
            DeleteOutcome::Deleted => *counts.deleted.entry(reason.name()).or_default() += 1,
            DeleteOutcome::Retired => *counts.retired.entry(reason.name()).or_default() += 1,
            DeleteOutcome::LeftToTtl => self.kept(bucket, KeepReason::LeftToTtl),
            DeleteOutcome::LostRace => counts.lost_race += 1,
            DeleteOutcome::Failed => counts.skipped += 1,
            DeleteOutcome::Refused => self.refused(bucket),
            DeleteOutcome::Unknown => {
                counts.skipped += 1;
                self.uncertain += 1;
            }
            DeleteOutcome::NotTried => {}
        }
    }

    pub fn add(&mut self, other: &Tally) {
        for (&name, counts) in &other.buckets {
            let sum = self.buckets.entry(name).or_default();
            sum.read += counts.read;
            sum.lost_race += counts.lost_race;
            sum.skipped += counts.skipped;
            let BucketCounts { deleted, retired, kept, .. } = sum;
            for (sum, more) in [(deleted, &counts.deleted), (retired, &counts.retired), (kept, &counts.kept)] {
                for (&reason, n) in more {
                    *sum.entry(reason).or_default() += n;
                }
            }
        }
        self.uncertain += other.uncertain;
        self.refused += other.refused;
        self.unknown += other.unknown;
    }

    pub fn buckets(&self) -> &BTreeMap<&'static str, BucketCounts> {
        &self.buckets
    }

    pub(crate) fn sum(&self, of: impl Fn(&BucketCounts) -> u64) -> u64 {
        self.buckets.values().map(of).sum()
    }

    pub fn rows_read(&self) -> u64 {
        self.sum(|counts| counts.read) + self.unknown
    }

    pub fn rows_deleted(&self) -> u64 {
        self.sum(BucketCounts::deleted_total)
    }

    pub fn rows_retired(&self) -> u64 {
        self.sum(BucketCounts::retired_total)
    }

    /// Rows that this run deleted or retired.
    pub fn rows_disposed(&self) -> u64 {
        self.rows_deleted() + self.rows_retired()
    }

    pub fn rows_left_to_ttl(&self) -> u64 {
        self.sum(|counts| counts.kept_for(KeepReason::LeftToTtl))
    }

    pub fn rows_skipped(&self) -> u64 {
        self.sum(|counts| counts.skipped)
    }

    /// Rows skipped because of a transient fault.
    pub fn rows_failed(&self) -> u64 {
        self.rows_skipped() - self.refused
    }

    pub fn lost_races(&self) -> u64 {
        self.sum(|counts| counts.lost_race)
    }

    /// Deletes that were sent but not answered.
    pub fn uncertain(&self) -> u64 {
        self.uncertain
    }

    pub fn rows_unknown(&self) -> u64 {
        self.unknown
    }

    /// Deleted rows by bucket, without zeros.
    pub fn deleted_by_bucket(&self) -> BTreeMap<String, u64> {
        let deleted = self.buckets.iter().map(|(bucket, counts)| ((*bucket).to_owned(), counts.deleted_total()));
        deleted.filter(|(_, deleted)| *deleted > 0).collect()
    }
}
