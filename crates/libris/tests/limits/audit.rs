//! The audit log: one line for each decision.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use http_body_util::BodyExt as _;
use libris::uri_template::Specificity;
use libris::wire::http;
use libris::wire::{Caller, Refusal};
use libris::{
    AuditLog, AuditRecord, Authenticate, Catalog, Config, Content, Contents, Context, Freshness,
    FunctionSource, Identified, Identity, Page, Policy, Prompt, PromptMessage, Prompts, Proof, Request,
    Resource, Result, Rights, Server, Source, Uri, UriTemplate,
};
use serde_json::{Value, json};

use crate::{Client, LONG, Named, serve, source};

/// Collects the lines.
#[derive(Default)]
struct Lines(Mutex<Vec<Value>>);

impl AuditLog for Lines {
    fn record(&self, record: &AuditRecord<'_>) {
        let line = record.json_line(std::time::SystemTime::now());
        self.0.lock().unwrap().push(serde_json::from_str(&line).unwrap());
    }

    fn dropped(&self) -> usize {
        0
    }
}

#[tokio::test]
async fn every_decision_is_recorded_except_cached_anonymous_reads() {
    use libris::rules::{Effect, Operations, Rule, RuleSet, RulesPolicy, UriPattern, Who};
    let rule = |uri: &str, effect| Rule {
        who: Who::ANYONE,
        uris: vec![UriPattern::parse(uri).unwrap()],
        operations: Operations::ALL,
        effect,
    };
    let rules = RuleSet::new(vec![
        rule("note://two", Effect::Deny),
        rule("note://three", Effect::Require(["more".into()].into())),
        rule("**", Effect::Allow),
    ]);
    let lines = Arc::new(Lines::default());
    let catalog = Arc::new(Catalog::new(vec![Arc::new(source())]));
    let policy = Arc::new(RulesPolicy::new(&rules, Arc::new(Named)));
    let server = Server::with_audit(catalog, Config::default(), policy, lines.clone());
    let (address, _serving) = serve(server, http::Config::default()).await;
    let read = async |client: &mut Client, uri: &str| {
        let response = client.open("resources/read", json!({ "uri": uri })).await;
        response.into_body().collect().await.unwrap();
    };
    let mut ada = Client::new(address, &[("authorization", "ada")]).await;
    for uri in ["note://one", "note://two", "note://three", "note://four"] {
        read(&mut ada, uri).await;
    }
    let session = ada.initialize().await.unwrap();
    ada.in_session(&session, "resources/subscribe", json!({ "uri": "note://one" })).await;
    ada.in_session(&session, "resources/list", json!({})).await;
    let mut nobody = Client::new(address, &[]).await;
    read(&mut nobody, "note://two").await;
    let lines = std::mem::take(&mut *lines.0.lock().unwrap());
    let shown: Vec<_> = lines
        .iter()
        .map(|line| {
            let text = |name: &str| line[name].as_str().unwrap_or("-").to_owned();
            format!(
                "{} {} {} {} {} {}",
                text("who"),
                text("operation"),
                text("uri"),
                text("decision"),
                line["rule"],
                text("failure")
            )
        })
        .collect();
    assert_eq!(
        shown,
        [
            "ada read note://one allow 3 -",
            "ada read note://two deny 1 -",
            "ada read note://three require 2 -",
            "ada read note://four allow 3 not found",
            "ada subscribe note://one allow 3 -",
            "ada list - allow null -",
            "- read note://two deny 1 -",
        ]
    );
    assert!(lines[0]["bytes"].as_u64().unwrap() > 0 && lines[0]["ms"].as_f64().unwrap() >= 0.0);
    assert_eq!(lines[6]["address"], "127.0.0.1");
}

/// The lines so far, each as `who operation uri decision failure`.
fn shown(lines: &Lines) -> Vec<String> {
    let text = |line: &Value, name: &str| line[name].as_str().unwrap_or("-").to_owned();
    let members = ["who", "operation", "uri", "decision", "failure"];
    let lines = std::mem::take(&mut *lines.0.lock().unwrap());
    lines.iter().map(|line| members.map(|name| text(line, name)).join(" ")).collect()
}

/// A source whose list, resource and templates are proven, so that responses are cached.
struct Unchanging;

impl Unchanging {
    fn freshness() -> Freshness {
        Freshness::proven(Proof::new(|| true))
    }
}

#[async_trait]
impl Source for Unchanging {
    fn covers(&self, uri: &Uri) -> Option<Specificity> {
        (uri.as_str() == "note://always").then_some(Specificity::EXACT)
    }

    fn name(&self) -> Cow<'_, str> {
        "unchanging".into()
    }

    fn has_directories(&self) -> bool {
        true
    }

    async fn list(&self, after: Option<&Uri>, _: usize, _: &Context) -> Result<Page> {
        let resource = Resource::new(Uri::parse("note://always")?, "always");
        let resources = if after.is_none() { vec![resource] } else { Vec::new() };
        Ok(Page { resources, freshness: Self::freshness(), ..Page::default() })
    }

    async fn read(&self, uri: &Uri, _: &Context) -> Result<Contents> {
        let parts = vec![Content::text(uri.clone(), "text/plain", "the same")];
        Ok(Contents { parts, freshness: Self::freshness() })
    }
}

