//! Options that shorten lists: `include`, `folders`, `depth` and `max_listed`. What they leave out can still be read.

use libris_core::{ContentBody, Context, Source};
use libris_sources::Files;
use libris_sources::files::{ChangeDetection, Config};

use super::sandbox::{Sandbox, listed, read};

fn sandbox() -> Sandbox {
    Sandbox::with(&[
        ("a/b/c/deep.md", "# Deep"),
        ("a/b/x.txt", ""),
        ("a/empty/y.txt", ""),
        ("a.md", "# A"),
        ("d/e/f.txt", ""),
        ("g/h.md", "# H"),
        ("z.txt", ""),
    ])
}

#[tokio::test]
async fn folders_without_an_included_file_are_not_listed() {
    let sandbox = sandbox();
    let files = sandbox.files_with(|config| config.include = vec!["*.md".into()]);
    assert_eq!(listed(&files).await, ["", "a.md", "a/", "a/b/", "a/b/c/", "a/b/c/deep.md", "g/", "g/h.md"]);
    assert!(read(&files, "d/e/").await.is_ok());
    let nothing = sandbox.files_with(|config| config.include = vec!["*.rs".into()]);
    assert_eq!(listed(&nothing).await, [""]);
    let all = sandbox.files();
    assert_eq!(listed(&all).await.len(), 15);
}

#[tokio::test]
async fn folders_are_not_listed_if_so_configured() {
    let sandbox = sandbox();
    let files = sandbox.files_with(|config| config.folders = false);
    let expected = ["a.md", "a/b/c/deep.md", "a/b/x.txt", "a/empty/y.txt", "d/e/f.txt", "g/h.md", "z.txt"];
    assert_eq!(listed(&files).await, expected);
    assert!(read(&files, "a/b/").await.is_ok());
}

#[tokio::test]
async fn lists_end_at_a_depth() {
    let sandbox = sandbox();
    let with_depth = |depth| sandbox.files_with(|config| config.depth = Some(depth));
    let files = with_depth(1);
    assert_eq!(listed(&files).await, ["", "a.md", "a/", "d/", "g/", "z.txt"]);
    assert_eq!(
        listed(&with_depth(2)).await,
        ["", "a.md", "a/", "a/b/", "a/empty/", "d/", "d/e/", "g/", "g/h.md", "z.txt"]
    );
    assert_eq!(listed(&with_depth(128)).await, listed(&sandbox.files()).await);
    assert!(read(&files, "a/b/c/deep.md").await.is_ok());
    // A page that begins after a deeper URI.
    let after = super::sandbox::uri("file:///root/a/b/c/deep.md");
    let page = files.list(Some(&after), 10, &Context::default()).await.unwrap();
    assert_eq!(page.resources[0].uri.as_str(), "file:///root/d/");
    let described = files.list(None, 10, &Context::default()).await.unwrap().resources;
    let notes: Vec<_> = described.iter().filter_map(|resource| resource.description.as_deref()).collect();
    assert_eq!(notes, ["Its entries are not listed: read it to see them."; 3]);
}

#[tokio::test]
async fn lists_end_at_a_number_of_resources() {
    let sandbox = sandbox();
    let all = listed(&sandbox.files()).await;
    for count in 1..=all.len() + 1 {
        let files = sandbox.files_with(|config| config.max_listed = Some(count));
        assert_eq!(listed(&files).await, all[..count.min(all.len())], "{count}");
        assert!(read(&files, "z.txt").await.is_ok());
    }
    let files = sandbox.files_with(|config| {
        config.max_listed = Some(3);
        config.include = vec!["*.md".into()];
        config.folders = false;
    });
    assert_eq!(listed(&files).await, ["a.md", "a/b/c/deep.md", "g/h.md"]);
}

