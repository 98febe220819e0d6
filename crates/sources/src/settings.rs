//! Deserialization of the numbers and durations of a configuration file, within bounds.
//!
//! A value out of range is an error with its line in the file, instead of a panic or an exhausted memory later.

use std::ops::RangeInclusive;
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// The longest duration: an `Instant` plus a longer one may overflow.
pub const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

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

/// A duration such as `"30s"`, `"5m"` or `"1h 30m"`, up to [`LONGEST`].
pub fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    match parsed(deserializer)? {
        (text, duration) if duration > LONGEST => {
            Err(D::Error::custom(format!("`{text}` is longer than 100 years")))
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

/// The size of one response, which is held in memory as a whole: up to 1 GiB.
pub fn content_bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    within(deserializer, 1..=1 << 30)
}

/// The bytes of files in the contents of a folder: up to 1 GiB; 0 for none.
pub fn folder_bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    within(deserializer, 0..=1 << 30)
}

/// The entries in the contents of a folder: up to 100,000.
pub fn folder_entries<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    within(deserializer, 0..=100_000)
}

/// Concurrent requests: from 1 to 1,024.
pub fn concurrency<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    within(deserializer, 1..=1024)
}

/// Concurrent processes: from 1 to 256.
pub fn processes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    within(deserializer, 1..=256)
}

/// The size of a cache: up to 1 TiB.
pub fn cache_bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    within(deserializer, 0..=1 << 40)
}

/// The redirects that one request may follow: up to 20.
pub fn redirects<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    within(deserializer, 0..=20)
}
