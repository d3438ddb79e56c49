//! One run of a job, whichever: what it refuses, its lease, its walk, its state, its report.

use serde_json::{Value, json};

use crate::backlog::segment_run::SegmentRun;
use crate::run::clock::RunClock;
use crate::run::lease::{Acquire, Lease};
use crate::run::report::{Outcome, RunReport, Tally};
use crate::run::state::JobState;
use crate::store::{
    Budget, Consistency, DeleteRows, InspectTable, OwnState, PageOf, PageSize, ReadRows, ScanTable, StoreError,
    TtlSetting,
};
use crate::walk::{Context, WalkEnd};
use shared::bucket::{BUCKETS, JANITOR_OWNER, TTL_ATTRIBUTE};
use shared::expiry::Policy;
use shared::segment::Segment;
use shared::settings::{ConfigError, ExpiredRows, Mode, Settings};

pub mod clock;
pub mod lease;
pub mod report;
mod segment;
pub mod state;

pub use segment::{run_segment, start};

/// What a run does between taking its lease and writing its report.
#[expect(async_fn_in_trait, reason = "used with static dispatch only")]
pub trait Job<S> {
    /// Of its state row, its lease and its logs.
    const NAME: &'static str;
    /// Seconds between two scheduled runs.
    const PERIOD: i64;

    /// Walks over its rows, or those of a segment, from where an earlier run stopped.
    async fn walk(
        &self,
        context: &Context<'_, S>,
        segment: Option<Segment>,
        from: &Value,
        checkpoint: &Checkpoint<'_, S>,
    ) -> Pass;
}

/// What a job's walk came to.
#[derive(Debug)]
pub struct Pass {
    pub counts: Tally,
    /// Where the next run goes on is the job's own business.
    pub end: WalkEnd<Value>,
    /// What the job found beside the counts.
    pub findings: Value,
    pub notes: Vec<String>,
}

/// Writes down how far a walk has come, so that a run which is killed is resumed there.
pub struct Checkpoint<'a, S> {
    store: &'a S,
    name: &'static str,
    state: &'a JobState,
    now: i64,
    /// Of a dry run, which writes nothing, and of a part, whose cursor travels in its answer.
    silent: bool,
}

impl<S: OwnState> Checkpoint<'_, S> {
    /// # Errors
    /// When the state row could not be written.
    pub async fn save(&self, cursor: Value) -> Result<(), StoreError> {
        if self.silent {
            return Ok(());
        }
        self.store.write_state(self.name, &json!(self.state.at(cursor, self.now))).await
    }
}

/// Why a run failed. One line each, naming the cause and the setting.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RunError {
    #[error("configuration: {0}")]
    Config(#[from] ConfigError),
    #[error("{0}")]
    Store(#[from] StoreError),
    #[error(
        "refused: table {table} holds rows, but none of a bucket that ActingWeb's token store writes: check AWS_DB_PREFIX or ATTRIBUTES_TABLE"
    )]
    WrongTable { table: String },
    #[error(
        "refused: {dead} of {read} rows would be deleted, a share of {share:.3}, above MAX_DELETE_SHARE={limit}; nothing was deleted"
    )]
    AboveShare { dead: u64, read: u64, share: f64, limit: f64 },
    #[error("refused: MAX_DELETE_SHARE needs a whole reading pass, and {problem}; nothing was deleted")]
    ShareUnknown { problem: String },
    #[error("the lease was lost to another run, and this one stopped")]
    LeaseLost,
    #[error("another run ({by}) holds the lease for {seconds} s more: nothing was done")]
    LeaseHeld { by: String, seconds: i64 },
    #[error(
        "refused: MAX_DELETES is a ceiling on one run, and an execution is many: unset it for the execution, or leave the rows to the daily runs"
    )]
    CeilingOnParts,
    #[error("stopped by a fault after {} deleted rows: {cause}", .report.counts.rows_deleted())]
    Interrupted { report: Box<RunReport>, cause: StoreError },
}

impl RunError {
    /// Whether the run would not begin.
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            RunError::WrongTable { .. }
                | RunError::AboveShare { .. }
                | RunError::ShareUnknown { .. }
                | RunError::CeilingOnParts
        )
    }

    /// A stable word for alarms and dashboards.
    pub fn kind(&self) -> &'static str {
        match self {
            RunError::Config(_) => "Configuration",
            RunError::Store(_) | RunError::Interrupted { .. } => "Store",
            RunError::LeaseLost => "LeaseLost",
            RunError::LeaseHeld { .. } => "LeaseHeld",
            RunError::WrongTable { .. }
            | RunError::AboveShare { .. }
            | RunError::ShareUnknown { .. }
            | RunError::CeilingOnParts => "Refused",
        }
    }
}

