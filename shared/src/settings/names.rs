//! Names that resemble a setting's, and how values are shown in errors.

use serde_json::Value;

use super::{ConfigError, Environment, Kind, Purpose, SETTINGS, Setting};
use crate::mask::Masked;

/// Where the environment comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// A function: its variables are meant for it, so a likely wrong name is an error.
    Function,
    /// A shell: `TABLE` or `PREFIX` may belong to any program, and `MODE` has no effect.
    Shell,
}

/// A variable that begins with this many letters of a setting is a misspelling. Shorter names (`MODE`, `SCOPE`) are common
/// words.
const STEM: usize = 9;
/// In an event, where every unknown key is an error, this many letters are enough for a suggestion.
const EVENT_STEM: usize = 5;

/// Rejects a variable that looks like a setting: otherwise the setting's default would be used silently.
pub(super) fn refuse_lookalikes(environment: &Environment, origin: Origin) -> Result<(), ConfigError> {
    for name in environment.keys().filter(|name| SETTINGS.iter().all(|setting| setting.name != **name)) {
        let meant = match origin {
            Origin::Function => same(name).or_else(|| also_written(name)),
            Origin::Shell => same(name).filter(|setting| setting.name != "MODE"),
        };
        if let Some(setting) = meant.or_else(|| nearest(name, STEM)) {
            return Err(ConfigError::Unknown { setting: shown(name), near: format!(": use {}", right(name, setting)) });
        }
    }
    Ok(())
}

/// The error for an event key or a flag that is not a setting of this job.
pub(super) fn unknown(key: &str, purpose: Purpose) -> ConfigError {
    let meant = same(key).or_else(|| also_written(key)).or_else(|| nearest(key, EVENT_STEM));
    let near = match meant {
        Some(setting) if !setting.kind.is_for_events() => {
            " that an event can change: it comes from the environment".to_owned()
        }
        Some(setting) if setting.key() == key => {
            let jobs: Vec<&str> = setting.jobs.iter().map(|job| job.name()).collect();
            format!(" of {}: it applies to {}", purpose.name(), jobs.join(", "))
        }
        Some(setting) => format!(": use {}", right(key, setting).to_lowercase()),
        None => String::new(),
    };
    ConfigError::Unknown { setting: shown(key), near }
}

/// The name to use instead, with the value that a name such as `DRY_RUN` implies.
fn right(name: &str, setting: &Setting) -> String {
    let choices = if let Kind::Choice(choices) = setting.kind { choices } else { &[] };
    let value = choices.iter().find(|choice| plain(choice) == plain(name));
    value.map_or_else(|| setting.name.to_owned(), |value| format!("{}={value}", setting.name))
}

/// In lower case, without underscores and hyphens.
fn plain(name: &str) -> String {
    name.chars().filter(|c| !matches!(c, '_' | '-')).flat_map(char::to_lowercase).collect()
}

fn same(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| plain(setting.name) == plain(name))
}

fn also_written(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.also_written.iter().any(|other| plain(other) == plain(name)))
}

/// The setting with the longest common prefix. Not an endpoint: the SDK has similar variables.
fn nearest(name: &str, least: usize) -> Option<&'static Setting> {
    let name = plain(name);
    let common = |setting: &Setting| plain(setting.name).bytes().zip(name.bytes()).take_while(|(a, b)| a == b).count();
    let near = SETTINGS.iter().filter(|setting| setting.kind.is_for_events() && common(setting) >= least);
    near.max_by_key(|setting| (common(setting), std::cmp::Reverse(setting.name.len())))
}

pub(super) fn wrong(setting: &str, value: &str, problem: &str) -> ConfigError {
    ConfigError::Value { setting: setting.to_owned(), value: shown(value), problem: problem.to_owned() }
}

/// Settings are not secrets, but a secret may be entered as one by mistake: only text that looks like a setting is shown. Each
/// of its words has one kind of character, apart from an initial capital; words may be joined as in `maxDeletes`, or end in a
/// digit as in `key1`. Tokens and chain ids do not look like that.
pub fn shown(value: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ' ');
    let of_one_kind = |word: &str| {
        let kinds: [fn(&u8) -> bool; 3] = [u8::is_ascii_lowercase, u8::is_ascii_uppercase, u8::is_ascii_digit];
        let bytes = word.as_bytes();
        let rest = bytes.get(1..).filter(|_| bytes[0].is_ascii_uppercase());
        kinds.iter().any(|kind| bytes.iter().all(kind))
            || rest.is_some_and(|rest| rest.iter().all(u8::is_ascii_lowercase))
            || are_joined_words(word)
    };
    let is_plain = value.len() <= 30 && value.chars().all(plain);
    // Three characters cannot be a secret.
    let is_setting = is_plain && (value.len() < 4 || value.split(['_', '-', '.', ' ']).all(of_one_kind));
    if is_setting { value.to_owned() } else { Masked(value).to_string() }
}

/// Words of at least three letters, capitalized except for the first, with at most one digit at the end.
fn are_joined_words(text: &str) -> bool {
    let letters = text.strip_suffix(|c: char| c.is_ascii_digit()).unwrap_or(text);
    let starts = letters.char_indices().filter(|(i, c)| *i == 0 || c.is_ascii_uppercase()).map(|(i, _)| i);
    let ends = starts.clone().skip(1).chain([letters.len()]);
    let mut words = starts.zip(ends).map(|(from, to)| &letters.as_bytes()[from..to]);
    letters.is_ascii() && words.all(|word| word.len() >= 3 && word[1..].iter().all(u8::is_ascii_lowercase))
}

pub(super) fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::shown;

    #[test]
    fn a_name_that_people_write_is_recognised_in_an_error() {
        for name in
            ["maxDeletes", "key1", "requestContext", "Records", "detail-type", "MAX_DELETES", "dryRun", "Mode", "a1B"]
        {
            assert_eq!(shown(name), name);
        }
    }

    #[test]
    fn what_may_be_a_token_is_masked_in_an_error() {
        for secret in [
            "aw_Zk3vT9q0pXy7LrWm2Nb8Hs4Jd6Fg1",
            "Zk3vT9q0pXy7",
            "qWeRtYuIoP",
            "deadbeef01",
            "hunter22",
            "abcXYzdef",
            "maxDeletesOfTheNextRunButOneMore",
            "ada@example.com",
        ] {
            assert!(shown(secret).contains('#'), "{secret}: {}", shown(secret));
        }
    }
}
