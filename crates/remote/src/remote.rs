//! An upstream MCP server as a source.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use futures_core::stream::BoxStream;
use futures_util::stream::{self, StreamExt as _};
use libris_core::uri_template::Specificity;
use libris_core::{
    CacheScope, Change, Client, Completion, CompletionRequest, Contents, Context, DIRECTORY, Error,
    Freshness, Meta, Page, PromptCompletion, PromptContent, PromptMessage, Prompts, ReplicaKey, RequestInput,
    Resource, Result, Skill, SkillPage, Source, SourceToolResult, SourceTools, Templates, ToolContent, Uri,
    UriSpan, UriTemplate,
};
use rmcp::model::{
    ArgumentInfo, CallToolRequest, CallToolRequestParams, ClientRequest, CompleteRequest,
    CompleteRequestParams, CompletionContext, CustomResult, ErrorCode, GetPromptRequest,
    GetPromptRequestParams, ReadResourceRequest, ReadResourceRequestParams, Reference, ServerResult,
};
use rmcp::service::ServiceError;
use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;
use tokio::time::timeout;

use crate::config::{self, RemoteConfig, RemoteTarget};
use crate::convert;
use crate::fault::RemoteFault;
use crate::link::{ServerIdentity, UpstreamLink, UpstreamSession};
use crate::listing::{CacheHints, ResourceList};
use crate::mount::UriMount;
use crate::read_breaker::ReadBreaker;
use crate::upstream_watch::UpstreamEvents;
use crate::{input_required, prompt_list, skill_list, tool_list};

/// The maximum number of concurrent requests to a server. Each may hold a message of the maximum size in memory.
const CONCURRENCY: usize = 8;

/// An MCP server as a source.
///
/// It connects in the background as soon as it is created, and reconnects whenever the connection is lost. Requests
/// wait while a connection is being established, unless the previous attempt timed out, and fail between two attempts.
/// Dropping the `Remote` closes the connection and kills the process of the server.
pub struct Remote {
    config: RemoteConfig,
    link: UpstreamLink,
    events: Arc<UpstreamEvents>,
    breaker: ReadBreaker,
    /// The specificity of URIs that are neither listed nor covered by a template, but that the server may still have.
    unlisted: Specificity,
}

impl Remote {
    /// Starts to connect to a server; fails if the configuration is wrong. Must be called within a tokio runtime.
    pub fn new(config: RemoteConfig) -> Result<Self> {
        check(&config)?;
        let unlisted = UriTemplate::parse("{+uri}")?.specificity();
        let losses = Arc::default();
        let events = Arc::new(UpstreamEvents::new(config.clone(), Arc::clone(&losses)));
        let link = UpstreamLink::start(config.clone(), Arc::downgrade(&events), losses);
        let breaker = ReadBreaker::new(config.limits.retry, config.limits.timeout);
        Ok(Self { config, link, events, breaker, unlisted })
    }

    /// Who the server is and what it can do; waits for the connection.
    pub async fn identity(&self) -> Result<ServerIdentity> {
        Ok(self.session().await?.identity())
    }

    async fn session(&self) -> Result<Arc<UpstreamSession>> {
        let session = self.link.session(self.config.limits.connect_timeout).await;
        session.map_err(|fault| self.error(fault, None))
    }

    fn error(&self, fault: RemoteFault, uri: Option<&Uri>) -> Error {
        fault.into_error(&self.config, uri)
    }

    /// Waits for the response to a request, within the configured timeout.
    async fn answer<T>(
        &self,
        session: &UpstreamSession,
        request: impl Future<Output = Result<T, ServiceError>>,
    ) -> Result<T, RemoteFault> {
        let limit = self.config.limits.timeout;
        match timeout(limit, request).await {
            Ok(answer) => answer.map_err(|error| session.fault(error, limit)),
            Err(_) => Err(RemoteFault::Silent(limit)),
        }
    }

