//! Rows whose verdict depends on other rows: `ask`, `compare`, `judge_lone_provider`, the repair's and the cascade's decisions.

use model::rows::{self, ACTOR, NOW};
use model::verdict::{self, Kind, Outcome, RowFields, Settings, Target, Time};
use shared::bucket::{BUCKETS, Bucket, Rule};
use shared::cascade;
use shared::index;
use shared::integrity::{self, Lookup, Question, Referrers, Sighting};
use shared::row::{Raw, Row, RowKey};

use crate::cases::{
    Axes, Case, FIVE_YEARS, GRACES, RETIREMENTS, Turns, WINDOWS, at, count, instants, kind_of, policies,
};
use crate::cases::{outcome, policy, rows_of, settings, ttl_raw, ttls};

pub(crate) fn pointers() -> impl Iterator<Item = &'static Bucket> {
    BUCKETS.iter().filter(|bucket| matches!(bucket.rule, Rule::Pointer { .. }))
}

/// The constants of a TTL, and the first second in which a row is left to it.
fn ends(constants: &[i64]) -> Vec<i64> {
    let retirements = RETIREMENTS.iter().flatten().map(|seconds| -i64::try_from(*seconds).unwrap());
    constants.iter().copied().chain(retirements).collect()
}

fn index_row(bucket: &Bucket, data: Raw, ttl: Time) -> Row {
    rows::row(bucket, "n", data, ttl_raw(ttl))
}

/// `data` of an index row, and the actor that it names.
fn index_data() -> Vec<(Raw, Option<String>)> {
    let named = |actor: &str| (Raw::Text(shared::pyjson::dumps(&actor.into())), Some(actor.to_owned()));
    let long = "a".repeat(2_049);
    let mut all = vec![named(ACTOR), named("another"), named("Zo\u{eb}")];
    // No row can be stored under such a key.
    all.extend([rows::text("\"\""), Raw::Text(format!("\"{long}\""))].map(|data| (data, None)));
    all.extend(["", "actor", "7", "null", "[\"a\"]", "{\"a\": 1}", "\"a"].map(|data| (rows::text(data), None)));
    all.extend([Raw::Absent, Raw::Null, rows::number(1), Raw::Bytes(b"\"a\"".to_vec())].map(|data| (data, None)));
    all
}

#[test]
fn looks_up_every_index_row_as_the_model_does() {
    let (started, mut cases) = (std::time::Instant::now(), 0);
    for bucket in pointers() {
        let target = index::target_of(bucket).unwrap();
        let of_clients = kind_of(target) == Kind::Client;
        let all = policies(&WINDOWS, &GRACES, &RETIREMENTS);
        for (data, actor) in index_data() {
            for ttl in ttls() {
                let case = Case { row: index_row(bucket, data.clone(), ttl), fields: None, ttl };
                for now in instants(&case, Axes::default(), &ends(&[0, FIVE_YEARS, 300 - 10_800, 300 - 3_600])) {
                    for settings in &all {
                        let left = verdict::left_to_ttl(ttl, now.into(), settings);
                        let expected = |anyway: bool| match &actor {
                            _ if !anyway && !verdict::due(of_clients, ttl, now.into()) => Err("not_due"),
                            _ if left => Err("left_to_ttl"),
                            None => Err("malformed"),
                            Some(actor) => Ok(RowKey::in_bucket(actor, target, "n")),
                        };
                        let result = |question| match question {
                            Question::Settled(reason) => Err(reason.name()),
                            Question::LookAt(key) => Ok(key),
                        };
                        let (row, rules) = (&case.row, policy(settings));
                        let context = || format!("{} at {now}, {settings:?}: {}", bucket.name, case.show());
                        let got = result(integrity::ask(row, bucket, at(now), &rules));
                        assert_eq!(got, expected(false), "{}", context());
                        let token = RowKey::in_bucket(ACTOR, target, "n");
                        let reaches = integrity::reaches(row, bucket, &token, at(now), &rules);
                        assert_eq!(reaches, got == Ok(token), "{}", context());
                        let got = result(integrity::ask_anyway(row, bucket, at(now), &rules));
                        assert_eq!(got, expected(true), "{}", context());
                        cases += 3;
                    }
                }
            }
        }
    }
    count("ask, ask_anyway, reaches", cases, started);
}

