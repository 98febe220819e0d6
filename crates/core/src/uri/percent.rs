//! Percent-encoding.

/// Whether a byte may be unescaped in a path segment (`pchar`).
pub(crate) fn is_segment_byte(byte: u8) -> bool {
    is_unreserved(byte) || matches!(byte, b'!' | b'$' | b'&'..=b',' | b';' | b'=' | b':' | b'@')
}

/// Whether a byte is an unreserved character, which is equivalent to its escape.
pub(crate) fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// Appends the percent escape of a byte.
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

/// The byte of two valid hexadecimal digits.
pub(crate) fn byte(high: u8, low: u8) -> u8 {
    hex(high).unwrap_or(0) << 4 | hex(low).unwrap_or(0)
}

/// Whether the bytes begin with a valid percent escape.
pub(crate) fn is_escape(bytes: &[u8]) -> bool {
    matches!(bytes, [b'%', high, low, ..] if hex(*high).is_some() && hex(*low).is_some())
}

/// Normalises escapes: their digits become upper case, and unreserved characters are decoded. If `lower` is true, letters
/// outside of escapes become lower case.
pub(crate) fn normalise(text: &str, lower: bool) -> String {
    let mut out = String::with_capacity(text.len());
    let push = |out: &mut String, plain: &str| {
        let start = out.len();
        out.push_str(plain);
        if lower {
            out[start..].make_ascii_lowercase();
        }
    };
    let mut rest = text;
    while let Some(percent) = rest.find('%') {
        push(&mut out, &rest[..percent]);
        rest = &rest[percent..];
        let mut length = 1;
        if is_escape(rest.as_bytes()) {
            length = 3;
            match byte(rest.as_bytes()[1], rest.as_bytes()[2]) {
                byte if is_unreserved(byte) => push(&mut out, char::from(byte).encode_utf8(&mut [0])),
                byte => escape(byte, &mut out),
            }
        } else {
            out.push('%');
        }
        rest = &rest[length..];
    }
    push(&mut out, rest);
    out
}

/// Whether a byte is a reserved character of RFC 3986.
pub(crate) fn is_reserved(byte: u8) -> bool {
    matches!(
        byte,
        b':' | b'/' | b'?' | b'#' | b'[' | b']' | b'@' | b'!' | b'$' | b'&' | b'\''..=b',' | b';' | b'='
    )
}

/// Decodes percent-encoded text; `None` if it is not UTF-8 or an escape is malformed.
pub(crate) fn decode(text: &str) -> Option<String> {
    String::from_utf8(crate::Uri::decode_segment(text)?).ok()
}
