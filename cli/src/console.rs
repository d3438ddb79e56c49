//! The output of a command, and confirmation prompts.

use std::fmt::Display;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jobs::run::clock::Watch;
use jobs::store::Usage;
use serde::Serialize;
use serde_json::json;

use crate::args::ApplyArgs;
use crate::fail::Failure;
use crate::screen::{Screen, grouped, units};
use crate::terminal::Terminal;

/// A prompt is open: a signal answers it with no.
pub(crate) static PROMPTING: AtomicBool = AtomicBool::new(false);
/// Interval at which an open prompt checks for a signal.
const POLL: Duration = Duration::from_millis(50);

/// Standard output, and how to print to it.
pub struct Console {
    pub screen: Screen,
    pub out: Box<dyn Write>,
}

impl Console {
    pub fn line(&mut self, text: impl Display) -> io::Result<()> {
        writeln!(self.out, "{text}")
    }

    /// Prints a sentence after `lead`, wrapped to the width.
    pub fn say(&mut self, lead: &str, text: &str) -> io::Result<()> {
        self.line(self.screen.paragraph(lead, text))
    }

    pub fn warn(&mut self, lead: &str, text: &str) -> io::Result<()> {
        self.line(self.screen.warn(&self.screen.paragraph(lead, text)))
    }

    /// Prints a headline and a blank line.
    pub fn head(&mut self, text: &str) -> io::Result<()> {
        self.line(format_args!("{}\n", self.screen.head(text)))
    }

    pub fn table(&mut self, head: &[&str], rows: &[Vec<String>]) -> io::Result<()> {
        write!(self.out, "{}", self.screen.table(head, rows))
    }

    /// Prints the document with `--json`, and the same as text without it.
    pub fn answer(
        &mut self,
        document: &impl Serialize,
        print_text: impl FnOnce(&mut Self) -> io::Result<()>,
    ) -> io::Result<()> {
        if self.screen.json { self.line(json!(document)) } else { print_text(self) }
    }

    /// Prints what to do next, unless the output is for a script.
    pub fn hint(&mut self, text: &str) -> io::Result<()> {
        if self.screen.shows_hints() {
            self.line(format_args!("\n{}", self.screen.paragraph("", text)))
        } else {
            Ok(())
        }
    }

    /// Prints additional information, unless the output is for a script.
    pub fn note(&mut self, lead: &str, text: &str) -> io::Result<()> {
        if self.screen.shows_hints() { self.say(lead, text) } else { Ok(()) }
    }

    /// Prints numbers of rows by outcome, without zeros.
    pub fn row_counts(&mut self, counts: &[(u64, &str)]) -> io::Result<()> {
        let mut counts = counts.iter().filter(|(n, _)| *n > 0);
        counts.try_for_each(|(n, what)| self.line(format_args!("{} rows {what}", grouped(*n))))
    }

    /// Prints counts in a column, without zeros.
    pub fn counts(&mut self, counts: &[(u64, &str)]) -> io::Result<()> {
        let mut counts = counts.iter().filter(|(n, _)| *n > 0);
        counts.try_for_each(|(n, what)| self.line(format_args!("{:>8} {what}", grouped(*n))))
    }

    /// Prints how many of `all` were not listed.
    pub fn more(&mut self, all: usize, listed: usize) -> io::Result<()> {
        match all.saturating_sub(listed) {
            0 => Ok(()),
            more => self.line(format_args!("... and {} more: --json lists them all", grouped(more as u64))),
        }
    }

    pub fn used(&mut self, usage: Usage) -> io::Result<()> {
        let (read, write) = (units(usage.read_units), units(usage.write_units));
        self.say("used ", &format!("{read} read and {write} write units, {} requests", grouped(usage.requests)))
    }

    /// Fails if a confirmation is needed and there is nobody to ask. Called before anything is read.
    pub(crate) fn require_prompt(&self, ApplyArgs { apply, yes }: ApplyArgs) -> Result<(), Failure> {
        if apply && !yes && (!self.screen.asks || self.screen.json) {
            return Err(cannot_prompt());
        }
        Ok(())
    }

    /// Says what will happen, and asks for confirmation. `action` is what a yes does, `if_declined` the error without one.
    pub(crate) async fn confirm(
        &mut self,
        what: &str,
        action: &str,
        if_declined: &str,
        watch: &Watch,
    ) -> Result<(), Failure> {
        self.ask(&self.screen.paragraph("", what), action, if_declined, watch).await
    }

    /// The same, for text that is already wrapped. Ctrl-C means no, at once: a thread reads the answer and is never joined.
    pub(crate) async fn ask(
        &mut self,
        what: &str,
        action: &str,
        if_declined: &str,
        watch: &Watch,
    ) -> Result<(), Failure> {
        // The plan must be visible before the prompt.
        self.out.flush()?;
        let mut terminal = Terminal::open().ok_or_else(cannot_prompt)?;
        let text = format!("\n{what}\nType yes to {action}: ");
        PROMPTING.store(true, Ordering::Relaxed);
        let (sender, receiver) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            // After a signal there is no receiver.
            let _ = sender.send(terminal.ask(&text));
        });
        let stopped = async {
            while !watch.is_stopped() {
                tokio::time::sleep(POLL).await;
            }
        };
        let answer = tokio::select! {
            answer = receiver => answer.ok().transpose()?.unwrap_or_default(),
            () = stopped => String::new(),
        };
        PROMPTING.store(false, Ordering::Relaxed);
        if watch.is_stopped() {
            writeln!(self.out)?;
        } else if answer.trim() == "yes" {
            return Ok(());
        }
        Err(Failure::unfinished(format!("not confirmed: {if_declined}")))
    }
}

fn cannot_prompt() -> Failure {
    Failure::usage("--apply asks for confirmation, and there is no terminal: add --yes")
}
