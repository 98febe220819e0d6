//! The contents of folders.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use libris_core::{Content, ContentBody, Context, Source, Uri, Visibility};
use libris_sources::Files;
use libris_sources::files::{Config, MetadataRule};

use super::sandbox::{Sandbox, read, rendered, uri};

/// A folder with one file of each kind, all with the same modification time.
fn mixed() -> Sandbox {
    let sandbox = Sandbox::with(&[
        ("mixed/a.txt", "12345"),
        ("mixed/b.txt", &"x".repeat(5000)),
        ("mixed/c/d.txt", "below"),
        ("mixed/e.md", "# Sixty-seven\n"),
        ("mixed/empty.txt", ""),
        ("mixed/f.png", "picture"),
    ]);
    std::fs::create_dir(sandbox.path("empty")).unwrap();
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    for name in ["a.txt", "b.txt", "e.md", "empty.txt", "f.png"] {
        let file = std::fs::File::open(sandbox.path(format!("mixed/{name}"))).unwrap();
        file.set_modified(time).unwrap();
    }
    sandbox
}

fn text(part: &Content) -> &str {
    match &part.body {
        ContentBody::Text(text) => text,
        ContentBody::Bytes(_) => panic!("{} is not text", part.uri),
    }
}

/// The parts of a folder, each with its URI, its media type and its `_meta`, and its text below.
async fn parts(files: &Files, path: &str) -> String {
    let parts = read(files, path).await.unwrap();
    let rendered = parts.iter().map(|part| {
        let meta = part.meta.as_ref().map(|meta| format!(" {}", serde_json::to_string(meta).unwrap()));
        format!(
            "{} {}{}\n{}",
            part.uri,
            part.mime.as_deref().unwrap_or_default(),
            meta.unwrap_or_default(),
            text(part)
        )
    });
    rendered.collect::<Vec<_>>().join("\n----\n")
}

