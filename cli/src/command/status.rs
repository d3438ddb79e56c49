//! `janitor status`: the table and its runs on one screen.

use std::io;

use jobs::status::{self, RunSummary, Status};
use shared::settings::Purpose;

use super::audit::in_words;
use super::stop_on_signals;
use crate::args::Common;
use crate::console::Console;
use crate::fail::{DONE, Failure};
use crate::screen::{age, grouped, seconds};
use crate::target::{Place, Target};

/// # Errors
/// When the table could not be read.
pub async fn status(common: &Common, console: &mut Console) -> Result<u8, Failure> {
    let target = Target::new(common, Purpose::Metrics).await?;
    let table = target.open_to_read().await?;
    stop_on_signals(target.watch);
    let work = Box::pin(status::status(&table, &target.settings, table.clock()));
    let status = console.screen.with_progress("status", target.watch, work).await?;
    console.answer(&status, |console| print_text(&status, &target.place(&table), console))?;
    Ok(DONE)
}

fn print_text(status: &Status, place: &Place, console: &mut Console) -> io::Result<()> {
    console.head(&place.head())?;
    let pause = status.pause.as_ref().map_or_else(|| "not paused".to_owned(), ToString::to_string);
    let lease = status.lease.as_ref().map_or_else(
        || "free: no run in progress".to_owned(),
        |held| format!("held by {} for another {} s unless renewed", held.by, held.seconds),
    );
    let backlog = match (status.backlog, status.backlog_error) {
        (None, _) => "not counted".to_owned(),
        (Some(0), _) => "no rows of the system actors".to_owned(),
        (Some(rows), error) => {
            let about = error.map_or_else(String::new, |error| format!(" (estimated, ±{:.0} %)", error * 100.0));
            let trend = in_words(status.trend, status.days_until_clear);
            format!("{} rows of the system actors{about}; it {trend}", grouped(rows))
        }
    };
    let mut lines = vec![
        ("TTL", status.ttl.replace('-', " ")),
        ("recovery", format!("point-in-time recovery is {}", status.recovery.replace('-', " "))),
        ("pause", pause),
        ("lease", lease),
        ("backlog", backlog),
    ];
    lines.extend(status.runs.iter().map(|(name, run)| (*name, last(run.as_ref(), status.now))));
    for (name, text) in lines {
        console.say(&format!("{name:<15}"), &text)?;
    }
    if !status.findings.is_empty() {
        console.line("")?;
    }
    status.findings.iter().try_for_each(|finding| console.warn("finding: ", &finding.text))
}

fn last(run: Option<&RunSummary>, now: i64) -> String {
    let Some(run) = run else { return "no deleting run recorded yet".to_owned() };
    let ago = age(run.at, now);
    let next = run.next_at.saturating_sub(now);
    let next = match u64::try_from(next) {
        Ok(seconds_left) => format!("next expected in {}", seconds(seconds_left)),
        Err(_) => format!("next was expected {} ago", seconds(next.unsigned_abs())),
    };
    let incomplete = match run.consecutive_incomplete_runs {
        0 => String::new(),
        1 => ", 1 incomplete run".to_owned(),
        runs => format!(", {runs} consecutive incomplete runs"),
    };
    format!(
        "{} {ago} ago, deleted {} of {} rows{incomplete}; {next}",
        run.outcome,
        grouped(run.deleted),
        grouped(run.read)
    )
}
