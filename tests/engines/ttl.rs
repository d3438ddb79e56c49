//! `janitor ttl`: the table's TTL, the TTL of rows, and the backfill on rows of the real library.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use aws_sdk_dynamodb::types::{AttributeValue, TimeToLiveSpecification};
use bed::Testbed;
use bed::engine::{EngineKind, shared as engine};
use bed::fixture::{self, Fate, Specimen};
use bed::janitor::{Ended, janitor};
use bed::lambda::function;
use bed::proxy::{self, Proxy};
use model::rows::NOW;
use serde_json::{Value, json};
use shared::bucket::OAUTH_OWNER;

bed::on_both_engines!(
    status_reports_whether_ttl_is_on,
    enable_turns_ttl_on_once_and_only_with_apply,
    another_attribute_is_refused,
    a_row_s_ttl_is_read_set_and_removed,
    warns_of_a_ttl_before_the_row_s_own_end,
    no_row_is_created_and_no_foreign_row_is_changed,
    a_row_that_changes_during_a_set_is_not_written,
    a_backfilled_row_gets_the_ttl_that_follows_from_its_fields,
    a_row_without_a_usable_time_is_skipped_and_counted,
    a_row_that_is_deleted_in_the_meantime_is_not_written_again,
    a_lost_response_is_not_a_lost_race,
    a_store_error_stops_the_backfill_and_the_next_finishes,
    an_interrupt_stops_it_after_the_requests_in_flight,
    asks_for_confirmation_before_it_writes,
);

type Item = HashMap<String, AttributeValue>;
type Key = (String, String);

fn now() -> i64 {
    i64::try_from(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs()).unwrap()
}

fn run(bed: &Testbed, kind: EngineKind, arguments: &[&str]) -> Ended {
    janitor(engine(kind).endpoint(), &bed.table, arguments, "")
}

fn text(item: &Item, name: &str) -> String {
    item.get(name).and_then(|value| value.as_s().ok()).cloned().unwrap_or_default()
}

/// All items of the table. Uses a new client: connections of another one are not served while the test waits for the binary.
async fn items(kind: EngineKind, table: &str) -> BTreeMap<Key, Item> {
    let client = bed::tables::client(engine(kind).endpoint()).await;
    let mut items = BTreeMap::new();
    let mut start = None;
    loop {
        let page = client.scan().table_name(table).consistent_read(true).set_exclusive_start_key(start).send().await;
        let page = page.unwrap();
        items.extend(page.items().iter().map(|item| ((text(item, "id"), text(item, "bucket_name")), item.clone())));
        start = page.last_evaluated_key;
        if start.is_none() {
            return items;
        }
    }
}

/// A row of one bucket, written with fields and a TTL.
fn row(owner: &str, bucket: &str, name: &str, data: &Value, ttl: Option<i64>) -> Specimen {
    Specimen {
        owner: owner.to_owned(),
        bucket: bucket.to_owned(),
        name: name.to_owned(),
        data: Some(AttributeValue::S(shared::pyjson::dumps(data))),
        ttl: ttl.map(|at| AttributeValue::N(at.to_string())),
        fate: Fate::Kept,
    }
}

fn spa(name: &str, expires_at: i64, ttl: Option<i64>) -> Specimen {
    let data = json!({"actor_id": "a", "created_at": expires_at - 3_600, "expires_at": expires_at});
    row(OAUTH_OWNER, "spa_access_tokens", name, &data, ttl)
}

async fn ttl_of(kind: EngineKind, bed: &Testbed, row: &Specimen) -> Option<i64> {
    let items = items(kind, &bed.table).await;
    let item = items.get(&(row.owner.clone(), format!("{}:{}", row.bucket, row.name)))?;
    Some(item.get("ttl_timestamp")?.as_n().unwrap().parse().unwrap())
}

async fn switch_on(bed: &Testbed, attribute: &str) {
    let ttl = TimeToLiveSpecification::builder().attribute_name(attribute).enabled(true).build().unwrap();
    let client = &bed.function.client;
    client.update_time_to_live().table_name(&bed.table).time_to_live_specification(ttl).send().await.unwrap();
}

