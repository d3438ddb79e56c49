//! Unreachable rows of unknown age: they are deleted when they are seen unreachable twice, the grace period apart.
//!
//! State rows store their hashes, divided into shards. Most are provider rows from before 3.7.4, which have no TTL: a
//! table may have hundreds of thousands.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::store::{OwnState, Result};
use shared::integrity::Sighting;
use shared::row::RowKey;
use shared::time::EpochSeconds;

/// Prefix of the names of the state rows.
const NAME: &str = "index-repair-seen-";
/// State rows: together they hold a million hashes.
const SHARDS: usize = 64;
/// As many as fit into a state row of 300 KB; all shards together need less than 50 MB of memory. A later run records
/// other rows, when the first ones are deleted.
const MAX_IN_SHARD: usize = 16_000;
/// Hexadecimal digits of a hash.
const DIGITS: usize = 16;
/// Attempts to write a shard that other segments write at the same time.
const TRIES: u32 = 5;
/// A hash is dropped after this time: its row no longer exists.
const FORGOTTEN_AFTER: i64 = 90 * 86_400;

/// Hashes of rows, and when they were first seen.
type Hashes = HashMap<u64, i64>;

pub(super) struct Seen {
    before: Hashes,
    now: EpochSeconds,
    grace: i64,
    /// Seen in this run, by shard: rows that are kept for now, with when they were first seen, and rows that were
    /// judged and are dropped for that reason (`None`). A row that could not be deleted starts again.
    met: RefCell<Vec<HashMap<u64, Option<i64>>>>,
}

impl Seen {
    pub(super) async fn read<S: OwnState>(store: &S, now: EpochSeconds, grace: i64) -> Result<Self> {
        let stored = store.read_states(NAME).await?;
        Ok(Self::of(&stored, now, grace))
    }

    /// From the values of the state rows.
    pub(super) fn of<'v>(stored: impl IntoIterator<Item = &'v Value>, now: EpochSeconds, grace: i64) -> Self {
        let before = stored.into_iter().flat_map(hashes_in).collect();
        Self { before, now, grace, met: RefCell::new(vec![HashMap::new(); SHARDS]) }
    }

    /// Whether the row was already seen in this state, long enough ago.
    pub(super) fn sighting(&self, key: &RowKey) -> Sighting {
        let hash = hash(key);
        let first = self.before.get(&hash).copied().map(EpochSeconds::new);
        let sighting = Sighting::since(first, self.now, self.grace);
        if sighting == Sighting::Again {
            self.met.borrow_mut()[shard(hash)].insert(hash, None);
        }
        sighting
    }

    /// Records a row that is kept for now, and that was read by `at`: a run may take longer than the grace period.
    pub(super) fn remember(&self, key: &RowKey, at: EpochSeconds) {
        let hash = hash(key);
        let first = self.before.get(&hash).copied().unwrap_or(rounded_up(at));
        let met = &mut self.met.borrow_mut()[shard(hash)];
        if met.len() < MAX_IN_SHARD || met.contains_key(&hash) {
            met.insert(hash, Some(first));
        }
    }

    /// Stores what was seen. After a partial walk, stored hashes are kept too, the oldest first. Other segments may
    /// write at the same time: then the shard is read again.
    pub(super) async fn write<S: OwnState>(&self, store: &S, whole: bool) -> Result<()> {
        let met = self.met.take();
        for (shard, met) in met.into_iter().enumerate() {
            if whole || !met.is_empty() {
                self.write_shard(store, shard, &met, whole).await?;
            }
        }
        Ok(())
    }

    async fn write_shard<S: OwnState>(
        &self,
        store: &S,
        number: usize,
        met: &HashMap<u64, Option<i64>>,
        whole: bool,
    ) -> Result<()> {
        let name = shard_name(number);
        let mut known: Hashes = self
            .before
            .iter()
            .filter(|(hash, _)| shard(**hash) == number)
            .map(|(hash, first)| (*hash, *first))
            .collect();
        let still = |known: &Hashes| if whole { kept(met) } else { self.with_known(met, known) };
        if still(&known) == known {
            return Ok(());
        }
        for _ in 0..TRIES {
            let stored = store.read_state(&name).await?;
            known = stored.iter().flat_map(|stored| hashes_in(&stored.value)).collect();
            let seen = still(&known);
            let value = (!seen.is_empty()).then(|| to_json(&seen));
            if seen == known && (value.is_some() || stored.is_none()) {
                return Ok(());
            }
            let expected = stored.map(|stored| stored.text);
            if store.swap_state(&name, expected.as_deref(), value.as_ref()).await? {
                return Ok(());
            }
        }
        // A row that is not recorded now is seen for the first time by the next run: it is only kept longer.
        Ok(())
    }

    fn with_known(&self, met: &HashMap<u64, Option<i64>>, known: &Hashes) -> Hashes {
        let mut seen = kept(met);
        let open = |hash: &u64, first: i64| {
            met.get(hash) != Some(&None) && self.now.get().saturating_sub(first) < FORGOTTEN_AFTER
        };
        seen.extend(known.iter().filter(|(hash, first)| open(hash, **first)));
        if seen.len() > MAX_IN_SHARD {
            let mut by_age: Vec<(u64, i64)> = seen.into_iter().collect();
            by_age.sort_unstable_by_key(|(hash, first)| (*first, *hash));
            by_age.truncate(MAX_IN_SHARD);
            seen = by_age.into_iter().collect();
        }
        seen
    }
}

