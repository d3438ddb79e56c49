//! `janitor explain` predicts what the functions do, and its text matches the documented rules.

use bed::Invocations as _;
use std::collections::{BTreeMap, BTreeSet};

use bed::Testbed;
use bed::engine::{EngineKind, shared as engine};
use bed::fixture::{self, Specimen};
use bed::golden::{matches_golden, no_orphans};
use bed::janitor::{Ended, janitor};
use bed::tables::scan;
use bed::tables::{random_table, specimens};
use dynamo::ReadOnly;
use jobs::explain::{Action, Explanation, explain};
use jobs::run::clock::RunClock;
use jobs::run::report::RunReport;
use jobs::store::ReadRows;
use model::rows::NOW;
use serde_json::{Value, json};
use shared::bucket::OAUTH_OWNER;
use shared::expiry::Policy;
use shared::integrity::Lookup;
use shared::row::{Row, RowKey};
use shared::settings::{Purpose, Settings};
use shared::time::{EpochSeconds, Utc};

bed::on_both_engines!(
    predicts_what_the_functions_do_with_every_row,
    predicts_what_the_functions_do_with_random_tables,
    says_the_same_under_other_settings,
    explains_one_row_of_every_kind_and_state,
    finds_the_rows_of_a_bare_token,
    explains_why_a_row_may_be_absent,
    shows_secrets_only_on_request,
    refuses_arguments_that_name_no_row,
);

