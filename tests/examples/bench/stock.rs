//! The rows of all tables: written by the real library's own managers, kept in a file, and multiplied for large tables.
//!
//! A copy of a row has other names of the same length and alphabet, and is otherwise identical: kinds, spelling, sizes and
//! proportions are the library's. Its times are shifted by the seconds since the library wrote it, so that a live row is still
//! alive whenever a table is filled.

use bed::Invocations as _;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue;
use bed::engine::{EngineKind, shared as shared_engine};
use bed::proxy::{Fate, Proxy};
use bed::python::Application;
use bed::tables::new_table;
use model::{self, Key, ModelRow, ModelTtl};
use runtime::lambda::Function;
use serde_json::{Value, json};

use crate::now;
use crate::results::folder;

pub(crate) type Item = HashMap<String, AttributeValue>;

/// Tables above this many rows are copies of one of `COPIED` rows.
const LARGEST_SEED: usize = 5_500;
const COPIED: usize = 5_000;

/// Prefixes of the library's names. A copy changes the random part after them.
const PREFIXES: [&str; 7] = ["google_token_access_", "google_token_", "oauth_tokens:", "ac_", "aw_", "rt_", "mcp_"];
const CHANGED: usize = 10;
/// Shorter names are not random: a copy changes only their owner.
const SHORTEST_RANDOM: usize = 20;

/// A row as the library wrote it.
#[derive(Clone, Debug)]
pub(crate) struct StockRow {
    pub owner: String,
    pub bucket: String,
    pub name: String,
    pub text: String,
    pub ttl: Option<i64>,
    /// Whether the daily cleanup deletes it; an observed run and `model` agree on this.
    pub dead: bool,
}

/// A seeded table, and the rows that a cleanup reads and deletes.
pub(crate) struct Stock {
    pub seeded_at: i64,
    pub rows: Vec<StockRow>,
    /// Owner, bucket and name of every key that the cleanup requested by BatchGetItem, found or not; each once.
    pub looked_up: Vec<(String, String, String)>,
    identifiers: HashSet<String>,
}

/// How to make a table of a size: the size of the stock, and the number of copies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub seed: usize,
    pub copies: u64,
}

impl Plan {
    /// # Panics
    /// For a large size that is not a multiple of the stock.
    pub(crate) fn of(rows: usize) -> Self {
        if rows <= LARGEST_SEED {
            return Self { seed: rows, copies: 1 };
        }
        assert!(
            rows.is_multiple_of(COPIED),
            "a table above {LARGEST_SEED} rows has a multiple of {COPIED}, not {rows}"
        );
        Self { seed: COPIED, copies: (rows / COPIED) as u64 }
    }
}

impl Stock {
    /// The stock of `seed` rows: from its file, or seeded by the library now, which takes some seconds. The cleanup is observed
    /// again each time, because it is this build's cleanup.
    pub(crate) async fn load(seed: usize) -> Self {
        let mut stock = if let Some(stock) = Self::read(seed) {
            stock
        } else {
            println!("  the library writes {seed} rows, through its own managers");
            Self::seed(seed).await
        };
        stock.observe().await;
        std::fs::write(Self::path(seed), stock.to_json().to_string()).expect("the stock can be written");
        stock
    }

    /// The stock as it was last observed.
    pub(crate) fn read(seed: usize) -> Option<Self> {
        let text = std::fs::read_to_string(Self::path(seed)).ok()?;
        Some(Self::from_json(&serde_json::from_str(&text).expect("the stock is JSON: remove it to seed again")))
    }

    fn path(seed: usize) -> PathBuf {
        folder().join(format!("stock-{seed}.json"))
    }

    async fn seed(seed: usize) -> Self {
        let endpoint = shared_engine(EngineKind::Embedded).endpoint();
        let prefix = format!("stock{:08x}", fastrand::u32(..));
        let application = Application::new(endpoint, &prefix);
        let rows = u32::try_from(seed).expect("a seed is small");
        let manifest = application.seed(rows, 1).await;
        let seeded_at = manifest.read()["seeded_at"].as_i64().expect("the manifest has its time");
        let client = bed::tables::client(endpoint).await;
        let rows = read_table(&client, &format!("{prefix}_attributes")).await;
        let mut stock = Self { seeded_at, rows, looked_up: Vec::new(), identifiers: HashSet::new() };
        stock.identify();
        stock
    }

