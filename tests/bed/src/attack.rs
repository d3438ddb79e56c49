//! What an attack on the promises comes to: the figures of `docs/reliability.md`, and how hard to attack.
//!
//! `make test` attacks briefly; `make torture` sets `TORTURE=long`, and `TORTURE_FIGURES` to a file that each attack adds its
//! figures to. `TORTURE_SEED` chooses another seed in both.

use std::io::Write;

use jobs::run::report::RunReport;
use serde_json::json;

/// How much of something to do: the first in `make test`, the second in `make torture`.
#[must_use]
pub fn amount<T>(short: T, long: T) -> T {
    if std::env::var("TORTURE").is_ok_and(|how| how == "long") { long } else { short }
}

/// What everything random in an attack is drawn from.
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
    /// Or retired.
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
    /// Adds what a run says of itself.
    pub fn ran(&mut self, report: &RunReport) {
        self.judged += report.counts.rows_read();
        self.deleted += report.counts.rows_ended();
        self.lost_races += report.counts.lost_races();
    }

    /// Adds what a run's JSON report says of itself: of a binary, which has no other.
    pub fn answered(&mut self, report: &serde_json::Value) {
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

    /// Tells the figures under the attack's name, and fails if anything was lost, left or let out.
    ///
    /// # Panics
    /// When a promise was broken, or the attack attacked nothing.
    pub fn tell(self, attack: &str) {
        let program = std::env::current_exe().expect("a test has a path");
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
        assert!(self.attempts > 0 && self.judged > 0, "{attack}: an attack without a run proves nothing");
        let broken = self.live_lost + self.dead_left + self.dangling + self.secrets;
        assert_eq!(broken, 0, "{attack}: {figures}");
    }
}

/// Makes an attack on runs that delete and on runs that retire, and tells the figures of each.
///
/// # Panics
/// As [`Figures::tell`].
pub async fn in_both_ways(name: &str, attack: impl AsyncFn(bool) -> Figures) {
    attack(false).await.tell(name);
    attack(true).await.tell(&format!("{name}, retire"));
}
