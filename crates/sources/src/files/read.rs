//! Reading files, parts of files, and directories.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::sync::atomic::{AtomicBool, Ordering};

use libris_core::{Body, Content, Contents, Context, Error, Meta, Result, Uri};

use super::Inner;
use super::describe::DIRECTORY;
use crate::media::{self, Form, Units};
use crate::part::{Bounds, Lines, Over};
use crate::range::{HINT, HINT_BYTES, Range, Span};
use crate::tree::{Folder, Found, Metadata, Place, Stamp, Witness, walk};

/// After how many bytes a long search tells how far it has come.
const REPORT: u64 = 1024 * 1024;

/// The most that is read while others wait for the thread that reads.
const MODERATE: u64 = 2 * 1024 * 1024;

/// How much of a line that is too long to offer at a time.
const PART: u64 = 64 * 1024;

/// The media type of notes that stand for what is left out.
const NOTE: &str = "text/plain";

/// The key under which a part says why its data is left out.
const OMITTED: &str = "dev.libris/omitted";

/// The key under which a directory says how many of its entries were left out.
const MORE: &str = "dev.libris/more";

/// From what size on memory is reserved before contents are loaded. Smaller ones are counted once they are there.
const LARGE: u64 = 64 * 1024;

/// How much of a file is searched for lines before the search counts as long.
const LONG_SEARCH: u64 = 32 * 1024 * 1024;

/// Who asked for a read, and whether they still want it.
pub(super) struct Reader<'a> {
    pub(super) inner: &'a Inner,
    pub(super) uri: &'a Uri,
    pub(super) context: &'a Context,
    pub(super) search: &'a Search,
}

/// A search for lines that its caller may give up, and that may turn out to be long.
#[derive(Debug, Default)]
pub(super) struct Search {
    /// Whether nobody waits for the answer any more.
    pub(super) abandoned: AtomicBool,
    /// Whether it may be long. Of those there are few at once, since each keeps a processor busy.
    pub(super) may_be_long: AtomicBool,
    /// Whether it ended because it became long and may not.
    pub(super) became_long: AtomicBool,
}

impl Search {
    /// Whether to go on after so many bytes. Nobody can stop a blocking task but itself.
    fn goes_on(&self, done: u64) -> io::Result<()> {
        if self.abandoned.load(Ordering::Relaxed) {
            return Err(io::Error::other("nobody waits for the answer"));
        }
        if done > LONG_SEARCH && !self.may_be_long.load(Ordering::Relaxed) {
            self.became_long.store(true, Ordering::Relaxed);
            return Err(io::Error::other("the search is long"));
        }
        Ok(())
    }
}

