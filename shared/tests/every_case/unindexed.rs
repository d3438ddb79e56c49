//! Tokens that no index row leads to: `judge_unindexed`, `could_go_unindexed` and `repair_token`.

use model::verdict::{self, Kind, Says, Time, Used, Wishes};
use shared::bucket::{BUCKETS, Bucket, can_refer};
use shared::expiry::KeepReason;
use shared::integrity::{self, Indexed, Sighting};

use crate::cases::{
    Axes, Case, FIVE_YEARS, GRACES, RETIREMENTS, Turns, WINDOWS, at, count, instants, kind_of, policies,
};
use crate::cases::{policy, rows_of, says, ttls, wishes};

/// Every row meets every window and every grace period, in pairs: a consumed row reads the window only, and any other the grace period
/// only, so that nine pairs say no more than three; `PROOF=long` takes all nine. Whether rows are retired, and what is done with rows
/// of 3.2.1, is not read by `judge_unindexed`: these take turns.
#[test]
fn every_token_without_an_index_row_is_judged_as_the_model_does() {
    let (began, mut cases) = (std::time::Instant::now(), 0);
    for bucket in BUCKETS.iter().filter(|bucket| can_refer(bucket)) {
        let kind = kind_of(bucket);
        for (window, grace) in pairs() {
            let own = Axes::own(kind, &Wishes { window, ..wishes() });
            let axes = Axes { created_at: Some(i64::try_from(grace).unwrap()), alone: true, ..own };
            let mut policies = Turns::of(policies(&[window], &[grace], &RETIREMENTS));
            rows_of(bucket, axes, &ttls(), |case| {
                let mut dead_before = false;
                for now in instants(case, axes, &[0, FIVE_YEARS]) {
                    for wishes in policies.next_or_all() {
                        cases += hold(case, bucket, now, wishes);
                    }
                    let wishes = Wishes { window, grace, ..wishes() };
                    let told = case.told.as_ref();
                    let dead =
                        matches!(verdict::unindexed(kind, told, case.ttl, true, now.into(), &wishes), Says::Delete(_));
                    let too_old = matches!(case.ttl, Time::At(ttl) if i128::from(now) - ttl > FIVE_YEARS.into());
                    assert!(dead || !dead_before || too_old, "kept after it was dead, at {now}: {}", case.show());
                    dead_before = dead;
                }
            });
        }
    }
    count("judge_unindexed, could_go_unindexed, repair_token", cases, began);
}

fn pairs() -> Vec<(i128, i128)> {
    let with = |nth: usize| if model::is_long() { &GRACES[..] } else { &GRACES[nth..=nth] };
    WINDOWS.iter().enumerate().flat_map(|(nth, window)| with(nth).iter().map(|grace| (*window, *grace))).collect()
}

/// One token in one second: by itself, and what the repair makes of it by what the index says.
fn hold(case: &Case, bucket: &'static Bucket, now: i64, wishes: &Wishes) -> u64 {
    let (row, kind, rules, told) = (&case.row, kind_of(bucket), policy(wishes), case.told.as_ref());
    let context = || format!("{} at {now}, {wishes:?}: {}", bucket.name, case.show());
    let repair = |indexed, sighting: &dyn Fn() -> Sighting| {
        integrity::repair_token(row, bucket, indexed, sighting, at(now), &rules).map(says)
    };
    for (sighting, again) in [(Sighting::First, false), (Sighting::Again, true)] {
        let verdict = says(integrity::judge_unindexed(row, bucket, sighting, at(now), &rules));
        let expected = verdict::unindexed(kind, told, case.ttl, again, now.into(), wishes);
        assert_eq!(verdict, expected, "{again}: {}", context());
        assert_eq!(repair(Indexed::No, &|| sighting), Some(expected), "{again}: {}", context());
        // A consumed row never goes for being unindexed.
        let tripwire = kind == Kind::Refresh && told.is_some_and(|told| told.used == Used::Yes);
        assert!(!(tripwire && verdict == Says::Delete("unindexed")), "{}", context());
    }
    let left = verdict::left_to_ttl(case.ttl, now.into(), wishes);
    let expected = match verdict::unindexed(kind, told, case.ttl, true, now.into(), wishes) {
        Says::Delete(_) if left => Err("left_to_ttl"),
        Says::Delete(_) => Ok(()),
        Says::Keep(reason) => Err(reason),
    };
    let could = integrity::could_go_unindexed(row, bucket, at(now), &rules);
    assert_eq!(could.map_err(KeepReason::name), expected, "{}", context());
    // One that an index row leads to, or may lead to, is not the repair's to delete.
    let never = || -> Sighting { panic!("a token with an index row needs no sighting") };
    let expected = match verdict::judged(kind, told, case.ttl, now.into(), wishes) {
        Says::Delete(_) => Says::Keep("left_to_daily"),
        kept @ Says::Keep(_) => kept,
    };
    assert_eq!(repair(Indexed::Yes, &never), Some(expected), "{}", context());
    assert_eq!(repair(Indexed::Unread, &never), None, "{}", context());
    7
}
