//! What reading gives.

use std::sync::{Arc, Mutex};

use libris_core::{Body, Context, Progress, Source};

use super::sandbox::{Sandbox, read, shown, uri};

#[tokio::test]
async fn encodings() {
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
    insta::assert_snapshot!(shown(&files, "").await, @"");
    insta::assert_snapshot!(shown(&files, "little.txt?lines=2").await, @"");
    insta::assert_snapshot!(shown(&files, "big.txt?lines=1").await, @"");
    insta::assert_snapshot!(shown(&files, "windows-1252.txt?lines=1-9").await, @"");
    insta::assert_snapshot!(shown(&files, "zero.txt?lines=1").await, @"");
}

#[tokio::test]
async fn ranges() {
    let sandbox = Sandbox::with(&[
        ("a.txt", "one\ntwo\r\nthrée\nfour"),
        ("empty.txt", ""),
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
        "p.png?bytes=1-2",
        "p.png?lines=1",
        "d?lines=1",
        "d/?bytes=0-1",
        "nowhere?lines=1",
    ] {
        table.push(format!("{path:24} {}", shown(&files, path).await.replace("file:///root/", "")));
    }
    insta::assert_snapshot!(table.join("\n"), @"");
}

#[tokio::test]
async fn too_large() {
    let sandbox = Sandbox::with(&[("big.txt", &"0123456789\n".repeat(10)), ("fits.txt", &"x".repeat(50))]);
    let files = sandbox.files_with(|config| config.max_size = 50);
    insta::assert_debug_snapshot!(read(&files, "big.txt").await.unwrap_err(), @"");
    insta::assert_debug_snapshot!(read(&files, "big.txt?lines=2-").await.unwrap_err(), @"");
    insta::assert_debug_snapshot!(read(&files, "big.txt?bytes=0-50").await.unwrap_err(), @"");
    insta::assert_snapshot!(shown(&files, "big.txt?lines=-2").await, @"");
    insta::assert_snapshot!(shown(&files, "big.txt?bytes=0-49").await, @"");
    assert_eq!(read(&files, "fits.txt").await.unwrap()[0].body.len(), 50);
}

#[derive(Default)]
struct Told(Mutex<Vec<(u64, Option<u64>)>>);

impl Progress for Told {
    fn report(&self, done: u64, total: Option<u64>) {
        self.0.lock().unwrap().push((done, total));
    }
}

#[tokio::test]
async fn lines_of_a_file_far_too_large_to_read() {
    const LINE: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde\n";
    const MIB: u64 = 1024 * 1024;
    let sandbox = Sandbox::with(&[("big.log", &LINE.repeat(4 * MIB as usize / LINE.len()))]);
    let files = sandbox.files_with(|config| config.max_size = 1000);
    let told = Arc::new(Told::default());
    let context = Context::with_progress(told.clone());
    let lines = files.read(&uri("file:///root/big.log?lines=65530-65531"), &context).await.unwrap();
    assert_eq!(lines.parts[0].body, Body::Text(LINE.repeat(2)));
    assert_eq!(
        *told.0.lock().unwrap(),
        [(MIB, Some(4 * MIB)), (2 * MIB, Some(4 * MIB)), (3 * MIB, Some(4 * MIB))]
    );
    insta::assert_snapshot!(shown(&files, "big.log?lines=70000").await, @"");
}

#[tokio::test]
async fn directories() {
    let sandbox = Sandbox::with(&[
        ("mixed/a.txt", "12345"),
        ("mixed/b.txt", &"x".repeat(200)),
        ("mixed/c/d.txt", "below"),
        ("mixed/e.md", "# 67"),
        ("mixed/f.png", "picture"),
        ("mixed/g.txt", "90"),
    ]);
    std::fs::create_dir(sandbox.path("empty")).unwrap();
    let files = sandbox.files_with(|config| {
        config.directory_bytes = 12;
        config.directory_entries = 5;
    });
    insta::assert_snapshot!(shown(&files, "mixed/").await, @"");
    assert_eq!(shown(&files, "mixed").await, shown(&files, "mixed/").await);
    insta::assert_snapshot!(shown(&files, "empty").await, @"");
    insta::assert_snapshot!(shown(&files, "").await, @"");
    let root = files.read(&uri("file:///root"), &Context::default()).await.unwrap();
    assert_eq!(root.parts.len(), 2);
    insta::assert_snapshot!(shown(&files, "mixed/a.txt/").await, @"");
}
