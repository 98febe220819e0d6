//! Ranking: scores resources and their sections with BM25F, one query word at a time.
//!
//! All statistics (document frequencies) are computed from the resources that the caller may see, so the result is the
//! same as if hidden resources did not exist.

use std::cell::RefCell;
use std::sync::Arc;

use tantivy::fieldnorm::FieldNormReader;
use tantivy::postings::{BlockSegmentPostings, TermInfo};
use tantivy::schema::{Field, IndexRecordOption};
use tantivy::{DocSet as _, InvertedIndexReader, SegmentReader, TERMINATED, Term};

use crate::query::QueryWord;
use crate::schema::Fields;
use crate::segment::{ResourceSet, SegmentMap, Statistics, VisibleSet};
use crate::sums::WeightSums;
use crate::tokens::TextTokenKind;

/// The length of a usual section in words, for the length normalisation. It is a constant for the same reason as
/// [`Weights::usual_length`].
const USUAL_SECTION: f32 = 200.0;

/// The parameters of the ranking. One set applies to all contents; `docs/search.md` says how it was chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Weights {
    /// `k1` of BM25 for resources: the higher, the more repeated occurrences of a term increase the score.
    pub saturation: f32,
    /// `b` of BM25 for resources: the strength of the length normalisation, from 0 to 1.
    pub length: f32,
    /// The length of a usual resource in words, for the length normalisation. It is a constant, not measured: otherwise
    /// an author of many tiny resources could lower the average, and so the scores of all other resources.
    pub usual_length: f32,
    /// `k1` of BM25 for sections.
    pub section_saturation: f32,
    /// `b` of BM25 for sections.
    pub section_length: f32,
    /// The weight of a term in the title or the name, relative to the text.
    pub title: f32,
    /// The weight of a term in the path.
    pub path: f32,
    /// The weight of a term in the description or the note.
    pub description: f32,
    /// The weight of a term in a heading.
    pub heading: f32,
    /// The weight of a term in the name of a definition.
    pub definition: f32,
    /// The weight of a whole identifier, such as `readFile`, relative to each of its parts.
    pub whole: f32,
    /// The weight of a word of a question that says little about its subject, such as "use".
    pub vague: f32,
    /// The weight of the best section's score relative to that of the resource.
    pub section: f32,
    /// The weight of the scores of the three next best sections.
    pub further: f32,
    /// The weight of query words that are close to each other in a section.
    pub proximity: f32,
    /// The weight of two close words that are not neighbours in the query, relative to two that are.
    pub distant: f32,
    /// The weight of a word with a stop word beside it, as in the query `for statement`, relative to two close words.
    pub joined: f32,
    /// The exponent of the inverse document frequency.
    pub rarity: f32,
    /// The largest relative change of a score by the priority and the age of a resource: 0.05 is 5 %.
    pub bias: f32,
}

impl Default for Weights {
    fn default() -> Self {
        Self {
            saturation: 1.2,
            length: 0.2,
            usual_length: 1000.0,
            section_saturation: 1.4,
            section_length: 0.95,
            title: 2.0,
            path: 1.5,
            description: 1.0,
            heading: 2.0,
            definition: 2.0,
            whole: 0.5,
            vague: 0.2,
            section: 1.25,
            further: 0.2,
            proximity: 1.0,
            distant: 0.5,
            joined: 0.5,
            rarity: 0.75,
            bias: 0.05,
        }
    }
}

/// A segment, with the resources in it that a search may use.
pub(crate) struct ScopedSegment<'s> {
    pub(crate) reader: &'s SegmentReader,
    pub(crate) map: Arc<SegmentMap>,
    /// The resources that the caller may see; all statistics are computed from them.
    pub(crate) visible: Arc<VisibleSet>,
    /// The visible resources that pass the filters.
    pub(crate) scope: ResourceSet,
    /// The number of the segment's first resource, counted over all segments.
    pub(crate) resource_base: u32,
    /// The number of the segment's first document, counted over all segments.
    pub(crate) document_base: u32,
}

