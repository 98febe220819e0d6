//! The working tree: its status and its differences, compared with those of git.

use std::sync::Arc;

use libris_core::{ContentBody, Context, Error, Source, Uri, Visibility};
use libris_sources::{Git, git};

use crate::sandbox::{Sandbox, ask, config, json, listed, run, text, uri};

/// The lines of the status, without the legend.
async fn status(source: &Git) -> String {
    let page = text(source, "status").await;
    let lines = page.split("```").nth(1).map(|block| block.strip_prefix("text\n").unwrap_or(block));
    lines.unwrap_or_default().trim_end().to_owned()
}

fn printed(sandbox: &Sandbox) -> String {
    String::from_utf8(run(&sandbox.work, &["status", "--porcelain"])).unwrap().trim_end().to_owned()
}

/// The status and both diffs are those of git.
async fn check(sandbox: &Sandbox) {
    let source = sandbox.open();
    // Before git refreshes the index.
    let found =
        (status(&source).await, text(&source, "diff/staged").await, text(&source, "diff/worktree").await);
    let diff = |arguments: &[&str]| {
        let all = [&["diff", "--find-renames", "--full-index", "--no-ext-diff"], arguments].concat();
        String::from_utf8_lossy(&run(&sandbox.work, &all)).into_owned()
    };
    assert_eq!(found.0, printed(sandbox));
    assert_eq!(found.1, diff(&["--cached"]));
    assert_eq!(found.2, diff(&[]));
    // And after it.
    assert_eq!(status(&source).await, printed(sandbox));
    assert_eq!(text(&source, "diff/worktree").await, diff(&[]));
}

fn sandbox() -> Sandbox {
    Sandbox::with(&[
        ("a.txt", "one\ntwo\nthree\n"),
        ("b.txt", "b\n"),
        ("deep/er/c.txt", "c\n"),
        ("gone.txt", "gone\n"),
        ("long.txt", &(1..100).map(|line| format!("line {line}\n")).collect::<String>()),
        ("sp ace.txt", "x\n"),
        ("üml.txt", "x\n"),
    ])
}

#[tokio::test]
async fn a_clean_tree() {
    let sandbox = sandbox();
    check(&sandbox).await;
    let page = text(&sandbox.open(), "status").await;
    assert!(page.ends_with("Nothing is staged, modified or untracked.\n"), "{page}");
}

#[tokio::test]
async fn staged_and_not() {
    let sandbox = sandbox();
    sandbox.write("a.txt", b"one\n2\nthree\n");
    sandbox.write("new.txt", b"new\n");
    sandbox.git(&["mv", "long.txt", "deep/longer.txt"]);
    sandbox.git(&["rm", "--quiet", "gone.txt"]);
    sandbox.git(&["add", "a.txt", "new.txt"]);
    check(&sandbox).await;
    sandbox.write("a.txt", b"one\n2\nthree\nfour\n");
    sandbox.write("deep/er/c.txt", b"C\n");
    sandbox.write("sp ace.txt", b"y\n");
    sandbox.write("\u{fc}ml.txt", b"y\n");
    std::fs::remove_file(sandbox.work.join("b.txt")).unwrap();
    sandbox.write("untracked.txt", b"u\n");
    sandbox.write("folder/of/untracked.txt", b"u\n");
    sandbox.write("deep/er/untracked.txt", b"u\n");
    std::fs::create_dir_all(sandbox.work.join("empty/inside")).unwrap();
    check(&sandbox).await;
    let page = json(&sandbox.open(), "status?format=json").await;
    let entries = page["entries"].as_array().unwrap();
    let entry = entries.iter().find(|entry| entry["path"] == "deep/longer.txt").unwrap();
    assert_eq!((&entry["staged"], &entry["from"]), (&"R".into(), &"long.txt".into()));
    assert_eq!(page["branch"], "main");
    // One path.
    let source = sandbox.open();
    let part = text(&source, "diff/worktree?path=deep").await;
    assert!(part.contains("deep/er/c.txt") && !part.contains("a.txt"), "{part}");
    let part = text(&source, "diff/staged?path=a.txt").await;
    assert!(part.contains("a/a.txt") && !part.contains("new.txt"), "{part}");
}

