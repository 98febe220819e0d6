//! Symbolic links, named pipes and sockets, also while they are swapped for files (TOCTOU races).

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, Instant};

use libris_core::{ContentBody, Context, Error, Source};
use libris_sources::Files;
use libris_sources::files::Config;
use rustix::fs::{CWD, FileType, Mode, RenameFlags, mknodat, renameat_with};

use super::confinement::{CANARY, assert_unreachable, sandbox};
use super::sandbox::{BackgroundLoop, Sandbox, listed, read, uri};

fn sandbox_with_symlinks() -> Sandbox {
    let sandbox = sandbox();
    let link = |target: &str, name: &str| symlink(target, sandbox.path(name)).unwrap();
    link("../secret.txt", "file-out");
    link("../outside", "dir-out");
    link(sandbox.outside().join("secret.txt").to_str().unwrap(), "file-out-absolute");
    link("/", "dir-out-absolute");
    link("../root/in.txt", "out-and-in-again");
    link("dir-out", "chain");
    link("/proc/self/root", "magic");
    link("/proc/self/cwd", "magic-too");
    link("nowhere", "dangling");
    link("self", "self");
    link("in.txt", "file-in");
    link("dir", "dir-in");
    link("../in.txt", "dir/up");
    link("..", "dir/loop");
    sandbox
}

#[tokio::test]
async fn symlinks_are_not_followed_by_default() {
    let sandbox = sandbox_with_symlinks();
    let files = sandbox.files();
    assert_eq!(listed(&files).await, ["", "dir/", "dir/in.txt", "in.txt"]);
    for path in [
        "file-in",
        "dir-in",
        "dir-in/",
        "dir-in/in.txt",
        "dir/up",
        "dir/loop/in.txt",
        "file-out",
        "dir-out",
        "dir-out/in.txt",
        "file-out-absolute",
        "dir-out-absolute/etc/passwd",
        "out-and-in-again",
        "chain/in.txt",
        "magic/etc/passwd",
        "magic-too",
        "dangling",
        "self",
    ] {
        assert_unreachable(&files, &format!("file:///root/{path}")).await;
    }
}

#[tokio::test]
async fn followed_symlinks_stay_within_the_root() {
    let sandbox = sandbox_with_symlinks();
    let files = sandbox.files_with(|config| config.symlinks = true);
    assert_eq!(
        listed(&files).await,
        ["", "dir-in/", "dir-in/in.txt", "dir-in/up", "dir/", "dir/in.txt", "dir/up", "file-in", "in.txt"]
    );
    for path in ["file-in", "dir-in/in.txt", "dir/up", "dir-in/up"] {
        let parts = read(&files, path).await.unwrap();
        assert_eq!(parts[0].body, ContentBody::Text("inside".into()), "{path}");
    }
    for path in [
        "dir/loop/in.txt",
        "dir/loop/",
        "file-out",
        "dir-out",
        "dir-out/in.txt",
        "file-out-absolute",
        "dir-out-absolute/etc/passwd",
        "out-and-in-again",
        "chain/in.txt",
        "magic/etc/passwd",
        "magic-too",
        "dangling",
        "self",
    ] {
        assert_unreachable(&files, &format!("file:///root/{path}")).await;
    }
}

