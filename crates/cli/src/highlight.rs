//! Colours for contents on a terminal: Markdown, JSON, and the comments and strings of code.
//!
//! Works line by line on text whose control characters are escaped. It does not parse, so colours may be missing or
//! wrong, but it never changes the text itself.

use anstyle::{AnsiColor, Style};

use crate::terminal::{DETAIL, HEADING, styled};

const CODE: Style = AnsiColor::Cyan.on_default();
const STRING: Style = AnsiColor::Green.on_default();
const KEY: Style = AnsiColor::Blue.on_default();
const LITERAL: Style = AnsiColor::Yellow.on_default();

/// The language of a text, as far as colours depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TextSyntax {
    Markdown,
    Json,
    /// Code in which `comment` begins a comment until the end of the line, and each of `quotes` encloses strings.
    Code {
        comment: &'static str,
        quotes: &'static [char],
    },
}

impl TextSyntax {
    /// The language of contents, by their media type or the extension of their URI.
    fn of(mime: Option<&str>, uri: &str) -> Option<Self> {
        let mime = mime.unwrap_or_default().split(';').next().unwrap_or_default();
        if mime == "application/json" || mime.ends_with("+json") {
            return Some(Self::Json);
        }
        if mime == "text/markdown" {
            return Some(Self::Markdown);
        }
        let path = uri.split(['?', '#']).next().unwrap_or_default();
        let name = path.rsplit('/').next().unwrap_or_default();
        Some(match name.rsplit_once('.')?.1 {
            "md" | "markdown" => Self::Markdown,
            "json" => Self::Json,
            "rs" | "c" | "h" | "cc" | "cpp" | "hpp" | "go" | "java" | "kt" | "swift" | "cs" => {
                Self::Code { comment: "//", quotes: &['"'] }
            }
            "js" | "mjs" | "ts" | "tsx" | "jsx" | "php" => {
                Self::Code { comment: "//", quotes: &['"', '\'', '`'] }
            }
            "py" | "rb" | "sh" | "bash" | "toml" | "yaml" | "yml" | "pl" | "r" => {
                Self::Code { comment: "#", quotes: &['"', '\''] }
            }
            "sql" | "lua" | "hs" => Self::Code { comment: "--", quotes: &['"', '\''] },
            _ => return None,
        })
    }
}

/// The text with colours, if its language is known.
pub(crate) fn highlighted(text: &str, mime: Option<&str>, uri: &str) -> String {
    match TextSyntax::of(mime, uri) {
        None => text.to_owned(),
        Some(TextSyntax::Markdown) => markdown(text),
        Some(TextSyntax::Json) => lines(text, json),
        Some(TextSyntax::Code { comment, quotes }) => lines(text, |line| code(line, comment, quotes)),
    }
}

fn lines(text: &str, highlight: impl Fn(&str) -> String) -> String {
    text.split_inclusive('\n')
        .map(|line| match line.strip_suffix('\n') {
            Some(line) => highlight(line) + "\n",
            None => highlight(line),
        })
        .collect()
}

fn markdown(text: &str) -> String {
    let mut fence: Option<&str> = None;
    let mut out = String::new();
    for line in text.split_inclusive('\n') {
        let (body, end) = line.strip_suffix('\n').map_or((line, ""), |body| (body, "\n"));
        let start = body.trim_start();
        let mark = ["```", "~~~"].into_iter().find(|mark| start.starts_with(mark));
        let is_heading = start.trim_start_matches('#').starts_with(' ') && start.starts_with('#');
        let styled_line = match (fence, mark) {
            (Some(open), Some(mark)) if open == mark => {
                fence = None;
                styled(DETAIL, body)
            }
            (Some(_), _) => styled(CODE, body),
            (None, Some(mark)) => {
                fence = Some(mark);
                styled(DETAIL, body)
            }
            (None, None) if is_heading => styled(HEADING, body),
            (None, None) if start.starts_with('>') => styled(DETAIL, body),
            (None, None) => inline(body),
        };
        out.push_str(&styled_line);
        out.push_str(end);
    }
    out
}

