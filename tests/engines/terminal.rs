//! `janitor` in a pseudo-terminal: prompts, output, and what is not shown.

use std::collections::BTreeMap;
use std::process::Stdio;

use bed::Testbed;
use bed::engine::{EngineKind, shared as engine};
use bed::fixture;
use bed::janitor::Janitor;
use serde_json::{Value, json};
use shared::mask::Masked;

use crate::cli::{janitor_for, now, put, stable_rows};

bed::on_both_engines!(the_list_has_the_rows_that_apply_deletes);

const TOKEN: &str = "aw_Zk3vT9q0pXy7LrWm2Nb8Hs4Jd6Fg1Ac5Eu0Io9Ty3B";
const EMBEDDED: EngineKind = EngineKind::Embedded;

#[tokio::test]
async fn input_before_the_prompt_is_not_taken_as_confirmation() {
    let rows = stable_rows(2);
    let bed = Testbed::with(EMBEDDED, &rows).await;
    for command in [&["cleanup"][..], &["revoke", "--actor", "actor0"], &["ttl", "enable"], &["ttl", "backfill"]] {
        let arguments = [command, &["--apply"]].concat();
        let options = ["--ahead", "yes", "--reply", "Type yes=no"];
        let ended = janitor_for(EMBEDDED, &bed).in_terminal(100, &options, &arguments);
        if command != ["ttl", "backfill"] {
            assert_eq!(ended.code, 3, "{command:?}: {}", ended.out);
            assert!(ended.out.contains("not confirmed: nothing was"), "{command:?}: {}", ended.out);
        }
    }
    assert_eq!(bed.keys().await.len(), rows.len());
    assert_eq!(janitor_for(EMBEDDED, &bed).run(&["ttl", "status"]).code, 1, "TTL was not enabled");
}

/// `pbpaste | janitor revoke --token - --apply`: the token comes from the pipe, the confirmation from the terminal.
#[tokio::test]
async fn the_prompt_is_shown_on_the_terminal_if_standard_input_is_a_pipe() {
    let rows = stable_rows(2);
    let bed = Testbed::with(EMBEDDED, &rows).await;
    let revoke = |answer: &str| {
        let options = ["--pipe", "aw_0\nyes\n", "--reply", answer];
        janitor_for(EMBEDDED, &bed).in_terminal(100, &options, &["revoke", "--token", "-", "--apply"])
    };
    let no = revoke("Type yes=no");
    assert_eq!(no.code, 3, "{}", no.out);
    assert!(no.out.contains("not confirmed: nothing was deleted"), "{}", no.out);
    assert_eq!(bed.keys().await.len(), rows.len());
    let yes = revoke("Type yes=yes");
    assert_eq!(yes.code, 0, "{}", yes.out);
    assert_eq!(bed.keys().await.len(), rows.len() - 2, "the token and its index row should be deleted");
}

#[tokio::test]
async fn a_typed_secret_is_not_echoed() {
    let bed = Testbed::with(EMBEDDED, &stable_rows(1)).await;
    let typed = format!("(not shown): ={TOKEN}");
    for command in [
        &["explain", "-"][..],
        &["explain", "--token", "-"],
        &["revoke", "--token", "-"],
        &["ttl", "get", "o", "b", "-"],
    ] {
        let ended = janitor_for(EMBEDDED, &bed).in_terminal(200, &["--reply", &typed], command);
        assert_eq!(ended.code, 1, "no such row: {command:?}: {}", ended.out);
        assert!(!ended.out.contains(&TOKEN[6..]), "{command:?}: {}", ended.out);
    }
}

/// `terminal.py` checks that the terminal's echo is on again after Ctrl-C.
#[test]
fn ctrl_c_at_a_secret_prompt_ends_the_command() {
    let janitor = Janitor::on(engine(EMBEDDED).endpoint(), "nosuch");
    let ended = janitor.in_terminal(100, &["--interrupt-at", "(not shown): "], &["explain", "-"]);
    assert_eq!(ended.code, 3, "{}", ended.out);
    assert!(ended.out.contains("janitor: cancelled: nothing was done"), "{}", ended.out);
}

