//! Tests of the memory that idle connections and unfinished requests hold, and of when hyper exists.

mod steps;

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{Either, select};
use http::{Request, Response, Version};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::{Lane, MAX_SLACK};
use crate::empty::Empty;
use crate::http::body::Body;
use crate::http::express::through_hyper;
use crate::http::gathered_body::GatheredBody;
use crate::http::sessions::Peer;
use crate::http::{Config, Endpoint};

const BODY: &str = r#"{"jsonrpc":"2.0","id":1,"method":"resources/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;

/// A request that the express lane answers.
fn usual() -> String {
    format!(
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\nmcp-protocol-version: 2026-07-28\r\n\
         mcp-method: resources/list\r\ncontent-length: {}\r\n\r\n{BODY}",
        BODY.len()
    )
}

/// A connection of this endpoint, and the client's end of it.
async fn connect(endpoint: &Arc<Endpoint>) -> (Lane, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let stream = listener.accept().await.unwrap().0;
    (Lane::new(stream, endpoint.clone(), Peer::default(), Arc::default()), client)
}

/// Serves the connection until the client has received something.
async fn answered(lane: &mut Lane, client: &mut TcpStream) -> String {
    let mut buffer = vec![0; 8 << 10];
    let serving = poll_fn(|context| lane.poll_input_for_hyper(context, None));
    let read = match select(pin!(serving), pin!(client.read(&mut buffer))).await {
        Either::Left(_) => panic!("the connection ended, or asks for hyper"),
        Either::Right((read, _)) => read.unwrap(),
    };
    String::from_utf8_lossy(&buffer[..read]).into_owned()
}

#[tokio::test]
async fn an_idle_connection_has_no_buffer() {
    let endpoint = Endpoint::new(Arc::new(Empty), Config::default());
    let (mut lane, mut client) = connect(&endpoint).await;
    for _ in 0..3 {
        client.write_all(usual().as_bytes()).await.unwrap();
        assert!(answered(&mut lane, &mut client).await.starts_with("HTTP/1.1 200"));
        assert!(poll_fn(|context| lane.poll_input_for_hyper(context, None)).now_or_never().is_none());
        assert_eq!(lane.input.capacity(), 0);
    }
}

#[tokio::test]
async fn an_unfinished_request_takes_no_more_than_its_bytes() {
    let endpoint = Endpoint::new(Arc::new(Empty), Config::default());
    let (mut lane, mut client) = connect(&endpoint).await;
    let usual = usual();
    let (first, rest) = usual.split_at(100);
    client.write_all(first.as_bytes()).await.unwrap();
    while endpoint.input_budget.used() == 0 {
        assert!(poll_fn(|context| lane.poll_input_for_hyper(context, None)).now_or_never().is_none());
        tokio::task::yield_now().await;
    }
    assert_eq!((lane.input.len(), endpoint.input_budget.used()), (100, 100));
    assert!(lane.input.capacity() <= 100 + MAX_SLACK);
    assert!(lane.liveness.is_unused(), "an unfinished request does not count");
    client.write_all(rest.as_bytes()).await.unwrap();
    assert!(answered(&mut lane, &mut client).await.starts_with("HTTP/1.1 200"));
    assert_eq!(endpoint.input_budget.used(), 0);
    assert!(!lane.liveness.is_unused());
}

#[tokio::test]
async fn hyper_is_not_created_for_a_connection_that_ends_without_a_request() {
    let endpoint = Endpoint::new(Arc::new(Empty), Config::default());
    let (lane, client) = connect(&endpoint).await;
    drop(client);
    assert!(lane.without_hyper().await.unwrap().is_none());
    // Hyper decides how to refuse a truncated request.
    let (lane, mut client) = connect(&endpoint).await;
    client.write_all(&usual().as_bytes()[..100]).await.unwrap();
    client.shutdown().await.unwrap();
    let lane = lane.without_hyper().await.unwrap().expect("bytes for hyper");
    assert_eq!(lane.bytes_for_hyper(), 100);
}

#[tokio::test]
async fn with_many_connections_hyper_exists_for_one_request_only() {
    let endpoint = Endpoint::new(Arc::new(Empty), Config { connections: 8, ..Config::default() });
    let address = [127, 0, 0, 1].into();
    let crowd: Vec<_> = (0..5).map(|_| endpoint.connections.accept(address)).collect();
    let (mut lane, mut client) = connect(&endpoint).await;
    for _ in 0..2 {
        client.write_all(b"PUT /mcp HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        lane = lane.without_hyper().await.unwrap().unwrap();
        let liveness = lane.liveness.clone();
        let asked = liveness.clone();
        let service = service_fn(move |_: Request<Incoming>| {
            asked.begin_request();
            let body = GatheredBody::new(Body::empty().watched(asked.clone()), Version::HTTP_11);
            std::future::ready(Ok::<_, Infallible>(Response::new(body)))
        });
        let hyper = Box::new(http1::Builder::new().serve_connection(lane, service));
        let detached = timeout(Duration::from_secs(40), through_hyper(hyper, &liveness)).await;
        lane = detached.expect("hyper should end").unwrap();
        // The first call resets the flag.
        assert!(lane.take_detached_flag() && !lane.take_detached_flag());
        let mut answer = [0; 12];
        client.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200");
        let mut rest = vec![0; 200];
        assert!(client.read(&mut rest).await.unwrap() > 0);
    }
    // The express lane answers common requests again, without hyper.
    client.write_all(usual().as_bytes()).await.unwrap();
    assert!(answered(&mut lane, &mut client).await.starts_with("HTTP/1.1 200"));
    drop(crowd);
}
