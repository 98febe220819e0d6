//! Renders Markdown as HTML that runs no scripts and loads nothing.
//!
//! HTML in Markdown is reduced to a list of plain elements without attributes; other tags are removed or shown as text.
//! This is stricter than a sanitiser and needs no HTML parser, and the output is safe by construction: it contains only
//! tags that this module writes.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd, html as writer};

use super::links::{LinkBase, LinkTarget};
use super::{MAX_HTML, highlight, language};
use crate::html;

/// The HTML elements that are kept, without their attributes.
const ELEMENTS: [&str; 42] = [
    "abbr",
    "b",
    "blockquote",
    "br",
    "caption",
    "center",
    "cite",
    "code",
    "dd",
    "del",
    "details",
    "dfn",
    "div",
    "dl",
    "dt",
    "em",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "hr",
    "i",
    "ins",
    "kbd",
    "li",
    "mark",
    "ol",
    "p",
    "pre",
    "q",
    "s",
    "small",
    "span",
    "strong",
    "sub",
    "summary",
    "sup",
    "table",
    "ul",
    "var",
];

/// The beginning of an embedded picture. Markup of the text never becomes a picture.
const PICTURE: &str = "<img src=\"";

/// The parts of tables, which are kept too.
const TABLE_PARTS: [&str; 6] = ["tbody", "td", "tfoot", "th", "thead", "tr"];

fn options() -> Options {
    Options::ENABLE_TABLES
        | Options::ENABLE_FOOTNOTES
        | Options::ENABLE_STRIKETHROUGH
        | Options::ENABLE_TASKLISTS
        | Options::ENABLE_GFM
        | Options::ENABLE_YAML_STYLE_METADATA_BLOCKS
}

/// The URIs of the pictures in a text that are resources; those on the web are left out.
pub(super) fn pictures<'a>(text: &'a str, base: &'a LinkBase) -> impl Iterator<Item = String> + 'a {
    Parser::new_ext(text, options()).filter_map(|event| match event {
        Event::Start(Tag::Image { dest_url, .. }) => match base.resolve(&dest_url) {
            Some(LinkTarget::Resource(uri)) => Some(uri),
            _ => None,
        },
        _ => None,
    })
}

/// Renders a text, with `pictures` as far as their budget allows, until `out` has about [`MAX_HTML`] bytes, of which
/// pictures do not count. Returns whether something was left out.
pub(super) fn render(out: &mut String, text: &str, base: &LinkBase, pictures: &mut Pictures) -> bool {
    let rendering = MarkdownEvents {
        events: Parser::new_ext(text, options()),
        base,
        pictures,
        slugs: HashMap::new(),
        pending: Vec::new().into_iter(),
    };
    let mut bounded = BoundedMarkdown {
        events: rendering,
        left: MAX_HTML.saturating_sub(out.len()),
        skipped: 0,
        is_cut: false,
    };
    out.push_str("<article class=\"prose\">");
    writer::push_html(out, bounded.by_ref());
    out.push_str("</article>");
    bounded.is_cut
}

/// The events of a text until their HTML has a number of bytes, then only the ends of elements that have begun. A text can
/// be much shorter than its HTML: each `>` of a line is a quotation.
struct BoundedMarkdown<I> {
    events: I,
    /// How many more bytes of HTML may be written.
    left: usize,
    /// How many elements that are left out have begun and not ended.
    skipped: usize,
    /// Whether something was left out.
    is_cut: bool,
}

impl<'a, I: Iterator<Item = Event<'a>>> Iterator for BoundedMarkdown<I> {
    type Item = Event<'a>;

    fn next(&mut self) -> Option<Event<'a>> {
        loop {
            let event = self.events.next()?;
            if !self.is_cut {
                match self.left.checked_sub(html_bytes(&event)) {
                    Some(left) => {
                        self.left = left;
                        return Some(event);
                    }
                    None => self.is_cut = true,
                }
                if let Event::Text(text) = &event
                    && let shown @ 1.. = fitting(text, self.left)
                {
                    return Some(Event::Text(text[..shown].to_owned().into()));
                }
            }
            match event {
                Event::Start(_) => self.skipped += 1,
                Event::End(_) if self.skipped > 0 => self.skipped -= 1,
                Event::End(_) => return Some(event),
                _ => {}
            }
        }
    }
}

