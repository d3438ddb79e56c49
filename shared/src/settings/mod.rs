//! Settings: one table, and how environment, event and flags become the `Settings` of one run.
//!
//! Strict: a setting that is unknown, malformed or out of range stops the run before its first request, with an error that
//! names it. `kind` has the types and ranges, `names` detects misspelled settings, `endpoint` classifies endpoints.

mod endpoint;
mod kind;
mod names;

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::bucket::{RETIRE_DAYS, REUSE_WINDOW_SECONDS};
use crate::expiry::Policy;
pub use endpoint::{Destination, destination};
use kind::Kind::{Arn, Choice, Count, Days, Endpoint, Flag, Permission, Prefix, Seconds, Share, Table, Units};
pub use kind::{Kind, Setting, is_table_name};
pub use names::shown;
use names::{Origin, refuse_lookalikes, unknown, wrong};

pub type Environment = BTreeMap<String, String>;

/// Which job the settings are for: each takes only its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, strum::IntoStaticStr)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Purpose {
    Cleanup,
    Repair,
    Metrics,
    Cascade,
    Explain,
}

impl Purpose {
    pub fn name(self) -> &'static str {
        self.into()
    }
}

const ALL: &[Purpose] = {
    use Purpose::{Cascade, Cleanup, Explain, Metrics, Repair};
    &[Cleanup, Repair, Metrics, Cascade, Explain]
};
const CLEANERS: &[Purpose] = &[Purpose::Cleanup, Purpose::Repair];
const DELETING: &[Purpose] = &[Purpose::Cleanup, Purpose::Repair, Purpose::Cascade];
const ENDING: &[Purpose] = &[Purpose::Cleanup, Purpose::Repair, Purpose::Metrics, Purpose::Explain];
const FUNCTIONS: &[Purpose] = &[Purpose::Cleanup, Purpose::Repair, Purpose::Metrics, Purpose::Cascade];
const JUDGING: &[Purpose] = &[Purpose::Cleanup, Purpose::Repair, Purpose::Cascade, Purpose::Explain];

