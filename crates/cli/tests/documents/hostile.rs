//! The server under hostile documents: its memory, its child processes, and the reads of others.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use tempfile::TempDir;

use crate::client::{Client, Era, Program, eventually};
use crate::samples::{docx, epub, letter, numbered_pdf, odt, package, pdf_of, xlsx};

/// How much the server's memory may grow.
const GROWTH: u64 = 32 << 20;

/// The size of the largest hostile document: just below the limit, which these tests set.
const NEAR_LIMIT: usize = (8 << 20) - 1024;

/// How many reads a bystander must complete during the attack.
const LEAST_READS: usize = 200;

/// The bounds of the median and of the longest read of a bystander. They are for a busy machine with two processors.
const MEDIAN_READ: Duration = Duration::from_millis(100);
const LONGEST_READ: Duration = Duration::from_secs(5);

/// The value of a field such as `VmRSS` in the status of a process, in bytes.
fn status(id: u32, field: &str) -> u64 {
    let status = fs::read_to_string(Path::new("/proc").join(id.to_string()).join("status")).unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// The resident set of a process, in bytes.
fn resident(id: u32) -> u64 {
    status(id, "VmRSS")
}

/// Asserts that the resident set was never larger than before by more than [`GROWTH`]. The kernel records the peak.
fn assert_flat(id: u32, before: u64) {
    let growth = status(id, "VmHWM").saturating_sub(before);
    eprintln!("the server's memory grew by {} KiB at its peak", growth >> 10);
    assert!(growth < GROWTH, "{} MiB", growth >> 20);
}

/// The running extractions of a server, by process id.
fn extractions(server: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{server}/task")).into_iter().flatten().flatten();
    let children =
        threads.map(|thread| fs::read_to_string(thread.path().join("children")).unwrap_or_default());
    let ids =
        children.flat_map(|ids| ids.split_whitespace().map(|id| id.parse().unwrap()).collect::<Vec<u32>>());
    ids.filter(|id| is_extraction(*id)).collect()
}

/// Whether this process is a running extraction.
fn is_extraction(id: u32) -> bool {
    let arguments = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
    arguments.windows(16).any(|part| part == b"extract-document")
}

/// A server of a folder of documents.
struct Served {
    docs: TempDir,
    program: Program,
}

impl Served {
    /// Serves documents with these keys in the table `documents`.
    fn new(keys: &str, documents: &[(&str, Vec<u8>)]) -> Self {
        let docs = tempfile::tempdir().unwrap();
        for (name, data) in documents {
            fs::write(docs.path().join(name), data).unwrap();
        }
        fs::write(docs.path().join("warm.docx"), letter("x")).unwrap();
        fs::write(docs.path().join("plain.txt"), "plain").unwrap();
        let file = docs.path().join("libris.toml");
        let path = docs.path().display();
        fs::write(&file, format!("[documents]\n{keys}\n[[files]]\npath = \"{path}\"\nmount = \"docs\"\n"))
            .unwrap();
        let program = Program::serve(&["--config", file.to_str().unwrap()]);
        Self { docs, program }
    }

    fn id(&self) -> u32 {
        self.program.child.id()
    }

    async fn client(&self) -> Client {
        Client::connect(&self.program, Era::Modern, &[]).await
    }

    /// The text at a URI, or the message of the error.
    async fn read(&self, client: &Client, path: &str) -> Result<String, String> {
        let uri = format!("file:///docs/{path}");
        let response = client.ask("resources/read", serde_json::json!({ "uri": uri })).await;
        match response["result"]["contents"][0]["text"].as_str() {
            Some(text) => Ok(text.to_owned()),
            None => Err(response["error"]["message"].as_str().unwrap_or_default().to_owned()),
        }
    }
}

/// A gzip file of this many MiB of zeros.
fn zeros(mebibytes: usize) -> Vec<u8> {
    let mut one = GzEncoder::new(Vec::new(), Compression::best());
    one.write_all(&vec![0; 1 << 20]).unwrap();
    // Members of a gzip file are concatenated when they are decompressed.
    one.finish().unwrap().repeat(mebibytes)
}

/// XML whose entities expand to 10^25 characters.
fn entity_bomb(root: &str) -> String {
    let entities: String = ('b'..='z')
        .map(|name| {
            let before = char::from_u32(u32::from(name) - 1).unwrap();
            format!("<!ENTITY {name} \"{}\">", format!("&{before};").repeat(10))
        })
        .collect();
    format!("<!DOCTYPE d [<!ENTITY a \"x\">{entities}]>{root}")
}

/// Hostile documents, and what the message of the error contains. Those without one are read as far as they can be.
fn hostile() -> Vec<(&'static str, Vec<u8>, Option<&'static str>)> {
    let spaces = " ".repeat(16 << 20);
    let mut nested = package(&[("x.txt", "bottom")]);
    for _ in 0..41 {
        nested = package(&[("a.zip", &nested)]);
    }
    let catalog = || "<< /Type /Catalog /Pages 2 0 R >>".to_owned();
    let looped = pdf_of(&[
        catalog(),
        "<< /Type /Pages /Kids [3 0 R] /Count 1000000 >>".to_owned(),
        "<< /Type /Pages /Kids [2 0 R 3 0 R] /Count 5 /Parent 2 0 R >>".to_owned(),
    ]);
    let declared = pdf_of(&[
        catalog(),
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>".to_owned(),
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 4 0 R >>".to_owned(),
        "<< /Length 10000000000 >>\nstream\nBT (x) Tj ET\nendstream".to_owned(),
    ]);
    let entities =
        entity_bomb("<w:document><w:body><w:p><w:r><w:t>end&z;</w:t></w:r></w:p></w:body></w:document>");
    let workbook = xlsx(&[("One", &[&["a"]])]);
    let cut = |data: Vec<u8>| data[..data.len() / 2].to_vec();
    // Incompressible, so that the parser searches all of it for objects.
    let mut noise: Vec<u8> = b"%PDF-1.4\n".to_vec();
    let mut state = 1_u64;
    while noise.len() < NEAR_LIMIT {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        noise.extend(state.to_be_bytes());
    }
    let tricks = ["../plain.txt", "/etc/passwd", "a\\..\\b"].map(|name| (name, "member"));
    vec![
        ("bomb.tgz/x", zeros(300), Some("has more than 268435456 bytes when decompressed")),
        ("bomb.docx", docx(&format!("<w:p><w:r><w:t>{spaces}</w:t></w:r></w:p>")), None),
        ("nested.zip/a.zip/a.zip/a.zip/x.txt", nested, Some("archives are opened to a depth of 3")),
        ("loop.pdf", looped, None),
        ("declared.pdf", declared, None),
        ("entities.docx", package(&[("word/document.xml", entities.as_str())]), None),
        ("entities.odt", odt(&entity_bomb("<text:p>&z;</text:p>")), None),
        ("entities.epub", epub(&[&entity_bomb("<p>&z;</p>")]), None),
        ("deep.docx", package(&[("word/document.xml", "<a>".repeat(200_000))]), Some("nested too deeply")),
        ("deep.html", "<div>".repeat(200_000).into_bytes(), None),
        ("tricks.zip/..%2Fplain.txt", package(&tricks), Some("not found")),
        ("noise.pdf", noise.clone(), Some("is damaged")),
        ("large.pdf", noise.repeat(2), Some("more than the limit of 8388608")),
        ("cut.pdf", cut(numbered_pdf(50)), None),
        ("cut.docx", cut(letter("x")), Some("is damaged")),
        ("cut.xlsx", cut(workbook), Some("is damaged")),
        ("cut.zip/x", cut(package(&[("x", "y".repeat(1000))])), Some("is damaged")),
        ("cut.epub", cut(epub(&["<p>x</p>"])), Some("is damaged")),
        ("long.pdf", numbered_pdf(24_000), Some("it needs more than 2 seconds of processor time")),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_documents_are_errors_and_others_are_read() {
    let hostile = hostile();
    let files: Vec<_> =
        hostile.iter().map(|(path, data, _)| (path.split('/').next().unwrap(), data.clone())).collect();
    let served = Served::new("cpu_time = \"2s\"\ntimeout = \"1m\"\nmax_size = \"8MiB\"", &files);
    let client = served.client().await;
    served.read(&client, "warm.docx?as=text").await.unwrap();
    let before = resident(served.id());
    let attack = async {
        for (path, _, expected) in &hostile {
            let read = served.read(&client, &format!("{path}?as=text")).await;
            match (expected, read) {
                // Debug builds may reach the limit of processor time before another one.
                (Some(expected), Err(message)) => {
                    let is_expected = message.contains(expected) || message.contains("of processor time");
                    assert!(is_expected, "{path}: {message}");
                }
                (Some(_), Ok(text)) => panic!("{path}: it reads as {:?}", &text[..text.len().min(100)]),
                (None, Ok(text)) => assert!(text.len() < 10_000, "{path}: {} bytes", text.len()),
                (None, Err(message)) => assert!(message.contains("has no text"), "{path}: {message}"),
            }
        }
    };
    let mut latencies = Vec::new();
    let bystander = async {
        let client = served.client().await;
        loop {
            let start = Instant::now();
            assert_eq!(served.read(&client, "plain.txt").await.as_deref(), Ok("plain"));
            latencies.push(start.elapsed());
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        () = attack => {}
        () = bystander => unreachable!("it reads until the attack ends"),
    }
    assert_flat(served.id(), before);
    latencies.sort();
    let (reads, median) = (latencies.len(), latencies[latencies.len() / 2]);
    let longest = latencies[reads - 1];
    eprintln!("{reads} reads of a bystander: median {median:?}, longest {longest:?}");
    assert!(reads >= LEAST_READS, "{reads} reads");
    assert!(median < MEDIAN_READ && longest < LONGEST_READ, "median {median:?}, longest {longest:?}");
    eventually("no process is left", async || extractions(served.id()).is_empty()).await;
    // Freed memory goes back to the system with a delay.
    eventually("the memory is returned", async || resident(served.id()) < before + GROWTH).await;
    assert!(served.docs.path().join("plain.txt").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_memory_of_the_server_stays_flat_while_a_thousand_pages_are_read() {
    let served = Served::new("cache_bytes = \"16MiB\"", &[("long.pdf", numbered_pdf(1_000))]);
    let client = served.client().await;
    served.read(&client, "warm.docx?as=text").await.unwrap();
    let before = resident(served.id());
    // On a slow machine, the first read exceeds the time limit of a request. The extraction continues.
    while let Err(error) = served.read(&client, "long.pdf?as=text&pages=1").await {
        assert!(error.contains("exceeded its time limit"), "{error}");
    }
    for page in (1..=991).step_by(10) {
        let text =
            served.read(&client, &format!("long.pdf?as=text&pages={page}-{}", page + 9)).await.unwrap();
        assert!(text.contains(&format!("Page number {page} of")), "{text}");
    }
    assert_flat(served.id(), before);
    eventually("the memory is returned", async || resident(served.id()) < before + GROWTH).await;
}

/// The allocator of the program reserves more than the limit when it starts.
#[tokio::test(flavor = "multi_thread")]
async fn the_memory_of_an_extraction_is_limited() {
    let many = docx(&"<w:p><w:r/><w:r/></w:p>".repeat(600_000));
    let served = Served::new("memory = \"64MiB\"", &[("many.docx", many)]);
    let client = served.client().await;
    let error = served.read(&client, "many.docx?as=text").await.unwrap_err();
    assert!(error.contains("it needs more than 64 MiB of memory"), "{error}");
    assert_eq!(served.read(&client, "warm.docx?as=text").await.as_deref(), Ok("x\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn extractions_end_when_the_server_is_killed() {
    let mut served = Served::new("", &[("long.pdf", numbered_pdf(100_000))]);
    let client = served.client().await;
    let id = served.id();
    let mut children = Vec::new();
    {
        let read = served.read(&client, "long.pdf?as=text");
        let started = eventually("an extraction runs", async || {
            children = extractions(id);
            !children.is_empty()
        });
        tokio::select! {
            read = read => panic!("the document was read too fast for this test: {read:?}"),
            () = started => {}
        }
    }
    // The caller has left, and the extraction continues for the next one.
    assert!(children.iter().all(|child| is_extraction(*child)));
    served.program.child.kill().unwrap();
    served.program.child.wait().unwrap();
    eventually("the extraction ends", async || !children.iter().any(|child| is_extraction(*child))).await;
}
