//! The metadata of resources: media type, title and description, from the file itself and from the rules of the
//! configuration.

use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;

use jiff::Timestamp;
use libris_core::{Annotations, DIRECTORY, Error, Resource, Result, Uri};

use super::config::MetadataRule;
use crate::head_metadata::{self, HeadMetadata};
use crate::media;
use crate::patterns::{ConfiguredPatterns, with_slashes};
use crate::tree::walk::{self, FileEntry};
use crate::tree::{DirectoryHandle, LruCache, OpenFolder, StatStamp, Tree};

/// The total size of the caches of [`ContentMetadata`], in bytes. Each folder source has an equal share.
const MAX_CACHED_BYTES: usize = 32 * 1024 * 1024;

/// The number of open folder sources in this process.
static FOLDERS: AtomicUsize = AtomicUsize::new(0);

/// The memory of a cached file besides its key and its texts, in bytes.
const ENTRY_OVERHEAD: usize = 192;

/// Describes files and directories as resources.
pub(super) struct ResourceDescriber {
    rules: Vec<(ConfiguredPatterns, MetadataRule)>,
    cache: LruCache<CachedMetadata>,
}

impl Drop for ResourceDescriber {
    fn drop(&mut self) {
        FOLDERS.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Clone)]
struct CachedMetadata {
    stamp: StatStamp,
    metadata: ContentMetadata,
}

/// The metadata from the content of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ContentMetadata {
    pub(super) mime: &'static str,
    pub(super) head: Option<Arc<HeadMetadata>>,
    /// `false` if the file had to be read and could not be.
    pub(super) complete: bool,
}

impl ResourceDescriber {
    pub(super) fn new(rules: &[MetadataRule]) -> Result<Self> {
        let rules = rules.iter().map(|rule| Ok((check(rule)?, rule.clone()))).collect::<Result<_>>()?;
        FOLDERS.fetch_add(1, Ordering::Relaxed);
        Ok(Self { rules, cache: LruCache::new(MAX_CACHED_BYTES) })
    }

    pub(super) fn folder(&self, folder: &OpenFolder, uri: Uri, name: String) -> Resource {
        let mut resource = Resource::new(uri, name);
        resource.mime = Some(DIRECTORY.into());
        resource.title = folder.logical.path.parent().and_then(|above| path_title(above, &resource.name));
        self.apply_rules(&mut resource, &folder.logical.path, true);
        resource.annotations.last_modified = folder.stamp.modified.and_then(timestamp);
        resource
    }

    pub(super) fn file(
        &self,
        folder: &OpenFolder,
        entry: &FileEntry,
        metadata: ContentMetadata,
        uri: Uri,
    ) -> Resource {
        let mut resource = Resource::new(uri, entry.name.to_string_lossy());
        resource.mime = Some(metadata.mime.into());
        resource.size = Some(entry.stamp.size);
        if !self.rules.is_empty() {
            self.apply_rules(&mut resource, &folder.logical.path.join(&entry.name), false);
        }
        resource.annotations.last_modified = entry.stamp.modified.and_then(timestamp);
        if let Some(head) = metadata.head {
            resource.title.clone_from(&head.title);
            resource.description = head.description.clone().or(resource.description);
        }
        // Many files have the same name in different directories.
        resource.title = resource.title.or_else(|| path_title(&folder.logical.path, &resource.name));
        resource
    }

    /// The content metadata of a file from its name or the cache, without reading the file.
    pub(super) fn cached_content_metadata(&self, entry: &FileEntry) -> Option<ContentMetadata> {
        if let Some(mime) = media::by_name(&entry.name.to_string_lossy())
            && !head_metadata::may_be_in(mime)
        {
            return Some(ContentMetadata { mime, head: None, complete: true });
        }
        self.cache.get(&entry.key).filter(|cached| cached.stamp == entry.stamp).map(|cached| cached.metadata)
    }

    /// The content metadata of a file, which is read only if its name and the cache are not enough. A file that is gone
    /// or damaged, or for which the permission to read is missing, is described by its name alone.
    pub(super) fn content_metadata(
        &self,
        tree: &Tree,
        folder: &OpenFolder,
        entry: &FileEntry,
    ) -> io::Result<ContentMetadata> {
        if let Some(cached) = self.cached_content_metadata(entry) {
            return Ok(cached);
        }
        let label = entry.name.to_string_lossy();
        let named = media::by_name(&label);
        let seen = SystemTime::now();
        let Some((head, stamp)) = read_head(tree, folder, entry)? else {
            let mime = named.unwrap_or("application/octet-stream");
            return Ok(ContentMetadata { mime, head: None, complete: false });
        };
        let mime = named.unwrap_or_else(|| media::by_content(&label, &head));
        let head = HeadMetadata::parse(mime, &head).map(Arc::new);
        let metadata = ContentMetadata { mime, head, complete: true };
        if stamp.settled(seen) {
            self.cache_content_metadata(&entry.key, CachedMetadata { stamp, metadata: metadata.clone() });
        }
        Ok(metadata)
    }

