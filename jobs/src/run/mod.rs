//! One run of a job: refusals, lease, walk, state, report.

pub mod clock;
mod error;
pub mod lease;
pub mod listing;
pub mod pause;
pub mod report;
pub mod state;
mod watch;

use serde::Serialize;
use serde_json::{Value, json};

use crate::run::clock::RunClock;
use crate::run::lease::Lease;
use crate::run::report::{Outcome, RunReport, Tally};
use crate::run::state::JobState;
use crate::store::{
    Budget, Consistency, DeleteRows, InspectTable, OwnState, PageOf, PageSize, ReadRows, RetireRows, ScanTable,
    StopWork, StoreError, TtlSetting,
};
use crate::walk::{Context, Stop, Walked};
pub use error::RunError;
use shared::bucket::{BUCKETS, Bucket, JANITOR_OWNER, TTL_ATTRIBUTE};
use shared::disposal::Condemned;
use shared::expiry::Policy;
use shared::segment::Segment;
use shared::settings::{Mode, Purpose, Settings};

/// A job that runs on a table, with a lease, a deadline and a report. Its walk is [`WalkRows`].
pub trait Job: Sized {
    /// The name in its state row, its lease, its logs and its events.
    const NAME: &'static str;
    /// The settings that apply to it.
    const PURPOSE: Purpose;
    /// Seconds between two scheduled runs.
    const PERIOD: i64;
    /// Figures that the job reports besides the counts. The default value contains all of them.
    type Findings: Default + Serialize;

    fn new(settings: &Settings) -> Self;

    /// The answer of an invocation.
    fn answer(report: &RunReport) -> impl Serialize;
}

/// A job's walk over a store with the capabilities that this job needs, and no more.
#[expect(async_fn_in_trait, reason = "used with static dispatch only")]
pub trait WalkRows<S>: Job {
    /// Walks over all rows, or those of a segment, from where an earlier run stopped; null is the beginning.
    async fn walk(
        &self,
        context: &Context<'_, S>,
        segment: Option<Segment>,
        from: &Value,
        checkpoint: &Checkpoint<'_, S>,
    ) -> Walked<Self::Findings>;
}

/// Stores the progress of a walk, so that the next run continues there if this one is killed.
pub struct Checkpoint<'a, S> {
    store: &'a S,
    name: &'static str,
    state: &'a JobState,
    pub(crate) clock: &'a RunClock,
    /// A dry run writes nothing; a segment's cursor is part of its answer.
    disabled: bool,
}

impl<S: OwnState> Checkpoint<'_, S> {
    pub async fn save(&self, cursor: Value) -> Result<(), StoreError> {
        if self.disabled {
            return Ok(());
        }
        self.store.write_state(self.name, &json!(self.state.at(cursor, self.clock.now().get()))).await
    }
}

/// The capabilities that every run needs.
pub trait Store: ReadRows + ScanTable + DeleteRows + RetireRows + OwnState + InspectTable + Budget + StopWork {}

impl<S: ReadRows + ScanTable + DeleteRows + RetireRows + OwnState + InspectTable + Budget + StopWork> Store for S {}

/// Runs a job on an open table. A run that stopped early is a report with `complete: false`.
pub async fn run<S: Store, J: WalkRows<S>>(
    store: &S,
    job: &J,
    settings: &Settings,
    clock: &RunClock,
) -> Result<RunReport, RunError> {
    let run = Run::open(store, job, settings, clock, None).await?;
    match run.walk_alone().await {
        Err(held @ RunError::LeaseHeld(_)) => Ok(run.idle(Outcome::LeaseHeld, &held)),
        done => done,
    }
}

