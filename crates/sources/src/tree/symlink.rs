//! Following links, and never to what is not shown.
//!
//! A link is resolved to where it leads from the root. From then on it is that path which is judged and
//! opened, name by name and without following anything, so neither what is hidden nor what somebody puts
//! in the way meanwhile is reached.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::root::{DirectoryHandle, missing};
use super::{OpenFolder, Tree};

/// Whether symbolic links within the root are followed.
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

/// What a link stands for.
pub(super) struct SymlinkTarget {
    /// The directory that it is in.
    pub(super) parent: Rc<OpenFolder>,
    pub(super) name: OsString,
}

/// The directory that the last link led into: links that stand together often lead into the same.
#[derive(Default)]
pub(super) struct ParentMemo(Option<(PathBuf, Rc<OpenFolder>)>);

impl Tree {
    /// Does something with an entry of a directory, or with what it stands for where it is a link that
    /// is followed.
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

    /// What a link stands for; not found where that is not shown. `None` where the name is not that of a
    /// link to be followed.
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
        // The root has no name, and every link to it is in what it leads to.
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { return Err(missing()) };
        let parent = match &memo.0 {
            Some((path, parent)) if path == above => Rc::clone(parent),
            _ => {
                let parent = Rc::new(self.open_nofollow(folder.handle.root(), above)?);
                memo.0 = Some((above.to_owned(), Rc::clone(&parent)));
                parent
            }
        };
        self.check_visible(&parent, name)?;
        Ok(Some(SymlinkTarget { parent, name: name.to_owned() }))
    }

    /// The directory at a path from the root that has no links on it.
    fn open_nofollow(&self, root: DirectoryHandle, path: &Path) -> io::Result<OpenFolder> {
        let mut folder = self.root_folder(root, None)?;
        for name in path {
            self.check_visible(&folder, name)?;
            folder = self.open_child_nofollow(&folder, name)?;
        }
        Ok(folder)
    }

    /// Fails where an entry is not shown, or is itself a link.
    fn check_visible(&self, folder: &OpenFolder, name: &OsStr) -> io::Result<()> {
        let metadata = folder.handle.stat(name)?;
        let shown = (metadata.is_dir() || metadata.is_file())
            && self.shows(folder, name, metadata.is_dir())
            && folder.handle.has_exact_name(name)?;
        if shown { Ok(()) } else { Err(missing()) }
    }
}
