//! The members of a JSON object as Python's `json.loads` reads them, because Python wrote the rows and reads them again.
//!
//! Python accepts more than JSON allows: `NaN` and `Infinity`, deep nesting, an unpaired surrogate, and duplicate keys, of
//! which the last counts. A row that the application reads as alive must be readable here too, or its TTL would decide. The
//! parser builds no values and does not recurse: it only finds the text of each member.

/// Calls `member` with the text of each key, without its quotes, and of its value. `None` when Python would reject the text, or
/// read it as something other than an object; the calls before must then be ignored.
pub(crate) fn object<'a>(text: &'a str, mut member: impl FnMut(&'a str, &'a str)) -> Option<()> {
    let mut reader = Reader { text, at: 0 };
    reader.space();
    reader.expect(b'{')?;
    reader.space();
    if !reader.eat(b'}') {
        loop {
            let key = reader.key()?;
            let from = reader.at;
            reader.value()?;
            member(key, &text[from..reader.at]);
            reader.space();
            if reader.eat(b'}') {
                break;
            }
            reader.expect(b',')?;
            reader.space();
        }
    }
    reader.space();
    (reader.at == text.len()).then_some(())
}

/// A position in the text, always at a character boundary.
struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn eat(&mut self, wanted: u8) -> bool {
        let found = self.peek() == Some(wanted);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, wanted: u8) -> Option<()> {
        self.eat(wanted).then_some(())
    }

    fn eat_while(&mut self, wanted: impl Fn(u8) -> bool) -> usize {
        let from = self.at;
        while self.peek().is_some_and(&wanted) {
            self.at += 1;
        }
        self.at - from
    }

    fn space(&mut self) {
        self.eat_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'));
    }

    /// Reads a key and its colon.
    fn key(&mut self) -> Option<&'a str> {
        let from = self.at + 1;
        self.string()?;
        let key = &self.text[from..self.at - 1];
        self.space();
        self.expect(b':')?;
        self.space();
        Some(key)
    }

    fn string(&mut self) -> Option<()> {
        self.expect(b'"')?;
        loop {
            self.eat_while(|byte| !matches!(byte, b'"' | b'\\' | 0..=0x1f));
            if self.eat(b'"') {
                return Some(());
            }
            self.expect(b'\\')?;
            if self.eat(b'u') {
                let digits = self.text.as_bytes().get(self.at..self.at + 4)?;
                digits.iter().all(u8::is_ascii_hexdigit).then_some(())?;
                self.at += 4;
            } else {
                self.peek().filter(|byte| b"\"\\/bfnrt".contains(byte))?;
                self.at += 1;
            }
        }
    }

    /// Skips one value, however deeply nested.
    fn value(&mut self) -> Option<()> {
        let mut closers: Vec<u8> = Vec::new();
        loop {
            match self.peek()? {
                b'"' => self.string()?,
                open @ (b'{' | b'[') => {
                    let closer = if open == b'{' { b'}' } else { b']' };
                    self.at += 1;
                    self.space();
                    if !self.eat(closer) {
                        closers.push(closer);
                        self.before_next(closer)?;
                        continue;
                    }
                }
                _ => self.scalar()?,
            }
            // A value has ended, and perhaps the arrays and objects around it.
            loop {
                let Some(closer) = closers.last().copied() else { return Some(()) };
                self.space();
                if self.eat(closer) {
                    closers.pop();
                    continue;
                }
                self.expect(b',')?;
                self.space();
                self.before_next(closer)?;
                break;
            }
        }
    }

    /// In an object, reads the key before the next value.
    fn before_next(&mut self, closer: u8) -> Option<()> {
        if closer == b'}' { self.key().map(drop) } else { Some(()) }
    }

    fn scalar(&mut self) -> Option<()> {
        let rest = &self.text[self.at..];
        for word in ["null", "true", "false", "NaN", "Infinity", "-Infinity"] {
            if rest.starts_with(word) {
                self.at += word.len();
                return Some(());
            }
        }
        self.eat(b'-');
        if !self.eat(b'0') {
            self.digits()?;
        }
        if self.eat(b'.') {
            self.digits()?;
        }
        if self.eat(b'e') || self.eat(b'E') {
            let _signed = self.eat(b'+') || self.eat(b'-');
            self.digits()?;
        }
        Some(())
    }

    fn digits(&mut self) -> Option<()> {
        (self.eat_while(|byte| byte.is_ascii_digit()) > 0).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::object;

    fn members(text: &str) -> Option<Vec<(&str, &str)>> {
        let mut all = Vec::new();
        object(text, |key, value| all.push((key, value))).map(|()| all)
    }

    #[test]
    fn finds_each_member_and_its_text() {
        let text = " {\"a\" : 1,\n\"b\\u0041\":[{\"c\": [] }, \"}\\\"\"] , \"\":{\"x\":{}}\t} \r\n";
        let found = members(text);
        assert_eq!(found, Some(vec![("a", "1"), ("b\\u0041", "[{\"c\": [] }, \"}\\\"\"]"), ("", "{\"x\":{}}")]));
        assert_eq!(members("{}"), Some(vec![]));
        assert_eq!(members("{\"a\": 1, \"a\": 2}"), Some(vec![("a", "1"), ("a", "2")]));
    }

    #[test]
    fn takes_what_only_python_takes() {
        for value in
            ["NaN", "Infinity", "-Infinity", "[NaN, {\"x\": -Infinity}]", "\"\\ud800\"", "1e400", "-0", "0.5E-7"]
        {
            assert_eq!(members(&format!("{{\"a\": {value}}}")), Some(vec![("a", value)]));
        }
        assert!(members("{\"\\udc00\": 1}").is_some());
    }

    #[test]
    fn goes_as_deep_as_the_text_does() {
        let (lists, objects) = ("[".repeat(200_000), "{\"x\":".repeat(200_000));
        let closed = format!("{{\"a\": {lists}{}, \"b\": {objects}1{}}}", "]".repeat(200_000), "}".repeat(200_000));
        assert_eq!(members(&closed).map(|found| found.len()), Some(2));
        assert_eq!(members(&format!("{{\"a\": {lists}")), None);
    }

    #[test]
    fn reads_nothing_that_python_does_not_read() {
        for value in [
            "",
            "nan",
            "inf",
            "--1",
            "+1",
            "01",
            "-01",
            "1.",
            ".5",
            "1e",
            "1e+",
            "-",
            "0x10",
            "1_0",
            "nul",
            "'x'",
            "x",
            "\"",
            "\"\u{1}\"",
            "\"\n\"",
            "\"\\x\"",
            "\"\\u12\"",
            "\"\\u12g4\"",
            "\"\\",
            "[1,]",
            "[,1]",
            "[1 2]",
            "[1}",
            "{\"a\"}",
            "{\"a\":}",
            "{a: 1}",
            "{\"a\": 1,}",
            "{,}",
            "{1: 2}",
            "--Infinity",
            "\u{c}1",
            "\u{a0}1",
            "1 /* */",
        ] {
            assert_eq!(members(&format!("{{\"a\": {value}}}")), None, "{value}");
        }
        for text in [
            "",
            " ",
            "{",
            "}",
            "[]",
            "1",
            "null",
            "\"{}\"",
            "{}x",
            "{}{}",
            "\u{feff}{}",
            "\u{a0}{}",
            "{}\0",
            "{\"a\": 1,}",
        ] {
            assert_eq!(members(text), None, "{text:?}");
        }
    }
}
