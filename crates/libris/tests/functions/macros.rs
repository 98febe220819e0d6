//! Resources that the attributes generate from functions.

use std::borrow::Cow;
use std::collections::BTreeMap;

use bytes::Bytes;
use libris::{
    Audience, Completion, CompletionRequest, Content, Context, Error, Instance, Json, Result, Source, Uri,
    UriTemplate,
};

use crate::{listed, read, refused, text, uri};

struct Everything<T> {
    word: T,
}

#[derive(Debug)]
struct Broken;

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the password is swordfish")
    }
}

impl std::error::Error for Broken {}

#[libris::resources]
impl<T: AsRef<str> + Send + Sync + 'static> Everything<T> {
    /// Owned text.
    ///
    /// In two paragraphs.
    #[resource("all://string", title = "A string", mime = "text/markdown", priority = 1, audience = ["user"])]
    fn string(&self) -> String {
        self.word.as_ref().to_owned()
    }

    #[resource("all://str", name = "named", description = "said", icon = "https://example.org/i.png")]
    fn borrowed(&self) -> &str {
        self.word.as_ref()
    }

    #[resource("all://cow")]
    async fn cow(&self) -> Cow<'_, str> {
        Cow::Borrowed(self.word.as_ref())
    }

    #[resource("all://vec", mime = "image/png")]
    async fn vec(&self) -> Vec<u8> {
        vec![1, 2]
    }

    #[resource("all://bytes")]
    fn bytes(&self) -> Bytes {
        Bytes::from_static(b"\xff")
    }

    #[resource("all://slice")]
    fn slice(&self) -> &'static [u8] {
        &[7]
    }

    #[resource("all://json")]
    fn json(&self) -> Json<BTreeMap<&'static str, u8>> {
        Json([("a", 1)].into())
    }

    #[resource("all://content")]
    fn content(&self, uri: &Uri) -> Content {
        Content::text(uri.clone(), "text/csv", "a,b")
    }

    #[resource("all://several")]
    fn several(&self, uri: &Uri) -> Vec<Content> {
        vec![Content::text(uri.clone(), "text/plain", "1"), Content::text(uri.clone(), "text/plain", "2")]
    }

    #[resource("all://none")]
    fn none(&self) -> Option<String> {
        None
    }

    #[resource("all://failing")]
    fn failing(&self) -> Result<String, Broken> {
        Err(Broken)
    }

    #[resource("all://ours")]
    async fn ours(&self) -> Result<Option<String>> {
        Err(Error::Unavailable("come back later".into()))
    }

    #[resource("all://once/{number}/{+path}")]
    fn once(&self, path: &str, number: u8) -> String {
        format!("{number} {path}")
    }

    #[resource("all://maybe{?from,to}{#part}")]
    async fn maybe(&self, from: Option<i32>, to: Option<&str>, part: Option<String>) -> String {
        format!("{from:?} {to:?} {part:?}")
    }

    #[resource("all://many{/path*}{?tag*}")]
    fn many(&self, tag: Vec<u32>, path: Vec<&str>, context: &Context) -> String {
        context.progress(1, None);
        format!("{path:?} {tag:?}")
    }

    #[resource("all://raw/{type}/{unused}")]
    fn raw(&self, r#type: String, _unused: String) -> String {
        r#type
    }

    #[complete("all://once/{number}/{+path}", number)]
    fn numbers(&self) -> Vec<String> {
        (0..=255).map(|number| number.to_string()).collect()
    }

    #[complete("all://once/{number}/{+path}", path)]
    async fn paths(&self, typed: &str, number: Option<u8>) -> Result<Vec<String>, Broken> {
        Ok(vec![format!("{typed}-{number:?}")])
    }

    #[complete("all://raw/{type}/{unused}", unused)]
    fn nothing(&self, _typed: &str) -> Completion {
        Completion { values: vec!["x".into()], total: Some(7), more: true, proof: None }
    }

    #[list("all://once/{number}/{+path}")]
    async fn all(&self) -> Result<Vec<Instance>, Broken> {
        let instance = |number: u8| Instance::new().variable("number", number).variable("path", "a/b");
        Ok(vec![instance(2).title("Two").size(5), instance(1)])
    }

    /// Left alone.
    fn other(&self) -> usize {
        self.word.as_ref().len()
    }
}

