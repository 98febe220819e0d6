//! The wire's `ServiceView` of one caller: answers its requests from the catalog, encodes the responses and caches
//! them.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use libris_core::{
    CacheScope, Completion, CompletionRequest, ContentMemory, Contents, Context, Error, Freshness, Identity,
    Progress, Templates, UnavailableSource, Uri, UriTemplate,
};
use libris_wire::{
    APPS_EXTENSION, Answer, CacheableRequest, Call, Capabilities, Client, CompletionParams, Era, Failure,
    Listener, Members, PrefixEntry, PrefixPage, Reference, Reply, Revision,
};

use crate::audit::AuditedListener;
use crate::cursor;
use crate::directory;
use crate::encode::{self, PageWriter};
use crate::prompts;
use crate::rights::{Operation, Rights};
use crate::server::{ServerInner, to_failure};
use crate::skills;
use crate::status;
use crate::tools;
use crate::view::{View, ViewSnapshot};

/// Loaded contents of up to this many bytes need no memory reservation; larger contents are refused if memory is short.
const UNRESERVED_BYTES: usize = 64 << 10;

/// The name of the array in the empty result of a method that lists items of a capability which this server does not
/// declare; `None` for all other methods. Some hosts request these lists from every server and disconnect on an error.
/// From protocol revision 2026-07-28 on, a method without its capability must be unknown.
fn undeclared_list(revision: Revision, method: &str) -> Option<&'static str> {
    match (method, revision.facts().era) {
        ("tools/list", Era::Legacy) => Some("tools"),
        _ => None,
    }
}

/// The view of one caller, with the caches and subscriptions of its server.
pub(crate) struct CallerView {
    pub(crate) inner: Arc<ServerInner>,
    pub(crate) view: Arc<View>,
    /// The key under which quotas count the caller; `None` for an anonymous caller.
    pub(crate) client: Option<Client>,
}

impl CallerView {
    pub(crate) fn new(inner: Arc<ServerInner>, identity: Option<Identity>) -> Self {
        let client = identity.as_ref().map(Client::of);
        let view = View::new(inner.source.clone(), inner.access.clone(), identity);
        Self { inner, view: Arc::new(view), client }
    }

    /// The view that requests are answered from.
    pub(crate) fn view(&self) -> &View {
        &self.view
    }

    /// The number of items per page.
    pub(crate) fn page_size(&self) -> usize {
        self.inner.config.page.max(1)
    }

    /// Whether the policy is still the one for which the view was created, and no identity was revoked since.
    pub(crate) fn is_current(&self) -> bool {
        self.view.is_current()
    }

    /// The context that sources receive for a call.
    pub(crate) fn context(&self, call: &Call) -> Context {
        let identity = self.view.identity().cloned();
        let context = Context::default().with_identity(identity).with_client(call.client);
        match call.wants_progress() {
            true => context.with_progress(Arc::new(CallReporter(call.clone()))),
            false => context,
        }
    }

    /// The context for reads. The contents that a source loads count against the memory limit for responses.
    pub(crate) fn reading_context(&self, call: &Call) -> Context {
        self.context(call).with_memory(Arc::new(CallReporter(call.clone())))
    }

    /// Makes the cache scope of a response private if the policy distinguishes callers. This happens after the cache
    /// lookup, because the policy may be replaced while a response is cached.
    pub(crate) fn scoped(&self, reply: Reply) -> Reply {
        match self.inner.access.is_open() {
            true => reply,
            false => Reply {
                freshness: reply.freshness.map(|freshness| freshness.with_scope(CacheScope::Private)),
                ..reply
            },
        }
    }

    /// Caches a response for the rights class if the response has a proof of freshness. Returns the response to send.
    fn cache(
        &self,
        rights: &Rights,
        call: &Call,
        request: CacheableRequest<'_>,
        made: EncodedResponse<'_>,
    ) -> Reply {
        let EncodedResponse { members, mut freshness, meta, context } = made;
        // A response that depends on the caller's identity must not be cached for others.
        let proof = freshness.proof.take().filter(|_| !context.identity_was_used());
        let reply = Reply { members, freshness: Some(freshness), meta };
        self.scoped(self.inner.cache.insert(rights.class(), call.revision, request, reply, proof))
    }
}

#[async_trait]
impl libris_wire::ServiceView for CallerView {
    fn caller(&self) -> Option<&Identity> {
        self.view.identity()
    }

