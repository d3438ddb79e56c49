//! `janitor audit --html`: its numbers compared with `--json`, the page in Chromium, and the written file.

use bed::Invocations as _;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, SystemTime};

use bed::Testbed;
use bed::engine::{EngineKind, shared as engine};
use bed::fixture::{self, Specimen};
use bed::lambda::function;
use bed::process::{Running, repository_root, tool};
use janitor::html::page;
use serde_json::{Value, json};
use shared::time::EpochSeconds;

const BROWSER_DEADLINE: Duration = Duration::from_mins(5);

/// A folder of this test in the target folder, where the screenshots are kept for inspection.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("html").join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// A table of every kind of row, with dead rows that the cleanup has left.
async fn cleaned_table() -> (Testbed, Vec<Specimen>) {
    let now = EpochSeconds::from(SystemTime::now());
    let rows = fixture::all_kinds(now.get(), 12, 5);
    let bed = Testbed::with(EngineKind::Embedded, &rows).await;
    for (ago, event) in [(90_000, json!({"max_deletes": 40})), (3_600, json!({"max_deletes": 300}))] {
        bed.function.daily_cleanup(event, now.plus(-ago), None).await.unwrap();
    }
    bed.function.index_repair(json!({}), now.plus(-60), None).await.unwrap();
    (bed, rows)
}

fn audit(bed: &Testbed, arguments: &[&str]) -> Output {
    Command::new(function("janitor"))
        .args(["audit", "--prefix", &bed.prefix, "--region", "us-east-1"])
        .args(["--endpoint", engine(EngineKind::Embedded).endpoint()])
        .args(arguments)
        .env_clear()
        .output()
        .unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The page and the answer of the same run.
fn audited(bed: &Testbed, file: &Path) -> (String, Value) {
    let output = audit(bed, &["--json", "--html", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1), "there are findings: {}", stderr(&output));
    assert_eq!(stderr(&output), format!("the page is at {}\n", file.display()));
    (std::fs::read_to_string(file).unwrap(), serde_json::from_slice(&output.stdout).unwrap())
}

/// The values of attributes `name`, in order.
fn attributes<'a>(page: &'a str, name: &str) -> Vec<&'a str> {
    let start = format!(" {name}=\"");
    page.split(&start).skip(1).map(|rest| rest.split_once('"').unwrap().0).collect()
}

/// The numbers of the page, by their JSON pointer in the answer.
fn numbers(page: &str) -> BTreeMap<String, Value> {
    let elements = page.split("<data value=\"").skip(1).filter_map(|rest| {
        let (value, rest) = rest.split_once('"')?;
        let pointer = rest.strip_prefix(" data-json=\"")?.split_once('"')?.0;
        Some((pointer.to_owned(), if value.is_empty() { Value::Null } else { serde_json::from_str(value).unwrap() }))
    });
    elements.collect()
}

