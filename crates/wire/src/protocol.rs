//! MCP independent of the transport: translates requests into calls of a service, and frames the responses.

mod introduction;
mod listen;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::FutureExt as _;
use libris_core::{CacheScope, Freshness};

use crate::envelope::{self, Framed, Id, Malformed, Message};
use crate::failure::{ErrorObject, INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST};
use crate::members::Members;
use crate::request::{ClientInfo, McpRequest, Params, RequestMeta, TOOLS_LIST, missing};
use crate::service::{CacheableRequest, Caller, Listener, Refusal, Reply, ServerInfo, Service, ServiceView};
use crate::time_limit::within_from;
use crate::{Call, Era, Limits, Revision};

use introduction::implementation;
pub(crate) use listen::{authentication_ended, follow_lists, notification};

/// The error message if there is no memory for a response.
pub(crate) const CONTENT_BUDGET_FULL: &str =
    "too many responses wait for their clients to read them; try again later";

/// An empty result.
const EMPTY: Reply = Reply { members: Members::NONE, freshness: None, meta: Bytes::new() };

/// Once the responses of a batch have this many bytes, its remaining requests are refused.
const MAX_BATCH_RESPONSE: usize = 16 << 20;

/// The `resultType` of a result that answers the request, as opposed to a result that asks for input.
const COMPLETE: &str = "complete";

/// A request that takes at least this long is logged.
const SLOW_REQUEST: Duration = Duration::from_secs(1);

/// A request whose envelope is parsed, before its parameters are validated for its method.
#[derive(Clone, Copy)]
pub(crate) struct RequestEnvelope<'a> {
    /// The time at which it arrived.
    pub(crate) arrived: Instant,
    pub(crate) id: &'a Id,
    pub(crate) method: &'a str,
    pub(crate) params: &'a Params<'a>,
    /// Whether the client shows MCP Apps. May be `false` for methods other than `tools/list` although the client shows
    /// apps, because cached responses to those methods do not depend on it.
    pub(crate) shows_apps: bool,
}

/// Why a request has no [`Reply`].
enum Unanswered {
    Error(ErrorObject),
    /// The client must repeat the request with input from its user. These are the members of the result.
    InputRequired(Members),
}

impl From<ErrorObject> for Unanswered {
    fn from(error: ErrorObject) -> Self {
        Self::Error(error)
    }
}

/// The MCP implementation for one service.
pub(crate) struct Protocol {
    service: Arc<dyn Service>,
    info: ServerInfo,
    /// The member of `_meta` that identifies the server in every result of a [modern](Era::Modern) revision, as JSON.
    server_member: String,
    /// The encoded end of a result of a modern revision without caching hints and without `_meta` members of its own.
    end: Bytes,
    /// The same with the default caching hints.
    end_with_hints: Bytes,
    pub(crate) limits: Limits,
}

impl Protocol {
    pub(crate) fn new(service: Arc<dyn Service>, limits: Limits) -> Self {
        let info = service.info();
        let server = implementation(&info, Revision::ALL[0]);
        let server_member = format!("\"io.modelcontextprotocol/serverInfo\":{server}");
        let (end, end_with_hints) = (
            end(&server_member, COMPLETE, None, &[]),
            end(&server_member, COMPLETE, Some(&Freshness::default()), &[]),
        );
        Self { service, info, server_member, end, end_with_hints, limits }
    }

    /// The view of a caller, if it is known without waiting.
    pub(crate) fn cached_view(&self, caller: &Caller<'_>) -> Option<Arc<dyn ServiceView>> {
        self.service.cached_view(caller)
    }

    /// Admits a caller and returns its view (the service as this caller may see it), or refuses it.
    pub(crate) async fn admit(&self, caller: &Caller<'_>) -> Result<Arc<dyn ServiceView>, Refusal> {
        match self.cached_view(caller) {
            Some(view) => Ok(view),
            None => self.service.admit(caller).await,
        }
    }

    /// See [`Service::scope_challenge`].
    pub(crate) fn scope_challenge(&self, scopes: &[Box<str>]) -> Option<String> {
        self.service.scope_challenge(scopes)
    }

    /// See [`Service::public_document`].
    pub(crate) fn public_document(&self, path: &str) -> Option<String> {
        self.service.public_document(path)
    }

