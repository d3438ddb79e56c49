//! More boundaries of the decisions, as tables: cases that the engine tests cover only indirectly, and that `cargo mutants` found.

use model::rows::{ACTOR, NOW, bucket, json as data, number, row, text};
use serde_json::{Value, json};
use shared::bucket::{self, BUCKETS, CLOCK_SLACK_SECONDS, GRACE_SECONDS, Owner, REUSE_WINDOW_SECONDS};
use shared::disposal::condemn;
use shared::expiry::DeleteReason as D;
use shared::expiry::KeepReason as K;
use shared::expiry::Verdict::{self, Delete, Keep};
use shared::expiry::{Policy, dead_from, judge};
use shared::integrity::{
    Question, Referrers, Sighting, ask_anyway, could_go_unindexed, judge_lone_provider, judge_unindexed, provider_age,
    provider_named_by,
};
use shared::row::{Field, Fields, Raw, Row, RowKey, TtlFault};
use shared::settings::{Mode, Purpose, Scope, Settings, is_table_name};
use shared::time::EpochSeconds;

const HOUR: i64 = 3_600;

/// The greatest age of a row whose writer may not have finished, by a clock that may be behind.
const SETTLED: i64 = GRACE_SECONDS + CLOCK_SLACK_SECONDS;

fn now() -> EpochSeconds {
    EpochSeconds::new(NOW)
}

fn token(bucket_name: &str, fields: &Value, ttl: Raw) -> Row {
    row(bucket(bucket_name), "t", data(fields), ttl)
}

#[test]
fn deletes_an_unindexed_token_older_than_the_grace_period() {
    let alive = |created: Value| json!({"created_at": created, "expires_at": NOW + 9});
    for name in ["mcp_tokens", "mcp_auth_codes", "mcp_refresh_tokens"] {
        for (what, created, first, again) in [
            ("older than the grace period", json!(NOW - SETTLED - 1), Delete(D::Unindexed), Delete(D::Unindexed)),
            ("exactly as old", json!(NOW - SETTLED), Keep(K::Young), Keep(K::Young)),
            ("younger", json!(NOW - SETTLED + 1), Keep(K::Young), Keep(K::Young)),
            ("created in the future", json!(NOW + 1), Keep(K::Young), Keep(K::Young)),
            ("of unknown age", Value::Null, Keep(K::SeenOnce), Delete(D::Unindexed)),
            ("of a malformed age", json!("x"), Keep(K::SeenOnce), Delete(D::Unindexed)),
        ] {
            let row = token(name, &alive(created), Raw::Absent);
            for (sighting, verdict) in [(Sighting::First, first), (Sighting::Again, again)] {
                let got = judge_unindexed(&row, bucket(name), sighting, now(), &Policy::default());
                assert_eq!(got, verdict, "{name} {what} {sighting:?}");
            }
            let could = could_go_unindexed(&row, bucket(name), now(), &Policy::default());
            assert_eq!(could.is_ok(), matches!(again, Delete(_)), "{name} {what}");
        }
    }
}

#[test]
fn keeps_an_unindexed_tripwire_during_its_reuse_window() {
    let used = |used: Value| json!({"created_at": 1, "expires_at": NOW + 9, "used": used, "used_at": NOW});
    for (name, flag, verdict) in [
        ("mcp_refresh_tokens", json!(true), Keep(K::Tripwire)),
        ("mcp_refresh_tokens", json!("yes"), Keep(K::Malformed)),
        ("mcp_refresh_tokens", json!(false), Delete(D::Unindexed)),
        ("mcp_auth_codes", json!(true), Delete(D::Unindexed)),
        ("mcp_tokens", json!("yes"), Delete(D::Unindexed)),
    ] {
        let row = token(name, &used(flag.clone()), Raw::Absent);
        let got = judge_unindexed(&row, bucket(name), Sighting::Again, now(), &Policy::default());
        assert_eq!(got, verdict, "{name} used {flag}");
    }
    let foreign = Row { bucket: text("remote"), ..token("mcp_tokens", &json!({"created_at": 1}), Raw::Absent) };
    let got = judge_unindexed(&foreign, bucket("mcp_tokens"), Sighting::Again, now(), &Policy::default());
    assert_eq!(got, Keep(K::Foreign));
}

#[test]
fn leaves_an_unindexed_row_to_a_ttl_within_the_retire_days() {
    let policy = Policy { retire: Some(7 * 24 * HOUR), ..Policy::default() };
    let beyond = number(NOW + 7 * 24 * HOUR + 1);
    for (ttl, could) in [(number(NOW + 1), Err(K::LeftToTtl)), (beyond, Ok(())), (Raw::Absent, Ok(()))] {
        let row = token("mcp_tokens", &json!({"created_at": 1, "expires_at": NOW + 9}), ttl);
        assert_eq!(could_go_unindexed(&row, bucket("mcp_tokens"), now(), &policy), could);
    }
}

