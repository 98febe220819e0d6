//! How much CPU time a replica would save with the search index of another one: prints the table of the manual.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::client::{Program, eventually};
use crate::replicas::start;

/// The Markdown files, of 4 KiB each.
const FILES: usize = 3_000;

/// A folder of Markdown files, and where a replica stores its index.
struct IndexedFolder(tempfile::TempDir);

impl IndexedFolder {
    fn new() -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        std::fs::create_dir(folder.docs()).unwrap();
        for file in 0..FILES {
            let mut text = format!("# Page {file}\n\n");
            for word in 0.. {
                if text.len() >= 4 << 10 {
                    break;
                }
                text += &format!("word{} ", (file * 31 + word * word) % 20_000);
            }
            std::fs::write(folder.docs().join(format!("{file:04}.md")), text).unwrap();
        }
        folder
    }

    fn docs(&self) -> PathBuf {
        self.0.path().join("docs")
    }

    fn index(&self) -> PathBuf {
        self.0.path().join("index")
    }

    /// Sets the modification times of all files, as a copy of the files without their times does.
    fn touch(&self) {
        let now = SystemTime::now() - Duration::from_secs(60);
        for entry in std::fs::read_dir(self.docs()).unwrap() {
            let file = std::fs::File::options().write(true).open(entry.unwrap().path()).unwrap();
            file.set_modified(now).unwrap();
        }
    }

    /// The CPU time of a replica until its index has every file.
    async fn start_replica(&self) -> Duration {
        let config = self.0.path().join("libris.toml");
        let text = "cache_folder = \"index\"\n\n[search]\n\n[[files]]\npath = \"docs\"\n";
        std::fs::write(&config, text).unwrap();
        let program = start(&config);
        eventually("everything is indexed", async || {
            program.metric("search_resources").await == FILES as u64
                && program.metric("search_pending").await == 0
        })
        .await;
        let computed = computed(&program);
        // The index is written when the program ends.
        program.signal("TERM");
        let mut program = program;
        program.child.wait().unwrap();
        computed
    }
}

/// The CPU time of a program so far.
fn computed(program: &Program) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", program.child.id())).unwrap();
    // After the name, which may contain spaces: `utime` and `stime`, in hundredths of a second.
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let ticks: u64 =
        fields.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum();
    Duration::from_millis(ticks * 10)
}

fn size(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    entries
        .map(
            |entry| if entry.path().is_dir() { size(&entry.path()) } else { entry.metadata().unwrap().len() },
        )
        .sum()
}

/// `cargo test --test cluster shared_index -- --ignored --nocapture`, for the figures of the manual with `--release`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "measures"]
async fn what_a_shared_index_would_save() {
    let folder = IndexedFolder::new();
    let without = folder.start_replica().await;
    eprintln!("without an index: {without:.2?}; the index has {} KiB", size(&folder.index()) >> 10);
    let own = folder.start_replica().await;
    eprintln!("with an index of the same files and times: {own:.2?}");
    folder.touch();
    let touched = folder.start_replica().await;
    eprintln!("with an index of the same files, with other times: {touched:.2?}");
    assert!(own < without, "{own:?} {without:?}");
}
