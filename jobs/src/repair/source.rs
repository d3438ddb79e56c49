//! Divides a segment of the table into pieces of work: index rows one by one, the token and provider rows of an actor
//! together.

use crate::run::report::Tally;
use crate::store::{Budget, Consistency, Result, Rows, ScanTable, scan_segment};
use crate::walk::{Context, Source};
use shared::bucket::{self, BUCKETS, Bucket, JANITOR_OWNER, OAUTH_OWNER, Rule};
use shared::disposal::{self, Condemned};
use shared::expiry::KeepReason;
use shared::integrity::{self, Question, RepairPart};
use shared::row::{Fields, Row, RowKey};

/// Maximum number of rows that a piece examines, even if none needs work, so that the deadline is checked.
const MAX_EXAMINED: usize = 4_000;

/// Batches of lookups per piece.
const BATCHES: usize = 4;

/// Maximum number of rows of one actor that are judged together, more than actors have. An actor with more rows is
/// judged in parts, which only costs another Query per part.
const MAX_TOGETHER: usize = 2_000;

/// A place in a segment. The order of a Scan is undefined, so places are ordered by the number of rows passed.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TablePlace {
    pub(super) passed: u64,
    /// The row to continue after, without most of its name.
    pub(super) key: Option<RowKey>,
}

pub(super) enum Unit {
    /// Dead, whatever the other rows are.
    Dead(Condemned),
    Index(Pointer),
    /// The rows of one actor that depend on each other.
    Actor(Actor),
    /// An owner, and the number of its rows.
    Owner {
        id: String,
        rows: u64,
    },
}

/// An index row and the key that it points at.
pub(super) struct Pointer {
    pub(super) row: Row,
    pub(super) bucket: &'static Bucket,
    pub(super) target: RowKey,
}

/// The tokens and provider rows of one actor.
#[derive(Default)]
pub(super) struct Actor {
    /// Tokens that are deleted if no index row leads to them.
    pub(super) doubtful: Vec<(Row, &'static Bucket)>,
    pub(super) providers: Vec<Row>,
    /// Names of provider rows that are named by a token which is kept in any case.
    pub(super) needed: Vec<String>,
    /// Some of the actor's rows are in another part, were passed by an earlier run, or cannot be read.
    pub(super) partial: bool,
}

pub(super) struct SegmentRows<'a, S> {
    context: &'a Context<'a, S>,
    rows: Rows<'a>,
    passed: u64,
    /// Where this run started in the segment.
    began: Option<RowKey>,
    /// The last row of the last piece.
    reached: Option<RowKey>,
    /// The owner being read, the number of its rows so far, and those that have to be judged together.
    owner: Option<String>,
    owner_rows: u64,
    actor: Actor,
    together: usize,
}

impl<S: ScanTable + Budget> Source for SegmentRows<'_, S> {
    type Unit = Unit;
    type Position = TablePlace;

    fn place(&self) -> TablePlace {
        TablePlace { passed: self.passed, key: self.reached.as_ref().map(|key| shortened(key, self.began.as_ref())) }
    }

    async fn next_piece(&mut self) -> Result<Option<(Tally, Vec<Unit>)>> {
        let (mut counts, mut units, mut examined) = (Tally::default(), Vec::new(), 0);
        // An actor's rows are not divided, so a piece rarely ends with a full batch: more batches waste less.
        let most_lookups = BATCHES * self.context.store.lookup_batch();
        let mut lookups = 0;
        while let Some(row) = self.next_row().await? {
            if self.owner.as_ref() != Some(&row.key.owner) {
                self.close_owner(&mut units);
                // Each owner may be looked up in the actors' table.
                lookups += 1;
                // A piece ends between two owners, so that rows that depend on each other are not divided.
                if lookups >= most_lookups || examined >= MAX_EXAMINED {
                    self.rows.push_back(row);
                    return Ok(Some((counts, units)));
                }
                // If an earlier run stopped in the middle of an actor, only the remaining rows are read.
                self.actor.partial = self.reached.as_ref().is_some_and(|reached| reached.owner == row.key.owner);
                self.owner = Some(row.key.owner.clone());
            }
            examined += 1;
            self.passed += 1;
            self.owner_rows += 1;
            self.reached = Some(row.key.clone());
            lookups += self.examine(row, &mut counts, &mut units);
            // In partitions with millions of independent rows, a piece may end anywhere.
            let stands_alone = self.together == 0 && (lookups >= most_lookups || examined >= MAX_EXAMINED);
            if stands_alone || self.together >= MAX_TOGETHER {
                self.actor.partial = true;
                self.close_actor(&mut units);
                self.actor.partial = true;
                return Ok(Some((counts, units)));
            }
        }
        self.close_owner(&mut units);
        Ok((examined > 0 || !units.is_empty()).then_some((counts, units)))
    }
}

