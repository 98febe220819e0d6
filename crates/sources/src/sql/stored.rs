//! Key values of SQLite by storage class: a column may hold values of any class, whatever its declared type.
//!
//! In a URI, a value is plain text if parsing that text returns the same value. Otherwise its storage class
//! precedes it, as in `text~2` for the text `2` in a column of numbers. Primary keys of SQLite may contain nulls,
//! and a key with a null is not unique. In the text of such a key, null is `null`, and the `rowid` follows the
//! values.

use super::catalog::TableColumn;
use super::value::{BindValue, SqlValue, ValueType, decode, encode};

/// The text of null in a key.
pub(super) const NULL: &str = "null";

/// Separates the storage class from the value.
const CLASS_SEPARATOR: char = '~';

/// The storage classes as `typeof` names them, and the pseudo-class of text that is not UTF-8.
const TEXT: &str = "text";
const INTEGER: &str = "integer";
const REAL: &str = "real";
const BLOB: &str = "blob";
const TEXT_BYTES: &str = "textbytes";

/// A value from its `typeof` and the value that the driver decoded; `None` if they contradict each other.
pub(super) fn stored(class: &SqlValue, value: &SqlValue) -> Option<BindValue> {
    Some(match (&*class.to_text_lossy(), value) {
        ("null", _) => BindValue::Null,
        (INTEGER, SqlValue::Integer(number)) => BindValue::Integer(*number),
        (REAL, SqlValue::Number(number)) => BindValue::Number(*number),
        // An infinity.
        (REAL, SqlValue::Text(text)) => BindValue::Number(text.parse().ok()?),
        (TEXT, SqlValue::Text(text)) => BindValue::Text(text.clone()),
        (TEXT, SqlValue::Bytes(bytes)) => BindValue::TextBytes(bytes.clone()),
        (BLOB, SqlValue::Bytes(bytes)) => BindValue::Bytes(bytes.clone()),
        _ => return None,
    })
}

/// Parses a value of this column; the error names the expected form.
pub(super) fn read(column: &TableColumn, text: &str) -> Result<BindValue, &'static str> {
    if let Some((class, rest)) = text.split_once(CLASS_SEPARATOR) {
        let value = match class {
            TEXT => Some(BindValue::Text(rest.to_owned())),
            INTEGER => rest.parse().ok().map(BindValue::Integer),
            REAL => rest.parse().ok().map(BindValue::Number),
            BLOB => decode(rest).map(BindValue::Bytes),
            TEXT_BYTES => decode(rest).map(BindValue::TextBytes),
            _ => None,
        };
        if let Some(value) = value {
            return Ok(value);
        }
    }
    plain(column, text)
}

/// Parses a value without a storage class. The declared type of the column determines the class.
fn plain(column: &TableColumn, text: &str) -> Result<BindValue, &'static str> {
    let as_text = || BindValue::Text(text.to_owned());
    let integer = || text.parse().ok().map(BindValue::Integer);
    let real = || text.parse::<f64>().ok().filter(|number| !number.is_nan()).map(BindValue::Number);
    if column.base.is_empty() {
        return Ok(integer().unwrap_or_else(as_text));
    }
    Ok(match (column.kind, text) {
        (ValueType::Text, _) => as_text(),
        // Usually an `INTEGER PRIMARY KEY`, which contains only integers. Other values need their storage class.
        (ValueType::Integer, _) if column.base.eq_ignore_ascii_case(INTEGER) => {
            return integer().ok_or("a whole number");
        }
        (ValueType::Boolean, "true") => BindValue::Integer(1),
        (ValueType::Boolean, "false") => BindValue::Integer(0),
        (ValueType::Number, _) => real().unwrap_or_else(as_text),
        (ValueType::Bytes, _) => decode(text).map_or_else(as_text, BindValue::Bytes),
        _ => integer().or_else(real).unwrap_or_else(as_text),
    })
}

