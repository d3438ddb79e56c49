//! Ensures that the table has a stream with old images: reads the setting, enables the stream once, waits for DynamoDB.
//! An existing stream belongs to somebody: it is used or refused, never changed or disabled.

use std::time::Duration;

use crate::run::clock::RunClock;
use crate::run::pause::{self, Pause};
use crate::store::{EnableAnswer, ReadRows, StoreError, StreamSetting, SwitchStream, TableStream};

/// A stream that is on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    pub arn: String,
    pub view: String,
    /// It was enabled by this call.
    pub switched_on: bool,
}

/// The view types that include a removed row.
const VIEWS: [&str; 2] = ["OLD_IMAGE", "NEW_AND_OLD_IMAGES"];

/// What to do about a table's stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamStep {
    Accept { arn: String, view: String },
    Enable,
    Wait(StreamWait),
    Refuse { view: String },
}

/// What a call waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamWait {
    /// DynamoDB has confirmed that the stream is on, but does not show it yet.
    NotShown,
    /// Another change of the table, or this one, is in progress.
    TableBusy,
}

/// Why there is no stream to read. Each message is one line, for the stack's events.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    #[error(
        "refused: the stream of table {table} has the view type {view}, which cannot be changed, and the cascade needs OLD_IMAGE or NEW_AND_OLD_IMAGES: deploy without the cascade, or, if nothing reads this stream, turn it off and deploy again"
    )]
    View { table: String, view: String },
    #[error(
        "DynamoDB accepted the change, but still shows table {table} without a stream: check the table and deploy again"
    )]
    NotShown { table: String },
    #[error(
        "another change to table {table} is in progress and did not finish in time: deploy again when the table is active"
    )]
    TableBusy { table: String },
    #[error("{0}; the stream is off and was not enabled")]
    Paused(Pause),
    #[error("{0}")]
    Store(#[from] StoreError),
}

/// `confirmed`: DynamoDB has accepted the change, or said that there is a stream already. Its description can lag behind.
pub fn plan(table: TableStream, confirmed: bool) -> StreamStep {
    match (table.setting, table.busy, confirmed) {
        (StreamSetting::On { view, .. }, _, _) if !VIEWS.contains(&view.as_str()) => StreamStep::Refuse { view },
        // While the stream is being created it cannot be read, and the table accepts no other change, such as its TTL.
        (_, true, _) => StreamStep::Wait(StreamWait::TableBusy),
        (StreamSetting::On { arn, view }, false, _) => StreamStep::Accept { arn, view },
        (StreamSetting::Off, false, false) => StreamStep::Enable,
        (StreamSetting::Off, false, true) => StreamStep::Wait(StreamWait::NotShown),
    }
}