/// `stable_rows` with names as long as the library's.
fn long_rows() -> Vec<fixture::Specimen> {
    let dead = now() - 40 * 86_400 - 1_800;
    let actor = "6a1f0c9be3d94a5f8b7c2d1e0f3a4b5c";
    let token = |i: usize| format!("aw_Zk3vT9q0pXy7LrWm2Nb8Hs4Jd6Fg1Ac5Eu0Io9Ty{i:02}");
    (0..3)
        .flat_map(|i| {
            let data = json!({"token": token(i), "created_at": dead - 3_600, "expires_at": dead});
            [
                put(actor, "mcp_tokens", &token(i), &data, Some(dead + 3_600)),
                put(crate::cli::OAUTH, "_access_token_index", &token(i), &json!(actor), Some(dead + 10_800)),
            ]
        })
        .collect()
}

#[tokio::test]
async fn the_list_of_a_revocation_is_a_table_at_100_columns_and_is_printed_once() {
    let bed = Testbed::with(EMBEDDED, &long_rows()).await;
    let arguments = ["revoke", "--actor", "6a1f0c9be3d94a5f8b7c2d1e0f3a4b5c", "--apply", "--quiet"];
    let janitor = janitor_for(EMBEDDED, &bed).with("NO_COLOR", "1");
    let ended = janitor.in_terminal(100, &["--reply", "Type yes=yes"], &arguments);
    assert_eq!(ended.code, 0, "{}", ended.out);
    let heads = ended.out.lines().filter(|line| line.starts_with("bucket ") && line.ends_with(" name")).count();
    assert_eq!(heads, 1, "{}", ended.out);
    assert_eq!(ended.out.lines().filter(|line| line.starts_with("mcp_tokens ")).count(), 3, "{}", ended.out);
    assert!(ended.out.contains("6 deleted (confirmed"), "{}", ended.out);
}

#[tokio::test]
async fn an_incomplete_audit_prints_no_row_counts() {
    let bed = Testbed::with(EMBEDDED, &stable_rows(400)).await;
    let page = std::env::temp_dir().join(format!("janitor-audit-{}.html", bed.prefix));
    let janitor = janitor_for(EMBEDDED, &bed);
    let budget = janitor.run(&["audit", "--max-audit-units", "1", "--html", page.to_str().unwrap()]);
    assert_eq!(budget.code, 3, "{budget:?}");
    assert!(budget.out.contains("Not all rows were counted, so no row counts are shown."), "{}", budget.out);
    assert!(budget.out.contains("counted within --max-audit-units"), "the flag is not named: {}", budget.out);
    let html = std::fs::read_to_string(&page).unwrap();
    std::fs::remove_file(&page).unwrap();
    assert!(!html.contains("none to clean up") && !html.contains("id=\"forecast\""), "{html}");
    // At this rate it takes minutes.
    let slow = ["audit", "--max-read-units", "0.5"];
    let stopped = janitor.in_terminal(100, &["--interrupt-at", "audit ["], &slow);
    assert_eq!(stopped.code, 3, "{}", stopped.out);
    assert!(stopped.out.contains("finding: the count was stopped early"), "{}", stopped.out);
    for text in [budget.out, stopped.out] {
        assert!(!text.contains("deadline"), "there was no deadline: {text}");
        assert!(
            !text.contains("\nall ") && !text.contains(" waiting to be") && !text.contains("past its TTL"),
            "{text}"
        );
    }
}