    fn authentication_ended(&self) -> Option<BoxFuture<'static, ()>> {
        let identity = self.view.identity().cloned();
        Some(Box::pin(self.inner.access.clone().authentication_ended(identity)))
    }

    fn client(&self) -> Option<Client> {
        self.client
    }

    fn shows_metrics(&self) -> bool {
        self.view.snapshot().allows(Operation::Read, &status::uri())
    }

    fn capabilities(&self) -> Capabilities {
        // Skills are directories, so a server without directories does not announce the extension.
        let skills = (skills::EXTENSION.to_owned(), skills::settings());
        let skills = self.inner.source.has_directories().then_some(skills);
        let apps = self.app().map(|_| (APPS_EXTENSION.to_owned(), serde_json::json!({})));
        let extensions = skills.into_iter().chain(apps).collect();
        let prompts = Some(prompts::capability());
        let tools = self.has_tools().then(|| match self.inner.source.has_tools() {
            true => serde_json::json!({ "listChanged": true }),
            false => serde_json::json!({}),
        });
        Capabilities { live: true, tools, prompts, extensions }
    }

    async fn instructions(&self, call: &Call) -> Option<String> {
        self.generated_instructions(call).await
    }

    fn cached(&self, revision: Revision, request: CacheableRequest<'_>, since: Instant) -> Option<Answer> {
        let class = self.view.snapshot().rights().class();
        let mut answer = self.inner.cache.find(class, revision, request, since)?;
        self.audit_cached(request, since, &answer);
        if let Ok(Reply { freshness: Some(freshness), .. }) = &mut answer
            && freshness.expires.is_some()
        {
            *freshness = std::mem::take(freshness).at(Instant::now());
        }
        Some(answer.map(|reply| self.scoped(reply)))
    }

    async fn list(&self, call: &Call, cursor: Option<&str>) -> Answer {
        let answer = self.list_page(call, cursor).await;
        self.audit(call, Operation::List.name(), None, None, &answer);
        answer
    }

    async fn templates(&self, call: &Call, cursor: Option<&str>) -> Answer {
        let answer = self.template_page(call, cursor).await;
        self.audit(call, "templates", None, None, &answer);
        answer
    }

    async fn read(&self, call: &Call, uri: &str) -> Answer {
        let answer = self.contents(call, uri).await;
        self.audit(call, Operation::Read.name(), Some(Operation::Read), Some(uri), &answer);
        answer
    }

    async fn below(&self, call: &Call, prefix: &str, after: Option<&str>) -> Result<PrefixPage, Failure> {
        self.prefix_page(call, prefix, after).await
    }

    async fn describe(&self, call: &Call, uri: &str) -> Result<Option<PrefixEntry>, Failure> {
        self.prefix_entry(call, uri).await
    }

    fn answers(&self, revision: Revision, method: &str) -> bool {
        match method {
            directory::METHOD | skills::LIST | skills::GET => self.inner.source.has_directories(),
            prompts::LIST | prompts::GET => true,
            "tools/list" | "tools/call" if self.has_tools() => true,
            _ => undeclared_list(revision, method).is_some(),
        }
    }

    async fn call(&self, call: &Call, method: &str, params: &str) -> Answer {
        match method {
            directory::METHOD => return self.read_directory(call, params).await,
            skills::LIST => return self.list_skills(call, params).await,
            skills::GET => return self.read_skill(call, params).await,
            prompts::LIST => return self.list_prompts(call, params).await,
            prompts::GET => return self.read_prompt(call, params).await,
            "tools/list" if self.has_tools() => return self.tool_list(call, params).await,
            "tools/call" if self.has_tools() => return self.call_tool(call, params).await,
            _ => {}
        }
        let name = undeclared_list(call.revision, method)
            .ok_or_else(|| Failure::invalid(format!("unknown method `{method}`")))?;
        let members = PageWriter::new(name, &[(); 0], |_, ()| {}).finish();
        Ok(Reply { members, freshness: None, meta: Bytes::new() })
    }

    async fn complete(&self, call: &Call, completing: &CompletionParams) -> Answer {
        let answer = self.completion(call, completing).await;
        let template = match &completing.reference {
            Reference::Resource(template) => Some(&**template),
            Reference::Prompt(_) => None,
        };
        self.audit(call, "complete", None, template, &answer);
        answer
    }

    fn listener(&self, client: Client) -> Result<Arc<dyn Listener>, Failure> {
        let listener = self.inner.hub.listener_for(self.view.clone(), client)?;
        if self.inner.audit.is_none() {
            return Ok(listener);
        }
        let (inner, view) = (self.inner.clone(), self.view.clone());
        Ok(Arc::new(AuditedListener { listener, inner, view, client }))
    }

    fn notifies_new_streams(&self) -> bool {
        self.inner.hub.has_replicas()
    }
}

