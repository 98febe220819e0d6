//! The output of programs as resources.
//!
//! The value of a URI variable is substituted inside one argument and never split; no shell is involved.

mod argument;
mod budgets;
mod check;
mod complete;
mod config;
mod definition;
mod entry;
mod invocation;
mod process;
mod range_extractor;
mod watch;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_core::stream::BoxStream;
use libris_core::uri_template::{Specificity, TemplateSet, Variables};
use libris_core::{
    Change, Client, Completion, CompletionRequest, Content, Contents, Context, Error, Freshness, Meta, Page,
    Proof, Result, Source, Template, Templates, Uri, UriSpan,
};

use serde_json::Value;

pub use config::{CommandUri, CompletionCommand, CompletionValues, Config, ExitMeaning, StderrUse};
#[cfg(unix)]
pub use libris_process::{kill_all, reap, set_reaper};

use crate::media::{self, ContentClass};
use crate::range::Range;
use crate::{meta, wrong_uri};
use budgets::CommandBudgets;
use entry::{CommandOutput, RunnableCommand};

/// Commands as a source.
pub struct Commands {
    /// Commands that can be read without variables: a fixed URI, or a template whose variables are all optional. These
    /// are listed.
    resources: BTreeMap<Uri, Arc<RunnableCommand>>,
    templates: TemplateSet<Arc<RunnableCommand>>,
}

impl Commands {
    /// Validates the configuration; relative paths in it are relative to `folder`.
    pub fn new(commands: Vec<Config>, folder: &Path) -> Result<Self> {
        // A relative or empty `folder` is relative to the current directory.
        let base = std::env::current_dir().map(|here| here.join(folder));
        let base = base.map_err(|cause| Error::failed("determine the current directory", cause))?;
        let mut resources = BTreeMap::new();
        let mut templates = Vec::new();
        let mut uris = HashSet::new();
        let budgets = Arc::new(CommandBudgets::default());
        for config in commands {
            let declared = config.uri.clone();
            let wrong = |why: String| Error::invalid(format!("the command `{}`: {why}", declared.as_str()));
            if !uris.insert(declared.as_str().to_owned()) {
                return Err(wrong("it is declared twice; hint: remove one, or give it another `uri`".into()));
            }
            let entry = Arc::new(RunnableCommand::new(config, &base, budgets.clone()).map_err(wrong)?);
            if let Some(uri) = entry.uri_without_variables()
                && resources.insert(uri, entry.clone()).is_some()
            {
                return Err(wrong("it is declared twice; hint: remove one, or give it another `uri`".into()));
            }
            if let CommandUri::Template(template) = declared {
                templates.push((template, entry));
            }
        }
        Ok(Self { resources, templates: TemplateSet::new(templates) })
    }

    fn find(&self, uri: &Uri) -> Option<(&Arc<RunnableCommand>, Variables)> {
        match self.resources.get(uri) {
            Some(entry) => Some((entry, Variables::new())),
            None => self.templates.closest(uri).map(|(_, entry, variables)| (entry, variables)),
        }
    }
}

#[async_trait]
impl Source for Commands {
    fn covers(&self, uri: &Uri) -> Option<Specificity> {
        if self.resources.contains_key(uri) {
            return Some(Specificity::EXACT);
        }
        self.templates.closest(uri).map(|(template, ..)| template.specificity())
    }

