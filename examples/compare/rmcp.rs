//! Notes as resources, with rmcp alone.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rmcp::model::{
    Annotations, CompleteRequestParams, CompleteResult, CompletionInfo, Implementation,
    ListResourceTemplatesResult, ListResourcesResult, PaginatedRequestParams, ReadResourceRequestParams,
    ReadResourceResponse, ReadResourceResult, Reference, Resource, ResourceContents, ResourceTemplate,
    ResourceUpdatedNotificationParam, Role, ServerCapabilities, ServerConfig, SubscribeRequestParams,
    SubscriptionFilter, UnsubscribeRequestParams,
};
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::transport::stdio;
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt};
use serde_json::json;
use tokio::sync::broadcast;

// The server.

const ALL: &str = "docs://documents";
const TEMPLATE: &str = "docs://documents/{doc_id}{?version}";
const ABOUT: &str = "One document, the newest version unless another one is named.";
const PAGE: usize = 100;

struct Docs {
    store: Arc<Store>,
    changes: broadcast::Sender<Change>,
    subscribed: Arc<Mutex<HashSet<String>>>,
}

#[derive(Clone)]
enum Change {
    Updated(String),
    Added,
}

impl Docs {
    fn subscribed(&self) -> MutexGuard<'_, HashSet<String>> {
        self.subscribed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn annotations() -> Annotations {
    Annotations::default().with_audience(vec![Role::User, Role::Assistant]).with_priority(0.8)
}

fn document(id: &str) -> Resource {
    Resource::new(format!("{ALL}/{id}"), id)
        .with_title(title(id))
        .with_description(ABOUT)
        .with_mime_type("text/markdown")
        .with_annotations(annotations())
}

/// The id and the version in the URI of a document.
fn parse(uri: &str) -> Result<Option<(&str, Option<usize>)>, ErrorData> {
    let Some(rest) = uri.strip_prefix(ALL).and_then(|rest| rest.strip_prefix('/')) else { return Ok(None) };
    let Some((id, query)) = rest.split_once('?') else { return Ok(Some((rest, None))) };
    let Some(version) = query.strip_prefix("version=") else { return Ok(None) };
    let wrong = |cause| ErrorData::invalid_params(format!("`version` cannot be `{version}`: {cause}"), None);
    Ok(Some((id, Some(version.parse().map_err(wrong)?))))
}

impl ServerHandler for Docs {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_resources()
            .enable_resources_subscribe()
            .enable_resources_list_changed()
            .enable_completions()
            .build();
        ServerConfig::new(capabilities).with_server_info(Implementation::new("documents", "1.0.0"))
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let documents = Resource::new(ALL, "documents")
            .with_title("Documents")
            .with_description("The ids of all documents.")
            .with_mime_type("application/json");
        let all: Vec<_> =
            [documents].into_iter().chain(self.store.ids().iter().map(|id| document(id))).collect();
        let start = match request.and_then(|request| request.cursor) {
            Some(cursor) => cursor.parse().ok().filter(|start| *start < all.len()),
            None => Some(0),
        };
        let start = start.ok_or_else(|| ErrorData::invalid_params("the cursor is not ours", None))?;
        let end = all.len().min(start + PAGE);
        let mut page = ListResourcesResult::with_all_items(all[start..end].to_vec());
        page.next_cursor = (end < all.len()).then(|| end.to_string());
        Ok(page)
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let template = ResourceTemplate::new(TEMPLATE, "document")
            .with_title("Document")
            .with_description(ABOUT)
            .with_mime_type("text/markdown")
            .with_annotations(annotations());
        Ok(ListResourceTemplatesResult::with_all_items(vec![template]))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let uri = request.uri;
        let content = if uri == ALL {
            ResourceContents::text(json!(self.store.ids()).to_string(), uri)
                .with_mime_type("application/json")
        } else {
            let text = match parse(&uri)? {
                Some((id, version)) => self.store.text(id, version).map_err(|cause| {
                    eprintln!("cannot read {uri}: {cause}");
                    ErrorData::internal_error("the document cannot be read", None)
                })?,
                None => None,
            };
            let Some(text) = text else {
                return Err(ErrorData::resource_not_found("resource not found", Some(json!({ "uri": uri }))));
            };
            ResourceContents::text(text, uri).with_mime_type("text/markdown")
        };
        Ok(ReadResourceResult::new(vec![content]).into())
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let known = matches!(&request.r#ref, Reference::Resource(template) if template.uri == TEMPLATE);
        if !known || request.argument.name != "doc_id" {
            return Ok(CompleteResult::default());
        }
        let mut ids = self.store.ids();
        ids.retain(|id| id.starts_with(&request.argument.value));
        let total = ids.len();
        ids.truncate(CompletionInfo::MAX_VALUES);
        let more = total > ids.len();
        let completion = CompletionInfo::with_pagination(ids, Some(total as u32), more)
            .map_err(|cause| ErrorData::internal_error(cause, None))?;
        Ok(CompleteResult::new(completion))
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.subscribed().insert(request.uri);
        Ok(())
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.subscribed().remove(&request.uri);
        Ok(())
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let (mut changes, subscribed) = (self.changes.subscribe(), self.subscribed.clone());
        tokio::spawn(async move {
            while let Ok(change) = changes.recv().await {
                let told = match change {
                    Change::Updated(uri) => {
                        if !subscribed.lock().unwrap_or_else(PoisonError::into_inner).contains(&uri) {
                            continue;
                        }
                        let update = ResourceUpdatedNotificationParam::new(uri);
                        context.peer.notify_resource_updated(update).await
                    }
                    Change::Added => context.peer.notify_resource_list_changed().await,
                };
                if told.is_err() {
                    break;
                }
            }
        });
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.supported_by(&self.get_info().capabilities))
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut changes = self.changes.subscribe();
        loop {
            let change = tokio::select! {
                () = context.cancelled() => return Ok(()),
                change = changes.recv() => change,
            };
            // What was not asked for is refused by the sink.
            let _ = match change {
                Ok(Change::Updated(uri)) => context.sink().notify_resource_updated(uri).await,
                Ok(Change::Added) => context.sink().notify_resource_list_changed().await,
                Err(_) => return Ok(()),
            };
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = Arc::new(Store::new());
    let (changes, _) = broadcast::channel(64);
    let docs = Docs { store: store.clone(), changes: changes.clone(), subscribed: Arc::default() };
    tokio::spawn(async move {
        for second in 1.. {
            tokio::time::sleep(Duration::from_secs(1)).await;
            store.rewrite("note-000", second);
            let _ = changes.send(Change::Updated(format!("{ALL}/note-000")));
            store.add();
            let _ = changes.send(Change::Added);
        }
    });
    docs.serve(stdio()).await?.waiting().await?;
    Ok(())
}

// The store.

/// The versions of each note.
struct Store(Mutex<BTreeMap<String, Vec<String>>>);

impl Store {
    fn new() -> Self {
        let store = Self(Mutex::default());
        for _ in 0..250 {
            store.add();
        }
        store
    }

    fn add(&self) -> String {
        let mut notes = self.notes();
        let id = format!("note-{:03}", notes.len());
        notes.insert(id.clone(), (1..=3).map(|version| format!("# {id}\n\nVersion {version}.\n")).collect());
        id
    }

    fn rewrite(&self, id: &str, second: u32) {
        if let Some(newest) = self.notes().get_mut(id).and_then(|versions| versions.last_mut()) {
            *newest = format!("# {id}\n\nWritten in second {second}.\n");
        }
    }

    fn ids(&self) -> Vec<String> {
        self.notes().keys().cloned().collect()
    }

    fn text(&self, id: &str, version: Option<usize>) -> io::Result<Option<String>> {
        if (id, version) == ("note-249", Some(1)) {
            return Err(io::Error::other("cannot open /srv/archive/note-249.md"));
        }
        let notes = self.notes();
        let Some(versions) = notes.get(id) else { return Ok(None) };
        let version = version.unwrap_or(versions.len());
        Ok(version.checked_sub(1).and_then(|index| versions.get(index)).cloned())
    }

    fn notes(&self) -> MutexGuard<'_, BTreeMap<String, Vec<String>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn title(id: &str) -> String {
    id.replace("note-", "Note ")
}
