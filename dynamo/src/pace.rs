//! Limits a run's rate, to leave capacity for the application: two token buckets that slow down when throttled.
//!
//! Pure bookkeeping on the run's elapsed time; `call` does the waiting.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jobs::store::{Billing, Consistency, TableFigures};
use shared::row::Row;
use shared::settings::Settings;

/// Half of what one partition serves: all rows of a system actor are in one item collection.
const ON_DEMAND_WRITE: f64 = 500.0;
const ON_DEMAND_READ: f64 = 1_500.0;
/// Limit of a burst: a longer one would use the burst capacity that DynamoDB holds for the application.
const BURST_SECONDS: f64 = 1.0;
/// Units per second: below this, a batch would wait for minutes.
const MIN_RATE: f64 = 0.1;
/// By default, a run uses half of a table's capacity.
fn share(units: f64) -> f64 {
    units / 2.0
}

/// DynamoDB's limits per request.
const MAX_LOOKUPS: usize = 100;
const MAX_DELETES: usize = 25;

/// Rows per page: enough that a request costs little compared with its rows, and few enough that a page needs little memory.
const MAX_PAGED: usize = 1_000;
const MIN_PAGED: usize = 10;

/// Assumed row size if the table's figures are unknown: that of a token row.
const USUAL_ROW_BYTES: usize = 400;

/// Cost of the cheapest read.
const LEAST_UNIT: f64 = 0.5;

/// DynamoDB's limit per page.
const WHOLE_PAGE_BYTES: f64 = 1_048_576.0;

/// A throttle halves the rate, down to this share of it; the rate recovers over this time.
const SLOWEST_SHARE: f64 = 1.0 / 64.0;
const RECOVERY: Duration = Duration::from_mins(1);

/// Which units a request uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Read,
    Write,
}

impl Direction {
    /// `None` for a request that uses no units: a throttle does not mean that the table is busy.
    pub(super) fn of(operation: &str) -> Option<Self> {
        match operation {
            "BatchExecuteStatement" | "PutItem" | "UpdateItem" | "DeleteItem" => Some(Direction::Write),
            "DescribeTable" | "DescribeTimeToLive" | "UpdateTimeToLive" => None,
            _ => Some(Direction::Read),
        }
    }
}

pub(super) struct Pace {
    read: Option<Mutex<TokenBucket>>,
    write: Option<Mutex<TokenBucket>>,
    /// Estimated size of a row.
    row_bytes: AtomicUsize,
}

struct TokenBucket {
    rate: f64,
    burst: f64,
    /// Units that may be used now; if negative, a debt that the next request waits for.
    level: f64,
    filled_at: Duration,
    /// Share of the rate that the last throttle left, or 1.
    share: f64,
    throttled_at: Duration,
}

impl Pace {
    pub(super) fn unlimited() -> Self {
        Self { read: None, write: None, row_bytes: AtomicUsize::new(USUAL_ROW_BYTES) }
    }

    /// The rates of the settings, or defaults for the table's billing mode.
    pub(super) fn new(settings: &Settings, figures: &TableFigures) -> Self {
        // A setting may exceed half of the provisioned units, but not half of an on-demand table's own maximum.
        let (read, write, most_read, most_write) = match &figures.billing {
            Billing::OnDemand { max_read_units, max_write_units } => {
                (ON_DEMAND_READ, ON_DEMAND_WRITE, max_read_units.map(share), max_write_units.map(share))
            }
            Billing::Provisioned { read_units, write_units } => (share(*read_units), share(*write_units), None, None),
        };
        let bucket = |requested: Option<f64>, default: f64, most: Option<f64>| {
            let rate = requested.unwrap_or(default).min(most.unwrap_or(f64::INFINITY));
            // The minimum is shared as well: many slow runs together would not be slow.
            let rate = rate.max(MIN_RATE) / f64::from(settings.pace_shared_by.max(1));
            Some(Mutex::new(TokenBucket::new(rate, BURST_SECONDS)))
        };
        Self {
            read: bucket(settings.max_read_units_per_second, read, most_read),
            write: bucket(settings.max_write_units_per_second, write, most_write),
            row_bytes: AtomicUsize::new(
                figures
                    .bytes
                    .checked_div(figures.rows)
                    .and_then(|bytes| usize::try_from(bytes).ok())
                    .unwrap_or(USUAL_ROW_BYTES),
            ),
        }
    }

    pub(super) fn writes_per_second(&self) -> Option<f64> {
        self.on(Direction::Write, |bucket| bucket.rate)
    }

