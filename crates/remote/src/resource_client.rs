//! A client for programs: reads, lists, completes and watches the resources of any source.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures_core::Stream;
use futures_util::future;
use futures_util::stream::{self, StreamExt as _};
use libris_core::uri_template::Variables;
use libris_core::{
    Change, Client, Completion, CompletionRequest, Content, ContentBody, Contents, Context, Error, Proof,
    Resource, Result, Source, Template, Uri, UriTemplate,
};
use serde::de::DeserializeOwned;

use crate::config::{Callers, ChildEnvironment, RemoteConfig, RemoteTarget};
use crate::remote::Remote;

/// The number of resources requested per page.
const PAGE_SIZE: usize = 1000;

/// The maximum number of responses in the cache, and their total size in bytes.
const MAX_CACHED: usize = 64;
const MAX_CACHED_BYTES: usize = 8 << 20;

/// Reads the resources of an MCP server, or of any other source.
///
/// Responses are cached as long as the source can prove that they are current.
pub struct ResourceClient {
    source: Arc<dyn Source>,
    cache: Mutex<VecDeque<(Uri, Contents)>>,
}

/// Contents, parsed by their media type.
#[derive(Clone, Debug, PartialEq)]
pub enum ParsedContent {
    /// Text of type `application/json` or `…+json`.
    Json(serde_json::Value),
    /// Other text.
    Text(String),
    /// Binary data, of any type.
    Bytes(Bytes),
}

impl ResourceClient {
    /// A client for any source, such as a folder or a catalog.
    pub fn new(source: Arc<dyn Source>) -> Self {
        Self { source, cache: Mutex::default() }
    }

    /// A client for the MCP server at a URL, such as `https://example.com/mcp`.
    pub fn http(url: &str) -> Result<Self> {
        let target =
            RemoteTarget::Http { url: url.to_owned(), token: None, headers: BTreeMap::new(), stored: None };
        Self::remote(RemoteConfig::new("server", target))
    }

    /// A client for the MCP server at a URL, which gets this access token. The URL must begin with `https://`, unless the
    /// server is on this machine.
    pub fn http_with_token(url: &str, token: impl Into<String>) -> Result<Self> {
        let (url, token) = (url.to_owned(), Some(token.into()));
        let target = RemoteTarget::Http { url, token, headers: BTreeMap::new(), stored: None };
        Self::remote(RemoteConfig::new("server", target))
    }

    /// A client for an MCP server that it starts as a child process.
    pub fn command<A: Into<OsString>>(
        program: impl Into<OsString>,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<Self> {
        let target = RemoteTarget::Stdio {
            program: program.into(),
            arguments: arguments.into_iter().map(Into::into).collect(),
            folder: PathBuf::new(),
            environment: ChildEnvironment::Inherited,
        };
        Self::remote(RemoteConfig::new("server", target))
    }

    /// A client for an MCP server with this configuration. It acts for one user, so it caches private responses, too.
    pub fn remote(config: RemoteConfig) -> Result<Self> {
        Ok(Self::new(Arc::new(Remote::new(RemoteConfig { callers: Callers::One, ..config })?)))
    }

    /// Reads the first part of a resource, parsed by its media type.
    pub async fn read(&self, uri: &str) -> Result<ParsedContent> {
        let contents = self.read_parts(uri).await?;
        let part = contents.parts.into_iter().next();
        part.map(parsed).ok_or_else(|| Error::invalid(format!("`{uri}` has no contents")))?
    }

    /// Reads a JSON resource and deserialises it.
    pub async fn read_json<T: DeserializeOwned>(&self, uri: &str) -> Result<T> {
        let contents = self.read_parts(uri).await?;
        let part =
            contents.parts.first().ok_or_else(|| Error::invalid(format!("`{uri}` has no contents")))?;
        let parsed = match &part.body {
            ContentBody::Text(text) => serde_json::from_str(text),
            ContentBody::Bytes(bytes) => serde_json::from_slice(bytes),
        };
        parsed.map_err(|cause| Error::invalid(format!("`{uri}` is not JSON of the expected form: {cause}")))
    }

    /// Reads all parts of a resource, unparsed.
    pub async fn read_parts(&self, uri: &str) -> Result<Contents> {
        let uri = Uri::parse(uri)?;
        if let Some(cached) = self.cached(&uri) {
            return Ok(cached);
        }
        let contents = self.source.read(&uri, &Context::default()).await?;
        if contents.freshness.proof.as_ref().is_some_and(Proof::holds) {
            let mut cache = self.cache();
            cache.push_back((uri, contents.clone()));
            while cache.len() > MAX_CACHED
                || cache.iter().map(|(_, contents)| size(contents)).sum::<usize>() > MAX_CACHED_BYTES
            {
                cache.pop_front();
            }
        }
        Ok(contents)
    }

    fn cache(&self) -> std::sync::MutexGuard<'_, VecDeque<(Uri, Contents)>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cached(&self, uri: &Uri) -> Option<Contents> {
        let mut cache = self.cache();
        cache.retain(|(_, contents)| contents.freshness.proof.as_ref().is_some_and(Proof::holds));
        cache.iter().find(|(cached, _)| cached == uri).map(|(_, contents)| contents.clone())
    }

