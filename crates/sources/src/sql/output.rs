//! Streams rows as JSON, CSV or Markdown into a buffer with a limit.

use std::ops::ControlFlow;

use libris_core::{Context, Error, Result as Outcome, Uri};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::driver::RowSink;
use super::value::{SqlValue, encode};

/// The format of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RowFormat {
    /// Each row is an object with one member per column.
    #[default]
    Json,
    /// RFC 4180 with a header line. Null is an empty field.
    Csv,
    /// A table.
    Markdown,
}

impl RowFormat {
    /// The names of all formats.
    pub(super) const FORMAT_NAMES: [&'static str; 3] = ["json", "csv", "markdown"];

    pub(super) fn parse(name: &str) -> Option<Self> {
        match name {
            "json" => Some(Self::Json),
            "csv" => Some(Self::Csv),
            "markdown" => Some(Self::Markdown),
            _ => None,
        }
    }

    pub(super) fn mime(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Csv => "text/csv",
            Self::Markdown => "text/markdown",
        }
    }
}

/// Whether the output is one row or a list of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowShape {
    One,
    Many,
}

/// Output up to this size needs no memory reservation.
const UNRESERVED_BYTES: usize = 64 << 10;

/// A sink that writes rows in a format.
pub(super) struct RowWriter {
    format: RowFormat,
    shape: RowShape,
    max_rows: u64,
    max_bytes: u64,
    /// The unique names of the columns.
    names: Vec<String>,
    /// The number of hidden values at the end of each row. The key of the row is made from them.
    hidden: usize,
    text: String,
    /// The context of the request, whose memory budget pays for `text`.
    context: Context,
    /// The size in bytes up to which `text` can grow without another reservation.
    reserved: usize,
    /// The error of a memory reservation that failed.
    pub(super) reservation_error: Option<Error>,
    pub(super) rows: u64,
    /// Whether there are more rows.
    pub(super) more: bool,
    /// If the output exceeds the limit: a lower bound of its size, in bytes.
    pub(super) too_large: Option<u64>,
    /// The hidden values of the last row, from which its key is made.
    pub(super) last: Vec<SqlValue>,
}

impl RowWriter {
    pub(super) fn new(format: RowFormat, shape: RowShape, max_rows: u64, max_bytes: u64) -> Self {
        Self {
            format,
            shape,
            max_rows,
            max_bytes,
            names: Vec::new(),
            hidden: 0,
            text: String::new(),
            context: Context::default(),
            reserved: UNRESERVED_BYTES,
            reservation_error: None,
            rows: 0,
            more: false,
            too_large: None,
            last: Vec::new(),
        }
    }

    /// Uses the memory budget of this context.
    pub(super) fn with_context(self, context: &Context) -> Self {
        Self { context: context.clone(), ..self }
    }

    /// Sets the names of the columns. Each row has `hidden` more values, from which its key is made.
    pub(super) fn with_columns(mut self, names: Vec<String>, hidden: usize) -> Self {
        self.hidden = hidden;
        self.set_columns(names);
        self
    }

    fn set_columns(&mut self, names: Vec<String>) {
        for mut name in names {
            // The member names of an object must be unique.
            let mut number = 1;
            let plain = name.clone();
            while self.names.contains(&name) {
                number += 1;
                name = format!("{plain}_{number}");
            }
            self.names.push(name);
        }
        match self.format {
            RowFormat::Json => {}
            RowFormat::Csv => self.text = line(self.names.iter().map(|name| field(name)), ",") + "\r\n",
            RowFormat::Markdown => {
                let names = line(self.names.iter().map(|name| escape(name)), " | ");
                let rule = vec!["---"; self.names.len()].join(" | ");
                self.text = format!("| {names} |\n| {rule} |\n");
            }
        }
    }

    /// Appends a row. If the output would exceed its limit, removes the incomplete row; the error is the size reached
    /// so far, in bytes.
    fn write(&mut self, row: Vec<SqlValue>) -> Result<(), u64> {
        let before = self.text.len();
        let (begin, between, end) = match self.format {
            RowFormat::Json if self.shape == RowShape::One => ("{", ",", "}"),
            RowFormat::Json if self.rows == 0 => ("\n{", ",", "}"),
            RowFormat::Json => (",\n{", ",", "}"),
            RowFormat::Csv => ("", ",", "\r\n"),
            RowFormat::Markdown => ("| ", " | ", " |\n"),
        };
        self.text.push_str(begin);
        for (at, cell) in row.into_iter().enumerate() {
            if at > 0 {
                self.text.push_str(between);
            }
            match self.format {
                RowFormat::Json => {
                    let Some(name) = self.names.get(at) else { break };
                    self.text.push_str(&quote(name));
                    self.text.push(':');
                    self.text.push_str(&json(cell));
                }
                RowFormat::Csv => self.text.push_str(&plain(cell)),
                RowFormat::Markdown => self.text.push_str(&escape(&cell.into_text().unwrap_or_default())),
            }
            if self.text.len() as u64 > self.max_bytes {
                break;
            }
        }
        self.text.push_str(end);
        let size = self.text.len() as u64;
        if size > self.max_bytes {
            self.text.truncate(before);
            return Err(size);
        }
        Ok(())
    }

