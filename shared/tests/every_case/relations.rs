//! Rows that other rows decide over: `ask`, `compare`, `judge_lone_provider`, what the repair makes of them, and the cascade's
//! decisions.

use model::rows::{self, ACTOR, NOW};
use model::verdict::{self, Kind, Says, Target, Time, Told, Wishes};
use shared::bucket::{BUCKETS, Bucket, Rule};
use shared::cascade;
use shared::index;
use shared::integrity::{self, Lookup, Question, Referrers, Sighting};
use shared::row::{Raw, Row, RowKey};

use crate::cases::{
    Axes, Case, FIVE_YEARS, GRACES, RETIREMENTS, Turns, WINDOWS, at, count, instants, kind_of, policies,
};
use crate::cases::{policy, rows_of, says, ttl_raw, ttls, wishes};

pub(crate) fn pointers() -> impl Iterator<Item = &'static Bucket> {
    BUCKETS.iter().filter(|bucket| matches!(bucket.rule, Rule::Pointer { .. }))
}

/// The constants of a TTL, and the first second in which it is near enough to be left to.
fn ends(constants: &[i64]) -> Vec<i64> {
    let retirements = RETIREMENTS.iter().flatten().map(|seconds| -i64::try_from(*seconds).unwrap());
    constants.iter().copied().chain(retirements).collect()
}

fn index_row(bucket: &Bucket, data: Raw, ttl: Time) -> Row {
    rows::row(bucket, "n", data, ttl_raw(ttl))
}

