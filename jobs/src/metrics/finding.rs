//! Findings for the operator, in sentences. Pure functions of a measurement.

use super::census::{Counts, Never};
use super::forecast::{Trend, age, overdue_after};
use super::{Ended, Measurement, WATCHED, period};
use crate::cleanup;
use crate::store::{Recovery, Result, TtlSetting};
use shared::bucket::TTL_ATTRIBUTE;
use shared::settings::Scope;

/// A problem that an operator should know about.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Finding {
    /// A stable identifier.
    pub kind: &'static str,
    pub text: String,
}

/// Whether the table's TTL works for these rows. The names are part of the answer, so they are stable.
#[derive(Clone, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case", const_into_str)]
pub enum TtlHealth {
    On,
    /// On, but for another attribute than the rows have.
    OtherAttribute(String),
    Off,
    /// Being changed, which takes up to an hour.
    TurningOn,
    TurningOff,
    /// The setting could not be read, and why.
    Unknown(String),
}

impl From<Result<TtlSetting>> for TtlHealth {
    fn from(answer: Result<TtlSetting>) -> Self {
        match answer {
            Ok(TtlSetting::On { attribute } | TtlSetting::Enabling { attribute }) if attribute != TTL_ATTRIBUTE => {
                TtlHealth::OtherAttribute(attribute)
            }
            Ok(TtlSetting::On { .. }) => TtlHealth::On,
            Ok(TtlSetting::Enabling { .. }) => TtlHealth::TurningOn,
            Ok(TtlSetting::Disabling { .. }) => TtlHealth::TurningOff,
            Ok(TtlSetting::Off) => TtlHealth::Off,
            Err(error) => TtlHealth::Unknown(error.to_string()),
        }
    }
}

impl TtlHealth {
    pub(crate) fn finding(&self) -> Option<Finding> {
        let (kind, text) = match self {
            TtlHealth::On => return None,
            TtlHealth::OtherAttribute(attribute) => (
                "ttl-other-attribute",
                format!(
                    "TTL is enabled for {attribute}, but the rows use {TTL_ATTRIBUTE}: DynamoDB removes none of them. \
                     Disable TTL, wait an hour, then enable it for {TTL_ATTRIBUTE}"
                ),
            ),
            TtlHealth::Off => (
                "ttl-off",
                format!("TTL is off: enable it for {TTL_ATTRIBUTE}, so that DynamoDB removes dead rows for free"),
            ),
            TtlHealth::TurningOn => {
                ("ttl-changing", "TTL is being enabled, which takes up to an hour; check again later".to_owned())
            }
            TtlHealth::TurningOff => (
                "ttl-changing",
                format!(
                    "TTL is being disabled, which takes up to an hour. DynamoDB accepts no other change until then; \
                     afterwards enable it for {TTL_ATTRIBUTE}"
                ),
            ),
            TtlHealth::Unknown(why) => ("ttl-unknown", format!("the TTL setting could not be read: {why}")),
        };
        Some(Finding { kind, text })
    }
}

/// Reported only before the first delete: afterwards there is no earlier state to restore.
pub fn recovery_finding(measured: &Measurement, recovery: &Result<Recovery>) -> Option<Finding> {
    let is_due = measured.runs.is_empty() && *recovery == Ok(Recovery::Off);
    is_due.then(|| Finding { kind: "recovery-off", text: RECOVERY_OFF.to_owned() })
}

pub(crate) const RECOVERY_OFF: &str = "point-in-time recovery is off: turn it on before the first delete, so that the table can be restored to the \
     moment before it";

/// DynamoDB removes a row within a few days of its TTL; a longer lag means that TTL does not work.
const LAG_TOO_LONG: u64 = 4 * 86_400;
/// Consecutive incomplete runs after which the work is assumed not to fit.
const TOO_MANY_INCOMPLETE_RUNS: u64 = 3;

/// Fewer unused clients are not reported.
const MANY_UNUSED_CLIENTS: u64 = 1_000;

