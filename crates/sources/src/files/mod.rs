//! The files source: a folder whose files and directories are resources.
//!
//! Their URIs are `file:///<mount>/<path>`, where the mount names the folder, or `<scheme>://<mount>/<path>` with a
//! configured scheme; a single file without a mount is `file:///<name>`. URIs of directories end with a slash.
//! `crate::tree` reads and watches the folder; this module turns it into a [`Source`]: pages of resources,
//! contents, completions.

mod background;
mod complete;
mod config;
mod definition;
mod describe;
mod line_index;
mod list;
mod missing;
mod open_error;
mod query;
mod read;
mod read_folder;
#[cfg(feature = "skills")]
mod skills;

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_core::stream::BoxStream;
use libris_core::uri_template::Specificity;
use libris_core::{
    Budget, Change, Completion, CompletionRequest, Contents, Context, Error, Freshness, Page, Proof, Result,
    Source, Template, Templates, Uri, UriSpan, UriTemplate,
};
#[cfg(feature = "skills")]
use libris_core::{Skill, SkillPage};

pub use crate::tree::ChangeDetection;
pub use config::{Config, MetadataRule};

use crate::folder_listing;
#[cfg(feature = "skills")]
use crate::skill_tree::SkillTree;
use crate::tree::{
    Cancellation, OpenFolder, Root, Tree, TreeOptions, TreeThreads, is_cancelled, is_locked, is_missing,
    name, watch,
};
use complete::CompletedKinds;
use describe::ResourceDescriber;
use line_index::LineIndexes;
use list::add_note;
use open_error::cannot_open;
use read::{FileReader, SearchControl};

/// The longest mount as a URI segment: the longest file name with every byte escaped.
const MAX_MOUNT_LENGTH: usize = 3 * 255;

/// The maximum number of threads that work on requests for one folder at once.
const MAX_THREADS: usize = 32;

/// The maximum number of searches for lines in large files that run at once. Each keeps a processor busy.
const MAX_LONG_SEARCHES: usize = 1;

/// The duration after which a prefetch ends even in the middle of a directory.
const PREFETCH_LIMIT: Duration = Duration::from_secs(10);

/// A folder as a source of resources.
pub struct Files {
    inner: Arc<FilesInner>,
}

/// The state that requests and background tasks share.
struct FilesInner {
    config: Config,
    /// The mount without URI escapes.
    mount: String,
    /// The URI to which the percent-encoded path of a resource, its key in `crate::tree`, is appended.
    base: Uri,
    /// The URI of the folder, or of the single file.
    root: Uri,
    /// The segment of the single file that is served instead of a folder.
    only: Option<String>,
    /// The text of `base`, with which all URIs begin.
    prefix: String,
    template: UriTemplate,
    folder_template: UriTemplate,
    /// The template whose variable is a list of path segments.
    segments_template: UriTemplate,
    tree: Arc<Tree>,
    describe: ResourceDescriber,
    /// The skills in the folder, if they are published.
    #[cfg(feature = "skills")]
    skills: Option<SkillTree>,
    /// Whether a prefetch is running.
    prefetching: AtomicBool,
    /// Limits the threads that work on requests.
    threads: TreeThreads,
    /// Limits how many long searches for lines run at once, each on a thread of its own. Waiting clients are served
    /// in turn.
    long_searches: Arc<Budget>,
    line_indexes: LineIndexes,
}

