//! Settings: the environment, and what an event overrides for one run. Strict: a setting that is unknown, malformed or
//! out of range stops the run before its first request, with a line that names it.

use std::collections::BTreeMap;
use std::str::FromStr;

use serde_json::{Map, Value};

use crate::bucket::{GRACE_SECONDS, REUSE_WINDOW_SECONDS};
use crate::mask::Masked;

pub type Environment = BTreeMap<String, String>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Delete,
    DryRun,
}

impl Mode {
    const NAMES: [(&'static str, Mode); 2] = [("delete", Mode::Delete), ("dry-run", Mode::DryRun)];

    /// As it is spelled in settings, reports and logs.
    pub fn name(self) -> &'static str {
        spelled(&Self::NAMES, self)
    }
}

fn spelled<T: Copy + PartialEq>(names: &[(&'static str, T)], value: T) -> &'static str {
    names.iter().find(|(_, named)| *named == value).map_or("", |(name, _)| name)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpiredRows {
    Delete,
    DeferToTtl,
}

/// What a measurement covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The system actors' rows, by Query: cheap enough for every hour.
    System,
    /// Every row, by Scan.
    All,
}

impl Scope {
    const NAMES: [(&'static str, Scope); 2] = [("system", Scope::System), ("all", Scope::All)];

    /// As it is spelled in settings, reports and logs.
    pub fn name(self) -> &'static str {
        spelled(&Self::NAMES, self)
    }
}

/// The settings of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub table: String,
    pub mode: Mode,
    pub expired_rows: ExpiredRows,
    pub max_deletes: Option<u64>,
    pub max_delete_share: Option<f64>,
    pub max_write_units_per_second: Option<f64>,
    pub max_read_units_per_second: Option<f64>,
    /// How many runs share the pace: those of an execution's parts.
    pub pace_shared_by: u16,
    pub reuse_window_seconds: i64,
    pub grace_seconds: i64,
    /// Of the daily cleanup only: after so many runs in a row that their time cut off, the answer asks for an execution.
    pub backlog_after_incomplete_runs: Option<u64>,
    /// Of the index repair only: write the missing index row of a client that the 3.10 rename stranded.
    pub restore_clients: bool,
    /// Of the index repair only: delete what nothing has read since ActingWeb 3.3.
    pub remove_legacy: bool,
    /// Of the metrics only: which rows are counted.
    pub scope: Scope,
    /// Of the metrics only: read units that one measurement may use.
    pub max_audit_units: Option<f64>,
    /// Of the metrics only: the stream that the cascade is mapped to, as the template knows it.
    pub cascade_stream: Option<String>,
}

/// Which run the settings are for: each knows only its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    DailyCleanup,
    IndexRepair,
    Metrics,
    TtlCascade,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error("{setting}={value}: {problem}")]
    Value { setting: String, value: String, problem: String },
    #[error("{setting} is not a setting{near}")]
    Unknown { setting: String, near: String },
    #[error("no table: set AWS_DB_PREFIX (the table is {{prefix}}_attributes) or ATTRIBUTES_TABLE")]
    NoTable,
    #[error("AWS_DB_PREFIX means table {by_prefix}, ATTRIBUTES_TABLE says {by_name}: set one of them")]
    TwoTables { by_prefix: String, by_name: String },
    #[error("the event is not an object of settings: {problem}")]
    Event { problem: String },
}

const PREFIX: &str = "AWS_DB_PREFIX";
const TABLE: &str = "ATTRIBUTES_TABLE";
const ENDPOINTS: [&str; 2] = ["AWS_ENDPOINT_URL_DYNAMODB", "AWS_DB_HOST"];
const MODE: &str = "MODE";
const EXPIRED_ROWS: &str = "EXPIRED_ROWS";
const MAX_DELETES: &str = "MAX_DELETES";
const MAX_DELETE_SHARE: &str = "MAX_DELETE_SHARE";
const MAX_WRITE_UNITS: &str = "MAX_WRITE_UNITS_PER_SECOND";
const MAX_READ_UNITS: &str = "MAX_READ_UNITS_PER_SECOND";
const REUSE_WINDOW: &str = "REUSE_WINDOW_SECONDS";
const GRACE: &str = "GRACE_SECONDS";
const RESTORE_CLIENTS: &str = "RESTORE_CLIENTS";
const REMOVE_LEGACY: &str = "REMOVE_LEGACY";

const BACKLOG_AFTER: &str = "BACKLOG_AFTER_INCOMPLETE_RUNS";

const SCOPE: &str = "SCOPE";
const MAX_AUDIT_UNITS: &str = "MAX_AUDIT_UNITS";
/// Given by the template, not by people.
pub const CASCADE_STREAM: &str = "CASCADE_STREAM_ARN";

/// What an event may override, in lower case. Not the endpoint: an event must not be able to send signed requests elsewhere.
const OVERRIDABLE: [&str; 10] = [
    PREFIX,
    TABLE,
    MODE,
    EXPIRED_ROWS,
    MAX_DELETES,
    MAX_DELETE_SHARE,
    MAX_WRITE_UNITS,
    MAX_READ_UNITS,
    REUSE_WINDOW,
    GRACE,
];

/// What only the daily cleanup knows.
const OF_CLEANUP: [&str; 1] = [BACKLOG_AFTER];

/// What only the index repair knows.
const OF_REPAIR: [&str; 2] = [RESTORE_CLIENTS, REMOVE_LEGACY];

/// What only the metrics know.
const OF_METRICS: [&str; 2] = [SCOPE, MAX_AUDIT_UNITS];

impl Purpose {
    /// Whose a setting is that not all runs have.
    const OWN: [(&[&str], &str); 3] =
        [(&OF_CLEANUP, "the daily cleanup's"), (&OF_REPAIR, "the index repair's"), (&OF_METRICS, "the metrics'")];

    fn settings(self) -> impl Iterator<Item = &'static str> {
        let more: &[&str] = match self {
            Purpose::DailyCleanup => &OF_CLEANUP,
            Purpose::TtlCascade => &[],
            Purpose::IndexRepair => &OF_REPAIR,
            Purpose::Metrics => &OF_METRICS,
        };
        OVERRIDABLE.iter().chain(more).copied()
    }
}

/// Every setting there is, whosever.
fn all_settings() -> impl Iterator<Item = &'static str> {
    OVERRIDABLE.iter().chain(Purpose::OWN.iter().flat_map(|(settings, _)| *settings)).copied()
}