impl Reader<'_> {
    pub(super) fn read(&self) -> Result<Contents> {
        let path = self.inner.path(self.uri).ok_or_else(|| Error::NotFound(self.uri.clone()))?;
        let range = self.uri.query().map_or(Ok(None), Range::parse)?;
        let mut witness = Witness::new(&self.inner.tree.vigil);
        let found = self.inner.tree.find(self.inner.open_root()?, path).map_err(|cause| self.fault(cause))?;
        let parts = match (found, range) {
            (Found::Folder(folder), None) => self.directory(&folder, &mut witness)?,
            (Found::Folder(_), Some(_)) => {
                return Err(Error::invalid(format!(
                    "`{}` is a directory, which has no lines or bytes: read it without `?`",
                    self.uri.without_query()
                )));
            }
            (Found::File(folder, name), range) => {
                let (file, metadata) = self.open(&folder, &name, &mut witness)?;
                vec![match range {
                    None => self.whole(file, &metadata, &name)?,
                    Some(range) => self.part(file, &metadata, &name, range)?,
                }]
            }
        };
        Ok(Contents { parts, freshness: self.inner.freshness(witness.prove()) })
    }

    /// The same where nothing has to be waited for: a file of moderate size, in a directory that is open
    /// and on a disk of this machine, whose data is in memory.
    pub(super) fn read_now(&self) -> Option<Result<Contents>> {
        let path = self.inner.path(self.uri).filter(|_| self.uri.query().is_none())?;
        let tree = &self.inner.tree;
        let mut witness = Witness::new(&tree.vigil);
        let (folder, segment) = tree.kept_parent(path)?;
        let (name, directory) = tree.entry(&folder, segment).ok()?;
        if directory {
            return None;
        }
        let (file, metadata) = self.open(&folder, &name, &mut witness).ok()?;
        let fits = metadata.len() <= MODERATE.min(self.inner.config.max_size);
        if !(fits && is_in_memory(&file, metadata.len())) {
            return None;
        }
        let read = self.whole(file, &metadata, &name);
        let freshness = |witness: Witness| self.inner.freshness(witness.prove());
        Some(read.map(|content| Contents::from(content).with_freshness(freshness(witness))))
    }

    fn whole(&self, mut file: File, metadata: &Metadata, name: &OsStr) -> Result<Content> {
        let limit = self.inner.config.max_size;
        if metadata.len() > limit {
            return Err(self.too_large(&mut file, name, metadata.len()));
        }
        self.reserve(metadata.len())?;
        // It may have grown since.
        let data = read_up_to(&file, metadata.len(), limit).map_err(|cause| self.fault(cause))?;
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

    /// Reserves memory for contents of this size, before they are loaded.
    fn reserve(&self, size: u64) -> Result<()> {
        if size <= LARGE { Ok(()) } else { self.context.reserve(size) }
    }

    fn too_large(&self, file: &mut File, name: &OsStr, size: u64) -> Error {
        let mut head = Vec::new();
        let begin = file.seek(SeekFrom::Start(0));
        if let Err(cause) = begin.and_then(|_| file.take(media::HEAD as u64).read_to_end(&mut head)) {
            return self.fault(cause);
        }
        let hint = if media::has_lines(mime(name, &head), &head) { HINT } else { HINT_BYTES };
        self.over_limit(size, hint)
    }

    fn over_limit(&self, size: u64, hint: impl Into<String>) -> Error {
        let limit = self.inner.config.max_size;
        Error::TooLarge { uri: self.uri.clone(), size, limit, hint: Some(hint.into()) }
    }

    fn open(&self, folder: &Folder, name: &OsStr, witness: &mut Witness) -> Result<(File, Metadata)> {
        witness.directory(folder);
        let (file, metadata) =
            self.inner.tree.at(folder, name, Place::open).map_err(|cause| self.fault(cause))?;
        witness.file(folder.place.spot(folder.way.path.join(name)), Stamp::of(&metadata));
        Ok((file.into_std(), metadata))
    }

    fn part(&self, mut file: File, metadata: &Metadata, name: &OsStr, range: Range) -> Result<Content> {
        let fault = |cause| self.fault(cause);
        let mut head = Vec::new();
        (&file).take(media::HEAD as u64).read_to_end(&mut head).map_err(fault)?;
        let mime = mime(name, &head);
        let body = match range {
            Range::Lines(span) => {
                let lines = self.lines(&mut file, metadata.len(), &head, mime, span)?;
                Body::Text(media::lines(&head, lines).ok_or_else(|| self.not_text())?)
            }
            Range::Bytes(span) => {
                let bounds = Bounds::of_bytes(span, metadata.len());
                media::exact(self.slice(&mut file, bounds, "bytes")?, mime)
            }
        };
        Ok(Content { uri: self.uri.clone(), mime: Some(mime.into()), body, meta: None })
    }

    fn lines(&self, file: &mut File, size: u64, head: &[u8], mime: &str, span: Span) -> Result<Vec<u8>> {
        if media::form(mime) == Form::Binary {
            return Err(self.not_text());
        }
        let mut told = 0;
        let mut progress = |done: u64| {
            self.search.goes_on(done)?;
            if done >= told + REPORT {
                told = done;
                self.context.progress(done, Some(size));
            }
            Ok(())
        };
        let limit = self.inner.config.max_size;
        let mut search = Lines { file, units: Units::of(head), limit, progress: &mut progress };
        match search.bounds(span).map_err(|cause| self.fault(cause))? {
            Bounds::Over(Over { size, start, one_line: true }) => {
                let count = PART.min(limit).max(1);
                let part = match span {
                    Span::From(..) => format!("{start}-{}", start.saturating_add(count - 1)),
                    Span::Last(_) => format!("-{count}"),
                };
                let hint = format!("one line is already longer: read a part of it with `?bytes={part}`");
                Err(self.over_limit(size, hint))
            }
            bounds => self.slice(file, bounds, "lines"),
        }
    }

    fn slice(&self, file: &mut File, bounds: Bounds, unit: &str) -> Result<Vec<u8>> {
        let too_many = |size| self.over_limit(size, format!("ask for fewer {unit}"));
        let (start, size) = match bounds {
            Bounds::Within(start, end) => (start, end - start),
            Bounds::Past(count) => {
                let there = match count {
                    1 => format!("there is 1 {}", unit.trim_end_matches('s')),
                    count => format!("there are {count} {unit}"),
                };
                return Err(Error::invalid(format!("`{}` begins past the end: {there}", self.uri)));
            }
            Bounds::Over(over) => return Err(too_many(over.size)),
        };
        if size > self.inner.config.max_size {
            return Err(too_many(size));
        }
        self.reserve(size)?;
        let mut data = Vec::new();
        file.seek(SeekFrom::Start(start))
            .and_then(|_| file.take(size).read_to_end(&mut data))
            .map_err(|cause| self.fault(cause))?;
        Ok(data)
    }

    /// The entries of a directory that the caller may see, with their data as far as it fits.
    fn directory(&self, folder: &Folder, witness: &mut Witness) -> Result<Vec<Content>> {
        witness.directory(folder);
        let names = self.inner.tree.names(folder).map_err(|cause| self.fault(cause))?;
        let mut visible = names.iter().filter(|key| self.sees(folder, key));
        let mut left = self.inner.config.directory_bytes;
        let mut parts = Vec::new();
        for key in visible.by_ref().take(self.inner.config.directory_entries) {
            let child = self.child(folder, key, &mut left, witness).map_err(|cause| self.fault(cause))?;
            parts.extend(child);
        }
        let own = self.inner.uri(&folder.way.key);
        let more = visible.count();
        if more > 0 {
            let note = match more {
                1 => "[1 more entry; list the resources to see it]".to_owned(),
                more => format!("[{more} more entries; list the resources to see them]"),
            };
            let meta = Some(Meta::from_iter([(MORE.to_owned(), more.into())]));
            parts.extend(own.map(|own| Content { meta, ..Content::text(own, NOTE, note) }));
        } else if parts.is_empty() {
            // Only here: a host takes what comes back under its own URI for a file.
            parts.extend(own.map(|own| Content::text(own, DIRECTORY, "")));
        }
        Ok(parts)
    }

    /// Whether the caller may see an entry of a directory.
    fn sees(&self, folder: &Folder, key: &str) -> bool {
        let uri = || self.inner.uri(&format!("{}{key}", folder.way.key));
        self.context.sees_everything() || uri().is_some_and(|uri| self.context.sees(&uri))
    }

    fn child(
        &self,
        folder: &Folder,
        key: &str,
        left: &mut u64,
        witness: &mut Witness,
    ) -> io::Result<Option<Content>> {
        let tree = &self.inner.tree;
        if key.ends_with('/') {
            let child = walk::directory(tree, folder, key, Some(witness))?;
            let uri = child.and_then(|child| self.inner.uri(&child.way.key));
            return Ok(uri.map(|uri| Content::text(uri, DIRECTORY, "")));
        }
        let Some(leaf) = walk::leaf(tree, folder, key)? else { return Ok(None) };
        if leaf.shared {
            witness.give_up();
        }
        let Some(uri) = self.inner.uri(&leaf.key) else { return Ok(None) };
        // Hosts take a part without data for a directory or an empty file, and not all see the `_meta`.
        let omitted = |size: u64| {
            let note = format!("[not included: {size} bytes; read {uri} itself]");
            let why = format!("too large: {size} bytes");
            let meta = Some(Meta::from_iter([(OMITTED.to_owned(), why.into())]));
            Some(Content { meta, ..Content::text(uri.clone(), NOTE, note) })
        };
        let size = leaf.stamp.size;
        let limit = self.inner.config.max_size.min(*left);
        if size > limit {
            return Ok(omitted(size));
        }
        let (file, metadata) = match tree.at(folder, &leaf.name, Place::open) {
            Ok(opened) => opened,
            Err(cause) => return walk::pass_over(tree, &leaf.key, cause).map(|()| None),
        };
        // It may have grown since.
        let file = file.into_std();
        let Some(data) = read_up_to(&file, size, limit)? else {
            return Ok(omitted(file.metadata().map_or(metadata.len(), |grown| grown.len())));
        };
        *left -= data.len() as u64;
        let mime = mime(&leaf.name, &data);
        let body = media::body(data, mime);
        Ok(Some(Content { uri, mime: Some(mime.into()), body, meta: None }))
    }

    fn not_text(&self) -> Error {
        Error::invalid(format!("`{}` is not text: read it by `?bytes=0-65535`", self.uri.without_query()))
    }

    fn fault(&self, cause: io::Error) -> Error {
        super::fault(self.uri, cause)
    }
}

