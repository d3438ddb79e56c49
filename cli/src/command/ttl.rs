//! `janitor ttl`: the table's TTL, and the TTL of single rows. The backfill has a file of its own.

use std::io::Write;
use std::time::Duration;

use serde_json::{Value, json};
use shared::bucket::{Bucket, TTL_ATTRIBUTE, TTL_SKEW_SECONDS};
use shared::clock::RunClock;
use shared::config::Purpose;
use shared::dynamo::Dynamo;
use shared::explain::Shown;
use shared::integrity::Lookup;
use shared::row::{Raw, Row, Ttl};
use shared::store::{InspectTable, ReadRows, TtlSetting, WriteTtl};
use shared::time::{EpochSeconds, Utc};
use shared::ttl_switch::{self, Step, SwitchError, Switched};

use super::explain::{from_now, key};
use super::{Question, backfill, can_ask, confirm, stop_on_signals};
use crate::args::{Common, RowName, TtlCommand};
use crate::fail::{DONE, FINDINGS, Failure, UNFINISHED};
use crate::screen::{Screen, seconds};
use crate::target::{Place, Target, now};

/// What whoever switches TTL on has to know.
const ENABLING: &str = "From then on DynamoDB removes every row whose ttl_timestamp has passed, within days and for good: also a \
    row whose own fields say that it is alive, which janitor sweep keeps and counts as a contradiction. Look at what it \
    counts first: switching TTL off again takes an hour.";
/// Between two looks at a table that is being switched.
const POLL: Duration = Duration::from_secs(2);

/// # Errors
/// When the table could not be had, or the change was refused.
pub async fn ttl(common: &Common, command: &TtlCommand, screen: Screen, out: &mut impl Write) -> Result<u8, Failure> {
    let target = Target::new(common, common.overrides(), Purpose::DailyCleanup).await?;
    match command {
        TtlCommand::Status => status(&target, screen, out).await,
        TtlCommand::Enable { apply, yes, wait } => {
            can_ask(*apply, *yes, screen)?;
            enable(&target, Applying { apply: *apply, yes: *yes }, *wait, screen, out).await
        }
        TtlCommand::Get { row } => get(&target, row, screen, out).await,
        TtlCommand::Set { row, seconds, apply, yes } => {
            can_ask(*apply, *yes, screen)?;
            let at = now().plus(*seconds);
            change(&target, row, Some(at), Applying { apply: *apply, yes: *yes }, screen, out).await
        }
        TtlCommand::Remove { row, apply, yes } => {
            can_ask(*apply, *yes, screen)?;
            change(&target, row, None, Applying { apply: *apply, yes: *yes }, screen, out).await
        }
        TtlCommand::Backfill { apply, yes } => backfill::backfill(&target, *apply, *yes, screen, out).await,
    }
}

/// Whether to write, and whether to ask first.
#[derive(Clone, Copy)]
struct Applying {
    apply: bool,
    yes: bool,
}

fn is_ours(attribute: &str) -> bool {
    attribute == TTL_ATTRIBUTE
}

/// The setting in one word, its attribute, and the setting in words.
fn in_words(setting: &TtlSetting) -> (&'static str, Option<&str>, String) {
    match setting {
        TtlSetting::Off => ("off", None, "TTL is off: DynamoDB removes no row by itself".to_owned()),
        TtlSetting::On { attribute } if is_ours(attribute) => (
            "on",
            Some(attribute),
            format!("TTL is on for {attribute}: DynamoDB removes rows within days of it, for free"),
        ),
        TtlSetting::On { attribute } => (
            "on",
            Some(attribute),
            format!("TTL is on for {attribute}, not for {TTL_ATTRIBUTE}: DynamoDB removes none of ActingWeb's rows"),
        ),
        TtlSetting::Enabling { attribute } => {
            ("enabling", Some(attribute), format!("TTL is being switched on for {attribute}: that takes up to an hour"))
        }
        TtlSetting::Disabling { attribute } => {
            ("disabling", Some(attribute), format!("TTL is being switched off for {attribute}"))
        }
    }
}

