//! The tools of one caller: lists and calls them, caches the results of reads, and writes the audit log.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use libris_core::{Context, Freshness, Proof, SourceTool, SourceTools, Uri};
use libris_wire::{Answer, AppPage, CacheableRequest, Call, Failure, Reply};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::audit::Audited;
use crate::caller_view::{CallerView, unavailable_meta, unknown_cursor};
use crate::cursor::{self, ListKind};
use crate::rights::{Decision, Operation};
use crate::server::to_failure;
use crate::tools::output::{self, ToolError};
use crate::tools::{self, AppTool, TemplateTool, Tool, ToolCall, ToolReply, ToolsConfig};
use crate::view::ViewSnapshot;

/// The operation in the audit log for the call of a tool of a source.
const SOURCE_TOOL_OPERATION: &str = "tool";

/// The parameters of `tools/call`.
#[derive(Deserialize)]
struct ToolParams<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
}

/// The parameters of `tools/list`.
#[derive(Deserialize)]
struct ToolListParams<'a> {
    #[serde(borrow, default)]
    cursor: Option<Cow<'a, str>>,
}

/// A tool that a call names.
enum NamedTool {
    Own(Tool),
    OfTemplate(Box<TemplateTool>),
    OfApp(AppTool),
    OfSource,
}

impl CallerView {
    /// The tools that the caller may use.
    fn tools(&self) -> Vec<Tool> {
        let mut tools = Tool::configured(&self.inner.config.tools);
        if !tools.is_empty() {
            let view = self.view.snapshot();
            tools.retain(|tool| tools::decide(&view, tool.name()) != Decision::Deny);
        }
        tools
    }

    /// Whether the caller may use tools of this server.
    pub(crate) fn has_own_tools(&self) -> bool {
        !self.tools().is_empty()
    }

    /// Whether the caller has tools, or may have those of a source.
    pub(crate) fn has_tools(&self) -> bool {
        self.has_own_tools() || self.inner.source.has_tools()
    }

    /// The page of the picker; `None` if the caller may not use it. A tool opens the page, so a caller without tools
    /// has no picker.
    pub(crate) fn app(&self) -> Option<&Arc<dyn AppPage>> {
        let app = self.inner.config.app.as_ref()?;
        let is_denied = tools::decide(&self.view.snapshot(), AppTool::Open.name()) == Decision::Deny;
        (!is_denied && self.has_own_tools()).then_some(app)
    }

    /// The tools that are generated from templates, including those that rules deny.
    async fn template_tools(
        &self,
        view: &ViewSnapshot<'_>,
        context: &Context,
    ) -> Result<Vec<TemplateTool>, Failure> {
        let ToolsConfig { enabled, templates, .. } = self.inner.config.tools;
        if !enabled || !templates {
            return Ok(Vec::new());
        }
        let templates = view.templates(context).await.map_err(to_failure)?;
        Ok(TemplateTool::all(templates.templates))
    }

    /// The tools of sources that the caller may use and whose names no tool of this server has.
    async fn source_tools(
        &self,
        view: &ViewSnapshot<'_>,
        templates: &[TemplateTool],
        context: &Context,
    ) -> Result<SourceTools, Failure> {
        let mut listed = view.tools(context).await.map_err(to_failure)?;
        let is_own = |tool: &SourceTool| {
            Tool::named(&tool.name, &self.inner.config.tools).is_some()
                || templates.iter().any(|own| own.name == tool.name)
                || (self.inner.config.app.is_some() && AppTool::named(&tool.name).is_some())
        };
        if listed.tools.iter().any(is_own) {
            let (own, others): (Vec<_>, Vec<_>) = listed.tools.iter().cloned().partition(is_own);
            own.iter().for_each(|tool| self.inner.shadowed_tools.log(tool));
            listed.tools = others.into();
        }
        Ok(listed)
    }

