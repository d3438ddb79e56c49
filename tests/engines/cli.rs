//! The `janitor` binary, with and without a terminal, on DynamoDB Local and on the embedded engine.

use bed::Invocations as _;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use bed::Testbed;
use bed::engine::{EngineKind, shared as engine};
use bed::fixture::{self, Fate, Specimen};
use bed::golden::{matches_golden, no_orphans};
use bed::janitor::{Ended, Janitor};
use bed::proxy::{self, Proxy};
use serde_json::{Value, json};
use shared::time::EpochSeconds;

pub(crate) const OAUTH: &str = "_actingweb_oauth2";
const DAY: i64 = 86_400;

bed::on_both_engines!(
    a_dry_run_reports_the_same_as_the_function,
    a_cleanup_does_the_same_as_the_function,
    a_repair_does_the_same_as_the_function,
    says_the_same_in_text_and_asks_for_confirmation,
    every_command_works_in_a_terminal,
);

pub(crate) fn now() -> i64 {
    EpochSeconds::from(std::time::SystemTime::now()).get()
}

pub(crate) fn put(owner: &str, bucket: &str, name: &str, data: &Value, ttl: Option<i64>) -> Specimen {
    Specimen {
        owner: owner.to_owned(),
        bucket: bucket.to_owned(),
        name: name.to_owned(),
        data: Some(AttributeValue::S(shared::pyjson::dumps(data))),
        ttl: ttl.map(|at| AttributeValue::N(at.to_string())),
        fate: Fate::Kept,
    }
}

/// Keeps times off the full hour, so that a second does not change a printed duration.
const HALF_AN_HOUR: i64 = 1_800;

/// Rows whose verdict does not change during a test: every time is days away.
pub(crate) fn stable_rows(copies: i64) -> Vec<Specimen> {
    let now = now();
    let (dead, alive) = (now - 40 * DAY - HALF_AN_HOUR, now + 5 * DAY + HALF_AN_HOUR);
    (0..copies)
        .flat_map(|i| {
            let actor = format!("actor{i}");
            let token = json!({"token": format!("aw_{i}"), "created_at": dead - 3_600, "expires_at": dead});
            vec![
                put(OAUTH, "_oauth_sessions", &format!("dead{i}"), &json!({"created_at": dead}), Some(dead + 4_200)),
                put(OAUTH, "_oauth_sessions", &format!("alive{i}"), &json!({"created_at": alive}), Some(alive)),
                put(OAUTH, "spa_access_tokens", &format!("a{i}"), &json!({"expires_at": alive}), Some(alive + 3_600)),
                put(&actor, "mcp_tokens", &format!("aw_{i}"), &token, Some(dead + 3_600)),
                put(OAUTH, "_access_token_index", &format!("aw_{i}"), &json!(actor), Some(dead + 10_800)),
                // For the index repair: the actor and its token are gone.
                put(
                    OAUTH,
                    "_refresh_token_index",
                    &format!("rt_{i}"),
                    &json!("gone"),
                    Some(now + 20 * DAY + HALF_AN_HOUR),
                ),
                put(&actor, "_internal", "x", &json!({"expires_at": 1}), Some(dead)),
            ]
        })
        .collect()
}

pub(crate) fn janitor_for(kind: EngineKind, bed: &Testbed) -> Janitor {
    Janitor::on(engine(kind).endpoint(), &bed.prefix)
}

/// The answer without its durations.
fn without_durations(mut answer: Value) -> Value {
    for time in ["elapsed_ms", "paced_ms"] {
        assert!(answer["report"].as_object_mut().unwrap().remove(time).is_some());
    }
    answer
}

async fn a_dry_run_reports_the_same_as_the_function(kind: EngineKind) {
    let rows = fixture::all_kinds(now(), 3, 5);
    let bed = Testbed::with(kind, &rows).await;
    let cleanup = janitor_for(kind, &bed).run(&["cleanup", "--json"]).json();
    let at = |answer: &Value| EpochSeconds::new(answer["report"]["now"].as_i64().unwrap());
    let lambda = bed.function.daily_cleanup(json!({"mode": "dry-run"}), at(&cleanup), None).await.unwrap();
    assert_eq!(without_durations(cleanup), without_durations(bed::cleanup_answer(&lambda)));
    let repair = janitor_for(kind, &bed).run(&["repair", "--json"]).json();
    let lambda = bed.function.index_repair(json!({"mode": "dry-run"}), at(&repair), None).await.unwrap();
    assert_eq!(without_durations(repair), without_durations(bed::repair_answer(&lambda)));
    assert_eq!(bed.keys().await.len(), rows.len(), "nothing was deleted");
}

