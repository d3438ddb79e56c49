//! The real ActingWeb library, through the scripts in `tests/python`.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::engine::{EngineKind, shared};
use crate::items::{self, Item};
use crate::process::{Running, keep_bytecode, repository_root, tool};
use crate::tables;

/// An application that uses the real library, on one table of one engine.
pub struct Application {
    endpoint: String,
    prefix: String,
    interpreter: PathBuf,
}

impl Application {
    #[must_use]
    pub fn new(endpoint: &str, prefix: &str) -> Self {
        Self { endpoint: endpoint.to_owned(), prefix: prefix.to_owned(), interpreter: tool("venv/bin/python") }
    }

    /// An application that uses another release, from its own virtual environment.
    #[must_use]
    pub fn of_release(endpoint: &str, prefix: &str, release: &str) -> Self {
        let interpreter = tool(&format!("old/{release}/bin/python"));
        Self { interpreter, ..Self::new(endpoint, prefix) }
    }

    fn prepare(&self, command: &mut Command, script: &str, arguments: &[&str]) {
        keep_bytecode(command)
            .arg(repository_root().join("tests/python").join(script))
            .args(arguments)
            .env("AWS_DB_HOST", &self.endpoint)
            .env("AWS_DB_PREFIX", &self.prefix)
            .env("AWS_DEFAULT_REGION", "us-east-1")
            .env("AWS_ACCESS_KEY_ID", "local")
            .env("AWS_SECRET_ACCESS_KEY", "local");
    }

    /// Starts a script that runs during the test.
    #[must_use]
    pub fn start(&self, script: &str, arguments: &[&str]) -> Running {
        Running::start(&self.interpreter, |command| self.prepare(command, script, arguments))
    }

    /// Starts a script that answers each line of JSON with another, until it is dropped.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn converse(&self, script: &str) -> Conversation {
        let mut command = Command::new(&self.interpreter);
        self.prepare(&mut command, script, &[]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("python can be started");
        let (input, output) = (child.stdin.take(), child.stdout.take().expect("a pipe"));
        Conversation { child, input, output: BufReader::new(output) }
    }

    fn python(&self, script: &str, arguments: &[&str], input: &str) -> Output {
        let mut command = Command::new(&self.interpreter);
        self.prepare(&mut command, script, arguments);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("python can be started");
        child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("python reads its input");
        child.wait_with_output().expect("python can be waited for")
    }

    /// # Panics
    /// When the script fails; the message has its output.
    pub fn run(&self, script: &str, arguments: &[&str], input: &str) -> String {
        let output = self.python(script, arguments, input);
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{script} {arguments:?}: {}\n{out}\n{err}", output.status);
        out.into_owned()
    }

    /// Runs single operations of the library and returns their results.
    ///
    /// # Panics
    /// When one of them raised.
    #[must_use]
    pub fn ask(&self, operations: &Value) -> Vec<Value> {
        let answers = self.run("actingweb_peer.py", &[], &operations.to_string());
        serde_json::from_str(&answers).expect("a list of answers")
    }

    /// Fills the table with rows that the library's own managers wrote, some of them in the past.
    pub async fn seed(&self, rows: u32, seed: u32) -> Manifest {
        self.copy(&*seeded(rows, seed, FRESH).await).await
    }

    /// The same with rows that may have been written a while ago: some verdicts may have changed since.
    pub async fn seed_of_any_age(&self, rows: u32, seed: u32) -> Manifest {
        self.copy(&*seeded(rows, seed, Duration::MAX).await).await
    }

    /// Writes rows of the library into this application's table, and creates it if needed.
    async fn copy(&self, seeded: &Seeded) -> Manifest {
        let (client, table) = (tables::client(&self.endpoint).await, format!("{}_attributes", self.prefix));
        if !tables::exists(&client, &table).await.unwrap() {
            tables::create_table(&client, &table).await.unwrap();
        }
        items::write(&client, &table, &seeded.items).await;
        let manifest = Manifest::of(&self.prefix);
        let mut of_this_table = seeded.manifest.clone();
        of_this_table["table"] = json!(table);
        manifest.write(&of_this_table);
        manifest
    }

