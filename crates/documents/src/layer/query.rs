//! The parameters of a document's URI: `as`, and the selection of pages, sheets, rows, chapters, cells or mails.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use libris_core::{Error, Result, Uri, suggest};

use crate::extract::HtmlContent;
use crate::render::WIDTHS;

/// The parameters of this layer, in the order in which templates list them.
pub(super) const KEYS: [&str; 8] = ["as", "pages", "sheet", "rows", "chapter", "cells", "mails", "content"];

/// The parameter of images only. In other URIs, it belongs to the source.
pub(super) const WIDTH: &str = "width";

/// The value of `as`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadForm {
    Text,
    Image,
    Original,
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
    pub(super) content: Option<HtmlContent>,
    /// The width of an image in pixels.
    pub(super) width: Option<u16>,
}

/// Whether a URI has the parameter `as` with a value.
pub(super) fn has_form(uri: &Uri) -> bool {
    let sets_form = |pair: &str| pair.starts_with("as=") && pair.len() > 3;
    uri.query().is_some_and(|query| query.split('&').any(sets_form))
}

/// The URI without the parameters in [`KEYS`], and without [`WIDTH`] if it is that of an image: the URI of the document.
pub(super) fn document_uri(uri: &Uri) -> Cow<'_, Uri> {
    let Some(query) = uri.query() else { return Cow::Borrowed(uri) };
    let is_image = query.split('&').any(|pair| pair == "as=image");
    let is_own = |key: &str| KEYS.contains(&key) || is_image && key == WIDTH;
    let others: Vec<&str> = query.split('&').filter(|pair| !is_own(key(pair))).collect();
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

fn key(pair: &str) -> &str {
    pair.split_once('=').map_or(pair, |(key, _)| key)
}

impl DocumentQuery {
    /// Parses the parameters of a URI and ignores unknown ones; [`Error::Invalid`] names the one that is wrong.
    pub(super) fn parse(uri: &Uri) -> Result<Self> {
        let mut parsed = Self::default();
        let mut width = None;
        let pairs = uri.query().unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
        for (key, value) in pairs.filter(|(_, value)| !value.is_empty()) {
            let decoded = Uri::decode_segment(value).and_then(|bytes| String::from_utf8(bytes).ok());
            let value = decoded.unwrap_or_else(|| value.to_owned());
            let ranges = || NumberRanges::parse(key, &value).map(Some);
            match key {
                "as" => parsed.form = Some(form(&value)?),
                "pages" => parsed.pages = ranges()?,
                "rows" => parsed.rows = ranges()?,
                "cells" => parsed.cells = ranges()?,
                "mails" => parsed.mails = ranges()?,
                "sheet" => parsed.sheet = Some(value),
                "chapter" => parsed.chapter = Some(value),
                WIDTH => width = Some(value),
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
        if let Some(width) = width.filter(|_| parsed.form == Some(ReadForm::Image)) {
            let pixels = width.parse::<u16>().ok().filter(|pixels| WIDTHS.contains(pixels));
            parsed.width = Some(pixels.ok_or_else(|| {
                let (least, most) = WIDTHS.into_inner();
                Error::invalid(format!(
                    "`width={width}` is not supported; hint: use a number of pixels from {least} to {most}"
                ))
            })?);
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
            ("content", self.content.is_some()),
        ];
        given.into_iter().filter(|(_, given)| *given).map(|(key, _)| key)
    }
}

fn form(value: &str) -> Result<ReadForm> {
    match value {
        "text" => Ok(ReadForm::Text),
        "image" => Ok(ReadForm::Image),
        "original" => Ok(ReadForm::Original),
        other => {
            let similar = match suggest::did_you_mean(other, ["text", "image", "original"]) {
                similar if similar.is_empty() => "; hint: use `text`, `image` or `original`".to_owned(),
                similar => similar,
            };
            Err(Error::invalid(format!("`as={other}` is not supported{similar}")))
        }
    }
}

/// Ranges of numbers counted from 1, such as `2-5`, `7-` or `1,3-4`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NumberRanges {
    ranges: Vec<RangeInclusive<usize>>,
}

/// The maximum number of ranges in one value.
const MAX_RANGES: usize = 100;

impl NumberRanges {
    fn parse(key: &str, text: &str) -> Result<Self> {
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
        let ranges = ranges.filter(|ranges| ranges.len() <= MAX_RANGES).ok_or_else(wrong)?;
        Ok(Self { ranges })
    }

    /// Whether a number is in one of the ranges.
    pub(super) fn contains(&self, number: usize) -> bool {
        self.ranges.iter().any(|range| range.contains(&number))
    }

    /// The smallest number in the ranges.
    pub(super) fn first(&self) -> usize {
        self.ranges.iter().map(|range| *range.start()).min().unwrap_or(1)
    }
}

#[cfg(test)]
mod tests {
    use super::{DocumentQuery, NumberRanges, ReadForm, document_uri, has_form};
    use libris_core::Uri;

    fn uri(text: &str) -> Uri {
        Uri::parse(text).unwrap()
    }

    #[test]
    fn other_parameters_stay() {
        for (text, document, form) in [
            ("file:///a.pdf", "file:///a.pdf", false),
            ("file:///a.pdf?as=text&pages=2-5", "file:///a.pdf", true),
            ("http://a/b?id=1&as=text&x=2", "http://a/b?id=1&x=2", true),
            ("file:///a.pdf?as=image&pages=2&width=300", "file:///a.pdf", true),
            // A parameter of the source.
            ("http://a/b?width=300&as=text", "http://a/b?width=300", true),
            ("http://a/b?alias=text", "http://a/b?alias=text", false),
            ("http://a/b?as=", "http://a/b", false),
        ] {
            let uri = uri(text);
            assert_eq!((document_uri(&uri).as_str(), has_form(&uri)), (document, form), "{text}");
        }
    }

    #[test]
    fn ranges_count_from_one() {
        let ranges = |text| NumberRanges::parse("pages", text);
        let some = ranges("1,3-4,9-").unwrap();
        let selected: Vec<_> = (1..12).filter(|number| some.contains(*number)).collect();
        assert_eq!((selected, some.first()), (vec![1, 3, 4, 9, 10, 11], 1));
        for wrong in ["0", "a", "5-2", "", "1-2-3", "-3", &"1,".repeat(200)] {
            assert!(ranges(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn wrong_values_are_refused() {
        for wrong in [
            "as=txt",
            "as=text&content=half",
            "as=text&rows=x",
            "as=image&width=49",
            "as=image&width=2001",
            "width=99999&as=image",
            "as=image&width=-1",
        ] {
            assert!(DocumentQuery::parse(&uri(&format!("file:///a?{wrong}"))).is_err(), "{wrong}");
        }
        let query = DocumentQuery::parse(&uri("file:///a?as=text&sheet=My%20sheet&other=x")).unwrap();
        assert_eq!((query.form, query.sheet.as_deref()), (Some(ReadForm::Text), Some("My sheet")));
        assert_eq!(query.selections().collect::<Vec<_>>(), ["sheet"]);
        let width = |text: &str| DocumentQuery::parse(&uri(text)).unwrap().width;
        assert_eq!(width("file:///a?width=300&as=image"), Some(300));
        assert_eq!(width("http://a/b?width=99999&as=text"), None);
    }
}
