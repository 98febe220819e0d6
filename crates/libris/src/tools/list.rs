//! The tool `list_resources`.

use std::fmt::Write as _;
use std::time::Duration;

use libris_core::{DIRECTORY, Error, Page, Resource, Template, Uri};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use super::arguments::ToolArguments;
use super::output::{ResourceLink, ToolError, ToolOutput, request};
use super::untrusted::{enclose, one_line};
use super::{MAX_DESCRIPTION, MAX_TITLE, Tool, ToolCall, title};
use crate::cursor::{self, ListKind};
use crate::outline::{OutlineGroup, OutlineRequest, ViewListing, counted, outline};

/// How many entries one page has.
const PAGE: usize = 50;

/// The largest number of resources of a folder that are counted.
const MAX_COUNTED: usize = 100;

/// The time limit for counting the entries of all folders on a page. Folders that are not counted by then have no
/// count.
const COUNTING_TIME: Duration = Duration::from_secs(3);

/// How many templates a page names.
const MAX_TEMPLATES: usize = 20;

/// A page of the entries of a folder, or of the roots.
struct FolderEntries {
    parent: Option<String>,
    entries: Vec<FolderEntry>,
    templates: Vec<Template>,
    next: Option<String>,
    /// Whether sources were unavailable.
    is_incomplete: bool,
}

/// An entry of a folder.
struct FolderEntry {
    uri: String,
    title: String,
    description: Option<String>,
    mime: Option<String>,
    size: Option<u64>,
    is_folder: bool,
    /// The number of entries of a folder, or of resources below a prefix, and whether there may be more.
    count: Option<(usize, bool)>,
}

impl FolderEntry {
    fn of(resource: &Resource) -> Self {
        Self {
            uri: resource.uri.as_str().to_owned(),
            title: one_line(title(resource), MAX_TITLE),
            description: resource.description.as_deref().map(|text| one_line(text, MAX_DESCRIPTION)),
            mime: resource.mime.clone(),
            size: resource.size,
            is_folder: resource.mime.as_deref() == Some(DIRECTORY),
            count: None,
        }
    }

    fn of_group(group: &OutlineGroup) -> Self {
        if let Some(resource) = group.as_resource() {
            return Self::of(resource);
        }
        let count = Some((group.count, group.is_partial));
        match &group.folder {
            Some(folder) => Self { count, ..Self::of(folder) },
            None => Self {
                uri: group.prefix.clone(),
                title: group.prefix.clone(),
                description: None,
                mime: None,
                size: None,
                is_folder: true,
                count,
            },
        }
    }
}

impl ToolCall<'_> {
    pub(super) async fn list(&self, arguments: &str) -> Result<ToolOutput, ToolError> {
        let arguments = ToolArguments::parse(arguments, &["parent", "cursor"])?;
        let after = match arguments.text("cursor")? {
            None => None,
            Some(cursor) => {
                let last = cursor::decode(ListKind::Entries, cursor).and_then(|last| Uri::parse(&last).ok());
                Some(last.ok_or_else(|| ToolError::told("unknown `cursor`; list again without one"))?)
            }
        };
        let page = match arguments.text("parent")? {
            Some(parent) => self.folder(parent, after.as_ref()).await?,
            None => self.top(after.as_ref()).await?,
        };
        Ok(page.output())
    }

    /// The roots; if there is only one root and it is a folder, its entries.
    async fn top(&self, after: Option<&Uri>) -> Result<FolderEntries, ToolError> {
        let page = self.outlined(None, after).await?;
        match &page.entries[..] {
            [only] if only.is_folder && after.is_none() => self.folder(&only.uri.clone(), None).await,
            _ => Ok(page),
        }
    }

    async fn folder(&self, parent: &str, after: Option<&Uri>) -> Result<FolderEntries, ToolError> {
        let Ok(uri) = Uri::parse(parent) else { return Err(self.missing(parent).await) };
        match self.view.children(&uri, after, PAGE, self.context).await {
            Ok(page) => self.children(uri.as_str(), page).await,
            Err(Error::NotDirectory(_) | Error::NotFound(_) | Error::Missing { .. } | Error::Denied(_)) => {
                let prefix = match uri.as_str().ends_with(['/', ':']) {
                    true => uri.as_str().to_owned(),
                    false => format!("{uri}/"),
                };
                let page = self.outlined(Some(&prefix), after).await?;
                match page.entries.is_empty() && page.templates.is_empty() {
                    true => Err(self.missing(parent).await),
                    false => Ok(page),
                }
            }
            Err(error) => Err(error.into()),
        }
    }

    /// A page of the entries of a folder that is a directory of a source.
    async fn children(&self, parent: &str, page: Page) -> Result<FolderEntries, ToolError> {
        let last = page.resources.last().filter(|_| page.more).map(|last| last.uri.clone());
        let end = Instant::now() + COUNTING_TIME;
        let mut entries = Vec::with_capacity(page.resources.len());
        for resource in &page.resources {
            let mut entry = FolderEntry::of(resource);
            if entry.is_folder {
                let children = self.view.children(&resource.uri, None, MAX_COUNTED, self.context);
                if let Ok(Ok(children)) = timeout_at(end, children).await {
                    entry.count = Some((children.resources.len(), children.more));
                }
            }
            entries.push(entry);
        }
        Ok(FolderEntries {
            parent: Some(parent.to_owned()),
            entries,
            templates: self.templates_below(Some(parent)).await?,
            next: last.map(|last| cursor::encode(ListKind::Entries, last.as_str())),
            is_incomplete: !page.unavailable.is_empty(),
        })
    }

    /// A page of the roots, or of the folders below a prefix that is no directory of a source.
    async fn outlined(&self, below: Option<&str>, after: Option<&Uri>) -> Result<FolderEntries, ToolError> {
        let listing = ViewListing { view: self.view, context: self.context };
        let request = OutlineRequest { below, after, groups: PAGE, resources: MAX_COUNTED };
        let outline = outline(&listing, request).await?;
        Ok(FolderEntries {
            parent: below.map(str::to_owned),
            entries: outline.groups.iter().map(FolderEntry::of_group).collect(),
            templates: self.templates_below(below).await?,
            next: outline.next.map(|last| cursor::encode(ListKind::Entries, last.as_str())),
            is_incomplete: !outline.unavailable.is_empty(),
        })
    }

    /// The templates whose URIs begin with this text.
    async fn templates_below(&self, below: Option<&str>) -> Result<Vec<Template>, ToolError> {
        let mut templates = self.view.templates(self.context).await?.templates;
        if let Some(below) = below {
            templates.retain(|template| template.uri.as_str().starts_with(below));
        }
        templates.truncate(MAX_TEMPLATES);
        Ok(templates)
    }
}

