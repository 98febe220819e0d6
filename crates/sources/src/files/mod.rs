//! The files source: a folder whose files and directories are resources.
//!
//! Their URIs are `file:///<mount>/<path>`, where the mount names the folder. URIs of directories end with a slash.
//! `crate::tree` reads and watches the folder; this module turns it into a [`Source`]: pages of resources,
//! contents, completions.

mod background;
mod complete;
mod config;
mod definition;
mod describe;
mod read;

use std::borrow::Cow;
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_core::stream::BoxStream;
use libris_core::uri_template::Specificity;
use libris_core::{
    Change, Completion, Contents, Context, Error, Freshness, Page, Partial, Proof, Resource, Result, Source,
    Template, Templates, Uri, UriTemplate,
};
use tokio::sync::Semaphore;

pub use crate::tree::ChangeDetection;
pub use config::{Config, MetadataRule};

use crate::range::Range;
use crate::tree::walk::{Blocking, TreeWalk, WalkItem};
use crate::tree::{
    CancelOnDrop, Cancellation, NameList, OpenFolder, Resolved, Root, Tree, is_cancelled, is_missing, name,
    walk, watch,
};
use describe::ResourceDescriber;
use read::{FileReader, SearchControl};

/// The longest mount as a URI segment: the longest file name with every byte escaped.
const MAX_MOUNT_LENGTH: usize = 3 * 255;

/// The most threads that work on requests for one folder at once.
const MAX_THREADS: usize = 32;

/// The most searches for lines in large files that run at once. Each keeps a processor busy.
const MAX_LONG_SEARCHES: usize = 1;

/// The longest duration of one prefetch. A client that requests page after page causes prefetches.
const PREFETCH_TIME: Duration = Duration::from_secs(1);

/// The duration after which a prefetch ends even in the middle of a directory.
const PREFETCH_LIMIT: Duration = Duration::from_secs(10);

/// A folder as a source of resources.
pub struct Files {
    inner: Arc<Inner>,
}

/// The state that requests and background tasks share.
struct Inner {
    config: Config,
    /// The mount without URI escapes.
    mount: String,
    root: Uri,
    /// The prefix of all URIs: the URI of the root.
    prefix: String,
    template: UriTemplate,
    tree: Arc<Tree>,
    describe: ResourceDescriber,
    /// Whether a prefetch is running.
    prefetching: AtomicBool,
    /// Limits the threads that work on requests.
    threads: Arc<Semaphore>,
    /// Limits the long line searches among them.
    long_searches: Arc<Semaphore>,
}

