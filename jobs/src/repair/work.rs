//! One piece of the repair: what points nowhere, what nothing points at, and clients that a rename stranded.

use std::collections::{HashMap, HashSet};

use super::RepairPass;
use super::source::{Actor, Unit};
use crate::run::report::Tally;
use crate::store::{
    ActorLookup, Budget, DeleteRows, OwnState, ReadActors, ReadRows, RestoreClient, ScanTable, StoreError,
};
use crate::walk::{Chain, Providers, Stop};
use shared::bucket::{self, Bucket, Generation, OAUTH_OWNER};
use shared::expiry::{self, Condemned, DeleteReason, KeepReason, Verdict};
use shared::index::IndexKind;
use shared::integrity::{self, Lookup, Referrers};
use shared::row::{Row, RowKey};
use shared::time::EpochSeconds;

/// An index row that was met, and the key of what it points at.
struct Pointer {
    row: Row,
    bucket: &'static Bucket,
    target: RowKey,
}

/// The other rows of a provider row's actor.
struct Others {
    /// Names of provider rows that tokens which stay refer to.
    needed: Vec<String>,
    /// Tokens that go.
    going: HashSet<RowKey>,
    /// Names of provider rows that they refer to.
    taken_along: HashSet<String>,
    /// Not all of the actor's rows were seen together, or some could not be read.
    partial: bool,
}

/// A Scan at half price may be a moment behind, not minutes.
const SETTLED_SECONDS: i64 = 300;

impl Others {
    /// Whether a referrer of this row would have been among them. Whoever names a provider row was written in the same
    /// breath: what is not seen of a row that has been there for minutes, in a Scan of the whole actor, is not there.
    fn tell(&self, row: &Row, now: EpochSeconds) -> bool {
        !self.partial && integrity::provider_age(row, now).is_some_and(|age| age > SETTLED_SECONDS)
    }
}

/// What an index says of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Indexed {
    Yes,
    No,
    Unread,
}

