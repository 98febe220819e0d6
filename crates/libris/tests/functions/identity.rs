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
    let app = Router::new().nest("/api", libris::serve(Private).router()).layer(from_fn(identify));
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
        ] {
            let answer = ask(address, name, uri).await;
            assert!(answer.contains(expected), "{name:?} {uri}: {answer}");
        }
    }
}
