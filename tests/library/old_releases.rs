//! Rows of nine releases of the real library in one table, each written by its own release: after a cleanup and a repair every
//! release still accepts its live rows.

use bed::Invocations as _;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use bed::Testbed;
use bed::aftermath::{Aftermath, secrets_in};
use bed::attack::{Figures, amount};
use bed::engine::{EngineKind, shared as engine};
use bed::janitor::Janitor;
use bed::python::Application;
use jobs::run::report::{Outcome, RunReport};
use model::{self, Key, ModelRow, ModelTtl};
use runtime::lambda::Function;
use serde_json::{Value, json};
use shared::time::EpochSeconds;

const RELEASES: &str = include_str!("../python/old-releases.txt");
const SCRIPT: &str = "actingweb_old.py";
const HOUR: i64 = 3_600;
const DAY: i64 = 86_400;

static EMITTED: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn releases() -> Vec<&'static str> {
    RELEASES.lines().filter(|line| !line.starts_with('#')).collect()
}

/// Runs each release concurrently, and returns their answers.
fn with_each_release(
    releases: &[&'static str],
    prefix: &str,
    action: impl Fn(&str, &Application) -> Value + Sync,
) -> BTreeMap<&'static str, Value> {
    let endpoint = engine(EngineKind::DynamoDbLocal).endpoint();
    let action = &action;
    thread::scope(|scope| {
        let started: Vec<_> = releases
            .iter()
            .copied()
            .map(|release| {
                let run = move || action(release, &Application::of_release(endpoint, prefix, release));
                (release, scope.spawn(run))
            })
            .collect();
        started.into_iter().map(|(release, running)| (release, running.join().unwrap())).collect()
    })
}

fn entries<'a>(manifest: &'a Value, list: &str) -> &'a [Value] {
    manifest[list].as_array().expect("a list")
}

fn names(manifest: &Value, list: &str) -> BTreeSet<String> {
    entries(manifest, list).iter().filter_map(|entry| entry["name"].as_str().map(str::to_owned)).collect()
}

fn names_of(keys: &BTreeSet<Key>, rows: &[ModelRow]) -> BTreeSet<String> {
    rows.iter().filter(|row| keys.contains(&row.key())).map(|row| row.name.clone()).collect()
}

#[tokio::test]
async fn cleans_a_table_that_nine_releases_wrote_and_each_still_accepts_its_live_rows() {
    attack("old releases", &releases(), false).await;
}

#[tokio::test]
async fn retires_rows_of_old_releases_and_each_still_accepts_its_live_rows() {
    attack("old releases, retire", &amount(WITHOUT_TTL.to_vec(), releases()), true).await;
}

