//! Child processes: how many run at once, whose turn it is, and when they end.
//!
//! Most tests use a shell as the child. It waits until the test writes to a named pipe, so the test controls how long an
//! extraction takes.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;
use libris_core::{Client, Context, Source};
use libris_documents::extract::{ExtractOptions, HtmlContent};
use libris_documents::{DocumentReader, Documents, Format, PlainRead};
use serde_json::json;
use tempfile::TempDir;
use tokio::task::JoinHandle;

use crate::samples::numbered_pdf;
use crate::{folder, reader, uri};

/// Extractions whose child logs that it starts and waits for [`release`](Self::release) before it answers.
struct GatedChildren {
    dir: TempDir,
    /// The pipe from which children read, open for reading too, so that it keeps what no child has read yet.
    gate: File,
    reader: Arc<DocumentReader>,
}

impl GatedChildren {
    fn new(concurrency: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("running")).unwrap();
        let gate = dir.path().join("gate");
        assert!(Command::new("mkfifo").arg(&gate).status().unwrap().success());
        let gate = File::options().read(true).write(true).open(gate).unwrap();
        let here = dir.path().display();
        // The document is the second line of the input, after the request.
        let script = format!(
            "read request; read name; mkdir {here}/running/$name; \
             echo $name $(ls {here}/running | wc -l) >>{here}/log; read line <{here}/gate; \
             rmdir {here}/running/$name; \
             echo '{{\"text\":{{\"format\":\"csv\",\"sections\":[{{\"text\":\"'$name'\"}}]}}}}'"
        );
        let reader = reader(|config| {
            config.program = "/bin/sh".into();
            config.arguments = ["-c", &script].map(Into::into).into();
            config.concurrency = concurrency;
        });
        Self { dir, gate, reader }
    }

    /// Requests the text of a document as this client. When this returns, the request waits for its turn, or its process
    /// was started.
    fn request(&self, name: &str, client: u8) -> JoinHandle<String> {
        let (reader, document) = (self.reader.clone(), Bytes::from(format!("{name}\n")));
        let options = ExtractOptions { format: Format::Csv, content: HtmlContent::Main, decoded: true };
        let client = Client::at([10, 0, 0, client].into());
        let mut request = Box::pin(async move {
            reader.text(&document, options, client).await.unwrap().sections[0].text.clone()
        });
        let mut context = std::task::Context::from_waker(Waker::noop());
        assert!(request.as_mut().poll(&mut context).is_pending());
        tokio::spawn(request)
    }

    /// Lets one child answer.
    fn release(&self) {
        // A line of one byte, so that two children cannot share it.
        (&self.gate).write_all(b"\n").unwrap();
    }

    /// The documents whose extraction was started, in order, and how many ran at that time.
    fn started(&self) -> Vec<(String, usize)> {
        let log = fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        let line = |line: &str| {
            let (name, running) = line.split_once(' ').unwrap();
            (name.to_owned(), running.trim().parse().unwrap())
        };
        log.lines().map(line).collect()
    }

    async fn wait_for_started(&self, count: usize) {
        eventually(async || self.started().len() >= count).await;
    }
}

/// Polls until a condition holds.
async fn eventually(mut so: impl AsyncFnMut() -> bool) {
    let poll = async {
        while !so().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), poll).await.expect("it happens");
}

