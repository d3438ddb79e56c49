//! Every rule of docs/rows.md as a table of boundaries, which also lists the rows that are kept.

use model::rows::{ACTOR, NOW, bucket, json as data, number, row, text};
use serde_json::{Value, json};
use shared::bucket::{self, BUCKETS, REUSE_WINDOW_SECONDS, Rule, TTL_SKEW_SECONDS};
use shared::expiry::DeleteReason as D;
use shared::expiry::KeepReason as K;
use shared::expiry::Verdict::{self, Delete, Keep};
use shared::expiry::{Policy, judge};
use shared::index;
use shared::integrity::{Lookup, Question, Referrers, ask, compare, judge_provider};
use shared::row::{Raw, Row, RowKey, Ttl, TtlState};
use shared::time::EpochSeconds;

const WINDOW: i64 = REUSE_WINDOW_SECONDS;
const FIVE_YEARS: i64 = 5 * 365 * 86_400;

fn now() -> EpochSeconds {
    EpochSeconds::new(NOW)
}

/// Judges each row of a table and reports every unexpected verdict.
fn check(bucket_name: &str, table: &[(&str, Raw, Raw, Verdict)]) {
    check_with(bucket_name, &Policy::default(), table);
}

fn check_with(bucket_name: &str, policy: &Policy, table: &[(&str, Raw, Raw, Verdict)]) {
    let bucket = bucket(bucket_name);
    let wrong: Vec<_> = table
        .iter()
        .filter_map(|(state, data, ttl, verdict)| {
            let got = judge(&row(bucket, "n", data.clone(), ttl.clone()), bucket, now(), policy);
            (got != *verdict).then(|| format!("{bucket_name}: {state}: {got:?}, not {verdict:?}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// TTLs of every kind: `(description, value, state)`.
fn ttls() -> Vec<(&'static str, Raw, TtlState)> {
    vec![
        ("long past", number(NOW - 86_400 * 30), TtlState::Past),
        ("just past", number(NOW - 1), TtlState::Past),
        ("this second", number(NOW), TtlState::Future),
        ("just ahead", number(NOW + 1), TtlState::Future),
        ("five years past", number(NOW - FIVE_YEARS), TtlState::Past),
        ("absent", Raw::Absent, TtlState::Absent),
        ("more than five years ago", number(NOW - FIVE_YEARS - 1), TtlState::Malformed),
        ("zero", number(0), TtlState::Malformed),
        ("negative", number(-NOW), TtlState::Malformed),
        ("milliseconds", number(NOW * 1_000), TtlState::Malformed),
        ("past in milliseconds", number((NOW - 86_400) * 1_000), TtlState::Malformed),
        ("a fraction", number("1700000000.5"), TtlState::Malformed),
        ("an exponent", number("1.7E+9"), TtlState::Malformed),
        ("beyond 64 bits", number("99999999999999999999"), TtlState::Malformed),
        ("text", text("1700000000"), TtlState::Malformed),
        ("a boolean", Raw::Bool(true), TtlState::Malformed),
        ("null", Raw::Null, TtlState::Malformed),
    ]
}

#[test]
fn reads_every_kind_of_ttl() {
    for (what, raw, state) in ttls() {
        assert_eq!(Ttl::read(&raw).state(now()), state, "{what}");
    }
}

#[test]
fn keeps_a_session_until_ten_minutes_have_passed() {
    let created = |at: i64| data(&json!({"token_data": {}, "created_at": at}));
    for name in ["oauth_sessions", "_oauth_sessions"] {
        check(
            name,
            &[
                ("long dead", created(NOW - 86_400), Raw::Absent, Delete(D::Expired)),
                ("just dead", created(NOW - 901), Raw::Absent, Delete(D::Expired)),
                ("inside the slack", created(NOW - 900), Raw::Absent, Keep(K::Alive)),
                ("first second of the slack", created(NOW - 601), Raw::Absent, Keep(K::Alive)),
                ("this second", created(NOW - 600), Raw::Absent, Keep(K::Alive)),
                ("just alive", created(NOW - 599), Raw::Absent, Keep(K::Alive)),
                ("future", created(NOW + 3_600), Raw::Absent, Keep(K::Alive)),
                ("far future", created(i64::MAX), Raw::Absent, Keep(K::Alive)),
                ("far past", created(i64::MIN), Raw::Absent, Delete(D::Expired)),
            ],
        );
    }
}

#[test]
fn keeps_a_token_in_the_second_it_expires() {
    let expires = |at: i64| data(&json!({"created_at": at - 3_600, "expires_at": at}));
    for name in [
        "spa_access_tokens",
        "spa_refresh_tokens",
        "mcp_tokens",
        "mcp_auth_codes",
        "mcp_refresh_tokens",
        "_apple_exchange_tickets",
    ] {
        check(
            name,
            &[
                ("long dead", expires(NOW - 86_400), Raw::Absent, Delete(D::Expired)),
                ("just dead", expires(NOW - 301), Raw::Absent, Delete(D::Expired)),
                ("dead, though its TTL is ahead", expires(NOW - 301), number(NOW + 3_299), Delete(D::Expired)),
                ("inside the slack", expires(NOW - 300), number(NOW + 3_300), Keep(K::Alive)),
                ("inside the slack, TTL past", expires(NOW - 300), number(NOW - 1), Keep(K::Contradiction)),
                ("first second of the slack", expires(NOW - 1), Raw::Absent, Keep(K::Alive)),
                ("this second", expires(NOW), Raw::Absent, Keep(K::Alive)),
                ("just alive", expires(NOW + 1), number(NOW + 3_601), Keep(K::Alive)),
                ("alive, though its TTL is past", expires(NOW + 1), number(NOW - 1), Keep(K::Contradiction)),
                ("future", expires(NOW + 86_400), Raw::Absent, Keep(K::Alive)),
            ],
        );
    }
}

#[test]
fn keeps_a_consumed_refresh_token_through_its_reuse_window() {
    let used = |used_at: i64, expires: i64| data(&json!({"expires_at": expires, "used": true, "used_at": used_at}));
    for name in ["spa_refresh_tokens", "mcp_refresh_tokens"] {
        check(
            name,
            &[
                ("just consumed", used(NOW, NOW + 86_400), Raw::Absent, Keep(K::Tripwire)),
                ("consumed and expired, inside the window", used(NOW - 1, NOW - 1), Raw::Absent, Keep(K::Tripwire)),
                (
                    "one second before the window ends",
                    used(NOW - WINDOW + 1, NOW - 301),
                    Raw::Absent,
                    Keep(K::Tripwire),
                ),
                ("the second in which it ends", used(NOW - WINDOW, NOW - 301), Raw::Absent, Keep(K::Tripwire)),
                ("inside the slack", used(NOW - WINDOW - 300, NOW - 301), Raw::Absent, Keep(K::Tripwire)),
                ("just dead", used(NOW - WINDOW - 301, NOW - 301), Raw::Absent, Delete(D::Consumed)),
                ("after, expiry inside the slack", used(NOW - WINDOW - 301, NOW - 300), Raw::Absent, Keep(K::Tripwire)),
                ("after, not expired", used(NOW - WINDOW - 301, NOW + 86_400), Raw::Absent, Keep(K::Tripwire)),
                (
                    "after, not expired, TTL past",
                    used(NOW - WINDOW - 3_601, NOW + 86_400),
                    number(NOW - 1),
                    Delete(D::TtlPast),
                ),
                ("inside the window, TTL past", used(NOW - 1, NOW + 86_400), number(NOW - 1), Delete(D::TtlPast)),
                ("inside the window, TTL this second", used(NOW - 1, NOW + 86_400), number(NOW), Keep(K::Tripwire)),
                ("consumed in the future", used(NOW + 86_400, NOW - 1), Raw::Absent, Keep(K::Tripwire)),
                (
                    "used at an unknown time",
                    data(&json!({"expires_at": NOW - 1, "used": true})),
                    Raw::Absent,
                    Keep(K::Malformed),
                ),
                (
                    "used at an unknown time, TTL past",
                    data(&json!({"expires_at": NOW - 1, "used": true})),
                    number(NOW - 1),
                    Delete(D::TtlPast),
                ),
                (
                    "used_at null",
                    data(&json!({"expires_at": NOW - 1, "used": true, "used_at": null})),
                    Raw::Absent,
                    Keep(K::Malformed),
                ),
                (
                    "used, no expiry",
                    data(&json!({"used": true, "used_at": NOW - WINDOW - 301})),
                    Raw::Absent,
                    Keep(K::Malformed),
                ),
                (
                    "used is not a boolean",
                    data(&json!({"expires_at": NOW - 1, "used": 1, "used_at": 1})),
                    Raw::Absent,
                    Keep(K::Malformed),
                ),
            ],
        );
    }
}

#[test]
fn a_longer_reuse_window_keeps_tokens_longer() {
    let policy = Policy { reuse_window: 2 * WINDOW, ..Policy::default() };
    let used = |used_at: i64| data(&json!({"expires_at": NOW - 301, "used": true, "used_at": used_at}));
    check_with(
        "spa_refresh_tokens",
        &policy,
        &[
            ("inside the slack", used(NOW - 2 * WINDOW - 300), Raw::Absent, Keep(K::Tripwire)),
            ("just dead", used(NOW - 2 * WINDOW - 301), Raw::Absent, Delete(D::Consumed)),
            (
                "inside, though its TTL, based on the library's window, is past",
                used(NOW - 2 * WINDOW - 300),
                number(NOW - 1),
                Keep(K::Tripwire),
            ),
            ("after, TTL past", used(NOW - 2 * WINDOW - 301), number(NOW - 1), Delete(D::Consumed)),
        ],
    );
}

#[test]
fn deletes_a_used_code_by_its_ttl_and_keeps_an_unused_one() {
    let code = |used: bool| data(&json!({"expires_at": NOW + 60, "used": used}));
    check(
        "mcp_auth_codes",
        &[
            ("unused, alive, TTL past", code(false), number(NOW - 1), Keep(K::Contradiction)),
            ("used, alive, TTL past", code(true), number(NOW - 1), Delete(D::TtlPast)),
            ("used, alive, TTL ahead", code(true), number(NOW), Keep(K::Alive)),
        ],
    );
}

#[test]
fn keeps_a_replay_marker_for_a_minute_and_the_slack_after_its_exp() {
    let exp = |at: i64| data(&json!({"seen_at": NOW - 300, "exp": at}));
    check(
        "_id_token_replay",
        &[
            ("just alive", exp(NOW - 59), Raw::Absent, Keep(K::Alive)),
            ("first second of the slack", exp(NOW - 60), Raw::Absent, Keep(K::Alive)),
            ("inside the slack", exp(NOW - 359), Raw::Absent, Keep(K::Alive)),
            ("just dead", exp(NOW - 360), Raw::Absent, Delete(D::Expired)),
            ("long dead", exp(NOW - 86_400), Raw::Absent, Delete(D::Expired)),
            ("future", exp(NOW + 600), Raw::Absent, Keep(K::Alive)),
            ("alive, TTL past", exp(NOW - 359), number(NOW - 1), Keep(K::Contradiction)),
            ("no exp known, TTL ahead", exp(0), number(NOW), Keep(K::Alive)),
            ("no exp known, TTL past", exp(0), number(NOW - 1), Delete(D::TtlPast)),
            ("no exp known, no TTL", exp(0), Raw::Absent, Keep(K::WithoutTtl)),
            ("exp missing", data(&json!({"seen_at": 1})), Raw::Absent, Keep(K::Malformed)),
        ],
    );
}

#[test]
fn judges_a_ticket_without_expiry_by_its_ttl() {
    let ticket = data(&json!({"code": "c", "redirect_uri": "u", "provider": "apple"}));
    check(
        "_apple_exchange_tickets",
        &[
            ("TTL past", ticket.clone(), number(NOW - 1), Delete(D::TtlPast)),
            ("TTL this second", ticket.clone(), number(NOW), Keep(K::Alive)),
            ("no TTL", ticket, Raw::Absent, Keep(K::WithoutTtl)),
            ("expiry malformed", data(&json!({"expires_at": "soon"})), Raw::Absent, Keep(K::Malformed)),
        ],
    );
}

#[test]
fn judges_nonces_verify_tokens_and_tombstones_by_their_ttl_alone() {
    for name in ["_oauth_state_nonces", "_email_verify_tokens", "_deleted_actors"] {
        // Whatever their data, even fields that look expired.
        for content in
            [data(&json!({"expires_at": 1, "created_at": 1})), data(&json!("actor")), text("not json"), Raw::Absent]
        {
            for (what, ttl, state) in ttls() {
                let verdict = match state {
                    TtlState::Past => Delete(D::TtlPast),
                    TtlState::Future => Keep(K::Alive),
                    TtlState::Absent => Keep(K::WithoutTtl),
                    TtlState::Malformed => Keep(K::Malformed),
                };
                check(name, &[(what, content.clone(), ttl, verdict)]);
            }
        }
    }
}

/// Unreadable `data`, for buckets whose rows should say when they expire.
fn unreadable() -> Vec<(&'static str, Raw)> {
    let deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
    vec![
        ("absent", Raw::Absent),
        ("empty", text("")),
        ("not json", text("{\"expires_at\": 1")),
        ("trailing text", text("{\"expires_at\": 1, \"created_at\": 1} x")),
        ("a number", text("1")),
        ("null", text("null")),
        ("a list", text("[{\"expires_at\": 1, \"created_at\": 1}]")),
        ("a list of numbers", text("[1, 1, 1, false, 1]")),
        ("a string", text("\"{\\\"expires_at\\\": 1}\"")),
        ("an empty object", text("{}")),
        ("nested deeper than the parser's limit", text(&deep)),
        ("times as text", data(&json!({"expires_at": "1", "created_at": "1", "exp": "1"}))),
        ("times as fractions", data(&json!({"expires_at": 1.5, "created_at": 1.5, "exp": 1.5}))),
        ("times as booleans", data(&json!({"expires_at": true, "created_at": true, "exp": true}))),
        ("times null", data(&json!({"expires_at": null, "created_at": null, "exp": null}))),
        (
            "times beyond 64 bits",
            text(
                "{\"expires_at\": -99999999999999999999, \"created_at\": -99999999999999999999, \"exp\": -99999999999999999999}",
            ),
        ),
        ("NaN as Python writes it", text("{\"expires_at\": NaN, \"created_at\": NaN, \"exp\": NaN}")),
        ("not text", number(1)),
        ("a DynamoDB map", Raw::Map([("expires_at".to_owned(), number(1))].into())),
    ]
}

#[test]
fn deletes_a_row_with_malformed_data_only_by_its_ttl() {
    for name in [
        "_oauth_sessions",
        "spa_access_tokens",
        "spa_refresh_tokens",
        "_id_token_replay",
        "mcp_auth_codes",
        "mcp_tokens",
        "mcp_refresh_tokens",
    ] {
        for (what, content) in unreadable() {
            for (_, ttl, state) in ttls() {
                let verdict = if state == TtlState::Past { Delete(D::TtlPast) } else { Keep(K::Malformed) };
                check(name, &[(what, content.clone(), ttl, verdict)]);
            }
        }
    }
}

/// Rows that Python can read although they are not JSON: the application's reading counts.
#[test]
fn reads_what_python_reads() {
    let (dead, alive) = (NOW - 301, NOW - 300);
    for (what, row, expires) in [
        ("with NaN", format!("{{\"x\": [NaN, -Infinity], \"expires_at\": {alive}}}"), alive),
        ("with NaN, dead", format!("{{\"x\": Infinity, \"expires_at\": {dead}}}"), dead),
        ("half a surrogate pair as a key", format!("{{\"\\ud800\": 1, \"expires_at\": {alive}}}"), alive),
        ("an escaped key", format!("{{\"\\u0065xpires_at\": {alive}}}"), alive),
        ("twice, the last one alive", format!("{{\"expires_at\": {dead}, \"expires_at\": {alive}}}"), alive),
        ("twice, the last one dead", format!("{{\"expires_at\": {alive}, \"expires_at\": {dead}}}"), dead),
        ("beyond 64 bits", "{\"expires_at\": 99999999999999999999}".to_owned(), alive),
        ("deep", format!("{{\"x\": {}{}, \"expires_at\": {alive}}}", "[".repeat(9_999), "]".repeat(9_999)), alive),
    ] {
        // Alive by its own fields: a past TTL does not end it.
        let (without_ttl, with_past_ttl) = if expires == alive {
            (Keep(K::Alive), Keep(K::Contradiction))
        } else {
            (Delete(D::Expired), Delete(D::Expired))
        };
        for name in ["spa_access_tokens", "mcp_tokens", "mcp_refresh_tokens", "_apple_exchange_tickets"] {
            check(
                name,
                &[(what, text(&row), Raw::Absent, without_ttl), (what, text(&row), number(NOW - 1), with_past_ttl)],
            );
        }
    }
}

#[test]
fn a_malformed_ttl_does_not_change_the_verdict() {
    for (what, ttl, state) in ttls() {
        if state == TtlState::Malformed {
            let expires = |at: i64| data(&json!({"expires_at": at}));
            check("spa_access_tokens", &[(what, expires(NOW - 301), ttl.clone(), Delete(D::Expired))]);
            check("spa_access_tokens", &[(what, expires(NOW), ttl, Keep(K::Alive))]);
        }
    }
}

#[test]
fn never_deletes_a_client_record() {
    for (what, ttl, _) in ttls() {
        check("mcp_clients", &[(what, data(&json!({"created_at": 1, "expires_at": 1})), ttl, Keep(K::Permanent))]);
    }
}

#[test]
fn keeps_a_row_whose_stored_bucket_is_another_one() {
    let dead = data(&json!({"created_at": 1, "expires_at": 1}));
    for known in &BUCKETS {
        for stored in [text("remote"), text(&format!("{}:x", known.name)), text(""), Raw::Absent, number(1)] {
            let collided = Row { bucket: stored, ..row(known, "n", dead.clone(), number(NOW - 1)) };
            assert_eq!(judge(&collided, known, now(), &Policy::default()), Keep(K::Foreign), "{}", known.name);
        }
    }
}

#[test]
fn keeps_a_row_whose_key_does_not_begin_with_its_bucket() {
    let dead = data(&json!({"created_at": 1, "expires_at": 1}));
    for known in &BUCKETS {
        let mut stray = row(known, "n", dead.clone(), number(NOW - 1));
        stray.key.sort = "elsewhere:n".to_owned();
        assert_eq!(judge(&stray, known, now(), &Policy::default()), Keep(K::Foreign), "{}", known.name);
        assert_eq!(stray.known_bucket(), None);
    }
}

#[test]
fn keeps_a_row_whose_owner_does_not_match_its_bucket() {
    let dead = data(&json!({"created_at": 1, "expires_at": 1}));
    for known in &BUCKETS {
        for owner in ["_actingweb_other", "_mcp_system", "_mcp_global", "_actingweb_janitor", ""] {
            if known.owner.holds(owner) {
                continue;
            }
            let mut stray = row(known, "n", dead.clone(), number(NOW - 1));
            stray.key = RowKey::in_bucket(owner, known, "n");
            assert_eq!(judge(&stray, known, now(), &Policy::default()), Keep(K::Foreign), "{} of {owner}", known.name);
        }
    }
}

#[test]
fn unknown_buckets_are_not_in_the_table() {
    for name in [
        "_internal",
        "trust_permissions",
        "_trust_permissions",
        "_peer_profiles",
        "peer_x",
        "_callback_state",
        "_circuit_breaker_state",
        "remote:abc",
        "oauth_tokens",
        "_trust_types",
        "",
    ] {
        for owner in [ACTOR, "_actingweb_oauth2", "_actingweb_system"] {
            assert_eq!(bucket::find(owner, name), None, "{owner} {name}");
        }
    }
}

// ---- index rows -----------------------------------------------------------------------------------------------------

fn index_row(bucket_name: &str, ttl: Raw) -> Row {
    row(bucket(bucket_name), "t", data(&json!(ACTOR)), ttl)
}

fn is_due(row: &Row, bucket_name: &str) -> bool {
    matches!(ask(row, bucket(bucket_name), now(), &Policy::default()), Question::LookAt(_))
}

#[test]
fn an_index_row_is_due_only_once_its_target_can_have_expired() {
    // (bucket, its TTL from creation, life of its target)
    for (name, storage, life) in [
        ("auth_code_index", 7_800, 600),
        ("_auth_code_index", 7_800, 600),
        ("access_token_index", 10_800, 3_600),
        ("_access_token_index", 10_800, 3_600),
        ("refresh_token_index", 2_599_200, 2_592_000),
        ("_refresh_token_index", 2_599_200, 2_592_000),
        // Consumed: the tripwire's window instead of the life, with the same lead.
        ("_refresh_token_index", 180_000, 172_800),
    ] {
        let at_age = |age: i64| index_row(name, number(NOW - age + storage + TTL_SKEW_SECONDS));
        assert!(!is_due(&at_age(0), name), "{name}: fresh");
        assert!(!is_due(&at_age(life + 300), name), "{name}: inside the slack of its target");
        assert!(is_due(&at_age(life + 301), name), "{name}: one second later");
        assert!(is_due(&index_row(name, number(NOW - 1)), name), "{name}: TTL past");
        assert!(is_due(&index_row(name, Raw::Absent), name), "{name}: without TTL");
        assert!(is_due(&index_row(name, number(NOW * 1_000)), name), "{name}: TTL in milliseconds");
    }
}

#[test]
fn looks_up_the_target_under_the_actor_that_an_index_row_names() {
    let question =
        ask(&index_row("_access_token_index", Raw::Absent), bucket("_access_token_index"), now(), &Policy::default());
    assert_eq!(question, Question::LookAt(RowKey::new(ACTOR, "mcp_tokens:t")));
}

#[test]
fn an_index_row_that_names_no_actor_is_kept() {
    for content in
        [text("not json"), text("{}"), text("\"\""), text("null"), text("1"), text("[\"a\"]"), Raw::Absent, number(1)]
    {
        let row = row(bucket("_access_token_index"), "t", content.clone(), number(NOW - 1));
        let question = ask(&row, bucket("_access_token_index"), now(), &Policy::default());
        assert_eq!(question, Question::Settled(K::Malformed), "{content:?}");
    }
}

#[test]
fn only_absence_and_a_dead_target_delete_an_index_row() {
    let token = |expires: i64| row(bucket("mcp_tokens"), "t", data(&json!({"expires_at": expires})), Raw::Absent);
    let foreign = Row { bucket: text("mcp_tokens:t"), ..token(1) };
    let malformed = row(bucket("mcp_tokens"), "t", text("x"), Raw::Absent);
    for (what, target, verdict) in [
        ("absent", Lookup::Absent, Some(Delete(D::Dangling))),
        ("not read", Lookup::Unread, None),
        ("dead", Lookup::Found(token(NOW - 301)), Some(Delete(D::TargetDead))),
        ("alive", Lookup::Found(token(NOW)), Some(Keep(K::TargetKept))),
        ("malformed", Lookup::Found(malformed), Some(Keep(K::TargetKept))),
        ("another bucket's", Lookup::Found(foreign), Some(Keep(K::TargetForeign))),
    ] {
        for ttl in [Raw::Absent, number(NOW - 1), number(NOW + 1)] {
            let index = index_row("_access_token_index", ttl);
            let got = compare(&index, bucket("_access_token_index"), &target, now(), &Policy::default());
            assert_eq!(got, verdict, "{what}");
        }
    }
}

#[test]
fn deletes_a_client_index_row_only_if_its_client_is_absent() {
    let client = Lookup::Found(row(bucket("mcp_clients"), "t", data(&json!({"created_at": 1})), Raw::Absent));
    let mut registered = row(bucket("mcp_clients"), "t", data(&json!({"created_at": 1})), Raw::Absent);
    registered.key = RowKey::new("_actingweb_oauth2", "mcp_clients:t");
    for name in ["client_index", "_client_index"] {
        let of =
            |lookup: &Lookup| compare(&index_row(name, Raw::Absent), bucket(name), lookup, now(), &Policy::default());
        assert_eq!(of(&client), Some(Keep(K::TargetKept)));
        assert_eq!(of(&Lookup::Found(registered.clone())), Some(Keep(K::TargetKept)));
        assert_eq!(of(&Lookup::Absent), Some(Delete(D::Dangling)));
        assert_eq!(of(&Lookup::Unread), None);
    }
}

#[test]
fn deletes_a_provider_row_by_its_ttl_or_if_no_row_names_it() {
    let provider =
        |ttl: Raw| row(bucket("mcp_google_tokens"), "google_token_x", data(&json!({"refresh_token": "r"})), ttl);
    for (what, ttl, state) in ttls() {
        for (referrers, undecided) in [
            (Referrers::None, Some(Delete(D::Unreferenced))),
            (Referrers::Some, Some(Keep(K::Referenced))),
            (Referrers::Unknown, None),
        ] {
            let verdict = if state == TtlState::Past { Some(Delete(D::TtlPast)) } else { undecided };
            assert_eq!(judge_provider(&provider(ttl.clone()), referrers, now(), &Policy::default()), verdict, "{what}");
        }
    }
}

// ---- the table ------------------------------------------------------------------------------------------------------

/// The storage TTLs of docs/rows.md, to the second.
#[test]
fn the_bucket_table_has_the_ttls_of_the_library() {
    let expected: Value = json!({
        "oauth_sessions": [600, null], "_oauth_sessions": [600, null],
        "spa_access_tokens": [3_600, null], "spa_refresh_tokens": [1_209_600, 172_800],
        "auth_code_index": [7_800, null], "_auth_code_index": [7_800, null],
        "access_token_index": [10_800, null], "_access_token_index": [10_800, null],
        "refresh_token_index": [2_599_200, 180_000], "_refresh_token_index": [2_599_200, 180_000],
        "client_index": [null, null], "_client_index": [null, null],
        "_id_token_replay": [900, null], "_oauth_state_nonces": [600, null], "_apple_exchange_tickets": [300, null],
        "_email_verify_tokens": [86_400, null], "_deleted_actors": [2_592_000, null],
        "mcp_auth_codes": [600, null], "mcp_tokens": [3_600, null], "mcp_refresh_tokens": [2_592_000, 172_800],
        "mcp_google_tokens": [3_600, null], "mcp_clients": [null, null],
    });
    let table: serde_json::Map<String, Value> =
        BUCKETS.iter().map(|bucket| (bucket.name.to_owned(), json!([bucket.ttl, bucket.consumed_ttl]))).collect();
    assert_eq!(Value::Object(table), expected);
}

#[test]
fn every_index_bucket_points_at_a_bucket_of_the_actors_in_two_generations() {
    let targets: Vec<_> = index::targets()
        .map(|target| (target.name, index::pointing_at(target).map(|bucket| bucket.name).collect::<Vec<_>>()))
        .collect();
    assert_eq!(
        targets,
        [
            ("mcp_auth_codes", vec!["auth_code_index", "_auth_code_index"]),
            ("mcp_tokens", vec!["access_token_index", "_access_token_index"]),
            ("mcp_refresh_tokens", vec!["refresh_token_index", "_refresh_token_index"]),
            ("mcp_clients", vec!["client_index", "_client_index"]),
        ]
    );
    for known in &BUCKETS {
        assert_eq!(index::target_of(known).is_some(), matches!(known.rule, Rule::Pointer { .. }), "{}", known.name);
    }
}

#[test]
fn one_query_of_an_actor_finds_every_row_that_can_name_a_provider_row() {
    let referring: Vec<_> =
        BUCKETS.iter().filter(|bucket| bucket::can_refer(bucket)).map(|bucket| bucket.name).collect();
    assert_eq!(referring, ["mcp_auth_codes", "mcp_tokens", "mcp_refresh_tokens"]);
    assert!(referring.iter().all(|name| name.starts_with(bucket::REFERRERS_PREFIX)));
}
