//! Finds the provider rows that the live rows of an actor name. A run reads each actor once, as far as memory allows.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::pin::pin;
use std::rc::Rc;

use futures_util::TryStreamExt;
use tokio::sync::OnceCell;

use super::Context;
use crate::store::{Consistency, PageOf, ReadRows, Result, pages};
use shared::bucket;
use shared::integrity::{self, Needs, Referrers};
use shared::row::{Row, RowKey};

/// Maximum number of cached actors, and of cached names: a few hundred kilobytes. Other actors are read each time.
const CAPACITY: usize = 2_000;

/// A cache of the actors that a run has read, and of the provider rows that their live rows name.
///
/// The cache stays valid for the whole run. A provider row is judged because a dead token names it, so the rows that it
/// was written for already exist. The application names it again only by copying the name from a row that it accepts.
/// Such a row was alive, and counted, at the read, or is itself a copy of one that was.
#[derive(Default)]
pub(super) struct Remembered {
    /// Whether `named` holds every name in the actor's rows.
    actors: RefCell<HashMap<String, Rc<OnceCell<bool>>>>,
    /// Hashes of owner and name. A collision keeps a row that could be deleted.
    named: RefCell<HashSet<u64>>,
    hashes: RandomState,
}

impl Remembered {
    /// The actor's entry, filled by its first reader; `None` if the cache is full.
    fn actor(&self, actor: &str) -> Option<Rc<OnceCell<bool>>> {
        let mut actors = self.actors.borrow_mut();
        match actors.get(actor) {
            Some(known) => Some(Rc::clone(known)),
            None if actors.len() >= CAPACITY => None,
            None => Some(Rc::clone(actors.entry(actor.to_owned()).or_default())),
        }
    }

    /// Returns `false` if the names of this row cannot be stored.
    fn note(&self, actor: &str, needs: &Needs<'_>) -> bool {
        let mut named = self.named.borrow_mut();
        match needs {
            Needs::Nothing => true,
            Needs::Named(name) if named.len() < CAPACITY => {
                named.insert(self.hashes.hash_one((actor, name.as_str())));
                true
            }
            Needs::Named(_) | Needs::Unreadable(_) => false,
        }
    }

    fn referrers(&self, actor: &str, provider: &Row) -> Referrers {
        let is_named = self.named.borrow().contains(&self.hashes.hash_one((actor, provider_name(provider))));
        if is_named { Referrers::Some } else { Referrers::None }
    }
}

impl<S: ReadRows> Context<'_, S> {
    /// Whether a live row of the actor names these provider rows, as of this run's first read of the actor.
    pub(super) async fn referrers_once(&self, actor: &str, rows: &[Row]) -> Result<Vec<Referrers>> {
        let Some(known) = self.remembered.actor(actor) else {
            return self.referrers(actor, rows, &HashSet::new()).await;
        };
        let mut read = None;
        let all_noted = *known
            .get_or_try_init(async || {
                let mut all_noted = true;
                let note = |needs: &Needs<'_>| all_noted &= self.remembered.note(actor, needs);
                read = Some(self.read_referrers(actor, rows, &HashSet::new(), note).await?);
                Ok(all_noted)
            })
            .await?;
        match read {
            Some(referrers) => Ok(referrers),
            None if all_noted => Ok(rows.iter().map(|row| self.remembered.referrers(actor, row)).collect()),
            None => self.referrers(actor, rows, &HashSet::new()).await,
        }
    }

    /// Whether a live row of the actor names these provider rows now, ignoring the rows in `deleting`.
    pub(crate) async fn referrers(
        &self,
        actor: &str,
        rows: &[Row],
        deleting: &HashSet<RowKey>,
    ) -> Result<Vec<Referrers>> {
        self.read_referrers(actor, rows, deleting, |_| ()).await
    }

    /// Reads the actor's token rows consistently, a page at a time.
    async fn read_referrers(
        &self,
        actor: &str,
        rows: &[Row],
        deleting: &HashSet<RowKey>,
        mut note: impl FnMut(&Needs<'_>),
    ) -> Result<Vec<Referrers>> {
        let mut referrers = vec![Referrers::None; rows.len()];
        let of = PageOf::all(actor, bucket::REFERRERS_PREFIX, Consistency::Strong);
        let mut pages = pin!(pages(self.store, of));
        while let Some(page) = pages.try_next().await? {
            for row in page.iter().filter(|row| !deleting.contains(&row.key)) {
                let needs = integrity::needs(row, self.now, &self.policy);
                note(&needs);
                for (referrers, provider) in referrers.iter_mut().zip(rows) {
                    if needs.includes(provider_name(provider)) {
                        *referrers = Referrers::Some;
                    }
                }
            }
        }
        Ok(referrers)
    }
}

fn provider_name(row: &Row) -> &str {
    row.name_in(bucket::provider()).unwrap_or_default()
}
