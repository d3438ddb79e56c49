//! A claimed row: what it is, how it stands, and when it is its turn to go.

use super::marks::{Kind, Marks};
use crate::bucket::Bucket;
use crate::expiry::{self, KeepReason, Policy, Verdict};
use crate::integrity::pointed_actor;
use crate::row::{Field, Fields, Row, RowKey};
use crate::time::EpochSeconds;

/// A row that a revocation claims, alive or not, with what was read of it. Only a [`super::Selection`] makes these.
#[derive(Clone, Debug)]
pub struct Revoked {
    row: Row,
    bucket: &'static Bucket,
    kind: Kind,
    is_anchor: bool,
}

/// How a row that goes stands, for whoever has to decide over it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    Live,
    /// Used up; as long as it is there, presenting it again is taken for theft, or within a moment for a lost answer.
    Consumed,
    Expired,
    /// Its own fields cannot be read.
    Unreadable,
    /// Leads to a row, or is what a provider answered: no life of its own.
    Attached,
}

impl State {
    pub const fn name(self) -> &'static str {
        match self {
            State::Live => "live",
            State::Consumed => "consumed",
            State::Expired => "expired",
            State::Unreadable => "unreadable",
            State::Attached => "attached",
        }
    }
}

impl Revoked {
    pub(super) fn new(row: Row, bucket: &'static Bucket, kind: Kind, is_anchor: bool) -> Self {
        Self { row, bucket, kind, is_anchor }
    }

    pub fn row(&self) -> &Row {
        &self.row
    }

    pub fn key(&self) -> &RowKey {
        &self.row.key
    }

    pub fn bucket(&self) -> &'static Bucket {
        self.bucket
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    pub fn name(&self) -> &str {
        self.row.name_in(self.bucket).unwrap_or_default()
    }

    /// Whether others are used through it. Those are deleted all or none: a token that was listed must not go on working
    /// because somebody stopped in between.
    pub fn is_way_in(&self) -> bool {
        self.kind == Kind::Index
    }

    /// The actor that the row is of, as far as it says.
    pub fn actor(&self) -> Option<String> {
        match self.kind {
            Kind::Index => pointed_actor(&self.row.data),
            Kind::Session | Kind::Spa => Marks::read(&self.row, self.kind)?.actor,
            Kind::Provider | Kind::Token | Kind::Client => Some(self.row.key.owner.clone()),
        }
    }

    /// Where the row stands in the order of the deletes. What the selector itself finds goes after what only other rows
    /// lead to: so a run after one that was cut off still finds all that is left.
    pub fn turn(&self) -> (bool, Kind) {
        (self.is_anchor, self.kind)
    }

    pub fn state(&self, now: EpochSeconds) -> State {
        match self.kind {
            Kind::Index | Kind::Provider => return State::Attached,
            Kind::Client => return State::Live,
            Kind::Session | Kind::Spa | Kind::Token => {}
        }
        let used = Fields::read(&self.row.data).map(|fields| fields.used);
        match (expiry::judge(&self.row, self.bucket, now, &Policy::default()), used) {
            (Verdict::Delete(_), _) => State::Expired,
            (Verdict::Keep(_), Some(Field::Is(true))) => State::Consumed,
            (Verdict::Keep(KeepReason::Malformed), _) => State::Unreadable,
            (Verdict::Keep(_), _) => State::Live,
        }
    }

    /// When the row was written and when it ends, by its own fields.
    pub fn times(&self) -> (Option<EpochSeconds>, Option<EpochSeconds>) {
        let read = |field| match field {
            Field::Is(at) => Some(at),
            Field::Missing | Field::Malformed => None,
        };
        Fields::read(&self.row.data).map_or((None, None), |fields| (read(fields.created_at), read(fields.expires_at)))
    }
}