impl FolderEntries {
    fn output(self) -> ToolOutput {
        let (mut text, mut entries, mut links) = (String::new(), Vec::new(), Vec::new());
        for entry in &self.entries {
            entry.write(&mut text);
            entries.push(entry.structured());
            if !entry.is_folder {
                links.push(ResourceLink {
                    uri: entry.uri.clone(),
                    name: entry.title.clone(),
                    mime: entry.mime.clone(),
                    size: entry.size,
                });
            }
        }
        if !self.templates.is_empty() {
            text.push_str("URIs to fill in:\n");
        }
        let mut templates = Vec::new();
        for template in &self.templates {
            let title = one_line(template.title.as_deref().unwrap_or(&template.name), MAX_TITLE);
            _ = write!(text, "- {} — {title}", template.uri);
            let mut structured = json!({ "uriTemplate": template.uri.as_str(), "title": title });
            if let Some(description) = &template.description {
                let description = one_line(description, MAX_DESCRIPTION);
                _ = write!(text, ": {description}");
                structured["description"] = description.into();
            }
            text.push('\n');
            templates.push(structured);
        }
        if self.entries.is_empty() && self.templates.is_empty() {
            text.push_str("nothing\n");
        }
        let origin =
            self.parent.as_deref().map_or_else(|| "the top".to_owned(), |parent| format!("folder {parent}"));
        let mut text = enclose(&origin, &text);
        let mut structured = json!({ "entries": entries, "templates": templates });
        if let Some(parent) = &self.parent {
            structured["parent"] = parent.as_str().into();
        }
        if let Some(next) = &self.next {
            let mut arguments = json!({ "cursor": next });
            if let Some(parent) = &self.parent {
                arguments["parent"] = parent.as_str().into();
            }
            _ = writeln!(text, "next: {}", request(Tool::List.name(), &arguments));
            structured["nextCursor"] = next.as_str().into();
        }
        if self.is_incomplete {
            text.push_str("Some sources are unavailable, so entries may be missing or outdated.\n");
        }
        ToolOutput { text, links, structured: Some(structured), ..ToolOutput::default() }
    }
}

impl FolderEntry {
    fn write(&self, text: &mut String) {
        _ = write!(text, "- {}", self.uri);
        if self.title != self.uri {
            _ = write!(text, " — {}", self.title);
        }
        let mut details = Vec::new();
        if let Some((count, is_partial)) = self.count {
            details.push(format!("{} entries", counted(count, is_partial)));
        }
        details.extend(self.mime.clone().filter(|_| !self.is_folder));
        details.extend(self.size.filter(|_| !self.is_folder).map(|size| format!("{size} bytes")));
        if !details.is_empty() {
            _ = write!(text, " ({})", details.join(", "));
        }
        if let Some(description) = &self.description {
            _ = write!(text, ": {description}");
        }
        text.push('\n');
    }

    fn structured(&self) -> Value {
        let mut entry = json!({ "uri": self.uri, "title": self.title, "folder": self.is_folder });
        if let Some(mime) = &self.mime {
            entry["mimeType"] = mime.as_str().into();
        }
        if let Some(size) = self.size.filter(|_| !self.is_folder) {
            entry["size"] = size.into();
        }
        if let Some(description) = &self.description {
            entry["description"] = description.as_str().into();
        }
        if let Some((count, is_partial)) = self.count {
            entry["count"] = count.into();
            entry["countIsMinimum"] = is_partial.into();
        }
        entry
    }
}
