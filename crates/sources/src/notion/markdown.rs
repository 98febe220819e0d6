//! Renders blocks as Markdown.

use serde_json::Value;

use super::text::{self, escape, link, markdown, paragraph, plain};

/// The key under which the fetched children of a block are inserted.
pub(super) const CHILDREN: &str = "children";

/// The Markdown of a block.
struct RenderedBlock {
    text: String,
    /// The kind of list, if the block is a list item.
    list: Option<&'static str>,
}

/// Renders blocks with their children, without a final line terminator.
pub(super) fn blocks(blocks: &[Value]) -> String {
    let mut out = String::new();
    // The kind of list of the last block: `Some(None)` if that block is not a list item, `None` before the first
    // block.
    let mut last: Option<Option<&'static str>> = None;
    let mut number = 0;
    for block in blocks {
        number = if block["type"] == "numbered_list_item" { number + 1 } else { 0 };
        let Some(written) = block_of(block, number) else { continue };
        match last {
            None => {}
            // Items of one list are not separated by empty lines.
            Some(list) if list.is_some() && list == written.list => out.push('\n'),
            // Without a separator, Markdown merges two adjacent lists.
            Some(Some(_)) if written.list.is_some() => out += "\n\n<!-- -->\n\n",
            Some(_) => out += "\n\n",
        }
        out += &written.text;
        if is_truncated(block) {
            out += "\n\n<!-- what stands below this is left out -->";
        }
        last = Some(written.list);
    }
    out
}

/// Whether the children of a block were not fetched: they are nested too deep, or were deleted meanwhile.
fn is_truncated(block: &Value) -> bool {
    let is_link = matches!(block["type"].as_str(), Some("child_page" | "child_database"));
    block["has_children"] == true && block.get(CHILDREN).is_none() && !is_link
}

/// Renders a block with its children; `None` if nothing is shown. `number` is its number in a numbered list.
fn block_of(block: &Value, number: usize) -> Option<RenderedBlock> {
    let kind = block["type"].as_str()?;
    let data = &block[kind];
    let below = block[CHILDREN].as_array().map(Vec::as_slice).unwrap_or_default();
    let children = blocks(below);
    let rich = || markdown(&data["rich_text"]);
    let written = match kind {
        "bulleted_list_item" => return Some(item("-", "bulleted", &paragraph(rich()), below)),
        "numbered_list_item" => {
            return Some(item(&format!("{number}."), "numbered", &paragraph(rich()), below));
        }
        "to_do" => {
            let mark = if data["checked"] == true { "[x]" } else { "[ ]" };
            return Some(item("-", "to-do", &format!("{mark} {}", paragraph(rich())), below));
        }
        "paragraph" | "template" => after(paragraph(rich()), &children),
        _ if kind.starts_with("heading_") => {
            let level = kind.trim_start_matches("heading_").parse().unwrap_or(1).clamp(1, 6);
            after(format!("{} {}", "#".repeat(level), rich().replace("\\\n", " ")), &children)
        }
        "quote" => quoted(&after(paragraph(rich()), &children)),
        "callout" => quoted(&after(paragraph(format!("{}{}", emoji(data), rich())), &children)),
        "toggle" => {
            format!("<details>\n<summary>{}</summary>\n\n{children}\n\n</details>", html(&data["rich_text"]))
        }
        "code" => code(data),
        "equation" => format!("$$\n{}\n$$", data["expression"].as_str().unwrap_or_default()),
        "divider" => "---".to_owned(),
        "image" => media(data).map(|(name, url)| {
            let link = link(&name, &url);
            if link.starts_with('[') { format!("!{link}") } else { link }
        })?,
        "video" | "audio" | "file" | "pdf" => media(data).map(|(name, url)| link(&name, &url))?,
        "bookmark" | "embed" | "link_preview" => {
            let url = data["url"].as_str()?;
            let caption = markdown(&data["caption"]);
            link(&if caption.is_empty() { escape(url) } else { caption }, url)
        }
        "child_page" => link(&title(data, "Untitled"), &text::page(block["id"].as_str()?)),
        "child_database" => link(&title(data, "Untitled"), &text::rows(block["id"].as_str()?)),
        "link_to_page" => match data["type"].as_str()? {
            "page_id" => link("Page", &text::page(data["page_id"].as_str()?)),
            "database_id" => link("Database", &text::rows(data["database_id"].as_str()?)),
            _ => return None,
        },
        "table" => table(data, below),
        // Blocks that Notion generates from the rest of the page.
        "table_of_contents" | "breadcrumb" => return None,
        "column_list" | "column" | "synced_block" | "tab" => children,
        "transcription" | "meeting_notes" => after(format!("**{}**", markdown(&data["title"])), &children),
        _ if !children.is_empty() => children,
        _ => format!("<!-- a block that cannot be shown: {} -->", kind.replace(['-', '>'], "")),
    };
    (!written.is_empty()).then_some(RenderedBlock { text: written, list: None })
}

