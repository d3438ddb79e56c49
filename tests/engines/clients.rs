//! `janitor clients` removes exactly the unused clients, and keeps a client that is used in the meantime.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use aws_sdk_dynamodb::types::AttributeValue;
use bed::Testbed;
use bed::attack::amount;
use bed::engine::{EngineKind, shared as engine};
use bed::fixture::{Fate, Specimen};
use bed::janitor::{Ended, Janitor, janitor};
use bed::proxy::{Fate as RequestFate, Proxy, throttled_statements};
use dynamo::Dynamo;
use futures_util::StreamExt as _;
use jobs::clients::{Ended as PruneEnded, Prune, prune, survey};
use jobs::run::clock::RunClock;
use jobs::store::Consistency;
use serde_json::{Value, json};
use shared::bucket::OAUTH_OWNER;
use shared::clients::Clients;
use shared::pyjson::dumps;
use shared::settings::{Purpose, Settings};
use shared::time::EpochSeconds;

use super::driven::DrivenClock;
use super::retire::failed;

bed::on_both_engines!(
    removes_exactly_the_unused_clients_index_rows_first,
    without_apply_nothing_is_written,
    a_client_that_gets_its_first_code_after_the_list_survives,
    a_client_that_gets_its_first_code_after_the_index_delete_gets_its_index_rows_back,
    a_client_whose_index_row_is_written_back_by_another_removal_survives,
    a_record_that_changes_in_the_meantime_survives,
    stops_at_max_deletes_and_leaves_no_partly_removed_client,
    records_that_may_be_deleted_count_towards_max_deletes,
    a_removal_that_is_interrupted_puts_index_rows_back,
    a_removal_keeps_its_lease_while_it_puts_index_rows_back,
    a_removal_that_loses_its_lease_while_it_deletes_index_rows_puts_them_back,
    a_removal_that_loses_its_lease_while_it_deletes_records_puts_index_rows_back,
    a_removal_that_was_killed_is_finished_by_the_next,
    a_removal_is_refused_while_the_lease_is_held_or_the_janitor_is_paused,
);

const DAY: i64 = 86_400;

fn now() -> i64 {
    EpochSeconds::from(std::time::SystemTime::now()).get()
}

fn id(number: usize) -> String {
    format!("mcp_{number:032x}")
}

fn row(owner: &str, bucket: &str, name: &str, data: &Value) -> Specimen {
    let data = Some(AttributeValue::S(dumps(data)));
    Specimen { owner: owner.into(), bucket: bucket.into(), name: name.into(), data, ttl: None, fate: Fate::Kept }
}

fn record(owner: &str, number: usize, age: i64) -> Specimen {
    let data = json!({"client_id": id(number), "client_secret": "very-secret", "client_name": "Tool", "created_at": now() - age, "actor_id": owner});
    row(owner, "mcp_clients", &id(number), &data)
}

fn index(bucket: &str, number: usize, actor: &str) -> Specimen {
    row(OAUTH_OWNER, bucket, &id(number), &json!(actor))
}

fn code(number: usize) -> Specimen {
    let data = json!({"code": "ac_1", "actor_id": "ada", "client_id": id(number), "created_at": now(), "expires_at": now() + 600, "used": false});
    row("ada", "mcp_auth_codes", "ac_1", &data)
}

/// A client that registered itself `age` seconds ago.
fn registered(number: usize, age: i64) -> Vec<Specimen> {
    vec![record(OAUTH_OWNER, number, age), index("_client_index", number, OAUTH_OWNER)]
}

pub(crate) fn unused(numbers: std::ops::Range<usize>) -> Vec<Specimen> {
    numbers.flat_map(|number| registered(number, 40 * DAY)).collect()
}

async fn records(bed: &Testbed) -> BTreeSet<String> {
    let keys = bed.keys().await;
    keys.into_iter().filter_map(|(_, sort)| sort.strip_prefix("mcp_clients:").map(str::to_owned)).collect()
}

async fn indexed(bed: &Testbed) -> BTreeSet<String> {
    let keys = bed.keys().await;
    keys.into_iter().filter_map(|(_, sort)| sort.strip_prefix("_client_index:").map(str::to_owned)).collect()
}

fn ids(numbers: impl IntoIterator<Item = usize>) -> BTreeSet<String> {
    numbers.into_iter().map(id).collect()
}

fn apply(endpoint: &str, bed: &Testbed, more: &[&str]) -> Ended {
    janitor(endpoint, &bed.table, &[&["clients", "--apply", "--yes", "--json"], more].concat(), "")
}

