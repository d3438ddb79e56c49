//! Which rows a revocation claims: all that are an actor's, a client's, a chain's or a token's, alive or not. Pure
//! decisions, as in `expiry`, but on whom a row belongs to instead of its age.
//!
//! Only a [`Selection`] makes a [`Revoked`], and only that can be handed to a store's `revoke`:
//! ```
//! # use shared::{bucket::Bucket, revocation::{Revoked, Selection}, row::Row, store::RevokeRows};
//! fn claim(selection: &mut Selection, row: Row, bucket: &'static Bucket) -> Option<Revoked> {
//!     selection.take(row, bucket).ok()
//! }
//! async fn revoke(store: &impl RevokeRows, rows: &[Revoked]) { store.revoke(rows).await; }
//! ```
//! It cannot be made by hand:
//! ```compile_fail
//! # use shared::{revocation::Revoked, row::Row};
//! fn forge(row: Row, other: Revoked) -> Revoked { Revoked { row, ..other } }
//! ```
//! nor be handed to an ordinary delete:
//! ```compile_fail
//! # use shared::{revocation::Revoked, store::DeleteRows};
//! async fn delete(store: &impl DeleteRows, rows: &[Revoked]) { store.delete(rows).await; }
//! ```
//! and a use case that deletes dead rows has no verb for it:
//! ```compile_fail
//! # use shared::{revocation::Revoked, store::DeleteRows};
//! async fn delete(store: &impl DeleteRows, rows: &[Revoked]) { store.revoke(rows).await; }
//! ```
//! The functions are built without the feature `revoke`, and so without this module.

mod marks;
mod revoked;

use std::collections::{BTreeSet, HashSet};
use std::fmt;

use marks::Marks;
pub use marks::{Kind, kind};
pub use revoked::{Revoked, State};

use crate::bucket::Bucket;
use crate::index;
use crate::integrity::pointed_actor;
use crate::mask::Masked;
use crate::row::Row;

/// Whose rows are to go.
#[derive(Clone, PartialEq, Eq)]
pub enum Selector {
    Actor(String),
    Client {
        id: String,
        /// Its record and its index rows as well.
        and_record: bool,
    },
    Chain(String),
    /// A session id, a code, an access or a refresh token: and all of its chain.
    Token(String),
}

impl Selector {
    /// The name of the selector, as it is typed and reported.
    pub fn name(&self) -> &'static str {
        match self {
            Selector::Actor(_) => "actor",
            Selector::Client { .. } => "client",
            Selector::Chain(_) => "chain",
            Selector::Token(_) => "token",
        }
    }

    pub fn id(&self) -> &str {
        match self {
            Selector::Actor(id) | Selector::Client { id, .. } | Selector::Chain(id) | Selector::Token(id) => id,
        }
    }

    /// Whether rows go that only another row leads to.
    fn follows_links(&self) -> bool {
        match self {
            Selector::Chain(_) | Selector::Token(_) => true,
            // Every row of theirs says so itself, and a link must not lead to somebody else's.
            Selector::Actor(_) | Selector::Client { .. } => false,
        }
    }
}

impl fmt::Debug for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name(), Masked(self.id()))
    }
}

/// Whether a row is one of the selector's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Belongs {
    Yes,
    No,
    /// Its `data` would say, and cannot be read: kept, and counted.
    Unreadable,
}

impl From<bool> for Belongs {
    fn from(yes: bool) -> Self {
        if yes { Belongs::Yes } else { Belongs::No }
    }
}

