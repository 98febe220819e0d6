//! The directories of a folder as they are shown: what is hidden does not exist.

mod cache;
mod filter;
mod ignore_files;
mod listing;
mod metadata;
pub(crate) mod name;
mod name_list;
mod open_folders;
mod options;
mod proof;
mod root;
mod root_path;
mod stamp;
mod stamp_table;
mod symlink;
pub(crate) mod walk;
pub(crate) mod watch;

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use libris_core::{Result, Uri};

pub(crate) use cache::Cache;
pub(crate) use metadata::Metadata;
pub(crate) use name_list::{Names, folded};
pub(crate) use options::Options;
pub use options::Watching;
pub(crate) use proof::Witness;
pub(crate) use root::{Place, Root, is_missing};
pub(crate) use stamp::Stamp;

use filter::{Filter, Ignored};
use ignore_files::{CompiledRules, are_same};
use listing::Listing;
use open_folders::Open;
use proof::{Chain, Entries, Vigil};
use root::{IGNORES_CASE, missing};
use stamp::Identity;
use stamp_table::Details;
use symlink::{Near, Symlinks};

/// How many names of directory entries are kept in memory.
const NAMES: usize = 1_000_000;

/// Of how many places it is remembered that something was logged of them.
const WARNED: usize = 10_000;

/// How many directories are kept open.
const OPEN: usize = 128;

/// How deep directories may be nested. A walk holds all of them open.
const DEPTH: usize = 128;

/// How long the path of a resource may be, which leaves room for a mount and a query.
const LONGEST: usize = Uri::LIMIT - 1024;

/// The directories of a folder.
pub(crate) struct Tree {
    root: Root,
    symlinks: Symlinks,
    filter: Filter,
    gitignore: bool,
    listings: Cache<Arc<Listing>>,
    /// For how long at least names are trusted that are proven by events alone.
    trusted: Duration,
    ignored: Cache<Arc<CompiledRules>>,
    /// Held while ignore files are compiled.
    compiling: Mutex<()>,
    details: Cache<Arc<Details>>,
    /// Directories that are open and proven to be what a path leads to.
    open: Arc<Open>,
    pub(crate) vigil: Vigil,
    /// How the watcher detects changes, and how often it polls.
    watching: Watching,
    poll: Duration,
    warned: Mutex<HashSet<String>>,
}

/// A directory that is open, with all that is needed to judge what is in it.
pub(crate) struct Folder {
    pub(crate) place: Place,
    pub(crate) way: Way,
    /// The way without links, where there are some on the other.
    real: Option<Way>,
    pub(crate) stamp: Stamp,
    /// It and those above it.
    trail: Vec<Identity>,
    /// That it is still what its path leads to, where that can be proven.
    chain: Option<Arc<Chain>>,
    /// That what is known of it and what is in it is still so, where there is a chain.
    entries: Option<Entries>,
    /// What is in it, once somebody asked. Only a folder with a chain keeps it.
    names: OnceLock<Names>,
}

/// A way from the root to a directory.
#[derive(Clone, Default)]
pub(crate) struct Way {
    /// The path as in a URI: empty for the root, otherwise with a slash at the end.
    pub(crate) key: String,
    /// The path of names.
    pub(crate) path: PathBuf,
    /// What the ignore files on it say.
    ignored: Option<Arc<Ignored>>,
}

impl Way {
    /// Whether the same is shown at its end.
    fn shows_like(&self, other: &Self) -> bool {
        self.path == other.path && are_same(self.ignored.as_ref(), other.ignored.as_ref())
    }
}

impl Folder {
    /// The ways to it: what is in it is shown only if it is on both.
    fn ways(&self) -> impl Iterator<Item = &Way> {
        [&self.way].into_iter().chain(&self.real)
    }
}

/// What is at a path.
pub(crate) enum Found {
    Folder(Arc<Folder>),
    File(Arc<Folder>, OsString),
}

