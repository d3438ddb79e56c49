//! Attack: clocks that disagree: this machine's and the table's, a writer's and ours, one run's and the next one's.

use bed::attack::{Figures, amount, delete_and_retire, seed};
use bed::engine::{EngineKind, shared as engine};
use bed::lambda::{Rie, function};
use bed::load::{Load, Which, random_rows, real_now};
use bed::proxy::{Fate, Proxy};
use bed::stream::{event, removal};
use jobs::run::RunError;
use jobs::run::clock::RunClock;
use jobs::run::lease::Lease;
use jobs::store::StoreError;
use model::rows::NOW;
use serde_json::{Value, json};
use shared::lease::Holder;
use shared::time::EpochSeconds;

bed::on_both_engines!(
    a_clock_that_is_ahead_deletes_nothing_early,
    a_run_whose_clock_is_behind_uses_the_table_s_clock,
    a_clock_that_is_far_ahead_is_refused,
    janitor_uses_the_table_s_clock_when_its_own_is_ahead,
    rows_of_a_server_that_is_an_hour_ahead_are_judged_by_their_own_times,
    a_clock_that_goes_back_between_runs_loses_nothing,
    a_lease_holds_whichever_clock_wrote_it,
);

/// The table's clock is at `NOW`, and this machine's is `ahead` of it.
async fn run_with_clock_off_by(kind: EngineKind, ahead: i64, which: Which, seed: u64, retires: bool) -> Figures {
    let load = Load::of(kind, random_rows(seed, 10, NOW), NOW, retires).await;
    let proxy = Proxy::start(engine(kind).endpoint(), move |_| Fate::DateOffset(-ahead));
    let function = load.bed.through(&proxy).await;
    let report = which.run(&function, json!({}), NOW + ahead).await.unwrap();
    let noted = report.notes.iter().any(|note| note.contains("ahead of the table's"));
    assert_eq!(noted, ahead > 0, "{:?}", report.notes);
    // Rounded towards keeping rows, by a few seconds.
    assert!(report.now <= NOW && report.now >= NOW - 5, "judged at {}", report.now);
    let noted = report.notes.iter().any(|note| note.contains("behind the table's"));
    assert_eq!(noted, ahead <= -4, "{:?}", report.notes);
    let mut figures = Figures { attempts: 1, faults: 1, live_lost: load.live_lost(NOW).await, ..Figures::default() };
    load.add_run(&report, &mut figures);
    load.settle(NOW + 120, &mut figures).await;
    load.drop_table().await;
    figures
}

async fn a_clock_that_is_ahead_deletes_nothing_early(kind: EngineKind) {
    delete_and_retire("a clock that is ahead", async |retires| {
        let mut figures = Figures::default();
        for (i, ahead) in [5, 30, 180, 299, 600, 890].into_iter().cycle().take(amount(3, 60)).enumerate() {
            figures.add(run_with_clock_off_by(kind, ahead, Which::BOTH[i % 2], seed() + 30 + i as u64, retires).await);
        }
        figures
    })
    .await;
}

async fn a_run_whose_clock_is_behind_uses_the_table_s_clock(kind: EngineKind) {
    delete_and_retire("a clock that is behind", async |retires| {
        let mut figures = Figures::default();
        for (i, behind) in [-2, -60, -300, -900].into_iter().cycle().take(amount(2, 40)).enumerate() {
            figures.add(run_with_clock_off_by(kind, behind, Which::BOTH[i % 2], seed() + 40 + i as u64, retires).await);
        }
        figures
    })
    .await;
}

async fn a_clock_that_is_far_ahead_is_refused(kind: EngineKind) {
    let load = Load::new(kind, random_rows(seed(), 4, NOW)).await;
    let proxy = Proxy::start(engine(kind).endpoint(), |_| Fate::DateOffset(-86_400));
    let function = load.bed.through(&proxy).await;
    for which in Which::BOTH {
        let error = which.run(&function, json!({}), NOW + 86_400).await.unwrap_err();
        let RunError::Store(StoreError::ClockAhead { seconds }) = error else { panic!("{error}") };
        assert!((86_400..86_410).contains(&seconds), "{seconds}");
    }
    assert_eq!(load.rest().await.len(), load.rows.len());
    assert!(proxy.seen().iter().all(|operation| operation == "DescribeTable"), "{:?}", proxy.seen());
}

/// The function judged rows by a time other than the timestamps of its log.
#[tokio::test(flavor = "multi_thread")]
async fn every_function_logs_that_its_clock_was_corrected() {
    let kind = EngineKind::Embedded;
    let load = Load::new(kind, random_rows(seed(), 2, real_now())).await;
    let proxy = Proxy::start(engine(kind).endpoint(), |_| Fate::DateOffset(-300));
    let settings = [("ATTRIBUTES_TABLE", load.bed.table.as_str()), ("AWS_DB_HOST", proxy.endpoint())];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let removed = event(&[removal(&load.bed.table, 1, "ada", "mcp_tokens", "aw_1", Some("{}"))]);
    for (name, event) in [
        ("daily-cleanup", json!({"mode": "dry-run"})),
        ("index-repair", json!({"mode": "dry-run"})),
        ("metrics-emitter", json!({})),
        ("ttl-cascade", removed),
    ] {
        let rie = Rie::start(&function(name), &settings, 60);
        let answer = rie.invoke(&event);
        assert!(!answer.is_error, "{name}: {}", answer.payload);
        let printed = rie.output();
        let warnings: Vec<&str> = printed.lines().filter(|line| line.contains("\"level\":\"WARN\"")).collect();
        let warnings = warnings.iter().filter(|line| line.contains("ahead of the table's")).count();
        assert_eq!(warnings, 1, "{name}: {printed}");
    }
    load.drop_table().await;
}

