//! Simulates a month of a table, hour by hour, with and without the cascade: `make cascade-month`.
//!
//! Rows are written as the library writes them, and TTL removes them with a lag, as DynamoDB does; the runs are the real
//! functions on the embedded engine, at the hours of the template. The random seed is the same for all four tables. Prints the
//! rows that were left behind and the cost; writes a plot to its first argument and the figures, as JSON, to its second.

use bed::Invocations as _;
use std::collections::{BTreeMap, HashMap};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValue};
use bed::engine::{EngineKind, shared as engine};
use bed::fixture::{Fate, Specimen};
use bed::stream::{event, left_behind};
use bed::tables::new_table;
use bed::tables::write_rows;
use jobs::store::Usage;
use runtime::lambda::Function;
use serde_json::{Value, json};
use shared::bucket::OAUTH_OWNER;
use shared::pyjson::dumps;
use shared::time::EpochSeconds;

mod plot;

const HOUR: i64 = 3_600;
const DAY: i64 = 86_400;
const DAYS: i64 = 30;
/// Before the month that is shown: the first removals come after hours, a steady state takes days.
const WARM_UP_DAYS: i64 = 4;
/// A Sunday at midnight, far ahead of any clock: the engine must not remove rows by itself.
const START: i64 = 2_400_105_600;
/// DynamoDB documents removal within a few days; two is the usual maximum.
const MAX_LAG: i64 = 48 * HOUR;
/// Average number of sign-ins per hour.
const GRANTS: usize = 4;

/// A row as it was written: its removal by TTL is in the stream.
struct Written {
    removed_at: i64,
    image: HashMap<String, AttributeValue>,
}

/// The state of a table at an hour since the start.
pub(crate) struct Point {
    pub hour: i64,
    /// Index rows without a target.
    pub dangling: usize,
    /// Provider rows that nothing names.
    pub unreferenced: usize,
    /// Of all functions, since the start.
    pub requests: u64,
    /// Cost of DynamoDB since the start.
    pub dollars: f64,
}

/// The figures of a table's month.
#[derive(Default)]
pub(crate) struct Month {
    pub left: Vec<Point>,
    /// By function: runs, requests, read units, write units.
    pub cost: BTreeMap<&'static str, (u64, u64, f64, f64)>,
    pub removed_by_ttl: u64,
    pub records: u64,
}

impl Month {
    fn add_run(&mut self, function: &'static str, usage: Usage) {
        let cost = self.cost.entry(function).or_default();
        cost.0 += 1;
        cost.1 += usage.requests;
        cost.2 += usage.read_units;
        cost.3 += usage.write_units;
    }

    /// Requests, read units, write units and dollars of all functions so far.
    fn spent(&self) -> (u64, f64, f64, f64) {
        let costs = self.cost.values();
        let (requests, read, write) =
            costs.fold((0, 0.0, 0.0), |sum, cost| (sum.0 + cost.1, sum.1 + cost.2, sum.2 + cost.3));
        (requests, read, write, (read * PRICES.0 + write * PRICES.1) / 1e6)
    }

    /// Mean and maximum number of rows that were left behind.
    fn left_behind(&self, of: impl Fn(&Point) -> usize) -> (f64, usize) {
        let values: Vec<usize> = self.left.iter().map(of).collect();
        let sum: usize = values.iter().sum();
        #[expect(clippy::cast_precision_loss, reason = "a few thousand rows")]
        let mean = sum as f64 / values.len().max(1) as f64;
        (mean, values.into_iter().max().unwrap_or(0))
    }
}

struct Simulation {
    random: fastrand::Rng,
    client: Client,
    function: Function,
    table: String,
    cascade: bool,
    expired_rows: &'static str,
    written: BTreeMap<(String, String), Written>,
    serial: usize,
}

fn item(row: &Specimen) -> HashMap<String, AttributeValue> {
    let text = |value: &str| AttributeValue::S(value.to_owned());
    let mut item = HashMap::from([
        ("id".to_owned(), text(&row.owner)),
        ("bucket_name".to_owned(), text(&format!("{}:{}", row.bucket, row.name))),
        ("bucket".to_owned(), text(&row.bucket)),
        ("name".to_owned(), text(&row.name)),
    ]);
    item.extend(row.data.clone().map(|data| ("data".to_owned(), data)));
    item.extend(row.ttl.clone().map(|ttl| ("ttl_timestamp".to_owned(), ttl)));
    item
}

