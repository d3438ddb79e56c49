//! `janitor` as a program: in a terminal and without one, on genuine DynamoDB Local and on the embedded engine.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use janitor::fixture::{Fate, Specimen};
use serde_json::{Value, json};
use shared::time::EpochSeconds;
use tests::bed::Bed;
use tests::engine::{EngineKind, shared as engine};
use tests::golden::matches_golden;
use tests::janitor::Janitor;
use tests::proxy::{self, Proxy};

const OAUTH: &str = "_actingweb_oauth2";
const DAY: i64 = 86_400;

tests::on_both_engines!(
    a_sweep_is_what_the_function_does,
    a_repair_is_what_the_function_does,
    says_the_same_in_text_and_asks_before_it_deletes,
    every_command_works_in_a_terminal,
);

fn now() -> i64 {
    EpochSeconds::from(std::time::SystemTime::now()).get()
}

fn put(owner: &str, bucket: &str, name: &str, data: &Value, ttl: Option<i64>) -> Specimen {
    Specimen {
        owner: owner.to_owned(),
        bucket: bucket.to_owned(),
        name: name.to_owned(),
        data: Some(AttributeValue::S(shared::pyjson::dumps(data))),
        ttl: ttl.map(|at| AttributeValue::N(at.to_string())),
        fate: Fate::Stays,
    }
}

/// Rows whose fate does not hang on the second: days away from it on either side.
fn calm_rows(copies: i64) -> Vec<Specimen> {
    let now = now();
    let (dead, alive) = (now - 40 * DAY, now + 5 * DAY);
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
                // The weekly repair's: its token went with its actor.
                put(OAUTH, "_refresh_token_index", &format!("rt_{i}"), &json!("gone"), Some(now + 20 * DAY)),
                put(&actor, "_internal", "x", &json!({"expires_at": 1}), Some(dead)),
            ]
        })
        .collect()
}

fn of(kind: EngineKind, bed: &Bed) -> Janitor {
    Janitor::on(engine(kind).endpoint(), &bed.prefix)
}

async fn a_sweep_is_what_the_function_does(kind: EngineKind) {
    let rows = calm_rows(20);
    let (by_hand, by_lambda) = (Bed::with(kind, &rows).await, Bed::with(kind, &rows).await);
    let janitor = of(kind, &by_hand);
    let dry = janitor.run(&["sweep", "--json"]);
    assert_eq!((dry.code, dry.err.as_str()), (0, ""));
    let now = EpochSeconds::new(now());
    let lambda = by_lambda.function.daily_cleanup(json!({"mode": "dry-run"}), now, None).await.unwrap();
    assert_eq!(dry.json()["body"], lambda.to_answer()["body"]);
    assert_eq!(dry.json()["report"]["buckets"], lambda.to_answer()["report"]["buckets"]);
    assert_eq!(by_hand.keys().await.len(), rows.len(), "nothing was deleted");
    // Without --apply an environment that says delete does not delete either.
    assert_eq!(janitor.clone().with("MODE", "delete").run(&["sweep", "--json"]).json()["report"]["mode"], "dry-run");
    assert_eq!(by_hand.keys().await.len(), rows.len());

    let real = janitor.run(&["sweep", "--json", "--apply", "--yes"]);
    assert_eq!(real.code, 0, "{real:?}");
    by_lambda.function.daily_cleanup(json!({}), now, None).await.unwrap();
    assert_eq!(real.json()["report"]["rows"]["deleted"], 60);
    assert_eq!(by_hand.keys().await, by_lambda.keys().await);
}

async fn a_repair_is_what_the_function_does(kind: EngineKind) {
    let rows = calm_rows(20);
    let (by_hand, by_lambda) = (Bed::with(kind, &rows).await, Bed::with(kind, &rows).await);
    let janitor = of(kind, &by_hand);
    let dry = janitor.run(&["repair", "--json"]);
    let now = EpochSeconds::new(now());
    let lambda = by_lambda.function.index_repair(json!({"mode": "dry-run"}), now, None).await.unwrap();
    assert_eq!(dry.json()["body"], lambda.to_repair_answer()["body"]);
    assert_eq!(by_hand.keys().await.len(), rows.len());
    let real = janitor.run(&["repair", "--json", "--apply", "--yes"]);
    by_lambda.function.index_repair(json!({}), now, None).await.unwrap();
    assert_eq!((real.code, real.json()["body"]["dangling_index_rows"].as_u64()), (0, Some(20)));
    assert_eq!(by_hand.keys().await, by_lambda.keys().await);
}

