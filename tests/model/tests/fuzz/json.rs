//! JSON parsing compared with Python's: one Python process, connected by pipes.

use std::collections::HashSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use model::mutate::{Corpus, Fuzz};
use serde_json::{Value, json};
use shared::integrity::pointed_actor;
use shared::row::{Field, Fields, Raw, Row, RowKey, Ttl, TtlState};
use shared::time::EpochSeconds;

/// Texts that are sent before the answers are read: must fit into a pipe.
const BATCH: usize = 16;

struct Python {
    process: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Python {
    fn start() -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../python/json_reader.py");
        let mut python = Command::new("python3");
        python.arg(script).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = python.spawn().expect("python3 is needed");
        let (questions, answers) = (process.stdin.take().unwrap(), BufReader::new(process.stdout.take().unwrap()));
        Self { process, questions, answers }
    }

    fn ask(&mut self, texts: &[String]) -> Vec<Value> {
        for text in texts {
            writeln!(self.questions, "{}", json!(text)).unwrap();
        }
        let mut answer = || {
            let mut line = String::new();
            self.answers.read_line(&mut line).unwrap();
            // Rust has no strings with half of a surrogate pair.
            serde_json::from_str(&line).unwrap_or_else(|_| json!({"kind": "surrogates"}))
        };
        texts.iter().map(|_| answer()).collect()
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// How `shared` reads a text, in the format of the script.
fn ours(text: &str) -> Value {
    let data = Raw::Text(text.to_owned());
    let Some(fields) = Fields::read(&data) else { return json!({"kind": "unreadable"}) };
    let time = |field: Field<EpochSeconds>| match field {
        Field::Missing => Value::Null,
        Field::Malformed => json!("malformed"),
        Field::Is(at) => json!(at.get()),
    };
    let times = [fields.created_at, fields.expires_at, fields.exp, fields.used_at, fields.seen_at, fields.retrieved_at];
    let used = match fields.used {
        Field::Missing => Value::Null,
        Field::Malformed => json!("malformed"),
        Field::Is(used) => json!(used),
    };
    json!({"kind": "object", "times": times.map(time), "used": used, "names": [fields.google_token_key, fields.access_token]})
}

#[test]
fn reads_json_as_python_does() {
    let fuzz = Fuzz::start("JSON, against Python", 100_000);
    let (mut corpus, mut python) = (Corpus::of(include_str!("corpus/json.txt"), fuzz.seed), Python::start());
    let mut seen = HashSet::new();
    let mut check = |texts: &[String]| {
        let mut fresh = Vec::new();
        for (text, theirs) in texts.iter().zip(python.ask(texts)) {
            let (mine, actor) = (ours(text), pointed_actor(&Raw::Text(text.clone())));
            match theirs["kind"].as_str() {
                Some("object") => assert_eq!(mine, theirs, "{text:?}"),
                // A field with half of a surrogate pair cannot be part of a key.
                Some("surrogates") => {}
                _ => assert_eq!(mine["kind"], "unreadable", "{text:?}: Python says {theirs}"),
            }
            // An actor that `shared` reads is the one that the application reads.
            if let Some(actor) = actor {
                assert_eq!(
                    (theirs["kind"].as_str(), theirs["text"].as_str()),
                    (Some("string"), Some(&*actor)),
                    "{text:?}"
                );
            }
            if seen.insert(signature(&theirs)) {
                fresh.push(text.clone());
            }
        }
        fresh
    };
    let seeds: Vec<String> = include_str!("corpus/json.txt").lines().map(str::to_owned).collect();
    for texts in seeds.chunks(BATCH) {
        check(texts);
    }
    for _ in 0..fuzz.rounds as usize / BATCH {
        let texts: Vec<String> = (0..BATCH).map(|_| corpus.next_text()).collect();
        check(&texts).into_iter().for_each(|text| corpus.keep(text));
    }
    fuzz.end();
}

/// The kind of an answer, without its numbers and names.
fn signature(answer: &Value) -> String {
    let classes = |value: &Value| match value {
        Value::Number(number) => number.to_string().len().to_string(),
        Value::String(text) if text != "malformed" => "text".to_owned(),
        other => other.to_string(),
    };
    let list = |name: &str| answer[name].as_array().into_iter().flatten().map(classes).collect::<Vec<_>>().join(" ");
    format!("{} {} {} {}", answer["kind"], list("times"), answer["used"], list("names"))
}

/// `Ttl::state` and `Row::ttl_fault` agree on whether a TTL is malformed.
#[test]
fn all_readers_of_a_ttl_agree() {
    let fuzz = Fuzz::start("TTLs", 40_000);
    let mut corpus = Corpus::of(
        "0\n-1\n1\n1e9\n1.5\n2400000000\n99999999999\n100000000000\n9223372036854775808\n1E+11\n-0\n007",
        fuzz.seed,
    );
    for _ in 0..fuzz.rounds {
        let digits = corpus.next_text();
        let row = Row {
            key: RowKey::new("a", "b"),
            bucket: Raw::Absent,
            data: Raw::Absent,
            ttl: Raw::Number(digits.clone()),
            retired_from: Raw::Absent,
            bytes: 1,
        };
        for now in [0, 2_400_000_000, 253_402_300_799].map(EpochSeconds::new) {
            let malformed = row.ttl().state(now) == TtlState::Malformed;
            assert_eq!(malformed, row.ttl_fault(now).is_some(), "{digits:?}");
        }
        if let Ttl::At(at) = row.ttl() {
            assert!((1..100_000_000_000).contains(&at.get()), "{digits:?}");
        }
    }
    fuzz.end();
}