/// Counts by bucket, action and reason.
type Counts = BTreeMap<(String, &'static str, String), u64>;

async fn open(bed: &Testbed, kind: EngineKind) -> ReadOnly {
    let settings = Settings::parse(&bed.function.environment, &serde_json::Map::new(), Purpose::Explain).unwrap();
    let clock = RunClock::start(EpochSeconds::new(NOW), None);
    ReadOnly::open(bed.function.client.clone(), &settings, Some(engine(kind).endpoint()), clock).await.unwrap()
}

async fn rows(bed: &Testbed, table: &ReadOnly) -> Vec<Row> {
    let seen = scan(&bed.function.client, &bed.table).await.unwrap();
    let mut keys: Vec<RowKey> = seen.into_iter().map(|(owner, sort, _)| RowKey::new(owner, sort)).collect();
    keys.sort();
    let found = table.get_consistent(&keys).await.unwrap();
    found
        .into_iter()
        .map(|found| match found {
            Lookup::Found(row) => row,
            other => panic!("{other:?}"),
        })
        .collect()
}

async fn explain_all(bed: &Testbed, kind: EngineKind, now: i64, policy: &Policy) -> Vec<Explanation> {
    let table = open(bed, kind).await;
    let mut explanations = Vec::new();
    for row in rows(bed, &table).await {
        explanations.push(explain(&table, row, EpochSeconds::new(now), policy).await.unwrap());
    }
    explanations
}

/// The explanations as the counts of a report. Foreign rows are left out: runs count them under the bucket whose prefix
/// they share.
fn summarize(explanations: &[Explanation], course: fn(&Explanation) -> Action) -> (Counts, BTreeSet<(String, String)>) {
    let (mut counts, mut deleted) = (Counts::new(), BTreeSet::new());
    for explanation in explanations {
        let Ok(bucket) = explanation.bucket else {
            assert_eq!(course(explanation), Action::NeverTouched);
            continue;
        };
        let (action, reason) = match course(explanation) {
            Action::Retire(reason) => ("retired", reason.name()),
            Action::Delete(reason) => {
                deleted.insert((explanation.row.key.owner.clone(), explanation.row.key.sort.clone()));
                ("deleted", reason.name())
            }
            Action::Keep(reason) => ("kept", reason.name()),
            Action::NotReached(_) => continue,
            other => panic!("{other:?}"),
        };
        *counts.entry((bucket.name.to_owned(), action, reason.to_owned())).or_default() += 1;
    }
    counts.retain(|(_, _, reason), _| reason != "foreign");
    (counts, deleted)
}

fn reported(report: &RunReport) -> Counts {
    let mut counts = Counts::new();
    for (bucket, of) in report.counts.buckets() {
        for (action, reasons) in [("deleted", &of.deleted), ("retired", &of.retired), ("kept", &of.kept)] {
            for (reason, n) in reasons {
                counts.insert(((*bucket).to_owned(), action, (*reason).to_owned()), *n);
            }
        }
    }
    counts.retain(|(_, _, reason), n| reason != "foreign" && *n > 0);
    counts
}

#[derive(Clone, Copy)]
enum Run {
    Daily,
    Repair,
}

impl Run {
    async fn invoke(self, bed: &Testbed, event: Value, now: i64) -> RunReport {
        let now = EpochSeconds::new(now);
        match self {
            Run::Daily => bed.function.daily_cleanup(event, now, None).await.unwrap(),
            Run::Repair => bed.function.index_repair(event, now, None).await.unwrap(),
        }
    }

    fn course(self) -> fn(&Explanation) -> Action {
        match self {
            Run::Daily => |explanation| explanation.daily,
            Run::Repair => |explanation| explanation.repair,
        }
    }
}

/// Explains every row, then compares the counts of a dry run and the rows that a real run deletes.
async fn check_agreement(bed: &Testbed, kind: EngineKind, run: Run, now: i64, what: &str) {
    check_agreement_with(bed, kind, run, now, &Policy::default(), what).await;
}

async fn check_agreement_with(bed: &Testbed, kind: EngineKind, run: Run, now: i64, policy: &Policy, what: &str) {
    let event = |mode: &str| {
        let expired = if policy.retire.is_some() { "retire" } else { "delete" };
        json!({"mode": mode, "expired_rows": expired, "reuse_window_seconds": policy.reuse_window})
    };
    let explanations = explain_all(bed, kind, now, policy).await;
    let (counts, deleted) = summarize(&explanations, run.course());
    let dry = run.invoke(bed, event("dry-run"), now).await;
    assert_eq!(counts, reported(&dry), "{what}");
    let before = bed.keys().await;
    run.invoke(bed, event("delete"), now).await;
    let after = bed.keys().await;
    let gone: BTreeSet<(String, String)> = before.difference(&after).cloned().collect();
    assert_eq!(deleted, gone, "{what}");
}

async fn predicts_what_the_functions_do_with_every_row(kind: EngineKind) {
    let rows = fixture::all_kinds(NOW, 2, 5);
    for run in [Run::Daily, Run::Repair] {
        let bed = Testbed::with(kind, &rows).await;
        check_agreement(&bed, kind, run, NOW, "first").await;
        // Rows of unknown age are deleted when the repair sees them again.
        check_agreement(&bed, kind, run, NOW + 7_200, "again").await;
        check_agreement(&bed, kind, Run::Daily, NOW + 40 * 86_400, "much later").await;
    }
}

async fn says_the_same_under_other_settings(kind: EngineKind) {
    let rows = fixture::all_kinds(NOW, 1, 6);
    let longer = Policy { reuse_window: 5 * 86_400, ..Policy::default() };
    let retiring = Policy { retire: Some(7 * 86_400), ..Policy::default() };
    for policy in [longer, retiring] {
        for run in [Run::Daily, Run::Repair] {
            let bed = Testbed::with(kind, &rows).await;
            bed.switch_ttl("ttl_timestamp", true).await;
            check_agreement_with(&bed, kind, run, NOW, &policy, &format!("{policy:?}")).await;
            check_agreement_with(&bed, kind, run, NOW + 7_200, &policy, &format!("{policy:?}, again")).await;
        }
    }
}

async fn predicts_what_the_functions_do_with_random_tables(kind: EngineKind) {
    for seed in 0..10 {
        let rows = specimens(&random_table(seed, NOW));
        for run in [Run::Repair, Run::Daily] {
            let bed = Testbed::with(kind, &rows).await;
            // A table without a known row is refused; a live session is one.
            bed.write(&[session()]).await;
            check_agreement(&bed, kind, run, NOW, &format!("seed {seed}")).await;
            check_agreement(&bed, kind, Run::Repair, NOW + 7_200, &format!("seed {seed}, again")).await;
        }
    }
}

fn session() -> Specimen {
    let mut rows = fixture::all_kinds(NOW, 1, 99);
    rows.retain(|row| row.bucket == "_oauth_sessions");
    rows.swap_remove(0)
}

fn run_explain(bed: &Testbed, kind: EngineKind, arguments: &[&str], input: &str) -> Ended {
    let now = NOW.to_string();
    let mut all = vec!["explain", "--now", &now];
    all.extend(arguments);
    janitor(engine(kind).endpoint(), &bed.table, &all, input)
}

/// Identifies a state; the golden files have one row of each.
fn state(explanation: &Explanation) -> String {
    let Explanation { bucket, verdict, daily, repair, row, .. } = explanation;
    let used =
        shared::row::Fields::read(&row.data).map(|fields| (fields.used, fields.used_at == shared::row::Field::Missing));
    let ttl = row.ttl().state(EpochSeconds::new(NOW));
    let fault = row.ttl_fault(EpochSeconds::new(NOW));
    format!("{bucket:?} {verdict:?} {daily:?} {repair:?} {used:?} {ttl:?} {fault:?}")
}

async fn explains_one_row_of_every_kind_and_state(kind: EngineKind) {
    let specimens = fixture::all_kinds(NOW, 1, 8);
    let bed = Testbed::with(kind, &specimens).await;
    let mut seen = BTreeSet::new();
    let mut files: BTreeMap<String, String> = BTreeMap::new();
    let explanations: BTreeMap<(String, String), Explanation> = explain_all(&bed, kind, NOW, &Policy::default())
        .await
        .into_iter()
        .map(|explanation| ((explanation.row.key.owner.clone(), explanation.row.key.sort.clone()), explanation))
        .collect();
    for row in &specimens {
        let explanation = &explanations[&(row.owner.clone(), format!("{}:{}", row.bucket, row.name))];
        if !seen.insert(state(explanation)) {
            continue;
        }
        // Names are random and may begin with a dash, so they are passed through standard input.
        let ended = run_explain(&bed, kind, &[&row.owner, &row.bucket, "-"], &format!("{}\n", row.name));
        assert_eq!((ended.code, ended.err.as_str()), (0, ""), "{ended:?}");
        let file = explanation.bucket.map_or("never-touched", |bucket| bucket.name);
        let text = files.entry(format!("explain/{file}.txt")).or_default();
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&ended.out);
    }
    let all: String = files.values().cloned().collect();
    for row in &specimens {
        for secret in secrets(row) {
            assert!(!all.contains(&secret), "{secret}");
        }
    }
    assert!(seen.len() > 60, "{}", seen.len());
    no_orphans("explain/", files.keys().map(String::as_str).chain(["explain/not-found.txt"]));
    for (file, text) in files {
        matches_golden(&file, &text);
    }
}