async fn removes_exactly_the_unused_clients_index_rows_first(kind: EngineKind) {
    let mut rows = unused(0..5);
    // With index rows under both names, under the old name only, and without one, as a killed removal leaves it.
    rows.push(index("client_index", 0, OAUTH_OWNER));
    rows.extend([
        record(OAUTH_OWNER, 5, 40 * DAY),
        index("client_index", 5, OAUTH_OWNER),
        record(OAUTH_OWNER, 6, 40 * DAY),
    ]);
    let removed = ids(0..7);
    // Kept: a client of an actor, a young one, one without a creation time, one whose index row points elsewhere.
    rows.extend([record("ada", 10, 400 * DAY), index("_client_index", 10, "ada")]);
    rows.extend(registered(11, 29 * DAY));
    rows.push(row(OAUTH_OWNER, "mcp_clients", &id(12), &json!({"client_id": id(12)})));
    rows.extend([record(OAUTH_OWNER, 13, 40 * DAY), index("_client_index", 13, "bea")]);
    // Kept, because a token names it: live, expired, consumed, malformed, with an escaped id, of a foreign owner.
    let mut named = Vec::new();
    for (number, data) in [
        (20, json!({"client_id": id(20), "expires_at": now() + 600}).to_string()),
        (21, json!({"client_id": id(21), "expires_at": now() - 90 * DAY}).to_string()),
        (22, json!({"client_id": id(22), "used": true, "used_at": now() - 60 * DAY}).to_string()),
        (23, format!("{{\"client_id\": \"{}\", ", id(23))),
        (24, format!("{{\"client_id\": \"\\u006d{}\"}}", &id(24)[1..])),
    ] {
        named.extend(registered(number, 40 * DAY));
        let mut token = row("ada", "mcp_refresh_tokens", &format!("rt_{number}"), &json!(null));
        token.data = Some(AttributeValue::S(data));
        named.push(token);
    }
    named.extend(registered(25, 40 * DAY));
    named.push(row("_actingweb_other", "mcp_tokens", "aw_25", &json!({"client_id": id(25)})));
    rows.extend(named);
    // An id that the library does not generate.
    rows.push(row(OAUTH_OWNER, "mcp_clients", "mcp_by_hand", &json!({"created_at": 5})));
    let bed = Testbed::with(kind, &rows).await;
    let before = bed.keys().await;
    let proxy = Proxy::start(engine(kind).endpoint(), |_| RequestFate::Forward);
    let listed = janitor(proxy.endpoint(), &bed.table, &["clients", "--json"], "").json();
    let list = listed["list"].as_array().unwrap().iter().map(|client| client["client_id"].as_str().unwrap().to_owned());
    let mut list: BTreeSet<String> = list.collect();
    // Where its index row points is only read before a delete.
    assert!(list.remove(&id(13)), "{listed}");
    assert_eq!(list, removed, "{listed}");
    assert_eq!((&listed["clients"], &listed["other_ids"]), (&json!(18), &json!(1)), "{listed}");
    assert_eq!(listed["registered_themselves"]["with_live_tokens"], 4, "{listed}");
    assert_eq!(listed["registered_themselves"]["with_dead_tokens_only"], 2, "{listed}");
    assert!(!listed.to_string().contains("very-secret"));
    let ended = apply(proxy.endpoint(), &bed, &[]);
    let removal = &ended.json()["removal"];
    assert_eq!((&removal["clients_removed"], &removal["changed"]), (&json!(7), &json!(1)), "{ended:?}");
    let gone: BTreeSet<_> = before.difference(&bed.keys().await).cloned().collect();
    assert_eq!(gone.len(), 7 + 7, "{gone:?}");
    assert!(gone.iter().all(|(_, sort)| removed.iter().any(|id| sort.ends_with(id))), "{gone:?}");
    let deletes = proxy.requests().into_iter().filter(|request| request.operation == "BatchExecuteStatement");
    let deletes: Vec<bool> = deletes.map(|request| request.body.contains("mcp_clients")).collect();
    assert!(deletes.is_sorted() && deletes.contains(&false) && deletes.contains(&true), "{deletes:?}");
}

