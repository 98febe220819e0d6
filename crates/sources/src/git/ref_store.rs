//! Reads the refs of a repository: loose refs and `packed-refs`.
//!
//! The git library is not used for this, because it opens any type of file at these paths and reads it without a size
//! limit.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use gix::ObjectId;
use libris_core::{Error, Result};

use super::limits::HeldMemory;
use super::regular::{self, GitFileStamp, UnreadableFile, is_absent};
use super::repo::Deadline;

/// The largest file of a loose ref, in bytes; git writes one line.
pub(super) const MAX_LOOSE_REF_BYTES: u64 = 4 * 1024;

/// The largest `packed-refs` file, in bytes: some 220,000 refs.
pub(super) const MAX_PACKED_REFS_BYTES: u64 = 16 * 1024 * 1024;

/// The maximum number of refs in a list; with more, listing them is an error.
const MAX_REFS: usize = 100_000;

/// The memory of a listed ref in addition to its name, in bytes.
const REF_OVERHEAD: usize = 80;

/// The deepest nesting of directories of loose refs.
const MAX_DEPTH: usize = 64;

/// The maximum number of symbolic refs in a chain, as in git.
pub(super) const MAX_SYMBOLIC_REFS: usize = 5;

/// The namespaces of refs that are private to a working tree.
const PER_WORKTREE: [&str; 3] = ["refs/bisect/", "refs/rewritten/", "refs/worktree/"];

/// The refs of one repository.
pub(super) struct RefStore {
    /// The git directory, with `HEAD`.
    git_dir: PathBuf,
    /// The common directory, with branches and tags; differs from `git_dir` for a linked working tree.
    common_dir: PathBuf,
    hash: gix::hash::Kind,
    /// The cached `packed-refs`, with the stamp of the file.
    packed: Mutex<Option<(GitFileStamp, Arc<PackedRefs>)>>,
}

/// The target of a ref.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RefTarget {
    /// A direct ref.
    Object(ObjectId),
    /// A symbolic ref, with the full name of its target.
    Symbolic(String),
}

/// All refs of some namespaces.
#[derive(Debug, Default)]
pub(super) struct AllRefs {
    /// Full names with the ids of their objects, sorted.
    pub(super) refs: Vec<(String, ObjectId)>,
    /// The number of unreadable refs.
    pub(super) unreadable: usize,
}

impl RefStore {
    pub(super) fn new(git_dir: &Path, common_dir: &Path, hash: gix::hash::Kind) -> Self {
        Self {
            git_dir: git_dir.to_owned(),
            common_dir: common_dir.to_owned(),
            hash,
            packed: Mutex::default(),
        }
    }

    /// The target of `HEAD`.
    pub(super) fn head(&self) -> Result<RefTarget> {
        let head = self.loose("HEAD").map_err(|cause| cause.into_error("HEAD"))?;
        head.ok_or_else(|| {
            Error::Unavailable(
                "the repository does not exist now; hint: restore it, or remove it from the configuration"
                    .into(),
            )
        })
    }

    /// The object that a ref, given by its full name, points to. `None` if the ref does not exist, or is a
    /// symbolic ref to a missing one, as `HEAD` is before the first commit.
    pub(super) fn resolve(&self, name: &str) -> Result<Option<ObjectId>> {
        self.find_object(name).map_err(|cause| cause.into_error(name))
    }

    fn find_object(&self, name: &str) -> Result<Option<ObjectId>, UnreadableFile> {
        let mut name = name.to_owned();
        for _ in 0..=MAX_SYMBOLIC_REFS {
            match self.find(&name)? {
                None => return Ok(None),
                Some(RefTarget::Object(id)) => return Ok(Some(id)),
                Some(RefTarget::Symbolic(next)) => name = next,
            }
        }
        Err(UnreadableFile::Broken("it leads through too many other refs"))
    }

    /// Looks a ref up by its full name. A loose ref takes precedence over a packed one.
    fn find(&self, name: &str) -> Result<Option<RefTarget>, UnreadableFile> {
        match self.loose(name)? {
            None => Ok(self.packed()?.find(name).map(RefTarget::Object)),
            found => Ok(found),
        }
    }

    fn loose(&self, name: &str) -> Result<Option<RefTarget>, UnreadableFile> {
        match regular::read(&self.loose_path(name), MAX_LOOSE_REF_BYTES)? {
            None => Ok(None),
            Some(file) => self.parse_loose(&file.data).map(Some),
        }
    }

    /// The path of the file that a ref has if it is loose.
    pub(super) fn loose_path(&self, name: &str) -> PathBuf {
        let is_per_worktree =
            !name.starts_with("refs/") || PER_WORKTREE.iter().any(|kind| name.starts_with(kind));
        let folder = if is_per_worktree { &self.git_dir } else { &self.common_dir };
        folder.join(name)
    }

    /// Parses the contents of the file of a loose ref.
    pub(super) fn parse_loose(&self, data: &[u8]) -> Result<RefTarget, UnreadableFile> {
        RefTarget::parse(data, self.hash)
    }

