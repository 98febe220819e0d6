//! Divides a text into sections: prose at headings, code at definitions, and long sections at paragraphs.

use std::ops::Range;

use crate::definitions;

/// A section of prose with at least this many bytes ends at the next paragraph. In code, a section ends at a top-level
/// definition from half of this size on, at an inner definition after an empty line from this size on, and at any empty
/// line from one and a half times this size on.
const TARGET_BYTES: usize = 2000;

/// The size of the largest section, in bytes. A longer paragraph is divided between lines, and a longer line between
/// characters.
const MAX_BYTES: usize = 6000;

/// After this many headings, a text is divided only by size, so that a text of nothing but headings does not fill the
/// index.
const MAX_HEADINGS: usize = 2000;

/// The longest heading, in bytes; the rest is cut off.
const MAX_HEADING: usize = 200;

/// The separator between a heading and the next one below it.
pub(crate) const ABOVE: &str = " > ";

/// A section of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextSection {
    /// The heading, preceded by the headings above it: `Guide > Install > Linux`. Empty before the first heading.
    pub heading: String,
    /// The first line, counted from 1.
    pub first_line: u32,
    /// The last line.
    pub last_line: u32,
    /// The byte range in the text.
    pub range: Range<usize>,
}

/// How a text is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Markup {
    /// Headings of Markdown, reStructuredText, AsciiDoc or POD.
    Prose,
    /// Definitions of a programming language.
    Code,
}

/// Divides a text into consecutive sections that cover all of it. `mime` and `path` decide whether it is code.
pub fn divide(text: &str, mime: Option<&str>, path: &str) -> Vec<TextSection> {
    let mut divider = Divider::new(markup(mime, path));
    let mut lines = TextLines::new(text).peekable();
    while let Some(line) = lines.next() {
        let next = lines.peek().map_or("", |next: &TextLine<'_>| next.text);
        divider.line(&line, next);
    }
    divider.end(text.len())
}

/// The title of a document: the top-level heading of its first section or, if that has none, of the second. Empty if
/// there is none, and for code, whose headings are definitions.
pub(crate) fn title<'s>(sections: &'s [TextSection], mime: Option<&str>, path: &str) -> &'s str {
    if markup(mime, path) == Markup::Code {
        return "";
    }
    let first = sections.iter().take(2).find(|section| !section.heading.is_empty());
    first.and_then(|section| section.heading.split(ABOVE).next()).unwrap_or_default()
}

fn markup(mime: Option<&str>, path: &str) -> Markup {
    const PROSE: [&str; 12] =
        ["md", "markdown", "rst", "txt", "pod", "adoc", "asciidoc", "org", "text", "mdx", "html", "tex"];
    const PROSE_MIMES: [&str; 4] = ["text/markdown", "text/x-rst", "text/html", "text/x-pod"];
    let extension =
        path.rsplit('/').next().and_then(|name| name.rsplit_once('.')).map(|(_, extension)| extension);
    let is_prose = mime.is_some_and(|mime| PROSE_MIMES.contains(&mime))
        || extension.is_none_or(|extension| PROSE.contains(&&*extension.to_ascii_lowercase()));
    if is_prose { Markup::Prose } else { Markup::Code }
}

/// A line of a text, without its line break. `start..end` is its byte range with the line break.
struct TextLine<'t> {
    text: &'t str,
    start: usize,
    end: usize,
    number: u32,
}

struct TextLines<'t> {
    rest: &'t str,
    at: usize,
    number: u32,
}

impl<'t> TextLines<'t> {
    fn new(text: &'t str) -> Self {
        Self { rest: text, at: 0, number: 1 }
    }
}

impl<'t> Iterator for TextLines<'t> {
    type Item = TextLine<'t>;

    fn next(&mut self) -> Option<TextLine<'t>> {
        if self.rest.is_empty() {
            return None;
        }
        let mut length = memchr::memchr(b'\n', self.rest.as_bytes()).map_or(self.rest.len(), |at| at + 1);
        // A very long line, as in minified code, is split, so that each part can become a section.
        let is_cut = length > MAX_BYTES;
        if is_cut {
            length = floor_char_boundary(self.rest, MAX_BYTES);
        }
        let (line, rest) = self.rest.split_at(length);
        let start = self.at;
        let number = self.number;
        (self.rest, self.at) = (rest, start + length);
        self.number += u32::from(!is_cut);
        Some(TextLine { text: line.trim_end_matches(['\n', '\r']), start, end: self.at, number })
    }
}

