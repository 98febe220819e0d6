//! The directories of a folder as they are shown: what is hidden does not exist.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io::{self, Read};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use cap_std::fs::{File, Metadata};
use ignore::gitignore::Gitignore;
use libris_core::{Result, Uri};

use super::cache::Cache;
use super::filter::{self, Filter, Ignored};
use super::name;
use super::root::{Place, Root, Symlinks, missing};
use super::stamp::{Identity, Stamp};
use super::{Config, root};

/// How many names of directory entries are kept in memory.
const NAMES: usize = 1_000_000;

/// How many directories with ignore files are kept in memory.
const IGNORED: usize = 10_000;

/// How deep directories may be nested. A walk holds all of them open.
const DEPTH: usize = 128;

/// How long the path of a resource may be, which leaves room for a mount and a query.
const LONGEST: usize = Uri::LIMIT - 1024;

/// The most that is read of an ignore file.
const IGNORE_FILE: u64 = 1024 * 1024;

/// The directories of a folder.
pub(super) struct Tree {
    root: Root,
    filter: Filter,
    gitignore: bool,
    listings: Cache<Listing>,
    ignored: Cache<Arc<KeptIgnored>>,
    warned: Mutex<HashSet<String>>,
}

/// A directory that is open, with all that is needed to judge what is in it.
pub(super) struct Folder {
    pub(super) place: Place,
    /// Its path as in its URI: empty for the root, otherwise with a slash at the end.
    pub(super) key: String,
    pub(super) metadata: Metadata,
    pub(super) stamp: Stamp,
    /// It and those above it.
    trail: Vec<Identity>,
    ignored: Option<Arc<Ignored>>,
}

/// What is at a path.
pub(super) enum Found {
    Folder(Folder),
    File(Folder, OsString),
}

/// The sorted names in a directory, as they stand in URIs; those of directories end with a slash.
///
/// In this order, a walk that goes down into each directory as it meets it meets URIs in their order.
pub(super) type Names = Arc<[Box<str>]>;

#[derive(Clone)]
struct Listing {
    stamp: Stamp,
    ignored: Option<Arc<Ignored>>,
    names: Names,
}

struct KeptIgnored {
    stamps: [Option<Stamp>; 3],
    above: Option<Arc<Ignored>>,
    value: Arc<Ignored>,
}

impl Tree {
    pub(super) fn open(config: &Config, root: Root) -> Result<Self> {
        Ok(Self {
            root,
            filter: Filter::new(config)?,
            gitignore: config.gitignore,
            listings: Cache::new(NAMES),
            ignored: Cache::new(IGNORED),
            warned: Mutex::default(),
        })
    }

    /// The root as it is now.
    pub(super) fn root(&self) -> io::Result<Folder> {
        self.folder(self.root.place()?, String::new(), &[], None)
    }

    /// Which directory the root is now.
    pub(super) fn identity(&self) -> io::Result<Identity> {
        Ok(Identity::of(&self.root.place()?.metadata()?))
    }

    /// What is at a path such as `guide/start.md` below the root, written as in a URI.
    pub(super) fn find(&self, root: Folder, path: &str) -> io::Result<Found> {
        let mut folder = root;
        let (path, slash) = match path.strip_suffix('/') {
            Some(path) => (path, true),
            None => (path, false),
        };
        if path.is_empty() {
            return if slash { Err(missing()) } else { Ok(Found::Folder(folder)) };
        }
        let mut segments = path.split('/').peekable();
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
        let metadata = folder.place.stat(&name)?;
        let directory = metadata.is_dir();
        if !(directory || metadata.is_file())
            || folder.key.len() + segment.len() >= LONGEST
            || !self.shows(folder, &name, directory)
            || !self.is_spelled_so(folder, segment, directory)?
        {
            return Err(missing());
        }
        Ok((name, directory))
    }

    /// The directory of this name, whether or not it is shown.
    pub(super) fn enter(&self, folder: &Folder, segment: &str, name: &OsString) -> io::Result<Folder> {
        let key = format!("{}{segment}/", folder.key);
        self.folder(folder.place.enter(name)?, key, &folder.trail, folder.ignored.as_ref())
    }

    fn folder(
        &self,
        place: Place,
        key: String,
        above: &[Identity],
        ignored: Option<&Arc<Ignored>>,
    ) -> io::Result<Folder> {
        let metadata = place.metadata()?;
        let stamp = Stamp::of(&metadata);
        // A link may lead to a directory that it is in.
        if above.contains(&stamp.identity) || above.len() >= DEPTH {
            return Err(missing());
        }
        let trail = above.iter().copied().chain([stamp.identity]).collect();
        let ignored = self.ignored(&place, &key, ignored);
        Ok(Folder { place, key, metadata, stamp, trail, ignored })
    }

