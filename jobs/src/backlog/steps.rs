//! The steps of a backlog execution, each on an open table.

use serde_json::json;

use super::{Finish, SegmentRun, Started, wrong};
use crate::run::clock::RunClock;
use crate::run::lease::Lease;
use crate::run::report::{Outcome, RunReport};
use crate::run::state::{JobState, LastRun};
use crate::run::{Job, Run, RunError, Store, WalkRows, acquire};
use crate::store::{OwnState, Result as StoreResult};
use shared::settings::{Mode, Settings};

/// The first step: checks the settings, the table, the lease and the share of dead rows.
pub async fn start<S: Store, J: WalkRows<S>>(
    store: &S,
    job: &J,
    execution: &str,
    settings: &Settings,
    clock: &RunClock,
) -> Result<(), RunError> {
    refuse_max_deletes(settings)?;
    let run = Run::open(store, job, settings, clock, None).await?;
    if settings.mode == Mode::DryRun {
        return run.refuse_above_share(&JobState::default()).await;
    }
    let lease = acquire(store, clock, Lease::shared(store, clock, execution)).await?;
    check_share(&run, lease).await.map(drop)
}

/// One run of a segment, from where its last run stopped. A held lease is an error here: the segment is not done. A pause is
/// a report, and ends the segment.
pub async fn run_segment<S: Store, J: WalkRows<S>>(
    store: &S,
    job: &J,
    segment_run: &SegmentRun,
    settings: &Settings,
    clock: &RunClock,
) -> Result<RunReport, RunError> {
    let segment = segment_run.segment().map_err(|problem| wrong("segment", &problem))?;
    let segment = Some((segment, segment_run.cursor.clone()));
    let Some(execution) = &segment_run.lease else {
        return Run::open(store, job, settings, clock, segment).await?.walk_alone().await;
    };
    refuse_max_deletes(settings)?;
    let mut run = Run::open(store, job, settings, clock, segment).await?;
    // The first step has checked the share. A dry execution has no lease that records this, but deletes nothing.
    run.share_is_checked = true;
    if settings.mode == Mode::DryRun {
        return run.walk().await;
    }
    let mut lease = match acquire(store, clock, Lease::shared(store, clock, execution)).await {
        Err(paused @ RunError::Paused(_)) => return Ok(run.idle(Outcome::Paused, &paused)),
        lease => lease?,
    };
    if !lease.may_start() {
        lease = check_share(&run, lease).await?;
    }
    // The last step releases the lease.
    let done = lease.hold(Box::pin(run.walk())).await;
    run.with_usage(done.unwrap_or(Err(RunError::LeaseLost)))
}

/// The last step: records a complete execution and releases the lease, or takes the lease from segments that may still run
/// after another one failed.
pub async fn finish<S: OwnState, J: Job>(
    store: &S,
    finish: &Finish,
    settings: &Settings,
    clock: &RunClock,
) -> StoreResult<()> {
    if settings.mode == Mode::DryRun {
        return Ok(());
    }
    let lease = Lease::shared(store, clock, &finish.started.lease);
    if !finish.all_done() {
        return lease.recall().await;
    }
    if finish.is_complete()
        && let Some(state) = state_after(&JobState::read(store, J::NAME).await?, finish)
    {
        store.write_state(J::NAME, &json!(state)).await?;
    }
    lease.release().await;
    Ok(())
}

/// `None` if the execution is recorded already.
pub(super) fn state_after(state: &JobState, finish: &Finish) -> Option<JobState> {
    let Started { lease, started_at, .. } = &finish.started;
    let execution = (lease.clone(), *started_at);
    if state.last_execution.as_ref() == Some(&execution) {
        return None;
    }
    let run = LastRun::new(*started_at, finish.totals());
    Some(JobState { last_execution: Some(execution), ..state.after_run(run, Outcome::Complete) })
}

/// Concurrent runs cannot keep a common limit: no run knows the deletes of the others.
fn refuse_max_deletes(settings: &Settings) -> Result<(), RunError> {
    if settings.max_deletes.is_some() { Err(RunError::MaxDeletesInBacklog) } else { Ok(()) }
}

/// Checks the share of dead rows under the execution's lease, and records in the lease that the execution may start. A
/// refused execution holds no lease.
async fn check_share<'a, S: Store, J: WalkRows<S>>(
    run: &Run<'a, S, J>,
    mut lease: Lease<'a, S>,
) -> Result<Lease<'a, S>, RunError> {
    let checked = lease.hold(Box::pin(run.refuse_above_share(&JobState::default()))).await;
    let error = match checked.unwrap_or(Err(RunError::LeaseLost)) {
        Err(refusal) => refusal,
        Ok(()) => match lease.allow().await {
            Ok(true) => return Ok(lease),
            Ok(false) => RunError::LeaseLost,
            Err(fault) => fault.into(),
        },
    };
    lease.release().await;
    Err(error)
}