/// So many letters of a setting's name are its own: an environment variable that begins with them and is no setting is a
/// typing mistake, and must not be a silent default. A shorter name (`MODE`, `SCOPE`) is anybody's word.
const STEM: usize = 9;

impl Settings {
    /// # Errors
    /// The first setting that is unknown, malformed or out of range.
    pub fn parse(
        environment: &Environment,
        overrides: &Map<String, Value>,
        default_mode: Mode,
        purpose: Purpose,
    ) -> Result<Self, ConfigError> {
        if let Some(name) = environment.keys().find(|name| is_mistyped(name)) {
            return Err(unknown(name));
        }
        let mut given = Given { values: environment.clone(), purpose };
        given.override_with(overrides)?;
        Ok(Self {
            table: given.table()?,
            mode: given.choice(MODE, &Mode::NAMES)?.unwrap_or(default_mode),
            expired_rows: given
                .choice(EXPIRED_ROWS, &[("delete", ExpiredRows::Delete), ("defer-to-ttl", ExpiredRows::DeferToTtl)])?
                .unwrap_or(ExpiredRows::Delete),
            max_deletes: given
                .number(MAX_DELETES, "a whole number from 1 up (MODE=dry-run deletes nothing)", |n| *n >= 1)?,
            max_delete_share: given
                .number(MAX_DELETE_SHARE, "a share above 0 and at most 1", |share| *share > 0.0 && *share <= 1.0)?,
            max_write_units_per_second: given.units(MAX_WRITE_UNITS)?,
            max_read_units_per_second: given.units(MAX_READ_UNITS)?,
            pace_shared_by: 1,
            reuse_window_seconds: given
                .number(
                    REUSE_WINDOW,
                    "172800 or more, the window in which ActingWeb itself detects theft",
                    |seconds| (REUSE_WINDOW_SECONDS..=MOST_SECONDS).contains(seconds),
                )?
                .unwrap_or(REUSE_WINDOW_SECONDS),
            grace_seconds: given
                .number(GRACE, "a number of seconds from 0 up", |seconds| (0..=MOST_SECONDS).contains(seconds))?
                .unwrap_or(GRACE_SECONDS),
            backlog_after_incomplete_runs: given
                .number(BACKLOG_AFTER, "a whole number from 1 up", |n| *n >= 1)?
                .filter(|_| given.knows(BACKLOG_AFTER)),
            restore_clients: given.flag(RESTORE_CLIENTS)?,
            remove_legacy: given.flag(REMOVE_LEGACY)?,
            scope: given.own_choice(SCOPE, &Scope::NAMES)?.unwrap_or(Scope::System),
            max_audit_units: given.units(MAX_AUDIT_UNITS)?.filter(|_| given.knows(MAX_AUDIT_UNITS)),
            cascade_stream: given.get(CASCADE_STREAM).filter(|_| purpose == Purpose::Metrics).map(str::to_owned),
        })
    }
}

