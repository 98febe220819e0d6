//! A minimal HTTP/2 client for attacks.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use h2::SendStream;
use h2::client::{Builder, ResponseFuture, SendRequest};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// A connection that is open until this is dropped.
pub(super) struct Connection {
    requests: SendRequest<Bytes>,
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Connection {
    /// Opens a connection. `window` is the flow-control window: how many bytes of each response the server may send
    /// unread.
    pub(super) async fn open(address: SocketAddr, window: u32) -> Result<Self> {
        let stream = TcpStream::connect(address).await.context("could not connect")?;
        stream.set_nodelay(true)?;
        let handshake = Builder::new().initial_window_size(window).handshake(stream).await;
        let (requests, connection) = handshake.context("the server does not speak HTTP/2")?;
        let task = tokio::spawn(async move {
            // Errors are reported on the streams.
            let _ = connection.await;
        });
        Ok(Self { requests, address, task })
    }

    /// Sends the head of a POST request; the caller sends the body.
    pub(super) async fn post(&mut self, message: &Value) -> Result<(ResponseFuture, SendStream<Bytes>)> {
        let mut request = http::Request::post(format!("http://{}/mcp", self.address))
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", message["method"].as_str().unwrap_or_default());
        if let Some(uri) = message["params"]["uri"].as_str() {
            request = request.header("mcp-name", uri);
        }
        let mut ready = self.requests.clone().ready().await.context("the connection was closed")?;
        ready.send_request(request.body(())?, false).context("the server takes no further request")
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}
