//! What an attack left behind: read with a plain scan, judged by the model, and searched for secrets.

use std::collections::{BTreeSet, HashMap, HashSet};

use aws_sdk_dynamodb::types::AttributeValue;
use shared::bucket::JANITOR_OWNER;

use model::{self, Key, ModelRow, ModelTtl};

/// The table, and the text of this project's own rows in it.
pub struct Aftermath {
    pub rows: Vec<ModelRow>,
    pub own: String,
}

impl Aftermath {
    /// Through a connection of its own: one that was idle for as long as an attack takes may have been closed.
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

    /// The table; where runs retire dead rows, without what TTL removes in the days that this takes.
    pub async fn left(endpoint: &str, table: &str, judged_at: i64, retires: bool) -> Self {
        let aftermath = Self::read(endpoint, table).await;
        if retires { aftermath.after_ttl(judged_at + 7 * 86_400) } else { aftermath }
    }

    /// What is left once TTL has removed everything that has one up to `end`.
    #[must_use]
    fn after_ttl(mut self, end: i64) -> Self {
        self.rows.retain(|row| !matches!(row.ttl, ModelTtl::Number(at) if at <= end));
        self
    }

    /// What a cleaning as of `now` must have removed and has not.
    #[must_use]
    pub fn dead(&self, now: i64) -> BTreeSet<Key> {
        let mut dead = model::daily_cleanup(&self.rows, now);
        dead.extend(model::index_repair(&self.rows, now));
        // And what is dead by its own fields, wherever a cleaning would have come upon it.
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

/// As much of a secret as is looked for: the mask of this project shows fewer characters than that.
const PIECE: usize = 16;

/// How many of the secrets are in a text, by their first or last characters. One pass over the text, however many secrets
/// there are.
///
/// # Panics
/// When a secret is too short to be looked for.
#[must_use]
pub fn secrets_in<'a>(text: &str, secrets: impl IntoIterator<Item = &'a str>) -> u64 {
    let mut pieces = HashSet::new();
    for secret in secrets.into_iter().map(str::as_bytes) {
        assert!(secret.len() >= PIECE, "a secret of {} characters cannot be told from other text", secret.len());
        pieces.extend([&secret[..PIECE], &secret[secret.len() - PIECE..]]);
    }
    assert!(!pieces.is_empty(), "nothing to look for");
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
