//! Masks secrets: shows the first few characters and a short hash, enough to recognize a secret but not to use it.

use std::fmt;

use sha2::{Digest, Sha256};

/// Maximum number of characters of the secret that are shown.
const SHOWN: usize = 6;

/// Shows a token, code, session id, key or actor id without revealing it.
///
/// A range key keeps its bucket readable: the part before the first `:` is never a secret in a known bucket.
pub struct Masked<'a>(pub &'a str);

impl fmt::Display for Masked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bucket, name) = match self.0.split_once(':') {
            Some((bucket, name)) if crate::bucket::BUCKETS.iter().any(|known| known.name == bucket) => (bucket, name),
            _ => ("", self.0),
        };
        if !bucket.is_empty() {
            write!(f, "{bucket}:")?;
        }
        // At most a third, so that a short secret is not shown whole.
        let shown = SHOWN.min(name.chars().count() / 3);
        let head: String = name.chars().take(shown).filter(|c| is_plain(*c)).collect();
        let digest = Sha256::digest(name.as_bytes());
        write!(f, "{head}…#{:02x}{:02x}{:02x}{:02x}", digest[0], digest[1], digest[2], digest[3])
    }
}

/// Whether a terminal prints the character as it is: no control character, and none that reverses, hides or combines text.
fn is_plain(c: char) -> bool {
    matches!(c, '"' | '\'' | '\\') || c.escape_debug().eq([c])
}

/// Text from a row, safe for a terminal: characters that are not plain are escaped.
pub fn plain(text: &str) -> String {
    let spelled = |c: char| if is_plain(c) { c.to_string() } else { c.escape_debug().to_string() };
    text.chars().map(spelled).collect()
}

impl fmt::Debug for Masked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::{Masked, plain};

    #[test]
    fn shows_a_few_characters_and_a_hash_of_a_token() {
        let token = "aw_Zk3vT9q0pXy7LrWm2Nb8Hs4Jd6Fg1Ac5Eu0Io9Ty3B";
        assert_eq!(Masked(token).to_string(), "aw_Zk3…#fca33847");
        assert_eq!(Masked(&format!("mcp_tokens:{token}")).to_string(), "mcp_tokens:aw_Zk3…#fca33847");
        assert_eq!(format!("{:?}", Masked(token)), "aw_Zk3…#fca33847");
    }

    #[test]
    fn never_shows_more_than_a_third_of_a_short_secret() {
        assert_eq!(Masked("abc").to_string().chars().next(), Some('a'));
        assert!(!Masked("abc").to_string().contains("ab"));
        assert!(Masked("").to_string().starts_with('…'));
    }

    #[test]
    fn keeps_the_bucket_readable_only_when_it_is_a_known_one() {
        assert!(Masked("secretpeer:token").to_string().starts_with("secre"));
        assert!(!Masked("secretpeer:token").to_string().contains("secretpeer"));
    }

    #[test]
    fn shows_nothing_that_a_terminal_acts_on() {
        let odd = "\u{202e}\u{1b}[\u{2066}a\u{feff}\u{0}\u{301}";
        assert_eq!(Masked(&odd.repeat(9)).to_string().split('…').next(), Some("[a"));
        assert_eq!(plain(odd), "\\u{202e}\\u{1b}[\\u{2066}a\\u{feff}\\0\\u{301}");
        assert_eq!(plain("\"it's\" C:\\ ë 漢 🔥"), "\"it's\" C:\\ ë 漢 🔥");
    }
}
