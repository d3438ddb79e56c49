//! Every flag of every command is passed by a test, and the flags that change a run change it.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Command as Process;

use bed::Testbed;
use bed::engine::{EngineKind, shared as engine};
use bed::fixture::Specimen;
use bed::janitor::Janitor;
use bed::load::real_now;
use bed::process::repository_root;
use clap::{Arg, Command};
use janitor::args::Cli;
use serde_json::{Value, json};

use super::cli::put;

const DAY: i64 = 86_400;
const OAUTH: &str = "_actingweb_oauth2";
const CONSUMED: &str = "consumed-refresh-token";

/// The strings of each innermost `[…]` of a source file; the arguments of an invocation are one array.
fn arrays(source: &str) -> Vec<BTreeSet<String>> {
    let (mut found, mut open) = (Vec::new(), Vec::<BTreeSet<String>>::new());
    let mut rest = source;
    while let Some(next) = rest.chars().next() {
        let mut length = next.len_utf8();
        match next {
            '/' if rest.starts_with("//") => length = rest.find('\n').unwrap_or(rest.len()),
            '\'' if rest.starts_with("'\"'") => length = 3,
            '[' => open.push(BTreeSet::new()),
            ']' => found.extend(open.pop()),
            '"' => {
                let mut escaped = false;
                let is_end = |c: char| {
                    let ends = c == '"' && !escaped;
                    escaped = c == '\\' && !escaped;
                    ends
                };
                let end = rest[1..].find(is_end).expect("a closing quote");
                open.last_mut().map(|strings| strings.insert(rest[1..=end].to_owned()));
                length = end + 2;
            }
            _ => {}
        }
        rest = &rest[length..];
    }
    found
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("a folder").flatten().map(|entry| entry.path());
    entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect()
}

/// Each command without subcommands, with its full name.
fn leaves(command: &Command, words: &[String]) -> Vec<(Vec<String>, Command)> {
    let mut below = command.get_subcommands().filter(|one| one.get_name() != "help").peekable();
    if below.peek().is_none() {
        return vec![(words.to_vec(), command.clone())];
    }
    below.flat_map(|one| leaves(one, &[words, &[one.get_name().to_owned()]].concat())).collect()
}

/// All spellings of a flag; empty for a positional argument.
fn spellings(arg: &Arg) -> Vec<String> {
    let long = arg.get_long_and_visible_aliases().into_iter().flatten().chain(arg.get_aliases().into_iter().flatten());
    let short = arg.get_short().map(|short| format!("-{short}"));
    long.map(|name| format!("--{name}")).chain(short).collect()
}

#[test]
fn every_flag_of_every_command_is_passed_by_a_test() {
    let tests = repository_root().join("tests");
    let files = ["engines", "library", "deploy", "bed"].iter().flat_map(|folder| sources(&tests.join(folder)));
    let invocations: Vec<BTreeSet<String>> =
        files.flat_map(|path| arrays(&std::fs::read_to_string(path).expect("a source"))).collect();
    let mut cli = Cli::command();
    cli.build();
    let mut unused = BTreeSet::new();
    for (words, command) in leaves(&cli, &[]) {
        for arg in command.get_arguments().filter(|arg| !["help", "version"].contains(&arg.get_id().as_str())) {
            for flag in spellings(arg) {
                // A global flag needs one test for all commands.
                let is_passed = |strings: &BTreeSet<String>| {
                    strings.contains(&flag) && (arg.is_global_set() || words.iter().all(|word| strings.contains(word)))
                };
                if !invocations.iter().any(is_passed) {
                    let of = if arg.is_global_set() { "every command".to_owned() } else { words.join(" ") };
                    unused.insert(format!("{of} {flag}"));
                }
            }
        }
    }
    assert!(unused.is_empty(), "no test passes these flags: {unused:#?}");
}

/// One row for each flag that changes a verdict; without the flag, no verdict changes within minutes.
fn rows() -> Vec<Specimen> {
    let now = real_now();
    let consumed = json!({"actor_id": "ada", "chain_id": "chain1", "expires_at": now - DAY, "used": true, "used_at": now - 5 * DAY / 2});
    let unindexed =
        json!({"client_id": "mcp_1", "chain_id": "chain2", "created_at": now - 1_800, "expires_at": now + 9 * DAY});
    vec![
        put(OAUTH, "_oauth_sessions", "alive", &json!({"created_at": now + DAY}), None),
        put(OAUTH, "spa_refresh_tokens", CONSUMED, &consumed, None),
        put("ada", "mcp_tokens", "aw_unindexed", &unindexed, None),
        put("_mcp_system", "access_token_index", "aw_old", &json!("ada"), None),
        put("ada", "mcp_clients", "mcp_1", &json!({"client_id": "mcp_1"}), None),
        put(OAUTH, "client_index", "mcp_1", &json!("ada"), None),
    ]
}

