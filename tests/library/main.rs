//! The jobs on rows of the real ActingWeb library, checked by the library itself. Needs Python and DynamoDB Local.

mod after_ttl;
mod clients;
mod clocks;
mod large_tables;
mod live_application;
mod malformed_rows;
mod old_releases;
mod repair;
mod retire;
mod revoke;
mod seeded_rows;
