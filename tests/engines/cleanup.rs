//! The guarantees of the README, restated as tests, on DynamoDB Local and on the embedded engine.

use bed::Invocations as _;
use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, ProvisionedThroughput,
    ScalarAttributeType,
};
use bed::Testbed;
use bed::engine::{EngineKind, kinds, shared as engine};
use bed::fault::Fault;
use bed::fixture::{self, Fate, Specimen};
use bed::proxy::{self, Proxy};
use bed::tables::{create_table, write_rows};
use jobs::run::RunError;
use jobs::run::report::{Outcome, RunReport};
use model::rows::NOW;
use runtime::lambda::Function;
use serde_json::{Value, json};
use shared::settings::Environment;
use shared::time::EpochSeconds;
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::Instant;

use super::driven::DrivenClock;

bed::on_both_engines!(
    deletes_every_dead_row_and_no_live_one,
    sends_few_requests,
    a_dry_run_sends_no_write,
    a_row_that_changes_between_judgement_and_delete_survives,
    a_second_run_sees_the_lease_and_does_nothing,
    a_killed_run_is_finished_by_the_next,
    stops_before_its_deadline_and_the_next_runs_finish,
    stops_at_exactly_max_deletes_and_the_next_run_continues,
    refuses_above_the_delete_share_and_deletes_nothing,
    an_empty_table_is_reported_as_a_success,
    a_table_of_another_application_is_refused,
    a_table_whose_last_known_row_was_deleted_is_still_accepted,
    survives_throttling_and_lost_responses,
    deletes_of_throttled_requests_do_not_count_towards_max_deletes,
    faults_of_two_kinds_share_the_attempts_of_one_request,
    a_read_error_is_never_taken_as_absence,
    uses_at_most_half_of_the_units_of_a_provisioned_table,
    refuses_when_the_delete_share_cannot_be_determined,
    a_cursor_does_not_change_the_delete_share,
    a_row_with_an_impossible_pointer_does_not_stop_the_run,
    deletes_both_provider_rows_when_access_and_refresh_token_name_different_ones,
    a_failed_run_leaves_a_cursor,
    a_malformed_lease_row_is_replaced,
    a_state_row_that_cannot_be_written_does_not_lose_the_report,
    returns_before_its_deadline_when_its_last_write_hangs,
    a_rejected_batch_is_halved_until_the_row_is_found,
);

async fn clean(bed: &Testbed, event: Value) -> Result<RunReport, RunError> {
    bed.function.daily_cleanup(event, EpochSeconds::new(NOW), None).await
}

/// Sessions with random names; the first `dead` are expired.
fn sessions(dead: usize, alive: usize) -> Vec<Specimen> {
    let mut random = fastrand::Rng::with_seed(3);
    (0..dead + alive)
        .map(|i| {
            let created = if i < dead { NOW - 5_000 } else { NOW - 5 };
            session(
                &format!("{:016x}{i:027}", random.u64(..)),
                created,
                if i < dead { Fate::Deleted } else { Fate::Kept },
            )
        })
        .collect()
}

fn session(name: &str, created: i64, fate: Fate) -> Specimen {
    Specimen {
        owner: "_actingweb_oauth2".to_owned(),
        bucket: "_oauth_sessions".to_owned(),
        name: name.to_owned(),
        data: Some(AttributeValue::S(format!("{{\"token_data\": {{}}, \"created_at\": {created}}}"))),
        ttl: Some(AttributeValue::N((created + 4_200).to_string())),
        fate,
    }
}

async fn deletes_every_dead_row_and_no_live_one(kind: EngineKind) {
    let rows = fixture::all_kinds(NOW, 10, 1);
    let bed = Testbed::with(kind, &rows).await;
    let dry = clean(&bed, json!({"mode": "dry-run"})).await.unwrap();
    let report = clean(&bed, json!({})).await.unwrap();
    bed.check(&rows).await;
    assert_eq!(dry.counts, report.counts);
    let dead = rows.iter().filter(|row| row.fate == Fate::Deleted).count();
    assert_eq!(report.counts.rows_deleted(), dead as u64);
    assert_eq!(report.outcome, Outcome::Complete);
    let again = clean(&bed, json!({})).await.unwrap();
    assert_eq!((again.counts.rows_deleted(), again.outcome), (0, Outcome::Complete));
}

async fn sends_few_requests(kind: EngineKind) {
    let rows = fixture::all_kinds(NOW, 30, 2);
    let bed = Testbed::with(kind, &rows).await;
    let report = clean(&bed, json!({})).await.unwrap();
    let allowed = report.counts.rows_deleted() / 10 + report.counts.rows_read() / 50;
    assert!(report.usage.requests < allowed, "{} requests, {allowed} allowed", report.usage.requests);
}