    /// Reserves memory for more bytes. The capacity doubles, so that the cost per byte is constant.
    fn make_room(&mut self, more: u64) -> Outcome<()> {
        let needed = self.text.len().saturating_add(usize::try_from(more).unwrap_or(usize::MAX));
        if needed > self.reserved {
            let most = usize::try_from(self.max_bytes).unwrap_or(usize::MAX);
            let capacity = needed.max(self.reserved.saturating_mul(2).min(most));
            // The first `UNRESERVED_BYTES` bytes are reserved together with the first growth beyond them.
            let counted = if self.reserved == UNRESERVED_BYTES { 0 } else { self.reserved };
            self.context.reserve((capacity - counted) as u64)?;
            self.reserved = capacity;
            self.text.reserve_exact(capacity - self.text.len());
        }
        Ok(())
    }

    /// Records that the next row does not fit into the limit. If the rows have keys, the rest can be requested as
    /// another page, so the rows so far are the result. Otherwise the output is too large.
    fn overflow(&mut self, size: u64) {
        if self.hidden > 0 && self.rows > 0 {
            self.more = true;
        } else {
            self.too_large = Some(size);
        }
    }

    /// The output. Lists in JSON and Markdown include the URI of the next page.
    pub(super) fn finish(self, next: Option<&Uri>) -> String {
        if self.format != RowFormat::Json {
            let more = match (next, self.more) {
                (Some(next), _) => format!("\nMore rows: {next}\n"),
                (None, true) => "\nThere are more rows than are shown.\n".to_owned(),
                (None, false) => String::new(),
            };
            // CSV cannot contain a remark; Markdown can.
            return self.text + if self.format == RowFormat::Markdown { &more } else { "" };
        }
        if self.shape == RowShape::One {
            return self.text;
        }
        let more = match (next, self.more) {
            (Some(next), _) => format!(",\"next\":{}", quote(next.as_str())),
            (None, true) => ",\"more\":true".to_owned(),
            (None, false) => String::new(),
        };
        format!("{{\"rows\":[{}]{more}}}", self.text)
    }
}

impl RowSink for RowWriter {
    fn columns(&mut self, names: Vec<String>) {
        if self.names.is_empty() {
            self.set_columns(names);
        }
    }

    fn row(&mut self, mut row: Vec<SqlValue>) -> ControlFlow<()> {
        if self.rows == self.max_rows {
            // Statements request one row more than the limit, to detect whether there are more.
            self.more = true;
            return ControlFlow::Continue(());
        }
        let key = row.split_off(row.len().saturating_sub(self.hidden));
        // A lower bound: separators and escapes are not included.
        if let Err(reservation_error) = self.make_room(row.iter().map(SqlValue::size).sum()) {
            self.reservation_error = Some(reservation_error);
            self.text = String::new();
            return ControlFlow::Break(());
        }
        if let Err(size) = self.write(row) {
            self.overflow(size);
            return ControlFlow::Break(());
        }
        self.last = key;
        self.rows += 1;
        ControlFlow::Continue(())
    }

    fn oversized(&mut self, size: u64) {
        if self.rows == self.max_rows {
            self.more = true;
        } else {
            self.overflow(self.text.len() as u64 + size);
        }
    }
}

fn line(parts: impl Iterator<Item = String>, between: &str) -> String {
    parts.collect::<Vec<_>>().join(between)
}

/// A text as JSON.
fn quote(text: &str) -> String {
    // Serializing a string cannot fail.
    serde_json::to_string(text).unwrap_or_default()
}

/// A value as JSON. Invalid JSON from the database becomes a string.
fn json(cell: SqlValue) -> String {
    match cell {
        SqlValue::Null => "null".to_owned(),
        SqlValue::Boolean(value) => value.to_string(),
        SqlValue::Integer(value) => value.to_string(),
        SqlValue::Unsigned(value) => value.to_string(),
        SqlValue::Number(value) => serde_json::Value::from(value).to_string(),
        SqlValue::Text(text) => quote(&text),
        SqlValue::Bytes(bytes) => quote(&encode(&bytes)),
        SqlValue::Json(text) => match serde_json::from_str::<&RawValue>(&text) {
            Ok(raw) => raw.get().to_owned(),
            Err(_) => quote(&text),
        },
    }
}

/// A value as a field of CSV.
fn plain(cell: SqlValue) -> String {
    match cell.into_text() {
        None => String::new(),
        // Unquoted, an empty string would be parsed as null.
        Some(text) if text.is_empty() => "\"\"".to_owned(),
        Some(text) => field(&text),
    }
}

