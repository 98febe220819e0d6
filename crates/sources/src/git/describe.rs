//! Describes tree entries as resources: media type, size, title and description.

use gix::ObjectId;
use gix::objs::tree::EntryKind;
use jiff::Timestamp;
use libris_core::{DIRECTORY, Meta, Resource, Result, Uri};
use serde_json::json;

use super::repo::{TaskRepository, TreeEntry};
use crate::head_metadata::{self, HeadMetadata};
use crate::{media, meta};

/// The media type of symbolic links. Their content is the target path.
pub(super) const SYMLINK_MIME: &str = "inode/symlink";

/// The media type of submodules. Their content is `Subproject commit <id>`, as in `git diff`.
pub(super) const SUBMODULE_MIME: &str = "text/plain";

/// The largest file that a listing reads for front matter, a media type or a Git LFS pointer, in bytes.
const MAX_INSPECTED_FILE_BYTES: u64 = 256 * 1024;

/// The maximum number of bytes of files that one page of a listing reads.
const MAX_INSPECTED_PAGE_BYTES: u64 = 4 * 1024 * 1024;

/// The possible sizes of a Git LFS pointer file, in bytes.
const LFS_POINTER_SIZES: std::ops::Range<u64> = 100..1024;

/// Describes the entries of one page.
pub(super) struct EntryDescriber<'a> {
    repository: &'a TaskRepository<'a>,
    /// How many more bytes of files may be read.
    left: u64,
}

impl<'a> EntryDescriber<'a> {
    pub(super) fn new(repository: &'a TaskRepository<'a>) -> Self {
        Self { repository, left: MAX_INSPECTED_PAGE_BYTES }
    }

    /// The resource of a file or directory; `time` is its modification time in seconds.
    pub(super) fn resource(
        &mut self,
        uri: Uri,
        name: &[u8],
        entry: TreeEntry,
        time: i64,
    ) -> Result<Resource> {
        let label = String::from_utf8_lossy(name);
        let mut resource = Resource::new(uri, &*label);
        resource.annotations.last_modified = Timestamp::from_second(time).ok();
        match entry.kind {
            EntryKind::Tree => resource.mime = Some(DIRECTORY.into()),
            EntryKind::Commit => {
                resource.mime = Some(SUBMODULE_MIME.into());
                resource.description =
                    Some(format!("A submodule at commit {}, which is not part of this repository", entry.id));
                resource.meta = Some(submodule(entry.id));
            }
            EntryKind::Link => {
                resource.mime = Some(SYMLINK_MIME.into());
                resource.size = self.repository.size(entry.id)?;
                resource.description = Some("A symbolic link; its content is the target path".into());
            }
            EntryKind::Blob | EntryKind::BlobExecutable => self.file(&mut resource, &label, entry.id)?,
        }
        Ok(resource)
    }

    fn file(&mut self, resource: &mut Resource, label: &str, id: ObjectId) -> Result<()> {
        let named = media::by_name(label);
        resource.mime = named.map(Into::into);
        // A partial clone lacks some blobs, so their sizes are unknown.
        let Some(size) = self.repository.size(id)? else { return Ok(()) };
        resource.size = Some(size);
        let wanted = named.is_none_or(head_metadata::may_be_in) || LFS_POINTER_SIZES.contains(&size);
        if !wanted || size > MAX_INSPECTED_FILE_BYTES.min(self.left) {
            return Ok(());
        }
        self.left -= size;
        let data = self.repository.blob(id)?;
        if let Some(pointer) = LfsPointer::parse(&data) {
            resource.mime = Some(LfsPointer::MIME.into());
            resource.description = Some(pointer.to_text());
            resource.meta = Some(pointer.meta());
            return Ok(());
        }
        let mime = mime(label, &data);
        resource.mime = Some(mime.into());
        if let Some(head) = HeadMetadata::parse(mime, &data) {
            resource.title = head.title;
            resource.description = head.description;
        }
        Ok(())
    }
}

/// The media type by the name of a file, or else by its content. Listings and reads both call this, so that they agree.
pub(super) fn mime(label: &str, data: &[u8]) -> &'static str {
    media::by_name(label).unwrap_or_else(|| media::by_content(label, data))
}

/// The `_meta` of a submodule.
pub(super) fn submodule(commit: ObjectId) -> Meta {
    meta::with(meta::SUBMODULE, json!({ "commit": commit.to_string() }))
}

/// A Git LFS pointer: the file that git stores in place of a large one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LfsPointer<'a> {
    oid: &'a str,
    size: u64,
}

impl<'a> LfsPointer<'a> {
    pub(super) const MIME: &'static str = "text/plain";

    pub(super) fn parse(data: &'a [u8]) -> Option<Self> {
        if !LFS_POINTER_SIZES.contains(&(data.len() as u64)) {
            return None;
        }
        let text = std::str::from_utf8(data).ok()?;
        let lines = text.strip_prefix("version https://git-lfs.github.com/spec/v1\n")?.lines();
        let field = |name: &str| lines.clone().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        Some(Self { oid: field("oid")?, size: field("size")?.parse().ok()? })
    }

    fn to_text(&self) -> String {
        format!("A Git LFS pointer: the file itself, of {} bytes, is not in the repository", self.size)
    }

    pub(super) fn meta(&self) -> Meta {
        meta::with(meta::LFS, json!({ "oid": self.oid, "size": self.size }))
    }
}

#[cfg(test)]
mod tests {
    use super::LfsPointer;

    #[test]
    fn pointers_are_distinguished_from_files() {
        let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n";
        let found = LfsPointer::parse(pointer).unwrap();
        assert_eq!(found.size, 12345);
        assert!(found.oid.starts_with("sha256:4d7a"));
        assert_eq!(LfsPointer::parse(&pointer[1..]), None);
        assert_eq!(LfsPointer::parse(&[&pointer[..], &[b'x'; 2000]].concat()), None);
    }
}