impl Tree {
    pub(crate) fn open(options: &Options, root: Root) -> Result<Self> {
        Ok(Self {
            root,
            symlinks: Symlinks::of(options.symlinks),
            filter: Filter::new(options)?,
            gitignore: options.gitignore,
            listings: Cache::new(NAMES),
            trusted: proof::LONGEST,
            ignored: Cache::new(ignore_files::CACHED),
            compiling: Mutex::default(),
            details: Cache::new(NAMES),
            open: Arc::new(Open::new(OPEN)),
            // Where a link leads may change without a trace in any directory on the way to it.
            vigil: if options.symlinks || options.watch == Watching::Poll {
                Vigil::none()
            } else {
                Vigil::new()
            },
            watching: options.watch,
            poll: options.poll,
            warned: Mutex::default(),
        })
    }

    /// The root as it is now.
    fn root(&self) -> io::Result<Folder> {
        self.top(self.root.place()?, None)
    }

    /// The root that was opened before.
    fn top(&self, place: Place, chain: Option<Arc<Chain>>) -> io::Result<Folder> {
        let entries = chain.as_ref().map(|chain| chain.entries());
        let (metadata, trail) = self.admit(&place, "", &[])?;
        let way = Way { ignored: self.ignored(&place, Path::new(""), "", None)?, ..Way::default() };
        let stamp = Stamp::of(&metadata);
        Ok(Folder { stamp, place, way, real: None, trail, chain, entries, names: OnceLock::new() })
    }

    /// Which directory the root is now.
    fn identity(&self) -> io::Result<Identity> {
        Ok(Identity::of(&self.root.place()?.metadata()?))
    }

    /// What is at a path such as `guide/start.md` below the root, written as in a URI.
    pub(crate) fn find(&self, root: Arc<Folder>, path: &str) -> io::Result<Found> {
        let (path, slash) = match path.strip_suffix('/') {
            Some(path) => (path, true),
            None => (path, false),
        };
        if path.is_empty() {
            return if slash { Err(missing()) } else { Ok(Found::Folder(root)) };
        }
        // Those that are open are found at once, however deep.
        let kept = root.chain.as_ref().and_then(|_| self.kept_parent(path));
        let (mut folder, rest) = kept.unwrap_or((root, path));
        let mut segments = rest.split('/').peekable();
        while let Some(segment) = segments.next() {
            let (name, directory) = self.entry(&folder, segment)?;
            if directory {
                folder = self.enter(&folder, segment, &name)?;
            } else if segments.peek().is_none() && !slash {
                return Ok(Found::File(folder, name));
            } else {
                return Err(missing());
            }
        }
        Ok(Found::Folder(folder))
    }

    /// What a segment stands for in a directory that shows it, and whether that is a directory.
    pub(crate) fn entry(&self, folder: &Folder, segment: &str) -> io::Result<(OsString, bool)> {
        let name = name::of_segment(segment).ok_or_else(missing)?;
        let metadata = self.at(folder, &name, Place::stat)?;
        let directory = metadata.is_dir();
        if !(directory || metadata.is_file())
            || folder.way.key.len() + segment.len() >= LONGEST
            || !self.shows(folder, &name, directory)
            || !self.is_spelled_so(folder, segment, directory)?
        {
            return Err(missing());
        }
        Ok((name, directory))
    }

    /// The directory of this name, whether or not the name is shown.
    fn enter(&self, folder: &Folder, segment: &str, name: &OsStr) -> io::Result<Arc<Folder>> {
        if folder.chain.is_some()
            && let Some(kept) = self.kept(&format!("{}{segment}/", folder.way.key))
        {
            return Ok(kept);
        }
        let entered = match self.target(folder, name, &mut Near::default())? {
            None => {
                let real = folder.real.as_ref().map(|real| (real, name));
                self.folder(folder.place.enter(name)?, folder, (segment, name), real)
            }
            Some(target) => {
                let place = target.parent.place.enter(&target.name)?;
                self.folder(place, folder, (segment, name), Some((&target.parent.way, &target.name)))
            }
        };
        Ok(self.keep(entered?))
    }

    /// The directory of this name, which must not be a link.
    fn enter_itself(&self, folder: &Folder, name: &OsStr) -> io::Result<Folder> {
        let segment = name::to_segment(name).ok_or_else(missing)?;
        self.folder(folder.place.enter(name)?, folder, (&segment, name), None)
    }