/// Quotes a field of CSV if necessary.
fn field(text: &str) -> String {
    match text.contains([',', '"', '\r', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

/// Escapes text for a cell of a Markdown table.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' => out.push_str("<br>"),
            '\r' => {}
            '|' | '\\' | '`' | '<' => out.extend(['\\', character]),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use libris_core::{ContentMemory, Context};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::{RowFormat, RowShape, RowWriter};
    use crate::sql::driver::RowSink as _;
    use crate::sql::value::SqlValue;

    fn written(format: RowFormat, shape: RowShape) -> String {
        let mut writer = RowWriter::new(format, shape, 10, 10_000);
        writer.columns(vec!["id".into(), "a|b".into(), "id".into()]);
        let _ = writer.row(vec![
            SqlValue::Integer(1),
            SqlValue::Text("x,\"y\"\nz".into()),
            SqlValue::Json("{\"k\":[1]}".into()),
        ]);
        if shape == RowShape::Many {
            let _ = writer.row(vec![
                SqlValue::Null,
                SqlValue::Text(String::new()),
                SqlValue::Bytes(vec![0, 255]),
            ]);
        }
        writer.finish(None)
    }

    #[test]
    fn rows_are_written() {
        insta::assert_snapshot!(written(RowFormat::Json, RowShape::Many), @r#"
        {"rows":[
        {"id":1,"a|b":"x,\"y\"\nz","id_2":{"k":[1]}},
        {"id":null,"a|b":"","id_2":"AP8="}]}
        "#);
        insta::assert_snapshot!(written(RowFormat::Json, RowShape::One), @r#"{"id":1,"a|b":"x,\"y\"\nz","id_2":{"k":[1]}}"#);
        assert_eq!(
            written(RowFormat::Csv, RowShape::Many),
            "id,a|b,id_2\r\n1,\"x,\"\"y\"\"\nz\",\"{\"\"k\"\":[1]}\"\r\n,\"\",AP8=\r\n"
        );
        insta::assert_snapshot!(written(RowFormat::Markdown, RowShape::Many), @r#"
        | id | a\|b | id_2 |
        | --- | --- | --- |
        | 1 | x,"y"<br>z | {"k":[1]} |
        |  |  | AP8= |
        "#);
    }

    #[test]
    fn limits_hold() {
        let mut writer =
            RowWriter::new(RowFormat::Json, RowShape::Many, 2, 100).with_columns(vec!["a".into()], 1);
        let row = |text: &str| vec![SqlValue::Text(text.into()), SqlValue::Integer(7)];
        assert!(writer.row(row("1")).is_continue());
        assert!(writer.row(row("2")).is_continue());
        assert!(writer.row(row("3")).is_continue(), "it only shows that there are more");
        assert_eq!((writer.rows, writer.more, writer.last.clone()), (2, true, vec![SqlValue::Integer(7)]));

        let mut writer =
            RowWriter::new(RowFormat::Json, RowShape::Many, 9, 100).with_columns(vec!["a".into()], 1);
        assert!(writer.row(row(&"x".repeat(60))).is_continue());
        assert!(writer.row(row(&"x".repeat(60))).is_break());
        assert_eq!((writer.rows, writer.more, writer.too_large), (1, true, None));

        let mut writer =
            RowWriter::new(RowFormat::Json, RowShape::Many, 9, 100).with_columns(vec!["a".into()], 1);
        assert!(writer.row(row(&"x".repeat(200))).is_break());
        assert_eq!(writer.too_large, Some(209));
    }

    /// A memory budget of this many bytes.
    struct TestMemory(AtomicUsize);

    impl ContentMemory for TestMemory {
        fn reserve(&self, bytes: usize) -> bool {
            let left = self.0.load(Ordering::Relaxed).checked_sub(bytes);
            left.is_some_and(|left| {
                self.0.store(left, Ordering::Relaxed);
                true
            })
        }

        fn grow(&self, _bytes: usize) -> bool {
            panic!("a statement can run again");
        }
    }

    #[test]
    fn memory_is_reserved_before_the_text_grows() {
        for (most, rows) in [(0, 6), (200_000, 13), (10_000_000, 100)] {
            let memory = Arc::new(TestMemory(AtomicUsize::new(most)));
            let context = Context::default().with_memory(memory.clone());
            let mut writer =
                RowWriter::new(RowFormat::Csv, RowShape::Many, 100, 10_000_000).with_context(&context);
            let row = || vec![SqlValue::Text("x".repeat(10_000))];
            let written = (0..100).take_while(|_| writer.row(row()).is_continue()).count();
            let reserved = most - memory.0.load(Ordering::Relaxed);
            assert!(written >= rows && written < rows + 2, "{written} rows in {most} bytes");
            match &writer.reservation_error {
                None => assert!(written == 100 && reserved >= writer.text.len(), "{reserved}"),
                Some(reservation_error) => {
                    assert!(reservation_error.to_string().contains("no memory left"), "{reservation_error}");
                    assert_eq!(writer.text.capacity(), 0);
                }
            }
        }
    }
}
