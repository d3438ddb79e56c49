//! How far a run is, and for how long it will go on. Pure: `screen` shows it.

use std::time::Duration;

use jobs::run::clock::Progress;

use crate::screen::{grouped, seconds};

/// A share below which nothing is known of a rate.
const LEAST_RATE: f64 = 0.01;

/// The share that is done, of the deletes if they are planned, else of the rows to read.
pub fn done(progress: &Progress) -> (u64, u64) {
    match progress.plan {
        Some((_, deletes)) if deletes > 0 => (progress.deleted, deletes),
        Some((reads, _)) => (progress.read, reads),
        None => (progress.read, progress.expected),
    }
}

/// In words: the most important first, because a narrow screen cuts the rest off.
pub fn line(progress: &Progress, took: Duration) -> String {
    let mut parts = Vec::new();
    let of = |planned: Option<u64>| planned.map_or_else(String::new, |n| format!(" of {}", grouped(n)));
    if progress.deleted > 0 || progress.plan.is_some() {
        parts.push(format!("{}{} deleted", grouped(progress.deleted), of(progress.plan.map(|plan| plan.1))));
    }
    parts.push(format!("{} read", grouped(progress.read)));
    if progress.dead > 0 {
        parts.push(format!("{} dead", grouped(progress.dead)));
    }
    parts.extend(left(progress, took).map(|left| {
        let bound = if progress.plan.is_none() { "at most " } else { "" };
        format!("{bound}{} left", seconds(left))
    }));
    let deletes = progress.deleted > 0;
    let rate = rate(if deletes { progress.deleted } else { progress.read }, took);
    parts.push(format!("{} {}/s", shown(rate), if deletes { "deletes" } else { "rows" }));
    parts.extend(progress.bucket.map(|bucket| format!("at {bucket}")));
    parts.join(", ")
}

/// Seconds that write units take at a pace.
#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "shown only")]
pub fn at_pace(units: u64, pace: Option<f64>) -> u64 {
    pace.map_or(0, |pace| (units as f64 / pace.max(LEAST_RATE)).ceil() as u64)
}

/// Whatever takes longer, the reads or the deletes. A burst at the start is faster than the pace, which holds from then on.
#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "shown only")]
fn left(progress: &Progress, took: Duration) -> Option<u64> {
    let (reads, deletes) = progress.plan.unwrap_or((progress.expected, 0));
    let open = |wanted: u64, done: u64, rate: f64| {
        let rows = wanted.saturating_sub(done);
        (rows > 0 && rate >= LEAST_RATE).then(|| (rows as f64 / rate).ceil() as u64)
    };
    let pace = progress.write_pace.unwrap_or(f64::INFINITY);
    let deleting = if progress.deleted > 0 { rate(progress.deleted, took).min(pace) } else { pace };
    open(reads, progress.read, rate(progress.read, took)).max(open(deletes, progress.deleted, deleting))
}

#[expect(clippy::cast_precision_loss, reason = "shown only")]
fn rate(rows: u64, took: Duration) -> f64 {
    rows as f64 / took.as_secs_f64().max(0.001)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "shown only")]
fn shown(rate: f64) -> String {
    if rate < 10.0 { format!("{rate:.1}") } else { grouped(rate as u64) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{at_pace, done, line};
    use jobs::run::clock::Progress;

    const SECONDS: fn(u64) -> Duration = Duration::from_secs;

    #[test]
    fn deletes_at_a_slow_pace_are_progress() {
        // A table of two write units per second: the rows are read, and 900 deletes wait for the pace.
        let plan = Some((1_000, 1_000));
        let slow =
            Progress { read: 1_000, deleted: 100, plan, write_pace: Some(1.0), expected: 5_000, ..Progress::default() };
        assert_eq!(done(&slow), (100, 1_000));
        assert_eq!(
            line(&slow, SECONDS(50)),
            "100 of 1,000 deleted, 1,000 read, 15 min 0 s left, 2.0 deletes/s",
            "the burst of the first second is not the pace"
        );
        let begun = Progress { deleted: 0, ..slow };
        assert_eq!(line(&begun, SECONDS(1)), "0 of 1,000 deleted, 1,000 read, 16 min 40 s left, 1,000 rows/s");
    }

    #[test]
    fn a_dry_run_reads_at_most_the_table() {
        let dry =
            Progress { read: 2_000, dead: 968, expected: 5_000, bucket: Some("mcp_tokens"), ..Progress::default() };
        assert_eq!(done(&dry), (2_000, 5_000));
        assert_eq!(line(&dry, SECONDS(2)), "2,000 read, 968 dead, at most 3 s left, 1,000 rows/s, at mcp_tokens");
    }

    #[test]
    fn a_run_takes_as_long_as_its_pace_says() {
        assert_eq!((at_pace(968, Some(1.0)), at_pace(968, Some(500.0)), at_pace(968, None)), (968, 2, 0));
    }
}
