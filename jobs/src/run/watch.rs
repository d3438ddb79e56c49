//! An observer of a run: sees its progress and can stop it.

use std::ops::AddAssign;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use super::listing::Listing;
use shared::disposal::Condemned;

/// A run that is stopped finishes its requests in flight first.
#[derive(Debug, Default)]
pub struct Watch {
    stop: AtomicBool,
    progress: Mutex<Progress>,
}

/// The progress of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    pub rows: Rows,
    /// In the order in which the run reached them.
    pub buckets: Vec<(&'static str, Rows)>,
    /// Write units needed to delete the dead rows.
    pub dead_units: u64,
    /// Rows of the whole table, as counted by DynamoDB.
    pub expected: u64,
    /// The rows of a dry run: the work of a run that deletes.
    pub plan: Option<Rows>,
    /// The run's limit in write units per second.
    pub write_pace: Option<f64>,
    /// Rows that a dry run would delete, if they were requested.
    pub listing: Option<Listing>,
}

/// Numbers of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    pub read: u64,
    /// Rows that a dry run would delete.
    pub dead: u64,
    /// Rows whose delete DynamoDB has confirmed.
    pub deleted: u64,
}

impl AddAssign for Rows {
    fn add_assign(&mut self, more: Self) {
        self.read += more.read;
        self.dead += more.dead;
        self.deleted += more.deleted;
    }
}

impl Progress {
    fn add(&mut self, bucket: Option<&'static str>, more: Rows) {
        self.rows += more;
        let Some(bucket) = bucket else { return };
        match self.buckets.iter_mut().find(|(name, _)| *name == bucket) {
            Some((_, rows)) => *rows += more,
            None if more == Rows::default() => {}
            None => self.buckets.push((bucket, more)),
        }
    }
}

impl Watch {
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    pub fn progress(&self) -> Progress {
        self.with(|progress| progress.clone())
    }

    /// Called when a run opens a table with this number of rows.
    pub fn expect(&self, rows: u64) {
        self.with(|progress| progress.expected = rows);
        self.restart();
    }

    pub fn keep_to(&self, write_pace: Option<f64>) {
        self.with(|progress| progress.write_pace = write_pace);
    }

    /// Uses the counts of a dry run as the plan of the next run.
    pub fn plan(&self) {
        self.with(|progress| progress.plan = Some(progress.rows));
    }

    /// Requests a list of the rows that a dry run would delete.
    pub fn list(&self, wanted: Listing) {
        self.with(|progress| progress.listing = Some(wanted));
    }

    pub fn count(&self, bucket: Option<&'static str>, read: u64, deleted: u64) {
        self.with(|progress| progress.add(bucket, Rows { read, deleted, ..Rows::default() }));
    }

    /// Called when a walk starts from the beginning.
    pub(super) fn restart(&self) {
        self.with(|progress| {
            let listing = progress.listing.take().map(|wanted| Listing { rows: Vec::new(), matching: 0, ..wanted });
            let Progress { expected, plan, write_pace, .. } = *progress;
            *progress = Progress { expected, plan, write_pace, listing, ..Progress::default() };
        });
    }

    pub(super) fn planned(&self, row: &Condemned) {
        self.with(|progress| {
            progress.add(Some(row.bucket().name), Rows { dead: 1, ..Rows::default() });
            progress.dead_units += u64::from(row.row().write_units());
            if let Some(listing) = &mut progress.listing {
                listing.add(row);
            }
        });
    }

    fn with<T>(&self, work: impl FnOnce(&mut Progress) -> T) -> T {
        work(&mut self.progress.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