async fn a_dry_run_sends_no_write(kind: EngineKind) {
    let bed = Testbed::with(kind, &fixture::all_kinds(NOW, 2, 3)).await.retiring().await;
    let proxy = Proxy::start(engine(kind).endpoint(), |_| proxy::Fate::Forward);
    let before = bed.keys().await;
    let event = json!({"mode": "dry-run", "max_delete_share": 1, "expired_rows": "retire"});
    let function = bed.through(&proxy).await;
    function.daily_cleanup(event, EpochSeconds::new(NOW), None).await.unwrap();
    assert_eq!(bed.keys().await, before);
    let reads = ["DescribeTable", "DescribeTimeToLive", "Query", "BatchGetItem", "GetItem"];
    let seen = proxy.seen();
    assert!(seen.iter().all(|operation| reads.contains(&operation.as_str())), "{seen:?}");
    assert!(seen.len() > 10);
}

/// Runs async work from the proxy's hook, which is not async.
fn block_on<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    let work = move || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work);
    std::thread::spawn(work).join().unwrap()
}

async fn a_row_that_changes_between_judgement_and_delete_survives(kind: EngineKind) {
    let mut rows: Vec<Specimen> =
        ["data", "ttl", "no-ttl", "unchanged"].map(|name| session(name, NOW - 9_000, Fate::Deleted)).into();
    let marker = |exp: i64| Some(AttributeValue::S(format!("{{\"seen_at\": 1, \"exp\": {exp}}}")));
    rows.push(Specimen {
        bucket: "_id_token_replay".to_owned(),
        data: marker(NOW - 900),
        ..session("recreated", NOW - 9_000, Fate::Deleted)
    });
    let bed = Testbed::with(kind, &rows).await;
    rows[0].data = Some(AttributeValue::S("{\"created_at\": 1, \"used\": true}".to_owned()));
    rows[1].ttl = Some(AttributeValue::N((NOW + 9_000).to_string()));
    rows[2].ttl = None;
    rows[4].data = marker(NOW + 900);
    let (client, table) = (bed.function.client.clone(), bed.table.clone());
    let mut done = BTreeSet::new();
    let proxy = Proxy::start(engine(kind).endpoint(), move |request| {
        if request.operation == "BatchExecuteStatement" {
            for row in &rows {
                if request.body.contains(&format!("{}:{}", row.bucket, row.name)) && done.insert(row.name.clone()) {
                    let (client, table, row) = (client.clone(), table.clone(), row.clone());
                    block_on(async move { write_rows(&client, &table, &[row]).await.unwrap() });
                }
            }
        }
        proxy::Fate::Forward
    });
    let function = bed.through(&proxy).await;
    let report = function.daily_cleanup(json!({}), EpochSeconds::new(NOW), None).await.unwrap();
    let left: Vec<String> = bed.keys().await.into_iter().map(|(_, sort)| sort).collect();
    assert_eq!(
        left,
        ["_id_token_replay:recreated", "_oauth_sessions:data", "_oauth_sessions:no-ttl", "_oauth_sessions:ttl"]
    );
    assert_eq!((report.counts.lost_races(), report.counts.rows_deleted()), (4, 1));
}

async fn a_second_run_sees_the_lease_and_does_nothing(kind: EngineKind) {
    let rows = sessions(30, 5);
    let bed = Arc::new(Testbed::with(kind, &rows).await);
    let second: Arc<Mutex<Option<RunReport>>> = Arc::default();
    let (other, result) = (Arc::clone(&bed), Arc::clone(&second));
    let proxy = Proxy::start(engine(kind).endpoint(), move |request| {
        if request.operation == "BatchExecuteStatement" && result.lock().unwrap().is_none() {
            let other = Arc::clone(&other);
            let run = std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(clean(&other, json!({}))).unwrap()
            });
            *result.lock().unwrap() = Some(run.join().unwrap());
        }
        proxy::Fate::Forward
    });
    let function = bed.through(&proxy).await;
    let first = function.daily_cleanup(json!({}), EpochSeconds::new(NOW), None).await.unwrap();
    let second = second.lock().unwrap().clone().expect("the second run ran during the first");
    assert_eq!(second.outcome, Outcome::LeaseHeld);
    assert!(!second.outcome.is_complete());
    assert_eq!((second.counts.rows_read(), second.counts.rows_deleted()), (0, 0));
    assert!(second.notes[0].contains("holds the lease"), "{:?}", second.notes);
    assert_eq!((first.outcome, first.counts.rows_deleted()), (Outcome::Complete, 30));
    bed.check(&rows).await;
}

async fn a_killed_run_is_finished_by_the_next(kind: EngineKind) {
    let rows = fixture::settled(NOW, 6, 4);
    for kill_at in [1, 2, 3, 5, 8, 13] {
        let bed = Testbed::with(kind, &rows).await;
        let (mut deletes, (killed, mut kill)) = (0, unbounded_channel());
        // From the nth delete on no request reaches the table, as if the process had been killed.
        let proxy = Proxy::start(engine(kind).endpoint(), move |request| {
            deletes += usize::from(request.operation == "BatchExecuteStatement");
            if deletes < kill_at {
                return proxy::Fate::Forward;
            }
            let _ = killed.send(());
            proxy::Fate::ResetBefore
        });
        let function = bed.through(&proxy).await;
        tokio::select! {
            ended = function.daily_cleanup(json!({}), EpochSeconds::new(NOW), None) => panic!("not killed: {ended:?}"),
            _ = kill.recv() => {}
        }
        let held = clean(&bed, json!({})).await.unwrap();
        assert_eq!(held.outcome, Outcome::LeaseHeld, "the killed run's lease has a minute left");
        let next = bed.function.daily_cleanup(json!({}), EpochSeconds::new(NOW + 90), None).await.unwrap();
        assert_eq!(next.outcome, Outcome::Complete);
        bed.check(&rows).await;
    }
}

