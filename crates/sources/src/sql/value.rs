//! Values: the types of columns, bound parameters and results.

use base64::Engine as _;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::Deserialize;

/// The type of a column or a parameter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ValueType {
    /// Text.
    #[default]
    Text,
    /// Whole numbers.
    Integer,
    /// Floating-point numbers.
    Number,
    /// Exact decimal numbers.
    Decimal,
    /// True or false.
    Boolean,
    /// Dates.
    Date,
    /// Times of day.
    Time,
    /// Timestamps.
    Timestamp,
    /// Universally unique identifiers.
    Uuid,
    /// JSON.
    Json,
    /// Bytes, written in Base64.
    Bytes,
    /// Anything else, in the text format of the database.
    #[serde(skip)]
    Other,
}

/// A value to bind to a statement.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum BindValue {
    Null,
    Integer(i64),
    Unsigned(u64),
    Number(f64),
    Text(String),
    Bytes(Vec<u8>),
    /// Text of SQLite that is not UTF-8.
    TextBytes(Vec<u8>),
}

/// A value of a result.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum SqlValue {
    Null,
    Boolean(bool),
    Integer(i64),
    Unsigned(u64),
    Number(f64),
    Text(String),
    Bytes(Vec<u8>),
    Json(String),
}

impl SqlValue {
    /// Its approximate memory, in bytes.
    pub(super) fn size(&self) -> u64 {
        let more = match self {
            Self::Text(text) | Self::Json(text) => text.len(),
            Self::Bytes(bytes) => bytes.len(),
            Self::Null | Self::Boolean(_) | Self::Integer(_) | Self::Unsigned(_) | Self::Number(_) => 0,
        };
        (size_of::<Self>() + more) as u64
    }

    /// The value as the text of a key; `None` for null.
    pub(super) fn text(&self) -> Option<String> {
        match self {
            Self::Null => None,
            Self::Boolean(value) => Some(value.to_string()),
            Self::Integer(value) => Some(value.to_string()),
            Self::Unsigned(value) => Some(value.to_string()),
            Self::Number(value) => Some(value.to_string()),
            Self::Text(text) | Self::Json(text) => Some(text.clone()),
            Self::Bytes(bytes) => Some(encode(bytes)),
        }
    }

    /// The value as text, without a copy if it is text; `None` for null.
    pub(super) fn into_text(self) -> Option<String> {
        match self {
            Self::Text(text) | Self::Json(text) => Some(text),
            other => other.text(),
        }
    }

    /// The value as text, for example from the catalog: bytes are decoded as UTF-8, and null is empty.
    pub(super) fn to_text_lossy(&self) -> String {
        match self {
            Self::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            other => other.text().unwrap_or_default(),
        }
    }

    /// Whether the value is true. Catalogs also spell this `true`, `t`, `1` or `YES`.
    pub(super) fn as_bool(&self) -> bool {
        match self {
            Self::Boolean(value) => *value,
            other => matches!(&*other.to_text_lossy(), "true" | "t" | "1" | "YES"),
        }
    }

    /// Converts a value that was sent as text to its type. Text that cannot be parsed as that type stays text.
    pub(super) fn of_text(kind: ValueType, text: String) -> Self {
        match kind {
            ValueType::Boolean => match &*text {
                "t" | "true" => Self::Boolean(true),
                "f" | "false" => Self::Boolean(false),
                _ => Self::Text(text),
            },
            ValueType::Integer => text.parse().map_or(Self::Text(text), Self::Integer),
            ValueType::Number => match text.parse::<f64>() {
                Ok(number) if number.is_finite() => Self::Number(number),
                _ => Self::Text(text),
            },
            ValueType::Json => Self::Json(text),
            ValueType::Timestamp => Self::Text(moment(text)),
            ValueType::Bytes => decode(&text).map_or(Self::Text(text), Self::Bytes),
            _ => Self::Text(text),
        }
    }
}

