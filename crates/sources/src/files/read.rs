//! Reading files, parts of files, and directories.

use std::ffi::OsStr;
use std::io::{self, Read, Seek, SeekFrom};
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use cap_std::fs::File;
use libris_core::{Body, Content, Context, Error, Meta, Result, Uri};

use super::describe::DIRECTORY;
use super::part::{Bounds, Lines};
use super::root::is_missing;
use super::tree::{Folder, Found};
use super::{Inner, walk};
use crate::media::{self, Form, Units};
use crate::range::{HINT, Range, Span};

/// After how many bytes a long search tells how far it has come.
const REPORT: u64 = 1024 * 1024;

/// The key under which a part says why its data is left out.
const OMITTED: &str = "dev.libris/omitted";

/// The key under which a directory says how many of its entries were left out.
const MORE: &str = "dev.libris/more";

/// Who asked for a read, and whether they still want it.
pub(super) struct Reader<'a> {
    pub(super) inner: &'a Inner,
    pub(super) uri: &'a Uri,
    pub(super) context: &'a Context,
    pub(super) gone: &'a AtomicBool,
}

impl Reader<'_> {
    pub(super) fn read(&self) -> Result<Vec<Content>> {
        let path = self.inner.path(self.uri).ok_or_else(|| Error::NotFound(self.uri.clone()))?;
        let range = self.uri.query().map(Range::parse).transpose()?;
        let found = self.inner.tree.find(self.inner.open_root()?, path).map_err(|cause| self.fault(cause))?;
        match (found, range) {
            (Found::Folder(folder), None) => self.directory(&folder),
            (Found::Folder(_), Some(_)) => Err(Error::invalid(format!(
                "`{}` is a directory, which has no lines or bytes: read it without `?`",
                self.uri.without_query()
            ))),
            (Found::File(folder, name), None) => self.whole(&folder, &name).map(|content| vec![content]),
            (Found::File(folder, name), Some(range)) => {
                self.part(&folder, &name, range).map(|content| vec![content])
            }
        }
    }

    fn whole(&self, folder: &Folder, name: &OsStr) -> Result<Content> {
        let limit = self.inner.config.max_size;
        let (file, metadata) = folder.place.open(name).map_err(|cause| self.fault(cause))?;
        let too_large =
            |size| Error::TooLarge { uri: self.uri.clone(), size, limit, hint: Some(HINT.into()) };
        if metadata.len() > limit {
            return Err(too_large(metadata.len()));
        }
        // It may have grown since.
        let data = read_up_to(&file, metadata.len(), limit).map_err(|cause| self.fault(cause))?;
        let data = data.ok_or_else(|| too_large(file.metadata().map_or(limit + 1, |grown| grown.len())))?;
        let mime = mime(name, &data);
        Ok(Content {
            uri: self.uri.clone(),
            mime: Some(mime.into()),
            body: media::body(data, mime),
            meta: None,
        })
    }

    fn part(&self, folder: &Folder, name: &OsStr, range: Range) -> Result<Content> {
        let fault = |cause| self.fault(cause);
        let (mut file, metadata) = folder.place.open(name).map_err(fault)?;
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
                exact(self.slice(&mut file, bounds, "bytes")?, mime)
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
            // Nobody can stop a blocking task but itself.
            if self.gone.load(Ordering::Relaxed) {
                return Err(io::Error::other("nobody waits for the answer"));
            }
            if done >= told + REPORT {
                told = done;
                self.context.progress(done, Some(size));
            }
            Ok(())
        };
        let mut search = Lines { file, units: Units::of(head), progress: &mut progress };
        let bounds = search.bounds(span).map_err(|cause| self.fault(cause))?;
        self.slice(file, bounds, "lines")
    }

    fn slice(&self, file: &mut File, bounds: Bounds, unit: &str) -> Result<Vec<u8>> {
        let (start, end) = match bounds {
            Bounds::Within(start, end) => (start, end),
            Bounds::Past(count) => {
                return Err(Error::invalid(format!(
                    "`{}` begins past the end: there are {count} {unit}",
                    self.uri
                )));
            }
        };
        let (size, limit) = (end - start, self.inner.config.max_size);
        if size > limit {
            let hint = Some(format!("ask for fewer {unit}"));
            return Err(Error::TooLarge { uri: self.uri.clone(), size, limit, hint });
        }
        let mut data = Vec::new();
        file.seek(SeekFrom::Start(start))
            .and_then(|_| file.take(size).read_to_end(&mut data))
            .map_err(|cause| self.fault(cause))?;
        Ok(data)
    }

    /// The entries of a directory with their data, as far as it fits.
    fn directory(&self, folder: &Folder) -> Result<Vec<Content>> {
        let names = self.inner.tree.names(folder).map_err(|cause| self.fault(cause))?;
        let shown = names.len().min(self.inner.config.directory_entries);
        let mut left = self.inner.config.directory_bytes;
        let mut parts = Vec::with_capacity(shown + 1);
        for key in &names[..shown] {
            let child = self.child(folder, key, &mut left).map_err(|cause| self.fault(cause))?;
            parts.extend(child);
        }
        let own = self.inner.uri(&folder.key).map(|uri| Content::text(uri, DIRECTORY, ""));
        if names.len() > shown {
            let meta = Some(Meta::from_iter([(MORE.to_owned(), (names.len() - shown).into())]));
            parts.extend(own.map(|own| Content { meta, ..own }));
        } else if parts.is_empty() {
            // Only here: a host takes what comes back under its own URI for a file.
            parts.extend(own);
        }
        Ok(parts)
    }

    fn child(&self, folder: &Folder, key: &str, left: &mut u64) -> io::Result<Option<Content>> {
        let tree = &self.inner.tree;
        if key.ends_with('/') {
            let child = walk::readable_directory(tree, folder, key)?;
            let uri = child.and_then(|child| self.inner.uri(&child.key));
            return Ok(uri.map(|uri| Content::text(uri, DIRECTORY, "")));
        }
        let Some(leaf) = walk::leaf(tree, folder, key)? else { return Ok(None) };
        let Some(uri) = self.inner.uri(&leaf.key) else { return Ok(None) };
        let omitted = |why: String| {
            let mime = self.inner.describe.facts(folder, &leaf).mime;
            let meta = Some(Meta::from_iter([(OMITTED.to_owned(), why.into())]));
            Some(Content { meta, ..Content::text(uri.clone(), mime, "") })
        };
        let size = leaf.metadata.len();
        let limit = self.inner.config.max_size.min(*left);
        if size > limit {
            return Ok(omitted(format!("too large: {size} bytes")));
        }
        match folder.place.open(&leaf.name).and_then(|(file, _)| read_up_to(&file, size, limit)) {
            Ok(Some(data)) => {
                *left -= data.len() as u64;
                let mime = mime(&leaf.name, &data);
                let body = media::body(data, mime);
                Ok(Some(Content { uri, mime: Some(mime.into()), body, meta: None }))
            }
            Ok(None) => Ok(omitted("too large".into())),
            Err(cause) if is_missing(&cause) => Ok(None),
            Err(cause) if cause.kind() == io::ErrorKind::PermissionDenied => {
                Ok(omitted("cannot be read".into()))
            }
            Err(cause) => Err(cause),
        }
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
    file.take(limit.saturating_add(1)).read_to_end(&mut data)?;
    Ok((data.len() as u64 <= limit).then_some(data))
}

/// Bytes that must not change: text only where that is the same bytes.
fn exact(data: Vec<u8>, mime: &str) -> Body {
    if media::form(mime) == Form::Binary {
        return Body::Bytes(Bytes::from(data));
    }
    match String::from_utf8(data) {
        Ok(text) if media::is_clean(&text) => Body::Text(text),
        Ok(text) => Body::Bytes(Bytes::from(text)),
        Err(error) => Body::Bytes(Bytes::from(error.into_bytes())),
    }
}
