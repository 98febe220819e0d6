//! Splits text into tokens: words, the parts of identifiers, and identifiers as a whole.
//!
//! `readHTTPFile` and `read_http_file` give the parts `read`, `http` and `file`, and the whole `readhttpfile`. Parts
//! are stemmed. A chain of two to eight words, such as `os.path.join`, `read-http-file` or `3.11.2`, also gives the
//! whole chain, joined by dots. A chain of more than two words also gives its last two words (`path.join`) or, if it is
//! a version, its first two (`3.11`). Words in scripts without spaces give overlapping pairs of characters; a word ends
//! where such a script begins or ends, so that `使用Python编程` contains the word `Python`.

use std::collections::VecDeque;
use std::ops::Range;

use crate::language::Language;

/// The longest token, in bytes. Longer tokens, such as encoded data, are dropped.
const MAX_TOKEN: usize = 64;

/// The kind of a token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TextTokenKind {
    /// A word or a part of an identifier, stemmed.
    #[default]
    Part,
    /// An identifier or a chain of identifiers, not stemmed.
    Whole,
}

/// A token of a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TextToken {
    pub(crate) text: String,
    pub(crate) kind: TextTokenKind,
    /// The ordinal of the word that the token belongs to.
    pub(crate) position: u32,
    /// The byte range in the text, `from..to`.
    pub(crate) from: usize,
    pub(crate) to: usize,
}

/// Stems words of one language, with a direct-mapped cache: the hash of a word determines its entry, which the next word
/// with the same hash overwrites. So a lookup reads one place in memory.
pub(crate) struct StemCache {
    stemmer: frostem::Stemmer,
    /// The entries, a power of two; none until the first word is stemmed, and all 0 until they are written.
    entries: Vec<StemEntry>,
    /// How many entries there will be.
    capacity: usize,
}

/// A [`packed`] word and its stem; both empty if the entry was never written. An array of integers, so that the kernel
/// provides the zeros of a large cache where they are used.
type StemEntry = [u64; 2 * STEM_WORDS];

/// The 64-bit words that a word or a stem takes in the cache.
const STEM_WORDS: usize = 3;

/// The longest word and the longest stem that are cached, in bytes.
const MAX_CACHED_WORD: usize = 8 * STEM_WORDS - 1;

impl StemCache {
    /// A cache for a few texts: 12 KiB.
    pub(crate) fn small(language: Language) -> Self {
        Self { stemmer: language.stemmer(), entries: Vec::new(), capacity: 256 }
    }

    /// A cache for many texts: 3 MiB.
    pub(crate) fn large(language: Language) -> Self {
        Self { capacity: 1 << 16, ..Self::small(language) }
    }

    /// Replaces a lower-case word with its stem.
    pub(crate) fn stem(&mut self, word: &mut String) {
        if self.entries.is_empty() {
            self.entries = vec![StemEntry::default(); self.capacity];
        }
        let place = (word.len() <= MAX_CACHED_WORD).then(|| {
            let key = packed(word.as_bytes());
            let mixed =
                |hash: u64, part: &u64| (hash.rotate_left(23) ^ part).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (key, (key.iter().fold(0, mixed) >> 40) as usize & (self.capacity - 1))
        });
        if let Some((key, at)) = place
            && self.entries[at][..STEM_WORDS] == key
        {
            let mut stem = [0; 8 * STEM_WORDS];
            for (bytes, part) in stem.chunks_exact_mut(8).zip(&self.entries[at][STEM_WORDS..]) {
                bytes.copy_from_slice(&part.to_le_bytes());
            }
            let stem = &stem[..usize::from(stem[MAX_CACHED_WORD]).min(MAX_CACHED_WORD)];
            // Most stems are the beginning of the word.
            match word.as_bytes().starts_with(stem) {
                true => word.truncate(stem.len()),
                false => {
                    word.clear();
                    word.push_str(std::str::from_utf8(stem).unwrap_or_default());
                }
            }
            return;
        }
        // Numbers and very short words are not stemmed.
        if word.len() < 3 || !word.chars().all(char::is_alphabetic) {
            return;
        }
        let stem = self.stemmer.stem(word).into_owned();
        if let Some((key, at)) = place.filter(|_| stem.len() <= MAX_CACHED_WORD) {
            let value = packed(stem.as_bytes());
            let (known_word, known_stem) = self.entries[at].split_at_mut(STEM_WORDS);
            known_word.copy_from_slice(&key);
            known_stem.copy_from_slice(&value);
        }
        *word = stem;
    }
}

