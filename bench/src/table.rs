//! A table of numbers, as Markdown and as JSON.

use std::fmt;

use serde_json::{Value, json};

/// A title, column names and rows of cells.
pub(crate) struct Table {
    pub(crate) title: String,
    pub(crate) columns: Vec<String>,
    rows: Vec<Vec<Cell>>,
}

/// A cell of a table.
#[derive(Clone, Debug)]
pub(crate) enum Cell {
    Text(String),
    Number(f64),
    Nothing,
}

impl Table {
    pub(crate) fn new(
        title: impl Into<String>,
        columns: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        let columns = columns.into_iter().map(Into::into).collect();
        Self { title: title.into(), columns, rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }

    pub(crate) fn json(&self) -> Value {
        let rows = self.rows.iter().map(|row| {
            let cells = self.columns.iter().cloned().zip(row.iter().map(Cell::json));
            Value::Object(cells.collect())
        });
        json!({ "title": self.title, "rows": rows.collect::<Vec<_>>() })
    }
}

impl Cell {
    fn json(&self) -> Value {
        match self {
            Self::Text(text) => text.as_str().into(),
            Self::Number(number) => (*number).into(),
            Self::Nothing => Value::Null,
        }
    }
}

impl From<f64> for Cell {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl<T: Into<Cell>> From<Option<T>> for Cell {
    fn from(cell: Option<T>) -> Self {
        cell.map_or(Self::Nothing, Into::into)
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => out.write_str(text),
            Self::Number(number) => out.write_str(&shown(*number)),
            Self::Nothing => Ok(()),
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "### {}\n", self.title)?;
        writeln!(out, "| {} |", self.columns.join(" | "))?;
        let first = self.rows.first().map_or(&[][..], |row| row);
        for (at, _) in self.columns.iter().enumerate() {
            out.write_str(if matches!(first.get(at), Some(Cell::Text(_))) { "|---" } else { "|--:" })?;
        }
        writeln!(out, "|")?;
        for row in &self.rows {
            row.iter().try_for_each(|cell| write!(out, "| {cell} "))?;
            writeln!(out, "|")?;
        }
        Ok(())
    }
}

/// A number rounded to its significant digits, with commas between thousands.
pub(crate) fn shown(value: f64) -> String {
    let digits = match value.abs() {
        size if size.fract() == 0.0 || size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 0.1 => 2,
        _ => 4,
    };
    let text = format!("{value:.digits$}");
    let whole = text.find('.').unwrap_or(text.len());
    let mut shown = String::with_capacity(text.len() + 4);
    for (at, character) in text.char_indices() {
        if at > 0 && at < whole && (whole - at) % 3 == 0 && !shown.ends_with('-') {
            shown.push(',');
        }
        shown.push(character);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::{Cell, Table, shown};

    #[test]
    fn numbers_are_rounded_to_significant_digits() {
        let numbers = [0.00123, 0.123, 1.0, 12.34, 123.4, 1234.5, -1234567.8, 0.0];
        let texts = ["0.0012", "0.12", "1", "12.3", "123", "1,234", "-1,234,568", "0"];
        assert_eq!(numbers.map(shown), texts);
    }

    #[test]
    fn a_table_is_markdown_and_json() {
        let mut table = Table::new("Costs", ["what", "Libris", "rmcp"]);
        table.row(["read".into(), 16.25.into(), Cell::Nothing]);
        assert_eq!(
            table.to_string(),
            "### Costs\n\n| what | Libris | rmcp |\n|---|--:|--:|\n| read | 16.2 |  |\n"
        );
        assert_eq!(table.json()["rows"][0]["Libris"], 16.25);
    }
}