#[tokio::test]
async fn a_listing_is_followed_by_small_text_files() {
    let sandbox = mixed();
    let files = sandbox.files();
    insta::assert_snapshot!(parts(&files, "mixed/?contents=text").await);
    insta::assert_snapshot!(parts(&files, "mixed/?contents=none").await);
    let plain = parts(&files, "mixed/").await;
    assert_eq!(
        plain,
        parts(&files, "mixed/?contents=none").await.replace("?contents=none", ""),
        "it has subfolders"
    );
    insta::assert_snapshot!(parts(&files, "mixed/?format=json").await);
    insta::assert_snapshot!(parts(&files, "empty/").await, @"
    file:///root/empty/ text/markdown
    # root/empty

    No entries.
    ");
    assert_eq!(
        parts(&files, "mixed/?").await,
        parts(&files, "mixed/?after=&match=&format=&contents=&lines=")
            .await
            .replace("after=&match=&format=&contents=&lines=", "")
    );
    let titled = sandbox.files_with(|config| config.title = Some("The root".into()));
    assert!(parts(&titled, "").await.contains("# The root\n"));
}

#[tokio::test]
async fn pictures_are_never_included() {
    let sandbox =
        Sandbox::with(&[("a.svg", "<svg/>"), ("b.png", "text?"), ("c", "\0"), ("d.pdf", "%PDF-1.4")]);
    assert_eq!(read(&sandbox.files(), "").await.unwrap().len(), 1);
}

#[tokio::test]
async fn pages_of_a_listing_lead_to_every_child() {
    let sandbox = Sandbox::new();
    let names = ["a b.txt", "a&b", "a+b", "é", "f", "f.txt", "g/x", "g.md", "h", "zz"];
    names.iter().for_each(|name| sandbox.write(name, "x"));
    for limit in 1..=names.len() {
        let files = sandbox.files_with(|config| config.directory_entries = limit);
        let root = uri("file:///root/");
        let children = files.children(&root, None, 100, &Context::default()).await.unwrap().resources;
        let mut next = Some("file:///root/?format=json".to_owned());
        let mut found = Vec::new();
        while let Some(page) = next.take() {
            let parts = files.read(&uri(&page), &Context::default()).await.unwrap().parts;
            let listing: serde_json::Value = serde_json::from_str(text(&parts[0])).unwrap();
            let listed = listing["children"].as_array().unwrap();
            assert!((1..=limit).contains(&listed.len()), "{page}");
            found.extend(listed.iter().map(|child| child["uri"].as_str().unwrap().to_owned()));
            next = listing["next"].as_str().map(str::to_owned);
            let meta = parts[0].meta.as_ref();
            assert_eq!(meta.map(|meta| meta["dev.libris/next"].as_str().unwrap()), next.as_deref());
        }
        assert_eq!(found, children.iter().map(|child| child.uri.as_str()).collect::<Vec<_>>(), "{limit}");
    }
}

#[tokio::test]
async fn the_next_page_is_named_in_the_listing() {
    let sandbox = mixed();
    let files = sandbox.files_with(|config| config.directory_entries = 3);
    insta::assert_snapshot!(parts(&files, "mixed/?contents=none").await);
    insta::assert_snapshot!(parts(&files, "mixed/?after=c&contents=none").await);
    // A name that does not exist, and the slash of a folder.
    assert!(parts(&files, "mixed/?after=d").await.contains("(file:///root/mixed/e.md)"));
    assert!(!parts(&files, "mixed/?after=c/").await.contains("[c/]"));
}

#[tokio::test]
async fn a_text_selects_entries_by_name() {
    let sandbox = mixed();
    let files = sandbox.files_with(|config| config.directory_entries = 2);
    insta::assert_snapshot!(parts(&files, "mixed/?match=E").await, @"
    file:///root/mixed/?match=E text/markdown
    # root/mixed

    | name | type | bytes | modified | title |
    |---|---|---|---|---|
    | [e.md](file:///root/mixed/e.md) | text/markdown | 14 | 2023-11-14 | Sixty-seven |
    | [empty.txt](file:///root/mixed/empty.txt) | text/plain | 0 | 2023-11-14 | |
    ");
    insta::assert_snapshot!(parts(&files, "mixed/?match=.txt").await, @r#"
    file:///root/mixed/?match=.txt text/markdown {"dev.libris/next":"file:///root/mixed/?after=b.txt&match=.txt"}
    # root/mixed

    | name | type | bytes | modified |
    |---|---|---|---|
    | [a.txt](file:///root/mixed/a.txt) | text/plain | 5 | 2023-11-14 |
    | [b.txt](file:///root/mixed/b.txt) | text/plain | 5,000 | 2023-11-14 |

    More entries follow: read file:///root/mixed/?after=b.txt&match=.txt
    "#);
    assert!(parts(&files, "mixed/?after=b.txt&match=.txt").await.contains("[empty.txt]"));
    assert!(parts(&files, "mixed/?match=none").await.ends_with("No name contains `none`.\n"));
}

#[tokio::test]
async fn texts_follow_the_listing_of_a_whole_folder() {
    let sandbox = Sandbox::with(&["a", "b", "c"].map(|name| (name, "12345")));
    let with_folder = Sandbox::with(&[("a", "12345"), ("b/c", "12345")]);
    assert_eq!(read(&with_folder.files(), "").await.unwrap().len(), 1, "it has a subfolder");
    assert_eq!(read(&with_folder.files(), "?contents=text").await.unwrap().len(), 2);
    let texts = async |limit: usize, path: &str| {
        let files = sandbox.files_with(|config| config.directory_entries = limit);
        read(&files, path).await.unwrap().len() - 1
    };
    assert_eq!(texts(3, "").await, 3);
    assert_eq!(texts(2, "").await, 0, "another page follows");
    assert_eq!(texts(2, "?after=b").await, 0, "it is the last page");
    assert_eq!(texts(3, "?match=a").await, 0);
    assert_eq!(texts(2, "?contents=text").await, 2);
    assert_eq!(texts(2, "?after=b&contents=text").await, 1);
}

/// What a model takes in to find a file of which it knows the name, in a folder such as `/usr/share/doc`.
#[tokio::test]
async fn a_name_is_found_in_few_bytes() {
    let sandbox = Sandbox::new();
    for package in 0..1000 {
        sandbox.write(format!("library-{package:04}/copyright"), "x".repeat(2000));
    }
    let files = sandbox.files();
    let mut bytes = 0;
    let mut taken = async |path: &str, wanted: &str| {
        let parts = read(&files, path).await.unwrap();
        bytes += parts.iter().map(|part| part.body.len() + part.uri.as_str().len()).sum::<usize>();
        assert!(text(&parts[0]).contains(wanted), "{path}: {}", text(&parts[0]));
    };
    taken("", "read file:///root/?match=TEXT").await;
    taken("?match=0987", "(file:///root/library-0987/)").await;
    taken("library-0987/", "(file:///root/library-0987/copyright)").await;
    assert!(bytes < 6_000, "{bytes}");
}

#[tokio::test]
async fn the_first_page_of_several_is_short() {
    let sandbox = Sandbox::new();
    (0..250).for_each(|n| sandbox.write(format!("{n:03}.txt"), "text"));
    let files = sandbox.files();
    let page = async |path: &str| {
        let parts = read(&files, path).await.unwrap();
        (text(&parts[0]).to_owned(), text(&parts[0]).lines().filter(|line| line.starts_with("| [")).count())
    };
    let (first, count) = page("").await;
    assert_eq!(count, 50);
    assert!(first.contains("\n200 more entries: read file:///root/?after=049.txt\n"), "{first}");
    assert_eq!(page("?after=049.txt").await.1, 200);
    assert_eq!(page("?after=009.txt").await.1, 200);
    assert_eq!(page("?match=txt").await.1, 200);
    assert_eq!(page("?contents=text").await.1, 200);
    let json = page("?format=json").await.0;
    assert_eq!(json.matches("\"uri\"").count(), 201);
    // What fits on one page is on one page.
    let whole = sandbox.files_with(|config| config.directory_entries = 250);
    let parts = read(&whole, "?contents=none").await.unwrap();
    assert!(text(&parts[0]).contains("[249.txt]") && parts[0].meta.is_none());
    // VS Code shows only this page.
    let parts = files.read(&uri("file:///root"), &Context::default()).await.unwrap().parts;
    assert_eq!(directory_of_vs_code(&uri("file:///root"), &parts).len(), 200);
}

#[tokio::test]
async fn a_page_is_bounded_in_bytes() {
    let sandbox = Sandbox::new();
    for n in 0..300 {
        sandbox.write(format!("{n:03}{}", "n".repeat(240)), "x".repeat(200));
    }
    let files = sandbox.files_with(|config| config.directory_entries = 100_000);
    let parts = read(&files, "?match=n").await.unwrap();
    let bytes: usize = parts.iter().map(|part| part.body.len()).sum();
    assert!((30_000..34_000).contains(&bytes), "{bytes}");
    assert!(parts[0].meta.as_ref().unwrap().contains_key("dev.libris/next"));
    // With room in the listing, text files fill the rest of the limit.
    let short = Sandbox::new();
    (0..100).for_each(|n| short.write(format!("{n:02}.txt"), "x".repeat(1000)));
    let files = short.files_with(|config| config.directory_bytes = 20_000);
    let parts = read(&files, "").await.unwrap();
    let bytes: usize = parts.iter().map(|part| part.body.len()).sum();
    assert!(parts.len() > 5 && (19_000..=20_000).contains(&bytes), "{} {bytes}", parts.len());
}

/// How VS Code builds a directory from contents. It reads without the slash at the end.
fn directory_of_vs_code(read: &Uri, parts: &[Content]) -> Vec<(String, &'static str)> {
    let base: Vec<_> = read.path().split('/').collect();
    let mut entries = Vec::new();
    for part in parts {
        let path: Vec<_> = part.uri.path().split('/').collect();
        if path.len() <= base.len() || path[..base.len()] != base {
            continue;
        }
        let nested = path.len() > base.len() + 1 || part.body.is_empty();
        entries.push((path[base.len()].to_owned(), if nested { "directory" } else { "file" }));
    }
    entries
}

#[tokio::test]
async fn vs_code_sees_every_child() {
    let sandbox = mixed();
    let files = sandbox.files();
    let read = uri("file:///root/mixed");
    let parts = files.read(&read, &Context::default()).await.unwrap().parts;
    let expected = [
        ("a.txt", "file"),
        ("b.txt", "file"),
        ("c", "directory"),
        ("e.md", "file"),
        ("empty.txt", "file"),
        ("f.png", "file"),
    ];
    assert_eq!(directory_of_vs_code(&read, &parts), expected.map(|(name, kind)| (name.to_owned(), kind)));
    // The contents with the URI that was read are the document that it opens.
    assert!(parts[0].uri == read && text(&parts[0]).starts_with("# root/mixed\n"));
    assert!(parts.iter().all(|part| !part.body.is_empty()));
    let others = rendered(&files, "mixed").await.lines().skip(1).collect::<Vec<_>>().join("\n");
    insta::assert_snapshot!(others, @r##"
    file:///root/mixed/a.txt text/plain text "text/plain, 5 bytes" {"dev.libris/omitted":"text/plain, 5 bytes"}
    file:///root/mixed/b.txt text/plain text "text/plain, 5,000 bytes" {"dev.libris/omitted":"text/plain, 5,000 bytes"}
    file:///root/mixed/c/ inode/directory text "folder"
    file:///root/mixed/e.md text/plain text "text/markdown, 14 bytes" {"dev.libris/omitted":"text/markdown, 14 bytes"}
    file:///root/mixed/empty.txt text/plain text "text/plain, 0 bytes" {"dev.libris/omitted":"text/plain, 0 bytes"}
    file:///root/mixed/f.png text/plain text "image/png, 7 bytes" {"dev.libris/omitted":"image/png, 7 bytes"}
    "##);
    let root = uri("file:///root");
    let parts = files.read(&root, &Context::default()).await.unwrap().parts;
    assert_eq!(directory_of_vs_code(&root, &parts).len(), 2);
}

#[tokio::test]
async fn wrong_parameters_are_explained() {
    let sandbox = mixed();
    let files = sandbox.files();
    let mut table = Vec::new();
    for path in [
        "mixed/?lines=1",
        "mixed/?fromat=json",
        "mixed/?page=2",
        "mixed/?format=xml",
        "mixed/?contents=all",
        "mixed/a.txt?after=b",
        "mixed/a.txt?line=1",
    ] {
        table.push(rendered(&files, path).await);
    }
    insta::assert_snapshot!(table.join("\n"), @"
    Invalid: `file:///root/mixed/` is a directory, which has no lines or bytes: read it without `?`
    Missing: no resource at `file:///root/mixed/?fromat=json`: there is no parameter `fromat`: files have `lines` and `bytes`, folders have `after`, `match`, `format` and `contents`; did you mean `format`?
    Missing: no resource at `file:///root/mixed/?page=2`: there is no parameter `page`: files have `lines` and `bytes`, folders have `after`, `match`, `format` and `contents`
    Invalid: `format=xml` must be `markdown` or `json`
    Invalid: `contents=all` must be `none` or `text`
    Invalid: `file:///root/mixed/a.txt` is a file, and `after` is a parameter of folders: use `lines` or `bytes`, or read it without `?`
    Missing: no resource at `file:///root/mixed/a.txt?line=1`: there is no parameter `line`: files have `lines` and `bytes`, folders have `after`, `match`, `format` and `contents`; did you mean `lines`?
    ");
}

/// Hides URIs that contain `secret`.
struct NoSecrets;

impl Visibility for NoSecrets {
    fn sees(&self, uri: &Uri) -> bool {
        !uri.as_str().contains("secret")
    }
}

/// Hides nothing, like rights that allow everything.
struct Everything;

impl Visibility for Everything {
    fn sees(&self, _uri: &Uri) -> bool {
        true
    }
}

#[tokio::test]
async fn invisible_entries_are_neither_returned_nor_counted() {
    let context = || Context::default().with_visibility(Arc::new(NoSecrets));
    let names = ["a.txt", "b-secret.txt", "c/d.txt", "e-secret/f.txt", "g.txt", "h-secret.txt", "i.txt"];
    let whole = Sandbox::with(&names.map(|name| (name, "12345")));
    let reduced: Vec<_> = names.into_iter().filter(|name| !name.contains("secret")).collect();
    let reduced = Sandbox::with(&reduced.iter().map(|name| (*name, "12345")).collect::<Vec<_>>());
    for name in ["a.txt", "g.txt", "i.txt"] {
        for sandbox in [&whole, &reduced] {
            std::fs::File::open(sandbox.path(name)).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        }
    }
    // Hidden entries count neither against the limit of entries nor against that of bytes.
    for (entries, bytes) in [(1, 1000), (2, 1000), (3, 1000), (4, 1000), (100, 300), (100, 0)] {
        let limited = |config: &mut Config| {
            config.directory_entries = entries;
            config.directory_bytes = bytes;
        };
        let (whole, reduced) = (whole.files_with(limited), reduced.files_with(limited));
        for root in [
            "file:///root/",
            "file:///root",
            "file:///root/?contents=text",
            "file:///root/?after=c&contents=none",
            "file:///root/?match=E",
        ]
        .map(uri)
        {
            let seen = whole.read(&root, &context()).await.unwrap().parts;
            let all = |context| reduced.read(&root, context);
            let everything = Context::default().with_visibility(Arc::new(Everything));
            assert_eq!(seen, all(&everything).await.unwrap().parts, "{root} {entries} {bytes}");
            assert_ne!(
                seen,
                whole.read(&root, &Context::default()).await.unwrap().parts,
                "{root} {entries} {bytes}"
            );
        }
    }
    // A directory with hidden entries only reads as an empty one.
    let only = Sandbox::with(&[("x/secret.txt", "12345")]);
    let seen = only.files().read(&uri("file:///root/x/"), &context()).await.unwrap().parts;
    assert_eq!(seen, [Content::text(uri("file:///root/x/"), "text/markdown", "# root/x\n\nNo entries.\n")]);
}

#[tokio::test]
async fn entries_of_a_higher_priority_come_first_on_their_page() {
    let files: Vec<_> = ["a.md", "b.md", "c.md", "d/x.md", "e.log"].map(|path| (path, "text")).into();
    let sandbox = Sandbox::with(&files);
    let files = sandbox.files_with(|config| {
        config.directory_entries = 3;
        let rule = |glob: &str, priority| MetadataRule {
            glob: glob.into(),
            priority: Some(priority),
            ..MetadataRule::default()
        };
        config.rules = vec![rule("*.log", 0.9), rule("c.md", 0.9), rule("a.md", 0.1), rule("d/", 0.7)];
    });
    let order = async |path: &str| {
        let parts = read(&files, path).await.unwrap();
        let listing = text(&parts[0]);
        let names = listing.lines().filter_map(|line| line.strip_prefix("| [")?.split_once(']'));
        let names = names.map(|(name, _)| name.to_owned()).collect::<Vec<_>>();
        let texts = parts[1..].iter().map(|part| part.uri.path().to_owned()).collect::<Vec<_>>();
        (names, texts)
    };
    let (names, texts) = order("?contents=text").await;
    assert_eq!(names, ["c.md", "b.md", "a.md"]);
    assert_eq!(texts, ["/root/c.md", "/root/b.md", "/root/a.md"]);
    assert_eq!(order("?after=c.md").await.0, ["e.log", "d/"], "the next page follows by name");
}
