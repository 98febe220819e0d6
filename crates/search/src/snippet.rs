//! Finds the words of a query in a section, to compute their proximity and to choose the lines of the snippet.

use std::collections::HashMap;
use std::ops::Range;

use libris_core::SnippetLine;

use crate::language::Language;
use crate::query::QueryWord;
use crate::rank::Weights;
use crate::tokens::{StemCache, TextTokenKind, for_each_part};

/// The largest number of lines in a snippet.
const SNIPPET_LINES: usize = 3;

/// The longest line of a snippet, in bytes.
const MAX_LINE: usize = 200;

/// The largest distance of two words that counts for their proximity, in words.
const MAX_DISTANCE: u32 = 8;

/// The largest number of query words whose proximity is computed. It is limited because all pairs are compared.
const MAX_COMPARED_WORDS: usize = 12;

/// The largest number of words of a query in which stop words beside them count: `for statement`.
const MAX_JOINED_WORDS: usize = 2;

/// An occurrence of a query word in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WordHit {
    /// The index of the word in the query.
    pub(crate) word: usize,
    pub(crate) position: u32,
    pub(crate) range: Range<usize>,
}

/// Finds the words of a query in texts.
pub(crate) struct Matcher<'q> {
    words: &'q [QueryWord],
    /// The rarity of each word, for [`proximity`](Self::proximity); may be empty if that is not called.
    rarities: &'q [f32],
    stems: HashMap<Language, StemCache>,
    /// The first [`COMPARED`] characters of the forms of all words.
    starts: Vec<Vec<char>>,
}

/// The number of first characters in which a word is compared with the forms of the query words. Only a word that
/// begins like a form is stemmed.
const COMPARED: usize = 3;

impl<'q> Matcher<'q> {
    pub(crate) fn new(words: &'q [QueryWord], rarities: &'q [f32]) -> Self {
        let mut starts: Vec<Vec<char>> = words
            .iter()
            .filter(|word| word.kind == TextTokenKind::Part)
            .flat_map(|word| &word.forms)
            .map(|form| form.chars().take(COMPARED).collect())
            .collect();
        starts.sort();
        starts.dedup();
        Self { words, rarities, stems: HashMap::new(), starts }
    }

    /// The occurrences of the words in a text, in order.
    pub(crate) fn hits(&mut self, text: &str, language: Language) -> Vec<WordHit> {
        let stems = self.stems.entry(language).or_insert_with(|| StemCache::small(language));
        let mut hits = Vec::new();
        let mut lower = String::new();
        for_each_part(text, &mut |position, range| {
            let part = &text[range.clone()];
            // A word begins like its stem, so most words need not be stemmed.
            if !self.starts.iter().any(|start| starts_with(part, start)) {
                return;
            }
            lower.clear();
            lower.extend(part.chars().flat_map(char::to_lowercase));
            stems.stem(&mut lower);
            let word = self.words.iter().position(|word| word.forms.contains(&lower));
            hits.extend(word.map(|word| WordHit { word, position, range }));
        });
        hits
    }

    /// The proximity of the query words in a text: the sum, over all pairs of words that occur within [`MAX_DISTANCE`],
    /// of the lower rarity of the two, divided by their smallest distance. For a pair that is not adjacent in the
    /// query, this value is multiplied by [`Weights::distant`]. In a query of at most two words, the rarity of a word
    /// with a stop word beside it, as in the query, is added, multiplied by [`Weights::joined`].
    pub(crate) fn proximity(&self, hits: &[WordHit], weights: &Weights) -> f32 {
        let is_counted =
            |word: &QueryWord| !word.is_stop && !word.is_vague && word.kind == TextTokenKind::Part;
        let positions = |word: usize| -> Vec<u32> {
            hits.iter().filter(|hit| hit.word == word).map(|hit| hit.position).collect()
        };
        let counted =
            (0..self.words.len()).filter(|word| is_counted(&self.words[*word])).take(MAX_COMPARED_WORDS);
        let counted: Vec<(usize, Vec<u32>)> = counted.map(|word| (word, positions(word))).collect();
        let mut sum = 0.0;
        for (at, (one, first)) in counted.iter().enumerate() {
            for (next, (other, second)) in counted.iter().enumerate().skip(at + 1) {
                let Some(distance) = least_distance(first, second) else { continue };
                let rarity = self.rarities[*one].min(self.rarities[*other]);
                sum += rarity * if next == at + 1 { 1.0 } else { weights.distant } / distance as f32;
            }
        }
        if counted.len() <= MAX_JOINED_WORDS {
            for (word, places) in &counted {
                let place = self.words[*word].position;
                let is_beside = |other: &QueryWord| other.is_stop && other.position.abs_diff(place) == 1;
                let beside = (0..self.words.len()).filter(|other| is_beside(&self.words[*other]));
                let is_joined = beside.map(positions).any(|other| least_distance(places, &other) == Some(1));
                sum += if is_joined { weights.joined * self.rarities[*word] } else { 0.0 };
            }
        }
        sum
    }

