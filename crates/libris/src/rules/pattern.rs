//! URI patterns, and the normal form of URIs that they are compared with.

use std::borrow::Cow;
use std::fmt;

use libris_core::{Error, Result, Uri};

/// A pattern of URIs, such as `file:///handbook/**` or `git://*/tree/*/secrets/*.key`.
///
/// `*` stands for any characters within a path segment, or within the authority. A segment `**` stands for any number
/// of segments: a pattern that ends in `/**` matches the URI before it and everything below. `**` alone matches every
/// URI. Other characters stand for themselves; percent-encoded and literal characters are equal, and so are URIs with
/// and without a slash at the end.
#[derive(Clone, PartialEq, Eq)]
pub struct UriPattern {
    text: Box<str>,
    /// The bytes before the first wildcard.
    literal: Box<[u8]>,
    /// The tokens from the first wildcard on.
    rest: Box<[PatternToken]>,
    /// The bytes after the last wildcard, with which every match ends. Most URIs are ruled out by them, without a
    /// simulation of the automaton.
    suffix: Box<[u8]>,
}

/// One element of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PatternToken {
    /// This byte.
    Byte(u8),
    /// `*`: any bytes but slashes.
    Star,
    /// `**/`: any number of segments, each with the slash after it.
    Segments,
    /// `/**` at the end: nothing, or a slash and anything.
    Below,
    /// The pattern `**`: anything.
    Anything,
}

impl PatternToken {
    /// The byte that the token stands for; `None` for a wildcard.
    fn byte(&self) -> Option<u8> {
        match self {
            Self::Byte(byte) => Some(*byte),
            _ => None,
        }
    }
}

impl UriPattern {
    /// The pattern that matches every URI.
    pub fn everything() -> Self {
        let (literal, suffix) = (Box::default(), Box::default());
        Self { text: "**".into(), literal, rest: [PatternToken::Anything].into(), suffix }
    }

    /// Parses a pattern.
    pub fn parse(text: &str) -> Result<Self> {
        if text == "**" {
            return Ok(Self::everything());
        }
        if text.contains(['?', '#']) {
            return Err(Error::invalid(format!(
                "the pattern `{text}` has a `?` or `#`: a rule applies to a resource with all its parameters; \
                 write the pattern without them"
            )));
        }
        let uri =
            Uri::parse(text).map_err(|error| Error::invalid(format!("the pattern `{text}`: {error}")))?;
        let (scheme, _) = uri.as_str().split_once(':').unwrap_or_default();
        if scheme.contains('*') {
            return Err(Error::invalid(format!(
                "the pattern `{text}` has a wildcard in its scheme: write the scheme, such as `file`"
            )));
        }
        let tokens = tokens(uri.as_str()).ok_or_else(|| {
            Error::invalid(format!(
                "the pattern `{text}` has a `**` within a segment: `**` stands for whole segments, as in `/**/`, and \
                 `*` for a part of one"
            ))
        })?;
        let wild =
            tokens.iter().position(|token| !matches!(token, PatternToken::Byte(_))).unwrap_or(tokens.len());
        let bytes = |tokens: &[PatternToken]| tokens.iter().filter_map(PatternToken::byte).collect();
        let after_wildcards =
            tokens.iter().rposition(|token| token.byte().is_none()).map_or(tokens.len(), |last| last + 1);
        let (literal, suffix) = (bytes(&tokens[..wild]), bytes(&tokens[after_wildcards..]));
        Ok(Self { text: text.into(), literal, rest: tokens[wild..].into(), suffix })
    }

    /// The pattern as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether a URI matches.
    pub fn matches(&self, uri: &Uri) -> bool {
        self.matches_normal(&normal_form(uri.as_str()))
    }

    /// Whether the pattern matches every URI.
    pub(super) fn is_everything(&self) -> bool {
        *self.rest == [PatternToken::Anything]
    }

    /// The bytes before the first wildcard.
    pub(super) fn literal(&self) -> &[u8] {
        &self.literal
    }

    /// The tokens after the [`literal`](Self::literal).
    pub(super) fn rest(&self) -> &[PatternToken] {
        &self.rest
    }

