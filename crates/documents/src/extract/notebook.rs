//! Jupyter notebooks, cell by cell.

use serde_json::Value;

use super::markdown::{count, push_block};
use super::{ExtractFailure, ExtractResult, text};
use crate::{DocumentSection, ExtractedText, Format};

pub(super) fn extract(data: &[u8]) -> ExtractResult<ExtractedText> {
    let notebook: Value = serde_json::from_str(&text::decode(data, None)).map_err(ExtractFailure::damaged)?;
    let language = notebook["metadata"]["kernelspec"]["language"]
        .as_str()
        .or_else(|| notebook["metadata"]["language_info"]["name"].as_str())
        .unwrap_or("python");
    // Before version 4 of the format, the cells are in worksheets.
    let cells = notebook["cells"].as_array().or_else(|| notebook["worksheets"][0]["cells"].as_array());
    let cells = cells.ok_or_else(|| ExtractFailure::damaged("it has no cells"))?;
    let mut images = 0;
    let sections =
        cells.iter().map(|cell| DocumentSection::new(cell_text(cell, language, &mut images))).collect();
    let left_out = count(images, "image").into_iter().collect();
    let title = notebook["metadata"]["title"].as_str().map(str::to_owned);
    Ok(ExtractedText { format: Format::Ipynb, title, sections, left_out })
}

/// Text without the escape sequences (ECMA-48) that programs print for colours.
fn without_escapes(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut parts = text.split("\u{1b}[");
    out.push_str(parts.next().unwrap_or_default());
    for part in parts {
        // Parameters, and one final byte.
        let end = part.find(|letter: char| ('@'..='~').contains(&letter));
        out.push_str(end.map_or("", |end| &part[end + 1..]));
    }
    out
}

fn cell_text(cell: &Value, language: &str, images: &mut usize) -> String {
    let source = lines(if cell["source"].is_null() { &cell["input"] } else { &cell["source"] });
    match cell["cell_type"].as_str() {
        Some("code") => {
            let mut out = fenced(language, &source);
            for output in cell["outputs"].as_array().into_iter().flatten() {
                // Before version 4 of the format, the data is in the output itself.
                let data = if output["data"].is_object() { &output["data"] } else { output };
                let has_image = data.as_object().is_some_and(|data| {
                    data.keys()
                        .any(|key| key.starts_with("image/") || matches!(&**key, "png" | "jpeg" | "svg"))
                });
                *images += usize::from(has_image);
                let text = match output["output_type"].as_str() {
                    Some("stream") => lines(&output["text"]),
                    Some("error" | "pyerr") => {
                        let part = |key: &str| output[key].as_str().unwrap_or_default();
                        format!("{}: {}", part("ename"), part("evalue"))
                    }
                    _ if data["text/markdown"].is_null() => {
                        lines(if data["text/plain"].is_null() { &data["text"] } else { &data["text/plain"] })
                    }
                    _ => lines(&data["text/markdown"]),
                };
                push_block(&mut out, &fenced("", &without_escapes(&text)));
            }
            out
        }
        Some("heading") => {
            let level = cell["level"].as_u64().and_then(|level| usize::try_from(level).ok()).unwrap_or(1);
            super::markdown::heading(level, &source)
        }
        _ => source,
    }
}

/// The text of a JSON string, or of an array with its lines.
fn lines(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(lines) => lines.iter().filter_map(Value::as_str).collect(),
        _ => String::new(),
    }
}

fn fenced(language: &str, text: &str) -> String {
    let text = text.trim_end();
    if text.is_empty() {
        return String::new();
    }
    let fence = if text.contains("```") { "````" } else { "```" };
    format!("{fence}{language}\n{text}\n{fence}\n")
}

#[cfg(test)]
mod tests {
    use super::without_escapes;

    #[test]
    fn colours_of_a_terminal_are_left_out() {
        assert_eq!(without_escapes("\u{1b}[48;5;16mred\u{1b}[0m [1]\u{1b}[K"), "red [1]");
        assert_eq!(without_escapes("a\u{1b}[1"), "a");
    }
}
