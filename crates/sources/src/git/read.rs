//! Reads files, ranges of files, and directories at a commit.

use std::io::{self, Cursor};

use gix::ObjectId;
use gix::objs::tree::EntryKind;
use libris_core::{Content, ContentBody, Context, Error, Meta, Result, Uri};

use super::GitInner;
use super::address::GitUri;
use super::describe::{LfsPointer, SUBMODULE_MIME, SYMLINK_MIME, mime, submodule};
use super::hint::Hint;
use super::limits::HeldMemory;
use super::patch::{MAX_COMPARED_BYTES, is_binary};
use super::repo::{TaskRepository, TreeEntry, names};
use super::walk::MAX_DEPTH;
use crate::folder_listing::FolderQuery;
use crate::line_starts::LineStarts;
use crate::media::{self, CodeUnits, ContentClass};
use crate::range::{HINT, HINT_BYTES, Range, RangeSpan};
use crate::range_bounds::{ByteBounds, LineScanner, range_meta};

/// The largest file of which a range can be read, in bytes. A blob can only be decompressed as a whole, into
/// memory.
const MAX_BLOB_BYTES: u64 = 64 * 1024 * 1024;

/// A read of a path at a commit.
pub(super) struct PathReader<'a> {
    pub(super) inner: &'a GitInner,
    pub(super) repository: &'a TaskRepository<'a>,
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

