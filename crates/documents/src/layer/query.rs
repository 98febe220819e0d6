//! The parameters of a document's URI: `as`, and the selection of pages, sheets, rows, chapters, cells, mails or lines.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use libris_core::{Error, Result, Uri, suggest};

use crate::extract::HtmlContent;
use crate::render::WIDTHS;

/// The parameters of this layer, in the order in which templates list them.
pub(super) const KEYS: [&str; 9] =
    ["as", "pages", "sheet", "rows", "chapter", "cells", "mails", "lines", "content"];

/// The parameter of images only. In other URIs, it belongs to the source.
pub(super) const WIDTH: &str = "width";

/// A value of `as` that this layer answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadForm {
    Text,
    Image,
    Original,
}

impl ReadForm {
    const NAMES: [&str; 3] = ["text", "image", "original"];

    fn by_name(name: &str) -> Option<Self> {
        match name {
            "text" => Some(Self::Text),
            "image" => Some(Self::Image),
            "original" => Some(Self::Original),
            _ => None,
        }
    }

    /// Whether a parameter of a URI in this form belongs to this layer. All others belong to the source, such as `pages`
    /// of a web API.
    fn owns(self, key: &str) -> bool {
        match self {
            Self::Text => KEYS.contains(&key),
            Self::Image => KEYS.contains(&key) || key == WIDTH,
            Self::Original => key == "as",
        }
    }
}

/// The parsed parameters of a document's URI; empty values count as missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DocumentQuery {
    pub(super) form: Option<ReadForm>,
    pub(super) pages: Option<NumberRanges>,
    pub(super) sheet: Option<String>,
    pub(super) rows: Option<NumberRanges>,
    pub(super) chapter: Option<String>,
    pub(super) cells: Option<NumberRanges>,
    pub(super) mails: Option<NumberRanges>,
    /// Lines of what the other parameters select.
    pub(super) lines: Option<NumberRanges>,
    pub(super) content: Option<HtmlContent>,
    /// The width of an image in pixels.
    pub(super) width: Option<u16>,
}

/// The value of the parameter `as` of a URI; `None` if it is missing or empty.
pub(super) fn form_name(uri: &Uri) -> Option<&str> {
    let mut values = uri.query()?.split('&').filter_map(|pair| pair.strip_prefix("as="));
    values.rfind(|value| !value.is_empty())
}

/// The form that a URI requests with `as`; `None` if it has none, or one that this layer does not have.
pub(super) fn requested_form(uri: &Uri) -> Option<ReadForm> {
    form_name(uri).and_then(ReadForm::by_name)
}

/// The URI of the document of which `uri` requests this form: without the parameters of this layer.
pub(super) fn document_uri(uri: &Uri, form: ReadForm) -> Cow<'_, Uri> {
    let Some(query) = uri.query() else { return Cow::Borrowed(uri) };
    let others: Vec<&str> = query.split('&').filter(|pair| !form.owns(key(pair))).collect();
    if others.len() == query.split('&').count() {
        return Cow::Borrowed(uri);
    }
    let base = uri.without_query();
    if others.is_empty() {
        return Cow::Owned(base);
    }
    Uri::parse(&format!("{base}?{}", others.join("&"))).map_or(Cow::Borrowed(uri), Cow::Owned)
}

/// A URI with `as` set to this form.
pub(super) fn with_form(uri: &Uri, form: &str) -> Option<Uri> {
    let separator = if uri.query().is_some() { '&' } else { '?' };
    Uri::parse(&format!("{uri}{separator}as={form}")).ok()
}

/// A URI with another value of a parameter that it has.
pub(super) fn with_value(uri: &Uri, wanted: &str, value: &str) -> Option<Uri> {
    let replaced = |pair: &str| match key(pair) == wanted {
        true => format!("{wanted}={value}"),
        false => pair.to_owned(),
    };
    let pairs: Vec<String> = uri.query()?.split('&').map(replaced).collect();
    Uri::parse(&format!("{}?{}", uri.without_query(), pairs.join("&"))).ok()
}

/// The error for a value of `as` that neither this layer nor the source has.
pub(super) fn unknown_form(name: &str) -> Error {
    let hint = match suggest::closest(name, ReadForm::NAMES)[..] {
        [] => "use `text`, `image` or `original`".to_owned(),
        [one, ..] => format!("did you mean `{one}`?"),
    };
    Error::invalid(format!("`as={name}` is not supported; hint: {hint}"))
}

fn key(pair: &str) -> &str {
    pair.split_once('=').map_or(pair, |(key, _)| key)
}

