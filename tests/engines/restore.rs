//! The `janitor restore` command, and retired rows in the audit. By the machine's clock.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use bed::Testbed;
use bed::engine::EngineKind;
use bed::items::Item;
use bed::janitor::Janitor;
use model::Key;
use serde_json::json;

use crate::cli::{OAUTH, janitor_for, now, put};
use crate::retire::rows;

bed::on_both_engines!(
    restore_lists_retired_rows_and_restores_them_on_request,
    restore_writes_nothing_while_paused,
    an_interrupted_restore_stops_within_a_page,
    an_interrupted_repair_stops_restoring_clients,
    the_audit_counts_retired_rows_and_shows_when_ttl_removes_them,
);

const DAY: i64 = 86_400;

/// Three retired rows and a live one, and the table before they were retired.
async fn retired(kind: EngineKind) -> (Testbed, Janitor, BTreeMap<Key, Item>) {
    let now = now();
    let session = |name| put(OAUTH, "_oauth_sessions", name, &json!({"created_at": now - DAY}), None);
    let dangling = put(OAUTH, "_refresh_token_index", "rt_1", &json!("gone"), Some(now + 20 * DAY));
    let alive = put(OAUTH, "spa_access_tokens", "a", &json!({"expires_at": now + DAY}), Some(now + 2 * DAY));
    let bed = Testbed::with(kind, &[session("one"), session("two"), dangling, alive]).await;
    bed.switch_ttl("ttl_timestamp", true).await;
    let before = rows(&bed).await;
    let janitor = janitor_for(kind, &bed).with("EXPIRED_ROWS", "retire");
    for (run, n) in [("cleanup", 2), ("repair", 1)] {
        let ended = janitor.run(&[run, "--apply", "--yes", "--json"]);
        assert_eq!((ended.code, &ended.json()["report"]["rows"]["retired"]), (0, &json!(n)), "{ended:?}");
    }
    assert_eq!(rows(&bed).await.values().filter(|item| item.contains_key("retired_from")).count(), 3);
    (bed, janitor, before)
}

async fn restore_lists_retired_rows_and_restores_them_on_request(kind: EngineKind) {
    let (bed, janitor, before) = retired(kind).await;
    let after = rows(&bed).await;
    let dry = janitor.run(&["restore", "--json"]);
    let document = dry.json();
    assert_eq!((dry.code, &document["mode"], &document["complete"]), (0, &json!("dry-run"), &json!(true)), "{dry:?}");
    assert_eq!((&document["retired"], &document["restored"]), (&json!(3), &json!(3)), "{dry:?}");
    assert_eq!(document["buckets"]["_oauth_sessions"]["reasons"], json!({"expired": 2}));
    assert_eq!(document["buckets"]["_refresh_token_index"]["reasons"], json!({"dangling": 1}));
    let until = document["buckets"]["_oauth_sessions"]["until"].as_i64().unwrap();
    assert!((now() + 7 * DAY - 600..=now() + 7 * DAY).contains(&until), "{dry:?}");

    let text = janitor.run(&["restore"]);
    let printed = text.out.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in ["restore of retired rows (dry run)", "would restore 3 of", "Nothing was written.", "janitor pause"] {
        assert!(text.code == 0 && printed.contains(part), "{part}: {text:?}");
    }
    let one = janitor.run(&["restore", "--bucket", "_refresh_token_index", "--since", "1h", "--json"]).json();
    assert_eq!(one["retired"], 1, "{one}");
    // No terminal, so no confirmation.
    let refused = janitor.run(&["restore", "--apply"]);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert_eq!(rows(&bed).await, after, "something was written");

    let real = janitor.run(&["restore", "--apply", "--yes", "--json"]);
    assert_eq!((real.code, &real.json()["restored"]), (0, &json!(3)), "{real:?}");
    assert_eq!(rows(&bed).await, before);
    for arguments in [&["restore", "--json"][..], &["restore", "--apply", "--yes", "--json"]] {
        let nothing = janitor.run(arguments);
        assert_eq!((nothing.code, &nothing.json()["retired"]), (1, &json!(0)), "{nothing:?}");
    }
    let nothing = janitor.run(&["restore", "--apply", "--yes"]);
    assert!(nothing.code == 1 && nothing.out.contains("No such row is retired"), "{nothing:?}");
    assert_eq!(rows(&bed).await, before);
}

