//! Rows that the real ActingWeb library writes, reads and checks, on DynamoDB Local.

use bed::Invocations as _;
use std::cell::RefCell;
use std::time::SystemTime;

use aws_sdk_dynamodb::types::AttributeValue;
use bed::engine::{EngineKind, shared as engine};
use bed::fixture::{Fate, Specimen};
use bed::python::Application;
use bed::tables::{new_table, write_rows};
use jobs::run::report::Outcome;
use runtime::lambda::Function;
use serde_json::{Value, json};
use shared::bucket::{BUCKETS, OAUTH_OWNER};
use shared::pyjson::dumps;
use shared::time::EpochSeconds;

fn now() -> EpochSeconds {
    EpochSeconds::from(SystemTime::now())
}

fn endpoint() -> &'static str {
    engine(EngineKind::DynamoDbLocal).endpoint()
}

#[tokio::test]
async fn cleans_5500_rows_of_the_real_library_and_every_live_one_still_works() {
    let prefix = format!("real{:08x}", fastrand::u32(..));
    let application = Application::new(endpoint(), &prefix);
    let manifest = application.seed(5_500, 1).await;
    let client = bed::tables::client(endpoint()).await;
    let function = Function::new(client, bed::deleting("AWS_DB_PREFIX", &prefix));
    let dry = function.daily_cleanup(json!({"mode": "dry-run"}), now(), None).await.unwrap();
    let report = function.daily_cleanup(json!({}), now(), None).await.unwrap();
    // The source of the measured figures in docs/costs.md.
    println!("{}", report.to_json());
    assert_eq!(report.outcome, Outcome::Complete);
    assert_eq!(dry.counts, report.counts);
    let rows = &manifest.read()["rows"];
    let (dead, optional) = (rows["dead"].as_u64().unwrap(), rows["optional"].as_u64().unwrap());
    let deleted = report.counts.rows_deleted();
    assert!((dead..=dead + optional).contains(&deleted), "{deleted} deleted, {dead} dead, {optional} optional");
    let allowed = deleted / 10 + report.counts.rows_read() / 50;
    assert!(report.usage.requests < allowed, "{} requests, {allowed} allowed", report.usage.requests);
    println!("{}", application.judge(&manifest));
}

#[tokio::test]
async fn the_library_reads_updates_and_consumes_rows_serialized_by_dumps() {
    let (client, prefix) = new_table(endpoint()).await;
    let application = Application::new(endpoint(), &prefix);
    let time = now();
    let rows = RefCell::new(Vec::new());
    let (actor, client_id) = ("actor0001", "mcp_client");
    let odd = json!({"z": 1, "a": [1.5, true, null, "Zoë 😀 \u{7f}\u{1} \" \\ /"], "nested": {"b": {}, "a": []}, "big": u64::MAX});
    let set = |owner: &str, bucket: &str, name: &str, data: &Value| {
        let ttl = shared::bucket::find(owner, bucket).and_then(|bucket| bucket.ttl);
        let ttl = ttl.map(|ttl| AttributeValue::N(time.plus(ttl + shared::bucket::TTL_SKEW_SECONDS).to_string()));
        rows.borrow_mut().push(Specimen {
            owner: owner.to_owned(),
            bucket: bucket.to_owned(),
            name: name.to_owned(),
            data: Some(AttributeValue::S(dumps(data))),
            ttl,
            fate: Fate::Kept,
        });
    };
    set("actor0001", "notes", "odd", &odd);
    set(
        OAUTH_OWNER,
        "_oauth_sessions",
        "session1",
        &json!({"token_data": {"access_token": "x"}, "user_info": {}, "state": "", "provider": "google", "created_at": time.get()}),
    );
    set(
        OAUTH_OWNER,
        "spa_access_tokens",
        "spa1",
        &json!({"actor_id": actor, "identifier": "zoë@example.com", "created_at": time.get(), "expires_at": time.get() + 3_600}),
    );
    set(
        OAUTH_OWNER,
        "spa_refresh_tokens",
        "spar1",
        &json!({"actor_id": actor, "identifier": "zoë@example.com", "created_at": time.get(), "expires_at": time.get() + 1_000, "used": false, "chain_id": "c"}),
    );
    set(
        actor,
        "mcp_tokens",
        "aw_1",
        &json!({"token_id": "1", "token": "aw_1", "actor_id": actor, "client_id": client_id, "created_at": time.get(), "expires_at": time.get() + 3_600}),
    );
    set(OAUTH_OWNER, "_access_token_index", "aw_1", &json!(actor));
    set(
        actor,
        "mcp_refresh_tokens",
        "rt_1",
        &json!({"token": "rt_1", "actor_id": actor, "client_id": client_id, "access_token": "aw_1", "chain_id": "k", "google_token_key": null, "used": false, "created_at": time.get(), "expires_at": time.get() + 9_000}),
    );
    set(OAUTH_OWNER, "_refresh_token_index", "rt_1", &json!(actor));

    write_rows(&client, &format!("{prefix}_attributes"), &rows.into_inner()).await.unwrap();

    let answers = application.ask(&json!([
        {"op": "get_attr", "owner": actor, "bucket": "notes", "name": "odd"},
        {"op": "conditional_update", "owner": actor, "bucket": "notes", "name": "odd", "old": odd, "new": {"swapped": "by Python ë"}},
        {"op": "get_session", "id": "session1"},
        {"op": "spa_validate_access", "token": "spa1"},
        {"op": "mcp_validate", "token": "aw_1"},
        {"op": "spa_consume", "token": "spar1"},
        {"op": "spa_consume", "token": "spar1"},
        {"op": "mcp_refresh", "token": "rt_1", "client_id": client_id},
    ]));
    assert_eq!(answers[0], json!({"data": odd}), "read");
    assert_eq!(answers[1], json!(true), "swapped");
    assert_eq!(answers[2]["provider"], "google");
    assert_eq!(answers[3]["identifier"], "zoë@example.com");
    assert_eq!(answers[4]["client_id"], client_id);
    assert_eq!((&answers[5]["consumed"], &answers[6]["consumed"]), (&json!(true), &json!(false)), "consumed once");
    assert!(answers[7]["access_token"].as_str().unwrap().starts_with("aw_"), "rotated");
}

