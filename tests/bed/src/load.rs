//! A table of random rows for attacks on the guarantees, checked against the model afterwards.

use crate::Invocations as _;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use jobs::run::RunError;
use jobs::run::report::RunReport;
use jobs::store::Usage;
use runtime::lambda::Function;
use serde_json::{Value, json};
use shared::bucket::JANITOR_OWNER;
use shared::lease::LEASE_SECONDS;
use shared::time::EpochSeconds;

use crate::aftermath::Aftermath;
use crate::attack::Figures;
use crate::engine::{EngineKind, shared as engine};
use crate::items;
use crate::janitor::Janitor;
use crate::proxy::Proxy;
use crate::stream::removal;
use crate::tables::{random_table, specimens};
use crate::testbed::Testbed;
use model::random::SECRET_MEMBERS;
use model::{self, Key, ModelRow};

/// The machine's clock, which `janitor` uses.
#[must_use]
pub fn real_now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("the machine's clock is past 1970");
    since.as_secs().cast_signed()
}

/// The two runs that delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    Cleanup,
    Repair,
}

impl Which {
    pub const BOTH: [Which; 2] = [Which::Cleanup, Which::Repair];

    /// The name of `janitor`'s command.
    fn command(self) -> &'static str {
        match self {
            Which::Cleanup => "cleanup",
            Which::Repair => "repair",
        }
    }

    /// The `janitor` command with `--apply`, not started yet.
    #[must_use]
    pub fn janitor(self, endpoint: &str, prefix: &str) -> Command {
        Janitor::on(endpoint, prefix).command(&[self.command(), "--apply", "--yes", "--json"])
    }

    /// # Errors
    /// Those of the run.
    pub async fn run(self, function: &Function, event: Value, now: i64) -> Result<RunReport, RunError> {
        self.run_within(function, event, now, None).await
    }

    /// The same with a time budget, as on Lambda.
    ///
    /// # Errors
    /// Those of the run.
    pub async fn run_within(
        self,
        function: &Function,
        event: Value,
        now: i64,
        budget: Option<Duration>,
    ) -> Result<RunReport, RunError> {
        let now = EpochSeconds::new(now);
        match self {
            Which::Cleanup => function.daily_cleanup(event, now, budget).await,
            Which::Repair => function.index_repair(event, now, budget).await,
        }
    }
}

/// The cost of a run, by its report.
#[derive(Clone, Debug)]
pub struct Cost {
    pub read_units: f64,
    pub write_units: f64,
    pub requests: u64,
    retries: u64,
    /// Shown when a check fails.
    #[expect(dead_code, reason = "read by Debug")]
    throttles: u64,
    /// Requests for the lease, the pause and the state, one unit each at most: a run on a busy machine renews its lease and reads the
    /// pause more often.
    overhead: u32,
    /// Shown when a check fails.
    #[expect(dead_code, reason = "read by Debug")]
    by_operation: BTreeMap<String, u32>,
}

impl Cost {
    /// An event for runs whose costs are compared: with it, concurrent work does not read the same rows twice.
    #[must_use]
    pub fn event() -> Value {
        json!({"max_deletes": 1_000_000})
    }

    /// The cost of a run that was the only one to use the proxy.
    #[must_use]
    pub fn of(report: &RunReport, proxy: &Proxy) -> Self {
        let (mut by_operation, mut overhead) = (BTreeMap::new(), 0);
        for request in proxy.requests() {
            overhead += u32::from(request.body.contains(JANITOR_OWNER));
            *by_operation.entry(request.operation).or_default() += 1;
        }
        let Usage { read_units, write_units, requests, retries, throttles, .. } = report.usage;
        Self { read_units, write_units, requests, retries, throttles, overhead, by_operation }
    }

    #[must_use]
    pub fn units(&self) -> f64 {
        self.read_units + self.write_units
    }