#[tokio::test]
async fn every_number_on_the_page_matches_the_json() {
    let (bed, rows) = cleaned_table().await;
    let file = folder("numbers").join("audit.html");
    let (page, answer) = audited(&bed, &file);
    let report = &answer["report"];
    let numbers = numbers(&page);
    for (pointer, value) in &numbers {
        assert_eq!(answer.pointer(pointer), Some(value), "{pointer}");
    }
    let mut expected: Vec<String> = Vec::new();
    let mut buckets = Vec::new();
    for (owner, counts) in report["owners"].as_object().unwrap() {
        for (name, counts) in counts["buckets"].as_object().unwrap() {
            let figures = ["rows", "dead", "due", "bytes", "oldest_dead_age_seconds"];
            expected.extend(figures.map(|figure| format!("/report/owners/{owner}/buckets/{name}/{figure}")));
            buckets.push((
                owner.clone(),
                name.clone(),
                [&counts["rows"], &counts["dead"], &counts["due"]].map(Value::to_string),
            ));
        }
    }
    for (cells, whole) in [("/report/dead_age", "/report/rows/dead"), ("/report/ttl/lag_age", "/report/ttl/lag/rows")] {
        let counted = answer.pointer(cells).unwrap().as_array().unwrap();
        let rows: u64 = counted.iter().map(|cell| cell["rows"].as_u64().unwrap()).sum();
        assert_eq!((counted.len(), Some(rows)), (9, answer.pointer(whole).unwrap().as_u64()), "{cells}");
        expected.extend((0..9).map(|i| format!("{cells}/{i}/rows")));
    }
    for run in ["daily-cleanup", "index-repair"] {
        let figures = ["read", "deleted", "lost_race", "skipped"];
        expected.extend(figures.map(|figure| format!("/report/runs/{run}/last_run/{figure}")));
        let deleted_in = report["runs"][run]["last_run"]["deleted_in"].as_object().unwrap();
        assert!(!deleted_in.is_empty(), "{run} has deleted nothing");
        expected.extend(deleted_in.keys().map(|name| format!("/report/runs/{run}/last_run/deleted_in/{name}")));
    }
    for (part, left_out) in [("forecast", vec!["trend", "seconds_since_last_run"]), ("capacity", vec![])] {
        let known = report[part].as_object().unwrap().iter().filter(|(_, value)| !value.is_null());
        let names = known.map(|(name, _)| name).filter(|name| !left_out.contains(&name.as_str()));
        expected.extend(names.map(|name| format!("/report/{part}/{name}")));
    }
    let clients = &report["clients"];
    assert!(clients["clients"].as_u64() > Some(0) && clients["unused"].as_u64() > Some(0), "{clients}");
    expected.extend(["clients", "unused"].map(|figure| format!("/report/clients/{figure}")));
    let tokens = clients["registered_themselves"].as_object().unwrap().keys();
    expected.extend(tokens.map(|figure| format!("/report/clients/registered_themselves/{figure}")));
    for figure in ["rows", "bytes", "dead_rows", "due_index_rows", "oldest_dead_age_seconds", "backlog", "findings"] {
        expected.push(format!("/body/{figure}"));
    }
    for pointer in expected {
        assert!(numbers.contains_key(&pointer), "{pointer} is not on the page");
    }

    // The same in the attributes of the bucket's row.
    let mut shown: Vec<_> = std::iter::zip(attributes(&page, "data-owner"), attributes(&page, "data-bucket"))
        .map(|(owner, name)| (owner.to_owned(), name.to_owned()))
        .zip(
            page.split("data-bucket=")
                .skip(1)
                .map(|row| ["data-rows", "data-dead", "data-due"].map(|name| attributes(row, name)[0].to_owned())),
        )
        .map(|((owner, name), counts)| (owner, name, counts))
        .collect();
    shown.sort();
    buckets.sort();
    assert_eq!(shown, buckets);
    assert!(buckets.len() > 20, "{}", buckets.len());

    for finding in report["findings"].as_array().unwrap() {
        let text = finding["text"].as_str().unwrap();
        assert!(page.contains(&text.replace('"', "&quot;")), "{text}");
    }
    assert!(page.contains(&format!("<title>Audit of {}</title>", bed.table)));
    check_no_secret(&page, &rows);
}

/// Names of rows are tokens and session ids; other secrets are in their data.
fn check_no_secret(page: &str, rows: &[Specimen]) {
    for row in rows {
        // The end of the name: its prefix is the kind of token, as in names of buckets.
        let end = &row.name[row.name.len().saturating_sub(12)..];
        assert!(end.len() < 12 || !page.contains(end), "{} is on the page", row.name);
        assert!(row.owner.starts_with('_') || !page.contains(&row.owner), "an actor's id is on the page");
    }
    for secret in ["ya29.", "1//", "@example.com"] {
        assert!(!page.contains(secret), "{secret} is on the page");
    }
}

#[test]
fn the_page_is_self_contained_and_cannot_run_scripts() {
    let page = page(&golden());
    let policy = "<meta http-equiv=\"Content-Security-Policy\" \
                  content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">";
    assert!(page.contains(policy) && page.starts_with("<!doctype html>\n<html lang=\"en\">"));
    for foreign in ["<script", "http:", "https:", "//", "@import", "url(", "<iframe", "<img", "javascript:"] {
        assert!(!page.contains(foreign), "{foreign}");
    }
    assert!(attributes(&page, "href") == ["data:,"] && attributes(&page, "src").is_empty());
    assert!(page.len() < 60_000, "{} bytes", page.len());
}

#[test]
fn every_answer_can_be_rendered() {
    for answer in
        [json!(null), json!({}), json!({"report": 5}), json!({"report": {"owners": {"system": {"buckets": []}}}})]
    {
        assert!(page(&answer).ends_with("</html>\n"));
    }
}

