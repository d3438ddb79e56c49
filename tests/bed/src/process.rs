//! A child process that cannot outlive the tests.
//!
//! Every program that the tests start runs under a few lines of `sh` in a process group of their own. The supervisor
//! holds the read end of a pipe whose only writer is the test binary. When the guard is dropped, and just as well
//! when the test binary is killed with no chance to drop anything, the pipe closes and the supervisor stops the
//! group: SIGTERM, a pause, SIGKILL. One path for both cases, and the one that runs every day is the one that has to
//! work on the bad day.
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
/// What the program itself has started is killed first and by number: the Lambda emulator and cargo-lambda put
/// functions into groups of their own, and on SIGTERM the emulator leaves one that is busy to itself. To a function it
/// is what a Lambda sees when it is stopped.
///
/// The supervisor reaps the program and the watcher, so that little is left to a pid 1 that may not reap. Its last line
/// ends whatever the program left in the group, and the supervisor with it: while the supervisor lives, the group's
/// number cannot belong to anybody else.
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
# Above 128 it may be the trap that ended the wait and not the program.
while [ "$status" -gt 128 ] && kill -0 "$program" 2>/dev/null; do wait "$program"; status=$?; done
kill -KILL "$watcher"; wait "$watcher" 2>/dev/null
echo "[$1 ended with status $status]"
kill -KILL -$$
"#;

/// A little longer than the supervisor's own pause between SIGTERM and SIGKILL.
const STOP_DEADLINE: Duration = Duration::from_secs(8);
const POLL: Duration = Duration::from_millis(20);
const TAIL_LINES: usize = 40;

/// What a child may see of the tests' environment. A list of what is let through, not of what is taken out: a
/// developer's AWS profile or a stray `MODE` must never reach a function under test, and the `CARGO_PKG_*` that
/// `cargo test` sets would make some build scripts, and so a good part of the tree, run again under `cargo lambda
/// watch`.
const INHERITED: &str = "PATH HOME USER TMPDIR LANG LC_ALL JAVA_HOME CARGO_HOME CARGO_TARGET_DIR RUSTUP_HOME \
    RUSTUP_TOOLCHAIN RUSTFLAGS RUSTC_WRAPPER SSL_CERT_FILE SSL_CERT_DIR HTTPS_PROXY https_proxy";
const INHERITED_PREFIXES: [&str; 4] = ["CARGO_NET_", "CARGO_HTTP_", "CARGO_BUILD_", "CARGO_REGISTRIES_"];

/// The root of the repository: where `.tools/`, `events/` and the workspace manifest are.
#[must_use]
pub fn repository_root() -> PathBuf {
    let bed = Path::new(env!("CARGO_MANIFEST_DIR"));
    bed.ancestors().nth(2).unwrap_or(bed).to_path_buf()
}

/// Whether this is a run of the tests that need neither Java nor Python.
pub fn without_tools() -> bool {
    std::env::var_os("NO_TOOLS").is_some()
}

/// A part that `tests/setup.sh` installs, by its path under `.tools/`.
///
/// # Panics
/// When it is not there. A test that skips itself proves nothing and looks as if it did.
#[must_use]
pub fn tool(path: &str) -> PathBuf {
    assert!(!without_tools(), "{path} is wanted by a test that `make quick` must skip");
    let found = repository_root().join(".tools").join(path);
    assert!(found.exists(), "{} is missing: run tests/setup.sh", found.display());
    found
}

/// Has a Python keep what it compiles, for all tests and not beside the sources: its modules are half of the time that it takes to start.
pub fn keep_bytecode(python: &mut Command) -> &mut Command {
    python.env_remove("PYTHONDONTWRITEBYTECODE").env("PYTHONPYCACHEPREFIX", repository_root().join(".tools/pycache"))
}

/// A port of 127.0.0.1 that nobody listens on and that this process has not handed out before: the kernel may offer
/// the same one twice before its first taker has bound it.
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