/// A provider row of this age, by its TTL.
fn provider(age: i64) -> Row {
    token("mcp_google_tokens", &json!({"refresh_token": "x"}), number(NOW - age + 2 * HOUR))
}

#[test]
fn deletes_a_lone_provider_row_older_than_the_grace_period() {
    assert_eq!(provider_age(&provider(77), now()), Some(77));
    assert_eq!(provider_age(&provider(2 * HOUR + 1), now()), None, "past its TTL");
    let ageless = token("mcp_google_tokens", &json!({}), Raw::Absent);
    assert_eq!(provider_age(&ageless, now()), None);
    let unreferenced = Some(Delete(D::Unreferenced));
    for (what, row, first, again) in [
        ("older", provider(SETTLED + 1), unreferenced, unreferenced),
        ("exactly as old", provider(SETTLED), Some(Keep(K::Young)), Some(Keep(K::Young))),
        ("past its TTL", provider(2 * HOUR + 1), Some(Delete(D::TtlPast)), Some(Delete(D::TtlPast))),
        ("of unknown age", ageless, Some(Keep(K::SeenOnce)), unreferenced),
    ] {
        for (sighting, verdict) in [(Sighting::First, first), (Sighting::Again, again)] {
            let got = judge_lone_provider(&row, Referrers::None, sighting, now(), &Policy::default());
            assert_eq!(got, verdict, "{what} {sighting:?}");
        }
    }
    let judged =
        |referrers| judge_lone_provider(&provider(SETTLED + 1), referrers, Sighting::Again, now(), &Policy::default());
    assert_eq!((judged(Referrers::Some), judged(Referrers::Unknown)), (Some(Keep(K::Referenced)), None));
}

#[test]
fn a_token_names_its_provider_row() {
    let named = |key: Value| provider_named_by(&token("mcp_tokens", &json!({"google_token_key": key}), Raw::Absent));
    assert_eq!(named(json!("google_token_x")), Some("google_token_x".to_owned()));
    assert_eq!((named(json!("")), named(json!(1)), named(Value::Null)), (None, None, None));
}

#[test]
fn every_field_is_read_from_its_own_key() {
    let fields = json!({"created_at": 1, "expires_at": 2, "exp": 3, "used_at": 4, "seen_at": 5, "retrieved_at": 6,
        "access_token": "a", "google_token_key": "g", "used": false});
    let read = Fields::read(&data(&fields)).expect("an object");
    let times = [read.created_at, read.expires_at, read.exp, read.used_at, read.seen_at, read.retrieved_at];
    assert_eq!(times, [1, 2, 3, 4, 5, 6].map(|at| Field::Is(EpochSeconds::new(at))));
    assert_eq!((read.access_token.as_deref(), read.google_token_key.as_deref()), (Some("a"), Some("g")));
    assert_eq!(read.used, Field::Is(false));
}

#[test]
fn the_repair_looks_up_the_target_of_every_index_row() {
    let policy = Policy::default();
    let index = |data: Raw, ttl: Raw| row(bucket("_access_token_index"), "t", data, ttl);
    let ask = |row: &Row, name: &str, policy: &Policy| ask_anyway(row, bucket(name), now(), policy);
    let pointer = index(data(&json!(ACTOR)), number(NOW + 9 * HOUR));
    let target = Question::LookAt(RowKey::new(ACTOR, "mcp_tokens:t"));
    assert_eq!(ask(&pointer, "_access_token_index", &policy), target, "even if it is not due");
    assert_eq!(ask(&pointer, "access_token_index", &policy), Question::Settled(K::Foreign), "of the other generation");
    let session = token("_oauth_sessions", &json!(ACTOR), Raw::Absent);
    assert_eq!(ask(&session, "_oauth_sessions", &policy), Question::Settled(K::Foreign), "not an index row");
}

#[test]
fn deletes_rows_that_only_3_2_1_read_if_remove_legacy_is_set() {
    for legacy in BUCKETS.iter().filter(|bucket| bucket.owner == Owner::Legacy) {
        let row = row(legacy, "t", data(&json!(ACTOR)), number(NOW - 1));
        for (remove_legacy, verdict) in [(false, Keep(K::Legacy)), (true, Delete(D::Legacy))] {
            let policy = Policy { remove_legacy, ..Policy::default() };
            assert_eq!(judge(&row, legacy, now(), &policy), verdict);
            assert_eq!(condemn(row.clone(), legacy, now(), &policy).is_ok(), remove_legacy);
        }
    }
}

