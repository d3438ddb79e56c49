//! Time as the table stores it: whole seconds since 1970.
//!
//! `now` is taken once per run, at the edge, and passed in; no decision reads a clock.

use std::fmt;

/// Whole seconds since the Unix epoch, the unit of every time field and of `ttl_timestamp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EpochSeconds(i64);

impl EpochSeconds {
    pub const fn new(seconds: i64) -> Self {
        Self(seconds)
    }

    pub const fn get(self) -> i64 {
        self.0
    }

    /// Saturates: an extreme value stays on its side of `now` instead of wrapping around.
    pub const fn plus(self, seconds: i64) -> Self {
        Self(self.0.saturating_add(seconds))
    }

    /// Seconds from `earlier` to `self`; negative when `earlier` is the later one. Saturates.
    pub const fn since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// The first second of the year 10000.
const FIVE_DIGIT_YEARS: i64 = 253_402_300_800;

/// Formats a time in UTC: `2027-01-15 08:00:00 UTC`.
pub struct Utc(pub EpochSeconds);

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.get();
        if !(0..FIVE_DIGIT_YEARS).contains(&seconds) {
            return f.write_str(if seconds < 0 { "before 1970" } else { "after the year 9999" });
        }
        let (days, rest) = (seconds / 86_400, seconds % 86_400);
        // Years start in March: the leap day is the last day, and the lengths of the months follow a pattern.
        let since_march_0000 = days + 719_468;
        let (era, day_of_era) = (since_march_0000 / 146_097, since_march_0000 % 146_097);
        let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month + 2) / 5 + 1;
        let month = if month < 10 { month + 3 } else { month - 9 };
        let year = era * 400 + year_of_era + i64::from(month <= 2);
        let (hour, minute, second) = (rest / 3_600, rest % 3_600 / 60, rest % 60);
        write!(f, "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
    }
}

impl fmt::Display for EpochSeconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<std::time::SystemTime> for EpochSeconds {
    /// Whole seconds, rounded down as Python's `int(time.time())` does.
    fn from(time: std::time::SystemTime) -> Self {
        let since_epoch = time.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Self(i64::try_from(since_epoch.as_secs()).unwrap_or(i64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::{EpochSeconds, Utc};

    #[test]
    fn a_moment_is_written_in_utc() {
        for (seconds, written) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399, "2000-02-28 23:59:59 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_709_251_199, "2024-02-29 23:59:59 UTC"),
            (1_800_000_000, "2027-01-15 08:00:00 UTC"),
            (1_800_000_754, "2027-01-15 08:12:34 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
            (253_402_300_799, "9999-12-31 23:59:59 UTC"),
            (253_402_300_800, "after the year 9999"),
            (i64::MAX, "after the year 9999"),
            (-1, "before 1970"),
        ] {
            assert_eq!(Utc(EpochSeconds::new(seconds)).to_string(), written);
        }
    }

    #[test]
    fn seconds_are_written_as_they_are_stored() {
        assert_eq!(EpochSeconds::new(-1_800_000_000).to_string(), "-1800000000");
    }
}
