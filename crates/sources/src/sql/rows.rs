//! Statements for the rows of a table.
//!
//! Keyset pagination: each page begins after the last key of the previous page. An index finds that key without
//! reading the rows before it.

use libris_core::{Completion, CompletionRequest, Error, Result};

use super::catalog::{TableColumn, TableInfo};
use super::dialect::{Dialect, SelectedColumn, bounded, postgres_bounded};
use super::driver::{SizeColumns, Statement};
use super::key;
use super::stored;
use super::value::{BindValue, SqlValue, ValueType, parse};

/// The maximum number of keys that are scanned for a typed prefix if no index can be used.
const MAX_SCANNED_KEYS: usize = 1000;

/// Builds statements for one table.
pub(super) struct RowStatements<'a> {
    pub(super) dialect: Dialect,
    pub(super) table: &'a TableInfo,
    /// The maximum number of bytes of one row.
    pub(super) most: u64,
}

/// The key of a row, parsed.
pub(super) struct RowKey {
    values: Vec<BindValue>,
    /// The `rowid` of a row whose key contains nulls, which only SQLite allows.
    row_id: Option<i64>,
}

/// An equality filter.
pub(super) struct ColumnFilter<'a> {
    pub(super) column: &'a TableColumn,
    pub(super) value: BindValue,
}

/// A condition of a `WHERE` clause, with the values to bind.
#[derive(Clone, Default)]
struct Condition {
    text: String,
    binds: Vec<BindValue>,
}

