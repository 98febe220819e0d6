//! Runs a search: determines its scope, ranks the resources, combines near-duplicates into one hit, and makes snippets.

use libris_core::{HitSection, SearchAnswer, SearchHit, SearchQuery};
use tantivy::schema::Value as _;
use tantivy::{Searcher, TantivyDocument};

use crate::filter::Filter;
use crate::index::{IndexError, SearchIndex};
use crate::language::Language;
use crate::query::{ParsedQuery, QueryWord};
use crate::rank::{Ranking, ScopedSegment, Scores, Weights};
use crate::schema::StoredMetadata;
use crate::segment::{CallerClass, Columns};
use crate::simhash;
use crate::snippet::{Matcher, WordHit};
use crate::tokens;

/// How many of the best resources are reranked by the proximity of the query words in their sections.
const RERANKED: usize = 60;

/// How many of the best sections of a resource are compared when it is reranked.
const RERANKED_SECTIONS: usize = 3;

/// The largest number of hits of a search.
const MAX_HITS: usize = 1000;

/// How many of the best resources are searched for a phrase.
const MAX_PHRASE_CANDIDATES: usize = 500;

/// How many of the best sections of a resource are searched for a phrase.
const MAX_PHRASE_SECTIONS: usize = 20;

/// The age in days at which the bonus for recent resources is halved.
const RECENCY_DAYS: f32 = 90.0;

/// Which resources the caller may see.
pub enum VisibleResources<'v> {
    /// All resources.
    All,
    /// The resources whose URIs pass the test `sees`. The results of the test are cached by class.
    Class {
        /// The number of the rights class, which callers with equal rights share. Equal numbers must mean equal tests.
        class: u64,
        /// Whether the resource at this URI is visible.
        sees: &'v dyn Fn(&str) -> bool,
    },
}

/// One of the best resources of a search.
pub(crate) struct Candidate {
    /// The number of the resource among all segments.
    pub(crate) resource: u32,
    pub(crate) score: f32,
    /// The best matching section; `None` if only metadata matches.
    pub(crate) section: Option<RankedSection>,
    pub(crate) simhash: u64,
    pub(crate) uri: String,
}

pub(crate) struct RankedSection {
    pub(crate) text: String,
    pub(crate) place: HitSection,
    language: Language,
}

impl SearchIndex {
    /// Searches with the default weights.
    pub fn search(
        &self,
        query: &SearchQuery,
        visible: &VisibleResources<'_>,
    ) -> Result<SearchAnswer, IndexError> {
        self.search_with(query, visible, &Weights::default())
    }

    /// Searches with the given weights.
    pub fn search_with(
        &self,
        query: &SearchQuery,
        visible: &VisibleResources<'_>,
        weights: &Weights,
    ) -> Result<SearchAnswer, IndexError> {
        let searcher = self.searcher();
        let segments = self.scope(&searcher, query, visible)?;
        let ranking = Ranking::new(&segments, &self.fields, weights);
        let mut parsed = ParsedQuery::parse(&query.text, ranking.statistics.languages());
        let any_corrected = ranking.correct(&mut parsed.words)?;
        let mut scores = ranking.score(&parsed.words)?;
        let mut excluded = Vec::new();
        for word in &parsed.excluded {
            excluded.extend(ranking.resources_with(word)?);
        }
        excluded.sort_unstable();
        if !excluded.is_empty() {
            scores.resources.retain(|(resource, _)| excluded.binary_search(resource).is_err());
        }
        let search = Search { index: self, searcher: &searcher, ranking: &ranking, parsed: &parsed };
        if !parsed.phrases.is_empty() {
            let all = scores.resources.clone();
            for phrase in &parsed.phrases {
                search.retain_phrase(&mut scores, phrase)?;
            }
            // If none of the best resources contains all phrases, the words of the phrases are searched in any order.
            if scores.resources.is_empty() {
                scores.resources = all;
            }
        }
        let mut total = scores.resources.len();
        let mut candidates = search.candidates(&scores, query.limit)?;
        // A phrase is searched as it is written.
        if let Some(model) = self.model.as_ref().filter(|_| parsed.phrases.is_empty()) {
            let similar = search.similar(model, &excluded)?;
            // The scores are in the order of the numbers of the resources.
            let has_word =
                |number: u32| scores.resources.binary_search_by_key(&number, |(known, _)| *known).is_ok();
            total += similar.iter().filter(|found| !has_word(found.resource)).count();
            if !similar.is_empty() {
                candidates = search.fused(candidates, similar)?;
            }
        }
        let correction = match any_corrected {
            true => Some(correction(&query.text, &parsed.words, &search.spellings(&candidates)?)),
            false => None,
        };
        let hits = search.hits(candidates, query.limit)?;
        Ok(SearchAnswer { hits, total, correction, ..SearchAnswer::default() })
    }

