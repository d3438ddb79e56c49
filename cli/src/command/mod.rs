//! The commands, one per file; each returns its exit code.

pub mod audit;
pub mod backfill;
pub mod clients;
pub mod doctor;
pub mod explain;
pub mod generate;
pub mod pause;
pub mod restore;
pub mod revoke;
pub mod run;
pub mod runs;
pub mod settings;
pub mod status;
pub mod ttl;
mod ttl_row;

use std::io::{BufRead, IsTerminal};
use std::sync::atomic::Ordering;

use jobs::run::clock::Watch;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::console::PROMPTING;
use crate::fail::Failure;
use crate::terminal::Terminal;

/// The longest name that a row can have.
const LONGEST_NAME: u64 = 1_024;

/// Reads a secret from the first line of standard input, where it leaves no trace. A terminal does not echo it.
pub(crate) fn read_secret(what: &str) -> Result<String, Failure> {
    let unread = |error| Failure::usage(format!("the {what} could not be read from standard input: {error}"));
    let mut line = String::new();
    if std::io::stdin().is_terminal() {
        let terminal = Terminal::open().ok_or_else(|| Failure::usage(format!("no terminal to read the {what} from")));
        let typed = terminal?.ask_for_secret(&format!("{what} (not shown): ")).map_err(unread)?;
        line = typed.ok_or_else(|| Failure::unfinished("cancelled: nothing was done"))?;
    } else {
        let mut input = std::io::Read::take(std::io::stdin().lock(), LONGEST_NAME + 2);
        input.read_line(&mut line).map_err(unread)?;
    }
    match line.trim() {
        "" => Err(Failure::usage(format!("no {what} on standard input"))),
        secret => Ok(secret.to_owned()),
    }
}

/// Stops the run on Ctrl-C or SIGTERM, after the requests in flight; a second signal ends the program at once.
pub(crate) fn stop_on_signals(watch: &'static Watch) {
    // Before any prompt: without a listener, a signal ends the program without a message.
    let mut signals = Signals::listen();
    tokio::spawn(async move {
        signals.next().await;
        watch.stop();
        if !PROMPTING.load(Ordering::Relaxed) {
            eprintln!("\nstopping after the requests in flight; press Ctrl-C again to stop now");
        }
        signals.next().await;
        std::process::exit(i32::from(crate::fail::UNFINISHED));
    });
}

/// SIGINT and SIGTERM. Once listened for, neither ends the program by itself.
pub(crate) struct Signals([Option<Signal>; 2]);

impl Signals {
    /// A signal that cannot be listened for keeps its default effect: it ends the program.
    pub(crate) fn listen() -> Self {
        Self([SignalKind::interrupt(), SignalKind::terminate()].map(|kind| signal(kind).ok()))
    }

    /// Waits for the next signal.
    pub(crate) async fn next(&mut self) {
        let [interrupt, terminate] = &mut self.0;
        tokio::select! {
            Some(()) = async { interrupt.as_mut()?.recv().await } => {}
            Some(()) = async { terminate.as_mut()?.recv().await } => {}
            else => std::future::pending().await,
        }
    }
}