/// The HTML of a character in bytes.
fn escaped_bytes(letter: char) -> usize {
    match letter {
        '&' => "&amp;".len(),
        '<' | '>' => "&lt;".len(),
        '"' | '\'' => "&quot;".len(),
        other => other.len_utf8(),
    }
}

/// The length of the longest beginning of a text whose HTML has at most `limit` bytes.
fn fitting(text: &str, limit: usize) -> usize {
    let mut bytes = 0;
    let too_many = text.char_indices().find(|(_, letter)| {
        bytes += escaped_bytes(*letter);
        bytes > limit
    });
    too_many.map_or(text.len(), |(at, _)| at)
}

/// An upper estimate of how many bytes of HTML an event takes. The end of an element counts with its start, and embedded
/// pictures have [a limit of their own](Pictures::new).
fn html_bytes(event: &Event<'_>) -> usize {
    const TAGS: usize = 64;
    let escaped = |text: &str| text.chars().map(escaped_bytes).sum::<usize>();
    match event {
        Event::End(_) => 0,
        Event::Text(text) => escaped(text),
        Event::SoftBreak => 1,
        Event::InlineHtml(raw) if raw.starts_with(PICTURE) => TAGS,
        Event::Html(raw) | Event::InlineHtml(raw) => raw.len(),
        Event::Code(text) => TAGS + escaped(text),
        Event::Start(Tag::Heading { id: Some(id), .. }) => TAGS + id.len(),
        Event::Start(Tag::FootnoteDefinition(name)) | Event::FootnoteReference(name) => {
            3 * TAGS + 2 * escaped(name)
        }
        _ => TAGS,
    }
}

/// The pictures that may be embedded in a preview, and how much of them.
#[derive(Debug, Default)]
pub(super) struct Pictures {
    /// The `data:` URI of each picture by its URI.
    data: HashMap<String, String>,
    /// How many more bytes of these the preview may have. A text can show one picture many thousand times.
    left: usize,
}

impl Pictures {
    /// An empty collection. Of the pictures that are inserted later, at most `limit` bytes are embedded.
    pub(super) fn new(limit: usize) -> Self {
        Self { data: HashMap::new(), left: limit }
    }

    pub(super) fn insert(&mut self, uri: String, data: String) {
        self.data.insert(uri, data);
    }

    /// The `data:` URI of a picture, if there is one and it fits.
    fn embed(&mut self, uri: &str) -> Option<&str> {
        let data = self.data.get(uri)?;
        self.left = self.left.checked_sub(data.len())?;
        Some(data)
    }
}

/// The parser events of a text. Links, pictures, code and HTML are replaced by safe HTML.
struct MarkdownEvents<'a, 'p, I> {
    events: I,
    base: &'a LinkBase,
    pictures: &'p mut Pictures,
    /// The identifiers of headings so far.
    slugs: HashMap<String, usize>,
    /// Events to return before the next one.
    pending: std::vec::IntoIter<Event<'a>>,
}

impl<'a, I: Iterator<Item = Event<'a>>> MarkdownEvents<'a, '_, I> {
    /// Consumes the events up to the end of an element, and returns their plain text.
    fn text_until(&mut self, is_end: impl Fn(&TagEnd) -> bool) -> String {
        let mut text = String::new();
        for event in self.events.by_ref() {
            match event {
                Event::End(end) if is_end(&end) => break,
                Event::Text(part) | Event::Code(part) => text.push_str(&part),
                Event::SoftBreak | Event::HardBreak => text.push(' '),
                _ => {}
            }
        }
        text
    }

