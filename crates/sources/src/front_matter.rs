//! YAML front matter of Markdown files: the title and the description.

/// How much of a file is parsed, in bytes.
const MAX_PARSED_BYTES: usize = 4 * 1024;

/// The maximum number of characters of a title.
pub(crate) const MAX_TITLE_CHARACTERS: usize = 200;

/// The maximum number of characters of a description.
const MAX_DESCRIPTION_CHARACTERS: usize = 1000;

/// The title and the description from front matter, which is the block between two lines of `---` at the top of a
/// Markdown file. The second line may be `...` instead.
///
/// Only `title` and `description` are parsed, and only if they are plain or quoted scalars on one line. For two
/// keys, the attack surface of a YAML parser is not justified.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FrontMatter {
    pub(crate) title: Option<String>,
    pub(crate) description: Option<String>,
}

impl FrontMatter {
    /// Parses the front matter at the beginning of a file; `None` if it has none.
    pub(crate) fn parse(head: &[u8]) -> Option<Self> {
        let head = String::from_utf8_lossy(&head[..head.len().min(MAX_PARSED_BYTES)]);
        let mut lines = head.trim_start_matches('\u{feff}').lines().map(str::trim_end);
        if lines.next() != Some("---") {
            return None;
        }
        let mut found = Self::default();
        for line in lines {
            if line == "---" || line == "..." {
                return Some(found);
            }
            match line.split_once(':') {
                Some(("title", value)) => {
                    found.title = scalar(value).map(|text| truncate_characters(text, MAX_TITLE_CHARACTERS))
                }
                Some(("description", value)) => {
                    found.description =
                        scalar(value).map(|text| truncate_characters(text, MAX_DESCRIPTION_CHARACTERS));
                }
                _ => {}
            }
        }
        // No closing line was found. If parsing stopped at the limit, it may come later, and what was found counts.
        // Otherwise this is not front matter: the `---` on the first line is a thematic break.
        (head.len() >= MAX_PARSED_BYTES).then_some(found)
    }
}

/// The first characters of a text.
pub(crate) fn truncate_characters(mut text: String, characters: usize) -> String {
    if let Some((end, _)) = text.char_indices().nth(characters) {
        text.truncate(end);
    }
    text.shrink_to_fit();
    text
}

fn scalar(value: &str) -> Option<String> {
    let value = value.strip_prefix([' ', '\t'])?.trim();
    let text = match value.chars().next()? {
        '"' => double_quoted(&value[1..])?,
        '\'' => single_quoted(&value[1..])?,
        // Block scalars, sequences, mappings, anchors, tags: not plain text on one line.
        '|' | '>' | '[' | '{' | '&' | '*' | '!' | '%' | '@' | '`' | '#' => return None,
        _ => value.split(" #").next()?.trim_end().to_owned(),
    };
    (!text.trim().is_empty()).then_some(text)
}

fn single_quoted(rest: &str) -> Option<String> {
    let mut text = String::new();
    let mut letters = rest.chars().peekable();
    loop {
        match letters.next()? {
            '\'' if letters.peek() == Some(&'\'') => text.extend(letters.next()),
            '\'' => return Some(text),
            letter => text.push(letter),
        }
    }
}

fn double_quoted(rest: &str) -> Option<String> {
    let mut text = String::new();
    let mut letters = rest.chars();
    loop {
        match letters.next()? {
            '"' => return Some(text),
            '\\' => text.push(match letters.next()? {
                'n' => '\n',
                't' => '\t',
                'u' => {
                    let code: String = letters.by_ref().take(4).collect();
                    char::from_u32(u32::from_str_radix(&code, 16).ok()?)?
                }
                letter => letter,
            }),
            letter => text.push(letter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::FrontMatter;

    fn title(line: &str) -> Option<String> {
        FrontMatter::parse(format!("---\ntitle:{line}\n---\n").as_bytes())?.title
    }

    #[test]
    fn plain_and_quoted_scalars() {
        assert_eq!(title(" Plain text # why").as_deref(), Some("Plain text"));
        assert_eq!(title(" C# in depth").as_deref(), Some("C# in depth"));
        assert_eq!(title(" a: b").as_deref(), Some("a: b"));
        assert_eq!(title(r#" "say \"hi\" \u00e9""#).as_deref(), Some("say \"hi\" é"));
        assert_eq!(title(" 'it''s'").as_deref(), Some("it's"));
        for none in ["", " ", " |", " >-", " [a]", " {a: b}", " \"open", "x", " ''"] {
            assert_eq!(title(none), None, "{none}");
        }
    }

    #[test]
    fn front_matter_is_at_the_top_and_closed() {
        let parse = |text: &str| FrontMatter::parse(text.as_bytes());
        assert_eq!(parse("text\n---\ntitle: no\n---\n"), None);
        assert_eq!(parse("---\ntitle: a ruler\n"), None);
        assert_eq!(
            parse("---\r\nauthor: x\r\ndescription: D\r\n  title: nested\r\n...\r\n"),
            Some(FrontMatter { title: None, description: Some("D".into()) })
        );
        let long = format!("\u{feff}---\ntitle: T\nx: {}\n---\n", "y".repeat(5000));
        assert_eq!(parse(&long).unwrap().title.as_deref(), Some("T"));
    }

    #[test]
    fn long_text_is_truncated_between_characters() {
        let text = format!("---\ntitle: {}\ndescription: {}\n---\n", "é".repeat(300), "d".repeat(1500));
        let found = FrontMatter::parse(text.as_bytes()).unwrap();
        assert_eq!(found.title.unwrap(), "é".repeat(200));
        assert_eq!(found.description.unwrap(), "d".repeat(1000));
    }
}