impl ScopedSegment<'_> {
    /// Whether a visible resource contains a term.
    pub(crate) fn has_visible(&self, index: &InvertedIndexReader, term: &TermInfo) -> tantivy::Result<bool> {
        let mut postings = index.read_postings_from_terminfo(term, IndexRecordOption::Basic)?;
        while postings.doc() != TERMINATED {
            if self.visible.resources.contains(self.map.resource_of[postings.doc() as usize]) {
                return Ok(true);
            }
            postings.advance();
        }
        Ok(false)
    }

    /// Calls `each` with the document, the resource and the frequency of each posting in a visible resource.
    #[inline]
    fn for_each_visible(&self, mut postings: BlockSegmentPostings, mut each: impl FnMut(u32, u32, f32)) {
        let visible = &self.visible.resources;
        // Decoding blocks is faster than advancing from posting to posting.
        while !postings.docs().is_empty() {
            for (at, document) in postings.docs().iter().enumerate() {
                let resource = self.map.resource_of[*document as usize];
                if visible.contains(resource) {
                    // 1 in a field without frequencies.
                    each(*document, resource, postings.freq(at) as f32);
                }
            }
            postings.advance();
        }
    }
}

/// The scores of a query.
pub(crate) struct Scores {
    /// The resources that match, with their scores; in the order of their numbers.
    pub(crate) resources: Vec<(u32, f32)>,
    /// The score of each section, by its document number, counted over all segments; zero if the section does not
    /// match.
    pub(crate) sections: Vec<f32>,
    /// The weighted inverse document frequency of each query word; 0 for stop words.
    pub(crate) rarities: Vec<f32>,
}

/// A field with the weight of its terms.
#[derive(Clone, Copy)]
struct WeightedField {
    field: Field,
    weight: f32,
    kind: FieldKind,
}

#[derive(Clone, Copy, PartialEq)]
enum FieldKind {
    /// In the head document; increases the score of the resource only, normalised by the length of the field.
    Head,
    /// In section documents; increases the scores of the section and of its resource. Only the latter is normalised, by
    /// the length of the resource.
    Section,
    /// In section documents; increases the score of the section only.
    Outline,
    /// The text of sections; increases the scores of the section and of its resource, each normalised by its length.
    Body,
}

/// Scores the words of a query one after the other.
pub(crate) struct Ranking<'s> {
    pub(crate) segments: &'s [ScopedSegment<'s>],
    pub(crate) fields: &'s Fields,
    pub(crate) weights: &'s Weights,
    pub(crate) statistics: Statistics,
    resources: usize,
    documents: usize,
    /// The length normalisation of the resources of each segment.
    resource_factors: Vec<Arc<[f32]>>,
    /// The length normalisation of a section, by its field norm id, tantivy's one-byte code for a length.
    section_factors: [f32; 256],
    /// A buffer for one word, reused.
    sums: RefCell<WordSums>,
}

/// The weighted frequencies of one word, by the numbers of resources and of documents.
struct WordSums {
    resources: WeightSums,
    sections: WeightSums,
}

/// A term in a field of a segment.
struct TermMatch<'s> {
    segment: &'s ScopedSegment<'s>,
    /// The length normalisation of the resources of the segment.
    factors: &'s [f32],
    field: WeightedField,
    index: Arc<InvertedIndexReader>,
    term: TermInfo,
}