/// Every setting.
#[rustfmt::skip]
pub const SETTINGS: &[Setting] = &[
    Setting { name: "AWS_DB_PREFIX", flags: &["prefix"], value: "PREFIX", jobs: ALL, kind: Prefix, default: None,
              help: "Prefix of the deployment: the table is {PREFIX}_attributes",
              also_written: &["PREFIX", "DB_PREFIX", "TABLE_PREFIX", "DYNAMODB_PREFIX", "DYNAMODB_TABLE_PREFIX"] },
    Setting { name: "ATTRIBUTES_TABLE", flags: &["table"], value: "TABLE", jobs: ALL, kind: Table, default: None,
              help: "Full name of the table, instead of the prefix",
              also_written: &["TABLE", "TABLE_NAME", "DB_TABLE", "DYNAMODB_TABLE", "DYNAMODB_TABLE_NAME"] },
    Setting { name: "AWS_ENDPOINT_URL_DYNAMODB", flags: &["endpoint"], value: "URL", jobs: ALL, kind: Endpoint, default: None,
              help: "Local endpoint, such as http://127.0.0.1:8000, instead of AWS",
              also_written: &["DYNAMODB_ENDPOINT", "DYNAMODB_ENDPOINT_URL", "DYNAMODB_URL", "DYNAMODB_HOST"] },
    Setting { name: "AWS_DB_HOST", flags: &[], value: "URL", jobs: ALL, kind: Endpoint, default: None,
              help: "ActingWeb's own name for AWS_ENDPOINT_URL_DYNAMODB", also_written: &[] },
    Setting { name: "MODE", flags: &[], value: "MODE", jobs: FUNCTIONS, kind: Choice(&["delete", "dry-run"]), default: None,
              help: "dry-run sends no writes and reports what delete would do; a function that deletes requires it",
              also_written: &["DRY_RUN", "DRYRUN_MODE", "DRY_RUN_MODE", "DELETE_MODE", "JANITOR_MODE"] },
    Setting { name: "EXPIRED_ROWS", flags: &["expired-rows"], value: "ACTION", jobs: ENDING,
              kind: Choice(&["delete", "retire"]), default: Some("delete"),
              help: "What runs do with dead rows: delete them, or retire them (set a TTL, so that DynamoDB removes them later for free; until then they can be restored)",
              also_written: &[] },
    Setting { name: "RETIRE_DAYS", flags: &["retire-days"], value: "DAYS", jobs: ENDING,
              kind: Days, default: Some("7"), help: "Number of days a retired row can be restored; a row with an earlier TTL keeps that TTL",
              also_written: &["RETIRE_DAY", "RETIRE_FOR_DAYS"] },
    Setting { name: "MAX_DELETES", flags: &["max-deletes"], value: "N", jobs: DELETING, kind: Count, default: None,
              help: "Stop after N deletes; the next run continues from there",
              also_written: &["MAX_DELETE", "MAX_DELETIONS", "DELETE_LIMIT"] },
    Setting { name: "MAX_DELETE_SHARE", flags: &["max-delete-share"], value: "SHARE", jobs: CLEANERS, kind: Share, default: None,
              help: "Refuse to start if more than this share of the rows would be deleted (above 0, up to 1)",
              also_written: &["DELETE_SHARE", "MAX_SHARE"] },
    Setting { name: "MAX_WRITE_UNITS_PER_SECOND", flags: &["max-write-units-per-second", "max-write-units"], value: "UNITS", jobs: ALL, kind: Units,
              default: None, help: "Maximum write units per second; if unset, half of the table's provisioned units, or 500 on demand",
              also_written: &["WRITE_UNITS", "MAX_WCU", "MAX_WRITES_PER_SECOND", "WRITE_UNITS_PER_SECOND"] },
    Setting { name: "MAX_READ_UNITS_PER_SECOND", flags: &["max-read-units-per-second", "max-read-units"], value: "UNITS", jobs: ALL, kind: Units,
              default: None, help: "Maximum read units per second; if unset, half of the table's provisioned units, or 1500 on demand",
              also_written: &["READ_UNITS", "MAX_RCU", "MAX_READS_PER_SECOND", "READ_UNITS_PER_SECOND"] },
    Setting { name: "REUSE_WINDOW_SECONDS", flags: &["reuse-window", "reuse-window-seconds"], value: "DURATION", jobs: ALL,
              kind: Seconds { min: REUSE_WINDOW_SECONDS }, default: Some("172800"),
              help: "How long a consumed refresh token is kept to detect theft; ActingWeb's own window is the minimum",
              also_written: &["REUSE_WINDOW"] },
    Setting { name: "GRACE_SECONDS", flags: &["grace", "grace-seconds"], value: "DURATION", jobs: JUDGING, kind: Seconds { min: 300 },
              default: Some("3600"), help: "Minimum age of an unreachable row before it is deleted; 300 s are added for clock skew",
              also_written: &["GRACE", "GRACE_PERIOD", "GRACE_PERIOD_SECONDS"] },
    Setting { name: "RESTORE_CLIENTS", flags: &["restore-clients"], value: "", jobs: &[Purpose::Repair], kind: Flag, default: Some("false"),
              help: "Restore clients that the rename in ActingWeb 3.10 stranded: write the new-name index row, then delete the old-name row", also_written: &[] },
    Setting { name: "REMOVE_LEGACY", flags: &["remove-legacy"], value: "", jobs: &[Purpose::Repair, Purpose::Explain], kind: Flag,
              default: Some("false"), help: "Delete rows that only ActingWeb 3.2.1 read", also_written: &["DELETE_LEGACY"] },
    Setting { name: "BACKLOG_AFTER_INCOMPLETE_RUNS", flags: &[], value: "N", jobs: &[Purpose::Cleanup], kind: Count, default: None,
              help: "Request a backlog execution after N consecutive incomplete runs; never if unset",
              also_written: &["HAND_OVER_AFTER_CUT_OFFS", "HAND_OVER_AFTER", "BACKLOG_AFTER"] },
    Setting { name: "SCOPE", flags: &["scope"], value: "SCOPE", jobs: &[Purpose::Metrics], kind: Choice(&["system", "all"]), default: Some("system"),
              help: "Rows to count: system (rows of the system actors, with queries) or all (every row, with a scan)",
              also_written: &["METRICS_SCOPE", "AUDIT_SCOPE"] },
    Setting { name: "MAX_AUDIT_UNITS", flags: &["max-audit-units"], value: "UNITS", jobs: &[Purpose::Metrics], kind: Units, default: None,
              help: "Maximum read units per count; a count expected to need more is not started",
              also_written: &["AUDIT_UNITS"] },
    Setting { name: "CASCADE_STREAM_ARN", flags: &[], value: "ARN", jobs: &[Purpose::Metrics], kind: Arn, default: None,
              help: "Stream that the cascade reads, set by the template; metrics reports a finding if the table has another stream", also_written: &[] },
    Setting { name: "ALLOW_AWS", flags: &[], value: "", jobs: ALL, kind: Permission, default: Some("false"),
              help: "Lets a local function without a local endpoint use AWS", also_written: &["ALLOWAWS"] },
];