/// The content of a path whose blame is requested.
pub(super) enum BlamedContent<'r> {
    Text(Vec<u8>, HeldMemory<'r>),
    /// There are no lines to attribute. The text says what the path is instead, such as "a folder".
    NoLines(&'static str),
}

impl PathReader<'_> {
    pub(super) fn read(
        &self,
        commit: ObjectId,
        asked: &GitUri<'_>,
        context: &Context,
    ) -> Result<Vec<Content>> {
        let tree = self.repository.node(commit)?.tree;
        let missing = || Hint::new(self.inner, self.repository).no_path(self.rev, self.path, tree);
        let found = self.find(tree)?.ok_or_else(missing)?;
        let range = asked.range()?;
        match (found.entry.kind, range) {
            (EntryKind::Tree, None) => {
                self.folder(&found, commit, &FolderQuery::parse(asked.query)?, context)
            }
            (EntryKind::Tree | EntryKind::Commit | EntryKind::Link, Some(_)) => Err(Error::invalid(format!(
                "`{}` is not a file, so it has no lines or bytes: read it without `?`",
                self.uri.without_query()
            ))),
            (_, range) => {
                if let Some(key) = asked.folder_key() {
                    return Err(Error::invalid(format!(
                        "`{}` is a file, and `{key}` is a parameter of folders: use `lines` or `bytes`, or read it \
                         without `?`",
                        self.uri.without_query()
                    )));
                }
                self.file(&found, range, context).map(|content| vec![content])
            }
        }
    }

    /// The entry at the path; `None` if it does not exist, is not visible, or is a file and the path ends with `/`.
    pub(super) fn find(&self, tree: ObjectId) -> Result<Option<FoundEntry>> {
        let Some(names) = names(self.path).filter(|names| names.len() <= MAX_DEPTH) else { return Ok(None) };
        let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        let Some(entry) = self.repository.entry_at(tree, &names)? else { return Ok(None) };
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
        let limit = if range.is_some() { MAX_BLOB_BYTES } else { self.inner.config.max_size };
        let size = self.size(found.entry.id)?;
        if size > limit {
            let hint = match media::by_name(&label).map(media::content_class) {
                _ if range.is_some() || size > MAX_BLOB_BYTES => None,
                Some(ContentClass::Binary) => Some(HINT_BYTES),
                _ => Some(HINT),
            };
            return Err(self.too_large(size, limit, hint));
        }
        context.reserve(size)?;
        let data = self.repository.blob(found.entry.id)?;
        match range {
            None => Ok(content(self.uri.clone(), &label, found.entry.kind, data)),
            Some(range) => {
                let mime = mime(&label, &data);
                let (body, meta) = self.read_range(data, mime, range)?;
                Ok(Content { uri: self.uri.clone(), mime: Some(mime.into()), body, meta: Some(meta) })
            }
        }
    }

    /// The data of a text file, for its blame, or why it has no lines.
    pub(super) fn blamed(&self, found: &FoundEntry) -> Result<BlamedContent<'_>> {
        match found.entry.kind {
            EntryKind::Tree => return Ok(BlamedContent::NoLines("a folder")),
            EntryKind::Link => return Ok(BlamedContent::NoLines("a symbolic link")),
            EntryKind::Commit => return Ok(BlamedContent::NoLines("a submodule")),
            EntryKind::Blob | EntryKind::BlobExecutable => {}
        }
        let size = self.size(found.entry.id)?;
        if size > MAX_COMPARED_BYTES {
            return Ok(BlamedContent::NoLines("a file that is too large"));
        }
        let held = self.repository.hold(size)?;
        let data = self.repository.blob(found.entry.id)?;
        Ok(match data.is_empty() {
            true => BlamedContent::NoLines("an empty file"),
            false if is_binary(&data) => BlamedContent::NoLines("a binary file"),
            false => BlamedContent::Text(data, held),
        })
    }

    /// A range of the data of a file, and the `_meta` of that range.
    fn read_range(&self, data: Vec<u8>, mime: &str, range: Range) -> Result<(ContentBody, Meta)> {
        let size = data.len() as u64;
        let limit = self.inner.config.max_size;
        let (unit, bounds) = match range {
            Range::Bytes(span) => ("bytes", ByteBounds::of_bytes(span, size)),
            Range::Lines(span) => ("lines", self.lines(&data, mime, span)?),
        };
        let too_many = |size| self.too_large(size, limit, Some(&format!("ask for fewer {unit}")));
        let (start, end) = match bounds {
            ByteBounds::Within(start, end) if end - start <= limit => (start as usize, end as usize),
            ByteBounds::Within(start, end) => return Err(too_many(end - start)),
            ByteBounds::OverLimit(over) if over.one_line => {
                return Err(self.too_large(over.size, limit, Some(HINT_BYTES)));
            }
            ByteBounds::OverLimit(over) => return Err(too_many(over.size)),
            ByteBounds::PastEnd(count) => {
                return Err(Error::invalid(format!(
                    "`{}` begins past the end: there are {count} {unit}",
                    self.uri
                )));
            }
        };
        let bytes = data[start..end].to_vec();
        let (start, end) = (start as u64, end as u64);
        match range {
            Range::Lines(span) => {
                let mut file = Cursor::new(&data);
                let (starts, progress) = (&mut LineStarts::default(), &mut |_| Ok(()));
                let mut search =
                    LineScanner { file: &mut file, units: CodeUnits::of(&data), limit, starts, progress };
                let total = search.total_lines(span, (start, end));
                let total = total.map_err(|cause| Error::failed("read the file", cause))?;
                let text = media::lines(&data, bytes).ok_or_else(|| self.not_text())?;
                Ok((ContentBody::Text(text), range_meta(self.uri, range, end, size, total)))
            }
            Range::Bytes(_) => Ok((media::exact(bytes, mime), range_meta(self.uri, range, end, size, None))),
        }
    }

    fn lines(&self, data: &[u8], mime: &str, span: RangeSpan) -> Result<ByteBounds> {
        if !media::has_lines(mime, data) {
            return Err(self.not_text());
        }
        let deadline = self.repository.deadline();
        let mut ended = None;
        let mut progress = |_: u64| {
            deadline.check().map_err(|cause| {
                ended = Some(cause);
                io::Error::other("nobody waits any more")
            })
        };
        let limit = self.inner.config.max_size;
        let mut search = LineScanner {
            file: &mut Cursor::new(data),
            units: CodeUnits::of(data),
            limit,
            starts: &mut LineStarts::default(),
            progress: &mut progress,
        };
        let bounds = search.bounds(span);
        bounds.map_err(|cause| ended.take().unwrap_or_else(|| Error::failed("read the file", cause)))
    }

    fn submodule(&self, uri: Uri, commit: ObjectId) -> Content {
        Content {
            meta: Some(submodule(commit)),
            ..Content::text(uri, SUBMODULE_MIME, format!("Subproject commit {commit}\n"))
        }
    }

    fn size(&self, id: ObjectId) -> Result<u64> {
        let missing = || {
            Error::Unavailable("this file is not in the repository, which is a partial clone; hint: run `git fetch --refetch --no-filter`".into())
        };
        self.repository.size(id)?.ok_or_else(missing)
    }

    fn too_large(&self, size: u64, limit: u64, hint: Option<&str>) -> Error {
        Error::TooLarge { uri: self.uri.clone(), size, limit, hint: hint.map(Into::into) }
    }

    fn not_text(&self) -> Error {
        Error::invalid(format!("`{}` is not text: read it by `?bytes=0-65535`", self.uri.without_query()))
    }
}

/// The percent-encoded path with the trailing slash of a directory; empty for the root.
pub(super) fn base(path: &str) -> String {
    match path.trim_end_matches('/') {
        "" => String::new(),
        path => format!("{path}/"),
    }
}

/// The file name in a path, decoded lossily. It determines the media type.
fn label(path: &[u8]) -> String {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}

/// The content of a whole file or symbolic link; `label` is the file name.
pub(super) fn content(uri: Uri, label: &str, kind: EntryKind, data: Vec<u8>) -> Content {
    if kind == EntryKind::Link {
        return Content::text(uri, SYMLINK_MIME, String::from_utf8_lossy(&data));
    }
    if let Some(pointer) = LfsPointer::parse(&data) {
        let meta = Some(pointer.meta());
        return Content {
            uri,
            mime: Some(LfsPointer::MIME.into()),
            body: media::body(data, LfsPointer::MIME),
            meta,
        };
    }
    let mime = mime(label, &data);
    Content { uri, mime: Some(mime.into()), body: media::body(data, mime), meta: None }
}