#[tokio::test]
async fn a_symlink_does_not_expose_hidden_files() {
    let sandbox = Sandbox::with(&[
        (".gitignore", "/dir/ignored.txt\nbuild/\n"),
        (".git/config", CANARY),
        (".env", CANARY),
        ("a.key", CANARY),
        ("build/out/x.txt", CANARY),
        ("dir/.gitignore", "/deep/also.txt\n"),
        ("dir/deep/also.txt", CANARY),
        ("dir/deep/fine.txt", "fine"),
        ("dir/ignored.txt", CANARY),
        ("dir/b.key", CANARY),
        ("plain", "not text by its name"),
    ]);
    for (target, name) in [
        (".git", "git"),
        (".git/config", "git-config"),
        (".env", "env"),
        ("a.key", "key.txt"),
        ("build", "built"),
        ("build/out", "out"),
        ("build/out/x.txt", "x.txt"),
        ("dir/ignored.txt", "ignored.txt"),
        ("dir/deep/also.txt", "also.txt"),
        ("env", "link-to-link"),
        ("dir", "dir-in"),
        ("dir/deep", "deep-in"),
        ("dir-in/deep/fine.txt", "fine.txt"),
        ("dir/deep/fine.txt", ".hidden-link"),
        (".hidden-link", "shown-link"),
        ("../plain", "dir/excluded.key"),
    ] {
        symlink(target, sandbox.path(name)).unwrap();
    }
    let files = sandbox.files_with(|config| {
        config.symlinks = true;
        config.exclude = vec!["*.key".into()];
    });
    let shown = [
        "",
        "deep-in/",
        "deep-in/fine.txt",
        "dir-in/",
        "dir-in/deep/",
        "dir-in/deep/fine.txt",
        "dir/",
        "dir/deep/",
        "dir/deep/fine.txt",
        "fine.txt",
        "plain",
        "shown-link",
    ];
    assert_eq!(listed(&files).await, shown);
    for path in shown {
        for part in read(&files, path).await.unwrap() {
            assert_ne!(part.body, ContentBody::Text(CANARY.into()), "{path}");
        }
    }
    for path in [
        "git",
        "git/",
        "git/config",
        "git-config",
        "env",
        "key.txt",
        "built/",
        "built/out/x.txt",
        "out/x.txt",
        "x.txt",
        "ignored.txt",
        "also.txt",
        "link-to-link",
        "dir-in/ignored.txt",
        "dir-in/b.key",
        "dir-in/deep/also.txt",
        "deep-in/also.txt",
        ".hidden-link",
        "dir-in/excluded.key",
    ] {
        assert_unreachable(&files, &format!("file:///root/{path}")).await;
    }
    // `include` hides targets as well, and fewer filters expose more of them.
    let text = sandbox.files_with(|config| {
        config.symlinks = true;
        config.include = vec!["*.txt".into(), "*-link".into()];
    });
    assert_unreachable(&text, "file:///root/dir/excluded.key").await;
    let all = sandbox.files_with(|config| {
        config.symlinks = true;
        config.hidden = true;
        config.gitignore = false;
    });
    for path in ["env", "link-to-link", "key.txt", "built/out/x.txt", "ignored.txt", ".hidden-link"] {
        read(&all, path).await.unwrap();
    }
    assert_unreachable(&all, "file:///root/git/config").await;
}

#[tokio::test]
async fn race_between_visible_and_hidden_symlink_targets() {
    let sandbox = Sandbox::with(&[("in.txt", "inside"), (".env", CANARY), ("dir/in.txt", "inside")]);
    sandbox.write(".hidden/in.txt", CANARY);
    for (target, name) in [("in.txt", "one"), (".env", "other"), ("dir", "two"), (".hidden", "another")] {
        symlink(target, sandbox.path(name)).unwrap();
    }
    let files = sandbox.files_with(|config| config.symlinks = true);
    race(&sandbox, &files, &["one", "other", ""], ["one", "other"]).await;
    race(&sandbox, &files, &["two/in.txt", "another/in.txt", "two/"], ["two", "another"]).await;
}

#[tokio::test]
async fn a_directory_replaced_by_a_symlink_is_not_followed() {
    let sandbox = sandbox();
    for files in [sandbox.files(), sandbox.files_with(|config| config.symlinks = true)] {
        let page = files.list(None, 100, &Context::default()).await.unwrap();
        assert!(page.resources.iter().any(|resource| resource.uri == uri("file:///root/dir/in.txt")));
        fs::rename(sandbox.path("dir"), sandbox.path("moved")).unwrap();
        symlink("../outside", sandbox.path("dir")).unwrap();
        assert_unreachable(&files, "file:///root/dir/in.txt").await;
        assert_unreachable(&files, "file:///root/dir/").await;
        assert_eq!(listed(&files).await, ["", "in.txt", "moved/", "moved/in.txt"]);
        fs::remove_file(sandbox.path("dir")).unwrap();
        fs::rename(sandbox.path("moved"), sandbox.path("dir")).unwrap();
    }
}

/// Swaps two names back and forth while these paths are read.
async fn race(sandbox: &Sandbox, files: &Files, paths: &[&str], names: [&str; 2]) {
    let [one, other] = names.map(|name| sandbox.path(name));
    let _swapping = BackgroundLoop::each(move |_| {
        renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).unwrap();
    });
    for round in 0..1500 {
        let path = paths[round % paths.len()];
        match read(files, path).await {
            Ok(parts) => {
                for part in parts {
                    assert_ne!(part.body, ContentBody::Text(CANARY.into()), "{path}");
                }
            }
            Err(error) if error.is_not_found() => {}
            Err(error) => panic!("{path}: {error:?}"),
        }
    }
}

#[tokio::test]
async fn race_between_a_directory_and_a_symlink() {
    let sandbox = sandbox();
    symlink("../outside", sandbox.path("other")).unwrap();
    for follow in [false, true] {
        let files = sandbox.files_with(|config| config.symlinks = follow);
        race(&sandbox, &files, &["dir/in.txt", "dir/", "", "other/in.txt"], ["dir", "other"]).await;
    }
}

#[tokio::test]
async fn race_between_a_file_and_a_symlink() {
    let sandbox = sandbox();
    symlink("../secret.txt", sandbox.path("other.txt")).unwrap();
    for follow in [false, true] {
        let files = sandbox.files_with(|config| config.symlinks = follow);
        race(&sandbox, &files, &["in.txt", "", "in.txt?lines=1", "in.txt?bytes=0-"], ["in.txt", "other.txt"])
            .await;
    }
}

