//! The integration tests. `shared/tests` holds the tests of the decisions; what the tests here share is in `tests/bed`.
//!
//! ```text
//! engines   jobs and `janitor` on the embedded engine and on DynamoDB Local
//! library   the same on rows that the real ActingWeb library wrote
//! deploy    the functions under the Lambda emulator, the template, the page in a browser
//! ```