    /// Consumes the events of a picture, and returns its HTML: the embedded picture, or its alternative text.
    fn picture(&mut self, target: &str) -> String {
        let mut depth = 1;
        let mut alternative = String::new();
        // The alternative text can contain pictures itself.
        while depth > 0 {
            match self.events.next() {
                None => break,
                Some(Event::Start(Tag::Image { .. })) => depth += 1,
                Some(Event::End(TagEnd::Image)) => depth -= 1,
                Some(Event::Text(part) | Event::Code(part)) => alternative.push_str(&part),
                Some(_) => {}
            }
        }
        let data = match self.base.resolve(target) {
            Some(LinkTarget::Resource(uri)) => self.pictures.embed(&uri),
            _ => None,
        };
        let mut out = String::new();
        match data {
            Some(data) => {
                out.push_str(PICTURE);
                html::push_attribute(&mut out, data);
                out.push_str("\" alt=\"");
                html::push_attribute(&mut out, &alternative);
                out.push_str("\">");
            }
            None => {
                let shown = if alternative.is_empty() { "picture" } else { &alternative };
                out.push_str("<span class=\"picture\">");
                html::push_text(&mut out, shown);
                out.push_str("</span>");
            }
        }
        out
    }

    /// Returns the start of a heading with an identifier as the target of links. The events within the heading become
    /// `pending`.
    fn heading(&mut self, tag: Tag<'a>) -> Event<'a> {
        let Tag::Heading { level, .. } = tag else { return Event::Start(tag) };
        let mut inner = Vec::new();
        let mut title = String::new();
        for event in self.events.by_ref() {
            let ends = matches!(event, Event::End(TagEnd::Heading(_)));
            if let Event::Text(part) | Event::Code(part) = &event {
                title.push_str(part);
            }
            inner.push(event);
            if ends {
                break;
            }
        }
        let slug = self.slug(&title);
        // Applies the same replacements to the events within the heading.
        let mut nested = MarkdownEvents {
            events: inner.into_iter(),
            base: self.base,
            pictures: &mut *self.pictures,
            slugs: HashMap::new(),
            pending: Vec::new().into_iter(),
        };
        let replaced: Vec<_> = std::iter::from_fn(|| nested.next()).collect();
        self.pending = replaced.into_iter();
        Event::Start(Tag::Heading { level, id: Some(slug.into()), classes: Vec::new(), attrs: Vec::new() })
    }

    /// A unique identifier for a heading, formed as on GitHub.
    fn slug(&mut self, title: &str) -> String {
        let mut slug = String::new();
        for letter in title.trim().chars().take(100) {
            match letter {
                ' ' | '-' => slug.push('-'),
                letter if letter.is_alphanumeric() || letter == '_' => slug.extend(letter.to_lowercase()),
                _ => {}
            }
        }
        // The next number of each slug is stored: counting from 1 again would be quadratic for many equal headings.
        let mut unique = slug.clone();
        loop {
            match self.slugs.entry(unique.clone()) {
                Entry::Vacant(new) => {
                    new.insert(1);
                    return unique;
                }
                Entry::Occupied(_) => {
                    let next = self.slugs.entry(slug.clone()).or_insert(1);
                    unique = format!("{slug}-{next}");
                    *next += 1;
                }
            }
        }
    }
}

impl<'a, I: Iterator<Item = Event<'a>>> Iterator for MarkdownEvents<'a, '_, I> {
    type Item = Event<'a>;

