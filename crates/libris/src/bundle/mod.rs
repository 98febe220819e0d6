//! Bundles: the passages that answer a question best, within a token budget.
//!
//! A search finds resources, and the passages of the best hits are ranked together. A bundle thus has the relevant
//! lines of many resources, in the space that a few whole resources would take.

mod format;
mod passages;
mod terms;
mod tokens;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use libris_core::{ContentBody, ContentMemory, Context, Error, Result, SearchHit, SearchQuery, Uri};

use self::passages::{BundleCandidate, chunks};
use self::terms::{QueryTerms, Shingles};
use crate::document_text::text_uri;
use crate::tools::untrusted::{clean, one_line};
use crate::view::{View, ViewSnapshot};

pub use self::format::BundleFormat;
pub use self::tokens::count_tokens;

/// The largest number of search hits that are read.
const MAX_READ: usize = 16;

/// The largest resource that is read, in bytes.
const MAX_RESOURCE: usize = 2 << 20;

/// An estimate of the tokens of a passage besides its text: its delimiters and its origin.
const PASSAGE_TOKENS: usize = 60;

/// The largest accepted similarity of two passages, from 0 to 1: the share of common word sequences.
const MAX_SIMILARITY: f64 = 0.6;

/// The longest title, in characters.
const MAX_TITLE: usize = 160;

/// The parameters of a bundle.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BundleRequest {
    /// The question, in words.
    pub query: String,
    /// The maximum number of tokens.
    pub budget: usize,
    /// Only resources whose URI begins with this text.
    pub uri_prefix: Option<String>,
    /// Only resources of these media types; `text/*` matches all texts. Empty for all.
    pub mimes: Vec<String>,
}

impl BundleRequest {
    /// The default budget, in tokens.
    pub const DEFAULT_BUDGET: usize = 8_000;

    /// The bounds of the budget, in tokens.
    pub const BUDGETS: std::ops::RangeInclusive<usize> = 200..=200_000;
}

/// The passages that answer a question best.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bundle {
    /// The question.
    pub query: String,
    /// The passages, those of the best resource first.
    pub passages: Vec<BundlePassage>,
    /// The number of tokens of all passages, including an estimate for their delimiters and origins.
    pub tokens: usize,
    /// How many resources the search found, including those without a passage in the bundle.
    pub found: usize,
    /// The names of sources that were left out because they failed or did not answer in time.
    pub left_out: Vec<String>,
}

/// A part of a resource.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BundlePassage {
    /// The URI of the resource.
    pub uri: String,
    /// The title of the resource.
    pub title: String,
    /// The media type of the text.
    pub mime: Option<String>,
    /// The first and the last line, counted from 1.
    pub lines: (usize, usize),
    /// How many lines the resource has.
    pub total_lines: usize,
    /// The lines, without hidden characters such as Unicode tags.
    pub text: String,
    /// Why the passage is part of the bundle.
    pub reason: String,
    /// The number of tokens of the text.
    pub tokens: usize,
}

impl View {
    /// Bundles the passages that answer a question best, of resources that the caller may read and search, under its
    /// current rights.
    pub async fn bundle(&self, request: &BundleRequest, context: &Context) -> Result<Bundle> {
        self.snapshot().bundle(request, context).await
    }
}

/// A resource that was found and read.
struct ReadHit {
    hit: SearchHit,
    text: String,
    mime: Option<String>,
    total_lines: usize,
}

impl ViewSnapshot<'_> {
    /// Bundles the passages that answer a question best, of resources that the caller may read and search.
    pub async fn bundle(&self, request: &BundleRequest, context: &Context) -> Result<Bundle> {
        let query = SearchQuery {
            uri_prefix: request.uri_prefix.clone(),
            mimes: request.mimes.clone(),
            ..SearchQuery::new(request.query.clone(), MAX_READ)
        };
        let answer = self.search(&query, context).await?;
        let mut read = Vec::new();
        for hit in answer.hits {
            if let Some(hit) = self.read_hit(hit, context).await {
                read.push(hit);
            }
        }
        let words = answer.correction.as_deref().unwrap_or(&request.query);
        let chosen = choose(&read, &QueryTerms::new(words), request.budget);
        let passages = join(&read, chosen);
        let tokens = passages.iter().map(|passage| passage.tokens + PASSAGE_TOKENS).sum();
        Ok(Bundle {
            query: request.query.clone(),
            passages,
            tokens,
            found: answer.total,
            left_out: answer.left_out,
        })
    }

    /// The text of a hit; `None` if the resource has no text, is too large, or cannot be read.
    async fn read_hit(&self, hit: SearchHit, context: &Context) -> Option<ReadHit> {
        let uri = Uri::parse(&hit.uri).ok()?;
        let context = context.clone().with_memory(Arc::new(ResourceLimit(AtomicUsize::new(0))));
        let document = text_uri(&uri, hit.mime.as_deref());
        let mut contents = Err(Error::NotFound(uri.clone()));
        if let Some(document) = &document {
            contents = self.read(document, &context).await;
        }
        if contents.is_err() {
            contents = self.read(&uri, &context).await;
        }
        let contents = contents.ok()?;
        let mime = contents.parts.first().and_then(|part| part.mime.clone());
        let texts = contents.parts.into_iter().filter_map(|part| match part.body {
            ContentBody::Text(text) => Some(text),
            ContentBody::Bytes(_) => None,
        });
        let text = texts.reduce(|all, text| all + "\n" + &text)?;
        let text = clean(&text).into_owned();
        let total_lines = text.lines().count();
        (total_lines > 0).then_some(ReadHit { hit, text, mime, total_lines })
    }
}