impl Simulation {
    async fn new(cascade: bool, expired_rows: &'static str) -> Self {
        let (client, prefix) = new_table(engine(EngineKind::Embedded).endpoint()).await;
        let table = format!("{prefix}_attributes");
        let ttl =
            aws_sdk_dynamodb::types::TimeToLiveSpecification::builder().attribute_name("ttl_timestamp").enabled(true);
        client
            .update_time_to_live()
            .table_name(&table)
            .time_to_live_specification(ttl.build().unwrap())
            .send()
            .await
            .unwrap();
        let settings = [
            ("ATTRIBUTES_TABLE", table.as_str()),
            ("MODE", "delete"),
            ("MAX_READ_UNITS_PER_SECOND", "1000000"),
            ("MAX_WRITE_UNITS_PER_SECOND", "1000000"),
        ];
        let environment = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let function = Function::new(client.clone(), environment);
        let random = fastrand::Rng::with_seed(20_261_116);
        Self { random, client, function, table, cascade, expired_rows, written: BTreeMap::new(), serial: 0 }
    }

    fn put(&mut self, rows: &mut Vec<Specimen>, owner: &str, bucket: &str, name: &str, data: &Value, ttl: i64) {
        let ttl_text = AttributeValue::N(ttl.to_string());
        let row = Specimen {
            owner: owner.to_owned(),
            bucket: bucket.to_owned(),
            name: name.to_owned(),
            data: Some(AttributeValue::S(dumps(data))),
            ttl: Some(ttl_text),
            fate: Fate::Deleted,
        };
        let written = Written { removed_at: ttl + self.random.i64(0..MAX_LAG), image: item(&row) };
        self.written.insert((row.owner.clone(), format!("{bucket}:{name}")), written);
        rows.push(row);
    }

    /// A token and its index row, with the TTLs that the library sets.
    fn token(
        &mut self,
        rows: &mut Vec<Specimen>,
        actor: &str,
        kind: (&str, &str),
        name: &str,
        data: &Value,
        until: i64,
    ) {
        self.put(rows, actor, kind.0, name, data, until + HOUR);
        self.put(rows, OAUTH_OWNER, kind.1, name, &json!(actor), until + 3 * HOUR);
    }

    /// The sign-ins of an hour, some of them unfinished; half of the refresh tokens are used within two days.
    async fn arrivals(&mut self, now: i64) {
        const CODES: (&str, &str) = ("mcp_auth_codes", "_auth_code_index");
        const ACCESS: (&str, &str) = ("mcp_tokens", "_access_token_index");
        const REFRESH: (&str, &str) = ("mcp_refresh_tokens", "_refresh_token_index");
        let mut rows = Vec::new();
        for _ in 0..self.random.usize(GRANTS / 2..=GRANTS * 3 / 2) {
            self.serial += 1;
            let (n, at) = (self.serial, now + self.random.i64(0..HOUR));
            let actor = format!("actor{}", self.random.usize(0..500));
            if self.random.u8(0..10) < 3 {
                let key = format!("google_token_ac_{n}");
                self.put(
                    &mut rows,
                    &actor,
                    "mcp_google_tokens",
                    &key,
                    &json!({"refresh_token": "1//x"}),
                    at + 2 * HOUR,
                );
                let data = json!({"created_at": at, "expires_at": at + 600, "used": false, "google_token_key": key});
                self.token(&mut rows, &actor, CODES, &format!("ac_{n}"), &data, at + 600);
                continue;
            }
            let key = format!("google_token_access_{n}");
            self.put(&mut rows, &actor, "mcp_google_tokens", &key, &json!({"refresh_token": "1//x"}), at + 2 * HOUR);
            let data = json!({"created_at": at, "expires_at": at + HOUR, "google_token_key": key});
            self.token(&mut rows, &actor, ACCESS, &format!("aw_{n}"), &data, at + HOUR);
            // A used refresh token lives for two days after its use, an unused one for a month.
            let used_at = at + self.random.i64(HOUR..2 * DAY);
            let used = self.random.bool();
            let mut data = json!({"access_token": format!("aw_{n}"), "created_at": at, "expires_at": at + 30 * DAY,
                "google_token_key": key, "used": used});
            if used {
                data["used_at"] = json!(used_at);
            }
            let until = if used { used_at + 2 * DAY } else { at + 30 * DAY };
            self.token(&mut rows, &actor, REFRESH, &format!("rt_{n}"), &data, until);
        }
        write_rows(&self.client, &self.table, &rows).await.unwrap();
    }

