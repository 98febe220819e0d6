//! Hostile documents: an error within the limits, and no harm to anything else.

use std::fs;
use std::time::Duration;

use libris_core::{Context, Source};
use libris_documents::{Documents, PlainRead};

use crate::samples::{docx, letter, numbered_pdf, package, pdf_of};
use crate::{documents, folder, read, reader, refusal, uri};

#[tokio::test(flavor = "multi_thread")]
async fn bombs_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, data: &[u8]| fs::write(dir.path().join(name), data).unwrap();
    let spaces = " ".repeat(8 << 20);
    write("bomb.docx", &docx(&format!("<w:p><w:r><w:t>{spaces}</w:t></w:r></w:p>")));
    write("bomb.zip", &package(&[("big.txt", spaces.as_bytes())]));
    let entities = format!(
        "<!DOCTYPE d [<!ENTITY a \"{}\">{}]><w:document><w:body><w:p><w:r><w:t>end&z;</w:t></w:r></w:p></w:body></w:document>",
        "x".repeat(1000),
        ('b'..='z')
            .map(|name| {
                let before = char::from_u32(u32::from(name) - 1).unwrap();
                format!("<!ENTITY {name} \"{}\">", format!("&{before};").repeat(10))
            })
            .collect::<String>()
    );
    write("entities.docx", &package(&[("word/document.xml", entities.as_str())]));
    write("deep.docx", &package(&[("word/document.xml", "<a>".repeat(200_000).as_str())]));
    let reader = reader(|config| (config.limits.expanded, config.limits.member) = (4 << 20, 4 << 20));
    let source = Documents::new(folder(dir.path()), reader, PlainRead::Original);
    assert_eq!(
        refusal(&source, "file:///docs/bomb.docx?as=text").await,
        "`file:///docs/bomb.docx` has no text: the document has more than 4194304 bytes when decompressed; \
         hint: `file:///docs/bomb.docx?as=original` gives the bytes"
    );
    assert!(refusal(&source, "file:///docs/bomb.zip/big.txt").await.contains("when decompressed"));
    assert_eq!(read(&source, "file:///docs/entities.docx?as=text").await.unwrap(), "end\n");
    assert!(refusal(&source, "file:///docs/deep.docx?as=text").await.contains("nested too deeply"));
}

