//! The parameters that select parts of a text, in read URIs and in completions, and members of every kind of archive.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use flate2::Compression;
use flate2::write::GzEncoder;
use libris_core::uri_template::Specificity;
use libris_core::{CompletionRequest, Contents, Context, Page, Result, Source, Templates, Uri, Visibility};
use libris_documents::{Documents, PlainRead};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use crate::samples::{docx, epub, numbered_pdf, pptx, xlsx};
use crate::{documents, folder, read, reader, refusal, uri};

const NOTEBOOK: &str = r#"{"cells":[{"cell_type":"markdown","source":"one"},{"cell_type":"markdown","source":"two"},
    {"cell_type":"markdown","source":"three"}]}"#;

const MAILBOX: &str = "From a@b Tue Apr  1 10:00:00 2025\nSubject: One\n\nFirst\n\n\
                       From a@b Tue Apr  1 10:00:00 2025\nSubject: Two\n\nSecond\n";

const PAGE: &str = "<html><body><nav><a href='/'>Home</a></nav><main><h1>Title</h1><p>Some text that is the content of \
                    this page.</p></main></body></html>";

#[tokio::test(flavor = "multi_thread")]
async fn parts_are_selected_in_every_format() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, data: &[u8]| fs::write(dir.path().join(name), data).unwrap();
    write("a.epub", &epub(&["<h1>Start</h1><p>Once.</p>", "<h1>The end</h1><p>Done.</p>"]));
    write("a.ipynb", NOTEBOOK.as_bytes());
    write("a.mbox", MAILBOX.as_bytes());
    write("a.pptx", &pptx(&[("One", "a", "b"), ("Two", "c", "d"), ("Three", "e", "f")]));
    write("a.html", PAGE.as_bytes());
    let source = documents(dir.path());
    let read = async |path: &str| {
        let text = read(&source, &format!("file:///docs/{}", path.replace('?', "?as=text&"))).await;
        text.unwrap_or_else(|error| panic!("{path}: {error}"))
    };
    let end = "<!-- chapter 2 -->\n\n# The end\n\nDone.\n";
    assert_eq!(read("a.epub?chapter=2").await, end);
    assert_eq!(read("a.epub?chapter=the%20end").await, end);
    assert_eq!(read("a.ipynb?cells=2-").await, "<!-- cell 2 -->\n\ntwo\n\n<!-- cell 3 -->\n\nthree\n");
    assert_eq!(read("a.mbox?mails=2").await, "<!-- mail 2 -->\n\n# Two\n\nSecond\n");
    assert_eq!(
        read("a.pptx?pages=1,3").await,
        "<!-- slide 1 -->\n\n## One\n\n- a\n- b\n\n<!-- slide 3 -->\n\n## Three\n\n- e\n- f\n"
    );
    let all = read("a.html?content=all").await;
    assert!(all.contains("Home") && all.contains("# Title") && !all.contains("Left out"), "{all}");
    let main = read("a.html?content=main").await;
    assert!(!main.contains("Home") && main.contains("Left out: navigation"), "{main}");
    for (path, expected) in [
        (
            "a.epub?as=text&chapter=none",
            "has no chapter `none`; hint: choose a number from 1 to 2, or one of `Start`",
        ),
        ("a.ipynb?as=text&cells=4", "has 3 cells, and 4 is after the last"),
        ("a.mbox?as=text&mails=3", "has 2 mails, and 3 is after the last"),
        ("a.pptx?as=text&pages=9", "has 3 slides, and 9 is after the last"),
        ("a.pptx?as=text&content=all", "which has no `content`; hint: use `pages`"),
    ] {
        let error = refusal(&source, &format!("file:///docs/{path}")).await;
        assert!(error.contains(expected), "{error}");
    }
    assert_eq!(complete(&source, "a.ipynb", "cells").await, ["1", "2", "3"]);
    assert_eq!(complete(&source, "a.mbox", "mails").await, ["1", "2"]);
    assert_eq!(complete(&source, "a.pptx", "pages").await, ["1", "2", "3"]);
    assert_eq!(complete(&source, "a.html", "content").await, ["main", "all"]);
    assert!(complete(&source, "a.mbox", "cells").await.is_empty());
}

/// The completions of a variable for a document.
async fn complete(source: &Documents, path: &str, variable: &str) -> Vec<String> {
    complete_with(source, path, variable, &[]).await
}

