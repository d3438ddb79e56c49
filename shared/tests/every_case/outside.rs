//! Cases outside the classes: spellings, and random rows and times.

use fastrand::Rng;
use model::rows::{self, NOW};
use model::verdict::{RowFields, Settings, Time, Used, judged, unindexed};
use shared::bucket::{BUCKETS, Bucket, can_refer};
use shared::expiry::Verdict::{self, Delete, Keep};
use shared::expiry::{DeleteReason, KeepReason, Policy, judge};
use shared::index::target_of;
use shared::integrity::{Lookup, Sighting, compare, judge_unindexed, repair_index};
use shared::row::{Field, Fields, Raw, Row};

use crate::cases::{FIVE_YEARS, WINDOWS, at, count, kind_of, outcome, policy, spell, ttl_raw};
use crate::relations::pointers;

#[test]
fn a_field_is_missing_malformed_or_a_number_whatever_its_spelling() {
    let is = |seconds: i64| Field::Is(at(seconds));
    for (value, read) in [
        ("null", Field::Missing),
        ("-0", is(0)),
        ("7", is(7)),
        ("9223372036854775807", is(i64::MAX)),
        ("9223372036854775808", is(i64::MAX)),
        ("99999999999999999999999999", is(i64::MAX)),
        ("-9223372036854775808", is(i64::MIN)),
        ("-9223372036854775809", Field::Malformed),
        ("7.0", Field::Malformed),
        ("7e0", Field::Malformed),
        ("NaN", Field::Malformed),
        ("Infinity", Field::Malformed),
        ("true", Field::Malformed),
        ("\"7\"", Field::Malformed),
        ("[7]", Field::Malformed),
        ("{\"created_at\": 7}", Field::Malformed),
    ] {
        let twice = format!("{{\"created_at\": 1, \"created\\u005fat\" : {value} }}");
        let data = Raw::Text(twice);
        assert_eq!(Fields::read(&data).map(|fields| fields.created_at), Some(read), "{value}");
    }
    for (value, read) in [
        ("null", Field::Missing),
        ("true", Field::Is(true)),
        ("false", Field::Is(false)),
        ("1", Field::Malformed),
        ("0", Field::Malformed),
        ("\"true\"", Field::Malformed),
        ("[]", Field::Malformed),
    ] {
        let data = Raw::Text(format!("{{\"used\": {value}}}"));
        assert_eq!(Fields::read(&data).map(|fields| fields.used), Some(read), "{value}");
    }
}

/// A number of any size, often near `NOW`.
fn number(random: &mut Rng) -> i64 {
    match random.u8(..4) {
        0 => random.i64(..) >> random.u8(..63),
        1 => NOW + random.i64(-FIVE_YEARS * 2..FIVE_YEARS),
        _ => NOW + (random.i64(-1_000_000_000..1_000_000_000) >> random.u8(..30)),
    }
}

fn time(random: &mut Rng) -> Time {
    match random.u8(..8) {
        0 => Time::Missing,
        1 => Time::Malformed,
        _ => Time::At(number(random).into()),
    }
}

#[test]
fn random_rows_outside_the_classes_have_the_models_verdict() {
    let (started, mut cases) = (std::time::Instant::now(), 0);
    let seed = std::env::var("PROOF_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| fastrand::u64(..));
    let rounds = if model::is_long() { 400_000 } else { 8_000 };
    println!("PROOF_SEED={seed}");
    let mut random = Rng::with_seed(seed);
    for _ in 0..rounds {
        let fields = RowFields {
            created_at: time(&mut random),
            expires_at: time(&mut random),
            exp: time(&mut random),
            used: [Used::Missing, Used::Malformed, Used::No, Used::Yes][random.usize(..4)],
            used_at: time(&mut random),
            seen_at: time(&mut random),
            retrieved_at: time(&mut random),
        };
        let (ttl, now) = (time(&mut random), number(&mut random).max(0));
        let settings = Settings {
            window: WINDOWS[random.usize(..3)] + i128::from(random.u32(..)),
            grace: i128::from(random.u32(300..)),
            legacy: random.bool(),
            retire: random.bool().then(|| i128::from(random.u32(86_400..))),
        };
        let data = Raw::Text(spell(&fields));
        for bucket in &BUCKETS {
            let (kind, rules) = (kind_of(bucket), policy(&settings));
            let row = rows::row(bucket, "n", data.clone(), ttl_raw(ttl));
            let verdict = judge(&row, bucket, at(now), &rules);
            let context = || format!("{} at {now}: {fields:?}, TTL {ttl:?}, {settings:?}", bucket.name);
            assert_eq!(outcome(verdict), judged(kind, Some(&fields), ttl, now.into(), &settings), "{}", context());
            cases += 1;
            if let Some(index) = pointers().find(|index| target_of(index) == Some(bucket)) {
                cases += compared_by_verdict(&mut random, index, row.clone(), verdict, now, &rules);
            }
            if can_refer(bucket) {
                let verdict = judge_unindexed(&row, bucket, Sighting::Again, at(now), &rules);
                let expected = unindexed(kind, Some(&fields), ttl, true, now.into(), &settings);
                assert_eq!(outcome(verdict), expected, "{}", context());
                cases += 1;
            }
        }
    }
    count("random rows outside the classes", cases, started);
}

/// `compare` depends only on the owner and bucket of both rows, and on the verdict on the target.
fn compared_by_verdict(
    random: &mut Rng,
    index: &Bucket,
    mut target: Row,
    verdict: Verdict,
    now: i64,
    policy: &Policy,
) -> u64 {
    let data = [rows::text("\"a\""), Raw::Text(spell_number(random)), Raw::Absent][random.usize(..3)].clone();
    let mut row = rows::row(index, "n", data, ttl_raw(time(random)));
    let expected = match (random.u8(..8), verdict) {
        (0, _) => {
            "_actingweb_other".clone_into(&mut row.key.owner);
            Keep(KeepReason::Foreign)
        }
        (1, _) => {
            target.bucket = rows::text("mcp");
            Keep(KeepReason::TargetForeign)
        }
        (_, Delete(_)) => Delete(DeleteReason::TargetDead),
        (_, Keep(_)) => Keep(KeepReason::TargetKept),
    };
    let context = format!("{} at {now}: {verdict:?}, {policy:?}", index.name);
    let found = Lookup::Found(target);
    assert_eq!(compare(&row, index, &found, at(now), policy), Some(expected), "{context}");
    let repaired = match expected {
        Delete(_) => Keep(KeepReason::LeftToDaily),
        kept @ Keep(_) => kept,
    };
    assert_eq!(repair_index(&row, index, &found, at(now), policy), Some(repaired), "{context}");
    2
}

fn spell_number(random: &mut Rng) -> String {
    format!("{{\"expires_at\": {}}}", number(random))
}