#[test]
fn a_row_is_dead_from_the_second_that_dead_from_returns() {
    let window = REUSE_WINDOW_SECONDS;
    let longer = Policy { reuse_window: 2 * window, ..Policy::default() };
    let used = json!({"expires_at": NOW - 9, "used": true, "used_at": NOW});
    for (name, fields, ttl, policy, from) in [
        ("_oauth_sessions", json!({"created_at": NOW}), Raw::Absent, Policy::default(), Some(NOW + 901)),
        ("mcp_tokens", json!({"expires_at": NOW}), number(NOW - 5), Policy::default(), Some(NOW + 301)),
        ("mcp_tokens", json!({"expires_at": NOW + 5, "used": true}), number(NOW), Policy::default(), Some(NOW + 1)),
        ("mcp_tokens", json!({}), number(NOW), Policy::default(), Some(NOW + 1)),
        ("mcp_tokens", json!({}), Raw::Absent, Policy::default(), None),
        ("mcp_refresh_tokens", used.clone(), Raw::Absent, Policy::default(), Some(NOW + window + 301)),
        ("mcp_refresh_tokens", used.clone(), number(NOW + 9), Policy::default(), Some(NOW + 10)),
        // A longer window than the library's outlasts the TTL.
        ("mcp_refresh_tokens", used.clone(), number(NOW + 9), longer, Some(NOW + 2 * window + 301)),
        ("mcp_refresh_tokens", used, number(NOW + 3 * window), longer, Some(NOW + 2 * window + 301)),
        ("_id_token_replay", json!({"exp": NOW}), Raw::Absent, Policy::default(), Some(NOW + 360)),
        ("_id_token_replay", json!({"exp": 0}), number(NOW), Policy::default(), Some(NOW + 1)),
        ("mcp_google_tokens", json!({}), number(NOW), Policy::default(), Some(NOW + 1)),
        ("mcp_clients", json!({"expires_at": 1}), number(NOW), Policy::default(), None),
        ("_client_index", json!("actor"), number(NOW), Policy::default(), None),
    ] {
        let row = token(name, &fields, ttl);
        let dead_at = dead_from(&row, bucket(name), &policy).map(EpochSeconds::get);
        assert_eq!(dead_at, from, "{name} {fields}");
        if let Some(from) = from {
            let dead =
                |at: i64| matches!(judge(&row, bucket(name), EpochSeconds::new(at), &policy), Verdict::Delete(_));
            assert!(!dead(from - 1) && dead(from), "{name} {fields}");
        }
    }
    let foreign = Row { bucket: text("remote"), ..token("mcp_tokens", &json!({"expires_at": 1}), Raw::Absent) };
    assert_eq!(dead_from(&foreign, bucket("mcp_tokens"), &Policy::default()), None);
}

#[test]
fn reports_what_is_wrong_with_a_ttl() {
    let five_years = 5 * 365 * 86_400;
    let fault = |ttl: Raw, now: i64| token("mcp_tokens", &json!({}), ttl).ttl_fault(EpochSeconds::new(now));
    for (ttl, expected) in [
        (Raw::Absent, None),
        (number(NOW), None),
        (number(NOW - five_years), None),
        (number(NOW - five_years - 1), Some(TtlFault::TooOld)),
        (number(0), Some(TtlFault::TooOld)),
        (number(99_999_999_999_i64), None),
        (number(100_000_000_000_i64), Some(TtlFault::Milliseconds)),
        (number("100000000000.5"), Some(TtlFault::Milliseconds)),
        (number("1E+11"), Some(TtlFault::Milliseconds)),
        (number("99999999999.5"), Some(TtlFault::NotWholeSeconds)),
        (number("-1.5"), Some(TtlFault::NotWholeSeconds)),
        (text("1"), Some(TtlFault::NotANumber)),
    ] {
        assert_eq!(fault(ttl.clone(), NOW), expected, "{ttl:?}");
    }
    // A clock before 1975.
    assert_eq!(
        (fault(number(0), 9), fault(number(-1), 9), fault(number(1), 9)),
        (Some(TtlFault::TooOld), Some(TtlFault::TooOld), None)
    );
}

#[test]
fn a_delete_costs_one_write_unit_per_started_kilobyte() {
    let units = |bytes: usize| Row { bytes, ..provider(0) }.write_units();
    assert_eq!((units(0), units(1), units(1_024), units(1_025), units(409_600)), (1, 1, 1, 2, 400));
}

#[test]
fn a_key_is_storable_up_to_dynamodbs_limits() {
    let storable = |owner: usize, sort: usize| RowKey::new("o".repeat(owner), "s".repeat(sort)).is_storable();
    assert!(storable(1, 1) && storable(2_048, 1_024));
    assert!(!storable(0, 1) && !storable(1, 0) && !storable(2_049, 1) && !storable(1, 1_025));
}

