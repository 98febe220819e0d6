//! A lexer that finds the parameters of a configured query.
//!
//! The lexer understands only enough SQL to distinguish `:name` from similar text: it skips strings, quoted names,
//! comments and casts.

use super::dialect::Dialect;

/// A part of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SqlPiece {
    Text(String),
    /// A parameter.
    Variable(String),
}

/// A query in parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SqlPieces {
    pub(super) pieces: Vec<SqlPiece>,
    /// Whether the query ends with an `ORDER BY`, so that a `LIMIT` may be appended.
    pub(super) ordered: bool,
}

/// Splits one query; the error is the reason why the query is invalid.
pub(super) fn pieces(sql: &str, dialect: Dialect) -> Result<SqlPieces, String> {
    let begins = ["select", "with", "values", "table"];
    let mut lexer = Lexer::new(sql, dialect);
    lexer.run()?;
    let first = lexer.first.unwrap_or_default();
    if !begins.contains(&&*first.to_ascii_lowercase()) {
        return Err("its `sql` must be a query that begins with SELECT, WITH, VALUES or TABLE".to_owned());
    }
    let ordered = lexer.ordered;
    let mut pieces = lexer.pieces;
    pieces.push(SqlPiece::Text(lexer.text));
    Ok(SqlPieces { pieces, ordered })
}

struct Lexer<'a> {
    dialect: Dialect,
    rest: &'a str,
    pieces: Vec<SqlPiece>,
    text: String,
    /// The first word.
    first: Option<String>,
    /// The number of open parentheses.
    depth: usize,
    /// Whether there was an `ORDER BY` outside of parentheses, followed only by expressions so far.
    ordered: bool,
}

impl<'a> Lexer<'a> {
    fn new(rest: &'a str, dialect: Dialect) -> Self {
        let (pieces, text, first) = (Vec::new(), String::new(), None);
        Self { dialect, rest, pieces, text, first, depth: 0, ordered: false }
    }

    fn run(&mut self) -> Result<(), String> {
        while let Some(next) = self.rest.chars().next() {
            match next {
                '\'' => self.quoted('\'', self.backslashes())?,
                '"' => self.quoted('"', self.dialect == Dialect::Mysql)?,
                '`' => self.quoted('`', false)?,
                '[' if self.dialect == Dialect::Sqlite => self.until("]", "a `[`")?,
                '$' if self.dialect == Dialect::Postgres && self.dollar().is_some() => {
                    let tag = self.dollar().unwrap_or_default().to_owned();
                    self.take(tag.len());
                    self.until(&tag, "a dollar quote")?;
                }
                '-' if self.begins_line_comment() => self.line(),
                '#' if self.dialect == Dialect::Mysql => self.line(),
                '/' if self.rest.starts_with("/*") => self.comment()?,
                ':' => self.colon(),
                ';' => return self.end(),
                '?' if self.dialect != Dialect::Postgres => return Err(positional()),
                '$' | '@' if self.dialect == Dialect::Sqlite => return Err(positional()),
                '$' if self.rest[1..].starts_with(|digit: char| digit.is_ascii_digit()) => {
                    return Err(positional());
                }
                _ if begins_name(next) => self.word()?,
                '(' | ')' => {
                    let open = if next == '(' { self.depth + 1 } else { self.depth.saturating_sub(1) };
                    self.depth = open;
                    self.take(1);
                }
                _ => self.take(next.len_utf8()),
            }
        }
        Ok(())
    }

    fn take(&mut self, length: usize) {
        let (taken, rest) = self.rest.split_at(length);
        self.text.push_str(taken);
        self.rest = rest;
    }

    fn word(&mut self) -> Result<(), String> {
        let name = |character: char| begins_name(character) || character.is_ascii_digit() || character == '$';
        let end = self.rest.find(|character| !name(character)).unwrap_or(self.rest.len());
        let word = &self.rest[..end];
        // `SELECT … INTO OUTFILE` of MySQL writes a file even in a read-only transaction.
        if word.eq_ignore_ascii_case("into") {
            return Err("its `sql` must not contain INTO".to_owned());
        }
        if self.depth == 0 {
            let word = word.to_ascii_lowercase();
            let follows = ["limit", "fetch", "offset", "for", "lock", "procedure"];
            self.ordered = word == "order" || (self.ordered && !follows.contains(&&*word));
        }
        self.first.get_or_insert_with(|| word.to_owned());
        self.take(end);
        Ok(())
    }

