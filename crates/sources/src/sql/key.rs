//! Table names and row keys in URIs.
//!
//! A table is `orders`, or `sales.orders` outside the default schema. A key is the value of the primary key, or
//! its values separated by commas. As in SQL, an ambiguous name or value is in double quotes, and quotes within
//! it are doubled. The result is percent-encoded as one path segment. `%2C` and `,` are equivalent: in a key of
//! several columns, only double quotes make a comma part of a value.

use libris_core::{Error, Result};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::catalog::TableName;
use super::schema::counted;

/// The ASCII characters that are percent-encoded in a segment: all except letters, digits and `-._~,`.
const SEGMENT_ESCAPES: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b',');

/// Encodes a text as one segment of a path.
pub(super) fn segment(text: &str) -> String {
    utf8_percent_encode(text, SEGMENT_ESCAPES).to_string()
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}

/// The name of a table in URIs; `default` is the default schema.
pub(super) fn format_table(name: &TableName, default: &str) -> String {
    let part = |text: &str| match text.is_empty() || text.contains(['.', '"']) {
        true => quoted(text),
        false => text.to_owned(),
    };
    match name.schema == default {
        true => part(&name.table),
        false => format!("{}.{}", part(&name.schema), part(&name.table)),
    }
}

/// Parses the name of a table in a URI; `None` unless [`format_table`] would write the same text, so that every
/// table has exactly one name.
pub(super) fn parse_table(label: &str, default: &str) -> Option<TableName> {
    let mut parts = split(label, '.')?;
    let table = parts.pop()?;
    let schema = parts.pop().unwrap_or_else(|| default.to_owned());
    let name = TableName { schema, table };
    (parts.is_empty() && format_table(&name, default) == label).then_some(name)
}

/// The key of a row in URIs, from the values of its columns.
pub(super) fn format_key(parts: &[String]) -> String {
    let part = |text: &String| {
        let ambiguous = text.is_empty()
            || text.starts_with('"')
            || text == "."
            || text == ".."
            || (parts.len() > 1 && text.contains(','));
        if ambiguous { quoted(text) } else { text.clone() }
    };
    parts.iter().map(part).collect::<Vec<_>>().join(",")
}

/// Parses a key into a value for each of these columns; errors name the `variable` of the URI template. An unquoted key
/// of one column is taken literally, commas included.
pub(super) fn parse_key(variable: &str, key: &str, columns: &[&str]) -> Result<Vec<String>> {
    if columns.len() == 1 && !key.starts_with('"') {
        return Ok(vec![key.to_owned()]);
    }
    match split(key, ',') {
        Some(parts) if parts.len() == columns.len() => Ok(parts),
        Some(parts) => Err(Error::invalid(format!(
            "`{variable}` has {}, but the key has {}: write a value for each of {}, separated by commas",
            counted(parts.len() as u64, "value"),
            counted(columns.len() as u64, "column"),
            columns.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
        ))),
        None => Err(Error::invalid(format!(
            "`{variable}` has a double quote that is not closed, or text after a closing quote: write a quote within a \
             quoted value twice"
        ))),
    }
}

/// Splits a text into parts, which may be in double quotes; `None` if a quote is not closed or is followed by something
/// other than the separator.
pub(super) fn split(text: &str, separator: char) -> Option<Vec<String>> {
    let mut parts = Vec::new();
    let mut rest = text;
    loop {
        let mut part = String::new();
        if let Some(mut within) = rest.strip_prefix('"') {
            loop {
                let end = within.find('"')?;
                part.push_str(&within[..end]);
                within = &within[end + 1..];
                match within.strip_prefix('"') {
                    Some(more) => {
                        part.push('"');
                        within = more;
                    }
                    None => break,
                }
            }
            rest = within;
        } else {
            let end = rest.find(separator).unwrap_or(rest.len());
            part.push_str(&rest[..end]);
            rest = &rest[end..];
        }
        parts.push(part);
        match rest.strip_prefix(separator) {
            Some(more) => rest = more,
            None if rest.is_empty() => return Some(parts),
            None => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{format_key, format_table, parse_key, parse_table, segment};
    use crate::sql::catalog::TableName;

    #[test]
    fn keys_are_parsed() {
        let (one, two) = (["a"], ["a", "b"]);
        assert_eq!(parse_key("key", "a,b", &one).unwrap(), ["a,b"]);
        assert_eq!(parse_key("key", "1,2", &two).unwrap(), ["1", "2"]);
        assert_eq!(parse_key("key", "\"a,b\",\"\"\"\"", &two).unwrap(), ["a,b", "\""]);
        assert_eq!(parse_key("key", "\"..\"", &one).unwrap(), [".."]);
        for key in ["1", "1,2,3", "\"a,b"] {
            assert!(parse_key("key", key, &two).is_err(), "{key}");
        }
        for key in ["\"a", "\"a\"b"] {
            assert!(parse_key("key", key, &one).is_err(), "{key}");
        }
    }

    #[test]
    fn a_table_has_one_name() {
        let named = |label| parse_table(label, "public").map(|name| (name.schema, name.table));
        assert_eq!(named("orders"), Some(("public".into(), "orders".into())));
        assert_eq!(named("sales.orders"), Some(("sales".into(), "orders".into())));
        assert_eq!(named("\"sales.orders\""), Some(("public".into(), "sales.orders".into())));
        for label in ["public.orders", "\"orders\"", "a.b.c", "a\"b", "", "a.", ".a", "\"a"] {
            assert_eq!(named(label), None, "{label}");
        }
    }

    proptest! {
        #[test]
        fn formatted_keys_are_parsed(parts in prop::collection::vec(".{0,8}|[a\",.]{0,6}", 1..4)) {
            prop_assert_eq!(parse_key("key", &format_key(&parts), &vec!["c"; parts.len()]).unwrap(), parts);
        }

        #[test]
        fn formatted_tables_are_parsed(schema in "[a.\"x]{1,5}|main", table in ".{1,8}|[a.\"]{1,5}") {
            let name = TableName { schema, table };
            prop_assert_eq!(parse_table(&format_table(&name, "main"), "main"), Some(name));
        }

        #[test]
        fn segments_are_single(text in ".{0,20}") {
            let segment = segment(&text);
            prop_assert!(!segment.contains(['/', '?', '#', '&', '"']));
        }
    }
}
