//! Attacks on the guarantees: their figures, for `docs/dev/reliability.md`, and their size.
//!
//! `make test` attacks briefly; `make torture` sets `TORTURE=long`, and `TORTURE_FIGURES` to a file that each attack appends its
//! figures to. `TORTURE_SEED` sets another seed in both.

use std::io::Write;

use jobs::run::report::RunReport;
use serde_json::json;

/// `short` in `make test`, `long` in `make torture`.
#[must_use]
pub fn amount<T>(short: T, long: T) -> T {
    if std::env::var("TORTURE").is_ok_and(|value| value == "long") { long } else { short }
}

/// The seed of everything random in an attack.
///
/// # Panics
/// When `TORTURE_SEED` is not a number.
#[must_use]
pub fn seed() -> u64 {
    std::env::var("TORTURE_SEED").map_or(20_261_116, |text| text.parse().expect("TORTURE_SEED is a number"))
}

/// The figures of one attack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Runs that were attacked.
    pub attempts: u64,
    pub faults: u64,
    pub judged: u64,
    /// Deleted or retired.
    pub deleted: u64,
    pub lost_races: u64,
    pub live_lost: u64,
    /// After the last clean run.
    pub dead_left: u64,
    /// Index rows without target, after the last clean run.
    pub dangling: u64,
    /// Secrets in anything that was printed, answered or stored.
    pub secrets: u64,
}

impl Figures {
    /// Adds the counts of a run's report.
    pub fn add_run(&mut self, report: &RunReport) {
        self.judged += report.counts.rows_read();
        self.deleted += report.counts.rows_disposed();
        self.lost_races += report.counts.lost_races();
    }

    /// Adds the counts of a run's JSON report, which is all that a binary returns.
    pub fn add_answer(&mut self, report: &serde_json::Value) {
        let rows = |of: &str| report["rows"][of].as_u64().unwrap_or(0);
        self.judged += rows("read");
        self.deleted += rows("deleted") + rows("retired");
        self.lost_races += rows("lost_race");
    }

    pub fn add(&mut self, other: Figures) {
        self.attempts += other.attempts;
        self.faults += other.faults;
        self.judged += other.judged;
        self.deleted += other.deleted;
        self.lost_races += other.lost_races;
        self.live_lost += other.live_lost;
        self.dead_left += other.dead_left;
        self.dangling += other.dangling;
        self.secrets += other.secrets;
    }

    /// Reports the figures under the attack's name.
    ///
    /// # Panics
    /// When a guarantee was broken, or the attack made no run.
    pub fn report(self, attack: &str) {
        let program = std::env::current_exe().expect("the test binary has a path");
        let binary = program.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        let figures = json!({
            "attack": attack,
            "file": binary.rsplit_once('-').map_or(binary.as_str(), |(name, _)| name),
            "test": std::thread::current().name().and_then(|name| name.rsplit("::").next()),
            "seed": seed(), "attempts": self.attempts, "faults": self.faults, "judged": self.judged,
            "deleted": self.deleted, "lost_races": self.lost_races, "live_lost": self.live_lost,
            "dead_left": self.dead_left, "dangling": self.dangling, "secrets": self.secrets,
        });
        println!("{figures}");
        if let Some(file) = std::env::var_os("TORTURE_FIGURES") {
            let mut file = std::fs::OpenOptions::new().append(true).create(true).open(file).expect("TORTURE_FIGURES");
            writeln!(file, "{figures}").expect("TORTURE_FIGURES can be written");
        }
        assert!(self.attempts > 0 && self.judged > 0, "{attack}: no run was attacked");
        let broken = self.live_lost + self.dead_left + self.dangling + self.secrets;
        assert_eq!(broken, 0, "{attack}: {figures}");
    }
}

/// Attacks runs that delete and runs that retire, and reports the figures of each.
///
/// # Panics
/// As [`Figures::report`].
pub async fn delete_and_retire(name: &str, attack: impl AsyncFn(bool) -> Figures) {
    attack(false).await.report(name);
    attack(true).await.report(&format!("{name}, retire"));
}
