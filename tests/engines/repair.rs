//! The index repair: no dangling index row and no unreachable row is left, and no revoked token becomes usable.

use bed::Invocations as _;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
};
use bed::Testbed;
use bed::engine::{EngineKind, kinds, shared as engine};
use bed::fixture::{Fate, Specimen};
use bed::proxy::{self, Proxy};
use bed::tables::write_rows;
use jobs::run::report::Outcome;
use model::rows::NOW;
use serde_json::{Value, json};
use shared::pyjson::dumps;
use shared::time::EpochSeconds;

const OAUTH: &str = "_actingweb_oauth2";
const HOUR: i64 = 3_600;
/// The default grace period, and the slack for the clock that dated a row.
const SETTLED: i64 = HOUR + 300;
const DAY: i64 = 86_400;

fn put(owner: &str, bucket: &str, name: &str, data: &Value, ttl: Option<i64>, fate: Fate) -> Specimen {
    Specimen {
        owner: owner.to_owned(),
        bucket: bucket.to_owned(),
        name: name.to_owned(),
        data: Some(AttributeValue::S(dumps(data))),
        ttl: ttl.map(|at| AttributeValue::N(at.to_string())),
        fate,
    }
}

async fn repair(bed: &Testbed, event: Value) -> jobs::run::report::RunReport {
    bed.function.index_repair(event, EpochSeconds::new(NOW), None).await.unwrap()
}

/// A state of a refresh token, and whether the repair deletes it without an index row.
struct State {
    name: &'static str,
    data: Value,
    ttl: Option<i64>,
    unindexed: Fate,
}

/// Every state of a token. With an index row the repair keeps it in all of them: a live token is in use, and a dead one is
/// left to the daily cleanup.
fn states() -> Vec<State> {
    use Fate::{Deleted, Kept};
    let alive = NOW + 20 * DAY;
    let state = |name, data, ttl, unindexed| State { name, data, ttl, unindexed };
    vec![
        state("just written", json!({"created_at": NOW - 5, "expires_at": alive, "used": false}), Some(alive), Kept),
        state(
            "as old as the grace period and the slack",
            json!({"created_at": NOW - SETTLED, "expires_at": alive, "used": false}),
            Some(alive),
            Kept,
        ),
        state(
            "older: unusable, perhaps revoked",
            json!({"created_at": NOW - SETTLED - 1, "expires_at": alive, "used": false}),
            Some(alive),
            Deleted,
        ),
        state("older, from before TTLs", json!({"created_at": NOW - 9 * DAY, "expires_at": alive}), None, Deleted),
        state(
            "written by a clock ahead",
            json!({"created_at": NOW + HOUR, "expires_at": alive, "used": false}),
            Some(alive),
            Kept,
        ),
        state("expired", json!({"created_at": NOW - 40 * DAY, "expires_at": NOW - 301, "used": false}), None, Deleted),
        state(
            "inside the slack, old",
            json!({"created_at": NOW - 40 * DAY, "expires_at": NOW - 300, "used": false}),
            None,
            Deleted,
        ),
        state(
            "consumed, inside its window",
            json!({"created_at": NOW - 9 * DAY, "expires_at": alive, "used": true, "used_at": NOW - DAY}),
            None,
            Kept,
        ),
        state(
            "consumed, past window and expiry",
            json!({"created_at": NOW - 40 * DAY, "expires_at": NOW - 301, "used": true, "used_at": NOW - 3 * DAY}),
            None,
            Deleted,
        ),
        state(
            "consumed, time unknown",
            json!({"created_at": NOW - 40 * DAY, "expires_at": alive, "used": true}),
            None,
            Kept,
        ),
        state(
            "consumed, TTL past",
            json!({"created_at": NOW - 9 * DAY, "expires_at": alive, "used": true, "used_at": NOW - DAY}),
            Some(NOW - 1),
            Deleted,
        ),
        state("age unknown", json!({"expires_at": alive, "used": false}), None, Kept),
        state("age unknown, TTL past", json!({"used": false}), Some(NOW - 1), Deleted),
        state(
            "alive by its fields, TTL past, old",
            json!({"created_at": NOW - 9 * DAY, "expires_at": alive, "used": false}),
            Some(NOW - 1),
            Deleted,
        ),
    ]
}

