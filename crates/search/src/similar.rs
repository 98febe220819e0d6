//! Finds terms for query words that no visible resource contains: corrections of misspelt words, and completions of the
//! last word.

use std::collections::BTreeSet;

use tantivy::Term;
use tantivy::query::FuzzyTermQuery;

use crate::query::QueryWord;
use crate::rank::Ranking;
use crate::tokens::TextTokenKind;

/// The largest number of similar terms that are considered per word, field and segment. Terms that only hidden
/// resources contain are not counted.
const MAX_CONSIDERED: usize = 200;

/// The longest word whose stem is searched while it is being typed, in letters.
const MAX_COMPLETED: usize = 40;

/// The largest number of similar terms that replace a word.
const MAX_FORMS: usize = 8;

impl Ranking<'_> {
    /// Replaces the forms of words without matches by similar terms that visible resources contain. Returns whether a
    /// word was corrected; completing the last word does not count.
    pub(crate) fn correct(&self, words: &mut [QueryWord]) -> tantivy::Result<bool> {
        let mut any_corrected = false;
        let last = words.iter().rposition(|word| word.kind == TextTokenKind::Part);
        for (at, word) in words.iter_mut().enumerate() {
            if word.kind != TextTokenKind::Part || word.is_stop || self.occurs(&word.forms)? {
                continue;
            }
            let completions = if Some(at) == last { self.completions(&word.surface)? } else { Vec::new() };
            let (forms, is_corrected) = match completions.is_empty() {
                false => (completions, false),
                true => (self.corrections(&word.surface)?, true),
            };
            let (forms, is_corrected) = match forms.is_empty() && Some(at) == last {
                true => (Vec::from_iter(self.longest_start(&word.surface)?), false),
                false => (forms, is_corrected),
            };
            if !forms.is_empty() {
                any_corrected |= is_corrected;
                (word.forms, word.is_replaced) = (forms, true);
            }
        }
        Ok(any_corrected)
    }

    /// The best terms that begin with a word.
    fn completions(&self, word: &str) -> tantivy::Result<Vec<String>> {
        if word.chars().count() < 2 {
            return Ok(Vec::new());
        }
        let mut terms = BTreeSet::new();
        for field in [
            self.fields.title,
            self.fields.path,
            self.fields.definition,
            self.fields.heading,
            self.fields.body,
        ] {
            for segment in self.segments {
                let index = segment.reader.inverted_index(field)?;
                let mut stream = index.terms().range().ge(word).into_stream()?;
                let mut count = 0;
                while let Some((term, info)) = stream.next() {
                    if !term.starts_with(word.as_bytes()) || count >= MAX_CONSIDERED {
                        break;
                    }
                    if segment.has_visible(&index, info)? {
                        count += 1;
                        terms.insert(String::from_utf8_lossy(term).into_owned());
                    }
                }
            }
        }
        self.best(terms.into_iter().map(|term| (0, term)).collect())
    }

    /// The longest term that a word begins with. It may be the stem of the word that is being typed: `authent` for
    /// `authenticatio`. `None` if the term would have fewer than 4 letters or less than half of the word, or if the
    /// word is longer than [`MAX_COMPLETED`].
    fn longest_start(&self, word: &str) -> tantivy::Result<Option<String>> {
        let length = word.chars().count();
        if length > MAX_COMPLETED {
            return Ok(None);
        }
        let ends: Vec<_> = word.char_indices().map(|(at, _)| at).skip(4.max(length.div_ceil(2))).collect();
        for end in ends.into_iter().rev() {
            let start = word[..end].to_owned();
            if self.occurs(std::slice::from_ref(&start))? {
                return Ok(Some(start));
            }
        }
        Ok(None)
    }

    /// The best terms within an edit distance of 1 or, for words of at least 7 letters, 2. Empty for words of fewer
    /// than 4 or more than 40 letters.
    fn corrections(&self, word: &str) -> tantivy::Result<Vec<String>> {
        let length = word.chars().count();
        if !(4..=40).contains(&length) {
            return Ok(Vec::new());
        }
        // The index contains stems, and a long word often differs from its stem by a suffix too, so it may have two
        // edits.
        let distance = if length < 7 { 1 } else { 2 };
        let mut terms = BTreeSet::new();
        for field in [
            self.fields.title,
            self.fields.path,
            self.fields.definition,
            self.fields.heading,
            self.fields.body,
        ] {
            let automaton =
                FuzzyTermQuery::new(Term::from_field_text(field, word), distance, true).automaton()?;
            for segment in self.segments {
                let index = segment.reader.inverted_index(field)?;
                let mut stream = index.terms().search(&automaton).into_stream()?;
                let mut count = 0;
                while let Some((term, info)) = stream.next() {
                    if count >= MAX_CONSIDERED {
                        break;
                    }
                    if segment.has_visible(&index, info)? && !term.contains(&b'.') {
                        count += 1;
                        terms.insert(String::from_utf8_lossy(term).into_owned());
                    }
                }
            }
        }
        let ranked = terms.into_iter().map(|term| (edits(word, &term), term)).collect();
        self.best(ranked)
    }

    /// The terms with the fewest edits, the most frequent first. The input has the number of edits of each term. Terms
    /// that only hidden resources contain are left out.
    fn best(&self, terms: Vec<(usize, String)>) -> tantivy::Result<Vec<String>> {
        let ranked = {
            let mut visible = Vec::new();
            for (edits, term) in terms {
                let frequency = self.frequency(std::slice::from_ref(&term))?;
                if frequency > 0 {
                    visible.push((edits, std::cmp::Reverse(frequency), term));
                }
            }
            visible.sort();
            visible
        };
        let least = ranked.first().map(|(edits, _, _)| *edits);
        let same = ranked.into_iter().take_while(|(edits, _, _)| Some(*edits) == least);
        Ok(same.map(|(_, _, term)| term).take(MAX_FORMS).collect())
    }
}

/// The edit distance of two words (optimal string alignment): the transposition of two neighbours counts as one edit.
fn edits(one: &str, other: &str) -> usize {
    let (one, other): (Vec<_>, Vec<_>) = (one.chars().collect(), other.chars().collect());
    let mut rows = vec![vec![0; other.len() + 1]; one.len() + 1];
    for (at, row) in rows.iter_mut().enumerate() {
        row[0] = at;
    }
    rows[0] = (0..=other.len()).collect();
    for i in 1..=one.len() {
        for j in 1..=other.len() {
            let cost = usize::from(one[i - 1] != other[j - 1]);
            let mut least = (rows[i - 1][j] + 1).min(rows[i][j - 1] + 1).min(rows[i - 1][j - 1] + cost);
            if i > 1 && j > 1 && one[i - 1] == other[j - 2] && one[i - 2] == other[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = least;
        }
    }
    rows[one.len()][other.len()]
}
