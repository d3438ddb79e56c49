//! How a command ends when it does not end well: one line, what to try, and an exit code.

use jobs::run::RunError;
use jobs::store::StoreError;

use crate::flags::in_flags;

/// Done.
pub const DONE: u8 = 0;
/// A check found something.
pub const FINDINGS: u8 = 1;
/// What was typed, or set up, is wrong.
pub const USAGE: u8 = 2;
/// Begun, and not finished; or could not be begun.
pub const UNFINISHED: u8 = 3;

/// As the shell reports a program that SIGPIPE has ended.
const CLOSED_PIPE: u8 = 141;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub code: u8,
    /// Nothing is printed where it is empty.
    pub text: String,
}

impl Failure {
    pub fn usage(text: impl Into<String>) -> Self {
        Self { code: USAGE, text: text.into() }
    }

    pub fn unfinished(text: impl Into<String>) -> Self {
        Self { code: UNFINISHED, text: text.into() }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let code = match error {
            StoreError::TableMissing { .. }
            | StoreError::ForeignKeys { .. }
            | StoreError::Credentials { .. }
            | StoreError::ClockAhead { .. }
            | StoreError::ClockBehind { .. } => USAGE,
            StoreError::OutOfTime
            | StoreError::AccessDenied { .. }
            | StoreError::Unreachable { .. }
            | StoreError::Unavailable { .. }
            | StoreError::KeepsFailing { .. }
            | StoreError::Rejected { .. } => UNFINISHED,
        };
        Self { code, text: error.to_string() }
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Store(error) => error.into(),
            RunError::Config(_) => Self::usage(error.to_string()),
            RunError::WrongTable { .. } | RunError::TtlNotOn { .. } => Self::usage(in_flags(&error.to_string())),
            RunError::AboveShare { .. }
            | RunError::ShareUnknown { .. }
            | RunError::LeaseLost
            | RunError::LeaseHeld { .. }
            | RunError::Paused(_)
            | RunError::MaxDeletesInBacklog
            | RunError::Interrupted { .. } => Self::unfinished(in_flags(&error.to_string())),
        }
    }
}

impl From<std::io::Error> for Failure {
    /// Of writing what there is to say: a disk that is full, or a reader that has seen enough, which is no error.
    fn from(error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Self { code: CLOSED_PIPE, text: String::new() };
        }
        Self::unfinished(format!("could not write the output: {error}"))
    }
}
