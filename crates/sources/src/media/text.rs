//! Distinguishing text from binary data, and decoding legacy encodings to UTF-8.

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{Encoding, UTF_16BE, UTF_16LE};

/// The treatment of data that is neither UTF-8 nor has the byte order mark of UTF-16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LegacyEncoding {
    /// Detect its encoding.
    Guess,
    /// Treat it as binary.
    Refuse,
}

const UTF_8_MARK: &[u8] = b"\xef\xbb\xbf";

/// Decodes data, without its byte order mark. Returns the data unchanged if it is not text.
pub(super) fn decode(data: Vec<u8>, legacy: LegacyEncoding) -> Result<String, Vec<u8>> {
    if let Some(encoding) = CodeUnits::of(&data).encoding() {
        return match decode_strictly(encoding, &data[2..]) {
            Some(text) => Ok(text),
            None => Err(data),
        };
    }
    if memchr::memchr(0, &data).is_some() {
        return Err(data);
    }
    match String::from_utf8(data) {
        Ok(mut text) => {
            if text.as_bytes().starts_with(UTF_8_MARK) {
                text.drain(..UTF_8_MARK.len());
            }
            Ok(text)
        }
        Err(error) => {
            let data = error.into_bytes();
            match legacy {
                LegacyEncoding::Guess => decode_guessed(&[], &data).ok_or(data),
                LegacyEncoding::Refuse => Err(data),
            }
        }
    }
}

/// How much of a text is sampled to detect its encoding, in bytes.
const SAMPLE_BYTES: usize = 256 * 1024;

/// Decodes a range of a file that begins with `head`; `None` if the range is not text.
#[cfg(any(feature = "files", feature = "git"))]
pub(super) fn decode_range(head: &[u8], range: Vec<u8>) -> Option<String> {
    if let Some(encoding) = CodeUnits::of(head).encoding() {
        let marked = CodeUnits::of(&range).encoding() == Some(encoding);
        return decode_strictly(encoding, if marked { &range[2..] } else { &range });
    }
    // The beginning of the file is a better sample of its encoding than a few lines.
    decode(range, LegacyEncoding::Refuse).or_else(|range| decode_guessed(head, &range).ok_or(())).ok()
}

/// Whether the head of a file, which may end within a character, is text.
pub(super) fn looks_like_text(head: &[u8]) -> bool {
    if let Some(encoding) = CodeUnits::of(head).encoding() {
        // The head may end within a code unit or a surrogate pair.
        return (0..4).any(|cut| {
            head.len() >= 2 + cut && decode_strictly(encoding, &head[2..head.len() - cut]).is_some()
        });
    }
    match std::str::from_utf8(head) {
        Ok(text) => has_no_nul(text),
        Err(error) if error.error_len().is_none() && error.valid_up_to() > 0 => {
            // The head ends within a character, or with a single character of a legacy encoding: text either way.
            std::str::from_utf8(&head[..error.valid_up_to()]).is_ok_and(has_no_nul)
        }
        // The head may also end within a two-byte character of a legacy encoding.
        Err(_) => {
            let (last, before) = (head[head.len() - 1], &head[..head.len() - 1]);
            decode_guessed(&[], head).is_some() || (last >= 0x80 && decode_guessed(&[], before).is_some())
        }
    }
}

/// Whether UTF-8 data has no NUL byte. Text never has one.
pub(super) fn has_no_nul(text: &str) -> bool {
    memchr::memchr(0, text.as_bytes()).is_none()
}

/// Decodes text in a legacy encoding, which is detected from the data and the text before it.
fn decode_guessed(before: &[u8], data: &[u8]) -> Option<String> {
    // Any bytes are valid Windows-1252, so without this every small binary file would be text.
    let control = |byte: &u8| matches!(byte, 0..=8 | 0x0b | 0x0e..=0x1a | 0x1c..=0x1f | 0x7f);
    if data.is_empty() || data.iter().any(control) {
        return None;
    }
    let mut detector = EncodingDetector::new(Iso2022JpDetection::Deny);
    detector.feed(before, false);
    let sample = &data[..data.len().min(SAMPLE_BYTES)];
    detector.feed(sample, sample.len() == data.len());
    decode_strictly(detector.guess(None, Utf8Detection::Deny), data)
}

