//! An estimate instead of a count: names are uniformly random within a bucket, so a stretch of them is a fair sample.
//!
//! Rows have a place between 0 and 1 by their names. A bucket is read in stretches that begin at evenly spaced places, each up to so many
//! rows: rows divided by the width of what was read is the bucket's size. The error is about `1 / sqrt(rows read)`, whatever the size; so
//! is the price.

use shared::bucket::Names;

/// How much is read before an estimate takes the place of a count, and for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Up to so many rows of the system actors all are counted.
    pub exact_rows: u64,
    /// Rows read for an estimate, beside a first look at each bucket.
    pub sample_rows: u64,
    /// Rows of a first look at a bucket: a smaller bucket is counted.
    pub first_look: u64,
    /// Where between two evenly spaced places the stretches begin, from 0 to 1: elsewhere in each count.
    pub offset: f64,
}

impl Sampling {
    /// Beginning elsewhere at each time.
    #[expect(clippy::cast_precision_loss, reason = "seconds are far below 2^52")]
    pub fn at(now: shared::time::EpochSeconds) -> Self {
        // Multiples of the golden ratio are spread evenly, however close the counts are.
        let offset = ((now.get() / 60) as f64 * 0.618_033_988_749_895).fract();
        Self { exact_rows: 20_000, sample_rows: 20_000, first_look: 400, offset }
    }

    /// For a look in passing: at most about 200 read units, and an error of a few percent.
    pub fn brief(now: shared::time::EpochSeconds) -> Self {
        Self { exact_rows: 2_000, sample_rows: 2_000, first_look: 100, ..Self::at(now) }
    }

    /// The stretches of a bucket: from where to where.
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

/// Stretches of a bucket. The more, the less it matters if names are not quite random; each rounds its units up.
const STRETCHES: u32 = 32;
/// Fewer rows than that say little of a width.
const LEAST_OF_STRETCH: u64 = 10;
/// Characters of a name that its place is made of.
const CHARACTERS: usize = 9;

/// What was read of a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Seen {
    pub(super) rows: u64,
    pub(super) width: f64,
    /// A stretch ended at a row, not at a place: the width up to a row is a little short of what the row stands for.
    pub(super) ended_at_row: bool,
}

impl Seen {
    pub(super) fn add(&mut self, stretch: Self) {
        self.rows += stretch.rows;
        self.width += stretch.width;
        self.ended_at_row |= stretch.ended_at_row;
    }

    /// By how much the rows read are to be multiplied.
    pub(super) fn factor(&self) -> f64 {
        if self.rows == 0 || self.width <= 0.0 {
            return 1.0;
        }
        // The sum of n random gaps gives n - 1 gaps for one width without bias.
        let rows_of_width = (as_f64(self.rows) - f64::from(u8::from(self.ended_at_row))).max(1.0);
        (rows_of_width / self.width / as_f64(self.rows)).max(1.0)
    }
}

/// How far off an estimate may be.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Estimate {
    pub sampled_rows: u64,
    /// In 95 of 100 counts the number of rows is not further off than this share of it.
    pub rows_error: Option<f64>,
    /// The same of the dead and due rows.
    pub dead_error: Option<f64>,
}

impl Estimate {
    pub(super) fn new(sampled_rows: u64, sampled_dead: u64) -> Self {
        let error = |seen| (seen > 0).then(|| (1.96 / as_f64(seen).sqrt() * 1_000.0).round() / 1_000.0);
        Self { sampled_rows, rows_error: error(sampled_rows), dead_error: error(sampled_dead) }
    }
}

/// Where a row is in its bucket by its name: 0 is the beginning, 1 the end. A name of other characters is between those that it sorts between.
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

/// The name at a place, for a range to begin or to end with.
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
    use super::{Sampling, Seen, name_at, place};
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
        let seen = Seen { rows: 1_000, width: 1.0, ended_at_row: false };
        assert!((seen.factor() - 1.0).abs() < 1e-12);
        assert!((Seen::default().factor() - 1.0).abs() < 1e-12, "an empty bucket");
    }
}
