//! Evidence that nothing has happened at some paths, for files that are read by path and not through a tree.

use std::collections::HashSet;
use std::path::Path;
use std::time::Instant;

use super::{ChangeScope, GenerationTracker, MAX_AGE, ObservedGeneration};
use crate::tree::is_missing;

/// Evidence that nothing at these paths, and no directory on the way to them, was changed, created, moved or removed
/// since [`watch`](Self::watch). It is not trusted for longer than [`MAX_AGE`].
pub(crate) struct QuietPaths {
    tracker: &'static GenerationTracker,
    observed: Vec<ObservedGeneration>,
    began: Instant,
}

impl QuietPaths {
    /// Watches the directories on the way from `root` to the files at `paths`, which need not exist. `None` if some
    /// changes cannot be detected: if a path is outside `root`, leads through a symbolic link or has another hard link,
    /// or if inotify is not available. The caller must check that the file system is local, and read the files after
    /// this call.
    pub(crate) fn watch<'p>(root: &Path, paths: impl IntoIterator<Item = &'p Path>) -> Option<Self> {
        let (tracker, began) = (GenerationTracker::shared()?, Instant::now());
        let mut observed = tracker.watch_ancestors(root)?;
        let mut watched = HashSet::new();
        for path in paths {
            let mut directories: Vec<_> =
                path.ancestors().skip(1).take_while(|above| above.starts_with(root)).collect();
            // From the top, so that whatever is replaced meanwhile causes an event above it.
            directories.reverse();
            if directories.first() != Some(&root) {
                return None;
            }
            for directory in directories {
                if watched.contains(directory) {
                    continue;
                }
                match directory.symlink_metadata() {
                    Ok(metadata) if metadata.is_dir() => {}
                    // Its creation would cause an event above it.
                    Err(cause) if is_missing(&cause) => break,
                    _ => return None,
                }
                observed.push(tracker.watch_path(directory)?.observe(ChangeScope::Files));
                watched.insert(directory);
            }
            match path.symlink_metadata() {
                Ok(metadata) if metadata.is_file() && !has_other_links(&metadata) => {}
                Err(cause) if is_missing(&cause) => {}
                _ => return None,
            }
        }
        Some(Self { tracker, observed, began })
    }

    /// Whether the evidence holds.
    pub(crate) fn hold(&self) -> bool {
        self.began.elapsed() < MAX_AGE
            && self.tracker.catch_up()
            && self.observed.iter().all(ObservedGeneration::holds)
    }
}

/// Whether a file can change through a hard link in another directory, which causes no event in its own.
fn has_other_links(metadata: &std::fs::Metadata) -> bool {
    #[cfg(unix)]
    return std::os::unix::fs::MetadataExt::nlink(metadata) > 1;
    #[cfg(not(unix))]
    {
        let _ = metadata;
        true
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::QuietPaths;

    /// Whether the evidence for these paths holds, after `change` was made.
    fn holds_after(names: &[&str], change: impl Fn(&Path)) -> bool {
        let folder = tempfile::tempdir().unwrap();
        // In a directory of its own: other tests create files beside the root.
        let root = folder.path().canonicalize().unwrap().join("above/root");
        fs::create_dir_all(root.join("refs/heads")).unwrap();
        fs::write(root.join("refs/heads/main"), "1").unwrap();
        let paths: Vec<_> = names.iter().map(|name| root.join(name)).collect();
        let evidence = QuietPaths::watch(&root, paths.iter().map(|path| path.as_path())).unwrap();
        change(&root);
        evidence.hold()
    }

    #[test]
    fn changes_of_the_files_and_of_the_way_to_them_end_the_evidence() {
        let names = &["refs/heads/main", "refs/tags/one/two", "packed"];
        // Events that other tests cause at the same time can end it too.
        assert!((0..1_000).any(|_| holds_after(names, |_| {})));
        let changes: [fn(&Path); 8] = [
            |root| fs::write(root.join("refs/heads/main"), "2").unwrap(),
            |root| fs::remove_file(root.join("refs/heads/main")).unwrap(),
            |root| {
                fs::write(root.join("refs/heads/main.lock"), "2").unwrap();
                fs::rename(root.join("refs/heads/main.lock"), root.join("refs/heads/main")).unwrap();
            },
            |root| fs::create_dir(root.join("refs/tags")).unwrap(),
            |root| fs::write(root.join("packed"), "2").unwrap(),
            |root| fs::rename(root.join("refs"), root.join("other")).unwrap(),
            |root| fs::rename(root, root.with_file_name("other")).unwrap(),
            |root| {
                let above = root.parent().unwrap();
                fs::rename(above, above.with_file_name("other")).unwrap();
            },
        ];
        for (number, change) in changes.into_iter().enumerate() {
            assert!(!holds_after(names, change), "change {number}");
        }
    }

    #[test]
    fn links_have_no_evidence() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        fs::write(root.join("file"), "1").unwrap();
        fs::hard_link(root.join("file"), root.join("hard")).unwrap();
        std::os::unix::fs::symlink("file", root.join("soft")).unwrap();
        fs::create_dir(root.join("folder")).unwrap();
        std::os::unix::fs::symlink("folder", root.join("linked")).unwrap();
        for name in ["hard", "soft", "linked/absent", "/outside"] {
            assert!(QuietPaths::watch(&root, [&*root.join(name)]).is_none(), "{name}");
        }
        assert!(QuietPaths::watch(&root.join("linked"), [&*root.join("linked/absent")]).is_none());
    }
}
