//! Errors for wrong URIs: what is wrong, and what to request instead.

use std::sync::Arc;

use libris_core::{Context, Error, Source, Uri, Visibility};
use libris_sources::Git;

use crate::sandbox::{Sandbox, ask, uri};

/// The error of a read, as a client gets it.
async fn refused(source: &Git, rest: &str) -> String {
    match ask(source, rest).await {
        Err(Error::Missing { hint, .. }) => format!("{rest}\n  resource not found: {hint}\n"),
        Err(Error::NotFound(_)) => format!("{rest}\n  resource not found\n"),
        Err(error) => format!("{rest}\n  {error}\n"),
        Ok(_) => panic!("{rest} can be read"),
    }
}

async fn transcript(source: &Git, wrong: &[&str]) -> String {
    let mut said = String::new();
    for rest in wrong {
        said.push_str(&refused(source, rest).await);
    }
    said
}

fn sandbox() -> Sandbox {
    let sandbox = Sandbox::with(&[
        ("README.md", "# Read me\n"),
        ("src/main.rs", "fn main() {}\n"),
        ("src/lib.rs", "pub fn lib() {}\n"),
        ("secret/key.pem", "key\n"),
    ]);
    sandbox.git(&["branch", "feature/login"]);
    sandbox.git(&["branch", "maintenance"]);
    sandbox.git(&["tag", "v1.2"]);
    sandbox
}

#[tokio::test]
async fn wrong_revisions() {
    let sandbox = sandbox();
    let wrong = [
        "tree/mian/README.md",
        "log/v1.3",
        "commit/zzz",
        "commit/HEAD~7",
        "tree/feature/login/src/main.rs",
        "tree/feature/login",
        "log/feature/login",
        "log/feature/logn",
        "diff/main/feature/login",
        "diff/feature/login/main",
        "diff/main/nothing/here",
        "diff/main",
        "diff/mian/main",
    ];
    insta::assert_snapshot!(transcript(&sandbox.open(), &wrong).await);
}

#[tokio::test]
async fn wrong_paths() {
    let sandbox = sandbox();
    let wrong = [
        "tree/HEAD/READM.md",
        "tree/HEAD/readme.md",
        "tree/main/src/mian.rs",
        "tree/HEAD/scr/main.rs",
        "tree/HEAD/src/zzz/deep/er",
        "tree/HEAD/README.md/",
        "tree/HEAD/README.md/more",
        "tree/HEAD/zzz",
    ];
    insta::assert_snapshot!(transcript(&sandbox.open(), &wrong).await);
}

#[tokio::test]
async fn wrong_words_and_parameters() {
    let sandbox = sandbox();
    let wrong = [
        "",
        "blobb/main/README.md",
        "branches",
        "tree",
        "log/",
        "refs/heads/main",
        "log/main?limt=5",
        "refs?x=1",
        "tree/main/README.md?line=1-5",
    ];
    insta::assert_snapshot!(transcript(&sandbox.open(), &wrong).await);
}

#[tokio::test]
async fn before_the_first_commit() {
    let sandbox = Sandbox::empty();
    insta::assert_snapshot!(transcript(&sandbox.open(), &["tree/HEAD/", "log/main"]).await);
}

/// A hidden path gets the error of a missing one, and no error names it.
#[tokio::test]
async fn hidden_paths_are_not_suggested() {
    let sandbox = sandbox();
    let source = |exclude: &[&str]| {
        let exclude = exclude.iter().map(|pattern| (*pattern).to_owned()).collect();
        Git::open(libris_sources::git::Config { exclude, ..sandbox.config() }).unwrap()
    };
    let (open, closed) = (source(&[]), source(&["secret/"]));
    assert!(refused(&open, "tree/HEAD/secrt").await.contains("did you mean `secret/`"));
    for wrong in
        ["tree/HEAD/secrt", "tree/HEAD/secret/", "tree/HEAD/secret/key.pem", "tree/HEAD/secret/kye.pem"]
    {
        let said = refused(&closed, wrong).await;
        assert!(
            !said.contains("`secret/`") && !said.contains("key.pem`") && !said.contains("file"),
            "{said}"
        );
    }
    let said = |rest: &'static str| {
        let closed = &closed;
        async move { refused(closed, rest).await.replace(rest, "") }
    };
    assert_eq!(said("tree/HEAD/secret").await.replace("secret", "x"), said("tree/HEAD/x").await);
}

/// Callers who do not see everything get no hints.
#[tokio::test]
async fn restricted_callers_get_no_hints() {
    struct NoSecrets;
    impl Visibility for NoSecrets {
        fn sees(&self, uri: &Uri) -> bool {
            !uri.as_str().contains("secret")
        }
    }
    let sandbox = sandbox();
    let source = sandbox.open();
    let context = Context::default().with_visibility(Arc::new(NoSecrets));
    for wrong in ["tree/HEAD/secrt", "tree/mian/README.md", "blobb/x", "log/feature/login"] {
        let read = source.read(&uri(wrong), &context).await;
        assert!(matches!(read, Err(Error::NotFound(_))), "{wrong}: {read:?}");
    }
}

/// A URI with thousands of slashes does not cause thousands of lookups.
#[tokio::test]
async fn branches_with_few_slashes_are_found() {
    let sandbox = sandbox();
    let (few, many) = (["a"; 10].join("/"), ["b"; 40].join("/"));
    sandbox.git(&["branch", &few]);
    sandbox.git(&["branch", &many]);
    let source = sandbox.open();
    for word in ["tree", "blame"] {
        assert!(refused(&source, &format!("{word}/{few}/README.md")).await.contains("a%2Fa%2Fa"));
        assert!(!refused(&source, &format!("{word}/{many}/README.md")).await.contains("b%2Fb%2Fb"));
    }
    assert!(refused(&source, &format!("diff/main/{few}")).await.contains("a%2Fa%2Fa"));
    assert!(!refused(&source, &format!("diff/main/{many}")).await.contains("b%2Fb%2Fb"));
}