fn kept(met: &HashMap<u64, Option<i64>>) -> Hashes {
    met.iter().filter_map(|(hash, first)| Some((*hash, (*first)?))).collect()
}

/// To the next minute, so that a state row has few different times, and never an earlier one.
fn rounded_up(at: EpochSeconds) -> i64 {
    at.get().div_euclid(60).saturating_add(1).saturating_mul(60)
}

/// Groups the hashes by when they were first seen, which is the same for many, and concatenates them.
fn to_json(seen: &Hashes) -> Value {
    let mut by_time: BTreeMap<i64, Vec<u64>> = BTreeMap::new();
    for (hash, first) in seen {
        by_time.entry(*first).or_default().push(*hash);
    }
    let joined = by_time.into_iter().map(|(first, mut hashes)| {
        hashes.sort_unstable();
        let text = hashes.iter().fold(String::with_capacity(DIGITS * hashes.len()), |mut text, hash| {
            // Writing into a String cannot fail.
            let _ = write!(text, "{hash:0DIGITS$x}");
            text
        });
        (first.to_string(), text)
    });
    json!({"seen": joined.collect::<BTreeMap<_, _>>()})
}

fn hashes_in(stored: &Value) -> Vec<(u64, i64)> {
    let times = stored["seen"].as_object().into_iter().flatten();
    let read = |(first, hashes): (&String, &Value)| {
        let (first, hashes) = (first.parse().ok()?, hashes.as_str()?.as_bytes());
        let read = |hash: &[u8]| u64::from_str_radix(std::str::from_utf8(hash).ok()?, 16).ok();
        Some(hashes.chunks_exact(DIGITS).filter_map(|hash| Some((read(hash)?, first))).collect::<Vec<_>>())
    };
    times.filter_map(read).flatten().collect()
}

/// The name of the state row that records a row.
pub(super) fn state_name(key: &RowKey) -> String {
    shard_name(shard(hash(key)))
}

fn shard_name(shard: usize) -> String {
    format!("{NAME}{shard:02}")
}

#[expect(clippy::cast_possible_truncation, reason = "below the number of shards")]
fn shard(hash: u64) -> usize {
    (hash % SHARDS as u64) as usize
}

