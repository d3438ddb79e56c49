//! While the janitor is paused, every run that would write does nothing and reports that. A pause expires by itself.
//!
//! Every path checks it here: a run, a segment and a command before they acquire the lease or write, and again every
//! [`CHECK_INTERVAL`] during the work, which then stops as on request; the cascade once per batch. The read is consistent, so
//! that a pause that was written before a run started is in effect.
//!
//! A pause row that cannot be read is in effect too, until `janitor resume` ends it: somebody requested a pause, and
//! the run can be repeated later.

use std::time::Duration;

use serde::Serialize;
use serde_json::json;

use super::RunError;
use super::clock::RunClock;
use crate::store::{OwnState, ReadRows, Result, StopWork, get_one, state_key, state_value};
use shared::bucket::STATE_BUCKET;
use shared::mask::plain;
use shared::row::{Row, RowKey};
use shared::time::{EpochSeconds, Utc};

const NAME: &str = "pause";

/// Interval between two reads of the pause during a run, as between two renewals of its own lease.
const CHECK_INTERVAL: Duration = Duration::from_secs(15);

/// Maximum length of the reason that is shown, in characters.
const MAX_REASON_CHARS: usize = 200;

/// A pause that is in effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Pause {
    /// `None` when the row cannot be read.
    pub until: Option<i64>,
    /// The operator's reason.
    pub why: Option<String>,
}

impl Pause {
    /// The pause in a state row, if it is still in effect.
    pub(crate) fn of_row(row: &Row, now: EpochSeconds) -> Option<Self> {
        if row.bucket.text() != Some(STATE_BUCKET) {
            return None;
        }
        let value = state_value(row);
        let until = value["until"].as_i64();
        let why = value["why"].as_str().map(|why| plain(why).chars().take(MAX_REASON_CHARS).collect());
        until.is_none_or(|until| now.get() < until).then_some(Self { until, why })
    }
}

impl std::fmt::Display for Pause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.until {
            Some(until) => write!(f, "the janitor is paused until {}", Utc(EpochSeconds::new(until)))?,
            None => {
                f.write_str("the janitor is paused by a state row that cannot be read; `janitor resume` ends it")?;
            }
        }
        self.why.as_ref().map_or(Ok(()), |why| write!(f, " ({why})"))
    }
}

pub(crate) fn key() -> RowKey {
    state_key(NAME)
}

/// The pause that is in effect now.
pub async fn read<S: ReadRows>(store: &S, clock: &RunClock) -> Result<Option<Pause>> {
    Ok(get_one(store, key()).await?.and_then(|row| Pause::of_row(&row, clock.wall())))
}

/// Fails while a pause is in effect.
pub async fn check<S: ReadRows>(store: &S, clock: &RunClock) -> Result<(), RunError> {
    read(store, clock).await?.map_or(Ok(()), |pause| Err(RunError::Paused(pause)))
}

/// Does `work`. If a pause starts meanwhile, stops the work as on request and returns the pause with its result.
pub async fn stopping<S: ReadRows + StopWork, T>(
    store: &S,
    clock: &RunClock,
    work: impl Future<Output = T>,
) -> (T, Option<Pause>) {
    let begun = async {
        loop {
            tokio::time::sleep(CHECK_INTERVAL).await;
            // A transient fault is ignored: the next read follows.
            if let Ok(Some(pause)) = read(store, clock).await {
                return pause;
            }
        }
    };
    tokio::pin!(work);
    tokio::select! {
        done = &mut work => (done, None),
        pause = begun => {
            store.stop();
            (work.await, Some(pause))
        }
    }
}

/// Pauses the janitor, or replaces the current pause.
pub async fn pause<S: OwnState>(store: &S, clock: &RunClock, seconds: i64, why: Option<&str>) -> Result<Pause> {
    let until = clock.wall().plus(seconds).get();
    store.write_state(NAME, &json!({"until": until, "why": why})).await?;
    Ok(Pause { until: Some(until), why: why.map(str::to_owned) })
}