async fn attack(name: &str, releases: &[&'static str], retires: bool) {
    let endpoint = engine(EngineKind::DynamoDbLocal).endpoint();
    let bed = Testbed::new(EngineKind::DynamoDbLocal).await;
    // Creates the other tables first: releases that create them concurrently conflict.
    Application::new(endpoint, &bed.prefix).run("actingweb_live.py", &["--prepare"], "");
    let started_at = Instant::now();
    let copies = amount(1, 2).to_string();
    let manifests = with_each_release(releases, &bed.prefix, |_, application| {
        serde_json::from_str(&application.run(SCRIPT, &["--write", "--copies", &copies], "")).unwrap()
    });
    let before = Aftermath::read(endpoint, &bed.table).await.rows.len();
    let bed = if retires { bed.retiring().await } else { bed };

    // First the functions, then `janitor`, which finds nothing left to do.
    let function = Function::new(bed.function.client.clone(), bed.function.environment.clone())
        .with_metrics_output(|line| EMITTED.lock().unwrap().push(line.to_owned()));
    // Every row counts as a fault: an older release may have spelled, dated or named it differently.
    let mut figures = Figures { faults: before as u64, ..Figures::default() };
    let mut output = String::new();
    let mut ran = |figures: &mut Figures, report: &RunReport| {
        assert_eq!(report.outcome, Outcome::Complete, "{}", report.to_json());
        figures.attempts += 1;
        figures.add_run(report);
        output.push_str(&format!("{}\n", report.to_json()));
        report.counts.rows_disposed() + report.counts.rows_left_to_ttl()
    };
    let now = EpochSeconds::from(SystemTime::now());
    let cleaned = ran(&mut figures, &function.daily_cleanup(json!({}), now, None).await.unwrap());
    let repaired = ran(&mut figures, &function.index_repair(json!({}), now, None).await.unwrap());
    println!("{before} rows, {cleaned} ended by the daily cleanup, {repaired} by the repair");
    assert!(cleaned * 9 > 300 * releases.len() as u64 && repaired > releases.len() as u64);
    let mut printed = String::new();
    for command in ["cleanup", "repair"] {
        let janitor =
            Janitor::on(endpoint, &bed.prefix).with("EXPIRED_ROWS", if retires { "retire" } else { "delete" });
        let ended = janitor.run(&[command, "--apply", "--yes", "--json"]);
        assert_eq!(ended.code, 0, "{ended:?}");
        let answer = ended.json();
        let report = answer.get("report").unwrap_or(&answer);
        figures.attempts += 1;
        figures.add_answer(report);
        // Seconds later, none of these rows has expired since.
        let rows = &report["rows"];
        assert_eq!((&rows["deleted"], rows["retired"].as_u64().unwrap_or(0)), (&json!(0), 0), "{report}");
        printed.push_str(&(ended.out + &ended.err));
    }

    // No dead row is left, except tokens of 3.7.4 to 3.14.7 whose rotation set a later TTL but not a later expiry. To find
    // those, every live token would have to be read every day. They are deleted when their index rows are due, and no
    // release accepts them.
    let aftermath = Aftermath::left(endpoint, &bed.table, now.get(), retires).await;
    let late: BTreeSet<String> = manifests.values().flat_map(|manifest| names(manifest, "late")).collect();
    let dead = names_of(&aftermath.dead(now.get()), &aftermath.rows);
    // With retire, TTL removes some of those, too.
    let is_expected = if retires { dead.is_subset(&late) } else { dead == late };
    assert!(is_expected, "{} dead rows left, {} expected", dead.len(), late.len());
    let left: BTreeSet<&str> = aftermath.rows.iter().map(|row| row.name.as_str()).collect();
    let mut left_behind = Vec::new();
    for (release, manifest) in &manifests {
        let dead = names(manifest, "dead");
        left_behind.extend(dead.into_iter().filter(|name| left.contains(name.as_str())).map(|_| *release));
    }
    assert!(left_behind.is_empty(), "dead by their release, and left: {left_behind:?}");
    figures.dangling = model::dangling(&aftermath.rows).len() as u64;

    // Each release checks its own rows. The shortest life is that of a ticket, five minutes.
    assert!(started_at.elapsed() < Duration::from_mins(4), "too slow: live rows may expire");
    let answers = with_each_release(releases, &bed.prefix, |release, application| {
        let presented: Value =
            ["alive", "late"].iter().flat_map(|list| entries(&manifests[release], list)).cloned().collect();
        serde_json::from_str(&application.run(SCRIPT, &["--judge"], &presented.to_string())).unwrap()
    });
    for (release, manifest) in &manifests {
        let (alive, answers) = (entries(manifest, "alive"), answers[release].as_array().unwrap());
        assert_eq!(answers.len(), alive.len() + entries(manifest, "late").len());
        let kinds: BTreeSet<&str> = alive.iter().filter_map(|entry| entry["kind"].as_str()).collect();
        println!("{release}: {} alive of kinds {kinds:?}, {} dead", alive.len(), names(manifest, "dead").len());
        for (entry, answer) in alive.iter().zip(answers) {
            if answer != true {
                println!("{release} refuses a {}", entry["kind"]);
                figures.live_lost += 1;
            }
        }
        assert!(
            answers[alive.len()..].iter().all(|answer| answer == false),
            "{release} accepts a token past its expiry"
        );
        assert!(alive.len() >= 11 && names(manifest, "dead").len() >= 17, "{release} wrote too little");
    }

    // Later every row that can expire has expired. Rows of unknown age are seen twice, more than an hour apart.
    let later = now.get() + 90 * DAY;
    ran(&mut figures, &function.daily_cleanup(json!({}), EpochSeconds::new(later), None).await.unwrap());
    let much_later = later + 2 * HOUR;
    for at in [later, much_later] {
        ran(&mut figures, &function.index_repair(json!({}), EpochSeconds::new(at), None).await.unwrap());
    }
    let aftermath = Aftermath::left(endpoint, &bed.table, much_later, retires).await;
    let buckets: BTreeSet<&str> = aftermath.rows.iter().map(|row| row.bucket.as_str()).collect();
    println!("after everything expired: {} rows of {buckets:?}", aftermath.rows.len());
    figures.dead_left = aftermath.dead(much_later).len() as u64;
    figures.dangling += model::dangling(&aftermath.rows).len() as u64;
    let expires = |bucket: &&&str| !["mcp_clients", "client_index", "_client_index"].contains(bucket);
    assert_eq!(
        buckets.iter().filter(expires).collect::<Vec<_>>(),
        Vec::<&&str>::new(),
        "rows other than clients are left"
    );

    let secrets: Vec<&str> =
        manifests.values().flat_map(|manifest| entries(manifest, "secrets")).filter_map(Value::as_str).collect();
    let output = [output, printed, EMITTED.lock().unwrap().join("\n"), aftermath.own].join("\n");
    figures.secrets = secrets_in(&output, secrets);
    figures.report(name);
}

/// Releases that set no TTL.
const WITHOUT_TTL: [&str; 3] = ["3.3", "3.5", "3.7.3"];

/// The TTL that 3.15.1 would have set, calculated from docs/rows.md; `None` for a row without a TTL, or without a known time of
/// writing.
fn ttl_of_newest_release(row: &ModelRow, rows: &[ModelRow]) -> Option<i64> {
    let fields: Value = serde_json::from_str(row.data.as_deref()?).unwrap();
    let time = |field: &str| fields[field].as_i64();
    let written = |row: &ModelRow| {
        let fields: Value = serde_json::from_str(row.data.as_deref()?).unwrap();
        fields["created_at"].as_i64()
    };
    let target = |bucket: &str| {
        let is_target =
            |other: &&ModelRow| fields == other.owner.as_str() && other.bucket == bucket && other.name == row.name;
        rows.iter().find(is_target).and_then(written)
    };
    let stored_until = match row.bucket.as_str() {
        "oauth_sessions" => time("created_at").max(time("retrieved_at"))? + 600,
        "spa_access_tokens" => time("created_at")? + HOUR,
        // A tripwire until it expires, too.
        "spa_refresh_tokens" if fields["used"] == true => (time("used_at")? + 2 * DAY).max(time("expires_at")?),
        "spa_refresh_tokens" => time("created_at")? + 14 * DAY,
        "mcp_auth_codes" => time("created_at")? + 600,
        "mcp_tokens" => time("created_at")? + HOUR,
        "mcp_refresh_tokens" => time("created_at")? + 30 * DAY,
        "auth_code_index" => target("mcp_auth_codes")? + 7_800,
        "access_token_index" => target("mcp_tokens")? + 10_800,
        "refresh_token_index" => target("mcp_refresh_tokens")? + 2_599_200,
        "mcp_google_tokens" => {
            let named = format!("\"google_token_key\": \"{}\"", row.name);
            let names_it = |other: &&ModelRow| {
                other.owner == row.owner && other.data.as_ref().is_some_and(|data| data.contains(&named))
            };
            rows.iter().filter(names_it).filter_map(written).min()? + HOUR
        }
        _ => return None,
    };
    Some(stored_until + HOUR)
}

#[tokio::test]
async fn rows_of_releases_without_ttl_get_the_ttl_of_the_newest_release_and_are_otherwise_unchanged() {
    let endpoint = engine(EngineKind::DynamoDbLocal).endpoint();
    let bed = Testbed::new(EngineKind::DynamoDbLocal).await;
    Application::new(endpoint, &bed.prefix).run("actingweb_live.py", &["--prepare"], "");
    let manifests = with_each_release(&WITHOUT_TTL, &bed.prefix, |_, application| {
        serde_json::from_str(&application.run(SCRIPT, &["--write", "--copies", "1"], "")).unwrap()
    });
    let mut expected = Aftermath::read(endpoint, &bed.table).await.rows;
    assert!(expected.len() > 150 && expected.iter().all(|row| row.ttl == ModelTtl::Absent), "{}", expected.len());
    let ended = Janitor::on(endpoint, &bed.prefix).run(&["ttl", "backfill", "--apply", "--yes", "--json"]);
    assert_eq!(ended.code, 0, "{ended:?}");

    let ttls: Vec<Option<i64>> = expected.iter().map(|row| ttl_of_newest_release(row, &expected)).collect();
    for (row, ttl) in expected.iter_mut().zip(&ttls) {
        row.ttl = ttl.map_or(ModelTtl::Absent, ModelTtl::Number);
    }
    let set = ttls.iter().flatten().count();
    println!("{set} of {} rows got a TTL", expected.len());
    assert_eq!(ended.json()["set"], set);
    let after = Aftermath::read(endpoint, &bed.table).await.rows;
    let wrong: BTreeSet<&str> =
        after.iter().filter(|row| !expected.contains(row)).map(|row| row.bucket.as_str()).collect();
    assert!(after.len() == expected.len() && wrong.is_empty(), "unexpected rows of {wrong:?}");

    // Each release still accepts its live rows.
    let answers = with_each_release(&WITHOUT_TTL, &bed.prefix, |release, application| {
        let alive = json!(entries(&manifests[release], "alive"));
        serde_json::from_str(&application.run(SCRIPT, &["--judge"], &alive.to_string())).unwrap()
    });
    for (release, answers) in &answers {
        assert!(answers.as_array().unwrap().iter().all(|answer| answer == true), "{release} refuses a live row");
    }
}
