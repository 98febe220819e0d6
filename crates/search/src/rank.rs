//! Ranking: scores resources and their sections with BM25F, one query word at a time.
//!
//! All statistics (document frequencies) are computed from the resources that the caller may see, so the result is the
//! same as if hidden resources did not exist.

use std::cell::RefCell;

use tantivy::fieldnorm::FieldNormReader;
use tantivy::postings::{Postings as _, TermInfo};
use tantivy::schema::{Field, IndexRecordOption};
use tantivy::{DocSet as _, InvertedIndexReader, SegmentReader, TERMINATED, Term};

use crate::language::{Language, Languages};
use crate::query::QueryWord;
use crate::schema::Fields;
use crate::segment::{ResourceSet, SegmentMap};
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
    /// The weight of query words that are close to each other in a section.
    pub proximity: f32,
    /// The weight of two close words that are not neighbours in the query, relative to two that are.
    pub distant: f32,
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
            proximity: 1.0,
            distant: 0.5,
            rarity: 0.75,
            bias: 0.05,
        }
    }
}

/// A segment, with the resources in it that a search may use.
pub(crate) struct ScopedSegment<'s> {
    pub(crate) reader: &'s SegmentReader,
    pub(crate) map: std::sync::Arc<SegmentMap>,
    /// The resources that the caller may see; all statistics are computed from them.
    pub(crate) visible: ResourceSet,
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
            if self.visible.contains(self.map.resource_of[postings.doc() as usize]) {
                return Ok(true);
            }
            postings.advance();
        }
        Ok(false)
    }
}

/// Statistics of the visible resources.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Statistics {
    pub(crate) resources: u64,
    /// The number of resources in each language, by its index in [`Language::ALL`].
    languages: [u64; Language::ALL.len()],
}

impl Statistics {
    pub(crate) fn of(segments: &[ScopedSegment<'_>]) -> Self {
        let mut statistics = Self::default();
        for segment in segments {
            for resource in 0..segment.map.heads.len() as u32 {
                if segment.visible.contains(resource) {
                    statistics.resources += 1;
                    let language = usize::from(segment.map.languages[resource as usize]);
                    if let Some(count) = statistics.languages.get_mut(language) {
                        *count += 1;
                    }
                }
            }
        }
        statistics
    }

    /// The languages of at least one resource in a hundred. The language of a text is not always detected correctly.
    pub(crate) fn languages(&self) -> Languages {
        let is_usual = |at: &usize| self.languages[*at] * 100 >= self.resources.max(1);
        Languages::from_indices((0..Language::ALL.len()).filter(is_usual))
    }
}

/// The resources and sections that a word matches.
#[derive(Default)]
struct WordMatches {
    /// The number of visible resources with the word.
    frequency: u32,
    /// The weighted frequency in each resource in scope.
    resources: Vec<(u32, f32)>,
    /// The weighted frequency in each section in scope.
    sections: Vec<(u32, f32)>,
}

/// The scores of a query.
pub(crate) struct Scores {
    /// The resources that match, with their scores; in no order.
    pub(crate) resources: Vec<(u32, f32)>,
    /// The score of each section, by its document number, counted over all segments; zero if the section does not
    /// match.
    pub(crate) sections: Vec<f32>,
    /// The weighted inverse document frequency of each query word; 0 for stop words.
    pub(crate) rarities: Vec<f32>,
}

/// A field with the weight of its terms.
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
    /// The length normalisation of each resource, by its number.
    resource_factors: Vec<f32>,
    /// The length normalisation of a section, by its field norm id, tantivy's one-byte code for a length.
    section_factors: [f32; 256],
    scratch: RefCell<Scratch>,
}

/// Reused buffers for the weights of one word in one segment. Between words, all weights are 0 and the lists are empty.
#[derive(Default)]
struct Scratch {
    resource_weights: Vec<f32>,
    section_weights: Vec<f32>,
    /// The resources and sections whose weight is not 0.
    resources: Vec<u32>,
    sections: Vec<u32>,
}