fn floor_char_boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default()
}

/// Collects sections line by line.
struct Divider {
    markup: Markup,
    sections: Vec<TextSection>,
    /// The headings that apply to the current line, with their levels.
    path: Vec<(usize, String)>,
    /// The underline characters of headings so far; their order gives the levels, as in reStructuredText.
    underlines: Vec<char>,
    /// The start of the current section.
    start: usize,
    first_line: u32,
    /// The last line so far of the current section.
    last_line: u32,
    headings: usize,
    /// The fence of the current code block in Markdown.
    fence: Option<&'static str>,
    /// Whether the previous line was empty.
    after_gap: bool,
    /// In code, the first definition of the current section, which becomes its heading.
    definition: Option<String>,
}

impl Divider {
    fn new(markup: Markup) -> Self {
        Self {
            markup,
            sections: Vec::new(),
            path: Vec::new(),
            underlines: Vec::new(),
            start: 0,
            first_line: 1,
            last_line: 0,
            headings: 0,
            fence: None,
            after_gap: true,
            definition: None,
        }
    }

    fn line(&mut self, line: &TextLine<'_>, next: &str) {
        let size = line.start - self.start;
        let heading = match self.markup {
            Markup::Prose => self.heading(line.text, next),
            Markup::Code => None,
        };
        if let Some((level, title)) = heading.filter(|_| self.headings < MAX_HEADINGS) {
            self.cut(line);
            self.headings += 1;
            self.path.retain(|(above, _)| *above < level);
            let end = floor_char_boundary(title, MAX_HEADING);
            self.path.push((level, title[..end].trim().to_owned()));
        } else if self.markup == Markup::Code {
            let definition = definitions::of_line(line.text).map(|(_, name)| name);
            let is_outer = definition.is_some() && !line.text.starts_with([' ', '\t']);
            let is_inner = definition.is_some() && self.after_gap;
            if size >= TARGET_BYTES / 2 && is_outer
                || size >= TARGET_BYTES && (is_inner || self.after_gap && size >= TARGET_BYTES * 3 / 2)
                || line.end - self.start > MAX_BYTES
            {
                self.cut(line);
            }
            if self.definition.is_none() {
                self.definition = definition.map(str::to_owned);
            }
        } else if size >= TARGET_BYTES && self.after_gap && self.fence.is_none()
            || line.end - self.start > MAX_BYTES
        {
            self.cut(line);
        }
        self.after_gap = line.text.trim().is_empty();
        self.last_line = line.number;
    }

    /// The level and the text of the heading, if this line is one; `next` may be its underline.
    fn heading<'t>(&mut self, line: &'t str, next: &str) -> Option<(usize, &'t str)> {
        let start = line.trim_start();
        for marker in ["```", "~~~"] {
            if start.starts_with(marker) && self.fence.is_none_or(|open| open == marker) {
                self.fence = if self.fence.is_none() { Some(marker) } else { None };
                return None;
            }
        }
        if self.fence.is_some() {
            return None;
        }
        if let Some(rest) = line.strip_prefix("=head") {
            let level = rest.chars().next()?.to_digit(10)? as usize;
            return Some((level, rest[1..].trim()));
        }
        for marker in ['#', '='] {
            let level = line.chars().take_while(|letter| *letter == marker).count();
            if (1..=6).contains(&level) && line[level..].starts_with([' ', '\t']) && line.len() > level + 1 {
                return Some((level, line[level..].trim().trim_end_matches(marker).trim()));
            }
        }
        let underline = underline(next)?;
        let is_title = self.after_gap
            && !line.trim().is_empty()
            && !line.starts_with([' ', '\t', '|', '+', '-', '*', '>'])
            && next.trim_end().chars().count() + 2 >= line.trim_end().chars().count()
            && self::underline(line).is_none();
        if !is_title {
            return None;
        }
        let known = self.underlines.iter().position(|known| *known == underline);
        let level = known.unwrap_or_else(|| {
            self.underlines.push(underline);
            self.underlines.len() - 1
        });
        Some((level + 1, line.trim()))
    }

    /// Ends the current section before this line.
    fn cut(&mut self, line: &TextLine<'_>) {
        self.finish(line.start);
        self.start = line.start;
        self.first_line = line.number;
        self.definition = None;
    }

    fn finish(&mut self, end: usize) {
        if end > self.start {
            let titles = self.path.iter().map(|(_, title)| &**title).chain(self.definition.as_deref());
            let titles: Vec<_> = titles.filter(|title| !title.is_empty()).collect();
            self.sections.push(TextSection {
                heading: titles.join(ABOVE),
                first_line: self.first_line,
                last_line: self.last_line.max(self.first_line),
                range: self.start..end,
            });
        }
    }

    fn end(mut self, length: usize) -> Vec<TextSection> {
        self.finish(length);
        self.sections
    }
}