    /// The upstream URI for a served URI, exactly as the server listed it; `None` if `uri` does not have the prefix.
    fn inner(&self, uri: &Uri) -> Option<String> {
        let known = self.events.resources.known();
        let original = known.as_ref().and_then(|known| known.list.originals.get(uri));
        original.map(ToString::to_string).or_else(|| Some(self.config.mount.inner(uri)?.as_str().to_owned()))
    }

    /// Whether the server lists resources or templates with this scheme; `None` if its lists are unknown.
    fn has_scheme(&self, scheme: &str) -> Option<bool> {
        let (resources, templates) = (self.events.resources.known(), self.events.templates.known());
        if resources.is_none() && templates.is_none() {
            return None;
        }
        let lists = resources.iter().any(|known| known.list.schemes.contains(scheme));
        Some(lists || templates.iter().any(|known| known.list.schemes.contains(scheme)))
    }

    /// Requests the completion of a variable or an argument. If the server does not support completion, there are no
    /// values.
    async fn completed(
        &self,
        session: &UpstreamSession,
        mut params: CompleteRequestParams,
        known: &BTreeMap<String, String>,
        limit: usize,
    ) -> Result<Completion> {
        if session.info.capabilities.completions.is_none() {
            return Ok(Completion::default());
        }
        if !known.is_empty() {
            let known = known.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
            params = params.with_context(CompletionContext::with_arguments(known));
        }
        let request = ClientRequest::CompleteRequest(CompleteRequest::new(params));
        let completion = match self.answer(session, session.request(request, None)).await {
            Ok(ServerResult::CompleteResult(answer)) => answer.completion,
            Ok(_) => {
                let (method, cause) = ("completion/complete", "it has another shape".to_owned());
                return Err(self.error(RemoteFault::WrongResult { method, cause }, None));
            }
            Err(RemoteFault::Refused { code, .. }) if code == ErrorCode::METHOD_NOT_FOUND.0 => {
                return Ok(Completion::default());
            }
            Err(fault) => return Err(self.error(fault, None)),
        };
        let (total, mut more) = (completion.total.map(u64::from), completion.has_more.unwrap_or(false));
        let mut values = completion.values;
        more |= values.len() > limit;
        values.truncate(limit);
        // A server says nothing about how long a completion stays right, so it is not cached.
        Ok(Completion { values, total, more, proof: None })
    }

    /// The connection and the upstream name of a prompt; `None` if the server does not list the prompt.
    async fn own_prompt<'a>(&self, name: &'a str) -> Result<Option<(Arc<UpstreamSession>, &'a str)>> {
        let Some(inner) = self.config.mount.inner_name(name).filter(|_| self.config.prompts) else {
            return Ok(None);
        };
        let session = self.session().await?;
        let snapshot =
            self.events.current_prompts(&session).await.map_err(|fault| self.error(fault, None))?;
        let is_own = snapshot.list.prompts.iter().any(|prompt| prompt.name == name);
        Ok(is_own.then_some((session, inner)))
    }

    /// The connection and the upstream name of a tool; `None` if the server does not list the tool.
    async fn own_tool<'a>(&self, name: &'a str) -> Result<Option<(Arc<UpstreamSession>, &'a str)>> {
        let Some(inner) = self.config.mount.inner_name(name).filter(|_| self.config.tools) else {
            return Ok(None);
        };
        let session = self.session().await?;
        let snapshot = self.events.current_tools(&session).await.map_err(|fault| self.error(fault, None))?;
        let is_own = snapshot.list.tools.binary_search_by(|tool| (*tool.name).cmp(name)).is_ok();
        Ok(is_own.then_some((session, inner)))
    }

    /// The error for a result that does not answer the request: the server asks for input, or the result is of another type.
    fn unfinished(&self, method: &'static str, result: ServerResult, context: &Context) -> Error {
        let result = as_json(result);
        let fault = match input_required::is_asked(&result) {
            true => match input_required::required(method, result, context.input()) {
                Ok(required) => return Error::InputRequired(Box::new(required)),
                Err(fault) => fault,
            },
            false => RemoteFault::WrongResult { method, cause: "it has another shape".to_owned() },
        };
        self.error(fault, None)
    }

    async fn read_upstream(&self, uri: &Uri, inner: &str, context: &Context) -> Result<Contents> {
        let session = self.session().await?;
        let validity = self.events.updates.begin(inner, self.link.losses());
        let input = context.input();
        let mut params = ReadResourceRequestParams::new(inner);
        (params.input_responses, params.request_state) = input.map(input_required::given).unwrap_or_default();
        let request = ClientRequest::ReadResourceRequest(ReadResourceRequest::new(params));
        let admitted = self.breaker.admit().map_err(|fault| self.error(fault, Some(uri)))?;
        let answer = self.answer(&session, session.request(request, input)).await;
        self.breaker.record(admitted, &answer);
        let result = match answer.map_err(|fault| self.error(fault, Some(uri)))? {
            ServerResult::ReadResourceResult(result) => result,
            other => return Err(self.unfinished("resources/read", other, context)),
        };
        // A response that depends on the user's input is for this caller only.
        let hints = match input.is_some_and(RequestInput::is_retry) {
            true => CacheHints::default(),
            false => convert::hints(result.ttl_ms, result.cache_scope),
        };
        let parts =
            result.contents.into_iter().map(|part| convert::content(part, (inner, uri), &self.config.mount));
        let parts = parts.collect::<Result<Vec<_>, _>>().map_err(|fault| self.error(fault, Some(uri)))?;
        context.grow(parts.iter().map(|part| part.body.len() as u64).sum())?;
        Ok(Contents { parts, freshness: validity.freshness(hints, self.config.callers) })
    }
}