/// The settings of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub table: String,
    pub mode: Mode,
    pub expired_rows: ExpiredRows,
    pub retire_days: i64,
    pub max_deletes: Option<u64>,
    pub max_delete_share: Option<f64>,
    pub max_write_units_per_second: Option<f64>,
    pub max_read_units_per_second: Option<f64>,
    /// How many runs share the rate limits: the concurrent segments of a backlog execution.
    pub pace_shared_by: u16,
    pub reuse_window_seconds: i64,
    pub grace_seconds: i64,
    pub backlog_after_incomplete_runs: Option<u64>,
    pub restore_clients: bool,
    pub remove_legacy: bool,
    pub scope: Scope,
    pub max_audit_units: Option<f64>,
    /// The stream that the cascade reads, set by the template.
    pub cascade_stream: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Mode {
    Delete,
    DryRun,
}

impl Mode {
    pub fn name(self) -> &'static str {
        self.into()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString)]
#[strum(serialize_all = "kebab-case")]
pub enum ExpiredRows {
    Delete,
    Retire,
}

/// Which rows a measurement covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Scope {
    /// The rows of the system actors, by Query: cheap enough to run hourly.
    System,
    /// Every row, by Scan.
    All,
}

impl Scope {
    pub fn name(self) -> &'static str {
        self.into()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error("{setting}={value}: {problem}")]
    Value { setting: String, value: String, problem: String },
    #[error("{setting} is not a setting{near}")]
    Unknown { setting: String, near: String },
    #[error("no table: set AWS_DB_PREFIX (the table is {{prefix}}_attributes) or ATTRIBUTES_TABLE")]
    NoTable,
    #[error("AWS_DB_PREFIX selects table {by_prefix}, but ATTRIBUTES_TABLE is {by_name}: set only one of them")]
    TwoTables { by_prefix: String, by_name: String },
    #[error("set MODE=delete or MODE=dry-run")]
    NoMode,
    #[error("invalid event: {problem}")]
    Event { problem: String },
}

impl Settings {
    /// The settings of a function: its environment, overridden by the event. `MODE` has no default where rows are deleted.
    pub fn parse(environment: &Environment, event: &Map<String, Value>, purpose: Purpose) -> Result<Self, ConfigError> {
        refuse_lookalikes(environment, Origin::Function)?;
        Given::merge(environment, event, purpose)?.read(None)
    }

    /// The settings of a command: its flags, with the keys of an event, then the environment. Only `--apply` makes a command
    /// delete, so `MODE` in a shell has no effect.
    pub fn for_command(
        environment: &Environment,
        flags: &Map<String, Value>,
        purpose: Purpose,
    ) -> Result<Self, ConfigError> {
        refuse_lookalikes(environment, Origin::Shell)?;
        Given::merge(environment, flags, purpose)?.read(Some(Mode::DryRun))
    }

