//! Model-based test of notifications: after random changes to a folder, clients that read only notified resources know
//! its state, and unchanged resources are not notified.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::client::{Client, Era, Program, eventually};

const OPERATIONS: usize = 2_000;

/// The names of changing files and folders: few, so that changes collide.
const FOLDERS: [&str; 6] = ["a", "b", "a/x", "a/y", "b/x", "c"];
const FILES: [&str; 5] = ["one.txt", "two.md", "three.bin", "four", "five %.txt"];

/// A folder with random changes.
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

    /// Makes one random change. Impossible ones are ignored.
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
                // Write and rename, as editors save.
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
                // Moves a folder out of the root and another one in.
                let away = tempfile::tempdir_in(self.root.path().parent().unwrap()).unwrap();
                let _ = std::fs::rename(self.folder(), away.path().join("gone"));
                let _ = std::fs::create_dir(away.path().join("new"));
                let _ = std::fs::write(away.path().join("new/one.txt"), text);
                std::fs::rename(away.path().join("new"), self.folder())
            }
        };
    }

    /// The expected list: files with their sizes, folders without.
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

/// Files that never change.
fn quiet() -> [&'static str; 3] {
    ["quiet/one.txt", "quiet/deep/two.txt", "quiet/three.md"]
}

/// A client and its knowledge: the result of the last read after each notification.
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

    /// Reads the notified resources, and no others.
    async fn catch_up(&mut self) {
        for uri in self.client.heard_of() {
            let content = self.client.read(&uri).await;
            assert!(self.known.insert(uri.clone(), content).is_some(), "it did not subscribe to {uri}");
        }
        if self.client.heard_of_list() {
            self.list = self.client.list().await;
        }
    }

    /// The differences between the client's knowledge and the expected state.
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
            // While the process is stopped, the inotify queue overflows.
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

/// Overflows the inotify queue: causes more than 200,000 events, three for each file created and deleted.
fn burst(root: &Path) {
    for number in 0..70_000 {
        let path = root.join(format!("burst.tmp{}", number % 7));
        std::fs::File::create(&path).unwrap();
        std::fs::remove_file(path).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn everybody_ends_up_with_the_truth() {
    for seed in 1..=3 {
        run(seed, false).await;
    }
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn even_when_events_are_lost() {
    for seed in 4..=5 {
        run(seed, true).await;
    }
}