impl Files {
    /// Opens the folder or the file, which must exist.
    pub fn open(mut config: Config) -> Result<Self> {
        if config.path.as_os_str().is_empty() {
            return Err(Error::invalid("a folder to serve has no `path`; hint: set `path` to the folder"));
        }
        let path = config.path.clone();
        let unreadable = |cause| cannot_open(&path, cause);
        let mut options = config.tree_options();
        let single = match path.is_file() {
            true => Some(SingleFile::open(&path).map_err(unreadable)?),
            false => None,
        };
        let root = match &single {
            Some(file) => {
                file.narrow(&mut options);
                config.folders = false;
                Root::open(&file.folder)
            }
            // Not canonicalised: the path may be a symbolic link whose target changes later, such as `current` to
            // `release-2`, and must then be resolved again.
            None => std::path::absolute(&path).and_then(|path| Root::open(&path)),
        };
        let root = root.map_err(unreadable)?;
        let name = match (&config.mount, path.file_name()) {
            (Some(mount), _) => mount.into(),
            (None, Some(name)) => name.to_owned(),
            // `.` has no file name, but its canonical path does.
            (None, None) => {
                path.canonicalize().map_err(unreadable)?.file_name().unwrap_or_default().to_owned()
            }
        };
        let mount = name.to_string_lossy().into_owned();
        let segment = mount_segment(&name).ok_or_else(|| {
            Error::invalid(format!(
                "`{mount}` cannot be the mount of `{}`: set `mount` to a name",
                path.display()
            ))
        })?;
        let segment = (single.is_none() || config.mount.is_some()).then_some(&*segment);
        let base_uri = base_uri(config.scheme.as_deref(), segment)?;
        // The text of the parsed URI is in normal form, like the URIs that it is compared with.
        let prefix = base_uri.as_str().to_owned();
        let only = single.map(|file| file.segment);
        let template = match &only {
            Some(file) => format!("{prefix}{file}{{?lines,bytes}}"),
            None => format!("{prefix}{{+path}}{{?lines,bytes}}"),
        };
        // VS Code completes folder by folder only in a variable of this form.
        let segments_template = format!("{}{{/path*}}", prefix.trim_end_matches('/'));
        let folder_template = format!("{prefix}{{+folder}}{{?{}}}", folder_listing::KEYS.join(","));
        let inner = FilesInner {
            root: match &only {
                Some(file) => base_uri.below(file)?,
                None => base_uri.clone(),
            },
            base: base_uri,
            template: UriTemplate::parse(&template)?,
            folder_template: UriTemplate::parse(&folder_template)?,
            segments_template: UriTemplate::parse(&segments_template)?,
            only,
            tree: Arc::new(Tree::open(&options, root)?),
            describe: ResourceDescriber::new(&config.rules)?,
            #[cfg(feature = "skills")]
            skills: config.skills.then(|| skills::find_in(&config, &prefix)),
            prefetching: AtomicBool::new(false),
            threads: TreeThreads::new(MAX_THREADS),
            long_searches: Budget::new(MAX_LONG_SEARCHES),
            line_indexes: LineIndexes::default(),
            config,
            mount,
            prefix,
        };
        // An unreadable folder is an error now and not at the first request.
        let root = inner.open_root()?;
        inner.tree.names(&root).map_err(|cause| inner.unavailable(cause))?;
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The URI of the folder itself, or of the single file.
    pub fn root(&self) -> &Uri {
        &self.inner.root
    }

    /// Prefetches the entries after a URI in the background, unless a prefetch is running or the folder follows symbolic
    /// links.
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

    /// Runs `work` for the client of a request on a thread that may block.
    async fn blocking<T: Send + 'static>(
        &self,
        context: &Context,
        work: impl FnOnce(&FilesInner) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let inner = Arc::clone(&self.inner);
        self.inner.threads.run(context.client(), move || work(&inner)).await
    }
}

/// A file that is served instead of a folder. The tree is the folder that contains it, with nothing else visible.
struct SingleFile {
    folder: PathBuf,
    name: OsString,
    segment: String,
}

impl SingleFile {
    /// Opens the file. A symbolic link is resolved once, now.
    fn open(path: &Path) -> io::Result<Self> {
        let path = path.canonicalize()?;
        // An unreadable file is an error now and not at the first request.
        File::open(&path)?;
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let segment = name::to_segment(name).ok_or(io::ErrorKind::InvalidFilename)?;
        Ok(Self { folder: folder.to_owned(), name: name.to_owned(), segment })
    }

    /// Makes only this file visible, even if its name is hidden or ignored, since the user named it.
    fn narrow(&self, options: &mut TreeOptions) {
        options.only = Some(self.name.clone());
        options.gitignore = false;
    }
}

