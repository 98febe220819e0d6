//! Serves the files, history and diffs of a git repository. Each request runs as a *task* on a blocking thread
//! (`work`), with a deadline and a memory reservation (`limits`).
//!
//! The files at `HEAD` are listed as `git://<name>/tree/HEAD/<path>`; templates address any branch, tag or commit.
//! The source runs no subprocesses, writes nothing and uses no network. It never passes revisions from URIs to
//! git's own revision parser (see `rev`).

mod address;
mod blame;
mod compare;
mod complete;
mod config;
mod contents;
mod definition;
mod describe;
mod discover;
mod filter;
mod folder;
mod guard;
mod hint;
mod history;
mod index;
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
mod renames;
mod repo;
mod rev;
mod status;
mod tree_listing;
mod walk;
mod watch;
mod work;
mod work_tree_watch;
mod worktree;

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use futures_core::stream::BoxStream;
use libris_core::uri_template::{Specificity, TemplateSet};
use libris_core::{
    Budget, Change, Client, Completion, CompletionRequest, Contents, Context, Error, Freshness, Page, Proof,
    Result, Source, Template, Templates, Uri, UriSpan,
};

pub use config::Config;

use address::{UriMistake, UriSpace};
use complete::KnownRevs;
use filter::VisibilityFilter;
use repo::SharedRepository;
use work::{MAX_CONCURRENT_TASKS, MAX_QUEUED_TASKS};
use work_tree_watch::FollowedPages;

use crate::proven::ProvenValue;

/// The revision whose files are listed. It is always `HEAD`, not the name of the checked-out branch: otherwise
/// switching branches would change the URI of every file.
const LISTED_REV: &str = "HEAD";

/// A git repository as a source of resources.
pub struct Git {
    inner: Arc<GitInner>,
}

struct GitInner {
    config: Config,
    name: String,
    space: UriSpace,
    /// The templates, each with its name.
    templates: TemplateSet<&'static str>,
    filter: VisibilityFilter,
    repo: SharedRepository,
    /// The revisions for completion.
    known_revs: ProvenValue<KnownRevs>,
    has_work_tree: bool,
    /// The subscribed pages that depend on the files of the working tree. The working tree is watched only
    /// while a client is subscribed to one of them.
    followed: Arc<FollowedPages>,
    /// One permit per running task.
    running: Arc<Budget>,
}