/// A list item with its children.
fn item(mark: &str, list: &'static str, text: &str, below: &[Value]) -> RenderedBlock {
    let pad = " ".repeat(mark.len() + 1);
    let mut out = format!("{mark} {}", indented(text, &pad));
    let children = blocks(below);
    if !children.is_empty() {
        // A nested list may follow on the next line; any other block would continue the paragraph.
        let is_list = |kind: &str| kind.ends_with("_list_item") || kind == "to_do";
        let close = below.first().and_then(|first| first["type"].as_str()).is_some_and(is_list);
        out += if close { "\n" } else { "\n\n" };
        out += &pad;
        out += &indented(&children, &pad);
    }
    RenderedBlock { text: out, list: Some(list) }
}

/// Indents all lines but the first.
fn indented(text: &str, pad: &str) -> String {
    let mut lines = text.split('\n');
    let mut out = lines.next().unwrap_or_default().to_owned();
    for line in lines {
        out.push('\n');
        if !line.is_empty() {
            out += pad;
            out += line;
        }
    }
    out
}

/// The text and then its children, separated by an empty line.
fn after(text: String, children: &str) -> String {
    match (text.is_empty(), children.is_empty()) {
        (_, true) => text,
        (true, false) => children.to_owned(),
        (false, false) => format!("{text}\n\n{children}"),
    }
}

fn quoted(text: &str) -> String {
    let lines =
        text.split('\n').map(|line| if line.is_empty() { ">".to_owned() } else { format!("> {line}") });
    lines.collect::<Vec<_>>().join("\n")
}

fn emoji(data: &Value) -> String {
    data["icon"]["emoji"].as_str().map(|emoji| format!("{emoji} ")).unwrap_or_default()
}

/// Escapes text for HTML elements, in which Markdown is not parsed.
fn html(rich: &Value) -> String {
    plain(rich).replace('&', "&amp;").replace('<', "&lt;").replace('\n', " ")
}

fn title(data: &Value, untitled: &str) -> String {
    let title = data["title"].as_str().filter(|title| !title.is_empty());
    escape(title.unwrap_or(untitled))
}

fn code(data: &Value) -> String {
    let code = plain(&data["rich_text"]);
    let fence = "`".repeat(text::longest(&code, '`').max(2) + 1);
    let language = data["language"].as_str().filter(|language| *language != "plain text").unwrap_or_default();
    let language: String =
        language.chars().filter(|letter| !letter.is_whitespace() && *letter != '`').collect();
    let caption = markdown(&data["caption"]);
    after(format!("{fence}{language}\n{code}\n{fence}"), &caption)
}

/// The name and the URL of a file.
fn media(data: &Value) -> Option<(String, String)> {
    let kind = data["type"].as_str()?;
    let url = data[kind]["url"].as_str()?;
    let caption = markdown(&data["caption"]);
    let named = data["name"].as_str().filter(|name| !name.is_empty()).map(escape);
    // URLs of files that Notion hosts have long signatures after the name.
    let last = || escape(url.split(['?', '#']).next().unwrap_or(url).rsplit('/').next().unwrap_or(url));
    let name = Some(caption).filter(|caption| !caption.is_empty()).or(named).unwrap_or_else(last);
    Some((name, url.to_owned()))
}

fn table(data: &Value, rows: &[Value]) -> String {
    let cells = |row: &Value| -> Vec<String> {
        let cells = row["table_row"]["cells"].as_array().map(Vec::as_slice).unwrap_or_default();
        cells.iter().map(|cell| cell_of(&markdown(cell))).collect()
    };
    let mut rows: Vec<Vec<String>> = rows.iter().map(cells).collect();
    let width = rows.iter().map(Vec::len).max().unwrap_or_default();
    if width == 0 {
        return String::new();
    }
    if data["has_column_header"] != true {
        rows.insert(0, Vec::new());
    }
    let mut lines = Vec::with_capacity(rows.len() + 1);
    for (at, mut row) in rows.into_iter().enumerate() {
        row.resize(width, String::new());
        lines.push(format!("| {} |", row.join(" | ")));
        if at == 0 {
            lines.push(format!("|{}", " --- |".repeat(width)));
        }
    }
    lines.join("\n")
}

/// Escapes text for a cell of a table, which is one line.
pub(super) fn cell_of(text: &str) -> String {
    text.replace("\\\n", "<br>").replace('\n', "<br>").replace('|', "\\|")
}
