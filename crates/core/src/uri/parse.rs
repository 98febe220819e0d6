//! The grammar of RFC 3986, and the normal form of its sections 6.2.2 and 6.2.3.

use std::net::Ipv6Addr;

use super::percent::{self, hex, is_segment_byte};
use crate::{Error, Result, Uri};

/// Checks the text against the grammar and returns its normal form.
pub(super) fn normalise(text: &str) -> Result<String> {
    if text.len() > Uri::LIMIT {
        return Err(Error::Invalid(format!(
            "a URI of {} bytes exceeds the limit of {} bytes",
            text.len(),
            Uri::LIMIT
        )));
    }
    UriParser { text }.normalise().map_err(|wrong| wrong.into_error(text))
}

/// Whether the part of a path after a slash is certainly in normal form. The check is cheap, and returns `false` for
/// some normal paths too.
pub(super) fn is_plain(path: &str) -> bool {
    let mut before = b'/';
    for &byte in path.as_bytes() {
        let plain = match byte {
            b'/' | b'.' => before != b'/',
            _ => byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'~'),
        };
        if !plain {
            return false;
        }
        before = byte;
    }
    true
}

/// Whether a URI is certainly in normal form. The check is cheap: it accepts only `scheme://authority/path` without
/// escapes, query and fragment, and returns `false` for other normal URIs.
pub(super) fn is_normal(text: &str) -> bool {
    let bytes = text.as_bytes();
    let Some(colon) = bytes.iter().position(|&byte| byte == b':') else { return false };
    let (scheme, rest) = (&bytes[..colon], &bytes[colon + 1..]);
    let Some(rest) = rest.strip_prefix(b"//") else { return false };
    let Some(slash) = rest.iter().position(|&byte| byte == b'/') else { return false };
    let authority = &rest[..slash];
    let in_scheme = |byte: &u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'+' | b'-' | b'.');
    let in_authority = |byte: &u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_');
    scheme.first().is_some_and(u8::is_ascii_lowercase)
        && scheme.iter().all(in_scheme)
        && authority.iter().all(in_authority)
        // RFC 8089: `file://localhost/` and `file:///` are the same.
        && (authority.is_empty() || scheme != b"file")
        && is_plain(&text[colon + 3 + slash + 1..])
}

/// A syntax error and its byte offset.
struct SyntaxError {
    what: String,
    at: usize,
}

impl SyntaxError {
    fn new(what: impl Into<String>, at: usize) -> Self {
        Self { what: what.into(), at }
    }

    fn into_error(self, text: &str) -> Error {
        Error::Invalid(format!("not a URI: {} at byte {} of `{}`", self.what, self.at, excerpt(text)))
    }
}

/// The beginning of untrusted text for a message: short and without control characters.
pub(crate) fn excerpt(text: &str) -> String {
    const LIMIT: usize = 60;
    let mut out = String::new();
    for (count, character) in text.chars().enumerate() {
        // One character can become ten when escaped, so the length of the output is limited too.
        if count == LIMIT || out.len() > LIMIT + 20 {
            out.push('…');
            break;
        }
        out.extend(character.escape_debug());
    }
    out
}

struct UriParser<'a> {
    text: &'a str,
}

