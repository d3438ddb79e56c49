//! The one place that looks at a timer: how long a run has taken and when it has to stop.

use std::time::Duration;

use tokio::time::Instant;

use crate::time::EpochSeconds;

/// A run's `now`, taken once at its start, and the time that has passed since.
#[derive(Clone, Copy, Debug)]
pub struct RunClock {
    now: EpochSeconds,
    started: Instant,
    /// How long the run may take in all; `None` is no limit.
    budget: Option<Duration>,
}

/// Share of the budget that is kept back for what is in flight, the cursor, the lease and the answer.
const RESERVE_DIVISOR: u32 = 5;
const RESERVE_LEAST: Duration = Duration::from_millis(750);
const RESERVE_MOST: Duration = Duration::from_secs(15);

impl RunClock {
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "the run's own stopwatch starts here")]
    pub fn start(now: EpochSeconds, budget: Option<Duration>) -> Self {
        Self { now, started: Instant::now(), budget }
    }

    /// The `now` that every row of this run is judged by.
    #[must_use]
    pub fn now(&self) -> EpochSeconds {
        self.now
    }

    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// The time on the wall, for leases: `now` and what has passed since.
    #[must_use]
    pub fn wall(&self) -> EpochSeconds {
        self.now.plus(i64::try_from(self.elapsed().as_secs()).unwrap_or(i64::MAX))
    }

    /// No new work is begun from here on.
    #[must_use]
    pub fn time_is_up(&self) -> bool {
        self.budget.is_some_and(|budget| self.elapsed() >= budget.saturating_sub(reserve(budget)))
    }

    /// Time left for a request that is part of the work; what follows it still has half of the reserve.
    #[must_use]
    pub fn time_left(&self) -> Option<Duration> {
        self.budget.map(|budget| budget.saturating_sub(reserve(budget) / 2).saturating_sub(self.elapsed()))
    }

    /// Time left for the last words: the cursor, the lease. What follows them is the answer.
    #[must_use]
    pub fn time_left_to_close(&self) -> Option<Duration> {
        self.budget.map(|budget| budget.saturating_sub(reserve(budget) / 5).saturating_sub(self.elapsed()))
    }
}

fn reserve(budget: Duration) -> Duration {
    (budget / RESERVE_DIVISOR).clamp(RESERVE_LEAST, RESERVE_MOST)
}