impl<S> RepairPass<'_, S>
where
    S: ReadRows + ScanTable + DeleteRows + RestoreClient + ReadActors + OwnState + Budget,
{
    pub(super) async fn work(&self, units: Vec<Unit>, counts: &mut Tally) -> Result<(), Stop> {
        let (mut dead, mut pointers, mut actors, mut owners) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for unit in units {
            match unit {
                Unit::Dead(condemned) => dead.push(condemned),
                Unit::Index { row, bucket, target } => pointers.push(Pointer { row, bucket, target }),
                Unit::Actor(actor) => actors.push(actor),
                Unit::Owner { id, rows } => owners.push((id, rows)),
            }
        }
        self.look_for_owners(owners).await?;
        self.context.delete(dead, counts).await?;
        let mut chains = self.judge_pointers(pointers, counts).await?;
        let (more, providers) = self.judge_actors(actors, counts).await?;
        chains.extend(more);
        self.context.delete_in_order(chains, providers, counts).await
    }

    /// Index rows whose target is gone. One whose target is there and dead is the daily cleanup's.
    async fn judge_pointers(&self, pointers: Vec<Pointer>, counts: &mut Tally) -> Result<Vec<Chain>, Stop> {
        if pointers.is_empty() {
            return Ok(Vec::new());
        }
        let (now, policy) = (self.context.now, &self.context.policy);
        let keys: Vec<RowKey> = pointers.iter().map(|pointer| pointer.target.clone()).collect();
        let targets = self.context.store.get_consistent(&keys).await?;
        let (mut chains, mut vouched_for) = (Vec::new(), Vec::new());
        for (pointer, target) in pointers.into_iter().zip(targets) {
            let Pointer { row, bucket, .. } = pointer;
            match integrity::compare(&row, bucket, &target, now, policy) {
                None => counts.skipped(bucket),
                Some(Verdict::Delete(DeleteReason::Dangling)) => {
                    chains.push(Chain::dangling(Condemned::new(row, bucket, DeleteReason::Dangling)));
                }
                Some(Verdict::Delete(_)) => counts.kept(bucket, KeepReason::LeftToDaily),
                Some(Verdict::Keep(KeepReason::TargetKept)) if Some(bucket) == client_index(Generation::Old) => {
                    vouched_for.push(row);
                }
                Some(Verdict::Keep(reason)) => counts.kept(bucket, reason),
            }
        }
        self.find_stranded(vouched_for, counts).await?;
        Ok(chains)
    }

    /// Clients that only an old-name index row leads to: ActingWeb from 3.10 cannot find them. On request each gets a row under
    /// the new name, and then the old-name row is deleted: it would revive a client that is deleted later.
    async fn find_stranded(&self, old_rows: Vec<Row>, counts: &mut Tally) -> Result<(), Stop> {
        let (Some(old), Some(new)) = (client_index(Generation::Old), client_index(Generation::New)) else {
            return Ok(());
        };
        let clients: Vec<(Row, String, String)> = old_rows
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
                    let restored = self.restore_clients
                        && (self.context.is_dry() || self.context.store.restore_client(&name, &actor).await?);
                    self.findings.borrow_mut().restored_clients += u64::from(restored);
                    restored
                }
                Lookup::Found(found) => {
                    found.is_of(new) && integrity::pointed_actor(&found.data).as_deref() == Some(&actor)
                }
                Lookup::Unread => false,
            };
            if self.restore_clients && leads_there {
                replaced.push(Condemned::new(row, old, DeleteReason::Replaced));
            } else {
                counts.kept(old, KeepReason::TargetKept);
            }
        }
        self.context.delete(replaced, counts).await.map(drop)
    }

    /// Tokens that no index row leads to, and provider rows that nobody needs.
    async fn judge_actors(&self, actors: Vec<Actor>, counts: &mut Tally) -> Result<(Vec<Chain>, Providers), Stop> {
        let (now, policy) = (self.context.now, &self.context.policy);
        let doubtful: Vec<(RowKey, &'static Bucket)> = actors
            .iter()
            .flat_map(|actor| actor.doubtful.iter().map(|(row, bucket)| (row.key.clone(), *bucket)))
            .collect();
        let mut indexed = self.look_in_index(&doubtful).await?.into_iter();
        let (mut chains, mut providers) = (Vec::new(), Providers::default());
        for actor in actors {
            let Actor { doubtful, providers: rows, mut needed, partial } = actor;
            let (mut going, mut taken_along) = (HashSet::new(), HashSet::new());
            for (row, bucket) in doubtful {
                let named = integrity::provider_named_by(&row);
                let stays = match indexed.next().unwrap_or(Indexed::Unread) {
                    Indexed::Unread => {
                        counts.skipped(bucket);
                        true
                    }
                    Indexed::Yes => {
                        counts.kept(
                            bucket,
                            match expiry::judge(&row, bucket, now, policy) {
                                Verdict::Delete(_) => KeepReason::LeftToDaily,
                                Verdict::Keep(reason) => reason,
                            },
                        );
                        true
                    }
                    Indexed::No => {
                        let sighting = self.seen.sighting(&row.key);
                        match integrity::judge_unindexed(&row, bucket, sighting, now, policy) {
                            Verdict::Keep(reason) => {
                                if reason == KeepReason::SeenOnce {
                                    self.seen.remember(&row.key);
                                }
                                counts.kept(bucket, reason);
                                true
                            }
                            Verdict::Delete(reason) => {
                                going.insert(row.key.clone());
                                taken_along.extend(named.clone());
                                let mut chain = Chain::default();
                                chain.set_target(Condemned::new(row, bucket, reason));
                                chains.push(chain);
                                false
                            }
                        }
                    }
                };
                if stays {
                    needed.extend(named);
                }
            }
            let others = Others { needed, going, taken_along, partial };
            self.judge_providers(rows, &others, &mut providers, counts).await?;
        }
        Ok((chains, providers))
    }

    /// Looks each token up in the index of either generation, the newer one first: few are found in neither.
    async fn look_in_index(&self, tokens: &[(RowKey, &'static Bucket)]) -> Result<Vec<Indexed>, Stop> {
        let mut indexed = vec![Indexed::No; tokens.len()];
        for generation in [Generation::New, Generation::Old] {
            let open: Vec<(usize, RowKey)> = (0..tokens.len())
                .filter(|i| indexed[*i] == Indexed::No)
                .filter_map(|i| {
                    let (key, bucket) = &tokens[i];
                    let name = key.sort.strip_prefix(&bucket.sort_prefix())?;
                    let index = IndexKind { target: bucket }.buckets().find(|index| index.generation == generation)?;
                    Some((i, RowKey::in_bucket(OAUTH_OWNER, index, name)))
                })
                .collect();
            if open.is_empty() {
                break;
            }
            let keys: Vec<RowKey> = open.iter().map(|(_, key)| key.clone()).collect();
            for ((i, _), found) in open.into_iter().zip(self.context.store.get_consistent(&keys).await?) {
                indexed[i] = match found {
                    // Whether this run has taken it already or not: it is no way to the token.
                    Lookup::Found(row) if integrity::leads_elsewhere(&row, &tokens[i].0) => Indexed::No,
                    // Whatever is there, it is not nothing.
                    Lookup::Found(_) => Indexed::Yes,
                    Lookup::Unread => Indexed::Unread,
                    Lookup::Absent => Indexed::No,
                };
            }
        }
        Ok(indexed)
    }

    /// The provider rows of one actor: by TTL, or when no row that stays names them and they are old enough. One that is
    /// named by a token which is going is as old as that token, and goes with it.
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
            let sighting = if others.taken_along.contains(name) { None } else { Some(self.seen.sighting(&row.key)) };
            let verdict = match sighting {
                None => integrity::judge_provider(&row, referrers, now, policy),
                Some(sighting) => integrity::judge_lone_provider(&row, referrers, sighting, now, policy),
            };
            match verdict {
                Some(Verdict::Delete(DeleteReason::Unreferenced)) if !others.tell(&row, now) => {
                    unreferenced.entry(row.key.owner.clone()).or_default().push(row);
                }
                Some(Verdict::Delete(reason)) => {
                    providers.dead.insert(row.key.clone(), Condemned::new(row, bucket, reason));
                }
                Some(Verdict::Keep(reason)) => {
                    if reason == KeepReason::SeenOnce {
                        self.seen.remember(&row.key);
                    }
                    counts.kept(bucket, reason);
                }
                None => counts.skipped(bucket),
            }
        }
        // Where what was scanned does not tell, the actor's rows are read again, consistently.
        for (actor, rows) in unreferenced {
            let referenced = match self.context.referenced(&actor, &rows, &others.going).await {
                Ok(referenced) => referenced,
                Err(error) if error.is_passing() => {
                    rows.iter().for_each(|_| counts.skipped(bucket));
                    providers.unjudged.extend(rows.into_iter().map(|row| row.key));
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            for (row, referenced) in rows.into_iter().zip(referenced) {
                if referenced {
                    counts.kept(bucket, KeepReason::Referenced);
                } else {
                    let condemned = Condemned::new(row, bucket, DeleteReason::Unreferenced);
                    providers.dead.insert(condemned.row().key.clone(), condemned);
                }
            }
        }
        Ok(())
    }

    /// Rows of actors that are gone are reported, never deleted.
    async fn look_for_owners(&self, owners: Vec<(String, u64)>) -> Result<(), Stop> {
        let legacy = owners.iter().filter(|(id, _)| bucket::Owner::Legacy.holds(id)).map(|(_, rows)| rows).sum::<u64>();
        self.findings.borrow_mut().legacy_rows += legacy;
        let actors: Vec<(String, u64)> =
            owners.into_iter().filter(|(id, _)| bucket::Owner::Actor.holds(id) && id != OAUTH_OWNER).collect();
        if !self.actors_readable.get() || actors.is_empty() {
            return Ok(());
        }
        let ids: Vec<String> = actors.iter().map(|(id, _)| id.clone()).collect();
        let found = match self.context.store.get_actors(&ids).await {
            Ok(found) if !found.contains(&ActorLookup::Unread) => Ok(found),
            Ok(_) => Err("the actors' table could not be read in full".to_owned()),
            Err(StoreError::OutOfTime) => return Err(Stop::OutOfTime),
            Err(error) => Err(error.to_string()),
        };
        let found = match found {
            Ok(found) => found,
            Err(why) => {
                self.actors_unreadable(&why);
                return Ok(());
            }
        };
        let mut findings = self.findings.borrow_mut();
        for ((_, rows), found) in actors.iter().zip(found) {
            if found == ActorLookup::Absent {
                findings.absent_actors += 1;
                findings.rows_of_absent_actors += rows;
            }
        }
        Ok(())
    }

    /// A report on absent actors that is not whole is none: the repair goes on without.
    fn actors_unreadable(&self, why: &str) {
        self.actors_readable.set(false);
        self.notes.borrow_mut().push(format!("rows of absent actors are not reported: {why}"));
    }
}

/// The bucket of registered clients.
const CLIENTS: &str = "mcp_clients";

fn client_index(generation: Generation) -> Option<&'static Bucket> {
    let kind = IndexKind { target: bucket::of_actor(CLIENTS)? };
    kind.buckets().find(|index| index.generation == generation)
}
