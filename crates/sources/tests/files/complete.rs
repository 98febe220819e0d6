//! Completions of `{+path}` expand to readable URIs.

use std::collections::BTreeMap;

use libris_core::uri_template::Variables;
use libris_core::{Completion, CompletionRequest, Context, Source, Uri};
use libris_sources::Files;

use super::sandbox::Sandbox;

async fn complete(files: &Files, variable: &str, typed: &str) -> Completion {
    let template = files.templates(&Context::default()).await.unwrap().templates.remove(0).uri;
    let known = BTreeMap::new();
    files
        .complete(
            CompletionRequest { template: &template, variable, typed, known: &known, limit: 100 },
            &Context::default(),
        )
        .await
        .unwrap()
}

async fn values(files: &Files, typed: &str) -> Vec<String> {
    complete(files, "path", typed).await.values
}

#[tokio::test]
async fn completes_one_segment_at_a_time() {
    let files = Sandbox::with(&[
        ("guide/start.md", ""),
        ("guide/Stop.md", ""),
        ("guide/deep/er.md", ""),
        ("GUIDE.md", ""),
        (".hidden", ""),
        ("readme.md", ""),
    ]);
    let files = files.files();
    assert_eq!(values(&files, "").await, ["GUIDE.md", "guide/", "readme.md"]);
    assert_eq!(values(&files, "gui").await, ["GUIDE.md", "guide/"]);
    assert_eq!(values(&files, "guide/").await, ["guide/deep/", "guide/start.md", "guide/Stop.md"]);
    assert_eq!(values(&files, "guide/st").await, ["guide/start.md", "guide/Stop.md"]);
    assert_eq!(values(&files, "guide/deep/e").await, ["guide/deep/er.md"]);
    for nothing in ["x", "nowhere/", "readme.md/", "/", "../", "guide/../", ".h", "guide//", "%2e%2e/", "a\0"]
    {
        assert_eq!(complete(&files, "path", nothing).await.values, [""; 0], "{nothing:?}");
    }
    for variable in ["lines", "bytes", "other"] {
        assert_eq!(complete(&files, variable, "").await, Completion::default());
    }
}

#[tokio::test]
async fn the_variables_of_the_folder_template() {
    let sandbox = Sandbox::with(&[("guide/start.md", ""), ("guide/deep/er.md", ""), ("gui.md", "")]);
    let files = sandbox.files();
    let template = files.templates(&Context::default()).await.unwrap().templates.remove(1).uri;
    assert_eq!(template.as_str(), "file:///root/{+folder}{?after,match,format,contents}");
    let known = BTreeMap::new();
    for (variable, typed, expected) in [
        ("folder", "", &["guide/"][..]),
        ("folder", "guide/", &["guide/deep/"]),
        ("format", "", &["markdown", "json"]),
        ("contents", "n", &["none"]),
        ("after", "", &[]),
        ("path", "", &[]),
    ] {
        let request = CompletionRequest { template: &template, variable, typed, known: &known, limit: 100 };
        let completion = files.complete(request, &Context::default()).await.unwrap();
        assert_eq!(completion.values, expected, "{variable} {typed}");
        assert!(!completion.more && completion.total.is_none_or(|total| total == expected.len() as u64));
    }
    let variables: Variables =
        [("folder", "guide/"), ("format", "json"), ("after", "deep")].into_iter().collect();
    let uri = Uri::parse(&template.expand(&variables).unwrap()).unwrap();
    assert!(files.read(&uri, &Context::default()).await.is_ok(), "{uri}");
}