async fn status(target: &Target, screen: Screen, out: &mut impl Write) -> Result<u8, Failure> {
    let setting = target.open_to_read().await?.ttl_setting().await?;
    let (state, attribute, words) = in_words(&setting);
    let on = matches!(&setting, TtlSetting::On { attribute } if is_ours(attribute));
    if screen.json {
        let report = json!({"table": target.settings.table, "state": state, "attribute": attribute, "on": on});
        writeln!(out, "{report}")?;
    } else {
        writeln!(out, "{}", screen.paragraph("", &format!("table {}: {words}", target.settings.table)))?;
        if !on && !screen.quiet {
            writeln!(out, "To switch it on: janitor ttl enable")?;
        }
    }
    Ok(if on { DONE } else { FINDINGS })
}

async fn enable(
    target: &Target,
    applying: Applying,
    wait: Duration,
    screen: Screen,
    out: &mut impl Write,
) -> Result<u8, Failure> {
    let table = target.open().await?;
    let name = &target.settings.table;
    let setting = table.ttl_setting().await?;
    let (_, attribute, words) = in_words(&setting);
    let (outcome, told, code) = match (ttl_switch::plan(&setting, false), applying.apply) {
        (Step::Accept, _) => ("was-on", words, DONE),
        (Step::Refuse, _) => return Err(other_attribute(name, attribute.unwrap_or_default())),
        (Step::Enable, false) => {
            ("would-enable", format!("would switch TTL on for {TTL_ATTRIBUTE}; run it again with --apply"), DONE)
        }
        (Step::Wait(_), false) => ("would-wait", format!("{words}; with --apply this waits for it"), DONE),
        (Step::Enable | Step::Wait(_), true) => {
            stop_on_signals(target.watch);
            if !applying.yes {
                let what = format!(
                    "This switches TTL on for {TTL_ATTRIBUTE} of {}. {ENABLING}",
                    Place::new(table.figures()).of(name)
                );
                let what = screen.paragraph("", &what);
                let question = Question { what: &what, deed: "switch it on", undone: "nothing was changed" };
                confirm(question, target.watch, out).await?;
            }
            let clock = RunClock::start(now(), Some(wait)).watched_by(Some(target.watch));
            let line = |took: Duration| format!("waiting for DynamoDB to switch TTL on: {}", seconds(took.as_secs()));
            let work = ttl_switch::switch_on(&table, name, &clock, POLL);
            match screen.while_telling(line, work).await.map_err(|error| switch_failed(error, name))? {
                Switched::WasOn => ("was-on", format!("TTL is on for {TTL_ATTRIBUTE}"), DONE),
                Switched::NowOn => ("now-on", format!("TTL is now on for {TTL_ATTRIBUTE}"), DONE),
                Switched::BeingEnabled => (
                    "being-enabled",
                    "DynamoDB is switching TTL on, which takes up to an hour; janitor ttl status tells when it is"
                        .to_owned(),
                    DONE,
                ),
            }
        }
    };
    if screen.json {
        writeln!(out, "{}", json!({"table": name, "outcome": outcome, "applied": applying.apply}))?;
    } else {
        writeln!(out, "{}", screen.paragraph("", &format!("table {name}: {told}")))?;
        if outcome.starts_with("would-") && !screen.quiet {
            writeln!(out, "{}", screen.warn(&screen.paragraph("warning: ", ENABLING)))?;
        }
    }
    Ok(code)
}

fn other_attribute(table: &str, attribute: &str) -> Failure {
    Failure::usage(format!(
        "refused: TTL of table {table} is on for attribute {attribute}, not {TTL_ATTRIBUTE}: DynamoDB has one TTL attribute a table; if nothing needs that one, switch it off, wait an hour, and run this again"
    ))
}

