//! Parses the index of a repository: the staged files, with the `stat` data of their files in the working tree.

use std::time::SystemTime;

use gix::ObjectId;
use gix::objs::tree::EntryKind;
use libris_core::{Error, Result};

use super::limits::HeldMemory;
use super::regular;
use super::repo::{TaskRepository, TreeEntry, is_name};
use super::walk::MAX_DEPTH;

/// The largest index, in bytes: more than 500,000 files.
const MAX_INDEX_BYTES: u64 = 64 * 1024 * 1024;

/// The maximum memory of a parsed index, as a multiple of its size. In version 4, an entry stores only the part of its
/// path that differs from the previous one. So a crafted entry of 70 bytes may have a path of 4 KiB.
const PARSED_FACTOR: u64 = 4;
const PARSED_FACTOR_V4: u64 = 8;

/// The longest path, in bytes: `PATH_MAX` of Linux.
const MAX_PATH_BYTES: usize = 4096;

/// The bits of an entry's flags, and of its extended flags (`SKIP_WORKTREE` and `INTENT_TO_ADD`).
const ASSUME_VALID: u16 = 0x8000;
const EXTENDED: u16 = 0x4000;
const SKIP_WORKTREE: u16 = 0x4000;
const INTENT_TO_ADD: u16 = 0x2000;
const NAME_LENGTH: u16 = 0x0fff;

/// A parsed index.
#[derive(Default)]
pub(super) struct GitIndex {
    /// Sorted by path and stage.
    pub(super) entries: Vec<IndexEntry>,
    /// The modification time of the index file. If a file was modified at or after this time, its recorded `stat`
    /// data does not prove that it is unchanged ("racy git").
    pub(super) modified: Option<SystemTime>,
}

/// A staged file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct IndexEntry {
    pub(super) path: Vec<u8>,
    pub(super) entry: TreeEntry,
    pub(super) stat: IndexStat,
    /// 0, or 1 to 3 for the versions of a file with a conflict.
    pub(super) stage: u8,
    /// Whether git never examines the file in the working tree (`--assume-unchanged` or `--skip-worktree`).
    pub(super) assume_unchanged: bool,
    /// Whether the file is only intended to be added (`git add --intent-to-add`).
    pub(super) intent_to_add: bool,
}

/// The `stat` data of a file when it was staged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct IndexStat {
    /// Seconds and nanoseconds, as 32 bits each.
    pub(super) changed: (u32, u32),
    pub(super) modified: (u32, u32),
    pub(super) inode: u32,
    /// Git writes 0 if the other data does not prove that the file is unchanged.
    pub(super) size: u32,
}

impl GitIndex {
    /// The index of the working tree, with its memory reservation; empty if there is none yet.
    pub(super) fn read<'o>(repository: &'o TaskRepository<'_>) -> Result<(Self, HeldMemory<'o>)> {
        const NAME: &str = "index";
        let path = repository.git_dir().join(NAME);
        let mut held = repository.hold(0)?;
        let Some(file) = regular::open(&path, MAX_INDEX_BYTES).map_err(|cause| cause.into_error(NAME))?
        else {
            return Ok((Self::default(), held));
        };
        held.grow(file.size() * PARSED_FACTOR)?;
        let file = file.read().map_err(|cause| cause.into_error(NAME))?;
        if file.data.get(..8) == Some(b"DIRC\0\0\0\x04") {
            held.grow(file.data.len() as u64 * (PARSED_FACTOR_V4 - PARSED_FACTOR))?;
        }
        let entries = parse(&file.data, repository.object_hash()).map_err(|why| {
            Error::Unavailable(format!("the index of the repository cannot be read: {why}"))
        })?;
        Ok((Self { entries, modified: file.stamp.modified }, held))
    }

    /// The entries at a path.
    pub(super) fn entries_at(&self, path: &[u8]) -> &[IndexEntry] {
        let start = self.entries.partition_point(|entry| *entry.path < *path);
        let count = self.entries[start..].iter().take_while(|entry| *entry.path == *path).count();
        &self.entries[start..start + count]
    }

    /// Whether an entry is below a directory.
    pub(super) fn has_below(&self, directory: &[u8]) -> bool {
        let prefix = [directory, b"/"].concat();
        let start = self.entries.partition_point(|entry| *entry.path < *prefix);
        self.entries.get(start).is_some_and(|entry| entry.path.starts_with(&prefix))
    }
}

const DAMAGED: &str = "it is damaged; hint: delete the file `index` in the git directory and run `git reset`";

/// A split index contains only the differences from a shared index. Entries that replace a shared one have no path.
const SPLIT: &str = "it is a split index; hint: run `git update-index --no-split-index`";

/// Reads the fields of an index in order.
struct IndexReader<'d> {
    rest: &'d [u8],
}