    /// See [`Service::degradation`].
    pub(crate) fn degradation(&self) -> Option<String> {
        self.service.degradation()
    }

    /// The metrics of the service.
    pub(crate) fn counts(&self) -> Vec<(&'static str, usize)> {
        self.service.counts()
    }

    /// Answers a request within its time limit.
    pub(crate) async fn answer(&self, call: &Call, id: &Id, request: &McpRequest) -> Framed {
        let reply = AssertUnwindSafe(self.reply(call, request)).catch_unwind();
        let reply = match within_from(|| call.time_limit_start(), self.limits.time, reply).await {
            Some(Ok(reply)) => reply,
            Some(Err(_)) => {
                tracing::error!(?request, "a request ended in a panic");
                Err(Unanswered::Error(ErrorObject::new(
                    INTERNAL_ERROR,
                    "internal error; the log of the server has the details",
                )))
            }
            None => {
                tracing::warn!(?request, "a request took too long");
                let seconds = self.limits.time.as_secs();
                Err(Unanswered::Error(ErrorObject::new(
                    INTERNAL_ERROR,
                    format!(
                        "the request exceeded its time limit of {seconds} seconds; ask for less, or try again later"
                    ),
                )))
            }
        };
        let error = match &reply {
            Err(Unanswered::Error(error)) => Some(error.code),
            _ => None,
        };
        let took = call.arrived.elapsed();
        tracing::debug!(?request, error, ?took, "answered");
        log_slow_request(request, took);
        if reply.is_ok() {
            log_client(call.revision, request);
        }
        match reply {
            Ok(reply) => self.frame(call.revision, id, reply),
            Err(Unanswered::InputRequired(members)) => {
                Framed::result(id, members, end(&self.server_member, "input_required", None, &[]))
            }
            Err(Unanswered::Error(error)) => Framed::error(Some(id), &error),
        }
    }

    /// The cached response to a request; `None` if there is none.
    pub(crate) fn cached(
        &self,
        view: &dyn ServiceView,
        revision: Revision,
        listener: Option<&dyn Listener>,
        envelope: RequestEnvelope<'_>,
    ) -> Option<Framed> {
        let RequestEnvelope { arrived, id, method, params, shows_apps } = envelope;
        // The cached tool list is the one for clients that show no apps.
        if shows_apps && method == TOOLS_LIST {
            return None;
        }
        let request = params.cacheable(method)?;
        let answer = view.cached(revision, request, arrived)?;
        if let (CacheableRequest::List(_), Some(listener)) = (request, listener) {
            listener.listed();
        }
        tracing::debug!(?request, "answered at once");
        Some(match answer {
            Ok(reply) => self.frame(revision, id, reply),
            Err(failure) => Framed::failure(id, failure, revision),
        })
    }

    fn frame(&self, revision: Revision, id: &Id, reply: Reply) -> Framed {
        Framed::result(id, reply.members, self.end(revision, reply.freshness.as_ref(), &reply.meta))
    }

    /// Answers the requests of a batch one after the other, in the session of `call`. `call` is `None` before
    /// `initialize`; the response is then an error. Returns `None` if no message of the batch has a response.
    pub(crate) async fn batch(&self, call: Option<&Call>, items: &[impl AsRef<str>]) -> Option<Framed> {
        let refuse = |why| Some(Framed::error(None, &ErrorObject::new(INVALID_REQUEST, why)));
        let Some(call) = call.filter(|call| call.revision.facts().batches) else {
            return refuse("batches exist only in version 2025-03-26, after `initialize`".to_owned());
        };
        if items.len() > self.limits.batch {
            return refuse(format!("a batch may have {} messages at most", self.limits.batch));
        }
        let mut answers = BytesMut::from("[");
        for item in items {
            let Some(framed) = self.batched(call, item.as_ref(), answers.len()).await else { continue };
            if answers.len() > 1 {
                answers.put_slice(b",");
            }
            framed.pieces().for_each(|piece| answers.put_slice(&piece));
            // The responses so far stay in memory until the batch is sent. `hold` reserves this memory; from then on, the
            // remaining requests fail instead of waiting for memory, because batches that wait for each other would
            // deadlock.
            if let Some(memory) = &call.memory
                && !memory.hold(answers.len())
            {
                return Some(Framed::error(None, &ErrorObject::new(INTERNAL_ERROR, CONTENT_BUDGET_FULL)));
            }
        }
        answers.put_slice(b"]");
        (answers.len() > 2).then(|| Framed::whole(answers.freeze()))
    }