impl RowStatements<'_> {
    /// Parses a key; the error names `variable`, the URI variable that contains the key.
    pub(super) fn key(&self, variable: &str, text: &str) -> Result<RowKey> {
        let columns = &self.table.key;
        if let Some((parts, row_id)) = self.null_key(text) {
            let value = |(column, text): (&TableColumn, &String)| match &**text {
                stored::NULL => Ok(BindValue::Null),
                text => self.value(variable, column, text),
            };
            let values = columns.iter().zip(&parts).map(value).collect::<Result<_>>()?;
            return Ok(RowKey { values, row_id: Some(row_id) });
        }
        let names: Vec<_> = columns.iter().map(|column| &*column.name).collect();
        let parts = key::parse_key(variable, text, &names)?;
        let values = columns.iter().zip(&parts).map(|(column, text)| self.value(variable, column, text));
        Ok(RowKey { values: values.collect::<Result<_>>()?, row_id: None })
    }

    /// The parts and the `rowid` of a key that contains nulls; `None` for other keys.
    fn null_key(&self, text: &str) -> Option<(Vec<String>, i64)> {
        self.table.tie_breaker.as_ref()?;
        let mut parts = key::split(text, ',')?;
        let row_id = parts.pop()?.parse().ok()?;
        let is_null_key =
            parts.len() == self.table.key.len() && parts.iter().any(|part| part == stored::NULL);
        is_null_key.then_some((parts, row_id))
    }

    /// The key of a row in URIs; `None` if the row has no key. `values` are the values that
    /// [`select`](Self::select) appends to the columns of each row.
    pub(super) fn key_text(&self, values: &[SqlValue]) -> Option<String> {
        if self.table.key.is_empty() {
            return None;
        }
        if self.dialect != Dialect::Sqlite {
            let parts = values.iter().map(SqlValue::text).collect::<Option<Vec<_>>>()?;
            return Some(key::format_key(&parts));
        }
        let stored: Vec<_> =
            values.chunks_exact(2).map(|pair| stored::stored(&pair[0], &pair[1])).collect::<Option<_>>()?;
        let has_null = stored.contains(&BindValue::Null);
        // Texts that would be parsed as null, or as a key with nulls, are written with their storage class.
        let is_reserved = |text: &str| match has_null {
            true => text == stored::NULL,
            false => self.null_key(text).is_some(),
        };
        let columns = self.table.key.iter();
        let mut parts: Vec<_> =
            columns.zip(&stored).map(|(column, value)| stored::write(column, value, is_reserved)).collect();
        if has_null {
            self.table.tie_breaker.as_ref()?;
            parts.push(values.last()?.text()?);
        }
        Some(key::format_key(&parts))
    }

    /// The number of values that each row has after its columns, for [`key_text`](Self::key_text).
    pub(super) fn key_values(&self) -> usize {
        match self.dialect {
            Dialect::Sqlite => self.table.key.len() * 2 + usize::from(self.table.tie_breaker.is_some()),
            Dialect::Postgres | Dialect::Mysql => self.table.key.len(),
        }
    }

    /// Selects the row with this key.
    pub(super) fn by_key(&self, key: RowKey) -> Statement {
        let mut condition = Condition::default();
        for (column, value) in self.table.key.iter().zip(key.values) {
            condition.and(self.is_equal(column, value, condition.binds.len()));
        }
        if let (Some(row_id), Some(column)) = (key.row_id, &self.table.tie_breaker) {
            condition.and(self.compared(column, "=", BindValue::Integer(row_id), condition.binds.len()));
        }
        self.select(&self.table.columns, condition, 2)
    }

    /// Selects the rows that match all filters, after the row with this key or from the beginning.
    pub(super) fn page(
        &self,
        filters: Vec<ColumnFilter<'_>>,
        after: Option<RowKey>,
        limit: u64,
    ) -> Statement {
        let mut condition = Condition::default();
        for ColumnFilter { column, value } in filters {
            condition.and(self.compared(column, "=", value, condition.binds.len()));
        }
        if let Some(after) = after {
            condition.and(self.after_key(after, condition.binds.len()));
        }
        // One more row shows whether there are more.
        self.select(&self.table.columns, condition, limit + 1)
    }

    /// Statements that select keys which may begin with the typed text. The caller runs them one after the other
    /// until it has enough keys, and filters the keys.
    pub(super) fn keys(&self, typed: &str, limit: usize) -> Vec<Statement> {
        let key = &self.table.key;
        let mut known = Vec::new();
        let mut last = typed;
        // In a key of several columns, the values before the one being typed are complete.
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
                fixed.and(self.compared(column, ">=", BindValue::Text(last.to_owned()), fixed.binds.len()));
                vec![all(fixed, limit.saturating_add(1))]
            }
            ValueType::Integer if last.bytes().all(|byte| byte.is_ascii_digit()) => {
                let ranges = spans(last).into_iter().map(|(from, to)| {
                    let mut condition = fixed.clone();
                    condition.and(self.compared(
                        column,
                        ">=",
                        BindValue::Integer(from),
                        condition.binds.len(),
                    ));
                    condition.and(self.compared(column, "<=", BindValue::Integer(to), condition.binds.len()));
                    all(condition, limit.saturating_add(1))
                });
                ranges.collect()
            }
            _ => vec![all(fixed, MAX_SCANNED_KEYS)],
        }
    }

    /// Selects columns of the table, followed by the values for [`key_text`](Self::key_text). The rows are sorted by
    /// key.
    fn select(&self, columns: &[TableColumn], condition: Condition, limit: u64) -> Statement {
        let Self { dialect, table, most } = self;
        let mut order: Vec<_> = table.key.iter().map(|column| dialect.ordered(column)).collect();
        order.extend(table.tie_breaker.as_ref().map(|column| dialect.column(column)));
        let schema = dialect.quote(&table.name().schema);
        let mut rest = format!("FROM {schema}.{} AS t", dialect.quote(&table.name().table));
        if !condition.text.is_empty() {
            rest.push_str(&format!(" WHERE {}", condition.text));
        }
        if !order.is_empty() {
            rest.push_str(&format!(" ORDER BY {}", order.join(", ")));
        }
        rest.push_str(&format!(" LIMIT {limit}"));
        let mut kinds: Vec<_> = columns.iter().map(|column| column.kind).collect();
        let (sql, sizes) = match dialect {
            Dialect::Postgres => {
                let kinds_of_key = table.key.iter().map(|column| (column, key_kind(column)));
                let selected: Vec<_> = columns
                    .iter()
                    .map(|column| (column, column.kind))
                    .chain(kinds_of_key)
                    .map(|(column, kind)| SelectedColumn {
                        value: dialect.column(column),
                        kind,
                        base: column.base.clone(),
                    })
                    .collect();
                kinds = selected.iter().map(|selected| selected.kind).collect();
                postgres_bounded(&selected, &rest, *most)
            }
            Dialect::Sqlite | Dialect::Mysql => {
                let mut values: Vec<_> = columns.iter().map(|column| dialect.value(column)).collect();
                for column in &table.key {
                    if *dialect == Dialect::Sqlite {
                        values.push((format!("typeof({})", dialect.column(column)), false));
                        values.push(dialect.value(column));
                        kinds.extend([ValueType::Text, ValueType::Other]);
                    } else {
                        values.push(dialect.value(column));
                        kinds.push(column.kind);
                    }
                }
                if let Some(column) = &table.tie_breaker {
                    values.push((dialect.column(column), false));
                    kinds.push(ValueType::Integer);
                }
                let (selected, sizes) = bounded(&values, *most);
                let selected = if selected.is_empty() { "NULL" } else { &selected };
                (format!("SELECT {selected} {rest}"), sizes)
            }
        };
        let sizes = Some(SizeColumns { columns: sizes, bytes: *most });
        let reads_only_tables = !table.summary.view;
        let kinds = Some(kinds.into());
        Statement { kinds, sizes, reads_only_tables, ..Statement::new(sql, condition.binds) }
    }

    /// The condition for rows after this key. `before` is the number of values that the statement binds before the
    /// condition.
    fn after_key(&self, key: RowKey, before: usize) -> Condition {
        let columns = &self.table.key;
        if key.row_id.is_none() && (self.dialect != Dialect::Mysql || columns.len() == 1) {
            let names: Vec<_> = columns.iter().map(|column| self.dialect.ordered(column)).collect();
            let placeholders: Vec<_> = columns
                .iter()
                .enumerate()
                .map(|(at, column)| self.dialect.compared(before + at + 1, column))
                .collect();
            let text = match columns.len() {
                1 => format!("{} > {}", names[0], placeholders[0]),
                _ => format!("({}) > ({})", names.join(", "), placeholders.join(", ")),
            };
            return Condition { text, binds: key.values };
        }
        // MySQL uses an index for the expanded condition, but not for a row comparison. In SQLite, a row
        // comparison with a null is null. The placeholders of MySQL and SQLite have no numbers, so 0 is passed
        // for `before`.
        let mut all = Condition::default();
        let mut either = Vec::new();
        let mut values: Vec<_> = columns.iter().zip(key.values).collect();
        if let (Some(row_id), Some(column)) = (key.row_id, &self.table.tie_breaker) {
            values.push((column, BindValue::Integer(row_id)));
        }
        for last in 0..values.len() {
            let mut both = Condition::default();
            for (column, value) in &values[..last] {
                both.and(self.is_equal(column, value.clone(), 0));
            }
            let (column, value) = &values[last];
            both.and(match value {
                // Nulls are sorted first.
                BindValue::Null => {
                    let text = format!("{} IS NOT NULL", self.dialect.column(column));
                    Condition { text, binds: Vec::new() }
                }
                value => self.compared(column, ">", value.clone(), 0),
            });
            either.push(format!("({})", both.text));
            all.binds.extend(both.binds);
        }
        all.text = format!("({})", either.join(" OR "));
        all
    }

    /// The condition that a column has a value, which may be null. `before` is the number of values that the
    /// statement binds before the condition.
    fn is_equal(&self, column: &TableColumn, value: BindValue, before: usize) -> Condition {
        let sign = if value == BindValue::Null { "IS" } else { "=" };
        self.compared(column, sign, value, before)
    }

    fn compared(&self, column: &TableColumn, sign: &str, value: BindValue, before: usize) -> Condition {
        let placeholder = self.dialect.compared(before + 1, column);
        let name = match sign {
            // MySQL compares an enum with a text as text even without a cast, and can use an index only without
            // one.
            "=" => self.dialect.column(column),
            _ => self.dialect.ordered(column),
        };
        Condition { text: format!("{name} {sign} {placeholder}"), binds: vec![value] }
    }

    /// Parses a value of a column; the error names `variable`, the URI variable that contains the value.
    pub(super) fn value(&self, variable: &str, column: &TableColumn, text: &str) -> Result<BindValue> {
        let kind = key_kind(column);
        let parsed = match (self.dialect, kind) {
            (Dialect::Sqlite, _) => stored::read(column, text),
            (Dialect::Postgres, ValueType::Number | ValueType::Decimal) if text == "NaN" => {
                Ok(BindValue::Text(text.to_owned()))
            }
            (Dialect::Mysql, ValueType::Date | ValueType::Timestamp) if is_zero_date(text) => {
                Ok(BindValue::Text(text.trim_end_matches('Z').replacen('T', " ", 1)))
            }
            _ => parse(kind, text),
        };
        parsed.map_err(|wanted| {
            let wanted = match variable == column.name {
                true => wanted.to_owned(),
                false => format!("{wanted} for the column `{}`", column.name),
            };
            wrong_type(variable, &wanted, text)
        })
    }
}

