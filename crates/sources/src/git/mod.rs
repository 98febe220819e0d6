//! A git repository whose files, history and differences are resources.
//!
//! `git://<name>/tree/HEAD/<path>` is listed; templates lead to any branch, tag or commit. Nothing here runs a
//! program, writes, or goes to the network, and what a URI says is only ever looked up.

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
mod pages;
mod patch;
mod read;
mod ref_store;
mod refs;
mod regular;
mod repo;
mod rev;
mod seen;
mod walk;
mod watch;

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_core::stream::BoxStream;
use gix::objs::tree::EntryKind;
use jiff::Timestamp;
use libris_core::uri_template::{Specificity, TemplateSet};
use libris_core::{
    Change, Completion, Contents, Context, Error, Freshness, Page, Partial, Proof, Resource, Result, Source,
    Template, Templates, Uri,
};
use tokio::sync::Semaphore;
use tokio::time::timeout_at;

pub use config::Config;

use address::{Space, TEMPLATES, What};
use describe::Describe;
use filter::Filter;
use read::{Reader, base};
use repo::{Objects, Patience, Repo, Task};
use walk::{Item, Walk, join};

/// The revision whose files are listed. It is the same whatever branch that is, so that switching branches changes
/// files and not all URIs.
const LISTED: &str = "HEAD";

/// How many tasks may work on one repository at once. Each may hold a file of some size in memory.
const AT_ONCE: usize = 4;

/// How many tasks may wait for one of those to end.
const QUEUE: usize = 256;

/// How much longer than `timeout` a caller waits for a task to notice that its time is over. One that does not is
/// blocked by the system.
const OVERTIME: Duration = Duration::from_secs(1);

/// A git repository as a source of resources.
pub struct Git {
    inner: Arc<Inner>,
}

struct Inner {
    config: Config,
    name: String,
    space: Space,
    /// The templates, each with its name.
    templates: TemplateSet<&'static str>,
    filter: Filter,
    repo: Repo,
    at_once: Arc<Semaphore>,
    queue: Semaphore,
}

impl Git {
    /// Opens the repository, which must be there.
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
        let space = Space::new(&name)
            .ok_or_else(|| Error::invalid(format!("`{name}` cannot be the name of `{shown}`: set `name`")))?;
        let templates = TEMPLATES
            .iter()
            .map(|(rest, name, _)| Ok((space.template(rest)?, *name)))
            .collect::<Result<Vec<_>>>()?;
        let filter = Filter::new(&config)?;
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
        // One that cannot be read is told at once, not at the first question.
        refs::head(&inner.repo.objects(inner.own_task()))?;
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The URI that everything in the repository begins with.
    pub fn root(&self) -> &Uri {
        &self.inner.space.root
    }

    /// Does work for a caller who asked for `uri`, until it ends or the caller leaves.
    async fn blocking<T: Send + 'static>(
        &self,
        uri: &Uri,
        context: &Context,
        work: impl FnOnce(&Inner, &Objects<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let waiting = Waiting::default();
        let patience = self.inner.patience(Arc::clone(&waiting.gone));
        self.inner.blocking(Task { uri: uri.clone(), context: context.clone(), patience }, work).await
    }
}

/// Tells a running task when its caller has gone.
#[derive(Default)]
struct Waiting {
    gone: Arc<AtomicBool>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.gone.store(true, Ordering::Relaxed);
    }
}

/// For programs that make a configuration without reading one.
fn check_bounds(config: &Config) -> Result<()> {
    if config.timeout.is_zero() || config.timeout > crate::settings::LONGEST {
        return Err(Error::invalid("the `timeout` of a repository must be from 1 ms to 100 years"));
    }
    Ok(())
}

fn cannot_open(shown: &Path, path: &Path, cause: &gix::Error) -> Error {
    let shown = shown.display();
    let why = if shown.to_string().contains("//") && !path.exists() {
        "it is not a folder of this machine; hint: clone it first".to_owned()
    } else if !path.exists() {
        "there is no such folder".to_owned()
    } else if !path.join(".git").exists() && !path.join("HEAD").exists() {
        "it is no git repository; hint: name the folder that has `.git` in it, or a bare repository"
            .to_owned()
    } else {
        cause.to_string()
    };
    Error::Unavailable(format!("the repository `{shown}` cannot be opened: {why}"))
}

