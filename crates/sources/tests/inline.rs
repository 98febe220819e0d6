//! Integration tests of the inline source.

#[path = "transcripts/mod.rs"]
mod transcripts;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use futures_util::StreamExt as _;
use libris_core::{Change, Completion, CompletionRequest, ContentBody, Context, Error, Source, Uri};
use libris_sources::Inline;
use libris_sources::inline::Config;
use tempfile::TempDir;

fn inline(text: &str) -> Inline {
    inline_in(text, Path::new("/nowhere"))
}

fn inline_in(text: &str, folder: &Path) -> Inline {
    Inline::new(toml::from_str(text).unwrap(), folder).unwrap()
}

async fn read(inline: &Inline, uri: &str) -> String {
    match inline.read(&Uri::parse(uri).unwrap(), &Context::default()).await {
        Ok(contents) => {
            let [part] = &contents.parts[..] else { panic!("{contents:?}") };
            assert_eq!(part.uri.as_str(), uri);
            let mime = part.mime.as_deref().unwrap();
            match &part.body {
                ContentBody::Text(text) => format!("{mime} text {text}"),
                ContentBody::Bytes(bytes) => format!("{mime} bytes {bytes:?}"),
            }
        }
        Err(error) => error.to_string(),
    }
}

#[tokio::test]
async fn what_a_client_gets() {
    let source = inline(
        r#"
        [[resource]]
        uri = "config://app/settings"
        mime = "application/json"
        title = "Settings"
        description = "Settings of the application."
        text = '{ "theme": "dark" }'

        [[template]]
        uri = "weather://forecast/{city}/{date}"
        mime = "application/json"
        text = '{ "city": "{{city}}", "date": "{{date}}", "forecast": "unknown" }'
        complete = { city = ["Paris", "Park City"], date = ["today", "tomorrow"] }
        "#,
    );
    let mut transcript = transcripts::Transcript::of(&source);
    transcript.list().await;
    transcript.templates().await;
    transcript.complete("weather://forecast/{city}/{date}", "city", "par").await;
    for uri in [
        "config://app/settings",
        "weather://forecast/Paris/today",
        "config://app/setings",
        "config://app/settings?theme=light",
        "weather://forecast/Paris",
        "wether://forecast/Paris/today",
    ] {
        transcript.read(uri).await;
    }
    insta::assert_snapshot!("inline", transcript.text());
}

