//! The table in DynamoDB: the only crate that imports the AWS SDK.
//!
//! Every request goes through [`Table::call`], which paces, retries within bounds, and counts what it cost.

#![warn(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods)]

mod access;
mod attributes;
mod call;
#[cfg(feature = "revoke")]
mod clients;
mod connect;
mod convert;
mod delete;
mod describe;
mod error;
pub mod http;
mod pace;
mod permission;
mod read;
#[cfg(feature = "revoke")]
mod revoke;
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
    /// For error texts: where the requests go.
    endpoint: String,
    clock: RunClock,
    figures: TableFigures,
    pace: Pace,
    usage: Mutex<Usage>,
    /// Whether anybody has answered in this run.
    answered: AtomicBool,
    stopped: AtomicBool,
    access: PhantomData<A>,
}

impl<A> Table<A> {
    /// The table, not looked at yet and not paced: for its set-up, and for tools that write fixtures.
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

    /// The table of a run: checked to be ActingWeb's by its keys, and paced by the settings and by how it is paid for.
    ///
    /// # Errors
    /// When it cannot be described, or is another kind of table.
    pub async fn open(client: Client, settings: &Settings, endpoint: Option<&str>, clock: RunClock) -> Result<Self> {
        let table = Self::open_unpaced(client, &settings.table, endpoint, clock).await?;
        let pace = Pace::new(settings, &table.figures);
        if let Some(watch) = clock.watch() {
            watch.keep_to(pace.writes_per_second());
        }
        Ok(Self { pace, ..table })
    }

    /// The table of a set-up, which reads and writes no rows: checked in the same way.
    ///
    /// # Errors
    /// When it cannot be described, or is another kind of table.
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

    /// Adds to what the run has cost.
    fn count(&self, add: impl FnOnce(&mut Usage)) {
        // The lock is never held across an await, and a poisoned count is still the best count there is.
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
        // No page is larger than the table, as far as that is known.
        let whole = self.pace.page_units(None, Consistency::Eventual);
        let rows = (!self.pace.has_room_for(whole)).then(|| self.pace.page_rows(Consistency::Eventual));
        let page = self.pace.page_units(rows, Consistency::Eventual);
        match u32::try_from(self.figures.bytes) {
            Ok(0) | Err(_) => page,
            Ok(bytes) => page.min((f64::from(bytes) / f64::from(Consistency::Eventual.bytes_a_unit())).max(0.5)),
        }
    }

    fn lookup_batch(&self) -> usize {
        self.pace.lookup_batch()
    }
}

/// An endpoint as it may be shown: scheme, host and port, without what else was typed into it.
pub fn shown(endpoint: &str) -> String {
    let (scheme, rest) = endpoint.split_once("://").unwrap_or(("", endpoint));
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}")
}