async fn a_cleanup_does_the_same_as_the_function(kind: EngineKind) {
    let rows = stable_rows(20);
    let (by_cli, by_lambda) = (Testbed::with(kind, &rows).await, Testbed::with(kind, &rows).await);
    let janitor = janitor_for(kind, &by_cli);
    let now = EpochSeconds::new(now());
    // Without --apply an environment that says delete does not delete either.
    assert_eq!(janitor.clone().with("MODE", "delete").run(&["cleanup", "--json"]).json()["report"]["mode"], "dry-run");
    assert_eq!(by_cli.keys().await.len(), rows.len());

    let real = janitor.run(&["cleanup", "--json", "--apply", "--yes"]);
    assert_eq!(real.code, 0, "{real:?}");
    by_lambda.function.daily_cleanup(json!({}), now, None).await.unwrap();
    assert_eq!(real.json()["report"]["rows"]["deleted"], 60);
    assert_eq!(by_cli.keys().await, by_lambda.keys().await);
}

async fn a_repair_does_the_same_as_the_function(kind: EngineKind) {
    let rows = stable_rows(20);
    let (by_cli, by_lambda) = (Testbed::with(kind, &rows).await, Testbed::with(kind, &rows).await);
    let janitor = janitor_for(kind, &by_cli);
    let dry = janitor.run(&["repair", "--json"]);
    let now = EpochSeconds::new(now());
    let lambda = by_lambda.function.index_repair(json!({"mode": "dry-run"}), now, None).await.unwrap();
    assert_eq!(dry.json()["body"], bed::repair_answer(&lambda)["body"]);
    assert_eq!(by_cli.keys().await.len(), rows.len());
    let real = janitor.run(&["repair", "--json", "--apply", "--yes"]);
    by_lambda.function.index_repair(json!({}), now, None).await.unwrap();
    assert_eq!((real.code, real.json()["body"]["dangling_index_rows"].as_u64()), (0, Some(20)));
    assert_eq!(by_cli.keys().await, by_lambda.keys().await);
}

/// The account and region that each engine reports.
fn location(kind: EngineKind) -> String {
    let region = match kind {
        EngineKind::DynamoDbLocal => "ddblocal",
        EngineKind::Embedded => "dynoxide",
    };
    format!("account 000000000000, region {region}")
}

/// Replaces what differs between runs or engines. Joins a wrapped prompt or headline into one line, because table names differ in length.
/// An account or a region that is not the engine's is left as it is, so that the comparison fails.
fn normalize(text: &str, bed: &Testbed, kind: EngineKind) -> String {
    let line = |line: &str| match line.split_once(' ') {
        Some(("used", _)) => "used … read and … write units, … requests, … s".to_owned(),
        Some(("cost", _)) => "cost      … read units, … requests, … s".to_owned(),
        Some(("DynamoDB", _)) => "DynamoDB reports … rows, … bytes (up to six hours old); on demand".to_owned(),
        _ => line.to_owned(),
    };
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines().map(line) {
        let begins = line.starts_with("Type yes") || line.starts_with("warning: ");
        let is_open = |last: &&mut String| {
            let names_table = last.contains(" of table ") || last.contains(" in table ");
            let is_head = names_table && !last.starts_with("audit ") && !last.ends_with(')');
            is_head || last.starts_with("This ") || last.starts_with("warning: ")
        };
        match lines.last_mut().filter(is_open) {
            Some(prompt) if !begins => *prompt = format!("{prompt} {}", line.trim_start()),
            _ => lines.push(line),
        }
    }
    for prompt in lines.iter_mut().filter(|line| line.starts_with("This will delete")) {
        if let Some((rows, _)) = prompt.split_once("and take about ") {
            *prompt = format!("{rows}and take about …");
        }
    }
    let text = lines.join("\n").replace(&bed.table, "golden_attributes").replace(&bed.prefix, "golden");
    text.replace(&location(kind), "account 123456789012, region eu-west-1")
}

/// The write units in the last line of a run's output.
fn write_units_used(text: &str) -> f64 {
    let used = text.lines().rfind(|line| line.starts_with("used ")).expect("a run reports its usage");
    let units = used.split(" and ").nth(1).and_then(|rest| rest.split(' ').next()).expect("write units");
    units.replace(',', "").parse().unwrap_or_else(|error| panic!("{error}: {used}"))
}