/// How many processes ran at once at most, when each of `clients` requested six documents.
async fn most_at_once(concurrency: usize, clients: u8) -> usize {
    let children = GatedChildren::new(concurrency);
    let names = (0..clients).flat_map(|client| (0..6).map(move |number| (client, number)));
    let requests: Vec<_> =
        names.map(|(client, number)| children.request(&format!("{client}-{number}"), client)).collect();
    for _ in &requests {
        children.release();
    }
    for request in requests {
        request.await.unwrap();
    }
    children.started().iter().map(|(_, running)| *running).max().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_number_of_processes_is_limited_in_total_and_per_client() {
    assert_eq!(most_at_once(1, 3).await, 1);
    assert!(most_at_once(4, 3).await <= 4);
    assert!(most_at_once(4, 1).await <= 3, "one client can use three quarters");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_with_a_long_queue_does_not_delay_the_documents_in_it_for_others() {
    let children = GatedChildren::new(1);
    let requests = ["a", "b", "c", "d", "wanted"].map(|name| children.request(name, 1));
    let other = children.request("wanted", 2);
    for _ in 0..5 {
        children.release();
    }
    assert_eq!(other.await.unwrap(), "wanted");
    for request in requests {
        request.await.unwrap();
    }
    let order: Vec<_> = children.started().into_iter().map(|(name, _)| name).collect();
    assert_eq!(order, ["a", "b", "wanted", "c", "d"], "and the extraction is shared");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_extraction_completes_without_its_first_caller() {
    let children = GatedChildren::new(1);
    let first = children.request("a", 1);
    let second = children.request("a", 2);
    let third = children.request("a", 1);
    let waiting = children.request("b", 1);
    children.wait_for_started(1).await;
    first.abort();
    waiting.abort();
    assert!(first.await.is_err() && waiting.await.is_err());
    children.release();
    assert_eq!((second.await.unwrap(), third.await.unwrap()), ("a".to_owned(), "a".to_owned()));
    // A request that was cancelled while it waited has started no process.
    assert_eq!(children.reader.extractions(), 1);
    // An extraction completes even if its only caller leaves; the next request gets its result.
    let only = children.request("b", 1);
    children.wait_for_started(2).await;
    only.abort();
    assert!(only.await.is_err());
    let next = children.request("b", 2);
    children.release();
    assert_eq!(next.await.unwrap(), "b");
    assert_eq!(children.reader.extractions(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn reading_a_member_ends_its_process_when_the_caller_leaves() {
    let dir = tempfile::tempdir().unwrap();
    let docs = dir.path().join("docs");
    fs::create_dir(&docs).unwrap();
    fs::write(docs.join("a.zip"), crate::samples::package(&[("x.txt", "x")])).unwrap();
    let file = dir.path().join("id");
    let script = format!("echo $$ >{}; while :; do :; done", file.display());
    let reader = reader(|config| {
        config.program = "/bin/sh".into();
        config.arguments = ["-c", &script].map(Into::into).into();
    });
    let source = Documents::new(folder(&docs), reader, PlainRead::Original);
    let id = async || fs::read_to_string(&file).ok().filter(|text| text.ends_with('\n'));
    let read = tokio::spawn(async move {
        source.read(&uri("file:///docs/a.zip/x.txt"), &Context::default()).await.is_ok()
    });
    eventually(async || id().await.is_some()).await;
    read.abort();
    assert!(read.await.is_err());
    let id = id().await.unwrap();
    eventually(async || !is_running(id.trim())).await;
}

/// Whether a process exists and has not ended.
fn is_running(id: &str) -> bool {
    let found = Command::new("ps").args(["-o", "stat=", "-p", id]).output().unwrap();
    let state = String::from_utf8_lossy(&found.stdout).trim().to_owned();
    !state.is_empty() && !state.starts_with('Z')
}

/// Starts the built child, and sends it a document of which it shall extract the text, with this much memory.
fn start_child(document: &[u8], memory: u64) -> std::process::Child {
    let seconds = |seconds: u64| json!({ "secs": seconds, "nanos": 0 });
    let limits = json!({
        "memory": memory, "cpu": seconds(600), "wall": seconds(600), "text": 64 << 20,
        "image": 64 << 20, "member": 64 << 20, "expanded": 64 << 20,
    });
    let work = json!({ "text": { "format": "pdf", "content": "main", "decoded": false } });
    let request = json!({ "limits": limits, "size": document.len(), "work": work });
    let program = Path::new(env!("CARGO_BIN_EXE_extract-document"));
    let mut child = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let input = child.stdin.as_mut().unwrap();
    writeln!(input, "{request}").unwrap();
    input.write_all(document).unwrap();
    child
}

/// The parent of a child process may be killed, so that it cannot end its children.
#[test]
fn a_child_ends_with_its_parent() {
    let mut child = start_child(&numbered_pdf(100_000), 4 << 30);
    // As the kernel does when the parent is killed.
    drop(child.stdin.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "it extracted the text for nobody");
}

/// A limit of no memory at all leaves none for the stack of a thread, as if the system had no threads left.
#[cfg(target_os = "linux")]
#[test]
fn a_child_that_cannot_start_its_thread_does_not_look_like_a_crash() {
    let mut child = start_child(b"%PDF-", 0);
    let input = child.stdin.take();
    let status = child.wait().unwrap();
    drop(input);
    // If the heap has no free memory left, an earlier allocation fails, and the process aborts.
    assert!(matches!(status.code(), Some(75) | None), "{status}");
}
