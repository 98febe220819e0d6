//! Renders rich text as Markdown.

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde_json::Value;

use super::id;

/// Characters that would end the target of a link.
const LINK_TARGET_ESCAPES: &AsciiSet = &CONTROLS.add(b' ').add(b'<').add(b'>').add(b'\\');

/// Renders rich text for the inside of a paragraph.
pub(super) fn markdown(rich: &Value) -> String {
    let mut out = String::new();
    let mut runs = rich.as_array().map(Vec::as_slice).unwrap_or_default();
    while let Some((first, rest)) = runs.split_first() {
        // Notion may split a run without a change of formatting, and `**a****b**` is not bold `ab`. So equal runs are
        // merged.
        let same = |run: &&Value| {
            run["annotations"] == first["annotations"]
                && run["href"] == first["href"]
                && [*run, first].iter().all(|run| run["type"] == "text")
        };
        let more = rest.iter().take_while(same).count();
        let text: String = runs[..=more].iter().map(|run| run["plain_text"].as_str().unwrap_or("")).collect();
        let run = run(first, &text);
        if run.starts_with('[') && out.ends_with('!') {
            // A `!` before a link would turn it into an image.
            out.insert(out.len() - 1, '\\');
        }
        out += &run;
        runs = &rest[more..];
    }
    out.replace('\n', "\\\n")
}

/// Rich text without formatting.
pub(super) fn plain(rich: &Value) -> String {
    let runs = rich.as_array().map(Vec::as_slice).unwrap_or_default();
    runs.iter().filter_map(|run| run["plain_text"].as_str()).collect()
}

/// Renders a run of text with its formatting and its link.
fn run(run: &Value, text: &str) -> String {
    if run["type"] == "equation" {
        return format!("${}$", run["equation"]["expression"].as_str().unwrap_or(text));
    }
    // In Markdown, emphasis markers must be adjacent to the text.
    let inner = text.trim();
    if inner.is_empty() {
        return text.to_owned();
    }
    let start = text.len() - text.trim_start().len();
    let (before, after) = (&text[..start], &text[start + inner.len()..]);
    let is = |name: &str| run["annotations"][name] == true;
    let mut marked = if is("code") { code(inner) } else { escape(inner) };
    for (name, open, close) in [
        ("bold", "**", "**"),
        ("italic", "*", "*"),
        ("strikethrough", "~~", "~~"),
        ("underline", "<u>", "</u>"),
    ] {
        if is(name) {
            marked = format!("{open}{marked}{close}");
        }
    }
    if let Some(target) = target(run) {
        marked = link(&marked, &target);
    }
    format!("{before}{marked}{after}")
}

/// The link target of a run: for pages and databases, the URI of the resource.
fn target(run: &Value) -> Option<String> {
    let mention = &run["mention"];
    match mention["type"].as_str() {
        Some("page") => return id::of(&mention["page"], "id").map(|id| page(&id)),
        Some("database") => return id::of(&mention["database"], "id").map(|id| rows(&id)),
        _ => {}
    }
    let target = run["href"].as_str()?;
    if let Some(own) = target.strip_prefix('/') {
        let own = own.split(['?', '#']).next().unwrap_or_default();
        return id::parse(own).map(|id| page(&id));
    }
    is_safe(target).then(|| target.to_owned())
}

/// The URI of a page.
pub(super) fn page(id: &str) -> String {
    format!("notion://pages/{id}")
}

/// The URI of the rows of a database.
pub(super) fn rows(id: &str) -> String {
    format!("notion://databases/{id}/rows")
}

/// A link; only the text if the target has an unsafe scheme.
pub(super) fn link(text: &str, target: &str) -> String {
    if !is_safe(target) {
        return text.to_owned();
    }
    let target = utf8_percent_encode(target, LINK_TARGET_ESCAPES).to_string();
    match target.contains(['(', ')']) {
        true => format!("[{text}](<{target}>)"),
        false => format!("[{text}]({target})"),
    }
}

/// Whether the scheme is safe to follow: it cannot execute code, as `javascript:` can.
fn is_safe(target: &str) -> bool {
    ["https://", "http://", "mailto:", "notion://"].iter().any(|scheme| target.starts_with(scheme))
}

/// A code span, delimited by more backticks than any run of backticks in it.
fn code(text: &str) -> String {
    let ticks = "`".repeat(longest(text, '`') + 1);
    let pad = if text.starts_with('`') || text.ends_with('`') { " " } else { "" };
    format!("{ticks}{pad}{text}{pad}{ticks}")
}

/// The length of the longest run of a character.
pub(super) fn longest(text: &str, letter: char) -> usize {
    text.split(|other| other != letter).map(str::len).max().unwrap_or_default()
}

/// Escapes the characters that could begin formatting, code, a link, HTML, a formula or a character reference.
/// Beginnings of lines are escaped by [`paragraph`], and `|` in tables by `cell_of`.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (at, letter) in text.char_indices() {
        let is_mark = matches!(letter, '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '~' | '$');
        if is_mark || (letter == '&' && is_entity(&text[at..])) {
            out.push('\\');
        }
        out.push(letter);
    }
    out
}

/// Whether the text begins with a character reference, such as `&amp;` or `&#38;`.
fn is_entity(text: &str) -> bool {
    let name = text.split_once(';').map(|(before, _)| before.trim_start_matches(['&', '#']));
    name.is_some_and(|name| !name.is_empty() && name.chars().all(|letter| letter.is_ascii_alphanumeric()))
}

/// Escapes the beginnings of lines that would start another kind of block.
pub(super) fn paragraph(text: String) -> String {
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

/// Escapes the beginning of a line if it would start another kind of block.
fn line(text: &str) -> String {
    // Leading whitespace is not rendered, and four spaces would make a code block.
    let text = text.trim_start_matches([' ', '\t']);
    let rest = text.trim_start_matches(|letter: char| letter.is_ascii_digit());
    let numbered = rest.len() < text.len() && rest.starts_with(['.', ')']);
    if numbered {
        let digits = text.len() - rest.len();
        return format!("{}\\{}", &text[..digits], &text[digits..]);
    }
    match text.starts_with(['#', '>', '-', '+', '|', '=']) {
        true => format!("\\{text}"),
        false => text.to_owned(),
    }
}
