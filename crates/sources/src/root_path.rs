//! Opens the root path without following symbolic links that were inserted into it later.
//!
//! A component may be a symbolic link when the source is opened, such as `current` in `/srv/current/docs`. The operator
//! chose it, so it is followed each time the root is opened again. A component that is a directory when the source is
//! opened must stay one. Otherwise a process with write access to its parent directory could replace it with a symbolic
//! link and so choose the served directory.

use std::io;
use std::path::{Path, PathBuf};

use cap_std::fs::Dir;

/// An absolute path to a directory, and which of its components are symbolic links to follow.
pub(crate) struct RootPath {
    path: PathBuf,
    /// For each component, whether it was a symbolic link when the path was first opened. Systems other than
    /// Linux have only the entry for the last component.
    links: Vec<bool>,
}

/// Which components of a path may be symbolic links. On Linux this concerns all components, elsewhere only the last
/// one: the others are always followed.
enum ComponentSymlinks<'a> {
    /// Every component may be a symbolic link. Appends whether it is one.
    Record(&'a mut Vec<bool>),
    /// A component may be a symbolic link only if it was one when the path was first opened (`true`).
    Recorded(&'a [bool]),
}

impl ComponentSymlinks<'_> {
    /// Opens a component: with `follow` if it may be a symbolic link, otherwise with `nofollow`. On a link,
    /// `nofollow` must fail with `ENOTDIR` or `ELOOP`. `Record` tries `nofollow` first, to find out whether it is
    /// a link.
    #[cfg(unix)]
    fn open<T>(
        &mut self,
        component: usize,
        nofollow: impl FnOnce() -> rustix::io::Result<T>,
        follow: impl FnOnce() -> rustix::io::Result<T>,
    ) -> io::Result<T> {
        use rustix::io::Errno;
        let (opened, link) = match self {
            ComponentSymlinks::Recorded(links) if links.get(component).is_some_and(|link| *link) => {
                (follow()?, true)
            }
            ComponentSymlinks::Recorded(_) => (nofollow()?, false),
            ComponentSymlinks::Record(_) => match nofollow() {
                Err(Errno::NOTDIR | Errno::LOOP) => (follow()?, true),
                opened => (opened?, false),
            },
        };
        if let ComponentSymlinks::Record(links) = self {
            links.push(link);
        }
        Ok(opened)
    }
}

impl RootPath {
    /// Opens the directory at an absolute path, following all symbolic links on it.
    pub(crate) fn open(path: &Path) -> io::Result<(Self, Dir)> {
        let mut links = Vec::new();
        let dir = open_components(path, ComponentSymlinks::Record(&mut links))?;
        Ok((Self { path: path.to_owned(), links }, dir))
    }

    /// Opens the directory that is at the path now. Fails if a component has become a symbolic link since the path was
    /// first opened.
    pub(crate) fn reopen(&self) -> io::Result<Dir> {
        open_components(&self.path, ComponentSymlinks::Recorded(&self.links))
    }

    pub(crate) fn as_path(&self) -> &Path {
        &self.path
    }
}

/// Opens component by component, each relative to the one before.
#[cfg(target_os = "linux")]
fn open_components(path: &Path, mut links: ComponentSymlinks<'_>) -> io::Result<Dir> {
    use rustix::fs::{CWD, Mode, OFlags, openat};
    use std::path::Component;

    let directory = OFlags::DIRECTORY | OFlags::CLOEXEC;
    // `O_PATH`, since an ancestor may be searchable without being readable.
    let above = directory | OFlags::PATH;
    let last = directory | OFlags::RDONLY;
    let components: Vec<_> = path.components().filter(|component| *component != Component::RootDir).collect();
    let flags = |component: usize| if component == components.len() { last } else { above };
    let mut dir = openat(CWD, "/", flags(0), Mode::empty())?;
    for (n, component) in components.iter().enumerate() {
        let name = component.as_os_str();
        let open = |more| openat(&dir, name, flags(n + 1) | more, Mode::empty());
        dir = links.open(n, || open(OFlags::NOFOLLOW), || open(OFlags::empty()))?;
    }
    Ok(Dir::from_std_file(dir.into()))
}

/// Opens the whole path in one call. Only the last component can be checked for a symbolic link.
#[cfg(all(unix, not(target_os = "linux")))]
fn open_components(path: &Path, mut links: ComponentSymlinks<'_>) -> io::Result<Dir> {
    use rustix::fs::{Mode, OFlags};

    // Removes a trailing slash: with one, the system follows a symbolic link despite `O_NOFOLLOW`.
    let path: PathBuf = path.components().collect();
    let directory = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY;
    let open = |more| rustix::fs::open(&path, directory | more, Mode::empty());
    let dir = links.open(0, || open(OFlags::NOFOLLOW), || open(OFlags::empty()))?;
    Ok(Dir::from_std_file(dir.into()))
}

/// Checks for a symbolic link before and after opening, because `open_ambient_dir` has no option that rejects links.
#[cfg(not(unix))]
fn open_components(path: &Path, links: ComponentSymlinks<'_>) -> io::Result<Dir> {
    let is_link = || std::fs::symlink_metadata(path).map(|metadata| metadata.is_symlink());
    // Whether the path must not be a symbolic link: it was none when it was first opened.
    let refused = match links {
        ComponentSymlinks::Record(links) => {
            links.push(is_link()?);
            false
        }
        ComponentSymlinks::Recorded(links) => links == [false],
    };
    let missing = || Err(io::ErrorKind::NotFound.into());
    if refused && is_link()? {
        return missing();
    }
    let dir = Dir::open_ambient_dir(path, cap_std::ambient_authority())?;
    if refused && is_link()? { missing() } else { Ok(dir) }
}

#[cfg(all(test, unix))]
mod tests {
    use super::RootPath;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_recorded_symlinks_are_followed() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        for path in ["one/docs", "two/docs"] {
            fs::create_dir_all(folder.join(path)).unwrap();
            fs::write(folder.join(path).join(&path[..3]), "").unwrap();
        }
        let (link, docs) = (folder.join("link"), folder.join("one/docs"));
        let names = |dir: cap_std::fs::Dir| {
            dir.entries().unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>()
        };
        symlink("one/docs", &link).unwrap();
        let (linked, dir) = RootPath::open(&link).unwrap();
        assert_eq!(names(dir), ["one"]);
        // With a trailing slash too.
        let (plain, dir) = RootPath::open(&docs.join("")).unwrap();
        assert_eq!(names(dir), ["one"]);
        fs::remove_file(&link).unwrap();
        symlink("two/docs", &link).unwrap();
        assert_eq!(names(linked.reopen().unwrap()), ["two"]);
        fs::rename(&docs, folder.join("moved")).unwrap();
        assert_eq!(plain.reopen().err().unwrap().kind(), std::io::ErrorKind::NotFound);
        symlink(folder.join("two/docs"), &docs).unwrap();
        assert!(plain.reopen().is_err());
        fs::remove_file(&docs).unwrap();
        fs::rename(folder.join("two/docs"), &docs).unwrap();
        assert_eq!(names(plain.reopen().unwrap()), ["two"]);
    }
}
