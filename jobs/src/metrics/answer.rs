//! The answer and the metrics of a measurement.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::census::{Counts, OwnerKind};
use super::forecast::{age, overdue_after};
use super::{Ended, Measurement, NAME, TtlHealth, WATCHED, period};
use crate::metric::{self, Document};
use crate::run::report::Outcome;
use crate::run::state::{JobState, LastRun};
use crate::store::Billing;
use shared::settings::{Mode, Scope};
use shared::time::EpochSeconds;

/// The answer of `metrics-emitter`: the most important figures, and the whole report. An incomplete count is null.
pub fn answer(measured: &Measurement) -> Value {
    let total = measured.census.total();
    let counted = |value: Value| if measured.ended == Ended::Complete { value } else { Value::Null };
    json!({
        "statusCode": 200,
        "body": {
            "rows": counted(json!(total.rows)),
            "bytes": counted(json!(total.bytes)),
            "dead_rows": counted(json!(total.dead)),
            "retired_rows": counted(json!(total.retired)),
            "retired_rows_gone_by": counted(json!(total.retired_until.map(EpochSeconds::get))),
            "due_index_rows": counted(json!(total.due)),
            "oldest_dead_age_seconds": counted(json!(total.oldest_dead)),
            "ttl": measured.ttl.into_str(),
            "backlog": counted(json!(measured.forecast.backlog)),
            "trend": measured.forecast.trend,
            "days_until_clear": measured.forecast.days_until_clear,
            "findings": measured.findings.len(),
        },
        "report": {
            "complete": measured.ended == Ended::Complete,
            "outcome": measured.ended.into_str(),
            "scope": measured.scope.name(),
            "estimate": measured.estimate,
            "overdue": measured.is_overdue(),
            "table": measured.table,
            "now": measured.now.get(),
            "findings": measured.findings,
            "rows": counted(json!(total)),
            "dead_age": counted(json!(total.dead_ages)),
            "owners": counted(owners(measured)),
            "ttl": {
                "setting": measured.ttl.into_str(),
                "lag": counted(json!(total.lags)),
                "lag_age": counted(json!(total.lags.ages())),
                "never_removed": counted(json!(total.never)),
            },
            "runs": runs(measured),
            "pause": measured.pause,
            "clients": measured.clients,
            "forecast": counted(json!(measured.forecast)),
            "table_figures": figures(measured),
            "capacity": {
                "expected_read_units": measured.expected_units,
                "read_units": measured.usage.read_units,
                "write_units": measured.usage.write_units,
            },
            "requests": measured.usage.requests,
            "retries": measured.usage.retries,
            "throttles": measured.usage.throttles,
            "elapsed_ms": measured.elapsed_ms,
        },
    })
}

/// The kinds of owners in the scope, each with its buckets.
fn owners(measured: &Measurement) -> Value {
    // The OAuth system actor has rows of actors' buckets, too: an hourly count includes those and no others.
    let is_in_scope = |kind: &OwnerKind| measured.scope == Scope::All || *kind != OwnerKind::Legacy;
    let of = |kind: OwnerKind| {
        let mut owner = json!(measured.census.of(kind));
        owner["buckets"] = json!(measured.census.buckets(kind).collect::<BTreeMap<_, _>>());
        (kind.into_str(), owner)
    };
    OwnerKind::ALL.into_iter().filter(is_in_scope).map(of).collect()
}

fn runs(measured: &Measurement) -> Value {
    let run = |state: &JobState| {
        json!({
            "first_run_at": state.first_run_at,
            "last_complete_at": state.last_complete_at,
            "last_complete_age_seconds": state.last_complete_at.and_then(|at| age(at, measured.now)),
            "incomplete": state.consecutive_incomplete_runs > 0,
            "consecutive_incomplete_runs": state.consecutive_incomplete_runs,
            "last_run": state.last_run.as_ref().map(last_run),
        })
    };
    WATCHED.into_iter().map(|name| (name, measured.runs.get(name).map(run))).collect()
}

/// Replaces an unknown outcome: a state row may contain any text.
fn last_run(run: &LastRun) -> LastRun {
    let outcome = Outcome::named(&run.outcome).map_or("unknown", Outcome::name).to_owned();
    LastRun { outcome, ..run.clone() }
}

fn figures(measured: &Measurement) -> Value {
    let (billing, read_units, write_units) = match measured.figures.billing {
        Billing::OnDemand { .. } => ("on-demand", None, None),
        Billing::Provisioned { read_units, write_units } => ("provisioned", Some(read_units), Some(write_units)),
    };
    json!({
        "rows": measured.figures.rows,
        "bytes": measured.figures.bytes,
        "billing": billing,
        "read_units": read_units,
        "write_units": write_units,
    })
}

