//! Memory, descriptors and CPU time of a process, from `/proc`.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::machine::field;

/// The resident memory of a process, in bytes, without the kernel's socket buffers.
pub(crate) fn memory(id: u32) -> Result<u64> {
    let text = field(&format!("/proc/{id}/status"), "VmRSS").context("the process has ended")?;
    let kilobytes: u64 = text.trim_end_matches(" kB").parse().context("`VmRSS` is no number")?;
    Ok(kilobytes << 10)
}

/// The number of open file descriptors of a process.
pub(crate) fn descriptors(id: u32) -> Result<usize> {
    Ok(std::fs::read_dir(format!("/proc/{id}/fd")).context("the process has ended")?.count())
}

/// The ids of the child processes of a process.
pub(crate) fn children(id: u32) -> Result<Vec<u32>> {
    let mut children = Vec::new();
    for thread in std::fs::read_dir(format!("/proc/{id}/task")).context("the process has ended")? {
        // The thread may have ended since the directory was read.
        let Ok(text) = std::fs::read_to_string(thread?.path().join("children")) else { continue };
        children.extend(text.split_ascii_whitespace().filter_map(|id| id.parse::<u32>().ok()));
    }
    Ok(children)
}

/// The CPU time of each thread of a process, in user and kernel mode.
///
/// In nanoseconds: the kernel counts the times of a whole process in hundredths of a second only. Threads that have
/// ended are not included.
pub(crate) struct Computing(HashMap<String, u64>);

impl Computing {
    pub(crate) fn of(id: u32) -> Result<Self> {
        let mut threads = HashMap::new();
        for thread in std::fs::read_dir(format!("/proc/{id}/task")).context("the process has ended")? {
            let thread = thread?;
            // The thread may have ended since the directory was read.
            let Ok(text) = std::fs::read_to_string(thread.path().join("schedstat")) else { continue };
            let time = text.split(' ').next().and_then(|time| time.parse().ok());
            threads.insert(
                thread.file_name().to_string_lossy().into_owned(),
                time.context("the kernel does not count what threads compute")?,
            );
        }
        Ok(Self(threads))
    }

    /// The CPU time since an earlier measurement.
    pub(crate) fn since(&self, before: &Self) -> Duration {
        let past = |thread| before.0.get(thread).copied().unwrap_or_default();
        let times = self.0.iter().map(|(thread, time)| time.saturating_sub(past(thread)));
        Duration::from_nanos(times.sum())
    }
}
