//! Scores texts by the words of a query, and computes the similarity of two texts.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};

/// The number of words in a shingle (a word n-gram).
const SHINGLE: usize = 4;

/// The words of a query.
pub(super) struct QueryTerms {
    /// The stem of each word, and the word itself.
    words: Vec<(String, String)>,
}

/// The inverse document frequency (IDF) of each word of a query among the candidates.
pub(super) struct TermWeights(Vec<f64>);

impl TermWeights {
    /// The lowest weight among the words that a candidate contains, but at most 1.
    pub(super) fn least(&self) -> f64 {
        self.0.iter().copied().filter(|weight| *weight > 0.0).fold(f64::INFINITY, f64::min).min(1.0)
    }
}

impl QueryTerms {
    pub(super) fn new(query: &str) -> Self {
        let mut terms: Vec<(String, String)> = Vec::new();
        // A minus before a word excludes the resources that contain the word.
        let wanted = query.split_whitespace().filter(|word| !word.starts_with('-'));
        for word in wanted.flat_map(words) {
            let stem = stem(&word);
            if !terms.iter().any(|(known, _)| *known == stem) {
                terms.push((stem, word));
            }
        }
        Self { words: terms }
    }

    /// The IDF of each word, as in BM25: the fewer texts contain a word, the more it counts. 0 if no text contains it.
    pub(super) fn weights<'t>(&self, texts: impl Iterator<Item = &'t str>) -> TermWeights {
        let mut frequencies = vec![0_usize; self.words.len()];
        let mut count = 0_usize;
        for text in texts {
            count += 1;
            let stems: HashSet<_> = words(text).map(|word| stem(&word)).collect();
            for ((term, _), frequency) in self.words.iter().zip(&mut frequencies) {
                *frequency += usize::from(stems.contains(term));
            }
        }
        let weight = |frequency: &usize| {
            let (all, some) = (count as f64, *frequency as f64);
            if *frequency == 0 { 0.0 } else { (1.0 + (all - some + 0.5) / (some + 0.5)).ln() }
        };
        TermWeights(frequencies.iter().map(weight).collect())
    }

    /// The score of a text, and the words of the query that it contains. Repetitions of a word at most double its score
    /// (saturation, as in BM25).
    pub(super) fn score(&self, text: &str, weights: &TermWeights) -> (f64, Vec<String>) {
        let stems: Vec<_> = words(text).map(|word| stem(&word)).collect();
        let (mut score, mut matched) = (0.0, Vec::new());
        for ((term, word), weight) in self.words.iter().zip(&weights.0) {
            let count = stems.iter().filter(|stem| *stem == term).count();
            if count > 0 {
                let count = count as f64;
                score += weight * (count * 2.0) / (count + 1.0);
                matched.push(word.clone());
            }
        }
        (score, matched)
    }
}

/// The words of a text in lower case, except those of one letter. The parts of an identifier such as `read_file` are
/// words.
fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    let words = text.split(|letter: char| !letter.is_alphanumeric());
    words.filter(|word| word.chars().count() > 1).map(str::to_lowercase)
}

/// A word without common endings, so that `rotating`, `rotates` and `rotate` have the same stem.
fn stem(word: &str) -> String {
    const ENDINGS: [&str; 8] = ["ations", "ation", "ings", "ing", "ed", "es", "s", "e"];
    let shortened =
        ENDINGS.iter().find_map(|ending| word.strip_suffix(ending).filter(|rest| rest.len() >= 3));
    shortened.unwrap_or(word).to_owned()
}

/// The hashes of all sequences of [`SHINGLE`] words in a text.
pub(super) struct Shingles(HashSet<u64>);

impl Shingles {
    pub(super) fn of(text: &str) -> Self {
        let hasher = BuildHasherDefault::<DefaultHasher>::default();
        let words: Vec<_> = words(text).collect();
        let size = SHINGLE.min(words.len().max(1));
        Self(words.windows(size).map(|window| hasher.hash_one(window)).collect())
    }

    /// The overlap coefficient: the share of the smaller set that the other contains, from 0 to 1.
    pub(super) fn similarity(&self, other: &Self) -> f64 {
        let smaller = self.0.len().min(other.0.len());
        if smaller == 0 {
            return 0.0;
        }
        self.0.intersection(&other.0).count() as f64 / smaller as f64
    }
}

#[cfg(test)]
mod tests {
    use super::{QueryTerms, Shingles};

    #[test]
    fn rare_words_count_more_and_endings_do_not_matter() {
        let terms = QueryTerms::new("rotating the keys -windows");
        let texts = ["rotate the keys", "the the the the", "the end", "other"];
        let weights = terms.weights(texts.into_iter());
        let score = |text| terms.score(text, &weights);
        assert_eq!(score(texts[0]).1, ["rotating", "the", "keys"]);
        assert!(score(texts[0]).0 > 2.0 * score(texts[1]).0);
        assert_eq!(score("windows").0, 0.0);
    }

    #[test]
    fn similar_texts_are_recognised() {
        let similarity = |one: &str, other: &str| Shingles::of(one).similarity(&Shingles::of(other));
        let text = "Rotate the keys every ninety days and tell the people on call.";
        assert_eq!(similarity(text, &text.replace("ninety", "NINETY")), 1.0);
        assert!(similarity(text, "Back up the database every night, and test the copies.") < 0.1);
        assert_eq!(similarity("", text), 0.0);
    }
}