/// Refuses a configuration with which every attempt to connect would fail.
fn check(config: &RemoteConfig) -> Result<()> {
    let RemoteTarget::Http { url, token, headers, .. } = &config.target else { return Ok(()) };
    let uri = Uri::parse(url)?;
    if !matches!(uri.scheme(), "http" | "https") || uri.authority().is_none_or(str::is_empty) {
        return Err(Error::invalid(
            "the URL of an MCP server must begin with `https://` or `http://` and have a host",
        ));
    }
    if token.is_some() || !headers.is_empty() {
        config::check_credentials(&uri)?;
    }
    for (name, value) in headers {
        if http::HeaderName::from_bytes(name.as_bytes()).is_err()
            || http::HeaderValue::from_str(value).is_err()
        {
            return Err(Error::invalid(format!(
                "`{name}` is not a valid HTTP header, or its value is not; hint: use letters, digits and `-` in the name, \
                 and no line breaks in the value"
            )));
        }
    }
    Ok(())
}

/// A result as JSON. In an event stream, rmcp recognises results by their shape, so the type may be any that fits.
fn as_json(result: ServerResult) -> Value {
    match result {
        ServerResult::CustomResult(result) => result.0,
        // By way of text, because `serde_json::Value` would turn the `f32` 0.8 into 0.800000011920929.
        other => {
            let text = serde_json::to_string(&other).unwrap_or_default();
            serde_json::from_str(&text).unwrap_or_default()
        }
    }
}

/// The size of the data in a content block, in bytes.
fn block_bytes(content: &ToolContent) -> usize {
    let text = |block: &Meta, name: &str| block.get(name).and_then(Value::as_str).map_or(0, str::len);
    let embedded = content.block.get("resource").and_then(Value::as_object);
    let embedded = embedded.map_or(0, |resource| text(resource, "text") + text(resource, "blob"));
    text(&content.block, "text") + text(&content.block, "data") + embedded
}

/// The size of the contents in a message, in bytes.
fn message_bytes(message: &PromptMessage) -> u64 {
    let bytes = match &message.content {
        PromptContent::Text(text) => text.len(),
        PromptContent::Embedded(content) => content.body.len(),
        PromptContent::Media { data, .. } => data.len(),
        PromptContent::Resource(_) | PromptContent::Link(_) => 0,
    };
    bytes as u64
}

/// One page of resources in URI order.
fn page<'a>(resources: impl Iterator<Item = &'a Resource>, limit: usize) -> Page {
    let mut rest = resources.peekable();
    let resources = rest.by_ref().take(limit).cloned().collect();
    Page { resources, more: rest.peek().is_some(), ..Page::default() }
}

