//! Allows one run at a time, by a lease in a state row. A second run sees the lease and does nothing.
//!
//! The lease is short and renewed during the run, so that a killed run blocks the next one for a minute and not for a
//! day. It prevents duplicate work. The rows are protected by the condition of each delete, even against a holder that
//! resumes after its lease has expired.

use std::cell::Cell;
use std::time::Duration;

use serde_json::{Value, json};

use crate::run::clock::RunClock;
use crate::store::{OwnState, Result, Stored};
use shared::lease::{self, ANOTHER, Holder, LEASE_SECONDS, SHARED_SECONDS};

pub(crate) const LEASE: &str = "lease";
/// Set in the lease of an execution whose first step has passed its checks.
const MAY_START: &str = "may_start";

/// Renewals per lease duration.
const RENEWALS: u32 = 4;
/// Attempts to take the lease from segments that renew it at the same time.
const RECALL_ATTEMPTS: u32 = 10;
/// A lease that was not renewed is given up this long before it expires: clocks differ, and seconds are truncated.
const MARGIN: Duration = Duration::from_secs(5);

/// A lease of this run, identified by its holder.
pub struct Lease<'a, S> {
    store: &'a S,
    clock: &'a RunClock,
    holder: String,
    /// How long the lease lasts without a renewal.
    seconds: i64,
    /// When the lease was requested or last renewed, by the run's own clock: the earliest possible start of the stored lease.
    began: Cell<Duration>,
    /// The execution may start: an earlier step has checked that, and has recorded it in the lease.
    may_start: bool,
}

/// The lease was lost during the run: another run took it over, or it could not be renewed in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost;

impl<'a, S: OwnState> Lease<'a, S> {
    /// A lease of this run alone.
    pub fn own(store: &'a S, clock: &'a RunClock, who: &str) -> Self {
        let holder = format!("{who}-{:016x}", fastrand::u64(..));
        Self { store, clock, holder, seconds: LEASE_SECONDS, began: Cell::new(clock.elapsed()), may_start: false }
    }

    /// The lease of all steps of an execution: each may acquire it while another one holds it.
    pub fn shared(store: &'a S, clock: &'a RunClock, execution: &str) -> Self {
        let holder = execution.to_owned();
        Self { store, clock, holder, seconds: SHARED_SECONDS, began: Cell::new(clock.elapsed()), may_start: false }
    }

    /// The other run that holds the lease.
    ///
    /// # Errors
    /// When the state row could not be read.
    pub async fn held(&self) -> Result<Option<Holder>> {
        Ok(self.store.read_state(LEASE).await?.and_then(|current| self.held_by_another(&current.value)))
    }

    /// Acquires the lease if nobody holds it or if it has expired. Otherwise returns the holder.
    ///
    /// # Errors
    /// When the state row could not be read or written.
    pub async fn acquire(mut self) -> Result<Result<Self, Holder>> {
        let current = self.store.read_state(LEASE).await?;
        if let Some(holder) = current.as_ref().and_then(|current| self.held_by_another(&current.value)) {
            return Ok(Err(holder));
        }
        self.may_start =
            current.as_ref().is_some_and(|current| self.is_ours(&current.value) && current.value[MAY_START] == true);
        let expected = current.map(|current| current.text);
        if self.store.swap_state(LEASE, expected.as_deref(), Some(&self.value())).await? {
            return Ok(Ok(self));
        }
        // Another run was faster; or our own write succeeded, its response was lost, and its retry failed the condition.
        let another = |seconds| Holder { by: ANOTHER.to_owned(), seconds };
        Ok(match self.store.read_state(LEASE).await? {
            Some(current) if self.is_ours(&current.value) => Ok(self),
            Some(current) => Err(self.held_by_another(&current.value).unwrap_or(another(LEASE_SECONDS))),
            None => Err(another(0)),
        })
    }

    /// Does `work` while renewing the lease. If the lease is lost, the work is cancelled.
    ///
    /// # Errors
    /// [`Lost`] when the lease was taken over, or could not be renewed while it lasted.
    pub async fn hold<T>(&self, work: impl Future<Output = T>) -> std::result::Result<T, Lost> {
        tokio::select! {
            done = work => Ok(done),
            lost = self.keep() => Err(lost),
        }
    }

