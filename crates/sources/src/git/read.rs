//! Reads files, ranges of files, and directories at a commit.

use std::io::{self, Cursor};

use gix::ObjectId;
use gix::objs::tree::EntryKind;
use libris_core::{Body, Content, Context, DIRECTORY, Error, Result, Uri};

use super::Inner;
use super::address::GitUri;
use super::describe::{LINK, Pointer, SUBMODULE, mime, submodule};
use super::directory;
use super::limits::HeldMemory;
use super::repo::{Objects, TreeEntry, names};
use super::walk::{DEPTH, join};
use crate::media::{self, CodeUnits, ContentClass};
use crate::meta;
use crate::part::{ByteBounds, LineScanner};
use crate::range::{HINT, HINT_BYTES, Range, RangeSpan};

/// The largest file of which a range is read, in bytes: a blob can only be decompressed as a whole, into memory.
const LARGEST: u64 = 64 * 1024 * 1024;

/// The media type of notes in place of omitted files.
const NOTE: &str = "text/plain";

/// A read of a path at a commit.
pub(super) struct PathReader<'a> {
    pub(super) inner: &'a Inner,
    pub(super) objects: &'a Objects<'a>,
    pub(super) uri: &'a Uri,
    /// The percent-encoded revision and path of the URI.
    pub(super) rev: &'a str,
    pub(super) path: &'a str,
}

/// A visible tree entry with its path.
pub(super) struct FoundEntry {
    pub(super) path: Vec<u8>,
    pub(super) entry: TreeEntry,
}

