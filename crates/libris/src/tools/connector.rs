//! The tools `search` and `fetch`, in the shape that the connectors of ChatGPT require.
//!
//! Both return one text block with JSON. `id` is the URI of a resource, and `url` is the link that ChatGPT cites.

use libris_core::{SearchQuery, Uri};
use serde_json::{Value, json};

use super::ToolCall;
use super::arguments::ToolArguments;
use super::output::{ToolError, ToolOutput};
use super::untrusted::one_line;
use super::{MAX_DESCRIPTION, MAX_TITLE};
use crate::unserved::root;

/// The largest number of results of a search.
const HITS: usize = 10;

/// The longest text of a document, in bytes.
const MAX_TEXT: usize = 256 << 10;

impl ToolCall<'_> {
    pub(super) async fn connector_search(&self, arguments: &str) -> Result<ToolOutput, ToolError> {
        let arguments = ToolArguments::parse(arguments, &["query"])?;
        let text = arguments.required("query", "rotate the keys")?;
        let answer = self.found(&SearchQuery::new(text, HITS)).await?;
        let results = answer.hits.iter().map(|hit| {
            let snippet: Vec<_> =
                hit.snippet.iter().map(|line| one_line(&line.text, MAX_DESCRIPTION)).collect();
            json!({
                "id": hit.uri,
                "title": one_line(hit.title.as_deref().unwrap_or(&hit.name), MAX_TITLE),
                "text": snippet.join("\n"),
                "url": self.citation(&hit.uri),
            })
        });
        Ok(in_one_block(json!({ "results": results.collect::<Vec<_>>() })))
    }

    pub(super) async fn connector_fetch(&self, arguments: &str) -> Result<ToolOutput, ToolError> {
        let arguments = ToolArguments::parse(arguments, &["id"])?;
        let id = arguments.required("id", "file:///handbook/README.md")?;
        let read = json!({ "uri": id, "max_bytes": MAX_TEXT }).to_string();
        let (output, _) = self.read(&read).await?;
        let Some(Value::Object(mut read)) = output.structured else { return Ok(output) };
        let name = output.links.first().map(|link| link.name.clone()).unwrap_or_default();
        let mut metadata = json!({});
        for key in ["mimeType", "lines", "totalLines"] {
            if let Some(value) = read.remove(key) {
                metadata[key] = value;
            }
        }
        let text = read.remove("text").unwrap_or_default();
        let (title, url) = (one_line(&name, MAX_TITLE), self.citation(id));
        Ok(in_one_block(json!({ "id": id, "title": title, "text": text, "url": url, "metadata": metadata })))
    }

    /// The link by which ChatGPT cites a resource.
    fn citation(&self, uri: &str) -> String {
        let Some(base) = &self.inner.config.tools.citation_base else { return uri.to_owned() };
        let path = uri.strip_prefix(root(uri)).unwrap_or(uri);
        match (base.contains("{uri}"), base.contains("{path}")) {
            (false, false) => format!("{}/{path}", base.trim_end_matches('/')),
            _ => base.replace("{uri}", &encoded(uri)).replace("{path}", path),
        }
    }
}

/// A URI, encoded as the value of a query parameter.
fn encoded(uri: &str) -> String {
    let encoded = Uri::encode_segment(uri.as_bytes());
    encoded.replace('&', "%26").replace('+', "%2B").replace('=', "%3D")
}

/// An output with this JSON as its only block, and as its structured content.
fn in_one_block(content: Value) -> ToolOutput {
    ToolOutput { text: content.to_string(), structured: Some(content), ..ToolOutput::default() }
}
