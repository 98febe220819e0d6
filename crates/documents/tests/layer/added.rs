//! What the layer adds to a source.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use libris_core::{CompletionRequest, Context, Error, Source, Uri, Visibility};
use libris_documents::{Documents, PlainRead};
use libris_sources::{Git, Http, Sql, git};

use crate::samples::{epub, letter, numbered_pdf, package, xlsx};
use crate::{documents, folder, read, reader, refusal, uri};

#[tokio::test(flavor = "multi_thread")]
async fn a_document_is_bytes_and_text() {
    let dir = tempfile::tempdir().unwrap();
    let data = numbered_pdf(3);
    fs::write(dir.path().join("a.pdf"), &data).unwrap();
    fs::write(dir.path().join("a.png"), b"\x89PNG\r\n\x1a\n\0").unwrap();
    fs::write(dir.path().join("a.txt"), "plain").unwrap();
    let source = documents(dir.path());
    assert_eq!(read(&source, "file:///docs/a.pdf").await.unwrap(), format!("{} bytes", data.len()));
    assert_eq!(
        read(&source, "file:///docs/a.pdf?as=original").await.unwrap(),
        format!("{} bytes", data.len())
    );
    let second = "<!-- page 2 -->\n\nPage number 2 of the report with a second line of words\n";
    assert_eq!(read(&source, "file:///docs/a.pdf?as=text&pages=2").await.unwrap(), second);
    assert_eq!(read(&source, "file:///docs/a.txt?as=text").await.unwrap(), "plain");
    assert_eq!(
        refusal(&source, "file:///docs/a.png?as=text").await,
        "`file:///docs/a.png` is image/png, which has no text; hint: read it without `as=text`"
    );
    let contents = source.read(&uri("file:///docs/a.pdf?as=text"), &Context::default()).await.unwrap();
    let meta = contents.parts[0].meta.clone().unwrap();
    assert_eq!(meta["dev.libris/pages"], 3);
    assert_eq!(contents.parts[0].mime.as_deref(), Some("text/markdown"));
    assert!(contents.freshness.proof.is_some_and(|proof| proof.holds()));
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_name_the_text_and_how_many_pages_once_that_is_known() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.pdf"), numbered_pdf(3)).unwrap();
    fs::write(dir.path().join("b.zip"), package(&[("x", "y")])).unwrap();
    let source = documents(dir.path());
    let meta = async || {
        let page = source.list(None, 10, &Context::default()).await.unwrap();
        let find =
            |name: &str| page.resources.iter().find(|resource| resource.name == name).unwrap().meta.clone();
        (serde_json::to_value(find("a.pdf")).unwrap(), serde_json::to_value(find("b.zip")).unwrap())
    };
    let (pdf, zip) = meta().await;
    assert_eq!(
        pdf,
        serde_json::json!({
            "dev.libris/text": "file:///docs/a.pdf?as=text", "dev.libris/image": "file:///docs/a.pdf?as=image",
        })
    );
    assert_eq!(zip, serde_json::json!({ "dev.libris/members": "file:///docs/b.zip/" }));
    // A file that was just written has no proof yet, so that its text is not known from one read to the next.
    let known = async {
        while meta().await.0["dev.libris/pages"] != 3 {
            read(&source, "file:///docs/a.pdf?as=text&pages=1").await.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_secs(60), known).await.expect("the pages are known");
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_an_open_document_need_no_extraction() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.pdf"), numbered_pdf(1_000)).unwrap();
    let reader = reader(|_| {});
    let source = Documents::new(folder(dir.path()), reader.clone(), PlainRead::Original);
    for page in [1_000, 1, 500, 17] {
        let text = read(&source, &format!("file:///docs/a.pdf?as=text&pages={page}")).await.unwrap();
        assert!(text.contains(&format!("Page number {page} of")) && text.len() < 200, "{text}");
    }
    assert_eq!(reader.extractions(), 1);
    let error = refusal(&source, "file:///docs/a.pdf?as=text&pages=1001-").await;
    assert!(error.contains("has 1000 pages"), "{error}");
    // A change of the document ends the proof.
    fs::write(dir.path().join("a.pdf"), numbered_pdf(2)).unwrap();
    assert!(refusal(&source, "file:///docs/a.pdf?as=text&pages=3").await.contains("has 2 pages"));
    assert_eq!(reader.extractions(), 2);
}

/// The defaults cache the longest text that an extraction may give.
#[tokio::test(flavor = "multi_thread")]
async fn parts_of_the_longest_text_need_no_extraction() {
    let dir = tempfile::tempdir().unwrap();
    let row = format!("{}\n", "word ".repeat(200));
    let rows = 15_500;
    fs::write(dir.path().join("a.csv"), format!("head\n{}", row.repeat(rows))).unwrap();
    let reader = reader(|_| {});
    let mut config = libris_sources::files::Config::new(dir.path());
    (config.mount, config.max_size) = (Some("docs".into()), 32 << 20);
    let files = Arc::new(libris_sources::Files::open(config).unwrap());
    let source = Documents::new(files, reader.clone(), PlainRead::Original);
    for range in ["1", "2-3", "15500"] {
        let text = read(&source, &format!("file:///docs/a.csv?as=text&rows={range}")).await.unwrap();
        assert!(text.starts_with("| head |\n|---|\n| word word") && text.len() < 3_000, "{}", text.len());
    }
    assert_eq!(reader.extractions(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_callers_share_one_extraction_and_others_wait_for_a_permit() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["a", "b", "c", "d", "e"] {
        fs::write(dir.path().join(format!("{name}.docx")), letter(name)).unwrap();
    }
    fs::copy(dir.path().join("a.docx"), dir.path().join("copy.docx")).unwrap();
    let reader = reader(|config| config.concurrency = 1);
    let source = Arc::new(Documents::new(folder(dir.path()), reader.clone(), PlainRead::Original));
    let names = ["a", "a", "a", "copy", "b", "c", "d", "e"];
    let reads = names.map(|name| {
        let source = source.clone();
        tokio::spawn(
            async move { read(&*source, &format!("file:///docs/{name}.docx?as=text")).await.unwrap() },
        )
    });
    for (name, read) in names.iter().zip(reads) {
        let expected = if *name == "copy" { "a" } else { name };
        assert_eq!(read.await.unwrap().trim(), expected);
    }
    assert_eq!(reader.extractions(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cache_folder_outlives_the_server() {
    let (dir, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(dir.path().join("a.docx"), letter("kept")).unwrap();
    for extractions in [1, 0] {
        let reader = reader(|config| config.cache_folder = Some(cache.path().to_owned()));
        let source = Documents::new(folder(dir.path()), reader.clone(), PlainRead::Original);
        assert_eq!(read(&source, "file:///docs/a.docx?as=text").await.unwrap(), "kept\n");
        assert_eq!(reader.extractions(), extractions);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn members_are_below_their_archive() {
    let dir = tempfile::tempdir().unwrap();
    let mut tar = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(4);
    header.set_mode(0o644);
    header.set_cksum();
    tar.append_data(&mut header, "deep/x.txt", &b"deep"[..]).unwrap();
    let inner = package(&[("note.txt", "inner")]);
    let outer = package(&[
        ("inner.zip", &inner[..]),
        ("folder/a.pdf", &numbered_pdf(1)),
        ("folder/b c.txt", b"text"),
        ("data.tar", &tar.into_inner().unwrap()),
    ]);
    fs::write(dir.path().join("report.zip"), &outer).unwrap();
    fs::create_dir(dir.path().join("real.zip")).unwrap();
    fs::write(dir.path().join("real.zip/x.txt"), "a folder").unwrap();
    let source = documents(dir.path());
    let at = |path: &str| format!("file:///docs/report.zip/{path}");
    assert_eq!(read(&source, &at("folder/b%20c.txt")).await.unwrap(), "text");
    assert_eq!(read(&source, &at("inner.zip/note.txt")).await.unwrap(), "inner");
    assert_eq!(read(&source, &at("data.tar/deep/x.txt")).await.unwrap(), "deep");
    assert!(read(&source, &at("folder/a.pdf?as=text")).await.unwrap().starts_with("Page number 1"));
    assert_eq!(read(&source, "file:///docs/real.zip/x.txt").await.unwrap(), "a folder");
    let error = refusal(&source, &at("folder/none.txt")).await;
    assert_eq!(
        error,
        "no resource at `file:///docs/report.zip/folder/none.txt`: there is no `none.txt` in \
         `file:///docs/report.zip/folder/`; read that folder to see its entries"
    );
    for (path, hint) in [
        ("foldr/a.pdf", "there is no `foldr` in `file:///docs/report.zip/`; did you mean `folder`?"),
        (
            "folder/b%20d.txt",
            "there is no `b d.txt` in `file:///docs/report.zip/folder/`; did you mean `b c.txt`?",
        ),
        ("folder", "`file:///docs/report.zip/folder/` is a folder: read it with the slash at the end"),
        (
            "folder/a.pdf/",
            "`file:///docs/report.zip/folder/a.pdf` is a file and not a folder: read it by this URI",
        ),
        (
            "data.tar/deep/y.txt",
            "there is no `y.txt` in `file:///docs/report.zip/data.tar/deep/`; did you mean `x.txt`?",
        ),
    ] {
        let error = refusal(&source, &at(path)).await;
        assert_eq!(error, format!("no resource at `{}`: {hint}", at(path)));
        let restricted = Context::default().with_visibility(Arc::new(Hidden("nothing")));
        let error = source.read(&uri(&at(path)), &restricted).await.unwrap_err();
        assert!(matches!(error, Error::NotFound(_)), "{error}");
    }
    let children = async |path: &str| {
        let page = source.children(&uri(&at(path)), None, 10, &Context::default()).await.unwrap();
        page.resources.iter().map(|resource| resource.uri.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(children("").await, ["data.tar", "folder/", "inner.zip"].map(at));
    assert_eq!(children("folder/").await, ["folder/a.pdf", "folder/b%20c.txt"].map(at));
    assert_eq!(children("inner.zip/").await, ["inner.zip/note.txt"].map(at));
    let listing = read(&source, &at("folder/")).await.unwrap();
    assert!(listing.contains("[b c.txt](file:///docs/report.zip/folder/b%20c.txt) (4 bytes)"), "{listing}");
    // A change of the archive is a change of its members.
    assert_eq!(
        source.subject(&uri(&at("folder/a.pdf?as=text"))),
        source.subject(&uri("file:///docs/report.zip"))
    );
}

struct Hidden(&'static str);

impl Visibility for Hidden {
    fn sees(&self, uri: &Uri) -> bool {
        !uri.as_str().contains(self.0)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn members_of_a_hidden_archive_do_not_exist() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("secret.zip"), package(&[("a.txt", "x")])).unwrap();
    let source = documents(dir.path());
    let member = uri("file:///docs/secret.zip/a.txt");
    let hidden = Context::default().with_visibility(Arc::new(Hidden("secret.zip")));
    assert!(source.read(&member, &hidden).await.unwrap_err().is_not_found());
    assert!(source.read(&member, &Context::default()).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn variables_of_templates_complete() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.pdf"), numbered_pdf(12)).unwrap();
    fs::write(dir.path().join("b.xlsx"), xlsx(&[("First", &[&["a"], &["1"]]), ("Second", &[])])).unwrap();
    fs::write(dir.path().join("c.epub"), epub(&["<h1>One</h1>", "<h1>Two</h1>"])).unwrap();
    fs::write(dir.path().join("d.txt"), "no document").unwrap();
    let source = documents(dir.path());
    let templates = source.templates(&Context::default()).await.unwrap().templates;
    let expected = "file:///docs/{+path}{?as,pages,sheet,rows,chapter,cells,mails,lines,content}";
    let template = &templates.iter().find(|template| template.uri.as_str() == expected).unwrap().uri;
    assert_eq!(templates.iter().filter(|template| template.uri.as_str().contains("{?as,")).count(), 1);
    let complete = async |path: &str, variable: &str, typed: &str| {
        let known = [("path", path)].map(|(name, value)| (name.to_owned(), value.to_owned()));
        let known: BTreeMap<_, _> = known.into_iter().filter(|(_, value)| !value.is_empty()).collect();
        let asked = CompletionRequest { template, variable, typed, known: &known, limit: 5 };
        source.complete(asked, &Context::default()).await.unwrap().values
    };
    assert_eq!(complete("", "path", "").await, ["a.pdf", "b.xlsx", "c.epub"]);
    assert_eq!(complete("a.pdf", "as", "").await, ["text", "original"]);
    assert_eq!(complete("a.pdf", "pages", "1").await, ["1", "10", "11", "12"]);
    assert_eq!(complete("b.xlsx", "sheet", "s").await, ["Second"]);
    assert_eq!(complete("b.xlsx", "rows", "").await, ["1-100"]);
    assert_eq!(complete("c.epub", "chapter", "").await, ["One", "Two", "1", "2"]);
    assert_eq!(complete("c.epub", "chapter", "t").await, ["Two"]);
    assert!(
        complete("a.pdf", "chapter", "").await.is_empty()
            && complete("none.pdf", "pages", "").await.is_empty()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_reads_can_give_the_text() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.docx"), letter("words")).unwrap();
    fs::write(dir.path().join("a.txt"), "plain").unwrap();
    let source = Documents::new(folder(dir.path()), reader(|_| {}), PlainRead::Text);
    assert_eq!(read(&source, "file:///docs/a.docx").await.unwrap(), "words\n");
    assert!(read(&source, "file:///docs/a.docx?as=original").await.unwrap().ends_with(" bytes"));
    assert_eq!(read(&source, "file:///docs/a.txt").await.unwrap(), "plain");
    assert_eq!(read(&source, "file:///docs/a.txt?lines=1").await.unwrap(), "plain");
    let page = source.list(None, 10, &Context::default()).await.unwrap();
    let listed = page.resources.iter().find(|resource| resource.name == "a.docx").unwrap();
    assert_eq!((listed.mime.as_deref(), listed.size), (Some("text/markdown"), None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_document_larger_than_one_read_is_read_in_ranges() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.docx"), letter("large")).unwrap();
    let mut config = libris_sources::files::Config::new(dir.path());
    (config.mount, config.max_size) = (Some("docs".into()), 100);
    let files = Arc::new(libris_sources::Files::open(config).unwrap());
    let small =
        Documents::new(files.clone(), reader(|config| config.max_document = 100), PlainRead::Original);
    assert!(refusal(&small, "file:///docs/a.docx?as=text").await.contains("more than the limit of 100"));
    let source = Documents::new(files, reader(|_| {}), PlainRead::Original);
    assert_eq!(read(&source, "file:///docs/a.docx?as=text").await.unwrap(), "large\n");
    fs::write(dir.path().join("b.zip"), package(&[("x.txt", "a member of a large archive")])).unwrap();
    assert_eq!(read(&source, "file:///docs/b.zip/x.txt").await.unwrap(), "a member of a large archive");
    assert!(refusal(&small, "file:///docs/b.zip/x.txt").await.contains("more than the limit of 100"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_text_is_the_same_through_files_git_http_and_sql() {
    let dir = tempfile::tempdir().unwrap();
    let page = "<html><body><main><h1>Über</h1><p>Text</p></main></body></html>";
    let samples: [(&str, &str, Vec<u8>); 4] = [
        ("a.pdf", "application/pdf", numbered_pdf(3)),
        ("b.docx", "application/octet-stream", letter("words")),
        ("c.html", "text/html; charset=utf-8", page.into()),
        ("d.csv", "text/csv", b"a,b\n1,2\n".to_vec()),
    ];
    let mut router = Router::new();
    let mut entries = String::new();
    for (name, mime, data) in &samples {
        fs::write(dir.path().join(name), data).unwrap();
        let (mime, data) = (*mime, data.clone());
        router = router.route(&format!("/{name}"), get(async move || ([("content-type", mime)], data)));
        entries += &format!("[[resource]]\nuri = \"api://docs/{name}\"\nurl = \"/{name}\"\n");
    }
    let git = |arguments: &[&str]| {
        let identity = ["-c", "user.name=a", "-c", "user.email=a@a.example"];
        let done =
            Command::new("git").args(identity).args(arguments).current_dir(dir.path()).output().unwrap();
        assert!(done.status.success(), "{done:?}");
    };
    git(&["init", "--quiet", "--initial-branch=main"]);
    git(&["add", "--all"]);
    git(&["commit", "--quiet", "--message=first"]);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    let config = format!("base = \"{base}\"\nlimits = {{ allow_private = true }}\n{entries}");
    let http = Http::new(toml::from_str(&config).unwrap()).unwrap();
    let database = rusqlite::Connection::open(dir.path().join("docs.db")).unwrap();
    database.execute("CREATE TABLE documents (name TEXT PRIMARY KEY, mime TEXT, data BLOB)", ()).unwrap();
    for (name, mime, data) in &samples {
        database.execute("INSERT INTO documents VALUES (?, ?, ?)", (name, mime, data)).unwrap();
    }
    drop(database);
    let config = "url = \"sqlite:docs.db\"\n[[query]]\nuri = \"db://documents/{name}\"\n\
                  sql = \"SELECT mime, data FROM documents WHERE name = :name\"\ncontents = \"data\"\n\
                  mime_column = \"mime\"\n";
    let sql = Sql::open(toml::from_str(config).unwrap(), dir.path()).unwrap();
    let repository = git::Config { name: Some("docs".into()), ..git::Config::new(dir.path()) };
    let reader = reader(|_| {});
    let over = |source: Arc<dyn Source>| Documents::new(source, reader.clone(), PlainRead::Original);
    let files = over(folder(dir.path()));
    let git = over(Arc::new(Git::open(repository).unwrap()));
    let http = over(Arc::new(http));
    let sql = over(Arc::new(sql));
    for (name, ..) in &samples {
        let text = read(&files, &format!("file:///docs/{name}?as=text")).await.unwrap();
        assert!(text.len() > 4, "{text}");
        assert_eq!(
            read(&git, &format!("git://docs/tree/main/{name}?as=text")).await.unwrap(),
            text,
            "{name}"
        );
        assert_eq!(read(&http, &format!("api://docs/{name}?as=text")).await.unwrap(), text, "{name}");
        assert_eq!(read(&sql, &format!("db://documents/{name}?as=text")).await.unwrap(), text, "{name}");
    }
}
