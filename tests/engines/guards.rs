//! The safeguards of a delete, observed in the requests: consistent lookups, a condition on everything that was judged, and
//! the order. The mutation tests (tests/mutations) showed that these tests were missing.

use bed::Invocations as _;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use aws_sdk_dynamodb::types::AttributeValue;
use bed::Testbed;
use bed::engine::{EngineKind, kinds, shared as engine};
use bed::fixture::{self, Fate, Specimen};
use bed::load::Which;
use bed::proxy::{self, Proxy};
use bed::stream::call;
use model::rows::NOW;
use serde_json::{Value, json};
use shared::row::RowKey;
use shared::time::EpochSeconds;

fn put(owner: &str, bucket: &str, name: &str, data: &Value) -> Specimen {
    Specimen {
        owner: owner.to_owned(),
        bucket: bucket.to_owned(),
        name: name.to_owned(),
        data: Some(AttributeValue::S(data.to_string())),
        ttl: None,
        fate: Fate::Deleted,
    }
}

/// A dead access token with its provider row and its index row.
fn dead_token() -> [Specimen; 3] {
    let token = json!({"created_at": NOW - 9_000, "expires_at": NOW - 309, "google_token_key": "google_token_1"});
    [
        put("_actingweb_oauth2", "_access_token_index", "aw_1", &json!("actor")),
        put("actor", "mcp_tokens", "aw_1", &token),
        put("actor", "mcp_google_tokens", "google_token_1", &json!({"refresh_token": "x"})),
    ]
}

