//! The tokens of Rust code, as far as they matter to find texts in calls.

/// A token.
#[derive(Debug, PartialEq)]
pub(crate) enum Token {
    Name(String),
    Text(String),
    Mark(char),
}

/// The tokens of a file, without comments and without its module of tests.
pub(crate) fn tokens(code: &str) -> Vec<Token> {
    // A module of tests is at the end of a file. Only its declaration may be anywhere.
    let code = code.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let code = code.split("#[cfg(test)]\n        mod ").next().unwrap_or_default();
    let mut tokens = Vec::new();
    let mut rest = code;
    while let Some(letter) = rest.chars().next() {
        let after = &rest[letter.len_utf8()..];
        rest = if rest.starts_with("//") {
            rest.split_once('\n').map_or("", |(_, rest)| rest)
        } else if rest.starts_with("/*") {
            rest.split_once("*/").map_or("", |(_, rest)| rest)
        } else if letter == '"' {
            let (text, rest) = escaped(after);
            tokens.push(Token::Text(text));
            rest
        } else if let Some((text, rest)) = raw(rest) {
            tokens.push(Token::Text(text.to_owned()));
            rest
        } else if let Some(rest) = rest.strip_prefix("b\"") {
            escaped(rest).1
        } else if letter == '\'' {
            quoted(after)
        } else if letter.is_alphanumeric() || letter == '_' {
            let end =
                rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(rest.len());
            tokens.push(Token::Name(rest[..end].to_owned()));
            &rest[end..]
        } else {
            if !letter.is_whitespace() {
                tokens.push(Token::Mark(letter));
            }
            after
        };
    }
    tokens
}

/// The text of a string literal, behind its opening quote, and the code behind it.
fn escaped(code: &str) -> (String, &str) {
    let mut text = String::new();
    let mut letters = code.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return (text, &code[at + 1..]),
            '\\' => match letters.next() {
                // The rest of the line and the indentation of the next are not part of the text.
                Some((at, '\n')) => {
                    let rest = code[at..].trim_start();
                    let (more, rest) = escaped(rest);
                    return (text + &more, rest);
                }
                Some((_, 'n')) => text.push('\n'),
                Some((_, other)) => text.push(other),
                None => {}
            },
            letter => text.push(letter),
        }
    }
    (text, "")
}

/// The text of a raw string literal at the beginning of the code, and the code behind it.
fn raw(code: &str) -> Option<(&str, &str)> {
    let rest = code.strip_prefix('r')?;
    let hashes = rest.len() - rest.trim_start_matches('#').len();
    let rest = rest[hashes..].strip_prefix('"')?;
    rest.split_once(&format!("\"{}", "#".repeat(hashes)))
}

/// The code behind a character literal or a lifetime, whose quote is passed already.
fn quoted(code: &str) -> &str {
    let mut letters = code.chars();
    match (letters.next(), letters.next()) {
        (Some('\\'), Some(escaped)) => {
            let rest = &code[1 + escaped.len_utf8()..];
            rest.split_once('\'').map_or(rest, |(_, rest)| rest)
        }
        (Some(letter), Some('\'')) => &code[letter.len_utf8() + 1..],
        _ => code,
    }
}
