//! Bounds of the numbers in a configuration: an error with its line is better than a panic or all memory later.

#![allow(dead_code, reason = "which of them are used depends on the features")]

use std::ops::RangeInclusive;

use serde::{Deserialize, Deserializer};

/// The bytes of one answer, which is in memory as a whole: up to 1 GiB.
pub(crate) fn content<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    within(deserializer, 1..=1 << 30)
}

/// The bytes of files that reading a folder gives: up to 1 GiB, or none.
pub(crate) fn folder_bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    within(deserializer, 0..=1 << 30)
}

/// The entries that reading a folder gives: up to 100,000.
pub(crate) fn folder_entries<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    within(deserializer, 0..=100_000)
}

/// Requests at the same time: from 1 to 1,024.
pub(crate) fn concurrency<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    within(deserializer, 1..=1024)
}

/// Processes at the same time: from 1 to 256.
pub(crate) fn processes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    within(deserializer, 1..=256)
}

/// The bytes of a cache: up to 1 TiB.
pub(crate) fn cache_bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    within(deserializer, 0..=1 << 40)
}

/// The redirects that one request may follow: up to 20.
pub(crate) fn redirects<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    within(deserializer, 0..=20)
}

fn within<'de, D: Deserializer<'de>, N: TryFrom<u64>>(
    deserializer: D,
    bounds: RangeInclusive<u64>,
) -> Result<N, D::Error> {
    let number = i64::deserialize(deserializer)?;
    let inside = u64::try_from(number).ok().filter(|number| bounds.contains(number));
    inside.and_then(|number| N::try_from(number).ok()).ok_or_else(|| {
        let (least, most) = bounds.into_inner();
        serde::de::Error::custom(format!(
            "`{number}` is out of bounds; hint: say a number from {least} to {most}"
        ))
    })
}
