//! What a delete is guarded by on the wire: consistent lookups, a condition on everything that was judged, and the order.
//! Each was found missing when the program was broken on purpose (tests/mutations).

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use aws_sdk_dynamodb::types::AttributeValue;
use janitor::fixture::{self, Fate, Specimen};
use serde_json::{Value, json};
use shared::row::RowKey;
use shared::time::EpochSeconds;
use tests::bed::Bed;
use tests::engine::{EngineKind, shared as engine};
use tests::proxy::{self, Proxy};
use tests::rows::NOW;

fn put(owner: &str, bucket: &str, name: &str, data: &Value) -> Specimen {
    Specimen {
        owner: owner.to_owned(),
        bucket: bucket.to_owned(),
        name: name.to_owned(),
        data: Some(AttributeValue::S(data.to_string())),
        ttl: None,
        fate: Fate::Goes,
    }
}

/// A dead access token with its provider row and its index row.
fn dead_token() -> [Specimen; 3] {
    let token = json!({"created_at": NOW - 9_000, "expires_at": NOW - 9, "google_token_key": "google_token_1"});
    [
        put("_actingweb_oauth2", "_access_token_index", "aw_1", &json!("actor")),
        put("actor", "mcp_tokens", "aw_1", &token),
        put("actor", "mcp_google_tokens", "google_token_1", &json!({"refresh_token": "x"})),
    ]
}

/// The requests of a daily cleanup and a repair, as `(operation, body)`.
async fn requests(bed: &Bed) -> Vec<(String, Value)> {
    let seen: Arc<Mutex<Vec<(String, Value)>>> = Arc::default();
    let log = Arc::clone(&seen);
    let proxy = Proxy::start(engine(EngineKind::Embedded).endpoint(), move |request| {
        let body = serde_json::from_str(&request.body).unwrap_or_default();
        log.lock().unwrap().push((request.operation.clone(), body));
        proxy::Fate::Forward
    });
    let function = bed.through(&proxy).await;
    function.daily_cleanup(json!({}), EpochSeconds::new(NOW), None).await.unwrap();
    function.index_repair(json!({}), EpochSeconds::new(NOW), None).await.unwrap();
    drop(function);
    seen.lock().unwrap().clone()
}

/// The keys that a BatchGetItem asks for, and whether consistently.
fn looked_up(bed: &Bed, operation: &str, body: &Value) -> (Vec<(String, String)>, bool) {
    let of_table = &body["RequestItems"][&bed.table];
    let text = |key: &Value, name: &str| key[name]["S"].as_str().unwrap_or_default().to_owned();
    let keys = of_table["Keys"].as_array().filter(|_| operation == "BatchGetItem").cloned().unwrap_or_default();
    (keys.iter().map(|key| (text(key, "id"), text(key, "bucket_name"))).collect(), of_table["ConsistentRead"] == true)
}

#[tokio::test]
async fn what_absence_is_told_from_is_read_consistently() {
    let bed = Bed::with(EngineKind::Embedded, &fixture::all_kinds(NOW, 2, 21)).await;
    let before = bed.keys().await;
    let (mut glanced_at, mut looked_at, mut referrers) = (BTreeSet::new(), BTreeSet::new(), 0);
    for (operation, body) in requests(&bed).await {
        let (keys, consistently) = looked_up(&bed, &operation, &body);
        if consistently {
            looked_at.extend(keys);
        } else {
            glanced_at.extend(keys);
        }
        // An actor's tokens, read to see whether one of them still names a provider row.
        if operation == "Query" && body["ExpressionAttributeValues"][":prefix"]["S"] == "mcp_" {
            assert_eq!(body["ConsistentRead"], true, "{body}");
            referrers += 1;
        }
    }
    assert!(looked_at.len() > 3 && referrers > 0, "{} lookups, {referrers} of referrers", looked_at.len());
    // What an index row may go for the absence of: never on a glance alone. A provider row that is not there decides nothing.
    let is_target = |key: &&(String, String)| !key.1.starts_with("mcp_google_tokens:");
    let absent: Vec<_> = glanced_at.iter().filter(is_target).filter(|key| !before.contains(*key)).collect();
    assert!(!absent.is_empty(), "no target was absent");
    for key in absent {
        assert!(looked_at.contains(key), "{key:?} was only glanced at");
    }
}

