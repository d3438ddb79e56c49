//! The metrics job: counts rows, checks that TTL and the cleanup work, and forecasts the backlog.
//!
//! It only reads: none of its store traits can delete or write.
//!
//! ```
//! # use jobs::store::{Budget, DeleteRows, InspectTable, ReadRows, ScanTable};
//! async fn deletes<S: ReadRows + ScanTable + InspectTable + Budget + DeleteRows>(table: &S) {
//!     let _ = table.delete(&[]).await;
//! }
//! ```
//! With the traits that [`measure`] requires, the same does not compile, because none of them has a delete:
//! ```compile_fail,E0599
//! # use jobs::store::{Budget, DeleteRows, InspectTable, ReadRows, ScanTable};
//! async fn deletes<S: ReadRows + ScanTable + InspectTable + Budget>(table: &S) {
//!     let _ = table.delete(&[]).await;
//! }
//! ```
//! Nor does passing the emitter's table to a function that deletes or writes; see `dynamo::ReadOnly`.

mod answer;
mod census;
mod finding;
mod forecast;
mod lag;
mod sample;
#[cfg(test)]
mod sample_tests;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::pin::pin;

use futures_util::{StreamExt, TryStreamExt};

pub use answer::answer;
pub use census::{Census, Counts, Measure, Never, OwnerKind};
pub(crate) use finding::RECOVERY_OFF;
pub use finding::{Finding, TtlHealth, recovery_finding};
pub(crate) use forecast::interval;
pub use forecast::{Forecast, Trend, age, forecast};
pub use lag::{Ages, Lags};
pub use sample::{Estimate, Sampling};

use crate::cleanup::Cleanup;
use crate::repair::Repair;
use crate::run::Job;
use crate::run::clock::RunClock;
use crate::run::pause::{self, Pause};
use crate::run::state::JobState;
use crate::store::{
    Budget, Consistency, InspectTable, PageOf, PageSize, ReadRows, Result, ScanTable, StoreError, TableFigures, Usage,
    collect, follow, state_key, state_value,
};
use crate::{cleanup, clients, repair};
use shared::bucket::{BUCKETS, Bucket, JANITOR_OWNER};
use shared::clients::{self as registered, Clients};
use shared::row::{Row, RowKey};
use shared::settings::{Mode, Scope, Settings};
use shared::time::EpochSeconds;

pub const NAME: &str = "metrics-emitter";

/// The functions whose state rows are read.
pub const WATCHED: [&str; 2] = [cleanup::NAME, repair::NAME];

/// Maximum number of clients that an audit holds in memory, at about 50 bytes each; `janitor clients` counts more.
const MAX_CLIENTS: usize = 500_000;

/// Seconds between two scheduled runs of a watched function.
pub(crate) fn period(name: &str) -> i64 {
    if name == repair::NAME { Repair::PERIOD } else { Cleanup::PERIOD }
}

/// Segments of the table that an audit reads concurrently.
const SEGMENTS: i32 = 4;

/// How a measurement ended. The names are part of the answer, so they are stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case", const_into_str)]
pub enum Ended {
    /// Every row in its scope was counted.
    Complete,
    /// Stopped before its deadline: a partial count is discarded.
    OutOfTime,
    /// Stopped on request.
    Stopped,
    /// Stopped at `MAX_AUDIT_UNITS`, or not started because it would have cost more.
    ReadBudget,
}

/// The result of a measurement.
#[derive(Clone, Debug)]
pub struct Measurement {
    pub table: String,
    pub now: EpochSeconds,
    pub scope: Scope,
    /// The mode of the watched runs: a stack in dry-run mode is not expected to delete.
    pub mode: Mode,
    pub ended: Ended,
    /// The error of the counts, if there were too many rows to count.
    pub estimate: Option<Estimate>,
    pub census: Census,
    pub ttl: TtlHealth,
    /// State rows by function; absent where there is none.
    pub runs: BTreeMap<&'static str, JobState>,
    /// Only of a whole table, and unless there are too many clients to hold in memory.
    pub clients: Option<registered::Counts>,
    /// The pause that is in effect.
    pub pause: Option<Pause>,
    /// Whether the state rows were read.
    pub knows_runs: bool,
    pub forecast: Forecast,
    pub figures: TableFigures,
    /// The stream that the cascade reads.
    pub cascade_stream: Option<String>,
    /// Read units expected from the table's size; `None` if not the whole table is read.
    pub expected_units: Option<u64>,
    pub usage: Usage,
    pub elapsed_ms: u64,
    pub findings: Vec<Finding>,
}