impl PathReader<'_> {
    pub(super) fn read(&self, tree: ObjectId, asked: &GitUri<'_>, context: &Context) -> Result<Vec<Content>> {
        let range = Range::parse(asked.range())?;
        let found = self.find(tree)?.ok_or_else(|| Error::NotFound(self.uri.clone()))?;
        match (found.entry.kind, range) {
            (EntryKind::Tree, None) => self.directory(&found, context),
            (EntryKind::Tree | EntryKind::Commit | EntryKind::Link, Some(_)) => Err(Error::invalid(format!(
                "`{}` is not a file, so it has no lines or bytes: read it without `?`",
                self.uri.without_query()
            ))),
            (_, range) => self.file(&found, range, context).map(|content| vec![content]),
        }
    }

    /// The entry at the path; `None` if it does not exist or is not visible.
    pub(super) fn find(&self, tree: ObjectId) -> Result<Option<FoundEntry>> {
        let Some(names) = names(self.path).filter(|names| names.len() <= DEPTH) else { return Ok(None) };
        let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        let Some(entry) = self.objects.at(tree, &names)? else { return Ok(None) };
        let directory = entry.kind == EntryKind::Tree;
        let shown =
            self.inner.filter.shows_all(&names, directory) && (directory || !self.path.ends_with('/'));
        Ok(shown.then(|| FoundEntry { path: names.join(&b'/'), entry }))
    }

    fn file(&self, found: &FoundEntry, range: Option<Range>, context: &Context) -> Result<Content> {
        let label = label(&found.path);
        if found.entry.kind == EntryKind::Commit {
            return Ok(self.submodule(self.uri.clone(), found.entry.id));
        }
        let limit = if range.is_some() { LARGEST } else { self.inner.config.max_size };
        let size = self.size(found.entry.id)?;
        if size > limit {
            let hint = match media::by_name(&label).map(media::content_class) {
                _ if range.is_some() || size > LARGEST => None,
                Some(ContentClass::Binary) => Some(HINT_BYTES),
                _ => Some(HINT),
            };
            return Err(self.too_large(size, limit, hint));
        }
        context.reserve(size)?;
        let data = self.objects.blob(found.entry.id)?;
        match range {
            None => Ok(content(self.uri.clone(), &label, found.entry.kind, data)),
            Some(range) => {
                let mime = mime(&label, &data);
                let body = self.part(data, mime, range)?;
                Ok(Content { uri: self.uri.clone(), mime: Some(mime.into()), body, meta: None })
            }
        }
    }

    fn part(&self, data: Vec<u8>, mime: &str, range: Range) -> Result<Body> {
        let size = data.len() as u64;
        let limit = self.inner.config.max_size;
        let (unit, bounds) = match range {
            Range::Bytes(span) => ("bytes", ByteBounds::of_bytes(span, size)),
            Range::Lines(span) => ("lines", self.lines(&data, mime, span)?),
        };
        let (start, end) = match bounds {
            ByteBounds::Within(start, end) if end - start <= limit => (start as usize, end as usize),
            ByteBounds::Within(start, end) => return Err(self.too_large(end - start, limit, Some(FEWER))),
            ByteBounds::OverLimit(over) if over.one_line => {
                return Err(self.too_large(over.size, limit, Some(HINT_BYTES)));
            }
            ByteBounds::OverLimit(over) => return Err(self.too_large(over.size, limit, Some(FEWER))),
            ByteBounds::PastEnd(count) => {
                return Err(Error::invalid(format!(
                    "`{}` begins past the end: there are {count} {unit}",
                    self.uri
                )));
            }
        };
        let part = data[start..end].to_vec();
        match range {
            Range::Lines(_) => media::lines(&data, part).map(Body::Text).ok_or_else(|| self.not_text()),
            Range::Bytes(_) => Ok(media::exact(part, mime)),
        }
    }

    fn lines(&self, data: &[u8], mime: &str, span: RangeSpan) -> Result<ByteBounds> {
        if !media::has_lines(mime, data) {
            return Err(self.not_text());
        }
        let patience = self.objects.patience();
        let mut ended = None;
        let mut progress = |_: u64| {
            patience.check().map_err(|cause| {
                ended = Some(cause);
                io::Error::other("nobody waits any more")
            })
        };
        let limit = self.inner.config.max_size;
        let mut search = LineScanner {
            file: &mut Cursor::new(data),
            units: CodeUnits::of(data),
            limit,
            progress: &mut progress,
        };
        let bounds = search.bounds(span);
        bounds.map_err(|cause| ended.take().unwrap_or_else(|| Error::failed("read the file", cause)))
    }

    /// The entries of a directory that the caller may see, with their contents up to `directory_bytes`.
    fn directory(&self, found: &FoundEntry, context: &Context) -> Result<Vec<Content>> {
        let config = &self.inner.config;
        let directory = self.objects.directory(found.entry.id)?;
        let base = base(self.path);
        let mut left = config.directory_bytes;
        let mut held = self.objects.hold(0)?;
        let mut parts = Vec::new();
        let mut more = 0;
        for (key, entry) in directory.entries() {
            let path = join(&found.path, key);
            if !self.inner.filter.shows(&path, entry.kind == EntryKind::Tree) {
                continue;
            }
            let is_full = parts.len() >= config.directory_entries;
            if is_full && context.sees_everything() {
                more += 1;
                continue;
            }
            let Some(uri) = self.inner.space.place(self.rev, &format!("{base}{key}")) else { continue };
            if !context.sees(&uri) {
                continue;
            }
            if is_full {
                more += 1;
                continue;
            }
            parts.push(self.child(uri, key, *entry, &mut left, &mut held)?);
        }
        let Some(own) = self.inner.space.place(self.rev, &base) else { return Ok(parts) };
        if more > 0 {
            let note = format!("[{more} more; list the resources to see them]");
            let meta = Some(meta::with(meta::MORE, more));
            parts.push(Content { meta, ..Content::text(own, NOTE, note) });
        } else if parts.is_empty() {
            parts.push(Content::text(own, DIRECTORY, ""));
        }
        Ok(parts)
    }

    fn child(
        &self,
        uri: Uri,
        key: &str,
        entry: TreeEntry,
        left: &mut u64,
        held: &mut HeldMemory<'_>,
    ) -> Result<Content> {
        match entry.kind {
            EntryKind::Tree => return Ok(Content::text(uri, DIRECTORY, "")),
            EntryKind::Commit => return Ok(self.submodule(uri, entry.id)),
            EntryKind::Blob | EntryKind::BlobExecutable | EntryKind::Link => {}
        }
        let size = self.objects.size(entry.id)?;
        let why = match size {
            Some(size) if size <= self.inner.config.max_size.min(*left) => {
                *left -= size;
                held.grow(size)?;
                let label = String::from_utf8_lossy(&directory::name(key)).into_owned();
                return Ok(content(uri, &label, entry.kind, self.objects.blob(entry.id)?));
            }
            Some(size) => format!("{size} bytes"),
            None => "it is not in this clone".to_owned(),
        };
        // Hosts take a part without data for a directory or an empty file, and some ignore `_meta`.
        let note = format!("[not included: {why}; read {uri} itself]");
        let meta = Some(meta::with(meta::OMITTED, why));
        Ok(Content { meta, ..Content::text(uri, NOTE, note) })
    }

    fn submodule(&self, uri: Uri, commit: ObjectId) -> Content {
        Content {
            meta: Some(submodule(commit)),
            ..Content::text(uri, SUBMODULE, format!("Subproject commit {commit}\n"))
        }
    }

    fn size(&self, id: ObjectId) -> Result<u64> {
        let missing =
            || Error::Unavailable("this file is not in the repository, which is a partial clone".into());
        self.objects.size(id)?.ok_or_else(missing)
    }

    fn too_large(&self, size: u64, limit: u64, hint: Option<&str>) -> Error {
        Error::TooLarge { uri: self.uri.clone(), size, limit, hint: hint.map(Into::into) }
    }

    fn not_text(&self) -> Error {
        Error::invalid(format!("`{}` is not text: read it by `?bytes=0-65535`", self.uri.without_query()))
    }
}

/// The hint for a range that is too large.
const FEWER: &str = "ask for fewer";

/// The percent-encoded path with the trailing slash of a directory; empty for the root.
pub(super) fn base(path: &str) -> String {
    match path.trim_end_matches('/') {
        "" => String::new(),
        path => format!("{path}/"),
    }
}

fn label(path: &[u8]) -> String {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}

fn content(uri: Uri, label: &str, kind: EntryKind, data: Vec<u8>) -> Content {
    if kind == EntryKind::Link {
        return Content::text(uri, LINK, String::from_utf8_lossy(&data));
    }
    if let Some(pointer) = Pointer::parse(&data) {
        let meta = Some(pointer.meta());
        return Content {
            uri,
            mime: Some(Pointer::MIME.into()),
            body: media::body(data, Pointer::MIME),
            meta,
        };
    }
    let mime = mime(label, &data);
    Content { uri, mime: Some(mime.into()), body: media::body(data, mime), meta: None }
}
