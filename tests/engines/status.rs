//! `janitor status` and `janitor doctor`.

use aws_sdk_dynamodb::types::AttributeValue;
use bed::Testbed;
use bed::engine::{EngineKind, shared as engine};
use bed::fixture::settled;
use bed::janitor::Janitor;
use bed::proxy::{Fate, Proxy, unprocessed};
use jobs::run::clock::RunClock;
use jobs::store::StoreError;
use serde_json::{Map, Value, json};
use shared::settings::{Purpose, Settings};
use shared::time::EpochSeconds;

bed::on_both_engines!(status_shows_the_runs_the_lease_and_a_pause, doctor_checks_each_permission_and_changes_nothing,);

fn now() -> i64 {
    EpochSeconds::from(std::time::SystemTime::now()).get()
}

async fn write_state(bed: &Testbed, name: &str, state: &Value) {
    let text = |value: &str| AttributeValue::S(value.to_owned());
    let put = bed.function.client.put_item().table_name(&bed.table).item("id", text("_actingweb_janitor"));
    let put = put.item("bucket_name", text(&format!("state:{name}"))).item("bucket", text("state"));
    put.item("data", text(&state.to_string())).send().await.unwrap();
}

async fn status_shows_the_runs_the_lease_and_a_pause(kind: EngineKind) {
    let bed = Testbed::with(kind, &settled(now(), 4, 11)).await;
    let janitor = Janitor::on(engine(kind).endpoint(), &bed.prefix);
    let first = janitor.run(&["status", "--json"]);
    assert_eq!((first.code, first.err.as_str()), (0, ""), "{first:?}");
    let first = first.json();
    assert_eq!(first["table"], bed.table);
    assert_eq!((&first["pause"], &first["lease"]), (&Value::Null, &Value::Null));
    assert_eq!(first["runs"], json!({"daily-cleanup": null, "index-repair": null}));
    let due = first["backlog"].as_u64().unwrap();
    assert!(due > 0, "{first}");

    let cleaned = janitor.run(&["cleanup", "--json", "--apply", "--yes"]).json();
    write_state(&bed, "lease", &json!({"holder": "index-repair-1", "until": now() + 50})).await;
    write_state(&bed, "pause", &json!({"until": now() + 3_600, "why": "a migration"})).await;
    let then = janitor.run(&["status", "--json"]).json();
    let run = &then["runs"]["daily-cleanup"];
    assert_eq!((&run["outcome"], &run["deleted"]), (&json!("complete"), &cleaned["report"]["rows"]["deleted"]));
    assert_eq!(run["next_at"].as_i64().unwrap() - run["at"].as_i64().unwrap(), 86_400);
    assert_eq!((&then["lease"]["by"], &then["pause"]["why"]), (&json!("index-repair-1"), &json!("a migration")));
    assert!(then["backlog"].as_u64().unwrap() < due, "{then}");
    assert!(then["requests"].as_u64().unwrap() < 40 && then["read_units"].as_f64().unwrap() < 200.0, "{then}");

    let text = janitor.run(&["status"]).out;
    for part in
        ["paused until ", "(a migration)", "held by index-repair-1", "daily-cleanup  complete ", "next expected in "]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.lines().count() < 24, "{text}");
}

#[tokio::test]
async fn status_fails_if_the_lease_cannot_be_read() {
    bed::clock::pause();
    let bed = Testbed::with(EngineKind::Embedded, &settled(now(), 1, 11)).await;
    let proxy = Proxy::start(engine(EngineKind::Embedded).endpoint(), |request| match request.operation.as_str() {
        "BatchGetItem" if request.body.contains("state:lease") => unprocessed(request),
        _ => Fate::Forward,
    });
    let function = bed.through(&proxy).await;
    let settings = Settings::parse(&function.environment, &Map::new(), Purpose::Metrics).unwrap();
    let clock = RunClock::start(EpochSeconds::new(now()), None);
    let table = dynamo::ReadOnly::open(function.client.clone(), &settings, None, clock).await.unwrap();
    let status = jobs::status::status(&table, &settings, table.clock()).await;
    assert!(matches!(status, Err(StoreError::KeepsFailing { .. })), "{status:?}");
}

