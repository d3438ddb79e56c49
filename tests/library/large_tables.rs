//! The repair and the backfill on 20,000 rows of the real library.

use bed::Invocations as _;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::SystemTime;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue;
use bed::engine::{EngineKind, shared as engine};
use bed::items::{self, Item};
use bed::janitor::janitor;
use bed::proxy::{self, Proxy};
use bed::python::{Application, Manifest};
use dynamo::Dynamo;
use jobs::repair::Repair;
use jobs::run::Job as _;
use jobs::run::clock::RunClock;
use jobs::run::report::{Outcome, RunReport};
use model::Key;
use runtime::lambda::Function;
use serde_json::{Value, json};
use shared::bucket::{CLOCK_SLACK_SECONDS, OAUTH_OWNER};
use shared::settings::{Purpose, Settings};
use shared::time::EpochSeconds;

fn now() -> EpochSeconds {
    EpochSeconds::from(SystemTime::now())
}

/// The index row or the token row of many live tokens is deleted directly.
#[tokio::test]
async fn repairs_20000_rows_of_the_real_library_and_every_live_one_still_works() {
    let endpoint = engine(EngineKind::DynamoDbLocal).endpoint();
    let prefix = format!("damaged{:08x}", fastrand::u32(..));
    let application = Application::new(endpoint, &prefix);
    let manifest = application.seed(20_000, 2).await;
    let client = bed::tables::client(endpoint).await;
    let table = format!("{prefix}_attributes");
    let damaged = damage_live_tokens(&client, &table, &manifest).await;
    assert!(damaged > 300, "{damaged}");

    let proxy = Proxy::start(endpoint, |_| proxy::Fate::Forward);
    let environment = bed::deleting("AWS_DB_PREFIX", &prefix);
    let function = Function::new(bed::tables::client(proxy.endpoint()).await, environment);
    // Without a grace period: the damage is fresh, and there is no other writer.
    let report = repair_without_grace(&function).await;
    println!("{}", report.to_json());
    assert_eq!(report.outcome, Outcome::Complete);
    let reads = proxy
        .seen()
        .iter()
        .filter(|operation| ["Scan", "Query", "BatchGetItem", "GetItem"].contains(&operation.as_str()))
        .count();
    let allowed = report.counts.rows_read() / 100;
    assert!(reads as u64 <= allowed, "{reads} read requests for {} rows", report.counts.rows_read());
    println!("{reads} read requests for {} rows", report.counts.rows_read());
    function.daily_cleanup(json!({}), now(), None).await.unwrap();
    println!("{}", application.judge(&manifest));
    let second = repair_without_grace(&function).await;
    assert_eq!(second.counts.rows_deleted(), 0);
}

/// The repair without a grace period and the slack, which no setting allows.
async fn repair_without_grace(function: &Function) -> RunReport {
    let settings = Settings::parse(&function.environment, &serde_json::Map::new(), Purpose::Repair).unwrap();
    let settings = Settings { grace_seconds: -CLOCK_SLACK_SECONDS, ..settings };
    let clock = RunClock::start(now(), None);
    let table = Dynamo::open(function.client.clone(), &settings, None, clock).await.unwrap();
    jobs::run::run(&table, &Repair::new(&settings), &settings, table.clock()).await.unwrap()
}

/// Deletes the index row of every third live token and the token row of every third, and removes those tokens from the manifest.
async fn damage_live_tokens(client: &Client, table: &str, manifest: &Manifest) -> usize {
    let mut list = manifest.read();
    let heads: BTreeSet<String> = list["mcp_tripwires"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|tripwire| tripwire["head"].as_str().map(str::to_owned))
        .collect();
    let owners: HashMap<String, String> =
        items::all(client, table).await.into_keys().map(|(owner, sort)| (sort, owner)).collect();
    let mut damaged = 0;
    for (kind, field, bucket, index) in [
        ("live_mcp_access", "", "mcp_tokens", "_access_token_index"),
        ("live_mcp_refresh", "token", "mcp_refresh_tokens", "_refresh_token_index"),
        ("live_mcp_codes", "code", "mcp_auth_codes", "_auth_code_index"),
    ] {
        let tokens = list[kind].as_array().cloned().unwrap_or_default();
        let mut left = Vec::new();
        for (i, token) in tokens.into_iter().enumerate() {
            let name = if field.is_empty() { token.as_str() } else { token[field].as_str() }.unwrap().to_owned();
            let sort = format!("{bucket}:{name}");
            let (Some(owner), false) = (owners.get(&sort), heads.contains(&name) || i % 3 == 0) else {
                left.push(token);
                continue;
            };
            let (owner, sort) =
                if i % 3 == 1 { (OAUTH_OWNER.to_owned(), format!("{index}:{name}")) } else { (owner.clone(), sort) };
            client
                .delete_item()
                .table_name(table)
                .key("id", AttributeValue::S(owner))
                .key("bucket_name", AttributeValue::S(sort))
                .send()
                .await
                .unwrap();
            damaged += 1;
        }
        list[kind] = Value::Array(left);
    }
    manifest.write(&list);
    damaged
}

