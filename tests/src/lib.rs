//! The integration tests. Tests of the decisions are in `shared/tests`; code that the tests here share is in `tests/bed`.
//!
//! ```text
//! engines   jobs and `janitor` on the embedded engine and on DynamoDB Local
//! library   the same on rows that the real ActingWeb library wrote
//! deploy    the functions under the Lambda emulator, the template, the page in a browser
//! ```