#[tokio::test]
async fn judges_every_combination_of_index_rows_token_and_provider_row() {
    let mut rows = Vec::new();
    let mut n = 0;
    for state in states() {
        for index in [
            vec![],
            vec!["refresh_token_index"],
            vec!["_refresh_token_index"],
            vec!["refresh_token_index", "_refresh_token_index"],
        ] {
            // (TTL of the provider row, whether it is dead by that alone)
            for provider in [None, Some((Some(NOW - 1), true)), Some((Some(NOW + HOUR), false)), Some((None, false))] {
                n += 1;
                let (actor, token, key) = (format!("actor{n}"), format!("rt_{n}"), format!("google_token_access_{n}"));
                let fate = if index.is_empty() { state.unindexed } else { Fate::Kept };
                let mut data = state.data.clone();
                if let Some((ttl, past)) = provider {
                    data["google_token_key"] = json!(key);
                    // Deleted because of its TTL, or with its token.
                    let provider_fate = if past { Fate::Deleted } else { fate };
                    rows.push(put(
                        &actor,
                        "mcp_google_tokens",
                        &key,
                        &json!({"refresh_token": state.name}),
                        ttl,
                        provider_fate,
                    ));
                }
                rows.push(put(&actor, "mcp_refresh_tokens", &token, &data, state.ttl, fate));
                // The index rows' TTL is ahead: only their target matters.
                rows.extend(
                    index.iter().map(|index| put(OAUTH, index, &token, &json!(actor), Some(NOW + DAY), Fate::Kept)),
                );
            }
        }
    }
    assert_eq!(n, 14 * 4 * 4);
    for kind in kinds() {
        let bed = Testbed::with(kind, &rows).await;
        let dry = repair(&bed, json!({"mode": "dry-run"})).await;
        let report = repair(&bed, json!({})).await;
        assert_eq!((report.outcome, &report.counts), (Outcome::Complete, &dry.counts));
        bed.check(&rows).await;
        let second = repair(&bed, json!({})).await;
        assert_eq!(second.counts.rows_deleted(), 0, "a second run changes nothing");
    }
}

#[tokio::test]
async fn deletes_every_kind_of_dangling_index_row_and_old_unreferenced_provider_rows() {
    let mut rows = Vec::new();
    for (index, target) in [
        ("auth_code_index", "mcp_auth_codes"),
        ("access_token_index", "mcp_tokens"),
        ("refresh_token_index", "mcp_refresh_tokens"),
        ("client_index", "mcp_clients"),
    ] {
        for index in [index.to_owned(), format!("_{index}")] {
            for (name, ttl) in [("past", Some(NOW - 1)), ("ahead", Some(NOW + 20 * DAY)), ("none", None)] {
                rows.push(put(OAUTH, &index, &format!("gone-{name}"), &json!("deleted-actor"), ttl, Fate::Deleted));
            }
            rows.push(put(OAUTH, &index, "malformed", &json!({"actor": 1}), None, Fate::Kept));
            rows.push(put(OAUTH, &index, &format!("there{index}"), &json!("actor"), None, Fate::Kept));
            let record = json!({"created_at": NOW - 5, "expires_at": NOW + DAY});
            rows.push(put("actor", target, &format!("there{index}"), &record, None, Fate::Kept));
        }
    }
    // The age of a provider row follows from its TTL: two hours after it was written.
    for (name, ttl, fate) in [
        ("dead", Some(NOW - 1), Fate::Deleted),
        ("just written", Some(NOW + 2 * HOUR), Fate::Kept),
        ("as old as the grace period and the slack", Some(NOW + 2 * HOUR - SETTLED), Fate::Kept),
        ("older", Some(NOW + 2 * HOUR - SETTLED - 1), Fate::Deleted),
        ("age unknown", None, Fate::Kept),
    ] {
        rows.push(put("another", "mcp_google_tokens", name, &json!({"refresh_token": "x"}), ttl, fate));
    }
    // A token that only Python can read still needs its provider row.
    rows.push(put(
        "third",
        "mcp_google_tokens",
        "google_token_nan",
        &json!({"refresh_token": "x"}),
        Some(NOW + HOUR - 301),
        Fate::Kept,
    ));
    rows.push(Specimen {
        data: Some(AttributeValue::S("{\"score\": NaN, \"google_token_key\": \"google_token_nan\"}".to_owned())),
        ..put("third", "mcp_tokens", "aw_nan", &json!(1), Some(NOW + HOUR), Fate::Kept)
    });
    rows.push(put(OAUTH, "_access_token_index", "aw_nan", &json!("third"), None, Fate::Kept));
    for kind in kinds() {
        let bed = Testbed::with(kind, &rows).await;
        assert_eq!(repair(&bed, json!({})).await.outcome, Outcome::Complete);
        bed.check(&rows).await;
    }
}

