//! Lower bounds for sources: servers that consist only of hyper and the library that reads the data, without a cache.
//!
//! They give the same response to every request and validate nothing.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rusqlite::{Connection, OpenFlags};
use serde_json::json;
use tokio::net::TcpListener;

/// The row and the blob that are read.
const ROW: i64 = 7;
const BLOB: &str = "0500.txt";

/// Serves one row of a database on a free port of this machine, until it is killed.
pub(crate) async fn sqlite(path: &Path) -> Result<()> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Mutex::new(Connection::open_with_flags(path, flags)?);
    serve(move || {
        let connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
        let mut statement = connection.prepare_cached("SELECT id, name FROM items WHERE id = ?1")?;
        let row = statement.query_row([ROW], |row| {
            Ok(json!({ "id": row.get::<_, i64>(0)?, "name": row.get::<_, String>(1)? }))
        })?;
        Ok(row.to_string())
    })
    .await
}

/// Serves one blob of a repository on a free port of this machine, until it is killed.
pub(crate) async fn git(path: &Path) -> Result<()> {
    let repository = gix::open(path)?.into_sync();
    serve(move || {
        let repository = repository.to_thread_local();
        let tree = repository.head_commit()?.tree()?;
        let entry = tree.lookup_entry_by_path(BLOB)?.context("the blob is missing")?;
        Ok(String::from_utf8(entry.object()?.detach().data)?)
    })
    .await
}

/// Answers each request with what `read` returns.
async fn serve(read: impl Fn() -> Result<String> + Send + Sync + 'static) -> Result<()> {
    ensure!(!read()?.is_empty(), "nothing was read");
    let read = Arc::new(read);
    let listener = TcpListener::bind("127.0.0.1:0").await.context("could not listen")?;
    eprintln!("listening on http://{}/mcp", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let read = read.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request: Request<Incoming>| {
                let read = read.clone();
                async move { answer(&*read, request).await }
            });
            // An error means that the client has disconnected.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(
    read: &impl Fn() -> Result<String>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>> {
    request.into_body().collect().await?;
    let result = json!({ "contents": [{ "uri": "x:y", "mimeType": "application/json", "text": read()? }] });
    let answer = json!({ "jsonrpc": "2.0", "id": 1, "result": result }).to_string();
    let mut response = Response::new(Full::from(answer));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}
