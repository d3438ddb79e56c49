//! After TTL has removed a token, deletes the index rows that pointed at it and the provider row that only it named,
//! without waiting for a run.
//!
//! It needs no lease. It runs concurrently with the cleanup, the repair and itself, and each delete is safe: its
//! condition is the row as judged, and the facts behind the judgement cannot be reversed. A removed token does not come
//! back (names are random and never reused); if one is restored from a backup, it exists before its index row, and it
//! is read after the index row. A provider row is named only by its grant's own rows, and each of them is written while
//! an older one exists. So the second of two runs finds the row absent or changed, and does nothing.
//!
//! While the janitor is paused, the records of a batch are finished without a delete: the stream would otherwise retry
//! them, and put them into the failure queue after six hours. The weekly repair deletes the rows that they leave.
//!
//! It needs no cursor: the stream has one. Unfinished records are listed in the answer and delivered again; a record
//! that is delivered twice, late or out of order is judged by the rows at that time.

mod report;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use futures_util::{StreamExt, TryStreamExt};
use serde_json::Value;

pub use report::{CascadeReport, Records};

use crate::run::clock::RunClock;
use crate::run::report::{Outcome, Tally};
use crate::run::{RunError, pause};
use crate::store::{Budget, DeleteOutcome, DeleteRows, ReadRows, RetireRows};
use crate::walk::{Context, Stop};
use shared::bucket::{self, Bucket};
use shared::cascade::{Ignored, Record, RemovedToken, condemn_index, condemn_provider, provider_row, read};
use shared::disposal::{Condemned, Judged};
use shared::expiry::KeepReason;
use shared::integrity::{Lookup, Referrers};
use shared::row::{Row, RowKey};
use shared::settings::{ConfigError, Mode, Settings};

/// Removals that are handled together. Larger pieces need fewer requests; a stop still reports each removal by itself.
const PIECE: usize = 100;

/// Actors whose rows are read concurrently.
const CONCURRENT_ACTORS: usize = 8;

/// A parsed event of the stream.
#[derive(Debug)]
pub struct Batch {
    /// Sorted by actor, so that an actor's rows are read once for all of its removals.
    removals: Vec<RemovedToken>,
    records: Records,
}

impl Batch {
    /// A malformed record is not an error: it is counted and ignored.
    pub fn read(event: &Value, table: &str) -> Result<Self, ConfigError> {
        let Some(records) = event["Records"].as_array() else {
            let problem = "it has no Records, so it is not a DynamoDB stream event".to_owned();
            return Err(ConfigError::Event { problem });
        };
        let mut batch = Self { removals: Vec::new(), records: Records::default() };
        for record in records {
            batch.records.received += 1;
            match read(record, table) {
                Record::RemovedToken(removal) => batch.removals.push(removal),
                Record::Ignored(why) => {
                    batch.records.ignored += 1;
                    batch.records.of_other_tables += u64::from(why == Ignored::OtherTable);
                }
                Record::Malformed => batch.records.malformed += 1,
            }
        }
        batch.removals.sort_unstable_by(|one, other| one.token.cmp(&other.token));
        Ok(batch)
    }

    /// Whether there is nothing to do. Then the table is not read at all.
    pub fn is_empty(&self) -> bool {
        self.removals.is_empty()
    }

    /// The records if the invocation fails: all removals are delivered again, including finished ones.
    pub fn failed(&self) -> Records {
        let sequences: BTreeSet<&str> = self.removals.iter().map(|removal| removal.sequence.as_str()).collect();
        Records { failed: sequences.len() as u64, ..self.records }
    }
}

