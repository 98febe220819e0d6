//! Parameters and paths of a source that look like those of this layer.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, RawQuery};
use axum::routing::get;
use libris_core::{Context, Source};
use libris_documents::{Documents, PlainRead};
use libris_sources::Http;

use crate::samples::letter;
use crate::{documents, read, reader, refusal, uri};

/// An API whose resources have parameters named as those of this layer, and paths named as archives.
async fn api(plain: PlainRead) -> Documents {
    let echo =
        async |RawQuery(query): RawQuery| ([("content-type", "text/plain")], query.unwrap_or_default());
    let release = async |Path(name): Path<String>| ([("content-type", "text/plain")], name);
    let router = Router::new().route("/echo", get(echo)).route("/releases/{name}/notes", get(release));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    let config = format!(
        "base = \"{base}\"\nlimits = {{ allow_private = true }}\n\
         [[template]]\nuri = \"api://docs/echo{{?pages,content,as,width}}\"\nurl = \"/echo{{?pages,content,as,width}}\"\n\
         [[template]]\nuri = \"api://releases/{{name}}/notes\"\nurl = \"/releases/{{name}}/notes\"\n"
    );
    let http = Http::new(toml::from_str(&config).unwrap()).unwrap();
    Documents::new(Arc::new(http), reader(|_| {}), plain)
}

#[tokio::test(flavor = "multi_thread")]
async fn parameters_of_the_source_reach_it() {
    for plain in [PlainRead::Original, PlainRead::Text] {
        let source = api(plain).await;
        for query in ["pages=latest", "content=x", "as=json", "pages=latest&as=json", "width=7"] {
            let text = format!("api://docs/echo?{query}");
            let read = read(&source, &text).await.unwrap();
            assert_eq!(read.matches('=').count(), query.matches('=').count(), "{read}");
            assert!(query.split('&').all(|pair| read.contains(pair)), "{read}");
            // Its changes are those of the whole URI.
            assert_eq!(source.subject(&uri(&text)), uri(&text), "{plain:?}");
        }
        assert_eq!(read(&source, "api://docs/echo?pages=latest&as=original").await.unwrap(), "pages=latest");
        let original = uri("api://docs/echo?pages=latest&as=original");
        assert_eq!(source.subject(&original), uri("api://docs/echo?pages=latest"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_of_an_api_with_the_name_of_an_archive_is_no_archive() {
    let source = api(PlainRead::Original).await;
    let notes = uri("api://releases/v1.zip/notes");
    assert_eq!(read(&source, notes.as_str()).await.unwrap(), "v1.zip");
    assert_eq!(source.subject(&notes), notes);
    assert_eq!(source.subject(&uri("api://releases/v1.zip/notes?as=text")), notes);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_form_that_nobody_has_is_an_error_with_one_hint() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a.docx"), letter("words")).unwrap();
    let source = documents(dir.path());
    for (name, hint) in [("txt", "did you mean `text`?"), ("words", "use `text`, `image` or `original`")] {
        assert!(source.covers(&uri(&format!("file:///docs/a.docx?as={name}"))).is_some());
        assert_eq!(
            refusal(&source, &format!("file:///docs/a.docx?as={name}")).await,
            format!("`as={name}` is not supported; hint: {hint}")
        );
    }
    let hidden = source.read(&uri("file:///docs/none.docx?as=text"), &Context::default()).await;
    assert!(hidden.unwrap_err().is_not_found());
}
