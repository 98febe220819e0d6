//! A source spoken over MCP.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use libris_core::{
    Cache, Completion, Context, Error, Identity, Memory, Partial, Progress, Scope, Source, Templates, Uri,
    UriTemplate,
};
use libris_wire::{
    About, Answer, Call, Client, Completing, Failure, Keep, Listener, Question, Reference, Reply, Revision,
    Service,
};

use crate::cursor;
use crate::encode::{self, Page};
use crate::kept::Kept;
use crate::live::{Hub, Live};

/// Contents of up to so many bytes wait for memory once they are loaded; larger ones are refused where there is none.
const SMALL: usize = 64 << 10;

/// How a source is served.
#[derive(Clone, Debug)]
pub struct Config {
    /// The server's name to programs.
    pub name: String,
    /// Its name to people.
    pub title: Option<String>,
    /// Its version.
    pub version: String,
    /// What it is.
    pub description: Option<String>,
    /// What a model should know about using it.
    pub instructions: Option<String>,
    /// How many resources or templates one page holds.
    pub page: usize,
    /// How many bytes of encoded answers are kept in memory.
    pub kept: u64,
    /// How changes are told.
    pub live: Live,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            name: "libris".into(),
            title: None,
            version: env!("CARGO_PKG_VERSION").into(),
            description: None,
            instructions: None,
            page: 100,
            kept: 64 << 20,
            live: Live::default(),
        }
    }
}

/// A source spoken over MCP.
pub struct Server {
    source: Arc<dyn Source>,
    config: Config,
    kept: Kept,
    hub: Hub,
}

impl Server {
    /// Serves this source, which is most often a [`Catalog`](crate::Catalog).
    pub fn new(source: Arc<dyn Source>, config: Config) -> Self {
        let hub = Hub::new(source.clone(), config.live.clone());
        Self { source, kept: Kept::new(config.kept), config, hub }
    }
}

#[async_trait]
impl Service for Server {
    fn about(&self) -> About {
        About {
            name: self.config.name.clone(),
            title: self.config.title.clone(),
            version: self.config.version.clone(),
            description: self.config.description.clone(),
            instructions: self.config.instructions.clone(),
        }
    }

    fn kept(&self, revision: Revision, question: Question<'_>, since: Instant) -> Option<Reply> {
        self.kept.find(revision, question, since)
    }

    async fn list(&self, call: &Call, cursor: Option<&str>) -> Answer {
        let facts = call.revision.facts();
        let after = match cursor {
            None => None,
            Some(cursor) => Some(
                cursor::decode(cursor::Kind::Resources, cursor)
                    .and_then(|last| Uri::parse(&last).ok())
                    .ok_or_else(foreign)?,
            ),
        };
        let page = self.source.list(after.as_ref(), self.config.page.max(1)).await.map_err(explain)?;
        let mut members = Page::new("resources", &page.resources, |json, resource| {
            encode::resource(json, facts, resource);
        });
        if let Some(last) = page.resources.last().filter(|_| page.more) {
            members = members.text("nextCursor", &cursor::encode(cursor::Kind::Resources, last.uri.as_str()));
        }
        let reply = Reply { members: members.finish(), keep: Some(keep(self.source.cache())) };
        Ok(self.kept.keep(call.revision, Question::List(cursor), reply, page.proof))
    }

    async fn templates(&self, call: &Call, cursor: Option<&str>) -> Answer {
        let facts = call.revision.facts();
        let after = match cursor {
            None => String::new(),
            Some(cursor) => cursor::decode(cursor::Kind::Templates, cursor).ok_or_else(foreign)?,
        };
        let Templates { mut templates, proof } = self.source.templates().await.map_err(explain)?;
        templates.sort_by(|one, other| one.uri.as_str().cmp(other.uri.as_str()));
        let start = templates.partition_point(|template| *template.uri.as_str() <= *after);
        let rest = &templates[start..];
        let page = &rest[..rest.len().min(self.config.page.max(1))];
        let mut members = Page::new("resourceTemplates", page, |json, template| {
            encode::template(json, facts, template);
        });
        if let Some(last) = page.last().filter(|_| page.len() < rest.len()) {
            members = members.text("nextCursor", &cursor::encode(cursor::Kind::Templates, last.uri.as_str()));
        }
        let reply = Reply { members: members.finish(), keep: Some(keep(self.source.cache())) };
        Ok(self.kept.keep(call.revision, Question::Templates(cursor), reply, proof))
    }

