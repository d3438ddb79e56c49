//! When a client is unused: every boundary also lists clients that are kept.

use shared::bucket::OAUTH_OWNER;
use shared::clients::{ClientId, Clients, Use};
use shared::row::{Raw, Row, RowKey};
use shared::time::EpochSeconds;

const NOW: i64 = 1_800_000_000;
const DAYS_30: i64 = 30 * 86_400;
const ID: &str = "mcp_0123456789abcdef0123456789abcdef";

fn row(owner: &str, bucket: &str, name: &str, data: &str) -> Row {
    let key = RowKey::new(owner, format!("{bucket}:{name}"));
    Row {
        key,
        bucket: Raw::Text(bucket.to_owned()),
        data: Raw::Text(data.to_owned()),
        ttl: Raw::Absent,
        retired_from: Raw::Absent,
        bytes: 200,
    }
}

fn record(owner: &str, created_at: &str) -> Row {
    row(
        owner,
        "mcp_clients",
        ID,
        &format!(r#"{{"client_id": "{ID}", "client_name": "Tool", "created_at": {created_at}}}"#),
    )
}

fn old() -> Row {
    record(OAUTH_OWNER, &(NOW - DAYS_30 - 1).to_string())
}

fn is_unused(rows: &[Row]) -> bool {
    let mut clients = Clients::new(EpochSeconds::new(NOW), DAYS_30);
    rows.iter().for_each(|row| clients.add(row));
    let unused = clients.all_unused();
    assert_eq!(unused.len() as u64, clients.counts().unused);
    unused == [ClientId::parse(ID).unwrap()]
}

#[test]
fn a_use_counts_each_client_once() {
    assert_eq!(Use { with_live_tokens: 1, with_dead_tokens_only: 2, without_tokens: 4 }.clients(), 7);
}

#[test]
fn a_client_with_another_id_is_counted_and_kept() {
    let mut clients = Clients::new(EpochSeconds::new(NOW), DAYS_30);
    [old(), row(OAUTH_OWNER, "mcp_clients", "mcp_other", "{}")].iter().for_each(|row| clients.add(row));
    let counts = clients.counts();
    assert_eq!((counts.clients, counts.other_ids, counts.unused), (2, 1, 1));
}

#[test]
fn accepts_only_ids_of_the_prefix_and_32_lower_case_hex_digits() {
    assert_eq!(ClientId::parse(ID).map(|id| id.to_string()).as_deref(), Some(ID));
    let upper = ID.to_uppercase();
    for other in
        ["", "mcp_", "mcp_0123", &ID[4..], &format!("{ID}0"), &upper, &ID.replace('f', "g"), &ID.replace('0', "+")]
    {
        assert_eq!(ClientId::parse(other), None, "{other}");
    }
}

#[test]
fn a_client_is_unused_once_it_is_older_than_the_requested_days() {
    for (created_at, unused) in [
        ((NOW - DAYS_30 - 1).to_string(), true),
        ((NOW - DAYS_30).to_string(), false),
        (NOW.to_string(), false),
        ((NOW + 1).to_string(), false),
        ("0".to_owned(), true),
        ("null".to_owned(), false),
        ("\"1\"".to_owned(), false),
        ("1.5".to_owned(), false),
    ] {
        assert_eq!(is_unused(&[record(OAUTH_OWNER, &created_at)]), unused, "{created_at}");
    }
}

#[test]
fn an_actors_own_client_is_never_unused() {
    assert!(!is_unused(&[record("ada", "5")]));
    // An id under two owners did not register itself.
    assert!(!is_unused(&[old(), record("ada", "5")]));
    assert!(!is_unused(&[record("_actingweb_system", "5")]));
}

#[test]
fn a_row_that_names_a_client_keeps_it_in_either_order() {
    let data = format!(r#"{{"client_id": "{ID}", "expires_at": 5}}"#);
    let named = [
        row("ada", "mcp_auth_codes", "ac_1", &data),
        row("ada", "mcp_tokens", "aw_1", &data),
        row("ada", "mcp_refresh_tokens", "rt_1", &format!(r#"{{"client_id": "{ID}", "used": true, "used_at": 5}}"#)),
        row(OAUTH_OWNER, "mcp_tokens", "aw_1", &data),
        row("_actingweb_other", "mcp_tokens", "aw_1", &data),
        row("ada", "mcp_tokens", "aw_1", &format!("{{broken {ID}")),
        row("ada", "mcp_tokens", "aw_1", &format!(r#"{{"client_id": "\u006d{}"}}"#, &ID[1..])),
        row("ada", "mcp_tokens", "aw_1", &format!(r#"{{"client\u005fid": "{ID}"}}"#)),
        // An unfinished sign-in with Apple.
        row(OAUTH_OWNER, "_oauth_state_nonces", "n", &format!(r#"{{"mcp_context": {{"client_id": "{ID}"}}}}"#)),
    ];
    for row in named {
        let key = row.key.clone();
        assert!(!is_unused(&[old(), row.clone()]), "{key:?}");
        assert!(!is_unused(&[row, old()]), "{key:?}");
    }
}

#[test]
fn other_rows_do_not_keep_a_client() {
    let other = ID.replace('f', "e");
    let rows = [
        row(OAUTH_OWNER, "_client_index", ID, &format!("\"{OAUTH_OWNER}\"")),
        row(OAUTH_OWNER, "client_index", ID, &format!("\"{OAUTH_OWNER}\"")),
        row("ada", "mcp_tokens", "aw_1", &format!(r#"{{"client_id": "{other}"}}"#)),
        // The registration writes this one itself.
        row(OAUTH_OWNER, "_internal", &format!("oauth_tokens:oauth2_client:{ID}:{ID}"), r#"{"access_token": ""}"#),
    ];
    for row in rows {
        assert!(is_unused(&[old(), row.clone()]), "{:?}", row.key);
    }
}

#[test]
fn only_its_own_rows_can_be_deleted_and_only_as_they_were_judged() {
    let mut clients = Clients::new(EpochSeconds::new(NOW), DAYS_30);
    clients.add(&old());
    let client = clients.unused(ClientId::parse(ID).unwrap()).unwrap();
    assert!(client.record(old()).is_some());
    let other = ID.replace('f', "e");
    for kept in [
        record("ada", &(NOW - DAYS_30 - 1).to_string()),
        // Registered again under the same id.
        record(OAUTH_OWNER, &NOW.to_string()),
        row(OAUTH_OWNER, "mcp_clients", &other, &format!(r#"{{"created_at": {}}}"#, NOW - DAYS_30 - 1)),
        row(OAUTH_OWNER, "mcp_tokens", ID, &format!(r#"{{"created_at": {}}}"#, NOW - DAYS_30 - 1)),
    ] {
        assert!(client.record(kept.clone()).is_none(), "{:?}", kept.key);
    }
    for (bucket, name, data, belongs) in [
        ("_client_index", ID, format!("\"{OAUTH_OWNER}\""), true),
        ("client_index", ID, format!("\"{OAUTH_OWNER}\""), true),
        ("_client_index", ID, "\"ada\"".to_owned(), false),
        ("_client_index", ID, "{".to_owned(), false),
        ("_client_index", other.as_str(), format!("\"{OAUTH_OWNER}\""), false),
        ("_auth_code_index", ID, format!("\"{OAUTH_OWNER}\""), false),
    ] {
        assert_eq!(
            client.index_row(row(OAUTH_OWNER, bucket, name, &data)).is_some(),
            belongs,
            "{bucket} {name} {data}"
        );
    }
}

#[test]
fn names_are_escaped_and_limited_in_length_and_number() {
    let mut clients = Clients::new(EpochSeconds::new(NOW), DAYS_30);
    let data = format!(r#"{{"client_name": "\u001b[31m{}", "created_at": 5}}"#, "x".repeat(500));
    clients.add(&row(OAUTH_OWNER, "mcp_clients", ID, &data));
    for number in 0..20_000 {
        let data = format!(r#"{{"client_name": "n{number}", "created_at": 5}}"#);
        clients.add(&row(OAUTH_OWNER, "mcp_clients", &format!("mcp_{number:032x}"), &data));
    }
    let name = clients.unused(ClientId::parse(ID).unwrap()).unwrap().name;
    assert!(name.starts_with("\\u{1b}[31mxxx") && name.chars().count() == 60, "{name}");
    let last = clients.unused(ClientId::parse(&format!("mcp_{:032x}", 19_999)).unwrap()).unwrap();
    assert_eq!((last.name, clients.all_unused().len()), ("", 20_001));
}