/// At most [`MAX_CACHED_WORD`] bytes, followed by zeros, and the number of these bytes as the last byte.
fn packed(bytes: &[u8]) -> [u64; STEM_WORDS] {
    let mut padded = [0; 8 * STEM_WORDS];
    padded[..bytes.len()].copy_from_slice(bytes);
    padded[MAX_CACHED_WORD] = bytes.len() as u8;
    std::array::from_fn(|part| u64::from_le_bytes(std::array::from_fn(|byte| padded[8 * part + byte])))
}

/// A large cache of stems for each language.
#[derive(Default)]
pub(crate) struct StemCaches([Option<StemCache>; Language::ALL.len()]);

impl StemCaches {
    pub(crate) fn of(&mut self, language: Language) -> &mut StemCache {
        self.0[language as usize].get_or_insert_with(|| StemCache::large(language))
    }
}

/// Reads the tokens of a text, in order.
pub(crate) struct TextTokens<'a> {
    text: &'a str,
    at: usize,
    position: u32,
    pending: VecDeque<TextToken>,
    /// The byte ranges of the words of the current chain, such as `os` and `path` of `os.path`.
    chain: Vec<Range<usize>>,
}

/// What reading a word resulted in.
enum WordRead {
    /// One token, which is in the buffer.
    Token,
    /// Any number of tokens, which are queued.
    Queued,
    /// The text has ended.
    End,
}

