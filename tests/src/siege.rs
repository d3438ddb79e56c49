//! A table under attack, and what the second opinion says of it afterwards.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use shared::lambda::Function;
use shared::report::RunReport;
use shared::run::RunError;
use shared::time::EpochSeconds;

use crate::attack::Figures;
use crate::bed::Bed;
use crate::engine::EngineKind;
use crate::janitor::Janitor;
use crate::model::{self, Key, ModelRow};
use crate::tables::{random_table, specimens};

/// What the machine's clock says: `janitor` works by it, and by no other.
#[must_use]
pub fn real_now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("a machine's clock is past 1970");
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

    /// What `janitor` calls it.
    fn command(self) -> &'static str {
        match self {
            Which::Cleanup => "sweep",
            Which::Repair => "repair",
        }
    }

    /// `janitor` doing it for real, not started yet.
    #[must_use]
    pub fn janitor(self, endpoint: &str, prefix: &str) -> Command {
        Janitor::on(endpoint, prefix).command(&[self.command(), "--apply", "--yes", "--json"])
    }

    /// # Errors
    /// Those of the run.
    pub async fn run(self, function: &Function, event: Value, now: i64) -> Result<RunReport, RunError> {
        let now = EpochSeconds::new(now);
        match self {
            Which::Cleanup => function.daily_cleanup(event, now, None).await,
            Which::Repair => function.index_repair(event, now, None).await,
        }
    }
}

/// Random rows enough for many requests: `tables` of the model tests in one, and a session that makes it a table of ours.
#[must_use]
pub fn crowd(seed: u64, tables: u64, now: i64) -> Vec<ModelRow> {
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

pub struct Siege {
    pub bed: Bed,
    pub rows: Vec<ModelRow>,
}

/// A siege without its engine is a defect of the test: its methods panic.
impl Siege {
    pub async fn lay(kind: EngineKind, rows: Vec<ModelRow>) -> Self {
        let bed = Bed::with(kind, &specimens(&rows)).await;
        Self { bed, rows }
    }

    /// The rows that are still there.
    pub async fn rest(&self) -> Vec<ModelRow> {
        let keys = self.bed.keys().await;
        self.rows.iter().filter(|row| keys.contains(&row.key())).cloned().collect()
    }

    /// Rows that are gone, and that no runs at `now` may have deleted, in whichever order they came.
    pub async fn live_lost(&self, now: i64) -> u64 {
        let mut allowed: BTreeSet<Key> = BTreeSet::new();
        for first in Which::BOTH {
            let mut gone: BTreeSet<Key> = BTreeSet::new();
            // One run can clear the way for the other.
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
        let there = self.bed.keys().await;
        let lost = |key: &Key| !there.contains(key) && !allowed.contains(key);
        self.rows.iter().map(ModelRow::key).filter(lost).inspect(|key| eprintln!("lost: {key:?}")).count() as u64
    }

    /// What the report says was deleted is what is gone, as far as it is certain.
    pub async fn check_counts(&self, report: &RunReport, before: usize) {
        let gone = (before - self.rest().await.len()) as u64;
        let (sure, unsure) = (report.counts.rows_deleted(), report.counts.uncertain());
        assert!((sure..=sure + unsure).contains(&gone), "{gone} rows are gone: {}", report.to_json());
    }

    /// Clean runs until the table is as it should be, and what the second opinion says of it then.
    pub async fn settle(&self, now: i64, figures: &mut Figures) {
        for which in Which::BOTH {
            loop {
                let report = match which.run(&self.bed.function, json!({}), now).await {
                    // On a machine that is busy with other things for a minute, a run loses its lease: the next one.
                    Err(RunError::LeaseLost) => continue,
                    report => report.unwrap(),
                };
                assert!(report.outcome.is_complete(), "{}", report.to_json());
                figures.ran(&report);
                // One that went on where another had stopped has not seen what that one skipped.
                if !report.resumed {
                    break;
                }
            }
        }
        let rest = self.rest().await;
        let left: BTreeSet<Key> =
            [model::daily_cleanup(&rest, now), model::index_repair(&rest, now)].into_iter().flatten().collect();
        left.iter().for_each(|key| eprintln!("left: {key:?}"));
        figures.live_lost += self.live_lost(now).await;
        figures.dead_left += left.len() as u64;
        figures.dangling += model::dangling(&rest).len() as u64;
    }

    /// Names of tokens and what is in provider rows, in something that was printed or answered.
    #[must_use]
    pub fn secrets_in(&self, text: &str) -> u64 {
        let secret = |row: &&ModelRow| row.name.len() >= 12 && row.name != "a-session-that-lives-on";
        self.rows.iter().filter(secret).filter(|row| text.contains(&row.name)).count() as u64
    }

    pub async fn lift(self) {
        self.bed.function.client.delete_table().table_name(&self.bed.table).send().await.unwrap();
    }
}

/// Does every piece of `work` on one of `hands` threads, and adds up what it came to. Most of an attack is waiting.
///
/// # Panics
/// When a piece does.
pub fn all_at_once<T: Send + Sync>(hands: usize, work: &[T], attack: impl AsyncFn(&T) -> Figures + Sync) -> Figures {
    let (next, total) = (Mutex::new(work.iter()), Mutex::new(Figures::default()));
    std::thread::scope(|scope| {
        for _ in 0..hands {
            scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                loop {
                    let piece = next.lock().unwrap().next();
                    let Some(piece) = piece else { return };
                    let figures = runtime.block_on(attack(piece));
                    total.lock().unwrap().add(figures);
                }
            });
        }
    });
    total.into_inner().unwrap()
}
