//! Reading a folder: its listing, and the small text files in it.

use libris_core::{ContentBody, Error};
use libris_sources::{Git, git};

use crate::sandbox::{Sandbox, ask, json, text};

/// The names on all pages of a listing, by following the links to the next page.
async fn walked(source: &Git, first: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut rest = first.to_owned();
    loop {
        let page = json(source, &rest).await;
        for child in page["children"].as_array().unwrap() {
            names.push(child["name"].as_str().unwrap().to_owned());
        }
        match page["next"].as_str() {
            Some(next) => rest = next.strip_prefix("git://repo/").unwrap().to_owned(),
            None => return names,
        }
        assert!(names.len() < 1000, "it never ends");
    }
}

#[tokio::test]
async fn pages_have_every_entry_once() {
    let names = ["a", "a b", "a&b=c+d", "a.txt", "é", "b/inside", "b-after", "b.txt", "zz"];
    let sandbox = Sandbox::with(&names.map(|name| (name, "text\n")));
    let expected = ["é", "a", "a b", "a&b=c+d", "a.txt", "b-after", "b.txt", "b", "zz"];
    for entries in [1, 2, 3, 8, 9, 100] {
        let source = Git::open(git::Config { directory_entries: entries, ..sandbox.config() }).unwrap();
        let mut found = walked(&source, "tree/HEAD/?format=json").await;
        assert_eq!(found.len(), names.len(), "{entries}: {found:?}");
        found.sort();
        let mut expected = expected;
        expected.sort_unstable();
        assert_eq!(found, expected, "{entries}");
    }
    // After a name that is not there.
    let page = json(&sandbox.open(), "tree/HEAD/?format=json&after=b0").await;
    assert_eq!(page["children"][0]["name"], "zz");
    // Names that contain a text, over several pages.
    let source = Git::open(git::Config { directory_entries: 2, ..sandbox.config() }).unwrap();
    assert_eq!(
        walked(&source, "tree/HEAD/?format=json&match=B").await,
        ["a b", "a&b=c+d", "b-after", "b.txt", "b"]
    );
}

#[tokio::test]
async fn only_small_text_follows() {
    let sandbox = Sandbox::with(&[("small.md", "# Small\n"), ("empty.txt", ""), ("sub/x.txt", "x\n")]);
    sandbox.write("picture.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR");
    sandbox.write("large.txt", &[b'x'; 5000]);
    for number in 0..20 {
        sandbox.write(&format!("many/{number}.txt"), &[b'y'; 4000]);
    }
    sandbox.commit("more");
    let source = sandbox.open();
    let parts = ask(&source, "tree/HEAD/").await.unwrap().parts;
    let uris: Vec<_> = parts.iter().map(|part| part.uri.path()).collect();
    assert_eq!(uris, ["/tree/HEAD/"], "it has subfolders");
    let parts = ask(&source, "tree/HEAD/?contents=text").await.unwrap().parts;
    let uris: Vec<_> = parts.iter().map(|part| part.uri.path()).collect();
    assert_eq!(uris, ["/tree/HEAD/", "/tree/HEAD/small.md"]);
    let parts = ask(&source, "tree/HEAD/many/").await.unwrap().parts;
    let size: usize = parts.iter().map(|part| part.body.len()).sum();
    assert!(parts.len() > 5 && size <= 32 * 1024, "{} parts, {size} bytes", parts.len());
    assert!(parts.iter().all(|part| matches!(&part.body, ContentBody::Text(text) if !text.is_empty())));
    assert_eq!(ask(&source, "tree/HEAD/many/?contents=none").await.unwrap().parts.len(), 1);
    // Texts follow the listing of a whole folder, not one page of several nor selected entries.
    let paged = Git::open(git::Config { directory_entries: 19, ..sandbox.config() }).unwrap();
    for page in ["?", "?after=8.txt", "?match=8"] {
        assert_eq!(ask(&paged, &format!("tree/HEAD/many/{page}")).await.unwrap().parts.len(), 1, "{page}");
    }
    assert!(ask(&paged, "tree/HEAD/many/?contents=text").await.unwrap().parts.len() > 5);
    // Without the slash there is a part for each entry, none of them empty.
    let parts = ask(&source, "tree/HEAD").await.unwrap().parts;
    assert_eq!(parts.len(), 7);
    assert!(parts.iter().all(|part| matches!(&part.body, ContentBody::Text(text) if !text.is_empty())));
}

#[tokio::test]
async fn the_first_page_of_several_is_short() {
    let sandbox = Sandbox::with(&[("a.txt", "a\n")]);
    for number in 0..110 {
        sandbox.write(&format!("many/{number:03}.txt"), b"text\n");
    }
    sandbox.commit("more");
    let source = sandbox.open();
    let names = async |rest: &str| {
        let page = text(&source, rest).await;
        page.lines().filter(|line| line.starts_with("| [")).count()
    };
    assert_eq!(names("tree/HEAD/many/").await, 50);
    assert!(text(&source, "tree/HEAD/many/").await.contains("\n60 more entries: read "));
    assert_eq!(names("tree/HEAD/many/?after=049.txt").await, 60);
    assert_eq!(names("tree/HEAD/many/?match=05").await, 12);
    assert_eq!(walked(&source, "tree/HEAD/many/?format=json").await.len(), 110);
    // VS Code shows only this page.
    assert_eq!(ask(&source, "tree/HEAD/many").await.unwrap().parts.len(), 101);
}

#[tokio::test]
async fn parameters_of_folders_and_files() {
    let sandbox = Sandbox::with(&[("a.txt", "a\n"), ("sub/x.txt", "x\n")]);
    let source = sandbox.open();
    for wrong in [
        "tree/HEAD/a.txt?after=b",
        "tree/HEAD/?lines=1-2",
        "tree/HEAD/?format=xml",
        "tree/HEAD/?contents=all",
    ] {
        assert!(matches!(ask(&source, wrong).await, Err(Error::Invalid(_))), "{wrong}");
    }
    assert_eq!(text(&source, "tree/HEAD/a.txt?after=&lines=1").await, "a\n");
}