/// Measures a table that was opened for reading. `sampling` limits what is counted and what is estimated.
///
/// # Errors
/// When the table could not be read. Too little time or too small a budget is an answer, not an error.
pub async fn measure<S>(store: &S, settings: &Settings, clock: &RunClock, sampling: &Sampling) -> Result<Measurement>
where
    S: ReadRows + ScanTable + InspectTable + Budget,
{
    let figures = store.figures().clone();
    let expected_units = (settings.scope == Scope::All).then(|| Consistency::Eventual.units(figures.bytes));
    if let Some(units) = expected_units {
        tracing::info!(rows = figures.rows, bytes = figures.bytes, units, "audit estimated");
    }
    let ttl = TtlHealth::from(store.ttl_setting().await);
    // The janitor's own rows are few and small: all are read.
    let (own, knows_runs) = match collect(store, whole_partition(JANITOR_OWNER), Some).await {
        Ok(own) => (own, true),
        Err(StoreError::OutOfTime) => (Vec::new(), false),
        Err(error) => return Err(error),
    };
    let runs = states(&own);
    let daily = runs.get(cleanup::NAME).cloned().unwrap_or_default();
    let reader = Reader {
        store,
        against: Measure {
            now: clock.now(),
            policy: settings.policy(),
            last_run_at: daily.last_run.as_ref().map(|run| EpochSeconds::new(run.at)),
        },
        most_units: settings.max_audit_units,
        in_flight: Cell::new(0.0),
        clients: RefCell::new(Some(Clients::new(clock.now(), clients::UNUSED_FOR))),
    };
    let is_above = |units| settings.max_audit_units.is_some_and(|most| sample::as_f64(units) > most);
    let counted = match settings.scope {
        _ if !knows_runs => Err(CountStop::Ended(Ended::OutOfTime)),
        Scope::System => reader.system_actors(sampling, figures.rows).await,
        Scope::All if expected_units.is_some_and(is_above) => Err(CountStop::Ended(Ended::ReadBudget)),
        Scope::All => reader.whole_table().await.map(|census| (census, None)),
    };
    let (ended, (mut census, estimate)) = match counted {
        Ok(counted) => (Ended::Complete, counted),
        Err(CountStop::Ended(Ended::OutOfTime)) if clock.is_stopped() => (Ended::Stopped, Default::default()),
        Err(CountStop::Ended(ended)) => (ended, Default::default()),
        Err(CountStop::Fault(error)) => return Err(error),
    };
    if settings.scope == Scope::System {
        own.iter().for_each(|row| census.count(row, &reader.against));
    }
    let mut measured = Measurement {
        table: settings.table.clone(),
        now: clock.now(),
        scope: settings.scope,
        mode: settings.mode,
        ended,
        estimate,
        forecast: match ended {
            Ended::Complete => forecast(&census, &daily, clock.now()),
            Ended::OutOfTime | Ended::Stopped | Ended::ReadBudget => Forecast::default(),
        },
        clients: match (settings.scope, ended) {
            (Scope::All, Ended::Complete) => reader.clients.into_inner().map(|clients| clients.counts()),
            _ => None,
        },
        census,
        ttl,
        runs,
        pause: own.iter().find(|row| row.key == pause::key()).and_then(|row| Pause::of_row(row, clock.now())),
        knows_runs,
        figures,
        cascade_stream: settings.cascade_stream.clone(),
        expected_units,
        usage: store.usage(),
        elapsed_ms: u64::try_from(clock.elapsed().as_millis()).unwrap_or(u64::MAX),
        findings: Vec::new(),
    };
    measured.findings = finding::findings(&measured);
    Ok(measured)
}

