//! Strict configuration: what is accepted, and the one line that names what is not.

use serde_json::{Map, Value, json};
use shared::settings::{Environment, ExpiredRows, Mode, Purpose, Settings, endpoint};

fn environment(pairs: &[(&str, &str)]) -> Environment {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn event(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

fn parse(pairs: &[(&str, &str)], overrides: &Value) -> Result<Settings, String> {
    Settings::parse(&environment(pairs), &event(overrides), Mode::Delete, Purpose::DailyCleanup)
        .map_err(|error| error.to_string())
}

#[test]
fn the_metrics_have_settings_of_their_own() {
    use shared::settings::{Mode, Purpose, Scope, Settings};
    let environment =
        |pairs: &[(&str, &str)]| pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let parse = |pairs: &[(&str, &str)], event: serde_json::Value, purpose| {
        let overrides = event.as_object().cloned().unwrap_or_default();
        Settings::parse(&environment(pairs), &overrides, Mode::Delete, purpose).map_err(|error| error.to_string())
    };
    let table = ("AWS_DB_PREFIX", "x");
    let none = serde_json::json!({});
    assert_eq!(parse(&[table], none.clone(), Purpose::Metrics).unwrap().scope, Scope::System);
    let all = serde_json::json!({"scope": "all", "max_audit_units": 500});
    let settings = parse(&[table], all.clone(), Purpose::Metrics).unwrap();
    assert_eq!((settings.scope, settings.max_audit_units), (Scope::All, Some(500.0)));
    // One environment for all functions: what is another's is let be, but not in an event.
    let shared = [table, ("SCOPE", "all"), ("MODE", "dry-run"), ("MAX_DELETES", "5"), ("MAX_AUDIT_UNITS", "9")];
    assert_eq!(parse(&shared, none.clone(), Purpose::Metrics).unwrap().scope, Scope::All);
    assert_eq!(parse(&shared, none.clone(), Purpose::DailyCleanup).unwrap().scope, Scope::System);
    assert_eq!(
        parse(&[table], all, Purpose::DailyCleanup).unwrap_err(),
        "scope is not a setting of this run: it is the metrics'"
    );
    for (event, error) in [
        (serde_json::json!({"scope": "some"}), "SCOPE=some: must be system or all"),
        (
            serde_json::json!({"max_audit_units": 0}),
            "MAX_AUDIT_UNITS=0: must be a number of capacity units from 0.1 up",
        ),
    ] {
        assert_eq!(parse(&[table], event, Purpose::Metrics).unwrap_err(), error);
    }
    for (wrong, error) in [
        (("MAX_AUDIT_UNITS", "x"), "MAX_AUDIT_UNITS=x: must be a number of capacity units from 0.1 up"),
        (("RESTORE_CLIENTS", "perhaps"), "RESTORE_CLIENTS=perhaps: must be true or false"),
        (("MAX_READ_UNITS", "5"), "MAX_READ_UNITS is not a setting: did you mean MAX_READ_UNITS_PER_SECOND?"),
        (("MAX_AUDIT_UNIT", "5"), "MAX_AUDIT_UNIT is not a setting: did you mean MAX_AUDIT_UNITS?"),
        (("RESTORE_CLIENT", "true"), "RESTORE_CLIENT is not a setting: did you mean RESTORE_CLIENTS?"),
        (("HAND_OVER_AFTER", "3"), "HAND_OVER_AFTER is not a setting: did you mean BACKLOG_AFTER_INCOMPLETE_RUNS?"),
        (("AWS_DB_PREFIXES", "x"), "AWS_DB_PREFIXES is not a setting: did you mean AWS_DB_PREFIX?"),
    ] {
        assert_eq!(parse(&[table, wrong], none.clone(), Purpose::DailyCleanup).unwrap_err(), error);
    }
}

#[test]
fn defaults_are_those_of_the_contract() {
    let settings = parse(&[("AWS_DB_PREFIX", "app"), ("PATH", "/bin")], &json!({})).unwrap();
    assert_eq!(settings.table, "app_attributes");
    assert_eq!((settings.mode, settings.expired_rows), (Mode::Delete, ExpiredRows::Delete));
    assert_eq!((settings.max_deletes, settings.max_delete_share), (None, None));
    assert_eq!((settings.max_write_units_per_second, settings.max_read_units_per_second), (None, None));
    assert_eq!((settings.reuse_window_seconds, settings.grace_seconds), (172_800, 3_600));
    let by_default =
        Settings::parse(&environment(&[("ATTRIBUTES_TABLE", "t-1")]), &Map::new(), Mode::DryRun, Purpose::IndexRepair)
            .unwrap();
    assert_eq!((by_default.table.as_str(), by_default.mode), ("t-1", Mode::DryRun));
}

#[test]
fn an_event_overrides_the_environment_for_its_run() {
    let settings = parse(
        &[("AWS_DB_PREFIX", "app"), ("MODE", "delete"), ("MAX_DELETES", "5")],
        &json!({"mode": "dry-run", "max_deletes": 7, "max_delete_share": 0.5, "expired_rows": "defer-to-ttl",
            "max_write_units_per_second": "2.5", "reuse_window_seconds": 200_000, "grace_seconds": 0}),
    )
    .unwrap();
    assert_eq!((settings.mode, settings.max_deletes, settings.max_delete_share), (Mode::DryRun, Some(7), Some(0.5)));
    assert_eq!((settings.expired_rows, settings.max_write_units_per_second), (ExpiredRows::DeferToTtl, Some(2.5)));
    assert_eq!((settings.reuse_window_seconds, settings.grace_seconds), (200_000, 0));
    let other_table = parse(&[("AWS_DB_PREFIX", "app")], &json!({"attributes_table": "other"})).unwrap();
    assert_eq!(other_table.table, "other");
}

#[test]
fn the_repair_has_two_switches_of_its_own() {
    let table = environment(&[("AWS_DB_PREFIX", "app"), ("REMOVE_LEGACY", "true")]);
    let on = event(&json!({"restore_clients": true}));
    let settings = Settings::parse(&table, &on, Mode::Delete, Purpose::IndexRepair).unwrap();
    assert!(settings.restore_clients && settings.remove_legacy);
    let wrong = Settings::parse(&table, &event(&json!({"remove_legacy": "yes"})), Mode::Delete, Purpose::IndexRepair);
    assert_eq!(wrong.unwrap_err().to_string(), "REMOVE_LEGACY=yes: must be true or false");
}

#[test]
fn the_cleanup_hands_over_after_so_many_cut_offs_and_the_repair_never() {
    let after = |cut_offs: &str, purpose| {
        let environment = environment(&[("AWS_DB_PREFIX", "app"), ("BACKLOG_AFTER_INCOMPLETE_RUNS", cut_offs)]);
        let settings = Settings::parse(&environment, &Map::new(), Mode::Delete, purpose);
        settings.map(|settings| settings.backlog_after_incomplete_runs).map_err(|error| error.to_string())
    };
    assert_eq!(after("", Purpose::DailyCleanup), Ok(None));
    assert_eq!(after("1", Purpose::DailyCleanup), Ok(Some(1)));
    assert_eq!(after("3", Purpose::DailyCleanup), Ok(Some(3)));
    assert_eq!(after("3", Purpose::IndexRepair), Ok(None), "the environment is shared, the setting is not");
    assert_eq!(
        after("0", Purpose::DailyCleanup),
        Err("BACKLOG_AFTER_INCOMPLETE_RUNS=0: must be a whole number from 1 up".to_owned())
    );
}

#[test]
fn an_empty_value_is_an_unset_one() {
    let settings =
        parse(&[("AWS_DB_PREFIX", "app"), ("MAX_DELETES", ""), ("ATTRIBUTES_TABLE", " ")], &json!({})).unwrap();
    assert_eq!((settings.table.as_str(), settings.max_deletes), ("app_attributes", None));
}

#[test]
fn every_mistake_is_one_line_that_names_the_setting() {
    let table = ("AWS_DB_PREFIX", "app");
    for (pairs, overrides, text) in [
        (vec![], json!({}), "no table: set AWS_DB_PREFIX (the table is {prefix}_attributes) or ATTRIBUTES_TABLE"),
        (
            vec![table, ("ATTRIBUTES_TABLE", "other")],
            json!({}),
            "AWS_DB_PREFIX means table app_attributes, ATTRIBUTES_TABLE says other: set one of them",
        ),
        (
            vec![("ATTRIBUTES_TABLE", "a b")],
            json!({}),
            "ATTRIBUTES_TABLE=a b: not a table's name: letters, digits, _ - . only",
        ),
        (vec![table, ("MODE", "Delete")], json!({}), "MODE=Delete: must be delete or dry-run"),
        (vec![table, ("EXPIRED_ROWS", "ttl")], json!({}), "EXPIRED_ROWS=ttl: must be delete or defer-to-ttl"),
        (
            vec![table, ("MAX_DELETE_SHARE", "1.5")],
            json!({}),
            "MAX_DELETE_SHARE=1.5: must be a share above 0 and at most 1",
        ),
        (
            vec![table, ("MAX_DELETE_SHARE", "0")],
            json!({}),
            "MAX_DELETE_SHARE=0: must be a share above 0 and at most 1",
        ),
        (
            vec![table, ("MAX_DELETE_SHARE", "NaN")],
            json!({}),
            "MAX_DELETE_SHARE=NaN: must be a share above 0 and at most 1",
        ),
        (
            vec![table, ("MAX_DELETES", "-1")],
            json!({}),
            "MAX_DELETES=-1: must be a whole number from 1 up (MODE=dry-run deletes nothing)",
        ),
        (
            vec![table, ("MAX_DELETES", "0")],
            json!({}),
            "MAX_DELETES=0: must be a whole number from 1 up (MODE=dry-run deletes nothing)",
        ),
        (
            vec![table, ("MAX_WRITE_UNITS_PER_SECOND", "inf")],
            json!({}),
            "MAX_WRITE_UNITS_PER_SECOND=inf: must be a number of capacity units from 0.1 up",
        ),
        (
            vec![table, ("REUSE_WINDOW_SECONDS", "60")],
            json!({}),
            "REUSE_WINDOW_SECONDS=60: must be 172800 or more, the window in which ActingWeb itself detects theft",
        ),
        (vec![table, ("GRACE_SECONDS", "1h")], json!({}), "GRACE_SECONDS=1h: must be a number of seconds from 0 up"),
        (vec![table, ("MAX_DELETE", "1")], json!({}), "MAX_DELETE is not a setting: did you mean MAX_DELETES?"),
        (vec![table, ("EXPIRED_ROW", "delete")], json!({}), "EXPIRED_ROW is not a setting: did you mean EXPIRED_ROWS?"),
        (
            vec![table],
            json!({"restore_clients": true}),
            "restore_clients is not a setting of this run: it is the index repair's",
        ),
        (
            vec![table],
            json!({"remove_legacy": "true"}),
            "remove_legacy is not a setting of this run: it is the index repair's",
        ),
        (vec![table], json!({"dry_run": true}), "dry_run is not a setting"),
        (vec![table], json!({"MODE": "dry-run"}), "MODE is not a setting in an event: did you mean mode?"),
        (
            vec![table, ("MODE", "dry-run")],
            json!({"mode": ""}),
            "MODE=: must not be empty in an event: leave it out instead",
        ),
        (
            vec![table, ("MAX_DELETES", "1")],
            json!({"max_deletes": " "}),
            "MAX_DELETES=: must not be empty in an event: leave it out instead",
        ),
        // What was typed in by mistake may be a secret.
        (vec![table], json!({"mode": "alice@example.com"}), "MODE=alice…#ff8d9819: must be delete or dry-run"),
        (vec![table], json!({"mode": true}), "MODE=a boolean: must be a string or a number"),
        (
            vec![table],
            json!({"aws_db_host": "http://elsewhere"}),
            "aws_db_host is not a setting that an event may change: the endpoint comes from the environment",
        ),
    ] {
        assert_eq!(parse(&pairs, &overrides).unwrap_err(), text);
    }
}

#[test]
fn a_value_is_repeated_only_if_it_is_short_and_plain() {
    let said = |value: &str| parse(&[("AWS_DB_PREFIX", "app"), ("MODE", value)], &json!({})).unwrap_err();
    let longest = "a".repeat(30);
    for shown in [longest.as_str(), "aB3", "Abcd"] {
        assert_eq!(said(shown), format!("MODE={shown}: must be delete or dry-run"));
    }
    for masked in ["a".repeat(31), "é".to_owned(), "a@b".to_owned(), "aB3d".to_owned()] {
        assert!(!said(&masked).contains(&masked), "{}", said(&masked));
    }
}

/// A chain's id is 22 random characters, shorter than many a setting's name.
#[test]
fn what_is_random_is_never_repeated_however_short() {
    const URL_SAFE: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut random = fastrand::Rng::with_seed(20_261_116);
    for _ in 0..5_000 {
        let secret: String = (0..22).map(|_| char::from(URL_SAFE[random.usize(..64)])).collect();
        for overrides in
            [json!({"mode": secret}), json!({&secret: 1}), json!({"attributes_table": format!("{secret}!")})]
        {
            let error = parse(&[("AWS_DB_PREFIX", "x")], &overrides).unwrap_err();
            assert!(!error.contains(&secret), "{error}");
        }
    }
}

#[test]
fn the_endpoint_is_ours_first_and_then_actingwebs() {
    assert_eq!(endpoint(&environment(&[])), None);
    assert_eq!(endpoint(&environment(&[("AWS_DB_HOST", "http://a")])), Some("http://a"));
    assert_eq!(
        endpoint(&environment(&[("AWS_DB_HOST", "http://a"), ("AWS_ENDPOINT_URL_DYNAMODB", "http://b")])),
        Some("http://b")
    );
    assert_eq!(
        endpoint(&environment(&[("AWS_ENDPOINT_URL_DYNAMODB", ""), ("AWS_DB_HOST", "http://a")])),
        Some("http://a")
    );
}
