//! JSON spelled exactly as Python's `json.dumps` spells it with its defaults.
//!
//! ActingWeb's compare-and-swap uses `json.dumps(json.loads(stored))` as its condition: a row in any other spelling can never
//! be consumed. All `data` that this project writes is therefore serialized here, and existing `data` is never rewritten.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::Value;
use serde_json::ser::{Formatter, Serializer};

/// `json.dumps(value)`.
pub fn dumps(value: &Value) -> String {
    let mut out = Vec::new();
    // Writing a `Value` into memory cannot fail: its keys are strings and its numbers are finite.
    let written = value.serialize(&mut Serializer::with_formatter(&mut out, Python));
    debug_assert!(written.is_ok());
    String::from_utf8(out).unwrap_or_default()
}

struct Python;

impl Formatter for Python {
    fn begin_array_value<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(b": ")
    }

    /// ASCII only: everything outside space to `~` is escaped, beyond the basic plane as a surrogate pair.
    fn write_string_fragment<W: ?Sized + Write>(&mut self, out: &mut W, fragment: &str) -> io::Result<()> {
        let mut units = [0; 2];
        for c in fragment.chars() {
            if matches!(c, ' '..='~') {
                out.write_all(&[c as u8])?;
            } else {
                for unit in c.encode_utf16(&mut units) {
                    write!(out, "\\u{unit:04x}")?;
                }
            }
        }
        Ok(())
    }

    /// `repr(float)`: the shortest digits, with a signed exponent of at least two digits from 1e16 up and below 1e-4.
    fn write_f64<W: ?Sized + Write>(&mut self, out: &mut W, value: f64) -> io::Result<()> {
        let scientific = format!("{value:e}");
        let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
        let exponent: i32 = exponent.parse().unwrap_or(0);
        if value != 0.0 && !(-4..16).contains(&exponent) {
            let sign = if exponent < 0 { '-' } else { '+' };
            return write!(out, "{digits}e{sign}{:02}", exponent.abs());
        }
        let plain = format!("{value}");
        out.write_all(plain.as_bytes())?;
        if plain.contains('.') { Ok(()) } else { out.write_all(b".0") }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::dumps;

    #[test]
    fn spells_separators_and_insertion_order_as_python_does() {
        assert_eq!(dumps(&json!({"b": 1, "a": [true, null, "x"]})), r#"{"b": 1, "a": [true, null, "x"]}"#);
        assert_eq!(dumps(&json!({})), "{}");
        assert_eq!(dumps(&json!([])), "[]");
    }

    #[test]
    fn escapes_to_ascii_with_lower_case_hex_and_surrogate_pairs() {
        assert_eq!(dumps(&json!("ë😀\u{7f}\u{1}\n\"\\/")), r#""\u00eb\ud83d\ude00\u007f\u0001\n\"\\/""#);
    }

    #[test]
    fn spells_floats_as_repr_does() {
        for (value, spelled) in [
            (1.0, "1.0"),
            (0.1, "0.1"),
            (-0.0, "-0.0"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1_700_000_000.25, "1700000000.25"),
        ] {
            assert_eq!(dumps(&json!(value)), spelled);
        }
    }
}
