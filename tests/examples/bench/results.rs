//! `target/bench/results.json`: each section with its time and machine, so that a long one can be repeated alone.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use aws_sdk_dynamodb::primitives::{DateTime, DateTimeFormat};
use bed::process::{repository_root, tool};
use serde_json::{Map, Value, json};

use crate::sections::SECTIONS;

/// The folder for files that are not committed.
pub(crate) fn folder() -> PathBuf {
    let folder = repository_root().join("target/bench");
    fs::create_dir_all(&folder).expect("target can be written");
    folder
}

fn path() -> PathBuf {
    folder().join("results.json")
}

/// All sections measured so far, without those that no longer exist.
pub(crate) fn read() -> Value {
    let text = fs::read_to_string(path()).unwrap_or_else(|_| "{\"sections\": {}}".to_owned());
    let mut all: Value = serde_json::from_str(&text).expect("results.json is JSON: remove it to start over");
    let sections = all["sections"].as_object_mut().expect("results.json has sections");
    sections.retain(|section, _| SECTIONS.contains(&section.as_str()));
    all
}

/// The results that the page was written from.
pub(crate) fn committed() -> Value {
    let text =
        fs::read_to_string(repository_root().join("docs/dev/benchmarks.json")).expect("docs/dev/benchmarks.json");
    serde_json::from_str(&text).expect("docs/dev/benchmarks.json is JSON")
}

/// Replaces a section.
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
    let mut add = |name: &str, version: String| versions.insert(name.to_owned(), json!(version));
    add("commit", first_line(Command::new("git").args(["describe", "--always", "--dirty", "--exclude=*"])));
    add("rustc", first_line(Command::new("rustc").arg("--version")));
    add("java", first_line(Command::new("java").arg("-version")));
    add("python", first_line(Command::new(tool("venv/bin/python")).arg("--version")));
    for package in ["actingweb", "boto3", "pynamodb"] {
        let program = format!("import importlib.metadata as m; print(m.version('{package}'))");
        add(package, first_line(Command::new(tool("venv/bin/python")).args(["-c", &program])));
    }
    for package in ["dynoxide-rs", "aws-sdk-dynamodb", "lambda_runtime", "tokio"] {
        add(package, locked(package));
    }
    add("dynamodb-local", dynamodb_local());
    Value::Object(versions)
}

/// Java prints its version on standard error.
fn first_line(command: &mut Command) -> String {
    let Ok(output) = command.output() else { return "not known".to_owned() };
    let output = [output.stdout, output.stderr].concat();
    let output = String::from_utf8_lossy(&output);
    let line = output.lines().next().unwrap_or("not known");
    // The page already names the program.
    line.trim_start_matches("rustc ")
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
    let output = [output.stdout, output.stderr].concat();
    let output = String::from_utf8_lossy(&output);
    let version = output.split(|c: char| !(c.is_ascii_digit() || c == '.')).find(|word| word.matches('.').count() == 2);
    version.unwrap_or("not known").to_owned()
}