/// Each run ends before its deadline and releases its lease. Requests advance the clock, so the load of the machine does not matter.
async fn stops_before_its_deadline_and_the_next_runs_finish(kind: EngineKind) {
    let rows = sessions(7_000, 3_000);
    let bed = Testbed::with(kind, &rows).await;
    let clock = DrivenClock::start();
    let advance = clock.advance();
    let proxy = Proxy::start(engine(kind).endpoint(), move |_| {
        advance(Duration::from_millis(10));
        proxy::Fate::Forward
    });
    let function = bed.through(&proxy).await;
    let budget = Duration::from_secs(3);
    let (mut deleted, mut uncertain) = (0, 0);
    for run in 0.. {
        let started = Instant::now();
        // No rate limit, so that only the engine limits the run.
        let event = json!({"max_write_units_per_second": 100_000});
        let report = function.daily_cleanup(event, EpochSeconds::new(NOW), Some(budget)).await.unwrap();
        assert!(started.elapsed() < budget, "run {run} took {:?}", started.elapsed());
        deleted += report.counts.rows_deleted();
        uncertain += report.counts.uncertain();
        assert_eq!(report.resumed, run > 0, "run {run}: {:?}", report.notes);
        if report.outcome.is_complete() {
            assert!(run > 0, "10,000 rows fit into one run: use more rows");
            break;
        }
        assert_eq!(report.outcome, Outcome::OutOfTime, "run {run}");
        assert!(run < 10, "not finished after 10 runs: {deleted} deleted");
    }
    // A delete in flight at the deadline is counted as uncertain; nothing else may be missing from the sum.
    assert!((deleted..=deleted + uncertain).contains(&7_000), "{deleted} deleted, {uncertain} uncertain");
    assert!(uncertain < 1_000, "{uncertain} uncertain");
    bed.check(&rows).await;
}

async fn stops_at_exactly_max_deletes_and_the_next_run_continues(kind: EngineKind) {
    let rows = fixture::all_kinds(NOW, 3, 5);
    let dead = rows.iter().filter(|row| row.fate == Fate::Deleted).count();
    let bed = Testbed::with(kind, &rows).await;
    let mut before = bed.keys().await.len();
    let mut deleted = 0;
    loop {
        let event = json!({"max_deletes": 37});
        let dry = clean(&bed, json!({"max_deletes": 37, "mode": "dry-run"})).await.unwrap();
        let report = clean(&bed, event).await.unwrap();
        assert_eq!(dry.counts, report.counts);
        let after = bed.keys().await.len();
        assert_eq!((before - after) as u64, report.counts.rows_deleted());
        before = after;
        deleted += report.counts.rows_deleted();
        if report.outcome == Outcome::Complete {
            break;
        }
        assert_eq!((report.outcome, report.counts.rows_deleted()), (Outcome::MaxDeletes, 37));
    }
    assert_eq!(deleted, dead as u64);
    bed.check(&rows).await;
}

async fn refuses_above_the_delete_share_and_deletes_nothing(kind: EngineKind) {
    let rows = sessions(60, 40);
    let bed = Testbed::with(kind, &rows).await;
    let before = bed.keys().await;
    for mode in ["delete", "dry-run"] {
        let refused = clean(&bed, json!({"max_delete_share": 0.59, "mode": mode})).await.unwrap_err();
        assert_eq!(
            refused.to_string(),
            "refused: 60 of 100 rows would be deleted or retired, a share of 0.600, above MAX_DELETE_SHARE=0.59; nothing was deleted"
        );
        assert_eq!(bed.keys().await, before);
    }
    let report = clean(&bed, json!({"max_delete_share": 0.6})).await.unwrap();
    assert_eq!(report.counts.rows_deleted(), 60);
    bed.check(&rows).await;
}

async fn an_empty_table_is_reported_as_a_success(kind: EngineKind) {
    let bed = Testbed::new(kind).await;
    for _ in 0..2 {
        let report = clean(&bed, json!({})).await.unwrap();
        assert_eq!(report.outcome, Outcome::EmptyTable);
        assert!(report.outcome.is_complete());
        assert_eq!(report.notes, ["the table is empty: nothing to do"]);
        assert_eq!(bed::cleanup_answer(&report)["statusCode"], 200);
    }
}

async fn a_table_of_another_application_is_refused(kind: EngineKind) {
    let foreign =
        Specimen { bucket: "invoices".to_owned(), owner: "customer".to_owned(), ..session("x", 1, Fate::Kept) };
    let bed = Testbed::with(kind, std::slice::from_ref(&foreign)).await;
    let refused = clean(&bed, json!({})).await.unwrap_err();
    assert!(refused.to_string().starts_with("refused: table "), "{refused}");
    assert!(refused.to_string().contains("check AWS_DB_PREFIX or ATTRIBUTES_TABLE"), "{refused}");
    assert_eq!(refused.kind(), "Refused");
    // Not even a state row is written to a foreign table.
    let scanned = bed.function.client.scan().table_name(&bed.table).send().await.unwrap();
    assert_eq!(scanned.count(), 1);
}

