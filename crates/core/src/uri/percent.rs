//! Percent-encoding.

/// What may stand unescaped in a path segment.
pub(crate) fn segment(byte: u8) -> bool {
    unreserved(byte) || matches!(byte, b'!' | b'$' | b'&'..=b',' | b';' | b'=' | b':' | b'@')
}

/// What is the same escaped or not.
pub(crate) fn unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// Writes a byte as an escape.
pub(crate) fn escape(byte: u8, out: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    out.push('%');
    out.push(char::from(DIGITS[usize::from(byte >> 4)]));
    out.push(char::from(DIGITS[usize::from(byte & 15)]));
}

/// The value of a hexadecimal digit.
pub(crate) fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

/// The byte that two hexadecimal digits, already checked, stand for.
pub(crate) fn byte(high: u8, low: u8) -> u8 {
    hex(high).unwrap_or(0) << 4 | hex(low).unwrap_or(0)
}

/// Whether two hexadecimal digits follow a `%` here.
pub(crate) fn is_escape(bytes: &[u8]) -> bool {
    matches!(bytes, [b'%', high, low, ..] if hex(*high).is_some() && hex(*low).is_some())
}

/// Escapes in upper case, those of unreserved characters decoded, and letters in lower case if asked.
pub(crate) fn normalise(text: &str, lower: bool) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        let mut length = character.len_utf8();
        let mut plain = Some(character);
        if is_escape(rest.as_bytes()) {
            let byte = byte(rest.as_bytes()[1], rest.as_bytes()[2]);
            length = 3;
            plain = unreserved(byte).then_some(char::from(byte));
            if plain.is_none() {
                escape(byte, &mut out);
            }
        }
        out.extend(plain.map(|plain| if lower { plain.to_ascii_lowercase() } else { plain }));
        rest = &rest[length..];
    }
    out
}

/// What has a meaning of its own somewhere in a URI.
pub(crate) fn reserved(byte: u8) -> bool {
    matches!(
        byte,
        b':' | b'/' | b'?' | b'#' | b'[' | b']' | b'@' | b'!' | b'$' | b'&' | b'\''..=b',' | b';' | b'='
    )
}

/// The text that percent-encoded text stands for; `None` if it is not UTF-8 or an escape is malformed.
pub(crate) fn decode(text: &str) -> Option<String> {
    String::from_utf8(crate::Uri::decode_segment(text)?).ok()
}
