//! What was measured, as the answer and as metrics.

use serde_json::{Map, Value, json};

use super::census::{Counts, OwnerKind};
use super::lag::Ages;
use super::{Ended, Measurement, NAME, WATCHED};
use crate::metric::{self, Sample};
use crate::run::report::Outcome;
use crate::run::state::{JobState, LastRun};
use crate::store::Billing;
use shared::bucket::{BUCKETS, Owner};
use shared::settings::Scope;

/// The answer of `metrics-emitter`: the figures that matter most, and the whole report beside them. What was not counted
/// to the end is null, not a number.
pub fn answer(measured: &Measurement) -> Value {
    let total = measured.census.total();
    let counted = |value: Value| if measured.ended == Ended::Complete { value } else { Value::Null };
    json!({
        "statusCode": 200,
        "body": {
            "rows": counted(json!(total.rows)),
            "bytes": counted(json!(total.bytes)),
            "dead_rows": counted(json!(total.dead)),
            "due_index_rows": counted(json!(total.due)),
            "oldest_dead_age_seconds": counted(json!(total.oldest_dead)),
            "ttl": measured.ttl.name(),
            "backlog": counted(json!(measured.forecast.backlog)),
            "trend": measured.forecast.trend.name(),
            "days_until_clear": measured.forecast.trend.days_until_clear(),
            "findings": measured.findings.len(),
        },
        "report": report(measured),
    })
}

fn report(measured: &Measurement) -> Value {
    let findings: Vec<Value> =
        measured.findings.iter().map(|finding| json!({"kind": finding.kind, "text": finding.text})).collect();
    let total = measured.census.total();
    let counted = |value: Value| if measured.ended == Ended::Complete { value } else { Value::Null };
    let runs: Map<String, Value> = WATCHED
        .iter()
        .map(|name| ((*name).to_owned(), measured.runs.get(name).map_or(Value::Null, |state| run(state, measured))))
        .collect();
    json!({
        "complete": measured.ended == Ended::Complete,
        "outcome": measured.ended.name(),
        "scope": measured.scope.name(),
        "table": measured.table,
        "now": measured.now.get(),
        "findings": findings,
        "rows": counted(counts(&total)),
        "dead_age": counted(ages(&total.dead_ages)),
        "owners": counted(owners(measured)),
        "ttl": {
            "setting": measured.ttl.name(),
            "lag": counted(lag(&total)),
            "lag_age": counted(ages(total.lags.ages())),
            "never_removed": counted(never(&total)),
        },
        "runs": runs,
        "forecast": counted(measured.forecast.to_json()),
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
    })
}

/// The kinds of owners that are in the scope, each with its buckets.
fn owners(measured: &Measurement) -> Value {
    let of = |kind: &OwnerKind| {
        let buckets: Map<String, Value> =
            measured.census.buckets(*kind).map(|(name, bucket)| (name.to_owned(), counts(bucket))).collect();
        let mut owner = counts(&measured.census.of(*kind));
        owner["buckets"] = Value::Object(buckets);
        (kind.name().to_owned(), owner)
    };
    Value::Object(in_scope(measured).map(of).collect())
}

fn in_scope(measured: &Measurement) -> impl Iterator<Item = &'static OwnerKind> {
    let all = measured.scope == Scope::All;
    // Rows of actors live under the OAuth system actor, too: an hourly count sees those and no others.
    OwnerKind::ALL.iter().filter(move |kind| all || **kind != OwnerKind::Legacy)
}

fn counts(counts: &Counts) -> Value {
    json!({
        "rows": counts.rows,
        "bytes": counts.bytes,
        "dead": counts.dead,
        "due": counts.due,
        "oldest_dead_age_seconds": counts.oldest_dead,
        "ttl_lag": lag(counts),
        "never_removed_by_ttl": never(counts),
    })
}

fn lag(counts: &Counts) -> Value {
    json!({
        "rows": counts.lags.rows(),
        "median_seconds": counts.lags.percentile(50),
        "p95_seconds": counts.lags.percentile(95),
        "oldest_seconds": counts.lags.oldest(),
    })
}

/// How many rows of which age: each cell holds what the one before it does not reach, the last one all that is older.
fn ages(ages: &Ages) -> Value {
    ages.cells().map(|(up_to, rows)| json!({"up_to_seconds": up_to, "rows": rows})).collect()
}

fn never(counts: &Counts) -> Value {
    Value::Object(counts.never.iter().map(|(why, rows)| (why.name().to_owned(), json!(rows))).collect())
}

fn run(state: &JobState, measured: &Measurement) -> Value {
    json!({
        "last_complete_at": state.last_complete_at,
        "last_complete_age_seconds": age(state, measured),
        "cut_off": state.consecutive_incomplete_runs > 0,
        "consecutive_incomplete_runs": state.consecutive_incomplete_runs,
        "last_run": state.last_run.as_ref().map(last_run),
    })
}

/// A state row is ours, but it is only a row: what it calls an outcome is passed on if it is one.
fn last_run(run: &LastRun) -> LastRun {
    let outcome = Outcome::named(&run.outcome).map_or("unknown", Outcome::name).to_owned();
    LastRun { outcome, ..run.clone() }
}

