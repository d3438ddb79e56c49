//! One request: limited in attempts and time, paced, counted, and its failure described.

use std::future::Future;
use std::sync::atomic::Ordering;
use std::time::Duration;

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};

use super::Table;
use super::error::{Fault, classify};
use super::pace::Direction;
use jobs::store::{Result, StoreError};

pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
pub(super) const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);
const CLOSE_ATTEMPT_TIMEOUT: Duration = Duration::from_secs(2);

/// Attempts at a request that the server throttles or fails. With the backoff below, the waits add up to at most 11 seconds.
pub(super) const MAX_ATTEMPTS: u32 = 8;
/// Attempts to reach an endpoint that does not answer at all.
const MAX_CONNECT_ATTEMPTS: u32 = 3;

const BACKOFF_FIRST: Duration = Duration::from_millis(50);
const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// Which time limit applies to a request: work stops before the deadline, the shutdown may use the time that is left.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Work,
    Close,
}

/// The attempts so far at one request, or at one batch.
///
/// An answer may leave a part of a batch undone. Whatever the failures, a batch has no more attempts than any other request.
#[derive(Default)]
pub(super) struct Attempts {
    pub(super) made: u32,
    /// One of them was not answered, or not in time: it may have taken effect.
    pub(super) may_have_acted: bool,
}

impl<A> Table<A> {
    pub(super) async fn call<T, E, F>(
        &self,
        operation: &'static str,
        phase: Phase,
        send: impl FnMut() -> F,
    ) -> Result<T>
    where
        F: Future<Output = std::result::Result<T, SdkError<E>>>,
        E: ProvideErrorMetadata + std::error::Error + 'static,
    {
        self.call_again(operation, phase, &mut Attempts::default(), send).await
    }

    /// Like `call`, but continues after earlier attempts.
    pub(super) async fn call_again<T, E, F>(
        &self,
        operation: &'static str,
        phase: Phase,
        attempts: &mut Attempts,
        mut send: impl FnMut() -> F,
    ) -> Result<T>
    where
        F: Future<Output = std::result::Result<T, SdkError<E>>>,
        E: ProvideErrorMetadata + std::error::Error + 'static,
    {
        loop {
            attempts.made += 1;
            let attempt = attempts.made;
            self.count(|usage| {
                usage.requests += 1;
                usage.retries += u64::from(attempt > 1);
            });
            // Boxed: the future of an SDK request is large, and every caller's future would contain it.
            let answer = self.attempt(phase, Box::pin(send())).await;
            attempts.may_have_acted |= answer.is_err();
            let fault = match answer? {
                Some(Ok(answer)) => {
                    self.answered.store(true, Ordering::Relaxed);
                    return Ok(answer);
                }
                Some(Err(error)) => classify(&error),
                None => Fault::Transient("timed out".to_owned()),
            };
            let fault = match fault {
                // The endpoint answered earlier in this run: a transient failure.
                Fault::Unreachable(cause) if self.answered.load(Ordering::Relaxed) => Fault::Transient(cause),
                fault => fault,
            };
            attempts.may_have_acted |= matches!(fault, Fault::Transient(_) | Fault::Unreachable(_));
            let attempts_allowed = match &fault {
                Fault::Throttled(_) => {
                    self.throttled(Direction::of(operation));
                    MAX_ATTEMPTS
                }
                Fault::Transient(_) => MAX_ATTEMPTS,
                Fault::Unreachable(_) => MAX_CONNECT_ATTEMPTS,
                Fault::Permanent(_) => 1,
            };
            if attempt >= attempts_allowed {
                return Err(self.to_store_error(operation, attempt, fault));
            }
            self.back_off(phase, attempt).await?;
        }
    }

    /// One attempt. The shutdown has little time: there, an attempt that hangs ends early, as `None`, and is retried.
    async fn attempt<T>(&self, phase: Phase, request: impl Future<Output = T>) -> Result<Option<T>> {
        match phase {
            Phase::Work => self.within(phase, request).await.map(Some).ok_or(StoreError::OutOfTime),
            Phase::Close => {
                let short = tokio::time::timeout(CLOSE_ATTEMPT_TIMEOUT, request);
                self.within(phase, short).await.map(std::result::Result::ok).ok_or(StoreError::OutOfTime)
            }
        }
    }

    /// Counts a throttled answer and slows down.
    pub(super) fn throttled(&self, direction: impl Into<Option<Direction>>) {
        self.count(|usage| usage.throttles += 1);
        if let Some(direction) = direction.into() {
            self.pace.throttled(direction, self.clock.elapsed());
        }
    }

    /// Waits before attempt `attempt + 1`: exponential backoff with jitter, so that concurrent runs do not retry in step.
    pub(super) async fn back_off(&self, phase: Phase, attempt: u32) -> Result<()> {
        let most = BACKOFF_FIRST.saturating_mul(1 << attempt.min(10)).min(BACKOFF_MAX);
        let wait = most.mul_f64(0.5 + fastrand::f64() / 2.0);
        self.within(phase, tokio::time::sleep(wait)).await.ok_or(StoreError::OutOfTime)
    }

    /// Runs `work` within the time of the phase; `None` if it did not finish.
    pub(super) async fn within<T>(&self, phase: Phase, work: impl Future<Output = T>) -> Option<T> {
        let left = match phase {
            Phase::Work => self.clock.time_left(),
            Phase::Close => self.clock.time_left_to_close(),
        };
        match left {
            None => Some(work.await),
            Some(left) if left.is_zero() => None,
            Some(left) => tokio::time::timeout(left, work).await.ok(),
        }
    }

    /// Waits until the pace allows `units`.
    pub(super) async fn wait_to(&self, direction: Direction, units: f64) -> Result<()> {
        let wait = self.pace.reserve(direction, units, self.clock.elapsed());
        if wait.is_zero() {
            return Ok(());
        }
        self.count(|usage| usage.paced += wait);
        self.within(Phase::Work, tokio::time::sleep(wait)).await.ok_or(StoreError::OutOfTime)
    }

    /// The error for an invalid request, or for an unexpected answer.
    pub(super) fn rejected(&self, operation: &'static str, code: &str) -> StoreError {
        StoreError::Rejected { operation, table: self.table.clone(), code: code.to_owned() }
    }

    fn to_store_error(&self, operation: &'static str, attempts: u32, fault: Fault) -> StoreError {
        let table = self.table.clone();
        match fault {
            Fault::Throttled(code) | Fault::Transient(code) => {
                StoreError::Unavailable { operation, table, code, attempts }
            }
            Fault::Unreachable(cause) => StoreError::Unreachable { endpoint: self.endpoint.clone(), cause },
            Fault::Permanent(code) => match code.as_str() {
                "ResourceNotFoundException" => StoreError::TableMissing { table },
                "AccessDeniedException" | "AccessDenied" => StoreError::AccessDenied { operation, table, code },
                "UnrecognizedClientException"
                | "InvalidSignatureException"
                | "IncompleteSignatureException"
                | "IncompleteSignature"
                | "MissingAuthenticationTokenException"
                | "MissingAuthenticationToken"
                | "ExpiredTokenException"
                | "ExpiredToken"
                | "InvalidClientTokenId"
                | "CredentialsNotLoaded" => StoreError::Credentials { operation, code },
                _ => StoreError::Rejected { operation, table, code },
            },
        }
    }
}