impl<'s> Ranking<'s> {
    pub(crate) fn new(segments: &'s [ScopedSegment<'s>], fields: &'s Fields, weights: &'s Weights) -> Self {
        let last = segments.last();
        let resources = last.map_or(0, |last| last.resource_base as usize + last.map.heads.len());
        let documents = last.map_or(0, |last| last.document_base as usize + last.map.resource_of.len());
        let statistics = Statistics::of(segments);
        let Weights { length, usual_length, section_length, .. } = *weights;
        let factor = |length: f32, relative: f32| 1.0 / (1.0 - length + length * relative);
        let lengths = segments.iter().flat_map(|segment| &segment.map.lengths);
        let resource_factors = lengths.map(|tokens| factor(length, *tokens as f32 / usual_length)).collect();
        let section_factors = std::array::from_fn(|id| {
            let tokens = FieldNormReader::id_to_fieldnorm(id as u8);
            factor(section_length, tokens as f32 / USUAL_SECTION)
        });
        let largest = |count: fn(&SegmentMap) -> usize| {
            segments.iter().map(|segment| count(&segment.map)).max().unwrap_or_default()
        };
        let scratch = RefCell::new(Scratch {
            resource_weights: vec![0.0; largest(|map| map.heads.len())],
            section_weights: vec![0.0; largest(|map| map.resource_of.len())],
            ..Scratch::default()
        });
        Self {
            segments,
            fields,
            weights,
            statistics,
            resources,
            documents,
            resource_factors,
            section_factors,
            scratch,
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
    pub(crate) fn frequency(&self, forms: &[String]) -> tantivy::Result<u32> {
        let word = QueryWord {
            surface: String::new(),
            forms: forms.to_vec(),
            kind: TextTokenKind::Part,
            is_stop: false,
            is_vague: false,
            position: 0,
            is_replaced: false,
        };
        Ok(self.matches(&word)?.frequency)
    }

    /// The resources in scope that contain any form of a word.
    pub(crate) fn resources_with(&self, word: &QueryWord) -> tantivy::Result<Vec<u32>> {
        Ok(self.matches(word)?.resources.into_iter().map(|(resource, _)| resource).collect())
    }

    /// Finds the forms of a word in all fields.
    fn matches(&self, word: &QueryWord) -> tantivy::Result<WordMatches> {
        let mut found = WordMatches::default();
        let mut scratch = self.scratch.borrow_mut();
        let Scratch { resource_weights, section_weights, resources, sections } = &mut *scratch;
        for segment in self.segments {
            let map = &*segment.map;
            let factors = &self.resource_factors[segment.resource_base as usize..];
            for WeightedField { field, weight, kind } in self.fields() {
                let index = segment.reader.inverted_index(field)?;
                let mut norms = None;
                for form in &word.forms {
                    let term = Term::from_field_text(field, form);
                    let Some(mut postings) = index.read_postings(&term, IndexRecordOption::WithFreqs)? else {
                        continue;
                    };
                    if norms.is_none() {
                        norms = Some(segment.reader.get_fieldnorms_reader(field)?);
                    }
                    let Some(norms) = &norms else { continue };
                    while postings.doc() != TERMINATED {
                        let document = postings.doc();
                        let resource = map.resource_of[document as usize];
                        if !segment.visible.contains(resource) {
                            postings.advance();
                            continue;
                        }
                        let count = weight * postings.term_freq() as f32;
                        if kind != FieldKind::Outline {
                            let factor = match kind {
                                FieldKind::Head => 1.0 / (0.5 + norms.fieldnorm(document) as f32 / 16.0),
                                _ => factors[resource as usize],
                            };
                            let whole = &mut resource_weights[resource as usize];
                            if *whole == 0.0 {
                                resources.push(resource);
                            }
                            *whole += count * factor;
                        }
                        if kind != FieldKind::Head {
                            let factor = match kind {
                                FieldKind::Body => {
                                    self.section_factors[usize::from(norms.fieldnorm_id(document))]
                                }
                                _ => 1.0,
                            };
                            let part = &mut section_weights[document as usize];
                            if *part == 0.0 {
                                sections.push(document);
                            }
                            *part += count * factor;
                        }
                        postings.advance();
                    }
                }
            }
            found.frequency += resources.len() as u32;
            found.resources.reserve(resources.len());
            for resource in resources.drain(..) {
                let weight = std::mem::take(&mut resource_weights[resource as usize]);
                if segment.scope.contains(resource) {
                    found.resources.push((segment.resource_base + resource, weight));
                }
            }
            found.sections.reserve(sections.len());
            for section in sections.drain(..) {
                let weight = std::mem::take(&mut section_weights[section as usize]);
                if segment.scope.contains(map.resource_of[section as usize]) {
                    found.sections.push((segment.document_base + section, weight));
                }
            }
        }
        Ok(found)
    }

    /// Scores the resources and sections in scope that contain any of the words.
    pub(crate) fn score(&self, words: &[QueryWord]) -> tantivy::Result<Scores> {
        let weights = self.weights;
        let mut resources = vec![0.0_f32; self.resources];
        let mut sections = vec![0.0_f32; self.documents];
        let mut rarities = Vec::with_capacity(words.len());
        for word in words {
            // Stop words do not count; their long posting lists are not read.
            if word.is_stop {
                rarities.push(0.0);
                continue;
            }
            let found = self.matches(word)?;
            let factor = match (word.kind, word.is_vague, word.is_replaced) {
                (TextTokenKind::Whole, _, _) => weights.whole,
                (TextTokenKind::Part, true, _) => weights.vague,
                (TextTokenKind::Part, false, true) => 0.5,
                (TextTokenKind::Part, false, false) => 1.0,
            };
            let rarity = self.rarity(found.frequency).powf(weights.rarity) * factor;
            rarities.push(rarity);
            for (resource, weight) in found.resources {
                resources[resource as usize] +=
                    rarity * weight * (weights.saturation + 1.0) / (weights.saturation + weight);
            }
            for (section, weight) in found.sections {
                sections[section as usize] += rarity * weight * (weights.section_saturation + 1.0)
                    / (weights.section_saturation + weight);
            }
        }
        let mut scored = Vec::new();
        for segment in self.segments {
            for resource in 0..segment.map.heads.len() as u32 {
                let number = (segment.resource_base + resource) as usize;
                if resources[number] == 0.0 {
                    continue;
                }
                let documents = segment.map.documents(resource);
                let best = documents
                    .skip(1)
                    .map(|document| sections[(segment.document_base + document) as usize])
                    .fold(0.0, f32::max);
                let score = resources[number] + weights.section * best;
                scored.push((number as u32, score));
            }
        }
        Ok(Scores { resources: scored, sections, rarities })
    }

    /// The inverse document frequency of BM25, for a word in `frequency` resources.
    fn rarity(&self, frequency: u32) -> f32 {
        let (all, frequency) = (self.statistics.resources as f32, frequency as f32);
        (1.0 + (all - frequency + 0.5) / (frequency + 0.5)).ln().max(0.0)
    }
}
