//! `janitor ttl backfill`: sets the TTL that rows should have.

use std::io;

use jobs::backfill::{self, Backfilled, Counts, Ended};
use jobs::run::pause;
use jobs::store::{Budget, Usage};
use serde_json::json;

use super::stop_on_signals;
use crate::args::ApplyArgs;
use crate::console::Console;
use crate::fail::{DONE, Failure, UNFINISHED};
use crate::screen::{Screen, count_of, grouped, reasons};
use crate::target::{Place, Target};

/// One pass over the table, and what it cost.
struct Pass {
    dry: bool,
    filled: Backfilled,
    usage: Usage,
}

pub(super) async fn backfill(target: &Target, applying: ApplyArgs, console: &mut Console) -> Result<u8, Failure> {
    console.require_prompt(applying)?;
    let place = target.place(&target.open().await?);
    stop_on_signals(target.watch);
    if !applying.yes {
        let dry = pass(target, true, console.screen).await?;
        report(&dry, &place, console)?;
        if dry.filled.sum(|counts| counts.set) == 0 || dry.filled.ended != Ended::Through || target.watch.is_stopped() {
            return code(&dry);
        }
        if !applying.apply {
            console.hint("Nothing was written. To set these TTLs, run the command again with --apply.")?;
            return code(&dry);
        }
        let what = format!(
            "This will set ttl_timestamp on {} of {place}, using about {}. If the table's TTL is on, DynamoDB removes rows \
             whose new TTL has already passed.",
            count_of(dry.filled.sum(|counts| counts.set), "row"),
            count_of(dry.filled.write_units, "write unit"),
        );
        console.confirm(&what, "set them", "nothing was written", target.watch).await?;
    }
    let real = pass(target, false, console.screen).await?;
    report(&real, &place, console)?;
    code(&real)
}

async fn pass(target: &Target, dry: bool, screen: Screen) -> Result<Pass, Failure> {
    let table = target.open().await?;
    if !dry {
        pause::check(&table, table.clock()).await?;
    }
    let work = Box::pin(backfill::backfill(&table, table.clock().now(), dry));
    let work = pause::stopping(&table, table.clock(), work);
    let (filled, pause) = screen.with_progress("ttl backfill", target.watch, work).await;
    if let Some(pause) = pause {
        eprintln!("stopped: {pause}");
    }
    Ok(Pass { dry, filled, usage: table.usage() })
}

fn code(pass: &Pass) -> Result<u8, Failure> {
    match &pass.filled.ended {
        Ended::Fault(error) => Err(error.clone().into()),
        Ended::Stopped => Ok(UNFINISHED),
        Ended::Through if pass.filled.sum(|counts| counts.skipped) > 0 => Ok(UNFINISHED),
        Ended::Through => Ok(DONE),
    }
}

fn report(pass: &Pass, place: &Place, console: &mut Console) -> io::Result<()> {
    let Pass { dry, filled, usage } = pass;
    let document = json!({
        "table": place.table,
        "account": place.account,
        "region": place.region,
        "mode": if *dry { "dry-run" } else { "write" },
        "complete": filled.ended == Ended::Through && filled.sum(|counts| counts.skipped) == 0,
        "outcome": filled.ended.into_str(),
        "read": filled.sum(|counts| counts.read),
        "set": filled.sum(|counts| counts.set),
        "lost_race": filled.sum(|counts| counts.lost_race),
        "skipped": filled.sum(|counts| counts.skipped),
        "write_units_needed": filled.write_units,
        "buckets": filled.buckets,
        "capacity": {"read_units": usage.read_units, "write_units": usage.write_units},
        "requests": usage.requests,
    });
    console.answer(&document, |console| print_text(pass, place, console))
}

fn print_text(Pass { dry, filled, usage }: &Pass, place: &Place, console: &mut Console) -> io::Result<()> {
    let (dry_run, to_set, verb) = if *dry { (" (dry run)", "to set", "would set") } else { ("", "set", "set") };
    console.head(&format!("backfill of ttl_timestamp{dry_run} in {}", place.head()))?;
    let line = |(name, counts): (&&str, &Counts)| {
        vec![(*name).to_owned(), grouped(counts.read), grouped(counts.set), reasons(&counts.left)]
    };
    let rows: Vec<Vec<String>> = filled.buckets.iter().map(line).collect();
    console.table(&["bucket", "read", to_set, "unchanged"], &rows)?;
    let (set, read) = (grouped(filled.sum(|counts| counts.set)), grouped(filled.sum(|counts| counts.read)));
    console.line(format_args!("\n{verb} the TTL of {set} of {read} rows read"))?;
    console.used(*usage)?;
    console.row_counts(&[
        (filled.sum(|counts| counts.lost_race), "changed or were deleted in the meantime, and were left alone"),
        (filled.sum(|counts| counts.skipped), "could not be read or written: rerun the command"),
    ])?;
    if filled.ended == Ended::Stopped {
        let rest = "the TTLs that were set are kept, and another run sets the rest";
        console.say("stopped before the end: ", rest)?;
    }
    Ok(())
}
