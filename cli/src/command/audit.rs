//! `janitor audit`: the measurement of the metrics job, as text or as a page.

use std::io;

use jobs::metrics::{Counts, Ended, Measurement, OwnerKind, Sampling, answer, measure, recovery_finding};
use jobs::store::{Billing, InspectRecovery};
use shared::settings::Purpose;
use shared::time::Utc;

use super::stop_on_signals;
use crate::args::{AuditArgs, Common};
use crate::console::Console;
use crate::fail::{DONE, FINDINGS, Failure, UNFINISHED};
use crate::flags::in_flags;
use crate::html;
use crate::screen::{age, count_of, counted, grouped, seconds, took, units};
use crate::target::Target;

/// # Errors
/// When the table could not be read.
pub async fn audit(common: &Common, options: &AuditArgs, console: &mut Console) -> Result<u8, Failure> {
    let screen = console.screen;
    // Before the table is read, which may be slow and expensive.
    let place = options.html.as_deref().map(html::OutputPath::new).transpose()?;
    let target = Target::new(common, Purpose::Metrics).await?;
    let table = target.open_to_read().await?;
    stop_on_signals(target.watch);
    let sampling = Sampling::at(table.clock().now());
    let work = Box::pin(measure(&table, &target.settings, table.clock(), &sampling));
    let mut measured = screen.with_progress("audit", target.watch, work).await?;
    if measured.runs.is_empty() {
        measured.findings.extend(recovery_finding(&measured, &table.recovery().await));
    }
    let report = answer(&measured);
    console.answer(&report, |console| print_text(&measured, console))?;
    if let Some(place) = place {
        place.save(&html::page(&report))?;
        let said = format!("the page is at {}", place.path.display());
        if screen.shows_hints() {
            console.line(format_args!("\n{said}"))?;
        } else if !screen.quiet {
            // Standard output holds only the JSON document.
            eprintln!("{said}");
        }
    }
    let complete = report["report"]["complete"] == true;
    Ok(match (complete, measured.findings.is_empty()) {
        (false, _) => UNFINISHED,
        (true, false) => FINDINGS,
        (true, true) => DONE,
    })
}

fn print_text(measured: &Measurement, console: &mut Console) -> io::Result<()> {
    let figures = &measured.figures;
    let billing = match figures.billing {
        Billing::OnDemand { .. } => "on demand".to_owned(),
        Billing::Provisioned { read_units, write_units } => {
            format!("provisioned: {} read and {} write units", units(read_units), units(write_units))
        }
    };
    console.line(console.screen.head(&format!("audit of table {}", measured.table)))?;
    let (rows, bytes) = (grouped(figures.rows), grouped(figures.bytes));
    console.say("", &format!("DynamoDB reports {rows} rows, {bytes} bytes (up to six hours old); {billing}"))?;
    console.line("")?;
    let is_counted = measured.ended == Ended::Complete;
    if is_counted {
        print_counts(measured, console)?;
    } else {
        console.say("", "Not all rows were counted, so no row counts are shown.")?;
    }
    console.line("")?;
    let lag = if is_counted { format!("; {}", lag(&measured.census.total())) } else { String::new() };
    console.say("TTL       ", &format!("{}{lag}", measured.ttl.into_str().replace('-', " ")))?;
    if let (true, Some(until)) = (is_counted, measured.census.total().retired_until) {
        let rows = count_of(measured.census.total().retired, "row");
        let until = Utc(until);
        let said = format!(
            "{rows}; TTL removes the last of them after {until}; until then `janitor restore` can restore them"
        );
        console.say("retired   ", &said)?;
    }
    for (name, state) in &measured.runs {
        let complete = match state.last_complete_at {
            None => "has not completed a run".to_owned(),
            Some(at) => format!("completed a run {} ago", age(at, measured.now.get())),
        };
        let last = state.last_run.as_ref().map_or_else(String::new, |run| {
            let counts = [(run.read, "read"), (run.deleted, "deleted"), (run.skipped, "skipped")];
            format!("; the last one ended {}: {}", run.outcome, counted(counts.into_iter()))
        });
        console.say("runs      ", &format!("{name} {complete}{last}"))?;
    }
    if let Some(clients) = measured.clients.as_ref().filter(|clients| clients.clients > 0) {
        let (all, unused) = (grouped(clients.clients), grouped(clients.unused));
        console.line(format_args!("clients   {all} clients, {unused} of them unused for 30 days"))?;
    }
    if is_counted {
        console.say("backlog   ", &backlog(measured))?;
        console.say("forecast  ", &forecast(measured))?;
    }
    let (read, requests) = (units(measured.usage.read_units), grouped(measured.usage.requests));
    let took = took(measured.elapsed_ms);
    console.line(format_args!("cost      {read} read units, {requests} requests, {took}\n"))?;
    if measured.findings.is_empty() {
        console.line("no findings")?;
    }
    for finding in &measured.findings {
        // Other findings are about the functions, which have settings, not flags.
        let text = if finding.kind == "not-counted" { in_flags(&finding.text) } else { finding.text.clone() };
        console.warn("finding: ", &text)?;
    }
    Ok(())
}