/// The text of a value in a key; [`NULL`] for null. `is_reserved` says which plain texts have another meaning in a key.
pub(super) fn write(column: &TableColumn, value: &BindValue, is_reserved: impl Fn(&str) -> bool) -> String {
    let (class, text) = match value {
        BindValue::Integer(number) => (INTEGER, number.to_string()),
        BindValue::Number(number) => (REAL, number.to_string()),
        BindValue::Text(text) => (TEXT, text.clone()),
        BindValue::Bytes(bytes) => (BLOB, encode(bytes)),
        BindValue::TextBytes(bytes) => (TEXT_BYTES, encode(bytes)),
        BindValue::Null | BindValue::Unsigned(_) => return NULL.to_owned(),
    };
    let mut short = text.clone();
    if column.kind == ValueType::Boolean
        && let BindValue::Integer(number @ 0..=1) = value
    {
        short = (*number == 1).to_string();
    }
    let is_plain = !is_reserved(&short) && read(column, &short).is_ok_and(|read| is_same(&read, value));
    if is_plain { short } else { format!("{class}{CLASS_SEPARATOR}{text}") }
}

/// Whether SQLite treats two values as the same: it compares integers and reals by value. Here, a real and an integer
/// of 2^53 or more are never the same, because the conversion is not exact.
fn is_same(one: &BindValue, other: &BindValue) -> bool {
    match (one, other) {
        (BindValue::Integer(integer), BindValue::Number(number))
        | (BindValue::Number(number), BindValue::Integer(integer)) => {
            *integer as f64 == *number && number.abs() < 2_f64.powi(53)
        }
        _ => one == other,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{is_same, read, write};
    use crate::sql::catalog::TableColumn;
    use crate::sql::dialect::Dialect;
    use crate::sql::value::BindValue;

    fn column(declared: &str) -> TableColumn {
        TableColumn {
            name: "k".into(),
            declared: declared.into(),
            base: declared.into(),
            cast: String::new(),
            kind: Dialect::Sqlite.kind(declared),
            nullable: true,
            default: None,
            comment: None,
            values: Vec::new(),
        }
    }

    #[test]
    fn usual_values_are_plain() {
        let written = |declared: &str, value: BindValue| write(&column(declared), &value, |_| false);
        assert_eq!(written("INTEGER", BindValue::Integer(7)), "7");
        assert_eq!(written("", BindValue::Integer(2)), "2");
        assert_eq!(written("", BindValue::Text("2".into())), "text~2");
        assert_eq!(written("", BindValue::Text("two".into())), "two");
        assert_eq!(written("TEXT", BindValue::Text("2".into())), "2");
        assert_eq!(written("TEXT", BindValue::Text("text~2".into())), "text~text~2");
        assert_eq!(written("BLOB", BindValue::Bytes(vec![0, 255])), "AP8=");
        assert_eq!(written("BLOB", BindValue::Integer(1234)), "integer~1234");
        assert_eq!(written("BOOLEAN", BindValue::Integer(1)), "true");
        assert_eq!(written("BOOLEAN", BindValue::Text("true".into())), "text~true");
        assert_eq!(written("INT", BindValue::Text("inf".into())), "text~inf");
        assert_eq!(read(&column("INTEGER"), "one"), Err("a whole number"));
    }

    fn any_value() -> impl Strategy<Value = BindValue> {
        let text = prop_oneof![".{0,5}", "(text|blob|null|true|real)?[~,0-9.]{0,5}"];
        prop_oneof![
            any::<i64>().prop_map(BindValue::Integer),
            (-9_i64..9).prop_map(BindValue::Integer),
            any::<f64>()
                .prop_filter("SQLite stores NaN as null", |number| !number.is_nan())
                .prop_map(BindValue::Number),
            text.prop_map(BindValue::Text),
            prop::collection::vec(any::<u8>(), 0..5).prop_map(BindValue::Bytes),
            prop::collection::vec(200_u8.., 1..3).prop_map(BindValue::TextBytes),
        ]
    }

    proptest! {
        #[test]
        fn every_value_of_every_column_is_read_back(
            value in any_value(),
            declared in "|TEXT|INTEGER|INT|BLOB|REAL|BOOLEAN|JSON|DATETIME|DECIMAL",
        ) {
            let column = column(&declared);
            let text = write(&column, &value, |text| text == "null");
            prop_assert_ne!(&*text, "null");
            let back = read(&column, &text).unwrap();
            prop_assert!(is_same(&back, &value), "{} gave {:?}", text, back);
        }
    }
}