async fn says_the_same_in_text_and_asks_for_confirmation(kind: EngineKind) {
    let rows = stable_rows(20);
    let bed = Testbed::with(kind, &rows).await;
    let janitor = janitor_for(kind, &bed);
    let plain = janitor.run(&["cleanup"]);
    assert_eq!((plain.code, plain.err.as_str()), (0, ""));
    matches_golden("cli/cleanup.txt", &normalize(&plain.out, &bed, kind));
    assert!(write_units_used(&plain.out).abs() < f64::EPSILON, "a dry run writes nothing: {}", plain.out);
    assert!(!plain.out.contains('\x1b'), "color without a terminal");
    let audit = janitor.run(&["audit"]);
    assert_eq!(audit.code, 1, "TTL is off, and no run was ever complete: findings");
    matches_golden("cli/audit.txt", &normalize(&audit.out, &bed, kind));

    // Without a terminal.
    let refused = janitor.run(&["cleanup", "--apply"]);
    assert_eq!(refused.code, 2);
    assert_eq!(refused.err, "janitor: --apply asks for confirmation, and there is no terminal: add --yes\n");
    // Declined.
    let no = janitor.in_terminal(100, &["--reply", "Type yes=no"], &["cleanup", "--apply"]);
    assert_eq!(no.code, 3, "{}", no.out);
    assert!(no.out.contains("not confirmed: nothing was deleted"), "{}", no.out);
    assert!(no.out.contains("\x1b[1m"), "no color in a terminal: {:?}", no.out);
    let colorless = janitor.clone().with("NO_COLOR", "1").in_terminal(100, &[], &["cleanup", "--quiet"]);
    assert!(!colorless.out.contains('\x1b'), "{:?}", colorless.out);
    assert_eq!(bed.keys().await.len(), rows.len());
    // Confirmed.
    let yes = janitor.clone().with("NO_COLOR", "1").in_terminal(
        100,
        &["--reply", "Type yes=yes"],
        &["cleanup", "--apply", "--quiet"],
    );
    assert_eq!(yes.code, 0, "{}", yes.out);
    matches_golden("cli/cleanup-apply.txt", &normalize(&yes.out, &bed, kind));
    // One unit per row, and a few for the lease, the cursor and the state of the run.
    assert!((60.0..80.0).contains(&write_units_used(&yes.out)), "{}", yes.out);
    assert_eq!(bed.keys().await.len(), rows.len() - 60);
    let repair = janitor.run(&["repair", "--quiet"]);
    matches_golden("cli/repair.txt", &normalize(&repair.out, &bed, kind));
}

async fn every_command_works_in_a_terminal(kind: EngineKind) {
    let mut rows = stable_rows(2);
    let expires = now() + 9 * DAY + HALF_AN_HOUR;
    rows.push(put(OAUTH, "spa_refresh_tokens", "old", &json!({"expires_at": expires, "used": false}), None));
    let bed = Testbed::with(kind, &rows).await;
    let janitor = janitor_for(kind, &bed).with("NO_COLOR", "1");
    let run = |options: &[&str], arguments: &[&str], code: i32| {
        let ended = janitor.in_terminal(100, options, &[arguments, &["--quiet"]].concat());
        assert_eq!(ended.code, code, "{arguments:?}: {}", ended.out);
        let too_long = ended.out.lines().find(|line| line.chars().count() > 100);
        assert_eq!(too_long, None, "{arguments:?}");
        assert!(!ended.out.contains("panicked"), "{}", ended.out);
        ended.out
    };
    let yes = ["--reply", "Type yes=yes"];
    assert!(run(&[], &["audit"], 1).contains("finding: TTL is off"));
    assert!(run(&[], &["repair"], 0).contains("index repair (dry run)"));
    let explained = run(&[], &["explain", "actor0", "mcp_tokens", "aw_0"], 0);
    assert!(explained.contains("daily-cleanup  deletes it (expired)"), "{explained}");
    // revoke deletes live rows: it asks for confirmation and reports what remains.
    let no = run(&["--reply", "Type yes=no"], &["revoke", "--actor", "actor0", "--apply"], 3);
    assert!(no.contains("not confirmed"), "{no}");
    let revoked = run(&yes, &["revoke", "--actor", "actor0", "--apply"], 0);
    matches_golden("cli/revoke.txt", &normalize(&revoked, &bed, kind));
    let left = bed.keys().await;
    assert!(!left.iter().any(|(owner, sort)| owner == "actor0" && sort.starts_with("mcp_tokens")), "{left:?}");
    assert!(left.iter().any(|(owner, sort)| owner == "actor1" && sort.starts_with("mcp_tokens")), "{left:?}");
    // A row without a TTL gets one; a TTL that was set can be read and removed.
    let filled = run(&yes, &["ttl", "backfill", "--apply"], 0);
    matches_golden("cli/ttl-backfill.txt", &normalize(&filled, &bed, kind));
    // From here on the engine removes rows past their TTL.
    matches_golden("cli/ttl-status-off.txt", &normalize(&run(&[], &["ttl", "status"], 1), &bed, kind));
    let enabled = run(&yes, &["ttl", "enable", "--apply"], 0);
    matches_golden("cli/ttl-enable.txt", &normalize(&enabled, &bed, kind));
    matches_golden("cli/ttl-status-on.txt", &normalize(&run(&[], &["ttl", "status"], 0), &bed, kind));
    let row = ["spa_refresh_tokens", "old"];
    let get = ["ttl", "get", OAUTH, row[0], row[1]];
    let got = run(&[], &get, 0);
    matches_golden("cli/ttl-get.txt", &without_timestamps(&got));
    let no = run(&["--reply", "Type yes=no"], &["ttl", "set", OAUTH, row[0], row[1], "88200", "--apply"], 3);
    assert!(no.contains("not confirmed: nothing was written"), "{no}");
    let set = run(&yes, &["ttl", "set", OAUTH, row[0], row[1], "88200", "--apply"], 0);
    matches_golden("cli/ttl-set.txt", &without_timestamps(&normalize(&set, &bed, kind)));
    let removed = run(&yes, &["ttl", "remove", OAUTH, row[0], row[1], "--apply"], 0);
    matches_golden("cli/ttl-remove.txt", &without_timestamps(&normalize(&removed, &bed, kind)));
    let stopped =
        janitor.in_terminal(100, &["--interrupt-at", "cleanup complete"], &["run", "--every", "10s", "--apply"]);
    assert_eq!(stopped.code, 0, "{}", stopped.out);
}

