//! Serves the files, history and diffs of a git repository.
//!
//! The files at `HEAD` are listed as `git://<name>/tree/HEAD/<path>`; templates address any branch, tag or commit.
//! The source runs no subprocesses, writes nothing and uses no network. It resolves names from URIs only by lookup.

mod address;
mod answer;
mod compare;
mod complete;
mod config;
mod definition;
mod describe;
mod directory;
mod filter;
mod guard;
mod history;
mod limits;
mod line_diff;
mod list;
mod pages;
mod patch;
mod read;
mod ref_evidence;
mod ref_store;
mod refs;
mod regular;
mod repo;
mod rev;
mod walk;
mod watch;
mod work;

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use futures_core::stream::BoxStream;
use libris_core::uri_template::{Specificity, TemplateSet};
use libris_core::{
    Change, Completion, Contents, Context, Error, Freshness, Page, Partial, Proof, Result, Source, Template,
    Templates, Uri,
};
use tokio::sync::Semaphore;

pub use config::Config;

use address::{TEMPLATES, UriSpace};
use filter::VisibilityFilter;
use repo::Repo;
use work::{AT_ONCE, QUEUE};

/// The revision whose files are listed. It is `HEAD` whichever branch is checked out, so that switching branches
/// changes files and not all URIs.
const LISTED: &str = "HEAD";

/// A git repository as a source of resources.
pub struct Git {
    inner: Arc<Inner>,
}

struct Inner {
    config: Config,
    name: String,
    space: UriSpace,
    /// The templates, each with its name.
    templates: TemplateSet<&'static str>,
    filter: VisibilityFilter,
    repo: Repo,
    at_once: Arc<Semaphore>,
    queue: Semaphore,
}

impl Git {
    /// Opens the repository, which must exist.
    pub fn open(config: Config) -> Result<Self> {
        if config.path.as_os_str().is_empty() {
            return Err(Error::invalid("a repository to serve has no `path`"));
        }
        let shown = config.path.display();
        let path =
            std::path::absolute(&config.path).map_err(|cause| Error::failed("find the repository", cause))?;
        check_bounds(&config)?;
        guard::check_repository(&path)
            .map_err(|why| Error::Unavailable(format!("the repository `{shown}` cannot be opened: {why}")))?;
        let repo = Repo::open(&path).map_err(|cause| cannot_open(&config.path, &path, &cause))?;
        let name = config.name.clone().unwrap_or_else(|| name_of(&path));
        let space = UriSpace::new(&name)
            .ok_or_else(|| Error::invalid(format!("`{name}` cannot be the name of `{shown}`: set `name`")))?;
        let templates = TEMPLATES
            .iter()
            .map(|(rest, name, _)| Ok((space.template(rest)?, *name)))
            .collect::<Result<Vec<_>>>()?;
        let filter = VisibilityFilter::new(&config)?;
        let inner = Inner {
            name,
            space,
            templates: TemplateSet::new(templates),
            filter,
            repo,
            at_once: Arc::new(Semaphore::new(AT_ONCE)),
            queue: Semaphore::new(QUEUE),
            config,
        };
        // An unreadable repository is an error now, not at the first request.
        refs::head(&inner.repo.objects(inner.own_task()))?;
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The root of the repository's URIs.
    pub fn root(&self) -> &Uri {
        &self.inner.space.root
    }
}

/// Checks a configuration that was not deserialized.
fn check_bounds(config: &Config) -> Result<()> {
    if config.timeout.is_zero() || config.timeout > crate::settings::LONGEST {
        return Err(Error::invalid("the `timeout` of a repository must be from 1 ms to 100 years"));
    }
    Ok(())
}

fn cannot_open(shown: &Path, path: &Path, cause: &gix::Error) -> Error {
    let shown = shown.display();
    let why = if shown.to_string().contains("//") && !path.exists() {
        "it is not a local folder; hint: clone the repository first".to_owned()
    } else if !path.exists() {
        "there is no such folder".to_owned()
    } else if !path.join(".git").exists() && !path.join("HEAD").exists() {
        "it is not a git repository; hint: name the folder that contains `.git`, or a bare repository"
            .to_owned()
    } else {
        cause.to_string()
    };
    Error::Unavailable(format!("the repository `{shown}` cannot be opened: {why}"))
}

/// The default name of a repository: the name of its directory.
fn name_of(path: &Path) -> String {
    // `.` must be resolved to get a name.
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let folder = if path.ends_with(".git") { path.parent().unwrap_or(&path) } else { &path };
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    name.strip_suffix(".git").unwrap_or(&name).to_owned()
}

#[async_trait]
impl Source for Git {
    fn covers(&self, uri: &Uri) -> Option<Specificity> {
        self.inner.space.parse(uri)?;
        match uri.query() {
            None => Some(Specificity::EXACT),
            Some(_) => self.inner.templates.iter().map(|(template, _)| template.specificity()).min(),
        }
    }

    fn may_appear(&self, uri: &Uri) -> bool {
        self.inner.space.parse(uri).is_some()
    }

    fn name(&self) -> Cow<'_, str> {
        format!("git {}", self.inner.name).into()
    }

    async fn list(&self, after: Option<&Uri>, limit: usize, context: &Context) -> Result<Page> {
        let after = after.cloned();
        self.blocking(self.root(), context, move |inner, objects| inner.list(objects, after.as_ref(), limit))
            .await
    }

    async fn read(&self, uri: &Uri, context: &Context) -> Result<Contents> {
        self.blocking(uri, context, answer::read).await
    }

    async fn templates(&self, _context: &Context) -> Result<Templates> {
        let mut templates = Vec::new();
        for (rest, name, description) in TEMPLATES {
            let mut template =
                Template::new(self.inner.space.template(rest)?, format!("{}-{name}", self.inner.name));
            template.title = Some(format!("{}: {name}", self.inner.title()));
            template.description = Some(description.into());
            template.mime = (name == "diff").then(|| answer::DIFF.into());
            templates.push(template);
        }
        Ok(Templates { templates, freshness: self.inner.freshness(Proof::always()), ..Templates::default() })
    }

    async fn complete(&self, asked: Partial<'_>, context: &Context) -> Result<Completion> {
        let Some(name) = self.inner.templates.get(asked.template).copied() else {
            return Ok(Completion::default());
        };
        let wanted = complete::CompletionRequest::new(name, &asked);
        self.blocking(self.root(), context, move |inner, objects| wanted.values(inner, objects)).await
    }

    async fn children(
        &self,
        uri: &Uri,
        after: Option<&Uri>,
        limit: usize,
        context: &Context,
    ) -> Result<Page> {
        let after = after.cloned();
        self.blocking(uri, context, move |inner, objects| {
            inner.children(objects, &objects.task.uri, after.as_ref(), limit)
        })
        .await
    }

    fn subject(&self, uri: &Uri) -> Uri {
        self.inner.space.subject(uri)
    }

    fn concurrency(&self) -> usize {
        AT_ONCE
    }

    async fn watch(&self) -> Result<Option<BoxStream<'static, Change>>> {
        Ok(Some(Box::pin(watch::start(Arc::clone(&self.inner)).await?)))
    }
}

impl Inner {
    /// The freshness of a response with this proof.
    fn freshness(&self, proof: impl Into<Option<Proof>>) -> Freshness {
        Freshness::proven(proof).with_ttl(self.config.ttl).with_scope(self.config.scope)
    }

    fn title(&self) -> &str {
        self.config.title.as_deref().unwrap_or(&self.name)
    }
}
