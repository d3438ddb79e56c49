//! One invocation of a function that works in parts as well: a whole run, or a step of an execution.

use std::time::Duration;

use serde_json::{Value, json};

use crate::event;
use crate::lambda::{DAILY, Function, Kind, REPAIR, understood, word};
use dynamo::Dynamo;
use jobs::backlog::{self, Finish, Request, Start};
use jobs::run::clock::RunClock;
use jobs::run::{self, Job, RunError};
use shared::time::EpochSeconds;

impl Function {
    /// # Errors
    /// When the run failed; then so must the invocation.
    pub async fn answer_daily_cleanup(
        &self,
        event: Value,
        now: EpochSeconds,
        budget: Option<Duration>,
    ) -> Result<Value, RunError> {
        self.answer(event, &DAILY, RunClock::start(now, budget)).await
    }

    /// # Errors
    /// When the run failed; then so must the invocation.
    pub async fn answer_index_repair(
        &self,
        event: Value,
        now: EpochSeconds,
        budget: Option<Duration>,
    ) -> Result<Value, RunError> {
        self.answer(event, &REPAIR, RunClock::start(now, budget)).await
    }

    async fn answer<J: Job<Dynamo>>(&self, event: Value, kind: &Kind<J>, clock: RunClock) -> Result<Value, RunError> {
        let fields = understood(J::NAME, event::overrides(event))?;
        match understood(J::NAME, backlog::parse(fields))? {
            Request::Run(overrides) => {
                let mut report = self.invoke(&overrides, kind, clock, None).await?;
                report.start_backlog &= backlog::may_start_backlog(&overrides);
                Ok((kind.answer)(&report))
            }
            Request::Segment(part, segment, overrides) => {
                let report = self.invoke(&overrides, kind, clock, Some((&part, segment))).await?;
                let part = part.after(&report);
                let mut answer = (kind.answer)(&report);
                answer["next"] = backlog::next_event(&part, &overrides);
                answer["segment"] = json!(part);
                Ok(answer)
            }
            Request::Start(start) => Box::pin(self.start(&start, kind, clock)).await,
            Request::Finish(finish) => Box::pin(self.finish(&finish, kind, clock)).await,
        }
    }

    async fn start<J: Job<Dynamo>>(&self, start: &Start, kind: &Kind<J>, clock: RunClock) -> Result<Value, RunError> {
        understood(J::NAME, start.check_job(J::NAME))?;
        let settings = self.settings(J::NAME, &start.input.settings, kind.purpose)?;
        let job = (kind.job)(&settings);
        let may_begin = async {
            let table = self.open(&settings, clock).await?;
            run::start(&table, &job, &start.lease, &settings, table.clock()).await
        };
        may_begin.await.inspect_err(|error| self.failed(J::NAME, error, clock.now()))?;
        tracing::info!(
            job = word(J::NAME),
            table = settings.table,
            mode = settings.mode.name(),
            execution = start.lease,
            segments = start.input.segments,
            concurrency = start.input.concurrency,
            "backlog started"
        );
        Ok(start.answer(clock.now().get()))
    }

    async fn finish<J: Job<Dynamo>>(
        &self,
        finish: &Finish,
        kind: &Kind<J>,
        clock: RunClock,
    ) -> Result<Value, RunError> {
        let settings = self.settings(J::NAME, &finish.started.settings, kind.purpose)?;
        let closed = async {
            let table = self.open(&settings, clock).await?;
            Ok(finish.close(&table, J::NAME, &settings, table.clock()).await?)
        };
        closed.await.inspect_err(|error| self.failed(J::NAME, error, clock.now()))?;
        let answer = finish.answer(J::NAME, settings.mode);
        tracing::info!(
            job = word(J::NAME),
            table = settings.table,
            mode = settings.mode.name(),
            execution = finish.started.lease,
            complete = finish.is_complete(),
            json.totals = answer["totals"].to_string(),
            "backlog finished"
        );
        Ok(answer)
    }
}
