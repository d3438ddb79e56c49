//! A token and what hangs on it, deleted in the order provider row, token row, index row, so that every half-done state
//! can still be found from the index.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{Context, Stop};
use crate::run::report::Tally;
use crate::store::{Consistency, DeleteOutcome, DeleteRows, PageOf, PageSize, ReadRows, StoreError};
use shared::bucket::{self, Bucket};
use shared::expiry::{self, Condemned, KeepReason, Policy, Verdict};
use shared::index::IndexKind;
use shared::integrity::{self, Lookup, Question, Referrers};
use shared::row::{Fields, Row, RowKey};
use shared::time::EpochSeconds;

/// A token and what hangs on it, as far as it is to go.
#[derive(Default)]
pub(crate) struct Chain {
    pub(crate) index_rows: Vec<Condemned>,
    target: Option<Condemned>,
    provider: Option<RowKey>,
}

impl Chain {
    /// An index row that leads nowhere.
    pub(crate) fn dangling(index_row: Condemned) -> Self {
        Self { index_rows: vec![index_row], ..Self::default() }
    }

    /// The token row, and by its name the provider row that may go with it.
    pub(crate) fn set_target(&mut self, target: Condemned) {
        self.provider = named_provider(target.row());
        self.target = Some(target);
    }
}

/// The provider row that a token row names.
fn named_provider(token: &Row) -> Option<RowKey> {
    let name = integrity::provider_named_by(token)?;
    Some(RowKey::in_bucket(&token.key.owner, bucket::provider(), &name))
}

/// What is known of the provider rows of a piece's dead tokens.
#[derive(Default)]
pub(crate) struct Providers {
    /// In the order of their keys, so that a ceiling cuts a dry run where it cuts the real one.
    pub(crate) dead: BTreeMap<RowKey, Condemned>,
    /// Could not be judged: what names them stays until a later run can.
    pub(crate) unjudged: HashSet<RowKey>,
}

/// Access tokens that take their provider row along in a step of their own, and those of which that could not be told.
#[derive(Default)]
struct TakenAlong {
    reached: HashSet<RowKey>,
    in_doubt: HashSet<RowKey>,
}

