//! A claimed row: its kind, its state, and its place in the order of the deletes.

use super::marks::{Marks, RowKind};
use crate::bucket::Bucket;
use crate::expiry::{self, KeepReason, Policy, Verdict};
use crate::integrity::pointed_actor;
use crate::row::{Field, Fields, Row, RowKey};
use crate::time::EpochSeconds;

/// A row that a revocation claims, live or not, as it was read. Only a [`super::Selection`] creates these.
#[derive(Clone, Debug)]
pub struct Revoked {
    row: Row,
    bucket: &'static Bucket,
    kind: RowKind,
    is_anchor: bool,
}

/// The state of a claimed row, as shown to the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum State {
    Live,
    /// A consumed refresh token: presenting it again is treated as theft.
    Consumed,
    Expired,
    /// Its own fields cannot be read.
    Unreadable,
    /// An index row or a provider row: it has no expiry of its own.
    Attached,
}

impl Revoked {
    pub(super) fn new(row: Row, bucket: &'static Bucket, kind: RowKind, is_anchor: bool) -> Self {
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

    pub fn kind(&self) -> RowKind {
        self.kind
    }

    pub fn name(&self) -> &str {
        self.row.name_in(self.bucket).unwrap_or_default()
    }

    /// Whether other rows are looked up through this row. A stop takes effect only after all such rows are deleted: otherwise
    /// some of the listed tokens would keep working.
    pub fn is_index_row(&self) -> bool {
        self.kind == RowKind::Index
    }

    /// The actor that the row names or belongs to.
    pub fn actor(&self) -> Option<String> {
        match self.kind {
            RowKind::Index => pointed_actor(&self.row.data),
            RowKind::Session | RowKind::Spa => Marks::read(&self.row, self.kind)?.actor,
            RowKind::Provider | RowKind::Token | RowKind::Client => Some(self.row.key.owner.clone()),
        }
    }

    /// The row's place in the order of the deletes. Rows that the selector finds directly come last, so that a run after an
    /// incomplete one still finds the remaining rows.
    pub fn delete_order(&self) -> (bool, RowKind) {
        (self.is_anchor, self.kind)
    }

    pub fn state(&self, now: EpochSeconds) -> State {
        match self.kind {
            RowKind::Index | RowKind::Provider => return State::Attached,
            RowKind::Client => return State::Live,
            RowKind::Session | RowKind::Spa | RowKind::Token => {}
        }
        let used = Fields::read(&self.row.data).map(|fields| fields.used);
        match (expiry::judge(&self.row, self.bucket, now, &Policy::default()), used) {
            (Verdict::Delete(_), _) => State::Expired,
            (Verdict::Keep(_), Some(Field::Is(true))) => State::Consumed,
            (Verdict::Keep(KeepReason::Malformed), _) => State::Unreadable,
            (Verdict::Keep(_), _) => State::Live,
        }
    }

    /// When the row was written and when it expires, by its own fields.
    pub fn times(&self) -> (Option<EpochSeconds>, Option<EpochSeconds>) {
        let fields = Fields::read(&self.row.data);
        fields.map_or((None, None), |fields| (fields.created_at.value(), fields.expires_at.value()))
    }
}
