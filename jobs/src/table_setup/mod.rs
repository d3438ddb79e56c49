//! Makes sure that the table's TTL, and if wanted its stream, is on.

pub mod stream;
pub mod ttl;