/// A JSON value with everything that two serializers could write differently.
fn random_value(random: &mut fastrand::Rng, depth: usize) -> Value {
    match random.u8(..if depth == 0 { 6 } else { 8 }) {
        0 => json!(null),
        1 => json!(random.bool()),
        2 => json!(random.i64(..)),
        3 => match random.u8(..3) {
            0 => json!(random.f64() * 10f64.powi(random.i32(-320..308))),
            1 => json!(random.i32(..)),
            _ => json!(f64::from(random.i32(..)) / 8.0),
        },
        4 => json!((0..random.usize(..12)).map(|_| random.char(..)).collect::<String>()),
        5 => json!((0..random.usize(..12)).map(|_| random.char('\0'..'\u{a0}')).collect::<String>()),
        6 => (0..random.usize(..4)).map(|_| random_value(random, depth - 1)).collect(),
        _ => (0..random.usize(..4))
            .map(|i| (format!("{}{i}", random.char(..)), random_value(random, depth - 1)))
            .collect(),
    }
}

#[tokio::test]
async fn serializes_json_as_python_does() {
    let mut random = fastrand::Rng::with_seed(11);
    let values: Vec<Value> = (0..3_000).map(|_| random_value(&mut random, 3)).collect();
    let operations: Value = values.iter().map(|value| json!({"op": "dumps", "value": value})).collect();
    let serialized = Application::new(endpoint(), "spelling").ask(&operations);
    for (value, python) in values.iter().zip(serialized) {
        assert_eq!(json!(dumps(value)), python);
    }
}

#[tokio::test]
async fn has_the_library_s_own_ttl_constants() {
    let constants = &Application::new(endpoint(), "constants").ask(&json!([{"op": "ttl_deadline_constants"}]))[0];
    let of = |name: &str| constants[name].as_i64().unwrap_or_else(|| panic!("the library has no {name}"));
    let ttl = |name: &str| BUCKETS.iter().find(|bucket| bucket.name == name).and_then(|bucket| bucket.ttl).unwrap();
    let buffer = of("INDEX_TTL_BUFFER");
    for (bucket, seconds) in [
        ("_oauth_sessions", of("OAUTH_SESSION_TTL")),
        ("spa_access_tokens", of("SPA_ACCESS_TOKEN_TTL")),
        ("spa_refresh_tokens", of("SPA_REFRESH_TOKEN_TTL")),
        ("mcp_auth_codes", of("MCP_AUTH_CODE_TTL")),
        ("mcp_tokens", of("MCP_ACCESS_TOKEN_TTL")),
        ("mcp_google_tokens", of("MCP_ACCESS_TOKEN_TTL")),
        ("mcp_refresh_tokens", of("MCP_REFRESH_TOKEN_TTL")),
        ("_auth_code_index", of("MCP_AUTH_CODE_TTL") + buffer),
        ("_access_token_index", of("MCP_ACCESS_TOKEN_TTL") + buffer),
        ("_refresh_token_index", of("MCP_REFRESH_TOKEN_TTL") + buffer),
        ("_id_token_replay", of("ID_TOKEN_REPLAY_TTL")),
        ("_oauth_state_nonces", of("OAUTH_STATE_NONCE_TTL")),
        ("_apple_exchange_tickets", of("MOBILE_TICKET_TTL")),
        ("_deleted_actors", of("DELETION_TOMBSTONE_TTL")),
    ] {
        assert_eq!(ttl(bucket), seconds, "{bucket}");
    }
    assert_eq!(shared::bucket::TTL_SKEW_SECONDS, of("TTL_CLOCK_SKEW_BUFFER"));
    for window in ["SPA_REFRESH_TOKEN_REUSE_WINDOW", "MCP_REFRESH_TOKEN_REUSE_WINDOW"] {
        assert_eq!(shared::bucket::REUSE_WINDOW_SECONDS, of(window));
    }
}