/// Converts a timestamp such as `2026-07-28 12:00:00+00` to ISO 8601. Other texts, such as `infinity`, are unchanged.
fn moment(text: String) -> String {
    let is_timestamp = text.len() >= 19 && text.as_bytes()[10] == b' ' && !text.ends_with("BC");
    if !is_timestamp {
        return text;
    }
    let text = text.replacen(' ', "T", 1);
    match text.strip_suffix("+00") {
        Some(local) => format!("{local}Z"),
        None => text,
    }
}

/// Parses a value in a URI; the error names the expected form.
pub(super) fn parse(kind: ValueType, text: &str) -> Result<BindValue, &'static str> {
    let as_text = || BindValue::Text(text.to_owned());
    match kind {
        ValueType::Integer => text
            .parse()
            .map(BindValue::Integer)
            .or_else(|_| text.parse().map(BindValue::Unsigned))
            .map_err(|_| "a whole number"),
        ValueType::Number => match text.parse::<f64>() {
            Ok(number) if !number.is_nan() => Ok(BindValue::Number(number)),
            _ => Err("a number"),
        },
        ValueType::Decimal if is_decimal(text) || is_infinite(text) => Ok(as_text()),
        ValueType::Decimal => Err("a number"),
        ValueType::Boolean => match text {
            "true" | "1" => Ok(BindValue::Integer(1)),
            "false" | "0" => Ok(BindValue::Integer(0)),
            _ => Err("`true` or `false`"),
        },
        ValueType::Date | ValueType::Timestamp if is_infinite(text) || is_before_christ(text) => {
            Ok(as_text())
        }
        ValueType::Date if text.parse::<jiff::civil::Date>().is_ok() => Ok(as_text()),
        ValueType::Date => Err("a date such as `2026-07-28`"),
        ValueType::Time if text.parse::<jiff::civil::Time>().is_ok() || is_mysql_time(text) => Ok(as_text()),
        ValueType::Time => Err("a time such as `12:30:00`"),
        ValueType::Timestamp => {
            timestamp(text).map(BindValue::Text).ok_or("a time such as `2026-07-28T12:30:00Z`")
        }
        ValueType::Uuid if is_uuid(text) => Ok(as_text()),
        ValueType::Uuid => Err("a UUID"),
        ValueType::Json if serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok() => Ok(as_text()),
        ValueType::Json => Err("JSON"),
        ValueType::Bytes => decode(text).map(BindValue::Bytes).ok_or("Base64"),
        ValueType::Text | ValueType::Other if text.contains('\0') => Err("text without a NUL"),
        ValueType::Text | ValueType::Other => Ok(as_text()),
    }
}

/// Converts a timestamp to UTC, in the form `2026-07-28 12:30:00`. Without an offset, it is assumed to be in UTC.
fn timestamp(text: &str) -> Option<String> {
    let local = match text.parse::<jiff::Timestamp>() {
        Ok(moment) => moment.to_zoned(jiff::tz::TimeZone::UTC).datetime(),
        Err(_) => text.parse().ok()?,
    };
    Some(local.to_string().replacen('T', " ", 1))
}

fn is_decimal(text: &str) -> bool {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (whole, part) = digits.split_once('.').unwrap_or((digits, "0"));
    let all = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    all(whole) && all(part)
}

/// Whether this is one of the special values `infinity` and `-infinity` of PostgreSQL.
fn is_infinite(text: &str) -> bool {
    text.strip_prefix('-').unwrap_or(text).eq_ignore_ascii_case("infinity")
}

/// Whether this has PostgreSQL's suffix for dates before the year 1.
fn is_before_christ(text: &str) -> bool {
    let written = |letter: char| letter.is_ascii_digit() || "-:. +".contains(letter);
    text.strip_suffix(" BC").is_some_and(|rest| !rest.is_empty() && rest.chars().all(written))
}

/// Whether this has the form of a MySQL `TIME`: up to 838 hours, possibly negative.
fn is_mysql_time(text: &str) -> bool {
    let parts: Vec<_> = text.strip_prefix('-').unwrap_or(text).split([':', '.']).collect();
    let digits =
        |part: &&str| (1..=6).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
    (3..=4).contains(&parts.len()) && parts.iter().all(digits)
}

