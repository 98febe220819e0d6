//! A whole MCP server: documents in a database as resources.

use std::sync::{Mutex, PoisonError};

use libris::{Json, Result};
use rusqlite::{Connection, OptionalExtension};

/// Documents in a database, each in one or more versions.
struct Docs {
    store: Store,
}

#[libris::resources]
impl Docs {
    /// All documents.
    #[resource("docs://documents", mime = "application/json")]
    async fn documents(&self) -> rusqlite::Result<Json<Vec<DocumentId>>> {
        self.store.ids("").map(Json)
    }

    /// One document.
    #[resource(
        "docs://documents/{doc_id}{?version}",
        title = "Document",
        mime = "text/markdown",
        audience = ["user", "assistant"],
        priority = 0.8
    )]
    async fn document(&self, doc_id: DocumentId, version: Option<u32>) -> rusqlite::Result<Option<String>> {
        self.store.text(&doc_id, version)
    }

    #[complete("docs://documents/{doc_id}{?version}", doc_id)]
    async fn doc_ids(&self, typed: &str) -> rusqlite::Result<Vec<DocumentId>> {
        self.store.ids(typed)
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let file = std::env::args().nth(1).unwrap_or("docs.db".into());
    libris::serve(Docs::open(&file)?).await // over stdio; or .http("127.0.0.1:0"), or .router() for axum
}

type DocumentId = String;

struct Store(Mutex<Connection>);

impl Store {
    fn ids(&self, typed: &str) -> rusqlite::Result<Vec<DocumentId>> {
        let store = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let sql =
            "SELECT DISTINCT id FROM documents WHERE substr(id, 1, length(?1)) = ?1 ORDER BY id LIMIT 1000";
        store.prepare_cached(sql)?.query_map([typed], |row| row.get(0))?.collect()
    }

    fn text(&self, id: &str, version: Option<u32>) -> rusqlite::Result<Option<String>> {
        let store = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let sql = "SELECT text FROM documents WHERE id = ?1 AND version = ifnull(?2, version) ORDER BY version DESC";
        store.prepare_cached(sql)?.query_row((id, version), |row| row.get(0)).optional()
    }
}

impl Docs {
    fn open(file: &str) -> Result<Self> {
        let open = || {
            let store = Connection::open(file)?;
            store.execute_batch(
                "CREATE TABLE IF NOT EXISTS documents (id TEXT, version INT, text TEXT, PRIMARY KEY (id, version));
                 INSERT OR IGNORE INTO documents VALUES ('handbook', 1, '# Handbook'), ('handbook', 2, '# The handbook');
                 INSERT OR IGNORE INTO documents VALUES ('on-call', 1, '# On call');",
            )?;
            Ok(store)
        };
        let failed = |cause: rusqlite::Error| libris::Error::failed("open the documents", cause);
        Ok(Self { store: Store(Mutex::new(open().map_err(failed)?)) })
    }
}
