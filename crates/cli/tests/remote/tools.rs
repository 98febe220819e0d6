//! Tools of other servers behind a gateway, and requests that need input of the user.

use std::sync::Arc;
use std::time::Duration;

use libris::{Catalog, Context, Error, RequestInput, Source as _, SourceToolResult};
use libris_remote::{Remote, RemoteConfig, RemoteLimits, UriMount};
use serde_json::{Value, json};

use crate::gateway::{Session, gateway, until};
use crate::toolbox::{Handshake, Toolbox};
use crate::{LONG, over_http};

fn remote(name: &str, url: &str, mount: UriMount, timeout: Duration) -> Remote {
    let limits = RemoteLimits { retry: Duration::from_millis(50), timeout, ..RemoteLimits::default() };
    let config = RemoteConfig::new(name, over_http(url));
    Remote::new(RemoteConfig { mount, tools: true, limits, ..config }).unwrap()
}

async fn names(catalog: &Catalog) -> Vec<String> {
    let listed = catalog.tools(&Context::default()).await.unwrap();
    listed.tools.iter().map(|tool| tool.name.clone()).collect()
}

/// The texts of a result.
fn texts(result: &SourceToolResult) -> Vec<&str> {
    result.content.iter().filter_map(|content| content.block.get("text")?.as_str()).collect()
}

/// A request of a client of revision 2026-07-28.
async fn modern(url: &str, method: &str, params: Value, capabilities: Value) -> Value {
    let mut params = params;
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "t", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    });
    let member = if method == "resources/read" { "uri" } else { "name" };
    let name = params.get(member).and_then(Value::as_str).map(str::to_owned);
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let mut request = reqwest::Client::new()
        .post(url)
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", method);
    if let Some(name) = name {
        request = request.header("mcp-name", name);
    }
    let text = request.body(body.to_string()).send().await.unwrap().text().await.unwrap();
    serde_json::from_str(&text).unwrap_or_else(|_| panic!("`{method}` was answered with {text}"))
}

fn config(toolbox: &Toolbox, name: &str, uris: &str) -> String {
    format!(
        "[[mcp]]\nname = {name:?}\nurl = {:?}\nuris = {uris:?}\nprompts = true\ntools = true\nretry = \"50ms\"\n",
        toolbox.url
    )
}

