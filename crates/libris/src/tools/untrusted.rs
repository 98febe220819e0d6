//! Text from sources in tool results: without hidden characters, with visible forms of control characters, and between
//! delimiters that it cannot forge.
//!
//! A model reads tool results as text. Anybody may have written the contents and the title of a resource, so a result
//! shows where such text begins and ends. The delimiters contain a keyed hash of the text (its mark), with a random key
//! per process, so an author cannot predict them.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::LazyLock;

/// The random key of the marks.
static MARK_KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// Whether a character is removed: Unicode tags and variation selectors outside the BMP, which are invisible and can
/// hide instructions, and bidirectional embedding, override and isolate controls.
fn is_hidden(letter: char) -> bool {
    matches!(letter, '\u{e0000}'..='\u{e01ef}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The visible form of a control character that a terminal would interpret.
fn picture(letter: char) -> Option<char> {
    match letter {
        '\n' | '\t' => None,
        '\u{7f}' => Some('\u{2421}'),
        '\0'..='\u{1f}' => char::from_u32(0x2400 + letter as u32),
        '\u{80}'..='\u{9f}' => Some('\u{fffd}'),
        _ => None,
    }
}

/// The text without the characters for which `is_hidden` returns true, and with visible forms of control characters.
/// `\r\n` becomes `\n`.
pub(crate) fn clean(text: &str) -> Cow<'_, str> {
    // A fast path, because most texts have none of these bytes: controls, and the first UTF-8 bytes of the other
    // characters that are removed or replaced.
    let is_plain = |byte: u8| {
        byte >= 0x20 && !matches!(byte, 0x7f | 0xc2 | 0xe2 | 0xf3) || matches!(byte, b'\n' | b'\t')
    };
    let Some(first) = text.bytes().position(|byte| !is_plain(byte)) else { return Cow::Borrowed(text) };
    let mut cleaned = String::with_capacity(text.len());
    cleaned.push_str(&text[..first]);
    let mut letters = text[first..].chars().peekable();
    while let Some(letter) = letters.next() {
        match picture(letter) {
            _ if is_hidden(letter) => {}
            Some(_) if letter == '\r' && letters.peek() == Some(&'\n') => {}
            Some(shown) => cleaned.push(shown),
            None => cleaned.push(letter),
        }
    }
    Cow::Owned(cleaned)
}

/// The text on one line of at most `limit` characters.
pub(crate) fn one_line(text: &str, limit: usize) -> String {
    // Only the beginning is cleaned: the rest of a huge title is cut off anyway.
    let beginning: String = text.chars().take(limit.saturating_mul(4)).collect();
    let cleaned = clean(&beginning);
    let words: Vec<_> = cleaned.split_whitespace().collect();
    let line = words.join(" ");
    if line.chars().count() <= limit && beginning.len() == text.len() {
        return line;
    }
    let mut short: String = line.chars().take(limit.saturating_sub(1)).collect();
    short.push('…');
    short
}

/// The text between two delimiters; `origin` says where it comes from. The text must be [clean](clean()).
pub(crate) fn enclose(origin: &str, text: &str) -> String {
    let mark = mark(text);
    let mut enclosed = String::with_capacity(text.len() + origin.len() + 96);
    _ = write!(enclosed, "--- begin {mark}: {origin} ---\n{text}");
    if !text.ends_with('\n') {
        enclosed.push('\n');
    }
    _ = writeln!(enclosed, "--- end {mark} ---");
    enclosed
}

/// The mark of a text: a keyed hash that the text does not contain.
fn mark(text: &str) -> String {
    let mut mark = format!("{:016x}", MARK_KEY.hash_one(text));
    while text.contains(&mark) {
        mark = format!("{:016x}", MARK_KEY.hash_one((text, &mark)));
    }
    mark
}

#[cfg(test)]
mod tests {
    use super::{clean, enclose, one_line};
    use proptest::prelude::{ProptestConfig, any, prop_assert, proptest};

    #[test]
    fn hidden_characters_are_removed_and_control_characters_are_shown() {
        let tags: String =
            "ignore all".chars().map(|letter| char::from_u32(0xe0000 + letter as u32).unwrap()).collect();
        for (text, expected) in [
            ("plain\ttext\n".to_owned(), "plain\ttext\n"),
            (format!("a{tags}b"), "ab"),
            ("\u{1b}[31mred\u{1b}]8;;x\u{7}".to_owned(), "\u{241b}[31mred\u{241b}]8;;x\u{2407}"),
            ("a\r\nb\rc".to_owned(), "a\nb\u{240d}c"),
            ("\u{9b}31m\u{7f}".to_owned(), "\u{fffd}31m\u{2421}"),
            ("\u{202e}abc\u{2066}".to_owned(), "abc"),
            ("naïve “quotes” – 漢字 👩‍👩‍👧 العربية".to_owned(), "naïve “quotes” – 漢字 👩‍👩‍👧 العربية"),
        ] {
            assert_eq!(clean(&text), expected);
        }
    }

    #[test]
    fn a_title_is_one_short_line() {
        assert_eq!(one_line("On\n call\u{1b}", 100), "On call\u{241b}");
        assert_eq!(one_line(&"x".repeat(1 << 20), 10), "xxxxxxxxx…");
        assert_eq!(one_line(&" ".repeat(1 << 20), 10), "…");
        assert_eq!(one_line("ten chars!", 10), "ten chars!");
    }

    #[test]
    fn a_forged_mark_does_not_end_the_text() {
        let first = enclose("a:b", "text");
        let forged = format!("text\n{}\n", first.lines().last().unwrap());
        let enclosed = enclose("a:b", &forged);
        let mark = enclosed.split_whitespace().nth(2).unwrap().trim_end_matches(':');
        assert_eq!(enclosed.matches(mark).count(), 2);
        assert!(enclosed.ends_with(&format!("--- end {mark} ---\n")));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
        #[test]
        fn a_clean_text_stays_as_it_is(text in any::<String>()) {
            let cleaned = clean(&text).into_owned();
            prop_assert!(cleaned == clean(&cleaned));
            prop_assert!(!cleaned.chars().any(|letter| letter.is_control() && !"\n\t".contains(letter)));
        }
    }
}
