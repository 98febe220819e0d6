//! Renders separated values as a table, and bytes in hexadecimal.

use std::fmt::Write as _;

use crate::html;

/// The maximum number of rows that are shown, without the head.
const MAX_ROWS: usize = 1_000;

/// The maximum number of columns that are shown.
const MAX_COLUMNS: usize = 60;

/// The maximum number of characters of a cell that are shown.
const MAX_CELL: usize = 300;

/// The maximum number of bytes that are shown in hexadecimal.
const MAX_HEX: usize = 8 << 10;

/// The bytes on a line in hexadecimal.
const HEX_LINE: usize = 16;

/// Renders separated values (RFC 4180), and returns whether something was left out.
pub(super) fn render(out: &mut String, text: &str, separator: char) -> bool {
    let (rows, is_all) = rows(text, separator);
    render_rows(out, &rows) | !is_all
}

/// Renders rows, the first of which has the names of the columns. Returns whether something was left out.
pub(super) fn render_rows(out: &mut String, rows: &[Vec<String>]) -> bool {
    let mut is_cut = rows.len() > MAX_ROWS + 1;
    let count = rows.len().saturating_sub(1);
    let noun = if count == 1 { "row" } else { "rows" };
    out.push_str("<div class=\"table\" tabindex=\"0\"><table>");
    for (index, row) in rows.iter().take(MAX_ROWS + 1).enumerate() {
        is_cut |= row.len() > MAX_COLUMNS;
        let cell = if index == 0 { "th" } else { "td" };
        out.push_str(if index == 0 { "<thead><tr>" } else { "<tr>" });
        for value in row.iter().take(MAX_COLUMNS) {
            let (shown, is_all) = html::beginning(value, MAX_CELL);
            let class = if index > 0 && is_number(value) { " class=\"num\"" } else { "" };
            out.push_str(&format!("<{cell}{class}>"));
            html::push_text(out, shown);
            out.push_str(if is_all { "</" } else { "…</" });
            out.push_str(cell);
            out.push('>');
            is_cut |= !is_all;
        }
        out.push_str(if index == 0 { "</tr></thead><tbody>" } else { "</tr>" });
    }
    let _ = write!(out, "</tbody></table><p class=\"note\">{count} {noun}</p></div>");
    is_cut
}

fn is_number(value: &str) -> bool {
    let value = value.trim().trim_start_matches(['-', '+', '$', '€']).trim_end_matches('%');
    value.starts_with(|first: char| first.is_ascii_digit())
        && value.chars().all(|letter| letter.is_ascii_digit() || matches!(letter, '.' | ',' | ' '))
}

/// Parses rows up to one more than is shown. Returns them, and whether these are all.
fn rows(text: &str, separator: char) -> (Vec<Vec<String>>, bool) {
    let (mut rows, mut row, mut cell) = (Vec::new(), Vec::new(), String::new());
    let mut letters = text.strip_prefix('\u{feff}').unwrap_or(text).chars().peekable();
    let mut quoted = false;
    while let Some(letter) = letters.next() {
        match letter {
            '"' if quoted && letters.peek() == Some(&'"') => {
                letters.next();
                cell.push('"');
            }
            '"' if quoted => quoted = false,
            letter if quoted => cell.push(letter),
            '"' if cell.is_empty() => quoted = true,
            '\r' if letters.peek() == Some(&'\n') => {}
            '\n' => {
                row.push(std::mem::take(&mut cell));
                rows.push(std::mem::take(&mut row));
                // With one row more than is shown, `render_rows` knows that something is left out.
                if rows.len() > MAX_ROWS + 1 {
                    return (rows, false);
                }
            }
            letter if letter == separator => row.push(std::mem::take(&mut cell)),
            letter => cell.push(letter),
        }
    }
    if !cell.is_empty() || !row.is_empty() {
        row.push(cell);
        rows.push(row);
    }
    (rows, true)
}

/// Renders bytes in hexadecimal, and returns whether some were left out.
pub(super) fn hex(out: &mut String, bytes: &[u8]) -> bool {
    out.push_str("<pre class=\"hex\" tabindex=\"0\">");
    for (index, line) in bytes[..bytes.len().min(MAX_HEX)].chunks(HEX_LINE).enumerate() {
        let _ = write!(out, "<span class=\"c\">{:08x}</span>  ", index * HEX_LINE);
        for at in 0..HEX_LINE {
            match line.get(at) {
                Some(byte) => {
                    let _ = write!(out, "{byte:02x} ");
                }
                None => out.push_str("   "),
            }
            if at == HEX_LINE / 2 - 1 {
                out.push(' ');
            }
        }
        let shown: String = line
            .iter()
            .map(|byte| if byte.is_ascii_graphic() || *byte == b' ' { char::from(*byte) } else { '·' })
            .collect();
        out.push_str(" <span class=\"s\">");
        html::push_text(out, &shown);
        out.push_str("</span>\n");
    }
    out.push_str("</pre>");
    bytes.len() > MAX_HEX
}

#[cfg(test)]
mod tests {
    use super::{MAX_HEX, MAX_ROWS, hex, render, rows};

    #[test]
    fn quoted_cells_contain_anything() {
        let (rows, is_all) = rows("a,b\r\n\"1,\"\"2\"\"\n3\",\n,x", ',');
        assert_eq!(rows, [vec!["a", "b"], vec!["1,\"2\"\n3", ""], vec!["", "x"]]);
        assert!(is_all);
    }

    #[test]
    fn numbers_are_marked_and_markup_is_escaped() {
        let mut out = String::new();
        assert!(!render(&mut out, "a;b\n<i>;1,5\n", ';'));
        assert_eq!(
            out,
            "<div class=\"table\" tabindex=\"0\"><table><thead><tr><th>a</th><th>b</th></tr></thead><tbody>\
             <tr><td>&lt;i&gt;</td><td class=\"num\">1,5</td></tr></tbody></table><p class=\"note\">1 row</p></div>"
        );
    }

    #[test]
    fn large_tables_and_bytes_are_cut() {
        let mut out = String::new();
        assert!(render(&mut out, &"a\n".repeat(MAX_ROWS * 2), ','));
        assert_eq!(out.matches("<tr>").count(), MAX_ROWS + 1);
        let mut out = String::new();
        assert!(hex(&mut out, &vec![0; MAX_HEX + 1]));
        let mut out = String::new();
        assert!(!hex(&mut out, b"\x00<a"));
        assert!(out.contains("00000000</span>  00 3c 61 "), "{out}");
        assert!(out.contains("·&lt;a"), "{out}");
    }
}