/// Ten years: more is a typing mistake, and would overflow nothing but patience.
const MOST_SECONDS: i64 = 315_360_000;

/// The local endpoint that the environment names, if any: ours first, then ActingWeb's own name for it.
pub fn endpoint(environment: &Environment) -> Option<&str> {
    ENDPOINTS.iter().filter_map(|name| environment.get(*name)).map(String::as_str).find(|endpoint| !endpoint.is_empty())
}

/// Whether DynamoDB takes it as a table's name.
pub fn is_table_name(table: &str) -> bool {
    (3..=255).contains(&table.len()) && table.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'))
}

struct Given {
    values: Environment,
    purpose: Purpose,
}

impl Given {
    fn override_with(&mut self, overrides: &Map<String, Value>) -> Result<(), ConfigError> {
        // A table named by the event replaces the environment's, by whichever of its two names.
        if [PREFIX, TABLE].iter().any(|name| overrides.contains_key(&name.to_lowercase())) {
            self.values.remove(PREFIX);
            self.values.remove(TABLE);
        }
        for (name, value) in overrides {
            let Some(setting) = self.purpose.settings().find(|known| known.to_lowercase() == *name) else {
                return Err(unknown(name));
            };
            let text = match value {
                Value::String(text) => text.clone(),
                Value::Number(number) => number.to_string(),
                Value::Bool(truth) if OF_REPAIR.contains(&setting) => truth.to_string(),
                other => return Err(wrong(setting, &kind(other), "must be a string or a number")),
            };
            // Empty is unset in the environment only: an event that empties a setting would undo an operator's ceiling.
            if text.trim().is_empty() {
                return Err(wrong(setting, "", "must not be empty in an event: leave it out instead"));
            }
            self.values.insert(setting.to_owned(), text);
        }
        Ok(())
    }

    /// An empty value is an unset one: templates pass parameters that were left out as empty strings.
    fn get(&self, setting: &str) -> Option<&str> {
        self.values.get(setting).map(|value| value.trim()).filter(|value| !value.is_empty())
    }

    fn table(&self) -> Result<String, ConfigError> {
        let by_prefix = self.get(PREFIX).map(|prefix| format!("{prefix}_attributes"));
        let (setting, table) = match (by_prefix, self.get(TABLE)) {
            (None, None) => return Err(ConfigError::NoTable),
            (Some(by_prefix), Some(by_name)) if by_prefix != by_name => {
                return Err(ConfigError::TwoTables { by_prefix, by_name: by_name.to_owned() });
            }
            (Some(by_prefix), _) => (PREFIX, by_prefix),
            (None, Some(by_name)) => (TABLE, by_name.to_owned()),
        };
        if is_table_name(&table) {
            Ok(table)
        } else {
            Err(wrong(setting, &table, "not a table's name: letters, digits, _ - . only"))
        }
    }