#[tokio::test]
async fn a_dry_run_that_stops_early_reports_that_it_stores_nothing() {
    let bed = Testbed::with(EMBEDDED, &stable_rows(20)).await;
    let dry = janitor_for(EMBEDDED, &bed).with("COLUMNS", "200").run(&["cleanup", "--max-deletes", "5"]);
    assert_eq!(dry.code, 0, "{dry:?}");
    let note = "note: stopped at --max-deletes: a dry run stores nothing, so the next run starts where this one did";
    assert!(dry.out.contains(note), "{}", dry.out);
    assert!(dry.out.contains("\nnot reached: the rest of oauth_sessions, "), "{}", dry.out);
    let real = janitor_for(EMBEDDED, &bed).run(&["cleanup", "--max-deletes", "5", "--apply", "--yes"]);
    assert!(real.out.contains("stopped at --max-deletes: the next run continues from here"), "{}", real.out);
    let repair = janitor_for(EMBEDDED, &bed).run(&["repair", "--max-deletes", "5"]);
    assert!(repair.out.contains("\nnot reached: about "), "{}", repair.out);
}

/// The number after `prefix` in the first line that starts with it.
fn number(text: &str, prefix: &str) -> u64 {
    let line =
        text.lines().find_map(|line| line.strip_prefix(prefix)).unwrap_or_else(|| panic!("no {prefix:?}: {text}"));
    line.trim_start().split(' ').next().unwrap().replace(',', "").parse().unwrap()
}

#[tokio::test]
async fn the_numbers_of_a_backlog_add_up() {
    let bed = Testbed::with(EMBEDDED, &stable_rows(20)).await;
    let janitor = janitor_for(EMBEDDED, &bed);
    let (audit, cleanup) = (janitor.run(&["audit"]).out, janitor.run(&["cleanup"]).out);
    assert_eq!(number(&audit, "backlog"), 60, "{audit}");
    assert_eq!(number(&cleanup, "would delete"), 60, "{cleanup}");
    let all = cleanup.lines().find(|line| line.starts_with("all ")).expect("a line for all rows");
    assert_eq!(all.split_whitespace().collect::<Vec<_>>(), ["all", "120", "60"], "{cleanup}");
    assert!(audit.contains("finding: index-repair has not completed a run"), "{audit}");
    let _ = janitor.run(&["cleanup", "--apply", "--yes"]);
    let clear = janitor.run(&["audit"]).out;
    assert!(clear.contains("forecast  no rows are waiting to be deleted\n"), "{clear}");
    // Rows of unknown buckets have a line of their own, so that the lines add up.
    let repair = janitor.run(&["repair"]).out;
    let read = |line: &str| line.split_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
    let lines: Vec<&str> = repair.lines().skip(3).take_while(|line| !line.is_empty()).collect();
    let (all, buckets) = lines.split_last().expect("a table");
    assert_eq!(buckets.iter().map(|line| read(line)).sum::<u64>(), read(all), "{repair}");
}

/// The dead rows of an audit are those that a cleanup deletes because of their own fields or TTL, and all commands report the same
/// backlog of the system actors.
#[tokio::test]
async fn audit_status_and_cleanup_agree_on_every_kind_of_row() {
    let bed = Testbed::with(EMBEDDED, &fixture::all_kinds(now() - 12_345, 3, 5)).await;
    let janitor = janitor_for(EMBEDDED, &bed);
    let [audit, status, cleanup] =
        ["audit", "status", "cleanup"].map(|command| janitor.run(&[command, "--json"]).json());
    assert_eq!(audit["body"]["backlog"], status["backlog"]);
    let system = &audit["report"]["owners"]["system"];
    assert_eq!(json!(system["dead"].as_u64().unwrap() + system["due"].as_u64().unwrap()), status["backlog"]);
    let mut deleted: BTreeMap<&str, u64> = BTreeMap::new();
    for counts in cleanup["report"]["buckets"].as_object().unwrap().values() {
        for (reason, rows) in counts["deleted"].as_object().unwrap() {
            *deleted.entry(reason).or_default() += rows.as_u64().unwrap();
        }
    }
    // These reasons follow from other rows, which an audit does not check.
    for reason in ["dangling", "target_dead", "unreferenced"] {
        assert!(deleted.remove(reason) > Some(0), "{reason}");
    }
    assert_eq!(json!(deleted.values().sum::<u64>()), audit["body"]["dead_rows"], "{deleted:?}");
    assert!(cleanup["report"]["rows"]["deleted"].as_u64() > audit["body"]["dead_rows"].as_u64());
}

