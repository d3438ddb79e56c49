//! Strict configuration: accepted values, and the one-line error for every other.

use serde_json::{Map, Value, json};
use shared::settings::{Environment, ExpiredRows, Mode, Purpose, Scope, Settings, endpoint};

fn environment(pairs: &[(&str, &str)]) -> Environment {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn event(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

/// The settings of the cleanup, with MODE=delete.
fn parse(pairs: &[(&str, &str)], overrides: &Value) -> Result<Settings, String> {
    parse_for(&[&[("MODE", "delete")], pairs].concat(), overrides, Purpose::Cleanup)
}

fn parse_for(pairs: &[(&str, &str)], overrides: &Value, purpose: Purpose) -> Result<Settings, String> {
    Settings::parse(&environment(pairs), &event(overrides), purpose).map_err(|error| error.to_string())
}

const TABLE: (&str, &str) = ("AWS_DB_PREFIX", "x");

#[test]
fn metrics_has_its_own_settings() {
    let none = json!({});
    assert_eq!(parse_for(&[TABLE], &none, Purpose::Metrics).unwrap().scope, Scope::System);
    let all = json!({"scope": "all", "max_audit_units": 500});
    let settings = parse_for(&[TABLE], &all, Purpose::Metrics).unwrap();
    assert_eq!((settings.scope, settings.max_audit_units), (Scope::All, Some(500.0)));
    // All functions may share one environment; an event belongs to one function.
    let shared = [TABLE, ("SCOPE", "all"), ("MODE", "dry-run"), ("MAX_DELETES", "5"), ("MAX_AUDIT_UNITS", "9")];
    let metrics = parse_for(&shared, &none, Purpose::Metrics).unwrap();
    assert_eq!((metrics.scope, metrics.max_deletes), (Scope::All, None));
    let cleanup = parse_for(&shared, &none, Purpose::Cleanup).unwrap();
    assert_eq!((cleanup.scope, cleanup.max_deletes, cleanup.max_audit_units), (Scope::System, Some(5), None));
    assert_eq!(parse(&[TABLE], &all).unwrap_err(), "scope is not a setting of cleanup: it applies to metrics");
    let delete = parse_for(&[TABLE], &json!({"max_deletes": 5}), Purpose::Metrics).unwrap_err();
    assert_eq!(delete, "max_deletes is not a setting of metrics: it applies to cleanup, repair, cascade");
    for (event, error) in [
        (json!({"scope": "some"}), "SCOPE=some: must be system or all"),
        (json!({"max_audit_units": 0}), "MAX_AUDIT_UNITS=0: must be a number of capacity units, 0.1 or more"),
    ] {
        assert_eq!(parse_for(&[TABLE], &event, Purpose::Metrics).unwrap_err(), error);
    }
    for (wrong, error) in [
        (("MAX_AUDIT_UNITS", "x"), "MAX_AUDIT_UNITS=x: must be a number of capacity units, 0.1 or more"),
        (("RESTORE_CLIENTS", "perhaps"), "RESTORE_CLIENTS=perhaps: must be true or false"),
    ] {
        assert_eq!(parse(&[TABLE, wrong], &none).unwrap_err(), error);
    }
}

#[test]
fn a_function_that_deletes_requires_a_mode() {
    for purpose in [Purpose::Cleanup, Purpose::Repair, Purpose::Cascade] {
        for unset in [vec![TABLE], vec![TABLE, ("MODE", "")]] {
            assert_eq!(parse_for(&unset, &json!({}), purpose).unwrap_err(), "set MODE=delete or MODE=dry-run");
        }
        let by_event = parse_for(&[TABLE], &json!({"mode": "dry-run"}), purpose).unwrap();
        let by_environment = parse_for(&[TABLE, ("MODE", "delete")], &json!({}), purpose).unwrap();
        assert_eq!((by_event.mode, by_environment.mode), (Mode::DryRun, Mode::Delete));
    }
    assert_eq!(parse_for(&[TABLE], &json!({}), Purpose::Metrics).unwrap().mode, Mode::DryRun);
}

#[test]
fn a_command_is_a_dry_run_whatever_the_environment() {
    for pairs in [vec![TABLE], vec![TABLE, ("MODE", "delete")], vec![TABLE, ("mode", "delete"), ("DRY_RUN", "0")]] {
        let settings = Settings::for_command(&environment(&pairs), &Map::new(), Purpose::Cleanup).unwrap();
        assert_eq!(settings.mode, Mode::DryRun, "{pairs:?}");
    }
    // Otherwise it is as strict, except for names that are common in a shell.
    let shell = |name: &str| Settings::for_command(&environment(&[TABLE, (name, "1")]), &Map::new(), Purpose::Cleanup);
    for (name, right) in
        [("MAXDELETES", "MAX_DELETES"), ("max_deletes", "MAX_DELETES"), ("GRACE_SECOND", "GRACE_SECONDS")]
    {
        assert_eq!(shell(name).unwrap_err().to_string(), format!("{name} is not a setting: use {right}"));
    }
    for name in ["TABLE", "TABLE_NAME", "PREFIX", "GRACE", "LIMIT"] {
        assert!(shell(name).is_ok(), "{name}");
    }
}

#[test]
fn rejects_a_name_that_resembles_a_setting() {
    for (name, right) in [
        ("mode", "MODE"),
        ("Mode", "MODE"),
        ("DRY_RUN", "MODE=dry-run"),
        ("dry-run", "MODE=dry-run"),
        ("DRYRUN", "MODE=dry-run"),
        ("MAXDELETES", "MAX_DELETES"),
        ("Max-Deletes", "MAX_DELETES"),
        ("max_deletes", "MAX_DELETES"),
        ("MAX_DELETE", "MAX_DELETES"),
        ("MAX_DELETED", "MAX_DELETES"),
        ("MAX_DELETE_SHARES", "MAX_DELETE_SHARE"),
        ("TABLE", "ATTRIBUTES_TABLE"),
        ("TABLE_NAME", "ATTRIBUTES_TABLE"),
        ("DYNAMODB_TABLE", "ATTRIBUTES_TABLE"),
        ("PREFIX", "AWS_DB_PREFIX"),
        ("AWS_DB_PREFIXES", "AWS_DB_PREFIX"),
        ("GRACE", "GRACE_SECONDS"),
        ("EXPIRED_ROW", "EXPIRED_ROWS"),
        ("expiredrows", "EXPIRED_ROWS"),
        ("MAX_READ_UNITS", "MAX_READ_UNITS_PER_SECOND"),
        ("MAX_AUDIT_UNIT", "MAX_AUDIT_UNITS"),
        ("RESTORE_CLIENT", "RESTORE_CLIENTS"),
        ("HAND_OVER_AFTER_CUT_OFFS", "BACKLOG_AFTER_INCOMPLETE_RUNS"),
        ("scope", "SCOPE"),
        ("DYNAMODB_ENDPOINT", "AWS_ENDPOINT_URL_DYNAMODB"),
    ] {
        let error = parse(&[TABLE, (name, "1")], &json!({})).unwrap_err();
        assert_eq!(error, format!("{name} is not a setting: use {right}"));
    }
    for name in [
        "PATH",
        "HOME",
        "TERM",
        "LANG",
        "TZ",
        "SHELL",
        "MODEL",
        "MODES",
        "TABLES_DIR",
        "SCOPES",
        "LIMIT",
        "DB_HOST",
        "ENDPOINT",
        "ENVIRONMENT",
        "STAGE",
        "MAX_CONNECTIONS",
        "GRACEFUL_SHUTDOWN",
        "RUN_MODE",
        "LOG_LEVEL",
        "_HANDLER",
        "_X_AMZN_TRACE_ID",
        "AWS_REGION",
        "AWS_ENDPOINT_URL",
        "AWS_ENDPOINT_URL_S3",
        "AWS_LAMBDA_FUNCTION_NAME",
        "AWS_LAMBDA_LOG_LEVEL",
        "AWS_SAM_LOCAL",
        "LAMBDA_TASK_ROOT",
        "RUST_LOG",
        "RUST_BACKTRACE",
        "DD_TRACE_ENABLED",
        "OTEL_SERVICE_NAME",
    ] {
        assert!(parse(&[TABLE, (name, "1")], &json!({})).is_ok(), "{name}");
    }
}

#[test]
fn has_the_documented_defaults() {
    let settings = parse(&[("AWS_DB_PREFIX", "app"), ("PATH", "/bin")], &json!({})).unwrap();
    assert_eq!(settings.table, "app_attributes");
    assert_eq!((settings.mode, settings.expired_rows), (Mode::Delete, ExpiredRows::Delete));
    assert_eq!((settings.max_deletes, settings.max_delete_share), (None, None));
    assert_eq!((settings.max_write_units_per_second, settings.max_read_units_per_second), (None, None));
    assert_eq!((settings.reuse_window_seconds, settings.grace_seconds), (172_800, 3_600));
    assert_eq!(parse(&[("ATTRIBUTES_TABLE", "t-1")], &json!({})).unwrap().table, "t-1");
}

#[test]
fn an_event_overrides_the_environment_for_its_run() {
    let settings = parse(
        &[("AWS_DB_PREFIX", "app"), ("MODE", "delete"), ("MAX_DELETES", "5")],
        &json!({"mode": "dry-run", "max_deletes": 7, "max_delete_share": 0.5, "expired_rows": "retire", "retire_days": 3,
            "max_write_units_per_second": "2.5", "reuse_window_seconds": 200_000, "grace_seconds": 300}),
    )
    .unwrap();
    assert_eq!((settings.mode, settings.max_deletes, settings.max_delete_share), (Mode::DryRun, Some(7), Some(0.5)));
    assert_eq!((settings.expired_rows, settings.max_write_units_per_second), (ExpiredRows::Retire, Some(2.5)));
    assert_eq!(settings.policy().retire, Some(3 * 86_400));
    assert_eq!((settings.reuse_window_seconds, settings.grace_seconds), (200_000, 300));
    let other_table = parse(&[("AWS_DB_PREFIX", "app")], &json!({"attributes_table": "other"})).unwrap();
    assert_eq!(other_table.table, "other");
}

#[test]
fn the_repair_has_two_settings_of_its_own() {
    let repair = |overrides: Value| {
        let pairs = [TABLE, ("MODE", "delete"), ("REMOVE_LEGACY", "true")];
        parse_for(&pairs, &overrides, Purpose::Repair)
    };
    let settings = repair(json!({"restore_clients": true})).unwrap();
    assert!(settings.restore_clients && settings.remove_legacy);
    assert!(!repair(json!({"remove_legacy": false})).unwrap().remove_legacy);
    assert!(!parse(&[TABLE, ("REMOVE_LEGACY", "true")], &json!({})).unwrap().remove_legacy, "not the cleanup's");
    assert_eq!(repair(json!({"remove_legacy": "yes"})).unwrap_err(), "REMOVE_LEGACY=yes: must be true or false");
}

#[test]
fn only_the_cleanup_requests_a_backlog_execution() {
    let after = |runs: &str, purpose| {
        let pairs = [TABLE, ("MODE", "delete"), ("BACKLOG_AFTER_INCOMPLETE_RUNS", runs)];
        parse_for(&pairs, &json!({}), purpose).map(|settings| settings.backlog_after_incomplete_runs)
    };
    assert_eq!(after("", Purpose::Cleanup), Ok(None));
    assert_eq!(after("1", Purpose::Cleanup), Ok(Some(1)));
    assert_eq!(after("3", Purpose::Cleanup), Ok(Some(3)));
    assert_eq!(after("3", Purpose::Repair), Ok(None), "the environment is shared, the setting is not");
    assert_eq!(
        after("0", Purpose::Cleanup),
        Err("BACKLOG_AFTER_INCOMPLETE_RUNS=0: must be a whole number, 1 or more".to_owned())
    );
}

#[test]
fn an_empty_value_counts_as_unset() {
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
            "AWS_DB_PREFIX selects table app_attributes, but ATTRIBUTES_TABLE is other: set only one of them",
        ),
        (
            vec![("ATTRIBUTES_TABLE", "a b")],
            json!({}),
            "ATTRIBUTES_TABLE=a b: must be a table name: 3 to 255 letters, digits, _, - or .",
        ),
        (vec![table, ("MODE", "Delete")], json!({}), "MODE=Delete: must be delete or dry-run"),
        (vec![table, ("EXPIRED_ROWS", "ttl")], json!({}), "EXPIRED_ROWS=ttl: must be delete or retire"),
        (vec![table, ("RETIRE_DAYS", "0")], json!({}), "RETIRE_DAYS=0: must be a whole number of days, 1 to 90"),
        (vec![table, ("RETIRE_DAYS", "91")], json!({}), "RETIRE_DAYS=91: must be a whole number of days, 1 to 90"),
        (
            vec![table, ("MAX_DELETE_SHARE", "1.5")],
            json!({}),
            "MAX_DELETE_SHARE=1.5: must be greater than 0 and at most 1",
        ),
        (vec![table, ("MAX_DELETE_SHARE", "0")], json!({}), "MAX_DELETE_SHARE=0: must be greater than 0 and at most 1"),
        (
            vec![table, ("MAX_DELETE_SHARE", "NaN")],
            json!({}),
            "MAX_DELETE_SHARE=NaN: must be greater than 0 and at most 1",
        ),
        (vec![table, ("MAX_DELETES", "-1")], json!({}), "MAX_DELETES=-1: must be a whole number, 1 or more"),
        (vec![table, ("MAX_DELETES", "0")], json!({}), "MAX_DELETES=0: must be a whole number, 1 or more"),
        (
            vec![table, ("MAX_WRITE_UNITS_PER_SECOND", "inf")],
            json!({}),
            "MAX_WRITE_UNITS_PER_SECOND=inf: must be a number of capacity units, 0.1 or more",
        ),
        (
            vec![table, ("REUSE_WINDOW_SECONDS", "60")],
            json!({}),
            "REUSE_WINDOW_SECONDS=60: must be a number of seconds from 172800 to 315360000",
        ),
        (
            vec![table, ("GRACE_SECONDS", "1h")],
            json!({}),
            "GRACE_SECONDS=1h: must be a number of seconds from 300 to 315360000",
        ),
        (
            vec![table, ("GRACE_SECONDS", "299")],
            json!({}),
            "GRACE_SECONDS=299: must be a number of seconds from 300 to 315360000",
        ),
        (
            vec![table],
            json!({"grace_seconds": 0}),
            "GRACE_SECONDS=0: must be a number of seconds from 300 to 315360000",
        ),
        (
            vec![table],
            json!({"restore_clients": true}),
            "restore_clients is not a setting of cleanup: it applies to repair",
        ),
        (
            vec![table],
            json!({"remove_legacy": "true"}),
            "remove_legacy is not a setting of cleanup: it applies to repair, explain",
        ),
        (vec![table], json!({"dry_run": true}), "dry_run is not a setting: use mode=dry-run"),
        (vec![table], json!({"max_delete": 5}), "max_delete is not a setting: use max_deletes"),
        (vec![table], json!({"whatever": 5}), "whatever is not a setting"),
        (vec![table], json!({"MODE": "dry-run"}), "MODE is not a setting: use mode"),
        (vec![table, ("MODE", "dry-run")], json!({"mode": ""}), "MODE=: must not be empty; omit it instead"),
        (
            vec![table, ("MAX_DELETES", "1")],
            json!({"max_deletes": " "}),
            "MAX_DELETES=: must not be empty; omit it instead",
        ),
        // A value that was entered by mistake may be a secret.
        (vec![table], json!({"mode": "alice@example.com"}), "MODE=alice…#ff8d9819: must be delete or dry-run"),
        (vec![table], json!({"mode": true}), "MODE=a boolean: must be a string or a number"),
        (
            vec![table],
            json!({"aws_db_host": "http://elsewhere"}),
            "aws_db_host is not a setting that an event can change: it comes from the environment",
        ),
    ] {
        assert_eq!(parse(&pairs, &overrides).unwrap_err(), text);
    }
}

#[test]
fn an_error_shows_a_value_only_if_it_is_short_and_plain() {
    let error = |value: &str| parse(&[("AWS_DB_PREFIX", "app"), ("MODE", value)], &json!({})).unwrap_err();
    let longest = "a".repeat(30);
    for shown in [longest.as_str(), "aB3", "Abcd"] {
        assert_eq!(error(shown), format!("MODE={shown}: must be delete or dry-run"));
    }
    for masked in ["a".repeat(31), "é".to_owned(), "a@b".to_owned(), "aB3d".to_owned()] {
        assert!(!error(&masked).contains(&masked), "{}", error(&masked));
    }
}

/// A chain's id is 22 random characters, shorter than many names of settings.
#[test]
fn an_error_never_shows_a_random_value() {
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
fn aws_endpoint_url_dynamodb_overrides_aws_db_host() {
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