    /// Returns when the lease is lost, or when it may expire before a renewal is answered.
    async fn keep(&self) -> Lost {
        loop {
            // Never assume that the lease lasts longer than others do.
            let give_up_at = (self.began.get() + self.lasts()).saturating_sub(MARGIN);
            let left = give_up_at.saturating_sub(self.clock.elapsed());
            tokio::time::sleep((self.lasts() / RENEWALS).min(left)).await;
            let renewing = self.clock.elapsed();
            let left = give_up_at.saturating_sub(renewing);
            if left.is_zero() {
                return Lost;
            }
            match tokio::time::timeout(left, self.renew()).await {
                Ok(Ok(true)) => self.began.set(renewing),
                Ok(Ok(false)) | Err(_) => return Lost,
                // A transient fault: there may be time for another attempt.
                Ok(Err(_)) => {}
            }
        }
    }

    async fn renew(&self) -> Result<bool> {
        let Some(current) = self.read_ours().await? else { return Ok(false) };
        let renewed = self.store.swap_state(LEASE, Some(&current.text), Some(&self.value())).await?;
        Ok(renewed || self.read_ours().await?.is_some())
    }

    /// The state row, if the lease is still ours.
    async fn read_ours(&self) -> Result<Option<Stored>> {
        Ok(self.store.read_state(LEASE).await?.filter(|current| self.is_ours(&current.value)))
    }

    /// Releases the lease, if it is still ours. A failure is ignored: the lease expires by itself.
    pub async fn release(self) {
        if let Ok(Some(current)) = self.read_ours().await {
            let _ = self.store.swap_state(LEASE, Some(&current.text), None).await;
        }
    }

    /// Whether the lease records that the execution may start.
    pub fn may_start(&self) -> bool {
        self.may_start
    }

    /// Records in the lease that the execution may start, for the later steps; `false` if it is no longer ours.
    ///
    /// # Errors
    /// When the state row could not be read or written.
    pub async fn allow(&mut self) -> Result<bool> {
        self.may_start = true;
        self.renew().await
    }

    /// Takes the lease from segments that may still be running after the execution has failed. They notice when they
    /// renew it, or stop before it expires if they cannot renew it; until then nobody else gets it.
    ///
    /// # Errors
    /// When the state row could not be read or written.
    pub async fn recall(self) -> Result<()> {
        let mut ended = self.value();
        // No execution has a space in its name or ARN.
        ended["holder"] = json!(format!("{} (ended)", self.holder));
        // A segment may renew it in between. If that happens every time, the lease expires after the last segment.
        for _ in 0..RECALL_ATTEMPTS {
            let Some(current) = self.read_ours().await? else { break };
            if self.store.swap_state(LEASE, Some(&current.text), Some(&ended)).await? {
                break;
            }
        }
        Ok(())
    }

    fn value(&self) -> Value {
        let mut lease = lease::lease(&self.holder, self.clock.wall().plus(self.seconds));
        if self.may_start {
            lease[MAY_START] = json!(true);
        }
        lease
    }

    fn is_ours(&self, lease: &Value) -> bool {
        lease::is_of(lease, &self.holder)
    }

    /// `None` if the lease has expired, is already ours, or cannot be read.
    fn held_by_another(&self, lease: &Value) -> Option<Holder> {
        lease::held_by_another(lease, &self.holder, self.clock.wall())
    }