impl<S: ReadRows + DeleteRows> Context<'_, S> {
    /// Deletes chains, each as far as its provider row and its token row really went.
    pub(crate) async fn delete_chains(&self, chains: Vec<Chain>, counts: &mut Tally) -> Result<(), Stop> {
        let providers = self.judge_providers(&chains, counts).await?;
        self.delete_in_order(chains, providers, counts).await
    }

    /// Looks at the provider rows that the dead tokens name.
    async fn judge_providers(&self, chains: &[Chain], counts: &mut Tally) -> Result<Providers, Stop> {
        let mut providers = Providers::default();
        let named: Vec<(&RowKey, &Condemned)> =
            chains.iter().filter_map(|chain| Some((chain.provider.as_ref()?, chain.target.as_ref()?))).collect();
        if named.is_empty() {
            return Ok(providers);
        }
        let providers_named: Vec<RowKey> = named.iter().map(|(key, _)| (*key).clone()).collect();
        // At half price: a provider row is older than the token that names it, by as long as that has lived. One that a
        // read could still miss would be left behind, for the index repair; none would be deleted. A refresh token's may have
        // gone with the access token a moment ago, and must not be counted once more.
        let looks = if named.iter().any(|(_, target)| integrity::access_token_of(target.row()).is_some()) {
            self.store.get_consistent(&providers_named).await?
        } else {
            self.store.get_eventual(&providers_named).await?
        };
        let mut found: HashMap<RowKey, Lookup> = providers_named.into_iter().zip(looks).collect();
        // A refresh token names the provider row of the access token that it was issued with. That one is worth a look only
        // while the provider row is there: mostly it has gone with the access token, earlier in the run.
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
        // One that names another provider row takes that one along, and not this.
        let same = |provider: &RowKey, access_token: &RowKey| match found.get(access_token) {
            Some(Lookup::Found(row)) if named_provider(row).as_ref() == Some(provider) => Some(row),
            _ => None,
        };
        let access_tokens =
            named.iter().zip(&issued_with).filter_map(|((provider, _), token)| same(provider, token.as_ref()?));
        let taken_along = self.taken_along(access_tokens).await?;
        let mut undecided: Vec<Row> = Vec::new();
        let mut seen = HashSet::new();
        for ((key, _), access_token) in named.iter().zip(&issued_with) {
            let access_token = access_token.as_ref();
            let could_not_look = access_token
                .is_some_and(|key| found.get(key) == Some(&Lookup::Unread) || taken_along.in_doubt.contains(key));
            let is_taken = |token: &RowKey| taken_along.reached.contains(token) && same(key, token).is_some();
            if access_token.is_some_and(is_taken) || !seen.insert(*key) {
                continue;
            }
            match found.get(*key) {
                Some(Lookup::Absent) => {}
                Some(Lookup::Found(row)) if !could_not_look => {
                    counts.read(bucket::provider());
                    self.judge_provider(row.clone(), Referrers::Unknown, &mut providers, &mut undecided, counts);
                }
                None | Some(Lookup::Found(_) | Lookup::Unread) => {
                    providers.unjudged.insert((*key).clone());
                }
            }
        }
        self.find_referrers(undecided, &mut providers, counts).await?;
        Ok(providers)
    }

    /// Which of these access tokens are dead and can be reached from the index: each takes its provider row along, in a
    /// step of its own. Without this a dry run, in which they are still there, would count the row twice.
    async fn taken_along<'r>(&self, access_tokens: impl Iterator<Item = &'r Row>) -> Result<TakenAlong, Stop> {
        let (now, policy) = (self.now, &self.policy);
        let Some(kind) = IndexKind::all().find(|kind| kind.target.name == integrity::ACCESS_TOKENS) else {
            return Ok(TakenAlong::default());
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
            return Ok(TakenAlong::default());
        }
        let keys: Vec<RowKey> = index_keys.iter().map(|(_, _, key)| key.clone()).collect();
        let index_rows = self.store.get_consistent(&keys).await?;
        let mut taken_along = TakenAlong::default();
        for ((token, bucket, _), index_row) in index_keys.iter().zip(index_rows) {
            match index_row {
                Lookup::Absent => {}
                Lookup::Unread => {
                    taken_along.in_doubt.insert((*token).clone());
                }
                Lookup::Found(row) => {
                    if integrity::ask(&row, bucket, now, policy) == Question::LookAt((*token).clone()) {
                        taken_along.reached.insert((*token).clone());
                    }
                }
            }
        }
        Ok(taken_along)
    }

    fn judge_provider(
        &self,
        row: Row,
        referrers: Referrers,
        providers: &mut Providers,
        undecided: &mut Vec<Row>,
        counts: &mut Tally,
    ) {
        match integrity::judge_provider(&row, referrers, self.now, &self.policy) {
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
            let referenced = match self.referenced(&actor, &rows, &HashSet::new()).await {
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

    /// Which of these provider rows a live row of the actor names, rows that are `going` left out. Reads the actor's token
    /// rows, consistently, a page at a time.
    pub(crate) async fn referenced(
        &self,
        actor: &str,
        rows: &[Row],
        going: &HashSet<RowKey>,
    ) -> Result<Vec<bool>, StoreError> {
        let names: Vec<&str> = rows.iter().map(|row| row.name_in(bucket::provider()).unwrap_or_default()).collect();
        let mut referenced = vec![false; rows.len()];
        let mut after: Option<String> = None;
        loop {
            let prefix = bucket::REFERRERS_PREFIX;
            let reading = Consistency::Strong;
            let of =
                PageOf { owner: actor, prefix, after: after.as_deref(), until: None, reading, size: PageSize::Paced };
            let page = self.store.page(of).await?;
            for row in page.rows.iter().filter(|row| !going.contains(&row.key)) {
                for (referenced, name) in referenced.iter_mut().zip(&names) {
                    *referenced |= needs_provider(row, name, self.now, &self.policy);
                }
            }
            after = page.next;
            if after.is_none() {
                return Ok(referenced);
            }
        }
    }

    /// Provider rows, then the token rows whose provider row did not stay, then index rows.
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
                DeleteOutcome::Refused => rows.iter().for_each(|row| counts.refused(row.bucket())),
                DeleteOutcome::Failed | DeleteOutcome::Unknown | DeleteOutcome::NotTried => {
                    rows.iter().for_each(|row| counts.skipped(row.bucket()));
                }
            }
        }
        self.delete(index_rows, counts).await.map(|_| ())
    }
}

/// Whether a row that is not dead itself names the provider row `name`. One that cannot be read but holds the name
/// counts: better kept.
pub(crate) fn needs_provider(row: &Row, name: &str, now: EpochSeconds, policy: &Policy) -> bool {
    let Some(bucket) = row.known_bucket().filter(|bucket| bucket::can_refer(bucket)) else { return false };
    let names_it = match Fields::read(&row.data) {
        Some(fields) => fields.google_token_key.as_deref() == Some(name),
        None => row.data.text().is_none_or(|text| text.contains(name)),
    };
    // Dead whether this run deletes it or leaves it to TTL.
    let policy = Policy { defer_to_ttl: false, ..*policy };
    names_it && matches!(expiry::judge(row, bucket, now, &policy), Verdict::Keep(_))
}
