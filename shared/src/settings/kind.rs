//! What a setting is: its types, their ranges, and durations in the grammar of the flags.

use serde::Serialize;

use super::Purpose;

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Setting {
    /// Also the environment variable.
    pub name: &'static str,
    /// The flag of `janitor`, then its older spellings. A setting without one is not for commands.
    pub flags: &'static [&'static str],
    /// How help shows the flag's value.
    pub value: &'static str,
    pub jobs: &'static [Purpose],
    pub kind: Kind,
    pub default: Option<&'static str>,
    pub help: &'static str,
    /// Names that people write instead: each stops a function, with the right name in the error.
    pub also_written: &'static [&'static str],
}

impl Setting {
    /// The key in an event.
    pub fn key(&self) -> String {
        self.name.to_lowercase()
    }

    /// Whether it says where the table is or how fast it may be used: every command has such a flag.
    pub fn is_common(&self) -> bool {
        self.jobs == super::ALL && !matches!(self.kind, Kind::Seconds { .. })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    Prefix,
    Table,
    /// Not for events: an event must not be able to send signed requests elsewhere.
    Endpoint,
    /// A resource name that the template passes.
    Arn,
    /// `true` or `false`, said where the function is set up and not by an event.
    Permission,
    Choice(&'static [&'static str]),
    Flag,
    Count,
    Days,
    /// Above 0, up to 1.
    Share,
    /// Capacity units.
    Units,
    Seconds {
        min: i64,
    },
}

/// Ten years: more is a typing mistake.
const MAX_SECONDS: i64 = 315_360_000;

/// More is no waiting period.
const MAX_DAYS: i64 = 90;

impl Kind {
    pub(super) fn is_for_events(self) -> bool {
        !matches!(self, Kind::Endpoint | Kind::Arn | Kind::Permission)
    }

    /// Whether a value is in the range, and otherwise which range that is.
    pub fn check(self, value: &str) -> Result<(), String> {
        let number = |range: fn(f64) -> bool| value.parse().is_ok_and(range);
        let (ok, wanted) = match self {
            Kind::Endpoint | Kind::Arn => (true, String::new()),
            Kind::Table => {
                (is_table_name(value), "must be a table name: 3 to 255 letters, digits, _ - or .".to_owned())
            }
            Kind::Prefix => (
                is_table_name(&format!("{value}_attributes")),
                "must be the prefix of a table name: letters, digits, _ - or .".to_owned(),
            ),
            Kind::Choice(choices) => (choices.contains(&value), format!("must be {}", choices.join(" or "))),
            Kind::Flag | Kind::Permission => (["true", "false"].contains(&value), "must be true or false".to_owned()),
            Kind::Count => (value.parse().is_ok_and(|n: u64| n >= 1), "must be a whole number, 1 or more".to_owned()),
            Kind::Days => (
                value.parse().is_ok_and(|days: i64| (1..=MAX_DAYS).contains(&days)),
                format!("must be a whole number of days, 1 to {MAX_DAYS}"),
            ),
            Kind::Share => (number(|n| n > 0.0 && n <= 1.0), "must be a share above 0 and at most 1".to_owned()),
            Kind::Units => (
                number(|units| units.is_finite() && units >= 0.1),
                "must be a number of capacity units, 0.1 or more".to_owned(),
            ),
            Kind::Seconds { min } => (
                value.parse().is_ok_and(|seconds| (min..=MAX_SECONDS).contains(&seconds)),
                format!("must be a number of seconds from {min} to {MAX_SECONDS}"),
            ),
        };
        if ok { Ok(()) } else { Err(wanted) }
    }

    /// The value of a flag, as the environment would have it: a duration becomes seconds.
    pub fn check_flag(self, value: &str) -> Result<String, String> {
        let Kind::Seconds { min } = self else {
            return self.check(value).map(|()| value.to_owned());
        };
        let seconds = duration(value).filter(|seconds| (min..=MAX_SECONDS).contains(seconds));
        let wanted = || format!("must be a duration such as 90s, 15m, 1h or 7d, {} or more", spelled(min));
        seconds.map(|seconds| seconds.to_string()).ok_or_else(wanted)
    }
}

/// Whether DynamoDB accepts it as the name of a table.
pub fn is_table_name(table: &str) -> bool {
    (3..=255).contains(&table.len()) && table.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'))
}

const UNITS: [(char, i64); 4] = [('d', 86_400), ('h', 3_600), ('m', 60), ('s', 1)];

/// The seconds of `90s`, `15m`, `1h`, `7d` or a plain number of seconds.
pub fn duration(text: &str) -> Option<i64> {
    let unit = UNITS.iter().find(|(unit, _)| text.ends_with(*unit));
    let (digits, seconds) = unit.map_or((text, 1), |(unit, seconds)| (text.trim_end_matches(*unit), *seconds));
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number: i64 = digits.parse().ok().filter(|_| is_number && text.len() - digits.len() <= 1)?;
    number.checked_mul(seconds)
}

/// Seconds in the largest unit that divides them: `1h`, `2d`, `90s`.
pub fn spelled(seconds: i64) -> String {
    let unit = UNITS.iter().find(|(_, of)| seconds % of == 0);
    unit.map_or_else(String::new, |(unit, of)| format!("{}{unit}", seconds / of))
}

#[cfg(test)]
mod tests {
    use super::{Kind, duration, spelled};

    #[test]
    fn a_duration_is_a_number_and_a_unit_or_seconds() {
        for (text, seconds) in [("3600", 3_600), ("90s", 90), ("15m", 900), ("1h", 3_600), ("7d", 604_800), ("0", 0)] {
            assert_eq!(duration(text), Some(seconds), "{text}");
        }
        for wrong in ["", "m", "-5m", "+5m", "1.5h", "5mm", "1h30m", "99999999999999999d", "5µ", " 5m", "5 m"] {
            assert_eq!(duration(wrong), None, "{wrong}");
        }
        assert_eq!([300, 3_600, 172_800, 90].map(spelled), ["5m", "1h", "2d", "90s"]);
    }

    #[test]
    fn a_flag_takes_durations_and_the_environment_seconds() {
        let grace = Kind::Seconds { min: 300 };
        assert_eq!(grace.check_flag("1h"), Ok("3600".to_owned()));
        assert_eq!(grace.check_flag("5m"), Ok("300".to_owned()));
        assert_eq!(
            grace.check_flag("299"),
            Err("must be a duration such as 90s, 15m, 1h or 7d, 5m or more".to_owned())
        );
        assert!(grace.check("300").is_ok() && grace.check("299").is_err() && grace.check("1h").is_err());
    }
}
