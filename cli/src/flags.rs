//! The flags of the settings, made from the table of settings: a new setting has its flag without a line here.

use std::marker::PhantomData;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Command, Error};
use serde_json::{Map, Value};
use shared::settings::{Kind, Purpose, SETTINGS, Setting};

use crate::duration::{EXAMPLES, duration, spelled};

/// Settings by the keys that an event has.
pub type Overrides = Map<String, Value>;

/// Defaults of commands that are not the function's: an audit by hand counts every row.
const COMMAND_DEFAULTS: [(&str, &str); 1] = [("SCOPE", "all")];

fn command_default(setting: &Setting) -> Option<&'static str> {
    COMMAND_DEFAULTS.iter().find(|(name, _)| *name == setting.name).map(|(_, default)| *default)
}

/// Which settings a group of flags has.
pub trait Takes {
    fn takes(setting: &Setting) -> bool;
}

/// The flags of every command.
#[derive(Clone, Debug, Default)]
pub struct Common;

impl Takes for Common {
    fn takes(setting: &Setting) -> bool {
        setting.is_common()
    }
}

macro_rules! flags_of_jobs {
    ($($job:ident),+) => {$(
        #[derive(Clone, Debug, Default)]
        pub struct $job;

        impl Takes for $job {
            fn takes(setting: &Setting) -> bool {
                !setting.is_common() && setting.jobs.contains(&Purpose::$job)
            }
        }
    )+};
}

flags_of_jobs!(Cleanup, Repair, Metrics, Explain);

/// How expired rows end.
#[derive(Clone, Debug, Default)]
pub struct Ending;

impl Takes for Ending {
    fn takes(setting: &Setting) -> bool {
        setting.name == "EXPIRED_ROWS"
    }
}

/// The settings that were given as flags.
#[derive(Clone, Debug, Default)]
pub struct Flags<T> {
    pub given: Overrides,
    of: PhantomData<T>,
}

fn settings<T: Takes>() -> impl Iterator<Item = &'static Setting> {
    SETTINGS.iter().filter(|setting| !setting.flags.is_empty() && T::takes(setting))
}

impl<T: Takes> clap::Args for Flags<T> {
    fn augment_args(command: Command) -> Command {
        command.args(settings::<T>().map(arg))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<T: Takes> clap::FromArgMatches for Flags<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let value = |setting: &Setting| {
            if setting.kind == Kind::Flag {
                return matches.get_flag(setting.name).then(|| Value::Bool(true));
            }
            let given = matches.get_one::<String>(setting.name).map(String::as_str);
            given.or(command_default(setting)).map(Value::from)
        };
        let given = settings::<T>().filter_map(|setting| Some((setting.key(), value(setting)?))).collect();
        Ok(Self { given, of: PhantomData })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// A text of a job, for somebody at a terminal: settings by their flags.
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
    arg.value_name(setting.value).global(setting.is_common())
}

/// The value of a flag, as the environment would have it: a duration becomes seconds.
fn checked(kind: Kind, value: &str) -> Result<String, String> {
    let Kind::Seconds { min } = kind else {
        return kind.check(value).map(|()| value.to_owned());
    };
    let seconds = duration(value).map(|seconds| seconds.to_string()).filter(|seconds| kind.check(seconds).is_ok());
    seconds.ok_or_else(|| format!("{EXAMPLES}, {} or more", spelled(min)))
}

/// Of the table's flags the variable is named: most people set it once.
fn help(setting: &Setting) -> String {
    let default = match (setting.kind, command_default(setting).or(setting.default)) {
        (Kind::Seconds { .. }, Some(seconds)) => seconds.parse().map(spelled).ok(),
        (Kind::Flag, _) | (_, None) => None,
        (_, Some(default)) => Some(default.to_owned()),
    };
    match setting.kind {
        Kind::Prefix | Kind::Table | Kind::Endpoint => format!("{} [env: {}]", setting.help, setting.name),
        _ => {
            default.map_or_else(|| setting.help.to_owned(), |default| format!("{} [default: {default}]", setting.help))
        }
    }
}
