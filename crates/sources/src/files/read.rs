//! Reading files, ranges of files, and directories.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::sync::atomic::{AtomicBool, Ordering};

use libris_core::{Body, Content, Contents, Context, DIRECTORY, Error, Result, Uri};

use super::Inner;
use crate::media::{self, CodeUnits, ContentClass};
use crate::meta;
use crate::part::{ByteBounds, LineScanner, OverLimit};
use crate::range::{HINT, HINT_BYTES, Range, RangeSpan};
use crate::tree::{DirectoryHandle, Metadata, OpenFolder, ProofBuilder, Resolved, StatStamp, walk};

/// The interval, in bytes, at which a search for lines reports progress.
const PROGRESS_INTERVAL: u64 = 1024 * 1024;

/// The largest file that is read on the async thread, which blocks other requests meanwhile.
const MAX_INLINE_READ: u64 = 2 * 1024 * 1024;

/// The size of the byte range that an error suggests for a line that is too long.
const SUGGESTED_RANGE: u64 = 64 * 1024;

/// The media type of notes in place of omitted data.
const NOTE_MIME: &str = "text/plain";

/// The size from which on memory is reserved before contents are loaded. Smaller contents are counted once they are
/// loaded.
const RESERVE_THRESHOLD: u64 = 64 * 1024;

/// The number of bytes after which a search for lines counts as long.
const LONG_SEARCH_THRESHOLD: u64 = 32 * 1024 * 1024;

/// One read request.
pub(super) struct FileReader<'a> {
    pub(super) inner: &'a Inner,
    pub(super) uri: &'a Uri,
    pub(super) context: &'a Context,
    pub(super) search: &'a SearchControl,
}

/// The state of a line search, shared by the searching thread and its caller.
#[derive(Debug, Default)]
pub(super) struct SearchControl {
    /// Whether the caller was cancelled.
    pub(super) abandoned: AtomicBool,
    /// Whether the search may be long. Few such searches run at once, since each keeps a processor busy.
    pub(super) may_be_long: AtomicBool,
    /// Whether the search stopped because it became long without permission.
    pub(super) became_long: AtomicBool,
}

impl SearchControl {
    /// Fails if the search must stop after this many bytes. A blocking task can only stop itself.
    fn check_continue(&self, done: u64) -> io::Result<()> {
        if self.abandoned.load(Ordering::Relaxed) {
            return Err(io::Error::other("the caller was cancelled"));
        }
        if done > LONG_SEARCH_THRESHOLD && !self.may_be_long.load(Ordering::Relaxed) {
            self.became_long.store(true, Ordering::Relaxed);
            return Err(io::Error::other("the line search takes too long"));
        }
        Ok(())
    }
}

