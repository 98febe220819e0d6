//! Equality filters on pages of rows, as in `rows?Title=Homogenic`.
//!
//! Only indexed columns can be filtered, so that a filter never scans a table.

use libris_core::uri_template::{VariableValue, Variables};
use libris_core::{Error, Result};

use super::catalog::TableInfo;
use super::rows::{ColumnFilter, RowStatements};
use crate::suggest::did_you_mean;

/// The template variable that contains the filters of a page of rows.
pub(super) const VARIABLE: &str = "filter";

/// The query parameters of a page of rows, besides the filters.
pub(super) const PAGE_OPTIONS: [&str; 3] = ["limit", "after", "format"];

/// The maximum number of filters of one page.
const MAX_FILTERS: usize = 8;

/// The names and values of the filters in a URI.
pub(super) fn from_variables(variables: &Variables) -> Vec<(String, String)> {
    match variables.value(VARIABLE) {
        None => Vec::new(),
        Some(VariableValue::Map(pairs)) => pairs.clone(),
        // `filter=…`: the parameters have the name of the variable itself, which may also be the name of a column.
        Some(VariableValue::List(values)) => {
            values.iter().map(|value| (VARIABLE.to_owned(), value.clone())).collect()
        }
        Some(VariableValue::Text(value)) => vec![(VARIABLE.to_owned(), value.clone())],
    }
}

/// Parses the filters in a URI. `label` is the name of the table in URIs.
pub(super) fn parse<'a>(
    rows: &RowStatements<'a>,
    label: &str,
    given: &[(String, String)],
) -> Result<Vec<ColumnFilter<'a>>> {
    let table = rows.table;
    if given.len() > MAX_FILTERS {
        return Err(Error::invalid(format!("there are {} filters: give at most {MAX_FILTERS}", given.len())));
    }
    let mut filters = Vec::<ColumnFilter<'a>>::new();
    for (name, text) in given {
        let (name, text) = match split_filter_text(table, name, text) {
            Some((_, "")) => continue,
            Some(filter) => filter,
            None => (&**name, &**text),
        };
        let Some(column) = table.columns.iter().find(|column| column.name == name) else {
            return Err(unknown(table, label, name));
        };
        if filters.iter().any(|filter| filter.column.name == name) {
            return Err(Error::invalid(format!("there are two filters of the column `{name}`: give one")));
        }
        filters.push(ColumnFilter { column, value: rows.value(name, column, text)? });
    }
    match filters.iter().find(|filter| !is_indexed(table, &filter.column.name, &filters)) {
        Some(filter) => Err(Error::invalid(format!(
            "`{label}` cannot be filtered by `{}`: no index begins with it; {}",
            filter.column.name,
            possible(table)
        ))),
        None => Ok(filters),
    }
}

/// The column and the value of a filter in one text, as in `filter=Title=Homogenic`. Clients that know only simple
/// variables expand the template in this form. An empty value means no filter. `None` if the parameter is not
/// `filter`, if the table has a column of this name, or if the text has no `=`.
fn split_filter_text<'t>(table: &TableInfo, name: &str, text: &'t str) -> Option<(&'t str, &'t str)> {
    let is_column = || table.columns.iter().any(|column| column.name == VARIABLE);
    if name != VARIABLE || is_column() { None } else { text.split_once('=') }
}

/// The completions of a partly typed filter.
pub(super) enum FilterCompletion<'t> {
    /// `COLUMN=` for each column that can be filtered; after `COLUMN=` was typed, `COLUMN=VALUE` for each value of an enum.
    Texts(Vec<String>),
    /// The values of the only key column that begin with this text, which was typed after the equals sign.
    Key(&'t str),
}

/// Completes a partly typed filter, as in `Title=Homogenic`.
pub(super) fn complete<'t>(table: &TableInfo, typed: &'t str) -> FilterCompletion<'t> {
    let columns = table.filter_columns();
    let named = typed.split_once('=').filter(|(name, _)| columns.contains(name));
    let Some((name, value)) = named else {
        return FilterCompletion::Texts(columns.iter().map(|column| format!("{column}=")).collect());
    };
    match &table.key[..] {
        [key] if key.name == name => FilterCompletion::Key(value),
        _ => {
            let column = table.columns.iter().find(|column| column.name == name);
            let values = column.map(|column| &column.values[..]).unwrap_or_default();
            FilterCompletion::Texts(values.iter().map(|value| format!("{name}={value}")).collect())
        }
    }
}

/// Whether an index begins with the column, or with other filtered columns followed by it.
fn is_indexed(table: &TableInfo, column: &str, filters: &[ColumnFilter<'_>]) -> bool {
    table.indexes.iter().filter(|index| index.equality).any(|index| {
        let is_filtered = |name: &&String| filters.iter().any(|filter| filter.column.name == **name);
        index.columns.iter().take_while(is_filtered).any(|name| name == column)
    })
}

fn unknown(table: &TableInfo, label: &str, name: &str) -> Error {
    if name == VARIABLE {
        return Error::invalid(format!("write a filter as `COLUMN=VALUE`; {}", possible(table)));
    }
    let columns = table.columns.iter().map(|column| &*column.name);
    let similar = did_you_mean(name, columns.chain(PAGE_OPTIONS));
    let short: String = name.chars().take(40).collect();
    let hint = if similar.is_empty() { format!("; {}", possible(table)) } else { similar };
    Error::invalid(format!("`{label}` has no column `{}`{hint}", short.escape_debug()))
}

/// A sentence for messages that names the columns by which rows can be filtered.
fn possible(table: &TableInfo) -> String {
    /// The maximum number of columns that the sentence names.
    const MAX_NAMED: usize = 20;
    let columns = table.filter_columns();
    let named: Vec<_> = columns.iter().take(MAX_NAMED).map(|name| format!("`{name}`")).collect();
    match &named[..] {
        [] => "configure a query instead".to_owned(),
        [one] => format!("filter by {one}, or configure a query"),
        [others @ .., last] => format!("filter by {} or {last}, or configure a query", others.join(", ")),
    }
}