#[test]
fn every_index_row_is_compared_with_its_target_as_the_model_does() {
    let (started, mut cases) = (std::time::Instant::now(), 0);
    for bucket in pointers() {
        cases += every_target(bucket) + every_index_row(bucket);
    }
    count("compare, repair_index", cases, started);
}

/// Checks both decisions for one index row and one target at one time.
fn check(row: &Row, bucket: &Bucket, lookup: &Lookup, target: Target<'_>, now: i64, settings: &Settings) {
    let expected = verdict::compared(target, now.into(), settings);
    let context = || format!("{} at {now}, {settings:?}, index TTL {:?}: {target:?}", bucket.name, row.ttl());
    let got = integrity::compare(row, bucket, lookup, at(now), &policy(settings)).map(outcome);
    assert_eq!(got, Some(expected), "{}", context());
    let left = if expected == Outcome::Delete("target_dead") { Outcome::Keep("left_to_daily") } else { expected };
    let got = integrity::repair_index(row, bucket, lookup, at(now), &policy(settings)).map(outcome);
    assert_eq!(got, Some(left), "{}", context());
}

/// Every target, with every window, the only setting that a target's verdict depends on. The other settings and the index row take
/// turns: `compare` reads only the owner and bucket of the index row. [`every_index_row`] and `outside` check that.
fn every_target(bucket: &'static Bucket) -> u64 {
    let (target_bucket, mut cases) = (index::target_of(bucket).unwrap(), 0);
    let kind = kind_of(target_bucket);
    let mut index_rows = Turns::of(index_rows(bucket));
    for window in WINDOWS {
        let axes = Axes::own(kind, &Settings { window, ..settings() });
        let mut policies = Turns::of(policies(&[window], &GRACES, &RETIREMENTS));
        rows_of(target_bucket, axes, &ttls(), |case| {
            let found = Lookup::Found(case.row.clone());
            for now in instants(case, axes, &[0, FIVE_YEARS]) {
                for settings in policies.next_or_all() {
                    let target = Target::Row(kind, case.fields.as_ref(), case.ttl);
                    check(index_rows.next(), bucket, &found, target, now, settings);
                    cases += 2;
                }
            }
            let mut foreign = case.row.clone();
            foreign.bucket = rows::text("mcp");
            check(index_rows.next(), bucket, &Lookup::Found(foreign), Target::Foreign, NOW, policies.next());
            cases += 2;
        });
    }
    cases
}

/// Every TTL and every `data` of an index row.
fn index_rows(bucket: &Bucket) -> Vec<Row> {
    let with_ttls = |data: Raw| ttls().into_iter().map(move |ttl| index_row(bucket, data.clone(), ttl));
    index_data().into_iter().flat_map(|(data, _)| with_ttls(data)).collect()
}

/// Every index row, with every policy, and one target of each verdict, an absent, a foreign and an unread one.
fn every_index_row(bucket: &'static Bucket) -> u64 {
    let (target_bucket, mut cases) = (index::target_of(bucket).unwrap(), 0);
    let kind = kind_of(target_bucket);
    let mut targets: Vec<(Outcome, Row, Option<RowFields>, Time)> = Vec::new();
    let axes = Axes { alone: true, ..Axes::own(kind, &settings()) };
    rows_of(target_bucket, axes, &ttls(), |case| {
        let verdict = verdict::judged(kind, case.fields.as_ref(), case.ttl, NOW.into(), &settings());
        if targets.iter().all(|(known, ..)| *known != verdict) {
            targets.push((verdict, case.row.clone(), case.fields, case.ttl));
        }
    });
    let found: Vec<Lookup> = targets.iter().map(|(_, row, ..)| Lookup::Found(row.clone())).collect();
    let mut foreign_target = targets[0].1.clone();
    foreign_target.bucket = rows::text("mcp");
    let foreign_target = Lookup::Found(foreign_target);
    let all = policies(&WINDOWS, &GRACES, &RETIREMENTS);
    for row in index_rows(bucket) {
        let mut foreign = row.clone();
        foreign.bucket = rows::text("mcp");
        for settings in &all {
            for (lookup, (_, _, fields, ttl)) in found.iter().zip(&targets) {
                check(&row, bucket, lookup, Target::Row(kind, fields.as_ref(), *ttl), NOW, settings);
            }
            check(&row, bucket, &Lookup::Absent, Target::Absent, NOW, settings);
            check(&row, bucket, &foreign_target, Target::Foreign, NOW, settings);
            let decide = |row| integrity::compare(row, bucket, &Lookup::Unread, at(NOW), &policy(settings));
            assert_eq!(decide(&row), None, "an unread row is not absent");
            assert_eq!(decide(&foreign).map(outcome), Some(Outcome::Keep("foreign")));
            cases += 2 * (found.len() as u64 + 3);
        }
    }
    cases
}