/// The answer in the golden file.
fn golden() -> Value {
    let text = std::fs::read_to_string(repository_root().join("tests/golden/metrics-answer.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn bucket(rows: u64, dead: u64, due: u64) -> Value {
    json!({"rows": rows, "bytes": rows * 311, "dead": dead, "due": due,
        "oldest_dead_age_seconds": (dead > 0).then_some(34_567_890)})
}

/// The answer with these buckets and matching totals.
fn with_buckets(owners: Value) -> Value {
    let mut answer = golden();
    let sum = |part: &str| -> u64 {
        let buckets =
            owners.as_object().unwrap().values().flat_map(|owner| owner["buckets"].as_object().unwrap().values());
        buckets.map(|bucket| bucket[part].as_u64().unwrap()).sum()
    };
    let (rows, dead, due) = (sum("rows"), sum("dead"), sum("due"));
    let oldest = (dead > 0).then_some(34_567_890);
    answer["report"]["rows"] = bucket(rows, dead, due);
    for (name, value) in
        [("rows", rows), ("bytes", rows * 311), ("dead_rows", dead), ("due_index_rows", due), ("backlog", dead + due)]
    {
        answer["body"][name] = json!(value);
    }
    answer["body"]["oldest_dead_age_seconds"] = json!(oldest);
    answer["report"]["forecast"]["backlog"] = json!(dead + due);
    for i in 0..9 {
        answer["report"]["dead_age"][i]["rows"] = json!(dead >> i);
        answer["report"]["ttl"]["lag_age"][i]["rows"] = json!(due >> (2 * i));
    }
    answer["report"]["ttl"]["lag"]["rows"] = json!(due);
    answer["report"]["owners"] = owners;
    answer
}

fn empty() -> Value {
    let mut answer = with_buckets(json!({"system": {"buckets": {}}, "actor": {"buckets": {}}}));
    answer["report"]["runs"] = json!({"daily-cleanup": null, "index-repair": null});
    answer["report"]["findings"] = json!([]);
    answer["body"]["findings"] = json!(0);
    answer["body"]["ttl"] = json!("on");
    answer["report"]["forecast"] =
        json!({"backlog": 0, "trend": "unknown", "died_since_last_run": 0, "deleted_lately": 0});
    answer
}

fn millions() -> Value {
    let mut answer = with_buckets(json!({
        "system": {"buckets": {"_access_token_index": bucket(48_123_456, 0, 41_000_001), "_oauth_sessions": bucket(31_415_926, 31_000_000, 0),
            "_deleted_actors": bucket(7, 1, 0), "_client_index": bucket(1, 0, 0), "_auth_code_index": bucket(90, 0, 3),
            "_id_token_replay": bucket(0, 0, 0)}},
        "actor": {"buckets": {"mcp_tokens": bucket(12_000_000, 11_999_999, 0), "mcp_clients": bucket(12, 0, 0)}},
        "unknown": {"buckets": {"unknown": bucket(1_000_000, 0, 0)}},
    }));
    answer["report"]["runs"]["daily-cleanup"]["last_run"] = json!({"at": 1_799_990_000, "outcome": "out-of-time",
        "read": 48_123_456, "deleted": 12_345_678, "lost_race": 1_234, "skipped": 98_765,
        "deleted_in": {"_oauth_sessions": 12_345_000, "_access_token_index": 678}});
    answer["report"]["forecast"]["trend"] = json!("grows");
    answer["report"]["table_figures"] = json!({"rows": 92_539_493, "bytes": 28_779_782_323_u64, "billing": "provisioned",
        "read_units": 4_000.0, "write_units": 1_000.0});
    answer["report"]["ttl"]["never_removed"] =
        json!({"absent": 12_345_678, "not_a_number": 1, "not_whole_seconds": 2, "milliseconds": 3, "too_old": 4});
    answer
}

/// An incomplete count: the page has no row counts.
fn incomplete() -> Value {
    let mut answer = millions();
    answer["report"]["complete"] = json!(false);
    answer["report"]["outcome"] = json!("out-of-time");
    answer
}

/// Names of maximum length, names with markup, and very many findings.
fn hostile() -> Value {
    let attack = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&amp;\u{202e}";
    let longest = "w".repeat(255);
    let mut answer = with_buckets(json!({"system": {"buckets": {
        attack: bucket(3, 1, 1), longest.as_str(): bucket(2, 2, 0), "a/b~c": bucket(1, 0, 0)}}}));
    answer["report"]["table"] = json!(longest);
    let finding = |i: usize| json!({"kind": "ttl-other-attribute", "text": format!("finding {i}: TTL is on for {attack}{longest}")});
    answer["report"]["findings"] = (0..40).map(finding).collect();
    answer["body"]["findings"] = json!(40);
    answer["report"]["runs"]["daily-cleanup"]["last_run"]["deleted_in"] = json!({attack: 5, longest.as_str(): 1});
    answer["report"]["runs"]["daily-cleanup"]["last_run"]["outcome"] = json!(attack);
    answer
}

/// Opens pages in Chromium and checks for errors, overlaps, clipped text and low contrast: light and dark, wide and narrow,
/// and printed. Returns the lengths of the bars.
fn check_in_browser(folder: &Path, pages: &[PathBuf]) -> Value {
    let browser = Running::start(Path::new("node"), |command| {
        command
            .arg(repository_root().join("tests/browser/look.mjs"))
            .args([tool("browser/playwright-core/index.mjs"), tool("browser/chromium"), folder.to_path_buf()])
            .args(pages);
    });
    let is_done = browser.wait_for_output(BROWSER_DEADLINE, |output| output.contains("[node ended"));
    assert!(is_done, "Chromium did not finish:\n{}", browser.tail());
    let output = browser.output();
    let result = output.lines().find(|line| line.starts_with("{\"looked\"")).unwrap_or_else(|| panic!("{output}"));
    let result: Value = serde_json::from_str(result).unwrap();
    let problems: Vec<&str> = result["problems"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
    assert_eq!(result["looked"], pages.len() * 8);
    println!("screenshots are in {}", folder.display());
    result["bars"].clone()
}

#[tokio::test]
async fn the_page_renders_correctly_in_a_browser() {
    let folder = folder("browser");
    let (bed, _) = cleaned_table().await;
    let (_, answer) = audited(&bed, &folder.join("real.html"));
    let one = with_buckets(json!({"system": {"buckets": {"_oauth_sessions": bucket(1, 1, 0)}}}));
    let pages = [
        ("empty", empty()),
        ("one", one),
        ("millions", millions()),
        ("incomplete", incomplete()),
        ("hostile", hostile()),
    ];
    for (name, answer) in pages {
        std::fs::write(folder.join(format!("{name}.html")), page(&answer)).unwrap();
    }
    let names = ["real", "empty", "one", "millions", "incomplete", "hostile"];
    let pages = names.map(|name| folder.join(format!("{name}.html")));
    let bars = check_in_browser(&folder, &pages);

    // On a linear scale the length of a bar is proportional to its number.
    let system = answer["report"]["owners"]["system"]["buckets"].as_object().unwrap();
    let share = |name: &str| bars["real"][format!("system/{name}")]["rows"].as_f64().unwrap();
    let rows = |name: &str| system[name]["rows"].as_f64().unwrap();
    let (longest, _) = system.iter().max_by_key(|(_, counts)| counts["rows"].as_u64()).unwrap();
    for name in system.keys() {
        let expected = share(longest) * rows(name) / rows(longest);
        assert!((share(name) - expected).abs() < 0.01, "{name}: {} for {expected}", share(name));
    }
    // On a log scale one row is still visible.
    assert!(bars["millions"]["system/_client_index"]["rows"].as_f64().unwrap() > 0.02);
    assert_eq!(bars["millions"]["system/_id_token_replay"], json!({}));
}

#[tokio::test]
async fn the_file_is_written_completely_or_not_at_all() {
    let folder = folder("file");
    let bed = Testbed::with(EngineKind::Embedded, &fixture::all_kinds(1_800_000_000, 1, 5)).await;
    let html = |path: &Path| audit(&bed, &["--html", path.to_str().unwrap()]);
    let left = || {
        let mut names: Vec<String> = std::fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };

    let file = folder.join("audit.html");
    let first = html(&file);
    assert_eq!(first.status.code(), Some(1), "{}", stderr(&first));
    let last_line = format!("the page is at {}\n", file.display());
    assert!(String::from_utf8_lossy(&first.stdout).ends_with(&last_line), "{first:?}");
    std::fs::write(&file, "old").unwrap();
    let link = folder.join("link.html");
    std::os::unix::fs::symlink("audit.html", &link).unwrap();
    html(&link);
    assert!(link.is_symlink() && std::fs::read_to_string(&file).unwrap().ends_with("</html>\n"));
    let quiet = audit(&bed, &["--quiet", "--html", file.to_str().unwrap()]);
    assert!(!String::from_utf8_lossy(&quiet.stdout).contains("the page is at"));

    let pipe = folder.join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let sub = folder.join("sub");
    std::fs::create_dir(&sub).unwrap();
    let through_file = file.join("x.html");
    for (path, why) in [
        (sub.as_path(), "it is a folder; name a file in it"),
        (&sub.join("no/such.html"), "its folder does not exist; create it first"),
        (&sub.join("new/"), "it has no file name"),
        (&pipe, "it is not a regular file"),
        (Path::new("/dev/stdout"), "it is not a regular file"),
        (&through_file, "Not a directory (os error 20)"),
        (Path::new("/proc/audit.html"), "No such file or directory (os error 2)"),
    ] {
        let output = html(path);
        let expected = format!("janitor: {} cannot be written: {why}\n", path.display());
        assert_eq!((output.status.code(), stderr(&output)), (Some(3), expected));
        // Refused before the table is read, unless only the write can fail.
        assert_eq!(output.stdout.is_empty(), !path.starts_with("/proc"), "{}", path.display());
    }
    assert!(pipe.exists() && left() == ["audit.html", "link.html", "pipe", "sub"], "{:?}", left());
}
