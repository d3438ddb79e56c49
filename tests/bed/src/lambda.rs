//! Runs a function as a Lambda without a container: its binary under Amazon's Runtime Interface Emulator, or its source
//! under `cargo lambda watch`.
//!
//! Both differ from AWS. Under the emulator the deadline is real: now plus `AWS_LAMBDA_FUNCTION_TIMEOUT`. Under
//! `cargo lambda watch` it is always 600,000, ten minutes after midnight of 1 January 1970.
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::process::{Running, free_port, repository_root, tool};

/// An upper bound; starting takes much less.
const START_DEADLINE: Duration = Duration::from_mins(2);
/// A first invocation under `cargo lambda watch` compiles the function.
const WATCH_INVOKE_DEADLINE: Duration = Duration::from_mins(15);
/// The emulator prints one of these after the function's own lines and before it answers; the second if the function's
/// process exited.
const END_OF_INVOCATION: [&str; 2] = ["END RequestId: ", "Invoke DONE failed: "];

/// The result of an invocation.
#[derive(Clone, Debug, PartialEq)]
pub struct InvokeAnswer {
    /// The function's answer; if it failed, an object with `errorType` and `errorMessage`.
    pub payload: Value,
    pub is_error: bool,
}

impl InvokeAnswer {
    fn error(kind: &str, message: &str) -> Self {
        Self { payload: json!({"errorType": kind, "errorMessage": message}), is_error: true }
    }
}

/// The binary that cargo built into the target folder of this test or, if set, into the folder `TORTURE_BINARIES` (release
/// binaries).
///
/// # Panics
/// When it is missing or older than its sources.
#[must_use]
pub fn function(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("the test binary has a path");
    let built = test.ancestors().nth(2).expect("target/<profile>/deps/<test>");
    let binary = match std::env::var_os("TORTURE_BINARIES") {
        Some(folder) => repository_root().join(folder).join(name),
        None => built.join(name),
    };
    if let Err(reason) = is_fresh(&binary) {
        panic!("{}: {reason}: run `cargo build` before this test, or `make test`", binary.display());
    }
    binary
}

/// Whether a binary exists and is newer than each of the sources that cargo lists next to it (`NAME.d`).
fn is_fresh(binary: &Path) -> Result<(), String> {
    let changed = |file: &Path| std::fs::metadata(file).and_then(|metadata| metadata.modified());
    let built = changed(binary).map_err(|_| "is missing".to_owned())?;
    let listed =
        std::fs::read_to_string(binary.with_extension("d")).map_err(|error| format!("no list of sources: {error}"))?;
    let (_, sources) = listed.split_once(": ").ok_or("an empty list of sources")?;
    // A space inside a path is written with a backslash.
    let sources = sources.trim().replace("\\ ", "\0");
    for source in sources.split(' ').map(|source| source.replace('\0', " ")) {
        match changed(Path::new(&source)) {
            Ok(at) if at <= built => {}
            Ok(_) => return Err(format!("is older than {source}")),
            Err(_) => return Err(format!("was built from {source}, which is gone")),
        }
    }
    Ok(())
}

/// A function's binary under the Runtime Interface Emulator.
pub struct Rie {
    process: Running,
    port: u16,
    timeout: Duration,
}

