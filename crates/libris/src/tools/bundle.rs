//! The tool `bundle_resources`.

use serde_json::{Value, json};

use super::ToolCall;
use super::arguments::ToolArguments;
use super::output::{ResourceLink, ToolError, ToolOutput};
use crate::bundle::{Bundle, BundleFormat, BundlePassage, BundleRequest};

/// The largest budget of the tool, in tokens.
pub(super) const MAX_BUDGET: usize = 50_000;

impl ToolCall<'_> {
    pub(super) async fn bundle(&self, arguments: &str) -> Result<ToolOutput, ToolError> {
        let arguments = ToolArguments::parse(arguments, &["query", "budget", "scope"])?;
        let budget = arguments.number("budget", *BundleRequest::BUDGETS.start()..=MAX_BUDGET)?;
        let request = BundleRequest {
            query: arguments.required("query", "how are keys rotated?")?.to_owned(),
            budget: budget.unwrap_or(BundleRequest::DEFAULT_BUDGET),
            uri_prefix: arguments.text("scope")?.map(str::to_owned),
            mimes: Vec::new(),
        };
        self.inner.start_search().await;
        let bundle = self.view.bundle(&request, self.context).await?;
        if bundle.passages.is_empty() {
            let hint = format!("No passage matches. {}", self.roots().await?);
            let structured = json!({ "passages": [], "tokens": 0, "hint": hint });
            return Ok(ToolOutput { text: hint, structured: Some(structured), ..ToolOutput::default() });
        }
        Ok(output(&bundle))
    }
}

fn output(bundle: &Bundle) -> ToolOutput {
    let mut links: Vec<ResourceLink> = Vec::new();
    for BundlePassage { uri, title, mime, .. } in &bundle.passages {
        if !links.iter().any(|link| link.uri == *uri) {
            links.push(ResourceLink {
                uri: uri.clone(),
                name: title.clone(),
                mime: mime.clone(),
                size: None,
            });
        }
    }
    let size = |uri: &str| {
        let own = bundle.passages.iter().filter(|passage| passage.uri == uri);
        own.map(|passage| passage.text.len()).sum::<usize>()
    };
    let quoted = links.iter().map(|link| (link.uri.clone(), size(&link.uri))).collect();
    let passages: Vec<_> = bundle.passages.iter().map(structured).collect();
    ToolOutput {
        text: bundle.to_text(BundleFormat::Markdown),
        links,
        structured: Some(json!({ "passages": passages, "tokens": bundle.tokens })),
        picture: None,
        quoted,
    }
}

fn structured(passage: &BundlePassage) -> Value {
    let BundlePassage { uri, title, mime, lines: (first, last), text, reason, tokens, .. } = passage;
    let lines = format!("{first}-{last}");
    let mut structured = json!({ "uri": uri, "title": title, "lines": lines, "text": text, "reason": reason, "tokens": tokens });
    if let Some(mime) = mime {
        structured["mimeType"] = mime.as_str().into();
    }
    structured
}
