//! Runs `janitor` as a program: with pipes, or in a pseudo-terminal.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::lambda::function;
use crate::process::{keep_bytecode, repository_root, tool};

/// Exit code, output and duration of a program.
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

/// Runs `janitor` on a table, with `input` on standard input and without a terminal.
#[must_use]
pub fn janitor(endpoint: &str, table: &str, arguments: &[&str], input: &str) -> Ended {
    Janitor::default().run_with(&[arguments, &["--endpoint", endpoint, "--table", table]].concat(), input)
}

/// The environment in which `janitor` is started: of this machine's only `PATH`.
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

    /// The command, not started yet.
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

    /// The same, with `input` on standard input.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn run_with(&self, arguments: &[&str], input: &str) -> Ended {
        let started = Instant::now();
        let mut child = self.command(arguments).stdin(Stdio::piped()).spawn().expect("janitor can be started");
        // A program that reads nothing may have exited before this.
        let _ = child.stdin.take().expect("a pipe").write_all(input.as_bytes());
        let output = child.wait_with_output().expect("janitor can be waited for");
        Ended {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
            took: started.elapsed(),
        }
    }

    /// The same in a terminal of `columns`, with options of `terminal.py`. `out` is the screen.
    ///
    /// # Panics
    /// When there is no terminal, or the program does not exit.
    #[must_use]
    pub fn in_terminal(&self, columns: u16, options: &[&str], arguments: &[&str]) -> Ended {
        let started = Instant::now();
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
            took: started.elapsed(),
        }
    }
}