async fn a_table_whose_last_known_row_was_deleted_is_still_accepted(kind: EngineKind) {
    let foreign = Specimen { bucket: "_internal".to_owned(), owner: "actor".to_owned(), ..session("x", 1, Fate::Kept) };
    let bed = Testbed::with(kind, &[foreign, session("dead", NOW - 9_000, Fate::Deleted)]).await;
    assert_eq!(clean(&bed, json!({})).await.unwrap().counts.rows_deleted(), 1);
    assert_eq!(clean(&bed, json!({})).await.unwrap().outcome, Outcome::Complete);
}

const THROTTLED: &str =
    r#"{"__type": "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException", "message": "slow down"}"#;
const SERVER_ERROR: &str = r#"{"__type": "com.amazonaws.dynamodb.v20120810#InternalServerError", "message": "oops"}"#;

async fn survives_throttling_and_lost_responses(kind: EngineKind) {
    bed::clock::pause();
    let rows = fixture::all_kinds(NOW, 4, 6);
    let dead = rows.iter().filter(|row| row.fate == Fate::Deleted).count();
    let bed = Testbed::with(kind, &rows).await;
    // Each request fails at most once, so that none exhausts its attempts by chance.
    let (mut n, mut seen) = (0, HashSet::new());
    let proxy = Proxy::start(engine(kind).endpoint(), move |request| {
        if !seen.insert((request.operation.clone(), request.body.clone())) {
            return proxy::Fate::Forward;
        }
        n += 1;
        match (n % 7, request.operation.as_str()) {
            (0, _) => proxy::Fate::Answer(400, THROTTLED.to_owned()),
            (2, _) => proxy::Fate::Answer(500, SERVER_ERROR.to_owned()),
            (4, "BatchExecuteStatement" | "Query" | "BatchGetItem") => proxy::Fate::ResetAfter,
            (5, "BatchExecuteStatement") => {
                // Every statement of the batch is throttled, with HTTP 200.
                let statements = request.body.matches("\"Statement\"").count();
                let one = json!({"Error": {"Code": "ThrottlingError", "Message": "slow down"}});
                proxy::Fate::Answer(200, json!({"Responses": vec![one; statements]}).to_string())
            }
            (6, "BatchGetItem") => proxy::unprocessed(request),
            _ => proxy::Fate::Forward,
        }
    });
    let function = bed.through(&proxy).await;
    let report = function.daily_cleanup(json!({}), EpochSeconds::new(NOW), None).await.unwrap();
    bed.check(&rows).await;
    assert_eq!(report.outcome, Outcome::Complete);
    assert_eq!(report.counts.rows_deleted(), dead as u64, "a delete whose response was lost is counted once");
    assert!(report.usage.throttles > 0 && report.usage.retries > 0);
}

/// Otherwise a run whose first batches are throttled would end at its limit, with nothing deleted.
async fn deletes_of_throttled_requests_do_not_count_towards_max_deletes(kind: EngineKind) {
    bed::clock::pause();
    let bed = Testbed::with(kind, &fixture::all_kinds(NOW, 60, 1)).await;
    let mut throttled = 0;
    let proxy = Proxy::start(engine(kind).endpoint(), move |request| {
        if request.operation == "BatchExecuteStatement" && throttled < 8 {
            throttled += 1;
            return proxy::Fate::Answer(400, THROTTLED.to_owned());
        }
        proxy::Fate::Forward
    });
    let event = json!({"max_deletes": 100});
    let report = bed.through(&proxy).await.daily_cleanup(event, EpochSeconds::new(NOW), None).await.unwrap();
    assert_eq!((report.counts.rows_deleted(), report.counts.uncertain()), (100, 0), "{}", report.to_json());
}

/// A request that fails, and an answer that leaves a part of its batch undone, are retried within one limit.
async fn faults_of_two_kinds_share_the_attempts_of_one_request(kind: EngineKind) {
    bed::clock::pause();
    for operation in ["BatchGetItem", "BatchExecuteStatement"] {
        let bed = Testbed::with(kind, &fixture::all_kinds(NOW, 1, 1)).await;
        let mut requests = 0;
        let proxy = Proxy::start(engine(kind).endpoint(), move |request| {
            if !request.is_work(operation) {
                return proxy::Fate::Forward;
            }
            requests += 1;
            match operation {
                _ if requests % 2 == 1 => Fault::InternalError.fate(),
                "BatchGetItem" => proxy::unprocessed(request),
                _ => proxy::throttled_statements(request),
            }
        });
        // One piece of work after another, so that the faults of a request alternate.
        let event = json!({"max_deletes": 1_000_000});
        let _ = bed.through(&proxy).await.daily_cleanup(event, EpochSeconds::new(NOW), None).await;
        assert_eq!(proxy.most_attempts(operation), 8, "{operation}");
    }
}

