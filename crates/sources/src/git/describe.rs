//! Describes tree entries as resources: media type, size, title and description.

use gix::ObjectId;
use gix::objs::tree::EntryKind;
use jiff::Timestamp;
use libris_core::{DIRECTORY, Meta, Resource, Result, Uri};
use serde_json::json;

use super::repo::{Objects, TreeEntry};
use crate::front_matter::{self, FrontMatter};
use crate::{media, meta};

/// The media type of symbolic links. Their content is the target path.
pub(super) const LINK: &str = "inode/symlink";

/// The media type of submodules. Their content is the commit line of `git diff`.
pub(super) const SUBMODULE: &str = "text/plain";

/// The largest file that a listing reads for front matter, a media type or a Git LFS pointer, in bytes.
const LARGEST: u64 = 256 * 1024;

/// The most bytes of files that one page of a listing reads.
const LOOKED_INTO: u64 = 4 * 1024 * 1024;

/// The possible sizes of a Git LFS pointer file, in bytes.
const POINTER: std::ops::Range<u64> = 100..1024;

/// Describes the entries of one page.
pub(super) struct Describe<'a> {
    objects: &'a Objects<'a>,
    left: u64,
}

impl<'a> Describe<'a> {
    pub(super) fn new(objects: &'a Objects<'a>) -> Self {
        Self { objects, left: LOOKED_INTO }
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
                resource.mime = Some(SUBMODULE.into());
                resource.description =
                    Some(format!("A submodule at commit {}, which is not part of this repository", entry.id));
                resource.meta = Some(submodule(entry.id));
            }
            EntryKind::Link => {
                resource.mime = Some(LINK.into());
                resource.size = self.objects.size(entry.id)?;
                resource.description = Some("A symbolic link; its content is where it leads".into());
            }
            EntryKind::Blob | EntryKind::BlobExecutable => self.file(&mut resource, &label, entry.id)?,
        }
        Ok(resource)
    }

    fn file(&mut self, resource: &mut Resource, label: &str, id: ObjectId) -> Result<()> {
        let named = media::by_name(label);
        resource.mime = named.map(Into::into);
        // A partial clone lacks some blobs and so their sizes.
        let Some(size) = self.objects.size(id)? else { return Ok(()) };
        resource.size = Some(size);
        let wanted = named.is_none_or(front_matter::may_be_in) || POINTER.contains(&size);
        if !wanted || size > LARGEST.min(self.left) {
            return Ok(());
        }
        self.left -= size;
        let data = self.objects.blob(id)?;
        if let Some(pointer) = Pointer::parse(&data) {
            resource.mime = Some(Pointer::MIME.into());
            resource.description = Some(pointer.said());
            resource.meta = Some(pointer.meta());
            return Ok(());
        }
        let mime = mime(label, &data);
        resource.mime = Some(mime.into());
        if front_matter::may_be_in(mime)
            && let Some(matter) = FrontMatter::parse(&data)
        {
            resource.title = matter.title;
            resource.description = matter.description;
        }
        Ok(())
    }
}

/// The media type by the name of a file, or else by its content. Listings and reads use this, so that they agree.
pub(super) fn mime(label: &str, data: &[u8]) -> &'static str {
    media::by_name(label).unwrap_or_else(|| media::by_content(label, data))
}

/// The `_meta` of a submodule.
pub(super) fn submodule(commit: ObjectId) -> Meta {
    meta::with(meta::SUBMODULE, json!({ "commit": commit.to_string() }))
}

/// A Git LFS pointer: the file that git stores in place of a large one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Pointer<'a> {
    oid: &'a str,
    size: u64,
}

impl<'a> Pointer<'a> {
    pub(super) const MIME: &'static str = "text/plain";

    pub(super) fn parse(data: &'a [u8]) -> Option<Self> {
        if !POINTER.contains(&(data.len() as u64)) {
            return None;
        }
        let text = std::str::from_utf8(data).ok()?;
        let lines = text.strip_prefix("version https://git-lfs.github.com/spec/v1\n")?.lines();
        let field = |name: &str| lines.clone().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        Some(Self { oid: field("oid")?, size: field("size")?.parse().ok()? })
    }

    fn said(&self) -> String {
        format!("A Git LFS pointer: the file itself, of {} bytes, is not in the repository", self.size)
    }

    pub(super) fn meta(&self) -> Meta {
        meta::with(meta::LFS, json!({ "oid": self.oid, "size": self.size }))
    }
}

#[cfg(test)]
mod tests {
    use super::Pointer;

    #[test]
    fn pointers_are_told_from_files() {
        let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n";
        let found = Pointer::parse(pointer).unwrap();
        assert_eq!(found.size, 12345);
        assert!(found.oid.starts_with("sha256:4d7a"));
        assert_eq!(Pointer::parse(&pointer[1..]), None);
        assert_eq!(Pointer::parse(&[&pointer[..], &[b'x'; 2000]].concat()), None);
    }
}