#[tokio::test]
async fn an_unreachable_row_of_unknown_age_is_deleted_when_seen_again_after_the_grace_period() {
    let rows = [
        put(
            "actor",
            "mcp_refresh_tokens",
            "rt_ageless",
            &json!({"expires_at": NOW + 90 * DAY, "used": false}),
            None,
            Fate::Deleted,
        ),
        put("actor", "mcp_google_tokens", "google_token_ageless", &json!({"refresh_token": "x"}), None, Fate::Deleted),
    ];
    for kind in kinds() {
        let bed = Testbed::with(kind, &rows).await;
        let at = async |now: i64, event: Value| {
            bed.function.index_repair(event, EpochSeconds::new(now), None).await.unwrap()
        };
        assert_eq!(at(NOW, json!({})).await.counts.rows_deleted(), 0, "seen once");
        assert_eq!(at(NOW + HOUR, json!({})).await.counts.rows_deleted(), 0, "seen twice, but too soon");
        // An incomplete run and the run that finishes it keep the times.
        let more = put(
            "zz",
            "mcp_tokens",
            "aw_1",
            &json!({"created_at": NOW - DAY, "expires_at": NOW + DAY}),
            None,
            Fate::Deleted,
        );
        let more = [more.clone(), Specimen { name: "aw_2".to_owned(), ..more }];
        write_rows(&bed.function.client, &bed.table, &more).await.unwrap();
        while !at(NOW + HOUR, json!({"max_deletes": 1})).await.outcome.is_complete() {}
        assert_eq!(at(NOW + 2 * HOUR, json!({"mode": "dry-run"})).await.counts.rows_deleted(), 2);
        assert_eq!(at(NOW + 2 * HOUR, json!({})).await.counts.rows_deleted(), 2);
        bed.check(&rows).await;
    }
}

/// The application writes the provider row, then the token row, then the index row.
#[tokio::test]
async fn a_writer_between_two_writes_loses_nothing() {
    let written = [
        put(
            "actor",
            "mcp_google_tokens",
            "google_token_access_1",
            &json!({"refresh_token": "x"}),
            Some(NOW + 2 * HOUR),
            Fate::Kept,
        ),
        put(
            "actor",
            "mcp_tokens",
            "aw_1",
            &json!({"created_at": NOW, "expires_at": NOW + HOUR, "google_token_key": "google_token_access_1"}),
            Some(NOW + 2 * HOUR),
            Fate::Kept,
        ),
        put(OAUTH, "_access_token_index", "aw_1", &json!("actor"), Some(NOW + 4 * HOUR), Fate::Kept),
    ];
    for kind in kinds() {
        for count in 1..=3 {
            for age in [0, 1, 60, HOUR] {
                let bed = Testbed::with(kind, &written[..count]).await;
                let now = EpochSeconds::new(NOW + age);
                bed.function.index_repair(json!({}), now, None).await.unwrap();
                bed.function.daily_cleanup(json!({}), now, None).await.unwrap();
                bed.check(&written[..count]).await;
            }
        }
    }
}

