//! The daily cleanup as one run: what it refuses, its lease, its walk, its state, its report.

use serde_json::{Value, json};

use crate::bucket::{self, JANITOR_OWNER};
use crate::clock::RunClock;
use crate::config::{ConfigError, ExpiredRows, Mode, Settings};
use crate::expiry::Policy;
use crate::lease::{Asked, Lease};
use crate::report::{Outcome, RunReport, Tally};
use crate::store::{Budget, DeleteRows, InspectTable, OwnState, ReadRows, StoreError, TtlSetting};
use crate::sweep::{self, Cursor, End, Sweep, Swept};

/// The run's name: of its state row, its lease and its logs.
pub const NAME: &str = "daily-cleanup";

const TTL_ATTRIBUTE: &str = "ttl_timestamp";

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
    #[error(
        "refused: MAX_DELETE_SHARE needs a reading pass, which was not done in time: give the run more time; nothing was deleted"
    )]
    ShareUnknown,
    #[error("the lease was lost to another run, and this one stopped")]
    LeaseLost,
    #[error("stopped by a fault after {deleted} deleted rows: {cause}")]
    Interrupted { deleted: u64, cause: StoreError },
}

impl RunError {
    /// A stable word for alarms and dashboards.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            RunError::Config(_) => "Configuration",
            RunError::Store(_) | RunError::Interrupted { .. } => "Store",
            RunError::WrongTable { .. } | RunError::AboveShare { .. } | RunError::ShareUnknown => "Refused",
            RunError::LeaseLost => "LeaseLost",
        }
    }
}

/// Runs the daily cleanup on an open table.
///
/// # Errors
/// When the run refused, or could not go on. A run that ended early by itself is a report with `complete: false`.
pub async fn run<S>(store: &S, settings: &Settings, clock: &RunClock) -> Result<RunReport, RunError>
where
    S: ReadRows + DeleteRows + OwnState + InspectTable + Budget,
{
    let mut run = Run { store, settings, clock, policy: Policy::default(), notes: Vec::new() };
    run.set_policy().await?;
    let table_is_empty = run.refuse_wrong_table().await?;
    if settings.mode == Mode::DryRun {
        return run.walk(table_is_empty).await;
    }
    let lease = match Lease::ask(store, clock, NAME).await? {
        Asked::Got(lease) => lease,
        Asked::Held { by, seconds } => {
            run.notes.push(format!("another run ({by}) holds the lease for {seconds} s more: nothing was done"));
            return Ok(run.report(Outcome::LeaseHeld, Tally::default(), false));
        }
    };
    let done = lease.hold(Box::pin(run.walk(table_is_empty))).await;
    lease.release().await;
    done.unwrap_or(Err(RunError::LeaseLost))
}

struct Run<'a, S> {
    store: &'a S,
    settings: &'a Settings,
    clock: &'a RunClock,
    policy: Policy,
    notes: Vec<String>,
}

