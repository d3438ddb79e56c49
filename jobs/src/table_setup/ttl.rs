//! Ensures that the table's TTL is on for ActingWeb's attribute: reads it, enables it once, waits for DynamoDB.

use std::time::Duration;

use crate::run::clock::RunClock;
use crate::run::pause::{self, Pause};
use crate::store::{EnableAnswer, InspectTable, ReadRows, StoreError, SwitchTtl, TtlSetting};
use shared::bucket::TTL_ATTRIBUTE;

/// A successful result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switched {
    WasOn,
    NowOn,
    /// DynamoDB is enabling TTL. That takes up to an hour, and only another change can stop it, so nobody waits.
    BeingEnabled,
}

/// What to do about a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TtlStep {
    Accept,
    /// It is being turned on: accepted at once.
    AcceptEnabling,
    Enable,
    Wait(TtlWait),
    /// It is on for another attribute.
    Refuse {
        attribute: String,
    },
}

/// What a call waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TtlWait {
    /// DynamoDB has confirmed that TTL is on or will be, but does not show it yet.
    NotShown,
    /// TTL is being disabled. It can be enabled afterwards.
    Disabling,
    /// DynamoDB does not allow another change yet.
    TooSoon,
    /// Another change of the table is in progress.
    TableBusy,
}

/// Why TTL is not on. Each message is one line, for the stack's events.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SwitchError {
    #[error(
        "refused: TTL of table {table} is on for attribute {attribute}, not {TTL_ATTRIBUTE}: DynamoDB has one TTL attribute per table; if nothing needs that one, disable it, wait an hour, and deploy again"
    )]
    OtherAttribute { table: String, attribute: String },
    #[error(
        "TTL was disabled less than an hour ago; DynamoDB refuses another change for up to an hour: deploy again later"
    )]
    SwitchedOffLately,
    #[error(
        "DynamoDB accepted the change, but still shows TTL of table {table} as off: check the table and deploy again"
    )]
    NotShown { table: String },
    #[error(
        "another change to table {table} is in progress and did not finish in time: deploy again when the table is active"
    )]
    TableBusy { table: String },
    #[error("table {table} does not exist in this account and region: check the resource's TableName")]
    TableMissing { table: String },
    #[error(
        "refused: table {table} is not an ActingWeb attributes table: its keys are {keys}, not id (HASH), bucket_name (RANGE), both strings: check the resource's TableName"
    )]
    ForeignKeys { table: String, keys: String },
    #[error(
        "DynamoDB did not answer in time: check the network, the region and AWS_ENDPOINT_URL_DYNAMODB, or give the function a longer timeout"
    )]
    OutOfTime,
    #[error("{0}; TTL is off and was not enabled")]
    Paused(Pause),
    #[error("{0}")]
    Store(StoreError),
}

impl From<StoreError> for SwitchError {
    /// The same causes; here the table is named by a property of the resource, not by a setting.
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::TableMissing { table } => SwitchError::TableMissing { table },
            StoreError::ForeignKeys { table, keys } => SwitchError::ForeignKeys { table, keys },
            StoreError::OutOfTime => SwitchError::OutOfTime,
            other => SwitchError::Store(other),
        }
    }
}

/// `confirmed`: DynamoDB has accepted the change, or said that TTL is on already. Its description can lag behind that.
pub fn plan(setting: &TtlSetting, confirmed: bool) -> TtlStep {
    let ours = |attribute: &str| attribute == TTL_ATTRIBUTE;
    match (setting, confirmed) {
        (TtlSetting::On { attribute }, _) if ours(attribute) => TtlStep::Accept,
        (TtlSetting::Enabling { attribute }, _) if ours(attribute) => TtlStep::AcceptEnabling,
        (TtlSetting::On { attribute } | TtlSetting::Enabling { attribute }, _) => {
            TtlStep::Refuse { attribute: attribute.clone() }
        }
        // For any attribute: once TTL is off, it can be enabled for ours.
        (TtlSetting::Disabling { .. }, _) => TtlStep::Wait(TtlWait::Disabling),
        (TtlSetting::Off, false) => TtlStep::Enable,
        (TtlSetting::Off, true) => TtlStep::Wait(TtlWait::NotShown),
    }
}

