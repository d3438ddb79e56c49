//! Prompts at the terminal: for a confirmation or a secret.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};

use anstream::AutoStream;
use rustix::termios::{LocalModes, OptionalActions, QueueSelector, SpecialCodeIndex, tcflush, tcgetattr, tcsetattr};

/// The longest line that a terminal delivers.
const LINE: usize = 4_096;

/// The controlling terminal, even if standard input is a pipe or standard output a file.
pub struct Terminal(File);

impl Terminal {
    /// `None` without a terminal, or if every stream is redirected: nobody would see a prompt.
    pub fn open() -> Option<Self> {
        let is_watched = io::stdin().is_terminal() || io::stdout().is_terminal() || io::stderr().is_terminal();
        if !is_watched {
            return None;
        }
        File::options().read(true).write(true).open("/dev/tty").ok().map(Self)
    }

    /// Asks, and returns the answer. Input from before the question is discarded: it was not meant as an answer.
    pub fn ask(&mut self, question: &str) -> io::Result<String> {
        tcflush(&self.0, QueueSelector::IFlush)?;
        // Coloured like standard output, which has shown the plan.
        let colour = AutoStream::choice(&io::stdout());
        AutoStream::new(&mut self.0, colour).write_all(question.as_bytes())?;
        self.line()
    }

    /// Asks for a secret without echo; `None` after Ctrl-C. Ctrl-C ends only the line: ending the program would leave the
    /// terminal without echo.
    pub fn ask_for_secret(&mut self, question: &str) -> io::Result<Option<String>> {
        let modes = tcgetattr(&self.0)?;
        let interrupt = modes.special_codes[SpecialCodeIndex::VINTR];
        let mut hidden = modes.clone();
        hidden.local_modes.remove(LocalModes::ECHO | LocalModes::ISIG);
        hidden.special_codes[SpecialCodeIndex::VEOL2] = interrupt;
        tcsetattr(&self.0, OptionalActions::Flush, &hidden)?;
        let line = self.0.write_all(question.as_bytes()).and_then(|()| self.line());
        tcsetattr(&self.0, OptionalActions::Now, &modes)?;
        // The Enter key was not echoed either.
        self.0.write_all(b"\n")?;
        line.map(|line| (!line.ends_with(char::from(interrupt))).then_some(line))
    }

    /// A terminal returns one line per read.
    fn line(&mut self) -> io::Result<String> {
        let mut line = [0; LINE];
        let read = self.0.read(&mut line)?;
        Ok(String::from_utf8_lossy(&line[..read]).into_owned())
    }
}
