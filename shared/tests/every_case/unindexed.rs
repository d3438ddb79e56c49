//! Tokens without an index row: `judge_unindexed`, `could_go_unindexed` and `repair_token`.

use model::verdict::{self, Kind, Outcome, Settings, Time, Used};
use shared::bucket::{BUCKETS, Bucket, can_refer};
use shared::expiry::KeepReason;
use shared::integrity::{self, Indexed, Sighting};

use crate::cases::{
    Axes, Case, FIVE_YEARS, GRACES, RETIREMENTS, Turns, WINDOWS, at, count, instants, kind_of, policies,
};
use crate::cases::{outcome, policy, rows_of, settings, ttls};

/// Every row is combined with every window and every grace period, in pairs: a consumed row depends only on the window, and any other
/// only on the grace period, so that nine pairs show no more than three; `PROOF=long` takes all nine. `judge_unindexed` does not read
/// `retire` and `legacy`: these take turns.
#[test]
fn every_token_without_an_index_row_is_judged_as_the_model_does() {
    let (started, mut cases) = (std::time::Instant::now(), 0);
    for bucket in BUCKETS.iter().filter(|bucket| can_refer(bucket)) {
        let kind = kind_of(bucket);
        for (window, grace) in pairs() {
            let own = Axes::own(kind, &Settings { window, ..settings() });
            let axes = Axes { created_at: Some(i64::try_from(grace).unwrap() + 300), alone: true, ..own };
            let mut policies = Turns::of(policies(&[window], &[grace], &RETIREMENTS));
            rows_of(bucket, axes, &ttls(), |case| {
                let mut dead_before = false;
                for now in instants(case, axes, &[0, FIVE_YEARS]) {
                    for settings in policies.next_or_all() {
                        cases += check(case, bucket, now, settings);
                    }
                    let settings = Settings { window, grace, ..settings() };
                    let fields = case.fields.as_ref();
                    let dead = matches!(
                        verdict::unindexed(kind, fields, case.ttl, true, now.into(), &settings),
                        Outcome::Delete(_)
                    );
                    let too_old = matches!(case.ttl, Time::At(ttl) if i128::from(now) - ttl > FIVE_YEARS.into());
                    assert!(dead || !dead_before || too_old, "kept after it was dead, at {now}: {}", case.show());
                    dead_before = dead;
                }
            });
        }
    }
    count("judge_unindexed, could_go_unindexed, repair_token", cases, started);
}

fn pairs() -> Vec<(i128, i128)> {
    let with = |nth: usize| if model::is_long() { &GRACES[..] } else { &GRACES[nth..=nth] };
    WINDOWS.iter().enumerate().flat_map(|(nth, window)| with(nth).iter().map(|grace| (*window, *grace))).collect()
}

/// Checks one token at one time: by itself, and the repair's verdict by whether it is indexed.
fn check(case: &Case, bucket: &'static Bucket, now: i64, settings: &Settings) -> u64 {
    let (row, kind, rules, fields) = (&case.row, kind_of(bucket), policy(settings), case.fields.as_ref());
    let context = || format!("{} at {now}, {settings:?}: {}", bucket.name, case.show());
    let repair = |indexed, sighting: &dyn Fn() -> Sighting| {
        integrity::repair_token(row, bucket, indexed, sighting, at(now), &rules).map(outcome)
    };
    for (sighting, again) in [(Sighting::First, false), (Sighting::Again, true)] {
        let verdict = outcome(integrity::judge_unindexed(row, bucket, sighting, at(now), &rules));
        let expected = verdict::unindexed(kind, fields, case.ttl, again, now.into(), settings);
        assert_eq!(verdict, expected, "{again}: {}", context());
        assert_eq!(repair(Indexed::No, &|| sighting), Some(expected), "{again}: {}", context());
        // A consumed row is never deleted as unindexed.
        let tripwire = kind == Kind::Refresh && fields.is_some_and(|fields| fields.used == Used::Yes);
        assert!(!(tripwire && verdict == Outcome::Delete("unindexed")), "{}", context());
    }
    let left = verdict::left_to_ttl(case.ttl, now.into(), settings);
    let expected = match verdict::unindexed(kind, fields, case.ttl, true, now.into(), settings) {
        Outcome::Delete(_) if left => Err("left_to_ttl"),
        Outcome::Delete(_) => Ok(()),
        Outcome::Keep(reason) => Err(reason),
    };
    let could = integrity::could_go_unindexed(row, bucket, at(now), &rules);
    assert_eq!(could.map_err(KeepReason::name), expected, "{}", context());
    // The repair does not delete a token that has, or may have, an index row.
    let never = || -> Sighting { panic!("a token with an index row needs no sighting") };
    let expected = match verdict::judged(kind, fields, case.ttl, now.into(), settings) {
        Outcome::Delete(_) => Outcome::Keep("left_to_daily"),
        kept @ Outcome::Keep(_) => kept,
    };
    assert_eq!(repair(Indexed::Yes, &never), Some(expected), "{}", context());
    assert_eq!(repair(Indexed::Unread, &never), None, "{}", context());
    7
}
