//! `janitor` driven as a program: with pipes, and in a pseudo-terminal.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::lambda::function;
use crate::process::{keep_bytecode, repository_root, tool};

/// What a program left behind.
#[derive(Clone, Debug)]
pub struct Ended {
    pub code: i32,
    pub out: String,
    pub err: String,
    pub took: Duration,
}

impl Ended {
    /// # Panics
    /// When standard output is not one JSON document.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Runs `janitor` on a table, with something on standard input and no terminal.
#[must_use]
pub fn janitor(endpoint: &str, table: &str, arguments: &[&str], input: &str) -> Ended {
    Janitor::default().run_with(&[arguments, &["--endpoint", endpoint, "--table", table]].concat(), input)
}

/// A table that `janitor` works on, and the environment it is started in: nothing of this machine's but its path.
#[derive(Clone, Debug, Default)]
pub struct Janitor {
    environment: Vec<(String, String)>,
}

impl Janitor {
    #[must_use]
    pub fn on(endpoint: &str, prefix: &str) -> Self {
        Self::default().with("AWS_ENDPOINT_URL_DYNAMODB", endpoint).with("AWS_DB_PREFIX", prefix)
    }

    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    fn prepared(&self, mut command: Command) -> Command {
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", "/nonexistent");
        command.envs(self.environment.iter().cloned());
        command
    }

    /// A command that is not started yet.
    #[must_use]
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.prepared(Command::new(function("janitor")));
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn run(&self, arguments: &[&str]) -> Ended {
        self.run_with(arguments, "")
    }

    /// The same, with something on standard input.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn run_with(&self, arguments: &[&str], input: &str) -> Ended {
        let began = Instant::now();
        let mut child = self.command(arguments).stdin(Stdio::piped()).spawn().expect("janitor can be started");
        // A program that reads nothing may have ended before this.
        let _ = child.stdin.take().expect("a pipe").write_all(input.as_bytes());
        let output = child.wait_with_output().expect("janitor can be waited for");
        Ended {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
            took: began.elapsed(),
        }
    }

    /// The same in a terminal of `columns`, with options of `terminal.py`. What was on the screen is `out`.
    ///
    /// # Panics
    /// When the terminal cannot be had, or the program does not end.
    #[must_use]
    pub fn in_terminal(&self, columns: u16, options: &[&str], arguments: &[&str]) -> Ended {
        let began = Instant::now();
        let mut command = self.prepared(Command::new(tool("venv/bin/python")));
        command.arg(repository_root().join("tests/python/terminal.py")).args(["--columns", &columns.to_string()]);
        command.args(options).arg("--").arg(function("janitor")).args(arguments);
        let output = keep_bytecode(&mut command).env("TERM", "xterm").output().expect("python can be started");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let screen: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        Ended {
            code: screen["code"].as_i64().and_then(|code| i32::try_from(code).ok()).unwrap_or(-1),
            out: screen["output"].as_str().unwrap_or_default().replace("\r\n", "\n"),
            err: String::new(),
            took: began.elapsed(),
        }
    }
}