#[tokio::test]
async fn ignore_rules_are_those_of_git() {
    let sandbox = Sandbox::with(&[
        (".gitignore", "*.log\n!keep.log\n/build/\ntarget\n*.bak\n"),
        ("src/.gitignore", "*.tmp\n!/good.tmp\n!kept.bak\n"),
        ("src/main.rs", "fn main() {}\n"),
        ("build-not/x", "x\n"),
    ]);
    for path in [
        "x.log",
        "keep.log",
        "build/out",
        "src/build/out",
        "target/a",
        "src/target/b",
        "src/a.tmp",
        "src/kept.bak",
        "src/other.bak",
        "src/good.tmp",
        "src/deep/good.tmp",
        "only-ignored/x.log",
        "half/x.log",
        "half/y.txt",
        "excluded.txt",
        "nested/a.txt",
        "with-rules/.gitignore",
        "with-rules/a",
    ] {
        sandbox.write(path, b"x\n");
    }
    sandbox.write("with-rules/.gitignore", b"*\n");
    std::fs::write(sandbox.work.join(".git/info/exclude"), "excluded.txt\n").unwrap();
    // A tracked file stays tracked, even if it is ignored.
    sandbox.git(&["add", "--force", "target/a"]);
    // Another repository.
    run(&sandbox.work.join("nested"), &["init", "--quiet"]);
    check(&sandbox).await;
    let shown = status(&sandbox.open()).await;
    assert!(
        shown.contains("?? nested/") && shown.contains("?? src/good.tmp") && !shown.contains("tmp/"),
        "{shown}"
    );
}

#[cfg(unix)]
#[tokio::test]
async fn types_and_modes() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    let sandbox = sandbox();
    symlink("a.txt", sandbox.work.join("link")).unwrap();
    sandbox.commit("link");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(sandbox.work.join("b.txt"), mode).unwrap();
    std::fs::remove_file(sandbox.work.join("link")).unwrap();
    symlink("b.txt", sandbox.work.join("link")).unwrap();
    std::fs::remove_file(sandbox.work.join("a.txt")).unwrap();
    symlink("/etc/passwd", sandbox.work.join("a.txt")).unwrap();
    std::fs::remove_file(sandbox.work.join("gone.txt")).unwrap();
    sandbox.write("gone.txt/is/a/folder", b"x\n");
    check(&sandbox).await;
    sandbox.git(&["config", "core.fileMode", "false"]);
    check(&sandbox).await;
    assert!(!status(&sandbox.open()).await.contains("b.txt"));
}

/// A directory that became a symbolic link is not followed: its files are deleted, and nothing outside is read.
#[cfg(unix)]
#[tokio::test]
async fn links_lead_nowhere() {
    let sandbox = sandbox();
    let outside = sandbox.dir.path().join("outside");
    std::fs::create_dir_all(outside.join("er")).unwrap();
    std::fs::write(outside.join("er/c.txt"), "secret\n").unwrap();
    std::fs::remove_dir_all(sandbox.work.join("deep")).unwrap();
    std::os::unix::fs::symlink("../outside", sandbox.work.join("deep")).unwrap();
    // Nor inside of the tree.
    sandbox.write("moved/x.txt", b"x\n");
    sandbox.git(&["add", "moved"]);
    std::fs::rename(sandbox.work.join("moved"), sandbox.work.join("elsewhere")).unwrap();
    std::os::unix::fs::symlink("elsewhere", sandbox.work.join("moved")).unwrap();
    std::fs::remove_file(sandbox.work.join("b.txt")).unwrap();
    std::os::unix::fs::symlink("../outside/er/c.txt", sandbox.work.join("b.txt")).unwrap();
    check(&sandbox).await;
    let source = sandbox.open();
    for rest in ["status", "diff/staged", "diff/worktree"] {
        assert!(!text(&source, rest).await.contains("secret"), "{rest}");
    }
}

/// Named pipes and devices are not opened.
#[cfg(unix)]
#[tokio::test]
async fn pipes_do_not_block() {
    let sandbox = sandbox();
    for name in ["b.txt", "pipe", ".gitignore"] {
        let path = sandbox.work.join(name);
        let _ = std::fs::remove_file(&path);
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    }
    assert_eq!(status(&sandbox.open()).await, " D b.txt");
}

#[tokio::test]
async fn before_the_first_commit() {
    let sandbox = Sandbox::empty();
    check(&sandbox).await;
    sandbox.write("a.txt", b"a\n");
    sandbox.write("b.txt", b"b\n");
    sandbox.git(&["add", "a.txt"]);
    check(&sandbox).await;
    sandbox.git(&["add", "--intent-to-add", "b.txt"]);
    check(&sandbox).await;
}

#[tokio::test]
async fn conflicts() {
    let sandbox = sandbox();
    sandbox.git(&["checkout", "--quiet", "-b", "side"]);
    sandbox.write("a.txt", b"side\n");
    sandbox.write("both.txt", b"side\n");
    std::fs::remove_file(sandbox.work.join("b.txt")).unwrap();
    sandbox.write("gone.txt", b"changed on the side\n");
    sandbox.commit("side");
    sandbox.git(&["checkout", "--quiet", "main"]);
    sandbox.write("a.txt", b"main\n");
    sandbox.write("both.txt", b"main\n");
    sandbox.write("b.txt", b"changed on main\n");
    std::fs::remove_file(sandbox.work.join("gone.txt")).unwrap();
    sandbox.commit("main");
    let merge = crate::sandbox::command(&sandbox.work).args(["merge", "--quiet", "side"]).output().unwrap();
    assert!(!merge.status.success());
    let source = sandbox.open();
    assert_eq!(status(&source).await, printed(&sandbox));
    assert!(status(&source).await.contains("UU a.txt"));
    assert!(text(&source, "diff/staged").await.contains("* Unmerged path a.txt\n"));
    assert!(text(&source, "diff/worktree").await.contains("* Unmerged path a.txt\n"));
}

