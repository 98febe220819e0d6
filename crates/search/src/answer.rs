//! What a search returns.

use std::ops::Range;

/// The hits of a search.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SearchAnswer {
    /// The hits, best first.
    pub hits: Vec<SearchHit>,
    /// How many visible resources match, near-duplicates included.
    pub total: usize,
    /// The query with misspelt words replaced by similar ones that visible resources contain, if there are any.
    pub correction: Option<String>,
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
    /// The configured note on the path.
    pub note: Option<String>,
    /// The score; comparable within one answer only.
    pub score: f32,
    /// The section that matches best; `None` if only the metadata matches.
    pub section: Option<HitSection>,
    /// The lines of the section with the most matches.
    pub snippet: Vec<SnippetLine>,
    /// The URIs of resources with nearly the same text, which are not hits of their own.
    pub duplicates: Vec<String>,
}

/// The section of a hit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HitSection {
    /// The heading, with those above it: `Guide > Install`. Empty if there is none.
    pub heading: String,
    /// The first line to read, counted from 1.
    pub first_line: u32,
    /// The last line.
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
