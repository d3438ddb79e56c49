//! The jobs on rows of the real ActingWeb library, and by the judgement of its own JSON reader. Needs Python and DynamoDB Local.

mod clients;
mod clocks;
mod live_application;
mod malformed_rows;
mod old_releases;
mod retire;
mod revoke;
mod seeded_rows;