async fn status_reports_whether_ttl_is_on(kind: EngineKind) {
    let bed = Testbed::new(kind).await;
    let off = run(&bed, kind, &["ttl", "status"]);
    assert_eq!(off.code, 1, "{off:?}");
    assert!(off.out.contains("TTL is off"), "{off:?}");
    let off = run(&bed, kind, &["ttl", "status", "--json"]);
    assert_eq!((off.code, off.json()["state"].clone(), off.json()["on"].clone()), (1, json!("off"), json!(false)));
    switch_on(&bed, "ttl_timestamp").await;
    let on = run(&bed, kind, &["ttl", "status"]);
    assert_eq!(on.code, 0, "{on:?}");
    assert!(on.out.contains("TTL is on for ttl_timestamp"), "{on:?}");
    let missing = janitor(engine(kind).endpoint(), "no_such_attributes", &["ttl", "status"], "");
    assert_eq!(missing.code, 2, "{missing:?}");
}

async fn enable_turns_ttl_on_once_and_only_with_apply(kind: EngineKind) {
    let bed = Testbed::new(kind).await;
    let proxy = Proxy::start(engine(kind).endpoint(), |_| proxy::Fate::Forward);
    let enable = |more: &[&str]| {
        let arguments: Vec<&str> = [&["ttl", "enable", "--json"], more].concat();
        janitor(proxy.endpoint(), &bed.table, &arguments, "")
    };
    let dry = enable(&[]);
    assert_eq!((dry.code, dry.json()["outcome"].clone()), (0, json!("would-enable")), "{dry:?}");
    assert!(!proxy.seen().contains(&"UpdateTimeToLive".to_owned()));
    let refused = enable(&["--apply"]);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(!proxy.seen().contains(&"UpdateTimeToLive".to_owned()));
    let warned = janitor(proxy.endpoint(), &bed.table, &["ttl", "enable"], "");
    assert!(warned.out.contains("warning: ") && warned.out.contains("contradiction"), "{warned:?}");
    let real = enable(&["--apply", "--yes"]);
    assert_eq!((real.code, real.json()["outcome"].clone()), (0, json!("now-on")), "{real:?}");
    let again = enable(&["--apply", "--yes"]);
    assert_eq!((again.code, again.json()["outcome"].clone()), (0, json!("was-on")), "{again:?}");
    assert_eq!(proxy.seen().iter().filter(|seen| *seen == "UpdateTimeToLive").count(), 1);
    assert_eq!(run(&bed, kind, &["ttl", "status"]).code, 0);
}

async fn another_attribute_is_refused(kind: EngineKind) {
    let bed = Testbed::new(kind).await;
    switch_on(&bed, "other").await;
    for more in [&["--apply", "--yes"][..], &[]] {
        let refused = run(&bed, kind, &[&["ttl", "enable"], more].concat());
        assert_eq!(refused.code, 2, "{refused:?}");
        assert!(refused.err.contains("attribute other, not ttl_timestamp"), "{refused:?}");
    }
    let status = run(&bed, kind, &["ttl", "status"]);
    assert_eq!(status.code, 1);
    assert!(status.out.contains("TTL is on for other, not for ttl_timestamp"), "{status:?}");
}

