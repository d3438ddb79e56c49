//! `janitor pause` and `janitor resume`.

use jobs::run::pause::{self, Pause};
use serde_json::json;
use shared::mask::Masked;
use shared::settings::Purpose;

use crate::args::{Common, PauseArgs};
use crate::console::Console;
use crate::fail::{DONE, Failure};
use crate::target::Target;
use crate::typed::is_token;

pub async fn pause(common: &Common, options: &PauseArgs, console: &mut Console) -> Result<u8, Failure> {
    let target = Target::new(common, Purpose::Cleanup).await?;
    let table = target.open().await?;
    let why = options.why.as_deref().map(without_tokens);
    let pause = pause::pause(&table, table.clock(), options.seconds, why.as_deref()).await?;
    report(&target.settings.table, Some(&pause), console)
}

pub async fn resume(common: &Common, console: &mut Console) -> Result<u8, Failure> {
    let target = Target::new(common, Purpose::Cleanup).await?;
    let table = target.open().await?;
    pause::resume(&table).await?;
    report(&target.settings.table, None, console)
}

fn report(table: &str, pause: Option<&Pause>, console: &mut Console) -> Result<u8, Failure> {
    console.answer(&json!({"table": table, "paused": pause.is_some(), "pause": pause}), |console| {
        let state = pause.map_or_else(|| "the janitor is not paused".to_owned(), ToString::to_string);
        console.say("", &format!("table {table}: {state}"))
    })?;
    Ok(DONE)
}

/// The reason is stored and logged, so a token pasted into it is masked.
fn without_tokens(why: &str) -> String {
    let masked = |word: &str| if is_token(word) { Masked(word).to_string() } else { word.to_owned() };
    why.split_whitespace().map(masked).collect::<Vec<_>>().join(" ")
}