/// The state of the watched functions, from the janitor's own rows.
fn states(own: &[Row]) -> BTreeMap<&'static str, JobState> {
    let state = |name: &'static str| {
        let row = own.iter().find(|row| row.key == state_key(name))?;
        Some((name, JobState::from_json(&state_value(row))))
    };
    WATCHED.into_iter().filter_map(state).collect()
}

/// Why a count was not finished.
enum CountStop {
    Ended(Ended),
    Fault(StoreError),
}

impl From<StoreError> for CountStop {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::OutOfTime => CountStop::Ended(Ended::OutOfTime),
            error => CountStop::Fault(error),
        }
    }
}

/// The counts, and their error if they are estimates.
type Counted = (Census, Option<Estimate>);

struct Reader<'a, S> {
    store: &'a S,
    against: Measure,
    most_units: Option<f64>,
    /// Units that the pages in flight may cost.
    in_flight: Cell<f64>,
    clients: RefCell<Option<Clients>>,
}

impl<S: ReadRows + ScanTable + Budget> Reader<'_, S> {
    /// Counts the system actors' rows with eventual consistency: all of them, or enough for a good estimate.
    async fn system_actors(&self, sampling: &Sampling, table_rows: u64) -> Result<Counted, CountStop> {
        // The table's own count is hours old and includes all actors: it only decides what is tried first.
        if table_rows <= 2 * sampling.exact_rows
            && let Some(census) = self.whole_partitions(Some(sampling.exact_rows)).await?
        {
            return Ok((census, None));
        }
        self.sampled(sampling).await
    }

    /// One pass over each system actor's partition; `None` when there were more rows than `most`.
    async fn whole_partitions(&self, most: Option<u64>) -> Result<Option<Census>, CountStop> {
        let (mut census, mut counted) = (Census::default(), 0);
        for owner in system_owners() {
            let mut pages = pin!(follow(None, |after| async move {
                let of = PageOf { after, ..whole_partition(owner) };
                self.within_limits(self.store.page(&of)).await
            }));
            while let Some(page) = pages.try_next().await? {
                counted += self.count(&page.rows, &mut census);
                if page.next.is_some() && most.is_some_and(|most| counted > most) {
                    return Ok(None);
                }
            }
        }
        Ok(Some(census))
    }

    /// Reads the first rows of each bucket, and more of the large buckets, in proportion to their size.
    async fn sampled(&self, sampling: &Sampling) -> Result<Counted, CountStop> {
        let mut large: Vec<(&'static Bucket, f64)> = Vec::new();
        let (mut census, mut all) = (Census::default(), 0.0);
        for bucket in BUCKETS.iter().filter(|bucket| bucket.system_owner().is_some()) {
            let mut of_bucket = Census::default();
            let look = self.stretch(bucket, (0.0, 1.0), sampling.first_look, &mut of_bucket).await?;
            let size = look.factor() * sample::as_f64(look.rows);
            all += size;
            if look.ended_at_row {
                large.push((bucket, size));
            } else {
                census.merge(&of_bucket, 1.0);
            }
        }
        if all <= sample::as_f64(sampling.exact_rows) {
            return Ok((self.whole_partitions(None).await?.unwrap_or_default(), None));
        }
        let (mut sampled_rows, mut sampled_dead) = (0, 0);
        for (bucket, size) in large {
            let (mut of_bucket, mut seen) = (Census::default(), sample::Sampled::default());
            for stretch in sampling.stretches() {
                let most = sampling.rows_of_stretch(size / all);
                seen.add(self.stretch(bucket, stretch, most, &mut of_bucket).await?);
            }
            let counted = of_bucket.of(OwnerKind::System);
            sampled_rows += seen.rows;
            sampled_dead += counted.dead + counted.due;
            census.merge(&of_bucket, seen.factor());
        }
        Ok((census, Some(Estimate::new(sampled_rows, sampled_dead))))
    }

    /// Counts up to `most` rows of a bucket between two places.
    async fn stretch(
        &self,
        bucket: &'static Bucket,
        (from, until): (f64, f64),
        most: u64,
        census: &mut Census,
    ) -> Result<sample::Sampled, CountStop> {
        let key_at = |place| bucket.sort_key(&sample::name_at(bucket.names, place));
        let mut of = PageOf {
            after: (from > 0.0).then(|| key_at(from)),
            until: (until < 1.0).then(|| key_at(until)),
            ..PageOf::all(bucket.system_owner().unwrap_or_default(), bucket.sort_prefix(), Consistency::Eventual)
        };
        let mut seen = sample::Sampled::default();
        // Not by `pages`: each page is limited to the rows that are left to count.
        while seen.rows < most {
            of.size = PageSize::Rows(i32::try_from(most - seen.rows).unwrap_or(i32::MAX));
            let page = self.within_limits(self.store.page(&of)).await?;
            seen.rows += self.count(&page.rows, census);
            if page.next.is_none() {
                seen.width = until - from;
                return Ok(seen);
            }
            of.after = page.next;
            // Two different names can have the same place at this precision: the width must not be zero.
            let last = page.rows.last().and_then(|row| row.key.sort.strip_prefix(&of.prefix));
            let place = last.map_or(from, |name| sample::place(bucket.names, name));
            seen.width = (place - from).max(f64::EPSILON);
        }
        seen.ended_at_row = true;
        Ok(seen)
    }

    /// Counts every row by a parallel Scan. At a limit, the other segments finish their pages in flight first.
    async fn whole_table(&self) -> Result<Census, CountStop> {
        let mut segments = futures_util::stream::iter(0..SEGMENTS)
            .map(|segment| self.segment(segment))
            .buffer_unordered(usize::try_from(SEGMENTS).unwrap_or(1));
        let (mut whole, mut stopped) = (Census::default(), None);
        while let Some(segment) = segments.next().await {
            match segment {
                Ok(census) => whole.merge(&census, 1.0),
                Err(fault @ CountStop::Fault(_)) => return Err(fault),
                Err(ended) => stopped = Some(ended),
            }
        }
        stopped.map_or(Ok(whole), Err)
    }

    async fn segment(&self, segment: i32) -> Result<Census, CountStop> {
        let mut census = Census::default();
        let mut pages = pin!(follow(None, |after: Option<RowKey>| async move {
            self.within_limits(self.store.scan(segment, SEGMENTS, after.as_ref(), Consistency::Eventual)).await
        }));
        while let Some(page) = pages.try_next().await? {
            self.count(&page.rows, &mut census);
            self.count_clients(&page.rows);
        }
        Ok(census)
    }

    fn count(&self, rows: &[Row], census: &mut Census) -> u64 {
        rows.iter().for_each(|row| census.count(row, &self.against));
        self.store.progressed(None, rows.len() as u64, 0);
        rows.len() as u64
    }

    fn count_clients(&self, rows: &[Row]) {
        let mut clients = self.clients.borrow_mut();
        if let Some(known) = clients.as_mut() {
            rows.iter().for_each(|row| known.add(row));
        }
        clients.take_if(|known| known.len() > MAX_CLIENTS);
    }

    /// Requests a page, if the deadline and the budget allow it.
    async fn within_limits<P>(&self, page: impl Future<Output = Result<P>>) -> Result<P, CountStop> {
        if self.store.time_is_up() {
            return Err(CountStop::Ended(Ended::OutOfTime));
        }
        // The next rows may be larger than the rows so far: add a margin.
        let cost = 1.5 * self.store.page_units() + 0.5;
        let spent = self.store.usage().read_units + self.in_flight.get();
        if self.most_units.is_some_and(|most| spent + cost > most) {
            return Err(CountStop::Ended(Ended::ReadBudget));
        }
        self.in_flight.set(self.in_flight.get() + cost);
        let page = page.await;
        self.in_flight.set(self.in_flight.get() - cost);
        Ok(page?)
    }
}

/// All rows of an owner, in pages as large as possible.
fn whole_partition(owner: &str) -> PageOf {
    PageOf { size: PageSize::Whole, ..PageOf::all(owner, "", Consistency::Eventual) }
}

/// Each owner once, in the order of the table of buckets.
fn system_owners() -> Vec<&'static str> {
    let mut owners: Vec<&str> = BUCKETS.iter().filter_map(Bucket::system_owner).collect();
    // Buckets of one owner are adjacent in the table.
    owners.dedup();
    owners
}