async fn a_read_error_is_never_taken_as_absence(kind: EngineKind) {
    bed::clock::pause();
    let rows = fixture::all_kinds(NOW, 4, 7);
    let bed = Testbed::with(kind, &rows).await;
    let before = bed.keys().await;
    for answer in [
        |_: &proxy::Request| proxy::Fate::Answer(500, SERVER_ERROR.to_owned()),
        proxy::unprocessed,
        |_: &proxy::Request| proxy::Fate::ResetAfter,
    ] {
        let proxy = Proxy::start(engine(kind).endpoint(), move |request| match request.operation.as_str() {
            "BatchGetItem" if request.is_work("BatchGetItem") => answer(request),
            // Only deletes that depend on a lookup matter here.
            "BatchExecuteStatement" if !request.body.contains("_index:") => {
                let statements = request.body.matches("\"Statement\"").count();
                proxy::Fate::Answer(200, json!({"Responses": vec![json!({}); statements]}).to_string())
            }
            _ => proxy::Fate::Forward,
        });
        let function = bed.through(&proxy).await;
        let ended = function.daily_cleanup(json!({}), EpochSeconds::new(NOW), None).await;
        match ended {
            Ok(report) => assert_eq!(report.outcome, Outcome::Skipped),
            Err(error) => assert_eq!(error.kind(), "Store"),
        }
        assert_eq!(bed.keys().await, before, "a row was deleted although its target could not be read");
    }
}

async fn uses_at_most_half_of_the_units_of_a_provisioned_table(kind: EngineKind) {
    bed::clock::pause();
    let bed = Testbed::new(kind).await;
    let table = format!("{}_provisioned", bed.table);
    let text = |name| {
        AttributeDefinition::builder().attribute_name(name).attribute_type(ScalarAttributeType::S).build().unwrap()
    };
    let key = |name, kind| KeySchemaElement::builder().attribute_name(name).key_type(kind).build().unwrap();
    let units = ProvisionedThroughput::builder().read_capacity_units(26).write_capacity_units(2).build().unwrap();
    let client = &bed.function.client;
    client
        .create_table()
        .table_name(&table)
        .billing_mode(BillingMode::Provisioned)
        .provisioned_throughput(units)
        .key_schema(key("id", KeyType::Hash))
        .key_schema(key("bucket_name", KeyType::Range))
        .attribute_definitions(text("id"))
        .attribute_definitions(text("bucket_name"))
        .send()
        .await
        .unwrap();
    write_rows(client, &table, &sessions(4, 0)).await.unwrap();
    let started = Instant::now();
    let report = clean(&bed, json!({"attributes_table": table})).await.unwrap();
    assert_eq!(report.counts.rows_deleted(), 4);
    // The first of four is not delayed; the others follow at one a second.
    assert!(started.elapsed() >= Duration::from_millis(2_900), "{:?}", started.elapsed());
    // A limit that is set replaces the default.
    write_rows(client, &table, &sessions(4, 0)).await.unwrap();
    let event =
        json!({"attributes_table": table, "max_write_units_per_second": 1_000, "max_read_units_per_second": 1_000});
    assert_eq!(clean(&bed, event).await.unwrap().usage.paced, Duration::ZERO);
}

async fn refuses_when_the_delete_share_cannot_be_determined(kind: EngineKind) {
    bed::clock::pause();
    let dangling = |i: usize| Specimen {
        bucket: "_access_token_index".to_owned(),
        data: Some(AttributeValue::S("\"nobody\"".to_owned())),
        ..session(&format!("aw_{i}"), NOW - 90_000, Fate::Deleted)
    };
    let bed = Testbed::with(kind, &(0..150).map(dangling).chain(sessions(0, 1)).collect::<Vec<_>>()).await;
    let before = bed.keys().await;
    let proxy = Proxy::start(engine(kind).endpoint(), |request| match request.operation.as_str() {
        "BatchGetItem" if request.is_work("BatchGetItem") => proxy::unprocessed(request),
        _ => proxy::Fate::Forward,
    });
    let function = bed.through(&proxy).await;
    let refused =
        function.daily_cleanup(json!({"max_delete_share": 0.5}), EpochSeconds::new(NOW), None).await.unwrap_err();
    assert_eq!(refused.kind(), "Refused");
    assert!(refused.to_string().contains("rows could not be read; nothing was deleted"), "{refused}");
    assert_eq!(bed.keys().await, before);
}

async fn a_cursor_does_not_change_the_delete_share(kind: EngineKind) {
    // All sessions are live, all replay markers after them are dead: 10 of 60, wherever an earlier run stopped.
    let mut rows = sessions(0, 50);
    rows.extend((0..10).map(|i| Specimen {
        bucket: "_id_token_replay".to_owned(),
        data: Some(AttributeValue::S(format!("{{\"seen_at\": 1, \"exp\": {}}}", NOW - 900))),
        ..session(&format!("marker{i}"), NOW, Fate::Deleted)
    }));
    let bed = Testbed::with(kind, &rows).await;
    let first = clean(&bed, json!({"max_deletes": 1})).await.unwrap();
    assert_eq!(first.outcome, Outcome::MaxDeletes);
    let second = clean(&bed, json!({"max_delete_share": 0.5})).await.unwrap();
    assert!(second.resumed);
    assert_eq!(second.counts.rows_deleted(), 9);
    bed.check(&rows).await;
}

