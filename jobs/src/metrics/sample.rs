//! Estimates counts: names are uniformly random within a bucket, so a stretch of them is a fair sample.
//!
//! The name of a row is a place between 0 and 1. A bucket is read in stretches that start at evenly spaced places, each
//! with a limited number of rows. The rows read, divided by the width of these stretches, are the size of the bucket.
//! The error is about `1 / sqrt(rows read)`; error and cost do not depend on the size.

use shared::bucket::Names;

/// How many rows are counted, and how many are read for an estimate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Up to this many rows of the system actors, all are counted.
    pub exact_rows: u64,
    /// Rows read for an estimate, in addition to the first look at each bucket.
    pub sample_rows: u64,
    /// Rows read first of each bucket: a smaller bucket is counted.
    pub first_look: u64,
    /// Where the stretches start between two evenly spaced places, from 0 to 1: different for each count.
    pub offset: f64,
}

impl Sampling {
    /// The start of the stretches depends on the time.
    #[expect(clippy::cast_precision_loss, reason = "seconds are far below 2^52")]
    pub fn at(now: shared::time::EpochSeconds) -> Self {
        // Multiples of the golden ratio are spread evenly, however close the counts are.
        let offset = ((now.get() / 60) as f64 * 0.618_033_988_749_895).fract();
        Self { exact_rows: 20_000, sample_rows: 20_000, first_look: 400, offset }
    }

    /// A small sample: at most about 200 read units, and an error of a few percent.
    pub fn brief(now: shared::time::EpochSeconds) -> Self {
        Self { exact_rows: 2_000, sample_rows: 2_000, first_look: 100, ..Self::at(now) }
    }

    /// The start and the end of each stretch of a bucket.
    pub fn stretches(&self) -> impl Iterator<Item = (f64, f64)> {
        let width = 1.0 / f64::from(STRETCHES);
        let first = self.offset * width;
        let rest = (0..STRETCHES).map(move |number| {
            let from = first + f64::from(number) * width;
            (from, (from + width).min(1.0))
        });
        std::iter::once((0.0, first)).chain(rest).filter(|(from, until)| from < until)
    }

    /// Rows of each stretch of a bucket that has this share of all rows.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a small number")]
    pub fn rows_of_stretch(&self, share: f64) -> u64 {
        ((as_f64(self.sample_rows) * share / f64::from(STRETCHES)).ceil() as u64).max(LEAST_OF_STRETCH)
    }
}

/// Stretches of a bucket. With more of them, names need not be quite random, but each rounds its units up.
const STRETCHES: u32 = 32;
/// Fewer rows are not enough to measure a width.
const LEAST_OF_STRETCH: u64 = 10;
/// Characters of a name that determine its place.
const CHARACTERS: usize = 9;

/// The part of a bucket that was read.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sampled {
    pub(super) rows: u64,
    pub(super) width: f64,
    /// A stretch ended at a row, not at a place: its width is then a little too small for its rows.
    pub(super) ended_at_row: bool,
}

impl Sampled {
    pub(super) fn add(&mut self, stretch: Self) {
        self.rows += stretch.rows;
        self.width += stretch.width;
        self.ended_at_row |= stretch.ended_at_row;
    }

    /// The factor by which the rows read are multiplied.
    pub(super) fn factor(&self) -> f64 {
        if self.rows == 0 || self.width <= 0.0 {
            return 1.0;
        }
        // The width of n random gaps is an unbiased measure of n - 1 gaps.
        let rows_of_width = (as_f64(self.rows) - f64::from(u8::from(self.ended_at_row))).max(1.0);
        (rows_of_width / self.width / as_f64(self.rows)).max(1.0)
    }
}

/// The error of an estimate.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Estimate {
    pub sampled_rows: u64,
    /// In 95 of 100 counts, the error of the number of rows is at most this share of it.
    pub rows_error: Option<f64>,
    /// The same for the dead and due rows.
    pub dead_error: Option<f64>,
}

impl Estimate {
    pub(super) fn new(sampled_rows: u64, sampled_dead: u64) -> Self {
        let error = |seen| (seen > 0).then(|| (1.96 / as_f64(seen).sqrt() * 1_000.0).round() / 1_000.0);
        Self { sampled_rows, rows_error: error(sampled_rows), dead_error: error(sampled_dead) }
    }
}

/// The place of a name in its bucket, from 0 to 1. A name with other characters has the place where it sorts.
pub(super) fn place(names: Names, name: &str) -> f64 {
    let Some(random) = name.strip_prefix(names.prefix) else {
        return if name < names.prefix { 0.0 } else { 1.0 };
    };
    let letters = names.alphabet.as_bytes();
    let base = as_f64(letters.len() as u64);
    let mut width = 1.0;
    let mut place = 0.0;
    for character in random.bytes().take(CHARACTERS) {
        width /= base;
        let number = letters.partition_point(|letter| *letter < character);
        place += width * as_f64(number as u64);
    }
    place.min(1.0)
}

/// The name at a place, for the start or the end of a range.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place is between 0 and 1")]
pub(super) fn name_at(names: Names, place: f64) -> String {
    let letters = names.alphabet.as_bytes();
    let mut rest = place.clamp(0.0, 1.0);
    let random = (0..CHARACTERS).map(|_| {
        rest *= as_f64(letters.len() as u64);
        let number = (rest as usize).min(letters.len() - 1);
        rest -= as_f64(number as u64);
        char::from(letters[number])
    });
    format!("{}{}", names.prefix, random.collect::<String>())
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub(super) fn as_f64(n: u64) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use super::{Sampled, Sampling, name_at, place};
    use shared::bucket::BUCKETS;

    #[test]
    fn a_place_and_its_name_are_each_others() {
        let mut random = fastrand::Rng::with_seed(7);
        for bucket in &BUCKETS {
            for _ in 0..200 {
                let at = random.f64();
                let name = name_at(bucket.names, at);
                assert!((place(bucket.names, &name) - at).abs() < 1e-9, "{name} of {}", bucket.name);
                let other = random.f64();
                assert_eq!(name_at(bucket.names, other) < name, other < at, "{}", bucket.name);
            }
            assert!(place(bucket.names, "") <= 0.0 && place(bucket.names, "~~~") >= 0.99);
        }
    }

    #[test]
    fn stretches_cover_a_bucket_once() {
        for offset in [0.0, 0.3, 0.999] {
            let sampling = Sampling { exact_rows: 0, sample_rows: 0, first_look: 0, offset };
            let mut end = 0.0;
            for (from, until) in sampling.stretches() {
                assert!((from - end).abs() < 1e-12, "{from} after {end}");
                end = until;
            }
            assert!((end - 1.0).abs() < 1e-12, "{end}");
        }
    }

    #[test]
    fn what_was_read_to_the_end_is_not_multiplied() {
        let seen = Sampled { rows: 1_000, width: 1.0, ended_at_row: false };
        assert!((seen.factor() - 1.0).abs() < 1e-12);
        assert!((Sampled::default().factor() - 1.0).abs() < 1e-12, "an empty bucket");
    }
}
