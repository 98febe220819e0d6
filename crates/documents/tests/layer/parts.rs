//! Long texts, which are read in parts: what the error suggests fits, and each part names the next one.

use std::fs;

use libris_core::{ContentBody, Context, Error, Meta, Source};
use libris_documents::{Documents, PlainRead};

use crate::samples::{docx, epub, letter, numbered_pdf, package, xlsx};
use crate::{documents, folder, read, reader, refusal, uri};

/// The limit of one response.
const MAX_TEXT: usize = 8 << 20;

/// The text and the metadata at a URI.
async fn part(source: &Documents, text: &str) -> (String, Meta) {
    let contents = source.read(&uri(text), &Context::default()).await;
    let part = contents.unwrap_or_else(|error| panic!("{text}: {error}")).parts.remove(0);
    let ContentBody::Text(body) = part.body else { panic!("{text} has no text") };
    (body, part.meta.unwrap_or_default())
}

/// The URI of the part after this one.
fn next(meta: &Meta) -> Option<String> {
    meta.get("dev.libris/next").map(|next| next.as_str().unwrap().to_owned())
}

/// The hint of the error for a text that is too large.
async fn hint(source: &Documents, text: &str) -> String {
    let error = source.read(&uri(text), &Context::default()).await.map(drop).unwrap_err();
    let Error::TooLarge { size, limit, hint: Some(hint), .. } = error else { panic!("{error}") };
    assert!(size > limit && limit == MAX_TEXT as u64, "{size} of {limit}");
    hint
}