    /// Asserts that the run used no more units than another on the same engine, and at most one more request: whether TTL is on.
    /// Overhead does not count, nor do retries because a busy engine did not answer in time or left keys unprocessed.
    /// DynamoDB Local does not report the read units of absent rows in a batch, which AWS bills: there only writes are compared.
    ///
    /// # Panics
    /// When it used more.
    pub fn check_at_most(&self, other: &Cost, kind: EngineKind) {
        let overhead = self.overhead.saturating_sub(other.overhead);
        let (units, max) = match kind {
            EngineKind::Embedded => (self.units(), other.units()),
            EngineKind::DynamoDbLocal => (self.write_units, other.write_units),
        };
        assert!(units <= max + f64::from(overhead), "{self:?} is more than {other:?}");
        assert!(
            self.requests <= other.requests + 1 + u64::from(overhead) + self.retries,
            "{self:?} is more than {other:?}"
        );
    }
}

/// Random rows for many requests: `tables` random tables in one, and a session that marks it as an ActingWeb table.
#[must_use]
pub fn random_rows(seed: u64, tables: u64, now: i64) -> Vec<ModelRow> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut rows: Vec<ModelRow> = (0..tables).flat_map(|_| random_table(random.u64(..), now)).collect();
    rows.push(ModelRow {
        owner: "_actingweb_oauth2".to_owned(),
        bucket: "_oauth_sessions".to_owned(),
        name: "a-session-that-lives-on".to_owned(),
        data: Some(format!("{{\"created_at\": {now}}}")),
        ttl: model::ModelTtl::Number(now + 4_200),
    });
    let mut keys = BTreeSet::new();
    rows.retain(|row| keys.insert(row.key()));
    rows
}

pub struct Load {
    pub bed: Testbed,
    pub rows: Vec<ModelRow>,
    /// Tokens that TTL removed before; the stream has their records.
    pub removed: Vec<ModelRow>,
    endpoint: &'static str,
}

/// The methods panic if the engine fails.
impl Load {
    pub async fn new(kind: EngineKind, rows: Vec<ModelRow>) -> Self {
        let bed = Testbed::with(kind, &specimens(&rows)).await;
        Self { bed, rows, removed: Vec::new(), endpoint: engine(kind).endpoint() }
    }

    /// If `retires`, functions retire, and TTLs that are near or past are removed, so that each dead row has to be written.
    pub async fn of(kind: EngineKind, mut rows: Vec<ModelRow>, now: i64, retires: bool) -> Self {
        if !retires {
            return Self::new(kind, rows).await;
        }
        for row in &mut rows {
            if matches!(row.ttl, model::ModelTtl::Number(at) if at <= now + 8 * 86_400) {
                row.ttl = model::ModelTtl::Absent;
            }
        }
        let load = Self::new(kind, rows).await;
        Self { bed: load.bed.retiring().await, ..load }
    }

    /// The same, after TTL has removed half of the tokens that it may remove.
    pub async fn of_after_ttl(kind: EngineKind, rows: Vec<ModelRow>, now: i64, retires: bool) -> Self {
        let mut random = fastrand::Rng::with_seed(rows.len() as u64);
        let is_due = |row: &ModelRow| {
            let is_token = ["mcp_tokens", "mcp_refresh_tokens", "mcp_auth_codes"].contains(&row.bucket.as_str());
            is_token && matches!(row.ttl, model::ModelTtl::Number(at) if (now - 5 * 365 * 86_400..now).contains(&at))
        };
        let (removed, rows) = rows.into_iter().partition(|row| is_due(row) && random.bool());
        Self { removed, ..Self::of(kind, rows, now, retires).await }
    }

    /// The stream records of the removed tokens.
    #[must_use]
    pub fn records(&self) -> Vec<Value> {
        let record = |(n, row): (usize, &ModelRow)| {
            removal(&self.bed.table, n, &row.owner, &row.bucket, &row.name, row.data.as_deref())
        };
        self.removed.iter().enumerate().map(record).collect()
    }

