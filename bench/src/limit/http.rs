//! The limit over HTTP: bare hyper.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use anyhow::{Context as _, Result};
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

use super::{BEFORE, Ready};

/// Shorter responses are copied into one buffer; longer ones are sent without copying.
const SMALL: usize = 16 << 10;

/// Serves the files of a folder on a free port of this machine, until it is killed.
pub(crate) async fn run(folder: &Path) -> Result<()> {
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
                async move { answer(&ready, request).await }
            });
            // An error means that the client has disconnected.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(ready: &Ready, request: Request<Incoming>) -> hyper::Result<Response<Pieces>> {
    let request = request.into_body().collect().await?.to_bytes();
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

/// A body of one or two prepared buffers.
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
