//! Compares the cells of spreadsheets with those that LibreOffice writes as CSV.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use libris_documents::DocumentSection;

/// The cells that are not empty, by row and column.
type Cells = BTreeMap<(usize, usize), String>;

/// How many cells of a document that are not equal are printed.
const SHOWN: usize = 5;

/// The share of cells, among those that either side has, that are equal. The sections are sheets as Markdown tables;
/// `files` are the CSV files of LibreOffice, one for each sheet. No cell of a sheet that only one side has is equal.
pub(super) fn equal_share(sheets: &[DocumentSection], files: &[PathBuf]) -> f64 {
    let mut left: Vec<&PathBuf> = files.iter().collect();
    let mut pairs = Vec::new();
    for DocumentSection { name, text, .. } in sheets {
        let name = name.as_deref().unwrap_or_default();
        let at = left.iter().position(|file| is_sheet(file, name));
        let other = at.map(|at| of_file(left.remove(at))).unwrap_or_default();
        pairs.push((name.to_owned(), of_markdown(text), other));
    }
    let is_missing = |file: &&PathBuf| (file.display().to_string(), Cells::new(), of_file(file));
    pairs.extend(left.iter().map(is_missing));
    let (mut equal, mut all, mut different) = (0, 0, Vec::new());
    for (name, own, other) in &pairs {
        let positions: std::collections::BTreeSet<_> = own.keys().chain(other.keys()).collect();
        all += positions.len();
        let empty = String::new();
        for at in positions {
            let (one, two) = (own.get(at).unwrap_or(&empty), other.get(at).unwrap_or(&empty));
            match same(one, two) {
                true => equal += 1,
                false => different.push(format!("{name} {at:?}: {one:?}, LibreOffice {two:?}")),
            }
        }
    }
    for line in different.iter().take(SHOWN) {
        eprintln!("  {line}");
    }
    if all == 0 { 1.0 } else { equal as f64 / all as f64 }
}

/// Whether LibreOffice named a file after this sheet. It replaces characters that file names cannot contain.
fn is_sheet(file: &Path, sheet: &str) -> bool {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    stem.ends_with(&format!("-{}", sheet.replace(['/', '\\', ':'], "_")))
}

/// Whether two cells have the same value: the same words, number, or date and time.
fn same(one: &str, other: &str) -> bool {
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    if words(one) == words(other) {
        return true;
    }
    if let (Some(one), Some(other)) = (number(one), number(other)) {
        return (one - other).abs() <= 1e-9 * one.abs().max(other.abs());
    }
    moment(one, Epoch::Excel).is_some_and(|one| moment(other, Epoch::LibreOffice) == Some(one))
}

/// The day with the number 1 in a spreadsheet. The two agree from March 1900 on: Excel counts 29 February 1900, which did
/// not exist.
#[derive(Clone, Copy)]
enum Epoch {
    /// 1 January 1900.
    Excel,
    /// 31 December 1899.
    LibreOffice,
}

impl Epoch {
    /// A day before March 1900 as its number, as year and month 0; any other day as it is.
    fn normalised(self, day: (u32, u32, u32)) -> (u32, u32, u32) {
        let number = match (self, day) {
            (Self::Excel, (1900, 1, day)) => day,
            (Self::Excel, (1900, 2, day)) => 31 + day,
            (Self::LibreOffice, (1899, 12, day)) => day.saturating_sub(30),
            (Self::LibreOffice, (1900, 1, day)) => day + 1,
            (Self::LibreOffice, (1900, 2, day)) => 32 + day,
            _ => return day,
        };
        (0, 0, number)
    }
}

/// A number, also as a percentage or a truth value.
fn number(text: &str) -> Option<f64> {
    match text.trim() {
        "TRUE" => Some(1.0),
        "FALSE" => Some(0.0),
        text => match text.strip_suffix('%') {
            Some(percent) => percent.parse::<f64>().ok().map(|percent| percent / 100.0),
            None => text.parse().ok(),
        },
    }
}

/// A date as year, month and day, and the seconds since midnight: `2016-01-31` or `01/31/16`, with or without a time. A
/// time without a date is one of day 0.
fn moment(text: &str, epoch: Epoch) -> Option<((u32, u32, u32), u32)> {
    if let Some(seconds) = seconds(text.trim()) {
        return Some(((0, 0, 0), seconds));
    }
    let (day, time) = text.trim().split_once([' ', 'T']).unwrap_or((text.trim(), "0:00"));
    let parts: Vec<u32> = day.split(['-', '/']).map(|part| part.parse().ok()).collect::<Option<_>>()?;
    let day = match (&parts[..], day.contains('/')) {
        ([year, month, day], false) => (*year, *month, *day),
        ([month, day, year], true) => {
            let century = match *year {
                100.. => 0,
                0..30 => 2000,
                _ => 1900,
            };
            (*year + century, *month, *day)
        }
        _ => return None,
    };
    Some((epoch.normalised(day), seconds(time)?))
}