    /// Whether a URI in its [`normal_form`] matches.
    pub(super) fn matches_normal(&self, uri: &[u8]) -> bool {
        let Some(rest) = uri.strip_prefix(&*self.literal) else { return false };
        match &*self.rest {
            [] => rest.is_empty(),
            [PatternToken::Below] => rest.first().is_none_or(|byte| *byte == b'/'),
            [PatternToken::Anything] => true,
            _ if !rest.ends_with(&self.suffix) => false,
            tokens => {
                let mut states = super::language::States::start(tokens);
                for byte in rest {
                    states = states.after(tokens, *byte);
                    if states.is_dead() {
                        return false;
                    }
                }
                states.accept(tokens)
            }
        }
    }
}

impl fmt::Debug for UriPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{}>", self.text)
    }
}

impl fmt::Display for UriPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

/// The tokens of a pattern; `None` if it has a `**` within a segment.
fn tokens(text: &str) -> Option<Vec<PatternToken>> {
    let mut segments: Vec<_> = without_slash(text).split('/').collect();
    segments.dedup_by(|next, before| *next == "**" && *before == "**");
    let mut tokens = Vec::with_capacity(text.len());
    let last = segments.len() - 1;
    for (at, segment) in segments.into_iter().enumerate() {
        if segment == "**" && at == last {
            tokens.push(PatternToken::Below);
            continue;
        }
        // `Segments` includes the slash after the segments.
        if at > 0 && tokens.last() != Some(&PatternToken::Segments) {
            tokens.push(PatternToken::Byte(b'/'));
        }
        if segment == "**" {
            tokens.push(PatternToken::Segments);
        } else if segment.contains("**") {
            return None;
        } else {
            for (at, piece) in segment.split('*').enumerate() {
                tokens.extend((at > 0).then_some(PatternToken::Star));
                tokens.extend(decoded(piece.as_bytes()).iter().copied().map(PatternToken::Byte));
            }
        }
    }
    Some(tokens)
}

/// The form of a URI that patterns are compared with: without query, fragment and slashes at the end of the path, and
/// with percent-escapes decoded, except those of `/` and `%`.
pub(super) fn normal_form(uri: &str) -> Cow<'_, [u8]> {
    let path = &uri[..uri.find(['?', '#']).unwrap_or(uri.len())];
    decoded(without_slash(path).as_bytes())
}

/// The normal form of a prefix of URIs.
pub(super) fn normal_prefix(prefix: &str) -> Cow<'_, [u8]> {
    decoded(prefix.as_bytes())
}

/// A URI or pattern without the slashes at the end of its path.
fn without_slash(text: &str) -> &str {
    let start = match text.split_once("://") {
        Some((scheme, _)) => scheme.len() + 3,
        None => text.find(':').map_or(0, |colon| colon + 1),
    };
    let end = text[start..].trim_end_matches('/').len();
    &text[..start + end]
}

/// Decodes percent-escapes except `%2F`, because an encoded slash does not end a segment, and `%25`, so that different
/// URIs stay different.
fn decoded(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.contains(&b'%') {
        return Cow::Borrowed(text);
    }
    let digit = |at: usize| char::from(*text.get(at)?).to_digit(16);
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let escaped = digit(at + 1).zip(digit(at + 2)).filter(|_| text[at] == b'%');
        match escaped.map(|(high, low)| (high * 16 + low) as u8) {
            Some(b'/') => out.extend_from_slice(ESCAPED_SLASH),
            Some(b'%') => out.extend_from_slice(b"%25"),
            Some(byte) => out.push(byte),
            None => out.push(text[at]),
        }
        at += if escaped.is_some() { 3 } else { 1 };
    }
    Cow::Owned(out)
}

/// An encoded slash in the normal form.
pub(super) const ESCAPED_SLASH: &[u8] = b"%2F";

/// The normal form with encoded slashes as slashes; `None` if there are none. A source may decode a path before it
/// splits it into segments.
pub(super) fn with_slashes(normal: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(normal.len());
    let mut rest = normal;
    while let Some(at) = rest.windows(ESCAPED_SLASH.len()).position(|window| window == ESCAPED_SLASH) {
        out.extend_from_slice(&rest[..at]);
        out.push(b'/');
        rest = &rest[at + ESCAPED_SLASH.len()..];
    }
    if out.is_empty() {
        return None;
    }
    out.extend_from_slice(rest);
    Some(out)
}

#[cfg(test)]
mod tests;
