//! Fuzzing inputs: mutations of a corpus, for parsers.

use std::time::Instant;

use fastrand::Rng;
use serde_json::json;

/// A parser under test and the number of inputs, a hundred times as many in the long form. `FUZZ_SEED` repeats a run.
pub struct Fuzz {
    what: &'static str,
    pub rounds: u32,
    pub seed: u64,
    started: Instant,
}

impl Fuzz {
    #[must_use]
    pub fn start(what: &'static str, rounds: u32) -> Self {
        let given = std::env::var("FUZZ_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = given.unwrap_or_else(|| fastrand::u64(..));
        println!("FUZZ_SEED={seed}");
        let rounds = if crate::is_long() { 100 * rounds } else { rounds };
        Self { what, rounds, seed, started: Instant::now() }
    }

    /// Prints the number of inputs.
    pub fn end(self) {
        let (what, inputs, seconds) = (self.what, self.rounds, crate::seconds(self.started));
        crate::figure(&json!({"part": "fuzz", "what": what, "inputs": inputs, "seconds": seconds}));
    }
}

/// Tokens that matter to a parser of JSON, rows or settings.
const WORDS: [&str; 56] = [
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "\\",
    "\\u",
    "\\ud83d",
    "\\ude00",
    "\\u0041",
    "\\u0000",
    "\\n",
    "\\/",
    "null",
    "true",
    "false",
    "NaN",
    "Infinity",
    "-Infinity",
    "-",
    "+",
    ".",
    "e",
    "E",
    "0",
    "1",
    "00",
    "-0",
    "1e400",
    "1.5",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "100000000000",
    "2400000000",
    " ",
    "\t",
    "\n",
    "\r",
    "\u{b}",
    "\u{a0}",
    "\u{feff}",
    "\0",
    "\u{eb}",
    "\u{1F600}",
    "\"expires_at\": ",
    "\"created_at\": ",
    "\"used\": ",
    "\"used_at\": ",
    "\"google_token_key\": \"g\"",
    "/",
    "//",
    "#",
    "\u{7f}",
];

/// Maximum number of texts in a corpus.
const MAX_TEXTS: usize = 20_000;

/// A corpus that grows by texts with new behaviour.
pub struct Corpus {
    texts: Vec<String>,
    random: Rng,
    /// Maximum length of a mutated text.
    max_length: usize,
}

impl Corpus {
    /// One text per line.
    #[must_use]
    pub fn of(texts: &str, seed: u64) -> Self {
        Self { texts: texts.lines().map(str::to_owned).collect(), random: Rng::with_seed(seed), max_length: 1_000 }
    }

    /// Adds a text with new behaviour; if the corpus is full, in place of a random one.
    pub fn keep(&mut self, text: String) {
        if self.texts.len() < MAX_TEXTS {
            self.texts.push(text);
        } else {
            let index = self.random.usize(..MAX_TEXTS);
            self.texts[index] = text;
        }
    }

    /// A text of the corpus with some mutations.
    pub fn next_text(&mut self) -> String {
        let mut text: Vec<char> = self.pick();
        for _ in 0..self.random.u8(1..6) {
            self.mutate(&mut text);
        }
        text.truncate(self.max_length);
        text.into_iter().collect()
    }

    fn pick(&mut self) -> Vec<char> {
        let index = self.random.usize(..self.texts.len());
        self.texts[index].chars().collect()
    }

    fn mutate(&mut self, text: &mut Vec<char>) {
        let from = self.random.usize(..=text.len());
        let to = (from + self.random.usize(..12)).min(text.len());
        match self.random.u8(..8) {
            0 => drop(text.drain(from..to)),
            1..=3 => {
                let word = WORDS[self.random.usize(..WORDS.len())];
                text.splice(from..from, word.chars());
            }
            4 => {
                let word = WORDS[self.random.usize(..WORDS.len())];
                text.splice(from..to, word.chars());
            }
            5 => {
                let copied: Vec<char> = text[from..to].to_vec();
                let at = self.random.usize(..=text.len());
                text.splice(at..at, copied);
            }
            6 => {
                let other = self.pick();
                let cut = self.random.usize(..=other.len());
                text.truncate(from);
                text.extend_from_slice(&other[cut..]);
            }
            _ => {
                if let Some(one) = text.get_mut(from) {
                    *one = char::from(self.random.u8(..128));
                }
            }
        }
    }
}
