//! Fuzzing of what reads bytes: mutations of a corpus that is kept in `corpus/`, one text a line. A text whose answer is of a new kind joins
//! the corpus while the test runs. `PROOF=long` makes a hundred times as many; `FUZZ_SEED` repeats a run.

mod json;
mod records;
mod settings;

use std::io::Write as _;
use std::time::Instant;

use model::mutate::Corpus;

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
    let seconds = began.elapsed().as_secs_f64();
    println!("{what}: {inputs} inputs in {seconds:.1} s");
    if let Ok(path) = std::env::var("PROOF_FIGURES") {
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
        let line =
            format!("{{\"part\": \"fuzz\", \"what\": \"{what}\", \"inputs\": {inputs}, \"seconds\": {seconds:.1}}}");
        writeln!(file, "{line}").unwrap();
    }
}