    /// Removes the rows whose TTL is due, and returns the stream records of those that still existed.
    async fn ttl(&mut self, now: i64) -> Vec<Value> {
        let due: Vec<(String, String)> =
            self.written.iter().filter(|(_, row)| row.removed_at <= now).map(|(key, _)| key.clone()).collect();
        let mut records = Vec::new();
        for (owner, sort) in due {
            let Some(row) = self.written.remove(&(owner.clone(), sort.clone())) else { continue };
            let text = |value: &str| AttributeValue::S(value.to_owned());
            let delete = self.client.delete_item().table_name(&self.table).key("id", text(&owner));
            let delete = delete.key("bucket_name", text(&sort)).return_values(ReturnValue::AllOld);
            if delete.send().await.unwrap().attributes.is_none_or(|old| old.is_empty()) {
                continue;
            }
            let text =
                |name: &str| row.image.get(name).and_then(|value| value.as_s().ok()).cloned().unwrap_or_default();
            let (bucket, name, data) = (text("bucket"), text("name"), text("data"));
            self.serial += 1;
            records.push(bed::stream::removal(&self.table, self.serial, &owner, &bucket, &name, Some(&data)));
        }
        records
    }

    async fn run(mut self) -> Month {
        let mut month = Month::default();
        for hour in -WARM_UP_DAYS * 24..DAYS * 24 {
            let now = START + hour * HOUR;
            let at = EpochSeconds::new(now);
            let shown = hour >= 0;
            self.arrivals(now - HOUR).await;
            let records = self.ttl(now).await;
            if shown {
                month.removed_by_ttl += records.len() as u64;
            }
            if self.cascade {
                // Filtered and batched like the event source mapping does.
                let records: Vec<Value> = records
                    .into_iter()
                    .filter(|record| {
                        let read = shared::cascade::read(record, &self.table);
                        matches!(read, shared::cascade::Record::RemovedToken(_))
                    })
                    .collect();
                for batch in records.chunks(100) {
                    let report = self.function.ttl_cascade(event(batch), at, None).await.unwrap();
                    assert!(report.failed.is_empty());
                    if shown {
                        month.add_run("ttl-cascade", report.run.usage);
                        month.records += batch.len() as u64;
                    }
                }
            }
            let settings = json!({"expired_rows": self.expired_rows});
            // 03:00 every day; 05:00 on Sundays.
            if hour.rem_euclid(24) == 3 {
                let report = self.function.daily_cleanup(settings.clone(), at, None).await.unwrap();
                assert!(report.outcome.is_complete(), "{}", report.to_json());
                if shown {
                    month.add_run("daily-cleanup", report.usage);
                }
            }
            if hour.rem_euclid(168) == 5 {
                let report = self.function.index_repair(settings, at, None).await.unwrap();
                assert!(report.outcome.is_complete(), "{}", report.to_json());
                if shown {
                    month.add_run("index-repair", report.usage);
                }
            }
            if shown && hour.rem_euclid(3) == 2 {
                let (dangling, unreferenced) = left_behind(&self.client, &self.table).await;
                let (requests, _, _, dollars) = month.spent();
                month.left.push(Point { hour, dangling, unreferenced, requests, dollars });
            }
        }
        month
    }
}

/// Dollars per million read and write units, us-east-1, on demand.
const PRICES: (f64, f64) = (0.125, 0.625);

#[tokio::main]
async fn main() {
    let (mut months, mut notes) = (Vec::new(), Vec::new());
    for (expired_rows, cascade) in [("delete", false), ("delete", true), ("retire", false), ("retire", true)] {
        let month = Simulation::new(cascade, expired_rows).await.run().await;
        let (dangling, most_dangling) = month.left_behind(|point| point.dangling);
        let (unreferenced, most_unreferenced) = month.left_behind(|point| point.unreferenced);
        println!("EXPIRED_ROWS={expired_rows}, {} cascade", if cascade { "with" } else { "without" });
        println!("  dangling index rows: {dangling:.1} on average, {most_dangling} at most");
        println!("  unreferenced provider rows: {unreferenced:.1} on average, {most_unreferenced} at most");
        println!("  {} rows removed by TTL, {} records handed to the cascade", month.removed_by_ttl, month.records);
        for (function, (runs, requests, read, write)) in &month.cost {
            println!("  {function}: {runs} runs, {requests} requests, {read:.0} read units, {write:.0} write units");
        }
        let (requests, read, write, dollars) = month.spent();
        println!("  all: {requests} requests, {read:.0} read units, {write:.0} write units, ${dollars:.4}");
        notes.push(json!({"expired_rows": expired_rows, "cascade": cascade, "dangling": dangling, "most_dangling": most_dangling,
            "unreferenced": unreferenced, "most_unreferenced": most_unreferenced, "requests": requests, "read_units": read,
            "write_units": write, "dollars": dollars}));
        months.push(month);
    }
    if let [plot, figures] = &std::env::args().skip(1).collect::<Vec<_>>()[..] {
        std::fs::write(plot, plot::draw(&months)).expect("the plot can be written");
        std::fs::write(figures, json!({"months": notes}).to_string()).expect("the figures can be written");
    }
}