/// Whether any of these buckets that belongs to a system actor has a row of its own among its first `rows`. Costs a few
/// minimal reads.
pub(crate) async fn holds_rows<S: ReadRows>(
    store: &S,
    buckets: impl Iterator<Item = &'static Bucket>,
    rows: i32,
) -> Result<bool, StoreError> {
    for (bucket, owner) in buckets.filter_map(|bucket| Some((bucket, bucket.system_owner()?))) {
        let all = PageOf::all(owner, bucket.sort_prefix(), Consistency::Eventual);
        if store.page(&PageOf { size: PageSize::Rows(rows), ..all }).await?.rows.iter().any(|row| row.is_of(bucket)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Fails if another run holds the lease. It writes nothing, for use before a plan is made.
pub async fn check_lease<S: OwnState>(store: &S, clock: &RunClock) -> Result<(), RunError> {
    Lease::own(store, clock, "").held().await?.map_or(Ok(()), |holder| Err(holder.into()))
}

/// Acquires the lease. The pause is read first: a paused run writes nothing, not even a lease.
pub async fn acquire<'a, S: OwnState + ReadRows>(
    store: &S,
    clock: &RunClock,
    lease: Lease<'a, S>,
) -> Result<Lease<'a, S>, RunError> {
    pause::check(store, clock).await?;
    Ok(lease.acquire().await??)
}

/// A run that may start: its rules are known, and the table is ActingWeb's.
pub(crate) struct Run<'a, S, J> {
    store: &'a S,
    job: &'a J,
    settings: &'a Settings,
    clock: &'a RunClock,
    /// One segment only, and where its last run stopped.
    segment: Option<(Segment, Value)>,
    policy: Policy,
    table_is_empty: bool,
    /// An earlier step has checked the share of dead rows.
    pub(crate) share_is_checked: bool,
}

impl<'a, S: Store, J: WalkRows<S>> Run<'a, S, J> {
    pub(crate) async fn open(
        store: &'a S,
        job: &'a J,
        settings: &'a Settings,
        clock: &'a RunClock,
        segment: Option<(Segment, Value)>,
    ) -> Result<Self, RunError> {
        let policy = settings.policy();
        let (table_is_empty, share_is_checked) = (false, false);
        let mut run = Self { store, job, settings, clock, segment, policy, table_is_empty, share_is_checked };
        run.refuse_to_retire_without_ttl().await?;
        run.table_is_empty = run.refuse_wrong_table().await?;
        Ok(run)
    }

    /// Walks under its own lease; a dry run needs none. A pause is a report, not an error.
    pub(crate) async fn walk_alone(&self) -> Result<RunReport, RunError> {
        if self.settings.mode == Mode::DryRun {
            return self.walk().await;
        }
        let lease = match acquire(self.store, self.clock, Lease::own(self.store, self.clock, J::NAME)).await {
            Err(paused @ RunError::Paused(_)) => return Ok(self.idle(Outcome::Paused, &paused)),
            lease => lease?,
        };
        let done = lease.hold(Box::pin(self.walk())).await;
        lease.release().await;
        self.with_usage(done.unwrap_or(Err(RunError::LeaseLost)))
    }

    /// Adds the cost of the requests after the walk: the state row and the lease.
    pub(crate) fn with_usage(&self, mut done: Result<RunReport, RunError>) -> Result<RunReport, RunError> {
        match &mut done {
            Ok(report) => report.usage = self.store.usage(),
            Err(RunError::Interrupted { report, .. }) => report.usage = self.store.usage(),
            Err(_) => {}
        }
        done
    }

    /// Only the table's TTL removes a retired row. Deleting it instead could not be undone.
    async fn refuse_to_retire_without_ttl(&self) -> Result<(), RunError> {
        if self.policy.retire.is_none() {
            return Ok(());
        }
        let state = match self.store.ttl_setting().await? {
            TtlSetting::On { attribute } | TtlSetting::Enabling { attribute } if attribute == TTL_ATTRIBUTE => {
                return Ok(());
            }
            TtlSetting::On { attribute } | TtlSetting::Enabling { attribute } => format!("on for {attribute}"),
            TtlSetting::Off => "off".to_owned(),
            TtlSetting::Disabling { .. } => "being disabled".to_owned(),
        };
        Err(RunError::TtlNotOn { state })
    }

