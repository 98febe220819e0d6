//! The data that all servers serve: text and binary files of two sizes, many small files, and files that change.

use std::fmt::Write as _;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use memchr::memmem;
use serde_json::Value;
use tempfile::TempDir;

use crate::drive::Beside;
use crate::shelf::PAGE;

/// The number of files for cold reads: one per connection.
pub(super) const COLD: usize = 64;

/// The number of resources for warm reads and lists, including the folder itself.
const RESOURCES: usize = 1000;

/// The number of bytes that change at the start of a changing file.
const MARK: usize = 12;

/// The age from which a server may trust a file's change time to reflect every change.
const SETTLE: Duration = Duration::from_millis(2100);

/// The served folders.
pub(super) struct Data {
    root: TempDir,
    made: Instant,
}

/// The request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// A text of 1 KiB.
    Kilobyte,
    /// A text of 1 MiB.
    Text,
    /// 1 MiB of binary data.
    Blob,
    /// The first page of the list.
    List,
    /// A text of 1 KiB, read with a tool.
    Tool,
}

impl Ask {
    /// The URI to read; each connection has its own where the files change.
    pub(super) fn uri(self, folder: Folder, connection: usize) -> Option<String> {
        let name = self.file(folder, connection)?;
        Some(format!("file:///{}/{name}", folder.name()))
    }

    fn file(self, folder: Folder, connection: usize) -> Option<String> {
        match (folder, self) {
            (_, Self::List) => None,
            (Folder::Warm, Self::Kilobyte | Self::Tool) => Some("1k.txt".to_owned()),
            (Folder::Warm, Self::Text) => Some("1m.txt".to_owned()),
            (Folder::Warm, Self::Blob) => Some("1m.bin".to_owned()),
            (Folder::Cold, Self::Blob) => Some(format!("{connection:02}.bin")),
            (Folder::Cold, Self::Kilobyte | Self::Tool) => Some(format!("{connection:02}-1k.txt")),
            (Folder::Cold, Self::Text) => Some(format!("{connection:02}.txt")),
        }
    }
}

/// Which folder is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Folder {
    /// Files that do not change.
    Warm,
    /// Files that change before each read.
    Cold,
}

impl Folder {
    fn name(self) -> &'static str {
        match self {
            Self::Warm => "data",
            Self::Cold => "cold",
        }
    }
}

impl Data {
    pub(super) fn new() -> Result<Self> {
        let data = Self { root: tempfile::tempdir()?, made: Instant::now() };
        for folder in [Folder::Warm, Folder::Cold] {
            std::fs::create_dir(data.path(folder))?;
        }
        let warm = data.path(Folder::Warm);
        let kilobyte = text(1 << 10);
        std::fs::write(warm.join("1k.txt"), &kilobyte)?;
        std::fs::write(warm.join("1m.txt"), text(1 << 20))?;
        std::fs::write(warm.join("1m.bin"), blob(1 << 20))?;
        for n in 4..RESOURCES {
            std::fs::write(warm.join(format!("note-{n:04}.txt")), format!("This is note {n}.\n"))?;
        }
        let cold = data.path(Folder::Cold);
        let (text, blob) = (text(1 << 20), blob(1 << 20));
        for n in 0..COLD {
            std::fs::write(cold.join(format!("{n:02}-1k.txt")), &kilobyte)?;
            std::fs::write(cold.join(format!("{n:02}.txt")), &text)?;
            std::fs::write(cold.join(format!("{n:02}.bin")), &blob)?;
        }
        Ok(Self { made: Instant::now(), ..data })
    }

    pub(super) fn path(&self, folder: Folder) -> PathBuf {
        self.root.path().join(folder.name())
    }

    /// Waits until the files are old enough to be trusted.
    pub(super) fn settle(&self) {
        std::thread::sleep(SETTLE.saturating_sub(self.made.elapsed()));
    }

