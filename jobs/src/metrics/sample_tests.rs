//! Measures the cost and the error of a count, on tables of ten thousand to a million rows in memory.

#![expect(clippy::print_stdout, reason = "the figures are measured, and shown with --nocapture")]

use std::cell::Cell;

use super::{Measurement, OwnerKind, Sampling, measure};
use crate::run::clock::RunClock;
use crate::store::{
    Billing, Budget, Consistency, InspectTable, Page, PageOf, PageSize, ReadRows, Result, ScanTable, TableFigures,
    TtlSetting, Usage,
};
use shared::bucket::{BUCKETS, Bucket, OAUTH_OWNER};
use shared::integrity::Lookup;
use shared::row::{Raw, Row, RowKey};
use shared::settings::{Purpose, Settings};
use shared::time::EpochSeconds;

const NOW: i64 = 1_800_000_000;
const ROW_BYTES: u64 = 400;
/// Rows in a page of 1 MB.
const WHOLE_PAGE: usize = 2_600;

/// The share of the rows in each bucket, and the share of them that is dead.
const MIX: [(&str, f64, f64); 4] = [
    ("_access_token_index", 0.5, 0.3),
    ("_refresh_token_index", 0.3, 0.1),
    ("spa_access_tokens", 0.19, 0.6),
    ("_oauth_sessions", 0.01, 0.9),
];

/// Rows of the OAuth system actor, sorted as DynamoDB sorts them; whether each is dead.
struct Memory {
    rows: Vec<(String, &'static Bucket, bool)>,
    figures: TableFigures,
    bytes: Cell<u64>,
    requests: Cell<u64>,
}

impl Memory {
    fn new(rows: u32, seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut sorted = Vec::new();
        for (name, share, dead) in MIX {
            let bucket = BUCKETS.iter().find(|bucket| bucket.name == name && bucket.system_owner().is_some()).unwrap();
            let letters = bucket.names.alphabet.as_bytes();
            let number = (0..rows).take_while(|n| f64::from(*n) < share * f64::from(rows)).count();
            for _ in 0..number {
                let name: String = (0..12).map(|_| char::from(letters[random.usize(..letters.len())])).collect();
                sorted.push((bucket.sort_key(&format!("{}{name}", bucket.names.prefix)), bucket, random.f64() < dead));
            }
        }
        sorted.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        let figures = TableFigures {
            arn: String::new(),
            rows: sorted.len() as u64 * 2,
            bytes: sorted.len() as u64 * ROW_BYTES * 2,
            billing: Billing::OnDemand { max_read_units: None, max_write_units: None },
            stream: None,
        };
        Self { rows: sorted, figures, bytes: Cell::default(), requests: Cell::default() }
    }