    /// Whether the table is empty; an error if its rows are another application's.
    async fn refuse_wrong_table(&self) -> Result<bool, RunError> {
        if holds_rows(self.store, BUCKETS.iter(), 10).await? {
            return Ok(false);
        }
        let others = self.store.scan(0, 1, None, Consistency::Eventual).await?;
        let mut others = others.rows.iter().filter(|row| row.key.owner != JANITOR_OWNER).peekable();
        if others.peek().is_none() {
            return Ok(true);
        }
        let known = others.any(|row| row.known_bucket().is_some());
        // A table whose known rows an earlier run has all deleted is still the right one.
        if known || self.store.holds_state().await? {
            return Ok(false);
        }
        Err(RunError::WrongTable { table: self.settings.table.clone() })
    }

    async fn read_state(&self) -> Result<JobState, RunError> {
        if let Some((_, cursor)) = &self.segment {
            return Ok(JobState { cursor: cursor.clone(), ..JobState::default() });
        }
        // A stale cursor is dropped, because the rows before it may have expired since.
        Ok(JobState::read(self.store, J::NAME).await?.without_stale_cursor(self.clock.now().get(), J::PERIOD))
    }

    /// `MAX_DELETE_SHARE` needs a dry walk over the whole table, wherever an earlier run stopped.
    pub(crate) async fn refuse_above_share(&self, state: &JobState) -> Result<(), RunError> {
        let Some(limit) = self.settings.max_delete_share else { return Ok(()) };
        let Walked { counts, stopped, .. } = self.walk_rows(true, None, state, &Value::Null).await;
        // The observer watches the walk that follows.
        if let Some(watch) = self.clock.watch() {
            watch.restart();
        }
        match stopped {
            None => check_share(&counts, limit),
            Some((_, Stop::Fault(cause))) => {
                let report = self.report(Outcome::Failed, Tally::default(), state, Value::Null, None);
                Err(RunError::Interrupted { report: Box::new(report), cause })
            }
            Some((_, Stop::OutOfTime | Stop::MaxDeletes)) => {
                Err(RunError::ShareUnknown { problem: "there was not enough time to read all rows".to_owned() })
            }
        }
    }

    pub(crate) async fn walk(&self) -> Result<RunReport, RunError> {
        let state = self.read_state().await?;
        if !self.share_is_checked {
            self.refuse_above_share(&state).await?;
        }
        let dry = self.settings.mode == Mode::DryRun;
        let writes_state = !dry && self.segment.is_none();
        let walk = self.walk_rows(dry, self.settings.max_deletes, &state, &state.cursor);
        let (Walked { counts, stopped, findings, notes }, pause) =
            if dry { (walk.await, None) } else { pause::stopping(self.store, self.clock, walk).await };
        let findings = json!(findings);
        let (next, why) = stopped.unzip();
        let outcome = match why {
            Some(Stop::Fault(cause)) => {
                let report = self.report(Outcome::Failed, counts, &state, findings, next);
                if writes_state {
                    // The fault is the error to return; storing the cursor is best effort.
                    let _ = self.store.write_state(J::NAME, &json!(state.after(&report))).await;
                }
                return Err(RunError::Interrupted { report: Box::new(report), cause });
            }
            Some(Stop::OutOfTime) if pause.is_some() => Outcome::Paused,
            Some(Stop::OutOfTime) if self.clock.is_stopped() => Outcome::Stopped,
            Some(Stop::OutOfTime) => Outcome::OutOfTime,
            Some(Stop::MaxDeletes) => Outcome::MaxDeletes,
            None if counts.rows_skipped() > 0 => Outcome::Skipped,
            None if self.table_is_empty => Outcome::EmptyTable,
            None => Outcome::Complete,
        };
        let mut report = self.report(outcome, counts, &state, findings, next);
        report.notes.extend(notes);
        report.notes.extend(pause.map(|pause| format!("{pause}: the next run continues from here")));
        self.add_notes(&mut report);
        if !writes_state {
            return Ok(report);
        }
        if let Err(error) = self.store.write_state(J::NAME, &json!(state.after(&report))).await {
            // The rows are already deleted, so the report is returned rather than the error.
            report.notes.push(format!("the state row could not be written ({error}): the next run repeats some reads"));
            if report.outcome.is_complete() {
                report.outcome = Outcome::Unrecorded;
            }
        }
        Ok(report)
    }

