//! The testbed: the embedded engine with rows of every kind and, with the feature `testing`, real engines, Lambda runtimes,
//! the real library and fault injection.
//!
//! ```text
//! embedded fixture tables           also linked by `janitor demo`
//! engine testbed proxy fault clock  engines, a table on one of them, fault injection and a paused clock
//! lambda python janitor process     programs that a test starts
//! malformed_rows items load attack aftermath stream response_bucket golden      inputs, and checks of the results
//! ```

pub mod embedded;
pub mod fixture;
pub mod tables;

#[cfg(feature = "testing")]
pub mod aftermath;
#[cfg(feature = "testing")]
pub mod attack;
#[cfg(feature = "testing")]
pub mod clock;
#[cfg(feature = "testing")]
pub mod engine;
#[cfg(feature = "testing")]
pub mod fault;
#[cfg(feature = "testing")]
pub mod golden;
#[cfg(feature = "testing")]
mod invocations;
#[cfg(feature = "testing")]
pub mod items;
#[cfg(feature = "testing")]
pub mod janitor;
#[cfg(feature = "testing")]
pub mod lambda;
#[cfg(feature = "testing")]
pub mod load;
#[cfg(feature = "testing")]
pub mod malformed_rows;
#[cfg(feature = "testing")]
pub mod process;
#[cfg(feature = "testing")]
pub mod proxy;
#[cfg(feature = "testing")]
pub mod python;
#[cfg(feature = "testing")]
pub mod response_bucket;
#[cfg(feature = "testing")]
pub mod stream;
#[cfg(feature = "testing")]
mod testbed;

#[cfg(feature = "testing")]
pub use invocations::{Invocations, cleanup_answer, repair_answer};
#[cfg(feature = "testing")]
pub use testbed::{Testbed, deleting};
