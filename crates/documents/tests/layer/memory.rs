//! The memory of a request: reserved before a member is received, and for each image as soon as it is rendered. The
//! documents of these tests are so small that the folder reserves none for them.

use std::fs;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use libris_core::{ContentMemory, Context, Error, Source};
use libris_documents::{Documents, PlainRead};

use crate::samples::{numbered_pdf, package};
use crate::{documents, folder, reader, uri};

/// Grants a number of bytes, and records what is reserved.
struct Memory {
    left: Mutex<usize>,
    asked: Mutex<Vec<usize>>,
}

impl Memory {
    fn new(bytes: usize) -> Arc<Self> {
        Arc::new(Self { left: Mutex::new(bytes), asked: Mutex::default() })
    }

    fn context(self: &Arc<Self>) -> Context {
        Context::default().with_memory(self.clone())
    }

    fn asked(&self) -> Vec<usize> {
        self.asked.lock().unwrap().clone()
    }
}

impl ContentMemory for Memory {
    fn reserve(&self, bytes: usize) -> bool {
        self.asked.lock().unwrap().push(bytes);
        let mut left = self.left.lock().unwrap();
        let granted = left.checked_sub(bytes);
        *left = granted.unwrap_or(*left);
        granted.is_some()
    }

    fn grow(&self, bytes: usize) -> bool {
        self.reserve(bytes)
    }
}

fn is_without_memory(error: &Error) -> bool {
    error.to_string() == Error::NO_MEMORY.to_string()
}

const LARGE: usize = 4 << 20;

#[tokio::test(flavor = "multi_thread")]
async fn memory_for_a_member_is_reserved_however_it_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let large = "x".repeat(LARGE);
    let inner = package(&[("large.html", &large), ("small.txt", &"small".to_owned())]);
    let archive = package(&[("large.html", large.as_bytes()), ("inner.zip", &inner)]);
    fs::write(dir.path().join("a.zip"), &archive).unwrap();
    let source = documents(dir.path());
    for (path, size) in [
        ("large.html", LARGE),
        ("large.html?as=text", LARGE),
        ("inner.zip/large.html", LARGE),
        ("inner.zip/small.txt", inner.len()),
        ("inner.zip/", inner.len()),
    ] {
        let uri = uri(&format!("file:///docs/a.zip/{path}"));
        let memory = Memory::new(size - 1);
        let error = source.read(&uri, &memory.context()).await.unwrap_err();
        assert!(is_without_memory(&error), "{path}: {error}");
        assert!(memory.asked().contains(&size), "{path}: {:?}", memory.asked());
        let memory = Memory::new(usize::MAX);
        source.read(&uri, &memory.context()).await.unwrap();
        let count = memory.asked().iter().filter(|asked| **asked == size).count();
        assert_eq!(count, 1, "{path}: {:?}", memory.asked());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_is_received_only_if_there_is_memory_and_no_more_than_announced() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.zip"), package(&[("x", "x")])).unwrap();
    let shell = |script: &str| {
        let reader = reader(|config| {
            config.program = "/bin/sh".into();
            config.arguments = ["-c", script].map(Into::into).into();
        });
        Documents::new(folder(dir.path()), reader, PlainRead::Original)
    };
    let member = uri("file:///docs/a.zip/x");
    let began = Instant::now();
    // It announces the member in two pieces, and never sends it.
    let source = shell("read request; printf '{\"mem'; sleep 0.1; echo 'ber\":1000000}'; sleep 600");
    let error = source.read(&member, &Memory::new(999_999).context()).await.unwrap_err();
    assert!(is_without_memory(&error) && began.elapsed() < Duration::from_secs(60), "{error}");
    let source = shell("read request; echo '{\"member\":3}'; echo abcdef");
    let error = source.read(&member, &Context::default()).await.unwrap_err();
    assert!(error.to_string().contains("cannot be taken from its archive"), "{error}");
    let source = shell("read request; echo '{\"member\":3}'; printf abc");
    assert_eq!(source.read(&member, &Context::default()).await.unwrap().parts.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_for_images_is_reserved_page_by_page() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.pdf"), numbered_pdf(5)).unwrap();
    let reader = reader(|_| {});
    let source = Documents::new(folder(dir.path()), reader.clone(), PlainRead::Original);
    let pages = uri("file:///docs/a.pdf?as=image&pages=1-5&width=200");
    let memory = Memory::new(usize::MAX);
    let images = source.read(&pages, &memory.context()).await.unwrap();
    let sizes: Vec<_> = images.parts.iter().map(|part| part.body.len()).collect();
    assert_eq!(memory.asked(), sizes);
    assert_eq!(reader.extractions(), 5);
    // Enough for the first image only: the others are not rendered.
    let other = uri("file:///docs/a.pdf?as=image&pages=1-5&width=201");
    let memory = Memory::new(sizes[0] + sizes[0] / 2);
    assert!(is_without_memory(&source.read(&other, &memory.context()).await.unwrap_err()));
    assert_eq!(reader.extractions(), 7);
    // Cached images take memory too.
    let memory = Memory::new(sizes.iter().sum::<usize>() - 1);
    assert!(is_without_memory(&source.read(&pages, &memory.context()).await.unwrap_err()));
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_for_the_text_of_a_folder_in_an_archive_is_reserved_while_it_grows() {
    let dir = tempfile::tempdir().unwrap();
    let names: Vec<_> = (0..1_000).map(|number| format!("{number:0100}.txt")).collect();
    let members: Vec<_> = names.iter().map(|name| (name.as_str(), "x")).collect();
    fs::write(dir.path().join("a.zip"), package(&members)).unwrap();
    let source = documents(dir.path());
    let list = uri("file:///docs/a.zip/");
    let memory = Memory::new(usize::MAX);
    let text = source.read(&list, &memory.context()).await.unwrap();
    let piece = 16 << 10;
    let reserved = piece * memory.asked().iter().filter(|asked| **asked == piece).count();
    let size = text.parts[0].body.len();
    assert!(size > 200_000 && (size..size + piece).contains(&reserved), "{reserved} for {size} bytes");
}
