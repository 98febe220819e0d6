//! A minimal server with rmcp, the official Rust SDK, over HTTP and stdio.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use rmcp::model::{
    Annotations, CacheScope, CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock,
    ErrorData, ListResourcesResult, PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResponse,
    ReadResourceResult, Resource, ResourceContents, ServerCapabilities, ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{RoleServer, ServerHandler, ServiceExt as _};
use tokio::net::TcpListener;

use crate::mcp::Era;
use crate::shelf::{Book, Content, Shelf};

/// Serves the files of a folder on a free port of this machine, until it is killed.
///
/// Modern responses are plain JSON, which rmcp sends only if legacy sessions, whose responses are streams, are disabled.
/// With `fresh`, it reads the file at each request, as a server must if files change. With `cacheable`, clients may cache
/// contents for an hour.
pub(crate) async fn over_http(folder: &Path, era: Era, fresh: bool, cacheable: bool) -> Result<()> {
    let minimal = Minimal { cacheable, ..Minimal::new(folder, fresh)? };
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(era == Era::Legacy)
        .with_json_response(true);
    let sessions = Arc::new(LocalSessionManager::default());
    let service = StreamableHttpService::new(move || Ok(minimal.clone()), sessions, config);
    let listener = TcpListener::bind("127.0.0.1:0").await.context("could not listen")?;
    eprintln!("listening on http://{}/mcp", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let service = TowerToHyperService::new(service.clone());
        // An error means that the client has disconnected.
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

/// Serves the files of a folder to one client, until it disconnects.
pub(crate) async fn over_stdio(folder: &Path) -> Result<()> {
    let minimal = Minimal::new(folder, false)?;
    minimal.serve(rmcp::transport::stdio_pipes()).await?.waiting().await?;
    Ok(())
}

#[derive(Clone)]
struct Minimal {
    shelf: Arc<Shelf>,
    /// The folder, if files are to be read at each request.
    fresh: Option<Arc<Path>>,
    /// Whether clients may cache contents.
    cacheable: bool,
}

impl Minimal {
    fn new(folder: &Path, fresh: bool) -> Result<Self> {
        Ok(Self {
            shelf: Arc::new(Shelf::load(folder)?),
            fresh: fresh.then(|| folder.into()),
            cacheable: false,
        })
    }
}

impl ServerHandler for Minimal {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_resources().enable_tools().build())
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let cursor = request.and_then(|request| request.cursor);
        let page = self.shelf.page(cursor.as_deref());
        let (books, next) = page.ok_or_else(|| ErrorData::invalid_params("not a cursor", None))?;
        let mut result = ListResourcesResult::with_all_items(books.iter().map(describe).collect());
        result.next_cursor = next;
        Ok(result)
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let book = self.shelf.find(&request.uri);
        let book = book.ok_or_else(|| ErrorData::resource_not_found("resource not found", None))?;
        let content = match &self.fresh {
            None => encode(&book.content, &book.uri),
            Some(folder) => {
                let content = Content::read(&folder.join(&book.name));
                let content = content.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
                encode(&content, &book.uri)
            }
        };
        let mut result = ReadResourceResult::new(vec![content.with_mime_type(book.mime)]);
        if self.cacheable {
            result.ttl_ms = Some(3_600_000);
            result.cache_scope = Some(CacheScope::Public);
        }
        Ok(result.into())
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let uri = request.arguments.as_ref().and_then(|arguments| arguments.get("uri")?.as_str());
        let book = uri.and_then(|uri| self.shelf.find(uri));
        let Some(Content::Text(text)) = book.map(|book| &book.content) else {
            return Err(ErrorData::invalid_params("there is no such text", None));
        };
        Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
    }
}

fn encode(content: &Content, uri: &str) -> ResourceContents {
    match content {
        Content::Text(text) => ResourceContents::text(text, uri),
        Content::Blob(blob) => ResourceContents::blob(STANDARD.encode(blob), uri),
    }
}

fn describe(book: &Book) -> Resource {
    let mut annotations = Annotations::default();
    annotations.last_modified = Some(book.modified.clone());
    let mut resource = Resource::new(&book.uri, &book.name).with_mime_type(book.mime).with_size(book.size);
    resource.annotations = Some(annotations);
    resource
}