/// Whether the row by itself, without what leads to it, is one of the selector's.
pub fn belongs(row: &Row, bucket: &Bucket, selector: &Selector) -> Belongs {
    let (Some(kind), Some(name)) = (kind(bucket), row.name_in(bucket)) else { return Belongs::No };
    if !row.is_of(bucket) {
        return Belongs::No;
    }
    let says = |mark: fn(&Marks) -> Option<&String>, id: &str| match Marks::read(row, kind) {
        Some(marks) => Belongs::from(mark(&marks).is_some_and(|said| said == id)),
        None => Belongs::Unreadable,
    };
    match (selector, kind) {
        // The partition says whose they are, whatever is in them.
        (Selector::Actor(id), Kind::Token | Kind::Provider) => (row.key.owner == *id).into(),
        (Selector::Actor(id), Kind::Session | Kind::Spa) => says(|marks| marks.actor.as_ref(), id),
        (Selector::Actor(_), Kind::Index | Kind::Client) => Belongs::No,
        (Selector::Client { id, .. }, Kind::Token) => says(|marks| marks.client.as_ref(), id),
        (Selector::Client { id, and_record }, Kind::Client) => (*and_record && name == id).into(),
        (Selector::Client { id, and_record }, Kind::Index) => {
            (*and_record && name == id && is_of_clients(bucket)).into()
        }
        (Selector::Client { .. }, Kind::Session | Kind::Spa | Kind::Provider) => Belongs::No,
        (Selector::Chain(id), Kind::Token | Kind::Spa) => says(|marks| marks.chain.as_ref(), id),
        (Selector::Chain(_), Kind::Session | Kind::Provider | Kind::Index | Kind::Client) => Belongs::No,
        (Selector::Token(token), Kind::Session | Kind::Spa | Kind::Token) if name == token => Belongs::Yes,
        (Selector::Token(_), Kind::Spa) => Belongs::No,
        // The token's own row may be gone, and what it was issued with still there.
        (Selector::Token(token), Kind::Session | Kind::Token) => match Marks::read(row, kind) {
            Some(marks) => {
                [marks.access_token, marks.refresh_token].iter().flatten().any(|named| named == token).into()
            }
            None => Belongs::Unreadable,
        },
        (Selector::Token(token), Kind::Index) => (name == token && !is_of_clients(bucket)).into(),
        (Selector::Token(_), Kind::Provider | Kind::Client) => Belongs::No,
    }
}

fn is_of_clients(index_bucket: &Bucket) -> bool {
    index::target_of(index_bucket).is_some_and(|target| kind(target) == Some(Kind::Client))
}

/// A selector, and what the rows found so far have taught about it: the search goes on from there when they are gone.
#[derive(Clone)]
pub struct Selection {
    selector: Selector,
    chains: HashSet<String>,
    /// Owner and name of tokens; also of those that were only named.
    tokens: HashSet<(String, String)>,
    token_ids: HashSet<(String, String)>,
    /// Owner and name of provider rows.
    providers: BTreeSet<(String, String)>,
    /// Partitions in which there may be more.
    owners: BTreeSet<String>,
    /// There may be more among the sessions and the SPA tokens.
    in_spa: bool,
}

impl Selection {
    pub fn new(selector: Selector) -> Self {
        let chains = match &selector {
            Selector::Chain(id) => HashSet::from([id.clone()]),
            Selector::Actor(_) | Selector::Client { .. } | Selector::Token(_) => HashSet::new(),
        };
        Self {
            selector,
            chains,
            tokens: HashSet::new(),
            token_ids: HashSet::new(),
            providers: BTreeSet::new(),
            owners: BTreeSet::new(),
            in_spa: false,
        }
    }

    pub fn selector(&self) -> &Selector {
        &self.selector
    }

    /// How much is known; it only grows.
    pub fn size(&self) -> usize {
        self.chains.len() + self.tokens.len() + self.token_ids.len() + self.providers.len() + self.owners.len()
    }

    pub fn owners(&self) -> &BTreeSet<String> {
        &self.owners
    }

    pub fn is_in_spa(&self) -> bool {
        self.in_spa
    }

    pub fn providers(&self) -> impl Iterator<Item = (&str, &str)> {
        self.providers.iter().map(|(owner, name)| (owner.as_str(), name.as_str()))
    }

    /// Whether the row goes: by what it says itself, or because a row that goes leads to it.
    pub fn claims(&self, row: &Row, bucket: &Bucket) -> Belongs {
        match belongs(row, bucket, &self.selector) {
            Belongs::Yes => Belongs::Yes,
            Belongs::No | Belongs::Unreadable if self.is_linked(row, bucket) => Belongs::Yes,
            alone @ (Belongs::No | Belongs::Unreadable) => alone,
        }
    }

