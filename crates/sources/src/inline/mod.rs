//! Resources and templates whose contents are in the configuration file, or in files that it names.

mod config;
mod data;
mod definition;
mod fill;
mod watch;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::io::ErrorKind;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_core::stream::BoxStream;
use libris_core::uri_template::{Specificity, TemplateSet, Variables};
use libris_core::{
    CacheScope, Change, Completion, CompletionRequest, Content, ContentBody, Contents, Context, Error,
    Freshness, Page, Proof, Resource, Result, Source, Template, Templates, Uri, UriSpan, UriTemplate,
};

pub use config::{Config, InlineEntry};

use data::{InlineData, wrong};
use fill::ValueEscape;

use crate::wrong_uri;

/// Inline resources as a source.
pub struct Inline {
    inner: Arc<InlineInner>,
}

struct InlineInner {
    resources: BTreeMap<Uri, InlineResource<Uri>>,
    templates: TemplateSet<InlineResource<UriTemplate>>,
    /// Whether no content is in a file, so that nothing can change.
    fixed: bool,
    max_size: u64,
    ttl: Duration,
    scope: CacheScope,
}

struct InlineResource<U> {
    entry: InlineEntry<U>,
    data: InlineData,
}

impl Inline {
    /// Validates the configuration; relative paths in it are relative to `folder`.
    pub fn new(config: Config, folder: &Path) -> Result<Self> {
        let (ttl, scope) = (config.ttl, config.scope);
        let mut resources = BTreeMap::new();
        for entry in config.resources {
            let uri = entry.uri.clone();
            if !entry.complete.is_empty() {
                return Err(wrong(
                    uri.as_str(),
                    "it has no variables to `complete`; hint: remove `complete`, or add a variable to `uri`"
                        .into(),
                ));
            }
            let inline_resource = InlineResource::new(entry, uri.as_str(), folder)?;
            if resources.insert(uri.clone(), inline_resource).is_some() {
                return Err(wrong(
                    uri.as_str(),
                    "it is declared twice; hint: remove one, or give it another `uri`".into(),
                ));
            }
        }
        let mut templates: Vec<(UriTemplate, InlineResource<UriTemplate>)> = Vec::new();
        let mut texts = HashSet::new();
        for entry in config.templates {
            let uri = entry.uri.clone();
            if !texts.insert(uri.as_str().to_owned()) {
                return Err(wrong(
                    uri.as_str(),
                    "it is declared twice; hint: remove one, or give it another `uri`".into(),
                ));
            }
            let inline_resource = InlineResource::new(entry, uri.as_str(), folder)?;
            inline_resource.check_variables().map_err(|why| wrong(uri.as_str(), why))?;
            templates.push((uri, inline_resource));
        }
        let fixed = resources.values().all(|inline_resource| inline_resource.data.is_fixed())
            && templates.iter().all(|(_, inline_resource)| inline_resource.data.is_fixed());
        let templates = TemplateSet::new(templates);
        Ok(Self {
            inner: Arc::new(InlineInner {
                resources,
                templates,
                fixed,
                max_size: config.max_size,
                ttl,
                scope,
            }),
        })
    }

    /// Runs `work` on a blocking thread, because it may read files; if no content is in a file, runs it directly.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&InlineInner) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        if self.inner.fixed {
            return work(&self.inner);
        }
        let inner = Arc::clone(&self.inner);
        match tokio::task::spawn_blocking(move || work(&inner)).await {
            Ok(result) => result,
            Err(cause) => Err(Error::failed("finish reading the inline resources", cause)),
        }
    }
}

#[async_trait]
impl Source for Inline {
    fn covers(&self, uri: &Uri) -> Option<Specificity> {
        if self.inner.resources.contains_key(uri) {
            return Some(Specificity::EXACT);
        }
        self.inner.templates.closest(uri).map(|(template, ..)| template.specificity())
    }

    fn name(&self) -> Cow<'_, str> {
        "inline".into()
    }

    fn span(&self) -> Option<UriSpan> {
        self.inner.resources.keys().map(UriSpan::of).reduce(UriSpan::and)
    }

    async fn list(&self, after: Option<&Uri>, limit: usize, _context: &Context) -> Result<Page> {
        let after = after.cloned();
        self.blocking(move |inner| Ok(inner.list(after.as_ref(), limit))).await
    }

    async fn read(&self, uri: &Uri, _context: &Context) -> Result<Contents> {
        let uri = uri.clone();
        self.blocking(move |inner| inner.read(&uri)).await
    }

    fn hint(&self, uri: &Uri) -> Option<String> {
        let InlineInner { resources, templates, .. } = &*self.inner;
        wrong_uri::hint(uri, resources.keys(), templates.iter().map(|(uri, _)| uri))
    }

    async fn templates(&self, _context: &Context) -> Result<Templates> {
        self.blocking(|inner| Ok(inner.templates())).await
    }

    async fn complete(&self, asked: CompletionRequest<'_>, _context: &Context) -> Result<Completion> {
        let values = self
            .inner
            .templates
            .get(asked.template)
            .and_then(|inline_resource| inline_resource.entry.complete.get(asked.variable));
        let completion = values.map(|values| Completion::of(values, asked.typed, asked.limit));
        Ok(completion.unwrap_or_default().with_proof(Proof::always()))
    }

    async fn watch(&self) -> Result<Option<BoxStream<'static, Change>>> {
        watch::changes(Arc::clone(&self.inner)).await
    }
}