    fn packed(&self) -> Result<Arc<PackedRefs>, UnreadableFile> {
        let path = self.common_dir.join("packed-refs");
        let Some(stamp) = GitFileStamp::of(&path).map_err(UnreadableFile::System)? else {
            return Ok(Arc::default());
        };
        let mut cached = self.packed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, packed)) = &*cached
            && *of == stamp
        {
            return Ok(packed.clone());
        }
        // Free the old version first, so that the cache never holds two versions in memory.
        *cached = None;
        let Some(file) = regular::read(&path, MAX_PACKED_REFS_BYTES)? else { return Ok(Arc::default()) };
        let packed = Arc::new(PackedRefs::parse(file.data, self.hash)?);
        *cached = Some((file.stamp, packed.clone()));
        Ok(packed)
    }

    /// All refs in the namespaces `kinds`. Grows the memory reservation `held` before it copies their names. Loose
    /// refs that are [`Broken`](UnreadableFile::Broken) are only counted, so that they do not make the other refs
    /// unavailable.
    pub(super) fn all(
        &self,
        kinds: &[&str],
        deadline: &Deadline,
        held: &mut HeldMemory<'_>,
    ) -> Result<AllRefs> {
        let packed = self.packed().map_err(|cause| cause.into_error("packed-refs"))?;
        let mut names = BTreeSet::new();
        for kind in kinds {
            let kind = kind.trim_end_matches('/');
            self.loose_names(kind, MAX_DEPTH, &mut names, deadline)?;
        }
        held.grow(names.iter().map(|name| size(name)).sum())?;
        let mut all = AllRefs::default();
        for name in &names {
            deadline.check()?;
            match self.find_object(name) {
                Ok(Some(id)) => all.refs.push((name.clone(), id)),
                Ok(None) => {}
                Err(UnreadableFile::Broken(why)) => {
                    tracing::debug!(name, why, "a ref cannot be read");
                    all.unreadable += 1;
                }
                Err(cause) => return Err(cause.into_error(name)),
            }
        }
        for kind in kinds {
            let left = MAX_REFS + 1 - all.refs.len().min(MAX_REFS + 1);
            let packed = || packed.beginning(kind).filter(|(name, _)| !names.contains(*name)).take(left);
            held.grow(packed().map(|(name, _)| size(name)).sum())?;
            all.refs.extend(packed().map(|(name, id)| (name.to_owned(), id)));
        }
        if all.refs.len() > MAX_REFS {
            return Err(too_many());
        }
        all.refs.sort();
        Ok(all)
    }

    /// Collects the names of the loose refs below a directory.
    fn loose_names(
        &self,
        folder: &str,
        depth: usize,
        names: &mut BTreeSet<String>,
        deadline: &Deadline,
    ) -> Result<()> {
        deadline.check()?;
        let failed = |cause: io::Error| Error::failed("read the repository", cause);
        let entries = match std::fs::read_dir(self.common_dir.join(folder)) {
            Err(cause) if is_absent(&cause) => return Ok(()),
            entries => entries.map_err(failed)?,
        };
        for entry in entries {
            let entry = entry.map_err(failed)?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let name = format!("{folder}/{name}");
            // Symbolic links to directories are not followed: they may form a cycle.
            if entry.file_type().map_err(failed)?.is_dir() {
                if depth > 0 {
                    self.loose_names(&name, depth - 1, names, deadline)?;
                }
            } else if is_full_name(name.as_bytes()) {
                names.insert(name);
            }
            if names.len() > MAX_REFS {
                return Err(too_many());
            }
        }
        Ok(())
    }
}

/// The memory of a listed ref, in bytes.
fn size(name: &str) -> u64 {
    (name.len() + REF_OVERHEAD) as u64
}

fn too_many() -> Error {
    Error::Unavailable(format!(
        "the repository has more than {MAX_REFS} branches and tags, so they are not listed; hint: serve a clone with fewer \
         of them"
    ))
}

/// Whether this is a valid full name of a ref.
fn is_full_name(name: &[u8]) -> bool {
    name.starts_with(b"refs/") && gix::validate::reference::name(name.into()).is_ok()
}

impl RefTarget {
    /// Parses the contents of a loose ref.
    fn parse(data: &[u8], hash: gix::hash::Kind) -> Result<Self, UnreadableFile> {
        let broken = UnreadableFile::Broken("it is not a ref");
        if let Some(name) = data.strip_prefix(b"ref:") {
            let name = name.trim_ascii();
            return match std::str::from_utf8(name) {
                Ok(text) if is_full_name(name) => Ok(Self::Symbolic(text.to_owned())),
                _ => Err(broken),
            };
        }
        let (id, rest) = data.split_at_checked(hash.len_in_hex()).unwrap_or((&[], data));
        match ObjectId::from_hex(id) {
            Ok(id) if rest.first().is_none_or(u8::is_ascii_whitespace) => Ok(Self::Object(id)),
            _ => Err(broken),
        }
    }
}

