//! Random tables against the second opinion: nothing live deleted, nothing dead left, the dry run tells the truth, and a
//! second run finds nothing to do.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::json;
use shared::bucket;
use shared::expiry::{Policy, Verdict, dead_from, judge};
use shared::row::TtlState;
use shared::time::EpochSeconds;
use tests::bed::Bed;
use tests::engine::EngineKind;
use tests::model::{Key, daily_cleanup, dead_by_itself, index_repair, to_row};
use tests::rows::NOW;
use tests::siege::Which;
use tests::tables::{random_table, specimens};

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Every row of 10,000 tables that is judged by itself, against the second opinion.
    #[test]
    fn judges_as_the_model_does(seed: u64, now in NOW - 5..NOW + 5) {
        for row in random_table(seed, NOW) {
            let Some(known) = bucket::find(&row.owner, &row.bucket) else { continue };
            let decided_by_others = matches!(known.rule, bucket::Rule::Pointer { .. } | bucket::Rule::Provider);
            let (live, at) = (to_row(&row), EpochSeconds::new(now));
            // When it dies, and whether it is dead: the same story, but for a TTL that is past acting on.
            let says = dead_from(&live, known, &Policy::default()).is_some_and(|from| from <= at);
            let verdict = judge(&live, known, at, &Policy::default());
            if live.ttl().state(at) != TtlState::Malformed {
                prop_assert_eq!(says, matches!(verdict, Verdict::Delete(_)), "{:?} at {}: {:?}", row, now, verdict);
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

/// Whole runs over random tables on a real engine.
async fn run_on_random_tables(which: Which, kind: EngineKind, seeds: std::ops::Range<u64>) {
    let mut deleted = 0;
    for seed in seeds {
        let rows = random_table(seed, NOW);
        let bed = Bed::with(kind, &specimens(&rows)).await;
        let before = bed.keys().await;
        let gone = match which {
            Which::Cleanup => daily_cleanup(&rows, NOW),
            Which::Repair => index_repair(&rows, NOW),
        };
        let expected: BTreeSet<Key> = before.difference(&gone).cloned().collect();

        let run = async |event| which.run(&bed.function, event, NOW).await;
        let dry = run(json!({"mode": "dry-run"})).await;
        let Ok(dry) = dry else {
            // A handful of rows can be all strangers, and that is refused.
            assert!(dry.unwrap_err().to_string().contains("refused: table"), "seed {seed}");
            continue;
        };
        assert_eq!(bed.keys().await, before, "seed {seed}: the dry run wrote");
        let real = run(json!({})).await.unwrap();
        let after = bed.keys().await;
        let (lost, left): (Vec<_>, Vec<_>) =
            (expected.difference(&after).collect(), after.difference(&expected).collect());
        assert!(lost.is_empty() && left.is_empty(), "seed {seed}: live rows lost: {lost:?}; dead rows left: {left:?}");
        assert_eq!(dry.counts, real.counts, "seed {seed}: the dry run told another story");
        let second = run(json!({})).await.unwrap();
        assert_eq!(second.counts.rows_deleted(), 0, "seed {seed}: the second run found something");
        assert_eq!(real.counts.rows_deleted(), (before.len() - after.len()) as u64, "seed {seed}: the count is wrong");
        deleted += real.counts.rows_deleted();
        bed.function.client.delete_table().table_name(&bed.table).send().await.unwrap();
    }
    assert!(deleted > 0, "random tables without a dead row prove nothing");
}

#[tokio::test]
async fn cleans_random_tables_on_the_embedded_engine_as_the_model_does() {
    run_on_random_tables(Which::Cleanup, EngineKind::Embedded, 0..220).await;
}

#[tokio::test]
async fn cleans_random_tables_on_dynamodb_local_as_the_model_does() {
    run_on_random_tables(Which::Cleanup, EngineKind::DynamoDbLocal, 1_000..1_050).await;
}

#[tokio::test]
async fn repairs_random_tables_on_the_embedded_engine_as_the_model_does() {
    run_on_random_tables(Which::Repair, EngineKind::Embedded, 2_000..2_120).await;
}

#[tokio::test]
async fn repairs_random_tables_on_dynamodb_local_as_the_model_does() {
    run_on_random_tables(Which::Repair, EngineKind::DynamoDbLocal, 3_000..3_040).await;
}