#[tokio::test]
async fn a_held_lease_is_reported_before_the_dry_run() {
    let mut rows = stable_rows(2);
    let lease = json!({"holder": "index-repair-0123456789abcdef", "until": now() + 600});
    rows.push(put("_actingweb_janitor", "state", "lease", &lease, None));
    let bed = Testbed::with(EMBEDDED, &rows).await;
    let held = janitor_for(EMBEDDED, &bed).in_terminal(100, &[], &["cleanup", "--apply"]);
    assert_eq!(held.code, 3, "{}", held.out);
    assert!(held.out.contains("another run (index-repair-0123456789abcdef) holds the lease"), "{}", held.out);
    assert!(held.out.contains("If that run was killed, try again after that"), "{}", held.out);
    assert!(!held.out.contains("(dry run)"), "{}", held.out);
    assert_eq!(janitor_for(EMBEDDED, &bed).run(&["cleanup"]).code, 0, "a dry run needs no lease");
}

#[tokio::test]
async fn a_closed_pipe_is_no_error() {
    let bed = Testbed::with(EMBEDDED, &stable_rows(2)).await;
    for arguments in [&["cleanup"][..], &["audit"], &["completions", "bash"], &["settings"]] {
        let mut child = janitor_for(EMBEDDED, &bed).command(arguments).stdout(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let ended = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&ended.stderr), "", "{arguments:?}");
        assert_eq!(ended.status.code(), Some(141), "{arguments:?}");
    }
}

/// The list has exactly the rows that are deleted, with the reported reasons.
async fn the_list_has_the_rows_that_apply_deletes(kind: EngineKind) {
    // The fixture's rows expired hours ago or expire hours from now: none expires between the two runs.
    let rows = [fixture::all_kinds(now() - 12_345, 3, 5), stable_rows(30)].concat();
    let bed = Testbed::with(kind, &rows).await;
    let janitor = janitor_for(kind, &bed);
    for command in ["cleanup", "repair"] {
        let dry = janitor.run(&[command, "--list", "--limit", "10000", "--json"]).json();
        let before = bed.keys().await;
        let real = janitor.run(&[command, "--apply", "--yes", "--json"]).json();
        let after = bed.keys().await;
        let mut gone: Vec<[String; 3]> = rows
            .iter()
            .map(|row| (row, (row.owner.clone(), format!("{}:{}", row.bucket, row.name))))
            .filter(|(_, key)| before.contains(key) && !after.contains(key))
            .map(|(row, _)| [row.bucket.clone(), Masked(&row.owner).to_string(), Masked(&row.name).to_string()])
            .collect();
        let text = |row: &Value, field: &str| row[field].as_str().unwrap().to_owned();
        let listed = dry["list"]["rows"].as_array().unwrap();
        let mut named: Vec<[String; 3]> =
            listed.iter().map(|row| ["bucket", "owner", "name"].map(|field| text(row, field))).collect();
        gone.sort();
        named.sort();
        assert!(gone.len() > 20, "{command}: {}", gone.len());
        assert_eq!(named, gone, "{command}");
        assert_eq!(dry["list"]["matching"], json!(gone.len()));
        let mut reasons: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
        for row in listed {
            *reasons.entry(text(row, "bucket")).or_default().entry(text(row, "reason")).or_default() += 1;
        }
        let buckets = real["report"]["buckets"].as_object().unwrap().iter();
        let deleted: BTreeMap<String, BTreeMap<String, u64>> = buckets
            .map(|(bucket, counts)| (bucket.clone(), serde_json::from_value(counts["deleted"].clone()).unwrap()))
            .filter(|(_, reasons): &(String, BTreeMap<String, u64>)| !reasons.is_empty())
            .collect();
        assert_eq!(reasons, deleted, "{command}");
    }
}

