//! Reading files and ranges of files.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use libris_core::{Budget, Client, Content, ContentBody, Contents, Context, Error, Lease, Result, Uri};

use super::{FilesInner, missing, query};
use crate::media::{self, CodeUnits, ContentClass};
use crate::range::{HINT, HINT_BYTES, Range, RangeSpan};
use crate::range_bounds::{ByteBounds, LineScanner, OverLimit, range_meta};
use crate::tree::{DirectoryHandle, Metadata, OpenFolder, ProofBuilder, ResolvedPath, StatStamp, is_missing};

/// The interval, in bytes, at which a search for lines reports progress.
const PROGRESS_INTERVAL: u64 = 1024 * 1024;

/// The largest file that is read on the async thread. Other requests on this thread wait meanwhile.
const MAX_INLINE_READ: u64 = 2 * 1024 * 1024;

/// The size of the byte range that an error suggests for a line that is too long.
const SUGGESTED_RANGE: u64 = 64 * 1024;

/// Contents larger than this reserve memory before they are loaded. Smaller ones are accounted for afterwards.
const RESERVE_THRESHOLD: u64 = 64 * 1024;

/// The number of bytes after which a search for lines counts as long: about 4 ms.
const LONG_SEARCH_THRESHOLD: u64 = 8 * 1024 * 1024;

/// The number of bytes after which a long search gives way to one that waits: about 10 ms.
const TURN_BYTES: u64 = 16 * 1024 * 1024;

/// One read request.
pub(super) struct FileReader<'a> {
    pub(super) inner: &'a FilesInner,
    pub(super) uri: &'a Uri,
    pub(super) context: &'a Context,
    pub(super) search: &'a SearchControl,
}

/// The state of a line search, shared by the searching thread and its caller.
#[derive(Debug, Default)]
pub(super) struct SearchControl {
    /// Whether the caller was cancelled.
    pub(super) abandoned: AtomicBool,
    /// The permit for a long search. Few such searches run at once, since each keeps a processor busy.
    pub(super) permit: Mutex<Option<Lease>>,
    /// Whether the search stopped because it exceeded `LONG_SEARCH_THRESHOLD` without a permit; the caller then takes
    /// one and starts it again.
    pub(super) became_long: AtomicBool,
}

impl SearchControl {
    /// Fails if the search, which has scanned `done` bytes, must stop. Called regularly, because a blocking task cannot
    /// be cancelled from outside.
    fn check_continue(&self, done: u64) -> io::Result<()> {
        if self.abandoned.load(Ordering::Relaxed) {
            return Err(io::Error::other("the caller was cancelled"));
        }
        if done > LONG_SEARCH_THRESHOLD && self.permit().is_none() {
            self.became_long.store(true, Ordering::Relaxed);
            return Err(io::Error::other("the line search takes too long"));
        }
        Ok(())
    }

    /// If another long search waits, passes the permit to it, and waits for a new one.
    fn give_way(&self, searches: &Arc<Budget>, client: Client) {
        let mut permit = self.permit();
        if permit.as_ref().is_some_and(Lease::is_needed) {
            // The permit is returned first, so that this search does not wait for itself.
            *permit = None;
            *permit = searches.take_blocking(client, 1);
        }
    }

    pub(super) fn permit(&self) -> MutexGuard<'_, Option<Lease>> {
        self.permit.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FileReader<'_> {
    pub(super) fn read(&self) -> Result<Contents> {
        let path = self.inner.path(self.uri).ok_or_else(|| Error::NotFound(self.uri.clone()))?;
        query::check_keys(self.uri)?;
        let mut proof = ProofBuilder::new(&self.inner.tree.prover);
        let found = self.inner.tree.resolve(self.inner.open_root()?, path);
        let found = found.map_err(|cause| match is_missing(&cause) {
            true => missing::error(self.inner, self.uri, self.context),
            false => self.read_error(cause),
        })?;
        let parts = match found {
            ResolvedPath::Folder(folder) => {
                self.read_folder(&folder, &query::folder(self.uri)?, &mut proof)?
            }
            ResolvedPath::File(folder, name) => {
                let range = query::range(self.uri)?;
                let (file, metadata) = self.open(&folder, &name, &mut proof)?;
                vec![match range {
                    None => self.read_whole(file, &metadata, &name)?,
                    Some(range) => self.read_range(file, &metadata, &name, range)?,
                }]
            }
        };
        Ok(Contents { parts, freshness: self.inner.freshness(proof.build()) })
    }

