//! The suite that every source passes, on three shapes of repositories.

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use libris_core::contract::{Fixture, check};
use libris_core::{Source, Uri};
use libris_sources::Git;

use crate::sandbox::{Sandbox, config, run, uri};

struct Shape {
    _sandbox: Sandbox,
    git: Git,
    /// Where commits are made.
    work: PathBuf,
    /// What makes a commit reach the repository that is served.
    publish: &'static [&'static str],
    /// A bare repository whose refs are packed each time.
    packed: Option<PathBuf>,
}

impl Shape {
    fn commit(&self) -> bool {
        run(&self.work, &["add", "--all"]);
        run(&self.work, &["commit", "--quiet", "--message", "change"]);
        if !self.publish.is_empty() {
            run(&self.work, self.publish);
        }
        if let Some(bare) = &self.packed {
            run(bare, &["pack-refs", "--all"]);
        }
        true
    }

    fn path(&self, uri: &Uri) -> PathBuf {
        self.work.join(uri.path().strip_prefix("/tree/HEAD/").unwrap())
    }
}

#[async_trait]
impl Fixture for Shape {
    fn source(&self) -> &dyn Source {
        &self.git
    }

    fn unknown(&self) -> Uri {
        uri("tree/HEAD/no/such/file")
    }

    fn invalid(&self) -> Vec<Uri> {
        [
            "blob/-x/a.md",
            "blob/a..b/a.md",
            "blob/HEAD/..%2f..%2fetc%2fpasswd",
            "blob/HEAD/.git/config",
            "blob/HEAD/a%00b",
            "tree/HEAD/?lines=1",
            "blob/HEAD/README.md?lines=0",
            "log/HEAD?limit=0",
            "log/HEAD?format=xml",
            "diff/HEAD/nothing",
            "commit/HEAD%40%7B1%7D",
        ]
        .map(uri)
        .into()
    }

    async fn add(&self, number: usize) -> Option<Uri> {
        let uri = uri(&format!("tree/HEAD/added-{number}.txt"));
        std::fs::write(self.path(&uri), format!("added {number}")).unwrap();
        self.commit().then_some(uri)
    }

    async fn change(&self, uri: &Uri) -> bool {
        std::fs::write(self.path(uri), "changed").is_ok() && self.commit()
    }

    async fn remove(&self, uri: &Uri) -> bool {
        std::fs::remove_file(self.path(uri)).is_ok() && self.commit()
    }

    async fn deadline(&self) {
        tokio::time::sleep(Duration::from_secs(20)).await;
    }
}

const FILES: [(&str, &str); 4] = [
    ("README.md", "---\ntitle: Read me\n---\n"),
    ("src/main.rs", "fn main() {}\n"),
    ("src/deep/er/x", "x"),
    ("z", "z"),
];

#[tokio::test]
async fn a_working_tree_with_odd_names() {
    let sandbox = Sandbox::with(&FILES);
    let odd = [
        "100%/50%25",
        "a b/c#d",
        "wh?at/[x]",
        "日本/語",
        "new\nline",
        "a;b:c@d&e=f+g",
        "a!",
        "a/b",
        "a.txt",
        "a0",
    ];
    for path in odd {
        sandbox.write(path, path.as_bytes());
    }
    sandbox.write("picture.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR");
    sandbox.commit("odd names");
    sandbox.git(&["branch", "feature/one"]);
    let (git, work) = (sandbox.open(), sandbox.work.clone());
    check(&Shape { _sandbox: sandbox, git, work, publish: &[], packed: None }).await;
}

#[tokio::test]
async fn a_bare_repository_with_packed_refs() {
    let sandbox = Sandbox::with(&FILES);
    sandbox.git(&["tag", "v1"]);
    sandbox.git(&["tag", "--annotate", "v2", "--message", "the second"]);
    sandbox.git(&["branch", "other"]);
    run(sandbox.dir.path(), &["clone", "--quiet", "--bare", "repo", "bare.git"]);
    let bare = sandbox.dir.path().join("bare.git");
    sandbox.git(&["remote", "add", "origin", "../bare.git"]);
    run(&bare, &["gc", "--quiet"]);
    assert!(bare.join("packed-refs").is_file() && !bare.join("refs/heads/main").exists());
    let (git, work) = (Git::open(config(&bare)).unwrap(), sandbox.work.clone());
    let publish = &["push", "--quiet", "origin", "HEAD:main"];
    check(&Shape { _sandbox: sandbox, git, work, publish, packed: Some(bare) }).await;
}

#[cfg(unix)]
#[tokio::test]
async fn a_linked_working_tree_of_a_shallow_clone() {
    let sandbox = Sandbox::with(&FILES);
    let library = sandbox.dir.path().join("library");
    run(sandbox.dir.path(), &["clone", "--quiet", "repo", "library"]);
    sandbox.git(&["submodule", "--quiet", "add", library.to_str().unwrap(), "vendor/library"]);
    std::os::unix::fs::symlink("../README.md", sandbox.work.join("src/link")).unwrap();
    sandbox.commit("a submodule and a link");
    let url = format!("file://{}", sandbox.work.display());
    run(sandbox.dir.path(), &["clone", "--quiet", "--depth", "1", &url, "shallow"]);
    let shallow = sandbox.dir.path().join("shallow");
    run(&shallow, &["worktree", "add", "--quiet", "-b", "topic", "../linked"]);
    let linked = sandbox.dir.path().join("linked");
    assert!(linked.join(".git").is_file());
    let git = Git::open(config(&linked)).unwrap();
    check(&Shape { _sandbox: sandbox, git, work: linked, publish: &[], packed: None }).await;
}
