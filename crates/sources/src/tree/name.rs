//! Conversion of file names to URI segments and back.

use std::ffi::{OsStr, OsString};
use std::path::{Component, Path};

use libris_core::Uri;

/// A file name as a URI segment; `None` if it is not Unicode, on systems other than Unix.
pub(crate) fn to_segment(name: &OsStr) -> Option<String> {
    bytes(name).map(Uri::encode_segment)
}

/// The file name that a URI segment encodes; `None` if it encodes no file name, for example `..` or `a%2Fb`.
pub(crate) fn from_segment(segment: &str) -> Option<OsString> {
    let decoded = Uri::decode_segment(segment)?;
    if decoded.contains(&0) || decoded.contains(&b'/') {
        return None;
    }
    let name = from_bytes(decoded)?;
    // On Windows this also rejects `\`, drive letters and other prefixes.
    let mut components = Path::new(&name).components();
    match (components.next(), components.next()) {
        (Some(Component::Normal(only)), None) if only == name => {}
        _ => return None,
    }
    (!cfg!(windows) || name.to_str().is_some_and(is_windows_file_name)).then_some(name)
}

/// Whether a file system with several spellings of a name may find the entry of one URI segment by the other. Errs on the
/// side of `true`.
pub(super) fn may_be_spelled(listed: &str, other: &str) -> bool {
    let (Some(one), Some(two)) = (Uri::decode_segment(listed), Uri::decode_segment(other)) else {
        return true;
    };
    // Case folding and normalisation can change every other character, and short names contain a tilde.
    !one.is_ascii() || !two.is_ascii() || one.eq_ignore_ascii_case(&two) || two.contains(&b'~')
}

/// Whether Windows can have a file of this name. It resolves other names to something else: `NUL` and `com1.txt` to
/// devices, `a:b` to a stream of the file `a`, and `a.` and `a ` to the file `a`.
fn is_windows_file_name(name: &str) -> bool {
    const DEVICES: [&str; 6] = ["AUX", "CON", "CONIN$", "CONOUT$", "NUL", "PRN"];
    let stem = name.split('.').next().unwrap_or_default().trim_end_matches(' ').to_ascii_uppercase();
    let port = stem.strip_prefix("COM").or_else(|| stem.strip_prefix("LPT"));
    // Windows takes superscript digits for digits here.
    let is_port = port.is_some_and(|number| {
        let mut letters = number.chars();
        let digit = letters.next().is_some_and(|letter| letter.is_ascii_digit() || "¹²³".contains(letter));
        digit && letters.next().is_none()
    });
    let is_reserved = |letter: char| {
        letter.is_ascii_control() || matches!(letter, '<' | '>' | ':' | '"' | '/' | '\\' | '|' | '?' | '*')
    };
    !DEVICES.contains(&&*stem) && !is_port && !name.ends_with(['.', ' ']) && !name.contains(is_reserved)
}

#[cfg(unix)]
fn bytes(name: &OsStr) -> Option<&[u8]> {
    use std::os::unix::ffi::OsStrExt;
    Some(name.as_bytes())
}

#[cfg(not(unix))]
fn bytes(name: &OsStr) -> Option<&[u8]> {
    name.to_str().map(str::as_bytes)
}

#[cfg(unix)]
fn from_bytes(bytes: Vec<u8>) -> Option<OsString> {
    use std::os::unix::ffi::OsStringExt;
    Some(OsString::from_vec(bytes))
}

#[cfg(not(unix))]
fn from_bytes(bytes: Vec<u8>) -> Option<OsString> {
    String::from_utf8(bytes).ok().map(OsString::from)
}

#[cfg(test)]
mod tests {
    use super::{from_segment, is_windows_file_name, to_segment};

    #[test]
    fn names_round_trip() {
        for name in ["a b", "100%", "a#b?c;d:e", "日本", "new\nline", ".hidden", "a.", "~", "*"] {
            let segment = to_segment(name.as_ref()).unwrap();
            let expected = (!cfg!(windows) || is_windows_file_name(name)).then(|| name.into());
            assert_eq!(from_segment(&segment), expected, "{segment}");
        }
    }

    #[test]
    fn names_that_windows_resolves_to_something_else_are_recognised() {
        let devices = ["NUL", "nul", "nul.txt", "NUL .txt", "con", "Aux.tar.gz", "PRN", "CONIN$", "conout$"];
        let ports = ["COM1", "com9.log", "LPT0", "lpt1", "COM¹", "LPT³.txt"];
        let others = [
            "a.", "a ", "a:b", "a::$DATA", "C:", "a\\b", "a/b", "a?b", "a*", "a<b", "a|b", "a\"b", "a\nb",
            "...",
        ];
        for name in devices.iter().chain(&ports).chain(&others) {
            assert!(!is_windows_file_name(name), "{name}");
        }
        for name in [
            "a",
            "a b",
            ".git",
            "null",
            "nul_",
            "console.log",
            "COM",
            "com10",
            "COM1x",
            "lptx",
            "aux-1",
            "日本",
            "a..b",
        ] {
            assert!(is_windows_file_name(name), "{name}");
        }
    }

    #[test]
    fn segments_that_are_not_a_single_component_are_rejected() {
        for segment in ["", ".", "..", "%2e%2E", "a%2Fb", "%2F", "a%00", "%", "%zz", "..%2f"] {
            assert_eq!(from_segment(segment), None, "{segment}");
        }
    }
}