fn text(item: &Item, name: &str) -> String {
    item.get(name).and_then(|value| value.as_s().ok()).cloned().unwrap_or_default()
}

/// Removes every row's TTL, as releases up to 3.7.3 left the table.
async fn strip_ttls(client: &Client, table: &str, items: &BTreeMap<Key, Item>) {
    let mut dated: Vec<Item> = items.values().filter(|item| item.contains_key("ttl_timestamp")).cloned().collect();
    dated.iter_mut().for_each(|item| drop(item.remove("ttl_timestamp")));
    items::write(client, table, &dated).await;
}

/// `(owner, name)` of the provider rows that a row of the same owner names.
fn named_providers(items: &BTreeMap<Key, Item>) -> BTreeSet<(String, String)> {
    let name = |item: &Item| {
        let data: Value = serde_json::from_str(&text(item, "data")).ok()?;
        Some(data.get("google_token_key")?.as_str()?.to_owned())
    };
    items.iter().filter_map(|((owner, _), item)| Some((owner.clone(), name(item)?))).collect()
}

/// Why the backfill skips a row, determined from the table; `None` for a row that must get its TTL back.
fn skip_reason(item: &Item, items: &BTreeMap<Key, Item>, named: &BTreeSet<(String, String)>) -> Option<&'static str> {
    let (owner, bucket, name) = (text(item, "id"), text(item, "bucket"), text(item, "name"));
    let targets = [
        ("_auth_code_index", "mcp_auth_codes"),
        ("_access_token_index", "mcp_tokens"),
        ("_refresh_token_index", "mcp_refresh_tokens"),
    ];
    if let Some((_, target)) = targets.iter().find(|(index, _)| *index == bucket) {
        let actor: String = serde_json::from_str(&text(item, "data")).unwrap();
        return (!items.contains_key(&(actor, format!("{target}:{name}")))).then_some("target_absent");
    }
    match bucket.as_str() {
        "_oauth_state_nonces" | "_email_verify_tokens" | "_deleted_actors" => Some("no_time"),
        "mcp_google_tokens" => (!named.contains(&(owner, name))).then_some("unreferenced"),
        "_oauth_sessions"
        | "spa_access_tokens"
        | "spa_refresh_tokens"
        | "_id_token_replay"
        | "_apple_exchange_tickets"
        | "mcp_auth_codes"
        | "mcp_tokens"
        | "mcp_refresh_tokens"
            if owner == OAUTH_OWNER || bucket.starts_with("mcp_") =>
        {
            None
        }
        _ => Some("unknown"),
    }
}

/// The minimum TTL of a consumed refresh token, or of its index row, which is kept two hours longer.
fn consumed_until(item: &Item, items: &BTreeMap<Key, Item>) -> Option<i64> {
    let (owner, bucket, name) = (text(item, "id"), text(item, "bucket"), text(item, "name"));
    let (row, more) = match bucket.as_str() {
        "spa_refresh_tokens" | "mcp_refresh_tokens" => (item, 0),
        "refresh_token_index" | "_refresh_token_index" if owner == OAUTH_OWNER => {
            let actor: String = serde_json::from_str(&text(item, "data")).unwrap();
            (items.get(&(actor, format!("mcp_refresh_tokens:{name}")))?, 2 * 3_600)
        }
        _ => return None,
    };
    let data: Value = serde_json::from_str(&text(row, "data")).unwrap();
    (data["used"] == true).then(|| data["expires_at"].as_i64().unwrap() + 3_600 + more)
}

