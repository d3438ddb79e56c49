//! One piece of the repair: dangling index rows, unindexed tokens, unreferenced provider rows and stranded clients.

use std::collections::{HashMap, HashSet};

use super::source::{Actor, Pointer, Unit};
use super::{RepairStore, RepairWalk};
use crate::store::{ActorLookup, StoreError};
use crate::walk::tally::Tally;
use crate::walk::{Chain, Providers, Stop};
use shared::bucket::{self, Bucket, Generation, OAUTH_OWNER};
use shared::disposal::Judged;
use shared::expiry::{DeleteReason, KeepReason};
use shared::index;
use shared::integrity::{self, Indexed, Lookup, Referrers};
use shared::row::{Row, RowKey};

/// What the other rows of a provider row's actor say about it.
struct Others {
    /// Names of provider rows that kept tokens refer to.
    needed: Vec<String>,
    /// Tokens that are deleted.
    deleting: HashSet<RowKey>,
    /// Names of provider rows that the deleted tokens refer to.
    deleting_names: HashSet<String>,
    /// Not all of the actor's rows were seen together, or some could not be read.
    partial: bool,
}

impl<S: RepairStore> RepairWalk<'_, S> {
    pub(super) async fn work(&self, units: Vec<Unit>, counts: &mut Tally) -> Result<(), Stop> {
        let (mut dead, mut pointers, mut actors, mut owners) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for unit in units {
            match unit {
                Unit::Dead(condemned) => dead.push(condemned),
                Unit::Index(pointer) => pointers.push(pointer),
                Unit::Actor(actor) => actors.push(actor),
                Unit::Owner { id, rows } => owners.push((id, rows)),
            }
        }
        self.count_absent_actors(owners).await?;
        self.context.delete(dead, counts).await?;
        let mut chains = self.judge_pointers(pointers, counts).await?;
        let (more, providers) = self.judge_actors(actors, counts).await?;
        chains.extend(more);
        self.context.delete_in_order(chains, providers, counts).await
    }

    /// Finds index rows whose target does not exist. A target that exists and is dead is left to the cleanup.
    async fn judge_pointers(&self, pointers: Vec<Pointer>, counts: &mut Tally) -> Result<Vec<Chain>, Stop> {
        if pointers.is_empty() {
            return Ok(Vec::new());
        }
        let (now, policy) = (self.context.now, &self.context.policy);
        let keys: Vec<RowKey> = pointers.iter().map(|pointer| pointer.target.clone()).collect();
        let targets = self.context.store.get_consistent(&keys).await?;
        let (mut chains, mut by_old_index) = (Vec::new(), Vec::new());
        for (pointer, target) in pointers.into_iter().zip(targets) {
            let Pointer { row, bucket, .. } = pointer;
            match integrity::condemn_dangling(row, bucket, &target, now, policy) {
                Judged::Unknown(_) => counts.skipped(bucket),
                Judged::Dead(condemned) => chains.push(Chain::new(vec![condemned], None)),
                Judged::Kept(row, KeepReason::TargetKept) if Some(bucket) == client_index(Generation::Old) => {
                    by_old_index.push(row);
                }
                Judged::Kept(_, reason) => counts.kept(bucket, reason),
            }
        }
        self.find_stranded(by_old_index, counts).await?;
        Ok(chains)
    }

    /// Finds clients that only an old-name index row leads to, which ActingWeb 3.10 and later do not read. On request
    /// each gets an index row under the new name. Then the old-name row is deleted, because it could revive a client
    /// that is deleted later, unless an older release may still read it.
    async fn find_stranded(&self, by_old_index: Vec<Row>, counts: &mut Tally) -> Result<(), Stop> {
        let (Some(old), Some(new)) = (client_index(Generation::Old), client_index(Generation::New)) else {
            return Ok(());
        };
        let clients: Vec<(Row, String, String)> = by_old_index
            .into_iter()
            .filter_map(|row| {
                let (name, actor) = (row.name_in(old)?.to_owned(), integrity::pointed_actor(&row.data)?);
                Some((row, name, actor))
            })
            .collect();
        if clients.is_empty() {
            return Ok(());
        }
        let keys: Vec<RowKey> = clients.iter().map(|(_, name, _)| RowKey::in_bucket(OAUTH_OWNER, new, name)).collect();
        let mut replaced = Vec::new();
        for ((row, name, actor), found) in clients.into_iter().zip(self.context.store.get_consistent(&keys).await?) {
            let leads_there = match found {
                Lookup::Absent => {
                    self.findings.borrow_mut().stranded_clients += 1;
                    if self.restore_clients && self.context.store.time_is_up() {
                        return Err(Stop::OutOfTime);
                    }
                    let restored = self.restore_clients
                        && (self.context.dry || self.context.store.restore_client(&name, &actor).await?);
                    self.findings.borrow_mut().restored_clients += u64::from(restored);
                    restored
                }
                Lookup::Found(found) => {
                    found.is_of(new) && integrity::pointed_actor(&found.data).as_deref() == Some(&actor)
                }
                Lookup::Unread => false,
            };
            let is_replaced = self.restore_clients && self.writes_new_names && leads_there;
            match integrity::condemn_replaced(row, old, is_replaced) {
                Judged::Dead(condemned) => replaced.push(condemned),
                Judged::Kept(_, reason) => counts.kept(old, reason),
                Judged::Unknown(_) => counts.skipped(old),
            }
        }
        self.context.delete(replaced, counts).await.map(drop)
    }

    /// Finds tokens that no index row leads to, and provider rows that no row refers to.
    async fn judge_actors(&self, actors: Vec<Actor>, counts: &mut Tally) -> Result<(Vec<Chain>, Providers), Stop> {
        let (now, policy) = (self.context.now, &self.context.policy);
        let doubtful: Vec<(RowKey, &'static Bucket)> = actors
            .iter()
            .flat_map(|actor| actor.doubtful.iter().map(|(row, bucket)| (row.key.clone(), *bucket)))
            .collect();
        let mut indexed = self.look_up_index(&doubtful).await?.into_iter();
        let (mut chains, mut providers) = (Vec::new(), Providers::default());
        for actor in actors {
            let Actor { doubtful, providers: rows, mut needed, partial } = actor;
            let (mut deleting, mut deleting_names) = (HashSet::new(), HashSet::new());
            for (row, bucket) in doubtful {
                let named = integrity::provider_named_by(&row);
                let indexed = indexed.next().unwrap_or(Indexed::Unread);
                let key = row.key.clone();
                match integrity::condemn_token(row, bucket, indexed, || self.seen.sighting(&key), now, policy) {
                    Judged::Unknown(_) => {
                        counts.skipped(bucket);
                        needed.extend(named);
                    }
                    Judged::Kept(row, reason) => {
                        self.keep(&row, bucket, reason, counts);
                        needed.extend(named);
                    }
                    Judged::Dead(condemned) => {
                        deleting.insert(key);
                        deleting_names.extend(named);
                        chains.push(Chain::new(Vec::new(), Some(condemned)));
                    }
                }
            }
            let others = Others { needed, deleting, deleting_names, partial };
            self.judge_providers(rows, &others, &mut providers, counts).await?;
        }
        Ok((chains, providers))
    }

    fn keep(&self, row: &Row, bucket: &Bucket, reason: KeepReason, counts: &mut Tally) {
        if reason == KeepReason::SeenOnce {
            self.seen.remember(&row.key, self.checkpoint.clock.wall());
        }
        counts.kept(bucket, reason);
    }

    /// Looks up each token in the newer generation of the index, and in the older one if it is not found there.
    async fn look_up_index(&self, tokens: &[(RowKey, &'static Bucket)]) -> Result<Vec<Indexed>, Stop> {
        let mut indexed = vec![Indexed::No; tokens.len()];
        for generation in [Generation::New, Generation::Old] {
            let open: Vec<(usize, RowKey)> = (0..tokens.len())
                .filter(|i| indexed[*i] == Indexed::No)
                .filter_map(|i| {
                    let (key, bucket) = &tokens[i];
                    let (_, key) = index::keys_of(key, bucket).find(|(index, _)| index.generation == generation)?;
                    Some((i, key))
                })
                .collect();
            if open.is_empty() {
                break;
            }
            let keys: Vec<RowKey> = open.iter().map(|(_, key)| key.clone()).collect();
            for ((i, _), found) in open.into_iter().zip(self.context.store.get_consistent(&keys).await?) {
                indexed[i] = Indexed::by(&found, &tokens[i].0);
            }
        }
        Ok(indexed)
    }

    /// Judges the provider rows of one actor: by TTL, or when no kept row names them and they are old enough. One that
    /// a deleted token names is as old as that token, and is deleted with it.
    async fn judge_providers(
        &self,
        rows: Vec<Row>,
        others: &Others,
        providers: &mut Providers,
        counts: &mut Tally,
    ) -> Result<(), Stop> {
        let (now, policy, bucket) = (self.context.now, &self.context.policy, bucket::provider());
        let mut unreferenced: HashMap<String, Vec<Row>> = HashMap::new();
        for row in rows {
            let name = row.name_in(bucket).unwrap_or_default();
            let is_needed = others.needed.iter().any(|needed| needed == name);
            let referrers = if is_needed { Referrers::Some } else { Referrers::None };
            let (deleting_names, key) = (others.deleting_names.contains(name), row.key.clone());
            let sighting = || self.seen.sighting(&key);
            match integrity::condemn_lone_provider(row, referrers, deleting_names, sighting, now, policy) {
                Judged::Dead(dead)
                    if dead.reason() == DeleteReason::Unreferenced
                        && (others.partial || !integrity::scan_saw_referrers(dead.row(), now, policy)) =>
                {
                    unreferenced.entry(key.owner).or_default().push(dead.into_row());
                }
                Judged::Dead(dead) => {
                    providers.dead.insert(key, dead);
                }
                Judged::Kept(row, reason) => self.keep(&row, bucket, reason, counts),
                Judged::Unknown(_) => counts.skipped(bucket),
            }
        }
        // Where the Scan does not decide, the actor's rows are read again, consistently.
        for (actor, rows) in unreferenced {
            let referrers = match self.context.referrers(&actor, &rows, &others.deleting).await {
                Ok(referrers) => referrers,
                Err(error) if error.is_transient() => {
                    rows.iter().for_each(|_| counts.skipped(bucket));
                    providers.unjudged.extend(rows.into_iter().map(|row| row.key));
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            for (row, referrers) in rows.into_iter().zip(referrers) {
                if self.context.judge_provider(row, referrers, providers, counts).is_some() {
                    counts.skipped(bucket);
                }
            }
        }
        Ok(())
    }

    /// Rows of absent actors are reported, never deleted.
    async fn count_absent_actors(&self, owners: Vec<(String, u64)>) -> Result<(), Stop> {
        let legacy = owners.iter().filter(|(id, _)| bucket::Owner::Legacy.holds(id)).map(|(_, rows)| rows).sum::<u64>();
        self.findings.borrow_mut().legacy_rows += legacy;
        let actors: Vec<(String, u64)> =
            owners.into_iter().filter(|(id, _)| bucket::Owner::Actor.holds(id) && id != OAUTH_OWNER).collect();
        if self.findings.borrow().absent_actors.is_none() || actors.is_empty() {
            return Ok(());
        }
        let ids: Vec<String> = actors.iter().map(|(id, _)| id.clone()).collect();
        let found = self.context.store.get_actors(&ids).await;
        let mut findings = self.findings.borrow_mut();
        let problem = match found {
            Ok(found) if !found.contains(&ActorLookup::Unread) => {
                let absent = actors.iter().zip(found).filter(|(_, found)| *found == ActorLookup::Absent);
                let (mut ids, mut rows) = (0, 0);
                absent.for_each(|((_, n), _)| (ids, rows) = (ids + 1, rows + n));
                findings.absent_actors = findings.absent_actors.map(|sum| sum + ids);
                findings.rows_of_absent_actors = findings.rows_of_absent_actors.map(|sum| sum + rows);
                return Ok(());
            }
            Ok(_) => "the actors' table could not be read in full".to_owned(),
            Err(StoreError::OutOfTime) => return Err(Stop::OutOfTime),
            Err(error) => error.to_string(),
        };
        // An incomplete figure is worse than none: the repair continues without it.
        (findings.absent_actors, findings.rows_of_absent_actors) = (None, None);
        self.notes.borrow_mut().push(format!("rows of absent actors are not reported: {problem}"));
        Ok(())
    }
}

const CLIENTS: &str = "mcp_clients";

pub(super) fn client_index(generation: Generation) -> Option<&'static Bucket> {
    index::pointing_at(bucket::of_actor(CLIENTS)?).find(|index| index.generation == generation)
}