/// The names in the result of `tools/list`.
fn listed(result: &Value) -> Vec<&str> {
    let tools = result["result"]["tools"].as_array().unwrap_or_else(|| panic!("{result}"));
    tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

const OWN: [&str; 3] = ["search_resources", "read_resource", "list_resources"];

#[tokio::test(flavor = "multi_thread")]
async fn tools_pass_through_under_a_prefix() {
    for handshake in [Handshake::Initialize, Handshake::Discover] {
        let toolbox = Toolbox::start(handshake, &["echo"]).await;
        let folder = tempfile::tempdir().unwrap();
        let gateway = gateway(folder.path(), &config(&toolbox, "far", "prefixed")).await;
        let session = Session::open(&gateway.url, None).await;
        let list = session.ask("tools/list", json!({})).await;
        assert_eq!(listed(&list), [&OWN[..], &["far_echo"]].concat());
        let definition = &list["result"]["tools"][3];
        assert_eq!(definition["description"], "The tool echo");
        assert_eq!(definition["inputSchema"]["properties"], json!({ "word": { "type": "string" } }));
        assert_eq!(definition["_meta"], json!({ "ui": { "resourceUri": "ui://far+app/view" } }));

        let expected = json!({
            "content": [
                { "type": "text", "text": "{\"word\":\"hi\"}" },
                { "type": "resource_link", "uri": "far+odd://ask", "name": "ask" },
                { "type": "resource", "resource": { "uri": "far+odd://secret", "text": "secret" } },
            ],
            "structuredContent": { "word": "hi" },
            "isError": false,
            "_meta": { "ui": { "resourceUri": "ui://far+app/result" } },
        });
        let params = json!({ "name": "far_echo", "arguments": { "word": "hi" } });
        assert_eq!(session.ask("tools/call", params.clone()).await["result"], expected);
        let mut called = modern(&gateway.url, "tools/call", params, json!({})).await["result"].take();
        assert_eq!(called["resultType"], "complete");
        let meta = called["_meta"].as_object_mut().unwrap();
        assert!(meta.remove("io.modelcontextprotocol/serverInfo").is_some());
        called.as_object_mut().unwrap().remove("resultType");
        assert_eq!(called, expected);
        // A call may have effects, so no result is cached.
        assert_eq!(toolbox.requests("tools/call").len(), 2);

        let unknown = session.ask("tools/call", json!({ "name": "echo" })).await;
        assert_eq!(unknown["error"]["message"], "unknown tool `echo`", "{unknown}");
        let wrong = session.ask("tools/call", json!({ "name": "far_echo", "arguments": [] })).await;
        assert_eq!(wrong["error"]["message"], "`arguments` must be an object", "{wrong}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_are_served_only_where_asked_for() {
    let toolbox = Toolbox::start(Handshake::Initialize, &["echo"]).await;
    let folder = tempfile::tempdir().unwrap();
    let config = config(&toolbox, "far", "kept").replace("tools = true", "tools = false");
    let gateway = gateway(folder.path(), &config).await;
    let session = Session::open(&gateway.url, None).await;
    assert_eq!(listed(&session.ask("tools/list", json!({})).await), OWN);
    let unknown = session.ask("tools/call", json!({ "name": "echo" })).await;
    assert_eq!(unknown["error"]["message"], "unknown tool `echo`", "{unknown}");
    assert!(toolbox.requests("tools/list").is_empty() && toolbox.requests("tools/call").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn many_tools_are_listed_page_by_page() {
    let names: Vec<_> = (0..10).map(|number| format!("tool{number}")).collect();
    let toolbox =
        Toolbox::start(Handshake::Initialize, &names.iter().map(|name| &**name).collect::<Vec<_>>()).await;
    let folder = tempfile::tempdir().unwrap();
    let config = format!("[server]\npage_size = 4\n{}", config(&toolbox, "far", "kept"));
    let gateway = gateway(folder.path(), &config).await;
    let session = Session::open(&gateway.url, None).await;
    let (mut found, mut params) = (Vec::new(), json!({}));
    loop {
        let page = session.ask("tools/list", params).await;
        found.extend(listed(&page).into_iter().map(str::to_owned));
        match page["result"]["nextCursor"].as_str() {
            Some(cursor) => params = json!({ "cursor": cursor }),
            None => break,
        }
    }
    assert_eq!(found, [&OWN.map(str::to_owned)[..], &names].concat());
    let refused = session.ask("tools/list", json!({ "cursor": "forged" })).await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_of_two_servers_is_served_from_neither() {
    let one = Toolbox::start(Handshake::Initialize, &["both", "one"]).await;
    let two = Toolbox::start(Handshake::Discover, &["both", "two"]).await;
    let source = |name, toolbox: &Toolbox| remote(name, &toolbox.url, UriMount::Kept, LONG);
    let catalog = Catalog::new(vec![Arc::new(source("one", &one)), Arc::new(source("two", &two))]);
    assert_eq!(names(&catalog).await, ["one", "two"]);
    let called = catalog.call_tool("both", json!({}).as_object().unwrap().clone(), &Context::default()).await;
    assert_eq!(
        called.unwrap_err().to_string(),
        "the tool `both` is served neither from `mcp one` nor from `mcp two`, because both have it; hint: set `uris = \
         \"prefixed\"` for one of them"
    );
    assert!(one.requests("tools/call").is_empty() && two.requests("tools/call").is_empty());
    // While one server is away, the other cannot take its place. A call finds out that it is away.
    drop(one);
    assert!(catalog.call_tool("one", Default::default(), &Context::default()).await.is_err());
    until(async || {
        let listed = catalog.tools(&Context::default()).await.unwrap();
        listed.unavailable.iter().any(|unavailable| unavailable.source == "mcp one")
    })
    .await;
    assert_eq!(names(&catalog).await, ["one", "two"]);
    assert!(catalog.call_tool("both", Default::default(), &Context::default()).await.is_err());
    assert!(two.requests("tools/call").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_of_this_server_are_not_replaced() {
    let toolbox = Toolbox::start(Handshake::Initialize, &["read_resource", "fetch"]).await;
    let folder = tempfile::tempdir().unwrap();
    let mut gateway = gateway(folder.path(), &config(&toolbox, "far", "kept")).await;
    let session = Session::open(&gateway.url, None).await;
    // `fetch` is a tool of this server only with `tools.connector`.
    let list = session.ask("tools/list", json!({})).await;
    assert_eq!(listed(&list), [&OWN[..], &["fetch"]].concat());
    assert!(!list.to_string().contains("The tool read_resource"));
    tokio::time::timeout(LONG, gateway.says("a source has a tool with the name of a tool of this server"))
        .await
        .expect("the log names it");
    session.ask("tools/call", json!({ "name": "read_resource", "arguments": { "uri": "odd://ask" } })).await;
    assert!(toolbox.requests("tools/call").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_decide_who_may_call_a_tool() {
    let toolbox = Toolbox::start(Handshake::Initialize, &["echo", "other"]).await;
    let folder = tempfile::tempdir().unwrap();
    let upstream = config(&toolbox, "far", "prefixed");
    let rule = |uri: &str, action: &str| format!("[[rule]]\nuri = {uri:?}\naction = {action:?}\n");
    let everything = rule("**", "allow");
    let serve = async |rules: &str| gateway(folder.path(), &format!("{upstream}{rules}")).await;

    let denied = serve(&format!("{}{}", rule("libris://tools/far_echo", "deny"), everything)).await;
    let session = Session::open(&denied.url, None).await;
    assert_eq!(listed(&session.ask("tools/list", json!({})).await), [&OWN[..], &["far_other"]].concat());
    let refused = session.ask("tools/call", json!({ "name": "far_echo" })).await;
    assert_eq!(refused["error"]["message"], "unknown tool `far_echo`", "{refused}");
    assert!(toolbox.requests("tools/call").is_empty());

    // Whoever may read only some resources may call no tool of another server, unless a rule allows it.
    let restricted = serve(&rule("far+odd://**", "allow")).await;
    let session = Session::open(&restricted.url, None).await;
    assert_eq!(listed(&session.ask("tools/list", json!({})).await), OWN);
    let refused = session.ask("tools/call", json!({ "name": "far_other" })).await;
    assert_eq!(refused["error"]["message"], "unknown tool `far_other`", "{refused}");
    assert!(toolbox.requests("tools/call").is_empty());

    // A result has no resources that the caller may not read.
    let rules = [rule("libris://tools/far_*", "allow"), rule("far+odd://ask", "allow")].concat();
    let partial = serve(&rules).await;
    let session = Session::open(&partial.url, None).await;
    let called = session.ask("tools/call", json!({ "name": "far_echo", "arguments": { "word": "a" } })).await;
    let content = called["result"]["content"].as_array().unwrap_or_else(|| panic!("{called}"));
    let kinds: Vec<_> = content.iter().map(|block| block["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["text", "resource_link"], "{called}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_away_costs_only_its_own_tools() {
    let gone = Toolbox::start(Handshake::Initialize, &["echo"]).await;
    let here = Toolbox::start(Handshake::Initialize, &["echo"]).await;
    let folder = tempfile::tempdir().unwrap();
    let both = [config(&gone, "gone", "prefixed"), config(&here, "here", "prefixed")].concat();
    let gateway = gateway(folder.path(), &both).await;
    let session = Session::open(&gateway.url, None).await;
    let all = [&OWN[..], &["gone_echo", "here_echo"]].concat();
    assert_eq!(listed(&session.ask("tools/list", json!({})).await), all);
    drop(gone);
    let call = async |name: &str| session.ask("tools/call", json!({ "name": name })).await;
    until(async || call("gone_echo").await["result"]["isError"] == true).await;
    let failed = call("gone_echo").await;
    let text = failed["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("mcp gone") || text.contains("MCP server `gone`"), "{failed}");
    assert_eq!(call("here_echo").await["result"]["isError"], false);
    let list = session.ask("tools/list", json!({})).await;
    assert_eq!(listed(&list)[..3], OWN);
    assert!(listed(&list).contains(&"here_echo"), "{list}");
    until(async || {
        session.ask("tools/list", json!({})).await["result"]["_meta"].to_string().contains("gone")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_tools_are_passed_on() {
    for handshake in [Handshake::Initialize, Handshake::Discover] {
        let toolbox = Toolbox::start(handshake, &["echo"]).await;
        let folder = tempfile::tempdir().unwrap();
        let gateway = gateway(folder.path(), &config(&toolbox, "far", "prefixed")).await;
        let session = Session::open(&gateway.url, None).await;
        let mut events = session.events().await;
        assert_eq!(listed(&session.ask("tools/list", json!({})).await).len(), 4);
        until(async || toolbox.is_listened_to()).await;
        // The gateway may not follow its sources yet when the first change comes.
        let (mut received, mut names) = (String::new(), ["far_echo", "far_even"]);
        let changed = async {
            while !received.contains("notifications/tools/list_changed") {
                tokio::select! {
                    chunk = events.chunk() => {
                        let chunk = chunk.unwrap().expect("the stream goes on");
                        received.push_str(&String::from_utf8_lossy(&chunk));
                    }
                    () = tokio::time::sleep(Duration::from_millis(300)) => {
                        names[1] = if names[1] == "far_even" { "far_odd" } else { "far_even" };
                        toolbox.set_tools(&names.map(|name| name.trim_start_matches("far_")));
                    }
                }
            }
        };
        tokio::time::timeout(LONG, changed).await.expect("the change is passed on");
        assert!(!received.contains("resources/updated"), "{received}");
        until(async || listed(&session.ask("tools/list", json!({})).await) == [&OWN[..], &names].concat())
            .await;
        if handshake == Handshake::Discover {
            let asked = &toolbox.requests("subscriptions/listen")[0]["params"]["notifications"];
            assert_eq!(asked["toolsListChanged"], true, "{asked}");
        }
    }
}

/// Whether the client has cancelled its call of a tool.
fn is_cancelled(toolbox: &Toolbox, tool: &str) -> bool {
    let calls = toolbox.requests("tools/call");
    let call = calls.iter().find(|call| call["params"]["name"] == tool).expect("the call was received");
    let cancelled = toolbox.requests("notifications/cancelled");
    cancelled.iter().any(|one| one["params"]["requestId"] == call["id"])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_takes_too_long_is_cancelled() {
    let toolbox = Toolbox::start(Handshake::Initialize, &["slow", "echo"]).await;
    // Long enough for the request to reach the server on a busy machine.
    let remote = remote("far", &toolbox.url, UriMount::Kept, Duration::from_secs(5));
    remote.identity().await.unwrap();
    let error = remote.call_tool("slow", Default::default(), &Context::default()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the MCP server `far` did not answer within 5s; hint: check the server, or raise `timeout` in an `[[mcp]]` section of `libris.toml`"
    );
    let called = remote.call_tool("echo", Default::default(), &Context::default()).await.unwrap().unwrap();
    assert_eq!(texts(&called), ["null"]);
    until(async || is_cancelled(&toolbox, "slow")).await;
    assert!(!is_cancelled(&toolbox, "echo"), "a call with a result is not cancelled");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancellation_that_is_lost_is_sent_again() {
    let toolbox = Toolbox::start(Handshake::Initialize, &["slow"]).await;
    toolbox.fail("notifications/cancelled", 3);
    // Long enough for the request to reach the server on a busy machine.
    let remote = remote("far", &toolbox.url, UriMount::Kept, Duration::from_secs(5));
    remote.identity().await.unwrap();
    remote.call_tool("slow", Default::default(), &Context::default()).await.unwrap_err();
    until(async || is_cancelled(&toolbox, "slow")).await;
    assert_eq!(toolbox.requests("notifications/cancelled").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_fails_in_the_transport_is_cancelled() {
    let toolbox = Toolbox::start(Handshake::Initialize, &["relayed"]).await;
    let remote = remote("far", &toolbox.url, UriMount::Kept, LONG);
    let error = remote.call_tool("relayed", Default::default(), &Context::default()).await.unwrap_err();
    assert_eq!(error.to_string(), "the MCP server `far` answered with HTTP status 504");
    until(async || is_cancelled(&toolbox, "relayed")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn contents_are_cached_as_long_as_the_server_allows() {
    let toolbox = Toolbox::start(Handshake::Discover, &[]).await;
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), &config(&toolbox, "far", "prefixed")).await;
    let session = Session::open(&gateway.url, None).await;
    let reads = |uri: &str| {
        toolbox.requests("resources/read").iter().filter(|request| request["params"]["uri"] == uri).count()
    };
    for _ in 0..3 {
        for uri in ["far+odd://public", "far+odd://private"] {
            let read = modern(&gateway.url, "resources/read", json!({ "uri": uri }), json!({})).await;
            assert_eq!(read["result"]["contents"][0]["text"], "cacheable", "{read}");
            assert!(
                read["result"]["ttlMs"].as_u64().is_some_and(|ttl| 50_000 < ttl && ttl <= 60_000),
                "{read}"
            );
            assert_eq!(read["result"]["cacheScope"], uri.trim_start_matches("far+odd://"));
        }
    }
    assert_eq!((reads("odd://public"), reads("odd://private")), (1, 3));
    // An update ends the life of what is cached.
    session.ask("resources/subscribe", json!({ "uri": "far+odd://public" })).await;
    until(async || {
        let listening = toolbox.requests("subscriptions/listen");
        listening.iter().any(|request| request.to_string().contains("odd://public"))
    })
    .await;
    let before = reads("odd://public");
    toolbox.notify("notifications/resources/updated", &json!({ "uri": "odd://public" }));
    until(async || {
        session.ask("resources/read", json!({ "uri": "far+odd://public" })).await;
        reads("odd://public") > before
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_shortest_life_of_a_list_counts() {
    let (one, two) =
        (Toolbox::start(Handshake::Discover, &[]).await, Toolbox::start(Handshake::Discover, &[]).await);
    one.set_list_ttl(40_000);
    two.set_list_ttl(20_000);
    let folder = tempfile::tempdir().unwrap();
    let both = [config(&one, "one", "prefixed"), config(&two, "two", "prefixed")].concat();
    let gateway = gateway(folder.path(), &both).await;
    let list = modern(&gateway.url, "resources/list", json!({}), json!({})).await;
    let ttl = list["result"]["ttlMs"].as_u64().unwrap();
    assert!(0 < ttl && ttl <= 20_000, "{list}");
    assert_eq!(list["result"]["cacheScope"], "public", "{list}");
}

/// The result with which the gateway asks for input.
fn assert_asks(answer: &Value) {
    let result = &answer["result"];
    assert_eq!(result["resultType"], "input_required", "{answer}");
    assert_eq!(result["requestState"], "state of odd");
    assert_eq!(result["inputRequests"]["who"]["method"], "elicitation/create");
    assert_eq!(result["inputRequests"]["who"]["params"]["message"], "Who?");
    assert!(result.get("ttlMs").is_none(), "{answer}");
}

fn with_input(mut params: Value, name: &str) -> Value {
    params["inputResponses"] = json!({ "who": { "action": "accept", "content": { "name": name } } });
    params["requestState"] = "state of odd".into();
    params
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_for_input_pass_through_uncached() {
    let toolbox = Toolbox::start(Handshake::Discover, &["ask"]).await;
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), &config(&toolbox, "far", "prefixed")).await;
    let able = json!({ "elicitation": { "form": {} }, "experimental": { "private": {} } });
    let requests = [
        ("resources/read", json!({ "uri": "far+odd://ask" }), "/result/contents/0/text"),
        ("tools/call", json!({ "name": "far_ask" }), "/result/content/0/text"),
        ("prompts/get", json!({ "name": "far_ask" }), "/result/messages/0/content/text"),
    ];
    for (method, params, answer) in requests {
        assert_asks(&modern(&gateway.url, method, params.clone(), able.clone()).await);
        for name in ["ada", "bob"] {
            let given = modern(&gateway.url, method, with_input(params.clone(), name), able.clone()).await;
            let expected = format!("hello {name} with \"state of odd\"");
            assert_eq!(given.pointer(answer), Some(&expected.into()), "{given}");
            // The answer was for this caller: the next one is asked again.
            assert_asks(&modern(&gateway.url, method, params.clone(), able.clone()).await);
        }
        let sent = &toolbox.requests(method)[0]["params"]["_meta"];
        assert_eq!(
            sent["io.modelcontextprotocol/clientCapabilities"],
            json!({ "elicitation": { "form": {} } }),
            "the server learns what the caller can give, and nothing else"
        );
        let malformed = json!({ "inputResponses": [], "uri": "far+odd://ask", "name": "far_ask" });
        let refused = modern(&gateway.url, method, malformed, able.clone()).await;
        assert_eq!(refused["error"]["message"], "`inputResponses` must be an object", "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_cannot_give_input_is_not_asked() {
    let toolbox = Toolbox::start(Handshake::Discover, &["ask"]).await;
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), &config(&toolbox, "far", "prefixed")).await;
    let read = json!({ "uri": "far+odd://ask" });
    let refused = modern(&gateway.url, "resources/read", read.clone(), json!({ "roots": {} })).await;
    assert_eq!(
        refused["error"]["message"],
        "the MCP server `far` asks for input with `elicitation/create`, which the client does not support; hint: use \
         another client",
        "{refused}"
    );
    let session = Session::open(&gateway.url, None).await;
    let refused = session.ask("resources/read", read).await;
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains("which only a client of revision 2026-07-28 can give"), "{message}");
    // A tool of the gateway reads without the input of the caller.
    let params = json!({ "name": "read_resource", "arguments": { "uri": "far+odd://ask" } });
    let told =
        modern(&gateway.url, "tools/call", with_input(params, "ada"), json!({ "elicitation": {} })).await;
    assert_eq!(told["result"]["isError"], true, "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_without_input_of_a_client_fails() {
    let toolbox = Toolbox::start(Handshake::Discover, &["ask"]).await;
    let remote = remote("far", &toolbox.url, UriMount::Kept, LONG);
    let call = async |context: &Context| remote.call_tool("ask", Default::default(), context).await;
    let error = call(&Context::default()).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable(_)), "{error:?}");
    let input = RequestInput { capabilities: r#"{"elicitation":{}}"#.into(), ..RequestInput::default() };
    let error = call(&Context::default().with_input(Some(Arc::new(input)))).await.unwrap_err();
    let Error::InputRequired(required) = error else { panic!("{error:?}") };
    assert_eq!(required.state.as_deref(), Some("state of odd"));
}
