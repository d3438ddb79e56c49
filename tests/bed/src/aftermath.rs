//! The table after an attack: read with a plain scan, judged by the model, and searched for secrets.

use std::collections::{BTreeSet, HashMap, HashSet};

use aws_sdk_dynamodb::types::AttributeValue;
use shared::bucket::JANITOR_OWNER;

use model::{self, Key, ModelRow, ModelTtl};

/// The rows of the table, and the text of the janitor's own rows in it.
pub struct Aftermath {
    pub rows: Vec<ModelRow>,
    pub own: String,
}

impl Aftermath {
    /// Uses a new connection: the engine may have closed one that was idle during the attack.
    ///
    /// # Panics
    /// When the engine refuses.
    pub async fn read(endpoint: &str, table: &str) -> Self {
        let client = crate::tables::client(endpoint).await;
        let mut found = Self { rows: Vec::new(), own: String::new() };
        let mut start = None;
        loop {
            let page = client.scan().table_name(table).consistent_read(true).set_exclusive_start_key(start);
            let page = page.send().await.expect("the table can be read");
            for item in page.items() {
                match row(item) {
                    row if row.owner == JANITOR_OWNER => found.own.push_str(&format!("{row:?}\n")),
                    row => found.rows.push(row),
                }
            }
            start = page.last_evaluated_key;
            if start.is_none() {
                return found;
            }
        }
    }

    /// The table; if runs retire dead rows, without the rows that TTL removes in the next seven days.
    pub async fn left(endpoint: &str, table: &str, judged_at: i64, retires: bool) -> Self {
        let aftermath = Self::read(endpoint, table).await;
        if retires { aftermath.after_ttl(judged_at + 7 * 86_400) } else { aftermath }
    }

    /// Without the rows whose TTL is up to `end`.
    #[must_use]
    fn after_ttl(mut self, end: i64) -> Self {
        self.rows.retain(|row| !matches!(row.ttl, ModelTtl::Number(at) if at <= end));
        self
    }

    /// Rows that the runs at `now` should have removed.
    #[must_use]
    pub fn dead(&self, now: i64) -> BTreeSet<Key> {
        let mut dead = model::daily_cleanup(&self.rows, now);
        dead.extend(model::index_repair(&self.rows, now));
        // Also rows that are dead by their own fields, even where no run would reach them.
        dead.extend(self.rows.iter().filter(|row| model::dead_by_itself(row, now)).map(ModelRow::key));
        dead
    }
}

fn row(item: &HashMap<String, AttributeValue>) -> ModelRow {
    let text = |name: &str| item.get(name).and_then(|value| value.as_s().ok()).cloned();
    ModelRow {
        owner: text("id").unwrap_or_default(),
        bucket: text("bucket").unwrap_or_default(),
        name: text("name").unwrap_or_default(),
        data: text("data"),
        ttl: match item.get("ttl_timestamp") {
            None => ModelTtl::Absent,
            Some(AttributeValue::N(at)) => at.parse().map_or_else(|_| ModelTtl::Text(at.clone()), ModelTtl::Number),
            Some(other) => ModelTtl::Text(format!("{other:?}")),
        },
    }
}

/// Length of the part of a secret that is searched for: more than a mask shows.
const PIECE: usize = 16;

/// Counts the first and last pieces of secrets in a text, in one pass over it.
///
/// # Panics
/// When a secret is too short to search for.
#[must_use]
pub fn secrets_in<'a>(text: &str, secrets: impl IntoIterator<Item = &'a str>) -> u64 {
    let mut pieces = HashSet::new();
    for secret in secrets.into_iter().map(str::as_bytes) {
        assert!(secret.len() >= PIECE, "a secret of {} characters is too short to search for", secret.len());
        pieces.extend([&secret[..PIECE], &secret[secret.len() - PIECE..]]);
    }
    assert!(!pieces.is_empty(), "no secrets to search for");
    text.as_bytes().windows(PIECE).filter(|window| pieces.contains(window)).collect::<HashSet<_>>().len() as u64
}

#[cfg(test)]
mod tests {
    use super::secrets_in;

    #[test]
    fn finds_a_secret_by_either_end_and_nothing_else() {
        let secret = "rt_0123456789abcdefghijklmnopqrstuvwxyz";
        let found = |text: &str| secrets_in(text, [secret]);
        assert_eq!(found("all is well: rt_0123…"), 0);
        assert_eq!(found(&format!("said {secret}")), 2);
        assert_eq!(found("cut: rt_0123456789abcdef"), 1);
        assert_eq!(found("ghijklmnopqrstuvwxyz"), 1);
    }
}