fn everything() -> Everything<String> {
    Everything { word: "word".into() }
}

#[tokio::test]
async fn what_functions_return_is_read() {
    let source = everything();
    assert_eq!(source.other(), 4);
    let cases = [
        ("string", "word", "text/markdown"),
        ("str", "word", "text/plain"),
        ("cow", "word", "text/plain"),
        ("vec", r#"b"\x01\x02""#, "image/png"),
        ("bytes", r#"b"\xff""#, "application/octet-stream"),
        ("slice", r#"b"\x07""#, "application/octet-stream"),
        ("json", r#"{"a":1}"#, "application/json"),
        ("content", "a,b", "text/csv"),
    ];
    for (path, data, mime) in cases {
        let found = read(&source, &format!("all://{path}")).await.unwrap();
        assert_eq!((&*found.0, &*found.1), (data, mime), "{path}");
    }
    let several = source.read(&uri("all://several"), &Context::default()).await.unwrap();
    assert_eq!(several.parts.len(), 2);
}

#[tokio::test]
async fn errors_are_told_and_causes_are_not() {
    let source = everything();
    assert_eq!(refused(&source, "all://none").await, "not found");
    assert_eq!(refused(&source, "all://unknown").await, "not found");
    assert_eq!(refused(&source, "all://failing").await, "could not read the resource");
    assert_eq!(refused(&source, "all://ours").await, "come back later");
}

#[tokio::test]
async fn variables_are_parsed() {
    let source = everything();
    assert_eq!(text(&source, "all://once/7/a/b").await, "7 a/b");
    assert_eq!(
        refused(&source, "all://once/256/a").await,
        "`number` cannot be `256`: it must be a whole number from 0 to 255"
    );
    assert_eq!(text(&source, "all://maybe").await, "None None None");
    assert_eq!(text(&source, "all://maybe?to=x&from=-1#p").await, r#"Some(-1) Some("x") Some("p")"#);
    assert!(refused(&source, "all://maybe?from=").await.starts_with("`from` cannot be ``: "));
    assert_eq!(text(&source, "all://many").await, "[] []");
    assert_eq!(text(&source, "all://many/a/b%2Fc?tag=1&tag=2").await, r#"["a", "b/c"] [1, 2]"#);
    assert!(refused(&source, "all://many?tag=1&tag=x").await.starts_with("`tag` cannot be `x`: "));
    assert_eq!(text(&source, "all://raw/a/b").await, "a");
}

#[tokio::test]
async fn what_is_said_is_shown() {
    let source = everything();
    let page = source.list(None, 1000, &Context::default()).await.unwrap();
    let find = |name: &str| page.resources.iter().find(|resource| resource.name == name).unwrap();
    let string = find("string");
    assert_eq!(string.title.as_deref(), Some("A string"));
    assert_eq!(string.description.as_deref(), Some("Owned text.\n\nIn two paragraphs."));
    assert_eq!(string.mime.as_deref(), Some("text/markdown"));
    assert_eq!(string.annotations.priority, Some(1.0));
    assert_eq!(string.annotations.audience, [Audience::User]);
    let named = find("named");
    assert_eq!((named.uri.as_str(), named.description.as_deref()), ("all://str", Some("said")));
    assert_eq!(named.icons[0].src, "https://example.org/i.png");
    let two = page.resources.iter().find(|resource| resource.title.as_deref() == Some("Two")).unwrap();
    assert_eq!((two.uri.as_str(), two.size), ("all://once/2/a/b", Some(5)));
    let templates = source.templates(&Context::default()).await.unwrap().templates;
    let names: Vec<_> = templates.iter().map(|template| template.name.as_str()).collect();
    assert_eq!(names.len(), 4, "{names:?}");
    assert!(names.contains(&"once"));
    let listed = listed(&source).await;
    assert_eq!(listed.len(), 14);
    assert!(listed.is_sorted());
}

#[tokio::test]
async fn variables_are_completed() {
    let source = everything();
    let complete = async |template: &str, variable: &str, typed: &str, known: &[(&str, &str)]| {
        let template = UriTemplate::parse(template).unwrap();
        let known = known.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        source
            .complete(
                CompletionRequest { template: &template, variable, typed, known: &known, limit: 100 },
                &Context::default(),
            )
            .await
    };
    let once = "all://once/{number}/{+path}";
    assert_eq!(complete(once, "number", "25", &[]).await.unwrap().values.len(), 7);
    assert_eq!(complete(once, "path", "a", &[]).await.unwrap().values, ["a-None"]);
    assert_eq!(complete(once, "path", "a", &[("number", "3")]).await.unwrap().values, ["a-Some(3)"]);
    assert_eq!(complete(once, "path", "a", &[("number", "x")]).await.unwrap().values, ["a-None"]);
    assert_eq!(complete("all://raw/{type}/{unused}", "unused", "y", &[]).await.unwrap().total, Some(7));
    assert_eq!(complete("all://raw/{type}/{unused}", "type", "y", &[]).await.unwrap().values, [""; 0]);
}

struct Odd;

#[libris::resources]
impl Odd {
    #[resource("a://{x}/{y}")]
    fn xy(&self, x: &str, y: &str) -> String {
        format!("{x}{y}")
    }

    /// Some of these cannot be, which is no reason to hide the others.
    #[list("a://{x}/{y}")]
    fn all(&self) -> Vec<Instance> {
        let good = Instance::new().variable("x", "1").variable("y", "a/../b");
        vec![Instance::of("1"), good.clone().variable("z", "3"), good]
    }

    #[resource("path:///at{/path*}")]
    fn path(&self, path: Vec<u8>) -> String {
        format!("{path:?}")
    }

    #[list("path:///at{/path*}")]
    fn paths(&self) -> Vec<Instance> {
        vec![Instance::of(7), Instance::new().list("path", [1, 2])]
    }

    #[resource("number://{n}")]
    fn number<'a>(&'a self, n: &'a str) -> &'a str {
        n
    }

    #[list("number://{n}")]
    fn numbers(&self) -> Vec<u64> {
        vec![10, 9]
    }

    #[complete("keyword://{type}", type)]
    fn types(&self) -> Vec<&'static str> {
        vec!["a"]
    }

    #[resource("keyword://{type}")]
    fn keyword(&self, r#type: String) -> String {
        r#type
    }

    #[cfg(any())]
    #[resource("number://never")]
    fn never(&self) -> Nothing {}

    #[cfg(not(any()))]
    #[resource("number://never")]
    fn never(&self) -> std::sync::Arc<str> {
        "now".into()
    }

    #[resource("error://{kind}")]
    fn error(&self, kind: &str, uri: &Uri) -> Result<String, Wrapped> {
        Err(Wrapped(match kind {
            "found" => Error::NotFound(uri.clone()),
            _ => Error::failed("work", "secret"),
        }))
    }
}

#[derive(Debug)]
struct Wrapped(Error);

impl std::fmt::Display for Wrapped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("wrapped")
    }
}

impl std::error::Error for Wrapped {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

#[tokio::test]
async fn odd_ones_are_read_and_listed() {
    assert_eq!(
        listed(&Odd).await,
        ["a://1/a%2F..%2Fb", "number://10", "number://9", "number://never", "path:///at/1/2", "path:///at/7",]
    );
    assert_eq!(text(&Odd, "path:///at/1/2").await, "[1, 2]");
    assert_eq!(text(&Odd, "number://never").await, "now");
    assert_eq!(refused(&Odd, "error://found").await, "not found");
    assert_eq!(refused(&Odd, "error://other").await, "could not read the resource");
    let template = UriTemplate::parse("keyword://{type}").unwrap();
    let partial = CompletionRequest {
        template: &template,
        variable: "type",
        typed: "",
        known: &BTreeMap::new(),
        limit: 100,
    };
    assert_eq!(Odd.complete(partial, &Context::default()).await.unwrap().values, ["a"]);
    let odd = refused(&Odd, "path:///at/%1b%5B31m%E2%80%AE").await;
    assert!(odd.starts_with("`path` cannot be `\\u{1b}[31m\\u{202e}`"), "{odd}");
}
