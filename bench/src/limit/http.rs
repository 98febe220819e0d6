//! The limit over HTTP: bare hyper. Optionally, it reads the file at each request and encodes it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use anyhow::{Context as _, Result};
use base64_turbo::STANDARD;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use super::{AFTER, BEFORE, Ready, ServedFile};

/// Shorter responses are copied into one buffer; longer ones are sent without copying.
const SMALL: usize = 16 << 10;

/// The size of the buffers for encoded contents.
const PIECE: usize = 64 << 10;

/// The number of bytes whose Base64 form fills such a buffer.
const BLOB_PIECE: usize = PIECE / 4 * 3;

/// Unused buffers for encoded contents.
static FREE: Mutex<Vec<Box<[u8]>>> = Mutex::new(Vec::new());

thread_local! {
    /// The buffer for the bytes of a file.
    static READ: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Serves the files of a folder on a free port of this machine, until it is killed. With `fresh`, reads a file at each
/// request, as a server must whose files change.
pub(crate) async fn run(folder: &Path, fresh: bool) -> Result<()> {
    let ready = Arc::new(Ready::new(folder)?);
    let listener = TcpListener::bind("127.0.0.1:0").await.context("could not listen")?;
    eprintln!("listening on http://{}/mcp", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let ready = ready.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let ready = ready.clone();
                async move { answer(&ready, request, fresh).await }
            });
            // An error means that the client has disconnected.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(ready: &Ready, request: Request<Incoming>, fresh: bool) -> Result<Response<Pieces>> {
    let request = request.into_body().collect().await?.to_bytes();
    if fresh && let Some((id, file)) = ready.file(&request) {
        let mut response = Response::new(read(&request[id], file)?);
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        return Ok(response);
    }
    let Some((id, rest)) = ready.answer(&request) else {
        let mut refused = Response::new(Pieces::default());
        *refused.status_mut() = hyper::StatusCode::NOT_FOUND;
        return Ok(refused);
    };
    let small = if rest.len() < SMALL { rest.len() } else { 0 };
    let mut head = Vec::with_capacity(BEFORE.len() + id.len() + small);
    head.extend_from_slice(BEFORE);
    head.extend_from_slice(&request[id]);
    let pieces = if small > 0 {
        head.extend_from_slice(rest);
        Pieces([head.into()].into())
    } else {
        Pieces([head.into(), rest.clone()].into())
    };
    let mut response = Response::new(pieces);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// The response with the current contents of a file.
fn read(id: &[u8], file: &ServedFile) -> Result<Pieces> {
    READ.with_borrow_mut(|bytes| {
        bytes.clear();
        File::open(&file.path)?.read_to_end(bytes)?;
        let mut pieces = VecDeque::from([[BEFORE, id, &file.before].concat().into()]);
        if file.is_text {
            let text = str::from_utf8(bytes)?;
            let mut from = 0;
            while from < text.len() {
                pieces.push_back(encoded(|buffer| {
                    let written;
                    (from, written) = libris_escape::escape(text, from, buffer);
                    written
                }));
            }
        } else {
            for piece in bytes.chunks(BLOB_PIECE) {
                pieces.push_back(encoded(|buffer| STANDARD.encode_slice(piece, buffer).unwrap_or_default()));
            }
        }
        pieces.push_back(Bytes::from_static(AFTER));
        Ok(Pieces(pieces))
    })
}

/// The bytes that `encode` writes to the start of a reused buffer.
fn encoded(encode: impl FnOnce(&mut [u8]) -> usize) -> Bytes {
    let free = FREE.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let mut bytes = free.unwrap_or_else(|| vec![0; PIECE].into());
    let length = encode(&mut bytes);
    Bytes::from_owner(Encoded { bytes, length })
}

/// A buffer that is reused when it is dropped.
struct Encoded {
    bytes: Box<[u8]>,
    length: usize,
}

impl AsRef<[u8]> for Encoded {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl Drop for Encoded {
    fn drop(&mut self) {
        FREE.lock().unwrap_or_else(PoisonError::into_inner).push(std::mem::take(&mut self.bytes));
    }
}

/// A body of prepared or pooled buffers.
#[derive(Default)]
struct Pieces(VecDeque<Bytes>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.iter().map(|piece| piece.len() as u64).sum())
    }
}
