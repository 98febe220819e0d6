//! Who asks, as an application around the server says.

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use libris::{Identity, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

struct Private;

#[libris::resources]
impl Private {
    #[resource("private://diary")]
    fn diary(&self, who: Identity) -> Result<String> {
        Ok(format!("the diary of {}", who.name()))
    }

    #[resource("private://door")]
    async fn door(&self, who: Option<Identity>) -> String {
        match who {
            Some(who) if who.claims().contains_key("admin") => "come in".into(),
            Some(who) => format!("good day, {}", who.name()),
            None => "who is there?".into(),
        }
    }
}

/// A file that only Ada may read. The source it comes from proves that the file is as it was.
struct Guarded(libris::Libris);

#[libris::resources]
impl Guarded {
    #[resource("guarded://file")]
    async fn file(
        &self,
        who: &Identity,
        context: &libris::Context,
        uri: &libris::Uri,
    ) -> Result<libris::Contents> {
        use libris::Source as _;
        match who.name() {
            "Ada" => {
                let contents = self.0.read(uri, context).await?;
                Ok(libris::Contents { proof: Some(libris::Proof::always()), ..contents })
            }
            _ => Err(libris::Error::Denied(uri.clone())),
        }
    }

    #[resource("guarded://greeting")]
    fn greeting(&self, who: Option<&Identity>, uri: &libris::Uri) -> libris::Contents {
        let name = who.map_or("stranger", |who| who.name());
        let content = libris::Content::text(uri.clone(), "text/plain", format!("hello {name}"));
        libris::Contents { proof: Some(libris::Proof::always()), ..content.into() }
    }
}

/// Believes what a header says, as only a test may.
async fn identify(mut request: Request, next: Next) -> Response {
    if let Some(name) = request.headers().get("x-name").and_then(|name| name.to_str().ok()) {
        let mut identity = Identity::new(name);
        if name == "root" {
            identity = identity.with_claims([("admin".to_owned(), true.into())].into_iter().collect());
        }
        request.extensions_mut().insert(identity);
    }
    next.run(request).await
}

async fn ask(address: std::net::SocketAddr, name: Option<&str>, uri: &str) -> String {
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{{"uri":"{uri}","_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{{"name":"t","version":"1"}},"io.modelcontextprotocol/clientCapabilities":{{}}}}}}}}"#
    );
    let name = name.map(|name| format!("X-Name: {name}\r\n")).unwrap_or_default();
    let head = format!(
        "POST /api/mcp HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n\
         Mcp-Method: resources/read\r\nMcp-Name: {uri}\r\n{name}Content-Length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(body.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn functions_see_who_asks_through_a_router() {
    let guarded = Guarded(libris::Libris::new().resource("guarded://file", || "top secret"));
    let serve = libris::serve(Private).and(guarded);
    let app = Router::new().nest("/api", serve.router()).layer(from_fn(identify));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    // Each twice: nothing is kept for somebody else.
    for _ in 0..2 {
        for (name, uri, expected) in [
            (Some("Ada"), "private://diary", "the diary of Ada"),
            (Some("Grace"), "private://diary", "the diary of Grace"),
            (None, "private://diary", "-32602"),
            (Some("Ada"), "private://door", "good day, Ada"),
            (Some("root"), "private://door", "come in"),
            (None, "private://door", "who is there?"),
            (Some("Bob"), "guarded://file", "-32602"),
            (Some("Ada"), "guarded://file", "top secret"),
            (Some("Bob"), "guarded://file", "-32602"),
            (None, "guarded://file", "-32602"),
            (None, "guarded://greeting", "hello stranger"),
            (Some("Ada"), "guarded://greeting", "hello Ada"),
            (None, "guarded://greeting", "hello stranger"),
        ] {
            let answer = ask(address, name, uri).await;
            assert!(answer.contains(expected), "{name:?} {uri}: {answer}");
        }
    }
}
