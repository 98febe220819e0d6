//! Runs attackers in the scheduling class `SCHED_IDLE`. Real attackers have their own machines, so what slows down a
//! bystander must be the server, not a load generator that takes its processor.
//!
//! A high nice value is not enough: on Linux 6.6 and later, a thread of any nice value may finish its time slice of
//! about 3 ms before a thread that wakes up gets the processor. A thread of `SCHED_IDLE` is preempted at once.

use std::process::Command;
use std::sync::mpsc;
use std::sync::{Mutex, OnceLock, PoisonError};

use anyhow::{Context as _, Result, anyhow, ensure};
use rustix::process::Pid;
use rustix::thread::{CpuSet, gettid, sched_getaffinity, sched_setaffinity};

type Job = Box<dyn FnOnce() + Send>;

/// The queue of the one thread with normal priority, which starts the threads and processes that must have it too.
static USUAL: OnceLock<Mutex<mpsc::Sender<Job>>> = OnceLock::new();

/// The processors of the attackers and of everybody else.
struct Processors {
    attackers: CpuSet,
    others: CpuSet,
}

impl Processors {
    /// The last processor is for the attackers. An error if there is only one.
    fn divided() -> Result<Self> {
        let (all, mut attackers) = (sched_getaffinity(None)?, CpuSet::new());
        let last = (0..CpuSet::MAX_CPU).rev().find(|number| all.is_set(*number)).unwrap_or_default();
        attackers.set(last);
        let mut others = all;
        others.unset(last);
        ensure!(others.count() > 0, "`--pin` needs two processors: one of them is for the attackers");
        Ok(Self { attackers, others })
    }
}

/// Lowers the priority of all threads of this process, and of those that they start. With `pin`, these threads are
/// pinned to one processor, and servers and bystanders to the others.
pub(super) fn lower(pin: bool) -> Result<()> {
    let processors = pin.then(Processors::divided).transpose()?;
    let (sender, jobs) = mpsc::channel::<Job>();
    let (ready, id) = mpsc::channel();
    std::thread::spawn(move || {
        // Fails if `lower` has already failed.
        let _ = ready.send(gettid());
        jobs.iter().for_each(|job| job());
    });
    let usual = id.recv().context("a thread could not be started")?;
    if let Some(Processors { others, .. }) = &processors {
        sched_setaffinity(Some(usual), others)?;
    }
    USUAL.set(Mutex::new(sender)).map_err(|_| anyhow!("the priority is lowered already"))?;
    for entry in std::fs::read_dir("/proc/self/task")? {
        let thread = entry?.file_name().to_str().and_then(|id| Pid::from_raw(id.parse().ok()?));
        if let Some(thread) = thread.filter(|thread| *thread != usual) {
            // No safe function sets the scheduling class of a thread, so `chrt` of util-linux does.
            let id = thread.as_raw_nonzero().to_string();
            let status = Command::new("chrt").args(["--idle", "--pid", "0", &id]).status();
            ensure!(status.context("could not run `chrt`")?.success(), "could not lower the priority");
            if let Some(Processors { attackers, .. }) = &processors {
                sched_setaffinity(Some(thread), attackers)?;
            }
        }
    }
    Ok(())
}

/// Runs `start` on the thread with normal priority, which the processes and threads that it starts inherit.
pub(super) fn usual<T: Send + 'static>(start: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let (sender, started) = mpsc::channel();
    let job: Job = Box::new(move || drop(sender.send(start())));
    let queue = USUAL.get().context("the priority was not lowered")?;
    queue.lock().unwrap_or_else(PoisonError::into_inner).send(job).ok().context("the thread has ended")?;
    started.recv().context("the thread has ended")
}