    fn next(&mut self) -> Option<Event<'a>> {
        if let Some(event) = self.pending.next() {
            return Some(event);
        }
        Some(match self.events.next()? {
            Event::Start(Tag::Link { dest_url, .. }) => {
                let mut start = String::new();
                self.base.push_start(&mut start, &dest_url);
                Event::InlineHtml(start.into())
            }
            Event::End(TagEnd::Link) => Event::InlineHtml("</a>".into()),
            Event::Start(Tag::Image { dest_url, .. }) => Event::InlineHtml(self.picture(&dest_url).into()),
            Event::Start(Tag::CodeBlock(kind)) => {
                let text = self.text_until(|end| *end == TagEnd::CodeBlock);
                let name = match &kind {
                    CodeBlockKind::Fenced(name) => name.split([' ', ',']).next().unwrap_or_default(),
                    CodeBlockKind::Indented => "",
                };
                let mut out = String::new();
                highlight::render_block(&mut out, &text, language::named(name));
                Event::Html(out.into())
            }
            Event::Start(Tag::MetadataBlock(_)) => {
                let text = self.text_until(|end| matches!(end, TagEnd::MetadataBlock(_)));
                let mut out = String::from("<details class=\"front\"><summary>Front matter</summary>");
                highlight::render_block(&mut out, &text, language::named("yaml"));
                out.push_str("</details>");
                Event::Html(out.into())
            }
            Event::Start(tag @ Tag::Heading { .. }) => self.heading(tag),
            // A tag can span several lines, each of which is an event, so the whole block is collected first.
            Event::Start(Tag::HtmlBlock) => {
                let mut raw = String::new();
                for event in self.events.by_ref() {
                    match event {
                        Event::End(TagEnd::HtmlBlock) => break,
                        Event::Html(part) | Event::Text(part) => raw.push_str(&part),
                        _ => {}
                    }
                }
                Event::Html(plain_elements(&raw).into())
            }
            Event::Html(raw) => Event::Html(plain_elements(&raw).into()),
            Event::InlineHtml(raw) => Event::InlineHtml(plain_elements(&raw).into()),
            Event::Text(text) if text.contains(is_bidi) => Event::InlineHtml(html::text(&text).into()),
            Event::Code(text) if text.contains(is_bidi) => {
                Event::InlineHtml(format!("<code>{}</code>", html::text(&text)).into())
            }
            event => event,
        })
    }
}