impl UriParser<'_> {
    fn normalise(&self) -> Result<String, SyntaxError> {
        let text = self.text;
        let colon = self.scheme()?;
        let mut out = String::with_capacity(text.len() + 1);
        out.push_str(&text[..=colon]);
        out.make_ascii_lowercase();
        let host = authority::has_host(&out[..colon]);
        let web = authority::is_web(&out[..colon]);

        let fragment = text.find('#').unwrap_or(text.len());
        let query = text[..fragment].find('?').unwrap_or(fragment);
        let mut path = colon + 1;
        let rooted = text[path..query].starts_with("//");
        if rooted {
            let start = path + 2;
            path = text[start..query].find('/').map_or(query, |slash| start + slash);
            out.push_str("//");
            self.authority(start, path, host, &mut out)?;
            // RFC 8089: `file://localhost/` and `file:///` are the same.
            if out == "file://localhost" {
                out.truncate("file://".len());
            }
        }

        let segments = self.component(path, query, |byte| byte == b'/' || is_segment_byte(byte), "a path")?;
        let segments = path::remove_dots(&segments);
        if segments.is_empty() && rooted && web {
            out.push('/');
        } else if !rooted && segments.starts_with("//") {
            // Without the dot, the path would parse as an authority.
            out.push_str("/.");
        }
        out.push_str(&segments);

        let tail = |byte| matches!(byte, b'/' | b'?') || is_segment_byte(byte);
        if query < fragment {
            out.push('?');
            out.push_str(&self.component(query + 1, fragment, tail, "a query")?);
        }
        if fragment < text.len() {
            out.push('#');
            out.push_str(&self.component(fragment + 1, text.len(), tail, "a fragment")?);
        }
        Ok(out)
    }

    /// Checks the scheme and returns the offset of the colon after it.
    fn scheme(&self) -> Result<usize, SyntaxError> {
        for (at, byte) in self.text.bytes().enumerate() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' => {}
                b'0'..=b'9' | b'+' | b'-' | b'.' if at > 0 => {}
                b':' if at > 0 => return Ok(at),
                b':' | b'/' | b'?' | b'#' => return Err(SyntaxError::new("no scheme", at)),
                _ => return Err(self.unexpected(at, "a scheme")),
            }
        }
        Err(SyntaxError::new("no scheme", self.text.len()))
    }

    /// Checks the authority between two offsets and appends its normal form to `out`. If `host` is true, the scheme
    /// is one whose authority has a host, and the host becomes lower case.
    fn authority(&self, start: usize, end: usize, host: bool, out: &mut String) -> Result<(), SyntaxError> {
        let text = self.text;
        let mut at = start;
        if let Some(sign) = text[start..end].find('@') {
            let user = |byte| byte != b'@' && is_segment_byte(byte);
            out.push_str(&self.component(start, start + sign, user, "user information")?);
            out.push('@');
            at = start + sign + 1;
        }
        let host_end = if text[at..end].starts_with('[') {
            let Some(bracket) = text[at..end].find(']') else {
                return Err(SyntaxError::new("a `[` that is not closed", at));
            };
            let literal = &text[at + 1..at + bracket];
            if literal.parse::<Ipv6Addr>().is_err() && !authority::is_future(literal) {
                return Err(SyntaxError::new("a malformed IP address", at + 1));
            }
            out.push_str(&cased(&text[at..=at + bracket], host));
            at + bracket + 1
        } else {
            let host_end = text[at..end].find(':').map_or(end, |colon| at + colon);
            let name = |byte| !matches!(byte, b':' | b'@') && is_segment_byte(byte);
            self.component(at, host_end, name, "a host")?;
            out.push_str(&percent::normalise(&text[at..host_end], host));
            host_end
        };
        if host_end == end {
            return Ok(());
        }
        if text.as_bytes()[host_end] != b':' {
            return Err(self.unexpected(host_end, "an authority after `]`"));
        }
        let port = &text[host_end + 1..end];
        if let Some(bad) = port.bytes().position(|byte| !byte.is_ascii_digit()) {
            return Err(self.unexpected(host_end + 1 + bad, "a port"));
        }
        let scheme_end = out.find(':').unwrap_or(0);
        if !authority::is_default_port(&out[..scheme_end], port) {
            out.push(':');
            out.push_str(port);
        }
        Ok(())
    }

    /// Checks every byte of a component and returns it with its escapes in normal form.
    fn component(
        &self,
        start: usize,
        end: usize,
        allowed: impl Fn(u8) -> bool,
        place: &str,
    ) -> Result<String, SyntaxError> {
        let bytes = self.text.as_bytes();
        let mut at = start;
        while at < end {
            if bytes[at] == b'%' {
                if at + 2 >= end || hex(bytes[at + 1]).is_none() || hex(bytes[at + 2]).is_none() {
                    return Err(SyntaxError::new("`%` without two hexadecimal digits", at));
                }
                at += 3;
            } else if allowed(bytes[at]) {
                at += 1;
            } else {
                return Err(self.unexpected(at, place));
            }
        }
        Ok(percent::normalise(&self.text[start..end], false))
    }

    fn unexpected(&self, at: usize, place: &str) -> SyntaxError {
        let what = match self.text[at..].chars().next() {
            Some(' ') => "a space".into(),
            Some(control) if control.is_control() => {
                format!("the control character U+{:04X}", u32::from(control))
            }
            Some(other) => format!("`{}`", other.escape_debug()),
            None => "the end".into(),
        };
        SyntaxError::new(format!("{what} cannot be in {place}:"), at)
    }
}

fn cased(text: &str, lower: bool) -> String {
    if lower { text.to_ascii_lowercase() } else { text.into() }
}

/// Rules for authorities by scheme.
pub(crate) mod authority {
    use crate::uri::percent::is_segment_byte;

    /// Whether the authority of this scheme is a host, which is case-insensitive.
    pub(crate) fn has_host(scheme: &str) -> bool {
        matches!(scheme, "http" | "https" | "ws" | "wss" | "ftp" | "file")
    }

    /// Whether an empty path equals `/` in this scheme.
    pub(crate) fn is_web(scheme: &str) -> bool {
        matches!(scheme, "http" | "https")
    }

    /// Whether this is the default port of the scheme.
    pub(crate) fn is_default_port(scheme: &str, port: &str) -> bool {
        matches!((scheme, port), ("http", "80" | "") | ("https", "443" | ""))
    }

    /// Whether this is an `IPvFuture` of the grammar.
    pub(super) fn is_future(literal: &str) -> bool {
        let Some((version, address)) = literal.strip_prefix(['v', 'V']).and_then(|rest| rest.split_once('.'))
        else {
            return false;
        };
        !version.is_empty()
            && version.bytes().all(|byte| byte.is_ascii_hexdigit())
            && !address.is_empty()
            && address.bytes().all(|byte| byte != b'@' && is_segment_byte(byte))
    }
}

/// Normalisation of paths.
pub(crate) mod path {
    /// The path without its `.` and `..` segments (RFC 3986, 5.2.4).
    pub(crate) fn remove_dots(path: &str) -> String {
        let mut out = String::with_capacity(path.len());
        let mut rest = path;
        // RFC 3986, 5.2.4 step A: remove a leading `./` or `../`.
        loop {
            match rest.strip_prefix("../").or_else(|| rest.strip_prefix("./")) {
                Some(after) => rest = after,
                None if matches!(rest, "." | "..") => return out,
                None => break,
            }
        }
        while !rest.is_empty() {
            let end = rest[1..].find('/').map_or(rest.len(), |slash| slash + 1);
            let (segment, after) = rest.split_at(end);
            match segment {
                "/." | "/.." => {
                    if segment == "/.." {
                        out.truncate(out.rfind('/').unwrap_or(0));
                    }
                    if after.is_empty() {
                        out.push('/');
                    }
                }
                segment => out.push_str(segment),
            }
            rest = after;
        }
        out
    }
}
