//! What is done with a dead row, and that this does not change which rows are dead.

use std::collections::BTreeMap;

use model::random::random_table;
use model::rows::{NOW, bucket, json as data, number, row, text};
use model::to_row;
use proptest::prelude::*;
use serde_json::json;
use shared::disposal::{Disposal, condemn, is_left_to_ttl};
use shared::expiry::{KeepReason as K, Policy, Verdict, judge};
use shared::integrity::{self, Question};
use shared::row::{Raw, Row, Ttl};
use shared::time::EpochSeconds;

const DAY: i64 = 86_400;
const RETIRING: Policy = Policy { reuse_window: 172_800, grace: 3_600, remove_legacy: false, retire: Some(7 * DAY) };

fn now() -> EpochSeconds {
    EpochSeconds::new(NOW)
}

fn session(ttl: Raw) -> Row {
    row(bucket("_oauth_sessions"), "s", data(&json!({"created_at": NOW - 901})), ttl)
}

/// The row as it is stored after this run; `None` if it is left to its TTL.
fn retired(row: &Row, at: EpochSeconds, policy: &Policy) -> Option<Row> {
    let known = row.known_bucket()?;
    match condemn(row.clone(), known, at, policy).ok()?.dispose(at, policy) {
        Disposal::Retire(retirement) => {
            Some(Row { ttl: retirement.ttl(), retired_from: retirement.retired_from(), ..row.clone() })
        }
        Disposal::LeaveToTtl(_) => None,
        Disposal::Delete(_) => panic!("a run that retires deletes nothing"),
    }
}

#[test]
fn a_dead_row_is_left_to_a_ttl_within_the_retire_days_and_retired_otherwise() {
    for (what, ttl, is_left) in [
        ("past", number(NOW - 1), true),
        ("five years past", number(NOW - 5 * 365 * DAY), true),
        ("more than five years ago", number(NOW - 5 * 365 * DAY - 1), false),
        ("this second", number(NOW), true),
        ("the last second", number(NOW + 7 * DAY), true),
        ("a second later", number(NOW + 7 * DAY + 1), false),
        ("none", Raw::Absent, false),
        ("zero", number(0), false),
        ("text", text("2400000001"), false),
        ("milliseconds", number(NOW * 1_000), false),
    ] {
        let row = session(ttl);
        assert_eq!(is_left_to_ttl(&row, now(), &RETIRING), is_left, "{what}");
        assert!(!is_left_to_ttl(&row, now(), &Policy::default()), "{what}: a run that deletes leaves nothing to TTL");
        let after = retired(&row, now(), &RETIRING);
        assert_eq!(after.is_none(), is_left, "{what}");
        let Some(after) = after else { continue };
        assert_eq!(after.stored_ttl(), Ttl::At(EpochSeconds::new(NOW + 7 * DAY)), "{what}");
        assert_eq!(after.ttl_before(), &row.ttl, "{what}");
        for later in [-300, 0, 1, 3 * DAY, 7 * DAY, 9 * DAY] {
            let at = EpochSeconds::new(NOW + later);
            assert!(retired(&after, at, &RETIRING).is_none(), "{what}: a run {later} s later writes it again");
            let one_day = Policy { retire: Some(DAY), ..RETIRING };
            assert!(retired(&after, at, &one_day).is_none(), "{what}: so does one with fewer days");
        }
    }
}

/// Every type that a TTL can have is restored, and none is mistaken for an absent TTL.
#[test]
fn retired_from_restores_every_raw_value() {
    let list = |items: Vec<Raw>| Raw::List(items);
    let values = [
        Raw::Absent,
        text(""),
        text("none"),
        number(0),
        number("1e40"),
        Raw::Bool(false),
        Raw::Null,
        Raw::Bytes(vec![0, 255]),
        list(vec![]),
        list(vec![list(vec![])]),
        list(vec![number(1)]),
        list(vec![number(1), Raw::Null]),
        Raw::Map(BTreeMap::new()),
        Raw::Map(BTreeMap::from([("ttl".to_owned(), Raw::Null)])),
        Raw::TextSet(vec!["a".to_owned()]),
        Raw::NumberSet(vec!["1".to_owned()]),
        Raw::BytesSet(vec![vec![1]]),
    ];
    let mut stored: Vec<Raw> = Vec::new();
    for ttl in values {
        let before = session(ttl.clone());
        let after = retired(&before, now(), &RETIRING).expect("not left to its TTL");
        assert!(after.is_retired() && !before.is_retired());
        assert_eq!((after.ttl_before(), after.ttl()), (&ttl, before.ttl()));
        assert!(!stored.contains(&after.retired_from), "two values are stored in the same way");
        stored.push(after.retired_from.clone());
        assert_eq!(after.retirement(), Some((EpochSeconds::new(NOW + 7 * DAY), &ttl)));
    }
}