impl CallerView {
    async fn list_page(&self, call: &Call, cursor: Option<&str>) -> Answer {
        let (facts, view) = (call.revision.facts(), self.view.snapshot());
        let after = match cursor {
            None => None,
            Some(cursor) => Some(
                cursor::decode(cursor::ListKind::Resources, cursor)
                    .and_then(|last| Uri::parse(&last).ok())
                    .ok_or_else(unknown_cursor)?,
            ),
        };
        let context = self.context(call);
        let page =
            view.list(after.as_ref(), self.inner.config.page.max(1), &context).await.map_err(to_failure)?;
        let mut members = PageWriter::new("resources", &page.resources, |json, resource| {
            encode::resource(json, facts, resource);
        });
        if let Some(last) = page.resources.last().filter(|_| page.more) {
            members =
                members.text("nextCursor", &cursor::encode(cursor::ListKind::Resources, last.uri.as_str()));
        }
        let meta = unavailable_meta(&view, &page.unavailable);
        let made =
            EncodedResponse { members: members.finish(), freshness: page.freshness, meta, context: &context };
        Ok(self.cache(view.rights(), call, CacheableRequest::List(cursor), made))
    }

    async fn template_page(&self, call: &Call, cursor: Option<&str>) -> Answer {
        let (facts, view) = (call.revision.facts(), self.view.snapshot());
        let after = match cursor {
            None => String::new(),
            Some(cursor) => cursor::decode(cursor::ListKind::Templates, cursor).ok_or_else(unknown_cursor)?,
        };
        let context = self.context(call);
        let Templates { mut templates, freshness, unavailable } =
            view.templates(&context).await.map_err(to_failure)?;
        templates.sort_by(|one, other| one.uri.as_str().cmp(other.uri.as_str()));
        let start = templates.partition_point(|template| *template.uri.as_str() <= *after);
        let rest = &templates[start..];
        let page = &rest[..rest.len().min(self.inner.config.page.max(1))];
        let mut members = PageWriter::new("resourceTemplates", page, |json, template| {
            encode::template(json, facts, template);
        });
        if let Some(last) = page.last().filter(|_| page.len() < rest.len()) {
            members =
                members.text("nextCursor", &cursor::encode(cursor::ListKind::Templates, last.uri.as_str()));
        }
        let meta = unavailable_meta(&view, &unavailable);
        let made = EncodedResponse { members: members.finish(), freshness, meta, context: &context };
        Ok(self.cache(view.rights(), call, CacheableRequest::Templates(cursor), made))
    }

    async fn contents(&self, call: &Call, uri: &str) -> Answer {
        let (facts, view) = (call.revision.facts(), self.view.snapshot());
        if uri == tools::app::PICKER_URI
            && let Some(page) = self.app().and_then(|app| tools::app::content(app.document()))
        {
            let members = encode::contents(facts, vec![page]);
            return Ok(Reply { members, freshness: Some(Freshness::default()), meta: Bytes::new() });
        }
        let parsed = Uri::parse(uri).map_err(to_failure)?;
        let context = self.reading_context(call).with_input(call.input().cloned());
        let contents = match self.read_resource(call, &view, &parsed, &context).await {
            Ok(contents) => contents,
            Err(error) => return Err(self.failed_read(call, &view, uri, error, &context)),
        };
        self.reserve_loaded(call, contents.parts.iter().map(|part| part.body.len()).sum())?;
        let members = encode::contents(facts, contents.parts);
        let made =
            EncodedResponse { members, freshness: contents.freshness, meta: Bytes::new(), context: &context };
        Ok(self.cache(view.rights(), call, CacheableRequest::Read(uri), made))
    }

    /// Like `read_resource`, with the error as a failure. `requested` is the URI as the client wrote it.
    pub(crate) async fn load(
        &self,
        call: &Call,
        view: &ViewSnapshot<'_>,
        uri: &Uri,
        requested: &str,
        context: &Context,
    ) -> Result<Contents, Failure> {
        self.read_resource(call, view, uri, context).await.map_err(|error| read_failure(requested, error))
    }

    /// Reads a resource, and waits for memory if it is short.
    async fn read_resource(
        &self,
        call: &Call,
        view: &ViewSnapshot<'_>,
        uri: &Uri,
        context: &Context,
    ) -> Result<Contents, Error> {
        loop {
            match view.read(uri, context).await {
                // Memory was short: wait until it is free and read again. Meanwhile no permit of the source is held.
                Err(Error::Busy(_)) if call.memory_is_free().await => {}
                answered => return answered,
            }
        }
    }

