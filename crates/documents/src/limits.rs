//! The limits of one extraction.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The limits of one extraction in a child process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct ExtractionLimits {
    /// The maximum private writable memory of the process, in bytes. Enforced on Linux only.
    pub memory: u64,
    /// The maximum processor time of the process. Enforced on Unix only.
    pub cpu: Duration,
    /// The maximum time from the start of the process to its end.
    pub wall: Duration,
    /// The maximum number of bytes of an extracted text or list of members, as JSON. The server parses it, which can
    /// take twice as much memory for each concurrent extraction.
    pub text: u64,
    /// The maximum number of bytes of the image of a page.
    pub image: u64,
    /// The maximum number of bytes of an extracted member.
    pub member: u64,
    /// The maximum number of bytes that may be decompressed from one document or archive.
    pub expanded: u64,
}

impl Default for ExtractionLimits {
    fn default() -> Self {
        Self {
            memory: 512 << 20,
            cpu: Duration::from_secs(60),
            wall: Duration::from_secs(120),
            text: 16 << 20,
            image: 8 << 20,
            member: 64 << 20,
            expanded: 256 << 20,
        }
    }
}
