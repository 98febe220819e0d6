//! The results of `initialize` and `server/discover`, with which a server introduces itself.

use bytes::Bytes;
use libris_core::Freshness;
use serde_json::{Value, json};

use super::Protocol;
use crate::members::Members;
use crate::service::{Capabilities, Reply, ServerInfo, ServiceView};
use crate::{APPS_EXTENSION, Call, Revision};

impl Protocol {
    pub(super) async fn initialize(&self, call: &Call, revision: Revision, shows_apps: bool) -> Reply {
        let mut result = json!({
            "protocolVersion": revision.facts().date,
            "capabilities": capabilities(&*call.view, revision, shows_apps),
            "serverInfo": implementation(&self.info, revision),
        });
        self.add_instructions(call, &mut result).await;
        Reply { members: members(&result), freshness: None, meta: Bytes::new() }
    }

    pub(super) async fn discover(&self, call: &Call, shows_apps: bool) -> Reply {
        let supported: Vec<_> = Revision::ALL.iter().map(|revision| revision.facts().date).collect();
        let mut result = json!({
            "supportedVersions": supported,
            "capabilities": capabilities(&*call.view, call.revision, shows_apps),
        });
        self.add_instructions(call, &mut result).await;
        Reply { members: members(&result), freshness: Some(Freshness::default()), meta: Bytes::new() }
    }

    /// Adds the instructions for the model to a result.
    async fn add_instructions(&self, call: &Call, result: &mut Value) {
        let instructions = call.view.instructions(call).await.or_else(|| self.info.instructions.clone());
        if let Some(instructions) = instructions {
            result["instructions"] = instructions.into();
        }
    }
}

/// The capabilities in the format of `revision`. The apps extension is declared only to clients that show apps.
fn capabilities(view: &dyn ServiceView, revision: Revision, shows_apps: bool) -> Value {
    let Capabilities { live, tools, prompts, mut extensions } = view.capabilities();
    extensions.retain(|name, _| shows_apps || name != APPS_EXTENSION);
    let resources = if live { json!({ "subscribe": true, "listChanged": true }) } else { json!({}) };
    let mut object = json!({ "resources": resources });
    for (name, capability) in [("tools", tools), ("prompts", prompts)] {
        if let Some(capability) = capability {
            object[name] = capability;
        }
    }
    if revision.facts().completions {
        object["completions"] = json!({});
    }
    if revision.facts().extensions && !extensions.is_empty() {
        object["extensions"] = json!(extensions);
    }
    object
}

/// The implementation object in the format of `revision`.
pub(super) fn implementation(info: &ServerInfo, revision: Revision) -> Value {
    let facts = revision.facts();
    let mut object = json!({ "name": info.name, "version": info.version });
    if let Some(title) = info.title.as_ref().filter(|_| facts.titles) {
        object["title"] = title.clone().into();
    }
    // Revision 2025-11-25 added both `icons` and this `description`.
    if let Some(description) = info.description.as_ref().filter(|_| facts.icons) {
        object["description"] = description.clone().into();
    }
    object
}

/// The members of a JSON object, without its braces.
fn members(object: &Value) -> Members {
    let text = Bytes::from(object.to_string());
    text.slice(1..text.len() - 1).into()
}