/// The URI of the folder. In a `file` URI the mount is the first path segment; with any other scheme it is the authority.
fn base_uri(scheme: Option<&str>, segment: Option<&str>) -> Result<Uri> {
    match scheme {
        None | Some("file") => match segment {
            Some(segment) => Uri::parse(&format!("file:///{segment}/")),
            None => Uri::parse("file:///"),
        },
        // Clients fetch these URIs themselves.
        Some(scheme @ ("http" | "https" | "data")) => Err(Error::invalid(format!(
            "`{scheme}` cannot be the `scheme` of a folder: choose a word of your own, such as `docs`"
        ))),
        Some(scheme) => {
            let authority = segment.unwrap_or_default().replace(':', "%3A").replace('@', "%40");
            Uri::parse(&format!("{scheme}://{authority}/")).map_err(|_| {
                Error::invalid(format!(
                    "`{scheme}` cannot be the `scheme` of a folder: choose a word of letters, such as `docs`"
                ))
            })
        }
    }
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
        self.inner.path(uri).is_some() && query::check_keys(uri).is_ok()
    }

    fn name(&self) -> Cow<'_, str> {
        format!("files {}", self.inner.mount).into()
    }

    fn span(&self) -> Option<UriSpan> {
        Some(UriSpan::below(self.inner.root.as_str()))
    }

    async fn list(&self, after: Option<&Uri>, limit: usize, context: &Context) -> Result<Page> {
        if let Some(page) = self.inner.list_cached(after, limit) {
            return Ok(page);
        }
        // A caller that requests a second page will most likely request all of them.
        let is_later_page = after.is_some();
        let after = after.cloned();
        let page = self.blocking(context, move |inner| inner.list(after.as_ref(), limit)).await?;
        if let Some(last) = page.resources.last().filter(|_| is_later_page && page.more) {
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
            move |inner: &FilesInner| {
                FileReader { inner, uri: &uri, context: &context, search: &search }.read()
            }
        };
        let read = self.blocking(context, work()).await;
        if !guard.search.became_long.load(Ordering::Relaxed) {
            return read;
        }
        // A line search became long and stopped. It starts again on a thread of low priority, under a permit.
        let busy = Error::Busy("too many long searches are in progress");
        let permit = self.inner.long_searches.take(context.client(), 1).await.ok_or(busy)?;
        *guard.search.permit() = Some(permit);
        let (inner, work, search) = (Arc::clone(&self.inner), work(), Arc::clone(&guard.search));
        let search = background::run(move || {
            let read = work(&inner);
            *search.permit() = None;
            read
        });
        search.await.map_err(|cause| Error::failed("search the file", cause))?
    }

    async fn templates(&self, _context: &Context) -> Result<Templates> {
        let inner = &self.inner;
        let described = |uri: &UriTemplate, name: &str, title: String, what: &str| {
            let mut template = Template::new(uri.clone(), name);
            template.title = Some(title);
            template.description.clone_from(&inner.config.description);
            add_note(&mut template.description, what);
            if inner.config.depth.is_some() || inner.config.max_listed.is_some() {
                add_note(&mut template.description, "Not everything in the folder is listed.");
            }
            template
        };
        let freshness = inner.freshness(Proof::always());
        let title = inner.config.title.as_ref();
        if inner.only.is_some() {
            let what = "`lines=1-500` or `bytes=0-65535` reads a part of the file.";
            let title = title.unwrap_or(&inner.mount).clone();
            let templates = vec![described(&inner.template, &inner.mount, title, what)];
            return Ok(Templates { templates, freshness, ..Templates::default() });
        }
        let files = described(
            &inner.template,
            &inner.mount,
            title.cloned().unwrap_or_else(|| format!("Files of {}", inner.mount)),
            "A file by its path; `lines=1-500` or `bytes=0-65535` reads a part of it.",
        );
        let folders = described(
            &inner.folder_template,
            &format!("{} folders", inner.mount),
            format!("Folders of {}", title.unwrap_or(&inner.mount)),
            "The listing of a folder and its small text files. `after` is the name of the last entry of the previous \
             page, `match` selects the entries whose name contains this text, `format` is `markdown` or `json`, and \
             `contents=none` omits the text files.",
        );
        let segments = described(
            &inner.segments_template,
            &format!("{} by segments", inner.mount),
            format!("{}, folder by folder", title.unwrap_or(&inner.mount)),
            "A file or folder by the segments of its path.",
        );
        Ok(Templates { templates: vec![files, folders, segments], freshness, ..Templates::default() })
    }

    async fn complete(&self, asked: CompletionRequest<'_>, context: &Context) -> Result<Completion> {
        let inner = &self.inner;
        let (typed, limit) = (asked.typed.to_owned(), asked.limit);
        let kinds = match asked.variable {
            "path" if *asked.template == inner.template => CompletedKinds::All,
            "path" if *asked.template == inner.segments_template => {
                return self
                    .blocking(context, move |inner| complete::segments_of_paths(inner, &typed, limit))
                    .await;
            }
            "folder" if *asked.template == inner.folder_template => CompletedKinds::Folders,
            "format" => return Ok(Completion::of(["markdown", "json"], &typed, limit)),
            "contents" => return Ok(Completion::of(["text", "none"], &typed, limit)),
            _ => return Ok(Completion::default()),
        };
        self.blocking(context, move |inner| complete::paths(inner, &typed, limit, kinds)).await
    }

    async fn children(
        &self,
        uri: &Uri,
        after: Option<&Uri>,
        limit: usize,
        context: &Context,
    ) -> Result<Page> {
        let (uri, after) = (uri.clone(), after.cloned());
        self.blocking(context, move |inner| inner.children(&uri, after.as_ref(), limit)).await
    }

    fn has_directories(&self) -> bool {
        self.inner.only.is_none()
    }

    #[cfg(feature = "skills")]
    async fn skills(&self, after: Option<&Uri>, limit: usize, context: &Context) -> Result<SkillPage> {
        let after = after.cloned();
        match self.inner.skills.is_some() {
            true => self.blocking(context, move |inner| inner.skill_page(after.as_ref(), limit)).await,
            false => Ok(SkillPage::default()),
        }
    }

    #[cfg(feature = "skills")]
    async fn skill(&self, uri: &Uri, context: &Context) -> Result<(Skill, Freshness)> {
        let uri = uri.clone();
        self.blocking(context, move |inner| inner.skill(&uri)).await
    }

    fn subject(&self, uri: &Uri) -> Uri {
        let text = uri.as_str();
        let path = text[..text.find(['?', '#']).unwrap_or(text.len())].trim_end_matches('/');
        if path.len() == text.len() { uri.clone() } else { Uri::parse(path).unwrap_or_else(|_| uri.clone()) }
    }

    async fn watch(&self) -> Result<Option<BoxStream<'static, Change>>> {
        let changes = watch::start(&self.inner.tree, &self.inner.base, &self.inner.mount)
            .await
            .map_err(|cause| Error::failed("watch the folder", cause))?;
        Ok(Some(Box::pin(changes)))
    }
}