/// `data` of an index row, and the actor that it names.
fn pointings() -> Vec<(Raw, Option<String>)> {
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
fn every_index_row_is_asked_about_as_the_model_does() {
    let (began, mut cases) = (std::time::Instant::now(), 0);
    for bucket in pointers() {
        let target = index::target_of(bucket).unwrap();
        let of_clients = kind_of(target) == Kind::Client;
        let all = policies(&WINDOWS, &GRACES, &RETIREMENTS);
        for (data, actor) in pointings() {
            for ttl in ttls() {
                let case = Case { row: index_row(bucket, data.clone(), ttl), told: None, ttl };
                for now in instants(&case, Axes::default(), &ends(&[0, FIVE_YEARS, 300 - 10_800, 300 - 3_600])) {
                    for wishes in &all {
                        let left = verdict::left_to_ttl(ttl, now.into(), wishes);
                        let expected = |anyway: bool| match &actor {
                            _ if !anyway && !verdict::due(of_clients, ttl, now.into()) => Err("not_due"),
                            _ if left => Err("left_to_ttl"),
                            None => Err("malformed"),
                            Some(actor) => Ok(RowKey::in_bucket(actor, target, "n")),
                        };
                        let asked = |question| match question {
                            Question::Settled(reason) => Err(reason.name()),
                            Question::LookAt(key) => Ok(key),
                        };
                        let (row, rules) = (&case.row, policy(wishes));
                        let context = || format!("{} at {now}, {wishes:?}: {}", bucket.name, case.show());
                        let got = asked(integrity::ask(row, bucket, at(now), &rules));
                        assert_eq!(got, expected(false), "{}", context());
                        let token = RowKey::in_bucket(ACTOR, target, "n");
                        let reaches = integrity::reaches(row, bucket, &token, at(now), &rules);
                        assert_eq!(reaches, got == Ok(token), "{}", context());
                        let got = asked(integrity::ask_anyway(row, bucket, at(now), &rules));
                        assert_eq!(got, expected(true), "{}", context());
                        cases += 3;
                    }
                }
            }
        }
    }
    count("ask, ask_anyway, reaches", cases, began);
}

#[test]
fn every_index_row_is_compared_with_its_target_as_the_model_does() {
    let (began, mut cases) = (std::time::Instant::now(), 0);
    for bucket in pointers() {
        cases += every_target(bucket) + every_index_row(bucket);
    }
    count("compare, repair_index", cases, began);
}

/// One index row, one target, one second: both decisions.
fn hold(row: &Row, bucket: &Bucket, lookup: &Lookup, target: Target<'_>, now: i64, wishes: &Wishes) {
    let expected = verdict::compared(target, now.into(), wishes);
    let context = || format!("{} at {now}, {wishes:?}, index TTL {:?}: {target:?}", bucket.name, row.ttl());
    let got = integrity::compare(row, bucket, lookup, at(now), &policy(wishes)).map(says);
    assert_eq!(got, Some(expected), "{}", context());
    let left = if expected == Says::Delete("target_dead") { Says::Keep("left_to_daily") } else { expected };
    let got = integrity::repair_index(row, bucket, lookup, at(now), &policy(wishes)).map(says);
    assert_eq!(got, Some(left), "{}", context());
}

/// Every target, with every window: all of a policy that a target's verdict depends on. The rest of the policy and the index row take
/// turns: `compare` reads nothing of the index row but whose it is. [`every_index_row`] and `outside` hold it to that.
fn every_target(bucket: &'static Bucket) -> u64 {
    let (target_bucket, mut cases) = (index::target_of(bucket).unwrap(), 0);
    let kind = kind_of(target_bucket);
    let mut index_rows = Turns::of(index_rows(bucket));
    for window in WINDOWS {
        let axes = Axes::own(kind, &Wishes { window, ..wishes() });
        let mut policies = Turns::of(policies(&[window], &GRACES, &RETIREMENTS));
        rows_of(target_bucket, axes, &ttls(), |case| {
            let found = Lookup::Found(case.row.clone());
            for now in instants(case, axes, &[0, FIVE_YEARS]) {
                for wishes in policies.next_or_all() {
                    let target = Target::Row(kind, case.told.as_ref(), case.ttl);
                    hold(index_rows.next(), bucket, &found, target, now, wishes);
                    cases += 2;
                }
            }
            let mut stranger = case.row.clone();
            stranger.bucket = rows::text("mcp");
            hold(index_rows.next(), bucket, &Lookup::Found(stranger), Target::Foreign, NOW, policies.next());
            cases += 2;
        });
    }
    cases
}

/// Every TTL and every `data` of an index row.
fn index_rows(bucket: &Bucket) -> Vec<Row> {
    let with_ttls = |data: Raw| ttls().into_iter().map(move |ttl| index_row(bucket, data.clone(), ttl));
    pointings().into_iter().flat_map(|(data, _)| with_ttls(data)).collect()
}

/// Every index row, with every policy, beside one target of each verdict, none, another bucket's, and one that could not be read.
fn every_index_row(bucket: &'static Bucket) -> u64 {
    let (target_bucket, mut cases) = (index::target_of(bucket).unwrap(), 0);
    let kind = kind_of(target_bucket);
    let mut targets: Vec<(Says, Row, Option<Told>, Time)> = Vec::new();
    let axes = Axes { alone: true, ..Axes::own(kind, &wishes()) };
    rows_of(target_bucket, axes, &ttls(), |case| {
        let says = verdict::judged(kind, case.told.as_ref(), case.ttl, NOW.into(), &wishes());
        if targets.iter().all(|(known, ..)| *known != says) {
            targets.push((says, case.row.clone(), case.told, case.ttl));
        }
    });
    let found: Vec<Lookup> = targets.iter().map(|(_, row, ..)| Lookup::Found(row.clone())).collect();
    let mut stranger = targets[0].1.clone();
    stranger.bucket = rows::text("mcp");
    let stranger = Lookup::Found(stranger);
    let all = policies(&WINDOWS, &GRACES, &RETIREMENTS);
    for row in index_rows(bucket) {
        let mut foreign = row.clone();
        foreign.bucket = rows::text("mcp");
        for wishes in &all {
            for (lookup, (_, _, told, ttl)) in found.iter().zip(&targets) {
                hold(&row, bucket, lookup, Target::Row(kind, told.as_ref(), *ttl), NOW, wishes);
            }
            hold(&row, bucket, &Lookup::Absent, Target::Absent, NOW, wishes);
            hold(&row, bucket, &stranger, Target::Foreign, NOW, wishes);
            let decide = |row| integrity::compare(row, bucket, &Lookup::Unread, at(NOW), &policy(wishes));
            assert_eq!(decide(&row), None, "what could not be read is not absent");
            assert_eq!(decide(&foreign).map(says), Some(Says::Keep("foreign")));
            cases += 2 * (found.len() as u64 + 3);
        }
    }
    cases
}

#[test]
fn every_provider_row_is_judged_as_the_model_does() {
    let (began, mut cases) = (std::time::Instant::now(), 0);
    let bucket = shared::bucket::provider();
    let asked = [(Referrers::None, Some(false)), (Referrers::Some, Some(true)), (Referrers::Unknown, None)];
    for wishes in policies(&WINDOWS, &GRACES, &RETIREMENTS) {
        let (rules, grace) = (policy(&wishes), i64::try_from(wishes.grace).unwrap());
        rows_of(bucket, Axes::default(), &ttls(), |case| {
            for now in instants(case, Axes::default(), &ends(&[0, FIVE_YEARS, grace - 7_200])) {
                for (referrers, named) in asked {
                    let context = || format!("{referrers:?} at {now}, {wishes:?}: {}", case.show());
                    for (sighting, again) in [(Sighting::First, false), (Sighting::Again, true)] {
                        let expected = verdict::lone_provider(case.ttl, named, again, now.into(), &wishes);
                        let got = integrity::judge_lone_provider(&case.row, referrers, sighting, at(now), &rules);
                        assert_eq!(got.map(says), expected, "{again}: {}", context());
                        // One that a deleted token named is as old as that token.
                        let with_token =
                            integrity::repair_provider(&case.row, referrers, true, || sighting, at(now), &rules);
                        let expected =
                            verdict::lone_provider(case.ttl, named, true, now.into(), &Wishes { grace: -1, ..wishes });
                        let expected = match expected {
                            _ if verdict::left_to_ttl(case.ttl, now.into(), &wishes) => Some(Says::Keep("left_to_ttl")),
                            Some(Says::Keep("young")) => Some(Says::Delete("unreferenced")),
                            other => other,
                        };
                        assert_eq!(with_token.map(says), expected, "with its token: {}", context());
                        cases += 2;
                    }
                    let got = |target: &Lookup| {
                        cascade::provider_row(&case.row, target, referrers, at(now), &rules).map(says)
                    };
                    let expected = verdict::cascaded_provider(case.ttl, named, now.into(), &wishes);
                    assert_eq!(got(&Lookup::Absent), expected, "cascade: {}", context());
                    assert_eq!(got(&Lookup::Found(case.row.clone())), Some(Says::Keep("referenced")), "{}", context());
                    assert_eq!(got(&Lookup::Unread), None, "{}", context());
                    cases += 3;
                }
            }
        });
    }
    count("judge_lone_provider, repair_provider, cascade::provider_row", cases, began);
}

#[test]
fn every_index_row_of_a_removed_token_is_judged_as_the_model_does() {
    let (began, mut cases) = (std::time::Instant::now(), 0);
    for bucket in pointers() {
        let token = RowKey::in_bucket(ACTOR, index::target_of(bucket).unwrap(), "n");
        for (data, actor) in pointings() {
            for ttl in ttls() {
                let row = index_row(bucket, data.clone(), ttl);
                let mut stranger = row.clone();
                stranger.bucket = rows::text("mcp");
                let there = Lookup::Found(index_row(bucket, Raw::Absent, Time::Missing));
                for (target, name) in [(Lookup::Absent, "absent"), (there, "found"), (Lookup::Unread, "unread")] {
                    let expected = match (actor.as_deref(), name) {
                        (None, _) => Some(Says::Keep("malformed")),
                        (Some(actor), _) if actor != ACTOR => Some(Says::Keep("elsewhere")),
                        (_, "absent") => Some(Says::Delete("dangling")),
                        (_, "found") => Some(Says::Keep("target_kept")),
                        _ => None,
                    };
                    let got = cascade::index_row(&row, bucket, &token, &target).map(says);
                    assert_eq!(got, expected, "{} {name} {:?}", bucket.name, row.data.text());
                    let got = cascade::index_row(&stranger, bucket, &token, &target).map(says);
                    assert_eq!(got, Some(Says::Keep("foreign")));
                    cases += 2;
                }
            }
        }
    }
    count("cascade::index_row", cases, began);
}
