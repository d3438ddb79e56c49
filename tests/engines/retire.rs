//! `EXPIRED_ROWS=retire`: dead rows get a TTL some days ahead, and nothing else of the table changes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};

use aws_sdk_dynamodb::types::AttributeValue;
use bed::Testbed;
use bed::engine::{EngineKind, shared as engine};
use bed::items::Item;
use bed::load::{Cost, Which};
use bed::proxy::{Fate, Proxy, throttled_statements};
use bed::tables::{random_table, specimens};
use bed::{fixture, items};
use dynamo::Dynamo;
use jobs::restore::{Wanted, restore};
use jobs::run::RunError;
use jobs::run::clock::RunClock;
use model::rows::NOW;
use model::{Key, daily_cleanup, index_repair};
use serde_json::{Value, json};
use shared::expiry::Policy;
use shared::settings::{Purpose, Settings};
use shared::time::EpochSeconds;

const DAY: i64 = 86_400;

bed::on_both_engines!(
    every_dead_row_is_left_to_ttl_or_retired_and_no_other_row_is_changed,
    a_run_without_ttl_on_the_right_attribute_is_refused_and_deletes_nothing,
    a_row_that_changes_before_it_is_retired_is_kept_as_the_application_wrote_it,
    retiring_costs_no_more_than_deleting,
    a_statement_that_fails_after_it_acted_is_no_lost_race,
    a_batch_that_is_refused_after_it_acted_is_no_lost_race,
    rows_that_may_be_retired_count_towards_max_deletes_whatever_the_later_attempts_say,
    max_deletes_and_the_delete_share_apply_to_retired_rows,
    a_row_that_the_application_updates_in_place_is_no_longer_retired,
    restore_returns_every_row_to_its_previous_state,
    a_row_that_the_application_rewrote_is_not_restored,
);

pub(crate) async fn rows(bed: &Testbed) -> BTreeMap<Key, Item> {
    let mut rows = items::all(&bed.function.client, &bed.table).await;
    rows.retain(|(owner, _), _| owner != "_actingweb_janitor");
    rows
}

fn number(item: &Item, name: &str) -> Option<i64> {
    item.get(name)?.as_n().ok()?.parse().ok()
}

/// The row before it was retired, from the two attributes that retiring writes.
fn unretired(item: &Item) -> Item {
    let mut item = item.clone();
    let Some(AttributeValue::L(parts)) = item.remove("retired_from") else { return item };
    let until = item.remove("ttl_timestamp");
    assert!(until.is_some() && until.as_ref() == parts.first(), "{parts:?}");
    item.extend(parts.into_iter().nth(1).map(|ttl| ("ttl_timestamp".to_owned(), ttl)));
    item
}

/// Whether TTL removes the row within RETIRE_DAYS anyway.
fn is_near(item: &Item) -> bool {
    number(item, "ttl_timestamp").is_some_and(|at| (NOW - 5 * 365 * DAY..=NOW + 7 * DAY).contains(&at))
}