/// What differs from run to run, or between the engines.
fn steady(text: &str, bed: &Bed) -> String {
    let place = |text: &str| {
        let (before, rest) = text.split_once("(account ")?;
        let (_, after) = rest.split_once(", about")?;
        Some(format!("{before}(account 123456789012, region eu-west-1, about{after}"))
    };
    let line = |line: &str| {
        let line = place(line).unwrap_or_else(|| line.to_owned());
        match line.split_once(" read and ") {
            Some(_) if line.starts_with("used ") => "used … read and … write units, … requests, … s".to_owned(),
            _ if line.starts_with("cost ") => "cost      … read units, … requests, … s".to_owned(),
            _ if line.starts_with("DynamoDB counts ") => {
                "DynamoDB counts … rows, … bytes (up to six hours ago); on demand".to_owned()
            }
            _ => line,
        }
    };
    text.replace(&bed.table, "golden_attributes").lines().map(line).collect::<Vec<_>>().join("\n")
}

async fn says_the_same_in_text_and_asks_before_it_deletes(kind: EngineKind) {
    let rows = calm_rows(20);
    let bed = Bed::with(kind, &rows).await;
    let janitor = of(kind, &bed);
    let plain = janitor.run(&["sweep"]);
    assert_eq!((plain.code, plain.err.as_str()), (0, ""));
    matches_golden("cli/sweep.txt", &steady(&plain.out, &bed));
    assert!(!plain.out.contains('\x1b'), "colour is for terminals");
    let audit = janitor.run(&["audit"]);
    assert_eq!(audit.code, 1, "TTL is off, and no run was ever complete: findings");
    // Ages, and how many bytes a time of today has, are not the test's.
    let counts: Vec<&str> = audit.out.lines().filter(|line| line.starts_with("finding: ")).collect();
    matches_golden("cli/audit-findings.txt", &steady(&counts.join("\n"), &bed));
    let narrow = janitor.clone().with("COLUMNS", "60").run(&["sweep"]);
    assert!(narrow.out.lines().all(|line| line.chars().count() <= 60 || line.contains("on table")), "{}", narrow.out);

    // Nobody to ask.
    let unasked = janitor.run(&["sweep", "--apply"]);
    assert_eq!(unasked.code, 2);
    assert_eq!(unasked.err, "janitor: --apply asks for a yes, and there is nobody to ask: add --yes\n");
    // Somebody who says no.
    let no = janitor.in_terminal(100, &["--reply", "Type yes=no"], &["sweep", "--apply"]);
    assert_eq!(no.code, 3, "{}", no.out);
    assert!(no.out.contains("not confirmed: nothing was deleted"), "{}", no.out);
    assert!(no.out.contains("\x1b[1m"), "a terminal has colour: {:?}", no.out);
    let dull = janitor.clone().with("NO_COLOR", "1").in_terminal(100, &[], &["sweep", "--quiet"]);
    assert!(!dull.out.contains('\x1b'), "{:?}", dull.out);
    assert_eq!(bed.keys().await.len(), rows.len());
    // Somebody who says yes.
    let yes = janitor.clone().with("NO_COLOR", "1").in_terminal(
        100,
        &["--reply", "Type yes=yes"],
        &["sweep", "--apply", "--quiet"],
    );
    assert_eq!(yes.code, 0, "{}", yes.out);
    matches_golden("cli/sweep-apply.txt", &ask_line(&steady(&yes.out, &bed)));
    assert_eq!(bed.keys().await.len(), rows.len() - 60);
    let repair = janitor.run(&["repair", "--quiet"]);
    matches_golden("cli/repair.txt", &steady(&repair.out.replace(&bed.prefix, "golden"), &bed));
}