    fn choice<T: Copy>(&self, setting: &str, choices: &[(&str, T)]) -> Result<Option<T>, ConfigError> {
        let Some(value) = self.get(setting) else { return Ok(None) };
        if let Some((_, choice)) = choices.iter().find(|(name, _)| *name == value) {
            return Ok(Some(*choice));
        }
        let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
        Err(wrong(setting, value, &format!("must be {}", names.join(" or "))))
    }

    fn knows(&self, setting: &str) -> bool {
        self.purpose.settings().any(|known| known == setting)
    }

    /// A choice that not all runs have. A wrong one is wrong in the environment of any.
    fn own_choice<T: Copy>(&self, setting: &str, choices: &[(&str, T)]) -> Result<Option<T>, ConfigError> {
        let choice = self.choice(setting, choices)?;
        Ok(choice.filter(|_| self.knows(setting)))
    }

    fn flag(&self, setting: &str) -> Result<bool, ConfigError> {
        Ok(self.own_choice(setting, &[("true", true), ("false", false)])?.unwrap_or(false))
    }

    fn number<T: FromStr>(
        &self,
        setting: &str,
        wanted: &str,
        accept: impl Fn(&T) -> bool,
    ) -> Result<Option<T>, ConfigError> {
        let Some(value) = self.get(setting) else { return Ok(None) };
        match value.parse() {
            Ok(number) if accept(&number) => Ok(Some(number)),
            _ => Err(wrong(setting, value, &format!("must be {wanted}"))),
        }
    }

    fn units(&self, setting: &str) -> Result<Option<f64>, ConfigError> {
        self.number(setting, "a number of capacity units from 0.1 up", |units: &f64| units.is_finite() && *units >= 0.1)
    }
}

/// Functions may share one environment: what is another run's setting is no mistake in it.
fn is_mistyped(name: &str) -> bool {
    let begins_like = |known: &str| known.get(..STEM).is_some_and(|stem| name.starts_with(stem));
    !all_settings().any(|known| known == name) && all_settings().any(begins_like)
}

fn unknown(name: &str) -> ConfigError {
    let upper = name.to_uppercase();
    let near = if ENDPOINTS.contains(&upper.as_str()) {
        " that an event may change: the endpoint comes from the environment".to_owned()
    } else if let Some((_, whose)) = Purpose::OWN.iter().find(|(settings, _)| settings.contains(&upper.as_str())) {
        format!(" of this run: it is {whose}")
    } else if OVERRIDABLE.contains(&name) {
        format!(" in an event: did you mean {}?", name.to_lowercase())
    } else {
        all_settings()
            .find(|known| upper.get(..6).is_some_and(|head| known.starts_with(head)))
            .map_or(String::new(), |known| format!(": did you mean {known}?"))
    };
    ConfigError::Unknown { setting: shown(name), near }
}

fn wrong(setting: &str, value: &str, problem: &str) -> ConfigError {
    ConfigError::Value { setting: setting.to_owned(), value: shown(value), problem: problem.to_owned() }
}

/// Settings are not secrets, but whatever was typed into one may be: only what looks like a setting is shown. Its words are of
/// one kind of character each, but for a capital at the front; the random ones of a token, or of a chain's id, are not.
pub fn shown(value: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ' ');
    let of_one_kind = |word: &str| {
        let kinds: [fn(&u8) -> bool; 3] = [u8::is_ascii_lowercase, u8::is_ascii_uppercase, u8::is_ascii_digit];
        let word = word.as_bytes();
        let rest = word.get(1..).filter(|_| word[0].is_ascii_uppercase());
        kinds.iter().any(|kind| word.iter().all(kind))
            || rest.is_some_and(|rest| rest.iter().all(u8::is_ascii_lowercase))
    };
    let is_plain = value.len() <= 30 && value.chars().all(plain);
    // Three characters are nobody's secret.
    let is_setting = is_plain && (value.len() < 4 || value.split(['_', '-', '.', ' ']).all(of_one_kind));
    if is_setting { value.to_owned() } else { Masked(value).to_string() }
}

fn kind(value: &Value) -> String {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
    .to_owned()
}