    /// Keys of the rows that are neither deleted nor retired.
    async fn remaining_keys(&self) -> BTreeSet<Key> {
        let items = items::all(&crate::tables::client(self.endpoint).await, &self.bed.table).await;
        items.into_iter().filter(|(_, item)| !item.contains_key("retired_from")).map(|(key, _)| key).collect()
    }

    /// The rows that are neither deleted nor retired.
    pub async fn rest(&self) -> Vec<ModelRow> {
        let keys = self.remaining_keys().await;
        self.rows.iter().filter(|row| keys.contains(&row.key())).cloned().collect()
    }

    /// Counts rows that are gone although no order of runs at `now` deletes them.
    pub async fn live_lost(&self, now: i64) -> u64 {
        let mut allowed: BTreeSet<Key> = BTreeSet::new();
        for first in Which::BOTH {
            let mut gone: BTreeSet<Key> = BTreeSet::new();
            // One run can make rows deletable for the other.
            for turn in 0..4 {
                let rest: Vec<ModelRow> = self.rows.iter().filter(|row| !gone.contains(&row.key())).cloned().collect();
                gone.extend(if (turn % 2 == 0) == (first == Which::Cleanup) {
                    model::daily_cleanup(&rest, now)
                } else {
                    model::index_repair(&rest, now)
                });
            }
            allowed.extend(gone);
        }
        let providers = self.providers_deleted_with_removed(&allowed, now);
        allowed.extend(providers);
        let remaining = self.remaining_keys().await;
        let lost = |key: &Key| !remaining.contains(key) && !allowed.contains(key);
        self.rows.iter().map(ModelRow::key).filter(lost).inspect(|key| eprintln!("lost: {key:?}")).count() as u64
    }

    /// The provider rows that removed tokens named, if they are not young and no live row of their actor that is kept names them.
    /// The runs decide the same way, but only the stream reports that a token is gone.
    fn providers_deleted_with_removed(&self, deleted: &BTreeSet<Key>, now: i64) -> Vec<Key> {
        let named = |row: &ModelRow| {
            let name = json_of(row)?.get("google_token_key")?.as_str()?.to_owned();
            Some((row.owner.clone(), name))
        };
        let freed: BTreeSet<_> = self.removed.iter().filter_map(named).collect();
        if freed.is_empty() {
            return Vec::new();
        }
        let is_kept = |row: &&ModelRow| !deleted.contains(&row.key()) && !model::dead_by_itself(row, now);
        let needed: BTreeSet<_> = self.rows.iter().filter(is_kept).filter_map(named).collect();
        let young = |row: &ModelRow| matches!(row.ttl, model::ModelTtl::Number(at) if now - (at - 7_200) <= 3_900);
        let providers = self.rows.iter().filter(|row| row.bucket == "mcp_google_tokens" && !young(row));
        let name = |row: &ModelRow| (row.owner.clone(), row.name.clone());
        providers.filter(|row| freed.contains(&name(row)) && !needed.contains(&name(row))).map(ModelRow::key).collect()
    }

    /// Asserts that no index row points at a token that TTL removed.
    pub async fn check_nothing_leads_to_removed(&self) {
        let names: BTreeSet<&str> = self.removed.iter().map(|row| row.name.as_str()).collect();
        assert!(!names.is_empty(), "TTL removed no token");
        let rest = self.rest().await;
        let dangling = model::dangling(&rest);
        let left = rest.iter().filter(|row| dangling.contains(&row.key()) && names.contains(row.name.as_str()));
        assert_eq!(left.count(), 0, "index rows point at removed tokens");
    }

    /// Adds the counts of a run's report, and the secrets in it.
    pub fn add_run(&self, report: &RunReport, figures: &mut Figures) {
        figures.add_run(report);
        figures.secrets += self.secrets_in(&report.to_json().to_string());
    }

    /// Asserts that as many rows are gone as the report says, within its uncertainty.
    pub async fn check_counts(&self, report: &RunReport, before: usize) {
        let gone = (before - self.rest().await.len()) as u64;
        let (certain, uncertain) = (report.counts.rows_disposed(), report.counts.uncertain());
        assert!((certain..=certain + uncertain).contains(&gone), "{gone} rows are gone: {}", report.to_json());
    }

