//! The tool `search_resources`.

use std::fmt::Write as _;

use jiff::Timestamp;
use libris_core::{Annotations, SearchAnswer, SearchHit, SearchQuery, Uri, suggest};
use serde_json::{Value, json};

use super::arguments::ToolArguments;
use super::output::{ResourceLink, ToolError, ToolOutput, request};
use super::untrusted::{enclose, one_line};
use super::{MAX_DESCRIPTION, MAX_TITLE, Tool, ToolCall, title};
use crate::outline::{OutlineListing as _, ViewListing};
use crate::rights::Operation;
use crate::status;

/// The largest number of results of one search, and the default.
pub(super) const MAX_HITS: usize = 50;
pub(super) const DEFAULT_HITS: usize = 8;

/// Once the text has this many bytes, no further results are added.
const MAX_TEXT: usize = 32 << 10;

/// The longest line of a snippet, in characters.
const MAX_SNIPPET_LINE: usize = 400;

/// How many duplicates of a result are named.
const MAX_DUPLICATES: usize = 3;

/// How many resources are compared by name if the text of none matches.
const MAX_NAMES: usize = 5_000;

/// How many resources are listed at a time to compare names.
const NAMES_PAGE: usize = 500;

/// How many words of a query are searched in the names.
const MAX_NAME_WORDS: usize = 64;

/// For how many words of a query similar words are suggested.
const MAX_WORDS: usize = 8;

