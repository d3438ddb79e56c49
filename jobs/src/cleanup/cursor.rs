//! Where a walk stopped, without revealing a token.
//!
//! Names are tokens. A cursor holds the first few characters of the last name that was done, and the next run continues
//! after that prefix: it reads a few rows again, and no secret is stored.

use serde_json::{Value, json};

/// Characters of a name that a cursor shows: the prefix of its kind (3), and enough to distinguish a billion tokens.
const SHOWN: usize = 8;
/// The most that it ever shows, where fewer would stop a run from making progress.
const MOST_SHOWN: usize = 12;
/// Sorts after every name.
const LAST: char = char::MAX;

/// A place in the walk: everything in earlier steps, and in this step up to `name`, is done.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Cursor {
    pub(super) step: usize,
    pub(super) name: String,
}

impl std::fmt::Debug for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", super::steps::step_name(self.step), shared::mask::Masked(&self.name))
    }
}

impl Cursor {
    /// The cursor as it may leave the process: shortened, but still beyond the place where this run started.
    pub(super) fn shortened(mut self, began: Option<&Cursor>) -> Cursor {
        let floor = began.filter(|began| began.step == self.step).map_or("", |began| began.name.as_str());
        let head = |shown: usize| self.name.char_indices().nth(shown).map_or(self.name.len(), |(end, _)| end);
        // Names with a common prefix, which no library writes, would prevent progress, so some more characters are
        // shown.
        if let Some(end) = (SHOWN..=MOST_SHOWN).map(head).find(|end| self.name[..*end] > *floor) {
            self.name.truncate(end);
        } else if self.name != floor {
            // More rows have this prefix than one run reads: the rest of them is left to the next walk.
            self.name.truncate(head(MOST_SHOWN));
            self.name.push(LAST);
        }
        self
    }

    /// As stored in the state row. A step has a name, so that a later release with more steps does not misread it.
    pub(super) fn to_json(&self) -> Value {
        json!({"step": super::steps::step_name(self.step), "after": self.name})
    }

    /// `None` when it is not a cursor of this release: the walk then starts at the beginning, which is always safe.
    pub(super) fn from_json(value: &Value) -> Option<Self> {
        let step = super::steps::step_named(value.get("step")?.as_str()?)?;
        Some(Self { step, name: value.get("after")?.as_str()?.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use model::mutate::{Corpus, Fuzz};

    use super::Cursor;

    fn at(step: usize, name: &str) -> Cursor {
        Cursor { step, name: name.to_owned() }
    }

    #[test]
    fn shows_no_more_than_a_few_characters_of_a_token() {
        let token = "aw_Zk3vT9q0pXy7LrWm2Nb8Hs4Jd6Fg1Ac5Eu0Io9Ty3B";
        assert_eq!(at(1, token).shortened(None), at(1, "aw_Zk3vT"));
        assert_eq!(at(1, token).shortened(Some(&at(0, "zzzzzzzzz"))), at(1, "aw_Zk3vT"));
    }

    #[test]
    fn makes_progress_where_all_names_have_one_prefix() {
        let began = at(1, "aaaaaaaa");
        assert_eq!(at(1, "aaaaaaaabc").shortened(Some(&began)), at(1, "aaaaaaaab"));
        assert_eq!(at(1, "aaaaaaaa").shortened(Some(&began)), began);
    }

    #[test]
    fn does_not_grow_into_a_token_run_by_run() {
        let token = "aw_Zk3vT9q0pXy7LrWm2Nb8Hs4Jd6Fg1Ac5Eu0Io9Ty3B";
        let mut cursor = at(1, token).shortened(None);
        for _ in 0..50 {
            cursor = at(1, token).shortened(Some(&cursor));
        }
        assert_eq!(cursor, at(1, "aw_Zk3vT9q0p\u{10ffff}"));
    }

    #[test]
    fn makes_progress_where_more_rows_have_one_prefix_than_a_run_reads() {
        let mut cursor = at(1, "one-long-prefix-0001").shortened(None);
        for number in 2..20 {
            let next = at(1, &format!("one-long-prefix-{number:04}")).shortened(Some(&cursor));
            assert!(next > cursor || next.name.ends_with('\u{10ffff}'), "{cursor:?} -> {next:?}");
            cursor = next;
        }
        assert!(cursor > at(1, "one-long-prefix-9999") && cursor < at(1, "other"), "{cursor:?}");
        // Nothing was read since: the place is the same.
        assert_eq!(cursor.clone().shortened(Some(&cursor)), cursor);
        assert_eq!(at(1, "").shortened(None), at(1, ""));
    }

    #[test]
    fn any_json_is_a_cursor_that_shows_little_or_none() {
        let fuzz = Fuzz::start("cursors of the cleanup", 20_000);
        let mut corpus = Corpus::of(
            "{\"step\": \"mcp_tokens\", \"after\": \"aw_Zk3vT9q0p\"}\n{\"after\": \"\u{eb}\u{eb}\u{eb}\", \"step\": \"end\"}",
            fuzz.seed,
        );
        let mut cursors = 0;
        for _ in 0..fuzz.rounds {
            let Ok(value) = serde_json::from_str(&corpus.next_text()) else { continue };
            let Some(cursor) = Cursor::from_json(&value) else { continue };
            let stored = cursor.clone().shortened(None);
            assert!(stored.name.chars().count() <= 12 && cursor.name.starts_with(&stored.name), "{value}");
            assert_eq!(Cursor::from_json(&stored.to_json()), Some(stored), "{value}");
            cursors += 1;
        }
        assert!(cursors > 100, "{cursors}");
        fuzz.end();
    }

    #[test]
    fn survives_being_stored() {
        let cursor = at(2, "abc");
        assert_eq!(Cursor::from_json(&cursor.to_json()), Some(cursor));
        assert_eq!(Cursor::from_json(&serde_json::json!({"step": "nonsense", "after": "x"})), None);
        assert_eq!(Cursor::from_json(&serde_json::json!(null)), None);
    }
}