/// The requests of a daily cleanup and a repair, as `(operation, body)`.
async fn requests(bed: &Testbed) -> Vec<(String, Value)> {
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

/// The keys of a BatchGetItem, and whether it is consistent.
fn keys_read(bed: &Testbed, operation: &str, body: &Value) -> (Vec<(String, String)>, bool) {
    let of_table = &body["RequestItems"][&bed.table];
    let text = |key: &Value, name: &str| key[name]["S"].as_str().unwrap_or_default().to_owned();
    let keys = of_table["Keys"].as_array().filter(|_| operation == "BatchGetItem").cloned().unwrap_or_default();
    (keys.iter().map(|key| (text(key, "id"), text(key, "bucket_name"))).collect(), of_table["ConsistentRead"] == true)
}

#[tokio::test]
async fn absence_is_confirmed_by_a_consistent_read() {
    let bed = Testbed::with(EngineKind::Embedded, &fixture::all_kinds(NOW, 2, 21)).await;
    let before = bed.keys().await;
    let (mut eventual, mut consistent, mut referrers) = (BTreeSet::new(), BTreeSet::new(), 0);
    for (operation, body) in requests(&bed).await {
        let (keys, is_consistent) = keys_read(&bed, &operation, &body);
        if is_consistent {
            consistent.extend(keys);
        } else {
            eventual.extend(keys);
        }
        // An actor's tokens, read to find those that name a provider row.
        if operation == "Query" && body["ExpressionAttributeValues"][":prefix"]["S"] == "mcp_" {
            assert_eq!(body["ConsistentRead"], true, "{body}");
            referrers += 1;
        }
    }
    assert!(consistent.len() > 3 && referrers > 0, "{} lookups, {referrers} of referrers", consistent.len());
    // An index row is never deleted because of an eventually consistent read alone. The absence of a provider row decides nothing.
    let is_target = |key: &&(String, String)| !key.1.starts_with("mcp_google_tokens:");
    let absent: Vec<_> = eventual.iter().filter(is_target).filter(|key| !before.contains(*key)).collect();
    assert!(!absent.is_empty(), "no target was absent");
    for key in absent {
        assert!(consistent.contains(key), "{key:?} was only read with eventual consistency");
    }
}

/// Enough dead tokens for several batches, whose provider rows have no TTL: the actor is read for the first batch only, and a provider
/// row that a live row names is kept. Malformed rows are not cached: they are read again.
#[tokio::test]
async fn the_referrers_of_an_actor_s_provider_rows_are_read_once() {
    const TOKENS: usize = 250;
    let mut rows = Vec::new();
    for actor in ["actor", "malformed"] {
        for n in 0..TOKENS {
            let (name, key) = (format!("aw_{actor}_{n:03}"), format!("google_token_{n:03}"));
            let token = json!({"created_at": NOW - 9_000, "expires_at": NOW - 309, "google_token_key": key});
            rows.push(put("_actingweb_oauth2", "_access_token_index", &name, &json!(actor)));
            rows.push(put(actor, "mcp_tokens", &name, &token));
            let fate = if [3, 240].contains(&n) { Fate::Kept } else { Fate::Deleted };
            rows.push(Specimen { fate, ..put(actor, "mcp_google_tokens", &key, &json!({"refresh_token": "x"})) });
        }
    }
    let live = |n: usize| json!({"expires_at": NOW + 9_000, "google_token_key": format!("google_token_{n:03}")});
    let unreadable = json!("google_token_003 google_token_240");
    for (actor, name, data) in
        [("actor", "rt_1", live(3)), ("actor", "rt_2", live(240)), ("malformed", "rt_3", unreadable)]
    {
        rows.push(Specimen { fate: Fate::Kept, ..put(actor, "mcp_refresh_tokens", name, &data) });
    }
    let bed = Testbed::with(EngineKind::Embedded, &rows).await;
    let proxy = Proxy::start(engine(EngineKind::Embedded).endpoint(), |_| proxy::Fate::Forward);
    Which::Cleanup.run(&bed.through(&proxy).await, json!({}), NOW).await.unwrap();
    bed.check(&rows).await;
    let reads = |actor: &str| {
        let of = |body: Value| {
            let values = &body["ExpressionAttributeValues"];
            values[":prefix"]["S"] == "mcp_" && values[":owner"]["S"] == actor
        };
        proxy.requests().iter().filter(|request| of(serde_json::from_str(&request.body).unwrap_or_default())).count()
    };
    assert_eq!(reads("actor"), 1);
    assert!(reads("malformed") > 1);
}

#[tokio::test]
async fn deletes_the_provider_row_then_the_token_row_then_the_index_row() {
    let bed = Testbed::with(EngineKind::Embedded, &dead_token()).await;
    let deletes = requests(&bed).await.into_iter().filter(|(operation, _)| operation == "BatchExecuteStatement");
    let gone: Vec<String> = deletes
        .flat_map(|(_, body)| body["Statements"].as_array().cloned().unwrap_or_default())
        .map(|statement| statement["Parameters"][1]["S"].as_str().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(gone, ["mcp_google_tokens:google_token_1", "mcp_tokens:aw_1", "_access_token_index:aw_1"]);
}

/// An access token and the refresh token that was issued with it: both name one provider row.
fn issued_together(number: usize) -> [Specimen; 5] {
    let key = format!("google_token_{number}");
    let token = json!({"created_at": NOW - 9_000, "expires_at": NOW - 309, "google_token_key": key});
    let mut refresh = token.clone();
    refresh["access_token"] = json!(format!("aw_{number}"));
    [
        put("_actingweb_oauth2", "_access_token_index", &format!("aw_{number}"), &json!("actor")),
        put("actor", "mcp_tokens", &format!("aw_{number}"), &token),
        put("_actingweb_oauth2", "_refresh_token_index", &format!("rt_{number}"), &json!("actor")),
        put("actor", "mcp_refresh_tokens", &format!("rt_{number}"), &refresh),
        put("actor", "mcp_google_tokens", &key, &json!({"refresh_token": "x"})),
    ]
}

/// Once the access tokens are deleted with their provider rows, one lookup shows that the refresh tokens have none left.
#[tokio::test]
async fn refresh_tokens_are_read_after_the_last_access_token_is_deleted() {
    // Less than one lookup, and exactly one: then the last batch cannot tell that it is the last.
    for tokens in [37, 100] {
        let rows: Vec<Specimen> = (0..tokens).flat_map(issued_together).collect();
        let bed = Testbed::with(EngineKind::Embedded, &rows).await;
        let requests = requests(&bed).await;
        let is = |request: &(String, Value), operation: &str, bucket: &str| {
            request.0 == operation && request.1.to_string().contains(bucket)
        };
        let last_access = requests.iter().rposition(|it| is(it, "BatchExecuteStatement", "_access_token_index:"));
        let first_refresh = requests.iter().position(|it| is(it, "BatchGetItem", "mcp_refresh_tokens:"));
        let (last, first) = (last_access.expect("deletes access tokens"), first_refresh.expect("reads refresh tokens"));
        assert!(last < first, "{tokens}: request {first} before request {last}");
        bed.check(&rows).await;
    }
}

/// `remote` + `x:y` and `remote:x` + `y` are one key, so a row of another bucket can replace the judged row.
#[tokio::test]
async fn a_row_that_another_bucket_s_row_replaced_survives() {
    for kind in kinds() {
        let session = put("_actingweb_oauth2", "_oauth_sessions", "peer:x", &json!({"created_at": 1}));
        let bed = Testbed::with(kind, std::slice::from_ref(&session)).await;
        let other = Specimen { bucket: "_oauth_sessions:peer".to_owned(), name: "x".to_owned(), ..session };
        let (client, table) = (bed.function.client.clone(), bed.table.clone());
        let proxy = Proxy::start(engine(kind).endpoint(), move |request| {
            if request.operation == "BatchExecuteStatement" {
                let (client, table, other) = (client.clone(), table.clone(), other.clone());
                let write = async move { bed::tables::write_rows(&client, &table, &[other]).await.unwrap() };
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

/// The dangling index row with the token's name is deleted, which leaves the token unindexed. A dry run must report both,
/// although the index row is still there.
#[tokio::test]
async fn a_token_whose_index_row_points_elsewhere_is_unindexed_at_once() {
    let token = json!({"created_at": NOW - 9_000, "expires_at": NOW + 9_000});
    let rows = [
        put("_actingweb_oauth2", "_access_token_index", "aw_1", &json!("nobody")),
        put("actor", "mcp_tokens", "aw_1", &token),
        Specimen { fate: Fate::Kept, ..put("_actingweb_oauth2", "_access_token_index", "aw_2", &json!("actor")) },
        Specimen { fate: Fate::Kept, ..put("actor", "mcp_tokens", "aw_2", &token) },
    ];
    let bed = Testbed::with(EngineKind::Embedded, &rows).await;
    let repair = async |mode: &str| {
        bed.function.index_repair(json!({"mode": mode}), EpochSeconds::new(NOW), None).await.unwrap().counts
    };
    assert_eq!(repair("dry-run").await, repair("delete").await);
    bed.check(&rows).await;
}

/// A stale replica, by key: an earlier version of the row, or no row yet.
type StaleReplica = BTreeMap<(String, String), Option<Value>>;

fn key_of(item: &Value) -> (String, String) {
    let text = |name: &str| item[name]["S"].as_str().unwrap_or_default().to_owned();
    (text("id"), text("bucket_name"))
}

/// A table whose eventually consistent lookups are answered from a stale replica.
fn with_stale_replica(
    kind: EngineKind,
    table: &str,
    replica: StaleReplica,
    stale_reads: Arc<Mutex<BTreeSet<(String, String)>>>,
) -> Proxy {
    let (endpoint, table) = (engine(kind).endpoint(), table.to_owned());
    Proxy::start(endpoint, move |request| {
        let body: Value = serde_json::from_str(&request.body).unwrap_or_default();
        let of_table = &body["RequestItems"][&table];
        if request.operation != "BatchGetItem" || of_table["ConsistentRead"] == true {
            return proxy::Fate::Forward;
        }
        let keys: Vec<_> = of_table["Keys"].as_array().unwrap().iter().map(key_of).collect();
        let mut answer = call(endpoint, "DynamoDB_20120810", "BatchGetItem", &body);
        let rows = answer["Responses"][&table].as_array_mut().unwrap();
        rows.retain(|row| !replica.contains_key(&key_of(row)));
        rows.extend(keys.iter().filter_map(|key| replica.get(key).cloned().flatten()));
        stale_reads.lock().unwrap().extend(keys.into_iter().filter(|key| replica.contains_key(key)));
        proxy::Fate::Answer(200, answer.to_string())
    })
}

/// Eventually consistent reads may be stale. The condition of the delete protects a row that changed since; absence is
/// confirmed by a consistent read before anything is deleted because of it.
#[tokio::test]
async fn stale_reads_lose_nothing() {
    use Fate::{Deleted, Kept};
    const INDEX: &str = "_access_token_index";
    let (alive, dead) =
        (json!({"created_at": NOW - 9_000, "expires_at": NOW + 9_000}), json!({"expires_at": NOW - 309}));
    let naming = |token: &Value, name: &str| {
        let mut token = token.clone();
        token["google_token_key"] = json!(name);
        token
    };
    let item = |bucket: &str, name: &str, data: &Value| {
        json!({"id": {"S": "actor"}, "bucket_name": {"S": format!("{bucket}:{name}")}, "bucket": {"S": bucket},
            "name": {"S": name}, "data": {"S": data.to_string()}})
    };
    let rows = [
        // Live; the replica has neither the token nor its index row yet.
        (Kept, put("_actingweb_oauth2", INDEX, "aw_new", &json!("actor"))),
        (Kept, put("actor", "mcp_tokens", "aw_new", &alive)),
        // Renewed; the replica still has the dead token.
        (Kept, put("_actingweb_oauth2", INDEX, "aw_renewed", &json!("actor"))),
        (Kept, put("actor", "mcp_tokens", "aw_renewed", &naming(&alive, "google_token_renewed"))),
        (Kept, put("actor", "mcp_google_tokens", "google_token_renewed", &json!({"refresh_token": "x"}))),
        // The token is gone; the replica still has it, dead or live.
        (Deleted, put("_actingweb_oauth2", INDEX, "aw_gone", &json!("actor"))),
        (Deleted, put("_actingweb_oauth2", INDEX, "aw_revoked", &json!("actor"))),
        // Dead; the replica does not have its provider row yet.
        (Deleted, put("_actingweb_oauth2", INDEX, "aw_dead", &json!("actor"))),
        (Deleted, put("actor", "mcp_tokens", "aw_dead", &naming(&dead, "google_token_dead"))),
        (Deleted, put("actor", "mcp_google_tokens", "google_token_dead", &json!({"refresh_token": "x"}))),
    ]
    .map(|(fate, row)| Specimen { fate, ttl: provider_ttl(&row), ..row });
    let key = |owner: &str, sort: &str| (owner.to_owned(), sort.to_owned());
    let replica: StaleReplica = [
        (key("actor", "mcp_tokens:aw_new"), None),
        (key("_actingweb_oauth2", "_access_token_index:aw_new"), None),
        (
            key("actor", "mcp_tokens:aw_renewed"),
            Some(item("mcp_tokens", "aw_renewed", &naming(&dead, "google_token_renewed"))),
        ),
        (key("actor", "mcp_tokens:aw_gone"), Some(item("mcp_tokens", "aw_gone", &dead))),
        (key("actor", "mcp_tokens:aw_revoked"), Some(item("mcp_tokens", "aw_revoked", &alive))),
        (key("actor", "mcp_google_tokens:google_token_dead"), None),
    ]
    .into();
    for kind in kinds() {
        for which in Which::BOTH {
            let bed = Testbed::with(kind, &rows).await;
            let stale_reads: Arc<Mutex<BTreeSet<(String, String)>>> = Arc::default();
            let proxy = with_stale_replica(kind, &bed.table, replica.clone(), Arc::clone(&stale_reads));
            let report = which.run(&bed.through(&proxy).await, json!({}), NOW).await.unwrap();
            let keys = bed.keys().await;
            for row in rows.iter().filter(|row| row.fate == Kept) {
                assert!(
                    keys.contains(&key(&row.owner, &format!("{}:{}", row.bucket, row.name))),
                    "{which:?} {}",
                    row.name
                );
            }
            // The delete of a row that is already gone is not needed, but counts as done.
            let gone =
                rows.iter().filter(|row| !keys.contains(&key(&row.owner, &format!("{}:{}", row.bucket, row.name))));
            let gone = gone.count() as u64;
            let deleted = report.counts.rows_deleted();
            assert!((gone..=gone + 1).contains(&deleted), "{gone} rows are gone: {}", report.to_json());
            let stale_reads = stale_reads.lock().unwrap().clone();
            // The repair, which deletes because of absence alone, reads only consistently.
            assert_eq!(stale_reads.is_empty(), which == Which::Repair, "{which:?} read {stale_reads:?}");
            // Once reads are no longer stale, the remaining rows are deleted.
            for which in [which, Which::Cleanup, Which::Repair] {
                which.run(&bed.function, json!({}), NOW + 120).await.unwrap();
            }
            bed.check(&rows).await;
        }
    }
}

/// Provider rows get the library's TTL, so that their age is known; other rows get none, so that each index row is due.
fn provider_ttl(row: &Specimen) -> Option<AttributeValue> {
    (row.bucket == "mcp_google_tokens").then(|| AttributeValue::N((NOW + 1_000).to_string()))
}

#[test]
fn a_key_is_masked_in_debug_output() {
    let key = RowKey::new("0123456789abcdef", "mcp_tokens:aw_Zk3vT9q0pXy7LrWm2Nb8");
    let shown = format!("{key:?}");
    assert!(!shown.contains("0123456789abcdef") && !shown.contains("aw_Zk3vT9q0"), "{shown}");
}
