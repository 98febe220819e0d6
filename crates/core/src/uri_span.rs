//! Spans: ranges in URI order.

use crate::Uri;

/// One or more ranges of URIs, in URI order, that contain all listed resources of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UriSpan {
    /// In URI order, without overlaps; never empty.
    ranges: Vec<UriRange>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct UriRange {
    first: Box<str>,
    last: Box<str>,
}

impl UriSpan {
    /// The span of all URIs that begin with `prefix`.
    pub fn below(prefix: &str) -> Self {
        // URIs are ASCII, so this sorts after every URI with the prefix.
        let last = format!("{prefix}\u{10ffff}").into();
        Self { ranges: vec![UriRange { first: prefix.into(), last }] }
    }

    /// The span of one URI.
    pub fn of(uri: &Uri) -> Self {
        Self { ranges: vec![UriRange { first: uri.as_str().into(), last: uri.as_str().into() }] }
    }

    /// The smallest single range that contains both.
    pub fn and(self, other: Self) -> Self {
        let both = self.union(other).ranges.into_iter();
        let hull = both.reduce(|one, other| UriRange { first: one.first, last: other.last });
        Self { ranges: hull.into_iter().collect() }
    }

    /// The ranges of both, without the URIs between them.
    pub fn union(self, other: Self) -> Self {
        let mut ranges = self.ranges;
        ranges.extend(other.ranges);
        ranges.sort_by(|one, other| one.first.cmp(&other.first));
        let mut joined: Vec<UriRange> = Vec::with_capacity(ranges.len());
        for range in ranges {
            match joined.last_mut() {
                Some(before) if before.last >= range.first => {
                    if range.last > before.last {
                        before.last = range.last;
                    }
                }
                _ => joined.push(range),
            }
        }
        Self { ranges: joined }
    }

    /// A lower bound for the URIs of the span that sort after `after`; `None` if no URI of the span sorts after
    /// `after`.
    pub fn start_after<'a>(&'a self, after: Option<&'a Uri>) -> Option<&'a str> {
        let Some(after) = after.map(Uri::as_str) else { return Some(&self.ranges.first()?.first) };
        let range = self.ranges.iter().find(|range| *range.last > *after)?;
        Some(if *range.first <= *after { after } else { &range.first })
    }

    /// Whether all URIs of the span sort after `uri`.
    pub fn is_after(&self, uri: &Uri) -> bool {
        self.ranges.first().is_some_and(|range| *range.first > *uri.as_str())
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
        assert_eq!(both.start_after(Some(&uri("git://docs/"))), Some("git://docs/"), "one range");
        // If one prefix contains the other, the result is the span of the shorter one.
        let nested = UriSpan::below("a:/x").and(UriSpan::below("a:/x/y"));
        assert!(nested.start_after(Some(&uri("a:/x/z"))).is_some());
    }

    #[test]
    fn what_is_between_the_ranges_of_a_union_is_not_in_it() {
        let span = UriSpan::below("ui://docs+").union(UriSpan::below("docs+"));
        let start = |after: &str| span.start_after(Some(&uri(after))).map(str::to_owned);
        assert_eq!(span.start_after(None), Some("docs+"));
        assert_eq!(start("docs+file:///a").as_deref(), Some("docs+file:///a"));
        assert_eq!(start("file:///a").as_deref(), Some("ui://docs+"));
        assert_eq!(start("ui://docs+app").as_deref(), Some("ui://docs+app"));
        assert_eq!(start("ui://e"), None);
        assert!(span.is_after(&uri("a:b")) && !span.is_after(&uri("file:///a")));
        let nested = UriSpan::below("a:/x").union(UriSpan::below("a:/x/y"));
        assert_eq!(nested, UriSpan::below("a:/x"));
    }
}
