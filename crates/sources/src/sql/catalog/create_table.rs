//! Scans the `CREATE TABLE` statements in the catalog of SQLite: CHECK constraints and comments exist only in the
//! text of these statements.

use super::CheckConstraint;

/// The parts of a `CREATE TABLE` statement that the other catalog queries do not return.
#[derive(Debug, Default, PartialEq)]
pub(super) struct CreateTable {
    pub(super) checks: Vec<CheckConstraint>,
    /// Whether the statement contains a comment.
    pub(super) has_comment: bool,
}

/// Scans a statement from the catalog. SQLite has parsed the statement before, so its quotes and parentheses are
/// balanced.
pub(super) fn scan(sql: &str) -> CreateTable {
    let mut found = CreateTable::default();
    // The last two words, to find the name in `CONSTRAINT name CHECK (…)`.
    let mut before = ["", ""];
    let mut at = 0;
    while let Some(token) = Token::at(sql, at) {
        match token.kind {
            TokenKind::Comment => found.has_comment = true,
            TokenKind::Word if token.text.eq_ignore_ascii_case("check") => {
                if let Some((expression, end)) = parenthesized(sql, token.end) {
                    let name = before[0].eq_ignore_ascii_case("constraint").then(|| unquoted(before[1]));
                    let expression = expression.trim().to_owned();
                    found.checks.push(CheckConstraint { name: name.unwrap_or_default(), expression });
                    before = ["", ""];
                    at = end;
                    continue;
                }
            }
            _ => {}
        }
        if let TokenKind::Word | TokenKind::Quoted = token.kind {
            before = [before[1], token.text];
        }
        at = token.end;
    }
    found
}

struct Token<'a> {
    kind: TokenKind,
    text: &'a str,
    end: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum TokenKind {
    Word,
    Quoted,
    Comment,
    Other,
}

impl<'a> Token<'a> {
    fn at(sql: &'a str, at: usize) -> Option<Self> {
        let rest = &sql[at..];
        let first = rest.chars().next()?;
        let until =
            |end: &str, from: usize| rest[from..].find(end).map_or(rest.len(), |to| from + to + end.len());
        let is_word_char = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == '$';
        let (kind, length) = match first {
            '\'' | '"' | '`' => (TokenKind::Quoted, quoted_length(rest, first)),
            '[' => (TokenKind::Quoted, until("]", 1)),
            '-' if rest.starts_with("--") => (TokenKind::Comment, until("\n", 2)),
            '/' if rest.starts_with("/*") => (TokenKind::Comment, until("*/", 2)),
            letter if is_word_char(letter) => {
                (TokenKind::Word, rest.find(|letter| !is_word_char(letter)).unwrap_or(rest.len()))
            }
            other => (TokenKind::Other, other.len_utf8()),
        };
        Some(Self { kind, text: &rest[..length], end: at + length })
    }
}

/// The length in bytes of the quoted string that `text` begins with, including both quotes. A doubled quote does
/// not end the string.
fn quoted_length(text: &str, quote: char) -> usize {
    let mut at = 1;
    while let Some(end) = text[at..].find(quote) {
        at += end + 1;
        if !text[at..].starts_with(quote) {
            return at;
        }
        at += 1;
    }
    text.len()
}

/// The text inside the parentheses that open with the next token, and the offset after the closing parenthesis;
/// `None` if the next token is not an opening parenthesis.
fn parenthesized(sql: &str, from: usize) -> Option<(&str, usize)> {
    let mut begin = None;
    let mut depth = 0;
    let mut at = from;
    while let Some(token) = Token::at(sql, at) {
        at = token.end;
        match token.text {
            "(" => {
                depth += 1;
                begin.get_or_insert(at);
            }
            ")" => depth -= 1,
            text if begin.is_none() && token.kind != TokenKind::Comment && !text.trim().is_empty() => {
                return None;
            }
            _ => {}
        }
        if depth == 0
            && let Some(begin) = begin
        {
            return Some((&sql[begin..at - 1], at));
        }
    }
    None
}

fn unquoted(name: &str) -> String {
    match name.chars().next() {
        Some(quote @ ('\'' | '"' | '`')) => {
            let inner = name.trim_matches(quote);
            inner.replace(&format!("{quote}{quote}"), &quote.to_string())
        }
        Some('[') => name.trim_matches(['[', ']']).to_owned(),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::scan;

    fn checks(sql: &str) -> Vec<(String, String)> {
        scan(sql).checks.into_iter().map(|check| (check.name, check.expression)).collect()
    }

    #[test]
    fn finds_check_constraints() {
        let sql = r#"CREATE TABLE "check" (
            a INT CHECK (a > 0), -- check (not this)
            b TEXT DEFAULT 'check (nor this)' CHECK(b IN ('x)', 'it''s')),
            checked INT, [check] INT, /* CHECK (1) */
            CONSTRAINT "b is set" check /* here */ ((a + 1) > (b)), CHECK (1))"#;
        let expected =
            [("", "a > 0"), ("", "b IN ('x)', 'it''s')"), ("b is set", "(a + 1) > (b)"), ("", "1")];
        assert_eq!(checks(sql), expected.map(|(name, text)| (name.to_owned(), text.to_owned())));
        assert!(scan(sql).has_comment);
    }

    #[test]
    fn other_statements_have_none() {
        for sql in [
            "",
            "CREATE TABLE t (a '--', b)",
            "CREATE TABLE t (a \"/*\")",
            "CREATE TABLE check",
            "x 'open",
            "Ünï(",
        ] {
            assert_eq!(scan(sql), super::CreateTable::default(), "{sql}");
        }
    }
}