impl Files {
    /// Opens the folder, which must exist.
    pub fn open(config: Config) -> Result<Self> {
        if config.path.as_os_str().is_empty() {
            return Err(Error::invalid("a folder to serve has no `path`"));
        }
        let unreadable = |cause| cannot_open(&config.path, cause);
        // Not canonicalised: if the path is a symbolic link to the newest release, it must be followed again later.
        let root =
            std::path::absolute(&config.path).and_then(|path| Root::open(&path)).map_err(unreadable)?;
        let (mount, segment) = match &config.mount {
            Some(mount) => (mount.clone(), mount_segment(OsStr::new(mount))),
            None => {
                // `.` has no file name, but its canonical path does.
                let name = match config.path.file_name() {
                    Some(name) => name.to_owned(),
                    None => config
                        .path
                        .canonicalize()
                        .map_err(unreadable)?
                        .file_name()
                        .unwrap_or_default()
                        .to_owned(),
                };
                (name.to_string_lossy().into_owned(), mount_segment(&name))
            }
        };
        let segment = segment.ok_or_else(|| {
            Error::invalid(format!(
                "`{mount}` cannot be the mount of `{}`: set `mount` to a name",
                config.path.display()
            ))
        })?;
        let prefix = format!("file:///{segment}/");
        let inner = Inner {
            root: Uri::parse(&prefix)?,
            template: UriTemplate::parse(&format!("{prefix}{{+path}}{{?lines,bytes}}"))?,
            tree: Arc::new(Tree::open(&config.tree_options(), root)?),
            describe: ResourceDescriber::new(&config.rules)?,
            prefetching: AtomicBool::new(false),
            threads: Arc::new(Semaphore::new(MAX_THREADS)),
            long_searches: Arc::new(Semaphore::new(MAX_LONG_SEARCHES)),
            config,
            mount,
            prefix,
        };
        // An unreadable folder is an error now and not at the first request.
        let root = inner.open_root()?;
        inner.tree.names(&root).map_err(|cause| inner.unavailable(cause))?;
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The URI of the folder itself.
    pub fn root(&self) -> &Uri {
        &self.inner.root
    }

    /// Prefetches the entries after a URI in the background, unless a prefetch is running.
    fn prefetch(&self, after: Uri) {
        let inner = Arc::clone(&self.inner);
        if inner.config.symlinks || inner.prefetching.swap(true, Ordering::Relaxed) {
            return;
        }
        tokio::task::spawn_blocking(move || {
            Cancellation::Deadline(Instant::now() + PREFETCH_LIMIT).run(|| inner.prefetch(&after));
            inner.prefetching.store(false, Ordering::Relaxed);
        });
    }

    /// Runs `work` on a thread that may block. If the caller is cancelled, the work ends at the next name or directory;
    /// the permit is released when it has ended.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let closed = |cause| Error::failed("wait for a thread", cause);
        let permit = Arc::clone(&self.inner.threads).acquire_owned().await.map_err(closed)?;
        let inner = Arc::clone(&self.inner);
        let caller = CancelOnDrop::default();
        let cancellation = caller.cancellation();
        let work = move || {
            let _permit = permit;
            cancellation.run(|| work(&inner))
        };
        match tokio::task::spawn_blocking(work).await {
            Ok(result) => result,
            Err(cause) => Err(Error::failed("finish reading the folder", cause)),
        }
    }
}

/// The error for a folder that cannot be opened, with a hint for common mistakes.
fn cannot_open(path: &Path, cause: io::Error) -> Error {
    // Any component: relative paths of the configuration file were joined with its directory.
    let home = path.iter().any(|name| name.as_encoded_bytes().starts_with(b"~"));
    let why = if path.is_file() {
        "it is a file; hint: name the folder that it is in instead".to_owned()
    } else if home && is_missing(&cause) {
        format!("{cause}; hint: `~` is expanded by the shell and not here, so write the whole path")
    } else {
        cause.to_string()
    };
    Error::Unavailable(format!("the folder `{}` cannot be opened: {why}", path.display()))
}

/// The mount as a URI segment; `None` if it cannot be a file name.
fn mount_segment(name: &OsStr) -> Option<String> {
    // Converted back to check that the mount is a valid file name.
    let segment = name::to_segment(name).filter(|segment| segment.len() <= MAX_MOUNT_LENGTH)?;
    name::from_segment(&segment).map(|_| segment)
}

#[async_trait]
impl Source for Files {
    fn covers(&self, uri: &Uri) -> Option<Specificity> {
        self.inner.path(uri)?;
        Some(if uri.query().is_none() { Specificity::EXACT } else { self.inner.template.specificity() })
    }

    fn may_appear(&self, uri: &Uri) -> bool {
        self.inner.path(uri).is_some()
    }

