//! Spans: ranges in URI order.

use crate::Uri;

/// A range of URIs, in URI order, that contains all listed resources of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UriSpan {
    first: Box<str>,
    last: Box<str>,
}

impl UriSpan {
    /// The span of all URIs that begin with `prefix`.
    pub fn below(prefix: &str) -> Self {
        // URIs are ASCII, so this sorts after every URI with the prefix.
        Self { first: prefix.into(), last: format!("{prefix}\u{10ffff}").into() }
    }

    /// The span of one URI.
    pub fn of(uri: &Uri) -> Self {
        Self { first: uri.as_str().into(), last: uri.as_str().into() }
    }

    /// The smallest span that contains both.
    pub fn and(self, other: Self) -> Self {
        Self { first: self.first.min(other.first), last: self.last.max(other.last) }
    }

    /// A lower bound for the URIs of the span that sort after `after`; `None` if no URI of the span sorts after
    /// `after`.
    pub fn start_after<'a>(&'a self, after: Option<&'a Uri>) -> Option<&'a str> {
        match after.map(Uri::as_str) {
            Some(after) if *self.last <= *after => None,
            Some(after) if *self.first <= *after => Some(after),
            _ => Some(&self.first),
        }
    }

    /// Whether all URIs of the span sort after `uri`.
    pub fn is_after(&self, uri: &Uri) -> bool {
        *self.first > *uri.as_str()
    }
}

#[cfg(test)]
mod tests {
    use super::UriSpan;
    use crate::Uri;

    fn uri(text: &str) -> Uri {
        Uri::parse(text).unwrap()
    }

    #[test]
    fn a_span_is_before_within_or_after_a_uri() {
        let span = UriSpan::below("file:///docs/");
        let start = |after: &str| span.start_after(Some(&uri(after))).map(str::to_owned);
        assert_eq!(span.start_after(None), Some("file:///docs/"));
        assert_eq!(start("file:///a/z").as_deref(), Some("file:///docs/"));
        assert_eq!(start("file:///docs/").as_deref(), Some("file:///docs/"));
        assert_eq!(start("file:///docs/%F4%8F%BF%BF").as_deref(), Some("file:///docs/%F4%8F%BF%BF"));
        assert_eq!(start("file:///docs0"), None);
        assert_eq!(start("git://docs/"), None);
        assert!(span.is_after(&uri("file:///a/z")));
        assert!(!span.is_after(&uri("file:///docs/")));
    }

    #[test]
    fn one_uri_is_a_span() {
        let span = UriSpan::of(&uri("config://app/settings"));
        assert_eq!(span.start_after(Some(&uri("config://app/settings"))), None);
        assert_eq!(span.start_after(Some(&uri("config://app/setting"))), Some("config://app/settings"));
    }

    #[test]
    fn spans_are_combined() {
        let both = UriSpan::below("sqlite://shop/").and(UriSpan::of(&uri("db://users")));
        assert!(both.is_after(&uri("db://a")) && !both.is_after(&uri("db://users")));
        assert_eq!(both.start_after(Some(&uri("sqlite://shop/z"))), Some("sqlite://shop/z"));
        // If one prefix contains the other, the result is the span of the shorter one.
        let nested = UriSpan::below("a:/x").and(UriSpan::below("a:/x/y"));
        assert!(nested.start_after(Some(&uri("a:/x/z"))).is_some());
    }
}
