//! Path confinement: nothing outside the folder can be read.

use std::fs;

use libris_core::{Context, Error, Source, Uri};
use libris_sources::Files;

use super::sandbox::{Sandbox, is_not_found, read, uri};

pub(crate) const CANARY: &str = "CANARY: this is outside";

pub(crate) fn sandbox() -> Sandbox {
    let sandbox = Sandbox::with(&[("in.txt", "inside"), ("dir/in.txt", "inside")]);
    fs::write(sandbox.outside().join("secret.txt"), CANARY).unwrap();
    for folder in ["root-secret", "outside"] {
        fs::create_dir(sandbox.outside().join(folder)).unwrap();
        fs::write(sandbox.outside().join(folder).join("in.txt"), CANARY).unwrap();
    }
    sandbox
}

/// Asserts that neither a read nor a list of children reaches the URI.
pub(crate) async fn assert_unreachable(files: &Files, text: &str) {
    let Ok(uri) = Uri::parse(text) else { return };
    let read = files.read(&uri, &Context::default()).await;
    assert!(is_not_found(&read) || matches!(read, Err(Error::Invalid(_))), "{text}: {read:?}");
    let children = files.children(&uri, None, 10, &Context::default()).await;
    assert!(is_not_found(&children), "{text}: {children:?}");
}

#[tokio::test]
async fn path_traversal_is_rejected() {
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
            "?path=../secret.txt",
            "C:%5cWindows",
            "file:%2f%2f%2fetc%2fpasswd",
        ] {
            assert_unreachable(&files, &format!("file:///root/{path}")).await;
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
            "file://root/in.txt".into(),
            "http:///root/in.txt".into(),
        ] {
            assert_unreachable(&files, &text).await;
        }
        // Dot segments that stay inside were removed when the URI was parsed.
        assert_eq!(read(&files, "dir/../in.txt").await.unwrap()[0].uri, uri("file:///root/in.txt"));
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_root_replaced_by_a_symlink_is_not_served() {
    let sandbox = sandbox();
    // With a trailing slash the system itself would follow the symbolic link.
    let root = sandbox.outside().join("root");
    let files = Files::open(libris_sources::files::Config::new(&root)).unwrap();
    let asked = uri("file:///root/in.txt");
    assert!(read(&files, "in.txt").await.is_ok());
    fs::rename(&root, sandbox.outside().join("moved")).unwrap();
    std::os::unix::fs::symlink("outside", &root).unwrap();
    let read = files.read(&asked, &Context::default()).await;
    assert!(is_not_found(&read) || matches!(read, Err(Error::Unavailable(_))), "{read:?}");
    assert!(files.list(None, 10, &Context::default()).await.is_err());
}

#[cfg(unix)]
#[tokio::test]
async fn a_root_symlink_is_followed_to_its_new_target() {
    let sandbox = Sandbox::with(&[("one/a.txt", "1"), ("two/a.txt", "2")]);
    let current = sandbox.outside().join("current");
    std::os::unix::fs::symlink("root/one", &current).unwrap();
    let config = libris_sources::files::Config {
        mount: Some("root".into()),
        ..libris_sources::files::Config::new(&current)
    };
    let files = Files::open(config).unwrap();
    let text = async || format!("{:?}", read(&files, "a.txt").await.unwrap());
    assert!(text().await.contains("\"1\""));
    fs::remove_file(&current).unwrap();
    std::os::unix::fs::symlink("root/two", &current).unwrap();
    assert!(text().await.contains("\"2\""));
}