    /// Checks the remaining rows with the library and with an independent implementation of the rules.
    ///
    /// # Panics
    /// When a live row is gone or a dead row is left.
    pub fn judge(&self, manifest: &Manifest) -> String {
        self.judge_within(manifest, 0)
    }

    /// The same, but dead rows may be left if their TTL is at most `seconds` ahead.
    ///
    /// # Panics
    /// When a live row is gone, or a dead row is left without such a TTL.
    pub fn judge_within(&self, manifest: &Manifest, seconds: i64) -> String {
        let seconds = seconds.to_string();
        self.run("actingweb_judge.py", &["--manifest", manifest.path(), "--ttl-within", &seconds], "")
    }
}

/// Rows that the library wrote, to be copied.
struct Seeded {
    at: Instant,
    items: Vec<Item>,
    manifest: Value,
}

/// Maximum age of rows that are judged: no verdict on them changes within nine minutes.
const FRESH: Duration = Duration::from_mins(2);

/// Written once per size and seed for all tests of a binary: the library needs at least two requests per row. On the embedded
/// engine, which is faster.
async fn seeded(rows: u32, seed: u32, max_age: Duration) -> Arc<Seeded> {
    static SEEDED: Mutex<BTreeMap<(u32, u32), Arc<Seeded>>> = Mutex::const_new(BTreeMap::new());
    let mut all = SEEDED.lock().await;
    if let Some(seeded) = all.get(&(rows, seed)).filter(|seeded| seeded.at.elapsed() <= max_age) {
        return Arc::clone(seeded);
    }
    let (endpoint, prefix) = (shared(EngineKind::Embedded).endpoint(), format!("seed{:08x}", fastrand::u32(..)));
    let (amount, number, manifest) = (rows.to_string(), seed.to_string(), Manifest::of(&prefix));
    let arguments = ["--rows", &amount, "--seed", &number, "--manifest", manifest.path()];
    Application::new(endpoint, &prefix).run("actingweb_seed.py", &arguments, "");
    let client = tables::client(endpoint).await;
    let items = items::all(&client, &format!("{prefix}_attributes")).await.into_values().collect();
    let seeded = Arc::new(Seeded { at: Instant::now(), items, manifest: manifest.read() });
    all.insert((rows, seed), Arc::clone(&seeded));
    seeded
}

/// A running script that exits when its standard input is closed.
pub struct Conversation {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Conversation {
    /// # Panics
    /// When the script has exited, or its answer is not JSON.
    pub fn ask(&mut self, question: &Value) -> Value {
        writeln!(self.input.as_mut().expect("open"), "{question}").expect("the script listens");
        let mut answer = String::new();
        self.output.read_line(&mut answer).expect("the script answers");
        serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{question}: {error}: {answer}"))
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.wait();
    }
}

/// A list of the seeded rows. It has every secret in plain text: removed on drop.
pub struct Manifest {
    path: PathBuf,
}

impl Manifest {
    fn of(prefix: &str) -> Self {
        Self { path: std::env::temp_dir().join(format!("manifest-{prefix}-{}.json", std::process::id())) }
    }

    fn path(&self) -> &str {
        self.path.to_str().unwrap_or_default()
    }

    /// # Panics
    /// When the file is not what the seed writes.
    #[must_use]
    pub fn read(&self) -> Value {
        let text = std::fs::read_to_string(Path::new(&self.path)).expect("the manifest exists");
        serde_json::from_str(&text).expect("the manifest is JSON")
    }

    /// Replaces the rows that the judge expects: a test that damages rows removes them from the list.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn write(&self, manifest: &Value) {
        std::fs::write(&self.path, manifest.to_string()).expect("the manifest can be written");
    }

    /// Every token, code, session id, e-mail address and provider secret that was written.
    #[must_use]
    pub fn secrets(&self) -> Vec<String> {
        let manifest = self.read();
        let secrets = manifest["secrets"].as_array().cloned().unwrap_or_default();
        secrets.iter().filter_map(|secret| secret.as_str().map(str::to_owned)).collect()
    }
}

impl Drop for Manifest {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