/// A parsed `packed-refs` file: one line per ref, with its object id and its full name.
#[derive(Debug, Default)]
struct PackedRefs {
    data: Vec<u8>,
    /// The offsets of the lines of refs, sorted by name.
    lines: Vec<u32>,
    /// The length of an object id in hexadecimal.
    digits: usize,
}

impl PackedRefs {
    /// Parses the file. One damaged line invalidates the whole file, as in git, because a skipped ref would look
    /// deleted.
    fn parse(data: Vec<u8>, hash: gix::hash::Kind) -> Result<Self, UnreadableFile> {
        let digits = hash.len_in_hex();
        let mut lines = Vec::new();
        let mut start = 0;
        for line in data.split_inclusive(|byte| *byte == b'\n') {
            let at = start;
            start += line.len();
            // `^` lines are the peeled targets of tags. They are redundant.
            if line.trim_ascii().is_empty() || line.starts_with(b"#") || line.starts_with(b"^") {
                continue;
            }
            let is_ref = line.get(digits) == Some(&b' ')
                && line[..digits].iter().all(u8::is_ascii_hexdigit)
                && std::str::from_utf8(&line[digits..]).is_ok_and(|name| name.trim_end().len() > 1);
            match u32::try_from(at) {
                Ok(at) if is_ref => lines.push(at),
                _ => return Err(UnreadableFile::Broken("`packed-refs` is damaged")),
            }
        }
        let mut packed = Self { data, lines: Vec::new(), digits };
        if !lines.is_sorted_by_key(|line| packed.name(*line)) {
            lines.sort_by_key(|line| packed.name(*line));
        }
        packed.lines = lines;
        Ok(packed)
    }

    fn name(&self, line: u32) -> &str {
        let rest = &self.data[line as usize + self.digits + 1..];
        let end = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
        std::str::from_utf8(&rest[..end]).unwrap_or_default().trim_end()
    }

    fn id(&self, line: u32) -> Option<ObjectId> {
        ObjectId::from_hex(&self.data[line as usize..][..self.digits]).ok()
    }

    fn find(&self, name: &str) -> Option<ObjectId> {
        let at = self.lines.binary_search_by(|line| self.name(*line).cmp(name)).ok()?;
        self.id(self.lines[at])
    }

    /// The refs whose full names have this prefix.
    fn beginning<'p>(&'p self, prefix: &'p str) -> impl Iterator<Item = (&'p str, ObjectId)> {
        let from = self.lines.partition_point(|line| self.name(*line) < prefix);
        let lines = self.lines[from..].iter().map(|line| (self.name(*line), *line));
        lines
            .take_while(move |(name, _)| name.starts_with(prefix))
            .filter_map(|(name, line)| Some((name, self.id(line)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::{PackedRefs, RefTarget, UnreadableFile};
    use gix::hash::Kind;

    #[test]
    fn loose_refs_are_read() {
        let id = "a".repeat(40);
        let parse = |text: &str| RefTarget::parse(text.as_bytes(), Kind::Sha1);
        let object = RefTarget::Object(gix::ObjectId::from_hex(id.as_bytes()).unwrap());
        for text in [id.clone(), format!("{id}\n"), format!("{id} more")] {
            assert_eq!(parse(&text).unwrap(), object, "{text:?}");
        }
        assert_eq!(parse("ref: refs/heads/a/b\n").unwrap(), RefTarget::Symbolic("refs/heads/a/b".into()));
        for text in ["", "\n", "a", &id[1..], &format!("{id}a"), "ref: ", "ref: HEAD", "ref: refs/../../x"] {
            assert!(matches!(parse(text), Err(UnreadableFile::Broken(_))), "{text:?}");
        }
    }

    #[test]
    fn packed_refs_are_found_in_any_order() {
        let id = |digit: char| digit.to_string().repeat(40);
        let text = format!(
            "# pack-refs with: peeled fully-peeled\n{} refs/tags/v1\n^{}\n{} refs/heads/a\n{} refs/heads/b",
            id('1'),
            id('2'),
            id('3'),
            id('4')
        );
        let packed = PackedRefs::parse(text.into_bytes(), Kind::Sha1).unwrap();
        for (name, digit) in [("refs/tags/v1", '1'), ("refs/heads/a", '3'), ("refs/heads/b", '4')] {
            assert_eq!(packed.find(name).unwrap().to_string(), id(digit));
        }
        assert_eq!(packed.find("refs/heads/"), None);
        let names: Vec<_> = packed.beginning("refs/heads/").map(|(name, _)| name).collect();
        assert_eq!(names, ["refs/heads/a", "refs/heads/b"]);
        for damaged in ["x", "\0\0\0\0", &format!("{} ", id('1')), &format!("{}refs/heads/a", id('1'))] {
            assert!(PackedRefs::parse(damaged.into(), Kind::Sha1).is_err(), "{damaged:?}");
        }
    }
}
