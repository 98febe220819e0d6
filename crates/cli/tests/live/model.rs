//! Random changes to a folder: whoever listens ends up knowing the truth, and hears of nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::client::{Client, Era, Program, eventually};

const OPERATIONS: usize = 2_000;

/// Where files and folders come and go: few names, so that they meet often.
const FOLDERS: [&str; 6] = ["a", "b", "a/x", "a/y", "b/x", "c"];
const FILES: [&str; 5] = ["one.txt", "two.md", "three.bin", "four", "five %.txt"];

/// A folder that random things happen to.
struct Folder {
    root: tempfile::TempDir,
    random: u64,
    count: u64,
}

impl Folder {
    fn new(seed: u8) -> Self {
        let root = tempfile::Builder::new().prefix("model").tempdir().unwrap();
        for quiet in quiet() {
            let path = root.path().join(quiet);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, quiet).unwrap();
        }
        Self { root, random: 0x9e37_79b9_7f4a_7c15u64.wrapping_mul(u64::from(seed)), count: 0 }
    }

    /// A number below `most`, the same for the same seed (xorshift).
    fn below(&mut self, most: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 20) as usize % most
    }

    fn mount(&self) -> String {
        format!("file:///{}/", self.root.path().file_name().unwrap().to_str().unwrap())
    }

    fn pick(&mut self, from: &[&str]) -> String {
        from[self.below(from.len())].to_owned()
    }

    fn folder(&mut self) -> PathBuf {
        let folder = self.pick(&FOLDERS);
        self.root.path().join(folder)
    }

    fn file(&mut self) -> PathBuf {
        let file = self.pick(&FILES);
        self.folder().join(file)
    }

    /// One thing that may happen. Most that cannot be done are not done, which is as good.
    fn happen(&mut self) {
        self.count += 1;
        let padding = "x".repeat(self.below(50));
        let text = format!("{} {padding}", self.count);
        let _ = match self.below(16) {
            0..=3 => {
                let path = self.file();
                let _ = std::fs::create_dir_all(path.parent().unwrap());
                std::fs::write(path, text)
            }
            4 | 5 => {
                use std::io::Write as _;
                let file = self.file();
                std::fs::OpenOptions::new()
                    .append(true)
                    .open(file)
                    .and_then(|mut file| file.write_all(text.as_bytes()))
            }
            6 | 7 => {
                // As editors save.
                let path = self.file();
                let draft = path.with_file_name(".draft");
                std::fs::write(&draft, text).and_then(|()| std::fs::rename(draft, path))
            }
            8 | 9 => std::fs::remove_file(self.file()),
            10 | 11 => std::fs::rename(self.file(), self.file()),
            12 => std::fs::create_dir_all(self.folder()),
            13 => std::fs::remove_dir_all(self.folder()),
            14 => std::fs::rename(self.folder(), self.folder()),
            _ => {
                // Out of the folder, and another one in.
                let away = tempfile::tempdir_in(self.root.path().parent().unwrap()).unwrap();
                let _ = std::fs::rename(self.folder(), away.path().join("gone"));
                let _ = std::fs::create_dir(away.path().join("new"));
                let _ = std::fs::write(away.path().join("new/one.txt"), text);
                std::fs::rename(away.path().join("new"), self.folder())
            }
        };
    }

    /// What the list must show: every file with its size, every folder without.
    fn truth(&self) -> BTreeMap<String, Option<u64>> {
        let mut all = BTreeMap::from([(self.mount(), None)]);
        collect(self.root.path(), &self.mount(), &mut all);
        all
    }
}

fn collect(folder: &Path, uri: &str, all: &mut BTreeMap<String, Option<u64>>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if name.starts_with('.') {
            continue;
        }
        let name = libris::Uri::encode_segment(name.as_bytes());
        if entry.file_type().unwrap().is_dir() {
            let uri = format!("{uri}{name}/");
            collect(&entry.path(), &uri, all);
            all.insert(uri, None);
        } else {
            all.insert(format!("{uri}{name}"), Some(entry.metadata().unwrap().len()));
        }
    }
}

/// Files that nothing happens to.
fn quiet() -> [&'static str; 3] {
    ["quiet/one.txt", "quiet/deep/two.txt", "quiet/three.md"]
}

