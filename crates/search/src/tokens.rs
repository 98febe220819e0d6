//! Splits text into tokens: words, the parts of identifiers, and identifiers as a whole.
//!
//! `readHTTPFile` and `read_http_file` give the parts `read`, `http` and `file`, and the whole `readhttpfile`. Parts
//! are stemmed. A chain of two to eight words, such as `os.path.join`, `read-http-file` or `3.11.2`, also gives the
//! whole chain, joined by dots. A chain of more than two words also gives its last two words (`path.join`) or, if it is
//! a version, its first two (`3.11`). Words in scripts without spaces give overlapping pairs of characters; a word ends
//! where such a script begins or ends, so that `使用Python编程` contains the word `Python`.

use std::collections::HashMap;
use std::collections::VecDeque;
use std::ops::Range;

use crate::language::Language;

/// The longest token, in bytes. Longer tokens, such as encoded data, are dropped.
const MAX_TOKEN: usize = 64;

/// A cache of stems is cleared when it has this many entries.
const MAX_CACHED_STEMS: usize = 8192;

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextTokenKind {
    /// A word or a part of an identifier, stemmed.
    Part,
    /// An identifier or a chain of identifiers, not stemmed.
    Whole,
}

/// A token of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TextToken {
    pub(crate) text: String,
    pub(crate) kind: TextTokenKind,
    /// The ordinal of the word that the token belongs to.
    pub(crate) position: u32,
    /// The byte range in the text, `from..to`.
    pub(crate) from: usize,
    pub(crate) to: usize,
}

/// Stems words of one language, with a cache.
pub(crate) struct StemCache {
    stemmer: frostem::Stemmer,
    stems: HashMap<Box<str>, Box<str>>,
}

impl StemCache {
    pub(crate) fn new(language: Language) -> Self {
        Self { stemmer: language.stemmer(), stems: HashMap::new() }
    }

    /// Replaces a lower-case word with its stem.
    pub(crate) fn stem(&mut self, word: &mut String) {
        // Numbers and very short words are not stemmed.
        if word.len() < 3 || !word.chars().all(char::is_alphabetic) {
            return;
        }
        if let Some(stem) = self.stems.get(&**word) {
            word.clear();
            word.push_str(stem);
            return;
        }
        if self.stems.len() >= MAX_CACHED_STEMS {
            self.stems.clear();
        }
        let stem = self.stemmer.stem(word).into_owned();
        self.stems.insert(word.as_str().into(), stem.as_str().into());
        *word = stem;
    }
}

/// The tokens of a text, in order.
pub(crate) struct TextTokens<'a> {
    text: &'a str,
    at: usize,
    position: u32,
    stems: &'a mut StemCache,
    pending: VecDeque<TextToken>,
    /// The byte ranges of the words of the current chain, such as `os` and `path` of `os.path`.
    chain: Vec<Range<usize>>,
}

impl<'a> TextTokens<'a> {
    pub(crate) fn new(text: &'a str, stems: &'a mut StemCache) -> Self {
        Self { text, at: 0, position: 0, stems, pending: VecDeque::new(), chain: Vec::new() }
    }

    /// Reads the next word and queues its tokens; `false` at the end of the text.
    fn read_word(&mut self) -> bool {
        let rest = &self.text[self.at..];
        let Some(start) = rest.find(is_word_letter) else {
            self.end_chain();
            self.at = self.text.len();
            return false;
        };
        let from = self.at + start;
        if !self.chain.is_empty() && !is_joint(&self.text[self.at..from]) {
            self.end_chain();
        }
        let to = from + word_length(&self.text[from..]);
        self.at = to;
        let word = &self.text[from..to];
        if word.starts_with(is_unspaced) {
            self.push_pairs(word, from);
            return true;
        }
        self.push_parts(word, from);
        if word.bytes().any(|byte| byte != b'_') {
            self.chain.push(from..to);
        }
        self.position += 1;
        true
    }

