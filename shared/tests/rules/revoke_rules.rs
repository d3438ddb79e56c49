//! Which rows a revocation claims: the selection, restated, and the links that it follows.

use model::rows::{ACTOR, NOW, bucket, json as text_of, row, text};
use proptest::prelude::*;
use serde_json::{Value, json};
use shared::bucket::{BUCKETS, Bucket, OAUTH_OWNER, Owner};
use shared::revocation::{Belongs, RowKind, Selection, Selector, State, belongs, kind};
use shared::row::{Raw, Row, RowKey};
use shared::time::EpochSeconds;

fn client(id: &str) -> Selector {
    Selector::Client { id: id.to_owned(), and_record: false }
}

fn chain(id: &str) -> Selector {
    Selector::Chain(id.to_owned())
}

fn token(name: &str) -> Selector {
    Selector::Token(name.to_owned())
}

fn actor(id: &str) -> Selector {
    Selector::Actor(id.to_owned())
}

fn of(name: &str, row_name: &str, data: &Value) -> Row {
    row(bucket(name), row_name, text_of(data), Raw::Absent)
}

fn under(owner: &str, row: Row) -> Row {
    Row { key: RowKey::new(owner, row.key.sort.clone()), ..row }
}

fn belongs_to(row: &Row, selector: &Selector) -> Belongs {
    belongs(row, row.known_bucket().expect("a known row"), selector)
}

#[test]
fn a_token_belongs_to_its_client_under_any_actor() {
    let mine = of("mcp_tokens", "aw_1", &json!({"client_id": "mcp_c", "actor_id": ACTOR}));
    let theirs = under("somebody", mine.clone());
    assert_eq!(
        (belongs_to(&mine, &client("mcp_c")), belongs_to(&theirs, &client("mcp_c"))),
        (Belongs::Yes, Belongs::Yes)
    );
    assert_eq!((belongs_to(&mine, &actor(ACTOR)), belongs_to(&theirs, &actor(ACTOR))), (Belongs::Yes, Belongs::No));
    assert_eq!(belongs_to(&mine, &client("mcp_other")), Belongs::No);
}

#[test]
fn a_row_in_the_actor_s_partition_belongs_to_the_actor_whatever_its_data() {
    for data in [text("not json"), text("[1]"), Raw::Absent, Raw::Null] {
        let row = row(bucket("mcp_refresh_tokens"), "rt_1", data, Raw::Absent);
        assert_eq!(belongs_to(&row, &actor(ACTOR)), Belongs::Yes);
    }
}

#[test]
fn keeps_an_unreadable_row_and_reports_it_as_unreadable() {
    for data in [text("not json"), text("[1]"), text("\"x\""), Raw::Absent, Raw::Null] {
        let spa = row(bucket("spa_access_tokens"), "t", data.clone(), Raw::Absent);
        let mcp = row(bucket("mcp_tokens"), "aw_1", data, Raw::Absent);
        assert_eq!(belongs_to(&spa, &actor(ACTOR)), Belongs::Unreadable);
        assert_eq!(belongs_to(&spa, &chain("x")), Belongs::Unreadable);
        assert_eq!(belongs_to(&mcp, &client("mcp_c")), Belongs::Unreadable);
        assert_eq!(belongs_to(&mcp, &chain("x")), Belongs::Unreadable);
        assert!(Selection::new(chain("x")).take(mcp, bucket("mcp_tokens")).is_err());
    }
    // A field of another type does not match.
    assert_eq!(belongs_to(&of("mcp_tokens", "aw_1", &json!({"client_id": 5})), &client("5")), Belongs::No);
}

#[test]
fn reads_a_duplicate_key_as_python_does() {
    let twice = text("{\"client_id\": \"mcp_a\", \"client_id\": \"mcp_b\"}");
    let row = row(bucket("mcp_tokens"), "aw_1", twice, Raw::Absent);
    assert_eq!((belongs_to(&row, &client("mcp_a")), belongs_to(&row, &client("mcp_b"))), (Belongs::No, Belongs::Yes));
}

