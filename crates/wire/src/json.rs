//! A single-pass JSON reader that builds only the values it is asked for.
//!
//! Hand-written because every request is parsed, and parsing is most of the work of a cached response: a derived
//! deserializer executes about four times as many instructions for a common request. The tests check that it accepts
//! the same texts as `serde_json`.

use std::borrow::Cow;

/// The maximum nesting depth.
const MAX_DEPTH: u8 = 127;

/// A syntax error, at this byte offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JsonSyntaxError(pub(crate) usize);

type JsonResult<T> = Result<T, JsonSyntaxError>;

/// The reader of one JSON text.
pub(crate) struct Reader<'a> {
    text: &'a str,
    at: usize,
    depth: u8,
}

/// A value that should have a certain type. (`null` is not a value here: it counts as absent.)
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shape<T> {
    Valid(T),
    Invalid,
}

impl<T> Shape<T> {
    pub(crate) fn valid(&self) -> Option<&T> {
        match self {
            Self::Valid(value) => Some(value),
            Self::Invalid => None,
        }
    }
}

/// A value that should be a string.
pub(crate) type Text<'a> = Shape<Cow<'a, str>>;

impl<'a> Reader<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, at: 0, depth: 0 }
    }

    /// Skips white space, and returns the next byte without reading it; 0 at the end.
    pub(crate) fn peek(&mut self) -> u8 {
        let bytes = self.text.as_bytes();
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = bytes.get(self.at) {
            self.at += 1;
        }
        self.byte()
    }

    /// Fails unless only white space is left.
    pub(crate) fn end(&mut self) -> JsonResult<()> {
        self.peek();
        if self.at == self.text.len() { Ok(()) } else { Err(self.syntax_error()) }
    }

    /// The JSON of the next value, of any type.
    pub(crate) fn raw(&mut self) -> JsonResult<&'a str> {
        self.peek();
        let start = self.at;
        self.skip()?;
        Ok(&self.text[start..self.at])
    }

    /// The byte offset of the next value.
    pub(crate) fn position(&mut self) -> usize {
        self.peek();
        self.at
    }

    /// The JSON read since this offset.
    pub(crate) fn since(&self, position: usize) -> &'a str {
        &self.text[position..self.at]
    }

    /// Reads the next value, which should be a string; `None` for `null`. A value of another type is skipped and gives
    /// [`Shape::Invalid`].
    pub(crate) fn text(&mut self) -> JsonResult<Option<Text<'a>>> {
        match self.peek() {
            b'"' => self.string().map(|text| Some(text.map_or(Shape::Invalid, Shape::Valid))),
            b'n' => self.skip().map(|()| None),
            _ => self.skip().map(|()| Some(Shape::Invalid)),
        }
    }

    /// Reads the next value, which should be an object, with `read`; `None` for `null`. A value of another type is
    /// skipped and gives [`Shape::Invalid`].
    pub(crate) fn shape<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> JsonResult<T>,
    ) -> JsonResult<Option<Shape<T>>> {
        match self.peek() {
            b'{' => read(self).map(|value| Some(Shape::Valid(value))),
            b'n' => self.skip().map(|()| None),
            _ => self.skip().map(|()| Some(Shape::Invalid)),
        }
    }

    /// Reads an object. `member` is called with the name of each member and must read its value.
    pub(crate) fn object(
        &mut self,
        mut member: impl FnMut(&mut Self, &str) -> JsonResult<()>,
    ) -> JsonResult<()> {
        self.expect(b'{')?;
        self.enter()?;
        if self.peek() == b'}' {
            return self.leave();
        }
        loop {
            if self.peek() != b'"' {
                return Err(self.syntax_error());
            }
            let start = self.at;
            let (inner, escaped) = self.raw_string()?;
            let unescaped;
            let name = if escaped {
                unescaped = self.unescaped(start).unwrap_or_default();
                &*unescaped
            } else {
                inner
            };
            self.expect(b':')?;
            member(self, name)?;
            match self.peek() {
                b',' => self.at += 1,
                b'}' => return self.leave(),
                _ => return Err(self.syntax_error()),
            }
        }
    }

    /// Reads an array. `item` is called for each value and must read it.
    pub(crate) fn array(&mut self, mut item: impl FnMut(&mut Self) -> JsonResult<()>) -> JsonResult<()> {
        self.expect(b'[')?;
        self.enter()?;
        if self.peek() == b']' {
            return self.leave();
        }
        loop {
            item(self)?;
            match self.peek() {
                b',' => self.at += 1,
                b']' => return self.leave(),
                _ => return Err(self.syntax_error()),
            }
        }
    }

    /// Reads the next value and discards it.
    pub(crate) fn skip(&mut self) -> JsonResult<()> {
        match self.peek() {
            b'"' => self.raw_string().map(drop),
            b'{' => self.object(|reader, _| reader.skip()),
            b'[' => self.array(Self::skip),
            b'-' | b'0'..=b'9' => self.number(),
            b't' => self.literal("true"),
            b'f' => self.literal("false"),
            b'n' => self.literal("null"),
            _ => Err(self.syntax_error()),
        }
    }

    /// Reads and unescapes a string; `None` if it is well-formed but contains an unpaired surrogate.
    fn string(&mut self) -> JsonResult<Option<Cow<'a, str>>> {
        let start = self.at;
        let (inner, escaped) = self.raw_string()?;
        if !escaped {
            return Ok(Some(Cow::Borrowed(inner)));
        }
        Ok(self.unescaped(start).map(Cow::Owned))
    }

    /// Decodes the string that was read since this offset; `None` if it contains an unpaired surrogate.
    fn unescaped(&self, start: usize) -> Option<String> {
        serde_json::from_str(&self.text[start..self.at]).ok()
    }

    /// Reads a string. Returns the JSON between its quotes, and whether it contains escapes.
    fn raw_string(&mut self) -> JsonResult<(&'a str, bool)> {
        self.at += 1;
        let start = self.at;
        let bytes = self.text.as_bytes();
        let mut escaped = false;
        loop {
            self.at += plain_length(&bytes[self.at..]);
            match self.byte() {
                b'"' => {
                    self.at += 1;
                    return Ok((&self.text[start..self.at - 1], escaped));
                }
                b'\\' => self.at += 1,
                _ => return Err(self.syntax_error()),
            }
            escaped = true;
            match self.byte() {
                b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => self.at += 1,
                b'u' => {
                    let digits = bytes.get(self.at + 1..self.at + 5);
                    if !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) {
                        return Err(self.syntax_error());
                    }
                    self.at += 5;
                }
                _ => return Err(self.syntax_error()),
            }
        }
    }

    fn number(&mut self) -> JsonResult<()> {
        if self.byte() == b'-' {
            self.at += 1;
        }
        if self.byte() == b'0' {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.byte() == b'.' {
            self.at += 1;
            self.digits()?;
        }
        if let b'e' | b'E' = self.byte() {
            self.at += 1;
            if let b'+' | b'-' = self.byte() {
                self.at += 1;
            }
            self.digits()?;
        }
        // A digit after a leading zero is rejected by the caller, which expects the end of the value.
        Ok(())
    }

    fn digits(&mut self) -> JsonResult<()> {
        let start = self.at;
        while self.byte().is_ascii_digit() {
            self.at += 1;
        }
        if self.at > start { Ok(()) } else { Err(self.syntax_error()) }
    }

    fn literal(&mut self, word: &str) -> JsonResult<()> {
        if !self.text.as_bytes()[self.at..].starts_with(word.as_bytes()) {
            return Err(self.syntax_error());
        }
        self.at += word.len();
        Ok(())
    }

    fn expect(&mut self, byte: u8) -> JsonResult<()> {
        if self.peek() != byte {
            return Err(self.syntax_error());
        }
        self.at += 1;
        Ok(())
    }

    fn enter(&mut self) -> JsonResult<()> {
        self.depth += 1;
        if self.depth > MAX_DEPTH { Err(self.syntax_error()) } else { Ok(()) }
    }

    fn leave(&mut self) -> JsonResult<()> {
        self.depth -= 1;
        self.at += 1;
        Ok(())
    }

    fn byte(&self) -> u8 {
        self.text.as_bytes().get(self.at).copied().unwrap_or(0)
    }

    fn syntax_error(&self) -> JsonSyntaxError {
        JsonSyntaxError(self.at)
    }
}