impl FileReader<'_> {
    pub(super) fn read(&self) -> Result<Contents> {
        let path = self.inner.path(self.uri).ok_or_else(|| Error::NotFound(self.uri.clone()))?;
        let range = self.uri.query().map_or(Ok(None), Range::parse)?;
        let mut proof = ProofBuilder::new(&self.inner.tree.prover);
        let found =
            self.inner.tree.resolve(self.inner.open_root()?, path).map_err(|cause| self.read_error(cause))?;
        let parts = match (found, range) {
            (Resolved::Folder(folder), None) => self.read_directory(&folder, &mut proof)?,
            (Resolved::Folder(_), Some(_)) => {
                return Err(Error::invalid(format!(
                    "`{}` is a directory, which has no lines or bytes: read it without `?`",
                    self.uri.without_query()
                )));
            }
            (Resolved::File(folder, name), range) => {
                let (file, metadata) = self.open(&folder, &name, &mut proof)?;
                vec![match range {
                    None => self.read_whole(file, &metadata, &name)?,
                    Some(range) => self.read_range(file, &metadata, &name, range)?,
                }]
            }
        };
        Ok(Contents { parts, freshness: self.inner.freshness(proof.build()) })
    }

    /// Reads without waiting for a disk; `None` unless the URI is that of a file of moderate size, in a cached
    /// directory (which is always on a local file system), whose data is in the page cache.
    pub(super) fn read_cached(&self) -> Option<Result<Contents>> {
        let path = self.inner.path(self.uri).filter(|_| self.uri.query().is_none())?;
        let tree = &self.inner.tree;
        let mut proof = ProofBuilder::new(&tree.prover);
        let (folder, segment) = tree.cached_parent(path).filter(|(folder, _)| folder.matches_quickly())?;
        let (name, directory) = tree.entry(&folder, segment).ok()?;
        if directory {
            return None;
        }
        let (file, metadata) = self.open(&folder, &name, &mut proof).ok()?;
        let fits = metadata.len() <= MAX_INLINE_READ.min(self.inner.config.max_size);
        if !(fits && is_in_page_cache(&file, metadata.len())) {
            return None;
        }
        let read = self.read_whole(file, &metadata, &name);
        let freshness = |proof: ProofBuilder| self.inner.freshness(proof.build());
        Some(read.map(|content| Contents::from(content).with_freshness(freshness(proof))))
    }

    fn read_whole(&self, mut file: File, metadata: &Metadata, name: &OsStr) -> Result<Content> {
        let limit = self.inner.config.max_size;
        if metadata.len() > limit {
            return Err(self.too_large(&mut file, name, metadata.len()));
        }
        self.reserve(metadata.len())?;
        // It may have grown since.
        let data = read_up_to(&file, metadata.len(), limit).map_err(|cause| self.read_error(cause))?;
        let Some(data) = data else {
            let size = file.metadata().map_or(limit + 1, |grown| grown.len());
            return Err(self.too_large(&mut file, name, size));
        };
        let mime = mime(name, &data);
        Ok(Content {
            uri: self.uri.clone(),
            mime: Some(mime.into()),
            body: media::body(data, mime),
            meta: None,
        })
    }

    /// Reserves memory for contents of this size before they are loaded.
    fn reserve(&self, size: u64) -> Result<()> {
        if size <= RESERVE_THRESHOLD { Ok(()) } else { self.context.reserve(size) }
    }

    fn too_large(&self, file: &mut File, name: &OsStr, size: u64) -> Error {
        let mut head = Vec::new();
        let begin = file.seek(SeekFrom::Start(0));
        if let Err(cause) = begin.and_then(|_| file.take(media::HEAD as u64).read_to_end(&mut head)) {
            return self.read_error(cause);
        }
        let hint = if media::has_lines(mime(name, &head), &head) { HINT } else { HINT_BYTES };
        self.over_limit(size, hint)
    }

    fn over_limit(&self, size: u64, hint: impl Into<String>) -> Error {
        let limit = self.inner.config.max_size;
        Error::TooLarge { uri: self.uri.clone(), size, limit, hint: Some(hint.into()) }
    }

    fn open(&self, folder: &OpenFolder, name: &OsStr, proof: &mut ProofBuilder) -> Result<(File, Metadata)> {
        proof.add_directory(folder);
        let (file, metadata) = self
            .inner
            .tree
            .with_target(folder, name, DirectoryHandle::open)
            .map_err(|cause| self.read_error(cause))?;
        proof
            .add_file(folder.handle.path_from_root(folder.logical.path.join(name)), StatStamp::of(&metadata));
        Ok((file.into_std(), metadata))
    }

    fn read_range(&self, mut file: File, metadata: &Metadata, name: &OsStr, range: Range) -> Result<Content> {
        let read_error = |cause| self.read_error(cause);
        let mut head = Vec::new();
        (&file).take(media::HEAD as u64).read_to_end(&mut head).map_err(read_error)?;
        let mime = mime(name, &head);
        let body = match range {
            Range::Lines(span) => {
                let lines = self.lines(&mut file, metadata.len(), &head, mime, span)?;
                Body::Text(media::lines(&head, lines).ok_or_else(|| self.not_text())?)
            }
            Range::Bytes(span) => {
                let bounds = ByteBounds::of_bytes(span, metadata.len());
                media::exact(self.slice(&mut file, bounds, "bytes")?, mime)
            }
        };
        Ok(Content { uri: self.uri.clone(), mime: Some(mime.into()), body, meta: None })
    }

    fn lines(&self, file: &mut File, size: u64, head: &[u8], mime: &str, span: RangeSpan) -> Result<Vec<u8>> {
        if media::content_class(mime) == ContentClass::Binary {
            return Err(self.not_text());
        }
        let mut reported = 0;
        let mut progress = |done: u64| {
            self.search.check_continue(done)?;
            if done >= reported + PROGRESS_INTERVAL {
                reported = done;
                self.context.progress(done, Some(size));
            }
            Ok(())
        };
        let limit = self.inner.config.max_size;
        let mut search = LineScanner { file, units: CodeUnits::of(head), limit, progress: &mut progress };
        match search.bounds(span).map_err(|cause| self.read_error(cause))? {
            ByteBounds::OverLimit(OverLimit { size, start, one_line: true }) => {
                let count = SUGGESTED_RANGE.min(limit).max(1);
                let part = match span {
                    RangeSpan::From(..) => format!("{start}-{}", start.saturating_add(count - 1)),
                    RangeSpan::Last(_) => format!("-{count}"),
                };
                let hint = format!("one line is already longer: read a part of it with `?bytes={part}`");
                Err(self.over_limit(size, hint))
            }
            bounds => self.slice(file, bounds, "lines"),
        }
    }

    fn slice(&self, file: &mut File, bounds: ByteBounds, unit: &str) -> Result<Vec<u8>> {
        let too_many = |size| self.over_limit(size, format!("ask for fewer {unit}"));
        let (start, size) = match bounds {
            ByteBounds::Within(start, end) => (start, end - start),
            ByteBounds::PastEnd(count) => {
                let there = match count {
                    1 => format!("there is 1 {}", unit.trim_end_matches('s')),
                    count => format!("there are {count} {unit}"),
                };
                return Err(Error::invalid(format!("`{}` begins past the end: {there}", self.uri)));
            }
            ByteBounds::OverLimit(over) => return Err(too_many(over.size)),
        };
        if size > self.inner.config.max_size {
            return Err(too_many(size));
        }
        self.reserve(size)?;
        let mut data = Vec::new();
        file.seek(SeekFrom::Start(start))
            .and_then(|_| file.take(size).read_to_end(&mut data))
            .map_err(|cause| self.read_error(cause))?;
        Ok(data)
    }

    /// The contents of the entries of a directory that the caller may see, up to the limit.
    fn read_directory(&self, folder: &OpenFolder, proof: &mut ProofBuilder) -> Result<Vec<Content>> {
        proof.add_directory(folder);
        let names = self.inner.tree.names(folder).map_err(|cause| self.read_error(cause))?;
        let mut visible = names.iter().filter(|key| self.sees(folder, key));
        let mut left = self.inner.config.directory_bytes;
        let mut parts = Vec::new();
        for key in visible.by_ref().take(self.inner.config.directory_entries) {
            let child =
                self.read_child(folder, key, &mut left, proof).map_err(|cause| self.read_error(cause))?;
            parts.extend(child);
        }
        let own = self.inner.uri(&folder.logical.key);
        let more = visible.count();
        if more > 0 {
            let note = match more {
                1 => "[1 more entry; list the resources to see it]".to_owned(),
                more => format!("[{more} more entries; list the resources to see them]"),
            };
            let meta = Some(meta::with(meta::MORE, more));
            parts.extend(own.map(|own| Content { meta, ..Content::text(own, NOTE_MIME, note) }));
        } else if parts.is_empty() {
            // Only if the directory is empty: hosts take contents with the URI of the directory for a file.
            parts.extend(own.map(|own| Content::text(own, DIRECTORY, "")));
        }
        Ok(parts)
    }

    /// Whether the caller may see an entry of a directory.
    fn sees(&self, folder: &OpenFolder, key: &str) -> bool {
        let uri = || self.inner.uri(&format!("{}{key}", folder.logical.key));
        self.context.sees_everything() || uri().is_some_and(|uri| self.context.sees(&uri))
    }

    fn read_child(
        &self,
        folder: &OpenFolder,
        key: &str,
        left: &mut u64,
        proof: &mut ProofBuilder,
    ) -> io::Result<Option<Content>> {
        let tree = &self.inner.tree;
        if key.ends_with('/') {
            let child = walk::open_listed_folder(tree, folder, key, Some(proof))?;
            let uri = child.and_then(|child| self.inner.uri(&child.logical.key));
            return Ok(uri.map(|uri| Content::text(uri, DIRECTORY, "")));
        }
        let Some(entry) = walk::file_entry(tree, folder, key)? else { return Ok(None) };
        if entry.hard_linked {
            proof.invalidate();
        }
        let Some(uri) = self.inner.uri(&entry.key) else { return Ok(None) };
        // Hosts take contents without data for a directory or an empty file, and not all of them read `_meta`.
        let omitted = |size: u64| {
            let note = format!("[not included: {size} bytes; read {uri} itself]");
            let why = format!("too large: {size} bytes");
            let meta = Some(meta::with(meta::OMITTED, why));
            Some(Content { meta, ..Content::text(uri.clone(), NOTE_MIME, note) })
        };
        let size = entry.stamp.size;
        let limit = self.inner.config.max_size.min(*left);
        if size > limit {
            return Ok(omitted(size));
        }
        let (file, metadata) = match tree.with_target(folder, &entry.name, DirectoryHandle::open) {
            Ok(opened) => opened,
            Err(cause) => return walk::skip_unreadable(tree, &entry.key, cause).map(|()| None),
        };
        // It may have grown since.
        let file = file.into_std();
        let Some(data) = read_up_to(&file, size, limit)? else {
            return Ok(omitted(file.metadata().map_or(metadata.len(), |grown| grown.len())));
        };
        *left -= data.len() as u64;
        let mime = mime(&entry.name, &data);
        let body = media::body(data, mime);
        Ok(Some(Content { uri, mime: Some(mime.into()), body, meta: None }))
    }

    fn not_text(&self) -> Error {
        Error::invalid(format!("`{}` is not text: read it by `?bytes=0-65535`", self.uri.without_query()))
    }

    fn read_error(&self, cause: io::Error) -> Error {
        super::read_error(self.uri, cause)
    }
}