    /// The rules that rows are judged by.
    pub fn policy(&self) -> Policy {
        Policy {
            reuse_window: self.reuse_window_seconds,
            grace: self.grace_seconds,
            remove_legacy: self.remove_legacy,
            retire: (self.expired_rows == ExpiredRows::Retire).then_some(self.retire_days * 86_400),
        }
    }
}

/// The local endpoint that the environment names, if any.
pub fn endpoint(environment: &Environment) -> Option<&str> {
    let endpoints = SETTINGS.iter().filter(|setting| setting.kind == Endpoint);
    endpoints.filter_map(|setting| environment.get(setting.name)).map(|url| url.trim()).find(|url| !url.is_empty())
}

/// The given values, each in the range of its setting.
struct Given {
    values: BTreeMap<&'static str, String>,
    purpose: Purpose,
}

impl Given {
    fn merge(environment: &Environment, overrides: &Map<String, Value>, purpose: Purpose) -> Result<Self, ConfigError> {
        let mut values = BTreeMap::new();
        // A table in an event or a flag replaces the environment's, whichever of the two settings names it.
        let replaces_table = overrides.keys().any(|key| ["aws_db_prefix", "attributes_table"].contains(&key.as_str()));
        for setting in SETTINGS {
            // An empty value is unset: templates pass omitted parameters as empty strings.
            let value = environment.get(setting.name).map(|value| value.trim()).filter(|value| !value.is_empty());
            if let Some(value) = value.filter(|_| !(replaces_table && matches!(setting.kind, Prefix | Table))) {
                values.insert(setting.name, value.to_owned());
            }
        }
        for (key, value) in overrides {
            let setting = SETTINGS.iter().find(|setting| setting.key() == *key && setting.kind.is_for_events());
            let setting = setting.filter(|setting| setting.jobs.contains(&purpose));
            let setting = setting.ok_or_else(|| unknown(key, purpose))?;
            let text = match value {
                Value::String(text) => text.clone(),
                Value::Number(number) => number.to_string(),
                Value::Bool(truth) if setting.kind == Flag => truth.to_string(),
                other => return Err(wrong(setting.name, names::json_type(other), "must be a string or a number")),
            };
            // In an event, an empty value would undo an operator's limit.
            if text.trim().is_empty() {
                return Err(wrong(setting.name, "", "must not be empty; omit it instead"));
            }
            values.insert(setting.name, text.trim().to_owned());
        }
        // Functions may share one environment: a wrong value is wrong for every job.
        for setting in SETTINGS {
            if let Some(value) = values.get(setting.name) {
                setting.kind.check(value).map_err(|problem| wrong(setting.name, value, &problem))?;
            }
        }
        Ok(Self { values, purpose })
    }

    fn read(&self, mode: Option<Mode>) -> Result<Settings, ConfigError> {
        Ok(Settings {
            table: self.table()?,
            mode: self.mode(mode)?,
            expired_rows: self.parse("EXPIRED_ROWS").unwrap_or(ExpiredRows::Delete),
            retire_days: self.parse("RETIRE_DAYS").unwrap_or(RETIRE_DAYS),
            max_deletes: self.parse("MAX_DELETES"),
            max_delete_share: self.parse("MAX_DELETE_SHARE"),
            max_write_units_per_second: self.parse("MAX_WRITE_UNITS_PER_SECOND"),
            max_read_units_per_second: self.parse("MAX_READ_UNITS_PER_SECOND"),
            pace_shared_by: 1,
            reuse_window_seconds: self.parse("REUSE_WINDOW_SECONDS").unwrap_or(REUSE_WINDOW_SECONDS),
            grace_seconds: self.parse("GRACE_SECONDS").unwrap_or(crate::bucket::GRACE_SECONDS),
            backlog_after_incomplete_runs: self.parse("BACKLOG_AFTER_INCOMPLETE_RUNS"),
            restore_clients: self.parse("RESTORE_CLIENTS").unwrap_or(false),
            remove_legacy: self.parse("REMOVE_LEGACY").unwrap_or(false),
            scope: self.parse("SCOPE").unwrap_or(Scope::System),
            max_audit_units: self.parse("MAX_AUDIT_UNITS"),
            cascade_stream: self.get("CASCADE_STREAM_ARN").map(str::to_owned),
        })
    }