/// The number of bytes before the first quote, backslash or control character. Examines eight bytes at a time without
/// SIMD, because most strings are short.
fn plain_length(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::MAX / 255;
    const HIGH: u64 = ONES << 7;
    let mut at = 0;
    while let Some(&eight) = bytes[at..].first_chunk::<8>() {
        let word = u64::from_le_bytes(eight);
        let (quote, backslash) = (word ^ (ONES * 0x22), word ^ (ONES * 0x5c));
        // Each subtraction sets the high bit of every byte that is smaller than its subtrahend: a control character in
        // `word`, zero (a match) in `quote` and `backslash`. Bytes from 0x80 on may have the bit too; `!word` clears it.
        // The lowest remaining bit marks the first match, because a borrow affects only higher bytes.
        let found =
            (word.wrapping_sub(ONES * 0x20) | quote.wrapping_sub(ONES) | backslash.wrapping_sub(ONES))
                & !word
                & HIGH;
        if found != 0 {
            return at + found.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    let special = |&byte: &u8| byte < 0x20 || byte == b'"' || byte == b'\\';
    at + bytes[at..].iter().position(special).unwrap_or(bytes.len() - at)
}

/// The line and column of a byte offset, both counted from one.
pub(crate) fn line_and_column(text: &[u8], at: usize) -> (usize, usize) {
    let before = &text[..at.min(text.len())];
    let line = memchr::memchr_iter(b'\n', before).count();
    let start = memchr::memrchr(b'\n', before).map_or(0, |end| end + 1);
    (line + 1, before.len() - start + 1)
}

#[cfg(test)]
mod tests {
    use super::{JsonSyntaxError, Reader, Shape, line_and_column};
    use proptest::prelude::{Just, Strategy, any, prop, prop_oneof, proptest};
    use serde_json::value::RawValue;

    fn accepts(text: &str) -> bool {
        let mut reader = Reader::new(text);
        reader.skip().and_then(|()| reader.end()).is_ok()
    }

    fn assert_agreement(text: &str) {
        let serde = serde_json::from_str::<&RawValue>(text).is_ok();
        assert_eq!(accepts(text), serde, "{text:?}");
    }

    #[test]
    fn accepts_the_texts_that_serde_json_accepts() {
        for text in [
            "",
            " ",
            "null",
            "nul",
            "nulll",
            "true",
            "tru",
            "false",
            "0",
            "-0",
            "00",
            "01",
            "-",
            "1.",
            ".5",
            "1.5",
            "1e5",
            "1e",
            "1E+5",
            "1e-",
            "1.e5",
            "123456789012345678901234567890",
            "\"\"",
            "\"",
            "\"a",
            "\"\\\"",
            "\"\\\\\"",
            "\"\\u00e9\"",
            "\"\\u00g9\"",
            "\"\\ud800\"",
            "\"\\x\"",
            "\"\n\"",
            "\"\t\"",
            "\"\u{7f}\"",
            "\"é\"",
            "[]",
            "[",
            "]",
            "[1",
            "[1,",
            "[1,]",
            "[,1]",
            "[1 2]",
            "[1,2]",
            "{}",
            "{",
            "}",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1",
            "{\"a\":1,}",
            "{a:1}",
            "{\"a\":1 \"b\":2}",
            "{\"a\":1}x",
            " { \"a\" : [ 1 , { } ] } \r\n\t",
            "\u{feff}1",
            "1\u{0}",
            "/**/1",
            "'a'",
            "NaN",
            "+1",
        ] {
            assert_agreement(text);
        }
        for depth in [126, 127, 128, 129] {
            for text in [
                format!("{}{}", "[".repeat(depth), "]".repeat(depth)),
                format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth)),
            ] {
                assert_eq!(
                    accepts(&text),
                    serde_json::from_str::<serde_json::Value>(&text).is_ok(),
                    "{depth}"
                );
            }
        }
    }

    fn token() -> impl Strategy<Value = String> {
        let words = [
            "{", "}", "[", "]", ",", ":", "\"", "\\", "\\u12", "null", "true", "1", "-", ".", "e", " ", "\n",
        ];
        prop_oneof![
            prop::sample::select(words.to_vec()).prop_map(str::to_owned),
            any::<String>().prop_map(|text| serde_json::to_string(&text).unwrap()),
            any::<f64>().prop_map(|number| number.to_string()),
            Just("\"a\":1".to_owned()),
        ]
    }

    proptest! {
        #[test]
        fn accepts_any_text_that_serde_json_accepts(tokens in prop::collection::vec(token(), 0..12)) {
            assert_agreement(&tokens.concat());
        }

        #[test]
        fn reads_text_as_serde_json_does(text in any::<String>()) {
            let json = serde_json::to_string(&text).unwrap();
            let read = Reader::new(&json).text().unwrap().unwrap();
            assert_eq!(read.valid().map(|read| &**read), Some(&*text));
        }
    }

    #[test]
    fn a_syntax_error_has_its_offset() {
        let text = "{\n \"a\": 1,\n \"b\": x}";
        let error = Reader::new(text).skip();
        assert_eq!(error, Err(JsonSyntaxError(17)));
        assert_eq!(line_and_column(text.as_bytes(), 17), (3, 7));
        assert_eq!(Reader::new("\"\\ud800\"").text(), Ok(Some(Shape::Invalid)));
    }
}
