//! Conditional requests and byte ranges (RFC 9110).

use std::ops::Range;
use std::time::SystemTime;

use http::HeaderMap;
use http::header::{
    HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, RANGE,
};

/// What identifies the current state of a file.
pub(super) struct Validators<'a> {
    /// A strong entity tag.
    pub(super) tag: Option<&'a str>,
    pub(super) modified: Option<SystemTime>,
}

/// How a request is answered under its conditions.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Selected {
    Whole,
    Range(Range<u64>),
    NotModified,
    PreconditionFailed,
    RangeNotSatisfiable,
}

impl Validators<'_> {
    /// How a GET or HEAD request with these headers is answered for a file of this size.
    pub(super) fn select(&self, headers: &HeaderMap, size: u64) -> Selected {
        let matched = tags(headers, IF_MATCH).map(|tags| self.is_among(&tags, false));
        if matched == Some(false) {
            return Selected::PreconditionFailed;
        }
        if matched.is_none() && self.is_newer_than(headers, IF_UNMODIFIED_SINCE) == Some(true) {
            return Selected::PreconditionFailed;
        }
        let known = tags(headers, IF_NONE_MATCH).map(|tags| self.is_among(&tags, true));
        let is_unmodified = self.is_newer_than(headers, IF_MODIFIED_SINCE) == Some(false);
        if known == Some(true) || (known.is_none() && is_unmodified) {
            return Selected::NotModified;
        }
        match headers.get(RANGE).and_then(|range| range.to_str().ok()) {
            Some(range) if self.has_same_state(headers) => parse_range(range, size),
            _ => Selected::Whole,
        }
    }

    fn is_among(&self, tags: &str, weakly: bool) -> bool {
        if tags.trim() == "*" {
            return true;
        }
        let matches = |tag: &str| {
            let tag = tag.trim();
            let tag = if weakly { tag.strip_prefix("W/").unwrap_or(tag) } else { tag };
            Some(tag) == self.tag
        };
        tags.split(',').any(matches)
    }

    /// Whether the file was modified after the date in a header; `None` if either date is missing or malformed.
    fn is_newer_than(&self, headers: &HeaderMap, name: HeaderName) -> Option<bool> {
        let since = httpdate::parse_http_date(headers.get(name)?.to_str().ok()?).ok()?;
        Some(seconds(self.modified?) > seconds(since))
    }

    /// Whether `If-Range` is absent or names the current state.
    fn has_same_state(&self, headers: &HeaderMap) -> bool {
        let Some(state) = headers.get(IF_RANGE) else { return true };
        let Ok(state) = state.to_str() else { return false };
        match httpdate::parse_http_date(state) {
            Ok(date) => self.modified.map(seconds) == Some(seconds(date)),
            Err(_) => self.is_among(state, false),
        }
    }
}

/// A time as an HTTP date, if its year is from 1970 to 9999.
pub(super) fn http_date(time: SystemTime) -> Option<String> {
    const END: u64 = 253_402_300_800;
    let since = time.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    (since.as_secs() < END).then(|| httpdate::fmt_http_date(time))
}

/// HTTP dates have no fractions of a second.
fn seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn tags(headers: &HeaderMap, name: HeaderName) -> Option<String> {
    let values: Vec<_> = headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).collect();
    (!values.is_empty()).then(|| values.join(","))
}