/// The media type by the name of a file, or else by its content. Listings and reads use this, so that they agree.
fn mime(name: &OsStr, data: &[u8]) -> &'static str {
    let label = name.to_string_lossy();
    media::by_name(&label).unwrap_or_else(|| media::by_content(&label, data))
}

/// The data of an open file; `None` if it is larger than `limit`.
fn read_up_to(file: &File, expected: u64, limit: u64) -> io::Result<Option<Vec<u8>>> {
    let mut data = Vec::with_capacity(usize::try_from(expected.min(limit)).unwrap_or_default() + 1);
    read_spare_capacity(file, &mut data)?;
    let rest = limit.saturating_add(1).saturating_sub(data.len() as u64);
    file.take(rest).read_to_end(&mut data)?;
    Ok((data.len() as u64 <= limit).then_some(data))
}

/// Reads into the spare capacity with one system call. The standard library would begin with a small buffer and
/// double it.
#[cfg(unix)]
fn read_spare_capacity(file: &File, data: &mut Vec<u8>) -> io::Result<()> {
    match rustix::io::read(file, rustix::buffer::spare_capacity(data)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(cause) => Err(cause.into()),
    }
}

#[cfg(not(unix))]
fn read_spare_capacity(_file: &File, _data: &mut Vec<u8>) -> io::Result<()> {
    Ok(())
}

/// Whether a file is in the page cache, so that reading it does not wait for a disk. A few bytes are probed: what
/// lies between them was most likely read ahead.
#[cfg(target_os = "linux")]
fn is_in_page_cache(file: &File, size: u64) -> bool {
    use rustix::io::{ReadWriteFlags, preadv2};
    let there = |at: u64| {
        let mut byte = [0];
        let mut slices = [io::IoSliceMut::new(&mut byte)];
        preadv2(file, &mut slices, at, ReadWriteFlags::NOWAIT).is_ok()
    };
    match size {
        0..=65_536 => there(0),
        _ => [0, size / 2, size - 1].into_iter().all(there),
    }
}

#[cfg(not(target_os = "linux"))]
fn is_in_page_cache(_file: &File, _size: u64) -> bool {
    false
}