    fn truth(&self) -> (u64, u64) {
        (self.rows.len() as u64, self.rows.iter().filter(|(_, _, dead)| *dead).count() as u64)
    }
}

fn row((key, bucket, dead): &(String, &'static Bucket, bool)) -> Row {
    let died = if *dead { NOW - 10_000 } else { NOW + 10_000 };
    let text = match bucket.name {
        "_oauth_sessions" => format!("{{\"created_at\": {}}}", died - 600),
        "spa_access_tokens" => format!("{{\"expires_at\": {died}}}"),
        _ => "\"actor\"".to_owned(),
    };
    Row {
        key: RowKey::new(OAUTH_OWNER, key),
        bucket: Raw::Text(bucket.name.to_owned()),
        data: Raw::Text(text),
        ttl: Raw::Number(died.to_string()),
        retired_from: Raw::Absent,
        bytes: usize::try_from(ROW_BYTES).unwrap(),
    }
}

impl ReadRows for Memory {
    async fn page(&self, of: &PageOf) -> Result<Page<String>> {
        self.requests.set(self.requests.get() + 1);
        if of.owner != OAUTH_OWNER {
            return Ok(Page { rows: Vec::new(), next: None });
        }
        let most = match of.size {
            PageSize::Rows(rows) => usize::try_from(rows).unwrap().min(WHOLE_PAGE),
            PageSize::Paced | PageSize::Whole => WHOLE_PAGE,
        };
        let first = self
            .rows
            .partition_point(|(key, ..)| *key < of.prefix || of.after.as_ref().is_some_and(|after| key <= after));
        let wanted = |(key, ..): &&(String, &'static Bucket, bool)| {
            key.starts_with(&of.prefix) && of.until.as_ref().is_none_or(|until| key <= until)
        };
        let rows: Vec<Row> = self.rows[first..].iter().take_while(wanted).take(most).map(row).collect();
        self.bytes.set(self.bytes.get() + (rows.len() as u64 * ROW_BYTES).div_ceil(4_096) * 4_096);
        let next = (rows.len() == most).then(|| rows.last().unwrap().key.sort.clone());
        Ok(Page { rows, next })
    }

    async fn get_consistent(&self, _: &[RowKey]) -> Result<Vec<Lookup>> {
        unreachable!("a count looks nothing up")
    }

    async fn get_eventual(&self, _: &[RowKey]) -> Result<Vec<Lookup>> {
        unreachable!("a count looks nothing up")
    }
}

impl ScanTable for Memory {
    async fn scan(&self, _: i32, _: i32, _: Option<&RowKey>, _: Consistency) -> Result<Page<RowKey>> {
        unreachable!("a count of the system actors does not scan")
    }
}

impl InspectTable for Memory {
    fn figures(&self) -> &TableFigures {
        &self.figures
    }

    async fn ttl_setting(&self) -> Result<TtlSetting> {
        Ok(TtlSetting::Off)
    }
}

impl Budget for Memory {
    fn time_is_up(&self) -> bool {
        false
    }

    fn progressed(&self, _: Option<&'static str>, _: u64, _: u64) {}

    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    fn usage(&self) -> Usage {
        let read_units = self.bytes.get() as f64 / f64::from(Consistency::Eventual.bytes_per_unit());
        Usage { requests: self.requests.get(), read_units, ..Usage::default() }
    }

    fn page_units(&self) -> f64 {
        128.0
    }

    fn lookup_batch(&self) -> usize {
        1
    }
}

async fn count(table: &Memory, offset: f64) -> Measurement {
    let environment = [("ATTRIBUTES_TABLE".to_owned(), "t_attributes".to_owned())].into();
    let settings = Settings::parse(&environment, &serde_json::Map::new(), Purpose::Metrics).unwrap();
    let clock = RunClock::start(EpochSeconds::new(NOW), None);
    table.bytes.set(0);
    measure(table, &settings, &clock, &Sampling { offset, ..Sampling::at(clock.now()) }).await.unwrap()
}

/// The counted rows, and those that are dead or due.
fn found(measured: &Measurement) -> (u64, u64) {
    let system = measured.census.of(OwnerKind::System);
    (system.rows, system.dead + system.due)
}

#[tokio::test]
async fn a_count_costs_the_same_however_large_the_table_is() {
    let mut units = Vec::new();
    for rows in [10_000, 100_000, 1_000_000] {
        let table = Memory::new(rows, 1);
        let measured = count(&table, 0.5).await;
        println!("{rows} rows: {} read units, {:?}", measured.usage.read_units, measured.estimate);
        assert_eq!(measured.estimate.is_none(), rows == 10_000);
        if measured.estimate.is_none() {
            assert_eq!(found(&measured), table.truth());
        }
        units.push(measured.usage.read_units);
    }
    // Below the threshold exactly one pass; above it the same cost at ten times the size.
    assert!(units[0] < 10_000.0 * 400.0 / 8_192.0 * 1.02, "{units:?}");
    assert!((units[2] / units[1] - 1.0).abs() < 0.05 && units[2] < 1_600.0, "{units:?}");
}

#[tokio::test]
async fn an_estimate_is_within_a_twentieth_in_95_of_100_seeds() {
    for rows in [30_000, 120_000] {
        let (mut good_rows, mut good_dead) = (0, 0);
        for seed in 0..100 {
            // A new table for each seed would take a minute: ten tables, ten offsets for each.
            thread_local!(static TABLE: Cell<Option<(u32, u64, Memory)>> = const { Cell::new(None) });
            let table = match TABLE.take() {
                Some((of, made, table)) if of == rows && made == seed / 10 => table,
                _ => Memory::new(rows, seed / 10),
            };
            let offset = f64::from(u32::try_from(seed % 10).unwrap()) / 10.0;
            let measured = count(&table, offset).await;
            let near = |truth: u64, found: u64| truth.abs_diff(found) * 20 <= truth;
            let (truth, got) = (table.truth(), found(&measured));
            good_rows += u32::from(near(truth.0, got.0));
            good_dead += u32::from(near(truth.1, got.1));
            assert!(measured.estimate.is_some());
            TABLE.set(Some((rows, seed / 10, table)));
        }
        println!("{rows} rows: {good_rows} of 100 within 5 % in rows, {good_dead} in dead rows");
        assert!(good_rows >= 95 && good_dead >= 95, "{rows} rows: {good_rows}, {good_dead}");
    }
}
