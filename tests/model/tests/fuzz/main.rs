//! Fuzzing of parsers: mutations of the corpus in `corpus/`, one text per line. A text with a new kind of result is added to the corpus
//! while the test runs. Items are fuzzed in `dynamo`, cursors and the events of an execution in `jobs`.

mod json;
mod records;
mod settings;