impl ToolCall<'_> {
    pub(super) async fn search(&self, arguments: &str) -> Result<ToolOutput, ToolError> {
        let known = ["query", "limit", "scope", "mime", "audience", "modified_since"];
        let arguments = ToolArguments::parse(arguments, &known)?;
        let text = arguments.required("query", "rotate the keys")?;
        let limit = arguments.number("limit", 1..=MAX_HITS)?.unwrap_or(DEFAULT_HITS);
        let query = SearchQuery {
            uri_prefix: arguments.text("scope")?.map(str::to_owned),
            mimes: arguments.texts("mime")?,
            audience: arguments.audience("audience")?,
            modified_since: arguments.time("modified_since")?.map(Timestamp::as_second),
            ..SearchQuery::new(text, limit)
        };
        let answer = self.found(&query).await?;
        let remarks = self.remarks(&answer);
        if answer.hits.is_empty() {
            let hint = [self.nothing_found(&query).await?, remarks].concat();
            let structured = json!({ "results": [], "more": false, "total": 0, "hint": hint });
            return Ok(ToolOutput { text: hint, structured: Some(structured), ..ToolOutput::default() });
        }
        Ok(results(&query, answer, &remarks))
    }

    /// The hits of a search, or if there are none, the resources whose names contain words of the query.
    pub(super) async fn found(&self, query: &SearchQuery) -> Result<SearchAnswer, ToolError> {
        self.inner.start_search().await;
        let answer = self.view.search(query, self.context).await?;
        match answer.hits.is_empty() {
            true => Ok(SearchAnswer { hits: self.named_hits(query).await?, ..answer }),
            false => Ok(answer),
        }
    }

    /// Remarks on an incomplete answer: the index is being built, or sources were left out.
    fn remarks(&self, answer: &SearchAnswer) -> String {
        let mut remarks = String::new();
        if let Some(indexing) = answer.indexing {
            remarks.push_str("The search index is being built");
            if indexing.listed > 0 {
                _ = write!(remarks, " ({} of {} resources)", indexing.indexed, indexing.listed);
            }
            remarks.push_str("; search again later for more results.\n");
        }
        if !answer.left_out.is_empty() {
            let names = match self.view.allows(Operation::Read, &status::uri()) {
                true => answer.left_out.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "),
                false => "A source".to_owned(),
            };
            _ = writeln!(
                remarks,
                "{names} did not answer in time, so results may be missing; try again later."
            );
        }
        remarks
    }

    /// Resources whose names, titles or URIs contain words of the query, the most words first.
    pub(super) async fn named_hits(&self, query: &SearchQuery) -> Result<Vec<SearchHit>, ToolError> {
        let mut words = words(&query.text);
        words.truncate(MAX_NAME_WORDS);
        let prefix = query.uri_prefix.as_deref().unwrap_or_default();
        let listing = ViewListing { view: self.view, context: self.context };
        let mut hits: Vec<(usize, SearchHit)> = Vec::new();
        let mut after: Option<Uri> = None;
        let mut seen = 0;
        while seen < MAX_NAMES {
            let page = listing.page(after.as_ref(), NAMES_PAGE).await?;
            seen += page.resources.len();
            after = page.resources.last().map(|last| last.uri.clone());
            for resource in page.resources {
                let name = format!("{} {}", resource.uri, title(&resource)).to_lowercase();
                let count = words.iter().filter(|word| name.contains(&***word)).count();
                let mime = resource.mime.as_deref().unwrap_or_default();
                let is_mime = |wanted: &String| match wanted.strip_suffix('*') {
                    Some(start) => mime.starts_with(start),
                    None => mime == wanted,
                };
                let Annotations { audience, last_modified, .. } = &resource.annotations;
                let is_for = |wanted| audience.is_empty() || audience.contains(&wanted);
                let is_since = |since| last_modified.is_some_and(|modified| modified.as_second() >= since);
                let is_wanted = resource.uri.as_str().starts_with(prefix)
                    && (query.mimes.is_empty() || query.mimes.iter().any(is_mime))
                    && query.audience.is_none_or(is_for)
                    && query.modified_since.is_none_or(is_since);
                let is_found = count > 0 && is_wanted;
                if is_found && self.can_find(&resource.uri) {
                    hits.push((
                        count,
                        SearchHit {
                            uri: resource.uri.as_str().to_owned(),
                            name: resource.name,
                            title: resource.title,
                            description: resource.description,
                            mime: resource.mime,
                            score: count as f32,
                            ..SearchHit::default()
                        },
                    ));
                }
            }
            if !page.more || after.is_none() {
                break;
            }
        }
        // The sort is stable: equally good names stay in URI order.
        hits.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
        Ok(hits.into_iter().take(query.limit).map(|(_, hit)| hit).collect())
    }

    /// Whether searches of the caller may find a resource.
    fn can_find(&self, uri: &Uri) -> bool {
        self.view.allows(Operation::Search, uri) && self.view.allows(Operation::Read, uri)
    }

    /// The hint if nothing was found: hits without the filters, similar words, and the roots.
    async fn nothing_found(&self, query: &SearchQuery) -> Result<String, ToolError> {
        let mut text = format!("Nothing found for `{}`", one_line(&query.text, MAX_TITLE));
        if let Some(scope) = &query.uri_prefix {
            _ = write!(text, " below `{}`", one_line(scope, MAX_TITLE));
        }
        text.push_str(".\n");
        if query.is_filtered() {
            let anywhere = self.found(&SearchQuery::new(query.text.clone(), 3)).await?;
            if !anywhere.hits.is_empty() {
                text.push_str("Without `scope`, `mime`, `audience` and `modified_since` there are:\n");
                anywhere.hits.iter().for_each(|hit| _ = writeln!(text, "- {}", hit.uri));
                return Ok(text);
            }
        }
        let listing = ViewListing { view: self.view, context: self.context };
        let listed = listing.page(None, NAMES_PAGE).await?;
        // A resource that must not be found is not suggested either.
        let found = listed.resources.iter().filter(|resource| self.can_find(&resource.uri));
        let names: Vec<_> = found.flat_map(|resource| words(title(resource))).collect();
        let mut similar: Vec<&str> = Vec::new();
        for word in words(&query.text).iter().take(MAX_WORDS) {
            for name in suggest::closest(word, names.iter().map(|name| &**name)) {
                if !similar.contains(&name) {
                    similar.push(name);
                }
            }
        }
        if !similar.is_empty() {
            _ = writeln!(text, "Similar words in titles: {}.", similar.join(", "));
        }
        text.push_str("Try other words, or a single distinctive word. ");
        text.push_str(&self.roots().await?);
        Ok(text)
    }
}

/// The words of a text in lower case.
fn words(text: &str) -> Vec<String> {
    let words = text.split(|letter: char| !letter.is_alphanumeric()).filter(|word| word.chars().count() > 1);
    words.map(str::to_lowercase).collect()
}

