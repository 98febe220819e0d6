//! An rmcp server with the resources of a Libris configuration.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use rmcp::model::{
    CacheScope, CompleteRequestParams, CompleteResult, CompletionInfo, ErrorData, Implementation,
    ListResourceTemplatesResult, ListResourcesResult, PaginatedRequestParams, ReadResourceRequestParams,
    ReadResourceResponse, ReadResourceResult, Reference, Resource, ResourceContents, ResourceTemplate,
    ServerCapabilities, ServerConfig, SubscribeRequestParams, UnsubscribeRequestParams,
};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{RoleServer, ServerHandler, ServiceExt};
use serde_json::{Map, Value, json};
use tokio::net::TcpListener;

use crate::wire::{Connection, Transport};

/// The cache lifetime of responses in milliseconds: the `ttl` of the configuration.
const MINUTE: u64 = 60_000;

/// The server, running in this process.
pub(crate) struct Oracle {
    held: Arc<Held>,
    url: String,
}

impl Oracle {
    pub(crate) async fn start(config: &str) -> Self {
        let held = Arc::new(Held { config: toml::from_str(config).expect("valid TOML") });
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}/mcp", listener.local_addr().expect("an address"));
        let service = StreamableHttpService::new(
            {
                let held = held.clone();
                move || Ok(held.clone())
            },
            Arc::new(LocalSessionManager::default()),
            StreamableHttpServerConfig::default(),
        );
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_nodelay(true).ok();
                let service = TowerToHyperService::new(service.clone());
                tokio::spawn(async move {
                    let server = auto::Builder::new(TokioExecutor::new());
                    server.serve_connection(TokioIo::new(stream), service).await.ok();
                });
            }
        });
        Self { held, url }
    }

    pub(crate) async fn connect(&self, transport: Transport) -> Connection {
        match transport {
            Transport::Http => Connection::http(&self.url),
            Transport::Stdio => {
                let (theirs, ours) = tokio::io::duplex(1 << 16);
                let held = self.held.clone();
                tokio::spawn(async move {
                    if let Ok(server) = held.serve(theirs).await {
                        server.waiting().await.ok();
                    }
                });
                let (read, write) = tokio::io::split(ours);
                Connection::pipe(read, write, None)
            }
        }
    }
}

struct Held {
    config: Value,
}

impl Held {
    fn all(&self, table: &str) -> impl Iterator<Item = &Map<String, Value>> {
        self.config["inline"][table].as_array().into_iter().flatten().filter_map(Value::as_object)
    }

    fn known(&self, uri: &str) -> Result<ResourceContents, ErrorData> {
        let missing = || ErrorData::resource_not_found("resource not found", Some(json!({"uri": uri})));
        self.find(uri).ok_or_else(missing)
    }

    fn find(&self, uri: &str) -> Option<ResourceContents> {
        if let Some(resource) = self.all("resource").find(|resource| resource["uri"] == uri) {
            return Some(content(resource, uri, |text| text.to_owned()));
        }
        self.all("template").find_map(|template| {
            let (before, after) = template["uri"].as_str()?.split_once("{id}")?;
            let id = uri.strip_prefix(before)?.strip_suffix(after)?;
            Some(content(template, uri, |text| text.replace("{{id}}", id)))
        })
    }
}

fn content(held: &Map<String, Value>, uri: &str, fill: impl Fn(&str) -> String) -> ResourceContents {
    let mut wire = json!({"uri": uri});
    if let Some(mime) = held.get("mime") {
        wire["mimeType"] = mime.clone();
    }
    match held.get("base64") {
        Some(blob) => wire["blob"] = blob.clone(),
        None => wire["text"] = json!(fill(held["text"].as_str().expect("text"))),
    }
    serde_json::from_value(wire).expect("a content")
}

fn bytes(held: &Map<String, Value>) -> Option<usize> {
    match held.get("base64").and_then(Value::as_str) {
        Some(blob) => Some(STANDARD.decode(blob).expect("base64").len()),
        None => held.get("text").and_then(Value::as_str).map(str::len),
    }
}

/// A table of the configuration with the field names of the protocol.
fn described<T: serde::de::DeserializeOwned>(held: &Map<String, Value>, mut wire: Value) -> T {
    for (key, value) in held {
        match key.as_str() {
            "name" | "title" | "description" | "icons" => wire[key] = value.clone(),
            "mime" => wire["mimeType"] = value.clone(),
            "meta" => wire["_meta"] = value.clone(),
            "audience" | "priority" => wire["annotations"][key] = value.clone(),
            "last_modified" => wire["annotations"]["lastModified"] = value.clone(),
            _ => {}
        }
    }
    serde_json::from_value(wire).expect("a resource or a template")
}

impl ServerHandler for Held {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_completions()
            .enable_resources()
            .enable_resources_list_changed()
            .enable_resources_subscribe()
            .build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("libris", env!("CARGO_PKG_VERSION")))
            .with_instructions(self.config["server"]["instructions"].as_str().expect("instructions"))
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let size = self.config["server"]["page_size"].as_u64().expect("a page size") as usize;
        let start = match request.and_then(|request| request.cursor) {
            Some(cursor) => cursor.parse().map_err(|_| ErrorData::invalid_params("not a cursor", None))?,
            None => 0,
        };
        let all: Vec<Resource> = self
            .all("resource")
            .map(|resource| described(resource, json!({"uri": resource["uri"], "size": bytes(resource)})))
            .collect();
        let end = all.len().min(start + size);
        let page = ListResourcesResult::with_all_items(all[start..end].to_vec());
        let mut result = page.with_ttl_ms(MINUTE).with_cache_scope(CacheScope::Public);
        result.next_cursor = (end < all.len()).then(|| end.to_string());
        Ok(result)
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let all: Vec<ResourceTemplate> = self
            .all("template")
            .map(|template| described(template, json!({"uriTemplate": template["uri"]})))
            .collect();
        let result = ListResourceTemplatesResult::with_all_items(all);
        Ok(result.with_ttl_ms(MINUTE).with_cache_scope(CacheScope::Public))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let result = ReadResourceResult::new(vec![self.known(&request.uri)?]);
        Ok(result.with_ttl_ms(MINUTE).with_cache_scope(CacheScope::Public).into())
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.known(&request.uri).map(drop)
    }

    async fn unsubscribe(
        &self,
        _request: UnsubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let Reference::Resource(reference) = &request.r#ref else {
            return Ok(CompleteResult::new(
                CompletionInfo::with_pagination(vec![], None, false).expect("few"),
            ));
        };
        let template = self.all("template").find(|template| template["uri"] == *reference.uri);
        let template = template.ok_or_else(|| ErrorData::invalid_params("no such template", None))?;
        let known = template["complete"][&request.argument.name].as_array();
        let known = known.ok_or_else(|| ErrorData::invalid_params("no such variable", None))?;
        let typed = &request.argument.value;
        let values = known.iter().filter_map(Value::as_str).filter(|value| value.starts_with(typed.as_str()));
        let values = values.map(str::to_owned).collect();
        Ok(CompleteResult::new(CompletionInfo::with_all_values(values).expect("few")))
    }
}