impl<'d> IndexReader<'d> {
    fn take(&mut self, count: usize) -> Result<&'d [u8], &'static str> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(DAMAGED)?;
        self.rest = rest;
        Ok(taken)
    }

    fn u32(&mut self) -> Result<u32, &'static str> {
        self.take(4).map(|bytes| u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn u16(&mut self) -> Result<u16, &'static str> {
        self.take(2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    /// The bytes before the next NUL, which is skipped.
    fn until_nul(&mut self) -> Result<&'d [u8], &'static str> {
        let end = self.rest.iter().position(|byte| *byte == 0).ok_or(DAMAGED)?;
        let text = self.take(end)?;
        self.take(1)?;
        Ok(text)
    }

    /// A number in git's variable-length encoding, with 7 bits per byte and the most significant ones first.
    fn varint(&mut self) -> Result<usize, &'static str> {
        let mut byte = self.take(1)?[0];
        let mut value = usize::from(byte & 0x7f);
        while byte & 0x80 != 0 {
            byte = self.take(1)?[0];
            value = value.checked_add(1).filter(|value| *value < 1 << 24).ok_or(DAMAGED)?;
            value = (value << 7) + usize::from(byte & 0x7f);
        }
        Ok(value)
    }
}

fn parse(data: &[u8], hash: gix::hash::Kind) -> Result<Vec<IndexEntry>, &'static str> {
    let hash_bytes = hash.len_in_bytes();
    let (body, checksum) = data.split_at_checked(data.len().saturating_sub(hash_bytes)).ok_or(DAMAGED)?;
    // Git writes zeros if `index.skipHash` is set.
    if checksum.iter().any(|byte| *byte != 0) {
        let mut hasher = gix::hash::hasher(hash);
        hasher.update(body);
        let found = hasher.try_finalize().map_err(|_| DAMAGED)?;
        if found.as_slice() != checksum {
            return Err(DAMAGED);
        }
    }
    let mut reader = IndexReader { rest: body };
    if reader.take(4)? != b"DIRC" {
        return Err(DAMAGED);
    }
    let version = reader.u32()?;
    if !(2..=4).contains(&version) {
        return Err("its version is not supported; hint: run `git update-index --index-version 4`");
    }
    let count = reader.u32()? as usize;
    let factor = if version == 4 { PARSED_FACTOR_V4 } else { PARSED_FACTOR };
    let (most, mut parsed) = (data.len() * factor as usize, 0);
    // Each entry has more than 40 bytes.
    let mut entries: Vec<IndexEntry> = Vec::with_capacity(count.min(body.len() / 40));
    for _ in 0..count {
        let last = entries.last().map(|entry| &*entry.path).unwrap_or_default();
        let entry = entry(&mut reader, version, hash_bytes, last)?;
        let is_sorted =
            entries.last().is_none_or(|last| (&last.path, last.stage) < (&entry.path, entry.stage));
        if !is_sorted {
            return Err(DAMAGED);
        }
        parsed += size_of::<IndexEntry>() + entry.path.len();
        if parsed > most {
            return Err("its paths are too long");
        }
        entries.push(entry);
    }
    while !reader.rest.is_empty() {
        let name = reader.take(4)?;
        let size = reader.u32()? as usize;
        reader.take(size)?;
        match name {
            b"link" => return Err(SPLIT),
            // Marks a sparse index. Entries of directories were refused above, and without them it is like any other
            // index.
            b"sdir" => {}
            // A reader that does not understand an extension with a lower-case name must refuse the index.
            name if !name[0].is_ascii_uppercase() => {
                return Err("it has an unknown extension; hint: turn off the feature of git that wrote it");
            }
            _ => {}
        }
    }
    Ok(entries)
}