    fn cache_content_metadata(&self, key: &str, cached: CachedMetadata) {
        let texts = cached.metadata.head.as_ref().map_or(0, |head| head.len());
        let share = MAX_CACHED_BYTES / FOLDERS.load(Ordering::Relaxed).max(1);
        self.cache.insert_within(share, key, ENTRY_OVERHEAD + key.len() + texts, cached);
    }

    /// The configured priority of the file or directory at a path below the root.
    pub(super) fn priority(&self, path: &Path, directory: bool) -> Option<f64> {
        let path = with_slashes(path);
        let rules = self.rules.iter().rev().filter(|(_, rule)| rule.priority.is_some());
        let mut matching =
            rules.filter(|(pattern, _)| !path.is_empty() && pattern.matches_path_or_parent(&path, directory));
        matching.next().and_then(|(_, rule)| rule.priority)
    }

    /// Applies all matching rules in order, so that the last one that sets a key wins.
    fn apply_rules(&self, resource: &mut Resource, path: &Path, directory: bool) {
        let path = with_slashes(path);
        for (pattern, rule) in &self.rules {
            if path.is_empty() || !pattern.matches_path_or_parent(&path, directory) {
                continue;
            }
            let Annotations { audience, priority, .. } = &mut resource.annotations;
            if let Some(configured) = &rule.audience {
                audience.clone_from(configured);
            }
            *priority = rule.priority.or(*priority);
            if let Some(configured) = &rule.description {
                resource.description = Some(configured.clone());
            }
        }
    }
}

/// The path below the mount, which is the title if there is no other; `None` if it equals the name.
fn path_title(above: &Path, name: &str) -> Option<String> {
    let above = above.to_string_lossy();
    let above = if cfg!(windows) { above.replace('\\', "/").into() } else { above };
    (!above.is_empty()).then(|| format!("{above}/{name}"))
}

/// The first bytes of a file, and the stamp of the opened file, which may have replaced the listed one. `None` if
/// the file is gone or damaged, or if the permission to read it is missing.
fn read_head(
    tree: &Tree,
    folder: &OpenFolder,
    entry: &FileEntry,
) -> io::Result<Option<(Vec<u8>, StatStamp)>> {
    let (file, metadata) = match tree.with_target(folder, &entry.name, DirectoryHandle::open) {
        Ok(opened) => opened,
        Err(cause) => return walk::skip_unreadable(tree, &entry.key, cause).map(|()| None),
    };
    let mut head = Vec::new();
    match file.take(media::HEAD_BYTES as u64).read_to_end(&mut head) {
        Ok(_) => Ok(Some((head, StatStamp::of(&metadata)))),
        // One damaged file must not make the whole listing fail.
        Err(cause) if is_disk_error(&cause) => {
            tree.warn(&entry.key, &cause);
            Ok(None)
        }
        Err(cause) => Err(cause),
    }
}

/// Whether the disk failed to read the data of a file (`EIO`).
#[cfg(unix)]
fn is_disk_error(cause: &io::Error) -> bool {
    rustix::io::Errno::from_io_error(cause) == Some(rustix::io::Errno::IO)
}

#[cfg(not(unix))]
fn is_disk_error(_cause: &io::Error) -> bool {
    false
}

/// Validates a rule and compiles its pattern.
fn check(rule: &MetadataRule) -> Result<ConfiguredPatterns> {
    if rule.glob.is_empty() {
        return Err(Error::invalid("a `rule` has no `glob`; hint: set `glob` to a pattern such as `*.md`"));
    }
    if let Some(priority) = rule.priority.filter(|priority| !(0.0..=1.0).contains(priority)) {
        return Err(Error::invalid(format!(
            "the rule for `{}` has the priority `{priority}`, which is not between 0 and 1; hint: write a number from 0 to 1",
            rule.glob
        )));
    }
    ConfiguredPatterns::new("glob", std::slice::from_ref(&rule.glob))
}

pub(super) fn timestamp(time: SystemTime) -> Option<Timestamp> {
    Timestamp::try_from(time).ok()
}

#[cfg(test)]
mod tests {
    use super::{
        Arc, CachedMetadata, ContentMetadata, HeadMetadata, MAX_CACHED_BYTES, ResourceDescriber, StatStamp,
    };
    use crate::tree::Root;

    #[test]
    fn cached_metadata_of_all_folders_are_bounded_in_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let metadata = Root::open(folder.path()).unwrap().handle().unwrap().metadata().unwrap();
        let describers = [(); 3].map(|()| ResourceDescriber::new(&[]).unwrap());
        let files = MAX_CACHED_BYTES / 3000 * 2;
        let cached = describers.each_ref().map(|describe| {
            for file in 0..files {
                let head = Some(Arc::new(HeadMetadata { title: None, description: Some("d".repeat(3000)) }));
                let content = ContentMetadata { mime: "text/markdown", head, complete: true };
                describe.cache_content_metadata(
                    &file.to_string(),
                    CachedMetadata { stamp: StatStamp::of(&metadata), metadata: content },
                );
            }
            (0..files).filter(|file| describe.cache.get(&file.to_string()).is_some()).count()
        });
        assert!(cached.iter().all(|cached| *cached > 10), "{cached:?}");
        assert!(cached.iter().sum::<usize>() * 3000 <= MAX_CACHED_BYTES, "{cached:?}");
    }
}