impl<'a, S: ScanTable + Budget> SegmentRows<'a, S> {
    pub(super) fn new(context: &'a Context<'a, S>, segment: i32, segments: i32, from: Option<RowKey>) -> Self {
        Self {
            context,
            rows: Rows::new(scan_segment(context.store, segment, segments, from.clone(), Consistency::Eventual)),
            passed: 0,
            began: from.clone(),
            reached: from,
            owner: None,
            owner_rows: 0,
            actor: Actor::default(),
            together: 0,
        }
    }

    async fn next_row(&mut self) -> Result<Option<Row>> {
        self.rows.fill().await?;
        Ok(self.rows.pop())
    }

    fn close_owner(&mut self, units: &mut Vec<Unit>) {
        self.close_actor(units);
        if let Some(id) = self.owner.take() {
            units.push(Unit::Owner { id, rows: std::mem::take(&mut self.owner_rows) });
        }
    }

    fn close_actor(&mut self, units: &mut Vec<Unit>) {
        if self.together > 0 {
            units.push(Unit::Actor(std::mem::take(&mut self.actor)));
            self.together = 0;
        }
    }

    /// Assigns a row to its work, and returns how much that is, in lookups or rows held.
    fn examine(&mut self, row: Row, counts: &mut Tally, units: &mut Vec<Unit>) -> usize {
        let Context { now, policy, .. } = self.context;
        if row.key.owner == JANITOR_OWNER {
            return 0;
        }
        let Some(bucket) = row.known_bucket() else {
            counts.unknown();
            return 0;
        };
        counts.read(bucket);
        match integrity::repair_part(bucket) {
            RepairPart::Index => match integrity::ask_anyway(&row, bucket, *now, policy) {
                Question::Settled(reason) => counts.kept(bucket, reason),
                Question::LookAt(target) => {
                    units.push(Unit::Index(Pointer { row, bucket, target }));
                    return 1;
                }
            },
            RepairPart::Alone => match disposal::condemn(row, bucket, *now, policy) {
                Ok(condemned) => {
                    units.push(Unit::Dead(condemned));
                    return 1;
                }
                Err(reason) => counts.kept(bucket, reason),
            },
            RepairPart::Provider | RepairPart::Token => {
                // The OAuth system actor has too many rows to judge together: each is judged alone.
                let alone = row.key.owner == OAUTH_OWNER;
                let work = self.examine_actors_row(row, bucket, counts);
                if alone {
                    self.actor.partial = true;
                    self.close_actor(units);
                }
                return work;
            }
            RepairPart::LeftToCleanup => counts.kept(bucket, KeepReason::LeftToDaily),
        }
        0
    }

    fn examine_actors_row(&mut self, row: Row, bucket: &'static Bucket, counts: &mut Tally) -> usize {
        let Context { now, policy, .. } = self.context;
        self.together += 1;
        if bucket.rule == Rule::Provider {
            self.actor.providers.push(row);
            return 1;
        }
        // Python accepts JSON that is not read here (NaN, duplicate keys): the text of such a row is searched instead.
        self.actor.partial |= Fields::read(&row.data).is_none();
        match integrity::could_go_unindexed(&row, bucket, *now, policy) {
            Ok(()) => {
                self.actor.doubtful.push((row, bucket));
                1
            }
            Err(reason) => {
                self.actor.needed.extend(integrity::provider_named_by(&row));
                counts.kept(bucket, reason);
                0
            }
        }
    }
}

/// Characters of a row's name in a cursor, and their maximum: see `cleanup::cursor`.
const SHOWN: usize = 8;
const MOST_SHOWN: usize = 12;

/// Sorts after every key.
const LAST: char = char::MAX;