#[tokio::test]
async fn cached_responses_are_recorded_for_identities_and_not_for_anonymous_callers() {
    let lines = Arc::new(Lines::default());
    let catalog = Arc::new(Catalog::new(vec![Arc::new(Unchanging)]));
    let server = Server::with_audit(catalog, Config::default(), Arc::new(Named), lines.clone());
    let (address, _serving) = serve(server, http::Config::default()).await;
    for extra in [None, Some(LONG)] {
        for (who, times) in [(Some("ada"), 3), (None, 0)] {
            let headers: Vec<_> = who.map(|who| ("authorization", who)).into_iter().chain(extra).collect();
            let mut client = Client::new(address, &headers).await;
            let uri = json!({ "uri": "note://always" });
            for (method, params) in [("resources/read", uri), ("resources/list", json!({}))] {
                // The first response may be made for this caller.
                client.open(method, params.clone()).await.into_body().collect().await.unwrap();
                lines.0.lock().unwrap().clear();
                for _ in 0..3 {
                    let answer = client.open(method, params.clone()).await;
                    let text = answer.into_body().collect().await.unwrap().to_bytes();
                    let text = String::from_utf8(text.to_vec()).unwrap();
                    assert!(text.contains("note://always"), "{text}");
                }
                let expected = match method {
                    "resources/read" => "ada read note://always allow -",
                    _ => "ada list - allow -",
                };
                assert_eq!(shown(&lines), vec![expected; times], "{who:?} {method} {extra:?}");
            }
        }
    }
}

/// Admits those who name themselves, except `mallory`.
struct Wary;

impl Authenticate for Wary {
    fn identify(&self, caller: &Caller<'_>) -> Identified {
        match caller.authorization {
            Some(b"mallory") => Identified::Refused(Refusal::Unauthenticated {
                challenge: "Test".into(),
                message: "not you".to_owned(),
            }),
            _ => Named.identify(caller),
        }
    }
}

impl Policy for Wary {
    fn authentication(&self) -> &dyn Authenticate {
        self
    }

    fn rights(&self, _: Option<&Identity>) -> Rights {
        Rights::everything()
    }
}

#[tokio::test]
async fn each_operation_causes_one_line() {
    let functions = FunctionSource::new()
        .resource("note://one", || "first")
        .template("note://by/{name}", |request: Request| request.uri().to_string());
    let lines = Arc::new(Lines::default());
    let catalog = Arc::new(Catalog::new(vec![Arc::new(functions), Arc::new(Unchanging)]));
    let server = Server::with_audit(catalog, Config::default(), Arc::new(Wary), lines.clone());
    let (address, _serving) = serve(server, http::Config::default()).await;
    for extra in [None, Some(LONG)] {
        let headers: Vec<_> = [("authorization", "ada")].into_iter().chain(extra).collect();
        let mut ada = Client::new(address, &headers).await;
        let completing = json!({
            "ref": { "type": "ref/resource", "uri": "note://by/{name}" },
            "argument": { "name": "name", "value": "a" },
        });
        let of_prompt = json!({
            "ref": { "type": "ref/prompt", "name": "greet" },
            "argument": { "name": "name", "value": "a" },
        });
        let tool = |name: &str, arguments: Value| json!({ "name": name, "arguments": arguments });
        let uri = json!({ "uri": "note://one" });
        let cases = [
            ("resources/list", json!({}), "ada list - allow -"),
            ("resources/templates/list", json!({}), "ada templates - allow -"),
            ("resources/read", uri.clone(), "ada read note://one allow -"),
            ("completion/complete", completing, "ada complete note://by/{name} allow -"),
            ("completion/complete", of_prompt, "ada complete - allow invalid"),
            ("resources/directory/read", uri.clone(), "ada directory note://one allow invalid"),
            ("skills/list", json!({}), "ada skills - allow -"),
            ("skills/get", uri.clone(), "ada skill note://one allow invalid"),
            ("prompts/list", json!({}), "ada prompts - allow -"),
            ("prompts/get", json!({ "name": "greet" }), "ada prompt libris://prompts/greet allow invalid"),
            ("tools/call", tool("read_resource", uri.clone()), "ada read note://one allow -"),
            ("tools/call", tool("list_resources", json!({})), "ada list - allow -"),
            ("tools/call", tool("search_resources", json!({ "query": "x" })), "ada search - allow -"),
        ];
        for (method, params, expected) in cases {
            let body = ada.open(method, params).await.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(shown(&lines), [expected], "{method}: {body:?}");
        }
        let params = json!({ "notifications": { "resourceSubscriptions": ["note://one"] } });
        let mut stream = ada.open("subscriptions/listen", params).await;
        stream.body_mut().frame().await.unwrap().unwrap();
        assert_eq!(shown(&lines), ["ada subscribe note://one allow -"]);
        // A refused caller has no name, but an address.
        let headers: Vec<_> = [("authorization", "mallory")].into_iter().chain(extra).collect();
        let mut mallory = Client::new(address, &headers).await;
        assert_eq!(mallory.open("resources/read", uri).await.status().as_u16(), 401);
        assert_eq!(lines.0.lock().unwrap()[0]["address"], "127.0.0.1");
        assert_eq!(shown(&lines), ["- authenticate - deny -"]);
    }
}

