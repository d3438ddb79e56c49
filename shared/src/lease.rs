//! One run at a time: a lease in a state row. The second run sees it and does nothing.
//!
//! The lease is short and renewed while the run works, so that a run which was killed blocks the next one for a minute and
//! not for a day. It guards the work from being done twice, not the rows: those are guarded by each delete's condition,
//! also against a holder that wakes up late.

use std::time::Duration;

use serde_json::{Value, json};

use crate::clock::RunClock;
use crate::store::{OwnState, Result};

const LEASE: &str = "lease";

/// How long a lease holds without being renewed.
const LEASE_SECONDS: i64 = 60;
const RENEW_EVERY: Duration = Duration::from_secs(20);

/// A lease that this run holds, by the text it wrote.
pub struct Lease<'a, S> {
    store: &'a S,
    clock: &'a RunClock,
    holder: String,
}

/// What asking for the lease came to.
pub enum Asked<'a, S> {
    Got(Lease<'a, S>),
    /// Another run has it, for so many seconds more unless it renews.
    Held {
        by: String,
        seconds: i64,
    },
}

/// The lease went to somebody else while this run was working: it was asleep for longer than the lease holds.
#[derive(Debug, PartialEq, Eq)]
pub struct Lost;

impl<'a, S: OwnState> Lease<'a, S> {
    /// Takes the lease if nobody holds it, or if who held it has let it lapse.
    ///
    /// # Errors
    /// When the state row could not be read or written.
    pub async fn ask(store: &'a S, clock: &'a RunClock, who: &str) -> Result<Asked<'a, S>> {
        let lease = Self { store, clock, holder: format!("{who}-{:016x}", fastrand::u64(..)) };
        let current = store.read_state(LEASE).await?;
        if let Some(held) = current.as_ref().and_then(|current| lease.held_by_another(&current.value)) {
            return Ok(held);
        }
        let expected = current.map(|current| current.text);
        if store.swap_state(LEASE, expected.as_deref(), Some(&lease.value())).await? {
            return Ok(Asked::Got(lease));
        }
        // Somebody was quicker; or our own write landed and its answer was lost, and the retry met it.
        match store.read_state(LEASE).await? {
            Some(current) if lease.is_ours(&current.value) => Ok(Asked::Got(lease)),
            Some(current) => Ok(lease
                .held_by_another(&current.value)
                .unwrap_or(Asked::Held { by: "another run".to_owned(), seconds: LEASE_SECONDS })),
            None => Ok(Asked::Held { by: "another run".to_owned(), seconds: 0 }),
        }
    }

    /// Does `work` while renewing the lease. Without the lease the work ends where it is.
    ///
    /// # Errors
    /// [`Lost`] when the lease was taken over, or could not be renewed while it lasted.
    pub async fn hold<T>(&self, work: impl Future<Output = T>) -> std::result::Result<T, Lost> {
        tokio::select! {
            done = work => Ok(done),
            lost = self.keep() => Err(lost),
        }
    }

    async fn keep(&self) -> Lost {
        let mut renewed_at = self.clock.elapsed();
        loop {
            tokio::time::sleep(RENEW_EVERY).await;
            match self.renew().await {
                Ok(true) => renewed_at = self.clock.elapsed(),
                Ok(false) => return Lost,
                // A fault of the moment: there is time for another try while the lease lasts.
                Err(_) if self.clock.elapsed() + RENEW_EVERY < renewed_at + lasts() => {}
                Err(_) => return Lost,
            }
        }
    }

    async fn renew(&self) -> Result<bool> {
        let Some(current) = self.store.read_state(LEASE).await? else { return Ok(false) };
        if !self.is_ours(&current.value) {
            return Ok(false);
        }
        if self.store.swap_state(LEASE, Some(&current.text), Some(&self.value())).await? {
            return Ok(true);
        }
        let current = self.store.read_state(LEASE).await?;
        Ok(current.is_some_and(|current| self.is_ours(&current.value)))
    }

    /// Gives the lease back, if it is still ours. A failure is not worth a word: it lapses by itself.
    pub async fn release(self) {
        if let Ok(Some(current)) = self.store.read_state(LEASE).await
            && self.is_ours(&current.value)
        {
            let _ = self.store.swap_state(LEASE, Some(&current.text), None).await;
        }
    }

    fn value(&self) -> Value {
        json!({"holder": self.holder, "until": self.clock.wall().plus(LEASE_SECONDS).get()})
    }

    fn is_ours(&self, lease: &Value) -> bool {
        lease["holder"] == self.holder.as_str()
    }

    /// `None` when the lease has lapsed, or is not one that we can read.
    fn held_by_another(&self, lease: &Value) -> Option<Asked<'a, S>> {
        let seconds = lease["until"].as_i64()?.saturating_sub(self.clock.wall().get());
        // A lease further ahead than any lease is written came from a clock that was wrong; it must not block for ever.
        (0..=10 * LEASE_SECONDS).contains(&seconds).then(|| Asked::Held {
            by: lease["holder"].as_str().unwrap_or("another run").chars().take(40).collect(),
            seconds,
        })
    }
}

const fn lasts() -> Duration {
    Duration::from_secs(LEASE_SECONDS.unsigned_abs())
}
