//! A Notion workspace as resources: pages as Markdown, databases as JSON.

mod abandoned_reads;
mod block_tree;
mod client;
mod config;
mod definition;
mod id;
mod listing;
mod markdown;
mod objects;
mod property;
mod read;
mod text;
mod watch;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_core::stream::BoxStream;
use libris_core::uri_template::{Specificity, TemplateSet};
use libris_core::{
    CacheScope, Change, Completion, CompletionRequest, Content, Contents, Context, Error, Freshness, Page,
    Proof, ReplicaKey, Result, Source, Template, Templates, Uri, UriSpan, UriTemplate,
};

pub use config::Config;

use abandoned_reads::AbandonedReads;
use client::NotionClient;
use listing::{Listings, listing_proof};
use objects::ObjectKind;
use read::NotionUri;

use crate::wrong_uri;

/// The URI of the resource that every workspace has.
const INFO_URI: &str = "notion://workspace/info";

/// A Notion workspace as a source.
pub struct Notion {
    inner: Arc<NotionInner>,
    templates: TemplateSet<TemplateKind>,
    info: Uri,
}

struct NotionInner {
    client: NotionClient,
    /// The token. Replicas with the same token share contents.
    token: Box<str>,
    config: Config,
    listings: Listings,
    reads: AbandonedReads,
    /// Generation counters of edits, by the id of the object.
    edits: Mutex<HashMap<String, u64>>,
}

/// The kind of resource of a template.
#[derive(Clone, Copy)]
enum TemplateKind {
    Page,
    Schema,
    Rows,
}

const TEMPLATES: [(&str, TemplateKind, &str, &str); 4] = [
    (
        "notion://pages/{pageId}{?format}",
        TemplateKind::Page,
        "Notion page",
        "A page by its ID, as Markdown, or with `format=json` as Notion gives it.",
    ),
    (
        "notion://workspace/pages/{pageId}{?format}",
        TemplateKind::Page,
        "Notion page of the workspace",
        "The same page under its longer name.",
    ),
    (
        "notion://databases/{databaseId}/schema",
        TemplateKind::Schema,
        "Notion database columns",
        "The columns of a database, with their types.",
    ),
    (
        "notion://databases/{databaseId}/rows{?after}",
        TemplateKind::Rows,
        "Notion database rows",
        "The rows of a database; `next` is the URI of the next page.",
    ),
];

impl Notion {
    /// Creates the source with the token in the environment.
    pub fn new(config: Config) -> Result<Self> {
        let name = &config.token_env;
        let token = std::env::var(name).unwrap_or_default();
        if token.trim().is_empty() {
            return Err(Error::invalid(format!(
                "the environment variable `{name}` has no Notion token: set it"
            )));
        }
        Self::with_token(config, token.trim())
    }

    /// Creates the source with a token.
    pub fn with_token(config: Config, token: &str) -> Result<Self> {
        for (key, time) in [("poll", config.poll), ("timeout", config.timeout)] {
            if time.is_zero() {
                return Err(Error::invalid(format!("the `{key}` of Notion must be longer than 0")));
            }
        }
        if config.concurrent == 0 || config.concurrent > tokio::sync::Semaphore::MAX_PERMITS {
            return Err(Error::invalid("the `concurrent` of Notion must be at least 1"));
        }
        let templates = TEMPLATES.iter().map(|(text, form, ..)| Ok((UriTemplate::parse(text)?, *form)));
        let templates = TemplateSet::new(templates.collect::<Result<Vec<_>>>()?);
        let client = NotionClient::new(&config, token)?;
        let inner = NotionInner {
            client,
            token: token.into(),
            config,
            listings: Listings::default(),
            reads: AbandonedReads::default(),
            edits: Mutex::default(),
        };
        Ok(Self { inner: Arc::new(inner), templates, info: Uri::parse(INFO_URI)? })
    }