/// The switch's own texts are for a stack's events; here somebody is at a terminal.
fn switch_failed(error: SwitchError, name: &str) -> Failure {
    match error {
        SwitchError::OtherAttribute { table, attribute } => other_attribute(&table, &attribute),
        SwitchError::Store(error) => error.into(),
        SwitchError::SwitchedOffLately => Failure::unfinished(
            "TTL was switched off less than an hour ago, and DynamoDB refuses another change for up to an hour: run this again later",
        ),
        SwitchError::NotShown { .. } | SwitchError::OutOfTime => Failure::unfinished(format!(
            "DynamoDB did not show TTL of table {name} as on in time: look with janitor ttl status, and run this again"
        )),
        SwitchError::TableBusy { .. } => Failure::unfinished(format!(
            "another change of table {name} is under way: run this again when the table is active"
        )),
        SwitchError::TableMissing { .. } | SwitchError::ForeignKeys { .. } => Failure::usage(error.to_string()),
    }
}

async fn read(table: &Dynamo, row: &RowName, screen: Screen) -> Result<Option<Row>, Failure> {
    let key = key(&row.owner, &row.bucket, &row.name, screen)?;
    match table.look(&[key]).await?.pop() {
        // Another bucket's row can be under the key: the stored bucket says whose it is.
        Some(Lookup::Found(found)) if found.bucket.text() == Some(row.bucket.as_str()) => Ok(Some(found)),
        Some(Lookup::Found(_)) => Err(Failure::usage(format!(
            "refused: the row under that key is not of bucket {}: two buckets can share a key, and this is the other's",
            Shown::Masked.bucket(&row.bucket)
        ))),
        Some(Lookup::Absent) => Ok(None),
        None | Some(Lookup::CouldNotLook) => Err(Failure::unfinished("the row could not be read: run this again")),
    }
}

fn not_there(screen: Screen, out: &mut impl Write) -> Result<u8, Failure> {
    if screen.json {
        writeln!(out, "{}", json!({"found": false}))?;
    } else {
        writeln!(out, "there is no such row")?;
    }
    Ok(FINDINGS)
}

fn moment(at: EpochSeconds, now: EpochSeconds) -> String {
    format!("{at}  {}  {}", Utc(at), from_now(at.since(now)))
}

fn ttl_in_words(row: &Row, now: EpochSeconds) -> String {
    match (row.ttl(), row.ttl_fault(now)) {
        (Ttl::Absent, _) => "none".to_owned(),
        (Ttl::At(at), None) => moment(at, now),
        (Ttl::At(at), Some(_)) => format!("{}, which is so long past that DynamoDB never acts on it", moment(at, now)),
        (Ttl::Malformed, _) => "malformed: DynamoDB never acts on it".to_owned(),
    }
}

async fn get(target: &Target, name: &RowName, screen: Screen, out: &mut impl Write) -> Result<u8, Failure> {
    let table = target.open().await?;
    let Some(row) = read(&table, name, screen).await? else { return not_there(screen, out) };
    let now = now();
    let fault = row.ttl_fault(now).is_some();
    if screen.json {
        let at = match row.ttl() {
            Ttl::At(at) => Some(at),
            Ttl::Absent | Ttl::Malformed => None,
        };
        let report = json!({
            "found": true,
            "ttl_timestamp": at.map(EpochSeconds::get),
            "utc": at.map(|at| Utc(at).to_string()),
            "remaining_seconds": at.map(|at| at.since(now)),
            "malformed": fault,
        });
        writeln!(out, "{report}")?;
    } else {
        match row.ttl() {
            Ttl::At(at) => writeln!(out, "{} seconds: {}", at.since(now), ttl_in_words(&row, now))?,
            Ttl::Absent | Ttl::Malformed => writeln!(out, "{}", ttl_in_words(&row, now))?,
        }
    }
    Ok(if fault { FINDINGS } else { DONE })
}

