//! `janitor restore`: lists retired rows, and restores their TTL.

use std::io;

use jobs::restore::{self, Counts, Restored, Wanted};
use jobs::run::lease::Lease;
use jobs::run::{RunError, acquire, pause};
use jobs::store::{Budget, Usage};
use serde_json::json;
use shared::settings::Purpose;
use shared::time::{EpochSeconds, Utc};

use super::stop_on_signals;
use crate::args::{Common, RestoreArgs};
use crate::console::Console;
use crate::fail::{DONE, FINDINGS, Failure, UNFINISHED};
use crate::screen::{Screen, count_of, grouped, reasons};
use crate::target::{Place, Target};

/// One pass over the table, and what it cost.
struct Pass {
    dry: bool,
    restored: Restored,
    usage: Usage,
}

/// # Errors
/// When the table could not be read or written, or the restore was not confirmed.
pub async fn restore(mut common: Common, options: &RestoreArgs, console: &mut Console) -> Result<u8, Failure> {
    console.require_prompt(options.applying)?;
    common.overrides.extend(options.retire_days.map(|days| ("retire_days".to_owned(), days.into())));
    let target = Target::new(&common, Purpose::Explain).await?;
    let place = target.place(&target.open().await?);
    stop_on_signals(target.watch);
    if !options.applying.yes {
        let dry = pass(&target, options, true, console.screen).await?;
        report(&dry, &place, console)?;
        let found = dry.restored.sum(|counts| counts.restored);
        let code = code(&dry)?;
        if found == 0 || code != DONE || target.watch.is_stopped() {
            return Ok(code);
        }
        if !options.applying.apply {
            console.hint("Nothing was written. To restore these rows, run the command again with --apply.")?;
            return Ok(code);
        }
        let rows = count_of(found, "row");
        let what =
            format!("This will restore the TTL of {rows} of {place}, using at least as many write units. {NEXT_RUN}");
        console.confirm(&what, "restore them", "nothing was written", target.watch).await?;
    }
    let real = pass(&target, options, false, console.screen).await?;
    report(&real, &place, console)?;
    code(&real)
}

/// A restored row is still dead.
const NEXT_RUN: &str = "The next run deletes or retires these rows again if they are still dead: pause the janitor after this \
                        (`janitor pause`), or change EXPIRED_ROWS or the settings that make them dead.";

async fn pass(target: &Target, options: &RestoreArgs, dry: bool, screen: Screen) -> Result<Pass, Failure> {
    let table = target.open().await?;
    let now = table.clock().now();
    let wanted = Wanted {
        bucket: options.bucket.clone(),
        owner: options.owner.clone(),
        since: options.since.map(|since| now.plus(-i64::try_from(since.as_secs()).unwrap_or(i64::MAX))),
        retired_for: target.settings.retire_days * 86_400,
        policy: target.settings.policy(),
    };
    let work = Box::pin(restore::restore(&table, &wanted, now, dry));
    let work = screen.with_progress_of("restored", "restore", target.watch, work);
    let restored = if dry {
        work.await
    } else {
        // A concurrent run would retire the rows again.
        let clock = table.clock();
        let lease = acquire(&table, clock, Lease::own(&table, clock, restore::NAME)).await?;
        let (restored, pause) = pause::stopping(&table, clock, lease.hold(Box::pin(work))).await;
        lease.release().await;
        if let Some(pause) = pause {
            eprintln!("stopped: {pause}");
        }
        restored.map_err(|_| RunError::LeaseLost)?
    };
    Ok(Pass { dry, restored, usage: table.usage() })
}

fn code(pass: &Pass) -> Result<u8, Failure> {
    let Restored { stopped, fault, .. } = &pass.restored;
    match fault {
        Some(error) => Err(error.clone().into()),
        None if *stopped || pass.restored.sum(|counts| counts.skipped) > 0 => Ok(UNFINISHED),
        None if pass.restored.sum(|counts| counts.retired) == 0 => Ok(FINDINGS),
        None => Ok(DONE),
    }
}

fn report(pass: &Pass, place: &Place, console: &mut Console) -> io::Result<()> {
    let Pass { dry, restored, usage } = pass;
    let sum = |of: fn(&Counts) -> u64| restored.sum(of);
    let document = json!({
        "table": place.table,
        "account": place.account,
        "region": place.region,
        "mode": if *dry { "dry-run" } else { "write" },
        "complete": !restored.stopped && restored.fault.is_none() && sum(|counts| counts.skipped) == 0,
        "read": restored.read,
        "retired": sum(|counts| counts.retired),
        "restored": sum(|counts| counts.restored),
        "rewritten": sum(|counts| counts.rewritten),
        "lost_race": sum(|counts| counts.lost_race),
        "skipped": sum(|counts| counts.skipped),
        "buckets": restored.buckets,
        "capacity": {"read_units": usage.read_units, "write_units": usage.write_units},
        "requests": usage.requests,
    });
    console.answer(&document, |console| print_text(pass, place, console))
}

fn print_text(Pass { dry, restored, usage }: &Pass, place: &Place, console: &mut Console) -> io::Result<()> {
    let (dry_run, done, verb) =
        if *dry { (" (dry run)", "to restore", "would restore") } else { ("", "restored", "restored") };
    console.head(&format!("restore of retired rows{dry_run} in {}", place.head()))?;
    if restored.sum(|counts| counts.retired) == 0 {
        let none = "No such row is retired. A row that was deleted, by a run, by TTL or by `janitor revoke`, cannot be restored.";
        return console.say("", none);
    }
    let retired = restored.buckets.iter().filter(|(_, counts)| counts.retired > 0);
    let rows = retired.map(|(name, counts)| {
        let until = counts.until.map_or_else(String::new, |until| Utc(EpochSeconds::new(until)).to_string());
        vec![name.clone(), grouped(counts.retired), grouped(counts.restored), until, reasons(&counts.reasons)]
    });
    console.table(&["bucket", "retired", done, "removed after", "why"], &rows.collect::<Vec<_>>())?;
    let (back, read) = (grouped(restored.sum(|counts| counts.restored)), grouped(restored.read));
    console.line(format_args!("\n{verb} {back} of {read} rows read"))?;
    console.used(*usage)?;
    let rewritten = "were written by the application since they were retired, and were left alone";
    console.row_counts(&[
        (restored.sum(|counts| counts.rewritten), rewritten),
        (restored.sum(|counts| counts.lost_race), "changed or were removed in the meantime, and were left alone"),
        (restored.sum(|counts| counts.skipped), "could not be read or written: rerun the command"),
    ])?;
    console.note("note: ", NEXT_RUN)
}
