//! Lists and reads the files and directories of skills.

use std::io::{self, Read};
use std::ops::Bound;
use std::sync::Arc;

use jiff::Timestamp;
use libris_core::{Annotations, Content, Contents, Context, DIRECTORY, Error, Page, Resource, Result, Uri};

use super::{SCHEME, SkillLocation, SkillsInner, missing};
use crate::folder_listing::{FolderListing, FolderQuery, ListedChild};
use crate::media;
use crate::skill_tree::{MAX_BYTES, SkillFileEntry, SkillSnapshot, SkillTreeEntry};
use crate::tree::{DirectoryHandle, ResolvedPath, is_missing};

/// The maximum number of entries in the contents of a directory.
const MAX_LISTED: usize = 1_000;

/// Contents larger than this reserve memory before they are loaded.
const RESERVE_THRESHOLD: u64 = 64 * 1024;

impl SkillsInner {
    /// One page of the files of all skills.
    pub(super) fn list(&self, after: Option<&Uri>, limit: usize) -> Result<Page> {
        let snapshot = self.snapshot()?;
        let mut page = Page { freshness: self.freshness(snapshot.freshness()), ..Page::default() };
        let Some(start) = self.keys_after(after) else { return Ok(page) };
        for (key, entry) in snapshot.entries().range::<str, _>((start, Bound::Unbounded)) {
            let SkillTreeEntry::File(file) = entry else { continue };
            let Some(uri) = self.uri(key) else { continue };
            if page.resources.len() == limit {
                page.more = true;
                break;
            }
            page.resources.push(self.file(&snapshot, file, uri)?);
        }
        Ok(page)
    }

