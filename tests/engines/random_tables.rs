//! Random tables, compared with the model: no live row is deleted, no dead row is left, the dry run reports the same, and a
//! second run finds nothing to do.

use std::collections::BTreeSet;

use bed::Testbed;
use bed::engine::EngineKind;
use bed::load::Which;
use bed::tables::{random_table, specimens};
use model::rows::NOW;
use model::{Key, daily_cleanup, index_repair};
use serde_json::json;

async fn run_on_random_tables(which: Which, kind: EngineKind, seeds: std::ops::Range<u64>) {
    let (mut deleted, mut refused, tables) = (0, 0, seeds.end - seeds.start);
    for seed in seeds {
        let rows = random_table(seed, NOW);
        let bed = Testbed::with(kind, &specimens(&rows)).await;
        let before = bed.keys().await;
        let gone = match which {
            Which::Cleanup => daily_cleanup(&rows, NOW),
            Which::Repair => index_repair(&rows, NOW),
        };
        let expected: BTreeSet<Key> = before.difference(&gone).cloned().collect();

        let run = async |event| which.run(&bed.function, event, NOW).await;
        let dry = run(json!({"mode": "dry-run"})).await;
        let Ok(dry) = dry else {
            // A small table may have only foreign rows, and is refused.
            assert!(dry.unwrap_err().to_string().contains("refused: table"), "seed {seed}");
            refused += 1;
            continue;
        };
        assert_eq!(bed.keys().await, before, "seed {seed}: the dry run wrote");
        let real = run(json!({})).await.unwrap();
        let after = bed.keys().await;
        let (lost, left): (Vec<_>, Vec<_>) =
            (expected.difference(&after).collect(), after.difference(&expected).collect());
        assert!(lost.is_empty() && left.is_empty(), "seed {seed}: live rows lost: {lost:?}; dead rows left: {left:?}");
        assert_eq!(dry.counts, real.counts, "seed {seed}: the dry run reported something else");
        let second = run(json!({})).await.unwrap();
        assert_eq!(second.counts.rows_deleted(), 0, "seed {seed}: the second run deleted rows");
        assert_eq!(real.counts.rows_deleted(), (before.len() - after.len()) as u64, "seed {seed}: the count is wrong");
        deleted += real.counts.rows_deleted();
        bed.function.client.delete_table().table_name(&bed.table).send().await.unwrap();
    }
    assert!(refused * 20 <= tables, "{refused} of {tables} tables were refused: too few were cleaned");
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