/// Enables the stream, and checks it every `poll` until it is on or the deadline is reached.
///
/// # Errors
/// When there is no usable stream at the end.
pub async fn switch_on<S: SwitchStream + ReadRows>(
    store: &S,
    table: &str,
    clock: &RunClock,
    poll: Duration,
) -> Result<Stream, StreamError> {
    let (mut asked, mut confirmed) = (false, false);
    loop {
        let wait = match plan(store.table_stream().await?, confirmed) {
            StreamStep::Accept { arn, view } => return Ok(Stream { arn, view, switched_on: asked }),
            StreamStep::Refuse { view } => return Err(StreamError::View { table: table.to_owned(), view }),
            StreamStep::Wait(wait) => wait,
            StreamStep::Enable => {
                if let Some(pause) = pause::read(store, clock).await? {
                    return Err(StreamError::Paused(pause));
                }
                match store.enable_stream().await? {
                    answer @ (EnableAnswer::Accepted | EnableAnswer::AlreadyOn) => {
                        asked |= answer == EnableAnswer::Accepted;
                        confirmed = true;
                        StreamWait::NotShown
                    }
                    EnableAnswer::TooSoon | EnableAnswer::TableBusy => StreamWait::TableBusy,
                }
            }
        };
        tracing::info!(table, waiting = ?wait, "waiting for DynamoDB");
        tokio::time::sleep(clock.time_left().map_or(poll, |left| poll.min(left))).await;
        if clock.time_is_up() {
            let table = table.to_owned();
            return Err(match wait {
                StreamWait::NotShown => StreamError::NotShown { table },
                StreamWait::TableBusy => StreamError::TableBusy { table },
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Stream, StreamError, StreamStep, StreamWait, plan, switch_on};
    use crate::run::clock::RunClock;
    use crate::store::{EnableAnswer, Result, StreamSetting, SwitchStream, TableStream};
    use crate::table_setup::script::Script;
    use shared::time::EpochSeconds;

    const ARN: &str = "arn:aws:dynamodb:r:1:table/t_attributes/stream/s";

    fn on(view: &str, busy: bool) -> TableStream {
        TableStream { setting: StreamSetting::On { arn: ARN.to_owned(), view: view.to_owned() }, busy }
    }

    fn off(busy: bool) -> TableStream {
        TableStream { setting: StreamSetting::Off, busy }
    }

    #[test]
    fn every_stream_has_its_step() {
        let accept = |view: &str| StreamStep::Accept { arn: ARN.to_owned(), view: view.to_owned() };
        let refuse = |view: &str| StreamStep::Refuse { view: view.to_owned() };
        for (table, before, after) in [
            (off(false), StreamStep::Enable, StreamStep::Wait(StreamWait::NotShown)),
            (off(true), StreamStep::Wait(StreamWait::TableBusy), StreamStep::Wait(StreamWait::TableBusy)),
            (on("OLD_IMAGE", false), accept("OLD_IMAGE"), accept("OLD_IMAGE")),
            (on("NEW_AND_OLD_IMAGES", false), accept("NEW_AND_OLD_IMAGES"), accept("NEW_AND_OLD_IMAGES")),
            (on("OLD_IMAGE", true), StreamStep::Wait(StreamWait::TableBusy), StreamStep::Wait(StreamWait::TableBusy)),
            (on("NEW_IMAGE", false), refuse("NEW_IMAGE"), refuse("NEW_IMAGE")),
            (on("KEYS_ONLY", true), refuse("KEYS_ONLY"), refuse("KEYS_ONLY")),
            (on("", false), refuse(""), refuse("")),
        ] {
            assert_eq!((plan(table.clone(), false), plan(table.clone(), true)), (before, after), "{table:?}");
        }
    }

    impl SwitchStream for Script<TableStream, EnableAnswer> {
        async fn table_stream(&self) -> Result<TableStream> {
            Ok(self.see())
        }

        async fn enable_stream(&self) -> Result<EnableAnswer> {
            Ok(self.ask())
        }
    }

    async fn run(script: &Script<TableStream, EnableAnswer>) -> Result<Stream, StreamError> {
        let clock = RunClock::start(EpochSeconds::new(0), Some(Duration::from_mins(1)));
        let seen = switch_on(script, "t_attributes", &clock, Duration::from_secs(2)).await;
        assert!(clock.elapsed() < Duration::from_mins(1), "the answer needs time, too");
        seen
    }

    #[tokio::test(start_paused = true)]
    async fn while_the_janitor_is_paused_a_stream_that_is_on_is_used_and_none_is_switched_on() {
        for (tables, is_used) in [(vec![on("OLD_IMAGE", false)], true), (vec![off(true), off(false)], false)] {
            let script = Script { is_paused: true, ..Script::new(tables, vec![EnableAnswer::Accepted]) };
            let seen = run(&script).await;
            assert_eq!((seen.is_ok(), script.asked.get()), (is_used, 0), "{seen:?}");
            assert!(is_used || matches!(seen, Err(StreamError::Paused(_))), "{seen:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn asks_only_when_there_is_no_stream_and_says_what_it_waited_for() {
        use EnableAnswer::{Accepted, AlreadyOn, TableBusy};
        let table = || "t_attributes".to_owned();
        let stream = |switched_on| Ok(Stream { arn: ARN.to_owned(), view: "OLD_IMAGE".to_owned(), switched_on });
        let (was_on, old) = (|| on("OLD_IMAGE", false), || on("OLD_IMAGE", true));
        for (tables, answers, outcome, asked) in [
            (vec![was_on()], vec![Accepted], stream(false), 0),
            (vec![off(false), old(), was_on()], vec![Accepted], stream(true), 1),
            (vec![off(false), off(false), off(true), was_on()], vec![Accepted], stream(true), 1),
            (vec![off(true), off(false), was_on()], vec![Accepted], stream(true), 1),
            (vec![off(false), off(false), was_on()], vec![TableBusy, Accepted], stream(true), 2),
            (vec![off(false), was_on()], vec![AlreadyOn], stream(false), 1),
            (
                vec![on("KEYS_ONLY", false)],
                vec![Accepted],
                Err(StreamError::View { table: table(), view: "KEYS_ONLY".to_owned() }),
                0,
            ),
            (
                vec![off(false), on("NEW_IMAGE", false)],
                vec![AlreadyOn],
                Err(StreamError::View { table: table(), view: "NEW_IMAGE".to_owned() }),
                1,
            ),
            (vec![off(false)], vec![Accepted], Err(StreamError::NotShown { table: table() }), 1),
            (vec![off(true)], vec![Accepted], Err(StreamError::TableBusy { table: table() }), 0),
        ] {
            let words = format!("{tables:?} {answers:?}");
            let script = Script::new(tables, answers);
            assert_eq!((run(&script).await, script.asked.get()), (outcome, asked), "{words}");
        }
    }
}