async fn table() -> (Testbed, Janitor) {
    let bed = Testbed::with(EngineKind::Embedded, &rows()).await;
    let janitor = Janitor::on(engine(EngineKind::Embedded).endpoint(), &bed.prefix);
    (bed, janitor)
}

#[tokio::test]
async fn a_flag_of_a_run_changes_what_the_run_would_delete() {
    let (bed, janitor) = table().await;
    for (arguments, code, deleted) in [
        (&["cleanup", "--json"][..], 0, json!(1)),
        (&["cleanup", "--json", "--reuse-window", "3d"], 0, json!(0)),
        (&["cleanup", "--json", "--reuse-window-seconds", "259200"], 0, json!(0)),
        (&["cleanup", "--json", "--expired-rows", "delete"], 0, json!(1)),
        (&["cleanup", "--json", "--grace", "10m"], 0, json!(1)),
        (&["cleanup", "--json", "--grace-seconds", "600"], 0, json!(1)),
        (&["cleanup", "--json", "--max-delete-share", "1"], 0, json!(1)),
        (&["cleanup", "--json", "--max-delete-share", "0.01"], 3, Value::Null),
        (&["repair", "--json"], 0, json!(0)),
        (&["repair", "--json", "--grace", "10m"], 0, json!(1)),
        (&["repair", "--json", "--grace-seconds", "600"], 0, json!(1)),
        (&["repair", "--json", "--grace-seconds", "600", "--max-delete-share", "0.01"], 3, Value::Null),
        (&["repair", "--json", "--remove-legacy"], 0, json!(1)),
        (&["repair", "--json", "--remove-legacy", "--grace", "10m", "--max-deletes", "1"], 0, json!(1)),
        (&["repair", "--json", "--remove-legacy", "--grace", "10m", "--max-deletes", "9"], 0, json!(2)),
        (&["repair", "--json", "--reuse-window", "3d", "--expired-rows", "delete"], 0, json!(0)),
        (&["repair", "--json", "--reuse-window-seconds", "259200"], 0, json!(0)),
        (&["cleanup", "--json", "--max-read-units-per-second", "50", "--max-write-units-per-second", "5"], 0, json!(1)),
    ] {
        let ended = janitor.run(arguments);
        assert_eq!(ended.code, code, "{arguments:?}: {ended:?}");
        let report: Value = serde_json::from_str(&ended.out).unwrap_or_default();
        assert_eq!(report["report"]["rows"]["deleted"], deleted, "{arguments:?}");
    }
    // A list names the rows of one bucket and owner, masked.
    for arguments in [
        &["cleanup", "--list", "--bucket", "spa_refresh_tokens", "--owner", OAUTH, "--limit", "5"][..],
        &["repair", "--grace", "10m", "--list", "--bucket", "mcp_tokens", "--owner", "ada", "--limit", "5"],
    ] {
        let listed = janitor.run(arguments);
        assert!(listed.code == 0 && !listed.out.contains(CONSUMED), "{arguments:?}: {listed:?}");
    }
    let restored = |arguments: &[&str]| janitor.run(arguments).json()["body"]["found"]["restored_clients"].clone();
    assert_eq!(restored(&["repair", "--json"]), 0);
    assert_eq!(restored(&["repair", "--json", "--restore-clients"]), 1);
    assert_eq!(bed.keys().await.len(), rows().len(), "nothing was written");
}

#[tokio::test]
async fn a_flag_of_an_audit_or_an_explanation_changes_its_output() {
    let (_bed, janitor) = table().await;
    let dead = |arguments: &[&str]| janitor.run(arguments).json()["body"]["dead_rows"].clone();
    assert_eq!(dead(&["audit", "--json"]), 1);
    assert_eq!(dead(&["audit", "--json", "--reuse-window", "3d"]), 0);
    assert_eq!(dead(&["audit", "--json", "--reuse-window-seconds", "259200"]), 0);
    let short = janitor.run(&["audit", "--json", "--max-audit-units", "0.5"]);
    assert_eq!((short.code, &short.json()["report"]["outcome"]), (3, &json!("read-budget")));
    let page = std::env::temp_dir().join(format!("flags-{}.html", std::process::id()));
    let written = janitor.run(&["audit", "--html", page.to_str().unwrap()]);
    assert!(written.code == 1 && page.exists(), "{written:?}");
    std::fs::remove_file(page).unwrap();

    let consumed = [OAUTH, "spa_refresh_tokens", CONSUMED];
    let unindexed = ["ada", "mcp_tokens", "aw_unindexed"];
    let legacy = ["_mcp_system", "access_token_index", "aw_old"];
    for (flags, row, deletes) in [
        (&["explain"][..], consumed, true),
        (&["explain", "--reuse-window", "3d"], consumed, false),
        (&["explain", "--reuse-window-seconds", "259200"], consumed, false),
        (&["explain", "--expired-rows", "delete"], consumed, true),
        (&["explain"], unindexed, false),
        (&["explain", "--grace", "10m"], unindexed, true),
        (&["explain", "--grace-seconds", "600"], unindexed, true),
        (&["explain"], legacy, false),
        (&["explain", "--remove-legacy"], legacy, true),
    ] {
        let output = janitor.run(&[flags, &row].concat());
        assert_eq!(output.code, 0, "{output:?}");
        assert_eq!(output.out.contains(" deletes it ("), deletes, "{flags:?} {row:?}: {}", output.out);
    }
    let by_token = |arguments: &[&str]| janitor.run_with(arguments, CONSUMED);
    let (masked, shown) = (by_token(&["explain", "--token", "-"]), by_token(&["explain", "--token", "-", "--reveal"]));
    assert!(masked.code == 0 && !masked.out.contains(CONSUMED), "{}", masked.out);
    assert!(shown.code == 0 && shown.out.contains(CONSUMED), "{}", shown.out);
}

