use super::super::open_folders::RULES_PER_FOLDER;
use super::super::root::{Root, is_missing};
use super::super::walk::{Blocking, TreeWalk};
use super::super::{ChangeDetection, MAX_OPEN_FOLDERS, OpenFolder, TreeOptions, TreePath};
use super::{Arc, MAX_CACHED, MAX_FILE_SIZE, MAX_ON_PATH, MAX_PATTERNS, Path, Tree, hides_folder};
use std::fs;
use std::sync::Barrier;

fn open(path: &Path, options: &TreeOptions) -> Tree {
    Tree::open(options, Root::open(&path.canonicalize().unwrap()).unwrap()).unwrap()
}

/// A tree with the directory `sub`, which has this ignore file.
fn tree(rules: &str) -> (tempfile::TempDir, Tree) {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("sub")).unwrap();
    fs::write(folder.path().join("sub/.gitignore"), rules).unwrap();
    let tree = open(folder.path(), &TreeOptions::default());
    (folder, tree)
}

/// Whether both have the same path, and rules of the same identity.
fn is_same(one: &OpenFolder, other: &OpenFolder) -> bool {
    one.logical.identity().is_of(&other.logical)
}

/// An ignore file of the largest allowed size, with the maximum number of patterns.
fn large_file(n: usize) -> String {
    let size = usize::try_from(MAX_FILE_SIZE).unwrap() / MAX_PATTERNS;
    let line = |at: usize| format!("{:*<width$}\n", format!("{n}-{at}"), width = size - 1);
    (0..MAX_PATTERNS).map(line).collect()
}

/// Visits everything. Returns the keys of the directories.
fn walk(tree: &Tree) -> Vec<String> {
    let root = tree.watched_root().unwrap();
    let names = tree.names(&root).unwrap();
    let mut walk = TreeWalk::from_start(tree, root, names, Blocking::Allowed);
    let mut keys = Vec::new();
    while let Some(item) = walk.next_item().unwrap() {
        if let super::super::walk::WalkItem::Folder(folder) = item {
            keys.push(folder.logical.key.clone());
        }
    }
    keys
}

#[test]
fn an_unreadable_ignore_file_is_logged_once_and_hides_its_directory() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("sub/.gitignore")).unwrap();
    let tree = open(folder.path(), &TreeOptions::default());
    let root = tree.root().unwrap();
    assert!(tree.record_warning("sub/.ignore"));
    for _ in 0..2 {
        let entered = tree.open_child(&root, "sub", "sub".as_ref()).err().unwrap();
        assert!(hides_folder(&entered) && is_missing(&entered), "{entered:?}");
        assert!(!tree.record_warning("sub/.gitignore"));
    }
}

#[test]
fn the_same_text_has_one_identity_even_with_a_recent_stamp() {
    let (folder, tree) = tree("*.log\n");
    let root = tree.root().unwrap();
    let barrier = Barrier::new(8);
    let open = || {
        barrier.wait();
        tree.open_child_nofollow(&root, "sub".as_ref()).unwrap()
    };
    let entered: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(entered.iter().all(|folder| is_same(folder, &entered[0])));
    fs::write(folder.path().join("sub/.gitignore"), "*.txt\n").unwrap();
    let changed = tree.open_child_nofollow(&root, "sub".as_ref()).unwrap();
    assert!(!is_same(&changed, &entered[0]));
    assert!(tree.shows(&changed, "a.log".as_ref(), false) && !tree.shows(&changed, "a.txt".as_ref(), false));
}

#[test]
fn rules_that_change_above_change_the_identity_but_are_not_parsed_again() {
    let (folder, tree) = tree("*.log\n");
    let enter = || tree.open_child_nofollow(&tree.root().unwrap(), "sub".as_ref()).unwrap();
    let files = |folder: &OpenFolder| Arc::clone(&folder.logical.ignore_rules.as_ref().unwrap().files);
    let first = enter();
    for text in ["*.txt\n", "*.md\n"] {
        fs::write(folder.path().join(".gitignore"), text).unwrap();
        let changed = enter();
        assert!(!is_same(&first, &changed) && is_same(&changed, &enter()));
        assert!(Arc::ptr_eq(&files(&first), &files(&changed)));
        assert!(!tree.shows(&changed, format!("a{}", &text.trim()[1..]).as_ref(), false));
    }
}

#[test]
fn a_failure_is_cached_until_the_text_changes() {
    let (folder, tree) = tree(&"a\n".repeat(MAX_PATTERNS + 1));
    let root = tree.root().unwrap();
    let open = || tree.open_child_nofollow(&root, "sub".as_ref());
    for _ in 0..2 {
        let cause = open().err().unwrap();
        assert!(hides_folder(&cause));
        let why = "the ignore file `sub/.gitignore` cannot be read: it has more than 4096 patterns";
        assert_eq!(cause.to_string(), why);
        let cached = tree.cached_rules.get("sub/").expect("the failure");
        assert!(cached.outcome.is_err());
    }
    let comments = "# a comment\n\n".repeat(MAX_PATTERNS);
    let text = format!("{comments}{}", "a\n".repeat(MAX_PATTERNS));
    fs::write(folder.path().join("sub/.gitignore"), text).unwrap();
    assert!(open().is_ok());
}