async fn a_row_s_ttl_is_read_set_and_removed(kind: EngineKind) {
    let at = now() + 5_000;
    let token = spa(&"a".repeat(40), now() + 3_600, Some(at));
    let bed = Testbed::with(kind, std::slice::from_ref(&token)).await;
    let before = items(kind, &bed.table).await;
    let of_row = |verb: &'static str, more: &[&'static str]| {
        let mut arguments = vec!["ttl", verb, OAUTH_OWNER, "spa_access_tokens", &token.name];
        arguments.extend(more);
        run(&bed, kind, &arguments)
    };
    let got = of_row("get", &["--json"]);
    assert_eq!((got.code, got.json()["ttl_timestamp"].clone()), (0, json!(at)), "{got:?}");
    let remaining = got.json()["remaining_seconds"].as_i64().unwrap();
    assert!((4_900..=5_000).contains(&remaining), "{remaining}");
    let got = of_row("get", &[]);
    assert!(got.out.contains(" seconds: ") && got.out.contains(&at.to_string()), "{got:?}");
    // The name from standard input.
    let arguments = ["ttl", "get", OAUTH_OWNER, "spa_access_tokens", "-", "--json"];
    let got = janitor(engine(kind).endpoint(), &bed.table, &arguments, &token.name);
    assert_eq!(got.json()["ttl_timestamp"], at, "{got:?}");

    let dry = of_row("set", &["600"]);
    assert_eq!(dry.code, 0, "{dry:?}");
    assert!(dry.out.starts_with("would set") && dry.out.contains("adds 3600 for clock skew"), "{dry:?}");
    assert!(!dry.out.contains(&token.name));
    assert_eq!(items(kind, &bed.table).await, before);
    let refused = of_row("set", &["600", "--apply"]);
    assert!(refused.code == 2 && refused.err.contains("add --yes"), "{refused:?}");
    assert_eq!(items(kind, &bed.table).await, before);
    let real = of_row("set", &["600", "--apply", "--yes", "--json"]);
    assert_eq!((real.code, real.json()["outcome"].clone()), (0, json!("set")), "{real:?}");
    let set = ttl_of(kind, &bed, &token).await.unwrap();
    assert_eq!(json!(set), real.json()["ttl_timestamp"]);
    assert!((now() + 500..=now() + 600).contains(&set), "{set}");

    assert_eq!(of_row("remove", &[]).code, 0);
    assert_eq!(ttl_of(kind, &bed, &token).await, Some(set));
    let removed = of_row("remove", &["--apply", "--yes", "--json"]);
    assert_eq!((removed.code, removed.json()["outcome"].clone()), (0, json!("removed")), "{removed:?}");
    assert_eq!(ttl_of(kind, &bed, &token).await, None);
    assert_eq!(of_row("remove", &["--apply", "--yes", "--json"]).json()["outcome"], "nothing-to-do");
    let got = of_row("get", &[]);
    assert_eq!((got.code, got.out.as_str()), (0, "none\n"));
    // Apart from its TTL the row is unchanged.
    let mut expected = before;
    expected.values_mut().for_each(|item| drop(item.remove("ttl_timestamp")));
    assert_eq!(items(kind, &bed.table).await, expected);
}

async fn warns_of_a_ttl_before_the_row_s_own_end(kind: EngineKind) {
    let now = now();
    let mcp = |name: &str, more: Value| {
        let mut data = json!({"token": name, "created_at": now - DAY});
        data.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        row("actor1", "mcp_refresh_tokens", name, &data, None)
    };
    let used = json!({"expires_at": now + 29 * DAY, "used": true, "used_at": now - DAY});
    // Each row with the end of its own life.
    let cases = [
        (spa("alive", now + DAY, None), Some(now + DAY + 301)),
        (spa("dead", now - DAY, None), Some(now - DAY + 301)),
        (mcp("rt_live", json!({"expires_at": now + 29 * DAY})), Some(now + 29 * DAY + 301)),
        // A tripwire for two days after its use, and until it expires.
        (mcp("rt_used", used), Some(now + 29 * DAY + 301)),
        // An index row has the end of its target.
        (row(OAUTH_OWNER, "_refresh_token_index", "rt_live", &json!("actor1"), None), Some(now + 29 * DAY + 301)),
        (row(OAUTH_OWNER, "_refresh_token_index", "rt_gone", &json!("actor1"), None), None),
        (row(OAUTH_OWNER, "_oauth_state_nonces", "n", &json!({"x": 1}), None), None),
    ];
    let bed = Testbed::with(kind, &cases.clone().map(|(row, _)| row)).await;
    for (row, end) in &cases {
        for (seconds, early) in [(DAY / 2, end.is_some_and(|end| end > now)), (30 * DAY, false)] {
            let seconds = seconds.to_string();
            let of_row = ["ttl", "set", &row.owner, &row.bucket, &row.name, &seconds];
            let document = run(&bed, kind, &[&of_row[..], &["--json"]].concat()).json();
            assert_eq!(
                (&document["own_end"], &document["before_own_end"]),
                (&json!(end), &json!(early)),
                "{}",
                row.name
            );
            let text = run(&bed, kind, &of_row);
            assert_eq!(text.out.contains("warning: the row itself expires later"), early, "{text:?}");
        }
    }
}