#[tokio::test]
async fn everything_that_can_be_said() {
    let inline = inline(
        r#"
        ttl = "5m"
        scope = "public"

        [[resource]]
        uri = "config://app/settings%20here"
        text = '{"a": 1}'
        title = "Settings"
        description = "What is set"
        mime = "application/json"
        icons = [{ src = "https://example.com/a.png", mimeType = "image/png", sizes = ["48x48"], theme = "dark" }]
        audience = ["user"]
        priority = 0.5
        last_modified = "2026-07-28T12:00:00Z"
        meta = { "example.com/x" = [1, { y = true }] }

        [[resource]]
        uri = "config://least"
        text = "x"
        "#,
    );
    insta::assert_debug_snapshot!(inline.list(None, 10, &Context::default()).await.unwrap(), @r#"
    Page {
        resources: [
            Resource {
                uri: <config://app/settings%20here>,
                name: "settings here",
                title: Some(
                    "Settings",
                ),
                description: Some(
                    "What is set",
                ),
                mime: Some(
                    "application/json",
                ),
                size: Some(
                    8,
                ),
                icons: [
                    Icon {
                        src: "https://example.com/a.png",
                        mime: Some(
                            "image/png",
                        ),
                        sizes: [
                            "48x48",
                        ],
                        theme: Some(
                            Dark,
                        ),
                    },
                ],
                annotations: Annotations {
                    audience: [
                        User,
                    ],
                    priority: Some(
                        0.5,
                    ),
                    last_modified: Some(
                        2026-07-28T12:00:00Z,
                    ),
                },
                meta: Some(
                    {
                        "example.com/x": Array [
                            Number(1),
                            Object {
                                "y": Bool(true),
                            },
                        ],
                    },
                ),
            },
            Resource {
                uri: <config://least>,
                name: "least",
                title: None,
                description: None,
                mime: Some(
                    "text/plain",
                ),
                size: Some(
                    1,
                ),
                icons: [],
                annotations: Annotations {
                    audience: [],
                    priority: None,
                    last_modified: None,
                },
                meta: None,
            },
        ],
        more: false,
        freshness: Freshness {
            ttl: 300s,
            scope: Public,
            proof: Some(
                Proof { .. },
            ),
            expires: None,
        },
        unavailable: [],
    }
    "#);
}

#[tokio::test]
async fn what_they_hold() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("notes.md"), "one").unwrap();
    fs::write(folder.path().join("plain"), b"caf\xe9 cr\xe8me\n").unwrap();
    let inline = inline_in(
        r#"
        max_size = 20
        resource = [
            { uri = "x://text", text = "hello" },
            { uri = "x://base64", base64 = "iVBORw0KGgo\n AAAANSUhEUg==" },
            { uri = "x://file", file = "notes.md" },
            { uri = "x://plain", file = "plain" },
            { uri = "x://typed", base64 = "aGk=", mime = "application/x-thing" },
        ]
        "#,
        folder.path(),
    );
    insta::assert_snapshot!(read(&inline, "x://text").await, @"text/plain text hello");
    insta::assert_snapshot!(read(&inline, "x://base64").await, @r#"image/png bytes b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR""#);
    insta::assert_snapshot!(read(&inline, "x://typed").await, @r#"application/x-thing bytes b"hi""#);
    insta::assert_snapshot!(read(&inline, "x://plain").await, @"text/plain text café crème");
    insta::assert_snapshot!(read(&inline, "x://file").await, @"text/markdown text one");
    fs::write(folder.path().join("notes.md"), "twice").unwrap();
    insta::assert_snapshot!(read(&inline, "x://file").await, @"text/markdown text twice");
    let listed = inline.list(Some(&Uri::parse("x://base64").unwrap()), 1, &Context::default()).await.unwrap();
    assert!(listed.more);
    assert_eq!(listed.resources[0].size, Some(5));
    assert!(listed.resources[0].annotations.last_modified.is_some());
    fs::write(folder.path().join("notes.md"), "x".repeat(21)).unwrap();
    insta::assert_snapshot!(read(&inline, "x://file").await, @"`x://file` has 21 bytes, more than the limit of 20");
    fs::remove_file(folder.path().join("notes.md")).unwrap();
    insta::assert_snapshot!(read(&inline, "x://file").await, @"the file of `x://file` does not exist any more; tell the administrator of this server");
    insta::assert_snapshot!(read(&inline, "x://other").await, @"no resource at `x://other`");
}

#[tokio::test]
async fn templates() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("page.html"), "<h1>{{city}}</h1>{{other}}").unwrap();
    let inline = inline_in(
        r#"
        [[resource]]
        uri = "weather://forecast/Rome"
        text = "always sunny"

        [[template]]
        uri = "weather://forecast/{city}"
        name = "forecast"
        text = "The weather in {{city}}"
        complete = { city = ["Paris", "Park City", "Oslo"] }

        [[template]]
        uri = "weather://{+any}"
        mime = "application/json"
        text = '{"any": "{{any}}"}'

        [[template]]
        uri = "weather://page/{city}{?units}"
        file = "page.html"
        "#,
        folder.path(),
    );
    insta::assert_snapshot!(read(&inline, "weather://forecast/Rome").await, @"text/plain text always sunny");
    insta::assert_snapshot!(read(&inline, "weather://forecast/S%C3%A3o%20Paulo").await, @"text/plain text The weather in São Paulo");
    insta::assert_snapshot!(read(&inline, "weather://say/%22hi%22").await, @r#"application/json text {"any": "say/\"hi\""}"#);
    insta::assert_snapshot!(read(&inline, "weather://page/Oslo?units=c").await, @"text/html text <h1>Oslo</h1>{{other}}");
    insta::assert_snapshot!(read(&inline, "other://x").await, @"no resource at `other://x`");
    let templates = inline.templates(&Context::default()).await.unwrap().templates;
    let names: Vec<_> =
        templates.iter().map(|template| (template.name.as_str(), template.mime.as_deref())).collect();
    insta::assert_debug_snapshot!(names, @r#"
    [
        (
            "weather by any",
            Some(
                "application/json",
            ),
        ),
        (
            "forecast",
            Some(
                "text/plain",
            ),
        ),
        (
            "page by city",
            Some(
                "text/html",
            ),
        ),
    ]
    "#);
    let known = BTreeMap::new();
    let asked = |variable, typed| CompletionRequest {
        template: &templates[1].uri,
        variable,
        typed,
        known: &known,
        limit: 100,
    };
    let completion = inline.complete(asked("city", "par"), &Context::default()).await.unwrap();
    let Completion { values, total, more, proof } = completion;
    assert_eq!((values, total, more), (vec!["Paris".into(), "Park City".into()], Some(2), false));
    assert!(proof.is_some(), "the values stand in the configuration");
    let unknown = inline.complete(asked("town", ""), &Context::default()).await.unwrap();
    assert!(unknown.values.is_empty() && !unknown.more, "{unknown:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_file_that_became_a_pipe() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    let folder = TempDir::new().unwrap();
    let path = folder.path().join("data");
    fs::write(&path, "text").unwrap();
    let inline = inline_in(
        r#"
        resource = [{ uri = "x://pipe", file = "data" }]
        template = [{ uri = "x://pipe/{name}", file = "data" }]
        "#,
        folder.path(),
    );
    fs::remove_file(&path).unwrap();
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    // On a separate thread, which stays blocked if the open of the pipe blocks: a timer of the same thread would not fire.
    let (done, answer) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let answers = runtime.block_on(async {
            let listed = inline.list(None, 9, &Context::default()).await.unwrap().resources.remove(0);
            let template = inline.templates(&Context::default()).await.unwrap().templates.remove(0);
            let mut answers = vec![format!("{:?} {:?} {:?}", listed.mime, listed.size, template.mime)];
            for uri in ["x://pipe", "x://pipe/x"] {
                let error = inline.read(&Uri::parse(uri).unwrap(), &Context::default()).await.unwrap_err();
                assert!(matches!(error, Error::Unavailable(_)), "{error:?}");
                answers.push(error.to_string());
            }
            answers
        });
        done.send(answers).unwrap();
    });
    let answers = answer.recv_timeout(Duration::from_secs(20)).expect("waited for a pipe");
    insta::assert_snapshot!(answers.join("\n"), @r#"
    Some("application/octet-stream") None Some("application/octet-stream")
    the file of `x://pipe` is not a regular file any more; tell the administrator of this server
    the file of `x://pipe/x` is not a regular file any more; tell the administrator of this server
    "#);
}

#[test]
fn mistakes_name_the_resource() {
    let wrong = |text: &str| {
        let config: Config = toml::from_str(text).unwrap();
        let error = Inline::new(config, Path::new(env!("CARGO_MANIFEST_DIR"))).err().unwrap();
        assert!(matches!(error, Error::Invalid(_)));
        error.to_string()
    };
    insta::assert_snapshot!(wrong("resource = [{ uri = 'a://b' }]"), @"the inline resource `a://b`: it has no content: set `text`, `base64` or `file`");
    insta::assert_snapshot!(wrong("resource = [{ uri = 'a://b', text = '', file = 'x' }]"), @"the inline resource `a://b`: it has several contents: set only one of `text`, `base64` and `file`");
    insta::assert_snapshot!(wrong("resource = [{ uri = 'a://b', base64 = '*' }]"), @"the inline resource `a://b`: its `base64` cannot be decoded: Invalid symbol 42, offset 0.; hint: encode the data again, as `base64 --wrap=0` does");
    insta::assert_snapshot!(wrong("resource = [{ uri = 'a://b', file = 'nowhere' }]"), @"the inline resource `a://b`: its file `nowhere` cannot be read: No such file or directory (os error 2); hint: check the path");
    insta::assert_snapshot!(wrong("resource = [{ uri = 'a://b', file = 'src' }]"), @"the inline resource `a://b`: its file `src` is not a regular file; hint: name a file");
    insta::assert_snapshot!(wrong("resource = [{ uri = 'a://b', text = '', priority = -1 }]"), @"the inline resource `a://b`: its `priority` must be from 0 to 1, not `-1`");
    insta::assert_snapshot!(wrong("resource = [{ uri = 'a://b', text = '', complete = { x = [] } }]"), @"the inline resource `a://b`: it has no variables to `complete`; hint: remove `complete`, or add a variable to `uri`");
    insta::assert_snapshot!(wrong("resource = [{ uri = 'a://b', text = '' }, { uri = 'A://b', text = '' }]"), @"the inline resource `a://b`: it is declared twice; hint: remove one, or give it another `uri`");
    insta::assert_snapshot!(wrong("template = [{ uri = 'a://{b}', text = '' }, { uri = 'a://{b}', text = '' }]"), @"the inline resource `a://{b}`: it is declared twice; hint: remove one, or give it another `uri`");
    insta::assert_snapshot!(wrong("template = [{ uri = 'a://{b}', text = '{{c}}' }]"), @"the inline resource `a://{b}`: it has no variable `c`, only `b`");
    insta::assert_snapshot!(wrong("template = [{ uri = 'a://{b}', text = '', complete = { c = [] } }]"), @"the inline resource `a://{b}`: it has no variable `c`, only `b`");
    let unparsed = toml::from_str::<Config>("resource = [{ uri = 'no uri', text = '' }]").unwrap_err();
    insta::assert_snapshot!(unparsed, @"
    TOML parse error at line 1, column 21
      |
    1 | resource = [{ uri = 'no uri', text = '' }]
      |                     ^^^^^^^^
    not a URI: a space cannot be in a scheme: at byte 2 of `no uri`
    ");
}

#[tokio::test]
async fn files_are_told_when_they_change() {
    let folder = TempDir::new().unwrap();
    for name in ["one.md", "two.md", "three.md"] {
        fs::write(folder.path().join(name), name).unwrap();
    }
    let config = "resource = [{ uri = 'x://one', file = 'one.md' }, { uri = 'x://two', file = 'two.md' }, \
                  { uri = 'x://text', text = '' }]\ntemplate = [{ uri = 'x://t/{v}', file = 'three.md' }]";
    let inline = inline_in(config, folder.path());
    let mut changes = inline.watch().await.unwrap().unwrap();
    let mut next = async || {
        tokio::time::timeout(Duration::from_secs(20), changes.next()).await.expect("in time").unwrap()
    };
    let one = Uri::parse("x://one").unwrap();
    fs::write(folder.path().join("one.md"), "changed").unwrap();
    assert_eq!(next().await, Change::Updated(one.clone()));
    assert_eq!(next().await, Change::Described(one.clone()));
    fs::remove_file(folder.path().join("one.md")).unwrap();
    assert_eq!(next().await, Change::Updated(one.clone()));
    assert_eq!(next().await, Change::Described(one));
    // The resources that a template expands to are not enumerable.
    fs::write(folder.path().join("three.md"), "changed").unwrap();
    assert_eq!(next().await, Change::Lost);
    assert!(self::inline("resource = [{ uri = 'x://text', text = '' }]").watch().await.unwrap().is_none());
}
