//! Who holds the lease: decisions on its state row, which names the run that holds it and its expiry.

use serde_json::{Value, json};

use crate::time::EpochSeconds;

/// How long a lease is valid without being renewed.
pub const LEASE_SECONDS: i64 = 60;
/// The same for a lease that the runs of an execution share: longer than a run waits before it is retried.
pub const SHARED_SECONDS: i64 = 600;

/// Stands for a holder that cannot be read.
pub const ANOTHER: &str = "unknown";

/// The run that holds the lease, and the seconds until it expires, unless it is renewed.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, thiserror::Error)]
#[error(
    "another run ({by}) holds the lease for another {seconds} s; nothing was deleted. If that run was killed, try again after that"
)]
pub struct Holder {
    pub by: String,
    pub seconds: i64,
}

/// The state row of a lease.
pub fn lease(holder: &str, until: EpochSeconds) -> Value {
    json!({"holder": holder, "until": until.get()})
}

/// Whether the lease is this run's, expired or not.
pub fn is_of(lease: &Value, run: &str) -> bool {
    lease["holder"] == run
}

/// The other run that holds the lease. `None`: this run may write it, on the condition that it is still what was read.
pub fn held_by_another(lease: &Value, run: &str, now: EpochSeconds) -> Option<Holder> {
    holder(lease, now).filter(|_| !is_of(lease, run))
}

/// Who holds the lease of this state row. `None` when it has expired or cannot be read.
pub fn holder(lease: &Value, now: EpochSeconds) -> Option<Holder> {
    let seconds = lease["until"].as_i64()?.saturating_sub(now.get());
    // A lease that expires later than any run would write was written by a wrong clock; it must not block forever.
    let held = (0..=2 * SHARED_SECONDS).contains(&seconds);
    held.then(|| Holder { by: shown(lease["holder"].as_str().unwrap_or(ANOTHER)), seconds })
}

/// The holder for display: of an execution's ARN, the state machine and the name.
fn shown(holder: &str) -> String {
    let name = [":execution:", ":express:"].iter().find_map(|part| holder.split_once(part)).map(|(_, name)| name);
    name.unwrap_or(holder).chars().take(100).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Holder, SHARED_SECONDS, held_by_another, holder, is_of, lease};
    use crate::time::EpochSeconds;

    const NOW: EpochSeconds = EpochSeconds::new(1_800_000_000);

    #[test]
    fn a_lease_holds_through_its_last_second_and_for_nobody_but_its_holder() {
        for (seconds, held) in [
            (-1, None),
            (0, Some(0)),
            (60, Some(60)),
            (2 * SHARED_SECONDS, Some(2 * SHARED_SECONDS)),
            (2 * SHARED_SECONDS + 1, None),
        ] {
            let row = lease("one", NOW.plus(seconds));
            assert_eq!(holder(&row, NOW), held.map(|seconds| Holder { by: "one".to_owned(), seconds }), "{seconds}");
            assert_eq!(held_by_another(&row, "two", NOW), holder(&row, NOW), "{seconds}");
            assert_eq!(held_by_another(&row, "one", NOW), None, "{seconds}");
            assert!(is_of(&row, "one") && !is_of(&row, "two"), "lapsed or not");
        }
        for unreadable in [json!(null), json!({}), json!({"until": "1800000060"}), json!([1])] {
            assert_eq!(held_by_another(&unreadable, "one", NOW), None, "{unreadable}");
        }
    }
}
