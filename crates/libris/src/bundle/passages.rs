//! Divides texts into chunks, and scores the chunks for a bundle.

use libris_core::HitSection;

use super::terms::{QueryTerms, TermWeights};
use super::tokens::count_tokens;

/// A chunk ends before a heading, after an empty line once the chunk has this many bytes, and before any line once the
/// chunk has twice as many.
const CHUNK_BYTES: usize = 700;

/// The factor for the score of a chunk in the section that the search ranked best.
const SECTION_FACTOR: f64 = 1.5;

/// The weight of the headings above a chunk, relative to that of its text.
const HEADING_FACTOR: f64 = 0.5;

/// A part of a resource that may become part of a bundle.
#[derive(Debug)]
pub(super) struct BundleCandidate {
    /// The rank of the resource among the hits, from 0.
    pub(super) rank: usize,
    pub(super) first_line: usize,
    pub(super) last_line: usize,
    pub(super) text: String,
    pub(super) tokens: usize,
    pub(super) score: f64,
    /// The headings above the text, joined with ` > `.
    heading: String,
    /// Whether the chunk begins in the section that the search ranked best.
    is_best_section: bool,
    /// The words of the query that the text contains.
    matched: Vec<String>,
}

/// Divides the text of a hit into chunks.
pub(super) fn chunks(rank: usize, section: Option<&HitSection>, text: &str) -> Vec<BundleCandidate> {
    let mut chunks: Vec<BundleCandidate> = Vec::new();
    let mut headings: Vec<(usize, &str)> = Vec::new();
    let mut is_new = true;
    for (index, line) in text.split_inclusive('\n').enumerate() {
        let number = index + 1;
        let level = heading_level(line);
        if let Some(level) = level {
            headings.retain(|(other, _)| *other < level);
            headings.push((level, line.trim_start_matches('#').trim()));
        }
        let is_full = chunks.last().is_some_and(|chunk| {
            let size = chunk.text.len();
            size >= 2 * CHUNK_BYTES || size >= CHUNK_BYTES && chunk.ends_with_empty_line()
        });
        if is_new || is_full || level.is_some() {
            let heading = headings.iter().map(|(_, heading)| *heading).collect::<Vec<_>>().join(" > ");
            let is_best_section = section.is_some_and(|section| {
                (section.first_line as usize..=section.last_line as usize).contains(&number)
            });
            chunks.push(BundleCandidate {
                rank,
                first_line: number,
                last_line: number,
                text: String::new(),
                tokens: 0,
                score: 0.0,
                heading,
                is_best_section,
                matched: Vec::new(),
            });
            is_new = false;
        }
        if let Some(chunk) = chunks.last_mut() {
            chunk.text.push_str(line);
            chunk.last_line = number;
        }
    }
    for chunk in &mut chunks {
        if !chunk.text.ends_with('\n') {
            chunk.text.push('\n');
        }
        chunk.tokens = count_tokens(&chunk.text);
    }
    chunks
}

/// The level of a Markdown heading, from 1 to 6; `None` for any other line.
fn heading_level(line: &str) -> Option<usize> {
    let level = line.bytes().take_while(|byte| *byte == b'#').count();
    ((1..=6).contains(&level) && line.as_bytes().get(level) == Some(&b' ')).then_some(level)
}

impl BundleCandidate {
    fn ends_with_empty_line(&self) -> bool {
        self.text.lines().next_back().is_some_and(|line| line.trim().is_empty())
    }

    /// Whether there is nothing to read in the chunk.
    pub(super) fn is_blank(&self) -> bool {
        self.text.trim().is_empty()
    }

    /// Scores the chunk by the words of the query in it, its heading, and the rank of its resource.
    pub(super) fn rate(&mut self, terms: &QueryTerms, weights: &TermWeights) {
        let (text, matched) = terms.score(&self.text, weights);
        let (heading, _) = terms.score(&self.heading, weights);
        let rank = 1.0 / (1.0 + self.rank as f64 * 0.15);
        let section = if self.is_best_section { SECTION_FACTOR } else { 1.0 };
        // A chunk of the best section without words of the query still gets a score, because it continues the passage
        // that the search found.
        let floor = if self.is_best_section { weights.least() * 0.5 } else { 0.0 };
        self.score = (text + heading * HEADING_FACTOR).max(floor) * rank * section;
        self.matched = matched;
    }

    /// Whether the other chunk is of the same resource, and its lines directly follow or precede the lines of this
    /// chunk.
    pub(super) fn adjoins(&self, other: &Self) -> bool {
        self.rank == other.rank
            && (self.first_line == other.last_line + 1 || other.first_line == self.last_line + 1)
    }

    /// Why the chunk is part of a bundle.
    pub(super) fn reason(&self) -> String {
        let mut reason = format!("result {} of the search", self.rank + 1);
        if self.is_best_section {
            reason.push_str(", its best section");
        }
        if !self.matched.is_empty() {
            reason.push_str(&format!(", with {}", self.matched.join(", ")));
        }
        reason
    }
}

#[cfg(test)]
mod tests {
    use super::{HitSection, chunks};

    #[test]
    fn empty_lines_are_no_chunks_of_their_own() {
        let text = format!("# A\n{}\n## B\n\nend\n", "word word word\n".repeat(60));
        let chunks = chunks(0, None, &text);
        assert_eq!(chunks.iter().map(|chunk| &*chunk.text).collect::<String>(), text);
        assert!(!chunks.iter().any(super::BundleCandidate::is_blank), "{chunks:?}");
    }

    #[test]
    fn chunks_cover_every_line_once_and_begin_at_headings() {
        let text = format!("# A\n\nintro\n\n## B\n{}\n# C\nend", "word word word\n".repeat(200));
        let section = HitSection { first_line: 5, last_line: 300, ..HitSection::default() };
        let chunks = chunks(0, Some(&section), &text);
        let joined: String = chunks.iter().map(|chunk| &*chunk.text).collect();
        assert_eq!(joined.trim_end(), text);
        let mut next = 1;
        for chunk in &chunks {
            assert_eq!(chunk.first_line, next);
            next = chunk.last_line + 1;
            assert!(chunk.text.len() < 1_500 && chunk.tokens > 0);
        }
        let b = chunks.iter().find(|chunk| chunk.text.starts_with("## B")).unwrap();
        assert_eq!((&*b.heading, b.is_best_section), ("A > B", true));
        assert!(chunks.last().unwrap().text.starts_with("# C"));
    }
}