async fn every_command_works_in_a_terminal(kind: EngineKind) {
    let mut rows = calm_rows(2);
    rows.push(put(OAUTH, "spa_refresh_tokens", "old", &json!({"expires_at": now() + 9 * DAY, "used": false}), None));
    let bed = Bed::with(kind, &rows).await;
    let janitor = of(kind, &bed).with("NO_COLOR", "1");
    let seen = |options: &[&str], arguments: &[&str], code: i32| {
        let ended = janitor.in_terminal(100, options, &[arguments, &["--quiet"]].concat());
        assert_eq!(ended.code, code, "{arguments:?}: {}", ended.out);
        // A table's name, account and region stand in one line, however long.
        let too_long = ended.out.lines().find(|line| line.chars().count() > 100 && !line.contains(" on table "));
        assert_eq!(too_long, None, "{arguments:?}");
        assert!(!ended.out.contains("panicked"), "{}", ended.out);
        ended.out
    };
    let yes = ["--reply", "Type yes=yes"];
    assert!(seen(&[], &["audit"], 1).contains("finding: TTL is off"));
    assert!(seen(&[], &["repair"], 0).contains("dry run of the index repair"));
    let explained = seen(&[], &["explain", "actor0", "mcp_tokens", "aw_0"], 0);
    assert!(explained.contains("daily-cleanup  deletes it (expired)"), "{explained}");
    // The one command that deletes live rows: asks, and says what is left.
    let no = seen(&["--reply", "Type yes=no"], &["revoke", "--actor", "actor0", "--apply"], 3);
    assert!(no.contains("not confirmed"), "{no}");
    let revoked = seen(&yes, &["revoke", "--actor", "actor0", "--apply"], 0);
    matches_golden("cli/revoke.txt", &ask_line(&without_cost(&steady(&revoked, &bed))));
    let left = bed.keys().await;
    assert!(!left.iter().any(|(owner, sort)| owner == "actor0" && sort.starts_with("mcp_tokens")), "{left:?}");
    assert!(left.iter().any(|(owner, sort)| owner == "actor1" && sort.starts_with("mcp_tokens")), "{left:?}");
    // From here on the engine removes what is past its TTL by itself.
    assert!(seen(&[], &["ttl", "status"], 1).contains("TTL is off"));
    seen(&[], &["ttl", "enable", "--apply"], 0);
    assert!(seen(&[], &["ttl", "status"], 0).contains("on"));
    // A row without a TTL gets one; one that has been set is read back, and removed.
    assert!(seen(&yes, &["ttl", "backfill", "--apply"], 0).contains("Type yes"));
    let row = ["spa_refresh_tokens", "old"];
    let get = ["ttl", "get", OAUTH, row[0], row[1]];
    let got = seen(&[], &get, 0);
    assert!(got.contains("10 d 0 h") || got.contains("9 d"), "{got}");
    seen(&[], &["ttl", "set", OAUTH, row[0], row[1], "86400", "--apply"], 0);
    seen(&[], &["ttl", "remove", OAUTH, row[0], row[1], "--apply"], 0);
    let reaped = janitor.in_terminal(100, &["--interrupt-at", "sweep complete"], &["run", "--every", "10s", "--apply"]);
    assert_eq!(reaped.code, 0, "{}", reaped.out);
}

/// Costs differ between the engines.
fn without_cost(text: &str) -> String {
    let kept =
        |line: &&str| !line.starts_with("used ") && !line.starts_with("cost: ") && !line.starts_with("      two for");
    let text = text.lines().filter(kept).collect::<Vec<_>>().join("\n");
    // Each has a name for the region that it is in.
    text.replace("ddblocal", "local").replace("dynoxide", "local")
}

