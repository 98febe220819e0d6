//! Schemas as Markdown and JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::catalog::{TableColumn, TableInfo, TableName};
use super::output::escape;

/// Writes the schemas of a database.
pub(super) struct SchemaDocument<'a> {
    /// The name of the database.
    pub(super) name: &'a str,
    pub(super) description: Option<&'a str>,
    pub(super) dialect: &'static str,
    /// The name of a table in URIs.
    pub(super) label: &'a (dyn Fn(&TableName) -> String + Sync),
    /// The URI of the folder of a table.
    pub(super) folder: &'a (dyn Fn(&TableName) -> String + Sync),
    /// Whether the definitions of views and tables are shown. They may name tables that are hidden from the caller.
    pub(super) definitions: bool,
    /// Whether a table may be named.
    pub(super) shown: &'a (dyn Fn(&TableName) -> bool + Sync),
    /// Whether the schema of a table may be part of the schema of the database.
    pub(super) included: &'a (dyn Fn(&TableName) -> bool + Sync),
}

impl SchemaDocument<'_> {
    /// The schema of the whole database as Markdown; if it exceeds `most` bytes, only a list of the tables.
    pub(super) fn database(&self, tables: &[TableInfo], most: u64) -> String {
        self.every_table(tables, most).unwrap_or_else(|| self.table_list(tables, most))
    }

    /// The schemas of all tables as Markdown; `None` if they exceed `most` bytes.
    pub(super) fn every_table(&self, tables: &[TableInfo], most: u64) -> Option<String> {
        let mut text = self.summary(tables);
        for table in self.included(tables) {
            text.push('\n');
            text.push_str(&self.section(table, "##"));
            if text.len() as u64 > most {
                return None;
            }
        }
        (text.len() as u64 <= most).then_some(text)
    }

    /// A list of the tables as Markdown, as far as it fits into `most` bytes. The column that distinguishes tables
    /// from views is omitted if there are no views.
    pub(super) fn table_list(&self, tables: &[TableInfo], most: u64) -> String {
        let mut text = self.summary(tables);
        let has_views = self.included(tables).any(|table| table.summary.view);
        text.push_str(match has_views {
            true => "\n| name | | schema |\n| --- | --- | --- |\n",
            false => "\n| name | schema |\n| --- | --- |\n",
        });
        for table in self.included(tables) {
            let kind = if has_views { format!(" {} |", kind(table)) } else { String::new() };
            let (name, folder) = (escape(&(self.label)(table.name())), (self.folder)(table.name()));
            let line = format!("| {name} |{kind} {folder}schema |\n");
            if (text.len() + line.len()) as u64 > most {
                text.push_str("\nThere are more than fit here: list the resources.\n");
                break;
            }
            text.push_str(&line);
        }
        text
    }

    fn included<'t>(&self, tables: &'t [TableInfo]) -> impl Iterator<Item = &'t TableInfo> {
        tables.iter().filter(|table| (self.included)(table.name()))
    }

    /// The heading, the description, and the number of tables and views.
    fn summary(&self, tables: &[TableInfo]) -> String {
        let mut text = format!("# {}\n\n", escape(self.name));
        if let Some(description) = self.description {
            let _ = writeln!(text, "{}\n", escape(description));
        }
        let views = self.included(tables).filter(|table| table.summary.view).count();
        let count = self.included(tables).count() - views;
        let (count, views) = (counted(count as u64, "table"), counted(views as u64, "view"));
        let _ = writeln!(text, "A {} database: {count}, {views}.", self.dialect);
        text
    }

    /// A table as Markdown.
    pub(super) fn table(&self, table: &TableInfo) -> String {
        self.section(table, "#")
    }

    fn section(&self, table: &TableInfo, heading: &str) -> String {
        let mut text = format!("{heading} {}\n\n", escape(&(self.label)(table.name())));
        if let Some(comment) = &table.summary.comment {
            let _ = writeln!(text, "{}\n", escape(comment));
        }
        let _ = match table.summary.rows {
            Some(rows) => writeln!(text, "A {} of about {}.\n", kind(table), counted(rows, "row")),
            None => writeln!(text, "A {}.\n", kind(table)),
        };
        text.push_str("| column | type | null | default | comment |\n| --- | --- | --- | --- | --- |\n");
        for column in &table.columns {
            let TableColumn { name, nullable, default, comment, .. } = column;
            let shown = |text: &Option<String>| text.as_deref().map(escape).unwrap_or_default();
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} |",
                escape(name),
                escape(&type_with_values(column)),
                if *nullable { "yes" } else { "no" },
                shown(default),
                shown(comment)
            );
        }
        let folder = (self.folder)(table.name());
        text.push('\n');
        if !table.key.is_empty() {
            let called = if table.primary { "Primary key" } else { "Key" };
            let _ = writeln!(text, "- {called}: {}", names(table.key.iter().map(|column| &column.name)));
        }
        for reference in table.references.iter().filter(|reference| (self.shown)(&reference.target)) {
            let columns = match reference.target_columns.is_empty() {
                true => "its primary key".to_owned(),
                false => names(reference.target_columns.iter()),
            };
            let target = (self.label)(&reference.target);
            let _ = writeln!(
                text,
                "- Foreign key: {} refers to {columns} of {} ({}schema)",
                names(reference.columns.iter()),
                escape(&target),
                (self.folder)(&reference.target)
            );
        }
        for index in table.indexes.iter().filter(|index| !index.primary) {
            let unique = if index.unique { "Unique index" } else { "Index" };
            let _ = writeln!(text, "- {unique} {}: {}", escape(&index.name), names(index.columns.iter()));
        }
        for check in &table.checks {
            let name =
                if check.name.is_empty() { String::new() } else { format!(" {}", escape(&check.name)) };
            let _ = writeln!(text, "- Check{name}: {}", escape(&check.expression));
        }
        let _ = writeln!(text, "- Rows: {folder}rows{{?limit,after,format}}");
        if !table.key.is_empty() {
            let _ = writeln!(text, "- One row: {folder}rows/{{key}}{{?format}}");
        }
        let filters = table.filter_columns();
        if !filters.is_empty() {
            let names = filters.iter().map(|name| escape(name)).collect::<Vec<_>>().join(", ");
            let _ = writeln!(text, "- Filtered rows: {folder}rows?COLUMN=VALUE, by {names}");
        }
        if let Some(definition) = table.definition.as_deref().filter(|_| self.definitions) {
            let fence = fence(definition);
            let _ = writeln!(text, "\n{fence}sql\n{}\n{fence}", definition.trim());
        }
        text
    }

    /// The schema of the whole database as JSON. If the tables exceed `most` bytes as JSON without white space, the
    /// error is a lower bound of the size. The result has white space and may exceed `most`.
    pub(super) fn database_json(&self, tables: &[TableInfo], most: u64) -> Result<String, u64> {
        let mut size = 0;
        let mut written = Vec::new();
        for table in tables.iter().filter(|table| (self.included)(table.name())) {
            let table = self.table_json(table);
            size += table.to_string().len() as u64;
            if size > most {
                return Err(size);
            }
            written.push(table);
        }
        let all = json!({
            "name": self.name,
            "description": self.description,
            "dialect": self.dialect,
            "tables": written,
        });
        Ok(format!("{all:#}"))
    }

    /// A table as JSON.
    pub(super) fn table_json(&self, table: &TableInfo) -> Value {
        let columns = table.columns.iter().map(|column| {
            json!({
                "name": column.name,
                "type": column.declared,
                "nullable": column.nullable,
                "default": column.default,
                "comment": column.comment,
                "values": Some(&column.values).filter(|values| !values.is_empty()),
            })
        });
        let references = table.references.iter().filter(|reference| (self.shown)(&reference.target));
        let references = references.map(|reference| {
            json!({
                "columns": reference.columns,
                "table": (self.label)(&reference.target),
                "references": reference.target_columns,
            })
        });
        let indexes = table
            .indexes
            .iter()
            .filter(|index| !index.primary)
            .map(|index| json!({ "name": index.name, "unique": index.unique, "columns": index.columns }));
        let checks = table.checks.iter().map(|check| {
            let name = Some(&check.name).filter(|name| !name.is_empty());
            json!({ "name": name, "expression": check.expression })
        });
        json!({
            "name": (self.label)(table.name()),
            "schema": table.name().schema,
            "kind": kind(table),
            "comment": table.summary.comment,
            "rowEstimate": table.summary.rows,
            "columns": columns.collect::<Vec<_>>(),
            "key": table.key.iter().map(|column| &column.name).collect::<Vec<_>>(),
            "primaryKey": table.primary,
            "foreignKeys": references.collect::<Vec<_>>(),
            "indexes": indexes.collect::<Vec<_>>(),
            "checks": checks.collect::<Vec<_>>(),
            "filters": table.filter_columns(),
            "definition": table.definition.as_deref().filter(|_| self.definitions),
        })
    }
}

/// A number with its noun, such as "1 view" or "2 views".
pub(super) fn counted(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// The declared type of a column, with the values of an enum. In MySQL, the declared type contains these values;
/// for other databases they are appended.
fn type_with_values(column: &TableColumn) -> String {
    let TableColumn { declared, values, .. } = column;
    if values.is_empty() || declared.contains('\'') {
        return declared.clone();
    }
    let values: Vec<_> = values.iter().map(|value| format!("'{}'", value.replace('\'', "''"))).collect();
    format!("{declared} ({})", values.join(", "))
}

/// A fence for a code block with this text: a row of backticks that does not occur in the text.
fn fence(text: &str) -> String {
    let mut fence = "```".to_owned();
    while text.contains(&fence) {
        fence.push('`');
    }
    fence
}

fn kind(table: &TableInfo) -> &'static str {
    if table.summary.view { "view" } else { "table" }
}

fn names<'a>(names: impl Iterator<Item = &'a String>) -> String {
    names.map(|name| escape(name)).collect::<Vec<_>>().join(", ")
}