    fn lasts(&self) -> Duration {
        Duration::from_secs(self.seconds.unsigned_abs())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::time::Duration;

    use serde_json::Value;

    use super::{Holder, LEASE_SECONDS, Lease, Lost};
    use crate::run::clock::RunClock;
    use crate::store::{OwnState, Result, StoreError, Stored};
    use shared::time::EpochSeconds;

    /// A state row in memory whose writes can hang or fail for a minute, which no engine does on demand.
    #[derive(Default)]
    struct Row {
        text: RefCell<Option<String>>,
        hangs: RefCell<bool>,
        fails: RefCell<bool>,
    }

    impl OwnState for Row {
        async fn read_state(&self, _: &str) -> Result<Option<Stored>> {
            let text = self.text.borrow().clone();
            Ok(text.map(|text| Stored { value: serde_json::from_str(&text).unwrap(), text }))
        }

        async fn read_states(&self, _: &str) -> Result<Vec<Value>> {
            Ok(Vec::new())
        }

        async fn swap_state(&self, _: &str, expected: Option<&str>, value: Option<&Value>) -> Result<bool> {
            if *self.hangs.borrow() {
                std::future::pending::<()>().await;
            }
            if *self.fails.borrow() {
                return Err(StoreError::OutOfTime);
            }
            let holds = self.text.borrow().as_deref() == expected;
            if holds {
                *self.text.borrow_mut() = value.map(Value::to_string);
            }
            Ok(holds)
        }

        async fn write_state(&self, _: &str, _: &Value) -> Result<()> {
            Ok(())
        }

        async fn holds_state(&self) -> Result<bool> {
            Ok(true)
        }
    }

    const START: EpochSeconds = EpochSeconds::new(1_800_000_000);

    async fn got<'a>(row: &'a Row, clock: &'a RunClock) -> Option<Lease<'a, Row>> {
        Lease::own(row, clock, "test").acquire().await.ok()?.ok()
    }

    async fn joined<'a>(row: &'a Row, clock: &'a RunClock, execution: &str) -> Option<Lease<'a, Row>> {
        Lease::shared(row, clock, execution).acquire().await.ok()?.ok()
    }

    #[tokio::test(start_paused = true)]
    async fn is_renewed_for_as_long_as_the_work_takes() {
        let (row, clock) = (Row::default(), RunClock::start(START, None));
        let lease = got(&row, &clock).await.unwrap();
        // Twice: some work has a last step, under the same lease.
        for _ in 0..2 {
            let work = async {
                for _ in 0..60 {
                    tokio::time::sleep(Duration::from_secs(30)).await;
                    assert!(got(&row, &clock).await.is_none(), "nobody else gets it");
                }
            };
            assert_eq!(lease.hold(work).await, Ok(()));
        }
        lease.release().await;
        assert!(got(&row, &clock).await.is_some());
    }

    /// The work must end before anybody else can acquire the lease, however a renewal fails.
    #[tokio::test(start_paused = true)]
    async fn a_holder_that_cannot_renew_gives_up_before_its_lease_lapses() {
        for (hangs, fails) in [(true, false), (false, true)] {
            let (row, clock) = (Row::default(), RunClock::start(START, None));
            let lease = got(&row, &clock).await.unwrap();
            *row.hangs.borrow_mut() = hangs;
            *row.fails.borrow_mut() = fails;
            let forever = tokio::time::sleep(Duration::from_hours(1));
            assert_eq!(lease.hold(forever).await, Err(Lost));
            assert!(clock.elapsed() < Duration::from_secs(LEASE_SECONDS.unsigned_abs()), "{:?}", clock.elapsed());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_was_taken_over_is_lost_and_not_given_back() {
        let (row, clock) = (Row::default(), RunClock::start(START, None));
        let lease = got(&row, &clock).await.unwrap();
        let theirs = r#"{"holder": "another", "until": 1800000100}"#.to_owned();
        *row.text.borrow_mut() = Some(theirs.clone());
        assert_eq!(lease.hold(tokio::time::sleep(Duration::from_hours(1))).await, Err(Lost));
        lease.release().await;
        assert_eq!(*row.text.borrow(), Some(theirs));
    }

    #[tokio::test(start_paused = true)]
    async fn the_parts_of_an_execution_share_a_lease_and_nobody_else_gets_it() {
        let (row, clock) = (Row::default(), RunClock::start(START, None));
        let first = joined(&row, &clock, "clean-up-1").await.unwrap();
        let second = joined(&row, &clock, "clean-up-1").await.unwrap();
        let others = async || {
            assert!(joined(&row, &clock, "clean-up-2").await.is_none());
            assert!(got(&row, &clock).await.is_none());
        };
        others().await;
        let work = tokio::time::sleep(Duration::from_hours(1));
        let rival = async {
            for _ in 0..59 {
                tokio::time::sleep(Duration::from_mins(1)).await;
                others().await;
            }
        };
        let (one, two, ()) = tokio::join!(first.hold(work), second.hold(rival), std::future::ready(()));
        assert_eq!((one, two), (Ok(()), Ok(())));
        // Between two steps it lasts for minutes, but not forever.
        tokio::time::sleep(Duration::from_mins(5)).await;
        others().await;
        tokio::time::sleep(Duration::from_mins(6)).await;
        assert!(got(&row, &clock).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_is_recalled_stops_the_parts_before_anybody_else_gets_it() {
        for cannot_renew in [false, true] {
            let (row, clock) = (Row::default(), RunClock::start(START, None));
            let part = joined(&row, &clock, "clean-up-1").await.unwrap();
            let recall = async {
                tokio::time::sleep(Duration::from_mins(2)).await;
                Lease::shared(&row, &clock, "clean-up-1").recall().await.unwrap();
                *row.fails.borrow_mut() = cannot_renew;
                assert!(joined(&row, &clock, "clean-up-1").await.is_none(), "not even another part");
            };
            let (part, ()) = tokio::join!(part.hold(tokio::time::sleep(Duration::from_hours(1))), recall);
            assert_eq!(part, Err(Lost));
            *row.fails.borrow_mut() = false;
            assert!(got(&row, &clock).await.is_none(), "after {:?}", clock.elapsed());
            tokio::time::sleep(Duration::from_mins(11)).await;
            assert!(got(&row, &clock).await.is_some());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_is_another_s_is_not_recalled() {
        let (row, clock) = (Row::default(), RunClock::start(START, None));
        Lease::shared(&row, &clock, "clean-up-1").recall().await.unwrap();
        assert_eq!(*row.text.borrow(), None);
        let _other = joined(&row, &clock, "clean-up-2").await.unwrap();
        let theirs = row.text.borrow().clone();
        Lease::shared(&row, &clock, "clean-up-1").recall().await.unwrap();
        assert_eq!(*row.text.borrow(), theirs);
    }

    /// The execution's name proves nothing: the lease itself records the check, as long as it belongs to the execution.
    #[tokio::test(start_paused = true)]
    async fn only_what_was_allowed_may_begin() {
        let (row, clock) = (Row::default(), RunClock::start(START, None));
        let mut first = joined(&row, &clock, "clean-up-1").await.unwrap();
        assert!(!first.may_start());
        assert!(!joined(&row, &clock, "clean-up-1").await.unwrap().may_start(), "taken, and not looked yet");
        assert_eq!(first.allow().await, Ok(true));
        let part = joined(&row, &clock, "clean-up-1").await.unwrap();
        assert!(part.may_start());
        assert_eq!(part.hold(tokio::time::sleep(Duration::from_mins(20))).await, Ok(()));
        assert!(joined(&row, &clock, "clean-up-1").await.unwrap().may_start(), "a renewal forgets it");
        tokio::time::sleep(Duration::from_mins(11)).await;
        assert!(!joined(&row, &clock, "clean-up-2").await.unwrap().may_start(), "another's");
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_from_a_clock_that_was_far_ahead_does_not_block_for_ever() {
        let (row, clock) = (Row::default(), RunClock::start(START, None));
        *row.text.borrow_mut() = Some(r#"{"holder": "another", "until": 1900000000}"#.to_owned());
        assert!(got(&row, &clock).await.is_some());
    }

    /// Two state machines, or two regions, may have executions of the same name.
    #[tokio::test(start_paused = true)]
    async fn executions_of_one_name_do_not_share_a_lease_and_are_shown_by_name() {
        let (row, clock) = (Row::default(), RunClock::start(START, None));
        let arn =
            |machine: &str| format!("arn:aws:states:eu-north-1:123456789012:execution:{machine}:nightly-clean-up");
        let _first = joined(&row, &clock, &arn("one")).await.unwrap();
        assert!(joined(&row, &clock, &arn("one")).await.is_some(), "another part of it");
        let other = Lease::shared(&row, &clock, &arn("two")).acquire().await.unwrap();
        let Err(Holder { by, .. }) = other else { panic!("two executions at a time") };
        assert_eq!(by, "one:nightly-clean-up");
    }
}