async fn a_row_with_an_impossible_pointer_does_not_stop_the_run(kind: EngineKind) {
    let mut rows = sessions(3, 3);
    let long = "x".repeat(3_000);
    let index = |name: &str, data: &Value| Specimen {
        bucket: "_access_token_index".to_owned(),
        data: Some(AttributeValue::S(data.to_string())),
        ttl: None,
        ..session(name, 0, Fate::Deleted)
    };
    rows.push(Specimen { fate: Fate::Kept, ..index("aw_long", &json!(long)) });
    // A dead token and a dead refresh token that name rows whose keys are too long to exist.
    for (bucket, index_bucket, name) in
        [("mcp_tokens", "_access_token_index", "aw_1"), ("mcp_refresh_tokens", "_refresh_token_index", "rt_1")]
    {
        let data = json!({"expires_at": NOW - 309, "google_token_key": long, "access_token": long});
        rows.push(Specimen { owner: "actor".to_owned(), bucket: bucket.to_owned(), ..index(name, &data) });
        rows.push(Specimen { bucket: index_bucket.to_owned(), ..index(name, &json!("actor")) });
    }
    let bed = Testbed::with(kind, &rows).await;
    let report = clean(&bed, json!({})).await.unwrap();
    assert_eq!(report.outcome, Outcome::Complete);
    bed.check(&rows).await;
    assert_eq!(
        bed.function.index_repair(json!({}), EpochSeconds::new(NOW), None).await.unwrap().outcome,
        Outcome::Complete
    );
}

async fn deletes_both_provider_rows_when_access_and_refresh_token_name_different_ones(kind: EngineKind) {
    let put = |owner: &str, bucket: &str, name: &str, data: &Value| Specimen {
        owner: owner.to_owned(),
        bucket: bucket.to_owned(),
        name: name.to_owned(),
        data: Some(AttributeValue::S(data.to_string())),
        ttl: None,
        fate: Fate::Deleted,
    };
    let (oauth, token) = ("_actingweb_oauth2", |key: &str| json!({"expires_at": NOW - 309, "google_token_key": key}));
    let mut refresh = token("google_token_2");
    refresh["access_token"] = json!("aw_1");
    let rows = [
        put("actor", "mcp_google_tokens", "google_token_1", &json!({"refresh_token": "x"})),
        put("actor", "mcp_google_tokens", "google_token_2", &json!({"refresh_token": "y"})),
        put("actor", "mcp_tokens", "aw_1", &token("google_token_1")),
        put(oauth, "_access_token_index", "aw_1", &json!("actor")),
        put("actor", "mcp_refresh_tokens", "rt_1", &refresh),
        put(oauth, "_refresh_token_index", "rt_1", &json!("actor")),
    ];
    let bed = Testbed::with(kind, &rows).await;
    let dry = clean(&bed, json!({"mode": "dry-run"})).await.unwrap();
    assert_eq!(dry.counts, clean(&bed, json!({})).await.unwrap().counts, "the dry run reported something else");
    bed.check(&rows).await;
}

async fn a_failed_run_leaves_a_cursor(kind: EngineKind) {
    let rows = fixture::all_kinds(NOW, 2, 12);
    let bed = Testbed::with(kind, &rows).await;
    // DynamoDB denies only the last step.
    let denied = r#"{"__type": "com.amazon.coral.service#AccessDeniedException", "Message": "no"}"#;
    let proxy = Proxy::start(engine(kind).endpoint(), move |request| {
        if request.operation == "Query"
            && request.body.contains("client_index")
            && !request.body.contains("\"Limit\":10,")
        {
            return proxy::Fate::Answer(400, denied.to_owned());
        }
        proxy::Fate::Forward
    });
    let function = bed.through(&proxy).await;
    let failed = function.daily_cleanup(json!({}), EpochSeconds::new(NOW), None).await.unwrap_err();
    assert!(failed.to_string().starts_with("failed after deleting "), "{failed}");
    let next = clean(&bed, json!({})).await.unwrap();
    assert!(next.resumed, "the next run continues after the failure");
    assert!(!next.counts.buckets().contains_key("_oauth_sessions"), "the next run read a finished bucket again");
    bed.check(&rows).await;
}

async fn a_malformed_lease_row_is_replaced(kind: EngineKind) {
    let broken = Specimen {
        owner: "_actingweb_janitor".to_owned(),
        bucket: "state".to_owned(),
        data: Some(AttributeValue::S("not json".to_owned())),
        ..session("lease", NOW, Fate::Kept)
    };
    let bed = Testbed::with(kind, &[broken, session("dead", NOW - 9_000, Fate::Deleted)]).await;
    assert_eq!(clean(&bed, json!({})).await.unwrap().counts.rows_deleted(), 1);
}