/// `janitor` starts from its machine's clock, which is five minutes ahead of the table's.
async fn janitor_uses_the_table_s_clock_when_its_own_is_ahead(kind: EngineKind) {
    delete_and_retire("janitor on a machine that is ahead", async |retires| {
        let mut figures = Figures::default();
        for (i, which) in Which::BOTH.into_iter().enumerate() {
            let tables_now = real_now() - 300;
            let rows = random_rows(seed() + 50 + i as u64, 10, tables_now);
            let load = Load::of(kind, rows, tables_now, retires).await;
            let proxy = Proxy::start(engine(kind).endpoint(), |_| Fate::DateOffset(-300));
            let mut janitor = which.janitor(proxy.endpoint(), &load.bed.prefix);
            let ended = janitor.env("EXPIRED_ROWS", if retires { "retire" } else { "delete" }).output().unwrap();
            let printed = String::from_utf8_lossy(&ended.stdout) + String::from_utf8_lossy(&ended.stderr);
            assert!(ended.status.success() && printed.contains("ahead of the table's"), "{printed}");
            let answer: Value = serde_json::from_slice(&ended.stdout).unwrap();
            figures.add(Figures {
                attempts: 1,
                faults: 1,
                live_lost: load.live_lost(real_now() - 300).await,
                secrets: load.secrets_in(&printed),
                ..Figures::default()
            });
            figures.add_answer(&answer["report"]);
            load.settle(real_now() + 120, &mut figures).await;
            load.drop_table().await;
        }
        figures
    })
    .await;
}

async fn rows_of_a_server_that_is_an_hour_ahead_are_judged_by_their_own_times(kind: EngineKind) {
    delete_and_retire("a writer that is an hour ahead", async |retires| {
        let mut figures = Figures::default();
        for round in 0..amount(2, 20) {
            let mut rows = random_rows(seed() + 60 + round, 5, NOW);
            let ahead = random_rows(seed() + 80 + round, 5, NOW + 3_600);
            rows.extend(ahead.into_iter().filter(|row| row.name != "a-session-that-lives-on"));
            let load = Load::of(kind, rows, NOW, retires).await;
            figures.attempts += 2;
            figures.faults += 1;
            load.settle(NOW, &mut figures).await;
            // Within the grace period: rows that were first seen by the previous run are not old enough yet.
            load.settle(NOW + 3_500, &mut figures).await;
            load.drop_table().await;
        }
        figures
    })
    .await;
}

async fn a_clock_that_goes_back_between_runs_loses_nothing(kind: EngineKind) {
    delete_and_retire("a clock that goes back", async |retires| {
        let mut figures = Figures::default();
        for round in 0..amount(2, 20) {
            let load = Load::of(kind, random_rows(seed() + 100 + round, 8, NOW), NOW, retires).await;
            for (i, at) in [NOW, NOW - 900, NOW - 40 * 86_400, NOW - 60].into_iter().enumerate() {
                let which = Which::BOTH[(i + usize::from(round % 2 == 0)) % 2];
                let report = which.run(&load.bed.function, json!({}), at).await.unwrap();
                assert!(report.outcome.is_complete(), "{}", report.to_json());
                load.add_run(&report, &mut figures);
                figures.attempts += 1;
                figures.faults += 1;
                figures.live_lost += load.live_lost(NOW).await;
            }
            load.settle(NOW + 120, &mut figures).await;
            load.drop_table().await;
        }
        figures
    })
    .await;
}

/// The clock of the run that acquires the lease is minutes ahead or behind; another run still finds the lease held.
async fn a_lease_holds_whichever_clock_wrote_it(kind: EngineKind) {
    let load = Load::new(kind, random_rows(seed(), 1, NOW)).await;
    for off in [-290, -30, -3, 3, 30, 290] {
        let proxy = Proxy::start(engine(kind).endpoint(), move |_| Fate::DateOffset(-off));
        let client = bed::tables::client(proxy.endpoint()).await;
        let (machines, tables) = (EpochSeconds::new(real_now() + off), EpochSeconds::new(real_now()));
        let open = async |client, now| {
            dynamo::Dynamo::open_unpaced(client, &load.bed.table, None, RunClock::start(now, None)).await.unwrap()
        };
        let first = open(client, machines).await;
        let second = open(load.bed.function.client.clone(), tables).await;
        assert!((first.clock().wall().since(second.clock().wall())).abs() <= 3, "{off}");
        let held = Lease::own(&first, first.clock(), "first").acquire().await.unwrap();
        let Ok(held) = held else { panic!("{off}: the lease is already held") };
        let other = Lease::own(&second, second.clock(), "second").acquire().await.unwrap();
        let Err(Holder { seconds, .. }) = other else { panic!("{off}: two runs hold the lease") };
        assert!((56..=63).contains(&seconds), "{off}: held for {seconds} s");
        held.release().await;
    }
    load.drop_table().await;
}
