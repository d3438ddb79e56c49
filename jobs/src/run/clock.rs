//! The only place that reads a timer: how long a run has taken and when it has to stop.

use std::time::Duration;

use tokio::time::Instant;

pub use super::watch::{Progress, Rows, Watch};
use shared::time::EpochSeconds;

/// A run's `now`, taken once at its start, and the time that has passed since.
#[derive(Clone, Copy, Debug)]
pub struct RunClock {
    now: EpochSeconds,
    started: Instant,
    /// How long the whole run may take; `None` is no limit.
    budget: Option<Duration>,
    /// Static, because the observer outlives the run.
    watch: Option<&'static Watch>,
    /// Seconds that the machine's clock was ahead of the table's, negative if behind; `now` is already corrected.
    offset: i64,
}

/// Share of the budget that is reserved for requests in flight, the cursor, the lease and the answer.
const RESERVE_DIVISOR: u32 = 5;
const RESERVE_LEAST: Duration = Duration::from_millis(750);
const RESERVE_MOST: Duration = Duration::from_secs(15);

/// The smallest offset that is reported: the table's time has whole seconds, and a busy server updates it late.
const NOTABLE_OFFSET: u64 = 4;

impl RunClock {
    #[expect(clippy::disallowed_methods, reason = "the run's own stopwatch starts here")]
    pub fn start(now: EpochSeconds, budget: Option<Duration>) -> Self {
        Self { now, started: Instant::now(), budget, watch: None, offset: 0 }
    }

    pub fn watched_by(self, watch: Option<&'static Watch>) -> Self {
        Self { watch, ..self }
    }

    pub fn budget(&self) -> Option<Duration> {
        self.budget
    }

    pub fn watch(&self) -> Option<&'static Watch> {
        self.watch
    }

    pub fn is_stopped(&self) -> bool {
        self.watch.is_some_and(Watch::is_stopped)
    }

    /// The same run by the table's clock. This machine's clock is `offset` seconds ahead of it, or behind if negative.
    pub fn corrected_by(self, offset: i64) -> Self {
        Self { now: self.now.plus(-offset), offset, ..self }
    }

    /// The note in a report if this machine's clock is wrong.
    pub fn offset_note(&self) -> Option<String> {
        let side = if self.offset > 0 { "ahead of" } else { "behind" };
        let seconds = self.offset.unsigned_abs();
        (seconds >= NOTABLE_OFFSET)
            .then(|| format!("this machine's clock is {seconds} s {side} the table's: rows are judged by the table's"))
    }

    /// The `now` that every row of this run is judged by.
    pub fn now(&self) -> EpochSeconds {
        self.now
    }

    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// `now` plus the elapsed time, for leases.
    pub fn wall(&self) -> EpochSeconds {
        self.now.plus(i64::try_from(self.elapsed().as_secs()).unwrap_or(i64::MAX))
    }

    /// Whether no new work may be started.
    pub fn time_is_up(&self) -> bool {
        self.is_stopped() || self.budget.is_some_and(|budget| self.elapsed() >= budget.saturating_sub(reserve(budget)))
    }

    /// Time left for a request of the job; half of the reserve remains for the steps that follow.
    pub fn time_left(&self) -> Option<Duration> {
        self.budget.map(|budget| budget.saturating_sub(reserve(budget) / 2).saturating_sub(self.elapsed()))
    }

    /// Time left for the cursor and the lease; the rest of the reserve is for the answer.
    pub fn time_left_to_close(&self) -> Option<Duration> {
        self.budget.map(|budget| budget.saturating_sub(reserve(budget) / 5).saturating_sub(self.elapsed()))
    }
}

fn reserve(budget: Duration) -> Duration {
    (budget / RESERVE_DIVISOR).clamp(RESERVE_LEAST, RESERVE_MOST)
}
