//! The requests sent to both servers, in this order, in every revision and over every transport.

use serde_json::{Value, json};

/// The members of `_meta` that revision 2026-07-28 requires.
pub(crate) const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
pub(crate) const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

/// A placeholder for the last cursor that the server returned.
pub(crate) const LAST_CURSOR: &str = "<last>";

pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) id: Value,
    pub(crate) method: &'static str,
    pub(crate) params: Option<Value>,
}

/// Lines that are not requests, each the last of its connection: servers need not respond to them.
pub(crate) const LAST_WORDS: &[(&str, &str)] = &[
    ("malformed", r#"{"jsonrpc":"2.0","id":7,"method":"ping","#),
    ("no version", r#"{"id":7,"method":"ping"}"#),
    ("batch", r#"[{"jsonrpc":"2.0","id":7,"method":"ping"}]"#),
];

pub(crate) fn cases() -> Vec<Case> {
    let ask = |name, method, params| Case { name, id: json!(7), method, params: Some(params) };
    let bare = |name, method| Case { name, id: json!(7), method, params: None };
    let complete = |name, reference: Value, variable, typed| {
        ask(
            name,
            "completion/complete",
            json!({"ref": reference, "argument": {"name": variable, "value": typed}}),
        )
    };
    let template = json!({"type": "ref/resource", "uri": "note://numbered/{id}"});
    let meta = |name, meta: Value| {
        let nothing = complete(name, template.clone(), "id", "x");
        let params = nothing.params.map(|mut params| {
            params["_meta"] = meta;
            params
        });
        Case { params, ..nothing }
    };
    vec![
        bare("list without params", "resources/list"),
        ask("list", "resources/list", json!({})),
        ask("list the second page", "resources/list", json!({"cursor": LAST_CURSOR})),
        ask("list from a forged cursor", "resources/list", json!({"cursor": "forged"})),
        ask("list from a cursor that is no text", "resources/list", json!({"cursor": 1})),
        ask("templates", "resources/templates/list", json!({})),
        ask("read text", "resources/read", json!({"uri": "note://a"})),
        ask("read a blob", "resources/read", json!({"uri": "note://b"})),
        ask("read nothing", "resources/read", json!({"uri": "note://c"})),
        ask("read from a template", "resources/read", json!({"uri": "note://numbered/12"})),
        ask("read what is not there", "resources/read", json!({"uri": "note://missing"})),
        ask("read without a uri", "resources/read", json!({})),
        ask("read a uri that is no text", "resources/read", json!({"uri": 1})),
        bare("read without params", "resources/read"),
        complete("complete", template.clone(), "id", "1"),
        complete("complete to nothing", template.clone(), "id", "x"),
        complete("complete an unknown variable", template.clone(), "nosuch", ""),
        complete(
            "complete an unknown template",
            json!({"type": "ref/resource", "uri": "note://{x}"}),
            "x",
            "",
        ),
        complete("complete a prompt", json!({"type": "ref/prompt", "name": "nosuch"}), "x", ""),
        complete("complete an unknown kind", json!({"type": "ref/other"}), "x", ""),
        ask("tools", "tools/list", json!({})),
        ask("prompts", "prompts/list", json!({})),
        ask("call a tool", "tools/call", json!({"name": "nosuch"})),
        ask("get a prompt", "prompts/get", json!({"name": "nosuch"})),
        ask("subscribe", "resources/subscribe", json!({"uri": "note://a"})),
        ask("subscribe to what is not there", "resources/subscribe", json!({"uri": "note://missing"})),
        ask("subscribe to nothing", "resources/subscribe", json!({})),
        ask("unsubscribe", "resources/unsubscribe", json!({"uri": "note://a"})),
        ask("unsubscribe again", "resources/unsubscribe", json!({"uri": "note://a"})),
        ask("set the log level", "logging/setLevel", json!({"level": "info"})),
        bare("ping", "ping"),
        bare("discover", "server/discover"),
        bare("unknown method", "nosuch/method"),
        Case { id: json!("seven"), ..complete("text as id", template.clone(), "id", "x") },
        meta("meta without a version", json!({CAPABILITIES: {}})),
        meta("meta without capabilities", json!({VERSION: "2026-07-28"})),
        meta("meta without a client", json!({VERSION: "2026-07-28", CAPABILITIES: {}})),
        meta("meta with a version to come", json!({VERSION: "2099-01-01", CAPABILITIES: {}})),
    ]
}