/// Tells the work of a read on another thread that nobody waits for it any more. If the request is cancelled, its
/// future, and this guard in it, are dropped.
#[derive(Default)]
struct AbandonOnDrop {
    search: Arc<SearchControl>,
}

impl Drop for AbandonOnDrop {
    fn drop(&mut self) {
        self.search.abandoned.store(true, Ordering::Relaxed);
    }
}

impl FilesInner {
    /// The key in a URI; `None` if the URI is not in this folder or has a fragment.
    fn path<'a>(&self, uri: &'a Uri) -> Option<&'a str> {
        let text = uri.as_str();
        let end = text.bytes().position(|byte| matches!(byte, b'?' | b'#')).unwrap_or(text.len());
        if uri.fragment().is_some() {
            return None;
        }
        match text[..end].strip_prefix(&self.prefix) {
            Some(path) => self.only.as_deref().is_none_or(|only| only == path).then_some(path),
            None if self.only.is_some() => None,
            None => (text[..end] == self.prefix[..self.prefix.len() - 1]).then_some(""),
        }
    }

    /// The URI of a key; `None` if it would be too long.
    fn uri(&self, path: &str) -> Option<Uri> {
        self.base.below(path).ok()
    }

    /// The freshness of a response with this proof.
    fn freshness(&self, proof: impl Into<Option<Proof>>) -> Freshness {
        Freshness::proven(proof).with_ttl(self.config.ttl).with_scope(self.config.scope)
    }

    /// Whether texts are served byte for byte, so that the digests of skills hold.
    fn is_exact(&self) -> bool {
        #[cfg(feature = "skills")]
        return self.skills.is_some();
        #[cfg(not(feature = "skills"))]
        return false;
    }

    fn open_root(&self) -> Result<Arc<OpenFolder>> {
        self.tree.watched_root().map_err(|cause| self.unavailable(cause))
    }

    fn unavailable(&self, cause: io::Error) -> Error {
        if !is_cancelled(&cause) {
            tracing::warn!(mount = self.mount, %cause, "the folder cannot be read");
        }
        Error::Unavailable(format!(
            "`{}` cannot be read now; hint: check that it still exists and that Libris may read it",
            self.mount
        ))
    }

    /// The heading of a folder's listing: for the root, the configured title if there is one; otherwise the path, which
    /// begins with the mount.
    fn folder_title(&self, folder: &OpenFolder) -> String {
        let path = folder.logical.path.iter().map(|segment| segment.to_string_lossy());
        match &self.config.title {
            Some(title) if folder.logical.key.is_empty() => title.clone(),
            _ => [Cow::from(&self.mount)].into_iter().chain(path).collect::<Vec<_>>().join("/"),
        }
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
    if is_locked(&cause) {
        return Error::Unavailable(format!(
            "`{uri}` is open in another program that does not share it; hint: read it again once that program has closed it"
        ));
    }
    Error::failed("read the file", cause)
}

#[cfg(test)]
mod tests {
    use super::{ChangeDetection, Config, Files};
    use libris_core::Context;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn work_ends_when_its_caller_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let config = Config { watch: ChangeDetection::Poll, ..Config::new(folder.path()) };
        let files = Files::open(config).unwrap();
        let context = Context::default();
        let (started, start) = oneshot::channel();
        let (ended, end) = oneshot::channel();
        let work = files.blocking(&context, move |inner| {
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
        files.blocking(&context, |inner| inner.list(None, 1)).await.unwrap();
    }
}