fn hash(key: &RowKey) -> u64 {
    let digest = Sha256::new().chain_update(&key.owner).chain_update([0]).chain_update(&key.sort).finalize();
    digest[..8].iter().fold(0, |sum: u64, byte| sum << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::{BTreeMap, HashMap};

    use serde_json::Value;

    use super::{Seen, hash, to_json};
    use crate::store::{OwnState, Result, Stored};
    use shared::integrity::Sighting;
    use shared::row::RowKey;
    use shared::time::EpochSeconds;

    #[test]
    fn what_was_judged_makes_room_for_others() {
        let [old, fresh, other] = ["old", "fresh", "other"].map(|name| RowKey::new("actor", name));
        let stored = to_json(&HashMap::from([(hash(&old), 1_000), (hash(&fresh), 9_000), (hash(&other), 1_000)]));
        let seen = Seen::of([&stored], EpochSeconds::new(10_000), 3_600);
        assert_eq!(seen.sighting(&old), Sighting::Again);
        assert_eq!(seen.sighting(&fresh), Sighting::First);
        seen.remember(&fresh, EpochSeconds::new(10_000));
        // The row of another segment, which this one has not seen, is kept.
        let met = seen.met.take().into_iter().flatten().collect();
        let expected = HashMap::from([(hash(&fresh), 9_000), (hash(&other), 1_000)]);
        assert_eq!(seen.with_known(&met, &seen.before), expected);
    }

    /// State rows in memory.
    #[derive(Default)]
    struct Rows(RefCell<BTreeMap<String, String>>);

    impl OwnState for Rows {
        async fn read_state(&self, name: &str) -> Result<Option<Stored>> {
            let text = self.0.borrow().get(name).cloned();
            Ok(text.map(|text| Stored { value: serde_json::from_str(&text).unwrap(), text }))
        }

        async fn swap_state(&self, name: &str, expected: Option<&str>, value: Option<&Value>) -> Result<bool> {
            let holds = self.0.borrow().get(name).map(String::as_str) == expected;
            match value {
                Some(value) if holds => drop(self.0.borrow_mut().insert(name.to_owned(), value.to_string())),
                None if holds => drop(self.0.borrow_mut().remove(name)),
                _ => {}
            }
            Ok(holds)
        }

        async fn write_state(&self, name: &str, value: &Value) -> Result<()> {
            self.0.borrow_mut().insert(name.to_owned(), value.to_string());
            Ok(())
        }

        async fn read_states(&self, prefix: &str) -> Result<Vec<Value>> {
            let rows = self.0.borrow();
            let named = rows.iter().filter(|(name, _)| name.starts_with(prefix));
            Ok(named.map(|(_, text)| serde_json::from_str(text).unwrap()).collect())
        }

        async fn holds_state(&self) -> Result<bool> {
            Ok(true)
        }
    }

    fn provider(i: u32) -> RowKey {
        RowKey::new(format!("actor{}", i % 900), format!("mcp_google_tokens:google_token_access_secret{i}"))
    }

    #[tokio::test]
    async fn remembers_every_row_of_a_table_from_before_ttls_in_rows_that_fit() {
        let (store, rows) = (Rows::default(), 180_000);
        for (whole, at) in [(true, 1_000_000), (false, 1_000_100)] {
            let first = Seen::read(&store, EpochSeconds::new(at), 3_600).await.unwrap();
            for i in 0..rows {
                assert_eq!(first.sighting(&provider(i)), Sighting::First);
                first.remember(&provider(i), EpochSeconds::new(at));
            }
            first.write(&store, whole).await.unwrap();
        }
        for text in store.0.borrow().values() {
            assert!(text.len() < 300_000 && !text.contains("secret"), "{}", text.len());
        }
        // The grace period starts at the first sighting, not at the second.
        let again = Seen::read(&store, EpochSeconds::new(1_003_681), 3_600).await.unwrap();
        let old = (0..rows).filter(|i| again.sighting(&provider(*i)) == Sighting::Again).count();
        assert_eq!(old, 180_000);
        // All were judged: nothing is left to record.
        again.write(&store, true).await.unwrap();
        assert!(store.0.borrow().is_empty(), "{} rows", store.0.borrow().len());
    }

    /// Otherwise the next run could delete a row that it read a second after the first sighting.
    #[tokio::test]
    async fn the_grace_period_of_a_row_starts_when_it_is_read_and_not_when_the_run_starts() {
        let (store, row) = (Rows::default(), provider(1));
        let long = Seen::read(&store, EpochSeconds::new(10_000), 3_600).await.unwrap();
        assert_eq!(long.sighting(&row), Sighting::First);
        long.remember(&row, EpochSeconds::new(13_990));
        long.write(&store, false).await.unwrap();
        for (now, sighting) in [(14_000, Sighting::First), (17_640, Sighting::First), (17_641, Sighting::Again)] {
            let next = Seen::read(&store, EpochSeconds::new(now), 3_600).await.unwrap();
            assert_eq!(next.sighting(&row), sighting, "{now}");
        }
    }

    #[tokio::test]
    async fn parts_that_write_at_once_forget_nothing_of_each_other() {
        let store = Rows::default();
        let parts: Vec<Seen> = futures_util::future::join_all(
            (0..4).map(|_| async { Seen::read(&store, EpochSeconds::new(1_000), 3_600).await.unwrap() }),
        )
        .await;
        for (part, seen) in (0..).zip(&parts) {
            (0..500).for_each(|i| seen.remember(&provider(part * 500 + i), EpochSeconds::new(1_000)));
        }
        for seen in &parts {
            seen.write(&store, false).await.unwrap();
        }
        let later = Seen::read(&store, EpochSeconds::new(9_000), 3_600).await.unwrap();
        assert!((0..2_000).all(|i| later.sighting(&provider(i)) == Sighting::Again));
    }
}