    /// Whether an actor was asked for, and this is a session that may become its: of a sign-in that is not finished.
    pub fn is_unassigned(&self, row: &Row, bucket: &Bucket) -> bool {
        matches!(self.selector, Selector::Actor(_))
            && kind(bucket) == Some(Kind::Session)
            && row.is_of(bucket)
            && Marks::read(row, Kind::Session).is_some_and(|marks| marks.actor.is_none())
    }

    fn is_linked(&self, row: &Row, bucket: &Bucket) -> bool {
        let (Some(kind), Some(name)) = (kind(bucket), row.name_in(bucket)) else { return false };
        if !row.is_of(bucket) {
            return false;
        }
        let pair = |owner: &str, name: &str| (owner.to_owned(), name.to_owned());
        let owner = row.key.owner.as_str();
        match kind {
            Kind::Provider => return self.providers.contains(&pair(owner, name)),
            Kind::Index => {
                return pointed_actor(&row.data).is_some_and(|actor| self.tokens.contains(&pair(&actor, name)));
            }
            Kind::Session | Kind::Spa | Kind::Token if !self.selector.follows_links() => return false,
            Kind::Client => return false,
            Kind::Session | Kind::Spa | Kind::Token => {}
        }
        if self.tokens.contains(&pair(owner, name)) {
            return true;
        }
        let Some(marks) = Marks::read(row, kind) else { return false };
        let known = |set: &HashSet<(String, String)>, mark: &Option<String>| {
            mark.as_ref().is_some_and(|mark| set.contains(&pair(owner, mark)))
        };
        marks.chain.as_ref().is_some_and(|chain| self.chains.contains(chain))
            || known(&self.tokens, &marks.access_token)
            || known(&self.tokens, &marks.refresh_token)
            || known(&self.token_ids, &marks.token_id)
            || marks.provider.is_some_and(|provider| self.providers.contains(&pair(owner, &provider)))
    }

    /// Takes the row if it goes, and learns from it what else does.
    ///
    /// # Errors
    /// Why it does not: never `Yes`.
    pub fn take(&mut self, row: Row, bucket: &'static Bucket) -> Result<Revoked, Belongs> {
        match (self.claims(&row, bucket), kind(bucket)) {
            (Belongs::Yes, Some(kind)) => {
                self.learn(&row, bucket, kind);
                let is_anchor = kind != Kind::Index && belongs(&row, bucket, &self.selector) == Belongs::Yes;
                Ok(Revoked::new(row, bucket, kind, is_anchor))
            }
            (Belongs::Yes, None) => Err(Belongs::No),
            (not, _) => Err(not),
        }
    }

    fn learn(&mut self, row: &Row, bucket: &Bucket, kind: Kind) {
        let Some(name) = row.name_in(bucket) else { return };
        let owner = row.key.owner.clone();
        let marks = Marks::read(row, kind).unwrap_or_default();
        match kind {
            Kind::Provider | Kind::Client => return,
            // What is lost of a token may still be found where its index row leads to.
            Kind::Index => {
                if let Some(actor) = pointed_actor(&row.data).filter(|_| !is_of_clients(bucket)) {
                    self.tokens.insert((actor.clone(), name.to_owned()));
                    self.owners.insert(actor);
                }
                return;
            }
            // A session in the middle of a sign-in names the provider's tokens, which are no rows of ours.
            Kind::Session if marks.actor.is_none() => return,
            Kind::Session | Kind::Spa => self.in_spa = true,
            Kind::Token => {
                self.owners.insert(owner.clone());
            }
        }
        if kind != Kind::Session {
            self.tokens.insert((owner.clone(), name.to_owned()));
        }
        self.chains.extend(marks.chain);
        self.tokens
            .extend([marks.access_token, marks.refresh_token].into_iter().flatten().map(|name| (owner.clone(), name)));
        self.token_ids.extend(marks.token_id.map(|id| (owner.clone(), id)));
        self.providers.extend(marks.provider.map(|provider| (owner, provider)));
    }
}
