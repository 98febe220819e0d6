//! Which subscribers are notified of which changes.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use libris_core::{Change, Context, Source, Uri};
use libris_sources::Git;

use crate::sandbox::{Sandbox, uri};

/// Those of some URIs whose subscribers are told of what `act` does. Ends once those of `last` are.
async fn told(source: &Git, subscribed: &[&str], last: &str, act: impl FnOnce()) -> BTreeSet<String> {
    let mut changes = source.watch().await.unwrap().unwrap();
    act();
    let subject = |rest: &str| source.subject(&uri(rest));
    let mut told = BTreeSet::new();
    let heard = async {
        while let Some(change) = changes.next().await {
            let at: Uri = match change {
                Change::Updated(at) | Change::Added(at) | Change::Removed(at) => at,
                Change::Lost => panic!("all was lost"),
                _ => continue,
            };
            let at = source.subject(&at);
            told.extend(subscribed.iter().filter(|rest| subject(rest) == at).map(|rest| (*rest).to_owned()));
            if at == subject(last) {
                // Changes found by the same scan follow immediately.
                while let Ok(Some(change)) =
                    tokio::time::timeout(Duration::from_millis(200), changes.next()).await
                {
                    if let Change::Updated(at) | Change::Added(at) | Change::Removed(at) = change {
                        let at = source.subject(&at);
                        told.extend(
                            subscribed
                                .iter()
                                .filter(|rest| subject(rest) == at)
                                .map(|rest| (*rest).to_owned()),
                        );
                    }
                }
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(10), heard).await.expect("told in time");
    told
}

fn set(rests: &[&str]) -> BTreeSet<String> {
    rests.iter().map(|rest| (*rest).to_owned()).collect()
}

const FILES: [(&str, &str); 3] = [("a.txt", "a"), ("b.txt", "b"), ("folder/c.txt", "c")];

#[tokio::test]
async fn a_commit_is_told_to_those_whose_path_it_changed() {
    let sandbox = Sandbox::with(&FILES);
    sandbox.git(&["branch", "other"]);
    let subscribed = [
        "blob/main/a.txt",
        "blob/main/b.txt",
        "blob/HEAD/a.txt?lines=1-2",
        "tree/HEAD/b.txt",
        "blob/heads%2Fmain/a.txt",
        "blob/refs%2Fheads%2Fmain/a.txt",
        "blob/other/a.txt",
        "tree/main/folder/",
        "tree/main/",
        "log/main",
        "log/other",
        "blob/main~1/b.txt",
        "refs",
        "diff/other/main",
    ];
    let told = told(&sandbox.open(), &subscribed, "log/main", || {
        sandbox.write("a.txt", b"aa");
        sandbox.commit("second");
    })
    .await;
    let expected = [
        "blob/main/a.txt",
        "blob/HEAD/a.txt?lines=1-2",
        "blob/heads%2Fmain/a.txt",
        "blob/refs%2Fheads%2Fmain/a.txt",
        "tree/main/",
        "log/main",
        "blob/main~1/b.txt",
        "refs",
        "diff/other/main",
    ];
    assert_eq!(told, set(&expected));
}

#[tokio::test]
async fn a_branch_that_is_moved_by_force() {
    let sandbox = Sandbox::with(&FILES);
    sandbox.write("folder/c.txt", b"cc");
    sandbox.commit("second");
    sandbox.git(&["branch", "topic"]);
    let subscribed =
        ["blob/topic/a.txt", "blob/topic/folder/c.txt", "blob/main/folder/c.txt", "tree/topic/folder/"];
    let told = told(&sandbox.open(), &subscribed, "log/topic", || {
        sandbox.git(&["branch", "--force", "topic", "HEAD~1"]);
    })
    .await;
    assert_eq!(told, set(&["blob/topic/folder/c.txt", "tree/topic/folder/"]));
}

#[tokio::test]
async fn a_folder_changes_when_something_directly_in_it_does() {
    let sandbox = Sandbox::with(&[("a/b/c.txt", "c"), ("a/d.txt", "d")]);
    let subscribed = ["tree/main/", "tree/main/a/", "tree/main/a/b/"];
    let source = sandbox.open();
    let deep = told(&source, &subscribed, "log/main", || {
        sandbox.write("a/b/c.txt", b"cc");
        sandbox.commit("deep");
    });
    assert_eq!(deep.await, set(&["tree/main/a/b/"]));
    let made = told(&source, &subscribed, "log/main", || {
        sandbox.write("a/e/f.txt", b"f");
        sandbox.commit("a folder");
    });
    assert_eq!(made.await, set(&["tree/main/a/"]));
}

#[tokio::test]
async fn a_tag_that_comes_and_goes() {
    let sandbox = Sandbox::with(&FILES);
    let source = sandbox.open();
    let subscribed =
        ["blob/v1/a.txt", "blob/tags%2Fv1/a.txt", "blob/main/a.txt", "blob/HEAD/a.txt", "log/v1", "refs"];
    let expected = set(&["blob/v1/a.txt", "blob/tags%2Fv1/a.txt", "log/v1", "refs"]);
    let added = told(&source, &subscribed, "log/v1", || {
        drop(sandbox.git(&["tag", "--annotate", "v1", "--message", "x"]))
    });
    assert_eq!(added.await, expected);
    let packed = told(&source, &subscribed, "log/v1", || {
        sandbox.git(&["pack-refs", "--all"]);
        sandbox.git(&["tag", "--delete", "v1"]);
    });
    assert_eq!(packed.await, expected);
}

#[tokio::test]
async fn switching_branches_changes_files_and_not_all_uris() {
    let sandbox = Sandbox::with(&FILES);
    sandbox.git(&["checkout", "--quiet", "-b", "topic"]);
    sandbox.write("b.txt", b"bb");
    sandbox.commit("second");
    let subscribed = ["blob/HEAD/a.txt", "blob/HEAD/b.txt", "blob/main/b.txt", "blob/topic/b.txt"];
    let told = told(&sandbox.open(), &subscribed, "log/HEAD", || {
        drop(sandbox.git(&["checkout", "--quiet", "main"]))
    })
    .await;
    assert_eq!(told, set(&["blob/HEAD/b.txt"]));
}

#[tokio::test]
async fn the_list_is_told_by_what_comes_and_goes() {
    let sandbox = Sandbox::with(&FILES);
    let source = sandbox.open();
    let mut changes = source.watch().await.unwrap().unwrap();
    std::fs::remove_dir_all(sandbox.work.join("folder")).unwrap();
    sandbox.write("new/d.txt", b"d");
    sandbox.write("b.txt", b"bb");
    sandbox.commit("second");
    let mut found = BTreeSet::new();
    while found.len() < 7 {
        let change =
            tokio::time::timeout(Duration::from_secs(10), changes.next()).await.expect("told in time");
        let said = format!("{:?}", change.unwrap());
        if said.contains("/tree/HEAD/") {
            found.insert(said);
        }
    }
    insta::assert_snapshot!(found.into_iter().collect::<Vec<_>>().join("\n"), @"
    Added(<git://repo/tree/HEAD/new/>)
    Added(<git://repo/tree/HEAD/new/d.txt>)
    Described(<git://repo/tree/HEAD/>)
    Removed(<git://repo/tree/HEAD/folder/>)
    Removed(<git://repo/tree/HEAD/folder/c.txt>)
    Updated(<git://repo/tree/HEAD/>)
    Updated(<git://repo/tree/HEAD/b.txt>)
    ");
}

#[tokio::test]
async fn the_first_commit_is_told() {
    let sandbox = Sandbox::empty();
    let told = told(&sandbox.open(), &["blob/HEAD/a.txt", "tree/HEAD/"], "log/HEAD", || {
        sandbox.write("a.txt", b"a");
        sandbox.commit("first");
    })
    .await;
    assert_eq!(told, set(&["blob/HEAD/a.txt", "tree/HEAD/"]));
}

#[tokio::test]
async fn a_watch_that_nobody_reads_ends_and_holds_up_nothing() {
    let sandbox = Sandbox::with(&FILES);
    let source = sandbox.open();
    let changes = source.watch().await.unwrap().unwrap();
    for number in 0..3 {
        sandbox.write("a.txt", format!("{number}").as_bytes());
        sandbox.commit("more");
    }
    assert!(source.list(None, 10, &Context::default()).await.is_ok());
    drop(changes);
    assert!(source.list(None, 10, &Context::default()).await.is_ok());
}

#[tokio::test]
async fn staging_is_told_to_those_of_the_status() {
    let sandbox = Sandbox::with(&FILES);
    let source = sandbox.open();
    let subscribed = [
        "status?format=json",
        "diff/staged",
        "diff/worktree?path=a.txt",
        "refs",
        "log/main",
        "tree/HEAD/a.txt",
    ];
    let staged = told(&source, &subscribed, "diff/worktree", || {
        sandbox.write("a.txt", b"staged");
        sandbox.git(&["add", "a.txt"]);
    });
    assert_eq!(staged.await, set(&["status?format=json", "diff/staged", "diff/worktree?path=a.txt"]));
}

/// The next updated page. `act` is repeated until there is one, since a subscription takes effect a moment later.
async fn updated(changes: &mut BoxStream<'static, Change>, mut act: impl FnMut(u32)) -> Uri {
    for time in 0..200 {
        act(time);
        let next = async {
            loop {
                if let Change::Updated(uri) = changes.next().await.unwrap() {
                    return uri;
                }
            }
        };
        if let Ok(uri) = tokio::time::timeout(Duration::from_millis(100), next).await {
            return uri;
        }
    }
    panic!("no update")
}

#[tokio::test]
async fn edits_are_told_to_those_of_the_status_and_of_the_differences() {
    let sandbox = Sandbox::with(&[("a.txt", "a"), (".gitignore", "ignored/\n"), ("folder/c.txt", "c")]);
    let source = sandbox.open();
    let mut changes = source.watch().await.unwrap().unwrap();
    // `diff/staged` does not depend on the working tree.
    for page in ["status", "diff/worktree", "diff/staged", "log/HEAD"] {
        source.follow(&uri(page), libris_core::Client::default());
    }
    let mut told = BTreeSet::new();
    for _ in 0..20 {
        let edit = |time: u32| sandbox.write("folder/c.txt", time.to_string().as_bytes());
        told.insert(updated(&mut changes, edit).await);
        if told.len() == 2 {
            break;
        }
    }
    assert_eq!(told, BTreeSet::from([uri("status"), uri("diff/worktree")]));
    source.unfollow(&uri("status"));
    let untracked = |time: u32| sandbox.write(&format!("new-{time}.txt"), b"");
    let mut last = updated(&mut changes, untracked).await;
    for _ in 0..20 {
        if last == uri("diff/worktree") {
            break;
        }
        last = updated(&mut changes, untracked).await;
    }
    assert_eq!(last, uri("diff/worktree"));
    // Updates from before the subscription ended are delivered.
    while tokio::time::timeout(Duration::from_millis(300), changes.next()).await.is_ok() {}
    sandbox.write("ignored/x", b"");
    let quiet = tokio::time::timeout(Duration::from_millis(300), changes.next()).await;
    assert!(quiet.is_err(), "{quiet:?}");
    let deleted = |_| drop(std::fs::remove_file(sandbox.work.join("a.txt")));
    assert_eq!(updated(&mut changes, deleted).await, uri("diff/worktree"));
}

#[tokio::test]
async fn without_subscriptions_to_the_working_tree_edits_are_not_told() {
    let sandbox = Sandbox::with(&FILES);
    let source = sandbox.open();
    let mut changes = source.watch().await.unwrap().unwrap();
    sandbox.write("a.txt", b"edited");
    // The commit of another file is told, and nothing before it.
    let quiet = tokio::time::timeout(Duration::from_millis(200), changes.next()).await;
    assert!(quiet.is_err(), "{quiet:?}");
    sandbox.write("b.txt", b"bb");
    sandbox.commit("second");
    assert!(changes.next().await.is_some());
}