    /// The lower bound of the keys after a URI; `None` if all keys come before it.
    fn keys_after<'a>(&self, after: Option<&'a Uri>) -> Option<Bound<&'a str>> {
        let Some(after) = after.map(Uri::as_str) else { return Some(Bound::Unbounded) };
        let base = format!("{SCHEME}{}", self.prefix);
        match after.strip_prefix(&*base) {
            Some(key) => Some(Bound::Excluded(key)),
            None => (*after < *base).then_some(Bound::Unbounded),
        }
    }

    /// One page of the children of a directory.
    pub(super) fn children(&self, uri: &Uri, after: Option<&Uri>, limit: usize) -> Result<Page> {
        let snapshot = self.snapshot()?;
        let mut resources = self.child_resources(&snapshot, uri)?;
        resources.retain(|resource| after.is_none_or(|after| resource.uri > *after));
        let more = resources.len() > limit;
        resources.truncate(limit);
        let freshness = self.freshness(snapshot.freshness());
        Ok(Page { resources, more, freshness, ..Page::default() })
    }

    /// The children of a directory, in the order of their URIs.
    fn child_resources(&self, snapshot: &SkillSnapshot, uri: &Uri) -> Result<Vec<Resource>> {
        let not_found = || Error::NotFound(uri.clone());
        let key = match self.locate(uri).ok_or_else(not_found)? {
            SkillLocation::InFolder(key) => key,
            SkillLocation::AboveFolder(path) => {
                return self.child_above(snapshot, path).map(|child| vec![child]).ok_or_else(not_found);
            }
        };
        match snapshot.entries().get(key) {
            Some(SkillTreeEntry::File(_)) => return Err(Error::NotDirectory(uri.clone())),
            Some(SkillTreeEntry::Folder) => {}
            // The folder itself exists only if it has skills. Without a prefix, it has no URI.
            None if key.is_empty() && !snapshot.entries().is_empty() => {}
            None => return Err(not_found()),
        }
        let mut children = Vec::new();
        for (key, entry) in snapshot.children(key) {
            let Some(uri) = self.uri(key) else { continue };
            children.push(match entry {
                SkillTreeEntry::Folder => folder(uri),
                SkillTreeEntry::File(file) => self.file(snapshot, file, uri)?,
            });
        }
        Ok(children)
    }

    /// The only child of a directory above the folder; `None` if there are no skills, because the directory then does
    /// not exist.
    fn child_above(&self, snapshot: &SkillSnapshot, path: &str) -> Option<Resource> {
        if snapshot.entries().is_empty() {
            return None;
        }
        let rest = self.prefix.strip_prefix(path)?.strip_prefix('/')?;
        let name = rest.split('/').next()?;
        Uri::parse(&format!("{SCHEME}{path}/{name}")).ok().map(folder)
    }

    /// The resource of a file. That of a `SKILL.md` has the name and the description of its skill.
    fn file(&self, snapshot: &SkillSnapshot, file: &SkillFileEntry, uri: Uri) -> Result<Resource> {
        let name = last_name(uri.as_str());
        let mut resource = Resource::new(uri, name);
        resource.mime = Some(match media::by_name(&resource.name) {
            Some(mime) => mime.to_owned(),
            None => self.mime_by_content(file, &resource.name)?.to_owned(),
        });
        resource.size = Some(file.stamp.size);
        let modified = file.stamp.modified.and_then(|time| Timestamp::try_from(time).ok());
        resource.annotations = Annotations { last_modified: modified, ..Annotations::default() };
        if let Some(skill) = snapshot.skill(&file.key) {
            let text = |key| skill.text(key).map(str::to_owned);
            resource.name = text("name").unwrap_or(resource.name);
            resource.description = text("description");
        }
        Ok(resource)
    }

    fn mime_by_content(&self, file: &SkillFileEntry, name: &str) -> Result<&'static str> {
        let mut head = Vec::new();
        let read = self
            .open(&file.key)
            .and_then(|opened| opened.take(media::HEAD_BYTES as u64).read_to_end(&mut head));
        match read {
            Ok(_) => Ok(media::by_content(name, &head)),
            // The file was removed after the scan. The next list does not have it.
            Err(cause) if is_missing(&cause) => Ok("application/octet-stream"),
            Err(cause) => Err(self.unavailable(cause)),
        }
    }

    fn open(&self, key: &str) -> io::Result<std::fs::File> {
        let ResolvedPath::File(folder, name) = self.tree.resolve(self.tree.watched_root()?, key)? else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let (file, _) = self.tree.with_target(&folder, &name, DirectoryHandle::open)?;
        Ok(file.into_std())
    }

    /// The bytes of a file, or the listing of a directory.
    pub(super) fn read(&self, uri: &Uri, context: &Context) -> Result<Contents> {
        let snapshot = self.snapshot()?;
        let freshness = self.freshness(snapshot.freshness());
        self.find(&snapshot, uri, context)
            .map(|content| Contents::from(content).with_freshness(freshness))
            .map_err(|error| match error {
                Error::NotFound(uri) => missing::error(self, &snapshot, &uri, context),
                error => error,
            })
    }

    /// The content at a URI; [`Error::NotFound`] if there is none.
    fn find(&self, snapshot: &SkillSnapshot, uri: &Uri, context: &Context) -> Result<Content> {
        match self.locate(uri).ok_or_else(|| Error::NotFound(uri.clone()))? {
            // The URI of a file does not end with a slash.
            SkillLocation::InFolder(key) if !uri.as_str().ends_with('/') => match snapshot.entries().get(key)
            {
                Some(SkillTreeEntry::File(file)) => self.read_file(uri, file, context),
                _ => self.read_folder(snapshot, uri, context),
            },
            SkillLocation::InFolder(_) | SkillLocation::AboveFolder(_) => {
                self.read_folder(snapshot, uri, context)
            }
        }
    }

    /// The bytes of a file, unchanged, so that hosts can verify the digest.
    fn read_file(&self, uri: &Uri, file: &Arc<SkillFileEntry>, context: &Context) -> Result<Content> {
        let failed = |cause: io::Error| match cause.kind() {
            _ if is_missing(&cause) => Error::NotFound(uri.clone()),
            io::ErrorKind::PermissionDenied => Error::Denied(uri.clone()),
            _ => Error::failed("read the file", cause),
        };
        let opened = self.open(&file.key).map_err(failed)?;
        let size = opened.metadata().map_err(failed)?.len();
        if size > RESERVE_THRESHOLD {
            context.reserve(size.min(MAX_BYTES))?;
        }
        let mut data = Vec::new();
        opened.take(MAX_BYTES + 1).read_to_end(&mut data).map_err(failed)?;
        if data.len() as u64 > MAX_BYTES {
            return Err(Error::TooLarge { uri: uri.clone(), size, limit: MAX_BYTES, hint: None });
        }
        let name = last_name(uri.as_str());
        let mime = media::by_name(&name).unwrap_or_else(|| media::by_content(&name, &data));
        Ok(Content { uri: uri.clone(), mime: Some(mime.into()), body: media::exact(data, mime), meta: None })
    }

    fn read_folder(&self, snapshot: &SkillSnapshot, uri: &Uri, context: &Context) -> Result<Content> {
        let children = self.child_resources(snapshot, uri).map_err(|error| match error {
            // The URI of a file, with a slash at the end, is not that of a resource.
            Error::NotDirectory(uri) => Error::NotFound(uri),
            error => error,
        })?;
        let visible = children.into_iter().filter(|child| context.sees(&child.uri));
        let children: Vec<_> = visible
            .take(MAX_LISTED)
            .map(|child| ListedChild {
                name: last_name(child.uri.as_str()),
                uri: child.uri,
                kind: child.mime.unwrap_or_default().into(),
                size: child.size,
                modified: child.annotations.last_modified,
                title: None,
            })
            .collect();
        let title = last_name(uri.as_str().trim_end_matches('/'));
        let query = FolderQuery::default();
        let listing = FolderListing {
            folder: uri,
            query: &query,
            title: &title,
            children: &children,
            next: None,
            more: None,
        };
        Ok(listing.content(uri.clone()))
    }
}

/// The resource of a directory.
fn folder(uri: Uri) -> Resource {
    let name = last_name(uri.as_str());
    let mut resource = Resource::new(uri, name);
    resource.mime = Some(DIRECTORY.to_owned());
    resource
}

/// The last segment of a URI, without escapes.
pub(super) fn last_name(uri: &str) -> String {
    let segment = uri.rsplit('/').next().unwrap_or_default();
    let decoded = Uri::decode_segment(segment).unwrap_or_else(|| segment.as_bytes().to_owned());
    String::from_utf8_lossy(&decoded).into_owned()
}
