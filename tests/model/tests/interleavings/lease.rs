//! The lease, by the decisions of `shared::lease`. Its minute is short compared with the times of the rows, so it is not one of them:
//! a lease is either held or lapsed.

use model::rows::NOW;
use serde_json::Value;
use shared::lease::{self, LEASE_SECONDS};
use shared::time::EpochSeconds;

use crate::runs::Kind;
use crate::world::Mutant;

/// How the runs of a setup use the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lease {
    /// They do not use it.
    None,
    /// A holder that cannot renew stops before its lease lapses, as the tests of `jobs` check: only the lease of a killed run lapses.
    Kept,
    /// Any lease may lapse at any time, and its holder continues until a renewal finds that another run holds the lease.
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

/// The state row of the lease, and which runs have read it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Leases {
    row: Option<Row>,
    /// Runs that found the lease free and are about to write it, on the condition that it is unchanged.
    pub(crate) has_read: [bool; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Row {
    /// The slot of its run; `None` if the run was killed, or ended without releasing it.
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
    /// Whether a run that reads the lease may acquire it.
    pub(crate) fn is_free_for(self, slot: u8) -> bool {
        let held = |row: Row| lease::held_by_another(&row.value(), &name(slot), EpochSeconds::new(NOW));
        self.row.and_then(held).is_none()
    }

    pub(crate) fn is_of(self, slot: u8) -> bool {
        self.row.is_some_and(|row| lease::is_of(&row.value(), &name(slot)))
    }

    /// Writes the row. A run that read it before fails to write it, and ends.
    fn write(&mut self, row: Option<Row>, mutant: Option<Mutant>) {
        self.row = row;
        if mutant != Some(Mutant::LeaseWithoutCondition) {
            self.has_read = [false; 2];
        }
    }

    pub(crate) fn acquire(&mut self, slot: u8, mutant: Option<Mutant>) {
        self.write(Some(Row { holder: Some(slot), lapsed: false }), mutant);
        self.has_read[usize::from(slot)] = false;
    }

    /// Whether a lease may lapse now.
    pub(crate) fn may_lapse(self, rule: Lease) -> bool {
        self.row.is_some_and(|row| !row.lapsed && (rule == Lease::Lapses || row.holder.is_none()))
    }

    pub(crate) fn lapse(&mut self) {
        self.row = self.row.map(|row| Row { lapsed: true, ..row });
    }

    /// Whether a renewal would change anything: if the run's lease has lapsed, or another run holds it.
    pub(crate) fn may_renew(self, slot: u8) -> bool {
        !self.is_of(slot) || self.row.is_some_and(|row| row.lapsed)
    }

    /// `false` if another run holds it: the run has lost it, and ends.
    pub(crate) fn renew(&mut self, slot: u8, mutant: Option<Mutant>) -> bool {
        let ours = self.is_of(slot);
        if ours {
            self.write(Some(Row { holder: Some(slot), lapsed: false }), mutant);
        }
        ours
    }

    /// The run has finished, and releases the lease if it still holds it.
    pub(crate) fn release(&mut self, slot: u8, mutant: Option<Mutant>) {
        if self.is_of(slot) {
            self.write(None, mutant);
        }
    }

    /// The run was killed: its lease is not renewed any more.
    pub(crate) fn abandon(&mut self, slot: u8) {
        if self.is_of(slot) {
            self.row = self.row.map(|row| Row { holder: None, ..row });
        }
    }

    /// What distinguishes two runs of one kind.
    pub(crate) fn of_run(self, slot: u8) -> (bool, bool) {
        (self.has_read[usize::from(slot)], self.row.is_some_and(|row| row.holder == Some(slot)))
    }

    /// The two runs change slots.
    pub(crate) fn swap(&mut self) {
        self.has_read.swap(0, 1);
        self.row = self.row.map(|row| Row { holder: row.holder.map(|slot| 1 - slot), ..row });
    }
}
