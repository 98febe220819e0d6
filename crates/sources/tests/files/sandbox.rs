//! A temporary folder that a test fills and serves.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use libris_core::{Content, ContentBody, Context, Error, Result, Source, Uri};
use libris_sources::Files;
use libris_sources::files::Config;
use tempfile::TempDir;

/// A folder `root` in a temporary directory, whose other content must never be served.
pub(crate) struct Sandbox {
    outside: TempDir,
}

impl Sandbox {
    pub(crate) fn new() -> Self {
        Self::in_folder(TempDir::new().unwrap())
    }

    /// A sandbox for very many files, in memory if the system has `/dev/shm`.
    pub(crate) fn large() -> Self {
        Self::in_folder(TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).unwrap())
    }

    fn in_folder(outside: TempDir) -> Self {
        fs::create_dir(outside.path().join("root")).unwrap();
        Self { outside }
    }

    /// A sandbox with these files.
    pub(crate) fn with(files: &[(&str, &str)]) -> Self {
        let sandbox = Self::new();
        for (path, content) in files {
            sandbox.write(path, content);
        }
        sandbox
    }

    pub(crate) fn outside(&self) -> &Path {
        self.outside.path()
    }

    pub(crate) fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        self.outside.path().join("root").join(path)
    }

    pub(crate) fn write(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub(crate) fn files(&self) -> Files {
        self.files_with(|_| ())
    }

    pub(crate) fn files_with(&self, change: impl FnOnce(&mut Config)) -> Files {
        let mut config = Config::new(self.path(""));
        change(&mut config);
        Files::open(config).unwrap()
    }
}

pub(crate) fn uri(text: &str) -> Uri {
    Uri::parse(text).unwrap()
}

/// Lists everything, page by page. Returns the keys.
pub(crate) async fn listed(source: &impl Source) -> Vec<String> {
    let mut all: Vec<Uri> = Vec::new();
    loop {
        let page = source.list(all.last(), 3, &Context::default()).await.unwrap();
        assert_eq!(page.more, page.more && page.resources.len() == 3, "a short page with more to come");
        all.extend(page.resources.into_iter().map(|resource| resource.uri));
        if !page.more {
            break;
        }
    }
    assert!(all.is_sorted_by(|one, other| one < other), "{all:?}");
    all.iter().map(|uri| uri.as_str().strip_prefix("file:///root/").unwrap().to_owned()).collect()
}

pub(crate) async fn read(source: &impl Source, path: &str) -> Result<Vec<Content>> {
    let uri = Uri::parse(&format!("file:///root/{path}"))?;
    Ok(source.read(&uri, &Context::default()).await?.parts)
}

/// Reads a resource and renders the result, one line for each part.
pub(crate) async fn rendered(source: &impl Source, path: &str) -> String {
    match read(source, path).await {
        Ok(parts) => parts.iter().map(render).collect::<Vec<_>>().join("\n"),
        Err(error) => format!("{}: {error}", format!("{error:?}").split([' ', '(', '{']).next().unwrap()),
    }
}

/// Reads the children of a directory one by one and renders the results.
pub(crate) async fn rendered_children(source: &impl Source, path: &str) -> String {
    let directory = uri(&format!("file:///root/{path}"));
    let children = source.children(&directory, None, 1000, &Context::default()).await.unwrap().resources;
    let mut lines = Vec::new();
    for child in children {
        lines.push(rendered(source, child.uri.as_str().strip_prefix("file:///root/").unwrap()).await);
    }
    lines.join("\n")
}

/// Whether a read failed because nothing is there, with or without a hint.
pub(crate) fn is_not_found<T>(result: &Result<T>) -> bool {
    result.as_ref().is_err_and(Error::is_not_found)
}

fn render(part: &Content) -> String {
    let mime = part.mime.as_deref().unwrap_or("-");
    let body = match &part.body {
        ContentBody::Text(text) => format!("text {text:?}"),
        ContentBody::Bytes(bytes) => format!("bytes {bytes:?}"),
    };
    // The size of the whole file and the next part are left to the transcripts.
    let meta = part.meta.as_ref().filter(|meta| !meta.contains_key("dev.libris/totalBytes"));
    let meta = meta.map(|meta| format!(" {}", serde_json::to_string(meta).unwrap()));
    format!("{} {mime} {body}{}", part.uri, meta.unwrap_or_default())
}

/// A thread that repeats some work until this is dropped.
pub(crate) struct BackgroundLoop {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl BackgroundLoop {
    pub(crate) fn each(work: impl Fn(usize) + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let work = move || (0..).take_while(|_| !stopped.load(Ordering::Relaxed)).for_each(work);
        Self { stop, thread: Some(std::thread::spawn(work)) }
    }
}

impl Drop for BackgroundLoop {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            assert!(thread.join().is_ok() || std::thread::panicking());
        }
    }
}
