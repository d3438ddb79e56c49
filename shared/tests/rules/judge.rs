//! The decisions compared with the model, without an engine: fast enough to run against every mutation.

use model::random::random_table;
use model::rows::NOW;
use model::{dead_by_itself, to_row};
use proptest::prelude::*;
use shared::bucket;
use shared::expiry::{Policy, Verdict, dead_from, judge};
use shared::row::TtlState;
use shared::time::EpochSeconds;

/// proptest's own variable; an explicit `cases` would override it.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(10_000)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    /// Every row of 10,000 random tables that is judged without other rows, compared with the model.
    #[test]
    fn judges_as_the_model_does(seed: u64, now in NOW - 5..NOW + 5) {
        for row in random_table(seed, NOW) {
            let Some(known) = bucket::find(&row.owner, &row.bucket) else { continue };
            let decided_by_others = matches!(known.rule, bucket::Rule::Pointer { .. } | bucket::Rule::Provider);
            let (live, at) = (to_row(&row), EpochSeconds::new(now));
            // `dead_from` and `judge` agree, unless DynamoDB does not act on the TTL.
            let dead_by_now = dead_from(&live, known, &Policy::default()).is_some_and(|from| from <= at);
            let verdict = judge(&live, known, at, &Policy::default());
            if live.ttl().state(at) != TtlState::Malformed {
                prop_assert_eq!(dead_by_now, matches!(verdict, Verdict::Delete(_)), "{:?} at {}: {:?}", row, now, verdict);
            }
            prop_assert_eq!(live.ttl_fault(at).is_some(), live.ttl().state(at) == TtlState::Malformed, "{:?}", row);
            if !decided_by_others {
                let verdict = judge(&to_row(&row), known, EpochSeconds::new(now), &Policy::default());
                let dead = matches!(verdict, Verdict::Delete(_));
                prop_assert_eq!(dead, dead_by_itself(&row, now), "{:?} at {}: {:?}", row, now, verdict);
            }
        }
    }
}