    /// The names that are shown in a directory.
    pub(super) fn names(&self, folder: &Folder) -> io::Result<Names> {
        if let Some(kept) = self.listings.find(&folder.key)
            && kept.stamp == folder.stamp
            && is_same(kept.ignored.as_ref(), folder.ignored.as_ref())
        {
            return Ok(kept.names);
        }
        let seen = SystemTime::now();
        let (names, links) = self.read_names(folder)?;
        // Where a link leads may change without a trace in the directory that holds the link.
        if folder.stamp.settled(seen) && !links {
            let listing = Listing {
                stamp: folder.stamp.clone(),
                ignored: folder.ignored.clone(),
                names: Arc::clone(&names),
            };
            self.listings.keep(&folder.key, names.len() + 1, listing);
        } else {
            self.listings.forget(&folder.key);
        }
        Ok(names)
    }

    fn read_names(&self, folder: &Folder) -> io::Result<(Names, bool)> {
        let mut names: Vec<Box<str>> = Vec::new();
        let mut links = false;
        for entry in folder.place.entries()? {
            let entry = entry?;
            let name = entry.file_name();
            let kind = entry.file_type()?;
            links |= kind.is_symlink();
            let directory = if kind.is_dir() || kind.is_file() {
                kind.is_dir()
            } else if kind.is_symlink() && folder.place.symlinks() == Symlinks::Refuse {
                continue;
            } else {
                // A link, or the system did not say.
                match folder.place.stat(&name) {
                    Ok(target) if target.is_file() => false,
                    Ok(target) if target.is_dir() && !folder.trail.contains(&Identity::of(&target)) => true,
                    _ => continue,
                }
            };
            let Some(mut key) = name::to_segment(&name) else { continue };
            if folder.key.len() + key.len() >= LONGEST || !self.shows(folder, &name, directory) {
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

    fn shows(&self, folder: &Folder, name: &OsString, directory: bool) -> bool {
        self.filter.shows(&folder.place.path.join(name), directory, folder.ignored.as_deref())
    }

    /// Whether an entry has exactly this name, where the file system would also take another for it.
    fn is_spelled_so(&self, folder: &Folder, segment: &str, directory: bool) -> io::Result<bool> {
        if !cfg!(any(windows, target_vendor = "apple")) {
            return Ok(true);
        }
        let key = if directory { format!("{segment}/") } else { segment.to_owned() };
        Ok(self.names(folder)?.binary_search_by(|name| (**name).cmp(&key)).is_ok())
    }

    /// What the ignore files of a directory and those above it say now.
    fn ignored(&self, place: &Place, key: &str, above: Option<&Arc<Ignored>>) -> Option<Arc<Ignored>> {
        if !self.gitignore {
            return None;
        }
        let [first, second] = Ignored::FILES;
        let exclude: &[&str] = if key.is_empty() { &[".git", "info", "exclude"] } else { &[] };
        let seen = SystemTime::now();
        let files = [&[first][..], &[second], exclude].map(|path| match place.open_own(path) {
            Ok((file, metadata)) => Some((file, Stamp::of(&metadata))),
            Err(cause) => {
                if !root::is_missing(&cause) {
                    self.warn(&format!("{key}{}", path.join("/")), &cause);
                }
                None
            }
        });
        if files.iter().all(Option::is_none) {
            return above.cloned();
        }
        let stamps = files.each_ref().map(|file| file.as_ref().map(|(_, stamp)| stamp.clone()));
        if let Some(kept) = self.ignored.find(key)
            && kept.stamps == stamps
            && is_same(kept.above.as_ref(), above)
        {
            return Some(Arc::clone(&kept.value));
        }
        let files =
            files.map(|file| file.map_or_else(Gitignore::empty, |(file, _)| self.compile(key, &file)));
        let value = Arc::new(Ignored { path: place.path.clone(), above: above.cloned(), files });
        if stamps.iter().flatten().all(|stamp| stamp.settled(seen)) {
            let kept = KeptIgnored { stamps, above: above.cloned(), value: Arc::clone(&value) };
            self.ignored.keep(key, 1, Arc::new(kept));
        }
        Some(value)
    }

    fn compile(&self, key: &str, file: &File) -> Gitignore {
        let mut content = Vec::new();
        match file.take(IGNORE_FILE).read_to_end(&mut content) {
            Ok(_) => filter::ignore_file(&content),
            Err(cause) => {
                self.warn(key, &cause);
                Gitignore::empty()
            }
        }
    }

    /// Logs that something could not be read, once for each place.
    pub(super) fn warn(&self, key: &str, cause: &io::Error) {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        if warned.len() >= IGNORED {
            warned.clear();
        }
        if warned.insert(key.to_owned()) {
            tracing::warn!(path = key, %cause, "skipped what cannot be read");
        }
    }
}

fn is_same(one: Option<&Arc<Ignored>>, other: Option<&Arc<Ignored>>) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{Arc, Config, Root, Symlinks, Tree};
    use std::path::Path;

    fn tree(path: &Path) -> Tree {
        Tree::open(&Config::default(), Root::open(path, Symlinks::Refuse).unwrap()).unwrap()
    }

    #[test]
    fn a_settled_directory_is_read_once() {
        // Compiling this took longer than a tick of any clock.
        let tree = tree(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
        let names = || tree.names(&tree.root().unwrap()).unwrap();
        assert!(Arc::ptr_eq(&names(), &names()));
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
