//! A masked sample of the rows that a dry run would delete, to review before a run that deletes.

use serde::Serialize;

use shared::disposal::Condemned;
use shared::mask::Masked;

/// A filter, and the rows that match it, up to `limit`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    pub bucket: Option<String>,
    pub owner: Option<String>,
    pub limit: usize,
    pub rows: Vec<Listed>,
    /// Rows that match, listed or not.
    pub matching: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Listed {
    pub bucket: &'static str,
    pub reason: &'static str,
    /// From the row's own field or its TTL.
    pub created_at: Option<i64>,
    /// Masked, like the name.
    pub owner: String,
    pub name: String,
}

impl Listing {
    pub(super) fn add(&mut self, condemned: &Condemned) {
        let (row, bucket) = (condemned.row(), condemned.bucket());
        let is_wanted = |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|wanted| wanted == found);
        if !is_wanted(&self.bucket, bucket.name) || !is_wanted(&self.owner, &row.key.owner) {
            return;
        }
        self.matching += 1;
        if self.rows.len() < self.limit {
            self.rows.push(Listed {
                bucket: bucket.name,
                reason: condemned.reason().name(),
                created_at: row.created_at(bucket).map(shared::time::EpochSeconds::get),
                owner: Masked(&row.key.owner).to_string(),
                name: Masked(row.name_in(bucket).unwrap_or_default()).to_string(),
            });
        }
    }
}
