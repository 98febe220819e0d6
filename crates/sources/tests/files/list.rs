//! What a listing says about files.

use std::time::{Duration, SystemTime};

use libris_core::{Cache, Scope, Source};
use libris_sources::files::Config;

use super::sandbox::{Sandbox, listed, shown, uri};

#[tokio::test]
async fn metadata() {
    let sandbox = Sandbox::with(&[
        ("guide/start.md", "---\ntitle: Getting started\ndescription: 'It''s easy'\n---\n# Start\n"),
        ("guide/plain.md", "# Plain\n"),
        ("main.rs", "fn main() {}\n"),
        ("picture.png", "not really"),
        ("unknown", "some text"),
    ]);
    let time = SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_500);
    for path in ["guide/start.md", "guide/plain.md", "main.rs", "picture.png", "unknown", "guide", ""] {
        std::fs::File::open(sandbox.path(path)).unwrap().set_modified(time).unwrap();
    }
    let files = sandbox.files_with(|config| {
        *config = toml::from_str::<Config>(
            r#"
            description = "Everything about roots"
            [[rule]]
            glob = "*.md"
            priority = 0.8
            audience = ["user", "assistant"]
            description = "A page of the handbook"
            [[rule]]
            glob = "guide/"
            priority = 0.9
            [[rule]]
            glob = "/guide/plain.md"
            audience = ["assistant"]
            "#,
        )
        .unwrap();
        config.path = sandbox.path("");
    });
    let page = files.list(None, 100).await.unwrap();
    assert!(!page.more);
    let lines: Vec<_> = page
        .resources
        .iter()
        .map(|resource| {
            let annotations = &resource.annotations;
            format!(
                "{} | {} | {:?} | {:?} | {} | {:?} | {:?} {:?} {}",
                resource.uri,
                resource.name,
                resource.title,
                resource.description,
                resource.mime.as_deref().unwrap(),
                resource.size,
                annotations.audience,
                annotations.priority,
                annotations.last_modified.unwrap()
            )
        })
        .collect();
    insta::assert_snapshot!(lines.join("\n"), @"");
}

#[tokio::test]
async fn a_listing_and_a_read_agree_about_the_kind() {
    let sandbox = Sandbox::new();
    let long = "x".repeat(20_000);
    let cases: &[(&str, &[u8])] = &[
        ("text", b"hello"),
        ("empty", b""),
        ("script", b"#!/bin/sh\necho\n"),
        ("picture", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0"),
        ("late-zero", &[long.as_bytes(), b"\0"].concat()),
        ("old", "Größe, Äpfel und Öl".chars().map(|letter| letter as u8).collect::<Vec<_>>().leak()),
        ("noise", b"\x80\x81\0\x01\x02"),
        ("noise.md", b"\x80\x81\0\x01\x02"),
        ("video.ts", b"\x47\x40\0\x10\0\0"),
        ("code.ts", b"let a = 1"),
        ("data.bin", b"really text"),
        ("page", b"<!doctype html><p>"),
    ];
    for (name, content) in cases {
        sandbox.write(name, content);
    }
    let files = sandbox.files();
    for resource in files.list(None, 100).await.unwrap().resources {
        if resource.uri == files.root() {
            continue;
        }
        let read = files.read(&resource.uri, &Default::default()).await.unwrap();
        assert_eq!(resource.mime, read.parts[0].mime, "{}", resource.uri);
    }
    insta::assert_snapshot!(shown(&files, "").await.replace(&long, "…"), @"");
}

#[tokio::test]
async fn a_listing_can_begin_anywhere() {
    let sandbox = Sandbox::with(&[
        ("a", ""),
        ("a!", ""),
        ("a0", ""),
        ("b/c", ""),
        ("b/d/e", ""),
        ("b!", ""),
        ("b0", ""),
        ("z", ""),
    ]);
    let files = sandbox.files();
    let all = ["", "a", "a!", "a0", "b!", "b/", "b/c", "b/d/", "b/d/e", "b0", "z"];
    assert_eq!(listed(&files).await, all);
    let starts = all.into_iter().chain([
        "a?lines=1",
        "b",
        "b/b",
        "b/c/x",
        "b/d",
        "b/d/zzz",
        "b/zzz",
        "gone/for/good",
        "zz",
    ]);
    for start in starts {
        let after = uri(&format!("file:///root/{start}"));
        let page = files.list(Some(&after), 100).await.unwrap();
        let got: Vec<_> = page.resources.iter().map(|resource| resource.uri.clone()).collect();
        let expected: Vec<_> =
            all.iter().map(|path| uri(&format!("file:///root/{path}"))).filter(|uri| *uri > after).collect();
        assert_eq!(got, expected, "after {start:?}");
    }
    for (after, count) in
        [("a://x", all.len()), ("file:///a", all.len()), ("file:///rooz", 0), ("zzz://x", 0)]
    {
        assert_eq!(files.list(Some(&uri(after)), 100).await.unwrap().resources.len(), count, "after {after}");
    }
}

#[tokio::test]
async fn children() {
    let sandbox = Sandbox::with(&[("a/b/c", ""), ("a/d", ""), ("a/e/f", ""), ("g", "")]);
    let files = sandbox.files();
    let mut seen = Vec::new();
    loop {
        let page = files.children(&uri("file:///root/a"), seen.last(), 1).await.unwrap();
        seen.extend(page.resources.into_iter().map(|resource| resource.uri));
        if !page.more {
            break;
        }
    }
    assert_eq!(seen, ["file:///root/a/b/", "file:///root/a/d", "file:///root/a/e/"].map(uri));
    let error = |text| async move { files.children(&uri(text), None, 10).await.unwrap_err().to_string() };
    insta::assert_snapshot!(error("file:///root/g").await, @"");
}

#[tokio::test]
async fn templates_and_cache() {
    let sandbox = Sandbox::with(&[("a", "")]);
    let files = sandbox.files_with(|config| {
        config.ttl = Duration::from_secs(300);
        config.scope = Scope::Public;
    });
    assert_eq!(files.cache(), Cache { ttl: Duration::from_secs(300), scope: Scope::Public });
    let templates = files.templates().await.unwrap();
    insta::assert_debug_snapshot!(templates, @"");
    let covers = |text| files.covers(&uri(text));
    assert!(covers("file:///root/a") > covers("file:///root/a?lines=1-2"));
    assert_eq!(covers("file:///root/a?lines=1-2"), Some(templates[0].uri.specificity()));
    for text in
        ["file:///rooted/a", "file:///root/a?q=1", "file:///root/a#b", "file://host/root/a", "http://root/a"]
    {
        assert_eq!(covers(text), None, "{text}");
    }
}

#[test]
fn configuration() {
    let parse = |text: &str| toml::from_str::<Config>(text);
    assert_eq!(parse("").unwrap(), Config::default());
    assert_eq!(parse("ttl = '5m'").unwrap().ttl, Duration::from_secs(300));
    insta::assert_snapshot!(parse("ttl = '5 apples'").unwrap_err(), @"");
    insta::assert_snapshot!(parse("hiden = true").unwrap_err(), @"");
    let open = |text: &str| {
        let config = Config { path: "/tmp".into(), ..parse(text).unwrap() };
        libris_sources::Files::open(config).err().unwrap().to_string()
    };
    insta::assert_snapshot!(open("rule = [{ glob = 'x', priority = 2 }]"), @"");
    insta::assert_snapshot!(open("rule = [{ priority = 1 }]"), @"");
    insta::assert_snapshot!(open("include = ['a{b']"), @"");
}