    /// Rows per lookup batch, about a unit each.
    pub(super) fn lookup_batch(&self) -> usize {
        self.rows_in_a_second(Direction::Read, 1.0, MAX_LOOKUPS)
    }

    /// Rows per delete batch, about a unit each.
    pub(super) fn delete_batch(&self) -> usize {
        self.rows_in_a_second(Direction::Write, 1.0, MAX_DELETES)
    }

    /// Rows per page, so that a page costs at most a second of the rate, by the estimated row size.
    pub(super) fn page_rows(&self, reading: Consistency) -> i32 {
        let rows_a_unit = f64::from(reading.bytes_per_unit()) / self.row_bytes();
        let rows = self.rows_in_a_second(Direction::Read, rows_a_unit, MAX_PAGED);
        i32::try_from(rows.max(MIN_PAGED)).unwrap_or(i32::MAX)
    }

    /// The same for a page as large as DynamoDB allows: no limit if all of it costs at most a second of the rate.
    pub(super) fn whole_page_rows(&self, reading: Consistency) -> Option<i32> {
        let units = self.page_units(None, reading);
        let has_room = self.on(Direction::Read, |bucket| bucket.rate >= units).unwrap_or(true);
        (!has_room).then(|| self.page_rows(reading))
    }

    /// Estimated cost of a page of this many rows, or of one as large as DynamoDB allows.
    pub(super) fn page_units(&self, rows: Option<i32>, reading: Consistency) -> f64 {
        let bytes = rows.map_or(WHOLE_PAGE_BYTES, |rows| (f64::from(rows) * self.row_bytes()).min(WHOLE_PAGE_BYTES));
        (bytes / f64::from(reading.bytes_per_unit())).max(LEAST_UNIT)
    }

    /// Updates the estimated row size from a page: at once if rows are larger, slowly if they are smaller.
    pub(super) fn learn(&self, rows: &[Row]) {
        let bytes: usize = rows.iter().map(|row| row.bytes).sum();
        let Some(mean) = bytes.checked_div(rows.len()) else { return };
        let known = self.row_bytes.load(Ordering::Relaxed);
        self.row_bytes.store(mean.max(known - known / 8), Ordering::Relaxed);
    }

    #[expect(clippy::cast_precision_loss, reason = "a row is at most 400 KB")]
    fn row_bytes(&self) -> f64 {
        self.row_bytes.load(Ordering::Relaxed).max(1) as f64
    }

    /// Takes `units` and returns how long to wait before using them.
    pub(super) fn reserve(&self, direction: Direction, units: f64, elapsed: Duration) -> Duration {
        self.on(direction, |bucket| bucket.reserve(units, elapsed)).unwrap_or_default()
    }

    /// Corrects a reservation once the actual cost is known.
    pub(super) fn settle(&self, direction: Direction, reserved: f64, used: f64) {
        self.on(direction, |bucket| bucket.level += reserved - used);
    }

    pub(super) fn throttled(&self, direction: Direction, elapsed: Duration) {
        self.on(direction, |bucket| bucket.throttled(elapsed));
    }

    /// `None` if the rate is unlimited.
    fn on<T>(&self, direction: Direction, use_it: impl FnOnce(&mut TokenBucket) -> T) -> Option<T> {
        let bucket = match direction {
            Direction::Read => &self.read,
            Direction::Write => &self.write,
        };
        let bucket = bucket.as_ref()?.lock();
        Some(use_it(&mut bucket.unwrap_or_else(PoisonError::into_inner)))
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to a small positive range")]
    fn rows_in_a_second(&self, direction: Direction, rows_a_unit: f64, most: usize) -> usize {
        self.on(direction, |bucket| ((bucket.rate * rows_a_unit) as usize).clamp(1, most)).unwrap_or(most)
    }
}

impl TokenBucket {
    fn new(rate: f64, burst_seconds: f64) -> Self {
        let burst = rate * burst_seconds;
        Self { rate, burst, level: burst, filled_at: Duration::ZERO, share: 1.0, throttled_at: Duration::ZERO }
    }

    fn reserve(&mut self, units: f64, elapsed: Duration) -> Duration {
        let rate = self.current_rate(elapsed);
        let passed = elapsed.saturating_sub(self.filled_at).as_secs_f64();
        self.filled_at = self.filled_at.max(elapsed);
        self.level = (self.level + passed * rate).min(self.burst) - units;
        if self.level >= 0.0 { Duration::ZERO } else { Duration::from_secs_f64((-self.level / rate).min(3_600.0)) }
    }

