//! `janitor`, the operator's tool: the same use cases as the Lambdas, from a terminal.
//!
//! ```text
//! args      the command line and its help
//! flags     the flags of the settings, from the table of settings
//! typed     what was typed, as an error may repeat it
//! duration  durations of flags
//! fail      how a command ends when it does not end well
//! console   where a command prints and asks
//! screen    tables, colour;  progress: how far a run is
//! terminal  questions to the person at the terminal
//! target    the table that a command works on
//! html      the audit as a page
//! command   one file a command;  demo: on the embedded engine (feature `demo`)
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