/// The name of a repository: that of its folder.
fn name_of(path: &Path) -> String {
    // `.` has no name of its own, but what it stands for has.
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
        let wanted = complete::Wanted::new(name, &asked);
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

    /// The patience of somebody who asks now; `gone` tells that nobody waits any more.
    fn patience(&self, gone: Arc<AtomicBool>) -> Patience {
        Patience::new(Instant::now(), self.config.timeout, gone)
    }

    /// A task of the source itself, that nobody waits for.
    fn own_task(&self) -> Task {
        let patience = self.patience(Arc::default());
        Task { uri: self.space.root.clone(), context: Context::default(), patience }
    }

    /// Does work that waits for a disk, with few others at once, within `timeout` from now: the wait for the others
    /// counts. Work that the system blocks keeps its place until it ends, so that there are never more threads than
    /// places, and its caller does not wait for it.
    async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        task: Task,
        work: impl FnOnce(&Self, &Objects<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let until = task.patience.until();
        let busy = || Error::Unavailable(format!("the repository `{}` is busy: try again later", self.name));
        let permit = match Arc::clone(&self.at_once).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                let _queued = self.queue.try_acquire().map_err(|_| busy())?;
                let permit = timeout_at(until.into(), Arc::clone(&self.at_once).acquire_owned());
                permit
                    .await
                    .map_err(|_| busy())?
                    .map_err(|cause| Error::failed("wait for the repository", cause))?
            }
        };
        let until = until + OVERTIME;
        let inner = Arc::clone(self);
        let work = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            inner.repo.check(&inner.name)?;
            work(&inner, &inner.repo.objects(task))
        });
        match timeout_at(until.into(), work).await {
            Ok(Ok(result)) => result,
            Ok(Err(cause)) => Err(Error::failed("finish reading the repository", cause)),
            Err(_) => {
                tracing::warn!(name = self.name, "a read of the repository is blocked by the system");
                Err(Error::Unavailable(format!("the repository `{}` does not answer", self.name)))
            }
        }
    }

    fn list(&self, objects: &Objects<'_>, after: Option<&Uri>, limit: usize) -> Result<Page> {
        let mut page = Page::default();
        let seen = seen::Seen::of(objects, LISTED);
        let resolved = rev::resolve(objects, LISTED)?;
        page.freshness = self.freshness(seen.prove());
        let node = resolved.as_ref().map(|resolved| objects.node(resolved.commit)).transpose()?;
        let time = node.as_ref().and_then(|node| Timestamp::from_second(node.time).ok());
        let is_after = |uri: &Uri| after.is_none_or(|after| uri > after);
        let pages = [
            self.space.log(LISTED).filter(|_| resolved.is_some()).map(|uri| (uri, "log", "Log")),
            self.space.refs().map(|uri| (uri, "refs", "Refs")),
        ];
        for (uri, name, title) in pages.into_iter().flatten().filter(|(uri, ..)| is_after(uri)) {
            let mut resource = Resource::new(uri, name);
            resource.title = Some(format!("{title} of {}", self.title()));
            resource.mime = Some(answer::MARKDOWN.into());
            resource.annotations.last_modified = time.filter(|_| name == "log");
            page.resources.push(resource);
        }
        if page.resources.len() > limit {
            page.resources.truncate(limit);
            page.more = true;
            return Ok(page);
        }
        let (Some(resolved), Some(node)) = (resolved, node) else { return Ok(page) };
        let Some(root) = self.space.place(LISTED, "") else { return Ok(page) };
        let after = match after.map(Uri::as_str) {
            Some(after) => match after.strip_prefix(root.as_str()) {
                Some(path) => Some(path),
                None if *after < *root.as_str() => None,
                None => return Ok(page),
            },
            None => None,
        };
        let mut walk = Walk::new(objects, &self.filter, node.tree, after)?;
        let mut items = Vec::new();
        while let Some(item) = walk.step()? {
            // One whose URI would be too long cannot be asked for.
            if self.space.place(LISTED, &item.key).is_none() {
                continue;
            }
            if page.resources.len() + items.len() == limit {
                page.more = true;
                break;
            }
            items.push(item);
        }
        page.resources.extend(self.describe(objects, LISTED, resolved.commit, items)?);
        Ok(page)
    }

    fn children(&self, objects: &Objects<'_>, uri: &Uri, after: Option<&Uri>, limit: usize) -> Result<Page> {
        let not_found = || Error::NotFound(uri.clone());
        let asked = self.space.parse(uri).ok_or_else(not_found)?;
        let What::Place { rev, path } = asked.what else { return Err(Error::NotDirectory(uri.clone())) };
        let resolved = rev::resolve(objects, rev)?.ok_or_else(not_found)?;
        let reader = Reader { inner: self, objects, uri, rev, path };
        let found = reader.find(objects.node(resolved.commit)?.tree)?.ok_or_else(not_found)?;
        if found.entry.kind != EntryKind::Tree {
            return Err(Error::NotDirectory(uri.clone()));
        }
        let directory = objects.directory(found.entry.id)?;
        let base = base(path);
        let own = self.space.place(rev, &base).ok_or_else(not_found)?;
        let first = match after.map(Uri::as_str) {
            None => 0,
            Some(after) => match after.strip_prefix(own.as_str()) {
                Some(key) => directory.after(key),
                None if *after < *own.as_str() => 0,
                None => directory.entries().len(),
            },
        };
        let mut items = Vec::new();
        let mut page = Page { freshness: self.freshness(resolved.proof), ..Page::default() };
        for (key, entry) in &directory.entries()[first..] {
            let item = Item { key: format!("{base}{key}"), path: join(&found.path, key), entry: *entry };
            let shown = self.filter.shows(&item.path, entry.kind == EntryKind::Tree);
            if !shown || self.space.place(rev, &item.key).is_none() {
                continue;
            }
            if items.len() == limit {
                page.more = true;
                break;
            }
            items.push(item);
        }
        page.resources = self.describe(objects, rev, resolved.commit, items)?;
        Ok(page)
    }

    fn describe(
        &self,
        objects: &Objects<'_>,
        rev: &str,
        commit: gix::ObjectId,
        items: Vec<Item>,
    ) -> Result<Vec<Resource>> {
        let window = objects.window(commit)?;
        let mut describe = Describe::new(objects);
        let mut resources = Vec::with_capacity(items.len());
        for item in &items {
            let Some(uri) = self.space.place(rev, &item.key) else { continue };
            let name = match &*item.path {
                b"" => self.name.as_bytes(),
                path => path.rsplit(|byte| *byte == b'/').next().unwrap_or_default(),
            };
            let mut resource = describe.resource(uri, name, item.entry, window.time(&item.path))?;
            if item.path.is_empty() {
                resource.title.clone_from(&self.config.title);
                resource.description.clone_from(&self.config.description);
            }
            resources.push(resource);
        }
        Ok(resources)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};
    use std::time::Duration;

    use libris_core::{Context, Error, Result};

    use super::{AT_ONCE, Config, Git, QUEUE};

    /// The repository that git makes, without the program.
    fn repository(timeout: Duration) -> (tempfile::TempDir, Git) {
        let folder = tempfile::tempdir().unwrap();
        for name in ["objects", "refs"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        std::fs::write(folder.path().join("HEAD"), "ref: refs/heads/main\n").unwrap();
        let git = Git::open(Config { timeout, name: Some("repo".into()), ..Config::new(folder.path()) });
        (folder, git.unwrap())
    }

    async fn work<T: Send + 'static>(
        git: &Git,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        git.blocking(git.root(), &Context::default(), |_, _| work()).await
    }

    fn is_unavailable<T>(result: &Result<T>, why: &str) -> bool {
        matches!(result, Err(Error::Unavailable(said)) if said.contains(why))
    }

    #[tokio::test]
    async fn work_that_is_blocked_keeps_its_place_and_holds_up_nobody() {
        let (_folder, git) = repository(Duration::from_millis(200));
        let git = Arc::new(git);
        let mut release = Vec::new();
        let mut blocked = Vec::new();
        for _ in 0..AT_ONCE {
            let (send, receive) = mpsc::channel::<()>();
            release.push(send);
            let git = Arc::clone(&git);
            blocked.push(tokio::spawn(async move {
                work(&git, move || Ok(receive.recv_timeout(Duration::from_secs(60)))).await
            }));
        }
        while git.inner.at_once.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        let queued = (0..QUEUE + 10).map(|_| work(&git, || Ok(())));
        let queued = futures_util::future::join_all(queued).await;
        assert!(queued.iter().all(|result| is_unavailable(result, "busy")));
        for task in blocked {
            assert!(is_unavailable(&task.await.unwrap(), "does not answer"));
        }
        // Nobody waits for them any more, but their threads are still there.
        assert_eq!(git.inner.at_once.available_permits(), 0);
        drop(release);
        while git.inner.at_once.available_permits() < AT_ONCE {
            tokio::task::yield_now().await;
        }
        assert!(work(&git, || Ok(())).await.is_ok());
    }

    #[tokio::test]
    async fn no_more_wait_than_there_is_room_for() {
        let (_folder, git) = repository(Duration::from_secs(60));
        let git = Arc::new(git);
        let all = Arc::clone(&git.inner.at_once).acquire_many_owned(AT_ONCE as u32).await.unwrap();
        let mut queued = tokio::task::JoinSet::new();
        for _ in 0..QUEUE {
            let git = Arc::clone(&git);
            queued.spawn(async move { work(&git, || Ok(())).await });
        }
        while git.inner.queue.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        let refused = tokio::time::timeout(Duration::from_secs(20), work(&git, || Ok(()))).await;
        assert!(is_unavailable(&refused.expect("it waits"), "busy"));
        drop(all);
        assert!(queued.join_all().await.iter().all(Result::is_ok));
    }
}
