//! Renders Jupyter notebooks cell by cell: text, code and output.

use serde::Deserialize;
use serde_json::Value;

use super::links::LinkBase;
use super::markdown::Pictures;
use super::{highlight, language, markdown, within};
use crate::html;

/// The maximum number of cells that are shown.
const MAX_CELLS: usize = 500;

/// The maximum number of outputs of a cell that are shown.
const MAX_OUTPUTS: usize = 20;

/// The maximum number of bytes of an output that are shown.
const MAX_OUTPUT: usize = 32 << 10;

/// The largest picture that is shown, in characters of Base64.
const MAX_PICTURE: usize = 2 << 20;

#[derive(Deserialize)]
struct NotebookFile {
    cells: Vec<NotebookCell>,
    #[serde(default)]
    metadata: Value,
}

#[derive(Deserialize)]
struct NotebookCell {
    #[serde(rename = "cell_type")]
    kind: String,
    #[serde(default)]
    source: Value,
    #[serde(default)]
    outputs: Vec<Value>,
}

/// Renders a notebook, and returns whether something was left out; `None` if it is not a valid notebook.
pub(super) fn render(out: &mut String, text: &str, base: &LinkBase) -> Option<bool> {
    let notebook: NotebookFile = serde_json::from_str(text).ok()?;
    let name = notebook.metadata.pointer("/kernelspec/language");
    let name = name.or_else(|| notebook.metadata.pointer("/language_info/name")).and_then(Value::as_str);
    let language = language::named(name.unwrap_or("python"));
    let mut is_cut = notebook.cells.len() > MAX_CELLS;
    for cell in notebook.cells.iter().take(MAX_CELLS) {
        let source = joined(&cell.source);
        match &*cell.kind {
            "markdown" => {
                is_cut |= markdown::render(out, &source, base, &mut Pictures::default());
            }
            _ => {
                out.push_str("<div class=\"cell\">");
                highlight::render_block(out, &source, language);
                out.push_str("</div>");
            }
        }
        is_cut |= cell.outputs.len() > MAX_OUTPUTS;
        for output in cell.outputs.iter().take(MAX_OUTPUTS) {
            is_cut |= push_output(out, output);
        }
    }
    Some(is_cut)
}

/// Appends an output, and returns whether something was left out.
fn push_output(out: &mut String, output: &Value) -> bool {
    if let Some(data) = output.pointer("/data/image~1png").map(joined) {
        // The data comes from the notebook and goes into an attribute, so its characters are checked.
        let is_base64 = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '+' | '/' | '=');
        let data: String = data.split_ascii_whitespace().collect();
        if data.len() <= MAX_PICTURE && data.chars().all(is_base64) {
            out.push_str(&format!(
                "<p class=\"out\"><img src=\"data:image/png;base64,{data}\" alt=\"output\"></p>"
            ));
            return false;
        }
    }
    let text = output.get("text").or_else(|| output.pointer("/data/text~1plain"));
    let text = text.or_else(|| output.get("evalue")).map(joined).unwrap_or_default();
    let (shown, is_all) = within(&text, MAX_OUTPUT);
    if !shown.is_empty() {
        out.push_str("<pre class=\"out\">");
        html::push_text(out, shown);
        out.push_str("</pre>");
    }
    !is_all
}

/// The text of a JSON string, or of an array with its lines.
fn joined(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(lines) => lines.iter().filter_map(Value::as_str).collect(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::{LinkBase, render};

    #[test]
    fn cells_are_rendered_with_their_output() {
        let notebook = r##"{"cells":[
            {"cell_type":"markdown","source":["# T\n","x"]},
            {"cell_type":"code","source":"import a","outputs":[
                {"text":["<b>"]},
                {"data":{"image/png":"AA==\n"}},
                {"data":{"image/png":"\" onerror=x"},"text":"y"}]}],"metadata":{}}"##;
        let mut out = String::new();
        assert_eq!(render(&mut out, notebook, &LinkBase::new("file:///a.ipynb")), Some(false));
        assert!(out.contains("<h1 id=\"t\">T</h1>"), "{out}");
        assert!(out.contains("<i class=\"k\">import</i> a"), "{out}");
        assert!(out.contains("<pre class=\"out\">&lt;b&gt;</pre>"), "{out}");
        assert!(out.contains("src=\"data:image/png;base64,AA==\""), "{out}");
        assert!(!out.contains("onerror") && out.contains("<pre class=\"out\">y</pre>"), "{out}");
        assert_eq!(render(&mut out, "{}", &LinkBase::new("a:b")), None);
    }
}