    /// Runs cleanup and repair without faults until both are complete, then checks the table against the model.
    pub async fn settle(&self, mut now: i64, figures: &mut Figures) {
        let mut open = Which::BOTH.to_vec();
        while let Some(which) = open.first().copied() {
            let started = Instant::now();
            let report = match which.run(&self.bed.function, json!({}), now).await {
                // On a machine that is busy for a minute, a run loses its lease: start again when that has expired.
                Err(RunError::LeaseLost) => {
                    now += LEASE_SECONDS + 1 + i64::try_from(started.elapsed().as_secs()).expect("a short run");
                    open = Which::BOTH.to_vec();
                    continue;
                }
                report => report.unwrap(),
            };
            assert!(report.outcome.is_complete(), "{}", report.to_json());
            self.add_run(&report, figures);
            // A resumed run has not read the rows that the run before it skipped.
            if !report.resumed {
                open.remove(0);
            }
        }
        let rest = self.rest().await;
        let left: BTreeSet<Key> =
            [model::daily_cleanup(&rest, now), model::index_repair(&rest, now)].into_iter().flatten().collect();
        left.iter().for_each(|key| eprintln!("left: {key:?}"));
        figures.live_lost += self.live_lost(now).await;
        figures.dead_left += left.len() as u64;
        figures.dangling += model::dangling(&rest).len() as u64;
        figures.secrets += self.secrets_in(&Aftermath::read(self.endpoint, &self.bed.table).await.own);
    }

    /// Counts token names, provider secrets and e-mail addresses in a text that was printed, returned or stored.
    #[must_use]
    pub fn secrets_in(&self, text: &str) -> u64 {
        let secrets: BTreeSet<String> = self.rows.iter().chain(&self.removed).flat_map(secrets_of).collect();
        assert!(!secrets.is_empty(), "no secrets to search for");
        secrets.iter().filter(|secret| text.contains(secret.as_str())).count() as u64
    }

    pub async fn drop_table(self) {
        self.bed.function.client.delete_table().table_name(&self.bed.table).send().await.unwrap();
    }
}

fn json_of(row: &ModelRow) -> Option<Value> {
    serde_json::from_str(row.data.as_deref()?).ok()
}

/// The secrets of a row.
fn secrets_of(row: &ModelRow) -> Vec<String> {
    let data = json_of(row).unwrap_or_default();
    let members = [&data, &data["token_data"]].into_iter().filter_map(Value::as_object).flatten();
    let secret = members.filter(|(name, _)| SECRET_MEMBERS.contains(&name.as_str())).filter_map(|(_, it)| it.as_str());
    // A shorter text could be in the output by chance.
    let all = secret.chain([row.name.as_str()]).filter(|it| it.len() >= 12 && *it != "a-session-that-lives-on");
    all.map(str::to_owned).collect()
}

/// Runs an attack for every item of `work` on `threads` threads and adds up the figures. Most of an attack is waiting.
///
/// # Panics
/// When an attack panics.
pub fn run_concurrently<T: Send + Sync>(
    threads: usize,
    work: &[T],
    attack: impl AsyncFn(&T) -> Figures + Sync,
) -> Figures {
    let (next, total) = (Mutex::new(work.iter()), Mutex::new(Figures::default()));
    let test = std::thread::current().name().unwrap_or_default().to_owned();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                loop {
                    let (item, left) = {
                        let mut next = next.lock().unwrap();
                        (next.next(), next.len())
                    };
                    let Some(item) = item else { return };
                    // Progress of a long attack, ten times.
                    if left % (work.len() / 10).max(1) == 0 {
                        eprintln!("{test}: {left} of {} left", work.len());
                    }
                    let figures = runtime.block_on(attack(item));
                    total.lock().unwrap().add(figures);
                }
            });
        }
    });
    total.into_inner().unwrap()
}
