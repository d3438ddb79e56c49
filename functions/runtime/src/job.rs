//! One invocation of the cleanup or the repair: a whole run, or a step of a backlog execution.

use serde_json::{Value, json};

use crate::event::{self, Overrides};
use crate::lambda::{Function, log_finished, parsed};
use dynamo::Dynamo;
use jobs::backlog::{self, Finish, Request, SegmentAnswer, SegmentRun, Start};
use jobs::run::clock::RunClock;
use jobs::run::report::RunReport;
use jobs::run::{self, RunError, WalkRows};

/// A failed run fails the invocation, so that Lambda counts the error and retries.
pub async fn answer<J: WalkRows<Dynamo>>(
    function: &Function,
    event: Value,
    clock: RunClock,
) -> Result<Value, RunError> {
    match parsed(J::PURPOSE, event::overrides(event).and_then(backlog::parse::<J>))? {
        Request::Run(overrides) => {
            let mut report = run::<J>(function, &overrides, clock, None).await?;
            // A backlog execution would ignore the settings of this event, such as a lower pace or a longer reuse window.
            report.start_backlog &= overrides.is_empty();
            Ok(json!(J::answer(&report)))
        }
        Request::Segment(segment_run, overrides) => {
            let report = run::<J>(function, &overrides, clock, Some(&segment_run)).await?;
            Ok(json!(SegmentAnswer::new(J::answer(&report), segment_run.after(&report), &overrides)))
        }
        Request::Start(request) => Box::pin(start::<J>(function, &request, clock)).await,
        Request::Finish(request) => Box::pin(finish::<J>(function, &request, clock)).await,
    }
}

pub async fn run<J: WalkRows<Dynamo>>(
    function: &Function,
    overrides: &Overrides,
    clock: RunClock,
    segment_run: Option<&SegmentRun>,
) -> Result<RunReport, RunError> {
    let mut settings = function.settings(overrides, J::PURPOSE)?;
    settings.pace_shared_by = segment_run.and_then(|segment| segment.concurrency).unwrap_or(1);
    let job = J::PURPOSE.name();
    tracing::info!(
        table = settings.table,
        mode = settings.mode.name(),
        now = clock.now().get(),
        segment = segment_run.map(|segment| segment.index),
        "{job} started"
    );
    let work = async {
        let table = function.open(&settings, clock).await?;
        let job = J::new(&settings);
        match segment_run {
            None => run::run(&table, &job, &settings, table.clock()).await,
            Some(segment_run) => backlog::run_segment(&table, &job, segment_run, &settings, table.clock()).await,
        }
    };
    let result = Box::pin(work).await;
    match &result {
        Ok(report) => {
            log_finished(J::PURPOSE, report, None);
            function.emit(report.document(J::NAME).as_ref(), clock.now());
        }
        Err(error) => function.failed::<J>(error, clock.now()),
    }
    result
}

async fn start<J: WalkRows<Dynamo>>(function: &Function, start: &Start, clock: RunClock) -> Result<Value, RunError> {
    let settings = function.settings(&start.input.settings, J::PURPOSE)?;
    let checked = async {
        let table = function.open(&settings, clock).await?;
        backlog::start(&table, &J::new(&settings), &start.lease, &settings, table.clock()).await
    };
    let pause = match checked.await {
        Ok(()) => None,
        Err(RunError::Paused(pause)) => Some(pause),
        Err(error) => {
            function.failed::<J>(&error, clock.now());
            return Err(error);
        }
    };
    tracing::info!(
        job = J::PURPOSE.name(),
        table = settings.table,
        mode = settings.mode.name(),
        execution = start.lease,
        segments = start.input.segments,
        concurrency = start.input.concurrency,
        notes = pause.as_ref().map(ToString::to_string),
        "backlog {}",
        if pause.is_some() { "paused" } else { "started" }
    );
    Ok(json!(start.answer(clock.now().get(), pause.is_some())))
}

async fn finish<J: WalkRows<Dynamo>>(function: &Function, finish: &Finish, clock: RunClock) -> Result<Value, RunError> {
    let settings = function.settings(&finish.started.settings, J::PURPOSE)?;
    let finished = async {
        let table = function.open(&settings, clock).await?;
        Ok(backlog::finish::<_, J>(&table, finish, &settings, table.clock()).await?)
    };
    finished.await.inspect_err(|error| function.failed::<J>(error, clock.now()))?;
    let answer = finish.answer::<J>(settings.mode);
    tracing::info!(
        job = J::PURPOSE.name(),
        table = settings.table,
        mode = settings.mode.name(),
        execution = finish.started.lease,
        complete = answer.complete,
        json.totals = json!(answer.totals).to_string(),
        "backlog finished"
    );
    Ok(json!(answer))
}
