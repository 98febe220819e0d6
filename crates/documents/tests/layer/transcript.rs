//! What a client gets of documents and archives.

use std::fs;

use crate::documents;
use crate::samples::{letter, numbered_pdf, package, xlsx};

#[path = "../../../sources/tests/transcripts/mod.rs"]
mod transcripts;

#[tokio::test(flavor = "multi_thread")]
async fn documents_and_members() {
    let dir = tempfile::tempdir().unwrap();
    let prices: &[&[&str]] = &[&["album", "price"], &["Homogenic", "17"], &["Vespertine", "18"]];
    let archive = package(&[
        ("minutes/monday.txt", b"Monday: all well.\n".as_slice()),
        ("letter.docx", &letter("Dear Ada")),
    ]);
    for (name, data) in [
        ("report.pdf", numbered_pdf(3)),
        ("prices.xlsx", xlsx(&[("Prices", prices), ("Empty", &[])])),
        ("minutes.zip", archive),
        ("broken.pdf", b"%PDF-1.4 and nothing else".to_vec()),
        ("logo.png", b"\x89PNG\r\n\x1a\n\0".to_vec()),
    ] {
        fs::write(dir.path().join(name), data).unwrap();
    }
    let source = documents(dir.path());
    let mut transcript = transcripts::Transcript::of(&source);
    transcript.list().await;
    transcript.templates().await;
    for uri in [
        "report.pdf",
        "report.pdf?as=text&pages=2",
        "report.pdf?as=text&pages=1-2",
        "prices.xlsx?as=text",
        "prices.xlsx?as=text&sheet=Prices&rows=2",
        "minutes.zip/",
        "minutes.zip/minutes/monday.txt",
        "minutes.zip/letter.docx?as=text",
        "report.pdf?as=text&pages=9",
        "report.pdf?as=text&pages=two",
        "report.pdf?as=text&sheet=Prices",
        "report.pdf?as=txt",
        "prices.xlsx?as=text&sheet=Price",
        "minutes.zip/minutes/tuesday.txt",
        "minutes.zip/minute/",
        "minutes.zip/nothing-like-it",
        "logo.png?as=text",
        "broken.pdf?as=text",
        "reprot.pdf?as=text",
    ] {
        transcript.read(&format!("file:///docs/{uri}")).await;
    }
    insta::assert_snapshot!("documents", transcript.text());
}
