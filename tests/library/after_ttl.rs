//! What is left after TTL has removed retired rows. In a module that sorts first, because the test waits for minutes.

use std::time::{Duration, Instant};

use bed::Testbed;
use bed::engine::Engine;
use bed::items::{self, Item};
use bed::load::real_now;
use bed::python::Application;
use shared::bucket;

use super::retire::{DAY, RUNS, alive_at, is_provider, rows_at, run, strip_ttl, ttl};

/// Uses the engine's own TTL and clock: runs dated more than a day ago retire rows for one day, so the engine removes them at once. Exactly
/// the rows that were dead then are removed. The table is small, and the only one of its engine.
#[tokio::test]
async fn ttl_removes_exactly_the_dead_rows_once_their_retirement_is_over() {
    let local = Engine::dynamodb_local_alone();
    let bed = Testbed::on(local.endpoint()).await;
    let application = Application::new(local.endpoint(), &bed.prefix);
    let manifest = application.seed(1, 2).await;
    let then = real_now() - DAY - 60;
    let is_over = |item: &Item| ttl(item).is_some_and(|at| at < real_now());
    let written = rows_at(local.endpoint(), &bed).await;
    let alive = alive_at(then, &written).await;
    let client = bed::tables::client(local.endpoint()).await;
    for (key, item) in &written {
        let is_ours = bucket::find(&key.0, item["bucket"].as_s().map_or("", String::as_str)).is_some();
        if alive.contains_key(key) && is_ours && is_over(item) {
            // It expired since; TTL would have removed it before the run.
            let delete = client.delete_item().table_name(&bed.table).key("id", item["id"].clone());
            delete.key("bucket_name", item["bucket_name"].clone()).send().await.unwrap();
        } else if is_over(item) && !is_provider(item) {
            // As releases before 3.7.4 wrote it. Provider rows keep their TTL, and are left to it.
            items::write(&client, &bed.table, &[strip_ttl(item.clone())]).await;
        }
    }
    let before = rows_at(local.endpoint(), &bed).await;
    let mut expected = alive_at(then, &before).await;
    let mut bed = bed.retiring().await;
    bed.function.environment.insert("RETIRE_DAYS".to_owned(), "1".to_owned());
    let (mut retired, mut left) = (0, 0);
    for which in RUNS {
        let counts = run(which, &bed.function, then).await.counts;
        retired += counts.rows_retired();
        left = left.max(counts.rows_left_to_ttl());
    }
    println!("{} rows, {} alive; {retired} retired, {left} left to their TTL", before.len(), expected.len());
    assert!(retired > 30 && left > 0 && expected.len() > 30, "of {} rows", before.len());
    // Longer than two TTL passes over the table.
    let end = Instant::now() + Duration::from_mins(6);
    while rows_at(local.endpoint(), &bed).await.values().any(is_over) && Instant::now() < end {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let after = rows_at(local.endpoint(), &bed).await;
    // A live row's own TTL may have passed in the meantime.
    expected.retain(|_, item| !is_over(item));
    assert_eq!(
        after.keys().collect::<Vec<_>>(),
        expected.keys().collect::<Vec<_>>(),
        "other rows than the dead ones are gone"
    );
    assert!(after == expected, "a live row was changed");
    println!("{}", application.judge_within(&manifest, 60 * DAY));
}