fn is_uuid(text: &str) -> bool {
    let hyphens = [8, 13, 18, 23];
    text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| match hyphens.contains(&at) {
            true => byte == b'-',
            false => byte.is_ascii_hexdigit(),
        })
}

/// Bytes as Base64.
pub(super) fn encode(bytes: &[u8]) -> String {
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

/// Decodes Base64 in either alphabet, with or without padding, and with the line breaks that databases insert.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    let lenient = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let text: String = text.chars().filter(|character| !character.is_ascii_whitespace()).collect();
    let alphabet = if text.contains(['-', '_']) { &URL_SAFE } else { &STANDARD };
    GeneralPurpose::new(alphabet, lenient).decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::{BindValue, SqlValue, ValueType, parse};

    #[test]
    fn values_are_read_by_their_kind() {
        let good = [
            (ValueType::Integer, "-7", BindValue::Integer(-7)),
            (ValueType::Integer, "18446744073709551615", BindValue::Unsigned(u64::MAX)),
            (ValueType::Number, "1.5", BindValue::Number(1.5)),
            (ValueType::Decimal, "-10.50", BindValue::Text("-10.50".into())),
            (ValueType::Boolean, "true", BindValue::Integer(1)),
            (ValueType::Date, "2026-07-28", BindValue::Text("2026-07-28".into())),
            (
                ValueType::Timestamp,
                "2026-07-28T12:00:00+02:00",
                BindValue::Text("2026-07-28 10:00:00".into()),
            ),
            (ValueType::Timestamp, "2026-07-28 12:00:00.5", BindValue::Text("2026-07-28 12:00:00.5".into())),
            (ValueType::Date, "-infinity", BindValue::Text("-infinity".into())),
            (
                ValueType::Timestamp,
                "0044-03-15 12:00:00 BC",
                BindValue::Text("0044-03-15 12:00:00 BC".into()),
            ),
            (ValueType::Time, "-838:59:59", BindValue::Text("-838:59:59".into())),
            (ValueType::Bytes, "_-8", BindValue::Bytes(vec![255, 239])),
            (ValueType::Bytes, "/+8=", BindValue::Bytes(vec![255, 239])),
            (ValueType::Json, "{\"a\": 1}", BindValue::Text("{\"a\": 1}".into())),
        ];
        for (kind, text, bind) in good {
            assert_eq!(parse(kind, text), Ok(bind), "{text}");
        }
        let bad = [
            (ValueType::Integer, "1 OR 1=1"),
            (ValueType::Integer, ""),
            (ValueType::Integer, "１"),
            (ValueType::Number, "NaN"),
            (ValueType::Decimal, "1e5"),
            (ValueType::Decimal, "1;2"),
            (ValueType::Boolean, "yes"),
            (ValueType::Date, "2026-13-01"),
            (ValueType::Timestamp, "now()"),
            (ValueType::Timestamp, "now() BC"),
            (ValueType::Time, "1:2"),
            (ValueType::Time, "1:2:3;"),
            (ValueType::Uuid, "550e8400e29b41d4a716446655440000"),
            (ValueType::Json, "{"),
            (ValueType::Bytes, "'"),
            (ValueType::Text, "a\0b"),
        ];
        for (kind, text) in bad {
            assert!(parse(kind, text).is_err(), "{text}");
        }
    }

    #[test]
    fn moments_are_written_as_iso_8601() {
        let written = |text: &str| SqlValue::of_text(ValueType::Timestamp, text.to_owned()).text().unwrap();
        assert_eq!(written("2026-07-28 12:00:00.25+00"), "2026-07-28T12:00:00.25Z");
        assert_eq!(written("2026-07-28 12:00:00"), "2026-07-28T12:00:00");
        assert_eq!(written("infinity"), "infinity");
        assert_eq!(written("0044-03-15 12:00:00 BC"), "0044-03-15 12:00:00 BC");
    }
}