/// The processes, as folders of `/proc`, that run this binary with this table's prefix in their environment. By the binary's
/// name, not its path: a build that goes on beside may have replaced the file.
///
/// # Panics
/// Where there is no `/proc`.
#[must_use]
pub fn processes_of(binary: &str, prefix: &str) -> Vec<PathBuf> {
    let wanted = format!("AWS_DB_PREFIX={prefix}");
    let processes = std::fs::read_dir("/proc").expect("Linux").flatten().map(|entry| entry.path());
    let is_one = |process: &PathBuf| {
        let runs = std::fs::read_link(process.join("exe")).ok()?;
        let is_the_binary = runs.file_name()?.to_str()?.split(' ').next() == Some(binary);
        let environment = std::fs::read(process.join("environ")).ok()?;
        let is_ours = String::from_utf8_lossy(&environment).split('\0').any(|pair| pair == wanted);
        (is_the_binary && is_ours).then_some(())
    };
    processes.filter(|process| is_one(process).is_some()).collect()
}

/// A running program and everything that it has printed.
pub struct Running {
    name: String,
    child: Child,
    /// Never written to. Closing it is the order to stop.
    lifeline: Option<ChildStdin>,
    output: Arc<Mutex<Vec<u8>>>,
    /// Ends when everything that could print has ended.
    reader: JoinHandle<()>,
}

impl Running {
    /// Starts `program`; `configure` adds arguments, environment and working directory.
    ///
    /// # Panics
    /// When the supervising shell cannot be started. A program that cannot be started shows in `wait_for_port`.
    pub fn start(program: &Path, configure: impl FnOnce(&mut Command)) -> Self {
        let (mut reader, writer) = std::io::pipe().expect("a pipe can be made");
        let mut command = Command::new("sh");
        command.args(["-c", SUPERVISOR, "supervisor"]).arg(program);
        command.env_clear().envs(std::env::vars_os().filter(|(name, _)| is_inherited(name)));
        configure(&mut command);
        // One pipe for both streams keeps the lines in the order in which they were printed.
        command.stdin(Stdio::piped()).stdout(writer.try_clone().expect("a pipe can be shared")).stderr(writer);
        let mut child = command.process_group(0).spawn().expect("sh can be started");
        // The command holds the pipe's write end: while it lives the reader below never sees the end.
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

    /// Waits until `wanted` accepts what has been printed so far; false when the deadline passes first.
    pub fn wait_for_output(&self, deadline: Duration, wanted: impl Fn(&str) -> bool) -> bool {
        let end = Instant::now() + deadline;
        loop {
            if wanted(&self.output()) {
                return true;
            }
            if Instant::now() >= end {
                return false;
            }
            thread::sleep(POLL);
        }
    }

    /// Waits until something answers on the port of 127.0.0.1.
    ///
    /// # Errors
    /// When the program ends or the deadline passes first; the message holds the last lines that it printed.
    pub fn wait_for_port(&mut self, port: u16, deadline: Duration) -> Result<(), String> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let end = Instant::now() + deadline;
        loop {
            // Asked first: a port that answers after the program has ended belongs to another program.
            if !matches!(self.child.try_wait(), Ok(None)) {
                // The reason is in the last lines, and those may still be in the pipe.
                self.wait_for_output(Duration::from_secs(1), |_| self.reader.is_finished());
                return Err(format!("{} ended before it answered on port {port}:\n{}", self.name, self.tail()));
            }
            if TcpStream::connect_timeout(&address, POLL).is_ok() {
                return Ok(());
            }
            if Instant::now() >= end {
                return Err(format!(
                    "{} did not answer on port {port} within {deadline:?}:\n{}",
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
        let end = Instant::now() + STOP_DEADLINE;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() >= end {
                // The supervisor itself is stuck. It has not been reaped, so the group is still ours.
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

/// A test that panicked while holding the lock has left nothing half-written behind: there is no reason to fail the
/// others.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