#[tokio::test]
async fn every_completion_expands_to_a_readable_uri() {
    let sandbox = Sandbox::new();
    for name in
        ["100%", "50%25", "a b", "what?", "#1", "[x]", "é", "a+b", "new\nline", "semi;", "co:lon", "{x}"]
    {
        sandbox.write(format!("in {name}/{name}"), "x");
    }
    #[cfg(unix)]
    {
        use std::os::unix::ffi::OsStrExt;
        sandbox.write(std::ffi::OsStr::from_bytes(b"in \xff/\xfe"), "x");
    }
    let files = sandbox.files();
    let template = files.templates(&Context::default()).await.unwrap().templates.remove(0).uri;
    let mut open = vec![String::new()];
    let mut leaves = 0;
    while let Some(typed) = open.pop() {
        let found = values(&files, &typed).await;
        assert!(!found.is_empty(), "{typed}");
        for value in found {
            let variables = Variables::from_iter([("path", value.as_str())]);
            let uri = Uri::parse(&template.expand(&variables).unwrap()).unwrap();
            files.read(&uri, &Context::default()).await.unwrap();
            match value.ends_with('/') {
                true => open.push(value),
                false => leaves += 1,
            }
        }
    }
    assert_eq!(leaves, if cfg!(unix) { 13 } else { 12 });
}

#[tokio::test]
async fn completions_are_limited_and_counted() {
    let sandbox = Sandbox::new();
    for number in 0..150 {
        sandbox.write(format!("{number:03}"), "");
    }
    let completion = complete(&sandbox.files(), "path", "").await;
    assert_eq!((completion.values.len(), completion.total, completion.more), (100, Some(150), true));
}

#[tokio::test]
async fn folders_without_an_included_file_are_not_completed() {
    let sandbox =
        Sandbox::with(&[("docs/a/x.md", ""), ("docs/b/x.txt", ""), ("dust/x.txt", ""), ("due.md", "")]);
    let files = sandbox.files_with(|config| config.include = vec!["*.md".into()]);
    let found = complete(&files, "path", "d").await;
    assert_eq!(
        (found.values, found.total, found.more),
        (vec!["docs/".into(), "due.md".into()], Some(2), false)
    );
    assert_eq!(values(&files, "docs/").await, ["docs/a/"]);
    let template = files.templates(&Context::default()).await.unwrap().templates.remove(0).uri;
    let known = BTreeMap::new();
    let one =
        CompletionRequest { template: &template, variable: "path", typed: "d", known: &known, limit: 1 };
    let found = files.complete(one, &Context::default()).await.unwrap();
    assert_eq!((found.values, found.total, found.more), (vec!["docs/".into()], None, true));
    let two = CompletionRequest { limit: 2, ..one };
    let found = files.complete(two, &Context::default()).await.unwrap();
    assert_eq!((found.values.len(), found.total, found.more), (2, Some(2), false));
}

#[tokio::test]
async fn segments_complete_to_plain_names_that_expand_to_readable_uris() {
    let names = ["guide/start.md", "guide/100%.md", "guide/why?.md", "guide/a b/c#1.md"];
    let texts: Vec<_> = names.iter().map(|name| (*name, *name)).collect();
    let sandbox = Sandbox::with(&texts);
    let files = sandbox.files();
    let context = Context::default();
    let template = files.templates(&context).await.unwrap().templates.remove(2).uri;
    assert!(template.as_str().ends_with("{/path*}"), "{template}");
    let known = BTreeMap::new();
    let complete = async |typed: &str| {
        let asked =
            CompletionRequest { template: &template, variable: "path", typed, known: &known, limit: 100 };
        files.complete(asked, &context).await.unwrap().values
    };
    assert_eq!(complete("").await, ["guide/"]);
    assert_eq!(complete("guide/").await, ["guide/100%.md", "guide/a b/", "guide/start.md", "guide/why?.md"]);
    assert_eq!(complete("guide/100%").await, ["guide/100%.md"]);
    assert_eq!(complete("guide/a b/").await, ["guide/a b/c#1.md"]);
    for name in names {
        let mut variables = Variables::new();
        variables.insert("path", name.split('/').map(str::to_owned).collect::<Vec<_>>());
        let uri = Uri::parse(&template.expand(&variables).unwrap()).unwrap();
        let contents = files.read(&uri, &context).await.unwrap();
        assert_eq!(contents.parts[0].body, libris_core::ContentBody::Text(name.to_owned()), "{uri}");
    }
}
