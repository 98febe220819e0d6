//! The paths of the events of a recursive watch.

use std::path::{Component, Path};

use super::super::dirty::{DirtySet, EntryEvent};
use crate::tree::name;

/// Marks the file or directory at the path of an event. `root` is the watched path. The event may spell names
/// differently from the listing: the scan finds that out.
pub(in super::super) fn mark_path(dirty: &mut DirtySet, root: &Path, path: &Path, entry_event: EntryEvent) {
    // The system spells the path of the root differently, so the event can be that of any entry.
    let Ok(path) = path.strip_prefix(root) else { return dirty.mark_lost() };
    let mut names = Vec::new();
    for part in path.components() {
        let Component::Normal(part) = part else { return dirty.mark_lost() };
        names.push(part);
    }
    let Some((name, parents)) = names.split_last() else { return dirty.mark_directory("", entry_event) };
    let mut key = String::new();
    for part in parents {
        // A name without a URI is not visible, nor is anything below it.
        let Some(segment) = name::to_segment(part) else { return };
        key.push_str(&segment);
        key.push('/');
    }
    dirty.mark_entry(&key, name, entry_event);
}

#[cfg(test)]
mod tests {
    use super::super::super::dirty::{DirtySet, EntryEvent};
    use super::mark_path;
    use std::path::Path;

    fn marked(path: &str) -> DirtySet {
        let mut dirty = DirtySet::default();
        mark_path(&mut dirty, Path::new("/srv/docs"), Path::new(path), EntryEvent::Modified);
        dirty
    }

    #[test]
    fn a_path_is_marked_in_its_directory() {
        for (path, key, segment) in [
            ("/srv/docs/a b.md", "", "a%20b.md"),
            ("/srv/docs/guide/deep/start.md", "guide/deep/", "start.md"),
            ("/srv/docs/GUIDE~1/Start.MD", "GUIDE~1/", "Start.MD"),
        ] {
            let dirty = marked(path);
            let names: Vec<_> = dirty.folders[key].names.iter().collect();
            assert_eq!(names, [(&segment.into(), &EntryEvent::Modified)], "{path}");
            assert!(!dirty.all, "{path}");
        }
    }

    #[test]
    fn a_path_outside_the_root_marks_everything() {
        for path in ["/srv/other/a.md", "/srv/DOCS/a.md", "a.md", "/srv/docs/../a.md"] {
            assert!(marked(path).lost, "{path}");
        }
    }
}