/// The resources of a list after a URI.
fn after<'a>(list: &'a ResourceList, after: Option<&Uri>) -> impl Iterator<Item = &'a Resource> {
    let start = after.map_or(0, |after| list.resources.partition_point(|resource| resource.uri <= *after));
    list.resources[start..].iter()
}

/// Whether a URI is directly below another.
fn is_directly_below(uri: &Uri, directory: &Uri) -> bool {
    let directory = directory.as_str();
    let directory = directory.strip_suffix('/').unwrap_or(directory);
    let below = uri.as_str().strip_prefix(directory).and_then(|rest| rest.strip_prefix('/'));
    below.is_some_and(|name| !name.is_empty() && !name.trim_end_matches('/').contains('/'))
}

#[async_trait]
impl Source for Remote {
    fn covers(&self, uri: &Uri) -> Option<Specificity> {
        self.config.mount.inner(uri)?;
        if let Some(known) = self.events.resources.known()
            && known.list.find(uri).is_some()
        {
            return Some(Specificity::EXACT);
        }
        if let Some(known) = self.events.templates.known()
            && let Some((template, ..)) = known.list.set.closest(uri)
        {
            return Some(template.specificity());
        }
        // With a prefix, only this source can have the URI. Without one, the server gets only URIs with schemes that it
        // lists, because it must not learn URIs of other sources. Until its lists are known, it gets URIs of any
        // scheme.
        let is_own = self.config.mount != UriMount::Kept || self.has_scheme(uri.scheme()).unwrap_or(true);
        is_own.then_some(self.unlisted)
    }

    fn may_appear(&self, uri: &Uri) -> bool {
        self.covers(uri).is_some()
    }

    fn is_exclusive(&self) -> bool {
        true
    }

