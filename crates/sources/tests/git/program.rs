//! Compares reads with the output of the `git` program, on the repository of this workspace.

use std::path::{Path, PathBuf};

use libris_core::Uri;
use libris_sources::Git;

use crate::sandbox::{Sandbox, bytes, command, config, json, listed, run, text};

/// How many commits are compared.
const BACK: usize = 8;

/// The repository of this workspace, or a generated one if the sources were unpacked from an archive.
struct This {
    root: PathBuf,
    _made: Option<Sandbox>,
}

impl This {
    fn find() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
        if root.join(".git").exists() {
            return Self { root, _made: None };
        }
        let made = Sandbox::with(&[("README.md", "# One\n"), ("src/lib.rs", "fn a() {}\n")]);
        for number in 0..BACK + 2 {
            made.write("src/lib.rs", format!("fn a() {{}}\n\nfn b() {{\n    {number}\n}}\n").as_bytes());
            made.write(&format!("more/{number}.txt"), b"more\n");
            made.commit(&format!("change {number}"));
        }
        Self { root: made.work.clone(), _made: Some(made) }
    }

    fn git(&self, arguments: &[&str]) -> String {
        String::from_utf8(run(&self.root, arguments)).unwrap()
    }

    fn open(&self) -> Git {
        Git::open(config(&self.root)).unwrap()
    }

    /// All files at a revision, as `git` checks them out.
    fn files(&self, rev: &str) -> Vec<(String, Vec<u8>)> {
        let names = self.git(&["ls-tree", "-r", "-z", "--name-only", rev]);
        let names: Vec<_> = names.split_terminator('\0').map(str::to_owned).collect();
        let folder = tempfile::tempdir().unwrap();
        let index = folder.path().join("index");
        let prefix = format!("{}/out/", folder.path().display());
        let show = |arguments: &[&str]| {
            let status = command(&self.root).args(arguments).env("GIT_INDEX_FILE", &index).status().unwrap();
            assert!(status.success(), "{arguments:?}");
        };
        show(&["read-tree", rev]);
        show(&["checkout-index", "--all", "--prefix", &prefix]);
        let read = |path: String| (std::fs::read(format!("{prefix}{path}")).unwrap(), path);
        names.into_iter().map(read).map(|(data, path)| (path, data)).collect()
    }

    /// The tree that results from applying a patch to a revision. Does not write to the repository itself.
    fn patched(&self, base: &str, patch: &[u8]) -> String {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("patch");
        std::fs::write(&file, patch).unwrap();
        let objects = self.root.join(self.git(&["rev-parse", "--git-path", "objects"]).trim());
        let git = |arguments: &[&str]| {
            let output = command(&self.root)
                .args(arguments)
                .env("GIT_INDEX_FILE", folder.path().join("index"))
                .env("GIT_OBJECT_DIRECTORY", folder.path().join("objects"))
                .env("GIT_ALTERNATE_OBJECT_DIRECTORIES", &objects)
                .output()
                .unwrap();
            assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).unwrap()
        };
        std::fs::create_dir(folder.path().join("objects")).unwrap();
        git(&["read-tree", base]);
        if !patch.is_empty() {
            git(&["apply", "--cached", file.to_str().unwrap()]);
        }
        git(&["write-tree"])
    }

    /// The number of first-parent ancestors of `HEAD`, up to a maximum.
    fn depth(&self) -> usize {
        let count = format!("--max-count={}", BACK + 1);
        self.git(&["rev-list", "--first-parent", &count, "HEAD"]).lines().count() - 1
    }
}

fn escaped(path: &str) -> String {
    path.split('/').map(|name| Uri::encode_segment(name.as_bytes())).collect::<Vec<_>>().join("/")
}

#[tokio::test]
async fn the_list_is_that_of_ls_tree() {
    let this = This::find();
    let printed = this.git(&["ls-tree", "-r", "-t", "-z", "--long", "HEAD"]);
    let mut expected: Vec<(String, Option<u64>)> = printed
        .split_terminator('\0')
        .map(|line| {
            let (facts, path) = line.split_once('\t').unwrap();
            let size = facts.split_whitespace().nth(3).unwrap().parse().ok();
            let slash = if facts.contains(" tree ") { "/" } else { "" };
            (format!("git://repo/tree/HEAD/{}{slash}", escaped(path)), size)
        })
        .collect();
    expected.push(("git://repo/tree/HEAD/".into(), None));
    expected.sort();
    let found: Vec<(String, Option<u64>)> = listed(&this.open())
        .await
        .into_iter()
        .filter(|resource| resource.uri.path().starts_with("/tree/"))
        .map(|resource| (resource.uri.to_string(), resource.size))
        .collect();
    assert_eq!(found, expected);
}