#[tokio::test]
async fn the_provider_row_goes_before_the_token_row_and_that_before_its_index_row() {
    let bed = Bed::with(EngineKind::Embedded, &dead_token()).await;
    let deletes = requests(&bed).await.into_iter().filter(|(operation, _)| operation == "BatchExecuteStatement");
    let gone: Vec<String> = deletes
        .flat_map(|(_, body)| body["Statements"].as_array().cloned().unwrap_or_default())
        .map(|statement| statement["Parameters"][1]["S"].as_str().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(gone, ["mcp_google_tokens:google_token_1", "mcp_tokens:aw_1", "_access_token_index:aw_1"]);
}

/// `remote` + `x:y` and `remote:x` + `y` are one key: another bucket's row may have taken it over since.
#[tokio::test]
async fn a_row_whose_key_another_bucket_took_over_survives() {
    for kind in [EngineKind::DynamoDbLocal, EngineKind::Embedded] {
        let session = put("_actingweb_oauth2", "_oauth_sessions", "peer:x", &json!({"created_at": 1}));
        let bed = Bed::with(kind, std::slice::from_ref(&session)).await;
        let usurper = Specimen { bucket: "_oauth_sessions:peer".to_owned(), name: "x".to_owned(), ..session };
        let (client, table) = (bed.function.client.clone(), bed.table.clone());
        let proxy = Proxy::start(engine(kind).endpoint(), move |request| {
            if request.operation == "BatchExecuteStatement" {
                let (client, table, usurper) = (client.clone(), table.clone(), usurper.clone());
                let write = async move { janitor::demo::write_rows(&client, &table, &[usurper]).await.unwrap() };
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                std::thread::spawn(move || runtime.block_on(write)).join().unwrap();
            }
            proxy::Fate::Forward
        });
        let function = bed.through(&proxy).await;
        let report = function.daily_cleanup(json!({}), EpochSeconds::new(NOW), None).await.unwrap();
        assert_eq!((report.counts.lost_races(), report.counts.rows_deleted()), (1, 0));
        assert_eq!(bed.keys().await.len(), 1);
    }
}

/// An index row of the token's name that leads to nobody goes, and with it the only thing that looked like a way to the
/// token: a dry run must say so, though the index row is still there when it looks.
#[tokio::test]
async fn a_token_whose_index_row_leads_elsewhere_is_unindexed_at_once() {
    let token = json!({"created_at": NOW - 9_000, "expires_at": NOW + 9_000});
    let rows = [
        put("_actingweb_oauth2", "_access_token_index", "aw_1", &json!("nobody")),
        put("actor", "mcp_tokens", "aw_1", &token),
        Specimen { fate: Fate::Stays, ..put("_actingweb_oauth2", "_access_token_index", "aw_2", &json!("actor")) },
        Specimen { fate: Fate::Stays, ..put("actor", "mcp_tokens", "aw_2", &token) },
    ];
    let bed = Bed::with(EngineKind::Embedded, &rows).await;
    let repair = async |mode: &str| {
        bed.function.index_repair(json!({"mode": mode}), EpochSeconds::new(NOW), None).await.unwrap().counts
    };
    assert_eq!(repair("dry-run").await, repair("delete").await);
    bed.check(&rows).await;
}

#[test]
fn a_key_is_never_shown_in_the_clear() {
    let key = RowKey::new("0123456789abcdef", "mcp_tokens:aw_Zk3vT9q0pXy7LrWm2Nb8");
    let shown = format!("{key:?}");
    assert!(!shown.contains("0123456789abcdef") && !shown.contains("aw_Zk3vT9q0"), "{shown}");
}