async fn every_dead_row_is_left_to_ttl_or_retired_and_no_other_row_is_changed(kind: EngineKind) {
    let seeds = if kind == EngineKind::Embedded { 5_000..5_040 } else { 6_000..6_008 };
    let (mut retired, mut left, mut refused, tables) = (0, 0, 0, 2 * (seeds.end - seeds.start));
    for seed in seeds {
        for which in Which::BOTH {
            let model_rows = random_table(seed, NOW);
            let bed = Testbed::with(kind, &specimens(&model_rows)).await.retiring().await;
            let before = rows(&bed).await;
            let dead = match which {
                Which::Cleanup => daily_cleanup(&model_rows, NOW),
                Which::Repair => index_repair(&model_rows, NOW),
            };
            let run = async |event, later| which.run(&bed.function, event, NOW + later).await;
            let dry = match run(json!({"mode": "dry-run"}), 0).await {
                Ok(dry) => dry,
                // A small table may have only foreign rows.
                Err(error) => {
                    assert!(error.to_string().contains("refused: table"), "seed {seed}: {error}");
                    refused += 1;
                    continue;
                }
            };
            assert_eq!(rows(&bed).await, before, "seed {seed}: the dry run wrote");
            let real = run(json!({}), 0).await.unwrap();
            let after = rows(&bed).await;
            assert_eq!(dry.counts, real.counts, "seed {seed} {which:?}: the dry run reported something else");
            assert_eq!(real.counts.rows_deleted(), 0);
            let changed: BTreeSet<Key> =
                before.keys().filter(|key| after.get(*key) != before.get(*key)).cloned().collect();
            assert_eq!(real.counts.rows_retired(), changed.len() as u64, "seed {seed} {which:?}");
            for key in &changed {
                assert!(dead.contains(key), "seed {seed} {which:?}: a live row was retired");
                assert_eq!(unretired(&after[key]), before[key], "seed {seed}: more than the TTL was written");
                assert_eq!(number(&after[key], "ttl_timestamp"), Some(NOW + 7 * DAY));
                assert!(!is_near(&before[key]), "seed {seed} {which:?}: DynamoDB would have removed it sooner");
            }
            let near: BTreeSet<&Key> = before.iter().filter(|(_, item)| is_near(item)).map(|(key, _)| key).collect();
            for key in dead.difference(&changed).filter(|key| !near.contains(key)) {
                // TTL removes its index row, or the row that names it, first; a later run finds it then.
                let (owner, sort) = key;
                let depends = ["mcp_tokens:", "mcp_refresh_tokens:", "mcp_auth_codes:", "mcp_google_tokens:"];
                let is_actors = depends.iter().any(|bucket| sort.starts_with(bucket));
                assert!(is_actors && !near.is_empty(), "seed {seed} {which:?}: {owner} {sort} was left");
                left += 1;
            }
            retired += changed.len();
            for later in [0, 3_600, 3 * DAY] {
                let second = run(json!({}), later).await.unwrap();
                if later == 0 {
                    assert_eq!(second.counts.rows_retired(), 0, "seed {seed} {which:?}: the second run wrote");
                    assert_eq!(rows(&bed).await, after);
                }
                for (key, item) in rows(&bed).await {
                    assert!(!changed.contains(&key) || item == after[&key], "seed {seed}: it was retired twice");
                }
            }
            bed.function.client.delete_table().table_name(&bed.table).send().await.unwrap();
        }
    }
    assert!(retired > 20 && left < retired, "{retired} retired, {left} left for later");
    assert!(refused * 10 <= tables, "{refused} of {tables} tables were refused");
}

async fn a_run_without_ttl_on_the_right_attribute_is_refused_and_deletes_nothing(kind: EngineKind) {
    let bed = Testbed::with(kind, &fixture::all_kinds(NOW, 1, 3)).await;
    let before = rows(&bed).await;
    let refused = async |state: &str| {
        for which in Which::BOTH {
            for mode in ["dry-run", "delete"] {
                let event = json!({"expired_rows": "retire", "mode": mode});
                let error = which.run(&bed.function, event, NOW).await.unwrap_err();
                assert_eq!(error, RunError::TtlNotOn { state: state.to_owned() });
                let text = error.to_string();
                assert!(error.kind() == "Refused" && text.contains("janitor ttl enable"), "{text}");
                assert!(text.contains("TimeToLive=enable") && text.ends_with("nothing was written"), "{text}");
            }
        }
        assert_eq!(rows(&bed).await, before);
    };
    refused("off").await;
    bed.switch_ttl("another_attribute", true).await;
    refused("on for another_attribute").await;
    bed.switch_ttl("another_attribute", false).await;
    bed.switch_ttl("ttl_timestamp", true).await;
    let on = Which::Cleanup.run(&bed.function, json!({"expired_rows": "retire"}), NOW).await.unwrap();
    assert!(on.outcome.is_complete() && on.counts.rows_retired() > 0 && on.counts.rows_deleted() == 0);
    // Without permission to read the TTL setting nothing is retired or deleted.
    let denied = Proxy::start(engine(kind).endpoint(), |request| {
        if request.operation == "DescribeTimeToLive" {
            let body = json!({"__type": "AccessDeniedException", "message": "no"}).to_string();
            return Fate::Answer(400, body);
        }
        Fate::Forward
    });
    let function = bed.through(&denied).await;
    let before = rows(&bed).await;
    assert!(Which::Cleanup.run(&function, json!({"expired_rows": "retire"}), NOW + DAY).await.is_err());
    assert_eq!(rows(&bed).await, before);
}

/// Runs async work from the proxy's hook, which is not async.
fn block_on<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    let work = move || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work);
    std::thread::spawn(work).join().unwrap()
}

fn text(value: &str) -> AttributeValue {
    AttributeValue::S(value.to_owned())
}

