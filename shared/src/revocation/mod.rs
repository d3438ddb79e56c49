//! Which rows a revocation claims: every row of an actor, a client, a chain or a token, live or not. Pure, as in `expiry`, but
//! decided by whose row it is, not by its age. Only a [`Selection`] creates a [`Revoked`].

mod marks;
mod revoked;

use std::collections::{BTreeSet, HashSet};
use std::fmt;

use marks::Marks;
pub use marks::{RowKind, kind};
pub use revoked::{Revoked, State};

use crate::bucket::Bucket;
use crate::index;
use crate::integrity::pointed_actor;
use crate::mask::Masked;
use crate::row::Row;

/// Whose rows to revoke.
#[derive(Clone, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum Selector {
    Actor(String),
    Client {
        id: String,
        /// Whether to include its record and its index rows.
        and_record: bool,
    },
    Chain(String),
    /// A session id, a code, an access token or a refresh token, with its whole chain.
    Token(String),
}

impl Selector {
    pub fn id(&self) -> &str {
        match self {
            Selector::Actor(id) | Selector::Client { id, .. } | Selector::Chain(id) | Selector::Token(id) => id,
        }
    }
}

impl fmt::Debug for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.into_str(), Masked(self.id()))
    }
}

/// Whether a row belongs to a selector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Belongs {
    Yes,
    No,
    /// Its `data` cannot be read: the row is kept and counted.
    Unreadable,
}

impl From<bool> for Belongs {
    fn from(yes: bool) -> Self {
        if yes { Belongs::Yes } else { Belongs::No }
    }
}

/// The row's kind and name; `None` for a row of another bucket, or a bucket that a revocation never touches.
fn kind_and_name<'r>(row: &'r Row, bucket: &Bucket) -> Option<(RowKind, &'r str)> {
    kind(bucket).zip(row.name_in(bucket)).filter(|_| row.is_of(bucket))
}

/// Whether the row belongs to the selector by its own contents, without links from other rows.
pub fn belongs(row: &Row, bucket: &Bucket, selector: &Selector) -> Belongs {
    let Some((kind, name)) = kind_and_name(row, bucket) else { return Belongs::No };
    let says = |it: &dyn Fn(&Marks) -> bool| {
        Marks::read(row, kind).map_or(Belongs::Unreadable, |marks| Belongs::from(it(&marks)))
    };
    match (selector, kind) {
        // The partition key decides, whatever the row contains.
        (Selector::Actor(id), RowKind::Token | RowKind::Provider) => (row.key.owner == *id).into(),
        (Selector::Actor(id), RowKind::Session | RowKind::Spa) => says(&|marks| marks.actor.as_ref() == Some(id)),
        (Selector::Actor(_), RowKind::Index | RowKind::Client) => Belongs::No,
        (Selector::Client { id, .. }, RowKind::Token) => says(&|marks| marks.client.as_ref() == Some(id)),
        (Selector::Client { id, and_record }, RowKind::Client) => (*and_record && name == id).into(),
        (Selector::Client { id, and_record }, RowKind::Index) => {
            (*and_record && name == id && is_of_clients(bucket)).into()
        }
        (Selector::Client { .. }, RowKind::Session | RowKind::Spa | RowKind::Provider) => Belongs::No,
        (Selector::Chain(id), RowKind::Token | RowKind::Spa) => says(&|marks| marks.chain.as_ref() == Some(id)),
        (Selector::Chain(_), RowKind::Session | RowKind::Provider | RowKind::Index | RowKind::Client) => Belongs::No,
        (Selector::Token(token), RowKind::Session | RowKind::Spa | RowKind::Token) if name == token => Belongs::Yes,
        (Selector::Token(_), RowKind::Spa) => Belongs::No,
        // The token's own row may be deleted while tokens issued with it still exist.
        (Selector::Token(token), RowKind::Session | RowKind::Token) => {
            says(&|marks| [&marks.access_token, &marks.refresh_token].into_iter().flatten().any(|named| named == token))
        }
        (Selector::Token(token), RowKind::Index) => (name == token && !is_of_clients(bucket)).into(),
        (Selector::Token(_), RowKind::Provider | RowKind::Client) => Belongs::No,
    }
}

fn is_of_clients(index_bucket: &Bucket) -> bool {
    index::target_of(index_bucket).is_some_and(|target| kind(target) == Some(RowKind::Client))
}

