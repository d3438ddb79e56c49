//! `janitor cleanup` and `janitor repair`: the jobs of the functions; a dry run without `--apply`.

use std::io;

use jobs::cleanup::{self, Cleanup};
use jobs::repair::Repair;
use jobs::run::clock::Progress;
use jobs::run::listing::{Listed, Listing};
use jobs::run::report::{Outcome, RunReport, Tally};
use jobs::run::{self, Job};
use serde_json::{Value, json};
use shared::settings::{ExpiredRows, Mode, Purpose, Settings};

use super::stop_on_signals;
use crate::args::{Common, DeleteArgs};
use crate::console::Console;
use crate::fail::{DONE, Failure, UNFINISHED};
use crate::flags::in_flags;
use crate::progress::at_pace;
use crate::screen::{age, count_of, counted, grouped, reasons, seconds, took, units};
use crate::target::{Place, Target};

/// Rows that `--list` shows without `--limit`.
const LISTED: usize = 100;

/// The job to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    Cleanup,
    Repair,
}

impl Which {
    pub(crate) fn name(self) -> &'static str {
        self.purpose().name()
    }

    pub(crate) fn purpose(self) -> Purpose {
        match self {
            Which::Cleanup => Purpose::Cleanup,
            Which::Repair => Purpose::Repair,
        }
    }

    pub(crate) fn answer(self, report: &RunReport) -> Value {
        match self {
            Which::Cleanup => json!(Cleanup::answer(report)),
            Which::Repair => json!(Repair::answer(report)),
        }
    }

    /// One run, in the given mode.
    pub(crate) async fn run(self, target: &Target, settings: &Settings, mode: Mode) -> Result<RunReport, Failure> {
        let settings = Settings { mode, ..settings.clone() };
        let table = target.open().await?;
        let report = match self {
            Which::Cleanup => run::run(&table, &Cleanup, &settings, table.clock()).await,
            Which::Repair => run::run(&table, &Repair::new(&settings), &settings, table.clock()).await,
        };
        Ok(report?)
    }
}

/// # Errors
/// When the run failed, or was not confirmed.
pub async fn run(which: Which, common: &Common, options: &DeleteArgs, console: &mut Console) -> Result<u8, Failure> {
    let screen = console.screen;
    console.require_prompt(options.applying)?;
    let target = Target::new(common, which.purpose()).await?;
    let run = |mode| Box::pin(which.run(&target, &target.settings, mode));
    let table = target.open().await?;
    let place = target.place(&table);
    let verb = verb(&target.settings);
    stop_on_signals(target.watch);
    if options.list {
        let limit = options.limit.map_or(LISTED, usize::from);
        let (bucket, owner) = (options.bucket.clone(), options.owner.clone());
        target.watch.list(Listing { bucket, owner, limit, ..Listing::default() });
    }
    if options.applying.apply && !options.applying.yes {
        // Fails early, before the plan is made and confirmed.
        run::check_lease(&table, table.clock()).await?;
    }
    if !options.applying.yes {
        let dry = screen.with_progress(which.name(), target.watch, run(Mode::DryRun)).await?;
        let listing = target.watch.progress().listing;
        if screen.json {
            let mut answer = which.answer(&dry);
            if let Some(Listing { rows, matching, .. }) = &listing {
                answer["list"] = json!({"matching": matching, "rows": rows});
            }
            console.line(answer)?;
            return Ok(code(&dry));
        }
        print_text(which, &dry, verb, &place, console)?;
        if let Some(listing) = listing {
            print_list(&listing, dry.now, console)?;
        }
        let may_go_on = dry.counts.rows_disposed() > 0 && code(&dry) == DONE && !target.watch.is_stopped();
        if may_go_on && !options.applying.apply {
            console.hint(&format!("Nothing was {verb}d. To {verb} these rows, run the command again with --apply."))?;
        }
        if !may_go_on || !options.applying.apply {
            return Ok(code(&dry));
        }
        target.watch.plan();
        ask(&dry, &target, &place, console).await?;
    }
    let past = format!("{verb}d");
    let report = screen.with_progress_of(&past, which.name(), target.watch, run(Mode::Delete)).await?;
    console.answer(&which.answer(&report), |console| print_text(which, &report, verb, &place, console))?;
    Ok(code(&report))
}

/// The verb for what a run does with dead rows; a `d` appended makes the past tense.
pub(crate) fn verb(settings: &Settings) -> &'static str {
    match settings.expired_rows {
        ExpiredRows::Delete => "delete",
        ExpiredRows::Retire => "retire",
    }
}

/// Says what will happen, and asks for confirmation.
async fn ask(dry: &RunReport, target: &Target, place: &Place, console: &mut Console) -> Result<(), Failure> {
    let (rows, verb) = (count_of(dry.counts.rows_disposed(), "row"), verb(&target.settings));
    let Progress { dead_units, write_pace, .. } = target.watch.progress();
    let at = write_pace.map_or_else(String::new, |pace| format!(", at most {} per second", units(pace)));
    // The real run reads the rows again while the writes keep to the pace.
    let took = seconds(at_pace(dead_units, write_pace).max(dry.elapsed_ms.div_ceil(1_000)));
    let afterwards = match target.settings.expired_rows {
        ExpiredRows::Delete => "",
        ExpiredRows::Retire => " Until DynamoDB removes them, `janitor restore` can restore them.",
    };
    let what = format!(
        "This will {verb} {rows} of {place}. It will use about {}{at}, and take about {took}.{afterwards}",
        count_of(dead_units, "write unit")
    );
    let (them, nothing) = (format!("{verb} them"), format!("nothing was {verb}d"));
    console.confirm(&what, &them, &nothing, target.watch).await
}

