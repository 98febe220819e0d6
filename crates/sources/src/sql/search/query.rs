//! The text of a search in the query languages of databases.

/// The maximum number of entries in each list of a query; the rest is ignored.
const MAX_WORDS: usize = 32;

/// The parts of a search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FullTextQuery {
    /// The words and phrases of which at least one must occur.
    wanted: Vec<String>,
    /// Phrases that must all occur. They are in `wanted` too.
    phrases: Vec<String>,
    /// Words that must not occur.
    excluded: Vec<String>,
}

impl FullTextQuery {
    /// Parses the text as [`SearchQuery`](libris_core::SearchQuery) describes; `None` if there is nothing to look for.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parsed = Self::default();
        for (at, piece) in text.split('"').enumerate() {
            let piece = piece.replace('\0', " ");
            if at % 2 == 1 {
                if piece.contains(char::is_alphanumeric) {
                    parsed.phrases.push(piece.trim().to_owned());
                    parsed.wanted.push(piece.trim().to_owned());
                }
                continue;
            }
            for word in piece.split_whitespace() {
                match word.strip_prefix('-').filter(|rest| rest.starts_with(char::is_alphanumeric)) {
                    Some(word) => parsed.excluded.push(word.to_owned()),
                    None if word.contains(char::is_alphanumeric) => parsed.wanted.push(word.to_owned()),
                    None => {}
                }
            }
        }
        for words in [&mut parsed.wanted, &mut parsed.phrases, &mut parsed.excluded] {
            words.truncate(MAX_WORDS);
        }
        (!parsed.wanted.is_empty()).then_some(parsed)
    }

    /// The expression for FTS5, in which a quoted text is a phrase of its tokens.
    pub(super) fn fts5(&self) -> String {
        let quoted = |words: &[String], between: &str| {
            let words: Vec<_> =
                words.iter().map(|word| format!("\"{}\"", word.replace('"', "\"\""))).collect();
            words.join(between)
        };
        let mut text = format!("({})", quoted(&self.wanted, " OR "));
        if !self.phrases.is_empty() {
            text = format!("({} AND {text})", quoted(&self.phrases, " AND "));
        }
        if !self.excluded.is_empty() {
            text = format!("{text} NOT ({})", quoted(&self.excluded, " OR "));
        }
        text
    }

    /// Two queries for `websearch_to_tsquery`. The first matches rows with any wanted word. The second requires all
    /// phrases and forbids the excluded words; it is empty if there are none.
    pub(super) fn websearch(&self) -> (String, String) {
        // Quotes prevent a word such as `or` from being parsed as an operator.
        let quoted = |word: &String| format!("\"{}\"", word.replace(['"', '\\'], " "));
        let wanted: Vec<_> = self.wanted.iter().map(quoted).collect();
        let needed = self.phrases.iter().map(quoted);
        let excluded = self.excluded.iter().map(|word| format!("-{}", quoted(word)));
        (wanted.join(" or "), needed.chain(excluded).collect::<Vec<_>>().join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::FullTextQuery;

    #[test]
    fn the_syntax_of_a_database_cannot_be_injected() {
        let parsed = FullTextQuery::parse("exit AND code* NEAR(a b) -x \"two words\" or col:y").unwrap();
        assert_eq!(
            parsed.fts5(),
            "(\"two words\" AND (\"exit\" OR \"AND\" OR \"code*\" OR \"NEAR(a\" OR \"b)\" OR \"two words\" OR \"or\" OR \
             \"col:y\")) NOT (\"x\")"
        );
        let (wanted, needed) = parsed.websearch();
        assert_eq!(needed, "\"two words\" -\"x\"");
        assert!(wanted.starts_with("\"exit\" or \"AND\" or "), "{wanted}");
    }

    #[test]
    fn a_text_without_words_is_no_query() {
        for text in ["", "-", "\"", "\"  \"", "-word", "…"] {
            assert_eq!(FullTextQuery::parse(text), None, "{text}");
        }
    }
}