/// Every row with every attribute.
async fn rows(bed: &Testbed) -> Vec<String> {
    let page = bed.function.client.scan().table_name(&bed.table).send().await.unwrap();
    let mut rows: Vec<String> = page
        .items()
        .iter()
        .map(|item| {
            let mut attributes: Vec<String> = item.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
            attributes.sort();
            attributes.join(" ")
        })
        .collect();
    rows.sort();
    rows
}

fn states(document: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let checks = document["checks"].as_array().unwrap().iter();
    checks.map(|check| (text(&check["check"]), text(&check["state"]))).collect()
}

const PERMISSIONS: [&str; 6] = ["Query", "BatchGetItem", "Scan", "GetItem", "PutItem", "DeleteItem"];
const ACTIONS: [&str; 2] = ["PartiQLDelete", "PartiQLUpdate"];

async fn doctor_checks_each_permission_and_changes_nothing(kind: EngineKind) {
    let bed = Testbed::with(kind, &settled(now(), 1, 12)).await;
    // Includes a row with the name that the check uses, and that is never written.
    for (row, action, needed) in [
        ("something-else", "delete", "PartiQLDelete"),
        ("something-else", "retire", "PartiQLUpdate"),
        ("never-written", "delete", "PartiQLDelete"),
        ("never-written", "retire", "PartiQLUpdate"),
    ] {
        write_state(&bed, row, &json!({"mine": true})).await;
        let before = rows(&bed).await;
        let proxy = Proxy::start(engine(kind).endpoint(), |_| Fate::Forward);
        let ended = Janitor::on(proxy.endpoint(), &bed.prefix).run(&["doctor", "--json", "--expired-rows", action]);
        assert_eq!(ended.code, 1, "TTL is off: {ended:?}");
        let found = states(&ended.json());
        assert!(found.contains(&("TTL".to_owned(), "warning".to_owned())), "{found:?}");
        for permission in PERMISSIONS {
            assert!(found.contains(&(format!("dynamodb:{permission}"), "ok".to_owned())), "{permission}: {found:?}");
        }
        let actions: Vec<_> =
            found.iter().filter(|(check, _)| ACTIONS.iter().any(|name| check.ends_with(name))).collect();
        assert_eq!(actions, [&(format!("dynamodb:{needed}"), "ok".to_owned())]);
        assert_eq!(rows(&bed).await, before, "{row}, {action}");
        let impossible = "attribute_exists(#id) AND attribute_not_exists(#id)";
        for request in proxy.requests() {
            match request.operation.as_str() {
                "PutItem" | "DeleteItem" => assert!(request.body.contains(impossible), "{}", request.body),
                "ExecuteStatement" => assert!(request.body.contains("never-written"), "{}", request.body),
                other => assert!(
                    !other.contains("Write") && !other.contains("Update") && !other.contains("Execute"),
                    "{other}"
                ),
            }
        }
    }
    // The setting can come from the environment.
    let janitor = Janitor::on(engine(kind).endpoint(), &bed.prefix).with("EXPIRED_ROWS", "retire");
    assert!(janitor.run(&["doctor"]).out.contains("PartiQLUpdate"));
    let dry = janitor.run(&["doctor", "--json", "--mode", "dry-run"]).json();
    let writes = |check: &str| ["Put", "Delete", "Update"].iter().any(|verb| check.contains(verb));
    assert!(states(&dry).iter().all(|(check, _)| !writes(check)), "{dry}");
}