async fn no_row_is_created_and_no_foreign_row_is_changed(kind: EngineKind) {
    let mut millis = spa("millis", NOW, None);
    millis.ttl = Some(AttributeValue::N("1800000000000".to_owned()));
    let rows = [
        row("a", "_internal", "x", &json!({"a": 1}), Some(NOW)),
        row("a", "mcp_clients", "mcp_1", &json!({"client_id": "mcp_1"}), None),
        row(OAUTH_OWNER, "spa_access_tokens:archive", "x", &json!({"a": 1}), Some(NOW)),
        millis,
    ];
    let bed = Testbed::with(kind, &rows).await;
    let before = items(kind, &bed.table).await;
    for (arguments, code) in [
        (&["get", OAUTH_OWNER, "spa_access_tokens", "gone"][..], 1),
        (&["get", OAUTH_OWNER, "spa_refresh_tokens", "-gone"], 1),
        (&["set", OAUTH_OWNER, "spa_refresh_tokens", "-gone", "60", "--apply", "--yes"], 1),
        (&["set", OAUTH_OWNER, "spa_access_tokens", "gone", "60", "--apply", "--yes"], 1),
        (&["remove", OAUTH_OWNER, "spa_access_tokens", "gone", "--apply", "--yes"], 1),
        (&["set", "a", "_internal", "x", "60", "--apply", "--yes"], 2),
        (&["remove", "a", "_internal", "x", "--apply", "--yes"], 2),
        (&["set", "a", "mcp_clients", "mcp_1", "60", "--apply", "--yes"], 2),
        // The same key as a row of another bucket.
        (&["set", OAUTH_OWNER, "spa_access_tokens", "archive:x", "60", "--apply", "--yes"], 2),
        (&["set", OAUTH_OWNER, "spa_access_tokens", "x", "0", "--apply", "--yes"], 2),
        (&["set", OAUTH_OWNER, "spa_access_tokens", "x", "soon", "--apply", "--yes"], 2),
        (&["get", OAUTH_OWNER, "spa_access_tokens", "millis"], 1),
    ] {
        let ended = run(&bed, kind, &[&["ttl"], arguments].concat());
        assert_eq!(ended.code, code, "{arguments:?}: {ended:?}");
    }
    assert_eq!(items(kind, &bed.table).await, before);
}

/// Runs async work from the proxy's hook, which is not async. The work needs its own client, because the test waits for the
/// binary.
fn block_on<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    let work = move || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work);
    std::thread::spawn(work).join().unwrap()
}

/// A proxy that calls `before` before it forwards the first UpdateItem of each row.
fn before_update(kind: EngineKind, before: impl Fn(&str) + Send + 'static) -> Proxy {
    let mut done = HashSet::new();
    Proxy::start(engine(kind).endpoint(), move |request| {
        if request.operation == "UpdateItem" {
            let body: Value = serde_json::from_str(&request.body).unwrap();
            let sort = body["Key"]["bucket_name"]["S"].as_str().unwrap().to_owned();
            if done.insert(sort.clone()) {
                before(&sort);
            }
        }
        proxy::Fate::Forward
    })
}

async fn a_row_that_changes_during_a_set_is_not_written(kind: EngineKind) {
    let token = spa("moving", NOW, Some(NOW + 10));
    let bed = Testbed::with(kind, std::slice::from_ref(&token)).await;
    let table = bed.table.clone();
    let changed = spa("moving", NOW + 1, Some(NOW + 20));
    let new = changed.clone();
    let proxy = before_update(kind, move |_| {
        let (table, new) = (table.clone(), new.clone());
        block_on(async move {
            let client = bed::tables::client(engine(kind).endpoint()).await;
            bed::tables::write_rows(&client, &table, &[new]).await.unwrap();
        });
    });
    let arguments = ["ttl", "set", OAUTH_OWNER, "spa_access_tokens", "moving", "60", "--apply", "--yes", "--json"];
    let ended = janitor(proxy.endpoint(), &bed.table, &arguments, "");
    assert_eq!((ended.code, ended.json()["outcome"].clone()), (3, json!("changed-meanwhile")), "{ended:?}");
    assert_eq!(ttl_of(kind, &bed, &changed).await, Some(NOW + 20));
}