#[test]
fn a_session_belongs_to_the_actor_only_by_its_token_data() {
    let assigned = of("_oauth_sessions", "s", &json!({"token_data": {"actor_id": ACTOR, "access_token": "t"}}));
    let pending = of("_oauth_sessions", "s", &json!({"token_data": {"access_token": "ya29"}, "actor_id": ACTOR}));
    assert_eq!(
        (belongs_to(&assigned, &actor(ACTOR)), belongs_to(&pending, &actor(ACTOR))),
        (Belongs::Yes, Belongs::No)
    );
    let selection = Selection::new(actor(ACTOR));
    assert!(!selection.is_unassigned(&assigned, bucket("_oauth_sessions")));
    assert!(selection.is_unassigned(&pending, bucket("_oauth_sessions")));
}

#[test]
fn never_claims_a_row_that_is_neither_session_nor_token() {
    let all = [actor(ACTOR), Selector::Client { id: "n".to_owned(), and_record: true }, chain("n"), token("n")];
    for known in &BUCKETS {
        let everything =
            json!({"actor_id": ACTOR, "client_id": "n", "chain_id": "n", "token_data": {"actor_id": ACTOR}});
        let row = row(known, "n", text_of(&everything), Raw::Absent);
        if kind(known).is_none() {
            assert!(all.iter().all(|selector| belongs(&row, known, selector) == Belongs::No), "{}", known.name);
        }
        let foreign = Row { bucket: text("trust_permissions"), ..row };
        assert!(all.iter().all(|selector| belongs(&foreign, known, selector) == Belongs::No), "{}", known.name);
    }
    let untouched = [
        "_id_token_replay",
        "_oauth_state_nonces",
        "_apple_exchange_tickets",
        "_email_verify_tokens",
        "_deleted_actors",
    ];
    assert!(untouched.iter().all(|name| kind(bucket(name)).is_none()));
}

#[test]
fn claims_a_client_record_only_on_request() {
    let record = of("mcp_clients", "mcp_c", &json!({"client_id": "mcp_c"}));
    let index_row = of("_client_index", "mcp_c", &json!(ACTOR));
    let and_record = Selector::Client { id: "mcp_c".to_owned(), and_record: true };
    for row in [&record, &index_row] {
        assert_eq!((belongs_to(row, &client("mcp_c")), belongs_to(row, &and_record)), (Belongs::No, Belongs::Yes));
        assert_eq!((belongs_to(row, &actor(ACTOR)), belongs_to(row, &token("mcp_c"))), (Belongs::No, Belongs::No));
    }
}

/// Takes rows in as many passes as needed; returns their names in the order of deletion.
fn claimed(selector: Selector, rows: &[Row]) -> Vec<String> {
    let mut selection = Selection::new(selector);
    let mut taken = Vec::new();
    let mut left: Vec<Row> = rows.to_vec();
    loop {
        let before = taken.len();
        left.retain(|row| match selection.take(row.clone(), row.known_bucket().expect("a known row")) {
            Ok(revoked) => {
                taken.push(revoked);
                false
            }
            Err(_) => true,
        });
        if taken.len() == before {
            taken.sort_by_key(|revoked| (revoked.delete_order(), revoked.name().to_owned()));
            return taken.iter().map(|revoked| revoked.name().to_owned()).collect();
        }
    }
}

fn grant(n: u32, chain: Option<&str>) -> Vec<Row> {
    let (access, refresh, google) = (format!("aw_{n}"), format!("rt_{n}"), format!("google_token_access_{n}"));
    vec![
        of("mcp_google_tokens", &google, &json!({"refresh_token": "secret"})),
        of(
            "mcp_tokens",
            &access,
            &json!({"token_id": format!("id{n}"), "client_id": "c", "google_token_key": google, "chain_id": chain}),
        ),
        of(
            "mcp_refresh_tokens",
            &refresh,
            &json!({"client_id": "c", "access_token": access, "google_token_key": google, "chain_id": chain}),
        ),
        of("access_token_index", &access, &json!(ACTOR)),
        of("_access_token_index", &access, &json!(ACTOR)),
        of("_refresh_token_index", &refresh, &json!(ACTOR)),
    ]
}

