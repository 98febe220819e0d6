//! Hints in "not found" errors, which may name hidden resources: only callers with all rights get them.

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use axum::http::Method;
use libris::uri_template::Specificity;
use libris::wire::Caller;
use libris::wire::http::{self, Endpoint};
use libris::{
    Authenticate, Catalog, Config, Contents, Context, Error, FunctionSource, Identified, Identity, Operation,
    Page, Policy, Result, Rights, Rules, Server, Source, Template, Templates, Uri, UriTemplate,
};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::people::Who;
use crate::shelf::uri;
use crate::worlds::{Connection, Sent, Transport};

/// The hint of every read and of every directory.
const HINT: &str = "there is no shelf `secre`; did you mean `secret`?";

/// A source of books, none of which exists.
struct Books;

fn template() -> UriTemplate {
    UriTemplate::parse("books://library/{+path}").unwrap()
}

#[async_trait]
impl Source for Books {
    fn covers(&self, uri: &Uri) -> Option<Specificity> {
        template().matches(uri).map(|_| template().specificity())
    }

    async fn list(&self, _: Option<&Uri>, _: usize, _: &Context) -> Result<Page> {
        Ok(Page::default())
    }

    async fn read(&self, uri: &Uri, _: &Context) -> Result<Contents> {
        Err(Error::missing(uri, HINT))
    }

    async fn templates(&self, _: &Context) -> Result<Templates> {
        Ok(vec![Template::new(template(), "book")].into())
    }

    async fn children(&self, uri: &Uri, _: Option<&Uri>, _: usize, _: &Context) -> Result<Page> {
        Err(Error::missing(uri, HINT))
    }
}

/// Hides one resource.
struct AllButSecret;

impl Rules for AllButSecret {
    fn allow(&self, _: Operation, uri: &Uri) -> bool {
        uri.as_str() != "books://library/secret"
    }
}

/// A has restricted rights, and B all rights.
pub(crate) struct Readers;

impl Authenticate for Readers {
    fn identify(&self, caller: &Caller<'_>) -> Identified {
        let name = caller.authorization.and_then(|text| text.strip_prefix(b"as "));
        Identified::Caller(name.map(|name| Identity::new(String::from_utf8_lossy(name))))
    }
}

impl Policy for Readers {
    fn authentication(&self) -> &dyn Authenticate {
        self
    }

    fn rights(&self, identity: Option<&Identity>) -> Rights {
        match identity.map(Identity::name) {
            Some("B") => Rights::everything(),
            _ => Rights::new(AllButSecret),
        }
    }
}

fn server() -> Arc<Server> {
    let settings = FunctionSource::new().resource("config://app/settings", || "dark");
    let catalog = Arc::new(Catalog::new(vec![Arc::new(Books), Arc::new(settings)]));
    Arc::new(Server::with_policy(catalog, Config::default(), Arc::new(Readers)))
}

pub(crate) async fn listen(server: Arc<Server>) -> (SocketAddr, DropGuard) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    tokio::spawn(http::serve(listener, Endpoint::new(server, http::Config::default()), stop.clone()));
    (address, stop.drop_guard())
}

const JSON: (&str, &str) = ("content-type", "application/json");
const ACCEPT: (&str, &str) = ("accept", "application/json, text/event-stream");

/// A client of one era.
pub(crate) struct Reader {
    connection: Connection,
    who: Who,
    /// The session, of a revision with sessions.
    session: Option<String>,
}

impl Reader {
    pub(crate) async fn legacy(address: SocketAddr, who: Who) -> Self {
        let mut connection = Connection::http(Transport::Http1, address).await;
        let client = json!({ "name": "test", "version": "1" });
        let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
        let message = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
        let sent = Sent { method: Method::POST, who, headers: &[JSON, ACCEPT], body: message.to_string() };
        let session = connection.ask(sent).await.session;
        assert!(session.is_some());
        Self { connection, who, session }
    }

    pub(crate) async fn modern(address: SocketAddr, who: Who) -> Self {
        Self { connection: Connection::http(Transport::Http1, address).await, who, session: None }
    }

    /// The error of a request.
    async fn refused(&mut self, method: &str, uri: &str) -> Value {
        self.ask(method, uri, json!({ "uri": uri })).await["error"].take()
    }

    /// The response to a request; `name` is what the parameters name.
    pub(crate) async fn ask(&mut self, method: &str, name: &str, mut params: Value) -> Value {
        let mut headers = vec![JSON, ACCEPT];
        match &self.session {
            Some(session) => {
                headers.extend([("mcp-session-id", &**session), ("mcp-protocol-version", "2025-11-25")]);
            }
            None => {
                params["_meta"] = json!({
                    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                    "io.modelcontextprotocol/clientCapabilities": {},
                });
                headers.extend([
                    ("mcp-protocol-version", "2026-07-28"),
                    ("mcp-method", method),
                    ("mcp-name", name),
                ]);
            }
        }
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let sent = Sent { method: Method::POST, who: self.who, headers: &headers, body: message.to_string() };
        serde_json::from_str(&self.connection.ask(sent).await.body).unwrap()
    }
}