fn is_bidi(letter: char) -> bool {
    matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The elements whose tags are removed: for example the picture of a badge, which would only clutter the text.
const REMOVED: [&str; 6] = ["img", "picture", "source", "a", "nobr", "font"];

/// Reduces HTML to the kept elements without their attributes. Comments, and the tags of `REMOVED`, are removed; the rest
/// is shown as text.
fn plain_elements(raw: &str) -> String {
    let mut out = String::with_capacity(raw.len());
    let mut rest = raw;
    // If one search for `>` fails, later ones would too: repeating them at every `<` would be quadratic.
    let mut has_ends = true;
    while let Some(at) = rest.find('<') {
        html::push_text(&mut out, &rest[..at]);
        rest = &rest[at..];
        if let Some(comment) = rest.strip_prefix("<!--") {
            rest = comment.find("-->").map_or("", |end| &comment[end + 3..]);
            continue;
        }
        let name_at = if rest.starts_with("</") { 2 } else { 1 };
        let name: String = rest[name_at..]
            .chars()
            .take_while(char::is_ascii_alphanumeric)
            .collect::<String>()
            .to_lowercase();
        let is_kept = ELEMENTS.contains(&&*name) || TABLE_PARTS.contains(&&*name);
        let is_tag = has_ends && (is_kept || REMOVED.contains(&&*name));
        let end = if is_tag { rest.find('>') } else { None };
        has_ends &= !is_tag || end.is_some();
        match end {
            Some(end) => {
                if is_kept {
                    out.push_str(&rest[..name_at]);
                    out.push_str(&name);
                    out.push('>');
                }
                rest = &rest[end + 1..];
            }
            None => {
                out.push_str("&lt;");
                rest = &rest[1..];
            }
        }
    }
    html::push_text(&mut out, rest);
    out
}

#[cfg(test)]
mod tests {
    use super::{LinkBase, Pictures, pictures, render};

    fn rendered(text: &str) -> String {
        let mut out = String::new();
        let mut pictures = Pictures::new(1_000);
        pictures.insert("file:///d/a.png".to_owned(), "data:image/png;base64,AA==".to_owned());
        render(&mut out, text, &LinkBase::new("file:///d/x.md"), &mut pictures);
        out.strip_prefix("<article class=\"prose\">").unwrap().strip_suffix("</article>").unwrap().to_owned()
    }

    #[test]
    fn html_is_reduced_to_plain_elements() {
        let html =
            rendered("a <b onclick=\"x()\">b</b> <script>alert(1)</script> <img src=x onerror=alert(1)> c");
        assert_eq!(html, "<p>a <b>b</b> &lt;script&gt;alert(1)&lt;/script&gt;  c</p>\n");
        let html = rendered(
            "<details open>\n<summary style=\"x\">More</summary>\n\n*in*\n\n</details>\n<!-- <script> -->",
        );
        assert!(
            html.starts_with("<details>\n<summary>More</summary>\n<p><em>in</em></p>\n</details>"),
            "{html}"
        );
        assert!(!html.contains("script"), "{html}");
        assert_eq!(rendered("<p align=center\n  onclick=x>\nhi\n</p>\n"), "<p>\nhi\n</p>\n");
        let html = rendered("<iframe src=\"javascript:x\"></iframe>\n\n<svg onload=x>");
        assert!(!html.contains("<iframe") && !html.contains("<svg"), "{html}");
    }

    #[test]
    fn links_lead_to_resources_or_to_a_new_tab() {
        assert_eq!(
            rendered("[a](b.md) [c](javascript:alert(1)) [d](https://e.example)"),
            "<p><a target=\"_top\" href=\"/#uri=file%3A%2F%2F%2Fd%2Fb.md\">a</a> \
             <a target=\"_top\" href=\"/#uri=javascript%3Aalert%281%29\">c</a> \
             <a class=\"web\" target=\"_blank\" rel=\"noopener noreferrer nofollow\" \
             href=\"https://e.example/\">d</a></p>\n"
        );
    }

    #[test]
    fn pictures_are_embedded_or_named() {
        let text = "![A](a.png) ![B *c*](https://e.example/b.png)";
        let found: Vec<_> = pictures(text, &LinkBase::new("file:///d/x.md")).collect();
        assert_eq!(found, ["file:///d/a.png"]);
        assert_eq!(
            rendered(text),
            "<p><img src=\"data:image/png;base64,AA==\" alt=\"A\"> <span class=\"picture\">B c</span></p>\n"
        );
    }

    #[test]
    fn headings_have_identifiers() {
        let html = rendered("# A `b` [c](d.md)!\n## A b c\n");
        assert!(html.starts_with("<h1 id=\"a-b-c\">A <code>b</code> <a target=\"_top\""), "{html}");
        assert!(html.contains("<h2 id=\"a-b-c-1\">"), "{html}");
        let html = rendered("# a-1\n# a\n# a\n# a\n");
        let ids: Vec<_> = html.split("id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        assert_eq!(ids, ["a-1", "a", "a-2", "a-3"]);
    }

    #[test]
    fn many_equal_headings_take_linear_time() {
        // In quadratic time, this would take an hour.
        let html = rendered(&"# a\n".repeat(300_000));
        assert!(html.contains("id=\"a-9999\""));
    }

    #[test]
    fn tags_without_an_end_take_linear_time() {
        // In quadratic time, each of these would take 15 seconds.
        for start in ["<", "<b", "</b", "<img", "<!"] {
            let html = rendered(&format!("<div {}", start.repeat((1 << 19) / start.len())));
            assert!(html.starts_with("&lt;div &lt;"), "{}", &html[..40]);
        }
    }

    #[test]
    fn a_picture_is_embedded_as_often_as_the_budget_allows() {
        let html = rendered(&"![A](a.png)\n".repeat(10_000));
        assert_eq!(html.matches("<img").count(), 1_000 / "data:image/png;base64,AA==".len());
        assert_eq!(
            html.matches("<span class=\"picture\">A</span>").count(),
            10_000 - html.matches("<img").count()
        );
    }

    #[test]
    fn front_matter_and_code_are_highlighted() {
        let html = rendered("---\ntitle: x\n---\n```rust\nlet a = \"<\";\n```\n");
        assert!(html.contains("<details class=\"front\">"), "{html}");
        assert!(html.contains("<i class=\"k\">let</i> a = <i class=\"s\">&quot;&lt;&quot;</i>"), "{html}");
    }
}
