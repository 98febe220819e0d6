//! Searches: the query and the answer of [`Source::search`](crate::Source::search).

use std::ops::Range;

use crate::Audience;

/// A search.
///
/// In the text, `"quoted words"` are a phrase: only resources with the phrase match, unless there are none; then its
/// words are searched without their order. `-word` excludes resources with this word. All other words are optional;
/// resources with more of them rank higher.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SearchQuery {
    /// The text that was typed.
    pub text: String,
    /// Only resources of these sources; empty for all.
    pub sources: Vec<String>,
    /// Only resources of these media types; `text/*` matches all text types. Empty for all.
    pub mimes: Vec<String>,
    /// Only resources for this audience, and resources without an audience.
    pub audience: Option<Audience>,
    /// Only resources that were modified at this time or later, in seconds since the epoch.
    pub modified_since: Option<i64>,
    /// Only resources whose URI begins with this text.
    pub uri_prefix: Option<String>,
    /// The maximum number of hits.
    pub limit: usize,
}

impl SearchQuery {
    /// A search for a text without filters.
    pub fn new(text: impl Into<String>, limit: usize) -> Self {
        Self { text: text.into(), limit, ..Self::default() }
    }

    /// Whether there is a filter besides the text.
    pub fn is_filtered(&self) -> bool {
        !self.sources.is_empty()
            || !self.mimes.is_empty()
            || self.audience.is_some()
            || self.modified_since.is_some()
            || self.uri_prefix.is_some()
    }
}

/// The hits of a search.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SearchAnswer {
    /// The hits, best first.
    pub hits: Vec<SearchHit>,
    /// How many visible resources match, near-duplicates included.
    pub total: usize,
    /// The query in lower case, with misspelt words corrected; `None` if there is nothing to correct. Only words of
    /// visible resources are suggested.
    pub correction: Option<String>,
    /// The names of sources that were left out because they failed or did not answer in time.
    pub left_out: Vec<String>,
    /// The progress while the index is being built. Resources that are not indexed yet are found by name only.
    pub indexing: Option<IndexingProgress>,
}

/// How far an index is built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexingProgress {
    /// The resources in the index.
    pub indexed: usize,
    /// The resources that were listed so far.
    pub listed: usize,
}

/// A resource that a search found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SearchHit {
    /// The URI.
    pub uri: String,
    /// The short name.
    pub name: String,
    /// The display name.
    pub title: Option<String>,
    /// The description.
    pub description: Option<String>,
    /// The media type.
    pub mime: Option<String>,
    /// The name of the source.
    pub source: String,
    /// The note that the configuration has for the path of the resource.
    pub note: Option<String>,
    /// The URI of the text that `section` and `snippet` are from, if it is not `uri`: the text of a document.
    pub text_uri: Option<String>,
    /// The score; comparable within one answer only.
    pub score: f32,
    /// The section that matches best; `None` if only the metadata matches.
    pub section: Option<HitSection>,
    /// The consecutive lines of `section` that contain the most different words of the query. Empty if only the
    /// metadata matches.
    pub snippet: Vec<SnippetLine>,
    /// The URIs of resources with nearly the same text, which are not hits of their own.
    pub duplicates: Vec<String>,
}

/// The section of a hit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HitSection {
    /// The heading with the headings above it: `Guide > Install`. Empty if there is none.
    pub heading: String,
    /// The first line of the section, counted from 1.
    pub first_line: u32,
    /// The last line of the section.
    pub last_line: u32,
}

/// A line of a snippet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnippetLine {
    /// The number of the line, counted from 1.
    pub number: u32,
    /// The text, shortened around the matches.
    pub text: String,
    /// The byte ranges of the matches in `text`.
    pub matches: Vec<Range<usize>>,
}
