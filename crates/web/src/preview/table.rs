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
const MAX_HEX: usize = 32 << 10;

/// The bytes on a line in hexadecimal.
const HEX_LINE: usize = 16;

/// What the cells of the first row of a table are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FirstRow {
    /// The names of the columns.
    Head,
    /// Values, because the text continues a table.
    Data,
}

/// Renders separated values (RFC 4180). Returns how many bytes are shown, and whether something was left out of these. An
/// incomplete last row is not shown unless the table ends with the text.
pub(super) fn render(
    out: &mut String,
    text: &str,
    separator: char,
    first: FirstRow,
    is_end: bool,
) -> (usize, bool) {
    let (rows, shown) = rows(text, separator, is_end);
    (shown, render_rows(out, &rows, first))
}

/// Renders rows, and returns whether something was left out.
pub(super) fn render_rows(out: &mut String, rows: &[Vec<String>], first: FirstRow) -> bool {
    let mut is_cut = rows.len() > MAX_ROWS + 1;
    let heads = usize::from(first == FirstRow::Head);
    let count = rows.len().saturating_sub(heads);
    let noun = if count == 1 { "row" } else { "rows" };
    out.push_str("<div class=\"table\" tabindex=\"0\"><table>");
    for (index, row) in rows.iter().take(MAX_ROWS + 1).enumerate() {
        is_cut |= row.len() > MAX_COLUMNS;
        let is_head = index < heads;
        let cell = if is_head { "th" } else { "td" };
        out.push_str(if is_head { "<thead><tr>" } else { "<tr>" });
        for value in row.iter().take(MAX_COLUMNS) {
            let (shown, is_all) = html::beginning(value, MAX_CELL);
            let class = if !is_head && is_number(value) { " class=\"num\"" } else { "" };
            out.push_str(&format!("<{cell}{class}>"));
            html::push_text(out, shown);
            out.push_str(if is_all { "</" } else { "…</" });
            out.push_str(cell);
            out.push('>');
            is_cut |= !is_all;
        }
        out.push_str(if is_head { "</tr></thead><tbody>" } else { "</tr>" });
    }
    let _ = write!(out, "</tbody></table><p class=\"note\">{count} {noun}</p></div>");
    is_cut
}

fn is_number(value: &str) -> bool {
    let value = value.trim().trim_start_matches(['-', '+', '$', '€']).trim_end_matches('%');
    value.starts_with(|first: char| first.is_ascii_digit())
        && value.chars().all(|letter| letter.is_ascii_digit() || matches!(letter, '.' | ',' | ' '))
}

/// Parses as many rows as are shown. Returns them, and the number of their bytes.
fn rows(text: &str, separator: char, is_end: bool) -> (Vec<Vec<String>>, usize) {
    let (mut rows, mut row, mut cell) = (Vec::new(), Vec::new(), String::new());
    let start = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
    let mut letters = text[start..].char_indices().peekable();
    let mut quoted = false;
    // The end of the last complete row.
    let mut end = 0;
    while let Some((at, letter)) = letters.next() {
        let follows = |next: char, letters: &mut std::iter::Peekable<std::str::CharIndices<'_>>| {
            letters.peek().is_some_and(|(_, letter)| *letter == next)
        };
        match letter {
            '"' if quoted && follows('"', &mut letters) => {
                letters.next();
                cell.push('"');
            }
            '"' if quoted => quoted = false,
            letter if quoted => cell.push(letter),
            '"' if cell.is_empty() => quoted = true,
            '\r' if follows('\n', &mut letters) => {}
            '\n' => {
                row.push(std::mem::take(&mut cell));
                rows.push(std::mem::take(&mut row));
                end = start + at + 1;
                if rows.len() > MAX_ROWS {
                    return (rows, end);
                }
            }
            letter if letter == separator => row.push(std::mem::take(&mut cell)),
            letter => cell.push(letter),
        }
    }
    // Leaves out the incomplete last row, unless it is the only one: a row that is larger than a part is shown in
    // pieces.
    if !is_end && !rows.is_empty() {
        return (rows, end);
    }
    if !cell.is_empty() || !row.is_empty() {
        row.push(cell);
        rows.push(row);
    }
    (rows, text.len())
}

/// Renders the first [`MAX_HEX`] bytes in hexadecimal, and returns how many were rendered. `offset` is the offset of
/// the first byte.
pub(super) fn hex(out: &mut String, bytes: &[u8], offset: u64) -> usize {
    let shown = &bytes[..bytes.len().min(MAX_HEX)];
    out.push_str("<pre class=\"hex\" tabindex=\"0\">");
    for (offset, line) in (offset..).step_by(HEX_LINE).zip(shown.chunks(HEX_LINE)) {
        let _ = write!(out, "<span class=\"c\">{offset:08x}</span>  ");
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
    shown.len()
}

#[cfg(test)]
mod tests {
    use super::{FirstRow, MAX_HEX, MAX_ROWS, hex, render, rows};

    #[test]
    fn quoted_cells_contain_anything() {
        let text = "\u{feff}a,b\r\n\"1,\"\"2\"\"\n3\",\n,x";
        let (all, shown) = rows(text, ',', true);
        assert_eq!(all, [vec!["a", "b"], vec!["1,\"2\"\n3", ""], vec!["", "x"]]);
        assert_eq!(shown, text.len());
        // The last row may continue in the next part.
        let (complete, shown) = rows(text, ',', false);
        assert_eq!((&complete[..], &text[shown..]), (&all[..2], ",x"));
    }

    #[test]
    fn numbers_are_marked_and_markup_is_escaped() {
        let mut out = String::new();
        assert_eq!(render(&mut out, "a;b\n<i>;1,5\n", ';', FirstRow::Head, true), (12, false));
        assert_eq!(
            out,
            "<div class=\"table\" tabindex=\"0\"><table><thead><tr><th>a</th><th>b</th></tr></thead><tbody>\
             <tr><td>&lt;i&gt;</td><td class=\"num\">1,5</td></tr></tbody></table><p class=\"note\">1 row</p></div>"
        );
    }

    #[test]
    fn large_tables_and_bytes_are_cut() {
        let mut out = String::new();
        let shown = render(&mut out, &"a\n".repeat(MAX_ROWS * 2), ',', FirstRow::Head, true);
        assert_eq!(shown, (2 * (MAX_ROWS + 1), false));
        assert_eq!(out.matches("<tr>").count(), MAX_ROWS + 1);
        assert!(render(&mut String::new(), &",".repeat(100), ',', FirstRow::Data, true).1);
        assert_eq!(hex(&mut String::new(), &vec![0; MAX_HEX + 1], 0), MAX_HEX);
        let mut out = String::new();
        assert_eq!(hex(&mut out, b"\x00<a", 0x1_2340), 3);
        assert!(out.contains("00012340</span>  00 3c 61 "), "{out}");
        assert!(out.contains("·&lt;a"), "{out}");
    }
}
