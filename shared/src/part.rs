//! One segment's work, which takes as many runs as it takes: what one of them answers is what the next one is asked.
//!
//! No row, no name, no secret: the cursor holds no more of a token than a state row's does.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::report::RunReport;
use crate::segment::Segment;

/// A segment, how far it is, and what has come of it so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Part {
    pub segment: u16,
    pub segments: u16,
    /// How many parts run at a time: they share the pace.
    pub side_by_side: Option<u16>,
    /// The lease that the parts of one execution share; without it a part takes one of its own.
    pub lease: Option<String>,
    /// Where to go on; null is the beginning.
    pub cursor: Value,
    pub done: bool,
    pub totals: Totals,
}

/// What runs came to, added up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Totals {
    pub runs: u64,
    pub read: u64,
    pub deleted: u64,
    pub lost_race: u64,
    pub skipped: u64,
    pub uncertain: u64,
    pub read_units: f64,
    pub write_units: f64,
    pub requests: u64,
    pub throttles: u64,
    /// Of all runs together, also of those side by side.
    pub elapsed_ms: u64,
    /// Rows deleted by bucket, where there were any.
    pub deleted_in: BTreeMap<String, u64>,
    /// What the runs found beside, by kind.
    pub found: BTreeMap<String, u64>,
}

impl Part {
    /// # Errors
    /// What is wrong with it, in words.
    pub fn segment(&self) -> Result<Segment, String> {
        if self.side_by_side.is_some_and(|parts| !(1..=Segment::MOST).contains(&parts)) {
            return Err(format!("side_by_side must be from 1 to {}", Segment::MOST));
        }
        if let Some(lease) = &self.lease {
            check_lease(lease)?;
        }
        Segment::new(self.segment, self.segments).ok_or_else(|| {
            format!("segment must be from 0 up and below segments, and segments from 1 to {}", Segment::MOST)
        })
    }

    /// The part after a run of it.
    #[must_use]
    pub fn after(&self, report: &RunReport) -> Self {
        let mut totals = self.totals.clone();
        totals.add(&Totals::of(report));
        let cursor = report.next.clone();
        Self { done: cursor.is_none(), cursor: cursor.unwrap_or_default(), totals, ..self.clone() }
    }
}

/// An execution's name is shown in logs and stored: only what Step Functions takes for one.
///
/// # Errors
/// What is wrong with it, in words.
pub fn check_lease(lease: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if (1..=80).contains(&lease.len()) && lease.chars().all(plain) {
        Ok(())
    } else {
        Err("lease must be the name of an execution: 1 to 80 letters, digits, _ - . only".to_owned())
    }
}

impl Totals {
    fn of(report: &RunReport) -> Self {
        let counts = &report.counts;
        let deleted_in = counts.buckets().iter().map(|(bucket, counts)| ((*bucket).to_owned(), counts.deleted_total()));
        let found = report.findings.as_object().into_iter().flatten();
        Self {
            runs: 1,
            read: counts.rows_read(),
            deleted: counts.rows_deleted(),
            lost_race: counts.lost_races(),
            skipped: counts.rows_skipped(),
            uncertain: counts.uncertain(),
            read_units: report.usage.read_units,
            write_units: report.usage.write_units,
            requests: report.usage.requests,
            throttles: report.usage.throttles,
            elapsed_ms: report.elapsed_ms,
            deleted_in: deleted_in.filter(|(_, deleted)| *deleted > 0).collect(),
            found: found.filter_map(|(kind, n)| Some((kind.clone(), n.as_u64()?))).collect(),
        }
    }

    pub fn add(&mut self, other: &Totals) {
        self.runs += other.runs;
        self.read += other.read;
        self.deleted += other.deleted;
        self.lost_race += other.lost_race;
        self.skipped += other.skipped;
        self.uncertain += other.uncertain;
        self.read_units += other.read_units;
        self.write_units += other.write_units;
        self.requests += other.requests;
        self.throttles += other.throttles;
        self.elapsed_ms += other.elapsed_ms;
        for (sum, more) in [(&mut self.deleted_in, &other.deleted_in), (&mut self.found, &other.found)] {
            for (name, n) in more {
                *sum.entry(name.clone()).or_default() += n;
            }
        }
    }
}
