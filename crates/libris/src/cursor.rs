//! Cursors: opaque to clients, and to us the place after which the next page begins.
//!
//! A cursor names the last item of a page, not a number of items, so it stays right while items come
//! and go, after a restart, and on another replica. It carries a checksum and the kind of list it is
//! for, so that a garbled or foreign one is an error rather than a wrong page.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// What a cursor pages through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListKind {
    Resources = b'r' as isize,
    Templates = b't' as isize,
}

/// The cursor for what follows `last`.
pub(crate) fn encode(kind: ListKind, last: &str) -> String {
    let mut bytes = Vec::with_capacity(last.len() + 9);
    bytes.push(kind as u8);
    bytes.extend_from_slice(last.as_bytes());
    bytes.extend_from_slice(&checksum(&bytes).to_le_bytes());
    URL_SAFE_NO_PAD.encode(bytes)
}

/// What `cursor` follows, if it is one of ours and for this kind of list.
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

/// FNV-1a. A cursor grants nothing, so the checksum guards against accidents, not against forgers.
fn checksum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::{ListKind, decode, encode};

    #[test]
    fn cursors_lead_back_and_others_do_not() {
        let cursor = encode(ListKind::Resources, "file:///a/b%20c");
        assert_eq!(decode(ListKind::Resources, &cursor).as_deref(), Some("file:///a/b%20c"));
        assert_eq!(decode(ListKind::Templates, &cursor), None);
        for forged in ["", "x", "eyJwYWdlIjogMn0=", &cursor[1..], &format!("{cursor}A"), "ü"] {
            assert_eq!(decode(ListKind::Resources, forged), None, "{forged}");
        }
    }
}
