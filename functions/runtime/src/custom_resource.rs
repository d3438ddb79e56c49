//! One invocation of the custom resource. CloudFormation always gets an answer: without one, a stack waits an hour, and
//! another hour to roll back.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use serde_json::Value;

use crate::cloudformation::{Action, Done, Properties, Request, Status};
use crate::lambda::Function;
use crate::serve::InvocationError;
use dynamo::Dynamo;
use jobs::run::clock::RunClock;
use jobs::table_setup::stream::{self, Stream};
use jobs::table_setup::ttl::{self, SwitchError, Switched};
use shared::bucket::TTL_ATTRIBUTE;

/// Interval between reads of the table's status while DynamoDB changes it.
const POLL: Duration = Duration::from_secs(2);
/// How long to wait for DynamoDB if the invocation has no deadline.
const WITHOUT_DEADLINE: Duration = Duration::from_mins(10);

/// A fifth of the time, within these bounds, is reserved for the answer and its retries.
const ANSWER_DIVISOR: u32 = 5;
const ANSWER_MIN: Duration = Duration::from_secs(1);
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Reserved for the invocation's own response, after the answer to CloudFormation.
const SHUTDOWN: Duration = Duration::from_millis(200);

/// Why CloudFormation got no answer. Each text is one line without the URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unanswered {
    #[error("the event has no ResponseURL: it is not from CloudFormation, and no answer is expected")]
    NoResponseUrl,
    #[error("could not deliver status {status} to CloudFormation: {cause}")]
    NotDelivered { status: Status, cause: String },
}

impl InvocationError for Unanswered {
    fn kind(&self) -> &'static str {
        match self {
            Unanswered::NoResponseUrl => "Event",
            Unanswered::NotDelivered { .. } => "NotDelivered",
        }
    }
}

/// Switches on the table's TTL, and its stream on request, and answers CloudFormation. A failure that was delivered to
/// CloudFormation is not an error here, because Lambda would retry it.
pub async fn enable_ttl(function: &Function, event: Value, clock: RunClock) -> Result<Value, Unanswered> {
    answer(&event, clock, async |properties, clock| set_up(function, &properties, clock).await).await
}

/// The stream comes first: it takes seconds, while TTL may take all the remaining time.
pub async fn set_up(function: &Function, properties: &Properties, clock: RunClock) -> Result<Done, String> {
    let table = &properties.table;
    let store = Dynamo::open_unpaced(function.client.clone(), table, function.endpoint(), clock)
        .await
        .map_err(|error| SwitchError::from(error).to_string())?;
    let mut done = Done::default();
    done.add("TableName", table);
    if properties.stream {
        let stream = stream::switch_on(&store, table, store.clock(), POLL).await.map_err(|e| e.to_string())?;
        add_stream(&mut done, table, &stream);
    }
    if properties.ttl {
        let switched = ttl::switch_on(&store, table, store.clock(), POLL).await.map_err(|e| e.to_string())?;
        add_ttl(&mut done, table, switched);
    }
    if !properties.stream && !properties.ttl {
        done.add_reason(format!("no change to table {table} was requested"));
    }
    Ok(done)
}

fn add_stream(done: &mut Done, table: &str, stream: &Stream) {
    let how = if stream.switched_on { "was enabled" } else { "was already on" };
    done.add_reason(format!("the stream of table {table} ({}) {how}", stream.view));
    done.add("StreamArn", &stream.arn);
    done.add("StreamViewType", &stream.view);
}

fn add_ttl(done: &mut Done, table: &str, switched: Switched) {
    let (status, how) = match switched {
        Switched::WasOn => ("ENABLED", "was already on"),
        Switched::NowOn => ("ENABLED", "was enabled"),
        Switched::BeingEnabled => ("ENABLING", "is being enabled by DynamoDB, which takes up to an hour"),
    };
    done.add_reason(format!("TTL of table {table} on {TTL_ATTRIBUTE} {how}"));
    done.add("TtlAttribute", TTL_ATTRIBUTE);
    done.add("TtlStatus", status);
}

/// Runs `work` as the event requests, sends the answer to CloudFormation and returns it.
pub async fn answer<E: std::fmt::Display>(
    event: &Value,
    clock: RunClock,
    work: impl AsyncFnOnce(Properties, RunClock) -> Result<Done, E>,
) -> Result<Value, Unanswered> {
    let budget = clock.budget().unwrap_or(WITHOUT_DEADLINE);
    let Some((url, request)) = Request::parse(event) else {
        tracing::error!(error.kind = Unanswered::NoResponseUrl.kind(), error.text = %Unanswered::NoResponseUrl, "table setup failed");
        return Err(Unanswered::NoResponseUrl);
    };
    let for_work = budget.saturating_sub((budget / ANSWER_DIVISOR).clamp(ANSWER_MIN, ANSWER_MAX));
    let outcome = match &request.action {
        Ok(Action::SetUp(properties)) => {
            in_time(for_work, work(properties.clone(), RunClock::start(clock.now(), Some(for_work)))).await
        }
        Ok(Action::Leave) => {
            Ok(Done { reason: "the table, its TTL and its stream were not changed".to_owned(), ..Done::default() })
        }
        Err(error) => Err(error.to_string()),
    };
    let answer = request.answer(outcome);
    match answer.status {
        Status::Success => tracing::info!(reason = answer.reason, "table setup finished"),
        Status::Failed => tracing::error!(error.text = answer.reason, "table setup failed"),
    }
    let body = answer.to_json();
    let left = budget.saturating_sub(SHUTDOWN).saturating_sub(clock.elapsed());
    dynamo::http::put(url.expose(), &body.to_string(), left).await.map_err(|cause| {
        let error = Unanswered::NotDelivered { status: answer.status, cause };
        tracing::error!(error.kind = error.kind(), error.text = %error, "table setup failed");
        error
    })?;
    Ok(body)
}

/// The outcome of `work`, even if it hangs or panics: a bug here must not leave the stack waiting.
async fn in_time<E: std::fmt::Display>(
    limit: Duration,
    work: impl Future<Output = Result<Done, E>>,
) -> Result<Done, String> {
    match tokio::time::timeout(limit, AssertUnwindSafe(work).catch_unwind()).await {
        Ok(Ok(outcome)) => outcome.map_err(|error| error.to_string()),
        Ok(Err(_panic)) => Err("the function panicked: see its log".to_owned()),
        Err(_elapsed) => Err(SwitchError::OutOfTime.to_string()),
    }
}