fn decode_strictly(encoding: &'static Encoding, data: &[u8]) -> Option<String> {
    let text = encoding.decode_without_bom_handling_and_without_replacement(data)?;
    // Binary data that is decoded from a single-byte encoding usually has C1 control characters.
    let odd = |letter: char| letter == '\0' || ('\u{80}'..='\u{9f}').contains(&letter);
    (!text.contains(odd)).then(|| text.into_owned())
}

/// The code units of a text, which determine the bytes of its line terminators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CodeUnits {
    /// Bytes, as in UTF-8 and the legacy encodings. In all of them, the byte of `\n` occurs only in line
    /// terminators.
    Bytes,
    /// UTF-16, little-endian.
    Little,
    /// UTF-16, big-endian.
    Big,
}

impl CodeUnits {
    /// The code units of a text that begins with `head`, by its byte order mark.
    pub(crate) fn of(head: &[u8]) -> Self {
        match head {
            [0xff, 0xfe, ..] => Self::Little,
            [0xfe, 0xff, ..] => Self::Big,
            _ => Self::Bytes,
        }
    }

    fn encoding(self) -> Option<&'static Encoding> {
        match self {
            Self::Bytes => None,
            Self::Little => Some(UTF_16LE),
            Self::Big => Some(UTF_16BE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{LegacyEncoding, decode, looks_like_text};

    #[test]
    fn encodings_are_converted_to_utf_8() {
        let cases: &[(&[u8], &str)] = &[
            (b"\xef\xbb\xbfmark", "mark"),
            (b"\xff\xfeh\0\xe9\0", "h\u{e9}"),
            (b"\xfe\xff\0h\0\xe9", "h\u{e9}"),
            (b"Caf\xe9 cr\xe8me br\xfbl\xe9e, d\xe9j\xe0 vu\n", "Caf\u{e9} cr\u{e8}me br\u{fb}l\u{e9}e, d\u{e9}j\u{e0} vu\n"),
            (
                b"\x82\xb1\x82\xea\x82\xcd\x93\xfa\x96\x7b\x8c\xea\x82\xcc\x83\x65\x83\x4c\x83\x58\x83\x67\x82\xc5\x82\xb7\x81\x42\n",
                "これは日本語のテキストです。\n",
            ),
        ];
        for (data, text) in cases {
            assert_eq!(decode(data.to_vec(), LegacyEncoding::Guess).as_deref(), Ok(*text));
            assert!(looks_like_text(data), "{text}");
        }
    }

    #[test]
    fn binary_data_is_returned_unchanged() {
        for data in [&b"a\0b"[..], b"\xff\xfe\0", b"\x01\x02\xff", b"\xff\xfe\0\0a\0\0\0"] {
            assert_eq!(decode(data.to_vec(), LegacyEncoding::Guess), Err(data.to_vec()));
        }
        assert_eq!(decode(b"caf\xe9".to_vec(), LegacyEncoding::Refuse), Err(b"caf\xe9".to_vec()));
        assert!(!looks_like_text(b"\x89PNG\r\n\x1a\n\0"));
    }

    #[test]
    fn a_head_may_end_inside_a_character() {
        let text = "naïve 日本語 text".as_bytes();
        for end in 0..=text.len() {
            assert!(looks_like_text(&text[..end]), "{end}");
        }
        let wide: Vec<u8> =
            [0xff, 0xfe].into_iter().chain("a😀b".encode_utf16().flat_map(u16::to_le_bytes)).collect();
        for end in 2..=wide.len() {
            assert!(looks_like_text(&wide[..end]), "{end}");
        }
    }
}