/// The same in a listing and in a read: by the name or else by the first bytes.
fn mime(name: &OsStr, data: &[u8]) -> &'static str {
    let label = name.to_string_lossy();
    media::by_name(&label).unwrap_or_else(|| media::by_content(&label, data))
}

/// The data of an open file; `None` where it is larger than the limit.
fn read_up_to(file: &File, expected: u64, limit: u64) -> io::Result<Option<Vec<u8>>> {
    let mut data = Vec::with_capacity(usize::try_from(expected.min(limit)).unwrap_or_default() + 1);
    read_at_once(file, &mut data)?;
    let rest = limit.saturating_add(1).saturating_sub(data.len() as u64);
    file.take(rest).read_to_end(&mut data)?;
    Ok((data.len() as u64 <= limit).then_some(data))
}

/// Reads what there is room for. The standard library begins with little and doubles it again and again.
#[cfg(unix)]
fn read_at_once(file: &File, data: &mut Vec<u8>) -> io::Result<()> {
    match rustix::io::read(file, rustix::buffer::spare_capacity(data)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(cause) => Err(cause.into()),
    }
}

#[cfg(not(unix))]
fn read_at_once(_file: &File, _data: &mut Vec<u8>) -> io::Result<()> {
    Ok(())
}

/// Whether a file can be read without waiting for a disk. What is between the places that are asked for
/// was most likely read together with them.
#[cfg(target_os = "linux")]
fn is_in_memory(file: &File, size: u64) -> bool {
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
fn is_in_memory(_file: &File, _size: u64) -> bool {
    false
}
