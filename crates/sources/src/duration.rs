//! Durations as people write them in a configuration: `30s`, `5m`, `1h 30m`.

use std::time::Duration;

use serde::{Deserialize, Deserializer};

pub(crate) fn parse<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    humantime::parse_duration(&text).map_err(|cause| {
        serde::de::Error::custom(format!("`{text}` is not a duration such as `5m`: {cause}"))
    })
}
