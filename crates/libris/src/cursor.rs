//! Cursors for keyset pagination, opaque to clients.
//!
//! A cursor encodes the last item of a page, not an offset, so it stays valid while items are added and removed, after
//! a restart, and on another replica. A cursor also contains a checksum, which detects corruption, and the kind of its
//! list, which detects a cursor of another list.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// The list that a cursor belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListKind {
    Resources = b'r' as isize,
    Templates = b't' as isize,
    Children = b'd' as isize,
    Skills = b's' as isize,
    Prompts = b'p' as isize,
    Tools = b'o' as isize,
    /// The entries of a folder, which a tool lists.
    Entries = b'e' as isize,
}

/// Encodes the cursor of the page after `last`.
pub(crate) fn encode(kind: ListKind, last: &str) -> String {
    let mut bytes = Vec::with_capacity(last.len() + 9);
    bytes.push(kind as u8);
    bytes.extend_from_slice(last.as_bytes());
    bytes.extend_from_slice(&checksum(&bytes).to_le_bytes());
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Decodes the last item of the previous page; `None` if the cursor is corrupted or of another list.
pub(crate) fn decode(kind: ListKind, cursor: &str) -> Option<String> {
    let mut bytes = URL_SAFE_NO_PAD.decode(cursor).ok()?;
    let (content, sum) = bytes.split_last_chunk::<8>()?;
    if checksum(content).to_le_bytes() != *sum || *content.first()? != kind as u8 {
        return None;
    }
    bytes.truncate(bytes.len() - 8);
    bytes.remove(0);
    String::from_utf8(bytes).ok()
}

/// FNV-1a. A cursor grants no rights, so the checksum detects corruption and need not resist forgery.
fn checksum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::{ListKind, checksum, decode, encode};
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    #[test]
    fn cursors_round_trip_and_corrupted_ones_are_detected() {
        let cursor = encode(ListKind::Resources, "file:///a/b%20c");
        assert_eq!(decode(ListKind::Resources, &cursor).as_deref(), Some("file:///a/b%20c"));
        assert_eq!(decode(ListKind::Templates, &cursor), None);
        for forged in ["", "x", "eyJwYWdlIjogMn0=", &cursor[1..], &format!("{cursor}A"), "ü"] {
            assert_eq!(decode(ListKind::Resources, forged), None, "{forged}");
        }
    }

    const ALL: [ListKind; 5] =
        [ListKind::Resources, ListKind::Templates, ListKind::Children, ListKind::Skills, ListKind::Prompts];

    #[test]
    fn cursors_lead_back_exactly() {
        for last in ["", "a", "file:///docs/", "a:%2F%20?x=1#y", "a:\u{e4}\u{1f600}", &"a".repeat(8_000)] {
            for kind in ALL {
                let cursor = encode(kind, last);
                assert!(cursor.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)));
                assert_eq!(decode(kind, &cursor).as_deref(), Some(last));
            }
        }
    }

    #[test]
    fn a_garbled_cursor_is_refused() {
        let cursor = encode(ListKind::Resources, "file:///a/b/c/d/e");
        let bytes = URL_SAFE_NO_PAD.decode(&cursor).unwrap();
        let refused = |bytes: &[u8]| decode(ListKind::Resources, &URL_SAFE_NO_PAD.encode(bytes)).is_none();
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                assert!(refused(&flipped), "bit {bit} of byte {at}");
            }
            if at + 1 < bytes.len() && bytes[at] != bytes[at + 1] {
                let mut swapped = bytes.clone();
                swapped.swap(at, at + 1);
                assert!(refused(&swapped), "bytes {at} and the next swapped");
            }
            assert!(refused(&bytes[..at]), "cut at {at}");
        }
        let padded = encode(ListKind::Resources, "a:1");
        assert_eq!(padded.len() % 4, 0);
        for padding in ["=", "==", "===="] {
            assert_eq!(decode(ListKind::Resources, &format!("{padded}{padding}")), None);
            assert_eq!(decode(ListKind::Resources, &format!("{cursor}{padding}")), None);
        }
    }

    #[test]
    fn a_forged_checksum_does_not_make_a_cursor() {
        for content in [&b""[..], b"r\xff", b"rfile:///\xc3"] {
            let bytes = [content, &checksum(content).to_le_bytes()].concat();
            assert_eq!(decode(ListKind::Resources, &URL_SAFE_NO_PAD.encode(bytes)), None, "{content:?}");
        }
    }
}
