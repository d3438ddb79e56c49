//! Fuzzing of what reads bytes: mutations of a corpus that is kept in `corpus/`, one text a line. A text whose answer is of a new kind joins
//! the corpus while the test runs. Items are fuzzed in `dynamo`, cursors and the events of an execution in `jobs`.

mod json;
mod records;
mod settings;
