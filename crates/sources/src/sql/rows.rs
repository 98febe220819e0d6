//! Statements for the rows of a table.
//!
//! Keyset pagination: each page begins after the last key of the previous one, which an index finds without reading
//! the rows before it.

use libris_core::{Completion, Error, Partial, Result};

use super::catalog::{Column, TableInfo};
use super::dialect::{Dialect, Selected, bounded, postgres_bounded};
use super::driver::{Sizes, Statement};
use super::key;
use super::value::{Bind, ValueType, parse};

/// The number of keys that are scanned for a typed prefix if no index can be used.
const LOOKED_AT: usize = 1000;

/// Builds statements for one table.
pub(super) struct Rows<'a> {
    pub(super) dialect: Dialect,
    pub(super) table: &'a TableInfo,
    /// The most bytes of one row.
    pub(super) most: u64,
}

/// A condition on the key.
#[derive(Default)]
struct Condition {
    text: String,
    binds: Vec<Bind>,
}

impl Rows<'_> {
    /// The row with this key.
    pub(super) fn one(&self, key: &[String]) -> Result<Statement> {
        let mut condition = Condition::default();
        for (column, text) in self.table.key.iter().zip(key) {
            condition.and(self.compared(
                column,
                "=",
                self.value("key", column, text)?,
                condition.binds.len(),
            ));
        }
        Ok(self.select(&self.table.columns, condition, 2))
    }

    /// The rows after the one with this key, or from the beginning.
    pub(super) fn page(&self, after: Option<&[String]>, limit: u64) -> Result<Statement> {
        let mut condition = Condition::default();
        if let Some(after) = after {
            let values =
                self.table.key.iter().zip(after).map(|(column, text)| self.value("after", column, text));
            condition = self.beyond(values.collect::<Result<Vec<_>>>()?);
        }
        // One more row shows whether there are more.
        Ok(self.select(&self.table.columns, condition, limit + 1))
    }

    /// Statements for the keys that begin with the typed text, to be run until there are enough.
    pub(super) fn keys(&self, typed: &str, limit: usize) -> Vec<Statement> {
        let key = &self.table.key;
        let mut known = Vec::new();
        let mut last = typed;
        // Of a key of several columns, those before the one being typed are fixed.
        while known.len() + 1 < key.len()
            && let Some((part, rest)) = last.split_once(',')
        {
            known.push(part);
            last = rest;
        }
        let mut fixed = Condition::default();
        for (column, text) in key.iter().zip(&known) {
            let Ok(value) = self.value("key", column, text) else { return Vec::new() };
            fixed.and(self.compared(column, "=", value, fixed.binds.len()));
        }
        let Some(column) = key.get(known.len()) else { return Vec::new() };
        let all = |condition: Condition, limit: usize| self.select(&[], condition, limit as u64);
        if last.is_empty() {
            return vec![all(fixed, limit.saturating_add(1))];
        }
        match column.kind {
            ValueType::Text if !last.contains(['\0', '"']) => {
                fixed.and(self.compared(column, ">=", Bind::Text(last.to_owned()), fixed.binds.len()));
                vec![all(fixed, limit.saturating_add(1))]
            }
            ValueType::Integer if last.bytes().all(|byte| byte.is_ascii_digit()) => {
                let ranges = spans(last).into_iter().map(|(from, to)| {
                    let mut condition = Condition { text: fixed.text.clone(), binds: fixed.binds.clone() };
                    condition.and(self.compared(column, ">=", Bind::Integer(from), condition.binds.len()));
                    condition.and(self.compared(column, "<=", Bind::Integer(to), condition.binds.len()));
                    all(condition, limit.saturating_add(1))
                });
                ranges.collect()
            }
            _ => vec![all(fixed, LOOKED_AT)],
        }
    }

    /// Selects columns of the table, followed by its key, in the order of the key.
    fn select(&self, columns: &[Column], condition: Condition, limit: u64) -> Statement {
        let Self { dialect, table, most } = self;
        let order: Vec<_> = table.key.iter().map(|column| dialect.ordered(column)).collect();
        let schema = dialect.quote(&table.name().schema);
        let mut rest = format!("FROM {schema}.{} AS t", dialect.quote(&table.name().table));
        if !condition.text.is_empty() {
            rest.push_str(&format!(" WHERE {}", condition.text));
        }
        if !order.is_empty() {
            rest.push_str(&format!(" ORDER BY {}", order.join(", ")));
        }
        rest.push_str(&format!(" LIMIT {limit}"));
        let all = || columns.iter().chain(&table.key);
        let (sql, sizes) = match dialect {
            Dialect::Postgres => {
                let selected = all().map(|column| Selected {
                    value: dialect.column(column),
                    kind: column.kind,
                    base: column.base.clone(),
                });
                postgres_bounded(&selected.collect::<Vec<_>>(), &rest, *most)
            }
            Dialect::Sqlite | Dialect::Mysql => {
                let values: Vec<_> = all().map(|column| dialect.value(column)).collect();
                let (selected, sizes) = bounded(&values, *most);
                let selected = if selected.is_empty() { "NULL" } else { &selected };
                (format!("SELECT {selected} {rest}"), sizes)
            }
        };
        let kinds = all().map(|column| column.kind).collect();
        let sizes = Some(Sizes { columns: sizes, bytes: *most });
        Statement { kinds: Some(kinds), sizes, ..Statement::new(sql, condition.binds) }
    }

    /// The condition for rows after this key.
    fn beyond(&self, key: Vec<Bind>) -> Condition {
        let columns = &self.table.key;
        if self.dialect != Dialect::Mysql || columns.len() == 1 {
            let names: Vec<_> = columns.iter().map(|column| self.dialect.ordered(column)).collect();
            let places: Vec<_> = columns
                .iter()
                .enumerate()
                .map(|(at, column)| self.dialect.compared(at + 1, column))
                .collect();
            let text = match columns.len() {
                1 => format!("{} > {}", names[0], places[0]),
                _ => format!("({}) > ({})", names.join(", "), places.join(", ")),
            };
            return Condition { text, binds: key };
        }
        // MySQL uses no index for a row comparison, but does for the expanded condition.
        let mut all = Condition::default();
        let mut either = Vec::new();
        for last in 0..columns.len() {
            let mut both = Condition::default();
            for (at, column) in columns.iter().enumerate().take(last + 1) {
                let sign = if at == last { ">" } else { "=" };
                both.and(self.compared(column, sign, key[at].clone(), 0));
            }
            either.push(format!("({})", both.text));
            all.binds.extend(both.binds);
        }
        all.text = format!("({})", either.join(" OR "));
        all
    }

    fn compared(&self, column: &Column, sign: &str, value: Bind, before: usize) -> Condition {
        let place = self.dialect.compared(before + 1, column);
        Condition { text: format!("{} {sign} {place}", self.dialect.ordered(column)), binds: vec![value] }
    }

    /// Parses a value of the key.
    fn value(&self, variable: &str, column: &Column, text: &str) -> Result<Bind> {
        // An untyped column of SQLite may contain both numbers and text.
        if self.dialect == Dialect::Sqlite && column.base.is_empty() {
            return Ok(text.parse().map_or_else(|_| Bind::Text(text.to_owned()), Bind::Integer));
        }
        let wrong = |wanted| unfit(variable, &format!("{wanted} for the column `{}`", column.name), text);
        parse(column.kind, text).or_else(|wanted| match self.dialect {
            // SQLite enforces the type only of an `INTEGER` key; other columns accept values of any type.
            Dialect::Sqlite if !column.base.eq_ignore_ascii_case("integer") => {
                Ok(text.parse().map_or_else(|_| Bind::Text(text.to_owned()), Bind::Number))
            }
            _ => Err(wrong(wanted)),
        })
    }
}

