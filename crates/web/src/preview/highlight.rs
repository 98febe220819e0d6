//! Highlights source with a lexer that recognises comments, strings, numbers and keywords.
//!
//! The lexer takes linear time for any text, and needs no grammar files. The grammars of editors distinguish more, but
//! they take megabytes, and their regular expressions can backtrack.

use std::fmt::Write as _;

use super::MAX_HTML;
use super::language::{Grammar, SourceLanguage};
use crate::html;

/// The maximum number of lines that are shown.
const MAX_LINES: usize = 6_000;

/// Longer lines are broken after this many characters.
const MAX_LINE: usize = 2_000;

/// The kind of a token, which decides the CSS class of its element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece {
    Plain,
    Comment,
    String,
    Number,
    Keyword,
    Type,
    Function,
    Added,
    Removed,
    Head,
}

impl Piece {
    const fn class(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Comment => "c",
            Self::String => "s",
            Self::Number => "n",
            Self::Keyword => "k",
            Self::Type => "t",
            Self::Function => "f",
            Self::Added => "add",
            Self::Removed => "del",
            Self::Head => "h",
        }
    }
}

/// The first lines of a text, at most [`MAX_LINES`].
pub(super) fn first_lines(text: &str) -> &str {
    text.match_indices('\n').nth(MAX_LINES - 1).map_or(text, |(end, _)| &text[..=end])
}

/// Renders source with line numbers, which begin with `first`.
pub(super) fn render_lines(out: &mut String, text: &str, language: &SourceLanguage, first: u64) {
    let mut lines = LineWriter { out, number: first, length: 0, is_open: false };
    lines.out.push_str("<pre class=\"source\" tabindex=\"0\"><code>");
    lex(text, language, &mut |piece, text| lines.push(piece, text));
    lines.finish();
    out.push_str("</code></pre>");
}

/// Renders source without line numbers, as in a code block.
pub(super) fn render_block(out: &mut String, text: &str, language: &SourceLanguage) {
    out.push_str("<pre><code>");
    lex(text, language, &mut |piece, text| push_piece(out, piece, text));
    out.push_str("</code></pre>");
}

fn push_piece(out: &mut String, piece: Piece, text: &str) {
    // The rest of a long text is shown without colours.
    if piece == Piece::Plain || out.len() >= MAX_HTML {
        return html::push_text(out, text);
    }
    out.push_str("<i class=\"");
    out.push_str(piece.class());
    out.push_str("\">");
    html::push_text(out, text);
    out.push_str("</i>");
}

/// Writes pieces. Each line is an HTML element, so a piece that spans lines is split.
struct LineWriter<'a> {
    out: &'a mut String,
    /// The number of the current line.
    number: u64,
    /// Characters in the element of the current line.
    length: usize,
    /// Whether this element is open.
    is_open: bool,
}

impl LineWriter<'_> {
    fn push(&mut self, piece: Piece, text: &str) {
        for (index, part) in text.split('\n').enumerate() {
            if index > 0 {
                self.end_line();
            }
            let mut part = part.strip_suffix('\r').unwrap_or(part);
            while !part.is_empty() {
                if self.length == MAX_LINE {
                    // The rest of the line is an element without a number.
                    self.out.push_str("</span>\n<span class=\"l\">");
                    self.length = 0;
                }
                self.open();
                let (shown, _) = html::beginning(part, MAX_LINE - self.length);
                push_piece(self.out, piece, shown);
                self.length += shown.chars().count();
                part = &part[shown.len()..];
            }
        }
    }

    fn open(&mut self) {
        if !self.is_open {
            let _ = write!(self.out, "<span class=\"l\" data-n=\"{}\">", self.number);
            self.is_open = true;
        }
    }

    fn end_line(&mut self) {
        self.open();
        self.out.push_str("</span>\n");
        (self.is_open, self.length) = (false, 0);
        self.number += 1;
    }

    fn finish(&mut self) {
        if self.is_open {
            self.end_line();
        }
    }
}

/// Splits source into pieces. Concatenated, they are the whole text.
fn lex<'a>(text: &'a str, language: &SourceLanguage, emit: &mut dyn FnMut(Piece, &'a str)) {
    match language.grammar {
        Grammar::Diff => diff(text, emit),
        Grammar::Markup => markup(text, language, emit),
        Grammar::Code | Grammar::Settings => code(text, language, emit),
    }
}

fn diff<'a>(text: &'a str, emit: &mut dyn FnMut(Piece, &'a str)) {
    for line in text.split_inclusive('\n') {
        let piece = match line.as_bytes() {
            [b'+', b'+', b'+', ..] | [b'-', b'-', b'-', ..] | [b'd', b'i', b'f', b'f', ..] => Piece::Keyword,
            [b'@', b'@', ..] => Piece::Head,
            [b'+', ..] => Piece::Added,
            [b'-', ..] => Piece::Removed,
            _ => Piece::Plain,
        };
        emit(piece, line);
    }
}