#[test]
fn ignore_files_on_one_path_are_bounded_together() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("d/".repeat(60))).unwrap();
    let levels = |file: &dyn Fn(usize) -> String| {
        for depth in 1..=60 {
            fs::write(folder.path().join("d/".repeat(depth)).join(".gitignore"), file(depth)).unwrap();
        }
        let tree =
            open(folder.path(), &TreeOptions { watch: ChangeDetection::Poll, ..TreeOptions::default() });
        let keys = walk(&tree);
        let hidden = format!("{}.gitignore", "d/".repeat(keys.len()));
        assert_eq!(tree.warned.lock().unwrap().contains(&hidden), keys.len() < 61);
        assert!(tree.cached_rules.weight() <= MAX_CACHED);
        keys.len()
    };
    // The root and four directories.
    assert_eq!(levels(&large_file), 1 + MAX_ON_PATH.patterns / MAX_PATTERNS);
    let text = "#".repeat(usize::try_from(MAX_FILE_SIZE).unwrap());
    assert_eq!(levels(&|_| text.clone()), 1 + MAX_ON_PATH.text / text.len());
    let patterns = "a\n".repeat(3000);
    assert_eq!(levels(&|_| patterns.clone()), 1 + MAX_ON_PATH.patterns / 3000);
    assert_eq!(levels(&|_| "a\n".to_owned()), 61);
}

/// After many directories with large ignore files were listed, only bounded caches hold their rules.
#[test]
fn rules_are_held_only_by_bounded_caches() {
    const MANY: usize = 60;
    let folder = tempfile::tempdir().unwrap();
    // In a directory of its own, so that the directory of all temporary files is not watched.
    let path = folder.path().join("root");
    for n in 0..MANY {
        fs::create_dir_all(path.join(n.to_string())).unwrap();
        fs::write(path.join(format!("{n}/.gitignore")), large_file(n)).unwrap();
    }
    let tree = open(&path, &TreeOptions::default());
    let root = tree.watched_root().unwrap();
    let mut held = Vec::new();
    for n in 0..MANY {
        let name = n.to_string();
        let entered = tree.open_child(&root, &name, name.as_ref()).unwrap();
        assert_eq!(tree.names(&entered).unwrap().len(), 0);
        let rules = entered.logical.ignore_rules.as_ref().unwrap();
        held.push((Arc::downgrade(&rules.files), rules.size.bytes()));
    }
    let held: usize = held.iter().filter(|(files, _)| files.strong_count() > 0).map(|(_, bytes)| bytes).sum();
    assert!((1..=MAX_CACHED + MAX_OPEN_FOLDERS * RULES_PER_FOLDER).contains(&held), "{held}");
    // All listings are still cached.
    assert!((0..MANY).all(|n| tree.listings.get(&format!("{n}/")).is_some()));
    assert!((1..=MAX_CACHED).contains(&tree.cached_rules.weight()));
}

#[cfg(unix)]
#[test]
fn ignore_files_behind_symbolic_links_are_bounded_together() {
    let folder = tempfile::tempdir().unwrap();
    for n in 0..10 {
        // The directory itself has no ignore file, but the one above it has.
        let sub = folder.path().join(format!("t{n}/sub"));
        fs::create_dir_all(&sub).unwrap();
        fs::write(folder.path().join(format!("t{n}/.gitignore")), large_file(n)).unwrap();
        std::os::unix::fs::symlink(format!("../../t{}/sub", n + 1), sub.join("next")).unwrap();
    }
    let tree = open(folder.path(), &TreeOptions { symlinks: true, ..TreeOptions::default() });
    let mut entered = Arc::new(tree.root().unwrap());
    for name in ["t0", "sub", "next", "next", "next", "next"] {
        entered = tree.open_child(&entered, name, name.as_ref()).unwrap();
    }
    assert_eq!(entered.linked_rules, MAX_ON_PATH);
    let cause = tree.open_child(&entered, "next", "next".as_ref()).err().unwrap();
    assert!(hides_folder(&cause), "{cause}");
    assert_eq!(tree.names(&entered).unwrap().len(), 1);
}

#[test]
fn a_name_is_matched_quickly_unless_there_are_many_patterns() {
    let (folder, tree) = tree(&"a\n".repeat(4000));
    let enter = || tree.open_child_nofollow(&tree.root().unwrap(), "sub".as_ref()).unwrap();
    assert!(enter().matches_quickly());
    fs::write(folder.path().join("sub/.gitignore"), large_file(0)).unwrap();
    assert!(!enter().matches_quickly());
    assert_eq!(TreePath::default().rules_size().bytes(), 0);
}
