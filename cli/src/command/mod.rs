//! The commands, one a file; each returns its exit code.

pub mod audit;
pub mod backfill;
pub mod explain;
pub mod reap;
pub mod revoke;
pub mod runs;
pub mod ttl;

use std::io::{BufRead, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use shared::clock::Watch;

use crate::fail::Failure;
use crate::screen::Screen;

/// Before anything is read: whether a yes can be asked for where one is needed.
pub(crate) fn can_ask(apply: bool, yes: bool, screen: Screen) -> Result<(), Failure> {
    if apply && !yes && (!screen.asks || screen.json) {
        return Err(Failure::usage("--apply asks for a yes, and there is nobody to ask: add --yes"));
    }
    Ok(())
}

/// Says what is about to happen, and asks for a yes. `undone` is what did not happen without one.
pub(crate) fn confirm(what: &str, verb: &str, undone: &str, out: &mut impl Write) -> Result<(), Failure> {
    writeln!(out, "\n{what}")?;
    write!(out, "Type yes to {verb} them: ")?;
    out.flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    if answer.trim() == "yes" { Ok(()) } else { Err(Failure::unfinished(format!("not confirmed: {undone}"))) }
}

/// The longest name that a row can have.
const LONGEST_NAME: u64 = 1_024;

/// A secret from standard input, where it leaves no trace: its first line.
pub(crate) fn read_secret(what: &str, asks: bool) -> Result<String, Failure> {
    if asks {
        eprint!("{what}: ");
    }
    let mut line = String::new();
    let mut input = std::io::Read::take(std::io::stdin().lock(), LONGEST_NAME + 2);
    input
        .read_line(&mut line)
        .map_err(|error| Failure::usage(format!("the {what} could not be read from standard input: {error}")))?;
    match line.trim() {
        "" => Err(Failure::usage(format!("no {what} on standard input"))),
        secret => Ok(secret.to_owned()),
    }
}

/// Has Ctrl-C, or a SIGTERM, stop the run after what is in flight; a second one ends the program at once.
pub(crate) fn stop_on_signals(watch: &'static Watch) {
    static ASKED: AtomicBool = AtomicBool::new(false);
    tokio::spawn(async move {
        loop {
            signal().await;
            if ASKED.swap(true, Ordering::Relaxed) {
                std::process::exit(i32::from(crate::fail::UNFINISHED));
            }
            watch.stop();
            eprintln!("\nstopping after what is in flight; once more to stop at once");
        }
    });
}

async fn signal() {
    use tokio::signal::unix::{SignalKind, signal};
    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = terminate.recv() => {}
            }
        }
        Err(_) => {
            let _ = tokio::signal::ctrl_c().await;
        }
    }
}
