//! Hidden, excluded and ignored files exist neither in a listing nor in a read.

use std::fs;

use libris_core::{Context, Error, Source};

use super::sandbox::{Sandbox, is_not_found, listed, read, rendered, rendered_children};

#[tokio::test]
async fn ignore_files_hide_files() {
    let sandbox = Sandbox::with(&[
        (".gitignore", "*.log\n/build/\n!keep.log\nsecret\n"),
        ("a.log", ""),
        ("keep.log", ""),
        ("build/out.txt", ""),
        ("src/build/out.txt", ""),
        ("src/.gitignore", "!a.log\n*.tmp\n/only-here\n"),
        ("src/a.log", ""),
        ("src/b.log", ""),
        ("src/x.tmp", ""),
        ("src/only-here", ""),
        ("src/deep/only-here", ""),
        ("src/deep/secret/key", ""),
        ("x.tmp", ""),
        ("ignored-by-ignore", ""),
        (".ignore", "ignored-by-ignore\n!b.log\n"),
        (".git/info/exclude", "mine\n"),
        ("mine", ""),
    ]);
    let files = sandbox.files();
    assert_eq!(
        listed(&files).await,
        [
            "",
            "keep.log",
            "src/",
            "src/a.log",
            "src/b.log",
            "src/build/",
            "src/build/out.txt",
            "src/deep/",
            "src/deep/only-here",
            "x.tmp"
        ]
    );
    for path in [
        "a.log",
        "build/",
        "build",
        "build/out.txt",
        "src/x.tmp",
        "src/only-here",
        "src/deep/secret/key",
        "src/deep/secret",
        "ignored-by-ignore",
        "mine",
        ".gitignore",
        ".git/info/exclude",
    ] {
        assert!(is_not_found(&read(&files, path).await), "{path}");
    }
    let all = sandbox.files_with(|config| config.gitignore = false);
    for path in ["a.log", "build/out.txt", "src/x.tmp", "src/deep/secret/key", "mine"] {
        read(&all, path).await.unwrap();
    }
}

#[tokio::test]
async fn an_ignore_file_edited_in_place() {
    let sandbox = Sandbox::with(&[
        (".gitignore", "aaaa\n"),
        ("aaaa", ""),
        ("bbbb", ""),
        ("d/aaaa", ""),
        ("d/bbbb", ""),
    ]);
    let files = sandbox.files();
    for _ in 0..20 {
        fs::write(sandbox.path(".gitignore"), "aaaa\n").unwrap();
        assert_eq!(listed(&files).await, ["", "bbbb", "d/", "d/bbbb"]);
        // The size and the directory entries are the same, and perhaps the timestamp too.
        fs::write(sandbox.path(".gitignore"), "bbbb\n").unwrap();
        assert_eq!(listed(&files).await, ["", "aaaa", "d/", "d/aaaa"]);
        assert!(is_not_found(&read(&files, "d/bbbb").await));
    }
}