    /// Answers `tools/list`.
    pub(crate) async fn tool_list(&self, call: &Call, params: &str) -> Answer {
        let params: ToolListParams<'_> =
            serde_json::from_str(params).map_err(|_| Failure::invalid("`cursor` must be a string"))?;
        let after = match &params.cursor {
            None => None,
            Some(cursor) => Some(cursor::decode(ListKind::Tools, cursor).ok_or_else(unknown_cursor)?),
        };
        let (view, context, facts) = (self.view.snapshot(), self.context(call), call.revision.facts());
        let mut templates = self.template_tools(&view, &context).await?;
        let has_source_tools = self.inner.source.has_tools();
        let listed = match has_source_tools {
            true => self.source_tools(&view, &templates, &context).await?,
            false => SourceTools::default(),
        };
        templates.retain(|tool| tools::decide(&view, &tool.name) != Decision::Deny);
        let apps: &[AppTool] = if call.shows_apps() && self.app().is_some() { &AppTool::ALL } else { &[] };
        // All tools of this server are on the first page. The following pages have only tools of sources; their cursor
        // is the name of a source's tool.
        let mut definitions = match after {
            None => tools::definitions(&self.tools(), &templates, apps, facts),
            Some(_) => Vec::new(),
        };
        let start = after.map_or(0, |after| listed.tools.partition_point(|tool| tool.name <= after));
        let rest = &listed.tools[start..];
        let page = &rest[..rest.len().min(self.page_size())];
        definitions.extend(page.iter().map(|tool| tools::source::definition(tool, facts)));
        let last = page.last().filter(|_| page.len() < rest.len());
        let next = last.map(|last| cursor::encode(ListKind::Tools, &last.name));
        let members = tools::page(&definitions, next.as_deref());
        let meta = unavailable_meta(&view, &listed.unavailable);
        let reply = Reply { members, freshness: Some(Freshness::default()), meta };
        if call.shows_apps() || has_source_tools {
            // Not cached: the cache key is the same for all clients, and the cached list is for clients that do not
            // show apps. The tools of sources change with the sources.
            return Ok(self.scoped(reply));
        }
        // Without a proof, the list is not cached: the tools that are generated from templates change with the
        // templates.
        let source = self.inner.source.clone();
        let proof = (!self.inner.config.tools.templates).then(|| Proof::new(move || !source.has_tools()));
        let (class, request) = (view.rights().class(), CacheableRequest::Tools(None));
        Ok(self.scoped(self.inner.cache.insert(class, call.revision, request, reply, proof)))
    }

    /// Answers `tools/call`.
    pub(crate) async fn call_tool(&self, call: &Call, params: &str) -> Answer {
        let ToolParams { name, arguments } = serde_json::from_str(params)
            .map_err(|_| Failure::invalid("`name` is missing, or not a string"))?;
        let config = &self.inner.config.tools;
        let view = self.view.snapshot();
        let context = self.reading_context(call);
        let of_app = || AppTool::named(&name).filter(|_| self.app().is_some());
        let tool =
            match Tool::named(&name, config).map(NamedTool::Own).or_else(|| of_app().map(NamedTool::OfApp)) {
                Some(tool) => tool,
                None => {
                    let templates = self.template_tools(&view, &context).await?;
                    match templates.into_iter().find(|tool| tool.name == *name) {
                        Some(tool) => NamedTool::OfTemplate(Box::new(tool)),
                        None if self.inner.source.has_tools() => NamedTool::OfSource,
                        None => return Err(tools::unknown(&name, &self.tools())),
                    }
                }
            };
        // The rule for the tool that opens the picker decides about both tools of the picker.
        let decided: &str = if let NamedTool::OfApp(_) = tool { AppTool::Open.name() } else { &name };
        let decision = match tool {
            NamedTool::OfSource => view.decide_source_tool(&name),
            _ => tools::decide(&view, decided),
        };
        let refusal = match decision {
            Decision::Allow => None,
            Decision::Deny => Some(tools::unknown(&name, &self.tools())),
            Decision::Require(scopes) => {
                let message = format!("the tool `{name}` requires the scope `{}`", scopes.join(" "));
                Some(Failure::ScopeRequired { scopes, message })
            }
        };
        if let Some(refusal) = refusal {
            self.audit_refused_tool(call, &tool, decided, &refusal);
            return Err(refusal);
        }
        let arguments = arguments.map_or("", RawValue::get);
        let running = ToolCall { view: &view, context: &context, call, inner: &self.inner };
        let ToolReply { mut output, freshness, uri } = match &tool {
            NamedTool::OfSource => return self.call_source_tool(call, &running, &name, arguments).await,
            NamedTool::Own(tool) => running.run(*tool, arguments).await,
            NamedTool::OfTemplate(tool) => running.run_template(tool, arguments).await,
            NamedTool::OfApp(tool) => {
                let output = running.run_app(*tool, arguments).await;
                ToolReply { output, freshness: Freshness::unproven(), uri: None }
            }
        };
        let quoted = output.as_mut().map(|output| std::mem::take(&mut output.quoted)).unwrap_or_default();
        let (answer, failure) = match output {
            Ok(output) => (Ok(output.encode(call.revision.facts())), None),
            Err(ToolError::Told(message)) => (Ok(output::error(&message)), Some(Failure::invalid(message))),
            Err(ToolError::Missing(message)) => {
                (Ok(output::error(&message)), Some(Failure::not_found(uri.clone().unwrap_or_default())))
            }
            Err(ToolError::Failed(failure)) => (Err(failure.clone()), Some(failure)),
        };
        let outcome = match (&answer, &failure) {
            (Ok(members), None) => Ok(members.size()),
            (_, Some(failure)) | (Err(failure), None) => Err(failure),
        };
        let kind = match tool {
            NamedTool::Own(tool) => Some(tool),
            NamedTool::OfTemplate(_) => Some(Tool::Read),
            NamedTool::OfSource => None,
            // The methods that answer the requests of the page record each request themselves.
            NamedTool::OfApp(_) => None,
        };
        if let Some(kind) = kind {
            self.audit_tool(call, kind, uri.as_deref(), call.elapsed(), outcome);
        }
        for (uri, bytes) in quoted {
            self.audit_part(call, &uri, call.elapsed(), Ok(bytes));
        }
        let reply = Reply { members: answer?, freshness: None, meta: Bytes::new() };
        // A result that depends on the caller's identity must not be cached for others. Errors are not cached at all.
        let proof = freshness.proof.filter(|_| failure.is_none() && !context.identity_was_used());
        let request = CacheableRequest::Tool { name: &name, arguments };
        Ok(self.inner.cache.insert(view.rights().class(), call.revision, request, reply, proof))
    }