    /// Checks the content of a response, except for the changing bytes.
    pub(super) fn check(&self, ask: Ask, folder: Folder, answer: &Value) -> Result<()> {
        let result = &answer["result"];
        let right = if ask == Ask::Tool {
            // Libris puts marks around the text.
            let expected = std::fs::read_to_string(self.path(folder).join("1k.txt"))?;
            result["content"][0]["text"].as_str().is_some_and(|text| text.contains(&expected))
        } else if let Some(file) = ask.file(folder, 0) {
            let expected = std::fs::read(self.path(folder).join(file))?;
            let content = &result["contents"][0];
            let held = match ask {
                Ask::Blob => STANDARD.decode(content["blob"].as_str().unwrap_or_default())?,
                _ => content["text"].as_str().unwrap_or_default().as_bytes().to_vec(),
            };
            let from = if folder == Folder::Cold { MARK } else { 0 };
            held.get(from..) == expected.get(from..)
        } else {
            let count = result["resources"].as_array().map_or(0, Vec::len);
            count == PAGE && result["nextCursor"].is_string()
        };
        let start: String = answer.to_string().chars().take(300).collect();
        ensure!(right, "the server answered something else: {start}");
        Ok(())
    }

    /// Opens the files that change before each read.
    pub(super) fn stir(&self, ask: Ask, fresh: bool) -> Result<Stir> {
        let open = |at| {
            let file = ask.file(Folder::Cold, at).context("only files change")?;
            Ok(File::options().write(true).open(self.path(Folder::Cold).join(file))?)
        };
        let files: Result<Vec<_>> = (0..COLD).map(open).collect();
        Ok(Stir { files: files?, marks: vec![String::new(); COLD], count: 0, ask, fresh })
    }
}

/// Changes a file before each read and checks that the response contains the change.
pub(super) struct Stir {
    files: Vec<File>,
    marks: Vec<String>,
    count: u64,
    ask: Ask,
    /// Whether the server reads files at each request, so that responses must be current.
    fresh: bool,
}

impl Beside for Stir {
    fn before(&mut self, connection: usize) -> Result<()> {
        self.count += 1;
        let mark = &mut self.marks[connection];
        mark.clear();
        write!(mark, "{:0MARK$}", self.count)?;
        Ok(self.files[connection].write_all_at(mark.as_bytes(), 0)?)
    }

    fn after(&mut self, connection: usize, start: &[u8]) -> Result<()> {
        let mark = &self.marks[connection];
        let found = match self.ask {
            Ask::Blob => memmem::find(start, STANDARD.encode(mark).as_bytes()),
            _ => memmem::find(start, mark.as_bytes()),
        };
        ensure!(!self.fresh || found.is_some(), "a read returned outdated contents");
        Ok(())
    }
}

/// Text similar to prose: words of varying length, some quotes, and lines of about 80 characters. All lines differ:
/// otherwise branch predictors would learn the positions of line ends.
fn text(length: usize) -> String {
    const WORDS: [&str; 16] = [
        "a",
        "in",
        "the",
        "page",
        "shelf",
        "reader",
        "chapter",
        "handbook",
        "of",
        "and",
        "says",
        "first",
        "\"read me\"",
        "librarian",
        "catalogue",
        "bibliography",
    ];
    let mut text = String::with_capacity(length + 100);
    let mut line = 0;
    for number in numbers() {
        if text.len() >= length {
            break;
        }
        text.push_str(WORDS[number as usize % WORDS.len()]);
        let full = text.len() - line > 72;
        text.push(if full { '\n' } else { ' ' });
        line = if full { text.len() } else { line };
    }
    text.truncate(length);
    text
}

/// Binary data.
fn blob(length: usize) -> Vec<u8> {
    numbers().map(|number| number as u8).take(length).collect()
}

/// A seeded pseudo-random generator.
fn numbers() -> impl Iterator<Item = u64> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    })
}