/// Ends the pause, whatever its row contains, by replacing the row with an expired one.
pub async fn resume<S: OwnState>(store: &S) -> Result<()> {
    store.write_state(NAME, &json!({"until": 0})).await
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::time::Duration;

    use super::{Pause, key, stopping};
    use crate::run::clock::RunClock;
    use crate::store::{Page, PageOf, ReadRows, Result, StopWork};
    use shared::integrity::Lookup;
    use shared::row::{Raw, Row, RowKey};
    use shared::time::EpochSeconds;

    const NOW: i64 = 1_800_000_000;

    fn held(data: Raw) -> Option<Pause> {
        let row = Row {
            key: key(),
            bucket: Raw::Text("state".to_owned()),
            data,
            ttl: Raw::Absent,
            retired_from: Raw::Absent,
            bytes: 100,
        };
        Pause::of_row(&row, EpochSeconds::new(NOW))
    }

    #[test]
    fn a_pause_holds_until_its_last_second_and_not_after() {
        for (until, holds) in [(NOW + 86_400, true), (NOW + 1, true), (NOW, false), (NOW - 1, false), (0, false)] {
            let pause = held(Raw::Text(format!(r#"{{"until": {until}, "why": null}}"#)));
            assert_eq!(pause, holds.then_some(Pause { until: Some(until), why: None }), "{until}");
        }
    }

    #[test]
    fn a_pause_that_cannot_be_read_holds_and_says_how_to_end_it() {
        let texts = ["", "{", "null", "[]", "7", r#"{"why": "x"}"#, r#"{"until": "tomorrow"}"#, r#"{"until": 1.5e9}"#];
        let others = [Raw::Absent, Raw::Null, Raw::Number("7".to_owned()), Raw::Bytes(vec![1])];
        for data in texts.map(|text| Raw::Text(text.to_owned())).into_iter().chain(others) {
            let pause = held(data.clone()).unwrap_or_else(|| panic!("{data:?}"));
            assert!(pause.to_string().contains("`janitor resume` ends it"), "{pause}");
        }
    }

    #[test]
    fn a_reason_is_shown_plain_and_short() {
        let why = format!("restore\\u001b[31m {}", "x".repeat(1_000));
        let pause = held(Raw::Text(format!(r#"{{"until": {}, "why": "{why}"}}"#, NOW + 60))).unwrap();
        let shown = pause.to_string();
        assert!(shown.starts_with("the janitor is paused until 2027-01-15"), "{shown}");
        assert!(shown.contains("(restore\\u{1b}[31m xxx"), "{shown}");
        assert!(shown.len() < 300 && !shown.contains('\u{1b}'), "{shown}");
    }

    /// A pause row in memory, and whether the work was stopped.
    #[derive(Default)]
    struct Memory {
        row: RefCell<Option<Row>>,
        stopped: Cell<bool>,
    }

    impl ReadRows for Memory {
        async fn page(&self, _: &PageOf) -> Result<Page<String>> {
            Ok(Page { rows: Vec::new(), next: None })
        }

        async fn get_consistent(&self, _: &[RowKey]) -> Result<Vec<Lookup>> {
            Ok(vec![self.row.borrow().clone().map_or(Lookup::Absent, Lookup::Found)])
        }

        async fn get_eventual(&self, keys: &[RowKey]) -> Result<Vec<Lookup>> {
            self.get_consistent(keys).await
        }
    }

    impl StopWork for Memory {
        fn stop(&self) {
            self.stopped.set(true);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_in_progress_stops_within_seconds_of_a_pause_and_its_result_is_kept() {
        let clock = RunClock::start(EpochSeconds::new(NOW), None);
        for (paused_after, stops) in [(Some(100), true), (None, false)] {
            let store = Memory::default();
            let work = async {
                let mut seconds = 0;
                while !store.stopped.get() && seconds < 600 {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    seconds += 1;
                    if Some(seconds) == paused_after {
                        let data = Raw::Text(format!(r#"{{"until": {}}}"#, NOW + 86_400));
                        let (bucket, ttl) = (Raw::Text("state".to_owned()), Raw::Absent);
                        let row = Row { key: key(), bucket, data, ttl, retired_from: Raw::Absent, bytes: 100 };
                        *store.row.borrow_mut() = Some(row);
                    }
                }
                seconds
            };
            let (seconds, pause) = stopping(&store, &clock, work).await;
            assert_eq!(pause.is_some(), stops);
            assert_eq!(seconds < 120, stops, "after {seconds} s");
        }
    }
}
