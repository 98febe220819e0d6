//! An HTTP server that records the requests it receives.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

/// A received request.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) method: String,
    pub(crate) target: String,
    /// The headers in the order received, with names in lower case.
    pub(crate) headers: Vec<(String, String)>,
}

impl Received {
    fn parse(head: &str) -> Self {
        let mut lines = head.split("\r\n");
        let mut line = lines.next().unwrap().split(' ');
        let (method, target) = (line.next().unwrap().to_owned(), line.next().unwrap().to_owned());
        assert_eq!(line.collect::<Vec<_>>(), ["HTTP/1.1"]);
        let headers = lines.filter(|line| !line.is_empty()).map(|line| {
            let (name, value) = line.split_once(':').unwrap();
            (name.to_lowercase(), value.trim().to_owned())
        });
        Self { method, target, headers: headers.collect() }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// A response.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Body,
}

pub(crate) enum Body {
    Whole(Vec<u8>),
    /// A body of this many bytes, generated while it is sent.
    Endless(u64),
    /// No response: the connection stays open until the client closes it.
    Never,
}

impl Answer {
    pub(crate) fn new(status: u16, mime: &str, body: impl Into<Vec<u8>>) -> Self {
        let headers = vec![("content-type".to_owned(), mime.to_owned())];
        Self { status, headers, body: Body::Whole(body.into()) }
    }

    pub(crate) fn json(body: impl ToString) -> Self {
        Self::new(200, "application/json", body.to_string())
    }

    pub(crate) fn status(status: u16) -> Self {
        Self::new(status, "text/plain", "an internal detail")
    }

    pub(crate) fn with(mut self, name: &str, value: impl ToString) -> Self {
        self.headers.push((name.to_owned(), value.to_string()));
        self
    }

    pub(crate) fn body(self, body: Vec<u8>) -> Self {
        Self { body: Body::Whole(body), ..self }
    }

    /// With an ETag; 304 Not Modified if the client sends the same one.
    pub(crate) fn tagged(self, received: &Received) -> Self {
        let Body::Whole(body) = &self.body else { return self };
        let tag =
            format!("\"{:x}\"", body.iter().fold(0u64, |sum, byte| sum.wrapping_mul(31) + u64::from(*byte)));
        if received.header("if-none-match") == Some(&tag) {
            let not_modified = Self { status: 304, headers: self.headers, body: Body::Whole(Vec::new()) };
            return not_modified.with("etag", tag);
        }
        self.with("etag", tag)
    }
}

type Handler = dyn Fn(&Received) -> Answer + Send + Sync;

/// A server on a free loopback port.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
    task: AbortHandle,
}

impl Server {
    pub(crate) async fn start(handler: impl Fn(&Received) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let received = Arc::<Mutex<Vec<Received>>>::default();
        let (handler, log): (Arc<Handler>, _) = (Arc::new(handler), received.clone());
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, handler.clone(), log.clone()));
            }
        });
        Self { address, received, task: task.abort_handle() }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The requests received since the last call.
    pub(crate) fn received(&self) -> Vec<Received> {
        std::mem::take(&mut *self.received.lock().unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(mut stream: TcpStream, handler: Arc<Handler>, log: Arc<Mutex<Vec<Received>>>) -> Option<()> {
    let mut buffer = Vec::new();
    loop {
        let end = loop {
            if let Some(at) = buffer.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                break at;
            }
            if stream.read_buf(&mut buffer).await.ok()? == 0 {
                return None;
            }
        };
        let head = String::from_utf8(buffer.drain(..end + 4).collect()).unwrap();
        let received = Received::parse(head.strip_suffix("\r\n\r\n").unwrap());
        log.lock().unwrap().push(received.clone());
        let answer = handler(&received);
        let mut head = format!("HTTP/1.1 {} Whatever\r\n", answer.status);
        for (name, value) in &answer.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        match answer.body {
            Body::Never => return std::future::pending().await,
            Body::Whole(body) => {
                let with_body = received.method != "HEAD" && answer.status != 304;
                head.push_str(&format!("content-length: {}\r\n\r\n", body.len()));
                stream.write_all(head.as_bytes()).await.ok()?;
                if with_body {
                    stream.write_all(&body).await.ok()?;
                }
            }
            Body::Endless(size) => {
                head.push_str(&match size {
                    u64::MAX => "transfer-encoding: chunked\r\n\r\n".to_owned(),
                    size => format!("content-length: {size}\r\n\r\n"),
                });
                stream.write_all(head.as_bytes()).await.ok()?;
                let piece = vec![b' '; 1 << 16];
                loop {
                    if size == u64::MAX {
                        stream.write_all(b"10000\r\n").await.ok()?;
                    }
                    stream.write_all(&piece).await.ok()?;
                    if size == u64::MAX {
                        stream.write_all(b"\r\n").await.ok()?;
                    }
                }
            }
        }
    }
}
