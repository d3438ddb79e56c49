//! Time as the table stores it: whole seconds since 1970.
//!
//! `now` is taken once per run, at the edge, and passed in; nothing in this crate's decisions looks at a clock.

use std::fmt;

/// Whole seconds since the Unix epoch, the unit of every time field and of `ttl_timestamp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EpochSeconds(i64);

impl EpochSeconds {
    #[must_use]
    pub const fn new(seconds: i64) -> Self {
        Self(seconds)
    }

    #[must_use]
    pub const fn get(self) -> i64 {
        self.0
    }

    /// Saturates: a field at the edge of 64 bits stays on its side of `now` instead of wrapping to the other.
    #[must_use]
    pub const fn plus(self, seconds: i64) -> Self {
        Self(self.0.saturating_add(seconds))
    }

    /// Seconds from `earlier` to `self`; negative when `earlier` is the later one. Saturates.
    #[must_use]
    pub const fn since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
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
