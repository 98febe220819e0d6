//! Detects renamed files among the differences of two trees, as `git diff --find-renames` does: identical files first,
//! then files that keep their name, then the most similar pairs.

use std::collections::HashMap;

use gix::ObjectId;
use gix::objs::tree::EntryKind;
use libris_core::Result;

use super::compare::TreeDifference;
use super::limits::HeldMemory;
use super::repo::{TaskRepository, TreeEntry};

/// The similarity of identical files, as in git.
const MAX_SCORE: u64 = 60_000;

/// The least similarity of a renamed file: 50%.
const MIN_SCORE: u64 = MAX_SCORE / 2;

/// The least similarity at which files with the same, unique name are matched by name alone. Less similar ones are
/// compared with all other files, and then need only [`MIN_SCORE`].
const MIN_SAME_NAME_SCORE: u64 = MAX_SCORE / 4 * 3;

/// The maximum number of pairs of files that are compared, as in git (`diff.renameLimit`). Beyond that, only identical
/// files are found.
const MAX_PAIRS: usize = 1_000_000;

/// The maximum number of bytes of files that are compared. Beyond that, only identical files are found.
const MAX_BYTES: u64 = 32 * 1024 * 1024;

/// The maximum number of candidates for one added file, as in git.
const MAX_CANDIDATES: usize = 4;

/// The maximum number of bytes in a fragment of a file. A fragment is a line, or a piece of a line that is longer than
/// this.
const MAX_FRAGMENT: u32 = 64;

/// A file that differs between two versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileDifference {
    /// The path in the new version; of a deleted file, in the old one.
    pub(super) path: Vec<u8>,
    pub(super) old: Option<TreeEntry>,
    pub(super) new: Option<TreeEntry>,
    pub(super) renamed: Option<Rename>,
}

/// The origin of a renamed file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rename {
    pub(super) from: Vec<u8>,
    /// The similarity, in percent.
    pub(super) similarity: u64,
}

impl FileDifference {
    /// The status letter of `git diff --name-status`.
    pub(super) fn letter(&self) -> &'static str {
        match (self.old, self.new) {
            _ if self.renamed.is_some() => "R",
            (None, _) => "A",
            (_, None) => "D",
            (Some(old), Some(new)) if !is_same_type(old.kind, new.kind) => "T",
            (Some(_), Some(_)) => "M",
        }
    }

    /// The path in the old version.
    pub(super) fn old_path(&self) -> &[u8] {
        self.renamed.as_ref().map_or(&self.path, |renamed| &renamed.from)
    }
}

/// Merges each deleted file with the added file that it was renamed to, into one difference. The result has no
/// directories and is sorted by path.
pub(super) fn detect(
    repository: &TaskRepository<'_>,
    differences: Vec<TreeDifference>,
) -> Result<Vec<FileDifference>> {
    let file = |entry: Option<TreeEntry>| entry.filter(|entry| entry.kind != EntryKind::Tree);
    let (mut deleted, mut added, mut found) = (Vec::new(), Vec::new(), Vec::new());
    for TreeDifference { path, old, new } in differences {
        match (file(old), file(new)) {
            (Some(old), None) => deleted.push((path, old)),
            (None, Some(new)) => added.push((path, new)),
            (None, None) => {}
            (old, new) => found.push(FileDifference { path, old, new, renamed: None }),
        }
    }
    let origins = RenameSearch::new(repository, &deleted, &added)?.origins()?;
    let mut is_origin = vec![false; deleted.len()];
    for ((path, new), origin) in added.into_iter().zip(origins) {
        let (old, renamed) = match origin {
            None => (None, None),
            Some((at, score)) => {
                is_origin[at] = true;
                let (from, old) = &deleted[at];
                (Some(*old), Some(Rename { from: from.clone(), similarity: score * 100 / MAX_SCORE }))
            }
        };
        found.push(FileDifference { path, old, new: Some(new), renamed });
    }
    for ((path, old), is_origin) in deleted.into_iter().zip(is_origin) {
        if !is_origin {
            found.push(FileDifference { path, old: Some(old), new: None, renamed: None });
        }
    }
    found.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(found)
}

type PathEntry = (Vec<u8>, TreeEntry);

/// Matches added files to the deleted files that they were renamed from.
struct RenameSearch<'a> {
    repository: &'a TaskRepository<'a>,
    deleted: &'a [PathEntry],
    added: &'a [PathEntry],
    /// For each deleted file, whether it is the origin of an added one.
    used: Vec<bool>,
    /// For each added file, the index of the deleted file that is its origin, and their similarity.
    origins: Vec<Option<(usize, u64)>>,
    /// The fragments of the files that were read.
    fragments: HashMap<ObjectId, Fragments>,
    held: HeldMemory<'a>,
}

