//! Following links, and never to what is not shown.
//!
//! A link is resolved to where it leads from the root. From then on it is that path which is judged and
//! opened, name by name and without following anything, so neither what is hidden nor what somebody puts
//! in the way meanwhile is reached.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::root::{Place, missing};
use super::{Folder, Tree};

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
pub(super) struct Target {
    /// The directory that it is in.
    pub(super) parent: Rc<Folder>,
    pub(super) name: OsString,
}

/// The directory that the last link led into: links that stand together often lead into the same.
#[derive(Default)]
pub(super) struct Near(Option<(PathBuf, Rc<Folder>)>);

impl Tree {
    /// Does something with an entry of a directory, or with what it stands for where it is a link that
    /// is followed.
    pub(crate) fn at<T>(
        &self,
        folder: &Folder,
        name: &OsStr,
        work: impl FnOnce(&Place, &OsStr) -> io::Result<T>,
    ) -> io::Result<T> {
        match self.target(folder, name, &mut Near::default())? {
            Some(target) => work(&target.parent.place, &target.name),
            None => work(&folder.place, name),
        }
    }

    /// What a link stands for; not found where that is not shown. `None` where the name is not that of a
    /// link to be followed.
    pub(super) fn target(
        &self,
        folder: &Folder,
        name: &OsStr,
        near: &mut Near,
    ) -> io::Result<Option<Target>> {
        if self.symlinks == Symlinks::Refuse || !folder.place.stat(name)?.is_symlink() {
            return Ok(None);
        }
        let here = folder.real.as_ref().unwrap_or(&folder.way);
        let path = folder.place.resolve(&here.path.join(name))?;
        // The root has no name, and every link to it is in what it leads to.
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { return Err(missing()) };
        let parent = match &near.0 {
            Some((path, parent)) if path == above => Rc::clone(parent),
            _ => {
                let parent = Rc::new(self.descend(folder.place.root(), above)?);
                near.0 = Some((above.to_owned(), Rc::clone(&parent)));
                parent
            }
        };
        self.judge(&parent, name)?;
        Ok(Some(Target { parent, name: name.to_owned() }))
    }

    /// The directory at a path from the root that has no links on it.
    fn descend(&self, root: Place, path: &Path) -> io::Result<Folder> {
        let mut folder = self.top(root, None)?;
        for name in path {
            self.judge(&folder, name)?;
            folder = self.enter_itself(&folder, name)?;
        }
        Ok(folder)
    }

    /// Fails where an entry is not shown, or is itself a link.
    fn judge(&self, folder: &Folder, name: &OsStr) -> io::Result<()> {
        let metadata = folder.place.stat(name)?;
        let shown = (metadata.is_dir() || metadata.is_file())
            && self.shows(folder, name, metadata.is_dir())
            && folder.place.spells(name)?;
        if shown { Ok(()) } else { Err(missing()) }
    }
}
