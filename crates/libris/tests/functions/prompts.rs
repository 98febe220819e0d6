//! `#[prompt]`: arguments, messages, and what a server makes of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use libris::wire::http::{self, Endpoint};
use libris::{
    Catalog, Config, Context, Operation, PromptArgument, PromptMessage, Result, Rights, Rules, Server,
    Source, Uri,
};
use serde_json::{Value, json};

struct Notes(Vec<String>);

#[libris::resources]
impl Notes {
    /// One note.
    #[resource("notes://{number}")]
    fn note(&self, number: usize) -> Option<String> {
        self.0.get(number).cloned()
    }

    #[complete("notes://{number}", number)]
    fn numbers(&self) -> Vec<String> {
        (0..self.0.len()).map(|number| number.to_string()).collect()
    }

    /// Sums up a note.
    #[prompt(title = "Sum up", icon = "https://notes.example/icon.png", resources = ["notes://{number}"])]
    async fn sum_up(&self, number: usize, language: Option<&str>) -> Result<Vec<PromptMessage>> {
        Ok(vec![
            PromptMessage::user(format!("Sum up in {}.", language.unwrap_or("English"))),
            PromptMessage::user(Uri::parse(&format!("notes://{number}"))?),
        ])
    }

    #[prompt(name = "greet", description = "Says hello")]
    fn greeting(&self, r#type: &str, _context: &Context) -> String {
        format!("Hello {type}", type = r#type)
    }

    #[prompt]
    fn nothing(&self) -> Option<String> {
        None
    }

    #[prompt]
    fn fails(&self) -> std::result::Result<String, std::num::ParseIntError> {
        "x".parse::<u8>().map(|number| number.to_string())
    }
}

fn notes() -> Notes {
    Notes(vec!["milk".into(), "bread".into()])
}

fn arguments(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[tokio::test]
async fn functions_are_prompts() {
    let (notes, context) = (notes(), Context::default());
    let prompts = notes.prompts(&context).await.unwrap().prompts;
    let names: Vec<_> = prompts.iter().map(|prompt| &*prompt.name).collect();
    assert_eq!(names, ["sum_up", "greet", "nothing", "fails"]);
    let sum_up = &prompts[0];
    assert_eq!(sum_up.title.as_deref(), Some("Sum up"));
    assert_eq!(sum_up.description.as_deref(), Some("Sums up a note."));
    assert_eq!(sum_up.arguments, [PromptArgument::required("number"), PromptArgument::optional("language")]);
    assert_eq!(sum_up.resources[0].as_str(), "notes://{number}");
    assert_eq!(sum_up.icons[0].src, "https://notes.example/icon.png");
    assert_eq!(prompts[1].description.as_deref(), Some("Says hello"));
    assert_eq!(prompts[1].arguments, [PromptArgument::required("type")]);

    let prompt =
        async |name: &str, pairs: &[(&str, &str)]| notes.prompt(name, &arguments(pairs), &context).await;
    let messages = prompt("sum_up", &[("number", "1"), ("language", "German")]).await.unwrap().unwrap();
    assert_eq!(messages[0], PromptMessage::user("Sum up in German."));
    assert_eq!(messages[1], PromptMessage::user(Uri::parse("notes://1").unwrap()));
    let empty = prompt("sum_up", &[("number", "1"), ("language", "")]).await.unwrap().unwrap();
    assert_eq!(empty[0], PromptMessage::user("Sum up in English."));
    assert_eq!(
        prompt("greet", &[("type", "you")]).await.unwrap().unwrap(),
        [PromptMessage::user("Hello you")]
    );
    assert!(prompt("nothing", &[]).await.unwrap().is_none());
    assert!(prompt("unknown", &[]).await.unwrap().is_none());
    let error = prompt("sum_up", &[("number", "x")]).await.unwrap_err().to_string();
    assert!(error.starts_with("`number` cannot be `x`"), "{error}");
    assert_eq!(prompt("fails", &[]).await.unwrap_err().to_string(), "could not make the prompt");
}

/// Hides the first note.
struct WithoutFirst;

impl Rules for WithoutFirst {
    fn allow(&self, _: Operation, uri: &Uri) -> bool {
        uri.as_str() != "notes://0"
    }
}

struct Restricted(Rights);

impl libris::Policy for Restricted {
    fn rights(&self, _: Option<&libris::Identity>) -> Rights {
        self.0.clone()
    }
}

async fn ask(endpoint: &Arc<Endpoint>, method: &str, mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let mut request = axum::http::Request::post("/mcp")
        .header("host", "127.0.0.1")
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", method);
    if let Some(name) = params["name"].as_str() {
        request = request.header("mcp-name", name);
    }
    let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let request = request.body(axum::body::Body::from(message.to_string())).unwrap();
    let response = endpoint.clone().handle(request).await;
    let body = axum::body::to_bytes(axum::body::Body::new(response.into_body()), 1 << 20).await.unwrap();
    serde_json::from_slice(&body).unwrap()
}

#[tokio::test]
async fn a_server_embeds_what_the_caller_may_read() {
    let policy = Arc::new(Restricted(Rights::new(WithoutFirst)));
    let catalog = Arc::new(Catalog::new(vec![Arc::new(notes())]));
    let server = Server::with_policy(catalog, Config::default(), policy);
    let endpoint = Endpoint::new(Arc::new(server), http::Config::default());
    let get = async |number: &str| {
        let params = json!({ "name": "sum_up", "arguments": { "number": number } });
        ask(&endpoint, "prompts/get", params).await
    };
    let answer = get("1").await;
    assert_eq!(answer["result"]["messages"][1]["content"]["resource"]["text"], "bread", "{answer}");
    let (hidden, absent) = (get("0").await, get("9").await);
    assert_eq!(hidden["error"]["code"], -32602);
    assert_eq!(hidden.to_string().replace("notes://0", "notes://9"), absent.to_string());
    let params = json!({
        "ref": { "type": "ref/prompt", "name": "sum_up" }, "argument": { "name": "number", "value": "" },
    });
    let completed = ask(&endpoint, "completion/complete", params).await;
    assert_eq!(completed["result"]["completion"]["values"], json!(["1"]), "{completed}");
}