fn backfill(endpoint: &str, bed: &Testbed, more: &[&str]) -> Ended {
    let arguments = [&["ttl", "backfill", "--json", "--max-write-units", "100000"], more].concat();
    janitor(endpoint, &bed.table, &arguments, "")
}

const DAY: i64 = 86_400;

/// Rows without a TTL, and the TTL that ActingWeb 3.15.1 would have set, calculated by hand from docs/rows.md.
fn undated_rows(now: i64) -> Vec<(Specimen, i64)> {
    let created = now - 20 * DAY;
    let actor = "actor1";
    let mcp = |bucket: &str, name: &str, more: Value| {
        let mut data = json!({"token": name, "actor_id": actor, "created_at": created});
        data.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        row(actor, bucket, name, &data, None)
    };
    let index = |bucket: &str, name: &str| row(OAUTH_OWNER, bucket, name, &json!(actor), None);
    let spa_refresh = |name: &str, more: Value| row(OAUTH_OWNER, "spa_refresh_tokens", name, &more, None);
    vec![
        (row(OAUTH_OWNER, "oauth_sessions", "s1", &json!({"created_at": created}), None), created + 4_200),
        (
            row(
                OAUTH_OWNER,
                "_oauth_sessions",
                "s2",
                &json!({"created_at": created, "retrieved_at": created + 50}),
                None,
            ),
            created + 4_250,
        ),
        (spa("spa1", created, None), created + 3_600),
        // A deployment with longer lifetimes: the TTL is never before the row's own end.
        (spa("spa2", now + 90 * DAY, None), now + 90 * DAY + 3_600),
        (
            spa_refresh("r1", json!({"created_at": created, "expires_at": created + 14 * DAY, "used": false})),
            created + 14 * DAY + 3_600,
        ),
        (
            spa_refresh(
                "r2",
                json!({"created_at": created, "expires_at": created + 14 * DAY, "used": true, "used_at": created + DAY}),
            ),
            created + 14 * DAY + 3_600,
        ),
        (
            mcp(
                "mcp_tokens",
                "aw_1",
                json!({"expires_at": created + 3_600, "google_token_key": "google_token_access_1"}),
            ),
            created + 7_200,
        ),
        (index("access_token_index", "aw_1"), created + 3_600 + 7_200 + 3_600),
        (index("_access_token_index", "aw_1"), created + 3_600 + 7_200 + 3_600),
        (
            row(actor, "mcp_google_tokens", "google_token_access_1", &json!({"refresh_token": "x"}), None),
            created + 7_200,
        ),
        // The token lives longer than the library's constant: so do its TTL and that of its index row.
        (mcp("mcp_tokens", "aw_2", json!({"expires_at": now + 90 * DAY})), now + 90 * DAY + 3_600),
        (index("_access_token_index", "aw_2"), now + 90 * DAY + 7_200 + 3_600),
        // From 3.14.7 or earlier: it expires before the TTL.
        (mcp("mcp_refresh_tokens", "rt_1", json!({"expires_at": created + 14 * DAY})), created + 30 * DAY + 3_600),
        (index("_refresh_token_index", "rt_1"), created + 30 * DAY + 7_200 + 3_600),
        (
            mcp(
                "mcp_refresh_tokens",
                "rt_2",
                json!({"expires_at": created + 30 * DAY, "used": true, "used_at": now - DAY}),
            ),
            created + 30 * DAY + 3_600,
        ),
        (index("refresh_token_index", "rt_2"), created + 30 * DAY + 7_200 + 3_600),
        (
            mcp(
                "mcp_auth_codes",
                "ac_1",
                json!({"expires_at": created + 600, "google_token_key": "google_token_ac_1"}),
            ),
            created + 4_200,
        ),
        (index("_auth_code_index", "ac_1"), created + 600 + 7_200 + 3_600),
        (row(actor, "mcp_google_tokens", "google_token_ac_1", &json!({"refresh_token": "x"}), None), created + 7_200),
        (
            row(OAUTH_OWNER, "_id_token_replay", "m1", &json!({"seen_at": created, "exp": created + 600}), None),
            created + 900 + 3_600,
        ),
        (
            row(OAUTH_OWNER, "_id_token_replay", "m2", &json!({"seen_at": created, "exp": created + 6_000}), None),
            created + 6_060 + 3_600,
        ),
        (
            row(OAUTH_OWNER, "_id_token_replay", "m3", &json!({"seen_at": created, "exp": 0}), None),
            created + 900 + 3_600,
        ),
        (row(OAUTH_OWNER, "_apple_exchange_tickets", "t1", &json!({"expires_at": created}), None), created + 3_600),
    ]
}

