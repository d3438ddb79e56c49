//! A reference model: the rules of docs/rows.md, implemented a second time without the code of `shared`'s decisions.

pub mod mutate;
pub mod random;
pub mod rows;
pub mod verdict;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;

use serde_json::Value;
use shared::row::{Raw, Row, RowKey};

/// Prints a figure, a JSON object, and appends it to the file of `make proof`.
pub fn figure(figure: &Value) {
    println!("{figure}");
    if let Ok(path) = std::env::var("PROOF_FIGURES") {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
        let written = file.and_then(|mut file| writeln!(file, "{figure}"));
        written.expect("PROOF_FIGURES can be written");
    }
}

/// Whether the long form of the proofs is requested.
#[must_use]
pub fn is_long() -> bool {
    std::env::var("PROOF").is_ok_and(|proof| proof == "long")
}

/// Seconds since `started`, rounded to tenths.
#[must_use]
pub fn seconds(started: std::time::Instant) -> f64 {
    (started.elapsed().as_secs_f64() * 10.0).round() / 10.0
}

/// A row of the model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelRow {
    pub owner: String,
    pub bucket: String,
    pub name: String,
    /// The text of `data`; `None` is an absent attribute.
    pub data: Option<String>,
    pub ttl: ModelTtl,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ModelTtl {
    Absent,
    Number(i64),
    Text(String),
}

/// `(owner, bucket_name)`.
pub type Key = (String, String);

impl ModelRow {
    #[must_use]
    pub fn key(&self) -> Key {
        (self.owner.clone(), format!("{}:{}", self.bucket, self.name))
    }

    fn json(&self) -> Option<Value> {
        serde_json::from_str(self.data.as_deref()?).ok()
    }

    fn ttl_is_valid(&self, now: i64) -> Option<i64> {
        match self.ttl {
            ModelTtl::Number(at) if at > 0 && at < 100_000_000_000 && at >= now - 5 * 365 * 86_400 => Some(at),
            _ => None,
        }
    }

    fn ttl_past(&self, now: i64) -> bool {
        self.ttl_is_valid(now).is_some_and(|at| at < now)
    }
}

/// The row as a `Row` of `shared`.
#[must_use]
pub fn to_row(row: &ModelRow) -> Row {
    Row {
        key: RowKey::new(row.owner.clone(), format!("{}:{}", row.bucket, row.name)),
        bucket: Raw::Text(row.bucket.clone()),
        data: row.data.clone().map_or(Raw::Absent, Raw::Text),
        ttl: match &row.ttl {
            ModelTtl::Absent => Raw::Absent,
            ModelTtl::Number(at) => Raw::Number(at.to_string()),
            ModelTtl::Text(text) => Raw::Text(text.clone()),
        },
        retired_from: Raw::Absent,
        bytes: 100,
    }
}

/// Whether a row that is judged without other rows is dead.
#[must_use]
pub fn dead_by_itself(row: &ModelRow, now: i64) -> bool {
    let past = row.ttl_past(now);
    // The application's clock may be five minutes behind the table's.
    let now = now - 300;
    let fields = row.json().filter(Value::is_object);
    let int = |name: &str| fields.as_ref().and_then(|fields| fields[name].as_i64());
    let used = fields.as_ref().map(|fields| fields["used"].clone());
    match row.bucket.as_str() {
        "oauth_sessions" | "_oauth_sessions" => match int("created_at") {
            Some(created) => now - created > 600,
            None => past,
        },
        "spa_access_tokens" | "mcp_tokens" | "mcp_auth_codes" => match int("expires_at") {
            Some(expires) if now > expires => true,
            Some(_) if used == Some(Value::Bool(true)) => past,
            Some(_) => false,
            None => past,
        },
        "_apple_exchange_tickets" => match int("expires_at") {
            Some(expires) => now > expires,
            None => past,
        },
        "spa_refresh_tokens" | "mcp_refresh_tokens" => match (used, int("used_at"), int("expires_at")) {
            (Some(Value::Bool(true)), Some(used_at), Some(expires)) => {
                past || (now > used_at + 172_800 && now > expires)
            }
            (Some(Value::Bool(false) | Value::Null), _, Some(expires)) => now > expires,
            _ => past,
        },
        "_id_token_replay" => match int("exp") {
            Some(0) | None => past,
            Some(exp) => exp + 60 <= now,
        },
        "_oauth_state_nonces" | "_email_verify_tokens" | "_deleted_actors" => past,
        _ => false,
    }
}

const INDEXES: [(&str, &str); 8] = [
    ("auth_code_index", "mcp_auth_codes"),
    ("_auth_code_index", "mcp_auth_codes"),
    ("access_token_index", "mcp_tokens"),
    ("_access_token_index", "mcp_tokens"),
    ("refresh_token_index", "mcp_refresh_tokens"),
    ("_refresh_token_index", "mcp_refresh_tokens"),
    ("client_index", "mcp_clients"),
    ("_client_index", "mcp_clients"),
];

const SYSTEM: [(&str, &str); 9] = [
    ("_actingweb_oauth2", "oauth_sessions"),
    ("_actingweb_oauth2", "_oauth_sessions"),
    ("_actingweb_oauth2", "spa_access_tokens"),
    ("_actingweb_oauth2", "spa_refresh_tokens"),
    ("_actingweb_oauth2", "_id_token_replay"),
    ("_actingweb_oauth2", "_oauth_state_nonces"),
    ("_actingweb_oauth2", "_apple_exchange_tickets"),
    ("_actingweb_system", "_email_verify_tokens"),
    ("_actingweb_deleted", "_deleted_actors"),
];

