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
pub(crate) struct Broken(pub(crate) usize);

type JsonResult<T> = Result<T, Broken>;

/// The reader of one JSON text.
pub(crate) struct Reader<'a> {
    text: &'a str,
    at: usize,
    depth: u8,
}

/// A value that should have a certain type. A `null` counts as absent instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shape<T> {
    Right(T),
    Wrong,
}

impl<T> Shape<T> {
    pub(crate) fn right(&self) -> Option<&T> {
        match self {
            Self::Right(value) => Some(value),
            Self::Wrong => None,
        }
    }
}

/// A value that should be a string.
pub(crate) type Text<'a> = Shape<Cow<'a, str>>;

impl<'a> Reader<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, at: 0, depth: 0 }
    }

    /// The first byte of the next value, after white space; 0 at the end.
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
        if self.at == self.text.len() { Ok(()) } else { Err(self.broken()) }
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

    /// Reads the next value, which should be a string; `None` for `null`.
    pub(crate) fn text(&mut self) -> JsonResult<Option<Text<'a>>> {
        match self.peek() {
            b'"' => self.string().map(|text| Some(text.map_or(Shape::Wrong, Shape::Right))),
            b'n' => self.skip().map(|()| None),
            _ => self.skip().map(|()| Some(Shape::Wrong)),
        }
    }

    /// Reads the next value, which should be an object, with `read`; `None` for `null`.
    pub(crate) fn shape<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> JsonResult<T>,
    ) -> JsonResult<Option<Shape<T>>> {
        match self.peek() {
            b'{' => read(self).map(|value| Some(Shape::Right(value))),
            b'n' => self.skip().map(|()| None),
            _ => self.skip().map(|()| Some(Shape::Wrong)),
        }
    }

    /// Reads an object: `member` is called for each name, and must read one value.
    pub(crate) fn object(
        &mut self,
        mut member: impl FnMut(&mut Self, &str) -> JsonResult<()>,
    ) -> JsonResult<()> {
        self.expect(b'{')?;
        self.go_down()?;
        if self.peek() == b'}' {
            return self.go_up();
        }
        loop {
            if self.peek() != b'"' {
                return Err(self.broken());
            }
            let start = self.at;
            let (inner, escaped) = self.span()?;
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
                b'}' => return self.go_up(),
                _ => return Err(self.broken()),
            }
        }
    }

    /// Reads an array: `item` is called for each value, and must read it.
    pub(crate) fn array(&mut self, mut item: impl FnMut(&mut Self) -> JsonResult<()>) -> JsonResult<()> {
        self.expect(b'[')?;
        self.go_down()?;
        if self.peek() == b']' {
            return self.go_up();
        }
        loop {
            item(self)?;
            match self.peek() {
                b',' => self.at += 1,
                b']' => return self.go_up(),
                _ => return Err(self.broken()),
            }
        }
    }

    /// Reads the next value and discards it.
    pub(crate) fn skip(&mut self) -> JsonResult<()> {
        match self.peek() {
            b'"' => self.span().map(drop),
            b'{' => self.object(|reader, _| reader.skip()),
            b'[' => self.array(Self::skip),
            b'-' | b'0'..=b'9' => self.number(),
            b't' => self.word("true"),
            b'f' => self.word("false"),
            b'n' => self.word("null"),
            _ => Err(self.broken()),
        }
    }

    /// Reads and unescapes a string; `None` if it is well-formed but contains an unpaired surrogate.
    fn string(&mut self) -> JsonResult<Option<Cow<'a, str>>> {
        let start = self.at;
        let (inner, escaped) = self.span()?;
        if !escaped {
            return Ok(Some(Cow::Borrowed(inner)));
        }
        Ok(self.unescaped(start).map(Cow::Owned))
    }

    /// The string that was read since this offset, with its escapes; `None` if it contains an unpaired surrogate.
    fn unescaped(&self, start: usize) -> Option<String> {
        serde_json::from_str(&self.text[start..self.at]).ok()
    }

    /// Reads a string. Returns the JSON between its quotes, and whether it contains escapes.
    fn span(&mut self) -> JsonResult<(&'a str, bool)> {
        self.at += 1;
        let start = self.at;
        let bytes = self.text.as_bytes();
        let mut escaped = false;
        loop {
            self.at += plain(&bytes[self.at..]);
            match self.byte() {
                b'"' => {
                    self.at += 1;
                    return Ok((&self.text[start..self.at - 1], escaped));
                }
                b'\\' => self.at += 1,
                _ => return Err(self.broken()),
            }
            escaped = true;
            match self.byte() {
                b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => self.at += 1,
                b'u' => {
                    let digits = bytes.get(self.at + 1..self.at + 5);
                    if !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) {
                        return Err(self.broken());
                    }
                    self.at += 5;
                }
                _ => return Err(self.broken()),
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
        if self.at > start { Ok(()) } else { Err(self.broken()) }
    }

    fn word(&mut self, word: &str) -> JsonResult<()> {
        if !self.text.as_bytes()[self.at..].starts_with(word.as_bytes()) {
            return Err(self.broken());
        }
        self.at += word.len();
        Ok(())
    }

    fn expect(&mut self, byte: u8) -> JsonResult<()> {
        if self.peek() != byte {
            return Err(self.broken());
        }
        self.at += 1;
        Ok(())
    }

    fn go_down(&mut self) -> JsonResult<()> {
        self.depth += 1;
        if self.depth > MAX_DEPTH { Err(self.broken()) } else { Ok(()) }
    }

    fn go_up(&mut self) -> JsonResult<()> {
        self.depth -= 1;
        self.at += 1;
        Ok(())
    }

    fn byte(&self) -> u8 {
        self.text.as_bytes().get(self.at).copied().unwrap_or(0)
    }

    fn broken(&self) -> Broken {
        Broken(self.at)
    }
}