    /// All resources, in URI order. Pages are requested as they are needed.
    pub fn list(&self) -> impl Stream<Item = Result<Resource>> + Send + '_ {
        /// The next page to request.
        enum Next {
            After(Option<Uri>),
            End,
        }
        let pages = stream::unfold(Next::After(None), move |next| async move {
            let Next::After(after) = next else { return None };
            Some(match self.source.list(after.as_ref(), PAGE_SIZE, &Context::default()).await {
                Ok(page) => {
                    let last = page.resources.last().map(|last| last.uri.clone());
                    let next = if page.more && last.is_some() { Next::After(last) } else { Next::End };
                    (page.resources.into_iter().map(Ok).collect(), next)
                }
                Err(error) => (vec![Err(error)], Next::End),
            })
        });
        pages.flat_map(stream::iter)
    }

    /// All templates, of all pages.
    pub fn templates(&self) -> impl Stream<Item = Result<Template>> + Send + '_ {
        let fetched = stream::once(async { self.source.templates(&Context::default()).await });
        fetched.flat_map(|fetched| {
            stream::iter(match fetched {
                Ok(fetched) => fetched.templates.into_iter().map(Ok).collect(),
                Err(error) => vec![Err(error)],
            })
        })
    }

    /// Expands a template with these values to a URI.
    pub fn expand<'a>(
        &self,
        template: &str,
        values: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<String> {
        let variables: Variables = values.into_iter().collect();
        UriTemplate::parse(template)?.expand(&variables)
    }

    /// Values of a template variable that complete the typed text, best first.
    pub async fn complete(&self, template: &str, variable: &str, typed: &str) -> Result<Vec<String>> {
        let (template, known) = (UriTemplate::parse(template)?, BTreeMap::new());
        let limit = Completion::LIMIT;
        let request = CompletionRequest { template: &template, variable, typed, known: &known, limit };
        // `Remote` completes only templates that it has listed.
        self.source.templates(&Context::default()).await?;
        Ok(self.source.complete(request, &Context::default()).await?.values)
    }

    /// A stream of changes: `Updated` for these resources only; `Added`, `Removed` and `Described` for all resources; and
    /// `Lost`.
    pub async fn watch(&self, uris: &[&str]) -> Result<impl Stream<Item = Change> + Send + use<>> {
        let uris = uris.iter().map(|uri| Uri::parse(uri)).collect::<Result<Vec<_>>>()?;
        let changes = self.source.watch().await?;
        let changes = changes
            .ok_or_else(|| Error::invalid("the source does not report changes: poll it with `read`"))?;
        let subjects: Vec<_> = uris.iter().map(|uri| self.source.subject(uri)).collect();
        subjects.iter().for_each(|subject| self.source.follow(subject, Client::default()));
        let followed = Following { source: self.source.clone(), subjects };
        Ok(changes.filter(move |change| {
            future::ready(match change {
                Change::Updated(uri) => followed.has(uri),
                Change::Features => false,
                _ => true,
            })
        }))
    }
}

/// Unfollows the subjects when it is dropped.
struct Following {
    source: Arc<dyn Source>,
    subjects: Vec<Uri>,
}

impl Following {
    fn has(&self, uri: &Uri) -> bool {
        self.subjects.contains(&self.source.subject(uri))
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.subjects.iter().for_each(|subject| self.source.unfollow(subject));
    }
}

fn size(contents: &Contents) -> usize {
    contents.parts.iter().map(|part| part.body.len()).sum()
}

fn parsed(content: Content) -> Result<ParsedContent> {
    let mime = content.mime.as_deref().unwrap_or_default();
    let mime = mime.split(';').next().unwrap_or_default().trim();
    let is_json = mime == "application/json" || mime.ends_with("+json");
    match content.body {
        ContentBody::Text(text) if is_json => {
            let value = serde_json::from_str(&text);
            value.map(ParsedContent::Json).map_err(|cause| {
                Error::invalid(format!(
                    "`{}` has the media type `{mime}` and is not JSON: {cause}",
                    content.uri
                ))
            })
        }
        ContentBody::Text(text) => Ok(ParsedContent::Text(text)),
        ContentBody::Bytes(bytes) => Ok(ParsedContent::Bytes(bytes)),
    }
}