async fn without_apply_nothing_is_written(kind: EngineKind) {
    let bed = Testbed::with(kind, &unused(0..3)).await;
    let proxy = Proxy::start(engine(kind).endpoint(), |_| RequestFate::Forward);
    let listed = janitor(proxy.endpoint(), &bed.table, &["clients", "--unused-for", "39d"], "");
    assert_eq!(listed.code, 0, "{listed:?}");
    assert!(listed.out.contains(&id(1)) && listed.out.contains("3 of 3 clients are unused"), "{}", listed.out);
    assert!(!listed.out.contains("very-secret"));
    let none = janitor(proxy.endpoint(), &bed.table, &["clients", "--unused-for", "41d", "--json"], "").json();
    assert_eq!((&none["unused"], &none["clients"]), (&json!(0), &json!(3)), "{none}");
    assert!(
        proxy.seen().iter().all(|operation| matches!(operation.as_str(), "DescribeTable" | "Scan")),
        "{:?}",
        proxy.seen()
    );
}

/// Runs `janitor clients --apply`, and writes `rows` before the nth request of an operation reaches the engine.
async fn writing_before(
    kind: EngineKind,
    bed: &Testbed,
    operation: &'static str,
    nth: usize,
    rows: Vec<Specimen>,
) -> Ended {
    let bed_client = bed::tables::client(engine(kind).endpoint()).await;
    let (table, seen) = (bed.table.clone(), Arc::new(Mutex::new(0)));
    let proxy = Proxy::start(engine(kind).endpoint(), move |request| {
        if request.is_work(operation) {
            let mut seen = seen.lock().unwrap();
            *seen += 1;
            if *seen == nth {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(bed::tables::write_rows(&bed_client, &table, &rows)).unwrap();
            }
        }
        RequestFate::Forward
    });
    apply(proxy.endpoint(), bed, &[])
}

async fn a_client_that_gets_its_first_code_after_the_list_survives(kind: EngineKind) {
    let bed = Testbed::with(kind, &unused(0..4)).await;
    // Right before the first delete: the client was unused when the table was read.
    let ended = writing_before(kind, &bed, "BatchExecuteStatement", 1, vec![code(2)]).await;
    let removal = &ended.json()["removal"];
    assert_eq!(
        (ended.code, &removal["clients_removed"], &removal["used_since"]),
        (0, &json!(3), &json!(1)),
        "{ended:?}"
    );
    assert_eq!((records(&bed).await, indexed(&bed).await), (ids([2]), ids([2])));
}

async fn a_client_that_gets_its_first_code_after_the_index_delete_gets_its_index_rows_back(kind: EngineKind) {
    let mut rows = unused(0..4);
    rows.push(index("client_index", 2, OAUTH_OWNER));
    let bed = Testbed::with(kind, &rows).await;
    let before = bed::items::scan(&bed.function.client, &bed.table).await;
    // A sign-in in progress: the second Scan follows the delete of the index rows.
    let ended = writing_before(kind, &bed, "Scan", 2, vec![code(2)]).await;
    let removal = &ended.json()["removal"];
    assert_eq!(
        (ended.code, &removal["clients_removed"], &removal["used_since"]),
        (0, &json!(3), &json!(1)),
        "{ended:?}"
    );
    let after = bed::items::scan(&bed.function.client, &bed.table).await;
    let of_client: Vec<_> = before.iter().filter(|((_, sort), _)| sort.ends_with(&id(2))).collect();
    assert_eq!(of_client.len(), 3);
    for (key, item) in of_client {
        assert_eq!(after.get(key), Some(item), "not restored as the library wrote it");
    }
}

/// A removal that lost its lease writes its index rows back while the next one is at work. Then the client can be used again.
async fn a_client_whose_index_row_is_written_back_by_another_removal_survives(kind: EngineKind) {
    let mut rows = unused(0..3);
    rows.push(record(OAUTH_OWNER, 3, 40 * DAY));
    let bed = Testbed::with(kind, &rows).await;
    // Between the Scan and the last lookup; the first one precedes the delete of the index rows.
    let back = vec![index("_client_index", 3, OAUTH_OWNER), code(3)];
    let ended = writing_before(kind, &bed, "BatchGetItem", 2, back).await;
    let removal = &ended.json()["removal"];
    assert_eq!((&removal["clients_removed"], &removal["changed"]), (&json!(3), &json!(1)), "{ended:?}");
    assert_eq!((records(&bed).await, indexed(&bed).await), (ids([3]), ids([3])));
}