#[tokio::test]
async fn a_revocation_deletes_the_rows_that_its_flag_names() {
    for (arguments, deleted) in [
        (&["revoke", "--json", "--actor", "ada", "--apply", "--yes"][..], [CONSUMED, "aw_unindexed"].as_slice()),
        (&["revoke", "--json", "--client", "mcp_1", "--apply", "--yes"], &["aw_unindexed"]),
        (&["revoke", "--json", "--client", "mcp_1", "--and-client", "--apply", "--yes"], &["aw_unindexed", "mcp_1"]),
        (&["revoke", "--json", "--chain", "chain1", "--apply", "--yes"], &[CONSUMED]),
        (&["revoke", "--json", "--token", "-", "--apply", "--yes"], &["aw_unindexed"]),
    ] {
        let (bed, janitor) = table().await;
        let before = bed.keys().await;
        let ended = janitor.run_with(arguments, "aw_unindexed\n");
        assert_eq!(ended.code, 0, "{arguments:?}: {ended:?}");
        let gone: BTreeSet<String> = before
            .difference(&bed.keys().await)
            .map(|(_, sort)| sort.rsplit(':').next().unwrap_or_default().to_owned())
            .collect();
        assert_eq!(gone, deleted.iter().map(|name| (*name).to_owned()).collect(), "{arguments:?}");
    }
}

