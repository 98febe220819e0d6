//! Completing branches, tags, commits and paths.

use crate::sandbox::{Sandbox, ask, complete};

const TREE: &str = "tree/{ref}/{+path}{?lines,bytes}";

#[tokio::test]
async fn revisions() {
    let sandbox = Sandbox::with(&[("a", "a")]);
    sandbox.git(&["branch", "feature/one"]);
    sandbox.git(&["tag", "v1.0"]);
    let id = sandbox.git(&["rev-parse", "HEAD"]);
    let source = sandbox.open();
    let all = complete(&source, TREE, "ref", "", &[]).await.values;
    assert_eq!(all, ["HEAD", "feature/one", "main", "v1.0", &id[..10]]);
    assert_eq!(complete(&source, TREE, "ref", "fea", &[]).await.values, ["feature/one"]);
    assert_eq!(complete(&source, TREE, "ref", "V", &[]).await.values, ["v1.0"]);
    for variable in ["base", "head"] {
        assert_eq!(
            complete(&source, "diff/{base}/{head}{?path}", variable, "ma", &[]).await.values,
            ["main"]
        );
    }
    let ids = complete(&source, "commit/{id}{?format}", "id", "", &[]).await.values;
    assert_eq!(ids[0], id[..10]);
    assert_eq!(complete(&source, "commit/{id}{?format}", "id", &id[..12], &[]).await.values, [&id[..12]]);
    assert_eq!(complete(&source, "commit/{id}{?format}", "format", "j", &[]).await.values, ["json"]);
}

#[tokio::test]
async fn a_commit_of_no_branch_by_the_beginning_of_its_id() {
    let sandbox = Sandbox::with(&[("a", "a")]);
    sandbox.write("a", b"lost");
    let lost = sandbox.commit("lost");
    sandbox.git(&["reset", "--quiet", "--hard", "HEAD~1"]);
    let source = sandbox.open();
    let found = complete(&source, "commit/{id}{?format}", "id", &lost[..6], &[]).await.values;
    assert_eq!(found, [&lost[..10]]);
}

#[tokio::test]
async fn paths_within_the_revision_that_was_chosen() {
    let sandbox =
        Sandbox::with(&[("src/main.rs", "x"), ("src/lib.rs", "x"), ("Setup.md", "x"), ("100%.md", "x")]);
    sandbox.git(&["tag", "old"]);
    sandbox.write("src/new.rs", b"new");
    sandbox.commit("second");
    let source = sandbox.open();
    let paths =
        async |typed: &str, rev: &str| complete(&source, TREE, "path", typed, &[("ref", rev)]).await.values;
    assert_eq!(paths("s", "main").await, ["Setup.md", "src/"]);
    assert_eq!(paths("src/", "main").await, ["src/lib.rs", "src/main.rs", "src/new.rs"]);
    assert_eq!(paths("src/", "old").await, ["src/lib.rs", "src/main.rs"]);
    assert_eq!(paths("1", "main").await, ["100%25.md"]);
    for (typed, rev) in [("src/", "nothing"), ("../", "main"), ("src/main.rs/", "main"), ("x", "-x")] {
        assert!(paths(typed, rev).await.is_empty(), "{typed} {rev}");
    }
    let log =
        complete(&source, "log/{ref}{?path,limit,format}", "path", "1", &[("ref", "main")]).await.values;
    assert_eq!(log, ["100%.md"]);
    assert!(ask(&source, "log/main?path=100%25.md").await.is_ok());
    let diff =
        complete(&source, "diff/{base}/{head}{?path}", "path", "src/n", &[("base", "old"), ("head", "main")])
            .await;
    assert_eq!(diff.values, ["src/new.rs"]);
}

#[tokio::test]
async fn segments_of_a_path() {
    let sandbox = Sandbox::with(&[("guide/start.md", "x"), ("guide/100%.md", "y")]);
    let source = sandbox.open();
    let template = "tree/{ref}{/path*}";
    let values = async |typed| complete(&source, template, "path", typed, &[("ref", "main")]).await.values;
    assert_eq!(values("").await, ["guide/"]);
    assert_eq!(values("guide/").await, ["guide/100%.md", "guide/start.md"]);
    assert_eq!(complete(&source, template, "ref", "ma", &[]).await.values, ["main"]);
}