    fn name(&self) -> Cow<'_, str> {
        "commands".into()
    }

    fn span(&self) -> Option<UriSpan> {
        self.resources.keys().map(UriSpan::of).reduce(UriSpan::and)
    }

    async fn list(&self, after: Option<&Uri>, limit: usize, _context: &Context) -> Result<Page> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut rest = self.resources.range::<Uri, _>((from, Bound::Unbounded));
        let resources = rest.by_ref().take(limit).map(|(uri, entry)| entry.config.resource(uri)).collect();
        Ok(Page {
            resources,
            more: rest.next().is_some(),
            freshness: Freshness::proven(Proof::always()),
            ..Page::default()
        })
    }

    async fn read(&self, uri: &Uri, context: &Context) -> Result<Contents> {
        let (entry, variables) = self.find(uri).ok_or_else(|| {
            wrong_uri::error(uri, self.resources.keys(), self.templates.iter().map(|(uri, _)| uri))
        })?;
        let range = entry.requested_range(&variables)?;
        let by_lines = matches!(range, Some(Range::Lines(_)));
        let seen = entry.changes.load(Ordering::Acquire);
        let CommandOutput { data, head, digest, extent } =
            entry.output(uri, &variables, range, context).await?;
        if entry.config.poll.is_some()
            && let Some(digest) = digest
        {
            entry.record_digest(entry.uri_without_range(&variables).unwrap_or_else(|| uri.clone()), digest);
        }
        let mime = match &entry.config.mime {
            Some(mime) => mime.clone(),
            None => media::by_content("", &head).to_owned(),
        };
        if by_lines && media::content_class(&mime) == ContentClass::Binary {
            return Err(Error::invalid(format!("`{uri}` is not text: read it by `?bytes=0-65535`")));
        }
        let body = match range {
            Some(Range::Bytes(_)) => media::exact(data, &mime),
            Some(Range::Lines(_)) | None => media::body(data, &mime),
        };
        let meta = range.map(|range| {
            let total_key = match range {
                Range::Lines(_) => meta::TOTAL_LINES,
                Range::Bytes(_) => meta::TOTAL_BYTES,
            };
            let next = extent.next.and_then(|range| entry.range_uri(&variables, range));
            let next = next.map(|next| (meta::NEXT.to_owned(), Value::from(next.as_str())));
            let total = extent.total.map(|total| (total_key.to_owned(), Value::from(total)));
            total.into_iter().chain(next).collect::<Meta>()
        });
        let meta = meta.filter(|meta| !meta.is_empty());
        let content = Content { uri: uri.clone(), mime: Some(mime), body, meta };
        let freshness = match entry.config.cache {
            None => Freshness::unproven(),
            Some(ttl) => Freshness::proven(entry.proof(seen, ttl)).with_ttl(ttl),
        };
        Ok(Contents::from(content).with_freshness(freshness))
    }

    fn hint(&self, uri: &Uri) -> Option<String> {
        wrong_uri::hint(uri, self.resources.keys(), self.templates.iter().map(|(uri, _)| uri))
    }

    async fn templates(&self, _context: &Context) -> Result<Templates> {
        let templates = self.templates.iter().filter_map(|(_, entry)| entry.template()).collect();
        Ok(Templates { templates, freshness: Freshness::proven(Proof::always()), ..Templates::default() })
    }

    async fn complete(&self, asked: CompletionRequest<'_>, _context: &Context) -> Result<Completion> {
        let Some(entry) = self.templates.get(asked.template) else { return Ok(Completion::default()) };
        let Some(completions) = entry.completions.get(asked.variable) else {
            return Ok(Completion::default());
        };
        let values = completions.values(entry, asked.variable).await?;
        Ok(Completion::of(values.iter().map(String::as_str), asked.typed, asked.limit))
    }

    fn is_shared(&self, uri: &Uri) -> bool {
        self.find(uri).is_some_and(|(entry, _)| entry.config.cache.is_some())
    }

    fn subject(&self, uri: &Uri) -> Uri {
        self.find(uri)
            .and_then(|(entry, variables)| entry.uri_without_range(&variables))
            .unwrap_or_else(|| uri.clone())
    }

    fn follow(&self, subject: &Uri, _client: Client) {
        if let Some((entry, _)) = self.find(subject) {
            entry.followed.add(subject, (), |(), ()| {});
        }
    }

    fn unfollow(&self, subject: &Uri) {
        if let Some((entry, _)) = self.find(subject) {
            entry.followed.remove(subject);
        }
    }

    async fn watch(&self) -> Result<Option<BoxStream<'static, Change>>> {
        let templates = self.templates.iter().map(|(_, entry)| entry);
        // Templates without required variables are already in `resources`.
        let unlisted = templates.filter(|entry| entry.uri_without_variables().is_none());
        Ok(watch::changes(self.resources.values().chain(unlisted)))
    }
}

impl RunnableCommand {
    /// A proof that holds for `time`, unless a poll has detected a changed output since the generation `seen`.
    fn proof(self: &Arc<Self>, seen: u64, time: Duration) -> Proof {
        let (entry, until) = (Arc::downgrade(self), Instant::now() + time);
        Proof::new(move || {
            let same = |entry: Arc<Self>| entry.changes.load(Ordering::Acquire) == seen;
            Instant::now() < until && entry.upgrade().is_some_and(same)
        })
    }

    fn template(&self) -> Option<Template> {
        let CommandUri::Template(uri) = &self.config.uri else { return None };
        Some(self.config.template(uri))
    }
}
