//! Repositories without commits, with a detached `HEAD`, bare, with worktrees, and other layouts.

use libris_core::{ContentBody, Source};
use libris_sources::Git;

use crate::sandbox::{Sandbox, ask, config, json, listed, part, run, text};

#[tokio::test]
async fn without_commits() {
    let sandbox = Sandbox::empty();
    let source = sandbox.open();
    let uris: Vec<_> = listed(&source).await.iter().map(|resource| resource.uri.path().to_owned()).collect();
    assert_eq!(uris, ["/diff/staged", "/diff/worktree", "/refs", "/status"]);
    assert!(text(&source, "refs").await.contains("which has no commits yet"));
    assert!(ask(&source, "log/HEAD").await.is_err() && ask(&source, "tree/HEAD/").await.is_err());
    sandbox.write("a", b"a");
    sandbox.commit("first");
    assert_eq!(text(&source, "blob/HEAD/a").await, "a");
}

#[tokio::test]
async fn on_no_branch() {
    let sandbox = Sandbox::with(&[("a", "one")]);
    sandbox.write("a", b"two");
    sandbox.commit("second");
    sandbox.git(&["checkout", "--quiet", "--detach", "HEAD~1"]);
    let source = sandbox.open();
    assert_eq!(text(&source, "blob/HEAD/a").await, "one");
    assert_eq!(text(&source, "blob/main/a").await, "two");
    assert!(text(&source, "refs").await.contains("on no branch"));
    assert_eq!(listed(&source).await.len(), 7);
}

#[tokio::test]
async fn a_shallow_clone_says_where_it_ends() {
    let sandbox = Sandbox::with(&[("a", "one")]);
    for number in 0..4 {
        sandbox.write("a", format!("{number}").as_bytes());
        sandbox.commit("more");
    }
    let url = format!("file://{}", sandbox.work.display());
    run(sandbox.dir.path(), &["clone", "--quiet", "--depth", "2", &url, "shallow"]);
    let source = Git::open(config(&sandbox.dir.path().join("shallow"))).unwrap();
    let log = json(&source, "log/HEAD?format=json").await;
    assert_eq!((log["commits"].as_array().unwrap().len(), &log["shallow"]), (2, &true.into()));
    assert_eq!(text(&source, "blob/HEAD~1/a").await, "2");
    assert!(ask(&source, "blob/HEAD~2/a").await.is_err());
    assert!(text(&source, "commit/HEAD~1").await.contains("- A "));
    assert_eq!(text(&source, "blob/origin%2Fmain/a").await, "3");
    assert_eq!(text(&source, "blob/origin/a").await, "3");
}

#[cfg(unix)]
#[tokio::test]
async fn links_and_submodules_are_not_followed() {
    let sandbox = Sandbox::with(&[("a", "a")]);
    std::fs::write(sandbox.dir.path().join("outside"), "secret").unwrap();
    std::os::unix::fs::symlink("../outside", sandbox.work.join("link")).unwrap();
    run(sandbox.dir.path(), &["clone", "--quiet", "repo", "library"]);
    let library = sandbox.dir.path().join("library");
    sandbox.git(&["submodule", "--quiet", "add", library.to_str().unwrap(), "library"]);
    sandbox.commit("second");
    let source = sandbox.open();
    let link = part(&source, "blob/HEAD/link").await;
    assert_eq!(
        (link.mime.as_deref(), link.body),
        (Some("inode/symlink"), ContentBody::Text("../outside".into()))
    );
    let commit = sandbox.git(&["rev-parse", "HEAD:library"]);
    let submodule = part(&source, "blob/HEAD/library").await;
    assert_eq!(submodule.body, ContentBody::Text(format!("Subproject commit {commit}\n")));
    assert_eq!(submodule.meta.unwrap()["dev.libris/submodule"]["commit"], *commit);
    assert!(
        ask(&source, "blob/HEAD/library/a").await.is_err() && ask(&source, "blob/HEAD/link/x").await.is_err()
    );
    let listed = listed(&source).await;
    let found = listed.iter().find(|resource| resource.name == "library").unwrap();
    assert!(found.description.as_deref().unwrap().contains("submodule"));
}

#[tokio::test]
async fn a_pointer_of_lfs_says_so() {
    let pointer =
        format!("version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize 12345678\n", "a".repeat(64));
    let sandbox = Sandbox::with(&[("film.mp4", &pointer), ("a.txt", "a")]);
    let source = sandbox.open();
    let part = part(&source, "blob/HEAD/film.mp4").await;
    assert_eq!((part.mime.as_deref(), &part.body), (Some("text/plain"), &ContentBody::Text(pointer)));
    assert_eq!(part.meta.unwrap()["dev.libris/lfs"]["size"], 12_345_678);
    let listed = listed(&source).await;
    let found = listed.iter().find(|resource| resource.name == "film.mp4").unwrap();
    assert!(found.description.as_deref().unwrap().contains("Git LFS"), "{found:?}");
}

