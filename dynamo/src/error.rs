//! Classifies failed requests: whether to retry, and how to report them. The service's messages are not passed on: they can
//! quote the request, which contains tokens. Error codes cannot.

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};

use jobs::store::StoreError;

/// Our code for HTTP status 413.
const TOO_LARGE: &str = "RequestEntityTooLarge";

/// Whether a request was rejected for its content: a part of it may be accepted.
pub(super) fn refuses_content(error: &StoreError) -> bool {
    let codes = ["ValidationException", "SerializationException", TOO_LARGE];
    matches!(error, StoreError::Rejected { code, .. } if codes.contains(&code.as_str()))
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Slow down, then retry.
    Throttled(String),
    /// A server error or a lost reply: retry.
    Transient(String),
    /// The endpoint does not answer.
    Unreachable(String),
    /// A retry would fail too.
    Permanent(String),
}

pub(super) fn classify<E: ProvideErrorMetadata + std::error::Error + 'static>(error: &SdkError<E>) -> Fault {
    match error {
        SdkError::TimeoutError(_) => Fault::Unreachable("timed out".to_owned()),
        SdkError::ResponseError(_) => Fault::Transient("the response could not be read".to_owned()),
        SdkError::DispatchFailure(failure) => {
            let cause = chain(failure.as_connector_error().map(|error| error as &dyn std::error::Error));
            if cause.contains("credential") || cause.contains("token") {
                Fault::Permanent("CredentialsNotLoaded".to_owned())
            } else if failure.is_timeout() {
                Fault::Unreachable("timed out".to_owned())
            } else if cause.contains("refused") {
                Fault::Unreachable("connection refused".to_owned())
            } else if cause.contains("dns") || cause.contains("lookup") {
                Fault::Unreachable("the host name could not be resolved".to_owned())
            } else if cause.contains("connect error") {
                Fault::Unreachable("could not connect".to_owned())
            } else {
                // The connection broke during a request, so the server was reachable.
                Fault::Transient("the connection was lost".to_owned())
            }
        }
        SdkError::ServiceError(service) => {
            let status = service.raw().status().as_u16();
            by_code(service.err().code(), status)
        }
        // Construction failures are our own, but credentials that cannot be loaded are reported as one, too.
        other => {
            let cause = chain(Some(other));
            if cause.contains("credential") {
                Fault::Permanent("CredentialsNotLoaded".to_owned())
            } else if cause.contains("region") {
                Fault::Permanent("no AWS region is set: set AWS_REGION".to_owned())
            } else {
                Fault::Permanent("the request could not be built".to_owned())
            }
        }
    }
}

/// Classifies an error code, of a request or of one statement in a batch.
pub(super) fn by_code(code: Option<&str>, status: u16) -> Fault {
    let unnamed = if status == 413 { TOO_LARGE } else { "an error without a code" };
    let code = code.unwrap_or(unnamed).to_owned();
    match code.as_str() {
        "ProvisionedThroughputExceededException"
        | "ProvisionedThroughputExceeded"
        | "ThrottlingException"
        | "ThrottlingError"
        | "RequestLimitExceeded"
        | "LimitExceededException" => Fault::Throttled(code),
        "InternalServerError"
        | "InternalServerErrorException"
        | "ServiceUnavailable"
        | "TransactionConflict"
        | "TransactionConflictException" => Fault::Transient(code),
        _ if status >= 500 => Fault::Transient(code),
        _ => Fault::Permanent(code),
    }
}

/// The lower-case text of an error and its sources, to recognize its cause. It is never shown.
fn chain(error: Option<&dyn std::error::Error>) -> String {
    let mut text = String::new();
    let mut next = error;
    while let Some(error) = next {
        text.push_str(&error.to_string().to_lowercase());
        text.push(' ');
        next = error.source();
    }
    text
}
