//! One pass: the fewest read units that a cleanup needs, as AWS bills them.

use std::collections::{HashMap, HashSet};

use model::Key;
use serde_json::Value;
use shared::bucket::{BUCKETS, Owner, REFERRERS_PREFIX, Rule};

use crate::stock::{Stock, StockRow};

/// Units per started 4 KB of a consistent and of an eventually consistent read.
const CONSISTENT: f64 = 1.0;
const EVENTUAL: f64 = 0.5;

/// The rows that have to be read follow from the rows, not from the requests of the cleanup: the system actors' rows, once, by Query;
/// the target of every index row that may be dead by now, by the index row's TTL; every provider row that a dead token names; and if
/// a provider row's TTL does not decide, the token rows of its actor, once, by Query, to see whether one of them still names it.
///
/// Each has the price of the cheapest correct read. A row that is found may be stale, because its delete is conditional; only absence
/// that decides needs a consistent read: of a target, and of a token that names a provider row. Absence of a provider row decides
/// nothing.
pub(crate) fn least_read_units(stock: &Stock) -> f64 {
    let at = stock.seeded_at;
    let rows: HashMap<Key, &StockRow> = stock.rows.iter().map(|row| (row.key(), row)).collect();
    let paged = || stock.rows.iter().filter(|row| is_paged(row));
    let by_query = units(paged(), EVENTUAL);

    let due = paged().filter_map(|row| due_target(row, at));
    let targets: HashSet<Key> = due.collect();
    let providers: HashSet<Key> = stock.rows.iter().filter(|row| row.dead).filter_map(named_provider).collect();
    let look = |key: &Key, absent: f64| rows.get(key).map_or(absent, |row| units(std::iter::once(*row), EVENTUAL));
    let looked_up: f64 = targets.iter().map(|key| look(key, CONSISTENT)).sum();
    let provided: f64 = providers.iter().map(|key| look(key, EVENTUAL)).sum();

    // The actors with a provider row whose TTL does not decide, and whether one of these rows is dead: no live token names it.
    let mut undecided: HashMap<&str, bool> = HashMap::new();
    for row in providers.iter().filter_map(|key| rows.get(key)).filter(|row| row.ttl.is_none_or(|ttl| ttl >= at)) {
        *undecided.entry(&row.owner).or_default() |= row.dead;
    }
    let referrers = undecided.into_iter().map(|(actor, unnamed)| {
        let tokens = stock.rows.iter().filter(|row| row.owner == actor && row.bucket.starts_with(REFERRERS_PREFIX));
        units(tokens, if unnamed { CONSISTENT } else { EVENTUAL })
    });
    by_query + looked_up + provided + referrers.sum::<f64>()
}

/// Units of one read of these rows: the sum of their bytes is rounded up.
fn units<'r>(rows: impl Iterator<Item = &'r StockRow>, price: f64) -> f64 {
    let bytes: usize = rows.map(StockRow::bytes).sum();
    crate::float(bytes.div_ceil(4_096).max(1) as u64) * price
}

fn is_paged(row: &StockRow) -> bool {
    BUCKETS.iter().any(|bucket| {
        matches!(bucket.owner, Owner::System(owner) if owner == row.owner)
            && bucket.rule != Rule::Never
            && row.sort().starts_with(&bucket.sort_prefix())
    })
}

/// The target of an index row, if it may be dead by now.
fn due_target(row: &StockRow, at: i64) -> Option<Key> {
    let known = BUCKETS.iter().find(|known| known.name == row.bucket && known.owner != Owner::Legacy)?;
    let Rule::Pointer { target } = known.rule else { return None };
    // The index row's TTL is two hours after its target's, and both include an hour for skew.
    let due = row.ttl.is_none_or(|ttl| at > ttl - 3 * 3_600);
    due.then(|| (row.text.trim_matches('"').to_owned(), format!("{target}:{}", row.name)))
}

fn named_provider(token: &StockRow) -> Option<Key> {
    let fields: Value = serde_json::from_str(&token.text).ok()?;
    let name = fields["google_token_key"].as_str().filter(|_| token.bucket.starts_with(REFERRERS_PREFIX))?;
    Some((token.owner.clone(), format!("mcp_google_tokens:{name}")))
}
