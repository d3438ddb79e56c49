//! One segment of an execution, over as many runs as it needs: the answer of one run is the event of the next.
//!
//! No row, no name, no secret: the cursor holds no more of a token than a state row's does.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::check_lease;
use crate::run::Job;
use crate::run::report::{Outcome, RunReport, Totals};
use shared::bucket::BUCKETS;
use shared::segment::Segment;

/// A segment, its progress and its totals so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SegmentRun {
    pub index: u16,
    pub count: u16,
    /// How many segments run concurrently: they share the pace.
    pub concurrency: Option<u16>,
    /// The lease that the segments of one execution share; without it a run acquires one of its own.
    pub lease: Option<String>,
    /// Where the next run continues; null is the beginning.
    pub cursor: Value,
    pub done: bool,
    /// Ended by a pause: not done, and not continued.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    pub totals: Totals,
}

impl SegmentRun {
    pub fn segment(&self) -> Result<Segment, String> {
        if self.concurrency.is_some_and(|runs| !(1..=Segment::MOST).contains(&runs)) {
            return Err(format!("concurrency must be from 1 to {}", Segment::MOST));
        }
        if let Some(lease) = &self.lease {
            check_lease(lease)?;
        }
        Segment::new(self.index, self.count)
            .ok_or_else(|| format!("index must be at least 0 and below count, and count from 1 to {}", Segment::MOST))
    }

    /// Checks the fields of an event. Names appear in logs and in a state row, and an event may hold any text: only names
    /// of buckets and of the job's findings are kept.
    pub(super) fn check<J: Job>(&mut self) -> Result<(), String> {
        let Totals { deleted_in, found, .. } = &mut self.totals;
        deleted_in.retain(|name, _| BUCKETS.iter().any(|bucket| bucket.name == name));
        let findings = json!(J::Findings::default());
        found.retain(|name, _| findings.get(name).is_some());
        self.segment().map(drop)
    }

    /// Limits the concurrency to the number of segments.
    pub fn sharing(self) -> Self {
        let concurrency = self.concurrency.map(|runs| runs.min(self.count));
        Self { concurrency, ..self }
    }

    pub fn after(&self, report: &RunReport) -> Self {
        let mut totals = self.totals.clone();
        totals.add(&Totals::of(report));
        let paused = report.outcome == Outcome::Paused;
        // A run that did not start has no cursor: the last one is kept.
        let cursor = report.next.clone().or_else(|| paused.then(|| self.cursor.clone()));
        Self { done: cursor.is_none(), cursor: cursor.unwrap_or_default(), paused, totals, ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{SegmentRun, Totals};

    #[test]
    fn totals_saturate() {
        let most: Totals =
            serde_json::from_value(json!({"deleted": u64::MAX, "found": {"legacy_rows": u64::MAX}})).unwrap();
        let mut sum = most.clone();
        sum.add(&most);
        assert_eq!((sum.deleted, sum.found["legacy_rows"]), (u64::MAX, u64::MAX));
    }

    #[test]
    fn no_more_runs_share_the_pace_than_there_are_segments() {
        for (concurrency, segments, sharing) in [(4, 2, 2), (2, 4, 2), (4, 4, 4)] {
            let run = SegmentRun { count: segments, concurrency: Some(concurrency), ..SegmentRun::default() };
            assert_eq!(run.sharing().concurrency, Some(sharing));
        }
        assert_eq!(SegmentRun { count: 2, ..SegmentRun::default() }.sharing().concurrency, None);
    }
}
