//! Revisions and paths of URIs are only looked up: never options, revision syntax or file system paths.

use libris_core::{ContentBody, Context, Error, Source, Uri};
use libris_sources::Git;

use crate::sandbox::{Sandbox, config, run};

/// Texts that would be options, revision syntax or other paths if they were interpreted.
const ATTEMPTS: [&str; 36] = [
    "blob/--upload-pack=touch%20canary/README.md",
    "log/--upload-pack=touch%20canary",
    "log/--output=canary",
    "diff/--output=canary/HEAD",
    "diff/HEAD/--output=canary",
    "commit/-oProxyCommand=touch%20canary",
    "commit/--exec=touch%20canary",
    "blob/..%2F..%2Fcanary/README.md",
    "blob/HEAD/..%2fcanary",
    "blob/HEAD/..%2f..%2fcanary",
    "blob/HEAD/%2e%2e%2fcanary",
    "blob/HEAD/src%2f..%2f..%2f..%2fcanary",
    "tree/..%2f/",
    "log/HEAD?path=..%2Fcanary",
    "log/HEAD?path=%2Fetc%2Fpasswd",
    "log/HEAD?path=:(top)README.md",
    "diff/HEAD/HEAD?path=--no-index",
    "diff/HEAD/HEAD?path=..%2Fcanary",
    "blob/HEAD%00/README.md",
    "blob/HEAD/README.md%00.png",
    "commit/HEAD%40%7B0%7D",
    "commit/%40%7Bu%7D",
    "commit/%40%7B-1%7D",
    "log/HEAD%5E%7B%2Ffirst%7D",
    "log/%3A%2Ffirst",
    "log/HEAD..main",
    "commit/HEAD%3AREADME.md",
    "blob/m\u{430}in/README.md",
    "blob/ma\u{ff49}n/README.md",
    "blob/main\u{202e}/README.md",
    "blob/\u{2010}\u{2010}upload-pack/README.md",
    "blob/HEAD/.git/config",
    "blob/HEAD/.GIT/config",
    "blob/HEAD/src/.git/HEAD",
    "blob/refs%2Fstash/README.md",
    "log/%24(touch%20canary)",
];

fn uri(rest: &str) -> Uri {
    // URIs escape characters outside ASCII.
    let escaped: String = rest
        .chars()
        .map(|letter| {
            if letter.is_ascii() {
                letter.to_string()
            } else {
                Uri::encode_segment(letter.to_string().as_bytes())
            }
        })
        .collect();
    Uri::parse(&format!("git://repo/{escaped}")).unwrap()
}

#[tokio::test]
async fn nothing_is_let_in_by_a_ref_or_a_path() {
    let sandbox = Sandbox::with(&[("README.md", "# Read me\n"), ("src/main.rs", "fn main() {}\n")]);
    sandbox.write("README.md", b"stashed\n");
    sandbox.git(&["stash", "--quiet"]);
    let canary = sandbox.dir.path().join("canary");
    std::fs::write(&canary, "untouched").unwrap();
    let source = sandbox.open();
    for attempt in ATTEMPTS {
        let uri = uri(attempt);
        match source.read(&uri, &Context::default()).await {
            Err(Error::Invalid(_) | Error::NotFound(_) | Error::Missing { .. }) => {}
            // A path that never existed has an empty log and an empty diff.
            Ok(contents) if matches!(&contents.parts[0].body, ContentBody::Text(text) if text.is_empty() || text.ends_with("\n\nNo commits.\n")) =>
                {}
            other => panic!("{attempt} gave {other:?}"),
        }
        assert!(source.children(&uri, None, 10, &Context::default()).await.is_err(), "{attempt}");
    }
    assert_eq!(std::fs::read_to_string(&canary).unwrap(), "untouched");
    let names: Vec<_> =
        std::fs::read_dir(&sandbox.work).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(names.iter().all(|name| name != "canary"), "{names:?}");
}

#[tokio::test]
async fn errors_name_no_path_of_the_machine() {
    let sandbox = Sandbox::with(&[("README.md", "# Read me\n")]);
    let source = sandbox.open();
    let own = sandbox.dir.path().to_str().unwrap().to_owned();
    for attempt in ATTEMPTS {
        let Err(error) = source.read(&uri(attempt), &Context::default()).await else { continue };
        assert!(!error.to_string().contains(&own), "{error}");
    }
    std::fs::remove_dir_all(sandbox.work.join(".git")).unwrap();
    for rest in ["blob/HEAD/README.md", "refs", "log/HEAD"] {
        let error = source.read(&uri(rest), &Context::default()).await.unwrap_err();
        assert!(!error.to_string().contains(&own), "{error}");
    }
    assert!(
        source.list(None, 10, &Context::default()).await.is_err(),
        "a repository that is gone is not an empty one"
    );
}

/// Entry names that git itself never writes, such as `..`, do not lead out of the tree.
#[cfg(unix)]
#[tokio::test]
async fn a_hostile_tree_leads_nowhere() {
    use std::io::Write as _;
    let sandbox = Sandbox::with(&[("README.md", "# Read me\n")]);
    let blob = sandbox.git(&["rev-parse", "HEAD:README.md"]);
    let id: Vec<u8> = (0..20).map(|at| u8::from_str_radix(&blob[2 * at..2 * at + 2], 16).unwrap()).collect();
    let mut tree = Vec::new();
    for name in ["..", ".git", "../canary", "README.md", "README.md"] {
        tree.extend(format!("100644 {name}\0").bytes());
        tree.extend(&id);
    }
    let mut child = crate::sandbox::command(&sandbox.work)
        .args(["hash-object", "-t", "tree", "--literally", "-w", "--stdin"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&tree).unwrap();
    let tree = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
    let commit = sandbox.git(&["commit-tree", tree.trim(), "-m", "hostile"]);
    sandbox.git(&["update-ref", "refs/heads/main", &commit]);
    let listed = crate::sandbox::listed(&sandbox.open()).await;
    let uris: Vec<_> = listed.iter().map(|resource| resource.uri.path()).collect();
    let pages = ["/diff/staged", "/diff/worktree", "/log/HEAD", "/refs", "/status"];
    assert_eq!(uris[..5], pages);
    assert_eq!(uris[5..], ["/tree/HEAD/", "/tree/HEAD/README.md"]);
}

#[tokio::test]
async fn the_configuration_of_a_repository_runs_nothing() {
    let sandbox =
        Sandbox::with(&[("README.md", "# Read me\n"), (".gitattributes", "*.md filter=evil diff=evil\n")]);
    let canary = sandbox.dir.path().join("canary");
    let touch = format!("touch {}", canary.display());
    for key in [
        "filter.evil.smudge",
        "filter.evil.clean",
        "filter.evil.process",
        "diff.evil.textconv",
        "diff.external",
        "core.fsmonitor",
        "core.sshCommand",
        "core.pager",
        "uploadpack.packObjectsHook",
    ] {
        run(&sandbox.work, &["config", key, &touch]);
    }
    sandbox.write("other.txt", b"other");
    let source = Git::open(config(&sandbox.work)).unwrap();
    for rest in ["blob/HEAD/README.md", "tree/HEAD/", "log/HEAD", "commit/HEAD", "diff/HEAD/HEAD", "refs"] {
        source.read(&uri(rest), &Context::default()).await.unwrap();
    }
    source.list(None, 10, &Context::default()).await.unwrap();
    assert!(!canary.exists());
}
