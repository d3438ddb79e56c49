//! The failure of a command: one line that says what to try, and an exit code.

use jobs::run::RunError;
use jobs::store::StoreError;

use crate::flags::in_flags;

pub const DONE: u8 = 0;
/// A check found something.
pub const FINDINGS: u8 = 1;
/// Wrong usage or configuration.
pub const USAGE: u8 = 2;
/// Not finished, or not started.
pub const UNFINISHED: u8 = 3;

/// The code that a shell reports for a program ended by SIGPIPE.
const CLOSED_PIPE: u8 = 141;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub code: u8,
    /// Not printed if it is empty.
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
    /// An error of writing the output, such as a full disk. A pipe closed by its reader is not reported.
    fn from(error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Self { code: CLOSED_PIPE, text: String::new() };
        }
        Self::unfinished(format!("could not write the output: {error}"))
    }
}
