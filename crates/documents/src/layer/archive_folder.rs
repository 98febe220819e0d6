//! A folder of an archive: its entries in URI order, found by binary search in the list of members.

use std::sync::Arc;

use libris_core::{Context, DIRECTORY, Resource, Result, Uri};

use crate::archive::{Member, encoded_path, uri_order};

/// The text of a folder ends after this many bytes. An archive can have a hundred thousand members, and the text is made
/// anew for each read.
const MAX_FOLDER_TEXT: usize = 1 << 20;

/// Memory for the text of a folder is reserved in pieces of this size.
const TEXT_PIECE: usize = 16 * 1024;

/// A folder of an archive. Its methods visit up to all of its entries, so they run on a blocking thread.
pub(super) struct ArchiveFolder {
    /// The members of the archive, in [URI order](uri_order).
    pub(super) members: Arc<Vec<Member>>,
    /// The URI of the folder, with a slash at the end.
    pub(super) uri: Uri,
    /// The path of the folder: empty, or with a slash at the end.
    pub(super) path: String,
}

impl ArchiveFolder {
    /// Whether the archive has no member below this path.
    pub(super) fn is_empty(&self) -> bool {
        below(&self.members, &self.path).is_empty()
    }

    /// At most `limit` resources of the folder after a URI, and whether there are more.
    pub(super) fn page(&self, after: Option<&Uri>, limit: usize) -> (Vec<Resource>, bool) {
        let resources = self.resources_after(after);
        let mut resources: Vec<_> = resources.take(limit.saturating_add(1)).collect();
        let more = resources.len() > limit;
        resources.truncate(limit);
        (resources, more)
    }

    /// The entries of the folder that the caller sees, as Markdown. Reserves its memory from `context`.
    pub(super) fn text(&self, context: &Context) -> Result<String> {
        let mut text = String::new();
        let mut reserved = 0;
        for resource in self.resources_after(None).filter(|resource| context.sees(&resource.uri)) {
            let size = resource.size.map(|size| format!(" ({size} bytes)")).unwrap_or_default();
            let slash = if resource.uri.as_str().ends_with('/') { "/" } else { "" };
            let mut line = format!("- [{}{slash}]({}){size}\n", resource.name, resource.uri);
            let is_last = text.len() + line.len() > MAX_FOLDER_TEXT;
            if is_last {
                line = "\nThe list is incomplete: list this folder with `resources/directory/read`.\n"
                    .to_owned();
            }
            while reserved < text.len() + line.len() {
                context.reserve(TEXT_PIECE as u64)?;
                reserved += TEXT_PIECE;
            }
            text.push_str(&line);
            if is_last {
                break;
            }
        }
        Ok(text)
    }

    fn resources_after(&self, after: Option<&Uri>) -> impl Iterator<Item = Resource> {
        let mut members = below(&self.members, &self.path);
        if let Some(after) = after.and_then(|after| after.as_str().strip_prefix(self.uri.as_str())) {
            let start = members.partition_point(|member| {
                let name = member.path.get(self.path.len()..).unwrap_or_default();
                encoded_path(name).cmp(after.bytes()).is_le()
            });
            members = &members[start..];
        }
        // A name for which the URI would be too long is skipped. The first entry may be the folder at `after`.
        let resources =
            ArchiveEntries { members, folder: &self.path }.filter_map(move |entry| entry.resource(&self.uri));
        resources.filter(move |resource| after.is_none_or(|after| resource.uri > *after))
    }
}

/// The members below a folder. Its path is empty, or ends with a slash.
pub(super) fn below<'a>(members: &'a [Member], folder: &str) -> &'a [Member] {
    let start = members.partition_point(|member| uri_order(&member.path, folder).is_lt());
    let rest = &members[start..];
    &rest[..rest.partition_point(|member| member.path.starts_with(folder))]
}

/// What is directly in a folder, in URI order.
pub(super) struct ArchiveEntries<'a> {
    /// The members below the folder that are not visited yet.
    pub(super) members: &'a [Member],
    /// The path of the folder.
    pub(super) folder: &'a str,
}