/// The table of buckets.
fn print_counts(measured: &Measurement, console: &mut Console) -> io::Result<()> {
    let row = |owner: &str, name: &str, counts: &Counts| {
        vec![
            name.to_owned(),
            owner.to_owned(),
            grouped(counts.rows),
            grouped(counts.bytes),
            grouped(counts.dead),
            grouped(counts.due),
            counts.oldest_dead.map_or_else(String::new, seconds),
        ]
    };
    let mut rows = Vec::new();
    for kind in OwnerKind::ALL {
        rows.extend(measured.census.buckets(kind).map(|(name, counts)| row(kind.into_str(), name, counts)));
    }
    rows.push(row("", "all", &measured.census.total()));
    let head = ["bucket", "owner", "rows", "bytes", "dead", "due", "longest dead"];
    console.table(&head, &rows)
}

/// How long rows have been past their TTL.
fn lag(total: &Counts) -> String {
    match (total.lags.percentile(50), total.lags.percentile(95), total.lags.oldest()) {
        (Some(median), Some(p95), Some(oldest)) => format!(
            "{} rows are past their TTL (median {}, 95th percentile {}, maximum {})",
            grouped(total.lags.rows()),
            seconds(median),
            seconds(p95),
            seconds(oldest)
        ),
        _ => "no row is past its TTL".to_owned(),
    }
}

/// The number of dead and due rows, and its parts. An audit does not follow index rows to their targets; a cleanup does,
/// and finds more.
fn backlog(measured: &Measurement) -> String {
    let all = |counts: &Counts| counts.dead + counts.due;
    let total = measured.census.total();
    let mut owners = OwnerKind::ALL.map(|kind| (all(&measured.census.of(kind)), kind.into_str())).to_vec();
    owners.retain(|(rows, _)| *rows > 0);
    let owners = if owners.len() > 1 { format!("; by owner: {}", counted(owners.into_iter())) } else { String::new() };
    let (dead, due) = (grouped(total.dead), grouped(total.due));
    format!(
        "{}: {dead} dead, {due} due (a due index row is deleted if its target is dead){owners}. A cleanup also deletes \
         other index rows of dead targets, and unreferenced provider rows",
        count_of(all(&total), "row")
    )
}

/// The forecast for rows that wait for the daily cleanup.
fn forecast(measured: &Measurement) -> String {
    let backlog = measured.forecast.backlog;
    if backlog == 0 {
        return "no rows are waiting to be deleted".to_owned();
    }
    let trend = in_words(measured.forecast.trend.into_str(), measured.forecast.days_until_clear);
    format!("{} rows of the system actors are waiting to be deleted; the backlog {trend}", grouped(backlog))
}

/// The trend of the backlog in words, and when it is clear.
pub(super) fn in_words(trend: &str, days: Option<f64>) -> String {
    let trend = match trend {
        "clears-with-next-run" => "will be cleared by the next run",
        "left-to-ttl" => "is left to the table's TTL",
        "shrinks" => "is shrinking and will be clear",
        "grows" => "is growing",
        _ => "cannot be forecast yet (too few runs)",
    };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "shown only")]
    let at = days.map_or_else(String::new, |days| format!(" in {}", seconds((days * 86_400.0) as u64)));
    format!("{trend}{at}")
}