impl DocumentQuery {
    /// Parses the parameters of a URI that belong to this layer in this form; [`Error::Invalid`] names the one that is
    /// wrong.
    pub(super) fn parse(uri: &Uri, form: ReadForm) -> Result<Self> {
        let mut parsed = Self { form: requested_form(uri), ..Self::default() };
        let pairs = uri.query().unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
        for (key, value) in pairs.filter(|(key, value)| !value.is_empty() && form.owns(key)) {
            let decoded = Uri::decode_segment(value).and_then(|bytes| String::from_utf8(bytes).ok());
            let value = decoded.unwrap_or_else(|| value.to_owned());
            let ranges = || NumberRanges::parse(key, &value).map(Some);
            match key {
                "pages" => parsed.pages = ranges()?,
                "rows" => parsed.rows = ranges()?,
                "cells" => parsed.cells = ranges()?,
                "mails" => parsed.mails = ranges()?,
                "lines" => parsed.lines = ranges()?,
                "sheet" => parsed.sheet = Some(value),
                "chapter" => parsed.chapter = Some(value),
                WIDTH => parsed.width = Some(width(&value)?),
                "content" => {
                    parsed.content = Some(match &*value {
                        "main" => HtmlContent::Main,
                        "all" => HtmlContent::All,
                        other => {
                            return Err(Error::invalid(format!(
                                "`content={other}` is not supported; hint: use `main` or `all`"
                            )));
                        }
                    });
                }
                _ => {}
            }
        }
        Ok(parsed)
    }

    /// The names of the given parameters, other than `as` and `width`.
    pub(super) fn selections(&self) -> impl Iterator<Item = &'static str> {
        let given = [
            ("pages", self.pages.is_some()),
            ("sheet", self.sheet.is_some()),
            ("rows", self.rows.is_some()),
            ("chapter", self.chapter.is_some()),
            ("cells", self.cells.is_some()),
            ("mails", self.mails.is_some()),
            ("lines", self.lines.is_some()),
            ("content", self.content.is_some()),
        ];
        given.into_iter().filter(|(_, given)| *given).map(|(key, _)| key)
    }
}

/// The width of an image in pixels.
fn width(value: &str) -> Result<u16> {
    let pixels = value.parse::<u16>().ok().filter(|pixels| WIDTHS.contains(pixels));
    pixels.ok_or_else(|| {
        let (least, most) = WIDTHS.into_inner();
        Error::invalid(format!(
            "`{WIDTH}={value}` is not supported; hint: use a number of pixels from {least} to {most}"
        ))
    })
}

/// Ranges of numbers counted from 1, such as `2-5`, `7-` or `1,3-4`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NumberRanges {
    /// In order; no two of them overlap or touch.
    ranges: Vec<RangeInclusive<usize>>,
}

/// The maximum number of ranges in one value.
const MAX_RANGES: usize = 100;

impl NumberRanges {
    pub(super) fn parse(key: &str, text: &str) -> Result<Self> {
        let wrong = || {
            Error::invalid(format!(
                "`{key}={text}` is not a range; hint: write `{key}=3`, `{key}=2-5` or `{key}=7-`"
            ))
        };
        let number = |text: &str| text.trim().parse::<usize>().ok().filter(|number| *number > 0);
        let range = |part: &str| match part.split_once('-') {
            None => number(part).map(|only| only..=only),
            Some((first, "")) => number(first).map(|first| first..=usize::MAX),
            Some((first, last)) => Some(number(first)?..=number(last)?).filter(|range| !range.is_empty()),
        };
        let ranges: Option<Vec<_>> = text.split(',').take(MAX_RANGES + 1).map(range).collect();
        let mut ranges = ranges.filter(|ranges| ranges.len() <= MAX_RANGES).ok_or_else(wrong)?;
        ranges.sort_by_key(|range| *range.start());
        let mut merged: Vec<RangeInclusive<usize>> = Vec::with_capacity(ranges.len());
        for range in ranges {
            match merged.last_mut() {
                Some(last) if *range.start() <= last.end().saturating_add(1) => {
                    *last = *last.start()..=*last.end().max(range.end());
                }
                _ => merged.push(range),
            }
        }
        Ok(Self { ranges: merged })
    }

    /// Whether a number is in one of the ranges.
    pub(super) fn contains(&self, number: usize) -> bool {
        // A text may have millions of lines, each of which is looked up here.
        let after = self.ranges.partition_point(|range| *range.start() <= number);
        after.checked_sub(1).is_some_and(|at| self.ranges[at].contains(&number))
    }

    /// The range of the same length that follows, if this is a single range that ends before the last of `count`
    /// numbers.
    pub(super) fn next(&self, count: usize) -> Option<String> {
        let [range] = &self.ranges[..] else { return None };
        let (first, last) = (*range.start(), *range.end());
        let next = last.checked_add(1).filter(|next| *next <= count)?;
        Some(match last - first {
            0 => next.to_string(),
            more => format!("{next}-{}", next.saturating_add(more)),
        })
    }

