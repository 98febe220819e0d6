//! A walk through a tree in the order of URIs that can begin anywhere.

use std::ffi::OsString;
use std::io;
use std::sync::Arc;

#[cfg(not(target_os = "linux"))]
use cap_fs_ext::MetadataExt;

use super::name_list::Names;
use super::proof::Witness;
use super::root::is_missing;
use super::stamp::Stamp;
use super::stamp_table::Details;
use super::{Folder, Tree};
use super::{ignore_files, name};

/// A walk that has the directories open that lead to where it is.
pub(crate) struct Walk<'a> {
    tree: &'a Tree,
    stack: Vec<Level>,
    /// Whether the root itself is still to come.
    root: bool,
    pace: Pace,
    /// What all that was met rests on.
    witness: Witness,
}

struct Level {
    folder: Arc<Folder>,
    names: Names,
    next: usize,
    details: Option<Arc<Details>>,
}

impl Level {
    fn new(tree: &Tree, folder: Arc<Folder>, names: Names) -> Self {
        let details = tree.details(&folder, &names);
        Self { folder, names, next: 0, details }
    }

    /// The file of the name at a place.
    fn leaf(&self, tree: &Tree, at: usize, pace: Pace) -> io::Result<Option<Leaf>> {
        let Some(key) = self.names.get(at) else { return Ok(None) };
        if let Some(stamp) = self.details.as_ref().and_then(|details| details.get(at)) {
            let Some(name) = name::of_segment(key) else { return Ok(None) };
            let key = format!("{}{key}", self.folder.way.key);
            return Ok(Some(Leaf { name, key, stamp: stamp.clone(), shared: false }));
        }
        pace.wait()?;
        let leaf = leaf(tree, &self.folder, key)?;
        if let (Some(details), Some(leaf)) = (&self.details, &leaf)
            && !leaf.shared
        {
            details.set(at, &leaf.stamp);
        }
        Ok(leaf)
    }
}

/// Whether a walk may wait for the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// It takes the time it needs.
    Patient,
    /// It fails with [`io::ErrorKind::WouldBlock`] where not all is at hand.
    Now,
}

