//! Compares the words of two texts, and their order, regardless of markup.

use std::collections::HashMap;

/// How well a text agrees with that of the reference program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct TextScores {
    /// The F1 of the words, or the share of equal cells of a spreadsheet.
    pub(super) words: f64,
    /// The share of the pairs of successive words of the reference that the text keeps; `None` for cells.
    pub(super) order: Option<f64>,
}

/// How often each word, and each pair of successive words, occurs in a text.
pub(super) struct ScoredText {
    words: Counts<String>,
    pairs: Counts<(String, String)>,
}

impl ScoredText {
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
        let words = plain.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty());
        let words: Vec<_> = words.map(str::to_owned).collect();
        let pairs = words.windows(2).map(|pair| (pair[0].clone(), pair[1].clone()));
        Self { pairs: pairs.collect(), words: words.iter().cloned().collect() }
    }

    /// The number of words.
    pub(super) fn total(&self) -> usize {
        self.words.total
    }

    /// The scores of this text against the expected one: the harmonic mean of precision and recall of its words, and the
    /// recall of its pairs of words.
    pub(super) fn scores(&self, expected: &Self) -> TextScores {
        let words = match self.words.total + expected.words.total {
            0 => 1.0,
            both => 2.0 * self.words.common(&expected.words) as f64 / both as f64,
        };
        let order = match expected.pairs.total {
            0 => 1.0,
            all => self.pairs.common(&expected.pairs) as f64 / all as f64,
        };
        TextScores { words, order: Some(order) }
    }
}

/// A multiset.
struct Counts<T> {
    counts: HashMap<T, usize>,
    total: usize,
}

impl<T: Eq + std::hash::Hash> Counts<T> {
    /// The size of the intersection.
    fn common(&self, other: &Self) -> usize {
        let shared = |(item, count): (&T, &usize)| (*count).min(other.counts.get(item).copied().unwrap_or(0));
        self.counts.iter().map(shared).sum()
    }
}

impl<T: Eq + std::hash::Hash> FromIterator<T> for Counts<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        let mut counts = HashMap::new();
        let mut total = 0;
        for item in items {
            *counts.entry(item).or_default() += 1;
            total += 1;
        }
        Self { counts, total }
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
    use super::{ScoredText, TextScores, without_markup};

    #[test]
    fn case_and_markup_do_not_count_and_order_has_its_own_score() {
        let scores = |one: &str, other: &str| ScoredText::of(one).scores(&ScoredText::of(other));
        let (words, order) = (1.0, Some(0.5));
        assert_eq!(scores("The ﬁle, di-\nvided", "divided the file"), TextScores { words, order });
        assert_eq!(scores("a b", "a c"), TextScores { words: 0.5, order: Some(0.0) });
        assert_eq!(scores("a *b*, c", "A b C").order, Some(1.0));
        assert_eq!(scores("", ""), TextScores { words: 1.0, order: Some(1.0) });
        assert_eq!(without_markup("[a](http://b) **c**<br>d"), "[a c d");
        assert_eq!(scores(&without_markup("$\\left\\lbrack x$"), "left lbrack x").words, 1.0);
    }
}