impl InlineInner {
    /// The freshness of a response. `fixed` says whether its content cannot change, because it is not in a file.
    fn freshness(&self, fixed: bool) -> Freshness {
        Freshness::proven(fixed.then(Proof::always)).with_ttl(self.ttl).with_scope(self.scope)
    }

    fn templates(&self) -> Templates {
        let templates =
            self.templates.iter().map(|(_, inline_resource)| inline_resource.template()).collect();
        Templates { templates, freshness: self.freshness(self.fixed), ..Templates::default() }
    }

    fn list(&self, after: Option<&Uri>, limit: usize) -> Page {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut rest = self.resources.range::<Uri, _>((from, Bound::Unbounded));
        let resources: Vec<_> =
            rest.by_ref().take(limit).map(|(_, inline_resource)| inline_resource.resource()).collect();
        Page {
            resources,
            more: rest.next().is_some(),
            freshness: self.freshness(self.fixed),
            ..Page::default()
        }
    }

    fn read(&self, uri: &Uri) -> Result<Contents> {
        let content = |mime, body| Content { uri: uri.clone(), mime: Some(mime), body, meta: None };
        let (content, fixed) = match self.resources.get(uri) {
            Some(inline_resource) => {
                let (mime, body) = inline_resource.read(uri, self.max_size)?;
                (content(mime, body), inline_resource.data.is_fixed())
            }
            None => {
                let (_, inline_resource, variables) = self.templates.closest(uri).ok_or_else(|| {
                    wrong_uri::error(uri, self.resources.keys(), self.templates.iter().map(|(uri, _)| uri))
                })?;
                let (mime, body) = inline_resource.expand(uri, &variables, self.max_size)?;
                (content(mime, body), inline_resource.data.is_fixed())
            }
        };
        Ok(Contents::from(content).with_freshness(self.freshness(fixed)))
    }
}

impl<U> InlineResource<U> {
    fn new(entry: InlineEntry<U>, uri: &str, folder: &Path) -> Result<Self> {
        let data = InlineData::of(&entry, folder)
            .and_then(|data| entry.check_descriptive_keys().map(|()| data))
            .map_err(|why| wrong(uri, why))?;
        Ok(Self { entry, data })
    }

    /// The media type and the content.
    fn read(&self, uri: &Uri, limit: u64) -> Result<(String, ContentBody)> {
        let mime = self.data.metadata(self.entry.mime.as_deref()).mime;
        match self.data.body(&mime, limit) {
            Ok(Ok(body)) => Ok((mime, body)),
            Ok(Err(size)) => Err(Error::TooLarge { uri: uri.clone(), size, limit, hint: None }),
            Err(cause) => {
                tracing::warn!(%uri, %cause, "could not read the file of an inline resource");
                let why = match cause.kind() {
                    ErrorKind::NotFound => "does not exist any more; tell the administrator of this server",
                    ErrorKind::PermissionDenied => {
                        "cannot be read by this server; its administrator can change the rights of the file"
                    }
                    ErrorKind::InvalidInput => {
                        "is not a regular file any more; tell the administrator of this server"
                    }
                    _ => "cannot be read now; try again later",
                };
                Err(Error::Unavailable(format!("the file of `{uri}` {why}")))
            }
        }
    }
}

impl InlineResource<Uri> {
    fn resource(&self) -> Resource {
        let metadata = self.data.metadata(self.entry.mime.as_deref());
        let mut resource = self.entry.resource(&self.entry.uri);
        resource.annotations.last_modified = self.entry.last_modified.or(metadata.modified);
        Resource { mime: Some(metadata.mime), size: metadata.size, ..resource }
    }
}

impl InlineResource<UriTemplate> {
    fn expand(&self, uri: &Uri, variables: &Variables, limit: u64) -> Result<(String, ContentBody)> {
        let (mime, body) = self.read(uri, limit)?;
        let body = match body {
            ContentBody::Text(text) => {
                let names: Vec<_> = self.entry.uri.variables().collect();
                ContentBody::Text(fill::fill(&text, &names, variables, ValueEscape::of(&mime)))
            }
            bytes => bytes,
        };
        Ok((mime, body))
    }

    fn template(&self) -> Template {
        let mut template = self.entry.template(&self.entry.uri);
        template.mime = Some(self.data.metadata(self.entry.mime.as_deref()).mime);
        template.annotations.last_modified = self.entry.last_modified;
        template
    }

    /// Checks the names of variables: a misspelt one would otherwise be visible only in the content.
    fn check_variables(&self) -> Result<(), String> {
        let known: Vec<_> = self.entry.uri.variables().collect();
        let completed = self.entry.complete.keys().map(String::as_str);
        let text = match &self.data {
            InlineData::Text(text) => text,
            InlineData::Bytes(_) | InlineData::File(_) => "",
        };
        match completed.chain(fill::names(text)).find(|name| !known.contains(name)) {
            Some(unknown) => Err(format!("it has no variable `{unknown}`, only {}", quoted(&known))),
            None => Ok(()),
        }
    }
}

fn quoted(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