#[tokio::test]
async fn a_list_with_a_limit_follows_changes() {
    let sandbox = sandbox();
    let files = sandbox.files_with(|config| {
        config.max_listed = Some(2);
        config.folders = false;
        config.include = vec!["*.md".into()];
    });
    assert_eq!(listed(&files).await, ["a.md", "a/b/c/deep.md"]);
    sandbox.write("a/b/c/before.md", "");
    assert_eq!(listed(&files).await, ["a.md", "a/b/c/before.md"]);
    std::fs::remove_file(sandbox.path("a.md")).unwrap();
    assert_eq!(listed(&files).await, ["a/b/c/before.md", "a/b/c/deep.md"]);
}

#[test]
fn options_out_of_range_are_errors() {
    let wrong = |line: &str| toml::from_str::<Config>(line).unwrap_err().message().to_owned();
    insta::assert_snapshot!(wrong("depth = 0"), @"`0` is out of range; hint: use a number from 1 to 128");
    insta::assert_snapshot!(wrong("max_listed = 0"), @"`0` is out of range; hint: use a number from 1 to 1000000");
    insta::assert_snapshot!(wrong("directory_entries = 0"), @"`0` is out of range; hint: use a number from 1 to 100000");
}

/// The names in the listing of a folder.
async fn children(files: &Files, path: &str) -> Vec<String> {
    let listing = match &read(files, &format!("{path}?format=json")).await.unwrap()[0].body {
        ContentBody::Text(text) => serde_json::from_str::<serde_json::Value>(text).unwrap(),
        ContentBody::Bytes(_) => panic!("a listing is text"),
    };
    let listed = listing["children"].as_array().unwrap().iter();
    let listed: Vec<_> = listed.map(|child| child["name"].as_str().unwrap().to_owned()).collect();
    let uri = super::sandbox::uri(&format!("file:///root/{path}"));
    let page = files.children(&uri, None, 100, &Context::default()).await.unwrap();
    assert_eq!(
        page.resources.iter().map(|child| &child.name).collect::<Vec<_>>(),
        listed.iter().collect::<Vec<_>>()
    );
    listed
}

#[tokio::test]
async fn a_folder_without_an_included_file_is_not_in_the_listing_of_its_parent() {
    for watch in [ChangeDetection::Auto, ChangeDetection::Poll] {
        let sandbox = sandbox();
        let files = sandbox.files_with(|config| {
            config.include = vec!["*.md".into()];
            config.watch = watch;
        });
        assert_eq!(children(&files, "").await, ["a.md", "a", "g"]);
        assert_eq!(children(&files, "a/").await, ["b"]);
        // At once, without waiting for evidence to expire.
        sandbox.write("d/e/new.md", "");
        sandbox.write("a/empty/not.txt", "");
        assert_eq!(children(&files, "").await, ["a.md", "a", "d", "g"]);
        assert_eq!(children(&files, "a/").await, ["b"]);
        assert_eq!(children(&files, "d/").await, ["e"]);
        std::fs::remove_file(sandbox.path("d/e/new.md")).unwrap();
        std::fs::rename(sandbox.path("g/h.md"), sandbox.path("g/h.txt")).unwrap();
        assert_eq!(children(&files, "").await, ["a.md", "a"]);
    }
}

#[tokio::test]
async fn no_page_of_a_listing_consists_of_omitted_folders() {
    let sandbox = Sandbox::with(&[("1/a.md", ""), ("2/a.md", ""), ("3/a.txt", ""), ("4/a.txt", "")]);
    let files = sandbox.files_with(|config| {
        config.include = vec!["*.md".into()];
        config.directory_entries = 1;
    });
    let next = |contents: &[libris_core::Content]| {
        let meta = contents[0].meta.as_ref();
        meta.map(|meta| meta.values().next().unwrap().as_str().unwrap().to_owned())
    };
    let first = read(&files, "").await.unwrap();
    assert_eq!(next(&first).as_deref(), Some("file:///root/?after=1"));
    assert_eq!(first[0].meta.as_ref().unwrap().len(), 1, "the number of further entries is not known");
    let second = read(&files, "?after=1").await.unwrap();
    assert_eq!(next(&second), None);
}