#[tokio::test]
async fn rows_of_release_3_2_1_are_deleted_only_on_request() {
    for kind in kinds() {
        let mut rows: Vec<Specimen> = ["_mcp_system", "_mcp_global"]
            .into_iter()
            .flat_map(|owner| ["auth_code_index", "access_token_index", "client_index"].map(|bucket| (owner, bucket)))
            .map(|(owner, bucket)| put(owner, bucket, "n", &json!("actor"), None, Fate::Kept))
            .collect();
        rows.push(put("_mcp_system", "something_else", "n", &json!("x"), None, Fate::Kept));
        let bed = Testbed::with(kind, &rows).await;
        let report = repair(&bed, json!({})).await;
        assert_eq!((report.counts.rows_deleted(), &report.findings["legacy_rows"]), (0, &json!(7)));
        bed.check(&rows).await;
        assert_eq!(repair(&bed, json!({"remove_legacy": true})).await.counts.rows_deleted(), 6);
        assert_eq!(bed.keys().await.len(), 1, "a row of an unknown bucket was deleted");
    }
}

async fn actors_table(client: &Client, prefix: &str, ids: &[&str]) {
    let table = format!("{prefix}_actors");
    let key = KeySchemaElement::builder().attribute_name("id").key_type(KeyType::Hash).build().unwrap();
    let text =
        AttributeDefinition::builder().attribute_name("id").attribute_type(ScalarAttributeType::S).build().unwrap();
    client
        .create_table()
        .table_name(&table)
        .billing_mode(BillingMode::PayPerRequest)
        .key_schema(key)
        .attribute_definitions(text)
        .send()
        .await
        .unwrap();
    for id in ids {
        client.put_item().table_name(&table).item("id", AttributeValue::S((*id).to_owned())).send().await.unwrap();
    }
}

#[tokio::test]
async fn rows_of_absent_actors_are_reported_and_never_deleted() {
    let rows: Vec<Specimen> = [
        ("there", "_internal"),
        ("gone", "_internal"),
        ("gone", "trust_permissions"),
        ("_actingweb_other", "x"),
        (OAUTH, "_client_index_archive"),
    ]
    .map(|(owner, bucket)| put(owner, bucket, "n", &json!({"x": 1}), None, Fate::Kept))
    .into_iter()
    .chain([put("there", "mcp_clients", "mcp_1", &json!({"client_id": "mcp_1"}), None, Fate::Kept)])
    .collect();
    for kind in kinds() {
        // Without an actors' table, or with an empty one, no actor is reported as absent.
        let bed = Testbed::with(kind, &rows).await;
        let report = repair(&bed, json!({})).await;
        assert_eq!(report.findings["absent_actors"], Value::Null);
        assert!(report.notes[0].contains("_actors does not exist"), "{:?}", report.notes);
        actors_table(&bed.function.client, &bed.prefix, &[]).await;
        let report = repair(&bed, json!({})).await;
        assert_eq!(report.findings["rows_of_absent_actors"], Value::Null);
        assert!(report.notes[0].contains("the actors' table is empty"), "{:?}", report.notes);

        let bed = Testbed::with(kind, &rows).await;
        actors_table(&bed.function.client, &bed.prefix, &["there", "somebody"]).await;
        let report = repair(&bed, json!({})).await;
        assert_eq!(
            (&report.findings["absent_actors"], &report.findings["rows_of_absent_actors"]),
            (&json!(1), &json!(2))
        );
        bed.check(&rows).await;
    }
}

