//! Searches for a visible file below a directory: with `include`, directories without one are neither listed nor
//! offered as completions.

use std::io;
use std::sync::Arc;

use super::proof::ProofBuilder;
use super::{OpenFolder, Tree, walk};

/// The maximum number of directories that one search opens. Directories beyond that count as having a file.
const MAX_SEARCHED: usize = 10_000;

/// The weight limit of the cache: the total number of directories on which the cached results depend.
pub(super) const MAX_CACHED_DIRECTORIES: usize = 100_000;

/// The result of a search below one directory, valid while its evidence holds.
pub(super) struct SubtreeResult {
    has_files: bool,
    evidence: ProofBuilder,
}

/// A search below several directories for one response, with a common limit.
pub(crate) struct SubtreeSearch<'a> {
    tree: &'a Tree,
    /// How many directories may still be opened.
    left: usize,
}

impl<'a> SubtreeSearch<'a> {
    pub(crate) fn new(tree: &'a Tree) -> Self {
        Self { tree, left: MAX_SEARCHED }
    }

    /// Whether a directory is listed. Without `include` every directory is. Adds the dependencies of the result to
    /// `proof`.
    pub(crate) fn lists(&mut self, folder: &Arc<OpenFolder>, proof: &mut ProofBuilder) -> io::Result<bool> {
        if !self.tree.filter.has_include() {
            return Ok(true);
        }
        let key = &folder.logical.key;
        if let Some(cached) = self.tree.subtrees.get(key).filter(|cached| cached.evidence.holds()) {
            proof.include(&cached.evidence);
            return Ok(cached.has_files);
        }
        let mut evidence = ProofBuilder::new(&self.tree.prover);
        let has_files = self.has_files(folder, &mut evidence)?;
        proof.include(&evidence);
        if self.left > 0 && evidence.is_provable() {
            let weight = evidence.directories() + 1;
            self.tree.subtrees.insert(key, weight, Arc::new(SubtreeResult { has_files, evidence }));
        }
        Ok(has_files)
    }

    /// Opens a directory; `None` if it is gone, cannot be read or is not listed. Adds the dependencies of the result to
    /// `proof`.
    pub(crate) fn open(
        &mut self,
        parent: &OpenFolder,
        key: &str,
        proof: &mut ProofBuilder,
    ) -> io::Result<Option<Arc<OpenFolder>>> {
        let folder = walk::open_listed_folder(self.tree, parent, key, Some(proof))?;
        let Some(folder) = folder else { return Ok(None) };
        Ok(self.lists(&folder, proof)?.then_some(folder))
    }

    /// Searches for a visible file, first in the directory itself and then below it.
    fn has_files(&mut self, folder: &Arc<OpenFolder>, evidence: &mut ProofBuilder) -> io::Result<bool> {
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            // The assumption must not be cached: no later event would correct it.
            evidence.invalidate();
            return Ok(true);
        }
        evidence.add_directory(folder);
        let names = match self.tree.names(folder) {
            Ok(names) => names,
            Err(cause) => {
                return walk::skip_unreadable(self.tree, &folder.logical.key, cause).map(|()| false);
            }
        };
        for key in names.iter().filter(|key| !key.ends_with('/')) {
            if walk::file_entry(self.tree, folder, key)?.is_some() {
                return Ok(true);
            }
        }
        for key in names.iter().filter(|key| key.ends_with('/')) {
            let child = walk::open_listed_folder(self.tree, folder, key, Some(evidence))?;
            if let Some(child) = child
                && self.has_files(&child, evidence)?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::super::root::Root;
    use super::super::{TreeOptions, walk};
    use super::{MAX_SEARCHED, ProofBuilder, SubtreeSearch, Tree};
    use std::path::Path;

    fn tree(path: &Path) -> Tree {
        let include = vec!["*.md".to_owned()];
        let options = TreeOptions { include, ..TreeOptions::default() };
        Tree::open(&options, Root::open(&path.canonicalize().unwrap()).unwrap()).unwrap()
    }

    /// Whether `folder/` is listed, and how many directories were opened to find out.
    fn listed(tree: &Tree, left: usize) -> (bool, usize) {
        let root = tree.watched_root().unwrap();
        let mut search = SubtreeSearch { tree, left };
        let mut proof = ProofBuilder::new(&tree.prover);
        let folder = walk::open_listed_folder(tree, &root, "folder/", None).unwrap().unwrap();
        (search.lists(&folder, &mut proof).unwrap(), left - search.left)
    }

    #[test]
    fn a_result_is_cached_until_something_changes_below() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("folder/a/b");
        std::fs::create_dir_all(&deep).unwrap();
        let tree = tree(folder.path());
        assert_eq!(listed(&tree, MAX_SEARCHED), (false, 3));
        std::fs::write(deep.join("x.txt"), "").unwrap();
        assert!(!listed(&tree, MAX_SEARCHED).0);
        std::fs::write(deep.join("x.md"), "").unwrap();
        assert!(listed(&tree, MAX_SEARCHED).0);
        std::fs::remove_file(deep.join("x.md")).unwrap();
        assert!(!listed(&tree, MAX_SEARCHED).0);
    }

    #[test]
    fn beyond_the_limit_a_folder_counts_as_listed() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("folder/a/b")).unwrap();
        let tree = tree(folder.path());
        assert!(listed(&tree, 3).0);
        assert!(!listed(&tree, 4).0, "the assumption was not cached");
    }
}