/// A source with a prompt that embeds `note://one`, and one that embeds a resource that the rules hide.
struct Prompting(FunctionSource);

#[async_trait]
impl Source for Prompting {
    fn covers(&self, uri: &Uri) -> Option<Specificity> {
        self.0.covers(uri)
    }

    fn name(&self) -> Cow<'_, str> {
        self.0.name()
    }

    async fn list(&self, after: Option<&Uri>, limit: usize, context: &Context) -> Result<Page> {
        Source::list(&self.0, after, limit, context).await
    }

    async fn read(&self, uri: &Uri, context: &Context) -> Result<Contents> {
        self.0.read(uri, context).await
    }

    async fn prompts(&self, _: &Context) -> Result<Prompts> {
        let prompt = |name: &str, embedded: &str| {
            let mut prompt = Prompt::new(name);
            prompt.resources = vec![UriTemplate::parse(embedded).unwrap()];
            prompt
        };
        Ok(vec![
            prompt("first", "note://one"),
            prompt("hidden", "note://two"),
            prompt("required", "note://three"),
            prompt("variable", "secret://{name}"),
        ]
        .into())
    }

    async fn prompt(
        &self,
        name: &str,
        _: &BTreeMap<String, String>,
        _: &Context,
    ) -> Result<Option<Vec<PromptMessage>>> {
        let embedded = if name == "required" { "note://three" } else { "note://one" };
        Ok(Some(vec![PromptMessage::user(Uri::parse(embedded)?)]))
    }
}

#[tokio::test]
async fn prompts_are_recorded_by_name_with_their_rule_and_their_resources() {
    use libris::rules::{Effect, Operations, Rule, RuleSet, RulesPolicy, UriPattern, Who};
    let rule = |uri: &str, effect| Rule {
        who: Who::ANYONE,
        uris: vec![UriPattern::parse(uri).unwrap()],
        operations: Operations::ALL,
        effect,
    };
    let rules = RuleSet::new(vec![
        rule("note://two", Effect::Deny),
        rule("note://three", Effect::Require(["more".into()].into())),
        rule("secret://**", Effect::Deny),
        rule("**", Effect::Allow),
    ]);
    let lines = Arc::new(Lines::default());
    let catalog = Arc::new(Catalog::new(vec![Arc::new(Prompting(source()))]));
    let policy = Arc::new(RulesPolicy::new(&rules, Arc::new(Named)));
    let server = Server::with_audit(catalog, Config::default(), policy, lines.clone());
    let (address, _serving) = serve(server, http::Config::default()).await;
    let mut ada = Client::new(address, &[("authorization", "ada")]).await;
    for name in ["first", "hidden", "required", "variable", "no such"] {
        ada.open("prompts/get", json!({ "name": name })).await.into_body().collect().await.unwrap();
    }
    let shown: Vec<_> = std::mem::take(&mut *lines.0.lock().unwrap())
        .iter()
        .map(|line| {
            let text = |name: &str| line[name].as_str().unwrap_or("-").to_owned();
            let members = ["operation", "uri", "decision", "failure"].map(text).join(" ");
            assert!(line["decision"] != "allow" || line["failure"].is_string() || line["bytes"] != 0);
            format!("{members} {}", line["rule"])
        })
        .collect();
    assert_eq!(
        shown,
        [
            "read note://one allow - 4",
            "prompt libris://prompts/first allow - null",
            "prompt libris://prompts/hidden deny - 1",
            "read note://three require - 2",
            "prompt libris://prompts/required allow failed null",
            "prompt libris://prompts/variable deny - 3",
            "prompt libris://prompts/no%20such allow invalid null",
        ]
    );
}

#[cfg(feature = "search")]
#[tokio::test]
async fn the_resources_of_a_bundle_are_recorded() {
    let lines = Arc::new(Lines::default());
    let catalog = Arc::new(Catalog::new(vec![Arc::new(source())]));
    catalog
        .start_search(libris::SearchConfig { is_awaited: true, ..libris::SearchConfig::default() })
        .unwrap();
    catalog.search_index_completed().await.unwrap();
    let tools = libris::ToolsConfig { bundle: true, ..libris::ToolsConfig::default() };
    let config = Config { tools, ..Config::default() };
    let server = Server::with_audit(catalog, config, Arc::new(Named), lines.clone());
    let (address, _serving) = serve(server, http::Config::default()).await;
    let mut ada = Client::new(address, &[("authorization", "ada")]).await;
    let params = json!({ "name": "bundle_resources", "arguments": { "query": "second" } });
    ada.open("tools/call", params).await.into_body().collect().await.unwrap();
    // Each passage ends with a line break.
    assert_eq!(lines.0.lock().unwrap()[1]["bytes"], "second\n".len());
    assert_eq!(shown(&lines), ["ada search - allow -", "ada read note://two allow -"]);
}