/// Parses a `Range` header. One that is malformed, or has several ranges, is ignored, as the standard allows.
fn parse_range(range: &str, size: u64) -> Selected {
    let Some((first, last)) = range
        .strip_prefix("bytes=")
        .filter(|ranges| !ranges.contains(','))
        .and_then(|range| range.trim().split_once('-'))
    else {
        return Selected::Whole;
    };
    let number =
        |text: &str| text.parse::<u64>().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()));
    let range = match (first, last) {
        ("", suffix) => match number(suffix) {
            Some(length) => size.saturating_sub(length)..size,
            None => return Selected::Whole,
        },
        (first, "") => match number(first) {
            Some(first) => first..size,
            None => return Selected::Whole,
        },
        (first, last) => match (number(first), number(last)) {
            (Some(first), Some(last)) if first <= last => first..last.saturating_add(1).min(size),
            _ => return Selected::Whole,
        },
    };
    match range.is_empty() {
        true => Selected::RangeNotSatisfiable,
        false => Selected::Range(range),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use http::{HeaderMap, HeaderName, HeaderValue};

    use super::{Selected, Validators, http_date, parse_range};

    const TAG: &str = "\"now\"";

    fn select(fields: &[(&'static str, &str)]) -> Selected {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
        }
        let modified = SystemTime::UNIX_EPOCH + Duration::from_millis(86_400_500);
        Validators { tag: Some(TAG), modified: Some(modified) }.select(&headers, 100)
    }

    #[test]
    fn conditions_decide_whether_a_file_is_sent() {
        let (then, before) = ("Fri, 02 Jan 1970 00:00:00 GMT", "Thu, 01 Jan 1970 00:00:00 GMT");
        for (fields, selected) in [
            (&[][..], Selected::Whole),
            (&[("if-none-match", TAG)], Selected::NotModified),
            (&[("if-none-match", "\"a\", W/\"now\"")], Selected::NotModified),
            (&[("if-none-match", "*")], Selected::NotModified),
            (&[("if-none-match", "\"other\""), ("if-modified-since", then)], Selected::Whole),
            (&[("if-modified-since", then)], Selected::NotModified),
            (&[("if-modified-since", before)], Selected::Whole),
            (&[("if-modified-since", "soon")], Selected::Whole),
            (&[("if-match", "\"other\"")], Selected::PreconditionFailed),
            (&[("if-match", "W/\"now\"")], Selected::PreconditionFailed),
            (&[("if-match", TAG)], Selected::Whole),
            (&[("if-unmodified-since", before)], Selected::PreconditionFailed),
            (&[("if-unmodified-since", then)], Selected::Whole),
            (&[("range", "bytes=1-2"), ("if-range", TAG)], Selected::Range(1..3)),
            (&[("range", "bytes=1-2"), ("if-range", "\"other\"")], Selected::Whole),
            (&[("range", "bytes=1-2"), ("if-range", "W/\"now\"")], Selected::Whole),
            (&[("range", "bytes=1-2"), ("if-range", then)], Selected::Range(1..3)),
            (&[("range", "bytes=1-2"), ("if-range", before)], Selected::Whole),
        ] {
            assert_eq!(select(fields), selected, "{fields:?}");
        }
    }

    #[test]
    fn only_dates_of_http_are_written() {
        let epoch = SystemTime::UNIX_EPOCH;
        assert_eq!(http_date(epoch).as_deref(), Some("Thu, 01 Jan 1970 00:00:00 GMT"));
        assert_eq!(http_date(epoch - Duration::from_secs(1)), None);
        assert_eq!(http_date(epoch + Duration::from_secs(253_402_300_800)), None);
    }

    #[test]
    fn ranges_are_within_the_file() {
        for (range, selected) in [
            ("bytes=0-", Selected::Range(0..100)),
            ("bytes=-7", Selected::Range(93..100)),
            ("bytes=-700", Selected::Range(0..100)),
            ("bytes=99-200", Selected::Range(99..100)),
            ("bytes=0-18446744073709551615", Selected::Range(0..100)),
            ("bytes=100-", Selected::RangeNotSatisfiable),
            ("bytes=-0", Selected::RangeNotSatisfiable),
            ("bytes=2-1", Selected::Whole),
            ("bytes=0-1,3-4", Selected::Whole),
            ("bytes=a-b", Selected::Whole),
            ("bytes=+1-2", Selected::Whole),
            ("lines=0-1", Selected::Whole),
        ] {
            assert_eq!(parse_range(range, 100), selected, "{range}");
        }
        assert_eq!(parse_range("bytes=0-", 0), Selected::RangeNotSatisfiable);
    }
}
