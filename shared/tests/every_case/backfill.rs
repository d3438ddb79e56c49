//! The backfill: which TTL a row without one gets.

use model::verdict::{self, Kind, Time};
use shared::backfill::{LeaveReason, Plan, plan, plan_by_referrers, plan_by_target};
use shared::bucket::{BUCKETS, Bucket, Owner, Rule};
use shared::expiry::{Verdict, judge};
use shared::index;
use shared::integrity::Lookup;
use shared::row::Raw;

use crate::cases::{Axes, CLOCK, Case, FIVE_YEARS, at, count, instants, kind_of, policy, rows_of, settings, ttls};
use model::rows::NOW;

/// All fields that the backfill reads, each with the constant that moves the resulting TTL to one of the places.
fn axes(bucket: &Bucket) -> Axes {
    let storage = bucket.ttl.unwrap_or(0) + 3_600;
    let axes = Axes { alone: true, ..Axes::own(kind_of(bucket), &settings()) };
    match kind_of(bucket) {
        Kind::Session => Axes { retrieved_at: Some(storage), ..axes },
        Kind::Token | Kind::Ticket | Kind::Refresh => Axes { created_at: Some(storage), ..axes },
        Kind::Marker => Axes { seen_at: Some(storage), ..axes },
        _ => axes,
    }
}

fn result_of(plan: &Plan) -> Result<i128, &'static str> {
    match plan {
        Plan::Set(ttl) => Ok(ttl.get().into()),
        Plan::Leave(reason) => Err(<&str>::from(*reason)),
        Plan::FromTarget(_) => Err("ask_target"),
        Plan::FromReferrers => Err("ask_referrers"),
    }
}

fn nows(ttl: Result<i128, &str>) -> Vec<i64> {
    let end = ttl.into_iter().flat_map(|ttl| (-1..=1).map(move |s| ttl + i128::from(FIVE_YEARS) + s));
    end.filter_map(|now| i64::try_from(now).ok())
        .filter(|now| CLOCK.contains(now))
        .chain([NOW, NOW - 1, *CLOCK.end()])
        .collect()
}

#[test]
fn backfills_every_row_as_the_model_does_and_ends_no_live_row() {
    let (started, mut cases) = (std::time::Instant::now(), 0);
    for bucket in &BUCKETS {
        let (kind, axes) = (kind_of(bucket), axes(bucket));
        rows_of(bucket, axes, &ttls(), |case| {
            let context = |plan| format!("{}: {plan:?}: {}", bucket.name, case.show());
            let fill = |now: i64| match (bucket.ttl, case.ttl, kind) {
                (None, ..) => Err("permanent"),
                (Some(_), Time::Missing, Kind::Provider) => Err("ask_referrers"),
                // The index rows of this product name no actor.
                (Some(_), Time::Missing, Kind::Index) => Err("malformed"),
                (Some(storage), Time::Missing, _) => {
                    let of_actor = bucket.owner == Owner::Actor;
                    verdict::filled(kind, of_actor, case.fields.as_ref(), storage.into(), now.into())
                }
                (Some(_), Time::At(1..=99_999_999_999), _) => Err("has_ttl"),
                (Some(_), ..) => Err("malformed_ttl"),
            };
            for now in nows(fill(NOW)) {
                let (found, planned) = plan(&case.row, at(now));
                // One of the unreadable texts is a string, which is valid in an index row.
                if matches!(planned, Plan::FromTarget(_)) {
                    assert!(kind == Kind::Index && case.fields.is_none(), "{}", context(&planned));
                    continue;
                }
                assert_eq!(found, Some(bucket));
                assert_eq!(result_of(&planned), fill(now), "at {now}: {}", context(&planned));
                cases += 1;
                let Plan::Set(ttl) = planned else { continue };
                if let Some(until) = verdict::alive_until(kind, case.fields.as_ref()) {
                    assert!(i128::from(ttl.get()) >= until + 3_600, "the TTL ends it early: {}", context(&planned));
                }
                cases += check_verdicts_unchanged(case, bucket, axes, ttl.get());
            }
        });
    }
    count("backfill::plan", cases, started);
}

/// The row is dead at the same times with the new TTL as without it.
fn check_verdicts_unchanged(case: &Case, bucket: &Bucket, axes: Axes, ttl: i64) -> u64 {
    let mut filled = case.row.clone();
    filled.ttl = Raw::Number(ttl.to_string());
    let rules = policy(&settings());
    let mut seconds = instants(case, axes, &[]);
    seconds.extend([ttl, ttl + 1]);
    for now in seconds.iter().filter(|now| CLOCK.contains(now)) {
        let dead = |row| matches!(judge(row, bucket, at(*now), &rules), Verdict::Delete(_));
        // A row without a time of its own, such as a replay marker without `exp`, is judged by its TTL.
        let by_ttl_alone = verdict::alive_until(kind_of(bucket), case.fields.as_ref()).is_none();
        assert!(dead(&filled) == dead(&case.row) || by_ttl_alone, "TTL {ttl} at {now}: {}", case.show());
    }
    seconds.len() as u64
}

#[test]
fn backfills_every_index_row_with_its_targets_ttl_plus_two_hours() {
    let (started, mut cases) = (std::time::Instant::now(), 0);
    for index_bucket in BUCKETS.iter().filter(|bucket| matches!(bucket.rule, Rule::Pointer { .. })) {
        let bucket = index::target_of(index_bucket).unwrap();
        let axes = axes(bucket);
        rows_of(bucket, axes, &[Time::Missing], |case| {
            let storage = bucket.ttl.unwrap_or(0).into();
            let end = case
                .fields
                .as_ref()
                .ok_or("")
                .and_then(|fields| verdict::end_of(kind_of(bucket), true, fields, storage));
            let fill = |now: i64| match (end, bucket.ttl) {
                (_, None) | (Err(_), _) => Err("target_unreadable"),
                (Ok(end), _) => match end + 10_800 {
                    at if at <= 0 || at >= 100_000_000_000 => Err("malformed"),
                    at if i128::from(now) - at > FIVE_YEARS.into() => Err("too_old"),
                    at => Ok(at),
                },
            };
            for now in nows(fill(NOW)) {
                let planned = plan_by_target(index_bucket, &Lookup::Found(case.row.clone()), at(now)).unwrap();
                assert_eq!(result_of(&planned), fill(now), "{} at {now}: {}", index_bucket.name, case.show());
                cases += 1;
            }
        });
        let leave = |reason| Some(Plan::Leave(reason));
        assert_eq!(plan_by_target(index_bucket, &Lookup::Absent, at(NOW)), leave(LeaveReason::TargetAbsent));
        assert_eq!(plan_by_target(index_bucket, &Lookup::Unread, at(NOW)), None);
    }
    for written in
        [i64::MIN, -7_201, -7_200, -7_199, 0, NOW - FIVE_YEARS - 7_201, NOW - FIVE_YEARS - 7_200, NOW, i64::MAX]
    {
        let planned = plan_by_referrers(Some(at(written)), at(NOW));
        let expected = match i128::from(written) + 7_200 {
            ttl if ttl <= 0 || ttl >= 100_000_000_000 => Err("malformed"),
            ttl if i128::from(NOW) - ttl > FIVE_YEARS.into() => Err("too_old"),
            ttl => Ok(ttl),
        };
        assert_eq!(result_of(&planned), expected, "{written}");
        cases += 1;
    }
    assert_eq!(plan_by_referrers(None, at(NOW)), Plan::Leave(LeaveReason::Unreferenced));
    count("backfill::plan_by_target, plan_by_referrers", cases, started);
}