/// Parses an entry; `last` is the path of the previous one.
fn entry(
    reader: &mut IndexReader<'_>,
    version: u32,
    hash_bytes: usize,
    last: &[u8],
) -> Result<IndexEntry, &'static str> {
    let before = reader.rest.len();
    let changed = (reader.u32()?, reader.u32()?);
    let modified = (reader.u32()?, reader.u32()?);
    let _device = reader.u32()?;
    let inode = reader.u32()?;
    let mode = reader.u32()?;
    let _owner = (reader.u32()?, reader.u32()?);
    let size = reader.u32()?;
    let id = ObjectId::try_from(reader.take(hash_bytes)?).map_err(|_| DAMAGED)?;
    let flags = reader.u16()?;
    let extended = match version >= 3 && flags & EXTENDED != 0 {
        true => reader.u16()?,
        false => 0,
    };
    let path = match version {
        4 => {
            let kept = last.len().checked_sub(reader.varint()?).ok_or(DAMAGED)?;
            [&last[..kept], reader.until_nul()?].concat()
        }
        _ => {
            let path = match flags & NAME_LENGTH {
                NAME_LENGTH => reader.until_nul()?.to_vec(),
                length => {
                    let path = reader.take(usize::from(length))?.to_vec();
                    reader.take(1)?;
                    path
                }
            };
            // Entries are padded to a multiple of eight bytes.
            let length = before - reader.rest.len();
            reader.take(length.next_multiple_of(8) - length)?;
            path
        }
    };
    let kind = match mode {
        0o100_644 | 0o100_664 => EntryKind::Blob,
        0o100_755 => EntryKind::BlobExecutable,
        0o120_000 => EntryKind::Link,
        0o160_000 => EntryKind::Commit,
        0o040_000 => {
            return Err("it is a sparse index; hint: run `git sparse-checkout reapply --no-sparse-index`");
        }
        _ => return Err(DAMAGED),
    };
    if path.is_empty() {
        return Err(SPLIT);
    }
    let names = path.split(|byte| *byte == b'/');
    if path.len() > MAX_PATH_BYTES || names.clone().count() > MAX_DEPTH || !names.clone().all(is_name) {
        return Err("it has a path that git does not allow");
    }
    Ok(IndexEntry {
        path,
        entry: TreeEntry { kind, id },
        stat: IndexStat { changed, modified, inode, size },
        stage: (flags >> 12 & 3) as u8,
        assume_unchanged: flags & ASSUME_VALID != 0 || extended & SKIP_WORKTREE != 0,
        intent_to_add: extended & INTENT_TO_ADD != 0,
    })
}

#[cfg(test)]
mod tests {
    use super::parse;
    use gix::hash::Kind;

    fn index(version: u8, entries: &[u8]) -> Vec<u8> {
        let count = u8::from(!entries.is_empty());
        [&b"DIRC\0\0\0"[..], &[version, 0, 0, 0, count], entries, &[0; 20]].concat()
    }

    fn entry(path: &[u8], mode: u32) -> Vec<u8> {
        let mut entry = vec![0; 24];
        entry.extend(mode.to_be_bytes());
        entry.extend([0; 12]);
        entry.extend([1; 20]);
        entry.extend((path.len() as u16).to_be_bytes());
        entry.extend(path);
        entry.resize((entry.len() + 1).next_multiple_of(8), 0);
        entry
    }

    /// An index of version 4 with a thousand paths of this length, of which all but the first store only five bytes.
    fn with_long_paths(length: usize) -> Vec<u8> {
        let mut data = [&b"DIRC\0\0\0\x04"[..], &1_000_u32.to_be_bytes()].concat();
        let start = "a".repeat(length - 5);
        for number in 0..1_000 {
            data.extend(&entry(b"", 0o100_644)[..62]);
            let (removed, added) = if number == 0 { (0, start.as_str()) } else { (5, "") };
            data.push(removed);
            data.extend(format!("{added}{number:05}\0").bytes());
        }
        data.extend([0; 20]);
        data
    }

    #[test]
    fn the_paths_of_a_small_index_are_bounded() {
        let parsed = parse(&with_long_paths(200), Kind::Sha1).unwrap();
        assert_eq!((parsed.len(), parsed[999].path.len()), (1_000, 200));
        let crafted = with_long_paths(4_000);
        assert!(crafted.len() < 80_000, "it looks harmless");
        assert_eq!(parse(&crafted, Kind::Sha1), Err("its paths are too long"));
    }

    #[test]
    fn crafted_indexes_are_refused() {
        let parsed = |data: &[u8]| parse(data, Kind::Sha1);
        assert_eq!(parsed(&index(2, &[])).unwrap(), []);
        assert_eq!(parsed(&index(2, &entry(b"a/b", 0o100_644))).unwrap()[0].path, b"a/b");
        for path in ["../a", "/etc/passwd", "a//b", "a/../b", ".git/config", "a/.GIT/b", "", "a/"] {
            assert!(parsed(&index(2, &entry(path.as_bytes(), 0o100_644))).is_err(), "{path}");
        }
        assert!(parsed(&index(2, &entry(b"a", 0o040_000))).unwrap_err().contains("sparse"));
        assert!(parsed(&index(2, &entry(b"a", 0o777))).is_err());
        assert!(parsed(&index(5, &[])).is_err());
        assert!(
            parsed(&[&index(2, &[])[..12], b"link\0\0\0\0", &[0; 20]].concat())
                .unwrap_err()
                .contains("split")
        );
        let whole = index(2, &entry(b"a/b", 0o100_644));
        for length in 0..whole.len() {
            assert!(parsed(&whole[..length]).is_err(), "{length}");
        }
        assert!(parsed(&[&whole[..whole.len() - 20], &[7; 20]].concat()).is_err());
    }
}