fn markup<'a>(text: &'a str, language: &SourceLanguage, emit: &mut dyn FnMut(Piece, &'a str)) {
    let mut rest = text;
    while let Some(at) = rest.find('<') {
        emit(Piece::Plain, &rest[..at]);
        rest = &rest[at..];
        if let Some(length) = block_comment(rest, language) {
            emit(Piece::Comment, &rest[..length]);
            rest = &rest[length..];
            continue;
        }
        let end = rest.find('>').map_or(rest.len(), |end| end + 1);
        let tag = &rest[..end];
        let name = tag.find(|letter: char| letter.is_whitespace() || letter == '>').unwrap_or(tag.len());
        emit(Piece::Keyword, &tag[..name]);
        let mut attributes = &tag[name..];
        while let Some(at) = attributes.find(['"', '\'']) {
            emit(Piece::Plain, &attributes[..at]);
            attributes = &attributes[at..];
            let length = string(attributes, &attributes[..1]);
            emit(Piece::String, &attributes[..length]);
            attributes = &attributes[length..];
        }
        emit(Piece::Plain, attributes);
        rest = &rest[end..];
    }
    emit(Piece::Plain, rest);
}

fn code<'a>(text: &'a str, language: &SourceLanguage, emit: &mut dyn FnMut(Piece, &'a str)) {
    // Plain text is emitted in runs: `start..at`.
    let (mut start, mut at) = (0, 0);
    let mut at_line_start = true;
    while at < text.len() {
        let rest = &text[at..];
        let (piece, length) = match piece_at(rest, language, at_line_start) {
            Some(found) => found,
            None => (Piece::Plain, rest.chars().next().map_or(1, char::len_utf8)),
        };
        at_line_start = match rest.as_bytes()[0] {
            b'\n' => true,
            b' ' | b'\t' => at_line_start,
            // A key may follow the mark of a list item. In a longer run of dashes, looking for a key at each of them
            // would be quadratic.
            b'-' => at_line_start && rest[1..].starts_with([' ', '\t']),
            _ => false,
        };
        if piece != Piece::Plain {
            if start < at {
                emit(Piece::Plain, &text[start..at]);
            }
            emit(piece, &text[at..at + length]);
            start = at + length;
        }
        at += length;
    }
    if start < text.len() {
        emit(Piece::Plain, &text[start..]);
    }
}

/// The piece at the beginning of a text, and its length in bytes; `None` for a single plain character.
fn piece_at(rest: &str, language: &SourceLanguage, at_line_start: bool) -> Option<(Piece, usize)> {
    if let Some(length) = block_comment(rest, language) {
        return Some((Piece::Comment, length));
    }
    if language.line_comments.iter().any(|mark| rest.starts_with(mark)) {
        return Some((Piece::Comment, rest.find('\n').unwrap_or(rest.len())));
    }
    if let Some(quote) = language.quotes.iter().find(|quote| rest.starts_with(**quote)) {
        return Some((Piece::String, string(rest, quote)));
    }
    let first = rest.chars().next()?;
    if language.grammar == Grammar::Settings && at_line_start {
        if first == '[' {
            return Some((Piece::Type, rest.find('\n').unwrap_or(rest.len())));
        }
        if let Some(length) = setting_key(rest) {
            return Some((Piece::Keyword, length));
        }
    }
    if first.is_ascii_digit() && !language.keywords.is_empty() {
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_');
        return Some((Piece::Number, rest.find(|letter| !is_part(letter)).unwrap_or(rest.len())));
    }
    if !(first.is_alphabetic() || first == '_') {
        return None;
    }
    let length = rest.find(|letter: char| !(letter.is_alphanumeric() || letter == '_')).unwrap_or(rest.len());
    let word = &rest[..length];
    let piece = if language.has_keyword(word) {
        Piece::Keyword
    } else if language.keywords.is_empty() {
        Piece::Plain
    } else if rest[length..].starts_with('(') {
        Piece::Function
    } else if first.is_uppercase() && word.contains(char::is_lowercase) {
        Piece::Type
    } else {
        Piece::Plain
    };
    Some((piece, length))
}

/// The length of the key, if the text begins with `key =` or `key:`.
fn setting_key(rest: &str) -> Option<usize> {
    let is_part = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '-' | '.' | '/' | '$');
    let length = rest.find(|letter| !is_part(letter)).filter(|length| *length > 0)?;
    let after = rest[length..].trim_start_matches([' ', '\t']);
    (after.starts_with('=') || rest[length..].starts_with(':')).then_some(length)
}

/// The length of the block comment at the beginning of a text, if there is one.
fn block_comment(rest: &str, language: &SourceLanguage) -> Option<usize> {
    let (begin, end) = language.block_comment?;
    let inner = rest.strip_prefix(begin)?;
    Some(inner.find(end).map_or(rest.len(), |at| begin.len() + at + end.len()))
}

