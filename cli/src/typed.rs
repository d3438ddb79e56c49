//! The words of the command line. A token may be among them, in the wrong place or pasted by mistake: no error repeats it.

use std::ffi::OsString;
use std::io::Write;

use jobs::explain::Shape;
use shared::mask::Masked;
use shared::settings::shown;

use crate::fail::{DONE, USAGE};

/// No shorter word is a secret, and replacing a single bracket would make a usage line unreadable.
const SHORTEST: usize = 4;

/// A table may have any name: only a word that is also shaped like a token is treated as one.
pub(crate) fn is_token(word: &str) -> bool {
    Shape::of(word.trim_start_matches('-')) != Shape::Other && shown(word) != word
}

/// The words of the command line.
pub struct CommandLine {
    /// Longest first, so that no part of a longer word remains.
    words: Vec<String>,
}

impl CommandLine {
    pub fn new(arguments: impl Iterator<Item = OsString>) -> Self {
        let mut words = Vec::new();
        for argument in arguments {
            let argument = argument.to_string_lossy().into_owned();
            // An error may quote either half of `--option=value`.
            if let Some((option, value)) = argument.split_once('=') {
                words.extend([option.to_owned(), value.to_owned()]);
            }
            words.push(argument);
        }
        words.retain(|word| word.chars().count() >= SHORTEST);
        words.sort_by_key(|word| std::cmp::Reverse(word.len()));
        Self { words }
    }

    /// The text of a failure, with the tokens of the command line masked.
    pub fn mask_tokens(&self, text: &str) -> String {
        self.masked(text, is_token)
    }

    /// Prints the requested help, or why the command line is refused, and returns the exit code.
    pub fn refuse(&self, error: &clap::Error) -> u8 {
        if !error.use_stderr() {
            // A closed standard output cannot be reported.
            let _ = error.print();
            return DONE;
        }
        // A closed standard error cannot be reported.
        let _ = write!(anstream::stderr(), "{}", self.refusal(&error.render().ansi().to_string()));
        USAGE
    }

    /// Masks every word that does not look like a setting or an option: it may be a secret.
    fn refusal(&self, text: &str) -> String {
        self.masked(text, |word| shown(word) != word)
    }

    fn masked(&self, text: &str, is_secret: impl Fn(&str) -> bool) -> String {
        let secrets = self.words.iter().filter(|word| is_secret(word));
        secrets.fold(text.to_owned(), |text, word| text.replace(word.as_str(), &Masked(word).to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::CommandLine;
    use crate::args::Cli;

    const TOKEN: &str = "aw_Zk3vT9q0pXy7LrWm2Nb8Hs4Jd6Fg1Ac5Eu0Io9Ty3B";

    fn refusal(arguments: &[&str]) -> String {
        let typed = CommandLine::new(arguments.iter().map(Into::into));
        let error = Cli::read([&["janitor"], arguments].concat()).err().expect("wrong");
        typed.refusal(&error.render().to_string())
    }

    #[test]
    fn a_refusal_says_what_is_wrong_and_repeats_no_token() {
        let option = format!("--{TOKEN}=x");
        let value = format!("--apply={TOKEN}");
        let cases: [(&[&str], &str); 7] = [
            (&["ttl", "set", "o", "b", "86400", TOKEN], "invalid value 'aw_Zk3…#fca33847' for '<DURATION>'"),
            (&["explain", "a", "b", "c", TOKEN], "unexpected"),
            (&[TOKEN], "unrecognized subcommand"),
            (&["run", "--every", TOKEN], "must be a duration such as"),
            (&["completions", TOKEN], "possible values"),
            (&["cleanup", &option], "unexpected argument"),
            (&["cleanup", &value], "unexpected value"),
        ];
        for (arguments, wanted) in cases {
            let text = refusal(arguments);
            assert!(text.contains(wanted), "{arguments:?}: {text}");
            assert!(!text.contains(&TOKEN[7..]), "{arguments:?}: {text}");
            assert!(text.contains("--help"), "{text}");
        }
    }

    #[test]
    fn what_is_no_secret_is_repeated() {
        assert!(refusal(&["swep"]).contains("unrecognized subcommand 'swep'"));
        assert!(refusal(&["run", "--every", "soon"]).contains("'soon'"));
        assert!(refusal(&["cleanup", "<"]).contains("'<'"));
    }

    #[test]
    fn a_failure_names_the_table_and_no_token() {
        let typed = |word: &str| CommandLine::new([word.into()].into_iter());
        assert_eq!(typed("MyApp_attributes").mask_tokens("table MyApp_attributes"), "table MyApp_attributes");
        assert_eq!(typed("mcp_prod").mask_tokens("table mcp_prod_attributes"), "table mcp_prod_attributes");
        assert_eq!(typed(TOKEN).mask_tokens(&format!("table {TOKEN}_attributes")), "table aw_Zk3…#fca33847_attributes");
    }
}