async fn a_record_that_changes_in_the_meantime_survives(kind: EngineKind) {
    let bed = Testbed::with(kind, &unused(0..3)).await;
    // A new secret is written between the last read and the delete of the records.
    let mut changed = record(OAUTH_OWNER, 1, 40 * DAY);
    changed.data =
        Some(AttributeValue::S(dumps(&json!({"client_id": id(1), "client_secret": "new", "created_at": 5}))));
    let ended = writing_before(kind, &bed, "BatchExecuteStatement", 2, vec![changed]).await;
    let removal = &ended.json()["removal"];
    assert_eq!((&removal["clients_removed"], &removal["changed"]), (&json!(2), &json!(1)), "{ended:?}");
    assert_eq!((records(&bed).await, indexed(&bed).await), (ids([1]), ids([1])));
}

async fn stops_at_max_deletes_and_leaves_no_partly_removed_client(kind: EngineKind) {
    let bed = Testbed::with(kind, &unused(0..5)).await;
    for (max_deletes, left) in [("1", 5), ("5", 3), ("4", 1), ("100", 0)] {
        let ended = apply(engine(kind).endpoint(), &bed, &["--max-deletes", max_deletes]);
        assert_eq!(ended.code, 0, "{ended:?}");
        let (records, indexed) = (records(&bed).await, indexed(&bed).await);
        assert_eq!((records.len(), &records), (left, &indexed), "{max_deletes}: {ended:?}");
    }
}

/// The first delete of records acts, and then says that it failed. A second round uses what MAX_DELETES leaves.
async fn records_that_may_be_deleted_count_towards_max_deletes(kind: EngineKind) {
    bed::clock::pause();
    let first_round = 31 * 33;
    let bed = Testbed::with(kind, &unused(0..first_round + 30)).await;
    let before = bed.keys().await;
    let mut requests = 0;
    let proxy = Proxy::start(engine(kind).endpoint(), move |request| {
        if request.operation != "BatchExecuteStatement" || !request.body.contains("mcp_clients") {
            return RequestFate::Forward;
        }
        requests += 1;
        match requests {
            1 => RequestFate::Rewrite(failed),
            // All attempts at the first batch.
            2..=8 => throttled_statements(request),
            _ => RequestFate::Forward,
        }
    });
    let (table, mut found) = surveyed(&bed, &proxy).await;
    let max_deletes = 2 * first_round + 10;
    let ended = prune(&table, table.clock(), &mut found, Some(max_deletes as u64)).await.unwrap();
    assert_eq!((&ended.ended, ended.skipped), (&PruneEnded::MaxDeletes, 25), "{ended:?}");
    let gone = before.difference(&bed.keys().await).count();
    assert!((2 * first_round..=max_deletes).contains(&gone), "{gone} of at most {max_deletes}: {ended:?}");
}

async fn a_removal_that_is_interrupted_puts_index_rows_back(kind: EngineKind) {
    let bed = Testbed::with(kind, &unused(0..30)).await;
    // The Scan after the delete of the index rows keeps failing.
    let scans = Mutex::new(0);
    let proxy = Proxy::start(engine(kind).endpoint(), move |request| {
        let mut scans = scans.lock().unwrap();
        *scans += usize::from(request.operation == "Scan");
        if request.operation == "Scan" && *scans > 1 {
            return RequestFate::Answer(
                400,
                json!({"__type": "com.amazon.coral.service#AccessDeniedException"}).to_string(),
            );
        }
        RequestFate::Forward
    });
    let ended = apply(proxy.endpoint(), &bed, &[]);
    let removal = &ended.json()["removal"];
    assert_eq!((ended.code, &removal["outcome"]), (3, &json!("failed")), "{ended:?}");
    assert_eq!((&removal["rows_deleted"], &removal["without_index"]), (&json!(0), &json!(0)), "{ended:?}");
    assert_eq!((records(&bed).await, indexed(&bed).await), (ids(0..30), ids(0..30)));
}