/// The number of bytes before the first quote, backslash or control character. Examines eight bytes at a time, since
/// most strings are short.
fn plain(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::MAX / 255;
    const HIGH: u64 = ONES << 7;
    let mut at = 0;
    while let Some(&eight) = bytes[at..].first_chunk::<8>() {
        let word = u64::from_le_bytes(eight);
        let (quote, backslash) = (word ^ (ONES * 0x22), word ^ (ONES * 0x5c));
        // The subtraction sets the high bit of every byte that is too small. Bytes from 0x80 on may have it too, which
        // `!word` removes. The lowest remaining bit marks the first match: a borrow can set bits only above it.
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
pub(crate) fn place(text: &[u8], at: usize) -> (usize, usize) {
    let before = &text[..at.min(text.len())];
    let line = memchr::memchr_iter(b'\n', before).count();
    let start = memchr::memrchr(b'\n', before).map_or(0, |end| end + 1);
    (line + 1, before.len() - start + 1)
}

#[cfg(test)]
mod tests {
    use super::{Broken, Reader, Shape, place};
    use proptest::prelude::{Just, Strategy, any, prop, prop_oneof, proptest};
    use serde_json::value::RawValue;

    fn takes(text: &str) -> bool {
        let mut reader = Reader::new(text);
        reader.skip().and_then(|()| reader.end()).is_ok()
    }

    fn agrees(text: &str) {
        let serde = serde_json::from_str::<&RawValue>(text).is_ok();
        assert_eq!(takes(text), serde, "{text:?}");
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
            agrees(text);
        }
        for depth in [126, 127, 128, 129] {
            for text in [
                format!("{}{}", "[".repeat(depth), "]".repeat(depth)),
                format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth)),
            ] {
                assert_eq!(takes(&text), serde_json::from_str::<serde_json::Value>(&text).is_ok(), "{depth}");
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
            agrees(&tokens.concat());
        }

        #[test]
        fn reads_text_as_serde_json_does(text in any::<String>()) {
            let json = serde_json::to_string(&text).unwrap();
            let read = Reader::new(&json).text().unwrap().unwrap();
            assert_eq!(read.right().map(|read| &**read), Some(&*text));
        }
    }

    #[test]
    fn errors_have_the_offset() {
        let text = "{\n \"a\": 1,\n \"b\": x}";
        let broken = Reader::new(text).skip();
        assert_eq!(broken, Err(Broken(17)));
        assert_eq!(place(text.as_bytes(), 17), (3, 7));
        assert_eq!(Reader::new("\"\\ud800\"").text(), Ok(Some(Shape::Wrong)));
    }
}