/// What a run of any job asks of the table.
pub trait Store: ReadRows + ScanTable + DeleteRows + OwnState + InspectTable + Budget {}

impl<S: ReadRows + ScanTable + DeleteRows + OwnState + InspectTable + Budget> Store for S {}

/// Runs a job on an open table.
///
/// # Errors
/// When the run refused, or could not go on. A run that ended early by itself is a report with `complete: false`.
pub async fn run<S, J>(store: &S, job: &J, settings: &Settings, clock: &RunClock) -> Result<RunReport, RunError>
where
    S: Store,
    J: Job<S>,
{
    let mut run = Run::open(store, job, settings, clock, None).await?;
    if settings.mode == Mode::DryRun {
        return run.walk().await;
    }
    match run.under(Lease::own(store, clock, J::NAME)).await {
        Err(RunError::LeaseHeld { by, seconds }) => {
            run.notes.push(RunError::LeaseHeld { by, seconds }.to_string());
            Ok(run.report(Outcome::LeaseHeld, Tally::default(), &JobState::default(), Value::Null, None))
        }
        done => done,
    }
}

/// Whether any bucket of the system actors holds a row of its own, at the price of a few of the smallest reads.
async fn holds_known_rows<S: ReadRows>(store: &S) -> Result<bool, StoreError> {
    for (bucket, owner) in BUCKETS.iter().filter_map(|bucket| Some((bucket, bucket.system_owner()?))) {
        let (prefix, size) = (bucket.sort_prefix(), PageSize::Rows(10));
        let of = PageOf { owner, prefix: &prefix, after: None, until: None, reading: Consistency::Eventual, size };
        if store.page(of).await?.rows.iter().any(|row| row.is_of(bucket)) {
            return Ok(true);
        }
    }
    Ok(false)
}

