//! Conditional deletes and retirements, in batches of PartiQL statements: outside transactions, only `BatchExecuteStatement`
//! allows a condition per write. HTTP 200 is not success: each statement has its own answer.

use aws_sdk_dynamodb::types::{
    BatchStatementError, BatchStatementErrorCodeEnum, BatchStatementRequest, BatchStatementResponse,
    ReturnConsumedCapacity, ReturnValuesOnConditionCheckFailure,
};

use super::Dynamo;
use super::call::{Attempts, MAX_ATTEMPTS, Phase};
use super::convert::{ID, RETIRED, SORT, TTL, guards, text, to_row, to_value};
use super::error::{Fault, by_code, refuses_content};
use super::pace::Direction;
use super::read::sum;
use jobs::store::{Budget, DeleteOutcome, DeleteRows, Deletes, Result, RetireRows, StoreError};
use shared::disposal::{Condemned, Retirement};
use shared::row::{Raw, Row};

const OPERATION: &str = "BatchExecuteStatement";

impl DeleteRows for Dynamo {
    async fn delete(&self, rows: &[Condemned]) -> Deletes {
        self.write_if_unchanged(rows.iter().map(|row| End::Delete(row.row())), Interruption::Allowed).await
    }
}

impl RetireRows for Dynamo {
    async fn retire(&self, rows: &[Retirement]) -> Deletes {
        self.write_if_unchanged(rows.iter().map(End::Retire), Interruption::Allowed).await
    }
}

/// What to do with a row.
#[derive(Clone, Copy)]
pub(super) enum End<'a> {
    Delete(&'a Row),
    Retire(&'a Retirement),
}

impl End<'_> {
    fn row(&self) -> &Row {
        match self {
            End::Delete(row) => row,
            End::Retire(retirement) => retirement.row(),
        }
    }
}

/// Whether a series of deletes can be interrupted when the run has to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interruption {
    /// No further batch is sent.
    Allowed,
    /// All of them are sent: half of them would be worse than none.
    #[cfg(feature = "revoke")]
    Forbidden,
}

impl Dynamo {
    /// Deletes or retires each row on the condition that it has not changed since it was read.
    pub(super) async fn write_if_unchanged<'r>(
        &self,
        rows: impl Iterator<Item = End<'r>>,
        interruption: Interruption,
    ) -> Deletes {
        let rows: Vec<End<'r>> = rows.collect();
        let mut outcomes = vec![DeleteOutcome::NotTried; rows.len()];
        let size = self.pace.delete_batch();
        let all: Vec<usize> = (0..rows.len()).collect();
        let mut batches: Vec<(&[usize], bool)> = all.chunks(size).rev().map(|batch| (batch, false)).collect();
        while let Some((batch, may_have_acted)) = batches.pop() {
            let mut attempts = Attempts { may_have_acted, ..Attempts::default() };
            // Otherwise a batch would be interrupted in flight, with an unknown outcome.
            let done = if interruption == Interruption::Allowed && self.time_is_up() {
                Err(StoreError::OutOfTime)
            } else {
                self.write_batch(&rows, batch, &mut attempts, &mut outcomes).await
            };
            match (done, batch) {
                (Ok(Batch::Answered), batch) => {
                    for i in batch.iter().filter(|i| outcomes[**i].is_done()) {
                        let bucket = rows[*i].row().known_bucket();
                        self.progressed(bucket.map(|bucket| bucket.name), 0, 1);
                    }
                }
                // An earlier attempt at the batch may have acted, whatever its refusal says.
                (Ok(Batch::Refused), [one]) => outcomes[*one] = attempts.outcome(DeleteOutcome::Refused),
                // A single row can cause this: it is found by bisection, and the others are deleted.
                (Ok(Batch::Refused), many) => {
                    many.iter().for_each(|i| outcomes[*i] = attempts.outcome(DeleteOutcome::NotTried));
                    let (first, second) = many.split_at(many.len() / 2);
                    batches.extend([second, first].map(|half| (half, attempts.may_have_acted)));
                }
                (Err(stopped), _) => return Deletes { outcomes, stopped: Some(stopped) },
            }
        }
        Deletes { outcomes, stopped: None }
    }
}