/// The requests that fail, and the messages for callers with all rights.
const UNKNOWN: [(&str, &str); 4] = [
    ("books://library/secre", "resource not found: there is no shelf `secre`; did you mean `secret`?"),
    (
        "boks://library/secret",
        "resource not found: no source serves `boks://library/`; served are `books://library/`, `config://app/`; did \
         you mean `books://library/`?",
    ),
    ("config://app/setings", "resource not found: did you mean `config://app/settings`?"),
    (
        "notes://1",
        "resource not found: no source serves `notes://1`; served are `books://library/`, `config://app/`",
    ),
];

#[tokio::test]
async fn callers_with_all_rights_get_hints_and_others_do_not() {
    let (address, _serving) = listen(server()).await;
    for (who, has_hints) in [(Who::A, false), (Who::B, true), (Who::Anonymous, false)] {
        for (mut reader, code) in
            [(Reader::legacy(address, who).await, -32002), (Reader::modern(address, who).await, -32602)]
        {
            for (uri, hinted) in UNKNOWN {
                let message = if has_hints { hinted } else { "resource not found" };
                let expected = json!({ "code": code, "message": message, "data": { "uri": uri } });
                assert_eq!(reader.refused("resources/read", uri).await, expected, "{who:?}");
            }
        }
    }
}

/// For callers with restricted rights, what is hidden, what is missing and what no source serves looks the same.
#[tokio::test]
async fn a_hidden_resource_is_like_a_missing_one() {
    let (address, _serving) = listen(server()).await;
    let mut reader = Reader::modern(address, Who::A).await;
    for uri in ["books://library/secret", "books://library/other", "boks://library/secret"] {
        let expected = json!({ "code": -32602, "message": "resource not found", "data": { "uri": uri } });
        assert_eq!(reader.refused("resources/read", uri).await, expected);
    }
}

#[tokio::test]
async fn refused_subscriptions_have_no_hint() {
    let (address, _serving) = listen(server()).await;
    for who in [Who::A, Who::B] {
        let mut reader = Reader::legacy(address, who).await;
        let refused = reader.refused("resources/subscribe", "boks://library/secret").await;
        let data = json!({ "uri": "boks://library/secret" });
        assert_eq!(
            refused,
            json!({ "code": -32002, "message": "resource not found", "data": data }),
            "{who:?}"
        );
    }
}

#[tokio::test]
async fn directories_have_hints_for_callers_with_all_rights() {
    let server = server();
    let context = Context::default();
    for (name, directory, hint) in [
        ("A", "books://library/secre/", None),
        ("B", "books://library/secre/", Some(HINT)),
        ("A", "books:", None),
        ("B", "books:", Some("no source serves `books:`; served are `books://library/`, `config://app/`")),
    ] {
        let view = server.view_for(Some(Identity::new(name)));
        let error = view.snapshot().children(&uri(directory), None, 9, &context).await.unwrap_err();
        match (error, hint) {
            (Error::Missing { hint, .. }, Some(expected)) => assert!(hint.starts_with(expected), "{hint}"),
            (Error::NotFound(_), None) => {}
            (error, _) => panic!("{name} of {directory}: {error:?}"),
        }
    }
}

/// A source without hints, which covers the same URIs.
struct EmptyShelves;

#[async_trait]
impl Source for EmptyShelves {
    fn covers(&self, uri: &Uri) -> Option<Specificity> {
        (uri.scheme() == "books").then_some(Specificity::EXACT)
    }

    async fn list(&self, _: Option<&Uri>, _: usize, _: &Context) -> Result<Page> {
        Ok(Page::default())
    }

    async fn read(&self, uri: &Uri, _: &Context) -> Result<Contents> {
        Err(Error::NotFound(uri.clone()))
    }
}

#[tokio::test]
async fn the_hint_of_a_less_specific_source_is_better_than_none() {
    for sources in [
        [Arc::new(EmptyShelves) as Arc<dyn Source>, Arc::new(Books)],
        [Arc::new(Books) as Arc<dyn Source>, Arc::new(EmptyShelves)],
    ] {
        let catalog = Catalog::new(sources.into());
        let error = catalog.read(&uri("books://library/secre"), &Context::default()).await.unwrap_err();
        assert_eq!(error.to_string(), format!("no resource at `books://library/secre`: {HINT}"));
    }
}
