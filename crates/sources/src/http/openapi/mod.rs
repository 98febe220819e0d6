//! APIs with an OpenAPI document: its GET operations become resources and templates.

mod config;
mod definition;
mod document;
mod operation;
mod select;

use std::fmt::Display;
use std::path::Path;

use libris_core::uri_template::Variables;
use libris_core::{Error, Result, Uri};

pub use config::Config;

use super::client::ApiClient;
use super::config::{Config as Http, EndpointConfig};
use super::endpoint::{ApiEndpoint, EndpointSpec};
use super::fault::HttpFault;
use super::guard::AddressGuard;
use super::open::{EndpointBuilder, wrong};
use crate::regular_file;
use document::OpenApiDocument;

/// The largest document, in bytes.
const MAX_DOCUMENT_BYTES: u64 = 16 * 1024 * 1024;

/// The maximum number of operations of a document.
const MAX_OPERATIONS: usize = 1_000;

/// Reads the document of a configuration; `folder` is the base of a relative path.
pub async fn read(config: &Config, folder: &Path) -> Result<String> {
    let data = if config.is_remote() {
        fetch(config).await?
    } else {
        let path = folder.join(&config.document);
        regular_file::read(&path, MAX_DOCUMENT_BYTES).map_err(|cause| match cause.kind() {
            std::io::ErrorKind::FileTooLarge => {
                too_large(std::fs::metadata(&path).map_or(MAX_DOCUMENT_BYTES, |file| file.len()))
            }
            _ => Error::failed("read the OpenAPI document", cause),
        })?
    };
    String::from_utf8(data)
        .map_err(|_| Error::invalid("the OpenAPI document is not UTF-8; hint: save it as UTF-8"))
}

/// Derives the configuration of an HTTP source from the GET operations of a document.
pub fn derive(config: &Config, document: &str) -> Result<Http> {
    let document = OpenApiDocument::parse(document)?;
    let name = config.name.clone().unwrap_or_else(|| document.name());
    let prefix = UriPrefix::of(&name)?;
    let mut operations = select::selected(config, document.operations())?;
    if operations.len() > MAX_OPERATIONS {
        tracing::warn!(
            "only the first {MAX_OPERATIONS} operations of an OpenAPI document are taken; select some with `include` or `tags`"
        );
        operations.truncate(MAX_OPERATIONS);
    }
    let base = match (&config.base, document.server(config.remote())) {
        (Some(base), _) => Some(base.clone()),
        // Operations with a server of their own need no base.
        (None, Err(_)) if operations.iter().any(|operation| operation.server.is_some()) => None,
        (None, server) => Some(server?),
    };
    let mut http = Http {
        name: Some(name.clone()),
        base,
        headers: config.headers.clone(),
        query: config.query.clone(),
        poll: config.poll,
        limits: config.limits.clone(),
        cache: config.cache.clone(),
        ..Http::default()
    };
    let guard = AddressGuard::new(&config.limits);
    let mut builder = EndpointBuilder::new(&http, &guard);
    let mut left_out = Vec::new();
    let (mut resources, mut templates) = (Vec::new(), Vec::new());
    for operation in operations {
        let Some(entries) = operation.entries(&prefix, config) else { continue };
        if let Some(entry) = entries.resource {
            let opened = builder.resource(entry.clone()).map(drop);
            left_out.extend(add_entry(&mut resources, entry, opened));
        }
        if let Some(entry) = entries.template {
            let opened = builder.template(entry.clone()).map(drop);
            left_out.extend(add_entry(&mut templates, entry, opened));
        }
    }
    if resources.is_empty() && templates.is_empty() {
        let nothing = || {
            Error::invalid(
                "the OpenAPI document has no GET operation that can be served; hint: see the warnings about operations that \
             are left out",
            )
        };
        return Err(left_out.into_iter().next().unwrap_or_else(nothing));
    }
    for error in left_out {
        tracing::warn!(%error, "an operation of the OpenAPI document is left out");
    }
    (http.resources, http.templates) = (resources, templates);
    Ok(http)
}

/// The beginning of the URIs of a document.
enum UriPrefix {
    /// A scheme; the first segment of a path becomes the authority.
    Scheme(String),
    /// A scheme and an authority.
    Authority(String),
}

impl UriPrefix {
    /// Validates the name of the source as the beginning of its URIs.
    fn of(name: &str) -> Result<Self> {
        let wrong = || {
            let form = "a scheme such as `library`, or a scheme and an authority such as `api://library`";
            Error::invalid(format!("`{name}` cannot be the beginning of a URI: set `name` to {form}"))
        };
        let sample = if name.contains(':') { format!("{name}/x") } else { format!("{name}://x") };
        let uri = Uri::parse(&sample).map_err(|_| wrong())?;
        match (name.contains(':'), uri.path(), uri.authority()) {
            (false, _, _) if uri.scheme() == name => Ok(Self::Scheme(name.to_owned())),
            (true, "/x", Some(authority)) if uri.as_str() == sample && !authority.is_empty() => {
                Ok(Self::Authority(name.to_owned()))
            }
            _ => Err(wrong()),
        }
    }

    /// The URI of a path.
    fn uri(&self, path: &str) -> String {
        match self {
            Self::Scheme(scheme) if path == "/" => format!("{scheme}:///"),
            Self::Scheme(scheme) => {
                format!("{scheme}://{}", operation::escaped_authority(path.strip_prefix('/').unwrap_or(path)))
            }
            Self::Authority(authority) => format!("{authority}{path}"),
        }
    }
}

/// Adds an entry; returns an error if it is invalid or a duplicate.
fn add_entry<U: Display + PartialEq>(
    entries: &mut Vec<EndpointConfig<U>>,
    entry: EndpointConfig<U>,
    opened: Result<(), String>,
) -> Option<Error> {
    match opened {
        Err(why) => Some(wrong(&entry.uri, why)),
        Ok(()) if entries.iter().any(|other| other.uri == entry.uri) => {
            Some(wrong(&entry.uri, "it is declared twice; hint: remove one, or give it another `uri`".into()))
        }
        Ok(()) => {
            entries.push(entry);
            None
        }
    }
}

/// Fetches the document from its URL, with the headers, query and limits of the source.
async fn fetch(config: &Config) -> Result<Vec<u8>> {
    let http = Http { headers: config.headers.clone(), query: config.query.clone(), ..Http::default() };
    let mut limits = config.limits.clone();
    limits.max_size = MAX_DOCUMENT_BYTES;
    let guard = AddressGuard::new(&limits);
    let spec = EndpointSpec::new(&config.document);
    let endpoint = ApiEndpoint::new(spec, 0, &http, &guard).map_err(Error::invalid)?;
    let secure = endpoint.origin().starts_with("https:");
    let uri = Uri::parse(&config.document)?;
    let url = endpoint.url(Variables::new()).map_err(|fault| document_error(&uri, fault))?;
    let reply = ApiClient::new(&limits, guard, secure)?
        .send(&endpoint, &url, &Default::default(), libris_core::Client::default())
        .await;
    Ok(reply.map_err(|fault| document_error(&uri, fault))?.data)
}

/// The error of a request for the document: a missing document is a mistake in the configuration.
fn document_error(uri: &Uri, fault: HttpFault) -> Error {
    match fault.into_error(uri, "") {
        Error::Missing { hint, .. } => Error::invalid(format!("`{uri}` cannot be read: {hint}")),
        error => error,
    }
}

fn too_large(size: u64) -> Error {
    Error::invalid(format!(
        "the OpenAPI document has {size} bytes, more than the limit of {MAX_DOCUMENT_BYTES}; hint: remove operations that are not served"
    ))
}
