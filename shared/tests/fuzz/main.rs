//! Fuzzing of what reads bytes: mutations of a corpus that is kept in `corpus/`, one text a line. A text whose answer is of a new kind joins
//! the corpus while the test runs. `PROOF=long` makes a hundred times as many; `FUZZ_SEED` repeats a run.

mod json;
mod records;
mod settings;

use std::time::Instant;

use model::mutate::Corpus;
use serde_json::json;

/// The texts of a file of the corpus.
fn corpus(texts: &str) -> Corpus {
    let seed = std::env::var("FUZZ_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| fastrand::u64(..));
    println!("FUZZ_SEED={seed}");
    Corpus::new(texts.lines().map(str::to_owned), seed)
}

fn rounds(short: u64) -> u64 {
    if std::env::var("PROOF").is_ok_and(|long| long == "long") { 100 * short } else { short }
}

fn count(what: &str, inputs: u64, began: Instant) {
    let seconds = model::seconds(began);
    model::figure(&json!({"part": "fuzz", "what": what, "inputs": inputs, "seconds": seconds}));
}