/// An expired session with the given TTL.
fn session(name: &str, ttl: Option<AttributeValue>) -> Item {
    let mut item: Item = [
        ("id", text("_actingweb_oauth2")),
        ("bucket_name", text(&format!("_oauth_sessions:{name}"))),
        ("bucket", text("_oauth_sessions")),
        ("name", text(name)),
        ("data", text(&format!("{{\"created_at\": {}}}", NOW - 9_000))),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    item.extend(ttl.map(|ttl| ("ttl_timestamp".to_owned(), ttl)));
    item
}

async fn a_row_that_changes_before_it_is_retired_is_kept_as_the_application_wrote_it(kind: EngineKind) {
    let written: Vec<Item> = ["data", "ttl", "gone", "unchanged"].map(|name| session(name, None)).into();
    let bed = Testbed::new(kind).await.retiring().await;
    items::write(&bed.function.client, &bed.table, &written).await;
    let (client, table, mut done) = (bed.function.client.clone(), bed.table.clone(), false);
    let proxy = Proxy::start(engine(kind).endpoint(), move |request| {
        if request.operation == "BatchExecuteStatement" && !std::mem::replace(&mut done, true) {
            assert!(request.body.contains("UPDATE"), "a row would be deleted");
            let (client, table, mut rows) = (client.clone(), table.clone(), written.clone());
            rows[0].insert("data".to_owned(), text(&format!("{{\"created_at\": {NOW}}}")));
            rows[1].insert("ttl_timestamp".to_owned(), AttributeValue::N((NOW + 4_200).to_string()));
            block_on(async move {
                items::write(&client, &table, &rows[..2]).await;
                let delete = client.delete_item().table_name(&table).key("id", rows[2]["id"].clone());
                delete.key("bucket_name", rows[2]["bucket_name"].clone()).send().await.unwrap();
            });
        }
        Fate::Forward
    });
    let report = Which::Cleanup.run(&bed.through(&proxy).await, json!({}), NOW).await.unwrap();
    assert_eq!((report.counts.lost_races(), report.counts.rows_retired()), (3, 1));
    let after: Vec<(bool, Option<i64>)> = rows(&bed)
        .await
        .values()
        .map(|item| (item.contains_key("retired_from"), number(item, "ttl_timestamp")))
        .collect();
    // In order of name; the deleted row is not created again.
    assert_eq!(after, [(false, None), (false, Some(NOW + 4_200)), (true, Some(NOW + 7 * DAY))]);
}

/// Rows without a TTL, as releases before 3.7.4 wrote them, so that each costs a write. None grows above 1 KB.
async fn retiring_costs_no_more_than_deleting(kind: EngineKind) {
    let mut specimens = fixture::settled(NOW, 20, 4);
    specimens.iter_mut().for_each(|row| row.ttl = None);
    let deleting = Testbed::with(kind, &specimens).await;
    let retiring = Testbed::with(kind, &specimens).await.retiring().await;
    let mut costs = Vec::new();
    for bed in [&deleting, &retiring] {
        let proxy = Proxy::start(engine(kind).endpoint(), |_| Fate::Forward);
        let report = Which::Cleanup.run(&bed.through(&proxy).await, Cost::event(), NOW).await.unwrap();
        assert!(report.counts.rows_disposed() > 200, "{}", report.to_json());
        costs.push((report.counts.rows_disposed(), Cost::of(&report, &proxy)));
    }
    println!("{kind:?}: {costs:?}");
    assert_eq!(costs[0].0, costs[1].0, "rows deleted, and retired");
    costs[1].1.check_at_most(&costs[0].1, kind);
    let second = Which::Cleanup.run(&retiring.function, json!({}), NOW).await.unwrap();
    assert_eq!(second.counts.rows_retired(), 0);
    assert!(second.usage.write_units < 20.0, "lease and state: {:?}", second.usage);
}

/// The answer to statements that acted, with an error for each of them.
pub(crate) fn failed(body: String) -> String {
    let mut answer: Value = serde_json::from_str(&body).unwrap();
    for response in answer["Responses"].as_array_mut().unwrap() {
        *response = json!({"Error": {"Code": "InternalServerError", "Message": "acted"}});
    }
    answer.to_string()
}

async fn rows_that_may_be_retired_count_towards_max_deletes_whatever_the_later_attempts_say(kind: EngineKind) {
    bed::clock::pause();
    let bed = Testbed::new(kind).await.retiring().await;
    let written: Vec<Item> = (0..300).map(|n| session(&format!("session{n}"), None)).collect();
    items::write(&bed.function.client, &bed.table, &written).await;
    let mut requests = 0;
    let proxy = Proxy::start(engine(kind).endpoint(), move |request| {
        if request.operation != "BatchExecuteStatement" {
            return Fate::Forward;
        }
        requests += 1;
        match requests {
            1 => Fate::Rewrite(failed),
            // All attempts at the first batch.
            2..=8 => throttled_statements(request),
            _ => Fate::Forward,
        }
    });
    let function = bed.through(&proxy).await;
    let report = Which::Cleanup.run(&function, json!({"max_deletes": 100}), NOW).await.unwrap();
    let (made, uncertain) = (report.counts.rows_retired(), report.counts.uncertain());
    assert!(uncertain > 0 && made + uncertain == 100, "{}", report.to_json());
    let retired = rows(&bed).await.into_values().filter(|item| item.contains_key("retired_from")).count();
    assert_eq!(retired, 100, "{}", report.to_json());
}

async fn a_statement_that_fails_after_it_acted_is_no_lost_race(kind: EngineKind) {
    let bed = Testbed::new(kind).await.retiring().await;
    let written: Vec<Item> = (0..10).map(|n| session(&format!("session{n}"), None)).collect();
    items::write(&bed.function.client, &bed.table, &written).await;
    let is_first = AtomicBool::new(true);
    let proxy = Proxy::start(engine(kind).endpoint(), move |request| {
        let fails = request.operation == "BatchExecuteStatement" && is_first.swap(false, Ordering::Relaxed);
        if fails { Fate::Rewrite(failed) } else { Fate::Forward }
    });
    let report = Which::Cleanup.run(&bed.through(&proxy).await, json!({}), NOW).await.unwrap();
    let counts = &report.counts;
    assert_eq!((counts.rows_retired(), counts.lost_races(), counts.uncertain()), (10, 0, 0), "{}", report.to_json());
}

async fn a_batch_that_is_refused_after_it_acted_is_no_lost_race(kind: EngineKind) {
    let bed = Testbed::new(kind).await.retiring().await;
    let written: Vec<Item> = (0..10).map(|n| session(&format!("session{n}"), None)).collect();
    items::write(&bed.function.client, &bed.table, &written).await;
    let mut requests = 0;
    let proxy = Proxy::start(engine(kind).endpoint(), move |request| {
        requests += u32::from(request.operation == "BatchExecuteStatement");
        match (request.operation.as_str(), requests) {
            ("BatchExecuteStatement", 1) => Fate::ResetAfter,
            ("BatchExecuteStatement", 2) => {
                Fate::Answer(400, json!({"__type": "com.amazon.coral.validate#ValidationException"}).to_string())
            }
            _ => Fate::Forward,
        }
    });
    let report = Which::Cleanup.run(&bed.through(&proxy).await, json!({}), NOW).await.unwrap();
    let counts = &report.counts;
    assert_eq!((counts.rows_retired(), counts.lost_races(), counts.uncertain()), (10, 0, 0), "{}", report.to_json());
}

async fn max_deletes_and_the_delete_share_apply_to_retired_rows(kind: EngineKind) {
    let bed = Testbed::new(kind).await.retiring().await;
    let sessions: Vec<Item> = (0..30).map(|i| session(&format!("s{i:02}"), None)).collect();
    items::write(&bed.function.client, &bed.table, &sessions).await;
    let run = async |event| Which::Cleanup.run(&bed.function, event, NOW).await;
    let refused = run(json!({"max_delete_share": 0.9})).await.unwrap_err();
    assert!(matches!(refused, RunError::AboveShare { dead: 30, .. }), "{refused}");
    for (dry, retired) in [(true, 10), (false, 10), (false, 10), (false, 10), (false, 0)] {
        let mode = if dry { "dry-run" } else { "delete" };
        let report = run(json!({"max_deletes": 10, "mode": mode})).await.unwrap();
        assert_eq!((report.counts.rows_retired(), report.counts.rows_deleted()), (retired, 0));
        assert_eq!(report.to_json()["rows"]["retired"], retired);
    }
    let until = AttributeValue::N((NOW + 7 * DAY).to_string());
    assert!(rows(&bed).await.values().all(|item| item["retired_from"] == AttributeValue::L(vec![until.clone()])));
}

async fn open(bed: &Testbed, kind: EngineKind) -> Dynamo {
    let settings = Settings::parse(&bed.function.environment, &serde_json::Map::new(), Purpose::Cleanup).unwrap();
    let clock = RunClock::start(EpochSeconds::new(NOW), None);
    Dynamo::open(bed.function.client.clone(), &settings, Some(engine(kind).endpoint()), clock).await.unwrap()
}

fn all() -> Wanted {
    let policy = Policy { retire: Some(7 * DAY), ..Policy::default() };
    Wanted { bucket: None, owner: None, since: None, retired_for: 7 * DAY, policy }
}

async fn restore_returns_every_row_to_its_previous_state(kind: EngineKind) {
    let bed = Testbed::with(kind, &fixture::all_kinds(NOW, 2, 8)).await.retiring().await;
    // A TTL of every type.
    let odd = [
        AttributeValue::Null(true),
        AttributeValue::Bool(true),
        text("2400000000"),
        AttributeValue::N("0".to_owned()),
        AttributeValue::N((NOW * 1_000).to_string()),
        AttributeValue::N((NOW + 300 * DAY).to_string()),
        AttributeValue::L(Vec::new()),
        AttributeValue::L(vec![AttributeValue::L(Vec::new())]),
        AttributeValue::M(HashMap::new()),
        AttributeValue::Ns(vec!["1".to_owned()]),
    ];
    let odd: Vec<Item> = odd.into_iter().enumerate().map(|(i, ttl)| session(&format!("odd-{i}"), Some(ttl))).collect();
    items::write(&bed.function.client, &bed.table, &odd).await;
    let before = rows(&bed).await;
    let mut reasons: BTreeMap<String, BTreeMap<&str, u64>> = BTreeMap::new();
    for which in Which::BOTH {
        // Rows of unknown age are retired when the repair sees them again.
        for later in [0, 7_200] {
            let report = which.run(&bed.function, json!({}), NOW + later).await.unwrap();
            for (bucket, counts) in report.counts.buckets() {
                for (reason, n) in &counts.retired {
                    *reasons.entry((*bucket).to_owned()).or_default().entry(reason).or_default() += n;
                }
            }
        }
    }
    let retired = rows(&bed).await;
    let table = open(&bed, kind).await;
    let now = EpochSeconds::new(NOW + 7_200);
    let dry = restore(&table, &all(), now, true).await;
    assert_eq!(rows(&bed).await, retired, "the dry run wrote");
    let listed: BTreeMap<String, BTreeMap<&str, u64>> =
        dry.buckets.iter().map(|(bucket, counts)| (bucket.clone(), counts.reasons.clone())).collect();
    assert_eq!(listed, reasons, "the reasons differ from those of the runs");
    // By bucket, by owner, by time.
    let restorable = async |wanted: Wanted| restore(&table, &wanted, now, true).await.sum(|counts| counts.restored);
    let of_bucket = restorable(Wanted { bucket: Some("_oauth_sessions".to_owned()), ..all() }).await;
    assert_eq!(of_bucket, dry.buckets["_oauth_sessions"].retired);
    assert_eq!(restorable(Wanted { owner: Some("nobody".to_owned()), ..all() }).await, 0);
    assert_eq!(restorable(Wanted { since: Some(EpochSeconds::new(NOW + 7_201)), ..all() }).await, 0);
    let everything = dry.sum(|counts| counts.retired);
    assert_eq!(restorable(Wanted { since: Some(EpochSeconds::new(NOW)), ..all() }).await, everything);

    let real = restore(&table, &all(), now, false).await;
    assert_eq!(real.sum(|counts| counts.restored), everything);
    assert_eq!(rows(&bed).await, before, "a row differs from what it was");
    let nothing = restore(&table, &all(), now, false).await;
    assert!(nothing.buckets.is_empty() && nothing.fault.is_none());
    // The next run retires them again.
    let again = Which::Cleanup.run(&bed.function, json!({}), NOW + 7_200).await.unwrap();
    assert!(again.counts.rows_retired() > 0);
}

async fn a_row_that_the_application_rewrote_is_not_restored(kind: EngineKind) {
    let bed = Testbed::new(kind).await.retiring().await;
    let written: Vec<Item> =
        ["a-written-before", "b-written-meanwhile", "c-left"].map(|name| session(name, None)).into();
    items::write(&bed.function.client, &bed.table, &written).await;
    Which::Cleanup.run(&bed.function, json!({}), NOW).await.unwrap();
    let fresh: Vec<Item> = written[..2]
        .iter()
        .map(|item| {
            let mut item = item.clone();
            item.insert("data".to_owned(), text(&format!("{{\"created_at\": {NOW}}}")));
            item.insert("ttl_timestamp".to_owned(), AttributeValue::N((NOW + 4_200).to_string()));
            item
        })
        .collect();
    items::write(&bed.function.client, &bed.table, &fresh[..1]).await;
    let (client, name, late, mut done) = (bed.function.client.clone(), bed.table.clone(), fresh.clone(), false);
    let proxy = Proxy::start(engine(kind).endpoint(), move |request| {
        if request.operation == "UpdateItem" && !std::mem::replace(&mut done, true) {
            let (client, name, late) = (client.clone(), name.clone(), late.clone());
            block_on(async move { items::write(&client, &name, &late[1..]).await });
        }
        Fate::Forward
    });
    let settings = Settings::parse(&bed.function.environment, &serde_json::Map::new(), Purpose::Cleanup).unwrap();
    let clock = RunClock::start(EpochSeconds::new(NOW), None);
    let client = bed.through(&proxy).await.client;
    let table = Dynamo::open(client, &settings, Some(proxy.endpoint()), clock).await.unwrap();
    let done = restore(&table, &all(), EpochSeconds::new(NOW), false).await;
    assert_eq!((done.sum(|counts| counts.restored), done.sum(|counts| counts.lost_race)), (1, 1));
    let expected: Vec<Item> = [&fresh[0], &fresh[1], &written[2]].into_iter().cloned().collect();
    assert_eq!(rows(&bed).await.into_values().collect::<Vec<_>>(), expected);
}

/// Updates data and TTL, as the library's compare-and-swap does; other attributes are kept.
async fn update_in_place(bed: &Testbed, row: &Item, data: &str, ttl: i64) {
    let update = bed.function.client.update_item().table_name(&bed.table).key("id", row["id"].clone());
    let update = update.key("bucket_name", row["bucket_name"].clone()).update_expression("SET #d = :d, #t = :t");
    let update = update.expression_attribute_names("#d", "data").expression_attribute_names("#t", "ttl_timestamp");
    let update = update.expression_attribute_values(":d", text(data));
    update.expression_attribute_values(":t", AttributeValue::N(ttl.to_string())).send().await.unwrap();
}

/// The row is judged by the application's TTL, can be retired again, and is not restored.
async fn a_row_that_the_application_updates_in_place_is_no_longer_retired(kind: EngineKind) {
    let bed = Testbed::new(kind).await.retiring().await;
    let at = |days: i64| AttributeValue::N((NOW + days * DAY).to_string());
    let written = [session("alive", Some(at(8))), session("dies-again", Some(at(30)))];
    items::write(&bed.function.client, &bed.table, &written).await;
    let run = async |event, now| Which::Cleanup.run(&bed.function, event, now).await.unwrap().counts;
    assert_eq!(run(json!({}), NOW).await.rows_retired(), 2);
    update_in_place(&bed, &written[0], "{\"state\": \"new\"}", NOW + 20 * DAY).await;
    update_in_place(&bed, &written[1], &format!("{{\"created_at\": {NOW}}}"), NOW + 20 * DAY).await;
    let updated = rows(&bed).await;
    let table = open(&bed, kind).await;
    let restored = restore(&table, &all(), EpochSeconds::new(NOW), false).await;
    assert_eq!((restored.sum(|counts| counts.restored), restored.sum(|counts| counts.rewritten)), (0, 2));
    assert_eq!(rows(&bed).await, updated, "restore changed a row that the application wrote");

    // Dead again, by the data that the application wrote.
    assert_eq!(run(json!({}), NOW + 1_000).await.rows_retired(), 1);
    let restored = restore(&table, &all(), EpochSeconds::new(NOW + 1_000), false).await;
    assert_eq!(restored.sum(|counts| counts.restored), 1);
    let after = rows(&bed).await;
    assert!(after.values().all(|item| item["ttl_timestamp"] == at(20)), "the application's TTL was not restored");

    // By the TTL from before its retirement, the other row would be dead.
    let deleted = run(json!({"expired_rows": "delete"}), NOW + 9 * DAY).await;
    assert_eq!(deleted.rows_deleted(), 1, "{deleted:?}");
    let left = rows(&bed).await;
    assert_eq!(left.values().map(|item| &item["name"]).collect::<Vec<_>>(), [&text("alive")]);
}