/// The seconds since midnight of a time such as `14:05`, `14:05:09` or `02:05:09 PM`.
fn seconds(time: &str) -> Option<u32> {
    let (clock, half) = time.split_once(' ').map_or((time, None), |(clock, half)| (clock, Some(half)));
    let parts: Vec<u32> = clock.split(':').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    let (hour, minute, second) = match parts[..] {
        [hour, minute] => (hour, minute, 0),
        [hour, minute, second] => (hour, minute, second),
        _ => return None,
    };
    let hour = match half {
        None => hour,
        Some("AM") => hour % 12,
        Some("PM") => hour % 12 + 12,
        Some(_) => return None,
    };
    Some((hour * 60 + minute) * 60 + second)
}

/// The cells of one of LibreOffice's CSV files.
fn of_file(file: &Path) -> Cells {
    of_csv(&String::from_utf8_lossy(&std::fs::read(file).unwrap_or_default()))
}

/// The cells of a Markdown table, without the line below its head.
fn of_markdown(table: &str) -> Cells {
    let mut cells = Cells::new();
    let rows = table.lines().enumerate().filter(|(at, _)| *at != 1).map(|(_, line)| line);
    for (row, line) in rows.enumerate() {
        // An escaped bar is part of its cell.
        let line = line.replace("\\|", "\u{1}");
        for (column, cell) in line.trim_matches('|').split('|').enumerate() {
            let text = cell.trim().replace('\u{1}', "|").replace("<br>", "\n");
            if !text.is_empty() {
                cells.insert((row, column), text);
            }
        }
    }
    cells
}

/// The cells of a CSV file.
fn of_csv(text: &str) -> Cells {
    let mut cells = Cells::new();
    let (mut row, mut column, mut cell, mut quoted) = (0, 0, String::new(), false);
    let mut letters = text.chars().peekable();
    let mut end = |cell: &mut String, row: usize, column: usize| {
        let text = std::mem::take(cell);
        if !text.trim().is_empty() {
            cells.insert((row, column), text.trim().to_owned());
        }
    };
    while let Some(letter) = letters.next() {
        match letter {
            '"' if quoted && letters.peek() == Some(&'"') => cell.extend(letters.next()),
            '"' => quoted = !quoted,
            ',' if !quoted => {
                end(&mut cell, row, column);
                column += 1;
            }
            '\n' if !quoted => {
                end(&mut cell, row, column);
                (row, column) = (row + 1, 0);
            }
            letter => cell.push(letter),
        }
    }
    end(&mut cell, row, column);
    cells
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use libris_documents::DocumentSection;

    use super::{equal_share, of_csv, of_markdown, same};

    #[test]
    fn cells_are_compared_by_position_and_value() {
        let table = "| a | b\\|c |\n|---|---|\n|  | 1.50 |\n| x<br>y | 2016-01-31 |\n";
        let csv = "a,b|c\n,1.5\n\"x\ny\",01/31/16\n";
        let (own, other) = (of_markdown(table), of_csv(csv));
        assert!(own.keys().eq(other.keys()) && own.values().zip(other.values()).all(|(a, b)| same(a, b)));
        assert!(!same("1.5", "1.6") && !same("a", "") && !same("2016-01-31", "2016-02-01"));
        assert!(
            same("2016-01-31 14:05:00", "01/31/16 02:05 PM") && same("2016-01-31T00:00:00", "01/31/2016")
        );
        assert!(
            !same("2016-01-31 14:05:00", "01/31/16") && !same("2016-01-31 14:05:00", "01/31/16 14:06:00")
        );
        assert!(same("13:13:13", "01:13:13 PM") && same("00:00:00", "12:00:00 AM"));
        assert!(!same("13:13:13", "01:13:14 PM") && !same("13:13:13", "01:13:13 AM"));
        // Days 0, 1 and 60 of a spreadsheet, and the first on which Excel and LibreOffice agree.
        assert!(same("00:00:00", "12/30/1899") && same("1900-01-01", "12/31/1899"));
        assert!(same("1900-02-29", "02/28/1900") && same("1900-03-01", "03/01/1900"));
        assert!(!same("1900-01-01", "01/01/1900") && !same("1900-03-01", "02/28/1900"));
    }

    #[test]
    fn sheets_that_only_one_side_has_are_not_equal() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("book-One.csv");
        std::fs::write(&file, "a,b\n,9\n").unwrap();
        let sheet = DocumentSection::new("| a | b |\n|---|---|\n|  | 8 |\n");
        let sheet = DocumentSection { name: Some("One".to_owned()), ..sheet };
        assert_eq!(equal_share(from_ref(&sheet), from_ref(&file)), 2.0 / 3.0);
        let more = folder.path().join("book-Two.csv");
        std::fs::write(&more, "a\n").unwrap();
        assert_eq!(equal_share(from_ref(&sheet), &[file, more]), 2.0 / 4.0);
        assert_eq!(equal_share(&[sheet], &[]), 0.0);
    }
}
