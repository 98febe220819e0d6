//! A running `libris serve` with a large folder: the time until a changed file is found, and the first search after a
//! restart with the index on the disk.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use super::large::{document, word};
use crate::mcp::Era;
use crate::program::{Binary, OverStdio};
use crate::report::{Aim, Report};

/// How many changes and restarts are measured. The median is judged.
const REPEATS: usize = 5;

/// How long the first index may take.
const BUILD_LIMIT: Duration = Duration::from_secs(1800);

/// How long a change may take.
const CHANGE_LIMIT: Duration = Duration::from_secs(30);

/// A word that no generated document has.
const UNHEARD: &str = "unheardof";

/// A server, and the time when its process was started.
struct Session {
    server: OverStdio,
    lines: Vec<u8>,
    begun: Instant,
}

impl Session {
    fn start(binary: &Binary, file: &Path) -> Result<Self> {
        let begun = Instant::now();
        let mut command = binary.configured(file);
        command.arg("--stdio").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let server = OverStdio::connected(command.spawn().context("could not start libris")?)?;
        Ok(Self { server, lines: Vec::new(), begun })
    }

    fn ask(&mut self, method: &str, params: Value) -> Result<Value> {
        writeln!(self.server.input, "{}", Era::Modern.request(method, params))?;
        self.lines.clear();
        // A request is answered before the next one is sent, so a new buffer loses nothing.
        BufReader::new(&mut self.server.output).read_until(b'\n', &mut self.lines)?;
        let answer: Value = serde_json::from_slice(&self.lines).context("the answer is no JSON")?;
        ensure!(answer["error"].is_null(), "{answer}");
        Ok(answer["result"].clone())
    }

    /// The number of resources that a search finds.
    fn total(&mut self, query: &str) -> Result<u64> {
        let call = json!({ "name": "search_resources", "arguments": { "query": query } });
        let answer = self.ask("tools/call", call)?;
        answer["structuredContent"]["total"].as_u64().with_context(|| format!("no total: {answer}"))
    }

    fn is_complete(&mut self) -> Result<bool> {
        let status = self.ask("resources/read", json!({ "uri": "libris://status" }))?;
        let text = status["contents"][0]["text"].as_str().unwrap_or_default();
        Ok(text.contains("the index has"))
    }
}

/// Measures a folder of this many generated documents.
pub(super) fn run(documents: usize, report: &mut Report) -> Result<()> {
    eprintln!("a server of {documents} documents …");
    let binary = Binary::find()?;
    let folder = tempfile::tempdir()?;
    for number in 0..documents {
        let path = folder.path().join(format!("docs/{}", number % 100));
        if number < 100 {
            std::fs::create_dir_all(&path)?;
        }
        std::fs::write(path.join(format!("{number}.md")), document(number))?;
    }
    let file = folder.path().join("libris.toml");
    std::fs::write(&file, "cache_folder = \"cache\"\n[search]\n[tools]\n[[files]]\npath = \"docs\"\n")?;
    let mut session = Session::start(&binary, &file)?;
    let end = Instant::now() + BUILD_LIMIT;
    while !session.is_complete()? {
        ensure!(Instant::now() < end, "the index is not complete after {} s", BUILD_LIMIT.as_secs());
        std::thread::sleep(Duration::from_millis(200));
    }
    report.add("search build by a server", session.begun.elapsed().as_secs_f64(), "s");
    let mut changes = Vec::new();
    for number in 0..REPEATS {
        let text = format!("{}\n{UNHEARD}{number}\n", document(number));
        let begun = Instant::now();
        std::fs::write(folder.path().join(format!("docs/{number}/{number}.md")), text)?;
        while session.total(&format!("{UNHEARD}{number}"))? == 0 {
            if begun.elapsed() > CHANGE_LIMIT {
                bail!("the changed file is not found after {} s", CHANGE_LIMIT.as_secs());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        changes.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    let mut starts = Vec::new();
    for _ in 0..REPEATS {
        drop(session);
        session = Session::start(&binary, &file)?;
        ensure!(session.total(&word(5000))? > 0, "nothing was found");
        starts.push(session.begun.elapsed().as_secs_f64() * 1e3);
    }
    let name = "search a changed file is found by a server after";
    report.judge(name, median(changes), "ms", Aim::AtMost(1000.0));
    report.judge(
        "search first hit of a warm server after its start",
        median(starts),
        "ms",
        Aim::AtMost(50.0),
    );
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
