//! One run of a job, whichever: what it refuses, its lease, its walk, its state, its report.

use serde_json::{Value, json};

use crate::bucket::{JANITOR_OWNER, TTL_ATTRIBUTE};
use crate::clock::RunClock;
use crate::config::{ConfigError, ExpiredRows, Mode, Settings};
use crate::expiry::Policy;
use crate::lease::{Asked, Lease};
use crate::report::{Outcome, RunReport, Tally};
use crate::state::JobState;
use crate::store::{Budget, DeleteRows, InspectTable, OwnState, ReadRows, ScanTable, StoreError, TtlSetting};
use crate::sweep;
use crate::walk::{End, Hands};

/// What a run does between taking its lease and writing its report.
#[expect(async_fn_in_trait, reason = "used with static dispatch only")]
pub trait Job<S> {
    /// Of its state row, its lease and its logs.
    const NAME: &'static str;

    /// Walks over its rows, from where an earlier run stopped.
    async fn walk(&self, hands: &Hands<'_, S>, from: &Value, checkpoint: &Checkpoint<'_, S>) -> Pass;
}

/// What a job's walk came to.
#[derive(Debug)]
pub struct Pass {
    pub counts: Tally,
    /// Where the next run goes on is the job's own business.
    pub end: End<Value>,
    /// What the job found beside the counts.
    pub findings: Value,
    pub notes: Vec<String>,
}

/// Writes down how far a walk has come, so that a run which is killed is resumed there.
pub struct Checkpoint<'a, S> {
    store: &'a S,
    name: &'static str,
    state: &'a JobState,
    dry: bool,
}

impl<S: OwnState> Checkpoint<'_, S> {
    /// # Errors
    /// When the state row could not be written.
    pub async fn save(&self, cursor: Value) -> Result<(), StoreError> {
        if self.dry {
            return Ok(());
        }
        self.store.write_state(self.name, &json!(self.state.at(cursor))).await
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
    #[error("stopped by a fault after {} deleted rows: {cause}", .report.counts.rows_deleted())]
    Interrupted { report: Box<RunReport>, cause: StoreError },
}

impl RunError {
    /// A stable word for alarms and dashboards.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            RunError::Config(_) => "Configuration",
            RunError::Store(_) | RunError::Interrupted { .. } => "Store",
            RunError::WrongTable { .. } | RunError::AboveShare { .. } | RunError::ShareUnknown { .. } => "Refused",
            RunError::LeaseLost => "LeaseLost",
        }
    }
}

/// Runs a job on an open table.
///
/// # Errors
/// When the run refused, or could not go on. A run that ended early by itself is a report with `complete: false`.
pub async fn run<S, J>(store: &S, job: &J, settings: &Settings, clock: &RunClock) -> Result<RunReport, RunError>
where
    S: ReadRows + ScanTable + DeleteRows + OwnState + InspectTable + Budget,
    J: Job<S>,
{
    let mut run = Run { store, job, settings, clock, policy: Policy::default(), notes: Vec::new() };
    if clock.ahead() > 0 {
        let ahead = clock.ahead();
        run.notes
            .push(format!("this machine's clock is {ahead} s ahead of the table's: rows are judged by the table's"));
    }
    run.set_policy().await?;
    let table_is_empty = run.refuse_wrong_table().await?;
    if settings.mode == Mode::DryRun {
        return run.walk(table_is_empty).await;
    }
    let lease = match Lease::ask(store, clock, J::NAME).await? {
        Asked::Got(lease) => lease,
        Asked::Held { by, seconds } => {
            run.notes.push(format!("another run ({by}) holds the lease for {seconds} s more: nothing was done"));
            return Ok(run.report(Outcome::LeaseHeld, Tally::default(), false, Value::Null));
        }
    };
    let done = lease.hold(Box::pin(run.walk(table_is_empty))).await;
    lease.release().await;
    let mut done = done.unwrap_or(Err(RunError::LeaseLost));
    let report = match &mut done {
        Ok(report) => Some(report),
        Err(RunError::Interrupted { report, .. }) => Some(&mut **report),
        Err(_) => None,
    };
    if let Some(report) = report {
        // The last words, the state row and the lease, have cost something as well, and may have needed a second try.
        report.usage = store.usage();
    }
    done
}

