//! Decodes text files to UTF-8.

use encoding_rs::{Encoding, UTF_8, WINDOWS_1252};

/// Decodes a file: by its byte order mark, otherwise with the declared encoding. If the declared encoding is UTF-8 or
/// unknown, or none is declared, the file is decoded as UTF-8 if it is valid UTF-8, otherwise as Windows-1252.
pub(super) fn decode(data: &[u8], declared: Option<&str>) -> String {
    if let Some((encoding, _)) = Encoding::for_bom(data) {
        return encoding.decode(data).0.into_owned();
    }
    let declared = declared.and_then(|label| Encoding::for_label(label.as_bytes()));
    match declared {
        Some(encoding) if encoding != UTF_8 => encoding.decode(data).0.into_owned(),
        _ => match std::str::from_utf8(data) {
            Ok(text) => text.to_owned(),
            Err(_) => WINDOWS_1252.decode(data).0.into_owned(),
        },
    }
}
