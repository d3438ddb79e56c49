//! `janitor pause` and `janitor resume`.

use std::io;

use jobs::explain::Shape;
use jobs::run::pause::{self, Pause};
use serde_json::json;
use shared::mask::Masked;
use shared::settings::{Purpose, shown};

use crate::args::{Common, Pausing};
use crate::console::Console;
use crate::fail::{DONE, Failure};
use crate::target::Target;

pub async fn pause(common: &Common, options: &Pausing, console: &mut Console) -> Result<u8, Failure> {
    let target = Target::new(common, Purpose::Cleanup).await?;
    let table = target.open().await?;
    let why = options.why.as_deref().map(without_tokens);
    let pause = pause::pause(&table, table.clock(), options.seconds, why.as_deref()).await?;
    report(&target.settings.table, Some(&pause), console)?;
    Ok(DONE)
}

pub async fn resume(common: &Common, console: &mut Console) -> Result<u8, Failure> {
    let target = Target::new(common, Purpose::Cleanup).await?;
    let table = target.open().await?;
    pause::resume(&table).await?;
    report(&target.settings.table, None, console)?;
    Ok(DONE)
}

fn report(table: &str, pause: Option<&Pause>, console: &mut Console) -> io::Result<()> {
    if console.screen.json {
        return console.line(json!({"table": table, "paused": pause.is_some(), "pause": pause}));
    }
    let state = pause.map_or_else(|| "the janitor is not paused".to_owned(), ToString::to_string);
    console.say("", &format!("table {table}: {state}"))
}

/// The reason is stored and logged: a token that was pasted into it is masked.
fn without_tokens(why: &str) -> String {
    let masked = |word: &str| match Shape::of(word) {
        Shape::Other => word.to_owned(),
        _ if shown(word) == word => word.to_owned(),
        _ => Masked(word).to_string(),
    };
    why.split_whitespace().map(masked).collect::<Vec<_>>().join(" ")
}