    /// Whether a backslash is an escape character in the string that begins here.
    fn backslashes(&self) -> bool {
        match self.dialect {
            Dialect::Mysql => true,
            Dialect::Sqlite => false,
            // Only in `E'…'`; an `e` at the end of another word does not count.
            Dialect::Postgres => {
                let mut before = self.text.chars().rev();
                matches!(before.next(), Some('e' | 'E'))
                    && !before
                        .next()
                        .is_some_and(|character| begins_name(character) || character.is_ascii_digit())
            }
        }
    }

    /// Skips a quoted string or name, in which quotes are doubled.
    fn quoted(&mut self, quote: char, backslashes: bool) -> Result<(), String> {
        self.take(1);
        while let Some(next) = self.rest.chars().next() {
            self.take(next.len_utf8());
            if next == quote {
                if !self.rest.starts_with(quote) {
                    return Ok(());
                }
                self.take(1);
            } else if next == '\\' && backslashes {
                let escaped = self.rest.chars().next().map_or(0, char::len_utf8);
                self.take(escaped);
            }
        }
        Err(format!("a {quote} in its `sql` does not end; hint: close it"))
    }

    fn until(&mut self, end: &str, what: &str) -> Result<(), String> {
        let at =
            self.rest.find(end).ok_or_else(|| format!("{what} in its `sql` does not end; hint: close it"))?;
        self.take(at + end.len());
        Ok(())
    }

    /// The opening delimiter of a dollar-quoted string, `$$` or `$tag$`, if one begins here.
    fn dollar(&self) -> Option<&'a str> {
        // A `$` within a word does not get here: it is part of the word.
        let end = self.rest[1..].find('$')? + 2;
        let tag = &self.rest[1..end - 1];
        let begins = !tag.starts_with(|digit: char| digit.is_ascii_digit());
        let is_tag = tag.chars().all(|character| begins_name(character) || character.is_ascii_digit());
        (begins && is_tag).then_some(&self.rest[..end])
    }

    fn begins_line_comment(&self) -> bool {
        let Some(after) = self.rest.strip_prefix("--") else { return false };
        // MySQL parses `1--1` as an expression.
        self.dialect != Dialect::Mysql
            || after.is_empty()
            || after.starts_with(|next: char| next.is_whitespace() || next.is_control())
    }

    fn line(&mut self) {
        let end = self.rest.find('\n').unwrap_or(self.rest.len());
        self.take(end);
    }

    fn comment(&mut self) -> Result<(), String> {
        if self.dialect == Dialect::Mysql && ["/*!", "/*M!"].iter().any(|sign| self.rest.starts_with(sign)) {
            return Err("its `sql` must not contain executable comments, such as `/*! … */`".to_owned());
        }
        let mut depth = 0;
        loop {
            if self.rest.starts_with("/*") && (depth == 0 || self.dialect == Dialect::Postgres) {
                depth += 1;
                self.take(2);
            } else if self.rest.starts_with("*/") {
                depth -= 1;
                self.take(2);
                if depth == 0 {
                    return Ok(());
                }
            } else {
                let Some(next) = self.rest.chars().next() else {
                    return Err("a comment in its `sql` does not end; hint: close it with `*/`".to_owned());
                };
                self.take(next.len_utf8());
            }
        }
    }

    fn colon(&mut self) {
        if self.rest.starts_with("::") {
            return self.take(2);
        }
        let name = |character: char| begins_name(character) || character.is_ascii_digit() || character == '.';
        let after = &self.rest[1..];
        let end = after.find(|character| !name(character)).unwrap_or(after.len());
        let variable = after[..end].trim_end_matches('.');
        if !variable.starts_with(begins_name) {
            return self.take(1);
        }
        self.pieces.push(SqlPiece::Text(std::mem::take(&mut self.text)));
        self.pieces.push(SqlPiece::Variable(variable.to_owned()));
        self.rest = &after[variable.len()..];
    }

    /// Ends the query at a semicolon. Only blanks and comments may follow it.
    fn end(&mut self) -> Result<(), String> {
        let mut after = Lexer::new(&self.rest[1..], self.dialect);
        loop {
            let blank = after.rest.len() - after.rest.trim_start().len();
            after.take(blank);
            match after.rest.chars().next() {
                None => return Ok(()),
                Some('-') if after.begins_line_comment() => after.line(),
                Some('/') if after.rest.starts_with("/*") => after.comment()?,
                Some(_) => return Err("its `sql` must be one statement".to_owned()),
            }
        }
    }
}

fn positional() -> String {
    "its `sql` has positional parameters: write `:name` instead".to_owned()
}