/// The rows that one daily cleanup of the table must delete.
#[must_use]
pub fn daily_cleanup(rows: &[ModelRow], now: i64) -> BTreeSet<Key> {
    let table: BTreeMap<Key, &ModelRow> = rows.iter().map(|row| (row.key(), row)).collect();
    let mut deleted: BTreeSet<Key> = BTreeSet::new();
    for row in table.values() {
        if SYSTEM.contains(&(row.owner.as_str(), row.bucket.as_str())) && dead_by_itself(row, now) {
            deleted.insert(row.key());
        }
    }
    for (index_bucket, target_bucket) in INDEXES {
        for row in table.values().filter(|row| row.owner == "_actingweb_oauth2" && row.bucket == index_bucket) {
            // Its token expires three hours before the index row's TTL at the earliest, and is deleted five minutes later.
            if row.ttl_is_valid(now).is_some_and(|at| now - 300 <= at - 3 * 3_600) {
                continue;
            }
            let Some(Value::String(actor)) = row.json() else { continue };
            match table.get(&(actor, format!("{target_bucket}:{}", row.name))) {
                None => {
                    deleted.insert(row.key());
                }
                Some(target) if target.bucket == target_bucket && dead_by_itself(target, now) => {
                    deleted.insert(row.key());
                    deleted.insert(target.key());
                }
                Some(_) => {}
            }
        }
    }
    let named = |row: &ModelRow| match row.bucket.as_str() {
        "mcp_tokens" | "mcp_refresh_tokens" | "mcp_auth_codes" => {
            row.json().and_then(|data| Some(data.get("google_token_key")?.as_str()?.to_owned()))
        }
        _ => None,
    };
    for row in table.values() {
        let is_deleted = deleted.contains(&row.key());
        let Some(name) = named(row).filter(|_| is_deleted) else { continue };
        let Some(provider) = table.get(&(row.owner.clone(), format!("mcp_google_tokens:{name}"))) else { continue };
        let still_named = table.values().any(|other| {
            other.owner == row.owner && !dead_by_itself(other, now) && named(other).as_deref() == Some(&name)
        });
        if provider.bucket == "mcp_google_tokens" && (provider.ttl_past(now) || !still_named) {
            deleted.insert(provider.key());
        }
    }
    deleted
}

/// The rows that one index repair must delete, if it sees all rows of unknown age for the first time.
#[must_use]
pub fn index_repair(rows: &[ModelRow], now: i64) -> BTreeSet<Key> {
    let table: BTreeMap<Key, &ModelRow> = rows.iter().map(|row| (row.key(), row)).collect();
    let mut deleted: BTreeSet<Key> = BTreeSet::new();
    let is_actor = |owner: &str| owner == "_actingweb_oauth2" || !owner.starts_with('_');
    let index_buckets = |target: &str| {
        INDEXES.iter().filter(move |(_, pointed)| *pointed == target).map(|(index, _)| *index).collect::<Vec<_>>()
    };
    let tokens = ["mcp_tokens", "mcp_refresh_tokens", "mcp_auth_codes"];
    for row in table.values() {
        if let Some((_, target)) =
            INDEXES.iter().find(|(index, _)| row.owner == "_actingweb_oauth2" && row.bucket == *index)
        {
            let Some(Value::String(actor)) = row.json() else { continue };
            if !table.contains_key(&(actor, format!("{target}:{}", row.name))) {
                deleted.insert(row.key());
            }
        }
        if is_actor(&row.owner) && tokens.contains(&row.bucket.as_str()) {
            let indexed = index_buckets(&row.bucket)
                .iter()
                .any(|index| table.contains_key(&("_actingweb_oauth2".to_owned(), format!("{index}:{}", row.name))));
            let data = row.json().unwrap_or_default();
            let consumed =
                row.bucket == "mcp_refresh_tokens" && !matches!(data["used"], Value::Bool(false) | Value::Null);
            let old_enough = data["created_at"].as_i64().is_some_and(|created| now - 300 - created > 3_600);
            if !indexed && (dead_by_itself(row, now) || (!consumed && old_enough)) {
                deleted.insert(row.key());
            }
        }
    }
    for row in table.values().filter(|row| is_actor(&row.owner) && row.bucket == "mcp_google_tokens") {
        let names_it = |token: &ModelRow| {
            token.owner == row.owner
                && tokens.contains(&token.bucket.as_str())
                && token.json().is_some_and(|data| data["google_token_key"] == row.name.as_str())
        };
        let named_by: Vec<&&ModelRow> = table.values().filter(|token| names_it(token)).collect();
        let old_enough = row.ttl_is_valid(now).is_some_and(|at| now - 300 - (at - 7_200) > 3_600);
        let needed = named_by.iter().any(|token| !deleted.contains(&token.key()));
        if row.ttl_past(now) || (!needed && (old_enough || !named_by.is_empty())) {
            deleted.insert(row.key());
        }
    }
    deleted
}

/// Index rows that point at nothing.
#[must_use]
pub fn dangling(rows: &[ModelRow]) -> BTreeSet<Key> {
    let keys: BTreeSet<Key> = rows.iter().map(ModelRow::key).collect();
    let points_at_nothing = |row: &&ModelRow| {
        let target = INDEXES.iter().find(|(index, _)| row.owner == "_actingweb_oauth2" && row.bucket == *index);
        match (target, row.json()) {
            (Some((_, target)), Some(Value::String(actor))) => {
                !keys.contains(&(actor, format!("{target}:{}", row.name)))
            }
            _ => false,
        }
    };
    rows.iter().filter(points_at_nothing).map(ModelRow::key).collect()
}