/// The length of the string literal at the beginning of a text, with its quotes. Without a closing quote, the literal
/// ends with the line, or with the text if it may span lines.
fn string(rest: &str, quote: &str) -> usize {
    let is_multiline = quote.len() > 1 || quote == "`";
    let mut escaped = false;
    let mut at = quote.len();
    while let Some(letter) = rest[at..].chars().next() {
        if escaped {
            escaped = false;
        } else if letter == '\\' {
            escaped = true;
        } else if rest[at..].starts_with(quote) {
            return at + quote.len();
        } else if letter == '\n' && !is_multiline {
            return at;
        }
        at += letter.len_utf8();
    }
    rest.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};

    use super::super::language::named;
    use super::{MAX_LINE, MAX_LINES, Piece, first_lines, lex, render_lines};

    fn pieces(text: &str, name: &str) -> Vec<(Piece, String)> {
        let mut pieces = Vec::new();
        lex(text, named(name), &mut |piece, text| pieces.push((piece, text.to_owned())));
        pieces.retain(|(piece, _)| *piece != Piece::Plain);
        pieces
    }

    fn shown(text: &str, name: &str) -> Vec<String> {
        pieces(text, name).into_iter().map(|(piece, text)| format!("{} {text}", piece.class())).collect()
    }

    #[test]
    fn words_strings_and_comments_are_marked() {
        assert_eq!(
            shown("fn add(a: Vec<u8>) { \"x\\\"y\" } // end\n/* a\nb */ 0x1F", "rs"),
            ["k fn", "f add", "t Vec", "s \"x\\\"y\"", "c // end", "c /* a\nb */", "n 0x1F"]
        );
        assert_eq!(shown("SELECT a FROM b -- c", "sql"), ["k SELECT", "k FROM", "c -- c"]);
        assert_eq!(shown("x = '''a\nb''' # c", "py"), ["s '''a\nb'''", "c # c"]);
        assert_eq!(shown("[a]\nkey = \"v\" # c\n", "toml"), ["t [a]", "k key", "s \"v\"", "c # c"]);
        assert_eq!(shown("a: b\n  - c: true", "yaml"), ["k a", "k c", "k true"]);
        assert_eq!(
            shown("<a href=\"x\">b</a><!-- c -->", "html"),
            ["k <a", "s \"x\"", "k </a", "c <!-- c -->"]
        );
        assert_eq!(shown("@@ 1\n+a\n-b\n c\n", "diff"), ["h @@ 1\n", "add +a\n", "del -b\n"]);
    }

    #[test]
    fn a_run_of_dashes_takes_linear_time() {
        // In quadratic time, this would take hours.
        assert_eq!(shown(&"-".repeat(4_000_000), "yaml"), Vec::<String>::new());
        assert_eq!(shown("- - a: b\n--- \nc: d", "yaml"), ["k a", "k c"]);
    }

    #[test]
    fn a_string_that_does_not_end_ends_with_its_line() {
        assert_eq!(shown("it's\nlet a", "js"), ["s 's", "k let"]);
        assert_eq!(shown("`a\nb", "js"), ["s `a\nb"]);
    }

    #[test]
    fn lines_are_elements_and_long_ones_are_broken() {
        let mut out = String::new();
        render_lines(&mut out, "/* a\n\nb */\n", named("c"), 9);
        assert_eq!(
            out,
            "<pre class=\"source\" tabindex=\"0\"><code><span class=\"l\" data-n=\"9\"><i class=\"c\">/* a</i></span>\n\
             <span class=\"l\" data-n=\"10\"></span>\n<span class=\"l\" data-n=\"11\"><i class=\"c\">b */</i></span>\n\
             </code></pre>"
        );
        let mut out = String::new();
        render_lines(&mut out, &format!("{}\ny", "x".repeat(MAX_LINE * 3)), named("txt"), 1);
        assert_eq!(out.matches("class=\"l\"").count(), 4);
        assert!(out.ends_with("x</span>\n<span class=\"l\" data-n=\"2\">y</span>\n</code></pre>"));
    }

    #[test]
    fn the_first_lines_end_with_a_line_break() {
        let text = "x\n".repeat(MAX_LINES + 10);
        assert_eq!(first_lines(&text).len(), 2 * MAX_LINES);
        assert_eq!(first_lines("a\nb"), "a\nb");
    }

    proptest! {
        #[test]
        fn the_pieces_are_the_text(text in any::<String>(), name in "rs|py|js|html|toml|yaml|diff|sql|txt|lua") {
            let mut all = String::new();
            lex(&text, named(&name), &mut |_, piece| all.push_str(piece));
            assert_eq!(all, text);
        }
    }
}