/// The completions of a variable for a document, with other variables.
async fn complete_with(
    source: &Documents,
    path: &str,
    variable: &str,
    others: &[(&str, &str)],
) -> Vec<String> {
    let templates = source.templates(&Context::default()).await.unwrap().templates;
    let template = &templates.iter().find(|template| template.uri.as_str().contains("{?as,")).unwrap().uri;
    let mut known = BTreeMap::from([("path".to_owned(), path.to_owned())]);
    known.extend(others.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    let asked = CompletionRequest { template, variable, typed: "", known: &known, limit: 10 };
    source.complete(asked, &Context::default()).await.unwrap().values
}

/// A source that counts its reads.
struct CountedReads {
    source: Arc<dyn Source>,
    reads: AtomicUsize,
}

#[async_trait]
impl Source for CountedReads {
    fn covers(&self, uri: &Uri) -> Option<Specificity> {
        self.source.covers(uri)
    }

    fn name(&self) -> Cow<'_, str> {
        self.source.name()
    }

    async fn list(&self, after: Option<&Uri>, limit: usize, context: &Context) -> Result<Page> {
        self.source.list(after, limit, context).await
    }

    async fn read(&self, uri: &Uri, context: &Context) -> Result<Contents> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.source.read(uri, context).await
    }

    async fn templates(&self, context: &Context) -> Result<Templates> {
        self.source.templates(context).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn completions_do_not_read_a_document_whose_digest_is_known() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.pdf"), numbered_pdf(3)).unwrap();
    let counted = Arc::new(CountedReads { source: folder(dir.path()), reads: AtomicUsize::new(0) });
    let source = Documents::new(counted.clone(), reader(|_| {}), PlainRead::Original);
    let templates = source.templates(&Context::default()).await.unwrap().templates;
    for form in ["{?as,", "?as=image"] {
        let template = &templates.iter().find(|template| template.uri.as_str().contains(form)).unwrap().uri;
        let known = BTreeMap::from([("path".to_owned(), "a.pdf".to_owned())]);
        let pages = async |context: &Context| {
            let asked =
                CompletionRequest { template, variable: "pages", typed: "", known: &known, limit: 10 };
            source.complete(asked, context).await.unwrap().values
        };
        // A file that was just written has no proof yet, so that its digest is not remembered.
        let without_read = async {
            loop {
                let before = counted.reads.load(Ordering::Relaxed);
                assert_eq!(pages(&Context::default()).await, ["1", "2", "3"]);
                if counted.reads.load(Ordering::Relaxed) == before {
                    break;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(60), without_read).await.expect("the digest is used");
        let hidden = Context::default().with_visibility(Arc::new(Nothing));
        assert!(pages(&hidden).await.is_empty(), "a hidden document has no pages");
    }
}

/// Hides all resources.
struct Nothing;

impl Visibility for Nothing {
    fn sees(&self, _uri: &Uri) -> bool {
        false
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_and_lines_complete() {
    let dir = tempfile::tempdir().unwrap();
    let row: &[&str] = &["1"];
    let (short, long) = (vec![row; 20], vec![row; 260]);
    fs::write(dir.path().join("a.xlsx"), xlsx(&[("Short", &short[..]), ("Long", &long[..])])).unwrap();
    fs::write(dir.path().join("a.docx"), docx(&"<w:p><w:r><w:t>x</w:t></w:r></w:p>".repeat(600))).unwrap();
    let source = documents(dir.path());
    let rows = async |sheet: &str| complete_with(&source, "a.xlsx", "rows", &[("sheet", sheet)]).await;
    for long in ["", "Long", "long", "2"] {
        assert_eq!(rows(long).await, ["1-100", "101-200", "201-300"], "{long:?}");
    }
    assert_eq!(rows("1").await, ["1-100"]);
    assert!(rows("none").await.is_empty());
    assert_eq!(complete(&source, "a.docx", "lines").await, ["1-1000", "1001-2000"]);
    assert!(complete(&source, "a.xlsx", "lines").await.is_empty());
}

/// Appends an entry to a tar archive, with a name that the `tar` crate itself refuses to write.
fn append(tar: &mut tar::Builder<Vec<u8>>, kind: tar::EntryType, name: &str, target: &str, data: &str) {
    let mut header = tar::Header::new_gnu();
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    header.as_old_mut().linkname[..target.len()].copy_from_slice(target.as_bytes());
    header.set_entry_type(kind);
    header.set_size(data.len() as u64);
    header.set_mode(0o644);
    header.set_cksum();
    tar.append(&header, data.as_bytes()).unwrap();
}

fn hostile_tar() -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    let file = tar::EntryType::Regular;
    append(&mut tar, file, "good/a.txt", "", "good");
    append(&mut tar, file, "../secret.txt", "", "outside");
    append(&mut tar, file, "/etc/passwd", "", "outside");
    append(&mut tar, tar::EntryType::Symlink, "symbolic.txt", "../secret.txt", "");
    append(&mut tar, tar::EntryType::Link, "hard.txt", "../secret.txt", "");
    append(&mut tar, file, "./good/b.txt", "", "also good");
    tar.into_inner().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn links_and_paths_out_of_an_archive_are_ignored() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("sub")).unwrap();
    fs::write(dir.path().join("secret.txt"), "secret").unwrap();
    let tar = hostile_tar();
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(&tar).unwrap();
    let gzip = gzip.finish().unwrap();
    let mut zip = ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default();
    for (name, data) in [("good/a.txt", "good"), ("../secret.txt", "outside"), ("good/b.txt", "also good")] {
        zip.start_file(name, options).unwrap();
        zip.write_all(data.as_bytes()).unwrap();
    }
    zip.add_symlink("symbolic.txt", "../secret.txt", options).unwrap();
    let zip = zip.finish().unwrap().into_inner();
    let archives = [("a.tar", &tar), ("a.tgz", &gzip), ("a.tar.gz", &gzip), ("a.zip", &zip)];
    for (name, data) in archives {
        fs::write(dir.path().join("sub").join(name), data).unwrap();
    }
    let source = documents(dir.path());
    for (name, _) in archives {
        let at = |path: &str| format!("file:///docs/sub/{name}/{path}");
        let children = async |path: &str| {
            let page = source.children(&uri(&at(path)), None, 10, &Context::default()).await.unwrap();
            page.resources.iter().map(|resource| resource.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(children("").await, ["good"], "{name}");
        assert_eq!(children("good/").await, ["a.txt", "b.txt"], "{name}");
        assert_eq!(read(&source, &at("good/a.txt")).await.unwrap(), "good", "{name}");
        assert_eq!(read(&source, &at("good/b.txt")).await.unwrap(), "also good", "{name}");
        for path in ["symbolic.txt", "hard.txt", "..%2Fsecret.txt", "secret.txt", "etc/passwd"] {
            let error = refusal(&source, &at(path)).await;
            assert!(error.starts_with("no resource at"), "{name}: {error}");
        }
    }
}