impl Git {
    /// Opens the repository, which must exist.
    pub fn open(config: Config) -> Result<Self> {
        if config.path.as_os_str().is_empty() {
            return Err(Error::invalid(
                "a repository to serve has no `path`; hint: set `path` to the folder that contains `.git`",
            ));
        }
        let shown = config.path.display();
        let path =
            std::path::absolute(&config.path).map_err(|cause| Error::failed("find the repository", cause))?;
        check_bounds(&config)?;
        guard::check_repository(&path)
            .map_err(|why| Error::Unavailable(format!("the repository `{shown}` cannot be opened: {why}")))?;
        let repo = SharedRepository::open(&path).map_err(|cause| cannot_open(&config.path, &path, &cause))?;
        let name = config.name.clone().unwrap_or_else(|| name_of(&path));
        let space = UriSpace::new(&name)
            .ok_or_else(|| Error::invalid(format!("`{name}` cannot be the name of `{shown}`: set `name`")))?;
        let has_work_tree = repo.work_tree_path().is_some();
        let templates = address::templates(has_work_tree)
            .map(|(rest, name, _)| Ok((space.template(rest)?, *name)))
            .collect::<Result<Vec<_>>>()?;
        let filter = VisibilityFilter::new(&config)?;
        let inner = GitInner {
            name,
            space,
            templates: TemplateSet::new(templates),
            filter,
            repo,
            known_revs: ProvenValue::default(),
            has_work_tree,
            followed: Arc::default(),
            running: Budget::with_waiters(MAX_CONCURRENT_TASKS, MAX_QUEUED_TASKS),
            config,
        };
        // An unreadable repository is an error now, not at the first request.
        refs::head(&inner.repo.for_task(inner.own_task()))?;
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The root of the repository's URIs.
    pub fn root(&self) -> &Uri {
        &self.inner.space.root
    }
}

/// Checks that the time-out is not zero, which would make every request fail, and does not exceed the maximum.
/// Deserialization checks the maximum too, but a program can build a configuration without deserialization.
fn check_bounds(config: &Config) -> Result<()> {
    if config.timeout.is_zero() || config.timeout > crate::settings::MAX_DURATION {
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
    // A path that ends with `..` has no file name.
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let folder = if path.ends_with(".git") { path.parent().unwrap_or(&path) } else { &path };
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    name.strip_suffix(".git").unwrap_or(&name).to_owned()
}

#[async_trait]
impl Source for Git {
    fn covers(&self, uri: &Uri) -> Option<Specificity> {
        match self.inner.space.try_parse(uri) {
            Err(UriMistake::Foreign) => None,
            Ok(_) if uri.query().is_none() => Some(Specificity::EXACT),
            // Invalid URIs below the root are covered too, so that a read can explain the mistake.
            _ => self.inner.templates.iter().map(|(template, _)| template.specificity()).min(),
        }
    }

    fn may_appear(&self, uri: &Uri) -> bool {
        self.covers(uri).is_some()
    }

    fn name(&self) -> Cow<'_, str> {
        format!("git {}", self.inner.name).into()
    }

    fn span(&self) -> Option<UriSpan> {
        Some(UriSpan::below(self.root().as_str()))
    }

    async fn list(&self, after: Option<&Uri>, limit: usize, context: &Context) -> Result<Page> {
        let after = after.cloned();
        self.blocking(self.root(), context, move |inner, repository| {
            inner.list(repository, after.as_ref(), limit)
        })
        .await
    }

    async fn read(&self, uri: &Uri, context: &Context) -> Result<Contents> {
        self.blocking(uri, context, contents::read).await
    }

    async fn templates(&self, _context: &Context) -> Result<Templates> {
        let mut templates = Vec::new();
        for (rest, name, description) in address::templates(self.inner.has_work_tree) {
            let mut template =
                Template::new(self.inner.space.template(rest)?, format!("{}-{name}", self.inner.name));
            template.title = Some(format!("{}: {name}", self.inner.title()));
            template.description = Some((*description).into());
            template.mime = name.starts_with("diff").then(|| contents::DIFF.into());
            templates.push(template);
        }
        Ok(Templates { templates, freshness: self.inner.freshness(Proof::always()), ..Templates::default() })
    }

    async fn complete(&self, asked: CompletionRequest<'_>, context: &Context) -> Result<Completion> {
        let Some(name) = self.inner.templates.get(asked.template).copied() else {
            return Ok(Completion::default());
        };
        let wanted = complete::GitCompletion::new(name, &asked);
        self.blocking(self.root(), context, move |inner, repository| wanted.values(inner, repository)).await
    }

    async fn children(
        &self,
        uri: &Uri,
        after: Option<&Uri>,
        limit: usize,
        context: &Context,
    ) -> Result<Page> {
        let after = after.cloned();
        self.blocking(uri, context, move |inner, repository| {
            inner.children(repository, &repository.task.uri, after.as_ref(), limit)
        })
        .await
    }

    fn has_directories(&self) -> bool {
        true
    }

    fn subject(&self, uri: &Uri) -> Uri {
        self.inner.space.subject(uri)
    }

    fn follow(&self, subject: &Uri, _client: Client) {
        // Only the status and the unstaged diff depend on the files of the working tree. These files are watched
        // while one of the two pages is followed. All other resources change with the refs and the index, which
        // every watch polls.
        let space = &self.inner.space;
        let of_work_tree = [space.status(), space.unstaged()];
        if self.inner.has_work_tree && of_work_tree.into_iter().flatten().any(|page| page == *subject) {
            self.inner.followed.add(subject, (), |(), ()| ());
        }
    }

    fn unfollow(&self, subject: &Uri) {
        self.inner.followed.remove(subject);
    }

    fn aliases(&self, uri: &Uri) -> Vec<Uri> {
        self.inner.space.aliases(uri)
    }

    fn concurrency(&self) -> usize {
        MAX_CONCURRENT_TASKS
    }

    async fn watch(&self) -> Result<Option<BoxStream<'static, Change>>> {
        Ok(Some(Box::pin(watch::start(Arc::clone(&self.inner)).await?)))
    }
}

impl GitInner {
    /// The freshness of a response with this proof.
    fn freshness(&self, proof: impl Into<Option<Proof>>) -> Freshness {
        Freshness::proven(proof).with_ttl(self.config.ttl).with_scope(self.config.scope)
    }

    fn title(&self) -> &str {
        self.config.title.as_deref().unwrap_or(&self.name)
    }
}
