//! A run as a step of an execution: one segment's, or the look before the first of them.

use super::{Job, Run, RunError, Store, acquire};
use crate::backlog::segment_run::SegmentRun;
use crate::run::clock::RunClock;
use crate::run::lease::Lease;
use crate::run::report::RunReport;
use crate::run::state::JobState;
use shared::segment::Segment;
use shared::settings::{Mode, Settings};

/// Runs a job on one segment of an open table, from where its last run stopped; the report says where the next one goes on.
///
/// # Errors
/// As [`run`](super::run); and when another run holds the lease, because a part that did nothing is not done.
pub async fn run_segment<S, J>(
    store: &S,
    job: &J,
    (part, segment): (&SegmentRun, Segment),
    settings: &Settings,
    clock: &RunClock,
) -> Result<RunReport, RunError>
where
    S: Store,
    J: Job<S>,
{
    let Some(execution) = &part.lease else {
        let mut run = Run::open(store, job, settings, clock, Some((part, segment))).await?;
        return match settings.mode {
            Mode::DryRun => run.walk().await,
            Mode::Delete => run.under(Lease::own(store, clock, J::NAME)).await,
        };
    };
    refuse_ceiling(settings)?;
    let mut run = Run::open(store, job, settings, clock, Some((part, segment))).await?;
    // The first step has looked at the share; of a dry one, which takes no lease, nothing is at stake.
    run.share_is_known = true;
    if settings.mode == Mode::DryRun {
        return run.walk().await;
    }
    let mut lease = acquire(Lease::shared(store, clock, execution)).await?;
    if !lease.may_start() {
        lease = run.allowed(lease).await?;
    }
    // It is the last step's to give back.
    let done = lease.hold(Box::pin(run.walk())).await;
    run.with_usage(done.unwrap_or(Err(RunError::LeaseLost)))
}

/// What an execution of many parts checks before the first of them: the settings, the table, the lease, the share.
///
/// # Errors
/// When it must not begin.
pub async fn start<S, J>(
    store: &S,
    job: &J,
    execution: &str,
    settings: &Settings,
    clock: &RunClock,
) -> Result<(), RunError>
where
    S: Store,
    J: Job<S>,
{
    refuse_ceiling(settings)?;
    let mut run = Run::open(store, job, settings, clock, None).await?;
    if settings.mode == Mode::DryRun {
        return run.refuse_above_share(&JobState::default()).await;
    }
    let lease = acquire(Lease::shared(store, clock, execution)).await?;
    run.allowed(lease).await.map(drop)
}

/// Runs one after another and side by side have no ceiling together: nobody counts for all of them.
fn refuse_ceiling(settings: &Settings) -> Result<(), RunError> {
    if settings.max_deletes.is_some() { Err(RunError::CeilingOnParts) } else { Ok(()) }
}

impl<'a, S: Store, J: Job<S>> Run<'a, S, J> {
    /// Looks at the share of dead rows under an execution's lease, and writes into it that the execution may begin. One that
    /// must not holds no lease.
    async fn allowed(&mut self, mut lease: Lease<'a, S>) -> Result<Lease<'a, S>, RunError> {
        let looked = lease.hold(Box::pin(self.refuse_above_share(&JobState::default()))).await;
        let why_not = match looked.unwrap_or(Err(RunError::LeaseLost)) {
            Err(refusal) => refusal,
            Ok(()) => match lease.allow().await {
                Ok(true) => return Ok(lease),
                Ok(false) => RunError::LeaseLost,
                Err(fault) => fault.into(),
            },
        };
        lease.release().await;
        Err(why_not)
    }
}
