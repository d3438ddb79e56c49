//! `janitor`, the operator's tool: the jobs of the Lambda functions and more, from a terminal.
//!
//! ```text
//! args      the command line and its help
//! flags     the flags of the settings, from the table of settings
//! typed     the command line, masked where an error repeats it
//! duration  durations in flags
//! fail      failures and exit codes
//! console   output and confirmation prompts
//! screen    tables, colour;  progress: the progress of a run
//! terminal  prompts at the terminal
//! target    the table that a command works on
//! html      the audit as a page
//! command   one file per command;  demo: on the embedded engine (feature `demo`)
//! ```

pub mod args;
pub mod command;
pub mod console;
#[cfg(feature = "demo")]
pub mod demo;
pub mod duration;
pub mod fail;
pub mod flags;
pub mod html;
pub mod progress;
pub mod screen;
pub mod target;
pub mod terminal;
pub mod typed;