    async fn walk_rows(
        &self,
        dry: bool,
        max_deletes: Option<u64>,
        state: &JobState,
        from: &Value,
    ) -> Walked<J::Findings> {
        let planned = |row: &Condemned| {
            if let Some(watch) = self.clock.watch() {
                watch.planned(row);
            }
        };
        let context = Context::new(self.store, self.clock.now(), self.policy, dry, max_deletes).on_planned(&planned);
        let segment = self.segment.as_ref().map(|(segment, _)| *segment);
        let disabled = dry || segment.is_some();
        let checkpoint = Checkpoint { store: self.store, name: J::NAME, state, clock: self.clock, disabled };
        self.job.walk(&context, segment, from, &checkpoint).await
    }

    fn add_notes(&self, report: &mut RunReport) {
        let RunReport { notes, counts, .. } = report;
        if report.resumed {
            notes.push("continued from where the last run stopped".to_owned());
        }
        let next = match self.settings.mode {
            Mode::Delete => "the next run continues from here",
            Mode::DryRun => "a dry run stores nothing, so the next run starts where this one did",
        };
        let note = match report.outcome {
            Outcome::Complete | Outcome::LeaseHeld | Outcome::Paused | Outcome::Unrecorded | Outcome::Failed => None,
            Outcome::EmptyTable => Some("the table is empty: nothing to do".to_owned()),
            Outcome::OutOfTime => Some(format!("stopped before the deadline: {next}")),
            Outcome::Stopped => Some(format!("stopped on request: {next}")),
            Outcome::MaxDeletes => Some(format!("stopped at MAX_DELETES: {next}")),
            Outcome::Skipped => {
                Some(format!("{} rows could not be read or deleted: the next run tries again", counts.rows_skipped()))
            }
        };
        notes.extend(note);
        if counts.uncertain() > 0 {
            notes.push(format!(
                "{} deletes were not confirmed: counted as skipped, though the rows may be deleted",
                counts.uncertain()
            ));
        }
    }

    /// The report of a run that did not start.
    pub(crate) fn idle(&self, outcome: Outcome, why: &RunError) -> RunReport {
        let mut report = self.report(outcome, Tally::default(), &JobState::default(), Value::Null, None);
        report.notes.push(why.to_string());
        report
    }

    fn report(
        &self,
        outcome: Outcome,
        counts: Tally,
        state: &JobState,
        findings: Value,
        next: Option<Value>,
    ) -> RunReport {
        let incomplete_runs = state.incomplete_runs_after(outcome);
        let enough = self.settings.backlog_after_incomplete_runs.is_some_and(|limit| incomplete_runs >= limit);
        RunReport {
            resumed: state.is_resumed(),
            counts,
            usage: self.store.usage(),
            findings,
            notes: self.clock.offset_note().into_iter().collect(),
            next,
            consecutive_incomplete_runs: incomplete_runs,
            // Not with MAX_DELETES, whatever ended this run: an execution has no such limit.
            start_backlog: enough
                && outcome == Outcome::OutOfTime
                && self.settings.mode == Mode::Delete
                && self.settings.max_deletes.is_none(),
            ..RunReport::new(outcome, self.settings, self.clock)
        }
    }
}

/// If rows could not be read, the share is unknown and the run is refused too.
fn check_share(counts: &Tally, limit: f64) -> Result<(), RunError> {
    if counts.rows_skipped() > 0 {
        return Err(RunError::ShareUnknown { problem: format!("{} rows could not be read", counts.rows_skipped()) });
    }
    let (dead, read) = (counts.rows_disposed(), counts.rows_read());
    #[expect(clippy::cast_precision_loss, reason = "a share of row counts below 2^52")]
    let share = if read == 0 { 0.0 } else { dead as f64 / read as f64 };
    if share > limit { Err(RunError::AboveShare { dead, read, share, limit }) } else { Ok(()) }
}