/// Whether a name may begin with this character.
fn begins_name(character: char) -> bool {
    character.is_alphabetic() || character == '_'
}

#[cfg(test)]
mod tests {
    use super::{SqlPiece, pieces};
    use crate::sql::dialect::Dialect::{self, Mysql, Postgres, Sqlite};

    fn variables(sql: &str, dialect: Dialect) -> Vec<String> {
        let pieces = pieces(sql, dialect).unwrap().pieces;
        let name = |piece| match piece {
            SqlPiece::Variable(name) => Some(name),
            SqlPiece::Text(_) => None,
        };
        pieces.into_iter().filter_map(name).collect()
    }

    #[test]
    fn parameters_are_found() {
        let cases = [
            (Sqlite, "SELECT * FROM t WHERE a = :a AND b=:b_2;", vec!["a", "b_2"]),
            (Sqlite, "SELECT ':no', \":no\", [:no], `:no`, 'it''s :no', :yes", vec!["yes"]),
            (Sqlite, "SELECT 1 -- :no\n, :yes /* :no */", vec!["yes"]),
            (Sqlite, "SELECT '\\', :yes", vec!["yes"]),
            (Postgres, "SELECT a::text, :yes::int, x.b::date", vec!["yes"]),
            (Postgres, "SELECT $$ :no '$$, $a$ :no $$ $a$, :yes", vec!["yes"]),
            (Postgres, "SELECT E'\\' :no', e'\\\\', :yes", vec!["yes"]),
            (Postgres, "SELECT 'a\\', :yes, U&'\\0041'", vec!["yes"]),
            (Postgres, "SELECT a[1:2], j ? 'k', /* a /* b */ :no */ :yes", vec!["yes"]),
            (Mysql, "SELECT 'it\\'s :no', \"a\\\" :no\", @a := 1, 1--1, :yes # :no", vec!["yes"]),
            (Mysql, "WITH x AS (SELECT 1) SELECT :yes FROM x -- :no", vec!["yes"]),
        ];
        for (dialect, sql, expected) in cases {
            assert_eq!(variables(sql, dialect), expected, "{sql}");
        }
        assert_eq!(
            pieces("SELECT :a.b", Postgres).unwrap().pieces[1],
            SqlPiece::Variable("a.b".to_owned()),
            "variables of templates may have dots"
        );
    }

    #[test]
    fn anything_but_one_query_is_refused() {
        let cases = [
            (Sqlite, "SELECT 1; DROP TABLE t"),
            (Sqlite, "DELETE FROM t"),
            (Sqlite, ""),
            (Sqlite, "PRAGMA user_version"),
            (Sqlite, "SELECT ?"),
            (Sqlite, "SELECT @a"),
            (Sqlite, "SELECT 'a"),
            (Postgres, "SELECT $1"),
            (Postgres, "SELECT $a$ b"),
            (Postgres, "SELECT /* /* */"),
            (Mysql, "SELECT ?"),
            (Mysql, "SELECT 1; SELECT 2"),
            (Mysql, "SELECT 'a\\'"),
            (Mysql, "SELECT 1 INTO OUTFILE '/tmp/x'"),
            (Mysql, "SELECT 1 /*!INTO OUTFILE '/tmp/x'*/"),
            (Mysql, "SELECT 1 /*M!100000 INTO OUTFILE '/tmp/x'*/"),
        ];
        for (dialect, sql) in cases {
            assert!(pieces(sql, dialect).is_err(), "{sql}");
        }
        assert!(pieces("SELECT 1; -- the end\n /* really */ ", Sqlite).is_ok());
    }

    #[test]
    fn an_order_that_a_limit_may_follow_is_found() {
        let cases = [
            ("SELECT a FROM t ORDER BY a DESC, lower(b)", true),
            ("SELECT a FROM t UNION SELECT b FROM u ORDER BY 1 -- limit", true),
            ("SELECT a FROM t ORDER BY (SELECT 1 LIMIT 1)", true),
            ("SELECT a FROM t", false),
            ("SELECT a FROM t ORDER BY a LIMIT 5", false),
            ("SELECT a FROM t ORDER BY a LOCK IN SHARE MODE", false),
            ("SELECT a FROM (SELECT a FROM t ORDER BY a) x", false),
            ("SELECT row_number() OVER (ORDER BY a) FROM t", false),
            ("SELECT `order` FROM t", false),
        ];
        for (sql, expected) in cases {
            assert_eq!(pieces(sql, Mysql).unwrap().ordered, expected, "{sql}");
        }
    }
}