    /// The segments, each with its visible resources and those of them that pass the filters of the query.
    fn scope<'s>(
        &self,
        searcher: &'s Searcher,
        query: &SearchQuery,
        visible: &VisibleResources<'_>,
    ) -> Result<Vec<ScopedSegment<'s>>, IndexError> {
        let mut scoped = Vec::new();
        let (mut resource_base, mut document_base) = (0, 0);
        for reader in searcher.segment_readers() {
            let map = self.map(reader)?;
            let class = match visible {
                VisibleResources::All => None,
                VisibleResources::Class { class, sees } => Some(CallerClass { number: *class, sees: *sees }),
            };
            let seen = map.visible(reader, &self.fields, class)?;
            let mut scope = seen.resources.clone();
            if query.is_filtered() {
                Filter { query, reader, map: &map, fields: &self.fields }.apply(&mut scope)?;
            }
            let (resources, documents) = (map.heads.len() as u32, map.resource_of.len() as u32);
            scoped.push(ScopedSegment { reader, map, visible: seen, scope, resource_base, document_base });
            resource_base += resources;
            document_base += documents;
        }
        Ok(scoped)
    }
}

/// The query in lower case, with each corrected or completed word replaced by its spelling in the results, or by its
/// stem if that is unknown. `spellings` has one for each word.
fn correction(text: &str, words: &[QueryWord], spellings: &[Option<String>]) -> String {
    let mut corrected = text.to_lowercase();
    for (word, spelling) in words.iter().zip(spellings).filter(|(word, _)| word.is_replaced) {
        if let Some(by) = spelling.as_ref().or(word.forms.first()) {
            corrected = replace_word(&corrected, &word.surface, by);
        }
    }
    corrected
}

/// Replaces a word where it is not a part of a longer word. If it occurs only as a part, as in an identifier such as
/// `readfile`, replaces it there.
fn replace_word(text: &str, word: &str, by: &str) -> String {
    let is_letter = |letter: Option<char>| letter.is_some_and(char::is_alphanumeric);
    let is_whole = |at: usize| {
        !is_letter(text[..at].chars().next_back()) && !is_letter(text[at + word.len()..].chars().next())
    };
    let mut replaced = String::new();
    let mut copied = 0;
    for (at, _) in text.match_indices(word).filter(|(at, _)| is_whole(*at)) {
        replaced.push_str(&text[copied..at]);
        replaced.push_str(by);
        copied = at + word.len();
    }
    match copied {
        0 => text.replace(word, by),
        copied => replaced + &text[copied..],
    }
}

/// The steps of a search after the resources are scored.
pub(crate) struct Search<'s> {
    index: &'s SearchIndex,
    searcher: &'s Searcher,
    pub(crate) ranking: &'s Ranking<'s>,
    pub(crate) parsed: &'s ParsedQuery,
}

