//! A child process that cannot outlive the tests.
//!
//! Every program that the tests start runs under a few lines of `sh` in its own process group. The supervisor holds the
//! read end of a pipe whose only writer is the test binary. When the guard is dropped, or the test binary is killed, the
//! pipe closes and the supervisor stops the group: SIGTERM, a pause, SIGKILL. Both cases take the same path, so every test
//! run exercises it.
use std::collections::HashSet;
use std::ffi::OsStr;
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// `$@` is the program and its arguments.
///
/// The program's own children are killed first, by process id: the Lambda emulator and cargo-lambda put functions into
/// separate groups, and on SIGTERM the emulator leaves a busy function running. A Lambda is stopped the same way.
///
/// The supervisor reaps the program and the watcher, because pid 1 of a container may not reap. Its last line kills
/// whatever the program left in the group, and the supervisor with it: while the supervisor lives, the group's id cannot
/// be reused.
const SUPERVISOR: &str = r#"
exec 3<&0 </dev/null
trap : TERM
"$@" 3<&- &
program=$!
(
    below() { for child in $(cat /proc/"$1"/task/*/children); do below "$child"; echo "$child"; done; }
    trap '' TERM
    read -r _ <&3
    kill -KILL $(below "$program")
    kill -TERM -$$
    sleep 5
    kill -KILL -$$
) >/dev/null 2>&1 &
watcher=$!
exec 3<&-
wait "$program"; status=$?
# Above 128 the trap may have ended the wait, not the program.
while [ "$status" -gt 128 ] && kill -0 "$program" 2>/dev/null; do wait "$program"; status=$?; done
kill -KILL "$watcher"; wait "$watcher" 2>/dev/null
echo "[$1 ended with status $status]"
kill -KILL -$$
"#;

/// A little longer than the supervisor's own pause between SIGTERM and SIGKILL.
const STOP_DEADLINE: Duration = Duration::from_secs(8);
const POLL: Duration = Duration::from_millis(20);
const TAIL_LINES: usize = 40;

/// Environment variables that a child inherits. An allowlist: a developer's AWS profile or a stray `MODE` must never reach
/// a function under test, and the `CARGO_PKG_*` that `cargo test` sets would rebuild much of the tree under `cargo lambda
/// watch`.
const INHERITED: &str = "PATH HOME USER TMPDIR LANG LC_ALL JAVA_HOME CARGO_HOME CARGO_TARGET_DIR RUSTUP_HOME \
    RUSTUP_TOOLCHAIN RUSTFLAGS RUSTC_WRAPPER RUSTC_WORKSPACE_WRAPPER CLIPPY_ARGS SSL_CERT_FILE SSL_CERT_DIR \
    HTTPS_PROXY https_proxy";
const INHERITED_PREFIXES: [&str; 4] = ["CARGO_NET_", "CARGO_HTTP_", "CARGO_BUILD_", "CARGO_REGISTRIES_"];

/// The root of the repository, with `.tools/`, `events/` and the workspace manifest.
#[must_use]
pub fn repository_root() -> PathBuf {
    let bed = Path::new(env!("CARGO_MANIFEST_DIR"));
    bed.ancestors().nth(2).unwrap_or(bed).to_path_buf()
}

/// Whether this is a run of the tests that need neither Java nor Python.
pub fn without_tools() -> bool {
    std::env::var_os("NO_TOOLS").is_some()
}

/// A tool that `tests/setup.sh` installs, by its path under `.tools/`.
///
/// # Panics
/// When it is missing: a test that skips itself would pass without testing anything.
#[must_use]
pub fn tool(path: &str) -> PathBuf {
    assert!(!without_tools(), "{path} is needed by a test that `make quick` must skip");
    let found = repository_root().join(".tools").join(path);
    assert!(found.exists(), "{} is missing: run tests/setup.sh", found.display());
    found
}

/// Makes Python cache its bytecode for all tests, outside the sources: compiling modules is half of its start-up time.
pub fn keep_bytecode(python: &mut Command) -> &mut Command {
    python.env_remove("PYTHONDONTWRITEBYTECODE").env("PYTHONPYCACHEPREFIX", repository_root().join(".tools/pycache"))
}

/// A free port of 127.0.0.1 that this process has not returned before: the kernel may offer the same one twice before the
/// first user has bound it.
#[must_use]
pub fn free_port() -> u16 {
    static TAKEN: Mutex<Option<HashSet<u16>>> = Mutex::new(None);
    let mut taken = lock(&TAKEN);
    let taken = taken.get_or_insert_default();
    loop {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("127.0.0.1 has a free port");
        let port = listener.local_addr().expect("a bound listener has an address").port();
        if taken.insert(port) {
            return port;
        }
    }
}

/// The processes, as folders of `/proc`, that run this binary with this table's prefix in their environment. Matched by the
/// binary's name, not its path: a concurrent build may have replaced the file.
///
/// # Panics
/// Where there is no `/proc`.
#[must_use]
pub fn processes_of(binary: &str, prefix: &str) -> Vec<PathBuf> {
    let expected = format!("AWS_DB_PREFIX={prefix}");
    let processes = std::fs::read_dir("/proc").expect("Linux").flatten().map(|entry| entry.path());
    let matches = |process: &PathBuf| {
        let executable = std::fs::read_link(process.join("exe")).ok()?;
        let is_the_binary = executable.file_name()?.to_str()?.split(' ').next() == Some(binary);
        let environment = std::fs::read(process.join("environ")).ok()?;
        let has_prefix = String::from_utf8_lossy(&environment).split('\0').any(|pair| pair == expected);
        (is_the_binary && has_prefix).then_some(())
    };
    processes.filter(|process| matches(process).is_some()).collect()
}

/// A running program and its output.
pub struct Running {
    name: String,
    child: Child,
    /// Never written to. Closing it stops the program.
    lifeline: Option<ChildStdin>,
    output: Arc<Mutex<Vec<u8>>>,
    /// Ends when every process that could print has exited.
    reader: JoinHandle<()>,
}

impl Running {
    /// Starts `program`; `configure` adds arguments, environment and working directory.
    ///
    /// # Panics
    /// When the supervising shell cannot be started. `wait_for_port` reports a program that cannot be started.
    pub fn start(program: &Path, configure: impl FnOnce(&mut Command)) -> Self {
        let (mut reader, writer) = std::io::pipe().expect("a pipe can be made");
        let mut command = Command::new("sh");
        command.args(["-c", SUPERVISOR, "supervisor"]).arg(program);
        command.env_clear().envs(std::env::vars_os().filter(|(name, _)| is_inherited(name)));
        configure(&mut command);
        // One pipe for both streams keeps the lines in order.
        command.stdin(Stdio::piped()).stdout(writer.try_clone().expect("a pipe can be shared")).stderr(writer);
        let mut child = command.process_group(0).spawn().expect("sh can be started");
        // The command holds the pipe's write end: while it lives, the reader below never reaches the end.
        drop(command);

        let output = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&output);
        let reader = thread::spawn(move || {
            let mut chunk = [0; 8192];
            while let Ok(read @ 1..) = reader.read(&mut chunk) {
                lock(&sink).extend_from_slice(&chunk[..read]);
            }
        });
        let lifeline = child.stdin.take();
        let name = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned();
        Self { name, child, lifeline, output, reader }
    }

    /// Everything printed so far, standard output and standard error together.
    #[must_use]
    pub fn output(&self) -> String {
        String::from_utf8_lossy(&lock(&self.output)).into_owned()
    }

    /// Waits until `accepts` returns true for the output so far; false on timeout.
    pub fn wait_for_output(&self, timeout: Duration, accepts: impl Fn(&str) -> bool) -> bool {
        let deadline = Instant::now() + timeout;
        loop {
            if accepts(&self.output()) {
                return true;
            }
            if Instant::now() >= deadline {
                return false;
            }
            thread::sleep(POLL);
        }
    }

    /// Waits until the port of 127.0.0.1 accepts connections.
    ///
    /// # Errors
    /// When the program exits first, or on timeout; the message has the last lines of its output.
    pub fn wait_for_port(&mut self, port: u16, timeout: Duration) -> Result<(), String> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let deadline = Instant::now() + timeout;
        loop {
            // Checked first: a port that answers after the program has exited belongs to another program.
            if !matches!(self.child.try_wait(), Ok(None)) {
                // The reason is in the last lines, which may still be in the pipe.
                self.wait_for_output(Duration::from_secs(1), |_| self.reader.is_finished());
                return Err(format!("{} exited before it answered on port {port}:\n{}", self.name, self.tail()));
            }
            if TcpStream::connect_timeout(&address, POLL).is_ok() {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(format!(
                    "{} did not answer on port {port} within {timeout:?}:\n{}",
                    self.name,
                    self.tail()
                ));
            }
            thread::sleep(POLL);
        }
    }

    /// The last lines printed, for error messages.
    #[must_use]
    pub fn tail(&self) -> String {
        let output = self.output();
        let lines: Vec<&str> = output.lines().collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.lifeline.take());
        let deadline = Instant::now() + STOP_DEADLINE;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() >= deadline {
                // The supervisor itself hangs. It has not been reaped, so the group is still ours.
                let group = format!("-{}", self.child.id());
                let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
                let _ = self.child.wait();
                return;
            }
            thread::sleep(POLL);
        }
    }
}

fn is_inherited(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| {
        INHERITED.split(' ').any(|one| one == name) || INHERITED_PREFIXES.iter().any(|start| name.starts_with(start))
    })
}

/// A test that panicked while holding the lock left no partial write, so the others go on.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
