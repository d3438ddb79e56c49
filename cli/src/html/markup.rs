//! Text and numbers of the document as markup. maud escapes them; control and bidirectional characters are replaced here.

use maud::{Markup, html};
use serde_json::Value;
use shared::time::{EpochSeconds, Utc};

use crate::screen::{count_of, grouped, seconds, took, units};

/// Shown where there is no number.
const NONE: &str = "\u{2013}";

/// Replaces characters that change the order or look of the text around them: a stored name can be anything.
pub(super) fn clean(text: &str) -> String {
    let is_active = |c: char| {
        c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.replace(is_active, "\u{fffd}")
}

/// A name that may wrap after an underscore, and is copied unchanged.
pub(super) fn name(text: &str) -> Markup {
    html! { @for part in clean(text).split_inclusive('_') { (part) @if part.ends_with('_') { wbr; } } }
}

/// `1 row`, `2 rows`.
pub(super) fn rows_in_words(n: u64) -> String {
    count_of(n, "row")
}

/// One segment of a JSON pointer, escaped.
pub(super) fn step(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// The document that `--json` prints. Each number on the page carries its JSON pointer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer<'a>(pub(super) &'a Value);

impl<'a> Answer<'a> {
    pub(super) fn at(self, pointer: &str) -> &'a Value {
        self.0.pointer(pointer).unwrap_or(&Value::Null)
    }

    /// Whether all rows were counted: otherwise the numbers of rows are null.
    pub(super) fn is_counted(self) -> bool {
        self.at("/report/complete") == &Value::Bool(true)
    }

    pub(super) fn count(self, pointer: &str) -> u64 {
        self.at(pointer).as_u64().unwrap_or(0)
    }

    pub(super) fn list(self, pointer: &str) -> &'a [Value] {
        self.at(pointer).as_array().map_or(&[], Vec::as_slice)
    }

    /// The names in an object, in its order.
    pub(super) fn names(self, pointer: &str) -> Vec<&'a str> {
        self.at(pointer).as_object().map_or_else(Vec::new, |object| object.keys().map(String::as_str).collect())
    }

    /// The members of an object and their pointers, the largest first. `number` leads from a member to its number.
    pub(super) fn largest_first(self, pointer: &str, number: &str) -> Vec<(String, String)> {
        let member = |name: &str| (name.to_owned(), format!("{pointer}/{}", step(name)));
        let mut members: Vec<_> = self.names(pointer).into_iter().map(member).collect();
        members.sort_by_key(|(_, at)| std::cmp::Reverse(self.count(&format!("{at}{number}"))));
        members
    }

    pub(super) fn text(self, pointer: &str) -> String {
        clean(self.at(pointer).as_str().unwrap_or(NONE))
    }

    fn shown(self, pointer: &str, write: impl FnOnce(&Value) -> Option<String>) -> Markup {
        let value = self.at(pointer);
        let raw = if value.is_null() { String::new() } else { value.to_string() };
        let text = write(value).unwrap_or_else(|| NONE.to_owned());
        html! { data value=(clean(&raw)) data-json=(clean(pointer)) { (text) } }
    }

    pub(super) fn number(self, pointer: &str) -> Markup {
        self.shown(pointer, |value| value.as_u64().map(grouped))
    }

    pub(super) fn rows(self, pointer: &str) -> Markup {
        self.shown(pointer, |value| value.as_u64().map(rows_in_words))
    }

    /// A number that can be below zero, with its sign.
    pub(super) fn change(self, pointer: &str) -> Markup {
        self.shown(pointer, |value| {
            let n = value.as_i64()?;
            let sign = match n {
                ..0 => "\u{2212}",
                0 => "",
                1.. => "+",
            };
            Some(format!("{sign}{}", grouped(n.unsigned_abs())))
        })
    }

    /// A number with one decimal.
    pub(super) fn decimal(self, pointer: &str) -> Markup {
        self.shown(pointer, |value| value.as_f64().map(units))
    }

    pub(super) fn span(self, pointer: &str) -> Markup {
        self.shown(pointer, |value| value.as_u64().map(seconds))
    }

    pub(super) fn milliseconds(self, pointer: &str) -> Markup {
        self.shown(pointer, |value| value.as_u64().map(took))
    }

    pub(super) fn size(self, pointer: &str) -> Markup {
        self.shown(pointer, |value| value.as_u64().map(bytes))
    }

    pub(super) fn time(self, pointer: &str) -> Markup {
        let Some(at) = self.at(pointer).as_i64() else { return html! { (NONE) } };
        let utc = Utc(EpochSeconds::new(at)).to_string();
        let iso = utc.replacen(' ', "T", 1).replace(" UTC", "Z");
        html! { time datetime=(iso) data-json=(clean(pointer)) data-value=(at) { (utc) } }
    }
}

/// A size in its largest unit, with one decimal; exact below a thousand.
fn bytes(n: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "shown only")]
    let as_float = n as f64;
    match n {
        1 => "1 byte".to_owned(),
        0..1_000 => format!("{n} bytes"),
        1_000..999_950 => format!("{:.1} kB", as_float / 1e3),
        999_950..999_950_000 => format!("{:.1} MB", as_float / 1e6),
        _ => format!("{} GB", units(as_float / 1e9)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Answer, bytes, name, step};

    #[test]
    fn nothing_in_a_name_is_markup() {
        let hostile = "<script>alert('x')</script> & \"y\"\u{202e}\u{7}";
        let safe = "&lt;script&gt;alert('x')&lt;/script&gt; &amp; &quot;y&quot;\u{fffd}\u{fffd}";
        assert_eq!(name(hostile).into_string(), safe);
        assert_eq!(name("_a_b").into_string(), "_<wbr>a_<wbr>b");
    }

    #[test]
    fn a_number_says_where_it_is_in_the_answer() {
        let document = json!({"a/b": {"n": 1_234_567, "none": null, "less": -70}});
        let answer = Answer(&document);
        let pointer = format!("/{}", step("a/b"));
        assert_eq!(
            answer.number(&format!("{pointer}/n")).into_string(),
            "<data value=\"1234567\" data-json=\"/a~1b/n\">1,234,567</data>"
        );
        assert!(answer.number(&format!("{pointer}/none")).into_string().contains("value=\"\""));
        assert!(answer.change(&format!("{pointer}/less")).into_string().ends_with(">\u{2212}70</data>"));
    }

    #[test]
    fn a_size_never_shows_a_thousand_of_a_unit() {
        for (n, text) in [
            (0, "0 bytes"),
            (1, "1 byte"),
            (999, "999 bytes"),
            (1_000, "1.0 kB"),
            (999_949, "999.9 kB"),
            (999_950, "1.0 MB"),
        ] {
            assert_eq!(bytes(n), text);
        }
        assert_eq!((bytes(999_950_000), bytes(1_234_000_000_000)), ("1.0 GB".to_owned(), "1,234.0 GB".to_owned()));
    }
}
