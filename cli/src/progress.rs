//! The progress of a run and its remaining time. Pure: `screen` shows them.

use std::time::Duration;

use jobs::run::clock::{Progress, Rows};

use crate::screen::{counted, grouped, seconds};

/// The lowest rate, per second, that gives an estimate.
const MIN_RATE: f64 = 0.01;
/// Indentation of continuation lines.
const INDENT: &str = "  ";

/// How much is done, and of how much: of the deletes if they are planned, otherwise of the rows to read.
pub fn done(Progress { rows, plan, expected, .. }: &Progress) -> (u64, u64) {
    match plan {
        Some(plan) if plan.dead > 0 => (rows.deleted, plan.dead),
        Some(plan) => (rows.read, plan.read),
        None => (rows.read, *expected),
    }
}

/// The progress in words, the most important first. `past` is what is done with dead rows, such as `deleted`.
pub fn parts(progress: &Progress, past: &str, took: Duration) -> Vec<String> {
    let Progress { rows, plan, .. } = progress;
    let mut parts = Vec::new();
    if rows.deleted > 0 || plan.is_some() {
        let of = plan.map_or_else(String::new, |plan| format!(" of {}", grouped(plan.dead)));
        parts.push(format!("{}{of} {past}", grouped(rows.deleted)));
    }
    parts.extend(left(progress, took).map(|left| {
        let bound = if plan.is_none() { "at most " } else { "" };
        format!("{bound}{} left", seconds(left))
    }));
    parts.push(format!("{} read", grouped(rows.read)));
    if rows.dead > 0 {
        parts.push(format!("{} dead", grouped(rows.dead)));
    }
    let (done, what) = if rows.deleted > 0 { (rows.deleted, past) } else { (rows.read, "read") };
    parts.push(format!("{} {what}/s", shown(rate(done, took))));
    parts
}

/// The rows of each bucket, the latest bucket first; buckets with dead rows come before the others, because reads are ahead
/// of deletes.
pub fn buckets(progress: &Progress, past: &str) -> Vec<String> {
    let text = |(name, rows): &(&str, Rows)| {
        // A row that another row points at is counted as read after its delete, when its piece of work is done.
        let counts = [(rows.read, "read"), (rows.dead, "dead"), (rows.deleted, past)];
        format!("{name} {}", counted(counts.into_iter().filter(|(n, _)| *n > 0)))
    };
    let mut buckets: Vec<&(&str, Rows)> = progress.buckets.iter().rev().collect();
    buckets.sort_by_key(|(_, rows)| rows.dead + rows.deleted == 0);
    buckets.into_iter().map(text).collect()
}

/// The parts on as many lines as needed, the first after `lead` columns; then one line with the buckets that fit.
pub fn lines(parts: &[String], buckets: &[String], lead: usize, width: usize) -> String {
    let (mut text, mut rest) = fill(parts, ", ", width.saturating_sub(lead));
    while !rest.is_empty() {
        let (line, after) = fill(rest, ", ", width.saturating_sub(INDENT.len()));
        text.push_str(&format!("\n{INDENT}{line}"));
        rest = after;
    }
    if !buckets.is_empty() {
        text.push_str(&format!("\n{INDENT}{}", fill(buckets, "; ", width.saturating_sub(INDENT.len())).0));
    }
    text
}

/// A line of as many items as fit, at least one; and the remaining items.
fn fill<'a>(items: &'a [String], separator: &str, width: usize) -> (String, &'a [String]) {
    let fits = |n: &usize| *n == 1 || items[..*n].join(separator).chars().count() <= width;
    let (line, rest) = items.split_at((1..=items.len()).take_while(fits).count());
    (line.join(separator), rest)
}

/// Seconds that write units take at a pace.
#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "shown only")]
pub fn at_pace(units: u64, pace: Option<f64>) -> u64 {
    pace.map_or(0, |pace| (units as f64 / pace.max(MIN_RATE)).ceil() as u64)
}

