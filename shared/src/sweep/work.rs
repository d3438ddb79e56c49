//! One piece of work: look targets up, judge, and delete in the order provider row, token row, index row, so that every
//! half-done state can still be found from the index.

use std::collections::{HashMap, HashSet};

use super::source::{Pointed, Unit};
use super::{Stop, Walk};
use crate::bucket::{self, Bucket};
use crate::expiry::{self, Condemned, KeepReason, Policy, Verdict};
use crate::index::IndexKind;
use crate::integrity::{self, Lookup, Question, Referrers};
use crate::report::Tally;
use crate::row::{Fields, Row, RowKey};
use crate::store::{Budget, Consistency, DeleteOutcome, DeleteRows, PageOf, ReadRows, StoreError};
use crate::time::EpochSeconds;

/// The bucket of the tokens that provider rows are written for.
const ACCESS_TOKENS: &str = "mcp_tokens";

/// A token and what hangs on it, as far as it is to go.
#[derive(Default)]
struct Chain {
    index_rows: Vec<Condemned>,
    target: Option<Condemned>,
    provider: Option<RowKey>,
}

/// What is known of the provider rows of a piece's dead tokens.
#[derive(Default)]
struct Providers {
    dead: HashMap<RowKey, Condemned>,
    /// Could not be judged: what names them stays until a later run can.
    unjudged: HashSet<RowKey>,
}

