//! Durations in flags.

use jiff::{Span, SpanTotal, Unit};

/// The error text for a value that is not a duration.
pub const EXAMPLES: &str = "must be a duration such as 90s, 15m, 1h30m or 7d";

const UNITS: [(char, i64); 4] = [('d', 86_400), ('h', 3_600), ('m', 60), ('s', 1)];

/// The whole seconds of `90s`, `1h30m`, `7d`, or of a plain number of seconds.
pub fn duration(text: &str) -> Option<i64> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().ok();
    }
    let span: Span = text.parse().ok()?;
    let total = span.total(SpanTotal::from(Unit::Second).days_are_24_hours()).ok()?;
    #[expect(clippy::cast_possible_truncation, reason = "a whole number of seconds, in a span's range")]
    (total >= 0.0 && total.fract() == 0.0).then_some(total as i64)
}

/// Seconds in the largest unit that divides them: `1h`, `2d`, `90s`.
pub fn spelled(seconds: i64) -> String {
    let unit = UNITS.iter().find(|(_, of)| seconds % of == 0);
    unit.map_or_else(String::new, |(unit, of)| format!("{}{unit}", seconds / of))
}

#[cfg(test)]
mod tests {
    use super::{duration, spelled};

    #[test]
    fn a_duration_is_numbers_with_units_or_seconds() {
        for (text, seconds) in [
            ("3600", 3_600),
            ("90s", 90),
            ("15m", 900),
            ("1h", 3_600),
            ("7d", 604_800),
            ("0", 0),
            ("1h30m", 5_400),
            ("1.5h", 5_400),
            ("2 weeks", 1_209_600),
        ] {
            assert_eq!(duration(text), Some(seconds), "{text}");
        }
        for wrong in
            ["", "m", "-5m", "5mm", "99999999999999999d", "5\u{b5}", "1 month", "0.5s", "soon", "99999999999999999999"]
        {
            assert_eq!(duration(wrong), None, "{wrong}");
        }
        assert_eq!([300, 3_600, 172_800, 90].map(spelled), ["5m", "1h", "2d", "90s"]);
    }
}
