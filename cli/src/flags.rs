//! The flags of the settings, generated from the table of settings: a new setting needs no code here.

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches};
use serde_json::Value;
use shared::settings::{Kind, SETTINGS, Setting};

use crate::duration::{EXAMPLES, duration, spelled};

pub use jobs::backlog::Overrides;

/// The flags of the settings for which `is_taken` holds.
pub fn of(is_taken: impl Fn(&Setting) -> bool) -> impl Iterator<Item = Arg> {
    SETTINGS.iter().filter(move |setting| !setting.flags.is_empty() && is_taken(setting)).map(arg)
}

/// The settings that were given as flags.
pub fn given(matches: &ArgMatches) -> Overrides {
    let value = |setting: &Setting| match setting.kind {
        Kind::Flag => matches!(matches.try_get_one(setting.name), Ok(Some(true))).then_some(Value::Bool(true)),
        // An error means that the command does not have this flag.
        _ => matches.try_get_one::<String>(setting.name).ok().flatten().map(|given| given.as_str().into()),
    };
    SETTINGS.iter().filter_map(|setting| Some((setting.key(), value(setting)?))).collect()
}

/// The default of a command if it differs from the function's: `janitor audit` counts every row.
fn command_default(setting: &Setting) -> Option<&'static str> {
    (setting.name == "SCOPE").then_some("all")
}

/// Replaces the names of settings in a job's text with their flags.
pub fn in_flags(text: &str) -> String {
    let flags = SETTINGS.iter().filter_map(|setting| Some((setting.name, setting.flags.first()?)));
    flags.fold(text.to_owned(), |text, (name, flag)| text.replace(name, &format!("--{flag}")))
}

fn arg(setting: &'static Setting) -> Arg {
    let (long, older) = setting.flags.split_first().expect("a setting with a flag");
    let arg = Arg::new(setting.name).long(*long).aliases(older).help(help(setting));
    let arg = match setting.kind {
        Kind::Flag => return arg.action(ArgAction::SetTrue),
        Kind::Choice(choices) => arg.value_parser(PossibleValuesParser::new(choices)),
        // A negative number is a value out of range, not a flag.
        kind => arg.value_parser(move |value: &str| checked(kind, value)).allow_negative_numbers(true),
    };
    let arg = if setting.kind == Kind::Table { arg.conflicts_with("AWS_DB_PREFIX") } else { arg };
    let arg = match setting.kind {
        _ if !setting.is_common() => arg,
        Kind::Units => arg.help_heading("Limits"),
        _ => arg.help_heading("Table"),
    };
    let arg = arg.default_value(command_default(setting)).hide_default_value(true);
    arg.value_name(setting.value).global(setting.is_common())
}

/// The value of a flag, as in the environment: a duration becomes seconds.
fn checked(kind: Kind, value: &str) -> Result<String, String> {
    let Kind::Seconds { min } = kind else {
        return kind.check(value).map(|()| value.to_owned());
    };
    let seconds = duration(value).map(|seconds| seconds.to_string()).filter(|seconds| kind.check(seconds).is_ok());
    seconds.ok_or_else(|| format!("{EXAMPLES}, {} or more", spelled(min)))
}

/// Flags of the table name their variable, which most people set once. A default is part of the text, because clap does not
/// set it: the environment may have another value.
fn help(setting: &Setting) -> String {
    let note = match (setting.kind, command_default(setting).or(setting.default)) {
        (Kind::Prefix | Kind::Table | Kind::Endpoint, _) => format!(" [env: {}]", setting.name),
        (Kind::Flag, _) | (_, None) => String::new(),
        (Kind::Seconds { .. }, Some(default)) => {
            format!(" [default: {}]", default.parse().map_or_else(|_| String::new(), spelled))
        }
        (_, Some(default)) => format!(" [default: {default}]"),
    };
    format!("{}{note}", setting.help)
}
