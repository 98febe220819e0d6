//! Fetches the blocks of a page with all their descendants.

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, try_join_all};
use serde_json::Value;

use super::client::{NotionClient, NotionFault, RequestBudget};
use super::id;
use super::markdown::CHILDREN;

/// The maximum number of nested levels of blocks.
const MAX_BLOCK_DEPTH: usize = 32;

/// The child blocks of a block, with their descendants.
pub(super) fn fetch<'a>(
    client: &'a NotionClient,
    id: String,
    depth: usize,
    budget: &'a RequestBudget,
) -> BoxFuture<'a, Result<Vec<Value>, NotionFault>> {
    async move {
        let blocks = direct_children(client, &id, budget).await?;
        try_join_all(blocks.into_iter().map(|block| with_descendants(client, block, depth, budget))).await
    }
    .boxed()
}

/// A block with its descendants.
async fn with_descendants(
    client: &NotionClient,
    mut block: Value,
    depth: usize,
    budget: &RequestBudget,
) -> Result<Value, NotionFault> {
    let Some(id) = children_id(&block).filter(|_| depth < MAX_BLOCK_DEPTH) else { return Ok(block) };
    match fetch(client, id, depth + 1, budget).await {
        Ok(children) => block[CHILDREN] = children.into(),
        // The block was deleted meanwhile, or it is a synced copy of a block that is not shared with the
        // integration.
        Err(NotionFault::Missing | NotionFault::Forbidden) => {}
        Err(fault) => return Err(fault),
    }
    Ok(block)
}

/// The ID of the block whose children are rendered below `block`: that of `block` itself, or of the original if
/// `block` is a synced copy. `None` if there are no children on this page.
fn children_id(block: &Value) -> Option<String> {
    if matches!(block["type"].as_str()?, "child_page" | "child_database") {
        return None;
    }
    match block["has_children"].as_bool() {
        Some(true) => id::of(block, "id"),
        _ => id::of(&block["synced_block"]["synced_from"], "block_id"),
    }
}

/// The direct children of a block, from all pages of the response.
async fn direct_children(
    client: &NotionClient,
    id: &str,
    budget: &RequestBudget,
) -> Result<Vec<Value>, NotionFault> {
    let mut blocks = Vec::new();
    let mut path = format!("/v1/blocks/{id}/children?page_size=100");
    loop {
        let mut page = client.get(&path, budget).await?;
        if let Value::Array(results) = page["results"].take() {
            blocks.extend(results);
        }
        match next(&page) {
            Some(cursor) => path = format!("/v1/blocks/{id}/children?page_size=100&start_cursor={cursor}"),
            None => return Ok(blocks),
        }
    }
}

/// The cursor of the next page. It becomes part of a query, so a cursor with unexpected characters counts as absent.
pub(super) fn next(page: &Value) -> Option<&str> {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.~=+/".contains(letter);
    page["next_cursor"].as_str().filter(|cursor| page["has_more"] == true && cursor.chars().all(plain))
}