/// The fragments of a file: their hashes, sorted, each with the total size of the fragments that have this hash.
struct Fragments {
    size: u64,
    hashes: Vec<(u32, u64)>,
}

impl<'a> RenameSearch<'a> {
    fn new(
        repository: &'a TaskRepository<'a>,
        deleted: &'a [PathEntry],
        added: &'a [PathEntry],
    ) -> Result<Self> {
        let (used, origins) = (vec![false; deleted.len()], vec![None; added.len()]);
        let held = repository.hold(0)?;
        Ok(Self { repository, deleted, added, used, origins, fragments: HashMap::new(), held })
    }

    fn origins(mut self) -> Result<Vec<Option<(usize, u64)>>> {
        if self.deleted.is_empty() || self.added.is_empty() {
            return Ok(self.origins);
        }
        self.identical();
        if self.unmatched_files_are_small()? {
            self.same_name()?;
            self.most_similar()?;
        }
        Ok(self.origins)
    }

    fn set(&mut self, added: usize, deleted: usize, score: u64) {
        self.used[deleted] = true;
        self.origins[added] = Some((deleted, score));
    }

    /// Matches identical files, preferably those of the same name.
    fn identical(&mut self) {
        let mut by_id: HashMap<ObjectId, Vec<usize>> = HashMap::new();
        for (at, (_, entry)) in self.deleted.iter().enumerate() {
            by_id.entry(entry.id).or_default().push(at);
        }
        for (at, (path, new)) in self.added.iter().enumerate() {
            let same = by_id.get(&new.id).into_iter().flatten().copied();
            let mut free = same
                .filter(|other| !self.used[*other] && is_same_type(self.deleted[*other].1.kind, new.kind));
            let first = free.next();
            let named = |other: &usize| name(&self.deleted[*other].0) == name(path);
            let origin = first.filter(named).or_else(|| free.find(named)).or(first);
            if let Some(origin) = origin {
                self.set(at, origin, MAX_SCORE);
            }
        }
    }

    /// The indexes of the deleted and of the added regular files that are not matched yet.
    fn unmatched(&self) -> (Vec<usize>, Vec<usize>) {
        let is_blob = |entry: &TreeEntry| matches!(entry.kind, EntryKind::Blob | EntryKind::BlobExecutable);
        let deleted = (0..self.deleted.len()).filter(|at| !self.used[*at] && is_blob(&self.deleted[*at].1));
        let added =
            (0..self.added.len()).filter(|at| self.origins[*at].is_none() && is_blob(&self.added[*at].1));
        (deleted.collect(), added.collect())
    }

