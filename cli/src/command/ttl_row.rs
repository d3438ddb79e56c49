//! `janitor ttl get`, `set` and `remove`: the TTL of one row.

use dynamo::Dynamo;
use jobs::explain::Shown;
use jobs::run::pause;
use jobs::store::{ReadRows, WriteTtl};
use serde_json::json;
use shared::bucket::{Bucket, TTL_SKEW_SECONDS};
use shared::integrity::Lookup;
use shared::row::{Raw, Row, Ttl};
use shared::time::{EpochSeconds, Utc};

use super::explain::{from_now, key};
use super::stop_on_signals;
use crate::args::{ApplyArgs, RowName};
use crate::console::Console;
use crate::fail::{DONE, FINDINGS, Failure, UNFINISHED};
use crate::target::{Target, now};

async fn read(table: &Dynamo, row: &RowName) -> Result<Option<Row>, Failure> {
    let key = key(&row.owner, &row.bucket, &row.name)?;
    match table.get_consistent(&[key]).await?.pop() {
        // A row of another bucket can have the same key: the stored bucket decides.
        Some(Lookup::Found(found)) if found.bucket.text() == Some(row.bucket.as_str()) => Ok(Some(found)),
        Some(Lookup::Found(_)) => Err(Failure::usage(format!(
            "refused: the row with that key belongs to a bucket other than {}",
            Shown::Masked.bucket(&row.bucket)
        ))),
        Some(Lookup::Absent) => Ok(None),
        None | Some(Lookup::Unread) => Err(Failure::unfinished("the row could not be read: run this again")),
    }
}

fn report_absence(console: &mut Console) -> Result<u8, Failure> {
    console.answer(&json!({"found": false}), |console| console.line("there is no such row"))?;
    Ok(FINDINGS)
}

fn moment(at: EpochSeconds, now: EpochSeconds) -> String {
    format!("{at}  {}  {}", Utc(at), from_now(at.since(now)))
}

/// A TTL that DynamoDB can act on.
fn stored_ttl(row: &Row) -> Option<EpochSeconds> {
    match row.stored_ttl() {
        Ttl::At(at) => Some(at),
        Ttl::Absent | Ttl::Malformed => None,
    }
}

fn ttl_in_words(row: &Row, now: EpochSeconds) -> String {
    match (row.stored_ttl(), row.ttl_fault(now)) {
        (Ttl::Absent, _) => "none".to_owned(),
        (Ttl::At(at), None) => moment(at, now),
        (Ttl::At(at), Some(fault)) => {
            format!("{}, {}: DynamoDB never acts on it", moment(at, now), fault.description())
        }
        (Ttl::Malformed, _) => "malformed: DynamoDB never acts on it".to_owned(),
    }
}

pub(super) async fn get(target: &Target, name: &RowName, console: &mut Console) -> Result<u8, Failure> {
    let table = target.open().await?;
    let Some(row) = read(&table, name).await? else { return report_absence(console) };
    let now = now();
    let fault = row.ttl_fault(now).is_some();
    let (at, remaining) = (stored_ttl(&row), stored_ttl(&row).map(|at| at.since(now)));
    let document = json!({
        "found": true,
        "ttl_timestamp": at.map(EpochSeconds::get),
        "utc": at.map(|at| Utc(at).to_string()),
        "remaining_seconds": remaining,
        "malformed": fault,
    });
    console.answer(&document, |console| {
        let seconds = remaining.map_or_else(String::new, |remaining| format!("{remaining} seconds: "));
        console.line(format_args!("{seconds}{}", ttl_in_words(&row, now)))
    })?;
    Ok(if fault { FINDINGS } else { DONE })
}

/// The bucket of a row whose TTL may be changed; otherwise why it may not.
fn may_change(row: &Row, to: Option<EpochSeconds>) -> Result<&'static Bucket, Failure> {
    match (row.known_bucket(), to) {
        (None, _) => {
            Err(Failure::usage("refused: a row of an unknown bucket is never touched (janitor explain says why)"))
        }
        (Some(bucket), Some(_)) if bucket.ttl.is_none() => Err(Failure::usage(format!(
            "refused: rows of {} never have a TTL: with one, DynamoDB would remove them",
            bucket.name
        ))),
        (Some(bucket), _) => Ok(bucket),
    }
}

/// Sets or removes the TTL of one row.
pub(super) async fn change(
    target: &Target,
    name: &RowName,
    to: Option<EpochSeconds>,
    applying: ApplyArgs,
    console: &mut Console,
) -> Result<u8, Failure> {
    console.require_prompt(applying)?;
    let table = target.open().await?;
    let Some(row) = read(&table, name).await? else { return report_absence(console) };
    let bucket = may_change(&row, to)?;
    let now = now();
    let has_it = to.is_none() && row.ttl == Raw::Absent;
    let own_end = jobs::backfill::own_end(&table, &row, bucket).await?;
    let too_early = own_end.filter(|end| to.is_some_and(|to| to < *end && now < *end));
    let shown = Shown::Masked.name(row.name_in(bucket).unwrap_or_default());
    let what = format!("ttl_timestamp of {} {shown}", bucket.name);
    let (verb, past, what) = match to {
        Some(at) => ("set", "set", format!("{what} to {}", moment(at, now))),
        None => ("remove", "removed", what),
    };
    let warning = too_early.map(|end| {
        format!("the row itself expires later, {}: after its TTL it may be removed while still alive", moment(end, now))
    });
    if applying.apply && !applying.yes && !has_it {
        stop_on_signals(target.watch);
        let screen = console.screen;
        let mut question = screen.paragraph("", &format!("This will {verb} {what}, on {}.", target.place(&table)));
        question.extend(warning.iter().map(|text| format!("\n{}", screen.warn(&screen.paragraph("warning: ", text)))));
        console.ask(&question, &format!("{verb} it"), "nothing was written", target.watch).await?;
    }
    let changed = if has_it || !applying.apply {
        None
    } else {
        pause::check(&table, table.clock()).await?;
        Some(table.write_ttl(&row, &to.map_or(Raw::Absent, |at| Raw::Number(at.to_string()))).await?)
    };
    let outcome = match (has_it, changed) {
        (true, _) => "nothing-to-do",
        (false, None) => &format!("would-{verb}"),
        (false, Some(true)) => past,
        (false, Some(false)) => "changed-meanwhile",
    };
    let document = json!({
        "found": true,
        "outcome": outcome,
        "ttl_timestamp": to.map(EpochSeconds::get),
        "was": stored_ttl(&row).map(EpochSeconds::get),
        "own_end": own_end.map(EpochSeconds::get),
        "before_own_end": too_early.is_some(),
    });
    console.answer(&document, |console| {
        console.say(&format!("{}: ", outcome.replace('-', " ")), &what)?;
        console.say("previous TTL: ", &ttl_in_words(&row, now))?;
        // The prompt has already shown it.
        if let Some(text) = warning.filter(|_| applying.yes || !applying.apply) {
            console.warn("warning: ", &text)?;
        }
        if to.is_some() {
            let note = format!(
                "the seconds are used as given; ActingWeb itself adds {TTL_SKEW_SECONDS} for clock skew to every TTL that it stores"
            );
            console.note("note: ", &note)?;
        }
        if changed.is_none() && !has_it {
            let hint = format!("Nothing was written. To {verb} the TTL, run the command again with --apply.");
            console.note("", &hint)?;
        }
        Ok(())
    })?;
    Ok(if changed == Some(false) { UNFINISHED } else { DONE })
}
