//! One segment's work, which takes as many runs as it takes: what one of them answers is what the next one is sent.
//!
//! No row, no name, no secret: the cursor holds no more of a token than a state row's does.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::run::report::RunReport;
use shared::bucket::BUCKETS;
use shared::segment::Segment;

/// A segment, how far it is, and what has come of it so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SegmentRun {
    pub index: u16,
    pub count: u16,
    /// How many parts run at a time: they share the pace.
    pub concurrency: Option<u16>,
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
    #[serde(deserialize_with = "of_buckets")]
    pub deleted_in: BTreeMap<String, u64>,
    /// What the runs found beside, by kind.
    #[serde(deserialize_with = "of_kinds")]
    pub found: BTreeMap<String, u64>,
}

/// What the repair finds beside the rows that it deletes, in the order of its findings.
pub(crate) const KINDS: [&str; 5] =
    ["stranded_clients", "restored_clients", "legacy_rows", "absent_actors", "rows_of_absent_actors"];

/// The names go into logs and into a state row: what comes in with an event may be any text, and only ours is kept.
fn of_buckets<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, u64>, D::Error> {
    named(from, |name| BUCKETS.iter().any(|bucket| bucket.name == name))
}

fn of_kinds<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, u64>, D::Error> {
    named(from, |name| KINDS.contains(&name))
}

fn named<'de, D: Deserializer<'de>>(from: D, known: fn(&str) -> bool) -> Result<BTreeMap<String, u64>, D::Error> {
    let mut counts = BTreeMap::deserialize(from)?;
    counts.retain(|name: &String, _| known(name));
    Ok(counts)
}

impl SegmentRun {
    /// # Errors
    /// What is wrong with it, in words.
    pub fn segment(&self) -> Result<Segment, String> {
        if self.concurrency.is_some_and(|parts| !(1..=Segment::MOST).contains(&parts)) {
            return Err(format!("concurrency must be from 1 to {}", Segment::MOST));
        }
        if let Some(lease) = &self.lease {
            check_lease(lease)?;
        }
        Segment::new(self.index, self.count)
            .ok_or_else(|| format!("index must be at least 0 and below count, and count from 1 to {}", Segment::MOST))
    }

    /// How many runs share the pace: no more than there are segments.
    pub fn sharing(self) -> Self {
        let concurrency = self.concurrency.map(|runs| runs.min(self.count));
        Self { concurrency, ..self }
    }

    /// The part after a run of it.
    pub fn after(&self, report: &RunReport) -> Self {
        let mut totals = self.totals.clone();
        totals.add(&Totals::of(report));
        let cursor = report.next.clone();
        Self { done: cursor.is_none(), cursor: cursor.unwrap_or_default(), totals, ..self.clone() }
    }
}

/// An execution is shown in logs and stored: only the characters that Step Functions allows in one. Its ARN identifies it;
/// other state machines may have executions of the same name.
pub fn check_lease(lease: &str) -> Result<(), String> {
    let plain = |part: &str| {
        (1..=80).contains(&part.len())
            && part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'))
    };
    let parts: Vec<&str> = lease.split(':').collect();
    let is_execution = matches!(
        parts.as_slice(),
        [_] | ["arn", _, "states", _, _, "execution", _, _] | ["arn", _, "states", _, _, "express", _, _, _]
    );
    if is_execution && parts.into_iter().all(plain) && lease.len() <= 256 {
        Ok(())
    } else {
        Err("lease must be the ARN or the name of an execution: letters, digits, _ - . only".to_owned())
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
        self.runs = self.runs.saturating_add(other.runs);
        self.read = self.read.saturating_add(other.read);
        self.deleted = self.deleted.saturating_add(other.deleted);
        self.lost_race = self.lost_race.saturating_add(other.lost_race);
        self.skipped = self.skipped.saturating_add(other.skipped);
        self.uncertain = self.uncertain.saturating_add(other.uncertain);
        self.read_units += other.read_units;
        self.write_units += other.write_units;
        self.requests = self.requests.saturating_add(other.requests);
        self.throttles = self.throttles.saturating_add(other.throttles);
        self.elapsed_ms = self.elapsed_ms.saturating_add(other.elapsed_ms);
        for (sum, more) in [(&mut self.deleted_in, &other.deleted_in), (&mut self.found, &other.found)] {
            for (name, n) in more {
                let sum = sum.entry(name.clone()).or_default();
                *sum = sum.saturating_add(*n);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{SegmentRun, Totals, check_lease};

    #[test]
    fn a_lease_is_an_execution_by_its_name_or_its_arn() {
        let arn = "arn:aws:states:eu-north-1:123456789012:execution:app-backlog:run-1";
        let express = "arn:aws-cn:states:cn-north-1:123456789012:express:app_b:run.1:5f0c2a7e-0000";
        for good in ["run-1", "a.b_C-9", arn, express, &"n".repeat(80)] {
            assert_eq!(check_lease(good), Ok(()), "{good}");
        }
        for bad in [
            "",
            "run 1",
            "a:b",
            "arn:aws:s3:::bucket",
            "arn:aws:states:eu-north-1:123456789012:stateMachine:app",
            "arn:aws:states:eu-north-1:123456789012:execution:app:",
            "arn:aws:states:eu-north-1:123456789012:execution:app:run:x y",
            &format!("{arn}{}", "n".repeat(300)),
            &"n".repeat(81),
        ] {
            assert!(check_lease(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn only_names_that_are_ours_are_kept() {
        let secret = "aw_Zk3vT9q0pXy7LrWm2Nb8Hs4Jd6Fg1Ac5Eu0Io9Ty3B";
        let text = json!({"deleted_in": {(secret): 1, "mcp_tokens": 2}, "found": {(secret): 1, "legacy_rows": 3}});
        let totals: Totals = serde_json::from_value(text).unwrap();
        assert_eq!(json!(totals.deleted_in), json!({"mcp_tokens": 2}));
        assert_eq!(json!(totals.found), json!({"legacy_rows": 3}));
    }

    #[test]
    fn totals_that_are_too_large_are_as_large_as_can_be() {
        let most: Totals =
            serde_json::from_value(json!({"deleted": u64::MAX, "found": {"legacy_rows": u64::MAX}})).unwrap();
        let mut sum = most.clone();
        sum.add(&most);
        assert_eq!((sum.deleted, sum.found["legacy_rows"]), (u64::MAX, u64::MAX));
    }

    #[test]
    fn no_more_parts_share_the_pace_than_there_are_segments() {
        for (concurrency, segments, sharing) in [(4, 2, 2), (2, 4, 2), (4, 4, 4)] {
            let part = SegmentRun { count: segments, concurrency: Some(concurrency), ..SegmentRun::default() };
            assert_eq!(part.sharing().concurrency, Some(sharing));
        }
        assert_eq!(SegmentRun { count: 2, ..SegmentRun::default() }.sharing().concurrency, None);
    }
}
