//! `EXPIRED_ROWS=retire` on rows of the real library: its costs, that every live row still works, and restore.

use std::collections::BTreeMap;

use bed::Testbed;
use bed::engine::{EngineKind, shared as engine};
use bed::items::{self, Item};
use bed::load::{Cost, Which, real_now};
use bed::proxy::{self, Fate, Proxy};
use bed::python::Application;
use dynamo::Dynamo;
use jobs::restore::{Wanted, restore};
use jobs::run::clock::RunClock;
use jobs::run::report::RunReport;
use model::Key;
use runtime::lambda::Function;
use serde_json::json;
use shared::expiry::Policy;
use shared::settings::{Purpose, Settings};
use shared::time::EpochSeconds;

pub(crate) const DAY: i64 = 86_400;
const ROWS: u32 = 5_500;
/// Rows that one run ends make others dead for the next.
pub(crate) const RUNS: [Which; 3] = [Which::Cleanup, Which::Repair, Which::Cleanup];
/// Units and requests of the library's own handler on such rows (`make bench`).
const HANDLER: (f64, u64) = (8_136.0, 7_937);

/// An engine that reports that TTL is on, and removes nothing.
fn with_ttl_on(kind: EngineKind) -> Proxy {
    Proxy::start(engine(kind).endpoint(), |request| proxy::with_ttl_on(request, Fate::Forward))
}

async fn retiring(bed: &Testbed, proxy: &Proxy) -> Function {
    let mut function = bed.through(proxy).await;
    function.environment.insert("EXPIRED_ROWS".to_owned(), "retire".to_owned());
    function
}

/// A new table with these items.
async fn copy(kind: EngineKind, items: impl Iterator<Item = Item>) -> Testbed {
    let bed = Testbed::new(kind).await;
    items::write(&bed.function.client, &bed.table, &items.collect::<Vec<_>>()).await;
    bed
}

pub(crate) async fn run(which: Which, function: &Function, now: i64) -> RunReport {
    let report = which.run(function, json!({}), now).await.unwrap();
    assert!(report.outcome.is_complete(), "{}", report.to_json());
    report
}

/// Uses a new connection: an idle one may have been closed while Python ran.
async fn rows(kind: EngineKind, bed: &Testbed) -> BTreeMap<Key, Item> {
    rows_at(engine(kind).endpoint(), bed).await
}

pub(crate) async fn rows_at(endpoint: &str, bed: &Testbed) -> BTreeMap<Key, Item> {
    items::all(&bed::tables::client(endpoint).await, &bed.table).await
}

pub(crate) fn ttl(item: &Item) -> Option<i64> {
    item.get("ttl_timestamp")?.as_n().ok()?.parse().ok()
}

pub(crate) fn strip_ttl(mut item: Item) -> Item {
    item.remove("ttl_timestamp");
    item
}

pub(crate) fn is_provider(item: &Item) -> bool {
    item["bucket"].as_s().is_ok_and(|bucket| bucket == "mcp_google_tokens")
}