impl Rie {
    /// `env` is what the template would set; it overrides the defaults here. The function itself starts with the first
    /// invocation. Its name is the binary's; its memory size is 256 MB, which the emulator does not enforce.
    ///
    /// # Panics
    /// When the binary or the emulator is missing, or the emulator does not start.
    #[must_use]
    pub fn start(bootstrap: &Path, env: &[(String, String)], timeout_seconds: u32) -> Self {
        let bootstrap = bootstrap.canonicalize().unwrap_or_else(|error| {
            panic!("{}: {error}: build the function before the test runs it", bootstrap.display());
        });
        let (port, runtime_port) = (free_port(), free_port());
        let mut process = Running::start(&tool("aws-lambda-rie"), |command| {
            command
                .args(["--runtime-interface-emulator-address", &format!("127.0.0.1:{port}")])
                .args(["--runtime-api-address", &format!("127.0.0.1:{runtime_port}")])
                .arg(&bootstrap)
                .env("AWS_LAMBDA_FUNCTION_NAME", bootstrap.file_name().unwrap_or_default())
                .env("AWS_LAMBDA_FUNCTION_TIMEOUT", timeout_seconds.to_string())
                .env("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "256")
                .envs(DEFAULTS)
                .envs(env.iter().cloned());
        });
        if let Err(reason) = process.wait_for_port(port, START_DEADLINE) {
            panic!("the Lambda emulator did not start: {reason}");
        }
        Self { process, port, timeout: Duration::from_secs(timeout_seconds.into()) }
    }

    /// The port on 127.0.0.1 for invocations.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// One synchronous invocation. When it returns, `output` has everything that the function printed during it.
    ///
    /// # Panics
    /// When the emulator cannot be reached or does not answer HTTP.
    #[must_use]
    pub fn invoke(&self, event: &Value) -> InvokeAnswer {
        self.invoke_timed(event).0
    }

    /// The same, with the time from request to answer; the first one includes the function's start.
    ///
    /// # Panics
    /// When the emulator cannot be reached or does not answer HTTP.
    #[must_use]
    pub fn invoke_timed(&self, event: &Value) -> (InvokeAnswer, Duration) {
        let ended_before = count_ended(&self.output());
        // Longer than the function's timeout, which the emulator reports in its answer.
        let read_timeout = self.timeout + Duration::from_mins(2);
        let path = "/2015-03-31/functions/function/invocations";
        let started = Instant::now();
        let (status, body) = post(self.port, path, &event.to_string(), read_timeout).unwrap_or_else(|error| {
            panic!("the Lambda emulator did not answer: {error}\n{}", self.process.tail());
        });
        let took = started.elapsed();
        // The answer can arrive before the lines in the pipe.
        self.process.wait_for_output(Duration::from_secs(20), |output| count_ended(output) > ended_before);
        (read_emulator_answer(status, &body), took)
    }

    /// Everything printed so far, by the emulator and by the function.
    #[must_use]
    pub fn output(&self) -> String {
        self.process.output()
    }

    /// How long the function's last start took, from its process to its first request for an event. The `Init Duration`
    /// of the `REPORT` line is something else: the time to request the start.
    #[must_use]
    pub fn init_milliseconds(&self) -> Option<f64> {
        let output = self.output();
        let (_, last) = output.rsplit_once("INIT REPORT(durationMs: ")?;
        last.split_once(')')?.0.parse().ok()
    }
}

fn count_ended(output: &str) -> usize {
    END_OF_INVOCATION.iter().map(|line| output.matches(line).count()).sum()
}

/// The emulator answers 200 even to a function's error or timeout: only the body distinguishes them from an answer.
/// Another status means that the function's process exited; the body may then be empty.
fn read_emulator_answer(status: u16, body: &str) -> InvokeAnswer {
    match serde_json::from_str::<Value>(body) {
        Ok(payload) => {
            let has_error = payload.get("errorType").is_some() && payload.get("errorMessage").is_some();
            InvokeAnswer { payload, is_error: has_error || status != 200 }
        }
        Err(_) if body.starts_with("Task timed out") => InvokeAnswer::error("Sandbox.Timedout", body),
        Err(_) => InvokeAnswer::error("Runtime.NoAnswer", &format!("HTTP {status} from the emulator: {body}")),
    }
}

/// All functions of a workspace under `cargo lambda watch`; each is compiled when it is first invoked.
pub struct Watch {
    process: Running,
    port: u16,
}

impl Watch {
    /// # Panics
    /// When cargo-lambda is missing or its server does not start.
    #[must_use]
    pub fn start(manifest_dir: &Path, env: &[(String, String)]) -> Self {
        let port = free_port();
        let mut process = Running::start(&tool("venv/bin/cargo-lambda"), |command| {
            command
                // Without --ignore-changes it watches the tree and restarts functions whenever a file is saved.
                // Without --timeout a request to a function that does not compile waits forever.
                .args(["lambda", "watch", "--ignore-changes", "-A", "127.0.0.1", "-P", &port.to_string()])
                .args(["--timeout", &WATCH_INVOKE_DEADLINE.as_secs().to_string()])
                .current_dir(manifest_dir)
                .envs(DEFAULTS)
                .envs(env.iter().cloned());
        });
        if let Err(reason) = process.wait_for_port(port, START_DEADLINE) {
            panic!("cargo lambda watch did not start: {reason}");
        }
        Self { process, port }
    }

