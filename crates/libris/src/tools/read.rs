//! The tool `read_resource`.

use std::borrow::Cow;

use libris_core::{Content, ContentBody, Contents, Error, Freshness, Uri};
use serde_json::{Value, json};

use super::arguments::{LineRange, ToolArguments};
use super::output::{Picture, ResourceLink, ToolError, ToolOutput, request};
use super::untrusted::{clean, enclose, one_line};
use super::{MAX_TITLE, Tool, ToolCall};
use crate::document_text::{has_parameter, text_uri, with_parameter};
use crate::rights::Operation;

/// The bounds and the default of the size of the text in a result, in bytes. The default is about 8,000 tokens: hosts
/// cut off or refuse results that are much longer.
pub(super) const MIN_BYTES: usize = 256;
pub(super) const MAX_BYTES: usize = 1 << 20;
pub(super) const DEFAULT_BYTES: usize = 32 << 10;

/// How many lines are read of a resource that is too large to be read whole.
const FIRST_LINES: usize = 500;

/// The largest picture in a result, in bytes.
const MAX_PICTURE: usize = 1 << 20;

/// The media types of pictures that models can see.
const PICTURES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// The members of `_meta` in which a source returns the total size of a resource if it returns only a part of it.
const TOTAL_LINES: &str = "dev.libris/totalLines";
const TOTAL_BYTES: &str = "dev.libris/totalBytes";

/// The arguments of the tool.
struct ReadRequest<'a> {
    uri: &'a str,
    lines: Option<LineRange>,
    pages: Option<String>,
    max_bytes: Option<usize>,
}

/// Contents, and which lines of the resource they have.
struct Loaded {
    contents: Contents,
    lines: LoadedLines,
}

/// Which lines of a resource were loaded.
#[derive(Clone, Copy)]
enum LoadedLines {
    /// All lines; the requested lines must be selected from them.
    All,
    /// Only a range, which begins at this line; `None` if the number is unknown.
    From(Option<usize>),
}

/// The part of a text that a result shows.
struct ShownText<'t> {
    text: &'t str,
    /// The numbers of the first and of the last line; `None` if they are unknown.
    lines: Option<(usize, usize)>,
    total: Option<usize>,
    rest: RestOfText,
}

/// The rest of a text after the part that a result shows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RestOfText {
    None,
    Lines,
    /// The rest of a line that does not fit.
    OfLine,
}