/// The parameters that the error for a text that is too large suggests.
async fn suggested(source: &Documents, text: &str) -> String {
    let hint = hint(source, text).await;
    let part = hint.strip_prefix("read a part of it, such as `").and_then(|part| part.strip_suffix('`'));
    part.unwrap_or_else(|| panic!("{hint}")).to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_longer_than_a_response_is_read_in_the_parts_that_the_error_and_each_part_name() {
    let dir = tempfile::tempdir().unwrap();
    let paragraph =
        |number: usize| format!("<w:p><w:r><w:t>{number} {}</w:t></w:r></w:p>", "word ".repeat(150));
    let body: String = (0..12_000).map(paragraph).collect();
    fs::write(dir.path().join("a.docx"), docx(&body)).unwrap();
    let source = documents(dir.path());
    let whole = "file:///docs/a.docx?as=text";
    let suggestion = suggested(&source, whole).await;
    assert!(suggestion.starts_with("lines=1-"), "{suggestion}");
    let (first, meta) = part(&source, &format!("{whole}&{suggestion}")).await;
    // As much as fits.
    assert!(first.len() <= MAX_TEXT && first.len() > MAX_TEXT - 2_000, "{}", first.len());
    let lines = meta["dev.libris/totalLines"].as_u64().unwrap();
    assert_eq!(lines, 2 * 12_000 - 1);
    let (mut all, mut following) = (first, next(&meta));
    while let Some(uri) = following {
        assert!(uri.starts_with(&format!("{whole}&lines=")), "{uri}");
        let (text, meta) = part(&source, &uri).await;
        all.push_str(&text);
        following = next(&meta);
    }
    assert_eq!(all.lines().count() as u64, lines);
    for number in [0, 11_999] {
        assert!(all.contains(&format!("{number} word word")), "{number}");
    }
    let error = refusal(&source, &format!("{whole}&lines=30000")).await;
    assert_eq!(
        error,
        "the text of `file:///docs/a.docx` has 23999 lines, and 30000 is after the last; \
         hint: choose from 1 to 23999"
    );
    // A part of the same size that does not fit either.
    assert_eq!(suggested(&source, &format!("{whole}&lines=1-")).await, suggestion);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_part_that_an_error_suggests_fits() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, data: &[u8]| fs::write(dir.path().join(name), data).unwrap();
    let chapter = |title: &str, size: usize| format!("<h1>{title}</h1><p>{}</p>", "word ".repeat(size / 5));
    write(
        "even.epub",
        &epub(
            &["One", "Two", "Three"]
                .map(|title| chapter(title, 3 << 20))
                .each_ref()
                .map(|chapter| &**chapter),
        ),
    );
    let paragraphs = format!("<p>{}</p>", "word ".repeat(150)).repeat(12_000);
    write("uneven.epub", &epub(&[&paragraphs[..], "<p>short</p>"]));
    let row = format!("{}\n", "word ".repeat(200));
    write("a.csv", format!("head\n{}", row.repeat(9_000)).as_bytes());
    write("one.docx", &letter(&"word".repeat(MAX_TEXT / 4 + 1)));
    let rows = vec![&["word word word word"][..]; 150_000];
    let long = vec![&["word word word word word word word word word word word"][..]; 160_000];
    write("a.xlsx", &xlsx(&[("One", &rows[..]), ("Two", &long[..])]));
    write("b.xlsx", &xlsx(&[("One", &long[..]), ("Two", &rows[..])]));
    let source = documents(dir.path());
    for (path, expected) in [
        ("even.epub", "chapter=1-2"),
        ("uneven.epub", "chapter=1&lines=1-"),
        ("a.csv", "rows=1-"),
        ("a.csv?rows=5-", "rows=5-"),
        ("a.xlsx", "sheet=1"),
        ("b.xlsx", "sheet=1&rows=1-"),
    ] {
        let (name, parameters) = path.split_once('?').unwrap_or((path, ""));
        let whole = format!("file:///docs/{name}?as=text");
        let suggestion = suggested(&source, &format!("{whole}&{parameters}")).await;
        assert!(suggestion.starts_with(expected), "{path}: {suggestion}");
        let (text, _) = part(&source, &format!("{whole}&{suggestion}")).await;
        assert!(text.len() <= MAX_TEXT && text.len() > MAX_TEXT / 4, "{path}: {}", text.len());
    }
    let hint = hint(&source, "file:///docs/one.docx?as=text").await;
    assert_eq!(hint, "one line of it is larger; `as=original` gives the bytes");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_range_names_the_range_that_follows() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, data: &[u8]| fs::write(dir.path().join(name), data).unwrap();
    write("a.pdf", &numbered_pdf(5));
    write("b.csv", b"a\n1\n2\n3\n");
    write("c.epub", &epub(&["<h1>One</h1>", "<h1>Two</h1>", "<h1>Three</h1>"]));
    write("d.txt", b"one\ntwo\nthree\n");
    let source = documents(dir.path());
    for (path, following) in [
        ("a.pdf?as=text&pages=1-2", Some("a.pdf?as=text&pages=3-4")),
        ("a.pdf?pages=3-4&as=text", Some("a.pdf?pages=5-6&as=text")),
        ("a.pdf?as=text&pages=5-6", None),
        ("a.pdf?as=text&pages=2-", None),
        ("a.pdf?as=text&pages=1,3", None),
        ("a.pdf?as=text", None),
        // Lines of the selected pages.
        ("a.pdf?as=text&pages=1&lines=1-2", Some("a.pdf?as=text&pages=1&lines=3-4")),
        ("b.csv?as=text&rows=1-2", Some("b.csv?as=text&rows=3-4")),
        ("b.csv?as=text&rows=3", None),
        ("c.epub?as=text&chapter=1-2", Some("c.epub?as=text&chapter=3-4")),
        ("c.epub?as=text&chapter=2", Some("c.epub?as=text&chapter=3")),
        ("c.epub?as=text&chapter=two", None),
        ("d.txt?as=text&lines=1-2", Some("d.txt?as=text&lines=3-4")),
    ] {
        let (_, meta) = part(&source, &format!("file:///docs/{path}")).await;
        assert_eq!(next(&meta), following.map(|path| format!("file:///docs/{path}")), "{path}");
    }
    let (text, _) = part(&source, "file:///docs/c.epub?as=text&chapter=1-2").await;
    assert_eq!(text, "<!-- chapter 1 -->\n\n# One\n\n<!-- chapter 2 -->\n\n# Two\n");
    assert_eq!(part(&source, "file:///docs/d.txt?as=text&lines=2-9").await.0, "two\nthree\n");
    assert_eq!(part(&source, "file:///docs/b.csv?as=text&lines=3").await.0, "| 1 |\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_selected_in_the_sheets_that_have_them() {
    let dir = tempfile::tempdir().unwrap();
    let short: &[&[&str]] = &[&["a"], &["1"]];
    let long: &[&[&str]] = &[&["b"], &["1"], &["2"], &["3"]];
    fs::write(dir.path().join("a.xlsx"), xlsx(&[("Short", short), ("Long", long)])).unwrap();
    let source = documents(dir.path());
    let (text, meta) = part(&source, "file:///docs/a.xlsx?as=text&rows=2-3").await;
    assert_eq!(text, "## Long\n\n| b |\n|---|\n| 2 |\n| 3 |\n");
    assert_eq!(meta["dev.libris/selected"], serde_json::json!([2]));
    for (query, expected) in [
        ("rows=4", "the longest sheet `Long` of `file:///docs/a.xlsx` has 3 rows, and 4 is after the last"),
        (
            "sheet=short&rows=2-3",
            "the sheet `Short` of `file:///docs/a.xlsx` has 1 rows, and 2 is after the last",
        ),
    ] {
        let error = refusal(&source, &format!("file:///docs/a.xlsx?as=text&{query}")).await;
        assert!(error.contains(expected), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parameter_without_effect_is_an_error_for_every_resource() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.txt"), "plain").unwrap();
    fs::write(dir.path().join("a.zip"), package(&[("x.txt", "x")])).unwrap();
    fs::create_dir(dir.path().join("sub")).unwrap();
    fs::write(dir.path().join("sub/b.txt"), "b").unwrap();
    for plain in [PlainRead::Original, PlainRead::Text] {
        let source = Documents::new(folder(dir.path()), reader(|_| {}), plain);
        for (path, kind) in [
            ("a.txt?as=text&pages=2", "is already text and has no `pages`"),
            ("a.zip?as=text&sheet=1", "is an archive and has no `sheet`"),
            ("a.zip/?as=text&rows=1", "is a folder and has no `rows`"),
            ("a.zip/x.txt?as=text&content=all", "is already text and has no `content`"),
            ("a.zip?as=image&pages=2", "is an archive and has no `pages`"),
        ] {
            let error = refusal(&source, &format!("file:///docs/{path}")).await;
            assert!(error.contains(kind), "{path}: {error}");
        }
        assert!(source.read(&uri("file:///docs/sub/?as=text&pages=1"), &Context::default()).await.is_err());
        assert_eq!(read(&source, "file:///docs/a.txt?as=text").await.unwrap(), "plain");
    }
}