impl Condition {
    fn and(&mut self, other: Self) {
        if !self.text.is_empty() {
            self.text.push_str(" AND ");
        }
        self.text.push_str(&other.text);
        self.binds.extend(other.binds);
    }
}

/// The error for a value of the wrong type.
pub(super) fn unfit(variable: &str, wanted: &str, text: &str) -> Error {
    let short: String = text.chars().take(40).collect();
    let cut = if short.len() < text.len() { "…" } else { "" };
    Error::invalid(format!("`{variable}` must be {wanted}, not `{}{cut}`", short.escape_debug()))
}

/// The ranges of integers that begin with these digits: 12, 120 to 129, 1200 to 1299, and so on.
fn spans(digits: &str) -> Vec<(i64, i64)> {
    let Ok(first) = digits.parse::<i64>() else { return Vec::new() };
    // No number but 0 begins with a zero.
    if digits.starts_with('0') {
        return if digits == "0" { vec![(0, 0)] } else { Vec::new() };
    }
    let mut spans = vec![(first, first)];
    let mut width = 1_i64;
    while let Some(wider) = width.checked_mul(10)
        && let Some(from) = first.checked_mul(wider)
    {
        spans.push((from, from.saturating_add(wider - 1)));
        width = wider;
    }
    spans
}

/// The keys that begin with the typed text.
pub(super) fn matching(keys: Vec<String>, asked: Partial<'_>, cut: bool) -> Completion {
    let mut completion = Completion::of(keys, asked.typed, asked.limit);
    completion.more |= cut;
    completion.total = completion.total.filter(|_| !completion.more);
    completion
}

