//! Lower bounds for sources: servers that consist only of hyper and the library that reads the data, without a cache.
//!
//! They give the same response to every request and validate nothing.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rusqlite::{Connection, OpenFlags};
use serde_json::json;
use tokio::net::TcpListener;
use tokio_postgres::NoTls;

/// The row and the blob that are read.
const ROW: i64 = 7;
const BLOB: &str = "0500.txt";

/// Serves one row of a SQLite database on a free port of this machine, until it is killed.
pub(crate) async fn sqlite(path: &Path) -> Result<()> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Mutex::new(Connection::open_with_flags(path, flags)?);
    answer_with_result(blocking(move || {
        let connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
        let mut statement = connection.prepare_cached("SELECT id, name FROM items WHERE id = ?1")?;
        let row = statement.query_row([ROW], |row| {
            Ok(json!({ "id": row.get::<_, i64>(0)?, "name": row.get::<_, String>(1)? }))
        })?;
        Ok(row.to_string())
    }))
    .await
}

/// Serves one row of a PostgreSQL database on a free port of this machine, until it is killed.
pub(crate) async fn postgres(url: &str) -> Result<()> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    let statement = client.prepare("SELECT id, name FROM items WHERE id = $1").await?;
    let (client, statement) = (Arc::new(client), Arc::new(statement));
    answer_with_result(move || {
        let (client, statement) = (client.clone(), statement.clone());
        Box::pin(async move {
            let row = client.query_one(&*statement, &[&ROW]).await?;
            Ok(json!({ "id": row.get::<_, i64>(0), "name": row.get::<_, String>(1) }).to_string())
        })
    })
    .await
}

/// Serves one blob of a repository on a free port of this machine, until it is killed.
pub(crate) async fn git(path: &Path) -> Result<()> {
    let repository = gix::open(path)?.into_sync();
    answer_with_result(blocking(move || {
        let repository = repository.to_thread_local();
        let tree = repository.head_commit()?.tree()?;
        let entry = tree.lookup_entry_by_path(BLOB)?.context("the blob is missing")?;
        Ok(String::from_utf8(entry.object()?.detach().data)?)
    }))
    .await
}

/// Serves one blob of a repository, which `git cat-file --batch` reads, on a free port of this machine, until it is
/// killed. The program of git ends with this one, because its input ends.
pub(crate) async fn cat_file(path: &Path) -> Result<()> {
    let mut command = Command::new("git");
    command.arg("-C").arg(path).args(["cat-file", "--batch"]);
    let program = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut program = program.context("could not run `git`")?;
    let input = program.stdin.take().context("no standard input")?;
    let output = BufReader::new(program.stdout.take().context("no standard output")?);
    let pipes = Mutex::new((input, output));
    let served = answer_with_result(blocking(move || {
        let (input, output) = &mut *pipes.lock().unwrap_or_else(PoisonError::into_inner);
        input.write_all(format!("HEAD:{BLOB}\n").as_bytes())?;
        let mut head = String::new();
        output.read_line(&mut head)?;
        let size = head.trim_end().rsplit_once(' ').and_then(|(_, size)| size.parse::<usize>().ok());
        // A line end follows the blob.
        let mut blob = vec![0; size.with_context(|| format!("git printed `{}`", head.trim_end()))? + 1];
        output.read_exact(&mut blob)?;
        blob.pop();
        Ok(String::from_utf8(blob)?)
    }))
    .await;
    program.wait()?;
    served
}

/// Serves what another HTTP server returns, on a free port of this machine, until it is killed.
pub(crate) async fn proxy(upstream: &str) -> Result<()> {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build(connector);
    let upstream: Uri = upstream.parse()?;
    answer_with_result(move || {
        let asking = client.get(upstream.clone());
        Box::pin(async move {
            let body = asking.await?.into_body().collect().await?.to_bytes();
            Ok(String::from_utf8(body.into())?)
        })
    })
    .await
}

/// An HTTP API whose responses must not be cached, on a free port of this machine, until it is killed.
pub(crate) async fn uncached_api() -> Result<()> {
    let item = json!({ "id": ROW, "name": "item 7" }).to_string();
    serve(move || {
        let item = item.clone();
        Box::pin(async move { Ok(item) })
    })
    .await
}

/// A function whose result is ready when it returns.
fn blocking(
    read: impl Fn() -> Result<String> + Send + Sync + 'static,
) -> impl Fn() -> BoxFuture<'static, Result<String>> + Send + Sync + 'static {
    move || Box::pin(std::future::ready(read()))
}

/// Answers each request with the contents that `read` returns, as the result of `resources/read`.
async fn answer_with_result(
    read: impl Fn() -> BoxFuture<'static, Result<String>> + Send + Sync + 'static,
) -> Result<()> {
    serve(move || {
        let reading = read();
        Box::pin(async move {
            let text = reading.await?;
            let content = json!({ "uri": "x:y", "mimeType": "application/json", "text": text });
            Ok(json!({ "jsonrpc": "2.0", "id": 1, "result": { "contents": [content] } }).to_string())
        })
    })
    .await
}

/// Answers each request with the body that `read` returns.
async fn serve(read: impl Fn() -> BoxFuture<'static, Result<String>> + Send + Sync + 'static) -> Result<()> {
    ensure!(!read().await?.is_empty(), "nothing was read");
    let read = Arc::new(read);
    let listener = TcpListener::bind("127.0.0.1:0").await.context("could not listen")?;
    eprintln!("listening on http://{}/mcp", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let read = read.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request: Request<Incoming>| {
                let reading = read();
                async move {
                    request.into_body().collect().await?;
                    let mut response = Response::new(Full::<Bytes>::from(reading.await?));
                    let headers = response.headers_mut();
                    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
                    anyhow::Ok(response)
                }
            });
            // An error means that the client has disconnected.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}
