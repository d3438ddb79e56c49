//! `janitor settings`: the table of settings, for the README and for the checks of the template.

use shared::settings::{Kind, SETTINGS, Setting};

use crate::console::Console;
use crate::fail::{DONE, Failure};

/// # Errors
/// When the output could not be written.
pub fn print(console: &mut Console) -> Result<u8, Failure> {
    if console.screen.json {
        let table = serde_json::to_string_pretty(SETTINGS).map_err(std::io::Error::from)?;
        console.line(table)?;
        return Ok(DONE);
    }
    console.line("| setting | flag | jobs | value | default | meaning |\n|---|---|---|---|---|---|")?;
    for setting in SETTINGS {
        let flag = setting.flags.first().map_or_else(String::new, |flag| format!("`--{flag}`"));
        let jobs = if setting.jobs.len() == SETTINGS[0].jobs.len() { "all".to_owned() } else { jobs(setting) };
        let default = setting.default.map_or_else(|| "none".to_owned(), |default| format!("`{default}`"));
        let (name, value, help) = (setting.name, value(setting.kind), setting.help);
        console.line(format_args!("| `{name}` | {flag} | {jobs} | {value} | {default} | {help} |"))?;
    }
    Ok(DONE)
}

fn jobs(setting: &Setting) -> String {
    setting.jobs.iter().map(|job| job.name()).collect::<Vec<_>>().join(", ")
}

fn value(kind: Kind) -> String {
    match kind {
        Kind::Prefix | Kind::Table => "name".to_owned(),
        Kind::Endpoint => "URL; not by event".to_owned(),
        Kind::Arn => "ARN; not by event".to_owned(),
        Kind::Permission => "`true` or `false`; not by event".to_owned(),
        Kind::Choice(choices) => format!("`{}`", choices.join("` or `")),
        Kind::Flag => "`true` or `false`".to_owned(),
        Kind::Count => "1 or more".to_owned(),
        Kind::Days => "1 to 90".to_owned(),
        Kind::Share => "above 0, up to 1".to_owned(),
        Kind::Units => "0.1 or more".to_owned(),
        Kind::Seconds { min } => format!("{min} or more"),
    }
}
