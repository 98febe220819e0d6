//! What a running process has used, as the kernel counts it.

use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::machine::field;

/// The resident memory of a process, in bytes. What the kernel holds for its sockets is not in it.
pub(crate) fn memory(id: u32) -> Result<u64> {
    let text = field(&format!("/proc/{id}/status"), "VmRSS").context("the process has ended")?;
    let kilobytes: u64 = text.trim_end_matches(" kB").parse().context("`VmRSS` is no number")?;
    Ok(kilobytes << 10)
}

/// The time that a process has been computing, for itself and in the kernel.
pub(crate) fn computing(id: u32) -> Result<Duration> {
    let text = std::fs::read_to_string(format!("/proc/{id}/stat")).context("the process has ended")?;
    // The name before it may hold anything, even a parenthesis.
    let (_, fields) = text.rsplit_once(')').context("`stat` has no name")?;
    let fields: Vec<_> = fields.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|ticks| ticks.parse::<u64>().ok());
    let ticks = ticks(11).zip(ticks(12)).map(|(own, kernel)| own + kernel).context("`stat` has no times")?;
    Ok(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
}
