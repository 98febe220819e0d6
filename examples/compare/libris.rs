//! Notes as resources, with Libris.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use libris::{Instance, Json, Notifier};

// The server.

struct Docs {
    store: Store,
    notifier: Notifier,
}

#[libris::resources]
impl Docs {
    /// The ids of all documents.
    #[resource("docs://documents", title = "Documents", mime = "application/json")]
    fn documents(&self) -> Json<Vec<String>> {
        Json(self.store.ids())
    }

    /// One document, the newest version unless another one is named.
    #[resource(
        "docs://documents/{doc_id}{?version}",
        title = "Document",
        mime = "text/markdown",
        audience = ["user", "assistant"],
        priority = 0.8
    )]
    fn document(&self, doc_id: &str, version: Option<usize>) -> io::Result<Option<String>> {
        self.store.text(doc_id, version)
    }

    #[list("docs://documents/{doc_id}{?version}")]
    fn all(&self) -> Vec<Instance> {
        self.store.ids().into_iter().map(|id| Instance::of(&id).title(title(&id))).collect()
    }

    #[complete("docs://documents/{doc_id}{?version}", doc_id)]
    fn doc_ids(&self) -> Vec<String> {
        self.store.ids()
    }

    #[changes]
    fn changes(&self) -> &Notifier {
        &self.notifier
    }
}

#[tokio::main]
async fn main() -> libris::Result<()> {
    let docs = Arc::new(Docs { store: Store::new(), notifier: Notifier::new() });
    let author = docs.clone();
    tokio::spawn(async move {
        for second in 1.. {
            tokio::time::sleep(Duration::from_secs(1)).await;
            author.store.rewrite("note-000", second);
            author.notifier.updated("docs://documents/note-000")?;
            let added = author.store.add();
            author.notifier.added(format!("docs://documents/{added}"))?;
        }
        libris::Result::<()>::Ok(())
    });
    libris::serve(docs).name("documents").await
}

// The store.

/// The versions of each note.
struct Store(Mutex<BTreeMap<String, Vec<String>>>);

impl Store {
    fn new() -> Self {
        let store = Self(Mutex::default());
        for _ in 0..250 {
            store.add();
        }
        store
    }

    fn add(&self) -> String {
        let mut notes = self.notes();
        let id = format!("note-{:03}", notes.len());
        notes.insert(id.clone(), (1..=3).map(|version| format!("# {id}\n\nVersion {version}.\n")).collect());
        id
    }

    fn rewrite(&self, id: &str, second: u32) {
        if let Some(newest) = self.notes().get_mut(id).and_then(|versions| versions.last_mut()) {
            *newest = format!("# {id}\n\nWritten in second {second}.\n");
        }
    }

    fn ids(&self) -> Vec<String> {
        self.notes().keys().cloned().collect()
    }

    fn text(&self, id: &str, version: Option<usize>) -> io::Result<Option<String>> {
        if (id, version) == ("note-249", Some(1)) {
            return Err(io::Error::other("cannot open /srv/archive/note-249.md"));
        }
        let notes = self.notes();
        let Some(versions) = notes.get(id) else { return Ok(None) };
        let version = version.unwrap_or(versions.len());
        Ok(version.checked_sub(1).and_then(|index| versions.get(index)).cloned())
    }

    fn notes(&self) -> MutexGuard<'_, BTreeMap<String, Vec<String>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn title(id: &str) -> String {
    id.replace("note-", "Note ")
}
