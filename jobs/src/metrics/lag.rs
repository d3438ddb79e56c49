//! How late TTL is: histograms of ages, whose size does not depend on the number of rows.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use serde_json::json;

use super::census::times;

/// Significant bits of an age that are kept: the error is below one percent.
const KEPT_BITS: u32 = 8;

const HOUR: u64 = 3_600;
const DAY: u64 = 86_400;

/// A histogram of ages in seconds, with few cells, for people. It is exact and has a fixed size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ages {
    rows: [u64; Ages::UP_TO.len() + 1],
}

impl Ages {
    /// The largest age of each cell. One more cell holds older rows.
    pub const UP_TO: [u64; 8] = [HOUR, 6 * HOUR, DAY, 2 * DAY, 4 * DAY, 7 * DAY, 30 * DAY, 365 * DAY];

    pub fn add(&mut self, seconds: u64) {
        self.rows[Self::UP_TO.partition_point(|most| *most < seconds)] += 1;
    }

    /// See [`Counts::merge`](super::Counts::merge).
    pub fn merge(&mut self, other: &Self, factor: f64) {
        self.rows.iter_mut().zip(other.rows).for_each(|(mine, n)| *mine += times(n, factor));
    }

    /// The largest age of each cell (`None` for the last one) and its rows.
    pub fn cells(&self) -> impl Iterator<Item = (Option<u64>, u64)> {
        Self::UP_TO.into_iter().map(Some).chain([None]).zip(self.rows)
    }
}

impl Serialize for Ages {
    /// Each cell holds the rows that are too old for the cell before, the last one all that are older.
    fn serialize<T: Serializer>(&self, to: T) -> Result<T::Ok, T::Error> {
        to.collect_seq(self.cells().map(|(up_to, rows)| json!({"up_to_seconds": up_to, "rows": rows})))
    }
}

impl Serialize for Lags {
    fn serialize<T: Serializer>(&self, to: T) -> Result<T::Ok, T::Error> {
        let lag = json!({
            "rows": self.rows(),
            "median_seconds": self.percentile(50),
            "p95_seconds": self.percentile(95),
            "oldest_seconds": self.oldest(),
        });
        lag.serialize(to)
    }
}

/// A histogram of ages in seconds, whose cells grow with the age.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lags {
    /// Rows by the smallest age of their cell.
    cells: BTreeMap<u64, u64>,
    oldest: u64,
    /// The same rows for people: the cells above do not end at whole hours and days.
    ages: Ages,
}

impl Lags {
    pub fn add(&mut self, seconds: u64) {
        let dropped = (u64::BITS - seconds.leading_zeros()).saturating_sub(KEPT_BITS);
        *self.cells.entry(seconds >> dropped << dropped).or_default() += 1;
        self.oldest = self.oldest.max(seconds);
        self.ages.add(seconds);
    }

    /// See [`Counts::merge`](super::Counts::merge).
    pub fn merge(&mut self, other: &Self, factor: f64) {
        for (cell, n) in &other.cells {
            *self.cells.entry(*cell).or_default() += times(*n, factor);
        }
        self.oldest = self.oldest.max(other.oldest);
        self.ages.merge(&other.ages, factor);
    }

    pub fn rows(&self) -> u64 {
        self.cells.values().sum()
    }

    pub fn ages(&self) -> &Ages {
        &self.ages
    }

    /// The age that `percent` of the rows do not exceed, less than one percent too low; `None` without rows.
    pub fn percentile(&self, percent: u64) -> Option<u64> {
        let rank = (self.rows() * percent).div_ceil(100).max(1);
        let mut passed = 0;
        let (cell, _) = self.cells.iter().find(|(_, n)| {
            passed += **n;
            passed >= rank
        })?;
        // The largest age of the last cell is known exactly.
        let is_last = self.cells.last_key_value().is_some_and(|(last, _)| last == cell);
        Some(if is_last { self.oldest } else { *cell })
    }

    pub fn oldest(&self) -> Option<u64> {
        (!self.cells.is_empty()).then_some(self.oldest)
    }
}

#[cfg(test)]
mod tests {
    use super::{Ages, DAY, HOUR, Lags};

    #[test]
    fn an_age_is_in_the_first_cell_that_reaches_it() {
        let (mut ages, mut lags) = (Ages::default(), Lags::default());
        for age in [0, HOUR, HOUR + 1, 6 * HOUR, DAY, DAY + 1, 30 * DAY, 365 * DAY, 365 * DAY + 1, u64::MAX] {
            ages.add(age);
            lags.add(age);
        }
        assert_eq!(ages.rows, [2, 2, 1, 1, 0, 0, 1, 1, 2]);
        assert_eq!(ages.cells().last(), Some((None, 2)));
        let mut twice = ages;
        twice.merge(&ages, 1.0);
        lags.merge(&lags.clone(), 1.0);
        assert_eq!((twice.rows, lags.ages()), (ages.rows.map(|n| n * 2), &twice));
    }

    #[test]
    fn a_percentile_is_less_than_a_hundredth_off_and_the_oldest_is_exact() {
        let mut random = fastrand::Rng::with_seed(1);
        for most in [1, 2, 50, 200, 5_000, 1_000_000, 150_000_000] {
            let mut ages: Vec<u64> = (0..777).map(|_| random.u64(..most)).collect();
            let (mut one, mut other) = (Lags::default(), Lags::default());
            ages.iter().enumerate().for_each(|(i, age)| if i % 2 == 0 { one.add(*age) } else { other.add(*age) });
            one.merge(&other, 1.0);
            ages.sort_unstable();
            for percent in [1, 50, 95, 100] {
                let exact = ages[(777 * usize::try_from(percent).unwrap()).div_ceil(100) - 1];
                let told = one.percentile(percent).unwrap();
                assert!(told.abs_diff(exact) <= exact / 128, "{percent} % of {most}: {told} for {exact}");
            }
            assert_eq!(one.oldest(), ages.last().copied());
            assert_eq!(one.rows(), 777);
            assert!(one.cells.len() < 128 * 28, "{}", one.cells.len());
        }
    }

    #[test]
    fn nothing_has_no_percentile() {
        assert_eq!((Lags::default().percentile(50), Lags::default().oldest()), (None, None));
    }
}