    /// Runs one cleanup behind a proxy to learn which rows are deleted and which keys are looked up.
    ///
    /// # Panics
    /// When the model would delete other rows.
    async fn observe(&mut self) {
        let (client, prefix) = new_table(shared_engine(EngineKind::Embedded).endpoint()).await;
        let table = format!("{prefix}_attributes");
        let at = now();
        crate::bed::write(&client, &table, self.copy(0, at - self.seeded_at)).await;
        let bodies: std::sync::Arc<std::sync::Mutex<Vec<Value>>> = std::sync::Arc::default();
        let log = std::sync::Arc::clone(&bodies);
        let proxy = Proxy::start(shared_engine(EngineKind::Embedded).endpoint(), move |request| {
            if request.operation == "BatchGetItem" {
                let body = serde_json::from_str(&request.body).expect("a request is JSON");
                log.lock().expect("the lock is not poisoned").push(body);
            }
            Fate::Forward
        });
        let environment = crate::contestants::unpaced(&prefix).into_iter().collect();
        let function = Function::new(bed::tables::client(proxy.endpoint()).await, environment);
        let report = function.daily_cleanup(json!({}), shared::time::EpochSeconds::new(at), None).await;
        assert!(report.expect("the cleanup runs").outcome.is_complete(), "the cleanup of the stock is incomplete");
        let left: HashSet<Key> = read_table(&client, &table).await.iter().map(StockRow::key).collect();
        let judged: Vec<ModelRow> = self.copy(0, at - self.seeded_at).map(model_row).collect();
        let judged = model::daily_cleanup(&judged, at);
        for row in &mut self.rows {
            row.dead = !left.contains(&row.key());
            assert_eq!(
                row.dead,
                judged.contains(&row.key()),
                "deleted, and dead by the model: a row of {}",
                row.bucket
            );
        }
        self.looked_up.clear();
        for body in bodies.lock().expect("the lock is not poisoned").iter() {
            for key in body["RequestItems"][&table]["Keys"].as_array().into_iter().flatten() {
                let sort = key["bucket_name"]["S"].as_str().unwrap_or_default();
                let (bucket, name) = sort.split_once(':').expect("a sort key has a bucket");
                let owner = key["id"]["S"].as_str().unwrap_or_default();
                self.looked_up.push((owner.to_owned(), bucket.to_owned(), name.to_owned()));
            }
        }
        let mut seen = HashSet::new();
        self.looked_up.retain(|key| seen.insert(key.clone()));
    }

    /// The same rows without TTL, as releases before 3.7.4 wrote them.
    pub(crate) async fn without_ttl(&self) -> Self {
        let rows = self.rows.iter().map(|row| StockRow { ttl: None, ..row.clone() }).collect();
        let identifiers = self.identifiers.clone();
        let mut stock = Self { seeded_at: self.seeded_at, rows, looked_up: Vec::new(), identifiers };
        stock.observe().await;
        stock
    }

    fn identify(&mut self) {
        let names = self.rows.iter().map(|row| &row.name).filter(|name| name.len() >= SHORTEST_RANDOM);
        let owners = self.rows.iter().map(|row| &row.owner).filter(|owner| !is_system(owner));
        self.identifiers = names.chain(owners).cloned().collect();
    }

    /// Every row of the copy, its times shifted by `later` seconds. Copy 0 keeps the library's own names.
    pub(crate) fn copy(&self, copy: u64, later: i64) -> impl Iterator<Item = StockRow> {
        self.rows.iter().map(move |row| {
            // Quotes separate strings from numbers: the text of a row has no escaped quotes (see `stock_row`).
            let parts = row.text.split('"').enumerate().map(|(n, part)| match n % 2 {
                0 => shifted(part, later),
                _ if self.identifiers.contains(part) => renamed(part, copy),
                _ => part.to_owned(),
            });
            StockRow {
                owner: owner(&row.owner, copy),
                bucket: row.bucket.clone(),
                name: renamed(&row.name, copy),
                text: parts.collect::<Vec<_>>().join("\""),
                ttl: row.ttl.map(|ttl| ttl + later),
                dead: row.dead,
            }
        })
    }

    /// The keys of the copy that a cleanup looks up.
    pub(crate) fn lookups(&self, copy: u64) -> impl Iterator<Item = (String, String)> {
        self.looked_up
            .iter()
            .map(move |(of, bucket, name)| (owner(of, copy), format!("{bucket}:{}", renamed(name, copy))))
    }

    /// Rows and dead rows by bucket.
    pub(crate) fn census(&self) -> BTreeMap<String, (u64, u64)> {
        let mut census: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for row in &self.rows {
            let counts = census.entry(row.bucket.clone()).or_default();
            counts.0 += 1;
            counts.1 += u64::from(row.dead);
        }
        census
    }

    fn to_json(&self) -> Value {
        let rows: Vec<Value> =
            self.rows.iter().map(|row| json!([row.owner, row.bucket, row.name, row.text, row.ttl, row.dead])).collect();
        json!({"seeded_at": self.seeded_at, "rows": rows, "looked_up": self.looked_up})
    }

    fn from_json(value: &Value) -> Self {
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        let rows = value["rows"].as_array().expect("rows").iter().map(|row| StockRow {
            owner: text(&row[0]),
            bucket: text(&row[1]),
            name: text(&row[2]),
            text: text(&row[3]),
            ttl: row[4].as_i64(),
            dead: row[5].as_bool().expect("a boolean"),
        });
        let looked_up = value["looked_up"].as_array().expect("keys").iter();
        let mut stock = Self {
            seeded_at: value["seeded_at"].as_i64().expect("a time"),
            rows: rows.collect(),
            looked_up: looked_up.map(|key| (text(&key[0]), text(&key[1]), text(&key[2]))).collect(),
            identifiers: HashSet::new(),
        };
        stock.identify();
        stock
    }
}

