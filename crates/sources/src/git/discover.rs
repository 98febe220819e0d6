//! Finds the repository around a folder that is named on the command line.

use std::fs::Metadata;
use std::path::{Path, PathBuf};

/// The root of the working tree that contains a path. `None` if the path itself is a repository, or is not in a
/// working tree that is trusted.
///
/// Another user may have created a `.git` in a parent folder, for example in `/tmp`. So `.git` must not be a
/// symbolic link, and `.git` and its folder must belong to the user of this process. The folder must be on the same
/// file system as the path.
pub(super) fn working_tree_of(path: &Path) -> Option<PathBuf> {
    let path = path.canonicalize().ok()?;
    if is_repository(&path) {
        return None;
    }
    let start = std::fs::metadata(&path).ok()?;
    for folder in path.ancestors() {
        let metadata = std::fs::symlink_metadata(folder).ok()?;
        if !is_same_device(&start, &metadata) {
            return None;
        }
        let Ok(git) = std::fs::symlink_metadata(folder.join(".git")) else { continue };
        let is_trusted = !git.is_symlink() && is_own(&git) && is_own(&metadata);
        return is_trusted.then(|| folder.to_owned());
    }
    None
}

/// Whether a path is the root of a working tree, a `.git` folder or a bare repository.
fn is_repository(path: &Path) -> bool {
    let is_there = |name: &str| std::fs::symlink_metadata(path.join(name)).is_ok();
    is_there(".git") || (is_there("HEAD") && is_there("objects") && is_there("refs"))
}

#[cfg(unix)]
fn is_own(metadata: &Metadata) -> bool {
    std::os::unix::fs::MetadataExt::uid(metadata) == rustix::process::geteuid().as_raw()
}

#[cfg(not(unix))]
fn is_own(_: &Metadata) -> bool {
    true
}

#[cfg(unix)]
fn is_same_device(one: &Metadata, other: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    one.dev() == other.dev()
}

#[cfg(not(unix))]
fn is_same_device(_: &Metadata, _: &Metadata) -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::working_tree_of;

    #[test]
    fn a_folder_inside_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("repo/.git")).unwrap();
        std::fs::create_dir_all(root.join("repo/a/b")).unwrap();
        std::fs::write(root.join("repo/a/file"), "").unwrap();
        let repo = Some(root.join("repo"));
        assert_eq!(working_tree_of(&root.join("repo/a/b")), repo);
        assert_eq!(working_tree_of(&root.join("repo/a/../a/b/")), repo);
        assert_eq!(working_tree_of(&root.join("repo/a/file")), repo);
        assert_eq!(working_tree_of(&root.join("repo/.git")), repo);
        for other in ["", "repo", "nothing"] {
            assert_eq!(working_tree_of(&root.join(other)), None, "{other}");
        }
    }

    #[test]
    fn a_bare_repository_inside_is_itself() {
        let folder = tempfile::tempdir().unwrap();
        let bare = folder.path().join("repo/bare.git");
        std::fs::create_dir_all(folder.path().join("repo/.git")).unwrap();
        for name in ["objects", "refs", "HEAD"] {
            std::fs::create_dir_all(bare.join(name)).unwrap();
        }
        assert_eq!(working_tree_of(&bare), None);
    }

    #[cfg(unix)]
    #[test]
    fn a_symbolic_link_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("other/.git")).unwrap();
        std::fs::create_dir_all(root.join("repo/a")).unwrap();
        std::os::unix::fs::symlink("../other/.git", root.join("repo/.git")).unwrap();
        assert_eq!(working_tree_of(&root.join("repo/a")), None);
    }
}
