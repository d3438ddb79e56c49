//! `janitor pause` and `janitor resume`.

use std::io::Write;

use jobs::explain::Shape;
use jobs::run::pause::{self, Pause};
use serde_json::json;
use shared::mask::Masked;
use shared::settings::{Purpose, shown};

use crate::args::{Common, Pausing};
use crate::fail::{DONE, Failure};
use crate::screen::Screen;
use crate::target::Target;

pub async fn pause(common: &Common, options: &Pausing, screen: Screen, out: &mut impl Write) -> Result<u8, Failure> {
    let target = Target::new(common, common.overrides(), Purpose::Cleanup).await?;
    let table = target.open().await?;
    let why = options.why.as_deref().map(without_tokens);
    let pause = pause::pause(&table, table.clock(), options.seconds, why.as_deref()).await?;
    report(&target.settings.table, Some(&pause), screen, out)?;
    Ok(DONE)
}

pub async fn resume(common: &Common, screen: Screen, out: &mut impl Write) -> Result<u8, Failure> {
    let target = Target::new(common, common.overrides(), Purpose::Cleanup).await?;
    let table = target.open().await?;
    pause::resume(&table).await?;
    report(&target.settings.table, None, screen, out)?;
    Ok(DONE)
}

fn report(table: &str, pause: Option<&Pause>, screen: Screen, out: &mut impl Write) -> Result<(), Failure> {
    if screen.json {
        writeln!(out, "{}", json!({"table": table, "paused": pause.is_some(), "pause": pause}))?;
        return Ok(());
    }
    let state = pause.map_or_else(|| "the janitor is not paused".to_owned(), ToString::to_string);
    writeln!(out, "{}", screen.paragraph("", &format!("table {table}: {state}")))?;
    Ok(())
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
