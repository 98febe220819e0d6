//! Parses the text of a query: words with the terms that match them, phrases, and excluded words.

use crate::language::{Language, Languages, is_vague};
use crate::tokens::{StemCache, TextTokenKind, TextTokens};

/// The longest query, in bytes; the rest is ignored.
const MAX_QUERY: usize = 1024;

/// The largest number of words in a query; the rest is ignored.
const MAX_WORDS: usize = 32;

/// A word of a query with the terms of the index that match it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct QueryWord {
    /// The word as typed, in lower case.
    pub(crate) surface: String,
    /// The terms of the index that match: the stems of the word in the languages that the query may be in.
    pub(crate) forms: Vec<String>,
    pub(crate) kind: TextTokenKind,
    /// Whether this is a stop word, which the ranking ignores.
    pub(crate) is_stop: bool,
    /// Whether the word says little about the subject and so has a low weight.
    pub(crate) is_vague: bool,
    /// The ordinal of the word in the query. The parts of an identifier share it with the whole.
    pub(crate) position: u32,
    /// Whether no visible resource contains the word, so that `forms` are its completions or corrections.
    pub(crate) is_replaced: bool,
}

/// A parsed query text.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ParsedQuery {
    pub(crate) words: Vec<QueryWord>,
    /// The texts in double quotes.
    pub(crate) phrases: Vec<String>,
    pub(crate) excluded: Vec<QueryWord>,
    /// The text of the query without the excluded words.
    pub(crate) wanted: String,
}

impl ParsedQuery {
    /// Parses a query for resources in these languages.
    pub(crate) fn parse(text: &str, present: Languages) -> Self {
        let text = &text[..text.floor_char_boundary(MAX_QUERY)];
        let mut parsed = Self::default();
        let mut wanted = String::new();
        let mut excluded = String::new();
        for (at, piece) in text.split('"').enumerate() {
            if at % 2 == 1 {
                if piece.contains(char::is_alphanumeric) {
                    parsed.phrases.push(piece.trim().to_owned());
                }
                wanted.push_str(piece);
                wanted.push(' ');
                continue;
            }
            for word in piece.split_whitespace() {
                let (target, word) = match word.strip_prefix('-') {
                    Some(word) if word.starts_with(char::is_alphanumeric) => (&mut excluded, word),
                    _ => (&mut wanted, word),
                };
                target.push_str(word);
                target.push(' ');
            }
        }
        parsed.words = words(&wanted, present);
        parsed.excluded = words(&excluded, present);
        parsed.excluded.retain(|word| word.kind == TextTokenKind::Part);
        // If a query has only stop words and vague words, it is about these words.
        if parsed.words.iter().all(|word| word.is_stop || word.is_vague) {
            parsed.words.iter_mut().for_each(|word| (word.is_stop, word.is_vague) = (false, false));
        }
        parsed.wanted = wanted;
        parsed
    }
}

/// The words of a text, each once, with their forms.
fn words(text: &str, present: Languages) -> Vec<QueryWord> {
    // Without apostrophes, "what's" becomes the one word "whats".
    let text = text.replace(['\'', '’'], "");
    // Code and tables, which have no language, are indexed as English.
    let present = present.with(Language::English);
    let languages = match Language::detect(&text).filter(|language| present.contains(*language)) {
        Some(language) => Languages::default().with(language).with(Language::English),
        // A few words without stop words can be in any of these languages.
        None => present,
    };
    let mut words: Vec<(usize, usize, QueryWord)> = Vec::new();
    for language in languages.iter() {
        let mut stems = StemCache::small(language);
        for token in TextTokens::new(&text).tokens(&mut stems) {
            let is_same = |(from, to, word): &(usize, usize, QueryWord)| {
                (*from, *to, word.kind) == (token.from, token.to, TextTokenKind::Part)
                    && token.kind == TextTokenKind::Part
            };
            if words.iter().any(|(_, _, word)| word.forms.contains(&token.text)) {
                continue;
            }
            if let Some((_, _, word)) = words.iter_mut().find(|word| is_same(word)) {
                word.forms.push(token.text);
            } else if words.len() < MAX_WORDS {
                let surface = text[token.from..token.to].to_lowercase();
                let word = QueryWord {
                    is_stop: languages.have_stop_word(&surface),
                    is_vague: is_vague(&surface),
                    surface,
                    forms: vec![token.text],
                    kind: token.kind,
                    position: token.position,
                    is_replaced: false,
                };
                words.push((token.from, token.to, word));
            }
        }
    }
    words.into_iter().map(|(_, _, word)| word).collect()
}

#[cfg(test)]
mod tests {
    use super::ParsedQuery;
    use crate::language::{Language, Languages};

    #[test]
    fn phrases_and_exclusions_are_parsed() {
        let parsed = ParsedQuery::parse("how to \"read a file\" -windows - os.path", Languages::ALL);
        assert_eq!(parsed.phrases, ["read a file"]);
        let surfaces =
            |words: &[super::QueryWord]| words.iter().map(|word| word.surface.clone()).collect::<Vec<_>>();
        assert_eq!(surfaces(&parsed.words), ["how", "to", "read", "a", "file", "os", "path", "os.path"]);
        assert_eq!(surfaces(&parsed.excluded), ["windows"]);
        assert!(parsed.words[0].is_stop && !parsed.words[2].is_stop);
    }

    #[test]
    fn a_word_of_an_unknown_language_has_the_stems_of_all() {
        let parsed = ParsedQuery::parse("Zeitungen", Languages::ALL);
        assert!(parsed.words[0].forms.iter().any(|form| form == "zeitung"), "{parsed:?}");
        assert!(ParsedQuery::parse("\"", Languages::ALL).words.is_empty());
    }
    #[test]
    fn stop_words_are_those_of_the_languages_of_the_resources() {
        let is_stop = |text: &str, present: Languages| ParsedQuery::parse(text, present).words[0].is_stop;
        let english = Languages::default().with(Language::English);
        assert!(
            !is_stop("die unexpectedly", english) && is_stop("die Zeitung", english.with(Language::German))
        );
        assert!(is_stop("the newspaper", Languages::default()));
        let forms = &ParsedQuery::parse("newspapers", english).words[0].forms;
        assert_eq!(forms.len(), 1, "{forms:?}");
    }
}