/// The key without most of the row's name, so that no token is stored: the next run reads a few rows again. It is
/// always after the place where this run `began`, if this run has read anything.
fn shortened(key: &RowKey, began: Option<&RowKey>) -> RowKey {
    if began == Some(key) {
        return key.clone();
    }
    let floor = began.filter(|began| began.owner == key.owner).map_or("", |began| began.sort.as_str());
    let known = key.sort.split_once(':').and_then(|(name, _)| bucket::find(&key.owner, name));
    // The bucket, and the prefix that all of its names share, are not secret.
    let public = known.map_or(0, |bucket| {
        let prefix = bucket.sort_key(bucket.names.prefix);
        if key.sort.starts_with(&prefix) { prefix.len() } else { bucket.name.len() + 1 }
    });
    let head = |shown: usize| {
        let end = key.sort[public..].char_indices().nth(shown).map_or(key.sort.len(), |(end, _)| public + end);
        &key.sort[..end]
    };
    let further = (SHOWN..=MOST_SHOWN).map(head).find(|head| *head > floor).map(str::to_owned);
    // More rows have this prefix than one run reads: the rest of them is skipped. No library writes such names in a
    // known bucket. Rows of unknown buckets are never touched; the next known bucket starts at its prefix.
    let sort = further.unwrap_or_else(|| match known {
        Some(_) => format!("{}{LAST}", head(MOST_SHOWN)),
        None => next_known_prefix(key).unwrap_or_else(|| LAST.to_string()),
    });
    RowKey::new(key.owner.clone(), sort)
}

fn next_known_prefix(key: &RowKey) -> Option<String> {
    let of_owner = BUCKETS.iter().filter(|bucket| bucket.owner.holds(&key.owner));
    of_owner.map(Bucket::sort_prefix).filter(|prefix| *prefix > key.sort).min()
}

#[cfg(test)]
mod tests {
    use super::{RowKey, shortened};

    /// The number of runs that pass all rows of an actor, if each reads `read` of them.
    fn runs(rows: &[RowKey], read: usize) -> Option<usize> {
        let mut from: Option<RowKey> = None;
        for run in 1..=rows.len() {
            let left: Vec<&RowKey> =
                rows.iter().filter(|row| from.as_ref().is_none_or(|from| row.sort > from.sort)).collect();
            if left.len() <= read {
                return Some(run);
            }
            let at = shortened(left[read - 1], from.as_ref());
            let secret = left[read - 1].sort.find("secret").map(|from| &left[read - 1].sort[from..]);
            let shown = secret.and_then(|secret| secret.char_indices().nth(12).map(|(end, _)| &secret[..=end]));
            assert!(shown.is_none_or(|shown| !at.sort.contains(shown)), "{}", at.sort);
            from = Some(at);
        }
        None
    }

    #[test]
    fn a_cursor_always_makes_progress() {
        for prefix in [
            "remote:0123456789abcdef0123456789abcdef:list:notes:",
            "mcp_refresh_zzz:secret",
            "_internal:oauth_tokens:",
            "mcp_google_tokens:google_token_access_",
            "mcp_tokens:aw_secretsecretsecret",
            "\u{eb}\u{eb}\u{eb}\u{eb}\u{eb}\u{eb}\u{eb}\u{eb}\u{eb}\u{eb}\u{eb}\u{eb}\u{eb}:",
        ] {
            let mut rows: Vec<RowKey> = (0..200).map(|i| RowKey::new("actor", format!("{prefix}{i:04}"))).collect();
            rows.push(RowKey::new("actor", "mcp_tokens:aw_zzz"));
            rows.push(RowKey::new("actor", "zzz:last"));
            rows.sort();
            assert!(runs(&rows, 20).is_some_and(|runs| runs < 30), "{prefix}");
        }
    }

    #[test]
    fn a_jump_stops_before_the_next_bucket_that_is_known() {
        let reached = RowKey::new("actor", "mcp_refresh_aaaaaaaaaa:1");
        let first = shortened(&reached, None);
        assert_eq!(first.sort, "mcp_refr");
        let mut from = first;
        for _ in 0..5 {
            from = shortened(&reached, Some(&from));
        }
        assert_eq!(from.sort, "mcp_refresh_tokens:");
        let reached = RowKey::new("actor", "zzzzzzzzzzzzzzzz:1");
        let from = RowKey::new("actor", "zzzzzzzzzzzz");
        assert_eq!(shortened(&reached, Some(&from)).sort, "\u{10FFFF}");
        // Nothing was read, so the place is the same.
        assert_eq!(shortened(&from, Some(&from)), from);
    }
}