    /// Reads a whole file without blocking on the disk. Returns `None` if that is not possible; the caller then uses a
    /// blocking thread. It is not possible if
    /// - the URI has a query, or is that of a directory;
    /// - the parent directory is not cached (one on a network file system never is), or its ignore rules are slow
    ///   to match;
    /// - the file is large, cannot be opened, or is not in the page cache.
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
        // The file may have grown since its size was determined.
        let data = read_up_to(&file, metadata.len(), limit).map_err(|cause| self.read_error(cause))?;
        let Some(data) = data else {
            let size = file.metadata().map_or(limit + 1, |grown| grown.len());
            return Err(self.too_large(&mut file, name, size));
        };
        let mime = mime(name, &data);
        Ok(Content {
            uri: self.uri.clone(),
            mime: Some(mime.into()),
            body: match self.inner.is_exact() {
                true => media::exact(data, mime),
                false => media::body(data, mime),
            },
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
        if let Err(cause) = begin.and_then(|_| file.take(media::HEAD_BYTES as u64).read_to_end(&mut head)) {
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

    /// Reads a range of lines or bytes.
    fn read_range(&self, mut file: File, metadata: &Metadata, name: &OsStr, range: Range) -> Result<Content> {
        let read_error = |cause| self.read_error(cause);
        let mut head = Vec::new();
        (&file).take(media::HEAD_BYTES as u64).read_to_end(&mut head).map_err(read_error)?;
        let mime = mime(name, &head);
        let size = metadata.len();
        let (body, end, total_lines) = match range {
            Range::Lines(span) => {
                let (bounds, total) = self.find_lines(&mut file, metadata, &head, mime, span)?;
                let (lines, end) = self.slice(&mut file, bounds, "lines")?;
                let text = media::lines(&head, lines).ok_or_else(|| self.not_text())?;
                (ContentBody::Text(text), end, total)
            }
            Range::Bytes(span) => {
                let (bytes, end) = self.slice(&mut file, ByteBounds::of_bytes(span, size), "bytes")?;
                (media::exact(bytes, mime), end, None)
            }
        };
        let meta = Some(range_meta(self.uri, range, end, size, total_lines));
        Ok(Content { uri: self.uri.clone(), mime: Some(mime.into()), body, meta })
    }

    /// The bounds of some lines, and the number of all lines unless counting them takes long.
    fn find_lines(
        &self,
        file: &mut File,
        metadata: &Metadata,
        head: &[u8],
        mime: &str,
        span: RangeSpan,
    ) -> Result<(ByteBounds, Option<u64>)> {
        if media::content_class(mime) == ContentClass::Binary {
            return Err(self.not_text());
        }
        let (size, stamp) = (metadata.len(), StatStamp::of(metadata));
        let (mut reported, mut turn_end) = (0, TURN_BYTES);
        let mut progress = |done: u64| {
            if done >= turn_end {
                turn_end = done + TURN_BYTES;
                self.search.give_way(&self.inner.long_searches, self.context.client());
            }
            if done > LONG_SEARCH_THRESHOLD {
                // Since Linux 6.6, a thread that wakes up waits until the time slice of this thread ends, about 3 ms,
                // even though this thread has a low priority. So this thread yields voluntarily.
                std::thread::yield_now();
            }
            self.search.check_continue(done)?;
            if done >= reported + PROGRESS_INTERVAL {
                reported = done;
                self.context.progress(done, Some(size));
            }
            Ok(())
        };
        let limit = self.inner.config.max_size;
        let units = CodeUnits::of(head);
        let found = self.inner.line_indexes.scan(&stamp, |starts| {
            let mut scanner = LineScanner { file, units, limit, starts, progress: &mut progress };
            let bounds = scanner.bounds(span)?;
            let total = match bounds {
                ByteBounds::Within(start, end) => scanner.total_lines(span, (start, end))?,
                _ => None,
            };
            Ok((bounds, total))
        });
        match found.map_err(|cause| self.read_error(cause))? {
            (ByteBounds::OverLimit(OverLimit { size, start, one_line: true }), _) => {
                let count = SUGGESTED_RANGE.min(limit).max(1);
                let part = match span {
                    RangeSpan::From(..) => format!("{start}-{}", start.saturating_add(count - 1)),
                    RangeSpan::Last(_) => format!("-{count}"),
                };
                let hint = format!("one line is already longer: read a part of it with `?bytes={part}`");
                Err(self.over_limit(size, hint))
            }
            found => Ok(found),
        }
    }

    /// The bytes within some bounds, and the offset at which they end.
    fn slice(&self, file: &mut File, bounds: ByteBounds, unit: &str) -> Result<(Vec<u8>, u64)> {
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
        Ok((data, start + size))
    }

    fn not_text(&self) -> Error {
        Error::invalid(format!("`{}` is not text: read it by `?bytes=0-65535`", self.uri.without_query()))
    }

    pub(super) fn read_error(&self, cause: io::Error) -> Error {
        super::read_error(self.uri, cause)
    }
}

/// The media type by the name of a file, or else by its content. Listings (`describe.rs: content_metadata`) must use
/// the same rule.
fn mime(name: &OsStr, data: &[u8]) -> &'static str {
    let label = name.to_string_lossy();
    media::by_name(&label).unwrap_or_else(|| media::by_content(&label, data))
}

/// The data of an open file, which probably has `expected` bytes; `None` if it has more than `limit`.
pub(super) fn read_up_to(file: &File, expected: u64, limit: u64) -> io::Result<Option<Vec<u8>>> {
    let mut data = Vec::with_capacity(usize::try_from(expected.min(limit)).unwrap_or_default() + 1);
    read_spare_capacity(file, &mut data)?;
    let rest = limit.saturating_add(1).saturating_sub(data.len() as u64);
    file.take(rest).read_to_end(&mut data)?;
    Ok((data.len() as u64 <= limit).then_some(data))
}

/// Reads into the spare capacity with one system call. `read_to_end` would begin with small reads and double their
/// size, despite the reserved capacity.
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

/// Whether a file is in the page cache, so that reading it does not wait for a disk. Only a few bytes are probed: most
/// likely, the kernel has read ahead the bytes between them.
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