    /// Queues the parts of an identifier and, if there are several, the whole.
    fn push_parts(&mut self, word: &str, from: usize) {
        if is_plain(word) {
            let mut text = word.to_ascii_lowercase();
            self.stems.stem(&mut text);
            self.push(text, TextTokenKind::Part, from, from + word.len());
            return;
        }
        let mut count = 0;
        for (start, part) in parts(word) {
            count += 1;
            let mut text = folded(part.chars());
            self.stems.stem(&mut text);
            self.push(text, TextTokenKind::Part, from + start, from + start + part.len());
        }
        if count > 1 {
            let whole = folded(word.chars().filter(|letter| *letter != '_'));
            self.push(whole, TextTokenKind::Whole, from, from + word.len());
        }
    }

    /// Queues the overlapping pairs of characters of a word in a script without spaces, or its only character.
    fn push_pairs(&mut self, word: &str, from: usize) {
        let letters: Vec<_> = word.char_indices().collect();
        let end = |at: usize| letters.get(at).map_or(word.len(), |(offset, _)| *offset);
        for at in 0..letters.len().max(2) - 1 {
            let (start, stop) = (letters[at].0, end((at + 2).min(letters.len())));
            self.push(word[start..stop].to_lowercase(), TextTokenKind::Part, from + start, from + stop);
            self.position += 1;
        }
    }

    /// Queues the tokens of the chain that ends here, such as `os.path.join` and `path.join`.
    fn end_chain(&mut self) {
        let length = self.chain.len();
        if !(2..=8).contains(&length) {
            self.chain.clear();
            return;
        }
        let (from, to) = (self.chain[0].start, self.chain[length - 1].end);
        let words = self
            .chain
            .drain(..)
            .map(|range| folded(self.text[range].chars().filter(|letter| *letter != '_')));
        let chain: Vec<_> = words.collect();
        self.push(chain.join("."), TextTokenKind::Whole, from, to);
        if chain.len() > 2 {
            let is_version =
                chain.iter().all(|part| part.starts_with(|letter: char| letter.is_ascii_digit()));
            let pair = if is_version { &chain[..2] } else { &chain[chain.len() - 2..] };
            self.push(pair.join("."), TextTokenKind::Whole, from, to);
        }
    }

    fn push(&mut self, text: String, kind: TextTokenKind, from: usize, to: usize) {
        if !text.is_empty() && text.len() <= MAX_TOKEN {
            self.pending.push_back(TextToken { text, kind, position: self.position, from, to });
        }
    }
}

impl Iterator for TextTokens<'_> {
    type Item = TextToken;

    fn next(&mut self) -> Option<TextToken> {
        while self.pending.is_empty() {
            if !self.read_word() && self.pending.is_empty() {
                return None;
            }
        }
        self.pending.pop_front()
    }
}

/// Calls `each` with the position and byte range of each token of kind [`TextTokenKind::Part`], of any length, without
/// creating the tokens.
pub(crate) fn for_each_part(text: &str, each: &mut dyn FnMut(u32, Range<usize>)) {
    let mut position = 0;
    let mut at = 0;
    while let Some(start) = text[at..].find(is_word_letter) {
        let from = at + start;
        let to = from + word_length(&text[from..]);
        at = to;
        let word = &text[from..to];
        if is_plain(word) {
            each(position, from..to);
        } else if word.starts_with(is_unspaced) {
            let offsets: Vec<_> = word.char_indices().map(|(offset, _)| offset).chain([word.len()]).collect();
            // Three offsets delimit a pair; a word of one character has two.
            for pair in offsets.windows(offsets.len().min(3)) {
                each(position, from + pair[0]..from + pair[pair.len() - 1]);
                position += 1;
            }
            continue;
        } else {
            for (start, part) in parts(word) {
                each(position, from + start..from + start + part.len());
            }
        }
        position += 1;
    }
}

/// Whether a word is a single part of ASCII letters: lower case, except perhaps the first letter.
fn is_plain(word: &str) -> bool {
    let mut bytes = word.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic())
        && bytes.all(|byte| byte.is_ascii_lowercase())
}

/// Converts to lower case, and `ß` to `s`.
fn folded(letters: impl Iterator<Item = char>) -> String {
    letters.flat_map(char::to_lowercase).map(|letter| if letter == 'ß' { 's' } else { letter }).collect()
}