impl Search<'_> {
    /// The index of the segment with a resource, and the ordinal of the resource in it.
    pub(crate) fn locate(&self, resource: u32) -> (usize, u32) {
        let segments = self.ranking.segments;
        let at = segments.partition_point(|segment| segment.resource_base <= resource) - 1;
        (at, resource - segments[at].resource_base)
    }

    /// A hash of the URI of a resource.
    pub(crate) fn order(&self, resource: u32) -> Option<u64> {
        let (segment, ordinal) = self.locate(resource);
        let map = &self.ranking.segments[segment].map;
        map.columns.order.first(map.heads[ordinal as usize])
    }

    fn stored(&self, segment: usize, document: u32) -> tantivy::Result<TantivyDocument> {
        self.searcher.doc(tantivy::DocAddress::new(segment as u32, document))
    }

    fn text(&self, stored: &TantivyDocument, field: tantivy::schema::Field) -> String {
        stored.get_first(field).and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
    }

    pub(crate) fn metadata(&self, resource: u32) -> tantivy::Result<Option<StoredMetadata>> {
        let (segment, ordinal) = self.locate(resource);
        let head = self.ranking.segments[segment].map.heads[ordinal as usize];
        let stored = self.stored(segment, head)?;
        Ok(StoredMetadata::decode(&self.text(&stored, self.index.fields.metadata)))
    }

    pub(crate) fn section(&self, segment: usize, document: u32) -> tantivy::Result<RankedSection> {
        let stored = self.stored(segment, document)?;
        let place = self.text(&stored, self.index.fields.place);
        let mut parts = place.splitn(4, ' ');
        let mut number = || parts.next().and_then(|part| part.parse().ok()).unwrap_or_default();
        let (first_line, last_line, mark): (u32, u32, u32) = (number(), number(), number());
        let heading = parts.next().unwrap_or_default().to_owned();
        let language = Language::ALL.get(mark as usize).copied().unwrap_or(Language::English);
        let text = self.text(&stored, self.index.fields.text);
        Ok(RankedSection { text, place: HitSection { heading, first_line, last_line }, language })
    }

    /// The index of a resource's segment, and the best matching sections of the resource: documents with their scores.
    fn best_sections(&self, scores: &Scores, resource: u32, count: usize) -> (usize, Vec<(u32, f32)>) {
        let (at, ordinal) = self.locate(resource);
        let segment = &self.ranking.segments[at];
        let documents = segment.map.documents(ordinal).skip(1);
        let mut sections: Vec<_> = documents
            .map(|document| (document, scores.sections[(segment.document_base + document) as usize]))
            .filter(|(_, score)| *score > 0.0)
            .collect();
        sections.sort_by(|one, other| other.1.total_cmp(&one.1).then(one.0.cmp(&other.0)));
        sections.truncate(count);
        (at, sections)
    }

    /// Of the resources with the best scores, keeps those whose metadata or sections contain the phrase; drops all
    /// others.
    fn retain_phrase(&self, scores: &mut Scores, phrase: &str) -> tantivy::Result<()> {
        let wanted = plain(phrase);
        let best = self.best(&std::mem::take(&mut scores.resources), MAX_PHRASE_CANDIDATES);
        for (resource, score) in best {
            let (segment, sections) = self.best_sections(scores, resource, MAX_PHRASE_SECTIONS);
            let mut contains = self.metadata(resource)?.is_some_and(|data| {
                has_phrase(&plain(&format!("{} {} {}", data.title, data.name, data.description)), &wanted)
            });
            for (document, _) in sections {
                if contains {
                    break;
                }
                let found = self.section(segment, document)?;
                contains = has_phrase(&plain(&found.text), &wanted);
            }
            if contains {
                scores.resources.push((resource, score));
            }
        }
        Ok(())
    }

    /// The best resources, best first. Equal scores are ordered by a hash of the URI, so that the order depends neither
    /// on how the index is divided into segments nor on resources that are not visible.
    fn best(&self, scored: &[(u32, f32)], count: usize) -> Vec<(u32, f32)> {
        let compare = |one: &(u32, f32), other: &(u32, f32)| {
            other.1.total_cmp(&one.1).then_with(|| self.order(one.0).cmp(&self.order(other.0)))
        };
        let mut best = scored.to_vec();
        if best.len() > count {
            best.select_nth_unstable_by(count, compare);
            best.truncate(count);
        }
        best.sort_by(compare);
        best
    }

    /// The best resources, reranked by the proximity of the query words in their sections, and by [`bias`].
    fn candidates(&self, scores: &Scores, limit: usize) -> tantivy::Result<Vec<Candidate>> {
        let best = self.best(&scores.resources, limit.clamp(RERANKED, MAX_HITS));
        let weights = self.ranking.weights;
        let mut matcher = Matcher::new(&self.parsed.words, &scores.rarities);
        let mut candidates = Vec::with_capacity(best.len());
        for (rank, (resource, score)) in best.into_iter().enumerate() {
            let is_reranked = rank < RERANKED;
            let count = if is_reranked { RERANKED_SECTIONS } else { 1 };
            let (at, sections) = self.best_sections(scores, resource, count);
            let mut chosen: Option<(f32, f32, RankedSection)> = None;
            for (document, section_score) in sections {
                let section = self.section(at, document)?;
                let closeness = if is_reranked {
                    let hits: Vec<WordHit> = matcher.hits(&section.text, section.language);
                    matcher.proximity(&hits, weights)
                } else {
                    0.0
                };
                let value = section_score + weights.proximity * closeness;
                if chosen.as_ref().is_none_or(|(best, _, _)| value > *best) {
                    chosen = Some((value, closeness, section));
                }
            }
            let closeness = chosen.as_ref().map_or(0.0, |(_, closeness, _)| *closeness);
            let (_, ordinal) = self.locate(resource);
            let segment = &self.ranking.segments[at];
            let head = segment.map.heads[ordinal as usize];
            let columns = &segment.map.columns;
            let bias = weights.bias * bias(columns, head);
            candidates.push(Candidate {
                resource,
                score: (score + weights.proximity * closeness) * (1.0 + bias),
                section: chosen.map(|(_, _, section)| section),
                simhash: columns.simhash.first(head).unwrap_or_default(),
                uri: self.metadata(resource)?.map(|data| data.uri).unwrap_or_default(),
            });
        }
        candidates
            .sort_by(|one, other| other.score.total_cmp(&one.score).then_with(|| one.uri.cmp(&other.uri)));
        Ok(candidates)
    }

    /// How each corrected or completed word is spelt in the best candidate that contains it; `None` for other words.
    /// The index has only the stems of words.
    fn spellings(&self, candidates: &[Candidate]) -> tantivy::Result<Vec<Option<String>>> {
        let words = &self.parsed.words;
        let mut matcher = Matcher::new(words, &[]);
        let mut spellings: Vec<Option<String>> = vec![None; words.len()];
        let is_open = |spellings: &[Option<String>]| {
            words.iter().zip(spellings).any(|(word, spelling)| word.is_replaced && spelling.is_none())
        };
        for candidate in candidates.iter().take(RERANKED) {
            if !is_open(&spellings) {
                break;
            }
            let mut texts: Vec<(String, Language)> = Vec::new();
            if let Some(section) = &candidate.section {
                texts.push((section.text.clone(), section.language));
                texts.push((section.place.heading.clone(), section.language));
            }
            if let Some(data) = self.metadata(candidate.resource)? {
                let language = candidate.section.as_ref().map_or(Language::English, |found| found.language);
                let StoredMetadata { uri, name, title, description, note, .. } = data;
                texts.extend([title, name, description, note].map(|text| (text, language)));
                texts.push((uri, Language::English));
            }
            for (text, language) in texts {
                for hit in matcher.hits(&text, language) {
                    if words[hit.word].is_replaced {
                        spellings[hit.word].get_or_insert_with(|| text[hit.range].to_lowercase());
                    }
                }
            }
        }
        Ok(spellings)
    }

    /// Converts candidates to hits. A near-duplicate of a better hit is not a hit: it is listed in the `duplicates` of
    /// that hit.
    fn hits(&self, candidates: Vec<Candidate>, limit: usize) -> tantivy::Result<Vec<SearchHit>> {
        let mut hits: Vec<(u64, Option<String>, SearchHit)> = Vec::new();
        let mut matcher = Matcher::new(&self.parsed.words, &[]);
        for candidate in candidates {
            let passage = candidate.section.as_ref().map(|section| &*section.text);
            let is_duplicate = |hash: u64, text: Option<&str>| {
                simhash::is_duplicate(hash, candidate.simhash)
                    && text.zip(passage).is_some_and(|(one, other)| simhash::is_same_passage(one, other))
            };
            if let Some((_, _, hit)) =
                hits.iter_mut().find(|(hash, text, _)| is_duplicate(*hash, text.as_deref()))
            {
                hit.duplicates.push(candidate.uri);
                continue;
            }
            if hits.len() >= limit {
                continue;
            }
            let Some(data) = self.metadata(candidate.resource)? else { continue };
            let some = |text: String| (!text.is_empty()).then_some(text);
            let snippet = candidate
                .section
                .as_ref()
                .map(|section| matcher.snippet(&section.text, section.language, section.place.first_line));
            let hit = SearchHit {
                uri: data.uri,
                name: data.name,
                title: some(data.title),
                description: some(data.description),
                mime: some(data.mime),
                source: data.source,
                note: some(data.note),
                score: candidate.score,
                text_uri: some(data.text_uri),
                section: candidate.section.as_ref().map(|section| section.place.clone()),
                snippet: snippet.unwrap_or_default(),
                duplicates: Vec::new(),
            };
            hits.push((candidate.simhash, candidate.section.map(|section| section.text), hit));
        }
        Ok(hits.into_iter().map(|(_, _, hit)| hit).collect())
    }
}