struct Run<'a, S, J> {
    store: &'a S,
    job: &'a J,
    settings: &'a Settings,
    clock: &'a RunClock,
    policy: Policy,
    notes: Vec<String>,
}

impl<S, J> Run<'_, S, J>
where
    S: ReadRows + ScanTable + DeleteRows + OwnState + InspectTable + Budget,
    J: Job<S>,
{
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
        if sweep::holds_known_rows(self.store).await? {
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

    async fn walk(&mut self, table_is_empty: bool) -> Result<RunReport, RunError> {
        let stored = self.store.read_state(J::NAME).await?;
        let state = JobState::from_json(&stored.map_or(Value::Null, |stored| stored.value));
        if let Some(limit) = self.settings.max_delete_share {
            // Of the whole table, not of what an earlier run has left of it.
            let Pass { counts, end, .. } = self.pass(true, None, &state, &Value::Null).await;
            match end {
                End::Through => check_share(&counts, limit)?,
                End::Fault(_, cause) => {
                    let report = self.report(Outcome::Failed, Tally::default(), state.is_resumed(), Value::Null);
                    return Err(RunError::Interrupted { report: Box::new(report), cause });
                }
                End::OutOfTime(_) | End::MaxDeletes(_) => {
                    return Err(RunError::ShareUnknown { problem: "there was not enough time for one".to_owned() });
                }
            }
        }
        let dry = self.settings.mode == Mode::DryRun;
        let Pass { counts, end, findings, notes } =
            self.pass(dry, self.settings.max_deletes, &state, &state.cursor).await;
        let (outcome, cursor) = match end {
            End::Fault(cursor, cause) => {
                let report = self.report(Outcome::Failed, counts, state.is_resumed(), findings);
                if !dry {
                    // The fault is what the caller has to hear of; where it happened is only worth a try.
                    let _ = self.store.write_state(J::NAME, &json!(state.after(&report, Some(cursor)))).await;
                }
                return Err(RunError::Interrupted { report: Box::new(report), cause });
            }
            End::OutOfTime(cursor) if self.clock.is_stopped() => (Outcome::Stopped, Some(cursor)),
            End::OutOfTime(cursor) => (Outcome::OutOfTime, Some(cursor)),
            End::MaxDeletes(cursor) => (Outcome::MaxDeletes, Some(cursor)),
            End::Through if counts.rows_skipped() > 0 => (Outcome::Skipped, None),
            End::Through if table_is_empty => (Outcome::EmptyTable, None),
            End::Through => (Outcome::Complete, None),
        };
        self.notes.extend(notes);
        self.note(outcome, &counts, &state);
        let mut report = self.report(outcome, counts, state.is_resumed(), findings);
        if !dry && let Err(error) = self.store.write_state(J::NAME, &json!(state.after(&report, cursor))).await {
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
        let hands = Hands::new(self.store, self.clock.now(), self.policy, dry, max_deletes);
        let checkpoint = Checkpoint { store: self.store, name: J::NAME, state, dry };
        self.job.walk(&hands, from, &checkpoint).await
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

    fn report(&self, outcome: Outcome, counts: Tally, resumed: bool, findings: Value) -> RunReport {
        RunReport {
            outcome,
            mode: self.settings.mode,
            table: self.settings.table.clone(),
            now: self.clock.now().get(),
            resumed,
            counts,
            usage: self.store.usage(),
            elapsed_ms: u64::try_from(self.clock.elapsed().as_millis()).unwrap_or(u64::MAX),
            findings,
            notes: self.notes.clone(),
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