/// The key in a row of values; `None` if one of them is null.
pub(super) fn written(values: &[Option<String>]) -> Option<String> {
    let parts: Option<Vec<_>> = values.iter().cloned().collect();
    parts.filter(|parts| !parts.is_empty()).map(|parts| key::write(&parts))
}

#[cfg(test)]
mod tests {
    use super::{Rows, spans};
    use crate::sql::catalog::{Column, Summary, TableInfo, TableName};
    use crate::sql::dialect::Dialect;
    use crate::sql::value::ValueType;

    fn table(key: &[&str]) -> TableInfo {
        let column = |name: &&str| Column {
            name: name.to_string(),
            declared: "integer".into(),
            base: "integer".into(),
            cast: "integer".into(),
            kind: ValueType::Integer,
            nullable: false,
            default: None,
            comment: None,
        };
        let name = TableName { schema: "main".into(), table: "million".into() };
        let columns: Vec<_> = key.iter().map(column).collect();
        TableInfo {
            summary: Summary { name, view: false, comment: None, rows: None },
            key: columns.clone(),
            columns,
            primary: true,
            indexes: Vec::new(),
            references: Vec::new(),
        }
    }

    #[test]
    fn pages_go_by_the_key() {
        let page = |dialect, key: &[&str]| {
            let table = table(key);
            let after: Vec<_> = key.iter().map(|_| "7".to_owned()).collect();
            Rows { dialect, table: &table, most: 9 }.page(Some(&after), 100).unwrap().sql
        };
        let tail = |sql: String| sql.split_once(" FROM ").unwrap().1.to_owned();
        assert_eq!(
            tail(page(Dialect::Sqlite, &["id"])),
            r#""main"."million" AS t WHERE t."id" > ? ORDER BY t."id" LIMIT 101"#
        );
        assert_eq!(
            tail(page(Dialect::Postgres, &["a", "b"])),
            r#""main"."million" AS t WHERE (t."a", t."b") > (CAST($1::text AS integer), CAST($2::text AS integer)) ORDER BY t."a", t."b" LIMIT 101"#
        );
        assert_eq!(
            tail(page(Dialect::Mysql, &["a", "b"])),
            "`main`.`million` AS t WHERE ((t.`a` > ?) OR (t.`a` = ? AND t.`b` > ?)) ORDER BY t.`a`, t.`b` LIMIT 101"
        );
        let table = table(&["id"]);
        let row =
            Rows { dialect: Dialect::Sqlite, table: &table, most: 9 }.one(&["7".to_owned()]).unwrap().sql;
        assert_eq!(tail(row), r#""main"."million" AS t WHERE t."id" = ? ORDER BY t."id" LIMIT 2"#);
    }

    #[test]
    fn numbers_are_found_by_their_first_digits() {
        assert_eq!(spans("12")[..3], [(12, 12), (120, 129), (1200, 1299)]);
        assert_eq!(spans("9").last(), Some(&(9_000_000_000_000_000_000, i64::MAX)));
        assert_eq!(spans("0"), [(0, 0)]);
        assert_eq!(spans("01"), []);
        assert_eq!(spans("99999999999999999999"), []);
    }
}
