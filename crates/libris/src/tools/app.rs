//! The tools of the picker, which is an MCP App: one tool opens the picker, and its page sends requests through the
//! other.

use libris_core::{Content, Uri};
use libris_wire::{APP_MEDIA_TYPE, Facts, Failure};
use serde_json::{Value, json};

use super::arguments::ToolArguments;
use super::output::{ToolError, ToolOutput};
use super::{ToolCall, definition};

/// The URI of the page.
pub(crate) const PICKER_URI: &str = "ui://libris/picker";

/// A tool of the picker. It is listed only to hosts that show apps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AppTool {
    /// Opens the picker. Models call this tool.
    Open,
    /// Answers requests of the page that hosts do not forward. The page calls this tool.
    Request,
}

impl AppTool {
    pub(crate) const ALL: [Self; 2] = [Self::Open, Self::Request];

    /// The name of the tool.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Open => "open_picker",
            Self::Request => "picker_request",
        }
    }

    /// The tool of this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    /// The definition, as `tools/list` returns it.
    pub(super) fn definition(self, facts: &Facts) -> Value {
        let text = |description: &str| json!({ "type": "string", "description": description });
        let (title, description, properties, required, visibility) = match self {
            Self::Open => (
                "Open the picker",
                "Show the user a page on which they browse, search, preview and select the resources of this server. Call \
                 this when the user wants to look around or to choose resources themselves. What they select becomes part \
                 of the context. To find something yourself, call `search_resources` instead.",
                json!({
                    "query": text("What the page searches for when it opens."),
                    "uri": text("The URI of the resource or folder that the page opens."),
                }),
                json!([]),
                json!(["model"]),
            ),
            Self::Request => (
                "Answer the picker",
                "Answers requests of the page that `open_picker` shows. Not for models.",
                json!({
                    "method": text("The method, such as `resources/directory/read`."),
                    "params": { "type": "object", "description": "The parameters of the method." },
                }),
                json!(["method"]),
                json!(["app"]),
            ),
        };
        let input = json!({
            "type": "object", "properties": properties, "required": required, "additionalProperties": false,
        });
        let output = json!({ "type": "object" });
        let mut tool = definition::assembled(self.name(), title, description, input, output, facts);
        tool["_meta"] = json!({ "ui": { "resourceUri": PICKER_URI, "visibility": visibility } });
        tool
    }
}

impl ToolCall<'_> {
    /// Calls a tool of the picker.
    pub(crate) async fn run_app(&self, tool: AppTool, arguments: &str) -> Result<ToolOutput, ToolError> {
        match tool {
            AppTool::Open => opened(arguments),
            AppTool::Request => self.answer_app(arguments).await,
        }
    }

    async fn answer_app(&self, arguments: &str) -> Result<ToolOutput, ToolError> {
        let page = self
            .inner
            .config
            .app
            .as_ref()
            .ok_or_else(|| ToolError::told("there is no picker here: use the other tools"))?;
        let answer = page.answer(self.call, &self.inner.info(), arguments).await.map_err(page_error)?;
        let has_structure = self.call.revision.facts().structured;
        let text = if has_structure { "answered".to_owned() } else { answer.to_string() };
        Ok(ToolOutput { text, structured: Some(answer), ..ToolOutput::default() })
    }
}

/// The result of opening the picker. The host shows the page; the text tells the model what to expect.
fn opened(arguments: &str) -> Result<ToolOutput, ToolError> {
    let arguments = ToolArguments::parse(arguments, &["query", "uri"])?;
    let mut shown = json!({});
    for name in ["query", "uri"] {
        if let Some(text) = arguments.text(name)? {
            shown[name] = text.into();
        }
    }
    let text = "If this host shows apps, the user now sees the picker. What they select becomes part of the context; wait for \
                their next message. If it does not, call `list_resources` or `search_resources`, and show the user what \
                you find."
        .to_owned();
    Ok(ToolOutput { text, structured: Some(shown), ..ToolOutput::default() })
}

/// Turns a failure into an error that the page can show, except for missing scopes and a busy server, on which the host
/// must act.
fn page_error(failure: Failure) -> ToolError {
    match failure {
        Failure::NotFound { hint, .. } => ToolError::Told(match hint {
            Some(hint) => format!("resource not found: {hint}"),
            None => "resource not found".to_owned(),
        }),
        Failure::Invalid { message } | Failure::Internal { message, .. } => ToolError::Told(message),
        failure => ToolError::Failed(failure),
    }
}

/// The content of the page.
pub(crate) fn content(document: &str) -> Option<Content> {
    let mut content = Content::text(Uri::parse(PICKER_URI).ok()?, APP_MEDIA_TYPE, document);
    let ui = json!({ "prefersBorder": true, "permissions": { "clipboardWrite": {} } });
    content.meta = Some([("ui".to_owned(), ui)].into_iter().collect());
    Some(content)
}