#[tokio::test]
async fn a_row_whose_key_does_not_match_its_bucket_affects_no_other_row() {
    for kind in kinds() {
        let alive = json!({"created_at": NOW - 9 * DAY, "expires_at": NOW + DAY, "used": false});
        let rows: Vec<Specimen> = (0..20)
            .flat_map(|i| {
                let (actor, token) = (format!("actor{}", i / 4), format!("rt_{i}"));
                let indexed = i % 2 == 0;
                let fate = if indexed { Fate::Kept } else { Fate::Deleted };
                let row = put(&actor, "mcp_refresh_tokens", &token, &alive, None, fate);
                let index = put(OAUTH, "_refresh_token_index", &token, &json!(actor), None, Fate::Kept);
                if indexed { vec![row, index] } else { vec![row] }
            })
            .collect();
        let bed = Testbed::with(kind, &rows).await;
        // The bucket of a token under an invalid key; sorted before, between and after the others.
        for sort in ["a", "mcp_refresh_tokens", "mcp_refresh_tokens-", "z"] {
            for actor in ["actor0", "actor3"] {
                let text = |text: &str| AttributeValue::S(text.to_owned());
                let put = bed.function.client.put_item().table_name(&bed.table).item("id", text(actor));
                let put = put
                    .item("bucket_name", text(sort))
                    .item("bucket", text("mcp_refresh_tokens"))
                    .item("name", text("n"));
                put.item("data", text(&dumps(&alive))).send().await.unwrap();
            }
        }
        let report = repair(&bed, json!({})).await;
        assert_eq!(report.counts.rows_deleted(), 10);
        bed.check(&rows).await;
        assert_eq!(
            bed.keys().await.iter().filter(|(_, sort)| !sort.contains(':')).count(),
            8,
            "rows with an invalid key were deleted"
        );
    }
}

#[tokio::test]
async fn a_denied_read_of_the_actors_does_not_stop_the_repair() {
    let rows = unindexed_tokens(30);
    let bed = Testbed::with(EngineKind::Embedded, &rows).await;
    actors_table(&bed.function.client, &bed.prefix, &["somebody"]).await;
    let denied = r#"{"__type": "com.amazon.coral.service#AccessDeniedException", "Message": "no"}"#;
    let proxy = Proxy::start(engine(EngineKind::Embedded).endpoint(), move |request| {
        if request.operation == "BatchGetItem" && request.body.contains("_actors") {
            return proxy::Fate::Answer(400, denied.to_owned());
        }
        proxy::Fate::Forward
    });
    let function = bed.through(&proxy).await;
    let report = function.index_repair(json!({}), EpochSeconds::new(NOW), None).await.unwrap();
    assert_eq!((report.outcome, report.counts.rows_deleted()), (Outcome::Complete, 30));
    assert_eq!(report.findings["absent_actors"], Value::Null);
    assert!(report.notes[0].contains("_actors was denied"), "{:?}", report.notes);
}

/// Unindexed tokens of many owners, so that every segment has some.
fn unindexed_tokens(actors: usize) -> Vec<Specimen> {
    (0..actors)
        .map(|i| {
            let data = json!({"created_at": NOW - 2 * DAY, "expires_at": NOW + DAY, "actor_id": format!("a{i}")});
            put(&format!("actor{i:04}"), "mcp_tokens", &format!("aw_{i}"), &data, None, Fate::Deleted)
        })
        .collect()
}