    async fn batched(&self, call: &Call, item: &str, so_far: usize) -> Option<Framed> {
        let (id, method, params) = match envelope::message(item) {
            Ok(Message::Request { id, method, params }) => (id, method, params),
            Ok(Message::Notification { .. } | Message::Response) => return None,
            Err(Malformed { id, error }) => return Some(Framed::error(id.as_ref(), &error)),
        };
        let outcome = parse_request(&*call.view, &method, &params, Some(call.revision));
        let refused = match outcome {
            Ok((_, McpRequest::Initialize { .. })) => {
                ErrorObject::new(INVALID_REQUEST, "`initialize` cannot be part of a batch")
            }
            Ok(_) if so_far > MAX_BATCH_RESPONSE => ErrorObject::new(
                INTERNAL_ERROR,
                "the response to the batch is too large; send this request by itself",
            ),
            Ok((revision, request)) => {
                let call = call.clone().with_revision(revision);
                return Some(self.answer(&call, &id, &request).await);
            }
            Err(error) => error,
        };
        Some(Framed::error(Some(&id), &refused))
    }

    async fn reply(&self, call: &Call, request: &McpRequest) -> Result<Reply, Unanswered> {
        let (view, listener) = (&*call.view, call.listener.as_deref());
        let no_session = || ErrorObject::new(INVALID_REQUEST, "subscriptions need a session");
        let answer = match request {
            McpRequest::Initialize { asked, shows_apps, .. } => {
                return Ok(self.initialize(call, Revision::negotiate(asked), *shows_apps).await);
            }
            McpRequest::Discover { shows_apps, .. } => return Ok(self.discover(call, *shows_apps).await),
            McpRequest::Ping => Ok(EMPTY),
            McpRequest::Subscribe { uri } => {
                listener.ok_or_else(no_session)?.subscribe(uri).await.map(|()| EMPTY)
            }
            McpRequest::Unsubscribe { uri } => {
                listener.ok_or_else(no_session)?.unsubscribe(uri);
                Ok(EMPTY)
            }
            // The transports answer this request with a stream. Only a batch or the HTTP+SSE transport gets here.
            McpRequest::Listen(_) => {
                return Err(Unanswered::Error(ErrorObject::new(
                    INVALID_REQUEST,
                    "`subscriptions/listen` needs a stream of its own",
                )));
            }
            McpRequest::List { cursor } => {
                if let Some(listener) = listener {
                    listener.listed();
                }
                match view.cached(call.revision, CacheableRequest::List(cursor.as_deref()), Instant::now()) {
                    Some(answer) => answer,
                    None => view.list(call, cursor.as_deref()).await,
                }
            }
            McpRequest::Templates { cursor } => {
                match view.cached(
                    call.revision,
                    CacheableRequest::Templates(cursor.as_deref()),
                    Instant::now(),
                ) {
                    Some(answer) => answer,
                    None => view.templates(call, cursor.as_deref()).await,
                }
            }
            McpRequest::Read { uri, input: Some(input) } if input.is_retry() => {
                view.read(&call.clone().with_input(Some(input.clone())), uri).await
            }
            McpRequest::Read { uri, input } => {
                match view.cached(call.revision, CacheableRequest::Read(uri), Instant::now()) {
                    Some(answer) => answer,
                    None if input.is_none() => view.read(call, uri).await,
                    None => view.read(&call.clone().with_input(input.clone()), uri).await,
                }
            }
            McpRequest::Complete(asked) => {
                match view.cached(call.revision, asked.cacheable(), Instant::now()) {
                    Some(answer) => answer,
                    None => view.complete(call, asked).await,
                }
            }
            McpRequest::Other { method, params, input: None } => view.call(call, method, params).await,
            McpRequest::Other { method, params, input } => {
                view.call(&call.clone().with_input(input.clone()), method, params).await
            }
        };
        answer.map_err(|failure| match failure.input_request(call.revision) {
            Some(members) => Unanswered::InputRequired(members),
            None => Unanswered::Error(failure.object(call.revision)),
        })
    }

