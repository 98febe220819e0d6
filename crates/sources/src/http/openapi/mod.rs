//! APIs that are described by an OpenAPI document: what can be got becomes resources and templates.

mod config;
mod document;
mod operation;

use std::path::Path;

use libris_core::uri_template::Variables;
use libris_core::{Error, Result, Uri};

pub use config::Config;

use super::client::Client;
use super::config::{Config as Http, Method};
use super::endpoint::{Endpoint, Written};
use super::guard::Guard;
use document::Document;

/// The most bytes that a document may have.
const LIMIT: u64 = 16 * 1024 * 1024;

/// Reads the document that a configuration names; `folder` is where a relative path begins.
pub async fn read(config: &Config, folder: &Path) -> Result<String> {
    let data = if config.is_remote() {
        fetch(config).await?
    } else {
        let path = folder.join(&config.document);
        let failed = |cause: std::io::Error| Error::failed("read the OpenAPI document", cause);
        let size = std::fs::metadata(&path).map_err(failed)?.len();
        if size > LIMIT {
            return Err(too_large(size));
        }
        std::fs::read(&path).map_err(failed)?
    };
    String::from_utf8(data).map_err(|_| Error::invalid("the OpenAPI document is not UTF-8"))
}

/// What a document says that can be got, as a configuration.
pub fn derive(config: &Config, document: &str) -> Result<Http> {
    let document = Document::parse(document)?;
    let name = config.name.clone().unwrap_or_else(|| document.name());
    let scheme = Uri::parse(&format!("{name}://x")).is_ok_and(|uri| uri.scheme() == name);
    if !scheme {
        return Err(Error::invalid(format!("`{name}` cannot be the scheme of a URI: set another `name`")));
    }
    let base = match &config.base {
        Some(base) => base.clone(),
        None => document.server(config.is_remote().then_some(&config.document))?,
    };
    let mut http = Http {
        name: Some(name.clone()),
        base: Some(base),
        headers: config.headers.clone(),
        query: config.query.clone(),
        poll: config.poll,
        limits: config.limits.clone(),
        cache: config.cache.clone(),
        ..Http::default()
    };
    for operation in document.operations() {
        let Some(entries) = operation.entries(&name, config) else { continue };
        http.resources.extend(entries.resource);
        http.templates.extend(entries.template);
    }
    if http.resources.is_empty() && http.templates.is_empty() {
        return Err(Error::invalid("the OpenAPI document has nothing that can be got"));
    }
    Ok(http)
}

async fn fetch(config: &Config) -> Result<Vec<u8>> {
    let http = Http { headers: config.headers.clone(), query: config.query.clone(), ..Http::default() };
    let mut limits = config.limits.clone();
    limits.max_size = LIMIT;
    let guard = Guard { allow_private: limits.allow_private, networks: limits.networks.clone() };
    let nothing = Default::default();
    let written = Written {
        url: &config.document,
        method: Method::GET,
        headers: &nothing,
        query: &nothing,
        mime: None,
        required: &[],
        renamed: &Default::default(),
        variables: Vec::new(),
        parsed: false,
    };
    let endpoint = Endpoint::new(written, 0, &http, &guard).map_err(Error::invalid)?;
    let secure = endpoint.origin().starts_with("https:");
    let uri = Uri::parse(&config.document)?;
    let url = endpoint.url(Variables::new()).map_err(|fault| fault.of(&uri))?;
    let reply = Client::new(&limits, guard, secure)?.ask(&endpoint, &url, &Default::default()).await;
    Ok(reply.map_err(|fault| fault.of(&uri))?.data)
}

fn too_large(size: u64) -> Error {
    Error::invalid(format!("the OpenAPI document has {size} bytes, more than the {LIMIT} that are read"))
}