/// Removes the TTLs of rows of the real library, and backfills them.
async fn restores_every_ttl(kind: EngineKind, rows: u32) {
    let endpoint = engine(kind).endpoint();
    let prefix = format!("old{:08x}", fastrand::u32(..));
    let table = format!("{prefix}_attributes");
    let application = Application::new(endpoint, &prefix);
    let kept = application.seed_of_any_age(rows, 2).await.read();
    // A new client for each scan: connections of another one are not served while the test waits for the binary.
    let scan = async || items::all(&bed::tables::client(endpoint).await, &table).await;
    let written = scan().await;
    assert!(written.len() >= rows as usize, "{}", written.len());
    strip_ttls(&bed::tables::client(endpoint).await, &table, &written).await;
    let stripped = scan().await;
    assert!(stripped.values().all(|item| !item.contains_key("ttl_timestamp")));

    let arguments = ["ttl", "backfill", "--json", "--max-write-units", "100000", "--max-read-units", "100000"];
    let dry = janitor(endpoint, &table, &arguments, "").json();
    assert!(scan().await == stripped, "the dry run wrote");
    let started = std::time::Instant::now();
    let ended = janitor(endpoint, &table, &[&arguments[..], &["--apply", "--yes"]].concat(), "");
    assert_eq!(ended.code, 0, "{ended:?}");
    println!("{} in {:?}", ended.out, started.elapsed());
    let report = ended.json();
    for count in ["read", "set", "buckets", "write_units_needed"] {
        assert_eq!(dry[count], report[count], "the dry run reported something else: {count}");
    }
    let after = scan().await;
    let named = named_providers(&written);
    let (mut set, mut left) = (0, BTreeMap::new());
    for (key, item) in &after {
        let mut expected = written[key].clone();
        let had_ttl = expected.contains_key("ttl_timestamp");
        match skip_reason(item, &written, &named) {
            Some(reason) if had_ttl => {
                *left.entry(reason).or_insert(0) += 1;
                expected.remove("ttl_timestamp");
            }
            _ => set += u64::from(had_ttl),
        }
        // A consumed row detects theft until it expires; the library's own TTL may be earlier.
        if let Some(end) = consumed_until(item, &written).filter(|_| expected.contains_key("ttl_timestamp")) {
            let ttl: i64 = expected["ttl_timestamp"].as_n().unwrap().parse().unwrap();
            expected.insert("ttl_timestamp".to_owned(), AttributeValue::N(ttl.max(end).to_string()));
        }
        assert!(*item == expected, "{} is not what the library wrote", text(item, "bucket"));
    }
    println!("set {set}, left {left:?}");
    assert_eq!((after.len(), json!(set)), (written.len(), report["set"].clone()));
    assert!(set * 10 > written.len() as u64 * 9, "{set} of {}", written.len());

    // The library still accepts the backfilled tokens, and accepts each once.
    let spa: Vec<&Value> = kept["live_spa_refresh"].as_array().unwrap().iter().take(5).collect();
    let mcp: Vec<&Value> = kept["live_mcp_refresh"].as_array().unwrap().iter().take(5).collect();
    assert_eq!((spa.len(), mcp.len()), (5, 5));
    let consume = spa.iter().map(|token| json!({"op": "spa_consume", "token": token}));
    let rotate =
        mcp.iter().map(|held| json!({"op": "mcp_refresh", "token": held["token"], "client_id": held["client_id"]}));
    let operations: Vec<Value> = consume.clone().chain(consume).chain(rotate).collect();
    let answers = application.ask(&json!(operations));
    assert!(answers[..5].iter().all(|answer| answer["consumed"] == true), "{answers:?}");
    assert!(answers[5..10].iter().all(|answer| answer["consumed"] == false), "{answers:?}");
    assert!(answers[10..].iter().all(|answer| answer["access_token"].is_string()), "{answers:?}");
}

#[tokio::test]
async fn backfills_the_ttl_of_20000_rows_of_the_real_library() {
    restores_every_ttl(EngineKind::Embedded, 20_000).await;
}

#[tokio::test]
async fn backfills_the_ttl_of_rows_of_the_real_library_on_dynamodb_local() {
    restores_every_ttl(EngineKind::DynamoDbLocal, 2_000).await;
}