#[test]
fn any_token_of_a_chain_claims_all_of_it_index_rows_first_itself_last() {
    let rows: Vec<Row> = [grant(1, Some("k")), grant(2, Some("k")), grant(3, Some("other"))].concat();
    let all = |last: &str| -> Vec<String> {
        let mut names: Vec<&str> = vec!["aw_1", "aw_1", "aw_2", "aw_2", "rt_1", "rt_2"];
        names.extend(["google_token_access_1", "google_token_access_2"]);
        names.extend(["aw_1", "aw_2", "rt_1", "rt_2"].iter().filter(|name| **name != last));
        names.into_iter().chain((!last.is_empty()).then_some(last)).map(str::to_owned).collect()
    };
    assert_eq!(claimed(token("rt_2"), &rows), all("rt_2"));
    // The access token and the refresh token that was issued with it both match the selector.
    let by_access = claimed(token("aw_1"), &rows);
    assert_eq!((by_access.len(), &by_access[10..]), (12, &["aw_1".to_owned(), "rt_1".to_owned()][..]));
    assert_eq!(claimed(chain("k"), &rows), all(""));
}

#[test]
fn links_tokens_without_a_chain_by_the_tokens_they_name() {
    let rows: Vec<Row> = [grant(1, None), grant(2, None)].concat();
    for name in ["aw_1", "rt_1"] {
        let found = claimed(token(name), &rows);
        assert_eq!(found.len(), 6, "{found:?}");
        assert!(found.iter().all(|name| name.ends_with("_1")), "{found:?}");
    }
    // Before 3.15, only by an id.
    let old = [
        of("mcp_tokens", "aw_9", &json!({"token_id": "id9", "client_id": "c"})),
        of("mcp_refresh_tokens", "rt_9", &json!({"access_token_id": "id9", "client_id": "c"})),
        under("somebody", of("mcp_refresh_tokens", "rt_8", &json!({"access_token_id": "id9"}))),
    ];
    assert_eq!(claimed(token("rt_9"), &old), ["aw_9", "rt_9"]);
    assert_eq!(claimed(token("aw_9"), &old), ["rt_9", "aw_9"]);
}

#[test]
fn a_spa_token_claims_its_chain_and_the_session_that_contains_it() {
    let rows = [
        of("spa_access_tokens", "a1", &json!({"actor_id": ACTOR, "chain_id": "k"})),
        of("spa_refresh_tokens", "r1", &json!({"actor_id": ACTOR, "chain_id": "k", "used": true})),
        of("spa_refresh_tokens", "r2", &json!({"actor_id": ACTOR, "chain_id": "k"})),
        of("spa_refresh_tokens", "r3", &json!({"actor_id": ACTOR, "chain_id": "else"})),
        of(
            "_oauth_sessions",
            "s1",
            &json!({"token_data": {"actor_id": ACTOR, "access_token": "a1", "refresh_token": "r1"}}),
        ),
        of("_oauth_sessions", "s2", &json!({"token_data": {"access_token": "ya29"}})),
    ];
    assert_eq!(claimed(token("r2"), &rows), ["s1", "a1", "r1", "r2"]);
    assert_eq!(claimed(token("s1"), &rows), ["a1", "r1", "r2", "s1"]);
    assert_eq!(claimed(chain("k"), &rows), ["s1", "a1", "r1", "r2"]);
}

