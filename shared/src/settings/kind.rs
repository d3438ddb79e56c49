//! A setting, and the types and ranges of values.

use serde::Serialize;

use super::Purpose;

/// One row of [`super::SETTINGS`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Setting {
    /// Also the environment variable.
    pub name: &'static str,
    /// The flag of `janitor`, then its older spellings. A setting without one is not for commands.
    pub flags: &'static [&'static str],
    /// The placeholder of the flag's value in help.
    pub value: &'static str,
    pub jobs: &'static [Purpose],
    pub kind: Kind,
    pub default: Option<&'static str>,
    pub help: &'static str,
    /// Likely wrong names: each stops a function, with the right name in the error.
    pub also_written: &'static [&'static str],
}

impl Setting {
    /// The key in an event.
    pub fn key(&self) -> String {
        self.name.to_lowercase()
    }

    /// Whether it names the table or limits the load on it: every command has these flags.
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
    /// `true` or `false`, from the function's configuration only, never from an event.
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

/// Ten years: a larger value is a mistake.
const MAX_SECONDS: i64 = 315_360_000;

/// A larger value is a mistake.
const MAX_DAYS: i64 = 90;

impl Kind {
    pub(super) fn is_for_events(self) -> bool {
        !matches!(self, Kind::Endpoint | Kind::Arn | Kind::Permission)
    }

    /// Checks a value; the error describes the valid range.
    pub fn check(self, value: &str) -> Result<(), String> {
        let number = |range: fn(f64) -> bool| value.parse().is_ok_and(range);
        let (ok, wanted) = match self {
            Kind::Arn => (true, String::new()),
            Kind::Endpoint => (is_url(value), "must be a URL such as http://127.0.0.1:8000".to_owned()),
            Kind::Table => {
                (is_table_name(value), "must be a table name: 3 to 255 letters, digits, _, - or .".to_owned())
            }
            Kind::Prefix => (
                is_table_name(&format!("{value}_attributes")),
                "must be the prefix of a table name: letters, digits, _, - or .".to_owned(),
            ),
            Kind::Choice(choices) => (choices.contains(&value), format!("must be {}", choices.join(" or "))),
            Kind::Flag | Kind::Permission => (["true", "false"].contains(&value), "must be true or false".to_owned()),
            Kind::Count => (value.parse().is_ok_and(|n: u64| n >= 1), "must be a whole number, 1 or more".to_owned()),
            Kind::Days => (
                value.parse().is_ok_and(|days: i64| (1..=MAX_DAYS).contains(&days)),
                format!("must be a whole number of days, 1 to {MAX_DAYS}"),
            ),
            Kind::Share => (number(|n| n > 0.0 && n <= 1.0), "must be greater than 0 and at most 1".to_owned()),
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
}

fn is_url(value: &str) -> bool {
    let rest = ["http://", "https://"].iter().find_map(|scheme| value.strip_prefix(scheme));
    let host = rest.map(|rest| rest.split(['/', '?', '#']).next().unwrap_or_default());
    host.is_some_and(|host| !host.is_empty() && !host.contains(char::is_whitespace))
}

/// Whether DynamoDB accepts it as the name of a table.
pub fn is_table_name(table: &str) -> bool {
    (3..=255).contains(&table.len()) && table.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'))
}

#[cfg(test)]
mod tests {
    use super::Kind;

    #[test]
    fn an_endpoint_is_a_url_with_a_host() {
        for url in ["http://127.0.0.1:8000", "https://dynamodb.eu-west-1.amazonaws.com/", "http://[::1]:8000"] {
            assert!(Kind::Endpoint.check(url).is_ok(), "{url}");
        }
        for wrong in ["nonsense", "127.0.0.1:8000", "http://", "http:///x", "ftp://x", "http://a b"] {
            assert!(Kind::Endpoint.check(wrong).is_err(), "{wrong}");
        }
    }
}