/// Rows whose TTL this may change.
fn may_change(row: &Row, to: Option<EpochSeconds>) -> Result<&'static Bucket, Failure> {
    match (row.known_bucket(), to) {
        (None, _) => {
            Err(Failure::usage("refused: a row of an unknown bucket is never touched (janitor explain says why)"))
        }
        (Some(bucket), Some(_)) if bucket.ttl.is_none() => {
            Err(Failure::usage(format!("refused: rows of {} have no TTL: they would be lost", bucket.name)))
        }
        (Some(bucket), _) => Ok(bucket),
    }
}

/// Sets or removes the TTL of one row.
async fn change(
    target: &Target,
    name: &RowName,
    to: Option<EpochSeconds>,
    applying: Applying,
    screen: Screen,
    out: &mut impl Write,
) -> Result<u8, Failure> {
    let table = target.open().await?;
    let Some(row) = read(&table, name, screen).await? else { return not_there(screen, out) };
    let bucket = may_change(&row, to)?;
    let now = now();
    let has_it = to.is_none() && row.ttl == Raw::Absent;
    let own_end = shared::backfill::own_end(&table, &row, bucket).await?;
    let too_early = own_end.filter(|end| to.is_some_and(|to| to < *end && now < *end));
    let shown = Shown::Masked.name(row.name_in(bucket).unwrap_or_default());
    let what = match to {
        Some(at) => format!("ttl_timestamp of {} {shown} to {}", bucket.name, moment(at, now)),
        None => format!("ttl_timestamp of {} {shown}", bucket.name),
    };
    let warning = too_early.map(|end| {
        format!(
            "the row's own end comes later, {}: once its TTL has passed, it may be removed though it is alive",
            moment(end, now)
        )
    });
    if applying.apply && !applying.yes && !has_it {
        stop_on_signals(target.watch);
        let verb = if to.is_some() { "sets" } else { "removes" };
        let question = format!("This {verb} {what}, on {}.", Place::new(table.figures()).of(&target.settings.table));
        let mut question = screen.paragraph("", &question);
        question.extend(warning.iter().map(|text| format!("\n{}", screen.warn(&screen.paragraph("warning: ", text)))));
        let deed = if to.is_some() { "set it" } else { "remove it" };
        confirm(Question { what: &question, deed, undone: "nothing was written" }, target.watch, out).await?;
    }
    let changed = if has_it || !applying.apply { None } else { Some(table.write_ttl(&row, to).await?) };
    let outcome = match (has_it, changed, to) {
        (true, ..) => "nothing-to-do",
        (false, None, Some(_)) => "would-set",
        (false, None, None) => "would-remove",
        (false, Some(true), Some(_)) => "set",
        (false, Some(true), None) => "removed",
        (false, Some(false), _) => "changed-meanwhile",
    };
    if screen.json {
        let report = json!({
            "found": true,
            "outcome": outcome,
            "ttl_timestamp": to.map_or(Value::Null, |at| json!(at.get())),
            "was": match row.ttl() { Ttl::At(at) => json!(at.get()), Ttl::Absent | Ttl::Malformed => Value::Null },
            "own_end": own_end.map(EpochSeconds::get),
            "before_own_end": too_early.is_some(),
        });
        writeln!(out, "{report}")?;
    } else {
        writeln!(out, "{}", screen.paragraph(&format!("{}: ", outcome.replace('-', " ")), &what))?;
        writeln!(out, "{}", screen.paragraph("it was: ", &ttl_in_words(&row, now)))?;
        // Whoever was asked has read it.
        if let Some(text) = warning.filter(|_| applying.yes || !applying.apply) {
            writeln!(out, "{}", screen.warn(&screen.paragraph("warning: ", &text)))?;
        }
        if to.is_some() && !screen.quiet {
            let note = format!(
                "the seconds are taken as they are; ActingWeb itself adds {TTL_SKEW_SECONDS} for clock skew to every TTL that it stores"
            );
            writeln!(out, "{}", screen.paragraph("note: ", &note))?;
        }
        if changed.is_none() && !has_it && !screen.quiet {
            writeln!(out, "Nothing was written. To do it, run it again with --apply.")?;
        }
    }
    Ok(if changed == Some(false) { UNFINISHED } else { DONE })
}
