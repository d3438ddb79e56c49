//! `janitor ttl backfill`: sets the TTL that rows should have.

use std::io::Write;

use jobs::backfill::{self, Backfilled, Counts, Ended};
use jobs::run::pause;
use jobs::store::{Budget, Usage};
use serde_json::{Value, json};

use super::{Question, can_ask, confirm, stop_on_signals};
use crate::fail::{DONE, Failure, UNFINISHED};
use crate::screen::{Screen, grouped, units};
use crate::target::{Place, Target};

/// One pass over the table, and what it cost.
struct Pass {
    dry: bool,
    filled: Backfilled,
    usage: Usage,
}

pub(super) async fn backfill(
    target: &Target,
    apply: bool,
    yes: bool,
    screen: Screen,
    out: &mut impl Write,
) -> Result<u8, Failure> {
    can_ask(apply, yes, screen)?;
    let place = target.place().await?;
    stop_on_signals(target.watch);
    if !yes {
        let dry = pass(target, true, screen).await?;
        report(&dry, target, &place, screen, out)?;
        let may_go_on = dry.filled.set() > 0 && dry.filled.ended == Ended::Through && !target.watch.is_stopped();
        if !apply || !may_go_on {
            if may_go_on && !screen.quiet && !screen.json {
                let advice = "Nothing was written. To set them, run it again with --apply.";
                writeln!(out, "\n{}", screen.paragraph("", advice))?;
            }
            return code(&dry);
        }
        let what = format!(
            "This sets ttl_timestamp on {} rows of {}, for about {} write units. A TTL that has passed lets DynamoDB \
             remove the row, if the table's TTL is on.",
            grouped(dry.filled.set()),
            place.of(&target.settings.table),
            grouped(dry.filled.write_units),
        );
        let what = screen.paragraph("", &what);
        let question = Question { what: &what, deed: "set them", undone: "nothing was written" };
        confirm(question, target.watch, out).await?;
    }
    let real = pass(target, false, screen).await?;
    report(&real, target, &place, screen, out)?;
    code(&real)
}

async fn pass(target: &Target, dry: bool, screen: Screen) -> Result<Pass, Failure> {
    let table = target.open().await?;
    if !dry {
        pause::check(&table, table.clock()).await?;
    }
    let work = Box::pin(backfill::backfill(&table, table.clock().now(), dry));
    let work = pause::stopping(&table, table.clock(), work);
    let (filled, pause) = screen.while_watching("ttl backfill", target.watch, work).await;
    if let Some(pause) = pause {
        eprintln!("stopped: {pause}");
    }
    Ok(Pass { dry, filled, usage: table.usage() })
}

fn code(pass: &Pass) -> Result<u8, Failure> {
    match &pass.filled.ended {
        Ended::Fault(error) => Err(error.clone().into()),
        Ended::Stopped => Ok(UNFINISHED),
        Ended::Through if pass.filled.skipped() > 0 => Ok(UNFINISHED),
        Ended::Through => Ok(DONE),
    }
}

fn report(pass: &Pass, target: &Target, place: &Place, screen: Screen, out: &mut impl Write) -> Result<(), Failure> {
    if screen.json {
        writeln!(out, "{}", document(pass, target, place))?;
        return Ok(());
    }
    let Pass { dry, filled, usage } = pass;
    let head = format!(
        "{}backfill of ttl_timestamp on {}",
        if *dry { "dry run of the " } else { "" },
        place.head(&target.settings.table)
    );
    writeln!(out, "{}\n", screen.head(&head))?;
    let rows: Vec<Vec<String>> = filled
        .buckets
        .iter()
        .map(|(name, counts)| vec![(*name).to_owned(), grouped(counts.read), grouped(counts.set), left(counts)])
        .collect();
    write!(
        out,
        "{}",
        screen.table(&["bucket", "read", if *dry { "to set" } else { "set" }, "left as they are"], &rows)
    )?;
    let verb = if *dry { "would set" } else { "set" };
    writeln!(out, "\n{verb} {} of {} rows read", grouped(filled.set()), grouped(filled.read()))?;
    let (read, write) = (units(usage.read_units), units(usage.write_units));
    let used = format!("{read} read and {write} write units, {} requests", grouped(usage.requests));
    writeln!(out, "{}", screen.paragraph("used ", &used))?;
    for (n, what) in [
        (filled.lost_races(), "changed or were deleted in the meantime, and were left alone"),
        (filled.skipped(), "could not be read or written: run it again"),
    ] {
        if n > 0 {
            writeln!(out, "{} rows {what}", grouped(n))?;
        }
    }
    if filled.ended == Ended::Stopped {
        let rest = "the TTLs that were set are kept, and another run sets the rest";
        writeln!(out, "{}", screen.paragraph("stopped before the end: ", rest))?;
    }
    Ok(())
}

fn left(counts: &Counts) -> String {
    let reasons: Vec<String> =
        counts.left.iter().map(|(reason, n)| format!("{} {}", grouped(*n), reason.replace('_', " "))).collect();
    reasons.join(", ")
}

fn document(pass: &Pass, target: &Target, place: &Place) -> Value {
    let Pass { dry, filled, usage } = pass;
    json!({
        "table": target.settings.table,
        "account": place.account,
        "region": place.region,
        "mode": if *dry { "dry-run" } else { "write" },
        "complete": filled.ended == Ended::Through && filled.skipped() == 0,
        "outcome": filled.ended.into_str(),
        "read": filled.read(),
        "set": filled.set(),
        "lost_race": filled.lost_races(),
        "skipped": filled.skipped(),
        "write_units_needed": filled.write_units,
        "buckets": filled.buckets,
        "capacity": {"read_units": usage.read_units, "write_units": usage.write_units},
        "requests": usage.requests,
    })
}