    /// Calls a tool of a source. The result is not cached: the call may have effects.
    async fn call_source_tool(
        &self,
        call: &Call,
        running: &ToolCall<'_>,
        name: &str,
        arguments: &str,
    ) -> Answer {
        let called = running.run_source_tool(name, arguments, &self.tools()).await;
        let (answer, failure) = match called {
            Ok(result) => (Ok(tools::source::reply(result, call.revision.facts())), None),
            Err(ToolError::Told(message) | ToolError::Missing(message)) => {
                let members = output::error(&message);
                let reply = Reply { members, freshness: None, meta: Bytes::new() };
                (Ok(reply), Some(Failure::invalid(message)))
            }
            Err(ToolError::Failed(failure)) => (Err(failure.clone()), Some(failure)),
        };
        if self.inner.audit.is_some() {
            let uri = tools::uri_of(name);
            let audited = Audited {
                view: &self.view,
                client: call.client,
                operation: SOURCE_TOOL_OPERATION,
                right: Some(Operation::Read),
                uri: uri.as_ref().map(Uri::as_str),
                decisive: None,
                took: call.elapsed(),
            };
            let outcome = match (&answer, &failure) {
                (Ok(reply), None) => Ok(reply.members.size()),
                (_, Some(failure)) | (Err(failure), None) => Err(failure),
            };
            self.inner.audit(&audited, outcome);
        }
        answer
    }

    /// Records in the audit log that a rule refused a tool. The URI in the record is that of the tool.
    fn audit_refused_tool(&self, call: &Call, tool: &NamedTool, name: &str, refusal: &Failure) {
        if self.inner.audit.is_some() {
            let operation = match tool {
                NamedTool::Own(tool) => audited(*tool).0,
                NamedTool::OfTemplate(_) | NamedTool::OfApp(_) => Operation::Read.name(),
                NamedTool::OfSource => SOURCE_TOOL_OPERATION,
            };
            let uri = tools::uri_of(name);
            let audited = Audited {
                view: &self.view,
                client: call.client,
                operation,
                right: Some(Operation::Read),
                uri: uri.as_ref().map(Uri::as_str),
                decisive: None,
                took: call.elapsed(),
            };
            self.inner.audit(&audited, Err(refusal));
        }
    }

    fn audit_tool(
        &self,
        call: &Call,
        tool: Tool,
        uri: Option<&str>,
        took: Duration,
        outcome: Result<usize, &Failure>,
    ) {
        if self.inner.audit.is_some() {
            let (operation, right) = audited(tool);
            let (view, client) = (&*self.view, call.client);
            let audited = Audited { view, client, operation, right, uri, decisive: None, took };
            self.inner.audit(&audited, outcome);
        }
    }

    /// The fields of the audit record for a cached result of a tool: the operation, the right that decides about it,
    /// and the URI of the resource.
    pub(crate) fn audited_tool(
        name: &str,
        arguments: &str,
        config: &ToolsConfig,
    ) -> (&'static str, Option<Operation>, Option<String>) {
        let (operation, right) = Tool::named(name, config).map_or((Operation::Read.name(), None), audited);
        (operation, right, tools::subject(arguments))
    }
}

/// The operation of a tool in the audit log, and the right that decides about it.
fn audited(tool: Tool) -> (&'static str, Option<Operation>) {
    match tool {
        Tool::Search | Tool::Bundle | Tool::ConnectorSearch => (Operation::Search.name(), None),
        Tool::Read | Tool::ConnectorFetch => (Operation::Read.name(), Some(Operation::Read)),
        Tool::List => (Operation::List.name(), None),
    }
}