#[tokio::test]
async fn a_run_that_is_killed_in_segment_3_of_8_is_resumed_in_segment_3() {
    let rows = unindexed_tokens(400);
    for kind in kinds() {
        let bed = Testbed::with(kind, &rows).await;
        // With MAX_DELETES segments run one after another, so that the segment of the kill is known.
        let event = || json!({"max_deletes": 1_000_000});
        let killed = Arc::new(AtomicBool::new(false));
        let is_killed = Arc::clone(&killed);
        let proxy = Proxy::start(engine(kind).endpoint(), move |request| {
            if request.operation == "Scan" && request.body.contains("\"Segment\":3") {
                is_killed.store(true, Ordering::Relaxed);
            }
            if is_killed.load(Ordering::Relaxed) { proxy::Fate::ResetBefore } else { proxy::Fate::Forward }
        });
        let function = bed.through(&proxy).await;
        let until_killed = async {
            while !killed.load(Ordering::Relaxed) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::select! {
            ended = function.index_repair(event(), EpochSeconds::new(NOW), None) => panic!("not killed: {ended:?}"),
            () = until_killed => {}
        }
        let left = bed.keys().await.len();
        assert!(left < 400 && left > 100, "three of eight segments should be done: {left} left");

        let segments: Arc<std::sync::Mutex<BTreeSet<String>>> = Arc::default();
        let seen = Arc::clone(&segments);
        let proxy = Proxy::start(engine(kind).endpoint(), move |request| {
            if request.operation == "Scan" && !request.body.contains("_actors") {
                let body: Value = serde_json::from_str(&request.body).unwrap();
                seen.lock().unwrap().insert(format!("{} of {}", body["Segment"], body["TotalSegments"]));
            }
            proxy::Fate::Forward
        });
        let function = bed.through(&proxy).await;
        let report = function.index_repair(event(), EpochSeconds::new(NOW + 90), None).await.unwrap();
        assert!(report.resumed);
        assert_eq!(report.outcome, Outcome::Complete);
        let mut scanned = segments.lock().unwrap().clone();
        // The check that it is an attributes table reads one page.
        scanned.remove("0 of 1");
        assert_eq!(scanned.into_iter().collect::<Vec<_>>(), ["3 of 8", "4 of 8", "5 of 8", "6 of 8", "7 of 8"]);
        bed.check(&rows).await;
    }
}

#[tokio::test]
async fn stops_at_its_deadline_and_at_max_deletes_and_the_next_run_continues() {
    bed::clock::pause();
    let rows = unindexed_tokens(3_000);
    for (event, budget) in [
        (json!({"max_deletes": 700}), None),
        (json!({"max_write_units_per_second": 400}), Some(Duration::from_secs(3))),
    ] {
        let bed = Testbed::with(EngineKind::Embedded, &rows).await;
        let mut runs = 0;
        loop {
            let report = bed.function.index_repair(event.clone(), EpochSeconds::new(NOW), budget).await.unwrap();
            runs += 1;
            if report.outcome.is_complete() {
                break;
            }
            let expected = if budget.is_some() { Outcome::OutOfTime } else { Outcome::MaxDeletes };
            assert_eq!(report.outcome, expected);
            assert!(budget.is_some() || report.counts.rows_deleted() == 700);
            assert!(runs < 30, "not finished after 30 runs");
        }
        assert!(runs > 2, "{runs}");
        bed.check(&rows).await;
    }
}

#[tokio::test]
async fn the_repair_and_the_daily_cleanup_share_one_lease() {
    let bed = Arc::new(Testbed::with(EngineKind::Embedded, &unindexed_tokens(50)).await);
    let (other, met) = (Arc::clone(&bed), Arc::new(AtomicBool::new(false)));
    let seen = Arc::clone(&met);
    let proxy = Proxy::start(engine(EngineKind::Embedded).endpoint(), move |request| {
        if request.operation == "BatchExecuteStatement" && !seen.swap(true, Ordering::Relaxed) {
            let other = Arc::clone(&other);
            let daily = std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(other.function.daily_cleanup(json!({}), EpochSeconds::new(NOW), None)).unwrap()
            });
            assert_eq!(daily.join().unwrap().outcome, Outcome::LeaseHeld);
        }
        proxy::Fate::Forward
    });
    let function = bed.through(&proxy).await;
    let report = function.index_repair(json!({}), EpochSeconds::new(NOW), None).await.unwrap();
    assert!(met.load(Ordering::Relaxed));
    assert_eq!((report.outcome, report.counts.rows_deleted()), (Outcome::Complete, 50));
}

