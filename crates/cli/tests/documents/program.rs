//! The program as a whole: configuration and notifications.

use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use sqlx::Connection as _;

use crate::client::{Client, Era, Program, eventually};
use crate::samples::{letter, numbered_pdf, package};

#[tokio::test(flavor = "multi_thread")]
async fn subscribers_of_a_text_or_an_image_are_notified_when_the_document_changes() {
    let dir = tempfile::tempdir().unwrap();
    let docs = dir.path().join("docs");
    fs::create_dir(&docs).unwrap();
    fs::write(docs.join("a.docx"), letter("first")).unwrap();
    fs::write(docs.join("b.zip"), package(&[("x.txt", "first")])).unwrap();
    fs::write(docs.join("c.pdf"), numbered_pdf(1)).unwrap();
    let program = Program::folder(&docs);
    let image = "file:///docs/c.pdf?as=image&pages=1&width=50".to_owned();
    let text = "file:///docs/a.docx?as=text".to_owned();
    let member = "file:///docs/b.zip/x.txt".to_owned();
    for era in [Era::Legacy, Era::Modern] {
        let client = Client::connect(&program, era, &[text.clone(), member.clone(), image.clone()]).await;
        client.read(&text).await.unwrap();
        let pages = client.read(&image).await.unwrap()[0]["_meta"]["dev.libris/pages"].as_u64().unwrap();
        let number = format!("{era:?}");
        fs::write(docs.join("a.docx"), letter(&number)).unwrap();
        eventually("the text is updated", async || client.heard_of().contains(&text)).await;
        let contents = client.read(&text).await.unwrap();
        assert_eq!(contents[0]["text"], format!("{number}\n"));
        fs::write(docs.join("b.zip"), package(&[("x.txt", &number)])).unwrap();
        eventually("the member is updated", async || client.heard_of().contains(&member)).await;
        assert_eq!(client.read(&member).await.unwrap()[0]["text"], json!(number));
        fs::write(docs.join("c.pdf"), numbered_pdf(usize::try_from(pages).unwrap() + 1)).unwrap();
        eventually("the image is updated", async || client.heard_of().contains(&image)).await;
        let contents = client.read(&image).await.unwrap();
        assert_eq!(contents[0]["_meta"]["dev.libris/pages"], pages + 1);
        assert_eq!(contents[0]["mimeType"], "image/png");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn subscribers_of_a_text_in_a_repository_or_a_database_are_notified() {
    let dir = tempfile::tempdir().unwrap();
    let repository = dir.path().join("project");
    fs::create_dir(&repository).unwrap();
    let git = |arguments: &[&str]| {
        let identity = ["-c", "user.name=a", "-c", "user.email=a@a.example"];
        let done =
            Command::new("git").args(identity).args(arguments).current_dir(&repository).output().unwrap();
        assert!(done.status.success(), "{done:?}");
    };
    git(&["init", "--quiet", "--initial-branch=main"]);
    let commit = |text: &str| {
        fs::write(repository.join("a.docx"), letter(text)).unwrap();
        git(&["add", "--all"]);
        git(&["commit", "--quiet", "--message=change"]);
    };
    let url = format!("sqlite:{}?mode=rwc", dir.path().join("shop.db").display());
    let mut database = sqlx::SqliteConnection::connect(&url).await.unwrap();
    let table = "CREATE TABLE documents (id INTEGER PRIMARY KEY, data BLOB)";
    sqlx::query(table).execute(&mut database).await.unwrap();
    let mut store = async |text: &str| {
        let statement = sqlx::query("INSERT OR REPLACE INTO documents VALUES (1, ?)").bind(letter(text));
        statement.execute(&mut database).await.unwrap();
    };
    let config = "[[git]]\npath = \"project\"\n[[sql]]\nurl = \"sqlite:shop.db\"\n[[sql.query]]\n\
                  uri = \"db://documents/{id}\"\nsql = \"SELECT data FROM documents WHERE id = :id\"\n\
                  parameters = { id = \"integer\" }\ncontents = \"data\"\n";
    let file = dir.path().join("libris.toml");
    fs::write(&file, config).unwrap();
    commit("first");
    store("first").await;
    let program = Program::serve(&["--config", file.to_str().unwrap()]);
    let committed = "git://project/tree/main/a.docx?as=text".to_owned();
    let stored = "db://documents/1?as=text".to_owned();
    let client = Client::connect(&program, Era::Modern, &[committed.clone(), stored.clone()]).await;
    for uri in [&committed, &stored] {
        assert_eq!(client.read(uri).await.unwrap()[0]["text"], "first\n", "{uri}");
    }
    client.heard_of();
    commit("second");
    eventually("the text in the repository is updated", async || client.heard_of().contains(&committed))
        .await;
    assert_eq!(client.read(&committed).await.unwrap()[0]["text"], "second\n");
    store("second").await;
    eventually("the text in the database is updated", async || client.heard_of().contains(&stored)).await;
    assert_eq!(client.read(&stored).await.unwrap()[0]["text"], "second\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn subscribers_of_a_text_of_a_web_api_are_notified() {
    let dir = tempfile::tempdir().unwrap();
    let version = Arc::new(AtomicUsize::new(1));
    let served = version.clone();
    let document = async move || {
        let kind = [("content-type", "application/octet-stream")];
        (kind, letter(&format!("version {}", served.load(Ordering::Relaxed))))
    };
    let router = axum::Router::new().route("/files/a.docx", axum::routing::get(document));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    let config = format!(
        "[[http]]\nbase = \"{base}\"\npoll = \"1s\"\nlimits = {{ allow_private = true }}\n\
         [[http.template]]\nuri = \"api://files/{{name}}\"\nurl = \"/files/{{name}}\"\n"
    );
    let file = dir.path().join("libris.toml");
    fs::write(&file, config).unwrap();
    let program = Program::serve(&["--config", file.to_str().unwrap()]);
    let text = "api://files/a.docx?as=text".to_owned();
    for era in [Era::Legacy, Era::Modern] {
        let client = Client::connect(&program, era, std::slice::from_ref(&text)).await;
        let before = version.load(Ordering::Relaxed);
        eventually("the text is read", async || {
            let contents = client.read(&text).await.unwrap();
            contents[0]["text"] == format!("version {before}\n")
        })
        .await;
        client.heard_of();
        version.fetch_add(1, Ordering::Relaxed);
        eventually("the text is updated", async || client.heard_of().contains(&text)).await;
        assert_eq!(client.read(&text).await.unwrap()[0]["text"], format!("version {}\n", before + 1));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_configuration_selects_what_plain_reads_give_and_where_texts_are_cached() {
    let dir = tempfile::tempdir().unwrap();
    let docs = dir.path().join("docs");
    fs::create_dir(&docs).unwrap();
    fs::write(docs.join("a.docx"), letter("words")).unwrap();
    let start = |keys: &str| {
        let file = dir.path().join("libris.toml");
        fs::write(&file, format!("{keys}\n[[files]]\npath = \"docs\"\n")).unwrap();
        Program::serve(&["--config", file.to_str().unwrap()])
    };
    let plain = "file:///docs/a.docx";
    let program = start("documents = \"text\"\ncache_folder = \"cache\"");
    let client = Client::connect(&program, Era::Modern, &[]).await;
    assert_eq!(client.read(plain).await.unwrap()[0]["text"], "words\n");
    assert_eq!(fs::read_dir(dir.path().join("cache/documents-1")).unwrap().count(), 1);
    drop(program);
    let program = start("documents = \"off\"");
    let client = Client::connect(&program, Era::Modern, &[]).await;
    assert!(client.read(plain).await.unwrap()[0]["blob"].is_string());
    assert!(client.read(&format!("{plain}?as=text")).await.is_none());
}