async fn a_state_row_that_cannot_be_written_does_not_lose_the_report(kind: EngineKind) {
    bed::clock::pause();
    let bed = Testbed::with(kind, &sessions(10, 1)).await;
    let proxy = Proxy::start(engine(kind).endpoint(), |request| {
        if request.operation == "PutItem" && request.body.contains("state:daily-cleanup") {
            return proxy::Fate::Answer(400, THROTTLED.to_owned());
        }
        proxy::Fate::Forward
    });
    let function = bed.through(&proxy).await;
    let report = function.daily_cleanup(json!({}), EpochSeconds::new(NOW), None).await.unwrap();
    assert_eq!((report.outcome, report.counts.rows_deleted()), (Outcome::Unrecorded, 10));
    assert!(!report.outcome.is_complete());
    assert!(report.notes[0].contains("the state row could not be written"), "{:?}", report.notes);
}

async fn returns_before_its_deadline_when_its_last_write_hangs(kind: EngineKind) {
    let bed = Testbed::with(kind, &sessions(10, 1)).await;
    let clock = DrivenClock::start();
    let advance = clock.advance();
    let proxy = Proxy::start(engine(kind).endpoint(), move |request| {
        if request.operation == "PutItem" && request.body.contains("state:daily-cleanup") {
            // Leaves no time for this write, and one second for the response.
            advance(Duration::from_secs(29));
            return proxy::Fate::Silence { acts: false };
        }
        proxy::Fate::Forward
    });
    let function = bed.through(&proxy).await;
    let (started, budget) = (Instant::now(), Duration::from_secs(30));
    let report = function.daily_cleanup(json!({}), EpochSeconds::new(NOW), Some(budget)).await.unwrap();
    assert!(started.elapsed() < budget, "{:?}", started.elapsed());
    assert_eq!((report.outcome, report.counts.rows_deleted()), (Outcome::Unrecorded, 10));
}

/// The default rate is half of what one item collection takes.
#[tokio::test]
async fn an_on_demand_table_is_limited_to_half_of_a_partition_s_throughput() {
    bed::clock::pause();
    let bed = Testbed::with(EngineKind::Embedded, &sessions(2_500, 0)).await;
    let started = Instant::now();
    let report = clean(&bed, json!({})).await.unwrap();
    assert_eq!(report.counts.rows_deleted(), 2_500);
    // The first 500 are not delayed; the other 2,000 follow at 500 a second.
    assert!(started.elapsed() >= Duration::from_millis(3_900), "{:?}", started.elapsed());
}

// ---- errors, each reported in one line ------------------------------------------------------------------------------

async fn one_line(client: Client, mut environment: Environment, event: Value) -> String {
    environment.entry("MODE".to_owned()).or_insert_with(|| "delete".to_owned());
    let error =
        Function::new(client, environment).daily_cleanup(event, EpochSeconds::new(NOW), None).await.unwrap_err();
    let text = error.to_string();
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}