/// The parts of a row that may not be printed.
fn secrets(row: &Specimen) -> Vec<String> {
    let mut secrets = vec![row.name.clone()];
    let data = row.data.as_ref().and_then(|data| data.as_s().ok()).cloned().unwrap_or_default();
    if let Ok(Value::Object(fields)) = serde_json::from_str::<Value>(&data) {
        secrets.extend(fields.values().filter_map(|value| value.as_str().map(str::to_owned)));
    }
    if !row.owner.starts_with('_') {
        secrets.push(row.owner.clone());
    }
    secrets.retain(|secret| secret.len() > 12);
    secrets
}

async fn finds_the_rows_of_a_bare_token(kind: EngineKind) {
    let specimens = fixture::all_kinds(NOW, 1, 8);
    let bed = Testbed::with(kind, &specimens).await;
    let expected: [(&str, &[&str]); 9] = [
        ("mcp_tokens", &["_access_token_index", "mcp_tokens"]),
        ("mcp_refresh_tokens", &["_refresh_token_index", "mcp_refresh_tokens"]),
        ("mcp_auth_codes", &["_auth_code_index", "mcp_auth_codes"]),
        ("mcp_clients", &["_client_index", "mcp_clients"]),
        ("spa_access_tokens", &["spa_access_tokens"]),
        ("spa_refresh_tokens", &["spa_refresh_tokens"]),
        ("_oauth_sessions", &["_oauth_sessions"]),
        ("_email_verify_tokens", &["_email_verify_tokens"]),
        ("_deleted_actors", &["_deleted_actors"]),
    ];
    for (bucket, found) in expected {
        // The last ones are written under the new names.
        let row = specimens.iter().rfind(|row| row.bucket == bucket && row.owner != "_actingweb_other").unwrap();
        for arguments in [&["-", "--json"][..], &["--token", "-", "--json"]] {
            let ended = run_explain(&bed, kind, arguments, &format!("{}\n", row.name));
            assert_eq!(ended.code, 0, "{ended:?}");
            let report = ended.json();
            let mut buckets: Vec<&str> =
                report["rows"].as_array().unwrap().iter().filter_map(|row| row["bucket"].as_str()).collect();
            buckets.sort_unstable();
            assert_eq!(buckets, found, "{bucket}");
            assert_eq!(report["now"]["utc"], Utc(EpochSeconds::new(NOW)).to_string());
        }
    }
    // A token under its old name, and the provider row of a code.
    let old = specimens.iter().find(|row| row.bucket == "access_token_index" && row.owner == OAUTH_OWNER).unwrap();
    let report = run_explain(&bed, kind, &["-", "--json"], &old.name).json();
    assert_eq!(report["rows"][0]["bucket"], "access_token_index");
    assert_eq!(report["rows"][1]["bucket"], "mcp_tokens");
    let provider = specimens.iter().find(|row| row.name.starts_with("google_token_ac_")).unwrap();
    let report = run_explain(&bed, kind, &["-", "--json"], &provider.name).json();
    assert_eq!(report["rows"].as_array().unwrap().len(), 1);
    assert_eq!(report["rows"][0]["bucket"], "mcp_google_tokens");
    assert_eq!(report["rows"][0]["pointed_at_by"][0]["bucket"], "mcp_auth_codes");
}

