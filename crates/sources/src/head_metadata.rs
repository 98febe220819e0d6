//! The title and the description of a document, from its first bytes: YAML front matter, the first Markdown heading,
//! the `<title>` of HTML, or the first heading of a notebook.

use crate::front_matter::{FrontMatter, MAX_TITLE_CHARACTERS, truncate_characters};

/// The media type of Jupyter notebooks.
const NOTEBOOK: &str = "application/x-ipynb+json";

/// The title and the description of a document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HeadMetadata {
    pub(crate) title: Option<String>,
    pub(crate) description: Option<String>,
}

/// Whether documents of this media type may have a title. Documents of other types need not be read.
pub(crate) fn may_be_in(mime: &str) -> bool {
    matches!(mime, "text/markdown" | "text/mdx" | "text/html" | "application/xhtml+xml" | NOTEBOOK)
}

impl HeadMetadata {
    /// The metadata in the first bytes of a document; `None` if there is none.
    pub(crate) fn parse(mime: &str, head: &[u8]) -> Option<Self> {
        let found = match mime {
            "text/markdown" | "text/mdx" => {
                let matter = FrontMatter::parse(head).unwrap_or_default();
                let title = matter.title.or_else(|| markdown_heading(&String::from_utf8_lossy(head)));
                Self { title, description: matter.description }
            }
            "text/html" | "application/xhtml+xml" => {
                Self { title: html_title(&String::from_utf8_lossy(head)), description: None }
            }
            NOTEBOOK => Self { title: notebook_title(&String::from_utf8_lossy(head)), description: None },
            _ => return None,
        };
        (found != Self::default()).then_some(found)
    }

    /// The number of bytes of the title and the description together.
    #[cfg(any(test, feature = "files"))]
    pub(crate) fn len(&self) -> usize {
        [&self.title, &self.description].into_iter().flatten().map(String::len).sum()
    }
}

/// The first heading that has text, outside front matter, code blocks and HTML comments.
fn markdown_heading(text: &str) -> Option<String> {
    let text = text.trim_start_matches('\u{feff}');
    let mut fence: Option<&str> = None;
    let mut comment = false;
    let mut paragraph: Option<&str> = None;
    for line in after_front_matter(text).lines() {
        let trimmed = line.trim();
        if let Some(open) = fence {
            if trimmed.starts_with(open) {
                fence = None;
            }
            continue;
        }
        if comment || trimmed.starts_with("<!--") {
            comment = !trimmed.contains("-->");
            continue;
        }
        if let Some(open) = ["```", "~~~"].into_iter().find(|open| trimmed.starts_with(open)) {
            fence = Some(open);
            paragraph = None;
            continue;
        }
        let indented = line.starts_with("    ") || line.starts_with('\t');
        if let Some(heading) = atx_heading(trimmed).filter(|_| !indented)
            && let Some(title) = plain_text(heading)
        {
            return Some(title);
        }
        let underlined = trimmed.len() >= 3
            && ["=", "-"].iter().any(|rule| trimmed.trim_matches(|letter| rule.contains(letter)).is_empty());
        if underlined && let Some(title) = paragraph.and_then(plain_text) {
            return Some(title);
        }
        paragraph = (!trimmed.is_empty()
            && !underlined
            && !indented
            && !trimmed.starts_with(['#', '>', '-', '*', '|', '<']))
        .then_some(trimmed);
    }
    None
}

/// The text after front matter, or all of it if there is none.
fn after_front_matter(text: &str) -> &str {
    let Some(rest) =
        text.strip_prefix("---").filter(|rest| rest.trim_start_matches([' ', '\r']).starts_with('\n'))
    else {
        return text;
    };
    ["\n---", "\n..."].iter().filter_map(|end| rest.find(end)).min().map_or(text, |end| &rest[end + 4..])
}

