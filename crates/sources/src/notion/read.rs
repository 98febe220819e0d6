//! Reads pages, schemas and rows.

use libris_core::{Content, Error, Result, Uri};
use serde_json::{Value, json};

use super::client::{NotionClient, NotionFault, RequestBudget};
use super::{NotionInner, block_tree, id, markdown, property, text};
use crate::meta;

/// A page of rows ends once it has at least this many rows. Each request to Notion adds up to 100.
const ROWS_PER_PAGE: usize = 500;

/// A parsed URI.
pub(super) enum NotionUri {
    Info,
    Page { id: String, json: bool },
    Schema { id: String },
    Rows { id: String, after: RowCursor },
}

/// A position in the rows of a database: the index of one of its tables, and Notion's cursor in that table.
#[derive(Default)]
pub(super) struct RowCursor {
    table: usize,
    cursor: Option<String>,
}

impl RowCursor {
    pub(super) fn parse(text: &str) -> Result<Self> {
        let wrong =
            || Error::invalid("`after` is not a valid cursor: read the URI in `next` of the previous page");
        let (table, cursor) = text.split_once('.').ok_or_else(wrong)?;
        let table = table.parse().map_err(|_| wrong())?;
        Ok(Self { table, cursor: Some(cursor).filter(|cursor| !cursor.is_empty()).map(str::to_owned) })
    }

    fn uri(&self, id: &str) -> String {
        let cursor = Uri::encode_segment(self.cursor.as_deref().unwrap_or_default().as_bytes());
        format!("{}?after={}.{cursor}", text::rows(id), self.table)
    }
}

impl NotionUri {
    /// The ID of the object; empty for `Info`.
    pub(super) fn id(&self) -> &str {
        match self {
            Self::Info => "",
            Self::Page { id, .. } | Self::Schema { id } | Self::Rows { id, .. } => id,
        }
    }

    /// The URI under which changes of this resource are reported: without `json` and without the cursor. `None` for
    /// `Info`, whose changes are not reported.
    pub(super) fn subject(&self) -> Option<Uri> {
        let text = match self {
            Self::Info => return None,
            Self::Page { id, .. } => text::page(id),
            Self::Schema { id } => format!("notion://databases/{id}/schema"),
            Self::Rows { id, .. } => text::rows(id),
        };
        Uri::parse(&text).ok()
    }

    /// All URIs of this resource, without a query: of each template, with and without the dashes in the ID. None for
    /// `Info`.
    pub(super) fn names(&self) -> Vec<Uri> {
        let written = |id: &str| match self {
            Self::Info => Vec::new(),
            Self::Page { .. } => vec![text::page(id), format!("notion://workspace/pages/{id}")],
            Self::Schema { .. } => vec![format!("notion://databases/{id}/schema")],
            Self::Rows { .. } => vec![text::rows(id)],
        };
        let (id, undashed) = (self.id(), self.id().replace('-', ""));
        let names = [id, &undashed].into_iter().flat_map(written);
        names.filter_map(|name| Uri::parse(&name).ok()).collect()
    }

    pub(super) async fn read(&self, inner: &NotionInner, uri: &Uri) -> Result<Content, NotionFault> {
        let budget = RequestBudget::new(inner.config.max_size);
        let client = &inner.client;
        let value = match self {
            Self::Info => info(&client.get("/v1/users/me", &budget).await?),
            Self::Schema { id } => schema(client, id, &budget).await?,
            Self::Rows { id, after } => rows(client, id, after, &budget).await?,
            Self::Page { id, json } => {
                let path = format!("/v1/pages/{id}");
                let (page, blocks) = futures_util::future::try_join(
                    client.get(&path, &budget),
                    block_tree::fetch(client, id.clone(), 0, &budget),
                )
                .await?;
                if page["in_trash"] == true || page["archived"] == true {
                    return Err(NotionFault::Missing);
                }
                if !json {
                    return Ok(Content::text(uri.clone(), "text/markdown", render_page(&page, &blocks)));
                }
                json!({ "page": page, "blocks": blocks })
            }
        };
        let meta = value["next"].as_str().map(|next| meta::with(meta::NEXT, next));
        Ok(Content { meta, ..Content::text(uri.clone(), "application/json", value.to_string()) })
    }
}

fn info(me: &Value) -> Value {
    json!({ "workspace": me["bot"]["workspace_name"], "connection": me["name"], "id": me["id"] })
}

/// Renders a page: its title, its other properties, its blocks.
fn render_page(page: &Value, blocks: &[Value]) -> String {
    let title = property::title(page).replace('\n', " ");
    let title = if title.is_empty() { "Untitled".to_owned() } else { text::escape(&title) };
    let parts = [format!("# {title}"), property::lines(page), markdown::blocks(blocks)];
    let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join("\n\n") + "\n"
}

/// A database, and the ids of its tables (data sources). Most databases have one.
async fn tables(
    client: &NotionClient,
    id: &str,
    budget: &RequestBudget,
) -> Result<(Value, Vec<String>), NotionFault> {
    let database = client.get(&format!("/v1/databases/{id}"), budget).await?;
    if database["in_trash"] == true || database["archived"] == true {
        return Err(NotionFault::Missing);
    }
    let tables = database["data_sources"].as_array().into_iter().flatten();
    let tables = tables.filter_map(|table| id::of(table, "id")).collect();
    Ok((database, tables))
}

async fn schema(client: &NotionClient, id: &str, budget: &RequestBudget) -> Result<Value, NotionFault> {
    let (database, ids) = tables(client, id, budget).await?;
    let mut tables = Vec::with_capacity(ids.len());
    for table in ids {
        let table = client.get(&format!("/v1/data_sources/{table}"), budget).await?;
        tables.push(json!({
            "id": table["id"],
            "title": text::plain(&table["title"]),
            "properties": table["properties"],
        }));
    }
    Ok(json!({
        "id": id,
        "title": text::plain(&database["title"]),
        "description": text::plain(&database["description"]),
        "rows": text::rows(id),
        "tables": tables,
    }))
}

/// A page of the rows of all tables, from a cursor on.
async fn rows(
    client: &NotionClient,
    id: &str,
    after: &RowCursor,
    budget: &RequestBudget,
) -> Result<Value, NotionFault> {
    let (_, tables) = tables(client, id, budget).await?;
    let mut rows = Vec::new();
    let mut position = RowCursor { table: after.table, cursor: after.cursor.clone() };
    while let Some(table) = tables.get(position.table) {
        if rows.len() >= ROWS_PER_PAGE {
            return Ok(json!({ "rows": rows, "next": position.uri(id) }));
        }
        let mut query = json!({ "page_size": 100 });
        if let Some(cursor) = &position.cursor {
            query["start_cursor"] = cursor.as_str().into();
        }
        let page = client.post(&format!("/v1/data_sources/{table}/query"), query, budget).await?;
        rows.extend(page["results"].as_array().into_iter().flatten().map(row));
        match block_tree::next(&page) {
            Some(cursor) => position.cursor = Some(cursor.to_owned()),
            None => position = RowCursor { table: position.table + 1, cursor: None },
        }
    }
    Ok(json!({ "rows": rows }))
}

fn row(page: &Value) -> Value {
    json!({
        "uri": page["id"].as_str().map(text::page),
        "lastModified": page["last_edited_time"],
        "properties": property::simple(page),
    })
}