impl ToolCall<'_> {
    /// The result of the tool, and how it may be cached.
    pub(super) async fn read(&self, arguments: &str) -> Result<(ToolOutput, Freshness), ToolError> {
        let arguments = ToolArguments::parse(arguments, &["uri", "lines", "pages", "max_bytes"])?;
        let asked = ReadRequest {
            uri: arguments.required("uri", "file:///handbook/README.md")?,
            lines: arguments.range("lines")?.map(|lines| LineRange::parse(&lines)).transpose()?,
            pages: arguments.range("pages")?,
            max_bytes: arguments.number("max_bytes", MIN_BYTES..=MAX_BYTES)?,
        };
        let Ok(uri) = Uri::parse(asked.uri) else { return Err(self.missing(asked.uri).await) };
        let loaded = match self.load(&uri, &asked).await {
            Err(Error::NotFound(_) | Error::Denied(_) | Error::Missing { .. }) => {
                return Err(self.missing(asked.uri).await);
            }
            loaded => loaded?,
        };
        let size: usize = loaded.contents.parts.iter().map(|part| part.body.len()).sum();
        if !self.call.reserve_loaded(size) {
            return Err(Error::NO_MEMORY.into());
        }
        let Loaded { contents: Contents { parts, freshness }, lines } = loaded;
        Ok((output(&asked, &uri, &parts, lines)?, freshness))
    }

    /// Reads a resource: the extracted text of a document; otherwise only the requested lines, if the source serves
    /// ranges of lines; otherwise the whole resource. If the resource is too large and no lines were requested, reads
    /// the first [`FIRST_LINES`] lines.
    async fn load(&self, uri: &Uri, asked: &ReadRequest<'_>) -> Result<Loaded, Error> {
        let whole = |contents| Loaded { contents, lines: LoadedLines::All };
        if let Some(pages) = &asked.pages {
            let document = match has_parameter(uri, "as") {
                true => Some(uri.clone()),
                false => with_parameter(uri, "as", "text"),
            };
            let pages = document.and_then(|document| with_parameter(&document, "pages", pages));
            let pages = pages.ok_or_else(|| {
                Error::invalid("`pages` does not fit into the URI: give fewer or shorter ranges")
            })?;
            return self.contents(&pages).await.map(whole);
        }
        if let Some(text) = text_uri(uri, None)
            && let Ok(contents) = self.contents(&text).await
        {
            return Ok(whole(contents));
        }
        if let Some(lines) = asked.lines
            && let Some(part) = self.part(uri, lines)
        {
            match self.contents(&part).await {
                // Perhaps the source does not serve ranges of lines: read the whole resource.
                Err(Error::NotFound(_) | Error::Missing { .. }) => {}
                read => return read.map(|contents| numbered(contents, lines)),
            }
        }
        let read = self.contents(uri).await;
        let first = LineRange::From(1, Some(FIRST_LINES));
        let (other, lines) = match &read {
            Ok(contents) => match &contents.parts[..] {
                [Content { body: ContentBody::Bytes(_), mime, .. }] => (text_uri(uri, mime.as_deref()), None),
                _ => (None, None),
            },
            Err(Error::TooLarge { .. }) if asked.lines.is_none() => (self.part(uri, first), Some(first)),
            Err(_) => (None, None),
        };
        if let Some(other) = other
            && let Ok(contents) = self.contents(&other).await
        {
            return Ok(
                lines.map_or_else(|| whole(contents.clone()), |lines| numbered(contents.clone(), lines))
            );
        }
        read.map(whole)
    }

    /// The URI of some lines of a resource, if its source has such URIs.
    fn part(&self, uri: &Uri, lines: LineRange) -> Option<Uri> {
        if uri.query().is_some() || uri.as_str().ends_with('/') {
            return None;
        }
        let part = with_parameter(uri, "lines", &lines.query())?;
        self.view.covers(Operation::Read, &part).ok().filter(|covers| *covers).map(|_| part)
    }
}

/// Contents that a source returned for a range of lines.
fn numbered(contents: Contents, lines: LineRange) -> Loaded {
    let total = contents.parts.first().and_then(|part| total(part, TOTAL_LINES));
    let first = match lines {
        LineRange::From(first, _) => Some(first),
        LineRange::Last(count) => total.map(|total| total.saturating_sub(count) + 1),
    };
    Loaded { contents, lines: LoadedLines::From(first) }
}

fn total(part: &Content, key: &str) -> Option<usize> {
    part.meta.as_ref()?.get(key)?.as_u64().and_then(|total| usize::try_from(total).ok())
}

fn output(
    asked: &ReadRequest<'_>,
    uri: &Uri,
    parts: &[Content],
    loaded: LoadedLines,
) -> Result<ToolOutput, ToolError> {
    let limit = asked.max_bytes.unwrap_or(DEFAULT_BYTES);
    let mime = parts.first().and_then(|part| part.mime.as_deref());
    let size = parts.first().map(|part| total(part, TOTAL_BYTES).unwrap_or(part.body.len()));
    let link = ResourceLink {
        uri: uri.as_str().to_owned(),
        name: one_line(last_segment(uri), MAX_TITLE),
        mime: mime.map(str::to_owned),
        size: size.filter(|_| parts.len() == 1).map(|size| size as u64),
    };
    let text = joined(parts);
    let Some(text) = text else {
        return Ok(binary(uri, parts, link));
    };
    let text = clean(&text);
    let total_lines = parts.first().and_then(|part| total(part, TOTAL_LINES));
    let shown = shown(&text, loaded, asked.lines, limit, total_lines)?;
    let next = shown.next(asked, uri, limit);
    let mut origin = uri.as_str().to_owned();
    let mut details: Vec<String> = mime.map(|mime| one_line(mime, MAX_TITLE)).into_iter().collect();
    details.extend(asked.pages.as_ref().map(|pages| format!("pages {}", one_line(pages, MAX_TITLE))));
    details.extend(shown.described());
    if !details.is_empty() {
        origin.push_str(&format!(" ({})", details.join(", ")));
    }
    let mut enclosed = enclose(&origin, shown.text);
    let mut structured = json!({ "uri": uri.as_str(), "text": shown.text });
    if let Some(mime) = mime {
        structured["mimeType"] = mime.into();
    }
    if let Some((first, last)) = shown.lines {
        structured["lines"] = format!("{first}-{last}").into();
    }
    if let Some(total) = shown.total {
        structured["totalLines"] = total.into();
    }
    if let Some(next) = next {
        enclosed.push_str(&format!("next: {}\n", request(Tool::Read.name(), &next)));
        structured["next"] = next;
    }
    Ok(ToolOutput {
        text: enclosed,
        links: vec![link],
        structured: Some(structured),
        ..ToolOutput::default()
    })
}