    fn name(&self) -> Cow<'_, str> {
        format!("files {}", self.inner.mount).into()
    }

    async fn list(&self, after: Option<&Uri>, limit: usize, _context: &Context) -> Result<Page> {
        if let Some(page) = self.inner.list_cached(after, limit) {
            return Ok(page);
        }
        // A caller that requests a second page will most likely request all of them.
        let pages = after.is_some();
        let after = after.cloned();
        let page = self.blocking(move |inner| inner.list(after.as_ref(), limit)).await?;
        if let Some(last) = page.resources.last().filter(|_| pages && page.more) {
            self.prefetch(last.uri.clone());
        }
        Ok(page)
    }

    async fn read(&self, uri: &Uri, context: &Context) -> Result<Contents> {
        let guard = AbandonOnDrop::default();
        let reader = FileReader { inner: &self.inner, uri, context, search: &guard.search };
        if let Some(read) = reader.read_cached() {
            return read;
        }
        let work = || {
            let (uri, context, search) = (uri.clone(), context.clone(), Arc::clone(&guard.search));
            move |inner: &Inner| FileReader { inner, uri: &uri, context: &context, search: &search }.read()
        };
        let read = self.blocking(work()).await;
        if !guard.search.became_long.load(Ordering::Relaxed) {
            return read;
        }
        guard.search.may_be_long.store(true, Ordering::Relaxed);
        let closed = |cause| Error::failed("wait for a thread", cause);
        let permit = Arc::clone(&self.inner.long_searches).acquire_owned().await.map_err(closed)?;
        let (inner, work) = (Arc::clone(&self.inner), work());
        let search = background::run(move || {
            let _permit = permit;
            work(&inner)
        });
        search.await.map_err(|cause| Error::failed("search the file", cause))?
    }

    async fn templates(&self, _context: &Context) -> Result<Templates> {
        let inner = &self.inner;
        let mut template = Template::new(inner.template.clone(), &inner.mount);
        template.title =
            Some(inner.config.title.clone().unwrap_or_else(|| format!("Files of {}", inner.mount)));
        let what =
            "A file or directory by its path; `lines=1-500` or `bytes=0-65535` reads a part of a file.";
        template.description = Some(match &inner.config.description {
            Some(description) => format!("{description}\n\n{what}"),
            None => what.into(),
        });
        Ok(Templates {
            templates: vec![template],
            freshness: inner.freshness(Proof::always()),
            ..Templates::default()
        })
    }

    async fn complete(&self, asked: Partial<'_>, _context: &Context) -> Result<Completion> {
        if asked.variable != "path" || *asked.template != self.inner.template {
            return Ok(Completion::default());
        }
        let (typed, limit) = (asked.typed.to_owned(), asked.limit);
        self.blocking(move |inner| complete::paths(inner, &typed, limit)).await
    }

    async fn children(
        &self,
        uri: &Uri,
        after: Option<&Uri>,
        limit: usize,
        _context: &Context,
    ) -> Result<Page> {
        let (uri, after) = (uri.clone(), after.cloned());
        self.blocking(move |inner| inner.children(&uri, after.as_ref(), limit)).await
    }

    fn subject(&self, uri: &Uri) -> Uri {
        let text = uri.as_str();
        let path = text[..text.find(['?', '#']).unwrap_or(text.len())].trim_end_matches('/');
        if path.len() == text.len() { uri.clone() } else { Uri::parse(path).unwrap_or_else(|_| uri.clone()) }
    }

    async fn watch(&self) -> Result<Option<BoxStream<'static, Change>>> {
        let changes = watch::start(&self.inner.tree, &self.inner.root, &self.inner.mount)
            .await
            .map_err(|cause| Error::failed("watch the folder", cause))?;
        Ok(Some(Box::pin(changes)))
    }
}

/// Tells a running read, when dropped, that its caller was cancelled.
#[derive(Default)]
struct AbandonOnDrop {
    search: Arc<SearchControl>,
}

impl Drop for AbandonOnDrop {
    fn drop(&mut self) {
        self.search.abandoned.store(true, Ordering::Relaxed);
    }
}