    /// Parses a URI; `None` if it matches no template, or if its ID is invalid.
    fn parse_uri(&self, uri: &Uri) -> Result<Option<NotionUri>> {
        if *uri == self.info {
            return Ok(Some(NotionUri::Info));
        }
        let Some((_, form, variables)) = self.templates.closest(uri) else { return Ok(None) };
        let id = |name| variables.text(name).and_then(id::parse);
        Ok(match form {
            TemplateKind::Page => match variables.text("format") {
                None | Some("" | "markdown") => id("pageId").map(|id| NotionUri::Page { id, json: false }),
                Some("json") => id("pageId").map(|id| NotionUri::Page { id, json: true }),
                Some(_) => return Err(Error::invalid("`format` is `markdown` or `json`")),
            },
            TemplateKind::Schema => id("databaseId").map(|id| NotionUri::Schema { id }),
            TemplateKind::Rows => {
                let after = variables.text("after").filter(|after| !after.is_empty());
                let cursor = after.map(read::RowCursor::parse).transpose()?;
                id("databaseId").map(|id| NotionUri::Rows { id, after: cursor.unwrap_or_default() })
            }
        })
    }
}

impl Notion {
    /// The error for a URI that matches no template, or whose ID is invalid.
    fn not_found(&self, uri: &Uri) -> Error {
        match self.templates.closest(uri) {
            Some(_) => Error::missing(
                uri,
                "an ID of Notion has 32 hexadecimal digits; take the URI from the list, or complete the ID from a title",
            ),
            None => wrong_uri::error(uri, [&self.info], self.templates.iter().map(|(template, _)| template)),
        }
    }
}

#[async_trait]
impl Source for Notion {
    fn covers(&self, uri: &Uri) -> Option<Specificity> {
        if *uri == self.info {
            return Some(Specificity::EXACT);
        }
        self.templates.closest(uri).map(|(template, ..)| template.specificity())
    }

