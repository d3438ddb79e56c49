//! Unreachable rows of unknown age: they go when they are seen unreachable twice, the grace period apart.
//!
//! A state row remembers them by a hash. Most are provider rows from before 3.7.4, which gave rows no TTL. The list is
//! bounded: what does not fit is remembered by a later run, when the first ones are gone.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::store::{OwnState, Result};
use shared::integrity::Sighting;
use shared::row::RowKey;
use shared::time::EpochSeconds;

pub(super) const NAME: &str = "index-repair-seen";
/// As many as fit into a state row with room to spare.
const MOST: usize = 5_000;
/// How often parts that write at once may be in each other's way.
const TRIES: u32 = 5;
/// What no walk has seen for so long is gone.
const FORGOTTEN_AFTER: i64 = 90 * 86_400;

pub(super) struct Seen {
    before: BTreeMap<String, i64>,
    now: EpochSeconds,
    grace: i64,
    /// Seen in this run, with when they were first seen.
    still: RefCell<BTreeMap<String, i64>>,
    /// Seen in this run for the last time: judged, and with that forgotten. One that could not be deleted begins anew.
    judged: RefCell<BTreeSet<String>>,
}

impl Seen {
    pub(super) async fn read<S: OwnState>(store: &S, now: EpochSeconds, grace: i64) -> Result<Self> {
        let stored = store.read_state(NAME).await?.map_or(Value::Null, |stored| stored.value);
        Ok(Self::of(&stored, now, grace))
    }

    /// As it is stored.
    pub(super) fn of(stored: &Value, now: EpochSeconds, grace: i64) -> Self {
        let before = stored["seen"].as_object().map_or_else(BTreeMap::new, |seen| {
            seen.iter().filter_map(|(hash, at)| Some((hash.clone(), at.as_i64()?))).collect()
        });
        Self { before, now, grace, still: RefCell::default(), judged: RefCell::default() }
    }

    /// Whether the row was seen like this before, long enough ago.
    pub(super) fn sighting(&self, key: &RowKey) -> Sighting {
        let hash = hash(key);
        match self.before.get(&hash) {
            Some(first) if self.now.get().saturating_sub(*first) >= self.grace => {
                self.judged.borrow_mut().insert(hash);
                Sighting::Again
            }
            _ => Sighting::First,
        }
    }

    /// Remembers a row that stays for now.
    pub(super) fn remember(&self, key: &RowKey) {
        let hash = hash(key);
        let first = self.before.get(&hash).copied().unwrap_or(self.now.get());
        let mut still = self.still.borrow_mut();
        if still.len() < MOST {
            still.insert(hash, first);
        }
    }

    /// Writes down what was seen; after a part of a walk also what is known by now, the longest known first. Other parts
    /// may write at the same time: then it is read once more.
    pub(super) async fn write<S: OwnState>(&self, store: &S, whole: bool) -> Result<()> {
        if whole {
            let seen = self.still.borrow().clone();
            return if seen == self.before { Ok(()) } else { store.write_state(NAME, &json!({"seen": seen})).await };
        }
        for _ in 0..TRIES {
            let stored = store.read_state(NAME).await?;
            let known = Self::of(stored.as_ref().map_or(&Value::Null, |stored| &stored.value), self.now, self.grace);
            let seen = self.with_known(&known.before);
            if seen == known.before {
                return Ok(());
            }
            let expected = stored.map(|stored| stored.text);
            if store.swap_state(NAME, expected.as_deref(), Some(&json!({"seen": seen}))).await? {
                return Ok(());
            }
        }
        // What is not remembered now is seen for the first time by the next run: it only waits longer.
        Ok(())
    }

    fn with_known(&self, known: &BTreeMap<String, i64>) -> BTreeMap<String, i64> {
        let mut seen = self.still.borrow().clone();
        let judged = self.judged.borrow();
        let open =
            |hash: &str, first: i64| !judged.contains(hash) && self.now.get().saturating_sub(first) < FORGOTTEN_AFTER;
        let open = known.iter().filter(|(hash, first)| open(hash, **first));
        seen.extend(open.map(|(hash, first)| (hash.clone(), *first)));
        if seen.len() > MOST {
            let mut by_age: Vec<(String, i64)> = seen.into_iter().collect();
            by_age.sort_by_key(|(_, first)| *first);
            by_age.truncate(MOST);
            seen = by_age.into_iter().collect();
        }
        seen
    }
}

fn hash(key: &RowKey) -> String {
    let digest = Sha256::new().chain_update(&key.owner).chain_update([0]).chain_update(&key.sort).finalize();
    let short = digest[..8].iter().fold(0, |sum: u64, byte| sum << 8 | u64::from(*byte));
    format!("{short:016x}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::{Seen, hash};
    use shared::integrity::Sighting;
    use shared::row::RowKey;
    use shared::time::EpochSeconds;

    #[test]
    fn what_was_judged_makes_room_for_others() {
        let [old, fresh, other] = ["old", "fresh", "other"].map(|name| RowKey::new("actor", name));
        let stored = json!({"seen": {hash(&old): 1_000, hash(&fresh): 9_000, hash(&other): 1_000}});
        let seen = Seen::of(&stored, EpochSeconds::new(10_000), 3_600);
        assert_eq!(seen.sighting(&old), Sighting::Again);
        assert_eq!(seen.sighting(&fresh), Sighting::First);
        seen.remember(&fresh);
        // Another segment's row, which this part has not met, stays as it is.
        assert_eq!(seen.with_known(&seen.before), BTreeMap::from([(hash(&fresh), 9_000), (hash(&other), 1_000)]));
    }
}
