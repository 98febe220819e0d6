//! Writes Markdown: blocks, list items, tables, headings and links.

/// Appends a paragraph or another block, separated by an empty line.
pub(super) fn push_block(out: &mut String, block: &str) {
    let block = block.trim_end();
    if block.trim_start().is_empty() {
        return;
    }
    if !out.is_empty() {
        while !out.ends_with("\n\n") {
            out.push('\n');
        }
    }
    out.push_str(block);
    out.push('\n');
}

/// Appends an item of a list, directly below the previous one.
pub(super) fn push_item(out: &mut String, depth: usize, marker: &str, text: &str) {
    let text = text.trim();
    if text.is_empty() {
        return;
    }
    let previous = out.trim_end().rsplit('\n').next().unwrap_or_default().trim_start();
    let follows_item = previous.starts_with("- ")
        || previous
            .split_once(". ")
            .is_some_and(|(number, _)| number.bytes().all(|byte| byte.is_ascii_digit()));
    if !follows_item && !out.is_empty() {
        while !out.ends_with("\n\n") {
            out.push('\n');
        }
    }
    out.push_str(&"  ".repeat(depth.min(8)));
    out.push_str(marker);
    out.push(' ');
    out.push_str(&text.replace('\n', " "));
    out.push('\n');
}

/// A heading. Levels count from 1; those above 6 become 6.
pub(super) fn heading(level: usize, text: &str) -> String {
    format!("{} {}", "#".repeat(level.clamp(1, 6)), text.trim().replace('\n', " "))
}

/// A link, or the text alone if the target is empty.
pub(super) fn link(text: &str, target: &str) -> String {
    match (text.trim(), target) {
        ("", _) => String::new(),
        (text, "") => text.to_owned(),
        (text, target) if text == target => format!("<{target}>"),
        (text, target) => format!("[{text}]({})", target.replace(' ', "%20").replace(')', "%29")),
    }
}

/// The text of a table cell, in one line and with bars escaped.
pub(super) fn cell(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.split('\n').map(str::trim).filter(|line| !line.is_empty()) {
        if !out.is_empty() {
            out.push_str("<br>");
        }
        out.push_str(line);
    }
    if out.contains('|') { out.replace('|', "\\|") } else { out }
}

/// A table whose first row is the head. Rows may have different lengths.
pub(super) fn table(rows: &[Vec<String>]) -> String {
    let width = rows.iter().map(Vec::len).max().unwrap_or(0);
    if width == 0 {
        return String::new();
    }
    let mut out = String::new();
    for (number, row) in rows.iter().enumerate() {
        push_row(&mut out, row.iter().map(|text| cell(text)), width);
        if number == 0 {
            out.push_str(&"|---".repeat(width));
            out.push_str("|\n");
        }
    }
    out
}

/// Appends a row of a table, filled with empty cells up to `width`.
pub(super) fn push_row(out: &mut String, cells: impl Iterator<Item = impl AsRef<str>>, width: usize) {
    let mut count = 0;
    for cell in cells {
        out.push_str("| ");
        out.push_str(cell.as_ref());
        out.push(' ');
        count += 1;
    }
    for _ in count..width {
        out.push_str("|  ");
    }
    out.push_str("|\n");
}

/// A number with its noun, such as "1 image" or "2 images"; `None` for 0.
pub(super) fn count(number: usize, singular: &str) -> Option<String> {
    match number {
        0 => None,
        1 => Some(format!("1 {singular}")),
        many if singular.ends_with('x') => Some(format!("{many} {singular}es")),
        many => Some(format!("{many} {singular}s")),
    }
}

#[cfg(test)]
mod tests {
    use super::{link, push_block, push_item, table};

    #[test]
    fn tables_escape_bars_and_line_breaks() {
        let rows = [vec!["a".to_owned(), "b|c".to_owned()], vec!["x\ny".to_owned()]];
        assert_eq!(table(&rows), "| a | b\\|c |\n|---|---|\n| x<br>y |  |\n");
        assert_eq!(table(&[]), "");
    }

    #[test]
    fn blocks_are_apart_and_items_together() {
        let mut out = String::new();
        push_block(&mut out, "one");
        push_item(&mut out, 0, "-", "two");
        push_item(&mut out, 1, "1.", "three\nfour");
        push_block(&mut out, "\n ");
        push_block(&mut out, "five");
        assert_eq!(out, "one\n\n- two\n  1. three four\n\nfive\n");
        assert_eq!(link("a", "http://b/c)"), "[a](http://b/c%29)");
        assert_eq!(link("http://b", "http://b"), "<http://b>");
    }
}
