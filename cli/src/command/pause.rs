//! `janitor pause` and `janitor resume`.

use jobs::run::pause::{self, Pause};
use serde_json::json;
use shared::mask::Masked;
use shared::settings::{Purpose, shown};

use crate::args::{Common, PauseArgs};
use crate::console::Console;
use crate::fail::{DONE, Failure};
use crate::target::Target;
use crate::typed::is_token;

pub async fn pause(common: &Common, options: &PauseArgs, console: &mut Console) -> Result<u8, Failure> {
    let target = Target::new(common, Purpose::Cleanup).await?;
    let table = target.open().await?;
    let why = options.why.as_deref().map(without_secrets);
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

/// A longer word that does not look like a setting may be a secret of any kind.
const LONGEST_WORD: usize = 16;

/// The reason is stored and logged, so tokens and e-mail addresses in it are masked.
fn without_secrets(why: &str) -> String {
    let is_secret = |word: &str| {
        let may_be = shown(word) != word && (word.len() > LONGEST_WORD || word.contains('@'));
        may_be || is_token(word)
    };
    let masked = |word: &str| if is_secret(word) { Masked(word).to_string() } else { word.to_owned() };
    why.split_whitespace().map(masked).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::without_secrets;

    #[test]
    fn a_reason_keeps_its_words_and_no_secret() {
        assert_eq!(
            without_secrets("restoring Tuesday's backup (#42), see INC-1234"),
            "restoring Tuesday's backup (#42), see INC-1234"
        );
        for secret in [
            "aw_Zk3vT9q0pXy7LrWm2Nb8Hs4Jd6Fg1Ac5Eu0Io9Ty3B",
            "ya29.a0AfH6SMBx1Zk3vT9q0pXy7LrWm2Nb8Hs4Jd6Fg1Ac",
            "ada.lovelace@example.com",
            "token=ya29.a0AfH6SMBx1Zk3vT9q",
            "(3f1c9a52-7d1e-4c7b-9f0a-5e2b8c6d4a10)",
        ] {
            let text = without_secrets(&format!("leak of {secret} today"));
            assert!(text.starts_with("leak of ") && text.ends_with(" today"), "{text}");
            assert!(!text.contains(&secret[8..]), "{text}");
        }
    }
}