/// All versions of the index are read, and line ends that git converts make no difference.
#[tokio::test]
async fn versions_of_the_index() {
    let sandbox = sandbox();
    for version in ["2", "3", "4"] {
        sandbox.git(&["update-index", "--index-version", version]);
        sandbox.write("a.txt", format!("{version}\n").as_bytes());
        sandbox.write(&format!("intent-{version}"), b"x\n");
        sandbox.git(&["add", "--intent-to-add", &format!("intent-{version}")]);
        check(&sandbox).await;
    }
    sandbox.git(&["update-index", "--assume-unchanged", "a.txt"]);
    sandbox.git(&["update-index", "--skip-worktree", "b.txt"]);
    sandbox.write("b.txt", b"changed\n");
    check(&sandbox).await;
    sandbox.git(&["update-index", "--split-index"]);
    let Err(Error::Unavailable(said)) = ask(&sandbox.open(), "status").await else { panic!() };
    assert!(said.contains("--no-split-index"), "{said}");
}

#[tokio::test]
async fn converted_line_ends() {
    let sandbox = Sandbox::with(&[(".gitattributes", "*.txt text eol=crlf\n"), ("plain", "a\nb\n")]);
    sandbox.write("a.txt", b"one\r\ntwo\r\n");
    sandbox.commit("crlf");
    let touch = |name: &str, data: &[u8]| {
        std::fs::remove_file(sandbox.work.join(name)).unwrap();
        sandbox.write(name, data);
    };
    touch("a.txt", b"one\r\ntwo\r\n");
    touch("plain", b"a\nb\n");
    check(&sandbox).await;
    assert_eq!(status(&sandbox.open()).await, "");
    sandbox.git(&["config", "core.autocrlf", "true"]);
    sandbox.write("plain", b"a\r\nc\r\n");
    check(&sandbox).await;
}

/// The same index with data of another checkout, as after copying a repository: files are compared by content.
#[tokio::test]
async fn a_copied_repository() {
    let sandbox = sandbox();
    let copy = sandbox.dir.path().join("copy");
    let copied = std::process::Command::new("cp").arg("-r").arg(&sandbox.work).arg(&copy).status().unwrap();
    assert!(copied.success());
    assert_eq!(status(&Git::open(config(&copy)).unwrap()).await, "");
}

#[tokio::test]
async fn without_a_working_tree() {
    let sandbox = sandbox();
    run(sandbox.dir.path(), &["clone", "--quiet", "--bare", "repo", "bare.git"]);
    let bare = Git::open(config(&sandbox.dir.path().join("bare.git"))).unwrap();
    for rest in ["status", "diff/staged", "diff/worktree"] {
        let Err(Error::Missing { hint, .. }) = ask(&bare, rest).await else { panic!("{rest}") };
        assert!(hint.contains("a bare repository has no working tree"), "{hint}");
    }
    assert!(listed(&bare).await.iter().all(|resource| resource.name != "status"));
    assert!(listed(&sandbox.open()).await.iter().any(|resource| resource.name == "status"));
    // The `.git` folder of a working tree.
    let inside = Git::open(config(&sandbox.work.join(".git"))).unwrap();
    sandbox.write("new", b"");
    assert_eq!(status(&inside).await, "?? new");
}

/// Whoever can write to `.git` cannot choose a folder whose files are read.
#[tokio::test]
async fn another_working_tree_is_not_read() {
    let sandbox = sandbox();
    let outside = sandbox.dir.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("secret.txt"), "secret\n").unwrap();
    sandbox.git(&["config", "core.worktree", outside.to_str().unwrap()]);
    let Err(Error::Missing { hint, .. }) = ask(&sandbox.open(), "status").await else { panic!() };
    assert!(hint.contains("the working tree is another folder"), "{hint}");
}

#[tokio::test]
async fn linked_working_trees_have_their_own_status() {
    let sandbox = sandbox();
    let linked = sandbox.dir.path().join("linked");
    sandbox.git(&["worktree", "add", "--quiet", "-b", "topic", linked.to_str().unwrap()]);
    std::fs::write(linked.join("a.txt"), "linked\n").unwrap();
    sandbox.write("b.txt", b"main\n");
    assert_eq!(status(&Git::open(config(&linked)).unwrap()).await, " M a.txt");
    assert_eq!(status(&sandbox.open()).await, " M b.txt");
}