/// The JSON line of the first run of `janitor run`.
fn first_run(janitor: &Janitor, arguments: &[&str]) -> Value {
    let mut process = janitor.command(arguments).spawn().unwrap();
    let line = BufReader::new(process.stdout.take().unwrap()).lines().next().unwrap().unwrap();
    assert!(Process::new("kill").arg(process.id().to_string()).status().unwrap().success());
    assert_eq!(process.wait().unwrap().code(), Some(0));
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

#[tokio::test]
async fn the_run_command_takes_the_flags_of_the_cleanup_and_is_dry_without_apply() {
    let (bed, janitor) = table().await;
    for (arguments, deleted) in [
        (
            &["run", "--every", "10s", "--json", "--grace", "10m", "--expired-rows", "delete", "--max-deletes", "9"][..],
            1,
        ),
        (&["run", "--every", "10s", "--json", "--grace-seconds", "600", "--reuse-window", "3d"], 0),
        (&["run", "--every", "10s", "--json", "--reuse-window-seconds", "259200"], 0),
    ] {
        let output = first_run(&janitor, arguments);
        let report = &output["answer"]["report"];
        assert_eq!(
            (&output["run"], &output["ok"], &report["mode"]),
            (&json!("cleanup"), &json!(true), &json!("dry-run"))
        );
        assert_eq!(report["rows"]["deleted"], deleted, "{arguments:?}: {output}");
    }
    let refused = first_run(&janitor, &["run", "--every", "10s", "--json", "--max-delete-share", "0.01"]);
    assert!(refused["ok"] == false && refused["error"].to_string().contains("--max-delete-share=0.01"), "{refused}");
    assert_eq!(bed.keys().await.len(), rows().len(), "nothing was written");
    let applied = first_run(&janitor, &["run", "--every", "10s", "--json", "--apply"]);
    assert_eq!(applied["answer"]["report"]["mode"], "delete");
    assert!(!bed.keys().await.contains(&(OAUTH.to_owned(), "spa_refresh_tokens:consumed-refresh-token".to_owned())));
}

#[tokio::test]
async fn flags_skip_the_confirmation_and_the_hints() {
    let (_bed, janitor) = table().await;
    let run = |arguments: &[&str]| janitor.run(arguments);
    let (hints, quiet, short) = (run(&["cleanup"]), run(&["cleanup", "--quiet"]), run(&["cleanup", "-q"]));
    assert!(
        hints.out.contains("run the command again with --apply") && !quiet.out.contains("run the command"),
        "{}",
        quiet.out
    );
    assert_eq!(quiet.out.lines().next(), short.out.lines().next());
    assert!(short.code == 0 && !short.out.contains("run the command"), "{}", short.out);
    let removed = run(&["ttl", "remove", OAUTH, "spa_refresh_tokens", CONSUMED, "--apply", "--yes"]);
    assert_eq!(removed.code, 0, "{removed:?}");
    let enabled = run(&["ttl", "enable", "--apply", "--yes", "--wait", "2m"]);
    assert_eq!((enabled.code, run(&["ttl", "status"]).code), (0, 0), "{enabled:?}");
    let no_credentials = Janitor::default().with("AWS_DB_PREFIX", "x").with("AWS_EC2_METADATA_DISABLED", "true");
    let unknown = no_credentials.run(&["cleanup", "--profile", "nosuch", "--region", "us-east-1"]);
    assert!(unknown.code == 2 && unknown.err.contains("profile"), "{unknown:?}");
}

#[tokio::test]
async fn the_flags_of_retire_change_what_is_retired_and_restored() {
    let now = real_now();
    let in_five_days = Some(now + 5 * DAY);
    let bed = Testbed::with(
        EngineKind::Embedded,
        &[
            put(OAUTH, "_oauth_sessions", "expired", &json!({"created_at": now - DAY}), in_five_days),
            put(
                "ada",
                "mcp_tokens",
                "aw_lost",
                &json!({"created_at": now - DAY, "expires_at": now + DAY}),
                in_five_days,
            ),
        ],
    )
    .await;
    bed.switch_ttl("ttl_timestamp", true).await;
    let janitor = Janitor::on(engine(EngineKind::Embedded).endpoint(), &bed.prefix);
    let retired = |arguments: &[&str]| janitor.run(arguments).json()["report"]["rows"]["retired"].clone();
    // A row whose TTL is within the days keeps it.
    assert_eq!(retired(&["cleanup", "--json", "--expired-rows", "retire", "--retire-days", "7"]), 0);
    assert_eq!(retired(&["cleanup", "--json", "--expired-rows", "retire", "--retire-days", "1"]), 1);
    assert_eq!(retired(&["repair", "--json", "--expired-rows", "retire", "--retire-days", "7"]), 0);
    assert_eq!(retired(&["repair", "--json", "--expired-rows", "retire", "--retire-days", "1"]), 1);
    let run =
        first_run(&janitor, &["run", "--every", "10s", "--json", "--expired-rows", "retire", "--retire-days", "1"]);
    assert_eq!(run["answer"]["report"]["rows"]["retired"], 1, "{run}");
    let dead = |arguments: &[&str]| janitor.run(arguments).json()["body"]["dead_rows"].clone();
    assert_eq!(dead(&["audit", "--json", "--expired-rows", "retire", "--retire-days", "7"]), 0);
    assert_eq!(dead(&["audit", "--json", "--expired-rows", "retire", "--retire-days", "1"]), 1);
    let output = |days: &str| {
        let flags = ["explain", "--expired-rows", "retire", "--retire-days", days];
        janitor.run(&[&flags[..], &[OAUTH, "_oauth_sessions", "expired"]].concat()).out
    };
    assert!(output("1").contains("retires") && !output("7").contains("retires"), "{} {}", output("1"), output("7"));

    let apply = &["cleanup", "--json", "--expired-rows", "retire", "--retire-days", "1", "--apply", "--yes"];
    assert_eq!(retired(apply), 1);
    let found = |arguments: &[&str]| janitor.run(arguments).json()["retired"].clone();
    assert_eq!(found(&["restore", "--json", "--owner", OAUTH]), 1);
    assert_eq!(found(&["restore", "--json", "--owner", "ada"]), 0);
    // The time of retirement is derived from the TTL and the days.
    assert_eq!(found(&["restore", "--json", "--since", "1h", "--retire-days", "1"]), 1);
    assert_eq!(found(&["restore", "--json", "--since", "1h", "--retire-days", "30"]), 0);
}

#[tokio::test]
async fn clients_are_removed_up_to_the_limit() {
    let now = real_now();
    let client = |n: usize| {
        let id = format!("mcp_{n:032x}");
        put(OAUTH, "mcp_clients", &id, &json!({"client_id": id, "created_at": now - 90 * DAY}), None)
    };
    let bed = Testbed::with(EngineKind::Embedded, &(0..4).map(client).collect::<Vec<_>>()).await;
    let janitor = Janitor::on(engine(EngineKind::Embedded).endpoint(), &bed.prefix);
    let before = bed.keys().await;
    let ended = janitor.run(&["clients", "--json", "--apply", "--yes", "--max-deletes", "2"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(before.difference(&bed.keys().await).count(), 2);
}
