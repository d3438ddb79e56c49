//! An observer of a run: sees its progress and can stop it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use super::listing::Listing;
use shared::disposal::Condemned;

/// Requests in flight are finished before a run stops.
#[derive(Debug, Default)]
pub struct Watch {
    stop: AtomicBool,
    progress: Mutex<Progress>,
}

/// The progress of a run, in rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    pub read: u64,
    /// Rows that a dry run would delete, and the write units of that.
    pub dead: u64,
    pub dead_units: u64,
    /// Rows that are deleted, by the answers of DynamoDB.
    pub deleted: u64,
    /// The bucket of the latest piece of work.
    pub bucket: Option<&'static str>,
    /// Rows of the whole table, as DynamoDB counts them.
    pub expected: u64,
    /// Rows that a dry run has read, and would delete: what a run that deletes has to do.
    pub plan: Option<(u64, u64)>,
    /// Write units per second that the run keeps to.
    pub write_pace: Option<f64>,
    /// Rows that a dry run would delete, where they were asked for.
    pub listing: Option<Listing>,
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

    /// A run opens a table with this number of rows.
    pub fn expect(&self, rows: u64) {
        self.with(|progress| progress.expected = rows);
        self.restart();
    }

    pub fn keep_to(&self, write_pace: Option<f64>) {
        self.with(|progress| progress.write_pace = write_pace);
    }

    /// Takes what a dry run has counted as the plan of the next run.
    pub fn plan(&self) {
        self.with(|progress| progress.plan = Some((progress.read, progress.dead)));
    }

    /// Asks for a list of the rows that a dry run would delete.
    pub fn list(&self, wanted: Listing) {
        self.with(|progress| progress.listing = Some(wanted));
    }

    pub fn count(&self, read: u64, deleted: u64) {
        self.with(|progress| {
            progress.read += read;
            progress.deleted += deleted;
        });
    }

    pub fn at(&self, bucket: &'static str) {
        self.with(|progress| progress.bucket = Some(bucket));
    }

    /// A walk begins at its beginning.
    pub(super) fn restart(&self) {
        self.with(|progress| {
            let listing = progress.listing.take().map(|wanted| Listing { rows: Vec::new(), matching: 0, ..wanted });
            let Progress { expected, plan, write_pace, .. } = *progress;
            *progress = Progress { expected, plan, write_pace, listing, ..Progress::default() };
        });
    }

    pub(super) fn planned(&self, row: &Condemned) {
        self.with(|progress| {
            progress.dead += 1;
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
