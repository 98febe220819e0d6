//! Nothing outside of the folder is read, however it is asked for.

use std::fs;
use std::time::Duration;

use libris_core::{Body, Context, Error, Source, Uri};
use libris_sources::Files;

use super::sandbox::{Meanwhile, Sandbox, listed, read, uri};

const CANARY: &str = "CANARY: this is outside";

fn sandbox() -> Sandbox {
    let sandbox = Sandbox::with(&[("in.txt", "inside"), ("dir/in.txt", "inside")]);
    fs::write(sandbox.outside().join("secret.txt"), CANARY).unwrap();
    for folder in ["root-secret", "outside"] {
        fs::create_dir(sandbox.outside().join(folder)).unwrap();
        fs::write(sandbox.outside().join(folder).join("in.txt"), CANARY).unwrap();
    }
    sandbox
}

/// Reads, lists and asks for children; only not found, not a directory and invalid are right.
async fn assert_closed(files: &Files, text: &str) {
    let Ok(uri) = Uri::parse(text) else { return };
    let read = files.read(&uri, &Context::default()).await;
    assert!(matches!(read, Err(Error::NotFound(_) | Error::Invalid(_))), "{text}: {read:?}");
    let children = files.children(&uri, None, 10).await;
    assert!(matches!(children, Err(Error::NotFound(_))), "{text}: {children:?}");
}

#[tokio::test]
async fn tricks_with_paths() {
    let sandbox = sandbox();
    let outside = sandbox.outside().display().to_string();
    for files in [sandbox.files(), sandbox.files_with(|config| config.symlinks = true)] {
        for path in [
            "../secret.txt",
            "../root-secret/in.txt",
            "../root/../secret.txt",
            "dir/../../secret.txt",
            "dir/../../../../../../../../../../etc/passwd",
            "%2e%2e/secret.txt",
            "%2E%2e/secret.txt",
            ".%2e/secret.txt",
            "..%2fsecret.txt",
            "..%2Fsecret.txt",
            "%2e%2e%2fsecret.txt",
            "dir%2f..%2f..%2fsecret.txt",
            "dir/..%2f../secret.txt",
            "%252e%252e/secret.txt",
            "%252e%252e%252fsecret.txt",
            "..%252fsecret.txt",
            "..%5csecret.txt",
            "..\\secret.txt",
            "%c0%ae%c0%ae/secret.txt",
            "%e0%80%ae%e0%80%ae/secret.txt",
            "..;/secret.txt",
            "....//secret.txt",
            "%2fetc/passwd",
            "/etc/passwd",
            "//etc/passwd",
            "%2f",
            "%00",
            "in.txt%00",
            "in.txt%00.md",
            "%00/../secret.txt",
            "in.txt/",
            "in.txt/.",
            "in.txt/..%2fin.txt",
            "dir//in.txt",
            "in.txt#fragment",
            "in.txt?path=secret.txt",
            "in.txt?",
            "?path=../secret.txt",
            "C:%5cWindows",
            "file:%2f%2f%2fetc%2fpasswd",
        ] {
            assert_closed(&files, &format!("file:///root/{path}")).await;
        }
        for text in [
            format!("file://{outside}/secret.txt"),
            format!("file:///root{outside}/secret.txt"),
            format!("file:///root/{outside}/secret.txt"),
            "file:///etc/passwd".into(),
            "file:///root-secret/in.txt".into(),
            "file:///root%2Fdir/in.txt".into(),
            "file:///root%2f../secret.txt".into(),
            "file:///ROOT/in.txt".into(),
            "file:///roo".into(),
            "file:/root/in.txt".into(),
            "file://localhost/root/in.txt".into(),
            "file://root/in.txt".into(),
            "http:///root/in.txt".into(),
        ] {
            assert_closed(&files, &text).await;
        }
        // Dot segments that stay inside are gone before anybody looks.
        assert_eq!(read(&files, "dir/../in.txt").await.unwrap()[0].uri, uri("file:///root/in.txt"));
    }
}

#[cfg(unix)]
mod links {
    use super::{
        Body, CANARY, Duration, Error, Files, Meanwhile, Sandbox, Source, assert_closed, fs, listed, read,
        sandbox, uri,
    };
    use rustix::fs::{CWD, FileType, Mode, RenameFlags, mknodat, renameat_with};
    use std::os::unix::fs::symlink;
    use std::path::Path;

    fn linked() -> Sandbox {
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
    async fn links_are_not_followed_unless_told() {
        let sandbox = linked();
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
            assert_closed(&files, &format!("file:///root/{path}")).await;
        }
    }