#[test]
fn every_provider_row_is_judged_as_the_model_does() {
    let (started, mut cases) = (std::time::Instant::now(), 0);
    let bucket = shared::bucket::provider();
    let all_referrers = [(Referrers::None, Some(false)), (Referrers::Some, Some(true)), (Referrers::Unknown, None)];
    for settings in policies(&WINDOWS, &GRACES, &RETIREMENTS) {
        let (rules, grace) = (policy(&settings), i64::try_from(settings.grace).unwrap());
        rows_of(bucket, Axes::default(), &ttls(), |case| {
            for now in instants(case, Axes::default(), &ends(&[0, FIVE_YEARS, grace + 300 - 7_200])) {
                for (referrers, named) in all_referrers {
                    let context = || format!("{referrers:?} at {now}, {settings:?}: {}", case.show());
                    for (sighting, again) in [(Sighting::First, false), (Sighting::Again, true)] {
                        let expected = verdict::lone_provider(case.ttl, named, again, now.into(), &settings);
                        let got = integrity::judge_lone_provider(&case.row, referrers, sighting, at(now), &rules);
                        assert_eq!(got.map(outcome), expected, "{again}: {}", context());
                        // A provider row that a deleted token named is as old as that token.
                        let with_token =
                            integrity::repair_provider(&case.row, referrers, true, || sighting, at(now), &rules);
                        let expected = verdict::lone_provider(
                            case.ttl,
                            named,
                            true,
                            now.into(),
                            &Settings { grace: -1, ..settings },
                        );
                        let expected = match expected {
                            _ if verdict::left_to_ttl(case.ttl, now.into(), &settings) => {
                                Some(Outcome::Keep("left_to_ttl"))
                            }
                            Some(Outcome::Keep("young")) => Some(Outcome::Delete("unreferenced")),
                            other => other,
                        };
                        assert_eq!(with_token.map(outcome), expected, "with its token: {}", context());
                        cases += 2;
                    }
                    let got = |target: &Lookup| {
                        cascade::provider_row(&case.row, target, referrers, at(now), &rules).map(outcome)
                    };
                    let expected = verdict::cascaded_provider(case.ttl, named, now.into(), &settings);
                    assert_eq!(got(&Lookup::Absent), expected, "cascade: {}", context());
                    assert_eq!(
                        got(&Lookup::Found(case.row.clone())),
                        Some(Outcome::Keep("referenced")),
                        "{}",
                        context()
                    );
                    assert_eq!(got(&Lookup::Unread), None, "{}", context());
                    cases += 3;
                }
            }
        });
    }
    count("judge_lone_provider, repair_provider, cascade::provider_row", cases, started);
}

#[test]
fn every_index_row_of_a_removed_token_is_judged_as_the_model_does() {
    let (started, mut cases) = (std::time::Instant::now(), 0);
    for bucket in pointers() {
        let token = RowKey::in_bucket(ACTOR, index::target_of(bucket).unwrap(), "n");
        for (data, actor) in index_data() {
            for ttl in ttls() {
                let row = index_row(bucket, data.clone(), ttl);
                let mut foreign = row.clone();
                foreign.bucket = rows::text("mcp");
                let found = Lookup::Found(index_row(bucket, Raw::Absent, Time::Missing));
                for (target, name) in [(Lookup::Absent, "absent"), (found, "found"), (Lookup::Unread, "unread")] {
                    let expected = match (actor.as_deref(), name) {
                        (None, _) => Some(Outcome::Keep("malformed")),
                        (Some(actor), _) if actor != ACTOR => Some(Outcome::Keep("elsewhere")),
                        (_, "absent") => Some(Outcome::Delete("dangling")),
                        (_, "found") => Some(Outcome::Keep("target_kept")),
                        _ => None,
                    };
                    let got = cascade::index_row(&row, bucket, &token, &target).map(outcome);
                    assert_eq!(got, expected, "{} {name} {:?}", bucket.name, row.data.text());
                    let got = cascade::index_row(&foreign, bucket, &token, &target).map(outcome);
                    assert_eq!(got, Some(Outcome::Keep("foreign")));
                    cases += 2;
                }
            }
        }
    }
    count("cascade::index_row", cases, started);
}
