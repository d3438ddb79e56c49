//! Rows that depended on a token that the table's TTL removed.

mod judge;
mod record;

pub use judge::{condemn_index, condemn_provider, index_row, provider_row};
pub use record::{Ignored, Record, RemovedToken, read};