    #[tokio::test]
    async fn followed_links_stay_inside() {
        let sandbox = linked();
        let files = sandbox.files_with(|config| config.symlinks = true);
        assert_eq!(
            listed(&files).await,
            [
                "",
                "dir-in/",
                "dir-in/in.txt",
                "dir-in/up",
                "dir/",
                "dir/in.txt",
                "dir/up",
                "file-in",
                "in.txt"
            ]
        );
        for path in ["file-in", "dir-in/in.txt", "dir/up", "dir-in/up"] {
            let parts = read(&files, path).await.unwrap();
            assert_eq!(parts[0].body, Body::Text("inside".into()), "{path}");
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
            assert_closed(&files, &format!("file:///root/{path}")).await;
        }
    }

    #[tokio::test]
    async fn a_directory_that_became_a_link() {
        let sandbox = sandbox();
        for files in [sandbox.files(), sandbox.files_with(|config| config.symlinks = true)] {
            let page = files.list(None, 100).await.unwrap();
            assert!(page.resources.iter().any(|resource| resource.uri == uri("file:///root/dir/in.txt")));
            fs::rename(sandbox.path("dir"), sandbox.path("moved")).unwrap();
            symlink("../outside", sandbox.path("dir")).unwrap();
            assert_closed(&files, "file:///root/dir/in.txt").await;
            assert_closed(&files, "file:///root/dir/").await;
            assert_eq!(listed(&files).await, ["", "in.txt", "moved/", "moved/in.txt"]);
            fs::remove_file(sandbox.path("dir")).unwrap();
            fs::rename(sandbox.path("moved"), sandbox.path("dir")).unwrap();
        }
    }

    /// Swaps two names back and forth while `files` are read.
    async fn race(sandbox: &Sandbox, files: &Files, paths: &[&str], names: [&str; 2]) {
        let [one, other] = names.map(|name| sandbox.path(name));
        let _swapping = Meanwhile::each(move |_| {
            renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).unwrap();
        });
        for round in 0..1500 {
            let path = paths[round % paths.len()];
            match read(files, path).await {
                Ok(parts) => {
                    for part in parts {
                        assert_ne!(part.body, Body::Text(CANARY.into()), "{path}");
                    }
                }
                Err(Error::NotFound(_)) => {}
                Err(error) => panic!("{path}: {error:?}"),
            }
        }
    }

    #[tokio::test]
    async fn a_directory_swapped_for_a_link_all_the_time() {
        let sandbox = sandbox();
        symlink("../outside", sandbox.path("other")).unwrap();
        for follow in [false, true] {
            let files = sandbox.files_with(|config| config.symlinks = follow);
            race(&sandbox, &files, &["dir/in.txt", "dir/", "", "other/in.txt"], ["dir", "other"]).await;
        }
    }

    #[tokio::test]
    async fn a_file_swapped_for_a_link_all_the_time() {
        let sandbox = sandbox();
        symlink("../secret.txt", sandbox.path("other.txt")).unwrap();
        for follow in [false, true] {
            let files = sandbox.files_with(|config| config.symlinks = follow);
            race(
                &sandbox,
                &files,
                &["in.txt", "", "in.txt?lines=1", "in.txt?bytes=0-"],
                ["in.txt", "other.txt"],
            )
            .await;
        }
    }

    fn pipe(path: &Path) {
        mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    }

    #[tokio::test]
    async fn pipes_and_sockets_are_not_there() {
        let sandbox = sandbox();
        pipe(&sandbox.path("pipe"));
        symlink("pipe", sandbox.path("link-to-pipe")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(sandbox.path("socket")).unwrap();
        for follow in [false, true] {
            let files = sandbox.files_with(|config| config.symlinks = follow);
            let work = async {
                assert_eq!(listed(&files).await, ["", "dir/", "dir/in.txt", "in.txt"]);
                for path in ["pipe", "pipe?lines=1", "pipe/", "link-to-pipe", "socket"] {
                    assert_closed(&files, &format!("file:///root/{path}")).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(20), work).await.expect("waited for a pipe");
        }
    }

    #[tokio::test]
    async fn a_file_swapped_for_a_pipe_all_the_time() {
        let sandbox = sandbox();
        pipe(&sandbox.path("other.txt"));
        let files = sandbox.files();
        let race = race(&sandbox, &files, &["in.txt", ""], ["in.txt", "other.txt"]);
        tokio::time::timeout(Duration::from_secs(20), race).await.expect("waited for a pipe");
    }
}
