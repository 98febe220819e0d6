//! `resources/directory/read` on every source that has folders.

use std::process::Command;

use serde_json::{Value, json};

use crate::session::{LEGACY, Session, write};

const METHOD: &str = "resources/directory/read";

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    write(path, "docs/a.md", "# A\n");
    write(path, "docs/guide/start.md", "# Start\n");
    write(path, "docs/guide/deep/er.txt", "er");
    write(path, "docs/guide/secret/key.txt", "key");
    std::fs::create_dir(path.join("docs/empty")).unwrap();
    let mut archive = zip::ZipWriter::new(std::fs::File::create(path.join("docs/box.zip")).unwrap());
    let options = zip::write::SimpleFileOptions::default();
    for member in ["inner/one.txt", "inner/sub/two.txt", "three.txt"] {
        archive.start_file(member, options).unwrap();
    }
    archive.finish().unwrap();
    write(path, "project/src/main.rs", "fn main() {}\n");
    write(path, "project/readme.md", "# Project\n");
    let git = |arguments: &[&str]| {
        let done = Command::new("git").args(arguments).current_dir(path.join("project")).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    };
    git(&["init", "--quiet", "--initial-branch=main"]);
    git(&["add", "."]);
    git(&["-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "--quiet", "-m", "first"]);
    let shop = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/shop.db");
    std::fs::copy(shop, path.join("shop.db")).unwrap();
    let config = "[server]\npage_size = 2\n[[files]]\npath = \"docs\"\n[[git]]\npath = \"project\"\n\
                  [[sql]]\nurl = \"sqlite:shop.db\"\n\
                  [[inline.resource]]\nuri = \"note://one\"\ntext = \"one\"\n";
    write(path, "libris.toml", config);
    folder
}

/// The URIs of what is in a directory.
fn uris(session: &mut Session, directory: &str) -> Vec<String> {
    let (children, _) = session.pages(METHOD, "resources", &json!({ "uri": directory }));
    children.iter().map(|child| child["uri"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn directories_of_every_source_are_read_with_and_without_the_slash() {
    let folder = folder();
    let mut session = Session::modern(folder.path());
    for (directory, children) in [
        (
            "file:///docs",
            vec!["file:///docs/a.md", "file:///docs/box.zip", "file:///docs/empty", "file:///docs/guide"],
        ),
        (
            "file:///docs/guide",
            vec!["file:///docs/guide/deep", "file:///docs/guide/secret", "file:///docs/guide/start.md"],
        ),
        ("file:///docs/guide/deep", vec!["file:///docs/guide/deep/er.txt"]),
        ("file:///docs/empty", vec![]),
        (
            "file:///docs/box.zip/inner",
            vec!["file:///docs/box.zip/inner/one.txt", "file:///docs/box.zip/inner/sub"],
        ),
        ("git://project/tree/main", vec!["git://project/tree/main/readme.md", "git://project/tree/main/src"]),
        ("git://project/tree/main/src", vec!["git://project/tree/main/src/main.rs"]),
    ] {
        assert_eq!(uris(&mut session, directory), children, "{directory}");
        assert_eq!(uris(&mut session, &format!("{directory}/")), children, "{directory}/");
    }
    // Every directory in a listing can be read in turn, and every file not.
    let mut left = vec!["file:///docs".to_owned(), "git://project/tree/main".to_owned()];
    let listed = session.pages("resources/list", "resources", &json!({})).0;
    let is_directory = |child: &Value| child["mimeType"] == "inode/directory";
    left.extend(
        listed.iter().filter(|one| is_directory(one)).map(|one| one["uri"].as_str().unwrap().to_owned()),
    );
    assert!(left.iter().any(|uri| uri.starts_with("sqlite:")), "{left:?}");
    let mut directories = 0;
    while let Some(directory) = left.pop() {
        directories += 1;
        for child in session.pages(METHOD, "resources", &json!({ "uri": directory })).0 {
            let uri = child["uri"].as_str().unwrap().to_owned();
            assert!(!uri.ends_with('/') && child["name"].is_string(), "{child}");
            match is_directory(&child) {
                true => left.push(uri),
                false => assert_eq!(session.error(METHOD, json!({ "uri": uri })).0, -32602, "{uri}"),
            }
        }
    }
    assert!(directories > 8, "{directories}");
}

#[test]
fn a_page_has_a_cursor_of_its_own_directory() {
    let folder = folder();
    let mut session = Session::modern(folder.path());
    let docs = json!({ "uri": "file:///docs" });
    let (children, pages) = session.pages(METHOD, "resources", &docs);
    assert_eq!((children.len(), pages), (4, 2));
    let first = session.result(METHOD, docs);
    assert_eq!(first["resultType"], "complete");
    // The extension gives the result no caching hints.
    assert!(first["ttlMs"].is_null() && first["cacheScope"].is_null(), "{first}");
    let cursor = first["nextCursor"].as_str().unwrap();
    let rest = session.result(METHOD, json!({ "uri": "file:///docs/", "cursor": cursor }));
    assert_eq!(rest["resources"].as_array().unwrap().len(), 2);
    for (method, params) in [
        (METHOD, json!({ "uri": "file:///docs/guide", "cursor": cursor })),
        (METHOD, json!({ "uri": "file:///docs", "cursor": "forged" })),
        ("resources/list", json!({ "cursor": cursor })),
    ] {
        let (code, message) = session.error(method, params);
        assert_eq!((code, &*message), (-32602, "unknown cursor; list again without a cursor"));
    }
    for (params, why) in [
        (json!({}), "`uri` is missing"),
        (json!({ "uri": "note://one" }), "`note://one` is not a directory"),
        (json!({ "uri": "file:///docs/a.md" }), "`file:///docs/a.md` is not a directory"),
        (json!({ "uri": "file:///docs/box.zip" }), "`file:///docs/box.zip` is not a directory"),
        (json!({ "uri": "file:///docs/nope" }), "resource not found"),
        (json!({ "uri": "no uri" }), ""),
    ] {
        let (code, message) = session.error(METHOD, params.clone());
        assert_eq!(code, -32602, "{params}: {message}");
        assert!(message.starts_with(why), "{params}: {message}");
    }
}

#[test]
fn older_revisions_have_directories_too() {
    let folder = folder();
    for revision in LEGACY {
        let (mut session, welcome) = Session::legacy(folder.path(), revision);
        let extension = &welcome["capabilities"]["extensions"]["io.modelcontextprotocol/skills"];
        let expected = if revision == "2025-11-25" { json!({ "directoryRead": true }) } else { Value::Null };
        assert_eq!(*extension, expected, "{revision}");
        let result = session.result(METHOD, json!({ "uri": "file:///docs/guide/deep" }));
        assert!(result["resultType"].is_null(), "{result}");
        let child = &result["resources"][0];
        assert_eq!(child["uri"], "file:///docs/guide/deep/er.txt");
        assert_eq!(child["title"].is_string(), revision >= "2025-06-18", "{child}");
    }
}

#[test]
fn hidden_directories_do_not_exist() {
    let folder = folder();
    let rules =
        "[[rule]]\nuri = \"file:///docs/guide/secret/**\"\naction = \"deny\"\n[[rule]]\naction = \"allow\"\n";
    let config = std::fs::read_to_string(folder.path().join("libris.toml")).unwrap();
    write(folder.path(), "libris.toml", format!("{config}{rules}"));
    let mut session = Session::modern(folder.path());
    assert_eq!(
        uris(&mut session, "file:///docs/guide"),
        ["file:///docs/guide/deep", "file:///docs/guide/start.md"]
    );
    let hidden = session.ask(METHOD, json!({ "uri": "file:///docs/guide/secret" }));
    let absent = session.ask(METHOD, json!({ "uri": "file:///docs/guide/absent" }));
    let same = |answer: &Value| answer["error"].to_string().replace("secret", "absent");
    assert_eq!(same(&hidden), same(&absent));
}

#[test]
fn a_server_without_folders_does_not_declare_the_extension() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "libris.toml", "[[inline.resource]]\nuri = \"note://one\"\ntext = \"one\"\n");
    let mut session = Session::modern(folder.path());
    let discovered = session.result("server/discover", json!({}));
    assert!(discovered["capabilities"]["extensions"].is_null(), "{discovered}");
    for method in [METHOD, "skills/list", "skills/get"] {
        assert_eq!(session.error(method, json!({ "uri": "note://one" })).0, -32601, "{method}");
    }
}