#[test]
fn debug_output_of_a_row_shows_types_and_no_content() {
    let shown = [Raw::Absent, text("s"), number(1), Raw::Bool(true), Raw::Null, Raw::Bytes(vec![1]), Raw::List(vec![])]
        .map(|raw| format!("{raw:?}"));
    assert_eq!(shown, ["absent", "text", "a number", "a boolean", "null", "bytes", "a list"]);
    let row = format!("{:?}", token("mcp_tokens", &json!({"token": "secret-in-the-row"}), text("secret-ttl")));
    assert!(row.contains("bytes: 200") && !row.contains("secret"), "{row}");
    let key = format!("{:?}", RowKey::new(ACTOR, "mcp_tokens:aw_0123456789abcdef"));
    assert!(key.contains("/mcp_tokens:aw_012…#") && !key.contains("aw_0123456789") && !key.contains(ACTOR), "{key}");
}

#[test]
fn a_row_belongs_to_the_bucket_of_its_attribute_and_owner() {
    for known in &BUCKETS {
        let mine = row(known, "n", Raw::Absent, Raw::Absent);
        assert_eq!(mine.known_bucket().map(|bucket| (bucket.name, bucket.owner)), Some((known.name, known.owner)));
        assert_eq!(Row { bucket: Raw::Absent, ..mine }.known_bucket(), None);
    }
}

#[test]
fn an_owner_matches_only_its_own_ids() {
    for (owner, held, not) in [
        (Owner::System("_actingweb_system"), vec!["_actingweb_system"], vec!["_actingweb_oauth2", "actor", ""]),
        (Owner::Legacy, vec!["_mcp_system", "_mcp_global"], vec!["_mcp_", "actor", "_actingweb_oauth2"]),
        (
            Owner::Actor,
            vec!["actor", "_x", "_actingweb_oauth2"],
            vec!["_actingweb_system", "_actingweb_janitor", "_mcp_global"],
        ),
    ] {
        assert!(held.iter().all(|id| owner.holds(id)) && !not.iter().any(|id| owner.holds(id)), "{owner:?}");
    }
    assert_eq!(bucket::of_actor("mcp_tokens").map(|bucket| bucket.owner), Some(Owner::Actor));
    assert_eq!(bucket::of_actor("_oauth_sessions"), None);
    assert_eq!(bucket::provider().sort_prefix(), "mcp_google_tokens:");
    let created = bucket("spa_access_tokens").created_at(EpochSeconds::new(NOW)).map(EpochSeconds::get);
    assert_eq!((created, bucket("mcp_clients").created_at(now())), (Some(NOW - 2 * HOUR), None));
}

#[test]
fn setting_names_and_limits_are_exact() {
    assert_eq!([Mode::Delete, Mode::DryRun].map(Mode::name), ["delete", "dry-run"]);
    assert_eq!([Scope::System, Scope::All].map(Scope::name), ["system", "all"]);
    let parse = |pairs: &[(&str, &str)]| {
        let environment = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Settings::for_command(&environment, &serde_json::Map::new(), Purpose::Cleanup)
    };
    let agreeing = parse(&[("AWS_DB_PREFIX", "app"), ("ATTRIBUTES_TABLE", "app_attributes")]);
    assert_eq!(agreeing.map(|settings| settings.table), Ok("app_attributes".to_owned()));
    for (setting, good, bad) in [
        ("MAX_DELETES", "1", "0"),
        ("MAX_DELETE_SHARE", "1", "1.0001"),
        ("MAX_DELETE_SHARE", "0.0001", "0"),
        ("MAX_WRITE_UNITS_PER_SECOND", "0.1", "0.09"),
        ("MAX_READ_UNITS_PER_SECOND", "0.1", "inf"),
        ("REUSE_WINDOW_SECONDS", "172800", "172799"),
        ("REUSE_WINDOW_SECONDS", "315360000", "315360001"),
        ("GRACE_SECONDS", "300", "299"),
        ("GRACE_SECONDS", "315360000", "315360001"),
    ] {
        assert!(parse(&[("AWS_DB_PREFIX", "app"), (setting, good)]).is_ok(), "{setting}={good}");
        assert!(parse(&[("AWS_DB_PREFIX", "app"), (setting, bad)]).is_err(), "{setting}={bad}");
    }
    let named = |length: usize| is_table_name(&"t".repeat(length));
    assert_eq!((named(2), named(3), named(255), named(256)), (false, true, true, false));
}

#[test]
fn a_segment_has_the_numbers_of_a_dynamodb_scan() {
    let segment = shared::segment::Segment::new(2, 5).unwrap();
    assert_eq!(segment.of_scan(), (2, 5));
}