/// The remaining seconds of the reads or the deletes, whichever take longer. The rate of deletes is limited to the pace:
/// the burst at the start is faster.
#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "shown only")]
fn left(progress: &Progress, took: Duration) -> Option<u64> {
    let Progress { rows, plan, expected, .. } = progress;
    // Without a plan, every row may have to be deleted.
    let dead = if rows.deleted > 0 { *expected } else { 0 };
    let plan = plan.unwrap_or(Rows { read: *expected, dead, deleted: 0 });
    let open = |wanted: u64, done: u64, rate: f64| {
        let rows = wanted.saturating_sub(done);
        (rows > 0 && rate >= MIN_RATE).then(|| (rows as f64 / rate).ceil() as u64)
    };
    let pace = progress.write_pace.unwrap_or(f64::INFINITY);
    let deleting = if rows.deleted > 0 { rate(rows.deleted, took).min(pace) } else { pace };
    open(plan.read, rows.read, rate(rows.read, took)).max(open(plan.dead, rows.deleted, deleting))
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

    use super::{at_pace, buckets, done, lines, parts};
    use jobs::run::clock::{Progress, Rows};

    fn shown(progress: &Progress, took: u64) -> String {
        parts(progress, "deleted", Duration::from_secs(took)).join(", ")
    }

    fn read(read: u64) -> Rows {
        Rows { read, ..Rows::default() }
    }

    /// A table of two write units per second: the rows are read, and 900 deletes wait for the pace.
    fn slow() -> Progress {
        Progress {
            rows: Rows { deleted: 100, ..read(1_000) },
            buckets: vec![("mcp_tokens", Rows { deleted: 100, ..read(800) }), ("spa_access_tokens", read(200))],
            plan: Some(Rows { dead: 1_000, ..read(1_000) }),
            write_pace: Some(1.0),
            expected: 5_000,
            ..Progress::default()
        }
    }

    #[test]
    fn deletes_at_a_slow_pace_are_progress() {
        assert_eq!(done(&slow()), (100, 1_000));
        assert_eq!(
            shown(&slow(), 50),
            "100 of 1,000 deleted, 15 min 0 s left, 1,000 read, 2.0 deleted/s",
            "the burst of the first second is not the pace"
        );
        let begun = Progress { rows: read(1_000), ..slow() };
        assert_eq!(shown(&begun, 1), "0 of 1,000 deleted, 16 min 40 s left, 1,000 read, 1,000 read/s");
    }

    #[test]
    fn a_dry_run_reads_at_most_the_table() {
        let rows = Rows { dead: 968, ..read(2_000) };
        let dry = Progress { rows, buckets: vec![("mcp_tokens", rows)], expected: 5_000, ..Progress::default() };
        assert_eq!(done(&dry), (2_000, 5_000));
        assert_eq!(shown(&dry, 2), "at most 3 s left, 2,000 read, 968 dead, 1,000 read/s");
        assert_eq!(buckets(&dry, "deleted"), ["mcp_tokens 2,000 read, 968 dead"]);
    }

    #[test]
    fn deletes_without_a_plan_take_at_most_as_long_as_the_whole_table() {
        let unplanned = Progress { plan: None, ..slow() };
        assert_eq!(shown(&unplanned, 50), "100 deleted, at most 1 h 21 min left, 1,000 read, 2.0 deleted/s");
    }

    #[test]
    fn nothing_is_cut_off_and_a_bucket_with_deletes_is_shown_first() {
        let (parts, buckets) = (parts(&slow(), "deleted", Duration::from_secs(50)), buckets(&slow(), "deleted"));
        let at = |width| lines(&parts, &buckets, "cleanup [==========] ".len(), width);
        let narrow =
            "100 of 1,000 deleted, 15 min 0 s left\n  1,000 read, 2.0 deleted/s\n  mcp_tokens 800 read, 100 deleted";
        assert_eq!(at(60), narrow);
        let wide = "100 of 1,000 deleted, 15 min 0 s left, 1,000 read, 2.0 deleted/s\n  mcp_tokens 800 read, 100 deleted; \
                    spa_access_tokens 200 read";
        assert_eq!(at(100), wide);
        assert_eq!(lines(&parts[..1], &[], 0, 10), "100 of 1,000 deleted", "what does not fit is shown all the same");
    }

    #[test]
    fn a_run_takes_as_long_as_its_pace_says() {
        assert_eq!((at_pace(968, Some(1.0)), at_pace(968, Some(500.0)), at_pace(968, None)), (968, 2, 0));
    }
}