/// Deletes the rows that depended on the removed tokens of a batch. An error fails the whole invocation: retrying single
/// records would not help.
pub async fn cascade<S>(
    store: &S,
    batch: &Batch,
    settings: &Settings,
    clock: &RunClock,
) -> Result<CascadeReport, RunError>
where
    S: ReadRows + DeleteRows + RetireRows + Budget,
{
    let dry = settings.mode == Mode::DryRun;
    let work = Work { context: Context::new(store, clock.now(), settings.policy(), dry, settings.max_deletes) };
    let mut report = CascadeReport::new(settings, clock, batch);
    let pause = if dry { Ok(None) } else { pause::read(store, clock).await };
    match pause {
        Ok(None) => {}
        Ok(Some(pause)) => {
            report.run.outcome = Outcome::Paused;
            report.run.notes.push(format!("{pause}; the index repair deletes what these records left"));
            report.run.usage = store.usage();
            return Ok(report);
        }
        Err(cause) => return Err(report.interrupted(cause)),
    }
    let mut stopped = None;
    for piece in batch.removals.chunks(PIECE) {
        let mut unfinished = vec![true; piece.len()];
        if stopped.is_none() && store.time_is_up() {
            stopped = Some(Stop::OutOfTime);
        }
        if stopped.is_none() {
            stopped = work.work(piece, &mut unfinished, &mut report).await.err();
        }
        let unfinished = piece.iter().zip(unfinished).filter(|(_, unfinished)| *unfinished);
        report.failed.extend(unfinished.map(|(removal, _)| removal.sequence.clone()));
    }
    report.records.failed = report.failed.len() as u64;
    report.run.usage = store.usage();
    report.run.elapsed_ms = u64::try_from(clock.elapsed().as_millis()).unwrap_or(u64::MAX);
    report.run.outcome = match stopped {
        Some(Stop::Fault(cause)) => return Err(report.interrupted(cause)),
        Some(Stop::OutOfTime) => Outcome::OutOfTime,
        Some(Stop::MaxDeletes) => Outcome::MaxDeletes,
        None if report.failed.is_empty() => Outcome::Complete,
        None => Outcome::Skipped,
    };
    Ok(report)
}

struct Work<'a, S> {
    context: Context<'a, S>,
}

/// The rows at the keys of removed tokens, and of the rows that can depend on them.
type Lookups = HashMap<RowKey, Lookup>;

