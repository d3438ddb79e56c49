//! Deletes or retires a token and the rows that depend on it: provider row, token row, index row. In this order the
//! remaining rows can still be found from the index after any interruption.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::tally::Tally;
use super::{Context, Stop};
use crate::store::{DeleteOutcome, DeleteRows, ReadRows, RetireRows};
use shared::bucket::{self, Bucket};
use shared::disposal::{self, Condemned, Judged};
use shared::expiry::{self, KeepReason, Verdict};
use shared::index;
use shared::integrity::{self, Lookup, Referrers};
use shared::row::{Row, RowKey};

/// The dead rows of a token.
pub(crate) struct Chain {
    index_rows: Vec<Condemned>,
    target: Option<Condemned>,
    provider: Option<RowKey>,
}

impl Chain {
    /// `target` is the token row that the index rows point at, if it is dead. It may name a provider row.
    pub(crate) fn new(index_rows: Vec<Condemned>, target: Option<Condemned>) -> Self {
        let provider = target.as_ref().and_then(|target| integrity::provider_key(target.row()));
        Self { index_rows, target, provider }
    }
}

/// Provider rows that are named by the dead tokens of a piece.
#[derive(Default)]
pub(crate) struct Providers {
    /// Sorted by key, so that MAX_DELETES stops a dry run at the same row as a real one.
    pub(crate) dead: BTreeMap<RowKey, Condemned>,
    /// Could not be judged: the rows that name them are kept for a later run.
    pub(crate) unjudged: HashSet<RowKey>,
}

/// Access tokens whose own step deletes their provider row (`reached`), or may delete it (`unknown`).
#[derive(Default)]
struct OwnStep {
    reached: HashSet<RowKey>,
    unknown: HashSet<RowKey>,
}