/// The mean of the priority of a resource, from -1 to 1, and of how recently it was modified, from 0 to 1. Either is 0 if it
/// is unknown.
pub(crate) fn bias(columns: &Columns, head: u32) -> f32 {
    let priority = columns.priority.first(head).map_or(0.0, |priority| priority as f32 / 500.0 - 1.0);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let recency = columns.modified.first(head).map_or(0.0, |modified| {
        let days = (now.as_secs() as f32 - modified as f32).max(0.0) / 86_400.0;
        RECENCY_DAYS / (RECENCY_DAYS + days)
    });
    (priority + recency) / 2.0
}

/// A text in lower case, with each run of white space as one space, to compare phrases.
fn plain(text: &str) -> String {
    let words: Vec<_> = text.split_whitespace().map(str::to_lowercase).collect();
    words.join(" ")
}

/// Whether a text contains a phrase, and not only as a part of longer words: `exit codes` does not contain `exit code`.
fn has_phrase(text: &str, phrase: &str) -> bool {
    // Words in scripts without spaces have no ends.
    let is_inside = |one: Option<char>, other: Option<char>| {
        let is_letter = |letter: Option<char>| {
            letter.is_some_and(|letter| letter.is_alphanumeric() && !tokens::is_unspaced(letter))
        };
        is_letter(one) && is_letter(other)
    };
    text.match_indices(phrase).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + phrase.len()..]);
        !is_inside(before.chars().next_back(), phrase.chars().next())
            && !is_inside(phrase.chars().next_back(), after.chars().next())
    })
}

#[cfg(test)]
mod tests {
    use super::{has_phrase, replace_word};

    #[test]
    fn a_phrase_ends_where_its_words_end() {
        for (text, phrase, expected) in [
            ("all exit codes, one exit code", "exit code", true),
            ("all exit codes", "exit code", false),
            ("preexit code", "exit code", false),
            ("(exit code)", "exit code", true),
            ("索引を検索する", "検索", true),
            ("std::io::error", "io::error", true),
        ] {
            assert_eq!(has_phrase(text, phrase), expected, "{phrase} in {text}");
        }
    }

    #[test]
    fn a_corrected_word_is_not_replaced_inside_other_words() {
        for (text, expected) in [
            ("rang orange", "range orange"),
            ("orange \"rang\", rang", "orange \"range\", range"),
            ("größe-rang rang_x", "größe-range range_x"),
            ("getrangofpage", "getrangeofpage"),
            ("other", "other"),
        ] {
            assert_eq!(replace_word(text, "rang", "range"), expected);
        }
    }
}