/// The texts of all parts, joined; `None` if there is no text. Some resources, such as folders, have several parts:
/// each text after the first is preceded by its URI.
fn joined(parts: &[Content]) -> Option<Cow<'_, str>> {
    if let [Content { body: ContentBody::Text(text), .. }] = parts {
        return Some(Cow::Borrowed(text));
    }
    let texts = parts.iter().filter_map(|part| match &part.body {
        ContentBody::Text(text) => Some((&part.uri, text)),
        ContentBody::Bytes(_) => None,
    });
    let mut joined = String::new();
    for (index, (uri, text)) in texts.enumerate() {
        if index > 0 {
            joined.push_str(&format!("\n{uri}:\n"));
        }
        joined.push_str(text);
    }
    (!joined.is_empty()).then_some(Cow::Owned(joined))
}

/// The result for bytes: a picture if models can see it, otherwise a description of the data.
fn binary(uri: &Uri, parts: &[Content], link: ResourceLink) -> ToolOutput {
    let (mime, bytes) = match parts {
        [Content { mime, body: ContentBody::Bytes(bytes), .. }, ..] => (mime.as_deref(), Some(bytes)),
        _ => (None, None),
    };
    let (shown, size) = (mime.unwrap_or("binary data"), bytes.map_or(0, |bytes| bytes.len()));
    let is_picture = mime.is_some_and(|mime| PICTURES.contains(&mime)) && size <= MAX_PICTURE;
    let picture = bytes.filter(|_| is_picture).zip(mime);
    let picture = picture.map(|(bytes, mime)| Picture { mime: mime.to_owned(), data: bytes.clone() });
    let text = match (bytes, &picture) {
        (None, _) => format!("`{uri}` is empty."),
        (_, Some(_)) => format!("`{uri}` is a picture ({shown}, {size} bytes)."),
        (_, None) => format!(
            "`{uri}` is {} ({size} bytes), which has no text. A host that reads resources can read it by its URI.",
            one_line(shown, MAX_TITLE)
        ),
    };
    let mut structured = json!({ "uri": uri.as_str(), "text": text });
    if let Some(mime) = mime {
        structured["mimeType"] = mime.into();
    }
    ToolOutput { text, picture, links: vec![link], structured: Some(structured), ..ToolOutput::default() }
}

/// Selects the requested lines, and of these as many as fit.
fn shown<'t>(
    text: &'t str,
    loaded: LoadedLines,
    lines: Option<LineRange>,
    limit: usize,
    total: Option<usize>,
) -> Result<ShownText<'t>, ToolError> {
    let (text, first, total) = match loaded {
        LoadedLines::From(first) => (text, first, total),
        LoadedLines::All => {
            let count = text.lines().count();
            let (first, last) = match lines {
                None => (1, count),
                Some(LineRange::From(first, last)) => (first, last.unwrap_or(count).min(count)),
                Some(LineRange::Last(last)) => (count.saturating_sub(last) + 1, count),
            };
            if first > count.max(1) {
                return Err(ToolError::told(format!("there is no line {first}: there are {count} lines")));
            }
            (&text[start_of(text, first)..start_of(text, last + 1)], Some(first), Some(count))
        }
    };
    let (part, rest) = cut(text, limit);
    let count = part.lines().count();
    let lines = first.map(|first| (first, (first + count).saturating_sub(1).max(first)));
    let has_lines_after = |lines: (usize, usize)| total.is_some_and(|total| lines.1 < total);
    // If the source returned only a range and all of it is shown, lines of the resource may follow it. They count as
    // the rest here; `ShownText::next` offers them only if the client requested no end, or a later end.
    let is_uncut_range = matches!(loaded, LoadedLines::From(_)) && rest == RestOfText::None;
    let rest = match is_uncut_range && lines.is_some_and(has_lines_after) {
        true => RestOfText::Lines,
        false => rest,
    };
    Ok(ShownText { text: part, lines, total, rest })
}

