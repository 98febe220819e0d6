//! Following symbolic links within the tree.
//!
//! A link is first resolved to a path from the root. Then each component of that path is checked against the
//! filters and opened without following links. So a link cannot lead to a hidden file, and a component that is
//! replaced by another link meanwhile is rejected.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::root::{DirectoryHandle, NameMatching, missing};
use super::{OpenFolder, Tree};

/// Whether symbolic links to targets within the root are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Symlinks {
    Follow,
    Refuse,
}

impl Symlinks {
    pub(super) fn of(follow: bool) -> Self {
        if follow { Self::Follow } else { Self::Refuse }
    }
}

/// The target of a symbolic link, itself not a link.
pub(super) struct SymlinkTarget {
    /// The directory that contains the target.
    pub(super) parent: Rc<OpenFolder>,
    pub(super) name: OsString,
}

/// Caches the parent directory of the last target: the targets of the symbolic links in one directory are often
/// in one directory too.
#[derive(Default)]
pub(super) struct ParentMemo(Option<(PathBuf, Rc<OpenFolder>)>);

impl Tree {
    /// Calls `work` with an entry of a directory, or with its target if it is a symbolic link to follow.
    pub(crate) fn with_target<T>(
        &self,
        folder: &OpenFolder,
        name: &OsStr,
        work: impl FnOnce(&DirectoryHandle, &OsStr) -> io::Result<T>,
    ) -> io::Result<T> {
        match self.symlink_target(folder, name, &mut ParentMemo::default())? {
            Some(target) => work(&target.parent.handle, &target.name),
            None => work(&folder.handle, name),
        }
    }

    /// The target of a symbolic link, or a not-found error if the target is not visible. `None` if the name is not
    /// that of a link to follow.
    pub(super) fn symlink_target(
        &self,
        folder: &OpenFolder,
        name: &OsStr,
        memo: &mut ParentMemo,
    ) -> io::Result<Option<SymlinkTarget>> {
        if self.symlinks == Symlinks::Refuse || !folder.handle.stat(name)?.is_symlink() {
            return Ok(None);
        }
        let here = folder.physical.as_ref().unwrap_or(&folder.logical);
        let path = folder.handle.canonicalize(&here.path.join(name))?;
        // The target is the root, which is an ancestor of the link: a cycle.
        let (Some(parent_path), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(missing());
        };
        let parent = match &memo.0 {
            Some((path, parent)) if path == parent_path => Rc::clone(parent),
            _ => {
                let parent = Rc::new(self.open_nofollow(folder.handle.root(), parent_path)?);
                memo.0 = Some((parent_path.to_owned(), Rc::clone(&parent)));
                parent
            }
        };
        self.check_visible(&parent, name)?;
        Ok(Some(SymlinkTarget { parent, name: name.to_owned() }))
    }

    /// Opens the directory at a path from the root that has no symbolic links.
    fn open_nofollow(&self, root: DirectoryHandle, path: &Path) -> io::Result<OpenFolder> {
        let mut folder = self.root_folder(root, None)?;
        for name in path {
            self.check_visible(&folder, name)?;
            folder = self.open_child_nofollow(&folder, name)?;
        }
        Ok(folder)
    }

    /// Fails if an entry is not visible or is itself a symbolic link.
    fn check_visible(&self, folder: &OpenFolder, name: &OsStr) -> io::Result<()> {
        let metadata = folder.handle.stat(name)?;
        let shown = (metadata.is_dir() || metadata.is_file())
            && self.shows(folder, name, metadata.is_dir())
            && (self.name_matching == NameMatching::Exact || folder.handle.lists(name)?);
        if shown { Ok(()) } else { Err(missing()) }
    }
}