    /// The given value, or the default; `None` for a job that does not take the setting.
    fn get(&self, name: &str) -> Option<&str> {
        let setting = SETTINGS.iter().find(|setting| setting.name == name)?;
        let taken = setting.jobs.contains(&self.purpose);
        self.values.get(name).map(String::as_str).or(setting.default).filter(|_| taken)
    }

    fn parse<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.get(name)?.parse().ok()
    }

    fn mode(&self, of_command: Option<Mode>) -> Result<Mode, ConfigError> {
        match of_command {
            Some(mode) => Ok(mode),
            None if DELETING.contains(&self.purpose) => self.parse("MODE").ok_or(ConfigError::NoMode),
            // The metrics job only reads; the mode tells it whether the stack deletes.
            None => Ok(self.parse("MODE").unwrap_or(Mode::DryRun)),
        }
    }

    fn table(&self) -> Result<String, ConfigError> {
        let by_prefix = self.get("AWS_DB_PREFIX").map(|prefix| format!("{prefix}_attributes"));
        match (by_prefix, self.get("ATTRIBUTES_TABLE")) {
            (None, None) => Err(ConfigError::NoTable),
            (Some(by_prefix), Some(by_name)) if by_prefix != by_name => {
                Err(ConfigError::TwoTables { by_prefix, by_name: by_name.to_owned() })
            }
            (Some(table), _) => Ok(table),
            (None, Some(table)) => Ok(table.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Choice, Environment, Map, Purpose, SETTINGS, Settings, Value};
    use crate::bucket::{GRACE_SECONDS, RETIRE_DAYS, REUSE_WINDOW_SECONDS};

    #[test]
    fn every_default_and_every_choice_of_the_table_is_read() {
        let default = |name: &str| SETTINGS.iter().find(|setting| setting.name == name).and_then(|one| one.default);
        assert_eq!(default("REUSE_WINDOW_SECONDS"), Some(REUSE_WINDOW_SECONDS.to_string().as_str()));
        assert_eq!(default("GRACE_SECONDS"), Some(GRACE_SECONDS.to_string().as_str()));
        assert_eq!(default("RETIRE_DAYS"), Some(RETIRE_DAYS.to_string().as_str()));
        let environment: Environment =
            [("AWS_DB_PREFIX", "x"), ("MODE", "delete")].map(|(n, v)| (n.into(), v.into())).into();
        let parse = |event: Value, purpose| {
            let event: Map<String, Value> = event.as_object().cloned().unwrap_or_default();
            Settings::parse(&environment, &event, purpose).unwrap()
        };
        for setting in SETTINGS {
            assert!(setting.default.is_none_or(|default| setting.kind.check(default).is_ok()), "{}", setting.name);
            let Choice(choices) = setting.kind else { continue };
            let read: Vec<_> = choices
                .iter()
                .map(|choice| parse(serde_json::json!({setting.key(): choice}), setting.jobs[0]))
                .collect();
            assert!(read.windows(2).all(|two| two[0] != two[1]), "{}: two choices are read as one", setting.name);
            let by_default = parse(Value::Null, setting.jobs[0]);
            let index = choices.iter().position(|choice| setting.default.unwrap_or("delete") == *choice);
            assert_eq!(by_default, read[index.expect("the default is a choice")], "{}", setting.name);
        }
    }

    #[test]
    fn names_and_flags_are_unique() {
        let mut names: Vec<&str> =
            SETTINGS.iter().flat_map(|one| one.also_written.iter().chain([&one.name])).copied().collect();
        let mut flags: Vec<&str> = SETTINGS.iter().flat_map(|setting| setting.flags).copied().collect();
        for list in [&mut names, &mut flags] {
            let length = list.len();
            list.sort_unstable();
            list.dedup();
            assert_eq!(list.len(), length);
        }
        assert_eq!(Purpose::Cleanup.name(), "cleanup");
    }
}
