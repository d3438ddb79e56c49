//! The test bed: real engines, real Lambda runtimes, the real library, and a second opinion on the rules.

pub mod aftermath;
pub mod attack;
pub mod bed;
pub mod engine;
pub mod fault;
pub mod golden;
pub mod hell;
pub mod janitor;
pub mod lambda;
pub mod model;
pub mod process;
pub mod proxy;
pub mod python;
pub mod random;
pub mod response_bucket;
pub mod rows;
pub mod siege;
pub mod stream;
pub mod tables;
pub mod typed;