#[tokio::test]
async fn a_tag_goes_before_a_branch_of_the_same_name() {
    let sandbox = Sandbox::with(&[("a", "tag")]);
    sandbox.git(&["tag", "same"]);
    sandbox.write("a", b"branch");
    sandbox.commit("second");
    sandbox.git(&["branch", "same"]);
    let source = sandbox.open();
    assert_eq!(text(&source, "blob/same/a").await, "tag");
    assert_eq!(text(&source, "blob/heads%2Fsame/a").await, "branch");
    let refs = json(&source, "refs?format=json").await;
    let short: Vec<_> =
        refs["refs"].as_array().unwrap().iter().map(|one| one["ref"].as_str().unwrap()).collect();
    assert_eq!(short, ["main", "heads/same", "same"]);
}

#[tokio::test]
async fn a_repository_of_sha_256() {
    let sandbox = Sandbox::empty();
    std::fs::remove_dir_all(sandbox.work.join(".git")).unwrap();
    sandbox.git(&["init", "--quiet", "--object-format=sha256"]);
    sandbox.write("a", b"a");
    let id = sandbox.commit("first");
    let source = sandbox.open();
    assert_eq!(text(&source, &format!("blob/{id}/a")).await, "a");
    assert_eq!(text(&source, &format!("blob/{}/a", &id[..8])).await, "a");
}

#[tokio::test]
async fn objects_of_another_repository_that_it_borrows() {
    let sandbox = Sandbox::with(&[("a", "a")]);
    run(sandbox.dir.path(), &["clone", "--quiet", "--shared", "repo", "borrower"]);
    let source = Git::open(config(&sandbox.dir.path().join("borrower"))).unwrap();
    assert_eq!(text(&source, "blob/HEAD/a").await, "a");
}

#[tokio::test]
async fn objects_that_are_packed_while_it_is_served() {
    let sandbox = Sandbox::with(&[("a", "a")]);
    let source = sandbox.open();
    assert_eq!(text(&source, "blob/HEAD/a").await, "a");
    for number in 0..5 {
        sandbox.write("a", format!("{number}").as_bytes());
        sandbox.commit("more");
        sandbox.git(&["gc", "--quiet", "--prune=now"]);
        assert_eq!(text(&source, "blob/HEAD/a").await, format!("{number}"));
        assert_eq!(text(&source, &format!("blob/HEAD~{}/a", number + 1)).await, "a");
    }
}

#[tokio::test]
async fn a_partial_clone_lists_what_it_does_not_hold() {
    let sandbox = Sandbox::with(&[("a.txt", "a"), ("unnamed", "b")]);
    sandbox.git(&["config", "uploadpack.allowFilter", "true"]);
    let url = format!("file://{}", sandbox.work.display());
    run(sandbox.dir.path(), &["clone", "--quiet", "--bare", "--filter=blob:none", &url, "partial.git"]);
    let source = Git::open(config(&sandbox.dir.path().join("partial.git"))).unwrap();
    let listed = listed(&source).await;
    assert_eq!(listed.len(), 5);
    assert!(matches!(ask(&source, "blob/HEAD/a.txt").await, Err(libris_core::Error::Unavailable(_))));
    assert_eq!(source.read(&listed[2].uri, &libris_core::Context::default()).await.unwrap().parts.len(), 1);
}

#[tokio::test]
async fn what_is_no_repository_is_explained() {
    let folder = tempfile::tempdir().unwrap();
    let said = |path: &str| Git::open(config(&folder.path().join(path))).err().unwrap().to_string();
    assert!(said("").contains("it is not a git repository; hint: "), "{}", said(""));
    assert!(said("nothing").contains("there is no such folder"));
    assert!(Git::open(libris_sources::git::Config::default()).is_err());
}

#[tokio::test]
async fn a_git_file_is_followed_to_a_repository_that_names_it_in_turn() {
    let sandbox = Sandbox::with(&[("a", "a")]);
    let other = sandbox.dir.path().join("linked");
    sandbox.git(&["worktree", "add", "--quiet", "--detach", other.to_str().unwrap()]);
    assert_eq!(text(&Git::open(config(&other)).unwrap(), "blob/HEAD/a").await, "a");
    run(sandbox.dir.path(), &["clone", "--quiet", "repo", "library"]);
    let library = sandbox.dir.path().join("library");
    sandbox.git(&["submodule", "--quiet", "add", library.to_str().unwrap(), "deep/library"]);
    let submodule = sandbox.work.join("deep/library");
    assert!(submodule.join(".git").is_file());
    assert_eq!(text(&Git::open(config(&submodule)).unwrap(), "blob/HEAD/a").await, "a");
}

#[tokio::test]
async fn a_folder_cannot_choose_a_repository_that_does_not_know_it() {
    let sandbox = Sandbox::with(&[("secret", "a")]);
    let git = sandbox.work.join(".git");
    let planted = sandbox.dir.path().join("planted");
    std::fs::create_dir(&planted).unwrap();
    std::fs::write(planted.join(".git"), format!("gitdir: {}\n", git.display())).unwrap();
    let said = Git::open(config(&planted)).err().unwrap().to_string();
    assert!(said.contains("does not refer back to it; hint: "), "{said}");
    std::fs::remove_file(planted.join(".git")).unwrap();
    run(&planted, &["init", "--quiet"]);
    std::fs::write(planted.join(".git/commondir"), git.to_str().unwrap()).unwrap();
    let said = Git::open(config(&planted)).err().unwrap().to_string();
    assert!(said.contains("has no such linked working tree"), "{said}");
    // Whoever means that repository says so.
    assert_eq!(text(&Git::open(config(&git)).unwrap(), "blob/HEAD/secret").await, "a");
}