#[tokio::test]
async fn include_and_exclude() {
    let sandbox = Sandbox::with(&[
        ("a.md", ""),
        ("b.rs", ""),
        ("guide/c.md", ""),
        ("guide/d.txt", ""),
        ("drafts/e.md", ""),
        ("notes/drafts/f.md", ""),
    ]);
    let files = sandbox.files_with(|config| {
        config.include = vec!["*.md".into()];
        config.exclude = vec!["/drafts/".into()];
    });
    assert_eq!(
        listed(&files).await,
        ["", "a.md", "guide/", "guide/c.md", "notes/", "notes/drafts/", "notes/drafts/f.md"]
    );
    for path in ["b.rs", "guide/d.txt", "drafts/e.md", "drafts/"] {
        assert!(is_not_found(&read(&files, path).await), "{path}");
    }
    insta::assert_snapshot!(rendered_children(&files, "guide").await, @r#"file:///root/guide/c.md text/markdown text """#);
}

#[cfg(unix)]
#[tokio::test]
async fn files_without_read_permission_are_hidden() {
    use std::collections::BTreeMap;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use libris_core::CompletionRequest;

    let sandbox = Sandbox::with(&[
        ("open.txt", "x"),
        ("closed.txt", "x"),
        ("closed/x.txt", "x"),
        ("only-names/x.txt", "x"),
        ("only-enter/x.txt", "x"),
    ]);
    symlink("closed.txt", sandbox.path("link.txt")).unwrap();
    symlink("only-enter/x.txt", sandbox.path("link-below.txt")).unwrap();
    let set =
        |path: &str, mode| fs::set_permissions(sandbox.path(path), fs::Permissions::from_mode(mode)).unwrap();
    let modes = [("closed", 0o000), ("closed.txt", 0o000), ("only-names", 0o600), ("only-enter", 0o300)];
    for (path, mode) in modes {
        set(path, mode);
    }
    // The superuser can read everything.
    if fs::read(sandbox.path("closed.txt")).is_err() {
        for follow in [false, true] {
            let files = sandbox.files_with(|config| config.symlinks = follow);
            assert_eq!(listed(&files).await, ["", "open.txt"]);
            let children = files.children(files.root(), None, 9, &Context::default()).await.unwrap();
            assert_eq!(children.resources.len(), 1);
            assert_eq!(rendered_children(&files, "").await, r#"file:///root/open.txt text/plain text "x""#);
            let templates = files.templates(&Context::default()).await.unwrap().templates;
            let known = BTreeMap::new();
            let asked = CompletionRequest {
                template: &templates[0].uri,
                variable: "path",
                typed: "",
                known: &known,
                limit: 100,
            };
            assert_eq!(files.complete(asked, &Context::default()).await.unwrap().values, ["open.txt"]);
            for path in [
                "closed.txt",
                "closed/",
                "closed/x.txt",
                "only-names/",
                "only-names/x.txt",
                "only-enter/",
                "only-enter/x.txt",
                "link.txt",
                "link-below.txt",
            ] {
                let read = read(&files, path).await;
                assert!(is_not_found(&read) || matches!(read, Err(Error::Denied(_))), "{path}: {read:?}");
            }
            for mode in [0o000, 0o300, 0o600] {
                set("", mode);
                let listed = files.list(None, 10, &Context::default()).await;
                assert!(matches!(listed, Err(Error::Unavailable(_))), "{mode:o} {listed:?}");
                for path in ["", "open.txt"] {
                    let read = read(&files, path).await;
                    assert!(matches!(read, Err(Error::Unavailable(_))), "{mode:o} {path}: {read:?}");
                }
                set("", 0o700);
            }
        }
    }
    for (path, _) in modes {
        set(path, 0o700);
    }
    assert_eq!(listed(&sandbox.files()).await.len(), 9);
}

#[tokio::test]
async fn a_deleted_root_is_unavailable_until_it_is_back() {
    let sandbox = Sandbox::with(&[("x", "1")]);
    let files = sandbox.files();
    fs::remove_dir_all(sandbox.path("")).unwrap();
    assert!(matches!(files.list(None, 10, &Context::default()).await, Err(Error::Unavailable(_))));
    insta::assert_snapshot!(rendered(&files, "x").await, @"Unavailable: `root` cannot be read now; hint: check that it still exists and that Libris may read it");
    sandbox.write("x", "2");
    insta::assert_snapshot!(rendered(&files, "x").await, @r#"file:///root/x text/plain text "2""#);
}

#[test]
fn opening_a_missing_root_is_an_error() {
    let open =
        |path: &str| libris_sources::Files::open(libris_sources::files::Config::new(path)).err().unwrap();
    insta::assert_snapshot!(open("/no/such/folder"), @"there is no file or folder `/no/such/folder`; hint: check the path");
    insta::assert_snapshot!(open("~/docs"), @"there is no file or folder `~/docs`; hint: `~` is expanded by the shell and not here, so write the whole path");
    insta::assert_snapshot!(open("/no/~ada/docs"), @"there is no file or folder `/no/~ada/docs`; hint: `~` is expanded by the shell and not here, so write the whole path");
    insta::assert_snapshot!(open(""), @"a folder to serve has no `path`; hint: set `path` to the folder");
}

#[test]
fn opening_a_misspelt_root_suggests_the_most_similar_name() {
    let sandbox = Sandbox::new();
    sandbox.write("handbook/a.md", "");
    sandbox.write("handmade", "");
    let folder = sandbox.path("").display().to_string();
    let open = |name: &str| {
        let path = sandbox.path(name);
        let error = libris_sources::Files::open(libris_sources::files::Config::new(path)).err().unwrap();
        error.to_string().replace(folder.trim_end_matches('/'), "FOLDER")
    };
    insta::assert_snapshot!(open("handbok"), @"there is no file or folder `FOLDER/handbok`; hint: check the path; did you mean `FOLDER/handbook`?");
    insta::assert_snapshot!(open("minutes"), @"there is no file or folder `FOLDER/minutes`; hint: check the path");
    // The folder that is missing is not the last one, so nothing beside it is similar.
    insta::assert_snapshot!(open("handbok/a.md"), @"there is no file or folder `FOLDER/handbok/a.md`; hint: check the path");
}

#[tokio::test]
async fn patterns_that_libraries_match_differently_from_git() {
    let sandbox = Sandbox::with(&[
        (".gitignore", "[a\\]b]1\n[a-b-c]2\ntab\t\nx/***/y\nprefix**/z\n"),
        ("]1", ""),
        ("-2", ""),
        ("tab\t", ""),
        ("x/deep/er/y", ""),
        ("prefixed/deep/z", ""),
        ("tab", ""),
    ]);
    let files = sandbox.files();
    assert_eq!(
        listed(&files).await,
        ["", "prefixed/", "prefixed/deep/", "tab", "x/", "x/deep/", "x/deep/er/"]
    );
    assert!(is_not_found(&read(&files, "%5D1").await));
}

#[tokio::test]
async fn an_ignore_file_that_is_too_large_hides_its_folder() {
    let sandbox = Sandbox::with(&[("a.txt", "a"), ("sub/b.txt", "b")]);
    sandbox.write("sub/.gitignore", "*a*b*c\n".repeat(150_000));
    let files = sandbox.files();
    for _ in 0..16 {
        assert!(read(&files, "sub/b.txt").await.is_err());
    }
    assert!(read(&files, "a.txt").await.is_ok());
}

#[tokio::test]
async fn a_file_below_many_patterns_is_read_and_hidden() {
    let sandbox = Sandbox::with(&[("sub/shown.txt", "x"), ("sub/aaa.txt", "x")]);
    sandbox.write("sub/.gitignore", format!("{:a<250}\n", "*").repeat(1_000) + "*aa*\n");
    let files = sandbox.files();
    for _ in 0..3 {
        assert_eq!(listed(&files).await, ["", "sub/", "sub/shown.txt"]);
        assert!(read(&files, "sub/shown.txt").await.is_ok());
        assert!(is_not_found(&read(&files, "sub/aaa.txt").await));
    }
}