    /// Whether the files that are not matched yet are few and small enough to compare.
    fn unmatched_files_are_small(&self) -> Result<bool> {
        let (deleted, added) = self.unmatched();
        if deleted.len().saturating_mul(added.len()) > MAX_PAIRS {
            return Ok(false);
        }
        let mut bytes = 0;
        let ids = deleted
            .iter()
            .map(|at| self.deleted[*at].1.id)
            .chain(added.iter().map(|at| self.added[*at].1.id));
        for id in ids {
            self.repository.deadline().check()?;
            bytes += self.repository.size(id)?.unwrap_or(MAX_BYTES + 1);
            if bytes > MAX_BYTES {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Matches similar files of the same name, if the name is unique among the deleted and among the added files.
    fn same_name(&mut self) -> Result<()> {
        let (deleted, added) = self.unmatched();
        let unique = |files: &[PathEntry], rest: &[usize]| {
            let mut names: HashMap<Vec<u8>, Option<usize>> = HashMap::new();
            for at in rest {
                names.entry(name(&files[*at].0).to_vec()).and_modify(|at| *at = None).or_insert(Some(*at));
            }
            names
        };
        let (old, new) = (unique(self.deleted, &deleted), unique(self.added, &added));
        for at in deleted {
            let name = name(&self.deleted[at].0);
            let (Some(Some(_)), Some(Some(target))) = (old.get(name), new.get(name)) else { continue };
            let score = self.score(at, *target, MIN_SAME_NAME_SCORE)?;
            if score >= MIN_SAME_NAME_SCORE {
                self.set(*target, at, score);
            }
        }
        Ok(())
    }

    /// Matches the other files, the most similar pairs first.
    fn most_similar(&mut self) -> Result<()> {
        let (deleted, added) = self.unmatched();
        let mut pairs = Vec::new();
        for new in added {
            let mut candidates = Vec::new();
            for old in &deleted {
                let score = self.score(*old, new, MIN_SCORE)?;
                if score >= MIN_SCORE {
                    let named = name(&self.deleted[*old].0) == name(&self.added[new].0);
                    candidates.push((score, named, *old, new));
                }
            }
            candidates.sort_by_key(|(score, named, ..)| std::cmp::Reverse((*score, *named)));
            candidates.truncate(MAX_CANDIDATES);
            pairs.extend(candidates);
        }
        pairs.sort_by_key(|(score, named, ..)| std::cmp::Reverse((*score, *named)));
        for (score, _, old, new) in pairs {
            if !self.used[old] && self.origins[new].is_none() {
                self.set(new, old, score);
            }
        }
        Ok(())
    }

    /// The similarity of a deleted and an added file; 0 if their sizes alone show that it is less than `least`.
    fn score(&mut self, deleted: usize, added: usize, least: u64) -> Result<u64> {
        self.repository.deadline().check()?;
        let (old, new) = (self.deleted[deleted].1.id, self.added[added].1.id);
        let size = |id| Ok::<_, libris_core::Error>(self.repository.size(id)?.unwrap_or_default());
        let (one, other) = (size(old)?, size(new)?);
        let (smaller, larger) = (one.min(other), one.max(other));
        if smaller == 0 || larger * (MAX_SCORE - least) < (larger - smaller) * MAX_SCORE {
            return Ok(0);
        }
        self.load(old)?;
        self.load(new)?;
        let (old, new) = (&self.fragments[&old], &self.fragments[&new]);
        Ok(old.common(new) * MAX_SCORE / old.size.max(new.size))
    }

    fn load(&mut self, id: ObjectId) -> Result<()> {
        if !self.fragments.contains_key(&id) {
            let fragments = Fragments::of(&self.repository.blob(id)?);
            self.held.grow((fragments.hashes.len() * size_of::<(u32, u64)>()) as u64)?;
            self.fragments.insert(id, fragments);
        }
        Ok(())
    }
}

impl Fragments {
    /// The hash and the fragments are those of git, so that the similarity is the same.
    fn of(data: &[u8]) -> Self {
        const HASH_BASE: u32 = 107_927;
        let is_text = !super::patch::is_binary(data);
        let mut counts: HashMap<u32, u64> = HashMap::new();
        let (mut one, mut other, mut length) = (0_u32, 0_u32, 0_u32);
        let mut bytes = data.iter().peekable();
        let mut end = |one: &mut u32, other: &mut u32, length: &mut u32| {
            let hash = one.wrapping_add(other.wrapping_mul(0x61)) % HASH_BASE;
            *counts.entry(hash).or_default() += u64::from(*length);
            (*one, *other, *length) = (0, 0, 0);
        };
        while let Some(byte) = bytes.next() {
            if is_text && *byte == b'\r' && bytes.peek() == Some(&&b'\n') {
                continue;
            }
            let before = one;
            one = ((one << 7) ^ (other >> 25)).wrapping_add(u32::from(*byte));
            other = (other << 7) ^ (before >> 25);
            length += 1;
            if length == MAX_FRAGMENT || *byte == b'\n' {
                end(&mut one, &mut other, &mut length);
            }
        }
        if length > 0 {
            end(&mut one, &mut other, &mut length);
        }
        let mut hashes: Vec<_> = counts.into_iter().collect();
        hashes.sort_unstable();
        Self { size: data.len() as u64, hashes }
    }

    /// The number of bytes in common fragments.
    fn common(&self, other: &Self) -> u64 {
        let mut others = other.hashes.iter().peekable();
        let mut common = 0;
        for (hash, count) in &self.hashes {
            while others.next_if(|(other, _)| other < hash).is_some() {}
            if let Some((_, other)) = others.next_if(|(other, _)| other == hash) {
                common += count.min(other);
            }
        }
        common
    }
}

fn name(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
}

/// Whether both are regular files, or links, or submodules.
fn is_same_type(one: EntryKind, other: EntryKind) -> bool {
    let is_file = |kind| matches!(kind, EntryKind::Blob | EntryKind::BlobExecutable);
    one == other || (is_file(one) && is_file(other))
}

#[cfg(test)]
mod tests {
    use super::Fragments;

    #[test]
    fn common_lines_count_by_their_bytes() {
        let common =
            |one: &str, other: &str| Fragments::of(one.as_bytes()).common(&Fragments::of(other.as_bytes()));
        assert_eq!(common("a\nbb\nccc\n", "ccc\na\n"), 6);
        assert_eq!(common("a\na\n", "a\n"), 2);
        assert_eq!(common("a\r\nb\n", "a\nb\n"), 4);
        assert_eq!(common("", "a\n"), 0);
        let long = "x".repeat(100);
        assert_eq!(common(&long, &format!("{long}y")), 64);
    }
}