    fn current_rate(&self, elapsed: Duration) -> f64 {
        let healed = elapsed.saturating_sub(self.throttled_at).as_secs_f64() / RECOVERY.as_secs_f64();
        self.rate * (self.share + healed).min(1.0)
    }

    fn throttled(&mut self, elapsed: Duration) {
        self.share = (self.current_rate(elapsed) / self.rate / 2.0).max(SLOWEST_SHARE);
        self.throttled_at = elapsed;
        self.level = self.level.min(0.0);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::Map;

    use super::{Pace, TokenBucket};
    use jobs::store::{Billing, TableFigures};
    use shared::settings::{Environment, Purpose, Settings};

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn lets_no_more_through_than_the_rate_after_the_burst() {
        let mut bucket = TokenBucket::new(10.0, 1.0);
        assert_eq!(bucket.reserve(10.0, Duration::ZERO), Duration::ZERO);
        assert_eq!(bucket.reserve(10.0, Duration::ZERO), SECOND);
        assert_eq!(bucket.reserve(10.0, SECOND), SECOND);
        // Five seconds of rest are worth one second of burst, not five.
        assert_eq!(bucket.reserve(20.0, 7 * SECOND), SECOND);
    }

    #[test]
    fn halves_when_throttled_and_comes_back() {
        let mut bucket = TokenBucket::new(64.0, 1.0);
        bucket.throttled(SECOND);
        assert!((bucket.current_rate(SECOND) - 32.0).abs() < 1e-9);
        bucket.throttled(SECOND);
        assert!((bucket.current_rate(SECOND) - 16.0).abs() < 1e-9);
        assert!((bucket.current_rate(120 * SECOND) - 64.0).abs() < 1e-9);
        for _ in 0..50 {
            bucket.throttled(SECOND);
        }
        assert!((bucket.current_rate(SECOND) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn many_that_share_a_slow_pace_are_together_no_faster() {
        let environment =
            [("AWS_DB_PREFIX", "app"), ("MODE", "delete")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        let environment = Environment::from(environment);
        let mut settings = Settings::for_command(&environment, &Map::new(), Purpose::Cleanup).unwrap();
        let billing = Billing::Provisioned { read_units: 26.0, write_units: 2.0 };
        let figures = TableFigures { arn: String::new(), rows: 0, bytes: 0, billing, stream: None };
        for parts in [1, 4, 64] {
            settings.pace_shared_by = parts;
            let rate = Pace::new(&settings, &figures).write.unwrap().into_inner().unwrap().rate;
            assert!((rate * f64::from(parts) - 1.0).abs() < 1e-9, "{parts} parts at {rate}");
        }
    }

    #[test]
    fn takes_at_most_half_of_an_on_demand_tables_own_maximum() {
        use aws_sdk_dynamodb::types::{BillingMode, BillingModeSummary, OnDemandThroughput, TableDescription};

        let environment =
            [("AWS_DB_PREFIX", "app"), ("MODE", "delete")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        let environment = Environment::from(environment);
        let mut settings = Settings::parse(&environment, &Map::new(), Purpose::Cleanup).unwrap();
        let summary = BillingModeSummary::builder().billing_mode(BillingMode::PayPerRequest).build();
        for (reads, writes, requested, read, write) in [
            (None, None, None, 1_500.0, 500.0),
            (Some(-1), Some(-1), None, 1_500.0, 500.0),
            (Some(40), Some(10), None, 20.0, 5.0),
            (Some(40), Some(10), Some(100.0), 20.0, 5.0),
            (Some(40), Some(10), Some(2.0), 2.0, 2.0),
            (Some(100_000), Some(1), None, 1_500.0, 0.5),
        ] {
            let own = OnDemandThroughput::builder()
                .set_max_read_request_units(reads)
                .set_max_write_request_units(writes)
                .build();
            let table = TableDescription::builder().billing_mode_summary(summary.clone()).on_demand_throughput(own);
            let billing = crate::describe::billing(&table.build());
            let figures = TableFigures { arn: String::new(), rows: 0, bytes: 0, billing, stream: None };
            settings.max_read_units_per_second = requested;
            settings.max_write_units_per_second = requested;
            let pace = Pace::new(&settings, &figures);
            let rate = |bucket: Option<std::sync::Mutex<TokenBucket>>| bucket.unwrap().into_inner().unwrap().rate;
            assert_eq!((rate(pace.read), rate(pace.write)), (read, write), "{reads:?} {writes:?} {requested:?}");
        }
    }
}