/// Otherwise another removal could start, and decide about clients that get their index rows back meanwhile.
async fn a_removal_keeps_its_lease_while_it_puts_index_rows_back(kind: EngineKind) {
    let bed = Testbed::with(kind, &unused(0..60)).await;
    let clock = DrivenClock::start();
    let (advance, scans) = (clock.advance(), AtomicUsize::new(0));
    let proxy = Proxy::start(engine(kind).endpoint(), move |request| {
        if request.operation == "Scan" && scans.fetch_add(1, Ordering::Relaxed) > 0 {
            let denied = json!({"__type": "com.amazon.coral.service#AccessDeniedException"});
            return RequestFate::Answer(400, denied.to_string());
        }
        // All rows take a minute and a half, each less than a request may.
        if request.operation == "PutItem" && request.body.contains("_client_index") {
            advance(std::time::Duration::from_millis(1_500));
        }
        RequestFate::Forward
    });
    let (table, mut found) = surveyed(&bed, &proxy).await;
    let ended = prune(&table, table.clock(), &mut found, None).await.unwrap();
    assert!(matches!(ended.ended, PruneEnded::Fault(_)), "{ended:?}");
    assert_eq!(indexed(&bed).await, ids(0..60));
    let requests = proxy.requests();
    let first = requests.iter().position(|request| request.body.contains("_client_index:")).unwrap();
    let renewals = requests[first..].iter().filter(|request| request.operation == "PutItem");
    let renewals = renewals.filter(|request| request.body.contains("state:lease")).count();
    assert!(renewals >= 2, "{renewals} renewals in a minute and a half");
}

/// The index rows are deleted, and nothing says so.
async fn a_removal_that_loses_its_lease_while_it_deletes_index_rows_puts_them_back(kind: EngineKind) {
    loses_its_lease_during_delete(kind, 1).await;
}

async fn a_removal_that_loses_its_lease_while_it_deletes_records_puts_index_rows_back(kind: EngineKind) {
    loses_its_lease_during_delete(kind, 2).await;
}

/// The work is cancelled while the answer to the nth request to delete is pending. The first of them acts.
async fn loses_its_lease_during_delete(kind: EngineKind, nth: usize) {
    let bed = Testbed::with(kind, &unused(0..4)).await;
    let clock = DrivenClock::start();
    let takes_over = Mutex::new(Some((clock.advance(), bed::tables::client(engine(kind).endpoint()).await)));
    let name = bed.table.clone();
    let deletes = AtomicUsize::new(0);
    let proxy = Proxy::start(engine(kind).endpoint(), move |request| {
        if request.operation != "BatchExecuteStatement" || deletes.fetch_add(1, Ordering::Relaxed) + 1 < nth {
            return RequestFate::Forward;
        }
        if let Some((advance, client)) = takes_over.lock().unwrap().take() {
            let name = name.clone();
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                let index_rows = async || {
                    let rows = bed::tables::scan(&client, &name).await.unwrap();
                    rows.iter().filter(|(_, sort, _)| sort.starts_with("_client_index:")).count()
                };
                while runtime.block_on(index_rows()) > 0 {
                    std::thread::sleep(std::time::Duration::from_millis(10));
                }
                let other = json!({"holder": "daily-cleanup-1", "until": now() + 50});
                let lease = row("_actingweb_janitor", "state", "lease", &other);
                runtime.block_on(bed::tables::write_rows(&client, &name, &[lease])).unwrap();
                // The next renewal of the lease finds the other holder.
                advance(std::time::Duration::from_secs(16));
            });
        }
        RequestFate::Silence { acts: nth == 1 }
    });
    let (table, mut found) = surveyed(&bed, &proxy).await;
    let ended = prune(&table, table.clock(), &mut found, None).await;
    let expected = Prune { ended: PruneEnded::LeaseLost, ..Prune::default() };
    assert_eq!(ended.unwrap(), expected);
    assert_eq!((records(&bed).await, indexed(&bed).await), (ids(0..4), ids(0..4)));
}

/// The table through the proxy, and its clients after a first read.
async fn surveyed(bed: &Testbed, proxy: &Proxy) -> (Dynamo, Clients) {
    let environment = bed::deleting("ATTRIBUTES_TABLE", &bed.table);
    let settings = Settings::parse(&environment, &serde_json::Map::new(), Purpose::Cleanup).unwrap();
    let (client, started) = (bed::tables::client(proxy.endpoint()).await, EpochSeconds::new(now()));
    let table = Dynamo::open(client, &settings, None, RunClock::start(started, None)).await.unwrap();
    let mut found = Clients::new(started, 30 * DAY);
    survey(&table, &mut found, Consistency::Eventual).await.unwrap();
    (table, found)
}

async fn a_removal_that_was_killed_is_finished_by_the_next(kind: EngineKind) {
    let mut rows: Vec<Specimen> = (0..3).map(|number| record(OAUTH_OWNER, number, 40 * DAY)).collect();
    rows.extend(unused(3..5));
    // A killed removal leaves records without an index row.
    let bed = Testbed::with(kind, &rows).await;
    let ended = apply(engine(kind).endpoint(), &bed, &[]);
    assert_eq!((ended.code, &ended.json()["removal"]["clients_removed"]), (0, &json!(5)), "{ended:?}");
    assert_eq!(records(&bed).await, ids([]));
}