    /// The smallest number in the ranges.
    pub(super) fn first(&self) -> usize {
        self.ranges.first().map_or(1, |range| *range.start())
    }
}

#[cfg(test)]
mod tests {
    use super::{
        DocumentQuery, NumberRanges, ReadForm, document_uri, requested_form, unknown_form, with_value,
    };
    use libris_core::Uri;

    fn uri(text: &str) -> Uri {
        Uri::parse(text).unwrap()
    }

    #[test]
    fn other_parameters_stay() {
        use ReadForm::{Image, Original, Text};
        for (text, document, form) in [
            ("file:///a.pdf", "file:///a.pdf", None),
            ("file:///a.pdf?as=text&pages=2-5&lines=1-9", "file:///a.pdf", Some(Text)),
            ("http://a/b?id=1&as=text&x=2", "http://a/b?id=1&x=2", Some(Text)),
            ("file:///a.pdf?as=image&pages=2&width=300", "file:///a.pdf", Some(Image)),
            // Parameters of the source.
            ("http://a/b?width=300&as=text", "http://a/b?width=300", Some(Text)),
            ("http://a/b?pages=latest&as=original", "http://a/b?pages=latest", Some(Original)),
            ("http://a/b?alias=text", "http://a/b?alias=text", None),
            ("http://a/b?as=json", "http://a/b", None),
            ("http://a/b?as=", "http://a/b", None),
        ] {
            let uri = uri(text);
            assert_eq!(requested_form(&uri), form, "{text}");
            assert_eq!(document_uri(&uri, form.unwrap_or(Text)).as_str(), document, "{text}");
        }
        assert_eq!(
            with_value(&uri("http://a/b?pages=1-2&x=2&as=text"), "pages", "3-4").unwrap().as_str(),
            "http://a/b?pages=3-4&x=2&as=text"
        );
    }

    #[test]
    fn ranges_count_from_one() {
        let ranges = |text| NumberRanges::parse("pages", text);
        let some = ranges("1,3-4,9-").unwrap();
        let selected: Vec<_> = (1..12).filter(|number| some.contains(*number)).collect();
        assert_eq!((selected, some.first()), (vec![1, 3, 4, 9, 10, 11], 1));
        let overlapping = ranges("8-9,1-3,2-5,6").unwrap();
        let selected: Vec<_> = (0..12).filter(|number| overlapping.contains(*number)).collect();
        assert_eq!(selected, [1, 2, 3, 4, 5, 6, 8, 9]);
        for wrong in ["0", "a", "5-2", "", "1-2-3", "-3", &"1,".repeat(200)] {
            assert!(ranges(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_range_that_follows_has_the_same_length() {
        let next = |text, count| NumberRanges::parse("pages", text).unwrap().next(count);
        assert_eq!(next("2-5", 9).as_deref(), Some("6-9"));
        assert_eq!(next("2-5", 6).as_deref(), Some("6-9"));
        assert_eq!(next("7", 8).as_deref(), Some("8"));
        for (last, count) in [("2-5", 5), ("7-", 9), ("1,3-4", 9), ("7", 7)] {
            assert_eq!(next(last, count), None, "{last}");
        }
    }

    #[test]
    fn wrong_values_are_refused() {
        for wrong in [
            "as=text&content=half",
            "as=text&rows=x",
            "as=image&width=49",
            "as=image&width=2001",
            "width=99999&as=image",
            "as=image&width=-1",
        ] {
            let uri = uri(&format!("file:///a?{wrong}"));
            assert!(DocumentQuery::parse(&uri, requested_form(&uri).unwrap()).is_err(), "{wrong}");
        }
        assert_eq!(unknown_form("txt").to_string(), "`as=txt` is not supported; hint: did you mean `text`?");
        assert_eq!(
            unknown_form("words").to_string(),
            "`as=words` is not supported; hint: use `text`, `image` or `original`"
        );
        let parse =
            |text: &str| DocumentQuery::parse(&uri(text), requested_form(&uri(text)).unwrap()).unwrap();
        let query = parse("file:///a?as=text&sheet=My%20sheet&other=x");
        assert_eq!((query.form, query.sheet.as_deref()), (Some(ReadForm::Text), Some("My sheet")));
        assert_eq!(query.selections().collect::<Vec<_>>(), ["sheet"]);
        let width = |text: &str| parse(text).width;
        assert_eq!(width("file:///a?width=300&as=image"), Some(300));
        assert_eq!(width("http://a/b?width=99999&as=text"), None);
    }
}