/// The text of a line that begins with one to six `#`.
fn atx_heading(line: &str) -> Option<&str> {
    let rest = line.trim_start_matches('#');
    let level = line.len() - rest.len();
    let text = rest.strip_prefix([' ', '\t']).filter(|_| (1..=6).contains(&level))?.trim();
    let closed = text.trim_end_matches('#');
    Some(if closed.ends_with([' ', '\t']) || closed.is_empty() { closed.trim_end() } else { text })
}

/// The maximum number of characters of a heading that are examined. Parsing its links takes quadratic time.
const MAX_HEADING_CHARACTERS: usize = 1000;

/// Markdown or HTML text without tags, images, link targets, emphasis and code marks, on one line; `None` if nothing
/// is left.
fn plain_text(markup: &str) -> Option<String> {
    let mut text = String::new();
    let end = markup.char_indices().nth(MAX_HEADING_CHARACTERS).map_or(markup.len(), |(end, _)| end);
    let mut rest = &markup[..end];
    while let Some(letter) = rest.chars().next() {
        let after = &rest[letter.len_utf8()..];
        rest = match letter {
            '<' if after
                .starts_with(|next: char| next.is_ascii_alphabetic() || next == '/' || next == '!') =>
            {
                after.split_once('>').map_or("", |(_, behind)| behind)
            }
            '!' if after.starts_with('[') => match link(&after[1..]) {
                Some((_, behind)) => behind,
                None => after,
            },
            '[' => match link(after) {
                Some((label, behind)) => {
                    text.push_str(&plain_text(label).unwrap_or_default());
                    behind
                }
                None => {
                    text.push('[');
                    after
                }
            },
            '`' => after,
            '*' if after.starts_with('*') => &after[1..],
            '\\' if after.starts_with(|next: char| next.is_ascii_punctuation()) => {
                text.extend(after.chars().next());
                &after[1..]
            }
            letter if letter.is_whitespace() || letter.is_control() => {
                text.push(' ');
                after
            }
            letter => {
                text.push(letter);
                after
            }
        };
    }
    let text = decode_entities(&text).split_whitespace().collect::<Vec<_>>().join(" ");
    (!text.is_empty()).then(|| truncate_characters(text, MAX_TITLE_CHARACTERS))
}

/// The label of a link whose `[` was consumed, and the text after the link. Brackets in the label are counted, because
/// the label of a badge is an image.
fn link(text: &str) -> Option<(&str, &str)> {
    let mut depth = 1;
    let end = text.bytes().position(|byte| {
        match byte {
            b'[' => depth += 1,
            b']' => depth -= 1,
            _ => {}
        }
        depth == 0
    })?;
    let target = text[end + 1..].strip_prefix('(')?;
    target.split_once(')').map(|(_, behind)| (&text[..end], behind))
}

/// The text of the `<title>` element.
fn html_title(text: &str) -> Option<String> {
    let lower = text.to_ascii_lowercase();
    let tag = lower.find("<title")?;
    let begin = tag + lower[tag..].find('>')? + 1;
    let end = begin + lower[begin..].find("</title")?;
    let title = decode_entities(&text[begin..end]).split_whitespace().collect::<Vec<_>>().join(" ");
    (!title.is_empty()).then(|| truncate_characters(title, MAX_TITLE_CHARACTERS))
}