impl Pace {
    /// Fails where there is no time.
    pub(crate) fn wait(self) -> io::Result<()> {
        match self {
            Self::Patient => Ok(()),
            Self::Now => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

/// What a walk meets.
pub(crate) enum Step<'a> {
    Folder(&'a Folder),
    /// With the directory that it is in.
    File(&'a Folder, Box<Leaf>),
}

/// A file as it was found in a directory.
pub(crate) struct Leaf {
    pub(crate) name: OsString,
    /// Its path as in its URI.
    pub(crate) key: String,
    pub(crate) stamp: Stamp,
    /// Whether it has another name, under which it may change without the directory being told.
    pub(crate) shared: bool,
}

impl<'a> Walk<'a> {
    /// A walk over everything, the root first.
    pub(crate) fn everything(tree: &'a Tree, root: Arc<Folder>, names: Names, pace: Pace) -> Self {
        let mut witness = Witness::new(&tree.vigil);
        witness.directory(&root);
        Self { tree, stack: vec![Level::new(tree, root, names)], root: true, pace, witness }
    }

    /// A walk over what comes after `path`, whether or not something is there.
    pub(crate) fn after(
        tree: &'a Tree,
        root: Arc<Folder>,
        names: Names,
        path: &str,
        pace: Pace,
    ) -> io::Result<Self> {
        let mut walk = Self { root: false, ..Self::everything(tree, root, names, pace) };
        let mut rest = path;
        while let Some(level) = walk.stack.last_mut() {
            level.next = level.names.partition_point(|name| name <= rest);
            // Only the name just before can be the directory that `rest` is in: all others that begin
            // like it would have to contain its slash.
            let names = Arc::clone(&level.names);
            let Some(name) = level.next.checked_sub(1).and_then(|before| names.get(before)) else { break };
            let Some(below) = rest.strip_prefix(name).filter(|_| name.ends_with('/')) else { break };
            if !walk.descend(name)? {
                break;
            }
            rest = below;
        }
        Ok(walk)
    }

    /// The next file or directory. What vanishes meanwhile is passed over.
    pub(crate) fn step(&mut self) -> io::Result<Option<Step<'_>>> {
        if std::mem::take(&mut self.root) {
            return Ok(self.stack.first().map(|level| Step::Folder(&level.folder)));
        }
        loop {
            let Some(level) = self.stack.last_mut() else { return Ok(None) };
            let Some(key) = level.names.get(level.next) else {
                self.stack.pop();
                continue;
            };
            let directory = key.ends_with('/').then(|| key.to_owned());
            level.next += 1;
            if let Some(key) = directory {
                if self.descend(&key)? {
                    return Ok(self.stack.last().map(|level| Step::Folder(&level.folder)));
                }
            } else if let Some(leaf) = level.leaf(self.tree, level.next - 1, self.pace)? {
                if leaf.shared {
                    self.witness.give_up();
                }
                return Ok(self.stack.last().map(|level| Step::File(&level.folder, Box::new(leaf))));
            }
        }
    }

    /// What all that was met rests on.
    pub(crate) fn into_witness(self) -> Witness {
        self.witness
    }

    fn descend(&mut self, key: &str) -> io::Result<bool> {
        let Some(level) = self.stack.last() else { return Ok(false) };
        let (folder, names) = match self.pace {
            Pace::Patient => {
                let witness = Some(&mut self.witness);
                let Some(folder) = directory(self.tree, &level.folder, key, witness)? else {
                    return Ok(false);
                };
                self.witness.directory(&folder);
                match self.tree.names(&folder) {
                    Ok(names) => (folder, names),
                    Err(cause) => return pass_over(self.tree, &folder.way.key, cause).map(|()| false),
                }
            }
            Pace::Now => {
                let late = || io::Error::from(io::ErrorKind::WouldBlock);
                let folder = self.tree.kept(&format!("{}{key}", level.folder.way.key)).ok_or_else(late)?;
                self.witness.directory(&folder);
                let names = Tree::names_at_hand(&folder).ok_or_else(late)?;
                (folder, names)
            }
        };
        self.stack.push(Level::new(self.tree, folder, names));
        Ok(true)
    }
}

/// The file of a name from a listing, if it is still one and can be read.
pub(crate) fn leaf(tree: &Tree, folder: &Folder, key: &str) -> io::Result<Option<Leaf>> {
    let Some(name) = name::of_segment(key) else { return Ok(None) };
    let key = format!("{}{key}", folder.way.key);
    let seen = tree.at(folder, &name, |place, name| {
        let metadata = place.stat(name)?;
        if metadata.is_file() {
            place.check_file(name, &metadata)?;
        }
        Ok(metadata)
    });
    match seen {
        Ok(metadata) if metadata.is_file() => {
            let shared = metadata.nlink() > 1;
            Ok(Some(Leaf { name, key, stamp: Stamp::of(&metadata), shared }))
        }
        Ok(_) => Ok(None),
        Err(cause) => pass_over(tree, &key, cause).map(|()| None),
    }
}

/// The directory of a name from a listing, if it is still one and can be read. What is proven by `witness`
/// rests on that.
pub(crate) fn directory(
    tree: &Tree,
    folder: &Folder,
    key: &str,
    witness: Option<&mut Witness>,
) -> io::Result<Option<Arc<Folder>>> {
    let segment = key.trim_end_matches('/');
    let Some(name) = name::of_segment(segment) else { return Ok(None) };
    let cause = match tree.enter(folder, segment, &name) {
        Ok(folder) => return Ok(Some(folder)),
        Err(cause) => cause,
    };
    // No event of the directory that it is in tells when its ignore file can be read again.
    if let Some(witness) = witness.filter(|_| ignore_files::hide_folder(&cause)) {
        witness.give_up();
    }
    pass_over(tree, &format!("{}{key}", folder.way.key), cause).map(|()| None)
}

/// Whether what a name from a listing stands for is still there and can be read.
pub(crate) fn is_there(tree: &Tree, folder: &Folder, key: &str) -> io::Result<bool> {
    Ok(match key.ends_with('/') {
        true => directory(tree, folder, key, None)?.is_some(),
        false => leaf(tree, folder, key)?.is_some(),
    })
}

/// Lets a walk go on over what is gone or not ours to read; everything else is an error.
pub(crate) fn pass_over(tree: &Tree, key: &str, cause: io::Error) -> io::Result<()> {
    if is_missing(&cause) {
        return Ok(());
    }
    if cause.kind() == io::ErrorKind::PermissionDenied {
        tree.warn(key, &cause);
        return Ok(());
    }
    Err(cause)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::super::Options;
    use super::super::root::Root;
    use super::{Pace, Tree, Walk};

    #[test]
    fn names_of_before_a_change_prove_nothing() {
        let folder = tempfile::tempdir().unwrap();
        // In a folder of its own, since what goes from the one above the root shows in its proof.
        let path = folder.path().canonicalize().unwrap().join("root");
        std::fs::create_dir(&path).unwrap();
        let tree = Tree::open(&Options::default(), Root::open(&path).unwrap()).unwrap();
        let prove = |change: bool| {
            let root = tree.proven_root().unwrap();
            let names = tree.names(&root).unwrap();
            if change {
                std::fs::write(path.join("new"), "").unwrap();
                // Somebody else asks, and so hears of it first.
                tree.proven_root().unwrap();
            }
            Walk::everything(&tree, root, names, Pace::Patient).into_witness().prove()
        };
        assert!(prove(false).is_some_and(|proof| proof.holds()));
        assert!(prove(true).is_none());
    }
}