async fn explains_why_a_row_may_be_absent(kind: EngineKind) {
    let bed = Testbed::new(kind).await;
    let mut text = String::new();
    for name in [
        "aw_0123456789012345678901234567890123456789012".to_owned(),
        "rt_0123456789012345678901234567890123456789012".to_owned(),
        "ac_0123456789012345678901234567890123456789012".to_owned(),
        format!("mcp_{}", "0".repeat(32)),
        "google_token_access_0123".to_owned(),
        "0".repeat(40),
        "z".repeat(64),
        "0".repeat(64),
        "z".repeat(43),
        "0".repeat(32),
        "something else".to_owned(),
    ] {
        let ended = run_explain(&bed, kind, &["-"], &name);
        assert_eq!(ended.code, 1, "{ended:?}");
        assert!(!ended.out.contains(&name));
        text.push_str(&ended.out);
        text.push('\n');
    }
    let ended = run_explain(&bed, kind, &[OAUTH_OWNER, "spa_access_tokens", "x"], "");
    assert_eq!(ended.code, 1);
    text.push_str(&ended.out);
    matches_golden("explain/not-found.txt", &text);
    let report = run_explain(&bed, kind, &["-", "--json"], "aw_x");
    assert_eq!((report.code, &report.json()["found"], &report.json()["rows"]), (1, &json!(false), &json!([])));
}

async fn shows_secrets_only_on_request(kind: EngineKind) {
    let specimens = fixture::all_kinds(NOW, 1, 8);
    let bed = Testbed::with(kind, &specimens).await;
    let row = specimens.iter().find(|row| row.bucket == "mcp_tokens").unwrap();
    for json in [&["-"][..], &["-", "--json"]] {
        let masked = run_explain(&bed, kind, json, &row.name);
        assert!(!masked.out.contains(&row.name) && !masked.out.contains(&row.owner), "{masked:?}");
        let mut reveal = json.to_vec();
        reveal.push("--reveal");
        let revealed = run_explain(&bed, kind, &reveal, &row.name);
        assert!(revealed.out.contains(&row.name) && revealed.out.contains(&row.owner), "{revealed:?}");
        // The row's data is never shown.
        assert!(!revealed.out.contains("mcp_x"), "{revealed:?}");
    }
}

async fn refuses_arguments_that_name_no_row(kind: EngineKind) {
    let bed = Testbed::new(kind).await;
    for arguments in [&["--token", "aw_secret"][..], &["aw_secret"], &["a", "b"], &[], &["-"], &["a", "b", "-"]] {
        let ended = run_explain(&bed, kind, arguments, "");
        assert_eq!(ended.code, 2, "{arguments:?}: {ended:?}");
        assert!(!ended.err.contains("secret") && ended.err.starts_with("janitor: "), "{ended:?}");
    }
    let ended = run_explain(&bed, kind, &["a", "b", "c", "--reuse-window-seconds", "5"], "");
    assert!(
        ended.code == 2 && ended.err.starts_with("error: invalid value '5' for '--reuse-window <DURATION>'"),
        "{ended:?}"
    );
}