impl Attempts {
    /// The outcome of a row of which no attempt was confirmed: `otherwise` if none may have acted.
    fn outcome(&self, otherwise: DeleteOutcome) -> DeleteOutcome {
        if self.may_have_acted { DeleteOutcome::Unknown } else { otherwise }
    }
}

/// The result of a batch.
enum Batch {
    /// Each row has its outcome.
    Answered,
    /// Rejected as a whole for its content, before anything was done.
    Refused,
}

/// The result of one statement of a batch.
enum Answer {
    Done(DeleteOutcome),
    TryAgain { may_have_acted: bool },
}

impl Dynamo {
    /// One batch. Its throttled statements are retried within the same limit as any request.
    async fn write_batch(
        &self,
        rows: &[End<'_>],
        batch: &[usize],
        attempts: &mut Attempts,
        outcomes: &mut [DeleteOutcome],
    ) -> Result<Batch> {
        let mut open = batch.to_vec();
        loop {
            let units = open.iter().map(|i| f64::from(rows[*i].row().write_units())).sum();
            self.wait_to(Direction::Write, units).await?;
            let unfinished: Vec<End<'_>> = open.iter().map(|i| rows[*i]).collect();
            let answers = match self.send(&unfinished, units, attempts).await {
                Ok(answers) => answers,
                Err(error) if refuses_content(&error) && open.len() == batch.len() => {
                    self.pace.settle(Direction::Write, units, 0.0);
                    return Ok(Batch::Refused);
                }
                Err(error) => {
                    open.iter().for_each(|i| outcomes[*i] = attempts.outcome(DeleteOutcome::Failed));
                    return if error.is_transient() { Ok(Batch::Answered) } else { Err(error) };
                }
            };
            let mut again = Vec::new();
            let mut denied = None;
            for (i, answer) in open.into_iter().zip(answers) {
                match answer {
                    Ok(Answer::Done(outcome)) => outcomes[i] = outcome,
                    Ok(Answer::TryAgain { may_have_acted }) => {
                        attempts.may_have_acted |= may_have_acted;
                        again.push(i);
                    }
                    Err(error) => {
                        outcomes[i] = attempts.outcome(DeleteOutcome::Failed);
                        denied = Some(error);
                    }
                }
            }
            // An earlier attempt may have acted, whatever the last one says.
            again.iter().for_each(|i| outcomes[*i] = attempts.outcome(DeleteOutcome::Failed));
            if let Some(denied) = denied {
                return Err(denied);
            }
            open = again;
            if open.is_empty() || attempts.made >= MAX_ATTEMPTS {
                return Ok(Batch::Answered);
            }
            self.back_off(Phase::Work, attempts.made).await?;
        }
    }

    async fn send(&self, rows: &[End<'_>], units: f64, attempts: &mut Attempts) -> Result<Vec<Result<Answer>>> {
        let statements = rows.iter().map(|end| self.statement(end)).collect::<Result<Vec<_>>>()?;
        let answer = self
            .call_again(OPERATION, Phase::Work, attempts, || {
                self.client
                    .batch_execute_statement()
                    .set_statements(Some(statements.clone()))
                    .return_consumed_capacity(ReturnConsumedCapacity::Total)
                    .send()
            })
            .await?;
        let reported = sum(answer.consumed_capacity());
        let responses = answer.responses.unwrap_or_default();
        if responses.len() != statements.len() {
            attempts.may_have_acted = true;
            return Err(self.rejected(OPERATION, "the response does not match the request"));
        }
        let throttled = responses.iter().filter(|response| is_throttled(response)).count();
        if throttled > 0 {
            self.throttled(Direction::Write);
        }
        // A throttled statement costs nothing; the others about the same each.
        #[expect(clippy::cast_precision_loss, reason = "at most 25 statements")]
        let estimated = units * (1.0 - throttled as f64 / responses.len().max(1) as f64);
        self.pace.settle(Direction::Write, units, reported.unwrap_or(estimated));
        self.used_writing(reported, estimated);
        Ok(rows
            .iter()
            .zip(&responses)
            .map(|(end, response)| self.read_answer(end, response, attempts.may_have_acted))
            .collect())
    }

    /// The condition repeats everything that was judged: the bucket, the raw data, the raw TTL, `retired_from`.
    fn statement(&self, end: &End<'_>) -> Result<BatchStatementRequest> {
        let row = end.row();
        debug_assert!(row.bucket != Raw::Absent, "what is ended is of a known bucket");
        let (verb, mut parameters) = match end {
            End::Delete(_) => (format!(r#"DELETE FROM "{}""#, self.table), Vec::new()),
            End::Retire(retirement) => {
                let set = format!(r#"UPDATE "{}" SET "{TTL}" = ? SET "{RETIRED}" = ?"#, self.table);
                (set, [retirement.ttl(), retirement.retired_from()].iter().filter_map(to_value).collect())
            }
        };
        let mut conditions = vec![format!(r#""{ID}" = ?"#), format!(r#""{SORT}" = ?"#)];
        parameters.extend([text(&row.key.owner), text(&row.key.sort)]);
        for (attribute, raw) in guards(row) {
            match to_value(raw) {
                Some(value) => {
                    conditions.push(format!(r#""{attribute}" = ?"#));
                    parameters.push(value);
                }
                None => conditions.push(format!(r#""{attribute}" IS MISSING"#)),
            }
        }
        // After a lost answer, the row shows whether it was retired.
        let returned = matches!(end, End::Retire(_)).then_some(ReturnValuesOnConditionCheckFailure::AllOld);
        BatchStatementRequest::builder()
            .set_return_values_on_condition_check_failure(returned)
            .statement(format!("{verb} WHERE {}", conditions.join(" AND ")))
            .set_parameters(Some(parameters))
            .build()
            .map_err(|_| self.rejected(OPERATION, "the statement could not be built"))
    }

    fn read_answer(&self, end: &End<'_>, response: &BatchStatementResponse, acted_before: bool) -> Result<Answer> {
        // With the IAM action that it requires.
        let (done, operation) = match end {
            End::Delete(_) => (DeleteOutcome::Deleted, "BatchExecuteStatement (PartiQLDelete)"),
            End::Retire(_) => (DeleteOutcome::Retired, "BatchExecuteStatement (PartiQLUpdate)"),
        };
        let Some(error) = response.error() else { return Ok(Answer::Done(done)) };
        let code = error.code().map_or("an error without a code", BatchStatementErrorCodeEnum::as_str);
        if code.starts_with("ConditionalCheckFailed") {
            let found = || error.item().cloned().and_then(to_row);
            return Ok(Answer::Done(match end {
                _ if !acted_before => DeleteOutcome::LostRace,
                End::Retire(retirement) if found().is_some_and(|row| retirement.made(&row)) => DeleteOutcome::Retired,
                // Either the row changed, or an unanswered attempt succeeded.
                End::Delete(_) | End::Retire(_) => DeleteOutcome::Unknown,
            }));
        }
        match by_code(Some(code), 0) {
            Fault::Throttled(_) => Ok(Answer::TryAgain { may_have_acted: false }),
            Fault::Transient(_) | Fault::Unreachable(_) => Ok(Answer::TryAgain { may_have_acted: true }),
            Fault::Permanent(code) if code == "AccessDenied" => {
                Err(StoreError::AccessDenied { operation, table: self.table.clone(), code })
            }
            Fault::Permanent(_) if acted_before => Ok(Answer::Done(DeleteOutcome::Unknown)),
            Fault::Permanent(_) => Ok(Answer::Done(DeleteOutcome::Refused)),
        }
    }
}

fn is_throttled(response: &BatchStatementResponse) -> bool {
    let code = response.error().and_then(BatchStatementError::code).map(BatchStatementErrorCodeEnum::as_str);
    code.is_some_and(|code| matches!(by_code(Some(code), 0), Fault::Throttled(_)))
}