    fn name(&self) -> Cow<'_, str> {
        format!("mcp {}", self.config.name).into()
    }

    fn span(&self) -> Option<UriSpan> {
        self.config.mount.span()
    }

    async fn list(&self, start: Option<&Uri>, limit: usize, _context: &Context) -> Result<Page> {
        let session = self.session().await?;
        let snapshot =
            self.events.current_resources(&session).await.map_err(|fault| self.error(fault, None))?;
        Ok(Page { freshness: snapshot.freshness(), ..page(after(&snapshot.list, start), limit) })
    }

    async fn read(&self, uri: &Uri, context: &Context) -> Result<Contents> {
        let Some(inner) = self.inner(uri) else { return Err(Error::NotFound(uri.clone())) };
        self.read_upstream(uri, &inner, context).await
    }

    /// `None` for a program, which may answer differently on each machine, and with a stored token, which may belong to
    /// another account on each replica.
    fn replica_key(&self, _uri: &Uri) -> Option<ReplicaKey> {
        let RemoteTarget::Http { url, token, headers, stored } = &self.config.target else { return None };
        let is_account_known = token.is_some() || stored.as_ref().is_none_or(|stored| !stored.has_token(url));
        let text = || format!("{url} {token:?} {headers:?} {:?}", self.config.mount);
        is_account_known.then(|| ReplicaKey { text: text(), scope: CacheScope::Public })
    }

    async fn templates(&self, _context: &Context) -> Result<Templates> {
        let session = self.session().await?;
        let snapshot =
            self.events.current_templates(&session).await.map_err(|fault| self.error(fault, None))?;
        let (templates, freshness) = (snapshot.list.templates.clone(), snapshot.freshness());
        Ok(Templates { templates, freshness, ..Templates::default() })
    }

    async fn complete(&self, partial: CompletionRequest<'_>, _context: &Context) -> Result<Completion> {
        let session = self.session().await?;
        let known = self.events.templates.known();
        let original = known.as_ref().and_then(|known| known.list.originals.get(partial.template.as_str()));
        let Some(original) = original else { return Ok(Completion::default()) };
        if !partial.template.variables().any(|name| name == partial.variable) {
            return Ok(Completion::default());
        }
        let argument = ArgumentInfo::new(partial.variable, partial.typed);
        let params = CompleteRequestParams::new(Reference::for_resource(&**original), argument);
        self.completed(&session, params, partial.known, partial.limit).await
    }

    async fn children(
        &self,
        uri: &Uri,
        start: Option<&Uri>,
        limit: usize,
        _context: &Context,
    ) -> Result<Page> {
        let session = self.session().await?;
        if session.reads_directories()
            && let Some(inner) = self.inner(uri)
        {
            let children = self.events.current_directory(&session, &inner).await;
            let children = children.map_err(|fault| match (&fault, fault.is_not_found()) {
                (RemoteFault::Refused { code, .. }, false) if *code == ErrorCode::INVALID_PARAMS.0 => {
                    Error::NotDirectory(uri.clone())
                }
                _ => self.error(fault, Some(uri)),
            });
            if let Some(children) = children? {
                return Ok(Page {
                    freshness: children.freshness(),
                    ..page(after(&children.list, start), limit)
                });
            }
        }
        let snapshot =
            self.events.current_resources(&session).await.map_err(|fault| self.error(fault, None))?;
        match snapshot.list.find(uri) {
            None => Err(Error::NotFound(uri.clone())),
            Some(resource) if resource.mime.as_deref() != Some(DIRECTORY) => {
                Err(Error::NotDirectory(uri.clone()))
            }
            Some(_) => {
                let below =
                    after(&snapshot.list, start).filter(|resource| is_directly_below(&resource.uri, uri));
                Ok(Page { freshness: snapshot.freshness(), ..page(below, limit) })
            }
        }
    }

    fn has_directories(&self) -> bool {
        true
    }

    async fn skills(&self, start: Option<&Uri>, limit: usize, _context: &Context) -> Result<SkillPage> {
        let session = self.session().await?;
        let snapshot = self.events.current_skills(&session).await.map_err(|fault| self.error(fault, None))?;
        let all = &snapshot.list.skills;
        let rest = &all[start.map_or(0, |start| all.partition_point(|skill| skill.uri <= *start))..];
        let skills = rest.iter().take(limit).cloned().collect();
        let (more, freshness) = (rest.len() > limit, snapshot.freshness());
        Ok(SkillPage { skills, more, freshness, ..SkillPage::default() })
    }

    async fn skill(&self, uri: &Uri, _context: &Context) -> Result<(Skill, Freshness)> {
        let session = self.session().await?;
        let inner = self.inner(uri).filter(|_| session.supports_skills());
        let Some(inner) = inner else { return Err(Error::NotFound(uri.clone())) };
        let request = session.custom(skill_list::GET, Some(json!({ "uri": inner })));
        let skill = match self.answer(&session, request).await {
            Ok(result) => skill_list::requested(result, &self.config.mount),
            // The extension prescribes this error code for a URI that is not a skill.
            Err(RemoteFault::Refused { code, .. }) if code == ErrorCode::INVALID_PARAMS.0 => {
                return Err(Error::NotFound(uri.clone()));
            }
            Err(fault) => Err(fault),
        };
        Ok((skill.map_err(|fault| self.error(fault, Some(uri)))?, Freshness::unproven()))
    }

    async fn prompts(&self, _context: &Context) -> Result<Prompts> {
        if !self.config.prompts {
            return Ok(Prompts::default());
        }
        let session = self.session().await?;
        let snapshot =
            self.events.current_prompts(&session).await.map_err(|fault| self.error(fault, None))?;
        let (prompts, freshness) = (snapshot.list.prompts.clone(), snapshot.freshness());
        Ok(Prompts { prompts, freshness, ..Prompts::default() })
    }

    async fn prompt(
        &self,
        name: &str,
        arguments: &BTreeMap<String, String>,
        context: &Context,
    ) -> Result<Option<Vec<PromptMessage>>> {
        let Some((session, inner)) = self.own_prompt(name).await? else { return Ok(None) };
        let mut params = GetPromptRequestParams::new(inner);
        if !arguments.is_empty() {
            let given = arguments.iter().map(|(name, value)| (name.clone(), value.clone().into()));
            params = params.with_arguments(given.collect());
        }
        let input = context.input();
        (params.input_responses, params.request_state) = input.map(input_required::given).unwrap_or_default();
        let request = ClientRequest::GetPromptRequest(GetPromptRequest::new(params));
        let answer = self.answer(&session, session.request(request, input)).await;
        let result = match answer.map_err(|fault| self.error(fault, None))? {
            ServerResult::GetPromptResult(result) => result,
            other => return Err(self.unfinished("prompts/get", other, context)),
        };
        let messages = result.messages.into_iter();
        let messages = messages.map(|message| prompt_list::message(message, &self.config.mount));
        let messages: Vec<_> = messages.collect::<Result<_, _>>().map_err(|fault| self.error(fault, None))?;
        context.grow(messages.iter().map(message_bytes).sum())?;
        Ok(Some(messages))
    }

    async fn complete_prompt(
        &self,
        partial: PromptCompletion<'_>,
        _context: &Context,
    ) -> Result<Option<Completion>> {
        let Some((session, inner)) = self.own_prompt(partial.prompt).await? else { return Ok(None) };
        let argument = ArgumentInfo::new(partial.argument, partial.typed);
        let params = CompleteRequestParams::new(Reference::for_prompt(inner), argument);
        self.completed(&session, params, partial.known, partial.limit).await.map(Some)
    }

    fn has_tools(&self) -> bool {
        self.config.tools
    }

    async fn tools(&self, _context: &Context) -> Result<SourceTools> {
        if !self.config.tools {
            return Ok(SourceTools::default());
        }
        let session = self.session().await?;
        let snapshot = self.events.current_tools(&session).await.map_err(|fault| self.error(fault, None))?;
        let (tools, freshness) = (snapshot.list.tools.clone(), snapshot.freshness());
        Ok(SourceTools { tools, freshness, ..SourceTools::default() })
    }

    async fn call_tool(
        &self,
        name: &str,
        arguments: Meta,
        context: &Context,
    ) -> Result<Option<SourceToolResult>> {
        let Some((session, inner)) = self.own_tool(name).await? else { return Ok(None) };
        let mut params = CallToolRequestParams::new(inner.to_owned());
        if !arguments.is_empty() {
            params = params.with_arguments(arguments);
        }
        let input = context.input();
        (params.input_responses, params.request_state) = input.map(input_required::given).unwrap_or_default();
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let answer = self.answer(&session, session.request(request, input)).await;
        let result = as_json(answer.map_err(|fault| self.error(fault, None))?);
        if input_required::is_asked(&result) {
            return Err(self.unfinished(tool_list::CALL, CustomResult::new(result).into(), context));
        }
        let result = tool_list::result(result, &self.config.mount);
        let result = result.map_err(|fault| self.error(fault, None))?;
        let bytes: usize = result.content.iter().map(block_bytes).sum();
        context.grow(bytes as u64)?;
        Ok(Some(result))
    }

    fn follow(&self, subject: &Uri, _client: Client) {
        if let Some(inner) = self.inner(subject) {
            self.events.follow(inner, subject.clone());
        }
    }

    fn unfollow(&self, subject: &Uri) {
        self.events.unfollow(subject);
    }

    fn concurrency(&self) -> usize {
        CONCURRENCY
    }

    async fn verify(&self) -> Result<Vec<Error>> {
        self.session().await.map(|_| Vec::new())
    }

    async fn watch(&self) -> Result<Option<BoxStream<'static, Change>>> {
        let changes = stream::unfold(self.events.watch(), async |mut changes| match changes.recv().await {
            Ok(change) => Some((change, changes)),
            Err(RecvError::Lagged(_)) => Some((Change::Lost, changes)),
            Err(RecvError::Closed) => None,
        });
        Ok(Some(changes.boxed()))
    }

    /// Ends the connection and the process of the server.
    async fn close(&self) {
        self.link.close().await;
    }
}
