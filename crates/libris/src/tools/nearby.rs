//! Suggestions for a URI at which the caller sees nothing: similar names in its folder, or the roots of the server.

use std::fmt::Write as _;

use libris_core::{Resource, SearchQuery, Uri, suggest};

use super::untrusted::one_line;
use super::{MAX_TITLE, ToolCall, ToolError};
use crate::outline::{OutlineGroup, OutlineRequest, ViewListing, outline};

/// How many folders above a wrong URI are tried.
const MAX_LEVELS: usize = 8;

/// How many entries of a folder are compared, and how many are named.
const MAX_COMPARED: usize = 200;
const MAX_NAMED: usize = 10;

/// How many roots a text names.
const MAX_ROOTS: usize = 20;

/// How many resources of a root are counted.
const MAX_COUNTED: usize = 100;

impl ToolCall<'_> {
    /// The error for a URI at which the caller sees nothing, with the closest URIs.
    pub(super) async fn missing(&self, uri: &str) -> ToolError {
        let shown = one_line(uri, MAX_TITLE);
        let hint = match self.closest(uri).await {
            Ok(Some(hint)) => hint,
            Ok(None) => self.roots().await.unwrap_or_default(),
            Err(_) => String::new(),
        };
        ToolError::Missing(format!("There is no resource at `{shown}`.\n{hint}"))
    }

    /// A hint for a wrong URI: entries of the closest folder above it, or hits of a search for the words of its last
    /// segment.
    async fn closest(&self, wrong: &str) -> Result<Option<String>, ToolError> {
        let path = wrong.split(['?', '#']).next().unwrap_or_default().trim_end_matches('/');
        let mut rest = path;
        for _ in 0..MAX_LEVELS {
            let Some(slash) = rest.rfind('/').filter(|slash| !rest[..*slash].ends_with(':')) else { break };
            let (folder, name) = (&path[..=slash], &rest[slash + 1..]);
            rest = &rest[..slash];
            let entries = self.entries(folder).await?;
            if entries.is_empty() {
                continue;
            }
            let names: Vec<_> = entries.iter().map(|uri| last_segment(uri)).collect();
            let similar = suggest::closest(name, names.iter().copied());
            let is_similar = |uri: &&String| similar.contains(&last_segment(uri));
            let mut named: Vec<_> = entries.iter().filter(is_similar).collect();
            let mut hint = match named.is_empty() {
                true => format!("The folder `{folder}` has:\n"),
                false => "Did you mean:\n".to_owned(),
            };
            if named.is_empty() {
                named = entries.iter().take(MAX_NAMED).collect();
            }
            named.iter().take(MAX_NAMED).for_each(|uri| _ = writeln!(hint, "- {uri}"));
            return Ok(Some(hint));
        }
        let words = last_segment(path).replace(|letter: char| !letter.is_alphanumeric(), " ");
        // Unlike the search tools, this search does not start an index that is built on demand.
        let query = SearchQuery::new(words, 3);
        let mut hits = self.view.search(&query, self.context).await?.hits;
        if hits.is_empty() {
            hits = self.named_hits(&query).await?;
        }
        if hits.is_empty() {
            return Ok(None);
        }
        let mut hint = "Did you mean:\n".to_owned();
        hits.iter().for_each(|hit| _ = writeln!(hint, "- {}", hit.uri));
        Ok(Some(hint))
    }

    /// The URIs directly below a folder; none if there is no such folder.
    async fn entries(&self, folder: &str) -> Result<Vec<String>, ToolError> {
        let Ok(uri) = Uri::parse(folder) else { return Ok(Vec::new()) };
        if let Ok(page) = self.view.children(&uri, None, MAX_COMPARED, self.context).await {
            let uris = page.resources.into_iter().map(|Resource { uri, .. }| uri.as_str().to_owned());
            return Ok(uris.collect());
        }
        let listing = ViewListing { view: self.view, context: self.context };
        let request =
            OutlineRequest { below: Some(uri.as_str()), after: None, groups: MAX_COMPARED, resources: 1 };
        let outline = outline(&listing, request).await?;
        Ok(outline.groups.into_iter().map(|group| group.prefix).collect())
    }

    /// The roots of everything that the caller sees, as a sentence with a list.
    pub(super) async fn roots(&self) -> Result<String, ToolError> {
        let listing = ViewListing { view: self.view, context: self.context };
        let request = OutlineRequest { below: None, after: None, groups: MAX_ROOTS, resources: MAX_COUNTED };
        let outline = outline(&listing, request).await?;
        if outline.groups.is_empty() {
            return Ok("This server lists no resources.\n".to_owned());
        }
        let mut text = "This server has:\n".to_owned();
        for group in &outline.groups {
            let OutlineGroup { prefix, .. } = group;
            match group.as_resource() {
                Some(_) => _ = writeln!(text, "- {prefix}"),
                None => _ = writeln!(text, "- {prefix} ({} resources)", group.counted()),
            }
        }
        if outline.next.is_some() {
            text.push_str("- and more: call `list_resources`\n");
        }
        Ok(text)
    }
}

/// The last segment of a URI, without the slash at its end.
fn last_segment(uri: &str) -> &str {
    let path = uri.trim_end_matches('/');
    path.rsplit('/').next().unwrap_or(path)
}
