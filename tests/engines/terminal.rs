//! `janitor` at a pseudo-terminal: what is asked, what is shown, and what is not.

use bed::Bed;
use bed::engine::{EngineKind, shared as engine};
use bed::fixture;
use bed::janitor::Janitor;
use serde_json::json;

use crate::cli::{calm_rows, now, of, put};

const TOKEN: &str = "aw_Zk3vT9q0pXy7LrWm2Nb8Hs4Jd6Fg1Ac5Eu0Io9Ty3B";
const EMBEDDED: EngineKind = EngineKind::Embedded;

#[tokio::test]
async fn a_yes_that_was_typed_before_the_question_is_no_answer() {
    let rows = calm_rows(2);
    let bed = Bed::with(EMBEDDED, &rows).await;
    for command in [&["cleanup"][..], &["revoke", "--actor", "actor0"], &["ttl", "enable"], &["ttl", "backfill"]] {
        let arguments = [command, &["--apply"]].concat();
        let options = ["--ahead", "yes", "--reply", "Type yes=no"];
        let ended = of(EMBEDDED, &bed).in_terminal(100, &options, &arguments);
        if command != ["ttl", "backfill"] {
            assert_eq!(ended.code, 3, "{command:?}: {}", ended.out);
            assert!(ended.out.contains("not confirmed: nothing was"), "{command:?}: {}", ended.out);
        }
    }
    assert_eq!(bed.keys().await.len(), rows.len());
    assert_eq!(of(EMBEDDED, &bed).run(&["ttl", "status"]).code, 1, "TTL was not enabled");
}

/// `pbpaste | janitor revoke --token - --apply`: the pipe has the token, the person at the terminal the answer.
#[tokio::test]
async fn where_standard_input_is_a_pipe_the_question_is_asked_at_the_terminal() {
    let rows = calm_rows(2);
    let bed = Bed::with(EMBEDDED, &rows).await;
    let revoke = |answer: &str| {
        let options = ["--pipe", "aw_0\nyes\n", "--reply", answer];
        of(EMBEDDED, &bed).in_terminal(100, &options, &["revoke", "--token", "-", "--apply"])
    };
    let no = revoke("Type yes=no");
    assert_eq!(no.code, 3, "{}", no.out);
    assert!(no.out.contains("not confirmed: nothing was deleted"), "{}", no.out);
    assert_eq!(bed.keys().await.len(), rows.len());
    let yes = revoke("Type yes=yes");
    assert_eq!(yes.code, 0, "{}", yes.out);
    assert_eq!(bed.keys().await.len(), rows.len() - 2, "the token and its index row");
}

#[tokio::test]
async fn a_secret_that_is_typed_is_not_shown() {
    let bed = Bed::with(EMBEDDED, &calm_rows(1)).await;
    let typed = format!("(not shown): ={TOKEN}");
    for command in [
        &["explain", "-"][..],
        &["explain", "--token", "-"],
        &["revoke", "--token", "-"],
        &["ttl", "get", "o", "b", "-"],
    ] {
        let ended = of(EMBEDDED, &bed).in_terminal(200, &["--reply", &typed], command);
        assert_eq!(ended.code, 1, "no such row: {command:?}: {}", ended.out);
        assert!(!ended.out.contains(&TOKEN[6..]), "{command:?}: {}", ended.out);
    }
}

/// The terminal has its echo again, also after Ctrl-C: `terminal.py` looks.
#[test]
fn ctrl_c_at_a_secret_ends_the_command() {
    let janitor = Janitor::on(engine(EMBEDDED).endpoint(), "nosuch");
    let ended = janitor.in_terminal(100, &["--interrupt-at", "(not shown): "], &["explain", "-"]);
    assert_eq!(ended.code, 3, "{}", ended.out);
    assert!(ended.out.contains("janitor: stopped: nothing was done"), "{}", ended.out);
}

/// `calm_rows` with names as long as the library's.
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
    let bed = Bed::with(EMBEDDED, &long_rows()).await;
    let arguments = ["revoke", "--actor", "6a1f0c9be3d94a5f8b7c2d1e0f3a4b5c", "--apply", "--quiet"];
    let janitor = of(EMBEDDED, &bed).with("NO_COLOR", "1");
    let ended = janitor.in_terminal(100, &["--reply", "Type yes=yes"], &arguments);
    assert_eq!(ended.code, 0, "{}", ended.out);
    let heads = ended.out.lines().filter(|line| line.starts_with("bucket ") && line.ends_with(" name")).count();
    assert_eq!(heads, 1, "{}", ended.out);
    assert_eq!(ended.out.lines().filter(|line| line.starts_with("mcp_tokens ")).count(), 3, "{}", ended.out);
    assert!(ended.out.contains("6 deleted, and confirmed"), "{}", ended.out);
}
