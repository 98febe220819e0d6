//! Listings: metadata, order, pages, templates and configuration.

use std::time::{Duration, SystemTime};

use libris_core::{CacheScope, Context, Source};
use libris_sources::files::Config;

use super::sandbox::{Sandbox, listed, rendered_children, uri};

#[tokio::test]
async fn resources_have_metadata() {
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
    let page = files.list(None, 100, &Context::default()).await.unwrap();
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
    insta::assert_snapshot!(lines.join("\n"), @r#"
    file:///root/ | root | None | Some("Everything about roots") | inode/directory | None | [] None 2023-11-14T22:13:20.5Z
    file:///root/guide/ | guide | None | None | inode/directory | None | [] Some(0.9) 2023-11-14T22:13:20.5Z
    file:///root/guide/plain.md | plain.md | Some("Plain") | Some("A page of the handbook") | text/markdown | Some(8) | [Assistant] Some(0.9) 2023-11-14T22:13:20.5Z
    file:///root/guide/start.md | start.md | Some("Getting started") | Some("It's easy") | text/markdown | Some(65) | [User, Assistant] Some(0.9) 2023-11-14T22:13:20.5Z
    file:///root/main.rs | main.rs | None | None | text/x-rust | Some(13) | [] None 2023-11-14T22:13:20.5Z
    file:///root/picture.png | picture.png | None | None | image/png | Some(10) | [] None 2023-11-14T22:13:20.5Z
    file:///root/unknown | unknown | None | None | text/plain | Some(9) | [] None 2023-11-14T22:13:20.5Z
    "#);
}

#[tokio::test]
async fn a_listing_and_a_read_agree_on_the_media_type() {
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
    for resource in files.list(None, 100, &Context::default()).await.unwrap().resources {
        if resource.uri == *files.root() {
            continue;
        }
        let read = files.read(&resource.uri, &Default::default()).await.unwrap();
        assert_eq!(resource.mime, read.parts[0].mime, "{}", resource.uri);
    }
    insta::assert_snapshot!(rendered_children(&files, "").await.replace(&long, "…"), @r##"
    file:///root/code.ts text/typescript text "let a = 1"
    file:///root/data.bin text/plain text "really text"
    file:///root/empty text/plain text ""
    file:///root/late-zero text/plain bytes b"…\0"
    file:///root/noise application/octet-stream bytes b"\x80\x81\0\x01\x02"
    file:///root/noise.md text/markdown bytes b"\x80\x81\0\x01\x02"
    file:///root/old text/plain text "Größe, Äpfel und Öl"
    file:///root/page text/html text "<!doctype html><p>"
    file:///root/picture image/png bytes b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0"
    file:///root/script text/plain text "#!/bin/sh\necho\n"
    file:///root/text text/plain text "hello"
    file:///root/video.ts application/octet-stream bytes b"G@\0\x10\0\0"
    "##);
}

#[tokio::test]
async fn a_listing_can_begin_after_any_uri() {
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
        let page = files.list(Some(&after), 100, &Context::default()).await.unwrap();
        let got: Vec<_> = page.resources.iter().map(|resource| resource.uri.clone()).collect();
        let expected: Vec<_> =
            all.iter().map(|path| uri(&format!("file:///root/{path}"))).filter(|uri| *uri > after).collect();
        assert_eq!(got, expected, "after {start:?}");
    }
    for (after, count) in
        [("a://x", all.len()), ("file:///a", all.len()), ("file:///rooz", 0), ("zzz://x", 0)]
    {
        assert_eq!(
            files.list(Some(&uri(after)), 100, &Context::default()).await.unwrap().resources.len(),
            count,
            "after {after}"
        );
    }
}

#[tokio::test]
async fn children_are_paged() {
    let sandbox = Sandbox::with(&[("a/b/c", ""), ("a/d", ""), ("a/e/f", ""), ("g", "")]);
    let files = sandbox.files();
    let mut seen = Vec::new();
    loop {
        let page = files.children(&uri("file:///root/a"), seen.last(), 1, &Context::default()).await.unwrap();
        seen.extend(page.resources.into_iter().map(|resource| resource.uri));
        if !page.more {
            break;
        }
    }
    assert_eq!(seen, ["file:///root/a/b/", "file:///root/a/d", "file:///root/a/e/"].map(uri));
    let error = |text| async move {
        files.children(&uri(text), None, 10, &Context::default()).await.unwrap_err().to_string()
    };
    insta::assert_snapshot!(error("file:///root/g").await, @"`file:///root/g` is not a directory");
}

#[tokio::test]
async fn templates_freshness_and_coverage() {
    let sandbox = Sandbox::with(&[("a", "")]);
    let files = sandbox.files_with(|config| {
        config.ttl = Duration::from_secs(300);
        config.scope = CacheScope::Public;
    });
    let context = Context::default();
    for freshness in [
        files.list(None, 10, &context).await.unwrap().freshness,
        files.templates(&context).await.unwrap().freshness,
        files.read(&uri("file:///root/a"), &context).await.unwrap().freshness,
        files.children(files.root(), None, 10, &context).await.unwrap().freshness,
    ] {
        assert_eq!((freshness.ttl, freshness.scope), (Duration::from_secs(300), CacheScope::Public));
    }
    let templates = files.templates(&Context::default()).await.unwrap().templates;
    let covers = |text| files.covers(&uri(text));
    assert!(covers("file:///root/a") > covers("file:///root/a?lines=1-2"));
    assert_eq!(covers("file:///root/a?lines=1-2"), Some(templates[0].uri.specificity()));
    // Covered, so that the error can name the parameters that exist.
    assert!(covers("file:///root/a?q=1").is_some() && !files.may_appear(&uri("file:///root/a?q=1")));
    for text in ["file:///rooted/a", "file:///root/a#b", "file://host/root/a", "http://root/a"] {
        assert_eq!(covers(text), None, "{text}");
    }
}

#[test]
fn configuration_errors() {
    let parse = |text: &str| toml::from_str::<Config>(text);
    assert_eq!(parse("").unwrap(), Config::default());
    assert_eq!(parse("ttl = '5m'").unwrap().ttl, Duration::from_secs(300));
    insta::assert_snapshot!(parse("ttl = '5 apples'").unwrap_err(), @r#"
    TOML parse error at line 1, column 7
      |
    1 | ttl = '5 apples'
      |       ^^^^^^^^^^
    `5 apples` is not a duration such as `30s` or `5m`: unknown time unit "apples", supported units: ns, us/µs, ms, sec, min, hours, days, weeks, months, years (and few variations)
    "#);
    let unknown = parse("hiden = true").unwrap_err();
    let (what, expected) = unknown.message().split_once(", expected one of ").unwrap();
    assert_eq!(what, "unknown field `hiden`");
    assert!(expected.starts_with("`path`, `mount`"), "{expected}");
    let open = |text: &str| {
        let config = Config { path: "/tmp".into(), ..parse(text).unwrap() };
        libris_sources::Files::open(config).err().unwrap().to_string()
    };
    insta::assert_snapshot!(open("rule = [{ glob = 'x', priority = 2 }]"), @"the rule for `x` has the priority `2`, which is not between 0 and 1; hint: write a number from 0 to 1");
    insta::assert_snapshot!(open("rule = [{ priority = 1 }]"), @"a `rule` has no `glob`; hint: set `glob` to a pattern such as `*.md`");
    insta::assert_snapshot!(open("include = ['a{b']"), @r"`include` has the invalid pattern `a{b`: its `{` has no `}`; write `\{` for the character");
}