/// A run that reached `--max-deletes` is done; any other incomplete run is unfinished.
fn code(report: &RunReport) -> u8 {
    match report.outcome {
        Outcome::Complete | Outcome::EmptyTable | Outcome::MaxDeletes => DONE,
        Outcome::OutOfTime
        | Outcome::Stopped
        | Outcome::Skipped
        | Outcome::Unrecorded
        | Outcome::LeaseHeld
        | Outcome::Paused
        | Outcome::Failed => UNFINISHED,
    }
}

fn print_text(which: Which, report: &RunReport, verb: &str, place: &Place, console: &mut Console) -> io::Result<()> {
    let dry = report.mode == Mode::DryRun;
    let job = match which {
        Which::Cleanup => "cleanup",
        Which::Repair => "index repair",
    };
    let dry_run = if dry { " (dry run)" } else { "" };
    console.head(&format!("{job}{dry_run} of {}", place.head()))?;
    let counts = &report.counts;
    let line =
        |name: &str, read: u64, deleted: u64, why: String| vec![name.to_owned(), grouped(read), grouped(deleted), why];
    let mut rows: Vec<Vec<String>> = counts
        .buckets()
        .iter()
        .map(|(name, counts)| {
            let ended = if counts.retired.is_empty() { &counts.deleted } else { &counts.retired };
            let kept = (!counts.kept.is_empty()).then(|| format!("kept: {}", reasons(&counts.kept)));
            let why: Vec<String> = (!ended.is_empty()).then(|| reasons(ended)).into_iter().chain(kept).collect();
            line(name, counts.read, counts.deleted_total() + counts.retired_total(), why.join(" | "))
        })
        .collect();
    if counts.rows_unknown() > 0 {
        rows.push(line("unknown", counts.rows_unknown(), 0, "never touched".to_owned()));
    }
    rows.push(line("all", counts.rows_read(), counts.rows_disposed(), String::new()));
    let (column, done) =
        if dry { (format!("to {verb}"), format!("would {verb}")) } else { (format!("{verb}d"), format!("{verb}d")) };
    console.table(&["bucket", "read", &column, "why"], &rows)?;
    if let Some(next) = &report.next {
        console.say("not reached: ", &not_reached(which, next, counts, place))?;
    }
    let usage = &report.usage;
    let (ended, read) = (grouped(counts.rows_disposed()), grouped(counts.rows_read()));
    console.line(format_args!("\n{done} {ended} of {read} rows read"))?;
    let estimated = if usage.write_units_estimated { " (partly estimated from row sizes)" } else { "" };
    let (requests, took) = (grouped(usage.requests), took(report.elapsed_ms));
    let (read, write) = (units(usage.read_units), units(usage.write_units));
    console.say("used ", &format!("{read} read and {write} write units{estimated}, {requests} requests, {took}"))?;
    console.row_counts(&[
        (counts.lost_races(), "changed in the meantime and were kept"),
        (counts.rows_skipped(), "could not be read or deleted"),
    ])?;
    if let Some(findings) = report.findings.as_object() {
        let found = findings.iter().filter_map(|(name, n)| Some((n.as_u64()?, name.replace('_', " "))));
        console.say("found: ", &counted(found))?;
    }
    report.notes.iter().try_for_each(|note| console.warn("note: ", &in_flags(note)))
}

fn print_list(listing: &Listing, now: i64, console: &mut Console) -> io::Result<()> {
    let line = |row: &Listed| {
        let age = row.created_at.map_or_else(String::new, |at| age(at, now));
        vec![row.bucket.to_owned(), age, row.reason.replace('_', " "), row.owner.clone(), row.name.clone()]
    };
    let rows: Vec<Vec<String>> = listing.rows.iter().map(line).collect();
    console.line("")?;
    console.table(&["bucket", "age", "reason", "owner", "name"], &rows)?;
    let (listed, matching) = (rows.len() as u64, listing.matching);
    let more = if listed < matching { ": --limit, --bucket and --owner show others" } else { "" };
    console.line(format_args!("\nlisted {} of {} rows{more}", grouped(listed), grouped(matching)))
}

/// The rows that a stopped run did not reach. The table's row count is DynamoDB's, up to six hours old.
fn not_reached(which: Which, next: &Value, counts: &Tally, place: &Place) -> String {
    match which {
        Which::Cleanup => format!("the rest of {}", cleanup::not_reached(next).join(", ")),
        Which::Repair => {
            let left = place.rows.saturating_sub(counts.rows_read());
            format!("about {} of the table's {} rows", grouped(left), grouped(place.rows))
        }
    }
}