#[tokio::test]
async fn race_between_the_root_and_a_symlink() {
    // With and without a trailing slash, with which the system itself would follow a symbolic link.
    for end in ["", "/"] {
        let sandbox = sandbox();
        let [root, other] = ["root", "other"].map(|name| sandbox.outside().join(name));
        symlink("outside", &other).unwrap();
        let path = format!("{}{end}", root.display());
        let files = Files::open(Config { mount: Some("root".into()), ..Config::new(path) }).unwrap();
        let swapping = BackgroundLoop::each(move |_| {
            renameat_with(CWD, &root, CWD, &other, RenameFlags::EXCHANGE).unwrap();
        });
        let started = Instant::now();
        let (mut inside, mut outside) = (0, 0);
        // The directory outside has no `dir`, so a listing reveals it too.
        while started.elapsed() < Duration::from_secs(2) || inside == 0 {
            assert!(started.elapsed() < Duration::from_secs(20), "the folder was never at its path");
            match read(&files, "in.txt").await {
                Ok(parts) if parts[0].body == ContentBody::Text(CANARY.into()) => outside += 1,
                Ok(_) => inside += 1,
                Err(Error::Unavailable(_) | Error::NotFound(_) | Error::Missing { .. }) => {}
                Err(error) => panic!("{error:?}"),
            }
            if let Ok(page) = files.list(None, 100, &Context::default()).await {
                let is_inside = |at: &str| page.resources.iter().any(|it| it.uri.as_str().ends_with(at));
                outside += usize::from(!is_inside("/dir/in.txt"));
            }
        }
        assert_eq!(outside, 0, "of {inside} reads and as many listings at {end:?}");
        drop(swapping);
    }
}

#[tokio::test]
async fn an_ancestor_replaced_by_a_symlink_is_not_followed() {
    let sandbox = Sandbox::with(&[("parent/served/in.txt", "inside")]);
    fs::create_dir_all(sandbox.outside().join("elsewhere/served")).unwrap();
    fs::write(sandbox.outside().join("elsewhere/served/in.txt"), CANARY).unwrap();
    let config = Config { mount: Some("root".into()), ..Config::new(sandbox.path("parent/served")) };
    let files = Files::open(config).unwrap();
    assert!(read(&files, "in.txt").await.is_ok());
    fs::rename(sandbox.path("parent"), sandbox.path("moved")).unwrap();
    symlink(sandbox.outside().join("elsewhere"), sandbox.path("parent")).unwrap();
    let swapped = read(&files, "in.txt").await;
    assert!(matches!(swapped, Err(Error::Unavailable(_))), "{swapped:?}");
    fs::remove_file(sandbox.path("parent")).unwrap();
    fs::rename(sandbox.path("moved"), sandbox.path("parent")).unwrap();
    assert_eq!(read(&files, "in.txt").await.unwrap()[0].body, ContentBody::Text("inside".into()));
}

#[tokio::test]
async fn a_symlink_in_the_root_path_is_followed_to_its_new_target() {
    let sandbox = Sandbox::with(&[("one/docs/a.txt", "1"), ("two/docs/a.txt", "2")]);
    let current = sandbox.outside().join("current");
    symlink("root/one", &current).unwrap();
    let config = Config { mount: Some("root".into()), ..Config::new(current.join("docs")) };
    let files = Files::open(config).unwrap();
    for (target, text) in [("root/one", "1"), ("root/two", "2"), ("root/one", "1")] {
        fs::remove_file(&current).unwrap();
        symlink(target, &current).unwrap();
        assert_eq!(read(&files, "a.txt").await.unwrap()[0].body, ContentBody::Text(text.into()));
    }
}

fn pipe(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
}

#[tokio::test]
async fn pipes_and_sockets_do_not_exist() {
    let sandbox = sandbox();
    pipe(&sandbox.path("pipe"));
    symlink("pipe", sandbox.path("link-to-pipe")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(sandbox.path("socket")).unwrap();
    for follow in [false, true] {
        let files = sandbox.files_with(|config| config.symlinks = follow);
        let work = async {
            assert_eq!(listed(&files).await, ["", "dir/", "dir/in.txt", "in.txt"]);
            for path in ["pipe", "pipe?lines=1", "pipe/", "link-to-pipe", "socket"] {
                assert_unreachable(&files, &format!("file:///root/{path}")).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), work).await.expect("waited for a pipe");
    }
}

#[tokio::test]
async fn race_between_a_file_and_a_named_pipe() {
    let sandbox = sandbox();
    pipe(&sandbox.path("other.txt"));
    let files = sandbox.files();
    let race = race(&sandbox, &files, &["in.txt", ""], ["in.txt", "other.txt"]);
    tokio::time::timeout(Duration::from_secs(60), race).await.expect("waited for a pipe");
}
