//! The table in DynamoDB: the only crate that imports the AWS SDK.
//!
//! Every DynamoDB request goes through [`Table::call`], which retries within limits and counts; requests for rows are paced.

#![warn(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods)]

mod access;
mod attributes;
mod call;
mod connect;
mod convert;
mod delete;
mod describe;
mod error;
pub mod http;
#[cfg(feature = "revoke")]
mod operator;
mod pace;
mod permission;
mod read;
mod scan;
#[cfg(feature = "sign-in")]
mod sign_in;
mod skew;
mod state;
mod switch;
mod write_ttl;

use std::marker::PhantomData;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

pub use aws_sdk_dynamodb::Client;

pub use access::{Dynamo, ReadOnly};
pub use connect::{connect, connect_locally};
use pace::Pace;
#[cfg(feature = "sign-in")]
pub use sign_in::{SignIn, SignInError, SignedIn};

use jobs::run::clock::RunClock;
use jobs::store::{Billing, Budget, Consistency, Result, StopWork, TableFigures, Usage};
use shared::settings::Settings;

/// One table during one run, and what may be done with it.
pub struct Table<A> {
    client: Client,
    table: String,
    /// Where the requests go, for error messages.
    endpoint: String,
    clock: RunClock,
    figures: TableFigures,
    pace: Pace,
    usage: Mutex<Usage>,
    /// Whether any request has been answered in this run.
    answered: AtomicBool,
    stopped: AtomicBool,
    access: PhantomData<A>,
}

impl<A> Table<A> {
    /// The table, unchecked and unpaced: for its setup, and for tools that write fixtures.
    pub fn new(client: Client, table: impl Into<String>, endpoint: Option<&str>, clock: RunClock) -> Self {
        let billing = Billing::OnDemand { max_read_units: None, max_write_units: None };
        Self {
            client,
            table: table.into(),
            endpoint: endpoint.map_or_else(|| "the AWS endpoint of the region".to_owned(), shown),
            clock,
            figures: TableFigures { arn: String::new(), rows: 0, bytes: 0, billing, stream: None },
            pace: Pace::unlimited(),
            usage: Mutex::default(),
            answered: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            access: PhantomData,
        }
    }

    /// The table of a run: its keys are checked to be ActingWeb's, and requests are paced by the settings and the billing mode.
    ///
    /// # Errors
    /// If it cannot be described, or does not have ActingWeb's keys.
    pub async fn open(client: Client, settings: &Settings, endpoint: Option<&str>, clock: RunClock) -> Result<Self> {
        let table = Self::open_unpaced(client, &settings.table, endpoint, clock).await?;
        let pace = Pace::new(settings, &table.figures);
        if let Some(watch) = clock.watch() {
            watch.keep_to(pace.writes_per_second());
        }
        Ok(Self { pace, ..table })
    }

    /// The table of a setup, which reads and writes no rows: checked in the same way, but unpaced.
    ///
    /// # Errors
    /// If it cannot be described, or does not have ActingWeb's keys.
    pub async fn open_unpaced(client: Client, table: &str, endpoint: Option<&str>, clock: RunClock) -> Result<Self> {
        let table = Self::new(client, table, endpoint, clock);
        let (figures, offset) = table.check().await?;
        if let Some(watch) = clock.watch() {
            watch.expect(figures.rows);
        }
        let clock = clock.corrected_by(offset);
        if let Some(note) = clock.offset_note() {
            tracing::warn!(clock.ahead = offset, "{note}");
        }
        Ok(Self { clock, figures, ..table })
    }

    /// The run's clock, corrected by the table's.
    pub fn clock(&self) -> &RunClock {
        &self.clock
    }

    /// Updates the usage of the run.
    fn count(&self, add: impl FnOnce(&mut Usage)) {
        // The lock is never held across an await, and a poisoned count is better than none.
        add(&mut self.usage.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
    }
}

impl<A> StopWork for Table<A> {
    fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }
}

impl<A> Budget for Table<A> {
    fn time_is_up(&self) -> bool {
        self.stopped.load(Ordering::Relaxed) || self.clock.time_is_up()
    }

    fn progressed(&self, bucket: Option<&'static str>, read: u64, deleted: u64) {
        if let Some(watch) = self.clock.watch() {
            watch.count(bucket, read, deleted);
        }
    }

    fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        self.count(|counted| usage = *counted);
        usage
    }

    fn page_units(&self) -> f64 {
        // No page is larger than the table, if its size is known.
        let reading = Consistency::Eventual;
        let page = self.pace.page_units(self.pace.whole_page_rows(reading), reading);
        match u32::try_from(self.figures.bytes) {
            Ok(0) | Err(_) => page,
            Ok(bytes) => page.min((f64::from(bytes) / f64::from(reading.bytes_per_unit())).max(0.5)),
        }
    }

    fn lookup_batch(&self) -> usize {
        self.pace.lookup_batch()
    }
}

/// An endpoint for display: scheme, host and port. The rest may contain a secret.
pub fn shown(endpoint: &str) -> String {
    let (scheme, rest) = endpoint.split_once("://").unwrap_or(("", endpoint));
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}")
}
