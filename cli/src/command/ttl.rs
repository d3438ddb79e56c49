//! `janitor ttl`: the table's TTL. `ttl_row` handles the TTL of a single row, `backfill` sets missing TTLs.

use std::time::Duration;

use jobs::run::RunError;
use jobs::run::clock::RunClock;
use jobs::store::{InspectTable, TtlSetting};
use jobs::table_setup::ttl::{self, SwitchError, Switched, TtlStep};
use serde_json::json;
use shared::bucket::TTL_ATTRIBUTE;
use shared::settings::Purpose;

use super::ttl_row::{change, get};
use super::{backfill, stop_on_signals};
use crate::args::{ApplyArgs, Common, TtlCommand};
use crate::console::Console;
use crate::fail::{DONE, FINDINGS, Failure};
use crate::screen::seconds;
use crate::target::{Target, now};

/// The warning before TTL is enabled.
const ENABLING: &str = "From then on, DynamoDB permanently removes every row whose ttl_timestamp has passed, within days. \
    This includes rows that are alive by their own fields, which janitor cleanup keeps and counts as contradictions. Check \
    that count first: disabling TTL again takes an hour.";
const BEING_ENABLED: &str =
    "DynamoDB is enabling TTL, which takes up to an hour; janitor ttl status shows when it is on";
/// Interval between reads of the setting.
const POLL: Duration = Duration::from_secs(2);

pub async fn ttl(common: &Common, command: &TtlCommand, console: &mut Console) -> Result<u8, Failure> {
    let target = Target::new(common, Purpose::Cleanup).await?;
    match command {
        TtlCommand::Status => status(&target, console).await,
        TtlCommand::Enable { applying, wait } => enable(&target, *applying, *wait, console).await,
        TtlCommand::Get(row) => get(&target, row, console).await,
        TtlCommand::Set { row, seconds, applying } => {
            change(&target, row, Some(now().plus(*seconds)), *applying, console).await
        }
        TtlCommand::Remove { row, applying } => change(&target, row, None, *applying, console).await,
        TtlCommand::Backfill(applying) => backfill::backfill(&target, *applying, console).await,
    }
}

/// The setting as one word, its attribute, and a description.
fn in_words(setting: &TtlSetting) -> (&'static str, Option<&str>, String) {
    let (state, attribute, words) = match setting {
        TtlSetting::Off => return ("off", None, "TTL is off: DynamoDB does not remove expired rows".to_owned()),
        TtlSetting::On { attribute } if attribute == TTL_ATTRIBUTE => {
            ("on", attribute, format!("on for {attribute}: DynamoDB removes expired rows within days, for free"))
        }
        TtlSetting::On { attribute } => {
            let others =
                format!("on for {attribute}, not for {TTL_ATTRIBUTE}: DynamoDB removes none of ActingWeb's rows");
            ("on", attribute, others)
        }
        TtlSetting::Enabling { attribute } => {
            ("enabling", attribute, format!("being enabled for {attribute}, which takes up to an hour"))
        }
        TtlSetting::Disabling { attribute } => ("disabling", attribute, format!("being disabled for {attribute}")),
    };
    (state, Some(attribute), format!("TTL is {words}"))
}

async fn status(target: &Target, console: &mut Console) -> Result<u8, Failure> {
    let setting = target.open_to_read().await?.ttl_setting().await?;
    let (state, attribute, words) = in_words(&setting);
    let on = matches!(&setting, TtlSetting::On { attribute } if attribute == TTL_ATTRIBUTE);
    let table = &target.settings.table;
    console.answer(&json!({"table": table, "state": state, "attribute": attribute, "on": on}), |console| {
        console.say("", &format!("table {table}: {words}"))?;
        if on { Ok(()) } else { console.note("", "To enable it: janitor ttl enable") }
    })?;
    Ok(if on { DONE } else { FINDINGS })
}

async fn enable(target: &Target, applying: ApplyArgs, wait: Duration, console: &mut Console) -> Result<u8, Failure> {
    console.require_prompt(applying)?;
    let table = target.open().await?;
    let name = &target.settings.table;
    let setting = table.ttl_setting().await?;
    let (.., words) = in_words(&setting);
    let (outcome, text) = match (ttl::plan(&setting, false), applying.apply) {
        (TtlStep::Accept, _) => ("was-on", words),
        (TtlStep::AcceptEnabling, _) => ("being-enabled", words),
        (TtlStep::Refuse { attribute }, _) => return Err(other_attribute(name, &attribute)),
        (TtlStep::Enable, false) => (
            "would-enable",
            format!("would enable TTL on {TTL_ATTRIBUTE}; to do so, run the command again with --apply"),
        ),
        (TtlStep::Wait(_), false) => ("would-wait", format!("{words}; with --apply this waits for it")),
        (TtlStep::Enable | TtlStep::Wait(_), true) => {
            stop_on_signals(target.watch);
            if !applying.yes {
                let place = target.place(&table);
                let what = format!("This will enable TTL on {TTL_ATTRIBUTE} of {place}. {ENABLING}");
                console.confirm(&what, "enable it", "nothing was changed", target.watch).await?;
            }
            let clock = RunClock::start(table.clock().wall(), Some(wait)).watched_by(Some(target.watch));
            let line = |took: Duration| format!("waiting for DynamoDB to enable TTL: {}", seconds(took.as_secs()));
            let work = ttl::switch_on(&table, name, &clock, POLL);
            match console.screen.with_status_line(line, work).await.map_err(|error| switch_failed(error, name))? {
                Switched::WasOn => ("was-on", format!("TTL is on for {TTL_ATTRIBUTE}")),
                Switched::NowOn => ("now-on", format!("TTL is now on for {TTL_ATTRIBUTE}")),
                Switched::BeingEnabled => ("being-enabled", BEING_ENABLED.to_owned()),
            }
        }
    };
    console.answer(&json!({"table": name, "outcome": outcome, "applied": applying.apply}), |console| {
        console.say("", &format!("table {name}: {text}"))?;
        let is_planned = outcome.starts_with("would-") && !console.screen.quiet;
        if is_planned { console.warn("warning: ", ENABLING) } else { Ok(()) }
    })?;
    Ok(DONE)
}

fn other_attribute(table: &str, attribute: &str) -> Failure {
    Failure::usage(format!(
        "refused: TTL of table {table} is on for attribute {attribute}, not {TTL_ATTRIBUTE}: DynamoDB has one TTL attribute per table; if nothing needs that one, disable it, wait an hour, and run this again"
    ))
}

/// The texts of `SwitchError` are for stack events; these are for a terminal.
fn switch_failed(error: SwitchError, name: &str) -> Failure {
    match error {
        SwitchError::OtherAttribute { table, attribute } => other_attribute(&table, &attribute),
        SwitchError::Store(error) => error.into(),
        SwitchError::Paused(pause) => RunError::Paused(pause).into(),
        SwitchError::SwitchedOffLately => Failure::unfinished(
            "TTL was disabled less than an hour ago, and DynamoDB refuses another change for up to an hour: run this again later",
        ),
        SwitchError::NotShown { .. } | SwitchError::OutOfTime => Failure::unfinished(format!(
            "DynamoDB did not show TTL of table {name} as on in time: check with janitor ttl status, and run this again"
        )),
        SwitchError::TableBusy { .. } => Failure::unfinished(format!(
            "another change to table {name} is in progress: run this again when the table is active"
        )),
        SwitchError::TableMissing { .. } | SwitchError::ForeignKeys { .. } => Failure::usage(error.to_string()),
    }
}
