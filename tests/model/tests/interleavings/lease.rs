//! The lease: who may start, by the decisions of `shared::lease`. Its minute is short beside the times of the rows, so it is no part of
//! them: a lease is one that holds or one that has lapsed.

use model::rows::NOW;
use serde_json::Value;
use shared::lease::{self, LEASE_SECONDS};
use shared::time::EpochSeconds;

use crate::runs::Kind;
use crate::world::Mutant;

/// What the runs of a setup do about the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lease {
    /// They do not ask for it.
    None,
    /// A holder that cannot renew gives up before its lease lapses, as `jobs` tests of it: only the lease of a killed run lapses.
    Kept,
    /// Any lease may lapse at any time, and its holder goes on, until a renewal finds that the lease is another's.
    Lapses,
}

impl Lease {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Lease::None => "none",
            Lease::Kept => "kept",
            Lease::Lapses => "lapses",
        }
    }

    pub(crate) fn is_taken_by(self, kind: Kind) -> bool {
        self != Lease::None && kind != Kind::Cascade
    }
}

/// The state row of the lease, and what the runs know of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Leases {
    row: Option<Row>,
    /// Runs that have read that they may take the lease, and are about to write it on the condition of what they read.
    pub(crate) asked: [bool; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Row {
    /// Of a run in this place; `None` of one that was killed, or has ended without giving it back.
    holder: Option<u8>,
    lapsed: bool,
}

impl Row {
    fn value(self) -> Value {
        let until = EpochSeconds::new(if self.lapsed { NOW - 1 } else { NOW + LEASE_SECONDS });
        lease::lease(&self.holder.map_or("killed".to_owned(), name), until)
    }
}

fn name(slot: u8) -> String {
    format!("run {slot}")
}

impl Leases {
    /// Whether a run that reads the lease may go on to write it.
    pub(crate) fn is_free_for(self, slot: u8) -> bool {
        let held = |row: Row| lease::held_by_another(&row.value(), &name(slot), EpochSeconds::new(NOW));
        self.row.and_then(held).is_none()
    }

    pub(crate) fn is_of(self, slot: u8) -> bool {
        self.row.is_some_and(|row| lease::is_of(&row.value(), &name(slot)))
    }

    /// A write of the row. Who has read it before fails to write it, and ends.
    fn write(&mut self, row: Option<Row>, mutant: Option<Mutant>) {
        self.row = row;
        if mutant != Some(Mutant::LeaseWithoutCondition) {
            self.asked = [false; 2];
        }
    }

    pub(crate) fn acquire(&mut self, slot: u8, mutant: Option<Mutant>) {
        self.write(Some(Row { holder: Some(slot), lapsed: false }), mutant);
        self.asked[usize::from(slot)] = false;
    }

    /// Whether a lease may lapse now.
    pub(crate) fn may_lapse(self, rule: Lease) -> bool {
        self.row.is_some_and(|row| !row.lapsed && (rule == Lease::Lapses || row.holder.is_none()))
    }

    pub(crate) fn lapse(&mut self) {
        self.row = self.row.map(|row| Row { lapsed: true, ..row });
    }

    /// Whether a renewal would change anything: for a run whose lease has lapsed, or is another's.
    pub(crate) fn may_renew(self, slot: u8) -> bool {
        !self.is_of(slot) || self.row.is_some_and(|row| row.lapsed)
    }

    /// `false` when it is another's: the run has lost it, and ends.
    pub(crate) fn renew(&mut self, slot: u8, mutant: Option<Mutant>) -> bool {
        let ours = self.is_of(slot);
        if ours {
            self.write(Some(Row { holder: Some(slot), lapsed: false }), mutant);
        }
        ours
    }

    /// The run has ended by itself, and gives back what is still its own.
    pub(crate) fn release(&mut self, slot: u8, mutant: Option<Mutant>) {
        if self.is_of(slot) {
            self.write(None, mutant);
        }
    }

    /// The run is no more: nobody renews its lease.
    pub(crate) fn forsake(&mut self, slot: u8) {
        if self.is_of(slot) {
            self.row = self.row.map(|row| Row { holder: None, ..row });
        }
    }

    /// What tells two runs of one kind apart.
    pub(crate) fn of_run(self, slot: u8) -> (bool, bool) {
        (self.asked[usize::from(slot)], self.row.is_some_and(|row| row.holder == Some(slot)))
    }

    /// The two runs have changed places.
    pub(crate) fn swap(&mut self) {
        self.asked.swap(0, 1);
        self.row = self.row.map(|row| Row { holder: row.holder.map(|slot| 1 - slot), ..row });
    }
}
