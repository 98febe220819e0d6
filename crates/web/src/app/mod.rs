//! The picker as an MCP App. The chat host shows the same page, and forwards the page's requests as calls of the tool
//! `picker_request`.

mod document;

use std::sync::LazyLock;

use async_trait::async_trait;
use libris_wire::{AppPage, Call, CompletionParams, Failure, Reply, ServerInfo};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::preview::preview;
use crate::read::{object, parse};

/// The extension that defines the method `skills/list`.
const SKILLS: &str = "io.modelcontextprotocol/skills";

/// The page, assembled once.
static DOCUMENT: LazyLock<String> = LazyLock::new(document::assemble);

/// The picker inside a chat.
#[derive(Debug)]
pub struct PickerApp;

/// The arguments of the tool: a request of the page.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AppRequest<'a> {
    method: String,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
}

/// The parameters of the requests that have a URI or a cursor.
#[derive(Default, Deserialize)]
struct AppParams {
    uri: Option<String>,
    cursor: Option<String>,
}

#[async_trait]
impl AppPage for PickerApp {
    fn document(&self) -> &'static str {
        &DOCUMENT
    }

    async fn answer(&self, call: &Call, server: &ServerInfo, arguments: &str) -> Result<Value, Failure> {
        let request: AppRequest<'_> = serde_json::from_str(arguments)
            .map_err(|cause| Failure::invalid(format!("the request is invalid: {cause}")))?;
        let (method, params) = (&*request.method, request.params.map_or("{}", RawValue::get));
        let view = call.view();
        let parse_params = || -> Result<AppParams, Failure> {
            serde_json::from_str(params)
                .map_err(|cause| Failure::invalid(format!("`params` is invalid: {cause}")))
        };
        let reply = match method {
            "server/discover" => return Ok(discover(call, server).await),
            "picker/preview" => {
                let preview = preview(call, params.as_bytes()).await?;
                return serde_json::to_value(preview).map_err(|_| not_encoded());
            }
            "completion/complete" => view.complete(call, &CompletionParams::parse(params)?).await?,
            "resources/list" => view.list(call, parse_params()?.cursor.as_deref()).await?,
            "resources/templates/list" => view.templates(call, parse_params()?.cursor.as_deref()).await?,
            "resources/read" => {
                let uri = parse_params()?.uri.ok_or_else(|| Failure::invalid("`uri` is missing"))?;
                view.read(call, &uri).await?
            }
            "resources/directory/read" | "skills/list" | "tools/list"
                if view.answers(call.revision, method) =>
            {
                view.call(call, method, params).await?
            }
            _ => return Err(Failure::invalid(format!("the picker does not support the method `{method}`"))),
        };
        result(&reply)
    }
}

/// The failure if JSON that this program generated cannot be encoded or parsed, which is a bug.
fn not_encoded() -> Failure {
    Failure::Internal { message: "the response could not be encoded".to_owned(), data: None }
}

/// The result of `server/discover`, as far as the page needs it.
async fn discover(call: &Call, server: &ServerInfo) -> Value {
    let ServerInfo { name, title, version, description, .. } = server;
    let mut info = json!({ "name": name, "version": version });
    for (member, value) in [("title", title), ("description", description)] {
        if let Some(value) = value {
            info[member] = value.clone().into();
        }
    }
    let view = call.view();
    let mut result = json!({ "serverInfo": info, "capabilities": {} });
    if view.capabilities().tools.is_some() {
        result["capabilities"]["tools"] = json!({});
    }
    if view.answers(call.revision, "skills/list") {
        result["capabilities"]["extensions"] = json!({ SKILLS: {} });
    }
    if let Some(instructions) = view.instructions(call).await.or_else(|| server.instructions.clone()) {
        result["instructions"] = instructions.into();
    }
    result
}

/// Converts a reply of the view to the JSON result that an MCP client would receive.
fn result(reply: &Reply) -> Result<Value, Failure> {
    let mut result: Map<String, Value> = parse(&reply.members).ok_or_else(not_encoded)?;
    if !reply.meta.is_empty() {
        let meta = serde_json::from_slice(&object(&reply.meta)).map_err(|_| not_encoded())?;
        result.insert("_meta".to_owned(), meta);
    }
    Ok(result.into())
}