#[tokio::test]
async fn a_failed_read_is_not_taken_as_absence() {
    bed::clock::pause();
    let rows: Vec<Specimen> =
        unindexed_tokens(40)
            .into_iter()
            .chain((0..40).map(|i| {
                put(OAUTH, "_access_token_index", &format!("dangling{i}"), &json!("nobody"), None, Fate::Deleted)
            }))
            .collect();
    for kind in kinds() {
        let bed = Testbed::with(kind, &rows).await;
        let before = bed.keys().await;
        let proxy = Proxy::start(engine(kind).endpoint(), |request| match request.operation.as_str() {
            "BatchGetItem" if request.is_work("BatchGetItem") => proxy::unprocessed(request),
            _ => proxy::Fate::Forward,
        });
        let function = bed.through(&proxy).await;
        match function.index_repair(json!({}), EpochSeconds::new(NOW), None).await {
            Ok(report) => assert_eq!((report.outcome, report.counts.rows_skipped()), (Outcome::Skipped, 80)),
            Err(error) => assert_eq!(error.kind(), "Store"),
        }
        assert_eq!(bed.keys().await, before);
    }
}

/// The library deletes a client's index row first. A record that remained must not be found again through its old-name row.
#[tokio::test]
async fn a_client_that_is_deleted_after_its_restore_is_not_restored_again() {
    let record = json!({"client_id": "mcp_1", "created_at": NOW - 900 * DAY});
    let index_row = |bucket: &str| (OAUTH.to_owned(), format!("{bucket}:mcp_1"));
    let (old, new) = (index_row("client_index"), index_row("_client_index"));
    for kind in kinds() {
        let rows = [
            put("actor", "mcp_clients", "mcp_1", &record, None, Fate::Kept),
            put(OAUTH, "client_index", "mcp_1", &json!("actor"), None, Fate::Deleted),
            // An earlier restore left the old-name row.
            put("actor", "mcp_clients", "mcp_2", &record, None, Fate::Kept),
            put(OAUTH, "client_index", "mcp_2", &json!("actor"), None, Fate::Deleted),
            put(OAUTH, "_client_index", "mcp_2", &json!("actor"), None, Fate::Kept),
            // The new-name row points at another client.
            put("actor", "mcp_clients", "mcp_3", &record, None, Fate::Kept),
            put("other", "mcp_clients", "mcp_3", &record, None, Fate::Kept),
            put(OAUTH, "client_index", "mcp_3", &json!("actor"), None, Fate::Kept),
            put(OAUTH, "_client_index", "mcp_3", &json!("other"), None, Fate::Kept),
        ];
        let bed = Testbed::with(kind, &rows).await;
        assert_eq!(repair(&bed, json!({})).await.counts.rows_deleted(), 0, "deleted without a request");
        // No sign of release 3.10 or later: an older release would no longer find its clients.
        let old_release = repair(&bed, json!({"restore_clients": true, "mode": "dry-run"})).await;
        assert_eq!(old_release.counts.rows_deleted(), 0);
        let session = json!({"created_at": NOW - 60});
        bed.write(&[put(OAUTH, "_oauth_sessions", "s", &session, None, Fate::Kept)]).await;
        let dry = repair(&bed, json!({"restore_clients": true, "mode": "dry-run"})).await;
        let real = repair(&bed, json!({"restore_clients": true})).await;
        assert_eq!(dry.counts, real.counts, "the dry run reported something else");
        assert_eq!((&real.findings["restored_clients"], real.counts.rows_deleted()), (&json!(1), 2));
        bed.check(&rows).await;
        assert!(bed.keys().await.contains(&new) && !bed.keys().await.contains(&old));
        let key = [("id", &new.0), ("bucket_name", &new.1)];
        let key = key.map(|(name, value)| (name.to_owned(), AttributeValue::S(value.clone())));
        let delete = bed.function.client.delete_item().table_name(&bed.table).set_key(Some(key.into()));
        delete.send().await.unwrap();
        let again = repair(&bed, json!({"restore_clients": true})).await;
        assert!(!bed.keys().await.contains(&new), "a deleted client was restored");
        assert_eq!(again.findings["restored_clients"], 0);
    }
}