/// Limits the reads of one hit to [`MAX_RESOURCE`] bytes together: a source that reserves memory refuses a larger
/// resource before it loads the content.
struct ResourceLimit(AtomicUsize);

impl ContentMemory for ResourceLimit {
    fn reserve(&self, bytes: usize) -> bool {
        self.grow(bytes)
    }

    fn grow(&self, bytes: usize) -> bool {
        self.0.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) <= MAX_RESOURCE
    }
}

/// The chunks to include: those with the best scores that fit into the budget, without near-duplicates.
fn choose(read: &[ReadHit], terms: &QueryTerms, budget: usize) -> Vec<BundleCandidate> {
    let mut candidates = Vec::new();
    for (rank, ReadHit { hit, text, .. }) in read.iter().enumerate() {
        candidates.extend(chunks(rank, hit.section.as_ref(), text));
    }
    let weights = terms.weights(candidates.iter().map(|candidate| &*candidate.text));
    for candidate in &mut candidates {
        candidate.rate(terms, &weights);
    }
    candidates.retain(|candidate| candidate.score > 0.0 && !candidate.is_blank());
    // The sort is stable: equally good chunks stay in the order of the hits.
    candidates.sort_by(|one, other| other.score.total_cmp(&one.score));
    let (mut chosen, mut left): (Vec<BundleCandidate>, usize) = (Vec::new(), budget);
    let mut shingles: Vec<Shingles> = Vec::new();
    for candidate in candidates {
        let continues = chosen.iter().any(|other| candidate.adjoins(other));
        let cost = candidate.tokens + if continues { 0 } else { PASSAGE_TOKENS };
        if cost > left {
            continue;
        }
        let own = Shingles::of(&candidate.text);
        if shingles.iter().any(|other| own.similarity(other) > MAX_SIMILARITY) {
            continue;
        }
        left -= cost;
        shingles.push(own);
        chosen.push(candidate);
    }
    chosen
}

/// The passages of the chosen chunks: adjoining chunks of a resource are one passage.
fn join(read: &[ReadHit], mut chosen: Vec<BundleCandidate>) -> Vec<BundlePassage> {
    // Resources are in the order of their best chunks.
    let mut order: Vec<usize> = Vec::new();
    for candidate in &chosen {
        if !order.contains(&candidate.rank) {
            order.push(candidate.rank);
        }
    }
    let position = |rank: usize| order.iter().position(|other| *other == rank);
    chosen.sort_by_key(|candidate| (position(candidate.rank), candidate.first_line));
    let mut passages: Vec<(usize, BundlePassage)> = Vec::new();
    for candidate in chosen {
        if let Some((rank, last)) = passages.last_mut()
            && *rank == candidate.rank
            && last.lines.1 + 1 == candidate.first_line
        {
            last.lines.1 = candidate.last_line;
            last.text.push_str(&candidate.text);
            last.tokens += candidate.tokens;
            continue;
        }
        let ReadHit { hit, mime, total_lines, .. } = &read[candidate.rank];
        let title = one_line(hit.title.as_deref().unwrap_or(&hit.name), MAX_TITLE);
        passages.push((
            candidate.rank,
            BundlePassage {
                uri: hit.uri.clone(),
                title,
                mime: mime.clone(),
                lines: (candidate.first_line, candidate.last_line),
                total_lines: *total_lines,
                reason: candidate.reason(),
                tokens: candidate.tokens,
                text: candidate.text,
            },
        ));
    }
    passages.into_iter().map(|(_, passage)| passage).collect()
}