    /// The directory that is open as `place`, which stands in `above` under a name and, where a
    /// link led to it, really somewhere else.
    fn folder(
        &self,
        place: Place,
        above: &Folder,
        (segment, name): (&str, &OsStr),
        real: Option<(&Way, &OsStr)>,
    ) -> io::Result<Folder> {
        // Before anything is looked at that it is to prove.
        let chain = above.chain.as_ref().and_then(|chain| self.vigil.go_on(chain, &place));
        let entries = chain.as_ref().map(|chain| chain.entries());
        let (metadata, trail) = self.admit(&place, &format!("{}{segment}/", above.way.key), &above.trail)?;
        let way = self.way(&place, &above.way, segment, name)?;
        let real = match real {
            Some((above, name)) => {
                let segment = name::to_segment(name).ok_or_else(missing)?;
                Some(self.way(&place, above, &segment, name)?)
            }
            None => None,
        };
        let stamp = Stamp::of(&metadata);
        Ok(Folder { stamp, place, way, real, trail, chain, entries, names: OnceLock::new() })
    }

    fn way(&self, place: &Place, above: &Way, segment: &str, name: &OsStr) -> io::Result<Way> {
        let key = format!("{}{segment}/", above.key);
        let path = above.path.join(name);
        let ignored = self.ignored(place, &path, &key, above.ignored.as_ref())?;
        Ok(Way { key, path, ignored })
    }

    /// What is known of a directory that may be gone into, and the trail to it.
    fn admit(&self, place: &Place, key: &str, above: &[Identity]) -> io::Result<(Metadata, Vec<Identity>)> {
        place.check()?;
        let metadata = place.metadata()?;
        let identity = Identity::of(&metadata);
        // A link may lead to a directory that it is in.
        if above.contains(&identity) {
            return Err(missing());
        }
        if above.len() >= DEPTH {
            self.warn(key, &io::Error::other(format!("directories are nested more than {DEPTH} deep")));
            return Err(missing());
        }
        Ok((metadata, above.iter().copied().chain([identity]).collect()))
    }

    fn shows(&self, folder: &Folder, name: &OsStr, directory: bool) -> bool {
        folder.ways().all(|way| self.filter.shows(&way.path.join(name), directory, way.ignored.as_deref()))
    }

    /// Whether an entry has exactly this name, where the file system would also take another for it.
    fn is_spelled_so(&self, folder: &Folder, segment: &str, directory: bool) -> io::Result<bool> {
        if !IGNORES_CASE {
            return Ok(true);
        }
        let key = if directory { format!("{segment}/") } else { segment.to_owned() };
        Ok(self.names(folder)?.contains(&key))
    }

    /// Logs that something could not be read, once for each place.
    pub(crate) fn warn(&self, key: &str, cause: &io::Error) {
        if self.is_first_warning(key) {
            tracing::warn!(path = key, %cause, "skipped what cannot be read");
        }
    }

    /// Whether nothing was logged of a place yet.
    fn is_first_warning(&self, key: &str) -> bool {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        if warned.len() >= WARNED {
            warned.clear();
        }
        warned.insert(key.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::walk::{Pace, Walk};
    use super::{Arc, DEPTH, Options, Root, Tree};
    use std::path::Path;

    fn tree(path: &Path) -> Tree {
        Tree::open(&Options::default(), Root::open(path).unwrap()).unwrap()
    }

    #[test]
    fn what_is_nested_too_deep_is_told_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = |depth: usize| "d/".repeat(depth);
        std::fs::create_dir_all(folder.path().join(path(DEPTH + 1))).unwrap();
        let tree = tree(folder.path());
        for _ in 0..2 {
            let root = tree.root().unwrap();
            let names = tree.names(&root).unwrap();
            let mut walk = Walk::everything(&tree, Arc::new(root), names, Pace::Patient);
            let mut met = 0;
            while walk.step().unwrap().is_some() {
                met += 1;
            }
            assert_eq!(met, DEPTH);
        }
        assert_eq!(tree.warned.lock().unwrap().iter().collect::<Vec<_>>(), [&path(DEPTH)]);
    }
}
