//! Finds sections by their vectors, and merges this ranking with that of the words.
//!
//! The index has only the signs of the first dimensions of each vector. The sections with the most signs in common with the
//! query are candidates; their vectors are computed again from their texts.

use std::collections::{BinaryHeap, HashMap};

use crate::embedding::{self, EmbeddingModel, SIGN_WORDS};
use crate::search::{Candidate, RankedSection, Search, bias};

/// How many sections are compared by their whole vectors.
const MAX_COMPARED: usize = 128;

/// The largest number of resources that are found by their vectors.
const MAX_FOUND: usize = 50;

/// The least cosine of the angle between the vectors of a query and of a section that it finds.
const MIN_SIMILARITY: f32 = 0.3;

/// Is added to the ranks in reciprocal rank fusion: the higher, the less the first ranks count.
const RANK_OFFSET: f32 = 60.0;

/// How many documents are read from a column at a time.
const BLOCK: usize = 1024;

/// A resource whose best section is similar to the query.
pub(crate) struct SimilarResource {
    pub(crate) resource: u32,
    similarity: f32,
    section: RankedSection,
}

/// A section by the number of signs in which it differs from the query. Sections with equal numbers are ordered by the URI
/// and their place, so that hidden resources and the division into segments do not matter.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct SignMatch {
    differing: u32,
    order: Option<u64>,
    section: u32,
    segment: usize,
    document: u32,
}

impl Search<'_> {
    /// The resources in scope with the sections that are most similar to the query, the most similar first. `excluded` is
    /// sorted.
    pub(crate) fn similar(
        &self,
        model: &EmbeddingModel,
        excluded: &[u32],
    ) -> tantivy::Result<Vec<SimilarResource>> {
        let Some(query) = model.vector(&self.parsed.wanted) else { return Ok(Vec::new()) };
        let mut found: HashMap<u32, SimilarResource> = HashMap::new();
        for SignMatch { segment, document, .. } in self.sign_matches(embedding::signs(&query), excluded)? {
            let section = self.section(segment, document)?;
            let text = embedding::section_text(&section.place.heading, &section.text);
            let Some(vector) = model.vector(&text) else { continue };
            let similarity: f32 = query.iter().zip(&vector).map(|(one, other)| one * other).sum();
            let scoped = &self.ranking.segments[segment];
            let resource = scoped.resource_base + scoped.map.resource_of[document as usize];
            let is_best = found.get(&resource).is_none_or(|known| similarity > known.similarity);
            if similarity >= MIN_SIMILARITY && is_best {
                found.insert(resource, SimilarResource { resource, similarity, section });
            }
        }
        let mut ranked: Vec<_> =
            found.into_values().map(|found| (self.order(found.resource), found)).collect();
        ranked.sort_by(|(one_order, one), (other_order, other)| {
            other.similarity.total_cmp(&one.similarity).then(one_order.cmp(other_order))
        });
        Ok(ranked.into_iter().map(|(_, found)| found).take(MAX_FOUND).collect())
    }

    /// The sections in scope whose signs differ least from those of the query, in no order.
    fn sign_matches(
        &self,
        query: [u64; SIGN_WORDS],
        excluded: &[u32],
    ) -> tantivy::Result<BinaryHeap<SignMatch>> {
        let mut best: BinaryHeap<SignMatch> = BinaryHeap::new();
        for (at, segment) in self.ranking.segments.iter().enumerate() {
            let map = &*segment.map;
            let columns = &map.columns.signs;
            let documents: Vec<u32> = (0..map.resource_of.len() as u32).collect();
            for documents in documents.chunks(BLOCK) {
                let mut signs = [[None; BLOCK]; SIGN_WORDS];
                for (column, signs) in columns.iter().zip(&mut signs) {
                    column.first_vals(documents, &mut signs[..documents.len()]);
                }
                for (row, document) in documents.iter().enumerate() {
                    let resource = map.resource_of[*document as usize];
                    let head = map.heads[resource as usize];
                    if *document == head || !segment.scope.contains(resource) || signs[0][row].is_none() {
                        continue;
                    }
                    let differing = query
                        .iter()
                        .zip(&signs)
                        .map(|(wanted, signs)| (wanted ^ signs[row].unwrap_or_default()).count_ones());
                    let differing: u32 = differing.sum();
                    let is_full = best.len() >= MAX_COMPARED;
                    if is_full && best.peek().is_some_and(|worst| differing > worst.differing)
                        || excluded.binary_search(&(segment.resource_base + resource)).is_ok()
                    {
                        continue;
                    }
                    let order = map.columns.order.first(head);
                    let section = document - head;
                    best.push(SignMatch { differing, order, section, segment: at, document: *document });
                    if is_full {
                        best.pop();
                    }
                }
            }
        }
        Ok(best)
    }

    /// Merges the ranking by words with that by similarity: reciprocal rank fusion.
    pub(crate) fn fused(
        &self,
        mut candidates: Vec<Candidate>,
        similar: Vec<SimilarResource>,
    ) -> tantivy::Result<Vec<Candidate>> {
        let worth = |rank: usize| 1.0 / (RANK_OFFSET + 1.0 + rank as f32);
        for (rank, candidate) in candidates.iter_mut().enumerate() {
            candidate.score = worth(rank);
        }
        let mut at: HashMap<u32, usize> =
            candidates.iter().enumerate().map(|(at, candidate)| (candidate.resource, at)).collect();
        for (rank, found) in similar.into_iter().enumerate() {
            match at.get(&found.resource) {
                Some(at) => candidates[*at].score += worth(rank),
                None => {
                    let (segment, ordinal) = self.locate(found.resource);
                    let map = &self.ranking.segments[segment].map;
                    let head = map.heads[ordinal as usize];
                    at.insert(found.resource, candidates.len());
                    candidates.push(Candidate {
                        resource: found.resource,
                        score: worth(rank) * (1.0 + self.ranking.weights.bias * bias(&map.columns, head)),
                        section: Some(found.section),
                        simhash: map.columns.simhash.first(head).unwrap_or_default(),
                        uri: self.metadata(found.resource)?.map(|data| data.uri).unwrap_or_default(),
                    });
                }
            }
        }
        candidates
            .sort_by(|one, other| other.score.total_cmp(&one.score).then_with(|| one.uri.cmp(&other.uri)));
        Ok(candidates)
    }
}