async fn acquire<S: OwnState>(lease: Lease<'_, S>) -> Result<Lease<'_, S>, RunError> {
    match lease.acquire().await? {
        Acquire::Acquired(lease) => Ok(lease),
        Acquire::Held { by, seconds } => Err(RunError::LeaseHeld { by, seconds }),
    }
}

struct Run<'a, S, J> {
    store: &'a S,
    job: &'a J,
    settings: &'a Settings,
    clock: &'a RunClock,
    part: Option<(&'a SegmentRun, Segment)>,
    policy: Policy,
    table_is_empty: bool,
    /// Somebody has looked at the share of dead rows before this run.
    share_is_known: bool,
    notes: Vec<String>,
}

impl<'a, S: Store, J: Job<S>> Run<'a, S, J> {
    /// A run that may begin: its rules are known, and the table is ActingWeb's.
    async fn open(
        store: &'a S,
        job: &'a J,
        settings: &'a Settings,
        clock: &'a RunClock,
        part: Option<(&'a SegmentRun, Segment)>,
    ) -> Result<Self, RunError> {
        let notes = clock.offset_note().into_iter().collect();
        let policy = Policy::default();
        let mut run =
            Self { store, job, settings, clock, part, policy, table_is_empty: false, share_is_known: false, notes };
        run.set_policy().await?;
        run.table_is_empty = run.refuse_wrong_table().await?;
        Ok(run)
    }

    /// Walks while it has the lease.
    async fn under(&mut self, lease: Lease<'a, S>) -> Result<RunReport, RunError> {
        let lease = acquire(lease).await?;
        let done = lease.hold(Box::pin(self.walk())).await;
        lease.release().await;
        self.with_usage(done.unwrap_or(Err(RunError::LeaseLost)))
    }

    /// What the run came to, and all that it cost.
    fn with_usage(&self, mut done: Result<RunReport, RunError>) -> Result<RunReport, RunError> {
        let report = match &mut done {
            Ok(report) => Some(report),
            Err(RunError::Interrupted { report, .. }) => Some(&mut **report),
            Err(_) => None,
        };
        if let Some(report) = report {
            // The last words, the state row and the lease, have cost something as well, and may have needed a second try.
            report.usage = self.store.usage();
        }
        done
    }

    /// Rows are left to TTL only if TTL will really take them; otherwise they are deleted, and the report says so.
    async fn set_policy(&mut self) -> Result<(), RunError> {
        self.policy.reuse_window = self.settings.reuse_window_seconds;
        self.policy.grace = self.settings.grace_seconds;
        self.policy.remove_legacy = self.settings.remove_legacy;
        if self.settings.expired_rows == ExpiredRows::Delete {
            return Ok(());
        }
        let why_not = match self.store.ttl_setting().await? {
            TtlSetting::On { attribute } if attribute == TTL_ATTRIBUTE => {
                self.policy.defer_to_ttl = true;
                return Ok(());
            }
            TtlSetting::On { attribute } => format!("is on for {attribute}"),
            TtlSetting::Off => "is off".to_owned(),
            TtlSetting::Enabling { .. } | TtlSetting::Disabling { .. } => "is being switched".to_owned(),
        };
        self.notes.push(format!(
            "EXPIRED_ROWS=defer-to-ttl was asked for, but the table's TTL {why_not}: expired rows are deleted instead"
        ));
        Ok(())
    }

    /// Whether the table is empty; an error if it is full of something else.
    async fn refuse_wrong_table(&self) -> Result<bool, RunError> {
        if holds_known_rows(self.store).await? {
            return Ok(false);
        }
        let others = self.store.scan(0, 1, None).await?;
        let mut others = others.rows.iter().filter(|row| row.key.owner != JANITOR_OWNER).peekable();
        if others.peek().is_none() {
            return Ok(true);
        }
        let known = others.any(|row| row.known_bucket().is_some());
        // A table that an earlier run, of whichever job, has swept clean of all it knew is still the right one.
        if known || self.store.holds_state().await? {
            return Ok(false);
        }
        Err(RunError::WrongTable { table: self.settings.table.clone() })
    }

    /// Where this job's runs have come to; of a part, where its own have.
    async fn read_state(&self) -> Result<JobState, RunError> {
        if let Some((part, _)) = self.part {
            return Ok(JobState { cursor: part.cursor.clone(), ..JobState::default() });
        }
        let stored = self.store.read_state(J::NAME).await?;
        let state = JobState::from_json(&stored.map_or(Value::Null, |stored| stored.value));
        // What it has passed may have expired since: the walk begins anew.
        Ok(state.without_stale_cursor(self.clock.now().get(), J::PERIOD))
    }

    /// The ceiling on the share of dead rows takes a reading pass of its own.
    async fn refuse_above_share(&mut self, state: &JobState) -> Result<(), RunError> {
        let Some(limit) = self.settings.max_delete_share else { return Ok(()) };
        // Of the whole table, not of what an earlier run has left of it.
        let Pass { counts, end, .. } = self.pass(true, None, state, &Value::Null).await;
        match end {
            WalkEnd::Through => check_share(&counts, limit),
            WalkEnd::Fault(_, cause) => {
                let report = self.report(Outcome::Failed, Tally::default(), state, Value::Null, None);
                Err(RunError::Interrupted { report: Box::new(report), cause })
            }
            WalkEnd::OutOfTime(_) | WalkEnd::MaxDeletes(_) => {
                Err(RunError::ShareUnknown { problem: "there was not enough time for one".to_owned() })
            }
        }
    }

    async fn walk(&mut self) -> Result<RunReport, RunError> {
        let state = self.read_state().await?;
        if !self.share_is_known {
            self.refuse_above_share(&state).await?;
        }
        let dry = self.settings.mode == Mode::DryRun;
        let writes_state = !dry && self.part.is_none();
        let Pass { counts, end, findings, notes } =
            self.pass(dry, self.settings.max_deletes, &state, &state.cursor).await;
        let (outcome, next) = match end {
            WalkEnd::Fault(cursor, cause) => {
                let report = self.report(Outcome::Failed, counts, &state, findings, Some(cursor));
                if writes_state {
                    // The fault is what the caller has to hear of; where it happened is only worth a try.
                    let _ = self.store.write_state(J::NAME, &json!(state.after(&report))).await;
                }
                return Err(RunError::Interrupted { report: Box::new(report), cause });
            }
            WalkEnd::OutOfTime(cursor) if self.clock.is_stopped() => (Outcome::Stopped, Some(cursor)),
            WalkEnd::OutOfTime(cursor) => (Outcome::OutOfTime, Some(cursor)),
            WalkEnd::MaxDeletes(cursor) => (Outcome::MaxDeletes, Some(cursor)),
            WalkEnd::Through if counts.rows_skipped() > 0 => (Outcome::Skipped, None),
            WalkEnd::Through if self.table_is_empty => (Outcome::EmptyTable, None),
            WalkEnd::Through => (Outcome::Complete, None),
        };
        self.notes.extend(notes);
        self.note(outcome, &counts, &state);
        let mut report = self.report(outcome, counts, &state, findings, next);
        if !writes_state {
            return Ok(report);
        }
        if let Err(error) = self.store.write_state(J::NAME, &json!(state.after(&report))).await {
            // What was deleted is deleted: the report is worth more than the error.
            report
                .notes
                .push(format!("the state row could not be written ({error}): the next run repeats some reading"));
            if report.outcome.is_complete() {
                report.outcome = Outcome::Unrecorded;
            }
        }
        Ok(report)
    }

    async fn pass(&self, dry: bool, max_deletes: Option<u64>, state: &JobState, from: &Value) -> Pass {
        let context = Context::new(self.store, self.clock.now(), self.policy, dry, max_deletes);
        let silent = dry || self.part.is_some();
        let checkpoint = Checkpoint { store: self.store, name: J::NAME, state, now: self.clock.now().get(), silent };
        self.job.walk(&context, self.part.map(|(_, segment)| segment), from, &checkpoint).await
    }

    fn note(&mut self, outcome: Outcome, counts: &Tally, state: &JobState) {
        if state.is_resumed() {
            self.notes.push("went on where the last run had stopped".to_owned());
        }
        let note = match outcome {
            Outcome::Complete | Outcome::LeaseHeld | Outcome::Unrecorded | Outcome::Failed => None,
            Outcome::EmptyTable => Some("the table is empty: nothing to do".to_owned()),
            Outcome::OutOfTime => Some("stopped before the deadline: the next run goes on from here".to_owned()),
            Outcome::Stopped => Some("stopped as asked: the next run goes on from here".to_owned()),
            Outcome::MaxDeletes => Some("stopped at MAX_DELETES: the next run goes on from here".to_owned()),
            Outcome::Skipped => {
                Some(format!("{} rows could not be read or deleted: the next run tries again", counts.rows_skipped()))
            }
        };
        self.notes.extend(note);
        if counts.uncertain() > 0 {
            self.notes.push(format!(
                "{} deletes were sent and not answered: counted as skipped, though the rows may be gone",
                counts.uncertain()
            ));
        }
    }

    fn report(
        &self,
        outcome: Outcome,
        counts: Tally,
        state: &JobState,
        findings: Value,
        next: Option<Value>,
    ) -> RunReport {
        let cut_offs = state.cut_offs_after(outcome);
        let too_many = self.settings.backlog_after_incomplete_runs.is_some_and(|limit| cut_offs >= limit);
        RunReport {
            outcome,
            mode: self.settings.mode,
            table: self.settings.table.clone(),
            now: self.clock.now().get(),
            resumed: state.is_resumed(),
            counts,
            usage: self.store.usage(),
            elapsed_ms: u64::try_from(self.clock.elapsed().as_millis()).unwrap_or(u64::MAX),
            findings,
            notes: self.notes.clone(),
            next,
            of_segment: self.part.is_some(),
            consecutive_incomplete_runs: cut_offs,
            // Not around an operator's ceiling, whichever ended this run: an execution has none.
            start_backlog: too_many
                && outcome == Outcome::OutOfTime
                && self.settings.mode == Mode::Delete
                && self.settings.max_deletes.is_none(),
        }
    }
}

/// Above the share the run refuses; without a whole reading pass the share is not known, and it refuses too.
fn check_share(counts: &Tally, limit: f64) -> Result<(), RunError> {
    if counts.rows_skipped() > 0 {
        return Err(RunError::ShareUnknown { problem: format!("{} rows could not be read", counts.rows_skipped()) });
    }
    let (dead, read) = (counts.rows_deleted(), counts.rows_read());
    #[expect(clippy::cast_precision_loss, reason = "a share of row counts below 2^52")]
    let share = if read == 0 { 0.0 } else { dead as f64 / read as f64 };
    if share > limit { Err(RunError::AboveShare { dead, read, share, limit }) } else { Ok(()) }
}
