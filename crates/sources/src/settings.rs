//! Deserialization of the numbers and durations of a configuration file, within bounds.
//!
//! A value out of range is an error that names its line in the file. Without this check, it could cause a panic
//! or exhaust the memory later.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use serde::de::{Error as _, Visitor};
use serde::{Deserialize, Deserializer};

/// The longest duration: an `Instant` plus a longer one may overflow.
pub const MAX_DURATION: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// An integer within a range.
pub fn within<'de, D: Deserializer<'de>, N: TryFrom<u64>>(
    deserializer: D,
    range: RangeInclusive<u64>,
) -> Result<N, D::Error> {
    let number = i64::deserialize(deserializer)?;
    let inside = u64::try_from(number).ok().filter(|number| range.contains(number));
    inside.and_then(|number| N::try_from(number).ok()).ok_or_else(|| {
        let (least, most) = range.into_inner();
        D::Error::custom(format!("`{number}` is out of range; hint: use a number from {least} to {most}"))
    })
}

/// A number of bytes within a range: an integer, or a text with a unit such as `"8MB"` or `"64 KiB"`.
pub fn bytes_within<'de, D: Deserializer<'de>>(
    deserializer: D,
    range: RangeInclusive<u64>,
) -> Result<u64, D::Error> {
    let bytes = deserializer.deserialize_any(ByteVisitor)?;
    match bytes.filter(|bytes| range.contains(bytes)) {
        Some(bytes) => Ok(bytes),
        None => {
            let (least, most) = range.into_inner();
            let hint = format!("use a number of bytes from {least} to {most}, or a size such as \"8MB\"");
            Err(D::Error::custom(format!("the size is out of range; hint: {hint}")))
        }
    }
}

/// A number of bytes; `None` if it does not fit into 64 bits.
struct ByteVisitor;

impl Visitor<'_> for ByteVisitor {
    type Value = Option<u64>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of bytes, or a size such as \"8MB\"")
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Self::Value, E> {
        Ok(u64::try_from(number).ok())
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Some(number))
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
        let unit = text.trim_start_matches(|letter: char| letter.is_ascii_digit());
        let number = text[..text.len() - unit.len()].parse::<u64>();
        // As in the International System of Units, and in IEC 80000-13.
        let factor: Option<u64> = match &*unit.trim().to_ascii_lowercase() {
            "b" => Some(1),
            "kb" => Some(1_000),
            "mb" => Some(1_000_000),
            "gb" => Some(1_000_000_000),
            "kib" => Some(1 << 10),
            "mib" => Some(1 << 20),
            "gib" => Some(1 << 30),
            _ => None,
        };
        match (number, factor) {
            (Ok(number), Some(factor)) => Ok(number.checked_mul(factor)),
            _ => Err(E::custom(format!(
                "`{text}` is not a size; hint: write a number of bytes, or a size such as \"8MB\" or \"64KiB\""
            ))),
        }
    }
}

/// A duration such as `"30s"`, `"5m"` or `"1h 30m"`, up to [`MAX_DURATION`].
pub fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    match parsed(deserializer)? {
        (text, duration) if duration > MAX_DURATION => {
            Err(D::Error::custom(format!("`{text}` must be at most 100 years")))
        }
        (_, duration) => Ok(duration),
    }
}

/// A [`duration`] of an optional key.
pub fn optional_duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    duration(deserializer).map(Some)
}

/// A duration within a range.
pub fn duration_within<'de, D: Deserializer<'de>>(
    deserializer: D,
    range: RangeInclusive<Duration>,
) -> Result<Duration, D::Error> {
    let (text, duration) = parsed(deserializer)?;
    match range.contains(&duration) {
        true => Ok(duration),
        false => {
            let [least, most] = [range.start(), range.end()].map(|bound| humantime::format_duration(*bound));
            let hint = format!("use a duration from `{least}` to `{most}`");
            Err(D::Error::custom(format!("`{text}` is out of range; hint: {hint}")))
        }
    }
}

fn parsed<'de, D: Deserializer<'de>>(deserializer: D) -> Result<(String, Duration), D::Error> {
    let text = String::deserialize(deserializer)?;
    match humantime::parse_duration(&text) {
        Ok(duration) => Ok((text, duration)),
        Err(cause) => {
            Err(D::Error::custom(format!("`{text}` is not a duration such as `30s` or `5m`: {cause}")))
        }
    }
}

/// The maximum size of one response, which is held in memory as a whole: from 1 byte to 1 GiB.
pub fn content_bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    bytes_within(deserializer, 1..=1 << 30)
}

/// The maximum size of the listing of a folder together with the texts that follow it: up to 1 GiB. With 0, no texts
/// follow.
pub fn folder_bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    bytes_within(deserializer, 0..=1 << 30)
}

/// The maximum number of entries on one page of the listing of a folder: from 1 to 100,000.
pub fn folder_entries<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    within(deserializer, 1..=100_000)
}

/// The maximum depth of listed directories, as the value of an optional key: from 1 to 128.
pub fn optional_depth<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<usize>, D::Error> {
    within(deserializer, 1..=128).map(Some)
}

/// The maximum number of listed resources, as the value of an optional key: from 1 to 1,000,000.
pub fn optional_listed<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<usize>, D::Error> {
    within(deserializer, 1..=1_000_000).map(Some)
}

/// The maximum number of pages of a list that are requested: from 1 to 100.
pub fn list_pages<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    within(deserializer, 1..=100)
}

/// The maximum number of concurrent requests: from 1 to 1,024.
pub fn concurrency<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    within(deserializer, 1..=1024)
}

/// The maximum number of concurrent processes: from 1 to 256.
pub fn processes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    within(deserializer, 1..=256)
}

/// The maximum size of a cache: up to 1 TiB.
pub fn cache_bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    bytes_within(deserializer, 0..=1 << 40)
}

/// The maximum number of redirects that one request follows: up to 20.
pub fn redirects<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    within(deserializer, 0..=20)
}

#[cfg(test)]
mod tests {
    use serde::Deserialize as _;

    use super::content_bytes;

    fn bytes(text: &str) -> Result<u64, String> {
        let value = toml::Value::deserialize(toml::de::ValueDeserializer::parse(text).unwrap()).unwrap();
        content_bytes(value).map_err(|error| error.to_string())
    }

    #[test]
    fn sizes_have_units() {
        for (text, size) in
            [("8", 8), ("\"8B\"", 8), ("\"8MB\"", 8_000_000), ("\"64 KiB\"", 65_536), ("\"1gib\"", 1 << 30)]
        {
            assert_eq!(bytes(text), Ok(size), "{text}");
        }
        for text in ["0", "-1", "\"2GB\"", "\"99999999999GB\""] {
            assert!(bytes(text).unwrap_err().starts_with("the size is out of range; hint: "), "{text}");
        }
        for text in ["\"8\"", "\"MB\"", "\"8 megabytes\"", "\"-8MB\"", "\"8.5MB\""] {
            assert!(bytes(text).unwrap_err().contains(" is not a size; hint: "), "{text}");
        }
    }
}