#[tokio::test]
async fn files_are_those_of_show() {
    let this = This::find();
    let source = this.open();
    for back in [0, 1, this.depth()] {
        let rev = format!("HEAD~{}", back.min(this.depth()));
        for (path, shown) in this.files(&rev) {
            let read = bytes(&source, &format!("blob/{rev}/{}?bytes=0-", escaped(&path))).await;
            assert_eq!(read, shown, "{path} at {rev}");
        }
        let shown = run(&this.root, &["show", &format!("{rev}:README.md")]);
        assert_eq!(bytes(&source, &format!("blob/{rev}/README.md")).await, shown);
    }
}

#[tokio::test]
async fn the_log_is_that_of_log() {
    let this = This::find();
    let source = this.open();
    let format = "--format=%H%x1f%P%x1f%an%x1f%ae%x1f%aI%x1f%cI%x1f%s";
    for (rest, arguments) in [
        ("log/HEAD?format=json&limit=200", &["log", "--max-count=200", format, "HEAD"][..]),
        (
            "log/HEAD?format=json&limit=30&path=README.md",
            &["log", "--max-count=30", format, "HEAD", "--", "README.md"],
        ),
        ("log/HEAD?format=json&path=crates%2F", &["log", "--max-count=50", format, "HEAD", "--", "crates/"]),
    ] {
        let log = json(&source, rest).await;
        let mut found = String::new();
        for commit in log["commits"].as_array().unwrap() {
            let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
            let parents: Vec<_> = commit["parents"].as_array().unwrap().iter().map(text).collect();
            let (author, committer) = (&commit["author"], &commit["committer"]);
            let fields = [
                text(&commit["id"]),
                parents.join(" "),
                text(&author["name"]),
                text(&author["email"]),
                text(&author["time"]),
                text(&committer["time"]),
                text(&commit["subject"]),
            ];
            found.push_str(&format!("{}\n", fields.join("\u{1f}")));
        }
        // `git` writes `Z` for a zero offset.
        let printed = this.git(arguments).replace("Z\u{1f}", "+00:00\u{1f}");
        assert_eq!(found, printed, "{rest}");
    }
}

/// Where lines can be matched in several ways, the program may choose another. So what is compared is which files
/// differ and how, word for word, and that the patch makes the one tree into the other.
#[tokio::test]
async fn diffs_are_those_of_diff() {
    let this = This::find();
    let source = this.open();
    let depth = this.depth();
    let mut pairs: Vec<_> =
        (0..depth).map(|back| (format!("HEAD~{}", back + 1), format!("HEAD~{back}"))).collect();
    pairs.push((format!("HEAD~{depth}"), "HEAD".into()));
    for (base, head) in pairs {
        let found = bytes(&source, &format!("diff/{base}/{head}")).await;
        let printed = run(
            &this.root,
            &["diff", "--find-renames", "--full-index", "--no-ext-diff", "--no-color", &base, &head],
        );
        assert_eq!(headers(&found), headers(&printed), "{base} {head}");
        if !headers(&found).iter().any(|line| line.starts_with("Binary files ")) {
            let tree = this.git(&["rev-parse", &format!("{head}^{{tree}}")]);
            assert_eq!(this.patched(&base, &found), tree, "{base} {head}");
        }
    }
    assert_eq!(text(&source, "diff/HEAD/HEAD").await, "");
}

/// The lines of a patch that say which files differ, and how.
fn headers(patch: &[u8]) -> Vec<String> {
    let said = [
        "diff --git ",
        "index ",
        "old mode ",
        "new mode ",
        "new file ",
        "deleted file ",
        "Binary files ",
        "similarity index ",
        "rename from ",
        "rename to ",
    ];
    let patch = String::from_utf8_lossy(patch);
    patch.lines().filter(|line| said.iter().any(|said| line.starts_with(said))).map(str::to_owned).collect()
}

#[tokio::test]
async fn a_file_last_changed_when_log_says() {
    let this = This::find();
    let recent = this.git(&["log", "--max-count=1", "--format=%ct", &format!("HEAD~{}", this.depth())]);
    let recent: i64 = recent.trim().parse().unwrap();
    for resource in listed(&this.open()).await {
        let Some(path) = resource.uri.path().strip_prefix("/tree/HEAD/") else { continue };
        if resource.mime.as_deref() != Some("text/markdown") {
            continue;
        }
        let printed = this.git(&["log", "--max-count=1", "--format=%ct", "HEAD", "--", path]);
        let expected: i64 = printed.trim().parse().unwrap();
        let found = resource.annotations.last_modified.unwrap().as_second();
        // What changed long ago is only known not to have changed since.
        assert!(
            found == expected || (expected <= recent && found > expected),
            "{path}: {found}, not {expected}"
        );
    }
}