/// Filters, hooks and external diffs of the repository's configuration are not run.
#[tokio::test]
async fn nothing_is_run() {
    let sandbox = sandbox();
    let canary = sandbox.dir.path().join("canary");
    let touch = format!("touch {}", canary.display());
    sandbox.write(".gitattributes", b"*.txt filter=evil diff=evil\n");
    for key in [
        "filter.evil.smudge",
        "filter.evil.clean",
        "filter.evil.process",
        "diff.evil.textconv",
        "diff.evil.command",
        "diff.external",
        "core.fsmonitor",
    ] {
        run(&sandbox.work, &["config", key, &touch]);
    }
    sandbox.write("a.txt", b"one\n2\nthree\n");
    let source = sandbox.open();
    for rest in ["status", "diff/staged", "diff/worktree", "blame/HEAD/a.txt", "commit/HEAD"] {
        ask(&source, rest).await.unwrap();
    }
    assert!(!canary.exists());
}

/// Hides URIs that contain `secret`.
struct NoSecrets;

impl Visibility for NoSecrets {
    fn sees(&self, uri: &Uri) -> bool {
        !uri.as_str().contains("secret")
    }
}

#[tokio::test]
async fn hidden_files_do_not_appear() {
    let sandbox = Sandbox::with(&[("a.txt", "a\n"), ("secret/key.txt", "a\n"), ("b-secret.txt", "b\n")]);
    for name in ["a.txt", "secret/key.txt", "b-secret.txt", "new-secret.txt", "secret-folder/x", "new.txt"] {
        sandbox.write(name, b"changed\n");
    }
    let excluding = git::Config { exclude: vec!["*secret*".into()], ..sandbox.config() };
    let context = Context::default().with_visibility(Arc::new(NoSecrets));
    let cases = [(sandbox.open(), context), (Git::open(excluding).unwrap(), Context::default())];
    for staged in [false, true] {
        if staged {
            sandbox.git(&["add", "--all"]);
        }
        for (source, context) in &cases {
            for rest in ["status", "status?format=json", "diff/staged", "diff/worktree"] {
                let parts = source.read(&uri(rest), context).await.unwrap().parts;
                let ContentBody::Text(seen) = &parts[0].body else { panic!("{rest}") };
                assert!(!seen.contains("secret"), "{rest}: {seen}");
                assert!(
                    seen.contains("a.txt") || staged == (rest == "diff/worktree") || rest == "diff/staged",
                    "{seen}"
                );
            }
        }
    }
}

/// Whoever can write to the folder around the repository replaces its working tree by a link to another one.
#[cfg(unix)]
#[tokio::test]
async fn a_working_tree_that_became_a_link_is_not_read() {
    let sandbox = sandbox();
    let outside = sandbox.dir.path().join("outside");
    run(sandbox.dir.path(), &["clone", "--quiet", "repo", "outside"]);
    std::fs::write(outside.join("a.txt"), "secret\n").unwrap();
    let source = sandbox.open();
    assert_eq!(text(&source, "diff/worktree").await, "");
    let moved = sandbox.dir.path().join("moved");
    std::fs::rename(&sandbox.work, &moved).unwrap();
    std::os::unix::fs::symlink(&outside, &sandbox.work).unwrap();
    for page in ["diff/worktree", "status"] {
        let error = ask(&source, page).await.unwrap_err();
        assert!(matches!(error, Error::Failed { .. }), "{page}: {error:?}");
    }
    std::fs::remove_file(&sandbox.work).unwrap();
    std::fs::rename(&moved, &sandbox.work).unwrap();
    assert_eq!(text(&source, "diff/worktree").await, "");
    // A link that the operator has named is followed.
    let link = sandbox.dir.path().join("link");
    std::os::unix::fs::symlink(&outside, &link).unwrap();
    assert!(text(&Git::open(config(&link)).unwrap(), "diff/worktree").await.contains("secret"));
}

/// As in folders, too many patterns along a path hide what is below.
#[tokio::test]
async fn ignore_patterns_are_bounded_along_a_path() {
    let sandbox = sandbox();
    let patterns: String = (0..4_000).map(|number| format!("no-such-{number}\n")).collect();
    let mut folder = String::new();
    for level in 0..6 {
        folder += &format!("{level}/");
        sandbox.write(&format!("{folder}.gitignore"), patterns.as_bytes());
        sandbox.write(&format!("{folder}tracked"), b"");
    }
    sandbox.commit("nested");
    sandbox.write("0/1/2/3/new", b"");
    sandbox.write("0/1/2/3/4/new", b"");
    assert_eq!(printed(&sandbox), "?? 0/1/2/3/4/new\n?? 0/1/2/3/new");
    assert_eq!(status(&sandbox.open()).await, "?? 0/1/2/3/new");
}