    /// The consecutive lines of a section, at most [`SNIPPET_LINES`], that contain the largest number of distinct query
    /// words, without empty lines. `first_line` is the number of the first line of the section.
    pub(crate) fn snippet(&mut self, text: &str, language: Language, first_line: u32) -> Vec<SnippetLine> {
        let hits = self.hits(text, language);
        let mut starts: Vec<usize> = vec![0];
        starts.extend(memchr::memchr_iter(b'\n', text.as_bytes()).map(|at| at + 1));
        let line_of = |offset: usize| starts.partition_point(|start| *start <= offset) - 1;
        let mut best = (0, 0);
        for hit in &hits {
            let line = line_of(hit.range.start);
            let window = hits
                .iter()
                .filter(|other| (line..line + SNIPPET_LINES).contains(&line_of(other.range.start)));
            let mut words: Vec<_> =
                window.map(|hit| hit.word).filter(|word| !self.words[*word].is_stop).collect();
            let count = words.len();
            words.sort_unstable();
            words.dedup();
            let value = words.len() * 1000 + count;
            if value > best.0 {
                best = (value, line);
            }
        }
        let lines = best.1..(best.1 + SNIPPET_LINES).min(starts.len());
        let shown = lines.filter_map(|line| {
            let start = starts[line];
            let end = starts.get(line + 1).map_or(text.len(), |next| next - 1);
            let whole = &text[start..end.max(start)];
            if whole.trim().is_empty() {
                return None;
            }
            let in_line = hits.iter().filter(|hit| {
                !self.words[hit.word].is_stop && hit.range.start >= start && hit.range.end <= end
            });
            let ranges: Vec<_> = in_line.map(|hit| hit.range.start - start..hit.range.end - start).collect();
            Some(shortened(whole, ranges, first_line + line as u32))
        });
        shown.collect()
    }
}

/// The smallest distance between positions in two sorted lists; `None` if it is more than [`MAX_DISTANCE`]. Two parts
/// of one identifier, which have the same position, have the distance 1.
fn least_distance(one: &[u32], other: &[u32]) -> Option<u32> {
    let (mut at, mut across) = (0, 0);
    let mut least: Option<u32> = None;
    while let (Some(here), Some(there)) = (one.get(at), other.get(across)) {
        let distance = here.abs_diff(*there).max(1);
        least = Some(least.map_or(distance, |least| least.min(distance)));
        if here < there { at += 1 } else { across += 1 }
    }
    least.filter(|least| *least <= MAX_DISTANCE)
}

/// Whether a word begins with these lower-case characters. If there are three, the last may differ, because stemming
/// may change the end of a short word.
fn starts_with(word: &str, start: &[char]) -> bool {
    let compared = if start.len() > 2 { start.len() - 1 } else { start.len() };
    let mut letters = word.chars();
    start[..compared].iter().all(|wanted| {
        letters
            .next()
            .is_some_and(|letter| letter == *wanted || letter.to_lowercase().next() == Some(*wanted))
    })
}

/// A line, cut to [`MAX_LINE`] around its first match, with the matches in the cut text.
fn shortened(line: &str, ranges: Vec<Range<usize>>, number: u32) -> SnippetLine {
    let line = line.trim_end();
    let indent = line.len() - line.trim_start().len();
    let first = ranges.first().map_or(indent, |range| range.start);
    let from = match line.len() - indent > MAX_LINE && first > indent + MAX_LINE / 2 {
        true => line.floor_char_boundary(first - MAX_LINE / 4),
        false => indent,
    };
    let to = line.floor_char_boundary((from + MAX_LINE).min(line.len()));
    let (before, after) = (if from > indent { "…" } else { "" }, if to < line.len() { "…" } else { "" });
    let text = format!("{before}{}{after}", &line[from..to]);
    let mut matches: Vec<_> = ranges
        .into_iter()
        .filter(|range| range.start >= from && range.end <= to)
        .map(|range| range.start - from + before.len()..range.end - from + before.len())
        .collect();
    matches.sort_by_key(|range| (range.start, std::cmp::Reverse(range.end)));
    let mut end = 0;
    matches.retain(|range| {
        let is_new = range.start >= end;
        end = end.max(range.end);
        is_new
    });
    SnippetLine { number, text, matches }
}