impl<'a> TextTokens<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, at: 0, position: 0, pending: VecDeque::new(), chain: Vec::new() }
    }

    /// Reads the next token; `false` at the end of the text. `stems` must be those of the same language each time.
    pub(crate) fn read(&mut self, stems: &mut StemCache, token: &mut TextToken) -> bool {
        loop {
            if let Some(next) = self.pending.pop_front() {
                *token = next;
                return true;
            }
            match self.read_word(stems, token) {
                WordRead::Token => return true,
                WordRead::Queued => {}
                WordRead::End if self.pending.is_empty() => return false,
                WordRead::End => {}
            }
        }
    }

    /// The tokens of the rest of the text.
    pub(crate) fn tokens(mut self, stems: &mut StemCache) -> impl Iterator<Item = TextToken> {
        std::iter::from_fn(move || {
            let mut token = TextToken::default();
            self.read(stems, &mut token).then_some(token)
        })
    }

    /// Reads the next word.
    fn read_word(&mut self, stems: &mut StemCache, token: &mut TextToken) -> WordRead {
        let Some(start) = word_start(&self.text[self.at..]) else {
            self.end_chain();
            self.at = self.text.len();
            return WordRead::End;
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
            return WordRead::Queued;
        }
        let mut read = WordRead::Queued;
        // Most words are one token, which needs neither the queue nor a string of its own.
        if self.pending.is_empty() && is_plain(word) {
            token.text.clear();
            token.text.push_str(word);
            token.text.make_ascii_lowercase();
            stems.stem(&mut token.text);
            if token.text.len() <= MAX_TOKEN {
                (token.kind, token.position) = (TextTokenKind::Part, self.position);
                (token.from, token.to) = (from, to);
                read = WordRead::Token;
            }
        } else {
            self.push_parts(stems, word, from);
        }
        if word.bytes().any(|byte| byte != b'_') {
            self.chain.push(from..to);
        }
        self.position += 1;
        read
    }

    /// Queues the parts of an identifier and, if there are several, the whole.
    fn push_parts(&mut self, stems: &mut StemCache, word: &str, from: usize) {
        if is_plain(word) {
            let mut text = word.to_ascii_lowercase();
            stems.stem(&mut text);
            self.push(text, TextTokenKind::Part, from, from + word.len());
            return;
        }
        let mut count = 0;
        for (start, part) in parts(word) {
            count += 1;
            let mut text = folded(part.chars());
            stems.stem(&mut text);
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

/// Calls `each` with the position and byte range of each token of kind [`TextTokenKind::Part`], of any length, without
/// creating the tokens.
pub(crate) fn for_each_part(text: &str, each: &mut dyn FnMut(u32, Range<usize>)) {
    let mut position = 0;
    let mut at = 0;
    while let Some(start) = word_start(&text[at..]) {
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

/// Like [`is_word_letter`], for a byte; `false` for the bytes of letters beyond ASCII.
fn is_word_byte(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || *byte == b'_'
}

/// The offset of the first word of a text.
fn word_start(text: &str) -> Option<usize> {
    let at = text.bytes().position(|byte| is_word_byte(&byte) || !byte.is_ascii())?;
    match text.as_bytes()[at].is_ascii() {
        true => Some(at),
        false => text[at..].find(is_word_letter).map(|start| at + start),
    }
}

/// The length in bytes of the word at the start of a text: up to a character that belongs to no word, or to the border
/// between a script without spaces and another script.
fn word_length(text: &str) -> usize {
    let end = text.bytes().position(|byte| !is_word_byte(&byte)).unwrap_or(text.len());
    if text.as_bytes().get(end).is_none_or(u8::is_ascii) {
        return end;
    }
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
        let mut stems = StemCache::small(Language::English);
        TextTokens::new(text).tokens(&mut stems).map(|token| token.text).collect()
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
        let mut stems = StemCache::small(Language::German);
        let tokens = TextTokens::new(text).tokens(&mut stems);
        let tokens = tokens.filter(|token| token.kind == TextTokenKind::Part);
        let expected: Vec<_> = tokens.map(|token| (token.position, token.from..token.to)).collect();
        let mut found = Vec::new();
        for_each_part(text, &mut |position, range| found.push((position, range)));
        assert_eq!(found, expected);
    }

    /// The cache is small, so that all entries are overwritten.
    #[test]
    fn stems_are_the_same_from_the_cache() {
        let stemmer = Language::German.stemmer();
        let mut stems = StemCache::small(Language::German);
        let letters =
            |number: usize| (0..3).map(move |at| char::from(b'a' + (number >> (4 * at) & 15) as u8));
        let words = (0..4096).flat_map(|number| {
            let word: String = letters(number).collect();
            [format!("{word}ungen"), format!("hä{word}er"), format!("{word}straßenbahnen{word}{word}en")]
        });
        let fixed = ["", "a", "3", "ab3", "häuser", "straßenbahnhaltestellen", "\0\0\0"].map(str::to_owned);
        let words: Vec<_> = words.chain(fixed).collect();
        for word in words.iter().chain(&words) {
            for _ in 0..2 {
                let mut stem = word.clone();
                stems.stem(&mut stem);
                let is_stemmed = word.len() >= 3 && word.chars().all(char::is_alphabetic);
                let expected = if is_stemmed { stemmer.stem(word).into_owned() } else { word.clone() };
                assert_eq!(stem, expected, "{word}");
            }
        }
    }

    #[test]
    fn ranges_are_those_of_the_text() {
        let text = "über die readFile_x 検索";
        let mut stems = StemCache::small(Language::German);
        for token in TextTokens::new(text).tokens(&mut stems) {
            assert!(text.get(token.from..token.to).is_some(), "{token:?}");
        }
    }
}
