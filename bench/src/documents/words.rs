//! Compares the words of two texts, regardless of their order and markup.

use std::collections::HashMap;

/// How often each word occurs in a text.
pub(super) struct WordCounts {
    counts: HashMap<String, usize>,
    total: usize,
}

impl WordCounts {
    /// Counts the words of a text: letters and digits, in lower case. Words that are hyphenated at the end of a line are
    /// joined.
    pub(super) fn of(text: &str) -> Self {
        let mut plain = String::with_capacity(text.len());
        for letter in text.replace("-\n", "").chars() {
            match letter {
                'ﬁ' => plain.push_str("fi"),
                'ﬂ' => plain.push_str("fl"),
                'ﬀ' => plain.push_str("ff"),
                'ﬃ' => plain.push_str("ffi"),
                'ﬄ' => plain.push_str("ffl"),
                '\u{ad}' => {}
                other => plain.extend(other.to_lowercase()),
            }
        }
        let mut counts = HashMap::new();
        let mut total = 0;
        for word in plain.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty()) {
            *counts.entry(word.to_owned()).or_default() += 1;
            total += 1;
        }
        Self { counts, total }
    }

    pub(super) fn total(&self) -> usize {
        self.total
    }

    /// The harmonic mean of precision and recall of the words in `self` against those in `expected`.
    pub(super) fn f1(&self, expected: &Self) -> f64 {
        let common: usize = self
            .counts
            .iter()
            .map(|(word, count)| (*count).min(expected.counts.get(word).copied().unwrap_or(0)))
            .sum();
        match self.total + expected.total {
            0 => 1.0,
            both => 2.0 * common as f64 / both as f64,
        }
    }
}

/// Markdown without the targets of links, line breaks in cells and escapes.
pub(super) fn without_markup(markdown: &str) -> String {
    let mut out = String::with_capacity(markdown.len());
    let mut rest = markdown;
    while let Some(at) = rest.find("](") {
        out.push_str(&rest[..at]);
        rest = rest[at..].find(')').map_or("", |end| &rest[at + end + 1..]);
    }
    out.push_str(rest);
    // A backslash begins an escape or a command of LaTeX; both separate words.
    out.replace("<br>", " ").replace('\\', " ").replace('*', "")
}

#[cfg(test)]
mod tests {
    use super::{WordCounts, without_markup};

    #[test]
    fn order_case_and_markup_do_not_count() {
        let f1 = |one: &str, other: &str| WordCounts::of(one).f1(&WordCounts::of(other));
        assert_eq!(f1("The ﬁle, di-\nvided", "divided file the"), 1.0);
        assert_eq!(f1("a b", "a c"), 0.5);
        assert_eq!(f1("", ""), 1.0);
        assert_eq!(without_markup("[a](http://b) **c**<br>d"), "[a c d");
        assert_eq!(f1(&without_markup("$\\left\\lbrack x$"), "left lbrack x"), 1.0);
    }
}