async fn a_backfilled_row_gets_the_ttl_that_follows_from_its_fields(kind: EngineKind) {
    let expected = undated_rows(now());
    let rows: Vec<Specimen> = expected.iter().map(|(row, _)| row.clone()).collect();
    let bed = Testbed::with(kind, &rows).await;
    let before = items(kind, &bed.table).await;
    let dry = backfill(engine(kind).endpoint(), &bed, &[]);
    assert_eq!((dry.code, dry.json()["set"].clone()), (0, json!(rows.len())), "{dry:?}");
    assert_eq!(items(kind, &bed.table).await, before);
    let real = backfill(engine(kind).endpoint(), &bed, &["--apply", "--yes"]);
    assert_eq!((real.code, real.json()["set"].clone()), (0, json!(rows.len())), "{real:?}");
    for (row, at) in &expected {
        assert_eq!(ttl_of(kind, &bed, row).await, Some(*at), "{} {}", row.bucket, row.name);
    }
    let mut after = items(kind, &bed.table).await;
    after.values_mut().for_each(|item| drop(item.remove("ttl_timestamp")));
    assert_eq!(after, before);
    let again = backfill(engine(kind).endpoint(), &bed, &["--apply", "--yes"]);
    assert_eq!((again.code, again.json()["set"].clone()), (0, json!(0)));
}

async fn a_row_without_a_usable_time_is_skipped_and_counted(kind: EngineKind) {
    let odd = |bucket: &str, name: &str, data: Value| row(OAUTH_OWNER, bucket, name, &data, None);
    let mut milliseconds = spa("ms", NOW, None);
    milliseconds.ttl = Some(AttributeValue::N(format!("{NOW}000")));
    let mut without_data = spa("nothing", NOW, None);
    without_data.data = None;
    let rows: Vec<(Specimen, &str)> = vec![
        (spa("has", NOW, Some(NOW)), "has_ttl"),
        (milliseconds, "malformed_ttl"),
        (without_data, "malformed"),
        (odd("spa_access_tokens", "text", json!("text")), "malformed"),
        (odd("spa_access_tokens", "no-expiry", json!({"created_at": NOW})), "malformed"),
        (odd("spa_access_tokens", "in-ms", json!({"expires_at": NOW * 1_000})), "malformed"),
        (odd("spa_refresh_tokens", "used", json!({"expires_at": NOW, "used": true})), "used_unknown_when"),
        (odd("spa_access_tokens", "ancient", json!({"created_at": 5, "expires_at": 9})), "too_old"),
        (odd("_oauth_state_nonces", "n", json!({"created_at": NOW})), "no_time"),
        (odd("_apple_exchange_tickets", "t", json!({"code": "x"})), "no_time"),
        (odd("_access_token_index", "aw_gone", json!("nobody")), "target_absent"),
        (odd("_access_token_index", "aw_odd", json!({"no": "actor"})), "malformed"),
        (odd("_refresh_token_index", "rt_used", json!("a")), "target_unreadable"),
        (
            row(
                "a",
                "mcp_refresh_tokens",
                "rt_used",
                &json!({"created_at": NOW, "expires_at": NOW, "used": true}),
                None,
            ),
            "used_unknown_when",
        ),
        (row("a", "mcp_google_tokens", "google_token_access_9", &json!({"x": 1}), None), "unreferenced"),
        (row("a", "mcp_clients", "mcp_1", &json!({"created_at": NOW}), None), "permanent"),
        (odd("_client_index", "mcp_1", json!("a")), "permanent"),
        (row("_mcp_system", "access_token_index", "aw_3", &json!("a"), None), "permanent"),
        (row("a", "_internal", "x", &json!({"created_at": NOW, "expires_at": NOW}), None), "unknown"),
        (odd("spa_access_tokens:x", "y", json!({"created_at": NOW, "expires_at": NOW})), "unknown"),
    ];
    let specimens: Vec<Specimen> = rows.iter().map(|(row, _)| row.clone()).collect();
    let bed = Testbed::with(kind, &specimens).await;
    let before = items(kind, &bed.table).await;
    let ended = backfill(engine(kind).endpoint(), &bed, &["--apply", "--yes"]);
    assert_eq!((ended.code, ended.json()["set"].clone()), (0, json!(0)), "{ended:?}");
    assert_eq!(items(kind, &bed.table).await, before);
    let mut expected: BTreeMap<(String, String), u64> = BTreeMap::new();
    for (row, reason) in &rows {
        let bucket = if *reason == "unknown" { "(unknown)" } else { row.bucket.as_str() };
        *expected.entry((bucket.to_owned(), (*reason).to_owned())).or_default() += 1;
    }
    let report = ended.json();
    let mut left = BTreeMap::new();
    for (bucket, counts) in report["buckets"].as_object().unwrap() {
        for (reason, n) in counts["left"].as_object().unwrap() {
            left.insert((bucket.clone(), reason.clone()), n.as_u64().unwrap());
        }
    }
    assert_eq!(left, expected);
}