impl<S: ReadRows + DeleteRows + Budget> Walk<'_, S> {
    pub(super) async fn work(&self, units: Vec<Unit>, counts: &mut Tally) -> Result<(), Stop> {
        let (mut dead, mut pointed) = (Vec::new(), Vec::new());
        for unit in units {
            match unit {
                Unit::Dead(condemned) => dead.push(condemned),
                Unit::Pointed(token) => pointed.push(token),
            }
        }
        self.delete(dead, counts).await?;
        if pointed.is_empty() {
            return Ok(());
        }
        let chains = self.judge(pointed, counts).await?;
        let providers = self.judge_providers(&chains, counts).await?;
        self.delete_chains(chains, providers, counts).await
    }

    /// Looks all targets up at once and keeps of each token what is dead.
    async fn judge(&self, pointed: Vec<Pointed>, counts: &mut Tally) -> Result<Vec<Chain>, Stop> {
        let keys: Vec<RowKey> = pointed.iter().map(|token| token.target.clone()).collect();
        let targets = self.sweep.store.look(&keys).await?;
        let chains = pointed.into_iter().zip(targets).map(|(token, target)| self.judge_one(token, target, counts));
        Ok(chains.collect())
    }

    fn judge_one(&self, token: Pointed, target: Lookup, counts: &mut Tally) -> Chain {
        let (now, policy) = (self.sweep.now, &self.sweep.policy);
        let mut chain = Chain::default();
        for (row, index_bucket) in token.index_rows {
            match integrity::compare(&row, index_bucket, &target, now, policy) {
                None => counts.skipped(index_bucket),
                Some(Verdict::Keep(reason)) => counts.kept(index_bucket, reason),
                Some(Verdict::Delete(reason)) => chain.index_rows.push(Condemned::new(row, index_bucket, reason)),
            }
        }
        let Lookup::Found(target) = target else { return chain };
        let Some(target_bucket) = target.bucket.text().and_then(|name| bucket::find(&target.key.owner, name)) else {
            return chain;
        };
        counts.read(target_bucket);
        let fields = Fields::read(&target.data);
        match expiry::condemn(target, target_bucket, now, policy) {
            Err(reason) => counts.kept(target_bucket, reason),
            Ok(condemned) => {
                chain.provider = fields
                    .and_then(|fields| fields.google_token_key)
                    .map(|name| RowKey::in_bucket(&condemned.row().key.owner, bucket::provider(), &name));
                chain.target = Some(condemned);
            }
        }
        chain
    }

    /// Looks at the provider rows that the dead tokens name.
    async fn judge_providers(&self, chains: &[Chain], counts: &mut Tally) -> Result<Providers, Stop> {
        let mut providers = Providers::default();
        let named: Vec<(&RowKey, &Condemned)> =
            chains.iter().filter_map(|chain| Some((chain.provider.as_ref()?, chain.target.as_ref()?))).collect();
        if named.is_empty() {
            return Ok(providers);
        }
        // A refresh token names the provider row of the access token that it was issued with.
        let issued_with: Vec<Option<RowKey>> = named.iter().map(|(_, target)| access_token_of(target)).collect();
        let keys: Vec<RowKey> =
            named.iter().map(|(key, _)| (*key).clone()).chain(issued_with.iter().flatten().cloned()).collect();
        let found: HashMap<RowKey, Lookup> = keys.iter().cloned().zip(self.sweep.store.look(&keys).await?).collect();
        let access_tokens = issued_with.iter().flatten().filter_map(|key| match found.get(key) {
            Some(Lookup::Found(row)) => Some(row),
            _ => None,
        });
        let taken_along = self.taken_along(access_tokens).await?;
        let mut undecided: Vec<Row> = Vec::new();
        let mut seen = HashSet::new();
        for ((key, _), access_token) in named.iter().zip(&issued_with) {
            let access_token = access_token.as_ref();
            let could_not_look = access_token.is_some_and(|key| found.get(key) == Some(&Lookup::CouldNotLook));
            if access_token.is_some_and(|key| taken_along.contains(key)) || !seen.insert(*key) {
                continue;
            }
            match found.get(*key) {
                Some(Lookup::Absent) => {}
                Some(Lookup::Found(row)) if !could_not_look => {
                    counts.read(bucket::provider());
                    self.judge_provider(row.clone(), Referrers::Unknown, &mut providers, &mut undecided, counts);
                }
                None | Some(Lookup::Found(_) | Lookup::CouldNotLook) => {
                    providers.unjudged.insert((*key).clone());
                }
            }
        }
        self.find_referrers(undecided, &mut providers, counts).await?;
        Ok(providers)
    }

    /// Which of these access tokens are dead and can be reached from the index: each takes its provider row along, in a
    /// step of its own. Without this a dry run, in which they are still there, would count the row twice.
    async fn taken_along<'r>(&self, access_tokens: impl Iterator<Item = &'r Row>) -> Result<HashSet<RowKey>, Stop> {
        let (now, policy) = (self.sweep.now, &self.sweep.policy);
        let Some(kind) = IndexKind::all().find(|kind| kind.target.name == ACCESS_TOKENS) else {
            return Ok(HashSet::new());
        };
        let dead =
            access_tokens.filter(|row| matches!(expiry::judge(row, kind.target, now, policy), Verdict::Delete(_)));
        let index_keys: Vec<(&RowKey, &'static Bucket, RowKey)> = dead
            .flat_map(|row| kind.buckets().map(move |bucket| (row, bucket)))
            .filter_map(|(row, bucket)| {
                let name = row.name_in(kind.target)?;
                Some((&row.key, bucket, RowKey::in_bucket(bucket::OAUTH_OWNER, bucket, name)))
            })
            .collect();
        if index_keys.is_empty() {
            return Ok(HashSet::new());
        }
        let keys: Vec<RowKey> = index_keys.iter().map(|(_, _, key)| key.clone()).collect();
        let index_rows = self.sweep.store.look(&keys).await?;
        let reached = index_keys.iter().zip(index_rows).filter_map(|((token, bucket, _), index_row)| match index_row {
            Lookup::Found(row) => (integrity::ask(&row, bucket, now, policy) == Question::LookAt((*token).clone()))
                .then(|| (*token).clone()),
            // Left to the access token's own step if in doubt.
            Lookup::CouldNotLook => Some((*token).clone()),
            Lookup::Absent => None,
        });
        Ok(reached.collect())
    }

    fn judge_provider(
        &self,
        row: Row,
        referrers: Referrers,
        providers: &mut Providers,
        undecided: &mut Vec<Row>,
        counts: &mut Tally,
    ) {
        match integrity::judge_provider(&row, referrers, self.sweep.now, &self.sweep.policy) {
            None => undecided.push(row),
            Some(Verdict::Keep(reason)) => counts.kept(bucket::provider(), reason),
            Some(Verdict::Delete(reason)) => {
                providers.dead.insert(row.key.clone(), Condemned::new(row, bucket::provider(), reason));
            }
        }
    }

    /// For provider rows that their TTL does not decide: does any row of the actor that is not dead name them?
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
            let referenced = match self.referenced(&actor, &rows).await {
                Ok(referenced) => referenced,
                Err(error) if error.is_passing() => {
                    providers.unjudged.extend(rows.into_iter().map(|row| row.key));
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            for (row, referenced) in rows.into_iter().zip(referenced) {
                let referrers = if referenced { Referrers::Some } else { Referrers::None };
                self.judge_provider(row, referrers, providers, &mut Vec::new(), counts);
            }
        }
        Ok(())
    }

    /// Reads the actor's token rows, a page at a time, for names of these provider rows.
    async fn referenced(&self, actor: &str, rows: &[Row]) -> Result<Vec<bool>, StoreError> {
        let names: Vec<&str> = rows.iter().filter_map(|row| row.name_in(bucket::provider())).collect();
        let mut referenced = vec![false; rows.len()];
        let mut after: Option<String> = None;
        loop {
            let prefix = bucket::REFERRERS_PREFIX;
            let reading = Consistency::Strong;
            let of = PageOf { owner: actor, prefix, after: after.as_deref(), reading, limit: None };
            let page = self.sweep.store.page(of).await?;
            for row in &page.rows {
                for (referenced, name) in referenced.iter_mut().zip(&names) {
                    *referenced |= needs_provider(row, name, self.sweep.now, &self.sweep.policy);
                }
            }
            after = page.next;
            if after.is_none() {
                return Ok(referenced);
            }
        }
    }

    async fn delete_chains(&self, chains: Vec<Chain>, providers: Providers, counts: &mut Tally) -> Result<(), Stop> {
        let Providers { dead, unjudged } = providers;
        let keys: Vec<RowKey> = dead.keys().cloned().collect();
        let outcomes = self.delete(dead.into_values().collect(), counts).await?;
        let provider_outcomes: HashMap<RowKey, DeleteOutcome> = keys.into_iter().zip(outcomes).collect();
        let provider_stays = |key: &RowKey| {
            unjudged.contains(key)
                || provider_outcomes.get(key).is_some_and(|outcome| *outcome != DeleteOutcome::Deleted)
        };

        let (mut targets, mut their_index_rows, mut index_rows) = (Vec::new(), Vec::new(), Vec::new());
        for chain in chains {
            match chain.target {
                // Dangling: there is nothing that the index row leads to.
                None => index_rows.extend(chain.index_rows),
                Some(target) if chain.provider.as_ref().is_some_and(provider_stays) => {
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
                DeleteOutcome::Deleted => index_rows.extend(rows),
                DeleteOutcome::LostRace => {
                    rows.iter().for_each(|row| counts.kept(row.bucket(), KeepReason::TargetKept));
                }
                DeleteOutcome::Failed | DeleteOutcome::Unknown | DeleteOutcome::NotTried => {
                    rows.iter().for_each(|row| counts.skipped(row.bucket()));
                }
            }
        }
        self.delete(index_rows, counts).await.map(|_| ())
    }

    /// Deletes, or in a dry run pretends to, as far as the ceiling allows. Every row has an outcome if there is no `Stop`.
    async fn delete(&self, mut rows: Vec<Condemned>, counts: &mut Tally) -> Result<Vec<DeleteOutcome>, Stop> {
        let allowed = usize::try_from(self.allowance.get()).unwrap_or(usize::MAX).min(rows.len());
        let over_the_ceiling = allowed < rows.len();
        rows.truncate(allowed);
        self.allowance.set(self.allowance.get() - allowed as u64);
        let (outcomes, stopped) = if self.sweep.dry {
            (vec![DeleteOutcome::Deleted; rows.len()], None)
        } else if rows.is_empty() {
            (Vec::new(), None)
        } else {
            let deletes = self.sweep.store.delete(&rows).await;
            (deletes.outcomes, deletes.stopped)
        };
        for (row, outcome) in rows.iter().zip(&outcomes) {
            tracing::trace!(row = ?row.row().key, reason = row.reason().name(), outcome = ?outcome, "delete");
            counts.outcome(row.bucket(), row.reason(), *outcome);
        }
        match stopped {
            Some(error) => Err(error.into()),
            None if over_the_ceiling => Err(Stop::MaxDeletes),
            None => Ok(outcomes),
        }
    }
}

/// Whether a row that is not dead itself names the provider row `name`. One that cannot be read but holds the name
/// counts: better kept.
fn needs_provider(row: &Row, name: &str, now: EpochSeconds, policy: &Policy) -> bool {
    let bucket = row.bucket.text().and_then(|bucket| bucket::find(&row.key.owner, bucket));
    let Some(bucket) = bucket.filter(|bucket| bucket::can_refer(bucket)) else { return false };
    let names_it = match Fields::read(&row.data) {
        Some(fields) => fields.google_token_key.as_deref() == Some(name),
        None => row.data.text().is_none_or(|text| text.contains(name)),
    };
    // Dead whether this run deletes it or leaves it to TTL.
    let policy = Policy { defer_to_ttl: false, ..*policy };
    names_it && matches!(expiry::judge(row, bucket, now, &policy), Verdict::Keep(_))
}

/// The access token row that a dead refresh token was issued with.
fn access_token_of(target: &Condemned) -> Option<RowKey> {
    let access_token = Fields::read(&target.row().data)?.access_token?;
    Some(RowKey::in_bucket(&target.row().key.owner, bucket::of_actor(ACCESS_TOKENS)?, &access_token))
}