pub(super) fn findings(measured: &Measurement) -> Vec<Finding> {
    let mut found: Vec<Finding> = measured.ttl.finding().into_iter().collect();
    let mut add = |kind, text| found.push(Finding { kind, text });
    if let Some(pause) = &measured.pause {
        add("paused", format!("{pause}: no run deletes anything"));
    }
    let not_counted = match measured.ended {
        Ended::Complete => None,
        Ended::OutOfTime => Some(("not all rows were counted before the deadline", "raise MAX_READ_UNITS_PER_SECOND")),
        Ended::Stopped => Some(("the count was stopped early", "run it again")),
        Ended::ReadBudget => Some(("not all rows were counted within MAX_AUDIT_UNITS", "raise it")),
    };
    if let Some((what, remedy)) = not_counted {
        let cost = measured.expected_units.map(|units| format!(" (about {units} read units are needed)"));
        add("not-counted", format!("{what}{}: {remedy}", cost.unwrap_or_default()));
    }
    // A partial count allows no conclusion.
    let total = if measured.ended == Ended::Complete { measured.census.total() } else { Counts::default() };
    // A stack whose first run is less than a day old has just enabled TTL, which does not remove rows at once.
    let first_run = measured.runs.get(cleanup::NAME).and_then(|state| state.first_run_at);
    let is_new = first_run.and_then(|at| age(at, measured.now)).is_some_and(|age| age < 86_400);
    let has_worked = measured.ttl == TtlHealth::On && !is_new;
    if let Some(oldest) = total.lags.oldest().filter(|oldest| has_worked && *oldest > LAG_TOO_LONG) {
        add("ttl-lag", format!("TTL is on, but a row still exists {} days after its TTL", oldest / 86_400));
    }
    let about = if measured.estimate.is_some() { "about " } else { "" };
    let whose = if measured.scope == Scope::System { " of the system actors" } else { "" };
    for (why, rows) in &total.never {
        let (kind, problem) = match why {
            Never::Absent => {
                ("ttl-absent", "absent, though ActingWeb gives such rows one; `janitor ttl backfill` can set it")
            }
            Never::Fault(fault) => ("ttl-malformed", fault.description()),
        };
        let rows = format!("{about}{}{whose}", in_words(*rows));
        add(kind, format!("TTL will never remove {rows}: ttl_timestamp is {problem}"));
    }
    if measured.knows_runs {
        WATCHED.into_iter().for_each(|name| runs(measured, name, &mut add));
    }
    if let Some(clients) = measured.clients.as_ref().filter(|clients| clients.unused > MANY_UNUSED_CLIENTS) {
        add(
            "unused-clients",
            format!(
                "{} of {} clients were registered more than 30 days ago and are unused; `janitor clients` lists and \
                 removes them",
                clients.unused, clients.clients
            ),
        );
    }
    if measured.cascade_stream_is_stale() {
        add(
            "cascade-deaf",
            "the cascade reads an old stream of the table; to update it, deploy with a changed LogLevel".to_owned(),
        );
    }
    if measured.forecast.trend == Trend::Grows {
        add(
            "backlog-grows",
            format!(
                "the backlog is {} and grows: more rows expire than are deleted",
                in_words(measured.forecast.backlog)
            ),
        );
    }
    found
}

/// Findings about the runs of a function, from its state row.
fn runs(measured: &Measurement, name: &str, add: &mut impl FnMut(&'static str, String)) {
    let state = measured.runs.get(name).cloned().unwrap_or_default();
    match state.last_complete_at.map(|at| age(at, measured.now)) {
        None => add("never-complete", format!("{name} has not completed a run on this table yet")),
        Some(None) => {
            add(
                "clock",
                format!(
                    "{name}'s last run is dated in the future: this machine's clock is behind, or that run's clock was ahead"
                ),
            );
        }
        Some(Some(age)) if age > overdue_after(&state, period(name)) => {
            add("overdue", format!("{name} has not completed a run for {} hours", age / 3_600));
        }
        Some(Some(_)) => {}
    }
    if state.consecutive_incomplete_runs >= TOO_MANY_INCOMPLETE_RUNS {
        add(
            "incomplete-runs",
            format!(
                "{name} had {} consecutive incomplete runs: raise its timeout, MAX_WRITE_UNITS_PER_SECOND or MAX_DELETES",
                state.consecutive_incomplete_runs
            ),
        );
    }
    if let Some(run) = state.last_run.as_ref().filter(|run| run.skipped > 0) {
        add("skipped", format!("{name} could not read or delete {} in its last run", in_words(run.skipped)));
    }
}

fn in_words(rows: u64) -> String {
    if rows == 1 { "1 row".to_owned() } else { format!("{rows} rows") }
}
