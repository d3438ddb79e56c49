//! Divides the rows of each step into pieces of work, in order.

use super::cursor::Cursor;
use super::steps::STEPS;
use crate::store::{Budget, Consistency, PageOf, ReadRows, Result, Rows, pages};
use crate::walk::tally::Tally;
use crate::walk::{Context, Source};
use shared::bucket::{Bucket, Owner, Rule};
use shared::disposal::{self, Condemned};
use shared::integrity::{self, Question};
use shared::row::{Row, RowKey};
use shared::segment::Segment;

/// Maximum number of rows that a piece examines, even if none needs work, so that the deadline is checked.
const MAX_EXAMINED: usize = 2_000;

/// A unit of work.
pub(super) enum Unit {
    /// A row that is dead by its own fields.
    Dead(Condemned),
    /// A token, code or client, by its due index rows.
    Pointed(Pointed),
}

/// The due index rows, of either generation, that point at one row of an actor.
pub(super) struct Pointed {
    pub index_rows: Vec<(Row, &'static Bucket)>,
    pub target: RowKey,
}

pub(super) struct SystemRows<'a, S> {
    context: &'a Context<'a, S>,
    segment: Option<Segment>,
    step: usize,
    /// Name of the last row examined in this step.
    name: String,
    sources: Vec<BucketRows<'a>>,
}

struct BucketRows<'a> {
    bucket: &'static Bucket,
    rows: Rows<'a>,
}

impl<S: ReadRows + Budget> Source for SystemRows<'_, S> {
    type Unit = Unit;
    type Position = Cursor;

    fn place(&self) -> Cursor {
        Cursor { step: self.step, name: self.name.clone() }
    }

    /// Refresh tokens name provider rows of access tokens. Once those are deleted, one read decides instead of four.
    fn waits_for_earlier_pieces(&self) -> bool {
        let is_of_refresh_tokens = |of: &Bucket| of.owner == Owner::Actor && of.rule == Rule::Refresh;
        self.name.is_empty() && STEPS.get(self.step).is_some_and(|step| is_of_refresh_tokens(step.of))
    }

    /// Returns as many units as one lookup takes, or fewer after [`MAX_EXAMINED`] rows.
    async fn next_piece(&mut self) -> Result<Option<(Tally, Vec<Unit>)>> {
        let (mut counts, mut units) = (Tally::default(), Vec::new());
        let (most_units, mut examined) = (self.context.store.lookup_batch(), 0);
        while self.step < STEPS.len() {
            let Some(group) = self.next_group().await? else {
                self.step += 1;
                self.name.clear();
                self.open();
                // A piece ends with its step, because a cursor names one step. A step that waits starts a new piece.
                if examined > 0 || self.waits_for_earlier_pieces() {
                    return Ok(Some((counts, units)));
                }
                continue;
            };
            for (row, bucket) in group {
                examined += 1;
                counts.read(bucket);
                self.examine(row, bucket, &mut counts, &mut units);
            }
            if units.len() >= most_units || examined >= MAX_EXAMINED {
                return Ok(Some((counts, units)));
            }
        }
        Ok(None)
    }
}

impl<'a, S: ReadRows + Budget> SystemRows<'a, S> {
    pub(super) fn new(context: &'a Context<'a, S>, segment: Option<Segment>, from: Option<Cursor>) -> Self {
        let Cursor { step, name } = from.unwrap_or_default();
        let mut rows = Self { context, segment, step, name, sources: Vec::new() };
        rows.open();
        rows
    }

    fn open(&mut self) {
        let buckets = STEPS.get(self.step).into_iter().flat_map(|step| step.buckets.iter().copied());
        let open = |bucket| BucketRows::open(self.context.store, bucket, self.segment, &self.name);
        self.sources = buckets.filter_map(open).collect();
    }

    fn examine(&self, row: Row, bucket: &'static Bucket, counts: &mut Tally, units: &mut Vec<Unit>) {
        let Context { now, policy, .. } = self.context;
        if !matches!(bucket.rule, Rule::Pointer { .. }) {
            match disposal::condemn(row, bucket, *now, policy) {
                Ok(condemned) => units.push(Unit::Dead(condemned)),
                Err(reason) => counts.kept(bucket, reason),
            }
            return;
        }
        match integrity::ask(&row, bucket, *now, policy) {
            Question::Settled(reason) => counts.kept(bucket, reason),
            Question::LookAt(target) => match units.last_mut() {
                // The index row of the other generation for the same token: one unit.
                Some(Unit::Pointed(last)) if last.target == target => last.index_rows.push((row, bucket)),
                _ => units.push(Unit::Pointed(Pointed { index_rows: vec![(row, bucket)], target })),
            },
        }
    }

    /// The rows with the next name: one, or one per generation. The buckets are sorted by name, so this is a merge.
    async fn next_group(&mut self) -> Result<Option<Vec<(Row, &'static Bucket)>>> {
        for source in &mut self.sources {
            source.rows.fill().await?;
        }
        let Some(name) = self.sources.iter().filter_map(BucketRows::head).min().map(str::to_owned) else {
            return Ok(None);
        };
        let group = self
            .sources
            .iter_mut()
            .filter(|source| source.head() == Some(&name))
            .filter_map(|source| Some((source.rows.pop()?, source.bucket)))
            .collect();
        self.name = name;
        Ok(Some(group))
    }
}

impl<'a> BucketRows<'a> {
    /// The rows of the bucket, or of a segment of it, after the name `from`; `None` if the segment ends there.
    fn open<S: ReadRows>(store: &'a S, bucket: &'static Bucket, segment: Option<Segment>, from: &str) -> Option<Self> {
        let (begin, end) = segment.map_or((None, None), |segment| segment.range(bucket.names));
        let name = begin.unwrap_or_default().max(from.to_owned());
        let after = (!name.is_empty()).then(|| bucket.sort_key(&name));
        let until = end.map(|name| bucket.sort_key(&name));
        // DynamoDB rejects a start key behind the end.
        if until.is_some() && after >= until {
            return None;
        }
        // Half the cost: a row that has changed fails the delete's condition, and the next run finds a missed row.
        let all = PageOf::all(bucket.system_owner()?, bucket.sort_prefix(), Consistency::Eventual);
        Some(Self { bucket, rows: Rows::new(pages(store, PageOf { after, until, ..all })) })
    }

    fn head(&self) -> Option<&str> {
        self.rows.peek().and_then(|row| row.name_in(self.bucket))
    }
}
