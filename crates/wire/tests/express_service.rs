//! What a service learns of requests on the express lane: the same as of requests through hyper.

mod support;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Instant;

use async_trait::async_trait;
use bytes::Bytes;
use libris_wire::http::{Config, Endpoint, serve};
use libris_wire::{
    Answer, CacheableRequest, Call, Caller, Capabilities, Client, CompletionParams, Failure, Identity,
    Listener, Notification, Refusal, Reply, Revision, ServerInfo, Service, ServiceView,
};
use serde_json::{Value, json};
use support::{Toy, initialize, modern, request};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_util::sync::CancellationToken;

/// A service that records its calls. It creates a new view for each request.
#[derive(Default)]
struct Recorder {
    me: Weak<Recorder>,
    views: AtomicUsize,
    /// How many requests went through hyper.
    admitted: AtomicUsize,
    /// How many lists of a session were recorded by its listener.
    listed: AtomicUsize,
    /// The clients for which a view was requested, and the clients of the reads.
    callers: Mutex<BTreeSet<Client>>,
    readers: Mutex<BTreeSet<Client>>,
    /// The time since which a cached response must be valid, when the cache was first asked.
    since: Mutex<Option<Instant>>,
}

impl Recorder {
    fn view(&self, caller: &Caller<'_>) -> Option<Arc<dyn ServiceView>> {
        self.callers.lock().unwrap().insert(caller.client);
        let number = self.views.fetch_add(1, Ordering::SeqCst);
        Some(Arc::new(Numbered { recorder: self.me.upgrade()?, number }))
    }
}

#[async_trait]
impl Service for Recorder {
    fn info(&self) -> ServerInfo {
        ServerInfo::default()
    }

    fn cached_view(&self, caller: &Caller<'_>) -> Option<Arc<dyn ServiceView>> {
        self.view(caller)
    }

    async fn admit(&self, caller: &Caller<'_>) -> Result<Arc<dyn ServiceView>, Refusal> {
        self.admitted.fetch_add(1, Ordering::SeqCst);
        let refusal = || Refusal::Forbidden { challenge: None, message: "the service has ended".into() };
        self.view(caller).ok_or_else(refusal)
    }
}

/// A view with a number of its own, which is the content of each resource. Lists are cached.
struct Numbered {
    recorder: Arc<Recorder>,
    number: usize,
}

fn reply(value: &Value) -> Reply {
    let text = Bytes::from(value.to_string());
    let members = text.slice(1..text.len() - 1).into();
    Reply { members, freshness: Some(Default::default()), meta: Bytes::new() }
}

#[async_trait]
impl ServiceView for Numbered {
    fn caller(&self) -> Option<&Identity> {
        None
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { live: true, ..Capabilities::default() }
    }

    fn cached(&self, _: Revision, question: CacheableRequest<'_>, since: Instant) -> Option<Answer> {
        self.recorder.since.lock().unwrap().get_or_insert(since);
        matches!(question, CacheableRequest::List(_)).then(|| Ok(reply(&json!({ "resources": [] }))))
    }

    async fn list(&self, _: &Call, _: Option<&str>) -> Answer {
        Err(Failure::invalid("the list is cached"))
    }

    async fn templates(&self, _: &Call, _: Option<&str>) -> Answer {
        Err(Failure::invalid("there are no templates"))
    }

    async fn read(&self, call: &Call, uri: &str) -> Answer {
        self.recorder.readers.lock().unwrap().insert(call.client);
        Ok(reply(&json!({ "contents": [{ "uri": uri, "text": self.number.to_string() }] })))
    }

    async fn complete(&self, _: &Call, _: &CompletionParams) -> Answer {
        Err(Failure::invalid("there are no templates"))
    }

    fn listener(&self, _: Client) -> Result<Arc<dyn Listener>, Failure> {
        Ok(Arc::new(Listed(self.recorder.clone())))
    }
}

/// A listener without news that records lists.
struct Listed(Arc<Recorder>);

#[async_trait]
impl Listener for Listed {
    async fn follow_list(&self) -> Result<(), Failure> {
        Ok(())
    }

    async fn follow_prompts(&self) -> Result<(), Failure> {
        Ok(())
    }

    async fn follow_tools(&self) -> Result<(), Failure> {
        Ok(())
    }

    fn listed(&self) {
        self.0.listed.fetch_add(1, Ordering::SeqCst);
    }

    async fn reserve(&self, _: &[&str]) -> Result<(), Failure> {
        Ok(())
    }

    async fn subscribe(&self, _: &str) -> Result<(), Failure> {
        Ok(())
    }

    fn unsubscribe(&self, _: &str) {}

    async fn next(&self) -> Notification {
        std::future::pending().await
    }

    fn renew(&self, _: Option<&Identity>) {}

    fn requeue(&self, _: Notification) {}
}