/// Decodes the entities that are common in titles.
fn decode_entities(text: &str) -> String {
    let named =
        [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&apos;", "'"), ("&nbsp;", " ")];
    let decoded =
        named.into_iter().fold(text.to_owned(), |text, (entity, letter)| text.replace(entity, letter));
    decoded.replace("&amp;", "&")
}

/// The first heading of the first Markdown cell. The head of a notebook is not a whole JSON document, so it is
/// scanned for the keys of cells. Notebooks write these keys in alphabetical order, so `cell_type` precedes
/// `source`.
fn notebook_title(text: &str) -> Option<String> {
    let cell = text
        .split("\"cell_type\"")
        .skip(1)
        .find(|cell| cell.trim_start_matches([':', ' ', '\n', '\r', '\t']).starts_with("\"markdown\""))?;
    let source = cell.split_once("\"source\"")?.1;
    let lines: String = json_strings(source).take(20).collect();
    markdown_heading(&lines)
}

/// The strings of the JSON array at the start of `text`, up to the end of the array or of `text`.
fn json_strings(text: &str) -> impl Iterator<Item = String> {
    let mut rest = text.trim_start_matches([':', ' ', '[', '\n', '\r', '\t']);
    std::iter::from_fn(move || {
        rest = rest.trim_start_matches([',', ' ', '\n', '\r', '\t']);
        let body = rest.strip_prefix('"')?;
        let mut escaped = false;
        let end = body.bytes().position(|byte| {
            let closes = byte == b'"' && !escaped;
            escaped = byte == b'\\' && !escaped;
            closes
        })?;
        rest = &body[end + 1..];
        serde_json::from_str(&format!("\"{}\"", &body[..end])).ok()
    })
}

#[cfg(test)]
mod tests {
    use super::{HeadMetadata, NOTEBOOK};

    fn title(mime: &str, text: &str) -> Option<String> {
        HeadMetadata::parse(mime, text.as_bytes())?.title
    }

    #[test]
    fn the_first_markdown_heading() {
        let cases = [
            ("# On call\n\ntext", "On call"),
            ("text\n\n## Second level ##\n", "Second level"),
            ("\u{feff}Setext\n======\n", "Setext"),
            ("Two\nlines\n---\n", "lines"),
            ("---\nauthor: x\n---\n# Below\n", "Below"),
            ("---\ntitle: Front\n---\n# Below\n", "Front"),
            ("---\n\n# After a rule\n", "After a rule"),
            ("```sh\n# comment\n```\n# Real\n", "Real"),
            ("<!-- # no\n# no\n-->\n# Yes\n", "Yes"),
            ("    # code\n# Yes\n", "Yes"),
            (
                "# [![build](b.svg)](ci) ![logo](l.png) **Libris** `0.1` [docs](d) &amp; C#\n",
                "Libris 0.1 docs & C#",
            ),
            ("# ![only a picture](x.png)\n# Name\n", "Name"),
            ("# <img src=x> a_b [x] 1 < 2\n", "a_b [x] 1 < 2"),
            ("#no\n#!/bin/sh\n####### seven\n# one", "one"),
        ];
        for (text, expected) in cases {
            assert_eq!(title("text/markdown", text).as_deref(), Some(expected), "{text}");
        }
        for none in ["", "text", "- a\n---\n", "#", "# ", "| a |\n|---|\n", "```\n# open", "a\n\n---\n"] {
            assert_eq!(title("text/markdown", none), None, "{none}");
        }
        assert_eq!(title("text/markdown", &format!("# {}", "é".repeat(300))).unwrap(), "é".repeat(200));
        assert_eq!(title("text/markdown", &format!("# {}", "[".repeat(8000))).unwrap(), "[".repeat(200));
    }

    #[test]
    fn the_title_of_html() {
        let page = "<!doctype html><HTML><head><Title lang=en>\n A &lt;b&gt; &amp;amp;\n C </TITLE>";
        assert_eq!(title("text/html", page).as_deref(), Some("A <b> &amp; C"));
        for none in ["<p>", "<title>open", "<title> </title>", "<title"] {
            assert_eq!(title("text/html", none), None, "{none}");
        }
    }

    #[test]
    fn the_first_heading_of_a_notebook() {
        let notebook = r##"{"cells": [{"cell_type": "code", "source": ["# not this"]},
            {"cell_type": "markdown", "metadata": {}, "source": ["Intro\n", "\n", "# Growth \"rates\"\n"]}, {"cell_"##;
        assert_eq!(title(NOTEBOOK, notebook).as_deref(), Some("Growth \"rates\""));
        let one_string = r###"{"cells":[{"cell_type":"markdown","source":"## One\nx"}]}"###;
        assert_eq!(title(NOTEBOOK, one_string).as_deref(), Some("One"));
        let cut = r##"{"cells":[{"cell_type":"markdown","source":["# Cut"##;
        assert_eq!(title(NOTEBOOK, cut), None);
    }
}
