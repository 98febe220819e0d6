//! The limits of one extraction.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The limits of one extraction in a child process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct ExtractionLimits {
    /// The most memory of the process, in bytes. On Linux only.
    pub memory: u64,
    /// The most processor time. On Unix only.
    pub cpu: Duration,
    /// The most time from the start of the process to its end.
    pub wall: Duration,
    /// The most bytes of output.
    pub output: u64,
    /// The most bytes that the parts of one document may have when decompressed.
    pub expanded: u64,
}

impl Default for ExtractionLimits {
    fn default() -> Self {
        Self {
            memory: 512 << 20,
            cpu: Duration::from_secs(60),
            wall: Duration::from_secs(120),
            output: 64 << 20,
            expanded: 256 << 20,
        }
    }
}
