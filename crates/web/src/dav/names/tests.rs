use std::collections::{BTreeSet, HashMap};

use proptest::prelude::*;

use super::{FolderNames, child, decode_path, entry_name, prefix, push_encoded, segment, shown};
use crate::dav::extension;

fn names(path: &str) -> Vec<String> {
    decode_path(path).unwrap()
}

#[test]
fn a_path_is_a_uri_in_other_words() {
    for (path, uri) in [
        ("", ""),
        ("file", "file:"),
        ("file/docs", "file:///docs/"),
        ("file/docs/a%20b", "file:///docs/a%20b/"),
        ("git/project/tree/feature%252Flogin", "git://project/tree/feature%2Flogin/"),
        ("note/%253aone", "note:one/"),
        ("odd/%252fpath", "odd:///path/"),
        ("web/%5B::1%5D:80", "web://[::1]:80/"),
        ("a/b/%252E/c", "a://b//c/"),
        ("a/b/c%252E", "a://b/c/"),
    ] {
        assert_eq!(prefix(&names(path)).as_deref(), Some(uri), "{path}");
    }
    for wrong in ["file/docs/..", "file/./x", "File/docs", "1a/b"] {
        assert_eq!(prefix(&names(wrong)), None, "{wrong}");
    }
    for wrong in ["a/%2F", "a/%00", "a/%ff", "a/%zz", "a//b", "a/%0A"] {
        assert_eq!(decode_path(wrong), None, "{wrong}");
    }
}

#[test]
fn names_are_readable_and_safe() {
    for (segment, name) in [
        ("a%20b.md", "a b.md"),
        ("%E4%B8%AD%E6%96%87", "中文"),
        ("feature%2Flogin", "feature%2Flogin"),
        ("a%5Cb", "a%5Cb"),
        ("100%25", "100%25"),
        ("right%E2%80%AEto", "right%E2%80%AEto"),
        ("a%00%0A", "a%00%0A"),
        ("%FF%C3%A4", "%FFä"),
        ("rows?path=a/b", "rows%3fpath=a%2fb"),
        ("", "%2E"),
    ] {
        assert_eq!(shown(segment), name);
        assert_eq!(super::segment(name).as_deref(), Some(segment));
    }
    assert_eq!(entry_name("", "git:").as_deref(), Some("git"));
    assert_eq!(entry_name("file:", "file:///docs/").as_deref(), Some("docs"));
    assert_eq!(entry_name("docs:", "docs://one").as_deref(), Some("one"));
    assert_eq!(entry_name("note:", "note:one").as_deref(), Some("%3aone"));
    assert_eq!(entry_name("file:", "file:///").as_deref(), Some("%3a%2f%2f"));
}

#[test]
fn files_that_would_have_one_name_have_two() {
    let mut folder = FolderNames::default();
    let mut name = |uri: &str, mime| folder.name("a://b/", uri, mime, uri.ends_with('/'));
    assert_eq!(name("a://b/same", None).as_deref(), Some("same"));
    assert_eq!(name("a://b/same-not", None).as_deref(), Some("same-not"));
    assert_eq!(name("a://b/same/", None).as_deref(), Some("same%2E"));
    // Listed twice.
    assert_eq!(name("a://b/same/", None), None);
    assert_eq!(name("a://b/schema", Some("application/json")).as_deref(), Some("schema.json"));
    assert_eq!(name("a://b/schema-x", Some("application/json")).as_deref(), Some("schema-x.json"));
    assert_eq!(name("a://b/schema.json", Some("application/json")).as_deref(), Some("schema%2Ejson"));
    assert_eq!(segment("schema%2Ejson").as_deref(), Some("schema%2Ejson"));
    assert_eq!(name("a://b/t", Some("text/markdown")).as_deref(), Some("t.md"));
    assert_eq!(name("a://b/t.md/", None).as_deref(), Some("t.md%2E"));
}

/// Segments in normal form, as those of URIs are: random bytes, escaped where they must be.
fn normal_segment() -> impl Strategy<Value = String> {
    let letters = prop::sample::select(vec![
        "a",
        "b",
        ".",
        "-",
        "json",
        "md",
        "%2F",
        "%25",
        "%5C",
        "%20",
        "%E4%B8%AD",
        "%FF",
        "%E2%80%AE",
        "~",
        "!",
        "%21",
        "%C3",
        "%A4",
        "%00",
    ]);
    prop::collection::vec(letters, 1..6)
        .prop_map(|parts| parts.concat())
        .prop_filter("dot segments do not exist", |segment| segment != "." && segment != "..")
}

/// The URI in normal form, as far as this module writes others.
fn normal(uri: &str) -> String {
    uri.replace("%2E", ".")
}

proptest! {
    #[test]
    fn a_name_leads_back_to_its_segment(text in normal_segment()) {
        prop_assert_eq!(segment(&shown(&text)), Some(text));
    }

    #[test]
    fn a_name_survives_the_address(name in "[^/\\x00-\\x1f\\x7f-\\x9f]{1,12}") {
        let mut href = String::new();
        push_encoded(&mut href, &name);
        prop_assert!(href.bytes().all(|byte| byte.is_ascii_graphic()));
        prop_assert_eq!(decode_path(&href), Some(vec![name]));
    }

    /// Every entry of a folder has its own name, and the name leads back to the entry.
    #[test]
    fn names_of_a_folder_are_unique_and_lead_back(
        entries in prop::collection::btree_set((normal_segment(), any::<bool>()), 0..40),
        mimes in prop::collection::vec(prop::sample::select(vec!["", "application/json", "text/markdown"]), 40),
    ) {
        let uris: BTreeSet<_> = entries
            .iter()
            .map(|(segment, is_folder)| format!("a://b/{segment}{}", if *is_folder { "/" } else { "" }))
            .collect();
        let mut folder = FolderNames::default();
        let mut by_name = HashMap::new();
        for (uri, mime) in uris.iter().zip(&mimes) {
            let is_folder = uri.ends_with('/');
            let mime = Some(*mime).filter(|mime| !mime.is_empty() && !is_folder);
            let name = folder.name("a://b/", uri, mime, is_folder).unwrap();
            prop_assert!(!name.contains(['/', '\\', '\0']) && name != "." && name != "..");
            let before = by_name.insert(name.clone(), (uri, mime, is_folder));
            prop_assert_eq!(before, None, "{} has the name of another", uri);
        }
        for (name, (uri, _, is_folder)) in &by_name {
            let found = if *is_folder {
                prefix(&["a".to_owned(), "b".to_owned(), name.clone()]).unwrap()
            } else {
                // As for a request: first a resource that got this extension, then one that has it.
                let extended = extension::split(name).and_then(|(base, extension)| {
                    let uri = child("a://b/", base)?;
                    let (_, mime, _) = by_name.values().find(|(other, ..)| **other == uri)?;
                    (extension::of(&uri, (*mime)?) == Some(extension)).then_some(uri)
                });
                extended.unwrap_or_else(|| child("a://b/", name).unwrap())
            };
            prop_assert_eq!(&normal(&found), *uri, "by {}", name);
        }
    }
}