impl<'s> Ranking<'s> {
    pub(crate) fn new(segments: &'s [ScopedSegment<'s>], fields: &'s Fields, weights: &'s Weights) -> Self {
        let last = segments.last();
        let resources = last.map_or(0, |last| last.resource_base as usize + last.map.heads.len());
        let documents = last.map_or(0, |last| last.document_base as usize + last.map.resource_of.len());
        let mut statistics = Statistics::default();
        segments.iter().for_each(|segment| statistics.add(&segment.visible.statistics));
        let Weights { length, usual_length, section_length, .. } = *weights;
        let resource_factors =
            segments.iter().map(|segment| segment.map.length_factors(length, usual_length)).collect();
        let section_factors = std::array::from_fn(|id| {
            let tokens = FieldNormReader::id_to_fieldnorm(id as u8);
            1.0 / (1.0 - section_length + section_length * tokens as f32 / USUAL_SECTION)
        });
        let sums = WordSums { resources: WeightSums::new(resources), sections: WeightSums::new(documents) };
        Self {
            segments,
            fields,
            weights,
            statistics,
            resources,
            documents,
            resource_factors,
            section_factors,
            sums: RefCell::new(sums),
        }
    }

    fn fields(&self) -> [WeightedField; 7] {
        let Weights { title, path, description, heading, definition, .. } = *self.weights;
        let field = |field, weight, kind| WeightedField { field, weight, kind };
        [
            field(self.fields.body, 1.0, FieldKind::Body),
            field(self.fields.heading, heading, FieldKind::Section),
            field(self.fields.outline, heading, FieldKind::Outline),
            field(self.fields.definition, definition, FieldKind::Section),
            field(self.fields.title, title, FieldKind::Head),
            field(self.fields.path, path, FieldKind::Head),
            field(self.fields.description, description, FieldKind::Head),
        ]
    }

    /// Whether any of these terms occurs in a visible resource.
    pub(crate) fn occurs(&self, forms: &[String]) -> tantivy::Result<bool> {
        for segment in self.segments {
            for WeightedField { field, .. } in self.fields() {
                let index = segment.reader.inverted_index(field)?;
                for form in forms {
                    let term = index.get_term_info(&Term::from_field_text(field, form))?;
                    if let Some(term) = term
                        && segment.has_visible(&index, &term)?
                    {
                        return Ok(true);
                    }
                }
            }
        }
        Ok(false)
    }

    /// The number of visible resources in which any of these terms occurs.
    pub(crate) fn frequency(&self, forms: &[String]) -> tantivy::Result<usize> {
        let mut sums = self.sums.borrow_mut();
        self.sum(forms, &mut sums)?;
        Ok(sums.resources.count())
    }

    /// The visible resources that contain any form of a word.
    pub(crate) fn resources_with(&self, word: &QueryWord) -> tantivy::Result<Vec<u32>> {
        let mut sums = self.sums.borrow_mut();
        self.sum(&word.forms, &mut sums)?;
        Ok(sums.resources.numbers())
    }

    /// The fields and segments with any of these terms.
    fn find(&self, forms: &[String]) -> tantivy::Result<Vec<TermMatch<'_>>> {
        let mut found = Vec::new();
        for (segment, factors) in self.segments.iter().zip(&self.resource_factors) {
            for field in self.fields() {
                let index = segment.reader.inverted_index(field.field)?;
                for form in forms {
                    if let Some(term) = index.get_term_info(&Term::from_field_text(field.field, form))? {
                        found.push(TermMatch { segment, factors, field, index: index.clone(), term });
                    }
                }
            }
        }
        Ok(found)
    }

    /// Sums the weights of these terms in all fields of the visible resources.
    fn sum(&self, forms: &[String], sums: &mut WordSums) -> tantivy::Result<()> {
        let found = self.find(forms)?;
        let postings = found.iter().map(|found| found.term.doc_freq as usize).sum();
        let WordSums { resources, sections } = sums;
        resources.start(postings, self.documents);
        sections.start(postings, self.documents);
        for TermMatch { segment, factors, field: WeightedField { field, weight, kind }, index, term } in found
        {
            let postings = index.read_block_postings_from_terminfo(&term, IndexRecordOption::WithFreqs)?;
            let norms = segment.reader.get_fieldnorms_reader(field)?;
            let (resource_base, document_base) = (segment.resource_base, segment.document_base);
            match kind {
                FieldKind::Head => segment.for_each_visible(postings, |document, resource, count| {
                    let factor = 1.0 / (0.5 + norms.fieldnorm(document) as f32 / 16.0);
                    resources.add(resource_base + resource, weight * count * factor);
                }),
                FieldKind::Section => segment.for_each_visible(postings, |document, resource, count| {
                    resources.add(resource_base + resource, weight * count * factors[resource as usize]);
                    sections.add(document_base + document, weight * count);
                }),
                FieldKind::Outline => segment.for_each_visible(postings, |document, _, count| {
                    sections.add(document_base + document, weight * count);
                }),
                FieldKind::Body => segment.for_each_visible(postings, |document, resource, count| {
                    let factor = self.section_factors[usize::from(norms.fieldnorm_id(document))];
                    resources.add(resource_base + resource, weight * count * factors[resource as usize]);
                    sections.add(document_base + document, weight * count * factor);
                }),
            }
        }
        Ok(())
    }

    /// Scores the resources and sections in scope that contain any of the words.
    pub(crate) fn score(&self, words: &[QueryWord]) -> tantivy::Result<Scores> {
        let weights = self.weights;
        let mut resources = vec![0.0_f32; self.resources];
        let mut sections = vec![0.0_f32; self.documents];
        let mut rarities = Vec::with_capacity(words.len());
        let mut sums = self.sums.borrow_mut();
        for word in words {
            // Stop words do not count; their long posting lists are not read.
            if word.is_stop {
                rarities.push(0.0);
                continue;
            }
            self.sum(&word.forms, &mut sums)?;
            let factor = match (word.kind, word.is_vague, word.is_replaced) {
                (TextTokenKind::Whole, _, _) => weights.whole,
                (TextTokenKind::Part, true, _) => weights.vague,
                (TextTokenKind::Part, false, true) => 0.5,
                (TextTokenKind::Part, false, false) => 1.0,
            };
            let rarity = self.rarity(sums.resources.count()).powf(weights.rarity) * factor;
            rarities.push(rarity);
            sums.resources.add_to(&mut resources, rarity, weights.saturation);
            sums.sections.add_to(&mut sections, rarity, weights.section_saturation);
        }
        let mut scored = Vec::new();
        for segment in self.segments {
            for resource in 0..segment.map.heads.len() as u32 {
                let number = (segment.resource_base + resource) as usize;
                if resources[number] == 0.0 || !segment.scope.contains(resource) {
                    continue;
                }
                let documents = segment.map.documents(resource).skip(1);
                let base = segment.document_base;
                let [best, further @ ..] =
                    best_of(documents.map(|document| sections[(base + document) as usize]));
                let score = resources[number]
                    + weights.section * best
                    + weights.further * further.into_iter().sum::<f32>();
                scored.push((number as u32, score));
            }
        }
        Ok(Scores { resources: scored, sections, rarities })
    }

    /// The inverse document frequency of BM25, for a word in `frequency` resources.
    fn rarity(&self, frequency: usize) -> f32 {
        let (all, frequency) = (self.statistics.resources as f32, frequency as f32);
        (1.0 + (all - frequency + 0.5) / (frequency + 0.5)).ln().max(0.0)
    }
}

/// The four highest scores, the highest first; 0 if there are fewer.
fn best_of(scores: impl Iterator<Item = f32>) -> [f32; 4] {
    let mut best = [0.0; 4];
    for mut score in scores {
        if score > best[3] {
            for known in &mut best {
                (*known, score) = (known.max(score), known.min(score));
            }
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::best_of;

    #[test]
    fn the_best_scores_are_in_order() {
        assert_eq!(best_of([1.0, 3.0, 0.5, 2.0, 4.0, 3.0].into_iter()), [4.0, 3.0, 3.0, 2.0]);
        assert_eq!(best_of([2.0].into_iter()), [2.0, 0.0, 0.0, 0.0]);
    }
}