/// A file or folder directly in a folder of an archive.
pub(super) struct ArchiveEntry<'a> {
    /// The name, without a slash.
    pub(super) name: &'a str,
    /// The size of a file; `None` for a folder.
    size: Option<u64>,
}

impl<'a> Iterator for ArchiveEntries<'a> {
    type Item = ArchiveEntry<'a>;

    fn next(&mut self) -> Option<ArchiveEntry<'a>> {
        let members = self.members;
        let first = members.first()?;
        let rest = first.path.strip_prefix(self.folder)?;
        let Some((name, _)) = rest.split_once('/') else {
            self.members = &members[1..];
            return Some(ArchiveEntry { name: rest, size: Some(first.size) });
        };
        let subfolder = &first.path[..self.folder.len() + name.len() + 1];
        let count = members.partition_point(|member| member.path.starts_with(subfolder));
        self.members = &members[count.max(1)..];
        Some(ArchiveEntry { name, size: None })
    }
}

impl ArchiveEntry<'_> {
    fn resource(&self, folder: &Uri) -> Option<Resource> {
        let segment = Uri::encode_segment(self.name.as_bytes());
        let slash = if self.size.is_none() { "/" } else { "" };
        let mut resource = Resource::new(Uri::parse(&format!("{folder}{segment}{slash}")).ok()?, self.name);
        resource.mime = match self.size {
            None => Some(DIRECTORY.to_owned()),
            Some(_) => mime_guess::from_path(self.name).first_raw().map(str::to_owned),
        };
        resource.size = self.size;
        Some(resource)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use libris_core::{Context, Uri};

    use super::{ArchiveFolder, MAX_FOLDER_TEXT};
    use crate::archive::{Member, uri_order};

    fn folder(paths: &[String], path: &str) -> ArchiveFolder {
        let mut members: Vec<_> = paths.iter().map(|path| Member { path: path.clone(), size: 1 }).collect();
        members.sort_by(|one, other| uri_order(&one.path, &other.path));
        let uri = Uri::parse(&format!("file:///a.zip/{path}")).unwrap();
        ArchiveFolder { members: Arc::new(members), uri, path: path.to_owned() }
    }

    #[test]
    fn pages_of_any_size_give_each_entry_once_in_uri_order() {
        let names =
            ["a", "a b", "a-b", "a.txt", "a/x", "a/y/z", "B", "a%41", "~", "ä/1", "ä", "[", "a&b", "z/x"];
        let root: Vec<_> = names.map(str::to_owned).to_vec();
        let nested: Vec<_> = root.iter().map(|name| format!("sub/{name}")).collect();
        for (paths, path) in [(root, ""), (nested, "sub/")] {
            let folder = folder(&paths, path);
            let (all, more) = folder.page(None, usize::MAX);
            let expected: BTreeSet<_> = all.iter().map(|resource| resource.uri.clone()).collect();
            assert!(!more && expected.iter().eq(all.iter().map(|resource| &resource.uri)), "{all:?}");
            assert_eq!(all.len(), 13, "`a/x` and `a/y/z` are in one folder");
            for limit in 1..all.len() {
                let mut found = Vec::new();
                loop {
                    let (page, more) = folder.page(found.last(), limit);
                    found.extend(page.into_iter().map(|resource| resource.uri));
                    if !more {
                        break;
                    }
                }
                assert!(expected.iter().eq(&found), "{limit}: {found:?}");
            }
        }
    }

    #[test]
    fn the_text_of_a_very_large_folder_ends_and_says_so() {
        let paths: Vec<_> = (0..50_000).map(|number| format!("{number:05}.txt")).collect();
        let text = folder(&paths, "").text(&Context::default()).unwrap();
        assert!(text.starts_with("- [00000.txt](file:///a.zip/00000.txt) (1 bytes)\n"));
        assert!(text.len() < MAX_FOLDER_TEXT + 100, "{}", text.len());
        assert!(text.ends_with("with `resources/directory/read`.\n"), "{}", &text[text.len() - 200..]);
        let text = folder(&paths[..3], "").text(&Context::default()).unwrap();
        assert_eq!(text.lines().count(), 3);
    }
}