/// Enables TTL, and checks it every `poll` until it is on or the deadline is reached.
///
/// # Errors
/// When TTL is not on at the end, and is not being enabled.
pub async fn switch_on<S: InspectTable + SwitchTtl + ReadRows>(
    store: &S,
    table: &str,
    clock: &RunClock,
    poll: Duration,
) -> Result<Switched, SwitchError> {
    let mut waiting = None;
    let switched = switch(store, table, clock, poll, &mut waiting).await;
    let table = table.to_owned();
    match (switched, waiting) {
        (Err(SwitchError::OutOfTime), Some(TtlWait::NotShown)) => Err(SwitchError::NotShown { table }),
        (Err(SwitchError::OutOfTime), Some(TtlWait::Disabling | TtlWait::TooSoon)) => {
            Err(SwitchError::SwitchedOffLately)
        }
        (Err(SwitchError::OutOfTime), Some(TtlWait::TableBusy)) => Err(SwitchError::TableBusy { table }),
        (switched, _) => switched,
    }
}

/// `waiting` is what the call was waiting for at the deadline.
async fn switch<S: InspectTable + SwitchTtl + ReadRows>(
    store: &S,
    table: &str,
    clock: &RunClock,
    poll: Duration,
    waiting: &mut Option<TtlWait>,
) -> Result<Switched, SwitchError> {
    let (mut asked, mut confirmed) = (false, false);
    loop {
        let setting = store.ttl_setting().await?;
        if matches!(setting, TtlSetting::Disabling { .. }) {
            // Somebody has disabled TTL since it was confirmed.
            confirmed = false;
        }
        let wait = match plan(&setting, confirmed) {
            TtlStep::Accept => return Ok(if asked { Switched::NowOn } else { Switched::WasOn }),
            TtlStep::AcceptEnabling => return Ok(Switched::BeingEnabled),
            TtlStep::Refuse { attribute } => {
                return Err(SwitchError::OtherAttribute { table: table.to_owned(), attribute });
            }
            TtlStep::Wait(wait) => wait,
            TtlStep::Enable => {
                if let Some(pause) = pause::read(store, clock).await? {
                    return Err(SwitchError::Paused(pause));
                }
                match store.enable_ttl().await? {
                    answer @ (EnableAnswer::Accepted | EnableAnswer::AlreadyOn) => {
                        asked |= answer == EnableAnswer::Accepted;
                        confirmed = true;
                        *waiting = Some(TtlWait::NotShown);
                        continue;
                    }
                    EnableAnswer::TooSoon => TtlWait::TooSoon,
                    EnableAnswer::TableBusy => TtlWait::TableBusy,
                }
            }
        };
        *waiting = Some(wait);
        tracing::info!(table, waiting = ?wait, "waiting for DynamoDB");
        tokio::time::sleep(clock.time_left().map_or(poll, |left| poll.min(left))).await;
        if clock.time_is_up() {
            return Err(SwitchError::OutOfTime);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{SwitchError, Switched, TtlStep, TtlWait, plan, switch_on};
    use crate::run::clock::RunClock;
    use crate::store::{Billing, EnableAnswer, InspectTable, Result, StoreError, SwitchTtl, TableFigures, TtlSetting};
    use crate::table_setup::script::Script;
    use shared::time::EpochSeconds;

    const OURS: &str = "ttl_timestamp";

    fn on(attribute: &str) -> TtlSetting {
        TtlSetting::On { attribute: attribute.to_owned() }
    }

    fn enabling(attribute: &str) -> TtlSetting {
        TtlSetting::Enabling { attribute: attribute.to_owned() }
    }

    fn disabling(attribute: &str) -> TtlSetting {
        TtlSetting::Disabling { attribute: attribute.to_owned() }
    }

    #[test]
    fn every_setting_has_its_step() {
        let refuse = |attribute: &str| TtlStep::Refuse { attribute: attribute.to_owned() };
        // Setting; step before and after DynamoDB has said that TTL is on.
        for (setting, before, after) in [
            (TtlSetting::Off, TtlStep::Enable, TtlStep::Wait(TtlWait::NotShown)),
            (on(OURS), TtlStep::Accept, TtlStep::Accept),
            (on("ttl"), refuse("ttl"), refuse("ttl")),
            (on("TTL_timestamp"), refuse("TTL_timestamp"), refuse("TTL_timestamp")),
            (on(""), refuse(""), refuse("")),
            (enabling(OURS), TtlStep::AcceptEnabling, TtlStep::AcceptEnabling),
            (enabling("ttl"), refuse("ttl"), refuse("ttl")),
            (disabling(OURS), TtlStep::Wait(TtlWait::Disabling), TtlStep::Wait(TtlWait::Disabling)),
            (disabling("ttl"), TtlStep::Wait(TtlWait::Disabling), TtlStep::Wait(TtlWait::Disabling)),
        ] {
            assert_eq!(plan(&setting, false), before, "{setting:?}");
            assert_eq!(plan(&setting, true), after, "{setting:?}");
        }
    }

    type Table = Script<Result<TtlSetting>, Result<EnableAnswer>>;

    impl InspectTable for Table {
        fn figures(&self) -> &TableFigures {
            const FIGURES: &TableFigures = &TableFigures {
                arn: String::new(),
                rows: 0,
                bytes: 0,
                billing: Billing::Provisioned { read_units: 26.0, write_units: 2.0 },
                stream: None,
            };
            FIGURES
        }

        async fn ttl_setting(&self) -> Result<TtlSetting> {
            self.see()
        }
    }

    impl SwitchTtl for Table {
        async fn enable_ttl(&self) -> Result<EnableAnswer> {
            self.ask()
        }
    }

    async fn run(settings: &[TtlSetting], answers: &[EnableAnswer]) -> (Result<Switched, SwitchError>, u32) {
        run_with(settings.iter().cloned().map(Ok).collect(), answers.iter().copied().map(Ok).collect()).await
    }

    async fn run_with(
        settings: Vec<Result<TtlSetting>>,
        answers: Vec<Result<EnableAnswer>>,
    ) -> (Result<Switched, SwitchError>, u32) {
        run_script(Script::new(settings, answers)).await
    }

    async fn run_script(script: Table) -> (Result<Switched, SwitchError>, u32) {
        let clock = RunClock::start(EpochSeconds::new(0), Some(Duration::from_mins(1)));
        let outcome = switch_on(&script, "t_attributes", &clock, Duration::from_secs(2)).await;
        assert!(clock.elapsed() < Duration::from_mins(1), "the answer needs time, too");
        (outcome, script.asked.get())
    }

    #[tokio::test(start_paused = true)]
    async fn asks_only_when_ttl_is_off_and_only_once() {
        use EnableAnswer::{Accepted, AlreadyOn, TableBusy, TooSoon};
        let off = || TtlSetting::Off;
        for (settings, answers, outcome, asked) in [
            (vec![on(OURS)], vec![Accepted], Switched::WasOn, 0),
            // Enabling takes up to an hour, and nobody waits for it.
            (vec![enabling(OURS), on(OURS)], vec![Accepted], Switched::BeingEnabled, 0),
            (vec![off(), on(OURS)], vec![Accepted], Switched::NowOn, 1),
            (vec![off(), enabling(OURS), enabling(OURS), on(OURS)], vec![Accepted], Switched::BeingEnabled, 1),
            // The description lags behind the answer.
            (vec![off(), off(), off(), enabling(OURS), on(OURS)], vec![Accepted], Switched::BeingEnabled, 1),
            (vec![off(), on(OURS)], vec![AlreadyOn], Switched::WasOn, 1),
            (vec![off(), off(), on(OURS)], vec![AlreadyOn], Switched::WasOn, 1),
            (vec![disabling(OURS), disabling("ttl"), off(), on(OURS)], vec![Accepted], Switched::NowOn, 1),
            (vec![off(), off(), off(), on(OURS)], vec![TooSoon, TableBusy, Accepted], Switched::NowOn, 3),
            (vec![enabling(OURS)], vec![Accepted], Switched::BeingEnabled, 0),
            (vec![off(), enabling(OURS)], vec![Accepted], Switched::BeingEnabled, 1),
            // Disabled by somebody else after it was accepted.
            (vec![off(), disabling(OURS), off(), on(OURS)], vec![Accepted], Switched::NowOn, 2),
        ] {
            assert_eq!(run(&settings, &answers).await, (Ok(outcome), asked), "{settings:?} {answers:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn while_the_janitor_is_paused_a_ttl_that_is_on_is_accepted_and_none_is_switched_on() {
        for (settings, is_well) in [
            (vec![on(OURS)], true),
            (vec![enabling(OURS)], true),
            (vec![TtlSetting::Off], false),
            (vec![disabling(OURS), TtlSetting::Off], false),
        ] {
            let settings: Vec<_> = settings.into_iter().map(Ok).collect();
            let script = Script { is_paused: true, ..Script::new(settings, vec![Ok(EnableAnswer::Accepted)]) };
            let (outcome, asked) = run_script(script).await;
            assert_eq!((outcome.is_ok(), asked), (is_well, 0), "{outcome:?}");
            assert!(is_well || matches!(outcome, Err(SwitchError::Paused(_))), "{outcome:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn says_what_it_waited_for_when_the_time_is_up() {
        use EnableAnswer::{Accepted, AlreadyOn, TableBusy, TooSoon};
        let table = || "t_attributes".to_owned();
        let other = SwitchError::OtherAttribute { table: table(), attribute: "ttl".to_owned() };
        for (settings, answers, error) in [
            (vec![disabling(OURS)], vec![Accepted], SwitchError::SwitchedOffLately),
            (vec![disabling("ttl"), TtlSetting::Off], vec![TooSoon], SwitchError::SwitchedOffLately),
            (vec![TtlSetting::Off], vec![TooSoon], SwitchError::SwitchedOffLately),
            (vec![TtlSetting::Off], vec![TableBusy], SwitchError::TableBusy { table: table() }),
            (vec![TtlSetting::Off], vec![Accepted], SwitchError::NotShown { table: table() }),
            (vec![on("ttl")], vec![Accepted], other.clone()),
            (vec![enabling("ttl")], vec![Accepted], other.clone()),
            (vec![TtlSetting::Off, on("ttl")], vec![AlreadyOn], other),
        ] {
            assert_eq!(run(&settings, &answers).await.0, Err(error), "{settings:?} {answers:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_description_that_does_not_come_in_time_leaves_what_was_seen_before() {
        let late = || Err(StoreError::OutOfTime);
        let accepted = || vec![Ok(EnableAnswer::Accepted)];
        assert_eq!(run_with(vec![late()], accepted()).await.0, Err(SwitchError::OutOfTime));
        assert_eq!(run_with(vec![Ok(enabling(OURS)), late()], accepted()).await.0, Ok(Switched::BeingEnabled));
        assert_eq!(
            run_with(vec![Ok(disabling(OURS)), late()], accepted()).await.0,
            Err(SwitchError::SwitchedOffLately)
        );
        assert_eq!(
            run_with(vec![Ok(TtlSetting::Off)], vec![Err(StoreError::OutOfTime)]).await.0,
            Err(SwitchError::OutOfTime)
        );
    }
}
