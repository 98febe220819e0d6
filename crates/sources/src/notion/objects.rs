//! Searches the pages and databases that are shared with the integration.

use std::collections::BTreeMap;

use jiff::Timestamp;
use libris_core::{Annotations, Icon, Resource, Uri};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use super::client::{NotionClient, NotionFault, RequestBudget};
use super::{block_tree, id, property, text};

/// The maximum number of listed objects.
const MAX_OBJECTS: usize = 10_000;

/// A page or a database.
#[derive(Clone, Debug)]
pub(super) struct NotionObject {
    pub(super) id: String,
    pub(super) kind: ObjectKind,
    pub(super) title: String,
    pub(super) edited: Option<Timestamp>,
    /// The database in which the page is a row.
    pub(super) database: Option<String>,
    icon: Option<Icon>,
    /// Whether the URL of the icon is signed; the signature differs in each response.
    signed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ObjectKind {
    Page,
    Database,
}

/// Objects by kind (`true` for pages) and ID.
pub(super) type ObjectMap = BTreeMap<(bool, String), NotionObject>;

impl NotionObject {
    /// Parses a search result; `None` if it is in the trash, or neither a page nor a table of a database.
    fn of(object: &Value) -> Option<Self> {
        if object["in_trash"] == true || object["archived"] == true {
            return None;
        }
        let parent = &object["parent"];
        let (kind, id, title, database) = match object["object"].as_str()? {
            "page" => (
                ObjectKind::Page,
                id::of(object, "id")?,
                property::title(object),
                id::of(parent, "database_id"),
            ),
            // The resource is the database; this object is one of its tables.
            "data_source" => {
                (ObjectKind::Database, id::of(parent, "database_id")?, text::plain(&object["title"]), None)
            }
            _ => return None,
        };
        let edited = object["last_edited_time"].as_str().and_then(|time| time.parse().ok());
        let signed = object["icon"]["type"] != "external";
        Some(Self { id, kind, title, edited, database, icon: icon(&object["icon"]), signed })
    }

    /// Whether title, edit time and database are the same as in `before`. If so, the object was not edited since.
    pub(super) fn has_same_content_as(&self, before: &Self) -> bool {
        let Self { title, edited, database, .. } = self;
        (title, edited, database) == (&before.title, &before.edited, &before.database)
    }

    /// Whether the object has the same icon as `before`.
    pub(super) fn has_same_icon_as(&self, before: &Self) -> bool {
        self.icon_identity() == before.icon_identity()
    }

    /// The URL of the icon, without its signature.
    fn icon_identity(&self) -> Option<&str> {
        let src = &self.icon.as_ref()?.src;
        if self.signed { src.split('?').next() } else { Some(src) }
    }

    /// The key in an [`ObjectMap`].
    pub(super) fn key(&self) -> (bool, String) {
        (self.kind == ObjectKind::Page, self.id.clone())
    }

    /// The title, or a substitute if the object has no title.
    fn name(&self) -> &str {
        if self.title.is_empty() { "Untitled" } else { &self.title }
    }

    /// The URIs at which the object is listed.
    pub(super) fn uris(&self) -> Vec<Uri> {
        let texts = match self.kind {
            ObjectKind::Page => vec![text::page(&self.id)],
            ObjectKind::Database => {
                vec![text::rows(&self.id), format!("notion://databases/{}/schema", self.id)]
            }
        };
        texts.iter().filter_map(|text| Uri::parse(text).ok()).collect()
    }

    pub(super) fn resources(&self) -> impl Iterator<Item = Resource> {
        self.uris().into_iter().map(|uri| {
            let (mime, what) = match (self.kind, uri.path().ends_with("/schema")) {
                (ObjectKind::Page, _) => ("text/markdown", ""),
                (ObjectKind::Database, true) => ("application/json", ": columns"),
                (ObjectKind::Database, false) => ("application/json", ": rows"),
            };
            let name = format!("{}{what}", self.name());
            Resource {
                title: Some(name.clone()),
                mime: Some(mime.into()),
                icons: self.icon.clone().into_iter().collect(),
                annotations: Annotations { last_modified: self.edited, ..Annotations::default() },
                ..Resource::new(uri, name)
            }
        })
    }
}

/// The icon of a page.
fn icon(icon: &Value) -> Option<Icon> {
    let kind = icon["type"].as_str()?;
    let src = match kind {
        "emoji" => {
            let svg = format!(
                "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 48 48'><text y='40' font-size='40'>{}</text></svg>",
                icon["emoji"].as_str().filter(|emoji| !emoji.contains(['<', '&']))?
            );
            let src = format!("data:image/svg+xml,{}", utf8_percent_encode(&svg, NON_ALPHANUMERIC));
            return Some(Icon {
                src,
                mime: Some("image/svg+xml".into()),
                sizes: vec!["any".into()],
                theme: None,
            });
        }
        _ => icon[kind]["url"].as_str().filter(|url| url.starts_with("https://"))?,
    };
    Some(Icon { src: src.to_owned(), mime: None, sizes: Vec::new(), theme: None })
}

/// Searches all objects, or those that were edited at or after a time.
pub(super) async fn search(
    client: &NotionClient,
    since: Option<Timestamp>,
    limit: u64,
) -> Result<ObjectMap, NotionFault> {
    let budget = RequestBudget::new(limit);
    let mut all = ObjectMap::new();
    let mut cursor: Option<String> = None;
    loop {
        let mut question = json!({ "page_size": 100, "sort": { "timestamp": "last_edited_time", "direction": "descending" } });
        if let Some(cursor) = cursor {
            question["start_cursor"] = cursor.into();
        }
        let page = client.post("/v1/search", question, &budget).await?;
        for object in page["results"].as_array().into_iter().flatten() {
            let Some(found) = NotionObject::of(object) else { continue };
            if since.is_some_and(|since| found.edited.is_some_and(|edited| edited < since)) {
                return Ok(all);
            }
            // Results are ordered by edit time, so of several tables of one database the last edited one wins.
            all.entry(found.key()).or_insert(found);
        }
        cursor = block_tree::next(&page).map(str::to_owned);
        if all.len() >= MAX_OBJECTS && cursor.is_some() {
            tracing::warn!("the workspace has more than {MAX_OBJECTS} pages; the others are not listed");
            return Ok(all);
        }
        if cursor.is_none() {
            return Ok(all);
        }
    }
}
