//! The directories of a folder as they are shown: what is hidden does not exist.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::SystemTime;

use cap_std::fs::Metadata;
use libris_core::{Result, Uri};

use super::cache::Cache;
use super::details::Details;
use super::filter::{Filter, Ignored};
use super::ignore_files::{CompiledRules, are_same};
use super::kept::Open;
use super::link::{Near, Symlinks};
use super::name;
use super::root::{IGNORES_CASE, Place, Root, is_missing, missing};
use super::stamp::{Identity, Stamp};
use super::vigil::{Chain, Entries, Vigil};
use super::{Config, Watching, walk};

/// How many names of directory entries are kept in memory.
const NAMES: usize = 1_000_000;

/// How many directories with ignore files are kept in memory.
const IGNORED: usize = 10_000;

/// How many directories are kept open.
const OPEN: usize = 128;

/// How deep directories may be nested. A walk holds all of them open.
const DEPTH: usize = 128;

/// How long the path of a resource may be, which leaves room for a mount and a query.
const LONGEST: usize = Uri::LIMIT - 1024;

/// The directories of a folder.
pub(super) struct Tree {
    pub(super) root: Root,
    pub(super) symlinks: Symlinks,
    filter: Filter,
    pub(super) gitignore: bool,
    listings: Cache<Listing>,
    pub(super) ignored: Cache<Arc<CompiledRules>>,
    pub(super) details: Cache<Arc<Details>>,
    /// Directories that are open and proven to be what a path leads to.
    pub(super) open: Arc<Open>,
    pub(super) vigil: Vigil,
    warned: Mutex<HashSet<String>>,
}

/// A directory that is open, with all that is needed to judge what is in it.
pub(super) struct Folder {
    pub(super) place: Place,
    pub(super) way: Way,
    /// The way without links, where there are some on the other.
    pub(super) real: Option<Way>,
    pub(super) stamp: Stamp,
    /// It and those above it.
    pub(super) trail: Vec<Identity>,
    /// That it is still what its path leads to, where that can be proven.
    pub(super) chain: Option<Arc<Chain>>,
    /// That what is known of it and what is in it is still so, where there is a chain.
    pub(super) entries: Option<Entries>,
    /// What is in it, once somebody asked. Only a folder with a chain keeps it.
    pub(super) names: OnceLock<Names>,
    /// Their order without regard to case, likewise.
    pub(super) order: OnceLock<Order>,
}

/// A way from the root to a directory.
#[derive(Clone, Default)]
pub(super) struct Way {
    /// The path as in a URI: empty for the root, otherwise with a slash at the end.
    pub(super) key: String,
    /// The path of names.
    pub(super) path: PathBuf,
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
pub(super) enum Found {
    Folder(Arc<Folder>),
    File(Arc<Folder>, OsString),
}

/// The sorted names in a directory, as they stand in URIs; those of directories end with a slash.
///
/// In this order, a walk that goes down into each directory as it meets it meets URIs in their order.
pub(super) type Names = Arc<[Box<str>]>;

/// The places of names in [`Names`], ordered by [`folded`](Tree::folded).
pub(super) type Order = Arc<[u32]>;

#[derive(Clone)]
struct Listing {
    stamp: Stamp,
    ways: Box<[Way]>,
    names: Names,
}

impl Tree {
    pub(super) fn open(config: &Config, root: Root) -> Result<Self> {
        Ok(Self {
            root,
            symlinks: Symlinks::of(config.symlinks),
            filter: Filter::new(config)?,
            gitignore: config.gitignore,
            listings: Cache::new(NAMES),
            ignored: Cache::new(IGNORED),
            details: Cache::new(NAMES),
            open: Arc::new(Open::new(OPEN)),
            // Where a link leads may change without a trace in any directory on the way to it.
            vigil: if config.symlinks || config.watch == Watching::Poll {
                Vigil::none()
            } else {
                Vigil::new()
            },
            warned: Mutex::default(),
        })
    }

    /// The root as it is now.
    pub(super) fn root(&self) -> io::Result<Folder> {
        self.top(self.root.place()?, None)
    }

    /// The root that was opened before.
    pub(super) fn top(&self, place: Place, chain: Option<Arc<Chain>>) -> io::Result<Folder> {
        let entries = chain.as_ref().map(|chain| chain.entries());
        let (metadata, trail) = self.admit(&place, "", &[])?;
        let way = Way { ignored: self.ignored(&place, Path::new(""), "", None)?, ..Way::default() };
        let stamp = Stamp::of(&metadata);
        Ok(Folder {
            stamp,
            place,
            way,
            real: None,
            trail,
            chain,
            entries,
            names: OnceLock::new(),
            order: OnceLock::new(),
        })
    }

    /// Which directory the root is now.
    pub(super) fn identity(&self) -> io::Result<Identity> {
        Ok(Identity::of(&self.root.place()?.metadata()?))
    }