fn ask_line(text: &str) -> String {
    let line = |line: &str| match line.split_once(" in account ") {
        Some((before, _)) if line.starts_with("This deletes") || line.starts_with("This is the one") => {
            format!("{before} in account 123456789012, region eu-west-1, for about 60 write units.")
        }
        _ => line.to_owned(),
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn ctrl_c_ends_after_what_is_in_flight_and_the_next_run_goes_on() {
    let kind = EngineKind::Embedded;
    let rows = calm_rows(400);
    let bed = Bed::with(kind, &rows).await;
    let janitor = of(kind, &bed);
    let slow = ["sweep", "--apply", "--yes", "--max-write-units", "100"];
    let stopped = janitor.in_terminal(100, &["--interrupt-at", " dead,"], &slow);
    assert_eq!(stopped.code, 3, "{}", stopped.out);
    assert!(stopped.out.contains("stopped as asked: the next run goes on from here"), "{}", stopped.out);
    let left = bed.keys().await.len();
    assert!(left < rows.len() && left > rows.len() - 1_200, "{left} of {}", rows.len());
    let rest = janitor.run(&["sweep", "--json", "--apply", "--yes"]);
    assert_eq!((rest.code, &rest.json()["report"]["resumed"]), (0, &json!(true)));
    assert_eq!(bed.keys().await.len(), rows.len() - 1_200);
}

#[tokio::test]
async fn the_long_running_form_cleans_until_it_is_told_to_stop() {
    let kind = EngineKind::Embedded;
    let rows = calm_rows(30);
    let bed = Bed::with(kind, &rows).await;
    let janitor = of(kind, &bed);
    let mut reaper = janitor.command(&["run", "--every", "10s", "--repair-every", "1d", "--apply"]).spawn().unwrap();
    let mut lines = BufReader::new(reaper.stdout.take().unwrap()).lines();
    let mut next = || lines.next().expect("a line").expect("text");
    assert!(next().starts_with("cleaning every 10 s, first in "));
    let sweep = next();
    assert!(sweep.contains(" sweep complete: read ") && sweep.contains(", deleted 90, skipped 0, "), "{sweep}");
    let repair = next();
    assert!(repair.contains(" repair complete: read ") && repair.contains(", deleted 30, "), "{repair}");
    let again = next();
    assert!(again.contains(" sweep complete: ") && again.contains(", deleted 0, "), "{again}");
    assert!(Command::new("kill").arg(reaper.id().to_string()).status().unwrap().success());
    assert_eq!(reaper.wait().unwrap().code(), Some(0));
    assert_eq!(bed.keys().await.len(), rows.len() - 120);
}

/// Each is told in one line that names the cause, within seconds, with the code that scripts go by.
#[tokio::test]
async fn what_is_wrong_is_told_at_once() {
    let endpoint = engine(EngineKind::DynamoDbLocal).endpoint();
    let bed = Bed::new(EngineKind::DynamoDbLocal).await;
    let hanging = TcpListener::bind("127.0.0.1:0").unwrap();
    let hangs = format!("http://{}", hanging.local_addr().unwrap());
    let dead = format!("http://127.0.0.1:{}", tests::process::free_port());
    let denied = Proxy::start(endpoint, |_| {
        let body = json!({"__type": "com.amazon.coral.service#AccessDeniedException", "Message": "User: arn:aws:iam::1:user/x"});
        proxy::Fate::Answer(400, body.to_string())
    });
    let other_keys = Bed::new(EngineKind::DynamoDbLocal).await;
    foreign_table(&other_keys).await;
    let good = Janitor::on(endpoint, &bed.prefix);
    let cases = [
        (Janitor::on(endpoint, "nosuch"), vec!["sweep"], 2, "table nosuch_attributes does not exist"),
        (Janitor::on(endpoint, "foreign"), vec!["audit"], 2, "is not an ActingWeb attributes table"),
        (Janitor::default(), vec!["sweep"], 2, "no table: set AWS_DB_PREFIX"),
        (good.clone(), vec!["sweep", "--max-deletes", "0"], 2, "MAX_DELETES=0: must be"),
        (good.clone(), vec!["audit", "--scope", "some"], 2, "SCOPE=some: must be system or all"),
        (good.clone(), vec!["sweep", "--table", "x", "--prefix", "y"], 2, "cannot be used with"),
        (good.clone(), vec!["sweep", "--yes"], 2, "--apply"),
        (good.clone(), vec!["run", "--every", "soon"], 2, "a number and s, m, h or d"),
        (Janitor::on(&dead, "x"), vec!["sweep"], 3, "could not reach DynamoDB at http://127.0.0.1"),
        (Janitor::on(&hangs, "x"), vec!["repair"], 3, "could not reach DynamoDB at http://127.0.0.1"),
        (Janitor::on(denied.endpoint(), "x"), vec!["sweep"], 3, "not allowed: DescribeTable on table x_attributes"),
        (
            Janitor::default().with("AWS_DB_PREFIX", "x").with("AWS_EC2_METADATA_DISABLED", "true"),
            vec!["sweep", "--region", "us-east-1"],
            2,
            "the credentials were not accepted by DescribeTable (CredentialsNotLoaded)",
        ),
        (
            Janitor::default()
                .with("AWS_DB_PREFIX", "x")
                .with("AWS_ACCESS_KEY_ID", "x")
                .with("AWS_SECRET_ACCESS_KEY", "x"),
            vec!["sweep", "--region", "nowhere-1"],
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

async fn foreign_table(bed: &Bed) {
    use aws_sdk_dynamodb::types::{AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType};
    let key = KeySchemaElement::builder().attribute_name("pk").key_type(KeyType::Hash).build().unwrap();
    let text =
        AttributeDefinition::builder().attribute_name("pk").attribute_type(ScalarAttributeType::S).build().unwrap();
    let create = bed.function.client.create_table().table_name("foreign_attributes").key_schema(key);
    let create = create.attribute_definitions(text).billing_mode(BillingMode::PayPerRequest);
    create.send().await.unwrap();
}

#[test]
fn the_help_teaches() {
    let janitor = Janitor::default().with("COLUMNS", "100");
    for (arguments, golden) in [
        (vec!["--help"], "cli/help.txt"),
        (vec!["sweep", "--help"], "cli/help-sweep.txt"),
        (vec!["run", "--help"], "cli/help-run.txt"),
    ] {
        let ended = janitor.run(&arguments);
        assert_eq!(ended.code, 0);
        matches_golden(golden, &ended.out);
    }
    assert_eq!(janitor.run(&["--version"]).out, format!("janitor {}\n", env!("CARGO_PKG_VERSION")));
    for shell in ["bash", "zsh", "fish"] {
        assert!(janitor.run(&["completions", shell]).out.contains("janitor"));
    }
    assert_eq!(janitor.run(&["nonsense"]).code, 2);
}