    async fn read(&self, call: &Call, uri: &str) -> Answer {
        let facts = call.revision.facts();
        let parsed = Uri::parse(uri).map_err(explain)?;
        let caller = Arc::new(Caller(call.clone()));
        let mut context = Context::default()
            .with_identity(call.extensions.get::<Identity>().cloned())
            .with_client(call.client.address())
            .with_memory(caller.clone());
        if call.wants_progress() {
            context = context.with_progress(caller);
        }
        let contents = loop {
            match self.source.read(&parsed, &context).await {
                Ok(contents) => break contents,
                // The source has let go of everything meanwhile.
                Err(Error::Unavailable(_)) if call.memory_is_free().await => {}
                Err(Error::NotFound(_) | Error::Denied(_)) => {
                    return Err(Failure::NotFound { uri: uri.to_owned() });
                }
                Err(error) => return Err(explain(error)),
            }
        };
        let size = contents.parts.iter().map(|part| part.body.len()).sum();
        if size > SMALL && !call.reserve_loaded(size) {
            let why = "the server has no memory left for large contents; try again later";
            return Err(Failure::Internal { message: why.into(), data: None });
        }
        let cache = contents.cache.unwrap_or_else(|| self.source.cache());
        let reply = Reply { members: encode::contents(facts, contents.parts), keep: Some(keep(cache)) };
        // What was made for somebody is not for others.
        let proof = contents.proof.filter(|_| context.identity().is_none());
        Ok(self.kept.keep(call.revision, Question::Read(uri), reply, proof))
    }

    async fn complete(&self, _call: &Call, asked: &Completing) -> Answer {
        let text = match &asked.reference {
            Reference::Resource(text) => text,
            // There are no prompts, so there is nothing to offer for one; the conformance suite asks for
            // a completion here, not for an error.
            Reference::Prompt(_) => {
                return Ok(Reply { members: encode::completion(&Completion::default()), keep: None });
            }
        };
        let template = UriTemplate::parse(text).map_err(explain)?;
        let completion = if template.variables().next().is_none() {
            // A plain URI has nothing to fill in, but it must be one of ours.
            let uri = Uri::parse(text).map_err(explain)?;
            if self.source.covers(&uri).is_none() {
                return Err(Failure::invalid(format!("unknown resource `{uri}`")));
            }
            Completion::default()
        } else if !template.variables().any(|variable| variable == asked.argument) {
            let named: String = asked.argument.chars().take(100).collect();
            return Err(Failure::invalid(format!("`{template}` has no variable `{named}`")));
        } else {
            let partial = Partial {
                template: &template,
                variable: &asked.argument,
                typed: &asked.typed,
                known: &asked.known,
            };
            self.source.complete(partial).await.map_err(explain)?
        };
        Ok(Reply { members: encode::completion(&completion), keep: None })
    }

    fn listener(&self, client: Client) -> Result<Arc<dyn Listener>, Failure> {
        self.hub.listener_for(client.address())
    }

    fn counts(&self) -> Vec<(&'static str, usize)> {
        let mut counts = self.hub.counts();
        counts.push(("kept_bytes", self.kept.bytes()));
        counts
    }
}

/// Whoever asked, as a source sees them.
struct Caller(Call);

impl Progress for Caller {
    fn report(&self, done: u64, total: Option<u64>) {
        self.0.progress(done, total);
    }
}

impl Memory for Caller {
    fn reserve(&self, bytes: usize) -> bool {
        self.0.reserve(bytes)
    }
}

fn keep(cache: Cache) -> Keep {
    Keep { ttl: cache.ttl, public: cache.scope == Scope::Public }
}

fn foreign() -> Failure {
    Failure::invalid("this cursor is not one of this list; begin again without one")
}

/// What is sent of an error. Causes are logged: they could name a path, a query or a secret.
pub(crate) fn explain(error: Error) -> Failure {
    match &error {
        Error::NotFound(uri) | Error::Denied(uri) => Failure::NotFound { uri: uri.to_string() },
        Error::Invalid(_) | Error::NotDirectory(_) => Failure::invalid(error.to_string()),
        Error::TooLarge { uri, size, limit, hint } => {
            let message = match hint {
                Some(hint) => format!("{error}; {hint}"),
                None => error.to_string(),
            };
            let data = serde_json::json!({ "uri": uri, "size": size, "limit": limit });
            Failure::Internal { message, data: Some(data) }
        }
        Error::Unavailable(_) => {
            tracing::warn!(%error, "a source is unavailable");
            Failure::Internal { message: error.to_string(), data: None }
        }
        _ => {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            tracing::error!(%error, cause = cause.as_deref(), "a source failed");
            if !tracing::dispatcher::has_been_set() {
                // Whoever writes a first server has no log yet, and would look for this in vain.
                eprintln!("libris: {error}: {}", cause.unwrap_or_default());
            }
            Failure::Internal { message: error.to_string(), data: None }
        }
    }
}