impl StockRow {
    pub(crate) fn sort(&self) -> String {
        format!("{}:{}", self.bucket, self.name)
    }

    pub(crate) fn key(&self) -> Key {
        (self.owner.clone(), self.sort())
    }

    pub(crate) fn item(&self) -> Item {
        let text = |value: &str| AttributeValue::S(value.to_owned());
        let mut item = HashMap::from([
            ("id".to_owned(), text(&self.owner)),
            ("bucket_name".to_owned(), text(&self.sort())),
            ("bucket".to_owned(), text(&self.bucket)),
            ("name".to_owned(), text(&self.name)),
            ("data".to_owned(), text(&self.text)),
        ]);
        item.extend(self.ttl.map(|ttl| ("ttl_timestamp".to_owned(), AttributeValue::N(ttl.to_string()))));
        item
    }

    /// The size that DynamoDB bills: names and values, a number with one byte per two digits.
    pub(crate) fn bytes(&self) -> usize {
        let names = "id".len() + "bucket_name".len() + "bucket".len() + "name".len() + "data".len();
        let ttl = self.ttl.map_or(0, |ttl| "ttl_timestamp".len() + ttl.to_string().len() / 2 + 1);
        names + self.owner.len() + self.sort().len() + self.bucket.len() + self.name.len() + self.text.len() + ttl
    }
}

fn model_row(row: StockRow) -> ModelRow {
    ModelRow {
        owner: row.owner,
        bucket: row.bucket,
        name: row.name,
        data: Some(row.text),
        ttl: row.ttl.map_or(ModelTtl::Absent, ModelTtl::Number),
    }
}

fn is_system(owner: &str) -> bool {
    owner.starts_with('_')
}

fn owner(owner: &str, copy: u64) -> String {
    if is_system(owner) { owner.to_owned() } else { renamed(owner, copy) }
}

/// The name in another copy of the table: the first random characters differ, so that the copies of a row are as far apart
/// as any two rows.
fn renamed(name: &str, copy: u64) -> String {
    if copy == 0 || name.len() < SHORTEST_RANDOM {
        return name.to_owned();
    }
    // The provider row of a code is named after it, also in a copy.
    let kept = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix)).map_or(0, |rest| name.len() - rest.len());
    let (prefix, random) = name.split_at(kept);
    let (prefix, random) = match random.strip_prefix("ac_") {
        Some(code) => (&name[..prefix.len() + 3], code),
        None => (prefix, random),
    };
    let hex = random.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let alphabet: &[u8] =
        if hex { b"0123456789abcdef" } else { b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_" };
    let mut hasher = DefaultHasher::new();
    (copy, random).hash(&mut hasher);
    let mut bits = hasher.finish();
    let size = alphabet.len() as u64;
    let mut changed = String::with_capacity(name.len());
    changed.push_str(prefix);
    for _ in 0..CHANGED {
        changed.push(char::from(alphabet[usize::try_from(bits % size).unwrap_or(0)]));
        bits /= size;
    }
    changed.push_str(&random[CHANGED..]);
    changed
}

/// Adds `later` seconds to every number of ten digits, which is a time.
fn shifted(text: &str, later: i64) -> String {
    let mut moved = String::with_capacity(text.len());
    let mut digits = String::new();
    for character in text.chars().chain(std::iter::once('\0')) {
        if character.is_ascii_digit() {
            digits.push(character);
            continue;
        }
        match digits.parse::<i64>() {
            Ok(time) if digits.len() == 10 => moved.push_str(&(time + later).to_string()),
            _ => moved.push_str(&digits),
        }
        digits.clear();
        moved.push(character);
    }
    moved.pop();
    moved
}

/// Every row of a table except the janitor's own.
async fn read_table(client: &Client, table: &str) -> Vec<StockRow> {
    let (mut rows, mut start) = (Vec::new(), None);
    loop {
        let page = client.scan().table_name(table).consistent_read(true).set_exclusive_start_key(start).send().await;
        let page = page.expect("the table can be scanned");
        rows.extend(page.items().iter().map(stock_row));
        start = page.last_evaluated_key;
        if start.is_none() {
            rows.retain(|row| row.owner != shared::bucket::JANITOR_OWNER);
            return rows;
        }
    }
}

fn stock_row(item: &Item) -> StockRow {
    let text = |name: &str| item.get(name).and_then(|value| value.as_s().ok()).cloned().unwrap_or_default();
    let ttl = item.get("ttl_timestamp").and_then(|ttl| ttl.as_n().ok()).and_then(|digits| digits.parse().ok());
    let row = StockRow {
        owner: text("id"),
        bucket: text("bucket"),
        name: text("name"),
        text: text("data"),
        ttl,
        dead: false,
    };
    let known = 5 + usize::from(row.ttl.is_some());
    let is_own = row.owner == shared::bucket::JANITOR_OWNER;
    assert!(
        is_own || item.len() == known && !row.text.contains("\\\""),
        "a row of {} that cannot be copied",
        row.bucket
    );
    row
}