impl Measurement {
    /// Whether the cleanup or the repair has not completed for too long (since its first known run, if none completed),
    /// or the cascade reads the wrong stream. A job that has never run is not overdue: it failed, or is not scheduled.
    pub fn is_overdue(&self) -> bool {
        self.cascade_stream_is_stale()
            || self.runs.iter().any(|(name, state)| {
                let since = state.last_complete_at.or(state.first_run_at);
                let most = overdue_after(state, period(name));
                since.and_then(|since| age(since, self.now)).is_some_and(|age| age > most)
            })
    }

    /// Whether the cascade reads a stream that is no longer the table's: somebody turned the stream off and on again.
    pub(super) fn cascade_stream_is_stale(&self) -> bool {
        self.cascade_stream.is_some() && self.cascade_stream != self.figures.stream
    }

    /// The metrics, and all other counts as fields. An incomplete count is left out. A stack that deletes nothing does
    /// not emit the metrics that would raise an alarm until it deletes.
    pub fn document(&self) -> Document {
        let (deletes, is_whole) = (self.mode == Mode::Delete, self.ended == Ended::Complete);
        let ttl_is_on: Option<u64> = match self.ttl {
            TtlHealth::On | TtlHealth::TurningOn => Some(1),
            TtlHealth::Off | TtlHealth::OtherAttribute(_) | TtlHealth::TurningOff => Some(0),
            TtlHealth::Unknown(_) => None,
        };
        let oldest_dead = self.census.of(OwnerKind::System).oldest_dead.unwrap_or(0);
        let mut document = Document::new(&self.table, "counts")
            .count(metric::TABLE_ROWS, self.figures.rows)
            .count(metric::OVERDUE, (deletes && self.knows_runs).then(|| u64::from(self.is_overdue())))
            .count(metric::TTL_ON, ttl_is_on.filter(|_| deletes))
            .count(metric::BACKLOG, is_whole.then_some(self.forecast.backlog))
            .count(metric::OLDEST_DEAD_AGE, (is_whole && deletes).then_some(oldest_dead));
        if is_whole {
            document = document
                .field("rows_by_kind", self.by_kind(|counts| counts.rows))
                .field("created_last_hour", self.by_kind(|counts| counts.created_last_hour))
                .field("owners", owners(self))
                .field("forecast", json!(self.forecast));
        }
        let findings: Vec<&str> = self.findings.iter().map(|finding| finding.kind).collect();
        document
            .field("job", NAME)
            .field("scope", self.scope.name())
            .field("mode", self.mode.name())
            .field("outcome", self.ended.into_str())
            .field("estimate", json!(self.estimate))
            .field("ttl", self.ttl.into_str())
            .field("runs", runs(self))
            .field("pause", json!(self.pause))
            .field("clients", json!(self.clients))
            .field("table_figures", figures(self))
            .field("findings", findings)
            .field("units", json!({"read": self.usage.read_units}))
            .field("requests", self.usage.requests)
            .field("throttles", self.usage.throttles)
            .field("elapsed_ms", self.elapsed_ms)
    }

    /// Sums over the system actors' rows by kind, both generations together. Every kind is present, for queries.
    fn by_kind(&self, of: impl Fn(&Counts) -> u64) -> Value {
        let kind_of = |name: &str| {
            let known = KINDS.iter().find(|(bucket, _)| name.trim_start_matches('_') == *bucket);
            known.map_or(OTHER, |(_, kind)| kind)
        };
        let sum = |kind: &str| -> u64 {
            let buckets = self.census.buckets(OwnerKind::System).filter(|(name, _)| kind_of(name) == kind);
            buckets.map(|(_, counts)| of(counts)).sum()
        };
        KINDS.iter().map(|(_, kind)| (*kind, sum(kind))).collect()
    }
}

const OTHER: &str = "other";

/// Buckets of the system actors with one row per token or session, and the kind that they count.
const KINDS: [(&str, &str); 7] = [
    ("oauth_sessions", "oauth_sessions"),
    ("spa_access_tokens", "spa_access_tokens"),
    ("spa_refresh_tokens", "spa_refresh_tokens"),
    ("auth_code_index", "auth_codes"),
    ("access_token_index", "access_tokens"),
    ("refresh_token_index", "refresh_tokens"),
    ("", OTHER),
];
