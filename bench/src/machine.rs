//! The machine: its description, CPU affinity, load and the limit of open files.

use std::process::{Child, Command};

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Separate cores for the servers and the client.
pub(crate) struct Cores {
    all: CpuSet,
    server: CpuSet,
    client: CpuSet,
}

impl Cores {
    /// Reserves the first core for the servers, and pins this thread to the last one. On a machine with one core, they
    /// share it.
    pub(crate) fn apart() -> Result<Self> {
        let all = sched_getaffinity(None).context("could not tell which cores there are")?;
        let mut cores = (0..CpuSet::MAX_CPU).filter(|&core| all.is_set(core));
        let first = cores.next().context("there is no core")?;
        let last = cores.next_back().unwrap_or(first);
        let only = |core| {
            let mut set = CpuSet::new();
            set.set(core);
            set
        };
        let cores = Self { all, server: only(first), client: only(last) };
        sched_setaffinity(None, &cores.client)?;
        Ok(cores)
    }

    /// Starts a program on the servers' core.
    pub(crate) fn start(&self, command: &mut Command) -> Result<Child> {
        self.start_on(&self.server, command)
    }

    /// Starts a program that may use all cores.
    pub(crate) fn start_anywhere(&self, command: &mut Command) -> Result<Child> {
        self.start_on(&self.all, command)
    }

    /// A child process inherits the CPU affinity of the thread that starts it.
    fn start_on(&self, cores: &CpuSet, command: &mut Command) -> Result<Child> {
        sched_setaffinity(None, cores)?;
        let child = command.spawn();
        sched_setaffinity(None, &self.client)?;
        child.with_context(|| format!("could not start {:?}", command.get_program()))
    }
}

/// A short description of the machine.
pub(crate) fn description() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let model = field("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown processor".to_owned());
    let memory = field("/proc/meminfo", "MemTotal")
        .and_then(|text| text.trim_end_matches(" kB").parse::<u64>().ok())
        .map_or(0, |kilobytes| (kilobytes + (1 << 19)) >> 20);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{cores} cores ({model}), {memory} GiB, Linux {}", kernel.trim())
}

/// The load average of the last minute. If it is high at the start, other programs use the machine too.
pub(crate) fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().and_then(|load| load.parse().ok()).unwrap_or_default()
}

/// The first field of this name in a file of `name: value` lines.
pub(crate) fn field(path: &str, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let mut fields = text.lines().filter_map(|line| line.split_once(':'));
    fields.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_owned())
}

/// Raises the soft limit of open files to the hard limit, which must be at least `needed`.
pub(crate) fn raise_open_files(needed: usize) -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    setrlimit(Resource::Nofile, raised).context("could not raise the limit of open files")?;
    let most = limit.maximum.unwrap_or(u64::MAX);
    ensure!(
        most >= needed as u64,
        "a process may open {most} files here and {needed} are needed\nhint: ask for fewer with --streams, \
         or raise the hard limit (`ulimit -Hn`)"
    );
    Ok(())
}
