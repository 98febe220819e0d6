//! The contents of files, ranges and directories.

use std::sync::{Arc, Mutex};

use libris_core::{Client, ContentBody, Context, Error, Progress, Source};
use libris_sources::Files;

use super::sandbox::{Sandbox, read, rendered, rendered_children, uri};

#[tokio::test]
async fn text_is_decoded() {
    let sandbox = Sandbox::new();
    let wide =
        |text: &str, bytes: fn(u16) -> [u8; 2]| -> Vec<u8> { text.encode_utf16().flat_map(bytes).collect() };
    sandbox.write("utf-8.txt", "naïve\n");
    sandbox.write("mark.txt", b"\xef\xbb\xbfmark\n");
    sandbox.write("little.txt", wide("\u{feff}wide ü 😀\nsecond\n", u16::to_le_bytes));
    sandbox.write("big.txt", wide("\u{feff}wide ü 😀\nsecond\n", u16::to_be_bytes));
    sandbox.write("windows-1252.txt", b"\x93Caf\xe9\x94 cr\xe8me br\xfbl\xe9e \x96 d\xe9j\xe0 vu\n");
    sandbox.write(
        "shift-jis.txt",
        b"\x82\xb1\x82\xea\x82\xcd\x93\xfa\x96\x7b\x8c\xea\x82\xcc\x83\x65\x83\x4c\x83\x58\x83\x67\x82\xc5\x82\xb7\x81\x42\n",
    );
    sandbox.write("zero.txt", b"a\0b");
    sandbox.write("half.txt", b"\xff\xfea\0b");
    let files = sandbox.files();
    insta::assert_snapshot!(rendered_children(&files, "").await, @r#"
    file:///root/big.txt text/plain text "wide ü 😀\nsecond\n"
    file:///root/half.txt text/plain bytes b"\xff\xfea\0b"
    file:///root/little.txt text/plain text "wide ü 😀\nsecond\n"
    file:///root/mark.txt text/plain text "mark\n"
    file:///root/shift-jis.txt text/plain text "これは日本語のテキストです。\n"
    file:///root/utf-8.txt text/plain text "naïve\n"
    file:///root/windows-1252.txt text/plain text "“Café” crème brûlée – déjà vu\n"
    file:///root/zero.txt text/plain bytes b"a\0b"
    "#);
    insta::assert_snapshot!(rendered(&files, "little.txt?lines=2").await, @r#"file:///root/little.txt?lines=2 text/plain text "second\n""#);
    insta::assert_snapshot!(rendered(&files, "big.txt?lines=1").await, @r#"file:///root/big.txt?lines=1 text/plain text "wide ü 😀\n""#);
    insta::assert_snapshot!(rendered(&files, "windows-1252.txt?lines=1-9").await, @r#"file:///root/windows-1252.txt?lines=1-9 text/plain text "“Café” crème brûlée – déjà vu\n""#);
    insta::assert_snapshot!(rendered(&files, "zero.txt?lines=1").await, @"Invalid: `file:///root/zero.txt` is not text: read it by `?bytes=0-65535`");
}

#[tokio::test]
async fn ranges_of_lines_and_bytes() {
    let sandbox = Sandbox::with(&[
        ("a.txt", "one\ntwo\r\nthrée\nfour"),
        ("empty.txt", ""),
        ("one.txt", "1"),
        ("p.png", "\u{1}2345"),
        ("d/x", ""),
    ]);
    let files = sandbox.files();
    let mut table = Vec::new();
    for path in [
        "a.txt?lines=1",
        "a.txt?lines=2-3",
        "a.txt?lines=3-",
        "a.txt?lines=-1",
        "a.txt?lines=-2",
        "a.txt?lines=-99",
        "a.txt?lines=2-99",
        "a.txt?lines=5-",
        "a.txt?lines=0",
        "a.txt?lines=3-2",
        "a.txt?lines=x",
        "a.txt?lines=",
        "a.txt?lines=&bytes=",
        "a.txt?",
        "a.txt?bytes=0-2",
        "a.txt?bytes=9-",
        "a.txt?bytes=-4",
        "a.txt?bytes=12-12",
        "a.txt?bytes=0-12",
        "a.txt?bytes=19-999",
        "a.txt?bytes=20-",
        "a.txt?bytes=3-1",
        "a.txt?bytes=7",
        "a.txt?lines=1&bytes=0-1",
        "a.txt?lines=1&lines=2",
        "empty.txt?lines=1-5",
        "empty.txt?lines=2",
        "empty.txt?bytes=0-",
        "empty.txt?bytes=1-",
        "empty.txt?lines=-3",
        "one.txt?lines=2",
        "one.txt?bytes=9-",
        "p.png?bytes=1-2",
        "p.png?lines=1",
        "d?lines=1",
        "d/?bytes=0-1",
        "nowhere?lines=1",
    ] {
        table.push(format!("{path:24} {}", rendered(&files, path).await.replace("file:///root/", "")));
    }
    insta::assert_snapshot!(table.join("\n"), @r#"
    a.txt?lines=1            a.txt?lines=1 text/plain text "one\n"
    a.txt?lines=2-3          a.txt?lines=2-3 text/plain text "two\r\nthrée\n"
    a.txt?lines=3-           a.txt?lines=3- text/plain text "thrée\nfour"
    a.txt?lines=-1           a.txt?lines=-1 text/plain text "four"
    a.txt?lines=-2           a.txt?lines=-2 text/plain text "thrée\nfour"
    a.txt?lines=-99          a.txt?lines=-99 text/plain text "one\ntwo\r\nthrée\nfour"
    a.txt?lines=2-99         a.txt?lines=2-99 text/plain text "two\r\nthrée\nfour"
    a.txt?lines=5-           Invalid: `a.txt?lines=5-` begins past the end: there are 4 lines
    a.txt?lines=0            Invalid: `lines=0` begins too early: lines count from 1
    a.txt?lines=3-2          Invalid: `lines=3-2` ends before it begins: write the smaller number first
    a.txt?lines=x            Invalid: `lines=x` is not a range: write `lines=10-20`, `lines=20`, `lines=10-` or `lines=-20`
    a.txt?lines=             a.txt?lines= text/plain text "one\ntwo\r\nthrée\nfour"
    a.txt?lines=&bytes=      a.txt?lines=&bytes= text/plain text "one\ntwo\r\nthrée\nfour"
    a.txt?                   a.txt? text/plain text "one\ntwo\r\nthrée\nfour"
    a.txt?bytes=0-2          a.txt?bytes=0-2 text/plain text "one"
    a.txt?bytes=9-           a.txt?bytes=9- text/plain text "thrée\nfour"
    a.txt?bytes=-4           a.txt?bytes=-4 text/plain text "four"
    a.txt?bytes=12-12        a.txt?bytes=12-12 text/plain bytes b"\xc3"
    a.txt?bytes=0-12         a.txt?bytes=0-12 text/plain bytes b"one\ntwo\r\nthr\xc3"
    a.txt?bytes=19-999       a.txt?bytes=19-999 text/plain text "r"
    a.txt?bytes=20-          Invalid: `a.txt?bytes=20-` begins past the end: there are 20 bytes
    a.txt?bytes=3-1          Invalid: `bytes=3-1` ends before it begins: write the smaller number first
    a.txt?bytes=7            Invalid: `bytes=7` is not a range: write `bytes=10-20`, `bytes=10-` or `bytes=-20`
    a.txt?lines=1&bytes=0-1  Invalid: `?lines=1&bytes=0-1` asks for several ranges: read one at a time
    a.txt?lines=1&lines=2    Invalid: `?lines=1&lines=2` asks for several ranges: read one at a time
    empty.txt?lines=1-5      empty.txt?lines=1-5 text/plain text ""
    empty.txt?lines=2        Invalid: `empty.txt?lines=2` begins past the end: there are 0 lines
    empty.txt?bytes=0-       empty.txt?bytes=0- text/plain text ""
    empty.txt?bytes=1-       Invalid: `empty.txt?bytes=1-` begins past the end: there are 0 bytes
    empty.txt?lines=-3       empty.txt?lines=-3 text/plain text ""
    one.txt?lines=2          Invalid: `one.txt?lines=2` begins past the end: there is 1 line
    one.txt?bytes=9-         Invalid: `one.txt?bytes=9-` begins past the end: there is 1 byte
    p.png?bytes=1-2          p.png?bytes=1-2 image/png bytes b"23"
    p.png?lines=1            Invalid: `p.png` is not text: read it by `?bytes=0-65535`
    d?lines=1                Invalid: `d` is a directory, which has no lines or bytes: read it without `?`
    d/?bytes=0-1             Invalid: `d/` is a directory, which has no lines or bytes: read it without `?`
    nowhere?lines=1          Missing: no resource at `nowhere?lines=1`: there is no `nowhere` in ``; read that folder to see its entries
    "#);
}

#[tokio::test]
async fn files_over_the_limit_are_errors() {
    let sandbox = Sandbox::with(&[("big.txt", &"0123456789\n".repeat(10)), ("fits.txt", &"x".repeat(50))]);
    let files = sandbox.files_with(|config| config.max_size = 50);
    insta::assert_debug_snapshot!(read(&files, "big.txt").await.unwrap_err(), @r#"
    TooLarge {
        uri: <file:///root/big.txt>,
        size: 110,
        limit: 50,
        hint: Some(
            "read a part with `?lines=1-500` or `?bytes=0-65535`",
        ),
    }
    "#);
    insta::assert_debug_snapshot!(read(&files, "big.txt?lines=2-").await.unwrap_err(), @r#"
    TooLarge {
        uri: <file:///root/big.txt?lines=2->,
        size: 99,
        limit: 50,
        hint: Some(
            "ask for fewer lines",
        ),
    }
    "#);
    insta::assert_debug_snapshot!(read(&files, "big.txt?bytes=0-50").await.unwrap_err(), @r#"
    TooLarge {
        uri: <file:///root/big.txt?bytes=0-50>,
        size: 51,
        limit: 50,
        hint: Some(
            "ask for fewer bytes",
        ),
    }
    "#);
    insta::assert_snapshot!(rendered(&files, "big.txt?lines=-2").await, @r#"file:///root/big.txt?lines=-2 text/plain text "0123456789\n0123456789\n""#);
    insta::assert_snapshot!(rendered(&files, "big.txt?bytes=0-49").await, @r#"file:///root/big.txt?bytes=0-49 text/plain text "0123456789\n0123456789\n0123456789\n0123456789\n012345""#);
    assert_eq!(read(&files, "fits.txt").await.unwrap()[0].body.len(), 50);
}

/// The hint of the error.
async fn hint(files: &Files, path: &str) -> String {
    match read(files, path).await {
        Err(Error::TooLarge { hint, .. }) => hint.unwrap(),
        other => panic!("{path}: {other:?}"),
    }
}

#[tokio::test]
async fn errors_over_the_limit_suggest_a_range() {
    let sandbox = Sandbox::with(&[("lines.txt", "1234567\n12\n345\n1234567"), ("picture.png", "12345678")]);
    sandbox.write("zeros.txt", [0; 8]);
    sandbox.write("unnamed", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0");
    let files = sandbox.files_with(|config| config.max_size = 6);
    let mut table = Vec::new();
    for path in [
        "lines.txt",
        "picture.png",
        "zeros.txt",
        "unnamed",
        "lines.txt?lines=1",
        "lines.txt?lines=2-3",
        "lines.txt?lines=4",
        "lines.txt?lines=-1",
        "lines.txt?bytes=0-6",
    ] {
        table.push(format!("{path:20} {}", hint(&files, path).await));
    }
    insta::assert_snapshot!(table.join("\n"), @"
    lines.txt            read a part with `?lines=1-500` or `?bytes=0-65535`
    picture.png          read a part with `?bytes=0-65535`
    zeros.txt            read a part with `?bytes=0-65535`
    unnamed              read a part with `?bytes=0-65535`
    lines.txt?lines=1    one line is already longer: read a part of it with `?bytes=0-5`
    lines.txt?lines=2-3  ask for fewer lines
    lines.txt?lines=4    one line is already longer: read a part of it with `?bytes=15-20`
    lines.txt?lines=-1   one line is already longer: read a part of it with `?bytes=-6`
    lines.txt?bytes=0-6  ask for fewer bytes
    ");
}

#[tokio::test]
async fn a_line_over_the_limit_is_not_scanned_to_its_end() {
    let sandbox = Sandbox::with(&[("line.json", &"x".repeat(4 * 1024 * 1024))]);
    let files = sandbox.files_with(|config| config.max_size = 1000);
    for path in ["line.json?lines=1", "line.json?lines=1-", "line.json?lines=-1"] {
        let reported = Arc::new(ReportedProgress::default());
        let context = Context::default().with_progress(reported.clone());
        let read = files.read(&uri(&format!("file:///root/{path}")), &context).await;
        let Err(Error::TooLarge { size, hint: Some(hint), .. }) = read else { panic!("{path}: {read:?}") };
        assert!(hint.contains("`?bytes="), "{path}: {hint}");
        assert!(size <= 64 * 1024 && reported.0.lock().unwrap().is_empty(), "{path} was scanned to the end");
    }
}

#[derive(Default)]
struct ReportedProgress(Mutex<Vec<(u64, Option<u64>)>>);

impl Progress for ReportedProgress {
    fn report(&self, done: u64, total: Option<u64>) {
        self.0.lock().unwrap().push((done, total));
    }
}

#[tokio::test]
async fn lines_of_a_huge_file_are_found_with_progress() {
    const LINE: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde\n";
    const MIB: u64 = 1024 * 1024;
    let sandbox = Sandbox::with(&[("big.log", &LINE.repeat(4 * MIB as usize / LINE.len()))]);
    let files = sandbox.files_with(|config| config.max_size = 1000);
    let reported = Arc::new(ReportedProgress::default());
    let context = Context::default().with_progress(reported.clone());
    let lines = files.read(&uri("file:///root/big.log?lines=65530-65531"), &context).await.unwrap();
    assert_eq!(lines.parts[0].body, ContentBody::Text(LINE.repeat(2)));
    assert_eq!(
        *reported.0.lock().unwrap(),
        [(MIB, Some(4 * MIB)), (2 * MIB, Some(4 * MIB)), (3 * MIB, Some(4 * MIB))]
    );
    insta::assert_snapshot!(rendered(&files, "big.log?lines=70000").await, @"Invalid: `file:///root/big.log?lines=70000` begins past the end: there are 65536 lines");
}

/// Long searches for lines take turns, so that one without an end delays others and does not stop them.
#[tokio::test(flavor = "multi_thread")]
async fn long_searches_of_several_clients_take_turns() {
    let sandbox = Sandbox::new();
    for (name, size) in [("endless.txt", 1 << 40), ("long.txt", 12 << 20)] {
        sandbox.write(name, "line\n".repeat(20_000));
        std::fs::OpenOptions::new().write(true).open(sandbox.path(name)).unwrap().set_len(size).unwrap();
    }
    let files = sandbox.files();
    let read = |last: u8, name: &'static str| {
        let context = Context::default().with_client(Client::at([127, 0, 0, last].into()));
        let files = &files;
        async move { files.read(&uri(&format!("file:///root/{name}?lines=30000-30001")), &context).await }
    };
    let endless = futures_util::future::join_all((0..3).map(|_| read(1, "endless.txt")));
    let both = futures_util::future::select(Box::pin(endless), Box::pin(read(2, "long.txt")));
    let ended = tokio::time::timeout(std::time::Duration::from_secs(300), both).await.expect("it waits");
    let futures_util::future::Either::Right((Err(error), _)) = ended else { panic!("the other ended") };
    assert!(error.to_string().contains("begins past the end"), "{error}");
}