/// The byte offset at which line number `line` begins; lines are counted from 1. The length of the text if there is no
/// such line.
fn start_of(text: &str, line: usize) -> usize {
    match line {
        0 | 1 => 0,
        line => text.match_indices('\n').nth(line - 2).map_or(text.len(), |(at, _)| at + 1),
    }
}

/// The lines of a text that fit into `limit` bytes; if the first line does not fit, its beginning.
fn cut(text: &str, limit: usize) -> (&str, RestOfText) {
    if text.len() <= limit {
        return (text, RestOfText::None);
    }
    let end = text.floor_char_boundary(limit);
    match text[..end].rfind('\n') {
        Some(newline) => (&text[..=newline], RestOfText::Lines),
        None => (&text[..end], RestOfText::OfLine),
    }
}

impl ShownText<'_> {
    /// The lines as text: `lines 1-40 of 212`.
    fn described(&self) -> Option<String> {
        let (first, last) = self.lines?;
        let total = self.total.map(|total| format!(" of {total}")).unwrap_or_default();
        let cut = if self.rest == RestOfText::OfLine { ", cut off" } else { "" };
        Some(format!("lines {first}-{last}{total}{cut}"))
    }

    /// The arguments of the call for the next part.
    fn next(&self, asked: &ReadRequest<'_>, uri: &Uri, limit: usize) -> Option<Value> {
        let (first, last) = self.lines?;
        let mut next = json!({ "uri": uri.as_str() });
        match self.rest {
            RestOfText::None => return None,
            RestOfText::Lines => {
                let end = match asked.lines {
                    Some(LineRange::From(_, Some(end))) if end > last => end.to_string(),
                    Some(LineRange::From(_, Some(_))) => return None,
                    _ => String::new(),
                };
                next["lines"] = format!("{}-{end}", last + 1).into();
            }
            // The line is longer than the limit: read the line again with a larger limit.
            RestOfText::OfLine if limit < MAX_BYTES => {
                next["lines"] = format!("{first}-").into();
                next["max_bytes"] = (limit * 8).min(MAX_BYTES).into();
            }
            RestOfText::OfLine => next["lines"] = format!("{}-", last + 1).into(),
        }
        if let Some(pages) = &asked.pages {
            next["pages"] = pages.as_str().into();
        }
        if let (Some(max_bytes), true) = (asked.max_bytes, next.get("max_bytes").is_none()) {
            next["max_bytes"] = max_bytes.into();
        }
        Some(next)
    }
}

fn last_segment(uri: &Uri) -> &str {
    let path = uri.as_str().split(['?', '#']).next().unwrap_or_default().trim_end_matches('/');
    path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::{LineRange, LoadedLines, RestOfText, cut, shown};

    #[test]
    fn a_text_is_cut_at_the_end_of_a_line() {
        assert_eq!(cut("one\ntwo\n", 8).0, "one\ntwo\n");
        assert!(matches!(cut("one\ntwo\n", 7), ("one\n", RestOfText::Lines)));
        assert!(matches!(cut("äää", 3), ("ä", RestOfText::OfLine)));
    }

    #[test]
    fn lines_are_selected_and_counted() {
        let text = "1\n2\n3\n4\n5";
        let select = |lines: &str, limit| {
            let lines = LineRange::parse(lines).ok();
            let shown = shown(text, LoadedLines::All, lines, limit, None).ok().unwrap();
            (shown.text.to_owned(), shown.lines, shown.rest == RestOfText::None)
        };
        assert_eq!(select("", 100), (text.to_owned(), Some((1, 5)), true));
        assert_eq!(select("2-3", 100), ("2\n3\n".to_owned(), Some((2, 3)), true));
        assert_eq!(select("-2", 100), ("4\n5".to_owned(), Some((4, 5)), true));
        assert_eq!(select("4-99", 100), ("4\n5".to_owned(), Some((4, 5)), true));
        assert_eq!(select("2-", 4), ("2\n3\n".to_owned(), Some((2, 3)), false));
        assert!(shown(text, LoadedLines::All, LineRange::parse("6-").ok(), 9, None).is_err());
        assert!(shown("", LoadedLines::All, None, 9, None).is_ok());
    }
}