#[tokio::test]
async fn retires_5500_rows_of_the_real_library_and_restores_them() {
    let local = EngineKind::DynamoDbLocal;
    let bed = Testbed::new(local).await;
    let application = Application::new(engine(local).endpoint(), &bed.prefix);
    let manifest = application.seed(ROWS, 1).await;
    let written = rows(local, &bed).await;
    // Dead rows of this release have a near TTL and are left to it. Rows without a TTL, as releases before 3.7.4 wrote them, have to be
    // retired. Provider rows keep their TTL: without it their age is unknown, and they take two runs.
    let without_ttl = written.values().filter(|item| !is_provider(item)).cloned().map(strip_ttl).collect::<Vec<_>>();
    items::write(&bed::tables::client(engine(local).endpoint()).await, &bed.table, &without_ttl).await;
    let before = rows(local, &bed).await;
    let now = real_now();
    let proxy = with_ttl_on(local);
    let function = retiring(&bed, &proxy).await;

    let mut retired = 0;
    for which in Which::BOTH {
        let dry = which.run(&function, json!({"mode": "dry-run"}), now).await.unwrap();
        let report = run(which, &function, now).await;
        assert_eq!(dry.counts, report.counts);
        retired += report.counts.rows_retired();
    }
    assert!(retired > 3_000, "{retired}");
    let after = rows(local, &bed).await;
    for which in Which::BOTH {
        assert_eq!(run(which, &function, now).await.counts.rows_retired(), 0, "the second run wrote");
    }
    assert_eq!(rows(local, &bed).await, after);
    println!("{}", application.judge_within(&manifest, 7 * DAY));
    assert_eq!(rows(local, &bed).await, after, "the judge did not restore what it used");

    let clock = RunClock::start(EpochSeconds::new(now), None);
    let settings = Settings::parse(&function.environment, &serde_json::Map::new(), Purpose::Cleanup).unwrap();
    let store = Dynamo::open(function.client.clone(), &settings, Some(engine(local).endpoint()), clock).await.unwrap();
    let policy = Policy { retire: Some(7 * DAY), ..Policy::default() };
    let wanted = Wanted { bucket: None, owner: None, since: None, retired_for: 7 * DAY, policy };
    let restored = restore(&store, &wanted, EpochSeconds::new(now), false).await;
    assert_eq!(restored.sum(|counts| counts.restored), retired);
    assert_eq!(rows(local, &bed).await, before, "a row differs from what it was");

    check_costs(&written, now).await;
    check_only_dead_rows_are_left_to_ttl(&before, &after, now).await;
}

/// The rows that deleting runs keep.
pub(crate) async fn alive_at(now: i64, items: &BTreeMap<Key, Item>) -> BTreeMap<Key, Item> {
    let deleting = copy(EngineKind::Embedded, items.values().cloned()).await;
    for which in RUNS {
        run(which, &deleting.function, now).await;
    }
    rows(EngineKind::Embedded, &deleting).await
}

/// TTL removes each row that deleting runs would delete within RETIRE_DAYS; rows that they would keep are not retired.
async fn check_only_dead_rows_are_left_to_ttl(before: &BTreeMap<Key, Item>, after: &BTreeMap<Key, Item>, now: i64) {
    let alive = alive_at(now, before).await;
    for (key, item) in after {
        let soon = ttl(item).is_some_and(|at| at <= now + 7 * DAY);
        assert!(alive.contains_key(key) || soon, "a dead row has no near TTL");
        assert!(!alive.contains_key(key) || !item.contains_key("retired_from"), "a live row is retired");
    }
}

async fn check_costs(items: &BTreeMap<Key, Item>, now: i64) {
    let kind = EngineKind::Embedded;
    let proxy = with_ttl_on(kind);
    let bed = copy(kind, items.values().cloned()).await;
    let function = retiring(&bed, &proxy).await;
    let cost = Cost::of(&run(Which::Cleanup, &function, now).await, &proxy);
    println!("retire: {cost:?}");
    assert!(cost.units() <= 0.06 * HANDLER.0 && cost.requests * 50 <= HANDLER.1, "{cost:?}");

    // Without a TTL, as releases before 3.7.4 wrote them.
    let bed = copy(kind, items.values().cloned().map(strip_ttl)).await;
    let proxy = with_ttl_on(kind);
    let deleted = Which::Cleanup.run(&bed.through(&proxy).await, Cost::event(), now).await.unwrap();
    let deleting = Cost::of(&deleted, &proxy);
    let bed = copy(kind, items.values().cloned().map(strip_ttl)).await;
    let proxy = with_ttl_on(kind);
    let retired = Which::Cleanup.run(&retiring(&bed, &proxy).await, Cost::event(), now).await.unwrap();
    let retiring = Cost::of(&retired, &proxy);
    println!("without TTL: delete {deleting:?}, retire {retiring:?}");
    assert_eq!(deleted.counts.rows_deleted(), retired.counts.rows_retired());
    retiring.check_at_most(&deleting, kind);
}