/// Code spans and strong emphasis in a line of Markdown.
fn inline(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some(at) = rest.find(['`', '*']) {
        let (mark, style) = if rest[at..].starts_with("**") { ("**", HEADING) } else { ("`", CODE) };
        let inner = rest[at..].strip_prefix(mark).and_then(|inner| Some(&inner[..inner.find(mark)?]));
        let Some(inner) = inner.filter(|inner| !inner.is_empty()) else {
            out.push_str(&rest[..=at]);
            rest = &rest[at + 1..];
            continue;
        };
        let length = inner.len() + 2 * mark.len();
        out.push_str(&rest[..at]);
        out.push_str(&styled(style, &rest[at..at + length]));
        rest = &rest[at + length..];
    }
    out + rest
}

fn json(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '"' => quoted(rest, '"'),
            '-' | '0'..='9' | 'a'..='z' => rest
                .find(|letter: char| !(letter.is_alphanumeric() || "+-.".contains(letter)))
                .unwrap_or(rest.len()),
            other => other.len_utf8(),
        };
        let (token, after) = rest.split_at(length);
        match first {
            '"' if after.trim_start().starts_with(':') => out.push_str(&styled(KEY, token)),
            '"' => out.push_str(&styled(STRING, token)),
            '-' | '0'..='9' | 'a'..='z' => out.push_str(&styled(LITERAL, token)),
            _ => out.push_str(token),
        }
        rest = after;
    }
    out
}

fn code(line: &str, comment: &str, quotes: &[char]) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        if rest.starts_with(comment) {
            out.push_str(&styled(DETAIL, rest));
            return out;
        }
        let length = if quotes.contains(&first) { quoted(rest, first) } else { first.len_utf8() };
        let (token, after) = rest.split_at(length);
        match length > first.len_utf8() {
            true => out.push_str(&styled(STRING, token)),
            false => out.push_str(token),
        }
        rest = after;
    }
    out
}

/// The length of the string literal that begins here, with its quotes; the length of one quote if the literal does not
/// end in this line.
fn quoted(text: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, letter) in text.char_indices().skip(1) {
        match letter {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            letter if letter == quote => return at + quote.len_utf8(),
            _ => {}
        }
    }
    quote.len_utf8()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_oneof, proptest};

    use super::highlighted;

    /// The text with `<` and `>` around each styled part.
    fn marked(text: &str, uri: &str) -> String {
        let text = highlighted(text, None, uri);
        let mut out = String::new();
        for (at, part) in text.split('\u{1b}').enumerate() {
            let (style, part) = if at == 0 { ("", part) } else { part.split_once('m').unwrap() };
            out.push_str(match style {
                "" => "",
                "[0" => ">",
                _ => "<",
            });
            out.push_str(part);
        }
        out
    }

    #[test]
    fn languages_are_coloured() {
        let text = "# A\n\ntext `b` and **c** * d `\n```rs\nlet e;\n```\n> f\n#g\n";
        let expected = "<# A>\n\ntext <`b`> and <**c**> * d `\n<```rs>\n<let e;>\n<```>\n<> f>\n#g\n";
        assert_eq!(marked(text, "file:///a.md"), expected);
        assert_eq!(
            marked("{\"a\\\"\": [1, \"b\", null]}", "a:/b.json?x=1"),
            "{<\"a\\\"\">: [<1>, <\"b\">, <null>]}"
        );
        assert_eq!(marked("f(\"//\") // c", "a:/b.rs"), "f(<\"//\">) <// c>");
        assert_eq!(marked("x = 'it' # c", "a:/b.py"), "x = <'it'> <# c>");
        assert_eq!(marked("fn a<'b>() {}", "a:/b.rs"), "fn a<'b>() {}");
        assert_eq!(marked("\"open", "a:/b.rs"), "\"open");
        assert_eq!(marked("# not code", "a:/b.txt"), "# not code");
    }

    proptest! {
        #[test]
        fn no_character_is_changed(
            text in prop_oneof![any::<String>(), "[`*#>\"'/\\\\a{}:1 \n-]{0,40}"],
            name in prop_oneof!["a:/b.md", "a:/b.json", "a:/b.rs", "a:/b.py", "a:/b.sql", "a:/b"],
        ) {
            let text = crate::terminal::shown(&text);
            assert_eq!(anstream::adapter::strip_str(&highlighted(&text, None, &name)).to_string(), text);
        }
    }
}