impl<S: ReadRows + DeleteRows + RetireRows> Context<'_, S> {
    /// Deletes chains. Each row is deleted only if the delete before it in its chain succeeded.
    pub(crate) async fn delete_chains(&self, chains: Vec<Chain>, counts: &mut Tally) -> Result<(), Stop> {
        let providers = self.judge_providers(&chains, counts).await?;
        self.delete_in_order(chains, providers, counts).await
    }

    async fn judge_providers(&self, chains: &[Chain], counts: &mut Tally) -> Result<Providers, Stop> {
        let mut providers = Providers::default();
        // The provider row of a token that was already retired, through another index row, was retired with it.
        let is_retired = |token: &Row| token.is_retired() && disposal::is_left_to_ttl(token, self.now, &self.policy);
        let named: Vec<(&RowKey, &Condemned)> = chains
            .iter()
            .filter_map(|chain| Some((chain.provider.as_ref()?, chain.target.as_ref()?)))
            .filter(|(_, target)| !is_retired(target.row()))
            .collect();
        if named.is_empty() {
            return Ok(providers);
        }
        let providers_named: Vec<RowKey> = named.iter().map(|(key, _)| (*key).clone()).collect();
        // Eventually consistent where possible, which costs half: a provider row is older than the token that names it.
        // A row that this read misses is left to the repair; none is deleted wrongly. A refresh token's provider row
        // may just have been deleted with the access token, and must not be counted again.
        let looks = if named.iter().any(|(_, target)| integrity::access_token_of(target.row()).is_some()) {
            self.store.get_consistent(&providers_named).await?
        } else {
            self.store.get_eventual(&providers_named).await?
        };
        let mut found: HashMap<RowKey, Lookup> = providers_named.into_iter().zip(looks).collect();
        // A row that TTL removes soon, perhaps because an earlier step retired it, is treated as absent.
        for lookup in found.values_mut() {
            if matches!(lookup, Lookup::Found(row) if disposal::is_left_to_ttl(row, self.now, &self.policy)) {
                *lookup = Lookup::Absent;
            }
        }
        // A refresh token names the provider row of the access token that it was issued with. The access token is read
        // only if the provider row still exists: usually both were deleted earlier in the run.
        let issued_with: Vec<Option<RowKey>> = named
            .iter()
            .map(|(key, target)| {
                integrity::access_token_of(target.row()).filter(|_| found.get(key) != Some(&Lookup::Absent))
            })
            .collect();
        let access_keys: Vec<RowKey> = issued_with.iter().flatten().cloned().collect();
        if !access_keys.is_empty() {
            let looks = self.store.get_consistent(&access_keys).await?;
            found.extend(access_keys.into_iter().zip(looks));
        }
        // An access token that names another provider row does not count.
        let same = |provider: &RowKey, access_token: &RowKey| match found.get(access_token) {
            Some(Lookup::Found(row)) if integrity::provider_key(row).as_ref() == Some(provider) => Some(row),
            _ => None,
        };
        let access_tokens =
            named.iter().zip(&issued_with).filter_map(|((provider, _), token)| same(provider, token.as_ref()?));
        let deleted_by_own_step = self.deleted_by_own_step(access_tokens).await?;
        let mut undecided: Vec<Row> = Vec::new();
        let mut seen = HashSet::new();
        for ((key, _), access_token) in named.iter().zip(&issued_with) {
            let access_token = access_token.as_ref();
            let unread = access_token.is_some_and(|key| {
                found.get(key) == Some(&Lookup::Unread) || deleted_by_own_step.unknown.contains(key)
            });
            let has_own_step =
                |token: &RowKey| deleted_by_own_step.reached.contains(token) && same(key, token).is_some();
            if access_token.is_some_and(has_own_step) || !seen.insert(*key) {
                continue;
            }
            match found.get(*key) {
                Some(Lookup::Absent) => {}
                Some(Lookup::Found(row)) if !unread => {
                    counts.read(bucket::provider());
                    undecided.extend(self.judge_provider(row.clone(), Referrers::Unknown, &mut providers, counts));
                }
                None | Some(Lookup::Found(_) | Lookup::Unread) => {
                    providers.unjudged.insert((*key).clone());
                }
            }
        }
        self.find_referrers(undecided, &mut providers, counts).await?;
        Ok(providers)
    }

    /// Finds the access tokens that are dead and reachable from the index: their own step deletes the provider row.
    /// Without this, a dry run, in which they still exist, would count the row twice.
    async fn deleted_by_own_step<'r>(&self, access_tokens: impl Iterator<Item = &'r Row>) -> Result<OwnStep, Stop> {
        let (now, policy) = (self.now, &self.policy);
        let Some(tokens) = bucket::of_actor(integrity::ACCESS_TOKENS) else { return Ok(OwnStep::default()) };
        let index_keys: Vec<(&RowKey, &'static Bucket, RowKey)> = access_tokens
            .filter(|row| matches!(expiry::judge(row, tokens, now, policy), Verdict::Delete(_)))
            .flat_map(|row| index::keys_of(&row.key, tokens).map(move |(index, key)| (&row.key, index, key)))
            .collect();
        if index_keys.is_empty() {
            return Ok(OwnStep::default());
        }
        let keys: Vec<RowKey> = index_keys.iter().map(|(_, _, key)| key.clone()).collect();
        let index_rows = self.store.get_consistent(&keys).await?;
        let mut deleted_by_own_step = OwnStep::default();
        for ((token, bucket, _), index_row) in index_keys.iter().zip(index_rows) {
            match index_row {
                Lookup::Absent => {}
                Lookup::Unread => {
                    deleted_by_own_step.unknown.insert((*token).clone());
                }
                Lookup::Found(row) => {
                    if integrity::reaches(&row, bucket, token, now, policy) {
                        deleted_by_own_step.reached.insert((*token).clone());
                    }
                }
            }
        }
        Ok(deleted_by_own_step)
    }

    /// Judges a provider row, and returns it if its referrers have to be known.
    pub(crate) fn judge_provider(
        &self,
        row: Row,
        referrers: Referrers,
        providers: &mut Providers,
        counts: &mut Tally,
    ) -> Option<Row> {
        match integrity::condemn_provider(row, referrers, self.now, &self.policy) {
            Judged::Unknown(row) => return Some(row),
            Judged::Kept(_, reason) => counts.kept(bucket::provider(), reason),
            Judged::Dead(condemned) => {
                providers.dead.insert(condemned.row().key.clone(), condemned);
            }
        }
        None
    }

    /// Judges provider rows whose TTL does not decide: does a row of the actor that is not dead name them?
    async fn find_referrers(
        &self,
        undecided: Vec<Row>,
        providers: &mut Providers,
        counts: &mut Tally,
    ) -> Result<(), Stop> {
        let mut by_actor: HashMap<String, Vec<Row>> = HashMap::new();
        for row in undecided {
            by_actor.entry(row.key.owner.clone()).or_default().push(row);
        }
        for (actor, rows) in by_actor {
            let referrers = match self.referrers_once(&actor, &rows).await {
                Ok(referrers) => referrers,
                Err(error) if error.is_transient() => {
                    providers.unjudged.extend(rows.into_iter().map(|row| row.key));
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            for (row, referrers) in rows.into_iter().zip(referrers) {
                self.judge_provider(row, referrers, providers, counts);
            }
        }
        Ok(())
    }

    /// Deletes provider rows, then the token rows whose provider row was not kept, then index rows.
    pub(crate) async fn delete_in_order(
        &self,
        chains: Vec<Chain>,
        providers: Providers,
        counts: &mut Tally,
    ) -> Result<(), Stop> {
        let Providers { dead, unjudged } = providers;
        let keys: Vec<RowKey> = dead.keys().cloned().collect();
        let outcomes = self.delete(dead.into_values().collect(), counts).await?;
        let provider_outcomes: HashMap<RowKey, DeleteOutcome> = keys.into_iter().zip(outcomes).collect();
        let provider_is_kept = |key: &RowKey| {
            unjudged.contains(key) || provider_outcomes.get(key).is_some_and(|outcome| !outcome.is_done())
        };

        let (mut targets, mut their_index_rows, mut index_rows) = (Vec::new(), Vec::new(), Vec::new());
        for chain in chains {
            match chain.target {
                // Dangling: the index row points at nothing.
                None => index_rows.extend(chain.index_rows),
                Some(target) if chain.provider.as_ref().is_some_and(provider_is_kept) => {
                    counts.skipped(target.bucket());
                    chain.index_rows.iter().for_each(|row| counts.skipped(row.bucket()));
                }
                Some(target) => {
                    targets.push(target);
                    their_index_rows.push(chain.index_rows);
                }
            }
        }
        let outcomes = self.delete(targets, counts).await?;
        for (rows, outcome) in their_index_rows.into_iter().zip(outcomes) {
            match outcome {
                DeleteOutcome::Deleted | DeleteOutcome::Retired | DeleteOutcome::LeftToTtl => index_rows.extend(rows),
                DeleteOutcome::LostRace => {
                    rows.iter().for_each(|row| counts.kept(row.bucket(), KeepReason::TargetKept));
                }
                DeleteOutcome::Refused => rows.iter().for_each(|row| counts.refused(row.bucket())),
                DeleteOutcome::Failed | DeleteOutcome::Unknown | DeleteOutcome::NotTried => {
                    rows.iter().for_each(|row| counts.skipped(row.bucket()));
                }
            }
        }
        self.delete(index_rows, counts).await.map(|_| ())
    }
}