impl<S: ReadRows + DeleteRows + RetireRows> Work<'_, S> {
    /// Works on a piece, and clears `unfinished` for the removals that need not be delivered again.
    async fn work(
        &self,
        removals: &[RemovedToken],
        unfinished: &mut [bool],
        report: &mut CascadeReport,
    ) -> Result<(), Stop> {
        let counts = &mut report.run.counts;
        let seen = self.get_consistent(removals, counts, &mut report.records).await?;
        let referenced = self.find_referrers(removals, &seen).await?;
        unfinished.fill(false);
        let (mut condemned_rows, mut kept) = (BTreeMap::new(), BTreeMap::new());
        for (removal, unfinished) in removals.iter().zip(&mut *unfinished) {
            let target = seen.get(&removal.token).unwrap_or(&Lookup::Unread);
            for (key, bucket) in keys_of(removal) {
                match seen.get(&key) {
                    None | Some(Lookup::Unread) => *unfinished = true,
                    Some(Lookup::Absent) => {}
                    Some(Lookup::Found(row)) => match self.judge(removal, row, bucket, target, &referenced) {
                        Judged::Unknown(_) => {
                            *unfinished = true;
                            counts.skipped(bucket);
                        }
                        Judged::Dead(condemned) => {
                            condemned_rows.entry(key).or_insert(condemned);
                        }
                        // An index row that points elsewhere may point at another removed token of the batch.
                        Judged::Kept(_, reason) => {
                            let known = kept.entry(key).or_insert((bucket, reason));
                            if known.1 == KeepReason::Elsewhere {
                                known.1 = reason;
                            }
                        }
                    },
                }
            }
        }
        for (key, (bucket, reason)) in kept {
            let stays = reason != KeepReason::Elsewhere || !condemned_rows.contains_key(&key);
            if stays {
                condemned_rows.remove(&key);
                counts.kept(bucket, reason);
            }
        }
        self.delete(condemned_rows, removals, unfinished, counts).await
    }

    /// Reads index rows and provider rows first, and then, if there are any, the token that they depended on.
    async fn get_consistent(
        &self,
        removals: &[RemovedToken],
        counts: &mut Tally,
        records: &mut Records,
    ) -> Result<Lookups, Stop> {
        let buckets: BTreeMap<RowKey, &'static Bucket> = removals.iter().flat_map(keys_of).collect();
        let keys: Vec<RowKey> = buckets.keys().cloned().collect();
        let found = self.context.store.get_consistent(&keys).await?;
        for (bucket, found) in buckets.values().zip(&found) {
            match found {
                Lookup::Found(_) => counts.read(bucket),
                Lookup::Unread => counts.skipped(bucket),
                Lookup::Absent => {}
            }
        }
        let mut seen: Lookups = keys.into_iter().zip(found).collect();
        let is_there = |key: &RowKey| matches!(seen.get(key), Some(Lookup::Found(_)));
        let mut tokens: Vec<RowKey> = removals
            .iter()
            .filter(|removal| keys_of(removal).any(|(key, _)| is_there(&key)))
            .map(|removal| removal.token.clone())
            .collect();
        tokens.dedup();
        let targets = if tokens.is_empty() { Vec::new() } else { self.context.store.get_consistent(&tokens).await? };
        records.written_again += targets.iter().filter(|target| matches!(target, Lookup::Found(_))).count() as u64;
        seen.extend(tokens.into_iter().zip(targets));
        Ok(seen)
    }

    /// Which of the provider rows are named by a row of the actor that is not provably dead. A row that is missing from the
    /// result could not be judged.
    async fn find_referrers(
        &self,
        removals: &[RemovedToken],
        seen: &Lookups,
    ) -> Result<HashMap<RowKey, Referrers>, Stop> {
        let mut undecided: BTreeMap<&str, BTreeMap<&RowKey, &Row>> = BTreeMap::new();
        for removal in removals {
            let Some(Lookup::Absent) = seen.get(&removal.token) else { continue };
            let Some(Lookup::Found(row)) = removal.provider.as_ref().and_then(|key| seen.get(key)) else { continue };
            let (now, policy) = (self.context.now, &self.context.policy);
            if provider_row(row, &Lookup::Absent, Referrers::Unknown, now, policy).is_none() {
                undecided.entry(&row.key.owner).or_default().insert(&row.key, row);
            }
        }
        let found: Vec<Vec<(RowKey, Referrers)>> = futures_util::stream::iter(undecided)
            .map(|(actor, rows)| async move {
                let rows: Vec<Row> = rows.into_values().cloned().collect();
                match self.context.referrers(actor, &rows, &HashSet::new()).await {
                    Ok(referrers) => Ok(rows.into_iter().map(|row| row.key).zip(referrers).collect()),
                    Err(error) if error.is_transient() => Ok(Vec::new()),
                    Err(error) => Err(error),
                }
            })
            .buffer_unordered(CONCURRENT_ACTORS)
            .try_collect()
            .await?;
        Ok(found.into_iter().flatten().collect())
    }

    fn judge(
        &self,
        removal: &RemovedToken,
        row: &Row,
        bucket: &'static Bucket,
        target: &Lookup,
        referrers: &HashMap<RowKey, Referrers>,
    ) -> Judged {
        let row = row.clone();
        if *bucket == *bucket::provider() {
            let referrers = referrers.get(&row.key).copied().unwrap_or(Referrers::Unknown);
            condemn_provider(row, target, referrers, self.context.now, &self.context.policy)
        } else {
            condemn_index(row, bucket, &removal.token, target)
        }
    }

    /// Deletes all rows of a piece at once: the token is already gone, so the order does not matter.
    async fn delete(
        &self,
        condemned_rows: BTreeMap<RowKey, Condemned>,
        removals: &[RemovedToken],
        unfinished: &mut [bool],
        counts: &mut Tally,
    ) -> Result<(), Stop> {
        let keys: Vec<RowKey> = condemned_rows.keys().cloned().collect();
        let (outcomes, stop) = self.context.try_delete(condemned_rows.into_values().collect(), counts).await;
        let left: HashSet<RowKey> = keys
            .into_iter()
            .zip(outcomes)
            // A row that lost its race has changed since it was judged, and is kept.
            .filter(|(_, outcome)| !matches!(outcome, DeleteOutcome::Deleted | DeleteOutcome::LostRace))
            .map(|(key, _)| key)
            .collect();
        for (removal, unfinished) in removals.iter().zip(unfinished) {
            *unfinished |= keys_of(removal).any(|(key, _)| left.contains(&key));
        }
        stop.map_or(Ok(()), Err)
    }
}

/// Every key that can hold a row which depends on a removed token, and the bucket of that row.
fn keys_of(removal: &RemovedToken) -> impl Iterator<Item = (RowKey, &'static Bucket)> + use<> {
    let provider = removal.provider.clone().map(|key| (key, bucket::provider()));
    removal.index_keys().map(|(index, key)| (key, index)).chain(provider)
}
