//! Where the words of a query stand in a section: proximity, and the lines to show.

use std::collections::HashMap;
use std::ops::Range;

use libris_core::SnippetLine;

use crate::language::Language;
use crate::query::QueryWord;
use crate::tokens::{StemCache, TextTokenKind, for_each_part};

/// How many lines a snippet has.
const SNIPPET_LINES: usize = 3;

/// The longest line of a snippet in bytes.
const MAX_LINE: usize = 200;

/// The largest distance of two words that counts as near.
const MAX_DISTANCE: u32 = 8;

/// An occurrence of a query word in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WordHit {
    /// The number of the word in the query.
    pub(crate) word: usize,
    pub(crate) position: u32,
    pub(crate) range: Range<usize>,
}

/// Finds the words of a query in texts.
pub(crate) struct Matcher<'q> {
    words: &'q [QueryWord],
    rarities: &'q [f32],
    stems: HashMap<Language, StemCache>,
    /// The first characters of the forms of all words.
    starts: Vec<Vec<char>>,
}

/// How many characters of a form are compared before a word is stemmed.
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
        let stems = self.stems.entry(language).or_insert_with(|| StemCache::new(language));
        let mut hits = Vec::new();
        let mut lower = String::new();
        for_each_part(text, &mut |position, range| {
            let part = &text[range.clone()];
            // A stem is the beginning of its word, so most words need no stemming.
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

    /// How close the words stand: for each two that follow each other in the query, their rarity divided by their
    /// smallest distance.
    pub(crate) fn proximity(&self, hits: &[WordHit]) -> f32 {
        let counted: Vec<usize> = (0..self.words.len())
            .filter(|word| !self.words[*word].is_stop && self.words[*word].kind == TextTokenKind::Part)
            .collect();
        let mut sum = 0.0;
        for pair in counted.windows(2) {
            let (one, other) = (pair[0], pair[1]);
            let mut least: Option<f32> = None;
            let mut last: [Option<u32>; 2] = [None, None];
            for hit in hits {
                let (side, across) = match hit.word {
                    word if word == one => (0, 1),
                    word if word == other => (1, 0),
                    _ => continue,
                };
                last[side] = Some(hit.position);
                if let Some(before) = last[across] {
                    let distance = hit.position.saturating_sub(before);
                    if distance <= MAX_DISTANCE {
                        // In the order of the query, the distance is that of the text.
                        let distance = distance.max(1) as f32 + if side == 0 { 1.0 } else { 0.0 };
                        least = Some(least.map_or(distance, |least| least.min(distance)));
                    }
                }
            }
            let rarity = self.rarities[one].min(self.rarities[other]);
            sum += least.map_or(0.0, |least| rarity / least);
        }
        sum + self.longest_run(hits, &counted)
    }

    /// The rarity of the longest sequence of query words that stand in the text as in the query, weighted by its share
    /// of the query.
    fn longest_run(&self, hits: &[WordHit], counted: &[usize]) -> f32 {
        let ordinal = |word: usize| counted.iter().position(|counted| *counted == word);
        let (mut best, mut run): (f32, Vec<usize>) = (0.0, Vec::new());
        let mut last: Option<(usize, u32)> = None;
        for hit in hits {
            let Some(at) = ordinal(hit.word) else { continue };
            let continues = last.is_some_and(|(before, position)| {
                // Stop words of the query may stand in between.
                let gap =
                    self.words[hit.word].position.saturating_sub(self.words[counted[before]].position).max(1);
                at == before + 1 && hit.position > position && hit.position - position <= gap
            });
            if !continues {
                run.clear();
            }
            run.push(hit.word);
            last = Some((at, hit.position));
            if run.len() > 1 {
                let rarity: f32 = run.iter().map(|word| self.rarities[*word]).sum();
                best = best.max(rarity * run.len() as f32 / counted.len() as f32);
            }
        }
        best
    }

    /// The lines with the most different words.
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

/// Whether a word begins with these lower-case characters; the last may differ, because stemming changes the ends of
/// short words.
fn starts_with(word: &str, start: &[char]) -> bool {
    let compared = if start.len() > 2 { start.len() - 1 } else { start.len() };
    let mut letters = word.chars();
    start[..compared].iter().all(|wanted| {
        letters
            .next()
            .is_some_and(|letter| letter == *wanted || letter.to_lowercase().next() == Some(*wanted))
    })
}

/// A line cut to its allowed length around its first match.
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