#[tokio::test]
async fn a_list_is_masked_filtered_and_limited() {
    let bed = Testbed::with(EMBEDDED, &[long_rows(), stable_rows(20)].concat()).await;
    let janitor = janitor_for(EMBEDDED, &bed);
    let list = |more: &[&str]| janitor.run(&[&["cleanup", "--list"], more].concat());
    let short = list(&["--bucket", "mcp_tokens", "--limit", "2"]);
    assert_eq!(short.code, 0, "{short:?}");
    assert!(short.out.contains("listed 2 of 23 rows: --limit, --bucket and --owner show others"), "{}", short.out);
    assert!(!short.out.contains("Zk3vT9q0pXy7LrWm2"), "{}", short.out);
    let actor = list(&["--owner", "actor7", "--json"]).json();
    assert_eq!(actor["list"]["matching"], 1);
    assert_eq!(actor["list"]["rows"][0]["bucket"], "mcp_tokens");
    assert_eq!(actor["list"]["rows"][0]["reason"], "expired");
    for columns in ["60", "100", "200"] {
        let wide = janitor.clone().with("COLUMNS", columns).run(&["cleanup", "--list"]);
        let fits = |line: &&str| line.chars().count() <= columns.parse().unwrap();
        assert_eq!(wide.out.lines().find(|line| !fits(line)), None, "{columns}");
    }
    assert_eq!(list(&["--yes"]).code, 2);
    assert_eq!(list(&["--bucket", "nonsense"]).code, 2);
    assert_eq!(janitor.run(&["cleanup", "--limit", "5"]).code, 2, "without --list");
}

/// The lines of every frame of the progress bar.
fn drawn_lines(output: &str, columns: u16) -> Vec<String> {
    let is_end = |c: char| c.is_ascii_alphabetic();
    let frames = output.split("\x1b[").map(|part| part.split_once(is_end).map_or("", |(_, text)| text));
    let lines = frames.flat_map(|frame| frame.split(['\r', '\n']));
    lines
        .flat_map(|line| {
            line.chars().collect::<Vec<_>>().chunks(columns.into()).map(String::from_iter).collect::<Vec<_>>()
        })
        .collect()
}

/// At two deletes per second progress is visible, and the remaining time follows from the rate.
#[tokio::test]
async fn the_progress_bar_shows_rows_by_bucket_and_the_time_left_at_any_width() {
    for columns in [60, 100, 200] {
        let bed = Testbed::with(EMBEDDED, &stable_rows(20)).await;
        let options = ["--reply", "Type yes=yes", "--interrupt-at", "4 deleted", "--interrupt-at", "stopping"];
        let ended = janitor_for(EMBEDDED, &bed).in_terminal(
            columns,
            &options,
            &["cleanup", "--apply", "--max-write-units", "2"],
        );
        assert_eq!(ended.code, 3, "the second Ctrl-C ends it at once: {}", ended.out);
        let words = ended.out.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("write units, at most 2.0 per second, and take about "), "{}", ended.out);
        let (_, bars) = ended.out.split_once("Type yes").expect("a prompt");
        let lines = drawn_lines(bars, columns);
        for part in ["cleanup [", " of 60 deleted, ", " s left", " read", " deleted/s"] {
            assert!(lines.iter().any(|line| line.contains(part)), "{columns}: {part}: {lines:?}");
        }
        // The drawn numbers depend on the machine; `--interrupt-at` has checked that four were deleted.
        let is_bucket = |line: &String| line.starts_with("  _oauth_sessions 40 read, ") && line.contains(" deleted");
        assert!(lines.iter().any(is_bucket), "{columns}: {lines:?}");
    }
}