fn age(state: &JobState, measured: &Measurement) -> Option<u64> {
    super::age(state.last_complete_at?, measured.now).and_then(|age| u64::try_from(age).ok())
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
    /// The metrics. A count that is not whole is none, and is left out.
    pub fn samples(&self) -> Vec<Sample> {
        let table = self.table.as_str();
        let mut samples = vec![self.of_table(), self.of_itself()];
        samples.extend(WATCHED.iter().filter_map(|name| {
            let state = self.runs.get(name)?;
            Some(
                Sample::of(&[(metric::TABLE, table), (metric::FUNCTION, name)])
                    .count_if_known(metric::LAST_COMPLETE_AGE, age(state, self))
                    .count(metric::CUT_OFF_IN_A_ROW, state.consecutive_incomplete_runs),
            )
        }));
        if self.ended != Ended::Complete {
            return samples;
        }
        if self.scope == Scope::All {
            samples.push(of_rows(Sample::of(&[(metric::TABLE, table)]), &self.census.total()));
        }
        // An hourly pass sees all of the system actors' rows and few of the others'.
        let whole = OwnerKind::ALL.iter().filter(|kind| self.scope == Scope::All || **kind == OwnerKind::System);
        for kind in whole {
            let owner = self.census.of(*kind);
            let sample = of_rows(Sample::of(&[(metric::TABLE, table), (metric::OWNER, kind.name())]), &owner)
                .count_if_known(metric::TTL_LAG_MEDIAN, owner.lags.percentile(50).or(Some(0)))
                .count_if_known(metric::TTL_LAG_P95, owner.lags.percentile(95).or(Some(0)))
                .count_if_known(metric::TTL_LAG_OLDEST, owner.lags.oldest().or(Some(0)))
                .count(metric::TTL_NEVER, owner.never_removed());
            samples.push(sample);
            if *kind == OwnerKind::System {
                samples.extend(self.emptied().map(|name| {
                    of_rows(Sample::of(&[(metric::TABLE, table), (metric::BUCKET, name)]), &Counts::default())
                }));
            }
            for (name, bucket) in self.census.buckets(*kind) {
                // Names of legacy buckets are names of others, too.
                let name = if *kind == OwnerKind::Legacy { format!("{}/{name}", kind.name()) } else { name.to_owned() };
                samples.push(of_rows(Sample::of(&[(metric::TABLE, table), (metric::BUCKET, &name)]), bucket));
            }
        }
        samples
    }

    /// Buckets that held rows when the last cleanup came by, and hold none now: a metric that just ended would stay at its
    /// last value.
    fn emptied(&self) -> impl Iterator<Item = &'static str> {
        let left = self.runs.get(crate::cleanup::NAME).and_then(|state| state.left.as_ref());
        BUCKETS
            .iter()
            .filter(|bucket| matches!(bucket.owner, Owner::System(_)))
            .filter(move |bucket| left.is_some_and(|left| left.contains_key(bucket.name)))
            .map(|bucket| bucket.name)
            .filter(|name| self.census.buckets(OwnerKind::System).all(|(held, _)| held != *name))
    }

    fn of_table(&self) -> Sample {
        let mut sample = Sample::of(&[(metric::TABLE, &self.table)])
            .count(metric::TABLE_ROWS, self.figures.rows)
            .count(metric::TABLE_BYTES, self.figures.bytes)
            .count(metric::FINDINGS, self.findings.len() as u64);
        if let Billing::Provisioned { read_units, write_units } = self.figures.billing {
            sample = sample
                .number(metric::PROVISIONED_READ_UNITS, read_units)
                .number(metric::PROVISIONED_WRITE_UNITS, write_units);
        }
        if !matches!(self.ttl, super::TtlHealth::Unknown(_)) {
            sample = sample.flag(metric::TTL_ON, self.ttl == super::TtlHealth::On);
        }
        if self.ended != Ended::Complete {
            return sample;
        }
        let forecast = &self.forecast;
        sample = sample.count(metric::BACKLOG, forecast.backlog);
        if forecast.trend != super::Trend::Unknown {
            sample = sample.flag(metric::BACKLOG_GROWS, forecast.trend == super::Trend::Grows);
        }
        let told = [
            (metric::DAYS_UNTIL_CLEAR, forecast.trend.days_until_clear()),
            (metric::DIED_PER_DAY, forecast.died_per_day),
            (metric::DELETED_PER_DAY, forecast.deleted_per_day),
        ];
        told.into_iter()
            .filter_map(|(metric, value)| Some((metric, value?)))
            .fold(sample, |sample, (metric, value)| sample.number(metric, value))
    }

    fn of_itself(&self) -> Sample {
        self.usage
            .sample(Sample::of(&[(metric::TABLE, &self.table), (metric::FUNCTION, NAME)]), self.elapsed_ms)
            .flag(metric::COMPLETE, self.ended == Ended::Complete)
            .count(metric::FAILED, 0)
    }
}

fn of_rows(sample: Sample, counts: &Counts) -> Sample {
    sample
        .count(metric::ROWS, counts.rows)
        .count(metric::ROW_BYTES, counts.bytes)
        .count(metric::DEAD_ROWS, counts.dead)
        .count(metric::DUE_INDEX_ROWS, counts.due)
        .count(metric::OLDEST_DEAD_AGE, counts.oldest_dead.unwrap_or(0))
}