async fn a_row_that_is_deleted_in_the_meantime_is_not_written_again(kind: EngineKind) {
    let rows = ["deleted", "changed", "dated", "same"].map(|name| spa(name, now(), None));
    let bed = Testbed::with(kind, &rows).await;
    let table = bed.table.clone();
    let changed = spa("changed", now() + 9, None);
    let new = [changed.clone(), spa("dated", now(), Some(77_777))];
    let proxy = before_update(kind, move |sort| {
        let (table, sort, new) = (table.clone(), sort.to_owned(), new.clone());
        block_on(async move {
            let client = bed::tables::client(engine(kind).endpoint()).await;
            let name = sort.rsplit(':').next().unwrap();
            if let Some(new) = new.into_iter().find(|row| row.name == name) {
                bed::tables::write_rows(&client, &table, &[new]).await.unwrap();
            }
            if name == "deleted" {
                let key = |value: &str| AttributeValue::S(value.to_owned());
                client
                    .delete_item()
                    .table_name(table)
                    .key("id", key(OAUTH_OWNER))
                    .key("bucket_name", key(&sort))
                    .send()
                    .await
                    .unwrap();
            }
        });
    });
    let ended = backfill(proxy.endpoint(), &bed, &["--apply", "--yes"]);
    let report = ended.json();
    assert_eq!((ended.code, &report["set"], &report["lost_race"]), (0, &json!(1), &json!(3)), "{ended:?}");
    assert_eq!(bed.keys().await.len(), 3, "a deleted row was written again");
    assert_eq!(ttl_of(kind, &bed, &changed).await, None, "a row that changed got a TTL");
    assert_eq!(ttl_of(kind, &bed, &rows[2]).await, Some(77_777));
    assert!(ttl_of(kind, &bed, &rows[3]).await.is_some());
}

async fn a_lost_response_is_not_a_lost_race(kind: EngineKind) {
    let rows = ["one", "two"].map(|name| spa(name, now(), None));
    let bed = Testbed::with(kind, &rows).await;
    let mut cut = false;
    let proxy = Proxy::start(engine(kind).endpoint(), move |request| {
        if request.operation == "UpdateItem" && !std::mem::replace(&mut cut, true) {
            return proxy::Fate::ResetAfter;
        }
        proxy::Fate::Forward
    });
    let report = backfill(proxy.endpoint(), &bed, &["--apply", "--yes"]).json();
    assert_eq!((&report["set"], &report["lost_race"], &report["skipped"]), (&json!(2), &json!(0), &json!(0)));
}

