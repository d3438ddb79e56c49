//! Checks that a run would work: tests each requirement on the table itself, without writing.

use serde::Serialize;
use strum::Display;

use crate::metrics::{RECOVERY_OFF, TtlHealth};
use crate::run::clock::RunClock;
use crate::store::{CheckPermission, InspectRecovery, InspectTable, Permission, Recovery, StoreError};
use shared::settings::{ExpiredRows, Mode};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Display)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum CheckState {
    Ok,
    /// A run works, but something should be set up.
    Warning,
    /// A run does not work.
    Failed,
    /// An earlier check failed.
    NotChecked,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    pub check: String,
    pub state: CheckState,
    /// What was found, and what to do about it.
    pub text: String,
}

impl Check {
    pub fn new(check: impl Into<String>, state: CheckState, text: impl Into<String>) -> Self {
        Self { check: check.into(), state, text: text.into() }
    }
}

/// Runs all checks of an open table.
pub async fn examine<S>(store: &S, mode: Mode, expired_rows: ExpiredRows, clock: &RunClock) -> Vec<Check>
where
    S: InspectTable + InspectRecovery + CheckPermission,
{
    let clock = match clock.offset_note() {
        Some(note) => Check::new("clock", CheckState::Warning, note),
        None => Check::new("clock", CheckState::Ok, "agrees with DynamoDB's"),
    };
    let mut checks = vec![clock, ttl(TtlHealth::from(store.ttl_setting().await)), recovery(store.recovery().await)];
    let mut needed = Permission::TO_READ.to_vec();
    if mode == Mode::Delete {
        needed.extend(Permission::TO_WRITE);
        needed.push(match expired_rows {
            ExpiredRows::Delete => Permission::PartiQLDelete,
            ExpiredRows::Retire => Permission::PartiQLUpdate,
        });
    }
    for permission in needed {
        checks.push(permitted(permission, store.ask(permission).await));
    }
    checks
}

fn ttl(health: TtlHealth) -> Check {
    match (&health, health.finding()) {
        (_, None) => Check::new("TTL", CheckState::Ok, "on for ttl_timestamp"),
        (TtlHealth::Off, Some(_)) => Check::new(
            "TTL",
            CheckState::Warning,
            "off: `janitor ttl enable` turns it on; DynamoDB then removes dead rows for free",
        ),
        (_, Some(finding)) => Check::new("TTL", CheckState::Warning, finding.text),
    }
}

fn recovery(recovery: Result<Recovery, StoreError>) -> Check {
    match recovery {
        Ok(Recovery::On) => Check::new("recovery", CheckState::Ok, "point-in-time recovery is on"),
        Ok(Recovery::NotOffered) => Check::new("recovery", CheckState::Ok, "a local engine has no backups"),
        Ok(Recovery::Off) => Check::new("recovery", CheckState::Warning, RECOVERY_OFF),
        Err(error) => {
            let text = format!("the point-in-time recovery setting could not be read: {error}");
            Check::new("recovery", CheckState::Warning, text)
        }
    }
}

fn permitted(permission: Permission, answer: Result<(), StoreError>) -> Check {
    let action = format!("dynamodb:{}", permission.action());
    match answer {
        Ok(()) => Check::new(action, CheckState::Ok, "allowed"),
        Err(StoreError::AccessDenied { .. }) => {
            let text = format!("denied: allow {action} on the table (docs/permissions.md)");
            Check::new(action, CheckState::Failed, text)
        }
        Err(error) => Check::new(action, CheckState::Failed, error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::{CheckState, permitted, recovery, ttl};
    use crate::metrics::TtlHealth;
    use crate::store::{Permission, Recovery, StoreError};

    #[test]
    fn what_a_run_cannot_do_without_has_failed_and_the_rest_is_a_warning() {
        let denied = || StoreError::AccessDenied {
            operation: "PutItem",
            table: "t".to_owned(),
            code: "AccessDenied".to_owned(),
        };
        assert_eq!(permitted(Permission::PutItem, Ok(())).state, CheckState::Ok);
        let refused = permitted(Permission::PutItem, Err(denied()));
        assert_eq!(refused.text, "denied: allow dynamodb:PutItem on the table (docs/permissions.md)");
        assert_eq!(refused.state, CheckState::Failed);
        assert_eq!(permitted(Permission::Scan, Err(StoreError::OutOfTime)).state, CheckState::Failed);
        assert_eq!(recovery(Ok(Recovery::On)).state, CheckState::Ok);
        for warned in
            [recovery(Ok(Recovery::Off)), recovery(Err(denied())), ttl(TtlHealth::Off), ttl(TtlHealth::TurningOn)]
        {
            assert_eq!(warned.state, CheckState::Warning, "{warned:?}");
        }
        assert_eq!(ttl(TtlHealth::On).state, CheckState::Ok);
    }
}
