//! The result of a tool call, encoded with the fields of each protocol revision.

use bytes::Bytes;
use libris_core::Error;
use libris_wire::{Facts, Failure, Members, Writer, escape};
use serde_json::{Value, json};

use crate::server::to_failure;

/// The result of a tool call.
#[derive(Debug, Default)]
pub(crate) struct ToolOutput {
    /// The text, which is all that some hosts show to the model.
    pub(crate) text: String,
    /// A picture after the text.
    pub(crate) picture: Option<Picture>,
    /// Links to the resources that the result is about.
    pub(crate) links: Vec<ResourceLink>,
    /// The same as the text, as JSON for programs.
    pub(crate) structured: Option<Value>,
    /// The URIs of the resources of a bundle, each with the size of its passages in bytes, for the audit log.
    pub(crate) quoted: Vec<(String, usize)>,
}

/// A picture as its bytes.
#[derive(Debug)]
pub(crate) struct Picture {
    pub(crate) mime: String,
    pub(crate) data: Bytes,
}

/// A link to a resource.
#[derive(Debug, Default)]
pub(crate) struct ResourceLink {
    pub(crate) uri: String,
    pub(crate) name: String,
    pub(crate) mime: Option<String>,
    pub(crate) size: Option<u64>,
}

/// Why a tool call has no result.
#[derive(Debug)]
pub(crate) enum ToolError {
    /// A message for the model: what is wrong, and what to do instead.
    Told(String),
    /// A message for the model: there is no such resource, with similar URIs.
    Missing(String),
    /// An error of the protocol, for the host.
    Failed(Failure),
}

impl ToolError {
    pub(crate) fn told(message: impl Into<String>) -> Self {
        Self::Told(message.into())
    }
}

impl From<Error> for ToolError {
    /// The model can act on most errors; the host must act on missing scopes and on a server that is busy.
    fn from(error: Error) -> Self {
        match to_failure(error) {
            failure @ (Failure::ScopeRequired { .. } | Failure::Busy { .. }) => Self::Failed(failure),
            Failure::NotFound { uri, hint } => {
                let hint = hint.map(|hint| format!(": {hint}")).unwrap_or_default();
                Self::Told(format!("no resource at `{uri}`{hint}"))
            }
            Failure::Invalid { message } | Failure::Internal { message, .. } => Self::Told(message),
            failure => Self::Failed(failure),
        }
    }
}

impl ToolOutput {
    /// The members of the result; `facts` are the features of the protocol revision.
    pub(crate) fn encode(self, facts: &Facts) -> Members {
        let mut out = Writer::default();
        out.json().extend_from_slice(b"\"content\":[{\"type\":\"text\",\"text\":");
        out.text(self.text);
        out.json().push(b'}');
        if let Some(Picture { mime, data }) = self.picture {
            let json = out.json();
            json.extend_from_slice(b",{\"type\":\"image\",\"mimeType\":");
            escape(json, &mime);
            json.extend_from_slice(b",\"data\":");
            out.blob(data);
            out.json().push(b'}');
        }
        let json = out.json();
        for link in self.links.iter().filter(|_| facts.structured) {
            json.push(b',');
            link.write(json);
        }
        json.push(b']');
        if let Some(structured) = self.structured.as_ref().filter(|_| facts.structured) {
            json.extend_from_slice(format!(",\"structuredContent\":{structured}").as_bytes());
        }
        json.extend_from_slice(b",\"isError\":false");
        out.finish()
    }
}

impl ResourceLink {
    fn write(&self, json: &mut Vec<u8>) {
        json.extend_from_slice(b"{\"type\":\"resource_link\",\"uri\":");
        escape(json, &self.uri);
        json.extend_from_slice(b",\"name\":");
        escape(json, &self.name);
        if let Some(mime) = &self.mime {
            json.extend_from_slice(b",\"mimeType\":");
            escape(json, mime);
        }
        if let Some(size) = self.size {
            json.extend_from_slice(format!(",\"size\":{size}").as_bytes());
        }
        json.push(b'}');
    }
}

/// The members of the result of a failed call.
pub(crate) fn error(message: &str) -> Members {
    let content = json!([{ "type": "text", "text": message }]);
    format!("\"content\":{content},\"isError\":true").into_bytes().into()
}

/// A request for a tool in the text of a result: `read_resource {"uri":"…"}`.
pub(crate) fn request(tool: &str, arguments: &Value) -> String {
    format!("{tool} {arguments}")
}