async fn restore_writes_nothing_while_paused(kind: EngineKind) {
    let (bed, janitor, before) = retired(kind).await;
    let after = rows(&bed).await;
    assert_eq!(janitor.run(&["pause", "--for", "1h"]).code, 0);
    let refused = janitor.run(&["restore", "--apply", "--yes"]);
    let printed = format!("{}{}", refused.out, refused.err).replace('\n', " ");
    assert!(refused.code == 3 && printed.contains("the janitor is paused until"), "{refused:?}");
    assert_eq!(rows(&bed).await, after);
    // A dry run writes nothing anyway.
    assert_eq!(janitor.run(&["restore", "--json"]).json()["restored"], 3);
    assert_eq!(janitor.run(&["resume"]).code, 0);
    assert_eq!(janitor.run(&["restore", "--apply", "--yes"]).code, 0);
    assert_eq!(rows(&bed).await, before);
}

/// Runs a command that writes two units per second, interrupts it after the first rows that `written` counts, and returns how many
/// there are at its end.
async fn interrupted(janitor: &Janitor, arguments: &[&str], written: impl AsyncFn() -> usize) -> usize {
    let slow = [arguments, &["--apply", "--yes", "--json", "--max-write-units", "2"]].concat();
    let mut process = janitor.command(&slow).spawn().unwrap();
    while written().await < 3 {
        assert!(process.try_wait().unwrap().is_none(), "ended early");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(Command::new("kill").args(["-INT", &process.id().to_string()]).status().unwrap().success());
    assert_eq!(process.wait().unwrap().code(), Some(3));
    written().await
}

/// A page of a small provisioned table takes minutes.
async fn an_interrupted_restore_stops_within_a_page(kind: EngineKind) {
    let created = json!({"created_at": now() - DAY});
    let sessions = (0..120).map(|n| put(OAUTH, "_oauth_sessions", &format!("s{n}"), &created, None));
    let bed = Testbed::with(kind, &sessions.collect::<Vec<_>>()).await;
    bed.switch_ttl("ttl_timestamp", true).await;
    let janitor = janitor_for(kind, &bed).with("EXPIRED_ROWS", "retire");
    assert_eq!(janitor.run(&["cleanup", "--apply", "--yes"]).code, 0);
    let restored = async || 120 - rows(&bed).await.values().filter(|item| item.contains_key("retired_from")).count();
    let restored = interrupted(&janitor, &["restore"], restored).await;
    assert!(restored < 60, "{restored}");
}

async fn an_interrupted_repair_stops_restoring_clients(kind: EngineKind) {
    let session = put(OAUTH, "_oauth_sessions", "s", &json!({"created_at": now()}), None);
    let clients = (0..120).flat_map(|n| {
        let (actor, client) = (format!("actor{n}"), format!("mcp_{n}"));
        let record = put(&actor, "mcp_clients", &client, &json!({"client_id": client}), None);
        [record, put(OAUTH, "client_index", &client, &json!(actor), None)]
    });
    let bed = Testbed::with(kind, &clients.chain([session]).collect::<Vec<_>>()).await;
    let restored = async || bed.keys().await.iter().filter(|(_, sort)| sort.starts_with("_client_index:")).count();
    let restored = interrupted(&janitor_for(kind, &bed), &["repair", "--restore-clients"], restored).await;
    assert!(restored < 60, "{restored}");
}

async fn the_audit_counts_retired_rows_and_shows_when_ttl_removes_them(kind: EngineKind) {
    let (_bed, janitor, _) = retired(kind).await;
    let file = std::env::temp_dir().join(format!("retired-{:08x}.html", fastrand::u32(..)));
    let audited = janitor.run(&["audit", "--json", "--html", file.to_str().unwrap()]);
    let page = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    let body = &audited.json()["body"];
    let gone_by = body["retired_rows_gone_by"].as_i64().unwrap();
    assert_eq!(body["retired_rows"], 3, "{body}");
    assert!(page.contains("data-json=\"/body/retired_rows\">3 rows</data>"), "{page}");
    assert!(page.contains(&format!("data-json=\"/body/retired_rows_gone_by\" data-value=\"{gone_by}\"")), "{page}");
    let text = janitor.run(&["audit"]).out.split_whitespace().collect::<Vec<_>>().join(" ");
    let utc = shared::time::Utc(shared::time::EpochSeconds::new(gone_by));
    assert!(text.contains(&format!("retired 3 rows; TTL removes the last of them after {utc}")), "{text}");
}
