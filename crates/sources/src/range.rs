//! A range of a resource, requested with `?lines=10-20` or `?bytes=0-65535`.

use libris_core::{Error, Result};

/// The hint for text that is too large.
pub(crate) const HINT: &str = "read a part with `?lines=1-500` or `?bytes=0-65535`";

/// The hint for binary data that is too large.
pub(crate) const HINT_BYTES: &str = "read a part with `?bytes=0-65535`";

/// A range of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Range {
    /// Lines, counted from 1.
    Lines(RangeSpan),
    /// Bytes, counted from 0.
    Bytes(RangeSpan),
}

/// The extent of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RangeSpan {
    /// From the first line or byte to the last one, inclusive; to the end if there is no last one.
    From(u64, Option<u64>),
    /// This many lines or bytes at the end, at least one.
    Last(u64),
}

impl Range {
    /// Parses a query whose keys are `lines` and `bytes`; `None` if all values are empty, as in a form without input.
    pub(crate) fn parse(query: &str) -> Result<Option<Self>> {
        let mut pairs = pairs(query).filter(|(_, value)| !value.is_empty());
        let Some((key, value)) = pairs.next() else { return Ok(None) };
        if pairs.next().is_some() {
            return Err(Error::invalid(format!("`?{query}` asks for several ranges: read one at a time")));
        }
        let (unit, first) = if key == "lines" { ("lines", 1) } else { ("bytes", 0) };
        let span = span(unit, first, value)?;
        Ok(Some(if key == "lines" { Self::Lines(span) } else { Self::Bytes(span) }))
    }
}

fn pairs(query: &str) -> impl Iterator<Item = (&str, &str)> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

/// Parses the value of `lines` or `bytes`; `least` is the number of the first line or byte.
fn span(unit: &str, least: u64, value: &str) -> Result<RangeSpan> {
    let garbage = || {
        let single = if unit == "lines" { ", `lines=20`" } else { "" };
        Error::invalid(format!(
            "`{unit}={value}` is not a range: write `{unit}=10-20`{single}, `{unit}=10-` or `{unit}=-20`"
        ))
    };
    // `u64::from_str` accepts `+5`.
    let number = |text: &str| match text.bytes().all(|byte| byte.is_ascii_digit()) {
        true => text.parse::<u64>().map_err(|_| garbage()),
        false => Err(garbage()),
    };
    let (first, last) = match value.split_once('-') {
        Some(("", count)) => {
            return match number(count)? {
                0 => Err(Error::invalid(format!(
                    "`{unit}={value}` asks for nothing: write a number from 1 on"
                ))),
                count => Ok(RangeSpan::Last(count)),
            };
        }
        Some((first, "")) => (number(first)?, None),
        Some((first, last)) => (number(first)?, Some(number(last)?)),
        None if unit == "lines" => (number(value)?, Some(number(value)?)),
        None => return Err(garbage()),
    };
    if first < least {
        return Err(Error::invalid(format!("`{unit}={value}` begins too early: lines count from 1")));
    }
    if last.is_some_and(|last| last < first) {
        return Err(Error::invalid(format!(
            "`{unit}={value}` ends before it begins: write the smaller number first"
        )));
    }
    Ok(RangeSpan::From(first, last))
}

#[cfg(test)]
mod tests {
    use super::Range::{self, Bytes, Lines};
    use super::RangeSpan::{From, Last};

    #[test]
    fn ranges_are_read() {
        let cases = [
            ("lines=1-20", Lines(From(1, Some(20)))),
            ("lines=7-", Lines(From(7, None))),
            ("lines=7", Lines(From(7, Some(7)))),
            ("lines=-5", Lines(Last(5))),
            ("bytes=0-65535", Bytes(From(0, Some(65535)))),
            ("bytes=10-", Bytes(From(10, None))),
            ("bytes=-1", Bytes(Last(1))),
        ];
        for (query, range) in cases {
            assert_eq!(Range::parse(query).unwrap(), Some(range), "{query}");
        }
    }

    #[test]
    fn fields_left_empty_ask_for_everything() {
        for query in ["", "&", "lines", "lines=", "bytes=", "lines=&bytes="] {
            assert_eq!(Range::parse(query).unwrap(), None, "{query}");
        }
        assert_eq!(Range::parse("lines=&bytes=-1").unwrap(), Some(Bytes(Last(1))));
    }

    #[test]
    fn mistakes_are_explained() {
        let said = |query| Range::parse(query).unwrap_err().to_string();
        insta::assert_snapshot!(said("lines=a-b"), @"`lines=a-b` is not a range: write `lines=10-20`, `lines=20`, `lines=10-` or `lines=-20`");
        insta::assert_snapshot!(said("bytes=5"), @"`bytes=5` is not a range: write `bytes=10-20`, `bytes=10-` or `bytes=-20`");
        insta::assert_snapshot!(said("lines=0-5"), @"`lines=0-5` begins too early: lines count from 1");
        insta::assert_snapshot!(said("lines=5-3"), @"`lines=5-3` ends before it begins: write the smaller number first");
        insta::assert_snapshot!(said("bytes=-0"), @"`bytes=-0` asks for nothing: write a number from 1 on");
        insta::assert_snapshot!(said("lines=1-2&bytes=1-2"), @"`?lines=1-2&bytes=1-2` asks for several ranges: read one at a time");
        for query in ["lines=-", "lines=+5", "lines=1-2-3", "bytes=99999999999999999999-"] {
            assert!(Range::parse(query).is_err(), "{query}");
        }
    }
}