#[tokio::test]
async fn doctor_reports_denied_permissions_and_succeeds_without_findings() {
    let kind = EngineKind::Embedded;
    let bed = Testbed::new(kind).await;
    let proxy_with = |denied: &'static [&'static str], recovery: &'static str| {
        Proxy::start(engine(kind).endpoint(), move |request| match request.operation.as_str() {
            name if denied.contains(&name) => {
                let denied = json!({"__type": "com.amazon.coral.service#AccessDeniedException", "Message": "no"});
                Fate::Answer(400, denied.to_string())
            }
            "DescribeContinuousBackups" => {
                let recovery = json!({"PointInTimeRecoveryStatus": recovery});
                let backups = json!({"ContinuousBackupsStatus": "ENABLED", "PointInTimeRecoveryDescription": recovery});
                Fate::Answer(200, json!({"ContinuousBackupsDescription": backups}).to_string())
            }
            _ => Fate::Forward,
        })
    };
    let run = |proxy: &Proxy, arguments: &[&str]| Janitor::on(proxy.endpoint(), &bed.prefix).run(arguments);
    let ttl = Janitor::on(engine(kind).endpoint(), &bed.prefix).run(&["ttl", "enable", "--apply", "--yes"]);
    assert_eq!(ttl.code, 0, "{ttl:?}");
    let healthy = run(&proxy_with(&[], "ENABLED"), &["doctor"]);
    assert_eq!((healthy.code, healthy.err.as_str()), (0, ""), "{healthy:?}");

    let denied = run(&proxy_with(&["PutItem", "ExecuteStatement"], "DISABLED"), &["doctor", "--json"]);
    assert_eq!(denied.code, 1);
    let denied = denied.json();
    let not_ok: Vec<(String, String)> = states(&denied).into_iter().filter(|(_, state)| state != "ok").collect();
    let expected = [("recovery", "warning"), ("dynamodb:PutItem", "failed"), ("dynamodb:PartiQLDelete", "failed")];
    assert_eq!(not_ok, expected.map(|(check, state)| (check.to_owned(), state.to_owned())));
    assert!(denied.to_string().contains("allow dynamodb:PutItem on the table"), "{denied}");

    // Without DescribeTable, permissions cannot be checked.
    let undescribed = run(&proxy_with(&["DescribeTable"], "ENABLED"), &["doctor", "--json"]);
    let expected = [("region", "ok"), ("credentials", "ok"), ("table", "failed"), ("permissions", "not-checked")];
    assert_eq!(states(&undescribed.json()), expected.map(|(check, state)| (check.to_owned(), state.to_owned())));
    // Missing credentials are a finding, too.
    let unsigned = Janitor::default().with("AWS_DB_PREFIX", "x").with("AWS_EC2_METADATA_DISABLED", "true");
    let unsigned = unsigned.run(&["doctor", "--json", "--region", "eu-west-1"]);
    assert_eq!(unsigned.code, 1, "{unsigned:?}");
    assert!(unsigned.out.contains("no AWS credentials found"), "{unsigned:?}");
    // A misplaced token is not printed.
    let token = "aw_Zk3vT9q0pXy7LrWm2Nb8Hs4Jd6Fg1Ac5Eu0Io9Ty3B";
    let pasted = Janitor::default().with("AWS_DB_PREFIX", "x").run(&["doctor", "--profile", token]);
    assert!(
        pasted.out.contains("is not in the AWS configuration files") && !pasted.out.contains(&token[8..]),
        "{pasted:?}"
    );
}

#[tokio::test]
async fn recovery_that_is_off_is_a_finding_until_the_first_delete() {
    let kind = EngineKind::Embedded;
    let bed = Testbed::with(kind, &settled(now(), 1, 13)).await;
    let proxy = Proxy::start(engine(kind).endpoint(), |request| match request.operation.as_str() {
        "DescribeContinuousBackups" => {
            let off = json!({"ContinuousBackupsStatus": "ENABLED", "PointInTimeRecoveryDescription": {"PointInTimeRecoveryStatus": "DISABLED"}});
            Fate::Answer(200, json!({"ContinuousBackupsDescription": off}).to_string())
        }
        _ => Fate::Forward,
    });
    let janitor = Janitor::on(proxy.endpoint(), &bed.prefix);
    let is_found = || {
        let audit = janitor.run(&["audit", "--json"]).json();
        let findings = audit["report"]["findings"].as_array().unwrap().iter();
        findings.filter(|finding| finding["kind"] == "recovery-off").count()
    };
    assert_eq!(is_found(), 1);
    assert!(janitor.run(&["status"]).out.contains("finding: point-in-time recovery is off: turn it on before"));
    assert_eq!(janitor.run(&["cleanup", "--apply", "--yes", "--quiet"]).code, 0);
    assert_eq!(is_found(), 0);
}