/// A server of this service.
async fn started(service: Arc<dyn Service>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, Endpoint::new(service, Config::default()), CancellationToken::new()));
    address
}

fn recorder() -> Arc<Recorder> {
    Arc::new_cyclic(|me| Recorder { me: me.clone(), ..Recorder::default() })
}

/// The address of the client in these tests.
const CLIENT: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

struct Connection(TcpStream);

impl Connection {
    async fn open(server: SocketAddr) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((CLIENT, 0).into()).unwrap();
        Self(socket.connect(server).await.unwrap())
    }

    /// Sends a message with these further header fields; the head of the response in lower case, and its body.
    async fn post(&mut self, fields: &[(&str, &str)], message: &Value) -> (String, Value) {
        let body = message.to_string();
        let mut head = format!(
            "POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n\
             accept: application/json, text/event-stream\r\ncontent-length: {}\r\n",
            body.len()
        );
        for (name, value) in fields {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        self.0.write_all(format!("{head}\r\n{body}").as_bytes()).await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(self.0.read_u8().await.unwrap());
        }
        let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
        assert!(head.starts_with("http/1.1 200"), "{head}");
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        let mut body = vec![0; length.parse().unwrap()];
        self.0.read_exact(&mut body).await.unwrap();
        (head, serde_json::from_slice(&body).unwrap())
    }

    /// Reads a resource without a session.
    async fn read(&mut self, uri: &str) -> Value {
        let fields =
            [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "resources/read"), ("mcp-name", uri)];
        self.post(&fields, &modern(1, "resources/read", json!({ "uri": uri }))).await.1
    }

    async fn session(&mut self) -> String {
        let (head, _) = self.post(&[], &initialize("2025-06-18")).await;
        head.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).unwrap().to_owned()
    }

    async fn ask(&mut self, session: &str, method: &str, params: Value) -> Value {
        self.post(&[("mcp-session-id", session)], &request(1, method, params)).await.1
    }
}

#[tokio::test]
async fn the_client_of_a_request_is_its_address() {
    let recorder = recorder();
    let mut connection = Connection::open(started(recorder.clone()).await).await;
    connection.read("toy:a").await;
    let client = BTreeSet::from([Client::at(IpAddr::V4(CLIENT))]);
    assert_eq!(*recorder.callers.lock().unwrap(), client);
    assert_eq!(*recorder.readers.lock().unwrap(), client);
    assert_eq!(recorder.admitted.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn the_view_that_opened_a_session_answers_its_requests() {
    let recorder = recorder();
    let mut connection = Connection::open(started(recorder.clone()).await).await;
    let session = connection.session().await;
    let admitted = recorder.admitted.load(Ordering::SeqCst);
    let first = connection.ask(&session, "resources/read", json!({ "uri": "toy:a" })).await;
    let second = connection.ask(&session, "resources/read", json!({ "uri": "toy:a" })).await;
    assert_eq!(first["result"]["contents"][0]["text"].as_str().map(str::len), Some(1), "{first}");
    assert_eq!(first, second);
    assert_eq!(recorder.admitted.load(Ordering::SeqCst), admitted);
}

#[tokio::test]
async fn a_cached_list_in_a_session_is_recorded() {
    let recorder = recorder();
    let mut connection = Connection::open(started(recorder.clone()).await).await;
    let session = connection.session().await;
    let admitted = recorder.admitted.load(Ordering::SeqCst);
    for count in 1..=2 {
        let listed = connection.ask(&session, "resources/list", json!({})).await;
        assert_eq!(listed["result"]["resources"], json!([]), "{listed}");
        assert_eq!(recorder.listed.load(Ordering::SeqCst), count);
    }
    assert_eq!(recorder.admitted.load(Ordering::SeqCst), admitted);
}

#[tokio::test]
async fn a_cached_response_is_valid_since_the_request_arrived() {
    let recorder = recorder();
    let mut connection = Connection::open(started(recorder.clone()).await).await;
    let before = Instant::now();
    connection.read("toy:a").await;
    assert!(recorder.since.lock().unwrap().unwrap() >= before);
    assert_eq!(recorder.admitted.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_large_cached_response_does_not_go_through_hyper() {
    let toy = Toy::new();
    let text = format!("\"contents\":[{{\"uri\":\"toy:kept/large\",\"text\":\"{}\"}}]", "x".repeat(100_000));
    *toy.large.lock().unwrap() = Some(text.into_bytes().into());
    let mut connection = Connection::open(started(toy.clone()).await).await;
    let answer = connection.read("toy:kept/large").await;
    assert_eq!(answer["result"]["contents"][0]["text"].as_str().map(str::len), Some(100_000));
    // Through hyper, the cache would be asked twice.
    assert_eq!(toy.kept.load(Ordering::SeqCst), 1);
}