/// A selector, and the links found in rows so far: a search can continue from them after the rows are deleted.
#[derive(Clone)]
pub struct Selection {
    selector: Selector,
    chains: HashSet<String>,
    /// Owner and name of tokens, including tokens that are only named by another row.
    tokens: HashSet<(String, String)>,
    token_ids: HashSet<(String, String)>,
    /// Owner and name of provider rows.
    providers: BTreeSet<(String, String)>,
    /// Partitions that may hold more rows.
    owners: BTreeSet<String>,
    /// The session and SPA token buckets may hold more rows.
    in_spa: bool,
}

impl Selection {
    pub fn new(selector: Selector) -> Self {
        let chain = if let Selector::Chain(id) = &selector { Some(id.clone()) } else { None };
        Self {
            selector,
            chains: chain.into_iter().collect(),
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

    /// The number of known links; it only grows.
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

    /// Whether the row is claimed: by its own contents, or because a claimed row leads to it.
    pub fn claims(&self, row: &Row, bucket: &Bucket) -> Belongs {
        match belongs(row, bucket, &self.selector) {
            Belongs::Yes => Belongs::Yes,
            Belongs::No | Belongs::Unreadable if self.is_linked(row, bucket) => Belongs::Yes,
            alone @ (Belongs::No | Belongs::Unreadable) => alone,
        }
    }

    /// Whether this session may become the revoked actor's, because its sign-in is not finished.
    pub fn is_unassigned(&self, row: &Row, bucket: &Bucket) -> bool {
        matches!(self.selector, Selector::Actor(_))
            && kind_and_name(row, bucket).is_some_and(|(kind, _)| kind == RowKind::Session)
            && Marks::read(row, RowKind::Session).is_some_and(|marks| marks.actor.is_none())
    }

    fn is_linked(&self, row: &Row, bucket: &Bucket) -> bool {
        let Some((kind, name)) = kind_and_name(row, bucket) else { return false };
        let pair = |owner: &str, name: &str| (owner.to_owned(), name.to_owned());
        let owner = row.key.owner.as_str();
        match kind {
            RowKind::Provider => return self.providers.contains(&pair(owner, name)),
            RowKind::Index => {
                return pointed_actor(&row.data).is_some_and(|actor| self.tokens.contains(&pair(&actor, name)));
            }
            RowKind::Client => return false,
            RowKind::Session | RowKind::Spa | RowKind::Token => {}
        }
        match self.selector {
            Selector::Chain(_) | Selector::Token(_) => {}
            // Each of their rows names the actor or client itself, and a link must not lead to another's row.
            Selector::Actor(_) | Selector::Client { .. } => return false,
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

    /// Claims the row if it belongs to the selection, and records its links. The error is never `Yes`.
    pub fn take(&mut self, row: Row, bucket: &'static Bucket) -> Result<Revoked, Belongs> {
        match (self.claims(&row, bucket), kind(bucket)) {
            (Belongs::Yes, Some(kind)) => {
                self.learn(&row, bucket, kind);
                let is_anchor = kind != RowKind::Index && belongs(&row, bucket, &self.selector) == Belongs::Yes;
                Ok(Revoked::new(row, bucket, kind, is_anchor))
            }
            (Belongs::Yes, None) => Err(Belongs::No),
            (not, _) => Err(not),
        }
    }

    fn learn(&mut self, row: &Row, bucket: &Bucket, kind: RowKind) {
        let Some(name) = row.name_in(bucket) else { return };
        let owner = row.key.owner.clone();
        let marks = Marks::read(row, kind).unwrap_or_default();
        match kind {
            RowKind::Provider | RowKind::Client => return,
            // The token's row may still be found through its index row.
            RowKind::Index => {
                if let Some(actor) = pointed_actor(&row.data).filter(|_| !is_of_clients(bucket)) {
                    self.tokens.insert((actor.clone(), name.to_owned()));
                    self.owners.insert(actor);
                }
                return;
            }
            // During a sign-in, a session names the provider's tokens, which are not rows of this table.
            RowKind::Session if marks.actor.is_none() => return,
            RowKind::Session | RowKind::Spa => self.in_spa = true,
            RowKind::Token => {
                self.owners.insert(owner.clone());
            }
        }
        if kind != RowKind::Session {
            self.tokens.insert((owner.clone(), name.to_owned()));
        }
        self.chains.extend(marks.chain);
        self.tokens
            .extend([marks.access_token, marks.refresh_token].into_iter().flatten().map(|name| (owner.clone(), name)));
        self.token_ids.extend(marks.token_id.map(|id| (owner.clone(), id)));
        self.providers.extend(marks.provider.map(|provider| (owner, provider)));
    }
}