async fn a_store_error_stops_the_backfill_and_the_next_finishes(kind: EngineKind) {
    let rows: Vec<Specimen> = (0..60).map(|i| spa(&format!("token{i:02}"), now(), None)).collect();
    let bed = Testbed::with(kind, &rows).await;
    let passed = Arc::new(Mutex::new(0));
    let count = Arc::clone(&passed);
    let proxy = Proxy::start(engine(kind).endpoint(), move |request| {
        let mut passed = count.lock().unwrap();
        if request.operation == "UpdateItem" {
            *passed += 1;
            if *passed > 20 {
                let body = json!({"__type": "com.amazonaws.dynamodb.v20120810#AccessDeniedException", "message": "no"});
                return proxy::Fate::Answer(400, body.to_string());
            }
        }
        proxy::Fate::Forward
    });
    let ended = backfill(proxy.endpoint(), &bed, &["--apply", "--yes"]);
    assert_eq!(ended.code, 3, "{ended:?}");
    assert!(ended.err.contains("UpdateItem") && ended.err.contains("denied"), "{ended:?}");
    assert_eq!((&ended.json()["complete"], &ended.json()["set"]), (&json!(false), &json!(20)), "{ended:?}");
    let ended = backfill(engine(kind).endpoint(), &bed, &["--apply", "--yes"]);
    assert_eq!((ended.code, ended.json()["set"].clone()), (0, json!(40)), "{ended:?}");
}

async fn an_interrupt_stops_it_after_the_requests_in_flight(kind: EngineKind) {
    let rows: Vec<Specimen> = (0..200).map(|i| spa(&format!("token{i:03}"), now(), None)).collect();
    let bed = Testbed::with(kind, &rows).await;
    let proxy = Proxy::start(engine(kind).endpoint(), |_| proxy::Fate::Forward);
    let program = Command::new(function("janitor"))
        .args(["ttl", "backfill", "--apply", "--yes", "--json", "--max-write-units", "10"])
        .args(["--endpoint", proxy.endpoint(), "--table", &bed.table])
        .env_clear()
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let updates = || proxy.seen().iter().filter(|seen| *seen == "UpdateItem").count();
    while updates() < 15 {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(Command::new("kill").args(["-INT", &program.id().to_string()]).status().unwrap().success());
    let output = program.wait_with_output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &report["outcome"]), (Some(3), &json!("stopped")), "{report}");
    let set = report["set"].as_u64().unwrap();
    assert!((15..60).contains(&set), "{report}");
    assert_eq!(set, updates() as u64, "requests in flight were not finished, or new ones were started");
    let dated = items(kind, &bed.table).await.values().filter(|item| item.contains_key("ttl_timestamp")).count();
    assert_eq!(dated as u64, set, "the count differs from the table");
}

async fn asks_for_confirmation_before_it_writes(kind: EngineKind) {
    let mut rows = fixture::all_kinds(now(), 1, 4);
    rows.iter_mut().for_each(|row| row.ttl = None);
    let bed = Testbed::with(kind, &rows).await;
    let before = items(kind, &bed.table).await;
    let refused = run(&bed, kind, &["ttl", "backfill", "--apply"]);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.err.contains("add --yes"), "{refused:?}");
    let proxy = Proxy::start(engine(kind).endpoint(), |_| proxy::Fate::Forward);
    let dry = janitor(proxy.endpoint(), &bed.table, &["ttl", "backfill"], "");
    assert_eq!(dry.code, 0, "{dry:?}");
    assert!(dry.out.contains("dry run") && dry.out.contains("would set"), "{dry:?}");
    let reads = ["DescribeTable", "Query", "BatchGetItem", "Scan"];
    assert!(proxy.seen().iter().all(|operation| reads.contains(&operation.as_str())), "{:?}", proxy.seen());
    assert_eq!(items(kind, &bed.table).await, before);
}