/// The character of a line that consists of one repeated character and so may underline a heading.
fn underline(line: &str) -> Option<char> {
    let line = line.trim_end();
    let first = line.chars().next()?;
    let is_underline =
        line.len() >= 3 && "=-~^\"'`#*+.:_".contains(first) && line.chars().all(|letter| letter == first);
    is_underline.then_some(first)
}

#[cfg(test)]
mod tests {
    use super::divide;

    fn outline(text: &str, path: &str) -> Vec<(String, u32, u32)> {
        let sections = divide(text, None, path);
        let mut end = 0;
        for section in &sections {
            assert_eq!(section.range.start, end, "the sections cover the text");
            end = section.range.end;
        }
        assert_eq!(end, text.len());
        sections.into_iter().map(|section| (section.heading, section.first_line, section.last_line)).collect()
    }

    #[test]
    fn headings_start_sections() {
        let text = "intro\n\n# Guide\ntext\n```sh\n# no heading\n```\n## Install\nmore\n# Next\n";
        let expected = [("", 1, 2), ("Guide", 3, 7), ("Guide > Install", 8, 9), ("Next", 10, 10)];
        assert_eq!(
            outline(text, "a.md"),
            expected.map(|(heading, first, last)| (heading.to_owned(), first, last))
        );
    }

    #[test]
    fn underlined_headings_and_pod_are_headings() {
        let text = "Title\n=====\n\ntext\n\nPart\n----\n\nbody\n";
        let expected = [("Title", 1, 5), ("Title > Part", 6, 9)];
        assert_eq!(
            outline(text, "a.rst"),
            expected.map(|(heading, first, last)| (heading.to_owned(), first, last))
        );
        let text = "=head1 NAME\n\nx\n\n=head2 What?\n\ny\n";
        let expected = [("NAME", 1, 4), ("NAME > What?", 5, 7)];
        assert_eq!(
            outline(text, "a.pod"),
            expected.map(|(heading, first, last)| (heading.to_owned(), first, last))
        );
    }

    #[test]
    fn a_text_of_headings_has_a_bounded_number_of_sections() {
        let text = "# a\n".repeat(100_000);
        let count = outline(&text, "a.md").len();
        assert!(count <= super::MAX_HEADINGS + 1 + text.len() / super::TARGET_BYTES, "{count}");
    }

    #[test]
    fn long_lines_are_divided_and_keep_their_number() {
        let text = format!("one\n{}\nlast\n", "ä".repeat(10_000));
        let sections = outline(&text, "a.txt");
        assert!(sections.len() >= 4, "{sections:?}");
        assert_eq!(sections.last().unwrap().2, 3);
    }

    #[test]
    fn code_is_divided_at_definitions() {
        let function = |name: &str| format!("fn {name}() {{\n{}}}\n\n", "    work();\n".repeat(120));
        let text = [function("first"), function("second"), function("third")].concat();
        let names: Vec<_> = outline(&text, "a.rs").into_iter().map(|section| section.0).collect();
        assert_eq!(names, ["first", "second", "third"]);
    }
}