    fn name(&self) -> Cow<'_, str> {
        "notion".into()
    }

    fn span(&self) -> Option<UriSpan> {
        Some(UriSpan::below("notion://"))
    }

    async fn list(&self, after: Option<&Uri>, limit: usize, _context: &Context) -> Result<Page> {
        let listing = self.inner.listing().await?;
        let freshness = Freshness::proven(listing_proof(&self.inner, &listing));
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut rest = listing.resources.range::<Uri, _>((from, Bound::Unbounded));
        let resources = rest.by_ref().take(limit).map(|(_, resource)| resource.clone()).collect();
        Ok(Page { resources, more: rest.next().is_some(), freshness, ..Page::default() })
    }

    async fn read(&self, uri: &Uri, context: &Context) -> Result<Contents> {
        let asked = self.parse_uri(uri)?.ok_or_else(|| self.not_found(uri))?;
        let ttl = self.inner.config.cache;
        if ttl.is_zero() {
            let content = asked.read(&self.inner, uri).await.map_err(|fault| fault.into_error(uri))?;
            reserve(context, &content)?;
            return Ok(content.into());
        }
        let id = asked.id().to_owned();
        let seen = self.inner.edit_count(&id);
        let (when, content) = self.inner.read((uri.clone(), seen), asked).await?;
        reserve(context, &content)?;
        let ttl = ttl.saturating_sub(when.elapsed());
        let proof = self.inner.proof(&id, seen, ttl);
        Ok(Contents::from(content).with_freshness(Freshness::proven(proof).with_ttl(ttl)))
    }

    fn hint(&self, uri: &Uri) -> Option<String> {
        wrong_uri::hint(uri, [&self.info], self.templates.iter().map(|(template, _)| template))
    }

    async fn templates(&self, _context: &Context) -> Result<Templates> {
        let templates = TEMPLATES.iter().map(|(text, form, name, description)| {
            let mime = match form {
                TemplateKind::Page => None,
                TemplateKind::Schema | TemplateKind::Rows => Some("application/json".into()),
            };
            let template = Template::new(UriTemplate::parse(text)?, *name);
            Ok(Template { mime, description: Some((*description).into()), ..template })
        });
        Ok(Templates {
            templates: templates.collect::<Result<_>>()?,
            freshness: Freshness::proven(Proof::always()),
            ..Templates::default()
        })
    }

    async fn complete(&self, asked: CompletionRequest<'_>, _context: &Context) -> Result<Completion> {
        let Some(form) = self.templates.get(asked.template) else { return Ok(Completion::default()) };
        let kind = match (form, asked.variable) {
            (TemplateKind::Page, "format") => {
                let completion = Completion::of(["markdown", "json"], asked.typed, asked.limit);
                return Ok(completion.with_proof(Proof::always()));
            }
            (TemplateKind::Page, "pageId") => ObjectKind::Page,
            (TemplateKind::Schema | TemplateKind::Rows, "databaseId") => ObjectKind::Database,
            _ => return Ok(Completion::default()),
        };
        let listing = self.inner.listing().await?;
        let completion = listing.complete(kind, asked.typed, asked.limit);
        Ok(completion.with_proof(listing_proof(&self.inner, &listing)))
    }

    fn is_shared(&self, _uri: &Uri) -> bool {
        !self.inner.config.cache.is_zero()
    }

    fn replica_key(&self, _uri: &Uri) -> Option<ReplicaKey> {
        let text = || format!("{} {}", self.inner.config.url, self.inner.token);
        let key = || ReplicaKey { text: text(), scope: CacheScope::Private };
        (!self.inner.config.cache.is_zero()).then(key)
    }

    fn subject(&self, uri: &Uri) -> Uri {
        let asked = self.parse_uri(uri).ok().flatten();
        asked.and_then(|asked| asked.subject()).unwrap_or_else(|| uri.clone())
    }

    fn aliases(&self, uri: &Uri) -> Vec<Uri> {
        let asked = self.parse_uri(&uri.without_query()).ok().flatten();
        let names = asked.map(|asked| asked.names()).unwrap_or_default();
        names.into_iter().filter(|name| name != uri).collect()
    }

    /// One read can send `concurrent` requests at a time, so more concurrent reads would only use more memory.
    fn concurrency(&self) -> usize {
        self.inner.config.concurrent
    }

    fn polls_shared_service(&self) -> bool {
        true
    }

    fn invalidate(&self, change: &Change) {
        // Edit times are part of the listing, so every change concerns it.
        self.inner.expire_listing();
        let uri = match change {
            Change::Updated(uri) | Change::Described(uri) | Change::Added(uri) | Change::Removed(uri) => {
                Some(uri)
            }
            _ => None,
        };
        match uri.map(|uri| self.parse_uri(uri)) {
            Some(Ok(Some(asked))) => self.inner.edited(asked.id()),
            _ => self.inner.edited(EVERY_OBJECT),
        }
    }

    async fn watch(&self) -> Result<Option<BoxStream<'static, Change>>> {
        Ok(Some(watch::changes(self.inner.clone())))
    }
}

/// The key of the generation counter that applies to all objects. It cannot be an ID.
const EVERY_OBJECT: &str = "";

/// Reserves memory for a content after the read, because its size is unknown before. During reads, the limit on
/// concurrent reads bounds the memory.
fn reserve(context: &Context, content: &Content) -> Result<()> {
    /// Contents up to this size need no reservation.
    const UNRESERVED_BYTES: usize = 64 << 10;
    let size = content.body.len();
    if size > UNRESERVED_BYTES { context.reserve(size as u64) } else { Ok(()) }
}

impl NotionInner {
    /// The generation of an object: the sum of its own counter and of the one for all objects.
    fn edit_count(&self, id: &str) -> u64 {
        let edits = self.edits.lock().unwrap_or_else(PoisonError::into_inner);
        [id, EVERY_OBJECT].iter().filter_map(|id| edits.get(*id)).sum()
    }

    /// Bumps the generation counter of an object, which invalidates cached contents.
    fn edited(&self, id: &str) {
        *self.edits.lock().unwrap_or_else(PoisonError::into_inner).entry(id.to_owned()).or_default() += 1;
    }

    /// A proof that holds for `time`, unless an edit after the generation `seen` is detected.
    fn proof(self: &Arc<Self>, id: &str, seen: u64, time: Duration) -> Proof {
        let (inner, id, until) = (self.clone(), id.to_owned(), Instant::now() + time);
        Proof::new(move || Instant::now() < until && inner.edit_count(&id) == seen)
    }
}
