//! Texts that are nearly right: mutations of a corpus, for what reads bytes.

use std::time::Instant;

use fastrand::Rng;
use serde_json::json;

/// A reader, and how often it is tried: in the longer form a hundred times as often. `FUZZ_SEED` repeats a run.
pub struct Fuzz {
    what: &'static str,
    pub rounds: u32,
    pub seed: u64,
    began: Instant,
}

impl Fuzz {
    #[must_use]
    pub fn start(what: &'static str, rounds: u32) -> Self {
        let given = std::env::var("FUZZ_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = given.unwrap_or_else(|| fastrand::u64(..));
        println!("FUZZ_SEED={seed}");
        let rounds = if crate::is_long() { 100 * rounds } else { rounds };
        Self { what, rounds, seed, began: Instant::now() }
    }

    /// Prints the number of inputs.
    pub fn end(self) {
        let (what, inputs, seconds) = (self.what, self.rounds, crate::seconds(self.began));
        crate::figure(&json!({"part": "fuzz", "what": what, "inputs": inputs, "seconds": seconds}));
    }
}

/// What a reader of JSON, of rows or of settings decides by.
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

/// Texts that a corpus grows to.
const MOST: usize = 20_000;

/// A corpus that grows by what turned out to be new.
pub struct Corpus {
    texts: Vec<String>,
    random: Rng,
    /// The longest text that is made.
    longest: usize,
}

impl Corpus {
    /// A text a line.
    #[must_use]
    pub fn of(texts: &str, seed: u64) -> Self {
        Self { texts: texts.lines().map(str::to_owned).collect(), random: Rng::with_seed(seed), longest: 1_000 }
    }

    /// Keeps a text that did something new; of very many, in the place of another.
    pub fn keep(&mut self, text: String) {
        if self.texts.len() < MOST {
            self.texts.push(text);
        } else {
            let index = self.random.usize(..MOST);
            self.texts[index] = text;
        }
    }

    /// A text of the corpus with some mutations.
    pub fn next_text(&mut self) -> String {
        let mut text: Vec<char> = self.pick();
        for _ in 0..self.random.u8(1..6) {
            self.mutate(&mut text);
        }
        text.truncate(self.longest);
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