#[tokio::test(flavor = "multi_thread")]
async fn forty_two_archives_in_each_other_are_not_opened() {
    let dir = tempfile::tempdir().unwrap();
    let mut archive = package(&[("x.txt", "bottom")]);
    for _ in 0..41 {
        archive = package(&[("a.zip", &archive)]);
    }
    fs::write(dir.path().join("a.zip"), archive).unwrap();
    let source = documents(dir.path());
    let deep = format!("file:///docs/a.zip/{}x.txt", "a.zip/".repeat(41));
    assert!(refusal(&source, &deep).await.ends_with("archives are opened to a depth of 3"));
    let two =
        source.children(&uri("file:///docs/a.zip/a.zip/"), None, 10, &Context::default()).await.unwrap();
    assert_eq!(two.resources.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn pdfs_that_lie_about_their_structure_end() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, data: &[u8]| fs::write(dir.path().join(name), data).unwrap();
    let catalog = || "<< /Type /Catalog /Pages 2 0 R >>".to_owned();
    let looped = "<< /Type /Pages /Kids [3 0 R] /Count 1000000 >>".to_owned();
    write(
        "loop.pdf",
        &pdf_of(&[
            catalog(),
            looped,
            "<< /Type /Pages /Kids [2 0 R 3 0 R] /Count 5 /Parent 2 0 R >>".to_owned(),
        ]),
    );
    let pages = "<< /Type /Pages /Kids [3 0 R] /Count 1 >>".to_owned();
    let page = "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 4 0 R >>".to_owned();
    let stream = "<< /Length 10000000000 >>\nstream\nBT (x) Tj ET\nendstream".to_owned();
    write("long.pdf", &pdf_of(&[catalog(), pages, page, stream]));
    write("cut.pdf", &numbered_pdf(3)[..600]);
    let source = documents(dir.path());
    for name in ["loop.pdf", "long.pdf", "cut.pdf"] {
        // An error or the text that is there, but an end.
        let _ = tokio::time::timeout(
            Duration::from_secs(120),
            read(&source, &format!("file:///docs/{name}?as=text")),
        )
        .await
        .expect("it ends");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn member_names_cannot_lead_out_of_the_archive() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("secret.txt"), "secret").unwrap();
    let tricks = ["../secret.txt", "/etc/passwd", "a/../../secret.txt", "C:\\x", "a\\..\\b", "good.txt"];
    let members: Vec<(&str, &str)> = tricks.iter().map(|name| (*name, "member")).collect();
    fs::create_dir(dir.path().join("sub")).unwrap();
    fs::write(dir.path().join("sub/a.zip"), package(&members)).unwrap();
    let source = documents(dir.path());
    let page = source.children(&uri("file:///docs/sub/a.zip/"), None, 10, &Context::default()).await.unwrap();
    let names: Vec<_> = page.resources.iter().map(|resource| resource.name.as_str()).collect();
    assert_eq!(names, ["good.txt"]);
    for path in ["..%2Fsecret.txt", "%2Fetc%2Fpasswd", "a%2F..%2F..%2Fsecret.txt", "..%5Csecret.txt"] {
        let error = refusal(&source, &format!("file:///docs/sub/a.zip/{path}")).await;
        assert!(error.starts_with("no resource at"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_extraction_that_needs_too_much_is_ended() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("long.pdf"), numbered_pdf(40_000)).unwrap();
    let few = reader(|config| config.limits.cpu = Duration::from_secs(1));
    let source = Documents::new(folder(dir.path()), few.clone(), PlainRead::Original);
    let expected = "it needs more than 1 seconds of processor time";
    assert!(refusal(&source, "file:///docs/long.pdf?as=text").await.contains(expected));
    // Known from then on.
    assert!(refusal(&source, "file:///docs/long.pdf?as=text&pages=1").await.contains(expected));
    assert_eq!(few.extractions(), 1);
    #[cfg(target_os = "linux")]
    {
        let little = reader(|config| config.limits.memory = 24 << 20);
        let source = Documents::new(folder(dir.path()), little, PlainRead::Original);
        let error = refusal(&source, "file:///docs/long.pdf?as=text").await;
        assert!(error.contains("it needs more than 24 MiB of memory"), "{error}");
    }
    let short = reader(|config| config.limits.text = 1_000);
    let source = Documents::new(folder(dir.path()), short, PlainRead::Original);
    fs::write(dir.path().join("a.docx"), letter(&"word ".repeat(1_000))).unwrap();
    assert!(refusal(&source, "file:///docs/a.docx?as=text").await.contains("its text has more than"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_that_cannot_be_set_up_is_started_again_at_the_next_read() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.docx"), letter("x")).unwrap();
    let failing = reader(|config| {
        config.program = "/bin/sh".into();
        config.arguments = ["-c", "echo no threads >&2; exit 75"].map(Into::into).into();
    });
    let source = Documents::new(folder(dir.path()), failing.clone(), PlainRead::Original);
    for attempts in 1..=2 {
        let error = refusal(&source, "file:///docs/a.docx?as=text").await;
        assert!(!error.contains("it crashes the extraction"), "{error}");
        assert_eq!(failing.extractions(), attempts);
    }
}

/// The layer with a shell as the child, which misbehaves in place of an extractor.
fn misbehaving(dir: &std::path::Path, script: &str) -> Documents {
    let reader = reader(|config| {
        config.program = "/bin/sh".into();
        config.arguments = ["-c", script].map(Into::into).into();
        config.limits.wall = Duration::from_secs(2);
        config.limits.text = 1 << 20;
    });
    Documents::new(folder(dir), reader, PlainRead::Original)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_that_crashes_spins_or_floods_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.docx"), letter("x")).unwrap();
    fs::write(dir.path().join("a.txt"), "plain").unwrap();
    for (script, expected) in [
        ("read request; kill -SEGV $$", "it crashes the extraction"),
        ("exit 101", "it crashes the extraction"),
        ("echo 'memory allocation of 9 bytes failed' >&2; kill -ABRT $$", "of memory"),
        ("while :; do :; done", "it takes longer than 2 seconds"),
        (
            "while :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done",
            "its text has more than 1 MiB",
        ),
        // Killed at the limit: it does not notice that nobody reads, and writes to standard error for ever.
        (
            "trap '' PIPE; head -c 2000000 /dev/zero; while :; do echo x >&2; done",
            "its text has more than 1 MiB",
        ),
        // Its own signal, not that of a limit: it may be killed because the system has too little memory.
        ("kill -KILL $$", "could not extract the text of the document"),
        ("kill -XCPU $$", "of processor time"),
    ] {
        let source = misbehaving(dir.path(), script);
        let failing = refusal(&source, "file:///docs/a.docx?as=text");
        let other = read(&source, "file:///docs/a.txt");
        let (error, other) = tokio::join!(failing, other);
        assert!(error.contains(expected), "{script}: {error}");
        assert_eq!(other.unwrap(), "plain", "another read is not affected");
    }
    // What is no answer is not taken for one.
    let source = misbehaving(dir.path(), "read request; echo nonsense");
    assert_eq!(
        refusal(&source, "file:///docs/a.docx?as=text").await,
        "could not extract the text of the document"
    );
}
