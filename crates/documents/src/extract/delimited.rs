//! Comma-separated and tab-separated values as a table.

use super::markdown::{cell, push_row};
use super::{ExtractOptions, ExtractResult, text};
use crate::{DocumentSection, ExtractedText, Format};

pub(super) fn extract(data: &[u8], options: ExtractOptions) -> ExtractResult<ExtractedText> {
    let decoded = text::decode(data, None);
    let delimiter = match options.format {
        Format::Tsv => '\t',
        _ => delimiter(&decoded),
    };
    let rows = records(&decoded, delimiter);
    let width = rows.iter().map(Vec::len).max().unwrap_or(0);
    let mut out = String::with_capacity(decoded.len() + rows.len() * width * 3);
    for (number, row) in rows.iter().enumerate() {
        push_row(&mut out, row.iter().map(|field| cell(field)), width);
        if number == 0 {
            out.push_str(&"|---".repeat(width));
            out.push_str("|\n");
        }
    }
    let section = DocumentSection { text: out, table_head: Some(2), ..DocumentSection::default() };
    Ok(ExtractedText { format: options.format, title: None, sections: vec![section], left_out: Vec::new() })
}

/// Guesses the delimiter from the first line: in some locales, spreadsheets export semicolons.
fn delimiter(text: &str) -> char {
    let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let occurrences = |wanted: char| first.chars().filter(|letter| *letter == wanted).count();
    [',', ';', '\t'].into_iter().rev().max_by_key(|letter| occurrences(*letter)).unwrap_or(',')
}

/// Parses records (RFC 4180). A quote that is not closed extends to the end of the file.
fn records(text: &str, delimiter: char) -> Vec<Vec<String>> {
    let (mut rows, mut row, mut field) = (Vec::new(), Vec::new(), String::new());
    let mut letters = text.chars().peekable();
    let mut quoted = false;
    while let Some(letter) = letters.next() {
        match letter {
            '"' if quoted && letters.peek() == Some(&'"') => {
                letters.next();
                field.push('"');
            }
            '"' if quoted => quoted = false,
            '"' if field.is_empty() => quoted = true,
            letter if quoted => field.push(letter),
            letter if letter == delimiter => row.push(std::mem::take(&mut field)),
            '\r' if letters.peek() == Some(&'\n') => {}
            '\n' | '\r' => {
                row.push(std::mem::take(&mut field));
                rows.push(std::mem::take(&mut row));
            }
            letter => field.push(letter),
        }
    }
    if !field.is_empty() || !row.is_empty() {
        row.push(field);
        rows.push(row);
    }
    // Removes empty lines.
    rows.retain(|row| row.len() > 1 || row.first().is_some_and(|field| !field.is_empty()));
    rows
}

#[cfg(test)]
mod tests {
    use super::{delimiter, records};

    #[test]
    fn quotes_keep_delimiters_and_line_breaks() {
        let rows = records("a,\"b,\"\"c\"\"\r\nd\"\r\n\r\n1,2\n\"open", ',');
        assert_eq!(rows, [vec!["a", "b,\"c\"\r\nd"], vec!["1", "2"], vec!["open"]]);
        assert_eq!((delimiter("a;b;c,d"), delimiter("a,b;c"), delimiter("x")), (';', ',', ','));
    }
}