/// The application can update a retired row in place, which keeps `retired_from`.
#[test]
fn a_row_is_retired_only_while_its_ttl_is_the_end_of_the_retirement() {
    let end = || number(NOW + 7 * DAY);
    let list = |items: &[Raw]| Raw::List(items.to_vec());
    for (what, ttl, retired_from, is_retired) in [
        ("it had none", end(), list(&[end()]), true),
        ("it had one", end(), list(&[end(), number(NOW + 30 * DAY)]), true),
        ("it had a list", end(), list(&[end(), list(&[])]), true),
        ("written with a TTL", number(NOW + 8 * DAY), list(&[end()]), false),
        ("a second off", number(NOW + 7 * DAY + 1), list(&[end(), number(NOW - 1)]), false),
        ("written without a TTL", Raw::Absent, list(&[end(), number(NOW - 1)]), false),
        ("the end is text", text("2400604800"), list(&[text("2400604800")]), false),
        ("the end is zero", number(0), list(&[number(0)]), false),
        ("an empty list", end(), list(&[]), false),
        ("three values", end(), list(&[end(), end(), end()]), false),
        ("not a list", end(), end(), false),
        ("none", end(), Raw::Absent, false),
    ] {
        let row = Row { retired_from, ..session(ttl.clone()) };
        assert_eq!(row.is_retired(), is_retired, "{what}");
        assert!(is_retired || row.ttl() == Ttl::read(&ttl), "{what}: not judged by the stored TTL");
        let earlier = EpochSeconds::new(NOW - DAY);
        assert_eq!(is_left_to_ttl(&row, earlier, &RETIRING), is_retired, "{what}: an end beyond the days");
    }
    // Retired again, it can be restored to what the application wrote.
    let stale = Row { retired_from: list(&[end(), number(NOW - 1)]), ..session(number(NOW + 20 * DAY)) };
    let again = retired(&stale, now(), &RETIRING).expect("far away");
    assert_eq!((again.ttl_before(), again.retirement().is_some()), (&stale.ttl, true));
}

#[test]
fn an_index_row_with_a_ttl_within_the_retire_days_costs_no_lookup() {
    let name = "_refresh_token_index";
    for (what, ttl, is_looked_up) in [
        ("past", number(NOW - 1), false),
        ("due", number(NOW + 1), false),
        ("far away", number(NOW + 20 * DAY), true),
        ("none", Raw::Absent, true),
        ("malformed", number(0), true),
    ] {
        let index = row(bucket(name), "t", data(&json!("actor")), ttl);
        let question = integrity::ask_anyway(&index, bucket(name), now(), &RETIRING);
        assert_eq!(matches!(question, Question::LookAt(_)), is_looked_up, "{what}");
        // Neither the retire days nor retiring it makes an index row due.
        let had = [index.ttl.clone()].into_iter().filter(|had| *had != Raw::Absent);
        let retired_from = Raw::List([number(NOW + DAY)].into_iter().chain(had).collect());
        let retired = Row { ttl: number(NOW + DAY), retired_from, ..index.clone() };
        let question = integrity::ask_anyway(&retired, bucket(name), now(), &RETIRING);
        assert_eq!(question, Question::Settled(K::LeftToTtl), "{what}");
        let question = |row: &Row| integrity::ask(row, bucket(name), now(), &Policy::default());
        assert_eq!(question(&retired), question(&index), "{what}: a run that deletes judges it differently");
    }
}

#[test]
fn no_decision_condemns_a_row_of_another_bucket() {
    use integrity::{Indexed, Lookup, Referrers, Sighting};
    use shared::disposal::Judged;
    let index = bucket("_access_token_index");
    let foreign =
        |known| Row { bucket: text("remote"), ..row(known, "t", data(&json!({"created_at": 1})), Raw::Absent) };
    let (token, provider) = (bucket("mcp_tokens"), bucket("mcp_google_tokens"));
    let policy = &Policy::default();
    for judged in [
        integrity::condemn_index(foreign(index), index, &Lookup::Absent, now(), policy),
        integrity::condemn_dangling(foreign(index), index, &Lookup::Absent, now(), policy),
        integrity::condemn_replaced(foreign(bucket("client_index")), bucket("client_index"), true),
        integrity::condemn_token(foreign(token), token, Indexed::No, || Sighting::Again, now(), policy),
        integrity::condemn_provider(foreign(provider), Referrers::None, now(), policy),
        integrity::condemn_lone_provider(foreign(provider), Referrers::None, true, || Sighting::Again, now(), policy),
    ] {
        assert!(matches!(judged, Judged::Kept(_, K::Foreign)), "{judged:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    /// Which rows are dead does not depend on what is done with them, and a retired row is judged as before.
    #[test]
    fn retire_and_delete_agree_on_which_rows_are_dead(seed: u64, later in 0..8 * DAY) {
        for row in random_table(seed, NOW) {
            let row = to_row(&row);
            let Some(known) = row.known_bucket() else { continue };
            let verdict = judge(&row, known, now(), &Policy::default());
            prop_assert_eq!(verdict, judge(&row, known, now(), &RETIRING));
            let Some(after) = retired(&row, now(), &RETIRING) else { continue };
            prop_assert!(matches!(verdict, Verdict::Delete(_)));
            let at = EpochSeconds::new(NOW + later);
            for policy in [Policy::default(), RETIRING] {
                prop_assert_eq!(judge(&row, known, at, &policy), judge(&after, known, at, &policy));
            }
            prop_assert!(retired(&after, at, &RETIRING).is_none());
            // DynamoDB would not have acted sooner on the replaced TTL.
            prop_assert!(!is_left_to_ttl(&row, now(), &RETIRING));
        }
    }
}
