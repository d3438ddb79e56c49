//! `target/bench/results.json`: each section with the time it was taken and the machine it was taken on, so that a long one can be
//! repeated alone.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use aws_sdk_dynamodb::primitives::{DateTime, DateTimeFormat};
use bed::process::{repository_root, tool};
use serde_json::{Map, Value, json};

use crate::sections::SECTIONS;

/// Where everything is kept that is not committed.
pub(crate) fn folder() -> PathBuf {
    let folder = repository_root().join("target/bench");
    fs::create_dir_all(&folder).expect("target can be written");
    folder
}

fn path() -> PathBuf {
    folder().join("results.json")
}

/// All sections taken so far; one that there is no more is left out.
pub(crate) fn read() -> Value {
    let text = fs::read_to_string(path()).unwrap_or_else(|_| "{\"sections\": {}}".to_owned());
    let mut all: Value = serde_json::from_str(&text).expect("results.json is JSON: remove it to begin anew");
    let sections = all["sections"].as_object_mut().expect("results.json has sections");
    sections.retain(|section, _| SECTIONS.contains(&section.as_str()));
    all
}

/// What the page was written from.
pub(crate) fn committed() -> Value {
    let text =
        fs::read_to_string(repository_root().join("docs/dev/benchmarks.json")).expect("docs/dev/benchmarks.json");
    serde_json::from_str(&text).expect("docs/dev/benchmarks.json is JSON")
}

/// Puts a section in the place of what it was before.
pub(crate) fn save(section: &str, mut result: Value) {
    let mut all = read();
    let taken = DateTime::from_secs(crate::now()).fmt(DateTimeFormat::DateTime).unwrap_or_default();
    result["taken_at"] = json!(taken);
    result["machine"] = machine();
    result["versions"] = versions();
    all["sections"][section] = result;
    let text = serde_json::to_string_pretty(&all).expect("JSON can be written");
    fs::write(path(), text + "\n").expect("target can be written");
}

fn machine() -> Value {
    let line = |file: &str, start: &str| {
        let text = fs::read_to_string(file).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with(start)).unwrap_or_default().to_owned();
        line.split_once(':').map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
    };
    let kilobytes = line("/proc/meminfo", "MemTotal");
    let kilobytes: u64 = kilobytes.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0);
    json!({
        "cores": std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
        "cpu": line("/proc/cpuinfo", "model name"),
        "memory_gib": kilobytes / (1 << 20),
        "load_after": fs::read_to_string("/proc/loadavg").unwrap_or_default().split(' ').next().unwrap_or_default(),
    })
}

fn versions() -> Value {
    let mut versions = Map::new();
    let mut tell = |name: &str, version: String| versions.insert(name.to_owned(), json!(version));
    tell("commit", first_line(Command::new("git").args(["describe", "--always", "--dirty", "--exclude=*"])));
    tell("rustc", first_line(Command::new("rustc").arg("--version")));
    tell("java", first_line(Command::new("java").arg("-version")));
    tell("python", first_line(Command::new(tool("venv/bin/python")).arg("--version")));
    for package in ["actingweb", "boto3", "pynamodb"] {
        let program = format!("import importlib.metadata as m; print(m.version('{package}'))");
        tell(package, first_line(Command::new(tool("venv/bin/python")).args(["-c", &program])));
    }
    for package in ["dynoxide-rs", "aws-sdk-dynamodb", "lambda_runtime", "tokio"] {
        tell(package, locked(package));
    }
    tell("dynamodb-local", dynamodb_local());
    Value::Object(versions)
}

/// Java says its version on standard error.
fn first_line(command: &mut Command) -> String {
    let Ok(output) = command.output() else { return "not known".to_owned() };
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let said = said.lines().next().unwrap_or("not known");
    // The name stands before it already.
    said.trim_start_matches("rustc ")
        .trim_start_matches("Python ")
        .replace("openjdk version ", "OpenJDK ")
        .replace('"', "")
}

/// The version in Cargo.lock.
fn locked(package: &str) -> String {
    let lock = fs::read_to_string(repository_root().join("Cargo.lock")).unwrap_or_default();
    let after = lock.split_once(&format!("name = \"{package}\"\nversion = \"")).map(|(_, rest)| rest);
    after.and_then(|rest| rest.split('"').next()).unwrap_or("not known").to_owned()
}

fn dynamodb_local() -> String {
    let home = tool("dynamodb-local/DynamoDBLocal.jar").with_file_name("");
    let mut command = Command::new("java");
    command
        .args(["-Djava.library.path=./DynamoDBLocal_lib", "-jar", "DynamoDBLocal.jar", "-version"])
        .current_dir(home);
    let Ok(output) = command.output() else { return "not known".to_owned() };
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let version = said.split(|c: char| !(c.is_ascii_digit() || c == '.')).find(|word| word.matches('.').count() == 2);
    version.unwrap_or("not known").to_owned()
}
