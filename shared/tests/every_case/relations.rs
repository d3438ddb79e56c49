//! Rows that other rows decide over: `ask`, `compare`, `judge_unindexed`, `judge_lone_provider`, what the repair makes of them, and
//! the cascade's decisions.

use model::rows::{self, ACTOR, NOW};
use model::verdict::{self, Kind, Says, Target, Time, Used, Wishes};
use shared::bucket::{BUCKETS, Bucket, Rule};
use shared::cascade;
use shared::disposal;
use shared::expiry::{Policy, Verdict};
use shared::index;
use shared::integrity::{self, Indexed, Lookup, Question, Referrers, Sighting};
use shared::row::{Raw, Row, RowKey};

use crate::cases::{Axes, Case, FIVE_YEARS, WINDOWS, at, count, few_ttls, instants, kind_of, policy, rows_of, says};
use crate::cases::{ttl_raw, ttls, wishes};

fn pointers() -> impl Iterator<Item = &'static Bucket> {
    BUCKETS.iter().filter(|bucket| matches!(bucket.rule, Rule::Pointer { .. }))
}

fn index_row(bucket: &Bucket, data: Raw, ttl: Time) -> Row {
    rows::row(bucket, "n", data, ttl_raw(ttl))
}

fn policies() -> [Wishes; 4] {
    let plain = wishes();
    [
        plain,
        Wishes { grace: 300, ..plain },
        Wishes { window: WINDOWS[2], ..plain },
        Wishes { retire: Some(7 * 86_400), ..plain },
    ]
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
        for (data, actor) in pointings() {
            for ttl in ttls() {
                let case = Case { row: index_row(bucket, data.clone(), ttl), told: None, ttl };
                for now in instants(&case, Axes::default(), &[0, FIVE_YEARS, 300 - 10_800, 300 - 3_600]) {
                    for wishes in policies() {
                        let left = verdict::left_to_ttl(ttl, now.into(), &wishes);
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
                        let (row, rules) = (&case.row, policy(&wishes));
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
    let index_ttls = [Time::Missing, Time::At(NOW.into())];
    for bucket in pointers() {
        let target_bucket = index::target_of(bucket).unwrap();
        let kind = kind_of(target_bucket);
        let mut hold = |row: &Row, ttl: Time, lookup: &Lookup, target: Target<'_>, now: i64, wishes: &Wishes| {
            let expected = verdict::compared(target, now.into(), wishes);
            let context = || format!("{} at {now}, {wishes:?}, TTL {ttl:?}: {target:?}", bucket.name);
            let got = integrity::compare(row, bucket, lookup, at(now), &policy(wishes)).map(says);
            assert_eq!(got, Some(expected), "{}", context());
            let left = if expected == Says::Delete("target_dead") { Says::Keep("left_to_daily") } else { expected };
            let got = integrity::repair_index(row, bucket, lookup, at(now), &policy(wishes)).map(says);
            assert_eq!(got, Some(left), "{}", context());
            cases += 2;
        };
        for wishes in policies() {
            let axes = Axes { alone: true, ..Axes::own(kind, &wishes) };
            let indexes = index_ttls.map(|ttl| (ttl, index_row(bucket, rows::text("\"a\""), ttl)));
            rows_of(target_bucket, axes, &few_ttls(), |case| {
                let found = Lookup::Found(case.row.clone());
                let mut stranger = case.row.clone();
                stranger.bucket = rows::text("mcp");
                let stranger = Lookup::Found(stranger);
                for now in instants(case, axes, &[0, FIVE_YEARS]) {
                    for (ttl, row) in &indexes {
                        let target = Target::Row(kind, case.told.as_ref(), case.ttl);
                        hold(row, *ttl, &found, target, now, &wishes);
                    }
                }
                hold(&indexes[0].1, indexes[0].0, &stranger, Target::Foreign, NOW, &wishes);
            });
            for ttl in ttls() {
                let case = Case { row: index_row(bucket, rows::text("\"a\""), ttl), told: None, ttl };
                for now in instants(&case, axes, &[0, FIVE_YEARS]) {
                    hold(&case.row, ttl, &Lookup::Absent, Target::Absent, now, &wishes);
                    let unread = integrity::compare(&case.row, bucket, &Lookup::Unread, at(now), &policy(&wishes));
                    assert_eq!(unread, None, "what could not be read is not absent");
                }
            }
        }
    }
    count("compare, repair_index", cases, began);
}

#[test]
fn every_token_without_an_index_row_is_judged_as_the_model_does() {
    let (began, mut cases) = (std::time::Instant::now(), 0);
    for bucket in BUCKETS.iter().filter(|bucket| shared::bucket::can_refer(bucket)) {
        let kind = kind_of(bucket);
        for wishes in policies() {
            let grace = i64::try_from(wishes.grace).unwrap();
            let axes = Axes { created_at: Some(grace), alone: true, ..Axes::own(kind, &wishes) };
            let rules = policy(&wishes);
            rows_of(bucket, axes, &few_ttls(), |case| {
                let (mut dead_before, told) = (false, case.told.as_ref());
                for now in instants(case, axes, &[0, FIVE_YEARS]) {
                    for (sighting, again) in [(Sighting::First, false), (Sighting::Again, true)] {
                        let verdict = integrity::judge_unindexed(&case.row, bucket, sighting, at(now), &rules);
                        let context = || format!("{} at {now}, {wishes:?}: {}", bucket.name, case.show());
                        let expected = verdict::unindexed(kind, told, case.ttl, again, now.into(), &wishes);
                        assert_eq!(says(verdict), expected, "{again}: {}", context());
                        cases += 1;
                        if !again {
                            continue;
                        }
                        let dead = matches!(verdict, Verdict::Delete(_));
                        let too_old = matches!(case.ttl, Time::At(ttl) if i128::from(now) - ttl > FIVE_YEARS.into());
                        assert!(dead || !dead_before || too_old, "kept after it was dead: {}", context());
                        dead_before = dead;
                        // A consumed row never goes for being unindexed.
                        let tripwire = kind == Kind::Refresh && told.is_some_and(|told| told.used == Used::Yes);
                        assert!(!(tripwire && says(verdict) == Says::Delete("unindexed")), "{}", context());
                    }
                }
                cases += repaired(case, bucket, &rules);
            });
        }
    }
    count("judge_unindexed, repair_token", cases, began);
}

/// What the repair makes of it, by what the index says.
fn repaired(case: &Case, bucket: &Bucket, rules: &Policy) -> u64 {
    let (row, now) = (&case.row, at(NOW));
    for sighting in [Sighting::First, Sighting::Again] {
        let verdict = integrity::judge_unindexed(row, bucket, sighting, now, rules);
        let found = integrity::repair_token(row, bucket, Indexed::No, || sighting, now, rules);
        assert_eq!(found, Some(verdict), "{}", case.show());
        let could = integrity::could_go_unindexed(row, bucket, now, rules).is_ok();
        let goes = matches!(verdict, Verdict::Delete(_)) && !disposal::is_left_to_ttl(row, now, rules);
        assert!(could == goes || sighting == Sighting::First, "{}", case.show());
    }
    // One that an index row leads to, or may lead to, is not the repair's to delete.
    let never = || -> Sighting { panic!("a token with an index row needs no sighting") };
    let found = integrity::repair_token(row, bucket, Indexed::Yes, never, now, rules);
    assert!(matches!(found, Some(Verdict::Keep(_))), "{}", case.show());
    assert_eq!(integrity::repair_token(row, bucket, Indexed::Unread, never, now, rules), None, "{}", case.show());
    6
}

#[test]
fn every_provider_row_is_judged_as_the_model_does() {
    let (began, mut cases) = (std::time::Instant::now(), 0);
    let bucket = shared::bucket::provider();
    let asked = [(Referrers::None, Some(false)), (Referrers::Some, Some(true)), (Referrers::Unknown, None)];
    for wishes in policies() {
        let (rules, grace) = (policy(&wishes), i64::try_from(wishes.grace).unwrap());
        rows_of(bucket, Axes::default(), &ttls(), |case| {
            for now in instants(case, Axes::default(), &[0, FIVE_YEARS, grace - 7_200]) {
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
