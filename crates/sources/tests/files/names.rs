//! URIs of files with unusual names lead back to the files.

use libris_core::{ContentBody, Context, Source};

use super::sandbox::{Sandbox, listed, read, rendered, uri};

const UNUSUAL: &[&str] = &[
    "a b",
    "100%",
    "50%25",
    "#hash",
    "what?",
    "semi;colon",
    "co:lon",
    "at@",
    "plus+",
    "am&p",
    "eq=",
    "'quote'",
    "\"double\"",
    "<tag>",
    "[1]",
    "{x}",
    "back\\slash",
    "pipe|",
    "caret^",
    "tick`",
    "tab\there",
    "new\nline",
    "emoji 🦀",
    "日本語",
    "e\u{301}",
    "é",
    "-dash",
    "~",
    "~tilde",
    "*",
    "a.",
    "a..b",
    "lines=1-2",
    "con",
    "%2e%2e",
    "%2F",
    "%00",
    "file:",
    " ",
    " lead",
    "trail ",
    "\u{7f}",
    "UPPER",
    "upper",
];

#[tokio::test]
async fn unusual_names_round_trip() {
    let sandbox = Sandbox::new();
    let long = "x".repeat(255);
    let wide = "日".repeat(85);
    for name in UNUSUAL.iter().copied().chain([long.as_str(), wide.as_str()]) {
        sandbox.write(format!("files/{name}"), name);
        sandbox.write(format!("folders/{name}/inner"), name);
    }
    assert_round_trip(&sandbox, 2 * (UNUSUAL.len() + 2)).await;
}

#[tokio::test]
async fn names_that_are_not_utf_8_round_trip() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    let sandbox = Sandbox::new();
    let name = |bytes: &[u8]| OsStr::from_bytes(bytes).to_owned();
    sandbox.write(name(b"caf\xe9"), "caf%E9");
    sandbox.write(name(b"\xff\xfe/\x80"), "%FF%FE/%80");
    assert_round_trip(&sandbox, 2).await;
    let files = sandbox.files();
    assert_eq!(listed(&files).await, ["", "%FF%FE/", "%FF%FE/%80", "caf%E9"]);
    let page = files.list(None, 10, &Context::default()).await.unwrap();
    assert_eq!(page.resources.last().unwrap().name, "caf\u{fffd}");
}

#[tokio::test]
async fn every_byte_round_trips() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    let sandbox = Sandbox::new();
    let bytes = || (1..=255_u8).filter(|byte| *byte != b'/' && *byte != b'.');
    for byte in bytes() {
        sandbox.write(OsStr::from_bytes(&[byte]), [byte]);
        sandbox.write(OsStr::from_bytes(&[b'd', byte, b'/', byte]), [byte]);
    }
    assert_round_trip(&sandbox, 2 * bytes().count()).await;
}

async fn assert_round_trip(sandbox: &Sandbox, count: usize) {
    let files = sandbox.files();
    let all = listed(&files).await;
    assert_eq!(all.iter().filter(|path| !path.is_empty() && !path.ends_with('/')).count(), count);
    for path in all {
        let parts = read(&files, &path).await.unwrap();
        let page =
            files.children(&uri(&format!("file:///root/{path}")), None, 1000, &Context::default()).await;
        if path.ends_with('/') || path.is_empty() {
            let children: Vec<_> = page.unwrap().resources.into_iter().map(|child| child.uri).collect();
            let directory = uri(format!("file:///root/{path}").trim_end_matches('/'));
            let parts = files.read(&directory, &Context::default()).await.unwrap().parts;
            let is_last_page = parts[0].meta.is_none();
            let parts: Vec<_> = parts.into_iter().skip(1).map(|part| part.uri).collect();
            assert_eq!(parts, children[..parts.len()]);
            assert_eq!(parts.len() == children.len(), is_last_page);
        } else {
            assert!(matches!(page, Err(libris_core::Error::NotDirectory(_))));
            assert_eq!(parts.len(), 1);
        }
    }
}

#[tokio::test]
async fn hidden_shows_dot_files_except_git() {
    let sandbox = Sandbox::with(&[(".env", "A=1"), (".config/x", "y"), (".git/config", "no"), ("..x", "z")]);
    assert_eq!(listed(&sandbox.files()).await, [""]);
    let files = sandbox.files_with(|config| config.hidden = true);
    assert_eq!(listed(&files).await, ["", "..x", ".config/", ".config/x", ".env"]);
    insta::assert_snapshot!(rendered(&files, ".git/config").await, @"Missing: no resource at `file:///root/.git/config`: there is no `.git` in `file:///root/`; read that folder to see its entries");
    insta::assert_snapshot!(rendered(&files, "..x").await, @r#"file:///root/..x text/plain text "z""#);
}

#[tokio::test]
async fn mounts_are_encoded_and_validated() {
    let sandbox = Sandbox::with(&[("x", "y")]);
    assert_eq!(sandbox.files().root().as_str(), "file:///root/");
    let files = sandbox.files_with(|config| config.mount = Some("my docs é".into()));
    assert_eq!(files.root().as_str(), "file:///my%20docs%20%C3%A9/");
    let page = files.list(None, 10, &Context::default()).await.unwrap();
    assert_eq!(page.resources[0].name, "my docs é");
    let read = files.read(&page.resources[1].uri, &Context::default()).await.unwrap();
    assert_eq!(read.parts[0].body, ContentBody::Text("y".into()));
    let wrong = |mount: &str| {
        let mut config = libris_sources::files::Config::new("/");
        config.mount = Some(mount.into()).filter(|mount: &String| !mount.is_empty());
        libris_sources::Files::open(config).err().unwrap().to_string()
    };
    insta::assert_snapshot!(wrong("a/b"), @"`a/b` cannot be the mount of `/`: set `mount` to a name");
    insta::assert_snapshot!(wrong(".."), @"`..` cannot be the mount of `/`: set `mount` to a name");
    insta::assert_snapshot!(wrong(""), @"`` cannot be the mount of `/`: set `mount` to a name");
}

#[tokio::test]
async fn another_scheme_has_the_mount_as_its_authority() {
    let sandbox = Sandbox::with(&[("a b", "y")]);
    let with_scheme = |scheme: &str, mount: &str| {
        let mut config = libris_sources::files::Config::new(sandbox.path(""));
        (config.scheme, config.mount) = (Some(scheme.into()), Some(mount.into()));
        libris_sources::Files::open(config)
    };
    assert_eq!(with_scheme("file", "root").unwrap().root().as_str(), "file:///root/");
    for (mount, root) in [("Hand book", "docs://Hand%20book/"), ("a:1@b", "docs://a%3A1%40b/")] {
        let files = with_scheme("docs", mount).unwrap();
        assert_eq!(files.root().as_str(), root);
        let page = files.list(None, 10, &Context::default()).await.unwrap();
        let read = files.read(&page.resources[1].uri, &Context::default()).await.unwrap();
        assert_eq!(read.parts[0].uri.as_str(), format!("{root}a%20b"));
        assert!(files.covers(&uri("file:///root/a%20b")).is_none());
    }
    let wrong = |scheme| with_scheme(scheme, "m").err().unwrap().to_string();
    insta::assert_snapshot!(wrong("https"), @"`https` cannot be the `scheme` of a folder: choose a word of your own, such as `docs`");
    insta::assert_snapshot!(wrong("my docs"), @"`my docs` cannot be the `scheme` of a folder: choose a word of letters, such as `docs`");
}
