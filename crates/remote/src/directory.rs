//! Fetches the direct children of a directory with `resources/directory/read`.

use std::sync::{Arc, Mutex, PoisonError};

use libris_core::{DIRECTORY, Resource, Uri};
use rmcp::model::ListResourcesResult;
use serde_json::json;

use crate::config::RemoteLimits;
use crate::convert;
use crate::fault::{RemoteFault, quoted};
use crate::inventory::Snapshot;
use crate::link::UpstreamSession;
use crate::listing::{PageWalk, ResourceList};
use crate::mount::UriMount;

pub(crate) const METHOD: &str = "resources/directory/read";

/// Caches the children of the directory that was read last, so that a client that pages through them causes one fetch.
#[derive(Default)]
pub(crate) struct LastDirectory(Mutex<Option<ReadDirectory>>);

struct ReadDirectory {
    /// The upstream URI of the directory.
    uri: Box<str>,
    children: Arc<Snapshot<ResourceList>>,
}

impl LastDirectory {
    /// The children of a directory, if they are cached and current.
    pub(crate) fn current(&self, directory: &str) -> Option<Arc<Snapshot<ResourceList>>> {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let ReadDirectory { uri, children } = last.as_ref()?;
        (**uri == *directory && children.is_current()).then(|| children.clone())
    }

    pub(crate) fn set(&self, directory: &str, children: Arc<Snapshot<ResourceList>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(ReadDirectory { uri: directory.into(), children });
    }
}

/// Fetches all children of a directory; `None` if the server declared the method but does not know it.
pub(crate) async fn fetch(
    session: &UpstreamSession,
    directory: &str,
    mount: &UriMount,
    limits: &RemoteLimits,
) -> Result<Option<ResourceList>, RemoteFault> {
    let mut walk = PageWalk::new(session, limits, true);
    let mut children = ResourceList::default();
    while let Some(cursor) = walk.next_cursor() {
        let mut params = json!({ "uri": directory });
        if let Some(cursor) = cursor.and_then(|params| params.cursor) {
            params["cursor"] = cursor.into();
        }
        let Some(page) = walk.ask(session.custom(METHOD, Some(params))).await? else { return Ok(None) };
        let page: ListResourcesResult = serde_json::from_value(page).map_err(|cause| {
            RemoteFault::WrongResult { method: METHOD, cause: quoted(&cause.to_string()) }
        })?;
        walk.add(page.resources.len(), page.next_cursor, page.ttl_ms, page.cache_scope)?;
        for resource in page.resources {
            walk.add_bytes(convert::resource_weight(&resource))?;
            let original = resource.uri.clone();
            match convert::resource(resource, mount).and_then(|child| like_parent(child, directory)) {
                Ok(resource) => children.add(resource, original, mount),
                Err(cause) => {
                    tracing::warn!(%cause, "a child in a directory of an MCP server is malformed and left out");
                }
            }
        }
    }
    children.sort(walk.hints());
    Ok(Some(children))
}

/// Adds a slash to the URI of a child that is a directory, if its parent has one: `resources/directory/read` omits the
/// slashes that URIs in `resources/list` may have.
fn like_parent(mut child: Resource, directory: &str) -> Result<Resource, libris_core::Error> {
    let is_directory = child.mime.as_deref() == Some(DIRECTORY);
    if is_directory && directory.ends_with('/') && !child.uri.as_str().ends_with('/') {
        child.uri = Uri::parse(&format!("{}/", child.uri))?;
    }
    Ok(child)
}