fn environment(pairs: &[(&str, &str)]) -> Environment {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[tokio::test]
async fn a_missing_table_is_named() {
    for kind in kinds() {
        let client = bed::tables::client(engine(kind).endpoint()).await;
        let text = one_line(client, environment(&[("AWS_DB_PREFIX", "nosuch")]), json!({})).await;
        assert_eq!(
            text,
            "table nosuch_attributes does not exist in this account and region: check AWS_DB_PREFIX or ATTRIBUTES_TABLE"
        );
    }
}

#[tokio::test]
async fn a_table_with_other_keys_is_refused() {
    let client = bed::tables::client(engine(EngineKind::Embedded).endpoint()).await;
    let key = KeySchemaElement::builder().attribute_name("pk").key_type(KeyType::Hash).build().unwrap();
    let number =
        AttributeDefinition::builder().attribute_name("pk").attribute_type(ScalarAttributeType::N).build().unwrap();
    client
        .create_table()
        .table_name("otherkeys")
        .billing_mode(BillingMode::PayPerRequest)
        .key_schema(key)
        .attribute_definitions(number)
        .send()
        .await
        .unwrap();
    let text = one_line(client, environment(&[("ATTRIBUTES_TABLE", "otherkeys")]), json!({})).await;
    assert_eq!(
        text,
        "table otherkeys is not an ActingWeb attributes table: its keys are pk (HASH), not id (HASH), bucket_name (RANGE), both strings: check AWS_DB_PREFIX or ATTRIBUTES_TABLE"
    );
}

#[tokio::test]
async fn credentials_that_are_not_accepted_are_named() {
    // DynamoDB Local checks the format of an access key, and rejects an invalid one as AWS does.
    let endpoint = engine(EngineKind::DynamoDbLocal).endpoint();
    let good = bed::tables::client(endpoint).await;
    create_table(&good, "credentials_attributes").await.unwrap();
    let bad = aws_sdk_dynamodb::config::Credentials::new("not-a-key", "x", None, None, "test");
    let client = Client::from_conf(good.config().to_builder().credentials_provider(bad).build());
    let text = one_line(client, environment(&[("AWS_DB_PREFIX", "credentials")]), json!({})).await;
    assert!(text.starts_with("DynamoDB rejected the credentials for DescribeTable ("), "{text}");
}

#[tokio::test]
async fn a_denied_permission_is_named() {
    let denied = r#"{"__type": "com.amazon.coral.service#AccessDeniedException", "Message": "User: arn:aws:sts::1:assumed-role/r is not authorized"}"#;
    for operation in ["DescribeTable", "Query", "BatchGetItem", "BatchExecuteStatement", "PutItem"] {
        let bed = Testbed::with(EngineKind::Embedded, &fixture::all_kinds(NOW, 1, 9)).await;
        let before = bed.keys().await;
        let proxy = Proxy::start(engine(EngineKind::Embedded).endpoint(), move |request| {
            if request.is_work(operation) { proxy::Fate::Answer(400, denied.to_owned()) } else { proxy::Fate::Forward }
        });
        let function = bed.through(&proxy).await;
        let text = one_line(function.client, function.environment, json!({})).await;
        assert!(text.contains(&format!("not allowed: {operation} on table {}", bed.table)), "{text}");
        if operation != "BatchGetItem" {
            assert_eq!(bed.keys().await, before);
        }
    }
}

#[tokio::test]
async fn an_unreachable_endpoint_is_named_within_seconds() {
    bed::clock::pause();
    let started = Instant::now();
    let endpoint = format!("http://127.0.0.1:{}", bed::process::free_port());
    let client = bed::tables::client(&endpoint).await;
    let environment = environment(&[("AWS_DB_PREFIX", "x"), ("AWS_ENDPOINT_URL_DYNAMODB", &endpoint)]);
    let text = one_line(client, environment, json!({})).await;
    assert_eq!(
        text,
        format!(
            "could not reach DynamoDB at {endpoint}: connection refused: check AWS_ENDPOINT_URL_DYNAMODB (or AWS_DB_HOST), the region and the network"
        )
    );
    assert!(started.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn a_wrong_setting_stops_the_run_before_its_first_request() {
    let proxy = Proxy::start(engine(EngineKind::Embedded).endpoint(), |_| proxy::Fate::Forward);
    for (pairs, event) in [
        (vec![("AWS_DB_PREFIX", "x"), ("MAX_DELETE_SHARE", "1.5")], json!({})),
        (vec![("AWS_DB_PREFIX", "x")], json!({"no_such_setting": 1})),
        (vec![], json!({})),
        (vec![("AWS_DB_PREFIX", "x")], json!([])),
    ] {
        let client = bed::tables::client(proxy.endpoint()).await;
        let text = one_line(client, environment(&pairs), event).await;
        assert!(text.starts_with("configuration: "), "{text}");
    }
    assert_eq!(proxy.seen(), Vec::<String>::new());
}

/// Each row that DynamoDB rejects is skipped, however many there are, and the run continues.
async fn a_rejected_batch_is_halved_until_the_row_is_found(kind: EngineKind) {
    bed::clock::pause();
    let mut rows = fixture::all_kinds(NOW, 2, 31);
    // Several consecutive batches without a successful delete.
    let rejected = 330;
    rows.extend((0..rejected).map(|i| session(&format!("!rejected{i:04}"), NOW - 9_000, Fate::Kept)));
    let at = rows.iter().position(|row| row.bucket == "_access_token_index" && row.fate == Fate::Deleted).unwrap();
    let (unread, actor) = (rows[at].name.clone(), rows[at].data.clone().unwrap());
    let bed = Testbed::with(kind, &rows).await;
    let actor: String = serde_json::from_str(actor.as_s().unwrap()).unwrap();
    // A token that cannot be read is kept, with its index row and its provider row.
    let kept = |row: &Specimen| {
        let of_token = row.owner == actor && row.name == unread;
        of_token || row.bucket == "_access_token_index" && row.name == unread
    };
    rows.iter_mut().filter(|row| kept(row)).for_each(|row| row.fate = Fate::Kept);
    let key = format!("mcp_tokens:{unread}");
    let proxy = Proxy::start(engine(kind).endpoint(), move |request| {
        let poisoned = match request.operation.as_str() {
            "BatchExecuteStatement" => request.body.contains("!rejected"),
            "BatchGetItem" => request.body.contains(&key),
            _ => false,
        };
        let rejection = r#"{"__type": "com.amazon.coral.validate#ValidationException", "Message": "no"}"#;
        if poisoned { proxy::Fate::Answer(400, rejection.to_owned()) } else { proxy::Fate::Forward }
    });
    let function = bed.through(&proxy).await;
    let report = function.daily_cleanup(json!({}), EpochSeconds::new(NOW), None).await.unwrap();
    assert_eq!(report.outcome, Outcome::Skipped, "{}", report.to_json());
    assert_eq!(report.counts.rows_skipped(), rejected + 1);
    let provider = rows.iter().find(|row| row.owner == actor && row.name == unread).and_then(|row| row.data.clone());
    let provider: Value = serde_json::from_str(provider.unwrap().as_s().unwrap()).unwrap();
    rows.iter_mut()
        .filter(|row| provider["google_token_key"] == row.name.as_str())
        .for_each(|row| row.fate = Fate::Kept);
    bed.check(&rows).await;
}