#[test]
fn keeps_an_index_row_that_points_at_another_actor() {
    let rows = [
        of("mcp_tokens", "aw_1", &json!({"client_id": "c"})),
        of("_access_token_index", "aw_1", &json!("somebody else")),
        of("access_token_index", "aw_1", &json!({"odd": true})),
    ];
    assert_eq!(claimed(actor(ACTOR), &rows), ["aw_1"]);
}

#[test]
fn reports_the_state_of_a_row() {
    let state = |name: &str, data: Value| {
        let mut selection = Selection::new(actor(ACTOR));
        selection.take(of(name, "n", &data), bucket(name)).map(|revoked| revoked.state(EpochSeconds::new(NOW))).unwrap()
    };
    let refresh = "mcp_refresh_tokens";
    assert_eq!(state(refresh, json!({"expires_at": NOW, "used": false})), State::Live);
    assert_eq!(state(refresh, json!({"expires_at": NOW - 301})), State::Expired);
    assert_eq!(state(refresh, json!({"expires_at": NOW + 9, "used": true, "used_at": NOW - 1})), State::Consumed);
    assert_eq!(state(refresh, json!({"expires_at": "soon"})), State::Unreadable);
    assert_eq!(state("mcp_google_tokens", json!({})), State::Attached);
}

#[test]
fn debug_output_masks_a_selector() {
    let secret = "aw_Zk3vT9q0pXy7LrWm2Nb8Hs4Jd6Fg1Ac5Eu0Io9Ty3B";
    assert!(!format!("{:?}", token(secret)).contains(&secret[..10]));
}

const IDS: [&str; 3] = ["one", "two", "three"];

fn any_row() -> impl Strategy<Value = (Row, &'static Bucket)> {
    let id = || prop::sample::select(&IDS[..]);
    (0..BUCKETS.len(), id(), id(), id(), id(), id(), 0..4_u8).prop_map(|(n, owner, name, actor, client, chain, odd)| {
        let bucket = &BUCKETS[n];
        let owner = match bucket.owner {
            Owner::System(system) => system,
            Owner::Actor => owner,
            Owner::Legacy => "_mcp_system",
        };
        let fields =
            json!({"actor_id": actor, "client_id": client, "chain_id": chain, "token_data": {"actor_id": actor}});
        let data = match odd {
            0 => text("{\"actor_id\": \"one\", "),
            _ => text_of(&fields),
        };
        (under(owner, row(bucket, name, data, Raw::Absent)), bucket)
    })
}

proptest! {
    #[test]
    fn takes_no_row_of_another_actor_client_or_chain((row, bucket) in any_row(), id in prop::sample::select(&IDS[..])) {
        let matches_field = |field: &str| {
            let data: Value = row.data.text().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
            let inner = if bucket.name.ends_with("oauth_sessions") { &data["token_data"] } else { &data };
            inner[field] == json!(id)
        };
        let of_an_actor = row.key.owner != OAUTH_OWNER && !row.key.owner.starts_with('_');
        let is_token = of_an_actor && ["mcp_tokens", "mcp_refresh_tokens", "mcp_auth_codes"].contains(&bucket.name);
        let is_spa = bucket.name.starts_with("spa_");
        let is_session = bucket.name.ends_with("oauth_sessions");
        let mine = row.key.owner == id && (is_token || bucket.name == "mcp_google_tokens");
        let yes = |selector| belongs(&row, bucket, &selector) == Belongs::Yes;
        prop_assert_eq!(yes(actor(id)), mine || (is_spa || is_session) && matches_field("actor_id"));
        prop_assert_eq!(yes(client(id)), is_token && matches_field("client_id"));
        prop_assert_eq!(yes(chain(id)), (is_token || is_spa) && matches_field("chain_id"));
        let fresh = Selection::new(actor(id));
        prop_assert_eq!(fresh.claims(&row, bucket), belongs(&row, bucket, &actor(id)));
        if let Ok(revoked) = Selection::new(actor(id)).take(row.clone(), bucket) {
            prop_assert!(revoked.kind() != RowKind::Client && revoked.kind() != RowKind::Index);
        }
    }
}