impl Inner {
    /// The key in a URI; `None` if the URI is not in this folder.
    fn path<'a>(&self, uri: &'a Uri) -> Option<&'a str> {
        let text = uri.as_str();
        let end = text.find(['?', '#']).unwrap_or(text.len());
        if uri.fragment().is_some() || !uri.query().is_none_or(Range::is_meant) {
            return None;
        }
        match text[..end].strip_prefix(&self.prefix) {
            Some(path) => Some(path),
            None => (text[..end] == self.prefix[..self.prefix.len() - 1]).then_some(""),
        }
    }

    /// The URI of a key; `None` if it would be too long.
    fn uri(&self, path: &str) -> Option<Uri> {
        self.root.below(path).ok()
    }

    /// The freshness of a response with this proof.
    fn freshness(&self, proof: impl Into<Option<Proof>>) -> Freshness {
        Freshness::proven(proof).with_ttl(self.config.ttl).with_scope(self.config.scope)
    }

    fn open_root(&self) -> Result<Arc<OpenFolder>> {
        self.tree.watched_root().map_err(|cause| self.unavailable(cause))
    }

    fn unavailable(&self, cause: io::Error) -> Error {
        if !is_cancelled(&cause) {
            tracing::warn!(mount = self.mount, %cause, "the folder cannot be read");
        }
        Error::Unavailable(format!("the folder `{}` cannot be read now", self.mount))
    }

    fn list(&self, after: Option<&Uri>, limit: usize) -> Result<Page> {
        let root = self.open_root()?;
        let names = self.tree.names(&root).map_err(|cause| self.unavailable(cause))?;
        let page = self.page(root, names, after, limit, Blocking::Allowed);
        page.map_err(|cause| Error::failed("list the folder", cause))
    }

    /// A page, if all that it contains is cached.
    fn list_cached(&self, after: Option<&Uri>, limit: usize) -> Option<Page> {
        let root = self.tree.cached_folder("")?;
        let names = Tree::cached_names(&root)?;
        self.page(root, names, after, limit, Blocking::Refused).ok()
    }

    fn page(
        &self,
        root: Arc<OpenFolder>,
        names: Arc<NameList>,
        after: Option<&Uri>,
        limit: usize,
        blocking: Blocking,
    ) -> io::Result<Page> {
        let Some(mut walk) = self.walk(root, names, after, blocking)? else {
            return Ok(Page { freshness: self.freshness(None), ..Page::default() });
        };
        let mut page = Page::default();
        let mut complete = true;
        while let Some(item) = walk.next_item()? {
            if page.resources.len() == limit {
                page.more = true;
                break;
            }
            page.resources.extend(match item {
                WalkItem::Folder(folder) => self.describe_folder(folder),
                WalkItem::File(folder, entry) => {
                    let facts = match self.describe.cached_facts(&entry) {
                        Some(facts) => facts,
                        None => {
                            blocking.check()?;
                            self.describe.facts(&self.tree, folder, &entry)?
                        }
                    };
                    complete &= facts.complete;
                    self.uri(&entry.key).map(|uri| self.describe.file(folder, &entry, facts, uri))
                }
            });
        }
        // A file that could not be read may be readable at the next request.
        page.freshness = self.freshness(walk.into_proof().build().filter(|_| complete));
        Ok(page)
    }

    /// A walk over the keys after a URI; `None` if all of them come before it.
    fn walk(
        &self,
        root: Arc<OpenFolder>,
        names: Arc<NameList>,
        after: Option<&Uri>,
        blocking: Blocking,
    ) -> io::Result<Option<TreeWalk<'_>>> {
        let Some(after) = after.map(Uri::as_str) else {
            return Ok(Some(TreeWalk::from_start(&self.tree, root, names, blocking)));
        };
        match after.strip_prefix(&self.prefix) {
            Some(path) => TreeWalk::after(&self.tree, root, names, path, blocking).map(Some),
            None if *after < *self.prefix => {
                Ok(Some(TreeWalk::from_start(&self.tree, root, names, blocking)))
            }
            None => Ok(None),
        }
    }

    /// Visits the entries after a URI, so that the next pages are cached when they are requested. Ends before the
    /// first cached entries expire.
    fn prefetch(&self, after: &Uri) {
        let began = Instant::now();
        let Ok(root) = self.tree.watched_root() else { return };
        let Ok(names) = self.tree.names(&root) else { return };
        let Ok(Some(mut walk)) = self.walk(root, names, Some(after), Blocking::Allowed) else { return };
        while let Ok(Some(item)) = walk.next_item() {
            if let WalkItem::File(folder, entry) = item
                && self.describe.facts(&self.tree, folder, &entry).is_err()
            {
                break;
            }
            if began.elapsed() > PREFETCH_TIME {
                break;
            }
        }
    }

    fn children(&self, uri: &Uri, after: Option<&Uri>, limit: usize) -> Result<Page> {
        let whole = uri.query().is_none_or(|query| matches!(Range::parse(query), Ok(None)));
        let path = self.path(uri).filter(|_| whole);
        let path = path.ok_or_else(|| Error::NotFound(uri.clone()))?;
        let failed = |cause| read_error(uri, cause);
        let folder = match self.tree.resolve(self.open_root()?, path).map_err(failed)? {
            Resolved::Folder(folder) => folder,
            Resolved::File(..) => return Err(Error::NotDirectory(uri.clone())),
        };
        let names = self.tree.names(&folder).map_err(failed)?;
        let own = format!("{}{}", self.prefix, folder.logical.key);
        let first = match after.map(Uri::as_str) {
            None => 0,
            Some(after) => match after.strip_prefix(&*own) {
                Some(rest) => names.partition_point(|name| name <= rest),
                None if *after < *own => 0,
                None => names.len(),
            },
        };
        let mut page = Page { freshness: self.freshness(None), ..Page::default() };
        for key in names.iter_from(first) {
            let resource = if key.ends_with('/') {
                let child = walk::open_listed_folder(&self.tree, &folder, key, None).map_err(failed)?;
                child.and_then(|child| self.describe_folder(&child))
            } else {
                match walk::file_entry(&self.tree, &folder, key).map_err(failed)? {
                    Some(entry) => {
                        let facts = self.describe.facts(&self.tree, &folder, &entry).map_err(failed)?;
                        self.uri(&entry.key).map(|uri| self.describe.file(&folder, &entry, facts, uri))
                    }
                    None => None,
                }
            };
            let Some(resource) = resource else { continue };
            if page.resources.len() == limit {
                page.more = true;
                break;
            }
            page.resources.push(resource);
        }
        Ok(page)
    }

    fn describe_folder(&self, folder: &OpenFolder) -> Option<Resource> {
        let uri = self.uri(&folder.logical.key)?;
        let Some(name) = folder.logical.path.file_name() else {
            let mut resource = self.describe.folder(folder, uri, self.mount.clone());
            resource.title.clone_from(&self.config.title);
            resource.description.clone_from(&self.config.description);
            return Some(resource);
        };
        Some(self.describe.folder(folder, uri, name.to_string_lossy().into_owned()))
    }
}

/// The error for a failure to read the file or directory at `uri`.
fn read_error(uri: &Uri, cause: io::Error) -> Error {
    if is_missing(&cause) {
        return Error::NotFound(uri.clone());
    }
    if cause.kind() == io::ErrorKind::PermissionDenied {
        return Error::Denied(uri.clone());
    }
    Error::failed("read the file", cause)
}

#[cfg(test)]
mod tests {
    use super::{ChangeDetection, Config, Files};
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn work_ends_when_its_caller_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let config = Config { watch: ChangeDetection::Poll, ..Config::new(folder.path()) };
        let files = Files::open(config).unwrap();
        let (started, start) = oneshot::channel();
        let (ended, end) = oneshot::channel();
        let work = files.blocking(move |inner| {
            let _ = started.send(());
            while inner.list(None, 1).is_ok() {}
            let _ = ended.send(());
            Ok(())
        });
        tokio::select! {
            _ = work => panic!("the work ended before its caller was gone"),
            _ = start => {}
        }
        end.await.unwrap();
        files.blocking(|inner| inner.list(None, 1)).await.unwrap();
    }
}
