//! The picker as an MCP App: the same page inside a chat, whose host passes its requests on as calls of a tool.

mod document;

use std::sync::LazyLock;

use async_trait::async_trait;
use libris_wire::{AppPage, Call, CompletionParams, Failure, Reply, ServerInfo};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::preview::Previews;
use crate::read::{object, parse};

/// The extension whose method `skills/list` is.
const SKILLS: &str = "io.modelcontextprotocol/skills";

/// The page, assembled once.
static DOCUMENT: LazyLock<String> = LazyLock::new(document::assemble);

/// The picker inside a chat.
#[derive(Debug, Default)]
pub struct PickerApp {
    previews: Previews,
}

/// A request of the page, as the arguments of the tool.
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
        let named = || -> Result<AppParams, Failure> {
            serde_json::from_str(params)
                .map_err(|cause| Failure::invalid(format!("`params` is invalid: {cause}")))
        };
        let reply = match method {
            "server/discover" => return Ok(introduction(call, server).await),
            "picker/preview" => {
                let preview = self.previews.preview(call, params.as_bytes()).await?;
                return serde_json::to_value(preview).map_err(|_| unreadable());
            }
            "completion/complete" => view.complete(call, &CompletionParams::parse(params)?).await?,
            "resources/list" => view.list(call, named()?.cursor.as_deref()).await?,
            "resources/templates/list" => view.templates(call, named()?.cursor.as_deref()).await?,
            "resources/read" => {
                let uri = named()?.uri.ok_or_else(|| Failure::invalid("`uri` is missing"))?;
                view.read(call, &uri).await?
            }
            "resources/directory/read" | "skills/list" | "tools/list"
                if view.answers(call.revision, method) =>
            {
                view.call(call, method, params).await?
            }
            _ => return Err(Failure::invalid(format!("the picker has no request `{method}`"))),
        };
        result(&reply)
    }
}

fn unreadable() -> Failure {
    Failure::Internal { message: "the response could not be read".to_owned(), data: None }
}

/// What the page shows of the server, and whether there are tools.
async fn introduction(call: &Call, server: &ServerInfo) -> Value {
    let ServerInfo { name, title, version, description, .. } = server;
    let mut info = json!({ "name": name, "version": version });
    for (member, value) in [("title", title), ("description", description)] {
        if let Some(value) = value {
            info[member] = value.clone().into();
        }
    }
    let view = call.view();
    let mut introduction = json!({ "serverInfo": info, "capabilities": {} });
    if view.capabilities().tools.is_some() {
        introduction["capabilities"]["tools"] = json!({});
    }
    if view.answers(call.revision, "skills/list") {
        introduction["capabilities"]["extensions"] = json!({ SKILLS: {} });
    }
    if let Some(instructions) = view.instructions(call).await.or_else(|| server.instructions.clone()) {
        introduction["instructions"] = instructions.into();
    }
    introduction
}

/// A reply of the view as the result that a client would receive.
fn result(reply: &Reply) -> Result<Value, Failure> {
    let mut result: Map<String, Value> = parse(&reply.members).ok_or_else(unreadable)?;
    if !reply.meta.is_empty() {
        let meta = serde_json::from_slice(&object(&reply.meta)).map_err(|_| unreadable())?;
        result.insert("_meta".to_owned(), meta);
    }
    Ok(result.into())
}