/// The type of a column's values in keys. In a key, arrays and composite values have PostgreSQL's text form, because
/// PostgreSQL cannot cast JSON to these types.
pub(super) fn key_kind(column: &TableColumn) -> ValueType {
    match &*column.base {
        "array" | "composite" => ValueType::Other,
        _ => column.kind,
    }
}

/// Whether this is a date of MySQL whose month or day is zero, with or without a time.
fn is_zero_date(text: &str) -> bool {
    let date = text.split(['T', ' ']).next().unwrap_or_default();
    let written = |letter: char| letter.is_ascii_digit() || "-:. TZ".contains(letter);
    let parts: Vec<_> = date.split('-').collect();
    matches!(parts[..], [_, month, day] if month == "00" || day == "00") && text.chars().all(written)
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
pub(super) fn wrong_type(variable: &str, wanted: &str, text: &str) -> Error {
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

/// The completions among `keys`: those that begin with the typed text. `truncated` says whether `keys` is incomplete.
pub(super) fn matching(keys: Vec<String>, asked: CompletionRequest<'_>, truncated: bool) -> Completion {
    let mut completion = Completion::of(keys, asked.typed, asked.limit);
    completion.more |= truncated;
    completion.total = completion.total.filter(|_| !completion.more);
    completion
}

#[cfg(test)]
mod tests {
    use super::{ColumnFilter, RowStatements, spans};
    use crate::sql::catalog::{TableColumn, TableInfo, TableName, TableSummary};
    use crate::sql::dialect::Dialect;
    use crate::sql::value::{BindValue, ValueType};

    fn table(key: &[&str]) -> TableInfo {
        let column = |name: &&str| TableColumn {
            name: name.to_string(),
            declared: "integer".into(),
            base: "integer".into(),
            cast: "integer".into(),
            kind: ValueType::Integer,
            nullable: false,
            default: None,
            comment: None,
            values: Vec::new(),
        };
        let name = TableName { schema: "main".into(), table: "million".into() };
        let columns: Vec<_> = key.iter().map(column).collect();
        TableInfo {
            summary: TableSummary { name, view: false, comment: None, rows: None },
            key: columns.clone(),
            columns,
            primary: true,
            tie_breaker: None,
            indexes: Vec::new(),
            references: Vec::new(),
            checks: Vec::new(),
            definition: None,
        }
    }

    #[test]
    fn pages_go_by_the_key() {
        let page = |dialect, key: &[&str]| {
            let table = table(key);
            let rows = RowStatements { dialect, table: &table, most: 9 };
            let after = rows.key("after", &vec!["7"; key.len()].join(",")).unwrap();
            rows.page(Vec::new(), Some(after), 100).sql
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
        let rows = RowStatements { dialect: Dialect::Sqlite, table: &table, most: 9 };
        let row = rows.by_key(rows.key("key", "7").unwrap()).sql;
        assert_eq!(tail(row), r#""main"."million" AS t WHERE t."id" = ? ORDER BY t."id" LIMIT 2"#);
    }

    #[test]
    fn filters_come_before_the_key() {
        let page = |dialect| {
            let table = table(&["a", "b"]);
            let rows = RowStatements { dialect, table: &table, most: 9 };
            let column = &table.columns[1];
            let filter = ColumnFilter { column, value: rows.value("b", column, "5").unwrap() };
            let after = rows.key("after", "7,8").unwrap();
            let page = rows.page(vec![filter], Some(after), 100);
            let values: Vec<_> = [5, 7, 7, 8].map(BindValue::Integer).into();
            let expected =
                if dialect == Dialect::Mysql { values } else { [5, 7, 8].map(BindValue::Integer).into() };
            assert_eq!(page.binds, expected);
            page.sql.split_once(" WHERE ").unwrap().1.to_owned()
        };
        assert_eq!(
            page(Dialect::Sqlite),
            r#"t."b" = ? AND (t."a", t."b") > (?, ?) ORDER BY t."a", t."b" LIMIT 101"#
        );
        assert_eq!(
            page(Dialect::Postgres),
            r#"t."b" = CAST($1::text AS integer) AND (t."a", t."b") > (CAST($2::text AS integer), CAST($3::text AS integer)) ORDER BY t."a", t."b" LIMIT 101"#
        );
        assert_eq!(
            page(Dialect::Mysql),
            "t.`b` = ? AND ((t.`a` > ?) OR (t.`a` = ? AND t.`b` > ?)) ORDER BY t.`a`, t.`b` LIMIT 101"
        );
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