/// The text without numbers that depend on the clock: timestamps, and seconds until then.
fn without_timestamps(text: &str) -> String {
    // Matches neither the account number nor the requested seconds.
    let is_clock = |number: &str| (6..12).contains(&number.len()) && number.bytes().all(|byte| byte.is_ascii_digit());
    let is_utc = |word: &str| word.len() > 7 && word.bytes().all(|byte| byte.is_ascii_digit() || b"-:".contains(&byte));
    let word = |word: &str| if is_clock(word) || is_utc(word) { "…".to_owned() } else { word.to_owned() };
    let line = |line: &str| line.split(' ').map(word).collect::<Vec<_>>().join(" ");
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn ctrl_c_at_a_prompt_declines_at_once() {
    let kind = EngineKind::Embedded;
    let rows = stable_rows(2);
    let bed = Testbed::with(kind, &rows).await;
    for (command, undone) in [
        (&["cleanup"][..], "nothing was deleted"),
        (&["revoke", "--actor", "actor0"], "nothing was deleted"),
        (&["ttl", "enable"], "nothing was changed"),
    ] {
        let no = janitor_for(kind, &bed).in_terminal(
            100,
            &["--interrupt-at", "Type yes"],
            &[command, &["--apply"]].concat(),
        );
        assert_eq!(no.code, 3, "{}", no.out);
        assert!(no.out.contains(&format!("janitor: not confirmed: {undone}")), "{}", no.out);
        assert!(!no.out.contains("stopping after"), "{}", no.out);
        assert!(no.took < Duration::from_secs(20), "{:?}", no.took);
    }
    assert_eq!(bed.keys().await.len(), rows.len());
    assert_eq!(janitor_for(kind, &bed).run(&["ttl", "status"]).code, 1);
}

#[tokio::test]
async fn tables_fit_the_screen() {
    let kind = EngineKind::Embedded;
    let bed = Testbed::with(kind, &stable_rows(120)).await;
    for columns in ["60", "80"] {
        for command in
            [&["cleanup"][..], &["repair"], &["audit"], &["revoke", "--actor", "actor0"], &["ttl", "backfill"]]
        {
            let ended = janitor_for(kind, &bed).with("COLUMNS", columns).run(command);
            let fits = |line: &str| line.chars().count() <= columns.parse().unwrap();
            let too_wide: Vec<&str> = ended.out.lines().filter(|line| !fits(line)).collect();
            assert_eq!(too_wide, Vec::<&str>::new(), "{command:?} at {columns}: {}", ended.out);
            assert!(ended.out.contains("mcp_tokens"), "{command:?}: {}", ended.out);
        }
    }
}

/// Command lines, in which a token is tried in every position.
const COMMANDS: [&[&str]; 8] = [
    &["cleanup", "--table", "x", "--max-deletes", "5", "--apply"],
    &["audit", "--scope", "all"],
    &["explain", "a", "b", "c"],
    &["ttl", "set", "o", "b", "n", "60"],
    &["ttl", "enable", "--wait", "2m"],
    &["run", "--every", "30m"],
    &["revoke", "--actor", "a"],
    &["completions", "bash"],
];

#[test]
fn a_misplaced_token_is_never_printed() {
    let janitor = Janitor::on(engine(EngineKind::Embedded).endpoint(), "nosuch");
    for token in ["aw_Zk3vT9q0pXy7LrWm2Nb8Hs4Jd6Fg1Ac5Eu0Io9Ty3B", "Zk3vT9q0pXy7LrWm2Nb8Hs4Jd6Fg1Ac5Eu0Io9Ty3BQ"] {
        let (option, value) = (format!("--{token}"), format!("--apply={token}"));
        for command in COMMANDS {
            for at in 0..=command.len() {
                let mut instead = command.to_vec();
                let mut cases = vec![[&command[..at], &[token], &command[at..]].concat()];
                if let Some(word) = instead.get_mut(at) {
                    *word = token;
                    cases.push(instead);
                }
                if at == command.len() {
                    cases.extend([&option, &value].map(|more| [command, &[more.as_str()]].concat()));
                }
                for arguments in cases {
                    let ended = janitor.run(&arguments);
                    let printed = format!("{}{}", ended.out, ended.err);
                    assert!(
                        !printed.contains(&token[7..]) && !printed.contains("panicked"),
                        "{arguments:?}: {printed}"
                    );
                    assert!([1, 2, 3].contains(&ended.code) && !ended.err.is_empty(), "{arguments:?}: {ended:?}");
                }
            }
        }
    }
}

/// The demo's output without the durations and costs of its runs.
fn without_costs(text: &str) -> String {
    let line = |line: &str| match line.split_once(" rows  in ") {
        Some((before, _)) => format!("{before} rows  in … ms: … requests, … read and … write units"),
        None => line.to_owned(),
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_demo_cleans_a_table_of_its_own() {
    let janitor = Janitor::default().with("COLUMNS", "140");
    let demo = janitor.run(&["demo", "--copies", "1"]);
    assert_eq!((demo.code, demo.err.as_str()), (0, ""));
    matches_golden("cli/demo.txt", &without_costs(&demo.out));
    let quiet = janitor.run(&["demo", "--copies", "1", "--quiet"]);
    assert_eq!((quiet.code, quiet.out.lines().count()), (0, 1), "{quiet:?}");
    let document = janitor.run(&["demo", "--copies", "1", "--json"]).json();
    assert_eq!((&document["wrong"], &document["endpoint"]), (&json!([]), &Value::Null));
    assert_eq!(document["dry_run"]["report"]["buckets"], document["real_run"]["report"]["buckets"]);
}

#[test]
fn the_demo_s_engine_stays_up_until_ctrl_c() {
    let mut demo = Janitor::default().command(&["demo", "--copies", "1", "--keep"]).spawn().unwrap();
    let mut lines = BufReader::new(demo.stdout.take().unwrap()).lines().map_while(Result::ok);
    let line = lines.find(|line| line.starts_with("The engine keeps running: ")).expect("prints its endpoint");
    let endpoint = line.split(['=', ' ']).find(|word| word.starts_with("http://")).unwrap().to_owned();
    // The table was cleaned: of more than a hundred dead rows, only those that expired since are left.
    let cleanup = Janitor::on(&endpoint, "demo").run(&["cleanup", "--json"]);
    let rows = &cleanup.json()["report"]["rows"];
    assert!(
        cleanup.code == 0 && rows["read"].as_u64() > Some(50) && rows["deleted"].as_u64() < Some(60),
        "{cleanup:?}"
    );
    assert!(Command::new("kill").args(["-INT", &demo.id().to_string()]).status().unwrap().success());
    assert_eq!(demo.wait().unwrap().code(), Some(0));
    assert_eq!(Janitor::on(&endpoint, "demo").run(&["ttl", "status"]).code, 3, "its port is still open");
}

#[tokio::test]
async fn the_demo_fills_a_table_of_dynamodb_local() {
    let endpoint = engine(EngineKind::DynamoDbLocal).endpoint();
    let table = format!("demo{:08x}_attributes", fastrand::u32(..));
    let fill = |more: &[&str]| {
        let flags = ["demo", "--copies", "1", "--endpoint", endpoint, "--table", &table];
        Janitor::default().run(&[&flags[..], more].concat())
    };
    let filled = fill(&[]);
    assert_eq!((filled.code, filled.err.as_str()), (0, ""));
    assert!(filled.out.starts_with(&format!("Table {table} at {endpoint} has 242 rows.\n\nNext:\n")), "{}", filled.out);
    let guide = include_str!("../../docs/local.md");
    for line in filled.out.lines().filter_map(|line| line.strip_prefix("  ")) {
        let line = line.replace(endpoint, "http://127.0.0.1:8000").replace(&table, "demo_attributes");
        let command = line.split("   ").next().unwrap_or_default();
        assert!(guide.contains(&format!("\n{command}")), "docs/local.md lacks {command}");
    }
    // The printed variables alone are enough to find the rows.
    let exported =
        filled.out.lines().filter_map(|line| line.trim().strip_prefix("export ")).flat_map(|line| line.split(' '));
    let janitor = exported.fold(Janitor::default(), |janitor, pair| {
        let (name, value) = pair.split_once('=').unwrap();
        janitor.with(name, value)
    });
    let deleted = |ended: &Ended| ended.json()["report"]["rows"]["deleted"].as_u64();
    assert!(deleted(&janitor.run(&["cleanup", "--json"])) > Some(100));
    assert!(deleted(&janitor.run(&["cleanup", "--json", "--apply", "--yes"])) > Some(100));
    // Filling again after a cleanup: the demo's rows and the janitor's state do not count as other rows.
    assert_eq!(fill(&["--json"]).json(), json!({"table": table, "endpoint": endpoint, "rows": 242}));
    assert!(deleted(&janitor.run(&["cleanup", "--json"])) > Some(100));
    let client = bed::tables::client(endpoint).await;
    let before = bed::tables::scan(&client, &table).await.unwrap();
    let foreign = client.put_item().table_name(&table).item("id", AttributeValue::S("ada".to_owned()));
    foreign.item("bucket_name", AttributeValue::S("notes:one".to_owned())).send().await.unwrap();
    let refused = fill(&[]);
    assert_eq!((refused.code, refused.out.as_str()), (2, ""));
    assert!(refused.err.contains("holds rows other than the demo's"), "{}", refused.err);
    assert_eq!(bed::tables::scan(&client, &table).await.unwrap().len(), before.len() + 1);
}

#[test]
fn the_demo_fills_only_local_tables_with_demo_in_their_name() {
    let unused = format!("http://127.0.0.1:{}", bed::process::free_port());
    for (flags, code, text) in [
        (&["--endpoint", "https://dynamodb.us-east-1.amazonaws.com"][..], 2, "only to an endpoint on this machine"),
        (&["--endpoint", "http://192.168.1.2:8000"], 2, "only to an endpoint on this machine"),
        (
            &["--endpoint", &unused, "--prefix", "myapp"],
            2,
            "only to a table with demo in its name, not to myapp_attributes",
        ),
        (&["--endpoint", &unused, "--keep"], 2, "--keep applies to the embedded engine"),
        (&["--endpoint", &unused], 3, "could not reach DynamoDB at http://127.0.0.1:"),
    ] {
        let ended = Janitor::default().run(&[&["demo"], flags].concat());
        assert_eq!((ended.code, ended.out.as_str()), (code, ""), "{flags:?}");
        assert!(ended.err.contains(text) && ended.err.lines().count() == 1, "{flags:?}: {}", ended.err);
    }
}

#[tokio::test]
async fn ctrl_c_stops_after_the_requests_in_flight_and_the_next_run_continues() {
    let kind = EngineKind::Embedded;
    let rows = stable_rows(400);
    let bed = Testbed::with(kind, &rows).await;
    let janitor = janitor_for(kind, &bed);
    let slow = ["cleanup", "--apply", "--yes", "--max-write-units", "100"];
    let stopped = janitor.in_terminal(100, &["--interrupt-at", " deleted/s"], &slow);
    assert_eq!(stopped.code, 3, "{}", stopped.out);
    assert!(stopped.out.contains("stopped on request: the next run continues from here"), "{}", stopped.out);
    let left = bed.keys().await.len();
    assert!(left < rows.len() && left > rows.len() - 1_200, "{left} of {}", rows.len());
    let rest = janitor.run(&["cleanup", "--json", "--apply", "--yes"]);
    assert_eq!((rest.code, &rest.json()["report"]["resumed"]), (0, &json!(true)));
    assert_eq!(bed.keys().await.len(), rows.len() - 1_200);
}

#[tokio::test]
async fn the_run_command_cleans_until_it_is_stopped() {
    let kind = EngineKind::Embedded;
    let rows = stable_rows(30);
    let bed = Testbed::with(kind, &rows).await;
    let janitor = janitor_for(kind, &bed);
    let mut process = janitor.command(&["run", "--every", "10s", "--repair-every", "1d", "--apply"]).spawn().unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let mut next = || lines.next().expect("a line").expect("text");
    assert!(next().starts_with("runs every 10 s, starting in "));
    let cleanup = next();
    let repair = next();
    matches_golden("cli/run.txt", &[&cleanup, &repair].map(|line| without_time_and_cost(line)).join("\n"));
    let again = next();
    assert!(again.contains(" cleanup complete: ") && again.contains(", deleted 0, "), "{again}");
    assert!(Command::new("kill").arg(process.id().to_string()).status().unwrap().success());
    assert_eq!(process.wait().unwrap().code(), Some(0));
    assert_eq!(bed.keys().await.len(), rows.len() - 120);
}

/// A status line of `janitor run` without its time and cost.
fn without_time_and_cost(line: &str) -> String {
    let (at, rest) = line.split_once(" UTC ").expect("a timestamp first");
    assert_eq!(at.len(), "2026-11-17 11:01:30".len(), "{line}");
    let (counts, cost) = rest.split_once(" skipped 0, ").expect("the counts, and nothing skipped");
    let words: Vec<&str> = cost.split(' ').map(|word| if word.parse::<f64>().is_ok() { "…" } else { word }).collect();
    format!("… {counts} skipped 0, {}", words.join(" "))
}

/// Each error names its cause, within seconds, with the documented exit code.
#[tokio::test]
async fn what_is_wrong_is_reported_at_once() {
    let endpoint = engine(EngineKind::DynamoDbLocal).endpoint();
    let bed = Testbed::new(EngineKind::DynamoDbLocal).await;
    let hanging = TcpListener::bind("127.0.0.1:0").unwrap();
    let hangs = format!("http://{}", hanging.local_addr().unwrap());
    let dead = format!("http://127.0.0.1:{}", bed::process::free_port());
    let denied = Proxy::start(endpoint, |_| {
        let body = json!({"__type": "com.amazon.coral.service#AccessDeniedException", "Message": "User: arn:aws:iam::1:user/x"});
        proxy::Fate::Answer(400, body.to_string())
    });
    let other_keys = Testbed::new(EngineKind::DynamoDbLocal).await;
    foreign_table(&other_keys).await;
    let good = Janitor::on(endpoint, &bed.prefix);
    let cases = [
        (Janitor::on(endpoint, "nosuch"), vec!["cleanup"], 2, "table nosuch_attributes does not exist"),
        (
            Janitor::on(endpoint, "nosuch"),
            vec!["explain", "a", "b", "c", "--region", "eu-west-1"],
            2,
            "check --prefix or --table; the region is eu-west-1 (see --region and --profile)",
        ),
        (Janitor::on(endpoint, "foreign"), vec!["audit"], 2, "is not an ActingWeb attributes table"),
        (Janitor::default(), vec!["cleanup"], 2, "no table: use --prefix or --table, or set AWS_DB_PREFIX"),
        (
            good.clone(),
            vec!["cleanup", "--max-deletes", "0"],
            2,
            "invalid value '0' for '--max-deletes <N>': must be a whole number, 1 or more",
        ),
        (good.clone(), vec!["cleanup", "--max-deletes", "-1"], 2, "must be a whole number, 1 or more"),
        (good.clone(), vec!["repair", "--grace", "60s"], 2, "7d, 5m or more"),
        (good.clone(), vec!["cleanup", "--delete"], 2, "a similar argument exists: '--apply'"),
        (good.clone().with("MAXDELETES", "1"), vec!["cleanup"], 2, "MAXDELETES is not a setting: use MAX_DELETES"),
        (good.clone(), vec!["audit", "--scope", "some"], 2, "invalid value 'some' for '--scope <SCOPE>'"),
        (good.clone(), vec!["cleanup", "--table", "xyz", "--prefix", "y"], 2, "cannot be used with"),
        (good.clone(), vec!["cleanup", "--yes"], 2, "--apply"),
        (good.clone(), vec!["run", "--every", "soon"], 2, "must be a duration such as 90s, 15m, 1h30m or 7d"),
        (Janitor::on(&dead, "x"), vec!["cleanup"], 3, "could not reach DynamoDB at http://127.0.0.1"),
        (Janitor::on(&hangs, "x"), vec!["repair"], 3, "could not reach DynamoDB at http://127.0.0.1"),
        (Janitor::on(&hangs, "x"), vec!["explain", "a", "b", "c"], 3, "timed out"),
        (Janitor::on(&hangs, "x"), vec!["ttl", "status"], 3, "check --endpoint (or AWS_DB_HOST)"),
        (Janitor::on(denied.endpoint(), "x"), vec!["cleanup"], 3, "not allowed: DescribeTable on table x_attributes"),
        (
            Janitor::default().with("AWS_DB_PREFIX", "x").with("AWS_EC2_METADATA_DISABLED", "true"),
            vec!["cleanup", "--region", "us-east-1"],
            2,
            "no AWS credentials found: set AWS_PROFILE, use --profile, or run `aws sso login`",
        ),
        (
            Janitor::default()
                .with("AWS_DB_PREFIX", "x")
                .with("AWS_ACCESS_KEY_ID", "x")
                .with("AWS_SECRET_ACCESS_KEY", "x"),
            vec!["cleanup", "--region", "nowhere-1"],
            3,
            "could not reach DynamoDB at the AWS endpoint of the region",
        ),
    ];
    for (janitor, arguments, code, text) in cases {
        let ended = janitor.run(&arguments);
        assert_eq!(ended.code, code, "{arguments:?}: {ended:?}");
        assert!(ended.err.contains(text), "{arguments:?}: {ended:?}");
        assert!(ended.took < Duration::from_secs(12), "{arguments:?}: {ended:?}");
        assert!(!ended.err.contains("panicked") && ended.out.is_empty(), "{ended:?}");
    }
    drop(hanging);
}

async fn foreign_table(bed: &Testbed) {
    use aws_sdk_dynamodb::types::{AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType};
    let key = KeySchemaElement::builder().attribute_name("pk").key_type(KeyType::Hash).build().unwrap();
    let text =
        AttributeDefinition::builder().attribute_name("pk").attribute_type(ScalarAttributeType::S).build().unwrap();
    let create = bed.function.client.create_table().table_name("foreign_attributes").key_schema(key);
    let create = create.attribute_definitions(text).billing_mode(BillingMode::PayPerRequest);
    create.send().await.unwrap();
}

/// The top-level keys of a command's document, as the guide lists them: those before a colon or a bracket.
fn listed_keys(command: &str) -> BTreeSet<String> {
    let guide = include_str!("../../docs/janitor.md");
    let scripts = guide.split("## Scripts").nth(1).expect("a chapter on scripts");
    let mut rows = scripts.lines().filter_map(|line| line.split('|').nth(1).zip(line.split('|').nth(2)));
    let row = rows.find(|(commands, _)| commands.contains(&format!("`{command}`")));
    let (_, cell) = row.unwrap_or_else(|| panic!("{command} is not listed"));
    let top = cell.split(": ").next().unwrap_or_default().split('(').map(|part| part.split(')').next_back().unwrap());
    top.flat_map(|part| part.split('`').skip(1).step_by(2)).map(str::to_owned).collect()
}

#[tokio::test]
async fn the_guide_lists_the_keys_of_every_document() {
    let kind = EngineKind::Embedded;
    let bed = Testbed::with(kind, &stable_rows(1)).await;
    let of_row = [OAUTH, "_oauth_sessions", "alive0"];
    for (command, more) in [
        ("demo", &["--copies", "1"][..]),
        ("cleanup", &[]),
        ("repair", &[]),
        ("audit", &[]),
        ("status", &[]),
        ("doctor", &[]),
        ("explain", &of_row),
        ("ttl status", &[]),
        ("ttl enable", &[]),
        ("ttl get", &of_row),
        ("ttl set", &[&of_row[..], &["60"]].concat()),
        ("ttl remove", &of_row),
        ("ttl backfill", &[]),
        ("restore", &[]),
        ("revoke", &["--actor", "actor0"]),
        ("clients", &[]),
        ("resume", &[]),
        ("pause", &[]),
    ] {
        let words: Vec<&str> = command.split(' ').collect();
        let document = janitor_for(kind, &bed).run(&[&words[..], more, &["--json"]].concat()).json();
        let keys: BTreeSet<String> = document.as_object().unwrap().keys().cloned().collect();
        assert_eq!(keys, listed_keys(command), "{command}");
    }
}

#[test]
fn every_command_has_help_with_an_example() {
    let janitor = Janitor::default().with("COLUMNS", "100");
    let ttl = ["status", "enable", "get", "set", "remove", "backfill"];
    let of_ttl = ttl.iter().map(|command| vec!["ttl", *command]);
    let mut files = Vec::new();
    for command in [vec![]].into_iter().chain(NAMES.iter().map(|name| vec![*name])).chain(of_ttl) {
        let ended = janitor.run(&[command.as_slice(), &["--help"]].concat());
        assert_eq!(ended.code, 0);
        assert!(command.is_empty() || ended.out.contains("Example"), "{command:?}: {}", ended.out);
        files.push(format!("cli/{}.txt", [&["help"], command.as_slice()].concat().join("-")));
        matches_golden(files.last().unwrap(), &ended.out);
    }
    no_orphans("cli/help", files.iter().map(String::as_str));
    assert_eq!(janitor.run(&["--version"]).out, format!("janitor {}\n", env!("CARGO_PKG_VERSION")));
    assert_eq!(janitor.run(&["nonsense"]).code, 2);
}

const NAMES: [&str; 15] = [
    "demo",
    "cleanup",
    "repair",
    "audit",
    "status",
    "doctor",
    "explain",
    "ttl",
    "run",
    "revoke",
    "restore",
    "clients",
    "pause",
    "resume",
    "completions",
];

/// The README's table and the file that the checks of the template read are printed by `janitor settings` (`make docs`).
#[test]
fn the_readme_has_the_table_of_settings() {
    let printed = Janitor::default().run(&["settings"]);
    let readme = include_str!("../../README.md");
    let between =
        readme.split("<!-- settings:start -->\n").nth(1).and_then(|rest| rest.split("<!-- settings:end -->").next());
    assert_eq!(between, Some(printed.out.as_str()), "README.md differs from the table of settings: run `make docs`");
    matches_golden("settings.json", &Janitor::default().run(&["settings", "--json"]).out);
}

/// What `make release` packages: one definition for help, man pages and completions.
#[test]
fn man_pages_and_completions_are_generated_for_every_command() {
    let folder = std::env::temp_dir().join(format!("janitor-pages-{:016x}", fastrand::u64(..)));
    let made = Janitor::default().run(&["generate", folder.to_str().unwrap()]);
    assert_eq!((made.code, made.err.as_str()), (0, ""));
    let page = |name: &str| std::fs::read_to_string(folder.join("man").join(name)).unwrap();
    for name in NAMES {
        assert!(page(&format!("janitor-{name}.1")).contains(".SH SYNOPSIS"), "{name}");
    }
    assert!(page("janitor.1").contains("Exit codes") && page("janitor-ttl-set.1").contains("DURATION"));
    let hidden = std::fs::read_dir(folder.join("man")).unwrap().flatten();
    assert!(
        !hidden.map(|file| file.file_name()).any(|name| name == "janitor-settings.1" || name == "janitor-generate.1")
    );
    for file in ["janitor.bash", "_janitor", "janitor.fish", "_janitor.ps1", "janitor.elv"] {
        assert!(std::fs::read_to_string(folder.join("completions").join(file)).unwrap().contains("doctor"), "{file}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn each_shell_completes_every_command() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = Janitor::default().run(&["completions", shell]);
        assert_eq!((script.code, script.err.as_str()), (0, ""), "{shell}");
        let missing: Vec<_> = NAMES.iter().filter(|name| !script.out.contains(*name)).collect();
        assert!(missing.is_empty() && script.out.contains("backfill"), "{shell} does not know {missing:?}");
    }
}
