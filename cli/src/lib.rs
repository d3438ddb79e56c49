//! `janitor`, the operator's tool: the same use cases as the Lambdas, from a terminal.
//!
//! ```text
//! args      the command line and its help
//! flags     the flags of the settings, from the table of settings
//! typed     what was typed, as an error may repeat it
//! fail      how a command ends when it does not end well
//! screen    tables, colour, progress
//! terminal  questions to the person at the terminal
//! target    the table that a command works on
//! html      the audit as a page
//! command   one file a command;  demo: on the embedded engine (feature `demo`)
//! ```

pub mod args;
pub mod command;
#[cfg(feature = "demo")]
pub mod demo;
pub mod fail;
pub mod flags;
pub mod html;
pub mod screen;
pub mod target;
pub mod terminal;
pub mod typed;
