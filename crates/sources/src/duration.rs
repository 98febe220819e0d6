//! Durations as people write them in a configuration: `30s`, `5m`, `1h 30m`.

use std::time::Duration;

use serde::{Deserialize, Deserializer};

/// More cannot always be added to a time.
pub(crate) const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

pub(crate) fn parse<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    let duration = humantime::parse_duration(&text).map_err(|cause| {
        serde::de::Error::custom(format!("`{text}` is not a duration such as `5m`: {cause}"))
    })?;
    match duration > LONGEST {
        true => Err(serde::de::Error::custom(format!("`{text}` is longer than a hundred years"))),
        false => Ok(duration),
    }
}