fn results(query: &SearchQuery, answer: SearchAnswer, remarks: &str) -> ToolOutput {
    let total = answer.total.max(answer.hits.len());
    let (mut listed, mut structured, mut links) = (String::new(), Vec::new(), Vec::new());
    let mut next = None;
    for hit in &answer.hits {
        if listed.len() > MAX_TEXT {
            break;
        }
        let shown = ShownHit::new(hit);
        shown.write(structured.len() + 1, &mut listed);
        next.get_or_insert_with(|| shown.next());
        structured.push(shown.structured());
        links.push(ResourceLink {
            uri: shown.uri.to_owned(),
            name: shown.title.clone(),
            mime: hit.mime.clone(),
            size: None,
        });
    }
    let more = structured.len() < total;
    let mut text =
        format!("{} of {total} results for `{}`", structured.len(), one_line(&query.text, MAX_TITLE));
    let correction = answer.correction.as_deref().map(|correction| one_line(correction, MAX_TITLE));
    if let Some(correction) = &correction {
        _ = write!(text, ", searched as `{correction}`");
    }
    text.push_str(", best first:\n");
    text.push_str(&enclose("search results", &listed));
    if let Some(next) = next {
        _ = writeln!(text, "next: {}", request(Tool::Read.name(), &next));
    }
    text.push_str(remarks);
    let mut content = json!({ "results": structured, "more": more, "total": total });
    if let Some(correction) = correction {
        content["correction"] = correction.into();
    }
    if !remarks.is_empty() {
        content["hint"] = remarks.trim_end().into();
    }
    ToolOutput { text, links, structured: Some(content), ..ToolOutput::default() }
}

/// A hit whose texts are clean and bounded.
struct ShownHit<'a> {
    uri: &'a str,
    title: String,
    mime: Option<&'a str>,
    lines: Option<String>,
    heading: Option<String>,
    note: Option<String>,
    snippet: String,
    score: f64,
    duplicates: &'a [String],
}

impl<'a> ShownHit<'a> {
    fn new(hit: &'a SearchHit) -> Self {
        let section = hit.section.as_ref();
        let snippet: Vec<_> = hit
            .snippet
            .iter()
            .map(|line| format!("{}: {}", line.number, one_line(&line.text, MAX_SNIPPET_LINE)))
            .collect();
        let snippet = match (snippet.is_empty(), &hit.description) {
            (true, Some(description)) => one_line(description, MAX_DESCRIPTION),
            _ => snippet.join("\n"),
        };
        let heading = section.map(|section| one_line(&section.heading, MAX_TITLE));
        Self {
            uri: &hit.uri,
            title: one_line(hit.title.as_deref().unwrap_or(&hit.name), MAX_TITLE),
            mime: hit.mime.as_deref(),
            lines: section.map(|section| format!("{}-{}", section.first_line, section.last_line)),
            heading: heading.filter(|heading| !heading.is_empty()),
            note: hit.note.as_deref().map(|note| one_line(note, MAX_DESCRIPTION)),
            snippet,
            score: (f64::from(hit.score) * 1000.0).round() / 1000.0,
            duplicates: &hit.duplicates[..hit.duplicates.len().min(MAX_DUPLICATES)],
        }
    }

    fn write(&self, number: usize, text: &mut String) {
        _ = write!(text, "{number}. {}", self.uri);
        if let Some(lines) = &self.lines {
            _ = write!(text, " lines {lines}");
        }
        _ = write!(text, "\n   {}", self.title);
        if let Some(heading) = &self.heading {
            _ = write!(text, " — {heading}");
        }
        text.push('\n');
        if let Some(note) = &self.note {
            _ = writeln!(text, "   note: {note}");
        }
        self.snippet.lines().for_each(|line| _ = writeln!(text, "   {line}"));
        if let [first, rest @ ..] = self.duplicates {
            let more = if rest.is_empty() { "" } else { " and others" };
            _ = writeln!(text, "   nearly the same: {first}{more}");
        }
    }

    /// The arguments of the call that reads the passage.
    fn next(&self) -> Value {
        let mut next = json!({ "uri": self.uri });
        if let Some(lines) = &self.lines {
            next["lines"] = lines.as_str().into();
        }
        next
    }

    fn structured(&self) -> Value {
        let mut result =
            json!({ "uri": self.uri, "title": self.title, "snippet": self.snippet, "score": self.score });
        let optional = [
            ("mimeType", self.mime),
            ("lines", self.lines.as_deref()),
            ("heading", self.heading.as_deref()),
            ("note", self.note.as_deref()),
        ];
        for (name, value) in optional {
            if let Some(value) = value {
                result[name] = value.into();
            }
        }
        if !self.duplicates.is_empty() {
            result["duplicates"] = json!(self.duplicates);
        }
        result
    }
}