/// A client with what it knows: what it read when it was last told to.
struct Reader {
    client: Client,
    known: BTreeMap<String, Option<Value>>,
    list: BTreeMap<String, Option<u64>>,
}

impl Reader {
    async fn open(program: &Program, era: Era, uris: &[String]) -> Self {
        let client = Client::connect(program, era, uris).await;
        let mut known = BTreeMap::new();
        for uri in uris {
            known.insert(uri.clone(), client.read(uri).await);
        }
        let list = client.list().await;
        Self { client, known, list }
    }

    /// Reads what it was told of, and nothing else.
    async fn catch_up(&mut self) {
        for uri in self.client.heard_of() {
            let content = self.client.read(&uri).await;
            assert!(self.known.insert(uri.clone(), content).is_some(), "it did not subscribe to {uri}");
        }
        if self.client.heard_of_list() {
            self.list = self.client.list().await;
        }
    }

    /// What it believes and is not so.
    async fn errors(&self, truth: &BTreeMap<String, Option<u64>>) -> Vec<String> {
        let mut errors = Vec::new();
        for (uri, content) in &self.known {
            if self.client.read(uri).await != *content {
                errors.push(uri.clone());
            }
        }
        if self.list != *truth {
            errors.push("the list".to_owned());
        }
        errors
    }
}

/// Subscriptions: files and folders that come and go, a part of a file, and files that stay as they are.
fn subscriptions(mount: &str) -> Vec<String> {
    let names: Vec<_> = FILES.iter().map(|name| libris::Uri::encode_segment(name.as_bytes())).collect();
    let files =
        FOLDERS.iter().flat_map(|folder| names.iter().map(move |name| format!("{mount}{folder}/{name}")));
    let folders = FOLDERS.iter().map(|folder| format!("{mount}{folder}/"));
    let others = [format!("{mount}a"), format!("{mount}a/one.txt?bytes=0-3"), mount.to_owned()];
    let quiet = quiet().map(|path| format!("{mount}{path}"));
    files.chain(folders).chain(others).chain(quiet).collect()
}

async fn run(seed: u8, overflow: bool) {
    let mut folder = Folder::new(seed);
    let program = Program::folder(folder.root.path());
    let uris = subscriptions(&folder.mount());
    let mut readers = Vec::new();
    for era in [Era::Legacy, Era::Modern] {
        readers.push(Reader::open(&program, era, &uris).await);
    }
    for n in 0..OPERATIONS {
        if overflow && n == OPERATIONS / 2 {
            // While it is stopped it cannot read events, and the kernel keeps only so many.
            program.signal("STOP");
            burst(folder.root.path());
        }
        if overflow && n == OPERATIONS / 2 + 200 {
            program.signal("CONT");
        }
        folder.happen();
        if n % 50 == 0 && !(overflow && (OPERATIONS / 2..OPERATIONS / 2 + 200).contains(&n)) {
            for reader in &mut readers {
                reader.catch_up().await;
            }
        }
    }
    let truth = folder.truth();
    for reader in &mut readers {
        let mut errors = Vec::new();
        eventually("everybody knows the truth", async || {
            reader.catch_up().await;
            errors = reader.errors(&truth).await;
            errors.is_empty()
        })
        .await;
        let heard = reader.client.heard.lock().unwrap();
        let told: BTreeSet<_> = heard.updates.keys().cloned().collect();
        assert!(told.len() > 20, "only {told:?} were told");
        for path in quiet() {
            let uri = format!("{}{path}", folder.mount());
            assert!(!told.contains(&uri), "{uri} did not change and was told");
        }
    }
}

/// More than two hundred thousand events, three for each file that comes and goes: far more than the
/// kernel keeps.
fn burst(root: &Path) {
    let script = "import os\n\
        for n in range(70000):\n    \
            path = 'burst.tmp%d' % (n % 7)\n    \
            open(path, 'w').close()\n    \
            os.unlink(path)\n";
    assert!(Command::new("python3").args(["-c", script]).current_dir(root).status().unwrap().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn everybody_ends_up_with_the_truth() {
    for seed in 1..=3 {
        run(seed, false).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn even_when_events_are_lost() {
    for seed in 4..=5 {
        run(seed, true).await;
    }
}