impl<S> Run<'_, S>
where
    S: ReadRows + DeleteRows + OwnState + InspectTable + Budget,
{
    /// Rows are left to TTL only if TTL will really take them; otherwise they are deleted, and the report says so.
    async fn set_policy(&mut self) -> Result<(), RunError> {
        self.policy.reuse_window = self.settings.reuse_window_seconds;
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
            TtlSetting::Changing => "is being switched".to_owned(),
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
        let others = self.store.sample().await?;
        let mut others = others.iter().filter(|row| row.key.owner != JANITOR_OWNER).peekable();
        if others.peek().is_none() {
            return Ok(true);
        }
        let known =
            others.any(|row| row.bucket.text().is_some_and(|name| bucket::find(&row.key.owner, name).is_some()));
        // A table that an earlier run has swept clean of all it knew is still the right one.
        if known || self.store.read_state(NAME).await?.is_some() {
            return Ok(false);
        }
        Err(RunError::WrongTable { table: self.settings.table.clone() })
    }

    async fn walk(&mut self, table_is_empty: bool) -> Result<RunReport, RunError> {
        let state = State::read(self.store).await?;
        if let Some(limit) = self.settings.max_delete_share {
            check_share(&self.sweep(true, None, &state).await, limit)?;
        }
        let dry = self.settings.mode == Mode::DryRun;
        let Swept { counts, end } = self.sweep(dry, self.settings.max_deletes, &state).await;
        let (outcome, cursor) = match end {
            End::Fault(cause) => return Err(RunError::Interrupted { deleted: counts.rows_deleted(), cause }),
            End::OutOfTime(cursor) => (Outcome::OutOfTime, Some(cursor)),
            End::MaxDeletes(cursor) => (Outcome::MaxDeletes, Some(cursor)),
            End::Through if counts.rows_skipped() > 0 => (Outcome::Skipped, None),
            End::Through if table_is_empty => (Outcome::EmptyTable, None),
            End::Through => (Outcome::Complete, None),
        };
        self.note(outcome, &counts, &state);
        let report = self.report(outcome, counts, state.cursor.is_some());
        if !dry {
            State::write(self.store, &report, cursor.as_ref(), &state).await?;
        }
        Ok(report)
    }

    async fn sweep(&self, dry: bool, max_deletes: Option<u64>, state: &State) -> Swept {
        let (now, from) = (self.clock.now(), state.cursor.clone());
        Sweep { store: self.store, now, policy: self.policy, dry, max_deletes, from }.run().await
    }

    fn note(&mut self, outcome: Outcome, counts: &Tally, state: &State) {
        if state.cursor.is_some() {
            self.notes.push("went on where the last run had stopped".to_owned());
        }
        let note = match outcome {
            Outcome::Complete | Outcome::LeaseHeld => None,
            Outcome::EmptyTable => Some("the table is empty: nothing to do".to_owned()),
            Outcome::OutOfTime => Some("stopped before the deadline: the next run goes on from here".to_owned()),
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

    fn report(&self, outcome: Outcome, counts: Tally, resumed: bool) -> RunReport {
        RunReport {
            outcome,
            mode: self.settings.mode,
            table: self.settings.table.clone(),
            now: self.clock.now().get(),
            resumed,
            counts,
            usage: self.store.usage(),
            elapsed_ms: u64::try_from(self.clock.elapsed().as_millis()).unwrap_or(u64::MAX),
            notes: self.notes.clone(),
        }
    }
}

/// Above the share the run refuses; without a whole reading pass the share is not known, and it refuses too.
fn check_share(pass: &Swept, limit: f64) -> Result<(), RunError> {
    match &pass.end {
        End::Through => {}
        End::Fault(cause) => return Err(RunError::Interrupted { deleted: 0, cause: cause.clone() }),
        End::OutOfTime(_) | End::MaxDeletes(_) => return Err(RunError::ShareUnknown),
    }
    let (dead, read) = (pass.counts.rows_deleted(), pass.counts.rows_read());
    #[expect(clippy::cast_precision_loss, reason = "a share of row counts below 2^52")]
    let share = if read == 0 { 0.0 } else { dead as f64 / read as f64 };
    if share > limit { Err(RunError::AboveShare { dead, read, share, limit }) } else { Ok(()) }
}

/// What a run leaves for the next one, and for the metrics.
struct State {
    cursor: Option<Cursor>,
    last_complete_at: Value,
    cut_off_in_a_row: u64,
}

impl State {
    async fn read<S: OwnState>(store: &S) -> Result<Self, RunError> {
        let stored = store.read_state(NAME).await?.map_or(Value::Null, |stored| stored.value);
        Ok(Self {
            cursor: Cursor::from_json(&stored["cursor"]),
            last_complete_at: stored["last_complete_at"].clone(),
            cut_off_in_a_row: stored["cut_off_in_a_row"].as_u64().unwrap_or(0),
        })
    }

    async fn write<S: OwnState>(
        store: &S,
        report: &RunReport,
        cursor: Option<&Cursor>,
        before: &State,
    ) -> Result<(), RunError> {
        let complete = report.outcome.is_complete();
        let buckets: serde_json::Map<String, Value> = report
            .counts
            .buckets()
            .iter()
            .map(|(name, counts)| ((*name).to_owned(), json!({"read": counts.read, "deleted": counts.deleted_total()})))
            .collect();
        let value = json!({
            "cursor": cursor.map(Cursor::to_json),
            "last_complete_at": if complete { json!(report.now) } else { before.last_complete_at.clone() },
            "cut_off_in_a_row": if cursor.is_some() { before.cut_off_in_a_row + 1 } else { 0 },
            "last_run": {
                "at": report.now,
                "outcome": report.outcome,
                "read": report.counts.rows_read(),
                "deleted": report.counts.rows_deleted(),
                "lost_race": report.counts.lost_races(),
                "skipped": report.counts.rows_skipped(),
                "buckets": buckets,
            },
        });
        Ok(store.write_state(NAME, &value).await?)
    }
}
