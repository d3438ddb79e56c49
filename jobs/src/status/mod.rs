//! The table and its runs on one screen. It reads little and writes nothing: two descriptions, the state of the runs,
//! the lease and the pause, and a small sample of the system actors' rows.

mod doctor;

use std::collections::BTreeMap;

use serde::Serialize;

pub use doctor::{Check, CheckState, examine};

use crate::metrics::{self, Ended, Finding, Measurement, Sampling, WATCHED};
use crate::run::clock::RunClock;
use crate::run::lease::LEASE;
use crate::run::pause::{self, Pause};
use crate::run::report::Outcome;
use crate::run::state::JobState;
use crate::store::{
    Budget, InspectRecovery, InspectTable, ReadRows, Recovery, Result, ScanTable, get_one, state_key, state_value,
};
use shared::lease::{self, Holder};
use shared::settings::{Scope, Settings};

#[derive(Clone, Debug, Serialize)]
pub struct Status {
    pub table: String,
    pub now: i64,
    /// DynamoDB's own count, up to six hours old.
    pub rows: u64,
    pub ttl: &'static str,
    /// Point-in-time recovery: `on`, `off`, `not-offered` (a local engine) or `unknown`.
    pub recovery: &'static str,
    pub pause: Option<Pause>,
    pub lease: Option<Holder>,
    pub runs: BTreeMap<&'static str, Option<RunSummary>>,
    /// Rows that the next cleanup would delete; null where they were not counted.
    pub backlog: Option<u64>,
    /// The error of an estimated backlog, as a share of it.
    pub backlog_error: Option<f64>,
    pub trend: &'static str,
    pub days_until_clear: Option<f64>,
    pub findings: Vec<Finding>,
    pub read_units: f64,
    pub requests: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RunSummary {
    pub at: i64,
    pub outcome: &'static str,
    pub read: u64,
    pub deleted: u64,
    pub last_complete_at: Option<i64>,
    pub consecutive_incomplete_runs: u64,
    /// When the next run is expected: after the time between the last two, or after the job's period.
    pub next_at: i64,
}

/// # Errors
/// When the table could not be read.
pub async fn status<S>(store: &S, settings: &Settings, clock: &RunClock) -> Result<Status>
where
    S: ReadRows + ScanTable + InspectTable + InspectRecovery + Budget,
{
    let settings = Settings { scope: Scope::System, ..settings.clone() };
    let now = clock.now();
    let mut measured = metrics::measure(store, &settings, clock, &Sampling::brief(now)).await?;
    let recovery = store.recovery().await;
    measured.findings.extend(metrics::recovery_finding(&measured, &recovery));
    let lease = get_one(store, state_key(LEASE)).await?;
    let is_counted = measured.ended == Ended::Complete;
    Ok(Status {
        table: measured.table.clone(),
        now: now.get(),
        rows: measured.figures.rows,
        ttl: measured.ttl.into_str(),
        recovery: match recovery {
            Ok(Recovery::On) => "on",
            Ok(Recovery::Off) => "off",
            Ok(Recovery::NotOffered) => "not-offered",
            Err(_) => "unknown",
        },
        pause: pause::read(store, clock).await?,
        lease: lease.and_then(|row| lease::holder(&state_value(&row), now)),
        runs: WATCHED.iter().map(|name| (*name, last_run(&measured, name))).collect(),
        backlog: is_counted.then_some(measured.forecast.backlog),
        backlog_error: measured.estimate.filter(|_| is_counted).and_then(|estimate| estimate.dead_error),
        trend: measured.forecast.trend.into_str(),
        days_until_clear: measured.forecast.days_until_clear,
        findings: measured.findings,
        read_units: store.usage().read_units,
        requests: store.usage().requests,
    })
}

fn last_run(measured: &Measurement, name: &str) -> Option<RunSummary> {
    let state: &JobState = measured.runs.get(name)?;
    let run = state.last_run.as_ref()?;
    Some(RunSummary {
        at: run.at,
        outcome: Outcome::named(&run.outcome).map_or("unknown", Outcome::name),
        read: run.read,
        deleted: run.deleted,
        last_complete_at: state.last_complete_at,
        consecutive_incomplete_runs: state.consecutive_incomplete_runs,
        next_at: run.at.saturating_add(metrics::interval(run).unwrap_or_else(|| metrics::period(name))),
    })
}