    /// What is at a path such as `guide/start.md` below the root, written as in a URI.
    pub(super) fn find(&self, root: Arc<Folder>, path: &str) -> io::Result<Found> {
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
    pub(super) fn entry(&self, folder: &Folder, segment: &str) -> io::Result<(OsString, bool)> {
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
    pub(super) fn enter(&self, folder: &Folder, segment: &str, name: &OsStr) -> io::Result<Arc<Folder>> {
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
    pub(super) fn enter_itself(&self, folder: &Folder, name: &OsStr) -> io::Result<Folder> {
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
        Ok(Folder {
            stamp,
            place,
            way,
            real,
            trail,
            chain,
            entries,
            names: OnceLock::new(),
            order: OnceLock::new(),
        })
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

    /// The names that are shown in a directory.
    pub(super) fn names(&self, folder: &Folder) -> io::Result<Names> {
        if let Some(names) = folder.names.get() {
            return Ok(Arc::clone(names));
        }
        let names = self.settled_names(folder)?;
        if folder.chain.is_some() {
            let _ = folder.names.set(Arc::clone(&names));
        }
        Ok(names)
    }

    /// The names by the stamp of the directory.
    fn settled_names(&self, folder: &Folder) -> io::Result<Names> {
        if let Some(kept) = self.listings.find(&folder.way.key)
            && kept.stamp == folder.stamp
            && kept.ways.len() == folder.ways().count()
            && kept.ways.iter().zip(folder.ways()).all(|(kept, way)| kept.shows_like(way))
        {
            return Ok(kept.names);
        }
        let seen = SystemTime::now();
        let (names, links) = self.read_names(folder)?;
        // Where a link leads may change without a trace in the directory that holds the link.
        if folder.stamp.settled(seen) && !links {
            let listing = Listing {
                stamp: folder.stamp.clone(),
                ways: folder.ways().cloned().collect(),
                names: Arc::clone(&names),
            };
            self.listings.keep(&folder.way.key, names.len() + 1, listing);
        } else {
            self.listings.forget(&folder.way.key);
        }
        Ok(names)
    }

    /// The names, and whether links were followed for them.
    fn read_names(&self, folder: &Folder) -> io::Result<(Names, bool)> {
        let mut names: Vec<Box<str>> = Vec::new();
        let mut links = false;
        let mut near = Near::default();
        for entry in folder.place.entries()? {
            let entry = entry?;
            let name = entry.file_name();
            let kind = match entry.file_type() {
                // Some systems ask the file itself, which may be gone by now.
                Err(cause) if is_missing(&cause) => continue,
                kind => kind?,
            };
            let directory = if kind.is_dir() || kind.is_file() {
                kind.is_dir()
            } else if kind.is_symlink() && self.symlinks == Symlinks::Refuse {
                continue;
            } else {
                // A link, or the system did not say.
                links |= self.symlinks == Symlinks::Follow;
                let seen = match self.target(folder, &name, &mut near) {
                    Ok(Some(target)) => target.parent.place.stat(&target.name),
                    Ok(None) => folder.place.stat(&name),
                    Err(cause) => Err(cause),
                };
                match seen {
                    Ok(target) if target.is_file() => false,
                    Ok(target) if target.is_dir() && !folder.trail.contains(&Identity::of(&target)) => true,
                    Ok(_) => continue,
                    Err(cause) => {
                        walk::pass_over(self, &format!("{}{}", folder.way.key, name.display()), cause)?;
                        continue;
                    }
                }
            };
            let Some(mut key) = name::to_segment(&name) else { continue };
            if folder.way.key.len() + key.len() >= LONGEST || !self.shows(folder, &name, directory) {
                continue;
            }
            if directory {
                key.push('/');
            }
            names.push(key.into());
        }
        names.sort_unstable();
        Ok((names.into(), links))
    }

    pub(super) fn shows(&self, folder: &Folder, name: &OsStr, directory: bool) -> bool {
        folder.ways().all(|way| self.filter.shows(&way.path.join(name), directory, way.ignored.as_deref()))
    }

    /// Whether an entry has exactly this name, where the file system would also take another for it.
    fn is_spelled_so(&self, folder: &Folder, segment: &str, directory: bool) -> io::Result<bool> {
        if !IGNORES_CASE {
            return Ok(true);
        }
        let key = if directory { format!("{segment}/") } else { segment.to_owned() };
        Ok(self.names(folder)?.binary_search_by(|name| (**name).cmp(&key)).is_ok())
    }

    /// Logs that something could not be read, once for each place.
    pub(super) fn warn(&self, key: &str, cause: &io::Error) {
        if self.is_first_warning(key) {
            tracing::warn!(path = key, %cause, "skipped what cannot be read");
        }
    }

    /// Whether nothing was logged of a place yet.
    pub(super) fn is_first_warning(&self, key: &str) -> bool {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        if warned.len() >= IGNORED {
            warned.clear();
        }
        warned.insert(key.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::super::walk::{Pace, Walk};
    use super::{Arc, Config, DEPTH, Root, Tree};
    use std::path::Path;

    fn tree(path: &Path) -> Tree {
        Tree::open(&Config::default(), Root::open(path).unwrap()).unwrap()
    }

    #[test]
    fn a_settled_directory_is_read_once() {
        // Compiling this took longer than a tick of any clock.
        let tree = tree(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
        let names = || tree.names(&tree.root().unwrap()).unwrap();
        assert!(Arc::ptr_eq(&names(), &names()));
    }

    #[cfg(unix)]
    #[test]
    fn only_links_that_are_followed_keep_a_directory_from_being_kept() {
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("nowhere", folder.path().join("link")).unwrap();
        for symlinks in [false, true] {
            let config = Config { symlinks, ..Config::default() };
            let tree = Tree::open(&config, Root::open(folder.path()).unwrap()).unwrap();
            let (_, links) = tree.read_names(&tree.root().unwrap()).unwrap();
            assert_eq!(links, symlinks);
        }
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

    #[test]
    fn a_young_directory_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let tree = tree(folder.path());
        let root = tree.root().unwrap();
        assert_eq!(tree.names(&root).unwrap().len(), 0);
        std::fs::write(folder.path().join("new"), "").unwrap();
        // Even with the stamp of before, as if the clock stood still.
        assert_eq!(&*tree.names(&root).unwrap(), ["new".into()]);
    }
}