    /// The end of a result in this revision: the members that every result has, and the closing braces.
    fn end(&self, revision: Revision, freshness: Option<&Freshness>, meta: &[u8]) -> Bytes {
        if !revision.facts().hints {
            return match meta {
                [] => Bytes::from_static(b"}}"),
                meta => [b",\"_meta\":{", meta, b"}}}"].concat().into(),
            };
        }
        match freshness {
            None if meta.is_empty() => self.end.clone(),
            Some(Freshness { ttl: Duration::ZERO, scope: CacheScope::Private, .. }) if meta.is_empty() => {
                self.end_with_hints.clone()
            }
            freshness => end(&self.server_member, COMPLETE, freshness, meta),
        }
    }
}

/// Logs a request whose response took long.
fn log_slow_request(request: &McpRequest, took: Duration) {
    if took >= SLOW_REQUEST {
        let (method, uri) = (request.method(), request.uri());
        tracing::info!(method, uri, milliseconds = took.as_millis() as u64, "slow request");
    }
}

/// Logs that a client has connected: with `initialize`, or in a [modern](Era::Modern) revision with `server/discover`.
fn log_client(revision: Revision, request: &McpRequest) {
    let (client, revision) = match request {
        McpRequest::Initialize { asked, client, .. } => (client, Revision::negotiate(asked)),
        McpRequest::Discover { client, .. } => (client, revision),
        _ => return,
    };
    let (ClientInfo { name, version }, revision) = (client, revision.facts().date);
    tracing::info!(name, version, revision, "a client connected");
}

/// The end of a result of this type in a [modern](Era::Modern) revision: caching hints, and `_meta` with the server's
/// identity and the members in `meta`.
fn end(server_member: &str, result_type: &str, freshness: Option<&Freshness>, meta: &[u8]) -> Bytes {
    let hints = freshness.map(|Freshness { ttl, scope, .. }| {
        let scope = match scope {
            CacheScope::Public => "public",
            CacheScope::Private => "private",
        };
        format!(",\"ttlMs\":{},\"cacheScope\":\"{scope}\"", ttl.as_millis())
    });
    let comma: &[u8] = if meta.is_empty() { b"" } else { b"," };
    let hints = hints.unwrap_or_default();
    let head = format!(",\"resultType\":\"{result_type}\"{hints},\"_meta\":{{{server_member}");
    [head.as_bytes(), comma, meta, b"}}}"].concat().into()
}

/// Determines the revision of a request from its `_meta`, or else from its session.
pub(crate) fn revision(
    method: &str,
    meta: &RequestMeta<'_>,
    session: Option<Revision>,
) -> Result<Revision, ErrorObject> {
    if let Some(named) = meta.version()? {
        return modern_revision(named, meta);
    }
    match (method, session) {
        // `initialize` and `ping` are allowed before a revision is negotiated.
        ("initialize" | "ping", None) => Ok(Revision::negotiate("")),
        (_, Some(revision)) => Ok(revision),
        (_, None) => Err(ErrorObject::new(
            INVALID_PARAMS,
            "`_meta` names no protocol version; name one, or send `initialize` first",
        )),
    }
}

/// The [modern](Era::Modern) revision with this name. Fails if there is none, or if `_meta` lacks a member that requests of
/// these revisions must have.
pub(crate) fn modern_revision(named: &str, meta: &RequestMeta<'_>) -> Result<Revision, ErrorObject> {
    let revision = Revision::named(named)
        .filter(|revision| revision.facts().era == Era::Modern)
        .ok_or_else(|| ErrorObject::unsupported_version(named))?;
    meta.check_complete()?;
    Ok(revision)
}

/// The error for a request of a modern revision that does not name its revision.
pub(crate) fn missing_version() -> ErrorObject {
    missing("_meta.io.modelcontextprotocol/protocolVersion")
}

/// Determines the revision of a request, and parses its parameters.
pub(crate) fn parse_request(
    view: &dyn ServiceView,
    method: &str,
    params: &Params<'_>,
    session: Option<Revision>,
) -> Result<(Revision, McpRequest), ErrorObject> {
    let revision = revision(method, params.meta()?, session)?;
    Ok((revision, McpRequest::parse(revision, view, method, params)?))
}
