//! The caller's identity, set by the embedding application.

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use libris::uri_template::Specificity;
use libris::{Identity, Result, Uri};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

struct Private;

#[libris::resources]
impl Private {
    #[resource("private://diary")]
    fn diary(&self, who: Identity) -> Result<String> {
        Ok(format!("the diary of {}", who.name()))
    }

    #[resource("private://notes/{id}")]
    fn note(&self, id: &str) -> String {
        id.to_owned()
    }

    #[list("private://notes/{id}")]
    fn notes(&self, who: Option<&Identity>) -> Vec<String> {
        who.map(|who| format!("note-of-{}", who.name())).into_iter().collect()
    }

    #[complete("private://notes/{id}", id)]
    async fn ids(&self, typed: &str, context: &libris::Context) -> Vec<String> {
        context.identity().map(|who| format!("{typed}{}", who.name())).into_iter().collect()
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
struct Guarded(libris::FunctionSource);

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
                Ok(contents.with_freshness(libris::Freshness::proven(libris::Proof::always())))
            }
            _ => Err(libris::Error::Denied(uri.clone())),
        }
    }

    #[resource("guarded://greeting")]
    fn greeting(&self, who: Option<&Identity>, uri: &libris::Uri) -> libris::Contents {
        let name = who.map_or("stranger", |who| who.name());
        let content = libris::Content::text(uri.clone(), "text/plain", format!("hello {name}"));
        libris::Contents::from(content).with_freshness(libris::Freshness::proven(libris::Proof::always()))
    }
}

/// Everything in it is for whoever asks, and is proven to stay so.
struct ByName;

impl ByName {
    fn name(context: &libris::Context) -> &str {
        context.identity().map_or("nobody", Identity::name)
    }

    fn proven() -> libris::Freshness {
        libris::Freshness::proven(libris::Proof::always())
    }
}

#[async_trait::async_trait]
impl libris::Source for ByName {
    fn covers(&self, uri: &Uri) -> Option<Specificity> {
        (uri.scheme() == "by").then_some(Specificity::EXACT)
    }

    async fn list(&self, _: Option<&Uri>, _: usize, context: &libris::Context) -> Result<libris::Page> {
        let resource =
            libris::Resource::new(Uri::parse("by://name")?, format!("list of {}", Self::name(context)));
        Ok(libris::Page { resources: vec![resource], freshness: Self::proven(), ..libris::Page::default() })
    }

    async fn templates(&self, context: &libris::Context) -> Result<libris::Templates> {
        let name = format!("templates of {}", Self::name(context));
        let template = libris::Template::new(libris::UriTemplate::parse("by://{name}")?, name);
        let templates = libris::Templates::from(vec![template]);
        Ok(libris::Templates { freshness: Self::proven(), ..templates })
    }

    async fn read(&self, uri: &Uri, context: &libris::Context) -> Result<libris::Contents> {
        let text = format!("contents of {}", Self::name(context));
        let contents = libris::Contents::from(libris::Content::text(uri.clone(), "text/plain", text));
        Ok(contents.with_freshness(Self::proven()))
    }

    async fn complete(
        &self,
        _: libris::CompletionRequest<'_>,
        context: &libris::Context,
    ) -> Result<libris::Completion> {
        let values = [format!("completion of {}", Self::name(context))];
        Ok(libris::Completion::of(values, "", 1))
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
    let asked = format!(r#""uri":"{uri}","#);
    send(address, name, "resources/read", &asked, &format!("Mcp-Name: {uri}\r\n")).await
}

async fn send(
    address: std::net::SocketAddr,
    name: Option<&str>,
    method: &str,
    params: &str,
    header: &str,
) -> String {
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{{params}"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{{"name":"t","version":"1"}},"io.modelcontextprotocol/clientCapabilities":{{}}}}}}}}"#
    );
    let name = name.map(|name| format!("X-Name: {name}\r\n")).unwrap_or_default();
    let head = format!(
        "POST /api/mcp HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n\
         Mcp-Method: {method}\r\n{header}{name}Content-Length: {}\r\n\r\n",
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
    let guarded = Guarded(libris::FunctionSource::new().resource("guarded://file", || "top secret"));
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

#[tokio::test]
async fn what_is_made_for_one_caller_is_not_given_to_another() {
    let app = Router::new().nest("/api", libris::serve(ByName).router()).layer(from_fn(identify));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    let reference =
        r#""ref":{"type":"ref/resource","uri":"by://{name}"},"argument":{"name":"name","value":""},"#;
    for (method, params, header, made) in [
        ("resources/list", "", "", "list"),
        ("resources/templates/list", "", "", "templates"),
        ("resources/read", r#""uri":"by://name","#, "Mcp-Name: by://name\r\n", "contents"),
        ("completion/complete", reference, "", "completion"),
    ] {
        // The first must not make it for the others, and neither must nobody.
        for name in [Some("Ada"), Some("Grace"), None, Some("Ada")] {
            let answer = send(address, name, method, params, header).await;
            let expected = format!("{made} of {}", name.unwrap_or("nobody"));
            assert!(answer.contains(&expected), "{name:?} {method}: {answer}");
        }
    }
}

#[tokio::test]
async fn lists_and_completions_of_functions_see_who_asks() {
    use libris::Source as _;
    let template = libris::UriTemplate::parse("private://notes/{id}").unwrap();
    let known = std::collections::BTreeMap::new();
    let partial = libris::CompletionRequest {
        template: &template,
        variable: "id",
        typed: "A",
        known: &known,
        limit: 100,
    };
    for (name, note, value) in
        [(Some("Ada"), Some("private://notes/note-of-Ada"), Some("AAda")), (None, None, None)]
    {
        let context = libris::Context::default().with_identity(name.map(Identity::new));
        let listed = Private.list(None, 100, &context).await.unwrap().resources;
        let found = listed.iter().map(|resource| resource.uri.as_str()).find(|uri| uri.contains("note-of"));
        assert_eq!(found, note);
        let values = Private.complete(partial, &context).await.unwrap().values;
        assert_eq!(values.first().map(String::as_str), value);
    }
}