    /// Converts the error of a read. Caches the failure if the resource is missing and the error has a proof.
    fn failed_read(
        &self,
        call: &Call,
        view: &ViewSnapshot<'_>,
        requested: &str,
        error: Error,
        context: &Context,
    ) -> Failure {
        let proof = error.proof().cloned().filter(|_| !context.identity_was_used());
        let failure = read_failure(requested, error);
        let (class, request) = (view.rights().class(), CacheableRequest::Read(requested));
        self.inner.cache.insert_missing(class, call.revision, request, &failure, proof);
        failure
    }

    /// Reserves memory for contents of this size that are already loaded.
    pub(crate) fn reserve_loaded(&self, call: &Call, size: usize) -> Result<(), Failure> {
        match size > UNRESERVED_BYTES && !call.reserve_loaded(size) {
            true => Err(to_failure(Error::NO_MEMORY)),
            false => Ok(()),
        }
    }

    /// Whether the server has the prompt `use-resources`.
    pub(crate) fn has_built_in_prompt(&self) -> bool {
        self.inner.config.built_in_prompt
    }

    async fn completion(&self, call: &Call, completing: &CompletionParams) -> Answer {
        let text = match &completing.reference {
            Reference::Resource(text) => text,
            Reference::Prompt(name) => return self.complete_prompt_argument(call, name, completing).await,
        };
        let template = UriTemplate::parse(text).map_err(to_failure)?;
        let (view, context) = (self.view.snapshot(), self.context(call));
        let completion = if template.variables().next().is_none() {
            // A URI without variables has nothing to complete, but a source must cover it.
            let uri = Uri::parse(text).map_err(to_failure)?;
            // Whoever may see the resource may learn that it has no variables.
            if !view.covers(Operation::Read, &uri).or_else(visible).map_err(to_failure)? {
                return Err(Failure::invalid(format!("unknown resource `{uri}`")));
            }
            Completion::default()
        } else if !template.variables().any(|variable| variable == completing.argument) {
            let named: String = completing.argument.chars().take(100).collect();
            return Err(Failure::invalid(format!("`{template}` has no variable `{named}`")));
        } else {
            let partial = CompletionRequest {
                template: &template,
                variable: &completing.argument,
                typed: &completing.typed,
                known: &completing.known,
                limit: Completion::LIMIT,
            };
            view.complete(partial, &context).await.map_err(to_failure)?
        };
        let reply = Reply { members: encode::completion(&completion), freshness: None, meta: Bytes::new() };
        // A completion that depends on the caller's identity must not be cached for others.
        let proof = completion.proof.filter(|_| !context.identity_was_used());
        Ok(self.inner.cache.insert(
            view.rights().class(),
            call.revision,
            completing.cacheable(),
            reply,
            proof,
        ))
    }
}

/// Converts the error of a read. The failure has the URI as it was requested, not in its normal form.
fn read_failure(requested: &str, error: Error) -> Failure {
    match error {
        Error::NotFound(_) | Error::Denied(_) => Failure::not_found(requested),
        Error::Missing { hint, .. } => Failure::NotFound { uri: requested.to_owned(), hint: Some(hint) },
        error => to_failure(error),
    }
}

/// An encoded response, and the context in which it was created.
struct EncodedResponse<'a> {
    members: Members,
    freshness: Freshness,
    /// The members of `_meta`, encoded.
    meta: Bytes,
    context: &'a Context,
}

/// The `_meta` member that lists unavailable sources, with their names if the caller may read `libris://status`.
pub(crate) fn unavailable_meta(view: &ViewSnapshot<'_>, unavailable: &[UnavailableSource]) -> Bytes {
    match unavailable {
        [] => Bytes::new(),
        sources => encode::unavailable(sources, view.allows(Operation::Read, &status::uri())),
    }
}

/// Forwards progress and memory reservations of a source to the call.
pub(crate) struct CallReporter(pub(crate) Call);

impl Progress for CallReporter {
    fn report(&self, done: u64, total: Option<u64>) {
        self.0.progress(done, total);
    }
}

impl ContentMemory for CallReporter {
    fn reserve(&self, bytes: usize) -> bool {
        self.0.reserve(bytes)
    }

    fn grow(&self, bytes: usize) -> bool {
        self.0.grow(bytes)
    }
}

/// Counts a resource as visible if the caller's token only lacks a scope for it.
fn visible(error: Error) -> Result<bool, Error> {
    match error {
        Error::ScopeRequired { .. } => Ok(true),
        error => Err(error),
    }
}

/// The error for a cursor that is corrupted or of another list.
pub(crate) fn unknown_cursor() -> Failure {
    Failure::invalid("unknown cursor; list again without a cursor")
}
