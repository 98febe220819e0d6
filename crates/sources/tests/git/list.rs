//! Listings and the metadata of listed resources.

use libris_core::{Context, Source};
use libris_sources::Git;

use crate::sandbox::{Sandbox, ask, config, listed, uri};

#[tokio::test]
async fn files_have_real_facts() {
    let sandbox = Sandbox::with(&[
        ("README.md", "---\ntitle: Read me\ndescription: First of all.\n---\n"),
        ("src/main.rs", "fn main() {}\n"),
        ("LICENSE", "free\n"),
    ]);
    sandbox.write("src/main.rs", b"fn main() { todo() }\n");
    sandbox.commit("second");
    let mut said = String::new();
    for resource in listed(&sandbox.open()).await {
        let fact = |fact: Option<String>| fact.unwrap_or_else(|| "-".into());
        said.push_str(&format!(
            "{} {} {} {} {} {}\n",
            resource.uri,
            resource.name,
            fact(resource.title),
            fact(resource.mime),
            fact(resource.size.map(|size| size.to_string())),
            fact(
                resource.annotations.last_modified.map(|time| (time.as_second() - 1_700_000_000).to_string())
            ),
        ));
    }
    insta::assert_snapshot!(said, @"
    git://repo/diff/staged diff-staged Staged changes of repo text/x-diff - -
    git://repo/diff/worktree diff-worktree Unstaged changes of repo text/x-diff - -
    git://repo/log/HEAD log Log of repo text/markdown - 60
    git://repo/refs refs Refs of repo text/markdown - -
    git://repo/status status Status of repo text/markdown - -
    git://repo/tree/HEAD/ repo - inode/directory - 60
    git://repo/tree/HEAD/LICENSE LICENSE - text/plain 5 0
    git://repo/tree/HEAD/README.md README.md Read me text/markdown 50 0
    git://repo/tree/HEAD/src/ src - inode/directory - 60
    git://repo/tree/HEAD/src/main.rs main.rs - text/x-rust 21 60
    ");
}

#[tokio::test]
async fn what_is_excluded_does_not_exist_at_any_commit() {
    let sandbox = Sandbox::with(&[("a.md", "a\n"), ("secret/key.pem", "key\n"), ("b.txt", "b\n")]);
    sandbox.write("secret/key.pem", b"another\n");
    sandbox.write("a.md", b"aa\n");
    let second = sandbox.commit("second");
    let mut config = config(&sandbox.work);
    config.exclude = vec!["secret/".into(), "*.txt".into()];
    let source = Git::open(config).unwrap();
    let uris: Vec<_> = listed(&source).await.iter().map(|resource| resource.uri.path().to_owned()).collect();
    let pages = ["/diff/staged", "/diff/worktree", "/log/HEAD", "/refs", "/status"];
    assert_eq!(uris[..5], pages);
    assert_eq!(uris[5..], ["/tree/HEAD/", "/tree/HEAD/a.md"]);
    for rest in [
        "blob/HEAD/secret/key.pem",
        "blob/HEAD~1/secret/key.pem",
        "tree/HEAD/secret/",
        "blob/HEAD/b.txt",
        "log/HEAD?path=secret",
        "log/HEAD?path=secret%2Fkey.pem",
    ] {
        assert!(ask(&source, rest).await.is_err_and(|error| error.is_not_found()), "{rest}");
    }
    for rest in ["diff/HEAD~1/HEAD".to_owned(), format!("commit/{second}"), "tree/HEAD/".to_owned()] {
        let parts = ask(&source, &rest).await.unwrap().parts;
        let said = format!("{parts:?}");
        assert!(
            said.contains("a.md") && !said.contains("secret") && !said.contains("b.txt"),
            "{rest}: {said}"
        );
    }
}

#[tokio::test]
async fn pages_are_proven_until_the_branch_moves() {
    let sandbox = Sandbox::with(&[("a", "a"), ("b", "b")]);
    let source = sandbox.open();
    let page = source.list(None, 10, &Context::default()).await.unwrap();
    let read = source.read(&uri("blob/HEAD/a"), &libris_core::Context::default()).await.unwrap();
    let (page, read) = (page.freshness.proof.unwrap(), read.freshness.proof.unwrap());
    assert!(page.holds() && read.holds());
    sandbox.git(&["pack-refs", "--all"]);
    sandbox.write("a", b"aa");
    sandbox.commit("second");
    assert!(!page.holds() && !read.holds());
}

#[tokio::test]
async fn a_merged_file_changed_where_it_was_written() {
    let sandbox = Sandbox::with(&[
        ("main.txt", "a"),
        ("side.txt", "a"),
        ("old.txt", "a"),
        ("folder/both.txt", "1\n2\n3\n"),
    ]);
    sandbox.git(&["checkout", "--quiet", "-b", "side"]);
    sandbox.write("side.txt", b"b");
    sandbox.write("folder/both.txt", b"1\n2\n3\nside\n");
    sandbox.commit("on the side");
    sandbox.git(&["checkout", "--quiet", "main"]);
    sandbox.write("main.txt", b"b");
    sandbox.write("folder/both.txt", b"main\n1\n2\n3\n");
    sandbox.commit("on main");
    sandbox.git(&["merge", "--quiet", "--no-commit", "side"]);
    sandbox.commit("both");
    assert_times_are_those_of_log(&sandbox).await;
}

async fn assert_times_are_those_of_log(sandbox: &Sandbox) {
    for resource in listed(&sandbox.open()).await {
        let Some(path) = resource.uri.path().strip_prefix("/tree/HEAD/") else { continue };
        let path = if path.is_empty() { "." } else { path };
        let printed = sandbox.git(&["log", "--max-count=1", "--format=%ct", "HEAD", "--", path]);
        let found = resource.annotations.last_modified.unwrap().as_second().to_string();
        assert_eq!(
            found,
            printed,
            "{path} in\n{}",
            sandbox.git(&["log", "--graph", "--stat", "--format=%ct"])
        );
    }
}

/// Both branches get the same content, the second one later and by a merge. Git follows the first parent.
#[tokio::test]
async fn a_file_with_the_same_content_on_two_branches_changed_on_the_first() {
    let sandbox = Sandbox::with(&[("a.txt", "1"), ("b.txt", "1")]);
    sandbox.git(&["checkout", "--quiet", "-b", "side"]);
    sandbox.write("b.txt", b"side");
    sandbox.commit("on the side");
    sandbox.git(&["checkout", "--quiet", "main"]);
    sandbox.write("a.txt", b"2");
    sandbox.commit("on main");
    sandbox.write("a.txt", b"3");
    sandbox.commit("again on main");
    sandbox.git(&["checkout", "--quiet", "side"]);
    sandbox.git(&["merge", "--quiet", "--no-commit", "--strategy=ours", "main~1"]);
    sandbox.write("a.txt", b"3");
    sandbox.commit("main into side");
    sandbox.git(&["checkout", "--quiet", "main"]);
    sandbox.git(&["merge", "--quiet", "--no-commit", "--no-ff", "side"]);
    sandbox.commit("side into main");
    assert_times_are_those_of_log(&sandbox).await;
}

/// Few files with few contents, so that branches often agree by chance.
#[tokio::test]
async fn the_times_of_random_histories_are_those_of_log() {
    let mut state = 11_u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for _ in 0..6 {
        let files = ["a", "b", "d/c", "d/e/f"];
        let sandbox = Sandbox::with(&files.map(|path| (path, "0")));
        sandbox.git(&["branch", "one"]);
        sandbox.git(&["branch", "two"]);
        for _ in 0..12 {
            let branches = ["main", "one", "two"];
            let (branch, other) = (branches[random(3) as usize], branches[random(3) as usize]);
            sandbox.git(&["checkout", "--quiet", branch]);
            if random(2) == 0 {
                sandbox.git(&["merge", "--quiet", "--no-commit", "--no-ff", "--strategy=ours", other]);
            }
            for file in files {
                if random(3) == 0 {
                    sandbox.write(file, random(2).to_string().as_bytes());
                }
            }
            sandbox.commit("step");
        }
        assert_times_are_those_of_log(&sandbox).await;
    }
}
