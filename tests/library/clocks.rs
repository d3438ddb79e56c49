//! Clocks that disagree, checked by the real library: an application server whose clock is minutes off uses every kind of token
//! until its last second, while runs judge by the table's clock. AWS accepts a clock that is up to five minutes off.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use bed::Testbed;
use bed::aftermath::Aftermath;
use bed::attack::{Figures, amount, delete_and_retire};
use bed::engine::{EngineKind, shared as engine};
use bed::janitor::Janitor;
use bed::load::{Which, real_now};
use bed::proxy::{Fate, Proxy, with_ttl_on};
use bed::python::{Application, Conversation};
use serde_json::{Value, json};

/// A little less than AWS accepts.
const SERVERS: [i64; 2] = [-290, 290];
/// Past the slack in both directions.
const LATER: i64 = 800;

fn endpoint() -> &'static str {
    engine(EngineKind::DynamoDbLocal).endpoint()
}

/// A table whose clock the test sets, and an application server that uses it.
struct Scene {
    bed: Testbed,
    proxy: Proxy,
    /// The table's clock.
    table: Arc<AtomicI64>,
    server: Conversation,
    retires: bool,
    figures: Figures,
}

impl Scene {
    async fn new(retires: bool) -> Self {
        let mut bed = Testbed::new(EngineKind::DynamoDbLocal).await;
        let expired_rows = if retires { "retire" } else { "delete" };
        bed.function.environment.insert("EXPIRED_ROWS".to_owned(), expired_rows.to_owned());
        let table: Arc<AtomicI64> = Arc::default();
        let clock = Arc::clone(&table);
        let at = move || Fate::DateAt(clock.load(Ordering::SeqCst));
        let proxy = Proxy::start(endpoint(), move |request| with_ttl_on(request, at()));
        let server = Application::new(endpoint(), &bed.prefix).converse("actingweb_clocks.py");
        Self { bed, proxy, table, server, retires, figures: Figures::default() }
    }

    /// Runs the functions at a second of the table's clock.
    async fn clean(&mut self, table: i64) {
        self.table.store(table, Ordering::SeqCst);
        let function = self.bed.through(&self.proxy).await;
        for which in Which::BOTH {
            let report = which.run(&function, json!({}), real_now()).await.unwrap();
            assert!(report.outcome.is_complete(), "{}", report.to_json());
            check_judged_at(table, report.now);
            self.figures.attempts += 1;
            self.figures.add_run(&report);
        }
    }

    /// Runs `janitor` at a second of the table's clock.
    fn clean_with_janitor(&mut self, table: i64) {
        self.table.store(table, Ordering::SeqCst);
        for command in ["cleanup", "repair"] {
            let expired_rows = &self.bed.function.environment["EXPIRED_ROWS"];
            let janitor = Janitor::on(self.proxy.endpoint(), &self.bed.prefix).with("EXPIRED_ROWS", expired_rows);
            let ended = janitor.run(&[command, "--apply", "--yes", "--json"]);
            assert_eq!(ended.code, 0, "{ended:?}");
            let report = &ended.json()["report"];
            check_judged_at(table, report["now"].as_i64().unwrap());
            self.figures.attempts += 1;
            self.figures.add_answer(report);
        }
    }

    /// Every credential works in its last second, and those for single use work once.
    fn use_everything(&mut self, second: i64) {
        let answer = self.server.ask(&json!({"do": "use", "at": second}));
        assert_eq!((&answer["lost"], &answer["replayed"]), (&json!([]), &json!([])), "{answer}");
        let used: BTreeSet<&str> = answer["used"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        let kinds = "client mcp_access mcp_code mcp_consumed mcp_refresh nonce replay session spa_access spa_consumed \
                     spa_refresh ticket tombstone verify";
        assert_eq!(used, kinds.split_whitespace().collect());
        self.figures.faults += 1;
    }

    /// Checks that expired rows are deleted, or left to TTL, past the slack. Here all clocks agree.
    async fn check_cleaned(&mut self, now: i64) {
        self.table.store(real_now(), Ordering::SeqCst);
        let function = self.bed.through(&self.proxy).await;
        let (mut judged, mut ended) = (now, 0);
        for which in Which::BOTH {
            let report = which.run(&function, json!({}), now).await.unwrap();
            judged = judged.min(report.now);
            ended += report.counts.rows_disposed() + report.counts.rows_left_to_ttl();
            self.figures.add_run(&report);
        }
        let dead = Aftermath::left(endpoint(), &self.bed.table, judged, self.retires).await.dead(judged);
        assert!(dead.is_empty() && ended > 0, "{dead:?}");
    }
}

/// The time is rounded towards keeping rows, by no more than the duration of a request.
fn check_judged_at(table: i64, judged: i64) {
    assert!((table - 60..=table).contains(&judged), "judged at {judged}, not {table}");
}

#[tokio::test]
async fn a_server_whose_clock_is_minutes_off_uses_every_token_until_its_last_second() {
    delete_and_retire("a server that is minutes off", with_server_clock_off).await;
}

async fn with_server_clock_off(retires: bool) -> Figures {
    let mut scene = Scene::new(retires).await;
    for off in SERVERS {
        // The end by the table's clock, and by the server's.
        let end = real_now();
        let last = end + off;
        scene.server.ask(&json!({"do": "issue", "until": last}));
        for before in [150, 1] {
            scene.clean(end - before).await;
            let seen = scene.server.ask(&json!({"do": "look", "at": last - before}));
            assert_eq!(seen["lost"], json!([]), "{off}: {before} s before the end");
        }
        scene.clean(end).await;
        scene.use_everything(last);
        scene.check_cleaned(end + LATER).await;
    }
    scene.figures
}

/// The laptop's clock is this machine's; the table's clock is off from it, and the server's is off from the table's.
#[tokio::test]
async fn a_laptop_whose_clock_is_minutes_off_deletes_no_live_row() {
    delete_and_retire("a laptop that is minutes off", with_laptop_clock_off).await;
}

async fn with_laptop_clock_off(retires: bool) -> Figures {
    let mut scene = Scene::new(retires).await;
    for ahead in amount(&[-290, 290, 600][..], &[-600, -290, -90, 0, 90, 290, 600]) {
        for off in SERVERS {
            let end = real_now() - ahead;
            let last = end + off;
            scene.server.ask(&json!({"do": "issue", "until": last}));
            scene.clean_with_janitor(end);
            scene.use_everything(last);
            scene.check_cleaned(end + LATER).await;
        }
    }
    scene.figures
}