async fn a_removal_is_refused_while_the_lease_is_held_or_the_janitor_is_paused(kind: EngineKind) {
    let bed = Testbed::with(kind, &unused(0..3)).await;
    let proxy = Proxy::start(engine(kind).endpoint(), |_| RequestFate::Forward);
    let lease = row("_actingweb_janitor", "state", "lease", &json!({"holder": "daily-cleanup-1", "until": now() + 50}));
    bed.write(std::slice::from_ref(&lease)).await;
    let held = apply(proxy.endpoint(), &bed, &[]);
    assert!(held.code == 3 && held.err.contains("holds the lease"), "{held:?}");
    let free = row("_actingweb_janitor", "state", "lease", &json!({"holder": "daily-cleanup-1", "until": 5}));
    bed.write(std::slice::from_ref(&free)).await;
    let paused = janitor(engine(kind).endpoint(), &bed.table, &["pause", "--for", "1h"], "");
    assert_eq!(paused.code, 0, "{paused:?}");
    let refused = apply(proxy.endpoint(), &bed, &[]);
    assert!(refused.code == 3 && refused.err.contains("the janitor is paused until"), "{refused:?}");
    let only_reads = ["DescribeTable", "Scan", "BatchGetItem", "GetItem"];
    assert!(proxy.seen().iter().all(|operation| only_reads.contains(&operation.as_str())), "{:?}", proxy.seen());
    assert_eq!(records(&bed).await, ids(0..3));
}

/// Clients and as many tokens; half of the clients are named by a token.
fn large(clients: usize) -> Vec<Specimen> {
    let token = |number: usize| {
        let data = json!({"token": "x".repeat(40), "client_id": id(number / 2), "expires_at": now() + 600});
        row(&format!("actor{:04}", number % 500), "mcp_tokens", &format!("aw_{number:040}"), &data)
    };
    (0..clients).flat_map(|number| [registered(number, 40 * DAY), vec![token(number)]].concat()).collect()
}

/// Peak resident memory in KiB, read units, and the read units of one Scan of the table.
async fn measured(rows: usize) -> (u64, f64, f64) {
    let kind = EngineKind::Embedded;
    let bed = Testbed::new(kind).await;
    let clients = rows / 3;
    let seed = large(clients);
    let writes = seed.chunks(1_000).map(|rows| bed.write(rows));
    futures_util::stream::iter(writes).buffer_unordered(8).collect::<()>().await;
    let (mut units, mut start) = (0.0, None);
    loop {
        let scan = bed.function.client.scan().table_name(&bed.table).set_exclusive_start_key(start);
        let capacity = aws_sdk_dynamodb::types::ReturnConsumedCapacity::Total;
        let page = scan.return_consumed_capacity(capacity).send().await.unwrap();
        units += page.consumed_capacity().and_then(aws_sdk_dynamodb::types::ConsumedCapacity::capacity_units).unwrap();
        start = page.last_evaluated_key;
        if start.is_none() {
            break;
        }
    }
    let command = Janitor::on(engine(kind).endpoint(), &bed.prefix);
    let mut child = command.command(&["clients", "--quiet"]).spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    while child.try_wait().unwrap().is_none() {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let now =
            text.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix("kB")?.trim().parse().ok());
        peak = peak.max(now.unwrap_or(0));
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let out = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
    let unused = clients - clients.div_ceil(2);
    assert!(out.replace(',', "").contains(&format!("{unused} of {clients} clients are unused")), "{out}");
    let used = out.lines().find_map(|line| line.strip_prefix("used ")).unwrap().replace(',', "");
    (peak, used.split(' ').next().unwrap().parse().unwrap(), units)
}

#[tokio::test]
async fn memory_is_flat_and_the_table_is_read_once() {
    let rows = amount(20_000, 200_000);
    let small = measured(rows / 10).await;
    let large = measured(rows).await;
    println!("{} and {rows} rows: peak KiB, units, units of a Scan: {small:?}, {large:?}", rows / 10);
    assert!(small.0 > 0 && large.0 * 2 <= small.0 * 3, "{small:?} {large:?}");
    assert!(large.1 <= large.2 * 1.05, "{large:?}");
}