    /// Runs `cargo lambda invoke FUNCTION --data-file FILE`, the command that a developer types.
    ///
    /// # Panics
    /// When the function does not compile or its process exits: cargo-lambda would keep waiting for an answer.
    #[must_use]
    pub fn invoke_file(&self, function: &str, file: &Path) -> InvokeAnswer {
        assert!(file.exists(), "{} is missing", file.display());
        let printed_before = self.output().len();
        let child = Command::new(tool("venv/bin/cargo-lambda"))
            .args(["lambda", "invoke", function, "-A", "127.0.0.1", "-P", &self.port.to_string(), "--data-file"])
            .arg(file)
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("cargo-lambda can be started");
        let id = child.id();
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || sender.send(child.wait_with_output()));
        let deadline = Instant::now() + WATCH_INVOKE_DEADLINE;
        loop {
            match receiver.recv_timeout(Duration::from_millis(100)) {
                Ok(finished) => return read_command_answer(&finished.expect("cargo lambda invoke can be waited for")),
                Err(RecvTimeoutError::Disconnected) => panic!("the thread that waits for cargo lambda invoke is gone"),
                Err(RecvTimeoutError::Timeout) => {}
            }
            let output = self.output();
            let exited = output.get(printed_before..).is_some_and(|new| new.contains("ERROR command exited"));
            if exited || Instant::now() >= deadline {
                // Still running, so the process id is still its own.
                let _ = Command::new("kill").arg(id.to_string()).status();
                panic!("{function} does not answer under cargo lambda watch:\n{}", self.process.tail());
            }
        }
    }

    /// Everything printed so far: by cargo-lambda, by the compiler and by the functions.
    #[must_use]
    pub fn output(&self) -> String {
        self.process.output()
    }
}

/// On success the answer is on standard output. A function's error is text on standard error: its type in the first
/// line, its message after a cross and wrapped at 80 columns with a bar before each continuation line.
fn read_command_answer(finished: &Output) -> InvokeAnswer {
    let (out, err) = (String::from_utf8_lossy(&finished.stdout), String::from_utf8_lossy(&finished.stderr));
    if finished.status.success() {
        return match serde_json::from_str(&out) {
            Ok(payload) => InvokeAnswer { payload, is_error: false },
            Err(_) => InvokeAnswer::error("NotJson", &out),
        };
    }
    let kind = err.lines().find_map(|line| line.strip_prefix("Error: ")).unwrap_or_default().trim();
    let message: Vec<&str> =
        err.lines().filter_map(|line| line.trim().strip_prefix(['×', '│'])).map(str::trim).collect();
    let message = if message.is_empty() { err.to_string() } else { message.join(" ") };
    InvokeAnswer::error(kind, &message)
}

/// The SDK requires a region and credentials, and a local engine accepts any. A function requires a mode.
const DEFAULTS: [(&str, &str); 4] = [
    ("AWS_REGION", "us-east-1"),
    ("AWS_ACCESS_KEY_ID", "local"),
    ("AWS_SECRET_ACCESS_KEY", "local"),
    ("MODE", "delete"),
];

/// HTTP/1.0, so that the answer ends with the connection and is never chunked.
fn post(port: u16, path: &str, body: &str, read_timeout: Duration) -> io::Result<(u16, String)> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(read_timeout))?;
    write!(stream, "POST {path} HTTP/1.0\r\nHost: 127.0.0.1\r\nContent-Length: {}\r\n\r\n{body}", body.len())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let malformed = || io::Error::new(io::ErrorKind::InvalidData, format!("not HTTP: {answer}"));
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(malformed)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(malformed)?;
    Ok((status, body.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::is_fresh;

    #[test]
    fn a_binary_older_than_one_of_its_sources_is_refused() {
        let folder = std::env::temp_dir().join(format!("fresh {}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (binary, source) = (folder.join("tool"), folder.join("main.rs"));
        assert_eq!(is_fresh(&binary).unwrap_err(), "is missing");
        std::fs::write(&source, "").unwrap();
        std::fs::write(&binary, "").unwrap();
        let listed = |path: &std::path::Path| path.display().to_string().replace(' ', "\\ ");
        std::fs::write(folder.join("tool.d"), format!("{}: {}\n", listed(&binary), listed(&source))).unwrap();
        assert_eq!(is_fresh(&binary), Ok(()));
        let later = std::time::SystemTime::now() + std::time::Duration::from_mins(1);
        std::fs::File::options().append(true).open(&source).unwrap().set_modified(later).unwrap();
        assert!(is_fresh(&binary).unwrap_err().starts_with("is older than"));
        std::fs::remove_file(&source).unwrap();
        assert!(is_fresh(&binary).unwrap_err().ends_with("which is gone"));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
