//! `janitor doctor`: checks whether a run would work, and says how to fix what is missing.

use dynamo::SignInError;
use jobs::status::{Check, CheckState, examine};
use serde_json::json;
use shared::settings::{Mode, Purpose};

use crate::args::{Common, Doctor};
use crate::console::Console;
use crate::fail::{DONE, FINDINGS, Failure};
use crate::target::Target;
use crate::typed::CommandLine;

/// Each check needs the ones before it.
const FIRST: [&str; 4] = ["region", "credentials", "table", "permissions"];

/// # Errors
/// When the result could not be written.
pub async fn doctor(common: &Common, options: &Doctor, console: &mut Console) -> Result<u8, Failure> {
    let checks = checks(common, options.mode).await?;
    console.answer(&json!({"mode": options.mode.name(), "checks": checks}), |console| {
        let row = |one: &Check| vec![one.check.clone(), one.state.to_string(), one.text.clone()];
        console.table(&["check", "state", "found"], &checks.iter().map(row).collect::<Vec<_>>())
    })?;
    let passed = checks.iter().all(|check| check.state == CheckState::Ok);
    Ok(if passed { DONE } else { FINDINGS })
}

async fn checks(common: &Common, mode: Mode) -> Result<Vec<Check>, Failure> {
    let target = match Target::signed_in(common, Purpose::Cleanup).await? {
        Ok(target) => target,
        Err(missing) => {
            let failed = if missing == SignInError::NoRegion { "region" } else { "credentials" };
            return Ok(stopped_at(failed, Vec::new(), &missing.to_string()));
        }
    };
    let credentials = match &target.caller {
        None => (CheckState::Ok, "a local endpoint needs none".to_owned()),
        Some(signed_in) => match signed_in.caller().await {
            Ok(arn) => (CheckState::Ok, format!("{arn} ({})", signed_in.source)),
            Err(problem) => {
                (CheckState::Warning, format!("{}; could not determine the caller: {problem}", signed_in.source))
            }
        },
    };
    let mut checks = vec![
        Check::new("region", CheckState::Ok, target.region().unwrap_or_default()),
        Check::new("credentials", credentials.0, credentials.1),
    ];
    let table = match target.open().await {
        Ok(table) => table,
        Err(failure) => return Ok(stopped_at("table", checks, &failure.text)),
    };
    checks.push(Check::new("table", CheckState::Ok, format!("{} has ActingWeb's keys", target.settings.table)));
    checks.extend(examine(&table, mode, target.settings.expired_rows, table.clock()).await);
    Ok(checks)
}

/// Adds the failed check, and the checks that need it as not checked.
fn stopped_at(failed: &str, mut checks: Vec<Check>, problem: &str) -> Vec<Check> {
    // The problem may quote the command line, and with it a token in the wrong place.
    let typed = CommandLine::new(std::env::args_os().skip(1));
    checks.extend(FIRST[checks.len()..].iter().map(|name| match *name {
        name if name == failed => Check::new(name, CheckState::Failed, typed.mask_tokens(problem)),
        name => Check::new(name, CheckState::NotChecked, ""),
    }));
    checks
}