fn is_word_letter(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// The length in bytes of the word at the start of a text: up to a character that belongs to no word, or to the border
/// between a script without spaces and another script.
fn word_length(text: &str) -> usize {
    let is_pair = text.starts_with(is_unspaced);
    let is_end = |letter: char| !is_word_letter(letter) || is_unspaced(letter) != is_pair;
    text.find(is_end).unwrap_or(text.len())
}

/// Whether this text between two words joins them to a chain.
fn is_joint(between: &str) -> bool {
    matches!(between, "." | "::" | "->" | "-" | ":" | "/")
}

/// Whether a letter belongs to a script without spaces between words.
pub(crate) fn is_unspaced(letter: char) -> bool {
    matches!(letter, '\u{0e00}'..='\u{0eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}' | '\u{2e80}'..='\u{9fff}' | '\u{ac00}'..='\u{d7af}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{2ffff}')
}

/// The parts of an identifier with their byte offsets. The identifier is split at underscores, between lower and upper
/// case, before the last letter of an acronym if a lower-case letter follows, and between letters and digits.
fn parts(word: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut starts = Vec::new();
    let letters: Vec<_> = word.char_indices().collect();
    for (at, (offset, letter)) in letters.iter().enumerate() {
        let before = at.checked_sub(1).map(|before| letters[before].1);
        let after = letters.get(at + 1).map(|(_, letter)| *letter);
        let is_start = match before {
            None | Some('_') => true,
            Some(before) => {
                letter.is_uppercase() && before.is_lowercase()
                    || letter.is_uppercase()
                        && before.is_uppercase()
                        && after.is_some_and(|after| after.is_lowercase())
                    || letter.is_numeric() != before.is_numeric()
            }
        };
        if is_start || *letter == '_' {
            starts.push(*offset);
        }
    }
    starts.push(word.len());
    let ranges: Vec<_> = starts.windows(2).map(|pair| (pair[0], &word[pair[0]..pair[1]])).collect();
    ranges.into_iter().filter(|(_, part)| *part != "_")
}

#[cfg(test)]
mod tests {
    use super::{StemCache, TextTokenKind, TextTokens, for_each_part};
    use crate::language::Language;

    fn tokens(text: &str) -> Vec<String> {
        let mut stems = StemCache::new(Language::English);
        TextTokens::new(text, &mut stems).map(|token| token.text).collect()
    }

    #[test]
    fn identifiers_are_split_and_kept() {
        let cases: [(&str, &[&str]); 9] = [
            ("readHTTPFile", &["read", "http", "file", "readhttpfile"]),
            ("read_http_file", &["read", "http", "file", "readhttpfile"]),
            ("asyncio.Queue.qsize()", &["asyncio", "queue", "qsize", "asyncio.queue.qsize", "queue.qsize"]),
            ("Python 3.11.2.", &["python", "3", "11", "2", "3.11.2", "3.11"]),
            ("files, running", &["file", "run"]),
            ("__init__", &["init"]),
            ("utf8", &["utf", "8", "utf8"]),
            ("検索する", &["検索", "索す", "する"]),
            ("使用Python编程", &["使用", "python", "编程"]),
        ];
        for (text, expected) in cases {
            assert_eq!(tokens(text), expected, "{text}");
        }
    }

    #[test]
    fn for_each_part_finds_the_parts_of_the_tokens() {
        let text = "über readHTTPFile, 検索する 木 (os.path) __ 水。火 3.11 用Python3编程";
        let mut stems = StemCache::new(Language::German);
        let tokens = TextTokens::new(text, &mut stems).filter(|token| token.kind == TextTokenKind::Part);
        let expected: Vec<_> = tokens.map(|token| (token.position, token.from..token.to)).collect();
        let mut found = Vec::new();
        for_each_part(text, &mut |position, range| found.push((position, range)));
        assert_eq!(found, expected);
    }

    #[test]
    fn ranges_are_those_of_the_text() {
        let text = "über die readFile_x 検索";
        let mut stems = StemCache::new(Language::German);
        for token in TextTokens::new(text, &mut stems) {
            assert!(text.get(token.from..token.to).is_some(), "{token:?}");
        }
    }
}
